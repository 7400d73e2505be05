//! The calls of victims and peers, by name, and what each changes.

use std::ffi::{CStr, CString};

use crate::control::{CHILDREN, Page, Slot};
use crate::door::{COMMON, Door, KEEP, NEW, OWN, RangeLock};

/// Arguments of a call: paths created beforehand, because the call's own instructions are counted.
pub(crate) struct Dir {
    /// The actor's own descriptor of its `a`.
    pub own: i32,
    dir: CString,
    a: CString,
    b: CString,
    /// An empty directory.
    d: CString,
    /// A directory with two files in it.
    e: CString,
    /// A name that is too long to be stored in an entry.
    long: CString,
    /// A directory that `e` is mounted on, and the files in it.
    m: CString,
    /// See [`Dir::m`].
    mx: CString,
    /// See [`Dir::m`].
    my: CString,
    /// An unused name in it.
    mn: CString,
    /// A file with an attribute.
    x: CString,
    /// An unused name.
    n: CString,
    /// An unused name in `e`.
    en: CString,
    /// A file in `e`.
    ex: CString,
    /// An unused name in the other directory.
    other: CString,
    /// For the child that stays.
    child: &'static Slot,
}

/// The directories: the victim's, another, and the bystander's, which comparisons ignore.
pub(crate) const DIRS: [&str; 3] = ["v", "w", "z"];
/// A name of 60 bytes.
pub(crate) const LONG: &str = "a-name-that-is-too-long-for-the-entry-and-takes-a-slot-more-";

impl Dir {
    /// The paths of directory `index`, for an actor.
    pub(crate) fn new(index: usize, page: &'static Page, actor: usize) -> Dir {
        let name = DIRS[index];
        let path = |rest: &str| CString::new(format!("{name}/{rest}")).unwrap_or_default();
        Dir {
            own: OWN[index],
            dir: CString::new(name).unwrap_or_default(),
            a: path("a"),
            b: path("b"),
            d: path("d"),
            e: path("e"),
            m: path("m"),
            mx: path("m/x"),
            my: path("m/y"),
            mn: path("m/n"),
            long: path(LONG),
            x: path("x"),
            n: path("n"),
            en: path("e/n"),
            ex: path("e/x"),
            other: CString::new(format!("{}/o", DIRS[usize::from(index == 0)])).unwrap_or_default(),
            child: &page.slots[CHILDREN + actor],
        }
    }
}

/// A call by its name.
pub(crate) struct Call {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it changes: `@` is its directory, `%` the other one.
    pub changes: &'static [&'static str],
    /// Makes it.
    pub make: fn(&dyn Door, &Dir) -> i64,
    /// Run at full speed before the victim is stopped.
    pub before: fn(&dyn Door, &Dir),
    /// Whether it needs a dead process to find.
    pub corpse: bool,
    /// Whether it changes bytes of `a`: if it is killed, some of them may be old and some new.
    pub bytes: bool,
    /// Whether it waits for a lock on a file that another process holds.
    pub waits: bool,
    /// A result and another that is acceptable in its place: Linux looks up one path after the other, and
    /// other calls may run in between.
    pub also: Option<(i64, i64)>,
    /// Whether it fails with [`BUSY`] while another call is under way on the same mount.
    pub ends_mount: bool,
}

/// The result of unmounting what is in use.
pub(crate) const BUSY: i64 = -(libc::EBUSY as i64);

const fn call(
    name: &'static str,
    changes: &'static [&'static str],
    make: fn(&dyn Door, &Dir) -> i64,
) -> Call {
    Call {
        name,
        changes,
        make,
        before: |_, _| (),
        corpse: false,
        bytes: false,
        waits: false,
        also: None,
        ends_mount: false,
    }
}

const fn biased(
    name: &'static str,
    changes: &'static [&'static str],
    make: fn(&dyn Door, &Dir) -> i64,
    before: fn(&dyn Door, &Dir),
) -> Call {
    Call { before, ..call(name, changes, make) }
}

/// A call that waits for locks of others; `before` first takes its own lock.
const fn waiting(name: &'static str, make: fn(&dyn Door, &Dir) -> i64, before: fn(&dyn Door, &Dir)) -> Call {
    Call { waits: true, ..biased(name, &["@/a"], make, before) }
}

/// A call that changes bytes.
const fn bytes(of: Call) -> Call {
    Call { bytes: true, ..of }
}

/// A call that unmounts.
const fn ending(
    name: &'static str,
    changes: &'static [&'static str],
    make: fn(&dyn Door, &Dir) -> i64,
) -> Call {
    Call { ends_mount: true, ..call(name, changes, make) }
}

const fn with_corpse(name: &'static str, make: fn(&dyn Door, &Dir) -> i64) -> Call {
    Call { corpse: true, ..call(name, &[], make) }
}

/// Bytes that calls write.
static BYTES: [u8; 20_000] = [2; 20_000];
/// An ACL with a named user, as setxattr(2) takes it.
static ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 4, 0, 7, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16,
    0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
];
const TARGET: &CStr = c"/a/target/of/more/than/sixty-four/bytes/that/takes/a/page/of/its/own/and/some/more";
/// Names that fill the bucket of `v/n`, so that creating it splits a bucket.
const CROWD: u32 = 300;
const CREATE: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;

/// Makes the caller the only user of a file, so that it gets the lock's bias.
fn write_often(door: &dyn Door, dir: &Dir) {
    for _ in 0..300 {
        door.pwrite(dir.own, &[1], 0);
    }
}

/// The same for the position of the open file that all processes share.
fn move_often(door: &dyn Door, _: &Dir) {
    for _ in 0..300 {
        door.write(COMMON, &[]);
    }
}

/// The same for a directory.
fn create_often(door: &dyn Door, dir: &Dir) {
    for _ in 0..150 {
        door.mkfifo(&dir.n);
        door.unlink(&dir.n);
    }
    door.reclaim();
}

/// Fills the hash table, in a directory that comparisons ignore.
fn crowd(door: &dyn Door, _: &Dir) {
    for number in 0..CROWD {
        door.mkfifo(&CString::new(format!("{}/f{number}", DIRS[2])).unwrap_or_default());
    }
}

/// Makes `a` long enough for a copy to share its content, and opens a new file.
fn lengthen(door: &dyn Door, dir: &Dir) {
    door.pwrite(dir.own, &BYTES, 0);
    door.open(NEW, &dir.n, CREATE, 0o640);
}

/// The same, and copies `a` there.
fn share(door: &dyn Door, dir: &Dir) {
    lengthen(door, dir);
    door.copy(dir.own, NEW);
}

/// The same, and writes a byte to it: the rest is still in common.
fn borrow(door: &dyn Door, dir: &Dir) {
    share(door, dir);
    door.pwrite(NEW, &BYTES[..1], 9000);
}

/// The same, with nothing in the file that was copied.
fn borrow_alone(door: &dyn Door, dir: &Dir) {
    borrow(door, dir);
    door.ftruncate(dir.own, 0);
}

/// A bind mount with all that is mounted below.
const TREE: u64 = libc::MS_BIND | libc::MS_REC;
/// A remount of one mount, read-only.
const CLOSED: u64 = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;

/// Mounts a file on one in `m`.
fn mount_below(door: &dyn Door, dir: &Dir) {
    door.mount(Some(&dir.a), &dir.my, libc::MS_BIND);
}

/// The same, and a file system on `d`, so that what is moved there stands in another mount.
fn mount_both(door: &dyn Door, dir: &Dir) {
    mount_below(door, dir);
    door.mount(None, &dir.d, 0);
}

/// Mounts a file that then loses its last name.
fn mount_gone(door: &dyn Door, dir: &Dir) {
    door.mount(Some(&dir.b), &dir.long, libc::MS_BIND);
    door.unlink(&dir.b);
}

/// The number of the first of these names that exists.
fn look(door: &dyn Door, names: [&CStr; 2]) -> i64 {
    names.iter().take_while(|name| door.facts(name).is_err()).count() as i64
}

/// Takes `m` out of the tree, and mounts and unmounts until its record has been used again, read-only.
fn churn(door: &dyn Door, dir: &Dir) -> i64 {
    let mut done = door.umount(&dir.m, libc::MNT_DETACH);
    for _ in 0..40 {
        done = done.min(door.umount(&dir.d, 0).max(-i64::from(libc::EINVAL)));
        done += door.mount(Some(&dir.e), &dir.d, libc::MS_BIND);
        done += door.mount(None, &dir.d, CLOSED);
    }
    done
}

fn range(kind: i32) -> RangeLock {
    RangeLock { command: libc::F_SETLK, kind, start: 10, len: 20 }
}

fn wait_for(door: &dyn Door, fd: i32, command: i32, start: i64) -> i64 {
    door.lock(fd, RangeLock { command, kind: libc::F_WRLCK, start, len: 10 })
}

/// Bytes that one of two has locked while it waits for the other's.
const FIRST: i64 = 100;
/// See [`FIRST`].
const SECOND: i64 = 200;

fn hold(door: &dyn Door, fd: i32, start: i64) {
    door.lock(fd, RangeLock { command: libc::F_SETLK, kind: libc::F_WRLCK, start, len: 10 });
}

fn description(kind: i32) -> RangeLock {
    RangeLock { command: libc::F_OFD_SETLK, kind, start: 15, len: 20 }
}

/// All calls.
pub(crate) static CALLS: &[Call] = &[
    call("create", &["@", "@/n"], |door, dir| door.open(NEW, &dir.n, CREATE, 0o640)),
    biased("create-biased", &["@", "@/n"], |door, dir| door.open(NEW, &dir.n, CREATE, 0o640), create_often),
    bytes(call("open-truncate", &["@/a"], |door, dir| {
        door.open(NEW, &dir.a, libc::O_RDWR | libc::O_TRUNC, 0)
    })),
    call("open", &[], |door, dir| door.open(NEW, &dir.a, libc::O_RDONLY, 0)),
    biased("create-crowded", &["@", "@/n"], |door, dir| door.mkfifo(&dir.n), crowd),
    call("chroot", &[], |door, dir| door.chroot(&dir.e)),
    call("restrict", &[], |door, _| door.restrict()),
    call("restrict-often", &[], |door, _| door.restrict() + door.restrict() + door.restrict()),
    call("mkdir", &["@", "@/n"], |door, dir| door.mkdir(&dir.n)),
    call("mkfifo", &["@", "@/n"], |door, dir| door.mkfifo(&dir.n)),
    call("symlink", &["@", "@/n"], |door, dir| door.symlink(c"target", &dir.n)),
    call("symlink-long", &["@", "@/n"], |door, dir| door.symlink(TARGET, &dir.n)),
    Call {
        also: Some((-(libc::ENOENT as i64), -(libc::EEXIST as i64))),
        ..call("link", &["@", "@/n", "@/a"], |door, dir| door.link(&dir.a, &dir.n))
    },
    call("unlink", &["@", "@/a"], |door, dir| door.unlink(&dir.a)),
    call("unlink-long", &["@", "@/long"], |door, dir| door.unlink(&dir.long)),
    biased("unlink-biased", &["@", "@/long"], |door, dir| door.unlink(&dir.long), create_often),
    call("rmdir", &["@", "@/d"], |door, dir| door.rmdir(&dir.d)),
    call("rmdir-full", &["@", "@/e"], |door, dir| door.rmdir(&dir.e)),
    call("rename", &["@", "@/a", "@/n"], |door, dir| door.rename(&dir.a, &dir.n, 0)),
    call("rename-over", &["@", "@/a", "@/b"], |door, dir| door.rename(&dir.a, &dir.b, 0)),
    call("rename-long", &["@", "@/long", "@/n"], |door, dir| door.rename(&dir.long, &dir.n, 0)),
    call("rename-dir", &["@", "@/d", "@/e", "@/n"], |door, dir| door.rename(&dir.d, &dir.en, 0)),
    call("rename-away", &["@", "%", "@/b", "%/o"], |door, dir| door.rename(&dir.b, &dir.other, 0)),
    call("rename-dir-away", &["@", "%", "@/e", "%/o"], |door, dir| door.rename(&dir.e, &dir.other, 0)),
    call("rename-noreplace", &["@", "@/a", "@/b"], |door, dir| {
        door.rename(&dir.a, &dir.b, libc::RENAME_NOREPLACE)
    }),
    call("exchange", &["@", "@/a", "@/d"], |door, dir| door.rename(&dir.a, &dir.d, libc::RENAME_EXCHANGE)),
    bytes(call("overwrite", &["@/a"], |door, dir| door.pwrite(dir.own, &BYTES[..300], 4000))),
    bytes(biased(
        "overwrite-biased",
        &["@/a"],
        |door, dir| door.pwrite(dir.own, &BYTES[..300], 4000),
        write_often,
    )),
    bytes(call("grow", &["@/a"], |door, dir| door.pwrite(dir.own, &BYTES[..3500], 4500))),
    bytes(biased(
        "grow-biased",
        &["@/a"],
        |door, dir| door.pwrite(dir.own, &BYTES[..3500], 4500),
        write_often,
    )),
    bytes(call("append", &["@/a", "v/a"], |door, _| door.write(COMMON, &BYTES[..300]))),
    bytes(biased("append-biased", &["@/a", "v/a"], |door, _| door.write(COMMON, &BYTES[..300]), move_often)),
    call("seek", &["v/a"], |door, _| door.seek(COMMON, 1)),
    biased("seek-biased", &["v/a"], |door, _| door.seek(COMMON, 1), move_often),
    biased("read-biased", &["v/a"], |door, _| door.read(COMMON, &mut [0; 10]), move_often),
    bytes(call("empty", &["@/a"], |door, dir| door.ftruncate(dir.own, 0))),
    bytes(call("cut", &["@/a"], |door, dir| door.truncate(&dir.a, 2000))),
    bytes(call("lengthen", &["@/a"], |door, dir| door.ftruncate(dir.own, 90_000))),
    bytes(call("allocate", &["@/a"], |door, dir| door.fallocate(dir.own, 0, 0, 30_000))),
    bytes(call("punch", &["@/a"], |door, dir| door.fallocate(dir.own, 3, 1000, 3000))),
    call("chmod", &["@/a"], |door, dir| door.chmod(&dir.a, 0o600)),
    call("chmod-dir", &["@"], |door, dir| door.chmod(&dir.dir, 0o711)),
    call("chown", &["@/b"], |door, dir| door.chown(&dir.b, 7, 8)),
    call("utimens", &["@/a"], |door, dir| door.utimens(&dir.a, 1_000_000)),
    call("setxattr", &["@/x"], |door, dir| door.setxattr(&dir.x, c"user.b", &BYTES[..50])),
    call("setxattr-long", &["@/x"], |door, dir| door.setxattr(&dir.x, c"user.a", &BYTES[..4200])),
    call("removexattr", &["@/x"], |door, dir| door.removexattr(&dir.x, c"user.a")),
    call("acl", &["@/b"], |door, dir| door.setxattr(&dir.b, c"system.posix_acl_access", &ACL)),
    call("dup", &[], |door, _| door.dup(KEEP, NEW)),
    call("close", &[], |door, dir| door.close(dir.own)),
    call("close-common", &["@/a"], |door, _| door.close(COMMON)),
    call("flock", &["@/a"], |door, dir| door.flock(dir.own, libc::LOCK_EX | libc::LOCK_NB)),
    call("flock-common", &["v/a"], |door, _| door.flock(COMMON, libc::LOCK_EX | libc::LOCK_NB)),
    call("setlk", &["@/a"], |door, dir| door.lock(dir.own, range(libc::F_WRLCK))),
    call("ofd-setlk", &["@/a"], |door, dir| door.lock(dir.own, description(libc::F_WRLCK))),
    call("unlk", &["@/a"], |door, dir| door.lock(dir.own, range(libc::F_UNLCK))),
    waiting("setlkw", |door, dir| wait_for(door, dir.own, libc::F_SETLKW, 20), |_, _| ()),
    waiting("ofd-setlkw", |door, dir| wait_for(door, dir.own, libc::F_OFD_SETLKW, 20), |_, _| ()),
    waiting("flock-wait", |door, dir| door.flock(dir.own, libc::LOCK_EX), |_, _| ()),
    // Two of these wait for each other; one of them gets an error.
    waiting(
        "ring",
        |door, dir| wait_for(door, dir.own, libc::F_SETLKW, SECOND),
        |door, dir| hold(door, dir.own, FIRST),
    ),
    waiting(
        "ring-other",
        |door, dir| wait_for(door, dir.own, libc::F_SETLKW, FIRST),
        |door, dir| hold(door, dir.own, SECOND),
    ),
    call("unlock", &["@/a"], |door, dir| {
        for command in [libc::F_SETLK, libc::F_OFD_SETLK] {
            door.lock(dir.own, RangeLock { command, kind: libc::F_UNLCK, start: 0, len: 0 });
        }
        door.flock(dir.own, libc::LOCK_UN)
    }),
    // A holder that releases its lock.
    biased(
        "let-go",
        &["@/a"],
        |door, dir| {
            door.flock(dir.own, libc::LOCK_UN);
            door.lock(dir.own, range(libc::F_UNLCK))
        },
        |door, dir| {
            door.flock(dir.own, libc::LOCK_EX | libc::LOCK_NB);
            door.lock(dir.own, range(libc::F_WRLCK));
        },
    ),
    // It gives the content of `a` to both.
    biased("copy", &["@/n", "@/a"], |door, dir| door.copy(dir.own, NEW), lengthen),
    biased("write-copy", &["@/n"], |door, _| door.pwrite(NEW, &BYTES[..1], 5000), share),
    biased("write-copied", &["@/a"], |door, dir| door.pwrite(dir.own, &[1], 5000), share),
    biased("cut-copy", &["@/n"], |door, _| door.ftruncate(NEW, 5000), share),
    biased("unlink-copy", &["@", "@/n"], |door, dir| door.unlink(&dir.n) + door.close(NEW), share),
    biased("write-borrower", &["@/n"], |door, _| door.pwrite(NEW, &BYTES[..1], 5000), borrow),
    biased("copy-borrower", &["@/n", "@/a"], |door, dir| door.copy(NEW, dir.own), borrow_alone),
    biased("unlink-borrower", &["@", "@/n"], |door, dir| door.unlink(&dir.n) + door.close(NEW), borrow),
    call("map", &["@/a"], |door, dir| door.map(dir.own)),
    call("map-stay", &["@/a"], |door, dir| door.map_to_stay(dir.own)),
    call("mount", &["@/d"], |door, dir| door.mount(None, &dir.d, libc::MS_NOSUID)),
    call("bind", &["@/d"], |door, dir| door.mount(Some(&dir.e), &dir.d, libc::MS_BIND)),
    biased("bind-tree", &["@/d"], |door, dir| door.mount(Some(&dir.m), &dir.d, TREE), mount_below),
    biased("open-tree", &["@/d"], |door, dir| door.mount_copy(&dir.m, &dir.d), mount_below),
    ending("umount", &["@/m"], |door, dir| door.umount(&dir.m, 0)),
    biased("detach", &["@/m"], |door, dir| door.umount(&dir.m, libc::MNT_DETACH), mount_below),
    biased("move", &["@/m", "@/d"], |door, dir| door.mount(Some(&dir.m), &dir.d, libc::MS_MOVE), mount_both),
    call("remount", &["@/m"], |door, dir| door.mount(None, &dir.m, CLOSED)),
    biased(
        "remount-all",
        &["@/d"],
        |door, dir| door.mount(None, &dir.d, libc::MS_REMOUNT | libc::MS_RDONLY),
        |door, dir| _ = door.mount(None, &dir.d, 0),
    ),
    call("create-below", &["@/e", "@/m", "@/m/n"], |door, dir| door.mkfifo(&dir.mn)),
    call("mkdir-below", &["@/e", "@/m", "@/m/n"], |door, dir| door.mkdir(&dir.mn)),
    call("link-below", &["@/e", "@/m", "@/m/n", "@/e/x"], |door, dir| door.link(&dir.mx, &dir.mn)),
    call("unlink-below", &["@/e", "@/m", "@/e/x"], |door, dir| door.unlink(&dir.mx)),
    call("rename-below", &["@/e", "@/m", "@/m/n", "@/e/x"], |door, dir| door.rename(&dir.mx, &dir.mn, 0)),
    // What it looks at: beside the change of a name, it may wait for a moment.
    call("look-below", &["@/m/n", "@/e/x"], |door, dir| look(door, [&dir.en, &dir.ex])),
    call("open-below", &[], |door, dir| door.open(NEW, &dir.mx, libc::O_RDWR, 0)),
    bytes(call("write-new", &["@/e/x", "@/m"], |door, _| door.pwrite(NEW, &BYTES[..1], 0))),
    call("churn", &["@/m", "@/d"], churn),
    call("chmod-below", &["@/e/x", "@/m"], |door, dir| door.chmod(&dir.mx, 0o600)),
    biased("chmod-gone", &["@/long"], |door, dir| door.chmod(&dir.long, 0o600), mount_gone),
    ending("umount-gone", &["@/long"], |door, dir| door.umount(&dir.long, 0)),
    with_corpse("statfs", |door, _| door.statfs()),
    call("born", &[], |door, _| door.born()),
    call("join", &[], |door, _| door.join()),
    call("fork", &[], |door, _| door.fork()),
    call("vfork", &[], |door, _| door.vfork()),
    call("fork-stay", &[], |door, dir| door.fork_to_stay(dir.child)),
    call("share", &[], |door, _| door.share()),
    biased("unshare", &[], |door, _| door.unshare(), |door, dir| _ = door.share_to_stay(dir.child)),
    call("arrive", &[], |door, _| door.arrive()),
    call("exit", &[], |door, _| door.exit()),
    call("leave", &[], |door, _| door.leave()),
    with_corpse("reap", |door, _| door.reap()),
    call("reclaim", &[], |door, _| door.reclaim()),
    call("tidy", &["@", "@/n"], |door, dir| {
        door.close(NEW);
        door.unlink(&dir.n)
    }),
];

/// A call with the directory that it is made in.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    /// The call.
    pub call: &'static Call,
    /// Index in [`DIRS`].
    pub dir: usize,
}

impl Made {
    /// What it changes.
    pub(crate) fn changes(&self) -> impl Iterator<Item = String> + use<> {
        let (here, there) = (DIRS[self.dir], DIRS[usize::from(self.dir == 0)]);
        self.call.changes.iter().map(move |what| what.replace('@', here).replace('%', there))
    }

    /// Whether both change the same object.
    pub(crate) fn meets(&self, other: &Made) -> bool {
        self.changes().any(|what| other.changes().any(|that| that == what))
    }
}

/// An actor's role: calls, one after another.
#[derive(Clone)]
pub(crate) struct Part {
    /// `call`, `call@w`, or several with `+` between.
    pub name: String,
    /// The calls.
    pub calls: Vec<Made>,
}

impl Part {
    /// The part of this name.
    pub(crate) fn named(name: &str) -> Option<Part> {
        let one = |name: &str| {
            let (call, dir) = name.split_once('@').unwrap_or((name, DIRS[0]));
            let dir = DIRS.iter().position(|known| *known == dir)?;
            let call = CALLS.iter().find(|known| known.name == call)?;
            Some(Made { call, dir })
        };
        let whole = if name == "bystander" { BYSTANDER } else { name };
        let calls: Option<Vec<Made>> = whole.split('+').map(one).collect();
        Some(Part { name: name.to_owned(), calls: calls? })
    }

    /// Whether the actor joins only with its first call.
    pub(crate) fn begins_unborn(&self) -> bool {
        self.calls.first().is_some_and(|made| matches!(made.call.name, "born" | "join"))
    }

    /// Whether it is a process that was not forked by one of the run's.
    pub(crate) fn is_stranger(&self) -> bool {
        self.calls.first().is_some_and(|made| made.call.name == "join")
    }

    /// Whether one of its calls waits for a lock on a file.
    pub(crate) fn waits(&self) -> bool {
        self.calls.iter().any(|made| made.call.waits)
    }

    /// Whether it needs a dead process.
    pub(crate) fn wants_corpse(&self) -> bool {
        self.calls.iter().any(|made| made.call.corpse)
    }
}

/// Calls of a bystander, which changes nothing that a victim changes and must never wait.
pub(crate) const BYSTANDER: &str = "create@z+link@z+unlink-long@z+rename-dir@z+chmod@z+grow@z+empty@z+setxattr@z+flock@z+\
                             setlk@z+map@z+open@z+arrive+fork+reclaim+reap+statfs";

//! A process is killed after each instruction of each call that changes a file. The file must remain readable
//! and writable, no byte may appear that was never written, and no page may be lost.

use std::ffi::CString;

use lp_abi::linux::*;
use lp_abi::{Fd, PAGE_SIZE};
use lp_region::records::{Inode, LockRecord, Mapping};
use lp_region::sync::Ordering;
use lp_vfs::mapping::{self, MapAccess};
use lp_vfs::open::Opened;
use lp_vfs::xattr::XattrValue;
use lp_vfs::{
    Place, Task, boot, chmod, chown, close, fallocate, map, open, page, read, reclaim, record_lock, stat,
    table, truncate, unlink, utimens, write, xattr,
};

mod setup;
use setup::{death, fsck, lent};

const PATH: &std::ffi::CStr = c"/light/file";
/// Bytes of the file before the call, bytes that the call writes, and bytes of recycled pages.
const OLD: u8 = 1;
const NEW: u8 = 2;
const STALE: u8 = 3;

/// A call on the open file to interrupt.
struct Scenario {
    name: &'static str,
    /// Size of the file before the call.
    size: usize,
    call: fn(&Task, Fd, &[u8]),
}

fn put(task: &Task, fd: Fd, from: &[u8], len: usize, at: i64) {
    let _ = write::pwrite(task, fd, lent::bytes(&from[..len]), at);
}

fn set(task: &Task, fd: Fd, name: &std::ffi::CStr, from: &[u8], size: usize) {
    let value = XattrValue { bytes: lent::bytes(&from[..size]), flags: 0 };
    let _ = xattr::fsetxattr(task, fd, lent::path(name), value);
}

/// An ACL with a named user.
const ACL: [u8; 44] = {
    let mut acl = [0xff; 44];
    let entries = [(1u8, 7), (2, 4), (4, 5), (16, 4), (32, 4)];
    let mut at = 0;
    while at < 4 {
        acl[at] = if at == 0 { 2 } else { 0 };
        at += 1;
    }
    let mut index = 0;
    while index < entries.len() {
        let start = 4 + 8 * index;
        acl[start] = entries[index].0;
        acl[start + 1] = 0;
        acl[start + 2] = entries[index].1;
        acl[start + 3] = 0;
        if entries[index].0 == 2 {
            acl[start + 4] = 7;
        }
        index += 1;
    }
    acl
};

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "first page", size: 0, call: |task, fd, from| put(task, fd, from, 100, 0) },
    Scenario { name: "overwrite", size: 5000, call: |task, fd, from| put(task, fd, from, 300, 4000) },
    Scenario { name: "append", size: 5000, call: |task, fd, from| put(task, fd, from, 9000, 5000) },
    Scenario {
        name: "many pages",
        size: 100,
        call: |task, fd, from| put(task, fd, from, 60 * PAGE_SIZE, 50),
    },
    Scenario { name: "far away", size: 100, call: |task, fd, from| put(task, fd, from, 100, 5 << 30) },
    Scenario {
        name: "empty it",
        size: 40 * PAGE_SIZE,
        call: |task, fd, _| {
            let _ = truncate::ftruncate(task, fd, 0);
        },
    },
    Scenario {
        name: "cut",
        size: 9 * PAGE_SIZE,
        call: |task, fd, _| {
            let _ = truncate::ftruncate(task, fd, 5000);
        },
    },
    Scenario {
        name: "lengthen",
        size: 5000,
        call: |task, fd, _| {
            let _ = truncate::ftruncate(task, fd, 90_000);
        },
    },
    Scenario {
        name: "punch",
        size: 9 * PAGE_SIZE,
        call: |task, fd, _| {
            let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
            {
                let _ = fallocate::fallocate(task, fd, mode, 5000, 20_000);
            };
        },
    },
    Scenario {
        name: "allocate",
        size: 100,
        call: |task, fd, _| {
            let _ = fallocate::fallocate(task, fd, 0, 0, 100_000);
        },
    },
    Scenario {
        name: "attributes",
        size: 0,
        call: |task, fd, from| {
            set(task, fd, c"user.a", from, 10);
            set(task, fd, c"user.b", from, 6000);
            set(task, fd, c"user.a", from, 20);
            let _ = xattr::fremovexattr(task, fd, lent::path(c"user.b"));
        },
    },
    Scenario {
        name: "access control list",
        size: 0,
        call: |task, fd, _| {
            set(task, fd, c"system.posix_acl_access", &ACL, ACL.len());
            let _ = chmod::fchmod(task, fd, 0o640);
        },
    },
];

fn opened(task: &Task, flags: u32) -> Fd {
    let path = lent::path(PATH);
    let Ok(Place::Inside(Opened::File(id))) = open::openat(task, Fd::CWD, path, flags, 0o600) else {
        std::process::abort()
    };
    let fd = task.table.lowest(3, 100).expect("number");
    table::install(task, fd, id, 0).expect("install");
    fd
}

fn fill(task: &Task, fd: Fd, byte: u8, size: usize) {
    let bytes = vec![byte; size];
    assert_eq!(write::pwrite(task, fd, lent::bytes(&bytes[..size]), 0), Ok(size));
}

/// Creates the file, from pages that hold other bytes.
fn make(task: &Task, size: usize) {
    let fd = opened(task, O_RDWR | O_CREAT | O_EXCL);
    fill(task, fd, STALE, 70 * PAGE_SIZE);
    truncate::ftruncate(task, fd, 0).expect("ftruncate");
    if size > 0 {
        fill(task, fd, OLD, size);
    }
    close::close(task, fd).expect("close");
}

/// Reads, writes, and checks everything that exists.
fn check(task: &Task, at: &str) {
    let fd = opened(task, O_RDWR);
    let held = task.fget(fd).expect("open");
    let record: &Inode = held.inode;
    let mut bytes = vec![9u8; 1 << 20];
    let got = read::pread(task, fd, lent::room(&mut bytes), 0).expect("pread");
    assert!(
        bytes[..got].iter().all(|byte| [0, OLD, NEW].contains(byte)),
        "{at}: a byte that was never written"
    );
    // A writer finds the dead one's open sections and ends them.
    assert_eq!(write::pwrite(task, fd, lent::bytes(&[NEW]), 0), Ok(1), "{at}");
    assert_eq!((record.seq.read() | record.data_seq.read()) & 1, 0, "{at}: left half changed");
    let pages = map::count(task.region, record);
    assert_eq!(u64::from(record.pages.load(Ordering::Relaxed)), pages, "{at}: pages");
    // Beyond the end there is nothing, and nothing appears when it moves.
    let size = record.size.load(Ordering::Relaxed);
    truncate::ftruncate(task, fd, size as i64 + 500_000).expect("ftruncate");
    let got = read::pread(task, fd, lent::room(&mut bytes), size as i64).expect("pread");
    assert!(got > 0 && bytes[..got].iter().all(|byte| *byte == 0), "{at}: bytes behind the end");
    close::close(task, fd).expect("close");
}

/// The attributes that calls set.
#[derive(Clone, PartialEq, Debug)]
struct Attributes {
    mode: u32,
    owners: [u32; 2],
    /// Seconds of access and modification.
    times: [i64; 2],
    acl: Option<Vec<u8>>,
}

impl Attributes {
    /// Number of attributes that differ.
    fn changes(&self, other: &Attributes) -> usize {
        let pairs =
            |one: &[i64], other: &[i64]| one.iter().zip(other).filter(|(one, other)| one != other).count();
        usize::from(self.mode != other.mode)
            + pairs(&self.owners.map(i64::from), &other.owners.map(i64::from))
            + pairs(&self.times, &other.times)
            + usize::from(self.acl != other.acl)
    }
}

/// The file's attributes. Its times are comparable only if a call has set them.
fn attributes(task: &Task, with_times: bool) -> Attributes {
    // SAFETY: zeros are a valid stat.
    let mut value: lp_abi::linux::stat = unsafe { std::mem::zeroed() };
    stat::fstatat(task, Fd::CWD, lent::path(PATH), lent::value(&mut value), 0).expect("stat");
    let mut bytes = vec![0u8; 200];
    let room = lent::room(&mut bytes);
    let name = lent::path(c"system.posix_acl_access");
    let acl = match xattr::getxattr(task, Fd::CWD, lent::path(PATH), 0, name, room) {
        Ok(Place::Inside(size)) => Some(bytes[..size].to_vec()),
        Ok(_) => unreachable!("the file is ours"),
        Err(_) => None,
    };
    let times = if with_times { [value.st_atime, value.st_mtime].map(|time| time as i64) } else { [0; 2] };
    Attributes { mode: value.st_mode, owners: [value.st_uid, value.st_gid], times, acl }
}

#[test]
fn attributes_change_together_or_not_at_all() {
    let _alone = death::alone();
    let task = death::task();
    let path: &CString = &PATH.to_owned();
    let set_acl = |task: &Task| {
        let value = XattrValue { bytes: lent::bytes(&ACL), flags: 0 };
        let name = lent::path(c"system.posix_acl_access");
        let _ = xattr::setxattr(task, Fd::CWD, lent::path(path), 0, name, value);
    };
    let chmod = |task: &Task| {
        let _ = chmod::fchmodat(task, Fd::CWD, lent::path(path), 0o711, 0);
    };
    let chown = |task: &Task| {
        let _ = chown::fchownat(task, Fd::CWD, lent::path(path), 7, 8, 0);
    };
    let set_id = |task: &Task| {
        let _ = chmod::fchmodat(task, Fd::CWD, lent::path(path), 0o6755, 0);
    };
    let utimens = |task: &Task, [access, modification]: [i64; 2]| {
        let times = Some([access, 0, modification, 0]);
        let _ = utimens::utimensat(task, Fd::CWD, lent::path(path), times, 0);
    };
    let (set_times, set_others) = (|task: &Task| utimens(task, [1, 2]), |task: &Task| utimens(task, [3, 4]));
    let nothing = |_: &Task| ();
    type Step<'a> = &'a dyn Fn(&Task);
    let cases: [(&str, Step, Step); 4] = [
        ("setfacl", &nothing, &set_acl),
        ("chmod", &set_acl, &chmod),
        ("utimens", &set_times, &set_others),
        ("chown", &set_id, &chown),
    ];
    // SAFETY: geteuid(2) has no effect. Only root can give files away.
    let count = if unsafe { libc::geteuid() } == 0 { cases.len() } else { cases.len() - 1 };
    for &(name, before, call) in &cases[..count] {
        let prepare = |task: &Task| {
            make(task, 0);
            before(task);
        };
        let clean = |task: &Task| {
            unlink::unlink(task, Fd::CWD, lent::path(path)).expect("unlink");
            reclaim::run(task);
        };
        prepare(&task);
        let with_times = name == "utimens";
        let old = attributes(&task, with_times);
        let length = death::length(&task, call);
        let new = attributes(&task, with_times);
        assert!(old.changes(&new) > 1, "{name} changes more than one: {old:?} {new:?}");
        reclaim::dead(&task);
        clean(&task);
        let outcome_of = |steps: u32| {
            prepare(&task);
            death::interrupt(&task, steps, call);
            // A process that waits for the killed one first settles its change.
            reclaim::dead(&task);
            let left = attributes(&task, with_times);
            clean(&task);
            assert!(left == old || left == new, "{name} killed after {steps} instructions leaves {left:?}");
            left == new
        };
        // The change happens between the last count that left nothing and the first that left everything;
        // there, tries counts in small steps.
        let coarse: Vec<(u32, bool)> =
            (1..=length).step_by(401).map(|steps| (steps, outcome_of(steps))).collect();
        let last = coarse.iter().rev().find(|(_, done)| !done).expect("nothing is done at first").0;
        let outcomes: Vec<bool> = (last..=(last + 401).min(length)).step_by(3).map(outcome_of).collect();
        assert!(outcomes.contains(&true), "{name}: it is done in the end");
    }
}

/// A lock that a killed process was setting is on its way into the file's tree or out of it. Whoever takes
/// the file's lock over before the dead is buried must not take that record for its own.
#[test]
fn a_locker_killed_at_any_instruction_leaves_no_record_to_two() {
    let _alone = death::alone();
    let task = death::task();
    make(&task, 0);
    let lock = |task: &Task, fd: Fd, kind: u32| {
        let mut asked = libc::flock { l_type: kind as i16, l_whence: 0, l_start: 10, l_len: 5, l_pid: 0 };
        record_lock::fcntl(task, fd, F_SETLK, (lent::value(&mut asked)).cast())
    };
    let call = |child: &Task| {
        let fd = opened(child, O_RDWR);
        let _ = lock(child, fd, F_RDLCK);
        let _ = lock(child, fd, F_UNLCK);
    };
    let before = death::length(&task, &|child| _ = opened(child, O_RDWR));
    let length = death::length(&task, &call);
    reclaim::dead(&task);
    let fd = opened(&task, O_RDWR);
    // A record is in hand and names the file for a few instructions.
    for steps in (before..=length).step_by(2) {
        let at = format!("killed after {steps} instructions");
        death::interrupt(&task, steps, &call);
        assert_eq!(lock(&task, fd, F_RDLCK), Ok(()), "{at}");
        reclaim::dead(&task);
        let owner = lp_vfs::file_lock::process_owner(&task);
        let held = task.fget(fd).expect("open");
        assert!(
            lp_vfs::file_lock::holds(&task, held.inode_id(), owner, lp_vfs::lock::LockType::Shared),
            "{at}: lost"
        );
        assert_eq!(lock(&task, fd, F_UNLCK), Ok(()), "{at}");
        lp_fsck::check(task.region, task.process_id).expect_sound(&at);
    }
}

/// A killed process leaves the tree of a file's locks in the middle of a change: others' locks stay what they
/// were.
#[test]
fn a_locker_killed_at_any_instruction_leaves_others_their_locks() {
    const OTHERS: i64 = 12;
    let _alone = death::alone();
    let task = death::task();
    make(&task, 0);
    let fcntl = |task: &Task, fd: Fd, command: u32, kind: u32, start: i64, len: i64| {
        let mut lock = libc::flock { l_type: kind as i16, l_whence: 0, l_start: start, l_len: len, l_pid: 0 };
        record_lock::fcntl(task, fd, command, lent::value(&mut lock).cast()).map(|()| lock)
    };
    let fd = opened(&task, O_RDWR);
    let hold = |number: i64| fcntl(&task, fd, F_OFD_SETLK, F_RDLCK, number * 4, 2).expect("shared");
    (0..OTHERS).for_each(|number| _ = hold(number));
    let records = task.region.in_use::<LockRecord>();
    let call = |child: &Task| {
        let fd = opened(child, O_RDWR);
        for (kind, start, len) in [
            (F_RDLCK, 30, 3),
            (F_RDLCK, 5, 40),
            (F_UNLCK, 10, 10),
            (F_WRLCK, 14, 2),
            (F_RDLCK, 10, 10),
            (F_UNLCK, 0, 25),
            (F_UNLCK, 0, 0),
        ] {
            let _ = fcntl(child, fd, F_SETLK, kind, start, len);
        }
    };
    let before = death::length(&task, &|child| _ = opened(child, O_RDWR));
    let length = death::length(&task, &call);
    reclaim::dead(&task);
    for (round, steps) in death::samples(length - before).map(|steps| before + steps).enumerate() {
        let at = format!("killed after {steps} instructions");
        death::interrupt(&task, steps, &call);
        if round % 2 == 0 {
            reclaim::dead(&task);
        }
        for number in 0..OTHERS {
            let own = fcntl(&task, fd, F_OFD_GETLK, F_UNLCK, number * 4, 4).expect("own");
            let seen = (own.l_type as u32, own.l_start, own.l_len);
            assert_eq!(seen, (F_RDLCK, number * 4, 2), "{at}");
        }
        // The dead one's are in nobody's way, even before it is reaped.
        fcntl(&task, fd, F_OFD_SETLK, F_WRLCK, 0, 0).unwrap_or_else(|error| panic!("{at}: {error:?}"));
        fcntl(&task, fd, F_OFD_SETLK, F_UNLCK, 0, 0).expect("unlock");
        (0..OTHERS).for_each(|number| _ = hold(number));
        reclaim::dead(&task);
        assert_eq!(task.region.in_use::<LockRecord>(), records, "{at}");
        lp_fsck::check(task.region, task.process_id).expect_sound(&at);
    }
}

/// A process is killed while it takes records of mappings out of the middle, the end and the head of its
/// list.
#[test]
fn a_mapper_killed_at_any_instruction_leaves_no_record_to_two() {
    let _alone = death::alone();
    let task = death::task();
    make(&task, 0);
    let open_all = |task: &Task| {
        [c"/light/1", c"/light/2", c"/light/3"].map(|path| {
            let found = open::openat(task, Fd::CWD, lent::path(path), O_RDWR | O_CREAT, 0o600);
            let Ok(Place::Inside(Opened::File(id))) = found else { std::process::abort() };
            let fd = task.table.lowest(3, 100).expect("number");
            table::install(task, fd, id, 0).expect("install");
            fd
        })
    };
    let fds = open_all(&task);
    let full = || fds.iter().for_each(|fd| fill(&task, *fd, NEW, 3 * PAGE_SIZE));
    let empty = || {
        fds.iter().for_each(|fd| truncate::ftruncate(&task, *fd, 0).expect("truncate"));
        page::free_count(task.region)
    };
    full();
    let pages = empty();
    full();
    let records = task.region.in_use::<Mapping>();
    let nothing = |child: &Task| _ = open_all(child);
    let call = |child: &Task| {
        let of = open_all(child)
            .map(|fd| mapping::begin(child, fd, 0, PAGE_SIZE, MapAccess::SharedWrite).expect("mapping"));
        for index in [1, 0, 2] {
            mapping::end(child, of[index], PAGE_SIZE);
        }
    };
    let before = death::length(&task, &nothing);
    let length = death::length(&task, &call);
    reclaim::dead(&task);
    for steps in death::samples(length - before).map(|steps| before + steps) {
        let at = format!("killed after {steps} instructions");
        death::interrupt(&task, steps, &call);
        reclaim::dead(&task);
        assert_eq!(task.region.in_use::<Mapping>(), records, "{at}");
        lp_fsck::check(task.region, task.process_id).expect_sound(&at);
        assert_eq!(empty(), pages, "{at}");
        full();
    }
}

#[test]
fn a_writer_killed_at_any_instruction_leaves_a_sound_file() {
    let _alone = death::alone();
    let task = death::task();
    let root = boot::root(&task, 0).expect("root").id;
    let path: &CString = &PATH.to_owned();
    let clean = |task: &Task| {
        unlink::unlink(task, Fd::CWD, lent::path(path)).expect("unlink");
        reclaim::run(task);
    };
    make(&task, 0);
    clean(&task);
    let (slots, pages) = (fsck::slots(&task), page::free_count(task.region));
    let from = vec![NEW; 60 * PAGE_SIZE];
    for scenario in SCENARIOS {
        let call = |child: &Task| (scenario.call)(child, opened(child, O_RDWR), &from);
        make(&task, scenario.size);
        let length = death::length(&task, &call);
        reclaim::dead(&task);
        clean(&task);
        for steps in death::samples(length) {
            let at = format!("{} killed after {steps} instructions", scenario.name);
            make(&task, scenario.size);
            death::interrupt(&task, steps, &call);
            fsck::usable(&task);
            if steps % 2 == 0 {
                reclaim::dead(&task);
            }
            check(&task, &at);
            reclaim::dead(&task);
            check(&task, &at);
            fsck::check(&task, root);
            clean(&task);
            assert_eq!(fsck::slots(&task), slots, "{at}: slots");
            assert_eq!(page::free_count(task.region), pages, "{at}: pages");
        }
    }
}

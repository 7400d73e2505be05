//! open(2), openat(2), creat(2), openat2(2).

use lp_abi::linux::{
    O_ACCMODE, O_CREAT, O_EXCL, O_LARGEFILE, O_NOFOLLOW, O_PATH, O_RDONLY, S_IFDIR, S_IFMT, S_IFREG,
};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::records::{Inode, file_mode, inode_flags};
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeRef, Spot};

use crate::caller::task::{Place, Task};
use crate::calls::create::{self, Made};
use crate::calls::keep;
use crate::calls::landlock::{self, right};
pub use crate::calls::open_found::{Node, Opened, node_file};
use crate::calls::open_found::{finish, finish_writable, is_plain, pinned, watched, without};
pub use crate::calls::open_how::{Extended, read_how, same_how};
use crate::calls::open_how::{
    FORGOTTEN, HELD, How, KNOWN, MAKING, PLAIN, TMPFILE, WITH_PATH, made_of, mode_of,
};
use crate::inodes::{inode, watched};
use crate::lane::pin::Pin;
use crate::lane::{kept, pin, writer};
use crate::life::open_file::{self, Opening};
use crate::names::hash::Way;
pub use crate::names::limits::Top;
use crate::names::limits::{Free, Limited};
use crate::names::mounts;
use crate::names::name::{Key, Name};
use crate::names::resolve::Resolve;
use crate::names::root;
use crate::names::walk::{self, AtKnown, Ended, Follow, Found, LastType};
use crate::rights::{initial, permission, protected};

/// Walks before an open gives up on names that vanish meanwhile.
const TRIES: u32 = 1000;

/// Opens a file, creating it if `flags` say so. The door fills the table.
///
/// # Errors
/// Those of open(2).
#[inline(always)]
pub fn openat(task: &Task, dirfd: Fd, path: UserPtr, flags: u32, mode: u32) -> Result<Place<Opened>> {
    if flags & KNOWN & !PLAIN != 0 {
        return openat_slow(task, dirfd, path, flags, mode);
    }
    openat_plain(task, dirfd, path, flags, mode)
}

/// An open without flags that matter.
#[inline(never)]
fn openat_plain(task: &Task, dirfd: Fd, path: UserPtr, flags: u32, mode: u32) -> Result<Place<Opened>> {
    let text = walk::copy_path(task, walk::PathBuffer::Path, path)?;
    let Some(found) = walk::in_known(task, dirfd, text, Follow::Link) else {
        return openat_slow(task, dirfd, path, flags, mode);
    };
    let found = found?;
    let record = task.region.inode(found.inode.id);
    let Some(pin) = pin::hold(task, pin::slot::OPEN, found.inode).ok().filter(|_| is_plain(record)) else {
        return openat_slow(task, dirfd, path, flags, mode);
    };
    permission::check(task, record, permission::READ)?;
    let opening = Opening {
        inode: found.inode,
        flags: flags & KNOWN & !FORGOTTEN | O_LARGEFILE,
        mode: file_mode::READ | file_mode::REGULAR,
        parent: found.parent,
        dirent: found.dirent,
        mount: found.mount,
    };
    let new = open_file::create(task, &opening)?;
    pin.leave();
    Ok(Place::Inside(Opened::File(new.hand_over())))
}

/// Any other open.
#[inline(never)]
fn openat_slow(task: &Task, dirfd: Fd, path: UserPtr, flags: u32, mode: u32) -> Result<Place<Opened>> {
    if flags & KNOWN & !MAKING == 0 && flags & O_CREAT != 0 {
        let text = walk::copy_path(task, walk::PathBuffer::Path, path)?;
        let (flags, mode) = (flags & KNOWN | O_LARGEFILE, mode & 0o7777);
        if let Some(opened) = walk::known(task, dirfd, text, OpenOrMake { task, dirfd, flags, mode }) {
            return opened.map(Place::Inside);
        }
    }
    open_by_walk(task, dirfd, path, flags, mode)
}

#[inline(never)]
fn open_by_walk(task: &Task, dirfd: Fd, path: UserPtr, flags: u32, mode: u32) -> Result<Place<Opened>> {
    let mut flags = (flags | O_LARGEFILE) & KNOWN;
    if flags & O_PATH != 0 {
        flags &= WITH_PATH;
    }
    open(task, dirfd, path, &How::new(flags, made_mode(flags, mode))?, Free)
}

/// The mode of an open: none if nothing is made.
fn made_mode(flags: u32, mode: u32) -> u32 {
    if flags & (O_CREAT | TMPFILE) == 0 { 0 } else { mode & 0o7777 }
}

/// Opens an open file again, with flags of its own: `/proc/self/fd/N` and `/dev/fd/N`. Of a directory
/// `O_TMPFILE` makes a file in it.
///
/// # Errors
/// Those of open(2).
pub fn reopen(task: &Task, fd: Fd, flags: u32, mode: u32) -> Result<Opened> {
    let held = task.fget_any(fd)?;
    let of = Found::of(&held);
    let pin = pin::hold_known(task, pin::slot::OPEN, of.inode.id);
    // O_NOFOLLOW would refer to the link in /proc, which is the kernel's.
    let mut opened = found(task, pin, &of, (flags & !O_NOFOLLOW, mode));
    if let Ok(Opened::HostNode(node)) = &mut opened {
        node.again = fd;
    }
    // The new reference came from another in the same table.
    task.table.moved();
    opened
}

/// Checks flags that an open would be refused for, wherever it leads.
///
/// # Errors
/// `EINVAL`.
pub(crate) fn check_flags(flags: u32) -> Result<()> {
    let known = if flags & O_PATH != 0 { WITH_PATH } else { KNOWN };
    How::new(flags & known, 0).map(drop)
}

/// Opens an existing inode, which is pinned, by something else than a name, with flags and a mode.
///
/// # Errors
/// Those of open(2).
pub(crate) fn found(task: &Task, pin: Pin, found: &Found, (flags, mode): (u32, u32)) -> Result<Opened> {
    task.entered.set(0);
    let mut flags = (flags | O_LARGEFILE) & KNOWN;
    if flags & O_PATH != 0 {
        flags &= WITH_PATH;
    }
    let how = How::new(flags, made_mode(flags, mode))?.by(task);
    if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL {
        return Err(Errno::EEXIST);
    }
    let is_dir = task.region.inode(found.inode.id).mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR;
    if how.has(TMPFILE) {
        if !is_dir {
            return Err(Errno::ENOTDIR);
        }
        let opened = make_nameless(task, found, &how);
        pin.leave();
        return opened;
    }
    if how.has(O_CREAT) && is_dir {
        return Err(Errno::EISDIR);
    }
    pinned(task, pin, found, &how)
}

/// openat2(2). The door sees to `RESOLVE_NO_MAGICLINKS`: there are no magic links in a mount.
///
/// # Errors
/// Those of openat2(2).
pub fn openat2(task: &Task, dirfd: Fd, path: UserPtr, how: &Extended, top: Top<'_>) -> Result<Place<Opened>> {
    open(task, dirfd, path, &how.how.by(task), Limited::new(how.resolve, top))
}

#[inline]
fn open(task: &Task, dirfd: Fd, path: UserPtr, how: &How, limits: impl Resolve) -> Result<Place<Opened>> {
    for _ in 0..TRIES {
        let opened = if how.has(O_CREAT) {
            open_or_make(task, dirfd, path, how, limits)
        } else if how.has(TMPFILE) {
            open_nameless(task, dirfd, path, how, limits)
        } else {
            open_existing(task, dirfd, path, how, limits)
        };
        // The name vanished between the walk and the pin: look again.
        match opened {
            Err(Errno::ESTALE) => continue,
            other => return other,
        }
    }
    Err(Errno::ESTALE)
}

#[inline]
fn open_existing(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    how: &How,
    limits: impl Resolve,
) -> Result<Place<Opened>> {
    let found = match limits.inode(task, dirfd, path, how.follow())? {
        Place::Inside(found) => found,
        Place::Outside(outside) => return Ok(Place::Outside(outside)),
    };
    let pin = keep::hold(task, pin::slot::OPEN, dirfd, found.spot())?;
    pinned(task, pin, &found, how).map(Place::Inside)
}

/// Open with `O_CREAT`.
#[inline]
fn open_or_make(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    how: &How,
    limits: impl Resolve,
) -> Result<Place<Opened>> {
    let Ended { place, found } = match limits.end(task, dirfd, path, how.follow())? {
        Place::Inside(end) => end,
        Place::Outside(outside) => return Ok(Place::Outside(outside)),
    };
    // The kernel's open_last_lookups: a slash after the last name is EISDIR, whatever is there.
    if place.trailing_slash && ends_in_name(task, place.last) {
        return Err(Errno::EISDIR);
    }
    let found = match found {
        Some(found) => found,
        None => {
            if how.has(HELD) {
                may_make_slow(task, &place)?;
            }
            match create::named(task, (place.dir, place.mount), &place.name, &made_of(how.mode))? {
                Made::New(found) if how.has(HELD) => return made_slow(task, &found, how).map(Place::Inside),
                Made::New(found) => return made(task, &found, how.flags).map(Place::Inside),
                Made::Existing(_) if !how.has(O_EXCL) => return Err(Errno::ESTALE), // Somebody was faster.
                Made::Existing(found) => found,
            }
        }
    };
    existing(task, dirfd, place.dir, &found, how).map(Place::Inside)
}

/// Whether a path has a name last: that of a mount of the command line is one in the host's directory.
#[inline]
fn ends_in_name(task: &Task, last: LastType) -> bool {
    match last {
        LastType::Name => true,
        LastType::Root => root::of(task).is_none() && !mounts::are_whole(task),
        LastType::Dot | LastType::DotDot => false,
    }
}

/// Open with `O_CREAT` of what a walk has found in the directory `dir`.
#[inline(never)]
fn existing(task: &Task, dirfd: Fd, dir: InodeRef, found: &Found, how: &How) -> Result<Opened> {
    if how.has(O_EXCL) {
        return Err(Errno::EEXIST);
    }
    let pin = keep::hold(task, pin::slot::OPEN, dirfd, found.spot())?;
    let record = task.region.inode(found.inode.id);
    if record.mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR {
        return Err(Errno::EISDIR);
    }
    protected::may_create_over(task, task.region.inode(dir.id), record)?;
    pinned(task, pin, found, how)
}

/// Fast path of an open with `O_CREAT`, and no flags but [`MAKING`]: a name in a directory whose prefix is
/// known.
struct OpenOrMake<'t, 'r> {
    task: &'t Task<'r>,
    dirfd: Fd,
    flags: u32,
    mode: u32,
}

impl<'t> AtKnown<'t> for OpenOrMake<'t, '_> {
    type End = Result<Opened>;

    #[inline(always)]
    fn at(self, Spot { inode: dir, mount }: Spot, name: Name<'t>) -> Option<Result<Opened>> {
        let OpenOrMake { task, dirfd, flags, mode } = self;
        let key = Key::new(dir.id, &name);
        let way = Way::of(task.region, key.hash);
        let opened = match walk::look_up(task, dir, &key, &way)? {
            Some(hit) => {
                let how = How::new(flags, mode).ok()?;
                if !walk::is_end(hit, how.follow()) {
                    return None;
                }
                existing(task, dirfd, dir, &walk::found(hit, dir, mount), &how)
            }
            None => match create::after_miss(task, (dir, mount), (&key, &way), &made_of(mode)) {
                Ok(Made::New(found)) => made(task, &found, flags),
                // Somebody was faster, or a reclaim may help.
                Ok(Made::Existing(_)) | Err(Errno::ENOSPC) => return None,
                Err(errno) => Err(errno),
            },
        };
        match opened {
            Err(Errno::ESTALE) => None,
            opened => Some(opened),
        }
    }
}

/// Opens a file that this call has created and pinned, whose mode and size do not matter.
#[inline(always)]
fn made(task: &Task, found: &Found, flags: u32) -> Result<Opened> {
    let pin = pin::held(task, pin::slot::OPEN);
    let mode = mode_of(flags & !O_PATH, S_IFREG) | file_mode::CREATED;
    let new = match flags & O_ACCMODE {
        O_RDONLY => finish(task, found, flags, mode),
        _ => finish_writable(task, found, flags, mode),
    };
    let opened = Opened::File(new?.hand_over());
    pin.leave();
    Ok(if watched::has_shadow(task.region.inode(found.inode.id)) { watched(opened) } else { opened })
}

/// Checks that a thread that has restricted itself may make a file, in the order of the kernel's
/// lookup_open.
///
/// # Errors
/// `ENOENT` in a removed directory; `EROFS`; `EACCES`.
#[cold]
fn may_make_slow(task: &Task, place: &walk::Named<'_>) -> Result<()> {
    if mounts::is_gone(task, place.dir) {
        return Err(Errno::ENOENT);
    }
    drop(writer::begin(task, place.mount)?);
    landlock::may_make(task, place.dir, place.mount, S_IFREG)
}

/// [`made`] by a thread that has restricted itself. The file stays even if it may not be opened.
#[cold]
fn made_slow(task: &Task, found: &Found, how: &How) -> Result<Opened> {
    let pin = pin::held(task, pin::slot::OPEN);
    let lacks = landlock::may_open(task, found, how.rights(S_IFREG), right::TRUNCATE)?;
    pin.leave();
    made(task, found, how.flags).map(|opened| without(task, opened, lacks))
}

/// Open with `O_TMPFILE`: a file without a name in the directory that the path names.
fn open_nameless(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    how: &How,
    limits: impl Resolve,
) -> Result<Place<Opened>> {
    let found = match limits.inode(task, dirfd, path, how.follow())? {
        Place::Inside(found) => found,
        Place::Outside(outside) => return Ok(Place::Outside(outside)),
    };
    let pin = keep::hold(task, pin::slot::OPEN, dirfd, found.spot())?;
    let opened = make_nameless(task, &found, how)?;
    pin.leave();
    Ok(Place::Inside(opened))
}

fn make_nameless(task: &Task, dir: &Found, how: &How) -> Result<Opened> {
    let parent = task.region.inode(dir.inode.id);
    if parent.mode.load(Ordering::Relaxed) & S_IFMT != S_IFDIR {
        return Err(Errno::ENOTDIR);
    }
    let _writing = writer::begin(task, dir.mount)?;
    permission::check(task, parent, permission::WRITE | permission::EXEC)?;
    let new = initial::create(task, parent, S_IFREG | how.mode, 0)?;
    let id = new.inode().id;
    let record = task.region.inode(id);
    inode::set_links(record, 0);
    if !how.has(O_EXCL) {
        record.flags.fetch_or(inode_flags::LINKABLE, Ordering::Relaxed);
    }
    pin::known_inode(task, pin::slot::OPEN, id);
    kept::orphan(task, id);
    task.region.settle::<Inode>(task.lane);
    let found =
        Found { inode: new.linked_in(), dirent: DirentId::NONE, parent: dir.inode.id, mount: dir.mount };
    let lacks = match how.has(HELD) {
        true => landlock::may_open(task, &found, how.rights(S_IFREG), right::TRUNCATE)?,
        false => 0,
    };
    finish(task, &found, how.flags, mode_of(how.flags, S_IFREG))
        .map(|new| without(task, Opened::File(new.hand_over()), lacks))
}

//! Opens of what has been found: the kernel's do_open and what follows it.

use lp_abi::linux::{
    O_ACCMODE, O_APPEND, O_DIRECT, O_DIRECTORY, O_NOATIME, O_PATH, O_RDONLY, O_TRUNC, S_IFBLK, S_IFCHR,
    S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::mount::mount_flags;
use lp_region::records::{Inode, file_mode, inode_flags};
use lp_region::sync::{Ordering, light_barrier};
use lp_region::{FileId, MountId};

use crate::caller::below::{self, Need};
use crate::caller::task::Task;
use crate::caller::walked;
use crate::calls::landlock::{self, right};
use crate::calls::open_how::{FORGOTTEN, HELD, How, mode_of};
use crate::calls::truncate;
use crate::descriptors::busy;
use crate::inodes::{inode, watched};
use crate::lane::pin::Pin;
use crate::lane::{pin, writer};
use crate::life::open_file::{self, NewFile, Opening};
use crate::names::mounts;
use crate::names::walk::Found;
use crate::rights::{credentials, permission};

/// The result of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// An open file that no table names yet: the door must call `table::install` or `file::discard`.
    File(FileId),
    /// The same for an inode that may be watched: the door must notify watchers.
    Watched(FileId),
    /// The same after the file has been truncated.
    WatchedCut(FileId),
    /// A FIFO or a device of ours, with permissions checked. The kernel handles its data: the door opens the
    /// host's side with the node's flags, and [`node_file`] creates the open file beside it.
    HostNode(Node),
}

/// A FIFO or device being opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// How it was found.
    pub found: Found,
    /// Open flags.
    pub flags: u32,
    /// The descriptor whose file is opened again; [`Fd::NONE`] if it was found by a name.
    pub again: Fd,
}

/// Whether an inode is a regular file that nobody watches and whose content is complete.
#[inline(always)]
pub(super) fn is_plain(record: &Inode) -> bool {
    // Relaxed: the type does not change while the inode is pinned, and a watch may come a moment later.
    record.flags.load(Ordering::Relaxed) & (inode_flags::KIND | inode_flags::SHADOW | inode_flags::PENDING)
        == S_IFREG
}

/// The kernel's do_open, for an existing inode that is pinned. The open file takes the pin over; otherwise it
/// is dropped.
#[inline]
pub(super) fn pinned(task: &Task, pin: Pin, found: &Found, how: &How) -> Result<Opened> {
    let opened = may_open(task, found, how)?;
    if !matches!(opened, Opened::HostNode(_)) {
        pin.leave();
    }
    Ok(opened)
}

#[inline]
fn may_open(task: &Task, found: &Found, how: &How) -> Result<Opened> {
    let record = task.region.inode(found.inode.id);
    // Relaxed: the type does not change.
    let kind = record.mode.load(Ordering::Relaxed) & S_IFMT;
    if how.has(O_DIRECTORY) && kind != S_IFDIR {
        return Err(Errno::ENOTDIR);
    }
    if how.has(O_PATH) {
        return finish(task, found, how.flags, mode_of(how.flags, kind))
            .map(|new| Opened::File(new.hand_over()));
    }
    if is_plain(record) && how.flags & (O_TRUNC | O_NOATIME | HELD) | how.access & permission::WRITE == 0 {
        permission::check(task, record, how.access)?;
        return finish(task, found, how.flags, mode_of(how.flags, kind))
            .map(|new| Opened::File(new.hand_over()));
    }
    may_open_slow(task, found, how, kind)
}

/// Any other open but a plain one for reading.
fn may_open_slow(task: &Task, found: &Found, how: &How, kind: u32) -> Result<Opened> {
    let record = task.region.inode(found.inode.id);
    let writes = how.access & permission::WRITE != 0;
    match kind {
        S_IFLNK => return Err(Errno::ELOOP),
        S_IFDIR if writes => return Err(Errno::EISDIR),
        S_IFBLK | S_IFCHR if mounts::has(task, found.mount, mount_flags::NODEV) => return Err(Errno::EACCES),
        _ => {}
    }
    // Devices and FIFOs may be written on a read-only file system.
    if writes && kind == S_IFREG && writer::is_read_only(task, found.mount) {
        return read_only_slow(task, found, how);
    }
    permission::check(task, record, how.access)?;
    let below = inode_flags::PENDING | inode_flags::XATTRS_BELOW;
    let marks = inode_flags::APPEND | inode_flags::SHADOW | inode_flags::EXECUTED | below;
    if record.flags.load(Ordering::Relaxed) & marks != 0 {
        return open_marked_slow(task, found, how, kind);
    }
    open_checked(task, found, how, kind)
}

/// Refuses to open a regular file in a read-only mount for writing. The kernel's sb_permission looks at the
/// file system before the permissions, and do_dentry_open at the mount after all else, unless do_open has to
/// write to it for `O_TRUNC`.
#[cold]
fn read_only_slow(task: &Task, found: &Found, how: &How) -> Result<Opened> {
    if how.has(O_TRUNC) || mounts::has(task, found.mount, mount_flags::SB_READ_ONLY) {
        return Err(Errno::EROFS);
    }
    let record = task.region.inode(found.inode.id);
    permission::check(task, record, how.access)?;
    // Relaxed: one word, as seen.
    let flags = record.flags.load(Ordering::Relaxed);
    if flags & inode_flags::APPEND != 0 && how.flags & O_ACCMODE != O_RDONLY && !how.has(O_APPEND)
        || how.has(O_NOATIME) && !credentials::owns(task, record)
    {
        return Err(Errno::EPERM);
    }
    if flags & inode_flags::EXECUTED != 0 {
        busy::may_write_slow(task, found.inode)?;
    }
    Err(Errno::EROFS)
}

/// An append-only file, one that may be watched, leased or executed, or one still to be taken from below.
#[cold]
fn open_marked_slow(task: &Task, found: &Found, how: &How, kind: u32) -> Result<Opened> {
    let flags = task.region.inode(found.inode.id).flags.load(Ordering::Relaxed);
    let cuts = kind == S_IFREG && how.has(O_TRUNC);
    let writes = how.access & permission::WRITE != 0;
    let overwrites = how.flags & O_ACCMODE != O_RDONLY && !how.has(O_APPEND);
    if flags & inode_flags::APPEND != 0 && (overwrites || cuts) {
        return Err(Errno::EPERM);
    }
    if writes || cuts {
        // Which of them go with the content.
        below::try_attributes(task, task.region.inode(found.inode.id));
    }
    if flags & inode_flags::PENDING != 0 {
        // Programs that read a directory compare its attributes before and after.
        let need = match writes {
            _ if kind == S_IFDIR => Need::Names,
            _ if cuts => Need::Nothing,
            false => Need::Opened,
            true => Need::All,
        };
        let _writing = match need {
            Need::Nothing => Some(writer::begin(task, found.mount)?),
            _ => None,
        };
        below::take(task, found.inode.id, need)?;
    }
    if flags & inode_flags::EXECUTED != 0 && writes {
        busy::may_write_slow(task, found.inode)?;
    }
    if flags & inode_flags::LEASED != 0 && kind == S_IFREG {
        watched::break_leases_slow(task, found.inode.id, Some(how.flags))?;
    }
    match open_checked(task, found, how, kind)? {
        Opened::File(id) if flags & inode_flags::SHADOW == 0 => Ok(Opened::File(id)),
        Opened::File(id) if cuts => Ok(Opened::WatchedCut(id)),
        opened => Ok(watched(opened)),
    }
}

/// Opens what the file's mode permits the caller to open.
fn open_checked(task: &Task, found: &Found, how: &How, kind: u32) -> Result<Opened> {
    match how.flags & (O_NOATIME | HELD) {
        0 => open_permitted(task, found, how, kind),
        _ => open_checked_slow(task, found, how, kind),
    }
}

/// [`open_checked`] with `O_NOATIME`, or by a thread that has restricted itself.
#[cold]
fn open_checked_slow(task: &Task, found: &Found, how: &How, kind: u32) -> Result<Opened> {
    if how.has(O_NOATIME) && !credentials::owns(task, task.region.inode(found.inode.id)) {
        return Err(Errno::EPERM);
    }
    let lacks = match how.has(HELD) {
        true => landlock::may_open(task, found, how.rights(kind), right::TRUNCATE)?,
        false => 0,
    };
    if kind == S_IFREG && how.has(O_TRUNC) && lacks != 0 {
        return Err(Errno::EACCES);
    }
    open_permitted(task, found, how, kind).map(|opened| without(task, opened, lacks))
}

/// Opens what the caller has been permitted to open.
fn open_permitted(task: &Task, found: &Found, how: &How, kind: u32) -> Result<Opened> {
    match kind {
        S_IFREG => {}
        S_IFDIR if how.has(O_DIRECT) => return Err(Errno::EINVAL),
        S_IFDIR => {}
        S_IFSOCK => return Err(Errno::ENXIO),
        _ => return Ok(Opened::HostNode(Node { found: *found, flags: how.flags, again: Fd::NONE })),
    }
    let new = match how.access & permission::WRITE {
        0 => finish(task, found, how.flags, mode_of(how.flags, kind))?,
        _ => finish_writable(task, found, how.flags, mode_of(how.flags, kind))?,
    };
    if kind == S_IFREG && how.has(O_TRUNC) {
        empty(task, found)?;
    }
    Ok(Opened::File(new.hand_over()))
}

/// Marks that the inode of an open file may be watched.
#[cold]
pub(super) fn watched(opened: Opened) -> Opened {
    if let Opened::File(id) = opened { Opened::Watched(id) } else { opened }
}

/// The kernel's handle_truncate.
fn empty(task: &Task, found: &Found) -> Result<()> {
    let id = found.inode.id;
    let record = task.region.inode(id);
    let _writing = writer::begin(task, found.mount)?;
    let _held = inode::lock(task, id);
    truncate::resize(task, id, record, 0)
}

/// [`finish`] for an access that a read-only mount refuses.
///
/// # Errors
/// As [`finish`]; `EROFS`.
#[inline(always)]
pub(super) fn finish_writable<'t, 'r>(
    task: &'t Task<'r>,
    found: &Found,
    flags: u32,
    mode: u32,
) -> Result<NewFile<'t, 'r>> {
    let new = finish(task, found, flags, mode)?;
    // A remount that this does not see finds the file's pin. PAIRS: the heavy barrier in `opened`.
    light_barrier();
    if mounts::has(task, found.mount, mount_flags::CLOSED) {
        finish_closed_slow(task, found, new)
    } else {
        Ok(new)
    }
}

/// The rest of [`finish_writable`] in a mount that is read-only, or being shut: as a writer would wait.
#[cold]
fn finish_closed_slow<'t, 'r>(task: &Task, found: &Found, new: NewFile<'t, 'r>) -> Result<NewFile<'t, 'r>> {
    writer::begin(task, found.mount).map(drop)?;
    Ok(new)
}

/// Creates the open file, whose [`file_mode`] is `mode`. The inode is pinned, and stays so through the file's
/// own pin.
///
/// # Errors
/// `ENFILE`; `ESTALE` if the mount was unmounted since the walk.
#[inline(always)]
pub(super) fn finish<'t, 'r>(
    task: &'t Task<'r>,
    found: &Found,
    flags: u32,
    mode: u32,
) -> Result<NewFile<'t, 'r>> {
    let opening = Opening {
        inode: found.inode,
        flags: flags & !FORGOTTEN,
        mode,
        parent: found.parent,
        dirent: found.dirent,
        mount: found.mount,
    };
    let new = open_file::create(task, &opening)?;
    if walked::has_entered(task) { finish_entered(task, found.mount, new) } else { Ok(new) }
}

/// The rest of [`finish`], if the last walk went from one mount into another.
#[cold]
#[inline(never)]
fn finish_entered<'t, 'r>(task: &Task, mount: MountId, new: NewFile<'t, 'r>) -> Result<NewFile<'t, 'r>> {
    if walked::is_gone(task, mount) { Err(Errno::ESTALE) } else { Ok(new) }
}

/// Pins an opened node: what has no name is held by the descriptor that it was opened by.
fn pin_node<'r>(task: &Task<'r>, node: &Node) -> Result<Pin<'r>> {
    if node.again == Fd::NONE {
        return pin::hold(task, pin::slot::OPEN, node.found.inode);
    }
    let held = task.fget_any(node.again)?;
    if Found::of(&held).inode != node.found.inode {
        return Err(Errno::ENOENT);
    }
    let pin = pin::hold_known(task, pin::slot::OPEN, node.found.inode.id);
    // The new reference came from another in the same table.
    task.table.moved();
    Ok(pin)
}

/// Creates the open file to install, with [`crate::table::entry::HOST`], beside the kernel's descriptor of an
/// opened node. It answers for attributes, flags and path.
///
/// # Errors
/// `ENFILE`; `ENOENT` if the node was unlinked meanwhile, or the descriptor is another file's.
pub fn node_file(task: &Task, node: &Node) -> Result<FileId> {
    let pin = pin_node(task, node).map_err(|_| Errno::ENOENT)?;
    let kind = task.region.inode(node.found.inode.id).mode.load(Ordering::Relaxed) & S_IFMT;
    let opening = Opening {
        inode: node.found.inode,
        flags: node.flags & !FORGOTTEN,
        mode: mode_of(node.flags, kind),
        parent: node.found.parent,
        dirent: node.found.dirent,
        mount: node.found.mount,
    };
    let new = open_file::create(task, &opening)?;
    if walked::is_gone(task, node.found.mount) {
        return Err(Errno::ENOENT);
    }
    pin.leave();
    Ok(new.hand_over())
}

/// Notes in an open file what may not be done through it.
pub(super) fn without(task: &Task, opened: Opened, lacks: u32) -> Opened {
    if let Opened::File(id) | Opened::Watched(id) | Opened::WatchedCut(id) = opened
        && lacks & right::TRUNCATE != 0
    {
        // Relaxed: in no table yet.
        task.region.file(id).mode.fetch_or(file_mode::UNCUT, Ordering::Relaxed);
    }
    opened
}

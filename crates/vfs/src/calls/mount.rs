//! mount(2): new file systems, bind mounts, remounts, moves, propagation types.

use lp_abi::linux::{
    MS_BIND, MS_LAZYTIME, MS_MANDLOCK, MS_MGC_MSK, MS_MGC_VAL, MS_MOVE, MS_NOATIME, MS_NODEV, MS_NODIRATIME,
    MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW, MS_NOUSER, MS_PRIVATE, MS_RDONLY, MS_REC, MS_RELATIME, MS_REMOUNT,
    MS_SHARED, MS_SLAVE, MS_STRICTATIME, MS_SYNCHRONOUS, MS_UNBINDABLE,
};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserPtr};
use lp_region::mount::{Groups, SOURCE, mount_flags};
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef, MountId, ucopy};

use crate::caller::task::{Place, Task};
use crate::calls::landlock;
use crate::calls::mount_at::{in_one_shape, is_mount, may_mount, point, propagation, uppermost};
use crate::calls::remount::{self, RemountTarget};
use crate::calls::{mount_setattr, move_mount};
use crate::life::fs_options::{FsKind, Options};
use crate::life::mount_list::List;
use crate::life::mount_peers::Peers;
use crate::life::mount_tree::{self, Draft, Making, Tree};
use crate::life::{mount_end, mount_owner, superblock};
use crate::names::walk::{self, Follow, Found};
use crate::names::{mounts, tree};

/// Arguments of mount(2) besides the path.
#[derive(Clone, Copy)]
pub struct MountArguments {
    /// The source: a path for a bind mount or a move, else a name.
    pub source: UserPtr,
    /// The type of file system.
    pub kind: UserPtr,
    /// `MS_*`.
    pub flags: u32,
    /// Options.
    pub data: UserPtr,
}

/// Mounts something on what a path names, or changes what is mounted there.
///
/// # Errors
/// Those of path_resolution(7) and mount(2); `EINVAL` for a source on the host, `ENODEV` for all types but
/// tmpfs.
pub fn mount(task: &Task<'_>, dirfd: Fd, path: UserPtr, call: &MountArguments) -> Result<Place<()>> {
    let kind = match text(task, call.kind)? {
        None => Err(Errno::EINVAL),
        Some(b"tmpfs") => Ok(FsKind::Tmpfs),
        Some(b"ramfs") => Ok(FsKind::Ramfs),
        Some(_) => Err(Errno::ENODEV),
    };
    text(task, call.source)?;
    // Whether they matter is known only when the path has been walked.
    let parsed_as = kind.unwrap_or_default();
    let options = Options::parse(task, parsed_as, options(task, call.data)?);
    in_one_shape(task, || mount_once(task, dirfd, path, call, (kind, &options)))
}

fn mount_once(
    task: &Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    call: &MountArguments,
    (kind, options): (Result<FsKind>, &Result<Options>),
) -> Result<Place<()>> {
    let at = match walk::inode(task, dirfd, path, Follow::Link)? {
        Place::Inside(found) => found,
        Place::Outside(outside) => return Ok(Place::Outside(outside)),
    };
    let magic = call.flags & MS_MGC_MSK == MS_MGC_VAL & MS_MGC_MSK;
    let flags = if magic { call.flags & !MS_MGC_MSK } else { call.flags };
    if flags & MS_NOUSER != 0 {
        return Err(Errno::EINVAL);
    }
    may_mount(task)?;
    landlock::may_mount(task)?;
    let types = MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE;
    if flags & (MS_REMOUNT | MS_BIND) == MS_REMOUNT | MS_BIND {
        reconfigure_mount(task, &at, flags)
    } else if flags & MS_REMOUNT != 0 {
        remount_superblock(task, &at, flags, &(*options)?)
    } else if flags & MS_BIND != 0 {
        bind(task, call.source, &at, flags & MS_REC != 0)
    } else if flags & types != 0 {
        change_type(task, &at, flags)
    } else if flags & MS_MOVE != 0 {
        move_mount::to(task, &source_path(task, call.source)?, &at)
    } else {
        kind.and(*options).and_then(|options| new(task, &at, flags, &options, call.source))
    }
    .map(Place::Inside)
}

/// An optional string of the program's, in `scratch.other`, as the kernel's copy_mount_string takes it.
///
/// # Errors
/// `EINVAL` for one that is too long; `EFAULT`.
fn text<'t>(task: &'t Task<'_>, from: UserPtr) -> Result<Option<&'t [u8]>> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the buffer is this thread's, and the call uses it for nothing else yet.
    let room = unsafe { &mut (&mut *task.scratch.other.get())[..PAGE_SIZE] };
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::string(room, from.as_ptr()) } {
        Ok(length) => Ok(Some(&room[..length])),
        Err(Errno::ENAMETOOLONG) => Err(Errno::EINVAL),
        Err(errno) => Err(errno),
    }
}

/// The program's option string, in `scratch.other`: up to a page, or as much of it as there is memory (the
/// kernel's copy_mount_options).
///
/// # Errors
/// `EFAULT`.
fn options<'t>(task: &'t Task<'_>, from: UserPtr) -> Result<&'t [u8]> {
    if from.is_null() {
        return Ok(b"");
    }
    // SAFETY: the buffer is this thread's, and the call uses it for nothing else yet.
    let room = unsafe { &mut (&mut *task.scratch.other.get())[..PAGE_SIZE] };
    room.fill(0);
    let first = PAGE_SIZE - from.as_ptr().addr() % PAGE_SIZE;
    let (here, behind) = room.split_at_mut(first);
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::copy(here.as_mut_ptr(), from.as_ptr(), here.len())? };
    // SAFETY: as above; what cannot be read stays empty.
    let _ = unsafe { ucopy::copy(behind.as_mut_ptr(), from.as_ptr().wrapping_add(first), behind.len()) };
    let most = PAGE_SIZE - 1;
    let length = room[..most].iter().position(|byte| *byte == 0).unwrap_or(most);
    Ok(&room[..length])
}

/// The mount's flags that `MS_*` select (the kernel's path_mount).
fn own_flags(flags: u32) -> u32 {
    const NAMES: [(u32, u32); 7] = [
        (MS_RDONLY, mount_flags::READ_ONLY),
        (MS_NOSUID, mount_flags::NOSUID),
        (MS_NODEV, mount_flags::NODEV),
        (MS_NOEXEC, mount_flags::NOEXEC),
        (MS_NOATIME, mount_flags::NOATIME),
        (MS_NODIRATIME, mount_flags::NODIRATIME),
        (MS_NOSYMFOLLOW, mount_flags::NOSYMFOLLOW),
    ];
    let own = NAMES.iter().filter(|(bit, _)| flags & bit != 0).fold(0, |all, (_, own)| all | own);
    match (flags & MS_STRICTATIME, flags & MS_NOATIME) {
        (0, 0) => own | mount_flags::RELATIME,
        (0, _) => own,
        _ => own & !mount_flags::NOATIME,
    }
}

/// The kernel's do_new_mount.
fn new(task: &Task<'_>, at: &Found, flags: u32, options: &Options, source: UserPtr) -> Result<()> {
    let mut name = [0; SOURCE];
    let source = if source.is_null() {
        options.source.as_ref().map_or(&b"none"[..], |source| source)
    } else if options.source.is_some() {
        return Err(Errno::EINVAL);
    } else {
        // SAFETY: the copy routine handles bad pointers. A name that is too long is truncated.
        let length = unsafe { ucopy::string(&mut name, source.as_ptr()) }.unwrap_or(SOURCE - 1);
        &name[..length]
    };
    mount_end::collect(task);
    let mut made = None;
    mount_tree::change(task, |tree| {
        let at = uppermost(task, at);
        if !tree.holds(at.mount) {
            return Err(Errno::EINVAL);
        }
        if !task.region.inode(at.inode.id).is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let mut list = List::default();
        list.push(make_fs(task, tree, &mut made, (options, flags, source))?);
        tree.graft(&mut Peers::of(task), &list, point(task, &at))
    })?;
    if let Some(new) = made {
        new.keep();
    }
    Ok(())
}

/// A mount of a file system that is made for it, or that `made` has from an earlier try.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn make_fs<'t, 'r>(
    task: &'t Task<'r>,
    tree: &Tree<'_, 'r>,
    made: &mut Option<superblock::New<'t, 'r>>,
    (options, flags, source): (&Options, u32, &[u8]),
) -> Result<MountId> {
    let new = match made.take() {
        Some(new) => new,
        None => superblock::create(task, options)?,
    };
    let superblock = made.insert(new).number();
    let whole = options.whole(flags);
    superblock::set_read_only(task, superblock, whole & MS_RDONLY != 0);
    superblock::set_shown(task, superblock, whole, u32::MAX);
    let id = mounts::superblock_root(task, superblock);
    let generation = task.region.inode(id).generation.load(Ordering::Acquire);
    let root = InodeRef { id, generation };
    tree.make(&Making { root, superblock, flags: own_flags(flags), source })
}

/// The kernel's do_loopback.
fn bind(task: &Task<'_>, source: UserPtr, at: &Found, recursive: bool) -> Result<()> {
    let from = source_path(task, source)?;
    mount_end::collect(task);
    mount_tree::change(task, |tree| {
        let at = uppermost(task, at);
        let mut peers = Peers::of(task);
        if !tree.holds(at.mount) {
            return Err(Errno::EINVAL);
        }
        let list = copy(task, tree, &mut peers, (&from, recursive))?;
        let is_dir = |found: &Found| task.region.inode(found.inode.id).is_dir();
        if is_dir(&from) != is_dir(&at) {
            return Err(Errno::ENOTDIR);
        }
        tree.graft(&mut peers, &list, point(task, &at))
    })
}

/// A copy of what is mounted at `from`, and of what is mounted below (the kernel's __do_loopback).
///
/// # Errors
/// `EINVAL` if it must not be copied; `ENOSPC`.
pub(crate) fn copy<'r>(
    task: &Task<'r>,
    tree: &Tree<'_, 'r>,
    peers: &mut Peers,
    (from, recursive): (&Found, bool),
) -> Result<List> {
    let is_bindable = |id: MountId| peers.get(id) != Groups::UNBINDABLE;
    if !tree.may_copy(from.mount) || !is_bindable(from.mount) {
        return Err(Errno::EINVAL);
    }
    let is_copied = |id| recursive && is_bindable(id) && is_below(task, tree, from, id);
    let is_locked = |id: MountId| is_below(task, tree, from, id) && mount_owner::is_locked(task, id);
    // The copy would show what they cover.
    if !recursive && tree.children(from.mount).any(is_locked) {
        return Err(Errno::EINVAL);
    }
    let originals = tree.branch(from.mount, is_copied);
    tree.copy_all(peers, &originals, from.inode)
}

/// Whether a mount stands in or below `from`, if it stands in that one's mount.
fn is_below(task: &Task<'_>, tree: &Tree<'_, '_>, from: &Found, id: MountId) -> bool {
    let at = tree.standing(id);
    // For a file, whether its directory is below.
    let dir = match task.region.inode(at.point.id).is_dir() {
        true => at.point.id,
        false => InodeId(task.region.dirent(at.dirent).parent.load(Ordering::Relaxed)),
    };
    at.parent != from.mount || dir == from.inode.id || tree::is_above(task, from.inode.id, dir)
}

/// The source path of a bind mount or a move.
fn source_path(task: &Task<'_>, source: UserPtr) -> Result<Found> {
    if source.is_null() || walk::is_empty(source)? {
        return Err(Errno::EINVAL);
    }
    match walk::second_inode(task, Fd::CWD, source, Follow::Link)? {
        Place::Inside(found) => Ok(found),
        Place::Outside(_) => Err(Errno::EINVAL),
    }
}

/// The kernel's do_reconfigure_mnt: sets the flags of one mount.
fn reconfigure_mount(task: &Task<'_>, at: &Found, flags: u32) -> Result<()> {
    if !Tree::look(task).holds(at.mount) || !is_mount(task, at) {
        return Err(Errno::EINVAL);
    }
    set_flags(task, at.mount, flags)
}

/// Sets a mount's own flags, all at once; read-only only if nobody writes.
///
/// # Errors
/// Those of [`mount_setattr::set`].
fn set_flags(task: &Task<'_>, mount: MountId, flags: u32) -> Result<()> {
    let mut list = List::default();
    list.push(mount);
    mount_setattr::set(task, &list, changes(flags))
}

/// Flags of a mount that a remount clears and sets.
fn changes(flags: u32) -> (u32, u32) {
    let atime = mount_flags::NOATIME | mount_flags::NODIRATIME | mount_flags::RELATIME;
    let kept = match flags & (MS_NOATIME | MS_NODIRATIME | MS_RELATIME | MS_STRICTATIME) {
        0 => !mount_flags::OWN | atime,
        _ => !mount_flags::OWN,
    };
    (!kept, own_flags(flags) & !kept)
}

/// The kernel's do_remount: changes a whole file system, and this mount's flags.
fn remount_superblock(task: &Task<'_>, at: &Found, flags: u32, options: &Options) -> Result<()> {
    if !Tree::look(task).holds(at.mount) || !is_mount(task, at) {
        return Err(Errno::EINVAL);
    }
    mount_owner::may_set(task, at.mount, changes(flags))?;
    let root = task.region.inode(at.inode.id).root.load(Ordering::Relaxed);
    let mask = MS_REMOUNTED | options.mask;
    reconfigure(task, root, options, (options.whole(flags & MS_REMOUNTED), mask))?;
    if flags & MS_RDONLY != 0 {
        // Nobody writes to the file system, so nobody writes through this mount.
        task.region.mount(at.mount).flags.fetch_or(mount_flags::READ_ONLY, Ordering::AcqRel);
    }
    set_flags(task, at.mount, flags)
}

/// The kernel's MS_RMT_MASK: what a remount may change of a whole file system.
const MS_REMOUNTED: u32 = MS_RDONLY | MS_SYNCHRONOUS | MS_MANDLOCK | MS_LAZYTIME;

/// Changes a file system in all its mounts (the kernel's reconfigure_super): its options, and the flags of
/// `mask` to those of `flags`.
///
/// # Errors
/// `EPERM` if it is another user namespace's; `EINVAL` for options that it cannot have; `EBUSY` if it cannot
/// become read-only.
pub(crate) fn reconfigure(
    task: &Task<'_>,
    root: u32,
    options: &Options,
    (flags, mask): (u32, u32),
) -> Result<()> {
    mount_owner::may_reconfigure(task, root)?;
    if mask & !MS_REMOUNTED != 0 {
        return Err(Errno::EINVAL);
    }
    superblock::may_reconfigure(task, root, options)?;
    if mask & MS_RDONLY != 0 {
        let read_only = flags & MS_RDONLY != 0;
        let what = RemountTarget::Superblock(root);
        // Whoever was about to mount it once more looks again, and sees what new mounts start from.
        mount_tree::change(task, |_| {
            match read_only {
                true => remount::shut(task, what, |_, was| Some(was | mount_flags::SB_READ_ONLY))?,
                false => remount::open(task, what),
            }
            superblock::set_read_only(task, root, read_only);
            Ok(Draft::nothing())
        })?;
    }
    superblock::set_shown(task, root, flags, mask);
    superblock::reconfigure(task, root, options);
    Ok(())
}

/// The kernel's do_change_type: how mounts and unmounts in a mount propagate.
fn change_type(task: &Task<'_>, at: &Found, flags: u32) -> Result<()> {
    let to = propagation(flags & !(MS_REC | lp_abi::linux::MS_SILENT)).ok_or(Errno::EINVAL)?;
    if !is_mount(task, at) {
        return Err(Errno::EINVAL);
    }
    mount_tree::change(task, |tree| {
        if !tree.may_copy(at.mount) {
            return Err(Errno::EINVAL);
        }
        let mut peers = Peers::of(task);
        for id in tree.branch(at.mount, |_| flags & MS_REC != 0).iter() {
            peers.change(id, to)?;
        }
        let mut draft = Draft::nothing();
        draft.regroup(task, &peers);
        Ok(draft)
    })
}

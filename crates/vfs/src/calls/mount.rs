//! mount(2): new file systems, bind mounts, remounts, moves, propagation types.

use lp_abi::linux::{
    __NR_umount2, MS_BIND, MS_MGC_MSK, MS_MGC_VAL, MS_MOVE, MS_NOATIME, MS_NODEV, MS_NODIRATIME, MS_NOEXEC,
    MS_NOSUID, MS_NOSYMFOLLOW, MS_NOUSER, MS_PRIVATE, MS_RDONLY, MS_REC, MS_RELATIME, MS_REMOUNT, MS_SHARED,
    MS_SLAVE, MS_STRICTATIME, MS_UNBINDABLE,
};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::layout::MOUNTS;
use lp_region::mount::{Groups, SOURCE, mount_flags};
use lp_region::mount_change::Set;
use lp_region::process::caps;
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef, MountId, ucopy};

use crate::caller::task::{Place, Task};
use crate::calls::remount::{self, RemountTarget};
use crate::life::mount_end;
use crate::life::mount_tree::{self, Draft, Making, Tree};
use crate::life::superblock::{self, Options};
use crate::names::walk::{self, Follow, Found};
use crate::names::{dir, mounts, tree};
use crate::rights::credentials;

/// Maximum length of an option string, in bytes.
const OPTIONS: usize = 1024;
/// Bytes for a file system's name.
const KIND: usize = 32;

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
    let mut kind = [0; KIND];
    let mut data = [0; OPTIONS];
    let kind = text(&mut kind, call.kind)?;
    let data = text(&mut data, call.data)?.unwrap_or_default();
    in_one_shape(task, || mount_once(task, dirfd, path, call, (kind, data)))
}

/// Repeats a call whose paths were walked before others changed the mounts, if it fails.
pub(crate) fn in_one_shape<T>(task: &Task<'_>, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..walk::TRIES {
        let tree = Tree::look(task);
        match call() {
            Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) if !tree.stands() => {}
            done => return done,
        }
    }
    call()
}

fn mount_once(
    task: &Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    call: &MountArguments,
    (kind, data): (Option<&[u8]>, &[u8]),
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
    let types = MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE;
    if flags & (MS_REMOUNT | MS_BIND) == MS_REMOUNT | MS_BIND {
        reconfigure_mount(task, &at, flags)
    } else if flags & MS_REMOUNT != 0 {
        remount_superblock(task, &at, flags, data)
    } else if flags & MS_BIND != 0 {
        bind(task, call.source, &at, flags & MS_REC != 0)
    } else if flags & types != 0 {
        change_type(task, &at, flags)
    } else if flags & MS_MOVE != 0 {
        move_mount(task, call.source, &at)
    } else {
        new(task, &at, flags, (kind, call.source), data)
    }
    .map(Place::Inside)
}

/// An optional string of the program's.
fn text(to: &mut [u8], from: UserPtr) -> Result<Option<&[u8]>> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::string(to, from.as_ptr()) } {
        Ok(length) => Ok(Some(&to[..length])),
        Err(Errno::ENAMETOOLONG) => Err(Errno::EINVAL),
        Err(errno) => Err(errno),
    }
}

/// Checks that the caller may mount by the kernel's own rules, namespaces included. Unmounting something that
/// is not a mount changes nothing, and the kernel checks the right first.
///
/// # Errors
/// `EPERM`.
pub(crate) fn may_mount(task: &Task<'_>) -> Result<()> {
    let capable = credentials::capable(task, caps::SYS_ADMIN);
    // Relaxed: changes only in its own process.
    if capable && task.process.limited.load(Ordering::Relaxed) == 0 {
        // SAFETY: the path is NUL-terminated and never a mount.
        let asked = unsafe { lp_abi::syscall!(__NR_umount2, c"/proc/self/status".as_ptr(), 0) };
        return if asked == Err(Errno::EPERM) { Err(Errno::EPERM) } else { Ok(()) };
    }
    if capable { Ok(()) } else { Err(Errno::EPERM) }
}

/// Whether a path named a mount itself, rather than something in it.
pub(crate) fn is_mount(task: &Task<'_>, found: &Found) -> bool {
    task.region.mount(found.mount).root() == found.inode
}

/// What is uppermost where `found` is by now.
fn uppermost(task: &Task<'_>, found: &Found) -> Found {
    let top = mounts::cover(task, found.spot(), found.dirent, mounts::ASIDE);
    if top == found.spot() { *found } else { Found { inode: top.inode, mount: top.mount, ..*found } }
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
    let strict = flags & (MS_NOATIME | MS_STRICTATIME) != 0;
    if strict { own } else { own | mount_flags::RELATIME }
}

/// The kernel's do_new_mount.
fn new(
    task: &Task<'_>,
    at: &Found,
    flags: u32,
    (kind, source): (Option<&[u8]>, UserPtr),
    data: &[u8],
) -> Result<()> {
    match kind {
        None => return Err(Errno::EINVAL),
        Some(b"tmpfs" | b"ramfs") => {}
        Some(_) => return Err(Errno::ENODEV),
    }
    let options = Options::parse(data, task.region.header().data_pages.load(Ordering::Relaxed))?;
    let mut name = [0; SOURCE];
    let length = if source.is_null() {
        0
    } else {
        // SAFETY: the copy routine handles bad pointers. A name that is too long is truncated.
        unsafe { ucopy::string(&mut name, source.as_ptr()) }.unwrap_or(SOURCE - 1)
    };
    let source = if length == 0 { &b"none"[..] } else { &name[..length] };
    mount_end::collect(task);
    let mut made = None;
    mount_tree::change(task, |tree| {
        let at = uppermost(task, at);
        if !tree.holds(at.mount) {
            return Err(Errno::EINVAL);
        }
        if !dir::is(task.region.inode(at.inode.id)) {
            return Err(Errno::ENOTDIR);
        }
        let new = match made.take() {
            Some(new) => new,
            None => superblock::create(task, &options)?,
        };
        let superblock = made.insert(new).number();
        let read_only = options.read_only.unwrap_or(flags & MS_RDONLY != 0);
        superblock::set_read_only(task, superblock, read_only);
        let id = mounts::superblock_root(task, superblock);
        let generation = task.region.inode(id).generation.load(Ordering::Acquire);
        let root = InodeRef { id, generation };
        let id = tree.make(&Making { root, superblock, flags: own_flags(flags), source })?;
        tree.attach(id, at.spot(), point_dirent(task, &at))
    })?;
    if let Some(new) = made {
        new.keep();
    }
    Ok(())
}

/// The entry that distinguishes what is covered from the file's other names; none for the root of a mount.
fn point_dirent(task: &Task<'_>, at: &Found) -> lp_region::DirentId {
    if is_mount(task, at) { lp_region::DirentId::NONE } else { at.dirent }
}

/// The kernel's do_loopback.
fn bind(task: &Task<'_>, source: UserPtr, at: &Found, recursive: bool) -> Result<()> {
    let from = source_path(task, source)?;
    mount_end::collect(task);
    mount_tree::change(task, |tree| {
        let at = uppermost(task, at);
        let flags = task.region.mount(from.mount).flags.load(Ordering::Relaxed);
        if !tree.holds(at.mount) || !tree.holds(from.mount) || flags & mount_flags::UNBINDABLE != 0 {
            return Err(Errno::EINVAL);
        }
        let is_dir = |found: &Found| dir::is(task.region.inode(found.inode.id));
        let top = tree.copy(from.mount, from.inode)?;
        let mut copies = [0; MOUNTS];
        copies[from.mount.index()] = top.0 as u8;
        if recursive {
            copy_below(task, tree, &from, &mut copies)?;
        }
        if is_dir(&from) != is_dir(&at) {
            return Err(Errno::ENOTDIR);
        }
        let mut draft = tree.attach(top, at.spot(), point_dirent(task, &at))?;
        attach_copies(task, tree, &mut draft, &copies, from.mount);
        Ok(draft)
    })
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

/// Copies the mounts below `from` (the kernel's copy_tree). `copies` records each mount's copy, by number.
fn copy_below(task: &Task<'_>, tree: &Tree<'_, '_>, from: &Found, copies: &mut [u8; MOUNTS]) -> Result<()> {
    let run = task.process.run.load(Ordering::Relaxed);
    let mut grows = true;
    while grows {
        grows = false;
        for id in mounts::of_run(task, run) {
            let (record, at) = (task.region.mount(id), tree.standing(id));
            // For a file, whether its directory is below.
            let dir = match superblock::is_directory(task, at.point.id) {
                true => at.point.id,
                false => InodeId(task.region.dirent(at.dirent).parent.load(Ordering::Relaxed)),
            };
            let is_below = || dir == from.inode.id || tree::is_above(task, from.inode.id, dir);
            let wanted = at.parent.is_some()
                && copies[id.index()] == 0
                && copies[at.parent.index() & (MOUNTS - 1)] != 0
                && record.flags.load(Ordering::Relaxed) & mount_flags::UNBINDABLE == 0
                && (at.parent != from.mount || is_below());
            if wanted {
                copies[id.index()] = tree.copy(id, record.root())?.0 as u8;
                grows = true;
            }
        }
    }
    Ok(())
}

/// Adds the copies of mounts below the uppermost one, which joins.
fn attach_copies<'r>(
    task: &Task<'r>,
    tree: &Tree<'_, 'r>,
    draft: &mut Draft<'r>,
    copies: &[u8; MOUNTS],
    from: MountId,
) {
    for id in mounts::all(task).filter(|id| copies[id.index()] != 0 && *id != from) {
        let parent = tree.standing(id).parent.index() & (MOUNTS - 1);
        let (copy, parent) = (MountId(copies[id.index()].into()), MountId(copies[parent].into()));
        tree.attach_below(draft, copy, parent, id);
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
/// `EBUSY`.
fn set_flags(task: &Task<'_>, mount: MountId, flags: u32) -> Result<()> {
    let word = &task.region.mount(mount).flags;
    let atime = mount_flags::NOATIME | mount_flags::NODIRATIME | mount_flags::RELATIME;
    let kept = match flags & (MS_NOATIME | MS_NODIRATIME | MS_RELATIME | MS_STRICTATIME) {
        0 => !mount_flags::OWN | atime,
        _ => !mount_flags::OWN,
    };
    let own = own_flags(flags) & !kept;
    let becomes = |was: u32| was & kept | own;
    let is_read_only = || word.load(Ordering::Relaxed) & mount_flags::READ_ONLY != 0;
    if own & mount_flags::READ_ONLY != 0 && !is_read_only() {
        return remount::shut(task, RemountTarget::Mount(mount), becomes);
    }
    let open = |was: u32| match own & mount_flags::READ_ONLY {
        0 => becomes(was) & !mount_flags::SHUTTING,
        _ => becomes(was),
    };
    // Release: a writer that comes in sees what the remount did before.
    let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, |was| Some(open(was)));
    Ok(())
}

/// The kernel's do_remount: changes a whole file system, and this mount's flags.
fn remount_superblock(task: &Task<'_>, at: &Found, flags: u32, data: &[u8]) -> Result<()> {
    let options = Options::parse(data, task.region.header().data_pages.load(Ordering::Relaxed))?;
    if !Tree::look(task).holds(at.mount) || !is_mount(task, at) {
        return Err(Errno::EINVAL);
    }
    let root = task.region.inode(at.inode.id).root.load(Ordering::Relaxed);
    let read_only = options.read_only.unwrap_or(flags & MS_RDONLY != 0);
    let what = RemountTarget::Superblock(root);
    // Whoever was about to mount it once more looks again, and sees what new mounts start from.
    mount_tree::change(task, |_| {
        match read_only {
            true => remount::shut(task, what, |was| was | mount_flags::SB_READ_ONLY)?,
            false => remount::open(task, what),
        }
        superblock::set_read_only(task, root, read_only);
        Ok(Draft::nothing())
    })?;
    superblock::reconfigure(task, root, &options);
    if flags & MS_RDONLY != 0 {
        // Nobody writes to the file system, so nobody writes through this mount.
        task.region.mount(at.mount).flags.fetch_or(mount_flags::READ_ONLY, Ordering::AcqRel);
    }
    set_flags(task, at.mount, flags)
}

/// The kernel's do_change_type: how mounts and unmounts in a mount propagate.
fn change_type(task: &Task<'_>, at: &Found, flags: u32) -> Result<()> {
    let kind = flags & !(MS_REC | lp_abi::linux::MS_SILENT);
    if !kind.is_power_of_two() || !is_mount(task, at) {
        return Err(Errno::EINVAL);
    }
    let tree = Tree::look(task);
    if !tree.holds(at.mount) {
        return Err(Errno::EINVAL);
    }
    let set = if flags & MS_REC != 0 { tree.subtree(at.mount) } else { Set::default() };
    for id in mounts::all(task).filter(|id| *id == at.mount || set.has(*id)) {
        set_type(task, &tree, id, kind);
    }
    Ok(())
}

/// The kernel's change_mnt_propagation.
fn set_type(task: &Task<'_>, tree: &Tree<'_, '_>, id: MountId, kind: u32) {
    let record = task.region.mount(id);
    let has_peers = |peers: u32| {
        peers != 0
            && mounts::all(task).any(|other| other != id && task.region.mount(other).groups().peers == peers)
    };
    let serial = tree.serial();
    let becomes = |was: Groups| match kind {
        MS_SHARED if was.peers == 0 => Groups { peers: serial, ..was },
        MS_SHARED => was,
        MS_SLAVE if has_peers(was.peers) => Groups { peers: 0, master: was.peers },
        MS_SLAVE => Groups { peers: 0, ..was },
        _ => Groups::default(),
    };
    // Relaxed throughout: words of their own.
    let _ = record.groups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |was| {
        Some(becomes(Groups::from_word(was)).to_word())
    });
    match kind {
        MS_UNBINDABLE => record.flags.fetch_or(mount_flags::UNBINDABLE, Ordering::Relaxed),
        _ => record.flags.fetch_and(!mount_flags::UNBINDABLE, Ordering::Relaxed),
    };
}

/// The kernel's do_move_mount.
fn move_mount(task: &Task<'_>, source: UserPtr, at: &Found) -> Result<()> {
    let from = source_path(task, source)?;
    mount_end::collect(task);
    mount_tree::change(task, |tree| {
        let at = uppermost(task, at);
        let is_whole = tree.holds(from.mount) && is_mount(task, &from);
        // A mount of the command line is in a host directory.
        if !tree.holds(at.mount) || !is_whole || tree.standing(from.mount).parent.is_none() {
            return Err(Errno::EINVAL);
        }
        if dir::is(task.region.inode(from.inode.id)) != dir::is(task.region.inode(at.inode.id)) {
            return Err(Errno::EINVAL);
        }
        if tree.subtree(from.mount).has(at.mount) {
            return Err(Errno::ELOOP);
        }
        tree.move_to(from.mount, at.spot(), point_dirent(task, &at))
    })?;
    mount_end::collect(task);
    Ok(())
}

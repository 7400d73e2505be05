//! name_to_handle_at(2), open_by_handle_at(2).
//!
//! A handle has tmpfs's form, three words: the generation of the inode and, for its number, its slot. The
//! generation tells it from a later inode in the slot.

use lp_abi::linux::{AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, O_PATH, S_IFLNK, S_IFMT};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::layout::INODES;
use lp_region::process::caps;
use lp_region::records::{file_mode, inode_flags};
use lp_region::sync::Ordering;
use lp_region::{DirentId, FileId, InodeId, InodeRef, MountId, Spot, ucopy};

use crate::caller::task::{Place, Task};
use crate::calls::open::{self, Opened};
use crate::calls::target;
use crate::descriptors::table::FdTable;
use crate::lane::pin::{self, Pin};
use crate::names::mounts;
use crate::names::walk::Found;
use crate::rights::credentials;

/// `AT_HANDLE_FID`: the handle is only compared, never opened.
const FID: u32 = 0x200;
/// `AT_HANDLE_MNT_ID_UNIQUE`: the mount's id has 64 bits.
const UNIQUE: u32 = 0x1;
/// `AT_HANDLE_CONNECTABLE`, which tmpfs does not support.
const CONNECTABLE: u32 = 0x2;
/// `MAX_HANDLE_SZ`.
const LONGEST: u32 = 128;
/// Bytes of a handle.
const LENGTH: u32 = 12;
/// tmpfs's handle type, and that of a handle that did not fit (`FILEID_INVALID`).
const KIND: i32 = 1;
const INVALID: i32 = 255;
/// The bits of a handle's type that say how it was made; those that are known.
const USER_FLAGS: i32 = 0x7fff_0000;
const KNOWN_FLAGS: i32 = 0x3_0000;
/// `FILEID_IS_DIR`.
const IS_DIRECTORY: i32 = 0x2_0000;

/// `struct file_handle`, without the handle.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    bytes: u32,
    kind: i32,
}

/// Writes the handle of what a path names, and the id of its mount.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL`, `EFAULT`; `EOVERFLOW` if the handle does not fit, with the size
/// that it needs; `EOPNOTSUPP` for a connectable handle.
pub fn name_to_handle_at(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    (handle, mount_id): (UserPtr, UserPtr),
    flags: u32,
) -> Result<Place<()>> {
    let known = AT_SYMLINK_FOLLOW | AT_EMPTY_PATH | FID | UNIQUE | CONNECTABLE;
    if flags & !known != 0 || flags & CONNECTABLE != 0 && flags & (FID | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let nofollow = if flags & AT_SYMLINK_FOLLOW != 0 { 0 } else { AT_SYMLINK_NOFOLLOW };
    target::at(task, dirfd, path, flags & AT_EMPTY_PATH | nofollow, |id, inode, mount| {
        if flags & CONNECTABLE != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let generation = inode.generation.load(Ordering::Relaxed); // Relaxed: the inode is pinned.
        put(handle, InodeRef { id, generation }, || put_mount(task, mount_id, mount, flags))
    })
}

/// The kernel's do_sys_name_to_handle.
fn put(handle: UserPtr, inode: InodeRef, put_mount: impl FnOnce() -> Result<()>) -> Result<()> {
    let head = handle.cast::<Head>();
    // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid head.
    let room = unsafe { ucopy::get(head.as_ptr()) }?.bytes;
    if room > LONGEST {
        return Err(Errno::EINVAL);
    }
    let fits = room >= LENGTH;
    put_mount()?;
    let kind = if fits { KIND } else { INVALID };
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(head.as_ptr(), &Head { bytes: LENGTH, kind }) }?;
    if !fits {
        return Err(Errno::EOVERFLOW);
    }
    let words = [inode.generation, inode.id.0, 0];
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(head.as_ptr().wrapping_add(1).cast(), &words) }
}

fn put_mount(task: &Task<'_>, to: UserPtr, mount: MountId, flags: u32) -> Result<()> {
    if flags & UNIQUE != 0 {
        // SAFETY: the copy routine handles bad pointers.
        return unsafe { ucopy::put(to.as_ptr().cast(), &mounts::unique_id(task, mount)) };
    }
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(to.as_ptr().cast(), &mounts::shown_id(mount)) }
}

/// Opens the file of a handle in the file system of the descriptor `mount`, or of the working directory.
///
/// # Errors
/// `EBADF`; `EPERM` without `CAP_DAC_READ_SEARCH`; `EFAULT`, `EINVAL`; `ESTALE` if the handle is not one of
/// this file system, or its file is gone; otherwise those of open(2).
pub fn open_by_handle_at(task: &Task, mount: Fd, handle: UserPtr, flags: u32) -> Result<Opened> {
    let head = read_head(handle)?;
    let anchor = anchor(task, mount)?;
    if !credentials::capable_initially(task, caps::DAC_READ_SEARCH) {
        return Err(Errno::EPERM);
    }
    let inode = read(handle, head)?;
    let (pin, inode) = find(task, anchor, inode).ok_or(Errno::ESTALE)?;
    if head.kind & IS_DIRECTORY != 0 && !task.region.inode(inode.id).is_dir() {
        return Err(Errno::ESTALE);
    }
    let root = task.region.mount(anchor.mount).root().id;
    open::check_flags(flags)?;
    // The kernel's do_file_open_root. Relaxed: the type does not change.
    let mode = task.region.inode(inode.id).mode.load(Ordering::Relaxed);
    if mode & S_IFMT == S_IFLNK && flags & O_PATH == 0 {
        return Err(Errno::ELOOP);
    }
    let found = Found { inode, dirent: DirentId::NONE, parent: root, mount: anchor.mount };
    open::found(task, pin, &found, (flags, 0))
}

/// Where the handle is looked up.
fn anchor(task: &Task, fd: Fd) -> Result<Spot> {
    if fd == Fd::CWD {
        // Relaxed: one word, as seen.
        return Ok(Spot::from_word(task.directories.get().cwd.load(Ordering::Relaxed)));
    }
    let held = task.fget_any(fd)?;
    // Relaxed: immutable.
    if held.file.mode.load(Ordering::Relaxed) & file_mode::PATH != 0 {
        return Err(Errno::EBADF);
    }
    Ok(held.spot())
}

fn read_head(handle: UserPtr) -> Result<Head> {
    // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid head.
    let head: Head = unsafe { ucopy::get(handle.cast().as_ptr()) }?;
    let known = head.kind >= 0 && head.kind & USER_FLAGS & !KNOWN_FLAGS == 0;
    if known && (1..=LONGEST).contains(&head.bytes) { Ok(head) } else { Err(Errno::EINVAL) }
}

fn read(handle: UserPtr, head: Head) -> Result<InodeRef> {
    let at = handle.cast::<Head>().as_ptr().wrapping_add(1).cast::<u8>();
    let mut text = [0; LONGEST as usize];
    // SAFETY: the copy routine handles bad pointers; the length was checked.
    unsafe { ucopy::copy(text.as_mut_ptr(), at, head.bytes as usize) }?;
    let word = |at: usize| u32::from_ne_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]);
    if head.bytes < LENGTH || word(8) != 0 || word(4) as usize >= INODES {
        return Err(Errno::ESTALE);
    }
    Ok(InodeRef { id: InodeId(word(4)), generation: word(0) })
}

/// Pins the inode of a handle, if it lives in the file system that `anchor` is in.
fn find<'r>(task: &Task<'r>, anchor: Spot, inode: InodeRef) -> Option<(Pin<'r>, InodeRef)> {
    let (record, root) = (task.region.inode(inode.id), task.region.mount(anchor.mount).root());
    let pin = pin::hold(task, pin::slot::OPEN, inode).ok().or_else(|| hold_open(task, inode))?;
    // Relaxed, both: immutable while pinned.
    let of = record.root.load(Ordering::Relaxed) == task.region.inode(root.id).root.load(Ordering::Relaxed);
    let hidden = record.flags.load(Ordering::Relaxed) & inode_flags::BLOB != 0;
    (inode.id.is_some() && of && !hidden).then_some((pin, inode))
}

/// Pins an inode without links that is open somewhere.
///
/// Nobody frees it after that: the open file was named after the pin was set, so a sweep that did not find it
/// named reads the pins later.
fn hold_open<'r>(task: &Task<'r>, inode: InodeRef) -> Option<Pin<'r>> {
    let pin = pin::hold_known(task, pin::slot::OPEN, inode.id);
    let record = task.region.inode(inode.id);
    let names = |id: FileId| {
        // Relaxed: immutable while named.
        task.region.file(id).inode.load(Ordering::Relaxed) == inode.to_word()
    };
    let is_open = task.region.processes().any(|process| {
        let mut hit = false;
        let _ = FdTable::of(task.region, process).look_through(|id| hit |= names(id));
        hit && !task.region.process_is_dead(process, task.process_id)
    });
    // The new reference is a copy of that one: a scan under way may miss both. PAIRS: the loads around the
    // scan in `sweep`.
    task.region.header().moves.fetch_add(1, Ordering::Release);
    // Acquire: an inode's generation grows before its slot is used again.
    (is_open && record.generation.load(Ordering::Acquire) == inode.generation).then_some(pin)
}

//! POSIX ACLs, acl(5): stored as blobs in the format of their extended attributes, and evaluated without a
//! lock.

use lp_abi::linux::{S_IFDIR, S_IFLNK, S_IFMT, S_ISGID};
use lp_abi::{Errno, Result, UserSlice};
use lp_region::InodeId;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;

use crate::caller::id_map::{self, IdKind};
use crate::caller::task::Task;
use crate::inodes::blob::{self, BlobDraft, BlobKind, View};
use crate::rights::credentials::{self, Identity};

/// The extended attribute of the access ACL.
pub(crate) const ACCESS_NAME: &[u8] = b"system.posix_acl_access";
/// The extended attribute of the default ACL.
pub(crate) const DEFAULT_NAME: &[u8] = b"system.posix_acl_default";

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
/// Offset of the first entry.
const HEADER: u64 = 4;
/// Size of an entry: tag, permissions, id.
const ENTRY: u64 = 8;
/// Id of an entry without one (`ACL_UNDEFINED_ID`).
const NO_ID: u32 = u32::MAX;

/// Entry tags.
mod tag {
    pub(super) const USER_OBJ: u16 = 1;
    pub(super) const USER: u16 = 2;
    pub(super) const GROUP_OBJ: u16 = 4;
    pub(super) const GROUP: u16 = 8;
    pub(super) const MASK: u16 = 16;
    pub(super) const OTHER: u16 = 32;
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct AclEntry {
    tag: u16,
    perm: u16,
    id: u32,
}

impl AclEntry {
    fn from_bytes(bytes: [u8; 8]) -> AclEntry {
        let [t0, t1, p0, p1, id @ ..] = bytes;
        AclEntry {
            tag: u16::from_ne_bytes([t0, t1]),
            perm: u16::from_ne_bytes([p0, p1]),
            id: u32::from_ne_bytes(id),
        }
    }

    /// Whether the kernel's posix_acl_from_xattr accepts it, which comes before all other checks.
    fn is_known(self) -> bool {
        match self.tag {
            tag::USER_OBJ | tag::GROUP_OBJ | tag::MASK | tag::OTHER => true,
            tag::USER | tag::GROUP => self.id != NO_ID,
            _ => false,
        }
    }
}

fn count(view: View) -> u64 {
    view.len().saturating_sub(HEADER) / ENTRY
}

fn entry(view: View, index: u64) -> AclEntry {
    AclEntry::from_bytes(view.bytes(HEADER + index * ENTRY))
}

fn entries(view: View<'_>) -> impl Iterator<Item = AclEntry> {
    (0..count(view)).map(move |index| entry(view, index))
}

fn set_perm(task: &Task, view: View, index: u64, perm: u16) {
    view.patch(task, HEADER + index * ENTRY + 2, &perm.to_ne_bytes());
}

/// The bits of `want` that the access ACL grants to someone who is not the owner, as in
/// `posix_acl_permission`. `None` if there is no ACL.
pub(crate) fn grants(task: &Task, inode: &Inode, want: u32, who: Identity) -> Option<u32> {
    blob::peek(task.region, inode, BlobKind::Acl, |view| evaluate(task, inode, view, want as u16, who))
}

fn evaluate(task: &Task, inode: &Inode, view: View, want: u16, who: Identity) -> u32 {
    let mask = || entries(view).find(|entry| entry.tag == tag::MASK).map_or(7, |entry| entry.perm);
    let mut in_group = false;
    for entry in entries(view) {
        match entry.tag {
            tag::USER if entry.id == who.uid => return u32::from(entry.perm & mask()),
            tag::GROUP_OBJ | tag::GROUP => {
                // Relaxed: one word, used as seen.
                let gid = if entry.tag == tag::GROUP { entry.id } else { inode.gid.load(Relaxed) };
                if credentials::in_group(task, who, gid) {
                    in_group = true;
                    if entry.perm & want == want {
                        return u32::from(entry.perm & mask());
                    }
                }
            }
            // A group that does not grant it hides what others may do.
            tag::OTHER => return if in_group { 0 } else { u32::from(entry.perm) },
            _ => {}
        }
    }
    0
}

/// Whether a draft is a valid ACL, as in `posix_acl_valid`: its entries are in order, with a mask where one
/// is needed.
fn is_valid(view: View) -> bool {
    let mut state = tag::USER_OBJ;
    let mut needs_mask = false;
    for entry in entries(view) {
        if entry.perm & !7 != 0 {
            return false;
        }
        state = match (entry.tag, state) {
            (tag::USER_OBJ, tag::USER_OBJ) => tag::USER,
            (tag::USER, tag::USER) | (tag::GROUP, tag::GROUP) if entry.id != NO_ID => {
                needs_mask = true;
                state
            }
            (tag::GROUP_OBJ, tag::USER) => tag::GROUP,
            (tag::MASK, tag::GROUP) => tag::OTHER,
            (tag::OTHER, tag::OTHER) => 0,
            (tag::OTHER, tag::GROUP) if !needs_mask => 0,
            _ => return false,
        };
    }
    state == 0
}

/// The permission bits equivalent to an ACL, and whether it says no more than they do, as in
/// `posix_acl_equiv_mode`.
fn mode_of(view: View) -> (u32, bool) {
    let (mut mode, mut minimal) = (0, true);
    let mut mask = None;
    for entry in entries(view) {
        let perm = u32::from(entry.perm);
        match entry.tag {
            tag::USER_OBJ => mode |= perm << 6,
            tag::GROUP_OBJ => mode |= perm << 3,
            tag::OTHER => mode |= perm,
            tag::MASK => {
                mask = Some(perm);
                minimal = false;
            }
            _ => minimal = false,
        }
    }
    match mask {
        Some(mask) => (mode & !0o70 | mask << 3, minimal),
        None => (mode, minimal),
    }
}

/// Replaces the ids of users and groups. The blob must be a draft.
///
/// # Errors
/// `EINVAL` if there is none for one of them.
fn translate(task: &Task, view: View, new: impl Fn(IdKind, u32) -> Option<u32>) -> Result<()> {
    for index in 0..count(view) {
        let AclEntry { tag, id, .. } = entry(view, index);
        let kind = match tag {
            tag::USER => IdKind::User,
            tag::GROUP => IdKind::Group,
            _ => continue,
        };
        let id = new(kind, id).ok_or(Errno::EINVAL)?;
        view.patch(task, HEADER + index * ENTRY + 4, &id.to_ne_bytes());
    }
    Ok(())
}

/// Reads an ACL as an extended attribute.
///
/// # Errors
/// `ENODATA` without one; `ERANGE` if it does not fit; `EOPNOTSUPP` for a symbolic link; `EFAULT`.
pub(crate) fn get(task: &Task, inode: &Inode, which: BlobKind, to: UserSlice) -> Result<usize> {
    if inode.mode.load(Relaxed) & S_IFMT == S_IFLNK {
        return Err(Errno::EOPNOTSUPP);
    }
    let give = |view: View| {
        let len = view.len() as usize;
        match to.len() {
            0 => Ok(len),
            size if size < len => Err(Errno::ERANGE),
            _ if id_map::is_inside(task.process) => {
                let seen = duplicate(task, view, inode.root.load(Relaxed))?;
                let shown = |kind, id| Some(id_map::from_run(task.process, kind, id).unwrap_or(NO_ID));
                translate(task, seen.view(), shown)?;
                seen.view().give(to.first(len), 0)
            }
            _ => view.give(to.first(len), 0),
        }
    };
    blob::peek(task.region, inode, which, give).unwrap_or(Err(Errno::ENODATA))
}

/// Sets an ACL from its extended attribute. The caller must hold the inode's lock.
///
/// # Errors
/// `EINVAL` for an invalid ACL; `EOPNOTSUPP` for another version and for a symbolic link; `EPERM` if the
/// caller does not own the file; `EACCES` for a default ACL on anything but a directory; `ENOSPC`, `EFAULT`.
pub(crate) fn set(task: &Task, id: InodeId, inode: &Inode, which: BlobKind, value: UserSlice) -> Result<()> {
    let draft = BlobDraft::new(task, inode.root.load(Relaxed))?;
    draft.append_given(value)?;
    let size = value.len();
    let view = draft.view();
    if size > 0 {
        if (size as u64) < HEADER {
            return Err(Errno::EINVAL);
        }
        if u32::from_ne_bytes(view.bytes(0)) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if !(size as u64 - HEADER).is_multiple_of(ENTRY) {
            return Err(Errno::EINVAL);
        }
    }
    if !entries(view).all(AclEntry::is_known) {
        return Err(Errno::EINVAL);
    }
    if id_map::is_inside(task.process) {
        translate(task, view, |kind, id| id_map::to_run(task.process, kind, id))?;
    }
    // An ACL without entries removes the existing one.
    if count(view) == 0 {
        return remove(task, id, inode, which);
    }
    may_set(task, inode, which, true)?;
    let mut mode = inode.mode.load(Relaxed); // Relaxed: under the lock.
    if !is_valid(view) {
        return Err(Errno::EINVAL);
    }
    for index in 0..count(view) {
        if !matches!(entry(view, index).tag, tag::USER | tag::GROUP) {
            view.patch(task, HEADER + index * ENTRY + 4, &NO_ID.to_ne_bytes());
        }
    }
    let mut kept = Some(draft);
    if which == BlobKind::Acl {
        let (bits, minimal) = mode_of(view);
        mode = updated(task, inode, bits);
        if minimal {
            kept = None;
        }
    }
    blob::swap(task, id, which, kept, (mode, task.now()));
    Ok(())
}

/// Removes an ACL. The caller must hold the inode's lock.
///
/// # Errors
/// Those of [`set`].
pub(crate) fn remove(task: &Task, id: InodeId, inode: &Inode, which: BlobKind) -> Result<()> {
    may_set(task, inode, which, false)?;
    let mode = inode.mode.load(Relaxed); // Relaxed: under the lock.
    if may_have(mode, which) {
        let mode = if which == BlobKind::Acl { updated(task, inode, mode & 0o777) } else { mode };
        blob::swap(task, id, which, None, (mode, task.now()));
    }
    Ok(())
}

/// Whether a file of this mode may have the ACL.
fn may_have(mode: u32, which: BlobKind) -> bool {
    which != BlobKind::DefaultAcl || mode & S_IFMT == S_IFDIR
}

/// Checks whether the caller may change the ACL; `any` says that there will be one. As in `set_posix_acl`,
/// anybody may remove the default ACL that a file cannot have.
fn may_set(task: &Task, inode: &Inode, which: BlobKind, any: bool) -> Result<()> {
    let mode = inode.mode.load(Relaxed); // Relaxed: under the lock.
    if inode.flags.load(Relaxed) & (inode_flags::IMMUTABLE | inode_flags::APPEND) != 0 {
        return Err(Errno::EPERM);
    }
    if mode & S_IFMT == S_IFLNK {
        return Err(Errno::EOPNOTSUPP);
    }
    if !may_have(mode, which) {
        return if any { Err(Errno::EACCES) } else { Ok(()) };
    }
    if credentials::owns(task, inode) { Ok(()) } else { Err(Errno::EPERM) }
}

/// The mode after setting or removing an access ACL, as in `posix_acl_update_mode`.
fn updated(task: &Task, inode: &Inode, bits: u32) -> u32 {
    let old = inode.mode.load(Relaxed); // Relaxed: under the lock.
    let mut mode = old & !0o777 | bits;
    if !credentials::may_keep_setgid(task, inode) {
        mode &= !S_ISGID;
    }
    mode
}

fn duplicate<'t, 'r>(task: &'t Task<'r>, of: View, root: u32) -> Result<BlobDraft<'t, 'r>> {
    let draft = BlobDraft::new(task, root)?;
    let mut at = 0;
    while at < of.len() {
        let bytes: [u8; 8] = of.bytes(at);
        draft.append(&bytes[..(of.len() - at).min(8) as usize])?;
        at += 8;
    }
    Ok(draft)
}

/// Sets the mode and adapts the access ACL, as in `posix_acl_chmod`. Returns whether there is an ACL; without
/// one it does nothing. The caller must hold the inode's lock.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn chmod(task: &Task, id: InodeId, inode: &Inode, mode: u32) -> Result<bool> {
    let Some(old) = blob::of(task, inode, BlobKind::Acl) else { return Ok(false) };
    let draft = duplicate(task, old, inode.root.load(Relaxed))?;
    let view = draft.view();
    let has_mask = entries(view).any(|entry| entry.tag == tag::MASK);
    for index in 0..count(view) {
        match entry(view, index).tag {
            tag::USER_OBJ => set_perm(task, view, index, (mode >> 6 & 7) as u16),
            tag::GROUP_OBJ if !has_mask => set_perm(task, view, index, (mode >> 3 & 7) as u16),
            tag::MASK => set_perm(task, view, index, (mode >> 3 & 7) as u16),
            tag::OTHER => set_perm(task, view, index, (mode & 7) as u16),
            _ => {}
        }
    }
    blob::swap(task, id, BlobKind::Acl, Some(draft), (mode, task.now()));
    Ok(true)
}

/// Gives a new inode the ACLs and permissions that its directory's default ACL requires, as in
/// `posix_acl_create`. Nobody can reach the inode yet.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn inherit(task: &Task, parent: &Inode, inode: &Inode) -> Result<()> {
    let root = inode.root.load(Relaxed); // Relaxed: nobody else has the inode.
    let Some(default) = blob::of(task, parent, BlobKind::DefaultAcl) else { return Ok(()) };
    let mode = inode.mode.load(Relaxed);
    let draft = duplicate(task, default, root)?;
    let view = draft.view();
    let has_mask = entries(view).any(|entry| entry.tag == tag::MASK);
    for index in 0..count(view) {
        let AclEntry { tag, perm, .. } = entry(view, index);
        // The kernel's posix_acl_create_masq: what the creator did not ask for is not granted.
        let asked = match tag {
            tag::USER_OBJ => mode >> 6,
            tag::GROUP_OBJ if !has_mask => mode >> 3,
            tag::MASK => mode >> 3,
            tag::OTHER => mode,
            _ => 7,
        };
        set_perm(task, view, index, perm & asked as u16 & 7);
    }
    let (bits, minimal) = mode_of(view);
    inode.mode.store(mode & !0o777 | bits, Relaxed);
    if !minimal {
        draft.attach(&inode.acl);
    } else {
        drop(draft);
    }
    if mode & S_IFMT == S_IFDIR {
        duplicate(task, default, root)?.attach(&inode.default_acl);
    }
    Ok(())
}

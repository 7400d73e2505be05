//! Permission checks, like `inode_permission`: mode first, then owner, ACL, groups, capabilities.

use lp_abi::linux::{S_IFDIR, S_IFMT, S_IRWXG, S_ISVTX};
use lp_abi::{Errno, Result};
use lp_region::process::caps;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering;

use crate::caller::below;
use crate::caller::task::Task;
use crate::rights::acl;
use crate::rights::credentials::{self, Identity};

/// `MAY_EXEC`: run a file, search a directory.
pub const EXEC: u32 = 1;
/// `MAY_WRITE`.
pub const WRITE: u32 = 2;
/// `MAY_READ`.
pub const READ: u32 = 4;

/// Checks that the caller may do `want` ([`READ`] | [`WRITE`] | [`EXEC`]) with the inode.
///
/// Takes the ACL of a file from the layer below first, if it is needed: the caller must hold no lock but that
/// of a directory, if it checks that directory, and not be writing.
///
/// # Errors
/// `EACCES`; `EPERM` for writing to an immutable file. `crate::lane::writer` handles read-only file systems.
/// Those of [`below::complete`] for the ACL.
#[inline(always)]
pub fn check(task: &Task<'_>, inode: &Inode, want: u32) -> Result<()> {
    if plainly_may(task, inode, want) { Ok(()) } else { check_slow(task, inode, want) }
}

/// Whether mode and owner alone tell that the caller may do `want`.
#[inline(always)]
fn plainly_may(task: &Task<'_>, inode: &Inode, want: u32) -> bool {
    // Relaxed, here and below: each field is one word and used as seen, as in Linux. The ACL handle needs no
    // lock: 0 means that there is none.
    let mode = inode.mode.load(Ordering::Relaxed);
    let everyone = (want * 0o111) & !mode == 0 && inode.acl.load(Ordering::Relaxed) == 0;
    let owner = || {
        want & !(mode >> 6) == 0
            && inode.uid.load(Ordering::Relaxed) == task.credentials.get().fsuid.load(Ordering::Relaxed)
    };
    let fixed = || inode.flags.load(Ordering::Relaxed) & inode_flags::IMMUTABLE != 0;
    (everyone || owner()) && (want & WRITE == 0 || !fixed())
}

/// [`check`] by a caller that has called [`below::try_attributes`] and may hold locks.
///
/// # Errors
/// Those of [`check`]; `EIO` if the ACL could not be taken.
pub(crate) fn check_known(task: &Task<'_>, inode: &Inode, want: u32) -> Result<()> {
    if plainly_may(task, inode, want) {
        return Ok(());
    }
    let who = Identity::of(task.credentials.get());
    if needs_acl(task, inode, want, who) { Err(Errno::EIO) } else { decide(task, inode, want, who) }
}

#[inline(never)]
fn check_slow(task: &Task<'_>, inode: &Inode, want: u32) -> Result<()> {
    check_as(task, inode, want, Identity::of(task.credentials.get()))
}

/// [`check`] for another identity: access(2) checks the real user.
///
/// # Errors
/// Those of [`check`].
pub(crate) fn check_as(task: &Task<'_>, inode: &Inode, want: u32, who: Identity) -> Result<()> {
    if needs_acl(task, inode, want, who) {
        below::acl(task, inode)?;
    }
    decide(task, inode, want, who)
}

/// Whether it takes an ACL to decide that is still to be taken from the layer below.
fn needs_acl(task: &Task<'_>, inode: &Inode, want: u32, who: Identity) -> bool {
    // Relaxed: as in `plainly_may`.
    let mode = inode.mode.load(Ordering::Relaxed);
    below::lacks_acl(inode)
        && inode.uid.load(Ordering::Relaxed) != who.uid
        && mode & S_IRWXG != 0
        && !(overrides(mode, want, who.caps) && credentials::reach(task, inode, who.caps))
}

/// [`check_as`] for an inode whose ACL is there.
fn decide(task: &Task<'_>, inode: &Inode, want: u32, who: Identity) -> Result<()> {
    if want & WRITE != 0 && inode.flags.load(Ordering::Relaxed) & inode_flags::IMMUTABLE != 0 {
        return Err(Errno::EPERM);
    }
    let mode = inode.mode.load(Ordering::Relaxed);
    if want & !granted(task, inode, want, mode, who) & 7 == 0
        || overrides(mode, want, who.caps) && credentials::reach(task, inode, who.caps)
    {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}

/// The `rwx` bits that mode and ACL grant.
fn granted(task: &Task<'_>, inode: &Inode, want: u32, mode: u32, who: Identity) -> u32 {
    if inode.uid.load(Ordering::Relaxed) == who.uid {
        return mode >> 6;
    }
    // The kernel's acl_permission_check: if the group class, which is the mask, has no bit, the ACL grants
    // nothing.
    if inode.acl.load(Ordering::Relaxed) != 0
        && mode & S_IRWXG != 0
        && let Some(bits) = acl::grants(task, inode, want, who)
    {
        return bits;
    }
    if credentials::in_group(task, who, inode.gid.load(Ordering::Relaxed)) { mode >> 3 } else { mode }
}

/// Whether capabilities grant what the mode does not: capabilities(7).
fn overrides(mode: u32, want: u32, held: u32) -> bool {
    if mode & S_IFMT == S_IFDIR {
        return held & caps::DAC_OVERRIDE != 0 || want & WRITE == 0 && held & caps::DAC_READ_SEARCH != 0;
    }
    let executable = want & EXEC == 0 || mode & 0o111 != 0;
    held & caps::DAC_OVERRIDE != 0 && executable || want == READ && held & caps::DAC_READ_SEARCH != 0
}

/// Checks that the caller may create an entry in directory `dir`, like `may_create`.
///
/// # Errors
/// `ENOENT` for a removed directory; `EACCES`, `EPERM`.
#[inline]
pub(crate) fn may_create(task: &Task<'_>, dir: &Inode) -> Result<()> {
    if dir.is_dead() {
        return Err(Errno::ENOENT);
    }
    check(task, dir, WRITE | EXEC)
}

/// The kind of target that a removal expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// A directory: rmdir, or a rename of a directory over it.
    Directory,
    /// Anything else.
    File,
}

/// Checks that the caller may remove the entry of `inode` from directory `dir`, like `may_delete`.
///
/// # Errors
/// `EACCES`, `EPERM`; `ENOTDIR` and `EISDIR` if it is not of the expected kind; `ENOENT` for a removed
/// directory; [`below::MISSING`] if the page map is to be taken first.
#[inline(always)]
pub(crate) fn may_delete(task: &Task<'_>, dir: &Inode, inode: &Inode, expected: Victim) -> Result<()> {
    check(task, dir, WRITE | EXEC)?;
    if dir.flags.load(Ordering::Relaxed) & inode_flags::APPEND != 0 {
        return Err(Errno::EPERM);
    }
    let marks = inode_flags::IMMUTABLE | inode_flags::APPEND | inode_flags::PENDING;
    if is_sticky(task, dir, inode) || inode.flags.load(Ordering::Relaxed) & marks != 0 {
        may_delete_slow(task, dir, inode)?;
    }
    let is_dir = inode.mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR;
    match expected {
        Victim::Directory if !is_dir => return Err(Errno::ENOTDIR),
        Victim::File if is_dir => return Err(Errno::EISDIR),
        _ => {}
    }
    if dir.is_dead() {
        return Err(Errno::ENOENT);
    }
    Ok(())
}

/// Whether the caller may add and remove entries of directory `dir`, and no watcher, flag or sticky bit of it
/// is to be looked at for that. If not, [`may_create`] and [`may_delete`] decide.
#[inline(always)]
pub(crate) fn may_change_plainly(task: &Task<'_>, dir: &Inode) -> bool {
    use inode_flags::{APPEND, DEAD, IMMUTABLE, WATCHED};
    // Relaxed throughout: as in `check`.
    let (mode, want) = (dir.mode.load(Ordering::Relaxed), WRITE | EXEC);
    let everyone =
        || (want * 0o111) & !mode == 0 && mode & S_ISVTX == 0 && dir.acl.load(Ordering::Relaxed) == 0;
    // A directory's owner may remove what the sticky bit keeps.
    let owner = want & !(mode >> 6) == 0
        && dir.uid.load(Ordering::Relaxed) == task.credentials.get().fsuid.load(Ordering::Relaxed);
    (owner || everyone()) && dir.flags.load(Ordering::Relaxed) & (IMMUTABLE | APPEND | DEAD | WATCHED) == 0
}

/// Whether an entry of a file may be removed from a directory that [may be changed
/// plainly](may_change_plainly), and nothing else is to be looked at for that: no flag, no watcher, and no
/// layer below. If not, [`may_delete`] decides.
#[inline(always)]
pub(crate) fn may_go_plainly(file: &Inode) -> bool {
    use inode_flags::{APPEND, IMMUTABLE, PENDING, SHADOW};
    // Relaxed: as in `check`.
    file.flags.load(Ordering::Relaxed) & (IMMUTABLE | APPEND | PENDING | SHADOW) == 0
}

/// Whether a name may be removed of a file that may not change, of one that a sticky directory keeps, or of
/// one still to be taken from below.
///
/// # Errors
/// `EPERM`; [`below::MISSING`] if the page map is to be taken first.
#[cold]
#[inline(never)]
fn may_delete_slow(task: &Task<'_>, dir: &Inode, inode: &Inode) -> Result<()> {
    if is_sticky(task, dir, inode) && !credentials::capable_over(task, inode, caps::FOWNER) {
        return Err(Errno::EPERM);
    }
    let fixed = inode_flags::IMMUTABLE | inode_flags::APPEND;
    match inode.flags.load(Ordering::Relaxed) & fixed {
        0 if below::lacks_map(inode) => Err(below::MISSING),
        0 => Ok(()),
        _ => Err(Errno::EPERM),
    }
}

/// Whether the restricted deletion flag (`S_ISVTX` in inode(7)) forbids the caller to remove `inode`, unless
/// it has a capability.
#[inline(always)]
fn is_sticky(task: &Task<'_>, dir: &Inode, inode: &Inode) -> bool {
    let user = task.credentials.get().fsuid.load(Ordering::Relaxed);
    dir.mode.load(Ordering::Relaxed) & S_ISVTX != 0
        && inode.uid.load(Ordering::Relaxed) != user
        && dir.uid.load(Ordering::Relaxed) != user
}

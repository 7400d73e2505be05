//! mount(2) with `MS_REMOUNT`: makes a mount, or a file system in all its mounts, read-only or writable
//! again.
//!
//! [`crate::lane::writer`] has the writers' side.

use lp_abi::{Errno, Result};
use lp_region::mount::mount_flags;
use lp_region::mount_change::Set;
use lp_region::records::file_mode;
use lp_region::sync::Ordering;
use lp_region::{InodeRef, MountId, Spot, marks};

use crate::caller::task::Task;
use crate::descriptors::opened;
use crate::lane::writer;
use crate::life::home;
use crate::names::mounts;

/// Attempts of a remount that writers cancel.
const ATTEMPTS: u32 = 5;

/// The target of a remount.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RemountTarget {
    /// Some mounts.
    Mounts(Set),
    /// A file system, in all its mounts.
    Superblock(u32),
}

impl RemountTarget {
    /// One mount.
    pub fn mount(id: MountId) -> RemountTarget {
        let mut set = Set::default();
        set.add(id);
        RemountTarget::Mounts(set)
    }

    /// The bit of a mount that says so.
    pub fn bit(self) -> u32 {
        match self {
            RemountTarget::Mounts(_) => mount_flags::READ_ONLY,
            RemountTarget::Superblock(_) => mount_flags::SB_READ_ONLY,
        }
    }

    fn holds(self, task: &Task, mount: MountId) -> bool {
        match self {
            RemountTarget::Mounts(set) => set.has(mount),
            RemountTarget::Superblock(root) => {
                let record = task.region.mount(mount);
                // Relaxed: immutable while in use.
                record.state().is_mount() && record.superblock.load(Ordering::Relaxed) == root
            }
        }
    }

    fn mounts(self, task: &Task) -> impl Iterator<Item = MountId> {
        mounts::all(task).filter(move |mount| self.holds(task, *mount))
    }
}

/// Makes something writable again.
pub fn open(task: &Task, what: RemountTarget) {
    what.mounts(task).for_each(|mount| clear(task, mount, what.bit() | mount_flags::SHUTTING));
}

fn clear(task: &Task, mount: MountId, bits: u32) {
    // Release: a writer that enters sees what the remount did before.
    task.region.mount(mount).flags.fetch_and(!bits, Ordering::Release);
}

/// Makes something read-only: `becomes` says what becomes of the flags of each mount, if they may change.
/// Once it returns no change through it is under way and none begins.
///
/// # Errors
/// `EBUSY` if a file is open for writing, if a writer does not finish, or in a process without barriers;
/// `EPERM` if the flags of a mount may not change.
pub fn shut(task: &Task, what: RemountTarget, becomes: impl Fn(MountId, u32) -> Option<u32>) -> Result<()> {
    // Those that this call has made read-only.
    let mut made = Set::default();
    let mut failure = Errno::EBUSY;
    for _ in 0..ATTEMPTS {
        let is_shut = what
            .mounts(task)
            .all(|mount| marks::shut(&task.region.mount(mount).flags, mount_flags::SHUTTING));
        let is_free = is_shut
            && writer::wait_for_all(task, |mount| what.holds(task, mount))
            && !has_writable_file(task, what);
        if !is_free {
            break;
        }
        let commit = |mount: MountId| {
            let mut is_open = false;
            let read_only = |was: u32| {
                is_open = was & what.bit() == 0;
                let is = becomes(mount, was);
                if is.is_none() {
                    failure = Errno::EPERM;
                }
                is
            };
            let flags = &task.region.mount(mount).flags;
            let done = marks::commit(flags, mount_flags::SHUTTING, what.bit(), read_only);
            if done && is_open {
                made.add(mount);
            }
            done
        };
        if what.mounts(task).all(commit) {
            return Ok(());
        }
        if failure == Errno::EPERM {
            break;
        }
    }
    for mount in what.mounts(task) {
        // What others have made read-only stays so.
        clear(task, mount, mount_flags::SHUTTING | if made.has(mount) { what.bit() } else { 0 });
    }
    Err(failure)
}

/// Whether a file is open for writing, or mapped through such an open file. Nor can a file system become
/// read-only while what has no name in it is in use (the kernel's sb_prepare_remount_readonly).
fn has_writable_file(task: &Task, what: RemountTarget) -> bool {
    let is_whole = matches!(what, RemountTarget::Superblock(_));
    // Relaxed: what is in use does not get more names.
    let nameless = |inode: InodeRef| task.region.inode(inode.id).nlink.load(Ordering::Relaxed) == 0;
    let is_in = opened::by_the_living(task, |open| {
        what.holds(task, open.mount)
            && (open.mode & (file_mode::WRITE | file_mode::PATH) == file_mode::WRITE
                || is_whole && nameless(open.inode))
    });
    is_in || is_whole && is_in_removed_directory(task, what, nameless)
}

/// Whether a living process has a working or root directory that was removed.
fn is_in_removed_directory(task: &Task, what: RemountTarget, nameless: impl Fn(InodeRef) -> bool) -> bool {
    task.region.processes().any(|id| {
        let process = task.region.process(id);
        let mut directories =
            [&process.cwd, &process.root].map(|word| word.load(Ordering::Acquire)).into_iter();
        let is_in = |word: u64| {
            let spot = Spot::from_word(word);
            word != 0 && what.holds(task, spot.mount) && nameless(spot.inode)
        };
        directories.any(is_in) && home::counts(task, id)
    })
}

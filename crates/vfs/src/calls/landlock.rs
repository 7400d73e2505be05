//! landlock(7): landlock_restrict_self(2), and what other calls check of a thread that has restricted itself.
//!
//! A right to a file is granted by rules on it and on the directories above it, up to the host's root
//! directory; each layer of the domain (`rights::domain`) must grant it. The way up takes no lock: it
//! is walked again if a directory has moved meanwhile.
//!
//! The checks stand where Linux has its hooks (security/landlock/fs.c), so an errno precedes another one as
//! there. A thread without a domain costs the calls that check one load; the most frequent calls are made by
//! others in a restricted process ([`crate::unlink::unlinkat_checked`] and its like).

use lp_abi::linux::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::records::{Inode, file_mode};
use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{DirentId, InodeId, InodeRef, MountId, Spot};

use crate::caller::task::Task;
use crate::content::fill;
use crate::inodes::inode;
use crate::inodes::make::NewInode;
use crate::lane::{kept, pin};
use crate::life::{mapped, reclaim};
use crate::names::mounts;
use crate::names::upward::{Climb, consistently, current};
use crate::names::walk::Found;
use crate::rights::domain::{self, Denied, Domain, Level};
pub use crate::rights::domain::{Entry, is_held, right};

/// A domain that no thread has yet. Dropped, it goes.
#[must_use = "the domain goes once this is dropped"]
pub struct Draft<'t, 'r> {
    task: &'t Task<'r>,
    inode: InodeRef,
}

impl Drop for Draft<'_, '_> {
    fn drop(&mut self) {
        pin::clear(self.task, pin::slot::FIRST);
        reclaim::let_go_slow(self.task, self.inode);
    }
}

/// The calling thread's domain with one more layer, whose entries `each` tells.
///
/// # Errors
/// `ENOMEM`.
pub fn extend<'t, 'r>(
    task: &'t Task<'r>,
    each: impl FnOnce(&mut dyn FnMut(Entry) -> Result<()>) -> Result<()>,
) -> Result<Draft<'t, 'r>> {
    make(task, each).map_err(|_| Errno::ENOMEM)
}

fn make<'t, 'r>(
    task: &'t Task<'r>,
    each: impl FnOnce(&mut dyn FnMut(Entry) -> Result<()>) -> Result<()>,
) -> Result<Draft<'t, 'r>> {
    let region = task.region;
    let root = region.inode(mounts::base(task, 0).inode.id).root.load(Relaxed); // Relaxed: immutable.
    let new = NewInode::new(task, root, S_IFREG, 0, (0, 0))?;
    let (made, id) = (new.inode(), new.inode().id);
    if let Some(domain) = domain::of(task) {
        domain.pieces(|piece| fill::append_private(task, id, piece))?;
    }
    each(&mut |entry| fill::append_private(task, id, &entry.to_bytes()))?;
    inode::set_links(region.inode(id), 0);
    pin::known_inode(task, pin::slot::FIRST, id);
    kept::orphan(task, id);
    region.settle::<Inode>(task.lane);
    new.linked_in();
    Ok(Draft { task, inode: made })
}

impl Draft<'_, '_> {
    /// Makes it the calling thread's domain.
    ///
    /// # Errors
    /// `ENOMEM` for a thread with credentials of its own.
    pub fn commit(self) -> Result<()> {
        let (task, credentials) = (self.task, self.task.credentials.get());
        let spot = Spot { inode: self.inode, mount: MountId::NONE };
        if !core::ptr::eq(credentials, task.process) {
            // A record of a mapping keeps it for as long as the process has this image.
            let _locked = inode::lock(task, self.inode.id);
            mapped::add(task, spot, file_mode::READ, PAGE_SIZE as u64)?;
        }
        let former = credentials.domain.load(Relaxed); // Relaxed: the thread's own word.
        // Release: a scan for users of an inode sees it here before the pin is cleared.
        credentials.domain.store(spot.to_word(), Release);
        pin::clear(task, pin::slot::FIRST);
        core::mem::forget(self);
        if former != 0 {
            reclaim::let_go_slow(task, Spot::from_word(former).inode);
        }
        Ok(())
    }
}

/// The rights that are needed to make a file of this type: the kernel's get_mode_access.
fn to_make(mode: u32) -> u32 {
    match mode & S_IFMT {
        S_IFLNK => right::MAKE_SYM,
        S_IFDIR => right::MAKE_DIR,
        S_IFCHR => right::MAKE_CHAR,
        S_IFBLK => right::MAKE_BLOCK,
        S_IFIFO => right::MAKE_FIFO,
        S_IFSOCK => right::MAKE_SOCK,
        _ => right::MAKE_REG,
    }
}

fn to_remove(is_dir: bool) -> u32 {
    if is_dir { right::REMOVE_DIR } else { right::REMOVE_FILE }
}

/// Checks that a file of this type may be made in a directory.
///
/// # Errors
/// `EACCES`.
pub(crate) fn may_make(task: &Task<'_>, dir: InodeRef, mount: MountId, mode: u32) -> Result<()> {
    may_in(task, dir, mount, || to_make(mode))
}

/// Checks that a name of a directory, or of anything else, may be removed.
///
/// # Errors
/// `EACCES`.
pub(crate) fn may_remove(task: &Task<'_>, dir: InodeRef, mount: MountId, is_dir: bool) -> Result<()> {
    may_in(task, dir, mount, || to_remove(is_dir))
}

fn may_in(task: &Task<'_>, dir: InodeRef, mount: MountId, rights: impl FnOnce() -> u32) -> Result<()> {
    let Some(domain) = domain::of(task) else { return Ok(()) };
    let start = Found { inode: dir, dirent: DirentId::NONE, parent: dir.id, mount };
    if denied(task, domain, &start, rights()) == 0 { Ok(()) } else { Err(Errno::EACCES) }
}

/// Checks that a file may be opened with these rights. Returns those of `also` that it is opened without.
///
/// # Errors
/// `EACCES`.
pub(crate) fn may_open(task: &Task<'_>, found: &Found, rights: u32, also: u32) -> Result<u32> {
    let Some(domain) = domain::of(task) else { return Ok(0) };
    let denied = denied(task, domain, found, rights | also);
    if denied & rights == 0 { Ok(denied & also) } else { Err(Errno::EACCES) }
}

/// Checks that a file may be executed.
///
/// # Errors
/// `EACCES`.
pub fn may_execute(task: &Task<'_>, found: &Found) -> Result<()> {
    may_open(task, found, right::EXECUTE | right::READ_FILE, 0).map(drop)
}

/// Checks that a file may be truncated.
///
/// # Errors
/// `EACCES`.
pub(crate) fn may_truncate(task: &Task<'_>, found: &Found) -> Result<()> {
    may_open(task, found, right::TRUNCATE, 0).map(drop)
}

/// Checks that the thread may change mounts.
///
/// # Errors
/// `EPERM`.
pub(crate) fn may_mount(task: &Task<'_>) -> Result<()> {
    if is_held(task) { Err(Errno::EPERM) } else { Ok(()) }
}

/// What a link or a rename refers to: the kernel's current_check_refer_path.
pub(crate) struct Refer {
    /// The file, and the directory that has it.
    pub old: (InodeRef, InodeId),
    /// The directory that gets it.
    pub new_dir: InodeRef,
    /// What the new name stands for so far.
    pub new: Option<InodeRef>,
    /// The mount of both.
    pub mount: MountId,
    /// Whether the names that are there go: a rename.
    pub removes: bool,
    /// Whether the two are exchanged.
    pub exchanges: bool,
}

/// Checks that a file may get a name in a directory.
///
/// # Errors
/// `EACCES`; `EXDEV` if only [`right::REFER`] is missing, or if it would gain rights.
pub(crate) fn may_refer(task: &Task<'_>, refer: &Refer) -> Result<()> {
    let Some(domain) = domain::of(task) else { return Ok(()) };
    let mode = |of: InodeRef| task.region.inode(of.id).mode.load(Relaxed); // Relaxed: the type is constant.
    let removed = |of: InodeRef| to_remove(mode(of) & S_IFMT == S_IFDIR);
    let (old, old_dir) = refer.old;
    let exchanged = refer.new.filter(|_| refer.exchanges);
    let mut needs = [exchanged.map_or(0, |new| to_make(mode(new))), to_make(mode(old))];
    if refer.removes {
        needs[0] |= removed(old);
        needs[1] |= refer.new.map_or(0, removed);
    }
    if old_dir == refer.new_dir.id {
        return may_in(task, refer.new_dir, refer.mount, || needs[0] | needs[1]);
    }
    needs.iter_mut().for_each(|rights| *rights |= right::REFER);
    let files = [Some(old), exchanged];
    consistently(task, || {
        let dirs = [current(task, old_dir), refer.new_dir];
        may_move(task, domain, (dirs, refer.mount), files, needs)
    })
}

/// [`may_refer`] between two directories: what the sides need, and the files that they lose.
fn may_move(
    task: &Task<'_>,
    domain: Domain<'_>,
    (dirs, mount): ([InodeRef; 2], MountId),
    files: [Option<InodeRef>; 2],
    needs: [u32; 2],
) -> Result<()> {
    let top = task.region.mount(mount).root();
    // Each side up to the root of the mount, then both together.
    let mut sides = dirs.map(|dir| {
        let mut denied = Denied::all(domain, u32::MAX);
        let start = Found { inode: dir, dirent: DirentId::NONE, parent: dir.id, mount };
        for level in Climb::from(task, &start) {
            denied.pass(domain, level);
            if level == Level::Inode(top) {
                break;
            }
        }
        denied
    });
    let files = files.map(|file| {
        file.map(|file| {
            let mut denied = Denied::all(domain, u32::MAX);
            denied.pass(domain, Level::Inode(file));
            let is_dir = task.region.inode(file.id).is_dir();
            (denied, if is_dir { u32::MAX } else { right::OF_FILE })
        })
    });
    let gains_nothing = |sides: &[Denied; 2]| {
        let stays = |from: usize| {
            let file = files[from].as_ref();
            file.is_none_or(|(file, rights)| sides[from].stays_within(file, &sides[1 - from], *rights))
        };
        stays(0) && stays(1)
    };
    let start = Found { inode: top, dirent: DirentId::NONE, parent: top.id, mount };
    let (mut levels, mut is_narrow) = (Climb::from(task, &start), false);
    loop {
        if !is_narrow && gains_nothing(&sides) {
            is_narrow = true;
            sides.iter_mut().zip(needs).for_each(|(side, rights)| side.narrow(rights));
        }
        if sides.iter().all(|side| side.rights() == 0) {
            return Ok(());
        }
        let Some(level) = levels.next() else { break };
        sides.iter_mut().for_each(|side| side.pass(domain, level));
    }
    if sides.iter().all(|side| side.rights() == 0) {
        return Ok(());
    }
    let lacks = |(side, rights): (&Denied, u32)| side.rights() & rights & !right::REFER != 0;
    if sides.iter().zip(needs).any(lacks) { Err(Errno::EACCES) } else { Err(Errno::EXDEV) }
}

/// Of some rights to a file, those that some layer denies.
fn denied(task: &Task<'_>, domain: Domain<'_>, file: &Found, rights: u32) -> u32 {
    consistently(task, || {
        let mut denied = Denied::all(domain, rights);
        for level in Climb::from(task, file) {
            if denied.rights() == 0 {
                break;
            }
            denied.pass(domain, level);
        }
        denied.rights()
    })
}

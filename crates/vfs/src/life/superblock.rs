//! File systems of a region, like `struct super_block`: those that command lines name, and those that `mount
//! -t tmpfs` creates. Both have a root number, which the header or a [`Superblock`] describes.

use lp_abi::linux::{MS_DIRSYNC, MS_LAZYTIME, MS_MANDLOCK, MS_SYNCHRONOUS, S_IFDIR, S_ISVTX};
use lp_abi::{Errno, Result};
use lp_region::layout::{COMMAND_ROOTS, SUPERBLOCKS};
use lp_region::mount::{Superblock, superblock_flags};
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, LaneId};

use crate::caller::event::Event;
use crate::caller::task::Task;
use crate::content::{allowance, map};
use crate::inodes::{inode, make, watched};
use crate::lane::kept;
use crate::life::fs_options::{FsKind, Options};
use crate::life::mempolicy::{self, Policy};
use crate::life::reclaim;
use crate::names::dir::{self, Leaf, PER_LEAF};
use crate::names::dirent;
use crate::names::removal;
use crate::rights::permission::Victim;

impl Options {
    /// Stores the options that were given.
    fn store(&self, record: &Superblock) {
        // Relaxed throughout: limits of a moment, and what is shown.
        if let Some(pages) = self.pages {
            record.pages.store(pages, Ordering::Relaxed);
        }
        let mut flags = Change::default();
        if let Some(inodes) = self.inodes {
            record.inodes.store(inodes, Ordering::Relaxed);
            flags.put(superblock_flags::UNLIMITED, inodes == 0);
        }
        if let Some(inode64) = self.inode64 {
            flags.put(superblock_flags::INODE64, inode64);
        }
        if self.noswap {
            flags.put(superblock_flags::NOSWAP, true);
        }
        if let Some(huge) = self.huge {
            flags.set(superblock_flags::HUGE_SHIFT, superblock_flags::HUGE_BITS, huge);
        }
        if let Some(policy) = self.policy {
            let (bits, nodes) = policy.to_bits();
            record.nodes.store(nodes, Ordering::Relaxed);
            flags.set(superblock_flags::POLICY_SHIFT, mempolicy::BITS, bits);
        }
        let _ = record
            .flags
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |was| Some(was & !flags.mask | flags.value));
    }
}

/// A change of some bits of [`Superblock::flags`].
#[derive(Default)]
struct Change {
    mask: u32,
    value: u32,
}

impl Change {
    fn put(&mut self, flag: u32, is_set: bool) {
        self.mask |= flag;
        self.value |= if is_set { flag } else { 0 };
    }

    fn set(&mut self, shift: u32, bits: u32, value: u32) {
        self.mask |= bits << shift;
        self.value |= value << shift;
    }
}

/// The options of a file system that /proc shows: those that differ from the defaults. One of a command line
/// has the size of the region.
pub(crate) fn shown_options(task: &Task<'_>, root: u32) -> Options {
    // Relaxed throughout: values of a moment.
    let Some(record) = record(task, root) else {
        let pages = Some(task.region.header().data_pages.load(Ordering::Relaxed));
        return Options { pages, ..Options::default() };
    };
    let flags = record.flags.load(Ordering::Relaxed);
    let has = |flag: u32| flags & flag != 0;
    let kind = kind_of(record);
    let unless = |value: u32, default: u32| (value != default).then_some(value);
    let mode = unless(record.mode.load(Ordering::Relaxed), default_mode(kind));
    if kind == FsKind::Ramfs {
        return Options { kind, mode, ..Options::default() };
    }
    let inodes = record.inodes.load(Ordering::Relaxed);
    let bits = flags >> superblock_flags::POLICY_SHIFT & mempolicy::BITS;
    let policy = Policy::from_bits(bits, record.nodes.load(Ordering::Relaxed));
    Options {
        kind,
        pages: Some(record.pages.load(Ordering::Relaxed)).filter(|pages| *pages != default_pages(task)),
        inodes: (inodes != 0 || has(superblock_flags::UNLIMITED)).then_some(inodes),
        mode,
        uid: unless(record.uid.load(Ordering::Relaxed), 0),
        gid: unless(record.gid.load(Ordering::Relaxed), 0),
        inode64: has(superblock_flags::INODE64).then_some(true),
        huge: unless(flags >> superblock_flags::HUGE_SHIFT & superblock_flags::HUGE_BITS, 0),
        policy: (!policy.is_default()).then_some(policy),
        noswap: has(superblock_flags::NOSWAP),
        ..Options::default()
    }
}

fn kind_of(record: &Superblock) -> FsKind {
    match record.flags.load(Ordering::Relaxed) & superblock_flags::RAMFS {
        0 => FsKind::Tmpfs,
        _ => FsKind::Ramfs,
    }
}

/// What a file system is.
pub(crate) fn kind(task: &Task<'_>, root: u32) -> FsKind {
    record(task, root).map_or(FsKind::Tmpfs, kind_of)
}

/// Permissions of the root of a new file system.
fn default_mode(kind: FsKind) -> u32 {
    match kind {
        FsKind::Tmpfs => S_ISVTX | 0o777,
        FsKind::Ramfs => 0o755,
    }
}

/// The record of a file system created by mount(2); `None` for one of a command line.
pub(crate) fn record<'r>(task: &Task<'r>, root: u32) -> Option<&'r Superblock> {
    (root as usize >= COMMAND_ROOTS).then(|| task.region.superblock(root))
}

/// Whether a file system is read-only.
pub(crate) fn is_read_only(task: &Task<'_>, root: u32) -> bool {
    // Relaxed: a momentary value; writers check their mount.
    match record(task, root) {
        Some(record) => record.flags.load(Ordering::Relaxed) & superblock_flags::READ_ONLY != 0,
        None => task.region.header().read_only.load(Ordering::Relaxed) & 1 << root != 0,
    }
}

/// Says whether new mounts of a file system are read-only.
pub(crate) fn set_read_only(task: &Task<'_>, root: u32, value: bool) {
    let (word, bit) = match record(task, root) {
        Some(record) => (&record.flags, superblock_flags::READ_ONLY),
        None => (&task.region.header().read_only, 1 << root),
    };
    // Relaxed: published by the turn that follows (`mount_tree::change`).
    if value {
        word.fetch_or(bit, Ordering::Relaxed)
    } else {
        word.fetch_and(!bit, Ordering::Relaxed)
    };
}

/// The options of a whole file system that are shown (show_sb_opts), as `MS_*` and as kept.
const SHOWN: [(u32, u32); 4] = [
    (MS_SYNCHRONOUS, superblock_flags::SYNCHRONOUS),
    (MS_DIRSYNC, superblock_flags::DIRSYNC),
    (MS_MANDLOCK, superblock_flags::MANDLOCK),
    (MS_LAZYTIME, superblock_flags::LAZYTIME),
];

/// Keeps those of `flags` that are shown, in place of those in `mask`. Not of one of the command line.
pub(crate) fn set_shown(task: &Task<'_>, root: u32, flags: u32, mask: u32) {
    let Some(record) = record(task, root) else { return };
    let kept = |of: u32| SHOWN.iter().filter(|(bit, _)| of & bit != 0).fold(0, |all, (_, own)| all | own);
    // Relaxed, both: published by the turn that follows, or shown at some time.
    record.flags.fetch_and(!kept(mask), Ordering::Relaxed);
    record.flags.fetch_or(kept(flags & mask), Ordering::Relaxed);
}

/// Those of `MS_*` that are shown of a whole file system.
pub(crate) fn shown(task: &Task<'_>, root: u32) -> u32 {
    // Relaxed: a momentary value.
    let kept = record(task, root).map_or(0, |record| record.flags.load(Ordering::Relaxed));
    SHOWN.iter().filter(|(_, own)| kept & own != 0).fold(0, |all, (bit, _)| all | bit)
}

/// What statfs(2) reports of pages and inodes, total and free, for a file system with its own limits.
pub(crate) fn limited(
    task: &Task<'_>,
    root: u32,
    pages: (u64, u64),
    inodes: (u64, u64),
) -> ((u64, u64), (u64, u64)) {
    let Some(record) = record(task, root) else { return (pages, inodes) };
    // Relaxed: momentary counts.
    let limits = (record.pages.load(Ordering::Relaxed), record.inodes.load(Ordering::Relaxed));
    let is_unlimited = record.flags.load(Ordering::Relaxed) & superblock_flags::UNLIMITED != 0;
    let used = allowance::used(task.region, root);
    let within = |limit: u64, (_, free): (u64, u64), used: u64| (limit, limit.saturating_sub(used).min(free));
    // As there, what has no limit has no size.
    let shown_inodes = match limits.1 {
        0 if !is_unlimited => inodes,
        limit => within(limit, inodes, used.1),
    };
    (within(limits.0, pages, used.0), shown_inodes)
}

/// A file system that is being made: it goes with this, unless it is [kept](New::keep).
pub(crate) struct New<'t, 'r> {
    task: &'t Task<'r>,
    root: u32,
}

impl New<'_, '_> {
    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.root
    }

    /// It has a mount, and stays as long as that.
    pub(crate) fn keep(self) {
        self.task.region.superblock(self.root).maker.store(0, Ordering::Release);
        core::mem::forget(self);
    }
}

impl Drop for New<'_, '_> {
    fn drop(&mut self) {
        destroy(self.task, self.root);
        self.task.region.superblock(self.root).maker.store(0, Ordering::Release);
    }
}

/// Claims what a number stands for, to make it or to destroy it, unless a living lane has.
pub(crate) fn claim(task: &Task<'_>, root: u32) -> bool {
    let maker = &task.region.superblock(root).maker;
    let was = maker.load(Ordering::Acquire);
    let is_left = was == 0 || task.is_dead(LaneId(was));
    let own = task.lane_id.0;
    // PAIRS: the release stores of those who give it back.
    is_left && maker.compare_exchange(was, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Claims a number that stands for nothing.
fn claim_free(task: &Task<'_>, root: u32) -> bool {
    let record = task.region.superblock(root);
    let is_free = || record.root.load(Ordering::Acquire) == 0;
    if !is_free() || !claim(task, root) {
        return false;
    }
    let is_free = is_free();
    if !is_free {
        record.maker.store(0, Ordering::Release);
    }
    is_free
}

/// Pages that a file system may use if nothing was asked for: half of what there is.
pub(crate) fn default_pages(task: &Task<'_>) -> u64 {
    task.region.header().data_pages.load(Ordering::Relaxed) / 2 // Relaxed: immutable.
}

/// Makes an empty file system.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn create<'t, 'r>(task: &'t Task<'r>, options: &Options) -> Result<New<'t, 'r>> {
    let mut numbers = COMMAND_ROOTS as u32..SUPERBLOCKS as u32;
    let root = numbers.find(|root| claim_free(task, *root)).ok_or(Errno::ENOSPC)?;
    let new = New { task, root };
    let record = task.region.superblock(root);
    let (limit, flags) = match options.kind {
        FsKind::Tmpfs => (default_pages(task), 0),
        FsKind::Ramfs => (0, superblock_flags::RAMFS | superblock_flags::UNLIMITED),
    };
    record.flags.store(flags, Ordering::Relaxed);
    record.nodes.store(0, Ordering::Relaxed);
    record.pages.store(limit, Ordering::Relaxed);
    record.inodes.store(0, Ordering::Relaxed);
    options.store(record);
    // Whoever takes the first page or inode counts.
    allowance::recount(record);
    let credentials = task.credentials.get();
    let owner = (
        options.uid.unwrap_or(credentials.fsuid.load(Ordering::Relaxed)),
        options.gid.unwrap_or(credentials.fsgid.load(Ordering::Relaxed)),
    );
    let mode = options.mode.unwrap_or(default_mode(options.kind));
    for (word, value) in [(&record.mode, mode), (&record.uid, owner.0), (&record.gid, owner.1)] {
        word.store(value, Ordering::Relaxed);
    }
    let made = make::create_root(task, root, mode, owner)?;
    task.region.inode(made.id).parent.store(made.id.0, Ordering::Relaxed); // `..` of a root is the root.
    // Release: a reader that sees the root sees the rest.
    record.root.store(made.to_word(), Ordering::Release);
    task.region.settle::<Inode>(task.lane);
    Ok(new)
}

/// Checks new options of a file system (the kernel's shmem_reconfigure).
///
/// # Errors
/// `EINVAL` if it uses more than a new limit, was to have no limit, or was to be swapped.
pub(crate) fn may_reconfigure(task: &Task<'_>, root: u32, options: &Options) -> Result<()> {
    let Some(record) = record(task, root) else { return Ok(()) };
    // Relaxed, all: of a moment.
    let flags = record.flags.load(Ordering::Relaxed);
    if options.noswap && flags & superblock_flags::NOSWAP == 0 {
        return Err(Errno::EINVAL);
    }
    if options.pages.is_none() && options.inodes.is_none() {
        return Ok(());
    }
    let used = allowance::used(task.region, root);
    let has_pages = record.pages.load(Ordering::Relaxed) != 0;
    let has_inodes = flags & superblock_flags::UNLIMITED == 0;
    let limits = [(has_pages, options.pages, used.0), (has_inodes, options.inodes, used.1)];
    let is_bad =
        limits.into_iter().any(|(has_one, to, used)| to.is_some_and(|to| to != 0 && (!has_one || used > to)));
    if is_bad { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Changes options. The root directory's attributes stay.
pub(crate) fn reconfigure(task: &Task<'_>, root: u32, options: &Options) {
    if let Some(record) = record(task, root) {
        options.store(record);
        allowance::recount(record);
    }
}

/// Frees what a file system holds that nobody can reach any more. The caller has claimed it. May be done
/// again after a death.
pub(crate) fn destroy(task: &Task<'_>, root: u32) {
    let record = task.region.superblock(root);
    let top = InodeRef::from_word(record.root.load(Ordering::Relaxed));
    let inode = task.region.inode(top.id);
    if top == InodeRef::NONE {
        return;
    }
    record.flags.fetch_or(superblock_flags::DYING, Ordering::Release);
    let lives = inode.generation.load(Ordering::Acquire) == top.generation
        && inode.nlink.load(Ordering::Relaxed) != 0
        && inode.root.load(Ordering::Relaxed) == root;
    if lives {
        // Its number is the next file system's.
        if watched::has_shadow(inode) {
            (task.notify)(task, &Event::Unmounted(top.id));
        }
        empty(task, top);
        let _locked = inode::lock(task, top.id);
        inode.seq.begin();
        inode::set_links(inode, 0);
        inode.seq.end();
        kept::orphan(task, top.id);
    }
    record.root.store(0, Ordering::Release);
    reclaim::after_unlink(task);
}

/// Removes everything below a directory, last entry first, so that directories shrink as they are emptied.
fn empty(task: &Task<'_>, top: InodeRef) {
    let mut here = top;
    loop {
        let Some((entry, target)) = last_entry(task, here.id, top.id) else {
            if here == top {
                return;
            }
            let record = task.region.inode(here.id);
            let parent = InodeId(record.parent.load(Ordering::Relaxed));
            let entry = DirentId(record.self_dirent.load(Ordering::Relaxed));
            let above = InodeRef {
                id: parent,
                generation: task.region.inode(parent).generation.load(Ordering::Acquire),
            };
            if remove_entry(task, above, (entry, here), Victim::Directory).is_err() {
                return;
            }
            here = above;
            continue;
        };
        if task.region.inode(target.id).mode.load(Ordering::Relaxed) & lp_abi::linux::S_IFMT == S_IFDIR {
            here = target;
        } else if remove_entry(task, here, (entry, target), Victim::File).is_err() {
            return;
        }
    }
}

/// Removes an entry of a directory that nobody else can reach.
///
/// # Errors
/// `ENOTEMPTY`; `ENOENT` if the directory was removed.
fn remove_entry(
    task: &Task<'_>,
    dir: InodeRef,
    (entry, target): (DirentId, InodeRef),
    what: Victim,
) -> Result<()> {
    let locked = dir::enter(task, dir)?;
    let victim_locked = inode::lock(task, target.id);
    let nlink = removal::take(task, dir, entry, target, what)?;
    drop((victim_locked, locked));
    if nlink == 0 {
        reclaim::after_unlink(task);
    }
    Ok(())
}

/// The entry with the highest position in a directory. Of directories only those that know it, and not `top`:
/// so a way down ends in a damaged region, too.
fn last_entry(task: &Task<'_>, dir: InodeId, top: InodeId) -> Option<(DirentId, InodeRef)> {
    let (region, inode) = (task.region, task.region.inode(dir));
    let tail = inode.tail.load(Ordering::Relaxed).min(map::Map::of(inode).span().saturating_mul(PER_LEAF));
    (0..tail).rev().find_map(|position| {
        let leaf = Leaf::new(region, map::get(region, inode, position / PER_LEAF))?;
        let entry = DirentId(leaf.entry(position).load(Ordering::Relaxed));
        let record = region.dirent(entry);
        let is_there =
            entry.is_some() && dirent::lives(record) && record.parent.load(Ordering::Relaxed) == dir.0;
        let target = dirent::target(record);
        let named = region.inode(target.id);
        let is_known = named.generation.load(Ordering::Relaxed) == target.generation
            && (!named.is_dir()
                || target.id != top
                    && named.parent.load(Ordering::Relaxed) == dir.0
                    && named.self_dirent.load(Ordering::Relaxed) == entry.0);
        (is_there && is_known).then_some((entry, target))
    })
}

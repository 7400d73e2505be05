//! The mount tree of a run: taking, linking and freeing records, and finding a mount's users.
//!
//! Every change is made under [`Tree`], the lock of all mounts, which precedes the locks of inodes. Mount and
//! unmount count as changes of where paths lead.

use lp_abi::{Errno, Result};
use lp_region::layout::{COMMAND_ROOTS, MOUNTS, SUPERBLOCKS};
use lp_region::mount::{Mount, SOURCE, mount_flags, mount_state, superblock_flags};
use lp_region::records::{COVERED, OpenFile};
use lp_region::sync::{AtomicU32, Ordering, heavy_barrier};
use lp_region::{DirentId, InodeRef, MappingId, MountId, Spot, layout as at, marks};

use crate::caller::task::Task;
use crate::descriptors::{flight, table};
use crate::inodes::inode;
use crate::lane::pin;
use crate::life::{reclaim, superblock};
use crate::names::mounts::{self, all};
use crate::names::{dir, dirent, tree};

/// The mounts, locked.
pub struct Tree<'t, 'r> {
    task: &'t Task<'r>,
}

impl Drop for Tree<'_, '_> {
    fn drop(&mut self) {
        self.task.region.header().mount_lock.unlock();
    }
}

/// A byte per mount: whether it is chosen, or what it became.
pub type Each = [u8; MOUNTS];

/// Contents of a new record.
pub struct Making<'a> {
    /// The inode that it shows.
    pub root: InodeRef,
    /// Its file system.
    pub superblock: u32,
    /// [`mount_flags::OWN`] and [`mount_flags::UNBINDABLE`].
    pub flags: u32,
    /// Its source, as given to mount(2).
    pub source: &'a [u8],
}

impl<'t, 'r> Tree<'t, 'r> {
    /// Locks the mounts. Frees records that a dead holder was filling in.
    pub fn lock(task: &'t Task<'r>) -> Self {
        task.region.header().mount_lock.lock(task.lane_id, task);
        for id in all(task) {
            let state = &task.region.mount(id).state;
            let _ = state.compare_exchange(
                mount_state::NEW,
                mount_state::FREE,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
        Tree { task }
    }

    fn record(&self, id: MountId) -> &'r Mount {
        self.task.region.mount(id)
    }

    fn run(&self) -> u32 {
        self.task.process.run.load(Ordering::Relaxed) // Relaxed: immutable.
    }

    /// The next unused number for a mount or a peer group.
    pub fn serial(&self) -> u32 {
        self.task.region.header().mount_serial.fetch_add(1, Ordering::Relaxed) + 1 // Relaxed: under the lock.
    }

    /// Whether a mount is in the tree of the caller's run (the kernel's check_mnt).
    pub fn holds(&self, id: MountId) -> bool {
        let record = self.record(id);
        record.state.load(Ordering::Relaxed) == mount_state::ATTACHED
            && record.run.load(Ordering::Relaxed) == self.run()
    }

    /// The mounts whose mount point is in `parent`.
    pub fn children(&self, parent: MountId) -> impl Iterator<Item = MountId> + use<'t, 'r> {
        let task = self.task;
        mounts::of_run(task, self.run())
            .filter(move |id| task.region.mount(*id).parent.load(Ordering::Relaxed) == parent.0)
    }

    /// Takes a free record and fills it in. The caller must link it in with [`Tree::attach`] or free it with
    /// [`Tree::discard`].
    ///
    /// # Errors
    /// `ENOSPC`, as beyond `fs.mount-max`.
    pub fn make(&self, making: &Making<'_>) -> Result<MountId> {
        let header = self.task.region.header();
        let serial = self.serial();
        let limit = header.mount_limit.load(Ordering::Relaxed);
        let (span, most) = (limit.max(31), MOUNTS as u32 - 1);
        // The record freed last is not the next to be reused, so that late users of it find it free.
        let wanted = (0..most).map(|step| MountId(1 + (serial + step) % span)).take(span as usize);
        let beyond = (span + 1..=most).map(MountId);
        let is_free = |id: &MountId| self.record(*id).state.load(Ordering::Relaxed) == mount_state::FREE;
        let id = wanted.chain(beyond).find(is_free).ok_or(Errno::ENOSPC)?;
        let record = self.record(id);
        // Relaxed throughout: published by the store of the state.
        let closed = superblock::is_read_only(self.task, making.superblock);
        let flags = making.flags | if closed { mount_flags::SB_READ_ONLY } else { 0 };
        record.flags.store(flags, Ordering::Relaxed);
        record.run.store(self.run(), Ordering::Relaxed);
        record.root.store(making.root.to_word(), Ordering::Relaxed);
        record.superblock.store(making.superblock, Ordering::Relaxed);
        record.serial.store(serial, Ordering::Relaxed);
        for word in [&record.parent, &record.point_dirent, &record.peers, &record.master] {
            word.store(0, Ordering::Relaxed);
        }
        record.point.store(0, Ordering::Relaxed);
        let source = making.source.iter().take(SOURCE - 1).chain(core::iter::repeat(&0));
        for (to, from) in record.source.iter().zip(source) {
            to.store(*from, Ordering::Relaxed);
        }
        header.mount_limit.store(limit.max(id.0), Ordering::Release);
        record.state.store(mount_state::NEW, Ordering::Release);
        Ok(id)
    }

    /// A copy of a record, for a bind mount of `root`.
    ///
    /// # Errors
    /// Those of [`Tree::make`].
    pub fn copy(&self, of: MountId, root: InodeRef) -> Result<MountId> {
        let record = self.record(of);
        let mut source = [0; SOURCE];
        for (to, from) in source.iter_mut().zip(&record.source) {
            *to = from.load(Ordering::Relaxed); // Relaxed: immutable while in use.
        }
        let end = source.iter().position(|byte| *byte == 0).unwrap_or(SOURCE);
        self.make(&Making {
            root,
            superblock: record.superblock.load(Ordering::Relaxed),
            flags: record.flags.load(Ordering::Relaxed) & mount_flags::OWN,
            source: &source[..end],
        })
    }

    /// Frees a record that was not linked in.
    pub fn discard(&self, id: MountId) {
        self.record(id).state.store(mount_state::FREE, Ordering::Release);
    }

    /// Links in a mount of the command line, which has no parent in the region.
    pub(crate) fn attach_base(&self, id: MountId) {
        self.record(id).state.store(mount_state::ATTACHED, Ordering::Release);
    }

    /// Links `id` in on top of what is at `spot`. Calls `then` while walks still see no change.
    ///
    /// # Errors
    /// `ENOENT` if what is there has been removed; those of `then`.
    pub fn attach(&self, id: MountId, spot: Spot, dirent: DirentId, then: impl FnOnce()) -> Result<()> {
        let task = self.task;
        let point = task.region.inode(spot.inode.id);
        let _locked = inode::lock(task, spot.inode.id);
        let is_gone = point.generation.load(Ordering::Acquire) != spot.inode.generation
            || point.nlink.load(Ordering::Relaxed) == 0
            || dir::is_dead(point);
        if is_gone {
            return Err(Errno::ENOENT);
        }
        let record = self.record(id);
        // Before the state: a walk that sees the mount finds the inode covered.
        point.acl.fetch_or(COVERED, Ordering::Release);
        if dirent.is_some() {
            dirent::cover(task.region.dirent(dirent));
        }
        let _shift = tree::shift(task);
        record.parent.store(spot.mount.0, Ordering::Relaxed);
        record.point.store(spot.inode.to_word(), Ordering::Relaxed);
        record.point_dirent.store(dirent.0, Ordering::Relaxed);
        record.state.store(mount_state::ATTACHED, Ordering::Release);
        then();
        Ok(())
    }

    /// Links in a mount below one that has just been linked in.
    pub(crate) fn attach_below(&self, id: MountId, parent: MountId, like: MountId) {
        let (record, from) = (self.record(id), self.record(like));
        record.parent.store(parent.0, Ordering::Relaxed);
        record.point.store(from.point.load(Ordering::Relaxed), Ordering::Relaxed);
        record.point_dirent.store(from.point_dirent.load(Ordering::Relaxed), Ordering::Relaxed);
        record.state.store(mount_state::ATTACHED, Ordering::Release);
    }

    /// `id` and all mounts below it.
    pub(crate) fn subtree(&self, id: MountId) -> Each {
        let mut each = [0; MOUNTS];
        each[id.index()] = 1;
        let mut grows = true;
        while grows {
            grows = false;
            for mount in mounts::of_run(self.task, self.run()) {
                let parent = self.record(mount).parent.load(Ordering::Relaxed) as usize;
                if each[mount.index()] == 0 && each[parent & (MOUNTS - 1)] != 0 {
                    each[mount.index()] = 1;
                    grows = true;
                }
            }
        }
        each
    }

    /// Removes mounts from the tree. Processes inside one stay there.
    pub fn detach(&self, each: &Each) {
        let chosen = || all(self.task).filter(|id| each[id.index()] != 0);
        let shift = tree::shift(self.task);
        for id in chosen() {
            self.record(id).state.store(mount_state::DETACHED, Ordering::Release);
        }
        drop(shift);
        for id in chosen() {
            let record = self.record(id);
            let point = InodeRef::from_word(record.point.load(Ordering::Relaxed));
            self.uncover(point, DirentId(record.point_dirent.load(Ordering::Relaxed)));
        }
    }

    /// Clears the covered marks of an inode and of an entry that names it, if nothing is mounted there.
    pub(crate) fn uncover(&self, point: InodeRef, dirent: DirentId) {
        let region = self.task.region;
        let _locked = inode::lock(self.task, point.id);
        let inode = region.inode(point.id);
        // It may have been removed since, by a run that did not know of one that had ended.
        if inode.generation.load(Ordering::Acquire) != point.generation {
            return;
        }
        let here = |id: MountId| {
            let record = self.record(id);
            let is_here = record.state.load(Ordering::Relaxed) == mount_state::ATTACHED
                && record.point.load(Ordering::Relaxed) == point.to_word();
            is_here.then(|| DirentId(record.point_dirent.load(Ordering::Relaxed)))
        };
        let entry = region.dirent(dirent);
        let is_entry = dirent.is_some() && dirent::lives(entry) && dirent::target(entry) == point;
        if is_entry && !all(self.task).filter_map(here).any(|other| other == dirent) {
            dirent::uncover(entry);
        }
        if all(self.task).filter_map(here).next().is_none() {
            inode.acl.fetch_and(!COVERED, Ordering::Release);
        }
    }

    /// Whether a process uses a mount: as its working directory or program, through an open file, or through
    /// a mapping.
    pub fn is_used(&self, id: MountId) -> bool {
        // PAIRS: the light barriers of those who pin a file or mark themselves as writers.
        let _ = heavy_barrier();
        let (task, region) = (self.task, self.task.region);
        let is_in = |file: &OpenFile| file.mount() == id;
        let by_process = region.processes().any(|process| {
            let record = region.process(process);
            let stands = [&record.cwd, &record.exe].into_iter().any(|word| {
                let word = word.load(Ordering::Acquire);
                word != 0 && Spot::from_word(word).mount == id
            });
            let mut hit = stands || self.maps(MappingId(record.mappings.load(Ordering::Acquire)), id);
            table::look_through(region, process, |file| hit |= is_in(region.file(file)));
            hit && !region.process_is_dead(process, task.process_id)
        });
        let by_lane = || {
            region.lanes().any(|lane| {
                let record = region.lane(lane);
                let writes = record.writing.load(Ordering::Acquire) == id.mark();
                let pins = record.pins.iter().map(marks::pinned).any(|pin| {
                    pin != 0 && pin & pin::INODE == 0 && is_in(region.file(lp_region::FileId(pin as u32)))
                });
                (writes || pins) && lane != task.lane_id && !region.lane_is_dead(lane, task.process_id)
            })
        };
        let in_flight =
            || flight::sent(region).any(|file| is_in(region.file(file)) && flight::is_in_flight(task, file));
        by_process || by_lane() || in_flight()
    }

    fn maps(&self, first: MappingId, id: MountId) -> bool {
        let mut mapping = first;
        for _ in 0..at::MAPPINGS {
            if mapping.is_none() {
                break;
            }
            let record = self.task.region.mapping(mapping);
            if record.mount.load(Ordering::Relaxed) == id.0 && record.bytes.load(Ordering::Relaxed) != 0 {
                return true;
            }
            mapping = MappingId(record.link.load(Ordering::Acquire));
        }
        false
    }

    /// Frees the mounts that are out of the tree and that nobody uses, and file systems without mounts.
    pub fn collect(&self) {
        let task = self.task;
        for id in all(task) {
            let record = self.record(id);
            if record.state.load(Ordering::Relaxed) == mount_state::DETACHED && !self.is_used(id) {
                let root = record.root();
                self.discard(id);
                // Relaxed: a lane that unlinks it from here on looks for users itself.
                if task.region.inode(root.id).nlink.load(Ordering::Relaxed) == 0 {
                    reclaim::let_go_slow(task, root);
                }
            }
        }
        for root in COMMAND_ROOTS as u32..SUPERBLOCKS as u32 {
            let record = task.region.superblock(root);
            if record.root.load(Ordering::Relaxed) != 0 && !self.is_mounted(root) {
                record.flags.fetch_or(superblock_flags::DYING, Ordering::Relaxed);
                superblock::destroy(task, root);
            }
        }
    }

    /// Whether a file system has a mount, in the tree of any run or detached.
    fn is_mounted(&self, root: u32) -> bool {
        all(self.task).any(|id| {
            let record = self.record(id);
            record.state.load(Ordering::Relaxed) != mount_state::FREE
                && record.superblock.load(Ordering::Relaxed) == root
        })
    }

    /// Removes the mounts of runs that have ended from their trees.
    pub(crate) fn leave_dead_runs(&self) {
        let task = self.task;
        for id in all(task) {
            let record = self.record(id);
            let run = lp_region::RunId(record.run.load(Ordering::Relaxed));
            let is_dead = record.state.load(Ordering::Relaxed) == mount_state::ATTACHED
                && run.0 != self.run()
                && !task.region.run_is_held(run);
            if is_dead {
                record.state.store(mount_state::DETACHED, Ordering::Release);
                let point = InodeRef::from_word(record.point.load(Ordering::Relaxed));
                if point != InodeRef::NONE {
                    self.uncover(point, DirentId(record.point_dirent.load(Ordering::Relaxed)));
                }
            }
        }
    }

    /// The run's word for its mount number `index`.
    pub fn base(&self, index: u32) -> &'r AtomicU32 {
        &self.task.run.bases[index as usize & 15]
    }
}

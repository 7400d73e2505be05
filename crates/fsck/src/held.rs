//! What processes hold: open files, locks and mappings; live inodes without a name; records that nothing
//! holds.

use lp_region::custody;
use lp_region::lane::Unlinked;
use lp_region::layout as at;
use lp_region::life::SlotState;
use lp_region::records::{Inode, LockRecord, Mapping, OpenFile};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{FileId, InodeId, InodeRef, LaneId, LockId, MappingId, ProcessId, Spot};
use lp_vfs::blob::BlobKind;
use lp_vfs::lock::family;
use lp_vfs::lock_tree::CHANGING;
use lp_vfs::table::{FdTable, entry};
use lp_vfs::{grace, pin};

use crate::bits::Bits;
use crate::inode::is_marked_blob;
use crate::slabs::SlabSlots;
use crate::{Check, locks, names};

impl Check<'_> {
    /// Tables, chains and lists; then the records that none of them names.
    pub(crate) fn held(&mut self) {
        let mut files = Bits::default();
        self.tables(&mut files);
        let mut waiting = self.pins();
        self.kept::<OpenFile>().iter().for_each(|file| _ = waiting.insert(file));
        self.files(&files, &waiting);
        self.locks();
        let mappings = self.mappings();
        self.lost(&mappings, |slabs| &slabs.mappings, "mapping record", Mapping::SLAB);
        self.orphans();
        self.blobs();
        self.common();
        let named = core::mem::take(&mut self.named);
        self.lost(&named, |slabs| &slabs.inodes, "inode", Inode::SLAB);
    }

    fn live_or_dead(&self) -> impl Iterator<Item = ProcessId> + use<> {
        let region = self.region;
        let all = (1..self.processes).map(ProcessId);
        let used = all.filter(|id| region.process(*id).life.get().state() != SlotState::Free);
        used.collect::<Vec<_>>().into_iter()
    }

    /// Descriptor tables must name live open files; a process's working directory and program must be live.
    fn tables(&mut self, files: &mut Bits) {
        let region = self.region;
        for id in self.live_or_dead() {
            let process = region.process(id);
            let limit = (process.fd_limit.load(Relaxed) as usize).min(at::FDS);
            let table = FdTable::of(region, id);
            for fd in 0..limit {
                let word = table.place(fd as u32).load(Relaxed);
                if word & entry::OPEN == 0 {
                    continue;
                }
                let file = word as u32;
                if self.slabs.files.is_used(file) {
                    files.insert(file);
                } else {
                    self.inconsistent(|| format!("descriptor {fd} of process slot {} is no open file", id.0));
                }
            }
            for word in process.places() {
                let named = Spot::from_word(word.load(Relaxed)).inode;
                if named != InodeRef::NONE && !self.lives(named) {
                    self.inconsistent(|| {
                        format!("process slot {} stands on inode {}, which is free", id.0, named.id.0)
                    });
                }
            }
        }
    }

    /// Open files that the pins of lanes keep, or lanes that closed them.
    fn pins(&mut self) -> Bits {
        let mut files = Bits::default();
        // First: calls may still have pinned closed files.
        (1..self.lanes).for_each(|lane| self.closed(lane, &mut files));
        for lane in 1..self.lanes {
            for pin in &self.region.lane(LaneId(lane)).pins {
                let word = pin.load(Relaxed);
                let index = word as u32;
                if word & pin::INODE == 0 && self.slabs.files.is_used(index) {
                    files.insert(index);
                } else if word & pin::INODE != 0 && self.slabs.inodes.is_used(index) {
                    self.named.insert(index);
                }
            }
        }
        files
    }

    /// Files that a lane has closed and whose slots it has not given back yet.
    fn closed(&mut self, lane: u32, files: &mut Bits) {
        for index in grace::chains(self.region, self.region.lane(LaneId(lane))) {
            if !self.slabs.files.is_used(index) && !self.slabs.files.hand.has(index) || !files.insert(index) {
                return self.structure(|| {
                    format!("the closed files of lane {lane} lead to slot {index}, which is none of theirs")
                });
            }
        }
    }

    pub(crate) fn lives(&self, inode: InodeRef) -> bool {
        self.slabs.inodes.is_used(inode.id.0)
            && self.region.inode(inode.id).generation.load(Relaxed) == inode.generation
    }

    /// `waiting` are those that a pin or a chain names: a process that died with one may have been freeing
    /// it.
    fn files(&mut self, named: &Bits, waiting: &Bits) {
        let fresh = self.slabs.files.fresh;
        for index in self.extents.slots::<OpenFile>().take_while(|index| *index <= fresh).collect::<Vec<_>>()
        {
            if !self.slabs.files.is_used(index) {
                continue;
            }
            let file = self.region.file(FileId(index));
            self.lock(locks::inner(&file.lock), || format!("the position of open file {index}"));
            let inode = InodeRef::from_word(file.inode.load(Relaxed));
            // If it was ever sent, it may still be in flight: only processes of its run can query that.
            let is_held = named.has(index) || file.in_flight.load(Relaxed) != 0;
            if !is_held && (waiting.has(index) || self.slabs.files.hand.has(index)) {
                if self.lives(inode) {
                    self.named.insert(inode.id.0);
                }
                continue;
            }
            if !is_held {
                self.leak(|| format!("open file {index} is in no table"));
            } else if !self.lives(inode) {
                self.inconsistent(|| format!("open file {index} has inode {}, which is free", inode.id.0));
            } else {
                // A file that never had a name lives as long as it is open.
                self.reach(inode.id.0);
            }
        }
    }

    /// Each inode's tree of locks; then the locks that say that they are an inode's.
    fn locks(&mut self) {
        let mut listed = Bits::default();
        let fresh = self.slabs.inodes.fresh;
        for index in self.extents.slots::<Inode>().take_while(|index| *index <= fresh).collect::<Vec<_>>() {
            if self.slabs.inodes.is_used(index) {
                match self.region.inode(InodeId(index)).locks.load(Relaxed) {
                    CHANGING => {
                        self.leftover(|| format!("a process died as it changed the locks of inode {index}"))
                    }
                    root => self.lock_tree(index, root, &mut listed),
                }
            }
        }
        for index in 1..=self.slabs.locks.fresh {
            let record = self.region.lock_record(LockId(index));
            let inode = record.inode.load(Relaxed);
            if inode == 0 {
                continue;
            }
            self.lock_record(inode, index, record);
            let is_used = self.slabs.inodes.is_used(inode);
            let changes = is_used && self.region.inode(InodeId(inode)).locks.load(Relaxed) == CHANGING;
            if listed.insert(index) && !changes {
                self.inconsistent(|| format!("lock {index} is not in the tree of inode {inode}"));
            }
        }
        self.lost(&listed, |slabs| &slabs.locks, "lock record", LockRecord::SLAB);
    }

    /// An inode's tree of locks must be in order, and each node must know the last byte locked below it.
    fn lock_tree(&mut self, inode: u32, root: u32, listed: &mut Bits) {
        let region = self.region;
        let last =
            |index: u32| if index == 0 { 0 } else { region.lock_record(LockId(index)).last.load(Relaxed) };
        let (mut path, mut at, mut before) = (Vec::new(), root, (0, 0));
        loop {
            while at != 0 {
                if at > self.slabs.locks.fresh || !listed.insert(at) {
                    self.structure(|| {
                        format!("the tree of locks of inode {inode} leads to slot {at}, which is none of its")
                    });
                    return;
                }
                path.push(at);
                at = region.lock_record(LockId(at)).link.load(Relaxed);
            }
            let Some(index) = path.pop() else { return };
            let record = region.lock_record(LockId(index));
            let key = (record.start.load(Relaxed), index);
            let below = last(record.link.load(Relaxed)).max(last(record.right.load(Relaxed)));
            let is_sound = before < key
                && record.last.load(Relaxed) == below.max(record.end.load(Relaxed))
                && record.inode.load(Relaxed) == inode;
            if !is_sound {
                self.inconsistent(|| format!("lock {index} stands wrong in the tree of inode {inode}"));
            }
            before = key;
            at = record.right.load(Relaxed);
        }
    }

    fn lock_record(&mut self, inode: u32, index: u32, record: &LockRecord) {
        if !self.slabs.locks.is_used(index) && !self.slabs.locks.hand.has(index) {
            self.inconsistent(|| format!("lock {index} of inode {inode} is free"));
        }
        let (family, through) = family::of(record.family.load(Relaxed));
        let owner = record.owner.load(Relaxed);
        let lives = match family {
            0 => {
                let id = ProcessId(owner);
                owner as usize != 0
                    && !self.region.process_is_dead(id, self.me)
                    && self.region.process(id).life.get().generation()
                        == record.owner_generation.load(Relaxed)
            }
            _ => {
                self.slabs.files.is_used(owner)
                    && self.region.file(FileId(owner)).generation.load(Relaxed)
                        == record.owner_generation.load(Relaxed)
            }
        };
        if through.0 as usize >= at::FILES {
            return self.structure(|| format!("lock {index} of inode {inode} came through no open file"));
        }
        if !lives {
            self.leftover(|| format!("lock {index} of inode {inode} is a dead owner's"));
        }
        if record.start.load(Relaxed) > record.end.load(Relaxed) {
            self.inconsistent(|| format!("lock {index} of inode {inode} ends before it starts"));
        }
    }

    /// Each process's list of mappings.
    fn mappings(&mut self) -> Bits {
        let mut listed = Bits::default();
        for id in self.live_or_dead() {
            let mut next = self.region.process(id).mappings.load(Relaxed);
            while next != 0 {
                if next > self.slabs.mappings.fresh || !listed.insert(next) {
                    self.structure(|| {
                        format!("the list of mappings of process slot {} leads to slot {next}, which is none of its", id.0)
                    });
                    break;
                }
                let record = self.region.mapping(MappingId(next));
                let inode = InodeRef::from_word(record.inode.load(Relaxed));
                if inode != InodeRef::NONE && !self.lives(inode) {
                    self.inconsistent(|| format!("mapping {next} is of inode {}, which is free", inode.id.0));
                }
                next = record.link.load(Relaxed);
            }
        }
        listed
    }

    /// Inodes that await a sweep.
    fn orphans(&mut self) {
        self.kept::<Inode>().iter().for_each(|inode| _ = self.named.insert(inode));
        for lane in 1..self.lanes {
            let lane = self.region.lane(LaneId(lane));
            let places = 0..lane.unlinked.count.load(Relaxed) as usize;
            for word in places.map_while(|place| self.region.unlinked(lane, place)) {
                // A stale reference: the inode's generation has changed.
                let inode = Unlinked::inode(word.load(Relaxed));
                if self.lives(inode) {
                    self.named.insert(inode.id.0);
                }
            }
        }
    }

    /// Blobs of inodes in use.
    fn blobs(&mut self) {
        let fresh = self.slabs.inodes.fresh;
        let mut owned = Bits::default();
        for index in self.extents.slots::<Inode>().take_while(|index| *index <= fresh).collect::<Vec<_>>() {
            if !self.slabs.inodes.is_used(index) || self.slabs.inodes.hand.has(index) {
                continue;
            }
            let inode = self.region.inode(InodeId(index));
            for which in [BlobKind::Xattr, BlobKind::Acl, BlobKind::DefaultAcl] {
                let blob = which.handle(inode);
                if blob == 0 {
                    continue;
                }
                if blob > fresh || blob == index || !owned.insert(blob) {
                    self.structure(|| format!("inode {index} has blob {blob}, which is not its own"));
                } else if !names::is_blob(self.region, InodeId(blob)) {
                    self.structure(|| format!("blob {blob} of inode {index} has less content than it says"));
                } else if self.is_dropped(inode, blob) {
                    self.leftover(|| format!("inode {index} died as its blob {blob} was freed"));
                } else if !self.slabs.inodes.is_used(blob)
                    || self.named.has(blob)
                    || !is_marked_blob(self.region.inode(InodeId(blob)))
                {
                    self.inconsistent(|| format!("inode {index} has blob {blob}, which is no blob"));
                }
            }
        }
        owned.iter().for_each(|blob| _ = self.named.insert(blob));
    }

    /// Whether a blob of an inode without links awaits a sweep on its own, because the process that freed the
    /// inode died.
    fn is_dropped(&self, inode: &Inode, blob: u32) -> bool {
        let word = self.region.inode(InodeId(blob)).custody.get();
        inode.nlink.load(Relaxed) == 0 && word & custody::LISTED != 0 && self.named.has(blob)
    }

    /// Slots in use that nothing names.
    fn lost(&mut self, known: &Bits, slots: fn(&crate::slabs::Slabs) -> &SlabSlots, what: &str, slab: usize) {
        let slots = slots(&self.slabs);
        let lost: Vec<u32> = (1..=slots.fresh)
            .filter(|index| slots.is_used(*index) && !known.has(*index) && !slots.hand.has(*index))
            .collect();
        let Some(first) = lost.first() else { return };
        self.leak(|| {
            format!(
                "{} {what} slots (slab {slab}) are in use and nothing names them, the first is {first}",
                lost.len()
            )
        });
    }
}

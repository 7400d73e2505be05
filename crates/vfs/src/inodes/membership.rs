//! Which files have the content of a common inode, or a part of it, and the steps by which that changes.
//!
//! A *common* inode has no name. It owns pages, and the files that name it ([`Inode::tail`]) are its
//! *members*. A member either has the map of the common inode ([`inode_flags::SHARES`]) or a map of its own
//! with pages of that inode in it ([`inode_flags::BORROWS`]), at the same indices. Nobody changes what a
//! common inode has until it is left without members.
//!
//! Each step is under an intent: after it the records are whole, whether or not its lane lives. The number of
//! members is one word that lanes exchange ([`lp_region::signed`]). It has no lock: files with the same
//! content may have nothing else to do with each other, and a process that is stopped at one must not delay
//! those at the others. Only a member's lock admits another member, so the number cannot grow while the
//! caller holds the lock of the only one.

use lp_region::lane::Lane;
use lp_region::records::{Inode, MEMBER_BITS, Members, inode_flags};
use lp_region::signed::Note;
use lp_region::slab::Slot;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{InodeId, InodeRef, LaneId, PageId, Region};

use crate::caller::task::{Task, Time};
use crate::content::linking;
use crate::content::map::{self, Map};
use crate::content::owner::{self, Handed};
use crate::inodes::hidden;
use crate::inodes::inode::{self, Touch};
use crate::lane::intent::{self, op};

/// Bit of a note's purpose: the exchange removed the last member.
const LAST: u64 = 1 << MEMBER_BITS;
/// Bit of every purpose, which must not be 0.
const COUNTED: u64 = LAST << 1;

/// A kind of step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The file's content becomes that of `common`, which is new, and the file its only member.
    Give,
    /// The file, the only member, gets the content of `common`, which is to be freed.
    Take,
    /// The file, which is empty, gets the content of `common`.
    Join,
    /// The file, which has the map of `common`, leaves it with no content. If it was the last member, the
    /// common inode is to be freed.
    Leave,
    /// The file, which has the map of `common`, gets that of `next`, which borrows the same pages and is to be
    /// freed.
    Part,
    /// The file, the only member and with a map of its own, gets the pages that it borrows from `common`,
    /// which is to be freed with the others.
    Merge,
    /// The file, with a map of its own in which nothing is borrowed, leaves `common`, which is to be freed if
    /// it was the last member.
    Detach,
}

impl Step {
    const ALL: [Step; 7] =
        [Step::Give, Step::Take, Step::Join, Step::Leave, Step::Part, Step::Merge, Step::Detach];
}

/// A step: it happens completely or not at all, even after a death. The file's lock is held.
pub(super) struct Change {
    pub(super) step: Step,
    pub(super) file: InodeId,
    pub(super) common: InodeRef,
    /// Of [`Step::Part`].
    pub(super) next: InodeRef,
    /// The file's length afterwards, of [`Step::Join`] and [`Step::Leave`].
    pub(super) size: u64,
    /// The number of its pages afterwards, as of `size`.
    pub(super) pages: u32,
    /// The time of [`Step::Join`].
    pub(super) time: Time,
}

impl Change {
    pub(super) fn new(step: Step, file: InodeId, common: InodeRef) -> Change {
        Change { step, file, common, next: InodeRef::NONE, size: 0, pages: 0, time: Time { sec: 0, nsec: 0 } }
    }

    fn to_words(&self) -> [u64; 6] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            pair(self.step as u32, self.file.0),
            self.common.to_word(),
            self.next.to_word(),
            self.size,
            pair(self.pages, self.time.nsec),
            self.time.sec as u64,
        ]
    }

    fn from_words(word: impl Fn(usize) -> u64) -> Change {
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        Change {
            step: Step::ALL[low(word(0)) as usize % Step::ALL.len()],
            file: InodeId(high(word(0))),
            common: InodeRef::from_word(word(1)),
            next: InodeRef::from_word(word(2)),
            size: word(3),
            pages: low(word(4)),
            time: Time { sec: word(5) as i64, nsec: high(word(4)) },
        }
    }

    /// Carries it out, and frees the inode that it leaves to nobody.
    pub(super) fn carry_out(&self, task: &Task) {
        task.lane.sharing.clear();
        let intent = intent::write(task, op::SHARE, &self.to_words());
        let left = self.apply(task.region, task.lane);
        drop(intent);
        if left.is_some() {
            hidden::free(task, left);
        }
        task.region.settle::<Inode>(task.lane);
    }

    /// Idempotent. Returns the inode that is to be freed, or none: `lane` then answers for it.
    fn apply(&self, region: Region, lane: &Lane) -> InodeId {
        let (file, common) = (region.inode(self.file), region.inode(self.common.id));
        // Relaxed, here and below: under the file's lock. Lanes read flags and tail under it.
        let flags = file.flags.load(Relaxed);
        let taken = &lane.taken[Inode::SLAB];
        let is_left = match self.step {
            Step::Give => {
                let map = Map::of(file);
                common.pages.store(file.pages.load(Relaxed), Relaxed);
                map.store(common);
                region.members(self.common.id).reset(1);
                owner::hand_over(region, map, Handed::All, self.common.id);
                file.tail.store(self.common.to_word(), Relaxed);
                file.flags.store(flags | inode_flags::SHARES, Relaxed);
                taken.store(0, Release);
                false
            }
            Step::Take => {
                owner::hand_over(region, Map::of(file), Handed::All, self.file);
                Map::EMPTY.store(common);
                common.pages.store(0, Relaxed);
                file.tail.store(0, Relaxed);
                file.flags.store(flags & !inode_flags::SHARES, Relaxed);
                true
            }
            Step::Join => {
                self.count(region, lane);
                self.replace(file, Map::of(common), self.common, Some(self.time));
                false
            }
            Step::Leave => {
                self.replace(file, Map::EMPTY, InodeRef::NONE, None);
                self.count(region, lane)
            }
            Step::Part => {
                self.part(region, file);
                return self.next.id;
            }
            Step::Merge => {
                self.merge(region, file, common);
                true
            }
            Step::Detach => {
                end_borrowing(file);
                self.count(region, lane)
            }
        };
        if !is_left {
            return InodeId::NONE;
        }
        taken.store(self.common.id.0, Release);
        self.common.id
    }

    /// Readers find the same content by either map.
    fn part(&self, region: Region, file: &Inode) {
        let next = region.inode(self.next.id);
        // Relaxed: under the file's lock.
        let flags = file.flags.load(Relaxed);
        if flags & inode_flags::SHARES != 0 {
            let map = Map::of(next);
            owner::hand_over(region, map, Handed::Map, self.file);
            map.store(file);
            // Release, unpaired: not before the map, for a death in between.
            file.flags.store(flags & !inode_flags::SHARES | inode_flags::BORROWS, Release);
        }
        Map::EMPTY.store(next);
    }

    /// What is left in the common inode are the pages that the file has replaced.
    fn merge(&self, region: Region, file: &Inode, common: &Inode) {
        // Relaxed: under the file's lock.
        if file.flags.load(Relaxed) & inode_flags::BORROWS == 0 {
            return;
        }
        // It is half freed from here on.
        common.data_seq.begin();
        let mut index = 0;
        while let Some(piece) = map::next(region, file, &mut index) {
            for (page, index) in (piece.page.0..).map(PageId).zip(index..index + piece.len) {
                // In any order: what a death has left undone is done again.
                if map::get(region, common, index) == page {
                    linking::unlink_given(region, common, index);
                }
                if owner::is_of(region, page, self.common.id) {
                    owner::give_to(region, page, self.file);
                }
            }
            index += piece.len;
        }
        end_borrowing(file);
    }

    /// Gives the file the content of a common inode, or none.
    fn replace(&self, file: &Inode, map: Map, common: InodeRef, modified: Option<Time>) {
        file.data_seq.begin();
        // Relaxed throughout: inside the sections.
        let flags = file.flags.load(Relaxed) & !inode_flags::SHARES;
        let shares = if common == InodeRef::NONE { 0 } else { inode_flags::SHARES };
        file.tail.store(if shares == 0 { 0 } else { common.to_word() }, Relaxed);
        file.flags.store(flags | shares, Relaxed);
        map.store(file);
        file.seq.begin();
        file.size.store(self.size, Relaxed);
        file.pages.store(self.pages, Relaxed);
        if let Some(time) = modified {
            inode::touch_in_section(file, Touch::Modify, time);
        }
        file.seq.end();
        file.data_seq.end();
    }

    /// Counts the file among the members of the common inode, or no longer, once. Returns whether that
    /// removed the last.
    fn count(&self, region: Region, lane: &Lane) -> bool {
        let members = region.members(self.common.id);
        if let Some(purpose) = counted(region, self.common, lane) {
            return purpose & LAST != 0;
        }
        loop {
            let seen = members.load();
            let value = match self.step {
                Step::Join => seen.value() + 1,
                _ => seen.value().saturating_sub(1),
            };
            let last = if value == 0 { LAST } else { 0 };
            let purpose = COUNTED | last | u64::from(self.common.id.0);
            if members.exchange(lane.number(), seen, value, purpose, notes(region)) {
                return value == 0;
            }
        }
    }
}

/// In a section, because pages that the file has replaced, and that a reader may still be at, are freed once
/// the common inode is left without members.
fn end_borrowing(file: &Inode) {
    file.data_seq.begin();
    file.tail.store(0, Relaxed); // Relaxed, here and below: under the file's lock.
    let flags = file.flags.load(Relaxed);
    // Release, unpaired: the last, for a death in between.
    file.flags.store(flags & !inode_flags::BORROWS, Release);
    file.data_seq.end();
}

fn notes<'r>(region: Region<'r>) -> impl Fn(u32) -> &'r Note {
    move |lane| &region.lane(LaneId(lane)).sharing
}

/// The purpose of the exchange that the lane's intent made, if it made it.
fn counted(region: Region, common: InodeRef, lane: &Lane) -> Option<u64> {
    let purpose = Members::noted(&lane.sharing);
    let members = region.members(common.id);
    (purpose != 0 && members.took_effect(lane.number(), &lane.sharing)).then_some(purpose)
}

/// Finishes what a dead lane had begun.
#[cold]
pub(crate) fn replay(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    // Relaxed: published by the op.
    let change = Change::from_words(|at| record.intent.words[at].load(Relaxed));
    // The target of a copy that was not counted stays empty.
    if change.step != Step::Join || counted(task.region, change.common, record).is_some() {
        change.apply(task.region, record);
    }
    record.intent.op.store(op::NONE, Release);
}

/// The file and the other inodes, one or two, of the step that a lane was about when it died.
pub fn under_way(lane: &Lane) -> impl Iterator<Item = (InodeId, InodeRef)> {
    let is_step = lane.intent.op.load(Acquire) == op::SHARE;
    // Relaxed: published by the op.
    let change = Change::from_words(|at| lane.intent.words[at].load(Relaxed));
    let both = [change.common, change.next].into_iter();
    both.filter(move |other| is_step && *other != InodeRef::NONE).map(move |other| (change.file, other))
}

/// The common inode of a member. The caller must hold its lock.
pub(super) fn common_of(inode: &Inode) -> InodeRef {
    InodeRef::from_word(inode.tail.load(Relaxed)) // Relaxed: under the lock.
}

/// Whether a member is the only one. The caller must hold its lock.
pub(super) fn is_only_member(region: Region, inode: &Inode) -> bool {
    region.members(common_of(inode).id).load().value() <= 1
}

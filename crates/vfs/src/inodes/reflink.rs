//! Content that files share until one of them changes it: what xfs(5) and btrfs(5) call reflinks.
//!
//! A copy of a whole file moves no bytes (`share`). From then on the content of both is that of a *common*
//! inode, which only they name ([`Inode::tail`]). It owns the pages, and its map is theirs, so readers notice
//! nothing. Whoever is about to change or map the content of a file calls `unshare` first. The file then gets
//! a copy, or the pages themselves if it is the last that has them.
//!
//! This takes four kinds of steps, each under an intent. After each the records are whole: a file gives its
//! content to a new common inode or takes it back, as its only member; an empty file joins; a file leaves,
//! for another common inode or for none. The number of members is one word that lanes exchange
//! ([`lp_region::signed`]). It has no lock: files with the same content may have nothing else to do with each
//! other, and a process that is stopped at one must not delay those at the others. Only a member's lock
//! admits another member, so the number cannot grow while the caller holds the lock of the only one.
//!
//! Nothing is shared in a region's file. After a power failure its pages are of different ages, and a page
//! then belongs to the file that all versions of its owner word name ([`owner`]).

use lp_abi::{PAGE_SIZE, Result};
use lp_region::lane::Lane;
use lp_region::layout::COMMAND_ROOTS;
use lp_region::records::{Inode, MEMBER_BITS, Members, inode_flags};
use lp_region::signed::Note;
use lp_region::slab::Slot;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{InodeId, InodeRef, LaneId, Region, Spot};

use crate::caller::task::{Task, Time};
use crate::content::map::{self, Map};
use crate::content::source::FileContent;
use crate::content::{fill, linking, owner};
use crate::inodes::inode::{self, Locked, Touch};
use crate::inodes::make;
use crate::lane::intent::{self, op};
use crate::lane::writer;

/// Bit of a note's purpose: the exchange removed the last member.
const LAST: u64 = 1 << MEMBER_BITS;
/// Bit of every purpose, which must not be 0.
const COUNTED: u64 = LAST << 1;

/// A kind of step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The file's content becomes that of `common`, which is new, and the file its only member.
    Give,
    /// The file, the only member, gets the content of `common`, which is to be freed.
    Take,
    /// The file, which is empty, gets the content of `common`.
    Join,
    /// The file leaves `common`, which is to be freed if it was the last member, and gets the content of
    /// `next`, which is new, or none.
    Leave,
}

/// A step: it happens completely or not at all, even after a death. The file's lock is held.
struct Change {
    step: Step,
    file: InodeId,
    common: InodeRef,
    next: InodeRef,
    /// The file's afterwards, of [`Step::Join`] and [`Step::Leave`].
    size: u64,
    pages: u32,
    /// The time of [`Step::Join`].
    time: Time,
}

impl Change {
    fn new(step: Step, file: InodeId, common: InodeRef) -> Change {
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
        let step = match low(word(0)) {
            0 => Step::Give,
            1 => Step::Take,
            2 => Step::Join,
            _ => Step::Leave,
        };
        Change {
            step,
            file: InodeId(high(word(0))),
            common: InodeRef::from_word(word(1)),
            next: InodeRef::from_word(word(2)),
            size: word(3),
            pages: low(word(4)),
            time: Time { sec: word(5) as i64, nsec: high(word(4)) },
        }
    }

    /// Carries it out, and frees the common inode if it is left without members.
    fn carry_out(&self, task: &Task) {
        task.lane.sharing.clear();
        let intent = intent::write(task, op::SHARE, &self.to_words());
        let is_left = self.apply(task.region, task.lane);
        drop(intent);
        if is_left {
            make::free(task, self.common.id);
        }
        task.region.settle::<Inode>(task.lane);
    }

    /// Idempotent. Returns whether the common inode is left without members: `lane` then answers for it.
    fn apply(&self, region: Region, lane: &Lane) -> bool {
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
                owner::hand_over(region, map, self.common.id);
                file.tail.store(self.common.to_word(), Relaxed);
                file.flags.store(flags | inode_flags::SHARES, Relaxed);
                taken.store(0, Release);
                false
            }
            Step::Take => {
                owner::hand_over(region, Map::of(file), self.file);
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
                let next = region.inode(self.next.id);
                let map = if self.next == InodeRef::NONE { Map::EMPTY } else { Map::of(next) };
                self.replace(file, map, self.next, None);
                if self.next != InodeRef::NONE {
                    taken.store(0, Release);
                }
                self.count(region, lane)
            }
        };
        if is_left {
            taken.store(self.common.id.0, Release);
        }
        is_left
    }

    /// Gives the file the content of another common inode, or none.
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

/// The file and the common inodes, one or two, of the step that a lane was about when it died.
pub fn under_way(lane: &Lane) -> impl Iterator<Item = (InodeId, InodeRef)> {
    let is_step = lane.intent.op.load(Acquire) == op::SHARE;
    // Relaxed: published by the op.
    let change = Change::from_words(|at| lane.intent.words[at].load(Relaxed));
    let both = [change.common, change.next].into_iter();
    both.filter(move |common| is_step && *common != InodeRef::NONE).map(move |common| (change.file, common))
}

/// Whether the content of a file is that of a common inode. The caller must hold the lock.
#[inline(always)]
pub(crate) fn is_shared(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::SHARES != 0 // Relaxed: under the lock.
}

/// The common inode of a file that has one. The caller must hold the lock.
fn common_of(inode: &Inode) -> InodeRef {
    InodeRef::from_word(inode.tail.load(Relaxed)) // Relaxed: under the lock.
}

/// Whether a file may get the content of another. The caller must hold both locks.
pub(crate) fn may_share(task: &Task, from: InodeId, to: &Inode) -> bool {
    use inode_flags::{BARE, BLOB, EXECUTED, KEPT, MAPPED, PENDING, SHARES, SPACE};
    let region = task.region;
    let source = region.inode(from);
    // Relaxed throughout: immutable while in use, or under the locks.
    let root = source.root.load(Relaxed);
    let is_limited = root as usize >= COMMAND_ROOTS;
    if region.header().in_file.load(Relaxed) != 0 || is_limited || root != to.root.load(Relaxed) {
        return false;
    }
    let others = MAPPED | KEPT | SPACE | BARE | PENDING | EXECUTED | BLOB;
    let is_empty = to.size.load(Relaxed) == 0 && to.map.load(Relaxed) == 0;
    // A copy has no holes, as on tmpfs.
    let pages = source.size.load(Relaxed).div_ceil(PAGE_SIZE as u64);
    is_empty
        && to.flags.load(Relaxed) & (others | SHARES) == 0
        && source.flags.load(Relaxed) & others == 0
        && u64::from(source.pages.load(Relaxed)) == pages
}

/// Gives the content of a file to another, which [`may_share`] allows, and sets the times of that. The caller
/// must hold both locks. Returns its size.
///
/// # Errors
/// `ENOSPC` without an inode.
pub(crate) fn share(task: &Task, from: InodeId, to: InodeId) -> Result<u64> {
    let source = task.region.inode(from);
    if !is_shared(source) {
        let common = create_common(task, source)?;
        Change::new(Step::Give, from, common).carry_out(task);
    }
    // Relaxed, both: under the lock.
    let (size, pages) = (source.size.load(Relaxed), source.pages.load(Relaxed));
    let join = Change::new(Step::Join, to, common_of(source));
    Change { size, pages, time: task.now(), ..join }.carry_out(task);
    Ok(size)
}

/// A common inode without content, for files of the root that `like` belongs to. The lane names it.
fn create_common(task: &Task, like: &Inode) -> Result<InodeRef> {
    let made = make::create_hidden(task, like.root.load(Relaxed))?; // Relaxed: immutable.
    let flags = &task.region.inode(made.id).flags;
    flags.store(flags.load(Relaxed) | inode_flags::COMMON, Relaxed); // Relaxed: nobody can reach it yet.
    Ok(made)
}

/// Makes the content of a file its own, before it changes or is mapped. Nothing beyond `keep` bytes is
/// needed: the file may be shorter afterwards, by this one change. The caller must hold the lock, and be a
/// writer of a mount.
///
/// # Errors
/// `ENOSPC`.
#[inline(always)]
pub(crate) fn unshare(task: &Task, id: InodeId, inode: &Inode, keep: u64) -> Result<()> {
    if is_shared(inode) { unshare_slow(task, id, inode, keep) } else { Ok(()) }
}

#[cold]
fn unshare_slow(task: &Task, id: InodeId, inode: &Inode, keep: u64) -> Result<()> {
    let common = common_of(inode);
    let size = keep.min(inode.size.load(Relaxed)); // Relaxed: under the lock.
    if size == 0 || task.region.members(common.id).load().value() > 1 {
        let next = if size == 0 { InodeRef::NONE } else { copy(task, inode, size)? };
        // Relaxed: nobody else can reach it yet.
        let pages = if size == 0 { 0 } else { task.region.inode(next.id).pages.load(Relaxed) };
        let leave = Change::new(Step::Leave, id, common);
        Change { next, size, pages, ..leave }.carry_out(task);
    }
    if is_shared(inode) {
        Change::new(Step::Take, id, common_of(inode)).carry_out(task);
    }
    Ok(())
}

/// Makes the content of a file its own, in a region that nobody else uses.
///
/// # Errors
/// `ENOSPC`.
pub fn unshare_alone(task: &Task, id: InodeId) -> Result<()> {
    let _locked = inode::lock(task, id);
    unshare(task, id, task.region.inode(id), u64::MAX)
}

/// Takes the lock of a file that is about to be mapped or executed, with content of its own.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn lock_unshared<'r>(task: &Task<'r>, of: Spot) -> Result<Locked<'r>> {
    let (id, inode) = (of.inode.id, task.region.inode(of.inode.id));
    let locked = inode::lock(task, id);
    if !is_shared(inode) {
        return Ok(locked);
    }
    drop(locked);
    let _writing = writer::begin_unseen(task, of.mount);
    let locked = inode::lock(task, id);
    unshare(task, id, inode, u64::MAX)?;
    Ok(locked)
}

/// A common inode with a copy of a file's first `size` bytes, and one member. The lane names it.
fn copy(task: &Task, from: &Inode, size: u64) -> Result<InodeRef> {
    let made = create_common(task, from)?;
    let inode = task.region.inode(made.id);
    // Until its pages are counted it is half made.
    inode.data_seq.begin();
    let mut index = 0;
    while let Some(piece) = map::next(task.region, from, &mut index) {
        let at = index * PAGE_SIZE as u64;
        if at >= size {
            break;
        }
        let bytes = (piece.len * PAGE_SIZE as u64).min(size - at) as usize;
        let mut content = FileContent::new(task.region, from, at);
        let filled = fill::copy_pages(task, made.id, &mut content, bytes, at);
        linking::more_in_section(inode, filled.pages);
        if let Some(errno) = filled.stopped {
            make::discard(task, made.id);
            return Err(errno);
        }
        index += piece.len;
    }
    inode.data_seq.end();
    task.region.members(made.id).reset(1);
    Ok(made)
}

/// Takes the content from a file that is being freed, if it shares it.
pub(crate) fn leave_freed(task: &Task, id: InodeId) {
    let inode = task.region.inode(id);
    if is_shared(inode) {
        let taken = &task.lane.taken[Inode::SLAB];
        let former = taken.load(Relaxed); // Relaxed: the lane's own.
        // Relaxed: nobody else has the inode.
        let size = inode.size.load(Relaxed);
        Change { size, ..Change::new(Step::Leave, id, common_of(inode)) }.carry_out(task);
        taken.store(former, Release);
    }
}

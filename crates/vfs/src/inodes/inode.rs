//! Inodes: their lock, attributes and times.
//!
//! Attributes change under the inode's lock and `seq`. Readers copy and validate, and write nothing. Like
//! `struct inode` and `inode_operations` of tmpfs, except that nothing counts references to an inode.

use lp_abi::linux::{O_NOATIME, S_IFDIR, S_IFMT, S_IFREG};
use lp_region::bias::Hold;
use lp_region::layout::INODES;
use lp_region::lock::{Lanes, Undertaker};
use lp_region::mount::mount_flags;
use lp_region::order::{self, Rank};
use lp_region::records::{ABOVE_LAYER, Inode, OpenFile, Stamp, inode_flags};
use lp_region::seq::Seq;
use lp_region::sync::Ordering::Relaxed;
use lp_region::sync::{AtomicU32, LOCK_SPINS, spin};
use lp_region::{InodeId, InodeRef, LaneId, MountId, Region};

use crate::caller::limited;
use crate::caller::task::{Task, Time};
use crate::content::{cut, map};
use crate::inodes::{strict, watched};
use crate::lane::writer;

/// How far an access time may lag behind under relatime, in seconds.
const RELATIME: u64 = 24 * 60 * 60;
/// Reads by a lane between two checks of the clock.
const CLOCK_EVERY: u32 = 1024;

/// A consistent copy of an inode's record.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Type and permission bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node (`st_rdev`).
    pub rdev: u32,
    /// Number of its root.
    pub root: u32,
    /// Bytes of content; for a directory, tmpfs's value.
    pub size: u64,
    /// 512-byte blocks.
    pub blocks: u64,
    /// Access time.
    pub atime: Time,
    /// Modification time.
    pub mtime: Time,
    /// Change time.
    pub ctime: Time,
    /// Birth time.
    pub btime: Time,
}

/// Bytes that tmpfs counts for a directory entry (`BOGO_DIRENT_SIZE`).
const ENTRY_BYTES: u64 = 20;

/// The attributes of an inode.
#[inline]
pub fn attributes(task: &Task, id: InodeId, inode: &Inode) -> Attributes {
    if inode.is_dir() {
        mend_if_left(task, id, &inode.seq);
        mend_if_left(task, id, &inode.data_seq);
        return inode.seq.snapshot_both(&inode.data_seq, || copy_attributes(inode));
    }
    let before = inode.seq.read();
    let seen = copy_attributes(inode);
    if !inode.seq.retry(before) {
        return seen;
    }
    mend_if_left(task, id, &inode.seq);
    inode.seq.snapshot(|| copy_attributes(inode))
}

/// Checks of a section before a reader assumes that the writer is stopped.
const SPINS: u32 = 2000;

/// If a section is open because the lane that began it is dead, finishes its change: no writer might come to
/// do it. A reader calls this before it waits.
#[inline]
pub(crate) fn mend_if_left(task: &Task, id: InodeId, section: &Seq) {
    if section.read() & 1 != 0 {
        mend_if_left_slow(task, id, section);
    }
}

#[cold]
fn mend_if_left_slow(task: &Task, id: InodeId, section: &Seq) {
    let stuck = section.read();
    for _ in 0..SPINS {
        if section.read() != stuck {
            return;
        }
        spin();
    }
    let inode = task.region.inode(id);
    if inode.lock.is_left_by_the_dead(task)
        && let Some(_locked) = lock_unless_held(task, id)
    {
        // Taking the lock over from the dead also mends. In a damaged region nobody may have held it.
        mend(task, id, inode);
    }
}

/// `st_ino` of an inode that no layer has. A slot's first inode has its index. Later ones have its generation
/// above that, so that programs do not take a new file for a removed one. They are below twice
/// [`ABOVE_LAYER`]: JavaScript's numbers are exact up to there.
#[inline]
pub fn own_number(region: Region<'_>, of: InodeRef) -> u64 {
    let own = (u64::from(of.generation) * INODES as u64 + u64::from(of.id.0)) % ABOVE_LAYER;
    region.header().numbers.load(Relaxed) + own // Relaxed: it does not change.
}

/// `st_ino` of an inode that is not freed meanwhile.
#[inline]
pub fn number(region: Region<'_>, id: InodeId) -> u64 {
    region.inode(id).number.load(Relaxed) // Relaxed: immutable.
}

/// `st_ino`, without a look at the inode if no layer is below.
#[inline]
pub(crate) fn number_of(region: Region<'_>, of: InodeRef) -> u64 {
    // Relaxed: it does not change.
    match region.header().numbers.load(Relaxed) {
        0 => own_number(region, of),
        _ => number(region, of.id),
    }
}

/// Whether an inode's number is one that it can have.
pub fn has_possible_number(region: Region<'_>, of: InodeRef) -> bool {
    let number = number(region, of.id);
    let is_of_layer = 0 < number && number < region.header().numbers.load(Relaxed); // Relaxed: as above.
    is_of_layer || number == own_number(region, of)
}

#[inline(always)]
fn copy_attributes(inode: &Inode) -> Attributes {
    // Relaxed throughout: ordered and validated by `seq`.
    let mode = inode.mode.load(Relaxed);
    let (size, blocks) = size_and_blocks(inode, mode);
    Attributes {
        mode,
        nlink: inode.nlink.load(Relaxed),
        uid: inode.uid.load(Relaxed),
        gid: inode.gid.load(Relaxed),
        rdev: inode.rdev.load(Relaxed),
        root: inode.root.load(Relaxed),
        size,
        blocks,
        atime: time(&inode.atime),
        mtime: time(&inode.mtime),
        ctime: changed(inode),
        btime: born(inode),
    }
}

/// Reads a time of an inode. Relaxed: guarded by `seq`.
#[inline(always)]
fn time(stamp: &Stamp) -> Time {
    Time { sec: stamp.sec.load(Relaxed) as i64, nsec: stamp.nsec.load(Relaxed) }
}

/// Sets a time of an inode, inside a `seq` section.
#[inline(always)]
pub(crate) fn set_time(stamp: &Stamp, time: Time) {
    stamp.sec.store(time.sec as u64, Relaxed);
    stamp.nsec.store(time.nsec, Relaxed);
}

/// Reads the change time of an inode. Relaxed: as [`time`].
#[inline(always)]
fn changed(inode: &Inode) -> Time {
    Time { sec: inode.ctime.load(Relaxed) as i64, nsec: inode.ctime_nsec.load(Relaxed) }
}

/// Sets the change time of an inode, inside a `seq` section.
#[inline(always)]
pub(crate) fn set_changed(inode: &Inode, time: Time) {
    inode.ctime.store(time.sec as u64, Relaxed);
    inode.ctime_nsec.store(time.nsec, Relaxed);
}

/// Sets the number of an inode's links, and whether it has none. Inside a `seq` section, or before anybody
/// can reach the inode.
#[inline(always)]
pub(crate) fn set_links(inode: &Inode, nlink: u32) {
    // Relaxed throughout: inside the section. Who opens or closes takes the flag as seen.
    inode.nlink.store(nlink, Relaxed);
    let flags = inode.flags.load(Relaxed);
    if (nlink == 0) != (flags & inode_flags::DEAD != 0) {
        inode.flags.store(flags ^ inode_flags::DEAD, Relaxed);
    }
}

/// Sets a word of line 1, inside a `seq` section. A word that already has the value is not stored, so that
/// walks keep the line.
#[inline(always)]
pub(crate) fn put(word: &AtomicU32, value: u32) {
    // Relaxed, both: inside the section.
    if word.load(Relaxed) != value {
        word.store(value, Relaxed);
    }
}

/// `st_size` and `st_blocks` as on tmpfs.
#[inline(always)]
pub(crate) fn size_and_blocks(inode: &Inode, mode: u32) -> (u64, u64) {
    if mode & S_IFMT == S_IFDIR {
        return ((2 + u64::from(inode.entries.load(Relaxed))) * ENTRY_BYTES, 0);
    }
    (inode.size.load(Relaxed), u64::from(inode.pages.load(Relaxed)) * 8)
}

/// An inode's lock, held; dropping this releases it.
#[must_use = "the lock is given back once this is dropped"]
pub struct Locked<'r> {
    inode: &'r Inode,
    hold: Hold,
    /// The holder's mark, for [`Hold::Biased`].
    mark: &'r AtomicU32,
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.inode.lock.leave(self.hold, self.mark);
        order::gave(order::of(self.mark), self.inode);
    }
}

/// Takes an inode's lock. If its holder died, repairs what it left first.
#[inline]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub fn lock<'r>(task: &Task<'r>, id: InodeId) -> Locked<'r> {
    let inode = task.region.inode(id);
    order::wait(order::of(&task.lane.holding), order::inode(inode, id.0));
    inode.lock.lock(task.lane_id, &InodeUndertaker { task, id, inode });
    Locked { inode, hold: Hold::Owned, mark: &task.lane.holding }
}

/// Takes an inode's lock like [`lock`], unless a live thread holds it, which may be stopped. For callers that
/// do not need the inode itself.
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub fn lock_unless_held<'r>(task: &Task<'r>, id: InodeId) -> Option<Locked<'r>> {
    let inode = task.region.inode(id);
    let undertaker = InodeUndertaker { task, id, inode };
    if !inode.lock.try_lock(task.lane_id, &undertaker) {
        if !inode.lock.is_left_by_the_dead(&undertaker) {
            return None;
        }
        inode.lock.lock(task.lane_id, &undertaker);
    }
    order::took(order::of(&task.lane.holding), order::inode(inode, id.0));
    Some(Locked { inode, hold: Hold::Owned, mark: &task.lane.holding })
}

/// Waits until nobody holds an inode's lock. The caller must hold none.
#[cold]
pub(crate) fn wait(task: &Task, id: InodeId) {
    order::idle(order::of(&task.lane.holding));
    drop(lock(task, id));
}

/// Takes an inode's lock for a caller that holds others and so must not wait for a possibly stopped thread:
/// waits only for a moment.
#[inline]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn lock_soon<'r>(task: &Task<'r>, id: InodeId) -> Option<Locked<'r>> {
    match lock_at_once(task, id) {
        Some(locked) => Some(locked),
        None => lock_soon_slow(task, id),
    }
}

/// [`lock_soon`] without waiting.
#[inline(always)]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn lock_at_once<'r>(task: &Task<'r>, id: InodeId) -> Option<Locked<'r>> {
    let inode = task.region.inode(id);
    if !inode.lock.try_lock_unbiased(task.lane_id) {
        return None;
    }
    order::took(order::of(&task.lane.holding), order::inode(inode, id.0));
    Some(Locked { inode, hold: Hold::Owned, mark: &task.lane.holding })
}

#[cold]
fn lock_soon_slow<'r>(task: &Task<'r>, id: InodeId) -> Option<Locked<'r>> {
    let inode = task.region.inode(id);
    for _ in 0..LOCK_SPINS {
        if inode.lock.holder().is_none() {
            break;
        }
        spin();
    }
    lock_unless_held(task, id)
}

/// Takes an inode's lock like [`lock`], but without an atomic instruction if this lane is its only user. A
/// lane enters one inode at a time; until it leaves it must take the locks of others with [`lock`].
#[inline(always)]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub fn enter<'r>(task: &Task<'r>, id: InodeId) -> Locked<'r> {
    let inode = task.region.inode(id);
    let mark = &task.lane.holding;
    order::wait(order::of(&task.lane.holding), order::inode(inode, id.0));
    let hold = inode.lock.enter(task.lane_id, mark, &InodeUndertaker { task, id, inode });
    Locked { inode, hold, mark }
}

/// Takes over an inode's lock from a dead lane.
struct InodeUndertaker<'t, 'r> {
    task: &'t Task<'r>,
    id: InodeId,
    inode: &'r Inode,
}

impl Undertaker for InodeUndertaker<'_, '_> {
    fn lanes(&self) -> &dyn Lanes {
        self.task
    }

    fn replay(&self, lane: LaneId) {
        self.task.replay(lane);
    }

    fn repair(&self, _lane: LaneId) {
        mend(self.task, self.id, self.inode);
    }

    fn may_bias(&self) -> bool {
        !watched::has_shadow(self.inode) && !limited::any(self.task)
    }
}

/// Ends the sections that a dead lane left open. The caller must hold the inode's lock and have replayed the
/// lane's intent.
///
/// Cuts off what lies beyond the end of the content: an unfinished growing write or truncation.
#[cold]
pub(crate) fn mend(task: &Task, id: InodeId, inode: &Inode) {
    if inode.data_seq.read() & 1 != 0 {
        if inode.mode.load(Relaxed) & S_IFMT == S_IFREG {
            // Nobody writes to or truncates what is shared whole.
            if inode.flags.load(Relaxed) & inode_flags::SHARES == 0 {
                cut::cut_again(task, id, inode, inode.size.load(Relaxed));
            }
            inode.seq.begin();
            inode.pages.store(map::count(task.region, inode) as u32, Relaxed); // Relaxed: inside the section.
        }
        inode.data_seq.end();
    }
    if inode.seq.read() & 1 != 0 {
        inode.seq.end();
    }
}

/// An inode's birth time.
#[inline]
pub(crate) fn born(inode: &Inode) -> Time {
    // Relaxed: immutable.
    Time { sec: inode.btime.load(Relaxed) as i64, nsec: inode.btime_nsec.load(Relaxed) }
}

/// Selects the times to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    /// `ctime`: attributes changed.
    Change,
    /// `mtime` and `ctime`: content or entries changed.
    Modify,
}

/// Sets times to the current time. The caller must hold the inode's lock and not be in a `seq` section.
pub(crate) fn touch(task: &Task, inode: &Inode, what: Touch) {
    let now = task.now();
    inode.seq.begin();
    touch_in_section(inode, what, now);
    inode.seq.end();
}

/// Sets times to `now`. The caller must be in a `seq` section of the inode.
#[inline]
pub(crate) fn touch_in_section(inode: &Inode, what: Touch, now: Time) {
    // Relaxed throughout: inside the section.
    if what == Touch::Modify {
        set_time(&inode.mtime, now);
    }
    set_changed(inode, now);
    inode.atime_due.store(0, Relaxed);
}

/// Whether the last change of the content is recorded as of `now` already, and the next read will check the
/// access time.
#[inline]
pub(crate) fn is_modified_at(inode: &Inode, now: Time) -> bool {
    // Relaxed: the caller holds the lock.
    time(&inode.mtime) == now && changed(inode) == now && inode.atime_due.load(Relaxed) == 0
}

/// Access and modification time. The caller must hold the inode's lock.
pub(crate) fn access_and_modification(inode: &Inode) -> (Time, Time) {
    (time(&inode.atime), time(&inode.mtime))
}

/// The inode's attributes. The caller must hold the inode's lock.
pub(crate) fn attributes_locked(inode: &Inode) -> Attributes {
    copy_attributes(inode)
}

/// Sets all times but the birth time. The caller must hold the inode's lock.
pub(crate) fn set_times(inode: &Inode, atime: Time, mtime: Time, ctime: Time) {
    inode.seq.begin();
    set_time(&inode.atime, atime);
    set_time(&inode.mtime, mtime);
    touch_in_section(inode, Touch::Change, ctime);
    inode.seq.end();
}

/// Records a read of `bytes`: sets the access time if relatime requires it, or [`strict`]. Otherwise costs
/// two loads and a store to the lane. `mount` is the mount that the read used. The access time of an inode
/// that may be watched is always due.
#[inline(always)]
pub(crate) fn accessed(task: &Task, inode: &Inode, bytes: usize, mount: impl FnOnce() -> MountId) {
    if is_due(task, inode) {
        accessed_slow(task, inode, bytes, mount());
    }
}

/// Whether a read must look at the access time.
#[inline(always)]
fn is_due(task: &Task, inode: &Inode) -> bool {
    let marks = &task.lane.reads;
    // Relaxed throughout: the lane's own words, and a hint of the inode's.
    let reads = marks.count.load(Relaxed).wrapping_add(1);
    marks.count.store(reads, Relaxed);
    let due = u64::from(inode.atime_due.load(Relaxed));
    due <= marks.second.load(Relaxed) || reads.is_multiple_of(CLOCK_EVERY)
}

/// [`accessed`] through an open file, whose `O_NOATIME` keeps the time and not the event.
#[inline(always)]
pub(crate) fn read_by(task: &Task, file: &OpenFile, inode: &Inode, bytes: usize) {
    if is_due(task, inode) {
        read_by_slow(task, file, inode, bytes);
    }
}

#[cold]
fn read_by_slow(task: &Task, file: &OpenFile, inode: &Inode, bytes: usize) {
    // Relaxed: one word.
    match file.flags.load(Relaxed) & O_NOATIME {
        0 => accessed_slow(task, inode, bytes, file.mount()),
        _ => reported(task, inode, bytes),
    }
}

#[cold]
fn accessed_slow(task: &Task, inode: &Inode, bytes: usize, mount: MountId) {
    stamp_access(task, inode, mount);
    reported(task, inode, bytes);
}

fn reported(task: &Task, inode: &Inode, bytes: usize) {
    if bytes != 0 {
        watched::read_slow(task, inode);
    }
}

/// Whether a read now would set the access time, as in the kernel's atime_needs_update.
pub(crate) fn is_access_due(task: &Task, inode: &Inode, mount: MountId) -> bool {
    let (seen, now) = (copy_attributes(inode), task.now());
    let keeps = inode.flags.load(Relaxed) & inode_flags::NOATIME != 0
        || task.region.mount(mount).flags.load(Relaxed) & mount_flags::NOATIME != 0;
    !keeps && is_stale(&seen, now) && seen.atime != now
}

/// Whether relatime lets a read change the access time.
fn is_stale(seen: &Attributes, now: Time) -> bool {
    let late = (now.sec - seen.atime.sec) as u64 >= RELATIME && now.sec > seen.atime.sec;
    seen.atime <= seen.mtime || seen.atime <= seen.ctime || late
}

fn stamp_access(task: &Task, inode: &Inode, mount: MountId) {
    let now = task.now();
    task.lane.reads.second.store(now.sec as u64, Relaxed);
    let due = inode.atime_due.load(Relaxed); // Relaxed: checked again below.
    let flags = task.region.mount(mount).flags.load(Relaxed); // Relaxed: one word.
    let never =
        if inode.is_dir() { mount_flags::NOATIME | mount_flags::NODIRATIME } else { mount_flags::NOATIME };
    // A change within another change would use that change's mark.
    let within = task.lane.writing_depth.load(Relaxed) != 0;
    // A stopped process may hold the lock, so a read does not wait for it below; the next read tries again.
    let fixed = inode.flags.load(Relaxed) & inode_flags::NOATIME != 0;
    if u64::from(due) > now.sec as u64 || fixed || flags & never != 0 || within {
        return;
    }
    let Ok(_writing) = writer::begin(task, mount) else { return };
    if !inode.lock.try_lock(task.lane_id, task) {
        return;
    }
    order::took(order::of(&task.lane.holding), order::what(Rank::Inode, inode));
    let _held = Locked { inode, hold: Hold::Owned, mark: &task.lane.holding };
    let seen = copy_attributes(inode);
    let mut atime = seen.atime;
    if strict::is_one(flags) || is_stale(&seen, now) {
        inode.seq.begin();
        set_time(&inode.atime, now);
        inode.seq.end();
        atime = now;
    }
    // In the clock tick of the last change the next read must check again, because relatime compares with
    // "not later than".
    if atime > seen.mtime && atime > seen.ctime && !watched::has_shadow(inode) {
        let due = atime.sec.max(0) as u64 + RELATIME;
        strict::set_due(task, inode, due.try_into().unwrap_or(u32::MAX));
    }
}

//! Liveness: process slots, their record locks, and lanes.
//!
//! A process holds a POSIX record lock on byte `LIVE_AT + slot` of the *life file*, whose descriptor every
//! process of a run inherits beside the region's ([`crate::life_file`]). The kernel drops the lock when the
//! process dies, keeps it across exec, and does not give it to a fork's child. F_GETLK queries it. In private
//! memory there is only one process, and it is alive.
//!
//! A process takes its lock before it marks its slot live, and drops it after it has cleared that mark. So a
//! slot marked live whose byte nobody has locked belongs to a dead process, or its word changes before anyone
//! can act on the verdict: every action is a compare-and-swap of the very word that the verdict was based on
//! ([`crate::life`]).
//!
//! A process that claims a slot for itself must be seen alive from the first moment, but may find the slot
//! taken by another's child, whose byte it must not lock even for a moment. So it first locks the slot's
//! *claim byte*, `LIVE_AT + PROCESSES + slot`, which counts while the slot is in state claimed only.
//!
//! A child that has not run yet has no lock. Neither has a child that shares its parent's descriptor table,
//! which owns record locks. Such a child is dead if the process that its parent saw created is gone, or if
//! the parent died before it created one. A process that cannot know this, because it is in another pid
//! namespace, considers the child alive as long as its run lasts.
//!
//! A run also has processes without slots, which have not used a mount yet. All its processes share the
//! launcher's open file description of the region, which holds a lock (F_OFD_SETLK) on byte `LIVE_AT +
//! PROCESSES + run` of the region's file.

use lp_abi::linux::{
    __NR_fcntl, __NR_getpid, __NR_kill, F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_RDLCK, F_SETLK, F_UNLCK,
    F_WRLCK, flock,
};
use lp_abi::{Errno, Result};

use crate::ids::*;
use crate::lane::GONE;
use crate::layout as at;
use crate::life::{Life, SlotState};
use crate::process::{Process, UNANNOUNCED};
use crate::region::Region;
use crate::sync::Ordering;

/// First byte of the range that record locks use, beyond any data.
const LIVE_AT: i64 = 1 << 60;

impl<'r> Region<'r> {
    /// Claims a free process slot for a child to come, or for the caller itself. `claimer` is the lane of the
    /// thread that will create the child, or none: then the slot is not considered dead before its run is
    /// over.
    ///
    /// # Errors
    /// `EAGAIN` when all [`at::PROCESSES`] slots are taken.
    pub fn claim_process(self, run: RunId, claimer: LaneId) -> Result<ProcessId> {
        for index in 1..at::PROCESSES as u32 {
            let id = ProcessId(index);
            self.back_process(index).map_err(|_| Errno::EAGAIN)?;
            let process = self.process(id);
            let life = process.life.get();
            if life.state() != SlotState::Free {
                continue;
            }
            // A scan of all slots includes this one from before it is claimed.
            self.header().process_limit.fetch_max(index + 1, Ordering::Relaxed);
            if process.life.change(life, life.becoming(SlotState::Born, claimer)) {
                // No child is created before the claimer asks for one. A slot without a claimer may be
                // anyone's.
                let pid = if claimer.is_none() { UNANNOUNCED } else { 0 };
                process.pid.store(pid, Ordering::Relaxed);
                process.run.store(run.0, Ordering::Relaxed);
                return Ok(id);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Claims a free process slot for the calling process, which has none. At no moment is the slot taken but
    /// without an owner.
    ///
    /// # Errors
    /// `EAGAIN` when all are taken; errors of fcntl(2).
    pub fn claim_own_process(self, run: RunId) -> Result<ProcessId> {
        for index in 1..at::PROCESSES as u32 {
            let id = ProcessId(index);
            self.back_process(index).map_err(|_| Errno::EAGAIN)?;
            let process = self.process(id);
            let life = process.life.get();
            if life.state() != SlotState::Free || self.lock_slot(claim_of(id, F_WRLCK as i16)).is_err() {
                continue;
            }
            self.header().process_limit.fetch_max(index + 1, Ordering::Relaxed);
            let claimed = life.becoming(SlotState::Claimed, LaneId::NONE);
            let taken = process.life.change(life, claimed).then(|| self.own_claimed(id, claimed, run));
            self.lock_slot(claim_of(id, F_UNLCK as i16))?;
            if let Some(taken) = taken {
                return taken.map(|()| id);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Makes the calling process the owner of a slot that it has claimed, or frees it.
    fn own_claimed(self, id: ProcessId, claimed: Life, run: RunId) -> Result<()> {
        let process = self.process(id);
        let locked = self.lock_slot(flock_of(id, F_WRLCK as i16));
        // SAFETY: getpid has no effect, and does not fail.
        let pid = unsafe { lp_abi::syscall!(__NR_getpid) };
        process.pid.store(pid.unwrap_or_default() as u32, Ordering::Relaxed);
        process.run.store(run.0, Ordering::Relaxed);
        let live = claimed.becoming(SlotState::Live, LaneId::NONE);
        process.life.change(claimed, if locked.is_ok() { live } else { claimed.freed() });
        locked
    }

    /// Takes or drops a record lock of a slot.
    fn lock_slot(self, mut lock: flock) -> Result<()> {
        if !self.has_file() {
            return Ok(());
        }
        // SAFETY: the kernel reads the struct. Unlocking a lock that another process holds has no effect.
        unsafe { lp_abi::syscall!(__NR_fcntl, self.life_fd(), F_SETLK, &raw mut lock) }.map(drop)
    }

    /// Makes the calling process the owner of `id`: takes its record lock and marks it live. After exec it
    /// already is the owner and still holds the lock.
    ///
    /// # Errors
    /// `ESRCH` when the slot was reaped meanwhile; errors of fcntl(2).
    pub fn animate(self, id: ProcessId) -> Result<()> {
        let process = self.process(id);
        // SAFETY: getpid has no effect.
        let pid = unsafe { lp_abi::syscall!(__NR_getpid) }? as u32;
        // Relaxed: if the slot belongs to this process, it wrote these words itself.
        let owned = process.pid.load(Ordering::Relaxed) == pid;
        let life = process.life.get();
        if owned && life.state() == SlotState::Live {
            return Ok(());
        }
        self.lock_slot(flock_of(id, F_WRLCK as i16))?;
        match life.state() == SlotState::Born
            && process.life.change(life, life.becoming(SlotState::Live, before(process)))
        {
            true => {
                process.pid.store(pid, Ordering::Relaxed);
                Ok(())
            }
            false => Err(Errno::ESRCH),
        }
    }

    /// Records the calling process as the one of slot `id`, which stays born, because the process cannot take
    /// a record lock before its exec. Its creator is no longer responsible for it.
    ///
    /// # Errors
    /// `ESRCH` when the slot was reaped meanwhile.
    pub fn introduce(self, id: ProcessId, pid_namespace: u32) -> Result<()> {
        let process = self.process(id);
        // SAFETY: getpid has no effect.
        let pid = unsafe { lp_abi::syscall!(__NR_getpid) }? as u32;
        process.pid_namespace.store(pid_namespace, Ordering::Relaxed);
        // PAIRS: the acquire in `unborn_is_dead`.
        process.pid.store(pid, Ordering::Release);
        let life = process.life.get();
        match life.state() == SlotState::Born
            && process.life.change(life, life.becoming(SlotState::Born, LaneId::NONE))
        {
            true => Ok(()),
            false => Err(Errno::ESRCH),
        }
    }

    /// Makes the calling process's slot one that is born, before another process shares the kernel's
    /// descriptor table: the record lock belongs to the table, so it would outlive this process, and an exec
    /// would leave it to the other. Does nothing if the slot is born already. [`Region::animate`] takes the
    /// lock again.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn give_up_lock(self, id: ProcessId, pid_namespace: u32) -> Result<()> {
        let process = self.process(id);
        let life = process.life.get();
        if life.state() == SlotState::Live {
            process.pid_namespace.store(pid_namespace, Ordering::Relaxed);
            // Relaxed: published with the word. Another thread that does the same only makes it larger.
            process.births.fetch_add(1, Ordering::Relaxed);
            process.life.change(life, life.becoming(SlotState::Born, LaneId::NONE));
            self.lock_slot(flock_of(id, F_UNLCK as i16))?;
        }
        Ok(())
    }

    /// Whether the process of slot `id` is gone. `me` is the calling process, which is alive.
    pub fn process_is_dead(self, id: ProcessId, me: ProcessId) -> bool {
        // A process restricted by a filter cannot query locks.
        if id == me || !self.has_file() || lp_abi::sys::is_limited() {
            return false;
        }
        let process = self.process(id);
        match process.life.get().state() {
            SlotState::Free => true,
            SlotState::Born => self.unborn_is_dead(process, me),
            SlotState::Claimed => self.is_unlocked(claim_of(id, F_WRLCK as i16)),
            SlotState::Live | SlotState::Dying => self.is_unlocked(flock_of(id, F_WRLCK as i16)),
        }
    }

    /// Returns the word of slot `id` if another process must empty it: its own process is dead, and no live
    /// process is emptying it.
    pub fn left_by_the_dead(self, id: ProcessId, me: ProcessId) -> Option<Life> {
        let life = self.process(id).life.get();
        let left = match life.state() {
            SlotState::Free => false,
            SlotState::Born | SlotState::Claimed | SlotState::Live => self.process_is_dead(id, me),
            // Its own process keeps the record lock until it has emptied the slot.
            SlotState::Dying => {
                let reaper = life.lane();
                self.is_unlocked(flock_of(id, F_WRLCK as i16))
                    && (reaper.is_none() || self.lane_is_dead(reaper, me))
            }
        };
        left.then_some(life)
    }

    /// The number of the process of slot `id` in the caller's pid namespace, 0 if it is not seen there. `None`
    /// if the kernel cannot be asked, which knows by the process's record lock, or the process is the caller.
    pub fn process_number(self, id: ProcessId) -> Option<u32> {
        if !self.has_file() || lp_abi::sys::is_limited() {
            return None;
        }
        let holder = self.holder_of(flock_of(id, F_WRLCK as i16))?;
        (holder.l_type != F_UNLCK as i16).then_some(holder.l_pid as u32)
    }

    /// Whether no other process holds a record lock.
    fn is_unlocked(self, lock: flock) -> bool {
        self.holder_of(lock).is_some_and(|holder| holder.l_type == F_UNLCK as i16)
    }

    /// The lock of another process that excludes a record lock, of kind `F_UNLCK` if there is none.
    fn holder_of(self, mut lock: flock) -> Option<flock> {
        // SAFETY: the kernel writes the struct.
        unsafe { lp_abi::syscall!(__NR_fcntl, self.life_fd(), F_GETLK, &raw mut lock) }.ok()?;
        Some(lock)
    }

    /// Whether a child that has not taken its lock yet never will.
    fn unborn_is_dead(self, process: &Process, me: ProcessId) -> bool {
        let asking = self.process(me);
        // Relaxed throughout: the caller acts on the slot's word, which changes when these do.
        let claimer = process.life.get().lane();
        let claimer_is_dead = claimer.is_some() && self.lane_is_dead(claimer, me);
        // If the claimer was dead above, the kernel has already written the id or never will.
        let pid = process.pid.load(Ordering::Acquire);
        let run = process.run.load(Ordering::Relaxed);
        if pid == 0 || run == 0 {
            return claimer_is_dead;
        }
        if me.is_none() || run != asking.run.load(Ordering::Relaxed) {
            return !self.run_is_held(RunId(run));
        }
        let namespace = process.pid_namespace.load(Ordering::Relaxed);
        if namespace == 0 || namespace != asking.pid_namespace.load(Ordering::Relaxed) {
            return false;
        }
        pid != UNANNOUNCED && has_ended(pid)
    }

    /// Whether the owner of `lane` is gone.
    pub fn lane_is_dead(self, lane: LaneId, me: ProcessId) -> bool {
        let record = self.lane(lane);
        let owner = ProcessId(record.process.load(Ordering::Acquire));
        owner.is_none()
            || record.generation.load(Ordering::Acquire) != lane.0 >> at::LANE_BITS
            || record.tid.load(Ordering::Acquire) == GONE
            || self.process_is_dead(owner, me)
    }

    /// Claims a lane for a thread of `process`: the one with the process's number if it is free, so that a
    /// single-threaded process uses one lane only.
    ///
    /// # Errors
    /// `EAGAIN` when all are taken.
    pub fn claim_lane(self, process: ProcessId, tid: u32) -> Result<LaneId> {
        for index in core::iter::once(process.0).chain(1..at::LANES as u32) {
            self.back_lane(index).map_err(|_| Errno::EAGAIN)?;
            if let Some(lane) = self.try_claim_lane(LaneId(index), process, tid) {
                return Ok(lane);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Claims one lane for a thread of `process` if it has no owner. Space for it is reserved in the region's
    /// file.
    pub fn try_claim_lane(self, id: LaneId, process: ProcessId, tid: u32) -> Option<LaneId> {
        let lane = self.lane(id);
        if lane.process.load(Ordering::Relaxed) != 0 {
            return None;
        }
        // A scan of all lanes includes this one from before it is claimed.
        self.header().lane_limit.fetch_max(id.0 + 1, Ordering::Relaxed);
        // PAIRS: the release store in `release_lane`.
        lane.process.compare_exchange(0, process.0, Ordering::Acquire, Ordering::Relaxed).ok()?;
        lane.tid.store(tid, Ordering::Relaxed);
        let id = self.lane_id(id.0);
        lane.id.store(id.0, Ordering::Relaxed);
        Some(id)
    }

    /// Releases a lane. Its caches stay in it for the next owner; its marks must be clear.
    pub fn release_lane(self, lane: LaneId) {
        self.retire_lane(lane);
        self.lane(lane).quiescent.reset();
        // PAIRS: the acquire in `claim_lane`.
        self.lane(lane).process.store(0, Ordering::Release);
    }

    /// Marks the lane's owner as gone; [`Region::release_lane`] follows.
    pub fn retire_lane(self, lane: LaneId) {
        let record = self.lane(lane);
        // Locks that still name this generation are held by the dead. To be mistaken for a live owner's, a
        // lock would have to stay unwanted over 2^17 owners of the lane.
        let next = record.generation.load(Ordering::Relaxed).wrapping_add(1) % at::LANE_GENERATIONS;
        record.generation.store(next, Ordering::Release);
    }

    /// The lane with this index, in its current generation.
    pub fn lane_id(self, index: u32) -> LaneId {
        let generation = self.lane(LaneId(index)).generation.load(Ordering::Acquire);
        LaneId(generation << at::LANE_BITS | index)
    }

    /// All lanes of all processes that are currently claimed.
    pub fn lanes(self) -> impl Iterator<Item = LaneId> + 'r {
        (1..self.header().lane_limit.load(Ordering::Acquire).min(at::LANES as u32))
            .filter(move |index| self.lane(LaneId(*index)).process.load(Ordering::Acquire) != 0)
            .map(move |index| self.lane_id(index))
    }

    /// Marks a slot whose word is `life` as being emptied by `reaper`; returns its new word, unless the slot
    /// has changed.
    pub fn begin_emptying(self, id: ProcessId, life: Life, reaper: LaneId) -> Option<Life> {
        let dying = life.becoming(SlotState::Dying, reaper);
        self.process(id).life.change(life, dying).then_some(dying)
    }

    /// Frees the caller's own slot, which it has emptied: its record lock first. Nothing of it may be in use
    /// any more. `dying` is what [`Region::begin_emptying`] returned.
    pub fn release_process(self, id: ProcessId, dying: Life) {
        self.process(id).clear();
        let _ = self.lock_slot(flock_of(id, F_UNLCK as i16));
        // From here on an exiting process may be considered dead; whoever does so frees the slot for it.
        self.process(id).life.change(dying, dying.freed());
    }

    /// [`Region::release_process`] for the slot of a dead process, which has no lock.
    pub fn free_process(self, id: ProcessId, dying: Life) {
        self.process(id).clear();
        self.process(id).life.change(dying, dying.freed());
    }

    /// Drops the record lock of the caller's own slot, which is dying and has no reaper: whoever looks at it
    /// next may empty it.
    pub fn leave_to_reapers(self, id: ProcessId) {
        let _ = self.lock_slot(flock_of(id, F_UNLCK as i16));
    }

    /// Leaves a slot that could not be emptied to the next reaper.
    pub fn abandon_emptying(self, id: ProcessId, dying: Life) {
        self.process(id).life.change(dying, dying.becoming(SlotState::Dying, LaneId::NONE));
    }

    /// Holds a run until the last process has closed the region's open file description, which is the
    /// caller's.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn hold_run(self, id: RunId) -> Result<()> {
        if self.has_file() {
            let mut lock = run_lock_of(id, F_RDLCK as i16);
            // SAFETY: the kernel reads the struct.
            unsafe { lp_abi::syscall!(__NR_fcntl, self.fd(), F_OFD_SETLK, &raw mut lock) }?;
        }
        Ok(())
    }

    /// Whether processes of another launcher hold a run.
    pub fn run_is_held(self, id: RunId) -> bool {
        self.is_locked_by_others(run_lock_of(id, F_WRLCK as i16))
    }

    /// Whether processes of another launcher hold any run.
    pub fn any_run_is_held(self) -> bool {
        let all = flock { l_len: at::RUNS as i64 - 1, ..run_lock_of(RunId(1), F_WRLCK as i16) };
        self.is_locked_by_others(all)
    }

    fn is_locked_by_others(self, mut lock: flock) -> bool {
        // SAFETY: the kernel writes the struct.
        let asked = unsafe { lp_abi::syscall!(__NR_fcntl, self.fd(), F_OFD_GETLK, &raw mut lock) };
        asked.is_ok() && lock.l_type != F_UNLCK as i16
    }

    /// Process slots that are currently not free.
    pub fn processes(self) -> impl Iterator<Item = ProcessId> + 'r {
        (1..self.header().process_limit.load(Ordering::Acquire).min(at::PROCESSES as u32))
            .map(ProcessId)
            .filter(move |id| self.process(*id).life.get().state() != SlotState::Free)
    }
}

/// What the word of a slot that becomes live says: how often it was live before.
fn before(process: &Process) -> LaneId {
    LaneId(process.births.load(Ordering::Relaxed)) // Relaxed: the process's own word.
}

/// Whether a process in the caller's pid namespace has ended and was waited for.
fn has_ended(pid: u32) -> bool {
    // SAFETY: signal 0 sends nothing.
    let asked = unsafe { lp_abi::syscall!(__NR_kill, pid, 0) };
    asked == Err(Errno::ESRCH)
}

fn run_lock_of(id: RunId, kind: i16) -> flock {
    lock_on(at::PROCESSES as i64 + i64::from(id.0), kind)
}

fn flock_of(id: ProcessId, kind: i16) -> flock {
    lock_on(i64::from(id.0), kind)
}

fn claim_of(id: ProcessId, kind: i16) -> flock {
    lock_on(at::PROCESSES as i64 + i64::from(id.0), kind)
}

/// A lock on a byte of the range.
fn lock_on(byte: i64, kind: i16) -> flock {
    flock { l_type: kind, l_whence: 0, l_start: LIVE_AT + byte, l_len: 1, l_pid: 0 }
}

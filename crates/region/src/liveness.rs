//! Who lives: process slots, their record locks, lanes.
//!
//! A process holds a POSIX record lock on byte `LIVE_AT + slot` of the *life file*, whose descriptor every process of a run
//! inherits beside the region's ([`crate::life_file`]). The kernel drops the lock when the process dies, keeps it over exec and
//! gives none to a fork's child; F_GETLK asks. In private memory there is one process, and it lives.
//!
//! A run has processes without slots, too, which have not met a mount yet. What all its processes have is the launcher's
//! open file description of the region, and that holds a lock (F_OFD_SETLK) on byte `LIVE_AT + PROCESSES + run` of the
//! region's file.

use lp_abi::linux::{
    __NR_clock_gettime, __NR_fcntl, __NR_getpid, CLOCK_MONOTONIC, F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_RDLCK,
    F_SETLK, F_UNLCK, F_WRLCK,
};
use lp_abi::{Errno, Result};

use crate::ids::*;
use crate::lane::GONE;
use crate::layout as at;
use crate::process::{Process, process_state as state};
use crate::region::Region;
use crate::sync::Ordering;

/// First byte of the range that record locks use: beyond any data.
const LIVE_AT: i64 = 1 << 60;
/// How long a slot may wait for its child to appear, in nanoseconds.
const BORN_GRACE: u64 = 30_000_000_000;

#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    len: i64,
    pid: i32,
}

impl<'r> Region<'r> {
    /// Claims a free process slot for a child to come. The slot's old contents are cleared.
    ///
    /// # Errors
    /// `EAGAIN` when all [`at::PROCESSES`] slots are taken by live processes.
    pub fn claim_process(self, run: RunId) -> Result<ProcessId> {
        for index in 1..at::PROCESSES as u32 {
            let id = ProcessId(index);
            self.back_process(index).map_err(|_| Errno::EAGAIN)?;
            let process = self.process(id);
            if process.state.load(Ordering::Relaxed) != state::FREE {
                continue;
            }
            // The time first: a slot that stays in between for long was left by a death.
            process.born.store(monotonic_ns(), Ordering::Relaxed);
            let claim = process.state.compare_exchange(
                state::FREE,
                state::DYING, // Nobody reaps or uses it while it is being filled in.
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if claim.is_ok() {
                process.clear();
                process.run.store(run.0, Ordering::Relaxed);
                self.header().process_limit.fetch_max(index + 1, Ordering::Relaxed);
                process.state.store(state::BORN, Ordering::Release);
                return Ok(id);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Makes the calling process the owner of `id`: takes its record lock and marks it live. After exec it is that already,
    /// and the lock was kept.
    ///
    /// # Errors
    /// `ESRCH` when the slot was reaped meanwhile; errors of fcntl(2).
    pub fn animate(self, id: ProcessId) -> Result<()> {
        let process = self.process(id);
        // SAFETY: getpid has no effect.
        let pid = unsafe { lp_abi::syscall!(__NR_getpid) }? as u32;
        // Relaxed: its own process's words, if it is this one's.
        let owned = process.pid.load(Ordering::Relaxed) == pid;
        if owned && process.state.load(Ordering::Relaxed) == state::LIVE {
            return Ok(());
        }
        if self.fd() >= 0 {
            let mut lock = flock_of(id, F_WRLCK as i16);
            // SAFETY: the kernel reads the struct.
            unsafe { lp_abi::syscall!(__NR_fcntl, self.life_fd(), F_SETLK, &raw mut lock) }?;
        }
        process.pid.store(pid, Ordering::Relaxed);
        match process.state.compare_exchange(state::BORN, state::LIVE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(state::LIVE) => Ok(()),
            Err(_) => Err(Errno::ESRCH),
        }
    }

    /// Whether the process of slot `id` is gone. `me` is the asking process, which lives.
    pub fn process_is_dead(self, id: ProcessId, me: ProcessId) -> bool {
        if id == me || self.fd() < 0 {
            return false;
        }
        let process = self.process(id);
        match process.state.load(Ordering::Acquire) {
            state::FREE => true,
            state::BORN => self.is_overdue(process),
            // Between free and claimed, or between emptied and free.
            state::DYING if process.reaper.load(Ordering::Acquire) == 0 => self.is_overdue(process),
            _ => {
                let mut lock = flock_of(id, F_WRLCK as i16);
                // SAFETY: the kernel writes the struct.
                let asked = unsafe { lp_abi::syscall!(__NR_fcntl, self.life_fd(), F_GETLK, &raw mut lock) };
                asked.is_ok() && lock.kind == F_UNLCK as i16
            }
        }
    }

    /// A time in the future was on another boot of the machine: overdue as well.
    fn is_overdue(self, process: &Process) -> bool {
        monotonic_ns().wrapping_sub(process.born.load(Ordering::Relaxed)) > BORN_GRACE
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

    /// Claims a lane for a thread of `process`: the one numbered like the process if it is free, so that a process with
    /// one thread looks at one lane only.
    ///
    /// # Errors
    /// `EAGAIN` when all are taken.
    pub fn claim_lane(self, process: ProcessId, tid: u32) -> Result<LaneId> {
        for index in core::iter::once(process.0).chain(1..at::LANES as u32) {
            self.back_lane(index).map_err(|_| Errno::EAGAIN)?;
            let lane = self.lane(LaneId(index));
            if lane.process.load(Ordering::Relaxed) != 0 {
                continue;
            }
            // PAIRS: the release store of whoever gave the lane back.
            let claim = lane.process.compare_exchange(0, process.0, Ordering::Acquire, Ordering::Relaxed);
            if claim.is_ok() {
                self.header().lane_limit.fetch_max(index + 1, Ordering::Relaxed);
                lane.tid.store(tid, Ordering::Relaxed);
                let id = self.lane_id(index);
                lane.id.store(id.0, Ordering::Relaxed);
                return Ok(id);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Gives a lane back. Its caches stay in it for the next owner; its marks must be clear.
    pub fn release_lane(self, lane: LaneId) {
        self.retire_lane(lane);
        // PAIRS: the acquire in `claim_lane`.
        self.lane(lane).process.store(0, Ordering::Release);
    }

    /// Tells all who look that the lane's owner is gone; [`Region::release_lane`] follows.
    pub fn retire_lane(self, lane: LaneId) {
        let record = self.lane(lane);
        // Locks that still name this generation are of the dead. 18 bits of generation: a lock would have to stay
        // unwanted over 2^18 owners of the lane to be taken for a live one's.
        let next = record.generation.load(Ordering::Relaxed).wrapping_add(1) & (u32::MAX >> at::LANE_BITS);
        record.generation.store(next, Ordering::Release);
    }

    /// The lane with this index, as its owner of now.
    fn lane_id(self, index: u32) -> LaneId {
        let generation = self.lane(LaneId(index)).generation.load(Ordering::Acquire);
        LaneId(generation << at::LANE_BITS | index)
    }

    /// Lanes of all processes that are claimed now.
    pub fn lanes(self) -> impl Iterator<Item = LaneId> + 'r {
        (1..self.header().lane_limit.load(Ordering::Acquire).min(at::LANES as u32))
            .filter(move |index| self.lane(LaneId(*index)).process.load(Ordering::Acquire) != 0)
            .map(move |index| self.lane_id(index))
    }

    /// Gives the slot of a process back to be claimed again: its record lock first, if it is the caller's own. Nothing
    /// of it may be in use any more.
    pub fn release_process(self, id: ProcessId) {
        if self.fd() >= 0 {
            let mut lock = flock_of(id, F_UNLCK as i16);
            // SAFETY: the kernel reads the struct. Unlocking what another process holds has no effect.
            let _ = unsafe { lp_abi::syscall!(__NR_fcntl, self.life_fd(), F_SETLK, &raw mut lock) };
        }
        self.process(id).born.store(monotonic_ns(), Ordering::Relaxed);
        self.process(id).clear();
        // PAIRS: the acquire in `claim_process`.
        self.process(id).state.store(state::FREE, Ordering::Release);
    }

    /// Holds a run until the last process has closed the region's open file description, which is the caller's.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn hold_run(self, id: RunId) -> Result<()> {
        if self.fd() >= 0 {
            let mut lock = run_lock_of(id, F_RDLCK as i16);
            // SAFETY: the kernel reads the struct.
            unsafe { lp_abi::syscall!(__NR_fcntl, self.fd(), F_OFD_SETLK, &raw mut lock) }?;
        }
        Ok(())
    }

    /// Whether a run is held by another launcher's processes.
    pub fn run_is_held(self, id: RunId) -> bool {
        let mut lock = run_lock_of(id, F_WRLCK as i16);
        // SAFETY: the kernel writes the struct.
        let asked = unsafe { lp_abi::syscall!(__NR_fcntl, self.fd(), F_OFD_GETLK, &raw mut lock) };
        asked.is_ok() && lock.kind != F_UNLCK as i16
    }

    /// Process slots that are not free now.
    pub fn processes(self) -> impl Iterator<Item = ProcessId> + 'r {
        (1..self.header().process_limit.load(Ordering::Acquire).min(at::PROCESSES as u32))
            .map(ProcessId)
            .filter(move |id| self.process(*id).state.load(Ordering::Acquire) != state::FREE)
    }
}

fn run_lock_of(id: RunId, kind: i16) -> Flock {
    lock_on(at::PROCESSES as i64 + i64::from(id.0), kind)
}

fn flock_of(id: ProcessId, kind: i16) -> Flock {
    lock_on(i64::from(id.0), kind)
}

/// A lock on a byte of the range.
fn lock_on(byte: i64, kind: i16) -> Flock {
    Flock { kind, whence: 0, start: LIVE_AT + byte, len: 1, pid: 0 }
}

/// `CLOCK_MONOTONIC` in nanoseconds, by system call: for rare paths.
pub fn monotonic_ns() -> u64 {
    let mut now = [0u64; 2];
    // SAFETY: the kernel writes 16 bytes.
    let _ = unsafe { lp_abi::syscall!(__NR_clock_gettime, CLOCK_MONOTONIC, now.as_mut_ptr()) };
    now[0].wrapping_mul(1_000_000_000).wrapping_add(now[1])
}

//! [`Page`]: memory that the conductor and all actors of a schedule share, and the orders that pass through
//! it.
//!
//! One party acts at a time: the conductor gives an actor an order and waits until the actor reports how it
//! ended.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Actors of a schedule: victim, peer, second peer, a child of each that stays, the judge.
pub(crate) const ACTORS: usize = 7;
/// The victim.
pub(crate) const VICTIM: usize = 0;
/// Its peer.
pub(crate) const PEER: usize = 1;
/// A second peer, or a bystander.
pub(crate) const OTHER: usize = 2;
/// The child of actor n that stays is actor `CHILDREN + n`.
pub(crate) const CHILDREN: usize = 3;
/// The order in which actors start, which determines what they have from the beginning.
pub(crate) const CAST: [usize; CHILDREN] = [PEER, VICTIM, OTHER];
/// The judge.
pub(crate) const JUDGE: usize = 6;
/// Results that an actor can leave.
pub(crate) const RESULTS: usize = 32;
/// Bytes of a judge's report.
pub(crate) const TEXT: usize = 60_000;
/// Sixth argument of the futex calls that the explorer itself makes: those that a filter lets pass.
pub(crate) const OWN: usize = 0x6c70_6578;

/// States that an actor reports.
pub(crate) mod state {
    /// It acts on an order.
    pub(crate) const RUNNING: u32 = 0;
    /// It has completed its order.
    pub(crate) const DONE: u32 = 1;
    /// It is stopped between two instructions.
    pub(crate) const STOPPED: u32 = 2;
    /// It is about to wait for another process: the next order ends the wait like a timeout.
    pub(crate) const BLOCKED: u32 = 3;
    /// It has left and is about to end.
    pub(crate) const GONE: u32 = 4;
    /// It has panicked; the text contains the message.
    pub(crate) const PANICKED: u32 = 5;
}

/// Orders to an actor.
pub(crate) mod order {
    /// Make its calls.
    pub(crate) const CALLS: u32 = 1;
    /// Check whether what it had open is unchanged.
    pub(crate) const VERIFY: u32 = 2;
    /// Leave and end.
    pub(crate) const LEAVE: u32 = 3;
    /// Continue after a stop or a wait.
    pub(crate) const GO_ON: u32 = 4;
    /// Make the next call.
    pub(crate) const NEXT: u32 = 5;
    /// Record that the next call failed with `EBUSY`, without making it.
    pub(crate) const REFUSED: u32 = 6;
}

/// Communication between one actor and the conductor.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// Incremented with each order.
    pub orders: AtomicU32,
    /// The last order.
    pub order: AtomicU32,
    /// [`state`].
    pub state: AtomicU32,
    /// Its process.
    pub pid: AtomicU32,
    /// Instructions until it stops; 0 for never.
    pub left: AtomicU32,
    /// Instructions of its calls so far.
    pub steps: AtomicU32,
    /// Waits so far.
    pub waits: AtomicU32,
    /// Wakes of others so far.
    pub wakes: AtomicU32,
    /// Address of the futex that it waits for; 0 for a pause.
    pub waits_at: AtomicU64,
    /// A place where it stops instead of after `left` instructions: an address, and the number of arrivals
    /// there; 0 if steps are counted.
    pub place: AtomicU64,
    /// See `place`.
    pub hits: AtomicU32,
    /// 1 once a signal has arrived, until the interrupted call is over.
    pub signalled: AtomicU32,
    /// Calls made.
    pub made: AtomicU32,
    /// Results of the calls, followed by that of [`order::VERIFY`].
    pub results: [AtomicI64; RESULTS],
}

/// The shared memory.
#[repr(C)]
pub(crate) struct Page {
    /// By actor.
    pub slots: [Slot; ACTORS],
    /// Bytes of `text` in use.
    pub length: AtomicUsize,
    /// The judge's findings, or a panic's message.
    pub text: [AtomicU8; TEXT],
}

/// How an order ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// The [`state`] that the actor reported.
    State(u32),
    /// It died: the status of waitpid(2).
    Died(i32),
    /// Nothing has happened for so long that the actor must be stuck.
    Silence,
}

/// Limit of the processor time that an actor may use for an order. It is far beyond what any needs, and only
/// ends what would never end.
const PATIENCE: Duration = Duration::from_secs(10);

/// New memory shared with children: zeros, which must be a valid `T`.
pub(crate) fn shared<T>() -> &'static T {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, which stays; callers ask for structures of atomics.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), size_of::<T>(), access, kind, -1, 0);
        assert!(at != libc::MAP_FAILED, "mmap");
        &*at.cast()
    }
}

impl Page {
    /// New memory, shared with children.
    pub(crate) fn new() -> &'static Page {
        shared()
    }

    /// Maps a file of at least a page's length.
    pub(crate) fn of(fd: i32) -> &'static Page {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which stays; a page consists of atomics.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), size_of::<Page>(), access, libc::MAP_SHARED, fd, 0);
            assert!(at != libc::MAP_FAILED, "mmap");
            &*at.cast()
        }
    }

    /// Resets it. No actor is alive.
    pub(crate) fn clear(&self) {
        for slot in &self.slots {
            for word in [&slot.orders, &slot.order, &slot.state, &slot.pid, &slot.left, &slot.steps] {
                word.store(0, Ordering::Relaxed);
            }
            for word in [&slot.waits, &slot.wakes, &slot.made, &slot.hits, &slot.signalled] {
                word.store(0, Ordering::Relaxed);
            }
            slot.waits_at.store(0, Ordering::Relaxed);
            slot.place.store(0, Ordering::Relaxed);
            slot.results.iter().for_each(|result| result.store(0, Ordering::Relaxed));
        }
        self.length.store(0, Ordering::Relaxed);
    }

    /// Leaves a text for the conductor.
    pub(crate) fn say(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(TEXT)];
        self.text.iter().zip(bytes).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        self.length.store(bytes.len(), Ordering::Release);
    }

    /// The text that was left.
    pub(crate) fn said(&self) -> String {
        let length = self.length.load(Ordering::Acquire).min(TEXT);
        let bytes: Vec<u8> = self.text[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Slot {
    /// The actor's side: reports how the order ended and waits for the next. Async-signal-safe.
    pub(crate) fn report(&self, state: u32) -> u32 {
        let seen = self.orders.load(Ordering::Acquire);
        self.say(state);
        while self.orders.load(Ordering::Acquire) == seen {
            futex(&self.orders, libc::FUTEX_WAIT, seen, Some(Duration::from_secs(1)));
            // SAFETY: the conductor has died and will give no more orders; the process has been reparented to
            // init.
            unsafe {
                if libc::getppid() == 1 {
                    libc::_exit(1);
                }
            }
        }
        self.order.load(Ordering::Acquire)
    }

    /// The actor's side: reports how the order ended.
    pub(crate) fn say(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        futex(&self.state, libc::FUTEX_WAKE, 1, None);
    }

    /// The results of the calls made so far.
    pub(crate) fn results(&self) -> Vec<i64> {
        let made = self.made.load(Ordering::Acquire) as usize;
        self.results.iter().take(made).map(|result| result.load(Ordering::Relaxed)).collect()
    }

    /// The conductor's side: gives an order.
    pub(crate) fn tell(&self, order: u32) {
        self.state.store(state::RUNNING, Ordering::Release);
        self.order.store(order, Ordering::Release);
        self.orders.fetch_add(1, Ordering::AcqRel);
        futex(&self.orders, libc::FUTEX_WAKE, 1, None);
    }

    /// The conductor's side: waits until the actor, its child `pid`, reports how the order ended, or is dead.
    pub(crate) fn wait(&self, pid: i32) -> Event {
        let begin = used(pid);
        loop {
            match self.wait_a_while(pid) {
                Some(event) => return event,
                None if used(pid).saturating_sub(begin) > PATIENCE => return Event::Silence,
                None => {}
            }
        }
    }

    /// [`Slot::wait`] for a moment; none if the actor is still running.
    pub(crate) fn wait_a_while(&self, pid: i32) -> Option<Event> {
        let state = || Some(self.state.load(Ordering::Acquire)).filter(|now| *now != state::RUNNING);
        if let Some(now) = state() {
            return Some(Event::State(now));
        }
        futex(&self.state, libc::FUTEX_WAIT, state::RUNNING, Some(Duration::from_millis(10)));
        if let Some(now) = state() {
            return Some(Event::State(now));
        }
        let mut status = 0;
        // SAFETY: asks about a child.
        let got = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        (got == pid).then_some(Event::Died(status))
    }
}

/// Processor time that a process has used.
fn used(pid: i32) -> Duration {
    // SAFETY: a structure of integers, which the kernel writes.
    unsafe {
        let (mut clock, mut time) = (0, std::mem::zeroed::<libc::timespec>());
        if libc::clock_getcpuclockid(pid, &raw mut clock) != 0
            || libc::clock_gettime(clock, &raw mut time) != 0
        {
            return Duration::ZERO;
        }
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// futex(2), marked as the explorer's own.
pub(crate) fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<Duration>) {
    let time = timeout.map(|time| libc::timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the time live across the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, time, 0usize, OWN) };
}

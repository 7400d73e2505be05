//! What may happen while the victim is stopped, and what must hold afterwards.

use std::path::Path;
use std::process::Child;
use std::sync::atomic::Ordering;

use super::victim::{Victim, in_time, succeeded};
use super::{Case, Gate, HELD, NOBODY};
use crate::control::{Event, OTHER, PEER, VICTIM, order, state};
use crate::life::{End, end_of};

impl Gate {
    /// A peer makes its call beside the stopped victim.
    pub(super) fn beside(
        &self,
        program: &mut Child,
        case: &Case,
        victim: &Victim,
        wrong: &mut dyn FnMut(String),
    ) {
        let peer = if case.outcome == "thread" { PEER } else { OTHER };
        let done = self.ask(peer, order::CALLS);
        if !done && peer == OTHER {
            wrong(format!("waits: {} in another process waits for a stopped {}", case.peer, case.victim));
        }
        victim.let_go();
        let end = end_of(case.victim);
        // A thread that waits ends with its program, or with the program's image.
        let is_cut_off = peer == PEER && !done && matches!(end, End::Program | End::Image);
        if !self.ends(program, end, victim.tid) || !is_cut_off && !self.finishes(peer) {
            return wrong("the victim or its peer waits for ever".into());
        }
        if matches!(end, End::Report | End::Image) {
            self.results(&[VICTIM], wrong);
        }
        if !is_cut_off {
            self.results(&[peer], wrong);
        }
    }

    /// The main thread executes the program again beside the stopped victim.
    pub(super) fn executed(
        &self,
        program: &mut Child,
        case: &Case,
        victim: &Victim,
        wrong: &mut dyn FnMut(String),
    ) {
        let pid = program.id() as i32;
        let slot = &self.page.slots[PEER];
        slot.results[0].store(-1, Ordering::Relaxed);
        slot.tell(order::NEXT);
        let arrived = || slot.wait_a_while(NOBODY) == Some(Event::State(state::DONE));
        if in_time(pid, || victim.is_gone() && arrived()) {
            return self.results(&[PEER], wrong);
        }
        // A lock of another thread may be in the way, in the C library or in the gate. Then the victim may
        // have been first to end the program, or to execute it.
        victim.let_go();
        let end = end_of(case.victim);
        let mut is_first = false;
        let done = in_time(pid, || {
            is_first = match end {
                End::Program => program.try_wait().is_ok_and(succeeded),
                End::Image => {
                    let state = self.page.slots[VICTIM].wait_a_while(NOBODY);
                    state == Some(Event::State(state::DONE))
                }
                End::Report | End::Thread => false,
            };
            is_first || arrived()
        });
        match done {
            true if is_first => {}
            true => self.results(&[PEER], wrong),
            false => wrong(format!("exec of a program whose thread is inside {} never ends", case.victim)),
        }
    }

    /// Checks the effect of a signal to the victim: its handler has run once, under the right mask, and the
    /// call's result is right.
    pub(super) fn signalled(&self, case: &Case, tid: i32, wrong: &mut dyn FnMut(String)) {
        let slot = &self.page.slots[VICTIM];
        let mut held = case.victim == HELD;
        let done = in_time(tid, || {
            // The call may have begun after the handler had run; it then rightly waits, or restarts.
            if held && slot.signalled.load(Ordering::Acquire) != 0 {
                held = !self.ask(OTHER, order::NEXT);
            }
            slot.wait_a_while(NOBODY) == Some(Event::State(state::DONE))
        });
        let (times, mask) = (slot.signalled.load(Ordering::Acquire), slot.hits.load(Ordering::Relaxed));
        if !done {
            return wrong(format!(
                "{} never ends after a signal; its handler ran {times} times",
                case.victim
            ));
        }
        if times != 1 || mask != 1 {
            wrong(format!("the handler ran {times} times, its mask and its call were right {mask} times"));
        }
        let result = slot.results[0].load(Ordering::Relaxed);
        let interrupted =
            case.victim == HELD && case.outcome == "signal" && result == -i64::from(libc::EINTR);
        if result != 0 && !interrupted {
            wrong(format!("{} gives {result} when a signal comes", case.victim));
        }
    }

    pub(super) fn results(&self, of: &[usize], wrong: &mut dyn FnMut(String)) {
        for index in of {
            let result = self.page.slots[*index].results[0].load(Ordering::Relaxed);
            if result != 0 {
                wrong(format!("actor {index}: {result}"));
            }
        }
    }

    /// Gives an order; returns whether it was completed without waiting for another process.
    pub(super) fn ask(&self, index: usize, what: u32) -> bool {
        self.page.slots[index].tell(what);
        self.finishes(index)
    }

    /// Whether the victim's call comes to its end.
    fn ends(&self, program: &mut Child, end: End, tid: i32) -> bool {
        match end {
            End::Report => self.finishes(VICTIM),
            End::Image => {
                let slot = &self.page.slots[VICTIM];
                in_time(program.id() as i32, || slot.wait_a_while(NOBODY) == Some(Event::State(state::DONE)))
            }
            End::Thread => {
                let thread = format!("/proc/{}/task/{tid}", program.id());
                in_time(tid, || !Path::new(&thread).exists())
            }
            End::Program => in_time(program.id() as i32, || program.try_wait().is_ok_and(succeeded)),
        }
    }

    fn finishes(&self, index: usize) -> bool {
        let slot = &self.page.slots[index];
        in_time(slot.pid.load(Ordering::Acquire) as i32, || {
            slot.wait_a_while(NOBODY) == Some(Event::State(state::DONE))
        })
    }
}

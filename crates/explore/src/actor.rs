//! An actor: a process that makes its calls when told.

use std::sync::atomic::Ordering;

use crate::calls::{BUSY, DIRS, Dir, Made, Part};
use crate::control::{Page, RESULTS, Slot, order, state};
use crate::door::{Door, OWN};
use crate::step::{self, Role};

/// Serves as actor `index` until told to leave. In a process of its own.
pub(crate) fn play(door: &dyn Door, page: &'static Page, index: usize, part: &Part) -> ! {
    let slot = &page.slots[index];
    // SAFETY: the process becomes the leader of a group of its own, so that its children end with it.
    unsafe { libc::setpgid(0, 0) };
    step::become_actor(slot, Role::Actor);
    report_panics(page);
    let dirs = [0, 1, 2].map(|dir| Dir::new(dir, page, index));
    if !part.begins_unborn() {
        begin(door, part, &dirs);
    }
    let mut next = part.calls.iter();
    let make = |made: &Made| note(slot, (made.call.make)(door, &dirs[made.dir]));
    loop {
        match slot.report(state::DONE) {
            order::CALLS => step::stepped(|| next.by_ref().for_each(make)),
            order::NEXT => next.by_ref().take(1).for_each(make),
            order::REFUSED => next.by_ref().take(1).for_each(|_| note(slot, BUSY)),
            order::VERIFY => note(slot, door.verify()),
            order::LEAVE => leave(door, slot),
            _ => {}
        }
    }
}

fn leave(door: &dyn Door, slot: &Slot) -> ! {
    door.exit();
    slot.say(state::GONE);
    // SAFETY: ends the actor.
    unsafe { libc::_exit(0) }
}

/// An actor's preparation before the schedule begins.
fn begin(door: &dyn Door, part: &Part, dirs: &[Dir; 3]) {
    let born = door.born();
    assert_eq!(born, 0, "born");
    for (fd, dir) in OWN.iter().zip(DIRS) {
        let path = std::ffi::CString::new(format!("{dir}/a")).unwrap_or_default();
        // A thread uses the descriptors of its process.
        if door.pread(*fd, &mut [0], 0) < 0 {
            assert_eq!(door.open(*fd, &path, libc::O_RDWR, 0), 0, "open {dir}/a");
        }
    }
    for made in &part.calls {
        (made.call.before)(door, &dirs[made.dir]);
    }
}

/// A child of an actor that serves `slot` from now on: it is born, verifies, and leaves.
pub(crate) fn stay(door: &dyn Door, slot: &'static Slot) -> ! {
    step::use_slot(slot);
    step::stand();
    // SAFETY: a group of its own keeps it alive when its parent is killed.
    unsafe { libc::setpgid(0, 0) };
    note(slot, door.born());
    loop {
        match slot.report(state::DONE) {
            order::VERIFY => note(slot, door.verify()),
            order::LEAVE => leave(door, slot),
            _ => {}
        }
    }
}

fn note(slot: &Slot, result: i64) {
    let place = slot.made.load(Ordering::Relaxed) as usize;
    slot.results[place % RESULTS].store(result, Ordering::Relaxed);
    slot.signalled.store(0, Ordering::Relaxed);
    slot.made.fetch_add(1, Ordering::Release);
}

/// Turns a panic into a finding.
pub(crate) fn report_panics(page: &'static Page) {
    std::panic::set_hook(Box::new(move |panic| {
        page.say(&format!("{panic}"));
        step::me().say(state::PANICKED);
        // SAFETY: ends the actor.
        unsafe { libc::_exit(101) }
    }));
}

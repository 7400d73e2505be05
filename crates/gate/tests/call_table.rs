//! Every number of the kernel's call table has a row in the gate's, and the lists of other crates agree with
//! it.

use lp_abi::gated::{CALLS, UNKNOWN, is_gated};
use lp_abi::image::QUICK_CALLS;
use lp_abi::linux::*;
use lp_gate::calls::{self, APART, Call, Class, LIST};
use lp_gate::process_calls::PROCESS;

/// uprobe(2), which like uretprobe(2) is made only by the kernel's own trampolines.
const UPROBE: u32 = 336;
/// The gap between the old numbers and those that all architectures share.
const GAP: std::ops::Range<u32> = UPROBE + 1..424;

fn rows(nr: u32) -> Vec<&'static Call> {
    LIST.iter().filter(|call| call.number == nr).collect()
}

#[test]
fn each_number_is_handled_passed_or_refused() {
    let wrong: Vec<u32> = (0..UNKNOWN)
        .filter(|nr| rows(*nr).len() != usize::from(*nr != UPROBE && !GAP.contains(nr)))
        .collect();
    assert!(wrong.is_empty(), "not one row each: {wrong:?}");
    let wrong: Vec<u32> =
        (UNKNOWN..CALLS as u32).filter(|nr| !calls::CALLS.is_same(*nr, __NR_io_uring_setup)).collect();
    assert!(wrong.is_empty(), "newer than the table, and not refused: {wrong:?}");
    assert!(LIST.is_sorted_by_key(|call| call.number));
}

#[test]
fn the_dispatch_tables_are_the_list() {
    for call in LIST {
        let is_handled = call.class == Class::Handled;
        assert_eq!(calls::CALLS.handles(call.number), is_handled, "{}", call.name);
        // The table of all calls contains whatever a process that is apart, or the low half, examines.
        assert!(is_handled || !APART.handles(call.number), "{}", call.name);
        assert!(is_handled || !PROCESS.handles(call.number), "{}", call.name);
        assert!(APART.handles(call.number) || !PROCESS.handles(call.number), "{}", call.name);
    }
}

#[test]
fn what_is_handled_arrives() {
    for nr in 0..UNKNOWN {
        let listed = rows(nr).first().is_some_and(|call| call.is_gated());
        assert_eq!(is_gated(nr), listed, "{nr}: lp_abi::gated and the table of calls differ");
    }
}

#[test]
fn short_entries_are_the_images() {
    for call in LIST {
        assert_eq!(call.is_quick(), QUICK_CALLS.contains(&call.number), "{}", call.name);
    }
}

#[test]
fn unknown_and_io_uring_calls_do_not_exist() {
    let absent = [__NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register];
    let handler = |nr: u32| calls::CALLS.handler(nr).expect("a handler") as usize;
    let expected = handler(UNKNOWN);
    for nr in absent.into_iter().chain(UNKNOWN..CALLS as u32) {
        assert_eq!(handler(nr), expected, "{nr}");
    }
    // SAFETY: the handler ignores its arguments.
    let answer = unsafe { calls::CALLS.handler(UNKNOWN).expect("a handler")(0, 0, 0, 0, 0, 0) };
    assert_eq!(answer, lp_abi::Errno::ENOSYS.to_ret());
}

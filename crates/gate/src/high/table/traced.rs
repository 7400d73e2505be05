//! Recording calls for `lightpath trace`: a dispatch table of its own, so that other runs pay nothing.
//!
//! Every entry of [`TRACED`] is one stub, which calls the handler of the table beneath and appends the
//! outcome to the lane's ring ([`lp_region::trace`]), or counts it in the lane's sums. So do the entries of
//! the most frequent calls (`low::arrive::entry_quick`). What arguments point to is read after the call. The
//! kernel's calls are shown if they are asked for; most are then made here, where their results are known.
//!
//! A tracer that comes later ([`crate::high::life::look`]) names itself in the run's record.

use core::arch::global_asm;

use lp_abi::linux::*;
use lp_abi::signature::{NO_ARGUMENT, SHAPES, SIGNAL_ACTION};
use lp_abi::{Errno, Fd, OwnedFd, Result};
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::trace::entry::{EntryWriter, padded, words_for};
use lp_region::trace::{CallSum, DATA, NO_RESULT, Rings, ask, is_held};
use lp_region::ucopy;
use lp_vfs::flight;
use lp_vfs::task::Task;

use crate::high::life::look;
use crate::low::dispatch::{AGAIN, NOT_OURS, Table, stub_table, to_handler};
use crate::low::live::deferred::programs_syscall;
use crate::low::thread::current;
use crate::low::thread::record::Thread;

global_asm!(
    ".pushsection .text.lp_traced,\"ax\",@progbits",
    ".hidden lp_traced",
    "lp_traced:",
    ".cfi_startproc",
    "sub rsp, 24",
    ".cfi_adjust_cfa_offset 24",
    "mov edi, [rbp - 56]",
    "call {begin}",
    "mov [rsp + 8], rax",
    to_handler!("mov r10, [rip + {beneath}]"),
    "call rax",
    "3:",
    "mov edi, [rbp - 56]",
    "mov rsi, rax",
    "mov rdx, [rsp + 8]",
    "lea rcx, [rbp - 48]",
    "call {record}",
    "add rsp, 24",
    ".cfi_adjust_cfa_offset -24",
    "ret",
    ".cfi_adjust_cfa_offset 24",
    "2:",
    "mov rax, {not_ours}",
    "jmp 3b",
    ".cfi_endproc",
    ".popsection",
    not_ours = const NOT_OURS,
    beneath = sym BENEATH,
    begin = sym begin,
    record = sym record,
);

stub_table! {
    /// The table of a traced run.
    pub(crate) TRACED "lp_table_traced": "lp_traced"
}

/// Address of the table beneath. Set before [`TRACED`] is used.
static BENEATH: AtomicU64 = AtomicU64::new(0);

/// Address of the mapped rings; 0 before they are mapped. Constant from then on.
static RINGS: AtomicU64 = AtomicU64::new(0);

/// Whose rings are mapped there: the word of [`lp_region::process::Run::tracer`].
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Maps the rings, unless they are mapped, and has calls answered by the table `beneath`. Returns `false` if
/// there is no tracer or its rings cannot be mapped.
pub(crate) fn open(task: &Task<'_>, beneath: &Table) -> bool {
    // Relaxed: every thread stores the same.
    BENEATH.store(beneath.address() as u64, Ordering::Relaxed);
    let tracer = task.run.tracer.load(Ordering::Acquire); // PAIRS: the release of the tracer.
    let mapped = RINGS.load(Ordering::Acquire); // PAIRS: the compare-and-swap below.
    if mapped != 0 && MAPPED.load(Ordering::Relaxed) == tracer {
        return true;
    }
    let Some((fd, _opened)) = rings_of(task, tracer) else { return false };
    let done = map(fd, mapped);
    if done {
        // Relaxed: a thread that misses it maps the same again.
        MAPPED.store(tracer, Ordering::Relaxed);
    }
    done
}

/// The file of the rings, and what was opened for it.
fn rings_of(task: &Task<'_>, tracer: u64) -> Option<(Fd, Option<OwnedFd>)> {
    match tracer {
        0 => flight::descriptor(task).map(|fd| (fd, None)),
        tracer => look::rings_of(tracer).map(|opened| (opened.get(), Some(opened))),
    }
}

fn map(fd: Fd, before: u64) -> bool {
    if before != 0 {
        // SAFETY: the tracer made the file as long as the rings and sealed its length.
        return unsafe { Rings::map_over(fd, before as usize) }.is_ok();
    }
    // SAFETY: as above.
    let Ok(rings) = (unsafe { Rings::map(fd) }) else { return false };
    let base = rings.base() as u64;
    // PAIRS: the acquire in `open`. Another thread that has mapped them first keeps its mapping.
    if RINGS.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        rings.unmap();
    }
    true
}

/// Whether the tracer lives, for a thread that waits for it.
fn is_there() -> bool {
    // SAFETY: null or the calling thread's own record, and its task.
    let task = unsafe { current::thread().as_ref().and_then(|thread| thread.task.get().as_ref()) };
    let tracer = MAPPED.load(Ordering::Relaxed); // Relaxed: what this thread has mapped, or newer.
    task.and_then(|task| rings_of(task, tracer)).is_some_and(|(fd, _opened)| is_held(fd))
}

/// The rings, the calling thread's lane, and what is asked for of call `number`: one of [`ask`].
#[inline(always)]
fn asked(thread: &Thread, number: usize) -> Option<(Rings, usize, u8)> {
    // SAFETY: null or the thread's own task, which lives as long as the thread.
    let task = unsafe { thread.task.get().as_ref() }?;
    // SAFETY: mapped for good. Relaxed: the table was stored after the rings were mapped.
    let rings = unsafe { Rings::at(RINGS.load(Ordering::Relaxed) as usize) }?;
    Some((rings, task.lane_id.index(), rings.asked(number)))
}

#[inline(always)]
fn counter() -> u64 {
    // SAFETY: only reads the processor's counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The processor's counter if this call is timed, else 0. Reading it costs as much as a call.
extern "sysv64" fn begin(number: usize) -> u64 {
    // SAFETY: null or the calling thread's own record.
    let Some(thread) = (unsafe { current::thread().as_ref() }) else { return 0 };
    let left = thread.untimed.get().wrapping_sub(1);
    thread.untimed.set(left);
    let is_new = |(rings, lane, what): (Rings, usize, u8)| {
        what == ask::SUM && rings.sum(lane, number).calls.load(Ordering::Relaxed) < CallSum::FIRST
    };
    match left < 0 || asked(thread, number).is_some_and(is_new) {
        true => counter(),
        false => 0,
    }
}

/// Records one call, which began at `start` if it is timed, and returns its result. `registers` holds its
/// arguments in reverse order.
#[inline]
pub(crate) extern "sysv64" fn record(
    number: usize,
    result: isize,
    start: u64,
    registers: &[usize; 6],
) -> isize {
    // SAFETY: null or the calling thread's own record.
    let Some(thread) = (unsafe { current::thread().as_ref() }) else { return result };
    if thread.crossed.get() || result < -4096 {
        return passed_slow(thread, number, result, start, registers);
    }
    note(thread, number, result, start, registers);
    result
}

#[inline(always)]
fn note(thread: &Thread, number: usize, result: isize, start: u64, registers: &[usize; 6]) {
    let Some((rings, lane, what)) = asked(thread, number) else { return };
    match what {
        ask::ENTRY => keep(thread, rings, lane, number, result, registers),
        ask::SUM => add(thread, rings, lane, number, result, start),
        _ => {}
    }
    if start != 0 && what != ask::SUM {
        thread.untimed.set(i32::MAX);
    }
}

/// Adds a call to the lane's sum.
#[inline(always)]
fn add(thread: &Thread, rings: Rings, lane: usize, number: usize, result: isize, start: u64) {
    let ticks = (start != 0).then(|| counter().wrapping_sub(start));
    let calls = rings.sum(lane, number).add((-4095..0).contains(&result), ticks);
    if calls < CallSum::FIRST {
        thread.untimed.set(0);
    } else if start != 0 {
        thread.untimed.set(CallSum::STRIDE as i32 - 1);
    }
}

/// A call that the kernel answers, or has answered.
#[cold]
fn passed_slow(thread: &Thread, number: usize, result: isize, start: u64, registers: &[usize; 6]) -> isize {
    thread.crossed.set(false);
    let shows_host = |(rings, ..): (Rings, usize, u8)| rings.front().host.load(Ordering::Relaxed) != 0;
    if !asked(thread, number).is_some_and(shows_host) {
        return result;
    }
    let result = match result {
        NOT_OURS if is_made_here(number as u32) => make(number as u32, registers),
        result => result,
    };
    thread.crossed.set(false);
    if result == AGAIN {
        return result;
    }
    let shown = if result < -4096 { NO_RESULT as isize } else { result };
    note(thread, number, shown, start, registers);
    result
}

/// Whether the gate may make a call in the program's place: not if the call does not return, or if what it
/// does depends on the program's stack or on a mask of signals.
#[allow(non_upper_case_globals)]
fn is_made_here(number: u32) -> bool {
    !matches!(
        number,
        __NR_fork
            | __NR_vfork
            | __NR_clone
            | __NR_clone3
            | __NR_execve
            | __NR_execveat
            | __NR_exit
            | __NR_exit_group
            | __NR_rt_sigprocmask
            | __NR_ppoll
            | __NR_pselect6
            | __NR_epoll_pwait
            | __NR_epoll_pwait2
            | __NR_io_pgetevents
            | __NR_prctl
            | __NR_seccomp
    )
}

/// Makes the kernel's call.
#[allow(non_upper_case_globals)]
fn make(number: u32, registers: &[usize; 6]) -> isize {
    let mut words = *registers;
    words.reverse();
    // SAFETY: the program's own call.
    unsafe { programs_syscall(number, words) }
}

/// Appends a call to the lane's ring.
#[inline(always)]
fn keep(thread: &Thread, rings: Rings, lane: usize, number: usize, result: isize, registers: &[usize; 6]) {
    let shape = &SHAPES[number % SHAPES.len()];
    if !shape.is_plain() {
        return keep_whole(thread, rings, lane, number, result, registers);
    }
    append::<false>(thread, rings, lane, number, result, registers);
}

#[inline(never)]
fn keep_whole(
    thread: &Thread,
    rings: Rings,
    lane: usize,
    number: usize,
    result: isize,
    registers: &[usize; 6],
) {
    append::<true>(thread, rings, lane, number, result, registers);
}

#[inline(always)]
fn append<const IS_WHOLE: bool>(
    thread: &Thread,
    rings: Rings,
    lane: usize,
    number: usize,
    result: isize,
    registers: &[usize; 6],
) {
    let shape = &SHAPES[number % SHAPES.len()];
    let Some(mut entry) = rings.begin(is_there, lane, if IS_WHOLE { WHOLE } else { PLAIN }) else { return };
    if EntryWriter::is_long(result) {
        entry.push(result as u64);
    }
    entry.push_arguments(usize::from(shape.count), registers);
    let word = |argument: usize| registers.get(5_usize.wrapping_sub(argument)).copied().unwrap_or_default();
    if IS_WHOLE {
        for argument in shape.paths.into_iter().filter(|argument| *argument != NO_ARGUMENT) {
            let from = word(usize::from(argument)) as *const u8;
            entry.push_path(|room| read_path(room, from));
        }
    }
    if let Some((argument, from, length)) = shape.data(result, DATA, word) {
        let is_stat = from != 0;
        let from = (word(argument) as *const u8).wrapping_add(from);
        entry.push_data(length, |to| match is_stat {
            true => copy_words(to.cast(), from.cast(), length / size_of::<u64>()),
            // SAFETY: the entry has room for the bytes; the copy routine handles bad pointers.
            false => unsafe { ucopy::copy(to, from, length) },
        });
    }
    if IS_WHOLE {
        for argument in shape.actions(result, word) {
            let from = word(argument) as *const u8;
            // SAFETY: the entry has room for the bytes; the copy routine handles bad pointers.
            entry.push_data(ACTION, |to| unsafe { ucopy::copy(to, from, ACTION) });
        }
    }
    entry.end(number, thread.tid.get(), result);
}

/// Copies a path, which is empty in the fstat(2) of the C library, and returns its length.
#[inline(always)]
fn read_path(room: &mut [u8], from: *const u8) -> Result<usize> {
    // SAFETY: the copy routine handles bad pointers.
    if unsafe { ucopy::is_empty(from) } {
        return Ok(0);
    }
    // SAFETY: as above.
    unsafe { ucopy::string(room, from) }
}

/// Copies what the handler has just stored word by word: wider loads would wait for these stores, as in
/// [`EntryWriter::push_arguments`].
#[inline(always)]
fn copy_words(to: *mut u64, from: *const u64, count: usize) -> Result<()> {
    for index in 0..count {
        // SAFETY: the entry has room for the words; the copy routine handles bad pointers.
        let word = unsafe { ucopy::word(from.wrapping_add(index).cast()) };
        if word == u64::MAX {
            return Err(Errno::EFAULT); // No part of a `struct stat` that is shown is all ones.
        }
        // SAFETY: as above.
        unsafe { to.add(index).write(word) };
    }
    Ok(())
}

/// Words of an entry at most: its head, the result, the arguments and the data; and the paths or actions.
const PLAIN: usize = 2 + padded(6) + words_for(DATA);
const WHOLE: usize = PLAIN + 2 * words_for(lp_abi::PATH_MAX);
const _: () = assert!(PLAIN + 2 * SIGNAL_ACTION < WHOLE);

/// Bytes of a `struct sigaction` of the kernel's.
const ACTION: usize = SIGNAL_ACTION * size_of::<u64>();

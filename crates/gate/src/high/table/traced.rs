//! Recording calls for `lightpath trace`: a dispatch table of its own, so that other runs pay nothing.
//!
//! Every entry of [`TRACED`] is one stub, which calls the handler that
//! [`CALLS`](crate::high::table::calls::CALLS) names and appends the outcome to the lane's ring
//! ([`lp_region::trace`]), or counts it in the lane's sums. What arguments point to is read after the call.
//! The kernel's calls are left to strace(1).

use core::arch::global_asm;

use lp_abi::Fd;
use lp_abi::linux::stat;
use lp_abi::signature::{Parameter, arguments};
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_region::trace::{DATA, HEAD, Rings, words_for};
use lp_region::ucopy;
use lp_vfs::flight;
use lp_vfs::task::Task;

use crate::low::dispatch::{AGAIN, MAKE_THREAD, NOT_OURS, SHARE_MEMORY, stub_table};
use crate::low::thread::current;
use crate::low::thread::record::Thread;
use crate::low::tools::report;

global_asm!(
    ".pushsection .text.lp_traced,\"ax\",@progbits",
    ".hidden lp_traced",
    "lp_traced:",
    ".cfi_startproc",
    "sub rsp, 24",
    ".cfi_adjust_cfa_offset 24",
    "mov qword ptr [rsp + 8], 0",
    "cmp dword ptr [rip + {sums}], 0",
    "je 4f",
    // The entry has kept the number and the arguments, and rbp is still the entry's.
    "mov edi, [rbp - 56]",
    "call {begin}",
    "mov [rsp + 8], rax",
    "mov rdi, [rbp - 8]",
    "mov rsi, [rbp - 16]",
    "mov rdx, [rbp - 24]",
    "mov rcx, [rbp - 32]",
    "mov r8, [rbp - 40]",
    "mov r9, [rbp - 48]",
    "4:",
    "mov r11d, [rbp - 56]",
    "lea r10, [rip + lp_table_calls]",
    "movsxd rax, dword ptr [r10 + 4 * r11]",
    "test eax, eax",
    "jz 2f",
    "add rax, r10",
    "call rax",
    "mov [rsp], rax",
    "mov edi, [rbp - 56]",
    "mov rsi, rax",
    "mov rdx, [rsp + 8]",
    "lea rcx, [rbp - 48]",
    "call {record}",
    "mov rax, [rsp]",
    "add rsp, 24",
    ".cfi_adjust_cfa_offset -24",
    "ret",
    ".cfi_adjust_cfa_offset 24",
    "2:",
    "mov rax, {not_ours}",
    "add rsp, 24",
    ".cfi_adjust_cfa_offset -24",
    "ret",
    ".cfi_endproc",
    ".popsection",
    not_ours = const NOT_OURS,
    sums = sym SUMS,
    begin = sym begin,
    record = sym record,
);

stub_table! {
    /// The table of a traced run.
    pub(crate) TRACED "lp_table_traced": "lp_traced"
}

/// Nonzero if sums are requested rather than calls. Set while the process has one thread.
static SUMS: AtomicU32 = AtomicU32::new(0);

/// Address of the mapped rings; 0 before they are mapped. Set while the process has one thread.
static RINGS: AtomicU64 = AtomicU64::new(0);

/// Maps the rings, unless they are mapped.
pub(crate) fn open(task: &Task<'_>) {
    // Relaxed, both: the process has one thread.
    if RINGS.load(Ordering::Relaxed) != 0 {
        return;
    }
    // SAFETY: the launcher made the file as long as the rings and sealed its length.
    let mapped = flight::descriptor(task).and_then(|fd| unsafe { Rings::map(fd) }.ok());
    let Some(rings) = mapped else { report::refuse(&[b"no address space for the trace"]) };
    // Relaxed: immutable.
    SUMS.store(u32::from(rings.front().keeps.load(Ordering::Relaxed) == 0), Ordering::Relaxed);
    RINGS.store(rings.base() as u64, Ordering::Relaxed);
}

/// The calling thread with its task, and the rings, if call `number` is asked for.
#[inline(always)]
fn asked(number: usize) -> Option<(&'static Thread, &'static Task<'static>, Rings)> {
    // SAFETY: null or the calling thread's own record.
    let thread = unsafe { current::thread().as_ref() }?;
    // SAFETY: null or the thread's own task, which lives as long as the thread.
    let task = unsafe { thread.task.get().as_ref() }?;
    // SAFETY: `open` mapped the rings for good. Relaxed: stored before there was a second thread.
    let rings = unsafe { Rings::at(RINGS.load(Ordering::Relaxed) as usize) }?;
    rings.wants(number).then_some((thread, task, rings))
}

fn counter() -> u64 {
    // SAFETY: only reads the processor's counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Where sums are requested: the processor's counter if this call is timed, else 0. Reading it costs as much
/// as a call.
extern "sysv64" fn begin(number: usize) -> u64 {
    match asked(number) {
        Some((_, task, rings)) if rings.sum(task.lane_id.index(), number).weight() != 0 => counter(),
        _ => 0,
    }
}

/// Records one call, which began at `start` if it is timed. `registers` holds its arguments in reverse order.
extern "sysv64" fn record(number: usize, result: isize, start: u64, registers: &[usize; 6]) {
    // SAFETY: null or the calling thread's own record.
    let crossed = unsafe { current::thread().as_ref() }.is_some_and(|thread| thread.crossed.replace(false));
    if crossed || [NOT_OURS, SHARE_MEMORY, MAKE_THREAD, AGAIN].contains(&result) {
        return;
    }
    let Some((thread, task, rings)) = asked(number) else { return };
    let lane = task.lane_id.index();
    // Relaxed: set while the process had one thread.
    if SUMS.load(Ordering::Relaxed) != 0 {
        let ticks = (start != 0).then(|| counter().wrapping_sub(start));
        return rings.sum(lane, number).add((-4095..0).contains(&result), ticks);
    }
    let mut words = *registers;
    words.reverse();
    let end = counter();
    let found = Pointed::read(thread, number as u32, result, &words);
    let total = HEAD + found.words();
    let Some(mut entry) = rings.begin(flight::descriptor(task).unwrap_or(Fd::NONE), lane, total) else {
        return;
    };
    entry.push(total as u64 | (number as u64) << 32);
    entry.push(u64::from(thread.tid.get()));
    entry.push(end);
    entry.push(result as u64);
    for word in words {
        entry.push(word as u64);
    }
    found.push(thread, &mut entry);
    entry.end();
}

/// What a call's arguments point to. Paths are in the thread's buffers, which the finished handler no longer
/// uses.
struct Pointed {
    /// Argument and length of each path.
    paths: [Option<(usize, usize)>; 2],
    /// Argument and length of the data in `bytes`.
    data: Option<(usize, usize)>,
    bytes: [u8; size_of::<stat>()],
}

impl Pointed {
    const NOTHING: Pointed = Pointed { paths: [None; 2], data: None, bytes: [0; size_of::<stat>()] };

    fn read(thread: &Thread, number: u32, result: isize, words: &[usize; 6]) -> Pointed {
        let mut found = Pointed::NOTHING;
        let mut paths = 0;
        for (argument, kind) in arguments(number).into_iter().enumerate() {
            let bytes = match kind {
                Parameter::Path if paths < 2 => {
                    // SAFETY: the thread's own buffers, unused between handlers; the copy routine handles bad
                    // pointers.
                    let read = unsafe {
                        let buffer = &mut *thread.scratch[paths].get();
                        ucopy::string(buffer, words[argument] as *const u8)
                    };
                    found.paths[paths] = read.ok().map(|length| (argument, length));
                    paths += 1;
                    continue;
                }
                Parameter::In => words[argument + 1].min(DATA),
                Parameter::Out if result > 0 => (result as usize).min(DATA),
                Parameter::Stat if result == 0 => size_of::<stat>(),
                _ => continue,
            };
            // SAFETY: at most the buffer's length; the copy routine handles bad pointers.
            let read = unsafe { ucopy::copy(found.bytes.as_mut_ptr(), words[argument] as *const u8, bytes) };
            found.data = read.ok().map(|()| (argument, bytes));
        }
        found
    }

    /// Words that it takes in an entry.
    fn words(&self) -> usize {
        self.paths.iter().chain([&self.data]).flatten().map(|(_, bytes)| words_for(*bytes)).sum()
    }

    fn push(&self, thread: &Thread, entry: &mut lp_region::trace::EntryWriter<'_>) {
        for (path, buffer) in self.paths.iter().zip(&thread.scratch) {
            let Some((argument, length)) = *path else { continue };
            // SAFETY: the thread's own buffer, which `read` has filled.
            let buffer = unsafe { &*buffer.get() };
            entry.push_bytes(argument, buffer.get(..length).unwrap_or_default());
        }
        if let Some((argument, length)) = self.data {
            entry.push_bytes(argument, self.bytes.get(..length).unwrap_or_default());
        }
    }
}

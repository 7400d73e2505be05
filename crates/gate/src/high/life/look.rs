//! Tracers that come while the run is under way: `lightpath trace -p`.
//!
//! The tracer names itself in the run's record, and has the processes that run look at it: it stores the
//! address of the table [`LOOK`] where they find that of their own ([`lp_abi::image::TracerDoor`]). The first
//! call of any thread then selects the table anew. What starts later reads the record as it starts.

use core::arch::global_asm;

use lp_abi::OwnedFd;
use lp_abi::linux::{__NR_fstat, __NR_open, O_CLOEXEC, O_RDWR, stat};
use lp_abi::text::Writer;
use lp_region::process::CALLS_ALL_TRACED;
use lp_region::sync::Ordering;
use lp_region::trace::BYTES;

use crate::High;
use crate::high::life::join;
use crate::high::run::apart;
use crate::low::above::Above;
use crate::low::cover::patch;
use crate::low::dispatch::{AGAIN, stub_table};
use crate::low::thread::current;

global_asm!(
    ".pushsection .text.lp_look,\"ax\",@progbits",
    ".hidden lp_look",
    "lp_look:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {look}",
    "mov rax, {again}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".popsection",
    look = sym look,
    again = const AGAIN,
);

stub_table! {
    /// The table of a process that is to look at its run's record again.
    pub(crate) LOOK "lp_table_look": "lp_look"
}

/// Selects the table for the process's calls.
extern "sysv64" fn look() {
    // SAFETY: null or the calling thread's own record.
    let Some(thread) = (unsafe { current::thread().as_ref() }) else { return };
    // Relaxed: a process that misses the change has been stopped before it, and looks again.
    if apart::run().is_some_and(|run| run.stats.load(Ordering::Relaxed) == CALLS_ALL_TRACED) {
        join::join_if_possible(thread);
    }
    patch::change_calls(&High::calls(thread));
    current::refresh(); // Another table may have sent calls on low descriptors the long way.
}

/// Opens the rings of `tracer`, its process id and descriptor, if it is the caller's to trace by.
pub(crate) fn rings_of(tracer: u64) -> Option<OwnedFd> {
    let mut room = [0; 64];
    let mut path = Writer::new(&mut room);
    path.push(b"/proc/");
    path.push_decimal(tracer >> 32);
    path.push(b"/fd/");
    path.push_decimal(tracer & u64::from(u32::MAX));
    path.push(b"\0");
    path.finish()?;
    // SAFETY: the kernel reads the path, which ends with NUL.
    let opened = unsafe { lp_abi::syscall!(__NR_open, room.as_ptr(), O_RDWR | O_CLOEXEC) };
    let opened = OwnedFd::new(opened.ok()?);
    // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
    let mut found: stat = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    let asked = unsafe { lp_abi::syscall!(__NR_fstat, opened.get(), &raw mut found) };
    (asked.is_ok() && found.st_size as usize == BYTES).then_some(opened)
}

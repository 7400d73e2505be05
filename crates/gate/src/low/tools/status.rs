//! Fields of the status files of /proc (proc_pid_status(5)).

use lp_abi::linux::{__NR_close, __NR_openat, __NR_read, AT_FDCWD, O_CLOEXEC, O_RDONLY};
use lp_abi::text::Writer;
use lp_region::sync::{AtomicU64, Ordering};
use lp_vfs::clock;

/// Whether a filter of seccomp(2) decides on the process's calls, as far as that can be told.
pub(crate) fn is_filtered() -> bool {
    own(b"\nSeccomp:\t") != Some(0)
}

/// Whether the process has one thread, as far as that can be told.
pub(crate) fn is_alone() -> bool {
    own(b"\nThreads:\t") == Some(1)
}

/// `CAP_IPC_LOCK` of linux/capability.h.
const CAP_IPC_LOCK: u64 = 14;

/// Whether no limit holds for the memory that the thread locks, as far as that can be told.
pub(crate) fn may_lock_all() -> bool {
    own(b"\nCapEff:\t").is_some_and(|effective| effective & 1 << CAP_IPC_LOCK != 0)
}

/// How long a process that no debugger traced is taken to be without one, in nanoseconds: less than a debugger
/// takes to attach, read the symbols and let the process go on.
const UNTRACED_FOR: u64 = 20_000_000;

/// When the process, or the one that it was copied from, was found without a debugger; 0: never; [`ASK`].
static UNTRACED: AtomicU64 = AtomicU64::new(0);

/// In place of the time: the process is to be looked up each time.
const ASK: u64 = u64::MAX;

/// The process calls ptrace(2): it, or a child that it makes, may be traced a moment later.
pub(crate) fn may_be_traced_at_any_time() {
    UNTRACED.store(ASK, Ordering::Relaxed); // Relaxed: the process's own word.
}

/// Whether a debugger traces the thread, as far as that can be told.
pub(crate) fn is_traced() -> bool {
    let now = clock::now();
    let now = now.sec as u64 * 1_000_000_000 + u64::from(now.nsec);
    // Relaxed, here and below: the time stands alone. One in the future is that of a clock set back.
    let untraced = UNTRACED.load(Ordering::Relaxed);
    if now.checked_sub(untraced).is_some_and(|ago| ago < UNTRACED_FOR) {
        return false;
    }
    let is_traced = own(b"\nTracerPid:\t") != Some(0);
    if !is_traced && untraced != ASK {
        let _ = UNTRACED.compare_exchange(untraced, now, Ordering::Relaxed, Ordering::Relaxed);
    }
    is_traced
}

/// The process of a thread.
pub(crate) fn thread_group(thread: u32) -> Option<u32> {
    let mut path = [0u8; 32];
    let mut text = Writer::new(&mut path);
    text.push(b"/proc/");
    text.push_decimal(thread.into());
    text.push(b"/status");
    text.finish()?;
    let digits = field(AT_FDCWD as isize, &path, b"\nTgid:\t").filter(|digits| *digits != u64::MAX)?;
    // It is a decimal number.
    Some((0..16).rev().fold(0, |number, digit| number * 10 + (digits >> (4 * digit) & 0xf) as u32))
}

/// A field of the calling thread's.
fn own(name: &[u8]) -> Option<u64> {
    field(AT_FDCWD as isize, b"/proc/thread-self/status\0", name)
}

/// The hexadecimal number of a field in a status file of /proc. `None` if there is no such file; all ones if
/// it has no such field.
pub(crate) fn field(directory: isize, path: &[u8], field: &[u8]) -> Option<u64> {
    // SAFETY: the path is NUL-terminated, and the open changes nothing.
    let fd = unsafe { lp_abi::syscall!(__NR_openat, directory, path.as_ptr(), O_RDONLY | O_CLOEXEC) }.ok()?;
    let number = number(fd, field);
    // SAFETY: the descriptor was opened above.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
    number
}

/// Bytes that one read gets at most: the program's stack may be small.
const PIECE: usize = 256;
/// Longest field, with its number.
const LONGEST: usize = 64;

/// [`field`] of an open file, which is read piece by piece.
fn number(fd: usize, field: &[u8]) -> Option<u64> {
    let mut room = [0u8; PIECE];
    let mut kept = 0;
    loop {
        // SAFETY: the kernel writes within `room`.
        let read = unsafe { lp_abi::syscall!(__NR_read, fd, room[kept..].as_mut_ptr(), PIECE - kept) };
        let got = read.ok()?;
        let text = &room[..kept + got];
        let line = text.windows(field.len()).position(|line| line == field);
        let value = line.map(|line| &text[line + field.len()..]);
        match value {
            Some(value) if got == 0 || value.contains(&b'\n') => {
                let digits = value.iter().map_while(|digit| char::from(*digit).to_digit(16));
                return Some(digits.fold(0, |number, digit| number << 4 | u64::from(digit)));
            }
            None if got == 0 => return Some(u64::MAX),
            _ => {}
        }
        // The field may be cut off here.
        let end = text.len();
        kept = end.min(LONGEST);
        room.copy_within(end - kept..end, 0);
    }
}

//! A procfs that is mounted elsewhere than at /proc, or nowhere (fsmount(2), open_tree(2)): paths from a
//! directory of it lead to what they lead to from /proc, if its numbers are those of the caller's pid
//! namespace.

use lp_abi::linux::{__NR_getpid, __NR_readlinkat};
use lp_abi::text::parse_decimal;
use lp_abi::{Fd, PATH_MAX};

use crate::high::fd::placeholder;

const PROC: &[u8] = b"/proc";
/// The way from a directory of a procfs to its top, and on to the link that has the caller's number.
const TO_SELF: &[u8] = b"../../../../self\0";
const UP: usize = b"../".len();
/// Most directories between that of a thread's descriptors and the top.
const DEEPEST: usize = 4;

/// Gives a directory of such a procfs the name that it has under /proc, if `rest`, a path from there, may
/// lead to a magic link. `base` has the `length` bytes of its name so far. Returns the new length.
pub(super) fn under_proc(dirfd: Fd, base: &mut [u8; PATH_MAX], length: usize, rest: &[u8]) -> Option<usize> {
    if base[..length].starts_with(PROC) || !may_continue(rest) || !placeholder::is_of_proc(dirfd) {
        return None;
    }
    let below = process_in(&base[..length]).unwrap_or(length);
    let depth = base[below..length].iter().filter(|byte| **byte == b'/').count();
    if depth > DEEPEST || !has_our_numbers(dirfd, depth) {
        return None;
    }
    base.copy_within(below..length, PROC.len());
    base[..PROC.len()].copy_from_slice(PROC);
    Some(PROC.len() + length - below)
}

/// Whether a relative path from a directory under /proc may be, or contain, a magic link.
pub(super) fn may_continue(path: &[u8]) -> bool {
    let name = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    match name {
        b"cwd" | b"root" | b"exe" | b"fd" | b"task" | b"self" | b"thread-self" => true,
        _ => !name.is_empty() && name.iter().all(u8::is_ascii_digit),
    }
}

/// Where a process's directory begins in a path, with its slash: the last number that is not a thread's.
fn process_in(path: &[u8]) -> Option<usize> {
    let mut starts = (0..path.len()).rev().filter(|at| path[*at] == b'/');
    starts.find(|at| {
        let name = path[at + 1..].split(|byte| *byte == b'/').next().unwrap_or_default();
        matches!(parse_decimal(name), Some((_, []))) && !path[..*at].ends_with(b"/task")
    })
}

/// Whether a procfs shows the caller by its own number, seen from a directory `depth` below its top.
fn has_our_numbers(dirfd: Fd, depth: usize) -> bool {
    let path = &TO_SELF[UP * (DEEPEST - depth)..];
    let mut text = [0u8; 16];
    // SAFETY: the path is NUL-terminated, and the kernel writes within `text`.
    let shown =
        unsafe { lp_abi::syscall!(__NR_readlinkat, dirfd, path.as_ptr(), text.as_mut_ptr(), text.len()) };
    // SAFETY: getpid(2) takes no pointers.
    let own = unsafe { lp_abi::syscall!(__NR_getpid) };
    let shown = shown.ok().and_then(|length| parse_decimal(&text[..length]));
    matches!((shown, own), (Some((shown, [])), Ok(own)) if shown as usize == own)
}

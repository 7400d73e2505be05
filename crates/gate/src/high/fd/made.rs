//! File systems that the program has made by fsopen(2) and fsmount(2) and that are the kernel's as yet: which
//! descriptors are contexts of a tmpfs, and which of the kernel's mounts came of them.
//!
//! A context is known by its number from fsopen(2) on, a mount by its id of 64 bits, which is used once. What
//! is not known after an exec, or because there are too many, stays the kernel's.

use core::mem::zeroed;

use lp_abi::linux::{
    __NR_fstat, __NR_fstatfs, __NR_getdents64, __NR_openat, __NR_statx, __NR_sysinfo, AT_EMPTY_PATH,
    MS_NOATIME, MS_NODEV, MS_NODIRATIME, MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW, MS_RDONLY, MS_RELATIME,
    MS_STRICTATIME, O_CLOEXEC, O_DIRECTORY, STATX_MNT_ID_UNIQUE, stat, statfs, statx,
};
use lp_abi::{Fd, PAGE_SIZE};
use lp_region::mount::SOURCE;
use lp_region::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use lp_vfs::fsmount::Made;

use crate::high::fd::placeholder::close_number;

/// Contexts and mounts that are known at a time.
const KNOWN: usize = 16;
/// Bit of a key that is a context's number.
const CONTEXT: u64 = 1 << 63;
/// Key of an entry that is being written.
const WRITING: u64 = u64::MAX;

/// Words of `struct sysinfo`, and those with `totalram` and `mem_unit`.
const SYSINFO: usize = 14;
const TOTAL: usize = 4;
const UNIT: usize = 13;

/// A context or a mount, and its source.
struct Entry {
    /// 0 for none. Atomic: threads make file systems side by side.
    key: AtomicU64,
    source: [AtomicU8; SOURCE],
}

static ENTRIES: [Entry; KNOWN] =
    [const { Entry { key: AtomicU64::new(0), source: [const { AtomicU8::new(0) }; SOURCE] } }; KNOWN];
/// The entry that is used next if none is free.
static NEXT: AtomicU32 = AtomicU32::new(0);

fn find(key: u64) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.key.load(Ordering::Acquire) == key) // PAIRS: the store in `set`.
}

/// Says what the source of `key` is.
fn set(key: u64, source: &[u8]) {
    let oldest = NEXT.fetch_add(1, Ordering::Relaxed) as usize % KNOWN; // Relaxed: any will do.
    let Some(entry) = find(key).or_else(|| find(0)).or(ENTRIES.get(oldest)) else { return };
    let was = entry.key.load(Ordering::Relaxed);
    if was == WRITING
        || entry.key.compare_exchange(was, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return;
    }
    let bytes = source.iter().take(SOURCE - 1).chain(core::iter::repeat(&0));
    for (to, from) in entry.source.iter().zip(bytes) {
        to.store(*from, Ordering::Relaxed); // Relaxed: published by the store below.
    }
    entry.key.store(key, Ordering::Release); // PAIRS: the load in `find`.
}

fn source_of(key: u64) -> Option<[u8; SOURCE]> {
    let entry = find(key)?;
    Some(core::array::from_fn(|at| entry.source[at].load(Ordering::Relaxed))) // Relaxed: after `find`.
}

fn forget(key: u64) {
    if let Some(entry) = find(key) {
        let _ = entry.key.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

fn context_key(fd: Fd) -> u64 {
    CONTEXT | fd.raw() as u64
}

/// fsopen(2) has made a context.
pub(crate) fn begun(fd: Fd, is_tmpfs: bool) {
    if is_tmpfs { set(context_key(fd), b"none") } else { forget(context_key(fd)) }
}

/// Whether a descriptor is a context of a tmpfs.
pub(crate) fn is_context(fd: Fd) -> bool {
    find(context_key(fd)).is_some()
}

/// The context has been given a source.
pub(crate) fn named(fd: Fd, source: &[u8]) {
    set(context_key(fd), source);
}

/// fsmount(2) has made the mount `fd` of a context.
pub(crate) fn finished(context: Fd, fd: Fd) {
    if let (Some(source), Some(id)) = (source_of(context_key(context)), id_of(fd)) {
        set(id, &source);
    }
}

/// The id of the kernel's mount that a descriptor is the root of; `None` before Linux 6.8.
fn id_of(fd: Fd) -> Option<u64> {
    // SAFETY: numbers, for which zero is a value.
    let mut is = unsafe { zeroed::<statx>() };
    let (mask, empty) = (STATX_MNT_ID_UNIQUE, c"".as_ptr());
    // SAFETY: the path is NUL-terminated, and the kernel writes within `is`.
    unsafe { lp_abi::syscall!(__NR_statx, fd, empty, AT_EMPTY_PATH, mask, &raw mut is) }.ok()?;
    (is.stx_mask & mask != 0).then_some(is.stx_mnt_id)
}

/// Whether a descriptor is a mount that fsmount(2) has made of a tmpfs.
pub(crate) fn is_one(fd: Fd) -> bool {
    id_of(fd).is_some_and(|id| find(id).is_some())
}

/// What such a mount is, and its source, if nothing has been put into it.
pub(crate) fn of(fd: Fd) -> Option<(Made, [u8; SOURCE])> {
    let source = source_of(id_of(fd)?)?;
    if !is_empty(fd) {
        return None;
    }
    // SAFETY: numbers, for which zero is a value.
    let (mut root, mut fs) = unsafe { (zeroed::<stat>(), zeroed::<statfs>()) };
    let mut system = [0u64; SYSINFO];
    // SAFETY: the kernel writes within them.
    unsafe {
        lp_abi::syscall!(__NR_fstat, fd, &raw mut root).ok()?;
        lp_abi::syscall!(__NR_fstatfs, fd, &raw mut fs).ok()?;
        lp_abi::syscall!(__NR_sysinfo, system.as_mut_ptr()).ok()?;
    }
    // The kernel's default of both: half of the memory's pages.
    let default = system[TOTAL] * (system[UNIT] & 0xffff_ffff) / PAGE_SIZE as u64 / 2;
    let limit = |value: i64| Some(value as u64).filter(|value| *value != default);
    let made = Made {
        pages: limit(fs.f_blocks),
        inodes: limit(fs.f_files),
        mode: root.st_mode & 0o7777,
        owner: (root.st_uid, root.st_gid),
        flags: flags(fs.f_flags as u32),
    };
    Some((made, source))
}

/// `MS_*` of a mount whose statfs(2) has these flags.
fn flags(shown: u32) -> u32 {
    const SAME: u32 = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    /// `ST_NOATIME`, `ST_NODIRATIME`, `ST_RELATIME`, `ST_NOSYMFOLLOW`.
    const OTHERS: [(u32, u32); 4] =
        [(0x400, MS_NOATIME), (0x800, MS_NODIRATIME), (0x1000, MS_RELATIME), (0x2000, MS_NOSYMFOLLOW)];
    let others = OTHERS.iter().filter(|(bit, _)| shown & bit != 0).fold(0, |all, (_, flag)| all | flag);
    let strict = if others & (MS_NOATIME | MS_RELATIME) == 0 { MS_STRICTATIME } else { 0 };
    shown & SAME | others | strict
}

/// Whether a directory of the kernel's has no names.
fn is_empty(fd: Fd) -> bool {
    let mut room = [0u64; 16];
    // SAFETY: the path is NUL-terminated.
    let opened = unsafe { lp_abi::syscall!(__NR_openat, fd, c".".as_ptr(), O_DIRECTORY | O_CLOEXEC, 0) };
    let Ok(dir) = opened.map(|number| Fd::new(number as i32)) else { return false };
    // SAFETY: the kernel writes within `room`, in which `.` and `..` have 24 bytes each.
    let length = unsafe { lp_abi::syscall!(__NR_getdents64, dir, room.as_mut_ptr(), size_of_val(&room)) };
    close_number(dir);
    length == Ok(48)
}

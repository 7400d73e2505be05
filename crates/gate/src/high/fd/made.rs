//! File systems that the program has made by fsopen(2) and fsmount(2) and that are the kernel's as yet: which
//! descriptors are contexts of a tmpfs, and which of the kernel's mounts came of them.
//!
//! A context is known by its number from fsopen(2) on, a mount by its id of 64 bits, which is used once. What
//! is not known after an exec, or because there are too many, stays the kernel's.

use core::mem::zeroed;

use lp_abi::Fd;
use lp_abi::linux::{
    __NR_fstat, __NR_fstatfs, __NR_getdents64, __NR_openat, __NR_statx, AT_EMPTY_PATH, MOUNT_ATTR_RDONLY,
    MS_NOATIME, MS_NODEV, MS_NODIRATIME, MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW, MS_RDONLY, MS_RELATIME,
    MS_STRICTATIME, O_CLOEXEC, O_DIRECTORY, STATX_MNT_ID_UNIQUE, stat, statfs, statx,
};
use lp_region::mount::SOURCE;
use lp_region::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use lp_vfs::fsmount::Made;

use crate::high::fd::picked::push_option;
use crate::low::tools::close::close_number;

/// Contexts and mounts that are known at a time.
const KNOWN: usize = 16;
/// Bit of a key that is a context's number.
const CONTEXT: u64 = 1 << 63;
/// Bytes of options.
const OPTIONS: usize = 256;
/// The source of what was given none.
const NO_SOURCE: &[u8] = b"none";
/// Key of an entry that is being written.
const WRITING: u64 = u64::MAX;

/// What was asked for of a file system.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// Its source; zeros behind it.
    pub source: [u8; SOURCE],
    /// Its options, each with a comma behind it; zeros behind them.
    pub options: [u8; OPTIONS],
    /// Whether its mount was made read-only.
    pub is_read_only: bool,
}

impl Known {
    /// Adds an option: whether there is room for it.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        let length = length(&self.options);
        push_option(&mut self.options[length..], key, value).is_some()
    }
}

/// Bytes before the first zero.
fn length(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == 0).unwrap_or(text.len())
}

/// A context or a mount, and what is known of it.
struct Entry {
    /// 0 for none. Atomic: threads make file systems side by side.
    key: AtomicU64,
    source: [AtomicU8; SOURCE],
    options: [AtomicU8; OPTIONS],
    read_only: AtomicU32,
}

static ENTRIES: [Entry; KNOWN] = [const {
    Entry {
        key: AtomicU64::new(0),
        source: [const { AtomicU8::new(0) }; SOURCE],
        options: [const { AtomicU8::new(0) }; OPTIONS],
        read_only: AtomicU32::new(0),
    }
}; KNOWN];
/// The entry that is used next if none is free.
static NEXT: AtomicU32 = AtomicU32::new(0);

fn find(key: u64) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.key.load(Ordering::Acquire) == key) // PAIRS: the store in `set`.
}

/// Says what is known of `key`.
fn set(key: u64, known: &Known) {
    let oldest = NEXT.fetch_add(1, Ordering::Relaxed) as usize % KNOWN; // Relaxed: any will do.
    let Some(entry) = find(key).or_else(|| find(0)).or(ENTRIES.get(oldest)) else { return };
    let was = entry.key.load(Ordering::Relaxed);
    if was == WRITING
        || entry.key.compare_exchange(was, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return;
    }
    // Relaxed, all: published by the store below.
    for (to, from) in entry.source.iter().zip(known.source).chain(entry.options.iter().zip(known.options)) {
        to.store(from, Ordering::Relaxed);
    }
    entry.read_only.store(known.is_read_only.into(), Ordering::Relaxed);
    entry.key.store(key, Ordering::Release); // PAIRS: the load in `find`.
}

fn get(key: u64) -> Option<Known> {
    let entry = find(key)?;
    // Relaxed, all: after `find`.
    let source = core::array::from_fn(|at| entry.source[at].load(Ordering::Relaxed));
    let options = core::array::from_fn(|at| entry.options[at].load(Ordering::Relaxed));
    Some(Known { source, options, is_read_only: entry.read_only.load(Ordering::Relaxed) != 0 })
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
    let mut known = Known { source: [0; SOURCE], options: [0; OPTIONS], is_read_only: false };
    known.source[..NO_SOURCE.len()].copy_from_slice(NO_SOURCE);
    if is_tmpfs { set(context_key(fd), &known) } else { forget(context_key(fd)) }
}

/// Whether a descriptor is a context of a tmpfs.
pub(crate) fn is_context(fd: Fd) -> bool {
    find(context_key(fd)).is_some()
}

/// The kernel has taken an option of a context, which `change` adds to what is known. If it finds no room for
/// it, what comes of the context stays the kernel's.
pub(crate) fn changed(fd: Fd, change: impl FnOnce(&mut Known) -> bool) {
    if let Some(mut known) = get(context_key(fd)) {
        if change(&mut known) { set(context_key(fd), &known) } else { forget(context_key(fd)) }
    }
}

/// fsmount(2) has made the mount `fd` of a context, with these `MOUNT_ATTR_*`.
pub(crate) fn finished(context: Fd, fd: Fd, attributes: u32) {
    if let (Some(known), Some(id)) = (get(context_key(context)), id_of(fd)) {
        set(id, &Known { is_read_only: attributes & MOUNT_ATTR_RDONLY != 0, ..known });
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

/// Calls `make` with what such a mount is, if nothing has been put into it.
pub(crate) fn with<T>(fd: Fd, make: impl FnOnce(&Made<'_>) -> T) -> Option<T> {
    let known = get(id_of(fd)?)?;
    if !is_empty(fd) {
        return None;
    }
    // SAFETY: numbers, for which zero is a value.
    let (mut root, mut fs) = unsafe { (zeroed::<stat>(), zeroed::<statfs>()) };
    // SAFETY: the kernel writes within them.
    unsafe {
        lp_abi::syscall!(__NR_fstat, fd, &raw mut root).ok()?;
        lp_abi::syscall!(__NR_fstatfs, fd, &raw mut fs).ok()?;
    }
    // statfs(2) does not tell whether it is the mount that is read-only, or the file system.
    let options = &known.options[..length(&known.options)];
    let mut shown = fs.f_flags as u32;
    if options.split(|byte| *byte == b',').any(|option| option == b"ro") && !known.is_read_only {
        shown &= !MS_RDONLY;
    }
    Some(make(&Made {
        options,
        source: &known.source[..length(&known.source)],
        mode: root.st_mode & 0o7777,
        owner: (root.st_uid, root.st_gid),
        flags: flags(shown),
    }))
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

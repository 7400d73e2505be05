//! Placeholders: the kernel's descriptors behind descriptors of ours, so that the kernel manages the numbers.
//!
//! Each is a duplicate of the *base*, an `O_PATH` descriptor of a symbolic link, kept at a high number: any
//! call that reaches the kernel with it gets `EBADF`, never data, and opening a name in /proc that leads to
//! it fails with `ELOOP` ([`crate::high::route::hostlink`]). Closing a descriptor of ours *parks* its
//! placeholder if possible, and the next open reuses it, so that a loop of the two makes no system call.
//!
//! To the program a parked number is free, so it must be the one that the kernel would give next. Hence the
//! *watermark*: every number below it is in use or parked. It rises when the kernel gives out the lowest free
//! number and falls when a number below it is really closed. Only numbers below it are parked, so the lowest
//! parked number is the lowest free one. Before the kernel gives out a number itself, parked placeholders are
//! closed ([`flush`]).
//!
//! All of this state is in the process's slot: fork copies it as it copies the descriptors. While threads
//! share the table, they change the bits of parked numbers side by side ([`Beside`]), and everything else,
//! and the kernel's table, alone ([`Alone`]).

use lp_abi::linux::{
    __NR_dup2, __NR_dup3, __NR_fcntl, __NR_fstat, __NR_fstatfs, __NR_open, __NR_statfs, F_DUPFD,
    F_DUPFD_CLOEXEC, F_SETFD, O_CLOEXEC, O_NOFOLLOW, O_PATH, S_IFLNK, S_IFMT, stat, statfs,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::layout::FDS;
use lp_region::process::Process;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_vfs::table::{self, Alone, Beside, entry};
use lp_vfs::task::Task;

use crate::high::fd::soft_limit;
use crate::high::memory::{missing, pagemap};
use crate::high::run::apart::is_regions;
use crate::high::run::words::{BASE, FROM_THREADS, MISSING, PAGEMAP, READY, WATERMARK};
use crate::low::arrive::entry_quick::QUICK_FDS;
use crate::low::tools::close::close_number;

/// Numbers below this can be parked.
const PARKABLE: i32 = 64;
/// Maximum distance of the base below the region's descriptor.
const BELOW: i32 = 16;
/// `PROC_SUPER_MAGIC` of linux/magic.h.
const PROC: i64 = 0x9fa0;
/// The lowest reserved number: above those that programs care about.
const FIRST_READY: i32 = PARKABLE;

fn base_word<'t>(task: &'t Task) -> &'t AtomicU32 {
    &task.process.gate_words[BASE]
}

fn watermark<'t>(task: &'t Task) -> &'t AtomicU32 {
    &task.process.gate_words[WATERMARK]
}

/// Whether `fd` is one of the gate's own, which must look closed to the program.
#[inline(always)]
pub(crate) fn is_guarded(task: &Task, fd: Fd) -> bool {
    is_guarded_in(task, task.process, fd)
}

/// [`is_guarded`] for a descriptor of any process of the run.
#[inline(always)]
pub(crate) fn is_guarded_in(task: &Task, process: &Process, fd: Fd) -> bool {
    // Relaxed, both: immutable, and one word of the process's.
    let [flights, base] =
        [&task.run.flights, &process.gate_words[BASE]].map(|word| word.load(Ordering::Relaxed));
    is_regions(task.region.fd(), fd)
        || is_regions(Fd::new(flights as i32 - 1), fd)
        || fd.raw() >= 0
            && (base == fd.raw() as u32 + 1 || missing::FD.is(process, fd) || pagemap::FD.is(process, fd))
}

/// Whether one of the gate's own may be among the descriptors with a fast path; see
/// [`crate::low::arrive::entry_quick`].
pub(crate) fn own_may_be_low(task: &Task) -> bool {
    task.region.fd().raw() - BELOW < QUICK_FDS
}

/// The gate's own descriptors, in ascending order.
pub(crate) fn guarded(task: &Task) -> impl Iterator<Item = u32> + use<> {
    let others = [&task.run.flights, base_word(task)].map(|word| word.load(Ordering::Relaxed).checked_sub(1));
    let region = u32::try_from(task.region.fd().raw()).ok();
    let [flights, base] = others;
    let [missing, pagemap] = [missing::FD, pagemap::FD].map(|fd| fd.own(task).map(|fd| fd.raw() as u32));
    let mut own =
        [region, region.map(|fd| fd + 1), flights, flights.map(|fd| fd + 1), base, missing, pagemap];
    own.sort_unstable();
    own.into_iter().flatten()
}

/// Takes the lowest free number at or above `min`, with a placeholder on it and [`entry::TRANSIT`] in the
/// table.
///
/// # Errors
/// `EMFILE` and `EINVAL` as from fcntl(2)'s `F_DUPFD`; `EMFILE` also for numbers that cannot be ours.
#[inline(always)]
pub(crate) fn allocate(task: &'static Task<'static>, min: u32) -> Result<Fd> {
    let beside = Beside::take_to_park(task);
    match take_parked(task, &beside, min) {
        Some(fd) => Ok(fd),
        None => {
            drop(beside);
            allocate_slow(task, min)
        }
    }
}

/// [`allocate`] for a call that takes any number: under a limit of 0 there is none, where `F_DUPFD` refuses
/// its minimum.
///
/// # Errors
/// `EMFILE`.
#[inline(always)]
pub(crate) fn allocate_lowest(task: &'static Task<'static>) -> Result<Fd> {
    allocate(task, 0).map_err(|errno| if errno == Errno::EINVAL { Errno::EMFILE } else { errno })
}

/// Takes the lowest parked number at or above `min`.
#[inline(always)]
fn take_parked(task: &Task, beside: &Beside, min: u32) -> Option<Fd> {
    loop {
        let parked = task.process.parked.load(Ordering::Relaxed); // Relaxed: the exchange looks again.
        let usable = if min == 0 { parked } else { parked & u64::MAX.checked_shl(min).unwrap_or(0) };
        if usable == 0 {
            return None;
        }
        let number = usable.trailing_zeros();
        if beside.exchange(&task.process.parked, parked, parked & !(1 << number)) {
            task.table.low(number).store(entry::TRANSIT, Ordering::Relaxed); // Relaxed: nobody else's number.
            return Some(Fd::new(number as i32));
        }
    }
}

#[cold]
fn allocate_slow(task: &'static Task<'static>, min: u32) -> Result<Fd> {
    if lp_abi::sys::is_limited() {
        return take_ready(task, min);
    }
    // A fork by another thread copies both tables or neither.
    let _alone = Alone::take(task);
    let base = base(task)?;
    // SAFETY: F_DUPFD only creates a descriptor.
    let number = unsafe { lp_abi::syscall!(__NR_fcntl, base, F_DUPFD, min) }?;
    if number >= FDS {
        close_number(Fd::new(number as i32));
        return Err(Errno::EMFILE);
    }
    let place =
        table::reach(task, Fd::new(number as i32)).inspect_err(|_| close_number(Fd::new(number as i32)))?;
    table::replace(task, place, entry::TRANSIT);
    let mark = watermark(task).load(Ordering::Relaxed);
    if min <= mark && mark <= number as u32 {
        watermark(task).store(number as u32 + 1, Ordering::Relaxed);
    }
    Ok(Fd::new(number as i32))
}

/// Before the process limits itself: disables parking and reserves some placeholders.
#[cold]
pub(crate) fn keep_ready(task: &'static Task<'static>) {
    flush(task);
    let alone = Alone::take(task);
    alone.for_good(task);
    watermark(task).store(0, Ordering::Relaxed);
    let Ok(base) = base(task) else { return };
    for _ in 0..u32::BITS {
        // SAFETY: F_DUPFD only creates a descriptor.
        let number = unsafe { lp_abi::syscall!(__NR_fcntl, base, F_DUPFD, FIRST_READY) };
        let Ok(number) = number else { return };
        if !put_ready(task, Fd::new(number as i32)) {
            return close_number(Fd::new(number as i32));
        }
    }
}

/// Reserves the placeholder on `fd` for another open, if the number qualifies. The caller must have
/// the table alone.
fn put_ready(task: &Task, fd: Fd) -> bool {
    let bit = fd.raw().wrapping_sub(FIRST_READY) as u32;
    if bit >= u32::BITS {
        return false;
    }
    let Ok(place) = table::reach(task, fd) else { return false };
    table::replace(task, place, entry::PARKED);
    let ready = &task.process.gate_words[READY];
    ready.store(ready.load(Ordering::Relaxed) | 1 << bit, Ordering::Relaxed);
    true
}

/// Takes the lowest reserved number that is at least `min`.
fn take_ready(task: &'static Task<'static>, min: u32) -> Result<Fd> {
    let _alone = Alone::take(task);
    let all = task.process.gate_words[READY].load(Ordering::Relaxed);
    let usable = all & u32::MAX.checked_shl(min.saturating_sub(FIRST_READY as u32)).unwrap_or(0);
    if usable == 0 {
        return Err(Errno::EMFILE);
    }
    let number = Fd::new(FIRST_READY + usable.trailing_zeros() as i32);
    unmark_parked(task, number);
    task.table.place(number.raw() as u32).store(entry::TRANSIT, Ordering::Release);
    Ok(number)
}

/// Puts `word`, an open file of ours, on number `fd` in place of what is there, like dup2(2). Returns the
/// table's previous word. The table changes first and in one store, so other threads never see the number
/// closed.
///
/// # Errors
/// `EBADF` past the limits; `EBUSY` while another thread opens the number.
#[cold]
pub(crate) fn replace(task: &'static Task<'static>, fd: Fd, word: u64) -> Result<u64> {
    let _alone = Alone::take(task);
    let base = base(task)?;
    let place = table::reach(task, fd)?;
    let seen = place.load(Ordering::Relaxed); // Relaxed: the table is alone.
    if seen == entry::TRANSIT {
        return Err(Errno::EBUSY);
    }
    let is_parked = seen & (entry::OPEN | entry::PARKED | entry::SHADOW) == entry::PARKED;
    if seen & entry::DATA != 0 || is_parked {
        // The placeholder stays.
        soft_limit::check(task, fd)?;
        let old = table::replace(task, place, word);
        if is_parked {
            unmark_parked(task, fd);
        }
        return Ok(old);
    }
    let old = table::replace(task, place, word);
    // The number may have been a file received over a socket. PAIRS: the last load of `moves` in `sweep`,
    // after it has asked for tokens.
    task.region.header().moves.fetch_add(1, Ordering::Release);
    // SAFETY: the program asked for this number to be replaced.
    let placed = match unsafe { lp_abi::syscall!(__NR_dup3, base, fd, 0) } {
        // A limited process whose own call is dup2.
        // SAFETY: the program asked for this number to be replaced.
        Err(Errno::ENOSYS) => unsafe { lp_abi::syscall!(__NR_dup2, base, fd) },
        done => done,
    };
    if let Err(errno) = placed {
        table::restore(task, place, old);
        return Err(errno);
    }
    Ok(old)
}

/// Clears the number's parked bit. The caller must have the table alone.
pub(crate) fn unmark_parked(task: &Task, fd: Fd) {
    let parked = task.process.parked.load(Ordering::Relaxed);
    if (0..PARKABLE).contains(&fd.raw()) && parked & 1 << fd.raw() != 0 {
        task.process.parked.store(parked & !(1 << fd.raw()), Ordering::Relaxed);
    }
    let bit = fd.raw().wrapping_sub(FIRST_READY) as u32;
    if bit < u32::BITS {
        let ready = &task.process.gate_words[READY];
        ready.store(ready.load(Ordering::Relaxed) & !(1 << bit), Ordering::Relaxed);
    }
}

/// Parks or closes the unneeded placeholder on `fd`, which came from [`allocate`].
pub(crate) fn release(task: &'static Task<'static>, fd: Fd) {
    let place = task.table.place(fd.raw() as u32);
    let beside = Beside::take(task);
    if is_parkable(task, fd) {
        place.store(entry::PARKED, Ordering::Release);
        return beside.set(&task.process.parked, 1 << fd.raw());
    }
    drop(beside);
    let _alone = Alone::take(task);
    vacate(task, fd, place);
}

/// close(2) of a file of ours.
///
/// # Errors
/// `EBADF` if another thread was first.
#[inline(always)]
pub(crate) fn close(task: &'static Task<'static>, fd: Fd) -> Result<()> {
    let beside = Beside::take_to_park(task);
    if !is_parkable(task, fd) {
        drop(beside);
        return table::take_out(task, fd, |place| vacate(task, fd, place));
    }
    // The bit comes last: until then nobody gets the number.
    let park = |beside: &Beside| beside.set(&task.process.parked, 1 << fd.raw());
    table::take_out_beside(task, beside, task.table.low(fd.raw() as u32), entry::PARKED, park)
}

/// Whether the placeholder on `fd` may be kept there for another open. While it is certain, the caller has
/// the table beside others or alone.
#[inline(always)]
fn is_parkable(task: &Task, fd: Fd) -> bool {
    // Relaxed: changed by threads that have the table alone.
    fd.raw() < PARKABLE && (fd.raw() as u32) < watermark(task).load(Ordering::Relaxed)
}

/// Parks or closes the placeholder on `fd`, whose entry is in transit. The caller must have the table alone.
#[inline]
pub(crate) fn vacate(task: &Task, fd: Fd, place: &AtomicU64) {
    if is_parkable(task, fd) {
        place.store(entry::PARKED, Ordering::Release);
        let parked = task.process.parked.load(Ordering::Relaxed);
        task.process.parked.store(parked | 1 << fd.raw(), Ordering::Relaxed);
    } else {
        close_or_keep(task, fd, place);
    }
}

/// [`close_slow`], except that a limited process keeps what it can reuse.
#[cold]
fn close_or_keep(task: &Task, fd: Fd, place: &AtomicU64) {
    if !lp_abi::sys::is_limited() || !put_ready(task, fd) {
        close_slow(task, fd, place);
    }
}

/// Closes the kernel's descriptor behind an entry in transit. The entry stays in transit until that is done,
/// because the kernel may give the number away at once. The caller must have the table alone.
#[cold]
pub(crate) fn close_slow(task: &Task, fd: Fd, place: &AtomicU64) {
    close_number(fd);
    lower(task, fd.raw() as u32);
    place.store(0, Ordering::Release);
}

fn lower(task: &Task, number: u32) {
    if number < watermark(task).load(Ordering::Relaxed) {
        watermark(task).store(number, Ordering::Relaxed);
    }
}

/// The program closes the host's descriptor `fd`, or the kernel has removed it: the parked numbers above it
/// are no longer the lowest free ones.
#[inline]
pub(crate) fn host_closes(task: &'static Task<'static>, fd: Fd) {
    if (fd.raw() as u32) < watermark(task).load(Ordering::Relaxed) {
        host_closes_slow(task, fd.raw() as u32);
    }
}

#[cold]
fn host_closes_slow(task: &'static Task<'static>, fd: u32) {
    let _alone = Alone::take(task);
    flush_from(task, fd);
    lower(task, fd);
}

/// Closes parked placeholders: the kernel is about to give out a number.
#[inline(always)]
pub(crate) fn flush(task: &'static Task<'static>) {
    if task.process.parked.load(Ordering::Relaxed) != 0 {
        flush_slow(task);
    }
}

#[cold]
fn flush_slow(task: &'static Task<'static>) {
    let _alone = Alone::take(task);
    flush_from(task, 0);
}

/// Closes what is parked at or above `from`. The caller must have the table alone.
fn flush_from(task: &Task, from: u32) {
    let parked = task.process.parked.load(Ordering::Relaxed);
    let mut close = parked & u64::MAX.checked_shl(from).unwrap_or(0);
    task.process.parked.store(parked & !close, Ordering::Relaxed);
    if close != 0 {
        lower(task, close.trailing_zeros());
    }
    while close != 0 {
        let number = close.trailing_zeros();
        task.table.place(number).store(0, Ordering::Relaxed);
        close_number(Fd::new(number as i32));
        close &= close - 1;
    }
}

/// Before an exec: the new image must not inherit parked placeholders. It gets the base, which it would make
/// again, unless that is not beside the region.
pub(crate) fn before_exec(task: &'static Task<'static>) {
    flush(task);
    let base = base_word(task).load(Ordering::Relaxed) as i32 - 1;
    if base > task.region.fd().raw() && !lp_abi::sys::is_limited() {
        // SAFETY: F_SETFD changes one flag of the gate's own descriptor.
        let _ = unsafe { lp_abi::syscall!(__NR_fcntl, base, F_SETFD, 0) };
    }
}

/// After exec, which has closed the base unless [`before_exec`] kept it. Threads of the old image may have
/// been killed while they opened or closed something. Such a number belongs to a placeholder or, if that was
/// closed, to whatever the kernel gave it to.
pub(crate) fn after_exec(task: &Task) {
    let base = base_word(task);
    let word = base.load(Ordering::Relaxed);
    if word != 0 && !is_placeholder(Fd::new(word as i32 - 1)) {
        base.store(0, Ordering::Relaxed);
    }
    watermark(task).store(0, Ordering::Relaxed);
    task.process.parked.store(0, Ordering::Relaxed);
    clear(
        task,
        |word| word & (entry::OPEN | entry::SHADOW) == 0 && word & (entry::TRANSIT | entry::PARKED) != 0,
        is_placeholder,
    );
}

/// In a child, whose table and the kernel's are copies of the same moment: what other threads were opening is
/// not open here.
pub(crate) fn after_fork(task: &Task) {
    if task.process.gate_words[FROM_THREADS].swap(0, Ordering::Relaxed) != 0 {
        clear(task, |word| word == entry::TRANSIT, |_| true);
    }
}

/// Clears entries, and closes the kernel's descriptor behind those that have a placeholder.
fn clear(task: &Task, is_meant: impl Fn(u64) -> bool, has_placeholder: impl Fn(Fd) -> bool) {
    for (fd, place) in task.table.entries() {
        if is_meant(place.load(Ordering::Relaxed)) {
            if has_placeholder(fd) {
                close_number(fd);
                lower(task, fd.raw() as u32);
            }
            place.store(0, Ordering::Release);
        }
    }
}

/// Whether `fd`, for which the table has a mark, is a placeholder in the kernel.
fn is_placeholder(fd: Fd) -> bool {
    // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
    unsafe {
        let mut found: stat = core::mem::zeroed();
        let asked = lp_abi::syscall!(__NR_fstat, fd, &raw mut found);
        asked.is_ok() && found.st_mode & S_IFMT == S_IFLNK
    }
}

/// Whether `fd`, which another process had, is a placeholder: a symbolic link of /proc, opened itself.
pub(super) fn is_copy(fd: Fd) -> bool {
    is_of_proc(fd) && is_placeholder(fd)
}

/// Whether a descriptor of the kernel's, or the working directory, is of a procfs.
pub(crate) fn is_of_proc(fd: Fd) -> bool {
    // SAFETY: zeros are a valid `statfs`, and the kernel fills it in; the path is a string.
    unsafe {
        let mut found: statfs = core::mem::zeroed();
        let asked = match fd == Fd::CWD {
            true => lp_abi::syscall!(__NR_statfs, c".".as_ptr(), &raw mut found),
            false => lp_abi::syscall!(__NR_fstatfs, fd, &raw mut found),
        };
        asked.is_ok() && found.f_type == PROC
    }
}

/// Copies the placeholders' state to the slot of a child, which has a copy of the descriptors.
pub(crate) fn copy_to(task: &Task, child: &lp_region::process::Process) {
    child.parked.store(task.process.parked.load(Ordering::Relaxed), Ordering::Relaxed);
    child.gate_words[FROM_THREADS]
        .store(u32::from(task.process.threads.load(Ordering::Relaxed) != 0), Ordering::Relaxed);
    for word in [BASE, WATERMARK, MISSING, PAGEMAP] {
        child.gate_words[word]
            .store(task.process.gate_words[word].load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The base's number; created at the first descriptor of ours. The caller must have the table alone.
fn base(task: &Task) -> Result<Fd> {
    let word = base_word(task).load(Ordering::Relaxed);
    if word != 0 { Ok(Fd::new(word as i32 - 1)) } else { make_base(task) }
}

/// Whether a limit of `soft` descriptors leaves no number beside the region's, which is `region`.
pub(crate) fn needs_base(region: Fd, soft: u64) -> bool {
    soft <= u64::from(region.raw().unsigned_abs()) + 3
}

/// Before the number of descriptors is limited: the base gets a number that the program cannot have.
#[cold]
pub(crate) fn before_limit(task: &'static Task<'static>, soft: u64) {
    flush(task);
    let alone = Alone::take(task);
    // Numbers at or above the limit are not given out any more, so they must not be parked.
    watermark(task).fetch_min(soft.min(u32::MAX.into()) as u32, Ordering::Relaxed);
    drop(alone);
    if needs_base(task.region.fd(), soft) {
        let _alone = Alone::take(task);
        let _ = base(task);
    }
}

/// Creates the base. The link is the process's own, so that nothing that reaches it by its name in /proc can
/// change anything of others; its children inherit it.
#[cold]
fn make_base(task: &Task) -> Result<Fd> {
    let flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: the path is NUL-terminated; the call only creates a descriptor.
    let low = unsafe { lp_abi::syscall!(__NR_open, c"/proc/self/exe".as_ptr(), flags) }?;
    let low = Fd::new(low as i32);
    let region = task.region.fd().raw();
    // Beside the region, out of the program's way. Close-on-exec until `before_exec`: a thread that is killed
    // here by another's exec leaves nothing.
    let high = [region + 2, region - BELOW, QUICK_FDS, 0].into_iter().find_map(|min| {
        // SAFETY: F_DUPFD_CLOEXEC only creates a descriptor.
        unsafe { lp_abi::syscall!(__NR_fcntl, low, F_DUPFD_CLOEXEC, min.max(0)) }.ok()
    });
    close_number(low);
    let base = high.ok_or(Errno::EMFILE)? as i32;
    base_word(task).store(base as u32 + 1, Ordering::Relaxed);
    if base < QUICK_FDS {
        crate::low::cover::patch::take_long_way();
    }
    Ok(Fd::new(base))
}

//! What the kernel says of a thread: ids, groups, capabilities, securebits, umask and limits. It is read into
//! the record that file calls look at.

use lp_abi::linux::{
    __NR_capget, __NR_close, __NR_getegid, __NR_getgid, __NR_getgroups, __NR_getresuid, __NR_mmap,
    __NR_munmap, __NR_open, __NR_prctl, __NR_prlimit64, __NR_read, __NR_setfsgid, __NR_setfsuid, __NR_umask,
    _LINUX_CAPABILITY_VERSION_3, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID,
    CAP_LEASE, CAP_LINUX_IMMUTABLE, CAP_MKNOD, CAP_SETFCAP, CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_SYS_RESOURCE,
    MAP_ANONYMOUS, MAP_PRIVATE, NGROUPS_MAX, O_CLOEXEC, O_RDONLY, PROT_READ, PROT_WRITE, RLIMIT_FSIZE,
};
use lp_region::process::{Process, caps};
use lp_region::sync::{AtomicU32, Ordering};

use crate::caller::id_map::{self, IdKind};

/// The ids that the kernel passes to a new image in its auxiliary vector.
#[derive(Clone, Copy, Default)]
pub struct ImageIds {
    /// `AT_UID`.
    pub uid: u32,
    /// `AT_EUID`.
    pub euid: u32,
    /// `AT_GID`.
    pub gid: u32,
    /// `AT_EGID`.
    pub egid: u32,
}

/// Records ids as the kernel shows them, of which the effective ones count for files. `process` has the map
/// of ids.
pub(super) fn store_ids(credentials: &Process, process: &Process, ids: ImageIds) {
    let store = |word: &AtomicU32, kind: IdKind, shown: u32| {
        let id = id_map::own(process, kind, shown, word.load(Ordering::Relaxed));
        word.store(id, Ordering::Relaxed); // Relaxed: the thread's own.
    };
    store(&credentials.ruid, IdKind::User, ids.uid);
    store(&credentials.rgid, IdKind::Group, ids.gid);
    store(&credentials.fsuid, IdKind::User, ids.euid);
    store(&credentials.fsgid, IdKind::Group, ids.egid);
}

/// Reads user, group, capabilities and file size limit from the kernel, after any call that changes them.
/// `process` has the map of ids. In a user namespace, groups that have no id there are shown as one: they
/// stay as they are until [`load_groups`].
pub fn load_credentials(credentials: &Process, process: &Process) {
    let mut ids = [0u32; 3];
    // SAFETY: the kernel writes three words.
    let _ = unsafe { lp_abi::syscall!(__NR_getresuid, &raw mut ids[0], &raw mut ids[1], &raw mut ids[2]) };
    // SAFETY: getgid(2) has no effect.
    let gid = unsafe { lp_abi::syscall!(__NR_getgid) }.unwrap_or(0);
    // Where a filter denies these calls, the ids are the effective ones: an exec, or a change of the
    // effective id, makes them so.
    // SAFETY: an invalid id changes nothing; the call returns the current one (setfsuid(2)).
    let fsuid = unsafe { lp_abi::syscall!(__NR_setfsuid, u32::MAX) }.map_or(ids[1], |id| id as u32);
    // SAFETY: an invalid id changes nothing; the call returns the current one (setfsgid(2)).
    let fsgid = unsafe { lp_abi::syscall!(__NR_setfsgid, u32::MAX) };
    // SAFETY: getegid(2) has no effect.
    let fsgid = fsgid.or_else(|_| unsafe { lp_abi::syscall!(__NR_getegid) }).unwrap_or(gid);
    let ids = ImageIds { uid: ids[0], euid: fsuid, gid: gid as u32, egid: fsgid as u32 };
    store_ids(credentials, process, ids);
    if !id_map::is_inside(process) {
        load_groups(credentials, process);
    }
    load_capabilities(credentials);
    load_limit(credentials, 0);
}

/// Reads the supplementary groups, which all have an id in the process's namespace. If there are more than
/// the record holds, the first count.
pub fn load_groups(credentials: &Process, process: &Process) {
    let groups = &credentials.groups;
    let room =
        if core::ptr::eq(credentials, process) { id_map::room_for_groups(process) } else { groups.len() };
    let count = match room {
        // The kernel would return how many there are.
        0 => 0,
        // SAFETY: the kernel writes at most `room` words, of which there are as many.
        _ => unsafe { lp_abi::syscall!(__NR_getgroups, room, groups.as_ptr()) }
            .unwrap_or_else(|_| first_groups(&groups[..room])),
    };
    for group in groups.iter().take(count) {
        let shown = group.load(Ordering::Relaxed);
        // No group has the id -1.
        let id = id_map::to_run(process, IdKind::Group, shown).unwrap_or(u32::MAX);
        group.store(id, Ordering::Relaxed);
    }
    credentials.group_count.store(count as u32, Ordering::Relaxed);
}

/// Reads the first of more groups than there is room for. Returns their number.
#[cold]
fn first_groups(to: &[AtomicU32]) -> usize {
    const BYTES: usize = NGROUPS_MAX as usize * size_of::<u32>();
    let (access, kind) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    // SAFETY: a new mapping where the kernel chooses.
    let mapped = unsafe { lp_abi::syscall!(__NR_mmap, 0, BYTES, access, kind, -1, 0) };
    let Ok(all) = mapped else { return 0 };
    // SAFETY: the kernel writes within the mapping.
    let count = unsafe { lp_abi::syscall!(__NR_getgroups, NGROUPS_MAX, all) }.unwrap_or(0);
    for (index, group) in to.iter().enumerate().take(count) {
        // SAFETY: within the mapping, which nobody else knows.
        group.store(unsafe { (all as *const u32).add(index).read() }, Ordering::Relaxed);
    }
    // SAFETY: the mapping made above.
    let _ = unsafe { lp_abi::syscall!(__NR_munmap, all, BYTES) };
    count.min(to.len())
}

/// Reads the calling thread's capabilities.
pub fn load_capabilities(process: &Process) {
    let (effective, permitted) = capabilities();
    let kept = process.caps.load(Ordering::Relaxed) & (caps::NO_FIXUP | caps::IN_NAMESPACE);
    process.caps.store(effective | kept, Ordering::Relaxed);
    process.permitted.store(permitted, Ordering::Relaxed);
}

/// Reads the file size limit of a process, which another may change (prlimit(2)). The caller knows it as
/// `pid`, or as 0 if it is its own.
pub fn load_limit(process: &Process, pid: i32) {
    let mut limit = [u64::MAX; 2];
    // SAFETY: the kernel writes two words.
    let read = unsafe { lp_abi::syscall!(__NR_prlimit64, pid, RLIMIT_FSIZE, 0, limit.as_mut_ptr()) };
    if pid == 0 || read.is_ok() {
        process.fsize_limit.store(limit[0], Ordering::Relaxed);
    }
}

/// Reads the umask from the kernel.
pub(super) fn load_umask(process: &Process) {
    process.umask.store(umask_of_status().unwrap_or_else(umask_by_setting), Ordering::Relaxed);
}

/// The umask according to the second line of /proc/self/status. It is not set to read it, because another
/// thread may be creating files.
fn umask_of_status() -> Option<u32> {
    const LABEL: &[u8] = b"\nUmask:\t";
    let mut text = [0u8; 256];
    // SAFETY: the path is NUL-terminated, and the kernel writes within the buffer; the descriptor is closed
    // again.
    let got = unsafe {
        let flags = O_RDONLY | O_CLOEXEC;
        let fd = lp_abi::syscall!(__NR_open, c"/proc/self/status".as_ptr(), flags, 0).ok()?;
        let got = lp_abi::syscall!(__NR_read, fd, text.as_mut_ptr(), text.len());
        let _ = lp_abi::syscall!(__NR_close, fd);
        got.ok()?
    };
    let text = text.get(..got as usize)?;
    let digits = text.windows(LABEL.len()).position(|window| window == LABEL)? + LABEL.len();
    let octal = text[digits..].iter().take_while(|byte| (b'0'..=b'7').contains(byte));
    Some(octal.fold(0, |mask, byte| mask << 3 | u32::from(byte - b'0')))
}

/// The umask by umask(2), which sets it: without /proc, or in a process with one thread.
pub(super) fn umask_by_setting() -> u32 {
    // SAFETY: umask(2) always succeeds and takes no pointers; the old value is restored at once.
    unsafe {
        let old = lp_abi::syscall!(__NR_umask, 0o77).unwrap_or(0o22);
        let _ = lp_abi::syscall!(__NR_umask, old);
        old as u32
    }
}

/// The effective and the permitted capabilities that matter to file calls, as [`caps`].
fn capabilities() -> (u32, u32) {
    const WANTED: [(u32, u32); 12] = [
        (CAP_DAC_OVERRIDE, caps::DAC_OVERRIDE),
        (CAP_DAC_READ_SEARCH, caps::DAC_READ_SEARCH),
        (CAP_FOWNER, caps::FOWNER),
        (CAP_CHOWN, caps::CHOWN),
        (CAP_FSETID, caps::FSETID),
        (CAP_MKNOD, caps::MKNOD),
        (CAP_LINUX_IMMUTABLE, caps::LINUX_IMMUTABLE),
        (CAP_SYS_ADMIN, caps::SYS_ADMIN),
        (CAP_SYS_RESOURCE, caps::SYS_RESOURCE),
        (CAP_LEASE, caps::LEASE),
        (CAP_SYS_CHROOT, caps::SYS_CHROOT),
        (CAP_SETFCAP, caps::SETFCAP),
    ];
    let header = [_LINUX_CAPABILITY_VERSION_3, 0u32];
    // Effective, permitted, inheritable: the low words, then the high ones.
    let mut data = [0u32; 6];
    // SAFETY: the kernel reads the header and writes six words.
    let asked = unsafe { lp_abi::syscall!(__NR_capget, header.as_ptr(), data.as_mut_ptr()) };
    if asked.is_err() {
        return (0, 0);
    }
    let wanted = |word: u32| {
        WANTED.iter().filter(|(number, _)| word & 1 << number != 0).fold(0, |set, (_, bit)| set | bit)
    };
    (wanted(data[0]), wanted(data[1]))
}

/// Reads the calling thread's securebits.
pub fn load_securebits(credentials: &Process) {
    // SAFETY: takes no pointers.
    let bits = unsafe { lp_abi::syscall!(__NR_prctl, PR_GET_SECUREBITS) }.unwrap_or(0);
    set_securebits(credentials, bits as u32);
}

/// `PR_GET_SECUREBITS` of linux/prctl.h.
const PR_GET_SECUREBITS: u32 = 27;
/// `SECBIT_NO_SETUID_FIXUP` of linux/securebits.h.
const NO_SETUID_FIXUP: u32 = 4;

/// Records what matters of a thread's securebits: capabilities(7). Its descendants inherit it.
pub fn set_securebits(credentials: &Process, bits: u32) {
    let caps = credentials.caps.load(Ordering::Relaxed) & !caps::NO_FIXUP;
    let fixup = if bits & NO_SETUID_FIXUP != 0 { caps::NO_FIXUP } else { 0 };
    credentials.caps.store(caps | fixup, Ordering::Relaxed);
}

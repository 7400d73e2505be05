//! Process slots and run records.

use crate::life::LifeWord;
use crate::lock::OwnerLock;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use lp_abi::{Errno, Result};

/// [`Process::pid`] of a child that may have been created and whose id the kernel does not write there.
pub const UNANNOUNCED: u32 = u32::MAX;

/// What a lane has for the process with its number.
#[repr(C)]
pub struct ProcessSlot {
    /// The process.
    pub process: Process,
    /// The first entries of its descriptor table.
    pub fds: crate::layout::NearFds,
}

/// A process of a run: what Linux keeps in `task_struct`, `files_struct`, `fs_struct` and `cred`. 1 KiB.
///
/// Only its own process writes it, and the lane that `life` names. It survives exec; fork copies it. The
/// first line is what most calls read. What threads of a process often write has the third, with what few
/// calls read. The fourth holds what many calls of threads read and few change.
#[repr(C, align(64))]
pub struct Process {
    /// State, generation, and the lane responsible for it. Atomic.
    pub life: LifeWord,
    /// Process id, in the process's own pid namespace. While it is born, the id that its parent sees: 0 until
    /// the kernel has written it on creating the child (CLONE_PARENT_SETTID), or [`UNANNOUNCED`] if it will
    /// not.
    pub pid: AtomicU32,
    /// [`crate::ids::RunId`]. Immutable while claimed.
    pub run: AtomicU32,
    /// Distinguishes the process's pid namespace from others of the run; 0 if unknown. While it is born, its
    /// parent's.
    pub pid_namespace: AtomicU32,
    /// End of the table in use: descriptors from here on are not ours.
    pub fd_limit: AtomicU32,
    /// Nonzero while several threads share the table.
    pub threads: AtomicU32,
    /// `umask`. Like `cwd` and `root`, it may belong to several processes; see `home`.
    pub umask: AtomicU32,
    /// Real user id.
    pub ruid: AtomicU32,
    /// User id for file access (`fsuid`).
    pub fsuid: AtomicU32,
    /// Group id for file access (`fsgid`).
    pub fsgid: AtomicU32,
    /// Capabilities relevant to file calls, [`caps`].
    pub caps: AtomicU32,
    /// Supplementary groups in `groups`.
    pub group_count: AtomicU32,
    /// Permitted capabilities among these: those that access(2) grants to a real root.
    pub permitted: AtomicU32,
    /// `RLIMIT_FSIZE`, soft.
    pub fsize_limit: AtomicU64,
    /// Working directory if it is ours ([`crate::ids::Spot`]), else 0.
    pub cwd: AtomicU64,
    /// What it executes if that is ours ([`crate::ids::Spot`]), for `/proc/self/exe`; 0 none.
    pub exe: AtomicU64,
    /// First of its mapping records.
    pub mappings: AtomicU32,
    /// Directory entry of the executed file, for its path.
    pub exe_dirent: AtomicU32,
    /// Lane of its first thread, or of the thread that last called exec ([`crate::ids::LaneId`]), which the
    /// new image takes over.
    pub first_lane: AtomicU32,
    /// Real group id.
    pub rgid: AtomicU32,
    /// Nonzero once a filter forbids all of the gate's own calls, including barriers.
    pub limited: AtomicU32,
    /// Set by the gate's constructor once it has attached: a canary.
    pub attached: AtomicU32,
    /// Root directory if it is in a mount ([`crate::ids::Spot`]), else 0: chroot(2).
    pub root: AtomicU64,
    /// The slot whose `cwd`, `root` and `umask` the process uses, if it shares them with others, its own
    /// included (CLONE_FS); else 0. `lp_vfs`'s `caller::directories` has its meaning.
    pub home: AtomicU32,
    /// Nonzero once other processes may use its `cwd`, `root` and `umask`; the slot is then kept for them.
    pub lends: AtomicU32,
    /// Times that it gave up its record lock for as long as it shares the kernel's descriptor table.
    pub births: AtomicU32,
    /// For a slot without a process, whose `cwd`, `root` and `umask` some threads of a process use: that
    /// process. For a process with such threads: itself. Else 0. `lp_vfs`'s `life::parted` has its meaning.
    pub keeper: AtomicU32,
    /// Parked placeholders among the first 64 descriptors.
    pub parked: AtomicU64,
    /// While threads share the table: held by one that needs the others out of the way, and by all while
    /// `closed`.
    pub table_lock: OwnerLock,
    /// The same as `domain` for the image after an exec by a thread that has credentials of its own; else 0.
    pub next_domain: AtomicU64,
    /// Incremented after each copy of a reference within the process's table. Atomic.
    pub moves: AtomicU32,
    /// Incremented for each thread that ends. Atomic.
    pub threads_gone: AtomicU32,
    /// What a process in a user namespace sees in place of user and group ids that its namespace does not
    /// have.
    pub overflow_ids: [AtomicU32; 2],
    /// During an exec by a thread that uses a slot without a process: that slot; else 0.
    pub next_home: AtomicU32,
    /// For a slot without a process: threads that use its words.
    pub users: AtomicU32,
    /// Directory in which the executed file was found, for its path once it has no name.
    pub exe_parent: AtomicU32,
    /// Unused.
    pub unused: AtomicU32,
    /// Periods that threads have begun ([`crate::quiescent`]). Beside `parked`: who notes the last one is
    /// about to change that, and takes the line anyway.
    pub periods: AtomicU64,
    /// Nonzero while threads change the table under `table_lock` only; see [`crate::beside`]. Set under that
    /// lock.
    pub closed: AtomicU32,
    /// Nonzero if close must check more: the process may hold POSIX locks, or watchers are notified of its
    /// open files (`lp_vfs::table::closing`).
    pub posix_locks: AtomicU32,
    /// What its threads have restricted themselves to (landlock(7)): an inode without a name as a
    /// [`crate::ids::Spot`] without a mount, or 0. `lp_vfs`'s `rights::domain` has its content.
    pub domain: AtomicU64,
    /// The gate's words; its `high::run::words` has their meaning.
    pub gate_words: [AtomicU32; 9],
    /// Maps of user and of group ids, if the process is in a user namespace other than the run's; else 0. The
    /// extents are at the end of `groups`; `lp_vfs`'s `caller::id_map` has their meaning.
    pub id_maps: [AtomicU32; 2],
    /// Unused.
    pub unused_last: AtomicU32,
    /// Supplementary groups from the start on, extents of the maps of ids from the end.
    pub groups: [AtomicU32; 192],
}

impl Process {
    /// What keeps an inode and its mount in use besides open files: each is a [`crate::ids::Spot`] or 0.
    pub fn places(&self) -> [&AtomicU64; 5] {
        [&self.cwd, &self.exe, &self.root, &self.domain, &self.next_domain]
    }

    /// Makes each close check for `reason`.
    pub fn closes_look(&self, reason: u32) {
        // Relaxed: bits are only set while the process lives. The line stays others' while nothing changes.
        if self.posix_locks.load(Ordering::Relaxed) & reason != reason {
            self.posix_locks.fetch_or(reason, Ordering::Release);
        }
    }

    /// Sets everything but `life` to zero. The caller empties the slot.
    #[rustfmt::skip]
    pub fn clear(&self) {
        let Process {
            life: _, table_lock, pid, run, pid_namespace, moves, threads_gone, fd_limit, threads, umask, ruid, fsuid,
             fsgid, caps, group_count, mappings, attached, posix_locks, exe_dirent, first_lane, rgid, permitted, limited, closed,
             cwd, root, home, lends, parked, exe, fsize_limit, births, keeper, users, exe_parent, id_maps, overflow_ids,
             next_home, domain, next_domain, unused, unused_last, periods, gate_words, groups,
        } = self;
        let words = [
            pid, run, pid_namespace, moves, threads_gone, fd_limit, threads, umask, ruid, fsuid, fsgid, caps, group_count,
            mappings, attached, posix_locks, exe_dirent, first_lane, rgid, permitted, limited, closed, home, lends, births,
            keeper, users, exe_parent, next_home, unused, unused_last,
        ];
        // Relaxed: published with the slot's life.
        words.into_iter().chain(id_maps).chain(overflow_ids)
            .chain(gate_words).chain(groups).for_each(|word| word.store(0, Ordering::Relaxed));
        [cwd, root, parked, exe, fsize_limit, domain, next_domain, periods].into_iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        table_lock.clear();
    }
}

impl RunPath {
    /// Stores a path. Only the caller, which sets up the run, uses the record.
    ///
    /// # Errors
    /// `ENAMETOOLONG` when it does not fit.
    pub fn set(&self, path: &[u8]) -> Result<()> {
        if path.len() > RUN_PATH {
            return Err(Errno::ENAMETOOLONG);
        }
        for (to, from) in self.bytes.iter().zip(path.iter().chain(core::iter::repeat(&0))) {
            to.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The path, without its NUL. Immutable while processes of the run live.
    pub fn get(&self) -> &[u8] {
        // SAFETY: the bytes do not change while the run lives, and AtomicU8 has the layout of u8.
        let bytes = unsafe { &*(&raw const self.bytes).cast::<[u8; RUN_PATH + 1]>() };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(RUN_PATH);
        &bytes[..end]
    }
}

/// Bits of [`Process::caps`].
pub mod caps {
    /// `CAP_DAC_OVERRIDE`.
    pub const DAC_OVERRIDE: u32 = 1;
    /// `CAP_DAC_READ_SEARCH`.
    pub const DAC_READ_SEARCH: u32 = 2;
    /// `CAP_FOWNER`.
    pub const FOWNER: u32 = 4;
    /// `CAP_CHOWN`.
    pub const CHOWN: u32 = 8;
    /// `CAP_FSETID`.
    pub const FSETID: u32 = 16;
    /// `CAP_MKNOD`.
    pub const MKNOD: u32 = 32;
    /// `CAP_LINUX_IMMUTABLE`.
    pub const LINUX_IMMUTABLE: u32 = 64;
    /// `CAP_SYS_ADMIN`.
    pub const SYS_ADMIN: u32 = 128;
    /// `CAP_SYS_RESOURCE`.
    pub const SYS_RESOURCE: u32 = 256;
    /// `CAP_LEASE`.
    pub const LEASE: u32 = 512;
    /// `CAP_SYS_CHROOT`.
    pub const SYS_CHROOT: u32 = 1024;
    /// `CAP_SETFCAP`.
    pub const SETFCAP: u32 = 2048;
    /// No capability: the process is in a user namespace other than the run's, in which the capabilities
    /// count.
    pub const IN_NAMESPACE: u32 = 1 << 30;
    /// No capability: `SECBIT_NO_SETUID_FIXUP` is set, so access(2) checks with the effective capabilities.
    pub const NO_FIXUP: u32 = 1 << 31;
}

/// [`Run::stats`]: calls are counted.
pub const CALLS_COUNTED: u32 = 1;
/// [`Run::stats`]: calls are recorded for a tracer ([`crate::trace`]).
pub const CALLS_TRACED: u32 = 2;
/// [`Run::stats`]: so are those that go to the kernel, and processes join the run at their start.
pub const CALLS_ALL_TRACED: u32 = 3;

/// Mounts of one run.
pub const RUN_MOUNTS: usize = 15;
/// Longest path of a mount, of the launcher or of the cache directory.
pub const RUN_PATH: usize = 847;

/// A NUL-terminated path in a run record. Immutable.
#[repr(C)]
pub struct RunPath {
    /// Bytes; the first NUL ends it.
    pub bytes: [AtomicU8; RUN_PATH + 1],
}

/// State shared by the processes of one `lightpath run`. 16 KiB. Immutable once its first process runs, but
/// for what a tracer that comes later changes.
#[repr(C, align(64))]
pub struct Run {
    /// Nonzero while claimed; free again when no process names it. Atomic.
    pub state: AtomicU32,
    /// Mounts in use.
    pub mount_count: AtomicU32,
    /// [`CALLS_COUNTED`] when calls are counted for `--stats`, [`CALLS_TRACED`] or [`CALLS_ALL_TRACED`] when
    /// they are traced; 0 otherwise. Atomic: a tracer may come and go.
    pub stats: AtomicU32,
    /// Bit m is set if mount m hides a directory that exists on the host.
    pub covers: AtomicU32,
    /// Effective user of the launcher, who owns the cache directory.
    pub owner: AtomicU32,
    /// 1 if the processor has AVX2.
    pub avx2: AtomicU32,
    /// Number of the region's descriptor in its processes.
    pub descriptor: AtomicU32,
    /// Number plus one of the flights descriptor, which every process of the run inherits and which records
    /// the open files in transit over a socket; 0 if none.
    pub flights: AtomicU32,
    /// The mounts ([`crate::ids::MountId`]) at those paths.
    pub bases: [AtomicU32; 16],
    /// Which kinds of objects of the gate's the host has for inodes of the run; its `high::run::words` has
    /// the bits. Atomic.
    pub host_objects: AtomicU64,
    /// Process id and descriptor of the rings of a tracer that came later, as the halves of a word; 0 if the
    /// rings are in the flights. Atomic.
    pub tracer: AtomicU64,
    /// The number in the name of the dynamic linker that starts outlines, beside the C library that contains
    /// the gate; 0 if there is none.
    pub linker: AtomicU64,
    /// [`protections`], as they were when the run started.
    pub protections: AtomicU64,
    /// The launcher's own path.
    pub launcher: RunPath,
    /// The cache directory, with site images and the preload library.
    pub cache: RunPath,
    /// The preload library's path.
    pub preload: RunPath,
    /// The directory of the C library that contains the gate; empty if there is none.
    pub library: RunPath,
    /// The path of mount m: absolute and normalised, without a trailing slash ("/" itself is empty).
    pub mounts: [RunPath; RUN_MOUNTS],
}

/// The values of the sysctls `fs.protected_*` (proc_sys_fs(5)), as bits of [`Run::protections`].
pub mod protections {
    /// `protected_symlinks`.
    pub const SYMLINKS: u64 = 1;
    /// `protected_hardlinks`.
    pub const HARDLINKS: u64 = 2;
    /// `protected_regular` is at least 1.
    pub const REGULAR: u64 = 4;
    /// `protected_regular` is at least 2.
    pub const REGULAR_BY_GROUP: u64 = 8;
    /// `protected_fifos` is at least 1.
    pub const FIFOS: u64 = 16;
    /// `protected_fifos` is at least 2.
    pub const FIFOS_BY_GROUP: u64 = 32;
}

const _: () = {
    assert!(size_of::<Process>() == crate::layout::PROCESS_SIZE);
    assert!(core::mem::offset_of!(ProcessSlot, fds) == crate::layout::PROCESS_SIZE);
    assert!(core::mem::offset_of!(Process, cwd) == 64 && core::mem::offset_of!(Process, parked) == 128);
    assert!(core::mem::offset_of!(Process, closed) == 192);
    assert!(core::mem::offset_of!(Process, groups) == 256);
    assert!(size_of::<Run>() <= crate::layout::RUN_SIZE);
};

//! What the arguments of file calls are, for those who show them.

use core::mem::offset_of;
use core::ops::Range;

use crate::linux::*;

/// An argument of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Parameter {
    /// The call has fewer arguments.
    None,
    /// A descriptor.
    Fd,
    /// A descriptor of a directory, or `AT_FDCWD`.
    DirFd,
    /// A path, read from the program.
    Path,
    /// Bytes that the program gives; the next argument is their number.
    In,
    /// Bytes that the program gets; the result is their number.
    Out,
    /// A `struct stat` that the program gets.
    Stat,
    /// A decimal number.
    Number,
    /// An address.
    Address,
    /// Permission bits.
    Mode,
    /// Flags of open(2).
    OpenFlags,
    /// The mode of open(2): counts where the flags before it create.
    OpenMode,
    /// `AT_` flags.
    AtFlags,
    /// What access(2) asks for.
    Access,
    /// Where lseek(2) starts.
    Whence,
    /// Flags of renameat2(2).
    RenameFlags,
    /// A command of fcntl(2).
    Fcntl,
    /// An operation of flock(2).
    Flock,
    /// A mask in hexadecimal.
    Hex,
    /// A user or group id; -1 for none.
    Id,
    /// A device number, which counts where the mode before it is that of a device.
    Device,
    /// The argument of fcntl(2): its command comes before it.
    FcntlArgument,
    /// A signal's number.
    Signal,
    /// A `struct sigaction` of the kernel's.
    SignalAction,
    /// What rt_sigprocmask(2) does with a set.
    SignalHow,
    /// Permissions of pages.
    Protection,
    /// Flags of mmap(2).
    MapFlags,
    /// Flags of msync(2).
    SyncFlags,
    /// What madvise(2) is told.
    MemoryAdvice,
    /// What posix_fadvise(2) is told.
    FileAdvice,
    /// Flags of fallocate(2).
    AllocateFlags,
    /// `AT_` flags of statx(2).
    StatxFlags,
    /// Fields that statx(2) is asked for.
    StatxMask,
    /// Flags of setxattr(2).
    AttributeFlags,
    /// Flags of memfd_create(2).
    MemfdFlags,
    /// Flags of descriptors: those of open(2) without an access mode.
    DescriptorFlags,
    /// A request of ioctl(2).
    Request,
}

/// The arguments of call `nr`; numbers in hexadecimal for calls that are not listed.
#[allow(non_upper_case_globals)]
#[rustfmt::skip]
pub const fn arguments(nr: u32) -> [Parameter; 6] {
    use Parameter::*;
    match nr {
        __NR_read => [Fd, Out, Number, None, None, None],
        __NR_write => [Fd, In, Number, None, None, None],
        __NR_pread64 => [Fd, Out, Number, Number, None, None],
        __NR_pwrite64 => [Fd, In, Number, Number, None, None],
        __NR_readv | __NR_writev => [Fd, Address, Number, None, None, None],
        __NR_preadv | __NR_pwritev => [Fd, Address, Number, Number, None, None],
        __NR_open => [Path, OpenFlags, OpenMode, None, None, None],
        __NR_openat => [DirFd, Path, OpenFlags, OpenMode, None, None],
        __NR_openat2 => [DirFd, Path, Address, Number, None, None],
        __NR_creat | __NR_mkdir | __NR_chmod => [Path, Mode, None, None, None, None],
        __NR_close | __NR_fchdir | __NR_fsync | __NR_fdatasync | __NR_syncfs | __NR_dup =>
            [Fd, None, None, None, None, None],
        __NR_dup2 => [Fd, Fd, None, None, None, None],
        __NR_dup3 => [Fd, Fd, DescriptorFlags, None, None, None],
        __NR_close_range => [Fd, Fd, Hex, None, None, None],
        __NR_stat | __NR_lstat => [Path, Stat, None, None, None, None],
        __NR_fstat => [Fd, Stat, None, None, None, None],
        __NR_newfstatat => [DirFd, Path, Stat, AtFlags, None, None],
        __NR_statx => [DirFd, Path, StatxFlags, StatxMask, Address, None],
        __NR_access => [Path, Access, None, None, None, None],
        __NR_faccessat => [DirFd, Path, Access, None, None, None],
        __NR_faccessat2 => [DirFd, Path, Access, AtFlags, None, None],
        __NR_lseek => [Fd, Number, Whence, None, None, None],
        __NR_mkdirat => [DirFd, Path, Mode, None, None, None],
        __NR_fchmod => [Fd, Mode, None, None, None, None],
        __NR_fchmodat => [DirFd, Path, Mode, None, None, None],
        __NR_fchmodat2 => [DirFd, Path, Mode, AtFlags, None, None],
        __NR_mknod => [Path, Mode, Device, None, None, None],
        __NR_mknodat => [DirFd, Path, Mode, Device, None, None],
        __NR_umask => [Mode, None, None, None, None, None],
        __NR_unlink | __NR_rmdir | __NR_chdir | __NR_chroot => [Path, None, None, None, None, None],
        __NR_unlinkat => [DirFd, Path, AtFlags, None, None, None],
        __NR_rename | __NR_link | __NR_symlink => [Path, Path, None, None, None, None],
        __NR_renameat => [DirFd, Path, DirFd, Path, None, None],
        __NR_renameat2 => [DirFd, Path, DirFd, Path, RenameFlags, None],
        __NR_linkat => [DirFd, Path, DirFd, Path, AtFlags, None],
        __NR_symlinkat => [Path, DirFd, Path, None, None, None],
        __NR_readlink => [Path, Out, Number, None, None, None],
        __NR_readlinkat => [DirFd, Path, Out, Number, None, None],
        __NR_getcwd => [Out, Number, None, None, None, None],
        __NR_chown | __NR_lchown => [Path, Id, Id, None, None, None],
        __NR_fchown => [Fd, Id, Id, None, None, None],
        __NR_fchownat => [DirFd, Path, Id, Id, AtFlags, None],
        __NR_truncate => [Path, Number, None, None, None, None],
        __NR_ftruncate => [Fd, Number, None, None, None, None],
        __NR_fallocate => [Fd, AllocateFlags, Number, Number, None, None],
        __NR_fadvise64 => [Fd, Number, Number, FileAdvice, None, None],
        __NR_utime | __NR_utimes | __NR_statfs => [Path, Address, None, None, None, None],
        __NR_fstatfs => [Fd, Address, None, None, None, None],
        __NR_futimesat => [DirFd, Path, Address, None, None, None],
        __NR_utimensat => [DirFd, Path, Address, AtFlags, None, None],
        __NR_getdents | __NR_getdents64 => [Fd, Address, Number, None, None, None],
        __NR_fcntl => [Fd, Fcntl, FcntlArgument, None, None, None],
        __NR_flock => [Fd, Flock, None, None, None, None],
        __NR_ioctl => [Fd, Request, Address, None, None, None],
        __NR_sendfile => [Fd, Fd, Address, Number, None, None],
        __NR_copy_file_range => [Fd, Address, Fd, Address, Number, Hex],
        __NR_splice => [Fd, Address, Fd, Address, Number, Hex],
        __NR_mmap => [Address, Number, Protection, MapFlags, Fd, Hex],
        __NR_munmap => [Address, Number, None, None, None, None],
        __NR_msync => [Address, Number, SyncFlags, None, None, None],
        __NR_mprotect => [Address, Number, Protection, None, None, None],
        __NR_setxattr | __NR_lsetxattr => [Path, Path, In, Number, AttributeFlags, None],
        __NR_getxattr | __NR_lgetxattr => [Path, Path, Out, Number, None, None],
        __NR_listxattr | __NR_llistxattr => [Path, Out, Number, None, None, None],
        __NR_removexattr | __NR_lremovexattr => [Path, Path, None, None, None, None],
        __NR_fsetxattr => [Fd, Path, In, Number, AttributeFlags, None],
        __NR_fgetxattr => [Fd, Path, Out, Number, None, None],
        __NR_flistxattr => [Fd, Out, Number, None, None, None],
        __NR_fremovexattr => [Fd, Path, None, None, None, None],
        __NR_rt_sigaction => [Signal, SignalAction, SignalAction, Number, None, None],
        __NR_inotify_add_watch => [Fd, Path, Hex, None, None, None],
        __NR_fork | __NR_vfork => [None; 6],
        __NR_clone => [Hex, Address, Address, Address, Address, None],
        __NR_clone3 => [Address, Number, None, None, None, None],
        __NR_execve => [Path, Address, Address, None, None, None],
        __NR_execveat => [DirFd, Path, Address, Address, AtFlags, None],
        __NR_exit | __NR_exit_group => [Number, None, None, None, None, None],
        __NR_wait4 => [Number, Address, Hex, Address, None, None],
        __NR_waitid => [Number, Number, Address, Hex, Address, None],
        __NR_rt_sigprocmask => [SignalHow, Address, Address, Number, None, None],
        __NR_pipe => [Address, None, None, None, None, None],
        __NR_pipe2 => [Address, DescriptorFlags, None, None, None, None],
        __NR_poll => [Address, Number, Number, None, None, None],
        __NR_ppoll => [Address, Number, Address, Address, Number, None],
        __NR_select => [Number, Address, Address, Address, Address, None],
        __NR_epoll_create1 => [Hex, None, None, None, None, None],
        __NR_epoll_ctl => [Fd, Number, Fd, Address, None, None],
        __NR_epoll_wait => [Fd, Address, Number, Number, None, None],
        __NR_socket => [Number, Hex, Number, None, None, None],
        __NR_connect | __NR_bind => [Fd, Address, Number, None, None, None],
        __NR_listen | __NR_shutdown => [Fd, Number, None, None, None, None],
        __NR_accept | __NR_getsockname | __NR_getpeername => [Fd, Address, Address, None, None, None],
        __NR_accept4 => [Fd, Address, Address, Hex, None, None],
        __NR_sendto => [Fd, In, Number, Hex, Address, Number],
        __NR_recvfrom => [Fd, Out, Number, Hex, Address, Address],
        __NR_sendmsg | __NR_recvmsg => [Fd, Address, Hex, None, None, None],
        __NR_setsockopt | __NR_getsockopt => [Fd, Number, Number, Address, Address, None],
        __NR_madvise => [Address, Number, MemoryAdvice, None, None, None],
        __NR_mremap => [Address, Number, Number, Hex, Address, None],
        __NR_memfd_create => [Path, MemfdFlags, None, None, None, None],
        __NR_prlimit64 => [Number, Number, Address, Address, None, None],
        __NR_getrlimit | __NR_setrlimit => [Number, Address, None, None, None, None],
        __NR_setuid | __NR_setgid | __NR_setfsuid | __NR_setfsgid => [Number, None, None, None, None, None],
        __NR_setreuid | __NR_setregid => [Number, Number, None, None, None, None],
        __NR_setresuid | __NR_setresgid => [Number, Number, Number, None, None, None],
        __NR_setgroups => [Number, Address, None, None, None, None],
        _ => [Hex; 6],
    }
}

/// Calls that [`SHAPES`] describes.
const SHAPED: usize = crate::gated::CALLS;
/// No argument.
pub const NO_ARGUMENT: u8 = 6;

/// What is read of a call's arguments, as indices of them.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub struct Shape {
    /// Arguments that it has.
    pub count: u8,
    /// Paths; [`NO_ARGUMENT`] for none.
    pub paths: [u8; 2],
    /// Bytes that the program gives, as many as the next argument says.
    pub given: u8,
    /// Bytes that the program gets, as many as the result says.
    pub got: u8,
    /// A `struct stat`.
    pub stat: u8,
    /// What is done at a signal, [`SIGNAL_ACTION`] words.
    pub actions: [u8; 2],
}

/// The part of a `struct stat` that is shown: its size, type and device.
pub const SHOWN_OF_STAT: Range<usize> = offset_of!(stat, st_mode)..offset_of!(stat, st_size) + 8;

/// Words of the `struct sigaction` that the kernel reads.
pub const SIGNAL_ACTION: usize = 4;

impl Shape {
    /// Whether the call has neither paths nor actions.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.paths[0] == NO_ARGUMENT && self.actions[0] == NO_ARGUMENT
    }

    /// The arguments that lead to actions, in the order in which they are read: none if the call failed.
    #[inline(always)]
    pub fn actions(&self, result: isize, word: impl Fn(usize) -> usize) -> impl Iterator<Item = usize> {
        let given = self.actions.into_iter().filter(move |argument| *argument != NO_ARGUMENT && result == 0);
        given.map(usize::from).filter(move |argument| word(*argument) != 0)
    }

    /// Which bytes are read besides paths once the call is over, `most` of a buffer: the argument, where they
    /// begin in what it points to, and how many they are.
    #[inline(always)]
    pub fn data(
        &self,
        result: isize,
        most: usize,
        word: impl FnOnce(usize) -> usize,
    ) -> Option<(usize, usize, usize)> {
        if self.got != NO_ARGUMENT && result > 0 {
            Some((usize::from(self.got), 0, (result as usize).min(most)))
        } else if self.given < NO_ARGUMENT - 1 {
            Some((usize::from(self.given), 0, word(usize::from(self.given) + 1).min(most)))
        } else if self.stat != NO_ARGUMENT && result == 0 {
            Some((usize::from(self.stat), SHOWN_OF_STAT.start, SHOWN_OF_STAT.end - SHOWN_OF_STAT.start))
        } else {
            None
        }
    }

    const fn of(nr: u32) -> Shape {
        let kinds = arguments(nr);
        let mut shape = Shape {
            count: 0,
            paths: [NO_ARGUMENT; 2],
            given: NO_ARGUMENT,
            got: NO_ARGUMENT,
            stat: NO_ARGUMENT,
            actions: [NO_ARGUMENT; 2],
        };
        let mut number = 0;
        while number < 6 {
            match kinds[number as usize] {
                Parameter::None => break,
                Parameter::Path if shape.paths[0] == NO_ARGUMENT => shape.paths[0] = number,
                Parameter::Path => shape.paths[1] = number,
                Parameter::In => shape.given = number,
                Parameter::Out => shape.got = number,
                Parameter::Stat => shape.stat = number,
                Parameter::SignalAction if shape.actions[0] == NO_ARGUMENT => shape.actions[0] = number,
                Parameter::SignalAction => shape.actions[1] = number,
                _ => {}
            }
            number += 1;
        }
        shape.count = number;
        shape
    }
}

/// The shape of each call.
pub static SHAPES: [Shape; SHAPED] = {
    let mut shapes = [Shape::of(u32::MAX); SHAPED];
    let mut nr = 0;
    while nr < SHAPED {
        shapes[nr] = Shape::of(nr as u32);
        nr += 1;
    }
    shapes
};

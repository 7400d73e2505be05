//! [`Errno`]: the error of every call.

use linux_raw_sys::errno as e;

/// A Linux error number, as listed in errno(3): positive, below 4096.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Errno(u16);

/// The result of a call that may fail like a system call.
pub type Result<T> = core::result::Result<T, Errno>;

impl Errno {
    /// The error with this number.
    pub const fn new(number: i32) -> Self {
        Errno(number as u16)
    }

    /// Its number, as in `errno`.
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    /// The value that a failing system call returns in `rax`: the negated number.
    pub const fn to_ret(self) -> isize {
        -(self.0 as isize)
    }

    /// Splits the `rax` of a system call into its value or its error.
    #[inline]
    pub const fn from_ret(ret: isize) -> Result<usize> {
        if ret as usize > -4096isize as usize { Err(Errno(-ret as u16)) } else { Ok(ret as usize) }
    }
}

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "` of errno(3).")]
            pub const $name: Errno = Errno(e::$name as u16);)*
        }
        impl core::fmt::Debug for Errno {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $(Errno::$name => f.write_str(stringify!($name)),)*
                    Errno(other) => write!(f, "errno {other}"),
                }
            }
        }
    };
}

errnos! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY
    EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK
    EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA ETIME EOVERFLOW
    EOPNOTSUPP ESTALE EBADFD EUCLEAN ETIMEDOUT ENOTSOCK EDQUOT ECANCELED EOWNERDEAD EAFNOSUPPORT EADDRINUSE
    ECONNREFUSED EREMOTE
}

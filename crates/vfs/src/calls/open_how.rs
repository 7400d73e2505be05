//! The flags of an open, checked: open(2), openat2(2).

use lp_abi::linux::{
    O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC, O_EXCL, O_LARGEFILE, O_NOATIME,
    O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_TRUNC, RESOLVE_CACHED, S_IFDIR, S_IFREG, open_how,
};
use lp_abi::{Errno, Result, UserSlice};
use lp_region::records::file_mode;
use lp_region::{extensible, ucopy};

use crate::caller::task::Task;
use crate::calls::create::{InitialContent, InodeKind};
use crate::calls::landlock::{self, right};
use crate::names::limits::SCOPED;
use crate::names::walk::Follow;
use crate::rights::permission;

/// `__O_TMPFILE`, without the `O_DIRECTORY` that `O_TMPFILE` includes.
pub(super) const TMPFILE: u32 = 0o20_000_000;
/// Both bits of `O_SYNC`; `__O_SYNC` alone means `O_DSYNC` too.
const SYNC_ONLY: u32 = 0o4_000_000;
/// All flags that open(2) knows; it ignores others (`VALID_OPEN_FLAGS`).
pub(super) const KNOWN: u32 = 0o37_777_703;
/// Flags allowed with `O_PATH`; open(2) ignores others, openat2(2) refuses them.
pub(super) const WITH_PATH: u32 = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
/// Flags that an open file does not keep.
pub(super) const FORGOTTEN: u32 = O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC | HELD;
/// The caller has restricted itself (landlock(7)). No flag of open(2).
pub(super) const HELD: u32 = 1 << 31;
/// Flags that do not change a plain open for reading, besides the access mode.
pub(super) const PLAIN: u32 = O_LARGEFILE | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
/// Flags of an open that may create a file on the fast path. No combination of them is refused.
pub(super) const MAKING: u32 =
    PLAIN | O_ACCMODE | O_APPEND | O_CREAT | O_DIRECT | O_DSYNC | O_EXCL | O_NOATIME | O_NOFOLLOW | O_TRUNC;
/// The `RESOLVE_*` flags that openat2(2) knows (`VALID_RESOLVE_FLAGS`).
const RESOLVE_ALL: u32 = 0x3f;

/// The checked flags of an open, like the kernel's `struct open_flags`.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) flags: u32,
    pub(super) mode: u32,
    /// The permissions required: [`permission::READ`] | [`permission::WRITE`].
    pub(super) access: u32,
}

impl How {
    /// The kernel's build_open_flags.
    #[inline]
    pub(super) fn new(mut flags: u32, mode: u32) -> Result<How> {
        if flags & SYNC_ONLY != 0 {
            flags |= O_DSYNC;
        }
        if flags & (O_DIRECTORY | O_CREAT) == O_DIRECTORY | O_CREAT {
            return Err(Errno::EINVAL);
        }
        // The kernel's ACC_MODE: 3 requires both permissions but then allows neither read nor write.
        let mut access = match flags & O_ACCMODE {
            O_RDONLY => permission::READ,
            1 => permission::WRITE,
            _ => permission::READ | permission::WRITE,
        };
        if flags & TMPFILE != 0 && (flags & O_DIRECTORY == 0 || access & permission::WRITE == 0) {
            return Err(Errno::EINVAL);
        }
        if flags & O_PATH != 0 {
            access = 0;
        }
        if flags & O_TRUNC != 0 {
            access |= permission::WRITE;
        }
        Ok(How { flags, mode, access })
    }

    /// The same open by this caller, with [`HELD`] if it has restricted itself.
    pub(super) fn by(self, task: &Task<'_>) -> How {
        let held = landlock::is_held(task) && !self.has(O_PATH);
        How { flags: self.flags | if held { HELD } else { 0 }, ..self }
    }

    /// The rights that it takes to open a file of this type: the kernel's get_required_file_open_access.
    pub(super) fn rights(&self, kind: u32) -> u32 {
        // The kernel's OPEN_FMODE, as in [`mode_of`].
        let access = self.flags.wrapping_add(1) & O_ACCMODE;
        let reads = match access & file_mode::READ {
            0 => 0,
            _ if kind == S_IFDIR => return right::READ_DIR,
            _ => right::READ_FILE,
        };
        reads | if access & file_mode::WRITE != 0 { right::WRITE_FILE } else { 0 }
    }

    #[inline]
    pub(super) fn follow(&self) -> Follow {
        // A link in the place of a file to be created is EEXIST, wherever it leads.
        let exclusive = self.flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        if exclusive || self.has(O_NOFOLLOW) { Follow::No } else { Follow::Link }
    }

    #[inline]
    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// The checked arguments of openat2(2).
#[derive(Clone, Copy, Debug)]
pub struct Extended {
    pub(super) how: How,
    /// The `RESOLVE_*` flags.
    pub resolve: u32,
}

impl Extended {
    /// The open flags.
    pub fn flags(&self) -> u32 {
        self.how.flags
    }

    /// The mode of what is made.
    pub fn mode(&self) -> u32 {
        self.how.mode
    }
}

/// What openat2(2) takes in the place of the arguments of open(2): the kernel's build_open_how.
pub fn same_how(flags: u32, mode: u32) -> open_how {
    let known = flags & if flags & O_PATH != 0 { KNOWN & WITH_PATH } else { KNOWN };
    let mode = if known & (O_CREAT | TMPFILE) != 0 { mode & 0o7777 } else { 0 };
    open_how { flags: known.into(), mode: mode.into(), resolve: 0 }
}

/// Reads and checks the `struct open_how` of openat2(2).
///
/// # Errors
/// `EFAULT`, `E2BIG`; `EINVAL`; `EAGAIN` for `RESOLVE_CACHED` with flags that change something.
pub fn read_how(how: UserSlice) -> Result<Extended> {
    let how = copy_how(how)?;
    let largefile = if how.flags & u64::from(O_PATH) == 0 { O_LARGEFILE } else { 0 };
    let flags = how.flags as u32 | largefile;
    if how.flags & !u64::from(KNOWN) != 0 || how.resolve & !u64::from(RESOLVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    let resolve = how.resolve as u32;
    let makes = flags & (O_CREAT | TMPFILE) != 0;
    if resolve & SCOPED == SCOPED || how.mode & if makes { !0o7777 } else { !0 } != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & O_PATH != 0 && flags & !WITH_PATH != 0 {
        return Err(Errno::EINVAL);
    }
    let checked = How::new(flags, how.mode as u32)?;
    if resolve & RESOLVE_CACHED != 0 && flags & (O_TRUNC | O_CREAT | TMPFILE) != 0 {
        return Err(Errno::EAGAIN);
    }
    Ok(Extended { how: checked, resolve })
}

/// Like the kernel's copy_struct_from_user: a longer structure is accepted if its unknown part is zero.
fn copy_how(how: UserSlice) -> Result<open_how> {
    let (known, size) = (size_of::<open_how>(), how.len());
    if size < known {
        return Err(Errno::EINVAL);
    }
    if size > lp_abi::PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    extensible::all_zero(how.skip(known))?;
    // SAFETY: the copy routine handles bad pointers; the structure consists of integers.
    unsafe { ucopy::get(how.start().cast().as_ptr()) }
}

/// What an open with `O_CREAT` and the permissions `mode` creates.
#[inline(always)]
pub(super) fn made_of(mode: u32) -> InodeKind {
    InodeKind { mode: S_IFREG | mode, rdev: 0, content: InitialContent::Pinned }
}

/// The [`file_mode`] of an open file.
#[inline]
pub(super) fn mode_of(flags: u32, kind: u32) -> u32 {
    if flags & O_PATH != 0 {
        return file_mode::PATH | if kind == S_IFDIR { file_mode::DIR } else { 0 };
    }
    // The kernel's OPEN_FMODE: 0 read, 1 write, 2 both, 3 neither.
    let access = flags.wrapping_add(1) & O_ACCMODE;
    let kind = match kind {
        S_IFREG => file_mode::REGULAR,
        S_IFDIR => file_mode::DIR,
        _ => 0,
    };
    (access * file_mode::READ) | kind
}

//! utimensat(2), utime(2), utimes(2), futimesat(2).

use lp_abi::linux::{
    __NR_futimesat, __NR_utime, __NR_utimensat, __NR_utimes, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, UTIME_OMIT,
};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::ucopy;
use lp_vfs::task::Task;
use lp_vfs::utimens;

use crate::high::calls::chmod::last_of;
use crate::high::fd::descriptor;
use crate::high::fd::descriptor::listed_or_return;
use crate::high::frame::at::At;
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::route::path::one;

/// atime and mtime as for utimensat(2), seconds and nanoseconds each; `None` for the current time.
type Times = Option<[i64; 4]>;

handlers! {
    /// utimensat(2). Without a path it is futimens.
    fn utimensat(task, dirfd: Fd, path: UserPtr, times: *const [i64; 4], flags: u32) {
        // Nothing is to be set: the kernel looks at nothing else.
        if read_times(times).is_ok_and(keeps) {
            return 0;
        }
        if path.is_null() {
            if dirfd == Fd::CWD || !descriptor::is_listed(task, dirfd) {
                return descriptor::other(task, dirfd);
            }
            if flags != 0 {
                return Errno::EINVAL.to_ret();
            }
            return match read_times(times) {
                Ok(times) => ret(utimens::futimens(task, dirfd, times)),
                Err(errno) => errno.to_ret(),
            };
        }
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Errno::EINVAL.to_ret();
        }
        let host = |at: At| kernel!(__NR_utimensat, at.dirfd, at.path, times, flags);
        set(task, At { dirfd, path }, read_times(times), flags, host)
    }

    /// utimes(2), in microseconds.
    fn utimes(task, path: UserPtr, times: *const [i64; 4]) {
        let host = |at: At| match at.dirfd {
            Fd::CWD => kernel!(__NR_utimes, at.path, times),
            _ => kernel!(__NR_futimesat, at.dirfd, at.path, times),
        };
        set(task, At::cwd(path), read_micros(times), 0, host)
    }

    /// futimesat(2).
    fn futimesat(task, dirfd: Fd, path: UserPtr, times: *const [i64; 4]) {
        if path.is_null() {
            listed_or_return!(task, dirfd);
            return ret(read_micros(times).and_then(|times| utimens::futimens(task, dirfd, times)));
        }
        let host = |at: At| kernel!(__NR_futimesat, at.dirfd, at.path, times);
        set(task, At { dirfd, path }, read_micros(times), 0, host)
    }

    /// utime(2), in seconds.
    fn utime(task, path: UserPtr, times: *const [i64; 2]) {
        let host = |at: At| kernel!(__NR_utime, at.path, times);
        set(task, At::cwd(path), read_seconds(times), 0, host)
    }
}

fn set(task: &Task, at: At, times: Result<Times>, flags: u32, host: impl Fn(At) -> isize) -> isize {
    let ours = |at: At| utimens::utimensat(task, at.dirfd, at.path, times?, flags);
    one(task, at, last_of(flags), ours, host)
}

fn keeps(times: Times) -> bool {
    times.is_some_and(|[_, access, _, modification]| [access, modification] == [i64::from(UTIME_OMIT); 2])
}

fn read_times(times: *const [i64; 4]) -> Result<Times> {
    if times.is_null() {
        return Ok(None);
    }
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::get(times) }.map(Some)
}

fn read_micros(times: *const [i64; 4]) -> Result<Times> {
    let Some(times) = read_times(times)? else { return Ok(None) };
    if times[1] as u64 >= 1_000_000 || times[3] as u64 >= 1_000_000 {
        return Err(Errno::EINVAL);
    }
    Ok(Some([times[0], times[1] * 1000, times[2], times[3] * 1000]))
}

fn read_seconds(times: *const [i64; 2]) -> Result<Times> {
    if times.is_null() {
        return Ok(None);
    }
    // SAFETY: the copy routine handles bad pointers.
    let [atime, mtime] = unsafe { ucopy::get(times) }?;
    Ok(Some([atime, 0, mtime, 0]))
}

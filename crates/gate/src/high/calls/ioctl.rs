//! ioctl(2).

use lp_abi::ioctl::{FICLONE, FICLONERANGE, FIOCLEX, FIONCLEX};
use lp_abi::{Errno, Fd};
use lp_region::ucopy;
use lp_vfs::table::{self, entry};
use lp_vfs::task::Task;
use lp_vfs::{ends, ioctl};

use crate::high::calls::fcntl::is_open;
use crate::high::calls::loop_device;
use crate::high::calls::refused::on_file;
use crate::high::fd::{descriptor, mark};
use crate::high::frame::handler::{given, handlers, ret};
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// ioctl(2).
    fn ioctl(task, fd: Fd, request: u32, argument: usize) {
        if !descriptor::is_file(task, fd) {
            return ioctl_other(task, fd, request, argument);
        }
        let lacks = |source| !is_open(task, source) || ends::opened(task, source).is_err();
        if source_of(request, argument).is_some_and(lacks) {
            return Errno::EBADF.to_ret();
        }
        match request {
            FIOCLEX | FIONCLEX if descriptor::is_path(task, fd) => Errno::EBADF.to_ret(),
            FIOCLEX => ret(table::change(task, fd, entry::CLOEXEC, 0)),
            FIONCLEX => ret(table::change(task, fd, 0, entry::CLOEXEC)),
            _ => ret(ioctl::ioctl(task, fd, request, given(argument))),
        }
    }
}

/// The descriptor from which a request clones.
fn source_of(request: u32, argument: usize) -> Option<Fd> {
    match request {
        FICLONE => Some(Fd::new(argument as i32)),
        // SAFETY: the copy routine handles bad pointers. The source is the first field.
        FICLONERANGE => unsafe { ucopy::get(argument as *const i64) }.ok().map(|fd| Fd::new(fd as i32)),
        _ => None,
    }
}

fn ioctl_other(task: &Task, fd: Fd, request: u32, argument: usize) -> isize {
    if descriptor::is_hidden(task, fd) {
        return Errno::EBADF.to_ret();
    }
    if request == FIOCLEX || request == FIONCLEX {
        mark::forget(task, fd);
    }
    if loop_device::is_attach(request)
        && let Some(done) = loop_device::attach(task, fd, request, argument)
    {
        return done;
    }
    // The source of a clone must be on the same file system.
    let source = source_of(request, argument).filter(|_| ends::opened(task, fd).is_ok());
    if let Some(refused) = source.and_then(|source| on_file(task, source, Errno::EXDEV)) {
        return refused;
    }
    if descriptor::is_listed(task, fd) {
        let _ = match request {
            FIOCLEX => table::change(task, fd, entry::CLOEXEC, 0),
            FIONCLEX => table::change(task, fd, 0, entry::CLOEXEC),
            _ => Ok(()),
        };
    }
    NOT_OURS
}

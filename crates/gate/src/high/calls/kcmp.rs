//! kcmp(2): to the kernel, all placeholders are one file.

use core::cmp::Ordering::{Equal, Greater, Less};

use lp_abi::linux::{__NR_getpid, __NR_kcmp};
use lp_abi::{Errno, Fd};
use lp_region::sync::Ordering;
use lp_region::{FileId, ProcessId};
use lp_vfs::table::{FdTable, entry};
use lp_vfs::task::Task;

use crate::high::calls::fcntl::is_open;
use crate::high::fd::fd_info::process_of_thread;
use crate::high::frame::handler::{handlers, kernel};

/// `KCMP_FILE` of linux/kcmp.h.
const KCMP_FILE: u32 = 0;

handlers! {
    /// kcmp(2). The kernel decides who may compare, and compares what is not ours.
    fn kcmp(task, first: i32, second: i32, kind: u32, a: usize, b: usize) {
        let done = kernel!(__NR_kcmp, first, second, kind, a, b);
        if kind != KCMP_FILE || done < 0 {
            return done;
        }
        let own = kernel!(__NR_getpid);
        let place = |pid: i32, fd: usize| {
            let fd = Fd::new(fd as i32);
            let is_own = pid as isize == own;
            match if is_own { Some(task.process_id) } else { process_of_thread(task, pid as u32) } {
                Some(process) if process == task.process_id && !is_open(task, fd) => Err(Errno::EBADF),
                process => Ok(process.and_then(|process| file_of(task, process, fd))),
            }
        };
        match (place(first, a), place(second, b)) {
            (Err(errno), _) | (_, Err(errno)) => errno.to_ret(),
            (Ok(Some(a)), Ok(Some(b))) => match a.0.cmp(&b.0) {
                Equal => 0,
                Less => 1,
                Greater => 2,
            },
            // A placeholder and a file of the host's.
            _ => done,
        }
    }
}

/// The open file of ours that a descriptor of a process of the run names.
fn file_of(task: &Task, process: ProcessId, fd: Fd) -> Option<FileId> {
    // Relaxed: one word; the process may change it any time.
    let word = FdTable::of(task.region, process).entry(fd)?.load(Ordering::Relaxed);
    let ours = word & entry::DATA != 0;
    ours.then_some(FileId(word as u32))
}

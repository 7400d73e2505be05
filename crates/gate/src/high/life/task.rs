//! A thread's task: what the file system needs to know of the thread.

use core::cell::Cell;

use lp_region::sync::{Ordering, heavy_barrier, light_barrier};
use lp_region::{LaneId, ProcessId, Region, RunId};
use lp_vfs::below::Habit;
use lp_vfs::mounts::Prefix;
use lp_vfs::table::FdTable;
use lp_vfs::task::{Sources, Task};
use lp_vfs::{directories, root};

use crate::high::memory::written;
use crate::high::watch::shadow;
use crate::low::live::deferred;
use crate::low::thread::record::Thread;
use crate::low::thread::{current, pool};

/// Fills in the task of `thread` field by field, so that its buffers and their pages stay untouched.
pub(crate) fn set_task(
    thread: &Thread,
    region: Region<'static>,
    process_id: ProcessId,
    lane_id: LaneId,
) -> &'static Task<'static> {
    let process = region.process(process_id);
    let task = thread.task_room.get().cast::<Task<'static>>();
    // SAFETY: the storage belongs to this thread; its buffers are valid with any bytes.
    unsafe {
        (&raw mut (*task).region).write(region);
        (&raw mut (*task).process).write(process);
        (&raw mut (*task).process_id).write(process_id);
        (&raw mut (*task).credentials).write(Cell::new(process));
        (&raw mut (*task).directories).write(Cell::new(directories::of(region, process_id)));
        (&raw mut (*task).lane).write(region.lane(lane_id));
        (&raw mut (*task).lane_id).write(lane_id);
        (&raw mut (*task).table).write(FdTable::of(region, process_id));
        // Relaxed: immutable while the slot is claimed.
        let run = region.run(RunId(process.run.load(Ordering::Relaxed)));
        (&raw mut (*task).run).write(run);
        (&raw mut (*task).root_device).write(lp_vfs::inode::device(region));
        (&raw mut (*task).first_page).write(region.first_page());
        (&raw mut (*task).entered).write(Cell::new(0));
        (&raw mut (*task).expires).write(Cell::new(false));
        (&raw mut (*task).prefix).write(Prefix::new(run, process));
        (&raw mut (*task).clock).write(lp_vfs::clock::now);
        (&raw mut (*task).interrupted).write(deferred::interrupted);
        (&raw mut (*task).blocking).write(deferred::blocking_syscall);
        (&raw mut (*task).notify).write(shadow::notify);
        (&raw mut (*task).sources).write(&SOURCES);
        (&raw mut (*task).habit).write(Habit::default());
    }
    thread.task.set(task);
    current::refresh();
    // SAFETY: all fields are initialised, and the task lives as long as the record.
    let task = unsafe { &*task };
    light_barrier(); // PAIRS: the heavy barrier in `block_prefixes`.
    if root::of(task).is_some() || directories::are_shared(process) {
        task.prefix.block();
    }
    task
}

static SOURCES: Sources =
    Sources { below: lp_vfs::below::take, through: lp_vfs::below::through::read, mappings: written::of_file };

/// Makes all threads look closely at absolute paths. The process has a root directory in a mount, or others
/// may give it one.
#[cold]
pub(crate) fn block_prefixes() {
    // PAIRS: the light barrier in `set_task`. Without it, a thread that starts at this moment may miss the
    // change.
    let _ = heavy_barrier();
    pool::each(|thread| {
        // SAFETY: the record is valid, and the prefix is an atomic, even where no task is. A task of another
        // process only takes longer.
        unsafe { (*(*thread).task_room.get().cast::<Task<'static>>()).prefix.block() };
    });
}

/// Does nothing. A field missing here, and so in [`set_task`], is a compile error.
#[allow(dead_code)]
fn fields_of(task: Task<'static>) {
    let Task {
        region: _,
        process: _,
        process_id: _,
        credentials: _,
        directories: _,
        lane: _,
        lane_id: _,
        table: _,
        run: _,
        root_device: _,
        first_page: _,
        entered: _,
        expires: _,
        prefix: _,
        prefixes: _,
        clock: _,
        interrupted: _,
        blocking: _,
        notify: _,
        sources: _,
        habit: _,
        scratch: _,
        candidates: _,
    } = task;
}

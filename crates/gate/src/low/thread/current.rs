//! The calling thread's record: like the kernel's `current`.

use core::sync::atomic::Ordering;

use lp_region::layout::FDS_APART;

use crate::low::thread::record::Thread;
use crate::low::thread::tls;

/// The calling thread's record, like `current`. Null before the thread's first call through the gate; never
/// null in a handler of a dispatch table.
#[inline(always)]
pub(crate) fn thread() -> *mut Thread {
    tls::pointer() as *mut Thread
}

/// Makes `thread` the record of the calling thread, which has none yet.
pub(crate) fn enter(thread: *mut Thread) {
    if tls::is_by_gs() {
        // SAFETY: the record is the calling thread's.
        let words = unsafe { &(*thread).words };
        words.own.store(core::ptr::from_ref(words) as usize, Ordering::Relaxed);
        // SAFETY: no thread uses these words yet. They are complete before a signal handler can see them.
        unsafe { *words.words.get() = [thread as usize, 0, 0, 0, 0] };
        tls::point(words);
    }
    set_current(thread);
}

/// Detaches the calling thread from its record.
pub(crate) fn leave() {
    if tls::is_by_gs() {
        return tls::point(&tls::NOBODY);
    }
    set_current(core::ptr::null_mut());
}

fn set_current(thread: *mut Thread) {
    tls::set_pointer(thread as usize);
    refresh();
}

/// Updates the thread-local copies after the calling thread's task has changed.
pub(crate) fn refresh() {
    // SAFETY: the pointer is null or the thread's own record; its task is null or lives as long as the
    // record.
    let task = unsafe { thread().as_ref().and_then(|thread| thread.task.get().as_ref()) };
    tls::set_task(task.map_or(0, |task| core::ptr::from_ref(task) as usize));
    // A signal handler in between finds no limit above 0 without a table.
    if task.is_none() {
        tls::set_quick_fds(0);
    }
    tls::set_table(task.map_or(0, |task| task.table.start() as usize));
    if task.is_some() {
        tls::set_quick_fds(FDS_APART);
    }
}

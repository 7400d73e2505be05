//! Contexts of fspick(2) on file systems of ours. The program's descriptor is a context of the kernel's for a
//! new tmpfs, which checks each option; what the options are is kept here. A context is known by its
//! descriptor, or by another of the same open file (kcmp(2)).
//!
//! What is not known after an exec, or because there are too many, the kernel answers: `EBUSY`.

use core::cell::UnsafeCell;

use lp_abi::Fd;
use lp_abi::text::Writer;
use lp_region::sync::{AtomicU32, Ordering};
use lp_vfs::fspick::Picked;

use crate::high::fd::descriptor::is_same_file;

/// Contexts that are known at a time.
const KNOWN: usize = 8;
/// Bytes of options.
pub(crate) const OPTIONS: usize = 512;
/// State of an entry: nobody's, being used by a thread, a context's.
const FREE: u32 = 0;
const USED: u32 = 1;
const KEPT: u32 = 2;

/// A context and its options.
struct Context {
    fd: Fd,
    picked: Picked,
    text: [u8; OPTIONS],
    length: usize,
    /// Whether a reconfiguration has failed.
    has_failed: bool,
}

struct Entry {
    state: AtomicU32,
    context: UnsafeCell<Context>,
}

// SAFETY: a context is used by the thread that has changed the state to `USED`.
unsafe impl Sync for Entry {}

static ENTRIES: [Entry; KNOWN] = [const {
    Entry {
        state: AtomicU32::new(FREE),
        context: UnsafeCell::new(Context {
            fd: Fd::new(0), // With zeros only, it costs no page of data.
            picked: Picked { number: 0, root: 0 },
            text: [0; OPTIONS],
            length: 0,
            has_failed: false,
        }),
    }
}; KNOWN];

impl Entry {
    /// Calls `work` on the entry's context if its state is `from` and nobody else uses it, and leaves it in
    /// the state that `work` returns.
    fn with<T>(&self, from: u32, work: impl FnOnce(&mut Context) -> (u32, Option<T>)) -> Option<T> {
        // PAIRS: the store below.
        self.state.compare_exchange(from, USED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: the state says that this thread uses it.
        let (state, done) = work(unsafe { &mut *self.context.get() });
        self.state.store(state, Ordering::Release); // PAIRS: the exchange above.
        done
    }
}

/// Calls `work` on the context of a descriptor, if it is one.
fn of<T>(fd: Fd, mut work: impl FnMut(&mut Context) -> (u32, Option<T>)) -> Option<T> {
    ENTRIES.iter().find_map(|entry| {
        entry.with(KEPT, |context| if is_same_file(context.fd, fd) { work(context) } else { (KEPT, None) })
    })
}

/// The kernel has made a context `fd`: of this file system, or of none of ours.
pub(crate) fn begun(fd: Fd, picked: Option<Picked>) {
    for entry in &ENTRIES {
        // What had the number before is closed.
        let _: Option<()> =
            entry.with(KEPT, |context| if context.fd == fd { (FREE, None) } else { (KEPT, None) });
    }
    let Some(picked) = picked else { return };
    let fill = |context: &mut Context| {
        (context.fd, context.picked, context.length, context.has_failed) = (fd, picked, 0, false);
        (KEPT, Some(()))
    };
    let free = ENTRIES.iter().find_map(|entry| entry.with(FREE, fill));
    // What was closed is not noticed: the first one gives way.
    let _ = free.or_else(|| ENTRIES[0].with(KEPT, fill));
}

/// Whether a descriptor is a context of a file system of ours.
pub(crate) fn is_one(fd: Fd) -> bool {
    of(fd, |_| (KEPT, Some(()))).is_some()
}

/// The reconfiguration of a context has failed.
pub(crate) fn fail(fd: Fd) {
    let fail = |context: &mut Context| {
        context.has_failed = true;
        (KEPT, Some(()))
    };
    let _ = of(fd, fail);
}

/// Whether it has, so that the context is good for nothing more.
pub(crate) fn has_failed(fd: Fd) -> bool {
    of(fd, |context| (KEPT, Some(context.has_failed))).unwrap_or(false)
}

/// Writes an option with a comma behind it. Its length; `None` if there is no room.
pub(super) fn push_option(to: &mut [u8], key: &[u8], value: &[u8]) -> Option<usize> {
    let mut text = Writer::new(to);
    for part in [key, if value.is_empty() { b"" } else { b"=" }, value, b","] {
        text.push(part);
    }
    text.finish()
}

/// Adds an option that the kernel has found good. One that does not fit is left out: false.
pub(crate) fn add(fd: Fd, key: &[u8], value: &[u8]) -> bool {
    of(fd, |context| {
        let added = push_option(&mut context.text[context.length..], key, value);
        context.length += added.unwrap_or(0);
        (KEPT, Some(added.is_some()))
    })
    .unwrap_or(false)
}

/// The file system of a context, and the options, which begin anew.
pub(crate) fn take(fd: Fd, text: &mut [u8; OPTIONS]) -> Option<(Picked, usize)> {
    let mut length = 0;
    let picked = of(fd, |context| {
        text.copy_from_slice(&context.text);
        length = core::mem::take(&mut context.length);
        (KEPT, Some(context.picked))
    })?;
    Some((picked, length))
}

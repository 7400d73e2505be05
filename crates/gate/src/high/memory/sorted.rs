//! A sorted list of address ranges, in memory of its own.
//!
//! A child of vfork(2) changes its parent's lists and may be killed at any instruction. An insertion or a
//! removal is therefore a step that is recorded first and whose moves are idempotent; whoever finds one under
//! way finishes it ([`Sorted::finish`]).

use core::mem::MaybeUninit;

use lp_abi::linux::{
    __NR_mmap, __NR_mprotect, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE,
};
use lp_abi::{Errno, Result};
use lp_region::sync::light_barrier;

/// A range of addresses.
pub(crate) trait Span: Copy {
    /// Maximum number of them in a list.
    const MOST: usize;
    /// First address.
    fn start(&self) -> usize;
    /// Address behind the last.
    fn end(&self) -> usize;
}

/// Disjoint ranges, by address. The caller must hold the lock that guards the list.
pub(crate) struct Sorted<T: Span> {
    at: *mut T,
    count: usize,
    /// Number of items in the part of the memory that is writable. The rest does not count as the program's
    /// data (`RLIMIT_DATA`).
    room: usize,
    step: Step<T>,
}

/// An insertion or a removal under way. Moving an item is idempotent.
struct Step<T> {
    kind: Change,
    /// Index of the item to insert or remove.
    index: usize,
    /// Index of the next item to be overwritten with its neighbour.
    next: usize,
    /// Number of items afterwards.
    count: usize,
    /// The item to insert.
    item: MaybeUninit<T>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    Insertion,
    Removal,
}

impl<T: Span> Sorted<T> {
    /// Bytes of addresses reserved for a list.
    const BYTES: usize = T::MOST * size_of::<T>();
    /// Minimum number of bytes made writable.
    const LEAST: usize = 64 << 10;
    /// Items that there is space for beyond those that a call has reserved: its parts reserve for themselves.
    const SPARE: usize = 64;

    pub(crate) const fn new() -> Self {
        let step = Step { kind: Change::Nothing, index: 0, next: 0, count: 0, item: MaybeUninit::uninit() };
        Sorted { at: core::ptr::null_mut(), count: 0, room: 0, step }
    }

    /// Address and length of the list's memory; a null address before the first item.
    pub(crate) fn extent(&self) -> (usize, usize) {
        (self.at as usize, Self::BYTES)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn items(&mut self) -> &mut [T] {
        if self.at.is_null() {
            return &mut [];
        }
        // SAFETY: the memory holds `count` items, and the caller holds the lock.
        unsafe { core::slice::from_raw_parts_mut(self.at, self.count) }
    }

    /// Reserves space for `more` items.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<()> {
        let least = self.count + more;
        if least + Self::SPARE <= self.room { Ok(()) } else { self.reserve_slow(least) }
    }

    #[cold]
    fn reserve_slow(&mut self, least: usize) -> Result<()> {
        if least > T::MOST {
            return Err(Errno::ENOMEM);
        }
        if self.at.is_null() {
            let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
            // SAFETY: a new mapping.
            let at = unsafe { lp_abi::syscall!(__NR_mmap, 0, Self::BYTES, PROT_NONE, flags, -1i32, 0) }?;
            self.at = at as *mut T;
        }
        let bytes = ((least + Self::SPARE) * size_of::<T>()).next_power_of_two();
        let bytes = bytes.max(Self::LEAST).min(Self::BYTES);
        if bytes / size_of::<T>() > self.room {
            let protection = PROT_READ | PROT_WRITE;
            // SAFETY: part of the list's mapping; memory is allocated as it is touched.
            unsafe { lp_abi::syscall!(__NR_mprotect, self.at, bytes, protection) }?;
            self.room = bytes / size_of::<T>();
        }
        Ok(())
    }

    /// Index of the first item that overlaps `start..end`.
    pub(crate) fn index_in(&mut self, start: usize, end: usize) -> Option<usize> {
        let items = self.items();
        let index = items.partition_point(|item| item.end() <= start);
        items.get(index).is_some_and(|item| item.start() < end).then_some(index)
    }

    /// The first item that overlaps `start..end`.
    pub(crate) fn find(&mut self, start: usize, end: usize) -> Option<&mut T> {
        let index = self.index_in(start, end)?;
        self.items().get_mut(index)
    }

    /// Inserts an item. The caller has reserved space.
    pub(crate) fn insert(&mut self, item: T) {
        let index = self.items().partition_point(|other| other.start() < item.start());
        let (next, count) = (self.count, self.count + 1);
        self.begin(Step { kind: Change::Insertion, index, next, count, item: MaybeUninit::new(item) });
    }

    pub(crate) fn remove(&mut self, index: usize) {
        let count = self.count - 1;
        let item = MaybeUninit::uninit();
        self.begin(Step { kind: Change::Removal, index, next: index, count, item });
    }

    fn begin(&mut self, step: Step<T>) {
        let kind = step.kind;
        self.step = Step { kind: Change::Nothing, ..step };
        light_barrier(); // After a death the step is complete.
        self.step.kind = kind;
        light_barrier();
        self.finish();
    }

    /// Performs the step under way, or the rest of it.
    pub(crate) fn finish(&mut self) {
        let step = &mut self.step;
        // SAFETY: the memory has space for one item more than there are.
        unsafe {
            match step.kind {
                Change::Nothing => return,
                Change::Insertion => {
                    while step.next > step.index {
                        self.at.add(step.next).write(*self.at.add(step.next - 1));
                        light_barrier(); // After a death each item is in at least one place.
                        step.next -= 1;
                        light_barrier();
                    }
                    self.at.add(step.index).write(step.item.assume_init());
                }
                Change::Removal => {
                    while step.next < step.count {
                        self.at.add(step.next).write(*self.at.add(step.next + 1));
                        light_barrier(); // After a death each item is in at least one place.
                        step.next += 1;
                        light_barrier();
                    }
                }
            }
        }
        light_barrier();
        self.count = step.count;
        light_barrier();
        step.kind = Change::Nothing;
    }
}

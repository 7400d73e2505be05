//! The gate's own memory at addresses that a program can name: the region, and the page at a fixed address.
//!
//! A program that maps over either, unmaps it or changes its protection would end at its next call on a file.
//! Calls that would do so fail with `EPERM`, as on a mapping that mseal(2) has sealed. Other memory of the
//! gate's is where the kernel has put it, like that of any library.

use lp_abi::{Errno, PAGE_SIZE};

use crate::high::memory::areas;
use crate::high::run::region;
use crate::low::thread::home;

/// The end of a page range; `None` if there is no such range.
pub(crate) fn end_of(address: usize, length: usize) -> Option<usize> {
    address.checked_add(length.checked_next_multiple_of(PAGE_SIZE)?)
}

/// The result of a call that changes what is mapped at `length` bytes from `address`, if that is the gate's.
#[inline]
pub(crate) fn refused(address: usize, length: usize) -> Option<isize> {
    let end = end_of(address, length)?;
    let meets = |(start, bytes): (usize, usize)| address < start + bytes && start < end;
    let is_own = address.is_multiple_of(PAGE_SIZE) && (meets(home::extent()) || meets(region_extent()));
    is_own.then(|| Errno::EPERM.to_ret())
}

/// Address and length of the region; zeros while it is not mapped.
fn region_extent() -> (usize, usize) {
    region::joined().map_or((0, 0), |(region, _)| (region.base() as usize, region.length()))
}

/// Whether the mapping at `address` is one of the gate's that would take memory if it were locked.
pub(crate) fn is_sparse(address: usize) -> bool {
    let (start, bytes) = region_extent();
    (start..start + bytes).contains(&address) || areas::holds_list(address)
}

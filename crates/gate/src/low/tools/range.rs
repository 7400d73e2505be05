//! Ranges of the program's addresses.

use lp_abi::PAGE_SIZE;

/// End of program addresses with four-level page tables.
pub(crate) const USER_END: usize = 0x7fff_ffff_f000;

/// Whether munmap(2) accepts this range, and `place` is in it.
pub(crate) fn unmaps(address: usize, length: usize, place: usize) -> bool {
    let end = address.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE_SIZE));
    let holds = |end| end <= USER_END && (address..end).contains(&place);
    address.is_multiple_of(PAGE_SIZE) && end.is_some_and(holds)
}

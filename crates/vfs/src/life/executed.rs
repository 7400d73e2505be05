//! The pages of a program that is executed in place, not as a copy.
//!
//! The process's record of what it executes keeps the inode, and nobody writes to the file ([`busy`]), so the
//! pages stay what and where they are. A process that prepares an exec names another program there while it
//! still executes its own; [`keep`] bridges that.
//!
//! [`busy`]: crate::busy

use lp_abi::{PAGE_SIZE, Result};
use lp_region::records::file_mode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeRef, ProcessId, Region, Spot};

use crate::caller::task::Task;
use crate::inodes::inode;
use crate::life::mapped;
use crate::life::mapping::{self, Piece};

/// Records a mapping of one page of the program that the process executes, so that all its pages stay while
/// the process's record names another program. [`mapping::end`] undoes it.
///
/// # Errors
/// `ENOMEM`.
pub fn keep(task: &Task, program: Spot) -> Result<()> {
    let _locked = inode::lock(task, program.inode.id);
    mapped::add(task, program, file_mode::READ, PAGE_SIZE as u64)
}

/// Calls `visit` with the pieces of the program that `process`, which the caller is, executes: `len` bytes
/// from `offset`, both in whole pages. Returns whether it executes a program in a mount that has these pages.
///
/// # Errors
/// Those of `visit`.
pub fn pieces(
    region: Region,
    process: ProcessId,
    (offset, len): (u64, u64),
    visit: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<bool> {
    let page = PAGE_SIZE as u64;
    // Relaxed, here and below: the process's own word, and what does not change while it is set.
    let program = Spot::from_word(region.process(process).exe.load(Relaxed)).inode;
    let inode = region.inode(program.id);
    let (mut index, end) = (offset / page, (offset + len) / page);
    let is_there = program != InodeRef::NONE && inode.generation.load(Relaxed) == program.generation;
    if !is_there || end > inode.size.load(Relaxed).div_ceil(page) {
        return Ok(false);
    }
    while index < end {
        let piece = mapping::piece(region, inode, index, end - index);
        let at = region.page_offset(piece.page).filter(|_| piece.page.is_some());
        visit(Piece { offset: index * page, region: at, bytes: piece.len as usize * PAGE_SIZE })?;
        index += piece.len;
    }
    Ok(true)
}

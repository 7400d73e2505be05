//! Faults in mappings: in a hole, past the end of a file that has grown, or the program's own.

use lp_abi::linux::SIGBUS;
use lp_vfs::bare_mapping;
use lp_vfs::task::Task;

use crate::high::memory::areas::{self, LockedAreas};
use crate::high::memory::{holes, resize};
use crate::low::above::Access;

/// The cause of a fault at an address of the program's.
pub(crate) enum Fault {
    /// The program's own fault.
    Real,
    /// The file had grown; its pages have been mapped in.
    Mended,
    /// The pages were mapped when the list was locked: another thread may have mapped them since the fault,
    /// or the fault is real.
    Unclear,
}

/// Handles a fault at `address`, by which the kernel has raised `signal` in the program, not in the gate.
pub(crate) fn fault(task: &Task, signal: usize, address: usize, access: Access) -> Fault {
    let mut list = areas::list();
    let Some(index) = list.index_at(address) else { return Fault::Real };
    if signal == SIGBUS as usize
        && let Some(is_mended) = holes::fault(task, &mut list, address, access)
    {
        return if is_mended { Fault::Mended } else { Fault::Real };
    }
    let area = list.areas()[index];
    if address < area.beyond {
        return without_memory(task, &mut list, index, signal, address);
    }
    let is_mended = area.end_of_file(task) > address
        && resize::settle(task, &mut list, index).is_ok()
        && address < list.areas()[index].beyond;
    if is_mended { Fault::Mended } else { Fault::Real }
}

/// The cause of a fault in the area at `index`, at an address where it had a page of the file when it was
/// mapped: another process has truncated the file since, or has truncated it and made it longer again.
fn without_memory(task: &Task, list: &mut LockedAreas, index: usize, signal: usize, address: usize) -> Fault {
    let area = list.areas()[index];
    if signal != SIGBUS as usize {
        return Fault::Unclear;
    }
    if area.end_of_file(task) <= address {
        let _ = resize::settle(task, list, index);
        return Fault::Real;
    }
    let is_mended = bare_mapping::repair(task, area.of, area.offset + (address - area.start) as u64);
    if is_mended { Fault::Mended } else { Fault::Unclear }
}

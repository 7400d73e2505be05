//! Faults in mappings: in a hole, past the end of a file that has grown, or the program's own.

use lp_abi::linux::SIGBUS;
use lp_vfs::task::Task;

use crate::high::memory::{areas, holes, resize};

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
pub(crate) fn fault(task: &Task, signal: usize, address: usize) -> Fault {
    let mut list = areas::list();
    let Some(index) = list.index_at(address) else { return Fault::Real };
    if signal == SIGBUS as usize
        && let Some(is_mended) = holes::fault(task, &mut list, address)
    {
        return if is_mended { Fault::Mended } else { Fault::Real };
    }
    let area = list.areas()[index];
    if address < area.beyond {
        return Fault::Unclear;
    }
    let is_mended = resize::end_of_file(task, &area) > address
        && resize::settle(task, &mut list, index).is_ok()
        && address < list.areas()[index].beyond;
    if is_mended { Fault::Mended } else { Fault::Real }
}

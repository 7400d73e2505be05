//! Whether a file is open somewhere. Opens are not counted; the tables of all processes are searched.

use lp_region::records::{Mapping, file_mode};
use lp_region::sync::{Ordering, heavy_barrier};
use lp_region::{FileId, InodeRef, MountId, ProcessId, marks};

use crate::caller::task::Task;
use crate::descriptors::flight;
use crate::descriptors::table::{self, FdTable};
use crate::lane::pin;

/// Scans before a file counts as open, if references move or calls use it all the time.
const LOOKS: u32 = 64;

/// An open file, or what a process maps through it.
pub(crate) struct Open {
    /// None for a mapping.
    pub(crate) file: FileId,
    pub(crate) inode: InodeRef,
    pub(crate) mount: MountId,
    /// [`file_mode`]; of a mapping that of all files that it was made through.
    pub(crate) mode: u32,
    /// The process of a mapping.
    process: ProcessId,
}

impl Open {
    fn file(task: &Task, id: FileId) -> Open {
        let file = task.region.file(id);
        // Relaxed, both: immutable while a table names the file. That it may just be closed is the caller's
        // race.
        let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
        let mode = file.mode.load(Ordering::Relaxed);
        Open { file: id, inode, mount: file.mount(), mode, process: ProcessId::NONE }
    }

    fn mapping(record: &Mapping) -> Open {
        // Relaxed: stored before the inode.
        Open {
            file: FileId::NONE,
            inode: InodeRef::from_word(record.inode.load(Ordering::Relaxed)),
            mount: MountId(record.mount.load(Ordering::Relaxed)),
            mode: record.modes.load(Ordering::Relaxed),
            process: ProcessId(record.process.load(Ordering::Relaxed)),
        }
    }

    fn conflicts(&self, inode: InodeRef, modes: u32) -> bool {
        self.inode == inode && self.mode & file_mode::PATH == 0 && self.mode & modes != 0
    }
}

/// Whether a living process has a file open, or mapped, for which `is_it` holds: in its table, in a call
/// under way, or in a message that it may receive. Returns true when in doubt.
///
/// It finds every open file that no table named when this began only if its open pins it before it looks at
/// what the caller has announced.
pub(crate) fn by_the_living(task: &Task, is_it: impl Fn(&Open) -> bool) -> bool {
    let is_it_open = |id: FileId| is_it(&Open::file(task, id));
    for _ in 0..LOOKS {
        let before = table::moves(task.region);
        // A file on its way into a table leaves its pin there, so pins come first.
        if !heavy_barrier() {
            return true;
        }
        let pinned = is_pinned(task, is_it_open);
        let calm = match in_tables(task, is_it_open) {
            Some(true) => return true,
            found => found.is_some(),
        };
        // What is mapped was open before.
        let mapped = task.region.mappings().map(Open::mapping);
        if mapped.filter(&is_it).any(|open| !task.region.process_is_dead(open.process, task.process_id)) {
            return true;
        }
        if flight::sent(task.region).any(|file| is_it_open(file) && flight::is_in_flight(task, file)) {
            return true;
        }
        if calm && !pinned && table::moves(task.region) == before {
            return false;
        }
    }
    true
}

/// Whether the table of a living process names such a file; `None` if not, but references moved within a
/// table.
pub(crate) fn in_tables(task: &Task, is_it: impl Fn(FileId) -> bool) -> Option<bool> {
    let mut calm = true;
    for process in task.region.processes() {
        let mut hit = false;
        calm &= FdTable::of(task.region, process).look_through(|file| hit |= is_it(file));
        if hit && !task.region.process_is_dead(process, task.process_id) {
            return Some(true);
        }
    }
    calm.then_some(false)
}

/// Whether a call of a living process names such a file, other than to close it: what is being closed has
/// left the table already, removed by its owner or by a reaper.
pub(crate) fn is_pinned(task: &Task, is_it: impl Fn(FileId) -> bool) -> bool {
    task.region.lanes().any(|lane| {
        let pins = task.region.lane(lane).pins.iter().map(marks::pinned).enumerate();
        let mut in_use = pins.filter(|(slot, _)| *slot != pin::slot::CLOSE).map(|(_, pin)| pin);
        in_use.any(|pin| pin != 0 && pin & pin::INODE == 0 && is_it(FileId(pin as u32)))
            && !task.region.lane_is_dead(lane, task.process_id)
    })
}

/// Whether a living process has `inode` open by another open file than `own`, or mapped, with an access of
/// `modes` ([`file_mode`]). Returns true when in doubt.
pub fn by_others(task: &Task, inode: InodeRef, own: FileId, modes: u32) -> bool {
    let own_writes =
        own.is_some() && task.region.file(own).mode.load(Ordering::Relaxed) & file_mode::WRITE != 0;
    // What the caller's process has mapped may be mapped through `own`, which counts once.
    let is_own = |open: &Open| match open.file {
        FileId::NONE => own_writes && open.process == task.process_id,
        file => file == own,
    };
    by_the_living(task, |open| open.conflicts(inode, modes) && !is_own(open))
}

/// Whether a call is opening `inode` that may not have seen a flag that the caller has just set in it.
/// Whoever is not seen here is in a table already, or sees the flag. Returns true when in doubt.
pub fn is_being_opened(task: &Task, inode: InodeRef) -> bool {
    // PAIRS: the light barriers of `pin`, behind which an open reads the flags.
    if !heavy_barrier() {
        return true;
    }
    task.region.lanes().any(|lane| {
        let pinned = marks::pinned(&task.region.lane(lane).pins[pin::slot::OPEN]);
        let names = match pinned {
            0 => false,
            inode_pin if inode_pin & pin::INODE != 0 => inode_pin as u32 == inode.id.0,
            file => {
                Open::file(task, FileId(file as u32)).conflicts(inode, file_mode::READ | file_mode::WRITE)
            }
        };
        names && !task.region.lane_is_dead(lane, task.process_id)
    })
}

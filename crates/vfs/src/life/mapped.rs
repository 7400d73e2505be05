//! Records of what processes map: one for each process and inode.
//!
//! While one exists, the inode is not freed; and while the inode has [`inode_flags::MAPPED`], truncation
//! zeroes its pages instead of freeing them. The last record's removal clears the flag.
//!
//! A process changes the list of its own records only. Others read the slab instead: a list that they follow
//! may lead into another one by a record that was freed meanwhile.

use lp_abi::{Errno, Result};
use lp_region::layout::MAPPINGS;
use lp_region::process::Process;
use lp_region::records::{Mapping, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{InodeRef, MappingId, MountId, ProcessId, Spot};

use crate::caller::task::Task;
use crate::content::{cut, linking};
use crate::descriptors::table_lock;

/// A process's record of an inode is gone. If it was the last, truncation may free pages again, and the pages
/// that were kept are freed. The caller must hold the inode's lock.
pub(crate) fn record_gone(task: &Task, of: InodeRef) {
    if cut::is_mapped(task, of) {
        return;
    }
    let inode = task.region.inode(of.id);
    let flags = inode.flags.load(Relaxed); // Relaxed: under the lock.
    let kept = flags & inode_flags::KEPT;
    // A section even where nothing is removed: a copy from before the mapping must not pass for one of what
    // was written through it (`version::of`).
    inode.data_seq.begin();
    inode.flags.store(flags & !(inode_flags::MAPPED | inode_flags::WRITABLE_MAP), Relaxed);
    if kept == 0 {
        return inode.data_seq.end();
    }
    let size = inode.size.load(Relaxed); // Relaxed: under the lock.
    inode.seq.begin();
    linking::less_in_section(inode, cut::left(task, inode, size));
    inode.seq.end();
    cut::cut_left(task, of.id, inode, size);
    inode.data_seq.end();
    // Relaxed, both: under the lock.
    inode.flags.store(inode.flags.load(Relaxed) & !inode_flags::KEPT, Relaxed);
}

/// Gives a child that is about to be forked copies of the parent's records. If threads share the table, the
/// caller must hold its lock.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn inherit(task: &Task, child: ProcessId) -> Result<()> {
    let record = task.region.process(child);
    for (_, mapping) in list(task, task.process) {
        let of = InodeRef::from_word(mapping.inode.load(Relaxed)); // Relaxed: the process's own.
        let of = Spot { inode: of, mount: MountId(mapping.mount.load(Relaxed)) };
        let (modes, bytes) = (mapping.modes.load(Relaxed), mapping.bytes.load(Relaxed));
        add_locked(task, (record, child), of, modes, bytes)?;
    }
    Ok(())
}

/// The records of a process. Bounded, in case the list is damaged.
fn list<'r>(
    task: &Task<'r>,
    process: &'r Process,
) -> impl Iterator<Item = (MappingId, &'r Mapping)> + use<'r> {
    let region = task.region;
    // No record is looked at beyond the last: a process without mappings does not touch their page.
    let listed = |word: u32| Some(MappingId(word)).filter(|id| id.is_some());
    let next = move |id: &MappingId| listed(region.mapping(*id).link.load(Acquire));
    core::iter::successors(listed(process.mappings.load(Acquire)), next)
        .take(MAPPINGS)
        .map(move |id| (id, region.mapping(id)))
}

/// Whether the list of a process, which does not change it meanwhile, has a record.
pub(crate) fn lists<'r>(task: &Task<'r>, process: &'r Process, id: MappingId) -> bool {
    list(task, process).any(|(listed, _)| listed == id)
}

/// Adds bytes to the process's record of an inode, which is made if there is none, and marks the inode. The
/// caller must hold the inode's lock.
///
/// # Errors
/// `ENOMEM` without a record.
pub(crate) fn add(task: &Task, of: Spot, modes: u32, bytes: u64) -> Result<()> {
    let locked = table_lock::lock_records(task);
    add_locked(task, (task.process, task.process_id), of, modes, bytes)?;
    drop(locked);
    let flags = &task.region.inode(of.inode.id).flags;
    let seen = flags.load(Relaxed); // Relaxed, here and below: under the inode's lock.
    if seen & inode_flags::MAPPED == 0 {
        flags.store(seen | inode_flags::MAPPED, Relaxed);
    }
    Ok(())
}

fn add_locked(
    task: &Task,
    (process, process_id): (&Process, ProcessId),
    of: Spot,
    modes: u32,
    bytes: u64,
) -> Result<()> {
    let region = task.region;
    let first = MappingId(process.mappings.load(Acquire));
    let word = of.inode.to_word();
    let mut at = first;
    while at.is_some() {
        let record = region.mapping(at);
        if record.inode.load(Relaxed) == word {
            record.bytes.store(record.bytes.load(Relaxed) + bytes, Relaxed); // Relaxed: the process's own.
            if of.mount.is_some() {
                record.mount.store(of.mount.0, Relaxed);
            }
            record.modes.store(record.modes.load(Relaxed) | modes, Release);
            return Ok(());
        }
        at = MappingId(record.link.load(Relaxed));
    }
    let id = region.take::<Mapping>(task.lane).map_err(|_| Errno::ENOMEM)?;
    let record = region.mapping(id);
    // Relaxed: published by the store that links it in.
    record.bytes.store(bytes, Relaxed);
    record.process.store(process_id.0, Relaxed);
    record.mount.store(of.mount.0, Relaxed);
    record.modes.store(modes, Relaxed);
    record.link.store(first.0, Relaxed);
    record.inode.store(word, Release); // PAIRS: the acquire in `Region::mappings`.
    process.mappings.store(id.0, Release);
    region.settle::<Mapping>(task.lane);
    Ok(())
}

/// Subtracts bytes from the process's record. Returns whether none are left and the record is gone.
pub(crate) fn subtract(task: &Task, of: InodeRef, bytes: u64) -> bool {
    let _locked = table_lock::lock_records(task);
    let mut before = MappingId::NONE;
    let mut gone = false;
    for (id, record) in list(task, task.process) {
        if record.inode.load(Relaxed) == of.to_word() {
            let left = record.bytes.load(Relaxed).saturating_sub(bytes); // Relaxed: the process's own.
            record.bytes.store(left, Relaxed);
            gone = left == 0;
            break;
        }
        before = id;
    }
    if gone {
        unlink(task, before);
    }
    gone
}

/// Unlinks the record after `before`, or the first, from the process's list.
fn unlink(task: &Task, before: MappingId) {
    let region = task.region;
    let slot = if before.is_none() { &task.process.mappings } else { &region.mapping(before).link };
    let id = MappingId(slot.load(Relaxed)); // Relaxed: the process's own.
    let record = region.mapping(id);
    // The lane names the record until it is freed.
    task.lane.taken[Mapping::SLAB].store(id.0, Release);
    slot.store(record.link.load(Relaxed), Release);
    record.inode.store(0, Release);
    region.give::<Mapping>(task.lane, id);
    region.settle::<Mapping>(task.lane);
}

/// The mount through which the process maps an inode; none if it does not map it.
pub(crate) fn mount_of(task: &Task, of: InodeRef) -> MountId {
    let _locked = table_lock::lock_records(task);
    let mapped = list(task, task.process)
        .find(|(_, record)| record.inode.load(Relaxed) == of.to_word()) // Relaxed: the process's own.
        .map(|(_, record)| record.mount.load(Relaxed));
    mapped.map_or(MountId::NONE, MountId)
}

/// Whether the process maps an inode without links.
pub(crate) fn keeps_unlinked(task: &Task) -> bool {
    list(task, task.process).any(|(_, record)| {
        let of = InodeRef::from_word(record.inode.load(Relaxed)); // Relaxed: the process's own.
        of != InodeRef::NONE && task.region.inode(of.id).nlink.load(Relaxed) == 0
    })
}

//! Renewing lists after the layer has changed, for instance because an apply wrote to it.
//!
//! The caller must be the only user of the region. A removed record keeps its place, because chains of links
//! and lists of directories name places: it has no mode, and [`list::each`] skips it.

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, NAME_MAX, Result};
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef, Region};

use crate::below::links::{self, Chain};
use crate::below::list::{self, Record, RecordAt};
use crate::caller::task::{Task, Time};
use crate::content::fill;
use crate::inodes::inode;

/// Longest record with its name.
const LONGEST: usize = size_of::<Record>() + NAME_MAX + 1;

/// Records that the layer has `seen` at a name, as does `target` in the session: it counts as untouched. The
/// identity in the layer must not have changed.
///
/// # Errors
/// As [`list::record`].
pub fn update(task: &Task<'_>, at: RecordAt, seen: &Record, target: InodeRef) -> Result<()> {
    let found = list::record(task.region, at)?;
    let kept = Record { target: found.target, list: found.list, length: found.length, ..*seen };
    list::overwrite(task.region, at, &Record { next: found.next, ..kept });
    untouched(task, at, seen, target);
    Ok(())
}

/// Calls `each` with the records of all names of a file of the layer that have been seen.
///
/// # Errors
/// As [`list::record`]; `EIO` for a damaged chain.
pub fn names(task: &Task<'_>, seen: &Record, each: impl FnMut(RecordAt, &Record)) -> Result<()> {
    if links::may_have(seen) { Chain::of(task, seen)?.each(each) } else { Ok(()) }
}

/// Records that another name of a file was added or removed: its links and its change time are those of `now`.
///
/// # Errors
/// As [`list::record`].
pub fn relink(task: &Task<'_>, at: RecordAt, now: &Record) -> Result<()> {
    let found = list::record(task.region, at)?;
    let mut record = Record { nlink: now.nlink, ..found };
    (record.seconds[2], record.nanoseconds[2]) = (now.seconds[2], now.nanoseconds[2]);
    list::overwrite(task.region, at, &record);
    let target = found.target();
    // Acquire: the generation grows before the slot is used again.
    if task.region.inode(target.id).generation.load(Acquire) != target.generation {
        return Ok(());
    }
    let attributes = inode::attributes(task, target.id, task.region.inode(target.id));
    let ctime = (attributes.ctime.sec, attributes.ctime.nsec);
    if ctime == (found.seconds[2], found.nanoseconds[2]) {
        untouched(task, at, &record, target);
    }
    Ok(())
}

/// Records that the layer has no such name any more.
///
/// # Errors
/// As [`list::record`].
pub fn remove(region: Region<'_>, at: RecordAt) -> Result<()> {
    let found = list::record(region, at)?;
    let gone = Record { list: found.list, length: found.length, next: found.next, ..Record::default() };
    list::overwrite(region, at, &gone);
    Ok(())
}

/// Adds a name that the layer has `seen`, and that is `target` in the session, to a complete list. Returns the
/// list of what it names if that is a directory; its names are the caller's to add.
///
/// # Errors
/// `ENOSPC`; `EFBIG` beyond 4 GiB.
pub fn insert(
    task: &Task<'_>,
    list: InodeId,
    name: &[u8],
    seen: &Record,
    target: InodeRef,
) -> Result<Option<InodeId>> {
    let at = append(task, list, name, seen)?;
    let is_dir = seen.mode & S_IFMT == S_IFDIR;
    let mut own = None;
    if is_dir {
        let (names, complete) = list::begin(task, at)?;
        if !complete {
            list::finish(task, names, 0);
        }
        list::set_list(task.region, at, names);
        own = Some(names);
    }
    untouched(task, at, seen, target);
    if links::may_have(seen) {
        Chain::of(task, seen)?.enter(at, target)?;
    }
    Ok(own)
}

/// Appends a record, whole or not at all.
fn append(task: &Task<'_>, list: InodeId, name: &[u8], seen: &Record) -> Result<RecordAt> {
    let mut record = Record { target: 0, list: 0, next: 0, length: name.len() as u32, ..*seen };
    let mut room = [0; LONGEST.next_multiple_of(8)];
    let length = record.bytes() as usize;
    let start = size_of::<Record>();
    room.get_mut(start..start + name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
    room[..start].copy_from_slice(list::bytes_of(&mut record));
    let inode = task.region.inode(list);
    let _locked = inode::lock(task, list);
    let size = inode.size.load(Relaxed); // Relaxed, here and below: under the lock.
    let offset = u32::try_from(size).map_err(|_| Errno::EFBIG)?;
    let done = fill::append_private(task, list, &room[..length]);
    if done.is_err() {
        inode.size.store(size, Relaxed);
    }
    done.map(|()| RecordAt { list, offset })
}

/// Makes `target` what stands for a record, unchanged since it was seen.
fn untouched(task: &Task<'_>, at: RecordAt, seen: &Record, target: InodeRef) {
    let inode = task.region.inode(target.id);
    let _locked = inode::lock(task, target.id);
    let (atime, mtime) = inode::access_and_modification(inode);
    let ctime = Time { sec: seen.seconds[2], nsec: seen.nanoseconds[2] };
    inode.data_seq.begin();
    inode::set_times(inode, atime, mtime, ctime);
    inode.data_seq.end();
    list::set_target(task.region, at, target);
}

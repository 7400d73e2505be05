//! Renewing lists after the layer has changed, for instance because an apply wrote to it.
//!
//! The caller must be the only user of the region. A removed record keeps its place, because chains of links
//! and lists of directories name places: it has no mode, and [`list::each`] skips it.

use lp_abi::Result;
use lp_abi::linux::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use lp_region::records::inode_flags;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef, Region};

use crate::below::attributes;
use crate::below::host::HostTree;
use crate::below::links::{self, Chain};
use crate::below::list::{self, Record, RecordAt, State};
use crate::below::numbers::Numbers;
use crate::below::taking::Taking;
use crate::below::{Layer, Use, lock, set_spot};
use crate::caller::task::{Task, Time};
use crate::inodes::inode;
use crate::life::reclaim;
use crate::names::hash::{self, Load};
use crate::names::name::Name;
use crate::names::removal;
use crate::rights::permission::Victim;

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
pub fn links(task: &Task<'_>, seen: &Record, each: impl FnMut(RecordAt, &Record)) -> Result<()> {
    if links::may_have(seen) { chain(task, seen)?.each(each) } else { Ok(()) }
}

fn chain<'r>(task: &Task<'r>, seen: &Record) -> Result<Chain<'r>> {
    Chain::of(task.region, links::table(task)?, (seen.dev, seen.ino))
}

/// Records that another name of a file was added or removed: its links and its change time are those of
/// `now`.
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

/// Adds a name that the layer has `seen`, and that is `target` in the session, to a complete list. Returns
/// the list of what it names if that is a directory; its names are the caller's to add.
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
        let (names, state) = list::begin(task, at)?;
        if state != State::Complete {
            list::finish(task, names, State::Complete, 0);
        }
        list::set_list(task.region, at, names);
        own = Some(names);
    }
    untouched(task, at, seen, target);
    if links::may_have(seen) {
        chain(task, seen)?.enter(at, target)?;
    }
    Ok(own)
}

/// Records that a directory of the layer has other attributes now; the session's gets them.
///
/// # Errors
/// As [`list::record`]; `EIO` if the directory is another one; `ENOSPC`.
pub fn redress(task: &Task<'_>, at: RecordAt, seen: &Record, target: InodeRef) -> Result<()> {
    let inode = task.region.inode(target.id);
    let time = |index: usize| Time { sec: seen.seconds[index], nsec: seen.nanoseconds[index] };
    attributes::take_again(task, at, target.id)?;
    {
        let _locked = inode::lock(task, target.id);
        inode.data_seq.begin();
        inode.seq.begin();
        // Relaxed throughout: inside the section.
        inode.mode.store(seen.mode, Relaxed);
        inode.uid.store(seen.uid, Relaxed);
        inode.gid.store(seen.gid, Relaxed);
        inode.seq.end();
        inode::set_times(inode, time(0), time(1), time(2));
        inode.data_seq.end();
    }
    update(task, at, seen, target)
}

/// Takes a name out of a directory whose layer has lost or changed it: first what it names, which must be
/// empty if it is a directory, then its record. Until then the record stands for nothing, so that after a
/// death the caller finds it and takes it out again.
///
/// # Errors
/// As [`list::record`]; `ESTALE` if the directory is gone; `ENOTEMPTY`.
pub fn forget(task: &Task<'_>, dir: InodeRef, at: RecordAt, name: &[u8]) -> Result<()> {
    orphan(task.region, at)?;
    drop_name(task, dir, name)?;
    remove(task.region, at)
}

/// Makes a record stand for nothing: [`forget`] is to take its name out.
///
/// # Errors
/// As [`list::record`].
pub fn orphan(region: Region<'_>, at: RecordAt) -> Result<()> {
    list::record(region, at)?;
    list::set_target(region, at, InodeRef::NONE);
    Ok(())
}

/// Takes a name out of a directory; a directory that it names must be empty. No name is no error.
///
/// # Errors
/// `ESTALE` if the directory is gone; `ENOTEMPTY`.
pub fn drop_name(task: &Task<'_>, dir: InodeRef, name: &[u8]) -> Result<()> {
    if forget_name(task, dir, &Name::new(name)?)? == 0 {
        reclaim::after_unlink(task);
    }
    Ok(())
}

/// Removes a name; the links that are left of what it named.
fn forget_name(task: &Task<'_>, dir: InodeRef, name: &Name<'_>) -> Result<u32> {
    let _dir = lock(task, dir)?;
    let Some(hit) = hash::lookup(task.region, dir.id, name) else { return Ok(1) };
    let victim = task.region.inode(hit.target().id);
    let _victim = inode::lock(task, hit.target().id);
    let what = if victim.is_dir() { Victim::Directory } else { Victim::File };
    if what == Victim::Directory {
        // Relaxed: under the lock. What has not been taken is not in the layer any more.
        victim.flags.store(victim.flags.load(Relaxed) & !inode_flags::PENDING, Relaxed);
    }
    let times = times_of(task, dir.id);
    let left = removal::take(task, dir, hit.dirent(), hit.target(), what);
    set_times(task, dir.id, times);
    left
}

/// Takes in a name that the layer has got, in a directory whose other names are there. `of` is the
/// directory's record.
///
/// # Errors
/// As [`super::take`].
pub fn take_in(task: &Task<'_>, dir: InodeRef, of: RecordAt, name: &[u8], seen: &Record) -> Result<()> {
    let inode = task.region.inode(dir.id);
    let list = InodeId(list::record(task.region, of)?.list);
    let at = append(task, list, name, seen)?;
    let seen = &list::record(task.region, at)?;
    let from = HostTree.dir(task, of, Use::Search)?;
    let numbers = Numbers::of(task, dir.id, of)?;
    let taking = Taking { dir: dir.id, from: &from, numbers, attributes: false, counts: true };
    let load = {
        let _locked = lock(task, dir)?;
        let times = times_of(task, dir.id);
        let tail = inode.tail.load(Relaxed); // Relaxed: under the lock.
        let load = taking.name_in(task, (at, seen), tail);
        set_times(task, dir.id, times);
        load?
    };
    if load == Some(Load::Crowded) {
        hash::split(task);
    }
    Ok(())
}

/// Access, modification and change time of a directory that is locked.
fn times_of(task: &Task<'_>, id: InodeId) -> [Time; 3] {
    let inode = task.region.inode(id);
    let (atime, mtime) = inode::access_and_modification(inode);
    [atime, mtime, inode::attributes_locked(inode).ctime]
}

fn set_times(task: &Task<'_>, id: InodeId, [atime, mtime, ctime]: [Time; 3]) {
    let inode = task.region.inode(id);
    inode.data_seq.begin();
    inode::set_times(inode, atime, mtime, ctime);
    inode.data_seq.end();
}

/// Appends the record of a name that nothing stands for yet.
fn append(task: &Task<'_>, list: InodeId, name: &[u8], seen: &Record) -> Result<RecordAt> {
    list::append(task, list, &Record { target: 0, list: 0, next: 0, ..*seen }, name)
}

/// Makes `target` what stands for a record, unchanged since it was seen. A special file stands for the
/// layer's from then on, whoever created it.
fn untouched(task: &Task<'_>, at: RecordAt, seen: &Record, target: InodeRef) {
    let _locked = inode::lock(task, target.id);
    if !matches!(seen.mode & S_IFMT, S_IFREG | S_IFDIR | S_IFLNK) {
        let inode = task.region.inode(target.id);
        set_spot(inode, at);
        // Relaxed: under the lock.
        inode.flags.store(inode.flags.load(Relaxed) | inode_flags::ORIGIN, Relaxed);
    }
    let [atime, mtime, _] = times_of(task, target.id);
    let ctime = Time { sec: seen.seconds[2], nsec: seen.nanoseconds[2] };
    set_times(task, target.id, [atime, mtime, ctime]);
    list::set_target(task.region, at, target);
}

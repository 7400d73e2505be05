//! Names of directories, all taken in at the first look.

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, Result};
use lp_region::records::{COVERED, Inode, NO_ACL_YET, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{InodeId, InodeRef};

use crate::below::host::{self, HostTree};
use crate::below::links;
use crate::below::list::{self, RecordAt, State};
use crate::below::numbers::{self, Numbers};
use crate::below::taking::{Taking, dress};
use crate::below::{Layer, Use, attributes, listing, lock, may_call, spot};
use crate::caller::below::{self, Need, is_pending};
use crate::caller::task::Task;
use crate::inodes::inode::{self, Locked};
use crate::life::boot;
use crate::life::reclaim;
use crate::names::hash::{self, Load};
use crate::names::listing::{mark_of, set_mark};

/// Names created under the lock at a time; the hash table grows in between.
const BATCH: u32 = 128;

/// Lays the tree at `path`, NUL-terminated and without symbolic links, below root `root`, unless the root has
/// one. Nobody else may use the root yet.
///
/// # Errors
/// Those of open(2) for the directory; `ENOSPC`.
pub fn lay(task: &Task<'_>, root: u32, path: &[u8]) -> Result<()> {
    numbers::prepare(task);
    links::prepare(task)?;
    let at = boot::root(task, root as usize)?;
    let record = task.region.inode(at.id);
    if spot(record).is_some() {
        return Ok(());
    }
    let seen = host::root(path.as_ptr())?;
    let name = [b'r', b'0' + (root / 10) as u8, b'0' + (root % 10) as u8];
    let file = list::file(task, &name)?;
    let (list, state) = list::begin_file(task, file, RecordAt { list: InodeId::NONE, offset: 0 })?;
    let offset = list::FIRST;
    if state != State::Complete {
        list::append_root(task, list, &seen, &path[..path.len() - 1])?;
        list::finish(task, list, State::Complete, 1);
    }
    let spot = RecordAt { list, offset };
    // The spot tells whether the rest is there, so it comes last.
    attributes::take_with_name(task, &HostTree.dir(task, spot, Use::Search)?, &b".\0"[..1], at.id, &seen)?;
    let _locked = inode::lock(task, at.id);
    dress(record, &seen, spot);
    list::set_target(task.region, spot, at);
    Ok(())
}

/// Takes the names of a directory in, unless that is done; for [`Need::Names`] a listing is enough. The
/// caller must hold no lock.
///
/// # Errors
/// `ESTALE` if the directory was freed; `EBUSY` if it stands for one of the host's; those of the layer;
/// `ENOSPC`.
#[cold]
pub fn take(task: &Task<'_>, of: InodeRef, need: Need) -> Result<()> {
    let need = match need {
        Need::Names if mark_of(task.region.inode(of.id)).is_some() => return Ok(()),
        Need::Names if task.habit.lists(task.region) => Need::Names,
        _ => Need::All,
    };
    match take_once(task, of, need) {
        Err(Errno::ENOSPC) => {
            reclaim::all(task);
            take_once(task, of, need)
        }
        done => done,
    }
}

/// How far names have been created: the place of the next record, and the position of its entry; how many
/// names there are before it, and how many of them are directories.
struct Progress {
    offset: u32,
    position: u64,
    count: u32,
    below: u32,
}

fn take_once(task: &Task<'_>, of: InodeRef, need: Need) -> Result<()> {
    let mut next = Progress { offset: list::FIRST, position: 0, count: 0, below: 0 };
    loop {
        let locked = lock(task, of)?;
        let inode = task.region.inode(of.id);
        if !is_pending(inode) || need == Need::Names && mark_of(inode).is_some() {
            return Ok(());
        }
        if below::is_hosts(inode) {
            return Err(Errno::EBUSY);
        }
        let crowded = batch(task, of.id, &locked, &mut next, need)?;
        drop(locked);
        (0..crowded).for_each(|_| hash::split(task));
    }
}

/// Creates the next names of a directory from its list, which is written first. Returns how often the hash
/// table should grow. The caller must hold the directory's lock.
fn batch(task: &Task<'_>, id: InodeId, _locked: &Locked<'_>, next: &mut Progress, need: Need) -> Result<u32> {
    let inode = task.region.inode(id);
    may_call()?;
    let at = spot(inode).ok_or(Errno::EIO)?;
    let dir = HostTree.dir(task, at, Use::List)?;
    let (numbers, attributes) = (Numbers::of(task, id, at)?, task.habit.asks());
    let taking = Taking { dir: id, from: &dir, numbers, attributes, counts: false };
    let (list, state) = taking.list(task, at, need)?;
    list::set_list(task.region, at, list);
    if state == State::Complete {
        set_mark(inode, None);
    }
    if next.offset == list::FIRST {
        count_names(task, id, list, state)?;
    }
    let times = (inode::access_and_modification(inode), inode::attributes_locked(inode).ctime);
    let (mut left, mut crowded, mut end) = (BATCH, 0, true);
    let made = list::each_place(task.region, list, next.offset, |at, seen| {
        if left == 0 {
            end = false;
            return Ok(false);
        }
        if !seen.is_gone()
            && let Some(load) = taking.name_in(task, (at, seen), next.position)?
        {
            left -= 1;
            crowded += u32::from(load == Load::Crowded);
        }
        next.offset = at.offset + seen.bytes();
        next.position += u64::from(!seen.is_piece());
        next.count += u32::from(!seen.is_gone());
        next.below += u32::from(seen.mode & S_IFMT == S_IFDIR);
        Ok(true)
    });
    inode.data_seq.begin();
    inode::set_times(inode, times.0.0, times.0.1, times.1);
    inode.data_seq.end();
    made?;
    if end {
        match state {
            State::Names => list_names(task, id, list, next)?,
            _ => finish(task, id, next),
        }
    }
    Ok(crowded)
}

/// Counts the names of a directory before they have entries: programs that read a directory compare its size
/// before and after. The caller must hold the directory's lock.
fn count_names(task: &Task<'_>, id: InodeId, list: InodeId, state: State) -> Result<()> {
    let count = match state {
        State::Names => listing::found(task, list)?.end(task.region)? as u32,
        _ => list::head(task.region, list)?.count,
    };
    set_count(task.region.inode(id), count);
    Ok(())
}

/// Sets the number of a directory's entries. The caller must hold its lock.
fn set_count(inode: &Inode, count: u32) {
    inode.data_seq.begin();
    inode.entries.store(count, Relaxed); // Relaxed: inside the section.
    inode.data_seq.end();
}

/// Sets the link count of a directory with `below` subdirectories, and `flags`. The caller must hold its
/// lock.
fn set_links(inode: &Inode, below: u32, flags: u32) {
    inode.seq.begin();
    inode.nlink.store(2 + below, Relaxed); // Relaxed, both: inside the section, under the lock.
    inode.flags.store(flags, Relaxed);
    inode.seq.end();
}

/// Records that the subdirectories are there and the other names listed. The caller must hold the
/// directory's lock.
fn list_names(task: &Task<'_>, id: InodeId, list: InodeId, done: &Progress) -> Result<()> {
    let inode = task.region.inode(id);
    let mark = listing::found(task, list)?;
    if mark.end(task.region)? == u64::from(mark.entries) {
        // There are no others.
        list::finish(task, list, State::Complete, mark.entries);
        finish(task, id, done);
        return Ok(());
    }
    set_links(inode, mark.entries, inode.flags.load(Relaxed)); // Relaxed: under the lock.
    set_mark(inode, Some(mark));
    let generation = inode.generation.load(Acquire);
    task.habit.has_listed(InodeRef { id, generation });
    Ok(())
}

/// Records that all names are there. The caller must hold the directory's lock.
fn finish(task: &Task<'_>, id: InodeId, done: &Progress) {
    let inode = task.region.inode(id);
    set_count(inode, done.count);
    // Relaxed: under the lock.
    set_links(inode, done.below, inode.flags.load(Relaxed) & !inode_flags::PENDING);
    if inode.acl.load(Relaxed) & !COVERED == NO_ACL_YET {
        // Release: all names are there. PAIRS: the load in `walk::may_everyone_search`, which is Relaxed: see
        // there.
        inode.acl.fetch_and(COVERED, Release);
    }
}

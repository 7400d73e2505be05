//! Names of directories, taken in whole at the first look.

use lp_abi::linux::{
    __NR_mmap, __NR_munmap, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, S_IFDIR, S_IFLNK,
    S_IFMT, S_IFREG,
};
use lp_abi::{Errno, PATH_MAX, Result};
use lp_region::records::{Inode, NO_ACL_YET, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{DirentId, InodeId, InodeRef};

use super::host::{self, HostTree};
use super::list::{self, NameRoom, Record, Spot};
use super::{Dir, Layer, is_pending, may_call, set_spot, spot};
use crate::blob::Which;
use crate::change::{self, Change};
use crate::hash::{self, Load};
use crate::inode::{self, Locked};
use crate::name::{self, Name, SLACK};
use crate::task::{Task, Time};
use crate::{acl, dir, dirent, mounts, reclaim, symlink, xattr};

/// Names that are made while the lock is held at a stretch: the hash table grows in between.
const BATCH: u32 = 128;

/// The list of files of the layer that have several links.
const LINKS: &[u8] = b"links";

/// Memory for a moment, from the kernel.
pub(super) struct Memory(*mut u8);

impl Memory {
    const HALF: usize = 1 << 16;

    pub(super) fn new() -> Result<Memory> {
        let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
        // SAFETY: a new mapping where nothing is.
        let at = unsafe { lp_abi::syscall!(__NR_mmap, 0, 2 * Memory::HALF, protection, flags, usize::MAX, 0) }?;
        Ok(Memory(at as *mut u8))
    }

    pub(super) fn halves(&self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: both halves are this value's, and are borrowed once.
        unsafe {
            (
                core::slice::from_raw_parts_mut(self.0, Memory::HALF),
                core::slice::from_raw_parts_mut(self.0.add(Memory::HALF), Memory::HALF),
            )
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        let _ = unsafe { lp_abi::syscall!(__NR_munmap, self.0, 2 * Memory::HALF) };
    }
}

/// Puts the tree at `path`, NUL-terminated and without symbolic links, below root `root`, unless it has one
/// below it. Nobody else uses the root yet.
///
/// # Errors
/// Those of open(2) for the directory; `ENOSPC`.
pub fn lay(task: &Task<'_>, root: u32, path: &[u8]) -> Result<()> {
    let at = mounts::root(task, root as usize);
    let record = task.region.inode(at.id);
    if spot(record).is_some() {
        return Ok(());
    }
    let seen = host::root(path.as_ptr())?;
    let name = [b'r', b'0' + (root / 10) as u8, b'0' + (root % 10) as u8];
    let file = list::file(task, &name)?;
    let (list, complete) = list::begin_file(task, file, Spot { list: InodeId::NONE, offset: 0 })?;
    let offset = list::FIRST;
    if !complete {
        list::append(task, list, &seen, &path[..path.len() - 1])?;
        list::finish(task, list, 1);
    }
    let _locked = inode::lock(task, at.id);
    dress(record, &seen, Spot { list, offset });
    list::set_target(task.region, Spot { list, offset }, at);
    Ok(())
}

/// Gives an inode that nobody uses yet the attributes of a record.
fn dress(inode: &Inode, seen: &Record, at: Spot) {
    let kind = seen.mode & S_IFMT;
    let time = |index: usize| Time { sec: seen.seconds[index], nsec: seen.nanoseconds[index] };
    inode.seq.begin();
    // Relaxed throughout: inside the section.
    inode.mode.store(seen.mode, Relaxed);
    inode.uid.store(seen.uid, Relaxed);
    inode.gid.store(seen.gid, Relaxed);
    inode.nlink.store(seen.nlink.max(if kind == S_IFDIR { 2 } else { 1 }), Relaxed);
    let mut flags = inode.flags.load(Relaxed);
    if kind == S_IFREG {
        inode.size.store(seen.size, Relaxed);
        inode.pages.store(seen.blocks.div_ceil(8), Relaxed);
    }
    if matches!(kind, S_IFREG | S_IFDIR) {
        set_spot(inode, at);
        flags |= inode_flags::ORIGIN;
    }
    if kind == S_IFDIR || kind == S_IFREG && seen.size != 0 {
        flags |= inode_flags::PENDING;
    }
    if kind != S_IFDIR && seen.nlink > 1 {
        flags |= inode_flags::LINKED_BELOW;
    }
    inode.flags.store(flags, Relaxed);
    inode.btime.store(seen.seconds[3] as u64, Relaxed);
    inode.btime_nsec.store(seen.nanoseconds[3], Relaxed);
    inode.seq.end();
    inode::set_times(inode, time(0), time(1), time(2));
    if kind == S_IFDIR && inode.acl.load(Relaxed) == 0 {
        inode.acl.store(NO_ACL_YET, Release);
    }
}

/// Takes the names of a directory in, unless somebody has. The caller holds no lock.
///
/// # Errors
/// `ESTALE` when the directory was freed; those of the layer; `ENOSPC`.
#[cold]
pub fn take(task: &Task<'_>, of: InodeRef) -> Result<()> {
    match take_once(task, of) {
        Err(Errno::ENOSPC) => {
            reclaim::all(task);
            take_once(task, of)
        }
        done => done,
    }
}

fn take_once(task: &Task<'_>, of: InodeRef) -> Result<()> {
    let mut from = list::FIRST;
    loop {
        let locked = dir::lock(task, of)?;
        if !is_pending(task.region.inode(of.id)) {
            return Ok(());
        }
        let crowded = batch(task, of.id, &locked, &mut from)?;
        drop(locked);
        (0..crowded).for_each(|_| hash::split(task));
    }
}

/// Makes the next names of a directory from its list, which is made first. Gives how often the hash table
/// should grow. The caller holds the directory's lock.
fn batch(task: &Task<'_>, id: InodeId, _locked: &Locked<'_>, from: &mut u32) -> Result<u32> {
    let inode = task.region.inode(id);
    may_call()?;
    let at = spot(inode).ok_or(Errno::EIO)?;
    let layer = HostTree;
    let dir = layer.dir(task, at)?;
    let (list, complete) = list::begin(task, at)?;
    if !complete {
        let mut count = 0;
        dir.names(task, &mut |name, seen| {
            count += 1;
            list::append(task, list, seen, name).map(|_| ())
        })?;
        list::finish(task, list, count);
    }
    list::set_list(task.region, at, list);
    let times = (inode::access_and_modification(inode), inode::attributes_locked(inode).ctime);
    let (mut left, mut crowded, mut end) = (BATCH, 0, true);
    let made = list::each(task.region, list, *from, |at, seen| {
        if left == 0 {
            end = false;
            return Ok(false);
        }
        let new = name_in(task, id, &dir, at, seen)?;
        if let Some(load) = new {
            left -= 1;
            crowded += u32::from(load == Load::Crowded);
        }
        *from = at.offset + seen.bytes();
        Ok(true)
    });
    inode.data_seq.begin();
    inode::set_times(inode, times.0.0, times.0.1, times.1);
    inode.data_seq.end();
    made?;
    if end {
        finish(task, id, list)?;
    }
    Ok(crowded)
}

/// All names are there. The caller holds the directory's lock.
fn finish(task: &Task<'_>, id: InodeId, list: InodeId) -> Result<()> {
    let inode = task.region.inode(id);
    let mut below = 0;
    list::each(task.region, list, list::FIRST, |_, seen| {
        below += u32::from(seen.mode & S_IFMT == S_IFDIR);
        Ok(true)
    })?;
    inode.seq.begin();
    inode.nlink.store(2 + below, Relaxed); // Relaxed, both: inside the section, under the lock.
    inode.flags.store(inode.flags.load(Relaxed) & !inode_flags::PENDING, Relaxed);
    inode.seq.end();
    if inode.acl.load(Relaxed) == NO_ACL_YET {
        // PAIRS: the acquire load in `walk::may_everyone_search`: all names are there.
        inode.acl.store(0, Release);
    }
    Ok(())
}

/// Makes the name of one record, unless it is there; gives whether the table is crowded if it was made.
fn name_in(task: &Task<'_>, dir: InodeId, from: &impl Dir, at: Spot, seen: &Record) -> Result<Option<Load>> {
    let region = task.region;
    let mut room: NameRoom = [0; lp_abi::NAME_MAX + 1 + SLACK];
    list::name(region, at, seen, &mut room)?;
    // SAFETY: a NUL follows the name, and SLACK bytes that one.
    let name = unsafe { Name::scan(room.as_ptr()) };
    let place = name::Place::new(dir, &name);
    if let Some(hit) = hash::lookup_at(region, &place) {
        // Somebody died behind this one.
        known(task, seen, hit.target())?;
        list::set_target(region, at, hit.target());
        return Ok(None);
    }
    dir::reserve(task, dir)?;
    let shared = seen.mode & S_IFMT != S_IFDIR && seen.nlink > 1;
    let (target, is_new) = match if shared { linked(task, seen)? } else { None } {
        Some(target) => (target, false),
        None => (make(task, dir, from, &name, at, seen)?, true),
    };
    let entry = match dirent::take(region, task.lane, &place, target) {
        Ok(entry) => entry,
        Err(errno) => {
            if is_new {
                inode::discard(task, target.id);
            }
            return Err(errno);
        }
    };
    let load = link_in(task, dir, entry, target);
    known(task, seen, target)?;
    list::set_target(region, at, target);
    if is_new {
        attributes(task, from, &name, target.id, seen)?;
    }
    Ok(Some(load))
}

fn link_in(task: &Task<'_>, dir: InodeId, entry: DirentId, target: InodeRef) -> Load {
    let record = task.region.inode(target.id);
    if dir::is(record) {
        record.parent.store(dir.0, Relaxed); // Relaxed, both: published with the name.
        record.self_dirent.store(entry.0, Relaxed);
    }
    let (_, mtime) = inode::access_and_modification(task.region.inode(dir));
    let mut change = Change::at(mtime);
    change.dirs[0] = dir::with_entry(task.region, dir, entry);
    change.added = entry;
    let load = change::perform(task, &change);
    task.region.settle::<Inode>(task.lane);
    load
}

/// Makes the inode for a record. It stays named in the lane.
fn make(
    task: &Task<'_>,
    dir: InodeId,
    from: &impl Dir,
    name: &Name<'_>,
    at: Spot,
    seen: &Record,
) -> Result<InodeRef> {
    let root = task.region.inode(dir).root.load(Relaxed); // Relaxed: immutable.
    let made = inode::create_as(task, root, seen.mode, seen.rdev, (seen.uid, seen.gid))?;
    let filled = if seen.mode & S_IFMT == S_IFLNK { target(task, from, name, made.id) } else { Ok(()) };
    if let Err(errno) = filled {
        inode::discard(task, made.id);
        return Err(errno);
    }
    dress(task.region.inode(made.id), seen, at);
    Ok(made)
}

fn target(task: &Task<'_>, from: &impl Dir, name: &Name<'_>, link: InodeId) -> Result<()> {
    // SAFETY: the buffer is the task's, and nobody else uses it while names are taken.
    let room = unsafe { &mut *task.scratch.outside.get() };
    let length = match from.target(name.bytes(), &mut room[..PATH_MAX]) {
        // It has been replaced since.
        Err(Errno::ENOENT | Errno::EINVAL) => return Err(Errno::EIO),
        length => length?,
    };
    symlink::set_target(task, link, &room[..length.min(PATH_MAX - 1)])
}

/// Takes the extended attributes of what a name stands for.
fn attributes(task: &Task<'_>, from: &impl Dir, name: &Name<'_>, id: InodeId, seen: &Record) -> Result<()> {
    if seen.mode & S_IFMT == S_IFLNK {
        return Ok(());
    }
    let inode = task.region.inode(id);
    let mut some = false;
    let locked = inode::lock(task, id);
    from.attributes(name.bytes(), &mut |name, value| {
        some = true;
        match name {
            acl::ACCESS_NAME => xattr::put_acl(task, inode, Which::Acl, value),
            acl::DEFAULT_NAME => xattr::put_acl(task, inode, Which::DefaultAcl, value),
            name => xattr::put(task, id, inode, name, value),
        }
    })?;
    if some {
        let time = |index: usize| Time { sec: seen.seconds[index], nsec: seen.nanoseconds[index] };
        inode::set_times(inode, time(0), time(1), time(2));
    }
    drop(locked);
    Ok(())
}

/// An entry of the list of links.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Link {
    dev: u64,
    ino: u64,
    target: u64,
}

/// The inode that stands for a file of the layer that has several links, if one does.
fn linked(task: &Task<'_>, seen: &Record) -> Result<Option<InodeRef>> {
    let list = list::file(task, LINKS)?;
    let region = task.region;
    let size = region.inode(list).size.load(Acquire);
    let mut links = [Link::default(); 64];
    let mut at = 0;
    while at < size {
        let room = core::mem::size_of_val(&links).min((size - at) as usize);
        list::raw(region, list, links.as_mut_ptr().cast(), room, at)?;
        for link in &links[..room / size_of::<Link>()] {
            let target = InodeRef::from_word(link.target);
            let lives = region.inode(target.id).generation.load(Acquire) == target.generation;
            if (link.dev, link.ino) == (seen.dev, seen.ino) && lives {
                return Ok(Some(target));
            }
        }
        at += room as u64;
    }
    Ok(None)
}

/// Notes what stands for a file of the layer that has several links.
fn known(task: &Task<'_>, seen: &Record, target: InodeRef) -> Result<()> {
    if seen.mode & S_IFMT == S_IFDIR || seen.nlink < 2 || linked(task, seen)?.is_some() {
        return Ok(());
    }
    let list = list::file(task, LINKS)?;
    let _locked = inode::lock(task, list);
    let link = Link { dev: seen.dev, ino: seen.ino, target: target.to_word() };
    crate::write::append_private(task, list, (&raw const link).cast(), size_of::<Link>())
}

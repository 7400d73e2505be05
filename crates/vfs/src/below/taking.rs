//! One name of a directory: its list's record, its inode and its entry.

use lp_abi::linux::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use lp_abi::{Errno, NAME_MAX, PATH_MAX, Result};
use lp_region::records::{COVERED, Inode, NO_ACL_YET, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{DirentId, InodeId, InodeRef};

use crate::below::list::{self, NameRoom, Record, RecordAt, State};
use crate::below::numbers::{self, Numbers};
use crate::below::{Dir, attributes, listing, set_spot, spot, through};
use crate::caller::below::Need;
use crate::caller::task::{SLACK, Task, Time};
use crate::inodes::inode;
use crate::inodes::make::NewInode;
use crate::names::change::{self, Links, Plain, Seats};
use crate::names::dir::{self, Seat};
use crate::names::hash::{self, Load};
use crate::names::name::{self, Name};
use crate::names::{dirent, link_target, removal};
use crate::rights::permission::Victim;

/// A directory whose names are taken in.
pub(super) struct Taking<'d, D> {
    pub(super) dir: InodeId,
    pub(super) from: &'d D,
    pub(super) numbers: Numbers,
    /// Whether files get their extended attributes with their names.
    pub(super) attributes: bool,
    /// Whether names are counted as they get their entries; if not, the directory counts them already.
    pub(super) counts: bool,
}

impl<D: Dir> Taking<'_, D> {
    /// The list of the directory, whose own record is at `at`, and how much of it is written: as much as is
    /// needed, or more. The caller must hold the directory's lock.
    pub(super) fn list(&self, task: &Task<'_>, at: RecordAt, need: Need) -> Result<(InodeId, State)> {
        let (list, state) = list::begin(task, at)?;
        match (state, need) {
            (State::Complete, _) | (State::Names, Need::Names) => return Ok((list, state)),
            (State::Names, _) => listing::complete(task, list, self.from, &self.numbers)?,
            (State::Begun, Need::Names) if self.may_list()? => {
                if listing::write(task, list, self.from, &self.numbers)? {
                    return Ok((list, State::Names));
                }
                list::begin(task, at)?;
                self.write(task, list)?;
            }
            (State::Begun, _) => self.write(task, list)?,
        }
        Ok((list, State::Complete))
    }

    /// Whether the numbers that the directory lists are those to show.
    fn may_list(&self) -> Result<bool> {
        Ok(self.from.lists_numbers()?.is_some_and(|changed| self.numbers.is_before(changed)))
    }

    /// Writes the records of all names to a list that was begun.
    fn write(&self, task: &Task<'_>, list: InodeId) -> Result<()> {
        let mut count = 0;
        self.from.names(task, &mut |name, _, _| {
            if let Some(mut seen) = self.from.look(task, name)? {
                self.numbers.decide(&mut seen);
                list::append(task, list, &seen, name)?;
                count += 1;
            }
            Ok(())
        })?;
        list::finish(task, list, State::Complete, count);
        Ok(())
    }

    /// Creates the name of one record, unless it exists, with its entry at `position`. If it was created,
    /// returns whether the table is crowded. The caller must hold the directory's lock.
    pub(super) fn name_in(
        &self,
        task: &Task<'_>,
        (at, seen): (RecordAt, &Record),
        position: u64,
    ) -> Result<Option<Load>> {
        let (region, dir, from) = (task.region, self.dir, self.from);
        let mut room: NameRoom = [0; NAME_MAX + 1 + SLACK];
        list::name(region, at, seen, &mut room)?;
        // SAFETY: the name is followed by a NUL, and that by SLACK bytes.
        let name = unsafe { Name::scan(room.as_ptr()) };
        let place = name::Key::new(dir, &name);
        let chain = self.numbers.chain(task, seen)?;
        let known = match &chain {
            Some(chain) => chain.find()?,
            None => None,
        };
        let is_hosts = seen.mode & S_IFMT == S_IFDIR && is_hosts(task, dir, name.bytes())?;
        let hit = hash::lookup_at(region, &place);
        let (entry, target, load) = match hit {
            // Somebody died after creating this one.
            Some(hit) => (hit.dirent(), hit.target(), None),
            None => {
                let position = dir::reserve_at(task, dir, position)?;
                let made = match known {
                    Some(_) => None,
                    None => Some(make(task, dir, from, &name, at, seen)?),
                };
                let target = made.as_ref().map(NewInode::inode).or(known).ok_or(Errno::EIO)?;
                let entry = dirent::take(region, task.lane, &place, target)?;
                if is_hosts {
                    // Nobody can reach either yet.
                    let inode = region.inode(target.id);
                    inode.flags.fetch_or(inode_flags::HOSTS, Relaxed);
                    inode.acl.fetch_or(COVERED, Relaxed);
                    dirent::cover(region.dirent(entry));
                }
                let load = self.link_in(task, (entry, position), target, self.counts);
                made.map(NewInode::linked_in);
                (entry, target, Some(load))
            }
        };
        // Before the record says so nobody else can reach it: whoever comes after a death takes them again.
        let may_wait = seen.mode & S_IFMT == S_IFREG && !self.attributes;
        if !may_wait && known != Some(target) && list::record(region, at)?.target() != target {
            attributes::take_with_name(task, from, name.bytes(), target.id, seen)?;
        }
        list::set_target(region, at, target);
        let stands = chain.map_or(Ok(target), |chain| chain.enter(at, target))?;
        if stands == target {
            return Ok(load);
        }
        // Another directory came first with a name of this file.
        forget(task, dir, entry, target)?;
        let position = dir::reserve_at(task, dir, position)?;
        let entry = dirent::take(region, task.lane, &place, stands)?;
        // The other's removal was counted.
        let load = self.link_in(task, (entry, position), stands, true);
        list::set_target(region, at, stands);
        Ok(Some(load))
    }

    /// Links an entry of the directory in, at a position. `counts`: see [`Taking::counts`].
    fn link_in(
        &self,
        task: &Task<'_>,
        (entry, position): (DirentId, u64),
        target: InodeRef,
        counts: bool,
    ) -> Load {
        let (dir, own) = (task.region.inode(self.dir), task.region.inode(target.id));
        let mut after = dir::with_entry_at(task.region, self.dir, entry, position);
        if own.is_dir() {
            own.parent.store(self.dir.0, Relaxed); // Relaxed, both: published with the name.
            own.self_dirent.store(entry.0, Relaxed);
            after.nlink += u32::from(counts);
        }
        after.entries += u32::from(counts);
        let (_, mtime) = inode::access_and_modification(dir);
        let seats = Seats { added: Seat::of(task.region, dir, entry), removed: None };
        let (removed, links) = (DirentId::NONE, Links::NONE);
        change::perform_plain(task, &Plain { dir: after, added: entry, removed, links, time: mtime }, seats)
    }
}

/// Directories of the kernel's own, which no session changes.
const KERNELS: [&[u8]; 3] = [b"proc", b"sys", b"dev"];

/// Whether a directory of this name in the directory `dir` is one that walks find on the host: if `dir` is
/// the host's root directory.
fn is_hosts(task: &Task<'_>, dir: InodeId, name: &[u8]) -> Result<bool> {
    let Some(at) = spot(task.region.inode(dir)).filter(|_| KERNELS.contains(&name)) else { return Ok(false) };
    let is_root = list::up(&list::head(task.region, at.list)?).is_none();
    let mut path = [0; 2];
    let length = (list::record(task.region, at)?.length as usize).min(path.len());
    list::bytes(task.region, at, 0, &mut path[..length])?;
    Ok(is_root && path[..length] == *b"/")
}

/// Takes out a name that nobody has seen, and what it names.
fn forget(task: &Task<'_>, dir: InodeId, entry: DirentId, target: InodeRef) -> Result<()> {
    let _locked = inode::lock(task, target.id);
    let inode = task.region.inode(target.id);
    inode.seq.begin();
    inode.nlink.store(1, Relaxed); // Relaxed: inside the section.
    inode.seq.end();
    let generation = task.region.inode(dir).generation.load(Acquire);
    removal::take(task, InodeRef { id: dir, generation }, entry, target, Victim::File).map(|_| ())
}

/// Creates the inode for a record.
fn make<'t, 'r>(
    task: &'t Task<'r>,
    dir: InodeId,
    from: &impl Dir,
    name: &Name<'_>,
    at: RecordAt,
    seen: &Record,
) -> Result<NewInode<'t, 'r>> {
    let root = task.region.inode(dir).root.load(Relaxed); // Relaxed: immutable.
    let made = NewInode::new(task, root, seen.mode, seen.rdev, (seen.uid, seen.gid))?;
    if seen.mode & S_IFMT == S_IFLNK {
        target(task, from, name, made.inode().id)?;
    }
    dress(task.region.inode(made.inode().id), seen, at);
    Ok(made)
}

fn target(task: &Task<'_>, from: &impl Dir, name: &Name<'_>, link: InodeId) -> Result<()> {
    // SAFETY: the buffer belongs to the task, and nobody else uses it while names are taken.
    let room = unsafe { &mut *task.scratch.outside.get() };
    let length = match from.target(name.bytes(), &mut room[..PATH_MAX]) {
        // It has been replaced since.
        Err(Errno::ENOENT | Errno::EINVAL) => return Err(Errno::EIO),
        length => length?,
    };
    link_target::set_target(task, link, &room[..length.min(PATH_MAX - 1)])
}

/// Sets the attributes of an inode that nobody uses yet from a record.
pub(super) fn dress(inode: &Inode, seen: &Record, at: RecordAt) {
    let kind = seen.mode & S_IFMT;
    let time = |index: usize| Time { sec: seen.seconds[index], nsec: seen.nanoseconds[index] };
    numbers::assign(inode, seen);
    inode.seq.begin();
    // Relaxed throughout: inside the section.
    inode.mode.store(seen.mode, Relaxed);
    inode.uid.store(seen.uid, Relaxed);
    inode.gid.store(seen.gid, Relaxed);
    inode.nlink.store(seen.nlink.max(if kind == S_IFDIR { 2 } else { 1 }), Relaxed);
    let mut flags = inode.flags.load(Relaxed);
    if kind == S_IFREG {
        inode.size.store(seen.size, Relaxed);
        inode.pages.store(seen.blocks.div_ceil(8).try_into().unwrap_or(u32::MAX), Relaxed);
        through::begin(inode);
    }
    if kind != S_IFLNK {
        set_spot(inode, at);
        flags |= inode_flags::ORIGIN;
    }
    if kind == S_IFDIR || kind == S_IFREG && seen.size != 0 {
        flags |= inode_flags::PENDING;
    }
    if kind == S_IFREG {
        flags |= inode_flags::XATTRS_BELOW;
    }
    if kind != S_IFDIR && seen.nlink > 1 {
        flags |= inode_flags::LINKED_BELOW;
    }
    inode.flags.store(flags, Relaxed);
    inode.btime.store(seen.seconds[3] as u64, Relaxed);
    inode.btime_nsec.store(seen.nanoseconds[3], Relaxed);
    inode.seq.end();
    inode::set_times(inode, time(0), time(1), time(2));
    if matches!(kind, S_IFREG | S_IFDIR) && inode.acl.load(Relaxed) == 0 {
        inode.acl.store(NO_ACL_YET, Release);
    }
}

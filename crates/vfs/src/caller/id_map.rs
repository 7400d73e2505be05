//! Ids of users and groups in a user namespace: user_namespaces(7).
//!
//! Inodes and process slots hold ids of the run's namespace, which is the launcher's. A process that enters
//! another one sees other ids. The map between the two is in its slot, so that it survives exec and fork: a
//! word of [`Process::id_maps`] and extents of three words each, the first of the inside, the first of the
//! run's and their number, at the end of [`Process::groups`].
//!
//! A namespace has no map when it is made. Its creator or a process in it writes one, once, which the gate
//! does not see. So the map is read when it is needed, and kept. The kernel shows it relative to the
//! namespace in which this one was made, whose extents are kept until then, to be composed with it.
//!
//! Only the process itself writes these words. Several of its threads may read the map at once: they store
//! the same extents at the same places, beside those that they compose with.

use lp_region::process::Process;
use lp_region::sync::{AtomicU32, Ordering};

use crate::caller::namespaces;

/// What an id is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdKind {
    /// A user.
    User,
    /// A group.
    Group,
}

/// Both kinds.
const KINDS: [IdKind; 2] = [IdKind::User, IdKind::Group];

/// Bit of a word: the process is in a user namespace other than the run's.
const INSIDE: u32 = 1;
/// Bit of a word: the namespace's map is not known. The extents are those of the namespace it was made in.
const UNREAD: u32 = 2;
/// Bit of a word, with [`UNREAD`]: that one is the run's, and has no extents.
const IN_RUN: u32 = 4;

/// A range of ids.
#[derive(Clone, Copy)]
struct Extent {
    /// The first in the namespace.
    inside: u32,
    /// The first in the run's.
    outside: u32,
    /// How many there are.
    count: u32,
}

/// A map as a slot has it.
#[derive(Clone, Copy)]
struct IdMap<'a> {
    process: &'a Process,
    kind: IdKind,
    /// The bits above; the number of extents in bits 8 to 15; the place of the first in bits 16 to 23.
    word: u32,
}

impl<'a> IdMap<'a> {
    fn of(process: &'a Process, kind: IdKind) -> Self {
        // PAIRS: the release stores of this module: the extents are there.
        IdMap { process, kind, word: process.id_maps[kind as usize].load(Ordering::Acquire) }
    }

    fn is(&self, bit: u32) -> bool {
        self.word & bit != 0
    }

    fn count(&self) -> usize {
        (self.word >> 8 & 0xff) as usize
    }

    fn first(&self) -> usize {
        (self.word >> 16 & 0xff) as usize
    }

    fn set(&self, bits: u32, first: usize, count: usize) {
        let word = bits | (count as u32) << 8 | (first as u32) << 16;
        self.process.id_maps[self.kind as usize].store(word, Ordering::Release); // PAIRS: `IdMap::of`.
    }

    /// The words of an extent, if the groups leave room for it. The kinds take turns, from the end.
    fn place(&self, index: usize) -> Option<&'a [AtomicU32]> {
        let words = &self.process.groups;
        let end = words.len().checked_sub(6 * index + 3 * self.kind as usize)?;
        let taken = self.process.group_count.load(Ordering::Relaxed) as usize; // Relaxed: the process's own.
        words.get(end.checked_sub(3)?.max(taken)..end).filter(|place| place.len() == 3)
    }

    fn put(&self, index: usize, extent: Extent) -> bool {
        let Some(place) = self.place(index) else { return false };
        let words = [extent.inside, extent.outside, extent.count];
        place.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        true
    }

    fn extents(self) -> impl Iterator<Item = Extent> + 'a {
        // Relaxed: stored before the word that tells of them.
        (self.first()..self.first() + self.count()).filter_map(move |index| match self.place(index)? {
            [inside, outside, count] => Some(Extent {
                inside: inside.load(Ordering::Relaxed),
                outside: outside.load(Ordering::Relaxed),
                count: count.load(Ordering::Relaxed),
            }),
            _ => None,
        })
    }

    /// The run's id for an id of the namespace that the extents are of.
    fn outward(self, id: u32) -> Option<u32> {
        if self.word == 0 || self.is(IN_RUN) {
            return Some(id);
        }
        let within = |extent: &Extent| id.wrapping_sub(extent.inside) < extent.count;
        self.extents().find(within).map(|extent| extent.outside.wrapping_add(id.wrapping_sub(extent.inside)))
    }

    /// The map, read if that is possible by now.
    fn current(self) -> Self {
        if !self.is(UNREAD) {
            return self;
        }
        self.read();
        IdMap::of(self.process, self.kind)
    }

    /// Reads the namespace's map, if it has one.
    #[cold]
    fn read(&self) {
        let path = match self.kind {
            IdKind::User => c"/proc/self/uid_map",
            IdKind::Group => c"/proc/self/gid_map",
        };
        let first = if self.is(IN_RUN) { 0 } else { self.first() + self.count() };
        let (mut lines, mut count) = (0, 0);
        namespaces::each_line(path, |[inside, above, length]| {
            lines += 1;
            // An id without a number in the namespace above is shown as -1.
            let outside = if above == u32::MAX { None } else { self.outward(above) };
            if let Some(outside) = outside
                && self.put(first + count, Extent { inside, outside, count: length })
            {
                count += 1;
            }
        });
        if lines != 0 {
            self.set(INSIDE, first, count);
        }
    }
}

/// Whether the process is in a user namespace other than the run's.
#[inline]
pub fn is_inside(process: &Process) -> bool {
    process.id_maps[0].load(Ordering::Relaxed) != 0 // Relaxed: the process's own word.
}

/// The run's id for an id of the process's namespace; `None` if that is no id there.
pub fn to_run(process: &Process, kind: IdKind, id: u32) -> Option<u32> {
    let map = IdMap::of(process, kind);
    if map.word == 0 {
        return Some(id);
    }
    let map = map.current();
    if map.is(UNREAD) { None } else { map.outward(id) }
}

/// The id of the process's namespace for one of the run's.
pub fn from_run(process: &Process, kind: IdKind, id: u32) -> Option<u32> {
    let map = IdMap::of(process, kind);
    if map.word == 0 {
        return Some(id);
    }
    let map = map.current();
    if map.is(UNREAD) {
        return None;
    }
    let within = |extent: &Extent| id.wrapping_sub(extent.outside) < extent.count;
    map.extents().find(within).map(|extent| extent.inside.wrapping_add(id.wrapping_sub(extent.outside)))
}

/// [`from_run`] as stat(2) shows it: one that the namespace does not have is the overflow id.
pub fn shown(process: &Process, kind: IdKind, id: u32) -> u32 {
    from_run(process, kind, id).unwrap_or_else(|| overflow(process, kind))
}

fn overflow(process: &Process, kind: IdKind) -> u32 {
    process.overflow_ids[kind as usize].load(Ordering::Relaxed) // Relaxed: constant while it is inside.
}

/// The run's id where the kernel shows the calling process's own id as `shown`, and it was `before`. The
/// kernel keeps an id that the namespace does not have, and shows the overflow id.
pub(crate) fn own(process: &Process, kind: IdKind, shown: u32, before: u32) -> u32 {
    if !is_inside(process) {
        return shown;
    }
    let is_kept = shown == overflow(process, kind) && from_run(process, kind, before).is_none();
    if is_kept { before } else { to_run(process, kind, shown).unwrap_or(before) }
}

/// Reads the maps of the process's namespace if they are there by now and were not read: before it loses
/// sight of /proc, or enters another namespace.
pub fn settle(process: &Process) {
    for kind in KINDS {
        IdMap::of(process, kind).current();
    }
}

/// The process has entered a new namespace, which was made in its former one; [`settle`] preceded. It has one
/// thread.
pub(crate) fn enter(process: &Process) {
    for kind in KINDS {
        let map = IdMap::of(process, kind);
        match map.word {
            0 => map.set(INSIDE | UNREAD | IN_RUN, 0, 0),
            // What the former namespace lacks, this one will not have.
            _ if map.is(UNREAD) => map.set(INSIDE | UNREAD, 0, 0),
            _ => {
                for (index, extent) in map.extents().enumerate() {
                    map.put(index, extent);
                }
                map.set(INSIDE | UNREAD, 0, map.count());
            }
        }
        let shown = namespaces::overflow_id(kind == IdKind::User);
        process.overflow_ids[kind as usize].store(shown, Ordering::Relaxed); // Relaxed: it has one thread.
    }
}

/// Most lines of a [`Foreign`] map.
const LINES: usize = 16;

/// The maps of another process's namespace, relative to the run's.
#[derive(Clone, Copy)]
pub(crate) struct Foreign([[Option<Extent>; LINES]; 2]);

impl Foreign {
    /// No id has a number there.
    pub(crate) const NONE: Foreign = Foreign([[None; LINES]; 2]);

    /// Reads the maps of process `pid`, in another namespace than the caller's, to which the kernel shows
    /// them relative.
    pub(crate) fn read(process: &Process, pid: u32) -> Foreign {
        let mut found = Foreign::NONE;
        for (kind, to) in KINDS.into_iter().zip(&mut found.0) {
            let mut places = to.iter_mut();
            let map = IdMap::of(process, kind);
            namespaces::each_line_of(pid, kind == IdKind::User, |[inside, here, count]| {
                let outside = if here == u32::MAX { None } else { map.outward(here) };
                if let Some(outside) = outside
                    && let Some(place) = places.next()
                {
                    *place = Some(Extent { inside, outside, count });
                }
            });
        }
        found
    }
}

/// The process has entered the namespace of another, whose maps it read before.
pub(crate) fn enter_foreign(process: &Process, maps: &Foreign) {
    enter(process);
    for (kind, lines) in KINDS.into_iter().zip(&maps.0) {
        let map = IdMap::of(process, kind);
        let extents = lines.iter().flatten();
        let count = extents.enumerate().take_while(|(index, extent)| map.put(*index, **extent)).count();
        map.set(INSIDE, 0, count);
    }
}

/// Copies the maps to a child's slot, which has its groups.
pub(crate) fn inherit(from: &Process, child: &Process) {
    if !is_inside(from) {
        return;
    }
    // Acquire: the extents are there. The rest is Relaxed, as the slot is the child's once it runs.
    let words = from.id_maps.each_ref().map(|word| word.load(Ordering::Acquire));
    let first = child.group_count.load(Ordering::Relaxed) as usize;
    for (to, from) in child.groups.iter().zip(&from.groups).skip(first) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for (to, word) in child.id_maps.iter().zip(words) {
        to.store(word, Ordering::Release);
    }
    for (to, from) in child.overflow_ids.iter().zip(&from.overflow_ids) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// How many groups leave the extents alone.
pub(crate) fn room_for_groups(process: &Process) -> usize {
    let used = |kind| {
        let map = IdMap::of(process, kind);
        if map.word == 0 { 0 } else { 3 * (kind as usize + 1 + 2 * (map.first() + map.count())) }
    };
    process.groups.len().saturating_sub(used(IdKind::User).max(used(IdKind::Group)))
}

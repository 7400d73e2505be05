//! Names of inodes that have shadows: what link, unlink and rename report to watchers, and where shadows are
//! afterwards.
//!
//! Everything here runs under the locks of the directories and of the names' targets.

use lp_region::records::inode_flags;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{DirentId, InodeId};

use crate::caller::event::{Event, Move, NameAt, NameOrigin, ShadowKind, Sides, Touched};
use crate::caller::task::Task;
use crate::inodes::{inode, watched};
use crate::names::dirent;
use crate::names::hash::{self, Hit};
use crate::names::name::{Key, Name};
use crate::rights::permission::Victim;
use crate::watches::watch;

/// Reports that a file has got another name.
#[cold]
pub(crate) fn linked_slow(task: &Task<'_>, at: NameAt<'_>, id: InodeId, entry: DirentId) {
    let inode = task.region.inode(id);
    if !watched::is_watched(task.region.inode(at.dir)) {
        return (task.notify)(task, &Event::Touched(id, Touched::Links));
    }
    (task.notify)(task, &Event::Named(at, NameOrigin::Link(id)));
    watch::mark_locked(inode, inode_flags::SHADOW);
    if inode.self_dirent.load(Relaxed) == 0 {
        watched::place(inode, at.dir, entry);
    }
}

/// Reports that the name of an inode with a shadow is gone; `nlink` links are left.
#[cold]
pub(crate) fn removed_slow(task: &Task<'_>, at: NameAt<'_>, id: InodeId, what: Victim, nlink: u32) {
    let kind = if what == Victim::Directory { ShadowKind::Directory } else { ShadowKind::File };
    if nlink == 0 {
        // From here on the slot may be another inode's.
        return (task.notify)(task, &Event::Removed(at, kind));
    }
    if watched::has_shadow(task.region.inode(at.dir)) {
        (task.notify)(task, &Event::Removed(at, kind));
        stand_elsewhere(task, id);
    } else {
        (task.notify)(task, &Event::Touched(id, Touched::Links));
    }
}

/// If a file's shadow was at a name that is gone, moves it to another name that has a shadow, if there is
/// one.
fn stand_elsewhere(task: &Task<'_>, id: InodeId) {
    let (region, inode) = (task.region, task.region.inode(id));
    let names = |entry: DirentId| dirent::target(region.dirent(entry)).id == id;
    if names(DirentId(inode.self_dirent.load(Relaxed))) {
        return;
    }
    let parent = |entry: DirentId| InodeId(region.dirent(entry).parent.load(Relaxed));
    let is_one = |entry: &DirentId| names(*entry) && watched::is_watched(region.inode(parent(*entry)));
    match dirent::all(region).find(is_one) {
        Some(entry) => watched::place(inode, parent(entry), entry),
        None => watched::place(inode, InodeId::NONE, DirentId::NONE),
    }
}

/// One side of a rename before it: the directory, and the name's target.
#[derive(Clone, Copy)]
struct Side {
    dir: InodeId,
    id: InodeId,
    kind: ShadowKind,
    /// Whether the name has a shadow.
    is_shadowed: bool,
}

/// A rename that must be reported.
pub(crate) struct Rename {
    old: Side,
    new: Option<Side>,
    new_dir: InodeId,
}

impl Rename {
    /// What a rename is about to do to the name and target `source` in one directory and to `target` in
    /// another.
    #[inline(always)]
    pub(crate) fn new(
        task: &Task<'_>,
        (old_dir, source): (InodeId, Hit),
        (new_dir, target): (InodeId, Option<Hit>),
    ) -> Option<Rename> {
        let is_told = watched::has_shadow(task.region.inode(source.target().id))
            || watched::is_watched(task.region.inode(old_dir))
            || watched::is_watched(task.region.inode(new_dir))
            || target.is_some_and(|hit| watched::has_shadow(task.region.inode(hit.target().id)));
        is_told.then(|| Self::told_slow(task, (old_dir, source), (new_dir, target)))
    }

    #[cold]
    fn told_slow(
        task: &Task<'_>,
        (old_dir, source): (InodeId, Hit),
        (new_dir, target): (InodeId, Option<Hit>),
    ) -> Rename {
        let side = |dir: InodeId, hit: Hit| {
            let inode = task.region.inode(hit.target().id);
            let dir_inode = task.region.inode(dir);
            let is_shadowed = watched::is_watched(dir_inode)
                || watched::has_shadow(inode) && watched::has_shadow(dir_inode);
            Side { dir, id: hit.target().id, kind: watched::kind(inode), is_shadowed }
        };
        Rename { old: side(old_dir, source), new: target.map(|hit| side(new_dir, hit)), new_dir }
    }

    /// Reports that the rename is done.
    #[cold]
    pub(crate) fn tell_slow(self, task: &Task<'_>, (old, new): (&Name<'_>, &Key<'_, '_>), is_exchange: bool) {
        let from = NameAt { dir: self.old.dir, name: old.bytes() };
        let to = NameAt { dir: self.new_dir, name: new.name.bytes() };
        let old_place = Key::new(self.old.dir, old);
        match self.new {
            Some(swapped) if is_exchange => {
                self.exchanged(task, swapped, (from, to), (&old_place, new));
            }
            victim => {
                let is_told = move_one(task, &self.old, (from, to), new);
                let victim = victim.filter(|victim| victim.is_shadowed);
                if let Some(victim) = victim.filter(|_| !is_told) {
                    (task.notify)(task, &Event::Removed(to, victim.kind));
                }
                if let Some(victim) = victim.filter(|victim| victim.kind == ShadowKind::File) {
                    let record = task.region.inode(victim.id);
                    // A slot that has another owner by this time has its first link, or no shadow.
                    if record.nlink.load(Relaxed) != 0 && watched::has_shadow(record) {
                        stand_elsewhere(task, victim.id);
                    }
                }
            }
        }
    }

    fn exchanged(
        &self,
        task: &Task<'_>,
        other: Side,
        (from, to): (NameAt<'_>, NameAt<'_>),
        places: (&Key<'_, '_>, &Key<'_, '_>),
    ) {
        if self.old.is_shadowed && other.is_shadowed {
            let what = (self.old.kind, Some(other.kind));
            let moved = Move { from, to, what: what.0, swapped: what.1, sides: Sides::Both };
            (task.notify)(task, &Event::Moved(&moved));
            stand_at(task, self.old.id, places.1);
            stand_at(task, other.id, places.0);
        } else if self.old.is_shadowed {
            move_one(task, &self.old, (from, to), places.1);
            move_one(task, &other, (to, from), places.0);
        } else if !self.replaces(task, &other, (from, to), places) {
            move_one(task, &other, (to, from), places.0);
            move_one(task, &self.old, (from, to), places.1);
        }
    }

    /// Reports an exchange in which the new name has a shadow, in a watched directory, and the old one has
    /// none. One event reports both moves, in the kernel's order: what comes before what goes. Returns
    /// whether it is such an exchange.
    fn replaces(
        &self,
        task: &Task<'_>,
        other: &Side,
        (from, to): (NameAt<'_>, NameAt<'_>),
        places: (&Key<'_, '_>, &Key<'_, '_>),
    ) -> bool {
        let inode = |id: InodeId| task.region.inode(id);
        if !other.is_shadowed || !watched::is_watched(inode(to.dir)) {
            return false;
        }
        let stays = || inode_is_followed(task, other) && mark_way_soon(task, from.dir, to.dir);
        let sides = if watched::has_shadow(inode(from.dir)) || stays() { Sides::Both } else { Sides::New };
        let moved = Move { from, to, what: self.old.kind, swapped: Some(other.kind), sides };
        (task.notify)(task, &Event::Moved(&moved));
        watch::mark_locked(inode(self.old.id), inode_flags::SHADOW);
        stand_at(task, self.old.id, places.1);
        match sides {
            Sides::Both => stand_at(task, other.id, places.0),
            _ => watch::forget(inode(other.id), inode_flags::SHADOW | inode_flags::WATCHED),
        }
        true
    }
}

/// Reports a move from one name to another, if the old name has a shadow or the new one's directory is
/// watched.
fn move_one(task: &Task<'_>, side: &Side, (from, to): (NameAt<'_>, NameAt<'_>), place: &Key<'_, '_>) -> bool {
    let inode = task.region.inode(side.id);
    let target = task.region.inode(to.dir);
    let stays = || inode_is_followed(task, side) && mark_way_soon(task, to.dir, from.dir);
    let sides = match side.is_shadowed {
        true if watched::has_shadow(target) || stays() => Sides::Both,
        true => Sides::Old,
        false if watched::is_watched(target) => Sides::New,
        false => return false,
    };
    let moved = Move { from, to, what: side.kind, swapped: None, sides };
    (task.notify)(task, &Event::Moved(&moved));
    match sides {
        Sides::Old => watch::forget(inode, inode_flags::SHADOW | inode_flags::WATCHED),
        Sides::Both | Sides::New => {
            watch::mark_locked(inode, inode_flags::SHADOW);
            stand_at(task, side.id, place);
        }
    }
    true
}

/// Whether an inode that moves to an unwatched place may itself be watched, or something below it.
fn inode_is_followed(task: &Task<'_>, side: &Side) -> bool {
    side.kind == ShadowKind::Directory || watched::is_watched(task.region.inode(side.id))
}

/// Records that the shadow of an inode is at a name.
fn stand_at(task: &Task<'_>, id: InodeId, place: &Key<'_, '_>) {
    let inode = task.region.inode(id);
    if !inode.is_dir()
        && let Some(hit) = hash::lookup_at(task.region, place)
    {
        watched::place(inode, place.dir, hit.dirent());
    }
}

/// Gives a directory and all above it shadows, as far as their locks are available: a holder may be stopped.
/// The caller must hold the locks of `dir` and `other`.
fn mark_way_soon(task: &Task<'_>, dir: InodeId, other: InodeId) -> bool {
    let mut at = dir;
    loop {
        let inode = task.region.inode(at);
        if !watched::has_shadow(inode) {
            let held = at == dir || at == other;
            let locked = if held { None } else { inode::lock_soon(task, at) };
            if !held && locked.is_none() {
                return false;
            }
            watch::mark_locked(inode, inode_flags::SHADOW);
        }
        if inode.self_dirent.load(Relaxed) == 0 {
            return true;
        }
        at = InodeId(inode.parent.load(Relaxed));
    }
}

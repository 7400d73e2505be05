//! Fast path of rename(2): a file that is not a directory gets a name in its own directory that nothing has.

use lp_region::Spot;
use lp_region::records::SHORT_NAME;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::inodes::inode;
use crate::lane::writer;
use crate::names::change::{self, Links, Plain, Seats, Within};
use crate::names::hash::{self, Load, Way};
use crate::names::name::{Key, Name};
use crate::names::{dir, dirent, mounts};
use crate::rights::permission;

/// Renames in a directory that everyone may search. Returns false, having changed nothing, if anything else
/// is to be looked at or somebody is in the way: [`crate::calls::rename`] then starts anew.
#[inline(always)]
pub(super) fn rename(task: &Task<'_>, at: Spot, from: &Name<'_>, to: &Name<'_>) -> bool {
    if from.len() > SHORT_NAME || to.len() > SHORT_NAME {
        return false;
    }
    match once(task, at, from, to) {
        Some(Load::Crowded) => {
            hash::split(task);
            true
        }
        done => done.is_some(),
    }
}

#[inline(always)]
fn once(task: &Task<'_>, at: Spot, from: &Name<'_>, to: &Name<'_>) -> Option<Load> {
    let (region, id) = (task.region, at.inode.id);
    let record = region.inode(id);
    let _writing = writer::begin_walked(task, at.mount).ok()?;
    let _dir = dir::enter(task, at.inode).ok()?;
    if !permission::may_change_plainly(task, record) {
        return None;
    }
    let (new, old) = (Key::new(id, to), Key::new(id, from));
    let way = Way::of(region, new.hash);
    if !way.lacks(new.hash) {
        return None;
    }
    let (source, word) = Way::of(region, old.hash).find_locked(&old)?;
    if source.is_directory() {
        return None;
    }
    let target = source.target();
    let file = region.inode(target.id);
    let _file = inode::lock_at_once(task, target.id)?;
    if !permission::may_go_plainly(file) || mounts::is_covered(task, target.id) {
        return None;
    }
    let seat = dir::reserve(task, id).ok()?;
    let removed = source.dirent();
    let left = seat.beside(region, record, dirent::position(region.whole_dirent(removed)));
    let added = dirent::take_short(region, task.lane, &new, (target, source.kind())).ok()?;
    let mut after = dir::now(region, id);
    dirent::set_position(region.whole_dirent(added), after.tail);
    after.tail += 1;
    // Relaxed: under the file's lock.
    let links = Links { id: target.id, nlink: file.nlink.load(Ordering::Relaxed) };
    let within = Within {
        change: Plain { dir: after, added, removed, links, time: task.now() },
        inodes: [record, file],
        seats: Seats { added: Some(seat), removed: left },
        to: (way, new.hash),
        from: (word, old.hash),
    };
    Some(change::perform_within(task, &within))
}

//! Fast path of rename(2): a file that is not a directory gets a name in its own directory that nothing has.

use lp_region::Spot;
use lp_region::records::SHORT_NAME;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::calls::plain_file;
use crate::lane::writer;
use crate::names::change::{self, Links, Plain, Seats, Within};
use crate::names::hash::{self, Load, Way};
use crate::names::name::{Key, Name};
use crate::names::{dir, dirent};

/// The result of a fast path.
pub(super) enum Quick {
    /// The file was renamed.
    Done,
    /// Nothing has changed. The new name may exist.
    Exists,
    /// Nothing has changed. There is no file of the old name.
    Missing,
    /// Nothing has changed. Something else is to be looked at, or somebody is in the way.
    No,
}

/// Renames in a directory that everyone may search, or leaves it to [`crate::calls::rename`] to start anew.
#[inline(always)]
pub(super) fn rename(task: &Task<'_>, at: Spot, from: &Name<'_>, to: &Name<'_>) -> Quick {
    if from.len() > SHORT_NAME || to.len() > SHORT_NAME {
        return Quick::No;
    }
    match once(task, at, from, to) {
        Ok(Load::Crowded) => {
            hash::split(task);
            Quick::Done
        }
        Ok(_) => Quick::Done,
        Err(why) => why,
    }
}

#[inline(always)]
fn once(task: &Task<'_>, at: Spot, from: &Name<'_>, to: &Name<'_>) -> Result<Load, Quick> {
    let (region, id) = (task.region, at.inode.id);
    let record = region.inode(id);
    let _writing = writer::begin_walked(task, at.mount).map_err(|_| Quick::No)?;
    let (new, old) = (Key::new(id, to), Key::new(id, from));
    let (way, old_way) = (Way::of(region, new.hash), Way::of(region, old.hash));
    // The kernel looks the old name up first.
    let Some(word) = old_way.first(old.hash) else {
        return Err(if plain_file::is_missing(task, at.inode, from) { Quick::Missing } else { Quick::No });
    };
    let _dir = plain_file::enter(task, at.inode).ok_or(Quick::No)?;
    if !way.lacks(new.hash) {
        return Err(Quick::Exists);
    }
    let source = old_way.hit_locked(&old, word).ok_or(Quick::No)?;
    let (_file, file) = plain_file::lock(task, source).ok_or(Quick::No)?;
    let target = source.target();
    let seat = dir::reserve(task, id).map_err(|_| Quick::No)?;
    let removed = source.dirent();
    let left = seat.beside(region, record, dirent::position(region.whole_dirent(removed)));
    let added =
        dirent::take_short(region, task.lane, &new, (target, source.kind())).map_err(|_| Quick::No)?;
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
    Ok(change::perform_within(task, &within))
}

//! Fast path of rename(2): a file that is not a directory takes the place of another in its directory.

use lp_region::Spot;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::calls::plain_file;
use crate::lane::writer;
use crate::life::reclaim;
use crate::names::change::{self, Links, Over};
use crate::names::dir;
use crate::names::hash::Way;
use crate::names::name::{Key, Name};
use crate::names::removal;

/// Renames in a directory that everyone may search, where both names exist and fit their entries. Returns
/// false, having changed nothing, if anything else is to be looked at or somebody is in the way:
/// [`crate::calls::rename`] then starts anew.
#[inline(never)]
pub(super) fn rename(task: &Task<'_>, at: Spot, from: Name<'_>, to: Name<'_>) -> bool {
    match once(task, at, &from, &to) {
        Some(0) => {
            reclaim::after_unlink(task);
            true
        }
        left => left.is_some(),
    }
}

/// Returns the number of links that the replaced file has left.
#[inline(always)]
fn once(task: &Task<'_>, at: Spot, from: &Name<'_>, to: &Name<'_>) -> Option<u32> {
    let (region, id) = (task.region, at.inode.id);
    let record = region.inode(id);
    let _writing = writer::begin_walked(task, at.mount).ok()?;
    let _dir = plain_file::enter(task, at.inode)?;
    let (new, old) = (Key::new(id, to), Key::new(id, from));
    let (way, old_way) = (Way::of(region, new.hash), Way::of(region, old.hash));
    let target = way.hit_locked(&new, way.first(new.hash)?)?;
    let word = old_way.first(old.hash)?;
    let source = old_way.hit_locked(&old, word)?;
    let (moved, victim) = (source.target(), target.target());
    if moved.id == victim.id {
        return None;
    }
    let (_moved, file) = plain_file::lock(task, source)?;
    let (_victim, gone) = plain_file::lock(task, target)?;
    let inodes = [record, file, gone];
    let removed = source.dirent();
    let (after, seat) = dir::without_entry(region, id, removed);
    let left = removal::fewer_links(gone);
    // Relaxed: under the file's lock.
    let links = Links { id: moved.id, nlink: file.nlink.load(Ordering::Relaxed) };
    let victim = Links { id: victim.id, nlink: left };
    let entries = [target.dirent(), removed];
    let over =
        Over { dir: after, entries, moved, links: [links, victim], inodes, seat, from: (word, old.hash) };
    change::perform_over(task, &over);
    Some(left)
}

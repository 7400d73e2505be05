//! Fast path of unlink(2): nothing but the directory's permissions is to be looked at.

use lp_abi::{Errno, Result};
use lp_region::records::SHORT_NAME;
use lp_region::{DirentId, Spot};

use crate::caller::task::Task;
use crate::calls::plain_file;
use crate::lane::writer;
use crate::life::reclaim;
use crate::names::change::{self, Links, Plain, Without};
use crate::names::dir;
use crate::names::hash::Way;
use crate::names::name::{Key, Name};
use crate::names::removal;

/// Removes the name of anything but a directory from a directory that everyone may search. `None`, having
/// changed nothing, if anything else is to be looked at or somebody is in the way: [`crate::calls::unlink`]
/// then starts anew.
#[inline(always)]
pub(super) fn unlink(task: &Task<'_>, at: Spot, name: &Name<'_>) -> Option<Result<()>> {
    if name.len() > SHORT_NAME {
        return None;
    }
    let left = match once(task, at, name)? {
        Ok(left) => left,
        Err(errno) => return Some(Err(errno)),
    };
    if left == 0 {
        reclaim::after_unlink(task);
    }
    Some(Ok(()))
}

/// Returns the number of links left.
#[inline(always)]
fn once(task: &Task<'_>, at: Spot, name: &Name<'_>) -> Option<Result<u32>> {
    let (region, id) = (task.region, at.inode.id);
    let record = region.inode(id);
    let _writing = writer::begin_walked(task, at.mount).ok()?;
    let key = Key::new(id, name);
    let way = Way::of(region, key.hash);
    let Some(word) = way.first(key.hash) else {
        return plain_file::is_missing(task, at.inode, name).then_some(Err(Errno::ENOENT));
    };
    let _dir = plain_file::enter(task, at.inode)?;
    let hit = way.hit_locked(&key, word)?;
    let (_file, file) = plain_file::lock(task, hit)?;
    let removed = hit.dirent();
    let (after, seat) = dir::without_entry(region, id, removed);
    let links = Links { id: hit.target().id, nlink: removal::fewer_links(file) };
    let change = Plain { dir: after, added: DirentId::NONE, removed, links, time: task.now() };
    let without = Without { change, inodes: [record, file], seat, from: (word, key.hash) };
    change::perform_without(task, &without);
    Some(Ok(links.nlink))
}

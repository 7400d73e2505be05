//! Listings of a layer's directories: the names of what is no directory, before anything else of them is
//! asked for.
//!
//! A program that lists a directory often needs nothing else, and attributes take longer to read than names.
//! So a directory that is listed first gets a list of names ([`State::Names`]): the records of its
//! subdirectories, which are taken in as ever, and pieces with the rest ([`crate::names::listing`]). Whoever
//! needs more of a name than that completes the list: the attributes of all names are read in the order of
//! the listing, so that each entry gets the position that getdents(2) has shown. A name that the layer has
//! lost meanwhile leaves a position empty.
//!
//! The numbers of names are listed without a look at them. That is right if the directory has not changed
//! since the layer was laid: then each of its names denotes the inode that had this number at that time, and
//! keeps it, whatever has been written to it ([`super::numbers`]).

use lp_abi::linux::S_IFDIR;
use lp_abi::{Errno, Result};
use lp_region::InodeId;

use crate::below::Dir;
use crate::below::list::{self, State};
use crate::below::numbers::Numbers;
use crate::caller::task::Task;
use crate::names::listing::{Listed, Mark, Piece, ROOM};

/// The type of a directory in a listing.
const DIRECTORY: u8 = (S_IFDIR >> 12) as u8;

/// What ends a listing that cannot be: a type that the layer does not list.
const UNKNOWN: Errno = Errno::ENODATA;

/// The pieces of a listing that is being written.
struct Pieces<'r> {
    list: InodeId,
    room: &'r mut [u8],
    used: usize,
    now: Piece,
}

impl Pieces<'_> {
    fn add(&mut self, task: &Task<'_>, listed: &Listed<'_>) -> Result<()> {
        let end = match listed.put(self.room, self.used) {
            Some(end) => end,
            None => {
                self.write(task)?;
                listed.put(self.room, 0).ok_or(Errno::EIO)?
            }
        };
        self.used = end;
        self.now.count += 1;
        Ok(())
    }

    fn write(&mut self, task: &Task<'_>) -> Result<()> {
        let now = Piece { bytes: self.used as u32, ..self.now };
        let at = list::append_piece(task, self.list, now, &self.room[..self.used])?;
        self.used = 0;
        self.now = Piece { first: now.first + now.count, before: at, ..Piece::default() };
        Ok(())
    }
}

/// Writes a listing to a list that was begun. Returns whether that could be done; if not, the list is as if
/// it was not begun. The caller must hold the directory's lock.
///
/// # Errors
/// Those of the layer; `ENOSPC`.
pub(super) fn write(task: &Task<'_>, list: InodeId, from: &impl Dir, numbers: &Numbers) -> Result<bool> {
    // SAFETY: the buffer belongs to the task, and getdents(2) walks no path.
    let room = unsafe { &mut *task.scratch.walk.get() };
    let room = &mut room[..ROOM - Piece::HEAD];
    let mut pieces = Pieces { list, room, used: 0, now: Piece::default() };
    let mut count = 0;
    let written = from.names(task, &mut |name, number, kind| match kind {
        0 => Err(UNKNOWN),
        DIRECTORY => {
            if let Some(mut seen) = from.look(task, name)? {
                numbers.decide(&mut seen);
                list::append(task, list, &seen, name)?;
                count += 1;
            }
            Ok(())
        }
        kind => {
            let number = numbers.listed(task, number)?;
            pieces.add(task, &Listed { number, kind, name })
        }
    });
    match written {
        Err(UNKNOWN) => return Ok(false),
        written => written?,
    }
    // The last piece ends the list, even if it is empty.
    pieces.write(task)?;
    let is_true = numbers.is_before(from.changed()?);
    if is_true {
        list::finish(task, list, State::Names, count);
    }
    Ok(is_true)
}

/// The last piece of a list of names, and the subdirectories before it.
///
/// # Errors
/// As [`list::record`].
pub(super) fn found(task: &Task<'_>, list: InodeId) -> Result<Mark> {
    let mut mark = Mark { list, last: 0, entries: list::head(task.region, list)?.count };
    list::each_place(task.region, list, list::FIRST, |at, seen| {
        mark.last = if seen.is_piece() { list::piece_at(at) } else { mark.last };
        Ok(true)
    })?;
    Ok(mark)
}

/// Completes a list of names. The caller must hold the directory's lock.
///
/// # Errors
/// Those of the layer; `ENOSPC`.
pub(super) fn complete(task: &Task<'_>, list: InodeId, from: &impl Dir, numbers: &Numbers) -> Result<()> {
    let region = task.region;
    let (mut count, mut end) = (list::head(region, list)?.count, list::FIRST);
    list::each_place(region, list, list::FIRST, |at, seen| {
        end = if seen.is_piece() { at.offset + seen.bytes() } else { end };
        Ok(true)
    })?;
    // Who tried before has died, or met an error.
    list::cut(task, list, end);
    // SAFETY: the buffer belongs to the task, and the path that was in it has been used.
    let room = unsafe { &mut *task.scratch.outside.get() };
    list::each_place(region, list, list::FIRST, |at, seen| {
        if !seen.is_piece() {
            return Ok(true);
        }
        let at = list::piece_at(at);
        let mut names = Piece::read(region, list, at)?.names(region, list, at, room)?;
        while let Some((listed, rest)) = Listed::first(names) {
            names = rest;
            let seen = from.look(task, listed.name)?.map(|mut seen| {
                numbers.decide_listed(&mut seen, listed.number);
                seen
            });
            count += u32::from(seen.is_some());
            list::append(task, list, &seen.unwrap_or_default(), listed.name)?;
        }
        Ok(true)
    })?;
    list::finish(task, list, State::Complete, count);
    Ok(())
}

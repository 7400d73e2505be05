//! getdents64(2): entries of a directory, newest first, as tmpfs lists them (offset_iterate_dir of
//! fs/libfs.c).
//!
//! The cookie of `.` is 0, of `..` 1. 2 stands for the entry that is newest by then, and `FIRST` + p for
//! position p of the array, or what is below it. `END` means that nothing is left. So lseek shows tmpfs's
//! numbers, and a number between two of them leads to the older entry.
//! Positions do not change, so a program may continue after any record while names come and go. New names get
//! higher positions, so a listing ends.
//!
//! No lock is taken. A handle read from the array may be stale when its entry is read, and the page that held
//! it may be another's. An entry counts if its `seq` did not change while it was read, and it says itself
//! that it is alive and belongs at this position of this directory. Otherwise it counts as removed. A page
//! counts as empty only if the directory's `data_seq` did not change; otherwise it is read again.

use lp_abi::linux::S_IFDIR;
use lp_abi::{Errno, Fd, NAME_MAX, Result, UserSlice, dirent64};
use lp_region::records::{Dirent, Inode, file_mode};
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, sync, ucopy};

use crate::caller::below::{self, Need};
use crate::caller::task::Task;
use crate::content::map;
use crate::descriptors::fget::HeldFile;
use crate::descriptors::position;
use crate::inodes::inode;
use crate::names::dir::{Leaf, PER_LEAF};
use crate::names::{dirent, hash, listing};

/// Cookie of the newest entry; the dots come before.
const DOTS: u64 = 2;
/// Cookie of position 0.
const FIRST: u64 = 3;
/// Cookie of the end: tmpfs's `DIR_OFFSET_EOD`.
const END: u64 = i32::MAX as u64;

/// The cookie of what is below `position`.
fn cookie_below(position: u64) -> u64 {
    match position {
        0 => END,
        position => FIRST + position - 1 + u64::from(FIRST + position > END),
    }
}

/// The inverse of [`cookie_below`]; `tail` for the newest.
fn bound_of(cookie: u64, tail: u64) -> u64 {
    match cookie {
        DOTS => tail,
        END => 0,
        cookie => (cookie - FIRST + 1 - u64::from(cookie > END)).min(tail),
    }
}

/// Reads of a page of a changing directory before the result is accepted.
const TRIES: u32 = 100;

/// `struct linux_dirent64` with the longest name.
#[repr(C)]
struct Dirent64 {
    /// `d_ino`, `d_off`, `d_reclen`, `d_type`.
    head: [u8; dirent64::NAME],
    name: [u8; NAME_MAX],
    /// The NUL of the longest name and padding: always zeros.
    end: [u8; 6],
}

const _: () = assert!(size_of::<Dirent64>() == (dirent64::NAME + NAME_MAX + 1).next_multiple_of(8));

/// An entry as readdir shows it. Its name is in the [`Dirent64`].
#[derive(Clone, Copy)]
struct Shown {
    /// `st_ino`.
    ino: u64,
    kind: u8,
    length: usize,
}

/// Fills the program's buffer with records of the directory `fd`, from its position. Returns their length in
/// bytes; 0 at the end.
///
/// # Errors
/// `EBADF`, `ENOTDIR`; `ENOENT` for a removed directory; `EINVAL` if not even one record fits; `EFAULT`.
pub fn getdents64(task: &Task<'_>, fd: Fd, buffer: UserSlice) -> Result<usize> {
    let held = task.fget(fd)?;
    if held.file.mode.load(Ordering::Relaxed) & file_mode::PATH != 0 {
        return Err(Errno::EBADF);
    }
    if !held.inode.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    if below::is_pending(held.inode)
        && let Some(length) = names_only(task, &held, buffer)?
    {
        return Ok(length);
    }
    records(task, &held, buffer, fill)
}

/// Shows the listing of a directory of which only the names may be known. `None` if the entries are next:
/// there is no listing, or it has been shown.
#[cold]
fn names_only(task: &Task<'_>, held: &HeldFile<'_>, buffer: UserSlice) -> Result<Option<usize>> {
    loop {
        below::take(task, held.inode_id(), Need::Names)?;
        if !below::is_pending(held.inode) {
            return Ok(None);
        }
        match records(task, held, buffer, fill_listed) {
            Err(below::MISSING) => {}
            shown => return shown.map(|length| (length != 0).then_some(length)),
        }
    }
}

/// Calls `fill` with the position and the program's buffer.
#[inline(always)]
fn records(
    task: &Task<'_>,
    held: &HeldFile<'_>,
    buffer: UserSlice,
    fill: impl FnOnce(&Task<'_>, &HeldFile<'_>, &mut u64, &mut Out) -> Result<()>,
) -> Result<usize> {
    let position = position::hold(task, held);
    if held.inode.is_dead() {
        return Err(Errno::ENOENT);
    }
    let mut out = Out {
        to: buffer,
        done: 0,
        last: 0,
        record: Dirent64 { head: [0; dirent64::NAME], name: [0; NAME_MAX], end: [0; 6] },
    };
    let mut cookie = position.get();
    let ended = fill(task, held, &mut cookie, &mut out);
    position.set(cookie);
    // The kernel notifies watchers whatever was found.
    inode::read_by(task, held.file, held.inode, 1);
    match ended {
        Err(errno) if out.done == 0 => Err(errno),
        _ => Ok(out.done),
    }
}

/// Shows the names of a listing: before the subdirectories, because their entries will be newer.
///
/// # Errors
/// Those of [`fill`]; [`below::MISSING`] if there is none any more, and perhaps not all entries yet.
fn fill_listed(task: &Task<'_>, held: &HeldFile<'_>, cookie: &mut u64, out: &mut Out) -> Result<()> {
    dots(task, held, cookie, out)?;
    let _locked = inode::lock(task, held.inode_id());
    let mark = listing::mark_of(held.inode).ok_or(below::MISSING)?;
    let bound = bound_of(*cookie, mark.end(task.region)?);
    // SAFETY: the buffer belongs to the task, whose call has no path.
    let room = unsafe { &mut *task.scratch.outside.get() };
    mark.below(task.region, bound, room, |position, listed| {
        let length = listed.name.len();
        out.record.name[..length].copy_from_slice(listed.name);
        out.push(&Shown { ino: listed.number, kind: listed.kind, length }, cookie_below(position))?;
        *cookie = cookie_below(position);
        Ok(())
    })
}

/// Shows entries, from the position on.
#[inline(always)]
fn fill(task: &Task<'_>, held: &HeldFile<'_>, cookie: &mut u64, out: &mut Out) -> Result<()> {
    dots(task, held, cookie, out)?;
    let id = held.inode_id();
    // Acquire: the entries below the tail are visible.
    let tail = held.inode.tail.load(Ordering::Acquire);
    // No position is beyond the map's last one, but a damaged tail may be.
    let places = map::Map::of(held.inode).span().saturating_mul(PER_LEAF);
    let mut bound = bound_of(*cookie, tail.min(places));
    while bound > 0 {
        match look(task, id, held.inode, bound - 1, &mut out.record.name) {
            Seen::Entry(entry) => {
                bound -= 1;
                out.push(&entry, cookie_below(bound))?;
            }
            Seen::Nothing(below) => bound = below,
        }
        *cookie = cookie_below(bound);
    }
    *cookie = END;
    out.end()
}

/// Shows `.` and `..`.
#[inline(always)]
fn dots(task: &Task<'_>, held: &HeldFile<'_>, cookie: &mut u64, out: &mut Out) -> Result<()> {
    let id = held.inode_id();
    while *cookie < DOTS {
        let up = InodeId(held.inode.parent.load(Ordering::Relaxed)); // Relaxed: one word, as seen.
        let (of, length) = if *cookie == 0 { (id, 1) } else { (up, 2) };
        out.record.name[..2].copy_from_slice(b"..");
        out.push(
            &Shown { ino: inode::number(task.region, of), kind: (S_IFDIR >> 12) as u8, length },
            *cookie + 1,
        )?;
        *cookie += 1;
    }
    Ok(())
}

/// What is at a position.
enum Seen {
    /// An entry.
    Entry(Shown),
    /// Nothing from this position down to the given one.
    Nothing(u64),
}

fn look(task: &Task<'_>, id: InodeId, dir: &Inode, position: u64, name: &mut [u8; NAME_MAX]) -> Seen {
    let index = position / PER_LEAF;
    for _ in 0..TRIES {
        let before = dir.data_seq.read();
        let Some(leaf) = Leaf::new(task.region, map::get(task.region, dir, index)) else {
            if !dir.data_seq.retry(before) {
                return Seen::Nothing(index * PER_LEAF);
            }
            continue;
        };
        // PAIRS: the release store in `dir::put`.
        let handle = DirentId(leaf.entry(position).load(Ordering::Acquire));
        if handle.is_some()
            && let Some(entry) = read(task, id, task.region.dirent(handle), position, name)
        {
            expect_stat(task, task.region.dirent(handle));
            return Seen::Entry(entry);
        }
        // Nothing is there, or it has been removed since: the word tells, if the page is still this
        // directory's.
        let now = leaf.entry(position).load(Ordering::Acquire);
        if !dir.data_seq.retry(before) && (now == 0 || now == handle.0) {
            break;
        }
    }
    Seen::Nothing(position)
}

/// A program that lists a directory usually asks for the attributes of its entries next. Prefetches what that
/// will read, for all entries of a buffer at once instead of one after another.
#[inline(always)]
fn expect_stat(task: &Task, record: &Dirent) {
    hash::prefetch(task.region, record.hash.load(Ordering::Relaxed)); // Relaxed: a guess.
    sync::prefetch(task.region.inode(dirent::target(record).id));
}

/// Copies an entry, and its name to `name`; `None` if it is not at this position of this directory.
fn read(
    task: &Task<'_>,
    dir: InodeId,
    record: &Dirent,
    position: u64,
    name: &mut [u8; NAME_MAX],
) -> Option<Shown> {
    let before = record.seq.read();
    let (length, kind) = dirent::living(record)?;
    let target: InodeRef = dirent::target(record);
    dirent::copy_name_of(task.region, record, length, name);
    let entry = Shown { ino: inode::number_of(task.region, target), kind: kind as u8, length };
    let is_here =
        record.parent.load(Ordering::Acquire) == dir.0 && record.position.load(Ordering::Acquire) == position;
    // One that a rename is changing is accepted as seen.
    (is_here && record.seq.stands_at(before)).then_some(entry)
}

/// The program's buffer.
struct Out {
    to: UserSlice,
    done: usize,
    /// Where the last record starts.
    last: usize,
    /// The record under construction.
    record: Dirent64,
}

impl Out {
    /// Appends the record of an entry whose name is in place.
    ///
    /// # Errors
    /// `EINVAL` if it does not fit, `EFAULT`.
    #[inline(always)]
    fn push(&mut self, entry: &Shown, next: u64) -> Result<()> {
        let length = (dirent64::NAME + entry.length + 1).next_multiple_of(8);
        // SAFETY: `done` bytes of the buffer have been filled.
        let room = unsafe { self.to.skip_unchecked(self.done) };
        if length > room.len() {
            return Err(Errno::EINVAL);
        }
        let Dirent64 { head, name, end: _ } = &mut self.record;
        head[..8].copy_from_slice(&entry.ino.to_le_bytes());
        head[dirent64::POSITION..dirent64::LENGTH].copy_from_slice(&next.to_le_bytes());
        head[dirent64::LENGTH..dirent64::TYPE].copy_from_slice(&(length as u16).to_le_bytes());
        head[dirent64::TYPE] = entry.kind;
        name.iter_mut().skip(entry.length).take(8).for_each(|byte| *byte = 0);
        // SAFETY: a record is no longer than `Dirent64`; the copy routine handles bad pointers.
        unsafe { ucopy::copy(room.start().as_ptr(), (&raw const self.record).cast(), length) }?;
        self.last = self.done;
        self.done += length;
        Ok(())
    }

    /// Nothing follows the last record. Like the kernel's getdents64, makes its cookie that of the position.
    ///
    /// # Errors
    /// `EFAULT`.
    fn end(&self) -> Result<()> {
        if self.done == 0 {
            return Ok(());
        }
        // SAFETY: `done` bytes of the buffer have been filled; the copy routine handles bad pointers.
        unsafe {
            let place = self.to.skip_unchecked(self.last + dirent64::POSITION).start();
            ucopy::put(place.as_ptr().cast::<u64>(), &END)
        }
    }
}

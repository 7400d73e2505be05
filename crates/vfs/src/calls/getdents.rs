//! getdents64(2): entries of a directory, newest first, as tmpfs lists them (offset_iterate_dir of fs/libfs.c).
//!
//! The cookie of `.` is 0, of `..` 1; 2 stands for the newest entry there is by then, and `AFTER` + p for
//! what stands below position p of the array; `END`, which lseek shows as tmpfs does, for nothing more.
//! Positions do not change, so a program may go on after any record while names come and go, and what is made
//! meanwhile stands above: a listing ends.
//!
//! No lock is taken. A handle read from the array may be stale by the time its entry is read, and the page
//! that held it may be another's: an entry counts if its `seq` stood still while it was read and it says
//! itself that it lives and belongs at this position of this directory. One that does not counts as gone; a
//! page is believed empty only if the directory's `data_seq` stood still, else it is looked at again.

use lp_abi::linux::S_IFDIR;
use lp_abi::{Errno, Fd, NAME_MAX, Result, UserSlice};
use lp_region::records::{Dirent, Inode, file_mode};
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, sync, ucopy};

use crate::caller::below;
use crate::caller::task::Task;
use crate::content::map;
use crate::descriptors::file;
use crate::descriptors::table::{self, Held};
use crate::inodes::inode;
use crate::names::dir::{self, Leaf, PER_LEAF};
use crate::names::{dirent, hash};

/// Cookie of the newest entry: the dots come before.
const DOTS: u64 = 2;
/// Cookie of what stands below position 0: nothing.
const AFTER: u64 = 3;
/// Cookie of the end, tmpfs's `DIR_OFFSET_EOD`.
const END: u64 = i32::MAX as u64;

/// The cookie of what stands below `position`.
fn cookie_below(position: u64) -> u64 {
    let cookie = AFTER + position;
    if cookie < END { cookie } else { cookie + 1 }
}

/// The reverse; `tail` for the newest.
fn bound_of(cookie: u64, tail: u64) -> u64 {
    match cookie {
        DOTS => tail,
        END => 0,
        cookie if cookie < END => (cookie - AFTER).min(tail),
        cookie => (cookie - AFTER - 1).min(tail),
    }
}

/// Bytes of `struct linux_dirent64` before its name.
const HEAD: usize = 19;

/// Looks at a page of a directory that changes before what was seen is believed.
const TRIES: u32 = 100;

/// `struct linux_dirent64` with the longest name.
#[repr(C)]
struct Record {
    /// `d_ino`, `d_off`, `d_reclen`, `d_type`.
    head: [u8; HEAD],
    name: [u8; NAME_MAX],
    /// The last name's NUL and padding: always zeros.
    end: [u8; 6],
}

const _: () = assert!(size_of::<Record>() == (HEAD + NAME_MAX + 1).next_multiple_of(8));

/// An entry as readdir shows it; its name is in the [`Record`].
#[derive(Clone, Copy)]
struct Entry {
    /// As `st_ino`: the inode's slot.
    ino: u64,
    kind: u8,
    length: usize,
}

/// Fills the program's buffer with records of the directory `fd`, from its position on, and gives their bytes; 0 at the end.
///
/// # Errors
/// `EBADF`, `ENOTDIR`; `ENOENT` for a removed directory; `EINVAL` when not even one record fits; `EFAULT`.
pub fn getdents64(task: &Task<'_>, fd: Fd, buffer: UserSlice) -> Result<usize> {
    let held = table::fget(task, fd)?;
    if held.file.mode.load(Ordering::Relaxed) & file_mode::PATH != 0 {
        return Err(Errno::EBADF);
    }
    if !dir::is(held.inode) {
        return Err(Errno::ENOTDIR);
    }
    below::complete(task, held.inode)?;
    let position = file::position(task, &held);
    if dir::is_dead(held.inode) {
        return Err(Errno::ENOENT);
    }
    let mut out =
        Out { to: buffer, done: 0, record: Record { head: [0; HEAD], name: [0; NAME_MAX], end: [0; 6] } };
    let mut cookie = position.get();
    let ended = fill(task, &held, &mut cookie, &mut out);
    position.set(cookie);
    // The kernel tells watchers whatever was found.
    inode::accessed(task, held.inode, 1, || held.mount());
    match ended {
        Err(errno) if out.done == 0 => Err(errno),
        _ => Ok(out.done),
    }
}

fn fill(task: &Task<'_>, held: &Held<'_>, cookie: &mut u64, out: &mut Out) -> Result<()> {
    let id = held.inode_id();
    while *cookie < DOTS {
        let up = InodeId(held.inode.parent.load(Ordering::Relaxed)); // Relaxed: one word, as seen.
        let (of, length) = if *cookie == 0 { (id, 1) } else { (up, 2) };
        out.record.name[..2].copy_from_slice(b"..");
        out.push(&Entry { ino: u64::from(of.0), kind: (S_IFDIR >> 12) as u8, length }, *cookie + 1)?;
        *cookie += 1;
    }
    // Acquire: the entries below the tail are there.
    let tail = held.inode.tail.load(Ordering::Acquire);
    // No position is behind the map's last; a damaged tail may be.
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
    Ok(())
}

/// What stands at a position.
enum Seen {
    /// An entry.
    Entry(Entry),
    /// Nothing from this position on.
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
            expect_stat(task, task.region.dirent(handle), &entry);
            return Seen::Entry(entry);
        }
        // Nothing stands there, or it has gone since: the word says so if the page is still this directory's.
        let now = leaf.entry(position).load(Ordering::Acquire);
        if !dir.data_seq.retry(before) && (now == 0 || now == handle.0) {
            break;
        }
    }
    Seen::Nothing(position)
}

/// Whoever lists a directory asks for the attributes of what is in it next, most of the time: what that will look at is fetched
/// into the cache meanwhile, all of a buffer's entries at once instead of one after another.
#[inline(always)]
fn expect_stat(task: &Task, record: &Dirent, entry: &Entry) {
    hash::prefetch(task.region, record.hash.load(Ordering::Relaxed)); // Relaxed: a guess.
    sync::prefetch(task.region.inode(InodeId(entry.ino as u32)));
}

/// Copies an entry, its name into `name`; none if it does not stand at this position of this directory.
fn read(
    task: &Task<'_>,
    dir: InodeId,
    record: &Dirent,
    position: u64,
    name: &mut [u8; NAME_MAX],
) -> Option<Entry> {
    let before = record.seq.read();
    let (length, kind) = dirent::living(record)?;
    let target: InodeRef = dirent::target(record);
    dirent::copy_name_of(task.region, record, length, name);
    let entry = Entry { ino: u64::from(target.id.0), kind: kind as u8, length };
    let is_here =
        record.parent.load(Ordering::Acquire) == dir.0 && record.position.load(Ordering::Acquire) == position;
    // One that a rename is changing is taken as seen.
    (is_here && record.seq.stands_at(before)).then_some(entry)
}

/// The program's buffer.
struct Out {
    to: UserSlice,
    done: usize,
    /// The record that is being made.
    record: Record,
}

impl Out {
    /// Appends the record of an entry whose name is in place.
    ///
    /// # Errors
    /// `EINVAL` when it does not fit, `EFAULT`.
    fn push(&mut self, entry: &Entry, next: u64) -> Result<()> {
        let length = (HEAD + entry.length + 1).next_multiple_of(8);
        // SAFETY: `done` bytes of the buffer are filled.
        let room = unsafe { self.to.skip_unchecked(self.done) };
        if length > room.len() {
            return Err(Errno::EINVAL);
        }
        let Record { head, name, end: _ } = &mut self.record;
        head[..8].copy_from_slice(&entry.ino.to_le_bytes());
        head[8..16].copy_from_slice(&next.to_le_bytes());
        head[16..18].copy_from_slice(&(length as u16).to_le_bytes());
        head[18] = entry.kind;
        name.iter_mut().skip(entry.length).take(8).for_each(|byte| *byte = 0);
        // SAFETY: a record is no longer than `Record`; bad pointers are the fault handler's.
        unsafe { ucopy::copy(room.start().as_ptr(), (&raw const self.record).cast(), length) }?;
        self.done += length;
        Ok(())
    }
}

//! The layer below a file system: a host directory, taken in as it is used.
//!
//! The first look that could miss a name takes in all names of a directory, with their attributes, and its
//! record in a *list* ([`list`]) says what was taken. From then on a failed lookup is a miss in the hash
//! table, and a removal removes an entry. A program that only lists the directory gets a *listing*
//! (`listing.rs`): its subdirectories are taken in, and of the rest the names alone. Content is taken as it
//! is read: all of it or, if there is much, a run. The first read from start to end takes nothing
//! ([`through`]). What was taken stays. Whenever content is read, its origin is compared: another device,
//! inode, size or change time gives `EIO`, never a mixture.
//!
//! Inodes that are still `PENDING` are met on paths that are slow anyway. A directory without an ACL has
//! [`NO_ACL_YET`](lp_region::records::NO_ACL_YET), which ends the quick check of its search permission. A
//! pending file is not a plain one to open(2), and its missing pages are holes to read(2). A process takes in
//! what its open files lack before it may lose its way to the layer ([`opened`]).
//!
//! Names and content are taken in under the inode's lock. All steps are idempotent: a list is used once it
//! says that it is complete, an existing name is not created again, an existing page is not read again, and
//! `PENDING` is cleared last. A lane that takes over a dead holder's lock therefore continues where the
//! holder stopped.
//!
//! Special files have nothing to be taken. What they stand for is opened on the host ([`special`]).
//!
//! Callers do not know this folder. They request what they need through
//! [`Sources::below`](crate::task::Sources::below), which the door sets to [`take`].
//!
//! Lists are files of root [`list::ROOT`], which no mount shows. Lock order: the directory or file that is
//! being taken in, then that root, then a list.

mod attributes;
mod content;
pub mod frozen;
mod host;
mod links;
pub mod list;
mod listing;
mod memory;
pub mod names;
mod numbers;
pub mod opened;
pub mod program;
pub mod renew;
pub mod special;
mod taking;
pub mod through;

use core::ops::Range;

use lp_abi::linux::S_IFREG;
use lp_abi::{Errno, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::AtomicU32;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef};

use crate::below::list::{Record, RecordAt};
pub use crate::caller::below::{
    Need, Passage, complete, complete_attributes, is_hosts, is_pending, lacks_attributes,
};
pub use crate::caller::lacking::Habit;
use crate::caller::task::{Task, Time};
use crate::inodes::inode::{self, Locked};
use crate::names::listing::{mark_of, set_mark};

/// A layer: the source of names, attributes and content. A [`RecordAt`] is the place of a record in its list.
trait Layer {
    /// An open directory.
    type Dir: Dir;
    /// An open file.
    type File: File;

    /// Opens a directory.
    ///
    /// # Errors
    /// `EIO` if it is not the one that was seen; those of open(2).
    fn dir(&self, task: &Task<'_>, at: RecordAt, how: Use) -> Result<Self::Dir>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of [`Layer::dir`].
    fn file(&self, task: &Task<'_>, at: RecordAt) -> Result<Self::File>;
}

/// Callback for each extended attribute: its name and its value.
type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// What a directory is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// To list its names.
    List,
    /// To look at names that are known, for which it need not be readable.
    Search,
}

/// Whether a process may read all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    All,
    Some,
}

/// Callback for each name: the name, the number that is listed for it, and its type.
type Names<'a> = &'a mut dyn FnMut(&[u8], u64, u8) -> Result<()>;

/// A directory of a layer.
trait Dir {
    fn names(&self, task: &Task<'_>, each: Names<'_>) -> Result<()>;

    /// What a name denotes; `None` if it is gone. A NUL follows the name.
    fn look(&self, task: &Task<'_>, name: &[u8]) -> Result<Option<Record>>;

    /// When the directory had last changed as it was opened, if the numbers that it lists are those that a
    /// look finds, except for directories and what is mounted on files.
    fn lists_numbers(&self) -> Result<Option<Time>>;

    /// When the directory last changed.
    fn changed(&self) -> Result<Time>;

    /// Copies the target of a symbolic link and returns its length.
    fn target(&self, name: &[u8], to: &mut [u8]) -> Result<usize>;

    /// Calls `each` with the extended attributes of what a name denotes, those that this process may read.
    fn attributes(&self, name: &[u8], each: Each<'_>) -> Result<Seen>;
}

/// A file of a layer.
trait File {
    /// Reads up to `len` bytes at an offset.
    ///
    /// # Errors
    /// Those of read(2).
    ///
    /// # Safety
    /// `to` must be valid for writes of `len` bytes, or be the program's memory.
    unsafe fn read(&self, to: *mut u8, len: usize, at: u64) -> Result<usize>;

    /// The next bytes from `at` on that are no hole; `None` if the rest is one.
    ///
    /// # Errors
    /// Those of lseek(2).
    fn data(&self, at: u64) -> Result<Option<Range<u64>>>;

    /// Checks that it is still what was seen.
    ///
    /// # Errors
    /// `EIO` if it is not.
    fn check(&self, seen: &Record) -> Result<()>;
}

/// The place of an inode's record, if the inode came from below.
pub fn spot(inode: &Inode) -> Option<RecordAt> {
    // Relaxed: immutable once the inode can be reached.
    let has = inode.flags.load(Relaxed) & inode_flags::ORIGIN != 0;
    let [list, offset] = words(inode);
    has.then(|| RecordAt { list: InodeId(list.load(Relaxed)), offset: offset.load(Relaxed) })
}

/// Whether a directory whose names are still to be taken has a listing: its subdirectories are there.
pub fn has_listing(inode: &Inode) -> bool {
    mark_of(inode).is_some()
}

/// Records the place of an inode's record. Nobody else can reach the inode yet.
fn set_spot(inode: &Inode, at: RecordAt) {
    let [list, offset] = words(inode);
    set_mark(inode, None);
    list.store(at.list.0, Relaxed); // Relaxed, both: published with the name.
    offset.store(at.offset, Relaxed);
}

fn words(inode: &Inode) -> &[AtomicU32; 2] {
    const { assert!(core::mem::offset_of!(Inode, inline) % 4 == 0) };
    // SAFETY: 8 bytes at an offset that is a multiple of 4, accessed as atomics of this size while the inode
    // is not a symbolic link.
    unsafe { &*(&raw const inode.inline).cast() }
}

/// Takes in what a call is about to need from an inode. Doors set
/// [`Sources::below`](crate::task::Sources::below) to this.
///
/// # Errors
/// `ESTALE` if it was freed meanwhile; those of the layer; `EIO` for a conflict; `ENOSPC`.
#[cold]
pub fn take(task: &Task<'_>, of: InodeRef, need: Need) -> Result<()> {
    let inode = task.region.inode(of.id);
    // Relaxed: immutable.
    let is_file = inode.flags.load(Relaxed) & inode_flags::KIND == S_IFREG;
    match need {
        _ if !is_file => names::take(task, of, need),
        Need::Names => Ok(()),
        Need::Attributes => attributes::take(task, of),
        Need::Nothing if spot(inode).is_some() => content::forgo(task, of),
        Need::Map => frozen::map(task, of),
        _ if spot(inode).is_none() => frozen::whole(task, of),
        Need::Opened => Ok(()),
        // Relaxed: it does not change while the file is pending.
        Need::Range(offset, len) if inode.size.load(Relaxed) > content::SMALL => {
            content::range(task, of, offset, len)
        }
        Need::Range(..) | Need::All | Need::Nothing => content::range(task, of, 0, u64::MAX),
    }
}

/// Locks the inode for which something is taken.
///
/// # Errors
/// `ESTALE` if it was freed meanwhile.
fn lock<'r>(task: &Task<'r>, of: InodeRef) -> Result<Locked<'r>> {
    let locked = inode::lock(task, of.id);
    // Acquire: the generation is incremented before the slot is reused.
    let generation = task.region.inode(of.id).generation.load(Acquire);
    if generation == of.generation { Ok(locked) } else { Err(Errno::ESTALE) }
}

/// Fails in a process that has limited itself, which makes no calls of the gate's own.
fn may_call() -> Result<()> {
    if lp_abi::sys::is_limited() { Err(Errno::EIO) } else { Ok(()) }
}

//! What a file system has below it: a directory of the host, taken in as it is looked at.
//!
//! A directory's names come in whole at the first look that could miss one, with their attributes, and its
//! record in a *list* ([`list`]) says what was taken: from then on a lookup that fails is a miss of the hash
//! table, and a removal removes an entry. Content comes at the first open, or by runs as it is read if there
//! is much of it. What was first seen stays. Before content is taken its origin is compared: another device,
//! inode, size or change time is `EIO`, never a mixture.
//!
//! Inodes that are still `PENDING` are met where a slow path is taken anyway: a directory without an ACL has
//! [`NO_ACL_YET`](lp_region::records::NO_ACL_YET), which ends the quick check of its search permission; a
//! file is no plain one to open(2), and its missing pages are holes to read(2).
//!
//! Who takes something in holds the inode's lock. All steps may be done again: a list is used once it says
//! that it is complete, a name that is there is not made again, a page that is there is not read again, and
//! `PENDING` goes last. So whoever finds a dead holder's lock goes on where that one stopped.
//!
//! Callers do not know this folder: they ask for what they need by [`Task::below`], which the door sets to
//! [`take`].
//!
//! Lists are files of root [`list::ROOT`], which no mount shows. Lock order: the directory or file that is
//! taken in, then that root, then a list.

mod content;
mod host;
mod links;
pub mod list;
mod memory;
pub mod names;

use lp_abi::linux::S_IFREG;
use lp_abi::{Errno, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::AtomicU32;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef};

use crate::below::list::{Record, RecordAt};
pub use crate::caller::below::{Need, complete, is_pending};
use crate::caller::task::Task;
use crate::inodes::inode::{self, Locked};

/// A layer: where names, attributes and content come from. A spot is the place of a record in its list.
trait Layer {
    /// A directory that is open.
    type Dir: Dir;
    /// A file that is open.
    type File: File;

    /// Opens a directory.
    ///
    /// # Errors
    /// `EIO` when it is not the one that was seen; those of open(2).
    fn dir(&self, task: &Task<'_>, at: RecordAt) -> Result<Self::Dir>;

    /// Opens a file to read it.
    ///
    /// # Errors
    /// As [`Layer::dir`].
    fn file(&self, task: &Task<'_>, at: RecordAt) -> Result<Self::File>;
}

/// What is done with each extended attribute: its name, its value.
type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// A directory of a layer.
trait Dir {
    /// Calls `each` with every name and what it names.
    fn names(&self, task: &Task<'_>, each: &mut dyn FnMut(&[u8], &mut Record) -> Result<()>) -> Result<()>;

    /// Copies the target of a symbolic link; gives its length.
    fn target(&self, name: &[u8], to: &mut [u8]) -> Result<usize>;

    /// Calls `each` with the extended attributes of what a name stands for.
    fn attributes(&self, name: &[u8], each: Each<'_>) -> Result<()>;
}

/// A file of a layer.
trait File {
    /// Reads up to `len` bytes at an offset.
    ///
    /// # Safety
    /// `to` is good for `len` bytes.
    unsafe fn read(&self, to: *mut u8, len: usize, at: u64) -> Result<usize>;

    /// Whether it is still what was seen.
    ///
    /// # Errors
    /// `EIO` when it is not.
    fn check(&self, seen: &Record) -> Result<()>;
}

/// Where the record of an inode stands, if it came from below.
pub fn spot(inode: &Inode) -> Option<RecordAt> {
    // Relaxed: immutable once the inode is reached.
    let has = inode.flags.load(Relaxed) & inode_flags::ORIGIN != 0;
    let [list, offset] = words(inode);
    has.then(|| RecordAt { list: InodeId(list.load(Relaxed)), offset: offset.load(Relaxed) })
}

/// Says where the record of an inode stands. Nobody else can reach the inode.
fn set_spot(inode: &Inode, at: RecordAt) {
    let [list, offset] = words(inode);
    list.store(at.list.0, Relaxed); // Relaxed, both: published with the name.
    offset.store(at.offset, Relaxed);
}

fn words(inode: &Inode) -> &[AtomicU32; 2] {
    const { assert!(core::mem::offset_of!(Inode, inline) % 4 == 0) };
    // SAFETY: 8 bytes at an offset that is a multiple of 4, touched as atomics of this size while the inode
    // is no symbolic link.
    unsafe { &*(&raw const inode.inline).cast() }
}

/// Takes in what a call is about to need of an inode: what a door sets [`Task::below`] to.
///
/// # Errors
/// `ESTALE` when it was freed meanwhile; those of the layer; `EIO` for a conflict; `ENOSPC`.
#[cold]
pub fn take(task: &Task<'_>, of: InodeRef, need: Need) -> Result<()> {
    let inode = task.region.inode(of.id);
    // Relaxed: immutable.
    let is_file = inode.flags.load(Relaxed) & inode_flags::KIND == S_IFREG;
    match need {
        _ if !is_file => names::take(task, of),
        Need::Nothing => content::forgo(task, of),
        Need::Range(offset, len) => content::range(task, of, offset, len),
        // Relaxed: it does not change while the file is pending.
        Need::Opened if inode.size.load(Relaxed) > content::SMALL => Ok(()),
        Need::Opened | Need::All => content::range(task, of, 0, u64::MAX),
    }
}

/// Locks what something is taken for.
///
/// # Errors
/// `ESTALE` when it was freed meanwhile.
fn lock<'r>(task: &Task<'r>, of: InodeRef) -> Result<Locked<'r>> {
    let locked = inode::lock(task, of.id);
    // Acquire: the generation grows before the slot is used again.
    let generation = task.region.inode(of.id).generation.load(Acquire);
    if generation == of.generation { Ok(locked) } else { Err(Errno::ESTALE) }
}

/// A process that has limited itself makes no calls of its own.
fn may_call() -> Result<()> {
    if lp_abi::sys::is_limited() { Err(Errno::EIO) } else { Ok(()) }
}

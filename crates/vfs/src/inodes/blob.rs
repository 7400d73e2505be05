//! Blobs: what an inode carries besides its content. Each is the content of an inode without a name.
//!
//! A blob does not change once it is linked in. A change creates another one and swaps it in with one store,
//! so readers need no lock; they check afterwards that the handle and the blob's generation are unchanged.

use lp_abi::{Errno, Result, UserSlice};
use lp_region::custody::LISTED;
use lp_region::lane::Lane;
use lp_region::records::{COVERED, Inode, NO_ACL_YET};
use lp_region::slab::Slot;
use lp_region::sync::AtomicU32;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{InodeId, LaneId, Region, validated};

use crate::caller::below;
use crate::caller::task::{Task, Time};
use crate::content::buffer::Single;
use crate::content::{fill, map, snapshot};
use crate::inodes::hidden;
use crate::inodes::inode::{self, Touch};
use crate::lane::intent::{self, op};

/// Selects one of an inode's blobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlobKind {
    /// Extended attributes.
    Xattr,
    /// Access ACL.
    Acl,
    /// Default ACL of a directory.
    DefaultAcl,
}

impl BlobKind {
    /// The word that names it; that of an access ACL may also have [`COVERED`].
    pub fn word(self, inode: &Inode) -> &AtomicU32 {
        match self {
            BlobKind::Xattr => &inode.xattr,
            BlobKind::Acl => &inode.acl,
            BlobKind::DefaultAcl => &inode.default_acl,
        }
    }

    /// The blob's handle; 0 if there is none.
    pub fn handle(self, inode: &Inode) -> u32 {
        match self.word(inode).load(Acquire) & !COVERED {
            NO_ACL_YET => 0,
            handle => handle,
        }
    }

    fn from_word(word: u64) -> BlobKind {
        match word {
            0 => BlobKind::Xattr,
            1 => BlobKind::Acl,
            _ => BlobKind::DefaultAcl,
        }
    }
}

/// A blob under construction. Dropped before `swap`, it is freed.
pub struct BlobDraft<'t, 'r> {
    task: &'t Task<'r>,
    id: InodeId,
}

impl<'t, 'r> BlobDraft<'t, 'r> {
    /// An empty one, for an inode of root number `root`.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn new(task: &'t Task<'r>, root: u32) -> Result<Self> {
        Ok(BlobDraft { task, id: hidden::create(task, root)?.id })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn append(&self, bytes: &[u8]) -> Result<()> {
        fill::append_private(self.task, self.id, bytes)
    }

    /// Appends bytes of the program's.
    ///
    /// # Errors
    /// `ENOSPC`, `EFAULT`.
    pub(crate) fn append_given(&self, from: UserSlice) -> Result<()> {
        fill::append_given(self.task, self.id, from)
    }

    /// Makes it a blob of an inode that nobody else can reach yet.
    pub fn attach(self, word: &AtomicU32) {
        word.store(self.id.0, Release);
        core::mem::forget(self);
    }

    /// Its contents so far.
    pub fn view(&self) -> View<'r> {
        View::of(self.task.region, self.id)
    }
}

impl Drop for BlobDraft<'_, '_> {
    fn drop(&mut self) {
        hidden::discard(self.task, self.id);
    }
}

/// The content of a blob.
#[derive(Clone, Copy)]
pub struct View<'r> {
    region: Region<'r>,
    id: InodeId,
    len: u64,
}

impl<'r> View<'r> {
    fn of(region: Region<'r>, id: InodeId) -> View<'r> {
        View { region, id, len: region.inode(id).size.load(Relaxed) } // Relaxed: a blob does not change.
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes out to the program's memory: all that `to` has room for and that there are.
    ///
    /// # Errors
    /// `EFAULT`, also if only a part could be copied.
    pub fn give(&self, to: UserSlice, at: u64) -> Result<usize> {
        let inode = self.region.inode(self.id);
        let given = snapshot::snapshot(self.region, inode, Single::new(to)?, to.len(), at)?;
        let wanted = (to.len() as u64).min(self.len().saturating_sub(at));
        if (given as u64) < wanted { Err(Errno::EFAULT) } else { Ok(given) }
    }

    /// Copies bytes out. Returns the number of bytes copied.
    ///
    /// # Errors
    /// None in a sound region.
    pub fn read(&self, to: &mut [u8], at: u64) -> Result<usize> {
        snapshot::into(self.region, self.region.inode(self.id), to, at)
    }

    /// Copies `N` bytes out, zero-padded.
    pub fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        // A fault is impossible, and only a damaged region has a blob that is too short.
        let _ = self.read(&mut bytes, at);
        bytes
    }

    /// Stores bytes in place. The blob must be a draft.
    pub fn patch(&self, task: &Task, at: u64, bytes: &[u8]) {
        for (step, byte) in bytes.iter().enumerate() {
            let at = at + step as u64;
            let page = map::get(task.region, task.region.inode(self.id), at / lp_abi::PAGE_SIZE as u64);
            if page.is_some() {
                // SAFETY: within the page, which nobody else can reach yet.
                unsafe { *task.region.page(page).add(at as usize % lp_abi::PAGE_SIZE) = *byte };
            }
        }
    }
}

/// A blob of an inode; `None` if it has none. The caller must hold the inode's lock.
pub(crate) fn of<'r>(task: &Task<'r>, inode: &Inode, which: BlobKind) -> Option<View<'r>> {
    let id = InodeId(which.handle(inode));
    id.is_some().then(|| View::of(task.region, id))
}

/// Calls `look` with a blob of an inode, without a lock, until the blob stayed the same meanwhile. `None` if
/// there is no blob.
pub(crate) fn peek<T>(
    region: Region,
    inode: &Inode,
    which: BlobKind,
    mut look: impl FnMut(View) -> T,
) -> Option<T> {
    if which.handle(inode) == 0 {
        return None;
    }
    // PAIRS: the release store in `Swap::apply`, and the fence at the start of `hidden::clear`'s section.
    let generation = |word| &region.inode(InodeId(word & !COVERED)).generation;
    let view = |word| match word & !COVERED {
        0 | NO_ACL_YET => None,
        id => Some(View::of(region, InodeId(id))),
    };
    loop {
        // What takes a blob's place meanwhile may be of any length: only a length that was a blob's is used.
        let len = validated::look(which.word(inode), generation, view).flatten()?.len;
        let once = |word| view(word).map(|view| (view.len == len).then(|| look(view)));
        if let Some(seen) = validated::look(which.word(inode), generation, once).flatten()? {
            return Some(seen);
        }
    }
}

/// A change of an inode's blob and of what depends on it: one change, which happens completely or not at all
/// even after a death.
struct Swap {
    of: InodeId,
    which: BlobKind,
    /// The blob afterwards and before; 0 for none.
    new: u32,
    old: u32,
    /// Mode and `ctime` afterwards.
    mode: u32,
    time: Time,
}

impl Swap {
    fn to_words(&self) -> [u64; 6] {
        [
            u64::from(self.of.0),
            self.which as u64,
            u64::from(self.new),
            u64::from(self.old),
            u64::from(self.mode) | u64::from(self.time.nsec) << 32,
            self.time.sec as u64,
        ]
    }

    fn from_words(words: &[u64; 6]) -> Swap {
        Swap {
            of: InodeId(words[0] as u32),
            which: BlobKind::from_word(words[1]),
            new: words[2] as u32,
            old: words[3] as u32,
            mode: words[4] as u32,
            time: Time { sec: words[5] as i64, nsec: (words[4] >> 32) as u32 },
        }
    }

    /// Idempotent. From its end on, `lane` answers for the former blob and no longer for the new one.
    fn apply(&self, task: &Task, lane: &Lane) {
        let inode = task.region.inode(self.of);
        inode.seq.begin();
        inode::put(&inode.mode, self.mode);
        inode::touch_in_section(inode, Touch::Change, self.time);
        // PAIRS: the load of the word in `validated::look`.
        let word = self.which.word(inode);
        word.store(self.new | word.load(Relaxed) & COVERED, Release); // Relaxed: under the lock.
        inode.seq.end();
        lane.taken[Inode::SLAB].store(self.old, Release);
    }
}

/// Makes a draft an inode's blob, or removes the blob, and frees the former one. Sets the inode's mode and
/// `ctime`. The caller must hold the inode's lock and not be in a `seq` section.
pub(crate) fn swap(
    task: &Task,
    of: InodeId,
    which: BlobKind,
    draft: Option<BlobDraft>,
    (mode, time): (u32, Time),
) {
    let old = which.handle(task.region.inode(of));
    let inode = task.region.inode(of);
    // What is still to be taken in needs a trap: see `below`.
    let lacks_names = inode.is_dir() && below::is_pending(inode);
    let is_trap = which == BlobKind::Acl && (lacks_names || below::lacks_attributes(inode));
    let none = if is_trap { NO_ACL_YET } else { 0 };
    let new = draft.map_or(none, |draft| {
        let id = draft.id;
        core::mem::forget(draft);
        id.0
    });
    let swap = Swap { of, which, new, old, mode, time };
    let intent = intent::write(task, op::BLOB, &swap.to_words());
    swap.apply(task, task.lane);
    drop(intent);
    if old != 0 {
        hidden::free(task, InodeId(old));
    }
    task.region.settle::<Inode>(task.lane);
}

/// Finishes a [`swap`] of a dead lane up to the lane's `taken`, which then names the former blob for the
/// reaper to free.
pub(crate) fn replay(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    let mut words = [0; 6];
    for (word, from) in words.iter_mut().zip(&record.intent.words) {
        *word = from.load(Relaxed); // Relaxed: published by the op.
    }
    Swap::from_words(&words).apply(task, record);
    record.intent.op.store(op::NONE, Release);
}

/// Frees a blob of an inode that is itself being freed.
pub(crate) fn drop_of_freed(task: &Task, word: &AtomicU32) {
    // Relaxed: nobody else has the inode.
    let id = InodeId(word.load(Relaxed) & !COVERED);
    if id.0 == NO_ACL_YET {
        return word.store(0, Release);
    }
    // A thread that died while it freed the inode may have left the blob to a sweep.
    if id.is_some() && task.region.inode(id).custody.get() & LISTED != 0 {
        word.store(0, Release);
    } else if id.is_some() {
        let taken = &task.lane.taken[Inode::SLAB];
        let former = taken.load(Relaxed); // Relaxed: the lane's own.
        hidden::clear(task, id);
        // The lane answers for the blob while neither its owner nor a cache does.
        taken.store(id.0, Release);
        word.store(0, Release);
        hidden::free(task, id);
        taken.store(former, Release);
    }
}

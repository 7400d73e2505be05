//! An inode's locks as an interval tree, in which finding, adding and removing one takes O(log n).
//!
//! A treap (Aragon and Seidel 1989) over the lock records: in the order of their first bytes, balanced by
//! ranks that are hashes of the slots' numbers, with the last byte locked in each subtree in
//! [`LockRecord::last`]. Linux's `flc_posix` is a list.
//!
//! [`Inode::locks_lock`] guards the tree. Which inode a lock is on, the record alone says
//! ([`LockRecord::inode`]): a lock exists from the store of that word until the word is 0 again. The tree is
//! derived. While it changes, [`Inode::locks`] is [`CHANGING`], and whoever finds that under the lock builds
//! the tree from the records again: its writer has died.

use core::mem::MaybeUninit;

use lp_abi::{Errno, Result};
use lp_region::layout::LOCKS;
use lp_region::records::{Inode, LockRecord};
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, Ordering, release_fence};
use lp_region::{InodeId, LockId};

use crate::caller::task::Task;
use crate::locks::lock::{ByteRange, Lock, family, wake};

/// [`Inode::locks`] while the tree changes. No slot has this number.
pub const CHANGING: u32 = u32::MAX;

/// Longest way from the root that is followed. Of 2^18 locks none is deeper but with a probability of 1e-20;
/// in a damaged region the tree may be a ring.
const DEPTH: usize = 96;

/// Where a lock stands in the order: its first byte, then its slot.
pub(crate) type LockKey = (u64, u32);

/// Before every lock.
pub(crate) const FIRST: LockKey = (0, 0);

/// The locks of an inode whose `locks_lock` the caller holds.
pub(crate) struct Locks<'t, 'r> {
    task: &'t Task<'r>,
    id: InodeId,
    inode: &'r Inode,
    /// Root of the tree, which [`Inode::locks`] repeats between changes.
    root: AtomicU32,
}

/// Nodes from the root down. Those at `length` and above have no value.
struct Path {
    nodes: [MaybeUninit<LockId>; DEPTH],
    length: usize,
}

impl Path {
    #[inline]
    fn new() -> Self {
        Path { nodes: [const { MaybeUninit::uninit() }; DEPTH], length: 0 }
    }

    /// False when the tree is too deep to be one.
    #[inline]
    fn push(&mut self, id: LockId) -> bool {
        let Some(place) = self.nodes.get_mut(self.length) else { return false };
        place.write(id);
        self.length += 1;
        true
    }

    #[inline]
    fn pop(&mut self) -> Option<LockId> {
        self.length = self.length.checked_sub(1)?;
        // SAFETY: `push` wrote each node below the former length.
        self.nodes.get(self.length).map(|node| unsafe { node.assume_init() })
    }
}

/// Rank of a node, above those of its children: the number of its slot, mixed. No two have the same.
fn rank(id: LockId) -> u32 {
    let mixed = (id.0 ^ id.0 >> 16).wrapping_mul(0x85eb_ca6b);
    let mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    mixed ^ mixed >> 16
}

// Relaxed throughout: under the tree's lock.
impl<'t, 'r> Locks<'t, 'r> {
    /// The caller holds `locks_lock` until it drops this.
    pub(crate) fn of(task: &'t Task<'r>, id: InodeId) -> Self {
        let inode = task.region.inode(id);
        let root = inode.locks.load(Ordering::Relaxed);
        let locks = Locks { task, id, inode, root: AtomicU32::new(root) };
        if root == CHANGING {
            locks.rebuild_slow();
        }
        locks
    }

    /// The locks that meet `range` and come after `key`, in order. Valid until the tree changes.
    pub(crate) fn meeting(&self, range: ByteRange, key: LockKey) -> Meeting<'_, 't, 'r> {
        Meeting { locks: self, range, key, path: Path::new(), at: self.top() }
    }

    /// A lock's place in the order.
    pub(crate) fn key(&self, id: LockId) -> LockKey {
        (self.node(id).start.load(Ordering::Relaxed), id.0)
    }

    /// Makes a lock.
    ///
    /// # Errors
    /// `ENOLCK` without a record for it.
    pub(crate) fn insert(&self, lock: &Lock) -> Result<LockId> {
        let task = self.task;
        let id = task.region.take::<LockRecord>(task.lane).map_err(|_| Errno::ENOLCK)?;
        let node = self.node(id);
        node.start.store(lock.range.start, Ordering::Relaxed);
        node.end.store(lock.range.end, Ordering::Relaxed);
        node.kind.store(lock.kind as u32, Ordering::Relaxed);
        node.owner.store(lock.owner.id, Ordering::Relaxed);
        node.owner_generation.store(lock.owner.generation, Ordering::Relaxed);
        node.pid.store(lock.pid, Ordering::Relaxed);
        node.waiters.store(0, Ordering::Relaxed);
        node.family.store(family::word(lock.owner.family, lock.through), Ordering::Release);
        self.begin();
        node.inode.store(self.id.0, Ordering::Release);
        self.attach(id);
        // The record says whose it is: the lane need not.
        task.region.settle::<LockRecord>(task.lane);
        self.end();
        Ok(id)
    }

    /// Gives a lock up and wakes those that wait for it.
    pub(crate) fn remove(&self, id: LockId) {
        let (task, node) = (self.task, self.node(id));
        self.begin();
        self.detach(id);
        // The lane names it while no inode does.
        task.lane.taken[LockRecord::SLAB].store(id.0, Ordering::Release);
        node.inode.store(0, Ordering::Release);
        wake(node);
        task.region.give::<LockRecord>(task.lane, id);
        task.region.settle::<LockRecord>(task.lane);
        self.end();
    }

    /// Makes a lock cover `range`.
    pub(crate) fn reshape(&self, id: LockId, range: ByteRange) {
        let node = self.node(id);
        self.begin();
        self.detach(id);
        node.start.store(range.start, Ordering::Relaxed);
        node.end.store(range.end, Ordering::Relaxed);
        self.attach(id);
        self.end();
    }

    fn begin(&self) {
        self.inode.locks.store(CHANGING, Ordering::Relaxed);
        // PAIRS: none but the program's order. Whoever takes the lock over from a dead lane sees its stores
        // in that order.
        release_fence();
    }

    fn end(&self) {
        self.inode.locks.store(self.root.load(Ordering::Relaxed), Ordering::Release);
    }

    fn node(&self, id: LockId) -> &'r LockRecord {
        self.task.region.lock_record(id)
    }

    fn top(&self) -> LockId {
        LockId(self.root.load(Ordering::Relaxed))
    }

    /// Left child, for keys below `of`'s, or right child.
    fn side(&self, of: LockId, key: LockKey) -> &'r AtomicU32 {
        let node = self.node(of);
        if key < self.key(of) { &node.link } else { &node.right }
    }

    /// Last byte locked in a subtree.
    fn last(&self, id: LockId) -> u64 {
        if id.is_none() { 0 } else { self.node(id).last.load(Ordering::Relaxed) }
    }

    /// Brings `last` of the nodes of a path up to date, from below.
    fn renew(&self, mut path: Path) {
        while let Some(id) = path.pop() {
            let node = self.node(id);
            let below =
                [&node.link, &node.right].map(|child| self.last(LockId(child.load(Ordering::Relaxed))));
            let end = node.end.load(Ordering::Relaxed);
            node.last.store(end.max(below[0]).max(below[1]), Ordering::Relaxed);
        }
    }

    /// Puts a node into the tree: above the first on its way with a lower rank, whose subtree is split in
    /// two.
    fn attach(&self, new: LockId) {
        let (node, key) = (self.node(new), self.key(new));
        let mut path = Path::new();
        let mut place = &self.root;
        let mut rest = self.top();
        while rest.is_some() && rank(rest) > rank(new) {
            if !path.push(rest) {
                return;
            }
            place = self.side(rest, key);
            rest = LockId(place.load(Ordering::Relaxed));
        }
        place.store(new.0, Ordering::Relaxed);
        let mut deep = path.push(new);
        let (mut left, mut right) = (&node.link, &node.right);
        while rest.is_some() && deep {
            deep = path.push(rest);
            let split = self.node(rest);
            if self.key(rest) < key {
                left.store(rest.0, Ordering::Relaxed);
                left = &split.right;
                rest = LockId(left.load(Ordering::Relaxed));
            } else {
                right.store(rest.0, Ordering::Relaxed);
                right = &split.link;
                rest = LockId(right.load(Ordering::Relaxed));
            }
        }
        left.store(0, Ordering::Relaxed);
        right.store(0, Ordering::Relaxed);
        self.renew(path);
    }

    /// Takes a node out of the tree: its children's subtrees are merged in its place.
    fn detach(&self, old: LockId) {
        let key = self.key(old);
        let mut path = Path::new();
        let mut place = &self.root;
        loop {
            let at = LockId(place.load(Ordering::Relaxed));
            if at == old {
                break;
            }
            if at.is_none() || !path.push(at) {
                return;
            }
            place = self.side(at, key);
        }
        let node = self.node(old);
        let mut left = LockId(node.link.load(Ordering::Relaxed));
        let mut right = LockId(node.right.load(Ordering::Relaxed));
        while left.is_some() && right.is_some() {
            let upper = if rank(left) > rank(right) { left } else { right };
            place.store(upper.0, Ordering::Relaxed);
            if !path.push(upper) {
                return;
            }
            if upper == left {
                place = &self.node(left).right;
                left = LockId(place.load(Ordering::Relaxed));
            } else {
                place = &self.node(right).link;
                right = LockId(place.load(Ordering::Relaxed));
            }
        }
        place.store(if left.is_some() { left.0 } else { right.0 }, Ordering::Relaxed);
        self.renew(path);
    }

    /// Builds the tree again from what the records say. A death meanwhile leaves it to the next.
    #[cold]
    fn rebuild_slow(&self) {
        self.root.store(0, Ordering::Relaxed);
        let last = self.task.region.header().slabs[LockRecord::SLAB].last();
        for id in (1..=last).map(LockId) {
            // Those of other inodes change meanwhile, but none becomes this one's.
            if self.node(id).inode.load(Ordering::Relaxed) == self.id.0 {
                self.attach(id);
            }
        }
        self.end();
    }
}

/// Iterates over locks that meet a range, each found in O(log n) or less.
pub(crate) struct Meeting<'l, 't, 'r> {
    locks: &'l Locks<'t, 'r>,
    range: ByteRange,
    key: LockKey,
    /// Nodes whose left subtrees have been visited.
    path: Path,
    at: LockId,
}

impl<'r> Iterator for Meeting<'_, '_, 'r> {
    type Item = (LockId, &'r LockRecord);

    fn next(&mut self) -> Option<Self::Item> {
        let locks = self.locks;
        // Bounded, as a damaged tree may be a ring.
        for _ in 0..2 * LOCKS {
            if self.at.is_some() && locks.last(self.at) >= self.range.start {
                let node = locks.node(self.at);
                if locks.key(self.at) <= self.key {
                    self.at = LockId(node.right.load(Ordering::Relaxed));
                } else if self.path.push(self.at) {
                    self.at = LockId(node.link.load(Ordering::Relaxed));
                } else {
                    return None;
                }
                continue;
            }
            let id = self.path.pop()?;
            let node = locks.node(id);
            if node.start.load(Ordering::Relaxed) > self.range.end {
                self.path.length = 0;
                self.at = LockId::NONE;
                return None;
            }
            self.at = LockId(node.right.load(Ordering::Relaxed));
            if node.end.load(Ordering::Relaxed) >= self.range.start {
                return Some((id, node));
            }
        }
        None
    }
}

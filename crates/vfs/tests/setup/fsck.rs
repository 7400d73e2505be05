//! Checks every rule that directories, entries and the hash table keep between calls.

use std::collections::{BTreeMap, BTreeSet};

use lp_abi::NAME_MAX;
use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_region::lane::Lane;
use lp_region::layout::LANE_BITS;
use lp_region::records::{Bucket, Dirent, Inode, LongName, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, LaneId, OverflowId, Region};
use lp_vfs::dir::{Leaf, PER_LEAF};
use lp_vfs::name::Name;
use lp_vfs::{Task, dirent, hash, map};

/// What a whole file system consists of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Directories still to be looked at, with their paths.
    pending: Vec<(InodeId, String)>,
    /// Path, type and links of everything.
    pub tree: BTreeMap<String, (u32, u32)>,
    /// Entries.
    pub entries: BTreeSet<u32>,
    /// Names seen of each inode that is no directory.
    names: BTreeMap<u32, u32>,
}

/// Checks the file system below a root and gives what is in it.
pub fn check(task: &Task, root: InodeId) -> Found {
    let mut found = Found::default();
    // Not by recursion: directories may lie thousands deep.
    found.pending.push((root, String::new()));
    while let Some((id, path)) = found.pending.pop() {
        directory(task, id, path, &mut found);
    }
    for (inode, names) in &found.names {
        let nlink = task.region.inode(InodeId(*inode)).nlink.load(Ordering::Relaxed);
        assert_eq!(nlink, *names, "links of inode {inode}");
    }
    table(task.region, &found);
    found
}

fn directory(task: &Task, id: InodeId, path: String, found: &mut Found) {
    let region = task.region;
    let inode = region.inode(id);
    even(inode, &path);
    let tail = inode.tail.load(Ordering::Relaxed);
    let (mut live, mut below) = (0, 0);
    let mut index = 0;
    // One page more than needed: nothing may stand behind the tail.
    while index <= tail / PER_LEAF + 1 {
        let Some(leaf) = Leaf::new(region, map::get(region, inode, index)) else {
            index += 1;
            continue;
        };
        let mut here = 0;
        for position in index * PER_LEAF..(index + 1) * PER_LEAF {
            let entry = DirentId(leaf.entry(position).load(Ordering::Relaxed));
            if entry.is_none() {
                continue;
            }
            here += 1;
            assert!(position < tail, "{path}: an entry behind the tail");
            assert!(found.entries.insert(entry.0), "{path}: entry {} stands twice", entry.0);
            let record = region.dirent(entry);
            assert_eq!(record.parent.load(Ordering::Relaxed), id.0, "{path}: parent of an entry");
            assert_eq!(record.position.load(Ordering::Relaxed), position, "{path}: position of an entry");
            below += entry_of(task, id, entry, record, &path, found);
        }
        assert_eq!(
            region.page_words(map::get(region, inode, index))[0].load(Ordering::Relaxed),
            here,
            "{path}: count"
        );
        live += here;
        index += 1;
    }
    assert_eq!(inode.entries.load(Ordering::Relaxed), live, "{path}: entries");
    assert_eq!(inode.nlink.load(Ordering::Relaxed), 2 + below, "{path}: links of a directory");
}

/// 1 for a directory.
fn entry_of(
    task: &Task,
    dir: InodeId,
    entry: DirentId,
    record: &Dirent,
    path: &str,
    found: &mut Found,
) -> u32 {
    let region = task.region;
    let mut bytes = [0; NAME_MAX];
    let length = dirent::copy_name(region, record, &mut bytes);
    let path = format!("{path}/{}", String::from_utf8_lossy(&bytes[..length]));
    let hit = hash::lookup(region, dir, &Name::new(&bytes[..length]).unwrap());
    let hit = hit.unwrap_or_else(|| panic!("{path} is listed but not found"));
    assert_eq!(hit.dirent(), entry, "{path}: found another entry");
    let target = region.inode(hit.target().id);
    assert_eq!(
        target.generation.load(Ordering::Relaxed),
        hit.target().generation,
        "{path}: names a free inode"
    );
    even(target, &path);
    let mode = target.mode.load(Ordering::Relaxed);
    assert_eq!(record.shape.load(Ordering::Relaxed) >> 8, dirent::type_of(mode), "{path}: type");
    found.tree.insert(path.clone(), (mode, target.nlink.load(Ordering::Relaxed)));
    if mode & S_IFMT != S_IFDIR {
        *found.names.entry(hit.target().id.0).or_default() += 1;
        return 0;
    }
    assert_eq!(target.parent.load(Ordering::Relaxed), dir.0, "{path}: parent");
    assert_eq!(target.self_dirent.load(Ordering::Relaxed), entry.0, "{path}: own entry");
    assert_eq!(target.flags.load(Ordering::Relaxed) & inode_flags::DEAD, 0, "{path}: dead");
    found.pending.push((hit.target().id, path));
    1
}

fn even(inode: &Inode, path: &str) {
    assert_eq!(inode.seq.read() & 1, 0, "{path}: attributes left half changed");
    assert_eq!(inode.data_seq.read() & 1, 0, "{path}: content left half changed");
}

/// Every entry stands in the table once, and nothing else does.
fn table(region: Region, found: &Found) {
    let state = region.header().hash_state.load(Ordering::Relaxed);
    let buckets = (1 << (6 + state as u32)) + (state >> 32) as u32;
    let mut seen = BTreeSet::new();
    for index in 0..buckets {
        let mut bucket: &Bucket = region.bucket(index);
        assert_eq!(bucket.seq.read() & 1, 0, "bucket {index} left half changed");
        loop {
            for entry in &bucket.entries {
                let word = entry.load(Ordering::Relaxed);
                if word != 0 {
                    assert!(seen.insert(word as u32), "entry {} hangs on twice", word as u32);
                }
            }
            let next = OverflowId(bucket.next.load(Ordering::Relaxed));
            if next.is_none() {
                break;
            }
            bucket = region.overflow(next);
        }
    }
    assert_eq!(seen, found.entries, "the table holds what directories do not, or the reverse");
}

/// Slots of a slab that are in use: ever handed out, less those on the shared stack and in the lanes; none may be free
/// twice.
pub fn used<T: Slot>(task: &Task) -> usize {
    let region = task.region;
    let head = &region.header().slabs[T::SLAB];
    let mut free = BTreeSet::new();
    let mut next = head.free.load(Ordering::Relaxed) as u32;
    while next != 0 {
        assert!(free.insert(next), "slot {next} of slab {} is free twice", T::SLAB);
        next = region.slot::<T>(next).link().load(Ordering::Relaxed);
    }
    for index in 1..region.header().lane_limit.load(Ordering::Relaxed) {
        assert!(index < 1 << LANE_BITS);
        let lane: &Lane = region.lane(LaneId(index));
        let count = lane.caches[T::SLAB].count.load(Ordering::Relaxed) as usize;
        for slot in &lane.caches[T::SLAB].slots[..count] {
            let slot = slot.load(Ordering::Relaxed);
            assert!(free.insert(slot), "slot {slot} of slab {} is free twice", T::SLAB);
        }
    }
    head.fresh.load(Ordering::Relaxed) as usize - free.len()
}

/// Slots in use of everything that names are made of.
pub fn slots(task: &Task) -> [usize; 4] {
    [used::<Dirent>(task), used::<Inode>(task), used::<LongName>(task), used::<Bucket>(task)]
}

/// Fills the lane's caches: what a death during their filling loses is no call's business.
pub fn warm(task: &Task) {
    fn one<T: Slot>(task: &Task) {
        let id = task.region.take::<T>(task.lane).expect("a slot");
        task.region.give::<T>(task.lane, id);
        task.region.settle::<T>(task.lane);
    }
    one::<Dirent>(task);
    one::<Inode>(task);
    one::<LongName>(task);
    one::<Bucket>(task);
}

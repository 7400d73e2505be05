//! Names for what lies at an offset of a region: the record and the field.

use lp_region::lane::Lane;
use lp_region::layout::{
    BUCKET_SLAB, CHUNKS_AT, DATA_AT, DIRENT_SLAB, DIRENTS_FAR_AT, FD_TABLES_AT, FDS_IN_LANE, FILE_SLAB,
    HEADER_AT, INODE_SLAB, LANE_SIZE, LANES_AT, LOCK_SLAB, MAPPING_SLAB, MOUNTS_AT, NAME_SLAB, OVERFLOW_SLAB,
    OWNER_SLAB, PLANS_AT, PROCESS_IN_LANE, RUNS_AT, SUPERBLOCK_SIZE, SUPERBLOCKS_AT, UNLINKED_AT,
};
use lp_region::process::Process;
use lp_region::records::{Dirent, Header, Inode, LockRecord, OpenFile};
use std::mem::offset_of;

/// The fields of a record, in order of offset.
type Fields = &'static [(usize, &'static str)];

/// Names the fields of a structure with their offsets.
macro_rules! fields {
    ($record:ident: $($field:ident)*) => { &[$((offset_of!($record, $field), stringify!($field)),)*] };
}

const HEADER: Fields = fields!(Header: magic version checksum length data_pages identity inode_limit
    hash_state read_only tree roots tickets split_lock lane_limit chunk_limit chunk_hint process_limit slabs
    moves life in_file numbers boot flown programs shadows mount_turn mount_serial mount_limit frozen left);
const INODE: Fields = fields!(Inode: seq pages size atime mtime ctime ctime_nsec nlink mode uid gid zero
    number generation flags acl default_acl xattr rdev root parent self_dirent link lock data_seq map tail
    btime btime_nsec atime_due entries custody inline locks_lock locks moving);
const LANE: Fields = fields!(Lane: process tid id generation burial waits_for posix_wait shifting walked
    writing writing_depth pins changing seeking holding quiescent intent taken claims unlinked chains
    unlisting arrived kept moves closed caches pages moving reads answered passed bytes);
const PROCESS: Fields = fields!(Process: life pid run pid_namespace fd_limit threads umask ruid fsuid fsgid
    caps group_count permitted fsize_limit cwd exe mappings exe_dirent first_lane rgid limited attached root
    births keeper parked table_lock next_domain moves threads_gone overflow_ids next_home users exe_parent
    unused periods closed posix_locks domain gate_words id_maps unused_last groups);
const FILE: Fields = fields!(OpenFile: inode flags mode generation parent dirent shared closed_by unused
    position lock link locked in_flight custody);
const DIRENT: Fields = fields!(Dirent: target position parent hash seq shape long link name);
const LOCK: Fields = fields!(LockRecord: start end last kind family owner owner_generation link right pid
    version waiters inode);

/// Slabs in order of offset: where they start, the record's name and size, its fields.
const SLABS: &[(usize, &str, usize, Fields)] = &[
    (HEADER_AT, "header", 4096, HEADER),
    (MOUNTS_AT, "mount", 128, &[]),
    (RUNS_AT, "run", 16384, &[]),
    (SUPERBLOCKS_AT, "superblock", SUPERBLOCK_SIZE, &[]),
    (LANES_AT, "lane", LANE_SIZE, LANE),
    (BUCKET_SLAB.all().start, "bucket", 64, &[]),
    (FILE_SLAB.all().start, "open file", 128, FILE),
    (DIRENT_SLAB.all().start, "dirent", 64, DIRENT),
    (INODE_SLAB.all().start, "inode", 256, INODE),
    (DIRENTS_FAR_AT, "dirent", 64, DIRENT),
    (OVERFLOW_SLAB.all().start, "overflow bucket", 64, &[]),
    (NAME_SLAB.all().start, "long name", 256, &[]),
    (LOCK_SLAB.all().start, "lock record", 64, LOCK),
    (MAPPING_SLAB.all().start, "mapping", 64, &[]),
    (PLANS_AT, "plan", 4096, &[]),
    (UNLINKED_AT, "unlinked inodes", 8192, &[]),
    (FD_TABLES_AT, "descriptor table", 64, &[]),
    (OWNER_SLAB.all().start, "page owners", 64, &[]),
    (CHUNKS_AT, "chunk", 256, &[]),
    (DATA_AT, "page", 4096, &[]),
];

/// What lies at an offset: `inode.mtime`, `bucket`.
pub(super) fn name(offset: u64) -> String {
    let offset = offset as usize;
    let slab = SLABS.partition_point(|(start, ..)| *start <= offset).saturating_sub(1);
    let (start, mut record, size, mut fields) = SLABS[slab];
    let mut within = (offset - start) % size;
    // A process's record and the start of its descriptor table lie behind the lane with its number.
    if record == "lane" && within >= FDS_IN_LANE {
        (record, fields) = ("descriptor table", &[]);
    } else if record == "lane" && within >= PROCESS_IN_LANE {
        (record, fields, within) = ("process", PROCESS, within - PROCESS_IN_LANE);
    }
    match fields.partition_point(|(start, _)| *start <= within).checked_sub(1) {
        Some(field) => format!("{record}.{}", fields[field].1),
        None => record.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_names() {
        assert_eq!(name((INODE_SLAB.offset(3) + offset_of!(Inode, mtime) + 8) as u64), "inode.mtime");
        assert_eq!(name((LANES_AT + 2 * LANE_SIZE + offset_of!(Lane, pins)) as u64), "lane.pins");
        assert_eq!(
            name((LANES_AT + 2 * LANE_SIZE + PROCESS_IN_LANE + offset_of!(Process, cwd)) as u64),
            "process.cwd"
        );
        assert_eq!(name((LANES_AT + LANE_SIZE + FDS_IN_LANE + 64) as u64), "descriptor table");
        assert_eq!(name(BUCKET_SLAB.offset(1) as u64), "bucket");
        assert_eq!(name((DIRENT_SLAB.offset(7) + offset_of!(Dirent, parent)) as u64), "dirent.parent");
        assert_eq!(name((DATA_AT + 5000) as u64), "page");
    }

    #[test]
    fn slabs_and_fields_ascend() {
        assert!(SLABS.is_sorted_by_key(|(start, ..)| *start));
        assert!(SLABS.iter().all(|(.., fields)| fields.is_sorted_by_key(|(start, _)| *start)));
    }
}

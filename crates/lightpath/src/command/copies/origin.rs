//! What a region notes of the file that content comes from.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use lp_vfs::below::list::Record;

/// What a record says of something on the host.
pub(crate) fn record_of(found: &Metadata) -> Record {
    // Not every file system has a time of birth.
    let birth = found.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let birth = birth.unwrap_or_default();
    Record {
        dev: found.dev(),
        ino: found.ino(),
        size: found.size(),
        blocks: found.blocks(),
        seconds: [found.atime(), found.mtime(), found.ctime(), birth.as_secs() as i64],
        nanoseconds: [
            found.atime_nsec() as u32,
            found.mtime_nsec() as u32,
            found.ctime_nsec() as u32,
            birth.subsec_nanos(),
        ],
        mode: found.mode(),
        uid: found.uid(),
        gid: found.gid(),
        nlink: found.nlink() as u32,
        rdev: found.rdev() as u32,
        ..Record::default()
    }
}

//! A quick look at the directories of a session as a run begins: which of them may have changed on the host.
//!
//! It takes one system call for each name that the session has seen, and two more for each directory. Only
//! the directories that it finds are compared thoroughly ([`super::renew`]).

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lp_abi::Errno;
use lp_region::{InodeId, InodeRef, Region};
use lp_vfs::below::list::{self, NameRoom, Record, RecordAt};
use lp_vfs::below::{has_listing, is_pending};
use lp_vfs::hash;
use lp_vfs::name::Name;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};

use super::host;
use super::tree::{Old, error, is_dir, kind};

/// What was found.
#[derive(Default)]
pub(super) struct Glance {
    /// The directories whose names have all been looked at.
    pub(crate) looked: HashSet<RecordAt>,
    /// Those that may have changed, with their paths below the session's.
    pub(crate) differing: Vec<(PathBuf, Old)>,
}

/// A directory that is in its place.
struct Directory {
    path: PathBuf,
    old: Old,
    /// Whether it has the times that were seen.
    unchanged: bool,
}

impl Glance {
    /// Looks at all that is below a root of the session, of which the host has what was seen. `over` is what
    /// paths are relative to; `unchanged`: whether the root has the times that were seen.
    pub(crate) fn look(
        &mut self,
        region: Region<'_>,
        over: &Path,
        (path, old): (&Path, &Old),
        unchanged: bool,
    ) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let over = rustix::fs::openat(CWD, over, flags, Mode::empty())?;
        let mut left = vec![Directory { path: path.to_owned(), old: *old, unchanged }];
        while let Some(next) = left.pop() {
            match is_unchanged(region, &over, &next, &mut left) {
                Ok(unchanged) => {
                    self.looked.insert(next.old.at);
                    if !unchanged {
                        self.differing.push((next.path, next.old));
                    }
                }
                Err(_) => self.differing.push((next.path, next.old)),
            }
        }
        Ok(())
    }
}

/// Whether the host has what was seen of a directory and of the names in it. Adds the directories in it that
/// are what they were, and that the session has left in their place.
fn is_unchanged(
    region: Region<'_>,
    over: &OwnedFd,
    dir: &Directory,
    left: &mut Vec<Directory>,
) -> io::Result<bool> {
    let (seen, target) = (&dir.old.seen, dir.old.seen.target());
    if seen.list == 0 {
        return Ok(dir.unchanged);
    }
    let there = host::open(over, &dir.path)?;
    // Names that are still to be made of the list are made by who compares thoroughly. Of those that are only
    // listed nothing has been seen that could change, except for the times of their directory.
    let inode = region.inode(target.id);
    let mut unchanged = dir.unchanged && (!is_pending(inode) || has_listing(inode));
    let mut room: NameRoom = [0; size_of::<NameRoom>()];
    let walked = list::each(region, InodeId(seen.list), list::FIRST, |at, seen| {
        let length = list::name(region, at, seen, &mut room)?.len();
        let name = CStr::from_bytes_with_nul(&room[..=length]).map_err(|_| Errno::EIO)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        match rustix::fs::statat(&there, name, flags).ok().filter(|found| is_same(found, seen)) {
            Some(found) if seen.target != 0 => {
                let name = name.to_bytes();
                if is_dir(seen.mode) && stands(region, target.id, name)? == Some(seen.target()) {
                    let (path, old) = (dir.path.join(OsStr::from_bytes(name)), Old { at, seen: *seen });
                    left.push(Directory { path, old, unchanged: has_times(&found, seen) });
                }
            }
            _ => unchanged = false,
        }
        Ok(true)
    });
    walked.map_err(error)?;
    Ok(unchanged)
}

/// What a name is in the session.
fn stands(region: Region<'_>, dir: InodeId, name: &[u8]) -> lp_abi::Result<Option<InodeRef>> {
    Ok(hash::lookup(region, dir, &Name::new(name)?).map(|hit| hit.target()))
}

/// Whether modification and change time are those that were seen.
fn has_times(found: &Stat, seen: &Record) -> bool {
    let mtime = (found.st_mtime, found.st_mtime_nsec as u32);
    mtime == (seen.seconds[1], seen.nanoseconds[1]) && has_ctime(found, seen)
}

fn has_ctime(found: &Stat, seen: &Record) -> bool {
    (found.st_ctime, found.st_ctime_nsec as u32) == (seen.seconds[2], seen.nanoseconds[2])
}

/// `is_same` of `renew.rs`, of what was not copied to a record.
fn is_same(found: &Stat, seen: &Record) -> bool {
    let is_it = (found.st_dev, found.st_ino, kind(found.st_mode)) == (seen.dev, seen.ino, kind(seen.mode));
    is_it && (is_dir(seen.mode) || found.st_size as u64 == seen.size && has_ctime(found, seen))
}

//! Putting one name of a session in its place on the host.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use super::apply::Writer;
use super::changes::{Change, New, Tree, kind};
use super::content::{Xattrs, host_xattrs};

/// Name of a file before it gets its own. One is made at a time, so that a later apply finds what one that
/// was killed left.
pub(super) const TEMPORARY: &str = ".lightpath-apply";
/// Bytes that are copied at a time.
const STEP: usize = 1 << 20;
impl Writer<'_> {
    /// Puts anything but a directory in its place.
    pub(super) fn put(
        &self,
        change: &Change,
        new: &New,
        written: &mut BTreeMap<u64, PathBuf>,
    ) -> io::Result<()> {
        let path = self.host(&change.path);
        let links = self.changes.links.get(&new.inode.to_word());
        let other = links.and_then(|links| links.iter().find(|link| link.is_there));
        let first = written.get(&new.inode.to_word()).cloned();
        if let Some(first) = first.or_else(|| other.map(|link| self.host(&link.path))) {
            return self.link(&first, &path);
        }
        let was_it = change.old.is_some_and(|old| old.seen.target() == new.inode) && !change.what.kind;
        let names = links.map_or(1, Vec::len);
        if was_it && !change.what.content {
            self.dress(&path, &change.path, new)?;
        } else if was_it && new.attributes.nlink as usize > names {
            // It has names on the host that nobody has looked at here: they stay its names.
            let file = OpenOptions::new().write(true).truncate(true).open(&path)?;
            self.fill(file, new)?;
            self.dress(&path, &change.path, new)?;
        } else {
            self.replace(&path, &change.path, new)?;
        }
        if names > 1 {
            written.insert(new.inode.to_word(), path);
        }
        Ok(())
    }

    fn link(&self, first: &Path, path: &Path) -> io::Result<()> {
        let same = |one: &Path, other: &Path| {
            let id = |path: &Path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino())).ok();
            id(one).is_some() && id(one) == id(other)
        };
        if same(first, path) {
            return Ok(());
        }
        let temporary = path.with_file_name(TEMPORARY);
        gone(fs::remove_file(&temporary))?;
        fs::hard_link(first, &temporary)?;
        fs::rename(temporary, path)
    }

    /// Makes it anew under a temporary name.
    fn replace(&self, path: &Path, below: &Path, new: &New) -> io::Result<()> {
        let temporary = path.with_file_name(TEMPORARY);
        gone(fs::remove_file(&temporary))?;
        let mode = new.attributes.mode;
        match kind(mode) {
            libc::S_IFREG => {
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
                self.fill(file, new)?;
            }
            libc::S_IFLNK => std::os::unix::fs::symlink(self.tree.target(new)?, &temporary)?,
            kind => {
                let device = u64::from(new.attributes.rdev);
                rustix::fs::mknodat(
                    CWD,
                    &temporary,
                    rustix::fs::FileType::from_raw_mode(kind),
                    Mode::from_raw_mode(0o600),
                    device,
                )?;
            }
        }
        self.dress(&temporary, below, new)?;
        fs::rename(temporary, path)
    }

    fn fill(&self, mut file: File, new: &New) -> io::Result<()> {
        let mut buffer = vec![0; STEP.min(new.attributes.size as usize)];
        let mut at = 0;
        while at < new.attributes.size {
            match self.tree.read(new, &mut buffer, at)? {
                0 => break,
                got => {
                    file.write_all(&buffer[..got])?;
                    at += got as u64;
                }
            }
        }
        Ok(())
    }

    /// Gives a file of the host owner, mode, extended attributes and times.
    pub(super) fn dress(&self, path: &Path, below: &Path, new: &New) -> io::Result<()> {
        self.tree.looks(below, new)?.give(path)
    }
}

impl Tree<'_> {
    /// What a file of the session has beside content.
    pub(super) fn looks(&self, path: &Path, new: &New) -> io::Result<Looks> {
        let wanted = &new.attributes;
        let time = |time: lp_vfs::Time| Timespec { tv_sec: time.sec, tv_nsec: i64::from(time.nsec) };
        let is_link = kind(wanted.mode) == libc::S_IFLNK;
        Ok(Looks {
            mode: wanted.mode,
            owner: (wanted.uid, wanted.gid),
            atime: time(wanted.atime),
            mtime: time(wanted.mtime),
            xattrs: if is_link { Xattrs::new() } else { self.xattrs(path)? },
        })
    }
}

/// What a file has beside content.
#[derive(Clone)]
pub(super) struct Looks {
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) atime: Timespec,
    pub(super) mtime: Timespec,
    pub(super) xattrs: Xattrs,
}

impl Looks {
    /// Gives them to a file of the host.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(path)?;
        if (found.uid(), found.gid()) != self.owner {
            let owner = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
            rustix::fs::chownat(CWD, path, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if kind(self.mode) != libc::S_IFLNK {
            self.set_xattrs(path)?;
            // An ACL has changed the mode.
            if fs::symlink_metadata(path)?.mode() & 0o7777 != self.mode & 0o7777 {
                fs::set_permissions(path, Permissions::from_mode(self.mode & 0o7777))?;
            }
        }
        let times = Timestamps { last_access: self.atime, last_modification: self.mtime };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    fn set_xattrs(&self, path: &Path) -> io::Result<()> {
        let (wanted, found) = (&self.xattrs, host_xattrs(path)?);
        for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
            rustix::fs::lremovexattr(path, OsStr::from_bytes(name))?;
        }
        for (name, value) in wanted.iter().filter(|(name, value)| found.get(*name) != Some(value)) {
            rustix::fs::lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty())?;
        }
        Ok(())
    }
}

/// The removal of what may be gone already.
pub(super) fn gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        done => done,
    }
}

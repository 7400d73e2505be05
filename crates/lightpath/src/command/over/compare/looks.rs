//! [`Looks`]: what a file has beside content.

use std::ffi::OsStr;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Timespec, Timestamps, Uid, XattrFlags};

use super::host::{self, Xattrs};
use super::tree::{New, Tree, kind};

impl Tree<'_> {
    /// What a file of the session has beside content.
    pub(crate) fn looks(&self, new: &New) -> io::Result<Looks> {
        let wanted = &new.attributes;
        let time = |time: lp_vfs::Time| Timespec { tv_sec: time.sec, tv_nsec: i64::from(time.nsec) };
        let is_link = kind(wanted.mode) == libc::S_IFLNK;
        Ok(Looks {
            mode: wanted.mode,
            owner: (wanted.uid, wanted.gid),
            atime: time(wanted.atime),
            mtime: time(wanted.mtime),
            xattrs: if is_link { Xattrs::new() } else { self.xattrs(new)? },
        })
    }
}

/// What a file has beside content.
#[derive(Clone)]
pub(crate) struct Looks {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) atime: Timespec,
    pub(crate) mtime: Timespec,
    pub(crate) xattrs: Xattrs,
}

impl Looks {
    /// Gives them to a file of the host.
    pub(crate) fn give(&self, path: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(path)?;
        if (found.uid(), found.gid()) != self.owner {
            let owner = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
            rustix::fs::chownat(CWD, path, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if kind(self.mode) != libc::S_IFLNK {
            self.set_xattrs(path)?;
            // An ACL has changed the mode.
            if fs::symlink_metadata(path)?.mode() & 0o7777 != self.mode & 0o7777 {
                let done = fs::set_permissions(path, Permissions::from_mode(self.mode & 0o7777));
                unless_anothers(&found, done)?;
            }
        }
        let times = Timestamps { last_access: self.atime, last_modification: self.mtime };
        let done = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
        unless_anothers(&found, done.map_err(Into::into))
    }

    fn set_xattrs(&self, path: &Path) -> io::Result<()> {
        let (wanted, found) = (&self.xattrs, host::xattrs(path)?);
        if *wanted == found {
            return Ok(());
        }
        // Attributes of users take the right to write, which nobody needs who only sets the mode.
        let there = fs::symlink_metadata(path)?;
        let is_own = there.uid() == rustix::process::geteuid().as_raw();
        if is_own && there.mode() & libc::S_IWUSR == 0 {
            let mode = there.mode() & 0o7777 | libc::S_IWUSR;
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
            rustix::fs::lremovexattr(path, OsStr::from_bytes(name))?;
        }
        for (name, value) in wanted.iter().filter(|(name, value)| found.get(*name) != Some(value)) {
            rustix::fs::lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty())?;
        }
        Ok(())
    }
}

/// What became of setting a mode or times. Only the owner may, in the session too: of what is another's, the
/// command has changed the content, and the kernel has done what that does to mode and times.
fn unless_anothers(found: &Metadata, done: io::Result<()>) -> io::Result<()> {
    let is_anothers = found.uid() != rustix::process::geteuid().as_raw();
    match done {
        Err(e) if is_anothers && e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

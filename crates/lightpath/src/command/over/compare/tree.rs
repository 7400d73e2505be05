//! [`Tree`]: what a session shows, and what its directories were when it saw them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lp_abi::Errno;
use lp_region::InodeRef;
use lp_vfs::below::list::{self, Record, RecordAt};
use lp_vfs::inode::{self, Attributes};
use lp_vfs::{Task, below, boot, watch};

use crate::command::session::kept::Kept;

/// What a session shows, and the directories below it.
pub(crate) struct Tree<'t> {
    pub(crate) task: &'t Task<'static>,
    /// What paths of the host are relative to.
    pub(crate) over: &'t Path,
    /// The paths of the directories, by the numbers of their roots.
    pub(crate) roots: Vec<PathBuf>,
}

/// What a name was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Old {
    pub(crate) at: RecordAt,
    pub(crate) seen: Record,
}

/// What a name is.
#[derive(Clone, Debug)]
pub(crate) struct New {
    pub(crate) inode: InodeRef,
    pub(crate) attributes: Attributes,
}

/// The type in a mode.
pub(crate) fn kind(mode: u32) -> u32 {
    mode & libc::S_IFMT
}

/// Whether a mode is a directory's.
pub(crate) fn is_dir(mode: u32) -> bool {
    kind(mode) == libc::S_IFDIR
}

/// An error of the file system's as one of the library's.
pub(crate) fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.number())
}

impl<'t> Tree<'t> {
    /// What a session shows.
    pub(crate) fn of(task: &'t Task<'static>, kept: &'t Kept) -> Self {
        Tree { task, over: kept.over.above(), roots: kept.over.below() }
    }

    /// The directories that the session is over, with their paths and what they were.
    pub(crate) fn roots(&self) -> impl Iterator<Item = io::Result<(&Path, Old, New)>> {
        self.roots.iter().enumerate().map(|(number, path)| {
            let root = boot::root(self.task, number).map_err(error)?;
            let record = self.task.region.inode(root.id);
            let at = below::spot(record).ok_or_else(|| error(Errno::EINVAL))?;
            Ok((path.as_path(), Old { at, seen: self.record(at)? }, self.seen(root)))
        })
    }

    pub(crate) fn record(&self, at: RecordAt) -> io::Result<Record> {
        list::record(self.task.region, at).map_err(error)
    }

    pub(crate) fn seen(&self, inode: InodeRef) -> New {
        let attributes = inode::attributes(self.task, inode.id, self.task.region.inode(inode.id));
        New { inode, attributes }
    }

    /// The names that a directory has.
    pub(crate) fn names_now(&self, new: &New) -> io::Result<BTreeMap<OsString, New>> {
        let record = self.task.region.inode(new.inode.id);
        if below::is_hosts(record) {
            return Ok(BTreeMap::new());
        }
        below::complete(self.task, record).map_err(error)?;
        self.entries_of(new)
    }

    /// The entries of a directory.
    pub(super) fn entries_of(&self, new: &New) -> io::Result<BTreeMap<OsString, New>> {
        let mut names = BTreeMap::new();
        watch::each_entry(self.task, new.inode.id, |entry, name, target| {
            if lp_vfs::dirent::lives(self.task.region.dirent(entry)) {
                names.insert(OsStr::from_bytes(name).to_owned(), self.seen(target));
            }
            Ok(())
        })
        .map_err(error)?;
        Ok(names)
    }
}

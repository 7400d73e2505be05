//! Unpacking a frozen region: what its first mount shows.
//!
//! A branch of it is opened in a child process, because a process keeps the descriptors of each region that
//! it has opened, and the command would inherit them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use lp_vfs::boot;

use super::unpacking::{Unpacking, What};
use super::why::Why;
use crate::command::cache::directory;
use crate::command::options::mountpoint::MountPoint;
use crate::command::options::run::Options;
use crate::command::over::compare::content::Bytes;
use crate::command::over::compare::tree::{self, New, Tree, is_dir, kind};
use crate::command::run::claim::Claim;
use crate::command::run::record::Paths;

/// Unpacks the region at `from` to `to`, which is not there.
pub(super) fn unpack(from: &Path, to: &Path) -> Result<(), Why> {
    let (mut reader, writer) = io::pipe().map_err(|e| Why::at(from, &e))?;
    // SAFETY: no other thread runs, so the child may do whatever a process may.
    match unsafe { libc::fork() } {
        -1 => Err(Why::at(from, &io::Error::last_os_error())),
        0 => {
            drop(reader);
            let done = in_child(from, to);
            let mut writer = writer;
            let text = done.err().map(|why| why.text().to_owned()).unwrap_or_default();
            let written = io::Write::write_all(&mut writer, text.as_bytes()).is_ok();
            // SAFETY: ends the child without running what the parent has registered for its own exit.
            unsafe { libc::_exit(i32::from(!(written && text.is_empty()))) }
        }
        child => {
            drop(writer);
            let text = io::read_to_string(&mut reader).unwrap_or_default();
            let mut status = 0;
            // SAFETY: the child is this process's own.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            match status {
                0 => Ok(()),
                _ if text.is_empty() => {
                    Err(Why::new("could not be unpacked: the process that does it was killed"))
                }
                _ => Err(Why::new(text)),
            }
        }
    }
}

fn in_child(from: &Path, to: &Path) -> Result<(), Why> {
    let cache = directory::find().map_err(Why::new)?;
    let point = MountPoint::default();
    let options = Options { at: vec![point.clone()], from: Some(from.to_owned()), ..Options::default() };
    let paths = Paths::without_command(&cache);
    let claim = Claim::open(&options, &paths).map_err(|failure| Why::new(failure.to_string()))?;
    let mut to = Unpacking::begin(to)?;
    let put = claim.with_task(|task| {
        let (over, roots) = (point.path(), vec![PathBuf::new()]);
        whole(&Tree { task, over, roots }, &mut to)
    });
    put.map_err(|e| Why::at(from, &tree::error(e)))??;
    to.end()
}

/// Puts everything below the root, and the root's own attributes.
fn whole(tree: &Tree<'_>, to: &mut Unpacking) -> Result<(), Why> {
    let root = boot::root(tree.task, 0).map_err(|e| Why::at(Path::new("."), &tree::error(e)))?;
    let mut left: Vec<(PathBuf, New)> = vec![(PathBuf::new(), tree.seen(root))];
    let mut first = BTreeMap::new();
    while let Some((path, new)) = left.pop() {
        let fail = |e: io::Error| Why::at(&path, &e);
        let looks = tree.looks(&new).map_err(fail)?;
        let word = new.inode.to_word();
        let name = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
        match kind(new.attributes.mode) {
            // A socket without a process has no use.
            libc::S_IFSOCK => {}
            _ if first.contains_key(&word) => {
                to.put(name, What::Link(PathBuf::clone(&first[&word])), looks)?;
            }
            libc::S_IFDIR => to.put(name, What::Directory, looks)?,
            libc::S_IFREG => {
                let (mut content, size) = (Bytes { tree, of: &new, at: 0 }, new.attributes.size);
                to.put(name, What::File { content: &mut content, parts: from_ref(&(0..size)), size }, looks)?;
            }
            libc::S_IFLNK => to.put(name, What::Symlink(tree.target(&new).map_err(fail)?), looks)?,
            _ => to.put(name, What::Node(u64::from(new.attributes.rdev)), looks)?,
        }
        if is_dir(new.attributes.mode) {
            let names = tree.names_now(&new).map_err(fail)?;
            left.extend(names.into_iter().rev().map(|(name, new)| (path.join(name), new)));
        } else if new.attributes.nlink > 1 {
            first.entry(word).or_insert(path);
        }
    }
    Ok(())
}

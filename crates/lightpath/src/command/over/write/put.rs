//! Putting one name of a session in its place on the host.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lp_abi::PAGE_SIZE;
use lp_region::Region;
use lp_vfs::map;
use rustix::fs::{CWD, Mode};

use super::writer::Writer;
use crate::command::over::compare::changes::Change;
use crate::command::over::compare::tree::{New, kind};
use crate::command::session::remove::gone;

/// Bytes that are copied at a time.
const STEP: usize = 1 << 20;

impl Writer<'_> {
    /// Puts anything but a directory in its place.
    pub(crate) fn put(
        &self,
        change: &Change,
        new: &New,
        written: &mut BTreeMap<u64, PathBuf>,
    ) -> io::Result<()> {
        let path = self.host(&change.path)?;
        let links = self.changes.links.get(&new.inode.to_word());
        let other = links.and_then(|links| links.iter().find(|link| link.is_there));
        let first = written.get(&new.inode.to_word()).cloned();
        if let Some(first) = first.or_else(|| other.map(|link| link.path.clone())) {
            return self.link(&self.host(&first)?, &path);
        }
        let was_it = change.old.is_some_and(|old| old.seen.target() == new.inode)
            && !change.what.kind
            && fs::symlink_metadata(&path).is_ok();
        let names = links.map_or(1, Vec::len);
        if was_it && !change.what.content {
            self.dress(&path, new)?;
        } else if was_it && new.attributes.nlink as usize > names {
            // It has names on the host that nobody has looked at here: they stay its names.
            self.rewrite(&path, new)?;
        } else {
            match self.replace(&path, new) {
                // It is another user's, who alone may own what is made in its place; or something is mounted
                // on it.
                Err(e)
                    if was_it
                        && (may_not(&e) || e.kind() == io::ErrorKind::ResourceBusy)
                        && kind(new.attributes.mode) == libc::S_IFREG =>
                {
                    self.rewrite(&path, new)?;
                }
                Err(e) if may_not(&e) && change.from.is_some() => self.rename(change, new, e)?,
                done => done?,
            }
        }
        if names > 1 {
            written.insert(new.inode.to_word(), change.path.clone());
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
        let temporary = path.with_file_name(&self.temporary);
        gone(fs::remove_file(&temporary))?;
        fs::hard_link(first, &temporary)?;
        fs::rename(temporary, path)
    }

    /// Gives another user's file its new name, under which only that user could make it anew: `error`.
    fn rename(&self, change: &Change, new: &New, error: io::Error) -> io::Result<()> {
        let path = self.host(&change.path)?;
        let is_from = |other: &&Change| Some(&other.path) == change.from.as_ref();
        let gone = self.changes.all.iter().find(is_from);
        let Some(old) = gone.and_then(|gone| gone.old) else { return Err(error) };
        let is_it = |path: &Path| {
            let found = fs::symlink_metadata(path);
            found.is_ok_and(|found| (found.dev(), found.ino()) == (old.seen.dev, old.seen.ino))
        };
        // One that was interrupted may have done it.
        if !is_it(&path) {
            let from = change.from.as_deref().map(|from| self.host(from)).transpose()?;
            let from = from.filter(|from| is_it(from)).ok_or(error)?;
            fs::rename(from, &path)?;
        }
        match kind(new.attributes.mode) == libc::S_IFREG && !self.tree.has_content(new, &path)? {
            true => self.rewrite(&path, new),
            false => self.dress(&path, new),
        }
    }

    /// Writes the content to the file that is there.
    fn rewrite(&self, path: &Path, new: &New) -> io::Result<()> {
        let file = OpenOptions::new().write(true).truncate(true).open(path)?;
        self.fill(&file, new)?;
        self.dress(path, new)
    }

    /// Makes it anew under a temporary name.
    fn replace(&self, path: &Path, new: &New) -> io::Result<()> {
        let temporary = path.with_file_name(&self.temporary);
        gone(fs::remove_file(&temporary))?;
        if let Err(e) = self.make(&temporary, new) {
            // It takes space that may be what is missing.
            let _ = fs::remove_file(&temporary);
            return Err(e);
        }
        fs::rename(&temporary, path).inspect_err(|_| {
            // The directory is sticky, and the file another user's.
            let _ = fs::remove_file(&temporary);
        })
    }

    fn make(&self, path: &Path, new: &New) -> io::Result<()> {
        let mode = new.attributes.mode;
        match kind(mode) {
            libc::S_IFREG => {
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
                self.fill(&file, new)?;
            }
            libc::S_IFLNK => std::os::unix::fs::symlink(self.tree.target(new)?, path)?,
            kind => {
                let device = u64::from(new.attributes.rdev);
                rustix::fs::mknodat(
                    CWD,
                    path,
                    rustix::fs::FileType::from_raw_mode(kind),
                    Mode::from_raw_mode(0o600),
                    device,
                )?;
            }
        }
        self.dress(path, new)
    }

    /// Gives an empty file of the host the content. Holes stay holes.
    fn fill(&self, file: &File, new: &New) -> io::Result<()> {
        let (region, size) = (self.tree.task.region, new.attributes.size);
        let inode = region.inode(new.inode.id);
        file.set_len(size)?;
        let mut index = 0;
        while let Some(piece) = map::next(region, inode, &mut index) {
            let at = index * PAGE_SIZE as u64;
            if at >= size {
                break;
            }
            let length = (piece.len * PAGE_SIZE as u64).min(size - at);
            let done =
                region.page_offset(piece.page).map_or(0, |from| share(region, from as u64, file, at, length));
            self.write_range(file, new, at + done, at + length)?;
            index += piece.len;
        }
        Ok(())
    }

    /// Writes a range of the content.
    fn write_range(&self, file: &File, new: &New, mut at: u64, end: u64) -> io::Result<()> {
        let mut buffer = vec![0; STEP.min((end - at) as usize)];
        while at < end {
            let most = buffer.len().min((end - at) as usize);
            match self.tree.read(new, &mut buffer[..most], at)? {
                0 => break,
                got => {
                    file.write_all_at(&buffer[..got], at)?;
                    at += got as u64;
                }
            }
        }
        Ok(())
    }

    /// Gives a file of the host owner, mode, extended attributes and times.
    pub(super) fn dress(&self, path: &Path, new: &New) -> io::Result<()> {
        self.tree.looks(new)?.give(path)
    }
}

/// Whether an error says that only the owner may.
fn may_not(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EPERM)
}

/// Lets the host copy or share blocks of the region's file. Returns how many bytes it has: fewer if its file
/// systems do not.
fn share(region: Region<'_>, from: u64, to: &File, at: u64, length: u64) -> u64 {
    // SAFETY: the region's descriptor stays open while the region is mapped.
    let region = unsafe { BorrowedFd::borrow_raw(region.fd().raw()) };
    let mut done = 0;
    while done < length {
        let (mut from, mut at) = (from + done, at + done);
        match rustix::fs::copy_file_range(
            region,
            Some(&mut from),
            to,
            Some(&mut at),
            (length - done) as usize,
        ) {
            Ok(got) if got != 0 => done += got as u64,
            _ => break,
        }
    }
    done
}

//! What files of a session hold: content, targets, extended attributes.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use lp_abi::{UserPtr, UserSlice};
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;
use lp_vfs::{below, link_target, read, xattr};

use super::host::{XATTR_MAX, Xattrs};
use super::tree::{New, Tree, error};

impl Tree<'_> {
    /// Reads content of a file.
    pub(crate) fn read(&self, new: &New, to: &mut [u8], at: u64) -> io::Result<usize> {
        let record = self.task.region.inode(new.inode.id);
        below::complete(self.task, record).map_err(error)?;
        let left = record.size.load(Relaxed).saturating_sub(at); // Relaxed: checked by the copy.
        let length = (to.len() as u64).min(left) as usize;
        read::into(self.task.region, record, &mut to[..length], at).map_err(error)
    }

    /// Reads what is missing of a file's content and attributes.
    pub(crate) fn keep(&self, record: &Inode) -> io::Result<()> {
        below::complete(self.task, record)
            .and_then(|()| below::complete_attributes(self.task, record))
            .map_err(error)
    }

    /// Whether content of a file is still to be taken from the host, so that it is what it was.
    pub(crate) fn is_untaken(&self, new: &New) -> bool {
        below::is_pending(self.task.region.inode(new.inode.id))
    }

    /// All content of a file.
    pub(crate) fn content(&self, new: &New) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; new.attributes.size as usize];
        let mut done = 0;
        while done < bytes.len() {
            match self.read(new, &mut bytes[done..], done as u64)? {
                0 => bytes.truncate(done),
                got => done += got,
            }
        }
        Ok(bytes)
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&self, new: &New) -> io::Result<PathBuf> {
        let record = self.task.region.inode(new.inode.id);
        let mut target = vec![0; link_target::target_length(record)];
        link_target::copy_target(self.task, record, &mut target).map_err(error)?;
        Ok(OsString::from_vec(target).into())
    }

    /// The extended attributes of a file.
    pub(crate) fn xattrs(&self, new: &New) -> io::Result<Xattrs> {
        let id = new.inode.id;
        let mut names = vec![0; XATTR_MAX];
        let listed = xattr::listxattr_of(self.task, id, lent(&mut names)).map_err(error)?;
        let mut all = Xattrs::new();
        for name in names[..listed].split_inclusive(|byte| *byte == 0) {
            let mut value = vec![0; XATTR_MAX];
            // SAFETY: a NUL ends the name, which is only read; the call keeps no pointer.
            let name_at = unsafe { UserPtr::new(name.as_ptr()) };
            let got = xattr::getxattr_of(self.task, id, name_at, lent(&mut value)).map_err(error)?;
            value.truncate(got);
            all.insert(name[..name.len() - 1].to_vec(), value);
        }
        Ok(all)
    }
}

/// The bytes of a file of a session, one after the other.
pub(crate) struct Bytes<'t> {
    pub(crate) tree: &'t Tree<'t>,
    pub(crate) of: &'t New,
    pub(crate) at: u64,
}

impl io::Read for Bytes<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let got = self.tree.read(self.of, to, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

/// Room for a call to fill before the borrow ends.
fn lent(room: &mut [u8]) -> UserSlice {
    // SAFETY: nobody else has the room meanwhile, and the call keeps no pointer.
    unsafe { UserSlice::new(room.as_mut_ptr(), room.len()) }
}

//! What the host has at a path of a session's directory. Symbolic links on the way are not followed: where
//! the session has a directory, the host may have a link, and what that leads to is at another path.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest value or list of extended attributes.
pub(super) const XATTR_MAX: usize = 1 << 16;

/// Extended attributes by name.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is at `path` below `over`.
///
/// # Errors
/// `ENOTDIR` if what is above is no directory; those of lstat(2).
pub(crate) fn look(over: &Path, path: &Path) -> io::Result<Metadata> {
    if path.as_os_str().is_empty() {
        return fs::symlink_metadata(over);
    }
    let found = fs::symlink_metadata(over.join(path))?;
    for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if !fs::symlink_metadata(over.join(above))?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
    }
    Ok(found)
}

/// Whether an error says that nothing is there.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    // ELOOP: by a link that is on the way.
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ELOOP)
}

/// The extended attributes of a path of the host.
pub(crate) fn xattrs(path: &Path) -> io::Result<Xattrs> {
    let mut names = vec![0; XATTR_MAX];
    let listed = match rustix::fs::llistxattr(path, &mut names[..]) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOENT) => 0,
        listed => listed?,
    };
    let mut all = Xattrs::new();
    for name in names[..listed].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let known = [&b"user."[..], b"trusted.", b"security.", b"system.posix_acl_"];
        if known.iter().any(|space| name.starts_with(space)) {
            let mut value = vec![0; XATTR_MAX];
            let got = rustix::fs::lgetxattr(path, name, &mut value[..])?;
            value.truncate(got);
            all.insert(name.to_vec(), value);
        }
    }
    Ok(all)
}

/// What a file of the host holds, or where a symbolic link leads.
pub(crate) fn content(path: &Path) -> io::Result<Vec<u8>> {
    if fs::symlink_metadata(path)?.is_symlink() {
        return Ok(fs::read_link(path)?.as_os_str().as_bytes().to_vec());
    }
    fs::read(path)
}

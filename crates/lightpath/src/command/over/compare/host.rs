//! What the host has at a path of a session's directory. Symbolic links on the way are not followed: where
//! the session has a directory, the host may have a link, and what that leads to is at another path.
//!
//! Paths may be longer than calls take them (`PATH_MAX`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// Longest value or list of extended attributes.
pub(super) const XATTR_MAX: usize = 1 << 16;
/// Bytes that are compared at a time.
const STEP: usize = 1 << 16;

/// Extended attributes by name.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Longest path that is given to a call: with a temporary name in place of its last, less than `PATH_MAX`.
const LONGEST: usize = 4000;

/// A path of the host as calls take it.
pub(crate) struct Reached {
    path: PathBuf,
    /// A directory on the way, through whose descriptor a long path leads.
    through: Option<OwnedFd>,
}

impl Deref for Reached {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for Reached {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// A path below `over`, whole.
pub(crate) fn whole(over: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { over.to_owned() } else { over.join(path) }
}

/// Makes calls reach `path` below `over`.
///
/// # Errors
/// Of a long path, those of [`open`] for what is above.
pub(crate) fn reach(over: &Path, path: &Path) -> io::Result<Reached> {
    let whole = whole(over, path);
    if whole.as_os_str().len() <= LONGEST {
        return Ok(Reached { path: whole, through: None });
    }
    let (Some(above), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(ErrorKind::InvalidFilename.into());
    };
    let through = open(CWD, above)?;
    let path = Path::new("/proc/self/fd").join(through.as_raw_fd().to_string()).join(name);
    Ok(Reached { path, through: Some(through) })
}

/// Opens a directory by a path of any length. No symbolic link is followed.
///
/// # Errors
/// `ELOOP` or `ENOTDIR` for a link; those of openat2(2).
pub(super) fn open(from: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let step = |here: &Option<OwnedFd>, path: &[u8]| {
        let path = OsStr::from_bytes(if path.is_empty() { b"." } else { path });
        let here = here.as_ref().map_or(from.as_fd(), AsFd::as_fd);
        rustix::fs::openat2(here, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
    };
    let mut left = path.as_os_str().as_bytes();
    let mut here = None;
    while left.len() > LONGEST {
        let slash = left[..LONGEST].iter().rposition(|byte| *byte == b'/').filter(|slash| *slash > 0);
        let slash = slash.ok_or(ErrorKind::InvalidFilename)?;
        here = Some(step(&here, &left[..slash])?);
        left = &left[slash + 1..];
    }
    Ok(step(&here, left)?)
}

/// What is at `path` below `over`.
///
/// # Errors
/// Those of [`open`] for what is above; those of lstat(2).
pub(crate) fn look(over: &Path, path: &Path) -> io::Result<Metadata> {
    let at = reach(over, path)?;
    let found = fs::symlink_metadata(&at)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    // A long path is reached through what is above.
    if let Some(above) = above.filter(|_| at.through.is_none()) {
        open(CWD, &over.join(above))?;
    }
    Ok(found)
}

/// What a directory's owner needs to change what it holds.
pub(crate) const OWNERS: u32 = libc::S_IRWXU;

/// Whether the caller may give itself the right to change what a directory holds.
pub(crate) fn may_open_up(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == rustix::process::geteuid().as_raw()
}

/// Gives the caller the right to change what its directory at `path` holds. Does nothing if something else is
/// there.
///
/// # Errors
/// Those of [`reach`] and chmod(2).
pub(crate) fn open_up(over: &Path, path: &Path) -> io::Result<()> {
    let Ok(found) = look(over, path) else { return Ok(()) };
    let mode = found.mode() & 0o7777;
    match may_open_up(&found) && mode & OWNERS != OWNERS {
        true => fs::set_permissions(reach(over, path)?, Permissions::from_mode(mode | OWNERS)),
        false => Ok(()),
    }
}

/// Whether an error says that nothing is there.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    // ELOOP: by a link that is on the way.
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ELOOP)
}

/// What was asked of a path of the host; `None` if what was seen there has gone, is of another type, or may
/// not be read any more.
pub(super) fn unless_lost<T>(asked: io::Result<T>) -> io::Result<Option<T>> {
    match asked {
        Err(e) if is_absence(&e) => Ok(None),
        // EINVAL: no symbolic link.
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::PermissionDenied) => Ok(None),
        asked => asked.map(Some),
    }
}

/// Whether `read` gives, from here to its end, what `file` holds.
pub(crate) fn holds(
    mut file: File,
    mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> io::Result<bool> {
    let (mut wanted, mut found) = (vec![0; STEP], vec![0; STEP]);
    loop {
        let got = read(&mut wanted)?;
        match file.read_exact(&mut found[..got]) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            done => done?,
        }
        if wanted[..got] != found[..got] {
            return Ok(false);
        }
        if got == 0 {
            return Ok(file.read(&mut found)? == 0);
        }
    }
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
        // The other names of the namespace `security` are the kernel's own labels.
        let known = [&b"user."[..], b"trusted.", b"security.capability", b"system.posix_acl_"];
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
    let mut all = Vec::new();
    let file = regular(path)?.ok_or_else(|| io::Error::other("no regular file any more"))?;
    (&file).read_to_end(&mut all)?;
    Ok(all)
}

/// Opens a regular file of the host to be read; `None` if something else has taken its place. Opening a FIFO
/// would wait, and a device may do anything.
pub(crate) fn regular(path: &Path) -> io::Result<Option<File>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => return Ok(None),
        file => file?,
    };
    Ok(file.metadata()?.is_file().then_some(file))
}

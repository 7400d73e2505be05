//! [`Unpacking`]: puts the members of an archive in their places in a new directory.
//!
//! Only what it has made itself is ever followed: what a member is put into must have been a directory of the
//! archive, and what a hard link leads to a file of it. So no member lands outside.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, Timespec};
use rustix::process::{getegid, geteuid};

use super::why::Why;
use crate::command::over::compare::host::Xattrs;
use crate::command::over::compare::looks::Looks;
use crate::command::over::compare::tree::kind;

/// What a member is.
pub(super) enum What<'a> {
    Directory,
    /// Its content, where that goes, and its size with the holes.
    File {
        content: &'a mut dyn Read,
        parts: &'a [Range<u64>],
        size: u64,
    },
    /// Where it leads.
    Symlink(PathBuf),
    /// A name of a file that came before.
    Link(PathBuf),
    /// A FIFO or device.
    Node(u64),
}

/// A tree that is being unpacked.
pub(super) struct Unpacking {
    to: PathBuf,
    /// Types of what is there, by path.
    kinds: BTreeMap<PathBuf, u32>,
    /// What directories are to look like once all they hold is there.
    directories: BTreeMap<PathBuf, Looks>,
}

impl Unpacking {
    /// Begins at `to`, which is not there.
    pub(super) fn begin(to: &Path) -> Result<Unpacking, Why> {
        fs::DirBuilder::new().mode(0o700).create(to).map_err(|e| Why::at(to, &e))?;
        let (kinds, directories) = ([(PathBuf::new(), libc::S_IFDIR)].into(), BTreeMap::new());
        let mut begun = Unpacking { to: to.to_owned(), kinds, directories };
        begun.directories.insert(PathBuf::new(), plain_directory());
        Ok(begun)
    }

    /// Puts a member in its place. What its name is made of is checked here.
    pub(super) fn put(&mut self, name: &[u8], what: What<'_>, looks: Looks) -> Result<(), Why> {
        let path = inside(name)?;
        self.make_way(&path)?;
        let is_directory = matches!(what, What::Directory);
        match self.kinds.get(&path) {
            Some(&libc::S_IFDIR) if is_directory => {}
            Some(_) => return Err(Why::new(format!("holds {} twice", path.display()))),
            None => self.make(&path, what, &looks)?,
        }
        self.kinds.insert(path.clone(), if is_directory { libc::S_IFDIR } else { kind(looks.mode) });
        if is_directory {
            self.directories.insert(path, owned(looks));
        }
        Ok(())
    }

    /// Makes the directories above a path that no member has made.
    fn make_way(&mut self, path: &Path) -> Result<(), Why> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for above in above {
            match self.kinds.get(above) {
                Some(&libc::S_IFDIR) => {}
                Some(_) => {
                    let line = format!(
                        "holds {}, which is below {}: not a directory",
                        path.display(),
                        above.display()
                    );
                    return Err(Why::new(line));
                }
                None => {
                    self.make(above, What::Directory, &plain_directory())?;
                    self.kinds.insert(above.to_owned(), libc::S_IFDIR);
                    self.directories.insert(above.to_owned(), plain_directory());
                }
            }
        }
        Ok(())
    }

    fn make(&self, path: &Path, what: What<'_>, looks: &Looks) -> Result<(), Why> {
        let at = self.to.join(path);
        let fail = |e: io::Error| Why::at(path, &e);
        match what {
            What::Directory => {
                return fs::DirBuilder::new().mode(0o700).create(&at).map_err(fail);
            }
            What::Link(to) => {
                let first = inside(to.as_os_str().as_bytes())?;
                return match self.kinds.get(&first) {
                    Some(kind) if *kind != libc::S_IFDIR => {
                        fs::hard_link(self.to.join(first), &at).map_err(fail)
                    }
                    _ => {
                        let line = format!(
                            "holds {}, a link to {}, which no member before it is",
                            path.display(),
                            to.display()
                        );
                        Err(Why::new(line))
                    }
                };
            }
            What::File { content, parts, size } => {
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&at);
                let file = file.as_mut().map_err(|e| Why::at(path, e))?;
                // Reading fails for a broken archive, writing for a full disk; only the latter has a number.
                let why = |e: io::Error| match e.raw_os_error() {
                    Some(_) => Why::at(path, &e),
                    None => Why::broken(&e),
                };
                for part in parts {
                    file.seek(SeekFrom::Start(part.start)).map_err(fail)?;
                    let length = part.end - part.start;
                    if io::copy(&mut content.take(length), file).map_err(why)? != length {
                        return Err(Why::broken(&format!("{} is cut short", path.display())));
                    }
                }
                file.set_len(size).map_err(fail)?;
            }
            What::Symlink(to) => std::os::unix::fs::symlink(to, &at).map_err(fail)?,
            What::Node(device) => {
                let (node, mode) = (FileType::from_raw_mode(looks.mode), Mode::from_raw_mode(0o600));
                rustix::fs::mknodat(CWD, &at, node, mode, device).map_err(|e| fail(e.into()))?;
            }
        }
        owned(looks.clone()).give(&at).map_err(fail)
    }

    /// Ends it: directories get their modes and times.
    pub(super) fn end(self) -> Result<(), Why> {
        for (path, looks) in self.directories.iter().rev() {
            let at = if path.as_os_str().is_empty() { self.to.clone() } else { self.to.join(path) };
            looks.give(&at).map_err(|e| Why::at(path, &e))?;
        }
        Ok(())
    }
}

/// A member's name as a path below the tree.
fn inside(name: &[u8]) -> Result<PathBuf, Why> {
    let name = Path::new(OsStr::from_bytes(name));
    let mut path = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                return Err(Why::new(format!("holds a name with ..: {}", name.display())));
            }
            _ => return Err(Why::new(format!("holds an absolute name: {}", name.display()))),
        }
    }
    Ok(path)
}

/// As tar(1) does: only root gives files away, and sets attributes that are not a user's.
fn owned(looks: Looks) -> Looks {
    if geteuid().is_root() {
        return looks;
    }
    let mut xattrs: Xattrs = looks.xattrs;
    xattrs.retain(|name, _| name.starts_with(b"user.") || name.starts_with(b"system."));
    Looks { owner: own(), xattrs, ..looks }
}

/// The user and group of this process.
pub(super) fn own() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// The directory above a member, if the archive does not say what it looks like.
fn plain_directory() -> Looks {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = Timespec { tv_sec: now.as_secs() as i64, tv_nsec: 0 };
    Looks { mode: libc::S_IFDIR | 0o755, owner: own(), atime: now, mtime: now, xattrs: Xattrs::new() }
}

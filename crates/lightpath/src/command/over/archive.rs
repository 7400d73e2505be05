//! Members of an archive that is written: tar(5) with pax records for what its headers have no room for.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

use super::compare::host::Xattrs;
use super::compare::tree::kind;

/// How the pax record of an extended attribute starts.
pub(super) const XATTR: &str = "SCHILY.xattr.";
/// The pax record of an empty file that stands for a socket.
pub(super) const SOCKET: &str = "LIGHTPATH.socket";
/// Bytes that a header has for a name, or for where a link leads.
const ROOM: usize = 100;

/// A file, directory, link or node to be written.
pub(super) struct Member<'a> {
    /// Relative, without `..`.
    pub(super) path: &'a Path,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) rdev: u64,
    pub(super) size: u64,
    pub(super) mtime: (i64, u32),
    pub(super) xattrs: Xattrs,
    /// Where a symbolic link leads.
    pub(super) target: Option<PathBuf>,
    /// What its other names share, if it has any.
    pub(super) identity: Option<(u64, u64)>,
}

/// What becomes of sockets, which tar(5) has no word for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sockets {
    /// They are left out, as tar(1) does.
    LeftOut,
    /// They are empty files with the record [`SOCKET`].
    Marked,
}

/// An archive that is being written.
pub(super) struct Archive<W: Write> {
    to: Builder<W>,
    sockets: Sockets,
    /// First names of files that have several.
    first: BTreeMap<(u64, u64), PathBuf>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W, sockets: Sockets) -> Self {
        Archive { to: Builder::new(to), sockets, first: BTreeMap::new() }
    }

    /// Appends a member; `content` gives a file's bytes.
    pub(super) fn put(&mut self, member: &Member<'_>, content: impl Read) -> io::Result<()> {
        let mut header = Header::new_ustar();
        let mut records: Vec<(String, Vec<u8>)> = Vec::new();
        let linked = member.identity.and_then(|identity| self.first.get(&identity).cloned());
        let (entry, target) = match kind(member.mode) {
            _ if linked.is_some() => (EntryType::Link, linked.clone()),
            libc::S_IFDIR => (EntryType::Directory, None),
            libc::S_IFLNK => (EntryType::Symlink, member.target.clone()),
            libc::S_IFIFO => (EntryType::Fifo, None),
            libc::S_IFCHR => (EntryType::Char, None),
            libc::S_IFBLK => (EntryType::Block, None),
            libc::S_IFREG => (EntryType::Regular, None),
            libc::S_IFSOCK if self.sockets == Sockets::Marked => {
                records.push((SOCKET.to_owned(), Vec::new()));
                (EntryType::Regular, None)
            }
            _ => return Ok(()),
        };
        header.set_entry_type(entry);
        header.set_mode(member.mode & 0o7777);
        header.set_uid(u64::from(member.owner.0));
        header.set_gid(u64::from(member.owner.1));
        header.set_size(if kind(member.mode) == libc::S_IFREG && linked.is_none() { member.size } else { 0 });
        header.set_mtime(member.mtime.0.max(0) as u64);
        if matches!(entry, EntryType::Char | EntryType::Block) {
            header.set_device_major(rustix::fs::major(member.rdev))?;
            header.set_device_minor(rustix::fs::minor(member.rdev))?;
        }
        let name = member.path.as_os_str().as_bytes();
        if !fits(&mut header, name, |header, name| {
            header.as_old_mut().name[..name.len()].copy_from_slice(name)
        }) {
            records.push(("path".to_owned(), name.to_vec()));
        }
        if let Some(target) = &target {
            let target = target.as_os_str().as_bytes();
            if !fits(&mut header, target, |header, to| {
                header.as_old_mut().linkname[..to.len()].copy_from_slice(to)
            }) {
                records.push(("linkpath".to_owned(), target.to_vec()));
            }
        }
        let (seconds, nanoseconds) = member.mtime;
        if nanoseconds != 0 || seconds < 0 {
            records.push(("mtime".to_owned(), format!("{seconds}.{nanoseconds:09}").into()));
        }
        if linked.is_none() {
            let named = |(name, value): (&Vec<u8>, &Vec<u8>)| {
                Some((format!("{XATTR}{}", encoded(std::str::from_utf8(name).ok()?)), value.clone()))
            };
            records.extend(member.xattrs.iter().filter_map(named));
        }
        if !records.is_empty() {
            self.to.append_pax_extensions(records.iter().map(|(name, value)| (&name[..], &value[..])))?;
        }
        header.set_cksum();
        let size = header.entry_size()?;
        let mut content = Counted { from: content.take(size), count: 0 };
        self.to.append(&header, &mut content)?;
        if content.count != size {
            return Err(io::Error::other("has become shorter as it was read"));
        }
        if let (Some(identity), None) = (member.identity, linked) {
            self.first.insert(identity, member.path.to_owned());
        }
        Ok(())
    }

    /// Appends an empty file that says something by its name.
    pub(super) fn mark(&mut self, path: &Path) -> io::Result<()> {
        let member = Member {
            path,
            mode: libc::S_IFREG | 0o644,
            owner: (0, 0),
            rdev: 0,
            size: 0,
            mtime: (0, 0),
            xattrs: Xattrs::new(),
            target: None,
            identity: None,
        };
        self.put(&member, io::empty())
    }

    /// Ends it; what it was written to.
    pub(super) fn end(self) -> io::Result<W> {
        let mut to = self.to.into_inner()?;
        to.flush()?;
        Ok(to)
    }
}

/// Bytes with which an archive ends: one that more is to be appended to is cut by these.
pub(super) const END: u64 = 1024;

/// Passes bytes on and counts them.
struct Counted<R> {
    from: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(to)?;
        self.count += got as u64;
        Ok(got)
    }
}

/// Puts a name into its place in a header, if there is room.
fn fits(header: &mut Header, name: &[u8], put: impl Fn(&mut Header, &[u8])) -> bool {
    // What does not fit is cut for those who know no pax.
    put(header, &name[..name.len().min(ROOM)]);
    name.len() <= ROOM
}

/// The name of an extended attribute as GNU tar writes it: a record's name ends at its first equals sign.
fn encoded(name: &str) -> String {
    name.replace('%', "%25").replace('=', "%3D")
}

/// What [`encoded`] has made of a name.
pub(super) fn decoded(mut name: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    while let Some((first, rest)) = name.split_first() {
        let (byte, length) = match rest {
            [b'3', b'D', ..] if *first == b'%' => (b'=', 3),
            [b'2', b'5', ..] if *first == b'%' => (b'%', 3),
            _ => (*first, 1),
        };
        text.push(byte);
        name = &name[length..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_attributes_are_read_as_they_were_written() {
        for name in ["user.plain", "user.a=b", "user.%3D", "user.100%", "user.=%=", "user.%253D"] {
            assert!(!encoded(name).contains('='));
            assert_eq!(decoded(encoded(name).as_bytes()), name.as_bytes());
        }
        assert_eq!(decoded(b"user.%41%"), b"user.%41%");
    }
}

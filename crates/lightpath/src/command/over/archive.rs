//! Members of an archive: tar(5) with pax records for what its headers have no room for.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Timespec;
use tar::{Builder, Entry, EntryType, Header};

use super::compare::host::Xattrs;
use super::compare::looks::Looks;
use super::compare::tree::kind;

/// How the pax record of an extended attribute starts.
const XATTR: &str = "SCHILY.xattr.";
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

/// An archive that is being written.
pub(super) struct Archive<W: Write> {
    to: Builder<W>,
    /// First names of files that have several.
    first: BTreeMap<(u64, u64), PathBuf>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Self {
        Archive { to: Builder::new(to), first: BTreeMap::new() }
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
            // An archive has no word for a socket.
            _ => return Ok(()),
        };
        header.set_entry_type(entry);
        header.set_mode(member.mode & 0o7777);
        header.set_uid(u64::from(member.owner.0));
        header.set_gid(u64::from(member.owner.1));
        header.set_size(if entry == EntryType::Regular { member.size } else { 0 });
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
                Some((format!("{XATTR}{}", std::str::from_utf8(name).ok()?), value.clone()))
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

pub(super) fn type_of(entry: EntryType) -> u32 {
    match entry {
        EntryType::Directory => libc::S_IFDIR,
        EntryType::Symlink => libc::S_IFLNK,
        EntryType::Fifo => libc::S_IFIFO,
        EntryType::Char => libc::S_IFCHR,
        EntryType::Block => libc::S_IFBLK,
        _ => libc::S_IFREG,
    }
}

/// The number of a device; of a FIFO 0, because its fields may be empty.
pub(super) fn device_of(header: &Header) -> io::Result<u64> {
    if header.entry_type().is_fifo() {
        return Ok(0);
    }
    let (major, minor) = (header.device_major()?, header.device_minor()?);
    Ok(rustix::fs::makedev(major.unwrap_or(0), minor.unwrap_or(0)))
}

/// What a member has beside content.
pub(super) fn looks_of<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Looks> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "a record of a member is damaged");
    let header = entry.header();
    let mut owner = (header.uid()? as u32, header.gid()? as u32);
    let mode = header.mode()? & 0o7777 | type_of(header.entry_type());
    let mut mtime = Timespec { tv_sec: header.mtime()? as i64, tv_nsec: 0 };
    let mut xattrs = Xattrs::new();
    for record in entry.pax_extensions()?.into_iter().flatten() {
        let record = record?;
        let name = record.key().map_err(|_| bad())?;
        if let Some(name) = name.strip_prefix(XATTR) {
            xattrs.insert(name.as_bytes().to_vec(), record.value_bytes().to_vec());
            continue;
        }
        let text = || record.value().map_err(|_| bad());
        match name {
            "mtime" => mtime = time_of(text()?).ok_or_else(bad)?,
            "uid" => owner.0 = text()?.parse().map_err(|_| bad())?,
            "gid" => owner.1 = text()?.parse().map_err(|_| bad())?,
            _ => {}
        }
    }
    Ok(Looks { mode, owner, atime: mtime, mtime, xattrs })
}

/// A time of a pax record: seconds and a decimal fraction. What goes before 1970 has the fraction that
/// [`Archive::put`] writes, which counts up.
fn time_of(text: &str) -> Option<Timespec> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = fraction.get(..fraction.len().min(9))?;
    let scale = 10i64.pow(9 - digits.len() as u32);
    Some(Timespec { tv_sec: seconds.parse().ok()?, tv_nsec: digits.parse::<u32>().ok()? as i64 * scale })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_seconds_are_decimal() {
        let of = |text: &str| time_of(text).map(|time| (time.tv_sec, time.tv_nsec));
        assert_eq!(of("12"), Some((12, 0)));
        assert_eq!(of("12.5"), Some((12, 500_000_000)));
        assert_eq!(of("12.000000005"), Some((12, 5)));
        assert_eq!(of("12.0000000059"), Some((12, 5)));
        assert_eq!(of("-1.500000000"), Some((-1, 500_000_000)));
        assert_eq!(of("x"), None);
    }
}

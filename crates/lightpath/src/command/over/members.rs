//! Members of an archive that is read: tar(5) with what pax records and GNU tar add to its headers.

use std::io::{self, Read};
use std::ops::Range;

use rustix::fs::Timespec;
use tar_core::parse::{Limits, ParseEvent, ParsedEntry, Parser};
use tar_core::{EntryType, HEADER_SIZE, PaxExtensions, SparseEntry};

use super::archive::{SOCKET, XATTR, decoded};
use super::compare::host::Xattrs;
use super::compare::looks::Looks;

/// Most bytes of names and records before a member.
const RECORDS: u32 = 64 << 20;
/// Most parts of a sparse file.
const PARTS: usize = 1 << 20;

/// A member: what an archive says of it before its content.
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryType,
    /// Where a link leads.
    pub(super) target: Vec<u8>,
    /// The number of a device.
    pub(super) device: u64,
    pub(super) looks: Looks,
    pub(super) size: u64,
    /// Where the content that the archive holds goes; what lies between is a hole.
    pub(super) parts: Vec<Range<u64>>,
}

/// An archive that is read from start to end. Reading from it reads the content of the last member.
pub(super) struct Members<R: Read> {
    from: R,
    parser: Parser,
    /// What was read of headers, and from where on it is content.
    head: Vec<u8>,
    at: usize,
    /// Bytes of content that are left, and of what fills its last block.
    left: u64,
    filling: u64,
}

impl<R: Read> Members<R> {
    pub(super) fn new(from: R) -> Self {
        let limits = Limits { max_metadata_size: RECORDS, max_sparse_entries: PARTS, ..Limits::default() };
        let mut parser = Parser::new(limits);
        // It has no times before 1970; `looks_of` checks what is used.
        parser.set_ignore_pax_errors(true);
        Members { from, parser, head: Vec::new(), at: 0, left: 0, filling: 0 }
    }

    /// The next member. Passes over what nobody has read of the last one's content.
    pub(super) fn next(&mut self) -> io::Result<Option<Member>> {
        self.left += std::mem::take(&mut self.filling);
        let left = self.left;
        if io::copy(self, &mut io::sink())? != left {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.head.drain(..self.at);
        self.at = 0;
        loop {
            let (consumed, entry, parts, size) = match self.parser.parse(&self.head).map_err(damaged)? {
                ParseEvent::NeedData { min_bytes } if min_bytes > self.head.len() => {
                    match self.fill(min_bytes)? {
                        true => continue,
                        // An archive that was cut between members is taken, as tar(1) does.
                        false if self.is_end() => return Ok(None),
                        false => return Err(io::ErrorKind::UnexpectedEof.into()),
                    }
                }
                ParseEvent::NeedData { .. } => return Err(damaged("a map of a sparse file")),
                // Said of all members; nothing of it is used.
                ParseEvent::GlobalExtensions { consumed, .. } => {
                    self.head.drain(..consumed);
                    continue;
                }
                ParseEvent::End { .. } => return Ok(None),
                ParseEvent::Entry { consumed, entry } => {
                    let size = entry.size;
                    (consumed, entry, std::iter::once(0..size).collect(), size)
                }
                ParseEvent::SparseEntry { consumed, entry, sparse_map, real_size } => {
                    (consumed, entry, parts_of(&sparse_map, real_size)?, real_size)
                }
            };
            let (member, stored) = (member_of(&entry, parts, size)?, entry.size);
            (self.at, self.left) = (consumed, stored);
            self.filling = stored.next_multiple_of(HEADER_SIZE as u64) - stored;
            return Ok(Some(member));
        }
    }

    /// Reads until that many bytes of headers are there; whether they are.
    fn fill(&mut self, length: usize) -> io::Result<bool> {
        let missing = length - self.head.len();
        let got = (&mut self.from).take(missing as u64).read_to_end(&mut self.head)?;
        Ok(got == missing)
    }

    /// Whether the blocks of headers that were read hold nothing.
    fn is_end(&self) -> bool {
        self.head.len().is_multiple_of(HEADER_SIZE) && self.head.iter().all(|byte| *byte == 0)
    }

    /// What it reads from.
    pub(super) fn into_inner(self) -> R {
        self.from
    }
}

impl<R: Read> Read for Members<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = to.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        // Decompressors take room for nothing as an error.
        if most == 0 {
            return Ok(0);
        }
        let got = match &self.head[self.at..] {
            [] => self.from.read(&mut to[..most])?,
            mut ahead => ahead.read(&mut to[..most])?,
        };
        self.at += if self.at < self.head.len() { got } else { 0 };
        self.left -= got as u64;
        Ok(got)
    }
}

fn damaged(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged: {why}"))
}

/// The parts of a sparse file, which must be in order and within its size.
fn parts_of(map: &[SparseEntry], size: u64) -> io::Result<Vec<Range<u64>>> {
    let mut end = 0;
    map.iter()
        .map(|part| {
            let range = part.offset..part.offset.saturating_add(part.length);
            let fits = end <= range.start && range.end <= size;
            end = range.end;
            if fits { Ok(range) } else { Err(damaged("a map of a sparse file")) }
        })
        .collect()
}

fn member_of(entry: &ParsedEntry<'_>, parts: Vec<Range<u64>>, size: u64) -> io::Result<Member> {
    let number = |number: Option<u32>| number.unwrap_or(0);
    Ok(Member {
        path: entry.path.to_vec(),
        kind: entry.entry_type,
        target: entry.link_target.as_deref().unwrap_or_default().to_vec(),
        device: rustix::fs::makedev(number(entry.dev_major), number(entry.dev_minor)),
        looks: looks_of(entry)?,
        size,
        parts,
    })
}

/// The type of file that a member is.
fn type_of(entry: EntryType) -> u32 {
    match entry {
        EntryType::Directory => libc::S_IFDIR,
        EntryType::Symlink => libc::S_IFLNK,
        EntryType::Fifo => libc::S_IFIFO,
        EntryType::Char => libc::S_IFCHR,
        EntryType::Block => libc::S_IFBLK,
        _ => libc::S_IFREG,
    }
}

/// What a member has beside content.
fn looks_of(entry: &ParsedEntry<'_>) -> io::Result<Looks> {
    let mut mtime = Timespec { tv_sec: entry.mtime as i64, tv_nsec: 0 };
    let (mut xattrs, mut kind) = (Xattrs::new(), type_of(entry.entry_type));
    for record in PaxExtensions::new(entry.pax.unwrap_or_default()) {
        let record = record.map_err(damaged)?;
        let (name, value) = (record.key_bytes(), record.value_bytes());
        let text = std::str::from_utf8(value);
        let is_right = match name {
            b"mtime" => {
                let time = text.ok().and_then(time_of);
                mtime = time.unwrap_or(mtime);
                time.is_some()
            }
            b"uid" | b"gid" | b"size" => text.is_ok_and(|text| text.parse::<u64>().is_ok()),
            _ => true,
        };
        if !is_right {
            return Err(damaged(format_args!("a record {}", String::from_utf8_lossy(name))));
        }
        if name == SOCKET.as_bytes() {
            kind = libc::S_IFSOCK;
        }
        if let Some(name) = name.strip_prefix(XATTR.as_bytes()) {
            xattrs.insert(decoded(name), value.to_vec());
        }
    }
    let owner = (entry.uid as u32, entry.gid as u32);
    let mode = entry.mode & 0o7777 | kind;
    Ok(Looks { mode, owner, atime: mtime, mtime, xattrs })
}

/// A time of a pax record: seconds and a decimal fraction. What goes before 1970 has the fraction that
/// [`super::archive::Archive::put`] writes, which counts up.
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

    /// An archive of one file, with these records before it.
    fn archive(records: &[(&str, &[u8])], content: &[u8]) -> Vec<u8> {
        let mut to = tar::Builder::new(Vec::new());
        to.append_pax_extensions(records.iter().copied()).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_path("short").unwrap();
        header.set_mode(0o644);
        header.set_uid(1);
        header.set_gid(1);
        header.set_mtime(1);
        header.set_size(content.len() as u64);
        header.set_cksum();
        to.append(&header, content).unwrap();
        to.append(&header, content).unwrap();
        to.into_inner().unwrap()
    }

    #[test]
    fn records_end_where_they_say() {
        let value = b"one\n11 path=x\n\n\n=two";
        let records =
            [("SCHILY.xattr.user.a%3Db%25", &value[..]), ("path", b"long\n\nname"), ("uid", b"70000")];
        let bytes = archive(&records, b"12345");
        let mut members = Members::new(&bytes[..]);
        let member = members.next().unwrap().unwrap();
        assert_eq!(member.path, b"long\n\nname");
        assert_eq!(member.looks.owner, (70000, 1));
        assert_eq!(member.looks.xattrs, Xattrs::from([(b"user.a=b%".to_vec(), value.to_vec())]));
        let mut content = Vec::new();
        members.read_to_end(&mut content).unwrap();
        assert_eq!(content, b"12345");
        assert_eq!(members.next().unwrap().unwrap().path, b"short");
        assert!(members.next().unwrap().is_none());
    }

    #[test]
    fn what_is_damaged_or_cut_short_is_an_error() {
        for record in [("uid", &b"x"[..]), ("mtime", b""), ("size", b"-1")] {
            assert!(Members::new(&archive(&[record], b"1")[..]).next().is_err(), "{record:?}");
        }
        let bytes = archive(&[("path", b"p")], &[1; 2000]);
        for length in [100, 600, 1200] {
            assert!(Members::new(&bytes[..length]).next().is_err(), "{length}");
        }
        let mut members = Members::new(&bytes[..3000]);
        members.next().unwrap();
        assert!(members.next().is_err());
    }

    #[test]
    fn sparse_files_have_parts() {
        let records: [(&str, &[u8]); 3] =
            [("GNU.sparse.size", b"9000"), ("GNU.sparse.map", b"512,2,8000,3"), ("GNU.sparse.name", b"s")];
        let bytes = archive(&records, b"12345");
        let member = Members::new(&bytes[..]).next().unwrap().unwrap();
        assert_eq!((member.path, member.size), (b"s".to_vec(), 9000));
        assert_eq!(member.parts, [512..514, 8000..8003]);
        let bad = archive(&[("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"0,10")], b"1234567890");
        assert!(Members::new(&bad[..]).next().is_err());
    }
}

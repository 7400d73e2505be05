//! Options of a tmpfs and a ramfs, as mount(2) and fsconfig(2) take them and /proc shows them.

use lp_abi::linux::{MS_DIRSYNC, MS_LAZYTIME, MS_MANDLOCK, MS_RDONLY, MS_SYNCHRONOUS};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::mount::SOURCE;
use lp_region::sync::Ordering;

use crate::caller::id_map::{self, IdKind};
use crate::caller::task::Task;
use crate::life::mempolicy::Policy;

/// Bytes that the kernel counts for an inode (`BOGO_INODE_SIZE`), which bounds `nr_inodes=`.
const INODE: u64 = 1024;

/// Values of `huge=`, at the place of their numbers in a superblock's flags; the first is the default.
pub(crate) const HUGE: [&[u8]; 4] = [b"never", b"always", b"within_size", b"advise"];

/// Which file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum FsKind {
    /// tmpfs(5).
    #[default]
    Tmpfs,
    /// Has no limits, and takes every option: only `mode=` means something.
    Ramfs,
}

/// Options that were given.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// What they were given to.
    pub kind: FsKind,
    /// `size=` or `nr_blocks=`, in pages; 0 means no limit.
    pub pages: Option<u64>,
    /// `nr_inodes=`; 0 means no limit.
    pub inodes: Option<u64>,
    /// `mode=`.
    pub mode: Option<u32>,
    /// `uid=`.
    pub uid: Option<u32>,
    /// `gid=`.
    pub gid: Option<u32>,
    /// `huge=`, as a place in [`HUGE`].
    pub huge: Option<u32>,
    /// `mpol=`, unless it is the default one.
    pub policy: Option<Policy>,
    /// `inode64` or `inode32`.
    pub inode64: Option<bool>,
    /// `noswap`.
    pub noswap: bool,
    /// `MS_*` of the whole file system that words select: `ro`, `sync` and the like.
    pub flags: u32,
    /// Those that words select or clear.
    pub mask: u32,
    /// `source=`; zeros behind it.
    pub source: Option<[u8; SOURCE]>,
}

/// Words for `MS_*` of any file system (the kernel's common_set_sb_flag and common_clear_sb_flag). What
/// follows behind `=` is ignored.
const WORDS: [(&[u8], u32, bool); 9] = [
    (b"dirsync", MS_DIRSYNC, true),
    (b"lazytime", MS_LAZYTIME, true),
    (b"mand", MS_MANDLOCK, true),
    (b"ro", MS_RDONLY, true),
    (b"sync", MS_SYNCHRONOUS, true),
    (b"async", MS_SYNCHRONOUS, false),
    (b"nolazytime", MS_LAZYTIME, false),
    (b"nomand", MS_MANDLOCK, false),
    (b"rw", MS_RDONLY, false),
];

impl Options {
    /// Parses an option string.
    ///
    /// # Errors
    /// `EINVAL` for options that the file system does not know, and for ids that the caller's user namespace
    /// does not have.
    pub(crate) fn parse(task: &Task<'_>, kind: FsKind, text: &[u8]) -> Result<Options> {
        let mut options = Options { kind, ..Options::default() };
        let mut rest = text;
        while !rest.is_empty() {
            let (part, behind) = next(rest, kind);
            rest = behind;
            let equals = part.iter().position(|byte| *byte == b'=');
            let (name, value) = match equals {
                Some(0) => continue,
                Some(at) => (&part[..at], Some(&part[at + 1..])),
                None => (part, None),
            };
            if !name.is_empty() {
                options.take(task, name, value)?;
            }
        }
        Ok(options)
    }

    /// The kernel's vfs_parse_fs_param.
    fn take(&mut self, task: &Task<'_>, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        if let Some((_, flag, is_set)) = WORDS.iter().find(|(word, ..)| *word == name) {
            self.mask |= flag;
            self.flags = if *is_set { self.flags | flag } else { self.flags & !flag };
            return Ok(());
        }
        let is_known = self.kind == FsKind::Tmpfs || name == b"mode";
        match (is_known && self.take_own(task, name, value)?, name) {
            (true, _) => Ok(()),
            (false, b"source") => self.take_source(value),
            (false, _) if self.kind == FsKind::Ramfs => Ok(()),
            (false, _) => Err(Errno::EINVAL),
        }
    }

    /// The kernel's shmem_parse_one: whether it is an option of a tmpfs.
    fn take_own(&mut self, task: &Task<'_>, name: &[u8], value: Option<&[u8]>) -> Result<bool> {
        let text = value.filter(|value| !value.is_empty()).ok_or(Errno::EINVAL);
        // The kernel's uid_valid.
        let given = |text| unsigned(text, 0).filter(|id| *id != u32::MAX);
        let of = |kind, text| given(text).and_then(|id| id_map::to_run(task.process, kind, id));
        match name {
            b"size" => self.pages = Some(size(task, text?)?),
            b"nr_blocks" => self.pages = Some(scaled(text?, i64::MAX as u64)?),
            b"nr_inodes" => self.inodes = Some(scaled(text?, u64::MAX / INODE)?),
            b"mode" => self.mode = Some(unsigned(text?, 8).ok_or(Errno::EINVAL)? & 0o7777),
            b"uid" => self.uid = Some(of(IdKind::User, text?).ok_or(Errno::EINVAL)?),
            b"gid" => self.gid = Some(of(IdKind::Group, text?).ok_or(Errno::EINVAL)?),
            b"huge" => {
                let text = text?;
                let place = HUGE.iter().position(|name| *name == text).ok_or(Errno::EINVAL)?;
                self.huge = Some(place as u32);
            }
            b"mpol" => {
                let policy = Policy::parse(task, text?).ok_or(Errno::EINVAL)?;
                self.policy = (!policy.is_default()).then_some(policy);
            }
            b"noswap" | b"inode32" | b"inode64" if value.is_some() => return Err(Errno::EINVAL),
            // The kernel wants the right in its first user namespace.
            b"noswap" if id_map::is_inside(task.process) => return Err(Errno::EINVAL),
            b"noswap" => self.noswap = true,
            b"inode32" | b"inode64" => self.inode64 = Some(name == b"inode64"),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The kernel's vfs_parse_fs_param_source. A source that is too long is truncated.
    fn take_source(&mut self, value: Option<&[u8]>) -> Result<()> {
        let value = value.filter(|_| self.source.is_none()).ok_or(Errno::EINVAL)?;
        let mut source = [0; SOURCE];
        source.iter_mut().take(SOURCE - 1).zip(value).for_each(|(to, from)| *to = *from);
        self.source = Some(source);
        Ok(())
    }

    /// `MS_*` of the whole file system that was mounted with these.
    pub(crate) fn whole(&self, flags: u32) -> u32 {
        flags & !self.mask | self.flags
    }
}

/// The first option, and what is behind it. In a tmpfs a comma before a digit belongs to a list of nodes (the
/// kernel's shmem_next_opt).
fn next(text: &[u8], kind: FsKind) -> (&[u8], &[u8]) {
    let is_end = |at: &usize| {
        let is_list = kind == FsKind::Tmpfs && text.get(at + 1).is_some_and(u8::is_ascii_digit);
        text[*at] == b',' && !is_list
    };
    match (0..text.len()).find(is_end) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, b""),
    }
}

/// The base that a number starts with (the kernel's _parse_integer_fixup_radix), and the rest.
fn radix(text: &[u8]) -> (u64, &[u8]) {
    match text {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (16, &text[2..]),
        [b'0', ..] => (8, text),
        _ => (10, text),
    }
}

/// The digits at the start of a text, as numbers.
fn digits(text: &[u8], base: u64) -> impl Iterator<Item = u64> {
    let value = |byte: &u8| (*byte as char).to_digit(16).map(u64::from);
    text.iter().map_while(move |byte| value(byte).filter(|digit| *digit < base))
}

/// All of `text` as a number, as the kernel's kstrtouint takes it; base 0 means that it says so itself.
fn unsigned(text: &[u8], base: u64) -> Option<u32> {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let (base, text) = if base == 0 { radix(text) } else { (base, text) };
    if text.is_empty() || digits(text, base).count() != text.len() {
        return None;
    }
    digits(text, base)
        .try_fold(0u32, |value, digit| value.checked_mul(base as u32)?.checked_add(digit as u32))
}

/// A number with a unit, and what is behind it (the kernel's memparse, which does not look for overflows).
fn memparse(text: &[u8]) -> (u64, &[u8]) {
    let (base, text) = radix(text);
    let value = digits(text, base).fold(0u64, |value, digit| value.wrapping_mul(base).wrapping_add(digit));
    let rest = &text[digits(text, base).count()..];
    let unit =
        rest.first().and_then(|unit| b"KMGTPE".iter().position(|name| *name == unit.to_ascii_uppercase()));
    match unit {
        Some(place) => (value << (10 * (place + 1)), &rest[1..]),
        None => (value, rest),
    }
}

/// A number with a unit, not above `most`.
fn scaled(text: &[u8], most: u64) -> Result<u64> {
    let (value, rest) = memparse(text);
    if rest.is_empty() && value <= most { Ok(value) } else { Err(Errno::EINVAL) }
}

/// A size in pages. A percentage is relative to the pages of the region.
fn size(task: &Task<'_>, text: &[u8]) -> Result<u64> {
    let all = task.region.header().data_pages.load(Ordering::Relaxed); // Relaxed: immutable.
    let (value, rest) = memparse(text);
    let bytes = match rest {
        b"" => value,
        b"%" => value.wrapping_mul(PAGE_SIZE as u64).wrapping_mul(all) / 100,
        _ => return Err(Errno::EINVAL),
    };
    Ok(bytes.wrapping_add(PAGE_SIZE as u64 - 1) / PAGE_SIZE as u64)
}

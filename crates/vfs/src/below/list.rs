//! Lists: what was taken from each directory of a layer, name by name.
//!
//! A list is a file of root [`ROOT`], named after the place of its directory's record. It begins with a
//! [`Head`], followed by records, each with its name, padded to 8 bytes. It is written under the lock of its
//! directory. Once its head says that it is complete, it does not change except for what became of its names
//! ([`Record::target`], [`Record::list`]) and by [`crate::below::renew`]. It therefore says what the layer
//! had when it was looked at. The way up from list to list is the path there, wherever directories have been
//! moved since.

use core::mem::offset_of;

use lp_abi::linux::{S_IFMT, S_IFREG};
use lp_abi::{Errno, NAME_MAX, PAGE_SIZE, Result};
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::sync::{AtomicU32, AtomicU64};
use lp_region::{InodeId, InodeRef, Region};

use crate::caller::task::{SLACK, Task};
use crate::calls::create::{self, InitialContent, InodeKind, Made};
use crate::content::{fill, linking, map, snapshot};
use crate::inodes::inode;
use crate::life::boot;
use crate::names::hash;
use crate::names::listing::Piece;
use crate::names::name::Name;

/// Number of the root that contains the lists.
pub const ROOT: u32 = 15;

/// Place of a record: the list's inode and the offset in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct RecordAt {
    /// The list.
    pub list: InodeId,
    /// The offset.
    pub offset: u32,
}

/// Start of a list.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Head {
    /// How much is written: a [`State`].
    pub state: u32,
    /// Number of records.
    pub count: u32,
    /// List of the directory's own record; 0 for a root.
    pub up_list: u32,
    /// Offset of that record.
    pub up_offset: u32,
}

/// How much of a list is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Less than all names.
    Begun = 0,
    /// The records of all names.
    Complete = 1,
    /// The records of all subdirectories, and the names of the rest in pieces
    /// (`names/listing.rs`), the last of which ends the list.
    Names = 2,
}

/// [`Record::mode`] of a record that is none: a piece of a listing stands in place of its name.
const PIECE: u32 = 1;

/// The attributes of one name when it was seen. Integers without padding, because it is copied as bytes.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Record {
    /// Device of the layer.
    pub dev: u64,
    /// Inode number in the layer.
    pub ino: u64,
    /// Size of the content in bytes.
    pub size: u64,
    /// 512-byte blocks.
    pub blocks: u64,
    /// Inode number that the inode for it gets: that of the layer, or 0 for one that no layer has
    /// (`numbers.rs`).
    pub number: u64,
    /// The inode that stands for it, as [`InodeRef::to_word`]; 0 until there is one.
    pub target: u64,
    /// Access, modification, change and birth time: seconds.
    pub seconds: [i64; 4],
    /// Their nanoseconds.
    pub nanoseconds: [u32; 4],
    /// Type and permissions; no type for what is no name.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u32,
    /// Device number of a node (`st_rdev`).
    pub rdev: u32,
    /// Of a directory: its own list; 0 while nobody has looked into it. Of anything else that has several
    /// links: the list of the record behind it in its chain (`links.rs`); 0 if it is the last.
    pub list: u32,
    /// Length of the name in bytes.
    pub length: u32,
    /// Offset of that record in its list.
    pub next: u32,
}

/// Offset of the first record.
pub const FIRST: u32 = size_of::<Head>() as u32;

/// Longest name of a list: two numbers in hexadecimal and a separator.
const NAME_ROOM: usize = 24;

/// Longest record with its name.
const LONGEST: usize = size_of::<Record>() + NAME_MAX + 1;

/// Buffer for a name, with what [`Name::scan`] reads past it.
pub type NameRoom = [u8; NAME_MAX + 1 + SLACK];

impl Record {
    /// Size of the record and its name.
    pub fn bytes(&self) -> u32 {
        (size_of::<Record>() as u32 + self.length).next_multiple_of(8)
    }

    /// Whether it is no name: one that the layer has lost since ([`crate::below::renew`]), or a piece of a
    /// listing.
    pub fn is_gone(&self) -> bool {
        self.mode & S_IFMT == 0
    }

    /// Whether it is a piece of a listing.
    pub(super) fn is_piece(&self) -> bool {
        self.mode == PIECE
    }

    /// The inode that stands for it.
    pub fn target(&self) -> InodeRef {
        InodeRef::from_word(self.target)
    }
}

/// The record at a place.
///
/// # Errors
/// `EIO` if there is none, as in a damaged region.
pub fn record(region: Region<'_>, at: RecordAt) -> Result<Record> {
    let mut record = Record::default();
    get(region, at.list, &mut record, u64::from(at.offset))?;
    Ok(record)
}

/// Copies and returns the name of the record at a place.
///
/// # Errors
/// Those of [`record`].
pub fn name<'a>(region: Region<'_>, at: RecordAt, record: &Record, to: &'a mut NameRoom) -> Result<&'a [u8]> {
    let length = (record.length as usize).min(NAME_MAX);
    bytes(region, at, 0, &mut to[..length])?;
    to[length] = 0;
    Ok(&to[..length])
}

/// Copies a part of the name of the record at a place; a root's name is a path.
///
/// # Errors
/// Those of [`record`].
pub fn bytes(region: Region<'_>, at: RecordAt, skip: usize, to: &mut [u8]) -> Result<()> {
    let start = u64::from(at.offset) + (size_of::<Record>() + skip) as u64;
    let list = region.inode(at.list);
    match snapshot::into(region, list, to, start) {
        Ok(got) if got == to.len() => Ok(()),
        _ => Err(Errno::EIO),
    }
}

/// The head of a list.
///
/// # Errors
/// Those of [`record`].
pub fn head(region: Region<'_>, list: InodeId) -> Result<Head> {
    let mut head = Head::default();
    get(region, list, &mut head, 0)?;
    Ok(head)
}

/// The record of the directory to which a list belongs; `None` for a root's list.
pub fn up(head: &Head) -> Option<RecordAt> {
    let up = RecordAt { list: InodeId(head.up_list), offset: head.up_offset };
    up.list.is_some().then_some(up)
}

/// Calls `each` with the places and records of a list, starting at `from`, until it returns false. Names that
/// the layer has lost are left out.
///
/// # Errors
/// Those of [`record`]; those of `each`.
pub fn each(
    region: Region<'_>,
    list: InodeId,
    from: u32,
    mut each: impl FnMut(RecordAt, &Record) -> Result<bool>,
) -> Result<()> {
    each_place(region, list, from, |at, record| if record.is_gone() { Ok(true) } else { each(at, record) })
}

/// [`each`] with the records that are no names.
///
/// # Errors
/// As [`each`].
pub(super) fn each_place(
    region: Region<'_>,
    list: InodeId,
    from: u32,
    mut each: impl FnMut(RecordAt, &Record) -> Result<bool>,
) -> Result<()> {
    let end = region.inode(list).size.load(Relaxed); // Relaxed: it is complete, or the caller's.
    let mut at = RecordAt { list, offset: from };
    while u64::from(at.offset) < end {
        let record = record(region, at)?;
        if !each(at, &record)? {
            break;
        }
        at.offset += record.bytes();
    }
    Ok(())
}

fn get<T: Plain>(region: Region<'_>, list: InodeId, to: &mut T, at: u64) -> Result<()> {
    let to = bytes_mut(core::slice::from_mut(to));
    match snapshot::into(region, region.inode(list), to, at) {
        Ok(got) if got == to.len() => Ok(()),
        _ => Err(Errno::EIO),
    }
}

/// A record of a list.
///
/// # Safety
/// The type must consist of integers and have no padding.
unsafe trait Plain: Copy {}

// SAFETY: `repr(C)`, integers only; its size is the sum of its fields' sizes.
unsafe impl Plain for Record {}
// SAFETY: `repr(C)`, integers only; its size is the sum of its fields' sizes.
unsafe impl Plain for Head {}

fn bytes_mut<T: Plain>(records: &mut [T]) -> &mut [u8] {
    let bytes = size_of_val(records);
    // SAFETY: `Plain`: all bytes of a record are initialised, and any bytes are a valid record.
    unsafe { core::slice::from_raw_parts_mut(records.as_mut_ptr().cast(), bytes) }
}

/// Appends a record to a file of root [`ROOT`] that nobody else can reach yet.
///
/// # Errors
/// `ENOSPC`.
fn push<T: Plain>(task: &Task<'_>, file: InodeId, record: &T) -> Result<()> {
    let mut record = *record;
    fill::append_private(task, file, bytes_mut(core::slice::from_mut(&mut record)))
}

/// Overwrites a record. The caller must be the only user of the list.
pub(super) fn overwrite(region: Region<'_>, at: RecordAt, record: &Record) {
    let mut record = *record;
    for (index, word) in bytes_mut(core::slice::from_mut(&mut record)).chunks_exact(4).enumerate() {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        set_word(region, at.list, u64::from(at.offset) + 4 * index as u64, word);
    }
}

/// Records the inode that stands for a record.
pub(crate) fn set_target(region: Region<'_>, at: RecordAt, target: InodeRef) {
    let field = u64::from(at.offset) + offset_of!(Record, target) as u64;
    if let Some(word) = address(region, at.list, field) {
        // SAFETY: 8 bytes at a multiple of 8 within a page; lists are never freed.
        unsafe { &*word.cast::<AtomicU64>() }.store(target.to_word(), Release);
    }
}

/// Records the list of a directory's record.
pub(super) fn set_list(region: Region<'_>, at: RecordAt, list: InodeId) {
    set_word(region, at.list, u64::from(at.offset) + offset_of!(Record, list) as u64, list.0);
}

/// Notes the record behind another in a chain of links. Nobody finds that one there yet.
pub(super) fn set_next(region: Region<'_>, at: RecordAt, next: RecordAt) {
    set_list(region, at, next.list);
    set_word(region, at.list, u64::from(at.offset) + offset_of!(Record, next) as u64, next.offset);
}

fn set_word(region: Region<'_>, list: InodeId, at: u64, value: u32) {
    if let Some(word) = address(region, list, at) {
        // SAFETY: 4 bytes at a multiple of 4 within a page; lists are never freed.
        unsafe { &*word.cast::<AtomicU32>() }.store(value, Release);
    }
}

pub(super) fn address(region: Region<'_>, list: InodeId, at: u64) -> Option<*mut u8> {
    let page = map::get(region, region.inode(list), at / PAGE_SIZE as u64);
    // SAFETY: within the page.
    page.is_some().then(|| unsafe { region.page(page).add(at as usize % PAGE_SIZE) })
}

/// Root [`ROOT`].
///
/// # Errors
/// `ENOSPC`.
pub(super) fn root(task: &Task<'_>) -> Result<InodeRef> {
    boot::hidden_root(task, ROOT)
}

/// The file of root [`ROOT`] with a name; created if it does not exist.
///
/// # Errors
/// `ENOSPC`.
pub(super) fn file(task: &Task<'_>, name: &[u8]) -> Result<InodeId> {
    let root = root(task)?;
    let name = Name::new(name)?;
    if let Some(hit) = hash::lookup(task.region, root.id, &name) {
        return Ok(hit.target().id);
    }
    let what = InodeKind { mode: S_IFREG | 0o600, rdev: 0, content: InitialContent::Empty };
    match create::hidden(task, root, &name, &what)? {
        Made::New(found) | Made::Existing(found) => Ok(found.inode.id),
    }
}

/// The file of root [`ROOT`] with a name.
///
/// # Errors
/// `EIO` if it does not exist.
pub(super) fn known(task: &Task<'_>, name: &[u8]) -> Result<InodeId> {
    let root = root(task)?;
    Ok(hash::lookup(task.region, root.id, &Name::new(name)?).ok_or(Errno::EIO)?.target().id)
}

/// The list of the directory whose record is at `at`, started anew if it was only begun; also returns how
/// much of it is written. The caller must hold the directory's lock.
///
/// # Errors
/// `ENOSPC`.
pub(super) fn begin(task: &Task<'_>, at: RecordAt) -> Result<(InodeId, State)> {
    let mut room = [0; NAME_ROOM];
    let list = file(task, write_name(&mut room, at))?;
    begin_file(task, list, at)
}

/// [`begin`] for a file that [`file()`] returned.
pub(super) fn begin_file(task: &Task<'_>, list: InodeId, up: RecordAt) -> Result<(InodeId, State)> {
    let region = task.region;
    // PAIRS: the release store in `finish`.
    let state = address(region, list, 0).map_or(0, |word| {
        // SAFETY: 4 bytes at the start of a page; lists are never freed.
        unsafe { &*word.cast::<AtomicU32>() }.load(Acquire)
    });
    for written in [State::Complete, State::Names] {
        if state == written as u32 {
            return Ok((list, written));
        }
    }
    // The process that began it has died.
    let _locked = inode::lock(task, list);
    let record = region.inode(list);
    record.data_seq.begin();
    linking::clear(task, list, record, 0, map::END);
    record.size.store(0, Relaxed); // Relaxed, both: inside the section.
    record.pages.store(0, Relaxed);
    record.data_seq.end();
    let head = Head { up_list: up.list.0, up_offset: up.offset, ..Head::default() };
    push(task, list, &head)?;
    Ok((list, State::Begun))
}

/// Appends the record of a root, whose name is a path, to a list that nobody else can reach yet.
///
/// # Errors
/// `ENOSPC`.
pub(super) fn append_root(task: &Task<'_>, list: InodeId, record: &Record, path: &[u8]) -> Result<()> {
    let _locked = inode::lock(task, list);
    let record = Record { length: path.len() as u32, ..*record };
    push(task, list, &record)?;
    fill::append_private(task, list, path)?;
    let padding = record.bytes() as usize - size_of::<Record>() - path.len();
    fill::append_private(task, list, &[0; 8][..padding])
}

/// Appends a record to a list, whole or not at all. Returns its place.
///
/// # Errors
/// `ENOSPC`; `EFBIG` beyond 4 GiB; `ENAMETOOLONG`.
pub(super) fn append(task: &Task<'_>, list: InodeId, record: &Record, name: &[u8]) -> Result<RecordAt> {
    let mut record = Record { length: name.len() as u32, ..*record };
    let (start, end) = (size_of::<Record>(), record.bytes() as usize);
    let mut room = [0; LONGEST.next_multiple_of(8)];
    room.get_mut(start..start + name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
    room[..start].copy_from_slice(bytes_mut(core::slice::from_mut(&mut record)));
    append_parts(task, list, &[&room[..end]])
}

/// Appends a piece of a listing, whole or not at all. Returns where it starts.
///
/// # Errors
/// `ENOSPC`; `EFBIG` beyond 4 GiB.
pub(super) fn append_piece(task: &Task<'_>, list: InodeId, piece: Piece, names: &[u8]) -> Result<u32> {
    let length = (Piece::HEAD + names.len()) as u32;
    let mut record = Record { mode: PIECE, length, ..Record::default() };
    let padding = record.bytes() as usize - size_of::<Record>() - length as usize;
    let record = bytes_mut(core::slice::from_mut(&mut record));
    let at = append_parts(task, list, &[record, &piece.to_bytes(), names, &[0; 8][..padding]])?;
    Ok(at.offset + size_of::<Record>() as u32)
}

/// Where the piece of a listing at a record's place starts.
pub(super) fn piece_at(at: RecordAt) -> u32 {
    at.offset + size_of::<Record>() as u32
}

fn append_parts(task: &Task<'_>, list: InodeId, parts: &[&[u8]]) -> Result<RecordAt> {
    let inode = task.region.inode(list);
    let _locked = inode::lock(task, list);
    let size = inode.size.load(Relaxed); // Relaxed, here and below: under the lock.
    let offset = u32::try_from(size).map_err(|_| Errno::EFBIG)?;
    let done = parts.iter().try_for_each(|part| fill::append_private(task, list, part));
    if done.is_err() {
        inode.size.store(size, Relaxed);
    }
    done.map(|()| RecordAt { list, offset })
}

/// Takes back what was appended behind `end`. The caller must hold the directory's lock, and nothing may
/// stand for the records.
pub(super) fn cut(task: &Task<'_>, list: InodeId, end: u32) {
    let _locked = inode::lock(task, list);
    task.region.inode(list).size.store(u64::from(end), Relaxed); // Relaxed: under the lock.
}

/// Records that a list has `count` records of names, and how much that is.
pub(super) fn finish(task: &Task<'_>, list: InodeId, state: State, count: u32) {
    set_word(task.region, list, offset_of!(Head, count) as u64, count);
    // PAIRS: the acquire load in `begin_file`.
    set_word(task.region, list, offset_of!(Head, state) as u64, state as u32);
}

fn write_name(room: &mut [u8; NAME_ROOM], at: RecordAt) -> &[u8] {
    let mut length = 0;
    for (number, end) in [(at.list.0, Some(b'-')), (at.offset, None)] {
        for digit in (0..8).rev() {
            room[length] = b"0123456789abcdef"[(number >> (4 * digit)) as usize & 15];
            length += 1;
        }
        if let Some(end) = end {
            room[length] = end;
            length += 1;
        }
    }
    &room[..length]
}

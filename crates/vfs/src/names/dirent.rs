//! Directory entries: filling in, comparing, freeing.
//!
//! An entry is found through its hash bucket and, for readdir, through its directory's array. It is filled in
//! before either names it. It is born, and dies, by one store of its shape: what leads to it is in place
//! before the birth and removed after the death. In between only its target changes, when a rename replaces
//! it. A reader validates with the entry's `seq`, which advances when the slot is freed and is odd while a
//! rename changes the entry.

use lp_abi::{NAME_MAX, Result};
use lp_region::lane::Lane;
use lp_region::records::{Dirent, LongName, SHORT_NAME};
use lp_region::slab::Slot;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, NameId, Region};

use crate::names::name::{Key, Name};

/// Type of an inode with this mode, as in `d_type`: `S_IFMT` shifted down.
#[inline]
pub fn type_of(mode: u32) -> u32 {
    mode >> 12 & 15
}

/// Parts of `shape`: the name's length in a live entry; the name's length in any entry.
const LIVE: u32 = 0xff;
const LENGTH_AT: u32 = 16;

/// Bit beside the type, in `shape` and in a [`Hit`](crate::hash::Hit): something may be mounted on the
/// entry's target. A walk that ends here compares the type anyway.
pub const COVERED: u32 = 16;

/// Marks that something may be mounted on the entry's target. The caller must hold that inode's lock, so that
/// the entry stays.
pub fn cover(dirent: &Dirent) {
    dirent.shape.fetch_or(COVERED << 8, Ordering::Release);
}

/// Undoes [`cover`].
pub(crate) fn uncover(dirent: &Dirent) {
    dirent.shape.fetch_and(!(COVERED << 8), Ordering::Release);
}

/// Length of the entry's name.
#[inline]
pub fn length(dirent: &Dirent) -> usize {
    // Relaxed, here and below: validated by the reader.
    (dirent.shape.load(Ordering::Relaxed) >> LENGTH_AT & LIVE) as usize
}

/// Length of the entry's name, or 0 if it is not alive.
#[inline(always)]
fn living_length(dirent: &Dirent) -> usize {
    // PAIRS: the release store in `give_birth`: an entry seen alive is seen filled in.
    (dirent.shape.load(Ordering::Acquire) & LIVE) as usize
}

/// Whether the entry is alive and found by its name.
pub fn is_whole(dirent: &Dirent) -> bool {
    living_length(dirent) == length(dirent)
}

/// Whether it is alive: its name exists.
#[inline]
pub fn lives(dirent: &Dirent) -> bool {
    living_length(dirent) != 0
}

/// Length of its name and type of its target, as in `d_type`, if it is alive.
#[inline]
pub(crate) fn living(dirent: &Dirent) -> Option<(usize, u32)> {
    // PAIRS: the release store in `give_birth`.
    let shape = dirent.shape.load(Ordering::Acquire);
    (shape & LIVE != 0).then_some(((shape & LIVE) as usize, shape >> 8 & 15))
}

/// Makes its name exist. The caller must hold its directory's lock.
#[inline]
pub fn give_birth(dirent: &Dirent) {
    let shape = dirent.shape.load(Ordering::Relaxed);
    // PAIRS: the acquire load in `living_length`.
    dirent.shape.store(shape & !LIVE | shape >> LENGTH_AT & LIVE, Ordering::Release);
}

/// Ends the existence of its name. The caller must hold its directory's lock.
#[inline]
pub fn die(dirent: &Dirent) {
    dirent.shape.store(dirent.shape.load(Ordering::Relaxed) & !LIVE, Ordering::Release);
}

/// The shape of an entry that is not alive yet.
pub fn shape(length: usize, mode: u32) -> u32 {
    shape_of(length, type_of(mode))
}

/// [`shape`] by the type of the target, as in `d_type`.
#[inline(always)]
fn shape_of(length: usize, kind: u32) -> u32 {
    (length as u32) << LENGTH_AT | kind << 8
}

/// Type of the entry's target, as in `d_type`.
#[inline]
pub fn kind(dirent: &Dirent) -> u32 {
    dirent.shape.load(Ordering::Relaxed) >> 8 & 15
}

/// The entry's position in its directory.
#[inline(always)]
pub(crate) fn position(dirent: &Dirent) -> u64 {
    dirent.position.load(Ordering::Relaxed) // Relaxed: immutable while linked in.
}

/// Sets the position of an entry that nothing names yet.
#[inline(always)]
pub(crate) fn set_position(dirent: &Dirent, position: u64) {
    dirent.position.store(position, Ordering::Relaxed); // Relaxed: published with the name.
}

/// The entry's target.
#[inline]
pub fn target(dirent: &Dirent) -> InodeRef {
    // PAIRS: the release store in `set_target`: the reference is seen with the inode filled in.
    InodeRef::from_word(dirent.target.load(Ordering::Acquire))
}

/// Sets the entry's target, whose mode is `mode`. The caller must hold its directory's lock.
pub(crate) fn set_target(dirent: &Dirent, target: InodeRef, mode: u32) {
    let shape = dirent.shape.load(Ordering::Relaxed) & !0xff00 | type_of(mode) << 8;
    dirent.shape.store(shape, Ordering::Relaxed); // Relaxed: readdir's type is a hint.
    // PAIRS: the acquire load in `target`.
    dirent.target.store(target.to_word(), Ordering::Release);
}

/// Type of the entry's target, as in `d_type`, if the entry is alive and is that of `name` in directory
/// `parent`.
#[inline]
pub(crate) fn of(region: Region<'_>, dirent: &Dirent, parent: InodeId, name: &Name<'_>) -> Option<u32> {
    of_locked(region, dirent, parent, name)
}

/// [`of`] in a directory whose lock the caller holds.
#[inline(always)]
pub(crate) fn of_locked(
    region: Region<'_>,
    dirent: &Dirent,
    parent: InodeId,
    name: &Name<'_>,
) -> Option<u32> {
    if dirent.parent.load(Ordering::Relaxed) != parent.0 {
        return None;
    }
    // PAIRS: the release store in `give_birth`.
    let shape = dirent.shape.load(Ordering::Acquire);
    let is_it = (shape & LIVE) as usize == name.len()
        && dirent.name.iter().zip(name.words()).all(|(has, wanted)| has.load(Ordering::Relaxed) == *wanted)
        && (name.len() <= SHORT_NAME || is_long(region, dirent, name));
    is_it.then_some(shape >> 8 & (15 | COVERED))
}

/// Copies the entry's name to `to` and returns its length. The bytes of `to` behind the name are undefined.
#[inline]
pub fn copy_name(region: Region<'_>, dirent: &Dirent, to: &mut [u8; NAME_MAX]) -> usize {
    let length = length(dirent);
    copy_name_of(region, dirent, length, to);
    length
}

/// [`copy_name`] for a name of known length.
#[inline]
pub(crate) fn copy_name_of(region: Region<'_>, dirent: &Dirent, length: usize, to: &mut [u8; NAME_MAX]) {
    if length > SHORT_NAME {
        return copy_long(region, dirent, length, to);
    }
    for (to, word) in to.chunks_exact_mut(8).zip(&dirent.name) {
        to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
}

#[cold]
fn copy_long(region: Region<'_>, dirent: &Dirent, length: usize, to: &mut [u8; NAME_MAX]) {
    for (to, from) in to.iter_mut().zip(&long(region, dirent).bytes).take(length) {
        *to = from.load(Ordering::Relaxed);
    }
}

/// Takes an entry for `target` at a place and fills it in, except its position. It is not alive yet, and
/// `lane.taken` names it until [`settle`].
///
/// # Errors
/// `ENOSPC`.
#[inline(always)]
pub fn take(region: Region<'_>, lane: &Lane, place: &Key<'_, '_>, target: InodeRef) -> Result<DirentId> {
    let name = place.name;
    let long = if name.len() > SHORT_NAME { take_long(region, lane, name)? } else { NameId::NONE };
    let id = match region.take::<Dirent>(lane) {
        Ok(id) => id,
        Err(errno) => {
            if long.is_some() {
                region.give::<LongName>(lane, long);
                region.settle::<LongName>(lane);
            }
            return Err(errno);
        }
    };
    let mode = region.inode(target.id).mode.load(Ordering::Relaxed); // Relaxed: the type does not change.
    fill(region.dirent(id), place, long, (target, type_of(mode)));
    Ok(id)
}

/// [`take`] for a name that fits the entry and a target whose type, as in `d_type`, is known.
///
/// # Errors
/// `ENOSPC`.
#[inline(always)]
pub(crate) fn take_short(
    region: Region<'_>,
    lane: &Lane,
    place: &Key<'_, '_>,
    target: (InodeRef, u32),
) -> Result<DirentId> {
    let id = region.take::<Dirent>(lane)?;
    fill(region.whole_dirent(id), place, NameId::NONE, target);
    Ok(id)
}

#[inline(always)]
fn fill(dirent: &Dirent, place: &Key<'_, '_>, long: NameId, (target, kind): (InodeRef, u32)) {
    let name = place.name;
    if dirent.seq.read() & 1 != 0 {
        // Only in a damaged region: readers would take the entry for one that is being renamed.
        dirent.seq.end();
    }
    // Relaxed: published by the stores that link the entry in.
    for (word, value) in dirent.name.iter().zip(name.words()) {
        word.store(*value, Ordering::Relaxed);
    }
    dirent.hash.store(place.hash, Ordering::Relaxed);
    dirent.long.store(long.0, Ordering::Relaxed);
    dirent.shape.store(shape_of(name.len(), kind), Ordering::Relaxed);
    dirent.parent.store(place.dir.0, Ordering::Relaxed);
    dirent.target.store(target.to_word(), Ordering::Release);
}

/// Records that the entry last taken is linked in.
#[inline(always)]
pub fn settle(region: Region<'_>, lane: &Lane) {
    region.settle::<LongName>(lane);
    region.settle::<Dirent>(lane);
}

/// All entries that were ever handed out, alive or not.
pub(crate) fn all(region: Region<'_>) -> impl Iterator<Item = DirentId> {
    (1..=region.header().slabs[Dirent::SLAB].last()).map(DirentId)
}

/// Whether an entry names this inode.
pub(crate) fn names(record: &Dirent, inode: InodeRef) -> bool {
    lives(record) && target(record) == inode
}

/// Some entry that names an inode; none if there is none. Searches all entries.
#[cold]
pub fn any(region: Region<'_>, inode: InodeRef) -> DirentId {
    all(region).find(|entry| names(region.dirent(*entry), inode)).unwrap_or(DirentId::NONE)
}

/// Frees an entry that [`take`] filled in and nothing names.
pub(crate) fn discard(region: Region<'_>, lane: &Lane, id: DirentId) {
    retire(region, lane, id);
    give(region, lane, id);
    settle(region, lane);
}

/// Retires an entry that is dead and that neither a bucket nor a directory names, so that readers still
/// looking at it notice. The lane names it until [`give`] and [`settle`].
#[inline(always)]
pub(crate) fn retire(region: Region<'_>, lane: &Lane, id: DirentId) {
    let dirent = region.dirent(id);
    vacate(dirent);
    lane.taken[LongName::SLAB].store(dirent.long.load(Ordering::Relaxed), Ordering::Release);
    lane.taken[Dirent::SLAB].store(id.0, Ordering::Release);
}

/// Takes the target and the directory from a dead entry.
#[inline(always)]
fn vacate(dirent: &Dirent) {
    // The slot's later contents become visible after the new count.
    dirent.seq.begin();
    dirent.target.store(0, Ordering::Release);
    dirent.parent.store(0, Ordering::Release);
    dirent.seq.end_alone();
}

/// [`retire`] of an entry whose name fits it.
#[inline(always)]
pub(crate) fn retire_short(lane: &Lane, dirent: &Dirent, id: DirentId) {
    vacate(dirent);
    lane.taken[Dirent::SLAB].store(id.0, Ordering::Release);
}

/// [`give`] and [`settle`] of an entry whose name fits it.
#[inline(always)]
pub(crate) fn give_short(region: Region<'_>, lane: &Lane, id: DirentId) {
    region.give::<Dirent>(lane, id);
    region.settle::<Dirent>(lane);
}

/// Frees a retired entry and its long name.
#[inline(always)]
pub(crate) fn give(region: Region<'_>, lane: &Lane, id: DirentId) {
    let long = NameId(region.dirent(id).long.load(Ordering::Relaxed));
    if long.is_some() {
        region.give::<LongName>(lane, long);
    }
    region.give::<Dirent>(lane, id);
}

fn long<'r>(region: Region<'r>, dirent: &Dirent) -> &'r LongName {
    region.name(NameId(dirent.long.load(Ordering::Relaxed)))
}

#[cold]
fn is_long(region: Region<'_>, dirent: &Dirent, name: &Name<'_>) -> bool {
    let has = &long(region, dirent).bytes[SHORT_NAME..];
    has.iter().zip(&name.bytes()[SHORT_NAME..]).all(|(has, wanted)| has.load(Ordering::Relaxed) == *wanted)
}

#[cold]
fn take_long(region: Region<'_>, lane: &Lane, name: &Name<'_>) -> Result<NameId> {
    let id = region.take::<LongName>(lane)?;
    for (to, from) in region.name(id).bytes.iter().zip(name.bytes()) {
        to.store(*from, Ordering::Relaxed); // Relaxed: published with the entry.
    }
    Ok(id)
}

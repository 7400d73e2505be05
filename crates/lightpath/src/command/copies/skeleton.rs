//! A copy of a frozen region without the content of its regular files, which a branch takes in as it is used
//! ([`lp_vfs::below::frozen`]).

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

use lp_abi::PAGE_SIZE;
use lp_region::layout::{DATA_AT, INODE_SLAB, OWNER_SLAB};
use lp_region::records::{Inode, inode_flags};
use lp_vfs::below::frozen;
use lp_vfs::owner;

use super::extents::{self, Extent};

/// Bytes that are read at a time.
const STEP: u64 = 1 << 20;

/// Copies all but the content of files to the same places of `to`, an empty file.
pub(super) fn copy(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let all = extents::extents(from)?;
    let (inodes, owners, data) = (INODE_SLAB.all(), OWNER_SLAB.all(), DATA_AT as u64);
    let [inodes, owners] = [inodes, owners].map(|slab| slab.start as u64..slab.end as u64);
    let waiting = copy_inodes(from, to, &within(&all, inodes.start, inodes.end))?;
    let left_out = pages_of(from, &within(&all, owners.start, owners.end), &waiting)?;
    let mut rest = within(&all, 0, inodes.start);
    rest.extend(within(&all, inodes.end, data));
    rest.extend(without(&within(&all, data, length), &left_out));
    extents::parts(from, to, &rest).map(|_| ())
}

/// A set of numbers.
#[derive(Default)]
struct Set(Vec<u64>);

impl Set {
    fn insert(&mut self, number: u32) {
        let word = number as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }
}

/// The parts of extents from `start` to `end`.
fn within(all: &[Extent], start: u64, end: u64) -> Vec<Extent> {
    let cut = all.iter().map(|part| Extent { at: part.at.max(start), end: part.end.min(end) });
    cut.filter(|part| part.at < part.end).collect()
}

/// Copies the inodes and marks those whose content waits; returns them.
fn copy_inodes(from: &File, to: &File, extents: &[Extent]) -> io::Result<Set> {
    let found = extents::in_threads(&extents::pieces(extents, STEP), |share| {
        let (mut waiting, mut room) = (Vec::new(), vec![0; STEP as usize]);
        for piece in share {
            let room = &mut room[..(piece.end - piece.at) as usize];
            from.read_exact_at(room, piece.at)?;
            let ids = INODE_SLAB.slots_in(piece.at as usize..piece.end as usize);
            for (id, record) in (ids.start as u32..).zip(room.chunks_exact_mut(size_of::<Inode>())) {
                if waits(record) {
                    waiting.push(id);
                    put_off(record);
                }
            }
            to.write_all_at(room, piece.at)?;
        }
        Ok(waiting)
    })?;
    let mut waiting = Set::default();
    found.into_iter().flatten().for_each(|id| waiting.insert(id));
    Ok(waiting)
}

/// Whether the content of an inode waits: it is a regular file with a name, and has pages.
fn waits(record: &[u8]) -> bool {
    let get = |at: usize| word(record, at);
    let [mode, flags, root] =
        [offset_of!(Inode, mode), offset_of!(Inode, flags), offset_of!(Inode, root)].map(get);
    // The low half of the map is its root page.
    let has_pages = get(offset_of!(Inode, map)) != 0;
    get(offset_of!(Inode, nlink)) != 0 && has_pages && frozen::may_wait(mode, flags, root)
}

/// Marks an inode whose content waits; its map goes where the inode keeps it until then, if it has map pages.
fn put_off(record: &mut [u8]) {
    let (flags, map) = (offset_of!(Inode, flags), offset_of!(Inode, map));
    let marked = word(record, flags) | inode_flags::PENDING;
    record[flags..][..4].copy_from_slice(&marked.to_ne_bytes());
    if word(record, map + 4) != 0 {
        record.copy_within(map..map + 8, offset_of!(Inode, inline));
        record[map..][..8].fill(0);
    }
}

fn word(record: &[u8], at: usize) -> u32 {
    let bytes = record.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_ne_bytes(bytes.unwrap_or_default())
}

/// The pages of content of these inodes, and their map pages.
fn pages_of(from: &File, owners: &[Extent], waiting: &Set) -> io::Result<Set> {
    let (mut pages, mut room) = (Set::default(), vec![0; STEP as usize]);
    for piece in extents::pieces(owners, STEP) {
        let room = &mut room[..(piece.end - piece.at) as usize];
        from.read_exact_at(room, piece.at)?;
        let all = OWNER_SLAB.slots_in(piece.at as usize..piece.end as usize);
        for (page, bytes) in all.rev().zip(room.as_chunks().0) {
            if waiting.has(owner::inode_of(u64::from_ne_bytes(*bytes)).0) {
                pages.insert(page as u32);
            }
        }
    }
    Ok(pages)
}

/// Extents of data pages without some of the pages.
fn without(extents: &[Extent], pages: &Set) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for page in extents::pieces(extents, PAGE_SIZE as u64) {
        if pages.has(((page.at - DATA_AT as u64) / PAGE_SIZE as u64) as u32) {
            continue;
        }
        match all.last_mut() {
            Some(last) if last.end == page.at => last.end = page.end,
            _ => all.push(page),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_left_out_of_extents() {
        let at = |page: u64| DATA_AT as u64 + page * PAGE_SIZE as u64;
        let mut pages = Set::default();
        [3, 4, 70].into_iter().for_each(|page| pages.insert(page));
        let left = without(&[Extent { at: at(1), end: at(6) }, Extent { at: at(70), end: at(72) }], &pages);
        let expected = [(1, 3), (5, 6), (71, 72)].map(|(from, to)| Extent { at: at(from), end: at(to) });
        assert_eq!(left, expected);
        assert_eq!(within(&expected, at(2), at(6)), [Extent { at: at(2), end: at(3) }, expected[1]]);
    }
}

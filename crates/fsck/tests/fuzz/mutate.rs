//! The template's bytes, and ways to change them.

use std::fmt::Write;
use std::os::fd::RawFd;

use lp_region::layout as at;

/// A region's bytes without its holes.
pub struct Image {
    length: u64,
    pieces: Vec<(u64, Vec<u8>)>,
    /// Offsets of words that are not zero, by area.
    words: Vec<(u32, Vec<u64>)>,
}

/// Where changes go: an area's start and how many of 100 changes go there.
const AREAS: [(usize, u32); 13] = [
    (at::HEADER_AT, 8),
    (at::RUNS_AT, 1),
    (at::LANES_AT, 16),
    (at::BUCKET_SLAB.all().start, 9),
    (at::FILE_SLAB.all().start, 3),
    (at::DIRENT_SLAB.all().start, 14),
    (at::INODE_SLAB.all().start, 24),
    (at::NAME_SLAB.all().start, 2),
    (at::LOCK_SLAB.all().start, 2),
    (at::FD_TABLES_AT, 3),
    (at::OWNER_SLAB.all().start, 2),
    (at::CHUNKS_AT, 4),
    (at::DATA_AT, 12),
];

impl Image {
    /// The bytes behind a descriptor.
    pub fn of(fd: RawFd) -> Image {
        // SAFETY: moves and reads within the file.
        let seek = |from: u64, whence| unsafe { libc::lseek(fd, from as i64, whence) };
        let length = seek(0, libc::SEEK_END) as u64;
        let mut image = Image { length, pieces: Vec::new(), words: Vec::new() };
        let mut from = 0;
        while let Ok(start) = u64::try_from(seek(from, libc::SEEK_DATA)) {
            let end = seek(start, libc::SEEK_HOLE) as u64;
            let mut bytes = vec![0; (end - start) as usize];
            // SAFETY: reads into the buffer.
            let got = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), start as i64) };
            assert_eq!(got, bytes.len() as isize);
            image.pieces.push((start, bytes));
            from = end;
        }
        for (index, (start, weight)) in AREAS.iter().enumerate() {
            let end = AREAS.get(index + 1).map_or(u64::MAX, |(next, _)| *next as u64);
            let inside = |word: &u64| (*start as u64..end).contains(word);
            let words: Vec<u64> = image.set_words().filter(inside).collect();
            if !words.is_empty() {
                image.words.push((*weight, words));
            }
        }
        image
    }

    fn set_words(&self) -> impl Iterator<Item = u64> + '_ {
        self.pieces.iter().flat_map(|(start, bytes)| {
            let words = bytes.chunks_exact(4).enumerate();
            words.filter(|(_, word)| **word != [0; 4]).map(move |(at, _)| start + at as u64 * 4)
        })
    }

    /// Writes them to another file; gives its length.
    pub fn put(&self, fd: RawFd) -> usize {
        // SAFETY: changes the file only.
        unsafe { libc::ftruncate(fd, self.length as i64) };
        for (start, bytes) in &self.pieces {
            write(fd, bytes, *start);
        }
        self.length as usize
    }
}

/// A small generator of numbers that look random (splitmix64).
pub struct Random(u64);

impl Random {
    /// The one of a case.
    pub fn new(seed: u64, index: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }
}

/// Changes the file a little; says how.
pub fn mutate(image: &Image, fd: RawFd, random: &mut Random) -> String {
    let mut said = String::new();
    for _ in 0..[1, 1, 1, 2, 3, 8][random.below(6)] {
        one(image, fd, random, &mut said);
    }
    said
}

/// A word: one that is not zero, or one near it in the same record.
fn place(image: &Image, random: &mut Random) -> u64 {
    let mut left = random.below(image.words.iter().map(|(weight, _)| *weight as usize).sum());
    let area = image.words.iter().find(|(weight, _)| {
        let found = left < *weight as usize;
        left = left.saturating_sub(*weight as usize);
        found
    });
    let words = &area.unwrap_or(&image.words[0]).1;
    let word = words[random.below(words.len())];
    match random.below(4) {
        0 => (word & !63) + random.below(16) as u64 * 4,
        _ => word,
    }
}

fn one(image: &Image, fd: RawFd, random: &mut Random, said: &mut String) {
    const EDGES: [u64; 20] = [
        0,
        1,
        2,
        3,
        31,
        64,
        255,
        1000,
        1023,
        1024,
        4095,
        0xffff,
        1 << 20,
        1 << 23,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 32,
        1 << 50,
        i64::MAX as u64,
        u64::MAX,
    ];
    let at = place(image, random);
    let mut word = [0u8; 8];
    read(fd, &mut word, at & !7);
    let old = u64::from_le_bytes(word);
    let how = random.below(16);
    match how {
        0..4 => word = (old ^ 1 << random.below(64)).to_le_bytes(),
        4..6 => word[..4].copy_from_slice(&(random.next() as u32).to_le_bytes()),
        6 => word = random.next().to_le_bytes(),
        7..10 => word = EDGES[random.below(EDGES.len())].to_le_bytes(),
        10 | 11 => word[at as usize & 4..][..4].copy_from_slice(&(random.below(130) as u32).to_le_bytes()),
        // What stands somewhere else of the same kind: a handle in a place where it does not belong.
        12 => read(fd, &mut word, place(image, random) & !7),
        13 | 14 => {
            let (from, mut line) = (place(image, random) & !63, [0; 64]);
            read(fd, &mut line, from);
            let _ = writeln!(said, "line {:#x} = line {from:#x}", at & !63);
            return write(fd, &line, at & !63);
        }
        _ if random.below(4) == 0 => {
            let length = image.length - random.below(image.length as usize / 4096) as u64 * 4096 - 4096;
            let _ = writeln!(said, "length {length:#x}");
            // SAFETY: changes the file only.
            unsafe { libc::ftruncate(fd, length as i64) };
            return;
        }
        // A map page or a directory's that names one thing everywhere, itself for example.
        _ => {
            let page = at & !4095;
            let own = (page.saturating_sub(at::DATA_AT as u64) / 4096) as u32;
            let value = [0, own, random.below(200) as u32, random.next() as u32][random.below(4)];
            let _ = writeln!(said, "page {page:#x}: all {value:#x}");
            let area: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), 1024).flatten().collect();
            return write(fd, &area, page);
        }
    }
    let _ = writeln!(said, "word {:#x}: {old:#x} -> {:#x}", at & !7, u64::from_le_bytes(word));
    write(fd, &word, at & !7);
}

fn read(fd: RawFd, to: &mut [u8], at: u64) {
    // SAFETY: reads into the buffer.
    unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), at as i64) };
}

fn write(fd: RawFd, from: &[u8], at: u64) {
    // SAFETY: writes from the buffer.
    let done = unsafe { libc::pwrite(fd, from.as_ptr().cast(), from.len(), at as i64) };
    assert_eq!(done, from.len() as isize, "pwrite");
}

//! `lightpath pack` and `unpack`: frozen regions in little space.
//!
//! A packed region is a stream of frames as zstd(1) reads it. The first is one that decompressors skip; it
//! holds a [`Head`] and the parts of the region that hold data. Each frame after it is a piece of these
//! parts, with a checksum. The last, skipped as well, is a table of the frames in zstd's seekable format.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use lp_abi::fnv::fnv1a;
use lp_region::layout::VERSION;
use lp_region::records::Header;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

use crate::command::copies::branch;
use crate::command::copies::extents::{self, Extent};
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::part;
use crate::command::output::print::print;
use crate::command::output::shown::human;
use crate::command::region::packed::{MAGIC, SKIPPED, is_packed};

/// `lightpath pack`.
#[derive(Args)]
pub(crate) struct Pack {
    /// What lightpath freeze has made.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The file to make: frames of zstd(1), with a table to seek by.
    #[arg(value_name = "PACKED", value_hint = ValueHint::FilePath)]
    packed: PathBuf,
}

/// `lightpath unpack`.
#[derive(Args)]
pub(crate) struct Unpack {
    /// What lightpath pack has made.
    #[arg(value_name = "PACKED", value_hint = ValueHint::FilePath)]
    packed: PathBuf,
    /// The file to make.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// The frame with the table.
const TABLE: u32 = 0x184d_2a5e;
/// What the table ends with.
const SEEKABLE: u32 = 0x8f92_eab1;
/// Most bytes of a frame's content.
const STEP: u64 = 1 << 20;
/// Fast, and small enough.
const LEVEL: i32 = 3;
/// Most parts of a region; more are not one.
const MOST: usize = 1 << 26;

/// What the first frame says before it lists the parts.
struct Head {
    version: u32,
    length: u64,
    parts: Vec<Extent>,
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Head {
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut text = MAGIC.to_vec();
        text.extend(u64::from(self.version).to_le_bytes());
        text.extend(self.length.to_le_bytes());
        for part in &self.parts {
            text.extend(part.at.to_le_bytes());
            text.extend(part.end.to_le_bytes());
        }
        text.extend(fnv1a(&text).to_le_bytes());
        to.write_all(&SKIPPED.to_le_bytes())?;
        to.write_all(&u32::try_from(text.len()).map_err(|_| bad("has too many parts"))?.to_le_bytes())?;
        to.write_all(&text)
    }

    fn read(from: &mut impl Read) -> io::Result<Head> {
        let other = || bad("not a packed region: see lightpath pack");
        let mut start = [0; 16];
        from.read_exact(&mut start).map_err(|_| other())?;
        let length = u32::from_le_bytes([start[4], start[5], start[6], start[7]]) as usize;
        if !is_packed(&start) || !(32..MOST).contains(&length) {
            return Err(other());
        }
        let mut text = MAGIC.to_vec();
        text.resize(length, 0);
        from.read_exact(&mut text[8..]).map_err(|_| bad("cut short"))?;
        let words: Vec<u64> = text
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let [_, version, whole, parts @ .., checksum] = &words[..] else { return Err(other()) };
        let parts: Vec<Extent> =
            parts.chunks_exact(2).map(|part| Extent { at: part[0], end: part[1] }).collect();
        let ordered = parts.iter().all(|part| part.at < part.end && part.end <= *whole);
        if fnv1a(&text[..length - 8]) != *checksum || !ordered {
            return Err(bad("damaged"));
        }
        Ok(Head { version: *version as u32, length: *whole, parts })
    }
}

/// Runs `work` on a file that gets its name once it is complete, and says how large both files are.
fn make(from: &Path, to: &Path, work: impl FnOnce(&File) -> io::Result<()>) -> Result<u8, Failure> {
    let fail =
        |path: &Path, e: &io::Error| Failure::new(REGION, format!("{}: {}", path.display(), reason(e)));
    if to.symlink_metadata().is_ok() {
        return Err(Failure::new(REGION, format!("{} exists; name another file", to.display())));
    }
    let part = part::begin(to, 0o600).map_err(|e| fail(to, &e))?;
    if let Err(e) = work(part.as_file()).and_then(|()| part::complete(part, to)) {
        let at = if e.kind() == io::ErrorKind::InvalidData { from } else { to };
        return Err(fail(at, &e));
    }
    let size = |path: &Path| human(rustix::fs::stat(path).map_or(0, |found| found.st_blocks as u64 * 512));
    print(format!("{}: {}; {}: {}\n", from.display(), size(from), to.display(), size(to)).as_bytes())
}

/// Compresses a frozen region.
pub(crate) fn pack(args: &Pack) -> Result<u8, Failure> {
    let from = branch::open(&args.file)?;
    make(&args.file, &args.packed, |to| {
        let mut version = [0; 4];
        from.read_exact_at(&mut version, offset_of!(Header, version) as u64)?;
        let parts = extents::extents(&from)?;
        let head = Head { version: u32::from_ne_bytes(version), length: from.metadata()?.len(), parts };
        let mut to = BufWriter::new(to);
        head.write(&mut to)?;
        let mut compressor = Compressor::new(LEVEL)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        let mut table = Vec::new();
        for piece in extents::pieces(&head.parts, STEP) {
            let mut content = vec![0; (piece.end - piece.at) as usize];
            from.read_exact_at(&mut content, piece.at)?;
            let frame = compressor.compress(&content)?;
            to.write_all(&frame)?;
            table.extend((frame.len() as u32).to_le_bytes());
            table.extend((content.len() as u32).to_le_bytes());
        }
        let count = table.len() as u32 / 8;
        to.write_all(&TABLE.to_le_bytes())?;
        to.write_all(&(table.len() as u32 + 9).to_le_bytes())?;
        to.write_all(&table)?;
        to.write_all(&count.to_le_bytes())?;
        to.write_all(&[0])?;
        to.write_all(&SEEKABLE.to_le_bytes())?;
        to.flush()
    })
}

/// The sizes of the frames' content and of the frames, from the table at the end.
fn table(from: &File) -> io::Result<Vec<(u64, u64)>> {
    let cut = || bad("cut short");
    let length = from.metadata()?.len();
    let mut foot = [0; 9];
    from.read_exact_at(&mut foot, length.checked_sub(9).ok_or_else(cut)?)?;
    let word = |bytes: &[u8]| u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    if word(&foot[5..]) != u64::from(SEEKABLE) || foot[4] != 0 {
        return Err(cut());
    }
    let mut entries = vec![0; word(&foot) as usize * 8];
    let start = length.checked_sub(9 + entries.len() as u64).ok_or_else(cut)?;
    from.read_exact_at(&mut entries, start)?;
    Ok(entries.chunks_exact(8).map(|entry| (word(entry), word(&entry[4..]))).collect())
}

/// Makes a frozen region of a packed one.
pub(crate) fn unpack(args: &Unpack) -> Result<u8, Failure> {
    let fail = |e: &io::Error| Failure::new(REGION, format!("{}: {}", args.packed.display(), reason(e)));
    let mut from = File::open(&args.packed).map_err(|e| fail(&e))?;
    let head = Head::read(&mut from).map_err(|e| fail(&e))?;
    if head.version != VERSION {
        let line = format!(
            "{} holds a region of version {}, this lightpath reads version {VERSION}: use the one that made it",
            args.packed.display(),
            head.version
        );
        return Err(Failure::new(REGION, line));
    }
    make(&args.packed, &args.file, |to| {
        let (frames, pieces) = (table(&from)?, extents::pieces(&head.parts, STEP));
        to.set_len(head.length)?;
        // Behind the first frame's head, its text, and the 8 bytes before that.
        let mut at = 8 + 8 * (4 + 2 * head.parts.len() as u64);
        let mut all = Vec::new();
        for (piece, (length, content)) in pieces.iter().zip(&frames) {
            if piece.end - piece.at != *content || *length > 2 * STEP {
                return Err(bad("damaged"));
            }
            all.push((*piece, at, *length));
            at += length;
        }
        if frames.len() != pieces.len() {
            return Err(bad("damaged"));
        }
        extents::in_threads(&all, |share| {
            let mut decompressor = Decompressor::new()?;
            for (piece, at, length) in share {
                let mut frame = vec![0; *length as usize];
                from.read_exact_at(&mut frame, *at)?;
                let wanted = (piece.end - piece.at) as usize;
                let content = decompressor.decompress(&frame, wanted).map_err(|_| bad("damaged"))?;
                if content.len() != wanted {
                    return Err(bad("damaged"));
                }
                to.write_all_at(&content, piece.at)?;
            }
            Ok(())
        })
        .map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_written_and_a_damaged_one_refused() {
        let parts = vec![Extent { at: 0, end: 4096 }, Extent { at: 8192, end: 12288 }];
        let mut text = Vec::new();
        Head { version: 7, length: 1 << 20, parts: parts.clone() }.write(&mut text).unwrap();
        let found = Head::read(&mut &text[..]).unwrap();
        assert_eq!((found.version, found.length, found.parts), (7, 1 << 20, parts));
        for at in 0..text.len() {
            let mut damaged = text.clone();
            damaged[at] ^= 1;
            assert!(Head::read(&mut &damaged[..]).is_err(), "byte {at}");
            assert!(Head::read(&mut &text[..at]).is_err(), "{at} bytes");
        }
    }
}

//! What every peer must be able to do, and how long it takes.

use anyhow::{Result, ensure};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A file system inside a Rust program, as its users call it.
pub trait Peer {
    /// Shown at the head of its column.
    const NAME: &'static str;
    /// An open file that can be read and sought in.
    type Reader;
    /// A fresh open file that can be written and sought in.
    type Writer;

    fn make_directory(&self, path: &str) -> Result<()>;
    /// Makes a new, empty file and opens it for writing.
    fn create(&self, path: &str) -> Result<Self::Writer>;
    fn remove(&self, path: &str) -> Result<()>;
    fn open(&self, path: &str) -> Result<Self::Reader>;
    /// The size of what `path` names.
    fn stat(&self, path: &str) -> Result<u64>;
    /// How many entries a directory has, by listing it.
    fn list(&self, path: &str) -> Result<usize>;
    fn seek(&self, reader: &mut Self::Reader, position: u64) -> Result<()>;
    fn read(&self, reader: &mut Self::Reader, bytes: &mut [u8]) -> Result<usize>;
    fn write(&self, writer: &mut Self::Writer, bytes: &[u8]) -> Result<usize>;
    fn rewind(&self, writer: &mut Self::Writer) -> Result<()>;
}

/// The calls, in the order of [`measure`]'s figures.
pub const CALLS: [&str; 8] = [
    "seek",
    "read 1 B",
    "read 4 KiB",
    "write 256 B",
    "stat /a/b/f",
    "open + close",
    "create + remove",
    "list 100 entries",
];

const FILE_SIZE: usize = 1 << 20;
const ENTRIES: usize = 100;
const BATCHES: usize = 5;

/// Nanoseconds of each of [`CALLS`]: the median of several batches of at least `batch` each.
pub fn measure<P: Peer>(peer: &P, batch: Duration) -> Result<[f64; CALLS.len()]> {
    peer.make_directory("/a")?;
    peer.make_directory("/a/b")?;
    peer.make_directory("/many")?;
    let mut writer = peer.create("/a/b/f")?;
    fill(peer, &mut writer)?;
    drop(writer);
    for entry in 0..ENTRIES {
        drop(peer.create(&format!("/many/{entry}"))?);
    }
    let mut reader = peer.open("/a/b/f")?;
    let mut block = [0u8; 4096];
    let seek = time(batch, |turn| peer.seek(&mut reader, turn * 4096 % FILE_SIZE as u64))?;
    peer.seek(&mut reader, 0)?;
    let read_1 = time(batch, |_| match peer.read(&mut reader, &mut block[..1])? {
        1 => Ok(()),
        _ => peer.seek(&mut reader, 0),
    })?;
    peer.seek(&mut reader, 0)?;
    let read_4k = time(batch, |_| match peer.read(&mut reader, &mut block)? {
        4096 => Ok(()),
        _ => peer.seek(&mut reader, 0),
    })?;
    drop(reader);
    let mut writer = peer.create("/a/w")?;
    let write_256 = time(batch, |turn| {
        if turn % (FILE_SIZE as u64 / 256) == 0 {
            peer.rewind(&mut writer)?;
        }
        ensure!(peer.write(&mut writer, &[b'x'; 256])? == 256, "a short write");
        Ok(())
    })?;
    drop(writer);
    let stat = time(batch, |_| {
        ensure!(peer.stat("/a/b/f")? == FILE_SIZE as u64, "a wrong size");
        Ok(())
    })?;
    let open = time(batch, |_| peer.open("/a/b/f").map(|file| drop(black_box(file))))?;
    let create = time(batch, |_| {
        drop(peer.create("/a/b/new")?);
        peer.remove("/a/b/new")
    })?;
    let list = time(batch, |_| {
        ensure!(peer.list("/many")? == ENTRIES, "entries are missing");
        Ok(())
    })?;
    Ok([seek, read_1, read_4k, write_256, stat, open, create, list])
}

fn fill<P: Peer>(peer: &P, writer: &mut P::Writer) -> Result<()> {
    for _ in 0..FILE_SIZE / 4096 {
        ensure!(peer.write(writer, &[b'x'; 4096])? == 4096, "a short write");
    }
    Ok(())
}

/// Nanoseconds per call.
fn time(batch: Duration, mut call: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let mut run = |count: u64| -> Result<Duration> {
        let start = Instant::now();
        for turn in 0..count {
            call(black_box(turn))?;
        }
        Ok(start.elapsed())
    };
    let mut count = 16;
    while run(count)? < batch {
        count *= 2;
    }
    let mut batches = [0.0; BATCHES];
    for batch in &mut batches {
        *batch = run(count)?.as_nanos() as f64 / count as f64;
    }
    batches.sort_by(f64::total_cmp);
    Ok(batches[BATCHES / 2])
}

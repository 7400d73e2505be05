//! Copies of region files: sparse, by reference where the file system can, in several threads.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

/// Bytes that are copied or compared at a time.
const STEP: u64 = 1 << 20;

/// A part of a file that holds data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) at: u64,
    pub(crate) end: u64,
}

/// Makes `to` share the blocks of `from`; false if the file system cannot.
pub(crate) fn by_reference(from: impl AsFd, to: &File) -> bool {
    rustix::fs::ioctl_ficlone(to, from).is_ok()
}

/// The parts of a file that hold data.
pub(crate) fn extents(of: impl AsFd) -> io::Result<Vec<Extent>> {
    let mut all = Vec::new();
    let mut end = 0;
    loop {
        let at = match seek(&of, SeekFrom::Data(end)) {
            Err(Errno::NXIO) => return Ok(all),
            at => at?,
        };
        end = seek(&of, SeekFrom::Hole(at))?;
        all.push(Extent { at, end });
    }
}

/// Copies what `from` holds to the same places of `to`, an empty file. Returns the bytes written.
pub(crate) fn sparse(from: &File, to: &File) -> io::Result<u64> {
    to.set_len(from.metadata()?.len())?;
    parts(from, to, &extents(from)?)
}

/// Copies parts of `from` to the same places of `to`, which are empty. Returns the bytes written.
pub(crate) fn parts(from: &File, to: &File, parts: &[Extent]) -> io::Result<u64> {
    each_piece(&pieces(parts, STEP), |at, room| {
        from.read_exact_at(room, at)?;
        // A step of zeros may stay a hole.
        if room.iter().all(|byte| *byte == 0) {
            return Ok(0);
        }
        to.write_all_at(room, at)?;
        Ok(room.len())
    })
}

/// Makes `to`, a copy of what `from` was a moment ago, a copy of what it is now. Returns the bytes written.
pub(crate) fn again(from: &File, to: &File) -> io::Result<u64> {
    let data = extents(from)?;
    let mut end = 0;
    for Extent { at, end: next } in
        data.iter().copied().chain([Extent { at: from.metadata()?.len(), end: 0 }])
    {
        if at > end {
            match fallocate(to, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, end, at - end) {
                Err(Errno::OPNOTSUPP) => zero(to, end, at)?,
                done => done?,
            }
        }
        end = next;
    }
    each_piece(&pieces(&data, STEP), |at, room| {
        let mut old = vec![0; room.len()];
        from.read_exact_at(room, at)?;
        to.read_exact_at(&mut old, at)?;
        if old == *room {
            return Ok(0);
        }
        to.write_all_at(room, at)?;
        Ok(room.len())
    })
}

fn zero(to: &File, mut at: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0; STEP as usize];
    while at < end {
        let length = (end - at).min(STEP) as usize;
        let mut found = vec![0; length];
        match to.read_exact_at(&mut found, at) {
            Err(e) if e.kind() != ErrorKind::UnexpectedEof => return Err(e),
            _ if found.iter().all(|byte| *byte == 0) => {}
            _ => to.write_all_at(&zeros[..length], at)?,
        }
        at += length as u64;
    }
    Ok(())
}

/// Extents in pieces of at most `step` bytes.
pub(crate) fn pieces(extents: &[Extent], step: u64) -> Vec<Extent> {
    let mut all = Vec::new();
    for extent in extents {
        let mut at = extent.at;
        while at < extent.end {
            let end = extent.end.min(at + step);
            all.push(Extent { at, end });
            at = end;
        }
    }
    all
}

/// Calls `work` for each piece with room for it; it returns how much it has written. Returns how much was
/// written.
fn each_piece(
    pieces: &[Extent],
    work: impl Fn(u64, &mut [u8]) -> io::Result<usize> + Sync,
) -> io::Result<u64> {
    let written = in_threads(pieces, |share| {
        let mut room = vec![0; STEP as usize];
        let mut written = 0;
        for piece in share {
            let length = (piece.end - piece.at) as usize;
            written += work(piece.at, &mut room[..length])? as u64;
        }
        Ok(written)
    })?;
    Ok(written.into_iter().sum())
}

/// Shares work out to as many threads as there are processors.
pub(crate) fn in_threads<W: Sync, T: Send>(
    all: &[W],
    work: impl Fn(&[W]) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, 8);
    let share = all.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = all.chunks(share).map(|share| scope.spawn(move || work(share))).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, io::Result<T>>| {
            worker.join().map_err(|_| io::Error::other("a thread has failed"))?
        };
        workers.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_same_and_again_after_changes() {
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let same = || {
            let (mut one, mut other) = (vec![0; 20 << 20], vec![1; 20 << 20]);
            from.read_exact_at(&mut one, 0).unwrap();
            to.read_exact_at(&mut other, 0).unwrap();
            one == other
        };
        from.set_len(20 << 20).unwrap();
        from.write_all_at(&[1; 5000], 3 << 20).unwrap();
        from.write_all_at(&[2; 5000], (20 << 20) - 5000).unwrap();
        assert!(sparse(&from, &to).unwrap() > 0 && same());
        assert_eq!(again(&from, &to).unwrap(), 0);
        from.write_all_at(&[3; 100], 9 << 20).unwrap();
        fallocate(&from, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 3 << 20, 1 << 20).unwrap();
        assert!(!same());
        again(&from, &to).unwrap();
        assert!(same());
    }
}

//! The pages of a region's file at every step of a workload, and files made of them as a crash may leave
//! them.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::rc::Rc;

use lp_abi::Fd;
use lp_region::Region;

use crate::random::Random;

pub const PAGE: usize = 4096;
/// What a device writes whole.
const SECTOR: usize = 512;

type Page = Rc<[u8; PAGE]>;

/// What each page was from which step on. A page that is missing is zeros.
#[derive(Default)]
pub struct Log(BTreeMap<u64, Vec<(usize, Page)>>);

/// How a crash mixes the versions of pages that are on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mixture {
    /// All that was written up to the crash.
    Latest,
    /// Each page as it was at the sync, or, for so many in 256, at a random later step.
    Pages(u8),
    /// The same for each sector.
    Sectors(u8),
}

impl Log {
    /// Notes the pages that have changed.
    pub fn note(&mut self, step: usize, fd: RawFd) {
        for (number, page) in pages(fd) {
            let versions = self.0.entry(number).or_default();
            if versions.last().is_none_or(|(_, last)| last[..] != page[..]) {
                versions.push((step, Rc::new(page)));
            }
        }
    }

    /// A region's file after a crash at step `crash`; the last sync was at step `sync`.
    pub fn image(
        &self,
        length: usize,
        sync: usize,
        crash: usize,
        mixture: Mixture,
        random: &mut Random,
    ) -> RawFd {
        let fd = memory(length);
        for (number, versions) in &self.0 {
            let old = versions.iter().rev().find(|(step, _)| *step <= sync).map(|(_, page)| page);
            let later: Vec<&Page> = versions
                .iter()
                .filter(|(step, _)| (sync + 1..=crash).contains(step))
                .map(|(_, page)| page)
                .collect();
            let mut pick = |odds: u8| match random.below(256) < u64::from(odds) && !later.is_empty() {
                true => Some(later[random.below(later.len() as u64) as usize]),
                false => old,
            };
            let mut page = [0; PAGE];
            match mixture {
                Mixture::Latest => copy(&mut page, later.last().copied().or(old), 0..PAGE),
                Mixture::Pages(odds) => copy(&mut page, pick(odds), 0..PAGE),
                Mixture::Sectors(odds) => {
                    (0..PAGE).step_by(SECTOR).for_each(|at| copy(&mut page, pick(odds), at..at + SECTOR))
                }
            }
            put(fd, *number, &page);
        }
        fd
    }
}

fn copy(to: &mut [u8; PAGE], from: Option<&Page>, range: std::ops::Range<usize>) {
    if let Some(page) = from {
        to[range.clone()].copy_from_slice(&page[range]);
    }
}

/// A file in memory.
pub fn memory(length: usize) -> RawFd {
    // SAFETY: makes a descriptor.
    let fd = unsafe { libc::memfd_create(c"region".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "memfd");
    // SAFETY: changes the new file only.
    assert_eq!(unsafe { libc::ftruncate(fd, length as i64) }, 0);
    fd
}

fn put(fd: RawFd, number: u64, page: &[u8; PAGE]) {
    if page.iter().any(|byte| *byte != 0) {
        // SAFETY: reads a page.
        let put = unsafe { libc::pwrite(fd, page.as_ptr().cast(), PAGE, (number * PAGE as u64) as i64) };
        assert_eq!(put, PAGE as isize);
    }
}

/// The pages of a file that are no holes.
pub fn pages(fd: RawFd) -> Vec<(u64, [u8; PAGE])> {
    // SAFETY: moves the position, which nobody uses.
    let seek = |from: i64, whence| unsafe { libc::lseek(fd, from, whence) };
    let (mut found, mut from) = (Vec::new(), 0);
    loop {
        let start = seek(from, libc::SEEK_DATA);
        if start < 0 {
            return found;
        }
        from = seek(start, libc::SEEK_HOLE);
        for at in (start..from).step_by(PAGE) {
            let mut page = [0; PAGE];
            // SAFETY: fills a page.
            let got = unsafe { libc::pread(fd, page.as_mut_ptr().cast(), PAGE, at) };
            assert_eq!(got, PAGE as isize);
            found.push((at as u64 / PAGE as u64, page));
        }
    }
}

/// A file with each page from either of two others.
pub fn either(one: &[(u64, [u8; PAGE])], two: RawFd, length: usize, random: &mut Random) -> RawFd {
    let fd = memory(length);
    let mut old: BTreeMap<u64, &[u8; PAGE]> = one.iter().map(|(number, page)| (*number, page)).collect();
    for (number, page) in &pages(two) {
        match (random.below(2), old.remove(number)) {
            (0, Some(page)) => put(fd, *number, page),
            (0, None) => {}
            _ => put(fd, *number, page),
        }
    }
    fd
}

/// A region in a file, with a life file of its own; both go when it is dropped.
pub struct Opened {
    pub region: Region<'static>,
}

impl Opened {
    pub fn new(fd: RawFd) -> Opened {
        let fd = lp_region::life_file::beside(Fd::new(fd)).expect("a life file");
        Opened { region: Region::open(fd).expect("a region") }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let (fd, life) = (self.region.fd().raw(), self.region.life_fd().raw());
        // SAFETY: nothing of the region is used any more; the descriptors are its own.
        unsafe {
            self.region.unmap();
            libc::close(fd);
            libc::close(life);
        }
    }
}

//! [`Region`]: the mapped region, and access to its records by handle.

use core::marker::PhantomData;
use core::ptr::NonNull;

use lp_abi::linux::{__NR_fstat, __NR_ftruncate, __NR_madvise, __NR_mmap, __NR_munmap, __NR_pread64};
use lp_abi::linux::{
    MADV_DONTDUMP, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE,
};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result};

use crate::ids::*;
use crate::lane::{Lane, UNLINKED, UNLINKED_NEAR};
use crate::layout as at;
use crate::lock::OwnerLock;
use crate::mount::{Mount, Superblock};
use crate::mount_change::PlanWords;
use crate::process::{Process, ProcessSlot, Run};
use crate::records::*;
use crate::slab::Slot;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A mapped region. `Copy`: a base address and what is needed to use it.
///
/// `'r` is the lifetime of the mapping; the gate's lives as long as the program (`'static`).
#[derive(Clone, Copy)]
pub struct Region<'r> {
    base: NonNull<u8>,
    /// Pages of data in the high half, the file's descriptor in the low half: two words fit in registers.
    extent: u64,
    mapped: PhantomData<&'r [AtomicU64]>,
}

// SAFETY: everything in a region is an atomic, or a data page that only the copy routines touch.
unsafe impl Send for Region<'_> {}
// SAFETY: atomics may be used by several threads at once, and the copy routines allow for pages that change
// under them.
unsafe impl Sync for Region<'_> {}

/// The first pages of a region, mapped on their own: the header and the runs, for a process that has not
/// joined yet.
#[derive(Clone, Copy)]
pub struct Front<'r>(Region<'r>);

/// Where the pages of a region begin: an address that fast paths have at hand.
#[derive(Clone, Copy)]
pub struct FirstPage(NonNull<u8>);

// SAFETY: as for a region.
unsafe impl Send for FirstPage {}
// SAFETY: as for a region.
unsafe impl Sync for FirstPage {}

/// Why a file is not a usable region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionError {
    /// It does not start with the magic.
    NotARegion,
    /// It has another layout version.
    Version(u32),
    /// It is shorter than it says.
    Truncated,
    /// Its header contradicts itself.
    Corrupted,
    /// A system call failed.
    System(Errno),
}

impl From<Errno> for RegionError {
    fn from(errno: Errno) -> Self {
        RegionError::System(errno)
    }
}

/// Parameters of a new region.
#[derive(Clone, Copy)]
pub struct Geometry {
    /// Bytes of data, rounded up to whole pages.
    pub data_bytes: u64,
    /// Maximum number of inodes.
    pub inodes: u64,
    /// Random number that distinguishes it from others.
    pub identity: u64,
}

impl Geometry {
    /// Length of the whole sparse file in bytes.
    pub fn length(&self) -> Result<u64> {
        // Page 0 is never used, so there is one page more than is usable.
        let pages = self.data_bytes.div_ceil(PAGE_SIZE as u64) + 1;
        let chunks = pages.div_ceil(at::CHUNK_PAGES as u64);
        if chunks == 0 || chunks > at::CHUNKS as u64 {
            return Err(Errno::EFBIG);
        }
        Ok(at::DATA_AT as u64 + chunks * (at::CHUNK_PAGES * PAGE_SIZE) as u64)
    }
}

/// Preferred address of the region. Without a hint it would be right below the libraries, where it would
/// block the gate's mappings at a fixed distance from each library, and libraries loaded later.
/// AddressSanitizer, ThreadSanitizer and MemorySanitizer map their shadows over whatever is there: of the
/// addresses below 80 TiB one or the other uses all. Programs are loaded from 85 TiB, with their heap behind.
const HINT: usize = 0x58 << 40;

impl<'r> Region<'r> {
    /// Makes the empty, zero-length file behind `fd` a region and maps it. `vfs::mkfs` creates its first
    /// root.
    pub fn create(fd: Fd, geometry: &Geometry) -> core::result::Result<Region<'static>, RegionError> {
        let length = geometry.length()?;
        // SAFETY: changes the file only.
        unsafe { lp_abi::syscall!(__NR_ftruncate, fd, length) }?;
        let region = Self::map(fd, length as usize, MAP_SHARED)?;
        region.format(geometry, length);
        Ok(region)
    }

    /// Creates a region in private memory, for the library.
    pub fn create_private(geometry: &Geometry) -> core::result::Result<Region<'static>, RegionError> {
        let length = geometry.length()?;
        let region = Self::map(Fd::NONE, length as usize, MAP_PRIVATE | MAP_ANONYMOUS)?;
        region.format(geometry, length);
        Ok(region)
    }

    /// Maps the region behind `fd` after checking its header.
    pub fn open(fd: Fd) -> core::result::Result<Region<'static>, RegionError> {
        let mut head = [0u64; 8];
        // SAFETY: the kernel writes within `head`.
        let got = unsafe { lp_abi::syscall!(__NR_pread64, fd, head.as_mut_ptr(), size_of_val(&head), 0) }?;
        if got < size_of_val(&head) || head[0] != at::MAGIC {
            return Err(RegionError::NotARegion);
        }
        let version = head[1] as u32;
        if version != at::VERSION {
            return Err(RegionError::Version(version));
        }
        let (length, data_pages, identity, inodes) = (head[2], head[3], head[4], head[5]);
        if (head[1] >> 32) as u32 != checksum(&[length, data_pages, identity, inodes]) {
            return Err(RegionError::Corrupted);
        }
        let fits = length >= (at::DATA_AT + at::CHUNK_PAGES * PAGE_SIZE) as u64
            && data_pages < (length - at::DATA_AT as u64) / PAGE_SIZE as u64
            && inodes < at::INODES as u64;
        if !fits {
            return Err(RegionError::Corrupted);
        }
        let mut stat = [0u64; 18];
        // SAFETY: struct stat is 144 bytes.
        unsafe { lp_abi::syscall!(__NR_fstat, fd, stat.as_mut_ptr()) }?;
        if stat[6] < length {
            return Err(RegionError::Truncated);
        }
        let region = Self::map(fd, length as usize, MAP_SHARED)?;
        region.advise();
        Ok(region)
    }

    /// Maps a region whose header an ancestor of this process has already checked: the gate's attach.
    ///
    /// # Safety
    /// `fd` is a region of `length` bytes.
    pub unsafe fn attach(fd: Fd, length: usize) -> Result<Region<'static>> {
        let region = Self::map(fd, length, MAP_SHARED)?;
        region.advise();
        Ok(region)
    }

    fn map(fd: Fd, length: usize, kind: u32) -> Result<Region<'static>> {
        // SAFETY: a new mapping, at the hint if that is free, else where the kernel chooses.
        let base = unsafe {
            lp_abi::syscall!(__NR_mmap, HINT, length, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, fd, 0)
        }?;
        // A core dump reads every page of a shared mapping, and reading a hole of shared memory fills it.
        // SAFETY: changes only how the new mapping is dumped.
        unsafe { lp_abi::syscall!(__NR_madvise, base, length, MADV_DONTDUMP) }?;
        let base = NonNull::new(base as *mut u8).ok_or(Errno::ENOMEM)?;
        let pages = (length - at::DATA_AT) / (at::CHUNK_PAGES * PAGE_SIZE) * at::CHUNK_PAGES;
        Ok(Region { base, extent: (pages as u64) << 32 | fd.raw() as u32 as u64, mapped: PhantomData })
    }

    fn format(self, geometry: &Geometry, length: u64) {
        let header = self.header();
        let pages = geometry.data_bytes.div_ceil(PAGE_SIZE as u64);
        let inodes = geometry.inodes.clamp(16, at::INODES as u64 - 1);
        let store = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed); // Nobody else has it yet.
        store(&header.length, length);
        store(&header.data_pages, pages);
        store(&header.identity, geometry.identity);
        store(&header.inode_limit, inodes);
        header.version.store(at::VERSION, Ordering::Relaxed);
        let sum = checksum(&[length, pages, geometry.identity, inodes]);
        header.checksum.store(sum, Ordering::Relaxed);
        // Release: a process that sees the magic sees the rest.
        header.magic.store(at::MAGIC, Ordering::Release);
    }

    /// Gives a copy of a region an identity of its own. Nobody may use the copy yet.
    pub fn set_identity(self, identity: u64) {
        let header = self.header();
        // Relaxed throughout: nobody else has it.
        header.identity.store(identity, Ordering::Relaxed);
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let words = [of(&header.length), of(&header.data_pages), identity, of(&header.inode_limit)];
        header.checksum.store(checksum(&words), Ordering::Relaxed);
    }

    /// Unmaps it.
    ///
    /// # Safety
    /// The caller no longer uses anything that came from this region.
    pub unsafe fn unmap(self) {
        // SAFETY: nothing that came from this region is used afterwards, by this function's contract.
        let _ = unsafe { lp_abi::syscall!(__NR_munmap, self.base.as_ptr(), self.length()) };
    }

    /// The descriptor that it is mapped from; [`Fd::NONE`] in private memory.
    #[inline]
    pub fn fd(self) -> Fd {
        Fd::new(self.extent as i32)
    }

    /// Whether it is mapped from a file.
    #[inline]
    pub fn has_file(self) -> bool {
        self.fd().raw() >= 0
    }

    /// The life file's descriptor, one above the region's: see [`crate::life_file`]. Valid only for a region
    /// with a file.
    #[inline]
    pub fn life_fd(self) -> Fd {
        self.fd().next()
    }

    /// The same region under another descriptor number.
    pub fn with_fd(self, fd: Fd) -> Self {
        Region { extent: self.extent >> 32 << 32 | fd.raw() as u32 as u64, ..self }
    }

    /// Length of the mapping in bytes.
    #[inline]
    pub fn length(self) -> usize {
        at::DATA_AT + self.pages() as usize * PAGE_SIZE
    }

    #[inline(always)]
    fn pages(self) -> u32 {
        (self.extent >> 32) as u32
    }

    /// Address of the mapping.
    #[inline]
    pub fn base(self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The header.
    #[inline]
    pub fn header(self) -> &'r Header {
        self.at(at::HEADER_AT)
    }

    /// The region for access to records only: without data pages and file, it fits in one register.
    #[inline(always)]
    pub fn records(self) -> Self {
        Region { extent: 0, ..self }
    }

    #[inline(always)]
    fn at<T>(self, offset: usize) -> &'r T {
        // SAFETY: callers pass offsets of records inside the fixed part, which every region has; records are
        // atomics.
        unsafe { &*self.base.as_ptr().add(offset).cast::<T>() }
    }

    /// [`Region::at`] for several accesses to a record whose offset does not fit an instruction: the compiler
    /// would load the offset for each; this has it compute the record's address once.
    #[inline(always)]
    #[expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read or written through it")]
    fn at_once<T>(self, offset: usize) -> &'r T {
        let record = self.at(offset);
        if cfg!(miri) {
            return record;
        }
        let mut address: *const T = record;
        // SAFETY: no instruction: only hides how the address was computed.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
        }
        // SAFETY: the record's address.
        unsafe { &*address }
    }

    /// The record in slot `index` of its slab; the index is masked into the slab.
    #[inline(always)]
    pub fn slot<T: Slot>(self, index: u32) -> &'r T {
        self.at(T::PLACE.offset(index as usize))
    }

    /// An inode.
    #[inline(always)]
    pub fn inode(self, id: InodeId) -> &'r Inode {
        self.slot(id.0)
    }

    /// The number of files that have the content of a common inode.
    pub fn members(self, id: InodeId) -> &'r Members {
        // SAFETY: the type is a transparent `AtomicU64`.
        unsafe { &*core::ptr::from_ref(&self.inode(id).tail).cast() }
    }

    /// A directory entry.
    #[inline(always)]
    pub fn dirent(self, id: DirentId) -> &'r Dirent {
        self.slot(id.0)
    }

    /// A directory entry of which most fields are read.
    #[inline(always)]
    pub fn whole_dirent(self, id: DirentId) -> &'r Dirent {
        self.at_once(at::DIRENT_SLAB.offset(id.index()))
    }

    /// An open file description.
    #[inline(always)]
    pub fn file(self, id: FileId) -> &'r OpenFile {
        self.slot(id.0)
    }

    /// A long name.
    #[inline]
    pub fn name(self, id: NameId) -> &'r LongName {
        self.slot(id.0)
    }

    /// A lock record.
    #[inline]
    pub fn lock_record(self, id: LockId) -> &'r LockRecord {
        self.slot(id.0)
    }

    /// A mapping record.
    #[inline]
    pub fn mapping(self, id: MappingId) -> &'r Mapping {
        self.slot(id.0)
    }

    /// The mapping records of all processes.
    pub fn mappings(self) -> impl Iterator<Item = &'r Mapping> {
        // PAIRS: the release store of the inode, after which the record is whole.
        let in_use = |record: &&Mapping| record.inode.load(Ordering::Acquire) != 0;
        self.slots::<Mapping>().map(move |id| self.mapping(id)).filter(in_use)
    }

    /// A primary bucket.
    #[inline(always)]
    pub fn bucket(self, index: u32) -> &'r Bucket {
        self.at_once(at::BUCKET_SLAB.offset(index as usize))
    }

    /// An overflow bucket.
    #[inline]
    pub fn overflow(self, id: OverflowId) -> &'r Bucket {
        self.slot(id.0)
    }

    /// A process slot.
    #[inline]
    pub fn process(self, id: ProcessId) -> &'r Process {
        &self.process_slot(id).process
    }

    /// The slot of a record of [`Region::process`].
    pub fn slot_of(self, process: &Process) -> ProcessId {
        let offset = core::ptr::from_ref(process).addr() - self.base.as_ptr().addr() - at::PROCESSES_AT;
        ProcessId((offset / at::LANE_SIZE) as u32)
    }

    /// A run record.
    #[inline]
    pub fn run(self, id: RunId) -> &'r Run {
        self.at(at::RUNS_AT + (id.index() & (at::RUNS - 1)) * at::RUN_SIZE)
    }

    /// A mount.
    #[inline(always)]
    pub fn mount(self, id: MountId) -> &'r Mount {
        self.at(at::MOUNTS_AT + (id.index() & (at::MOUNTS - 1)) * size_of::<Mount>())
    }

    /// The records of mounts that may be in use. The caller looks at their states.
    pub fn mounts(self) -> impl Iterator<Item = MountId> + use<> {
        // PAIRS: the release store of the limit: a record that it counts has been filled in. A damaged limit
        // counts no more records than there are.
        let limit = self.header().mount_limit.load(Ordering::Acquire).min(at::MOUNTS as u32 - 1);
        (1..=limit).map(MountId)
    }

    /// A mount, by what its writers' lanes are marked with.
    #[inline(always)]
    pub fn marked_mount(self, mark: u32) -> &'r Mount {
        self.at(at::MOUNTS_AT + (mark as usize & ((at::MOUNTS - 1) << at::MOUNT_SIZE_BITS)))
    }

    /// A file system made by mount(2), by its root number.
    #[inline]
    pub fn superblock(self, root: u32) -> &'r Superblock {
        self.at(at::SUPERBLOCKS_AT + (root as usize & (at::SUPERBLOCKS - 1)) * size_of::<Superblock>())
    }

    /// A lane.
    #[inline]
    pub fn lane(self, id: LaneId) -> &'r Lane {
        self.at(at::LANES_AT + (id.index() & (at::LANES - 1)) * at::LANE_SIZE)
    }

    /// The change of mounts that a lane is making.
    pub fn mount_plan(self, id: LaneId) -> &'r PlanWords {
        self.at(at::PLANS_AT + (id.index() & (at::LANES - 1)) * at::PLAN_SIZE)
    }

    /// A place in a lane's list of unlinked inodes; none beyond its end.
    #[inline(always)]
    pub fn unlinked<'l>(self, lane: &'l Lane, place: usize) -> Option<&'l AtomicU64>
    where
        'r: 'l,
    {
        let Some(place) = place.checked_sub(UNLINKED_NEAR) else { return lane.unlinked.inodes.get(place) };
        let number = (self.offset_of(lane) as usize).wrapping_sub(at::LANES_AT) / at::LANE_SIZE;
        let offset = at::UNLINKED_AT + (number & (at::LANES - 1)) * at::UNLINKED_SIZE;
        let far: &[AtomicU64; UNLINKED - UNLINKED_NEAR] = self.at(offset);
        far.get(place)
    }

    /// Offset in the region of a record or a part of one.
    pub fn offset_of<T>(self, record: &T) -> u64 {
        (core::ptr::from_ref(record) as usize).wrapping_sub(self.base.as_ptr() as usize) as u64
    }

    /// The lock at an offset returned by [`Region::offset_of`]; none if no record can be there.
    pub fn lock_at(self, offset: u64) -> Option<&'r OwnerLock> {
        let fits = offset.is_multiple_of(align_of::<OwnerLock>() as u64) && offset < at::DATA_AT as u64;
        fits.then(|| self.at(offset as usize))
    }

    /// A process slot, and the first lines of its descriptor table.
    #[inline]
    pub fn process_slot(self, id: ProcessId) -> &'r ProcessSlot {
        self.at(at::PROCESSES_AT + (id.index() & (at::PROCESSES - 1)) * at::LANE_SIZE)
    }

    /// The lines of the descriptor table of a process, of which [`ProcessSlot`] has the first.
    #[inline]
    pub fn far_fds(self, id: ProcessId) -> &'r at::FarFds {
        self.at(at::FD_TABLES_AT + (id.index() & (at::PROCESSES - 1)) * at::FDS * 8)
    }

    /// Number of chunks in the file.
    #[inline]
    pub fn chunk_count(self) -> usize {
        self.pages() as usize / at::CHUNK_PAGES
    }

    /// A chunk record; none beyond the last chunk.
    #[inline]
    pub fn chunk(self, index: usize) -> Option<&'r Chunk> {
        (index < self.chunk_count()).then(|| self.at(at::CHUNKS_AT + index * size_of::<Chunk>()))
    }

    /// The owner word of a page; none beyond the last page.
    #[inline]
    pub fn page_owner(self, page: PageId) -> Option<&'r AtomicU64> {
        (page.0 < self.pages()).then(|| self.at(at::OWNER_SLAB.offset(page.index())))
    }

    /// A page's offset in the region's file; none beyond the last page.
    #[inline]
    pub fn page_offset(self, page: PageId) -> Option<usize> {
        (page.0 < self.pages()).then_some(at::DATA_AT + page.index() * PAGE_SIZE)
    }

    /// The bytes of a page. A page beyond the end, which only a damaged region names, becomes page 0.
    #[inline(always)]
    pub fn page(self, page: PageId) -> *mut u8 {
        let offset = self.page_offset(page).unwrap_or(at::DATA_AT);
        // SAFETY: within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Where the pages begin.
    pub fn first_page(self) -> FirstPage {
        // SAFETY: within the mapping, which starts at no null address.
        FirstPage(unsafe { self.base.add(at::DATA_AT) })
    }

    /// [`Region::page`], by where the pages begin.
    #[inline(always)]
    pub fn page_from(self, FirstPage(first): FirstPage, page: PageId) -> *mut u8 {
        let index = if page.0 < self.pages() { page.index() } else { 0 };
        // SAFETY: within the mapping.
        unsafe { first.as_ptr().add(index * PAGE_SIZE) }
    }

    /// A page as words, for map pages and directory pages.
    #[inline(always)]
    pub fn page_words(self, page: PageId) -> &'r [AtomicU32; PAGE_SIZE / 4] {
        // SAFETY: a page is PAGE_SIZE bytes, page-aligned, and accessed as atomics here.
        unsafe { &*self.page(page).cast() }
    }

    /// [`Region::page_words`], by where the pages begin.
    #[inline(always)]
    pub fn page_words_from(self, first: FirstPage, page: PageId) -> &'r [AtomicU32; PAGE_SIZE / 4] {
        // SAFETY: as in `page_words`.
        unsafe { &*self.page_from(first, page).cast() }
    }
}

impl Front<'_> {
    /// Maps the first pages.
    ///
    /// # Errors
    /// Those of mmap(2).
    ///
    /// # Safety
    /// `fd` is a region that one of this process's ancestors has checked.
    pub unsafe fn attach(fd: Fd) -> Result<Front<'static>> {
        let (protection, length) = (PROT_READ | PROT_WRITE, at::LANES_AT);
        // SAFETY: a new mapping.
        let base = unsafe { lp_abi::syscall!(__NR_mmap, 0, length, protection, MAP_SHARED, fd, 0) }?;
        let base = NonNull::new(base as *mut u8).ok_or(Errno::ENOMEM)?;
        Ok(Front(Region { base, extent: fd.raw() as u32 as u64, mapped: PhantomData }))
    }
}

impl<'r> Front<'r> {
    /// The header.
    pub fn header(self) -> &'r Header {
        self.0.header()
    }

    /// A run record.
    pub fn run(self, id: RunId) -> &'r Run {
        self.0.run(id)
    }
}

fn checksum(words: &[u64]) -> u32 {
    // FNV-1a over the bytes: detects damage, not malice.
    words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .fold(0x811c_9dc5, |sum, byte| (sum ^ byte as u32).wrapping_mul(0x0100_0193))
}

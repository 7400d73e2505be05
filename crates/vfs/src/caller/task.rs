//! [`Task`]: the caller of a call.

use core::cell::{Cell, UnsafeCell};

use lp_abi::{Errno, PAGE_SIZE, PATH_MAX, Result, UserSlice};
use lp_region::lane::Lane;
use lp_region::lock::{Lanes, OwnerLock};
use lp_region::onlooker::Onlooker;
use lp_region::order;
use lp_region::process::{Process, Run};
use lp_region::sync::Ordering::Relaxed;
use lp_region::sync::{AtomicU32, Ordering};
use lp_region::{FirstPage, InodeId, InodeRef, LaneId, PageId, ProcessId, Region, RunId};

use crate::caller::candidates::Candidates;
use crate::caller::directories;
use crate::caller::event::Event;
use crate::caller::fd_table::FdTable;
use crate::caller::lacking::{Habit, Need, Passage};
use crate::caller::mount_prefix::MountPrefix;
use crate::caller::prefix_cache::PrefixCache;

/// Device number of a region's root 0: `st_dev`, in the kernel's 64-bit encoding. The other roots' numbers
/// are ORed in.
///
/// Major 0, like every file system without a device, and a minor from the upper half, which the kernel's own
/// numbers, counted from 1, do not reach.
#[inline]
pub fn device(region: Region) -> u64 {
    let identity = region.header().identity.load(Relaxed); // Relaxed: immutable.
    let minor = 0x8_0000 | (identity as u32 & 0x7f00);
    u64::from(minor & 0xff) | u64::from(minor & !0xff) << 12
}

/// A thread that makes calls: its process's credentials, directory and descriptors, and its own lane.
///
/// Like `current`. One thread uses a task at a time, and a task makes one call at a time, so the buffers
/// belong to that call. They come last, so that the rest occupies few pages.
#[repr(C)]
pub struct Task<'r> {
    /// The region.
    pub region: Region<'r>,
    /// The process's slot.
    pub process: &'r Process,
    /// The slot's id.
    pub process_id: ProcessId,
    /// The thread's ids, groups and capabilities. They are in the process's slot, or in a record of the
    /// thread's own once it has changed them while there were other threads, because credentials belong to
    /// threads in Linux. Nothing else in that record has a meaning.
    pub credentials: Cell<&'r Process>,
    /// The slot with the working directory, the root directory and the umask: the process's, or the home of
    /// processes that share them ([`crate::caller::directories`]).
    pub directories: Cell<&'r Process>,
    /// The thread's lane.
    pub lane: &'r Lane,
    /// The lane's id.
    pub lane_id: LaneId,
    /// The process's descriptors.
    pub table: FdTable<'r>,
    /// The run, with the paths of its mounts.
    pub run: &'r Run,
    /// The region's device number; see [`Task::device`].
    pub root_device: u64,
    /// Where the region's pages begin.
    pub first_page: FirstPage,
    /// Reads `CLOCK_REALTIME_COARSE`.
    pub clock: fn() -> Time,
    /// Whether a signal waits for this thread's call to end, so that a call that sleeps must end with
    /// `EINTR`. Always false unless the door sets it.
    pub interrupted: fn() -> bool,
    /// Makes a kernel system call that may wait. If the door defers signal handlers, a signal ends the call
    /// with `EINTR`; otherwise the kernel restarts it or not, according to the handler's flags.
    pub blocking: unsafe fn(u32, [usize; 6]) -> Result<usize>,
    /// Reports events to watchers. Does nothing unless the door sets it.
    pub notify: fn(&Task<'_>, &Event<'_>),
    /// Where to get what the region does not know of an inode yet.
    pub sources: &'static Sources,
    /// How the program looks at directories of the layer below.
    pub habit: Habit,
    /// The mount ([`lp_region::MountId`]) into which a walk last went from another one, until an open or
    /// chdir(2) has made sure that it was not unmounted; 0 none.
    pub entered: Cell<u32>,
    /// Whether walks leave the mark of `MNT_EXPIRE` on the mounts that they enter.
    pub expires: Cell<bool>,
    /// The run's mount, for a quick comparison.
    pub prefix: MountPrefix,
    /// Cache of directories by path.
    pub prefixes: PrefixCache,
    /// Path buffers.
    pub scratch: Scratch,
    /// Memory of the thread's sweeps.
    pub candidates: Candidates,
}

/// Where to get what the region does not know of an inode yet.
pub struct Sources {
    /// Takes in what is still to be taken from the layer below: [`crate::below::take`], if the door has a
    /// layer.
    pub below: fn(&Task<'_>, InodeRef, Need) -> Result<()>,
    /// Reads content from the layer below without taking it in: [`crate::below::through::read`], if the door
    /// has a layer. `None` if it is to be taken in.
    pub through: fn(&Task<'_>, InodeRef, UserSlice, u64, Passage) -> Result<Option<usize>>,
    /// Sets the times of an inode to which the program may have written through mappings
    /// ([`crate::mapping::written`]). Does nothing unless the door maps files.
    pub mappings: fn(&Task<'_>, InodeId),
}

/// A point in time, like `struct timespec`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

/// Buffers of a task, so that calls need little stack and no allocation. Names are read a word at a time,
/// past their end, hence the slack.
pub struct Scratch {
    /// The text left to walk while symbolic links are expanded. Most calls use only this one, and it begins
    /// on the page of [`Task::prefixes`].
    pub walk: UnsafeCell<[u8; 2 * PATH_MAX + SLACK]>,
    /// The first path of a call, as the program gave it.
    pub path: UnsafeCell<[u8; PATH_MAX + SLACK]>,
    /// The second path of a call.
    pub other: UnsafeCell<[u8; PATH_MAX + SLACK]>,
    /// A path outside all mounts at which a walk ended, NUL-terminated; see [`Outside`].
    pub outside: UnsafeCell<[u8; 2 * PATH_MAX]>,
}

/// The result of a walk: something of ours, or a path for the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place<T> {
    /// In one of our mounts.
    Inside(T),
    /// Not ours.
    Outside(Outside),
}

/// How a path leads out of our mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outside {
    /// It never entered one: the call goes to the kernel as the program made it.
    AsGiven,
    /// It entered one and left again (a symbolic link, `..` of a root). The kernel must be called with the
    /// absolute path in `scratch.outside`, this many bytes and a NUL.
    Rewritten(usize),
}

impl<T> Place<T> {
    /// Applies `f` to the value inside.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Place<U> {
        match self {
            Place::Inside(value) => Place::Inside(f(value)),
            Place::Outside(outside) => Place::Outside(outside),
        }
    }
}

impl Scratch {
    /// All buffers as one, in whole pages, for a call without paths.
    pub(crate) fn whole(&self) -> UserSlice {
        let bytes = size_of::<Scratch>() / PAGE_SIZE * PAGE_SIZE;
        // SAFETY: the buffers are cells, and their task makes one call at a time.
        unsafe { UserSlice::new(core::ptr::from_ref(self).cast(), bytes) }
    }

    /// Zeroed buffers.
    pub const fn new() -> Self {
        Scratch {
            path: UnsafeCell::new([0; PATH_MAX + SLACK]),
            other: UnsafeCell::new([0; PATH_MAX + SLACK]),
            walk: UnsafeCell::new([0; 2 * PATH_MAX + SLACK]),
            outside: UnsafeCell::new([0; 2 * PATH_MAX]),
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl<'r> Task<'r> {
    /// A task for a thread of `process_id` that owns `lane_id`.
    pub fn new(region: Region<'r>, process_id: ProcessId, lane_id: LaneId, clock: fn() -> Time) -> Self {
        let process = region.process(process_id);
        order::begin(order::of(&region.lane(lane_id).holding));
        // Relaxed: immutable while claimed.
        let run = region.run(RunId(process.run.load(Ordering::Relaxed)));
        Task {
            region,
            process,
            process_id,
            credentials: Cell::new(process),
            directories: Cell::new(directories::of(region, process_id)),
            lane: region.lane(lane_id),
            lane_id,
            table: FdTable::of(region, process_id),
            run,
            root_device: device(region),
            first_page: region.first_page(),
            prefix: MountPrefix::new(run, process),
            clock,
            interrupted: || false,
            blocking: system_call,
            notify: |_, _| {},
            sources: &Sources {
                below: |_, _, _| Err(Errno::EIO),
                through: |_, _, _, _, _| Ok(None),
                mappings: |_, _| {},
            },
            habit: Habit::default(),
            entered: Cell::new(0),
            expires: Cell::new(false),
            prefixes: PrefixCache::new(),
            scratch: Scratch::new(),
            candidates: Candidates::new(),
        }
    }

    /// The time that the kernel would use for a file's times at this moment.
    #[inline]
    pub fn now(&self) -> Time {
        (self.clock)()
    }

    /// The bytes of a page, as by [`Region::page`].
    #[inline(always)]
    pub(crate) fn page(&self, page: PageId) -> *mut u8 {
        self.region.page_from(self.first_page, page)
    }

    /// The slot with the directories and the umask that the calling thread uses: its process's home, or one
    /// for some threads of the process (`life::parted`).
    pub fn directories_at(&self) -> ProcessId {
        self.region.slot_of(self.directories.get())
    }

    /// `st_dev` of the inodes of root number `root`.
    #[inline(always)]
    pub fn device(&self, root: u32) -> u64 {
        self.root_device | u64::from(root & 0xff)
    }

    /// Whether a call that sleeps must end with `EINTR`.
    pub(crate) fn is_interrupted(&self) -> bool {
        (self.interrupted)()
    }
}

/// The plain system call: [`Task::blocking`] for a door that does not defer handlers.
unsafe fn system_call(nr: u32, [a, b, c, d, e, f]: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller of [`Task::blocking`] answers for the arguments and the effect of the call.
    unsafe { lp_abi::syscall!(nr, a, b, c, d, e, f) }
}

impl Task<'_> {
    /// Whether the thread that owns `lane` is dead.
    pub fn is_dead(&self, lane: LaneId) -> bool {
        self.region.lane_is_dead(lane, self.process_id)
    }

    fn onlooker(&self) -> Onlooker<'_> {
        Onlooker { region: self.region, process: self.process_id }
    }
}

impl Lanes for Task<'_> {
    fn is_dead(&self, lane: LaneId) -> bool {
        self.onlooker().is_dead(lane)
    }

    fn mark(&self, lane: LaneId) -> &AtomicU32 {
        &self.region.lane(lane).holding
    }

    fn note_wait(&self, me: LaneId, lock: Option<&OwnerLock>) {
        self.onlooker().note_wait(me, lock);
    }

    fn is_awaited(&self, lock: &OwnerLock) -> bool {
        self.onlooker().is_awaited(lock)
    }
}

/// Bytes that may be read past any name: path buffers are this much longer than their contents.
pub(crate) const SLACK: usize = 32;

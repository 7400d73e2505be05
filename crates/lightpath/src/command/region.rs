//! The launcher's side of a region: creating or opening it, the run record, and the command's process slot.

use std::ffi::CString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lp_abi::{Errno, Fd, UserPtr};
use lp_fsck::{Rebuilt, Severity};
use lp_region::backing::FileAge;
use lp_region::layout::{LANES_AT, RUNS, VERSION};
use lp_region::process::{CALLS_ALL_TRACED, CALLS_COUNTED, CALLS_TRACED, protections};
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{Geometry, LaneId, ProcessId, Region, RegionError, RunId, trace};
use lp_vfs::boot::{self, MountAccess, RunSetup};
use lp_vfs::walk::{self, Follow};
use lp_vfs::{Place, Task, below};
use rustix::fs::{FlockOperation, MemfdFlags, SealFlags, flock};
use rustix::process::{Resource, getrlimit};

use crate::command::branch::{self, Branch};
use crate::command::cache::builder;
use crate::command::cache::within::Library;
use crate::command::options::mountpoint::MountPoint;
use crate::command::options::run::{Options, RegionOwner};
use crate::command::options::size::Size;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::stats::Counts;
use crate::command::{life, runs, shelf};

/// How the name of each run's flights starts; identity of the region and number of the run follow.
pub(crate) const FLIGHTS: &str = "lightpath-flights:";
/// Descriptor numbers that most programs stay below. The kernel's table grows with the highest number, and
/// fork copies it.
const USUAL: u64 = 256;
/// Numbers below that, or below the descriptor limit, that are reserved for what the gate keeps open.
const HEADROOM: u64 = 24;
const NANOSECONDS: u64 = 1_000_000_000;
/// Minimum number of descriptors that a run needs.
const FEWEST: u64 = 64;

/// A run about to start.
pub(crate) struct Session {
    region: Region<'static>,
    run: RunId,
    /// Counters from earlier runs on the same region.
    started: Counts,
}

/// The process slot of the command.
pub(crate) struct Slot {
    process: ProcessId,
    generation: u32,
}

/// Paths in the run record, other than its mounts.
pub(crate) struct Paths<'a> {
    /// The cache directory.
    pub(crate) cache: &'a Path,
    /// The preload library in it.
    pub(crate) preload: &'a Path,
    /// The C library that contains the gate, if there is one.
    pub(crate) library: Option<&'a Library>,
}

/// Claims a run record. The caller holds the region's flock.
fn claim_run(region: Region<'static>, options: &Options, paths: &Paths) -> Result<RunId, Failure> {
    let launcher = builder::place(paths.cache).map_err(|line| Failure::new(REGION, line))?;
    let mounts: Vec<&[u8]> = options.at.iter().map(MountPoint::in_record).collect();
    let covered = options.at.iter().enumerate().filter(|(_, mount)| mount.path().exists());
    let setup = RunSetup {
        mounts: &mounts,
        covers: covered.fold(0, |set, (number, _)| set | 1 << number),
        launcher: bytes(&launcher),
        cache: bytes(paths.cache),
        preload: bytes(paths.preload),
        library: paths.library.map(|library| bytes(&library.directory)).unwrap_or_default(),
        linker: paths.library.map_or(0, |library| library.linker),
        stats: if options.stats { CALLS_COUNTED } else { options.records },
        protections: restrictions(),
    };
    boot::claim_run(region, &setup)
        .map_err(|e| match e {
            Errno::EAGAIN => format!("{} runs use the region already; wait for one to end", RUNS - 1),
            Errno::ENAMETOOLONG => {
                "the path of the cache directory or of lightpath itself is too long".to_owned()
            }
            e => format!("the region gives no place to the run: {e:?}"),
        })
        .map_err(|line| Failure::new(REGION, line))
}

/// What the sysctls `fs.protected_*` say now. Those that cannot be read count as 0.
fn restrictions() -> u64 {
    let value = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/protected_{name}"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let bits = [
        ("symlinks", protections::SYMLINKS, 0),
        ("hardlinks", protections::HARDLINKS, 0),
        ("regular", protections::REGULAR, protections::REGULAR_BY_GROUP),
        ("fifos", protections::FIFOS, protections::FIFOS_BY_GROUP),
    ];
    bits.iter().fold(0, |set, (name, one, two)| match value(name) {
        0 => set,
        1 => set | one,
        _ => set | one | two,
    })
}

/// Makes the root of each mount unless it is there. This process takes part in the run for that long.
fn make_roots(region: Region<'static>, run: RunId, options: &Options) -> Result<(), Failure> {
    let made = (|| {
        let process = boot::claim_own_process(region, run)?;
        let lane = boot::attach(region, process, std::process::id())?;
        let task = task_of(region, process, lane);
        // A region file may name processes that died with an earlier run.
        lp_vfs::reclaim::dead(&task);
        let access = if options.ro { MountAccess::ReadOnly } else { MountAccess::ReadWrite };
        let mut roots = 0..options.at.len() as u32;
        let made = roots.try_for_each(|root| boot::mount_root(&task, root, access));
        let laid = made.and_then(|()| lay(&task, options));
        boot::exit(&task);
        laid
    })();
    made.map_err(|e| {
        Failure::new(
            REGION,
            match e {
                Errno::ENOSPC => "the region is full: its first directory has no place in it".to_owned(),
                Errno::EAGAIN => "the region has no place for another process".to_owned(),
                e => format!("the region cannot be used: {e:?}"),
            },
        )
    })
}

/// The task of this process, in the slot that it has claimed.
fn task_of(region: Region<'static>, process: ProcessId, lane: LaneId) -> Box<Task<'static>> {
    let mut task = Box::new(Task::new(region, process, lane, lp_vfs::clock::now));
    task.sources = &lp_vfs::task::Sources { below: below::take, mappings: |_, _| {} };
    task
}

/// Puts each directory that the run is over below its root.
fn lay(task: &Task, options: &Options) -> lp_abi::Result<()> {
    (0..).zip(&options.over).try_for_each(|(root, over)| {
        let path = [bytes(over), b"\0"].concat();
        below::names::lay(task, root, &path)
    })
}

fn full(errno: Errno) -> Failure {
    Failure::new(REGION, format!("the region has no place for another process ({errno:?})"))
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl Session {
    /// Creates the region, or opens `--region FILE`, and claims a run record in it.
    pub(crate) fn open(options: &Options, paths: &Paths) -> Result<Session, Failure> {
        let (branch, name) = match (&options.region, &options.from) {
            (Some(path), _) => (open_file(path)?.into(), path.display().to_string()),
            (None, Some(path)) => (branch::of(path)?, format!("the branch of {}", path.display())),
            (None, None) => (open_memory()?.into(), "region".to_owned()),
        };
        let Branch { fd, below } = branch;
        // Two launchers must not initialise the same file, or claim the same run record. Record locks would
        // work only within one process; this lock is released with its descriptor if this process is killed.
        locked(&fd, &name, FlockOperation::LockExclusive)?;
        let changed = changed(&fd);
        if options.region.is_some() {
            make_room(&fd).map_err(|e| no_room(&name, e))?;
        }
        let is_empty = rustix::fs::fstat(&fd).is_ok_and(|found| found.st_size == 0);
        let age = if is_empty { FileAge::New } else { FileAge::Old };
        let region = prepare(&fd, &name, options)?;
        if options.from.is_some() {
            branch::own(region)?;
        }
        let alone = life::numbers(region).is_empty();
        let life = life::of(region, &name)?;
        let fd = raise(fd, life)?;
        let region = region.with_fd(Fd::new(fd.as_raw_fd()));
        if options.region.is_some() && alone {
            rebuild_after_boot(region, &name)?;
        }
        // What was frozen has been checked, and nobody has changed it since; a new region is as it was made.
        let is_sound = match options.owner {
            RegionOwner::Session => region.was_left_in_order(changed),
            RegionOwner::User => options.from.is_some() || is_empty,
        };
        if !is_sound {
            check(region, &name)?;
        }
        region.header().frozen.store(0, Relaxed); // Relaxed: under the flock.
        if options.region.is_some() && alone {
            region.set_in_file(age);
            region.mark_boot();
            boot::back(region).map_err(|e| no_room(&name, e))?;
        }
        let session = Session::begin(region, fd, &name, options, paths)?;
        match below {
            Some(below) => below.lay(&session).map(|()| session),
            None => Ok(session),
        }
    }

    /// Claims a run record in the region behind `fd`, that of run `pid`, for another command.
    pub(crate) fn join(fd: OwnedFd, pid: u32, options: &Options, paths: &Paths) -> Result<Session, Failure> {
        let name = format!("the region of run {pid}");
        locked(&fd, &name, FlockOperation::LockExclusive)?;
        let region = prepare(&fd, &name, options)?;
        // The last process may have ended since the run was found.
        if life::numbers(region).is_empty() {
            return Err(runs::gone(pid));
        }
        let life = life::of(region, &name)?;
        let fd = raise(fd, life)?;
        Session::begin(region.with_fd(Fd::new(fd.as_raw_fd())), fd, &name, options, paths)
    }

    /// Claims a run record. The region is sound and locked; the lock is let go.
    fn begin(
        region: Region<'static>,
        fd: OwnedFd,
        name: &str,
        options: &Options,
        paths: &Paths,
    ) -> Result<Session, Failure> {
        let run = claim_run(region, options, paths)?;
        inherit_flights(region, run)?;
        make_roots(region, run, options)?;
        let started = Counts::of(region);
        locked(&fd, name, FlockOperation::Unlock)?;
        // The descriptors stay open for ever.
        let _ = fd.into_raw_fd();
        Ok(Session { region, run, started })
    }

    /// Claims a process slot for the command.
    pub(crate) fn claim(&self) -> Result<Slot, Failure> {
        let process = boot::claim_process(self.region, self.run).map_err(full)?;
        let generation = self.region.process(process).life.get().generation();
        Ok(Slot { process, generation })
    }

    /// [`Session::claim`] of a slot whose working directory is `directory` if that lies in a mount.
    pub(crate) fn claim_in(&self, directory: &Path) -> Result<Slot, Failure> {
        let slot = self.claim()?;
        let process = self.region.process(slot.process);
        let path = CString::new(bytes(directory)).unwrap_or_default();
        // SAFETY: the walk only reads the path, and keeps no pointer.
        let at = unsafe { UserPtr::new(path.as_ptr().cast()) };
        let found = self.with_task(|task| walk::inode(task, Fd::CWD, at, Follow::Link));
        match found.map_err(full)? {
            Ok(Place::Inside(found)) => process.cwd.store(found.spot().to_word(), Release),
            Ok(Place::Outside(_)) => {}
            Err(e) => {
                let reason = reason(&std::io::Error::from_raw_os_error(e.number()));
                return Err(Failure::new(
                    REGION,
                    format!("{} in the session: {reason}", directory.display()),
                ));
            }
        }
        Ok(slot)
    }

    /// Whether other runs use the region.
    pub(crate) fn has_others(&self) -> bool {
        self.region.any_run_is_held()
            && (1..RUNS as u32).map(RunId).any(|run| run != self.run && self.region.run_is_held(run))
    }

    /// Has this process take part in the run for the length of a call.
    pub(crate) fn with_task<T>(&self, call: impl FnOnce(&Task<'static>) -> T) -> lp_abi::Result<T> {
        let process = boot::claim_own_process(self.region, self.run)?;
        let lane = boot::attach(self.region, process, std::process::id())?;
        let task = task_of(self.region, process, lane);
        let done = call(&task);
        boot::exit(&task);
        Ok(done)
    }

    /// What the gate of the command, which this process is about to exec, has to be told. With a slot this
    /// process becomes the slot's; without, the command takes one when it meets a mount.
    pub(crate) fn enter(&self, slot: Option<&Slot>) -> Result<String, Failure> {
        let (fd, length) = (self.region.fd().raw(), self.region.length());
        let Some(slot) = slot else { return Ok(format!("{fd}:@{}:{length}", self.run.0)) };
        self.region.animate(slot.process).map_err(full)?;
        Ok(format!("{fd}:{}:{length}", slot.process.0))
    }

    /// Whether the command, which has ended, ran without the gate.
    pub(crate) fn missed(&self, slot: &Slot) -> bool {
        let process = self.region.process(slot.process);
        // A process that attached has freed its slot, or left its mark in it.
        process.life.get().generation() == slot.generation && process.attached.load(Acquire) == 0
    }

    /// The region.
    pub(crate) fn region(&self) -> Region<'static> {
        self.region
    }

    /// The descriptor of the run's flights, where the rings of a traced run are.
    pub(crate) fn flights(&self) -> i32 {
        self.region.run(self.run).flights.load(Relaxed) as i32 - 1 // Relaxed: this launcher has set it.
    }

    /// The calls since the run began.
    pub(crate) fn counts(&self) -> Counts {
        Counts::of(self.region).since(&self.started)
    }
}

fn locked(fd: &OwnedFd, name: &str, operation: FlockOperation) -> Result<(), Failure> {
    flock(fd, operation).map_err(|e| Failure::new(REGION, format!("locking {name}: {}", reason(&e.into()))))
}

/// When a file last changed, in nanoseconds since 1970. A store through a mapping counts if it is the first
/// to its page since the page was written out.
fn changed(fd: &OwnedFd) -> u64 {
    let time = |found: rustix::fs::Stat| found.st_ctime as u64 * NANOSECONDS + found.st_ctime_nsec;
    rustix::fs::fstat(fd).map_or(u64::MAX, time)
}

/// Bytes of memory of this machine.
pub(crate) fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    // The kernel counts in units of `mem_unit` bytes.
    info.totalram * u64::from(info.mem_unit)
}

/// A number for a new region.
pub(crate) fn identity() -> Result<u64, Failure> {
    let mut identity = [0; 8];
    rustix::rand::getrandom(&mut identity, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Failure::new(REGION, format!("no random number: {}", reason(&e.into()))))?;
    Ok(u64::from_ne_bytes(identity))
}

pub(crate) fn open_memory() -> Result<OwnedFd, Failure> {
    rustix::fs::memfd_create("lightpath", MemfdFlags::empty())
        .map_err(|e| Failure::new(REGION, format!("cannot make shared memory: {}", reason(&e.into()))))
}

/// Creates the descriptors that every process of the run inherits: that which records open files in transit
/// over a socket, see [`lp_vfs::flight`], and behind it the [`shelf`]'s. They stay open for ever.
fn inherit_flights(region: Region<'static>, run: RunId) -> Result<(), Failure> {
    // Relaxed: this launcher has just set it.
    let is_traced = [CALLS_TRACED, CALLS_ALL_TRACED].contains(&region.run(run).stats.load(Relaxed));
    let length = if is_traced { trace::BYTES as u64 } else { 0 };
    let fail = |e: rustix::io::Errno| {
        Failure::new(REGION, format!("cannot make shared memory: {}", reason(&e.into())))
    };
    let name = format!("{FLIGHTS}{:016x}:{}:", region.header().identity.load(Relaxed), run.0);
    let made = rustix::fs::memfd_create(name, MemfdFlags::ALLOW_SEALING).map_err(fail)?;
    rustix::fs::ftruncate(&made, length).map_err(fail)?;
    // Nobody can leave data there, unless the rings of a traced run are there.
    let fixed = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW;
    let seals = if length == 0 { fixed | SealFlags::WRITE } else { fixed };
    rustix::fs::fcntl_add_seals(&made, seals).map_err(fail)?;
    // The next number is the shelf's. Where there can be none, it is taken all the same.
    let shelf = match shelf::open() {
        Ok(shelf) => shelf,
        Err(_) => made.try_clone().map_err(|_| few())?,
    };
    let (flights, shelf) = (Fd::new(made.into_raw_fd()), Fd::new(shelf.into_raw_fd()));
    let number = lp_region::life_file::pair(flights, shelf, high()?).map_err(|_| few())?;
    region.run(run).flights.store(number.raw() as u32 + 1, Relaxed);
    Ok(())
}

/// Opens the region file, creating an empty one if there is none.
fn open_file(path: &Path) -> Result<OwnedFd, Failure> {
    let fail = |what: &str, e: &std::io::Error| {
        Failure::new(REGION, format!("{what} region file {}: {}", path.display(), reason(e)))
    };
    let mut options = File::options();
    // A FIFO must not make the launcher wait.
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = match options.open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            options.create(true).open(path).map_err(|e| fail("cannot make", &e))?
        }
        opened => opened.map_err(|e| fail("cannot open", &e))?,
    };
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(file.into()),
        Ok(_) => Err(Failure::new(REGION, format!("{} is not a regular file; name another", path.display()))),
        Err(e) => Err(fail("cannot open", &e)),
    }
}

/// Reserves space for the first pages of a region file, which are touched before anything is checked;
/// [`boot::back`] does the rest.
fn make_room(fd: &OwnedFd) -> lp_abi::Result<()> {
    let is_empty = rustix::fs::fstat(fd).is_ok_and(|found| found.st_size == 0);
    if is_empty && let Ok(flags) = rustix::fs::ioctl_getflags(fd) {
        // On a copy-on-write file system, space reserved for the first write of a block does not cover the
        // second. A file system that does not support the flag does not need it.
        let _ = rustix::fs::ioctl_setflags(fd, flags | rustix::fs::IFlags::NOCOW);
    }
    let made = rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::KEEP_SIZE, 0, LANES_AT as u64);
    match made {
        Err(e) if is_full(e) => Err(Errno::ENOSPC),
        _ => Ok(()), // A file system that cannot promise room says so: see `take_room`.
    }
}

fn is_full(errno: rustix::io::Errno) -> bool {
    errno == rustix::io::Errno::NOSPC || errno == rustix::io::Errno::DQUOT
}

/// Allocates space for the start of a new region file by writing it, if it could not be reserved. The file
/// stays empty if there is not enough space.
fn take_room(fd: &OwnedFd) -> lp_abi::Result<()> {
    let has = rustix::fs::fstat(fd).map_or(0, |found| found.st_blocks as usize * 512);
    if has >= LANES_AT {
        return Ok(());
    }
    let zeros = [0; 1 << 16];
    let mut at = 0;
    while at < LANES_AT {
        let piece = &zeros[..zeros.len().min(LANES_AT - at)];
        match rustix::io::pwrite(fd, piece, at as u64) {
            Ok(done) => at += done,
            Err(e) => {
                let _ = rustix::fs::ftruncate(fd, 0);
                return Err(if is_full(e) { Errno::ENOSPC } else { Errno::new(e.raw_os_error()) });
            }
        }
    }
    Ok(())
}

fn no_room(name: &str, errno: Errno) -> Failure {
    let line = match errno {
        Errno::ENOSPC => "its file system has no room for it".to_owned(),
        errno => reason(&std::io::Error::from_raw_os_error(errno.number())),
    };
    Failure::new(REGION, format!("{name}: {line}"))
}

/// The number from which descriptors are out of the program's way.
fn high() -> Result<i32, Failure> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1024);
    if limit < FEWEST { Err(few()) } else { Ok((limit.min(USUAL) - HEADROOM) as i32) }
}

fn few() -> Failure {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1024);
    Failure::new(REGION, format!("only {limit} descriptors are allowed (ulimit -n): allow {FEWEST} or more"))
}

/// Moves the descriptors of the region and its life file out of the program's way, to high adjacent numbers
/// that are inherited across exec. Returns the first of them.
fn raise(region: OwnedFd, life: OwnedFd) -> Result<OwnedFd, Failure> {
    let wanted = high()?;
    let (region, life) = (Fd::new(region.into_raw_fd()), Fd::new(life.into_raw_fd()));
    let low = lp_region::life_file::pair(region, life, wanted).map_err(|_| few())?;
    // SAFETY: the region's descriptor, which has moved there.
    Ok(unsafe { OwnedFd::from_raw_fd(low.raw()) })
}

/// Maps the region behind `fd`, initialising it if it is empty.
fn prepare(fd: &OwnedFd, name: &str, options: &Options) -> Result<Region<'static>, Failure> {
    let explain = |e: RegionError| Failure::new(REGION, explain(name, e));
    let size = options.size.unwrap_or(Size::DEFAULT).bytes(memory());
    let length = rustix::fs::fstat(fd).map_err(|e| explain(system(e)))?.st_size;
    if length > 0 {
        let region = Region::open(Fd::new(fd.as_raw_fd())).map_err(explain)?;
        let made_with = region.header().data_pages.load(Relaxed) * lp_abi::PAGE_SIZE as u64;
        if options.size.is_some() && size != made_with {
            let line =
                format!("{name} was made with --size {made_with}: leave --size out, or make another region");
            return Err(Failure::new(REGION, line));
        }
        return Ok(region);
    }
    let geometry = Geometry {
        data_bytes: size,
        // As in tmpfs: half as many as the machine has pages.
        inodes: memory().max(size) / lp_abi::PAGE_SIZE as u64 / 2,
        identity: identity()?,
    };
    check_file_size(geometry.length().map_err(|e| explain(e.into()))?)?;
    if options.region.is_some() {
        take_room(fd).map_err(|e| no_room(name, e))?;
    }
    Region::create(Fd::new(fd.as_raw_fd()), &geometry).map_err(explain)
}

/// Rebuilds a region that was last used before this boot, because the machine may have crashed. Reports
/// whether anything was not kept in its place.
fn rebuild_after_boot(region: Region<'static>, name: &str) -> Result<(), Failure> {
    if !region.is_of_former_boot() {
        return Ok(());
    }
    boot::back(region).map_err(|e| no_room(name, e))?;
    let lost = lp_fsck::rebuild(region).map_err(|e| match e {
        Errno::ENOSPC => Failure::new(REGION, format!("{name}: the region has no room to be rebuilt in")),
        e => Failure::new(REGION, format!("{name} cannot be rebuilt: {e:?}")),
    })?;
    if lost != Rebuilt::default() {
        let line = format!("{name} was in use when the machine stopped: {}", told(lost));
        eprintln!("lightpath: {}", Failure::new(REGION, line));
    }
    Ok(())
}

/// Describes in words what a rebuild could not keep in its place.
pub(crate) fn told(lost: Rebuilt) -> String {
    let count =
        |number: u64, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
    let names = (lost.dropped != 0).then(|| {
        format!("{} led nowhere and {} gone", count(lost.dropped, "name", "names"), is(lost.dropped))
    });
    let files = (lost.unnamed != 0).then(|| {
        let files = count(lost.unnamed, "file or directory", "files and directories");
        format!("{files} without a name {} in lost+found", is(lost.unnamed))
    });
    names.into_iter().chain(files).collect::<Vec<_>>().join(", ")
}

const fn is(number: u64) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

/// Refuses a damaged region. If other runs use it, the first of them has checked it.
fn check(region: Region<'static>, name: &str) -> Result<(), Failure> {
    if lp_fsck::is_in_use(region) {
        return Ok(());
    }
    let report = lp_fsck::check(region, ProcessId::NONE);
    match report.first_worst() {
        Some(finding) if finding.severity == Severity::Structure => Err(Failure::new(
            REGION,
            format!("{name} is damaged ({}); repair it with: lightpath fsck --repair {name}", finding.what),
        )),
        _ => Ok(()),
    }
}

/// Beyond `ulimit -f` the kernel would kill the launcher instead of returning an error.
fn check_file_size(length: u64) -> Result<(), Failure> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < length => Err(Failure::new(
            REGION,
            "file sizes are limited (ulimit -f) and a region is a large sparse file: lift the limit",
        )),
        _ => Ok(()),
    }
}

fn system(errno: rustix::io::Errno) -> RegionError {
    RegionError::System(Errno::new(errno.raw_os_error()))
}

/// Why `name` is not usable as a region, and what to do.
pub(crate) fn explain(name: &str, error: RegionError) -> String {
    match error {
        RegionError::NotARegion => {
            format!("{name} is not a Lightpath region; name another file, or one that is not there")
        }
        RegionError::Version(found) => {
            format!(
                "{name} is a region of version {found}, this lightpath reads version {VERSION}: use the one that made it"
            )
        }
        RegionError::Truncated => format!("{name} is a region cut short: part of it is missing"),
        RegionError::Corrupted => format!("{name} is a damaged region: its header contradicts itself"),
        RegionError::System(Errno::ENOMEM) => {
            format!(
                "{name} cannot be mapped whole: lift the limit of address space (ulimit -v) or give a smaller --size"
            )
        }
        RegionError::System(Errno::EFBIG) => {
            format!("{name} is too large for its file system; give a smaller --size, or a file elsewhere")
        }
        RegionError::System(errno) => {
            format!("{name}: {}", reason(&std::io::Error::from_raw_os_error(errno.number())))
        }
    }
}

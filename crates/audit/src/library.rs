//! The audited program for the library door: the counterpart of `c/probe.c`, with the calls made directly on
//! a region of its own. It is `lp-audit` itself, started with a hidden subcommand.

use anyhow::{Context, Result, anyhow, bail};
use lp_abi::linux::{O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY, SEEK_END, SEEK_SET, stat, statx};
use lp_abi::{Errno, Fd, Result as Answer, lent};
use lp_region::{Geometry, Region, RunId};
use lp_vfs::boot::{self, RunSetup};
use lp_vfs::open::{self, Opened};
use lp_vfs::{Place, Task, clock, file, table};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::{CStr, CString};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::time::Duration;

const FILE_SIZE: usize = 1 << 20;
const WARM_UP: usize = 200;
const SHARED: &CStr = c"/a/b/f";
const MISSING: &CStr = c"/a/b/missing";

/// Who uses the descriptor table of a process that makes the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descriptors {
    /// Its only thread.
    Own,
    /// A second thread, too, which does nothing meanwhile.
    Shared,
}

/// Names of the C probe's calls that need no C library.
pub(crate) fn names() -> Vec<&'static str> {
    CALLS.iter().map(|(name, _)| *name).collect()
}

/// One of the two processes, with its own and the shared files open.
struct Actor {
    task: Box<Task<'static>>,
    own: CString,
    renamed: CString,
    fresh: CString,
    own_fd: Fd,
    shared_fd: Fd,
    directory_fd: Fd,
    buffer: Vec<u8>,
}

/// Makes `calls`, one in this process and the second, if there is one, in a child, as `c/probe.c` does.
///
/// # Errors
/// If the region cannot be created or a call fails.
pub(crate) fn perform(repetitions: usize, calls: &[String], descriptors: Descriptors) -> Result<()> {
    let (region, run) = make_region()?;
    let setup = attach(region, run)?;
    boot::mkfs(&setup, 0).map_err(failed("make the root"))?;
    for path in [c"/a", c"/a/b"] {
        lp_vfs::mkdir::mkdirat(&setup, Fd::CWD, lent::path(path), 0o755)
            .map_err(failed("make a directory"))?;
    }
    let fd = open_file(&setup, SHARED, O_RDWR | O_CREAT)?;
    fill(&setup, fd)?;
    boot::exit(&setup);
    drop(setup);
    let [first, rest @ ..] = calls else { bail!("no call") };
    let mut child = None;
    if let [second] = rest {
        // SAFETY: this process has one thread, so the child may do whatever its parent could.
        match unsafe { nix::unistd::fork() }? {
            nix::unistd::ForkResult::Child => {
                let done = Actor::new(region, run, 1, descriptors)
                    .and_then(|actor| actor.perform(second, repetitions));
                // SAFETY: ends the child without its parent's exit handlers.
                unsafe { nix::libc::_exit(i32::from(done.is_err())) };
            }
            nix::unistd::ForkResult::Parent { child: pid } => child = Some(pid),
        }
    }
    Actor::new(region, run, 0, descriptors)?.perform(first, repetitions)?;
    if let Some(pid) = child {
        nix::sys::wait::waitpid(pid, None)?;
    }
    Ok(())
}

fn make_region() -> Result<(Region<'static>, RunId)> {
    // SAFETY: the address comes from the kernel.
    unsafe { clock::init(nix::libc::getauxval(nix::libc::AT_SYSINFO_EHDR) as usize) };
    // The tracer recognises the region by this name. Leaked: it lives as long as the process.
    let memory = memfd_create("lightpath-audit", MFdFlags::MFD_CLOEXEC)?;
    let geometry = Geometry { data_bytes: 64 << 20, inodes: 4096, identity: 1 };
    let memory =
        lp_region::life_file::beside(Fd::new(memory.into_raw_fd())).map_err(failed("make a life file"))?;
    let region = Region::create(memory, &geometry).map_err(|error| anyhow!("{error:?}"))?;
    let setup = RunSetup { mounts: &[b""], ..RunSetup::default() };
    Ok((region, boot::claim_run(region, &setup).map_err(failed("claim a run"))?))
}

fn attach(region: Region<'static>, run: RunId) -> Result<Box<Task<'static>>> {
    let process = boot::claim_process(region, run).map_err(failed("claim a process"))?;
    let lane = boot::attach(region, process, std::process::id()).map_err(failed("attach"))?;
    Ok(Box::new(Task::new(region, process, lane, clock::now)))
}

impl Actor {
    fn new(region: Region<'static>, run: RunId, who: u32, descriptors: Descriptors) -> Result<Self> {
        let task = attach(region, run)?;
        if descriptors == Descriptors::Shared {
            boot::before_thread(&task);
        }
        let name = |kind| CString::new(format!("/a/b/{kind}{who}"));
        let (own, renamed, fresh) = (name("own")?, name("renamed")?, name("fresh")?);
        let own_fd = open_file(&task, &own, O_RDWR | O_CREAT)?;
        fill(&task, own_fd)?;
        let own_fd = open_file(&task, &own, O_RDWR)?;
        let shared_fd = open_file(&task, SHARED, O_RDONLY)?;
        let directory_fd = open_file(&task, c"/", O_RDONLY)?;
        Ok(Self { task, own, renamed, fresh, own_fd, shared_fd, directory_fd, buffer: vec![0; 8192] })
    }

    fn perform(mut self, call: &str, repetitions: usize) -> Result<()> {
        let (_, call) = CALLS.iter().find(|(name, _)| *name == call).context("no such call")?;
        for _ in 0..WARM_UP {
            call(&mut self).map_err(failed("make the call"))?;
        }
        println!("ready {}", std::process::id());
        std::io::stdout().flush()?;
        wait_for_tracer()?;
        for _ in 0..repetitions {
            call(&mut self).map_err(failed("make the call"))?;
            breakpoint();
            let answer = call(&mut self);
            breakpoint();
            answer.map_err(failed("make the call"))?;
        }
        boot::exit(&self.task);
        Ok(())
    }
}

/// A call that is made on an actor's files.
type Call = fn(&mut Actor) -> Answer<()>;

/// The calls, by name.
const CALLS: &[(&str, Call)] = &[
    ("lseek", |a| lp_vfs::lseek::lseek(&a.task, a.shared_fd, 4096, SEEK_SET).map(drop)),
    ("lseek_end", |a| lp_vfs::lseek::lseek(&a.task, a.shared_fd, 0, SEEK_END).map(drop)),
    ("fstat", |a| {
        lp_vfs::stat::fstat(&a.task, a.shared_fd, lent::value(&mut MaybeUninit::<stat>::uninit()).cast())
    }),
    ("read_1", |a| lp_vfs::read::read(&a.task, a.shared_fd, lent::room(&mut a.buffer[..1])).map(drop)),
    ("pread_1", |a| {
        lp_vfs::read::pread(&a.task, a.shared_fd, lent::room(&mut a.buffer[..1]), 8000).map(drop)
    }),
    ("pread_4k", |a| {
        lp_vfs::read::pread(&a.task, a.shared_fd, lent::room(&mut a.buffer[..4096]), 8192).map(drop)
    }),
    ("write_256", |a| lp_vfs::write::write(&a.task, a.own_fd, lent::bytes(&a.buffer[..256])).map(drop)),
    ("pwrite_1", |a| lp_vfs::write::pwrite(&a.task, a.own_fd, lent::bytes(&a.buffer[..1]), 8000).map(drop)),
    ("stat", |a| attributes(&a.task, SHARED, 0)),
    ("lstat", |a| attributes(&a.task, SHARED, lp_abi::linux::AT_SYMLINK_NOFOLLOW)),
    ("statx", |a| extended_attributes(&a.task, SHARED)),
    ("stat_missing", |a| match attributes(&a.task, MISSING, 0) {
        Err(Errno::ENOENT) => Ok(()),
        _ => Err(Errno::EEXIST),
    }),
    ("faccessat", |a| inside(lp_vfs::access::faccessat(&a.task, Fd::CWD, lent::path(SHARED), 4, 0))),
    ("open_close", |a| open_and_close(&a.task, SHARED, O_RDONLY)),
    ("create_unlink", |a| {
        open_and_close(&a.task, &a.fresh, O_WRONLY | O_CREAT | O_EXCL)?;
        inside(lp_vfs::unlink::unlinkat(&a.task, Fd::CWD, lent::path(&a.fresh), 0))
    }),
    ("unlink_open", |a| {
        let fd = open_lowest(&a.task, 0, &a.fresh, O_WRONLY | O_CREAT | O_EXCL)?;
        inside(lp_vfs::unlink::unlinkat(&a.task, Fd::CWD, lent::path(&a.fresh), 0))?;
        lp_vfs::close::close(&a.task, fd)
    }),
    ("rename", |a| {
        rename(&a.task, &a.own, &a.renamed)?;
        rename(&a.task, &a.renamed, &a.own)
    }),
    ("rename_over", |a| {
        open_and_close(&a.task, &a.fresh, O_WRONLY | O_CREAT | O_EXCL)?;
        rename(&a.task, &a.fresh, &a.renamed)
    }),
    ("getdents", |a| {
        lp_vfs::lseek::lseek(&a.task, a.directory_fd, 0, SEEK_SET)?;
        lp_vfs::getdents::getdents64(&a.task, a.directory_fd, lent::room(&mut a.buffer[..4096])).map(drop)
    }),
];

fn extended_attributes(task: &Task, path: &CStr) -> Answer<()> {
    let mut to = MaybeUninit::<statx>::uninit();
    let mask = lp_abi::linux::STATX_BASIC_STATS;
    inside(lp_vfs::stat::statx(task, Fd::CWD, lent::path(path), 0, mask, lent::value(&mut to).cast()))
}

fn attributes(task: &Task, path: &CStr, flags: u32) -> Answer<()> {
    let mut to = MaybeUninit::<stat>::uninit();
    inside(lp_vfs::stat::fstatat(task, Fd::CWD, lent::path(path), lent::value(&mut to).cast(), flags))
}

fn open_and_close(task: &Task, path: &CStr, flags: u32) -> Answer<()> {
    lp_vfs::close::close(task, open_lowest(task, 0, path, flags)?)
}

/// Opens a file and chooses its number after that, as the gate does: the lowest free one that is at least
/// `from`.
#[inline(always)]
pub(crate) fn open_lowest(task: &Task, from: u32, path: &CStr, flags: u32) -> Answer<Fd> {
    let Place::Inside(Opened::File(id)) = open::openat(task, Fd::CWD, lent::path(path), flags, 0o644)? else {
        return Err(Errno::ENXIO);
    };
    let fd = task.table.lowest(from, u32::MAX)?;
    table::install(task, fd, id, 0)?;
    Ok(fd)
}

fn rename(task: &Task, old: &CStr, new: &CStr) -> Answer<()> {
    let (old, new) = (lent::path(old), lent::path(new));
    lp_vfs::rename::renameat2(task, Fd::CWD, old, Fd::CWD, new, 0).map(drop)
}

/// A path outside the region does not exist.
fn inside(answer: Answer<Place<()>>) -> Answer<()> {
    match answer? {
        Place::Inside(()) => Ok(()),
        Place::Outside(_) => Err(Errno::ENOENT),
    }
}

fn open_file(task: &Task, path: &CStr, flags: u32) -> Result<Fd> {
    let opened =
        open::openat(task, Fd::CWD, lent::path(path), flags, 0o644).map_err(failed("open a file"))?;
    let Place::Inside(Opened::File(id)) = opened else { bail!("{path:?} is not a file of the region") };
    let fd = task.table.lowest(0, u32::MAX).map_err(failed("find a descriptor"))?;
    table::install(task, fd, id, 0).map_err(|errno| {
        file::discard(task, id);
        failed("install a descriptor")(errno)
    })?;
    Ok(fd)
}

/// Fills the file and closes it.
fn fill(task: &Task, fd: Fd) -> Result<()> {
    let bytes = vec![b'x'; FILE_SIZE];
    let wrote = lp_vfs::write::write(task, fd, lent::bytes(&bytes)).map_err(failed("write"))?;
    if wrote != bytes.len() {
        bail!("wrote {wrote} of {} bytes", bytes.len());
    }
    lp_vfs::close::close(task, fd).map_err(failed("close"))
}

/// The error of a call of the audit that should have succeeded.
pub(crate) fn failed(what: &'static str) -> impl Fn(Errno) -> anyhow::Error {
    move |errno| anyhow!("cannot {what}: {errno:?}")
}

/// The tracer attaches silently; the kernel shows when it has.
pub(crate) fn wait_for_tracer() -> Result<()> {
    loop {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let tracer =
            status.lines().find_map(|line| line.strip_prefix("TracerPid:")).context("no TracerPid")?;
        if tracer.trim() != "0" {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stops for the tracer.
#[inline(always)]
pub(crate) fn breakpoint() {
    // SAFETY: the process is traced, as it has waited for the tracer: it stops here and continues.
    unsafe { std::arch::asm!("int3") };
}

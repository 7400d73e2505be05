//! The high half's implementation of [`Above`].

use crate::high::life::task::{block_prefixes, set_task};
use crate::low::tools::close::close_number;

use lp_abi::gated::GATED_SET;
use lp_abi::linux::{__NR_fstat, __NR_prctl, stat};
use lp_abi::{Errno, Fd, OwnedFd, image};
use lp_region::process::{CALLS_ALL_TRACED, CALLS_COUNTED, CALLS_TRACED, Run};
use lp_region::records::PROGRAMS;
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{LaneId, ProcessId, Region, RunId};
use lp_vfs::getcwd::Start;
use lp_vfs::load::ImageIds;
use lp_vfs::table::entry;
use lp_vfs::task::Task;
use lp_vfs::{boot, close, fork, getcwd, id_map, parted, root, sharing};

use crate::High;
use crate::calls::CALLS;
use crate::high::calls::wait;
use crate::high::fd::{mark, placeholder};
use crate::high::life::credentials;
use crate::high::life::held;
use crate::high::life::heritage;
use crate::high::life::join;
use crate::high::life::left;
use crate::high::life::look;
use crate::high::life::way;
use crate::high::memory::{areas, bus, fault, fill, missing, written};
use crate::high::route::{libraries, rooted};
use crate::high::run::region;
use crate::high::run::region::joined;
use crate::high::run::{apart, mounts, outline};
use crate::high::table::calls::APART;
use crate::high::table::count::COUNTED;
use crate::high::table::holed::HOLED;
use crate::high::table::limited::LIMITED;
use crate::high::table::mapped::MAPPED;
use crate::high::table::traced;
use crate::high::table::unused;
use crate::high::watch::{shadow_end, signalled};
use crate::low::above::Above;
use crate::low::above::Access;
use crate::low::above::Attached;
use crate::low::above::List;
use crate::low::above::PATH;
use crate::low::cover::loaded;
use crate::low::dispatch::Calls;
use crate::low::dispatch::LowFds;
use crate::low::dispatch::Table;
use crate::low::exec::outline::linker_path;
use crate::low::start::process_name::PR_SET_NAME;
use crate::low::thread::pending::Info;
use crate::low::thread::record::Thread;
use crate::low::tools::report;
use lp_abi::text::{Writer, number};

impl Above for High {
    fn attach<'a>(
        thread: &Thread,
        gate: &[u8],
        ids: ImageIds,
        room: &'a mut [u8; PATH],
    ) -> Result<Attached<'a>, &'static [u8]> {
        let mut parts = gate.split(|byte| *byte == b':');
        let (fd, second) = (parts.next().and_then(number32), parts.next().unwrap_or_default());
        let length = number(parts.next().unwrap_or_default());
        let is_apart = second.first() == Some(&apart::RUN);
        let (Some(fd), Some(id)) = (fd, number32(&second[usize::from(is_apart)..])) else {
            report::refuse(&[b"LIGHTPATH_GATE is malformed: ", gate]);
        };
        if is_apart {
            let length = length.ok_or(&b"LIGHTPATH_GATE says no length"[..])?;
            return attached(apart::start(Fd::new(fd as i32), id, length)?, ids.euid, room);
        }
        let task = attach_slot(thread, Fd::new(fd as i32), ProcessId(id), length, ids)?;
        attached(task.run, task.process.fsuid.load(Ordering::Relaxed), room)
    }

    fn records_all_calls() -> bool {
        // Relaxed: a process that misses a tracer looks again.
        apart::run()
            .is_some_and(|run| [CALLS_COUNTED, CALLS_ALL_TRACED].contains(&run.stats.load(Ordering::Relaxed)))
    }

    fn look_table() -> &'static Table {
        &look::LOOK
    }

    extern "sysv64" fn record(number: usize, result: isize, start: u64, registers: &[usize; 6]) -> isize {
        traced::record(number, result, start, registers)
    }

    fn join(thread: &Thread) {
        join::join(thread);
    }

    fn calls(thread: &Thread) -> Calls {
        let (table, way) = match task_of(thread) {
            _ if lp_abi::sys::is_limited() => (&LIMITED, LowFds::Long),
            Some(task) => calls_of(task),
            None => (&APART, LowFds::Apart),
        };
        Calls { table, way, hidden: apart::lowest().raw() as u32 }
    }

    fn thread_start(thread: &Thread, stack: usize) {
        let Some((region, process)) = joined() else { return };
        match boot::thread_lane(region, process, thread.tid.get()) {
            Ok(lane) => {
                let task = set_task(thread, region, process, lane);
                credentials::of_new_thread(task, heritage::begin(task, stack));
            }
            Err(_) => report::refuse(&[b"the region has no place for another thread"]),
        }
    }

    fn before_thread(thread: &Thread, stack: usize) {
        join::join(thread);
        loaded::cover_rest_now();
        if let Some(task) = task_of(thread) {
            heritage::announce(task, stack);
            boot::before_thread(task);
        }
    }

    fn thread_not_made(thread: &Thread) {
        if let Some(task) = task_of(thread) {
            parted::thread_not_made(task);
            boot::thread_gone(task.process);
        }
    }

    fn thread_exit(thread: &Thread) {
        if let Some(task) = task_of(thread) {
            parted::thread_ends(task);
            boot::leave_lane(task);
            boot::thread_gone(task.process);
            thread.task.set(core::ptr::null_mut());
        }
    }

    fn process_exit(thread: &Thread) {
        if let Some(task) = task_of(thread) {
            mappings_end(thread, task);
            boot::exit(task);
            left::left(task);
        }
    }

    fn before_descriptor(thread: &Thread) {
        if let Some(task) = task_of(thread) {
            placeholder::flush(task);
        }
    }

    fn before_fork(thread: &Thread) -> lp_abi::Result<()> {
        let Some(task) = task_of(thread) else { return Ok(()) };
        if !is_alone(thread, task) {
            areas::before_fork();
        }
        let child = fork::before(task).inspect_err(|_| areas::after_fork())?;
        share_directories(thread, task, child);
        outline::executed_by(task, child);
        table_copied(task, child);
        thread.forked.set(child.0);
        unused::before_fork(thread, task);
        Ok(())
    }

    fn announce_child(thread: &Thread) -> Option<*mut u32> {
        task_of(thread).map(|task| fork::announce_at(task.region, ProcessId(thread.forked.get())))
    }

    fn make_unannounced(thread: &Thread) {
        if let Some(task) = task_of(thread) {
            fork::make_unannounced(task, ProcessId(thread.forked.get()));
        }
    }

    fn before_namespace(thread: &Thread) {
        join::join(thread);
        if let Some(task) = task_of(thread) {
            way::before_losing(task);
        }
    }

    fn is_rooted(thread: &Thread) -> bool {
        task_of(thread).is_some_and(|task| root::of(task).is_some())
    }

    fn may_share_table(thread: &Thread) -> bool {
        join::join(thread);
        let Some(task) = task_of(thread) else { return true };
        placeholder::flush(task);
        let may =
            !task.table.open().any(|(_, word)| word & entry::DATA != 0) && fork::before_sharing(task).is_ok();
        if may {
            mark::distrust(task);
        }
        may
    }

    fn after_fork_parent(thread: &Thread, result: isize) {
        let Some(task) = task_of(thread) else { return };
        areas::after_fork();
        fork::copied(task);
        if result < 0 {
            fork::failed(task, ProcessId(thread.forked.get()));
        }
    }

    fn after_fork_child(thread: &Thread) {
        let Some(task) = task_of(thread) else { return };
        let (region, child) = (task.region, ProcessId(thread.forked.get()));
        let started = match thread.shares_table.get() {
            true => fork::child_that_shares(region, child, thread.tid.get()),
            false => fork::child(region, child, thread.tid.get()),
        };
        match started {
            Ok(lane) => {
                let task = set_task(thread, region, child, lane);
                region::set_joined(region, child);
                areas::after_fork();
                placeholder::after_fork(task);
                fill::set_locks_all(false);
                missing::after_fork(task, thread.shares_table.get());
                if thread.enters_namespace.get() {
                    credentials::entered_namespace(thread, task);
                }
                if !thread.shares_table.get() {
                    unused::begin();
                }
            }
            Err(_) => report::refuse(&[b"the region has no place for this process"]),
        }
    }

    fn before_vfork(thread: &Thread, child: &Thread) -> lp_abi::Result<()> {
        let Some(task) = task_of(thread) else { return Ok(()) };
        let slot = fork::before_vfork(task)?;
        share_directories(thread, task, slot);
        outline::executed_by(task, slot);
        table_copied(task, slot);
        thread.forked.set(slot.0);
        // It gets a lane when it runs.
        set_task(child, task.region, slot, LaneId::NONE);
        Ok(())
    }

    fn after_vfork_child(child: &Thread) {
        let Some(task) = task_of(child) else { return };
        let (region, slot) = (task.region, task.process_id);
        // SAFETY: the parent waits, so its record stays valid.
        let parent = unsafe { child.parent.get().as_ref() };
        if let Some(parent) = parent.and_then(task_of) {
            fork::copied(parent);
        }
        let started = match parent.is_some_and(|parent| parent.shares_table.get()) {
            true => fork::child_that_shares(region, slot, child.tid.get()),
            false => fork::child(region, slot, child.tid.get()),
        };
        match started {
            Ok(lane) => {
                let task = set_task(child, region, slot, lane);
                placeholder::after_fork(task);
                if parent.is_some_and(|parent| parent.enters_namespace.get()) {
                    credentials::entered_namespace(child, task);
                }
            }
            Err(_) => report::refuse(&[b"the region has no place for this process"]),
        }
    }

    fn after_vfork_parent(thread: &Thread, child: &Thread, result: isize) {
        areas::settle_child(child);
        let Some(task) = task_of(thread) else {
            child.task.set(core::ptr::null_mut());
            return join::follow_child(thread);
        };
        let Some(started) = task_of(child) else { return };
        fork::copied(task);
        if result < 0 {
            fork::failed(task, started.process_id);
        } else {
            fork::after_vfork(task, started.process_id);
        }
        child.task.set(core::ptr::null_mut());
    }

    fn waited(thread: &Thread, number: u32, arguments: [usize; 6], result: isize) {
        wait::settle(thread, number, arguments, result);
    }

    fn known_programs(thread: &Thread) -> Option<&'static [AtomicU64; PROGRAMS]> {
        let joined = task_of(thread).map(|task| &task.region.header().programs);
        joined.or_else(apart::known_programs)
    }

    fn has_run(thread: &Thread) -> bool {
        !thread.task.get().is_null() || apart::run().is_some()
    }

    #[cold]
    fn leads_into_mount(thread: &Thread, origin: &[u8], path: &[u8]) -> bool {
        Self::has_run(thread) && libraries::leads_into_mount(task_of(thread), origin, path)
    }

    #[cold]
    fn storage_of(thread: &Thread, origin: &[u8], directory: &[u8], name: &[u8]) -> Option<u64> {
        join::join(thread);
        task_of(thread).and_then(|task| libraries::storage_of(task, origin, directory, name))
    }

    fn defaults_differ(thread: &Thread) -> bool {
        if !Self::has_run(thread) || !libraries::defaults_are_covered() {
            return false;
        }
        join::join(thread);
        task_of(thread).is_some_and(|task| libraries::defaults_differ(task))
    }

    #[cold]
    fn default_storage_of(thread: &Thread, name: &[u8]) -> Option<u64> {
        task_of(thread).and_then(|task| libraries::default_storage_of(task, name))
    }

    #[cold]
    fn list_leads_into_mount(thread: &Thread, list: List, text: *const u8) -> bool {
        Self::has_run(thread) && libraries::list_leads_into_mount(task_of(thread), list, text)
    }

    fn before_exec(thread: &Thread) -> lp_abi::Result<()> {
        if let Some(task) = task_of(thread) {
            mappings_end(thread, task);
            boot::before_exec(task);
            credentials::before_exec(task);
            parted::before_exec(task);
            placeholder::before_exec(task);
        }
        Ok(())
    }

    fn exec_failed(thread: &Thread, errno: lp_abi::Errno) {
        let _ = errno;
        if let Some(task) = task_of(thread) {
            credentials::exec_failed(task);
            parted::exec_failed(task);
        }
    }

    fn gate_value(thread: &Thread, value: &mut [u8; 64]) -> usize {
        let mut text = Writer::new(value);
        match task_of(thread) {
            Some(task) => {
                text.push_decimal(task.region.fd().raw() as u64);
                text.push(b":");
                text.push_decimal(u64::from(task.process_id.0));
                text.push(b":");
                text.push_decimal(task.region.length() as u64);
            }
            None => apart::write_gate_value(&mut text),
        }
        text.finish().unwrap_or(0)
    }

    fn slot_of(gate: &[u8]) -> Option<(Region<'static>, ProcessId)> {
        outline::slot_of(gate)
    }

    fn linker_of<'r>(region: Region, process: ProcessId, room: &'r mut [u8]) -> Option<&'r [u8]> {
        // Relaxed, both: constant while the process lives.
        let run = region.run(RunId(region.process(process).run.load(Ordering::Relaxed)));
        let number = Some(run.linker.load(Ordering::Relaxed)).filter(|number| *number != 0)?;
        linker_path(run.library.get(), number, room)
    }

    #[cold]
    fn copy_of_program(thread: &Thread) -> Option<OwnedFd> {
        outline::copy_of_own(task_of(thread)?)
    }

    #[cold]
    fn end_if_cut() {
        let region = joined().map(|(region, _)| (region.fd(), region.length()));
        let Some((fd, length)) = region.or_else(apart::extent).filter(|(fd, _)| *fd != Fd::NONE) else {
            return;
        };
        // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
        let size = unsafe {
            let mut found: stat = core::mem::zeroed();
            match lp_abi::syscall!(__NR_fstat, fd, &raw mut found) {
                Ok(_) => found.st_size as usize,
                Err(_) => return,
            }
        };
        if size < length {
            report::refuse(&[
                b"somebody cut the region's file short while it was in use: what it held is lost",
            ]);
        }
    }

    fn fault(thread: &Thread, signal: usize, address: usize, access: Access) -> bool {
        let Some(task) = task_of(thread) else { return false };
        let before = thread.unclear_fault.replace(0);
        match fault::fault(task, signal, address, access) {
            fault::Fault::Real => false,
            fault::Fault::Mended => true,
            fault::Fault::Unclear => {
                thread.unclear_fault.set(address);
                before != address
            }
        }
    }

    fn signalled(thread: &Thread, signal: usize, info: &mut Info) {
        if let Some(task) = task_of(thread) {
            signalled::translate(task, signal as u32, info);
        }
    }

    fn has_mappings() -> bool {
        !areas::is_empty()
    }

    fn holds(path: &[u8]) -> bool {
        mounts::mounts().holds(path) || rooted::takes(path)
    }
}

/// Whether no other thread uses the memory of the thread's process. A child in its parent's memory may share
/// it with its parent's threads.
fn is_alone(thread: &Thread, task: &Task) -> bool {
    // Acquire: what ended threads did to the memory is complete. PAIRS: the release in `boot::thread_gone`.
    thread.parent.get().is_null() && task.process.threads.load(Ordering::Acquire) == 0
}

/// Makes the child that `thread` creates share its directories, if the call says so.
fn share_directories(thread: &Thread, task: &Task, child: ProcessId) {
    if thread.shares_directories.get() {
        sharing::share(task, child);
        block_prefixes();
    }
}

/// The table for a process that has a task, and whether fast paths may bypass it.
fn calls_of(task: &Task) -> (&'static Table, LowFds) {
    let is_mapped = id_map::is_inside(task.process) || held::any(task);
    let (table, way) = if is_mapped {
        (&MAPPED, LowFds::Long)
    } else if bus::exist() {
        (&HOLED, LowFds::Long)
    } else if placeholder::own_may_be_low(task) {
        (&CALLS, LowFds::Long)
    } else {
        (&CALLS, LowFds::Short)
    };
    // PAIRS: the release of a tracer that comes later: its rings are named.
    match task.run.stats.load(Ordering::Acquire) {
        CALLS_COUNTED if !is_mapped => (&COUNTED, LowFds::Long),
        CALLS_TRACED if traced::open(task, table) => match way {
            LowFds::Short => (&traced::TRACED, LowFds::Recorded),
            way => (&traced::TRACED, way),
        },
        CALLS_ALL_TRACED if traced::open(task, table) => (&traced::TRACED, LowFds::Long),
        _ => (table, way),
    }
}

fn task_of(thread: &Thread) -> Option<&'static Task<'static>> {
    // SAFETY: the pointer is null or the thread's task, which lives as long as its record.
    unsafe { thread.task.get().as_ref() }
}

/// Sets the times of what the program has written to through mappings, which are about to end. Those of a
/// child that shares its parent's memory stay the parent's.
fn mappings_end(thread: &Thread, task: &Task) {
    if thread.parent.get().is_null() {
        written::of_all(task);
    }
}

/// Attaches to the slot that a launcher, or the image before, left to this one.
fn attach_slot(
    thread: &Thread,
    fd: Fd,
    process: ProcessId,
    length: Option<usize>,
    ids: ImageIds,
) -> Result<&'static Task<'static>, &'static [u8]> {
    let region = region::map_region(fd, length)?;
    let lane = boot::attach(region, process, thread.tid.get()).map_err(|errno| match errno {
        Errno::EAGAIN => &b"the region has no place for another thread"[..],
        _ => b"the region has no place for this process any more",
    })?;
    let task = set_task(thread, region, process, lane);
    region::set_joined(region, process);
    region::read_run(task.run);
    boot::arrive_by_exec(task, ids);
    credentials::after_exec(task);
    placeholder::after_exec(task);
    missing::after_exec(task);
    mark::after_exec(task);
    for fd in boot::cloexec_fds(task) {
        if close::close(task, fd).is_ok() {
            close_number(fd);
        }
    }
    outline::set_executed(task);
    if task.process.exe.load(Ordering::Relaxed) != 0 {
        name_thread(task);
    }
    Ok(task)
}

/// Parses a 32-bit number.
fn number32(text: &[u8]) -> Option<u32> {
    number(text).and_then(|number| u32::try_from(number).ok())
}

/// Sets the thread's name to the program's. The kernel has named it after the memfd that it executed.
#[cold]
fn name_thread(task: &Task) {
    let Ok(path) = getcwd::of_executed(task, task.process, Start::Host) else { return };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let mut comm = [0u8; 16];
    let length = name.len().min(comm.len() - 1);
    comm[..length].copy_from_slice(&name[..length]);
    // SAFETY: the kernel reads 16 bytes.
    let _ = unsafe { lp_abi::syscall!(__NR_prctl, PR_SET_NAME, comm.as_ptr()) };
}

/// What the run record tells a process of `user`.
fn attached<'a>(
    run: &'static Run,
    user: u32,
    room: &'a mut [u8; PATH],
) -> Result<Attached<'a>, &'static [u8]> {
    let mut path = Writer::new(&mut room[..]);
    let owner = run.owner.load(Ordering::Relaxed); // Relaxed: immutable.
    if user == owner || user == 0 {
        path.push(run.cache.get());
    } else {
        // Root's child that has changed to another user must not add to root's bundle, so it has its own.
        path.push(b"/tmp/lightpath-");
        path.push_decimal(u64::from(user));
    }
    // The name that `lp_sites::Bundle::file_name` gives.
    path.push(b"/sites-");
    path.push_decimal(u64::from(image::VERSION));
    path.push(b"-");
    path.push_hex(u64::from(GATED_SET), 8);
    let length = path.finish().ok_or(&b"the cache directory's path is too long"[..])?;
    Ok(Attached {
        bundle: &room[..length],
        builder: run.launcher.get(),
        preload: run.preload.get(),
        library: run.library.get(),
        linker: run.linker.load(Ordering::Relaxed), // Relaxed: immutable.
    })
}

/// After the table has been copied to a child's slot.
fn table_copied(task: &Task, child: ProcessId) {
    let process = task.region.process(child);
    placeholder::copy_to(task, process);
    shadow_end::copy_to(task, process);
    mark::copied(task, child);
}

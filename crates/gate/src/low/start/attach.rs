//! Attaching: what happens before the program's first own instruction.
//!
//! The dynamic linker calls [`lp_gate_start`] as the library's DT_INIT, before any other object's (`-z
//! initfirst`). At that point all objects are loaded, or, where the gate is an auditor
//! ([`crate::low::start::auditor`]), only the program is.

use crate::low::above;
use crate::low::cover::loaded;
use crate::low::dispatch::Calls;
use crate::low::thread::record::Thread;
use lp_abi::linux::{__NR_prctl, SIG_SETMASK};

use lp_vfs::load::ImageIds;

use crate::High;
use crate::low::above::Above;
use crate::low::arrive::sigaction;
use crate::low::cover::patch;
use crate::low::dispatch::LowFds;
use crate::low::exec::inherited;
use crate::low::exec::inherited::{ExecutedAs, Inherited};
use crate::low::live::{signal, trap};
use crate::low::object::objects::{Auxiliary, Object};
use crate::low::start::{process_calls, process_name};
use crate::low::thread::home;
use crate::low::thread::home::Rest;
use crate::low::thread::pool;
use crate::low::thread::settings::Text;
use crate::low::tools::{names, report};

/// The library's initialiser. Without LIGHTPATH_GATE in the environment it leaves the program alone. Under
/// glibc the arguments are those of main; musl passes none, and the stack is searched.
///
/// # Safety
/// Only the dynamic linker may call it, once.
pub unsafe extern "C" fn lp_gate_start(argc: usize, argv: *mut *mut u8, envp: *mut *mut u8) {
    // glibc's arguments are consistent; what musl leaves in the registers is not.
    let given = argc < 1 << 20 && envp as usize == (argv as usize).wrapping_add(8 * (argc + 1));
    let envp = if given {
        envp
    } else {
        // SAFETY: the process has one thread, on the stack that the kernel made.
        match unsafe { search_stack() } {
            Some(envp) => envp,
            None => report::refuse(&[b"the environment was not found on the stack"]),
        }
    };
    // SAFETY: `envp` is the environment as the kernel made it.
    let mask = unsafe { start(envp) };
    if let Some(mask) = mask {
        signal::set_mask(SIG_SETMASK, mask & !trap::kept_open(mask));
    }
}

/// Returns the signal mask to set, if any.
unsafe fn start(envp: *mut *mut u8) -> Option<u64> {
    // SAFETY: the environment ends with a null pointer, and the auxiliary vector follows it.
    let (vector, auxiliary) = unsafe {
        let mut end = envp;
        while !(*end).is_null() {
            end = end.add(1);
        }
        let vector = end.add(1).cast::<[usize; 2]>();
        (vector, Auxiliary::read(vector))
    };
    // SAFETY: the process has one thread, and nothing else uses the environment.
    let found = unsafe { inherited::scrub(envp) }?;
    // SAFETY: as above; `vector` follows the environment.
    unsafe { inherited::fill_gap(envp, vector) };
    // SAFETY: the process has one thread, and this is the only call.
    let loader_may_wait = unsafe { prepare(&found, &auxiliary) };
    let Inherited { mask, audits, within, .. } = found;
    if let Some(executed) = found.executed {
        // SAFETY: as above, and the home is mapped.
        unsafe {
            name_program(vector, executed);
            home::fill_settings().is_outlined = found.is_outlined;
        }
    }
    let waits = within && loader_may_wait;
    if audits {
        // SAFETY: the kernel has mapped both; the dynamic linker's later mappings are covered as it makes
        // them.
        unsafe { loaded::cover(auxiliary.first_objects()) };
        close_linker(&auxiliary);
        return mask;
    }
    // SAFETY: the dynamic linker's list is complete, because it loads all objects before it calls
    // initialisers.
    let Some(objects) = (unsafe { auxiliary.objects() }) else {
        report::refuse(&[b"the dynamic linker's list of objects was not found"]);
    };
    if waits {
        let known = objects.clone().count();
        // SAFETY: the process has one thread, and no reference to `rest` exists.
        unsafe { (*home::home()).rest = Some(Rest { auxiliary, known }) };
        patch::tell_of_loads(loaded::cover_rest);
    }
    // SAFETY: the objects are mapped, and this initialiser runs before theirs.
    unsafe { loaded::cover(objects.filter(|object| !waits || object.base != auxiliary.linker)) };
    close_linker(&auxiliary);
    mask
}

/// Gives the process the name of its program. The kernel has named it after what it was given to execute.
///
/// # Safety
/// `vector` must be the process's auxiliary vector.
unsafe fn name_program(mut vector: *mut [usize; 2], executed: ExecutedAs) {
    const AT_NULL: usize = 0;
    const AT_EXECFN: usize = 31;
    process_name::set(executed, b"");
    // SAFETY: the vector ends with AT_NULL, at which the loop stops; the process has one thread.
    unsafe {
        while (*vector)[0] != AT_NULL {
            if (*vector)[0] == AT_EXECFN {
                (*vector)[1] = executed.path.as_ptr() as usize;
            }
            vector = vector.add(1);
        }
    }
}

/// Closes what the exec gave the image to start with, if the root directory is in a mount.
fn close_linker(auxiliary: &Auxiliary) {
    if High::holds(b"/") {
        auxiliary.close_linker();
    }
}

/// Starts the gate in a static program, which is mapped as `program`. Returns the signal mask to set, if any.
/// A program that `translates` runs no code that it maps: the kernel's calls in it are its own.
///
/// # Safety
/// Only [`crate::low::start::standalone`] may call it, once.
pub(crate) unsafe fn start_static(
    found: &Inherited,
    auxiliary: &Auxiliary,
    program: Object<'_>,
    translates: bool,
) -> Option<u64> {
    // SAFETY: the caller guarantees that this is the only call, before the program runs.
    unsafe {
        prepare(found, auxiliary);
        home::fill_settings().translates = translates;
        if !program.name.starts_with(names::NAMELESS) {
            let settings = home::fill_settings();
            settings.program = settings.keep(program.name);
        }
        loaded::cover(core::iter::once(program));
    }
    found.mask
}

/// All that precedes patching: the process's home, its settings, the first thread's record, and joining the
/// run. Returns whether patching the loader may wait.
///
/// # Safety
/// Must be called once, while the process has one thread.
unsafe fn prepare(found: &Inherited, auxiliary: &Auxiliary) -> bool {
    if home::map().is_err() {
        report::refuse(&[b"the program occupies the address that the gate needs"]);
    }
    let gate = found.gate;
    // SAFETY: the process has one thread, and no other reference to the settings exists.
    let settings = unsafe { home::fill_settings() };
    settings.gate = settings.keep(gate);
    if gate.starts_with(b"-") {
        settings.preload = settings.keep(found.preload);
    }
    // SAFETY: AT_SYSINFO_EHDR, the address that the kernel gave.
    unsafe { lp_vfs::clock::init(auxiliary.vdso) };
    let thread = pool::start_first();
    sigaction::attach();
    let (calls, loader_may_wait) = if gate.starts_with(b"-") {
        attach_nothing(gate);
        (Calls { table: &process_calls::PROCESS, way: LowFds::Long, hidden: u32::MAX }, false)
    } else {
        // SAFETY: the first thread's record, just created.
        let thread = unsafe { &*thread };
        attach_region(thread, gate, auxiliary.ids);
        // The run records all calls, or the program's libraries lie in a mount.
        if found.audits || High::records_all_calls() {
            High::join(thread);
        }
        (High::calls(thread), !lp_abi::sys::is_limited())
    };
    patch::fill_gate_page(&calls, High::look_table());
    loader_may_wait
}

/// A gate without a region: LIGHTPATH_GATE is `-:BUNDLE:BUILDER`, or absent, in which case there is nothing
/// to patch with.
fn attach_nothing(gate: &[u8]) {
    let mut parts = gate.split(|byte| *byte == b':').skip(1);
    // SAFETY: the process has one thread, and no other reference to the settings exists.
    let settings = unsafe { home::fill_settings() };
    settings.bundle = settings.keep(parts.next().unwrap_or_default());
    settings.builder = settings.keep(parts.next().unwrap_or_default());
}

fn attach_region(thread: &Thread, gate: &[u8], ids: ImageIds) {
    let mut room = [0; above::PATH];
    let outcome = match High::attach(thread, gate, ids, &mut room) {
        Ok(outcome) => outcome,
        Err(line) => report::refuse(&[line]),
    };
    // SAFETY: the process has one thread, and no other reference to the settings exists.
    let settings = unsafe { home::fill_settings() };
    settings.bundle = settings.keep(outcome.bundle);
    settings.builder = Text::of(outcome.builder);
    settings.preload = Text::of(outcome.preload);
    settings.library = Text::of(outcome.library);
    settings.linker = outcome.linker;
}

/// Finds the environment on the stack, for a dynamic linker that does not pass it. The auxiliary vector lies
/// below the random bytes that AT_RANDOM points to, and the environment lies below the vector.
///
/// # Safety
/// The process must have one thread, on the stack that the kernel made.
#[cold]
#[inline(never)]
unsafe fn search_stack() -> Option<*mut *mut u8> {
    const PR_GET_AUXV: usize = 0x4155_5856;
    const AT_RANDOM: usize = 25;
    let mut vector = [[0usize; 2]; 64];
    // SAFETY: the kernel writes within `vector`.
    unsafe { lp_abi::syscall!(__NR_prctl, PR_GET_AUXV, vector.as_mut_ptr(), size_of_val(&vector), 0, 0) }
        .ok()?;
    let random = vector.iter().find(|[kind, _]| *kind == AT_RANDOM)?[1];
    let mut at = (random & !7) as *mut usize;
    // SAFETY: everything between the random bytes and this function's frame is stack.
    unsafe {
        while !(*at == random && *at.sub(1) == AT_RANDOM) {
            at = at.sub(1);
        }
        at = at.sub(1);
        // Descend to the start of the vector; the environment's null pointer is below it.
        while *at.sub(1) != 0 || *at.sub(2) <= 64 && *at.sub(2) != 0 && vector.contains(&[*at.sub(2), 0]) {
            if vector.contains(&[*at.sub(2), *at.sub(1)]) {
                at = at.sub(2);
                continue;
            }
            return None;
        }
        let mut first = at.sub(1);
        while *first.sub(1) != 0 {
            first = first.sub(1);
        }
        // With an empty environment, the word below its null pointer is that of the arguments.
        Some(first.cast())
    }
}

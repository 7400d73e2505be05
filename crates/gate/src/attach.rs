//! Attaching: what happens before the program's first own instruction.
//!
//! The dynamic linker calls [`lp_gate_start`] as the library's DT_INIT, before any other object's (`-z initfirst`): when all
//! objects are loaded, or, where the gate is an auditor ([`crate::rtld_audit`]), when the program alone is.

use lp_abi::image::{Entry, state};
use lp_abi::linux::{__NR_clone, __NR_execve, __NR_exit_group, __NR_prctl, __NR_wait4, SIG_SETMASK};

use lp_region::process::{COUNTED, TRACED};
use lp_region::sync::Ordering;
use lp_vfs::boot::ImageIds;
use lp_vfs::task::Task;

use crate::dispatch::Table;
use crate::exec_env::Found;
use crate::objects::{Auxiliary, Object};
use crate::patch::{Bundle, Way};
use crate::settings::Text;
use crate::{
    apart, exec_env, home, hooks, names, patch, placeholder, report, settings, signal, table, text, thread,
};

/// Objects that may be unknown at once; more are refused.
const UNKNOWN: usize = 64;
/// Texts up to this size are searched here for `syscall` instructions, rather than disassembled by the builder: the output of
/// a compiler is often run once. Not those of the system, which are run again and again and are better looked up.
const SMALL_TEXT: usize = 64 << 10;
/// The library's initialiser. Without LIGHTPATH_GATE in the environment the program is left alone. Under glibc the arguments are those of main; musl passes none, and the stack is searched.
///
/// # Safety
/// Called by the dynamic linker, once.
#[unsafe(link_section = ".text.startup.lp")]
pub unsafe extern "C" fn lp_gate_start(argc: usize, argv: *mut *mut u8, envp: *mut *mut u8) {
    // glibc's arguments fit together; what is left in the registers by musl does not.
    let given = argc < 1 << 20 && envp as usize == (argv as usize).wrapping_add(8 * (argc + 1));
    let envp = if given {
        envp
    } else {
        // SAFETY: the process has one thread, with the stack that the kernel made.
        match unsafe { search_stack() } {
            Some(envp) => envp,
            None => report::refuse(&[b"the environment was not found on the stack"]),
        }
    };
    // SAFETY: `envp` is the environment as the kernel made it.
    let mask = unsafe { start(envp) };
    if let Some(mask) = mask {
        signal::set_mask(SIG_SETMASK, mask);
    }
}

/// Gives the signal mask to set, if there is one.
unsafe fn start(envp: *mut *mut u8) -> Option<u64> {
    // SAFETY: the vector ends with a null pointer, and the auxiliary vector follows it.
    let auxiliary = unsafe {
        let mut end = envp;
        while !(*end).is_null() {
            end = end.add(1);
        }
        Auxiliary::read(end.add(1).cast())
    };
    // SAFETY: one thread, nothing else uses the environment.
    let found = unsafe { exec_env::scrub(envp) }?;
    // SAFETY: as above.
    let way = unsafe { prepare(&found, &auxiliary) };
    let Found { mask, audits, within, .. } = found;
    let waits = within && way == Way::Apart;
    if audits {
        // SAFETY: the kernel has mapped both; what follows is covered as the dynamic linker maps it.
        unsafe { cover(auxiliary.first_objects()) };
        return mask;
    }
    // SAFETY: the dynamic linker's list is complete: it has loaded all objects before it calls initialisers.
    let Some(objects) = (unsafe { auxiliary.objects() }) else {
        report::refuse(&[b"the dynamic linker's list of objects was not found"]);
    };
    if waits {
        let known = objects.clone().count();
        // SAFETY: one thread.
        unsafe { (*home::home()).rest = Some(Rest { auxiliary, known }) };
        patch::tell_of_loads();
    }
    // SAFETY: as above.
    unsafe { cover(objects.filter(|object| !waits || object.base != auxiliary.linker)) };
    mask
}

/// Starts the gate in a static program, which is mapped as `program`. Gives the signal mask to set, if there
/// is one.
///
/// # Safety
/// Called once, by [`crate::standalone`].
pub(crate) unsafe fn start_static(found: &Found, auxiliary: &Auxiliary, program: Object<'_>) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe {
        prepare(found, auxiliary);
        if !program.name.starts_with(names::NAMELESS) {
            let settings = settings::fill();
            settings.program = settings.keep(program.name);
        }
        cover(core::iter::once(program));
    }
    found.mask
}

/// All that comes before patching: the process's home, its settings, the first thread's record, its part in
/// the run.
///
/// # Safety
/// Called once; the process has one thread.
unsafe fn prepare(found: &Found, auxiliary: &Auxiliary) -> Way {
    if home::map().is_err() {
        report::refuse(&[b"the program occupies the address that the gate needs"]);
    }
    let gate = found.gate;
    // SAFETY: one thread, nothing else uses the settings.
    let settings = unsafe { settings::fill() };
    settings.gate = settings.keep(gate);
    if gate.starts_with(b"-") {
        settings.preload = settings.keep(found.preload);
    }
    // SAFETY: the address that the kernel gave.
    unsafe { lp_vfs::clock::init(auxiliary.vdso) };
    let thread = thread::start_first();
    signal::attach();
    let (calls, way) = if gate.starts_with(b"-") {
        attach_nothing(gate);
        (&table::PROCESS, Way::Long)
    } else {
        // SAFETY: the first thread's record, just made.
        let thread = unsafe { &mut *thread };
        attach_region(thread, gate, auxiliary.ids);
        // Its calls are counted, or what it is made of lies in a mount.
        let is_asked =
            apart::run().is_some_and(|run| run.stats.load(Ordering::Relaxed) == COUNTED) || found.audits;
        if is_asked {
            apart::join(thread);
        }
        // SAFETY: the task that attaching made, if any, is in the record.
        match unsafe { thread.task.as_ref() } {
            Some(task) => calls_of(task),
            None => (&crate::calls::apart::APART, Way::Apart),
        }
    };
    patch::fill_gate_page(calls, way);
    way
}

/// What waits to be patched in a process that has not met a mount nor loaded anything, where the gate is part of the C library:
/// the loader, whose calls do not matter there.
pub(crate) struct Rest {
    auxiliary: Auxiliary,
    /// Objects at the start of the loader's list that are covered; they are never unloaded.
    known: usize,
}

/// Patches what has waited: the loader, and what it has mapped for the C library's own purposes meanwhile. The C library calls it
/// before it has the loader load something for the program.
#[cold]
pub(crate) extern "C" fn cover_rest() {
    // SAFETY: one thread.
    let Some(Rest { auxiliary, known }) = (unsafe { (*home::home()).rest.take() }) else { return };
    // SAFETY: the loader's list is in order between its calls, and while it opens a file.
    let Some(objects) = (unsafe { auxiliary.objects() }) else { return };
    let waiting = |(index, object): &(usize, Object<'_>)| *index >= known || object.base == auxiliary.linker;
    // SAFETY: as above.
    unsafe { cover(objects.enumerate().filter(waiting).map(|(_, object)| object)) };
    patch::load_freely();
}

/// The table for a process that has a task, and whether there are shorter ways than by it.
pub(crate) fn calls_of(task: &Task) -> (&'static Table, Way) {
    // Relaxed: immutable.
    match task.run.stats.load(Ordering::Relaxed) {
        0 => {}
        TRACED => {
            crate::traced::open(task);
            return (&crate::traced::TRACED, Way::Long);
        }
        _ => return (&crate::count::COUNTED, Way::Long),
    }
    let way = if placeholder::own_may_be_low(task) { Way::Long } else { Way::Short };
    (&crate::calls::CALLS, way)
}

/// A gate without a region: LIGHTPATH_GATE is `-:BUNDLE:BUILDER`, or absent, and then there is nothing to patch with.
fn attach_nothing(gate: &[u8]) {
    let mut parts = gate.split(|byte| *byte == b':').skip(1);
    // SAFETY: one thread; no reference to the settings is alive.
    let settings = unsafe { settings::fill() };
    settings.bundle = settings.keep(parts.next().unwrap_or_default());
    settings.builder = settings.keep(parts.next().unwrap_or_default());
}

fn attach_region(thread: &mut crate::thread::Thread, gate: &[u8], ids: ImageIds) {
    let mut parts = gate.split(|byte| *byte == b':');
    let (fd, second) = (parts.next().and_then(number), parts.next().unwrap_or_default());
    let (is_apart, second) = match second {
        [apart::RUN, run @ ..] => (true, run),
        slot => (false, slot),
    };
    let (Some(fd), Some(slot)) = (fd, number(second)) else {
        report::refuse(&[b"LIGHTPATH_GATE is malformed: ", gate]);
    };
    let flags = parts.next().unwrap_or_default();
    let mut room = [0; hooks::PATH];
    let place = hooks::Place { fd: fd as i32, slot, flags };
    let outcome = match is_apart {
        true => hooks::attach_apart(place, ids, &mut room),
        false => hooks::attach(thread, place, ids, &mut room),
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(line) => report::refuse(&[line]),
    };
    // SAFETY: one thread; no reference to the settings is alive.
    let settings = unsafe { settings::fill() };
    settings.bundle = settings.keep(outcome.bundle);
    settings.builder = Text::of(outcome.builder);
    settings.preload = Text::of(outcome.preload);
    settings.library = Text::of(outcome.library);
}

fn number(text: &[u8]) -> Option<u32> {
    text::number(text).and_then(|number| u32::try_from(number).ok())
}

/// Patches the loaded objects.
///
/// # Safety
/// They are mapped, and their initialisers have not run.
unsafe fn cover<'o>(objects: impl Iterator<Item = Object<'o>>) {
    let own = &raw const crate::entry::lp_entry as usize;
    // SAFETY: the settings' strings are NUL-terminated.
    let bundle = unsafe { Bundle::open(settings::get().bundle.pointer()) };
    let (mut unknown, mut count) = ([None; UNKNOWN], 0);
    for object in objects.filter(|object| !object.contains(own)) {
        // SAFETY: the caller's promise.
        if matches!(unsafe { cover_one(bundle.as_ref(), &object) }, Outcome::Unknown) {
            match unknown.get_mut(count) {
                Some(slot) => *slot = Some(object),
                None => report::refuse(&[b"too many objects without a site image"]),
            }
            count += 1;
        }
    }
    if count != 0 {
        // SAFETY: the caller's promise.
        unsafe { cover_unknown(&unknown[..count]) };
    }
}

/// Has images built for objects that the bundle did not know, and patches them.
///
/// # Safety
/// As [`cover`].
#[cold]
#[inline(never)]
unsafe fn cover_unknown(objects: &[Option<Object<'_>>]) {
    build(objects.iter().flatten().map(|object| object.name));
    // SAFETY: the settings' strings are NUL-terminated.
    let Some(bundle) = (unsafe { Bundle::open(settings::get().bundle.pointer()) }) else {
        report::refuse(&[b"no site images at ", settings::get().bundle.get()]);
    };
    for object in objects.iter().flatten() {
        // SAFETY: the caller's promise.
        if matches!(unsafe { cover_one(Some(&bundle), object) }, Outcome::Unknown) {
            report::refuse(&[b"no site image for ", name_of(object.name)]);
        }
    }
}

/// What became of an object.
pub(crate) enum Outcome {
    /// It is patched, or has nothing to patch.
    Covered,
    /// The bundle does not know it.
    Unknown,
}

/// Looks `object` up and patches it. An object that cannot be covered ends the process.
///
/// # Safety
/// The object is mapped, and nobody executes or changes its text meanwhile.
unsafe fn cover_one(bundle: Option<&Bundle>, object: &Object<'_>) -> Outcome {
    // SAFETY: the caller's promise.
    unsafe { cover_mapped(bundle, object, Some(object.key())) }
}

/// [`cover_one`] for an object of which perhaps the executable segment alone is mapped; `key` is its build-id's, or it is
/// that of its file.
///
/// # Safety
/// As [`cover_one`].
#[unsafe(link_section = ".text.startup.lp")]
pub(crate) unsafe fn cover_mapped(
    bundle: Option<&Bundle>,
    object: &Object<'_>,
    key: Option<[u64; 2]>,
) -> Outcome {
    if object.code().next().is_none() {
        return Outcome::Covered;
    }
    // SAFETY: the caller's promise.
    let key = key.unwrap_or_else(|| unsafe { object.key() });
    let entry = bundle.and_then(|bundle| Some((bundle, bundle.find(key)?)));
    let Some((bundle, entry)) = entry else {
        if object.code().any(|code| code.file_bytes as usize > SMALL_TEXT) || is_system(object.name) {
            return Outcome::Unknown;
        }
        // SAFETY: as above.
        let none = object.code().all(|code| !has_syscall(unsafe { object.bytes_of(code) }));
        return if none { Outcome::Covered } else { Outcome::Unknown };
    };
    match entry.state {
        state::NO_SITES => Outcome::Covered,
        state::IMAGE if fits(&entry, object) => {
            // SAFETY: the caller's promise, and the entry is the object's.
            if unsafe { patch::apply(bundle, object.base, &entry) }.is_err() {
                report::refuse(&[name_of(object.name), b": its site image cannot be mapped"]);
            }
            Outcome::Covered
        }
        state::IMAGE => report::refuse(&[name_of(object.name), b": its site image does not fit it"]),
        _ => report::refuse(&[name_of(object.name), b": has a system call that cannot be intercepted"]),
    }
}

fn fits(entry: &Entry, object: &Object<'_>) -> bool {
    object.text().is_some_and(|text| entry.text_at == text.address && entry.text_bytes == text.file_bytes)
}

/// Whether a name in the dynamic linker's list is that of a file of the system. The main program is told by its execution's name.
#[cold]
#[inline(never)]
fn is_system(name: &[u8]) -> bool {
    let mut room = [0; names::ROOM];
    let name = if name.is_empty() { names::of_program(&mut room) } else { name };
    [&b"/usr/"[..], b"/bin/", b"/lib"].iter().any(|root| name.starts_with(root))
}

fn name_of(name: &[u8]) -> &[u8] {
    if name.is_empty() { b"the program" } else { name }
}

/// Whether the bytes of a `syscall` instruction occur, at any place.
fn has_syscall(text: &[u8]) -> bool {
    use core::arch::x86_64::{
        _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    let mut at = 0;
    while at + 17 <= text.len() {
        // SAFETY: SSE2 is part of x86-64, and the 17 bytes from `at` are within the text.
        let hits = unsafe {
            let first = _mm_loadu_si128(text.as_ptr().add(at).cast());
            let second = _mm_loadu_si128(text.as_ptr().add(at + 1).cast());
            let first = _mm_cmpeq_epi8(first, _mm_set1_epi8(0x0f));
            _mm_movemask_epi8(_mm_and_si128(first, _mm_cmpeq_epi8(second, _mm_set1_epi8(0x05))))
        };
        if hits != 0 {
            return true;
        }
        at += 16;
    }
    text[at..].windows(2).any(|pair| *pair == [0x0f, 0x05])
}

/// Runs the builder for the objects with these names (empty: the program itself) and waits for it.
#[cold]
#[inline(never)]
pub(crate) fn build<'a>(names: impl Iterator<Item = &'a [u8]>) {
    const PATHS: usize = 8 << 10;
    let settings = settings::get();
    if settings.builder.get().is_empty() {
        return;
    }
    let mut paths = [0u8; PATHS];
    let mut used = 0;
    let mut argv = [core::ptr::null::<u8>(); UNKNOWN + 6];
    let fixed = [
        settings.builder.pointer(),
        c"sites".as_ptr().cast(),
        c"--bundle".as_ptr().cast(),
        settings.bundle.pointer(),
        c"--build".as_ptr().cast(),
    ];
    argv[..fixed.len()].copy_from_slice(&fixed);
    for (slot, name) in (fixed.len()..).zip(names) {
        let room = &mut paths[used..];
        let mut own = [0; names::ROOM];
        let path = if name.is_empty() { names::of_program(&mut own) } else { name };
        let length = store(room, path);
        let Some(length) = length.filter(|_| slot < argv.len() - 1) else {
            report::refuse(&[b"path too long: ", name_of(name)]);
        };
        argv[slot] = paths[used..].as_ptr();
        used += length + 1;
    }
    // Without an exit signal, so that the program never hears of it. execve(2) makes it SIGCHLD again, so the builder is
    // the child of a child that does not exec.
    match fork_silently() {
        Ok(0) => {}
        Ok(between) => return wait_for(between),
        Err(_) => return,
    }
    match fork_silently() {
        Ok(0) => {}
        Ok(builder) => {
            wait_for(builder);
            exit(0);
        }
        Err(_) => exit(127),
    }
    let environment = [core::ptr::null::<u8>(); 1];
    // SAFETY: the arguments are strings and a vector of them that ends with null.
    let _ = unsafe {
        lp_abi::syscall!(__NR_execve, settings.builder.pointer(), argv.as_ptr(), environment.as_ptr())
    };
    exit(127)
}

/// Forks without an exit signal.
fn fork_silently() -> lp_abi::Result<usize> {
    // SAFETY: a plain fork: the child has a copy of everything.
    unsafe { lp_abi::syscall!(__NR_clone, 0, 0, 0, 0, 0) }
}

/// Waits for the end of a child of [`fork_silently`].
fn wait_for(child: usize) {
    const WALL: u32 = lp_abi::linux::__WALL;
    // SAFETY: waits for our own child; the kernel writes nothing.
    while unsafe { lp_abi::syscall!(__NR_wait4, child, 0, WALL, 0) } == Err(lp_abi::Errno::EINTR) {}
}

/// Ends a child of [`fork_silently`].
fn exit(status: usize) -> ! {
    loop {
        // SAFETY: ends the child only.
        let _ = unsafe { lp_abi::syscall!(__NR_exit_group, status) };
    }
}

fn store(room: &mut [u8], text: &[u8]) -> Option<usize> {
    let room = room.get_mut(..text.len() + 1)?;
    room[..text.len()].copy_from_slice(text);
    room[text.len()] = 0;
    Some(text.len())
}

/// Finds the environment on the stack, for a dynamic linker that does not pass it: the auxiliary vector lies below the random
/// bytes that one of its entries points to, the environment below the vector.
///
/// # Safety
/// The process has one thread, on the stack that the kernel made.
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
    // SAFETY: going down from the random bytes, everything is stack, down to this function's frame.
    unsafe {
        while !(*at == random && *at.sub(1) == AT_RANDOM) {
            at = at.sub(1);
        }
        at = at.sub(1);
        // Down to the vector's start: below it is the environment's null pointer.
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
        // With an empty environment the word below its null pointer is that of the arguments.
        Some(first.cast())
    }
}

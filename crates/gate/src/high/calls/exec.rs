//! execve(2), execveat(2): programs and scripts in a mount, and everything else.
//!
//! A program of ours is copied into a memfd ([`image`]), which the kernel executes; a large one is executed
//! in place ([`outline`]), and one that a host tree has and nobody has touched, from the host's file
//! ([`below::program`]). For a script of ours its interpreter is executed, ours or the host's, with the
//! arguments that the kernel would pass. A script of the host goes to the kernel unless its interpreter is in
//! a mount.

use core::ffi::CStr;

use lp_abi::linux::{
    __NR_execveat, __NR_fcntl, AT_EMPTY_PATH, AT_EXECVE_CHECK, AT_SYMLINK_NOFOLLOW, F_GETFD, FD_CLOEXEC,
};
use lp_abi::refusal::Refusal;
use lp_abi::script;
use lp_abi::{Errno, Fd, MAX_SYMLINKS, OwnedFd, PATH_MAX, Result, UserPtr, UserSlice};
use lp_region::mount::mount_flags;
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::getcwd::{self, Start};
use lp_vfs::id_map::{self, IdKind};
use lp_vfs::table::entry;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{self, Follow, Found};
use lp_vfs::{below, busy, inode, mounts, pin, read, root, xattr};

use crate::high::calls::chmod::last_of;
use crate::high::calls::exec_arguments::{Arguments, Exec, SCRIPTS};
use crate::high::calls::stat::is_empty;
use crate::high::calls::{exec_held, exec_interpreter, linker};
use crate::high::fd::descriptor;
use crate::high::frame::at::{At, EMPTY, Last, Route, Which, buffer};
use crate::high::frame::content::read_at;
use crate::high::frame::handler::{self, handlers, kernel, ret, thread};
use crate::high::route::hostlink;
use crate::high::route::path::{leave, may_be_link, one, route};
use crate::high::run::image::{self, Change};
use crate::high::run::outline;
use crate::low::exec::check::{Program, ProgramPath};
use crate::low::exec::environment::Environment;
use crate::low::exec::load::{Executed, LoaderHook, Named, Static};
use crate::low::exec::privileges::{self, Executable, Owned};
use crate::low::exec::{check, run as low};
use crate::low::object::elf::{Elf, Loader, read_file};
use crate::low::thread::current;
use crate::low::tools::close::close_number;
use crate::low::tools::names::MEMFD_NAME;
use lp_abi::text::Writer;

/// Bytes at the start of a file that determine its format.
const HEAD: usize = 1024;

handlers! {
    /// execve(2).
    fn execve(task, path: UserPtr, argv: usize, envp: usize) {
        low::with_room(thread(), || execute(task, At::cwd(path), &Exec::new(argv, envp, 0)))
    }

    /// execveat(2).
    fn execveat(task, dirfd: Fd, path: UserPtr, argv: usize, envp: usize, flags: u32) {
        if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_EXECVE_CHECK) != 0 {
            return unknown_flags(path, flags).to_ret();
        }
        if flags & AT_EXECVE_CHECK != 0 {
            return check_only(task, At { dirfd, path }, argv, envp, flags);
        }
        low::with_room(thread(), || execute(task, At { dirfd, path }, &Exec::new(argv, envp, flags)))
    }
}

/// The error for flags that do not exist: the kernel looks at them once it has copied the path.
#[cold]
fn unknown_flags(path: UserPtr, flags: u32) -> Errno {
    let text: &mut [u8; PATH_MAX] = buffer(Which::First);
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::string(text, path.as_ptr()) } {
        Ok(0) if flags & AT_EMPTY_PATH == 0 => Errno::ENOENT,
        Ok(_) => Errno::EINVAL,
        Err(errno) => errno,
    }
}

/// execveat(2) with `AT_EXECVE_CHECK`: whether the file could be executed.
#[cold]
fn check_only(task: &'static Task<'static>, at: At, argv: usize, envp: usize, flags: u32) -> isize {
    // Kernels before 6.14 do not know the flag.
    let known = kernel!(__NR_execveat, Fd::NONE, EMPTY, argv, envp, AT_EXECVE_CHECK);
    if known == Errno::EINVAL.to_ret() {
        return known;
    }
    let check = |at: At, flags: u32| {
        Ok(find(task, at, last_of(flags), flags)?.map(|_| pin::clear(task, pin::slot::FIRST)))
    };
    let ours = |at: At| check(at, flags);
    if flags & AT_EMPTY_PATH != 0 && descriptor::is_file(task, at.dirfd) && is_empty(at.path) {
        return ret(ours(at).map(drop));
    }
    if let Route::Itself(dirfd, None) = route(task, Which::First, at, last_of(flags)) {
        return ret(check(At { dirfd, path: EMPTY }, flags | AT_EMPTY_PATH).map(drop));
    }
    one(task, at, last_of(flags), ours, |at| kernel!(__NR_execveat, at.dirfd, at.path, argv, envp, flags))
}

fn execute(task: &'static Task<'static>, at: At, exec: &Exec) -> isize {
    let before = outline::executed();
    let kept = match outline::keep(task, before) {
        Ok(kept) => kept,
        Err(errno) => return errno.to_ret(),
    };
    let name = [&task.process.exe_dirent, &task.process.exe_parent];
    let name_before = name.map(|word| word.load(Ordering::Relaxed)); // Relaxed: the process's own words.
    let done = dispatch(task, at, exec);
    // The exec has failed: restore the program's record. Relaxed: as above.
    task.process.exe.store(before.to_word(), Ordering::Relaxed);
    name.into_iter().zip(name_before).for_each(|(word, before)| word.store(before, Ordering::Relaxed));
    outline::release(task, kept);
    done
}

fn dispatch(task: &'static Task<'static>, at: At, exec: &Exec) -> isize {
    let last = last_of(exec.flags);
    if exec.flags & AT_EMPTY_PATH != 0 && descriptor::is_file(task, at.dirfd) && is_empty(at.path) {
        return ours(task, at, at, last, exec);
    }
    match route(task, Which::First, at, last).by_name() {
        Route::Ours(inside) => ours(task, at, inside, last, exec),
        Route::Host => host(task, at, last, exec),
        Route::Elsewhere(at) => host(task, at, last, exec),
        Route::Itself(dirfd, _) => {
            let empty = At { dirfd, path: EMPTY };
            ours(task, at, empty, last, &Exec { flags: exec.flags | AT_EMPTY_PATH, ..*exec })
        }
        Route::Bad(errno) => errno.to_ret(),
    }
}

/// Executes a host file. If the kernel does not find it, a link or a script may lead into a mount.
fn host(task: &'static Task<'static>, at: At, last: Last, exec: &Exec) -> isize {
    task.process.exe.store(0, Ordering::Relaxed); // Relaxed: the process's own word.
    if let Err(errno) = exec_held::host(task, at, exec.flags) {
        return errno.to_ret();
    }
    if exec.arguments.is_none()
        && let Some(traced) = linker::traced(task, at, exec)
    {
        let done = file(task, traced.path, &traced.found, &Exec { argv: traced.argv, ..*exec }, SCRIPTS);
        pin::clear(task, pin::slot::FIRST);
        return done;
    }
    let copied = linker::with_copy(task, at, exec);
    let argv = copied.as_ref().map_or(exec.argv, |copied| copied.argv);
    // SAFETY: the record is the thread's own; the vector is the gate's or the program's, as are the other
    // pointers.
    let done = unsafe {
        let file = Executed { directory: at.dirfd, path: at.path.as_ptr(), flags: exec.flags as usize };
        low::host(&*current::thread(), file, exec.script, argv, exec.envp, SCRIPTS)
    };
    if let Some(copied) = copied {
        close_number(copied.fd);
    }
    let Some(done) = done else {
        return host_script(task, at, exec, SCRIPTS).unwrap_or(Errno::ENOEXEC.to_ret());
    };
    if !may_be_link(done) {
        return done;
    }
    if let Some(inside) = hostlink::into_mount(Which::First, at, last) {
        if exec.crossings == MAX_SYMLINKS {
            return Errno::ELOOP.to_ret();
        }
        return ours(task, at, inside, last, &Exec { crossings: exec.crossings + 1, ..*exec });
    }
    host_script(task, at, exec, SCRIPTS).unwrap_or(done)
}

/// A host script whose interpreter is in a mount or is a static program.
fn host_script(task: &'static Task<'static>, at: At, exec: &Exec, scripts: usize) -> Option<isize> {
    // SAFETY: the path is the program's, or the gate's.
    let file = unsafe { check::File::executable(at.dirfd, at.path.as_ptr(), exec.flags as usize) }.ok()??;
    let mut head = [0u8; 256];
    let got = file.read(&mut head, 0);
    drop(file);
    let head = &head[..got];
    if !head.starts_with(b"#!") {
        return None;
    }
    Some(script(task, at, head, exec, scripts))
}

/// Executes the file that a path into a mount names.
fn ours(task: &'static Task<'static>, given: At, inside: At, last: Last, exec: &Exec) -> isize {
    match find(task, inside, last, exec.flags) {
        Ok(Place::Inside(found)) => {
            let done = file(task, given, &found, exec, SCRIPTS);
            pin::clear(task, pin::slot::FIRST);
            done
        }
        Ok(Place::Outside(outside)) => host(task, leave(task, given, outside), last, exec),
        Err(errno) => errno.to_ret(),
    }
}

/// Finds the inode to execute, pins it and checks permission.
fn find(task: &'static Task<'static>, at: At, last: Last, flags: u32) -> Result<Place<Found>> {
    let follow = if last.follows() { Follow::Link } else { Follow::No };
    let found = if flags & AT_EMPTY_PATH != 0 && is_empty(at.path) {
        if at.path.is_null() {
            return Err(Errno::EFAULT);
        }
        if at.dirfd == Fd::CWD {
            return Err(Errno::EACCES); // A directory.
        }
        let held = task.fget_any(at.dirfd)?;
        let found = Found::of(&held);
        // While the open file keeps the inode.
        pin::known_inode(task, pin::slot::FIRST, found.inode.id);
        found
    } else {
        match walk::inode(task, at.dirfd, at.path, follow)? {
            Place::Inside(found) => {
                pin::inode(task, pin::slot::FIRST, found.inode).map_err(|_| Errno::ENOENT)?;
                found
            }
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        }
    };
    let allowed = lp_vfs::exec::check(task, &found);
    if allowed.is_err() {
        pin::clear(task, pin::slot::FIRST);
    }
    allowed.map(|()| Place::Inside(found))
}

/// Executes a pinned file of ours: program or script.
fn file(task: &'static Task<'static>, given: At, found: &Found, exec: &Exec, scripts: usize) -> isize {
    let inode = task.region.inode(found.inode.id);
    let mut room = [0u8; MEMFD_NAME + 1];
    let name = memfd_name(task, found, &mut room);
    let hosts = below::program::untouched(task, found.inode, name.to_bytes());
    let fd = hosts.as_ref().map(OwnedFd::get);
    let content = |to: &mut [u8], at: u64| match fd {
        Some(fd) => Ok(read_file(fd, to, at)),
        None => read_at(task, inode, to, at),
    };
    let mut head = [0u8; HEAD];
    let head = match content(&mut head, 0) {
        Ok(got) => &head[..got],
        Err(errno) => return errno.to_ret(),
    };
    // The kernel copies the arguments before it looks into the file; those of a program it copies itself.
    if !head.starts_with(b"\x7fELF")
        && let Err(errno) = exec.check()
    {
        return errno.to_ret();
    }
    // The kernel's prepare_binprm reads the file like any other.
    read::note(task, inode, found.mount);
    if head.starts_with(b"#!") {
        return script(task, given, head, exec, scripts);
    }
    if !head.starts_with(b"\x7fELF") {
        return Errno::ENOEXEC.to_ret();
    }
    let read = |to: &mut [u8], at: u64| content(to, at).unwrap_or(0);
    let judged = may_be_covered(task, found).and_then(|group| Ok((group, check::elf(head, &read)?)));
    let (group, loader) = match judged {
        Ok(judged) => judged,
        Err(refusal) => {
            let mut name = [0u8; 256];
            // SAFETY: the copy routine handles bad pointers.
            let length = unsafe { ucopy::string(&mut name, given.path.as_ptr()) }.unwrap_or(0);
            return check::refuse(thread(), refusal, &name[..length]).to_ret();
        }
    };
    let environment = match Environment::survey(thread(), exec.envp) {
        Ok(environment) => environment,
        Err(errno) => return errno.to_ret(),
    };
    environment.group.set(group);
    let named = exec.script.unwrap_or(named(given));
    let program = Mounted { task, named, found, name };
    let (Some(loader), Some(elf)) =
        (loader.filter(|loader| *loader != Loader::Static), Elf::new(head, &read))
    else {
        let is_static = loader == Some(Loader::Static);
        if let Some(hosts) = hosts {
            let _ =
                program.execute(exec.argv, &environment, || program.by_host(hosts, program.lone(is_static)));
        }
        return program.execute(exec.argv, &environment, || program.copy(is_static));
    };
    let load = match root::of(task) {
        // All that it looks for is in a mount.
        Some(_) if loader.is_gnu() => LoaderHook::Audit { storage: 0 },
        _ => {
            let program = Program { elf: &elf, path: ProgramPath::Text(name.to_bytes()) };
            // SAFETY: the record is the thread's own.
            program.load(unsafe { &*current::thread() }, loader, &environment, |_| ())
        }
    };
    let linker = match exec_interpreter::of(task, &elf) {
        Ok(linker) => linker,
        Err(errno) => return errno.to_ret(),
    };
    let change = linker.as_ref().map(|linker| &linker.change);
    // What the kernel refuses of the host's file, it need not refuse of a copy.
    if change.is_none()
        && let Some(hosts) = hosts
    {
        let _ = program.execute(exec.argv, &environment, || program.by_host(hosts, |_| load));
    }
    let done = program.execute(exec.argv, &environment, || program.outline_or_copy(change, load));
    if let Some(linker) = linker {
        close_number(linker.fd);
    }
    done
}

/// Refuses a program whose execution would change ids or capabilities. The group to take before it, if any.
fn may_be_covered(task: &Task<'static>, found: &Found) -> core::result::Result<Option<u32>, Refusal> {
    let attributes = inode::attributes(task, found.inode.id, task.region.inode(found.inode.id));
    let shown = |kind, id| id_map::shown(task.process, kind, id);
    let (user, group) = (shown(IdKind::User, attributes.uid), shown(IdKind::Group, attributes.gid));
    privileges::check(&InMount { task, found }, Owned { mode: attributes.mode, user, group })
}

struct InMount<'p> {
    task: &'p Task<'static>,
    found: &'p Found,
}

impl Executable for InMount<'_> {
    fn has_capabilities(&self) -> bool {
        // SAFETY: the name is NUL-terminated and only read.
        let name = unsafe { UserPtr::new(c"security.capability".as_ptr().cast()) };
        xattr::getxattr_of(self.task, self.found.inode.id, name, UserSlice::EMPTY).is_ok_and(|size| size > 0)
    }

    fn is_nosuid(&self) -> bool {
        mounts::has(self.task, self.found.mount, mount_flags::NOSUID)
    }
}

/// A program in a mount that is to be executed, pinned.
struct Mounted<'p> {
    task: &'static Task<'static>,
    named: Named,
    found: &'p Found,
    name: &'p CStr,
}

fn named(at: At) -> Named {
    Named { directory: at.dirfd, path: at.path.as_ptr() }
}

impl Mounted<'_> {
    /// How the gate gets into a program without a dynamic linker.
    fn lone(&self, is_static: bool) -> impl FnOnce(Fd) -> LoaderHook + use<> {
        let named = self.named;
        move |fd| match is_static {
            true => LoaderHook::Static(Static { fd, named }),
            false => LoaderHook::Preload,
        }
    }

    /// A copy of a program without a dynamic linker, and how the gate gets into it.
    fn copy(&self, is_static: bool) -> Result<(Fd, LoaderHook)> {
        let fd = image::of_program(self.task, self.found.inode, self.name, None)?;
        Ok((fd, self.lone(is_static)(fd)))
    }

    /// The host's file, and how the gate gets into it. `ESTALE` if somebody has opened the program for
    /// writing meanwhile.
    fn by_host(&self, file: OwnedFd, load: impl FnOnce(Fd) -> LoaderHook) -> Result<(Fd, LoaderHook)> {
        if !below::is_pending(self.task.region.inode(self.found.inode.id)) {
            return Err(Errno::ESTALE);
        }
        let fd = file.keep();
        Ok((fd, load(fd)))
    }

    /// What to execute in place of a dynamic program, and how the gate gets into that.
    fn outline_or_copy(&self, change: Option<&Change>, load: LoaderHook) -> Result<(Fd, LoaderHook)> {
        let Mounted { task, named, found, name } = *self;
        if change.is_none()
            && let Some(outlined) = outline::of_program(task, found.inode, name, load, named)
        {
            return Ok(outlined);
        }
        Ok((image::of_program(task, found.inode, name, change)?, load))
    }

    /// Makes the kernel execute what `make` returns, which is called once nobody writes to the program.
    fn execute(
        &self,
        argv: usize,
        environment: &Environment,
        make: impl FnOnce() -> Result<(Fd, LoaderHook)>,
    ) -> isize {
        let Mounted { task, found, .. } = *self;
        // Relaxed: the process's own words.
        task.process.exe.store(found.spot().to_word(), Ordering::Relaxed);
        task.process.exe_dirent.store(found.dirent.0, Ordering::Relaxed);
        task.process.exe_parent.store(found.parent.0, Ordering::Relaxed);
        let (fd, load) = match busy::execute(task, found.spot()).and_then(|()| make()) {
            Ok(made) => made,
            Err(errno) => return errno.to_ret(),
        };
        // SAFETY: the record is the thread's own; the path is valid, the other pointers are the program's.
        let done = unsafe {
            let (thread, file) = (&*current::thread(), Executed::descriptor(fd));
            low::run(thread, self.named, file, argv, environment, load)
        };
        close_number(fd);
        done
    }
}

/// The name of a program's memfd: the program's path if it is short enough, for programs that ask the kernel
/// what is executed ([`crate::low::start::auditor`]).
fn memfd_name<'r>(task: &Task, found: &Found, room: &'r mut [u8; MEMFD_NAME + 1]) -> &'r CStr {
    let path =
        getcwd::of_entry(task, found.spot(), found.dirent, found.parent, Start::Root).unwrap_or_default();
    let mut text = Writer::new(room);
    text.push(path);
    text.finish();
    CStr::from_bytes_until_nul(room).unwrap_or_default()
}

/// Whether a path starts from a descriptor that the exec closes.
fn is_closed_by_exec(task: &Task, at: At) -> bool {
    // SAFETY: the copy routine handles bad pointers.
    let is_absolute = || unsafe { ucopy::get(at.path.as_ptr()) }.is_ok_and(|first| first == b'/');
    if at.dirfd == Fd::CWD || is_absolute() {
        return false;
    }
    match descriptor::word(task, at.dirfd) {
        word if word & entry::OPEN != 0 => word & entry::CLOEXEC != 0,
        _ => kernel!(__NR_fcntl, at.dirfd, F_GETFD) == FD_CLOEXEC as isize,
    }
}

/// Executes a script's interpreter. `head` starts with `#!`.
fn script(task: &'static Task<'static>, given: At, head: &[u8], exec: &Exec, scripts: usize) -> isize {
    if scripts == 0 {
        return Errno::ELOOP.to_ret();
    }
    let Some((interpreter, argument)) = script::interpreter(head) else {
        return Errno::ENOEXEC.to_ret();
    };
    // The kernel's BINPRM_FLAGS_PATH_INACCESSIBLE.
    if is_closed_by_exec(task, given) {
        return Errno::ENOENT.to_ret();
    }
    let vector = match Arguments::of(exec) {
        Ok(vector) => vector,
        Err(errno) => return errno.to_ret(),
    };
    // No path: the kernel opens the working directory.
    if interpreter.is_empty() {
        return Errno::EACCES.to_ret();
    }
    let argument = argument.map(|argument| &head[argument]);
    let (vector, interpreter) = match vector.for_script(given, &head[interpreter], argument) {
        Ok(built) => built,
        Err(errno) => return errno.to_ret(),
    };
    let at = At::cwd(handler::given(interpreter as usize));
    let script = exec.script.or(Some(named(given)));
    let next = Exec { arguments: Some(vector), script, ..Exec::new(vector.first as usize, exec.envp, 0) };
    let inside = match route(task, Which::First, at, Last::Follow) {
        Route::Ours(inside) => inside,
        _ => return host_interpreter(task, at, &next, scripts - 1),
    };
    match find(task, inside, Last::Follow, 0) {
        Ok(Place::Inside(found)) => file(task, at, &found, &next, scripts - 1),
        Ok(Place::Outside(outside)) => host_interpreter(task, leave(task, at, outside), &next, scripts - 1),
        Err(errno) => errno.to_ret(),
    }
}

/// Executes a host interpreter, which may itself be a script with an interpreter of ours.
fn host_interpreter(task: &'static Task<'static>, at: At, exec: &Exec, scripts: usize) -> isize {
    if let Err(errno) = exec_held::host(task, at, 0) {
        return errno.to_ret();
    }
    task.process.exe.store(0, Ordering::Relaxed); // Relaxed: the process's own word.
    // SAFETY: the record is the thread's own; the strings and the vector are the gate's, the rest is the
    // program's.
    let done = unsafe {
        let file = Executed::path(at.path.as_ptr());
        low::host(&*current::thread(), file, exec.script, exec.argv, exec.envp, scripts)
    };
    let Some(done) = done else {
        return host_script(task, at, exec, scripts).unwrap_or(Errno::ENOEXEC.to_ret());
    };
    if !may_be_link(done) {
        return done;
    }
    let Some(inside) = hostlink::into_mount(Which::First, at, Last::Follow) else {
        return host_script(task, at, exec, scripts).unwrap_or(done);
    };
    match find(task, inside, Last::Follow, 0) {
        Ok(Place::Inside(found)) => file(task, at, &found, exec, scripts),
        _ => done,
    }
}

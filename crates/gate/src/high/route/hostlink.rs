//! Paths that the kernel would walk but that lead into a mount: through a symbolic link of the host, or from
//! a host directory.

use lp_abi::linux::{
    __NR_openat2, __NR_readlink, __NR_stat, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_NOCTTY,
    O_NOFOLLOW, O_NONBLOCK, O_PATH, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS, S_IFDIR, S_IFLNK, S_IFMT, open_how, stat,
};
use lp_abi::{Errno, Fd, MAX_SYMLINKS, PATH_MAX, Result};
use lp_region::ucopy;
use lp_vfs::open;
use lp_vfs::task::Task;

use crate::high::fd::own_descriptor;
use crate::high::frame::at::{At, Last, Route, Which, buffer, spare_buffer};
use crate::high::frame::handler::thread;
use crate::high::route::{absolute, magic, rooted};
use crate::high::run::apart;
use crate::high::run::mounts::mounts;
use crate::low::tools::close::close_number;

/// The route of an absolute host path while a mount covers a host directory: the kernel must not be asked
/// about what it finds there.
#[cold]
pub(crate) fn route_covered(which: Which, at: At, last: Last) -> Route {
    into_mount(which, at, last).map_or(Route::Host, Route::Ours)
}

/// The calling thread's task, if the process has joined its run.
fn joined_task() -> Option<&'static Task<'static>> {
    // SAFETY: a thread that handles a call has a record and, once the process has joined, a task.
    unsafe { thread().task.get().as_ref() }
}

/// The route of an absolute path with empty, `.` or `..` components, `length` bytes in the buffer of `which`.
/// Without a symbolic link on the way its text tells.
#[cold]
pub(crate) fn route_crooked(task: Option<&Task>, which: Which, at: At, last: Last, length: usize) -> Route {
    let needs_walk = mounts().cover_any() || passes_mount(&buffer(which)[..length]) || meets_link(at, last);
    if needs_walk { route_walked(task, which, at, last) } else { route_outside_mounts(task, which, at, last) }
}

/// Walks a path as the kernel would, up to where it enters a mount.
#[cold]
pub(crate) fn route_walked(task: Option<&Task>, which: Which, at: At, last: Last) -> Route {
    match Walk::start(which, at).and_then(|walk| walk.run(last)) {
        Some(inside) => Route::Ours(inside),
        None => route_outside_mounts(task, which, at, last),
    }
}

/// The route of a path that enters no mount. It may lead to the region.
fn route_outside_mounts(task: Option<&Task>, which: Which, at: At, last: Last) -> Route {
    let text = buffer(which);
    // SAFETY: the gate's fault handler is installed.
    let Ok(length) = (unsafe { ucopy::string(text, at.path.as_ptr()) }) else { return Route::Host };
    let region = task.map(|task| task.region.fd()).or_else(|| Some(apart::extent()?.0)).unwrap_or(Fd::NONE);
    match last.follows() && own_descriptor::is_behind(region, at, &text[..length]) {
        true => Route::Bad(Errno::ENOENT),
        false => Route::Host,
    }
}

/// Whether an absolute path without symbolic links passes through a mount, or through a directory whose links
/// lead to what the kernel does not know.
fn passes_mount(path: &[u8]) -> bool {
    let walked = spare_buffer();
    let mut length = 0;
    path.split(|byte| *byte == b'/').any(|name| match name {
        b"" | b"." => false,
        b".." => {
            length = walked[..length].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            false
        }
        name => {
            walked[length] = b'/';
            walked[length + 1..][..name.len()].copy_from_slice(name);
            length += 1 + name.len();
            let walked = &walked[..length];
            mounts().holds(walked) || walked == b"/proc" || walked == b"/dev"
        }
    })
}

/// Finds where a host path enters a mount through symbolic links, and writes the path from there to the
/// buffer of `which`. `None` if it does not.
#[cold]
pub(crate) fn into_mount(which: Which, at: At, last: Last) -> Option<At> {
    if meets_link(at, last) { by_links(which, at, last) } else { None }
}

/// [`into_mount`] for a path on which the kernel meets a symbolic link.
#[cold]
pub(crate) fn by_links(which: Which, at: At, last: Last) -> Option<At> {
    let walk = Walk::start(which, at)?;
    walk.run(last)
}

/// Whether the kernel meets a symbolic link on the way. It rarely does, so this one call is usually all.
pub(crate) fn meets_link(at: At, last: Last) -> bool {
    meets(at, last, RESOLVE_NO_SYMLINKS)
}

/// Whether the kernel meets a link on the way that `resolve` excludes.
pub(super) fn meets(at: At, last: Last, resolve: u32) -> bool {
    let nofollow = if last.follows() { 0 } else { O_NOFOLLOW };
    let how =
        open_how { flags: u64::from(O_PATH | O_CLOEXEC | nofollow), mode: 0, resolve: u64::from(resolve) };
    // SAFETY: the kernel reads `how` and the path; a descriptor that it makes is closed below.
    match unsafe { lp_abi::syscall!(__NR_openat2, at.dirfd, at.path, &raw const how, size_of::<open_how>()) }
    {
        Ok(fd) => {
            close_number(Fd::new(fd as i32));
            false
        }
        // A filter that denies the call leaves the question open: see `filter`.
        Err(errno) => matches!(errno, Errno::ELOOP | Errno::EPERM | Errno::ENOSYS),
    }
}

/// Whether an open with these `flags` makes what the symbolic link in the last component leads to, if that is
/// missing. The kernel misses a mount, and would make a file of that name.
pub(crate) fn makes_behind_link(flags: u32) -> bool {
    flags & (O_CREAT | O_EXCL | O_NOFOLLOW | O_PATH) == O_CREAT
}

/// What makes an open fail where a symbolic link is on the way, if it is one for reading with plain `flags`
/// or one that [makes what is behind a link](makes_behind_link).
pub(crate) fn straight(flags: u32, mode: u32) -> Option<open_how> {
    const PLAIN: u32 = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_DIRECTORY | O_LARGEFILE;
    let is_asked = flags & !PLAIN == 0 || makes_behind_link(flags);
    is_asked.then(|| open_how { resolve: RESOLVE_NO_SYMLINKS.into(), ..open::same_how(flags, mode) })
}

/// Whether the result of an open that had to be [`straight`] is that of the program's own open. Otherwise a
/// link was on the way, or the kernel has not looked.
pub(crate) fn met_no_link(done: isize) -> bool {
    ![Errno::ELOOP, Errno::EPERM, Errno::ENOSYS, Errno::EINVAL].iter().any(|no| done == no.to_ret())
}

/// A walk over host directories by name. The part walked stands at the start of one buffer, without a
/// trailing slash. The rest stands at the end of another, so that a link's target can be put before it.
struct Walk {
    done: &'static mut [u8; PATH_MAX],
    length: usize,
    rest: &'static mut [u8; PATH_MAX],
    start: usize,
    /// The `RESOLVE_*` flags. Where one of them ends the walk, nothing is found: the kernel, which walks the
    /// same way, returns the error.
    resolve: u32,
    /// Length of the directory in `done` that confines the walk.
    top: usize,
}

/// Where a host path that openat2(2) limits enters a mount.
pub(crate) struct Entered {
    /// The path from there, absolute.
    pub at: At,
    /// Length of the directory that confines the walk, at the start of that path.
    pub top: usize,
}

/// [`into_mount`] within the limits of openat2(2), for a path that the kernel need not have refused.
#[cold]
pub(crate) fn into_mount_limited(which: Which, at: At, last: Last, resolve: u32) -> Option<Entered> {
    let mut walk = Walk::start(which, at)?;
    walk.resolve = resolve;
    walk.top = if resolve & SCOPED != 0 { walk.length } else { 0 };
    let top = walk.top;
    walk.run(last).map(|at| Entered { at, top })
}

/// The same for a path that has left a mount: `text` begins with the `top` bytes of the directory that
/// confines the walk.
#[cold]
pub(crate) fn into_mount_again(
    which: Which,
    text: &[u8],
    top: usize,
    last: Last,
    resolve: u32,
) -> Option<Entered> {
    let (above, below) = text.split_at_checked(top)?;
    let mut walk = Walk::start(which, At::text(b"/\0"))?;
    walk.start = PATH_MAX.checked_sub(below.len())?;
    walk.rest[walk.start..].copy_from_slice(below);
    walk.done.get_mut(..top)?.copy_from_slice(above);
    (walk.length, walk.resolve, walk.top) = (top, resolve, top);
    walk.run(last).map(|at| Entered { at, top })
}

/// The flags that confine a walk to a directory.
const SCOPED: u32 = RESOLVE_BENEATH | RESOLVE_IN_ROOT;

impl Walk {
    fn start(which: Which, at: At) -> Option<Walk> {
        let rest = spare_buffer();
        // SAFETY: the gate's fault handler is installed.
        let length = unsafe { ucopy::string(rest, at.path.as_ptr()) }.ok()?;
        let start = PATH_MAX - length;
        rest.copy_within(..length, start);
        let done = buffer(which);
        let mut length =
            if rest.get(start) == Some(&b'/') { 0 } else { absolute::directory(at.dirfd, done)? };
        if done[..length] == *b"/" {
            length = 0;
        }
        Some(Walk { done, length, rest, start, resolve: 0, top: 0 })
    }

    /// Walks until the path is in a mount, or known not to be.
    fn run(mut self, last: Last) -> Option<At> {
        let mut links = 0;
        loop {
            while self.rest.get(self.start) == Some(&b'/') {
                self.start += 1;
            }
            let name_length = self.rest[self.start..].iter().position(|byte| *byte == b'/');
            let name_length = name_length.unwrap_or(PATH_MAX - self.start);
            let mut behind = self.rest[self.start + name_length..].iter();
            // A call about a name ignores slashes behind it; others follow a link for them.
            let is_last = behind.len() == 0 || last == Last::Name && behind.all(|byte| *byte == b'/');
            if name_length == 0 {
                let is_root = self.length == 0 && self.resolve == 0 && mounts().are_whole();
                return if is_root { self.arrive() } else { None };
            }
            let parent = self.length;
            if !self.step(name_length)? {
                continue;
            }
            if mounts().holds(&self.done[..self.length]) {
                return self.arrive();
            }
            if is_last && !last.follows() {
                return None;
            }
            if self.expand(parent)? {
                links += 1;
                if links > MAX_SYMLINKS {
                    return None;
                }
            }
        }
    }

    /// Consumes the next name. Returns whether it may be a link.
    fn step(&mut self, name_length: usize) -> Option<bool> {
        let name = self.start..self.start + name_length;
        self.start += name_length;
        match &self.rest[name.clone()] {
            b"." => return Some(false),
            b".." => {
                // `..` must leave a directory, or the kernel returns the error.
                if self.length != 0 && !self.is_directory() {
                    return None;
                }
                if self.resolve & SCOPED != 0 && self.length == self.top {
                    return (self.resolve & RESOLVE_BENEATH == 0).then_some(false);
                }
                let parent = self.done[..self.length].iter().rposition(|byte| *byte == b'/');
                self.length = parent.unwrap_or(0);
                return Some(false);
            }
            _ => {}
        }
        let end = self.length + 1 + name_length;
        if end >= PATH_MAX {
            return None;
        }
        self.done[self.length] = b'/';
        self.done[self.length + 1..end].copy_from_slice(&self.rest[name]);
        self.done[end] = 0;
        self.length = end;
        Some(true)
    }

    fn is_directory(&mut self) -> bool {
        self.done[self.length] = 0;
        match self.kind() {
            Some(kind) => kind == S_IFDIR,
            None => mounts().are_below(&self.done[..self.length]),
        }
    }

    /// Type of the file to which the part walked, NUL-terminated, leads in the kernel.
    fn kind(&self) -> Option<u32> {
        // SAFETY: zeros are a valid `stat`; the kernel fills it in.
        unsafe {
            let mut found: stat = core::mem::zeroed();
            lp_abi::syscall!(__NR_stat, self.done.as_ptr(), &raw mut found).ok()?;
            Some(found.st_mode & S_IFMT)
        }
    }

    /// Whether the part walked is a magic link to a symbolic link, which was opened with `O_PATH`. A walk
    /// ends at what a magic link leads to.
    fn ends_at_link(&self) -> bool {
        self.done[..self.length].starts_with(b"/proc/") && self.kind() == Some(S_IFLNK)
    }

    /// If the part walked is a link, puts its target before the rest. `None` if nothing has that name.
    fn expand(&mut self, parent: usize) -> Option<bool> {
        let room = self.start.checked_sub(1)?;
        // SAFETY: `done` is NUL-terminated; the kernel writes at most `room` bytes before the rest.
        let got =
            unsafe { lp_abi::syscall!(__NR_readlink, self.done.as_ptr(), self.rest.as_mut_ptr(), room) };
        let magic = self.expand_magic(room);
        if magic.is_none() && got.is_ok() && self.ends_at_link() {
            return None;
        }
        match magic.unwrap_or(got) {
            Ok(length) if length < room => {
                if self.resolve != 0 && self.is_excluded() {
                    return None;
                }
                let to = self.start - length;
                self.rest.copy_within(..length, to);
                self.start = to;
                let absolute = self.rest[to] == b'/';
                if absolute && self.resolve & RESOLVE_BENEATH != 0 {
                    return None;
                }
                self.length = if absolute { self.top } else { parent };
                Some(true)
            }
            Err(Errno::EINVAL) => Some(false),
            Err(Errno::ENOENT) if mounts().are_below(&self.done[..self.length]) => Some(false),
            _ => None,
        }
    }

    /// If the part walked is a magic link of the kernel's to something of ours, which for the kernel leads to
    /// a placeholder, writes our target where the kernel's was written. Returns its length, or `ENOENT` if it
    /// has no name.
    fn expand_magic(&mut self, room: usize) -> Option<Result<usize>> {
        let path = &self.done[..self.length];
        if !path.starts_with(b"/proc/") {
            return None;
        }
        let mut text = [0; PATH_MAX];
        Some(magic::target(joined_task()?, path, &mut text)?.and_then(|target| {
            let to = self.rest.get_mut(..room.min(target.len())).ok_or(Errno::ENAMETOOLONG)?;
            to.copy_from_slice(target.get(..to.len()).unwrap_or_default());
            Ok(target.len())
        }))
    }

    /// Whether the limits exclude the link that has just been walked. A magic link leads out of any scope.
    fn is_excluded(&self) -> bool {
        if self.resolve & RESOLVE_NO_SYMLINKS != 0 {
            return true;
        }
        self.resolve & (RESOLVE_NO_MAGICLINKS | SCOPED) != 0
            && meets(At::text(&self.done[..]), Last::Follow, RESOLVE_NO_MAGICLINKS)
    }

    /// Writes out the whole path, which starts with a mount's.
    fn arrive(mut self) -> Option<At> {
        if self.length == 0 {
            self.done[0] = b'/';
            self.length = 1;
        }
        let rest = &self.rest[self.start..];
        let end = self.length + rest.len();
        if end >= PATH_MAX {
            return None;
        }
        self.done[self.length..end].copy_from_slice(rest);
        self.done[end] = 0;
        Some(rooted::inside(joined_task(), self.done))
    }
}

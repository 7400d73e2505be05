//! landlock_create_ruleset(2), landlock_add_rule(2), landlock_restrict_self(2).
//!
//! A ruleset is the kernel's, which applies it to the host, to the network and to signals, and says what is
//! wrong with a call. Rules on files of ours are kept beside it ([`ruleset`]), and so are rules on
//! directories of the host that have mounts of the run below them. A thread that restricts itself gets both:
//! the kernel's domain and one of ours ([`lp_vfs::landlock`]).

use lp_abi::linux::{
    __NR_landlock_add_rule, __NR_landlock_create_ruleset, __NR_landlock_restrict_self, __NR_open, O_CLOEXEC,
    O_PATH, S_IFDIR, S_IFMT,
};
use lp_abi::text::within;
use lp_abi::{Errno, Fd, OwnedFd, PATH_MAX};
use lp_region::InodeRef;
use lp_region::process::RUN_PATH;
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::landlock::{self, Entry, right};
use lp_vfs::task::Task;

use crate::high::fd::descriptor;
use crate::high::fd::placeholder;
use crate::high::fd::ruleset::{self, Ruleset};
use crate::high::fd::stand_in;
use crate::high::frame::at::{Which, buffer};
use crate::high::frame::handler::{failed_with, handlers, kernel};
use crate::high::life::{credentials, held, way};
use crate::high::run::mounts::mounts;
use crate::high::special::place::{self, Place};
use crate::high::watch::shadow_end::Watchers;
use crate::high::watch::{shadow, shadow_path};
use crate::low::dispatch::NOT_OURS;
use crate::low::tools::close::close_number;

/// `LANDLOCK_RULE_PATH_BENEATH`.
const PATH_BENEATH: u32 = 1;

/// `LANDLOCK_CREATE_RULESET_VERSION`.
const VERSION: u32 = 1;
/// The version of the kernel's interface that is followed here.
const FOLLOWED: isize = 7;
/// `LANDLOCK_RESTRICT_SELF_LOG_*`.
const FLAGS: u32 = 7;
/// What no kernel knows.
const NO_FLAG: u32 = 1 << 31;

/// landlock_create_ruleset(2) with flags: what the kernel says about itself.
pub(crate) fn about(attributes: usize, size: usize, flags: u32) -> isize {
    let done = kernel!(__NR_landlock_create_ruleset, attributes, size, flags);
    if flags == VERSION { done.min(FOLLOWED) } else { done }
}

/// `struct landlock_path_beneath_attr`.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: Fd,
}

handlers! {
    /// landlock_create_ruleset(2).
    fn create_ruleset(task, attributes: *const u64, size: usize, flags: u32) {
        if flags != 0 {
            return about(attributes.addr(), size, flags);
        }
        placeholder::flush(task);
        let done = kernel!(__NR_landlock_create_ruleset, attributes, size, flags);
        if done < 0 {
            return done;
        }
        // SAFETY: the copy routine handles bad pointers. The rights to files are the first word.
        let handled = unsafe { ucopy::get(attributes) }.unwrap_or(u64::MAX);
        let made = match handled & !u64::from(right::ALL) {
            0 => ruleset::made(Fd::new(done as i32), handled as u32),
            _ => Err(Errno::EINVAL), // A newer kernel knows more.
        };
        if let Err(errno) = made {
            close_number(Fd::new(done as i32));
            return errno.to_ret();
        }
        done
    }

    /// landlock_add_rule(2).
    fn add_rule(task, fd: Fd, kind: u32, rule: *const PathBeneath, flags: u32) {
        let fd = in_place(task, fd);
        // SAFETY: the copy routine handles bad pointers; every bit pattern is valid.
        match unsafe { ucopy::get(rule) } {
            Ok(rule) if kind == PATH_BENEATH => add(task, fd, rule, flags),
            _ => kernel!(__NR_landlock_add_rule, fd, kind, rule, flags),
        }
    }

    /// landlock_restrict_self(2).
    fn restrict_self(task, fd: Fd, flags: u32) {
        way::before_losing(task);
        match ruleset::of(fd) {
            // A newer kernel knows more, which the gate would have to follow.
            Some(_) if flags & !FLAGS != 0 => kernel!(__NR_landlock_restrict_self, fd, NO_FLAG),
            Some(ruleset) if ruleset.handled() != 0 => restrict(task, fd, ruleset, flags),
            Some(_) => NOT_OURS,
            // Its rules on mounts are not known: as for what is no ruleset.
            None if ruleset::is_one(fd) => kernel!(__NR_landlock_restrict_self, stand_in::file(task), flags),
            // The kernel returns the error, or what concerns the log only.
            None => kernel!(__NR_landlock_restrict_self, in_place(task, fd), flags),
        }
    }
}

/// What the kernel gets in the place of a descriptor of a ruleset, so that it finds the same error.
fn in_place(task: &Task, fd: Fd) -> Fd {
    stand_in::of(task, fd).unwrap_or(fd)
}

/// Adds a rule on what is below a directory, or on a file.
fn add(task: &Task, fd: Fd, rule: PathBeneath, flags: u32) -> isize {
    let (parent, rights) = (rule.parent, rule.allowed as u32);
    let call = |parent: Fd| {
        let rule = PathBeneath { parent, ..rule };
        kernel!(__NR_landlock_add_rule, fd, PATH_BENEATH, &raw const rule, flags)
    };
    if descriptor::is_hidden(task, parent) {
        return call(Fd::new(i32::MAX));
    }
    if !descriptor::is_listed(task, parent) {
        let done = call(parent);
        if done >= 0
            && let Some(ruleset) = ruleset::of(fd)
            && let Err(errno) = add_above(ruleset, parent, rights)
        {
            return errno.to_ret();
        }
        return done;
    }
    // The kernel accepts no file without a place, and finds whatever else is wrong before that.
    let done = call(stand_in::file(task));
    if !failed_with(done, Errno::EBADFD) || !ruleset::is_one(fd) {
        return done;
    }
    let Ok(held) = task.fget_any(parent) else { return Errno::EBADF.to_ret() };
    // Relaxed: an inode's type does not change.
    let is_dir = held.inode.mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR;
    if !is_dir && rights & !right::OF_FILE != 0 {
        return Errno::EINVAL.to_ret();
    }
    let key = Entry::key_of(held.inode_ref());
    let Some(ruleset) = ruleset::of(fd) else { return Errno::EBADFD.to_ret() };
    match ruleset.add(Entry { key, rights }) {
        Ok(()) => 0,
        Err(errno) => errno.to_ret(),
    }
}

/// Keeps a rule on a directory of the host, if mounts of the run are below it.
fn add_above(ruleset: &Ruleset, directory: Fd, rights: u32) -> lp_abi::Result<()> {
    let room: &mut [u8; PATH_MAX] = buffer(Which::First);
    let Some(length) = ruleset::link_of(directory, room) else { return Ok(()) };
    let path = &room[..length];
    let is_below = |mount: &[u8]| path == b"/" || within(mount, path).is_some_and(|rest| !rest.is_empty());
    let below = mounts().paths().iter().enumerate().filter(|(_, mount)| is_below(mount));
    match below.fold(0u16, |all, (index, _)| all | 1 << index) {
        0 => Ok(()),
        mounts => ruleset.add(Entry { key: Entry::key_above(mounts, path == b"/"), rights }),
    }
}

fn restrict(task: &'static Task<'static>, fd: Fd, ruleset: &Ruleset, flags: u32) -> isize {
    allow_own(task, fd, ruleset.handled());
    credentials::part_from_others(task);
    let draft = landlock::extend(task, |add| {
        add(Entry::layer(ruleset.handled()))?;
        ruleset.rules().try_for_each(add)
    });
    let draft = match draft {
        Ok(draft) => draft,
        Err(errno) => return errno.to_ret(),
    };
    let done = kernel!(__NR_landlock_restrict_self, fd, flags);
    if done < 0 {
        return done;
    }
    match draft.commit() {
        Ok(()) => held::begin(task),
        // The kernel holds the thread to the host's part of it already.
        Err(errno) => return errno.to_ret(),
    }
    done
}

/// Adds to a ruleset of the kernel's what the gate needs afterwards: its own files and programs, and the
/// objects on the host that stand for FIFOs, sockets and devices in mounts, and for what is watched.
fn allow_own(task: &Task, ruleset: Fd, handled: u32) {
    const USED: u32 = right::READ_FILE | right::READ_DIR | right::EXECUTE;
    const CHANGED: u32 = !(right::EXECUTE | right::IOCTL_DEV);
    let run = task.run;
    let preload = run.preload.get();
    let beside = &preload[..preload.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
    for path in [run.cache.get(), beside, run.library.get()] {
        allow(ruleset, path, USED & handled);
    }
    // It looks at objects that have no site image.
    allow(ruleset, run.launcher.get(), USED & right::OF_FILE & handled);
    let room: &mut [u8; PATH_MAX] = buffer(Which::First);
    place::prepare(task);
    for place in Place::used(run) {
        let Ok((_, directory)) = place.path(task, InodeRef::NONE, room) else { continue };
        allow(ruleset, &room[..directory], CHANGED & handled);
        // The last process of the run removes it.
        let above = room[..directory].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        if within(&room[..above], run.cache.get()).is_some() {
            allow(ruleset, &room[..above], right::REMOVE_DIR & handled);
        }
    }
    // A new directory of shadows gets another name.
    let mut base = [0; shadow_path::BASE];
    if shadow::prepare(task, Watchers::More).is_ok()
        && let Ok((_, above)) = shadow_path::base(task, &mut base)
    {
        allow(ruleset, &base[..above], CHANGED & handled);
    }
}

/// Adds one rule, if there is such a directory.
fn allow(ruleset: Fd, path: &[u8], rights: u32) {
    let mut room = [0; RUN_PATH + 1];
    if path.is_empty() || path.len() >= room.len() || rights == 0 {
        return;
    }
    room[..path.len()].copy_from_slice(path);
    // SAFETY: the path is NUL-terminated.
    let opened = unsafe { lp_abi::syscall!(__NR_open, room.as_ptr(), O_PATH | O_CLOEXEC, 0) };
    let Ok(opened) = opened.map(OwnedFd::new) else { return };
    let rule = PathBeneath { allowed: rights.into(), parent: opened.get() };
    kernel!(__NR_landlock_add_rule, ruleset, PATH_BENEATH, &raw const rule, 0);
}

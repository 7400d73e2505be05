//! The calls of the pairs, with their arguments.

use super::state::{self, Facts};
use super::tree::{BOTH, FIRST, SECOND, open_at};
use crate::library;
use lp_abi::linux::{
    AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW, F_RDLCK, F_SETLK, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_NB, LOCK_SH,
    LOCK_UN, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, RENAME_EXCHANGE, SEEK_CUR, SEEK_END, SEEK_SET, stat,
    statfs,
};
use lp_abi::{Errno, Fd, Result as Answer, lent};
use lp_vfs::link::Two;
use lp_vfs::xattr::XattrValue;
use lp_vfs::{Place, Task};
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// The result of a call: its value or its errno, and what it wrote to the program's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) value: Result<usize, i32>,
    pub(super) bytes: Vec<u8>,
}

type Run = Box<dyn Fn(&Task<'static>) -> Outcome>;

/// A call with its arguments.
pub(super) struct Call {
    /// The system call.
    pub(super) kind: &'static str,
    /// The arguments, as a person writes them.
    pub(super) arguments: String,
    pub(super) run: Run,
}

const MISSING: &[&CStr] = &[c"/d/m", c"/d/n", c"/e/m"];
const EXISTING: &[&CStr] = &[c"/d/a", c"/d/b", c"/d/two", c"/e/two"];
const FDS: &[(Fd, &str)] = &[(FIRST, "own a"), (SECOND, "own b"), (BOTH, "shared a")];

/// All of them.
pub(super) fn all() -> Vec<Call> {
    let mut calls = Vec::new();
    on_descriptors(&mut calls);
    on_paths(&mut calls);
    on_names(&mut calls);
    calls
}

fn on_descriptors(calls: &mut Vec<Call>) {
    for &(fd, name) in FDS {
        let mut add = |kind, more: &str, run: Run| {
            calls.push(Call { kind, arguments: format!("{name}{more}"), run });
        };
        add(
            "lseek",
            ", 1, SET",
            Box::new(move |t| number(lp_vfs::lseek::lseek(t, fd, 1, SEEK_SET).map(|at| at as usize))),
        );
        add(
            "lseek",
            ", 0, CUR",
            Box::new(move |t| number(lp_vfs::lseek::lseek(t, fd, 0, SEEK_CUR).map(|at| at as usize))),
        );
        add(
            "lseek",
            ", 0, END",
            Box::new(move |t| number(lp_vfs::lseek::lseek(t, fd, 0, SEEK_END).map(|at| at as usize))),
        );
        add("read", "", Box::new(move |t| filled(16, |to| lp_vfs::read::read(t, fd, lent::room(to)))));
        add("write", "", Box::new(move |t| number(lp_vfs::write::write(t, fd, lent::bytes(b"written")))));
        for at in [0, 8192] {
            let place = format!(", page {}", at / 4096);
            add(
                "pread",
                &place,
                Box::new(move |t| filled(16, |to| lp_vfs::read::pread(t, fd, lent::room(to), at))),
            );
            add(
                "pwrite",
                &place,
                Box::new(move |t| number(lp_vfs::write::pwrite(t, fd, lent::bytes(b"there"), at))),
            );
        }
        add(
            "fstat",
            "",
            Box::new(move |t| attributes(|to| lp_vfs::stat::fstat(t, fd, lent::value(to).cast()))),
        );
        add("ftruncate", ", 5000", Box::new(move |t| unit(lp_vfs::truncate::ftruncate(t, fd, 5000))));
        add("fsetlk", ", 0-9 read", Box::new(move |t| record_lock(t, fd, F_RDLCK as i16, 0)));
        add("fsetlk", ", 20-29 write", Box::new(move |t| record_lock(t, fd, F_WRLCK as i16, 20)));
        add("flock", ", SH", Box::new(move |t| unit(lp_vfs::flock::flock(t, fd, LOCK_SH | LOCK_NB))));
        add("flock", ", EX", Box::new(move |t| unit(lp_vfs::flock::flock(t, fd, LOCK_EX | LOCK_NB))));
        add("dup", "", Box::new(move |t| number(duplicate(t, fd))));
        add("close", "", Box::new(move |t| unit(lp_vfs::close::close(t, fd))));
    }
}

fn on_paths(calls: &mut Vec<Call>) {
    for &path in EXISTING.iter().chain(MISSING) {
        let mut add = |kind, more: &str, run: Run| {
            calls.push(Call { kind, arguments: format!("{}{more}", shown(path)), run });
        };
        add("stat", "", Box::new(move |t| stat_of(t, path)));
        add(
            "access",
            "",
            Box::new(move |t| place(lp_vfs::access::faccessat(t, Fd::CWD, lent::path(path), 4, 0))),
        );
        add("open", "", Box::new(move |t| number(open_lowest(t, path, O_RDONLY))));
        add("open", ", CREAT", Box::new(move |t| number(open_lowest(t, path, O_RDWR | O_CREAT))));
        add("unlink", "", Box::new(move |t| unlink(t, path, 0)));
        if MISSING.contains(&path) {
            add(
                "mkdir",
                "",
                Box::new(move |t| place(lp_vfs::mkdir::mkdirat(t, Fd::CWD, lent::path(path), 0o755))),
            );
            add(
                "symlink",
                "",
                Box::new(move |t| {
                    place(lp_vfs::symlink::symlinkat(t, lent::path(c"target"), Fd::CWD, lent::path(path)))
                }),
            );
            continue;
        }
        add(
            "open",
            ", CREAT|EXCL",
            Box::new(move |t| number(open_lowest(t, path, O_RDWR | O_CREAT | O_EXCL))),
        );
        add("open", ", TRUNC", Box::new(move |t| number(open_lowest(t, path, O_RDWR | O_TRUNC))));
        add(
            "truncate",
            ", 100",
            Box::new(move |t| place(lp_vfs::truncate::truncate(t, Fd::CWD, lent::path(path), 100))),
        );
        add(
            "chmod",
            ", 600",
            Box::new(move |t| place(lp_vfs::chmod::fchmodat(t, Fd::CWD, lent::path(path), 0o600, 0))),
        );
        add(
            "chown",
            ", 1:1",
            Box::new(move |t| place(lp_vfs::chown::fchownat(t, Fd::CWD, lent::path(path), 1, 1, 0))),
        );
        add(
            "utimens",
            ", 5",
            Box::new(move |t| {
                place(lp_vfs::utimens::utimensat(t, Fd::CWD, lent::path(path), Some([5, 0, 5, 0]), 0))
            }),
        );
        add(
            "setxattr",
            "",
            Box::new(move |t| {
                let value = XattrValue { bytes: lent::bytes(b"value"), flags: 0 };
                place(lp_vfs::xattr::setxattr(t, Fd::CWD, lent::path(path), 0, lent::path(c"user.k"), value))
            }),
        );
        add(
            "getxattr",
            "",
            Box::new(move |t| {
                filled(64, |to| {
                    let name = lent::path(c"user.k");
                    inside(lp_vfs::xattr::getxattr(t, Fd::CWD, lent::path(path), 0, name, lent::room(to)))
                })
            }),
        );
    }
}

fn on_names(calls: &mut Vec<Call>) {
    let mut add = |kind, arguments: String, run: Run| calls.push(Call { kind, arguments, run });
    for (old, new) in [
        (c"/d/a", c"/d/m"),
        (c"/d/a", c"/d/n"),
        (c"/d/a", c"/e/m"),
        (c"/d/b", c"/d/n"),
        (c"/d/b", c"/d/a"),
        (c"/e/two", c"/e/m"),
        (c"/e/two", c"/d/n"),
        (c"/d/m", c"/d/n"),
    ] {
        let arguments = format!("{}, {}", shown(old), shown(new));
        add("rename", arguments.clone(), Box::new(move |t| rename(t, old, new, 0)));
        if old != c"/d/m" {
            add("link", arguments, Box::new(move |t| link(t, old, new)));
        }
    }
    add("rename", "d/a, d/b, EXCHANGE".into(), Box::new(|t| rename(t, c"/d/a", c"/d/b", RENAME_EXCHANGE)));
    for (old, new) in [(c"/d/dir", c"/d/n"), (c"/d/dir", c"/e/m")] {
        add("rename", format!("{}, {}", shown(old), shown(new)), Box::new(move |t| rename(t, old, new, 0)));
    }
    add("rmdir", "d/dir".into(), Box::new(|t| unlink(t, c"/d/dir", AT_REMOVEDIR)));
    add("open", "d/dir/m, CREAT".into(), Box::new(|t| number(open_lowest(t, c"/d/dir/m", O_RDWR | O_CREAT))));
    add(
        "readlink",
        "d/sym".into(),
        Box::new(|t| {
            filled(64, |to| {
                inside(lp_vfs::readlink::readlinkat(t, Fd::CWD, lent::path(c"/d/sym"), lent::room(to)))
            })
        }),
    );
    add("stat", "d/sym".into(), Box::new(|t| stat_of(t, c"/d/sym")));
    for path in [c"/d", c"/e", c"/d/dir"] {
        add("readdir", shown(path), Box::new(move |t| list(t, path)));
        add(
            "chdir",
            shown(path),
            Box::new(move |t| place(lp_vfs::chdir::chdir(t, lent::path(path)).map(|p| p.map(drop)))),
        );
    }
    add(
        "statfs",
        "d".into(),
        Box::new(|t| {
            let mut to = MaybeUninit::<statfs>::uninit();
            place(lp_vfs::statfs::statfs(t, Fd::CWD, lent::path(c"/d"), lent::value(&mut to).cast()))
        }),
    );
}

fn shown(path: &CStr) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

fn number(answer: Answer<usize>) -> Outcome {
    Outcome { value: answer.map_err(|errno| errno.number()), bytes: Vec::new() }
}

fn unit(answer: Answer<()>) -> Outcome {
    number(answer.map(|()| 0))
}

fn inside<T>(answer: Answer<Place<T>>) -> Answer<T> {
    match answer? {
        Place::Inside(value) => Ok(value),
        Place::Outside(_) => Err(Errno::EXDEV),
    }
}

fn place(answer: Answer<Place<()>>) -> Outcome {
    unit(inside(answer))
}

fn filled(length: usize, call: impl FnOnce(&mut [u8]) -> Answer<usize>) -> Outcome {
    let mut bytes = vec![0; length];
    let value = call(&mut bytes).map_err(|errno| errno.number());
    bytes.truncate(value.unwrap_or(0));
    Outcome { value, bytes }
}

/// What a status says without the inode's number; a time is told by its class.
fn attributes(call: impl FnOnce(&mut MaybeUninit<stat>) -> Answer<()>) -> Outcome {
    let mut to = MaybeUninit::<stat>::zeroed();
    let value = call(&mut to).map(|()| 0).map_err(|errno| errno.number());
    // SAFETY: zeros are a valid `stat`.
    let found = unsafe { to.assume_init() };
    let bytes = match value {
        Ok(_) => format!("{:?}", Facts::of(&found)).into_bytes(),
        Err(_) => Vec::new(),
    };
    Outcome { value, bytes }
}

fn stat_of(task: &Task, path: &CStr) -> Outcome {
    attributes(|to| {
        inside(lp_vfs::stat::fstatat(
            task,
            Fd::CWD,
            lent::path(path),
            lent::value(to).cast(),
            AT_SYMLINK_NOFOLLOW,
        ))
    })
}

fn open_lowest(task: &Task, path: &CStr, flags: u32) -> Answer<usize> {
    Ok(library::open_lowest(task, 3, path, flags)?.raw() as usize)
}

fn duplicate(task: &Task, fd: Fd) -> Answer<usize> {
    let id = lp_vfs::dup::dup(task, fd)?;
    let to = task.table.lowest(3, u32::MAX)?;
    lp_vfs::dup::install(task, to, id, 0)?;
    Ok(to.raw() as usize)
}

fn unlink(task: &Task, path: &CStr, flags: u32) -> Outcome {
    place(lp_vfs::unlink::unlinkat(task, Fd::CWD, lent::path(path), flags))
}

fn two(answer: Answer<Two>) -> Outcome {
    unit(match answer {
        Ok(Two::Done) => Ok(()),
        Ok(_) => Err(Errno::EXDEV),
        Err(errno) => Err(errno),
    })
}

fn rename(task: &Task, old: &CStr, new: &CStr, flags: u32) -> Outcome {
    two(lp_vfs::rename::renameat2(task, Fd::CWD, lent::path(old), Fd::CWD, lent::path(new), flags))
}

fn link(task: &Task, old: &CStr, new: &CStr) -> Outcome {
    two(lp_vfs::link::linkat(task, Fd::CWD, lent::path(old), Fd::CWD, lent::path(new), 0))
}

fn record_lock(task: &Task, fd: Fd, kind: i16, start: i64) -> Outcome {
    let mut asked = nix::libc::flock { l_type: kind, l_whence: 0, l_start: start, l_len: 10, l_pid: 0 };
    unit(lp_vfs::record_lock::fcntl(task, fd, F_SETLK, lent::value(&mut asked).cast()).map(drop))
}

/// opendir(3), readdir(3) and closedir(3).
fn list(task: &Task, path: &CStr) -> Outcome {
    match state::names(task, path) {
        Ok(names) => Outcome { value: Ok(names.len()), bytes: names.join("/").into_bytes() },
        Err(errno) => Outcome { value: Err(errno.number()), bytes: Vec::new() },
    }
}

/// Makes calls of each kind that leave everything as it was, but for caches.
pub(super) fn warm_up(task: &Task<'static>) -> Answer<()> {
    for path in [c"/d/warm", c"/e/warm", c"/d/dir/warm"] {
        const FRESH: Fd = Fd::new(6);
        open_at(task, FRESH, path, O_RDWR | O_CREAT)?;
        lp_vfs::write::write(task, FRESH, lent::bytes(&[1; 9000]))?;
        lp_vfs::close::close(task, FRESH)?;
        let value = XattrValue { bytes: lent::bytes(b"value"), flags: 0 };
        inside(lp_vfs::xattr::setxattr(task, Fd::CWD, lent::path(path), 0, lent::path(c"user.k"), value))?;
        rename(task, path, c"/e/moved", 0);
        unlink(task, c"/e/moved", 0);
        inside(lp_vfs::mkdir::mkdirat(task, Fd::CWD, lent::path(path), 0o755))?;
        unlink(task, path, AT_REMOVEDIR);
    }
    for path in EXISTING.iter().chain(MISSING) {
        stat_of(task, path);
    }
    state::names(task, c"/d")?;
    for kind in [LOCK_SH, LOCK_UN] {
        lp_vfs::flock::flock(task, FIRST, kind)?;
    }
    for kind in [F_WRLCK, F_UNLCK] {
        record_lock(task, FIRST, kind as i16, 0);
    }
    let fd = duplicate(task, FIRST)?;
    lp_vfs::close::close(task, Fd::new(fd as i32))
}

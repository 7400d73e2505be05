//! What a program can see of the world: pairs commute if both orders lead to the same state.

use super::tree::open_at;
use lp_abi::linux::{AT_SYMLINK_NOFOLLOW, O_RDONLY, S_IFMT, S_IFREG, SEEK_CUR, stat};
use lp_abi::{Fd, Result as Answer, dirent64, lent};
use lp_vfs::{Place, Task};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

/// Attributes without numbers that programs cannot count on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Facts {
    mode: u32,
    links: u64,
    owner: (u32, u32),
    size: i64,
    /// Access, modification and change time.
    times: [TimeClass; 3],
}

/// When a time was set.
#[derive(Debug, PartialEq, Eq)]
enum TimeClass {
    /// By utimensat(2).
    Set,
    /// Before the pair.
    Before,
    /// By the pair.
    Now,
}

thread_local! {
    static BEGAN: std::cell::Cell<(i64, i64)> = const { std::cell::Cell::new((0, 0)) };
}

/// Tells when the state that pairs find was kept, in seconds and nanoseconds.
pub(super) fn begin(at: (i64, i64)) {
    BEGAN.set(at);
}

impl Facts {
    pub(super) fn of(found: &stat) -> Facts {
        let class = |sec: i64, nsec: i64| match (sec, nsec) {
            (5, 0) => TimeClass::Set,
            time if time <= BEGAN.get() => TimeClass::Before,
            _ => TimeClass::Now,
        };
        Facts {
            mode: found.st_mode,
            links: found.st_nlink,
            owner: (found.st_uid, found.st_gid),
            size: found.st_size,
            times: [
                class(found.st_atime as i64, found.st_atime_nsec as i64),
                class(found.st_mtime as i64, found.st_mtime_nsec as i64),
                class(found.st_ctime as i64, found.st_ctime_nsec as i64),
            ],
        }
    }
}

/// Highest descriptor of an actor.
const LAST: i32 = 10;
/// A descriptor that no call uses.
const LOOK: Fd = Fd::new(61);

/// The state that the two actors see, in words.
pub(super) fn of(tasks: [&Task; 2]) -> String {
    let (mut text, mut known) = (String::new(), BTreeMap::new());
    tree(tasks[0], c"/", &mut known, &mut text);
    for (actor, task) in tasks.into_iter().enumerate() {
        for fd in (3..=LAST).map(Fd::new) {
            if let Some(found) = status_of(task, fd) {
                let position = lp_vfs::lseek::lseek(task, fd, 0, SEEK_CUR);
                let name = known.get(&found.st_ino).map_or("none", String::as_str);
                text += &format!("{actor} {fd:?} {name} {position:?} {:?}\n", Facts::of(&found));
            }
        }
        let cwd = task.process.cwd.load(std::sync::atomic::Ordering::Relaxed);
        text += &format!("{actor} {cwd:x}\n");
    }
    text
}

fn status_of(task: &Task, fd: Fd) -> Option<stat> {
    let mut to = MaybeUninit::<stat>::zeroed();
    lp_vfs::stat::fstat(task, fd, lent::value(&mut to).cast()).ok()?;
    // SAFETY: zeros are a valid `stat`.
    Some(unsafe { to.assume_init() })
}

fn status(task: &Task, path: &CStr) -> Option<stat> {
    let mut to = MaybeUninit::<stat>::zeroed();
    let into = lent::value(&mut to).cast();
    match lp_vfs::stat::fstatat(task, Fd::CWD, lent::path(path), into, AT_SYMLINK_NOFOLLOW) {
        // SAFETY: zeros are a valid `stat`.
        Ok(Place::Inside(())) => Some(unsafe { to.assume_init() }),
        _ => None,
    }
}

fn tree(task: &Task, path: &CStr, known: &mut BTreeMap<u64, String>, text: &mut String) {
    let Some(found) = status(task, path) else { return };
    let name = path.to_string_lossy().into_owned();
    let same = known.entry(found.st_ino).or_insert_with(|| name.clone()).clone();
    *text += &format!("{name} {same} {:?}", Facts::of(&found));
    let mut room = [0; 64];
    let value = lp_vfs::xattr::getxattr(
        task,
        Fd::CWD,
        lent::path(path),
        AT_SYMLINK_NOFOLLOW,
        lent::path(c"user.k"),
        lent::room(&mut room),
    );
    *text += &format!(" {:?}", matches!(value, Ok(Place::Inside(_))));
    if let Ok(Place::Inside(length)) =
        lp_vfs::readlink::readlinkat(task, Fd::CWD, lent::path(path), lent::room(&mut room))
    {
        *text += &format!(" -> {:?}", &room[..length]);
    }
    if found.st_mode & S_IFMT == S_IFREG && open_at(task, LOOK, path, O_RDONLY).is_ok() {
        let mut content = vec![0; 5 * 4096];
        let got = lp_vfs::read::pread(task, LOOK, lent::room(&mut content), 0).unwrap_or(0);
        let sum =
            content[..got].iter().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        *text += &format!(" {sum:x}");
        let _ = lp_vfs::close::close(task, LOOK);
    }
    *text += "\n";
    for child in names(task, path).unwrap_or_default() {
        let slash = if name.ends_with('/') { "" } else { "/" };
        if let Ok(path) = CString::new(format!("{name}{slash}{child}")) {
            tree(task, &path, known, text);
        }
    }
}

/// The names in a directory, in order.
pub(super) fn names(task: &Task, path: &CStr) -> Answer<Vec<String>> {
    open_at(task, LOOK, path, O_RDONLY)?;
    let mut buffer = vec![0; 4096];
    let got = lp_vfs::getdents::getdents64(task, LOOK, lent::room(&mut buffer));
    lp_vfs::close::close(task, LOOK)?;
    let shown = |(_, name): (u8, &CStr)| name.to_string_lossy().into_owned();
    let mut names: Vec<_> = dirent64::names(&buffer[..got?]).map(shown).collect();
    names.sort_unstable();
    Ok(names)
}

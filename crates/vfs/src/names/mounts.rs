//! Where file systems appear: in the host's tree, by the run's command line, and in each other, by mount(2).
//!
//! A place is a [`Spot`]: an inode and the mount through which it was reached. Something may be mounted on an
//! inode only if the inode has [`COVERED`]; [`cover`] then finds the mount whose parent and point are the
//! spot's. Walks take no lock. Mount changes count as changes of where paths lead
//! ([`crate::names::tree::shift`]), so a lookup that met one is repeated.

use core::slice;

use lp_abi::Fd;
use lp_abi::text::within;
use lp_region::layout::MOUNTS;
use lp_region::mount::{State, mount_state};
use lp_region::mount_change;
use lp_region::records::COVERED;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, MountId, RunId, Spot};

use crate::caller::below;
use crate::caller::task::Task;
use crate::caller::walked;
use crate::names::root;

/// Maximum number of repeated lookups because the mounts changed.
const TRIES: u32 = 1000;

/// The walk of [`lp_region::lane::Lane::walked`] of those who look at mounts without a path.
pub(crate) const ASIDE: usize = 2;

/// Where an absolute path leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crossing {
    /// Into a mount of the command line.
    Inside {
        /// The mount's root, or that of what is mounted on it.
        root: Spot,
        /// Length of the mount's own path within the path, in bytes.
        walked: usize,
    },
    /// Not into a mount.
    Outside,
}

/// Finds the mount that an absolute path leads into.
///
/// The host's part of the path is treated as text: `.` and double slashes are interpreted, and so is `..` in
/// the directories above a mount; the host's symbolic links are not.
///
/// # Safety
/// `length` bytes of text must be at `path`, then a NUL and [`crate::caller::task::SLACK`] bytes: all
/// readable through the pointer, and unchanged meanwhile.
#[inline]
pub(crate) unsafe fn enter(task: &Task<'_>, path: *const u8, length: usize, walk: usize) -> Crossing {
    // SAFETY: the caller guarantees a NUL and SLACK bytes behind the text.
    let word = unsafe { path.cast::<u64>().read_unaligned() };
    if task.prefix.starts(word) {
        return crossing(task, 0, task.prefix.length(), walk);
    }
    // SAFETY: the caller guarantees `length` bytes of text, which do not change.
    enter_slow(task, unsafe { slice::from_raw_parts(path, length) }, walk)
}

#[inline(never)]
fn enter_slow(task: &Task<'_>, path: &[u8], walk: usize) -> Crossing {
    match root::of(task) {
        Some(root) => Crossing::Inside { root, walked: 0 },
        None => enter_from_host(task, path, walk),
    }
}

/// [`enter`] for a path that starts at the host's root, whatever the process's root is.
pub(crate) fn enter_from_host(task: &Task<'_>, path: &[u8], walk: usize) -> Crossing {
    match longest(task, path) {
        Some((mount, walked)) => crossing(task, mount, walked, walk),
        None if is_plain(path) => Crossing::Outside,
        None => enter_crooked(task, path, walk),
    }
}

/// Into a mount of the command line, or what is mounted on its root, unless it is no longer at its path.
#[inline]
fn crossing(task: &Task<'_>, index: usize, walked: usize, walk: usize) -> Crossing {
    match base_top(task, index, walk) {
        Some(root) => Crossing::Inside { root, walked },
        None => Crossing::Outside,
    }
}

/// The mount whose path is the longest prefix of `path`, of those that are at theirs.
fn longest(task: &Task<'_>, path: &[u8]) -> Option<(usize, usize)> {
    let mut best = None;
    // Relaxed: immutable while the run lives.
    let count = task.run.mount_count.load(Ordering::Relaxed) as usize;
    for (mount, at) in task.run.mounts.iter().take(count).enumerate() {
        let at = at.get();
        let is_longer = within(path, at).is_some() && best.is_none_or(|(_, length)| length < at.len());
        if is_longer && is_in_place(task, base(task, mount).mount) {
            best = Some((mount, at.len()));
        }
    }
    best
}

/// Whether a path has no `.`, `..` or empty component, so that [`enter_crooked`] is unnecessary.
fn is_plain(path: &[u8]) -> bool {
    let mut after_slash = false;
    for (index, byte) in path.iter().enumerate() {
        if after_slash && matches!(byte, b'/' | b'.') {
            let rest = &path[index..];
            let special = [&b"/"[..], b"./", b"../"].iter().any(|start| rest.starts_with(start));
            if special || matches!(rest, b"." | b"..") {
                return false;
            }
        }
        after_slash = *byte == b'/';
    }
    true
}

/// Interprets the path as text until it reaches a mount. `..` is interpreted only in directories above a
/// mount: any other name may be missing, or a symbolic link.
#[cold]
fn enter_crooked(task: &Task<'_>, path: &[u8], walk: usize) -> Crossing {
    // SAFETY: the buffer belongs to the task, and any path left in it has been used.
    let normal = unsafe { &mut *task.scratch.outside.get() };
    let mut length = 0;
    let mut walked = 0;
    while walked < path.len() {
        let start = walked + path[walked..].iter().take_while(|byte| **byte == b'/').count();
        let name = path[start..].split(|byte| *byte == b'/').next().unwrap_or_default();
        walked = start + name.len();
        match name {
            b"" | b"." => continue,
            b".." if !is_above_mount(task, &normal[..length]) => return Crossing::Outside,
            b".." => length = normal[..length].iter().rposition(|byte| *byte == b'/').unwrap_or(0),
            name if length + 1 + name.len() < normal.len() => {
                normal[length] = b'/';
                normal[length + 1..length + 1 + name.len()].copy_from_slice(name);
                length += 1 + name.len();
            }
            _ => return Crossing::Outside,
        }
        if let Some((mount, all)) = longest(task, &normal[..length])
            && all == length
        {
            return crossing(task, mount, walked, walk);
        }
    }
    Crossing::Outside
}

/// Whether a host directory is the root directory or one on the way to a mount of the command line.
fn is_above_mount(task: &Task<'_>, directory: &[u8]) -> bool {
    // Relaxed: immutable while the run lives.
    let count = task.run.mount_count.load(Ordering::Relaxed) as usize;
    task.run.mounts.iter().take(count).any(|at| within(at.get(), directory).is_some())
}

/// The root of a mount of the command line, or of what is mounted on it; `None` if it is no longer at its
/// path.
#[inline]
pub(crate) fn base_top(task: &Task<'_>, index: usize, walk: usize) -> Option<Spot> {
    let base = base(task, index);
    if !is_in_place(task, base.mount) {
        return None;
    }
    Some(if is_covered(task, base.inode.id) { cover(task, base, DirentId::NONE, walk) } else { base })
}

/// The directory from which a door's paths from mount `index` of the command line start, whatever the
/// process's root directory is: a number that no descriptor has.
pub fn from_mount(index: usize) -> Fd {
    Fd::new(FROM_MOUNT - index as i32)
}

/// [`from_mount`] of the first mount.
const FROM_MOUNT: i32 = -1_000_000;

/// What [`from_mount`] stands for, or what is mounted there.
#[cold]
pub(crate) fn base_of_run(task: &Task<'_>, dirfd: Fd) -> Option<Spot> {
    let index = usize::try_from(FROM_MOUNT.checked_sub(dirfd.raw())?).ok()?;
    // Relaxed: immutable while the run lives.
    if index >= task.run.mount_count.load(Ordering::Relaxed) as usize {
        return None;
    }
    base_top(task, index, ASIDE)
}

/// The inode number that stat shows at the path of a mount of the command line; `None` if that is no longer
/// there.
pub fn listed(task: &Task<'_>, index: usize) -> Option<u64> {
    base_top(task, index, ASIDE).map(|root| root.inode.id.0.into())
}

/// Whether a mount of the command line is at the path of that: it has been neither moved nor unmounted. Its
/// record is not used for another while its run lives.
#[inline]
fn is_in_place(task: &Task<'_>, base: MountId) -> bool {
    let state = task.region.mount(base).state();
    state.kind() == mount_state::ATTACHED && state.at().is_none()
}

/// The root of a mount of the command line itself.
#[inline]
pub(crate) fn base(task: &Task<'_>, index: usize) -> Spot {
    // PAIRS: the release store in `boot::mount_base`.
    let mount = MountId(task.run.bases[index & 15].load(Ordering::Acquire));
    Spot { inode: task.region.mount(mount).root(), mount }
}

/// Whether something may be mounted on an inode.
#[inline(always)]
pub(crate) fn is_covered(task: &Task<'_>, id: InodeId) -> bool {
    // Relaxed: a hint; the records decide.
    task.region.inode(id).acl.load(Ordering::Relaxed) & COVERED != 0
}

/// The mount records that may be in use.
pub(crate) fn all(task: &Task<'_>) -> impl Iterator<Item = MountId> + use<> {
    task.region.mounts()
}

/// The mounts in the tree of a run.
pub(crate) fn of_run<'r>(task: &Task<'r>, run: u32) -> impl Iterator<Item = MountId> + use<'r> {
    let region = task.region;
    all(task).filter(move |id| {
        let record = region.mount(*id);
        record.state().kind() == mount_state::ATTACHED && record.run.load(Ordering::Relaxed) == run
    })
}

/// What stands at a spot: the root of the uppermost mount there, or the spot itself. `dirent` is the entry
/// that led there, which tells names of one file apart. What is found is kept for `walk`, one of
/// [`lp_region::lane::Lane::walked`].
#[cold]
pub(crate) fn cover(task: &Task<'_>, spot: Spot, dirent: DirentId, walk: usize) -> Spot {
    let tree = &task.region.header().tree;
    let (mut here, mut dirent) = (spot, dirent);
    for _ in 0..TRIES {
        let (before, turn) = (tree.read(), mount_change::settle(&task.region));
        let found = over(task, here, dirent);
        let is_kept =
            found.is_none_or(|(root, state)| walked::keep(task, walk, root.mount, root.mount, state));
        if tree.has_changed(before) || !is_kept || !mount_change::stands(&task.region, turn) {
            continue;
        }
        match found {
            Some((root, _)) => {
                here = root;
                dirent = DirentId::NONE;
            }
            None => return here,
        }
    }
    here
}

/// The root of the mount whose point is this, and the mount's state; the first of several, which is above the
/// others.
fn over(task: &Task<'_>, spot: Spot, dirent: DirentId) -> Option<(Spot, State)> {
    let here = all(task).filter_map(|mount| {
        let (record, state) = (task.region.mount(mount), task.region.mount(mount).state());
        let is_on = is_at(task, (mount, state), spot.inode, dirent)
            && task.region.standing(mount, state).parent == spot.mount
            && is_in_a_tree(task, mount, state);
        // Relaxed: immutable while in use.
        is_on.then(|| (record.serial.load(Ordering::Relaxed), Spot { inode: record.root(), mount }, state))
    });
    here.min_by_key(|(serial, ..)| *serial).map(|(_, root, state)| (root, state))
}

/// Whether a mount in this state has its place on an inode, reached by `dirent` if it is no directory.
pub(crate) fn is_at(
    task: &Task<'_>,
    (mount, state): (MountId, State),
    inode: InodeRef,
    dirent: DirentId,
) -> bool {
    let at = task.region.standing(mount, state);
    at.point == inode && (at.dirent == dirent || task.region.inode(inode.id).is_dir())
}

/// Whether a mount in this state is part of a run's tree, or of one of its own.
pub(crate) fn is_in_a_tree(task: &Task<'_>, mount: MountId, state: State) -> bool {
    state.kind() == mount_state::ATTACHED || top_adrift(task, mount).is_some()
}

/// The top of the tree of its own that a mount belongs to, to which no path leads (open_tree(2)); `None` if
/// it belongs to a run's tree or to none. Such a top stands in itself.
pub(crate) fn top_adrift(task: &Task<'_>, mount: MountId) -> Option<MountId> {
    let mut at = mount;
    for _ in 0..MOUNTS {
        let state = task.region.mount(at).state();
        let parent = task.region.standing(at, state).parent;
        if state.kind() != mount_state::DETACHED || parent.is_none() {
            return None;
        }
        if parent == at {
            return Some(at);
        }
        at = parent;
    }
    None
}

/// Whether something is mounted, in a live run or by the host, on an inode, reached by `dirent` if it is not
/// a directory. The caller must hold the inode's lock, so that nothing new is mounted there.
pub(crate) fn is_point(task: &Task<'_>, inode: InodeRef, dirent: DirentId) -> bool {
    is_covered(task, inode.id) && is_point_slow(task, inode, dirent)
}

#[cold]
fn is_point_slow(task: &Task<'_>, inode: InodeRef, dirent: DirentId) -> bool {
    if below::is_hosts(task.region.inode(inode.id)) {
        return true;
    }
    let own = RunId(task.process.run.load(Ordering::Relaxed)); // Relaxed: immutable.
    all(task).any(|id| {
        let (record, state) = (task.region.mount(id), task.region.mount(id).state());
        let run = RunId(record.run.load(Ordering::Relaxed));
        state.kind() == mount_state::ATTACHED
            && is_at(task, (id, state), inode, dirent)
            && (run == own || task.region.run_is_held(run))
    })
}

/// What is above the root of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AboveRoot {
    /// The host directory that contains the mount.
    Host,
    /// Nothing: it was removed from the tree, or is the top of one that no path leads to.
    Nothing,
    /// What it covers, and the entry that names that.
    Point(Spot, DirentId),
}

/// What is above the root of a mount; kept as by [`cover`].
pub(crate) fn above(task: &Task<'_>, mount: MountId, walk: usize) -> AboveRoot {
    let (record, tree) = (task.region.mount(mount), &task.region.header().tree);
    let mut seen = AboveRoot::Nothing;
    for _ in 0..TRIES {
        let (before, turn) = (tree.read(), mount_change::settle(&task.region));
        let state = record.state();
        let at = task.region.standing(mount, state);
        seen = match state.kind() {
            mount_state::ATTACHED if at.parent.is_none() => AboveRoot::Host,
            _ if at.parent != mount && is_in_a_tree(task, mount, state) => {
                AboveRoot::Point(Spot { inode: at.point, mount: at.parent }, at.dirent)
            }
            _ => AboveRoot::Nothing,
        };
        let is_kept = at.parent.is_none() || walked::keep(task, walk, at.parent, mount, state);
        if is_kept && !tree.has_changed(before) && mount_change::stands(&task.region, turn) {
            break;
        }
    }
    seen
}

/// The inode that is root number `root`; none if there is no such file system.
pub(crate) fn superblock_root(task: &Task<'_>, root: u32) -> InodeId {
    let header = task.region.header();
    match header.roots.get(root as usize) {
        Some(place) => InodeId(place.load(Ordering::Acquire)),
        None => InodeRef::from_word(task.region.superblock(root).root.load(Ordering::Acquire)).id,
    }
}

/// Whether this is the root of its file system.
pub(crate) fn is_root(task: &Task<'_>, inode: InodeRef) -> bool {
    let root = task.region.inode(inode.id).root.load(Ordering::Relaxed); // Relaxed: immutable.
    superblock_root(task, root) == inode.id
}

/// Whether this is a removed directory.
pub(crate) fn is_gone(task: &Task<'_>, dir: InodeRef) -> bool {
    task.region.inode(dir.id).is_dead()
}

/// The number of changes of the mounts, with their states. Two paths that were walked one after the other lead
/// into the same tree of mounts if it has not changed meanwhile.
#[inline(always)]
pub(crate) fn turn(task: &Task<'_>) -> u64 {
    task.region.header().mount_turn.load(Ordering::Acquire) // PAIRS: the exchanges of `mount_change`.
}

/// The path of a mount of the command line, without a trailing slash: empty for the root directory.
pub fn path<'t>(task: &'t Task<'_>, mount: MountId) -> &'t [u8] {
    // Relaxed: immutable while the run lives.
    let index = task.run.bases.iter().position(|base| base.load(Ordering::Relaxed) == mount.0);
    index.and_then(|index| task.run.mounts.get(index)).map_or(b"", |path| path.get())
}

/// Whether a mount of the command line is the root directory. It is the only one then.
pub(crate) fn are_whole(task: &Task<'_>) -> bool {
    task.run.mounts[0].get().is_empty()
}

/// The path of the directory that contains a mount of the command line, without a trailing slash.
pub(crate) fn host_above<'t>(task: &'t Task<'_>, mount: MountId) -> &'t [u8] {
    let path = path(task, mount);
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

/// Mount ids that programs see start above this, where the host's do not reach.
const SHOWN: u32 = 1_000_000_000;

/// A mount's id as programs see it: in statx(2) and /proc.
pub fn shown_id(mount: MountId) -> u32 {
    SHOWN + mount.0
}

/// Ids of 64 bits start above this, where the host's do not reach.
pub(crate) const UNIQUE: u64 = 1 << 40;

/// A mount's id of 64 bits, which no other mount of the region ever has.
pub fn unique_id(task: &Task<'_>, mount: MountId) -> u64 {
    // Relaxed: immutable while in use.
    UNIQUE + u64::from(task.region.mount(mount).serial.load(Ordering::Relaxed))
}

/// A peer group as programs see it in /proc, apart from the host's.
pub(crate) fn shown_group(group: u8) -> u32 {
    SHOWN + u32::from(group)
}

/// Whether a mount has one of [`lp_region::mount::mount_flags`].
pub fn has(task: &Task<'_>, mount: MountId, flags: u32) -> bool {
    task.region.mount(mount).flags.load(Ordering::Relaxed) & flags != 0 // Relaxed: one word, as seen.
}

//! mount_setattr(2): attributes of a mount, or of all mounts below it too.

use lp_abi::linux::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserPtr, UserSlice};
use lp_region::MountId;
use lp_region::mount::mount_flags;
use lp_region::mount_change::Set;
use lp_region::sync::Ordering;
use lp_region::{extensible, ucopy};

use crate::caller::namespaces;
use crate::caller::task::{Place, Task};
use crate::calls::mount_at::{in_one_shape, is_mount, may_mount, propagation};
use crate::calls::mount_show::ATTRIBUTES;
use crate::calls::remount::{self, RemountTarget};
use crate::calls::target;
use crate::inodes::strict;
use crate::life::mount_list::List;
use crate::life::mount_owner;
use crate::life::mount_peers::{Peers, Propagation};
use crate::life::mount_tree::{self, Draft, Tree};
use crate::names::walk::{Found, PathBuffer};

/// `AT_RECURSIVE`.
const RECURSIVE: u32 = 0x8000;
/// `AT_NO_AUTOMOUNT`.
const NO_AUTOMOUNT: u32 = 0x800;
/// `MOUNT_ATTR__ATIME`, and its values.
const ATIME: u64 = 0x70;
const ATIME_NOATIME: u64 = 0x10;
const ATIME_STRICT: u64 = 0x20;
/// `MOUNT_ATTR_IDMAP`.
const IDMAP: u64 = 0x10_0000;
/// `struct mount_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Changes attributes of the mount that a path names.
///
/// # Errors
/// Those of path_resolution(7) and mount_setattr(2); `EINVAL` for `MOUNT_ATTR_IDMAP`.
pub fn mount_setattr(
    task: &Task<'_>,
    at: (Fd, UserPtr),
    flags: u32,
    attributes: UserSlice,
) -> Result<Place<()>> {
    if flags & !(AT_EMPTY_PATH | RECURSIVE | AT_SYMLINK_NOFOLLOW | NO_AUTOMOUNT) != 0 {
        return Err(Errno::EINVAL);
    }
    in_one_shape(task, || {
        let found = match target::found(task, at, flags, PathBuffer::Path) {
            Ok(Place::Outside(outside)) => return Ok(Place::Outside(outside)),
            _ if at.1.is_null() => Err(Errno::EFAULT),
            found => found,
        };
        // As there, the path comes last.
        let Some(attributes) = read(task, attributes)? else { return Ok(Place::Inside(())) };
        let changes = attributes.flags(task)?;
        let Place::Inside(found) = found? else { return Err(Errno::ESTALE) };
        apply(task, &found, flags & RECURSIVE != 0, &attributes, changes).map(Place::Inside)
    })
}

/// The program's attributes; `None` if they change nothing.
fn read(task: &Task<'_>, from: UserSlice) -> Result<Option<Attributes>> {
    if from.len() > PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    if from.len() < size_of::<Attributes>() {
        return Err(Errno::EINVAL);
    }
    may_mount(task)?;
    extensible::all_zero(from.skip(size_of::<Attributes>()))?;
    // SAFETY: the copy routine handles bad pointers; every bit pattern is valid.
    let read = unsafe { ucopy::get(from.start().cast::<Attributes>().as_ptr()) }?;
    Ok((read.set | read.clear | read.propagation != 0).then_some(read))
}

impl Attributes {
    /// Flags of the mount to clear and to set (the kernel's build_mount_kattr).
    fn flags(&self, task: &Task<'_>) -> Result<(u32, u32)> {
        let known = ATTRIBUTES.iter().fold(ATIME, |all, (bit, _)| all | u64::from(*bit));
        if (self.set & !IDMAP | self.clear) & !known != 0 {
            return Err(Errno::EINVAL);
        }
        if self.propagation != 0 && self.propagation().is_none() {
            return Err(Errno::EINVAL);
        }
        let own = |bits: u64| {
            let given = ATTRIBUTES.iter().filter(|(bit, _)| bits & u64::from(*bit) != 0);
            given.fold(0, |all, (_, own)| all | own)
        };
        let (mut clear, mut set) = (own(self.clear), own(self.set));
        match (self.clear & ATIME, self.set & ATIME) {
            (0, 0) => {}
            (ATIME, how) => {
                clear |= mount_flags::RELATIME | mount_flags::NOATIME;
                set |= match how {
                    0 => mount_flags::RELATIME,
                    ATIME_NOATIME => mount_flags::NOATIME,
                    ATIME_STRICT => 0,
                    _ => return Err(Errno::EINVAL),
                };
            }
            _ => return Err(Errno::EINVAL),
        }
        if self.set & IDMAP != 0 {
            return Err(self.no_map(task));
        }
        Ok((clear, set))
    }

    fn propagation(&self) -> Option<Propagation> {
        u32::try_from(self.propagation).ok().and_then(propagation)
    }

    /// Why there is no mount with ids mapped by a user namespace: the caller's descriptor of it (the kernel's
    /// build_mount_idmapped), or that mounts cannot have them.
    fn no_map(&self, task: &Task<'_>) -> Errno {
        let Ok(fd) = i32::try_from(self.user_namespace).map(Fd::new) else { return Errno::EINVAL };
        match namespaces::user_at(fd) {
            Ok(namespaces::FIRST_USER) => Errno::EPERM,
            Err(Errno::EBADF) if task.fget(fd).is_err() => Errno::EBADF,
            _ => Errno::EINVAL,
        }
    }
}

fn apply(
    task: &Task<'_>,
    at: &Found,
    recursive: bool,
    attributes: &Attributes,
    changes: (u32, u32),
) -> Result<()> {
    let tree = Tree::look(task);
    if !is_mount(task, at) || !tree.holds(at.mount) && !tree.is_adrift(at.mount) {
        return Err(Errno::EINVAL);
    }
    set(task, &tree.branch(at.mount, |_| recursive), changes)?;
    let Some(to) = attributes.propagation() else { return Ok(()) };
    mount_tree::change(task, |tree| {
        let mut peers = Peers::of(task);
        for id in tree.branch(at.mount, |_| recursive).iter() {
            peers.change(id, to)?;
        }
        let mut draft = Draft::nothing();
        draft.regroup(task, &peers);
        Ok(draft)
    })
}

/// Clears and sets flags of mounts, all at once in each; read-only only if nobody writes through any of them.
///
/// # Errors
/// `EPERM` if the flags of one are another user namespace's; `EBUSY`.
pub(crate) fn set(task: &Task<'_>, list: &List, changes: (u32, u32)) -> Result<()> {
    list.iter().try_for_each(|id| mount_owner::may_set(task, id, changes))?;
    // Relaxed, both: one word, as seen.
    let is_strict = |id| strict::is_one(task.region.mount(id).flags.load(Ordering::Relaxed));
    let mut lax = Set::default();
    list.iter().filter(|id| !is_strict(*id)).for_each(|id| lax.add(id));
    let done = set_allowed(task, list, changes);
    lax.iter().filter(|id| is_strict(*id)).for_each(|id| strict::begin(task, id));
    done
}

/// [`set`], as far as the owners of the mounts do not forbid it meanwhile.
fn set_allowed(task: &Task<'_>, list: &List, (clear, set): (u32, u32)) -> Result<()> {
    let becomes = |id: MountId, was: u32| {
        let is = was & !clear | set;
        mount_owner::may_become(task, id, was, is).then_some(is)
    };
    let word = |id| &task.region.mount(id).flags;
    let mut shutting = Set::default();
    if set & mount_flags::READ_ONLY != 0 {
        // Relaxed: one word, as seen.
        let is_open = |id: &MountId| word(*id).load(Ordering::Relaxed) & mount_flags::READ_ONLY == 0;
        list.iter().filter(is_open).for_each(|id| shutting.add(id));
    }
    if shutting != Set::default() {
        remount::shut(task, RemountTarget::Mounts(shutting), becomes)?;
    }
    let kept = match (clear & !set) & mount_flags::READ_ONLY {
        0 => !0,
        // A remount to read-only that is on its way begins anew.
        _ => !mount_flags::SHUTTING,
    };
    for id in list.iter().filter(|id| !shutting.has(*id)) {
        let exchange = |was| becomes(id, was).map(|is| is & kept);
        // Release: a writer that comes in sees what the remount did before.
        let exchanged = word(id).fetch_update(Ordering::Release, Ordering::Relaxed, exchange);
        exchanged.or(Err(Errno::EPERM))?;
    }
    Ok(())
}

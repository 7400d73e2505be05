//! Looking up directories in a task's cache of prefixes, and recording them there.

use lp_region::mount::{State, mount_state};
use lp_region::sync::Ordering;
use lp_region::{InodeRef, MountId, Spot};

use crate::caller::prefix_cache::{INNER, Prefix, TEXT};
use crate::caller::task::Task;
use crate::caller::walked;

/// The directory that a prefix leads to, if it is cached. The caller must check its generation after using
/// it, as after any step of a walk.
#[inline(always)]
pub(crate) fn find(task: &Task<'_>, prefix: Prefix) -> Option<Spot> {
    let found = find_quick(task, prefix)?;
    // PAIRS: the release store in `slot::give`.
    let generation = task.region.inode(found.inode.id).generation.load(Ordering::Acquire);
    (generation == found.inode.generation).then_some(found)
}

/// [`find`] for a caller that falls back to a walk if its own check finds another generation. The directory
/// may be one that was freed.
#[inline(always)]
pub(crate) fn find_quick(task: &Task<'_>, prefix: Prefix) -> Option<Spot> {
    let entry = prefix.place(&task.prefixes);
    // An entry's count is even, so an equal count is too.
    let known = entry.length.get() as usize == prefix.length
        && entry.base.get() == prefix.base
        && task.region.header().tree.stands_at(entry.tree.get());
    if !known || !prefix.is_text_of(entry) {
        return None;
    }
    let dir = InodeRef::from_word(entry.dir.get());
    // The mark is set before another directory can get the name. If the slot was used again, it is another
    // directory's, and the generation tells.
    let lives = !task.region.inode(dir.id).is_dead();
    lives.then(|| Spot { inode: dir, mount: MountId(u32::from(entry.mount.get())) })
}

/// [`find`] for a directory in a mount that stands in another, which is kept for `walk`.
#[cold]
pub(crate) fn find_inner(task: &Task<'_>, prefix: Prefix, walk: usize) -> Option<Spot> {
    let entry = prefix.place(&task.prefixes);
    let length = entry.length.get();
    let mount = MountId(u32::from(entry.mount.get()));
    if length & INNER == 0 || !walked::keep(task, walk, mount, mount, State(entry.state.get())) {
        return None;
    }
    entry.length.set(length & !INNER);
    let found = find(task, prefix);
    entry.length.set(length);
    found
}

/// Records where a prefix led. `tree` is the count that [`crate::names::walk`] read before its first step.
#[cold]
pub(crate) fn note(task: &Task<'_>, prefix: Prefix, dir: Spot, tree: u32) {
    if prefix.length > TEXT || task.region.header().tree.retry(tree) {
        return;
    }
    let state = task.region.mount(dir.mount).state();
    let is_inner = task.region.standing(dir.mount, state).parent.is_some();
    // Absolute paths of a process with a root directory of its own lead elsewhere than those of others, whose
    // task this may become.
    let is_rooted = prefix.base == 0 && task.directories.get().root.load(Ordering::Acquire) != 0;
    if state.kind() != mount_state::ATTACHED || is_rooted {
        return;
    }
    let entry = prefix.place(&task.prefixes);
    entry.state.set(state.0);
    entry.base.set(prefix.base);
    entry.dir.set(dir.inode.to_word());
    entry.mount.set(dir.mount.0 as u16);
    entry.tree.set(tree);
    entry.length.set(prefix.length as u16 | if is_inner { INNER } else { 0 });
    // SAFETY: the text is readable and fits; the cache belongs to the task, which makes one call at a time.
    unsafe { entry.text.get().cast::<u8>().copy_from_nonoverlapping(prefix.text, prefix.length) };
}

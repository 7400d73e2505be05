//! A file system of the kernel's that fsmount(2) has made, made again to be mounted in one of ours.
//!
//! Where it goes is known only once move_mount(2) names it. Until then the kernel's is a tmpfs without files;
//! from then on it is a tree of its own, as of open_tree(2), that the open file holds.

use lp_abi::Result;
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef};

use crate::caller::id_map::{self, IdKind};
use crate::caller::task::Task;
use crate::calls::mount_at::may_mount;
use crate::calls::{mount, open_tree};
use crate::life::fs_options::{FsKind, Options};
use crate::life::mount_list::List;
use crate::life::mount_peers::Peers;
use crate::life::{mount_end, mount_tree, open_file};

/// What the kernel's file system and its mount are.
#[derive(Clone, Copy)]
pub struct Made<'m> {
    /// Its options.
    pub options: &'m [u8],
    /// Its source.
    pub source: &'m [u8],
    /// Permissions of its root.
    pub mode: u32,
    /// Owner and group of its root.
    pub owner: (u32, u32),
    /// `MS_*` of the mount.
    pub flags: u32,
}

/// Makes a file system like the kernel's, and opens its root as with `O_PATH`. The door installs the file.
///
/// # Errors
/// `EPERM`, `ENOSPC`, `ENFILE`.
pub fn make(task: &Task<'_>, like: &Made<'_>) -> Result<FileId> {
    may_mount(task)?;
    let owner = |kind, shown| id_map::to_run(task.process, kind, shown);
    let given = Options::parse(task, FsKind::Tmpfs, like.options)?;
    let options = Options {
        mode: Some(like.mode),
        uid: owner(IdKind::User, like.owner.0),
        gid: owner(IdKind::Group, like.owner.1),
        // The mount's own flags are not the file system's.
        mask: u32::MAX,
        ..given
    };
    mount_end::collect(task);
    let mut made = None;
    let mut opened: Option<FileId> = None;
    let done = mount_tree::change(task, |tree| {
        opened.take().into_iter().for_each(|file| open_file::discard(task, file));
        let id = mount::make_fs(task, tree, &mut made, (&options, like.flags, like.source))?;
        let record = task.region.mount(id);
        let root = InodeRef::from_word(record.root.load(Ordering::Relaxed)); // Relaxed: the caller's own.
        opened = Some(open_tree::open_top(task, id, root)?);
        let mut list = List::default();
        list.push(id);
        Ok(tree.set_adrift(&Peers::of(task), &list))
    });
    let held = open_tree::held(task, done, opened);
    if let Some(new) = made.filter(|_| held.is_ok()) {
        new.keep();
    }
    held
}

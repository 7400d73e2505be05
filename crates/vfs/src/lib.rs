//! The file system: the semantics of Linux's VFS and tmpfs on the records of `lp-region`.
//!
//! Every function takes the calling [`Task`] and returns what the system call of the same name returns.
//!
//! ```
//! use lp_abi::{Errno, Fd, UserPtr};
//! use lp_region::{Geometry, Region};
//! use lp_vfs::{Place, Task, boot, clock, mkdir};
//!
//! let geometry = Geometry { data_bytes: 1 << 20, inodes: 100, identity: 7 };
//! let region = Region::create_private(&geometry).expect("memory");
//! let setup = boot::RunSetup { mounts: &[b"/light"], ..boot::RunSetup::default() };
//! let run = boot::claim_run(region, &setup)?;
//! let process = boot::claim_process(region, run)?;
//! let lane = boot::attach(region, process, 1)?;
//! let task = Task::new(region, process, lane, clock::now);
//! boot::arrive(&task);
//! boot::mkfs(&task, 0)?;
//!
//! // SAFETY: a constant, which the call only reads.
//! let path = unsafe { UserPtr::new(c"/light/src".as_ptr().cast()) };
//! assert_eq!(mkdir::mkdirat(&task, Fd::CWD, path, 0o755), Ok(Place::Inside(())));
//! assert_eq!(mkdir::mkdirat(&task, Fd::CWD, path, 0o755), Err(Errno::EEXIST));
//! # Ok::<(), Errno>(())
//! ```
//!
//! A folder holds one subject; its `mod.rs` names it and the order in which its locks are taken. Folders use
//! only those after them in this list, which `scripts/rooms` checks: `below`, `calls`, `life`, `watches`,
//! `locks`, `names`, `descriptors` and `rights`, `inodes`, `content` and `lane`, `caller`. What other crates
//! use is re-exported below, under the names that they use.
//!
//! Lock order, outermost first: an open file's position; a directory, then what it contains; other inodes,
//! the lower index first; the locks on a file, or the process's table. A rename locks up to four inodes, but
//! waits for no lock while it holds another. `docs/locking.md` lists all locks and what happens when a holder
//! dies.
#![no_std]
#![warn(unreachable_pub)]

pub mod below;
mod caller;
mod calls;
mod content;
mod descriptors;
mod inodes;
mod lane;
mod life;
mod locks;
mod names;
mod rights;
mod watches;

pub use caller::task::{Outside, Place, Task, Time};
pub use caller::{clock, directories, id_map, identity, task};
pub use calls::{
    access, cachestat, chdir, chmod, chown, close, copy, dup, ends, exec, fallocate, fcntl, file_attr,
    fsmount, fspick, fsync, getcwd, getdents, handle, ioctl, landlock, link, lseek, mkdir, mknod, mount,
    mount_setattr, mount_show, move_mount, open, open_tree, readlink, rename, stat, statfs, symlink, target,
    truncate, umount, unlink, utimens, write,
};
pub use content::{bulk, chunk, linking, map, owner, page, run, version};
pub use descriptors::{busy, flight, opened};
pub use inodes::{blob, membership, reflink};
pub use lane::{freeze, intent, pin};
pub use life::{
    bare_mapping, boot, executed, fork, grace, limit, load, mapping, mount_tree, namespace, parted, reap,
    reclaim, sharing,
};
pub use locks::{file_lock, flock, lock, lock_tree, record_lock, signal_target};
pub use names::{dir, dirent, hash, link_target, name, root, walk};
pub use rights::permission;

pub mod file {
    pub use crate::descriptors::file::is_shared;
    pub use crate::life::open_file::{Opening, create, discard};
}

pub mod inode {
    pub use crate::caller::task::device;
    pub use crate::inodes::inode::{
        Attributes, attributes, enter, has_possible_number, lock, lock_unless_held, number, own_number,
    };
    pub use crate::inodes::make::create_root;
    pub use crate::rights::initial::create;
}

pub mod mounts {
    pub use crate::caller::mount_prefix::MountPrefix as Prefix;
    pub use crate::names::mounts::{from_mount, has, listed, path, shown_id, unique_id};
}

pub mod read {
    pub use crate::calls::read::{
        note, pread, pread_quick, pread_quick_beside, preadv2, read, read_quick, read_quick_beside, readv,
    };
    pub use crate::content::snapshot::into;
}

pub mod table {
    pub use crate::descriptors::table::{FdTable, change, closing, entry, reach, replace, restore};
    pub use crate::descriptors::table_lock::{Alone, Beside};
    pub use crate::life::open_file::{install, let_go, take_out, take_out_beside};
}

pub mod watch {
    pub use crate::caller::event::{Event, LeaseBreak, Move, NameAt, NameOrigin, ShadowKind, Sides, Touched};
    pub use crate::inodes::watched::{has_shadow, is_watched, kind, place, touched_slow};
    pub use crate::watches::watch::{each_entry, forget, look_at_closes, mark_locked, mark_way, path};
}

pub mod writer {
    pub use crate::calls::remount::{RemountTarget, open, shut};
    pub use crate::lane::writer::begin;
}

pub mod xattr {
    pub use crate::calls::xattr::{
        fgetxattr, flistxattr, fremovexattr, fsetxattr, getxattr, getxattr_of, listxattr, listxattr_of,
        removexattr, setxattr,
    };
    pub use crate::inodes::xattrs::XattrValue;
}

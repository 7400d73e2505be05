//! What /proc and other calls show of mounts.

use lp_abi::linux::{
    MOUNT_ATTR_NOATIME, MOUNT_ATTR_NODEV, MOUNT_ATTR_NODIRATIME, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_NOSYMFOLLOW, MOUNT_ATTR_RDONLY, MOUNT_ATTR_RELATIME, MOUNT_ATTR_STRICTATIME, MS_DIRSYNC,
    MS_LAZYTIME, MS_MANDLOCK, MS_PRIVATE, MS_SHARED, MS_SLAVE, MS_SYNCHRONOUS, MS_UNBINDABLE,
};
use lp_abi::text::Writer;
use lp_abi::{Errno, PAGE_SIZE, Result};

use lp_region::layout::MOUNTS;
use lp_region::mount::{Groups, SOURCE, mount_flags};
use lp_region::process::caps;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{MountId, Spot};

use crate::caller::task::Task;
use crate::calls::{getcwd, stat, statfs};
use crate::life::fs_options::{FsKind, HUGE, Options};
use crate::life::{mount_prune, superblock};
use crate::names::{mounts, root};
use crate::rights::credentials;

/// A mount as shown.
pub struct Shown {
    /// The mount's id.
    pub id: MountId,
    /// Its parent; `None` for one of the command line.
    pub parent: Option<MountId>,
    /// Major and minor of `st_dev`.
    pub device: (u32, u32),
    /// Whether this mount is read-only.
    pub is_read_only: bool,
    /// Whether the file system is read-only.
    pub is_superblock_read_only: bool,
    /// Of `MS_SYNCHRONOUS`, `MS_DIRSYNC`, `MS_MANDLOCK`, `MS_LAZYTIME`, what the file system was mounted
    /// with.
    pub superblock_flags: u32,
    /// Whether it must not be bound elsewhere.
    pub is_unbindable: bool,
    /// Peer group; 0 for none.
    pub peers: u32,
    /// Peer group whose slave it is; 0 for none.
    pub master: u32,
    options: Options,
    flags: u32,
    source: [u8; SOURCE],
}

/// Options of a mount, in the order of the kernel's show_mnt_opts.
const OPTIONS: [(u32, &[u8]); 7] = [
    (mount_flags::NOSUID, b"nosuid"),
    (mount_flags::NODEV, b"nodev"),
    (mount_flags::NOEXEC, b"noexec"),
    (mount_flags::NOATIME, b"noatime"),
    (mount_flags::NODIRATIME, b"nodiratime"),
    (mount_flags::RELATIME, b"relatime"),
    (mount_flags::NOSYMFOLLOW, b"nosymfollow"),
];

impl Shown {
    /// Collects what is shown of a mount. Relaxed throughout: momentary values.
    pub fn new(task: &Task<'_>, id: MountId) -> Shown {
        let record = task.region.mount(id);
        let flags = record.flags.load(Relaxed);
        let root = record.superblock.load(Relaxed);
        let mut source = [0; SOURCE];
        for (to, from) in source.iter_mut().zip(&record.source) {
            *to = from.load(Relaxed);
        }
        let parent = mount_prune::shown_parent(task, id);
        let groups = record.groups();
        let is_unbindable = groups == Groups::UNBINDABLE;
        let shown = |group: u8| if is_unbindable || group == 0 { 0 } else { mounts::shown_group(group) };
        Shown {
            id,
            parent: parent.is_some().then_some(parent),
            device: stat::split_device(task.device(root)),
            is_read_only: flags & mount_flags::READ_ONLY != 0,
            is_superblock_read_only: superblock::is_read_only(task, root),
            superblock_flags: superblock::shown(task, root),
            is_unbindable,
            peers: shown(groups.peers),
            master: shown(groups.master),
            options: superblock::shown_options(task, root),
            flags,
            source,
        }
    }

    /// Its source, as given to mount(2).
    pub fn source(&self) -> &[u8] {
        let end = self.source.iter().position(|byte| *byte == 0).unwrap_or(SOURCE);
        &self.source[..end]
    }

    /// Its flags, as `MOUNT_ATTR_*`.
    pub fn attributes(&self) -> u32 {
        let has = |flag: u32| self.flags & flag != 0;
        let own = ATTRIBUTES.iter().filter(|(_, own)| has(*own)).fold(0, |all, (bit, _)| all | bit);
        own | match (has(mount_flags::NOATIME), has(mount_flags::RELATIME)) {
            (true, _) => MOUNT_ATTR_NOATIME,
            (false, true) => MOUNT_ATTR_RELATIME,
            (false, false) => MOUNT_ATTR_STRICTATIME,
        }
    }

    /// How mounts in it propagate, as `MS_SHARED`, `MS_SLAVE`, `MS_UNBINDABLE`, `MS_PRIVATE`.
    pub fn propagation(&self) -> u32 {
        let shared = if self.peers != 0 { MS_SHARED } else { 0 };
        let slave = if self.master != 0 { MS_SLAVE } else { 0 };
        match shared | slave {
            0 if self.is_unbindable => MS_UNBINDABLE,
            0 => MS_PRIVATE,
            both => both,
        }
    }

    /// The options of the whole file system, except `ro`, `rw` and those of tmpfs, in the order of the
    /// kernel's show_sb_opts.
    pub fn superblock_options(&self) -> impl Iterator<Item = &'static [u8]> {
        const NAMES: [(u32, &[u8]); 4] = [
            (MS_SYNCHRONOUS, b"sync"),
            (MS_DIRSYNC, b"dirsync"),
            (MS_MANDLOCK, b"mand"),
            (MS_LAZYTIME, b"lazytime"),
        ];
        NAMES.into_iter().filter(|(flag, _)| self.superblock_flags & flag != 0).map(|(_, name)| name)
    }

    /// The type of its file system.
    pub fn kind(&self) -> &'static [u8] {
        match self.options.kind {
            FsKind::Tmpfs => b"tmpfs",
            FsKind::Ramfs => b"ramfs",
        }
    }

    /// The number by which statfs(2) knows that.
    pub fn magic(&self) -> u64 {
        statfs::magic(self.options.kind) as u64
    }

    /// Appends the options of its tmpfs, each behind a comma, as the kernel's shmem_show_options does.
    pub fn push_fs_options(&self, to: &mut Writer<'_>) {
        let options = &self.options;
        let kilobytes = options.pages.map(|pages| pages.wrapping_mul(PAGE_SIZE as u64 / 1024));
        push_number(to, b",size=", kilobytes);
        to.push(if kilobytes.is_some() { b"k" } else { b"" });
        push_number(to, b",nr_inodes=", options.inodes);
        if let Some(mode) = options.mode {
            to.push(b",mode=");
            for shift in (0..4).rev() {
                let digit = (mode >> (3 * shift) & 7) as u8;
                if shift < 3 || digit != 0 {
                    to.push(&[b'0' + digit]);
                }
            }
        }
        push_number(to, b",uid=", options.uid.map(u64::from));
        push_number(to, b",gid=", options.gid.map(u64::from));
        to.push(if options.inode64 == Some(true) { b",inode64" } else { b"" });
        if let Some(name) = options.huge.and_then(|huge| HUGE.get(huge as usize)) {
            to.push(b",huge=");
            to.push(name);
        }
        if let Some(policy) = options.policy {
            to.push(b",mpol=");
            policy.show(to);
        }
        to.push(if options.noswap { b",noswap" } else { b"" });
    }

    /// Its options except `ro` and `rw`.
    pub fn own_options(&self) -> impl Iterator<Item = &'static [u8]> {
        OPTIONS.into_iter().filter(|(flag, _)| self.flags & flag != 0).map(|(_, name)| name)
    }
}

/// Appends a name and a number, if there is one.
fn push_number(to: &mut Writer<'_>, name: &[u8], number: Option<u64>) {
    if let Some(number) = number {
        to.push(name);
        to.push_decimal(number);
    }
}

/// `MOUNT_ATTR_*` with a bit of their own, and those of the mount.
pub(crate) const ATTRIBUTES: [(u32, u32); 6] = [
    (MOUNT_ATTR_RDONLY, mount_flags::READ_ONLY),
    (MOUNT_ATTR_NOSUID, mount_flags::NOSUID),
    (MOUNT_ATTR_NODEV, mount_flags::NODEV),
    (MOUNT_ATTR_NOEXEC, mount_flags::NOEXEC),
    (MOUNT_ATTR_NODIRATIME, mount_flags::NODIRATIME),
    (MOUNT_ATTR_NOSYMFOLLOW, mount_flags::NOSYMFOLLOW),
];

/// The first mount of a run that was created after number `after`.
pub fn next(task: &Task<'_>, run: u32, after: u32) -> Option<MountId> {
    // Relaxed: immutable while in use.
    let serial = |id: &MountId| task.region.mount(*id).serial.load(Relaxed);
    mounts::of_run(task, run).filter(|id| serial(id) > after).min_by_key(serial)
}

/// The last mount of a run that was created before number `before`.
pub fn previous(task: &Task<'_>, run: u32, before: u32) -> Option<MountId> {
    // Relaxed: immutable while in use.
    let serial = |id: &MountId| task.region.mount(*id).serial.load(Relaxed);
    mounts::of_run(task, run).filter(|id| serial(id) < before).max_by_key(serial)
}

/// The mount of the caller's run with this id of 64 bits.
pub fn by_unique_id(task: &Task<'_>, id: u64) -> Option<MountId> {
    let run = task.process.run.load(Relaxed); // Relaxed: immutable.
    mounts::of_run(task, run).find(|mount| mounts::unique_id(task, *mount) == id)
}

/// The number at which a mount with this id of 64 bits was created, if ids of the host's are those below all.
pub fn serial_of(id: u64) -> u32 {
    u32::try_from(id.saturating_sub(mounts::UNIQUE)).unwrap_or(u32::MAX)
}

/// Whether a mount stands in another, or in one that stands there.
pub fn is_below(task: &Task<'_>, mount: MountId, other: MountId) -> bool {
    above(task, mount).skip(1).any(|id| id == other)
}

/// Whether the caller's root directory is in a mount, from which only what stands there is reached (the
/// kernel's is_path_reachable): `mount`, or `None` for one of the host's.
///
/// # Errors
/// `EPERM` if it is not reached and the caller has no `CAP_SYS_ADMIN`.
pub fn may_ask(task: &Task<'_>, mount: Option<MountId>) -> Result<()> {
    let reached = mount.is_some_and(|mount| is_reached(task, mount)) || root::of(task).is_none();
    if reached || credentials::capable(task, caps::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Whether a mount stands at or below the caller's root directory.
pub fn is_reached(task: &Task<'_>, mount: MountId) -> bool {
    let top = Spot { inode: task.region.mount(mount).root(), mount };
    root::of(task).is_none() || getcwd::is_reached(task, top)
}

/// The mount of the command line that a mount stands in, or itself.
pub fn base_of(task: &Task<'_>, mount: MountId) -> MountId {
    above(task, mount).last().unwrap_or(mount)
}

/// A mount, the one that it stands in, and so on. Mounts that move meanwhile do not make it endless.
fn above(task: &Task<'_>, mount: MountId) -> impl Iterator<Item = MountId> {
    let parent = |id: &MountId| Some(mount_prune::shown_parent(task, *id)).filter(|id| id.is_some());
    core::iter::successors(Some(mount), parent).take(MOUNTS)
}

/// The path of a mount, in `scratch.outside`.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn point_path<'t>(task: &'t Task<'_>, id: MountId) -> Result<&'t [u8]> {
    let root = Spot { inode: task.region.mount(id).root(), mount: id };
    getcwd::of_directory(task, root, getcwd::Start::Root)
}

/// The part of its file system that a mount shows: a path from that file system's root, in `scratch.outside`.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn root_path<'t>(task: &'t Task<'_>, id: MountId) -> Result<&'t [u8]> {
    getcwd::within(task, task.region.mount(id).root())
}

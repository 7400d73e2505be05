//! statmount(2): what is known of a mount, by its id of 64 bits. An id that is none of the run's is the
//! kernel's.

use lp_abi::linux::*;
use lp_abi::text::Writer;
use lp_abi::{Errno, Result, UserPtr, UserSlice};
use lp_region::{MountId, ucopy};
use lp_vfs::mount_show::{self, Shown};
use lp_vfs::mounts;
use lp_vfs::task::Task;

use crate::high::frame::handler::{handlers, is_in_user_space, ret};
use crate::high::run::mount_ids::{FIXED, HostParent, Request};
use crate::low::dispatch::NOT_OURS;

/// What of the mask selects strings.
const STRINGS: u32 = STATMOUNT_FS_TYPE
    | STATMOUNT_MNT_ROOT
    | STATMOUNT_MNT_POINT
    | STATMOUNT_MNT_OPTS
    | STATMOUNT_OPT_ARRAY
    | STATMOUNT_OPT_SEC_ARRAY
    | STATMOUNT_FS_SUBTYPE
    | STATMOUNT_SB_SOURCE
    | STATMOUNT_MNT_UIDMAP
    | STATMOUNT_MNT_GIDMAP;
/// Bytes of a tmpfs's options: eight words and numbers, and a list of nodes.
const OPTIONS: usize = 384;

handlers! {
    /// statmount(2).
    fn statmount(task, request: UserPtr, to: UserSlice, flags: u32) {
        let Some(asked) = Request::read(request).filter(|_| flags == 0) else { return NOT_OURS };
        let Some(id) = mount_show::by_unique_id(task, asked.id()) else {
            // One of the host's, which a root directory in a mount hides.
            return match mount_show::may_ask(task, None) {
                Err(errno) if asked.is_a_mounts() => errno.to_ret(),
                _ => NOT_OURS,
            };
        };
        ret(write(task, id, &asked, to))
    }
}

/// Writes what is asked for of a mount.
fn write(task: &Task, id: MountId, asked: &Request, to: UserSlice) -> Result<()> {
    let of_root = asked.of_root(STATMOUNT_MNT_NS_ID | STATMOUNT_SUPPORTED_MASK)?;
    mount_show::may_ask(task, Some(id))?;
    if !is_in_user_space(to) {
        return Err(Errno::EFAULT);
    }
    let mut strings = Strings::new(to);
    // SAFETY: numbers, for which zero is a value.
    let mut answer = Answer { mask: asked.parameter() as u32, is: unsafe { core::mem::zeroed() } };
    if answer.mask & STRINGS != 0 {
        if to.len() == FIXED {
            return Err(Errno::EOVERFLOW);
        }
        // What is not set is empty.
        strings.end();
    }
    let shown = Shown::new(task, id);
    answer.numbers(task, &shown)?;
    answer.texts(task, &shown, &mut strings)?;
    answer.of_host(&of_root);
    // Unmounted meanwhile, it may be another by now.
    if mount_show::by_unique_id(task, asked.id()) != Some(id) {
        return Err(Errno::ENOENT);
    }
    let fixed = to.len().min(FIXED);
    answer.is.size = (fixed + strings.count) as u32;
    // SAFETY: the copy routine handles bad pointers.
    let written = unsafe { ucopy::copy(to.start().as_ptr(), (&raw const answer.is).cast(), fixed) };
    if strings.has_faulted { Err(Errno::EFAULT) } else { written }
}

/// An answer in the making.
struct Answer {
    /// What is asked for.
    mask: u32,
    is: statmount,
}

impl Answer {
    /// Whether this is asked for; the answer says that it is there.
    fn takes(&mut self, bit: u32) -> bool {
        self.is.mask |= u64::from(self.mask & bit);
        self.mask & bit != 0
    }

    fn numbers(&mut self, task: &Task, shown: &Shown) -> Result<()> {
        if self.takes(STATMOUNT_SB_BASIC) {
            (self.is.sb_dev_major, self.is.sb_dev_minor) = shown.device;
            self.is.sb_magic = shown.magic();
            let read_only = if shown.is_superblock_read_only { MS_RDONLY } else { 0 };
            // As there, without `MS_MANDLOCK`.
            let whole = MS_SYNCHRONOUS | MS_DIRSYNC | MS_LAZYTIME;
            self.is.sb_flags = read_only | shown.superblock_flags & whole;
        }
        if self.takes(STATMOUNT_MNT_BASIC) {
            let ids = |id| (mounts::unique_id(task, id), mounts::shown_id(id));
            (self.is.mnt_id, self.is.mnt_id_old) = ids(shown.id);
            (self.is.mnt_parent_id, self.is.mnt_parent_id_old) = match shown.parent {
                Some(parent) => ids(parent),
                None => HostParent::of(task, shown.id).map(|parent| (parent.unique, parent.shown))?,
            };
            self.is.mnt_attr = shown.attributes().into();
            self.is.mnt_propagation = shown.propagation().into();
            self.is.mnt_peer_group = shown.peers.into();
            self.is.mnt_master = shown.master.into();
        }
        if self.takes(STATMOUNT_PROPAGATE_FROM) {
            self.is.propagate_from = shown.master.into();
        }
        Ok(())
    }

    /// In the kernel's order.
    fn texts(&mut self, task: &Task, shown: &Shown, to: &mut Strings) -> Result<()> {
        self.is.fs_type = self.text(STATMOUNT_FS_TYPE, to, shown.kind())?;
        self.is.mnt_root = self.text(STATMOUNT_MNT_ROOT, to, mount_show::root_path(task, shown.id)?)?;
        self.is.mnt_point = self.text(STATMOUNT_MNT_POINT, to, mount_show::point_path(task, shown.id)?)?;
        let mut room = [0; OPTIONS];
        let mut options = Writer::new(&mut room);
        shown.push_fs_options(&mut options);
        let length = options.finish().ok_or(Errno::EOVERFLOW)?;
        let options = room.get_mut(1..length).unwrap_or_default();
        self.is.mnt_opts = self.text(STATMOUNT_MNT_OPTS, to, options)?;
        let mut count = 1;
        for comma in options.iter_mut().filter(|byte| **byte == b',') {
            *comma = 0;
            count += 1;
        }
        self.is.opt_array = self.text(STATMOUNT_OPT_ARRAY, to, options)?;
        self.is.opt_num = if self.is.opt_array != 0 { count } else { 0 };
        self.is.sb_source = self.text(STATMOUNT_SB_SOURCE, to, shown.source())?;
        Ok(())
    }

    /// Writes a string if it is asked for and is not empty, and returns where it is.
    fn text(&mut self, bit: u32, to: &mut Strings, text: &[u8]) -> Result<u32> {
        if self.mask & bit == 0 || text.is_empty() {
            return Ok(0);
        }
        let at = to.count;
        to.push(text)?;
        to.end();
        self.takes(bit);
        Ok(at as u32)
    }

    /// What the kernel says of the namespace and of itself.
    fn of_host(&mut self, of_root: &statmount) {
        if self.takes(STATMOUNT_MNT_NS_ID) {
            self.is.mnt_ns_id = of_root.mnt_ns_id;
        }
        if of_root.mask & u64::from(STATMOUNT_SUPPORTED_MASK) != 0 && self.takes(STATMOUNT_SUPPORTED_MASK) {
            self.is.supported_mask = of_root.supported_mask;
        }
    }
}

/// The strings behind the numbers, written as they come.
struct Strings {
    to: UserSlice,
    count: usize,
    has_faulted: bool,
}

impl Strings {
    fn new(to: UserSlice) -> Strings {
        Strings { to, count: 0, has_faulted: false }
    }

    /// Adds text, behind which there must be room for a NUL.
    ///
    /// # Errors
    /// `EOVERFLOW`.
    fn push(&mut self, text: &[u8]) -> Result<()> {
        let at = FIXED + self.count;
        self.count += text.len();
        if FIXED + self.count >= self.to.len() {
            return Err(Errno::EOVERFLOW);
        }
        let to = self.to.skip(at).start().as_ptr();
        // SAFETY: the copy routine handles bad pointers.
        self.has_faulted |= unsafe { ucopy::copy(to, text.as_ptr(), text.len()) }.is_err();
        Ok(())
    }

    /// Adds a NUL.
    fn end(&mut self) {
        let to = self.to.skip(FIXED + self.count);
        if !to.is_empty() {
            // SAFETY: the copy routine handles bad pointers.
            self.has_faulted |= unsafe { ucopy::put(to.start().as_ptr(), &0u8) }.is_err();
        }
        self.count += 1;
    }
}

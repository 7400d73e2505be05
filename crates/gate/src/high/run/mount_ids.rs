//! Mounts by their ids of 64 bits: the request of statmount(2) and listmount(2), and what the kernel says of
//! the host's mounts.

use lp_abi::linux::{
    __NR_statmount, __NR_statx, MNT_ID_REQ_SIZE_VER0, STATMOUNT_MNT_BASIC, STATX_MNT_ID, STATX_MNT_ID_UNIQUE,
    mnt_id_req, statmount, statx,
};
use lp_abi::{Fd, PAGE_SIZE, PATH_MAX, Result, UserPtr};
use lp_region::{MountId, ucopy};
use lp_vfs::mounts;
use lp_vfs::task::Task;

use crate::high::frame::at::{Which, buffer};

/// Bytes before the strings of a `struct statmount`.
pub(crate) const FIXED: usize = size_of::<statmount>();

/// What a program asks.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    words: [u64; 4],
}

impl Request {
    /// The program's request; `None` if it is not one that this version knows, of which the kernel says what
    /// is wrong.
    pub(crate) fn read(from: UserPtr) -> Option<Request> {
        // SAFETY: the copy routine handles bad pointers, here and below.
        let size = unsafe { ucopy::get(from.as_ptr().cast::<u32>()) }.ok()? as usize;
        let mut words = [0u64; 4];
        if !(MNT_ID_REQ_SIZE_VER0 as usize..=PAGE_SIZE).contains(&size) {
            return None;
        }
        let known = size.min(size_of_val(&words));
        // SAFETY: as above; `known` bytes fit.
        unsafe { ucopy::copy(words.as_mut_ptr().cast(), from.as_ptr(), known) }.ok()?;
        for at in known..size {
            // SAFETY: as above.
            let beyond: u8 = unsafe { ucopy::get(from.as_ptr().wrapping_add(at)) }.ok()?;
            if beyond != 0 {
                return None;
            }
        }
        Some(Request { words })
    }

    /// The mount's id.
    pub(crate) fn id(&self) -> u64 {
        self.words[1]
    }

    /// The mask of statmount(2), or the id after which listmount(2) begins.
    pub(crate) fn parameter(&self) -> u64 {
        self.words[2]
    }

    /// Whether it names a namespace.
    pub(crate) fn names_namespace(&self) -> bool {
        self.words[0] >> 32 != 0 || self.words[3] != 0
    }

    /// The same request with another id and parameter, for the kernel.
    pub(crate) fn with(&self, id: u64, parameter: u64) -> mnt_id_req {
        mnt_id_req {
            size: size_of::<mnt_id_req>() as u32,
            spare: (self.words[0] >> 32) as u32,
            mnt_id: id,
            param: parameter,
            mnt_ns_id: self.words[3],
        }
    }

    /// Whether its id is that of one of the host's mounts.
    pub(crate) fn is_a_mounts(&self) -> bool {
        stat_host(&self.with(self.id(), 0)).is_ok()
    }

    /// What `mask` selects of the host's mount that the process has as its root, in the namespace that the
    /// request names.
    ///
    /// # Errors
    /// Those of the request, if its id is a mount's; `ENOENT` if the namespace is another than the caller's.
    pub(crate) fn of_root(&self, mask: u32) -> Result<statmount> {
        stat_host(&self.with(host_id(c"/".to_bytes_with_nul(), STATX_MNT_ID_UNIQUE)?, mask.into()))
    }
}

/// statmount(2) of a mount of the host's, without strings.
fn stat_host(request: &mnt_id_req) -> Result<statmount> {
    // SAFETY: numbers, for which zero is a value.
    let mut is = unsafe { core::mem::zeroed::<statmount>() };
    // SAFETY: the kernel reads the request and writes within `is`.
    unsafe { lp_abi::syscall!(__NR_statmount, &raw const *request, &raw mut is, FIXED, 0) }?;
    Ok(is)
}

/// The id, of the kind that `mask` selects, of the host's mount that a NUL-terminated path leads to.
fn host_id(path: &[u8], mask: u32) -> Result<u64> {
    // SAFETY: numbers, for which zero is a value.
    let mut is = unsafe { core::mem::zeroed::<statx>() };
    // SAFETY: the path is NUL-terminated, and the kernel writes within `is`.
    unsafe { lp_abi::syscall!(__NR_statx, Fd::CWD, path.as_ptr(), 0, mask, &raw mut is) }?;
    Ok(is.stx_mnt_id)
}

/// The host's mount in which a mount of the command line appears.
pub(crate) struct HostParent {
    /// Its id of 64 bits.
    pub unique: u64,
    /// Its id in /proc.
    pub shown: u32,
}

impl HostParent {
    /// That of `base`: of the nearest directory above its path that the host has.
    ///
    /// # Errors
    /// Those of statx(2).
    pub(crate) fn of(task: &Task, base: MountId) -> Result<HostParent> {
        let room: &mut [u8; PATH_MAX] = buffer(Which::Second);
        let path = mounts::path(task, base);
        let mut length = path.len().min(PATH_MAX - 1);
        room[..length].copy_from_slice(&path[..length]);
        loop {
            length = room[..length].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            if length == 0 {
                room[0] = b'/';
            }
            room[length.max(1)] = 0;
            let id = |mask| host_id(&room[..=length.max(1)], mask);
            match (id(STATX_MNT_ID_UNIQUE), id(STATX_MNT_ID)) {
                (Ok(unique), Ok(shown)) => return Ok(HostParent { unique, shown: shown as u32 }),
                (Err(errno), _) | (_, Err(errno)) if length == 0 => return Err(errno),
                _ => {}
            }
        }
    }

    /// Whether it is the host's mount with this id, or stands in it or in one that stands there.
    pub(crate) fn is_within(&self, id: u64, request: &Request) -> bool {
        let mut at = self.unique;
        while at != id {
            match stat_host(&request.with(at, STATMOUNT_MNT_BASIC.into())) {
                Ok(is) if is.mnt_parent_id != at => at = is.mnt_parent_id,
                _ => return false,
            }
        }
        true
    }
}

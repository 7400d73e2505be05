//! The value of the attribute `security.capability`: capabilities(7), "File capability extended attribute
//! versioning".
//!
//! Version 3 names a user: the capabilities count in namespaces in which that user is root. Version 2 names
//! nobody, which means the run's root. An inode has the run's number of the user, a process sees the one of
//! its own namespace, as by the kernel's cap_convert_nscap and cap_inode_getsecurity.

use lp_abi::linux::{VFS_CAP_FLAGS_EFFECTIVE, VFS_CAP_REVISION_2, VFS_CAP_REVISION_3};
use lp_abi::{Errno, Result};
use lp_region::process::Process;

use crate::caller::id_map::{self, IdKind};

/// Bytes of a value of version 3.
pub(crate) const ROOM: usize = 24;
/// Bytes of a value of version 2, with which one of version 3 begins, except for the version.
const SHORT: usize = 20;

/// A value.
#[derive(Clone, Copy)]
pub(crate) struct FileCapabilities {
    /// `VFS_CAP_FLAGS_EFFECTIVE` or 0.
    flags: u32,
    /// What is permitted and what can be inherited.
    sets: [u8; SHORT - 4],
    /// The user of version 3.
    root: Option<u32>,
}

impl FileCapabilities {
    /// Reads a value.
    ///
    /// # Errors
    /// `EINVAL` if it is of neither version.
    pub(crate) fn parse(value: &[u8]) -> Result<Self> {
        let (magic, rest) = value.split_first_chunk().ok_or(Errno::EINVAL)?;
        let (sets, rest) = rest.split_first_chunk().ok_or(Errno::EINVAL)?;
        let magic = u32::from_le_bytes(*magic);
        let root = match (magic & !VFS_CAP_FLAGS_EFFECTIVE, rest) {
            (VFS_CAP_REVISION_2, []) => None,
            (VFS_CAP_REVISION_3, rest) => {
                Some(u32::from_le_bytes(rest.try_into().map_err(|_| Errno::EINVAL)?))
            }
            _ => return Err(Errno::EINVAL),
        };
        Ok(FileCapabilities { flags: magic & VFS_CAP_FLAGS_EFFECTIVE, sets: *sets, root })
    }

    /// Stores the value in `room` and returns its length.
    pub(crate) fn write(&self, room: &mut [u8; ROOM]) -> usize {
        let version = if self.root.is_some() { VFS_CAP_REVISION_3 } else { VFS_CAP_REVISION_2 };
        room[..4].copy_from_slice(&(version | self.flags).to_le_bytes());
        room[4..SHORT].copy_from_slice(&self.sets);
        room[SHORT..].copy_from_slice(&self.root.unwrap_or(0).to_le_bytes());
        if self.root.is_some() { ROOM } else { SHORT }
    }

    /// What an inode is to have if `process` sets the value.
    ///
    /// # Errors
    /// `EINVAL` if the user has no number in the run's namespace.
    pub(crate) fn in_run(self, process: &Process) -> Result<Self> {
        if self.root.is_none() && !id_map::is_inside(process) {
            return Ok(self);
        }
        let root = id_map::to_run(process, IdKind::User, self.root.unwrap_or(0)).ok_or(Errno::EINVAL)?;
        Ok(FileCapabilities { root: Some(root), ..self })
    }

    /// What `process` sees of an inode's value.
    ///
    /// # Errors
    /// `EOVERFLOW` if the user has no number in its namespace, and is not root outside of it.
    pub(crate) fn shown(self, process: &Process) -> Result<Self> {
        let root = self.root.unwrap_or(0);
        match id_map::from_run(process, IdKind::User, root) {
            Some(0) => Ok(FileCapabilities { root: None, ..self }),
            None if root == 0 => Ok(FileCapabilities { root: None, ..self }),
            None => Err(Errno::EOVERFLOW),
            root => Ok(FileCapabilities { root, ..self }),
        }
    }
}

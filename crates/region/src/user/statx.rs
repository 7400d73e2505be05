//! What the copy routines need to write a `struct statx`.

/// What `struct statx` has that an inode's record does not say.
#[repr(C)]
pub struct Beside {
    /// `stx_mask`: the times of change and of birth are 0 if it does not name them.
    pub mask: u32,
    /// `stx_blksize`.
    pub block_size: u32,
    /// `stx_attributes`.
    pub attributes: u64,
    /// `stx_attributes_mask`.
    pub attributes_mask: u64,
    /// `stx_rdev_major` and `stx_rdev_minor`.
    pub rdev: [u32; 2],
    /// `stx_dev_major` and `stx_dev_minor`.
    pub device: [u32; 2],
    /// `stx_mnt_id`.
    pub mount: u64,
}

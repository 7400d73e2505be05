//! [`Door`]: the calls of schedules, answered by Lightpath or by the kernel.
//!
//! Each returns what the system call of its name does: a value, or the negated error number. Descriptors have
//! fixed numbers, so no call depends on which is free.

use std::ffi::CStr;

use crate::control::Slot;

/// Descriptors that the family shares: a file that nobody changes, `v/a` for appending, a file without a
/// name.
pub(crate) const KEEP: i32 = 20;
/// See [`KEEP`].
pub(crate) const COMMON: i32 = 21;
/// See [`KEEP`].
pub(crate) const GONE: i32 = 22;
/// An actor's own: `a` of each directory.
pub(crate) const OWN: [i32; 3] = [23, 24, 25];
/// Where calls put new descriptors.
pub(crate) const NEW: i32 = 26;

/// Content of the file behind [`KEEP`].
pub(crate) const KEPT: &[u8] = b"what everybody reads";
/// [`Door::verify`]: the content of the file behind [`KEEP`] is wrong.
pub(crate) const CHANGED: i64 = -10_001;
/// [`Door::verify`]: the process no longer owns its slot or lane.
pub(crate) const LOST: i64 = -10_002;

/// Attributes that both systems must agree on.
#[derive(Clone, Copy, Default)]
pub(crate) struct Facts {
    /// `st_mode`.
    pub mode: u32,
    /// `st_nlink`.
    pub nlink: u64,
    /// `st_uid`, `st_gid`.
    pub owner: (u32, u32),
    /// `st_size`.
    pub size: i64,
    /// `st_blocks`.
    pub blocks: i64,
    /// Seconds of `st_mtime`.
    pub mtime: i64,
    /// Whether statfs(2) says that it is read-only.
    pub read_only: bool,
}

/// A byte-range lock of fcntl(2).
#[derive(Clone, Copy)]
pub(crate) struct RangeLock {
    /// `F_SETLK`, `F_OFD_SETLK`.
    pub command: i32,
    /// `F_RDLCK`, `F_WRLCK`, `F_UNLCK`.
    pub kind: i32,
    /// First byte.
    pub start: i64,
    /// Bytes.
    pub len: i64,
}

/// The calls; see the module.
pub(crate) trait Door {
    /// open(2), at the descriptor `fd`: 0 or an error.
    fn open(&self, fd: i32, path: &CStr, flags: i32, mode: u32) -> i64;
    /// close(2).
    fn close(&self, fd: i32) -> i64;
    /// pwrite(2).
    fn pwrite(&self, fd: i32, from: &[u8], at: i64) -> i64;
    /// write(2).
    fn write(&self, fd: i32, from: &[u8]) -> i64;
    /// read(2).
    fn read(&self, fd: i32, to: &mut [u8]) -> i64;
    /// lseek(2) to an offset.
    fn seek(&self, fd: i32, to: i64) -> i64;
    /// pread(2).
    fn pread(&self, fd: i32, to: &mut [u8], at: i64) -> i64;
    /// copy_file_range(2) of all of a file to the start of another.
    fn copy(&self, from: i32, to: i32) -> i64;
    /// chroot(2).
    fn chroot(&self, path: &CStr) -> i64;
    /// landlock_restrict_self(2), with rules that refuse no other call but those on mounts.
    fn restrict(&self) -> i64;
    /// mkdir(2).
    fn mkdir(&self, path: &CStr) -> i64;
    /// mknod(2) of a FIFO.
    fn mkfifo(&self, path: &CStr) -> i64;
    /// symlink(2).
    fn symlink(&self, target: &CStr, path: &CStr) -> i64;
    /// link(2).
    fn link(&self, old: &CStr, new: &CStr) -> i64;
    /// unlink(2).
    fn unlink(&self, path: &CStr) -> i64;
    /// rmdir(2).
    fn rmdir(&self, path: &CStr) -> i64;
    /// renameat2(2).
    fn rename(&self, old: &CStr, new: &CStr, flags: u32) -> i64;
    /// truncate(2).
    fn truncate(&self, path: &CStr, length: i64) -> i64;
    /// ftruncate(2).
    fn ftruncate(&self, fd: i32, length: i64) -> i64;
    /// fallocate(2).
    fn fallocate(&self, fd: i32, mode: u32, at: i64, length: i64) -> i64;
    /// chmod(2).
    fn chmod(&self, path: &CStr, mode: u32) -> i64;
    /// chown(2).
    fn chown(&self, path: &CStr, owner: u32, group: u32) -> i64;
    /// utimensat(2), both times to a second.
    fn utimens(&self, path: &CStr, second: i64) -> i64;
    /// setxattr(2).
    fn setxattr(&self, path: &CStr, name: &CStr, value: &[u8]) -> i64;
    /// removexattr(2).
    fn removexattr(&self, path: &CStr, name: &CStr) -> i64;
    /// dup2(2).
    fn dup(&self, fd: i32, to: i32) -> i64;
    /// flock(2).
    fn flock(&self, fd: i32, operation: i32) -> i64;
    /// fcntl(2).
    fn lock(&self, fd: i32, lock: RangeLock) -> i64;
    /// statfs(2): 0 or an error.
    fn statfs(&self) -> i64;
    /// mount(2); a tmpfs if `source` is none.
    fn mount(&self, source: Option<&CStr>, path: &CStr, flags: u64) -> i64;
    /// open_tree(2) with `OPEN_TREE_CLONE` and `AT_RECURSIVE`, move_mount(2) of the copy, close(2).
    fn mount_copy(&self, of: &CStr, path: &CStr) -> i64;
    /// umount2(2).
    fn umount(&self, path: &CStr, flags: i32) -> i64;
    /// Records a mapping of a file and removes it.
    fn map(&self, fd: i32) -> i64;
    /// Records a mapping of a file.
    fn map_to_stay(&self, fd: i32) -> i64;
    /// fork(2); the child verifies and ends: its [`Door::verify`].
    fn fork(&self) -> i64;
    /// vfork(2), as [`Door::fork`].
    fn vfork(&self) -> i64;
    /// fork(2) of a child that serves `slot` from then on.
    fn fork_to_stay(&self, slot: &'static Slot) -> i64;
    /// fork(2), of a child that shares the working directory, verifies and ends.
    fn share(&self) -> i64;
    /// The same, of a child that serves `slot` from then on.
    fn share_to_stay(&self, slot: &'static Slot) -> i64;
    /// unshare(2) with `CLONE_FS`.
    fn unshare(&self) -> i64;
    /// The first step of a forked child.
    fn born(&self) -> i64;
    /// The first step of the first process of a command.
    fn join(&self) -> i64;
    /// The first step of a new image after exec(2) of a single-threaded process.
    fn arrive(&self) -> i64;
    /// exit(2), except for the end of the process.
    fn exit(&self) -> i64;
    /// exit(2) of a forked child that has made no call, except for the end of the process.
    fn leave(&self) -> i64;
    /// Looks for dead processes.
    fn reap(&self) -> i64;
    /// Frees everything that nothing names.
    fn reclaim(&self) -> i64;
    /// Whether the process still has what it had: 0, an error, [`CHANGED`] or [`LOST`].
    fn verify(&self) -> i64;
    /// lstat(2).
    fn facts(&self, path: &CStr) -> Result<Facts, i64>;
    /// Names in a directory.
    fn names(&self, path: &CStr) -> Result<Vec<String>, i64>;
    /// readlink(2).
    fn readlink(&self, path: &CStr) -> Result<Vec<u8>, i64>;
    /// Names and values of extended attributes.
    fn xattrs(&self, path: &CStr) -> Result<Vec<(String, Vec<u8>)>, i64>;
}

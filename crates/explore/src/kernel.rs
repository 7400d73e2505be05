//! [`Kernel`]: the calls, answered by the kernel in the working directory.

use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

use lp_abi::linux::{AT_RECURSIVE, MOVE_MOUNT_F_EMPTY_PATH, OPEN_TREE_CLONE};

use crate::actor;
use crate::control::Slot;
use crate::door::{CHANGED, Door, Facts, KEEP, KEPT, RangeLock};

/// The kernel's own file system, at the working directory.
pub(crate) struct Kernel;

fn answer(value: i64) -> i64 {
    if value >= 0 { value } else { -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}

fn is_read_only(path: &CStr) -> bool {
    // SAFETY: a structure of integers.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in NUL.
    let got = unsafe { libc::statvfs(path.as_ptr(), &raw mut facts) };
    got == 0 && facts.f_flag & libc::ST_RDONLY != 0
}

/// The [`Door::verify`] result in a child's exit status.
pub(crate) fn waited(pid: i32) -> i64 {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
    if libc::WIFEXITED(status) { -i64::from(libc::WEXITSTATUS(status)) } else { -20_000 - i64::from(status) }
}

// SAFETY, of every block below: paths end in NUL, buffers have the stated length, and the calls keep none of
// them.
impl Door for Kernel {
    fn open(&self, fd: i32, path: &CStr, flags: i32, mode: u32) -> i64 {
        // SAFETY: above.
        let opened = answer(i64::from(unsafe { libc::open(path.as_ptr(), flags, mode) }));
        if opened < 0 {
            return opened;
        }
        // SAFETY: above.
        unsafe {
            libc::dup2(opened as i32, fd);
            libc::close(opened as i32);
        }
        0
    }

    fn close(&self, fd: i32) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::close(fd) }))
    }

    fn pwrite(&self, fd: i32, from: &[u8], at: i64) -> i64 {
        // SAFETY: above.
        answer(unsafe { libc::pwrite(fd, from.as_ptr().cast(), from.len(), at) } as i64)
    }

    fn write(&self, fd: i32, from: &[u8]) -> i64 {
        // SAFETY: above.
        answer(unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) } as i64)
    }

    fn read(&self, fd: i32, to: &mut [u8]) -> i64 {
        // SAFETY: above.
        answer(unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) } as i64)
    }

    fn seek(&self, fd: i32, to: i64) -> i64 {
        // SAFETY: above.
        answer(unsafe { libc::lseek(fd, to, libc::SEEK_SET) })
    }

    fn pread(&self, fd: i32, to: &mut [u8], at: i64) -> i64 {
        // SAFETY: above.
        answer(unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), at) } as i64)
    }

    fn copy(&self, from: i32, to: i32) -> i64 {
        let (mut at_from, mut at_to) = (0, 0);
        // SAFETY: above; the offsets live on.
        let done = unsafe { libc::copy_file_range(from, &raw mut at_from, to, &raw mut at_to, 1 << 30, 0) };
        answer(done as i64)
    }

    fn chroot(&self, path: &CStr) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::chroot(path.as_ptr()) }))
    }

    fn restrict(&self) -> i64 {
        let rights = lp_vfs::landlock::right::MAKE_BLOCK | lp_vfs::landlock::right::REFER;
        let handled = u64::from(rights);
        // SAFETY: the kernel reads the rights, the path and the rule: eight bytes and a descriptor.
        unsafe {
            let ruleset = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, 8, 0);
            let root = libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
            let rule = [rights, 0, root as u32];
            libc::syscall(libc::SYS_landlock_add_rule, ruleset, 1, rule.as_ptr(), 0);
            let done = answer(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0));
            libc::close(root);
            libc::close(ruleset as i32);
            done
        }
    }

    fn mkdir(&self, path: &CStr) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::mkdir(path.as_ptr(), 0o755) }))
    }

    fn mkfifo(&self, path: &CStr) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::mkfifo(path.as_ptr(), 0o644) }))
    }

    fn symlink(&self, target: &CStr, path: &CStr) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) }))
    }

    fn link(&self, old: &CStr, new: &CStr) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::link(old.as_ptr(), new.as_ptr()) }))
    }

    fn unlink(&self, path: &CStr) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::unlink(path.as_ptr()) }))
    }

    fn rmdir(&self, path: &CStr) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::rmdir(path.as_ptr()) }))
    }

    fn rename(&self, old: &CStr, new: &CStr, flags: u32) -> i64 {
        let at = libc::AT_FDCWD;
        // SAFETY: above.
        answer(i64::from(unsafe { libc::renameat2(at, old.as_ptr(), at, new.as_ptr(), flags) }))
    }

    fn truncate(&self, path: &CStr, length: i64) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::truncate(path.as_ptr(), length) }))
    }

    fn ftruncate(&self, fd: i32, length: i64) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::ftruncate(fd, length) }))
    }

    fn fallocate(&self, fd: i32, mode: u32, at: i64, length: i64) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::fallocate(fd, mode as i32, at, length) }))
    }

    fn chmod(&self, path: &CStr, mode: u32) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::chmod(path.as_ptr(), mode) }))
    }

    fn chown(&self, path: &CStr, owner: u32, group: u32) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::chown(path.as_ptr(), owner, group) }))
    }

    fn utimens(&self, path: &CStr, second: i64) -> i64 {
        let times = [libc::timespec { tv_sec: second, tv_nsec: 0 }; 2];
        // SAFETY: above.
        answer(i64::from(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0) }))
    }

    fn setxattr(&self, path: &CStr, name: &CStr, value: &[u8]) -> i64 {
        let (from, size) = (value.as_ptr().cast(), value.len());
        // SAFETY: above.
        answer(i64::from(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), from, size, 0) }))
    }

    fn removexattr(&self, path: &CStr, name: &CStr) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }))
    }

    fn dup(&self, fd: i32, to: i32) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::dup2(fd, to) })).min(0)
    }

    fn flock(&self, fd: i32, operation: i32) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::flock(fd, operation) }))
    }

    fn lock(&self, fd: i32, lock: RangeLock) -> i64 {
        let asked = libc::flock {
            l_type: lock.kind as i16,
            l_whence: 0,
            l_start: lock.start,
            l_len: lock.len,
            l_pid: 0,
        };
        // SAFETY: above.
        answer(i64::from(unsafe { libc::fcntl(fd, lock.command, &raw const asked) }))
    }

    fn statfs(&self) -> i64 {
        0
    }

    fn mount(&self, source: Option<&CStr>, path: &CStr, flags: u64) -> i64 {
        let source = source.unwrap_or(c"none").as_ptr();
        let (kind, data) = (c"tmpfs".as_ptr(), std::ptr::null());
        // SAFETY: above.
        answer(i64::from(unsafe { libc::mount(source, path.as_ptr(), kind, flags, data) }))
    }

    fn mount_copy(&self, of: &CStr, path: &CStr) -> i64 {
        let (here, copy) = (libc::AT_FDCWD, OPEN_TREE_CLONE | AT_RECURSIVE);
        // SAFETY: above, here and below.
        let fd = answer(unsafe { libc::syscall(libc::SYS_open_tree, here, of.as_ptr(), copy) });
        if fd < 0 {
            return fd;
        }
        let (empty, from_fd) = (c"".as_ptr(), MOVE_MOUNT_F_EMPTY_PATH);
        // SAFETY: above.
        let moved = unsafe { libc::syscall(libc::SYS_move_mount, fd, empty, here, path.as_ptr(), from_fd) };
        let moved = answer(moved);
        // SAFETY: above.
        unsafe { libc::close(fd as i32) };
        moved
    }

    fn umount(&self, path: &CStr, flags: i32) -> i64 {
        // SAFETY: above.
        answer(i64::from(unsafe { libc::umount2(path.as_ptr(), flags) }))
    }

    fn map(&self, _: i32) -> i64 {
        0
    }

    fn map_to_stay(&self, _: i32) -> i64 {
        0
    }

    fn fork(&self) -> i64 {
        // SAFETY: the process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                let found = self.verify();
                // SAFETY: ends the child.
                unsafe { libc::_exit(-found as i32) }
            }
            pid => waited(pid),
        }
    }

    fn vfork(&self) -> i64 {
        self.fork()
    }

    fn fork_to_stay(&self, slot: &'static Slot) -> i64 {
        // SAFETY: the child calls only what one of a process with threads may.
        match unsafe { libc::fork() } {
            0 => actor::stay(self, slot),
            pid => slot.pid.store(pid as u32, Ordering::Release),
        }
        0
    }

    fn share(&self) -> i64 {
        self.fork()
    }

    fn share_to_stay(&self, slot: &'static Slot) -> i64 {
        self.fork_to_stay(slot)
    }

    fn unshare(&self) -> i64 {
        // SAFETY: concerns only this thread's directories, which nobody changes.
        answer(i64::from(unsafe { libc::unshare(libc::CLONE_FS) }))
    }

    fn born(&self) -> i64 {
        0
    }

    fn join(&self) -> i64 {
        0
    }

    fn arrive(&self) -> i64 {
        0
    }

    fn exit(&self) -> i64 {
        0
    }

    fn leave(&self) -> i64 {
        0
    }

    fn reap(&self) -> i64 {
        0
    }

    fn reclaim(&self) -> i64 {
        0
    }

    fn verify(&self) -> i64 {
        let mut bytes = [0; KEPT.len()];
        match self.pread(KEEP, &mut bytes, 0) {
            got if got < 0 => got,
            _ if bytes == *KEPT => 0,
            _ => CHANGED,
        }
    }

    fn facts(&self, path: &CStr) -> Result<Facts, i64> {
        // SAFETY: a structure of integers.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: above.
        let done = answer(i64::from(unsafe { libc::lstat(path.as_ptr(), &raw mut stat) }));
        if done < 0 {
            return Err(done);
        }
        Ok(Facts {
            mode: stat.st_mode,
            nlink: stat.st_nlink,
            owner: (stat.st_uid, stat.st_gid),
            size: stat.st_size,
            blocks: stat.st_blocks,
            mtime: stat.st_mtime,
            read_only: is_read_only(path),
        })
    }

    fn names(&self, path: &CStr) -> Result<Vec<String>, i64> {
        let failed = |error: std::io::Error| -i64::from(error.raw_os_error().unwrap_or(0));
        let listed = std::fs::read_dir(path.to_str().unwrap_or_default()).map_err(failed)?;
        listed.map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn readlink(&self, path: &CStr) -> Result<Vec<u8>, i64> {
        let mut bytes = vec![0; 4096];
        // SAFETY: above.
        let got =
            answer(unsafe { libc::readlink(path.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) } as i64);
        if got < 0 {
            return Err(got);
        }
        bytes.truncate(got as usize);
        Ok(bytes)
    }

    fn xattrs(&self, path: &CStr) -> Result<Vec<(String, Vec<u8>)>, i64> {
        let mut list = vec![0u8; 4096];
        // SAFETY: above.
        let got =
            answer(unsafe { libc::llistxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) } as i64);
        if got < 0 {
            return Err(got);
        }
        list.truncate(got as usize);
        let value_of = |name: &[u8]| {
            let (mut value, cname) = (vec![0u8; 65_536], CString::new(name).unwrap_or_default());
            let (to, size) = (value.as_mut_ptr().cast(), value.len());
            // SAFETY: above.
            let got = answer(unsafe { libc::lgetxattr(path.as_ptr(), cname.as_ptr(), to, size) } as i64);
            value.truncate(got.max(0) as usize);
            if got < 0 { Err(got) } else { Ok((String::from_utf8_lossy(name).into_owned(), value)) }
        };
        list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(value_of).collect()
    }
}

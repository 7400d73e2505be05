//! Symbolic links, and other turns by which a walk goes on with another text.

use core::slice;

use lp_abi::linux::{RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS};
use lp_abi::{Errno, MAX_SYMLINKS, NAME_MAX, Result};
use lp_region::mount::mount_flags;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeRef, Spot};

use super::{HOSTS, ODD, TEXT, Turn, Walk, past_slashes};
use crate::inodes::inode as inodes;
use crate::names::limits::{Limits, Top};
use crate::names::mounts::{self, Crossing};
use crate::names::{dirent, link_target, root};
use crate::rights::protected;

impl<L: Limits> Walk<'_, '_, L> {
    /// Continues where a step failed because the current inode stands for a directory of the host's: there.
    #[cold]
    pub(super) fn failed(&mut self, errno: Errno) -> Result<Turn> {
        if errno != HOSTS {
            return Err(errno);
        }
        self.cross()?;
        let (region, mut name) = (self.task.region, [0; NAME_MAX]);
        let entry = region.dirent(DirentId(self.inode().self_dirent.load(Ordering::Acquire)));
        let length = dirent::copy_name(region, entry, &mut name);
        // SAFETY: `text` does not pass `end`, where a NUL is.
        let is_name = !matches!(unsafe { *self.text }, 0 | b'/');
        self.prepend(self.text, 1 + length + usize::from(is_name), |to| {
            to.fill(b'/');
            to[1..=length].copy_from_slice(&name[..length]);
            Ok(())
        })?;
        self.lead(Crossing::Outside)
    }

    /// Continues with the target of a symbolic link; `after` is what follows the link in the text.
    #[cold]
    pub(super) fn follow(&mut self, link: InodeRef, after: *const u8) -> Result<Turn> {
        if self.links == MAX_SYMLINKS || mounts::has(self.task, self.mount, mount_flags::NOSYMFOLLOW) {
            return Err(Errno::ELOOP);
        }
        if self.limits.has(RESOLVE_NO_SYMLINKS) {
            return Err(Errno::ELOOP);
        }
        self.links += 1;
        self.tree = ODD;
        let (task, inode) = (self.task, self.task.region.inode(link.id));
        if past_slashes(after) == self.end {
            protected::may_follow(task, self.inode(), inode)?;
        }
        if self.limits.has(RESOLVE_CACHED) && inodes::is_access_due(task, inode, self.mount) {
            return Err(Errno::EAGAIN);
        }
        let length = link_target::target_length(inode);
        self.check(link)?;
        self.prepend(after, length, |to| link_target::copy_target(task, inode, to))?;
        self.check(link)?;
        link_target::followed(task, Spot { inode: link, mount: self.mount });
        // SAFETY: the text is not empty, because no target is.
        if unsafe { *self.text } == b'/' { self.jump() } else { Ok(Turn::On) }
    }

    /// Continues with the text, an absolute target, from the root that the walk has: the kernel's
    /// nd_jump_root.
    fn jump(&mut self) -> Result<Turn> {
        if self.limits.has(RESOLVE_BENEATH) {
            return Err(Errno::EXDEV);
        }
        if !self.limits.has(RESOLVE_IN_ROOT) {
            // As in the kernel, the mount of a root directory that the walk has not met yet is another one.
            let has_met = self.base == 0;
            if !has_met || root::of(self.task).is_none_or(|root| root.mount != self.mount) {
                self.cross()?;
            }
            return self.absolute();
        }
        let limits = self.limits;
        match limits.top() {
            Top::Base => {}
            Top::Spot(top) => {
                if top.mount != self.mount {
                    self.cross()?;
                }
                self.stand(top);
            }
            Top::Host(above) => {
                self.cross()?;
                self.prepend(self.text, above.len(), |to| {
                    to.copy_from_slice(above);
                    Ok(())
                })?;
                return self.absolute();
            }
        }
        Ok(Turn::On)
    }

    /// Finds where the text, an absolute path, leads.
    fn absolute(&mut self) -> Result<Turn> {
        self.lead(self.enter())
    }

    /// Goes where the text, an absolute path, leads.
    pub(super) fn lead(&mut self, crossing: Crossing) -> Result<Turn> {
        match crossing {
            Crossing::Inside { root, walked } => {
                self.start(root, walked);
                Ok(Turn::On)
            }
            Crossing::Outside => {
                let rest = self.rest();
                // SAFETY: the buffer belongs to the task and is longer than any text; `rest` lies in another.
                let to = unsafe { &mut *self.task.scratch.outside.get() };
                to[..rest.len()].copy_from_slice(rest);
                to[rest.len()] = 0;
                Ok(Turn::Out(rest.len()))
            }
        }
    }

    /// Puts `length` bytes, which `fill` writes, before the text that starts at `after`.
    pub(super) fn prepend(
        &mut self,
        after: *const u8,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let walk = self.task.scratch.walk.get().cast::<u8>();
        // SAFETY: `after` is in the text, which ends at `end`.
        let left = unsafe { self.end.offset_from_unsigned(after) };
        if length + left >= TEXT {
            return Err(Errno::ENAMETOOLONG);
        }
        let rest = TEXT - 1 - left;
        // SAFETY: `rest + left` is the last of the TEXT bytes; text that is in this buffer already is in
        // place. The bytes below `rest` are no longer needed.
        let room = unsafe {
            if self.end != walk.add(TEXT - 1) {
                walk.add(rest).copy_from_nonoverlapping(after, left);
                *walk.add(TEXT - 1) = 0;
            }
            slice::from_raw_parts_mut(walk.add(rest - length), length)
        };
        fill(room)?;
        // SAFETY: within the buffer.
        (self.text, self.end) = unsafe { (walk.add(rest - length).cast_const(), walk.add(TEXT - 1)) };
        Ok(())
    }
}

//! `.` and `..`: up within a mount, from a mount to what it covers, and out of the mounts.

use lp_abi::linux::RESOLVE_BENEATH;
use lp_abi::{Errno, Result};
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeRef, Spot};

use super::{LooksUp, ODD, Turn, Up, Walk, past_slashes};
use crate::names::goal::LastType;
use crate::names::limits::{Limits, SCOPED, Top};
use crate::names::mounts::{self, AboveRoot};
use crate::names::name::Name;
use crate::names::{root, tree};

impl<L: Limits> Walk<'_, '_, L> {
    /// `.` or `..`.
    #[cold]
    pub(super) fn dots(&mut self, name: &Name<'_>) -> Result<Turn> {
        self.tree = ODD;
        self.may_search(LooksUp::Nothing)?;
        let after = name.end();
        self.text = past_slashes(after);
        let last = if name.is_dot() { LastType::Dot } else { LastType::DotDot };
        if last == LastType::DotDot {
            self.base = 0;
            match self.up()? {
                Up::Parent => {}
                Up::Here if self.limits.has(RESOLVE_BENEATH) => {
                    return Err(self.missed(Errno::EXDEV));
                }
                Up::Here if self.text != self.end => return Ok(Turn::On),
                Up::Here => return Ok(Turn::At(last, self.directory()?)),
                Up::Host => return self.leave(after),
            }
            let from = self.here;
            let up = self.directory()?;
            let parent = self.task.region.inode(up.parent);
            self.here = InodeRef { id: up.parent, generation: parent.generation.load(Ordering::Acquire) };
            // The parent of a directory that is still in place is live.
            if self.task.region.inode(from.id).parent.load(Ordering::Acquire) != up.parent.0 {
                return Err(Errno::ESTALE);
            }
            self.check(from)?;
            // A removed directory remembers its parent, which may have been removed too.
            let gone = self.task.region.inode(from.id).tail.load(Ordering::Acquire);
            if mounts::is_gone(self.task, from) && gone != u64::from(self.here.generation) {
                return Err(Errno::ENOENT);
            }
            if mounts::is_covered(self.task, self.here.id) {
                let top = mounts::cover(self.task, self.spot(), DirentId::NONE, self.which as usize);
                if top != self.spot() {
                    self.cross()?;
                }
                self.stand(top);
            }
            // The kernel's handle_dots: a directory that moved may have led `..` past the top.
            if self.limits.has(SCOPED) && self.limits.has_shifted(self.task) {
                return Err(Errno::EAGAIN);
            }
        }
        if self.text != self.end {
            return Ok(Turn::On);
        }
        Ok(Turn::At(last, self.directory()?))
    }

    /// For `..`: moves from the root of a mount to what the mount covers, repeatedly.
    ///
    /// # Errors
    /// `ENOENT` for a directory that has moved out of what its mount shows (the kernel's path_connected).
    fn up(&mut self) -> Result<Up> {
        let (task, from) = (self.task, self.spot());
        if self.is_top(from) {
            return Ok(Up::Here);
        }
        while task.region.mount(self.mount).root() == self.here {
            match mounts::above(task, self.mount, self.which as usize) {
                AboveRoot::Point(spot, _) if self.is_top(spot) => {
                    self.stand(from);
                    return Ok(Up::Here);
                }
                AboveRoot::Point(spot, _) => self.stand(spot),
                AboveRoot::Host if mounts::are_whole(task) => return Ok(Up::Here),
                AboveRoot::Host => return self.cross().map(|()| Up::Host),
                AboveRoot::Nothing => return Ok(Up::Here),
            }
        }
        if self.mount != from.mount {
            self.cross()?;
        }
        let top = task.region.mount(self.mount).root();
        if mounts::is_gone(task, self.here) || mounts::is_root(task, top) {
            return Ok(Up::Parent);
        }
        if tree::is_above(task, top.id, self.here.id) { Ok(Up::Parent) } else { Err(Errno::ENOENT) }
    }

    /// Whether `..` of this leads nowhere else: it is the directory that confines the walk, or the root
    /// directory.
    #[inline]
    fn is_top(&self, spot: Spot) -> bool {
        match self.limits.has(SCOPED) {
            true => self.limits.top() == Top::Spot(spot),
            false => root::is(self.task, spot),
        }
    }

    /// `..` of a root: continues in the host directory that contains the mount. If it is the last component,
    /// the path ends in a dot, so that no call takes it for the directory's name.
    #[cold]
    fn leave(&mut self, after: *const u8) -> Result<Turn> {
        let above = mounts::host_above(self.task, self.mount);
        let (rest, joint) = if self.text == self.end { (after, &b"/."[..]) } else { (self.text, &b"/"[..]) };
        self.prepend(rest, above.len() + joint.len(), |to| {
            to[..above.len()].copy_from_slice(above);
            to[above.len()..].copy_from_slice(joint);
            Ok(())
        })?;
        self.lead(mounts::enter_from_host(self.task, self.rest(), self.which as usize))
    }
}

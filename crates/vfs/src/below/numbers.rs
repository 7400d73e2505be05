//! Inode numbers: which names show the number that they have in the layer.
//!
//! Programs keep numbers, such as git in its index, so an inode shows the number of the layer if no other can
//! ever show it. Numbers of the layer are below [`ABOVE_LAYER`], all others above. A number of the layer
//! denotes another file only after the first was removed. A name gets the layer's number if it
//!
//! - is on the same mount and device as its directory, and the directory shows the layer's number: two mounts
//!   may show one file twice, and two devices number their files independently;
//! - has not changed since the layer was laid ([`links::laid`]). Its inode existed then, under this number,
//!   so what else gets the number by this rule is the same file. It has one name only ([`super::links`]): a
//!   rename or a second name would have set the change time.
//!
//! Numbers never change: whatever becomes of the name, the number is the inode's ([`Inode::number`]).

use lp_abi::Result;
use lp_region::InodeId;
use lp_region::records::{ABOVE_LAYER, Inode};
use lp_region::sync::Ordering::Relaxed;

use crate::below::links;
use crate::below::list::Record;
use crate::caller::task::{Task, Time};

/// Begins to number the inodes of the region above those of layers. Nobody else may use the region yet.
pub(super) fn prepare(task: &Task<'_>) {
    task.region.header().numbers.store(ABOVE_LAYER, Relaxed); // Relaxed: the caller is alone.
}

/// Decides on the numbers of a directory's names.
pub(super) struct Numbers {
    /// The change time that is too late; `None` if no name gets the layer's number.
    before: Option<Time>,
}

impl Numbers {
    /// The numbers of the names in `dir`.
    ///
    /// # Errors
    /// As [`links::laid`].
    pub(super) fn of(task: &Task<'_>, dir: InodeId) -> Result<Numbers> {
        let number = task.region.inode(dir).number.load(Relaxed); // Relaxed: immutable.
        Ok(Numbers { before: if number < ABOVE_LAYER { Some(links::laid(task)?) } else { None } })
    }

    /// Decides on a name that was just seen. `seen` has the layer's number if the name is on the mount and
    /// device of its directory, else 0.
    pub(super) fn decide(&self, seen: &mut Record) {
        let ctime = Time { sec: seen.seconds[2], nsec: seen.nanoseconds[2] };
        if seen.number >= ABOVE_LAYER || self.before.is_none_or(|before| ctime >= before) {
            seen.number = 0;
        }
    }
}

/// Gives an inode that nobody uses yet the number that its record says.
pub(super) fn assign(inode: &Inode, seen: &Record) {
    if seen.number != 0 {
        inode.number.store(seen.number, Relaxed); // Relaxed: published with the name.
    }
}

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
//!   rename or a second name would have set the change time;
//! - or was listed ([`super::listing`]), in a directory that had not changed since the layer was laid. Its
//!   inode existed then, too, but may have had a second name, which was seen, and has lost it since.
//!   [`Numbers::chain`] leads to that one.
//!
//! Numbers never change: whatever becomes of the name, the number is the inode's ([`Inode::number`]).

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, Result};
use lp_region::InodeId;
use lp_region::records::{ABOVE_LAYER, Inode};
use lp_region::sync::Ordering::Relaxed;

use crate::below::links::{self, Chain};
use crate::below::list::{self, Record, RecordAt};
use crate::caller::task::{Task, Time};
use crate::inodes::inode;

/// Begins to number the inodes of the region above those of layers. Nobody else may use the region yet.
pub(super) fn prepare(task: &Task<'_>) {
    task.region.header().numbers.store(ABOVE_LAYER, Relaxed); // Relaxed: the caller is alone.
}

/// Decides on the numbers of a directory's names.
pub(super) struct Numbers {
    /// The change time that is too late; `None` if no name gets the layer's number.
    before: Option<Time>,
    /// The directory's device.
    dev: u64,
    /// The table of files with several links.
    table: InodeId,
}

impl Numbers {
    /// The numbers of the names in `dir`, whose record is at `at`.
    ///
    /// # Errors
    /// As [`links::table`] and [`list::record`].
    pub(super) fn of(task: &Task<'_>, dir: InodeId, at: RecordAt) -> Result<Numbers> {
        let number = task.region.inode(dir).number.load(Relaxed); // Relaxed: immutable.
        let (table, dev) = (links::table(task)?, list::record(task.region, at)?.dev);
        let before = (number < ABOVE_LAYER).then(|| links::laid(task.region, table));
        Ok(Numbers { before, dev, table })
    }

    /// Decides on a name that was just seen. `seen` has the layer's number if the name is on the mount and
    /// device of its directory, else 0.
    pub(super) fn decide(&self, seen: &mut Record) {
        if seen.number >= ABOVE_LAYER || !self.is_before(change_time(seen)) {
            seen.number = 0;
        }
    }

    /// [`Numbers::decide`] for a name that was listed with a number. Whatever has that number is older than
    /// the layer, even if it has changed since.
    pub(super) fn decide_listed(&self, seen: &mut Record, listed: u64) {
        if seen.number != listed {
            self.decide(seen);
        }
    }

    /// The number to list for a name that is no directory and has `number` in the layer: that of the inode
    /// that stands for it, if one does by another name.
    ///
    /// # Errors
    /// As [`list::record`]; `ENODATA` if the name must be looked at.
    pub(super) fn listed(&self, task: &Task<'_>, number: u64) -> Result<u64> {
        if number >= ABOVE_LAYER {
            return Err(Errno::ENODATA);
        }
        let known = Chain::of(task.region, self.table, (self.dev, number))?.find()?;
        Ok(known.map_or(number, |known| inode::number(task.region, known.id)))
    }

    /// Whether what changed last at a time has not changed since the layer was laid. Always false if no name
    /// gets the layer's number.
    pub(super) fn is_before(&self, changed: Time) -> bool {
        self.before.is_some_and(|before| changed < before)
    }

    /// The chain in which what a name denotes is found, if it may have another name. One that has changed
    /// since the layer was laid and shows the layer's number all the same may have had one.
    ///
    /// # Errors
    /// `EIO` if there is no table.
    pub(super) fn chain<'r>(&self, task: &Task<'r>, seen: &Record) -> Result<Option<Chain<'r>>> {
        let is_dir = seen.mode & S_IFMT == S_IFDIR;
        let had = !is_dir && seen.number != 0 && !self.is_before(change_time(seen));
        let chain = || Chain::of(task.region, self.table, (seen.dev, seen.ino));
        (links::may_have(seen) || had).then(chain).transpose()
    }
}

fn change_time(seen: &Record) -> Time {
    Time { sec: seen.seconds[2], nsec: seen.nanoseconds[2] }
}

/// Gives an inode that nobody uses yet the number that its record says.
pub(super) fn assign(inode: &Inode, seen: &Record) {
    if seen.number != 0 {
        inode.number.store(seen.number, Relaxed); // Relaxed: published with the name.
    }
}

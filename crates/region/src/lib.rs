//! Shared memory that survives its users: the records of a Lightpath region, slots, lanes, locks, liveness.
//!
//! This crate knows what the records are and how they are guarded; what a directory or a read *means* is
//! `lp-vfs`'s.
//!
//! ```
//! use lp_region::sync::Ordering;
//! use lp_region::{Geometry, InodeId, Region};
//!
//! let geometry = Geometry { data_bytes: 1 << 20, inodes: 100, identity: 7 };
//! let region = Region::create_private(&geometry).expect("memory");
//! assert_eq!(region.header().data_pages.load(Ordering::Relaxed), 256);
//! assert_eq!(region.inode(InodeId(1)).nlink.load(Ordering::Relaxed), 0);
//! // SAFETY: nothing that came from the region is used afterwards.
//! unsafe { region.unmap() };
//! ```
#![deny(unsafe_code)]
#![warn(unreachable_pub)]
#![no_std]

mod alive;
mod locks;
mod mapped;
mod mounts;
mod user;
mod words;

pub mod ids;
pub mod layout;
pub mod records;
#[allow(unsafe_code, reason = "system calls and a prefetch")]
pub mod sync;
#[allow(unsafe_code, reason = "maps the rings and leads to their records")]
pub mod trace;

pub use alive::{life_file, liveness, machine, onlooker};
pub use ids::*;
pub use locks::{bias, lock};
pub use mapped::region::{FirstPage, Front, Geometry, Region, RegionError};
pub use mapped::{backing, depot, region, slab, standing};
pub use mounts::{mount_change, mount_leave, mount_state};
pub use records::{lane, mount, order, process};
pub use user::{cpu, extensible, statx, ucopy};
pub use words::{
    beside, bucket, custody, life, marks, moving, quiescent, ring, seq, shape, signed, split, stack,
    validated,
};

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

#[allow(unsafe_code, reason = "system calls")]
pub mod backing;
pub mod beside;
pub mod bias;
pub mod bucket;
#[allow(unsafe_code, reason = "reads a register by assembly")]
pub mod cpu;
pub mod custody;
pub mod depot;
#[allow(unsafe_code, reason = "reads the program's memory")]
pub mod extensible;
pub mod ids;
pub mod lane;
pub mod layout;
pub mod life;
#[allow(unsafe_code, reason = "system calls")]
pub mod life_file;
#[allow(unsafe_code, reason = "system calls")]
pub mod liveness;
pub mod lock;
#[allow(unsafe_code, reason = "system calls")]
pub mod machine;
pub mod marks;
pub mod mount;
pub mod mount_change;
pub mod mount_leave;
pub mod mount_state;
pub mod moving;
pub mod onlooker;
#[allow(unsafe_code, reason = "a stack for each lane, which one thread has")]
pub mod order;
#[allow(unsafe_code, reason = "views of bytes that do not change")]
pub mod process;
pub mod records;
#[allow(unsafe_code, reason = "maps the region and leads to its records")]
pub mod region;
pub mod ring;
pub mod seq;
pub mod shape;
pub mod signed;
#[allow(unsafe_code, reason = "links free slots through their own bytes")]
pub mod slab;
pub mod split;
pub mod stack;
pub mod statx;
#[allow(unsafe_code, reason = "system calls and a prefetch")]
pub mod sync;
#[allow(unsafe_code, reason = "maps the rings and leads to their records")]
pub mod trace;
#[allow(unsafe_code, reason = "touches the program's memory")]
#[cfg_attr(miri, path = "ucopy_miri.rs")]
pub mod ucopy;
pub mod validated;

pub use ids::*;
pub use region::{FirstPage, Front, Geometry, Region, RegionError};

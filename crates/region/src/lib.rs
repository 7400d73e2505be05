//! Shared memory that survives its users: the records of a Lightpath region, slots, lanes, locks, liveness.
//!
//! This crate defines the records and how they are guarded. `lp-vfs` defines what a directory or a read
//! *means*.
#![no_std]

pub mod backing;
pub mod bias;
pub mod bucket;
pub mod cpu;
pub mod custody;
pub mod depot;
pub mod ids;
pub mod lane;
pub mod layout;
pub mod life;
pub mod life_file;
pub mod liveness;
pub mod lock;
pub mod machine;
pub mod marks;
pub mod mount;
pub mod moving;
pub mod onlooker;
pub mod process;
pub mod records;
pub mod region;
pub mod ring;
pub mod seq;
pub mod shape;
pub mod signed;
pub mod slab;
pub mod split;
pub mod stack;
pub mod sync;
pub mod trace;
pub mod ucopy;
pub mod validated;

pub use ids::*;
pub use region::{Front, Geometry, Region, RegionError};

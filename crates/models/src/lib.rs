//! The lock-free algorithms of Lightpath under loom: every interleaving and every outcome that the memory
//! model allows, run on the source files that ship, compiled against loom's atomics.
//!
//! A model that cannot fail proves nothing, so each is run again with orderings weakened ([`sync::weakened`])
//! and must then find the fault.
#![forbid(unsafe_code)]
#![allow(
    clippy::absurd_extreme_comparisons,
    clippy::reversed_empty_ranges,
    reason = "models do not spin: LOCK_SPINS is 0"
)]

pub mod sync;

#[path = "../../region/src/words/beside.rs"]
pub mod beside;
#[path = "../../region/src/locks/bias.rs"]
pub mod bias;
#[path = "../../region/src/words/bucket.rs"]
pub mod bucket;
#[path = "../../region/src/words/custody.rs"]
pub mod custody;
#[path = "../../region/src/ids.rs"]
pub mod ids;
#[path = "../../region/src/layout.rs"]
pub mod layout;
#[path = "../../region/src/locks/lock.rs"]
pub mod lock;
#[path = "../../region/src/words/marks.rs"]
pub mod marks;
#[path = "../../region/src/mounts/mount_change.rs"]
pub mod mount_change;
#[path = "../../region/src/mounts/mount_leave.rs"]
pub mod mount_leave;
#[path = "../../region/src/mounts/mount_state.rs"]
pub mod mount_state;
#[path = "../../region/src/words/moving.rs"]
pub mod moving;
#[path = "../../region/src/words/quiescent.rs"]
pub mod quiescent;
#[path = "../../region/src/words/ring.rs"]
pub mod ring;
#[path = "../../region/src/words/seq.rs"]
pub mod seq;
#[path = "../../region/src/words/shape.rs"]
pub mod shape;
#[path = "../../region/src/words/signed.rs"]
pub mod signed;
#[path = "../../region/src/words/split.rs"]
pub mod split;
#[path = "../../region/src/words/stack.rs"]
pub mod stack;
#[path = "../../region/src/words/validated.rs"]
pub mod validated;

//! Lock-free algorithms on one word or a few. `crates/models` compiles these very files and has their models.
//!
//! Every other room may use it. It takes no lock.

pub mod beside;
pub mod bucket;
pub mod custody;
pub mod life;
pub mod marks;
pub mod moving;
pub mod quiescent;
pub mod ring;
pub mod seq;
pub mod shape;
pub mod signed;
pub mod split;
pub mod stack;
pub mod validated;

//! What the gate keeps for the process ([`home`]) and for each thread ([`record`], [`pool`]), and how a
//! thread finds its own record ([`tls`], [`current`]).
//!
//! All of it is private memory: no lock, and no other process. A thread's record belongs to that thread
//! alone.

pub mod actions;
pub mod current;
pub mod home;
pub mod lend;
pub mod pending;
pub mod pool;
pub mod record;
pub mod room;
pub mod settings;
pub mod tls;

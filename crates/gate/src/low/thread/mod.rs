//! What the gate keeps for the process ([`home`]) and for each thread ([`record`], [`pool`]), and how a
//! thread finds its own record ([`tls`], [`current`]).
//!
//! All of it is private memory: no lock, and no other process. A thread's record belongs to that thread
//! alone.

pub(crate) mod actions;
pub(crate) mod current;
pub(crate) mod home;
pub(crate) mod lend;
pub(crate) mod pending;
pub(crate) mod pool;
pub(crate) mod record;
pub(crate) mod room;
pub(crate) mod settings;
pub(crate) mod tls;

//! Dispatch tables: all calls ([`calls`]), those of a process that is apart ([`apart`]) or has limited itself
//! ([`limited`]), and counted calls ([`count`]).

pub mod apart;
pub mod calls;
pub mod count;
pub mod limited;

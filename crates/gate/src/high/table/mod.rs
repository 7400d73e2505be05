//! Dispatch tables: all calls ([`calls`]), those of a process that is apart ([`apart`]) or has limited itself
//! ([`limited`]), which look at a call's [`arguments`], and counted calls ([`count`]).

pub mod apart;
pub mod arguments;
pub mod calls;
pub mod count;
pub mod limited;

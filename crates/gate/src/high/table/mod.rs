//! Dispatch tables: all calls ([`calls`]), those of a process that is apart ([`apart`]) or has limited itself
//! ([`limited`]), which examine a call's [`arguments`], counted calls ([`count`]) and traced ones
//! ([`traced`]).

pub mod apart;
pub mod arguments;
pub mod calls;
pub mod count;
pub(crate) mod holed;
pub mod limited;
pub mod traced;

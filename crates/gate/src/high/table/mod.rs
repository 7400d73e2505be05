//! Dispatch tables: all calls ([`calls`]), those of a process that is apart ([`apart`]) or has limited itself
//! ([`limited`]) or is in a user namespace or has restricted itself ([`mapped`], [`held`]), which examine a
//! call's [`arguments`], counted calls ([`count`]), traced ones ([`traced`]) and the first call of a fork's
//! child ([`unused`]).

pub(crate) mod apart;
pub(crate) mod arguments;
pub mod calls;
pub(crate) mod count;
pub(crate) mod held;
pub(crate) mod holed;
pub(crate) mod limited;
pub(crate) mod mapped;
pub(crate) mod traced;
pub(crate) mod unused;

//! The command line: its definition, from which parser, help, manual page and completions derive, what is
//! said of a wrong one, and the dispatch to the subcommands, on a stack that is large enough.

mod complaint;
mod definition;
pub(crate) mod dispatch;
mod manual;
pub(crate) mod stack;

//! The command line: its definition, from which the parser, the help, the manual page and the completions
//! derive; what is said of a wrong one; and who does what a right one says.

mod complaint;
mod definition;
pub(crate) mod dispatch;
mod manual;

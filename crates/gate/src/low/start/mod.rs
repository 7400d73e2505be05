//! What happens before the program's first instruction: [`attach`], called by the dynamic linker;
//! [`auditor`], if the gate is loaded by LD_AUDIT; [`standalone`], which starts static programs.
//!
//! The process has one thread.

pub mod attach;
pub mod auditor;
pub mod process_calls;
pub(crate) mod process_name;
pub mod standalone;

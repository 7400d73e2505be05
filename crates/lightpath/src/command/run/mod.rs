//! Runs: the one that this process begins, joins or takes part in, and those under way on the machine.

pub(crate) mod claim;
pub(crate) mod counts;
pub(crate) mod join;
mod part;
pub(crate) mod record;
mod roots;
pub(crate) mod under_way;

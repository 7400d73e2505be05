//! Routing of paths: whether a path is ours ([`path`]), calls that take two ([`pair`]), host links into a
//! mount ([`hostlink`]), magic links under /proc and /dev ([`magic`]) and in a procfs `elsewhere`, the
//! kernel's own directories in a run over the root directory ([`kernels`]), what is `absolute`, and where the
//! dynamic linker will look ([`libraries`]). Takes no lock.

mod absolute;
mod elsewhere;
pub(crate) mod hostlink;
pub(crate) mod kernels;
pub(crate) mod libraries;
pub(crate) mod link_mode;
pub(crate) mod magic;
pub(crate) mod pair;
pub(crate) mod path;
pub(crate) mod rooted;

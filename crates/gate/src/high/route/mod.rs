//! Routing of paths: whether a path is ours ([`path`]), host links into a mount ([`hostlink`]), magic links
//! under /proc and /dev ([`magic`]), and where the dynamic linker will look ([`libraries`]). Takes no lock.

pub mod hostlink;
pub mod libraries;
pub mod magic;
pub mod path;

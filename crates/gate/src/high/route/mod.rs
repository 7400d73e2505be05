//! Paths: whose a path is ([`path`]), links of the host into a mount ([`hostlink`]), magic links under /proc
//! and /dev ([`magic`]), and where the dynamic linker will look ([`libraries`]). Takes no lock.

pub mod hostlink;
pub mod libraries;
pub mod magic;
pub mod path;

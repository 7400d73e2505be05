//! ELF: files that are about to be executed or mapped ([`elf`]), and the objects that the dynamic linker has
//! loaded ([`objects`]); the headers of an outline ([`layout`]). Maps nothing; everyone may call it.

pub(crate) mod elf;
pub(crate) mod layout;
pub mod objects;

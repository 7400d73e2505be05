//! ELF: files that are about to be executed or mapped ([`elf`]), and the objects that the dynamic linker has
//! loaded ([`objects`]). Reads only; everyone may call it.

pub(crate) mod elf;
pub mod objects;

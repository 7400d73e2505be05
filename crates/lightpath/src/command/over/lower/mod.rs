//! What `--over` can name: a directory of the host, an archive or a frozen region.
//!
//! An archive and a frozen region are unpacked once, into the directory of their session; the session is over
//! that directory. A tree is unpacked under a temporary name and gets its own once it is whole.

pub(super) mod form;
mod keep;
mod region;
mod tar;
mod unpack;
mod unpacking;
mod why;
mod zip;

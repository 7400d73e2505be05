//! The variables by which an image hears of the gate, and the parts of LIGHTPATH_GATE's value.

pub(crate) const PRELOAD: &[u8] = b"LD_PRELOAD=";
pub(crate) const AUDIT: &[u8] = b"LD_AUDIT=";
pub(crate) const LIBRARY_PATH: &[u8] = b"LD_LIBRARY_PATH=";
pub(crate) const GATE: &[u8] = b"LIGHTPATH_GATE=";
/// How it starts when the new image is to set its signal mask, which follows in hexadecimal: see
/// [`crate::low::exec::run::run`].
pub(crate) const MASK: &[u8] = b"m0000000000000000:";
/// How the value of LIGHTPATH_GATE ends when the gate comes as an auditor.
pub(crate) const AUDITS: &[u8] = b":audit";
/// How it ends when the gate comes within the C library.
pub(crate) const WITHIN: &[u8] = b":within";
/// What stands in it before the descriptor of a static program, which a colon and its path follow.
pub(crate) const STATIC: &[u8] = b":static:";

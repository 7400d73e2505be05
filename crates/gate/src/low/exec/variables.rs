//! The variables that tell an image of the gate, and the parts of LIGHTPATH_GATE's value.

pub(crate) const PRELOAD: &[u8] = b"LD_PRELOAD=";
pub(crate) const AUDIT: &[u8] = b"LD_AUDIT=";
pub(crate) const LIBRARY_PATH: &[u8] = b"LD_LIBRARY_PATH=";
/// Directories of libraries that the C library itself loads, for iconv(3).
pub(crate) const CONVERTERS: &[u8] = b"GCONV_PATH=";
pub(crate) const GATE: &[u8] = b"LIGHTPATH_GATE=";
/// Start of the value if the new image must set its signal mask, given in hexadecimal: see
/// [`crate::low::exec::run::run`].
pub(crate) const MASK: &[u8] = b"m0000000000000000:";
/// End of the value if the gate is loaded as an auditor.
pub(crate) const AUDITS: &[u8] = b":audit";
/// End of the value if the gate is within the C library.
pub(crate) const WITHIN: &[u8] = b":within";
/// Precedes the descriptor of a static program, which a colon and what names the program follow.
pub(crate) const STATIC: &[u8] = b":static:";
/// Precedes what names a program that was given an outline. The gate is within the C library, too.
pub(crate) const OUTLINE: &[u8] = b":outline:";
/// Precedes what names a program whose file the kernel has got by a descriptor or another path.
pub(crate) const NAMED: &[u8] = b":named:";
/// Precedes the path under which a program was executed.
pub(crate) const BY_PATH: u8 = b'p';
/// The same for a program that was named by its descriptor alone; the path is the kernel's for it.
pub(crate) const BY_DESCRIPTOR: u8 = b'd';

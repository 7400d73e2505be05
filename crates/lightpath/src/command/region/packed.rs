//! How packed regions begin, and what to say of one where a region is needed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::command::output::failure::{Failure, REGION};

/// Frames that zstd's decompressors skip begin with this.
pub(crate) const SKIPPED: u32 = 0x184d_2a50;
/// What is in the first frame.
pub(crate) const MAGIC: &[u8; 8] = b"LPPACK1\n";
/// The rest of a line that begins with the name of a packed region.
pub(crate) const PACKED: &str = "is packed: see lightpath unpack";

/// Whether a file that begins with these bytes is a packed region.
pub(crate) fn is_packed(head: &[u8]) -> bool {
    head.starts_with(&SKIPPED.to_le_bytes()) && head.get(8..16) == Some(MAGIC)
}

/// Fails for a packed region.
///
/// # Errors
/// One line that says what to do with it.
pub(crate) fn refuse_packed(file: &File, name: &str) -> Result<(), Failure> {
    let mut head = [0; 16];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) if is_packed(&head) => Err(Failure::new(REGION, format!("{name} {PACKED}"))),
        _ => Ok(()),
    }
}

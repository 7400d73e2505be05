//! [`Form`]: of which kind a file is that `--over` names, by its first bytes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use lp_region::layout::MAGIC;

use crate::command::region::packed::{PACKED, is_packed};

/// Bytes of a header of tar(5).
const HEADER: usize = 512;
/// Where a header of tar(5) has its checksum, in octal.
const SUM: std::ops::Range<usize> = 148..156;

/// The form of a file with a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Tar,
    TarGz,
    TarZst,
    Zip,
    /// What `lightpath freeze` makes.
    Frozen,
}

impl Form {
    /// The form of the file at `path`; the error is the rest of a line.
    pub(crate) fn of(path: &Path) -> io::Result<Result<Form, &'static str>> {
        // A FIFO is not waited for.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
            return Ok(Err(NONE));
        }
        let mut head = Vec::new();
        file.take(HEADER as u64).read_to_end(&mut head)?;
        Ok(Form::begins(&head))
    }

    fn begins(head: &[u8]) -> Result<Form, &'static str> {
        match head {
            [0x1f, 0x8b, ..] => Ok(Form::TarGz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Form::TarZst),
            [b'P', b'K', 3 | 5, 4 | 6, ..] => Ok(Form::Zip),
            _ if head.starts_with(&MAGIC.to_ne_bytes()) => Ok(Form::Frozen),
            _ if is_packed(head) => Err(PACKED),
            _ if is_tar(head) => Ok(Form::Tar),
            _ => Err(NONE),
        }
    }
}

const NONE: &str = "Not a directory, and no tar, tar.gz, tar.zst, zip or frozen region";

/// Whether these are a header with a right checksum, or the end of an archive without members.
fn is_tar(head: &[u8]) -> bool {
    if head.len() < HEADER {
        return false;
    }
    let text = String::from_utf8_lossy(&head[SUM]);
    let wanted = u32::from_str_radix(text.trim_matches(|c: char| c == '\0' || c == ' '), 8);
    // The checksum itself counts as blanks.
    let sum = head.iter().enumerate();
    let sum: u32 = sum.map(|(at, byte)| if SUM.contains(&at) { 32 } else { u32::from(*byte) }).sum();
    wanted == Ok(sum) || head.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell() {
        let mut header = tar::Header::new_ustar();
        header.set_size(0);
        header.set_cksum();
        let mut bytes = *header.as_bytes();
        assert_eq!(Form::begins(&bytes), Ok(Form::Tar));
        bytes[0] ^= 1;
        assert_eq!(Form::begins(&bytes), Err(NONE));
        assert_eq!(Form::begins(&[0; HEADER]), Ok(Form::Tar));
        assert_eq!(Form::begins(&[]), Err(NONE));
        assert_eq!(Form::begins(b"PK\x05\x06"), Ok(Form::Zip));
        assert_eq!(Form::begins(b"LIGHTPTH"), Ok(Form::Frozen));
    }
}

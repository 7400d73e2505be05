//! Scripts: files whose first line, after `#!`, names what executes them.

use core::ops::Range;

/// Bytes of a file by which the kernel knows how to execute it (`BINPRM_BUF_SIZE`).
pub const LINE: usize = 256;

/// The paths of the interpreter and of its argument in the first line of a `#!` file, as ranges in `head`.
/// The kernel's rules (load_script): blanks before and after the path are skipped; the rest of the line,
/// without trailing blanks, is one argument. If the first 256 bytes do not end the line, 255 of them count, and
/// a path that may have been cut off there is refused.
pub fn interpreter(head: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let line = head[..head.len().min(LINE)].strip_prefix(b"#!")?;
    let end = match line.iter().position(|byte| *byte == b'\n' || *byte == 0) {
        Some(end) => end,
        None if head.len() < LINE => line.len(),
        None => {
            line.iter().skip_while(|byte| blank(byte)).position(blank)?;
            line.len() - 1
        }
    };
    let line = &line[..end];
    let end = line.len() - line.iter().rev().take_while(|byte| blank(byte)).count();
    let start = line.iter().take_while(|byte| blank(byte)).count();
    let path = line.get(start..end)?;
    if path.is_empty() {
        return None;
    }
    let path_end = start + path.iter().position(blank).unwrap_or(path.len());
    let argument = path_end + line[path_end..end].iter().take_while(|byte| blank(byte)).count();
    Some((2 + start..2 + path_end, 2 + argument..2 + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(head: &[u8]) -> Option<(&[u8], &[u8])> {
        interpreter(head).map(|(path, argument)| (&head[path], &head[argument]))
    }

    #[test]
    fn the_line_is_taken_as_the_kernel_does() {
        assert_eq!(parts(b"#!/bin/sh\nrest"), Some((&b"/bin/sh"[..], &b""[..])));
        assert_eq!(parts(b"#! /usr/bin/env python3 -s \n"), Some((&b"/usr/bin/env"[..], &b"python3 -s"[..])));
        assert_eq!(parts(b"#!\n/bin/sh"), None);
        assert_eq!(parts(b"# comment"), None);
    }

    #[test]
    fn a_path_that_may_be_cut_off_is_none() {
        let head = [&b"#!/"[..], &[b'a'; LINE]].concat();
        assert_eq!(parts(&head), None);
        assert_eq!(parts(&head[..LINE - 1]), Some((&head[2..LINE - 1], &b""[..])));
    }
}

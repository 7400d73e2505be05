//! Scripts: files whose first line, after `#!`, names what executes them.

use core::ops::Range;

/// Bytes of a file by which the kernel knows how to execute it (`BINPRM_BUF_SIZE`).
pub const LINE: usize = 256;

/// The path of the interpreter and its argument, if it gets one, in the first line of a `#!` file, as ranges
/// in `head`. The kernel's rules (load_script): blanks before and after the path are skipped; the rest of the
/// line is one argument. Blanks at its end are left out, unless the file or a NUL ends the line: then the
/// path or the argument may be empty, too. If the first 256 bytes do not end the line, 255 of them count, and
/// a path that may have been cut off there is refused.
pub fn interpreter(head: &[u8]) -> Option<(Range<usize>, Option<Range<usize>>)> {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let blanks = |bytes: &[u8]| bytes.iter().take_while(|byte| blank(byte)).count();
    let line = &head[..head.len().min(LINE)];
    let text = line.strip_prefix(b"#!")?;
    let end = match line.iter().position(|byte| *byte == b'\n' || *byte == 0) {
        Some(end) => end,
        None if line.len() < LINE => line.len(),
        None => {
            text.iter().skip_while(|byte| blank(byte)).position(blank)?;
            LINE - 1
        }
    };
    let is_trimmed = line.get(end) == Some(&b'\n') || end == LINE - 1;
    let text = &line[2..end];
    let after = if is_trimmed { text.iter().rev().take_while(|byte| blank(byte)).count() } else { 0 };
    let end = end - after;
    let start = (2 + blanks(text)).min(end);
    if start == end && is_trimmed {
        return None;
    }
    let path_end = start + line[start..end].iter().position(blank).unwrap_or(end - start);
    let argument = (path_end < end).then(|| path_end + blanks(&line[path_end..end])..end);
    Some((start..path_end, argument))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        interpreter(head).map(|(path, argument)| (&head[path], argument.map(|argument| &head[argument])))
    }

    #[test]
    fn the_line_is_taken_as_the_kernel_does() {
        assert_eq!(parts(b"#!/bin/sh\nrest"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(
            parts(b"#! /usr/bin/env python3 -s \n"),
            Some((&b"/usr/bin/env"[..], Some(&b"python3 -s"[..])))
        );
        assert_eq!(parts(b"#!\n/bin/sh"), None);
        assert_eq!(parts(b"#! \t\n/bin/sh"), None);
        assert_eq!(parts(b"# comment"), None);
    }

    #[test]
    fn a_line_without_an_end_keeps_its_blanks() {
        assert_eq!(parts(b"#!sh a  "), Some((&b"sh"[..], Some(&b"a  "[..]))));
        assert_eq!(parts(b"#!sh \0b\n"), Some((&b"sh"[..], Some(&b""[..]))));
        assert_eq!(parts(b"#!sh\0 b\n"), Some((&b"sh"[..], None)));
        assert_eq!(parts(b"#! "), Some((&b""[..], None)));
    }

    #[test]
    fn a_path_that_may_be_cut_off_is_none() {
        let head = [&b"#!/"[..], &[b'a'; LINE]].concat();
        assert_eq!(parts(&head), None);
        assert_eq!(parts(&head[..LINE - 1]), Some((&head[2..LINE - 1], None)));
    }
}

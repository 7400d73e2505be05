//! A call as a line, in strace's format.

use std::io::{self, Write};

use lp_abi::Errno;
use lp_abi::linux::*;
use lp_abi::signature::{Parameter, SHOWN_OF_STAT, arguments};
use lp_region::trace::{DATA, NO_RESULT};

use super::name;
use super::reader::{Call, Sink};

/// Column of the result.
const RESULT: usize = 40;
/// A call that begins anew after a signal's handler, as strace names it.
const RESTART: i64 = -512;

/// Bytes of lines that are written at once.
const CHUNK: usize = 1 << 16;

/// Prints a line for each call.
pub(super) struct Lines<W> {
    out: W,
    /// Whether each line starts with the thread's id, as in strace's files.
    is_file: bool,
    /// The command's id, whose lines need none elsewhere.
    first: u32,
    /// Lines that are not written yet.
    lines: Vec<u8>,
}

impl<W> Lines<W> {
    pub(super) fn new(out: W, is_file: bool, first: u32) -> Lines<W> {
        Lines { out, is_file, first, lines: Vec::with_capacity(2 * CHUNK) }
    }
}

impl<W: Write> Lines<W> {
    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.lines)?;
        self.lines.clear();
        Ok(())
    }
}

impl<W: Write + Send + 'static> Sink for Lines<W> {
    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        let start = self.lines.len();
        match call.tid {
            tid if self.is_file => {
                decimal(u64::from(tid), &mut self.lines);
                pad(&mut self.lines, start + 5);
                self.lines.push(b' ');
            }
            tid if tid != self.first => write!(self.lines, "[pid {tid:>5}] ")?,
            _ => {}
        }
        describe(call, start, &mut self.lines)?;
        self.lines.push(b'\n');
        if self.lines.len() >= CHUNK { self.write() } else { Ok(()) }
    }

    fn pause(&mut self) -> io::Result<()> {
        self.write()?;
        self.out.flush()
    }

    fn end(&mut self, lost: u64) -> io::Result<()> {
        self.write()?;
        say_lost(&mut self.out, lost)?;
        self.out.flush()
    }
}

fn decimal(number: u64, line: &mut Vec<u8>) {
    let mut room = [0; 20];
    line.extend_from_slice(lp_abi::text::decimal(number, &mut room));
}

fn signed(number: i64, line: &mut Vec<u8>) {
    if number < 0 {
        line.push(b'-');
    }
    decimal(number.unsigned_abs(), line);
}

/// Appends spaces up to a length.
fn pad(line: &mut Vec<u8>, length: usize) {
    if line.len() < length {
        line.resize(length, b' ');
    }
}

pub(super) fn say_lost(out: &mut impl Write, lost: u64) -> io::Result<()> {
    match lost {
        0 => Ok(()),
        lost => {
            writeln!(out, "lightpath: {lost} calls of processes with a filter (seccomp) were not recorded")
        }
    }
}

/// Appends a call to `line`, which begins at `start`.
fn describe(call: &Call<'_>, start: usize, line: &mut Vec<u8>) -> io::Result<()> {
    line.extend_from_slice(name(call.number).as_bytes());
    line.push(b'(');
    let kinds = arguments(call.number);
    let mut is_first = true;
    for (number, kind) in kinds.iter().enumerate() {
        if *kind == Parameter::None || *kind == Parameter::OpenMode && !creates(call.words[number - 1]) {
            continue;
        }
        if !is_first {
            line.extend_from_slice(b", ");
        }
        is_first = false;
        argument(call, number, *kind, line)?;
    }
    line.extend_from_slice(b") ");
    pad(line, start + RESULT);
    line.extend_from_slice(b"= ");
    result(call, line)
}

fn creates(flags: u64) -> bool {
    flags as u32 & O_CREAT != 0 || flags as u32 & O_TMPFILE == O_TMPFILE
}

fn result(call: &Call<'_>, line: &mut Vec<u8>) -> io::Result<()> {
    match call.result {
        NO_RESULT => line.push(b'?'),
        RESTART => write!(line, "? ERESTARTSYS (To be restarted if SA_RESTART is set)")?,
        error @ -4095..0 => {
            let errno = Errno::new(-error as i32);
            let text = super::reason(&io::Error::from_raw_os_error(errno.number()));
            write!(line, "-1 {errno:?} ({text})")?;
        }
        address if [__NR_mmap, __NR_mremap].contains(&call.number) => write!(line, "{address:#x}")?,
        mode if call.number == __NR_umask => write!(line, "{mode:#o}")?,
        value => signed(value, line),
    }
    Ok(())
}

fn argument(call: &Call<'_>, number: usize, kind: Parameter, line: &mut Vec<u8>) -> io::Result<()> {
    let word = call.words[number];
    let found =
        call.found.iter().flatten().find(|(argument, _)| *argument == number).map(|(_, bytes)| *bytes);
    match kind {
        Parameter::None => {}
        Parameter::DirFd if word as i32 == AT_FDCWD => line.extend_from_slice(b"AT_FDCWD"),
        Parameter::Fd | Parameter::DirFd => signed(i64::from(word as i32), line),
        Parameter::Number => signed(word as i64, line),
        Parameter::Hex => hex(word, line)?,
        Parameter::Path | Parameter::In | Parameter::Out => match found {
            Some(bytes) => quote(bytes, kind == Parameter::Path, line)?,
            None if kind == Parameter::Out && call.result == 0 => line.extend_from_slice(b"\"\""),
            None => address(word, line)?,
        },
        Parameter::Stat => match found.and_then(|bytes| attributes(bytes, line)) {
            Some(written) => written?,
            None => address(word, line)?,
        },
        Parameter::Address => address(word, line)?,
        Parameter::Mode | Parameter::OpenMode => write!(line, "{}", mode(word as u32))?,
        Parameter::OpenFlags => write!(line, "{}", open_flags(word as u32))?,
        Parameter::AtFlags => write!(line, "{}", flags(word as u32, at_flags(call.number)))?,
        Parameter::Access => write!(line, "{}", access(word as u32))?,
        Parameter::Whence => write!(line, "{}", one_of(word as u32, WHENCES))?,
        Parameter::RenameFlags => write!(line, "{}", flags(word as u32, RENAME_FLAGS))?,
        Parameter::Fcntl => write!(line, "{}", one_of(word as u32, COMMANDS))?,
        Parameter::Flock => write!(line, "{}", flags(word as u32, FLOCKS))?,
    }
    Ok(())
}

type Names = &'static [(u32, &'static str)];

macro_rules! names {
    ($($name:ident)*) => { &[$(($name as u32, stringify!($name))),*] };
}

const OPEN_FLAGS: Names = names! {
    O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC FASYNC O_DIRECT O_LARGEFILE
    O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH O_TMPFILE O_DIRECTORY
};
const AT_FLAGS: Names = names! { AT_SYMLINK_NOFOLLOW AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH };
const AT_FLAGS_OF_UNLINK: Names = names! { AT_REMOVEDIR };
const AT_FLAGS_OF_ACCESS: Names = names! { AT_SYMLINK_NOFOLLOW AT_EACCESS AT_EMPTY_PATH };
const WHENCES: Names = names! { SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE };
const RENAME_FLAGS: Names = names! { RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT };
const COMMANDS: Names = names! {
    F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN F_OFD_GETLK F_OFD_SETLK
    F_OFD_SETLKW F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS
};
const FLOCKS: Names = names! { LOCK_SH LOCK_EX LOCK_NB LOCK_UN };
const TYPES: Names = names! { S_IFREG S_IFDIR S_IFLNK S_IFCHR S_IFBLK S_IFIFO S_IFSOCK };

#[allow(non_upper_case_globals)]
fn at_flags(number: u32) -> Names {
    match number {
        __NR_unlinkat => AT_FLAGS_OF_UNLINK,
        __NR_faccessat2 => AT_FLAGS_OF_ACCESS,
        _ => AT_FLAGS,
    }
}

/// The names of the bits that are set, and what is left in hexadecimal.
fn flags(word: u32, names: Names) -> String {
    let mut left = word;
    let mut text = Vec::new();
    for (bits, name) in names {
        if left & bits == *bits {
            left &= !bits;
            text.push((*name).to_owned());
        }
    }
    if left != 0 || text.is_empty() {
        text.push(number(left));
    }
    text.join("|")
}

fn one_of(word: u32, names: Names) -> String {
    names
        .iter()
        .find(|(value, _)| *value == word)
        .map_or_else(|| number(word), |(_, name)| (*name).to_owned())
}

fn open_flags(word: u32) -> String {
    let access = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"][(word & O_ACCMODE) as usize];
    // Bits of several names: the wider one first.
    let mut left = word & !O_ACCMODE;
    let mut text = vec![access.to_owned()];
    let wide: Names = names! { O_TMPFILE O_SYNC };
    for (bits, name) in wide.iter().chain(OPEN_FLAGS) {
        if *bits != 0 && left & bits == *bits {
            left &= !bits;
            text.push((*name).to_owned());
        }
    }
    if left != 0 {
        text.push(number(left));
    }
    text.join("|")
}

fn access(word: u32) -> String {
    const NAMES: Names = &[(4, "R_OK"), (2, "W_OK"), (1, "X_OK")];
    if word == 0 { "F_OK".to_owned() } else { flags(word, NAMES) }
}

/// Type and permissions: the type by name, the rest in octal with a zero in front.
fn mode(word: u32) -> String {
    let permissions = word & !S_IFMT;
    let octal = format!("{:0>3}", format!("0{permissions:o}"));
    match word & S_IFMT {
        0 => octal,
        kind => format!("{}|{octal}", one_of(kind, TYPES)),
    }
}

/// Appends what the shown part of a `struct stat` says, if it is one.
fn attributes(bytes: &[u8], line: &mut Vec<u8>) -> Option<io::Result<()>> {
    let long = |at: usize| {
        let at = at - SHOWN_OF_STAT.start;
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let kind = long(core::mem::offset_of!(stat, st_mode))? as u32;
    let size = long(core::mem::offset_of!(stat, st_size))?;
    let device = long(core::mem::offset_of!(stat, st_rdev))?;
    line.extend_from_slice(b"{st_mode=");
    let written = match kind & S_IFMT {
        S_IFREG => write!(line, "S_IFREG|0{:02o}, ", kind & !S_IFMT),
        _ => write!(line, "{}, ", mode(kind)),
    };
    Some(written.and_then(|()| match kind & S_IFMT {
        S_IFCHR | S_IFBLK => {
            let (major, minor) = (libc::major(device), libc::minor(device));
            write!(line, "st_rdev=makedev({major:#x}, {minor:#x}), ...}}")
        }
        _ => {
            line.extend_from_slice(b"st_size=");
            decimal(size, line);
            line.extend_from_slice(b", ...}");
            Ok(())
        }
    }))
}

fn number(word: u32) -> String {
    if word == 0 { "0".to_owned() } else { format!("{word:#x}") }
}

fn hex(word: u64, line: &mut Vec<u8>) -> io::Result<()> {
    if word == 0 { write!(line, "0") } else { write!(line, "{word:#x}") }
}

fn address(word: u64, line: &mut Vec<u8>) -> io::Result<()> {
    if word == 0 { write!(line, "NULL") } else { write!(line, "{word:#x}") }
}

/// Appends bytes as a C string; data are cut short.
fn quote(bytes: &[u8], is_whole: bool, line: &mut Vec<u8>) -> io::Result<()> {
    let (shown, more) = match bytes.len() >= DATA && !is_whole {
        true => (&bytes[..DATA - 1], &b"\"..."[..]),
        false => (bytes, &b"\""[..]),
    };
    line.push(b'"');
    for (index, byte) in shown.iter().enumerate() {
        let digit_follows = shown.get(index + 1).is_some_and(u8::is_ascii_digit);
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\t' => line.extend_from_slice(b"\\t"),
            b'\r' => line.extend_from_slice(b"\\r"),
            0x0b => line.extend_from_slice(b"\\v"),
            0x0c => line.extend_from_slice(b"\\f"),
            b'"' | b'\\' => line.extend([b'\\', *byte]),
            b' '..=b'~' => line.push(*byte),
            _ if digit_follows => write!(line, "\\{byte:03o}")?,
            _ => write!(line, "\\{byte:o}")?,
        }
    }
    line.extend_from_slice(more);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u32, words: [u64; 6], result: i64, found: Option<(usize, &[u8])>) -> Call<'_> {
        Call { number, tid: 1, end: 0, result, words, found: [found, None, None] }
    }

    fn line(call: &Call<'_>) -> String {
        let mut line = Vec::new();
        describe(call, 0, &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn lines_are_straces() {
        let at = AT_FDCWD as u64;
        let flags = u64::from(O_WRONLY | O_CREAT | O_TRUNC);
        let open = call(__NR_openat, [at, 1, flags, 0o644, 0, 0], 3, Some((1, b"/light/f")));
        assert_eq!(line(&open), "openat(AT_FDCWD, \"/light/f\", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3");
        let open = call(__NR_open, [1, 0, 0o644, 0, 0, 0], -2, Some((0, b"x\n")));
        assert_eq!(
            line(&open),
            "open(\"x\\n\", O_RDONLY)                   = -1 ENOENT (No such file or directory)"
        );
        let close = call(__NR_close, [3, 0, 0, 0, 0, 0], 0, None);
        assert_eq!(line(&close), "close(3)                                = 0");
        let write = call(__NR_write, [1, 9, 40, 0, 0, 0], 40, Some((1, &[b'a'; 33])));
        assert_eq!(line(&write), format!("write(1, \"{}\"..., 40) = 40", "a".repeat(32)));
        let read = call(__NR_read, [3, 9, 4096, 0, 0, 0], 0, None);
        assert_eq!(line(&read), "read(3, \"\", 4096)                       = 0");
    }

    #[test]
    fn numbers_have_names() {
        assert_eq!(open_flags(O_TMPFILE | O_RDWR), "O_RDWR|O_TMPFILE");
        assert_eq!(open_flags(O_SYNC), "O_RDONLY|O_SYNC");
        assert_eq!(
            (mode(0o100_644), mode(0), mode(0o7)),
            ("S_IFREG|0644".into(), "000".into(), "007".into())
        );
        assert_eq!((access(0), access(6)), ("F_OK".into(), "R_OK|W_OK".into()));
        let mut text = Vec::new();
        quote(b"\x01\x012\"", true, &mut text).unwrap();
        assert_eq!(text, b"\"\\1\\0012\\\"\"");
    }
}

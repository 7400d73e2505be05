//! A call as a line, in strace's format.

use std::io::{self, Write};

use lp_abi::Errno;
use lp_abi::linux::*;
use lp_abi::signature::{Parameter, SHOWN_OF_STAT, SIGNAL_ACTION, arguments};
use lp_region::trace::{DATA, NO_RESULT};

use super::calls::name;
use super::names;
use super::reader::{Call, Sink};
use crate::command::output::failure::reason;

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
        if is_absent(call, number, *kind) {
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

/// Whether the call has no such argument, which may depend on the one before.
fn is_absent(call: &Call<'_>, number: usize, kind: Parameter) -> bool {
    let before = || call.words[number - 1];
    match kind {
        Parameter::None => true,
        Parameter::OpenMode => !creates(before()),
        Parameter::Device => !matches!(before() as u32 & S_IFMT, S_IFCHR | S_IFBLK),
        Parameter::FcntlArgument => {
            matches!(before() as u32, F_GETFD | F_GETFL | F_GETOWN | F_GETPIPE_SZ | F_GET_SEALS)
        }
        _ => false,
    }
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
            let text = reason(&io::Error::from_raw_os_error(errno.number()));
            write!(line, "-1 {errno:?} ({text})")?;
        }
        address if [__NR_mmap, __NR_mremap].contains(&call.number) => write!(line, "{address:#x}")?,
        mode if call.number == __NR_umask => write!(line, "{}", names::mode(mode as u32))?,
        flags if call.number == __NR_fcntl => match call.words[1] as u32 {
            F_GETFL => write!(line, "{flags:#x} (flags {})", names::open_flags(flags as u32))?,
            F_GETFD if flags != 0 => write!(line, "{flags:#x} (flags {})", names::fd_flags(flags as u32))?,
            _ => signed(flags, line),
        },
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
            Some(bytes) if call.number == __NR_getcwd => {
                quote(bytes.strip_suffix(b"\0").unwrap_or(bytes), true, line)?;
            }
            Some(bytes) => quote(bytes, kind == Parameter::Path, line)?,
            None if kind == Parameter::Out && call.result == 0 => line.extend_from_slice(b"\"\""),
            None => address(word, line)?,
        },
        Parameter::Stat => match found.and_then(|bytes| attributes(bytes, line)) {
            Some(written) => written?,
            None => address(word, line)?,
        },
        Parameter::Address => address(word, line)?,
        Parameter::SignalAction => match found.and_then(|bytes| action(bytes, line)) {
            Some(written) => written?,
            None => address(word, line)?,
        },
        Parameter::FcntlArgument => match call.words[number - 1] as u32 {
            F_SETFL | F_SETFD => write!(line, "{}", names::of(kind, call, number))?,
            F_DUPFD | F_DUPFD_CLOEXEC | F_SETOWN | F_SETPIPE_SZ => signed(i64::from(word as i32), line),
            F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW => address(word, line)?,
            _ => hex(word, line)?,
        },
        Parameter::Id => signed(i64::from(word as i32), line),
        named => write!(line, "{}", names::of(named, call, number))?,
    }
    Ok(())
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
        _ => write!(line, "{}, ", names::mode(kind)),
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

/// Appends what a `struct sigaction` of the kernel's says, if it is one.
fn action(bytes: &[u8], line: &mut Vec<u8>) -> Option<io::Result<()>> {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: &[_; SIGNAL_ACTION] = words.try_into().ok().filter(|_| rest.is_empty())?;
    let [handler, flags, restorer, mask] = words.map(u64::from_le_bytes);
    let handler = match handler {
        0 => "SIG_DFL".to_owned(),
        1 => "SIG_IGN".to_owned(),
        address => format!("{address:#x}"),
    };
    let (mask, named) = (names::signals(mask), names::action_flags(flags as u32));
    let restorer = match flags as u32 & SA_RESTORER {
        0 => String::new(),
        _ => format!(", sa_restorer={restorer:#x}"),
    };
    Some(write!(line, "{{sa_handler={handler}, sa_mask={mask}, sa_flags={named}{restorer}}}"))
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
        let umask = call(__NR_umask, [0o22, 0, 0, 0, 0, 0], 0o22, None);
        assert_eq!(line(&umask), "umask(022)                              = 022");
        let flags = call(__NR_fcntl, [3, u64::from(F_GETFL), 9, 0, 0, 0], 0x8002, None);
        assert_eq!(
            line(&flags),
            "fcntl(3, F_GETFL)                       = 0x8002 (flags O_RDWR|O_LARGEFILE)"
        );
        let chown = call(__NR_fchown, [3, u64::from(u32::MAX), u64::MAX, 0, 0, 0], 0, None);
        assert_eq!(line(&chown), "fchown(3, -1, -1)                       = 0");
        let fifo = call(__NR_mknod, [1, 0o10600, 0, 0, 0, 0], 0, Some((0, b"p")));
        assert_eq!(line(&fifo), "mknod(\"p\", S_IFIFO|0600)                = 0");
    }

    #[test]
    fn actions_of_signals_are_straces() {
        let words = [0x1000u64, u64::from(SA_RESTART | SA_RESTORER), 0x2000, 1 << (libc::SIGUSR2 - 1)];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let usr1 = call(__NR_rt_sigaction, [libc::SIGUSR1 as u64, 1, 0, 8, 0, 0], 0, Some((1, &bytes)));
        assert_eq!(
            line(&usr1),
            "rt_sigaction(SIGUSR1, {sa_handler=0x1000, sa_mask=[USR2], sa_flags=SA_RESTORER|SA_RESTART, \
             sa_restorer=0x2000}, NULL, 8) = 0"
        );
    }

    #[test]
    fn data_are_c_strings() {
        let mut text = Vec::new();
        quote(b"\x01\x012\"", true, &mut text).unwrap();
        assert_eq!(text, b"\"\\1\\0012\\\"\"");
    }
}

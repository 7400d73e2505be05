//! Changes as a patch that git-apply(1) takes, and as counts of lines.

use std::io;
use std::os::unix::ffi::OsStrExt;

use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

use super::compare::changes::Change;
use super::compare::host;
use super::compare::tree::{Tree, kind};
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::message::message;
use crate::command::output::shown::{self, counted};

/// Lines around a hunk.
const CONTEXT: usize = 3;
/// Bytes in which a NUL makes a file a binary one, as in git.
const LOOKED_AT: usize = 8000;
/// Most bytes of a file that is compared by lines.
const LARGE: usize = 64 << 20;

/// Most bytes of a file that a patch holds.
const LONGEST: u64 = 1 << 30;

/// What is printed of changes.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) text: Vec<u8>,
    /// Files whose content could not be read. Each has been named in a message.
    pub(super) unread: usize,
}

impl Shown {
    /// What was read of a change; none, after a message, if it cannot be read.
    fn read<T>(&mut self, change: &Change, read: io::Result<T>) -> Option<T> {
        let fail =
            |e: &io::Error| Failure::new(REGION, format!("{}: {}", shown::below(&change.path), reason(e)));
        self.unread += usize::from(read.is_err());
        read.inspect_err(|e| message(fail(e))).ok()
    }
}

/// Content before and after; none where there is no file.
struct Sides {
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
}

/// The sizes of what a change has before and after.
fn sizes(tree: &Tree<'_>, change: &Change) -> [u64; 2] {
    let old = match &change.from {
        Some(from) => host::look(tree.over, from).map_or(0, |found| found.len()),
        None => change.old.map_or(0, |old| old.seen.size),
    };
    [old, change.new.as_ref().map_or(0, |new| new.attributes.size)]
}

impl Sides {
    fn of(tree: &Tree<'_>, change: &Change) -> io::Result<Sides> {
        if sizes(tree, change).iter().any(|size| *size > LONGEST) {
            return Err(io::Error::other("too large for a patch"));
        }
        let (old_mode, new_mode) = change.modes();
        let is_held = |mode: u32| matches!(kind(mode), libc::S_IFREG | libc::S_IFLNK);
        let new = match &change.new {
            Some(new) if kind(new.attributes.mode) == libc::S_IFLNK => {
                Some(tree.target(new)?.as_os_str().as_bytes().to_vec())
            }
            Some(new) if new_mode.is_some_and(is_held) => Some(tree.content(new)?),
            _ => None,
        };
        let old = match &change.from {
            // What was renamed is what it was before.
            Some(from) if new_mode.is_some_and(is_held) => {
                Some(host::content(&host::reach(tree.over, from)?)?)
            }
            None if old_mode.is_some_and(is_held) => {
                Some(host::content(&host::reach(tree.over, &change.path)?)?)
            }
            _ => None,
        };
        Ok(Sides { old, new })
    }

    fn is_binary(&self) -> bool {
        [&self.old, &self.new]
            .into_iter()
            .flatten()
            .any(|side| side.len() > LARGE || side.iter().take(LOOKED_AT).any(|byte| *byte == 0))
    }

    fn lines(&self) -> [Vec<&[u8]>; 2] {
        [&self.old, &self.new].map(|side| lines(side.as_deref().unwrap_or_default()))
    }
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The changes as a patch. What git has no word for, such as a device, is left out.
pub(super) fn patch(tree: &Tree<'_>, changes: &[&Change]) -> Shown {
    let mut shown = Shown::default();
    for change in changes {
        let Some(sides) = shown.read(change, Sides::of(tree, change)) else { continue };
        let text = &mut shown.text;
        if change.what.kind && change.old.is_some() && change.new.is_some() {
            // git takes a change of type as the end of one file and the beginning of another.
            let old = Change { new: None, ..(*change).clone() };
            let new = Change { old: None, ..(*change).clone() };
            one(text, &old, &Sides { old: sides.old, new: None });
            one(text, &new, &Sides { old: None, new: sides.new });
        } else {
            one(text, change, &sides);
        }
    }
    shown
}

/// The mode that git has for one.
fn git_mode(mode: u32) -> &'static str {
    match (kind(mode), mode & 0o100 != 0) {
        (libc::S_IFLNK, _) => "120000",
        (_, true) => "100755",
        (_, false) => "100644",
    }
}

fn one(text: &mut Vec<u8>, change: &Change, sides: &Sides) {
    if sides.old.is_none() && sides.new.is_none() {
        return;
    }
    let (old_mode, new_mode) = change.modes();
    let path = change.path.as_os_str().as_bytes();
    let from = change.from.as_ref().map_or(path, |from| from.as_os_str().as_bytes());
    let (a, b) = (quoted(&[b"a/", from].concat()), quoted(&[b"b/", path].concat()));
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| text.extend(*part));
        text.push(b'\n');
    };
    let same_mode = match (old_mode.or(change.from_mode), new_mode) {
        (Some(old), Some(new)) => git_mode(old) == git_mode(new),
        _ => false,
    };
    if same_mode && sides.old == sides.new && change.from.is_none() {
        return;
    }
    line(&[b"diff --git ", &a, b" ", &b]);
    if let (Some(old), Some(new), false) = (old_mode.or(change.from_mode), new_mode, same_mode) {
        line(&[b"old mode ", git_mode(old).as_bytes()]);
        line(&[b"new mode ", git_mode(new).as_bytes()]);
    }
    if change.from.is_some() {
        line(&[b"rename from ", &quoted(from)]);
        line(&[b"rename to ", &quoted(path)]);
    } else {
        match (old_mode, new_mode) {
            (None, Some(new)) => line(&[b"new file mode ", git_mode(new).as_bytes()]),
            (Some(old), None) => line(&[b"deleted file mode ", git_mode(old).as_bytes()]),
            _ => {}
        }
    }
    if sides.old == sides.new {
        return;
    }
    let id = |side: &Option<Vec<u8>>| side.as_ref().map_or_else(|| "0".repeat(40), |bytes| blob_id(bytes));
    if sides.is_binary() {
        line(&[b"index ", id(&sides.old).as_bytes(), b"..", id(&sides.new).as_bytes()]);
        line(&[b"GIT binary patch"]);
        literal(text, sides.new.as_deref().unwrap_or_default());
        literal(text, sides.old.as_deref().unwrap_or_default());
        return;
    }
    if sides.old.as_ref().is_none_or(Vec::is_empty) && sides.new.as_ref().is_none_or(Vec::is_empty) {
        // git needs the line to take an empty file.
        line(&[b"index ", id(&sides.old).as_bytes(), b"..", id(&sides.new).as_bytes()]);
        return;
    }
    let nothing = b"/dev/null".to_vec();
    line(&[b"--- ", if sides.old.is_some() { &a } else { &nothing }]);
    line(&[b"+++ ", if sides.new.is_some() { &b } else { &nothing }]);
    hunks(text, &sides.lines());
}

fn hunks(text: &mut Vec<u8>, [old, new]: &[Vec<&[u8]>; 2]) {
    for group in group_diff_ops(capture_diff_slices(Algorithm::Myers, old, new), CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |from: usize, to: usize| match to - from {
            0 => format!("{from},0"),
            1 => format!("{}", from + 1),
            count => format!("{},{count}", from + 1),
        };
        let before = range(first.old_range().start, last.old_range().end);
        let after = range(first.new_range().start, last.new_range().end);
        text.extend(format!("@@ -{before} +{after} @@\n").bytes());
        let mut put = |mark: u8, lines: &[&[u8]]| {
            for line in lines {
                text.push(mark);
                text.extend(*line);
                if line.last() != Some(&b'\n') {
                    text.extend(b"\n\\ No newline at end of file\n");
                }
            }
        };
        for op in group {
            match op {
                DiffOp::Equal { .. } => put(b' ', &old[op.old_range()]),
                _ => {
                    put(b'-', &old[op.old_range()]);
                    put(b'+', &new[op.new_range()]);
                }
            }
        }
    }
}

/// The name of a blob in git.
fn blob_id(bytes: &[u8]) -> String {
    let mut hash = sha1_smol::Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()).as_bytes());
    hash.update(bytes);
    hash.digest().to_string()
}

/// Bytes in a stored block of a deflate stream.
const STORED: usize = 65535;
/// Bytes in a line of a binary patch.
const LINE: usize = 52;

/// A literal of a binary patch: a zlib stream of stored blocks (RFC 1950, RFC 1951), in git's base 85.
fn literal(text: &mut Vec<u8>, bytes: &[u8]) {
    let mut stream = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(STORED).peekable();
    if blocks.peek().is_none() {
        stream.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    let (low, high) = bytes.iter().fold((1u32, 0u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65521;
        (low, (high + low) % 65521)
    });
    stream.extend((high << 16 | low).to_be_bytes());
    text.extend(format!("literal {}\n", bytes.len()).bytes());
    for chunk in stream.chunks(LINE) {
        let length = chunk.len() as u8;
        text.push(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 });
        for word in chunk.chunks(4) {
            let mut padded = [0; 4];
            padded[..word.len()].copy_from_slice(word);
            text.extend(base85(u32::from_be_bytes(padded)));
        }
        text.push(b'\n');
    }
    text.push(b'\n');
}

fn base85(mut word: u32) -> [u8; 5] {
    const DIGITS: &[u8; 85] =
        b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    let mut digits = [0; 5];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(word % 85) as usize];
        word /= 85;
    }
    digits
}

/// A path as git writes it: in quotes if it holds what a line cannot.
pub(super) fn quoted(path: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| *byte >= b' ' && *byte < 0x7f && !matches!(byte, b'"' | b'\\');
    if path.iter().all(plain) {
        return path.to_vec();
    }
    let mut text = vec![b'"'];
    for byte in path {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', *byte]),
            b'\n' => text.extend(b"\\n"),
            b'\t' => text.extend(b"\\t"),
            byte if plain(byte) => text.push(*byte),
            byte => text.extend(format!("\\{byte:03o}").bytes()),
        }
    }
    text.push(b'"');
    text
}

/// Widest bar of [`stat`].
const BAR: usize = 40;

/// The changes as counts of lines, as git-diff(1) has them with `--stat`.
pub(super) fn stat(tree: &Tree<'_>, changes: &[&Change]) -> Shown {
    let (mut shown, mut rows) = (Shown::default(), Vec::new());
    let (mut added, mut removed) = (0, 0);
    for change in changes {
        let mut name = quoted(change.path.as_os_str().as_bytes());
        if let Some(from) = &change.from {
            name = [&quoted(from.as_os_str().as_bytes())[..], b" => ", &name].concat();
        }
        let large = sizes(tree, change);
        if large.iter().any(|size| *size > LARGE as u64) {
            let is_untouched = change.new.as_ref().is_some_and(|new| tree.is_untaken(new));
            let [old, new] = large;
            rows.push((
                name,
                if is_untouched { "0".to_owned() } else { format!("Bin {old} -> {new} bytes") },
            ));
            continue;
        }
        let Some(sides) = shown.read(change, Sides::of(tree, change)) else { continue };
        if sides.is_binary() && sides.old != sides.new {
            let bytes = |side: &Option<Vec<u8>>| side.as_ref().map_or(0, Vec::len);
            rows.push((name, format!("Bin {} -> {} bytes", bytes(&sides.old), bytes(&sides.new))));
            continue;
        }
        let [old, new] = sides.lines();
        let (mut plus, mut minus) = (0, 0);
        for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
            if !matches!(op, DiffOp::Equal { .. }) {
                minus += op.old_range().len();
                plus += op.new_range().len();
            }
        }
        added += plus;
        removed += minus;
        let scale = |count: usize| match plus + minus {
            all if all <= BAR => count,
            all => (count * BAR).div_ceil(all),
        };
        let (plusses, minuses) = ("+".repeat(scale(plus)), "-".repeat(scale(minus)));
        rows.push((name, format!("{} {plusses}{minuses}", plus + minus)));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let text = &mut shown.text;
    for (name, row) in &rows {
        text.push(b' ');
        text.extend(name);
        text.extend(" ".repeat(width - name.len()).bytes());
        text.extend(format!(" | {}\n", row.trim_end()).bytes());
    }
    let files = rows.len();
    text.extend(
        format!(
            " {} changed, {}(+), {}(-)\n",
            counted(files, "file", "files"),
            counted(added, "insertion", "insertions"),
            counted(removed, "deletion", "deletions")
        )
        .bytes(),
    );
    shown
}

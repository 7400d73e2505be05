//! What a run of a session left behind, and how two of them are compared.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use similar::{ChangeTag, TextDiff};

/// Everything of a run that can be compared.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub status: String,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// The tree below the session's directory, as `tests/programs/tree.c` lists it.
    pub tree: Vec<u8>,
    /// Names of processes that were still there and had to be killed.
    pub left_running: Vec<String>,
}

/// Bytes of a part that are read: a session that goes wild must not fill the memory.
const READ: u64 = 4 << 20;

/// The beginning of what a session wrote; nothing if it came to write nothing.
pub fn read_part(path: &Path) -> Vec<u8> {
    let mut part = Vec::new();
    if let Ok(file) = File::open(path) {
        // A part that cannot be read compares as empty, and so differs.
        let _ = file.take(READ).read_to_end(&mut part);
    }
    part
}

/// Changed lines shown for one part; a count says how many there are in all.
const SHOWN: usize = 60;

impl Outcome {
    /// The differences from what the kernel gave, in words; `None` if there are none.
    pub fn differences(&self, kernel: &Outcome) -> Option<String> {
        let mut report = String::new();
        if self.status != kernel.status {
            report += &format!("status: {} on the kernel, {} here\n", kernel.status, self.status);
        }
        if self.left_running != kernel.left_running {
            report += &format!("left running: {:?}\n", self.left_running);
        }
        for (part, theirs, ours) in [
            ("stdout", &kernel.stdout, &self.stdout),
            ("stderr", &kernel.stderr, &self.stderr),
            ("tree", &kernel.tree, &self.tree),
        ] {
            if theirs != ours {
                report += &diff(part, theirs, ours);
            }
        }
        (!report.is_empty()).then_some(report)
    }
}

/// Writes one directory's name for another of the same length, wherever it stands.
pub fn rename(mut text: Vec<u8>, from: &Path, to: &Path) -> Vec<u8> {
    let (from, to) = (from.as_os_str().as_bytes(), to.as_os_str().as_bytes());
    let mut at = 0;
    while at + from.len() <= text.len() {
        if &text[at..at + from.len()] == from {
            text[at..at + from.len()].copy_from_slice(to);
        }
        at += 1;
    }
    text
}

/// A line diff: `-` the kernel, `+` here.
fn diff(part: &str, kernel: &[u8], here: &[u8]) -> String {
    let (kernel, here) = (String::from_utf8_lossy(kernel), String::from_utf8_lossy(here));
    let lines = TextDiff::from_lines(&*kernel, &*here);
    let changed = lines.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal).count();
    let mut text = format!("{part}: {changed} lines differ (-kernel +here)\n");
    let mut shown = 0;
    for hunk in lines.unified_diff().context_radius(2).iter_hunks() {
        if shown >= SHOWN {
            text += "  ...\n";
            break;
        }
        text += &format!("  {}\n", hunk.header());
        for change in hunk.iter_changes().take(SHOWN) {
            shown += usize::from(change.tag() != ChangeTag::Equal);
            text += &format!("  {}{}\n", change.tag(), change.value().trim_end_matches('\n'));
        }
    }
    text
}

//! The page that says what was found: figures and, for each reason of a conflict, a sentence.

use super::{Actors, Findings, Pair};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Why calls that commute write these fields together, by the name of a field or a record.
const REASONS: &[(&[&str], &str)] = &[
    (
        &["inode.lock"],
        "Both change one inode, or look under its lock whether they may: a name to be removed, a lock to be taken.",
    ),
    (
        &[
            "inode.mode",
            "inode.uid",
            "inode.gid",
            "inode.number",
            "inode.generation",
            "inode.flags",
            "inode.acl",
            "inode.default_acl",
            "inode.xattr",
            "inode.rdev",
            "inode.root",
            "inode.parent",
            "inode.self_dirent",
        ],
        "Mode, owner, flags and the handles of attributes of an inode are one line: who walks through it or \
         opens it meets who changes one of them, or removes the last name.",
    ),
    (
        &[
            "inode.seq",
            "inode.size",
            "inode.pages",
            "inode.atime",
            "inode.mtime",
            "inode.ctime",
            "inode.ctime_nsec",
            "inode.nlink",
        ],
        "Size, times and links of an inode are one line with one sequence count: both set times, or one reads the size.",
    ),
    (
        &[
            "inode.data_seq",
            "inode.map",
            "inode.tail",
            "inode.entries",
            "inode.btime",
            "inode.btime_nsec",
            "inode.atime_due",
            "inode.moving",
            "inode.inline",
        ],
        "The content of a file, or the entries of a directory, have one sequence count and one lock.",
    ),
    (&["inode.locks", "inode.locks_lock", "lock record"], "The locks of a file are one tree."),
    (&["inode.custody", "inode.link"], "The inode loses its last name or its last user."),
    (&["bucket", "overflow bucket"], "The names hash to one bucket, which holds several."),
    (&["dirent", "long name"], "Both use one name, and one of them changes it."),
    (&["page"], "Both write bytes of one page's line: of a file, or of a directory's entries."),
    (
        &["chunk", "page owners", "header.chunk_hint"],
        "Both take or free pages of one chunk, which counts its own.",
    ),
    (
        &["header.tree", "lane.shifting"],
        "A directory that moves, or is no longer open to everyone's searches, tells all walks at once.",
    ),
    (
        &["header.slabs", "header.chunk_limit"],
        "A lane's free slots have run out, or are too many: it goes to the depot.",
    ),
    (
        &["lane"],
        "Who must know that nobody uses an object, or counts what is free, looks at the lanes of all threads.",
    ),
    (&["open file"], "Both use one open file description: its position, or its end."),
    (&["descriptor table"], "Both use one descriptor, and one of them changes it."),
    (
        &["process.table_lock", "process.closed", "process.moves", "process.threads_gone"],
        "Threads count copies within their table of descriptors, and change some of it under a lock.",
    ),
    (&["process"], "The threads of a process have one working directory and one set of POSIX locks."),
    (&["mount", "superblock", "run"], "Both use one mount, and one of them changes it."),
];

/// All findings.
#[derive(Debug, Clone)]
pub struct Report(pub Vec<Findings>);

impl Report {
    /// The fields of conflicts for which there is no reason.
    #[must_use]
    pub fn unexplained(&self) -> BTreeSet<&str> {
        let fields = self.0.iter().flat_map(Findings::conflicts).flat_map(|pair| &pair.fields);
        fields.map(String::as_str).filter(|field| reason(field).is_none()).collect()
    }

    /// A line for each pair that conflicts: the actors, the calls, the fields written and those read.
    #[must_use]
    pub fn list(&self) -> String {
        let mut text = String::new();
        let joined = |names: &BTreeSet<String>| Vec::from_iter(names.iter().map(String::as_str)).join(" ");
        for findings in &self.0 {
            for pair in findings.conflicts() {
                let [one, other] = [0, 1].map(|at| format!("{}({})", pair.kinds[at], pair.arguments[at]));
                let (written, read) = (joined(&pair.fields), joined(&pair.read));
                let who = who(findings.actors);
                // Writing to a string does not fail.
                let _ = writeln!(text, "{who}\t{one}\t{other}\t{written}\t{read}");
            }
        }
        text
    }

    /// The page, in Markdown. `maps` names the heat map of each of the findings.
    #[must_use]
    pub fn page(&self, maps: &[String]) -> String {
        let mut text = String::new();
        for (findings, map) in self.0.iter().zip(maps) {
            section(findings, map, &mut text);
        }
        text
    }
}

/// The index of the reason: that of the field or, without one, of the record.
fn reason(field: &str) -> Option<usize> {
    let record = field.split('.').next().unwrap_or_default();
    let of = |name: &str| REASONS.iter().position(|(names, _)| names.contains(&name));
    of(field).or_else(|| of(record))
}

/// Text within a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// What the actors are called.
pub(super) fn who(actors: Actors) -> &'static str {
    match actors {
        Actors::Processes => "Two processes",
        Actors::Threads => "Two threads of a process",
    }
}

fn section(findings: &Findings, map: &str, text: &mut String) {
    let conflicts: Vec<&Pair> = findings.conflicts().collect();
    let commuting = findings.pairs.len();
    let share = 100.0 * (1.0 - conflicts.len() as f64 / commuting.max(1) as f64);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\n## {}\n\nOf {} pairs {commuting} commute, and {} of these conflict: {share:.1} % are free of conflict.\n\n\
         ![{}]({map})\n\n| pairs | of these for this reason alone | reason | example |\n|---:|---:|---|---|",
        who(findings.actors),
        findings.tried,
        conflicts.len(),
        who(findings.actors),
    );
    let mut reasons: BTreeMap<usize, Vec<(&Pair, bool)>> = BTreeMap::new();
    for pair in conflicts {
        let all: BTreeSet<usize> = pair.fields.iter().filter_map(|field| reason(field)).collect();
        for one in &all {
            reasons.entry(*one).or_default().push((pair, all.len() == 1));
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, pairs)| std::cmp::Reverse(pairs.len()));
    for (index, pairs) in reasons {
        let alone: Vec<_> = pairs.iter().filter(|(_, alone)| *alone).collect();
        let example = alone.first().map_or(pairs[0].0, |(pair, _)| pair);
        let _ = writeln!(
            text,
            "| {} | {} | {} | `{}({})` and `{}({})` |",
            pairs.len(),
            alone.len(),
            REASONS[index].1,
            example.kinds[0],
            cell(&example.arguments[0]),
            example.kinds[1],
            cell(&example.arguments[1])
        );
    }
}

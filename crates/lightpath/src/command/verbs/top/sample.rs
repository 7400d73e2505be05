//! What the regions of all runs count at one moment.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use lp_abi::NAME_MAX;
use lp_fsck::lock_at;
use lp_region::records::{Dirent, Inode};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{DirentId, InodeId, ProcessId, Region};
use lp_vfs::dirent;

use crate::command::output::shown::printable;
use crate::command::region::space::space;
use crate::command::run::counts::{Counts, lanes};
use crate::command::run::under_way::{self, Run};

/// Directories that a path is followed through at most; a damaged region may hold a ring of them.
const DEPTH: usize = 4096;

/// Files that are named.
const HOTTEST: usize = 20;

/// All runs at one moment. It keeps nothing of the regions.
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) runs: Vec<OfRun>,
}

/// A run at one moment.
pub(super) struct OfRun {
    /// The pid of its oldest process.
    pub(super) name: u32,
    pub(super) owner: u32,
    pub(super) mounts: Vec<PathBuf>,
    pub(super) file: Option<PathBuf>,
    /// Bytes in use and their limit; none for another user's run.
    pub(super) space: Option<(u64, u64)>,
    /// Calls by number, if they are counted.
    pub(super) counts: Option<Counts>,
    pub(super) processes: Vec<OfProcess>,
    /// Waits for locks, by what is locked.
    pub(super) waits: Vec<(&'static str, usize)>,
    /// Changes of content of each inode that has a name.
    pub(super) files: HashMap<InodeId, Changes>,
    /// Paths and changes of those that have changed most since the sample before.
    pub(super) hottest: Vec<(String, u32)>,
}

/// A process of a run.
pub(super) struct OfProcess {
    pub(super) pid: u32,
    pub(super) command: String,
    /// Calls answered in it and passed to the kernel, by the lane of the thread that made them: a thread that
    /// ends leaves its lane to the next.
    pub(super) calls: HashMap<u32, [u64; 2]>,
    /// Threads that wait for a lock.
    pub(super) waits: usize,
}

/// How often the content of an inode has changed.
#[derive(Clone, Copy)]
pub(super) struct Changes {
    pub(super) generation: u32,
    pub(super) count: u32,
}

impl Sample {
    /// Asks every run that the caller may see.
    pub(super) fn take(before: Option<&Sample>) -> Sample {
        let all = under_way::all();
        let at = Instant::now();
        let runs = all.iter().map(|run| OfRun::of(run, before)).collect();
        // SAFETY: a sample holds copies of what it has read.
        unsafe { under_way::forget(all) };
        Sample { at, runs }
    }

    /// The same run in this sample.
    pub(super) fn run_like(&self, run: &OfRun) -> Option<&OfRun> {
        self.runs.iter().find(|old| (old.name, old.owner) == (run.name, run.owner))
    }
}

impl OfRun {
    fn of(run: &Run, before: Option<&Sample>) -> OfRun {
        let processes = run.members.iter().map(|member| OfProcess {
            pid: member.pid,
            command: member.command(),
            calls: HashMap::new(),
            waits: 0,
        });
        let mut found = OfRun {
            name: run.name(),
            owner: run.members[0].owner,
            mounts: run.mounts.clone(),
            file: run.file.clone(),
            space: run.region.map(space),
            counts: run.region.filter(|_| run.is_counted).map(Counts::of),
            processes: processes.collect(),
            waits: Vec::new(),
            files: HashMap::new(),
            hottest: Vec::new(),
        };
        if let Some(region) = run.region {
            found.add_lanes(region);
            found.files = changes(region);
            let before = before.and_then(|sample| sample.run_like(&found));
            found.hottest = before.map_or_else(Vec::new, |before| hottest(region, before, &found));
        }
        found
    }

    /// Adds what threads have called, and what they wait for.
    fn add_lanes(&mut self, region: Region<'_>) {
        for lane in lanes(region) {
            // Relaxed, all: counters and hints.
            let process = lane.process.load(Relaxed);
            if process == 0 {
                continue;
            }
            let pid = region.process(ProcessId(process)).pid.load(Relaxed);
            let Some(process) = self.processes.iter_mut().find(|process| process.pid == pid) else {
                continue;
            };
            let sum = |calls: &[_]| {
                calls.iter().map(|call: &lp_region::sync::AtomicU32| u64::from(call.load(Relaxed))).sum()
            };
            process.calls.insert(lane.number(), [sum(&lane.answered), sum(&lane.passed)]);
            let awaited = match lane.waits_for.load(Relaxed) {
                0 if lane.posix_wait.edge() != 0 => Some("record lock"),
                0 => None,
                offset => lock_at(offset),
            };
            let Some(what) = awaited else { continue };
            process.waits += 1;
            match self.waits.iter_mut().find(|(of, _)| *of == what) {
                Some((_, count)) => *count += 1,
                None => self.waits.push((what, 1)),
            }
        }
    }
}

/// How often each inode with a name has changed.
fn changes(region: Region<'_>) -> HashMap<InodeId, Changes> {
    let last = region.header().slabs[Inode::SLAB].last();
    let living = (1..=last).map(InodeId).filter_map(|id| {
        let inode = region.inode(id);
        let count = inode.data_seq.read() / 2;
        let lives = inode.nlink.load(Relaxed) != 0 && count != 0;
        lives.then(|| (id, Changes { generation: inode.generation.load(Relaxed), count }))
    });
    living.collect()
}

/// The inodes that have changed most, under the paths by which the run's processes know them. The names are
/// looked for among all entries, since a file does not know its own.
fn hottest(region: Region<'_>, before: &OfRun, now: &OfRun) -> Vec<(String, u32)> {
    let mut changed: Vec<_> = now
        .files
        .iter()
        .filter_map(|(id, now)| {
            let then = before.files.get(id).filter(|then| then.generation == now.generation);
            let changes = now.count.wrapping_sub(then.map_or(0, |then| then.count));
            (changes != 0).then_some((*id, changes))
        })
        .collect();
    changed.sort_by_key(|(id, changes)| (Reverse(*changes), id.0));
    changed.truncate(HOTTEST);
    let last = if changed.is_empty() { 0 } else { region.header().slabs[Dirent::SLAB].last() };
    let mut found = HashMap::new();
    for entry in (1..=last).map(|index| region.dirent(DirentId(index))).filter(|entry| dirent::lives(entry)) {
        let target = dirent::target(entry).id;
        if changed.iter().any(|(id, _)| *id == target) && !found.contains_key(&target) {
            found.insert(target, path(region, &now.mounts, target, entry));
        }
    }
    // A root has no name.
    changed.into_iter().filter_map(|(id, changes)| Some((found.remove(&id)?, changes))).collect()
}

/// The path of what `entry` names.
fn path(region: Region<'_>, mounts: &[PathBuf], id: InodeId, entry: &Dirent) -> String {
    let mut names = vec![name(region, entry)];
    let mut parent = InodeId(entry.parent.load(Relaxed));
    for _ in 0..DEPTH {
        let directory = region.inode(parent);
        let own = directory.self_dirent.load(Relaxed);
        if own == 0 || !directory.is_dir() {
            break;
        }
        let own = region.dirent(DirentId(own));
        names.push(name(region, own));
        parent = InodeId(own.parent.load(Relaxed));
    }
    let root = region.inode(id).root.load(Relaxed) as usize;
    let top = mounts.get(root).map_or_else(|| format!("(mount {root})"), |path| path.display().to_string());
    names.push(printable(&top));
    names.reverse();
    names.join("/")
}

fn name(region: Region<'_>, entry: &Dirent) -> String {
    let mut bytes = [0; NAME_MAX];
    let length = dirent::copy_name(region, entry, &mut bytes).min(NAME_MAX);
    printable(&String::from_utf8_lossy(&bytes[..length]))
}

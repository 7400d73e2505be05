//! The runs under way on this machine, found through /proc.
//!
//! A region in memory has no name. Its processes inherit the descriptors of the region, the life file at the
//! next number, and the run's flights, whose name holds the region's identity and the run's number. All show
//! as links in /proc/PID/fd, which the kernel lets the process's own user and root read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lp_abi::Fd;
use lp_region::layout::RUNS;
use lp_region::life_file;
use lp_region::process::{CALLS_COUNTED, RUN_MOUNTS};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{Region, RunId};

use crate::command::descriptors::flights::FLIGHTS;
use crate::command::options::mountpoint::MountPoint;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::region::explain::explain;

/// What the kernel shows of a memfd before its name.
const MEMFD: &str = "/memfd:";
/// The link of a region in memory.
const MEMORY: &str = "/memfd:lightpath (deleted)";

/// A process of a run.
#[derive(Clone)]
pub(crate) struct Member {
    /// Its id in the caller's pid namespace.
    pub(crate) pid: u32,
    /// When it started, in ticks since boot.
    started: u64,
    /// User whose run it is: whoever started the launcher.
    pub(crate) owner: u32,
    /// Identity of the region.
    identity: u64,
    run: RunId,
    /// The region's descriptor in this process.
    descriptor: u32,
    /// Device and inode of the region.
    file: (u64, u64),
}

/// Processes that see the same mounts of one region.
pub(crate) struct Run {
    /// Oldest first; never empty.
    pub(crate) members: Vec<Member>,
    /// Where mounts appear, by root. Empty if the region is another user's: it is not mapped then.
    pub(crate) mounts: Vec<PathBuf>,
    /// The region's FILE; none in memory.
    pub(crate) file: Option<PathBuf>,
    /// The region, unless it is another user's.
    pub(crate) region: Option<Region<'static>>,
    /// Whether calls are counted.
    pub(crate) is_counted: bool,
}

impl Run {
    /// The pid of the oldest process: the launcher's, which becomes the command, as long as that lives.
    pub(crate) fn name(&self) -> u32 {
        self.members[0].pid
    }
}

impl Member {
    /// The member that process `pid` is. `Ok(None)` for a process without a run.
    ///
    /// # Errors
    /// Those of reading /proc/PID/fd: `EACCES` for another user's process, `ENOENT` for one that has ended.
    pub(crate) fn of(pid: u32) -> std::io::Result<Option<Member>> {
        let (mut flights, mut life) = (None, None);
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            let Some(name) = target.to_str().and_then(|target| target.strip_prefix(MEMFD)) else { continue };
            if let Some(rest) = name.strip_prefix(FLIGHTS) {
                flights = parse_flights(rest).zip(std::fs::metadata(entry.path()).ok()).or(flights);
            } else if name.as_bytes().starts_with(life_file::NAME) {
                life = entry.file_name().to_str().and_then(|number| number.parse::<u32>().ok()).or(life);
            }
        }
        let (Some(((identity, run), found)), Some(life)) = (flights, life) else { return Ok(None) };
        let Some(descriptor) = life.checked_sub(1) else { return Ok(None) };
        let region = std::fs::metadata(format!("/proc/{pid}/fd/{descriptor}"))?;
        let started = started(pid).ok_or(ErrorKind::NotFound)?;
        let file = (region.dev(), region.ino());
        Ok(Some(Member { pid, started, owner: found.uid(), identity, run, descriptor, file }))
    }

    /// Its run's record.
    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// The flights of its run.
    pub(crate) fn flights_link(&self, region: Region<'static>) -> Option<String> {
        // Relaxed: immutable.
        let number = region.run(self.run).flights.load(Relaxed).checked_sub(1)?;
        Some(format!("/proc/{}/fd/{number}", self.pid))
    }

    fn region_link(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", self.pid, self.descriptor))
    }

    /// Opens and maps the region. The process may have ended and its pid may be another's: what was opened
    /// must have the identity that the flights named.
    ///
    /// # Errors
    /// One line that says why not.
    pub(crate) fn open(&self) -> Result<(File, Region<'static>), Failure> {
        let opened = File::options().read(true).write(true).open(self.region_link());
        let file = opened.map_err(|e| match e.kind() {
            ErrorKind::NotFound => gone(self.pid),
            _ => Failure::new(REGION, format!("the region of run {}: {}", self.pid, reason(&e))),
        })?;
        let name = format!("the region of run {}", self.pid);
        let region =
            Region::open(Fd::new(file.as_raw_fd())).map_err(|e| Failure::new(REGION, explain(&name, e)))?;
        // Relaxed: immutable.
        match region.header().identity.load(Relaxed) == self.identity {
            true => Ok((file, region)),
            false => Err(gone(self.pid)),
        }
    }

    /// Where the run's mounts appear.
    pub(crate) fn mounts(&self, region: Region<'static>) -> Vec<PathBuf> {
        let run = region.run(self.run);
        let count = (run.mount_count.load(Relaxed) as usize).min(RUN_MOUNTS); // Relaxed: immutable.
        run.mounts[..count].iter().map(|path| MountPoint::from_record(path.get())).collect()
    }

    /// The region's FILE; none in memory.
    fn region_file(&self) -> Option<PathBuf> {
        let target = std::fs::read_link(self.region_link()).ok()?;
        (target.as_os_str() != MEMORY).then_some(target)
    }

    /// The command line, as one line.
    pub(crate) fn command(&self) -> String {
        let line = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    }
}

/// There is no process `pid`, or its run has ended.
pub(crate) fn gone(pid: u32) -> Failure {
    Failure::new(REGION, format!("run {pid} is gone; lightpath ps shows those under way"))
}

/// All runs that the caller may see, the oldest first.
pub(crate) fn all() -> Vec<Run> {
    let own = rustix::process::geteuid().as_raw();
    let Ok(listed) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut records: BTreeMap<((u64, u64), u32), Vec<Member>> = BTreeMap::new();
    for member in pids.filter_map(|pid| Member::of(pid).ok().flatten()) {
        records.entry((member.file, member.run.0)).or_default().push(member);
    }
    let mut runs: Vec<Run> = Vec::new();
    for members in records.into_values() {
        let Some(found) = describe(members, own) else { continue };
        let same = |run: &&mut Run| {
            run.members[0].file == found.members[0].file && run.region.is_some() && run.mounts == found.mounts
        };
        match runs.iter_mut().find(same) {
            // `lightpath exec` takes a run record of its own.
            Some(run) => {
                run.is_counted |= found.is_counted;
                run.members.extend(found.members);
            }
            None => runs.push(found),
        }
    }
    for run in &mut runs {
        run.members.sort_by_key(|member| (member.started, member.pid));
    }
    runs.sort_by_key(|run| (run.members[0].started, run.name()));
    runs
}

/// Unmaps the regions of a list.
///
/// # Safety
/// The caller keeps nothing that came from one of them.
pub(crate) unsafe fn forget(runs: Vec<Run>) {
    for region in runs.into_iter().filter_map(|run| run.region) {
        // SAFETY: nothing that came from it is used any more, by this function's contract.
        unsafe { region.unmap() };
    }
}

/// The run of `members`, which share a run record; `None` if they have all ended meanwhile.
///
/// Another user's region is not mapped: whoever may write the file may truncate it under the reader.
fn describe(members: Vec<Member>, own: u32) -> Option<Run> {
    if members[0].owner != own {
        let file = members[0].region_file();
        return Some(Run { mounts: Vec::new(), file, region: None, is_counted: false, members });
    }
    let (member, (_, region)) = members.iter().find_map(|member| Some((member, member.open().ok()?)))?;
    Some(Run {
        mounts: member.mounts(region),
        file: member.region_file(),
        is_counted: region.run(member.run).stats.load(Relaxed) == CALLS_COUNTED, // Relaxed: immutable.
        region: Some(region),
        members,
    })
}

/// Identity and run from the rest of the flights' name: `IDENTITY:RUN: (deleted)`.
fn parse_flights(text: &str) -> Option<(u64, RunId)> {
    let mut parts = text.split(':');
    let identity = u64::from_str_radix(parts.next()?, 16).ok()?;
    let run = parts.next()?.parse().ok().filter(|run| (1..RUNS as u32).contains(run))?;
    Some((identity, RunId(run)))
}

/// Field 22 of /proc/PID/stat. The name in field 2 may hold anything, a parenthesis too.
fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    text[text.rfind(')')?..].split_ascii_whitespace().nth(20)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_flights_tells_region_and_run() {
        assert_eq!(parse_flights("00000000000000ff:3: (deleted)"), Some((255, RunId(3))));
        for other in ["", "ff", "ff:", "ff:0:", "ff:64:", "x:1:"] {
            assert_eq!(parse_flights(other), None, "{other}");
        }
    }

    #[test]
    fn every_process_has_a_start() {
        assert!(started(std::process::id()).is_some_and(|ticks| ticks > 0));
    }
}

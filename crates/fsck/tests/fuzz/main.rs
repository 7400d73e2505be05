//! Damaged regions: copies of a small region with bytes changed at random are opened, checked, used and
//! mended. Each ends in an error or in a repair: nothing crashes, hangs or touches memory outside the region.
//!
//! `fuzz [--count N] [--seed S] [--only INDEX] [--run N]`. Case INDEX of seed S is always the same. `--run N`
//! sends N of the cases through `lightpath run` instead, as programs meet them.

mod calls;
mod chains;
mod mutate;
mod through_run;

use std::io::Write;
use std::os::fd::RawFd;

use lp_abi::Fd;
use lp_fsck::Severity;
use lp_region::records::{Inode, OpenFile};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{Geometry, LaneId, ProcessId, Region};
use mutate::{Image, Random};

/// Cases in the common test run, and how many of them go through `lightpath run`.
const COUNT: u64 = 2000;
const RUNS: u64 = 60;
/// Seconds after which a case counts as hung: each takes milliseconds.
const PATIENCE: u32 = 30;
/// Unmapped on both sides of the region.
const GUARD: usize = 1 << 30;

/// How a case ended well; the child's exit status.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The header was refused.
    Refused = 10,
    /// The checker found it unusable; mended and used.
    Mended = 11,
    /// Used as it was, then mended if something was found.
    Used = 12,
}

struct Options {
    count: u64,
    seed: u64,
    only: Option<u64>,
    runs: u64,
}

fn options() -> Options {
    let mut options = Options { count: COUNT, seed: 1, only: None, runs: RUNS };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut number = || args.next().and_then(|value| value.parse().ok()).expect("a number");
        match flag.as_str() {
            "--count" => options.count = number(),
            "--seed" => options.seed = number(),
            "--only" => options.only = Some(number()),
            "--run" => options.runs = number(),
            // What cargo passes to every test program.
            _ => {}
        }
    }
    options
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--victim") {
        return through_run::victim();
    }
    let options = options();
    let image = Image::of(template());
    if options.only.is_none() {
        chains::known(&image);
    }
    println!("seed {}, {} cases, {} through a run", options.seed, options.count, options.runs);
    let cases = options.only.map_or(0..options.count, |only| only..only + 1);
    let mut ends = [0u64; 3];
    let mut failed = Vec::new();
    for index in cases {
        match case(&image, options.seed, index) {
            Ok(end) => ends[end as usize - End::Refused as usize] += 1,
            Err(why) => {
                println!("case {index}: {why}; again: fuzz --seed {} --only {index} --run 0", options.seed);
                failed.push(index);
            }
        }
        if failed.len() >= 20 {
            break;
        }
    }
    let [refused, mended, used] = ends;
    println!("{refused} refused by their header, {mended} found unusable and mended, {used} used");
    assert!(failed.is_empty(), "{} cases failed: {failed:?}", failed.len());
    if options.only.is_none() {
        assert!(options.count < 1000 || ends.iter().all(|count| *count > 0), "each end is seen");
        through_run::cases(&image, options.seed, options.runs);
    }
}

/// Runs one case in a child.
fn case(image: &Image, seed: u64, index: u64) -> Result<End, String> {
    std::io::stdout().flush().expect("stdout");
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the child when it hangs. A handler would not do: calls may block signals.
        unsafe { libc::alarm(PATIENCE) };
        let end = child(image, seed, index);
        // SAFETY: ends the child.
        unsafe { libc::_exit(end as i32) }
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if libc::WIFSIGNALED(status) {
        return Err(match libc::WTERMSIG(status) {
            libc::SIGALRM => "hung".to_owned(),
            signal => format!("died of signal {signal}"),
        });
    }
    match libc::WEXITSTATUS(status) {
        10 => Ok(End::Refused),
        11 => Ok(End::Mended),
        12 => Ok(End::Used),
        other => Err(format!("exit status {other}")),
    }
}

fn child(image: &Image, seed: u64, index: u64) -> End {
    let fd = memory();
    let length = image.put(fd);
    let changes = mutate::mutate(image, fd, &mut Random::new(seed, index));
    if std::env::args().any(|arg| arg == "--only") {
        println!("{changes}");
    }
    let Ok(region) = Region::open(Fd::new(fd)) else { return End::Refused };
    guard(region.base().addr(), length);
    let mut end = End::Used;
    let report = lp_fsck::check(region, ProcessId::NONE);
    if report.worst() == Some(Severity::Structure) {
        end = End::Mended;
    } else {
        calls::all(region);
    }
    let repaired = lp_fsck::repair(region).unwrap_or_else(|e| panic!("not mended: {e:?}\n{changes}{report}"));
    assert!(
        repaired.after.is_sound(),
        "after the repair:\n{}\nbefore:\n{}{changes}",
        repaired.after,
        repaired.before
    );
    calls::all(region);
    let after = lp_fsck::check(region, ProcessId::NONE);
    assert!(
        after.is_sound(),
        "after use of what was mended:\n{after}\nbefore:\n{}{changes}",
        repaired.before
    );
    end
}

fn memory() -> RawFd {
    // SAFETY: the name is a string.
    let fd = unsafe { libc::memfd_create(c"region".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "memfd");
    lp_region::life_file::beside(Fd::new(fd)).expect("a life file").raw()
}

/// Makes sure that nothing is mapped next to the region: a touch outside is a fault.
fn guard(base: usize, length: usize) {
    for start in [base - GUARD, base + length] {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping where nothing is, or none.
        unsafe { libc::mmap(start as *mut libc::c_void, GUARD, libc::PROT_NONE, kind, -1, 0) };
    }
}

/// A small region with something of everything in it, and what a killed process leaves.
fn template() -> RawFd {
    let fd = memory();
    let geometry = Geometry { data_bytes: 24 << 20, inodes: 4096, identity: 5 };
    let region = Region::create(Fd::new(fd), &geometry).expect("region");
    calls::populate(region);
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        calls::die_busy(region);
    }
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    let report = lp_fsck::check(region, ProcessId::NONE);
    assert!(report.is_sound(), "the template: {report}");
    for list in [OpenFile::SLAB, Inode::SLAB] {
        let has_some = |lane: u32| region.lane(LaneId(lane)).chains[list].load(Relaxed) != 0;
        assert!((1..region.header().lane_limit.load(Relaxed)).any(has_some), "chain {list} of the template");
    }
    fd
}

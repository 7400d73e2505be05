//! Losses of power: the pages of a region are logged at each step of a workload. Files are made of them as a
//! device may hold them when the power goes: each page as it was at a sync or at some later step. Each is
//! rebuilt, is sound then, and holds what docs/durability.md promises.
//!
//! `power [--images N] [--seed S] [--only INDEX]`. Image INDEX of seed S is always the same. `--measure N`
//! times the rebuild of a region of N files instead.

mod caller;
mod judge;
mod pages;
mod random;
mod world;

use caller::Caller;
use judge::{Checked, Judge};
use lp_abi::Fd;
use lp_region::{Geometry, ProcessId, Region};
use pages::{Log, Mixture, Opened};
use random::Random;
use world::{State, World};

/// Images in the common test run, steps of a workload, and images of one workload.
const IMAGES: u64 = 300;
const STEPS: usize = 500;
const EACH: u64 = 150;
/// Steps from a sync to a crash, at most.
const SPAN: u64 = 250;
/// Bytes of data: little, so that pages are used again soon.
const DATA: u64 = 6 << 20;

struct Options {
    images: u64,
    seed: u64,
    only: Option<u64>,
    measure: Option<u64>,
}

fn options() -> Options {
    let mut options = Options { images: IMAGES, seed: 1, only: None, measure: None };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut number = || args.next().and_then(|value| value.parse().ok()).expect("a number");
        match flag.as_str() {
            "--images" => options.images = number(),
            "--seed" => options.seed = number(),
            "--only" => options.only = Some(number()),
            "--measure" => options.measure = Some(number()),
            // What cargo passes to every test program.
            _ => {}
        }
    }
    options
}

/// A workload that has run.
struct Story {
    log: Log,
    states: Vec<State>,
    length: usize,
}

impl Story {
    fn new(seed: u64, number: u64) -> Story {
        let fd = lp_region::life_file::beside(Fd::new(pages::memory(0))).expect("a life file");
        let geometry = Geometry { data_bytes: DATA, inodes: 4096, identity: 5 };
        let region = Region::create(fd, &geometry).expect("a region");
        let mut world = World::new(Caller::new(region), Random::new(seed, number), DATA / 4096);
        let mut story = Story { log: Log::default(), states: Vec::new(), length: region.length() };
        for step in 0..STEPS {
            story.log.note(step, fd.raw());
            story.states.push(world.state.clone());
            world.step();
        }
        world.caller.leave();
        drop(Opened { region });
        story
    }
}

/// What came of the images so far.
#[derive(Default)]
struct Sums {
    checked: Checked,
    dropped: u64,
    unnamed: u64,
}

fn main() {
    let options = options();
    if let Some(files) = options.measure {
        return measure(files);
    }
    println!("seed {}, {} images", options.seed, options.images);
    let mut sums = Sums::default();
    let images = options.only.map_or(0..options.images, |only| only..only + 1);
    let mut story: Option<(u64, Story)> = None;
    for index in images {
        let number = index / EACH;
        if story.as_ref().is_none_or(|(own, _)| *own != number) {
            story = Some((number, Story::new(options.seed, number)));
        }
        let Some((_, story)) = &story else { unreachable!() };
        if let Err(why) = image(story, options.seed, index, &mut sums) {
            panic!("image {index}: {why}; again: power --seed {} --only {index}", options.seed);
        }
    }
    let Checked { unchanged, renamed, blocks } = sums.checked;
    println!(
        "{unchanged} unchanged objects, {renamed} renamed files, {blocks} blocks of others; \
         {} names dropped, {} found without a name",
        sums.dropped, sums.unnamed
    );
    let seen = [unchanged, renamed, blocks, sums.dropped, sums.unnamed];
    assert!(
        options.images < IMAGES || options.only.is_some() || seen.iter().all(|count| *count > 0),
        "each is seen"
    );
}

/// Makes one image, rebuilds and judges it.
fn image(story: &Story, seed: u64, index: u64, sums: &mut Sums) -> Result<(), String> {
    let mut random = Random::new(seed ^ 0x5eed, index);
    // The region has a root from the first step on.
    let sync = random.below(STEPS as u64 - 1) as usize;
    let span = if random.below(4) == 0 { 1 } else { 1 + random.below(SPAN) };
    let odds = [8, 64, 128, 192, 248][random.below(5) as usize];
    let (sync, crash, mixture) = match index % 5 {
        0 => (sync, sync, Mixture::Latest),
        1 => (sync, (sync + span as usize).min(STEPS - 1), Mixture::Sectors(odds)),
        _ => (sync, (sync + span as usize).min(STEPS - 1), Mixture::Pages(odds)),
    };
    let fd = story.log.image(story.length, sync, crash, mixture, &mut random);
    // Some crash again as they are being rebuilt.
    let before = index.is_multiple_of(7).then(|| pages::pages(fd));
    let mut opened = Opened::new(fd);
    let why = |what: String| format!("sync at {sync}, crash at {crash}, {mixture:?}: {what}");
    let mut rebuilt =
        lp_fsck::rebuild(opened.region).map_err(|errno| why(format!("not rebuilt: {errno:?}")))?;
    if let Some(before) = before {
        let fd = pages::either(&before, opened.region.fd().raw(), story.length, &mut random);
        opened = Opened::new(fd);
        rebuilt = lp_fsck::rebuild(opened.region).map_err(|errno| why(format!("not rebuilt: {errno:?}")))?;
    } else if mixture == Mixture::Latest && rebuilt != lp_fsck::Rebuilt::default() {
        return Err(why(format!("a sound region lost something: {rebuilt:?}")));
    }
    let report = lp_fsck::check(opened.region, ProcessId::NONE);
    if !report.findings.is_empty() {
        return Err(why(format!("after the rebuild: {report}")));
    }
    let caller = Caller::new(opened.region);
    let mut judge = Judge { caller: &caller, states: &story.states[sync..=crash], checked: sums.checked };
    judge.all().map_err(why)?;
    sums.checked = judge.checked;
    sums.dropped += rebuilt.dropped;
    sums.unnamed += rebuilt.unnamed;
    go_on(&caller).map_err(why)?;
    caller.leave();
    let report = lp_fsck::check(opened.region, ProcessId::NONE);
    if report.is_sound() { Ok(()) } else { Err(why(format!("after use: {report}"))) }
}

/// The region can be used.
fn go_on(caller: &Caller) -> Result<(), String> {
    let fail = |errno| format!("use: {errno:?}");
    caller.mkdir("/light/after").map_err(fail)?;
    for number in 0..40 {
        let path = format!("/light/after/{number}");
        caller.create(&path).map_err(fail)?;
        caller.write(&path, &[7; 5000], 0).map_err(fail)?;
    }
    for path in caller.list().iter().filter(|path| path.starts_with("/light/after/")) {
        if caller.read(path, 5000).map_err(fail)? != [7; 5000] {
            return Err(format!("{path} has other bytes"));
        }
        caller.unlink(path, 0).map_err(fail)?;
    }
    caller.reclaim();
    Ok(())
}

/// Prints how long a region of so many files of 5,000 bytes takes to be rebuilt, and to be checked.
fn measure(files: u64) {
    let fd = lp_region::life_file::beside(Fd::new(pages::memory(0))).expect("a life file");
    let geometry = Geometry { data_bytes: files * 16384, inodes: files * 2, identity: 5 };
    let region = Region::create(fd, &geometry).expect("a region");
    let caller = Caller::new(region);
    for number in 0..files {
        let directory = format!("/light/{}", number / 100);
        if number % 100 == 0 {
            caller.mkdir(&directory).expect("mkdir");
        }
        let path = format!("{directory}/{number}");
        caller.create(&path).expect("create");
        caller.write(&path, &[7; 5000], 0).expect("write");
    }
    caller.leave();
    for round in 0..3 {
        let start = std::time::Instant::now();
        lp_fsck::rebuild(region).expect("a rebuild");
        let rebuilt = start.elapsed();
        let report = lp_fsck::check(region, ProcessId::NONE);
        let checked = start.elapsed() - rebuilt;
        assert!(report.findings.is_empty(), "{report}");
        let each = |time: std::time::Duration| time.as_nanos() as u64 / files;
        println!("{round}: rebuilt in {} ns a file, checked in {} ns a file", each(rebuilt), each(checked));
    }
}

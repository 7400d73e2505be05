//! Selects the schedules, runs them in order, and reports on them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::Args;
use crate::calls::{CALLS, Part};
use crate::control::Page;
use crate::oracle::Oracle;
use crate::schedule::{OUTCOMES, Outcome, Schedule, perform};
use crate::trace::{self, Place, Trace};
use crate::verdict::{Finding, Report};

/// Peers that make more than one call.
const SEQUENCES: &[&str] =
    &["reap+fork-stay", "statfs+fork-stay", "bystander", "open-below+write-new", "umount+look-below"];
/// Calls that wait for locks on files, and the calls that release the waiters.
const IN_TURN: &[&str] =
    &["setlkw+unlock", "ofd-setlkw+unlock", "flock-wait+unlock", "ring+unlock", "ring-other+unlock"];
/// Representatives of all calls in another directory.
const ELSEWHERE: &[&str] = &["create@w", "unlink@w", "rename-dir@w", "grow@w", "chmod@w", "flock@w"];
/// Calls that only make sense in a sequence, or are one.
const PARTS_ONLY: &[&str] = &[
    "tidy",
    "unlock",
    "setlkw",
    "ofd-setlkw",
    "flock-wait",
    "ring",
    "ring-other",
    "open-below",
    "write-new",
    "churn",
    "look-below",
];
/// Calls that may both succeed though neither order of them allows it: a path is looked up before the mounts
/// change, in Linux too.
const LOOKED_UP: &[(&str, &str)] = &[
    ("mount", "rename-dir"),
    ("bind", "rename-dir"),
    ("bind-tree", "rename-dir"),
    ("open-tree", "rename-dir"),
    ("mount", "exchange"),
    ("bind", "exchange"),
    ("bind-tree", "exchange"),
    ("open-tree", "exchange"),
    ("detach", "move"),
    ("umount", "move"),
];
/// Calls whose locks outlive the calling thread, because they belong to its process or its open files.
const OF_PROCESSES: &[&str] = &["flock", "flock-common", "setlk", "ofd-setlk", "unlk", "let-go"];

/// Prints all names.
pub(crate) fn list() {
    println!("calls: {}", CALLS.iter().map(|call| call.name).collect::<Vec<_>>().join(" "));
    println!("sequences: {} {}", SEQUENCES.join(" "), IN_TURN.join(" "));
    println!("outcomes: {}", OUTCOMES.map(|(_, name)| name).join(" "));
}

fn outcome(name: &str) -> Result<Outcome> {
    let found = OUTCOMES.iter().find(|(_, known)| *known == name);
    Ok(found.with_context(|| format!("no outcome is called {name}"))?.0)
}

fn outcome_name(outcome: Outcome) -> &'static str {
    OUTCOMES.iter().find(|(known, _)| *known == outcome).map_or("", |(_, name)| name)
}

fn part(name: &str) -> Result<Part> {
    Part::named(name).with_context(|| format!("no call is called {name}"))
}

/// A victim, a peer and an outcome: what is explored instruction by instruction.
#[derive(Clone)]
struct Case {
    victim: Part,
    peer: Part,
    outcome: Outcome,
}

impl Case {
    fn name(&self) -> String {
        format!("{}:{}:{}", self.victim.name, self.peer.name, outcome_name(self.outcome))
    }

    fn schedule(&self, at: u32, then: u32) -> Schedule {
        let (victim, peer) = (self.victim.clone(), self.peer.clone());
        Schedule { victim, peer, outcome: self.outcome, at, place: None, then }
    }
}

/// Runs schedules and collects findings.
pub(crate) struct Explorer {
    args: Args,
    page: &'static Page,
    oracle: Oracle,
    base: PathBuf,
    clean: Vec<String>,
    /// How often each was found. The same finding at several instructions of one case counts once.
    classes: BTreeMap<String, u32>,
    /// The same for tolerated kinds.
    tolerated: BTreeMap<String, u32>,
    /// How often each kind was found, tolerated or not.
    kinds: BTreeMap<String, u32>,
    /// The instructions of a part's calls when undisturbed.
    ways: BTreeMap<String, Rc<[u64]>>,
    trace: &'static Trace,
    schedules: u64,
    stopped: u64,
    waited: u64,
    begin: Instant,
}

impl Explorer {
    /// Creates an explorer with an oracle of its own.
    ///
    /// # Errors
    /// When the given directory is not on a tmpfs.
    pub(crate) fn new(args: Args) -> Result<Explorer> {
        let base = args.tmpfs.join(format!("lp-explore.{}", std::process::id()));
        std::fs::create_dir(&base).with_context(|| format!("{}", base.display()))?;
        Ok(Explorer {
            oracle: Oracle::new(base.clone()),
            args,
            page: Page::new(),
            base,
            clean: Vec::new(),
            classes: BTreeMap::new(),
            tolerated: BTreeMap::new(),
            kinds: BTreeMap::new(),
            ways: BTreeMap::new(),
            trace: Trace::new(),
            schedules: 0,
            stopped: 0,
            waited: 0,
            begin: Instant::now(),
        })
    }

    /// Runs what the arguments select; failure when there is a finding.
    ///
    /// # Errors
    /// When the machine does not permit it.
    pub(crate) fn run(mut self) -> Result<ExitCode> {
        self.clean = self
            .run_one(
                &Case { victim: part("open")?, peer: part("open")?, outcome: Outcome::Go }.schedule(0, 0),
            )?
            .counts()
            .to_vec();
        if self.clean.is_empty() {
            bail!("a region in which nothing happens cannot be judged: {}", self.page.said());
        }
        match self.args.replay.clone() {
            Some(replay) => self.replay(&replay)?,
            None => self.explore()?,
        }
        std::fs::remove_dir_all(&self.base)?;
        let elapsed = self.begin.elapsed().as_secs_f64();
        let (schedules, stopped, waited) = (self.schedules, self.stopped, self.waited);
        println!(
            "{schedules} schedules in {elapsed:.1} s: {stopped} stopped the victim within its call, in {waited} the peer \
             waited; {} bad, {} tolerated",
            self.classes.len(),
            self.tolerated.len()
        );
        for (kind, count) in &self.kinds {
            println!("{kind}: {count} schedules");
        }
        Ok(if self.classes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn replay(&mut self, text: &str) -> Result<()> {
        let fields: Vec<&str> = text.split(':').collect();
        let [victim, peer, name, at, ..] = fields[..] else { bail!("victim:peer:outcome:instruction") };
        let case = Case { victim: part(victim)?, peer: part(peer)?, outcome: outcome(name)? };
        let then = fields.get(4).map_or(Ok(0), |then| then.parse())?;
        let mut schedule = case.schedule(1, then);
        match Place::named(at) {
            Some(place) => schedule.place = Some(place),
            None => schedule.at = at.parse()?,
        }
        self.try_one(&case, &schedule, at)?;
        println!("{}", self.page.said());
        Ok(())
    }

    fn explore(&mut self) -> Result<()> {
        let mut cases = self.cases()?;
        if let Some(from) = &self.args.from {
            let start = cases.iter().position(|case| case.name() == *from);
            cases.drain(..start.with_context(|| format!("no case is called {from}"))?);
        }
        if let Some(shard) = &self.args.shard {
            let (part, parts) = shard.split_once('/').context("K/N")?;
            let (part, parts): (usize, usize) = (part.parse()?, parts.parse()?);
            // Sharded by victim, so that each shard traces only its own.
            let mut victims: Vec<String> = cases.iter().map(|case| case.victim.name.clone()).collect();
            victims.dedup();
            let mine = |case: &Case| {
                let place = victims.iter().position(|name| *name == case.victim.name);
                place.is_some_and(|place| place % parts.max(1) == part.saturating_sub(1))
            };
            cases.retain(mine);
        }
        match self.args.sample {
            Some(count) => self.sample(&cases, count),
            None => cases.iter().try_for_each(|case| self.exhaust(case)),
        }
    }

    /// All selected cases, in the order in which they run.
    fn cases(&self) -> Result<Vec<Case>> {
        let calls = || CALLS.iter().map(|call| call.name).filter(|name| !PARTS_ONLY.contains(name));
        let all = || calls().chain(IN_TURN.iter().copied());
        let given = |given: &[String], all: Vec<String>| if given.is_empty() { all } else { given.to_vec() };
        let victims = given(&self.args.victim, all().map(str::to_owned).collect());
        let peers = all().chain(ELSEWHERE.iter().copied()).chain(SEQUENCES.iter().copied());
        let peers = given(&self.args.peer, peers.map(str::to_owned).collect());
        let most = OUTCOMES.iter().filter(|(known, _)| *known != Outcome::Two || self.args.sample.is_some());
        let outcomes = given(&self.args.outcome, most.map(|(_, name)| (*name).to_owned()).collect());
        let mut cases = Vec::new();
        for victim in &victims {
            for peer in &peers {
                for name in &outcomes {
                    let case = Case { victim: part(victim)?, peer: part(peer)?, outcome: outcome(name)? };
                    // These are calls of a process, not of one of its threads.
                    let process = matches!(victim.as_str(), "born" | "join" | "arrive" | "exit" | "leave")
                        || OF_PROCESSES.contains(&victim.as_str())
                        || case.victim.waits();
                    // A lock of an open file that all processes share stays until the last of them is gone.
                    let common = |one: &Part, other: &Part| one.waits() && other.name == "flock-common";
                    let stays = common(&case.victim, &case.peer) || common(&case.peer, &case.victim);
                    let looked_up = |one: &str, other: &str| LOOKED_UP.contains(&(one, other));
                    let both = looked_up(victim, peer) || looked_up(peer, victim);
                    if (case.outcome != Outcome::Exec || !process) && !stays && !both {
                        cases.push(case);
                    }
                }
            }
        }
        Ok(cases)
    }

    /// Explores every instruction of the victim.
    fn exhaust(&mut self, case: &Case) -> Result<()> {
        if self.args.verbose {
            eprintln!("{} ({} schedules, {} bad)", case.name(), self.schedules, self.classes.len());
        }
        let way = self.follow(&case.schedule(u32::MAX, 1))?;
        let last = self.args.until.min(way.len() as u32);
        for at in (self.args.since.max(1)..=last).step_by(self.args.stride.max(1) as usize) {
            let mut schedule = case.schedule(at, 1 + at % 997);
            schedule.place = trace::place(&way, at);
            if !self.try_one(case, &schedule, &at.to_string())? && schedule.place.take().is_some() {
                // It took another path.
                self.try_one(case, &schedule, &at.to_string())?;
            }
        }
        Ok(())
    }

    /// `count` schedules drawn from all cases and all their instructions.
    fn sample(&mut self, cases: &[Case], count: u32) -> Result<()> {
        let mut random = Random::new(self.args.seed);
        for _ in 0..count {
            let case = &cases[random.below(cases.len() as u64) as usize];
            let way = self.way(&case.victim)?;
            let at = 1 + random.below(way.len() as u64) as u32;
            let then = match case.outcome {
                Outcome::Two => 1 + random.below(self.way(&case.peer)?.len() as u64) as u32,
                _ => 1,
            };
            let mut schedule = case.schedule(at, then);
            schedule.place = trace::place(&way, at).filter(Place::has_name);
            let name = schedule.place.map_or_else(|| at.to_string(), |place| place.to_string());
            self.try_one(case, &schedule, &name)?;
        }
        Ok(())
    }

    /// The instructions of a part's calls when undisturbed, beside a peer that does almost nothing.
    fn way(&mut self, of: &Part) -> Result<Rc<[u64]>> {
        if let Some(known) = self.ways.get(&of.name) {
            return Ok(known.clone());
        }
        let case = Case { victim: of.clone(), peer: part("open")?, outcome: Outcome::Go };
        let way = self.follow(&case.schedule(u32::MAX, 0))?;
        self.ways.insert(of.name.clone(), way.clone());
        Ok(way)
    }

    /// The instructions of a victim that is not stopped.
    fn follow(&self, schedule: &Schedule) -> Result<Rc<[u64]>> {
        Trace::record(Some(self.trace));
        self.run_one(schedule)?;
        Trace::record(None);
        let length = self.page.slots[0].steps.load(std::sync::atomic::Ordering::Relaxed).max(1);
        Ok(self.trace.way(length).into())
    }

    /// Runs one schedule and records its findings; returns whether the victim was stopped within its calls.
    /// `name` identifies the instruction.
    fn try_one(&mut self, case: &Case, schedule: &Schedule, name: &str) -> Result<bool> {
        let report = self.run_one(schedule)?;
        self.schedules += 1;
        self.stopped += u64::from(report.stopped);
        self.waited += u64::from(report.waited);
        let findings = report.judge(schedule, &mut self.oracle, &self.clean)?;
        let mut replay = format!("{}:{name}", case.name());
        if case.outcome == Outcome::Two {
            replay += &format!(":{}", schedule.then);
        }
        findings.into_iter().try_for_each(|finding| self.note(case, finding, &replay))?;
        Ok(report.stopped)
    }

    fn note(&mut self, case: &Case, finding: Finding, replay: &str) -> Result<()> {
        *self.kinds.entry(finding.kind.clone()).or_default() += 1;
        let class = format!("{} {} {}", finding.kind, case.name(), shape(&finding.detail));
        // `waits` is every kind of wait, `waits:split` one.
        let general = finding.kind.split(':').next().unwrap_or_default();
        if self.args.tolerate.iter().any(|kind| *kind == finding.kind || kind == general) {
            *self.tolerated.entry(class).or_default() += 1;
            return Ok(());
        }
        if let Some(known) = self.classes.get_mut(&class) {
            *known += 1;
            return Ok(());
        }
        let line = format!("{}: {}\n    lp-explore --replay {replay}", finding.kind, finding.detail);
        println!("{line}");
        if let Some(path) = &self.args.findings {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
            writeln!(file, "{line}")?;
        }
        self.classes.insert(class, 1);
        Ok(())
    }

    /// Runs a schedule in a process of its own.
    fn run_one(&self, schedule: &Schedule) -> Result<Report> {
        self.page.clear();
        // SAFETY: the process has one thread.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            perform(schedule, self.page);
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if status == 0 {
            return Report::parse(&self.page.said());
        }
        // The stage could not end its actors.
        for slot in &self.page.slots {
            let pid = slot.pid.load(std::sync::atomic::Ordering::Acquire) as i32;
            // SAFETY: an actor's process, in a group of its own, orphaned.
            if pid > 0 && unsafe { libc::getpgid(pid) } == pid {
                // SAFETY: kills that group alone.
                unsafe { libc::kill(-pid, libc::SIGKILL) };
            }
        }
        let detail =
            format!("the first process of the family ends with status {status:x}: {}", self.page.said());
        let findings = vec![Finding { kind: "stage".into(), detail }];
        let mut report = Report::default();
        (report.findings, report.stopped) = (findings, true);
        Ok(report)
    }
}

/// A text with its numbers removed.
fn shape(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit.max(1)
    }
}

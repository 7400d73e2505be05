//! Which schedules there are, in which order they run, and what is said about them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::Args;
use crate::calls::{CALLS, Part};
use crate::control::Page;
use crate::oracle::Oracle;
use crate::schedule::{OUTCOMES, Outcome, Schedule, perform};
use crate::verdict::{Finding, Report};

/// Peers that are more than one call.
const SEQUENCES: &[&str] = &["reap+fork-stay", "statfs+fork-stay", "bystander"];
/// Calls that stand in for all in another directory.
const ELSEWHERE: &[&str] = &["create@w", "unlink@w", "rename-dir@w", "grow@w", "chmod@w", "flock@w"];
/// Calls that only make sense in a sequence.
const PARTS_ONLY: &[&str] = &["tidy"];

/// Prints what can be named.
pub fn list() {
    println!("calls: {}", CALLS.iter().map(|call| call.name).collect::<Vec<_>>().join(" "));
    println!("sequences: {}", SEQUENCES.join(" "));
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
        Schedule { victim: self.victim.clone(), peer: self.peer.clone(), outcome: self.outcome, at, then }
    }
}

/// Runs schedules and collects findings.
pub struct Explorer {
    args: Args,
    page: &'static Page,
    oracle: Oracle,
    base: PathBuf,
    clean: Vec<String>,
    /// How often each was found. The same finding at several instructions of one case is one.
    classes: BTreeMap<String, u32>,
    lengths: BTreeMap<String, u32>,
    schedules: u64,
    stopped: u64,
    waited: u64,
    begin: Instant,
}

impl Explorer {
    /// An explorer with an oracle of its own.
    ///
    /// # Errors
    /// When there is no tmpfs where the arguments say.
    pub fn new(args: Args) -> Result<Explorer> {
        let base = args.tmpfs.join(format!("lp-explore.{}", std::process::id()));
        std::fs::create_dir(&base).with_context(|| format!("{}", base.display()))?;
        Ok(Explorer {
            oracle: Oracle::new(base.clone()),
            args,
            page: Page::new(),
            base,
            clean: Vec::new(),
            classes: BTreeMap::new(),
            lengths: BTreeMap::new(),
            schedules: 0,
            stopped: 0,
            waited: 0,
            begin: Instant::now(),
        })
    }

    /// Runs what the arguments ask for; failure when there is a finding.
    ///
    /// # Errors
    /// When the machine does not let it.
    pub fn run(mut self) -> Result<ExitCode> {
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
             waited; {} bad",
            self.classes.len()
        );
        Ok(if self.classes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn replay(&mut self, text: &str) -> Result<()> {
        let fields: Vec<&str> = text.split(':').collect();
        let [victim, peer, name, at, ..] = fields[..] else { bail!("victim:peer:outcome:instruction") };
        let case = Case { victim: part(victim)?, peer: part(peer)?, outcome: outcome(name)? };
        let then = fields.get(4).map_or(Ok(0), |then| then.parse())?;
        self.try_one(&case, at.parse()?, then)?;
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
            cases = cases.into_iter().skip(part.saturating_sub(1)).step_by(parts.max(1)).collect();
        }
        match self.args.sample {
            Some(count) => self.sample(&cases, count),
            None => cases.iter().try_for_each(|case| self.exhaust(case)),
        }
    }

    /// All cases that the arguments ask for, in the order in which they run.
    fn cases(&self) -> Result<Vec<Case>> {
        let all = || CALLS.iter().map(|call| call.name).filter(|name| !PARTS_ONLY.contains(name));
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
                    // These are what a process does, not one of its threads.
                    let process = matches!(victim.as_str(), "born" | "join" | "arrive" | "exit");
                    if case.outcome != Outcome::Exec || !process {
                        cases.push(case);
                    }
                }
            }
        }
        Ok(cases)
    }

    /// Every instruction of the victim's.
    fn exhaust(&mut self, case: &Case) -> Result<()> {
        if self.args.verbose {
            eprintln!("{} ({} schedules, {} bad)", case.name(), self.schedules, self.classes.len());
        }
        for at in (self.args.since.max(1)..=self.args.until).step_by(self.args.stride.max(1) as usize) {
            if !self.try_one(case, at, 1 + at % 997)? {
                break;
            }
        }
        Ok(())
    }

    /// `count` schedules drawn from all cases and all their instructions.
    fn sample(&mut self, cases: &[Case], count: u32) -> Result<()> {
        let mut random = Random(self.args.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..count {
            let case = &cases[random.below(cases.len() as u64) as usize];
            let at = 1 + random.below(u64::from(self.length(&case.victim)?)) as u32;
            let then = 1 + random.below(u64::from(self.length(&case.peer)?)) as u32;
            self.try_one(case, at, then)?;
        }
        Ok(())
    }

    /// Instructions of a part's calls when nobody disturbs them.
    fn length(&mut self, of: &Part) -> Result<u32> {
        if let Some(known) = self.lengths.get(&of.name) {
            return Ok(*known);
        }
        let schedule =
            Case { victim: of.clone(), peer: part("open")?, outcome: Outcome::Go }.schedule(u32::MAX, 0);
        self.run_one(&schedule)?;
        let length = self.page.slots[0].steps.load(std::sync::atomic::Ordering::Relaxed).max(1);
        self.lengths.insert(of.name.clone(), length);
        Ok(length)
    }

    /// Runs one schedule and notes what it finds; whether the victim was stopped within its calls.
    fn try_one(&mut self, case: &Case, at: u32, then: u32) -> Result<bool> {
        let schedule = case.schedule(at, then);
        let report = self.run_one(&schedule)?;
        self.schedules += 1;
        self.stopped += u64::from(report.stopped);
        self.waited += u64::from(report.waited);
        let findings = report.judge(&schedule, &mut self.oracle, &self.clean)?;
        let mut replay = format!("{}:{at}", case.name());
        if case.outcome == Outcome::Two {
            replay += &format!(":{then}");
        }
        findings.into_iter().try_for_each(|finding| self.note(case, finding, &replay))?;
        Ok(report.stopped)
    }

    fn note(&mut self, case: &Case, finding: Finding, replay: &str) -> Result<()> {
        let class = format!("{} {} {}", finding.kind, case.name(), shape(&finding.detail));
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

    /// Carries a schedule out in a process of its own.
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
                // SAFETY: as above.
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

/// A text without its numbers.
fn shape(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit.max(1)
    }
}

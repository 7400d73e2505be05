//! Schedules at the gate: ptrace(2) stops one thread of a program under `lightpath run` after an instruction
//! of a gated call. Then another thread, another process, a signal, a death, exec(2) or exit(2) intervenes.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};

use crate::Args;
use crate::control::{Event, OTHER, PEER, Page, VICTIM, order, state};
use crate::inside::CALLS;
use crate::life::{End, end_of};
use crate::plan::Random;
use victim::{Victim, in_time};

mod outcomes;
mod victim;

/// Events while the thread is stopped.
const OUTCOMES: [&str; 7] = ["thread", "process", "signal", "restart", "die", "exec", "exit"];
/// Calls of the peers.
static PEERS: [&str; 4] = ["write", "open", "fork", "dup2"];
/// The victim that waits until the other process releases its lock: only signals matter to it.
const HELD: &str = "setlkw-held";
/// Approximate instructions of the longest call.
const LONGEST: u64 = 20_000;
/// No process has this id, so it is nobody's child.
const NOBODY: i32 = i32::MAX;

/// A victim, a peer, an outcome.
struct Case<'a> {
    victim: &'a str,
    peer: &'a str,
    outcome: &'a str,
}

/// Result of a schedule.
enum Outcome {
    /// The victim's call was over before the stop.
    Over,
    /// The findings.
    Findings(Vec<String>),
}

/// Prints all names.
pub(crate) fn list() {
    println!("victims: {}", CALLS.map(|(name, _)| name).join(" "));
    println!("peers: {}", PEERS.join(" "));
    println!("outcomes: {}", OUTCOMES.join(" "));
}

/// Explores instructions of every victim with every peer and outcome; returns the numbers of schedules and
/// findings.
///
/// # Errors
/// When `lightpath` does not run.
pub(crate) fn explore(args: &Args) -> Result<(u64, u32)> {
    // SAFETY: changes this process only: orphans become its children.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    let gate = Gate::new(args)?;
    let only = |given: &[String], name: &str| given.is_empty() || given.iter().any(|known| known == name);
    let (mut schedules, mut bad) = (0, 0);
    if let Some(replay) = &args.replay {
        let fields: Vec<&str> = replay.split(':').collect();
        let [victim, peer, outcome, at] = fields[..] else { bail!("victim:peer:outcome:instruction") };
        bad += gate.try_one(&Case { victim, peer, outcome }, at.parse()?)?.1;
        return Ok((1, bad));
    }
    let mut cases = Vec::new();
    for (victim, _) in CALLS {
        for outcome in OUTCOMES {
            let signal = matches!(outcome, "signal" | "restart");
            // A wait for what the other process holds would never end without a signal.
            // A signal to a thread that is about to end may be lost with it.
            if victim == HELD && !signal || end_of(victim) != End::Report && signal {
                continue;
            }
            // The peer makes no difference to these.
            let peers = if signal || outcome == "exec" { &PEERS[..1] } else { &PEERS[..] };
            for peer in peers {
                let all =
                    only(&args.victim, victim) && only(&args.peer, peer) && only(&args.outcome, outcome);
                if all {
                    cases.push(Case { victim, peer, outcome });
                }
            }
        }
    }
    let Some(sample) = args.sample else {
        for case in &cases {
            let (count, found) = gate.exhaust(case, args)?;
            schedules += count;
            bad += found;
        }
        return Ok((schedules, bad));
    };
    let mut random = Random::new(args.seed);
    let mut lengths = BTreeMap::new();
    while schedules < u64::from(sample) {
        let case = &cases[random.below(cases.len() as u64) as usize];
        let length = lengths.entry(case.victim).or_insert(LONGEST);
        let at = random.below(*length);
        let (within, found) = gate.try_one(case, 1 + at as u32)?;
        // A schedule whose victim was not stopped does not count; it shows the maximum length of the call.
        schedules += u64::from(within);
        if !within {
            *length = at;
        }
        bad += found;
    }
    Ok((schedules, bad))
}

struct Gate {
    page: &'static Page,
    control: i32,
    me: PathBuf,
    command: PathBuf,
    region: PathBuf,
    tolerated: Vec<String>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.region);
    }
}

impl Gate {
    fn new(args: &Args) -> Result<Gate> {
        let me = std::env::current_exe()?;
        // SAFETY: the name is a string. Children inherit the descriptor.
        let control = unsafe { libc::memfd_create(c"control".as_ptr(), 0) };
        // SAFETY: a file of this process's.
        unsafe { libc::ftruncate(control, size_of::<Page>() as i64) };
        let region = args.tmpfs.join(format!("lp-explore.{}.region", std::process::id()));
        let command = me.with_file_name("lightpath");
        Ok(Gate { page: Page::of(control), control, command, me, region, tolerated: args.tolerate.clone() })
    }

    /// Every `stride`-th instruction.
    fn exhaust(&self, case: &Case, args: &Args) -> Result<(u64, u32)> {
        let (mut schedules, mut bad) = (0, 0);
        for at in (args.since.max(1)..=args.until).step_by(args.stride.max(1) as usize) {
            let (within, found) = self.try_one(case, at)?;
            schedules += 1;
            bad += found;
            // A few findings of a kind are enough.
            if !within || bad == 3 {
                break;
            }
        }
        Ok((schedules, bad))
    }

    /// Runs one schedule and prints its findings; returns whether the victim was stopped within its call, and
    /// their number.
    fn try_one(&self, case: &Case, at: u32) -> Result<(bool, u32)> {
        let mut program = self.start(case)?;
        let end = self.play(&mut program, case, at);
        self.sweep(&mut program);
        let mut findings = match end? {
            Outcome::Over => return Ok((false, 0)),
            Outcome::Findings(findings) => findings,
        };
        let checked = Command::new(&self.command).arg("fsck").arg(&self.region).output()?;
        if !checked.status.success() {
            findings.push(format!("fsck: {}", String::from_utf8_lossy(&checked.stdout).replace('\n', "; ")));
        }
        findings.retain(|finding| !self.tolerated.iter().any(|kind| finding.starts_with(kind)));
        let Case { victim, peer, outcome } = case;
        for finding in &findings {
            println!("gate: {finding}\n    lp-explore --gate --replay {victim}:{peer}:{outcome}:{at}");
        }
        Ok((true, findings.len() as u32))
    }

    fn start(&self, case: &Case) -> Result<Child> {
        self.page.clear();
        let _ = std::fs::remove_file(&self.region);
        let restart = if case.outcome == "restart" { "restart" } else { "" };
        let inside = format!("{}:{}:{restart}", case.victim, case.peer);
        let mut run = Command::new(&self.command);
        run.arg("run").args(["--size", "32M", "--region"]).arg(&self.region).arg("--").arg(&self.me);
        run.args(["--gate", "--control", &self.control.to_string(), "--inside", &inside]);
        run.stdin(Stdio::null()).process_group(0);
        let program = run.spawn().with_context(|| format!("{}", self.command.display()))?;
        for index in [OTHER, VICTIM, PEER] {
            let slot = &self.page.slots[index];
            if slot.wait(program.id() as i32) != Event::State(state::DONE) {
                bail!("the program of {inside} does not begin");
            }
        }
        Ok(program)
    }

    /// Kills all remaining processes, and waits for them.
    fn sweep(&self, program: &mut Child) {
        let other = self.page.slots[OTHER].pid.load(Ordering::Acquire) as i32;
        if other > 0 {
            // SAFETY: a child of the program or of this process, not yet waited for.
            unsafe { libc::kill(other, libc::SIGKILL) };
        }
        let _ = program.kill();
        // The end of a traced thread is waited for like that of a child, and the end of its process comes
        // after it. SAFETY: waits for children; none is left alive.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL) } > 0 {}
    }

    fn play(&self, program: &mut Child, case: &Case, at: u32) -> Result<Outcome> {
        let pid = program.id() as i32;
        let Some(victim) = Victim::stop(self.page, pid, at, end_of(case.victim))? else {
            return Ok(Outcome::Over);
        };
        let mut findings = Vec::new();
        let mut wrong = |what: String| findings.push(what);
        match case.outcome {
            "thread" | "process" => self.beside(program, case, &victim, &mut wrong),
            "signal" | "restart" => {
                // SAFETY: a signal to the stopped thread.
                unsafe { libc::syscall(libc::SYS_tgkill, pid, victim.tid, libc::SIGUSR1) };
                victim.let_go();
                self.signalled(case, victim.tid, &mut wrong);
            }
            "die" => {
                // SAFETY: a child of this process.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                in_time(pid, || victim.is_gone());
                program.wait()?;
                if self.ask(OTHER, order::CALLS) {
                    self.results(&[OTHER], &mut wrong);
                } else {
                    wrong(format!("{} waits after the death of a {}", case.peer, case.victim));
                }
            }
            "exec" => self.executed(program, case, &victim, &mut wrong),
            _ => {
                self.page.slots[PEER].tell(order::LEAVE);
                let mut ended = || matches!(program.try_wait(), Ok(Some(_)));
                // As above.
                let ended = in_time(pid, || victim.is_gone() && ended()) || {
                    victim.let_go();
                    in_time(pid, ended)
                };
                let status = program.try_wait()?;
                if !ended || !status.is_some_and(|status| status.success()) {
                    wrong(format!("exit of a program whose thread is inside {}: {status:?}", case.victim));
                }
                if self.ask(OTHER, order::CALLS) {
                    self.results(&[OTHER], &mut wrong);
                } else {
                    wrong(format!("{} waits after the exit of a {}", case.peer, case.victim));
                }
            }
        }
        Ok(Outcome::Findings(findings))
    }
}

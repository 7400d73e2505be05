//! Schedules at the gate: ptrace(2) stops one thread of a program under `lightpath run` after an instruction
//! of a gated call. Then another thread, another process, a signal, a death, exec(2) or exit(2) intervenes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::Args;
use crate::control::{Event, OTHER, PEER, Page, VICTIM, order, state};
use crate::inside::CALLS;
use crate::life::{End, end_of};
use crate::plan::Random;

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
/// Checks after which nothing can be in progress any more.
const ALL_LOOKS: u32 = 6000;
/// How long a thread must only sleep before that counts as waiting.
const ASLEEP: Duration = Duration::from_millis(300);

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
pub fn list() {
    println!("victims: {}", CALLS.map(|(name, _)| name).join(" "));
    println!("peers: {}", PEERS.join(" "));
    println!("outcomes: {}", OUTCOMES.join(" "));
}

/// Explores instructions of every victim with every peer and outcome; returns the numbers of schedules and
/// findings.
///
/// # Errors
/// When `lightpath` does not run.
pub fn explore(args: &Args) -> Result<(u64, u32)> {
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
        let Some(victim) = self.stop(pid, at, end_of(case.victim))? else { return Ok(Outcome::Over) };
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

    /// A peer makes its call beside the stopped victim.
    fn beside(&self, program: &mut Child, case: &Case, victim: &Victim, wrong: &mut dyn FnMut(String)) {
        let peer = if case.outcome == "thread" { PEER } else { OTHER };
        let done = self.ask(peer, order::CALLS);
        if !done && peer == OTHER {
            wrong(format!("waits: {} in another process waits for a stopped {}", case.peer, case.victim));
        }
        victim.let_go();
        let end = end_of(case.victim);
        // A thread that waits ends with its program, or with the program's image.
        let is_cut_off = peer == PEER && !done && matches!(end, End::Program | End::Image);
        if !self.ends(program, end, victim.tid) || !is_cut_off && !self.finishes(peer) {
            return wrong("the victim or its peer waits for ever".into());
        }
        if matches!(end, End::Report | End::Image) {
            self.results(&[VICTIM], wrong);
        }
        if !is_cut_off {
            self.results(&[peer], wrong);
        }
    }

    /// The main thread executes the program again beside the stopped victim.
    fn executed(&self, program: &mut Child, case: &Case, victim: &Victim, wrong: &mut dyn FnMut(String)) {
        let pid = program.id() as i32;
        let slot = &self.page.slots[PEER];
        slot.results[0].store(-1, Ordering::Relaxed);
        slot.tell(order::NEXT);
        let arrived = || slot.wait_a_while(NOBODY) == Some(Event::State(state::DONE));
        if in_time(pid, || victim.is_gone() && arrived()) {
            return self.results(&[PEER], wrong);
        }
        // A lock of another thread may be in the way, in the C library or in the gate. Then the victim may
        // have been first to end the program, or to execute it.
        victim.let_go();
        let end = end_of(case.victim);
        let mut is_first = false;
        let done = in_time(pid, || {
            is_first = match end {
                End::Program => program.try_wait().is_ok_and(succeeded),
                End::Image => {
                    let state = self.page.slots[VICTIM].wait_a_while(NOBODY);
                    state == Some(Event::State(state::DONE))
                }
                End::Report | End::Thread => false,
            };
            is_first || arrived()
        });
        match done {
            true if is_first => {}
            true => self.results(&[PEER], wrong),
            false => wrong(format!("exec of a program whose thread is inside {} never ends", case.victim)),
        }
    }

    /// Checks the effect of a signal to the victim: its handler has run once, under the right mask, and the
    /// call's result is right.
    fn signalled(&self, case: &Case, tid: i32, wrong: &mut dyn FnMut(String)) {
        let slot = &self.page.slots[VICTIM];
        let mut held = case.victim == HELD;
        let done = in_time(tid, || {
            // The call may have begun after the handler had run; it then rightly waits, or restarts.
            if held && slot.signalled.load(Ordering::Acquire) != 0 {
                held = !self.ask(OTHER, order::NEXT);
            }
            slot.wait_a_while(NOBODY) == Some(Event::State(state::DONE))
        });
        let (times, mask) = (slot.signalled.load(Ordering::Acquire), slot.hits.load(Ordering::Relaxed));
        if !done {
            return wrong(format!(
                "{} never ends after a signal; its handler ran {times} times",
                case.victim
            ));
        }
        if times != 1 || mask != 1 {
            wrong(format!("the handler ran {times} times, its mask and its call were right {mask} times"));
        }
        let result = slot.results[0].load(Ordering::Relaxed);
        let interrupted =
            case.victim == HELD && case.outcome == "signal" && result == -i64::from(libc::EINTR);
        if result != 0 && !interrupted {
            wrong(format!("{} gives {result} when a signal comes", case.victim));
        }
    }

    fn results(&self, of: &[usize], wrong: &mut dyn FnMut(String)) {
        for index in of {
            let result = self.page.slots[*index].results[0].load(Ordering::Relaxed);
            if result != 0 {
                wrong(format!("actor {index}: {result}"));
            }
        }
    }

    /// Gives an order; returns whether it was completed without waiting for another process.
    fn ask(&self, index: usize, what: u32) -> bool {
        self.page.slots[index].tell(what);
        self.finishes(index)
    }

    /// Whether the victim's call comes to its end.
    fn ends(&self, program: &mut Child, end: End, tid: i32) -> bool {
        match end {
            End::Report => self.finishes(VICTIM),
            End::Image => {
                let slot = &self.page.slots[VICTIM];
                in_time(program.id() as i32, || slot.wait_a_while(NOBODY) == Some(Event::State(state::DONE)))
            }
            End::Thread => {
                let thread = format!("/proc/{}/task/{tid}", program.id());
                in_time(tid, || !Path::new(&thread).exists())
            }
            End::Program => in_time(program.id() as i32, || program.try_wait().is_ok_and(succeeded)),
        }
    }

    fn finishes(&self, index: usize) -> bool {
        let slot = &self.page.slots[index];
        in_time(slot.pid.load(Ordering::Acquire) as i32, || {
            slot.wait_a_while(NOBODY) == Some(Event::State(state::DONE))
        })
    }

    /// Stops the victim after `at` instructions of its call; none if the call is over before.
    fn stop(&self, pid: i32, at: u32, end: End) -> Result<Option<Victim>> {
        let slot = &self.page.slots[VICTIM];
        let tid = slot.pid.load(Ordering::Acquire) as i32;
        let awaited = if end == End::Image { -pid } else { tid };
        let victim = Victim { tid, awaited, signal: Cell::new(0), gone: Cell::new(false) };
        // It stops after an exec(2) of its own, too.
        victim.ask(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACEEXEC)?;
        victim.ask(libc::PTRACE_INTERRUPT, 0)?;
        victim.wait()?;
        slot.tell(order::CALLS);
        for _ in 0..at {
            let stopped = victim.step();
            if end != End::Report && stopped.is_err() {
                return Ok(None);
            }
            stopped?;
            if slot.state.load(Ordering::Acquire) == state::DONE {
                victim.let_go();
                return Ok(None);
            }
        }
        Ok(Some(victim))
    }
}

/// A traced thread of another process.
struct Victim {
    tid: i32,
    /// Whom to wait for: the thread; or its process group, where a thread that executes a program goes on
    /// under its process's number.
    awaited: i32,
    /// The signal to deliver when it continues.
    signal: Cell<i32>,
    gone: Cell<bool>,
}

impl Victim {
    fn ask(&self, what: libc::c_uint, data: i32) -> Result<()> {
        // SAFETY: the thread is a child's; the call changes nothing here.
        let done = unsafe { libc::ptrace(what, self.tid, 0usize, data as usize) };
        if done < 0 { bail!("ptrace {what:x}: {}", std::io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits until it stops.
    fn wait(&self) -> Result<()> {
        let mut status = 0;
        // SAFETY: waits for a traced thread.
        let got = unsafe { libc::waitpid(self.awaited, &raw mut status, libc::__WALL) };
        if got != self.tid || !libc::WIFSTOPPED(status) {
            bail!("the victim ends with {status:x}");
        }
        let signal = libc::WSTOPSIG(status);
        self.signal.set(if signal == libc::SIGTRAP { 0 } else { signal });
        Ok(())
    }

    fn step(&self) -> Result<()> {
        self.ask(libc::PTRACE_SINGLESTEP, self.signal.get())?;
        self.wait()
    }

    fn let_go(&self) {
        // It may have been killed meanwhile.
        let _ = self.ask(libc::PTRACE_DETACH, self.signal.get());
    }

    /// Whether it has been killed. Its process cannot end before this was asked.
    fn is_gone(&self) -> bool {
        let mut status = 0;
        // SAFETY: asks about a traced thread.
        let got = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
        self.gone.set(self.gone.get() || got < 0 || got == self.tid && !libc::WIFSTOPPED(status));
        self.gone.get()
    }
}

/// Whether a program that may have ended has done so with status 0.
fn succeeded(ended: Option<std::process::ExitStatus>) -> bool {
    ended.is_some_and(|status| status.success())
}

/// Polls until `is_so`; false once the thread `tid`, which could make it so, only sleeps.
fn in_time(tid: i32, mut is_so: impl FnMut() -> bool) -> bool {
    let mut awake = Instant::now();
    for _ in 0..ALL_LOOKS {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
        if !sleeps(tid) {
            awake = Instant::now();
        }
        if awake.elapsed() > ASLEEP {
            return false;
        }
    }
    false
}

/// Whether a thread sleeps in a system call that waits for others: futex(2), nanosleep(2),
/// clock_nanosleep(2), fcntl(2).
fn sleeps(tid: i32) -> bool {
    let call = std::fs::read_to_string(Path::new("/proc").join(tid.to_string()).join("syscall"));
    call.is_ok_and(|call| ["202 ", "35 ", "230 ", "72 "].iter().any(|number| call.starts_with(number)))
}

//! One schedule: which process is stopped where, which run meanwhile, and what happens to the stopped one.
//!
//! A process of its own runs it, the stage, which is the parent of all actors, so that failures in a region
//! stay there. It leaves a report, line by line, for [`crate::verdict`].

use std::sync::atomic::Ordering;

use crate::calls::{Made, Part};
use crate::control::{ACTORS, CAST, CHILDREN, Event, JUDGE, OTHER, PEER, Page, VICTIM, order, state};
use crate::door::Door;
use crate::light::Light;
use crate::trace::Place;
use crate::{actor, judge, names, world};

/// What happens to a stopped victim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The peer runs, then the victim goes on.
    Go,
    /// The peer runs, then the victim is killed.
    Kill,
    /// The victim is killed, then the peer runs.
    Die,
    /// The peer runs, a bystander runs, and the victim stays stopped until the end.
    Stop,
    /// If the peer waits for the victim, it is killed while it waits; another process makes its calls; then
    /// the victim goes on.
    Waiter,
    /// The victim is a thread; its process calls exec(2), which kills it and lets a new image arrive; then
    /// the peer runs.
    Exec,
    /// The peer runs, a signal arrives at the victim, and the victim goes on.
    Signal,
    /// The peer is stopped as well, half-way; the victim goes on, then the peer.
    Two,
}

/// All outcomes with their names.
pub(crate) const OUTCOMES: [(Outcome, &str); 8] = [
    (Outcome::Go, "go"),
    (Outcome::Kill, "kill"),
    (Outcome::Die, "die"),
    (Outcome::Stop, "stop"),
    (Outcome::Waiter, "waiter"),
    (Outcome::Exec, "exec"),
    (Outcome::Signal, "signal"),
    (Outcome::Two, "two"),
];

/// A schedule.
#[derive(Clone)]
pub(crate) struct Schedule {
    /// The victim.
    pub victim: Part,
    /// Its peer.
    pub peer: Part,
    /// What happens to the victim.
    pub outcome: Outcome,
    /// Instructions of its calls after which the victim is stopped; `u32::MAX` for never.
    pub at: u32,
    /// The place of that instruction, if known.
    pub place: Option<Place>,
    /// The same for the peer, for [`Outcome::Two`].
    pub then: u32,
}
/// Waits that an actor may make before it counts as blocked: it may need several to find that it need not
/// wait.
const TRIES: u32 = 8;
/// Rounds of waits, with no process stopped, after which no progress is possible. A reader waits up to 100
/// times for each section that a dead process has left open.
const ROUNDS: u32 = 500;
/// Seconds after which a stage that is stuck outside an actor is abandoned.
const LIMIT: u32 = 300;

/// The stage.
pub(crate) struct Stage<'s> {
    page: &'static Page,
    schedule: &'s Schedule,
    /// The roles of victim, peer and other.
    parts: [Option<Part>; CHILDREN],
    pids: [i32; ACTORS],
    /// Actors that are alive and have not left.
    alive: [bool; ACTORS],
    /// Actors that are stopped between two instructions.
    stopped: [bool; ACTORS],
    report: Vec<String>,
}

/// The bystander of [`Outcome::Stop`], or the second peer of [`Outcome::Waiter`].
pub(crate) fn other(schedule: &Schedule) -> Option<Part> {
    match schedule.outcome {
        Outcome::Stop => Part::named("bystander"),
        Outcome::Waiter | Outcome::Exec => Some(schedule.peer.clone()),
        _ => None,
    }
}

/// The first process to meet the victim: the peer, or the process that the victim is a thread of.
pub(crate) fn first(schedule: &Schedule) -> Part {
    match schedule.outcome {
        Outcome::Exec => Part::named("arrive").unwrap_or_else(|| schedule.peer.clone()),
        _ => schedule.peer.clone(),
    }
}

/// Runs a schedule and leaves the report in `page`. Ends the process.
pub(crate) fn perform(schedule: &Schedule, page: &'static Page) -> ! {
    // SAFETY: all change this process only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        libc::alarm(LIMIT);
    }
    let mut stage = Stage {
        page,
        schedule,
        parts: [Some(schedule.victim.clone()), Some(first(schedule)), other(schedule)],
        pids: [0; ACTORS],
        alive: [false; ACTORS],
        stopped: [false; ACTORS],
        report: Vec::new(),
    };
    let light = Light::found();
    world::furnish(&light);
    stage.cast(&light);
    let ready = (0..ACTORS).all(|index| stage.pids[index] == 0 || stage.alive[index]);
    if ready && stage.act(&light) {
        stage.close(&light);
    }
    stage.sweep();
    page.say(&stage.report.join("\n"));
    // SAFETY: ends the stage.
    unsafe { libc::_exit(0) }
}

impl Stage<'_> {
    fn find(&mut self, kind: &str, detail: &str) {
        self.report.push(format!("F\t{kind}\t{}", detail.replace(['\n', '\t'], " ")));
    }

    /// Forks all actors.
    fn cast(&mut self, light: &Light) {
        let parts = CAST.map(|index| (index, self.parts[index].clone()));
        if self.parts.iter().flatten().any(Part::wants_corpse) {
            corpse(light);
        }
        let mut process = lp_region::ProcessId::NONE;
        for (index, part) in &parts {
            let (index, Some(part)) = (*index, part) else { continue };
            let child = match self.schedule.outcome {
                Outcome::Exec if index == VICTIM => light.thread(process),
                _ if part.is_stranger() => light.stranger(),
                _ => light.child(),
            };
            process = child.id();
            let page = self.page;
            self.fork(index, &child, || actor::play(&child, page, index, part));
        }
        let stranger = light.stranger();
        let page = self.page;
        self.fork(JUDGE, &stranger, || judge::judge(&stranger, page));
    }

    fn fork(&mut self, index: usize, what: &Light, play: impl FnOnce()) {
        let pid = what.fork_into() as i32;
        if pid == 0 {
            // SAFETY: both change this process only. It does not outlive the stage, stopped or not; its
            // children end with it.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::setpgid(0, 0);
            }
            play();
        }
        self.pids[index] = pid;
        let event = self.page.slots[index].wait(pid);
        self.alive[index] = self.expect(index, event, "as it begins");
    }

    fn name(&self, index: usize) -> &'static str {
        ["the victim", "the peer", "the other", "a child", "a child", "a child", "the judge"][index]
    }

    /// Records an unexpected event; returns whether the actor can go on.
    fn expect(&mut self, index: usize, event: Event, when: &str) -> bool {
        let name = self.name(index);
        match event {
            Event::State(state::PANICKED) => {
                let said = self.page.said();
                self.find("panic", &format!("{name} panics {when}: {said}"));
            }
            Event::State(_) => return true,
            Event::Died(status) => self.find("death", &format!("{name} dies {when}: status {status:x}")),
            Event::Silence => self.find("loop", &format!("{name} neither ends nor waits {when}")),
        }
        false
    }

    /// Gives an order and follows it as long as the actor only retries.
    fn tell(&mut self, index: usize, what: u32, when: &str) -> Option<u32> {
        let slot = &self.page.slots[index];
        let mut event = {
            slot.tell(what);
            self.start(index);
            slot.wait(self.pids[index])
        };
        for _ in 0..TRIES {
            if event != Event::State(state::BLOCKED) {
                break;
            }
            slot.tell(order::GO_ON);
            event = slot.wait(self.pids[index]);
        }
        let ended = self.ended(index, event, when);
        self.adopt();
        ended
    }

    /// Waits until children forked meanwhile are born, or wait for another process.
    fn adopt(&mut self) {
        for index in CHILDREN..JUDGE {
            let pid = self.page.slots[index].pid.load(Ordering::Acquire) as i32;
            if self.pids[index] == 0 && pid != 0 {
                self.pids[index] = pid;
                let event = self.page.slots[index].wait(pid);
                self.alive[index] = self.ended(index, event, "being born").is_some();
            }
        }
    }

    fn start(&mut self, index: usize) {
        if std::mem::take(&mut self.stopped[index]) {
            // SAFETY: a child of ours.
            unsafe { libc::kill(self.pids[index], libc::SIGCONT) };
        }
    }

    fn ended(&mut self, index: usize, event: Event, when: &str) -> Option<u32> {
        if !self.expect(index, event, when) {
            self.alive[index] = false;
            return None;
        }
        let Event::State(now) = event else { return None };
        if now == state::STOPPED && index < CHILDREN {
            let mut status = 0;
            // SAFETY: waits for a child.
            unsafe { libc::waitpid(self.pids[index], &raw mut status, libc::WUNTRACED) };
            self.stopped[index] = true;
        }
        Some(now)
    }

    /// Ends waits in turn until no actor waits; returns whether that worked. An actor may rightly wait for a
    /// lock on a file that another holds; then an actor with nothing left to do leaves.
    fn settle(&mut self, when: &str) -> bool {
        loop {
            let Some(waiting) = self.end_waits(when) else { return false };
            if waiting.is_empty() {
                return true;
            }
            let right = waiting.iter().all(|index| self.waits_for_file(*index));
            let idle = CAST
                .into_iter()
                .find(|index| self.alive[*index] && !self.stopped[*index] && !waiting.contains(index));
            let Some(idle) = idle.filter(|_| right) else {
                let hung: Vec<&str> = waiting.iter().map(|index| self.name(*index)).collect();
                self.find("hang", &format!("{} waits for ever {when}", hung.join(" and ")));
                return false;
            };
            if self.tell(idle, order::VERIFY, when) != Some(state::DONE) || !self.retire(idle, when) {
                return false;
            }
        }
    }

    /// Ends waits in turn; returns the actors that still wait after many rounds. `None` when something went
    /// wrong.
    fn end_waits(&mut self, when: &str) -> Option<Vec<usize>> {
        let mut waiting = Vec::new();
        for _ in 0..ROUNDS {
            waiting = (0..ACTORS).filter(|index| self.is_blocked(*index)).collect();
            if waiting.is_empty() {
                break;
            }
            for index in &waiting {
                self.page.slots[*index].tell(order::GO_ON);
                let event = self.page.slots[*index].wait(self.pids[*index]);
                self.ended(*index, event, when)?;
            }
        }
        waiting.retain(|index| self.is_blocked(*index));
        Some(waiting)
    }

    fn is_blocked(&self, index: usize) -> bool {
        self.alive[index] && self.page.slots[index].state.load(Ordering::Acquire) == state::BLOCKED
    }

    /// Whether an actor is in a call that waits for a file lock held by another.
    fn waits_for_file(&self, index: usize) -> bool {
        let part = self.parts.get(index).and_then(Option::as_ref);
        part.and_then(|part| self.current(index, part)).is_some_and(|made| made.call.waits)
    }

    /// Records the results of an actor's calls, and makes it leave.
    fn retire(&mut self, index: usize, when: &str) -> bool {
        let results = self.page.slots[index].results();
        self.report.push(format!("R\t{index}\t{results:?}"));
        let told = self.tell(index, order::LEAVE, when).is_some();
        let left = told && self.end_waits(when).is_some() && !self.is_blocked(index);
        if left {
            self.gone(index);
        }
        left
    }

    fn gone(&mut self, index: usize) {
        // SAFETY: waits for a child, which is about to end.
        unsafe { libc::waitpid(self.pids[index], std::ptr::null_mut(), 0) };
        self.alive[index] = false;
    }

    fn kill(&mut self, index: usize) {
        let pid = self.pids[index];
        // SAFETY: a child of ours, and the children it forked, which are ours to wait for once it has ended.
        unsafe {
            libc::kill(-pid, libc::SIGKILL);
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
            while libc::waitpid(-pid, std::ptr::null_mut(), 0) > 0 {}
        }
        self.alive[index] = false;
        self.stopped[index] = false;
    }

    /// The call that an actor is in, or would make next.
    fn current(&self, index: usize, part: &Part) -> Option<Made> {
        part.calls.get(self.page.slots[index].made.load(Ordering::Acquire) as usize).copied()
    }

    /// A peer that waits for a stopped victim must change what the victim changes.
    fn may_wait(&mut self, light: &Light, index: usize, part: &Part) {
        let (Some(mine), Some(its)) =
            (self.current(index, part), self.current(VICTIM, &self.schedule.victim))
        else {
            return;
        };
        if !mine.meets(&its) {
            let name = self.name(index);
            let detail = format!("{name}, in {}, waits for a stopped {}", mine.call.name, its.call.name);
            self.find(&self.kind_of_wait(light, index), &detail);
        }
    }

    /// `waits`, and the lock that an actor waits for.
    fn kind_of_wait(&self, light: &Light, index: usize) -> String {
        let address = self.page.slots[index].waits_at.load(Ordering::Relaxed);
        format!("waits:{}", names::of(light.region(), address))
    }

    /// Runs the schedule until all calls are made. False when an error prevents continuing.
    fn act(&mut self, light: &Light) -> bool {
        let schedule = self.schedule;
        let victim = &self.page.slots[VICTIM];
        victim.left.store(schedule.at, Ordering::Relaxed);
        if let Some(place) = schedule.place {
            victim.hits.store(place.hits, Ordering::Relaxed);
            victim.place.store(place.address, Ordering::Relaxed);
        }
        let Some(now) = self.tell(VICTIM, order::CALLS, "alone") else { return false };
        // It may rightly wait for a file lock that its peer holds.
        let waits_for_file = now == state::BLOCKED && self.waits_for_file(VICTIM);
        let stopped = now == state::STOPPED || waits_for_file;
        self.report.push(format!("S\t{}\t{}", u32::from(stopped), self.made(VICTIM)));
        if !stopped && schedule.at != u32::MAX {
            self.page.slots[VICTIM].left.store(0, Ordering::Relaxed);
        }
        if !waits_for_file && !self.settle("alone") {
            return false;
        }
        if matches!(schedule.outcome, Outcome::Die | Outcome::Exec) {
            self.kill(VICTIM);
        }
        if schedule.outcome == Outcome::Die {
            // The stage is the parent: the gate settles a child's calls when the parent waits for it.
            lp_vfs::reap::child(light.task(), self.pids[VICTIM] as u32);
        }
        if schedule.outcome == Outcome::Two {
            self.page.slots[PEER].left.store(schedule.then, Ordering::Relaxed);
        }
        let when = if self.alive[VICTIM] { "beside the victim" } else { "after the victim's death" };
        let Some(peer) = self.tell(PEER, order::CALLS, when) else { return false };
        let waits = peer == state::BLOCKED;
        self.report.push(format!("P\t{}\t{}", u32::from(waits), self.made(PEER)));
        if waits && stopped && self.alive[VICTIM] {
            self.may_wait(light, PEER, &schedule.peer);
        }
        match schedule.outcome {
            Outcome::Go | Outcome::Die => {}
            Outcome::Exec => {
                let arrived = self.settle("after exec");
                return arrived && self.tell(OTHER, order::CALLS, "after exec").is_some() && self.go_on();
            }
            Outcome::Two if self.stopped[VICTIM] => {
                return self.tell(VICTIM, order::GO_ON, "beside a stopped peer").is_some() && self.go_on();
            }
            Outcome::Kill if stopped => self.kill(VICTIM),
            Outcome::Signal if stopped => self.page.slots[VICTIM].signalled.store(1, Ordering::Relaxed),
            Outcome::Stop if stopped => {
                let Some(now) = self.tell(OTHER, order::CALLS, "as a bystander") else { return false };
                if now == state::BLOCKED
                    && let Some(part) = other(schedule)
                    && let Some(call) = self.current(OTHER, &part)
                {
                    let peer = if waits { " and its waiting peer" } else { "" };
                    let detail =
                        format!("a bystander, in {}, waits for a stopped victim{peer}", call.call.name);
                    self.find(&self.kind_of_wait(light, OTHER), &detail);
                }
                self.kill(VICTIM);
            }
            Outcome::Waiter if stopped && waits => {
                self.kill(PEER);
                if self.tell(OTHER, order::CALLS, "after a waiter's death").is_none() {
                    return false;
                }
            }
            _ => {}
        }
        self.go_on()
    }

    fn made(&self, index: usize) -> u32 {
        self.page.slots[index].made.load(Ordering::Acquire)
    }

    /// Lets all stopped or waiting actors run to their ends.
    fn go_on(&mut self) -> bool {
        loop {
            let stopped =
                [VICTIM, PEER, OTHER].into_iter().find(|index| self.alive[*index] && self.stopped[*index]);
            let Some(index) = stopped else {
                // An actor that waited may be stopped only now.
                if !self.settle("when all go on") {
                    return false;
                }
                if self.stopped.contains(&true) {
                    continue;
                }
                return true;
            };
            if self.tell(index, order::GO_ON, "as it goes on").is_none() {
                return false;
            }
        }
    }

    /// All actors verify and leave; the judge checks.
    fn close(&mut self, light: &Light) {
        for index in [VICTIM, PEER, OTHER] {
            // In a schedule in which no process was stopped, the bystander was not needed.
            if self.alive[index]
                && (self.tell(index, order::VERIFY, "verifying").is_none() || !self.settle("verifying"))
            {
                return;
            }
        }
        self.children();
        for index in [VICTIM, PEER, OTHER] {
            if self.alive[index] && !self.retire(index, "leaving") {
                let name = self.name(index);
                self.find("hang", &format!("{name} cannot leave"));
                return;
            }
        }
        light.exit();
        // Reaps children of actors that are gone, like init: a slot belongs to a zombie until it was waited
        // for. SAFETY: waits for children that have ended.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
        if !self.leave_as(JUDGE, order::CALLS, "looking") {
            return;
        }
        let said = self.page.said();
        self.report.extend(said.lines().map(|line| format!("J\t{line}")));
    }

    /// Children that stayed must have what their parents had.
    fn children(&mut self) {
        for index in CHILDREN..JUDGE {
            if !self.alive[index] {
                continue;
            }
            if self.tell(index, order::VERIFY, "verifying").is_none() || !self.settle("verifying") {
                return;
            }
            let found = self.page.slots[index].results();
            if found != [0, 0] {
                self.find("lost", &format!("being born and verifying, a child that lives finds {found:?}"));
            }
            self.leave_as(index, order::LEAVE, "leaving");
        }
    }

    fn leave_as(&mut self, index: usize, what: u32, when: &str) -> bool {
        if self.tell(index, what, when).is_none() || !self.settle(when) {
            return false;
        }
        self.gone(index);
        true
    }

    /// Ends all remaining actors.
    fn sweep(&mut self) {
        for index in 0..ACTORS {
            let pid = self.page.slots[index].pid.load(Ordering::Acquire) as i32;
            for pid in [pid, self.pids[index]] {
                // SAFETY: actors of this stage, if they have not been waited for yet.
                if pid > 0 && unsafe { libc::getpgid(pid) } == pid {
                    // SAFETY: kills that actor's group alone.
                    unsafe { libc::kill(-pid, libc::SIGKILL) };
                }
            }
        }
        // SAFETY: waits for children; none is left alive.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
    }
}

/// A process that dies with an unnamed file open and a lock on another.
fn corpse(light: &Light) {
    let child = light.child();
    let pid = child.fork_into() as i32;
    if pid == 0 {
        let new = crate::door::NEW;
        assert_eq!(child.born(), 0, "born");
        assert_eq!(child.open(new, c"corpse", libc::O_RDWR | libc::O_CREAT, 0o600), 0, "open");
        child.pwrite(new, &[3; 9000], 0);
        child.unlink(c"corpse");
        child.flock(crate::door::KEEP, libc::LOCK_SH);
        // SAFETY: ends this process, as another process would.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

//! The oracle: makes the same calls on a tmpfs, in every order that a schedule allows.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::calls::Part;
use crate::control::{ACTORS, CAST, CHILDREN, Event, Page, order, state};
use crate::kernel::Kernel;
use crate::{actor, world};

/// The next step of an order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Turn {
    /// The actor makes its next call.
    Call(usize),
    /// The actor's next call finds that what it needs is in use.
    Refused(usize),
    /// The actor is killed.
    Kill(usize),
    /// The actor receives a signal: if it is waiting, its call ends.
    Signal(usize),
}

/// The observable result of a schedule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    /// Results of each actor's calls and of its verification; none for an actor that was killed.
    pub results: Vec<Option<Vec<i64>>>,
    /// The tree.
    pub tree: Vec<String>,
}

/// Gives the process mounts of its own: nobody else sees those that the calls make, and they end with it.
fn apart() {
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: changes this process only; the paths end in NUL.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()) == 0
    };
    assert!(done, "the explorer mounts, and needs the right to");
}

/// Every interleaving of two sequences.
pub(crate) fn merges(one: &[Turn], other: &[Turn]) -> Vec<Vec<Turn>> {
    if one.is_empty() || other.is_empty() {
        return vec![[one, other].concat()];
    }
    let with = |first: Turn, rest: Vec<Vec<Turn>>| {
        rest.into_iter().map(move |order| std::iter::once(first).chain(order).collect())
    };
    with(one[0], merges(&one[1..], other)).chain(with(other[0], merges(one, &other[1..]))).collect()
}

/// Queries the kernel, and caches the answers.
pub(crate) struct Oracle {
    page: &'static Page,
    base: PathBuf,
    known: HashMap<String, Seen>,
    asked: u32,
}

impl Oracle {
    /// An oracle that works below `base`, a directory on a tmpfs.
    pub(crate) fn new(base: PathBuf) -> Oracle {
        Oracle { page: Page::new(), base, known: HashMap::new(), asked: 0 }
    }

    /// The result of one order of the actors' calls.
    ///
    /// # Errors
    /// When the kernel's side cannot be run.
    pub(crate) fn ask(&mut self, parts: &[&Part], turns: &[Turn]) -> Result<&Seen> {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let key = format!("{names:?} {turns:?}");
        if !self.known.contains_key(&key) {
            self.asked += 1;
            let dir = self.base.join(self.asked.to_string());
            std::fs::create_dir(&dir)?;
            let seen = self.carry_out(&dir, parts, turns);
            std::fs::remove_dir_all(&dir)?;
            self.known.insert(key.clone(), seen?);
        }
        Ok(&self.known[&key])
    }

    fn carry_out(&self, dir: &std::path::Path, parts: &[&Part], turns: &[Turn]) -> Result<Seen> {
        self.page.clear();
        let path = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: the process has one thread.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            apart();
            // SAFETY: the path ends in NUL.
            assert_eq!(unsafe { libc::chdir(path.as_ptr()) }, 0, "chdir");
            self.play(parts, turns);
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) }
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if status != 0 {
            bail!("the kernel's side of {turns:?} ended with {status:x}: {}", self.page.said());
        }
        let slots = &self.page.slots;
        let results = parts.iter().enumerate().map(|(index, _)| {
            let killed = turns.contains(&Turn::Kill(index));
            (!killed).then(|| slots[index].results())
        });
        let tree = self.page.said().lines().map(str::to_owned).collect();
        Ok(Seen { results: results.collect(), tree })
    }

    fn play(&self, parts: &[&Part], turns: &[Turn]) {
        world::furnish(&Kernel);
        let mut stage =
            Actors { page: self.page, pids: [0; ACTORS], pending: Default::default(), blocked: [false; 3] };
        for index in CAST.into_iter().filter(|index| *index < parts.len()) {
            // SAFETY: the process has one thread.
            match unsafe { libc::fork() } {
                0 => {
                    take_signals();
                    actor::play(&Kernel, self.page, index, parts[index])
                }
                pid => stage.pids[index] = pid,
            }
            let ready = self.page.slots[index].wait(stage.pids[index]);
            assert_eq!(ready, Event::State(state::DONE), "an actor of the kernel's");
        }
        for turn in turns {
            match turn {
                Turn::Call(index) => stage.pending[*index].push_back(order::NEXT),
                Turn::Refused(index) => stage.pending[*index].push_back(order::REFUSED),
                Turn::Kill(index) => stage.end(*index),
                // SAFETY: a child of this process.
                Turn::Signal(index) => _ = unsafe { libc::kill(stage.pids[*index], libc::SIGUSR1) },
            }
            stage.go_on();
        }
        // A waiter gets the lock once its holder has left.
        for index in CAST {
            if stage.blocked.contains(&true) && !stage.blocked[index] {
                stage.verify(index);
                stage.end(index);
                stage.go_on();
            }
        }
        CAST.into_iter().for_each(|index| stage.verify(index));
        self.page.say(&world::tree(&Kernel).join("\n"));
        CAST.into_iter().for_each(|index| stage.end(index));
        for slot in &self.page.slots[CHILDREN..] {
            match slot.pid.load(std::sync::atomic::Ordering::Acquire) as i32 {
                0 => {}
                // SAFETY: the child of an actor, which waits for orders.
                pid => _ = unsafe { libc::kill(pid, libc::SIGKILL) },
            }
        }
    }
}

/// The kernel's actors: each makes its calls in turn; one that waits for a lock continues when it can.
struct Actors {
    page: &'static Page,
    pids: [i32; ACTORS],
    /// Orders that each has yet to carry out.
    pending: [VecDeque<u32>; 3],
    /// The actors that wait.
    blocked: [bool; 3],
}

impl Actors {
    /// Lets all actors that do not wait make their calls.
    fn go_on(&mut self) {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for index in 0..self.blocked.len() {
                if self.pids[index] == 0 {
                    continue;
                }
                if self.blocked[index] {
                    self.blocked[index] = !self.is_done(index);
                    moved |= !self.blocked[index];
                } else if let Some(order) = self.pending[index].pop_front() {
                    self.page.slots[index].tell(order);
                    self.blocked[index] = !self.is_done(index);
                    moved = true;
                }
            }
        }
    }

    /// Waits until an actor's call is over or waits for a lock; returns whether it is over.
    fn is_done(&self, index: usize) -> bool {
        let waits = || {
            // fcntl(2) and flock(2); a running thread shows no number.
            let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.pids[index]));
            call.is_ok_and(|call| call.starts_with("72 ") || call.starts_with("73 "))
        };
        let slot = &self.page.slots[index];
        loop {
            match slot.wait_a_while(self.pids[index]) {
                Some(event) => {
                    assert_eq!(event, Event::State(state::DONE), "an actor of the kernel's");
                    return true;
                }
                None if waits() => return false,
                None => {}
            }
        }
    }

    fn verify(&mut self, index: usize) {
        if self.pids[index] != 0 {
            self.page.slots[index].tell(order::VERIFY);
            assert!(self.is_done(index), "verifying");
        }
    }

    fn end(&mut self, index: usize) {
        if self.pids[index] != 0 {
            end(std::mem::take(&mut self.pids[index]));
            self.blocked[index] = false;
        }
    }
}

/// Makes a signal end a wait, without other effect.
fn take_signals() {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: the handler does nothing; without SA_RESTART, and zeros are an empty sigaction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
}

fn end(pid: i32) {
    // SAFETY: a child of this process.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

//! What the kernel says: the same calls on a tmpfs, in every order that a schedule allows.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::calls::Part;
use crate::control::{ACTORS, CHILDREN, Event, Page, order, state};
use crate::kernel::Kernel;
use crate::{actor, world};

/// What happens next in an order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Turn {
    /// The actor makes its next call.
    Call(usize),
    /// The actor is killed.
    Kill(usize),
}

/// What can be seen of a schedule when it is over.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Results of each actor's calls and of its verification; none of one that was killed.
    pub results: Vec<Option<Vec<i64>>>,
    /// The tree.
    pub tree: Vec<String>,
}

/// Every order of two sequences that keeps the order of each.
pub fn merges(one: &[Turn], other: &[Turn]) -> Vec<Vec<Turn>> {
    if one.is_empty() || other.is_empty() {
        return vec![[one, other].concat()];
    }
    let with = |first: Turn, rest: Vec<Vec<Turn>>| {
        rest.into_iter().map(move |order| std::iter::once(first).chain(order).collect())
    };
    with(one[0], merges(&one[1..], other)).chain(with(other[0], merges(one, &other[1..]))).collect()
}

/// Asks the kernel, and remembers.
pub struct Oracle {
    page: &'static Page,
    base: PathBuf,
    known: HashMap<String, Seen>,
    asked: u32,
}

impl Oracle {
    /// An oracle that works below `base`, a directory on a tmpfs.
    pub fn new(base: PathBuf) -> Oracle {
        Oracle { page: Page::new(), base, known: HashMap::new(), asked: 0 }
    }

    /// What comes of one order of the actors' calls.
    ///
    /// # Errors
    /// When the kernel's side cannot be carried out.
    pub fn ask(&mut self, parts: &[&Part], turns: &[Turn]) -> Result<&Seen> {
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
            (!killed).then(|| results_of(&slots[index]))
        });
        let tree = self.page.said().lines().map(str::to_owned).collect();
        Ok(Seen { results: results.collect(), tree })
    }

    fn play(&self, parts: &[&Part], turns: &[Turn]) {
        let page = self.page;
        world::furnish(&Kernel);
        let mut pids = [0; ACTORS];
        for (index, part) in parts.iter().enumerate() {
            // SAFETY: the process has one thread.
            match unsafe { libc::fork() } {
                0 => actor::play(&Kernel, page, index, part),
                pid => pids[index] = pid,
            }
            let ready = page.slots[index].wait(pids[index]);
            assert_eq!(ready, Event::State(state::DONE), "an actor of the kernel's");
        }
        let tell = |pids: &[i32; ACTORS], index: usize, what: u32| {
            let slot = &page.slots[index];
            slot.tell(what);
            slot.wait(pids[index])
        };
        for turn in turns {
            match turn {
                Turn::Call(index) => assert_eq!(tell(&pids, *index, order::NEXT), Event::State(state::DONE)),
                Turn::Kill(index) => end(std::mem::take(&mut pids[*index])),
            }
        }
        for index in 0..parts.len() {
            if pids[index] != 0 {
                assert_eq!(tell(&pids, index, order::VERIFY), Event::State(state::DONE));
            }
        }
        page.say(&world::tree(&Kernel).join("\n"));
        pids.into_iter().filter(|pid| *pid != 0).for_each(end);
        for slot in &page.slots[CHILDREN..] {
            match slot.pid.load(std::sync::atomic::Ordering::Acquire) as i32 {
                0 => {}
                // SAFETY: the child of an actor, which waits for orders.
                pid => _ = unsafe { libc::kill(pid, libc::SIGKILL) },
            }
        }
    }
}

fn end(pid: i32) {
    // SAFETY: a child of this process.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// What an actor's calls returned.
pub fn results_of(slot: &crate::control::Slot) -> Vec<i64> {
    let made = slot.made.load(std::sync::atomic::Ordering::Acquire) as usize;
    slot.results.iter().take(made).map(|result| result.load(std::sync::atomic::Ordering::Relaxed)).collect()
}

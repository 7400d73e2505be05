//! A call, what the world is like before it, and what may be found after its maker was killed.

use std::time::{Duration, Instant};

use lp_abi::Result;
use lp_vfs::{Task, reap, reclaim};

use crate::sandbox::{IsDirectory, Sandbox, mkdir, put, remove};
use crate::tree::{self, Tree};
use crate::usage::Usage;
use crate::victim::{self, Call, End};

/// One call to be cut short.
pub struct Case<'a> {
    /// Names and files that are there before.
    pub world: &'a dyn Fn(&Task<'static>) -> Result<()>,
    /// What the victim does before the call, unharmed: opening what the call works on.
    pub before: Call<'a>,
    /// The call.
    pub call: Call<'a>,
    /// Whether a tree is one that a killed call may leave, given those of before and after.
    pub allows: fn(found: &Tree, before: &Tree, after: &Tree) -> bool,
}

/// Nothing but the tree of before and the tree of after.
pub fn all_or_nothing(found: &Tree, before: &Tree, after: &Tree) -> bool {
    found == before || found == after
}

/// Content may be torn, byte by byte old or new, at any size between; everything else is all or nothing.
pub fn content_may_be_torn(found: &Tree, before: &Tree, after: &Tree) -> bool {
    let same_names = found.keys().eq(before.keys()) || found.keys().eq(after.keys());
    same_names
        && found.iter().all(|(name, node)| {
            let (Some(old), Some(new)) = (before.get(name), after.get(name)) else { return true };
            let size = node.size >= old.size.min(new.size) && node.size <= old.size.max(new.size);
            let bytes = node.content.iter().enumerate().all(|(at, byte)| {
                let was = old.content.get(at).copied().unwrap_or(0);
                let is = new.content.get(at).copied().unwrap_or(0);
                *byte == was || *byte == is || *byte == 0
            });
            node.mode == old.mode && size && bytes
        })
}

/// Does nothing.
pub fn nothing(_: &Task<'static>) -> Result<()> {
    Ok(())
}

/// Longest that the survivor may take for its calls: a lock of the dead that nobody takes over shows here.
const PATIENCE: Duration = Duration::from_secs(20);

impl Case<'_> {
    /// Kills at instructions 0, `stride`, 2 `stride`, ... of the call, each time in a fresh region.
    pub fn kill_at_every(&self, stride: u64) {
        let (before, after, length) = self.undisturbed();
        assert!(length > 0, "the call does nothing");
        let mut steps = 0;
        while steps < length {
            self.kill_at(steps, &before, &after);
            steps += stride;
        }
    }

    /// About `points` kills, spread over the call with a stride that is not a round number.
    pub fn kill_at_some(&self, points: u64) {
        let (_, _, length) = self.undisturbed();
        self.kill_at_every((length / points).max(1) | 1);
    }

    fn undisturbed(&self) -> (Tree, Tree, u64) {
        let sandbox = Sandbox::new();
        (self.world)(&sandbox.task).expect("the world before");
        let before = tree::read(&sandbox.task).expect("the tree before");
        let End::Finished(length) = victim::run(&sandbox, self.before, self.call, victim::WHOLE) else {
            unreachable!("not killed")
        };
        let after = tree::read(&sandbox.task).expect("the tree after");
        (before, after, length)
    }

    fn kill_at(&self, steps: u64, before: &Tree, after: &Tree) {
        let sandbox = Sandbox::new();
        let task = &sandbox.task;
        // A directory that had entries keeps a page: what is empty is a world that was made and cleared.
        (self.world)(task).and_then(|()| tree::clear(task)).expect("a world and its end");
        reclaim::run(task);
        let empty = Usage::of(task.region);
        (self.world)(task).expect("the world before");
        victim::run(&sandbox, self.before, self.call, steps);
        let start = Instant::now();
        let go_on = || -> Result<Tree> {
            // Takes the directory's lock over, if the dead had it.
            put(task, "/light/witness", b"alive")?;
            mkdir(task, "/light/witnesses")?;
            remove(task, "/light/witnesses", IsDirectory::Yes)?;
            remove(task, "/light/witness", IsDirectory::No)?;
            reap::dead(task);
            tree::read(task)
        };
        let found = go_on().unwrap_or_else(|errno| panic!("killed after {steps} instructions: {errno:?}"));
        assert!(
            (self.allows)(&found, before, after),
            "killed after {steps} instructions\nfound: {found:#?}\nbefore: {before:#?}\nafter: {after:#?}"
        );
        tree::clear(task).unwrap_or_else(|errno| panic!("clearing after {steps} instructions: {errno:?}"));
        reclaim::run(task);
        reclaim::run(task);
        let left = Usage::of(task.region);
        assert_eq!(left, empty, "killed after {steps} instructions: something leaked");
        assert!(
            start.elapsed() < PATIENCE,
            "killed after {steps} instructions: the survivor waited too long"
        );
    }
}

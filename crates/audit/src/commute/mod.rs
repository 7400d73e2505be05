//! Conflict-freedom of all pairs of calls that commute: the test of the scalable commutativity rule (Clements
//! and others, SOSP 2013), which asks for an implementation in which calls that commute touch no cache line
//! that the other writes.
//!
//! A pair commutes if both orders give both calls the same results and lead to the same [`state`]. A child
//! that is single-stepped makes each call from the state that the pairs find, once for each actor; the cache
//! lines of the region that the two calls of a pair touch are compared.

mod calls;
mod heat;
mod places;
mod report;
mod state;
mod tree;
mod world;

pub use report::Report;
pub use world::Actors;

use crate::matrix::conflicting_lines;
use crate::tracer::{Count, Tracer};
use anyhow::{Result, bail};
use calls::{Call, Outcome};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::collections::BTreeSet;
use world::World;

/// A pair of calls that commutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The two system calls.
    pub kinds: [&'static str; 2],
    /// Their arguments.
    pub arguments: [String; 2],
    /// The fields that one writes on a line that the other touches; empty if there is no conflict.
    pub fields: BTreeSet<String>,
    /// The fields that either reads on such a line.
    pub read: BTreeSet<String>,
}

/// What was found with one kind of actors.
#[derive(Debug, Clone)]
pub struct Findings {
    /// The actors.
    pub actors: Actors,
    /// Number of pairs that were tried.
    pub tried: usize,
    /// Those that commute.
    pub pairs: Vec<Pair>,
}

impl Findings {
    /// Tries all pairs of every `stride`th call.
    ///
    /// # Errors
    /// If the world cannot be made, or a child not be traced.
    pub fn of(actors: Actors, stride: usize) -> Result<Self> {
        let world = World::new(actors)?;
        state::begin(world.began);
        let calls: Vec<Call> = calls::all().into_iter().step_by(stride.max(1)).collect();
        let counts = counted(&world, &calls)?;
        let (mut pairs, mut tried) = (Vec::new(), 0);
        for first in 0..calls.len() {
            for second in first..calls.len() {
                tried += 1;
                let both = [&calls[first], &calls[second]];
                if made(&world, both, 0)? == made(&world, both, 1)? {
                    let (fields, read) = fields(&counts[0][first], &counts[1][second]);
                    pairs.push(Pair {
                        kinds: both.map(|call| call.kind),
                        arguments: both.map(|call| call.arguments.clone()),
                        fields,
                        read,
                    });
                }
            }
        }
        Ok(Self { actors, tried, pairs })
    }

    /// The share of commuting pairs without a conflict for each two system calls, as an SVG heat map.
    #[must_use]
    pub fn heat_map(&self) -> String {
        heat::map(self)
    }

    /// Those that conflict.
    pub fn conflicts(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(|pair| !pair.fields.is_empty())
    }
}

/// Makes both calls, that of actor `first` first. Returns the results by actor, and the state.
fn made(world: &World, calls: [&Call; 2], first: usize) -> Result<([Outcome; 2], String)> {
    world.restore()?;
    let make = |actor: usize| (calls[actor].run)(world.task(actor));
    let results = match first {
        0 => [make(0), make(1)],
        _ => {
            let second = make(1);
            [make(0), second]
        }
    };
    Ok((results, state::of([world.task(0), world.task(1)])))
}

/// What each call executes, by actor. A child makes them.
fn counted(world: &World, calls: &[Call]) -> Result<[Vec<Count>; 2]> {
    // SAFETY: the child makes only calls on the region, which no other thread of this process does.
    let child = match unsafe { fork() }? {
        ForkResult::Child => {
            let done = perform(world, calls);
            // SAFETY: ends the child without its parent's exit handlers.
            unsafe { nix::libc::_exit(i32::from(done.is_err())) };
        }
        ForkResult::Parent { child } => child,
    };
    let counts = follow(child, calls.len());
    if counts.is_err() {
        let _ = nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL);
    }
    let ended = waitpid(child, None)?;
    let counts = counts?;
    if ended != WaitStatus::Exited(child, 0) {
        bail!("the child that makes the calls ended with {ended:?}");
    }
    Ok(counts)
}

/// The child: makes each call for each actor, between two breakpoints.
fn perform(world: &World, calls: &[Call]) -> Result<()> {
    crate::library::wait_for_tracer()?;
    for actor in 0..2 {
        for call in calls {
            world.restore()?;
            crate::library::breakpoint();
            let outcome = (call.run)(world.task(actor));
            crate::library::breakpoint();
            drop(outcome);
        }
    }
    Ok(())
}

/// The tracer.
fn follow(child: Pid, calls: usize) -> Result<[Vec<Count>; 2]> {
    let mut tracer = Tracer::seize(child)?;
    let mut counts = Vec::with_capacity(2 * calls);
    for index in 0..2 * calls {
        if index > 0 {
            tracer.run_to_breakpoint()?;
        }
        let mut count = tracer.count(None)?;
        count.steps = Vec::new();
        counts.push(count);
    }
    tracer.release()?;
    let second = counts.split_off(calls);
    Ok([counts, second])
}

/// The fields that one writes, and those that one reads, on lines on which the two conflict.
fn fields(one: &Count, other: &Count) -> (BTreeSet<String>, BTreeSet<String>) {
    let lines = conflicting_lines(one, other);
    let names = |words: [&BTreeSet<u64>; 2]| {
        let of_lines = words[0].union(words[1]).filter(|word| lines.contains(&(**word / 64)));
        of_lines.map(|word| places::name(*word)).collect()
    };
    (names([&one.words_written, &other.words_written]), names([&one.words_read, &other.words_read]))
}

//! Single-steps a traced process from one of its breakpoints to the next.

use crate::decode::{self, Access, LONGEST, Serialising};
use crate::maps::Maps;
use anyhow::{Context, Result, bail};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic};
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The breakpoint instruction `int3`.
const BREAKPOINT: u8 = 0xcc;

/// x86's cache line, in bytes.
const LINE: u64 = 64;

/// A call that runs longer than this is not a hot call, and not worth waiting for.
const MOST_STEPS: usize = 5_000_000;

/// One instruction as it was executed.
#[derive(Debug, Clone)]
pub struct Step {
    pub instruction: Instruction,
    /// File name of the object that contains it.
    pub object: String,
    /// The file and the offset in it, if there is a file.
    pub origin: Option<(String, u64)>,
}

/// Counts of one call, from its first instruction outside the probe to its last.
#[derive(Debug, Clone, Default)]
pub struct Count {
    /// Instructions, by object; a repeated string instruction is one.
    pub instructions: BTreeMap<String, usize>,
    pub serialising: Vec<Serialising>,
    /// The numbers of the system calls made.
    pub syscalls: Vec<u64>,
    /// Cache lines of the region, by their number from the region's start.
    pub lines_read: BTreeSet<u64>,
    pub lines_written: BTreeSet<u64>,
    /// What is read and written of it, by the offset of each 4-byte word.
    pub words_read: BTreeSet<u64>,
    pub words_written: BTreeSet<u64>,
    pub steps: Vec<Step>,
}

impl Count {
    /// All instructions, in whatever object.
    #[must_use]
    pub fn total(&self) -> usize {
        self.instructions.values().sum()
    }
}

/// A traced process, which is detached on drop.
pub(crate) struct Tracer {
    pid: Pid,
    memory: File,
    factory: InstructionInfoFactory,
}

impl Tracer {
    /// Starts tracing `pid`, which need not be a child, and waits for its first breakpoint.
    pub(crate) fn seize(pid: Pid) -> Result<Self> {
        let memory =
            File::open(format!("/proc/{pid}/mem")).with_context(|| format!("cannot read process {pid}"))?;
        ptrace::seize(pid, ptrace::Options::empty())
            .with_context(|| format!("cannot trace process {pid}"))?;
        let tracer = Self { pid, memory, factory: InstructionInfoFactory::new() };
        // It was not stopped, so it needs no resume.
        match tracer.wait()? {
            Signal::SIGTRAP => Ok(tracer),
            other => tracer.run_to_breakpoint_with(Some(other)).map(|()| tracer),
        }
    }

    /// Counts what the process executes from here to its next breakpoint, where it stays stopped.
    /// Instructions of the object `probe`, if given, are not counted.
    pub(crate) fn count(&mut self, probe: Option<&str>) -> Result<Count> {
        let mut maps = Maps::of(self.pid)?;
        let mut count = Count::default();
        let mut previous = 0;
        for _ in 0..MOST_STEPS {
            let registers = ptrace::getregs(self.pid).context("cannot read registers")?;
            let mut code = [0; LONGEST];
            let read = self.memory.read_at(&mut code, registers.rip).context("cannot read code")?;
            if code[0] == BREAKPOINT {
                self.run_to_breakpoint()?;
                return Ok(count);
            }
            let instruction = decode::instruction(&code[..read], registers.rip);
            if maps.at(registers.rip).is_none() {
                maps = Maps::of(self.pid)?;
            }
            // A repeated string instruction stops after each iteration, at its own address.
            let again = registers.rip == previous && instruction.is_string_instruction();
            previous = registers.rip;
            let accesses = decode::accesses(&mut self.factory, &instruction, &registers);
            count.note_lines(&maps, &accesses);
            if !again {
                count.note(&maps, &instruction, &registers, probe);
            }
            self.step()?;
        }
        bail!("no end after {MOST_STEPS} instructions")
    }

    /// Lets the process run on, untraced.
    pub(crate) fn release(self) -> Result<()> {
        ptrace::detach(self.pid, None).with_context(|| format!("cannot let process {} go", self.pid))
    }

    /// Lets the process run to its next breakpoint.
    pub(crate) fn run_to_breakpoint(&self) -> Result<()> {
        self.run_to_breakpoint_with(None)
    }

    /// The same, delivering `pass` first.
    fn run_to_breakpoint_with(&self, mut pass: Option<Signal>) -> Result<()> {
        loop {
            ptrace::cont(self.pid, pass).context("cannot resume the probe")?;
            match self.wait()? {
                Signal::SIGTRAP => return Ok(()),
                other => pass = Some(other),
            }
        }
    }

    fn step(&self) -> Result<()> {
        let mut pass = None;
        loop {
            ptrace::step(self.pid, pass).context("cannot step the probe")?;
            match self.wait()? {
                Signal::SIGTRAP => return Ok(()),
                other => pass = Some(other),
            }
        }
    }

    /// Waits until the process stops, and returns the signal.
    fn wait(&self) -> Result<Signal> {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)).context("cannot wait for the probe")? {
                WaitStatus::Stopped(_, signal) => return Ok(signal),
                WaitStatus::PtraceEvent(_, signal, _) => return Ok(signal),
                WaitStatus::Exited(_, status) => bail!("the probe exited with status {status}"),
                WaitStatus::Signaled(_, signal, _) => bail!("the probe was killed by {signal}"),
                _ => {}
            }
        }
    }
}

impl Count {
    fn note(
        &mut self,
        maps: &Maps,
        instruction: &Instruction,
        registers: &user_regs_struct,
        probe: Option<&str>,
    ) {
        let mapping = maps.at(instruction.ip());
        let object = mapping.map_or("[unmapped]", |mapping| mapping.short_name());
        if probe == Some(object) {
            return;
        }
        *self.instructions.entry(object.to_owned()).or_default() += 1;
        self.serialising.extend(decode::serialising(instruction));
        if instruction.mnemonic() == Mnemonic::Syscall {
            self.syscalls.push(registers.rax);
        }
        let origin = mapping
            .filter(|mapping| mapping.name.starts_with('/'))
            .map(|mapping| (mapping.name.clone(), instruction.ip() - mapping.start + mapping.offset));
        self.steps.push(Step { instruction: *instruction, object: object.to_owned(), origin });
    }

    fn note_lines(&mut self, maps: &Maps, accesses: &[Access]) {
        for access in accesses {
            let Some(mapping) = maps.at(access.address).filter(|mapping| mapping.is_region()) else {
                continue;
            };
            let first = access.address - mapping.start + mapping.offset;
            let end = first + access.size.max(1);
            let lines = first / LINE..=(end - 1) / LINE;
            let words = (first & !3..end).step_by(4);
            if access.reads {
                self.lines_read.extend(lines.clone());
                self.words_read.extend(words.clone());
            }
            if access.writes {
                self.lines_written.extend(lines);
                self.words_written.extend(words);
            }
        }
    }
}

//! Why a program is not started in a run: one type and one wording for the launcher, `lightpath doctor` and
//! the gate.

/// Why a program or an object of it cannot be covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No dynamic linker loads it, and the process has no region: only a run starts it.
    Static,
    /// Made for another machine or another mode of this one.
    Foreign,
    /// The set-user-id bit would change the effective user.
    SetUser,
    /// The set-group-id bit would change the effective group.
    SetGroup,
    /// It carries capabilities.
    Capabilities,
    /// It may be executed but not read, so that it cannot be looked at.
    Unreadable,
    /// It has a `syscall` instruction that cannot be replaced.
    Unpatchable,
    /// The process's root directory does not have the gate's files.
    OutOfReach,
}

impl Refusal {
    /// The reason as the user reads it, after the program's path and a colon.
    pub const fn why(self) -> &'static str {
        match self {
            Refusal::Static => "statically linked program: only a run with a region starts it",
            Refusal::Foreign => "not an x86-64 program: Lightpath covers those only",
            Refusal::SetUser => "setuid program: the loader would ignore Lightpath; run it without",
            Refusal::SetGroup => "setgid program: the loader would ignore Lightpath; run it without",
            Refusal::Capabilities => {
                "program with file capabilities: the loader would ignore Lightpath; run it without"
            }
            Refusal::Unreadable => "not readable: Lightpath must read a program to cover it",
            Refusal::Unpatchable => "has a system call that cannot be intercepted",
            Refusal::OutOfReach => {
                "this root directory lacks Lightpath's files: bind its cache directory into the sandbox, too"
            }
        }
    }

    /// Whether it would change its privileges as it starts: then the dynamic linker ignores preloading
    /// (ld.so(8)).
    pub const fn is_privileged(self) -> bool {
        matches!(self, Refusal::SetUser | Refusal::SetGroup | Refusal::Capabilities)
    }
}

//! Rulesets of landlock(7): what the gate knows of the kernel's, because their rules on files of ours are
//! kept here.
//!
//! A ruleset is known by its descriptor, or by another of the same open file (kcmp(2)). The process's memory
//! has it, so a fork copies it. What was received from another process or has survived an exec is not known,
//! and neither is one whose number from landlock_create_ruleset(2) has been closed before the process uses a
//! duplicate.

use lp_abi::linux::__NR_readlink;
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_vfs::landlock::Entry;

use crate::high::fd::descriptor::is_same_file;

/// Rulesets that are known at a time.
const KNOWN: usize = 8;
/// Rules of one that the gate keeps.
const RULES: usize = 256;
/// What the kernel calls the file of a ruleset.
const NAME: &[u8] = b"anon_inode:[landlock-ruleset]";

/// A ruleset.
pub(crate) struct Ruleset {
    /// The descriptor's number plus one; 0 for none. Atomic: threads make rulesets side by side.
    number: AtomicU32,
    /// The rights to files that it handles.
    handled: AtomicU32,
    /// Rules so far.
    count: AtomicU32,
    /// Their keys and rights.
    rules: [[AtomicU64; 2]; RULES],
}

static RULESETS: [Ruleset; KNOWN] = [const {
    Ruleset {
        number: AtomicU32::new(0),
        handled: AtomicU32::new(0),
        count: AtomicU32::new(0),
        rules: [const { [const { AtomicU64::new(0) }; 2] }; RULES],
    }
}; KNOWN];

/// landlock_create_ruleset(2) has made one that handles these rights to files.
///
/// # Errors
/// `ENFILE` if there are too many.
pub(crate) fn made(fd: Fd, handled: u32) -> Result<()> {
    let number = fd.raw() as u32 + 1;
    let is_free = |ruleset: &&Ruleset| {
        let was = ruleset.number.load(Ordering::Relaxed);
        let is_over = was == 0 || was == number || !is_one(Fd::new(was as i32 - 1));
        // Relaxed, all: whoever has the descriptor learned of it after this.
        is_over && ruleset.number.compare_exchange(was, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    let ruleset = RULESETS.iter().find(is_free).ok_or(Errno::ENFILE)?;
    ruleset.count.store(0, Ordering::Relaxed);
    ruleset.handled.store(handled, Ordering::Relaxed);
    Ok(())
}

/// Whether a descriptor is a ruleset.
pub(crate) fn is_one(fd: Fd) -> bool {
    let mut name = [0; NAME.len() + 1];
    link_of(fd, &mut name).is_some_and(|length| &name[..length] == NAME)
}

/// Reads what the kernel calls the file of a descriptor.
pub(crate) fn link_of(fd: Fd, to: &mut [u8]) -> Option<usize> {
    let path = fd.link();
    // SAFETY: the path is NUL-terminated, and the kernel writes within `to`.
    unsafe { lp_abi::syscall!(__NR_readlink, path.as_ptr(), to.as_mut_ptr(), to.len()) }.ok()
}

/// The ruleset behind a descriptor; `None` if it is not known which one that is.
pub(crate) fn of(fd: Fd) -> Option<&'static Ruleset> {
    let mut found = RULESETS.iter().filter(|ruleset| {
        let number = ruleset.number.load(Ordering::Relaxed); // Relaxed: as in `made`.
        number != 0 && is_same(fd, Fd::new(number as i32 - 1))
    });
    let first = found.next()?;
    if found.next().is_none() { Some(first) } else { None }
}

/// Whether two descriptors are one open file, a ruleset.
fn is_same(one: Fd, other: Fd) -> bool {
    if one == other { is_one(one) } else { is_same_file(one, other) }
}

impl Ruleset {
    /// The rights to files that it handles.
    pub(crate) fn handled(&self) -> u32 {
        self.handled.load(Ordering::Relaxed) // Relaxed: as in `made`.
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// `ENOMEM` if there are too many.
    pub(crate) fn add(&self, rule: Entry) -> Result<()> {
        // Relaxed, all: a thread that uses the ruleset meanwhile has the rule or not.
        let at = self.count.fetch_add(1, Ordering::Relaxed);
        let Some([key, rights]) = self.rules.get(at as usize) else {
            self.count.store(RULES as u32, Ordering::Relaxed);
            return Err(Errno::ENOMEM);
        };
        rights.store(rule.rights.into(), Ordering::Relaxed);
        key.store(rule.key, Ordering::Relaxed);
        Ok(())
    }

    /// Its rules.
    pub(crate) fn rules(&self) -> impl Iterator<Item = Entry> + '_ {
        let count = self.count.load(Ordering::Relaxed) as usize; // Relaxed: as in `add`.
        self.rules.iter().take(count).map(|[key, rights]| Entry {
            key: key.load(Ordering::Relaxed),
            rights: rights.load(Ordering::Relaxed) as u32,
        })
    }
}

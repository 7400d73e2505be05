//! Unmounting what nobody uses: the look for users and the unmount are one event for whoever opens a file in
//! the mount meanwhile.
//!
//! Who unmounts announces in the flags of the mount in which turn ([`crate::mount_change`]) it looks for
//! users, passes the heavy barrier, looks, and then exchanges the turn. Who begins to use a mount makes that
//! visible, passes the light barrier and loads the flags ([`is_gone`]). Store-load on both sides: the look
//! finds the user, or the user finds the announcement. In the second case the user finishes the turn without
//! a change, so that the unmount fails and looks again, or finds the mount gone.
//!
//! An announcement of a turn that is over says nothing. So nobody takes one back: not that of an unmount that
//! was killed, and not that of one that has found a user, since others may look in the same turn. None that
//! is stopped is waited for. Model: `crates/models/tests/mount_leave.rs`.
//! Linearisation: the exchange of the turn. ABA: a turn's number is cut to 18 bits; one that comes back makes
//! a user finish a turn in vain.

use crate::mount_change::{Mounts, Turn, pass, settle, stands};
use crate::mount_state::{ATTACHED, State};
use crate::sync::{AtomicU32, Ordering, light_barrier};

/// Bit of `Mount::flags`: an unmount looks for users, in the turn that the bits above name.
pub const LEAVING: u32 = 1 << 13;
/// First of the bits of `Mount::flags` that name the turn.
const TURN_SHIFT: u32 = 14;
/// All bits of an announcement.
const ANNOUNCEMENT: u32 = !0 << 13;

fn announcement(turn: Turn) -> u32 {
    LEAVING | turn.number() << TURN_SHIFT
}

/// Announces that a look for users of a mount follows in this turn: false if the turn is over.
#[must_use]
pub fn announce(mounts: &impl Mounts, flags: &AtomicU32, turn: Turn) -> bool {
    loop {
        // Acquire: an announcement of a later turn shows that this one is over.
        let seen = flags.load(Ordering::Acquire);
        if !stands(mounts, turn) {
            return false;
        }
        let new = seen & !ANNOUNCEMENT | announcement(turn);
        // PAIRS: the acquire load in `is_gone`.
        if flags.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return true;
        }
    }
}

/// Whether a mount was unmounted before the caller, who is visible as its user by now, had begun to use it.
/// If not, an unmount finds the caller.
#[must_use]
pub fn is_gone(mounts: &impl Mounts, flags: &AtomicU32, state: &AtomicU32) -> bool {
    // PAIRS: the heavy barrier between `announce` and the look.
    light_barrier();
    // PAIRS: the exchange in `announce`: its turn, or a later one, is seen below.
    let seen = flags.load(Ordering::Acquire) & ANNOUNCEMENT;
    if seen & LEAVING == 0 {
        return false;
    }
    loop {
        let turn = settle(mounts);
        // PAIRS: the exchanges of a plan.
        if State(state.load(Ordering::Acquire)).kind() != ATTACHED {
            return true;
        }
        if seen != announcement(turn) || pass(mounts, turn) {
            return false;
        }
    }
}

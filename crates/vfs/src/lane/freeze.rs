//! Freezing: holds every change through a mount, of all runs of a region, while somebody copies the region.
//!
//! Like a remount (`crate::lane::writer`) it announces itself in the flags of all mounts and waits for the
//! writers that were there. Writers that come later wait for the end, and call the freeze off when it takes
//! too long, so that one that is stopped or killed holds them up once at most. What is not a change through a
//! mount, such as marks, caches and allocators, goes on: in the copy it looks as after a crash of the
//! machine, and is rebuilt there.

use lp_abi::{Errno, Result};
use lp_region::mount::mount_flags;
use lp_region::sync::Ordering;
use lp_region::{MountId, marks};

use crate::caller::task::Task;
use crate::lane::writer;

/// A freeze: what is dropped ends it.
pub struct Frozen<'t, 'r> {
    task: &'t Task<'r>,
}

/// Begins a freeze.
///
/// # Errors
/// `EBUSY` if a writer does not finish, because it is stopped for instance; `ENOSYS` without barriers.
pub fn begin<'t, 'r>(task: &'t Task<'r>) -> Result<Frozen<'t, 'r>> {
    let frozen = Frozen { task };
    let is_shut = mounts(task).all(|mount| {
        // PAIRS: the light barrier in `marks::enter`.
        marks::shut(&task.region.mount(mount).flags, mount_flags::FREEZING)
    });
    if !is_shut {
        return Err(Errno::ENOSYS);
    }
    if writer::wait_for_all(task, |_| true) { Ok(frozen) } else { Err(Errno::EBUSY) }
}

impl Frozen<'_, '_> {
    /// Ends the freeze. Returns whether it has lasted: nobody called it off, and no mount was made.
    pub fn end(self) -> bool {
        let mut lasted = true;
        for mount in mounts(self.task) {
            lasted &= self.let_go(mount);
        }
        lasted
    }

    /// Lets the writers of a mount go on; whether they have waited.
    fn let_go(&self, mount: MountId) -> bool {
        let flags = &self.task.region.mount(mount).flags;
        // Release: a writer that enters sees nothing of the freeze but its end. PAIRS: the exchange in
        // `marks::call_off`: of the two one finds the bit.
        flags.fetch_and(!mount_flags::FREEZING, Ordering::AcqRel) & mount_flags::FREEZING != 0
    }
}

impl Drop for Frozen<'_, '_> {
    fn drop(&mut self) {
        mounts(self.task).for_each(|mount| _ = self.let_go(mount));
    }
}

/// The mounts through which something can be changed.
fn mounts<'t>(task: &'t Task<'_>) -> impl Iterator<Item = MountId> + 't {
    task.region.mounts().filter(|mount| task.region.mount(*mount).state().is_mount())
}

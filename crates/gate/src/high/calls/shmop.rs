//! shmat(2).

use lp_abi::PAGE_SIZE;
use lp_abi::linux::{__NR_shmat, __NR_shmctl};

use crate::high::calls::mmap::replacing;
use crate::high::frame::handler::{handlers, kernel};
use crate::high::memory::areas;
use crate::high::run::own;
use crate::high::run::own::end_of;
use crate::low::dispatch::NOT_OURS;

/// `SHM_RND` of linux/shm.h.
const SHM_RND: u32 = 0o20000;
/// `SHM_REMAP` of linux/shm.h.
pub(crate) const SHM_REMAP: u32 = 0o40000;
/// `IPC_STAT` of linux/ipc.h.
const IPC_STAT: u32 = 2;
/// `shm_segsz` in `struct shmid64_ds`, as a word.
const SIZE: usize = 6;

handlers! {
    /// shmat(2): with `SHM_REMAP` a segment replaces what is mapped.
    fn shmat(task, id: i32, address: usize, flags: u32) {
        if flags & SHM_REMAP == 0 || address == 0 {
            return NOT_OURS;
        }
        let mut status = [0usize; 16];
        if kernel!(__NR_shmctl, id, IPC_STAT, status.as_mut_ptr()) < 0 {
            return NOT_OURS; // The kernel returns the error.
        }
        let start = if flags & SHM_RND != 0 { address & !(PAGE_SIZE - 1) } else { address };
        if let Some(refused) = own::refused(start, status[SIZE]) {
            return refused;
        }
        match end_of(start, status[SIZE]) {
            Some(end) if !areas::is_empty() => {
                replacing(task, start, end, || kernel!(__NR_shmat, id, address, flags))
            }
            _ => NOT_OURS,
        }
    }
}

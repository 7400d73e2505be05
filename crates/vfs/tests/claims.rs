//! A process that claims a slot for itself is stopped after each instruction, and killed.

use lp_region::RunId;
use lp_region::sync::Ordering;
use lp_vfs::{boot, fork, reclaim};

mod setup;
use setup::death;

#[test]
fn who_claims_a_slot_and_is_stopped_takes_nobodys() {
    let _alone = death::alone();
    let task = death::task();
    let run = RunId(task.process.run.load(Ordering::Relaxed));
    let claim = || {
        let _ = boot::claim_own_process(task.region, run);
    };
    let others = || task.region.processes().filter(|id| *id != task.process_id).collect::<Vec<_>>();
    let meanwhile = || {
        let id = fork::before(&task).expect("a slot for a child");
        // SAFETY: the child calls only what the child of a process with threads may call.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let started = fork::child(task.region, id, 2);
            // SAFETY: _exit(2) ends only the child.
            unsafe { libc::_exit(started.is_err().into()) }
        }
        fork::copied(&task);
        let mut status = -1;
        // SAFETY: the child is this process's own.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "the child has no place");
        reclaim::dead(&task);
        assert!(!others().contains(&id), "the slot of a dead child stays");
    };
    let mut steps = 1;
    while death::stop_newcomer(steps, &claim, &meanwhile) {
        reclaim::dead(&task);
        assert_eq!(others(), [], "killed after {steps} instructions");
        steps += 1;
    }
    assert!(steps > 100, "{steps}");
    reclaim::dead(&task);
    assert_eq!(others(), []);
}

//! listmount(2): the ids of 64 bits of the mounts in the tree, the run's among the host's. Those of the
//! host's are smaller than all of the run's.

use lp_abi::linux::{__NR_listmount, LISTMOUNT_REVERSE, STATMOUNT_MNT_NS_ID};
use lp_abi::{Result, UserPtr, UserSlice};
use lp_region::sync::Ordering;
use lp_region::{MountId, ucopy};
use lp_vfs::mount_show;
use lp_vfs::mounts;
use lp_vfs::root;
use lp_vfs::task::Task;

use crate::high::frame::handler::{handlers, is_in_user_space, kernel, ret};
use crate::high::run::mount_ids::{HostParent, Request};
use crate::low::dispatch::NOT_OURS;

/// `LSMT_ROOT`: the root of the process.
const ROOT: u64 = u64::MAX;
/// The most that a program may ask for.
const MOST: usize = 1_000_000;

handlers! {
    /// listmount(2).
    fn listmount(task, request: UserPtr, ids: UserSlice<u64>, flags: u32) {
        let Some(asked) = Request::read(request) else { return NOT_OURS };
        if flags & !LISTMOUNT_REVERSE != 0 || ids.len() > MOST || !is_in_user_space(ids) {
            return NOT_OURS;
        }
        let list = List { task, asked, backwards: flags & LISTMOUNT_REVERSE != 0 };
        match mount_show::by_unique_id(task, asked.id()) {
            Some(of) => ret(list.below(of, ids)),
            None if root::of(task).is_some() => list.seen_inside(ids, flags),
            None => list.among_hosts(ids, flags),
        }
    }
}

/// What a program asks.
struct List {
    task: &'static Task<'static>,
    asked: Request,
    backwards: bool,
}

impl List {
    /// Those below one of the run's.
    fn below(&self, of: MountId, ids: UserSlice<u64>) -> Result<usize> {
        // As there, what is wrong with the request comes first; then that of the last id.
        self.asked.of_root(STATMOUNT_MNT_NS_ID)?;
        // SAFETY: the kernel reads the request and, because it writes no id, nothing else.
        let nothing = unsafe {
            let request = self.asked.with(ROOT, self.asked.parameter());
            lp_abi::syscall!(__NR_listmount, &raw const request, ids.start().addr(), 0, 0)
        };
        nothing?;
        mount_show::may_ask(self.task, Some(of))?;
        self.put(ids, |id| mount_show::is_below(self.task, id, of))
    }

    /// Those below the caller's root directory, which is in a mount, or below one of the host's.
    fn seen_inside(&self, ids: UserSlice<u64>, flags: u32) -> isize {
        if self.asked.id() == ROOT && !self.asked.names_namespace() {
            return ret(self.put(ids, |id| mount_show::is_reached(self.task, id)));
        }
        match mount_show::may_ask(self.task, None) {
            Ok(()) => self.among_hosts(ids, flags),
            Err(errno) => {
                let request = self.asked.with(self.asked.id(), self.asked.parameter());
                // What is wrong with the request comes first.
                let nothing = kernel!(__NR_listmount, &raw const request, ids.start().addr(), 0, flags);
                if nothing < 0 { nothing } else { errno.to_ret() }
            }
        }
    }

    /// Those below one of the host's, with the host's own.
    fn among_hosts(&self, ids: UserSlice<u64>, flags: u32) -> isize {
        let request = self.asked.with(self.asked.id(), self.asked.parameter());
        let host = |ids: UserSlice<u64>| {
            kernel!(__NR_listmount, &raw const request, ids.start().addr(), ids.len(), flags)
        };
        let is_other = self.asked.names_namespace() && self.asked.of_root(STATMOUNT_MNT_NS_ID).is_err();
        if is_other {
            return host(ids);
        }
        let holds = |id: MountId| {
            let base = mount_show::base_of(self.task, id);
            self.asked.id() == ROOT
                || HostParent::of(self.task, base)
                    .is_ok_and(|parent| parent.is_within(self.asked.id(), &self.asked))
        };
        if !self.backwards {
            let hosts = host(ids);
            let Ok(count) = usize::try_from(hosts) else { return hosts };
            return ret(self.put(ids.skip(count), holds).map(|own| count + own));
        }
        // The kernel's answer comes first, because it says what is wrong; it goes behind the run's.
        let own = self.each(holds).take(ids.len()).count();
        let hosts = host(ids.skip(own));
        let Ok(count) = usize::try_from(hosts) else { return hosts };
        // One that was unmounted meanwhile would leave a gap.
        match self.put(ids.first(own), holds) {
            Ok(done) if done == own => ret(Ok(own + count)),
            Ok(_) => self.among_hosts(ids, flags),
            Err(errno) => errno.to_ret(),
        }
    }

    /// Writes the ids of the run's mounts that `wanted` selects, and returns their number.
    fn put(&self, ids: UserSlice<u64>, wanted: impl Fn(MountId) -> bool) -> Result<usize> {
        let mut count = 0;
        for (at, id) in self.each(wanted).take(ids.len()).enumerate() {
            // SAFETY: the copy routine handles bad pointers.
            unsafe { ucopy::put(ids.skip(at).start().as_ptr(), &mounts::unique_id(self.task, id)) }?;
            count += 1;
        }
        Ok(count)
    }

    /// The run's mounts that `wanted` selects, in the order and from the id that the program asks for.
    fn each(&self, wanted: impl Fn(MountId) -> bool) -> impl Iterator<Item = MountId> {
        let (task, backwards) = (self.task, self.backwards);
        let run = task.process.run.load(Ordering::Relaxed); // Relaxed: immutable.
        let mut last = match self.asked.parameter() {
            0 if backwards => u32::MAX,
            // The kernel begins at the id after it, which wraps.
            u64::MAX if !backwards => 0,
            last => mount_show::serial_of(last),
        };
        core::iter::from_fn(move || {
            let next = if backwards { mount_show::previous } else { mount_show::next };
            let id = next(task, run, last)?;
            last = mount_show::serial_of(mounts::unique_id(task, id));
            Some(id)
        })
        .filter(move |id| wanted(*id))
    }
}

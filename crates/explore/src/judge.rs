//! The judge: a process that joins the region when all others have left it or are dead, and checks
//! everything.

use lp_region::lane::Lane;
use lp_region::life::SlotState;
use lp_region::sync::Ordering;
use lp_region::{LaneId, Region};
use lp_vfs::{boot, hash, page};

use crate::control::{JUDGE, Page, state};
use crate::door::Door;
use crate::light::Light;
use crate::step::{self, Role};
use crate::{actor, world};

/// Separates the tree as it was found from the tree after all dead were buried and every object was touched.
pub(crate) const LATER: &str = "== later";
/// Precedes the counts of what is in use after everything was removed.
pub(crate) const COUNTS: &str = "== counts";

/// A lock records a waiter that does not exist.
pub(crate) const WAKES: &str = "wakes for nobody";

/// Checks, reports its findings, and ends.
pub(crate) fn judge(light: &Light, page: &'static Page) -> ! {
    let slot = &page.slots[JUDGE];
    step::become_actor(slot, Role::Judge);
    actor::report_panics(page);
    slot.report(state::DONE);
    let joined = light.join();
    assert_eq!(joined, 0, "the judge cannot join");
    light.close(crate::door::KEEP);
    let mut lines = world::tree(light);
    lines.push(LATER.into());
    light.reap();
    light.reclaim();
    touch(light);
    lines.extend(world::tree(light));
    let task = light.task();
    sound(task);
    lines.push(COUNTS.into());
    lines.extend(world::clear(light));
    take_all(light);
    light.reclaim();
    light.reclaim();
    sound(task);
    lines.push(counts(light));
    let wakes = slot.wakes.load(std::sync::atomic::Ordering::Relaxed);
    if wakes != 0 {
        lines.push(format!("{WAKES}: {wakes}"));
    }
    lines.extend(held(light.region()));
    page.say(&lines.join("\n"));
    light.exit();
    slot.say(state::GONE);
    // SAFETY: ends the judge.
    unsafe { libc::_exit(0) }
}

/// Takes the lock of every object once, which repairs what a dead holder left.
fn touch(light: &Light) {
    let mut pending = vec![".".to_owned()];
    while let Some(dir) = pending.pop() {
        for name in light.names(&path(&dir)).unwrap_or_default() {
            let child = format!("{dir}/{name}");
            let Ok(facts) = light.facts(&path(&child)) else { continue };
            match facts.mode & libc::S_IFMT {
                libc::S_IFLNK => continue,
                libc::S_IFDIR => pending.push(child.clone()),
                _ => {}
            }
            light.chmod(&path(&child), facts.mode & 0o7777);
        }
    }
}

/// Takes every lock that belongs to no object, for the same reason, and mounts.
fn take_all(light: &Light) {
    for dir in [c"p", c"q"] {
        light.mkdir(dir);
    }
    // Who mounts gives back what others have left.
    light.mount(None, c"p", 0);
    light.umount(c"p", 0);
    light.rename(c"p", c"q/p", 0);
    light.rmdir(c"q/p");
    light.rmdir(c"q");
    let _ = boot::mkfs(light.task(), 0);
    hash::split(light.task());
}

fn path(text: &str) -> std::ffi::CString {
    std::ffi::CString::new(text).unwrap_or_default()
}

/// Checks the region, where all processes but the caller are dead.
fn sound(task: &lp_vfs::Task) {
    lp_fsck::check(task.region, task.process_id).expect_sound("after a schedule");
}

/// What is in use, as one line.
fn counts(light: &Light) -> String {
    let (task, region) = (light.task(), light.region());
    let usage = lp_fsck::check(region, task.process_id).usage;
    let states: Vec<SlotState> = region.processes().map(|id| region.process(id).life.get().state()).collect();
    format!(
        "{usage:?} free pages {} processes {states:?} lanes {}",
        page::free_count(region),
        region.lanes().count()
    )
}

/// Locks of the region as a whole that name a holder.
fn held(region: Region<'static>) -> Vec<String> {
    let header = region.header();
    let mut locks = vec![("split", &header.split_lock)];
    let lanes = 1..header.lane_limit.load(Ordering::Relaxed);
    let lanes: Vec<&Lane> = lanes.map(|index| region.lane(LaneId(index))).collect();
    locks.extend(lanes.iter().map(|lane| ("burial", &lane.burial)));
    let named = locks.into_iter().filter(|(_, lock)| lock.holder().is_some());
    let mut said: Vec<String> = named.map(|(name, _)| format!("the {name} lock is held")).collect();
    if header.mount_turn.load(Ordering::Relaxed) as u32 != 0 {
        said.push("a change of the mounts is under way".to_owned());
    }
    if header.tree.read() & 1 != 0 {
        said.push("a change of the tree's shape is under way".to_owned());
    }
    said
}

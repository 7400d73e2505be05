//! Memory and resource limits.

use rustix::process::{Resource, getrlimit};

use super::finding::{Finding, human, setting};
use crate::command::cache::directory;
use crate::command::output::failure::reason;
use crate::command::region::make;

/// Address space that a region's mapping takes in each process, with room for the program.
const ADDRESSES: u64 = 1 << 46;

pub(super) fn findings() -> Vec<Finding> {
    vec![
        memory(),
        overcommit(),
        dev_shm(),
        open_files(),
        address_space(),
        file_size(),
        mappings(),
        cache_directory(),
    ]
}

fn memory() -> Finding {
    const WHAT: &str = "memory";
    let total = make::memory();
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024;
    let cap = setting("/sys/fs/cgroup/memory.max").and_then(|text| text.parse::<u64>().ok());
    match cap {
        Some(cap) if cap < total / 2 => Finding::warn(
            WHAT,
            format!(
                "{} in all, but this control group may use {} only: give --size below that",
                human(total),
                human(cap)
            ),
        ),
        _ => Finding::ok(
            WHAT,
            format!(
                "{} in all, {} free; a file system takes up to {}",
                human(total),
                human(free),
                human(total / 2)
            ),
        ),
    }
}

fn overcommit() -> Finding {
    const WHAT: &str = "overcommit";
    match setting("/proc/sys/vm/overcommit_memory").as_deref() {
        Some("0") => Finding::ok(WHAT, "heuristic (vm.overcommit_memory 0)"),
        Some("1") => Finding::ok(WHAT, "always (vm.overcommit_memory 1)"),
        Some("2") => {
            Finding::ok(WHAT, "never (vm.overcommit_memory 2): a region is shared memory, taken as it fills")
        }
        other => Finding::warn(WHAT, format!("vm.overcommit_memory is {}", other.unwrap_or("unreadable"))),
    }
}

fn dev_shm() -> Finding {
    const WHAT: &str = "/dev/shm";
    match rustix::fs::statvfs("/dev/shm") {
        Ok(found) => Finding::ok(
            WHAT,
            format!(
                "{}, {} free; the bench compares with it, a run does not need it",
                human(found.f_blocks * found.f_frsize),
                human(found.f_bavail * found.f_frsize)
            ),
        ),
        Err(e) => {
            Finding::warn(WHAT, format!("{}: the bench has no tmpfs to compare with", reason(&e.into())))
        }
    }
}

fn open_files() -> Finding {
    const WHAT: &str = "open files";
    let limit = getrlimit(Resource::Nofile);
    let show = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let text = format!("limit {} (ulimit -n), can be raised to {}", show(limit.current), show(limit.maximum));
    match limit.current {
        Some(0..64) => Finding::fail(WHAT, format!("{text}; a run needs 64")),
        Some(64..1024) => Finding::warn(WHAT, text),
        _ => Finding::ok(WHAT, text),
    }
}

fn address_space() -> Finding {
    const WHAT: &str = "address space";
    match getrlimit(Resource::As).current {
        Some(limit) if limit < ADDRESSES => Finding::fail(
            WHAT,
            format!("limited to {} (ulimit -v): a region is mapped whole; lift the limit", human(limit)),
        ),
        _ => Finding::ok(WHAT, "unlimited"),
    }
}

fn file_size() -> Finding {
    const WHAT: &str = "file size";
    match getrlimit(Resource::Fsize).current {
        Some(limit) => Finding::fail(
            WHAT,
            format!("limited to {} (ulimit -f): a region is one sparse file; lift the limit", human(limit)),
        ),
        None => Finding::ok(WHAT, "unlimited"),
    }
}

fn mappings() -> Finding {
    const WHAT: &str = "mappings";
    let most = setting("/proc/sys/vm/max_map_count").and_then(|text| text.parse::<u64>().ok());
    match most {
        Some(most) if most >= 65_530 => Finding::ok(WHAT, format!("{most} per process (vm.max_map_count)")),
        Some(most) => Finding::warn(
            WHAT,
            format!(
                "{most} per process (vm.max_map_count): mapping files that lie scattered may give ENOMEM"
            ),
        ),
        None => Finding::warn(WHAT, "vm.max_map_count cannot be read"),
    }
}

fn cache_directory() -> Finding {
    match directory::find() {
        Ok(path) => Finding::ok("cache", path.display().to_string()),
        Err(why) => Finding::fail("cache", why),
    }
}

//! A process is killed after each instruction of each call that changes names. The call must have happened or
//! not, nothing may be lost, and others must be able to continue.

use std::ffi::CString;

use lp_abi::Fd;
use lp_abi::linux::*;
use lp_region::InodeId;
use lp_vfs::{Task, boot, chmod, link, mkdir, mknod, page, reclaim, rename, symlink, unlink};

mod setup;
use setup::death;
use setup::fsck::{self, Found};
use setup::lent;

/// A call to interrupt. Paths are created in advance, because the child of a threaded program may not
/// allocate.
struct Scenario {
    name: &'static str,
    before: &'static [Make],
    call: fn(&Task, &CString, &CString),
    one: &'static str,
    other: &'static str,
}

/// What exists before the call.
enum Make {
    Dir(&'static str),
    File(&'static str),
    Files(&'static str, u32),
}

fn c(path: &str) -> CString {
    CString::new(path).unwrap()
}

const LONG: &str = "/light/a-name-that-does-not-fit-into-an-entry";

/// Ignores a call's result: only its effects matter.
fn ignore<T>(_: lp_abi::Result<T>) {}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "mkdir",
        before: &[],
        call: |task, one, _| ignore(mkdir::mkdirat(task, Fd::CWD, lent::path(one), 0o755)),
        one: LONG,
        other: "",
    },
    Scenario {
        name: "mknod in a full bucket",
        before: &[Make::Files("/light/f", 500)],
        call: |task, one, _| ignore(mknod::mknodat(task, Fd::CWD, lent::path(one), S_IFREG | 0o644, 0)),
        one: "/light/new",
        other: "",
    },
    Scenario {
        name: "symlink with a long target",
        before: &[],
        call: |task, one, other| {
            ignore(symlink::symlinkat(task, lent::path(other), Fd::CWD, lent::path(one)));
        },
        one: "/light/link",
        other: "/a/target/of/more/than/sixty-four/bytes/that/takes/a/page/of/its/own/and/some",
    },
    Scenario {
        name: "link",
        before: &[Make::File("/light/a")],
        call: |task, one, other| {
            ignore(link::linkat(task, Fd::CWD, lent::path(one), Fd::CWD, lent::path(other), 0));
        },
        one: "/light/a",
        other: LONG,
    },
    Scenario {
        name: "unlink",
        before: &[Make::File(LONG), Make::File("/light/z")],
        call: |task, one, _| ignore(unlink::unlinkat(task, Fd::CWD, lent::path(one), 0)),
        one: LONG,
        other: "",
    },
    Scenario {
        name: "unlink of a short name",
        before: &[Make::File("/light/a"), Make::File("/light/z")],
        call: |task, one, _| ignore(unlink::unlinkat(task, Fd::CWD, lent::path(one), 0)),
        one: "/light/a",
        other: "",
    },
    Scenario {
        name: "unlink of the last in a page",
        before: &[Make::Files("/light/f", 1023), Make::File("/light/z")],
        call: |task, one, _| ignore(unlink::unlinkat(task, Fd::CWD, lent::path(one), 0)),
        one: "/light/z",
        other: "",
    },
    Scenario {
        name: "rmdir",
        before: &[Make::Dir("/light/d")],
        call: |task, one, _| ignore(unlink::unlinkat(task, Fd::CWD, lent::path(one), AT_REMOVEDIR)),
        one: "/light/d",
        other: "",
    },
    Scenario {
        name: "rename to a new name elsewhere",
        before: &[Make::Dir("/light/d"), Make::Dir("/light/e")],
        call: |task, one, other| ignore(renamed(task, one, other, 0)),
        one: "/light/d",
        other: "/light/e/a-name-that-does-not-fit-into-an-entry",
    },
    Scenario {
        name: "rename to a new name in the directory",
        before: &[Make::File("/light/a")],
        call: |task, one, other| ignore(renamed(task, one, other, 0)),
        one: "/light/a",
        other: "/light/n",
    },
    Scenario {
        name: "rename to a new name in a full bucket",
        before: &[Make::Files("/light/f", 500)],
        call: |task, one, other| ignore(renamed(task, one, other, 0)),
        one: "/light/f7",
        other: "/light/new",
    },
    Scenario {
        name: "rename to a new name in the next page of the directory",
        before: &[Make::Files("/light/f", 1023)],
        call: |task, one, other| ignore(renamed(task, one, other, 0)),
        one: "/light/f7",
        other: "/light/n",
    },
    Scenario {
        name: "rename over a file",
        before: &[Make::File(LONG), Make::File("/light/b")],
        call: |task, one, other| ignore(renamed(task, one, other, 0)),
        one: LONG,
        other: "/light/b",
    },
    Scenario {
        name: "rename over a directory",
        before: &[Make::Dir("/light/d"), Make::Dir("/light/d/sub"), Make::Dir("/light/e")],
        call: |task, one, other| ignore(renamed(task, one, other, 0)),
        one: "/light/d/sub",
        other: "/light/e",
    },
    Scenario {
        name: "exchange",
        before: &[Make::Dir("/light/d"), Make::Dir("/light/d/sub"), Make::File("/light/f")],
        call: |task, one, other| ignore(renamed(task, one, other, RENAME_EXCHANGE)),
        one: "/light/d/sub",
        other: "/light/f",
    },
    Scenario {
        name: "exchange of two directories",
        before: &[
            Make::Dir("/light/d"),
            Make::Dir("/light/d/sub"),
            Make::Dir("/light/e"),
            Make::Dir("/light/e/in"),
        ],
        call: |task, one, other| ignore(renamed(task, one, other, RENAME_EXCHANGE)),
        one: "/light/d/sub",
        other: "/light/e",
    },
    Scenario {
        name: "chmod of a directory",
        before: &[Make::Dir("/light/d")],
        call: |task, one, _| ignore(chmod::fchmodat(task, Fd::CWD, lent::path(one), 0o700, 0)),
        one: "/light/d",
        other: "",
    },
    Scenario {
        name: "rename with a whiteout",
        before: &[Make::File("/light/a"), Make::Dir("/light/d")],
        call: |task, one, other| ignore(renamed(task, one, other, RENAME_WHITEOUT)),
        one: "/light/a",
        other: "/light/d/b",
    },
];

fn renamed(task: &Task, one: &CString, other: &CString, flags: u32) -> lp_abi::Result<link::Two> {
    rename::renameat2(task, Fd::CWD, lent::path(one), Fd::CWD, lent::path(other), flags)
}

fn make(task: &Task, what: &Make) {
    let file = |path: &str| {
        mknod::mknodat(task, Fd::CWD, lent::path(&c(path)), S_IFREG | 0o644, 0).expect(path);
    };
    match what {
        Make::Dir(path) => {
            mkdir::mkdirat(task, Fd::CWD, lent::path(&c(path)), 0o755).expect(path);
        }
        Make::File(path) => file(path),
        Make::Files(path, count) => (0..*count).for_each(|number| file(&format!("{path}{number}"))),
    }
}

/// Removes everything below the root.
fn clean(task: &Task, found: &Found) {
    for (path, (mode, _)) in found.tree.iter().rev() {
        let flags = if mode & S_IFMT == S_IFDIR { AT_REMOVEDIR } else { 0 };
        let path = c(&format!("/light{path}"));
        unlink::unlinkat(task, Fd::CWD, lent::path(&path), flags).expect("everything can be removed");
    }
    reclaim::run(task);
}

#[test]
fn a_death_at_any_instruction_loses_nothing() {
    let task = death::task();
    let root: InodeId = boot::root(&task, 0).expect("root").id;
    for scenario in SCENARIOS {
        // The slots and pages of an empty file system, with filled caches.
        scenario.before.iter().for_each(|what| make(&task, what));
        let old = fsck::check(&task, root).tree;
        (scenario.call)(&task, &c(scenario.one), &c(scenario.other));
        let new = fsck::check(&task, root);
        assert_ne!(old, new.tree, "{}: the call does nothing", scenario.name);
        clean(&task, &new);
        let (slots, pages) = (fsck::slots(&task), page::free_count(task.region));
        let mut seen = [0, 0];
        for steps in death::strides() {
            scenario.before.iter().for_each(|what| make(&task, what));
            let before = fsck::check(&task, root).tree;
            let (one, other) = (c(scenario.one), c(scenario.other));
            let killed = death::interrupt(&task, steps, &|child| (scenario.call)(child, &one, &other));
            fsck::usable(&task);
            if steps % 2 == 0 {
                // Another process wants the dead one's locks before anybody reaps it.
                make(&task, &Make::File("/light/later"));
                unlink::unlink(&task, Fd::CWD, lent::path(&c("/light/later"))).expect("unlink");
            }
            reclaim::dead(&task);
            let after = fsck::check(&task, root);
            let outcome = [before, new.tree.clone()].iter().position(|tree| *tree == after.tree);
            let at = format!("{} killed after {steps} instructions", scenario.name);
            assert_eq!(task.region.header().tree.read() & 1, 0, "{at}: walks remember no prefixes");
            let outcome = outcome.unwrap_or_else(|| panic!("{at}: half done: {:?}", after.tree));
            if std::env::var_os("V").is_some() {
                eprintln!("{at}: {outcome}");
            }
            seen[outcome] += 1;
            clean(&task, &after);
            assert_eq!(fsck::slots(&task), slots, "{at}: slots of entries, inodes, long names, buckets");
            assert_eq!(page::free_count(task.region), pages, "{at}: pages");
            if !killed {
                break;
            }
        }
        assert!(seen.iter().all(|times| *times > 0), "{}: outcomes {seen:?}", scenario.name);
    }
}

//! Content that files share after a copy: nobody sees the others' changes, nothing is left of it in the end,
//! and a process may be killed at any instruction of each step.

use std::ffi::{CStr, CString};

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, PAGE_SIZE, UserPtr};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, Region};
use lp_vfs::mapping::{self, MapAccess};
use lp_vfs::open::Opened;
use lp_vfs::{
    Place, Task, close, copy, fallocate, open, page, read, reclaim, table, truncate, unlink, write,
};

mod setup;
use setup::{Random, death, fsck, lent};

/// Size of the files: some pages, and a part of one.
const SIZE: usize = 6 * PAGE_SIZE + 123;
const A: &CStr = c"/light/a";
const B: &CStr = c"/light/b";
const C: &CStr = c"/light/c";

fn opened(task: &Task, path: &CStr, flags: u32) -> Option<Fd> {
    let Ok(Place::Inside(Opened::File(id))) = open::openat(task, Fd::CWD, lent::path(path), flags, 0o600)
    else {
        return None;
    };
    let fd = task.table.lowest(3, 100).ok()?;
    table::install(task, fd, id, 0).ok()?;
    Some(fd)
}

/// Calls `with` with a descriptor of the file.
fn on<T>(task: &Task, path: &CStr, flags: u32, with: impl FnOnce(Fd) -> T) -> T {
    let Some(fd) = opened(task, path, flags) else { std::process::abort() };
    let done = with(fd);
    let _ = close::close(task, fd);
    done
}

fn put(task: &Task, path: &CStr, bytes: &[u8], at: i64) {
    let flags = O_RDWR | O_CREAT;
    assert_eq!(on(task, path, flags, |fd| write::pwrite(task, fd, lent::bytes(&bytes), at)), Ok(bytes.len()));
}

/// What a file holds; none if it does not exist.
fn content(task: &Task, path: &CStr) -> Option<Vec<u8>> {
    let fd = opened(task, path, O_RDONLY)?;
    let mut bytes = vec![0; 2 * SIZE];
    let got = read::pread(task, fd, lent::room(&mut bytes), 0).expect("pread");
    bytes.truncate(got);
    let _ = close::close(task, fd);
    Some(bytes)
}

/// Copies all of a file to an empty one, which is made if it is not there.
fn duplicate(task: &Task, from: &CStr, to: &CStr) -> Result<usize, Errno> {
    on(task, from, O_RDONLY, |source| {
        on(task, to, O_RDWR | O_CREAT, |target| {
            copy::copy_file_range(task, source, UserPtr::NULL, target, UserPtr::NULL, 1 << 30, 0)
        })
    })
}

fn remove(task: &Task, path: &CStr) {
    let _ = unlink::unlinkat(task, Fd::CWD, lent::path(path), 0);
}

/// Removes a file and frees what it had.
fn discard(task: &Task, path: &CStr) {
    remove(task, path);
    reclaim::all(task);
}

/// Maps a file for a moment.
fn map(task: &Task, path: &CStr, access: MapAccess) {
    on(task, path, O_RDWR, |fd| {
        if let Ok(of) = mapping::begin(task, fd, 0, SIZE, access) {
            mapping::end(task, of, SIZE);
        }
    });
}

/// The number of files of the region that share content.
fn sharing(region: Region) -> usize {
    let all = (1..1000).map(|index| region.inode(InodeId(index)));
    all.filter(|inode: &&Inode| {
        inode.nlink.load(Relaxed) != 0 && inode.flags.load(Relaxed) & inode_flags::MEMBER != 0
    })
    .count()
}

fn bytes(seed: u8) -> Vec<u8> {
    (0..SIZE).map(|at| (at / 7) as u8 ^ seed).collect()
}

/// Free pages without a file, once the directory has the pages that it keeps.
fn free_pages(task: &Task) -> u64 {
    fsck::warm(task);
    put(task, A, &bytes(1), 0);
    [A, B, C].iter().for_each(|path| remove(task, path));
    reclaim::all(task);
    page::free_count(task.region)
}

/// Checks the region, and that nothing is left once all files are removed.
fn nothing_is_left(task: &Task, empty: u64, at: &str) {
    [A, B, C].iter().for_each(|path| remove(task, path));
    reclaim::all(task);
    lp_fsck::check(task.region, task.process_id).expect_sound(at);
    assert_eq!(page::free_count(task.region), empty, "{at}: free pages");
    assert_eq!(sharing(task.region), 0, "{at}: files that share");
}

#[test]
fn copies_share_their_content() {
    let _alone = death::alone();
    let task = death::task();
    put(&task, A, &bytes(1), 0);
    let before = page::free_count(task.region);
    assert_eq!(duplicate(&task, A, B), Ok(SIZE));
    assert_eq!(duplicate(&task, B, C), Ok(SIZE));
    assert_eq!(page::free_count(task.region), before, "no page is copied");
    assert_eq!(sharing(task.region), 3);
    for path in [A, B, C] {
        assert!(content(&task, path) == Some(bytes(1)), "{path:?}");
    }
}

#[test]
fn a_write_to_a_copy_takes_the_pages_that_it_changes() {
    let _alone = death::alone();
    let task = death::task();
    let empty = free_pages(&task);
    put(&task, A, &bytes(1), 0);
    assert_eq!(duplicate(&task, A, B), Ok(SIZE));
    let free = || page::free_count(task.region);
    let before = free();
    put(&task, B, &[9; 20], 4090);
    assert_eq!(before - free(), 3, "two pages, and a map");
    put(&task, B, &[8; 20], 4090);
    assert_eq!(before - free(), 3, "they are its own");
    assert_eq!(sharing(task.region), 2);
    discard(&task, A);
    put(&task, B, &[9], 20_000);
    assert_eq!(sharing(task.region), 0, "the last has the rest");
    assert_eq!(before - free(), 0, "and what it had replaced is gone");
    nothing_is_left(&task, empty, "the end");
}

#[test]
fn a_copy_that_is_rewritten_shares_nothing() {
    let _alone = death::alone();
    let task = death::task();
    let empty = free_pages(&task);
    put(&task, A, &bytes(1), 0);
    assert_eq!(duplicate(&task, A, B), Ok(SIZE));
    for at in (0..SIZE).step_by(1000) {
        put(&task, B, &bytes(2)[at..(at + 1000).min(SIZE)], at as i64);
    }
    assert_eq!(sharing(task.region), 1, "only the source");
    assert!(content(&task, A) == Some(bytes(1)) && content(&task, B) == Some(bytes(2)));
    nothing_is_left(&task, empty, "the end");
}

/// Pages that a file has replaced are freed once it and all others have left. A reader that found one in the
/// map before it was replaced copies it again.
#[test]
fn the_end_of_borrowing_is_a_change_to_readers() {
    let _alone = death::alone();
    let task = death::task();
    let empty = free_pages(&task);
    for is_last in [false, true] {
        if is_last {
            last_borrower(&task)
        } else {
            borrower(&task)
        }
        on(&task, B, O_RDWR, |fd| {
            let inode = task.fget(fd).map(|held| held.inode_id()).expect("open");
            let before = task.region.inode(inode).data_seq.read();
            let of = mapping::begin(&task, fd, 0, SIZE, MapAccess::Private).expect("mapping");
            assert!(task.region.inode(inode).data_seq.retry(before), "the last: {is_last}");
            mapping::end(&task, of, SIZE);
        });
        nothing_is_left(&task, empty, "the end");
    }
}

/// A change of one of two files with the same content; what it then holds.
type Step = (&'static str, fn(&Task), fn(&mut Vec<u8>));

const CHANGES: &[Step] = &[
    ("a write", |task| put(task, B, &[9; 300], 4000), |all| all[4000..4300].fill(9)),
    ("an append", |task| put(task, B, &[9; 9000], SIZE as i64), |all| all.resize(SIZE + 9000, 9)),
    (
        "a cut",
        |task| on(task, B, O_RDWR, |fd| _ = truncate::ftruncate(task, fd, 5000)),
        |all| all.truncate(5000),
    ),
    ("truncate to nothing", |task| on(task, B, O_RDWR | O_TRUNC, |_| ()), Vec::clear),
    (
        "a longer end",
        |task| on(task, B, O_RDWR, |fd| _ = truncate::ftruncate(task, fd, SIZE as i64 + 5000)),
        |all| all.resize(SIZE + 5000, 0),
    ),
    (
        "a hole",
        |task| {
            let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
            on(task, B, O_RDWR, |fd| _ = fallocate::fallocate(task, fd, mode, 5000, 9000));
        },
        |all| all[5000..14_000].fill(0),
    ),
    (
        "space",
        |task| on(task, B, O_RDWR, |fd| _ = fallocate::fallocate(task, fd, 0, 0, SIZE as i64 + 5000)),
        |all| all.resize(SIZE + 5000, 0),
    ),
    ("a mapping", |task| map(task, B, MapAccess::SharedWrite), |_| ()),
];

#[test]
fn a_change_concerns_one_file() {
    let _alone = death::alone();
    let task = death::task();
    let empty = free_pages(&task);
    for (name, change, expected) in CHANGES {
        for (is_last, borrows) in [(false, false), (false, true), (true, false), (true, true)] {
            let name = format!("{name}, the last: {is_last}, borrows: {borrows}");
            let name = name.as_str();
            let mut wanted = bytes(3);
            put(&task, A, &bytes(3), 0);
            assert_eq!(duplicate(&task, A, B), Ok(SIZE), "{name}");
            if borrows {
                put(&task, B, &[7; 9], 2 * PAGE_SIZE as i64 - 4);
                wanted[2 * PAGE_SIZE - 4..][..9].fill(7);
            }
            if is_last {
                discard(&task, A);
            }
            change(&task);
            expected(&mut wanted);
            assert!(content(&task, B) == Some(wanted), "{name}");
            assert!(is_last || content(&task, A) == Some(bytes(3)), "{name}: the other");
            lp_fsck::check(task.region, task.process_id).expect_sound(name);
            nothing_is_left(&task, empty, name);
        }
    }
}

#[test]
fn mapped_and_half_empty_files_are_copied() {
    let _alone = death::alone();
    let task = death::task();
    put(&task, A, &bytes(5), 0);
    let of =
        on(&task, A, O_RDWR, |fd| mapping::begin(&task, fd, 0, SIZE, MapAccess::Private)).expect("mapping");
    assert_eq!(duplicate(&task, A, B), Ok(SIZE));
    assert_eq!(sharing(task.region), 0, "a mapped source");
    mapping::end(&task, of, SIZE);
    put(&task, C, &[1], 0);
    on(&task, A, O_RDONLY, |source| {
        on(&task, C, O_RDWR, |target| {
            let mut at = 1;
            let moved =
                copy::copy_file_range(&task, source, UserPtr::NULL, target, lent::value(&mut at), SIZE, 0);
            assert_eq!(moved, Ok(SIZE));
        });
    });
    assert_eq!(sharing(task.region), 0, "a target with content");
    assert_eq!(content(&task, C).map(|all| all.len()), Some(SIZE + 1));
}

/// What is shared has no pages of its own until it changes, and then there may be none.
#[test]
fn a_change_of_a_shared_file_may_find_no_space() {
    let _alone = death::alone();
    let task = death::task();
    let empty = free_pages(&task);
    put(&task, A, &bytes(1), 0);
    assert_eq!(duplicate(&task, A, B), Ok(SIZE));
    on(&task, C, O_RDWR | O_CREAT, |fd| {
        let mut at = 0;
        while let Ok(done) = write::pwrite(&task, fd, lent::bytes(&[4; 1 << 16]), at) {
            at += done as i64;
        }
    });
    assert_eq!(page::free_count(task.region), 0);
    on(&task, B, O_RDWR, |fd| {
        assert_eq!(write::pwrite(&task, fd, lent::bytes(&[9]), 100), Err(Errno::ENOSPC));
        assert_eq!(truncate::ftruncate(&task, fd, 5000), Err(Errno::ENOSPC));
        assert_eq!(fallocate::fallocate(&task, fd, 0, 0, SIZE as i64), Err(Errno::ENOSPC));
        assert_eq!(mapping::begin(&task, fd, 0, SIZE, MapAccess::Private).map(|_| ()), Err(Errno::ENOMEM));
        assert!(content(&task, A) == Some(bytes(1)) && content(&task, B) == Some(bytes(1)), "as before");
        lp_fsck::check(task.region, task.process_id).expect_sound("full");
        assert_eq!(truncate::ftruncate(&task, fd, SIZE as i64 + 1), Ok(()), "a longer end");
        assert_eq!(truncate::ftruncate(&task, fd, 0), Ok(()), "nothing to keep");
    });
    put(&task, A, &[9], 100);
    nothing_is_left(&task, empty, "full");
}

/// Files with the same content are written, cut, removed and copied at random, beside a model.
#[test]
fn random_steps_agree_with_a_model() {
    let _alone = death::alone();
    let task = death::task();
    let empty = free_pages(&task);
    let names: Vec<CString> =
        (0..6).map(|index| CString::new(format!("/light/f{index}")).expect("path")).collect();
    let mut model: Vec<Option<Vec<u8>>> = vec![None; names.len()];
    let mut random = Random(11);
    let mut most = 0;
    for step in 0..3000 {
        let (from, to) = (random.below(names.len()), random.below(names.len()));
        match random.below(9) {
            3 | 4 => {
                if let Some(file) = model[to].as_mut().filter(|file| !file.is_empty()) {
                    let (at, seed) = (random.below(file.len()), random.below(250) as u8);
                    let len = random.below(3000) + 1;
                    put(&task, &names[to], &bytes(seed)[..len], at as i64);
                    file.resize(file.len().max(at + len), 0);
                    file[at..at + len].copy_from_slice(&bytes(seed)[..len]);
                }
            }
            5 => {
                if let Some(file) = &mut model[to] {
                    let (at, len) = (random.below(SIZE), random.below(SIZE) + 1);
                    let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
                    let punch = |fd| fallocate::fallocate(&task, fd, mode, at as i64, len as i64);
                    assert_eq!(on(&task, &names[to], O_RDWR, punch), Ok(()));
                    let end = (at + len).min(file.len());
                    file[at.min(end)..end].fill(0);
                }
            }
            0 => {
                let (seed, at) = (random.below(250) as u8, random.below(2 * PAGE_SIZE));
                put(&task, &names[to], &bytes(seed), at as i64);
                let file = model[to].get_or_insert_default();
                file.resize(file.len().max(at + SIZE), 0);
                file[at..at + SIZE].copy_from_slice(&bytes(seed));
            }
            1 => {
                remove(&task, &names[to]);
                model[to] = None;
            }
            2 => {
                if let Some(file) = &mut model[to] {
                    let size = random.below(2 * SIZE);
                    let done =
                        on(&task, &names[to], O_RDWR, |fd| truncate::ftruncate(&task, fd, size as i64));
                    assert_eq!(done, Ok(()));
                    file.resize(size, 0);
                }
            }
            _ if model[from].is_some() && from != to => {
                remove(&task, &names[to]);
                let size = model[from].as_ref().map_or(0, Vec::len);
                assert_eq!(duplicate(&task, &names[from], &names[to]), Ok(size), "step {step}");
                model[to] = model[from].clone();
            }
            _ => {}
        }
        most = most.max(sharing(task.region));
        let look = random.below(names.len());
        let found = content(&task, &names[look]);
        let wanted = model[look].as_ref().map(|all| all[..all.len().min(2 * SIZE)].to_vec());
        assert!(found == wanted, "step {step}: file {look}");
        if step % 100 == 0 {
            lp_fsck::check(task.region, task.process_id).expect_sound("a step");
        }
    }
    assert!(most >= 4, "several files had the same content, at most {most}");
    names.iter().for_each(|name| remove(&task, name));
    nothing_is_left(&task, empty, "the end");
}

/// What is done before a death, the call, and what may be in the files after it.
struct Scenario {
    name: &'static str,
    before: fn(&Task),
    call: fn(&Task),
    /// Contents of A, B and C before and after the call.
    ends: [[Option<u8>; 3]; 2],
}

/// Stand for `bytes(1)` with other bytes: one that the call writes, and some that were written before.
const WRITTEN: u8 = 100;
const BEFORE: u8 = 101;
const BOTH: u8 = 102;
const CUT: u8 = 103;

fn two(task: &Task) {
    put(task, A, &bytes(1), 0);
    let _ = duplicate(task, A, B);
}

fn last(task: &Task) {
    two(task);
    discard(task, A);
}

/// Two files, of which the second borrows all but its second page.
fn borrower(task: &Task) {
    two(task);
    put(task, B, &[7; 50], 5000);
}

fn last_borrower(task: &Task) {
    borrower(task);
    discard(task, A);
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "the first copy",
        before: |task| {
            put(task, A, &bytes(1), 0);
            on(task, B, O_RDWR | O_CREAT, |_| ());
        },
        call: |task| _ = duplicate(task, A, B),
        ends: [[Some(1), Some(0), None], [Some(1), Some(1), None]],
    },
    Scenario {
        name: "another copy",
        before: |task| {
            two(task);
            on(task, C, O_RDWR | O_CREAT, |_| ());
        },
        call: |task| _ = duplicate(task, B, C),
        ends: [[Some(1), Some(1), Some(0)], [Some(1), Some(1), Some(1)]],
    },
    Scenario {
        name: "a write",
        before: two,
        call: |task| put(task, B, &[9], 8000),
        ends: [[Some(1), Some(1), None], [Some(1), Some(WRITTEN), None]],
    },
    Scenario {
        name: "a write to the last",
        before: last,
        call: |task| put(task, B, &[9], 8000),
        ends: [[None, Some(1), None], [None, Some(WRITTEN), None]],
    },
    Scenario {
        name: "a truncation",
        before: two,
        call: |task| on(task, B, O_RDWR | O_TRUNC, |_| ()),
        ends: [[Some(1), Some(1), None], [Some(1), Some(0), None]],
    },
    Scenario {
        name: "a removal",
        before: two,
        call: |task| discard(task, B),
        ends: [[Some(1), Some(1), None], [Some(1), None, None]],
    },
    Scenario {
        name: "a write to one that borrows",
        before: borrower,
        call: |task| put(task, B, &[9], 8000 + PAGE_SIZE as i64),
        ends: [[Some(1), Some(BEFORE), None], [Some(1), Some(BOTH), None]],
    },
    Scenario {
        name: "a write to the last that borrows",
        before: last_borrower,
        call: |task| put(task, B, &[9], 8000 + PAGE_SIZE as i64),
        ends: [[None, Some(BEFORE), None], [None, Some(BOTH), None]],
    },
    Scenario {
        name: "a mapping of one that borrows",
        before: borrower,
        call: |task| {
            map(task, B, MapAccess::Private);
            put(task, B, &[9], 8000 + PAGE_SIZE as i64);
        },
        ends: [[Some(1), Some(BEFORE), None], [Some(1), Some(BOTH), None]],
    },
    Scenario {
        name: "a cut of one that borrows",
        before: borrower,
        call: |task| on(task, B, O_RDWR, |fd| _ = truncate::ftruncate(task, fd, 9000)),
        ends: [[Some(1), Some(BEFORE), None], [Some(1), Some(CUT), None]],
    },
    Scenario {
        name: "a truncation of one that borrows",
        before: borrower,
        call: |task| on(task, B, O_RDWR | O_TRUNC, |_| ()),
        ends: [[Some(1), Some(BEFORE), None], [Some(1), Some(0), None]],
    },
    Scenario {
        name: "a removal of one that borrows",
        before: borrower,
        call: |task| discard(task, B),
        ends: [[Some(1), Some(BEFORE), None], [Some(1), None, None]],
    },
    Scenario {
        name: "a removal of the last that borrows",
        before: last_borrower,
        call: |task| discard(task, B),
        ends: [[None, Some(BEFORE), None], [None, None, None]],
    },
    Scenario {
        name: "a copy of one that borrows",
        before: |task| {
            borrower(task);
            on(task, C, O_RDWR | O_CREAT, |_| ());
        },
        call: |task| _ = duplicate(task, B, C),
        ends: [[Some(1), Some(BEFORE), Some(0)], [Some(1), Some(BEFORE), Some(BEFORE)]],
    },
    Scenario {
        name: "the last removal",
        before: last,
        call: |task| discard(task, B),
        ends: [[None, Some(1), None], [None, None, None]],
    },
];

/// The content that a letter of [`Scenario::ends`] stands for.
fn stands_for(letter: u8) -> Vec<u8> {
    let before = || {
        let mut all = bytes(1);
        all[5000..5050].fill(7);
        all
    };
    match letter {
        0 => Vec::new(),
        WRITTEN => {
            let mut all = bytes(1);
            all[8000] = 9;
            all
        }
        BEFORE => before(),
        BOTH => {
            let mut all = before();
            all[8000 + PAGE_SIZE] = 9;
            all
        }
        CUT => before()[..9000].to_vec(),
        seed => bytes(seed),
    }
}

#[test]
fn a_step_killed_at_any_instruction_is_done_or_not() {
    let _alone = death::alone();
    let task = death::task();
    for scenario in SCENARIOS {
        let empty = free_pages(&task);
        (scenario.before)(&task);
        let length = death::length(&task, &scenario.call);
        [A, B, C].iter().for_each(|path| remove(&task, path));
        let mut seen = [false; 2];
        // How many instructions a copy of pages takes varies.
        for steps in death::samples(length).chain([u32::MAX]) {
            let at = format!("{}, killed after {steps} of {length} instructions", scenario.name);
            (scenario.before)(&task);
            death::interrupt(&task, steps, &scenario.call);
            // What the dead left is sound before anybody has buried it.
            lp_fsck::check(task.region, task.process_id).expect_sound(&at);
            reclaim::dead(&task);
            let found = [A, B, C].map(|path| content(&task, path));
            let end = scenario.ends.iter().position(|end| {
                end.iter().zip(&found).all(|(letter, found)| letter.map(stands_for) == *found)
            });
            let Some(end) = end else { panic!("{at}: neither before nor after") };
            seen[end] = true;
            put(&task, A, &bytes(7), 0);
            assert!(content(&task, A) == Some(bytes(7)), "{at}: written afterwards");
            nothing_is_left(&task, empty, &at);
        }
        assert_eq!(seen, [true; 2], "{}: both ends are seen", scenario.name);
    }
}

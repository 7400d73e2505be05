//! A process is killed after each instruction of a truncation of a file that another process maps. What lies
//! behind the new end has no memory afterwards, or everything is as it was.

use lp_abi::linux::{__NR_lseek, O_CREAT, O_RDWR, SEEK_HOLE};
use lp_abi::{Fd, PAGE_SIZE, syscall};
use lp_region::sync::Ordering;
use lp_vfs::mapping::{self, MapAccess};
use lp_vfs::open::Opened;
use lp_vfs::{Place, Task, open, read, reclaim, table, truncate, write};

mod setup;
use setup::{death, lent};

const PAGES: usize = 4;
const BYTES: usize = PAGES * PAGE_SIZE;

fn opened(task: &Task) -> Fd {
    let found = open::openat(task, Fd::CWD, lent::path(c"/light/file"), O_RDWR | O_CREAT, 0o600);
    let Ok(Place::Inside(Opened::File(id))) = found else { std::process::abort() };
    let fd = task.table.lowest(3, 100).expect("number");
    table::install(task, fd, id, 0).expect("install");
    fd
}

/// Whether each of the file's pages, which are at these offsets of the region's file, has memory.
fn have_memory(task: &Task, places: &[usize]) -> Vec<bool> {
    let hole = |place: usize| {
        // SAFETY: no pointer is passed, and nobody uses the position.
        unsafe { syscall!(__NR_lseek, task.region.fd(), place, SEEK_HOLE) }
    };
    places.iter().map(|place| hole(*place).expect("lseek") != *place).collect()
}

fn places(task: &Task, of: lp_region::InodeRef) -> Vec<usize> {
    let mut places = Vec::new();
    mapping::pieces(task, of, 0, BYTES, u64::MAX, &mut |piece| {
        let first = piece.region.expect("pages");
        places.extend((0..piece.bytes / PAGE_SIZE).map(|page| first + page * PAGE_SIZE));
        Ok(())
    })
    .expect("pieces");
    places
}

#[test]
fn a_truncation_killed_at_any_instruction_leaves_no_memory_behind_the_end() {
    let _alone = death::alone();
    let task = death::task();
    let fd = opened(&task);
    let put = || assert_eq!(write::pwrite(&task, fd, lent::bytes(&[7; BYTES]), 0), Ok(BYTES));
    let got = || {
        let mut bytes = vec![1; BYTES];
        let count = read::pread(&task, fd, lent::room(&mut bytes), 0).expect("pread");
        bytes.truncate(count);
        bytes
    };
    put();
    let of = mapping::begin(&task, fd, 0, BYTES, MapAccess::SharedWrite).expect("mapping");
    let places = places(&task, of);
    assert_eq!(places.len(), PAGES);
    let call = |child: &Task| _ = truncate::ftruncate(child, opened(child), PAGE_SIZE as i64);
    let length = death::length(&task, &call);
    let mut cuts = 0;
    for steps in death::samples(length) {
        let at = format!("killed after {steps} instructions");
        put();
        assert_eq!(have_memory(&task, &places), [true; PAGES], "{at}: before");
        death::interrupt(&task, steps, &call);
        reclaim::dead(&task);
        mapping::grow(&task, of, PAGE_SIZE).expect("record");
        mapping::end(&task, of, PAGE_SIZE);
        let size = task.region.inode(of.id).size.load(Ordering::Relaxed) as usize;
        if size == BYTES {
            assert_eq!(have_memory(&task, &places), [true; PAGES], "{at}: not truncated");
            assert!(got() == [7; BYTES], "{at}: not truncated");
        } else {
            cuts += 1;
            assert_eq!(size, PAGE_SIZE, "{at}");
            assert_eq!(have_memory(&task, &places), [true, false, false, false], "{at}: truncated");
        }
        truncate::ftruncate(&task, fd, BYTES as i64).expect("ftruncate");
        assert_eq!(have_memory(&task, &places), [true; PAGES], "{at}: grown again");
        let kept = if size == BYTES { BYTES } else { PAGE_SIZE };
        let bytes = got();
        assert!(bytes[..kept] == [7; BYTES][..kept], "{at}: what is kept");
        assert!(bytes[kept..].iter().all(|byte| *byte == 0), "{at}: what has grown again");
        lp_fsck::check(task.region, task.process_id).expect_sound(&at);
    }
    assert!(cuts >= 1, "some truncation happened");
}

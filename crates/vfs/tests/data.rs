//! File content compared with a model: reads return what was written, for every number and layout of pages.

mod setup;

use lp_abi::linux::{O_APPEND, O_CREAT, O_RDWR, S_IFCHR, S_IFDIR, S_IFREG};
use lp_abi::{Errno, Fd, PAGE_SIZE};
use lp_vfs::open::Opened;
use lp_vfs::{
    Place, close, dup, fallocate, inode, map, open, page, read, stat, table, truncate, unlink, write,
};
use setup::{Fixture, Random, lent};

const P: usize = PAGE_SIZE;

fn put(fixture: &Fixture, fd: Fd, bytes: &[u8], offset: usize) -> usize {
    write::pwrite(&fixture.task, fd, lent::bytes(&bytes), offset as i64).expect("pwrite")
}

fn get(fixture: &Fixture, fd: Fd, len: usize, offset: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let got = read::pread(&fixture.task, fd, lent::room(&mut bytes[..len]), offset as i64).expect("pread");
    bytes.truncate(got);
    bytes
}

#[test]
fn holes_read_zeros_and_writes_stay_where_they_were_made() {
    let fixture = Fixture::private(64 << 20);
    let fd = fixture.file(O_RDWR);
    assert_eq!(put(&fixture, fd, b"end", 5 * P + 7), 3);
    assert_eq!(get(&fixture, fd, 8 * P, 0).len(), 5 * P + 10);
    assert!(get(&fixture, fd, 5 * P + 7, 0).iter().all(|byte| *byte == 0));
    assert_eq!(get(&fixture, fd, 10, 5 * P + 7), b"end");
    assert_eq!(inode::attributes(&fixture.task, fixture.inode_id(fd), fixture.inode(fd)).blocks, 8);
}

#[test]
fn far_offsets_are_reached_through_a_tall_map() {
    let fixture = Fixture::private(64 << 20);
    let fd = fixture.file(O_RDWR);
    for power in [12, 22, 32, 42, 52, 62] {
        let offset = 1usize << power;
        put(&fixture, fd, &power.to_string().into_bytes(), offset);
    }
    for power in [12, 22, 32, 42, 52, 62] {
        assert_eq!(get(&fixture, fd, 2, 1 << power), power.to_string().as_bytes());
        assert_eq!(get(&fixture, fd, 3, (1 << power) - 3), [0, 0, 0]);
    }
    let too_far = write::pwrite(&fixture.task, fd, lent::bytes(b"x"), i64::MAX);
    assert_eq!(too_far, Err(Errno::EINVAL), "no off_t holds the end");
    fixture.resize(fd, 0);
    assert_eq!(page::free_count(fixture.task.region), fixture.empty);
}

#[test]
fn an_allocation_that_fails_takes_nothing() {
    let fixture = Fixture::private(16 << 20);
    let fd = fixture.file(O_RDWR);
    // The pages of its map are not counted in this.
    let all = page::free_count(fixture.task.region) as i64 * P as i64;
    assert_eq!(fallocate::fallocate(&fixture.task, fd, 0, 0, all), Err(Errno::ENOSPC));
    assert_eq!(inode::attributes(&fixture.task, fixture.inode_id(fd), fixture.inode(fd)).blocks, 0);
    assert_eq!(page::free_count(fixture.task.region), fixture.empty);
}

#[test]
fn random_operations_agree_with_a_vector() {
    let fixture = Fixture::private(64 << 20);
    let fd = fixture.file(O_RDWR);
    let mut model: Vec<u8> = Vec::new();
    let mut random = Random(7);
    for step in 0..4000u32 {
        let offset = random.below(40 * P);
        let len = 1 + random.below(if step % 5 == 0 { 12 * P } else { 300 });
        match random.below(10) {
            0 => {
                fixture.resize(fd, offset as u64);
                model.resize(offset, 0);
            }
            1..6 => {
                let bytes: Vec<u8> = (0..len).map(|at| (step as usize + at) as u8).collect();
                assert_eq!(put(&fixture, fd, &bytes, offset), len);
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].copy_from_slice(&bytes);
            }
            _ => {
                let end = model.len().min(offset + len);
                let expected = model.get(offset.min(end)..end).unwrap_or(&[]);
                assert_eq!(get(&fixture, fd, len, offset), expected, "step {step}");
            }
        }
        assert_eq!(
            inode::attributes(&fixture.task, fixture.inode_id(fd), fixture.inode(fd)).size,
            model.len() as u64
        );
    }
    fixture.resize(fd, 0);
    assert_eq!(page::free_count(fixture.task.region), fixture.empty);
}

#[test]
fn appends_go_to_the_end_and_positions_follow() {
    let fixture = Fixture::private(8 << 20);
    let fd = fixture.file(O_RDWR | O_APPEND);
    for _ in 0..3 {
        assert_eq!(write::write(&fixture.task, fd, lent::bytes(b"abc")), Ok(3));
    }
    assert_eq!(write::pwrite(&fixture.task, fd, lent::bytes(b"!"), 0), Ok(1));
    assert_eq!(get(&fixture, fd, 20, 0), b"abcabcabc!");
    let mut rest = [0u8; 4];
    // The position is after the last byte that write, not pwrite, wrote.
    assert_eq!(read::read(&fixture.task, fd, lent::room(&mut rest[..4])), Ok(1));
    assert_eq!(&rest[..1], b"!");
}

#[test]
fn a_full_file_system_gives_every_page_and_then_enospc() {
    let pages = 700;
    let fixture = Fixture::private(pages * P);
    let fd = fixture.file(O_RDWR);
    let page = [1u8; P];
    let mut written = 0;
    let error = loop {
        match write::write(&fixture.task, fd, lent::bytes(&page[..P])) {
            Ok(bytes) => written += bytes,
            Err(errno) => break errno,
        }
    };
    assert_eq!(error, Errno::ENOSPC);
    // All pages but the map page hold data.
    assert_eq!(written, (pages - 1) * P);
    assert_eq!(page::free_count(fixture.task.region), 0);
    // Existing pages can still be written; new ones only in part.
    assert_eq!(put(&fixture, fd, &page, 5 * P), P);
    fixture.resize(fd, (10 * P) as u64);
    let long = vec![2u8; 1000 * P];
    assert_eq!(put(&fixture, fd, &long, 10 * P), (pages - 11) * P);
    fixture.resize(fd, 0);
    assert_eq!(page::free_count(fixture.task.region), pages as u64);
}

#[test]
fn recycled_pages_show_no_old_bytes() {
    let fixture = Fixture::private(4 << 20);
    let fd = fixture.file(O_RDWR);
    let old = vec![0xaau8; 600 * P];
    put(&fixture, fd, &old, 0);
    fixture.resize(fd, 0);
    for index in 0..500 {
        put(&fixture, fd, b"n", index * P + 9);
    }
    for index in 0..500 {
        let mut expected = vec![0u8; P];
        expected[9] = b'n';
        let len = if index == 499 { 10 } else { P };
        assert_eq!(get(&fixture, fd, P, index * P), expected[..len]);
    }
    truncate::resize(&fixture.task, fixture.inode_id(fd), fixture.inode(fd), 3 * P as u64 + 5)
        .expect("resize");
    fixture.resize(fd, 5 * P as u64);
    assert!(get(&fixture, fd, 2 * P, 3 * P).iter().all(|byte| *byte == 0));
}

#[test]
fn a_redirected_file_is_as_good_as_unshared() {
    let fixture = Fixture::private(4 << 20);
    let task = &fixture.task;
    let fd = fixture.file(O_RDWR);
    let file = task.fget(fd).expect("open").file;
    let shared = || file.shared.load(lp_region::sync::Ordering::Relaxed);
    for other in [7, 8] {
        let id = dup::dup(task, fd).expect("dup");
        dup::install(task, Fd::new(other), id, 0).expect("install");
    }
    assert_ne!(shared(), 0);
    close::close(task, fd).expect("close");
    assert_ne!(shared(), 0, "two descriptors are left");
    close::close(task, Fd::new(7)).expect("close");
    assert_eq!(shared(), 0, "one descriptor is left");
    assert_eq!(write::write(task, Fd::new(8), lent::bytes(b"abc")), Ok(3));
    let generation = file.generation.load(lp_region::sync::Ordering::Relaxed);
    close::close(task, Fd::new(8)).expect("close");
    assert_ne!(
        file.generation.load(lp_region::sync::Ordering::Relaxed),
        generation,
        "the last close frees it"
    );
}

#[test]
fn fstat_gives_every_field_of_the_record() {
    let fixture = Fixture::private(4 << 20);
    let (task, fd) = (&fixture.task, fixture.file(O_RDWR));
    put(&fixture, fd, b"x", 9 * P);
    let relaxed = lp_region::sync::Ordering::Relaxed;
    for kind in [S_IFREG, S_IFDIR, S_IFCHR] {
        let record = fixture.inode(fd);
        record.mode.store(kind | 0o1751, relaxed);
        let words = [&record.uid, &record.gid, &record.rdev, &record.nlink, &record.entries];
        words.iter().enumerate().for_each(|(at, word)| word.store(0xfff0_0000 + at as u32, relaxed));
        let seconds = [&record.atime.sec, &record.mtime.sec, &record.ctime];
        let nanoseconds = [&record.atime.nsec, &record.mtime.nsec, &record.ctime_nsec];
        for at in 0..3 {
            seconds[at].store(u64::MAX - at as u64, relaxed);
            nanoseconds[at].store(999_999_990 + at as u32, relaxed);
        }
        // SAFETY: all bits set is a valid stat.
        let mut seen: lp_abi::linux::stat = unsafe { std::mem::transmute([0xffu8; 144]) };
        stat::fstat(task, fd, lent::value(&mut seen)).expect("fstat");
        let expected = inode::attributes(&fixture.task, fixture.inode_id(fd), record);
        assert_eq!(seen.st_dev, task.device(expected.root));
        assert_eq!(seen.st_ino, u64::from(fixture.inode_id(fd).0));
        assert_eq!((seen.st_mode, seen.st_nlink), (expected.mode, u64::from(expected.nlink)));
        assert_eq!(
            (seen.st_uid, seen.st_gid, seen.st_rdev),
            (expected.uid, expected.gid, u64::from(expected.rdev))
        );
        assert_eq!((seen.st_size as u64, seen.st_blocks as u64), (expected.size, expected.blocks));
        assert_eq!((seen.st_blksize, seen.__pad0, seen.__unused), (4096, 0, [0; 3]));
        let time = |time: lp_vfs::Time| (time.sec as u64, u64::from(time.nsec));
        assert_eq!((seen.st_atime, seen.st_atime_nsec), time(expected.atime));
        assert_eq!((seen.st_mtime, seen.st_mtime_nsec), time(expected.mtime));
        assert_eq!((seen.st_ctime, seen.st_ctime_nsec), time(expected.ctime));
    }
    fixture.inode(fd).mode.store(S_IFREG | 0o600, relaxed);
}

/// Unlinks a file of `pages` that is open nowhere: too small to trigger a reclaim.
fn forgotten(fixture: &Fixture, pages: usize) {
    let task = &fixture.task;
    let path = lent::path(c"/light/forgotten");
    let Ok(Place::Inside(Opened::File(id))) = open::openat(task, Fd::CWD, path, O_RDWR | O_CREAT, 0o644)
    else {
        panic!("open");
    };
    let fd = task.table.lowest(0, 1024).expect("descriptor");
    table::install(task, fd, id, 0).expect("install");
    assert_eq!(put(fixture, fd, &vec![1; pages * P], 0), pages * P);
    close::close(task, fd).expect("close");
    unlink::unlink(task, Fd::CWD, path).expect("unlink");
}

#[test]
fn a_write_that_runs_out_of_pages_goes_on_after_a_reclaim() {
    for flags in [O_RDWR, O_RDWR | O_APPEND] {
        let fixture = Fixture::private(8 << 20);
        let (task, fd) = (&fixture.task, fixture.file(flags));
        put(&fixture, fd, b"first", 0);
        forgotten(&fixture, 50);
        let free = page::free_count(task.region) as usize;
        let bytes: Vec<u8> = (0..(free + 30) * P).map(|at| (at / 7) as u8).collect();
        let done = write::pwrite(task, fd, lent::bytes(&bytes), 5);
        assert_eq!(done, Ok(bytes.len()), "with flags {flags:x}");
        assert!(get(&fixture, fd, bytes.len(), 5) == bytes, "what was written");
        let seen = inode::attributes(&fixture.task, fixture.inode_id(fd), fixture.inode(fd));
        assert_eq!(seen.size as usize, 5 + bytes.len());
        assert_eq!(seen.blocks, map::count(task.region, fixture.inode(fd)) * 8);
        // If there is nothing to reclaim, the write is short.
        let more = write::pwrite(task, fd, lent::bytes(&bytes), seen.size as i64);
        assert!(more.is_ok_and(|done| done < bytes.len()));
    }
}

//! Open files and descriptors: opening, sharing, closing, reclaim.

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::lane::{UNLINKED, UNLINKED_NEAR};
use lp_region::records::{Inode, OpenFile};
use lp_region::slab::Slot;
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef};
use lp_vfs::open::Opened;
use lp_vfs::table::{FdTable, entry};
use lp_vfs::{Place, Task, close, dup, fcntl, fork, lseek, open, page, read, reap, reclaim, table, write};

mod setup;
use setup::Fixture;
use setup::lent;

fn c(path: &str) -> std::ffi::CString {
    std::ffi::CString::new(path).unwrap()
}

fn opened(task: &Task, path: &str, flags: u32, mode: u32) -> Result<Fd, Errno> {
    let path = c(path);
    let id = match open::openat(task, Fd::CWD, lent::path(&path), flags, mode)? {
        Place::Inside(Opened::File(id)) => id,
        other => panic!("{other:?}"),
    };
    let fd = task.table.lowest(0, 1024)?;
    table::install(task, fd, id, if flags & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 })?;
    Ok(fd)
}

fn unlink(task: &Task, path: &str) {
    let path = c(path);
    assert_eq!(lp_vfs::unlink::unlinkat(task, Fd::CWD, lent::path(&path), 0), Ok(Place::Inside(())));
}

fn inode_of(task: &Task, fd: Fd) -> InodeRef {
    task.fget_any(fd).unwrap().inode_ref()
}

fn is_free(task: &Task, inode: InodeRef) -> bool {
    task.region.inode(inode.id).generation.load(Ordering::Relaxed) != inode.generation
}

#[test]
fn open_makes_finds_and_refuses() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    assert_eq!(opened(task, "/light/f", O_RDWR, 0), Err(Errno::ENOENT));
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o666).unwrap();
    assert_eq!(fcntl::get_fl(task, fd), Ok(O_RDWR | O_LARGEFILE));
    assert_eq!(fcntl::get_fd(task, fd), Ok(FD_CLOEXEC));
    fcntl::set_fd(task, fd, 0).unwrap();
    assert_eq!(fcntl::get_fd(task, fd), Ok(0));
    fcntl::set_fl(task, fd, O_APPEND | O_CREAT).unwrap();
    assert_eq!(fcntl::get_fl(task, fd), Ok(O_RDWR | O_LARGEFILE | O_APPEND));
    assert_eq!(opened(task, "/light/f", O_RDWR | O_CREAT | O_EXCL, 0), Err(Errno::EEXIST));
    for (path, flags, error) in [
        ("/light/f/", O_RDWR | O_CREAT, Errno::EISDIR),
        ("/light/n/", O_RDWR | O_CREAT, Errno::EISDIR),
        ("/light/.", O_RDONLY | O_CREAT, Errno::EISDIR),
        ("/light", O_RDONLY | O_CREAT, Errno::EISDIR),
        ("/light", O_RDONLY | O_CREAT | O_EXCL, Errno::EEXIST),
        ("/light", O_RDWR, Errno::EISDIR),
        ("/light", O_RDONLY | O_TRUNC, Errno::EISDIR),
        ("/light/f", O_RDONLY | O_DIRECTORY, Errno::ENOTDIR),
        ("/light/f/", O_RDONLY, Errno::ENOTDIR),
        ("/light/f/x", O_RDONLY, Errno::ENOTDIR),
        ("/light/f", O_CREAT | O_DIRECTORY, Errno::EINVAL),
        ("/light", O_TMPFILE, Errno::EINVAL),
        ("/light/f", O_TMPFILE | O_RDWR, Errno::ENOTDIR),
        ("", O_RDONLY, Errno::ENOENT),
    ] {
        assert_eq!(opened(task, path, flags, 0o600), Err(error), "{path} {flags:o}");
    }
    let flags = [
        ("/light/f", 3 | O_DIRECT | O_SYNC | O_NOATIME, 0o5_150_003),
        ("/light/f", O_PATH | O_RDWR | O_CREAT, O_PATH),
        ("/light", O_TMPFILE | O_RDWR | O_EXCL, 0o20_300_002),
        ("/light", O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0o700_000),
    ];
    for (path, given, kept) in flags {
        let fd = opened(task, path, given, 0o600).unwrap();
        assert_eq!(fcntl::get_fl(task, fd), Ok(kept), "{path} {given:o}");
    }
    // Nothing stays pinned or in hand.
    assert!(task.lane.pins.iter().all(|pin| pin.load(Ordering::Relaxed) == 0));
    assert!(task.lane.taken.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
}

#[test]
fn truncating_open_empties_the_file() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap();
    assert_eq!(write::write(task, fd, lent::bytes(b"hello")), Ok(5));
    assert_eq!(lseek::lseek(task, fd, 0, SEEK_END), Ok(5));
    let other = opened(task, "/light/f", O_RDONLY | O_TRUNC, 0).unwrap();
    assert_eq!(lseek::lseek(task, other, 0, SEEK_END), Ok(0));
    assert_eq!(lseek::lseek(task, fd, -1, SEEK_SET), Err(Errno::EINVAL));
    assert_eq!(lseek::lseek(task, fd, i64::MAX, SEEK_CUR), Err(Errno::EINVAL));
    assert_eq!(lseek::lseek(task, fd, 0, 9), Err(Errno::EINVAL));
    assert_eq!(lseek::lseek(task, fd, 0, SEEK_CUR), Ok(5));
}

#[test]
fn an_unshared_file_is_freed_by_its_close() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let before = task.region.in_use::<OpenFile>();
    for _ in 0..1000 {
        let fd = opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap();
        close::close(task, fd).unwrap();
        assert_eq!(close::close(task, fd), Err(Errno::EBADF));
    }
    assert_eq!(task.region.in_use::<OpenFile>(), before);
    assert!(task.region.header().slabs[OpenFile::SLAB].last() < 40);
}

#[test]
fn a_duplicate_shares_position_and_life() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap();
    let id = dup::dup(task, fd).unwrap();
    dup::install(task, Fd::new(9), id, entry::CLOEXEC).unwrap();
    assert_eq!(write::write(task, fd, lent::bytes(b"hello")), Ok(5));
    assert_eq!(lseek::lseek(task, Fd::new(9), 0, SEEK_CUR), Ok(5));
    assert_eq!((fcntl::get_fd(task, fd), fcntl::get_fd(task, Fd::new(9))), (Ok(0), Ok(FD_CLOEXEC)));
    close::close(task, fd).unwrap();
    reclaim::run(task);
    assert_eq!(lseek::lseek(task, Fd::new(9), 1, SEEK_SET), Ok(1));
    let mut byte = [0];
    assert_eq!(read::read(task, Fd::new(9), lent::room(&mut byte)), Ok(1));
    assert_eq!(byte, *b"e");
    let before = task.region.in_use::<OpenFile>();
    close::close(task, Fd::new(9)).unwrap();
    reclaim::run(task);
    assert_eq!(task.region.in_use::<OpenFile>(), before - 1);
    assert_eq!(task.region.file(id).custody.get(), 0);
}

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap();
    let inode = inode_of(task, fd);
    assert_eq!(write::write(task, fd, lent::bytes(&[7u8; 5000])), Ok(5000));
    unlink(task, "/light/f");
    for _ in 0..3 {
        reclaim::run(task);
    }
    assert!(!is_free(task, inode));
    let mut bytes = [0u8; 10];
    assert_eq!(read::pread(task, fd, lent::room(&mut bytes[..10]), 4990), Ok(10));
    assert_eq!(bytes, [7; 10]);
    let free = page::free_count(task.region);
    close::close(task, fd).unwrap();
    reclaim::run(task);
    assert!(is_free(task, inode));
    assert!(page::free_count(task.region) >= free + 2);
}

/// Inodes in use that a lane may keep without names: those that it lists, and as many as its caches hold.
fn most_kept(task: &Task) -> u64 {
    task.lane.unlinked.room() as u64 + 100
}

#[test]
fn a_lane_that_unlinks_many_files_needs_fewer_sweeps_and_frees_a_few_at_a_time() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let create_and_unlink = || {
        close::close(task, opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap()).unwrap();
        unlink(task, "/light/f");
    };
    let list = &task.lane.unlinked;
    assert_eq!(list.room(), UNLINKED_NEAR);
    (0..100).for_each(|_| create_and_unlink());
    assert!(list.room() > UNLINKED_NEAR, "one sweep shows that it pays off");
    (0..10_000).for_each(|_| create_and_unlink());
    let widest = list.room();
    assert!(widest > 8 * UNLINKED_NEAR && widest < UNLINKED);
    // From here on it creates as many as it frees, and takes no slot from others.
    let (last, mut in_use) = (task.region.header().slabs[Inode::SLAB].last(), Vec::new());
    for _ in 0..2 * widest {
        create_and_unlink();
        in_use.push(task.region.in_use::<Inode>());
    }
    assert_eq!(task.region.header().slabs[Inode::SLAB].last(), last);
    let (least, most) = (in_use.iter().min().unwrap(), in_use.iter().max().unwrap());
    assert!(most - least <= 32, "{least} to {most}");
    reclaim::run(task);
    assert_eq!(task.region.in_use::<Inode>(), 1);
}

#[test]
fn an_open_file_stays_through_the_sweeps_of_a_lane_that_unlinks_many() {
    let fixture = Fixture::private(4 << 20);
    let task = &fixture.task;
    let open: Vec<Fd> = (0..20)
        .map(|number| {
            for _ in 0..500 {
                close::close(task, opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap()).unwrap();
                unlink(task, "/light/f");
            }
            let fd = opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap();
            unlink(task, "/light/f");
            assert_eq!(write::write(task, fd, lent::bytes(&[number; 10])), Ok(10));
            fd
        })
        .collect();
    for (number, fd) in open.iter().enumerate() {
        let mut bytes = [0u8; 10];
        assert_eq!(read::pread(task, *fd, lent::room(&mut bytes), 0), Ok(10));
        assert_eq!(bytes, [number as u8; 10]);
    }
    open.iter().for_each(|fd| close::close(task, *fd).unwrap());
    reclaim::run(task);
    assert_eq!(task.region.in_use::<Inode>(), 1);
}

#[test]
fn unlinked_files_do_not_pile_up() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    for round in 0..5000 {
        let path = format!("/light/f{round}");
        let fd = opened(task, &path, O_RDWR | O_CREAT, 0o600).unwrap();
        assert_eq!(write::write(task, fd, lent::bytes(&[7u8; 100])), Ok(100), "{round}");
        close::close(task, fd).unwrap();
        unlink(task, &path);
    }
    assert!(task.region.in_use::<Inode>() < most_kept(task), "{}", task.region.in_use::<Inode>());
    reclaim::run(task);
    assert_eq!(task.region.in_use::<Inode>(), 1);
}

#[test]
fn files_that_were_unlinked_while_open_do_not_pile_up() {
    let fixture = Fixture::private(4 << 20);
    let task = &fixture.task;
    for batch in 0..10 {
        let open: Vec<Fd> = (0..500)
            .map(|number| {
                let path = format!("/light/f{number}");
                let fd = opened(task, &path, O_RDWR | O_CREAT, 0o600).unwrap();
                assert_eq!(write::write(task, fd, lent::bytes(&[7u8; 100])), Ok(100), "{batch} {number}");
                unlink(task, &path);
                fd
            })
            .collect();
        open.iter().for_each(|fd| close::close(task, *fd).unwrap());
        let in_use = task.region.in_use::<Inode>();
        assert!(in_use < most_kept(task), "{batch}: {in_use}");
    }
    reclaim::run(task);
    assert_eq!(task.region.in_use::<Inode>(), 1);
}

#[test]
fn a_large_file_is_freed_at_its_last_close() {
    let fixture = Fixture::private(4 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap();
    let inode = inode_of(task, fd);
    assert_eq!(write::write(task, fd, lent::bytes(&[7u8; 300_000])), Ok(300_000));
    unlink(task, "/light/f");
    assert!(!is_free(task, inode));
    close::close(task, fd).unwrap();
    assert!(is_free(task, inode));
}

#[test]
fn a_nameless_file_is_freed_after_its_last_close() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light", O_TMPFILE | O_RDWR, 0o600).unwrap();
    let inode = inode_of(task, fd);
    reclaim::run(task);
    assert!(!is_free(task, inode));
    // Reopened through /proc/self/fd, it is still the same file.
    let Opened::File(id) = open::reopen(task, fd, O_RDONLY, 0).unwrap() else { panic!() };
    table::install(task, Fd::new(20), id, 0).unwrap();
    close::close(task, fd).unwrap();
    assert!(!is_free(task, inode));
    assert_eq!(inode_of(task, Fd::new(20)), inode);
    close::close(task, Fd::new(20)).unwrap();
    reclaim::run(task);
    assert!(is_free(task, inode));
}

#[test]
fn a_forked_table_keeps_files_until_both_are_done() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap();
    let inode = inode_of(task, fd);
    let child = fork::before(task).unwrap();
    assert_eq!(FdTable::of(task.region, child).load(fd), task.table.load(fd));
    unlink(task, "/light/f");
    close::close(task, fd).unwrap();
    reclaim::run(task);
    assert!(!is_free(task, inode));
    // The child was never created.
    fork::failed(task, child);
    reclaim::run(task);
    assert!(is_free(task, inode));
    assert_eq!(task.region.in_use::<OpenFile>(), 0);
}

#[test]
fn a_file_that_is_not_installed_leaves_nothing() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let path = c("/light/f");
    let before = task.region.in_use::<OpenFile>();
    for _ in 0..100 {
        let Place::Inside(Opened::File(id)) =
            open::openat(task, Fd::CWD, lent::path(&path), O_RDWR | O_CREAT, 0o600).unwrap()
        else {
            panic!()
        };
        lp_vfs::file::discard(task, id);
    }
    assert_eq!(task.region.in_use::<OpenFile>(), before);
}

#[test]
fn threads_pin_what_they_use() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap();
    let inode = inode_of(task, fd);
    unlink(task, "/light/f");
    lp_vfs::boot::before_thread(task);
    let held = task.fget(fd).unwrap();
    close::close(task, fd).unwrap();
    reclaim::run(task);
    assert!(!is_free(task, inode));
    drop(held);
    reclaim::run(task);
    assert!(is_free(task, inode));
    assert!(task.fget(fd).is_err());
}

#[test]
fn a_dead_process_gives_everything_back() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap();
    let inode = inode_of(task, fd);
    let child = fork::before(task).unwrap();
    unlink(task, "/light/f");
    close::close(task, fd).unwrap();
    let life = task.region.process(child).life.get();
    assert!(reap::bury_process(task, child, life));
    assert!(!reap::bury_process(task, child, life), "a verdict holds for one word of a slot");
    reclaim::run(task);
    assert!(is_free(task, inode));
    assert_eq!(task.region.in_use::<OpenFile>(), 0);
    assert_eq!(task.region.in_use::<Inode>(), 1);
    assert_eq!(InodeId(1), fixture.root());
}

#[test]
fn what_is_closed_in_between_keeps_no_inode_from_being_freed() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let before = task.region.in_use::<Inode>();
    for _ in 0..1000 {
        close::close(task, opened(task, "/light/f", O_RDWR | O_CREAT, 0o600).unwrap()).unwrap();
        unlink(task, "/light/f");
        // Closing a file without a name triggers a sweep for that file alone.
        let fd = opened(task, "/light/g", O_RDWR | O_CREAT, 0o600).unwrap();
        unlink(task, "/light/g");
        close::close(task, fd).unwrap();
    }
    let kept = task.region.in_use::<Inode>() - before;
    assert!(kept < most_kept(task), "{kept} of 2,000 inodes without names wait for a sweep");
}

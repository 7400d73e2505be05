//! copy_file_range, sendfile, splice and the pieces of mappings, compared with tmpfs and with what was
//! written.

mod setup;

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, PAGE_SIZE, UserPtr, syscall};
use lp_region::{Geometry, Region};
use lp_vfs::mapping::{self, MapAccess, Piece};
use lp_vfs::{copy, inode, lseek, page, read, truncate, version, write};
use setup::{Fixture, Random, lent};

/// A file without a name on tmpfs.
fn host_file() -> std::fs::File {
    // SAFETY: the path is NUL-terminated; the descriptor is new.
    unsafe {
        let fd =
            syscall!(__NR_open, c"/dev/shm".as_ptr(), O_TMPFILE | O_RDWR, 0o600).expect("a file on tmpfs");
        std::fs::File::from_raw_fd(fd as i32)
    }
}

fn put(fixture: &Fixture, fd: Fd, bytes: &[u8], at: i64) {
    assert_eq!(write::pwrite(&fixture.task, fd, lent::bytes(&bytes), at), Ok(bytes.len()));
}

fn content(fixture: &Fixture, fd: Fd) -> Vec<u8> {
    let mut bytes =
        vec![0; inode::attributes(&fixture.task, fixture.inode_id(fd), fixture.inode(fd)).size as usize];
    let got = read::pread(&fixture.task, fd, lent::room(&mut bytes), 0);
    assert_eq!(got, Ok(bytes.len()));
    bytes
}

fn host_content(file: &std::fs::File) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 21];
    // SAFETY: the buffer has the given size.
    let got = unsafe { syscall!(__NR_pread64, file.as_raw_fd(), bytes.as_mut_ptr(), bytes.len(), 0) };
    bytes.truncate(got.expect("pread"));
    bytes
}

#[test]
fn random_copies_agree_with_tmpfs() {
    let fixture = Fixture::private(32 << 20);
    let task = &fixture.task;
    let (ours, host) = ([fixture.file(O_RDWR), fixture.file(O_RDWR)], [host_file(), host_file()]);
    let mut random = Random(3);
    let data: Vec<u8> = (1..=251).cycle().take(90_000).collect();
    for step in 0..800 {
        let (from, to) = (random.below(2), random.below(2));
        let (mut off_in, mut off_out) = (random.below(150_000) as i64, random.below(150_000) as i64);
        let (mut host_in, mut host_out) = (off_in, off_out);
        let len = random.below(60_000);
        let (fd_in, fd_out) = (host[from].as_raw_fd(), host[to].as_raw_fd());
        match random.below(5) {
            0 => {
                put(&fixture, ours[to], &data[..len + 1], off_out);
                // SAFETY: the buffer has the given size.
                unsafe { syscall!(__NR_pwrite64, fd_out, data.as_ptr(), len + 1, off_out) }.expect("pwrite");
            }
            1 => {
                truncate::ftruncate(task, ours[to], off_out).expect("ftruncate");
                host[to].set_len(off_out as u64).expect("ftruncate");
            }
            2 => {
                // The target's position moves, the source's does not.
                lseek::lseek(task, ours[to], off_out, SEEK_SET).expect("lseek");
                // SAFETY: lseek(2) takes no pointers.
                unsafe { syscall!(__NR_lseek, fd_out, off_out, SEEK_SET) }.expect("lseek");
                let got = copy::sendfile(task, ours[to], ours[from], lent::value(&mut off_in), len);
                // SAFETY: the offset outlives the call.
                let expected = unsafe { syscall!(__NR_sendfile, fd_out, fd_in, &raw mut host_in, len) };
                // A file sent into itself overtakes itself, in steps of different sizes.
                if from != to {
                    assert_eq!((got, off_in), (expected, host_in), "step {step}");
                }
            }
            _ => {
                let flags = u32::from(random.below(20) == 0);
                let (a, b) = (lent::value(&mut off_in), lent::value(&mut off_out));
                let got = copy::copy_file_range(task, ours[from], a, ours[to], b, len, flags);
                let (a, b) = (lent::value(&mut host_in), lent::value(&mut host_out));
                // SAFETY: the offsets outlive the call.
                let expected = unsafe { syscall!(__NR_copy_file_range, fd_in, a, fd_out, b, len, flags) };
                assert_eq!((got, off_in, off_out), (expected, host_in, host_out), "step {step}");
            }
        }
        if from == to && content(&fixture, ours[to]) != host_content(&host[to]) {
            let same = host_content(&host[to]);
            truncate::ftruncate(task, ours[to], 0).expect("ftruncate");
            put(&fixture, ours[to], &same, 0);
        }
        assert!(content(&fixture, ours[to]) == host_content(&host[to]), "step {step}");
    }
}

fn pipe() -> (std::fs::File, std::fs::File) {
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two descriptors, which are new.
    unsafe {
        syscall!(__NR_pipe2, ends.as_mut_ptr(), 0).expect("pipe");
        (std::fs::File::from_raw_fd(ends[0]), std::fs::File::from_raw_fd(ends[1]))
    }
}

#[test]
fn content_goes_through_pipes_and_back() {
    let fixture = Fixture::private(32 << 20);
    let task = &fixture.task;
    let (from, to) = (fixture.file(O_RDWR), fixture.file(O_RDWR));
    put(&fixture, from, &[7; 10_000], 50_000);
    let (mut end, start) = pipe();
    let (input, output) = (Fd::new(end.as_raw_fd()), Fd::new(start.as_raw_fd()));
    let none = UserPtr::NULL;
    let mut at = 45_000i64;
    let fitted = copy::splice(task, from, lent::value(&mut at), output, none, 1 << 20, 0);
    assert_eq!((fitted, at), (Ok(15_000), 60_000), "what there is");
    assert_eq!(copy::splice(task, input, none, to, none, 1 << 20, 0), Ok(15_000));
    assert_eq!(content(&fixture, to), content(&fixture, from)[45_000..]);
    assert_eq!(lseek::lseek(task, to, 0, SEEK_CUR), Ok(15_000));
    // The pipe is empty, and the flag says not to wait.
    assert_eq!(copy::splice(task, input, none, to, none, 10, SPLICE_F_NONBLOCK), Err(Errno::EAGAIN));
    put(&fixture, from, &vec![8; 300_000], 0);
    at = 0;
    assert_eq!(
        copy::splice(task, from, lent::value(&mut at), output, none, 1 << 20, 0),
        Ok(65_536),
        "what the pipe holds"
    );
    assert_eq!(
        copy::splice(task, from, lent::value(&mut at), output, none, 10, SPLICE_F_NONBLOCK),
        Err(Errno::EAGAIN)
    );
    let mut got = vec![0; 65_536];
    end.read_exact(&mut got).expect("read");
    assert!(got.iter().all(|byte| *byte == 8));
    assert_eq!(copy::sendfile(task, output, from, none, 100), Ok(100), "to a descriptor of the kernel's");
    assert_eq!(copy::splice(task, from, none, to, none, 10, 0), Err(Errno::EINVAL), "no pipe");
    assert_eq!(copy::splice(task, from, none, output, lent::value(&mut at), 10, 0), Err(Errno::ESPIPE));
}

#[test]
fn files_of_the_host_are_received() {
    let fixture = Fixture::private(32 << 20);
    let task = &fixture.task;
    let (fd, host) = (fixture.file(O_RDWR), host_file());
    let bytes: Vec<u8> = (0..100_000u32).map(|at| (at / 7) as u8).collect();
    // SAFETY: the buffer has the given size.
    unsafe { syscall!(__NR_pwrite64, host.as_raw_fd(), bytes.as_ptr(), bytes.len(), 0) }.expect("pwrite");
    assert_eq!(copy::sendfile(task, fd, Fd::new(host.as_raw_fd()), UserPtr::NULL, 1 << 20), Ok(100_000));
    assert!(content(&fixture, fd) == bytes);
    let mut at = 99_990;
    assert_eq!(copy::sendfile(task, fd, Fd::new(host.as_raw_fd()), lent::value(&mut at), 1 << 20), Ok(10));
    assert_eq!(at, 100_000);
}

/// A region in a file, which mappings need.
fn in_a_file() -> Fixture {
    // SAFETY: the name is NUL-terminated.
    let memory = unsafe { syscall!(__NR_memfd_create, c"copies".as_ptr(), 0) }.expect("memfd") as i32;
    let memory = lp_region::life_file::beside(Fd::new(memory)).expect("life");
    let geometry = Geometry { data_bytes: 32 << 20, inodes: 1000, identity: 9 };
    Fixture::on(Region::create(memory, &geometry).expect("region"))
}

#[test]
fn mapped_pages_stay_while_they_are_mapped() {
    let fixture = in_a_file();
    let (task, fd) = (&fixture.task, fixture.file(O_RDWR));
    put(&fixture, fd, &[5; 2 * PAGE_SIZE], 10 * PAGE_SIZE as i64);
    let of = mapping::begin(task, fd, 0, 64 * PAGE_SIZE, MapAccess::SharedWrite).expect("mapping");
    let pieces = || {
        let mut pieces: Vec<Piece> = Vec::new();
        let end = mapping::pieces(task, of, 0, 64 * PAGE_SIZE, u64::MAX, &mut |piece| {
            pieces.push(piece);
            Ok(())
        });
        assert_eq!(end, Ok(12 * PAGE_SIZE as u64), "to the end of the file");
        pieces
    };
    let before = pieces();
    assert_eq!(before.iter().map(|piece| piece.bytes).sum::<usize>(), 12 * PAGE_SIZE);
    // Truncated and grown again, the file keeps its pages, which hold zeros.
    truncate::ftruncate(task, fd, 0).expect("ftruncate");
    truncate::ftruncate(task, fd, 12 * PAGE_SIZE as i64).expect("ftruncate");
    assert_eq!(pieces(), before);
    assert!(content(&fixture, fd).iter().all(|byte| *byte == 0));
    truncate::ftruncate(task, fd, 100).expect("ftruncate");
    let held = page::free_count(task.region);
    mapping::end(task, of, 60 * PAGE_SIZE);
    assert_eq!(page::free_count(task.region), held, "a part is mapped still");
    mapping::end(task, of, 4 * PAGE_SIZE);
    assert_eq!(
        page::free_count(task.region),
        held + 11,
        "what lies behind the end goes with the last mapping"
    );
    truncate::ftruncate(task, fd, 0).expect("ftruncate");
}

#[test]
fn a_mapping_makes_another_version_of_the_content() {
    let fixture = in_a_file();
    let (task, fd) = (&fixture.task, fixture.file(O_RDWR));
    put(&fixture, fd, &[5; PAGE_SIZE], 0);
    let of = |of| version::of(task, of);
    let map = || mapping::begin(task, fd, 0, PAGE_SIZE, MapAccess::SharedWrite).expect("mapping");
    let file = map();
    assert_eq!(of(file), None, "it may change without a trace");
    mapping::end(task, file, PAGE_SIZE);
    let before = of(file).expect("a version");
    assert_eq!(of(file), Some(before), "nothing has happened");
    map();
    // What is written through the mapping changes neither the size nor, within a tick of the clock, the time.
    mapping::end(task, file, PAGE_SIZE);
    assert_ne!(of(file), Some(before));
}

#[test]
fn a_file_that_is_written_in_sequence_lies_in_few_pieces() {
    const MIB: usize = 1 << 20;
    let fixture = Fixture::private(128 * MIB);
    let (task, fd) = (&fixture.task, fixture.file(O_RDWR));
    let free = || page::free_count(task.region);
    let at_start = free();
    for at in 0..80 {
        put(&fixture, fd, &vec![at as u8 + 1; MIB], (at * MIB) as i64);
    }
    let (mut parts, mut end) = (0, None);
    let of = task.fget(fd).expect("open").inode_ref();
    mapping::pieces(task, of, 0, 80 * MIB, 0, &mut |piece| {
        let start = piece.region.expect("no hole");
        parts += usize::from(end != Some(start));
        end = Some(start + piece.bytes);
        Ok(())
    })
    .expect("pieces");
    // 20 map pages: behind the first part one, then one, two, four, eight and sixteen.
    assert!(parts <= 7, "{parts} parts");
    let content = at_start - free();
    assert!(content <= 80 * 256 + 40, "{content} pages");
    truncate::ftruncate(task, fd, 17 * MIB as i64).expect("ftruncate");
    assert_eq!(read_byte(&fixture, fd, 17 * MIB - 1), 17);
    assert_eq!(at_start - free(), 17 * 256 + 6, "the content, five map pages and the root");
    truncate::ftruncate(task, fd, 0).expect("ftruncate");
    assert_eq!(free(), at_start);
    // A file with holes gets no map pages that it does not need.
    for part in 0..20 {
        put(&fixture, fd, b"x", part * 4 * MIB as i64);
    }
    assert_eq!(at_start - free(), 20 + 20 + 1);
}

fn read_byte(fixture: &Fixture, fd: Fd, at: usize) -> u8 {
    let mut byte = [0];
    assert_eq!(read::pread(&fixture.task, fd, lent::room(&mut byte), at as i64), Ok(1));
    byte[0]
}

//! Every call that changes something, killed on its way.
//!
//! `LIGHTPATH_KILLS=N` sets about how many places each call is killed at; `all` is every instruction.

use lp_abi::linux::{
    AT_FDCWD, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, LOCK_EX, LOCK_UN, O_APPEND, O_CREAT, O_RDWR,
    O_TRUNC, O_WRONLY, RENAME_EXCHANGE,
};
use lp_abi::{Errno, Result};
use lp_crash::case::{Case, all_or_nothing, content_may_be_torn, nothing};
use lp_crash::sandbox::{inside, mkdir, open, path, put};
use lp_vfs::Task;
use lp_vfs::link::Two;

const LONG: &str = "/light/a-name-that-is-too-long-to-stand-in-the-directory-entry-itself";

fn kill(case: &Case) {
    match std::env::var("LIGHTPATH_KILLS").as_deref() {
        Ok("all") => case.kill_at_every(1),
        Ok(points) => case.kill_at_some(points.parse().expect("a number or `all`")),
        Err(_) => case.kill_at_some(25),
    }
}

fn world(task: &Task<'static>) -> Result<()> {
    mkdir(task, "/light/dir")?;
    mkdir(task, "/light/dir/sub")?;
    mkdir(task, "/light/other")?;
    put(task, "/light/file", b"one page")?;
    put(task, "/light/dir/target", b"to be replaced")?;
    put(task, LONG, &[7; 10_000])
}

fn call(call: &dyn Fn(&Task<'static>) -> Result<()>) {
    kill(&Case { world: &world, before: &nothing, call, allows: all_or_nothing });
}

fn two(two: Two) -> Result<()> {
    match two {
        Two::Done => Ok(()),
        _ => Err(Errno::EXDEV),
    }
}

fn rename(task: &Task<'static>, from: &std::ffi::CString, to: &std::ffi::CString, flags: u32) -> Result<()> {
    two(lp_vfs::rename::renameat2(task, AT_FDCWD, from.as_ptr().cast(), AT_FDCWD, to.as_ptr().cast(), flags)?)
}

fn unlink(name: &str) {
    let name = path(name);
    call(&|task| inside(lp_vfs::unlink::unlinkat(task, AT_FDCWD, name.as_ptr().cast(), 0)));
}

fn rename_case(from: &str, to: &str, flags: u32) {
    let (from, to) = (path(from), path(to));
    call(&|task| rename(task, &from, &to, flags));
}

#[test]
fn create() {
    let name = path("/light/dir/new");
    call(&|task| open(task, &name, O_CREAT | O_RDWR).map(drop));
}

#[test]
fn create_with_a_long_name() {
    let name = path(&format!("{LONG}-2"));
    call(&|task| open(task, &name, O_CREAT | O_RDWR).map(drop));
}

#[test]
fn make_a_directory() {
    let name = path("/light/dir/new");
    call(&|task| inside(lp_vfs::mkdir::mkdirat(task, AT_FDCWD, name.as_ptr().cast(), 0o755)));
}

#[test]
fn make_a_symbolic_link() {
    let (name, target) = (path("/light/dir/link"), path(&"long/".repeat(60)));
    call(&|task| {
        inside(lp_vfs::symlink::symlinkat(task, target.as_ptr().cast(), AT_FDCWD, name.as_ptr().cast()))
    });
}

#[test]
fn make_a_hard_link() {
    let (from, to) = (path("/light/file"), path("/light/dir/again"));
    call(&|task| {
        two(lp_vfs::link::linkat(task, AT_FDCWD, from.as_ptr().cast(), AT_FDCWD, to.as_ptr().cast(), 0)?)
    });
}

#[test]
fn unlink_the_last_link() {
    unlink("/light/file");
}

#[test]
fn unlink_a_large_file_with_a_long_name() {
    unlink(LONG);
}

#[test]
fn unlink_an_open_file() {
    let name = path("/light/file");
    kill(&Case {
        world: &world,
        before: &|task| open(task, &name, O_RDWR).map(drop),
        call: &|task| inside(lp_vfs::unlink::unlinkat(task, AT_FDCWD, name.as_ptr().cast(), 0)),
        allows: all_or_nothing,
    });
}

#[test]
fn remove_a_directory() {
    let name = path("/light/dir/sub");
    call(&|task| inside(lp_vfs::unlink::rmdir(task, AT_FDCWD, name.as_ptr().cast())));
}

#[test]
fn rename_to_a_new_name() {
    rename_case("/light/file", "/light/dir/moved", 0);
}

#[test]
fn rename_over_a_file() {
    rename_case(LONG, "/light/dir/target", 0);
}

#[test]
fn rename_a_directory_to_another() {
    rename_case("/light/dir/sub", "/light/other/sub", 0);
}

#[test]
fn rename_a_directory_over_an_empty_one() {
    rename_case("/light/dir/sub", "/light/other", 0);
}

#[test]
fn exchange_a_file_and_a_directory() {
    rename_case("/light/file", "/light/dir/sub", RENAME_EXCHANGE);
}

fn on_file(flags: u32, work: &dyn Fn(&Task<'static>) -> Result<()>) {
    let name = path(LONG);
    kill(&Case {
        world: &world,
        before: &|task| {
            let fd = open(task, &name, flags)?;
            if fd == 0 { Ok(()) } else { Err(Errno::EBADF) }
        },
        call: work,
        allows: content_may_be_torn,
    });
}

#[test]
fn write_within_a_page() {
    on_file(O_RDWR, &|task| lp_vfs::write::pwrite(task, 0, [9u8; 100].as_ptr(), 100, 50).map(drop));
}

#[test]
fn append_pages() {
    static BYTES: [u8; 20_000] = [9; 20_000];
    on_file(O_WRONLY | O_APPEND, &|task| {
        lp_vfs::write::write(task, 0, BYTES.as_ptr(), BYTES.len()).map(drop)
    });
}

#[test]
fn write_far_behind_the_end() {
    on_file(O_RDWR, &|task| lp_vfs::write::pwrite(task, 0, [9u8; 100].as_ptr(), 100, 50 << 20).map(drop));
}

#[test]
fn shrink() {
    on_file(O_RDWR, &|task| lp_vfs::truncate::ftruncate(task, 0, 5_000));
}

#[test]
fn grow() {
    on_file(O_RDWR, &|task| lp_vfs::truncate::ftruncate(task, 0, 100_000));
}

#[test]
fn reserve() {
    on_file(O_RDWR, &|task| lp_vfs::fallocate::fallocate(task, 0, 0, 0, 100_000));
}

#[test]
fn punch_a_hole() {
    let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    on_file(O_RDWR, &|task| lp_vfs::fallocate::fallocate(task, 0, mode, 1_000, 7_000));
}

#[test]
fn open_and_truncate() {
    let name = path(LONG);
    kill(&Case {
        world: &world,
        before: &nothing,
        call: &|task| open(task, &name, O_RDWR | O_TRUNC).map(drop),
        allows: content_may_be_torn,
    });
}

#[test]
fn open_duplicate_and_close() {
    let name = path("/light/file");
    call(&|task| {
        let fd = open(task, &name, O_RDWR)?;
        let id = lp_vfs::dup::dup(task, fd)?;
        lp_vfs::table::install(task, 5, id, 0)?;
        lp_vfs::close::close(task, fd)?;
        lp_vfs::close::close(task, 5)
    });
}

#[test]
fn lock_and_unlock() {
    let name = path("/light/file");
    kill(&Case {
        world: &world,
        before: &|task| open(task, &name, O_RDWR).map(drop),
        call: &|task| {
            lp_vfs::flock::flock(task, 0, LOCK_EX)?;
            lp_vfs::flock::flock(task, 0, LOCK_UN)
        },
        allows: all_or_nothing,
    });
}

#[test]
fn create_enough_to_split_buckets() {
    let names: Vec<_> = (0..40).map(|n| path(&format!("/light/dir/name-{n}"))).collect();
    kill(&Case {
        world: &world,
        before: &nothing,
        call: &|task| {
            names.iter().try_for_each(|name| {
                let fd = open(task, name, O_CREAT | O_RDWR)?;
                lp_vfs::close::close(task, fd)
            })
        },
        // Each create by itself is all or nothing.
        allows: |found, before, after| {
            before.keys().all(|name| found.contains_key(name))
                && found.keys().all(|name| after.contains_key(name))
        },
    });
}

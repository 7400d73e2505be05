//! The library door: calls answer as the manual pages say, and tasks on several threads share one file
//! system.

use std::ffi::OsString;
use std::path::Path;

use lightpath::linux::{
    LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC,
    O_WRONLY, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, SEEK_CUR, SEEK_END, SEEK_SET,
};
use lightpath::{Errno, Fd, Fs};

fn fs() -> Fs {
    Fs::new(16 << 20).unwrap()
}

#[test]
fn what_is_written_is_read() {
    let fs = fs();
    let task = fs.task().unwrap();
    let fd = task.open("/file", O_CREAT | O_EXCL | O_RDWR, 0o600).unwrap();
    assert_eq!(task.write(fd, b"hello, world"), Ok(12));
    assert_eq!(task.lseek(fd, 7, SEEK_SET), Ok(7));
    let mut buffer = [0; 16];
    assert_eq!(task.read(fd, &mut buffer), Ok(5));
    assert_eq!(&buffer[..5], b"world");
    assert_eq!(task.read(fd, &mut buffer), Ok(0));
    assert_eq!(task.pwrite(fd, b"J", 0), Ok(1));
    assert_eq!(task.pread(fd, &mut buffer[..5], 0), Ok(5));
    assert_eq!(&buffer[..5], b"Jello");
    assert_eq!(task.lseek(fd, 0, SEEK_CUR), Ok(12));
    assert_eq!(task.lseek(fd, 10, SEEK_END), Ok(22));
    assert_eq!(task.fstat(fd).unwrap().st_size, 12);
    assert_eq!(task.close(fd), Ok(()));
    assert_eq!(task.read(fd, &mut buffer), Err(Errno::EBADF));
}

#[test]
fn ranges_are_copied() {
    let fs = fs();
    let task = fs.task().unwrap();
    let open = |path| task.open(path, O_CREAT | O_RDWR, 0o600).unwrap();
    let (from, to) = (open("/from"), open("/to"));
    task.write(from, b"0123456789").unwrap();
    let (mut at, mut into) = (2, 5);
    assert_eq!(task.copy_file_range(from, Some(&mut at), to, Some(&mut into), 4), Ok(4));
    assert_eq!((at, into), (6, 9));
    assert_eq!(task.lseek(from, 0, SEEK_SET), Ok(0));
    assert_eq!(task.copy_file_range(from, None, to, None, 100), Ok(10));
    let mut buffer = [0; 16];
    assert_eq!(task.pread(to, &mut buffer, 0), Ok(10));
    assert_eq!(&buffer[..10], b"0123456789");
}

#[test]
fn locks_stand_between_open_files() {
    let fs = fs();
    let (task, other) = (fs.task().unwrap(), fs.task().unwrap());
    let mine = task.open("/file", O_CREAT | O_RDWR, 0o600).unwrap();
    let theirs = other.open("/file", O_RDWR, 0).unwrap();
    task.flock(mine, LOCK_EX).unwrap();
    assert_eq!(other.flock(theirs, LOCK_SH | LOCK_NB), Err(Errno::EAGAIN));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            task.flock(mine, LOCK_UN).unwrap();
        });
        assert_eq!(other.flock(theirs, LOCK_EX), Ok(()));
    });
}

#[test]
fn descriptors_are_the_lowest_free_numbers() {
    let fs = fs();
    let task = fs.task().unwrap();
    let open = || task.open("/file", O_CREAT | O_RDWR, 0o600).unwrap();
    assert_eq!([open(), open(), open()], [Fd::new(0), Fd::new(1), Fd::new(2)]);
    task.close(Fd::new(1)).unwrap();
    assert_eq!(task.dup(Fd::new(2)), Ok(Fd::new(1)));
    assert_eq!(open(), Fd::new(3));
    assert_eq!(task.dup2(Fd::new(0), Fd::new(9)), Ok(Fd::new(9)));
    assert_eq!(task.dup2(Fd::new(0), Fd::new(0)), Ok(Fd::new(0)));
    assert_eq!(task.dup(Fd::new(8)), Err(Errno::EBADF));
    // A duplicate shares the position.
    task.write(Fd::new(0), b"abc").unwrap();
    assert_eq!(task.lseek(Fd::new(9), 0, SEEK_CUR), Ok(3));
    assert_eq!(task.lseek(Fd::new(3), 0, SEEK_CUR), Ok(0));
}

#[test]
fn open_has_its_errors_and_flags() {
    let fs = fs();
    let task = fs.task().unwrap();
    assert_eq!(task.open("/none", O_RDONLY, 0), Err(Errno::ENOENT));
    assert_eq!(task.open("/none/file", O_CREAT | O_RDWR, 0o600), Err(Errno::ENOENT));
    assert_eq!(task.open("", O_RDONLY, 0), Err(Errno::ENOENT));
    assert_eq!(task.open("nul\0name", O_RDONLY, 0), Err(Errno::ENOENT));
    assert_eq!(task.open("x".repeat(256), O_CREAT | O_RDWR, 0o600), Err(Errno::ENAMETOOLONG));
    assert_eq!(task.open("x/".repeat(2048), O_RDONLY, 0), Err(Errno::ENAMETOOLONG));
    assert_eq!(task.open("/", O_WRONLY, 0), Err(Errno::EISDIR));
    let fd = task.open("/file", O_CREAT | O_WRONLY, 0o640).unwrap();
    assert_eq!(task.open("/file", O_CREAT | O_EXCL | O_WRONLY, 0o640), Err(Errno::EEXIST));
    assert_eq!(task.open("/file", O_RDONLY | O_DIRECTORY, 0), Err(Errno::ENOTDIR));
    assert_eq!(task.open("/file/", O_RDONLY, 0), Err(Errno::ENOTDIR));
    assert_eq!(task.read(fd, &mut [0]), Err(Errno::EBADF));
    task.write(fd, b"one").unwrap();
    let end = task.open("/file", O_WRONLY | O_APPEND, 0).unwrap();
    task.write(end, b"two").unwrap();
    assert_eq!(task.stat("/file").unwrap().st_size, 6);
    task.close(task.open("/file", O_WRONLY | O_TRUNC, 0).unwrap()).unwrap();
    assert_eq!(task.stat("/file").unwrap().st_size, 0);
    assert_eq!(task.flags(end).unwrap() & O_APPEND, O_APPEND);
    task.set_flags(end, 0).unwrap();
    assert_eq!(task.flags(end).unwrap() & O_APPEND, 0);
}

#[test]
fn directories_and_links_lead_where_they_say() {
    let fs = fs();
    let task = fs.task().unwrap();
    task.mkdir("/a", 0o755).unwrap();
    task.mkdir("a/b", 0o700).unwrap();
    assert_eq!(task.mkdir("/a", 0o755), Err(Errno::EEXIST));
    assert_eq!(task.stat("/a/b").unwrap().st_mode & S_IFMT, S_IFDIR);
    assert_eq!(task.stat("/a").unwrap().st_nlink, 3);
    task.symlink("b/../../../file", "/a/link").unwrap();
    task.symlink("/a/link", "/absolute").unwrap();
    let fd = task.open("/absolute", O_CREAT | O_WRONLY, 0o600).unwrap();
    task.write(fd, b"12345").unwrap();
    assert_eq!(task.stat("/file").unwrap().st_size, 5);
    assert_eq!(task.lstat("/absolute").unwrap().st_mode & S_IFMT, S_IFLNK);
    // Nothing is above the root.
    assert_eq!(task.stat("/../../file").unwrap().st_ino, task.stat("file").unwrap().st_ino);
    let dir = task.open("/a", O_RDONLY | O_DIRECTORY, 0).unwrap();
    task.mkdirat(dir, "c", 0o755).unwrap();
    assert_eq!(task.stat("/a/c").unwrap().st_mode & S_IFMT, S_IFDIR);
    task.symlink("/loop", "/loop").unwrap();
    assert_eq!(task.stat("/loop").unwrap_err(), Errno::ELOOP);
}

#[test]
fn names_come_and_go() {
    let fs = fs();
    let task = fs.task().unwrap();
    task.mkdir("/dir", 0o755).unwrap();
    for name in ["one", "two", "three"] {
        task.close(task.open(format!("/dir/{name}"), O_CREAT | O_WRONLY, 0o600).unwrap()).unwrap();
    }
    task.link("/dir/one", "/dir/first").unwrap();
    assert_eq!(task.stat("/dir/one").unwrap().st_nlink, 2);
    task.rename("/dir/two", "/dir/second").unwrap();
    task.rename("/dir/three", "/dir/second").unwrap();
    task.symlink("second", "/dir/link").unwrap();
    assert_eq!(task.readlink("/dir/link").unwrap(), Path::new("second"));
    assert_eq!(task.readlink("/dir/one"), Err(Errno::EINVAL));
    task.unlink("/dir/one").unwrap();
    assert_eq!(task.unlink("/dir/one"), Err(Errno::ENOENT));
    assert_eq!(task.unlink("/dir"), Err(Errno::EISDIR));
    assert_eq!(task.rmdir("/dir"), Err(Errno::ENOTEMPTY));
    let dir = task.open("/dir", O_RDONLY | O_DIRECTORY, 0).unwrap();
    let mut names: Vec<_> =
        task.entries(dir).unwrap().into_iter().map(|entry| (entry.name, entry.kind)).collect();
    names.sort();
    let expected = [(".", 4), ("..", 4), ("first", 8), ("link", 10), ("second", 8)];
    assert_eq!(names, expected.map(|(name, kind)| (OsString::from(name), kind)));
    assert_eq!(task.entries(dir), Ok(vec![]));
    task.lseek(dir, 0, SEEK_SET).unwrap();
    assert_eq!(task.entries(dir).unwrap().len(), 5);
    for name in ["first", "link", "second"] {
        task.unlinkat(dir, name, 0).unwrap();
    }
    task.rmdir("/dir").unwrap();
    assert_eq!(task.entries(dir), Err(Errno::ENOENT));
}

#[test]
fn the_working_directory_is_the_tasks_own() {
    let fs = fs();
    let (task, other) = (fs.task().unwrap(), fs.task().unwrap());
    task.mkdir("/a", 0o755).unwrap();
    task.mkdir("/a/b", 0o755).unwrap();
    assert_eq!(task.getcwd().unwrap(), Path::new("/"));
    task.chdir("a/b").unwrap();
    assert_eq!(task.getcwd().unwrap(), Path::new("/a/b"));
    assert_eq!(other.getcwd().unwrap(), Path::new("/"));
    task.access("../b", 7).unwrap();
    other.rename("/a", "/c").unwrap();
    assert_eq!(task.getcwd().unwrap(), Path::new("/c/b"));
    let dir = task.open("..", O_RDONLY | O_DIRECTORY, 0).unwrap();
    task.fchdir(dir).unwrap();
    assert_eq!(task.getcwd().unwrap(), Path::new("/c"));
    assert_eq!(task.chdir("/none"), Err(Errno::ENOENT));
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let fs = fs();
    let task = fs.task().unwrap();
    let free = || task.statfs("/").unwrap().f_bfree;
    // The directory takes a page for its first entry.
    task.mknod("/other", S_IFREG | 0o600, 0).unwrap();
    let before = free();
    let fd = task.open("/file", O_CREAT | O_RDWR, 0o600).unwrap();
    task.write(fd, &[1; 1 << 20]).unwrap();
    task.unlink("/file").unwrap();
    assert_eq!(task.fstat(fd).unwrap().st_nlink, 0);
    assert_eq!(task.pread(fd, &mut [0; 16], 1000), Ok(16));
    task.close(fd).unwrap();
    assert_eq!(free(), before);
}

#[test]
fn attributes_are_what_was_set() {
    let fs = fs();
    let task = fs.task().unwrap();
    task.umask(0o027);
    assert_eq!(task.umask(0o027), 0o027);
    let fd = task.open("/file", O_CREAT | O_RDWR, 0o777).unwrap();
    assert_eq!(task.fstat(fd).unwrap().st_mode & 0o7777, 0o750);
    task.chmod("/file", 0o604).unwrap();
    assert_eq!(task.stat("/file").unwrap().st_mode & 0o7777, 0o604);
    task.fchmod(fd, 0o4711).unwrap();
    assert_eq!(task.fstat(fd).unwrap().st_mode & 0o7777, 0o4711);
    task.utimensat("/file", Some([(1, 2), (3, 4)]), 0).unwrap();
    let stat = task.stat("/file").unwrap();
    assert_eq!((stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec), (1, 2, 3, 4));
    task.ftruncate(fd, 100_000).unwrap();
    assert_eq!((task.fstat(fd).unwrap().st_size, task.fstat(fd).unwrap().st_blocks), (100_000, 0));
    task.fallocate(fd, 0, 0, 8192).unwrap();
    assert_eq!(task.fstat(fd).unwrap().st_blocks, 16);
    task.truncate("/file", 10).unwrap();
    assert_eq!((task.fstat(fd).unwrap().st_size, task.fstat(fd).unwrap().st_blocks), (10, 8));
    assert_eq!(task.fsync(fd), Ok(()));
    assert_eq!(task.fsync(Fd::new(77)), Err(Errno::EBADF));
}

#[test]
fn extended_attributes_are_kept() {
    let fs = fs();
    let task = fs.task().unwrap();
    task.mknod("/file", S_IFREG | 0o600, 0).unwrap();
    assert_eq!(task.getxattr("/file", "user.one"), Err(Errno::ENODATA));
    task.setxattr("/file", "user.one", b"first", 0).unwrap();
    task.setxattr("/file", "user.two", &[7; 3000], 0).unwrap();
    task.setxattr("/file", "user.one", b"second", 0).unwrap();
    assert_eq!(task.getxattr("/file", "user.one").unwrap(), b"second");
    assert_eq!(task.getxattr("/file", "user.two").unwrap(), [7; 3000]);
    let mut names = task.listxattr("/file").unwrap();
    names.sort();
    assert_eq!(names, ["user.one", "user.two"]);
    task.removexattr("/file", "user.one").unwrap();
    assert_eq!(task.listxattr("/file").unwrap(), ["user.two"]);
}

#[test]
fn the_limit_is_the_limit() {
    let fs = Fs::new(1 << 20).unwrap();
    let task = fs.task().unwrap();
    let fd = task.open("/file", O_CREAT | O_RDWR, 0o600).unwrap();
    let mut written = 0;
    let ended = loop {
        match task.write(fd, &[7; 10_000]) {
            Ok(bytes) => written += bytes,
            Err(errno) => break errno,
        }
    };
    assert_eq!(ended, Errno::ENOSPC);
    assert!(written > 900_000 && written <= 1 << 20, "{written}");
    assert_eq!(task.fstat(fd).unwrap().st_size as usize, written);
    let usage = task.statfs("/").unwrap();
    assert_eq!((usage.f_blocks, usage.f_bsize), (256, 4096));
    task.ftruncate(fd, 0).unwrap();
    assert_eq!(task.pwrite(fd, b"again", 0), Ok(5));
}

#[test]
fn tasks_on_threads_see_each_others_files() {
    let fs = fs();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                let task = fs.task().unwrap();
                for round in 0..200 {
                    let path = format!("/{thread}-{round}");
                    let fd = task.open(&path, O_CREAT | O_EXCL | O_WRONLY, 0o644).unwrap();
                    task.write(fd, path.as_bytes()).unwrap();
                    task.close(fd).unwrap();
                }
            });
        }
    });
    let task = fs.task().unwrap();
    for thread in 0..4 {
        for round in 0..200 {
            let path = format!("/{thread}-{round}");
            let fd = task.openat(Fd::CWD, &path, O_RDONLY, 0).unwrap();
            let mut text = [0; 16];
            let length = task.read(fd, &mut text).unwrap();
            assert_eq!(&text[..length], path.as_bytes());
            task.close(fd).unwrap();
        }
    }
}

#[test]
fn a_dropped_task_gives_its_place_back() {
    let fs = fs();
    for _ in 0..10_000 {
        let task = fs.task().unwrap();
        task.open("/file", O_CREAT | O_RDWR, 0o600).unwrap();
    }
}

//! Reads of files of a host tree: what is read once passes through, what is read again is kept.

mod trees;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use trees::{LIST, Trees, WAIT, is_root, python, said, sh};

/// 200 files of 64 KiB, and one with a few bytes more than 3 MiB.
const MAKE: &str = r#"
python3 -c "
import os
os.mkdir('many')
for n in range(200):
    with open(f'many/f{n}', 'wb') as f: f.write(b''.join(bytes([(n + k) % 251]) * 4096 for k in range(16)))
with open('large', 'wb') as f: f.write(b''.join(bytes([k % 251]) * 4096 for k in range(768)) + b'end')
with open('small', 'wb') as f: f.write(bytes(k % 253 for k in range(20000)))
"
mkdir empty; chmod 755 empty; chmod 600 small many/*
"#;

/// Bytes of the host's file system that the session's region takes.
fn space(trees: &Trees) -> u64 {
    let region = trees.home.path().join("state/lightpath").join(trees.session()).join("region");
    fs::metadata(region).unwrap().blocks() * 512
}

#[test]
fn what_is_read_once_is_not_copied() {
    const ALL: u64 = 200 * (64 << 10);
    let trees = Trees::new(MAKE);
    let read = "for f in many/*; do cat $f; done | md5sum";
    let expected = sh(&trees.copy(), read);
    trees.over("true");
    let before = space(&trees);
    assert_eq!(trees.over(read), expected);
    let once = space(&trees);
    assert!(once - before < ALL / 2, "{} bytes for {ALL} that were read once", once - before);
    assert_eq!(trees.over(read), expected);
    let twice = space(&trees);
    assert!(twice - before >= ALL, "{} bytes for {ALL} that were read twice", twice - before);
    assert_eq!(trees.over(&format!("{read}; {LIST}")), expected + &sh(&trees.copy(), LIST));
    assert_eq!(trees.says(&["diff"]), "");
}

/// Reads of any length, at any offset, by several processes, to memory that is not all there.
#[test]
fn reads_are_those_of_a_copy() {
    let trees = Trees::new(MAKE);
    let script = python(
        r#"
def md5(data): return hashlib.md5(data).hexdigest()
def pieces(name, size, skip=0):
    fd, said = os.open(name, os.O_RDONLY), []
    os.lseek(fd, skip, os.SEEK_SET)
    while data := os.read(fd, size): said.append((len(data), md5(data)))
    return said
for name in ('large', 'small', 'many/f1'):
    for size in (1 << 20, 100000, 16384, 4095, 65536): print(name, size, pieces(name, size))
print(pieces('many/f2', 20000, 16384), pieces('many/f2', 20000), pieces('many/f2', 1 << 20, 65535))
# Two readers of one file, in turns.
a, b = os.open('many/f3', os.O_RDONLY), os.open('many/f3', os.O_RDONLY)
print([(md5(os.read(a, 16384)), md5(os.read(b, 20000))) for _ in range(5)])
# A child goes on where its parent was.
fd = os.open('many/f4', os.O_RDONLY)
print(md5(os.read(fd, 30000)), flush=True)
if os.fork() == 0:
    print(md5(os.read(fd, 30000)), flush=True)
    os._exit(0)
os.wait()
print(md5(os.read(fd, 30000)), os.read(fd, 1))
# Memory that ends.
libc = ctypes.CDLL(None, use_errno=True)
libc.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
at = libc.mmap(None, 8 << 12, 3, 34, -1, 0)
libc.munmap(ctypes.c_void_p(at + (4 << 12)), 4 << 12)
fd = os.open('many/f5', os.O_RDONLY)
for start, length in ((0, 65536), (2 << 12, 65536), (4 << 12, 65536), (0, 65536)):
    got = libc.pread(fd, at + start, length, 0)
    print(got, md5(ctypes.string_at(at + start, got)) if got > 0 else ctypes.get_errno())
print(libc.pread(fd, None, 65536, 0), ctypes.get_errno())
# The program's memory is the file.
fd = os.open('many/f6', os.O_RDONLY)
m = mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
print(os.preadv(os.open('many/f7', os.O_RDONLY), [m], 0), md5(m), md5(os.read(fd, 1 << 20)))
print(os.preadv(os.open('many/f8', os.O_RDONLY), [bytearray(5), bytearray(60000)], 0))
# Whoever writes has all of it.
fd = os.open('many/f9', os.O_RDONLY)
first = os.read(fd, 20000)
w = os.open('many/f9', os.O_RDWR)
os.pwrite(w, b'written', 30000)
rest = os.read(fd, 1 << 20)
print(md5(first), md5(rest), rest[10000:10007])
os.truncate('many/f10', 20001)
print(md5(open('many/f10', 'rb').read()))
open('many/f11', 'wb').close()
print(open('many/f11', 'rb').read())
fd = os.open('many/f12', os.O_RDONLY)
os.read(fd, 20000)
os.unlink('many/f12')
print(md5(os.read(fd, 1 << 20)))
"#,
    );
    assert_eq!(trees.over(&script), sh(&trees.copy(), &script));
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

/// A session that has little room left is not filled by reading.
#[test]
fn reads_need_no_room() {
    let trees = Trees::new(MAKE);
    let script = python(
        r#"
names = ['large', 'small'] + ['many/f%d' % n for n in range(200)]
for turn in range(3):
    said = hashlib.md5()
    for name in names:
        with open(name, 'rb') as f: said.update(f.read())
    print(said.hexdigest(), flush=True)
fds = [os.open(name, os.O_RDONLY) for name in ('many/f198', 'many/f199', 'large')]
for fd in fds:
    pieces = [bytearray(n) for n in (10, 4096, 0, 33000)]
    print(os.preadv(fd, pieces, 20000), [hashlib.md5(piece).hexdigest() for piece in pieces])
    print(os.preadv(fd, pieces, os.fstat(fd).st_size - 5000), [hashlib.md5(piece).hexdigest() for piece in pieces[:2]])
    print([os.pread(fd, 10, at) for at in (65530, 100000, 1 << 40)])
    to = os.open('../out', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    print(os.sendfile(to, fd, 7, 30000), hashlib.md5(os.pread(to, 1 << 20, 0)).hexdigest())
with open('written', 'wb') as f: f.write(b'w' * 200000)
print(os.stat('written').st_size)
"#,
    );
    let expected = sh(&trees.copy(), &script);
    let args = ["run", "--discard", "--size", "4M", "--over", ".", "--", "sh", "-c", &script];
    assert_eq!(trees.says(&args), expected);
}

/// What was read twice stays. What was read once or less is an error, and nothing is a mixture.
#[test]
fn a_file_that_changes_on_the_host_is_kept_or_an_error() {
    let trees = Trees::new(MAKE);
    let script = python(
        &r#"
def read(name):
    try:
        with open(name, 'rb') as f: return sum(f.read())
    except OSError as e: return e.errno
names = ['many/f1', 'many/f2', 'many/f3', 'many/f4', 'large', 'many/f5']
seen = {}
for name in names[:2] * 2 + names[2:5]: seen.setdefault(name, []).append(read(name))
half = os.open('many/f6', os.O_RDONLY)
os.read(half, 20000)
os.stat('many/f5')
WAIT
for name in names: print(name, [read(name) == was for was in seen.get(name, [])] or read(name), read(name))
try: os.read(half, 20000)
except OSError as e: print(e.errno)
print(read('many/f7') != 5, read('small') != 5)
"#
        .replace("WAIT", WAIT),
    );
    let change = "for f in many/f[1-6]; do printf changed | dd of=$f bs=1 seek=50 conv=notrunc 2> /dev/null; done; echo more >> large";
    let text = trees.beside(&script, change);
    let sum = |n: u64| (0..16).map(|k| (n + k) % 251 * 4096).sum::<u64>();
    let expected = format!(
        "many/f1 [True, True] {}\nmany/f2 [True, True] {}\nmany/f3 [False] 5\nmany/f4 [False] 5\nlarge [False] 5\nmany/f5 5 5\n5\nTrue True\n",
        sum(1),
        sum(2)
    );
    assert_eq!(text, expected);
    // The next run begins with what the host has now.
    assert_eq!(trees.over("md5sum many/f3 large"), sh(&trees.tree(), "md5sum many/f3 large"));
}

/// A file that is open stays readable for a process that may not reach the host's any more.
#[test]
fn open_files_are_read_by_those_who_lose_their_way_to_the_host() {
    if !is_root() {
        return;
    }
    let trees = Trees::new(MAKE);
    fs::set_permissions(trees.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let ways = [
        "os.setuid(65534)",
        "os.setresgid(7, 7, 7); os.setreuid(7, 7)",
        "os.setgroups([]); os.seteuid(65534)",
        "libc.setfsuid(65534)",
        "os.chroot('empty')",
        "libc.unshare(0x10000000)",
        "libc.unshare(0x20000); libc.mount(b'none', b'/', None, 0x44000, None); libc.mount(b'none', os.getcwd().encode() + b'/..', b'tmpfs', 0, None)",
        "libc.prctl(22, 1)",
    ];
    for way in ways {
        let read = if way.contains("prctl") {
            // Strict mode permits read(2), write(2) and exit(2).
            "room = ctypes.create_string_buffer(30000)\nlibc.prctl(22, 1)\nn = libc.read(fds[0], room, 30000)\nlibc.write(1, b'%d' % n, len(b'%d' % n))\nlibc.syscall(60, 0)".to_owned()
        } else {
            format!("{way}\nprint([hashlib.md5(os.read(fd, 70000)).hexdigest() for fd in fds])")
        };
        let script = python(&format!(
            "libc = ctypes.CDLL(None)\nfds = [os.open(name, os.O_RDONLY) for name in ('small', 'many/f1')]\n{read}"
        ));
        let output =
            trees.lightpath(&["run", "--discard", "--over", ".", "--", "sh", "-c", &script]).output();
        assert_eq!(said(&output.unwrap()), sh(&trees.copy(), &script), "{way}");
    }
    // A child in a user namespace, and a program that lacks the capability by which the file was opened.
    sh(trees.home.path(), "chown 7 tree/small tree/many/f2 copy/small copy/many/f2");
    let script = python(
        r#"
libc, libc.syscall.argtypes = ctypes.CDLL(None), [ctypes.c_long] * 6
fd = os.open('small', os.O_RDONLY)
if libc.syscall(56, 0x10000011, 0, 0, 0, 0) == 0:
    print(hashlib.md5(os.read(fd, 70000)).hexdigest(), flush=True)
    os._exit(0)
print(os.wait()[1], flush=True)
libc.prctl(8, 1)
os.setresuid(65534, 65534, 65534)
caps = (ctypes.c_uint * 6)(2, 2)
libc.capset((ctypes.c_uint * 2)(0x20080522, 0), caps)
os.dup2(os.open('many/f2', os.O_RDONLY), 0)
os.execlp('md5sum', 'md5sum')
"#,
    );
    assert_eq!(trees.over(&script), sh(&trees.copy(), &script));
    trees.says(&["discard"]);
    // And for one that gets it over a socket.
    let script = python(
        r#"
here, there = socket.socketpair()
if os.fork() == 0:
    os.setuid(65534)
    there.send(b'x')
    _, fds, _, _ = socket.recv_fds(there, 1, 1)
    print(hashlib.md5(os.read(fds[0], 70000)).hexdigest(), flush=True)
    os._exit(0)
here.recv(1)
fd = os.open('small', os.O_RDONLY)
socket.send_fds(here, [b'f'], [fd])
print(os.wait()[1])
"#,
    );
    assert_eq!(trees.over(&script), sh(&trees.copy(), &script));
}

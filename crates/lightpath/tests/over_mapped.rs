//! Mappings of large files of a host tree: content is read as it is touched.

mod trees;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use trees::{Trees, WAIT, is_root, python, said, sh};

/// A file of 16 MiB, each block of 64 KiB with bytes of its own, and one with a few bytes more than 5 MiB.
const LARGE: &str = r#"
python3 -c "
for name, blocks, more in ('large', 256, b''), ('odd', 80, b'end'):
    with open(name, 'wb') as f:
        for n in range(blocks): f.write(bytes([n % 251]) * 65536)
        f.write(more)
"
mkdir empty; chmod 755 empty; chmod 600 odd
"#;

#[test]
fn mappings_show_what_a_copy_shows() {
    let trees = Trees::new(LARGE);
    let script = python(
        r#"
f = open('large', 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print(m[3 << 20], m[-1], m[5 << 20], m[(5 << 20) - 1])
print(os.write(os.open('/dev/null', os.O_WRONLY), memoryview(m)[7 << 20:9 << 20]))
r, w = os.pipe()
print(os.write(w, memoryview(m)[12 << 20:(12 << 20) + 9]), os.read(r, 9))
p = mmap.mmap(f.fileno(), 8 << 20, access=mmap.ACCESS_COPY, offset=4 << 20)
p[6 << 20] = 1
print(p[6 << 20], m[10 << 20], p[-1])
print(hashlib.md5(m).hexdigest(), hashlib.md5(p).hexdigest())
if os.fork() == 0:
    print(mmap.mmap(os.open('odd', os.O_RDONLY), 0, prot=mmap.PROT_READ)[-5:], flush=True)
    os._exit(0)
os.wait()
o = open('odd', 'r+b')
s = mmap.mmap(o.fileno(), 0)
s[4 << 20] = 9
s.flush()
print(hashlib.md5(open('odd', 'rb').read()).hexdigest(), s[-3:])
os.ftruncate(o.fileno(), 6 << 20)
print(hashlib.md5(mmap.mmap(o.fileno(), 0, prot=mmap.PROT_READ)).hexdigest())
q = mmap.mmap(os.open('large', os.O_RDONLY), 0, prot=mmap.PROT_READ)
os.rename('large', 'moved'); os.remove('moved')
print(hashlib.md5(q).hexdigest(), sorted(os.listdir('.')))
"#,
    );
    assert_eq!(trees.over(&script), sh(&trees.copy(), &script));
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), trees::LIST), sh(&trees.copy(), trees::LIST));
}

#[test]
fn a_file_that_changes_on_the_host_is_not_mixed_with_what_was_read() {
    let trees = Trees::new(LARGE);
    let script = python(
        &r#"
m = mmap.mmap(os.open('large', os.O_RDONLY), 0, prot=mmap.PROT_READ)
seen = [m[0], m[8 << 20]]
WAIT
print(seen == [m[0], m[8 << 20]], flush=True)
if os.fork() == 0:
    m[12 << 20]
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGBUS)
try:
    mmap.mmap(os.open('large', os.O_RDONLY), 4 << 20, prot=mmap.PROT_READ, offset=4 << 20)
except OSError as e:
    print(e.errno)
"#
        .replace("WAIT", WAIT),
    );
    assert_eq!(trees.beside(&script, "printf more >> large"), "True\nTrue\n5\n");
}

#[test]
fn a_mapping_is_whole_before_the_process_loses_its_way_to_the_host() {
    if !is_root() {
        return;
    }
    let trees = Trees::new(LARGE);
    fs::set_permissions(trees.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for leave in ["os.setuid(65534)", "os.chroot('empty')", "os.setresgid(7, 7, 7); os.setreuid(7, 7)"] {
        let script = python(&format!(
            r#"
files = [mmap.mmap(os.open(name, os.O_RDONLY), 0, prot=mmap.PROT_READ) for name in ('large', 'odd')]
files[0][8 << 20]
{leave}
print([hashlib.md5(m).hexdigest() for m in files])
"#
        ));
        let output =
            trees.lightpath(&["run", "--discard", "--over", ".", "--", "sh", "-c", &script]).output();
        assert_eq!(said(&output.unwrap()), sh(&trees.copy(), &script), "{leave}");
    }
}

//! `run --over /`, in a mount namespace of its own whose root directory is an overlay of the machine's: what
//! a script prints there with Lightpath and without, and what it leaves.

use std::process::{Command, Output, Stdio};

use lp_region::records::Header;
use tempfile::TempDir;

/// Makes the overlay and its own place for sessions, and goes there. /p is what the script shares with the
/// test.
const ENTER: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
for at in proc sys dev; do mount --rbind /$at /mnt/root/$at; done
mkdir /mnt/root/state /mnt/root/upper
mount --bind /mnt/upper /mnt/root/upper
exec chroot /mnt/root env XDG_STATE_HOME=/state "$@"
"#;

/// What a script prints in such a place, from both streams; `LP` is the command.
fn inside(script: &str) -> String {
    let place = TempDir::new().unwrap();
    let mut command = Command::new("unshare");
    command.arg(if is_root() { "-m" } else { "-rm" }).args(["sh", "-c", ENTER, "sh"]);
    command.args(["timeout", "100", "sh", "-c", &format!("exec 2>&1; umask 022\n{script}")]);
    command.env("LP", env!("CARGO_BIN_EXE_lightpath")).env("LC_ALL", "C").stdin(Stdio::null());
    said(command.current_dir(place.path()).output().unwrap())
}

fn is_root() -> bool {
    // SAFETY: geteuid has no effect.
    unsafe { libc::geteuid() == 0 }
}

fn said(output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

/// A script prints with Lightpath what it prints without.
fn same(script: &str) {
    let kernel = inside(&format!("cd /\n{script}"));
    let over = inside(&format!(
        "cd /; cat > /state/script <<'END OF SCRIPT'\n{script}\nEND OF SCRIPT\n\
         ls -a / > /state/before; \"$LP\" run --over / -- sh /state/script; \
         ls -a / | diff /state/before - && \"$LP\" discard --session + > /dev/null"
    ));
    assert_eq!(over, kernel);
}

#[test]
fn names_are_made_in_the_root_directory() {
    same(
        r#"
mkdir /new; echo x > /new/f; cat /new/f; ls / | grep -c '^new$'; rm -rf /new; ls -d /new
echo a > /aa; mv /aa /bb; cat /bb; ln -s bb /cc; cat /cc; ln /bb dd; stat -c '%h %n %F' /dd; mkfifo /ff; ls -p | grep f
chmod 700 bb; touch -d @5 /bb; stat -c '%a %Y' /bb; truncate -s 100 //bb; stat -c %s /./bb; cp /bin/echo /e; /e own; ./e own
printf '#!/bin/sh\necho script $0\n' > s; chmod +x s; /s; ./s; tar cf /t.tar -C / bb cc; tar tf t.tar
mkdir /jail; chroot / /bin/echo in the root; chroot /jail /bin/none; rmdir /jail; chmod 700 /; stat -c %a /; chmod 755 /"#,
    );
}

#[test]
fn the_kernels_directories_are_the_hosts() {
    same(
        r#"
mkdir /proc; rmdir /proc; rmdir /sys; rm -d /dev; mkdir emp; stat -c '%n %F' /proc /sys /dev /proc/ /dev/null
rename() { perl -e '$! = 0; rename $ARGV[0], $ARGV[1]; print "$ARGV[0] $ARGV[1]: $!\n"' "$@"; }
rename /proc /yy; rename emp /sys; rename / /yy; rename /emp /; rename /dev/shm /yy; rename /proc/version /yy; rename /emp /dev/emp
touch /proc/none; cat /proc/self/comm; head -c3 /dev/zero | od -c | head -1; echo discarded > /dev/null; ls /sys | head -2
readlink /proc/self/exe /proc/self/cwd; cut -d' ' -f2 /proc/mounts | grep -qx / && echo mounted; grep -c . /proc/filesystems > /n; test -s n && echo read
f=/dev/shm/over_root.$$; echo shm > $f; cat $f; rm $f; ls /dev/shm | grep -c over_root.$$; true"#,
    );
}

#[test]
fn paths_lead_from_the_kernels_directories_back() {
    same(
        r#"
echo a > /bb; ln -s bb cc; pwd; cd ..; pwd; cd /proc/self; cat ../../bb; cat /proc/../bb; cd /dev; cat ../bb; ls ../bb ../cc; rm ../cc
cd ../proc; pwd; mkdir ../dd; ls -d /dd; cd - ; cd /usr/bin/../../..; pwd; cd /proc/..; pwd; cd /sys/kernel; cd ../..; pwd; stat -c %n /..
test / -ef /proc/.. && test /.. -ef / && echo the same; ls /proc/self/root | grep -x bb; cat /proc/self/root/bb; cat /proc/self/cwd/bb
f=/dev/shm/over_root.$$; ln -s /bb $f; cat $f; echo more >> $f; cat /bb; (cd /dev/shm; cat over_root.$$); rm $f
echo c > /proc/self/root/kk; cat /kk"#,
    );
}

#[test]
fn descriptors_of_the_root_directory_serve() {
    same(
        r#"echo aaaa > /bb; ln -s bb cc; python3 - <<'P'
import os
def tried(call, *args, **named):
    try: return call(*args, **named)
    except OSError as e: return e.strerror
r = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
print("proc" in os.listdir(r), "bb" in os.listdir(r), os.path.samestat(os.stat("proc/self", dir_fd=r), os.stat("/proc/self")))
for name in ("proc", "bb", "cc", "dev/null", "nothing", "usr/bin/..", "../../bb", "proc/../bb", ".", ".."):
    print(name, *(oct(s.st_mode) if hasattr(s, "st_mode") else s for s in (tried(f, name, dir_fd=r) for f in (os.stat, os.lstat))))
os.fchdir(r); print(os.getcwd()); os.chdir("proc"); print(os.getcwd()); os.chdir(".."); print(os.getcwd(), open("bb").read())
p = os.open("/proc", os.O_RDONLY)
print(os.path.samestat(os.stat("..", dir_fd=p), os.stat("/")), os.stat("../bb", dir_fd=p).st_size)
d = os.open("dev", os.O_RDONLY, dir_fd=r); print(os.stat("null", dir_fd=d).st_rdev, "null" in os.listdir(d))
for a, b in (("bb", "dev/shm/zz"), ("proc/version", "zz")): print(a, b, tried(os.rename, a, b), tried(os.link, a, b))
kinds = {e.name: (e.is_dir(follow_symlinks=False), e.is_symlink()) for e in os.scandir("/")}
print(kinds["proc"], kinds["dev"], kinds["bb"], kinds["usr"], kinds["cc"])
print(os.path.realpath("/proc/self/cwd"), os.path.realpath("/cc"), os.access("/proc", os.X_OK), os.access("/bb", os.X_OK))
P"#,
    );
}

#[test]
fn a_system_is_administered() {
    same(
        r#"
useradd -m tester && ls -d /home/tester; su tester -c 'id -un; cd; pwd; echo hi > x; cat x; touch /nope'; tail -1 /etc/passwd | cut -d: -f1
mkdir /src; cd /src; printf 'all: p\np: p.c\n\tcc -o p p.c\ninstall: p\n\tinstall -D p $(DESTDIR)/opt/x/bin/p\n' > Makefile
printf '#include <stdio.h>\nint main() { return puts("built") < 0; }\n' > p.c; make -s install; /opt/x/bin/p
echo 'int f() { return 7; }' > l.c; cc -shared -fPIC -o /usr/lib/libmine.so l.c
printf '#include <stdio.h>\nint f(); int main() { printf("%%d\\n", f()); }' > m.c; cc -o /usr/bin/usesmine m.c -lmine; usesmine; ldconfig; usesmine
mkdir -p pkg/DEBIAN pkg/opt/pkg; printf 'Package: p\nVersion: 1\nArchitecture: all\nMaintainer: m <m@m>\nDescription: d\n' > pkg/DEBIAN/control
printf '#!/bin/sh\necho configured > /opt/pkg/state\n' > pkg/DEBIAN/postinst; chmod 755 pkg/DEBIAN/postinst; echo one > pkg/opt/pkg/one
dpkg-deb -b pkg p.deb > /dev/null; dpkg -i p.deb > /dev/null; cat /opt/pkg/*; dpkg -l p | tail -1 | cut -c1-6; dpkg -r p > /dev/null; ls /opt/pkg"#,
    );
}

/// Libraries, the C library and the dynamic linker that a session replaces are those of the programs that it
/// then starts, also of those that ran before.
#[test]
fn libraries_are_those_of_the_session() {
    const BUILD: &str = r#"
mkdir /src; cd /src
make_library() { echo "int deep() { return $1; }" > d.c; cc -shared -fPIC -o $2/libdeepmine.so d.c; }
make_library 1 /usr/lib
echo 'int deep(); int f() { return deep() * 10 + 1; }' > l.c
cc -shared -fPIC -o /usr/lib/libmine.so l.c -ldeepmine; ldconfig
printf '#include <stdio.h>\n#include <gnu/libc-version.h>\n' > m.c
printf 'int f(); int main() { printf("%%d %%s\\n", f(), gnu_get_libc_release()); }' >> m.c
cc -o m m.c -lmine -ldeepmine; cp m /usr/bin/usesmine"#;
    const CHANGE: &str = r#"
./m; usesmine; make_library 2 .; install libdeepmine.so /usr/lib; ./m; usesmine; sh -c usesmine; env ./m
libraries=/usr/lib/x86_64-linux-gnu
perl -pe 's/\0stable\0/\0mended\0/' $libraries/libc.so.6 > c; cmp -s c $libraries/libc.so.6 || echo mended
install -m 755 c $libraries/libc.so.6; ./m; usesmine; bash -c ./m; perl -e 'print "perl\n"'
install -m 755 $libraries/ld-linux-x86-64.so.2 $libraries/linker
mv $libraries/linker $libraries/ld-linux-x86-64.so.2; ./m; usesmine; ls | wc -l"#;
    let kernel = inside(&format!("{BUILD}\n{CHANGE}\nusesmine; ./m"));
    assert!(kernel.ends_with("21 mended\n21 mended\n"), "{kernel}");
    let over = inside(&format!(
        "{BUILD}\ncat > /state/change <<'END'\n{}\n{CHANGE}\nEND\n\
         \"$LP\" run --over / -- sh /state/change; \"$LP\" run --over / -- usesmine; \"$LP\" run --over / -- ./m; \
         \"$LP\" discard > /dev/null; ./m > /state/m; grep -qx '11 stable' /state/m || cat /state/m",
        BUILD.lines().find(|line| line.starts_with("make_library()")).unwrap()
    ));
    assert_eq!(over, kernel);
}

/// What a script leaves is listed and applied, and is then what the kernel's overlay has after the script.
#[test]
fn changes_are_listed_discarded_and_applied() {
    let change = "mkdir -p /new/d; echo x > /new/d/f; ln -s d /new/l; rm /etc/hostname; echo more >> /etc/issue; mv /opt /opt2; chmod 700 /srv";
    // Overlays keep the directories that were looked for, and what differs between them besides is time.
    let list = "cd /; find new etc/hostname etc/issue opt opt2 srv -printf '%p %y %m %s %l\n' 2>&1 | sort; cat etc/issue";
    let kernel = inside(&format!("{change}; {list}"));
    let over = inside(&format!(
        "\"$LP\" run --over / -- sh -c '{change}' || exit; {list} > /state/untouched; \
         \"$LP\" diff --session + >&2; \"$LP\" discard --session + > /dev/null; \
         \"$LP\" run --over / -- sh -c '{change}'; {list} | diff - /state/untouched || exit; cd /; \
         \"$LP\" diff > /state/diff; grep -c . /state/diff > /state/lines; cut -f1,2 /state/diff | grep -v opt; \
         \"$LP\" apply; \"$LP\" sessions; {list}"
    ));
    let diff = "D\tetc/hostname\nM\tetc/issue\nA\tnew/d/f\nA\tnew/l\nM\tsrv/\n";
    assert!(over.contains(diff), "{over}");
    assert!(over.ends_with(&kernel), "{over}\nwithout Lightpath: {kernel}");
}

/// Also after a crash of the machine, which the boot in the region's header tells of.
#[test]
fn a_session_goes_on_and_takes_over_what_the_host_changes() {
    let boot = core::mem::offset_of!(Header, boot);
    let said = inside(&format!(
        r#"cd /; "$LP" run --over / -- sh -c 'echo 1 > /mine; mkdir /dir; ls / > /dev/null' || exit
echo host > /hosts; chmod 711 /srv; cd /usr; region=/state/lightpath/+/region
"$LP" run --over / -- sh -c 'cat /mine /hosts; stat -c %a /srv; pwd; ls -d /dir /proc/self/fd/0; cat /proc/self/comm; rmdir /proc'
printf 7777777777777777 | dd of=$region bs=1 seek={boot} conv=notrunc 2> /dev/null; "$LP" fsck $region | grep -o 'the next run rebuilds it'
"$LP" run --over / -- sh -c 'cd /; cat proc/self/comm mine; rmdir proc; stat -c %F proc/self/fd/.; ls -d proc/../dir'
cd /dev; "$LP" run --over / -- sh -c 'pwd; cat ../mine; cd ..; cat mine; touch /later'
"$LP" diff --session +; "$LP" cat +:mine; "$LP" fsck $region | grep -o ': clean:'; ls /mine; true"#
    ));
    let busy = |name: &str| format!("rmdir: failed to remove '{name}': Device or resource busy\n");
    let expected = [
        "1\nhost\n711\n/usr\n/dir\n/proc/self/fd/0\ncat\n",
        &busy("/proc"),
        "the next run rebuilds it\ncat\n1\n",
        &busy("proc"),
        "directory\nproc/../dir\n/dev\n1\n1\nA\tlater\nA\tmine\n1\n: clean:\n",
        "ls: cannot access '/mine': No such file or directory\n",
    ];
    assert_eq!(said, expected.concat());
}

#[test]
fn everybody_may_have_such_a_session() {
    if !is_root() {
        return;
    }
    let script = r#"chown 1 /state; ln /bin/sh /sh; setpriv --reuid 1 --regid 1 --clear-groups "$LP" run --over / -- sh -c '
id -u; touch /nope; mkdir /nope; cat /etc/shadow; rm -f /etc/hostname; cd /tmp; mkdir d; echo x > d/f; cat /tmp/d/f; chmod 777 /; cp /bin/echo e; ./e own'
ls -d /tmp/d /tmp/e; true"#;
    let said = inside(&format!("chmod 755 /root; export XDG_CACHE_HOME=/state/c HOME=/state\n{script}"));
    let has = |line: &str| assert!(said.contains(line), "{line}: {said}");
    assert!(said.starts_with("1\n"), "{said}");
    has("touch: cannot touch '/nope': Permission denied");
    has("mkdir: cannot create directory '/nope': Permission denied");
    has("cat: /etc/shadow: Permission denied");
    has("chmod: changing permissions of '/': Operation not permitted");
    has("\nx\nchmod");
    has("\nown\nls: cannot access '/tmp/d'");
}

/// What leads to the host's root directory without the gate's walk from `/`.
#[test]
fn descriptors_of_the_host_and_walks_of_the_kernel_miss_the_session() {
    let script = r#"mkdir /dd; echo host > /dd/f; exec 5< /dd; "$LP" run --over / -- sh -c 'echo session > /dd/f; cat /proc/self/fd/5/f
python3 - <<END
import ctypes, os
print(os.read(os.open("f", os.O_RDONLY, dir_fd=5), 9))
root = os.open("/", os.O_RDONLY)
for path in (b"dd/f", b"proc/self/status"):
    for resolve in (0, 8, 16):
        how = (ctypes.c_uint64 * 3)(0, 0, resolve)
        print(ctypes.CDLL(None).syscall(437, root, path, how, 24) >= 0)
END
'; "$LP" discard --session + > /dev/null; rm -r /dd"#;
    let opened = "True\nTrue\nTrue\nTrue\nFalse\nFalse\n";
    assert_eq!(inside(script), format!("host\nb'session\\n'\n{opened}"));
}

#[test]
fn others_join_a_run_over_the_root() {
    let text = inside(
        "cd /; mkdir w; mkfifo wait; \"$LP\" run --over / --discard -- sh -c 'echo in > /w/f; cat' \
         < wait > /dev/null & exec 3> wait\n\
         until \"$LP\" exec $! -- test -f /w/f 2> /dev/null; do sleep 0.05; done\n\
         \"$LP\" exec $! -- cat w/f; \"$LP\" cat $!:w/f; exec 3>&-; wait; ls w",
    );
    assert_eq!(text, "in\nin\n");
}

/// The path of a record below the root directory is that of the host.
#[test]
fn programs_are_not_copied() {
    let look = r#"cd /; cp /bin/sleep /state/; stat -c %i /usr/bin/sleep
"$LP" run --over / -- sh -c 'sleep 5 & until grep -q "^[0-9]" /proc/$!/syscall; do :; done; \
    while ! grep -q "r-xp.*/sleep" /proc/$!/maps && kill -0 $! 2> /dev/null; do :; done; \
    awk "/r-xp.*\\/sleep/ { print \$5 }" /proc/$!/maps; kill $!'"#;
    let text = inside(look);
    let mut lines = text.lines();
    assert!(lines.next().is_some_and(|number| lines.next() == Some(number)), "{text}");
}

# Programs that confine themselves: namespaces, sandboxes, filters.

# Runs a command as a user without privileges.
as_user() {
    case $(id -u) in
    0) setpriv --reuid 65534 --regid 65534 --clear-groups "$@" ;;
    *) "$@" ;;
    esac
}

# Has everybody find the session's directory, and write there.
share() {
    umask 0
    chmod a+rx "$M" "$M/.." "$M/../.."
    chmod 777 .
}

#:: unshare needs unshare,setpriv,mount
# Who is root in a namespace reads the images of the other root's programs, and cannot write there.
share; unshare true; echo text >f; chmod 666 f; as_user unshare -Urm sh -c 'id -u; pwd | sed "s:$T:T:"; mount -t tmpfs none /mnt; echo $?; echo inside >/mnt/x; cat /mnt/x f; echo more >>f; mount -t tmpfs f /mnt; echo $?; ls /mnt; mount --bind /etc /mnt; test -s /mnt/passwd; echo $?; umount /mnt; mount --make-rslave /; echo $?; cd /; cat "$T/f"'; cat f; ls /mnt | wc -l; as_user unshare -cm --keep-caps sh -c 'mkdir d; cd d; echo x >y; mount -t tmpfs none /mnt; mv y z; cat ../d/z; stat -c "%a %s" z'; as_user unshare -Urpf --mount-proc sh -c 'echo $$; cat f; cat /proc/1/comm'; as_user unshare -Urn --propagation slave -m cat f; ls

#:: user_ids needs unshare,setpriv,nsenter
# Who owns what a namespace makes, and what its root may do with others' files.
share; echo text >f; chmod 600 f; ls -ln f | cut -d' ' -f3-4; mkdir d; chmod 777 d; mkdir d/closed; chmod 700 d/closed
look() { stat -c '%n %u:%g %a' "$@"; }
as_user unshare -Ur bash -c 'stat -c "%n %u:%g" . f d; id -u; echo x >d/made; mkdir d/dir; stat -c "%n %u:%g" d/*; cat f; chown 0:0 d/made; chown 1:1 d/made; chmod 4755 d/made; touch d/closed/x; cp -p d/made d/copy; ls -ln d | tail -n +2 | cut -d" " -f3-4; tar cf d/t.tar d/made; mkdir d/x; tar xf d/t.tar -C d/x; stat -c "%n %u:%g" d/x/d/made; rm d/t.tar' 2>&1; look d/*
as_user unshare -U bash -c 'id -u; stat -c "%u:%g" . f; echo y >d/none; stat -c "%u:%g" d/none; unshare -U true; bash -c "stat -c %u:%g d/none"' 2>&1; look d/none
as_user unshare -U --map-user=5 --map-group=7 bash -c 'id -u; id -g; stat -c "%u:%g" . f; echo y >d/five; stat -c "%u:%g" d/five; chown 5:7 d/five; chown 0 d/five; chgrp 0 d/five' 2>&1; look d/five
as_user unshare -Ur unshare -U --map-user=33 --map-group=33 bash -c 'echo z >d/nested; stat -c "%u:%g" d/nested f; exec unshare -Ur bash -c "echo zz >d/deep; stat -c %u:%g d/deep d/nested f"' 2>&1; look d/nested d/deep
as_user unshare -Ur bash -c 'exec python3 - <<P
import os, subprocess
os.mkdir("d/py"); print(os.stat("d/py").st_uid, os.access("f", os.R_OK), os.getuid())
print(subprocess.run(["stat", "-c", "%u:%g", "d/py", "f"], capture_output=True, text=True).stdout)
try: os.chown("d/py", 3, 3)
except OSError as e: print(e.errno)
P' 2>&1; look d/py
as_user unshare -Ur bash -c 'echo $$ >d/pid; exec sleep 60' & until test -s d/pid; do sleep 0.1; done; p=$(cat d/pid); as_user nsenter -t $p -U --preserve-credentials bash -c 'id -u; stat -c "%u:%g" . f; echo n >d/entered; stat -c "%u:%g" d/entered' 2>&1; kill $p; wait $! 2>/dev/null; rm d/pid; look d/entered

#:: bubblewrap_ids needs bwrap,setpriv
share; echo text >f; mkdir d; chmod 777 d; chmod 600 f
as_user bwrap --bind / / --dev-bind /dev /dev --unshare-user --uid 1000 --gid 1000 sh -c 'id -u; stat -c "%n %u:%g" . f d; echo x >d/made; stat -c "%u:%g" d/made; chown 0 d/made; cat f' 2>&1; as_user bwrap --bind / / --dev-bind /dev /dev --proc /proc --unshare-all --uid 0 --gid 0 sh -c 'id -u; echo x >d/root; stat -c "%u:%g" d/root f; chown 0:0 d/root; chown 1 d/root' 2>&1; stat -c '%n %u:%g' d/*

#:: bubblewrap needs bwrap,setpriv
share; echo text >f; chmod 666 f; mkdir d; as_user bwrap --bind / / --dev-bind /dev /dev --proc /proc sh -c 'pwd | sed "s:$T:T:"; cat f; echo more >>f; cat "$T/f"; cd d; echo x >y; mv y z; ls; exit 3'; echo $?; as_user bwrap --bind / / --dev-bind /dev /dev --proc /proc --tmpfs /mnt --unshare-all --die-with-parent sh -c 'cat f; echo $$; : >/mnt/a; ls /mnt; echo more >>f'; as_user bwrap --dev-bind / / --chdir "$T/d" cat z; cat f; as_user bwrap --dev-bind / / sh -c 'for i in 1 2 3; do cat f & done; wait; sh -c "exec sh -c \"cat f\""' | sort | uniq -c; as_user bwrap --dev-bind / / true; echo $?

#:: firejail needs firejail,unshare,mount
# Has privileges of its own, so only a run of root's starts it. It makes mounts, and checks each by the last line of
# mountinfo. What it leaves in /run goes with the namespace.
[ "$(id -u)" = 0 ] || exit 0
echo text >f; mkdir d
sandboxed() { unshare -m sh -c 'mount -t tmpfs none /run && exec firejail --quiet --noprofile "$@"' sh "$@" 2>&1; }
sandboxed sh -c 'cat f; echo more >>f; cd d; echo x >y; mv y z; ls; exit 3'; echo $?; sandboxed --net=none --nonewprivs --seccomp --caps.drop=all sh -c 'cat f; for i in 1 2 3; do cat d/z & done; wait; sh -c "exec sh -c \"echo again >>f\""; mkdir e && rmdir e; ls'; echo $?; cat f

#:: mounts needs unshare,mount,umount,findmnt,mountpoint
# What mount(8) makes, and findmnt(8) finds.
mkdir d e k; echo text >d/f; echo other >g; : >h; how=-Urm; [ "$(id -u)" != 0 ] || how=-m
cat >s <<'X'
show() { findmnt -n -o TARGET,FSTYPE,VFS-OPTIONS "$@" | sed "s:$T:T:g; s/  */ /g"; echo ${PIPESTATUS[0]}; }
mount -t tmpfs -o size=1m,mode=750,nosuid none d; show d; show "$T/d"; stat -c %a d; ls d; mountpoint -q d; echo $?; mountpoint -q e; echo $?
df --output=size,target d | tail -1 | sed "s:$T:T:"; mount -o remount,size=2m d; df --output=size d | tail -1
mount --bind d e; echo in >d/x; cat e/x; mount -o remount,bind,ro,noexec e; echo no 2>/dev/null >e/y; echo $?; show e; show -T e/x; show --submounts -T "$T/d"
mount --bind g h; cat h; show h; mount --make-private d; show -o PROPAGATION d; mkdir d/sub; mount -t tmpfs -o noatime none d/sub; mount --rbind d k; show -R k; : >k/sub/made; ls d/sub
mount --move k/sub e; ls e; ls k/sub; show e; umount e; echo $?; umount d 2>/dev/null; echo $?; umount -l d; cat d/f; ls d
umount h; umount h 2>/dev/null; echo $?; (cd k; umount "$T/k" 2>/dev/null; echo $?; umount -l "$T/k"; ls); umount -R e; show d; show e; show k; mount | grep -c " $T/"; ls
X
unshare $how bash s 2>&1 | sed "s:$T:T:g"

#:: man needs man,groff limit 120
cat >page.1 <<'X'
.TH PAGE 1
.SH NAME
page \- a page in a directory
.SH OPTIONS
.TP
.B \-x
Does nothing.
X
mkdir man1; sed 's/PAGE/OTHER/; s/^page/other/' page.1 | gzip >man1/other.1.gz; export MANPAGER=cat MANWIDTH=60; for i in 1 2; do man ./page.1 2>&1; echo $?; done; man ./nosuch.1 2>&1 | sed "s:$T:T:"; mkdir -p tree; mv man1 tree; man -M "$T/tree" other 2>&1; man -M "$T/tree" -k nosuch >/dev/null 2>&1; man -l -Tutf8 page.1 >out; wc -l <out; man -w ./page.1 | sed "s:$T:T:"

#:: root_static needs chroot,busybox,tar,mount,unshare
# A root directory with one static program, and file systems mounted in it.
mkdir -p r/bin r/etc r/mnt r/there; cp "$(readlink -f "$(command -v busybox)")" r/bin/busybox; for p in sh ls cat tar mount umount pwd readlink mkdir rm wc sort chroot; do ln -s busybox r/bin/$p; done
printf '#!/bin/sh\necho "$0 $*"; ls /\n' >r/s; chmod +x r/s; ln -s /s r/bin/link; echo host >outside; echo root:x:0:0::/:/bin/sh >r/etc/passwd
chroot r /bin/sh -c 'pwd; ls /; cd bin; pwd; cd ../..; pwd; /s a b; link c; cat /etc/passwd; cat /outside; cat ../outside; cat </etc/passwd | wc -l; echo new >/etc/new; sh -c "cat /etc/new"; readlink /bin/link' 2>&1; echo $?
(cd r && tar cf ../t.tar etc s); mkdir r/x; cat t.tar | chroot r tar xf - -C /x; ls r/x; chroot r tar cf - /x 2>/dev/null | tar tf -
chroot r /none; echo $?; chroot r /etc; echo $?; chroot r sh -c 'chroot /x /s' 2>&1; echo $?; chroot r sh -c 'chroot . /s d'
unshare -m sh -c 'mount --bind r/etc r/there; mount -t tmpfs none r/mnt; chroot r sh -c "ls /there /mnt; echo x >/mnt/x; cat /mnt/../mnt/x; cd /there; ls ..; cd /mnt; pwd; cat ../there/new"; chroot r/mnt true; echo $?; cd r/mnt; cat x; umount /mnt 2>/dev/null; cd ../..; umount r/mnt; echo $?; umount r/there; echo $?'
chroot r sh -c 'while :; do :; done' & sleep 0.3; kill $!; wait $! 2>/dev/null; echo $?; rm -r r/x t.tar

#:: root_dynamic needs chroot,bash,python3,tar,ldd limit 120
# Programs with their loader and their libraries, which are found in the root directory.
put() {
    for p in "$@"; do
        b=$(readlink -f "$(command -v "$p")"); cp "$b" "r/bin/$p"; ldd "$b" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p'
    done | sort -u | while read -r l; do mkdir -p "r${l%/*}"; test -e "r$l" || cp -L "$l" "r$l"; done
}
mkdir -p r/bin r/lib64 r/tmp; put bash ls cat tar env sort wc tee chroot; ln -s bash r/bin/sh; cp -L /lib64/ld-linux-x86-64.so.2 r/lib64; export PATH=/bin:$PATH
printf '#!/bin/sh\necho "$0 $*" && pwd\n' >r/s; chmod +x r/s; printf '#!/bin/env bash\necho env "$0"\n' >r/e; chmod +x r/e
chroot r /bin/bash -c 'echo "$0"; ls /; pwd; cat <<<text; for i in 1 2; do /bin/ls /bin | wc -l; done; /s a; cd /tmp; ../s b; /e; env -i /bin/sh -c "echo \$PWD; cat /s | sort"; (exec -a name ls ..); echo more | tee f >g; cat f g; tar cf - f g | tar tf -; ls nosuch; echo $?; cat /proc/self/stat' 2>&1; echo $?
chroot r /bin/sh -c 'chroot /tmp /bin/sh' 2>&1; echo $?; mv r/lib64 r/away; chroot r /bin/ls 2>&1; echo $?; mv r/away r/lib64; chroot r /bin/ls / | wc -l
cat >p.py <<'P'
import os
here, top = os.open('.', os.O_RDONLY), os.open('/', os.O_PATH)
os.chroot('r')
print(sorted(os.listdir('/')), os.path.exists('/etc'), os.getuid(), sorted(os.listdir('.')))
os.chdir('/tmp')
print(os.getcwd(), os.popen('ls; pwd').read(), os.system('cat /s >/dev/null'))
open('/tmp/new', 'w').write('text')
os.fchdir(here)
print(open('r/tmp/new').read())
os.chdir(top) if False else os.fchdir(top)
os.chroot('.')
print(os.path.exists('/etc'), os.getcwd())
os.fchdir(here)
print(os.getcwd() == os.environ['T'])
P
python3 p.py 2>&1; rm -r r/lib* r/bin

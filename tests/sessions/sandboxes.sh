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

#:: bubblewrap needs bwrap,setpriv
share; echo text >f; chmod 666 f; mkdir d; as_user bwrap --bind / / --dev-bind /dev /dev --proc /proc sh -c 'pwd | sed "s:$T:T:"; cat f; echo more >>f; cat "$T/f"; cd d; echo x >y; mv y z; ls; exit 3'; echo $?; as_user bwrap --bind / / --dev-bind /dev /dev --proc /proc --tmpfs /mnt --unshare-all --die-with-parent sh -c 'cat f; echo $$; : >/mnt/a; ls /mnt; echo more >>f'; as_user bwrap --dev-bind / / --chdir "$T/d" cat z; cat f; as_user bwrap --dev-bind / / sh -c 'for i in 1 2 3; do cat f & done; wait; sh -c "exec sh -c \"cat f\""' | sort | uniq -c; as_user bwrap --dev-bind / / true; echo $?

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

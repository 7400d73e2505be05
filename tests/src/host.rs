//! Commands that see the host's files read-only: what kills, or makes random calls, as root must not reach
//! them.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Binds what may be written to itself, a tmpfs of its own where one is asked for, and makes all else
/// read-only.
const SCRIPT: &str = r#"
set -e
kept=
while [ "$1" != -- ]; do
    case $1 in
    tmpfs:*) point=${1#tmpfs:}; mount -t tmpfs -o size=2G,mode=1777 storm "$point" ;;
    *) point=$1; mount --bind "$point" "$point" ;;
    esac
    kept="$kept $point "
    shift
done
shift
while read -r _ point _; do
    case $kept in *" $point "*) ;; *) mount -o remount,bind,ro "$point" 2>/dev/null || : ;; esac
done </proc/self/mounts
# What was opened outside can be changed through /proc/self/fd.
[ ! /dev/null -ef /proc/self/fd/0 ] || exec </dev/null
exec "$@"
"#;

/// What a command may write to.
#[derive(Clone, Copy, Debug)]
pub enum Kept<'a> {
    /// A directory of the host.
    Directory(&'a Path),
    /// A directory of the host that is covered by an empty tmpfs of the command's own.
    Tmpfs(&'a Path),
}

/// Whether this user may make a mount namespace: root, in a container that allows it.
pub fn can_be_read_only() -> bool {
    let root = rustix::process::geteuid().is_root();
    root && Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success())
}

/// `command` in a mount namespace in which it can write to nothing of the host but `kept`. Its environment,
/// directory and standard streams are for the caller to set on what this returns.
pub fn read_only(command: &Command, kept: &[Kept]) -> Command {
    let mut wrapped = Command::new("unshare");
    wrapped.args(["--mount", "--propagation", "private", "/bin/sh", "-c", SCRIPT, "sh"]);
    for kept in kept {
        match kept {
            Kept::Directory(path) => wrapped.arg(path),
            Kept::Tmpfs(path) => {
                let mut named = OsString::from("tmpfs:");
                named.push(path);
                wrapped.arg(named)
            }
        };
    }
    wrapped.arg("--").arg(command.get_program()).args(command.get_args());
    wrapped
}

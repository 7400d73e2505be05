//! Checks a path: nobody but root and this user may be able to change what it names.
//!
//! Every directory on the way, including those of symbolic links, must belong to root or to this user. Others
//! may have write permission only if the sticky bit protects what is not theirs: the check that sshd(8) and
//! sudo(8) make. In a user namespace without the host's root, a file of an unmapped user may be root's and
//! passes.

use std::fs::{read_link, read_to_string, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::command::output::failure::reason;

/// Maximum number of symbolic links in one path, as in the kernel.
const MOST_LINKS: u32 = 40;

/// Checks the directories of an absolute path that exist.
///
/// # Errors
/// A description of what others can change.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let owners = [Some(0), Some(rustix::process::geteuid().as_raw()), unmapped()];
    let mut walk = Walk { done: PathBuf::from("/"), owners, links: 0 };
    walk.directory()?;
    match walk.follow(path) {
        Ok(()) | Err(Stop::Missing) => Ok(()),
        Err(Stop::Untrusted(why)) => Err(why),
    }
}

/// The user that represents all unmapped users of this user namespace, if the host's root is among them.
fn unmapped() -> Option<u32> {
    // It belongs to the host's root. The map of a nested namespace tells of the one around it only.
    const ROOTS: &str = "/proc/sys/kernel/overflowuid";
    let has_root = symlink_metadata(ROOTS).ok()?.uid() == 0;
    let overflow = || read_to_string(ROOTS).ok()?.trim().parse().ok();
    if has_root { None } else { overflow() }
}

enum Stop {
    /// The path ends before its last component does.
    Missing,
    Untrusted(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Stop::Untrusted(why)
    }
}

struct Walk {
    /// The path so far: without symbolic links, all checked.
    done: PathBuf,
    /// The trusted owners of directories.
    owners: [Option<u32>; 3],
    links: u32,
}

impl Walk {
    fn follow(&mut self, path: &Path) -> Result<(), Stop> {
        for component in path.components() {
            match component {
                Component::RootDir => self.done = PathBuf::from("/"),
                Component::ParentDir => _ = self.done.pop(),
                Component::CurDir | Component::Prefix(_) => {}
                Component::Normal(name) => {
                    self.done.push(name);
                    self.enter()?;
                }
            }
        }
        Ok(())
    }

    /// Checks the current component; follows a link.
    fn enter(&mut self) -> Result<(), Stop> {
        let found = match symlink_metadata(&self.done) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Stop::Missing),
            found => found.map_err(|e| format!("{}: {}", self.done.display(), reason(&e)))?,
        };
        if !found.is_symlink() {
            return Ok(self.directory()?);
        }
        self.owner(found.uid())?;
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Stop::Untrusted(format!("{}: too many symbolic links", self.done.display())));
        }
        let target = read_link(&self.done).map_err(|e| format!("{}: {}", self.done.display(), reason(&e)))?;
        self.done.pop();
        self.follow(&target)
    }

    fn directory(&self) -> Result<(), String> {
        let found =
            symlink_metadata(&self.done).map_err(|e| format!("{}: {}", self.done.display(), reason(&e)))?;
        self.owner(found.uid())?;
        match found.mode() {
            mode if mode & 0o022 != 0 && mode & 0o1000 == 0 => {
                Err(format!("others may write to {}", self.done.display()))
            }
            _ => Ok(()),
        }
    }

    fn owner(&self, owner: u32) -> Result<(), String> {
        match self.owners.contains(&Some(owner)) {
            true => Ok(()),
            false => Err(format!("{} belongs to user {owner}", self.done.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, create_dir_all, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn allow(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_on_the_way_that_others_may_write_to_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (open, own) = (dir.path().join("open"), dir.path().join("open/own"));
        create_dir_all(&own).unwrap();
        for mode in [0o777, 0o775, 0o702] {
            allow(&open, mode);
            for path in [&own, &own.join("not/there"), &open] {
                assert_eq!(check(path), Err(format!("others may write to {}", open.display())), "{mode:o}");
            }
        }
        for mode in [0o755, 0o1777] {
            allow(&open, mode);
            assert_eq!(check(&own.join("not/there")), Ok(()), "{mode:o}");
        }
    }

    #[test]
    fn links_are_checked_where_they_lie_and_where_they_lead() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["open", "safe"] {
            create_dir(at(name)).unwrap();
        }
        symlink(at("safe"), at("open/there")).unwrap();
        symlink("open/there", at("link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        assert_eq!(check(&at("link/deep")), Ok(()));
        allow(&at("open"), 0o777);
        assert_eq!(check(&at("link/deep")), Err(format!("others may write to {}", at("open").display())));
        assert!(check(&at("loop/x")).unwrap_err().contains("too many symbolic links"));
    }

    #[test]
    fn anothers_directory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("theirs");
        create_dir(&path).unwrap();
        // Only root can give a directory away.
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            assert_eq!(check(&path.join("x")), Err(format!("{} belongs to user 12345", path.display())));
        }
    }
}

//! [`Kept`]: a session, that is the region file that holds what was changed over a directory.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::failure::{Failure, REGION, USAGE, reason};

/// Longest name of a session.
const LONGEST: usize = 200;
/// How often a session that others hold is tried, and how far apart.
const PATIENCE: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// A session: a directory of the state directory.
pub(crate) struct Kept {
    /// Its name.
    pub(crate) name: OsString,
    /// The directory that it is over.
    pub(crate) over: PathBuf,
    place: PathBuf,
}

impl Kept {
    /// The session of this name, or the one named after `over`; made if it is not there.
    pub(crate) fn open(over: &Path, name: Option<&str>) -> Result<Kept, Failure> {
        let name = match name {
            Some(name) => checked(name)?,
            None => name_of(over),
        };
        let kept = Kept { place: home()?.join(&name), name, over: over.to_owned() };
        let fail =
            |e: std::io::Error| Failure::new(REGION, format!("{}: {}", kept.place.display(), reason(&e)));
        match fs::read(kept.place.join("directory")) {
            Ok(at) if at == over.as_os_str().as_bytes() => {}
            Ok(at) => {
                let at = OsStr::from_bytes(&at);
                return Err(Failure::new(
                    REGION,
                    format!("session {} is over {}; give another --session", kept.shown(), at.display()),
                ));
            }
            Err(_) => {
                DirBuilder::new().recursive(true).mode(0o700).create(&kept.place).map_err(fail)?;
                fs::write(kept.place.join("directory"), over.as_os_str().as_bytes()).map_err(fail)?;
            }
        }
        Ok(kept)
    }

    /// The session of this name, or that of the current directory or the nearest above it.
    pub(crate) fn find(name: Option<&str>) -> Result<Kept, Failure> {
        let all = all()?;
        if let Some(name) = name {
            let found = all.into_iter().find(|kept| kept.name == *name);
            return found.ok_or_else(|| Failure::new(REGION, format!("there is no session {name}")));
        }
        let here = std::env::current_dir()
            .map_err(|e| Failure::new(REGION, format!("current directory: {}", reason(&e))))?;
        let mut found: Vec<Kept> = all.into_iter().filter(|kept| here.starts_with(&kept.over)).collect();
        found.sort_by_key(|kept| kept.over.as_os_str().len());
        match (found.pop(), found.pop()) {
            (Some(kept), Some(other)) if kept.over == other.over => Err(Failure::new(
                USAGE,
                format!(
                    "{} and {} are both over {}; say --session",
                    kept.shown(),
                    other.shown(),
                    kept.over.display()
                ),
            )),
            (Some(kept), _) => Ok(kept),
            (None, _) => Err(Failure::new(
                REGION,
                "there is no session over the current directory; say --session, see lightpath sessions",
            )),
        }
    }

    /// Its name for messages.
    pub(crate) fn shown(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// The region file.
    pub(crate) fn file(&self) -> PathBuf {
        self.place.join("region")
    }

    /// What an apply has begun to write.
    pub(crate) fn journal(&self) -> PathBuf {
        self.place.join("journal")
    }

    /// Is there while a run takes over what has changed in the directory.
    pub(crate) fn renewing(&self) -> PathBuf {
        self.place.join("renewing")
    }

    /// What the undo file of an apply that has begun holds (`over/reverse.rs`).
    pub(crate) fn undo(&self) -> PathBuf {
        self.place.join("undo")
    }

    /// Keeps runs from starting, and others from applying or discarding it, until the file is closed. Waits a
    /// moment for those who do, who may be stopped.
    pub(crate) fn hold(&self) -> Result<File, Failure> {
        let fail =
            |e: std::io::Error| Failure::new(REGION, format!("{}: {}", self.place.display(), reason(&e)));
        let path = self.place.join("lock");
        let file = File::options().create(true).append(true).open(&path).map_err(fail)?;
        for tries in 0.. {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if tries < PATIENCE => std::thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let line = "is being started, applied or discarded: try again";
                    return Err(Failure::new(REGION, format!("session {} {line}", self.shown())));
                }
                Err(e) => return Err(fail(e.into())),
            }
        }
        // It may have been discarded before the lock was taken.
        let (held, there) = (file.metadata().map_err(fail)?, fs::metadata(&path));
        match there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
            true => Ok(file),
            false => Err(Failure::new(REGION, format!("session {} has just ended: try again", self.shown()))),
        }
    }

    /// Ends an apply of a part.
    pub(crate) fn end_apply(&self) -> Result<(), Failure> {
        let fail =
            |e: std::io::Error| Failure::new(REGION, format!("{}: {}", self.place.display(), reason(&e)));
        match fs::remove_file(self.undo()) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fail(e)),
            _ => {}
        }
        fs::remove_file(self.journal()).map_err(fail)
    }

    /// Forgets it.
    pub(crate) fn remove(&self) -> Result<(), Failure> {
        fs::remove_dir_all(&self.place)
            .map_err(|e| Failure::new(REGION, format!("{}: {}", self.place.display(), reason(&e))))
    }
}

/// All sessions, by name.
pub(crate) fn all() -> Result<Vec<Kept>, Failure> {
    let home = home()?;
    let mut all: Vec<Kept> = fs::read_dir(home)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let over = fs::read(entry.path().join("directory")).ok()?;
            Some(Kept { name: entry.file_name(), over: OsString::from_vec(over).into(), place: entry.path() })
        })
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// `$XDG_STATE_HOME/lightpath`, `~/.local/state/lightpath`.
fn home() -> Result<PathBuf, Failure> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    from("XDG_STATE_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("lightpath"))
        .ok_or_else(|| Failure::new(REGION, "no place for sessions: set XDG_STATE_HOME or HOME"))
}

fn checked(name: &str) -> Result<OsString, Failure> {
    let fits = !name.is_empty() && name.len() <= LONGEST && !name.starts_with('.') && !name.contains('/');
    match fits {
        true => Ok(name.into()),
        false => {
            Err(Failure::new(USAGE, format!("'{name}' is no name for a session: no slash, no dot first")))
        }
    }
}

/// The name of a directory's session: its path with a plus sign for each slash, and two for each plus sign.
fn name_of(over: &Path) -> OsString {
    let path = over.as_os_str().as_bytes();
    let mut name = Vec::new();
    for byte in path.iter().skip(1) {
        match byte {
            b'/' => name.push(b'+'),
            b'+' => name.extend(b"++"),
            byte => name.push(*byte),
        }
    }
    if name.len() > LONGEST {
        // FNV-1a of what does not fit.
        let hash = path.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        name.truncate(LONGEST - 17);
        name.extend(format!("+{hash:016x}").bytes());
    }
    if name.first() == Some(&b'.') {
        name.insert(0, b'+');
    }
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_directories_apart() {
        let name = |path: &str| name_of(Path::new(path)).into_string().unwrap();
        assert_eq!(name("/home/me/src"), "home+me+src");
        assert_ne!(name("/a/b+c"), name("/a+b/c"));
        assert!(name("/.x").starts_with('+'));
        let long = |end: &str| name(&format!("/{}/{end}", "x".repeat(300)));
        assert!(long("a").len() <= LONGEST && long("a") != long("b"));
    }
}

//! [`Kept`]: a session, that is the region file that holds what was changed over a directory.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::lock::lock;
use super::name::{checked, name_of};
use super::remove;
use super::trees::Trees;
use crate::command::output::failure::{Failure, REGION, USAGE, reason};

/// How the names of what is left of sessions begin; those of sessions begin with no dot.
const ENDED: &str = ".ended-";

/// A session: a directory of the state directory.
pub(crate) struct Kept {
    /// Its name.
    pub(crate) name: OsString,
    /// The directories that it is over.
    pub(crate) over: Trees,
    /// Where they are seen: there, unless it is over an archive.
    pub(crate) at: Trees,
    /// The archive or frozen region that the directory was unpacked from.
    pub(crate) archive: Option<PathBuf>,
    /// What is kept of it.
    pub(crate) place: PathBuf,
}

impl Kept {
    /// The session of this name, or the one named after `over`; made if it is not there.
    pub(crate) fn open(over: &Trees, name: Option<&str>) -> Result<Kept, Failure> {
        let name = match name {
            Some(name) => checked(name)?,
            None => name_of(over.all()),
        };
        let place = home()?.join(&name);
        let (over, at) = (over.clone(), over.clone());
        let kept = Kept { place, name, over, at, archive: None };
        let fail =
            |e: std::io::Error| Failure::new(REGION, format!("{}: {}", kept.place.display(), reason(&e)));
        match Kept::read(&kept.place) {
            Some(found) if found.over == kept.over => {}
            Some(found) => return Err(found.is_over_another()),
            None => {
                remove_ended()?;
                DirBuilder::new().recursive(true).mode(0o700).create(&kept.place).map_err(fail)?;
                kept.put("directory", &kept.over.to_bytes()).map_err(fail)?;
            }
        }
        Ok(kept)
    }

    /// The session in a directory, if there is one.
    pub(crate) fn read(place: &Path) -> Option<Kept> {
        let text = |name: &str| fs::read(place.join(name)).ok();
        let over = Trees::from_bytes(&text("directory")?)?;
        let at = text("at").and_then(|at| Trees::from_bytes(&at)).unwrap_or_else(|| over.clone());
        let archive = text("archive").and_then(|archive| {
            let path = archive.split(|byte| *byte == 0).next()?;
            Some(PathBuf::from(OsStr::from_bytes(path)))
        });
        let name = place.file_name()?.to_owned();
        Some(Kept { name, over, at, archive, place: place.to_owned() })
    }

    pub(crate) fn is_over_another(&self) -> Failure {
        let (name, over) = (self.shown(), self.shown_over());
        let line = format!("session {name} is over {}; give another --session", over.display());
        Failure::new(REGION, line)
    }

    /// What the user has said that it is over.
    pub(crate) fn shown_over(&self) -> OsString {
        self.archive.as_ref().map_or_else(|| self.over.shown(), |archive| archive.into())
    }

    /// The session of this name, or that of the current directory or the nearest above it.
    pub(crate) fn find(name: Option<&str>) -> Result<Kept, Failure> {
        let all = all()?;
        if let Some(name) = name {
            let path = Path::new(name).canonicalize().ok();
            // The session of that name, or the one over that directory or archive.
            let is_over = |kept: &Kept| match &kept.archive {
                Some(archive) => path.as_ref() == Some(archive),
                None => kept.over.all() == path.as_slice(),
            };
            let (mut named, mut over) = (None, Vec::new());
            for kept in all {
                if kept.name == *name {
                    named = Some(kept);
                } else if is_over(&kept) {
                    over.push(kept);
                }
            }
            return match (named.or_else(|| over.pop()), over.pop()) {
                (Some(kept), Some(other)) if kept.name != *name => {
                    Err(are_both_over(&kept, &other, path.as_deref().unwrap_or(Path::new(name))))
                }
                (Some(kept), _) => Ok(kept),
                (None, _) => Err(Failure::new(REGION, format!("there is no session {name}"))),
            };
        }
        let here = std::env::current_dir()
            .map_err(|e| Failure::new(REGION, format!("current directory: {}", reason(&e))))?;
        let is_over = |kept: Kept| {
            let tree = kept.over.with(&here).filter(|_| kept.archive.is_none())?.to_owned();
            Some((tree, kept))
        };
        let mut found: Vec<(PathBuf, Kept)> = all.into_iter().filter_map(is_over).collect();
        found.sort_by_key(|(tree, _)| tree.as_os_str().len());
        match (found.pop(), found.pop()) {
            (Some((tree, kept)), Some((also, other))) if tree == also => {
                Err(are_both_over(&kept, &other, &tree))
            }
            (Some((_, kept)), _) => Ok(kept),
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

    /// Removes a region file that was being made when its launcher was killed: a region says last that it is
    /// one. The caller holds the session.
    pub(crate) fn remove_half_made(&self) -> Result<(), Failure> {
        let fail =
            |e: std::io::Error| Failure::new(REGION, format!("{}: {}", self.file().display(), reason(&e)));
        let mut word = [0; size_of::<u64>()];
        let begun = File::open(self.file()).and_then(|mut file| file.read_exact(&mut word));
        match begun.is_ok() && word == [0; size_of::<u64>()] {
            true => fs::remove_file(self.file()).map_err(fail),
            false => Ok(()),
        }
    }

    /// What an apply has begun to write.
    pub(crate) fn journal(&self) -> PathBuf {
        self.place.join("journal")
    }

    /// The paths that an apply that was interrupted may have written.
    pub(crate) fn journaled(&self) -> BTreeSet<PathBuf> {
        let journal = fs::read(self.journal()).unwrap_or_default();
        let paths = journal.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
    }

    /// Name of a file that an apply makes before it gets its own: one that nothing else on the host has. An
    /// apply that goes on with one that was interrupted has the same.
    pub(crate) fn temporary(&self) -> std::io::Result<String> {
        match fs::read_to_string(self.place.join("temporary")) {
            Ok(name) if self.journal().exists() => return Ok(name),
            _ => {}
        }
        let mut number = [0; size_of::<u64>()];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        let name = format!(".lightpath-apply-{:016x}", u64::from_ne_bytes(number));
        self.put("temporary", name.as_bytes())?;
        Ok(name)
    }

    /// Is there while a run takes over what has changed in the directory.
    pub(crate) fn renewing(&self) -> PathBuf {
        self.place.join("renewing")
    }

    /// What the undo file of an apply that has begun holds (`over/write/reverse.rs`).
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
        if !lock(&file).map_err(fail)? {
            let line = "is being started, applied or discarded: try again";
            return Err(Failure::new(REGION, format!("session {} {line}", self.shown())));
        }
        // It may have been discarded before the lock was taken.
        let (held, there) = (file.metadata().map_err(fail)?, fs::metadata(&path));
        match there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
            true => Ok(file),
            false => Err(Failure::new(REGION, format!("session {} has just ended: try again", self.shown()))),
        }
    }

    /// Puts a file in its directory, whole or not at all.
    pub(crate) fn put(&self, name: &str, content: &[u8]) -> std::io::Result<()> {
        let part = self.place.join(name).with_extension("new");
        fs::write(&part, content)?;
        fs::rename(part, self.place.join(name))
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

    /// Forgets it. It ends at one moment, by its directory's rename: a process that is killed as it removes
    /// what is in there leaves no part of a session that others take for one.
    pub(crate) fn remove(&self) -> Result<(), Failure> {
        let fail =
            |e: std::io::Error| Failure::new(REGION, format!("{}: {}", self.place.display(), reason(&e)));
        let mut ended = OsString::from(ENDED);
        ended.push(&self.name);
        let ended = self.place.with_file_name(ended);
        remove::tree(&ended).map_err(fail)?;
        fs::rename(&self.place, &ended).map_err(fail)?;
        remove::tree(&ended).map_err(fail)
    }
}

fn are_both_over(one: &Kept, other: &Kept, tree: &Path) -> Failure {
    let (one, other, tree) = (one.shown(), other.shown(), tree.display());
    Failure::new(USAGE, format!("{one} and {other} are both over {tree}; say --session NAME"))
}

/// Removes what others that were killed have left of sessions that have ended.
pub(crate) fn remove_ended() -> Result<(), Failure> {
    for entry in fs::read_dir(home()?).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(ENDED.as_bytes()) {
            // What cannot be removed is in nobody's way.
            let _ = remove::tree(&entry.path());
        }
    }
    Ok(())
}

/// All sessions, by name.
pub(crate) fn all() -> Result<Vec<Kept>, Failure> {
    let home = home()?;
    let mut all: Vec<Kept> = fs::read_dir(home)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.file_name().as_bytes().starts_with(b"."))
        .filter_map(|entry| Kept::read(&entry.path()))
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// `$XDG_STATE_HOME/lightpath`, `~/.local/state/lightpath`.
pub(crate) fn home() -> Result<PathBuf, Failure> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    from("XDG_STATE_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("lightpath"))
        .ok_or_else(|| {
            Failure::new(REGION, "no place for sessions: set XDG_STATE_HOME or HOME to an absolute path")
        })
}

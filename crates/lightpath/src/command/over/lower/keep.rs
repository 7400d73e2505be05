//! Sessions over archives and frozen regions, each with what was unpacked in its own directory.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::form::Form;
use super::unpack::unpack;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::session::kept::{Kept, home, remove_ended};
use crate::command::session::lock::lock;
use crate::command::session::name::{checked, name_of};
use crate::command::session::remove;
use crate::command::session::trees::Trees;

/// How the names of what is no session begin.
const SCRATCH: &str = ".scratch-";

impl Kept {
    /// The session of this name, or the one named after the file, over what is unpacked from `archive`; made
    /// if it is not there. It is seen at `at`.
    pub(crate) fn open_archive(
        archive: &Path,
        form: Form,
        at: &Path,
        name: Option<&str>,
    ) -> Result<Kept, Failure> {
        let name = match name {
            Some(name) => checked(name)?,
            None => name_of(&[archive.to_owned()]),
        };
        let kept = Kept::over_archive(archive, at, name)?;
        let fail =
            |e: std::io::Error| Failure::new(REGION, format!("{}: {}", kept.place.display(), reason(&e)));
        let _held = kept.hold()?;
        remove_ended()?;
        let identity = identity(archive).map_err(fail)?;
        match Kept::read(&kept.place) {
            Some(found) if found.archive.as_deref() != Some(archive) => return Err(found.is_over_another()),
            Some(_) if fs::read(kept.place.join("archive")).map_err(fail)? != identity => {
                let line = format!(
                    "{} has changed since session {} was made: discard it, or give another --session",
                    archive.display(),
                    kept.shown()
                );
                return Err(Failure::new(REGION, line));
            }
            Some(_) => {}
            None => {
                let unpacked = kept.unpack(form);
                if let Err(failure) = unpacked {
                    // If it is left, it is no session, and the next run begins anew.
                    let _ = kept.remove();
                    return Err(failure);
                }
                kept.put("archive", &identity).map_err(fail)?;
                // Last: without it there is no session.
                kept.put("directory", &kept.over.to_bytes()).map_err(fail)?;
            }
        }
        kept.put("at", at.as_os_str().as_bytes()).map_err(fail)?;
        Ok(kept)
    }

    /// A place for what is unpacked from `archive` that is no session, and the lock that keeps others from
    /// removing it. Removes those that others have left.
    pub(crate) fn scratch(archive: &Path, form: Form, at: &Path) -> Result<(Kept, File), Failure> {
        let home = home()?;
        let fail = |e: std::io::Error| Failure::new(REGION, format!("{}: {}", home.display(), reason(&e)));
        DirBuilder::new().recursive(true).mode(0o700).create(&home).map_err(fail)?;
        // Until this one has its lock.
        let all = File::open(&home).map_err(fail)?;
        if !lock(&all).map_err(fail)? {
            return Err(Failure::new(REGION, "another run with --discard is being started: try again"));
        }
        remove_ended()?;
        for entry in fs::read_dir(&home).map_err(fail)?.flatten() {
            let place = entry.path();
            if entry.file_name().as_bytes().starts_with(SCRATCH.as_bytes())
                && let Ok(lock) = File::options().create(true).append(true).open(place.join("lock"))
                && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                // What cannot be removed is in nobody's way.
                let _ = remove::tree(&place);
            }
        }
        let name = format!("{SCRATCH}{}", std::process::id());
        let kept = Kept::over_archive(archive, at, name.into())?;
        let held = kept.hold()?;
        drop(all);
        match kept.unpack(form) {
            Ok(()) => Ok((kept, held)),
            Err(failure) => kept.remove().and(Err(failure)),
        }
    }

    /// A session over what is unpacked from `archive`, with its directory.
    fn over_archive(archive: &Path, at: &Path, name: OsString) -> Result<Kept, Failure> {
        let place = home()?.join(&name);
        let fail = |e: std::io::Error| Failure::new(REGION, format!("{}: {}", place.display(), reason(&e)));
        DirBuilder::new().recursive(true).mode(0o700).create(&place).map_err(fail)?;
        let (over, at) = (Trees::one(&place.join("tree")), Trees::one(at));
        Ok(Kept { name, over, at, archive: Some(archive.to_owned()), place })
    }

    /// Unpacks its archive. The caller holds it.
    fn unpack(&self, form: Form) -> Result<(), Failure> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let fail = |why: &str| Failure::new(REGION, format!("--over {}: {why}", archive.display()));
        // One that was killed before the session was made may have left it.
        let to = self.over.above();
        remove::tree(to).map_err(|e| fail(&reason(&e)))?;
        unpack(archive, form, to).map_err(|why| fail(why.text()))
    }
}

/// What an archive is, so that another in its place is known.
fn identity(archive: &Path) -> std::io::Result<Vec<u8>> {
    let found = fs::metadata(archive)?;
    let mut text = archive.as_os_str().as_bytes().to_vec();
    text.push(0);
    let (mtime, ctime) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    text.extend(format!("{} {} {} {mtime:?} {ctime:?}", found.dev(), found.ino(), found.size()).bytes());
    Ok(text)
}

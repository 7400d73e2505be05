//! `apply --reverse FILE`: keeps what it takes to undo an apply, which `lightpath undo` does.
//!
//! The file is a tar archive of what was at each path that is written, and is complete before anything is.
//! Its last member, [`AFTER`], says what the apply left there. It is appended once all is written: an apply
//! that was interrupted, and its file, are finished by the next.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::writer::Writer;
use crate::command::output::failure::{Failure, REGION, USAGE, reason};
use crate::command::output::message::message;
use crate::command::over::archive::{Archive, END, Member, Sockets};
use crate::command::over::compare::changes::Change;
use crate::command::over::compare::host::{self, Xattrs};
use crate::command::over::compare::tree::kind;
use crate::command::session::kept::Kept;

/// The member that says what an apply has left.
pub(crate) const AFTER: &str = ".lightpath-after";
/// How it begins.
pub(crate) const MAGIC: &str = "lightpath undo 1";

/// A file that undoes an apply.
pub(crate) struct Undo {
    file: PathBuf,
    /// Bytes of the archive of what was there.
    length: u64,
}

/// What something on the host is known by, in [`AFTER`].
pub(crate) fn trait_of(over: &Path, path: &Path) -> io::Result<String> {
    let found = match host::look(over, path) {
        Err(e) if host::is_absence(&e) => return Ok("-".to_owned()),
        found => found?,
    };
    // What a directory holds has paths of its own. An undo that is interrupted leaves it open to its owner.
    let (mode, size, times) = match found.is_dir() {
        true => (found.mode() | host::OWNERS, 0, (0, 0)),
        false => (found.mode(), found.size(), (found.mtime(), found.mtime_nsec())),
    };
    Ok(format!("{mode:o},{},{},{size},{},{}", found.dev(), found.ino(), times.0, times.1))
}

/// The type in what [`trait_of`] has said; none if nothing was there.
pub(crate) fn kind_in(said: &str) -> Option<u32> {
    let mode = said.split(',').next()?;
    u32::from_str_radix(mode, 8).ok().map(kind)
}

impl Undo {
    /// A file that does not exist yet and is not within the directory.
    pub(crate) fn place(file: &Path, kept: &Kept) -> Result<Undo, Failure> {
        let fail = |why: &str| Failure::new(USAGE, format!("--reverse {}: {why}", file.display()));
        let name = file.file_name().ok_or_else(|| fail("name a file"))?;
        let above = file.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let above = above.canonicalize().map_err(|e| fail(&reason(&e)))?;
        if let Some(tree) = kept.over.with(&above) {
            return Err(fail(&format!("name a file that is not below {}", tree.display())));
        }
        let file = above.join(name);
        match fs::symlink_metadata(&file) {
            Ok(_) => Err(fail("it exists; name another")),
            Err(_) => Ok(Undo { file, length: 0 }),
        }
    }

    /// That of an apply that was interrupted.
    pub(crate) fn begun(kept: &Kept) -> Result<Option<Undo>, Failure> {
        let Ok(text) = fs::read(kept.undo()) else { return Ok(None) };
        let parse = || {
            let at = text.iter().position(|byte| *byte == b' ')?;
            let length = std::str::from_utf8(&text[..at]).ok()?.parse().ok()?;
            Some(Undo { file: OsStr::from_bytes(&text[at + 1..]).into(), length })
        };
        // Without a journal nothing was written.
        Ok(parse().filter(|_| kept.journal().exists()))
    }

    fn fail(&self, e: &io::Error) -> Failure {
        Failure::new(REGION, format!("--reverse {}: {}", self.file.display(), reason(e)))
    }

    /// Writes what is there before anything is changed.
    pub(crate) fn begin(&self, writer: &Writer<'_>, kept: &Kept) -> Result<Undo, Failure> {
        let made = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.file)
            .map_err(|e| self.fail(&e))?;
        let written = (|| {
            let mut archive = Archive::new(io::BufWriter::new(made), Sockets::Marked);
            let is_there = |change: &&Change| host::look(writer.tree.over, &change.path).is_ok();
            for change in writer.changes.all.iter().filter(is_there) {
                put_host(&mut archive, &writer.host(&change.path)?, &change.path)?;
            }
            let made = archive.end()?.into_inner().map_err(io::IntoInnerError::into_error)?;
            made.sync_all()?;
            let length = made.metadata()?.len();
            let note = [format!("{length} ").as_bytes(), self.file.as_os_str().as_bytes()].concat();
            fs::write(kept.undo(), note)?;
            Ok(length)
        })();
        match written {
            Ok(length) => Ok(Undo { file: self.file.clone(), length }),
            Err(e) => {
                // It is of no use to anybody.
                let _ = fs::remove_file(&self.file);
                Err(self.fail(&e))
            }
        }
    }

    /// Appends what the apply has left.
    pub(crate) fn finish(&self, writer: &Writer<'_>) -> Result<(), Failure> {
        (|| {
            let mut text = format!("{MAGIC}\0").into_bytes();
            text.extend(writer.tree.over.as_os_str().as_bytes());
            text.push(0);
            for change in &writer.changes.all {
                text.extend(trait_of(writer.tree.over, &change.path)?.bytes());
                text.push(b' ');
                text.extend(change.path.as_os_str().as_bytes());
                text.push(0);
            }
            let mut file = match File::options().write(true).open(&self.file) {
                // An apply that was interrupted cannot make it anew. All is written: the session ends.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    message(format_args!("{}: has gone, the apply cannot be undone", self.file.display()));
                    return Ok(());
                }
                file => file?,
            };
            file.set_len(self.length - END.min(self.length))?;
            file.seek(SeekFrom::End(0))?;
            let mut archive = Archive::new(file, Sockets::Marked);
            let member = Member {
                path: Path::new(AFTER),
                mode: libc::S_IFREG | 0o600,
                owner: (0, 0),
                rdev: 0,
                size: text.len() as u64,
                mtime: (0, 0),
                xattrs: Xattrs::new(),
                target: None,
                identity: None,
            };
            archive.put(&member, &text[..])?;
            let mut file = archive.end()?;
            file.flush()?;
            file.sync_all()
        })()
        .map_err(|e: io::Error| self.fail(&e))
    }
}

/// Appends something of the host to an archive.
fn put_host<W: Write>(archive: &mut Archive<W>, at: &Path, path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(at)?;
    let is_link = found.is_symlink();
    let is_file = kind(found.mode()) == libc::S_IFREG;
    let member = Member {
        path: if path.as_os_str().is_empty() { Path::new(".") } else { path },
        mode: found.mode(),
        owner: (found.uid(), found.gid()),
        rdev: found.rdev(),
        size: found.size(),
        mtime: (found.mtime(), found.mtime_nsec() as u32),
        xattrs: if is_link { Xattrs::new() } else { host::xattrs(at)? },
        target: if is_link { Some(fs::read_link(at)?) } else { None },
        identity: (found.nlink() > 1 && !found.is_dir()).then(|| (found.dev(), found.ino())),
    };
    match is_file {
        true => archive.put(&member, File::open(at)?),
        false => archive.put(&member, io::empty()),
    }
}

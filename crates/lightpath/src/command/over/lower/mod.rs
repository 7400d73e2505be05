//! What `--over` can name: a directory of the host, an archive or a frozen region.
//!
//! An archive and a frozen region are unpacked once, into the directory of their session; the session is over
//! that directory. A tree is unpacked under a temporary name and gets its own once it is whole.

mod form;
mod keep;
mod region;
mod tar;
mod unpack;
mod zip;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub(crate) use form::Form;
use unpack::Unpacking;

use super::put::gone;
use crate::command::output::failure::reason;

/// Why something cannot be unpacked, as the rest of a line that begins with its name.
pub(crate) struct Why(String);

impl Why {
    fn new(why: impl Into<String>) -> Why {
        Why(why.into())
    }

    /// The text.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// An error of reading or writing at a path below the tree.
    fn at(path: &Path, error: &io::Error) -> Why {
        Why::new(format!("{}: {}", path.display(), reason(error)))
    }

    /// An error of reading the archive.
    fn broken(error: &dyn std::fmt::Display) -> Why {
        Why::new(format!("is a broken archive: {error}"))
    }
}

/// Unpacks what is at `from` to `to`, which is not there, and is not there afterwards if this fails.
pub(crate) fn unpack(from: &Path, form: Form, to: &Path) -> Result<(), Why> {
    let part = to.with_extension("part");
    let clean = |why: io::Error| Why::at(&part, &why);
    // One that was killed may have left it.
    remove(&part).map_err(clean)?;
    let done = match form {
        Form::Frozen => region::unpack(from, &part),
        Form::Zip => {
            Unpacking::begin(&part).and_then(|mut to| zip::unpack(from, &mut to).map(|()| to)?.end())
        }
        form => {
            Unpacking::begin(&part).and_then(|mut to| tar::unpack(from, form, &mut to).map(|()| to)?.end())
        }
    };
    let done = done.and_then(|()| fs::rename(&part, to).map_err(clean));
    if done.is_err() {
        // If it is left, the next one removes it.
        let _ = remove(&part);
    }
    done
}

/// Removes a tree, also one whose directories its owner may not write to.
pub(crate) fn remove(tree: &Path) -> io::Result<()> {
    match gone(fs::remove_dir_all(tree)) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            open_up(tree)?;
            gone(fs::remove_dir_all(tree))
        }
        done => done,
    }
}

fn open_up(directory: &Path) -> io::Result<()> {
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(())
}

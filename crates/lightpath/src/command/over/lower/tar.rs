//! Unpacking tar(5), also compressed by gzip(1) or zstd(1).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tar::{Archive, Entry, EntryType};

use super::form::Form;
use super::unpacking::{Unpacking, What};
use super::why::Why;
use crate::command::over::archive::{device_of, looks_of, type_of};
use crate::command::over::compare::looks::Looks;

/// Unpacks the archive at `from`.
pub(super) fn unpack(from: &Path, form: Form, to: &mut Unpacking) -> Result<(), Why> {
    let broken = |e: io::Error| Why::broken(&e);
    let file = BufReader::new(File::open(from).map_err(broken)?);
    let reader: Box<dyn Read> = match form {
        Form::TarGz => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Form::TarZst => Box::new(zstd::stream::read::Decoder::with_buffer(file).map_err(broken)?),
        _ => Box::new(file),
    };
    let mut archive = Archive::new(reader);
    for entry in archive.entries().map_err(broken)? {
        put(&mut entry.map_err(broken)?, to)?;
    }
    // What follows is read for the sake of the checksum at its end.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(|_| ()).map_err(broken)
}

fn put<R: Read>(entry: &mut Entry<'_, R>, to: &mut Unpacking) -> Result<(), Why> {
    let broken = |e: io::Error| Why::broken(&e);
    let name = entry.path_bytes().into_owned();
    let shown = String::from_utf8_lossy(&name).into_owned();
    let looks = looks_of(entry).map_err(broken)?;
    let what = entry.header().entry_type();
    let header = entry.header();
    match what {
        // Said of all members; a name of no file.
        EntryType::XGlobalHeader => Ok(()),
        EntryType::Directory => to.put(&name, What::Directory, looks),
        // Before POSIX a directory was a file with a slash.
        EntryType::Regular if name.ends_with(b"/") => {
            to.put(&name, What::Directory, Looks { mode: libc::S_IFDIR | looks.mode & 0o7777, ..looks })
        }
        EntryType::Symlink | EntryType::Link => {
            let target = entry.link_name_bytes().unwrap_or_default();
            let target = PathBuf::from(OsStr::from_bytes(&target));
            let what = if what == EntryType::Link { What::Link(target) } else { What::Symlink(target) };
            to.put(&name, what, looks)
        }
        EntryType::Fifo | EntryType::Char | EntryType::Block => {
            debug_assert_eq!(looks.mode & libc::S_IFMT, type_of(what));
            to.put(&name, What::Node(device_of(header).map_err(broken)?), looks)
        }
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            if is_sparse(entry).map_err(broken)? {
                return Err(Why::new(format!("holds {shown} as a sparse file of pax, which is not read")));
            }
            let size = entry.size();
            to.put(&name, What::File(entry, size), looks)
        }
        other => {
            Err(Why::new(format!("holds {shown} of type {:?}, which is not read", other.as_byte() as char)))
        }
    }
}

/// Whether a member's content is a map of its parts first (pax records of GNU tar).
fn is_sparse<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<bool> {
    for record in entry.pax_extensions()?.into_iter().flatten() {
        if record?.key().is_ok_and(|key| key.starts_with("GNU.sparse.")) {
            return Ok(true);
        }
    }
    Ok(false)
}

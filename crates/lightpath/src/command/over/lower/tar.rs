//! Unpacking tar(5), also compressed by gzip(1) or zstd(1).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tar_core::EntryType;

use super::form::Form;
use super::unpacking::{Unpacking, What};
use super::why::Why;
use crate::command::over::compare::looks::Looks;
use crate::command::over::members::{Member, Members};

/// Unpacks the archive at `from`.
pub(super) fn unpack(from: &Path, form: Form, to: &mut Unpacking) -> Result<(), Why> {
    let broken = |e: io::Error| Why::broken(&e);
    let file = BufReader::new(File::open(from).map_err(broken)?);
    let reader: Box<dyn Read> = match form {
        Form::TarGz => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Form::TarZst => Box::new(zstd::stream::read::Decoder::with_buffer(file).map_err(broken)?),
        _ => Box::new(file),
    };
    let mut members = Members::new(reader);
    while let Some(member) = members.next().map_err(broken)? {
        put(member, &mut members, to)?;
    }
    // What follows is read for the sake of the checksum at its end.
    io::copy(&mut members.into_inner(), &mut io::sink()).map(|_| ()).map_err(broken)
}

fn put<R: Read>(member: Member, from: &mut Members<R>, to: &mut Unpacking) -> Result<(), Why> {
    let Member { path: name, kind, target, looks, .. } = member;
    match kind {
        EntryType::Directory => to.put(&name, What::Directory, looks),
        // Before POSIX a directory was a file with a slash.
        EntryType::Regular if name.ends_with(b"/") => {
            to.put(&name, What::Directory, Looks { mode: libc::S_IFDIR | looks.mode & 0o7777, ..looks })
        }
        EntryType::Symlink | EntryType::Link => {
            let target = PathBuf::from(OsStr::from_bytes(&target));
            let what = if kind == EntryType::Link { What::Link(target) } else { What::Symlink(target) };
            to.put(&name, what, looks)
        }
        EntryType::Fifo | EntryType::Char | EntryType::Block => {
            to.put(&name, What::Node(member.device), looks)
        }
        EntryType::Regular | EntryType::Continuous | EntryType::GnuSparse => {
            to.put(&name, What::File { content: from, parts: &member.parts, size: member.size }, looks)
        }
        other => {
            let (shown, kind) = (String::from_utf8_lossy(&name), other.to_byte() as char);
            Err(Why::new(format!("holds {shown} of type {kind:?}, which is not read")))
        }
    }
}

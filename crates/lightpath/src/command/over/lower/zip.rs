//! Unpacking zip archives.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::slice::from_ref;

use rustix::fs::Timespec;
use zip::ZipArchive;
use zip::extra_fields::ExtraField;
use zip::read::ZipFile;

use super::unpacking::{Unpacking, What, own};
use super::why::Why;
use crate::command::over::compare::host::Xattrs;
use crate::command::over::compare::looks::Looks;
use crate::command::over::compare::tree::kind;

/// Unpacks the archive at `from`.
pub(super) fn unpack(from: &Path, to: &mut Unpacking) -> Result<(), Why> {
    let file = File::open(from).map_err(|e| Why::broken(&e))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|e| Why::broken(&e))?;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|e| Why::broken(&e))?;
        let name = member.name_raw().to_vec();
        let looks = looks_of(&member);
        match kind(looks.mode) {
            libc::S_IFDIR => to.put(&name, What::Directory, looks)?,
            libc::S_IFLNK => {
                let mut target = Vec::new();
                member.read_to_end(&mut target).map_err(|e| Why::broken(&e))?;
                to.put(&name, What::Symlink(OsString::from_vec(target).into()), looks)?;
            }
            _ => {
                let size = member.size();
                to.put(&name, What::File { content: &mut member, parts: from_ref(&(0..size)), size }, looks)?;
            }
        }
    }
    Ok(())
}

fn looks_of<R: Read>(member: &ZipFile<'_, R>) -> Looks {
    let kind = match (member.is_dir(), member.is_symlink()) {
        (true, _) => libc::S_IFDIR,
        (_, true) => libc::S_IFLNK,
        _ => libc::S_IFREG,
    };
    let usual = if kind == libc::S_IFDIR { 0o755 } else { 0o644 };
    let mode = kind | member.unix_mode().filter(|mode| mode & 0o777 != 0).unwrap_or(usual) & 0o7777;
    let time = Timespec { tv_sec: changed(member), tv_nsec: 0 };
    Looks { mode, owner: own(), atime: time, mtime: time, xattrs: Xattrs::new() }
}

/// When a member was changed: in UTC if it says so, else in the local time that the format has.
fn changed<R: Read>(member: &ZipFile<'_, R>) -> i64 {
    let exact = member.extra_data_fields().find_map(|field| match field {
        ExtraField::ExtendedTimestamp(times) => times.mod_time(),
        _ => None,
    });
    if let Some(exact) = exact {
        return i64::from(exact);
    }
    let Some(time) = member.last_modified() else { return 0 };
    // SAFETY: integers and a pointer, for which zero is a value; mktime reads and writes the structure alone.
    unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        parts.tm_year = i32::from(time.year()) - 1900;
        parts.tm_mon = i32::from(time.month()) - 1;
        parts.tm_mday = i32::from(time.day());
        parts.tm_hour = i32::from(time.hour());
        parts.tm_min = i32::from(time.minute());
        parts.tm_sec = i32::from(time.second());
        parts.tm_isdst = -1;
        libc::mktime(&raw mut parts)
    }
}

//! A copy of a tree at another path, in which absolute links lead where those of the original lead.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::outcome;

/// Copies the tree `from` to `to`, which does not exist and is as long, with all attributes.
pub fn tree(from: &Path, to: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("-a").args([from, to]).status()?;
    ensure!(copied.success(), "cp: {copied}");
    redirect(to, from, to, &mut HashMap::new()).with_context(|| to.display().to_string())
}

/// Makes links below `directory` that name `from` name `to` instead. `made` has the links made so far, by the
/// number of the one that each replaces: a symbolic link may have several names.
fn redirect(directory: &Path, from: &Path, to: &Path, made: &mut HashMap<u64, PathBuf>) -> Result<()> {
    let before = fs::symlink_metadata(directory)?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let link = fs::symlink_metadata(&path)?;
        if link.is_dir() {
            redirect(&path, from, to, made)?;
        }
        if !link.is_symlink() {
            continue;
        }
        let target = fs::read_link(&path)?;
        let there = outcome::rename(target.as_os_str().as_bytes().to_vec(), from, to);
        if there == target.as_os_str().as_bytes() {
            continue;
        }
        fs::remove_file(&path)?;
        match made.get(&link.ino()) {
            Some(first) => fs::hard_link(first, &path)?,
            None => {
                symlink(OsString::from_vec(there), &path)?;
                lchown(&path, Some(link.uid()), Some(link.gid()))?;
                made.insert(link.ino(), path.clone());
            }
        }
        set_times(&path, &link)?;
    }
    set_times(directory, &before)
}

fn set_times(path: &Path, like: &Metadata) -> Result<()> {
    let last_access = Timespec { tv_sec: like.atime(), tv_nsec: like.atime_nsec() };
    let last_modification = Timespec { tv_sec: like.mtime(), tv_nsec: like.mtime_nsec() };
    let times = Timestamps { last_access, last_modification };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

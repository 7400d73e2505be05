//! `lightpath undo`: takes back what an apply has written, from the file that `apply --reverse` has kept.
//!
//! A path may be touched if it is what the apply left, or already what it was before. What the apply made is
//! removed, the deepest first; then directories and files are made again in the order of the archive. Each
//! step may be done again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use clap::{Args, ValueHint};
use lp_abi::fnv::fnv1a;
use rustix::fs::{CWD, Mode};
use tar_core::EntryType;

use super::compare::host::{self, Reached};
use super::compare::tree::kind;
use super::members::{Member, Members};
use super::write::reverse::{AFTER, MAGIC, kind_in, trait_of};
use super::write::times::Times;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::message::message;
use crate::command::output::print::{print, report};
use crate::command::output::shown::{self, counted};
use crate::command::session::remove::gone;
use crate::command::session::trees::Trees;

const AFTER_HELP: &str = "\
Nothing is written if something that apply wrote has changed since: each such path is a conflict and is \
listed. An undo that was interrupted is finished by the next one. FILE is kept.

Exit status: 0 if all is as it was; 1 if there is a conflict or writing failed.";

/// `lightpath undo`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Undo {
    /// List the conflicts only; write nothing.
    #[arg(long)]
    check: bool,
    /// What apply --reverse has written.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// What stands in the file that undoes an apply.
struct Kept {
    /// The directory.
    over: PathBuf,
    /// What the apply has left, by path.
    after: BTreeMap<PathBuf, String>,
    /// Types of what was there before, by path.
    before: BTreeMap<PathBuf, u32>,
    /// Name of a file before it gets its own: one that nothing else on the host has, and that an undo which
    /// goes on with one that was interrupted has too.
    temporary: String,
}

/// Takes an apply back.
pub(crate) fn undo(args: &Undo) -> Result<u8, Failure> {
    let shown = args.file.display();
    let fail = |e: &io::Error| Failure::new(REGION, format!("{shown}: {}", reason(e)));
    let mut file = File::open(&args.file).map_err(|e| fail(&e))?;
    let kept = Kept::read(&file).map_err(|e| fail(&e))?;
    let Some(kept) = kept else {
        let line = format!("{shown} undoes no apply that has ended: see lightpath apply --reverse");
        return Err(Failure::new(REGION, line));
    };
    let _written = Trees::one(&kept.over).hold()?;
    file.rewind().map_err(|e| fail(&e))?;
    let conflicts = kept.conflicts(&file).map_err(|e| fail(&e))?;
    for path in &conflicts {
        let line = format!("conflict: {} is not what the apply left there", shown::below(path));
        message(Failure::new(REGION, line));
    }
    if !conflicts.is_empty() {
        return Err(Failure::new(
            REGION,
            format!("{}: nothing was written", counted(conflicts.len(), "conflict", "conflicts")),
        ));
    }
    let over = kept.over.display();
    if args.check {
        return print(format!("nothing is in the way in {over}\n").as_bytes());
    }
    file.rewind().map_err(|e| fail(&e))?;
    kept.restore(&file).map_err(|(path, e)| {
        Failure::new(REGION, format!("{}: {}; undo again", kept.over.join(path).display(), reason(&e)))
    })?;
    let paths = counted(kept.after.len(), "path is", "paths are");
    report(format!("{paths} as before in {over}\n"))
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The path of a member, which must lie within the directory.
fn path_of(member: &Member) -> io::Result<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(&member.path)).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            _ => return Err(bad("a member lies outside the directory")),
        }
    }
    Ok(path)
}

impl Kept {
    /// What the archive says; none if the apply has not ended, or it is another archive.
    fn read(file: &File) -> io::Result<Option<Kept>> {
        let mut before = BTreeMap::new();
        let mut last = Vec::new();
        let mut members = Members::new(BufReader::new(file));
        loop {
            let member = match members.next() {
                Ok(Some(member)) => member,
                Ok(None) => break,
                Err(e) if e.raw_os_error().is_none() => return Ok(None), // Not an archive, or cut short.
                Err(e) => return Err(e),
            };
            let path = path_of(&member)?;
            match path.as_os_str() == AFTER {
                true => _ = members.read_to_end(&mut last)?,
                false => _ = before.insert(path, kind(member.looks.mode)),
            }
        }
        let mut parts = last.split(|byte| *byte == 0);
        if parts.next() != Some(MAGIC.as_bytes()) {
            return Ok(None);
        }
        let over = PathBuf::from(OsStr::from_bytes(parts.next().unwrap_or_default()));
        let mut after = BTreeMap::new();
        for part in parts.filter(|part| !part.is_empty()) {
            let at = part.iter().position(|byte| *byte == b' ').ok_or_else(|| bad("damaged"))?;
            let what = String::from_utf8_lossy(&part[..at]).into_owned();
            after.insert(PathBuf::from(OsStr::from_bytes(&part[at + 1..])), what);
        }
        let temporary = format!(".lightpath-undo-{:016x}", fnv1a(&last));
        Ok(Some(Kept { over, after, before, temporary }))
    }

    fn host(&self, path: &Path) -> io::Result<Reached> {
        host::reach(&self.over, path)
    }

    /// Paths that are neither what the apply left nor what was there before.
    fn conflicts(&self, file: &File) -> io::Result<Vec<PathBuf>> {
        let mut others = BTreeSet::new();
        for (path, left) in &self.after {
            let now = trait_of(&self.over, path)?;
            // What the apply made is gone before what was there is put back, if they differ in type.
            let is_begun =
                now == "-" && self.before.get(path).is_none_or(|before| kind_in(left) != Some(*before));
            if now != *left && !is_begun {
                others.insert(path.clone());
            } else if !self.before.contains_key(path) && now != "-" && host::look(&self.over, path)?.is_dir()
            {
                // It is to be removed.
                for entry in fs::read_dir(self.host(path)?)? {
                    let inside = path.join(entry?.file_name());
                    if !self.after.contains_key(&inside) {
                        others.insert(inside);
                    }
                }
            }
        }
        let mut members = Members::new(BufReader::new(file));
        while let Some(member) = members.next()? {
            let path = path_of(&member)?;
            if others.contains(&path) && self.is_restored(&path, &member, &mut members)? {
                others.remove(&path);
            }
        }
        Ok(others.into_iter().collect())
    }

    /// Whether what a member holds is in its place.
    fn is_restored(&self, path: &Path, member: &Member, content: &mut impl Read) -> io::Result<bool> {
        let Ok(found) = host::look(&self.over, path) else { return Ok(false) };
        let at = self.host(path)?;
        // Of what kind a link's file is, its first name says.
        let same = member.kind == EntryType::Link || kind(found.mode()) == kind(member.looks.mode);
        Ok(same
            && match member.kind {
                EntryType::Regular if kind(found.mode()) == libc::S_IFREG => {
                    found.size() == member.size
                        && match host::regular(&at)? {
                            Some(file) => host::holds(file, |to| content.read(to))?,
                            None => false,
                        }
                }
                EntryType::Symlink => member.target == fs::read_link(&at)?.as_os_str().as_bytes(),
                EntryType::Link => {
                    let first = self.host(target_of(member))?;
                    fs::symlink_metadata(first)
                        .is_ok_and(|first| (first.dev(), first.ino()) == (found.dev(), found.ino()))
                }
                _ => true,
            })
    }

    fn restore(&self, file: &File) -> Result<(), (PathBuf, io::Error)> {
        let times = Times::of(&self.over, self.after.keys());
        // Those that stay get their modes last.
        for path in self.after.keys() {
            host::open_up(&self.over, path).map_err(|e| (path.clone(), e))?;
        }
        for path in self.after.keys().rev() {
            self.make_way(path).map_err(|e| (path.clone(), e))?;
        }
        let broken = |e: io::Error| (PathBuf::new(), e);
        let mut directories = Vec::new();
        let mut members = Members::new(BufReader::new(file));
        while let Some(member) = members.next().map_err(broken)? {
            let path = path_of(&member).map_err(broken)?;
            if path.as_os_str() == AFTER {
                continue;
            }
            self.put(&path, &member, &mut members).map_err(|e| (path.clone(), e))?;
            if member.kind == EntryType::Directory {
                directories.push((path, member.looks));
            }
        }
        for (path, looks) in directories.iter().rev() {
            self.host(path).and_then(|at| looks.give(&at)).map_err(|e| (path.clone(), e))?;
        }
        times.give()
    }

    /// Removes what the apply has made at a path, unless that is of the type that was there before.
    fn make_way(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let at = match self.host(path) {
            Err(e) if host::is_absence(&e) => return Ok(()),
            at => at?,
        };
        gone(fs::remove_file(at.with_file_name(&self.temporary)))?;
        let Ok(found) = host::look(&self.over, path) else { return Ok(()) };
        match self.before.get(path) {
            Some(before) if *before == kind(found.mode()) => Ok(()),
            _ if found.is_dir() => gone(fs::remove_dir(at)),
            _ => gone(fs::remove_file(at)),
        }
    }

    /// Puts a member in its place. A directory gets its looks once all it holds is there.
    fn put(&self, path: &Path, member: &Member, content: &mut impl Read) -> io::Result<()> {
        let at = self.host(path)?;
        if member.kind == EntryType::Directory {
            return match DirBuilder::new().mode(host::OWNERS).create(&at) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
                _ => Ok(()),
            };
        }
        let temporary = at.with_file_name(&self.temporary);
        gone(fs::remove_file(&temporary))?;
        match member.kind {
            EntryType::Link => {
                fs::hard_link(self.host(target_of(member))?, &temporary)?;
                return fs::rename(temporary, &at);
            }
            EntryType::Symlink => std::os::unix::fs::symlink(target_of(member), &temporary)?,
            EntryType::Regular if kind(member.looks.mode) == libc::S_IFREG => {
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
                io::copy(content, &mut file)?;
            }
            _ => {
                let node = rustix::fs::FileType::from_raw_mode(member.looks.mode);
                rustix::fs::mknodat(CWD, &temporary, node, Mode::from_raw_mode(0o600), member.device)?;
            }
        }
        member.looks.give(&temporary)?;
        fs::rename(temporary, &at)
    }
}

/// Where a link leads; a hard link within the directory.
fn target_of(member: &Member) -> &Path {
    Path::new(OsStr::from_bytes(&member.target))
}

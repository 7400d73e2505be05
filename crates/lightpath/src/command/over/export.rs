//! `lightpath export`: a session's tree, or what it has changed, as an archive.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use tempfile::NamedTempFile;

use super::archive::{Archive, Member, Sockets};
use super::compare::content::Bytes;
use super::compare::host::Xattrs;
use super::compare::tree::{self, New, Tree, is_dir, kind};
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::part;
use crate::command::output::print::report;
use crate::command::output::shown::counted;
use crate::command::session::kept::Kept;
use crate::command::session::open::open;
use crate::command::session::which::Which;

const AFTER_HELP: &str = "\
Owners, permissions, times, extended attributes and hard links are kept. A layer has a file .wh.NAME for \
each name that is gone, as the OCI image format does.

A new or regular FILE is there once it is complete. What else is at FILE (a device, a FIFO, a link) is \
written to; FILE - is standard output.";

/// `lightpath export`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
#[group(id = "form", required = true, multiple = false, args = ["tar", "oci"])]
pub(crate) struct Export {
    #[command(flatten)]
    which: Which,
    /// Write the whole tree, as the session shows it, to FILE.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tar: Option<PathBuf>,
    /// Write what has changed to FILE, as a layer of an OCI image.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    oci: Option<PathBuf>,
}

/// How a layer names what is gone.
const GONE: &str = ".wh.";

/// Writes the archive. A regular file is there once it is complete.
pub(crate) fn export(args: &Export) -> Result<u8, Failure> {
    let kept = Kept::find(args.which.session.as_deref())?;
    let claim = open(&kept)?;
    let Some(path) = args.tar.as_ref().or(args.oci.as_ref()) else { return Ok(0) };
    let fail = |e: &io::Error| Failure::new(REGION, format!("{}: {}", path.display(), reason(e)));
    let written = (|| {
        let to = Target::open(path)?;
        let mut archive = Archive::new(BufWriter::new(to.writer()?), Sockets::LeftOut);
        let count = claim.with_task(|task| {
            let tree = Tree::of(task, &kept);
            match args.oci.is_some() {
                true => layer(&tree, &mut archive),
                false => whole(&tree, &mut archive),
            }
        });
        let count = count.map_err(tree::error)??;
        archive.end()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        match to {
            Target::New(file) => part::complete(file, path).map(|()| Some(count)),
            Target::Open(_) => Ok(None),
        }
    })();
    match written.map_err(|e| fail(&e))? {
        Some(count) => report(format!("{} in {}\n", counted(count, "file is", "files are"), path.display())),
        // Standard output may be where the archive is.
        None => Ok(0),
    }
}

/// Where an archive goes.
enum Target {
    /// A file that is new, or takes the place of another.
    New(NamedTempFile),
    /// Anything else: a device, a FIFO, a link.
    Open(File),
}

impl Target {
    fn open(path: &Path) -> io::Result<Target> {
        if path == Path::new("-") {
            return Ok(Target::Open(io::stdout().as_fd().try_clone_to_owned()?.into()));
        }
        match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => File::create(path).map(Target::Open),
            _ => part::begin(path, 0o666).map(Target::New),
        }
    }

    fn writer(&self) -> io::Result<File> {
        match self {
            Target::New(file) => file.as_file().try_clone(),
            Target::Open(file) => file.try_clone(),
        }
    }
}

/// Appends everything; of one directory, what is below it.
fn whole<W: Write>(tree: &Tree<'_>, archive: &mut Archive<W>) -> io::Result<usize> {
    let roots = tree.roots().map(|root| root.map(|(path, _, new)| (path.to_owned(), new)));
    let mut left: Vec<(PathBuf, New)> = roots.collect::<io::Result<_>>()?;
    let mut count = 0;
    while let Some((path, new)) = left.pop() {
        if !path.as_os_str().is_empty() {
            put(tree, archive, &path, &new)?;
            count += 1;
        }
        if is_dir(new.attributes.mode) {
            let names = tree.names_now(&new)?;
            left.extend(names.into_iter().rev().map(|(name, new)| (path.join(name), new)));
        }
    }
    Ok(count)
}

/// Appends what has changed.
fn layer<W: Write>(tree: &Tree<'_>, archive: &mut Archive<W>) -> io::Result<usize> {
    let changes = tree.changes()?;
    let (mut gone, mut count) = (BTreeSet::new(), 0);
    for change in &changes.all {
        let above = change.path.parent().unwrap_or(Path::new(""));
        match &change.new {
            _ if change.path.as_os_str().is_empty() => continue,
            Some(new) => {
                let name = change.path.file_name().unwrap_or_default();
                if name.as_bytes().starts_with(GONE.as_bytes()) {
                    let line = format!(
                        "a layer cannot hold {}: .wh. says that a name is gone",
                        change.path.display()
                    );
                    return Err(io::Error::other(line));
                }
                put(tree, archive, &change.path, new)?;
                if !is_dir(new.attributes.mode) {
                    gone.insert(&change.path);
                }
            }
            None => {
                // A directory takes what it held with it, and so does what is in its place.
                let is_said = above.ancestors().any(|above| gone.contains(&above.to_owned()));
                gone.insert(&change.path);
                if is_said {
                    continue;
                }
                let mut name = OsString::from(GONE);
                name.push(change.path.file_name().unwrap_or_default());
                archive.mark(&above.join(name))?;
            }
        }
        count += 1;
    }
    Ok(count)
}

/// Appends something of the session.
fn put<W: Write>(tree: &Tree<'_>, archive: &mut Archive<W>, path: &Path, new: &New) -> io::Result<()> {
    let found = &new.attributes;
    let is_link = kind(found.mode) == libc::S_IFLNK;
    let is_file = kind(found.mode) == libc::S_IFREG;
    let member = Member {
        path,
        mode: found.mode,
        owner: (found.uid, found.gid),
        rdev: u64::from(found.rdev),
        size: found.size,
        mtime: (found.mtime.sec, found.mtime.nsec),
        xattrs: if is_link { Xattrs::new() } else { tree.xattrs(new)? },
        target: if is_link { Some(tree.target(new)?) } else { None },
        identity: (found.nlink > 1 && !is_dir(found.mode)).then(|| (0, new.inode.to_word())),
    };
    match is_file {
        true => archive.put(&member, Bytes { tree, of: new, at: 0 }),
        false => archive.put(&member, io::empty()),
    }
}

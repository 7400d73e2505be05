//! `lightpath freeze`: a consistent copy of a region that programs go on using.
//!
//! Most of the region is copied while it changes. Then all changes through mounts are held
//! ([`lp_vfs::freeze`]), and what differs is copied again. The rest of the copy is as after a crash of the
//! machine, and is rebuilt in it before it gets its name.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use lp_abi::{Errno, Fd};
use lp_region::backing::FileAge;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{Region, life_file};
use lp_vfs::below::frozen;
use rustix::fs::{FlockOperation, flock};

use crate::command::copies::extents;
use crate::command::options::mountpoint::MountPoint;
use crate::command::options::run::RegionOwner;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::message::message;
use crate::command::output::part;
use crate::command::output::print::print;
use crate::command::output::shown::human;
use crate::command::region::explain::explain;
use crate::command::region::{make, sound};
use crate::command::run::claim::Claim;
use crate::command::run::join;
use crate::command::session::kept::Kept;
use crate::command::session::open::{look, open};

const AFTER_HELP: &str = "\
The copy is consistent: programs wait before their next change until it is made. What they store through \
shared mappings is not held.

Example: lightpath freeze 4711 base.region && lightpath run --from base.region -- make check";

/// `lightpath freeze`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Freeze {
    /// The pid of a process of a run, the name of a session, or, with a slash, a region file.
    #[arg(value_name = "RUN|SESSION|./FILE")]
    what: String,
    /// The file to make.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// How often a freeze that writers have called off is tried again.
const ATTEMPTS: u32 = 5;

/// Copies the region of a run or session to a new file.
pub(crate) fn freeze(args: &Freeze) -> Result<u8, Failure> {
    let shown = args.file.display();
    let fail = |e: &io::Error| Failure::new(REGION, format!("{shown}: {}", reason(e)));
    if args.file.symlink_metadata().is_ok() {
        return Err(Failure::new(REGION, format!("{shown} exists; name another file")));
    }
    let claim = claim(&args.what)?;
    let part = part::begin(&args.file, 0o600).map_err(|e| fail(&e))?;
    let held = copied(&claim, part.as_file()).map_err(|e| fail(&e))?;
    mend(part.as_file().try_clone().map_err(|e| fail(&e))?, part.path())?;
    part::complete(part, &args.file).map_err(|e| fail(&e))?;
    let size = human(rustix::fs::stat(&args.file).map_or(0, |found| found.st_blocks as u64 * 512));
    let line = format!("{shown} holds {size}; changes were held for {:.3} ms\n", held.as_secs_f64() * 1e3);
    print(line.as_bytes())
}

/// Takes part in the run with that pid, in the session of that name, or in what uses that region file.
fn claim(what: &str) -> Result<Claim, Failure> {
    if let Ok(pid) = what.parse() {
        return join::claim(pid);
    }
    match what.contains('/') && !Path::new(what).is_dir() {
        true => look(vec![MountPoint::default()], Path::new(what), RegionOwner::User),
        false => open(&Kept::find(Some(what).filter(|name| !name.is_empty()))?),
    }
}

/// Copies the region; for how long changes were held.
fn copied(claim: &Claim, to: &File) -> io::Result<Duration> {
    // SAFETY: the region's descriptor stays open for ever, and is not closed here.
    let from = ManuallyDrop::new(unsafe { File::from_raw_fd(claim.region().fd().raw()) });
    // No run begins or is checked meanwhile.
    flock(&*from, FlockOperation::LockExclusive)?;
    let done = copied_locked(claim, &from, to);
    flock(&*from, FlockOperation::Unlock)?;
    done
}

fn copied_locked(claim: &Claim, from: &File, to: &File) -> io::Result<Duration> {
    let error = |e: Errno| io::Error::from_raw_os_error(e.number());
    // The copy is to stand on its own.
    claim.with_task(frozen::all).flatten().map_err(error)?;
    let is_shared = extents::by_reference(from, to);
    if !is_shared {
        extents::sparse(from, to)?;
    }
    for _ in 0..ATTEMPTS {
        let begun = Instant::now();
        let lasted = claim.with_task(|task| {
            let frozen = lp_vfs::freeze::begin(task).map_err(|e| match e {
                Errno::EBUSY => io::Error::other("a process does not end a change: is it stopped?"),
                e => io::Error::from_raw_os_error(e.number()),
            })?;
            let made = match is_shared {
                true => {
                    extents::by_reference(from, to).then_some(()).ok_or(io::ErrorKind::Unsupported.into())
                }
                false => extents::again(from, to).map(|_| ()),
            };
            made.map(|()| frozen.end())
        });
        let lasted = lasted.map_err(|e| io::Error::from_raw_os_error(e.number()))??;
        if lasted {
            return Ok(begun.elapsed());
        }
    }
    Err(io::Error::other("the copy takes longer than programs wait for it: try again when they write less"))
}

/// Makes a copy a sound region of its own.
fn mend(to: File, path: &Path) -> Result<(), Failure> {
    let name = path.display().to_string();
    let fail = |what: String| Failure::new(REGION, format!("{name}: {what}"));
    let fd =
        life_file::beside(Fd::new(to.into_raw_fd())).map_err(|e| fail(format!("no life file: {e:?}")))?;
    let opened = Region::open(fd).map_err(|e| Failure::new(REGION, explain(&name, e)))?;
    opened.set_identity(make::identity()?);
    opened.set_in_file(FileAge::Old);
    lp_vfs::boot::back(opened).map_err(|e| fail(format!("no room: {e:?}")))?;
    let done = lp_fsck::rebuild(opened).map_err(|e| fail(format!("cannot be rebuilt: {e:?}")))?;
    if done != lp_fsck::Rebuilt::default() {
        message(fail(sound::told(done)));
    }
    let found = lp_fsck::check(opened, lp_region::ProcessId::NONE);
    if let Some(worst) = found.first_worst() {
        return Err(fail(format!("is not sound: {}", worst.what)));
    }
    opened.header().frozen.store(1, Relaxed); // Relaxed: nobody else has the copy.
    Ok(())
}

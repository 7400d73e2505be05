//! The launcher's side of the life file ([`lp_region::life_file`]): every run of a region must use the same
//! one.
//!
//! While a run is held, some process has the life file open, at the number after the region's. The launcher
//! of another run opens it through that process's directory under /proc. When no run is held, no process is
//! alive, and the launcher creates a new life file. The caller holds the region's flock, so two launchers
//! never do either at once.

use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lp_region::layout::RUNS;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{Region, RunId, life_file};

use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::program::caller::check_outside;

/// How often the processes are scanned before the life file counts as unreachable. In each scan, the
/// processes that had it may have ended after a fork that the scan missed; and a process that ends shows no
/// descriptors any more a while before the kernel closes them.
const LOOKS: u32 = 11;
/// Pause before the second scan; before each further one it is twice as long, a second in all.
const PAUSE: Duration = Duration::from_millis(1);

/// Opens or creates the life file of a region; `name` appears in messages.
pub(crate) fn of(region: Region<'static>, name: &str) -> Result<OwnedFd, Failure> {
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(PAUSE * (1 << (look - 1)));
        }
        let numbers = numbers(region);
        if numbers.is_empty() {
            return make(region);
        }
        if let Some(found) = find(region, &numbers) {
            return Ok(found);
        }
    }
    check_outside()?;
    Err(Failure::new(
        REGION,
        format!(
            "{name} is in use by processes that cannot be seen from here, another user's or another container's: \
             start this one beside them, or wait for them to end"
        ),
    ))
}

/// The numbers of the life file's descriptor in runs that are held; empty if nobody uses the region.
pub(crate) fn numbers(region: Region<'static>) -> Vec<u32> {
    if !region.any_run_is_held() {
        return Vec::new();
    }
    let held = (1..RUNS as u32).map(RunId).filter(|run| region.run_is_held(*run));
    // Relaxed: written by a launcher under the flock.
    held.map(|run| region.run(run).descriptor.load(Relaxed) + 1).collect()
}

fn make(region: Region<'static>) -> Result<OwnedFd, Failure> {
    let made = (|| {
        let mut number = [0; 8];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        let number = u64::from_ne_bytes(number);
        region.header().life.store(number, Relaxed); // Relaxed: the flock orders it for other launchers.
        life_file::create(&name(number)).map_err(|e| std::io::Error::from_raw_os_error(e.number()))
    })();
    match made {
        // SAFETY: a new descriptor that nobody else owns.
        Ok(fd) => Ok(unsafe { OwnedFd::from_raw_fd(fd.raw()) }),
        Err(e) => Err(Failure::new(REGION, format!("cannot make the life file: {}", reason(&e)))),
    }
}

/// The name of the memfd with a given number.
fn name(number: u64) -> CString {
    let name = [life_file::NAME, format!("{number:016x}").as_bytes()].concat();
    CString::new(name).unwrap_or_default()
}

/// Opens the region's life file where another process has it.
fn find(region: Region<'static>, numbers: &[u32]) -> Option<OwnedFd> {
    let name = name(region.header().life.load(Relaxed));
    let target = [b"/memfd:", name.as_bytes(), b" (deleted)"].concat();
    let is_it = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to.as_os_str().as_bytes() == target);
    let processes = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    processes
        .flat_map(|process| numbers.iter().map(move |number| process.join(format!("fd/{number}"))))
        .find_map(|link| if is_it(&link) { open(&link).filter(|_| is_it(&link)) } else { None })
}

/// The owner may open it once its mode permits.
fn open(link: &PathBuf) -> Option<OwnedFd> {
    let opened = || File::options().read(true).write(true).open(link);
    let file = match opened() {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            std::fs::set_permissions(link, Permissions::from_mode(0o600)).ok()?;
            let file = opened();
            // If this fails, only the gate keeps programs from opening it.
            let _ = std::fs::set_permissions(link, Permissions::from_mode(0o0));
            file.ok()?
        }
        opened => opened.ok()?,
    };
    Some(file.into())
}

//! The record of a run: its mounts and paths, and what is noted of its calls.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lp_abi::Errno;
use lp_region::layout::RUNS;
use lp_region::process::{CALLS_COUNTED, protections};
use lp_region::{Region, RunId};
use lp_vfs::boot::{self, RunSetup};

use crate::command::cache::builder;
use crate::command::cache::within::Library;
use crate::command::options::mountpoint::MountPoint;
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION};

/// Paths in the run record, other than its mounts.
pub(crate) struct Paths<'a> {
    /// The cache directory.
    pub(crate) cache: &'a Path,
    /// The preload library in it.
    pub(crate) preload: &'a Path,
    /// The C library that contains the gate, if there is one.
    pub(crate) library: Option<&'a Library>,
}

impl<'a> Paths<'a> {
    /// Those of a process that takes part in a run and starts no command.
    pub(crate) fn without_command(cache: &'a Path) -> Self {
        Paths { cache, preload: cache, library: None }
    }
}

/// Claims a run record. The caller holds the region's flock.
pub(super) fn claim(region: Region<'static>, options: &Options, paths: &Paths) -> Result<RunId, Failure> {
    let launcher = builder::place(paths.cache).map_err(|line| Failure::new(REGION, line))?;
    let mounts: Vec<&[u8]> = options.at.iter().map(MountPoint::in_record).collect();
    let covered = options.at.iter().enumerate().filter(|(_, mount)| mount.path().exists());
    let setup = RunSetup {
        mounts: &mounts,
        covers: covered.fold(0, |set, (number, _)| set | 1 << number),
        launcher: bytes(&launcher),
        cache: bytes(paths.cache),
        preload: bytes(paths.preload),
        library: paths.library.map(|library| bytes(&library.directory)).unwrap_or_default(),
        linker: paths.library.map_or(0, |library| library.linker),
        stats: if options.stats { CALLS_COUNTED } else { options.records },
        protections: restrictions(),
    };
    boot::claim_run(region, &setup)
        .map_err(|e| match e {
            Errno::EAGAIN => format!("{} runs use the region already; wait for one to end", RUNS - 1),
            Errno::ENAMETOOLONG => "the path of lightpath itself is too long".to_owned(),
            e => format!("the region gives no place to the run: {e:?}"),
        })
        .map_err(|line| Failure::new(REGION, line))
}

/// What the sysctls `fs.protected_*` say now. Those that cannot be read count as 0.
fn restrictions() -> u64 {
    let value = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/protected_{name}"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let bits = [
        ("symlinks", protections::SYMLINKS, 0),
        ("hardlinks", protections::HARDLINKS, 0),
        ("regular", protections::REGULAR, protections::REGULAR_BY_GROUP),
        ("fifos", protections::FIFOS, protections::FIFOS_BY_GROUP),
    ];
    bits.iter().fold(0, |set, (name, one, two)| match value(name) {
        0 => set,
        1 => set | one,
        _ => set | one | two,
    })
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

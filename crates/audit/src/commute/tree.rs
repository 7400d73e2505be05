//! The tree that pairs of calls find, and the descriptors of the two actors.

use crate::library::failed;
use anyhow::{Result, bail};
use lp_abi::linux::{O_CREAT, O_RDWR};
use lp_abi::{Errno, Fd, Result as Answer, lent};
use lp_vfs::open::{self, Opened};
use lp_vfs::{Place, Task, table};
use std::ffi::CStr;

/// The open files of each actor: two of its own, and one that both have.
pub(super) const FIRST: Fd = Fd::new(3);
pub(super) const SECOND: Fd = Fd::new(4);
pub(super) const BOTH: Fd = Fd::new(5);

/// Directories, in the order in which they are made.
const DIRECTORIES: &[&CStr] = &[c"/d", c"/e", c"/d/dir"];
/// Files of [`CONTENT`] bytes.
const FILES: &[&CStr] = &[c"/d/a", c"/d/b", c"/e/two"];
const CONTENT: usize = 4 * 4096;

/// Opens a file as a descriptor.
pub(super) fn open_at(task: &Task, fd: Fd, path: &CStr, flags: u32) -> Answer<()> {
    let Place::Inside(Opened::File(id)) = open::openat(task, Fd::CWD, lent::path(path), flags, 0o644)? else {
        return Err(Errno::ENXIO);
    };
    table::install(task, fd, id, 0)
}

/// Makes the tree, with [`BOTH`] open.
pub(super) fn make(task: &Task) -> Result<()> {
    for path in DIRECTORIES {
        lp_vfs::mkdir::mkdirat(task, Fd::CWD, lent::path(path), 0o755).map_err(failed("mkdir"))?;
    }
    for path in FILES {
        open_at(task, FIRST, path, O_RDWR | O_CREAT).map_err(failed("create"))?;
        let content: Vec<u8> = (0..CONTENT).map(|at| (at % 251) as u8).collect();
        let wrote = lp_vfs::write::write(task, FIRST, lent::bytes(&content)).map_err(failed("write"))?;
        if wrote != CONTENT {
            bail!("wrote {wrote} bytes of {CONTENT}");
        }
        lp_vfs::close::close(task, FIRST).map_err(failed("close"))?;
    }
    lp_vfs::link::linkat(task, Fd::CWD, lent::path(c"/e/two"), Fd::CWD, lent::path(c"/d/two"), 0)
        .map_err(failed("link"))?;
    lp_vfs::symlink::symlinkat(task, lent::path(c"a"), Fd::CWD, lent::path(c"/d/sym"))
        .map_err(failed("symlink"))?;
    open_at(task, BOTH, c"/d/a", O_RDWR).map_err(failed("open"))
}

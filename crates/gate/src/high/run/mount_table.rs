//! `/proc/PID/mountinfo`, `mounts` and `mountstats`: the host's lines and those of the run's mounts.
//!
//! The lines are in order of creation, and a mount on the command line was there before the program: its line
//! is the second, behind that of the root directory. A program that has mounted something finds it in the
//! last line.
//!
//! The file that the program has opened is read to its end and replaced by a memfd with the complete text as
//! of that moment.

use lp_abi::linux::{__NR_lseek, SEEK_SET};
use lp_abi::{Fd, Result};
use lp_region::sync::Ordering;
use lp_vfs::mount_show::{self, Shown};
use lp_vfs::mounts;
use lp_vfs::task::Task;

use crate::high::run::mounts::mounts as command_line;
use crate::high::run::proc_file;
use lp_abi::text::{Writer, number, parse_decimal, within};

/// Selects one of the files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountTable {
    /// `mountinfo`.
    Info,
    /// `mounts`, and `/etc/mtab`, which is a link to it.
    Mounts,
    /// `mountstats`.
    Stats,
}

/// Bytes of a host line that are parsed: enough for its numbers and its path.
const LINE: usize = 512;

/// The table that a path names, of the calling process or of any other.
pub(crate) fn of_path(path: &[u8]) -> Option<MountTable> {
    if path == b"/etc/mtab" {
        return Some(MountTable::Mounts);
    }
    let rest = path.strip_prefix(b"/proc/")?;
    if rest == b"mounts" {
        return Some(MountTable::Mounts);
    }
    let end = rest.iter().position(|byte| *byte == b'/')?;
    let process = &rest[..end];
    if process != b"self" && process != b"thread-self" && number(process).is_none() {
        return None;
    }
    let mut name = &rest[end + 1..];
    if let Some((_, of_thread)) = name.strip_prefix(b"task/").and_then(parse_decimal) {
        name = of_thread.strip_prefix(b"/")?;
    }
    match name {
        b"mountinfo" => Some(MountTable::Info),
        b"mounts" => Some(MountTable::Mounts),
        b"mountstats" => Some(MountTable::Stats),
        _ => None,
    }
}

/// The process that a path of [`of_path`] names by its number, if any.
pub(crate) fn process_of(path: &[u8]) -> Option<u32> {
    Some(parse_decimal(path.strip_prefix(b"/proc/")?)?.0)
}

/// Whether the process with this number, in the caller's pid namespace, belongs to the run.
fn is_in_run(task: &Task, pid: u32) -> bool {
    let run = task.process.run.load(Ordering::Relaxed); // Relaxed, here and below: one word each.
    task.region.processes().any(|id| {
        let record = task.region.process(id);
        record.run.load(Ordering::Relaxed) == run && record.pid.load(Ordering::Relaxed) == pid
    })
}

/// Adds the run's mounts to a table that the program has just opened as `fd`, by `path`. On failure the
/// program sees only the host's.
#[cold]
pub(crate) fn complete(task: &Task, fd: Fd, path: &[u8], table: MountTable) {
    if process_of(path).is_none_or(|pid| is_in_run(task, pid)) {
        let _ = proc_file::replace(fd, c"mounts", |to| fill(task, fd, to, table));
    }
}

/// Copies the host's lines, with ours among them.
fn fill(task: &Task, from: Fd, to: Fd, table: MountTable) -> Result<()> {
    let mut parents = Parents::new(task);
    if table == MountTable::Info {
        proc_file::each_piece(from, |bytes| {
            parents.take(bytes);
            Ok(())
        })?;
        // SAFETY: lseek(2) takes no pointers.
        unsafe { lp_abi::syscall!(__NR_lseek, from, 0, SEEK_SET) }?;
    }
    let mut is_first = true;
    proc_file::each_piece(from, |bytes| {
        let end = bytes.iter().position(|byte| *byte == b'\n').filter(|_| is_first);
        let (first, rest) = bytes.split_at(end.map_or(0, |newline| newline + 1));
        proc_file::write(to, first)?;
        if !first.is_empty() {
            is_first = false;
            lines(task, to, table, &parents, Place::OnHost)?;
        }
        proc_file::write(to, rest)
    })?;
    if is_first {
        lines(task, to, table, &parents, Place::OnHost)?;
    }
    lines(task, to, table, &parents, Place::InMount)
}

/// Which of the run's mounts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Those on the command line.
    OnHost,
    /// Those that programs have mounted in them.
    InMount,
}

/// Writes the lines of the run's mounts in one place.
fn lines(task: &Task, to: Fd, table: MountTable, parents: &Parents, place: Place) -> Result<()> {
    let run = task.process.run.load(Ordering::Relaxed); // Relaxed: immutable.
    let mut after = 0;
    // In order of creation.
    while let Some(id) = mount_show::next(task, run, after) {
        after = task.region.mount(id).serial.load(Ordering::Relaxed);
        let shown = Shown::new(task, id);
        if (place == Place::OnHost) != shown.parent.is_none() {
            continue;
        }
        let mut room = [0u8; LINE * 2];
        let mut line = Writer::new(&mut room);
        match table {
            MountTable::Info => info(task, &shown, parents, &mut line)?,
            MountTable::Mounts => plain(task, &shown, &mut line)?,
            MountTable::Stats => stats(task, &shown, &mut line)?,
        }
        // A line that does not fit, because of a path of kilobytes, is left out.
        if let Some(length) = line.finish() {
            proc_file::write(to, &room[..length])?;
        }
    }
    Ok(())
}

/// Writes a path as these files show it: bytes that would break a line are octal.
fn push_path(line: &mut Writer<'_>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b' ' => line.push(b"\\040"),
            b'\t' => line.push(b"\\011"),
            b'\n' => line.push(b"\\012"),
            b'\\' => line.push(b"\\134"),
            other => line.push(core::slice::from_ref(other)),
        }
    }
}

/// Writes a source, in which `#` is octal as well (the kernel's mangle).
fn push_source(line: &mut Writer<'_>, bytes: &[u8]) {
    for (index, piece) in bytes.split(|byte| *byte == b'#').enumerate() {
        line.push(if index == 0 { b"" } else { b"\\043" });
        push_path(line, piece);
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - tmpfs name rw,size=...`.
fn info(task: &Task, shown: &Shown, parents: &Parents, line: &mut Writer<'_>) -> Result<()> {
    line.push_decimal(mounts::shown_id(shown.id).into());
    line.push(b" ");
    match shown.parent {
        Some(parent) => line.push_decimal(mounts::shown_id(parent).into()),
        None => line.push_decimal(parents.of(mounts::path(task, shown.id)).into()),
    }
    line.push(b" ");
    line.push_decimal(shown.device.0.into());
    line.push(b":");
    line.push_decimal(shown.device.1.into());
    line.push(b" ");
    push_path(line, mount_show::root_path(task, shown.id)?);
    line.push(b" ");
    push_path(line, mount_show::point_path(task, shown.id)?);
    line.push(if shown.is_read_only { b" ro" } else { b" rw" });
    push_own_options(shown, line);
    for (name, group) in [(&b" shared:"[..], shown.peers), (b" master:", shown.master)] {
        if group != 0 {
            line.push(name);
            line.push_decimal(group.into());
        }
    }
    if shown.is_unbindable {
        line.push(b" unbindable");
    }
    line.push(b" - ");
    line.push(shown.kind());
    line.push(b" ");
    push_source(line, shown.source());
    line.push(if shown.is_superblock_read_only { b" ro" } else { b" rw" });
    push_superblock_options(shown, line);
    shown.push_fs_options(line);
    line.push(b"\n");
    Ok(())
}

/// `name /mnt tmpfs rw,noatime,size=... 0 0`.
fn plain(task: &Task, shown: &Shown, line: &mut Writer<'_>) -> Result<()> {
    push_source(line, shown.source());
    line.push(b" ");
    push_path(line, mount_show::point_path(task, shown.id)?);
    let is_read_only = shown.is_read_only || shown.is_superblock_read_only;
    line.push(b" ");
    line.push(shown.kind());
    line.push(if is_read_only { b" ro" } else { b" rw" });
    push_superblock_options(shown, line);
    push_own_options(shown, line);
    shown.push_fs_options(line);
    line.push(b" 0 0\n");
    Ok(())
}

/// `device name mounted on /mnt with fstype tmpfs`.
fn stats(task: &Task, shown: &Shown, line: &mut Writer<'_>) -> Result<()> {
    line.push(b"device ");
    push_source(line, shown.source());
    line.push(b" mounted on ");
    push_path(line, mount_show::point_path(task, shown.id)?);
    line.push(b" with fstype ");
    line.push(shown.kind());
    line.push(b"\n");
    Ok(())
}

fn push_superblock_options(shown: &Shown, line: &mut Writer<'_>) {
    for option in shown.superblock_options() {
        line.push(b",");
        line.push(option);
    }
}

fn push_own_options(shown: &Shown, line: &mut Writer<'_>) {
    for option in shown.own_options() {
        line.push(b",");
        line.push(option);
    }
}

/// The host mounts in which the run's mounts on the command line lie, determined as the host's lines pass.
struct Parents {
    /// For each path, the length of the best match and its mount.
    best: [(usize, u32); lp_region::process::RUN_MOUNTS],
    paths: [&'static [u8]; lp_region::process::RUN_MOUNTS],
    line: [u8; LINE],
    length: usize,
}

impl Parents {
    fn new(_task: &Task) -> Parents {
        let mut paths = [&b""[..]; lp_region::process::RUN_MOUNTS];
        for (to, from) in paths.iter_mut().zip(command_line().paths()) {
            *to = from;
        }
        Parents { best: [(0, 1); lp_region::process::RUN_MOUNTS], paths, line: [0; LINE], length: 0 }
    }

    /// The parent of the mount at `path`.
    fn of(&self, path: &[u8]) -> u32 {
        self.paths.iter().position(|own| *own == path).map_or(1, |index| self.best[index].1)
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                self.end_line();
            } else if let Some(place) = self.line.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    fn end_line(&mut self) {
        let line = &self.line[..self.length];
        self.length = 0;
        let mut words = line.split(|byte| *byte == b' ');
        let Some((id, _)) = words.next().and_then(parse_decimal) else { return };
        let Some(point) = words.nth(3) else { return };
        let point = if point == b"/" { b"" } else { point };
        for (path, best) in self.paths.iter().zip(&mut self.best) {
            let holds = within(path, point).is_some_and(|rest| !rest.is_empty());
            // A later line of the same length covers an earlier one.
            if holds && point.len() >= best.0 {
                *best = (point.len(), id);
            }
        }
    }
}

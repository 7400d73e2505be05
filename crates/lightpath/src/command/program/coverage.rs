//! Decides before a program starts whether it can be covered, because covering half of it is worse than
//! refusing it.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use lp_abi::refusal::Refusal;
use lp_abi::script;
use object::Endianness;
use object::elf::{DT_SONAME, EM_X86_64, FileHeader64, PT_DYNAMIC, PT_INTERP};
use object::read::ReadCache;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use rustix::fs::{Gid, StatVfsMountFlags, fstatvfs};
use rustix::thread::{CapabilitySet, capabilities, no_new_privs};

use crate::command::options::mountpoint::MountPoint;
use crate::command::output::failure::{CANNOT_RUN, Failure, NOT_FOUND, reason};

/// How the kernel starts an executable file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// A dynamically linked program.
    Dynamic,
    /// A program that starts without a loader.
    Static,
    /// A `#!` script whose interpreter, at the end of the chain, is one of these.
    Script,
    /// None of these: the kernel returns ENOEXEC, and a shell runs it as its own script.
    Text,
    /// A script whose interpreter is in a mount: only a covered process can start it.
    InMount,
}

/// Why a program is not started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It cannot be covered.
    Refused(Refusal),
    /// It cannot be examined, or is damaged.
    Other(String),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Fault::Refused(refusal)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Refused(refusal) => f.write_str(refusal.why()),
            Fault::Other(why) => f.write_str(why),
        }
    }
}

/// Depth of nested interpreters that the kernel follows (`exec_binprm`).
const DEEPEST: usize = 5;

/// Checks the program at `path`; the failure says in one line why it cannot be covered.
pub(crate) fn check(path: &Path, mounts: &[MountPoint]) -> Result<Program, Failure> {
    let mut path = path.to_owned();
    for depth in 0..=DEEPEST {
        let refuse = |why: &str| Failure::new(CANNOT_RUN, format!("{}: {why}", path.display()));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if depth > 0 && e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Failure::new(
                    NOT_FOUND,
                    format!("{}: bad interpreter: {}", path.display(), reason(&e)),
                ));
            }
            // The kernel can execute a file that the user may not read, but such a file cannot be checked.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(refuse(Refusal::Unreadable.why()));
            }
            Err(e) => return Err(refuse(&format!("cannot tell whether it can be covered: {}", reason(&e)))),
        };
        let mut head = Vec::new();
        if let Err(e) = (&file).take(script::LINE as u64).read_to_end(&mut head) {
            return Err(refuse(&reason(&e)));
        }
        if head.starts_with(b"\x7fELF") {
            let kind = check_elf(&file, &head).map_err(|why| refuse(&why.to_string()))?;
            check_privilege(&file).map_err(|why| refuse(&why.to_string()))?;
            return Ok(if depth == 0 { kind } else { Program::Script });
        }
        let interpreter = script::interpreter(&head).map(|(path, _)| path).filter(|path| !path.is_empty());
        let Some(interpreter) = interpreter else {
            // The same test as bash: a file with a NUL in its first line is not text.
            let line = head.split(|b| *b == b'\n').next().unwrap_or_default();
            return match line.contains(&0) || depth > 0 {
                true => Err(refuse("cannot execute binary file: Exec format error")),
                false => Ok(Program::Text),
            };
        };
        path = PathBuf::from(OsStr::from_bytes(&head[interpreter]));
        if mounts.iter().any(|mount| mount.covers(path.as_os_str())) {
            return Ok(Program::InMount);
        }
    }
    Err(Failure::new(CANNOT_RUN, format!("{}: too many levels of interpreters", path.display())))
}

/// Distinguishes dynamic programs from static ones.
fn check_elf(file: &File, head: &[u8]) -> Result<Program, Fault> {
    let machine = head.get(18..20).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    if head.get(4) != Some(&2) || machine != Some(EM_X86_64) {
        return Err(Refusal::Foreign.into());
    }
    let cache = ReadCache::new(file);
    let damaged = |_| Fault::Other("damaged ELF file".to_owned());
    let header = FileHeader64::<Endianness>::parse(&cache).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let segments = header.program_headers(endian, &cache).map_err(damaged)?;
    if segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP) {
        return Ok(Program::Dynamic);
    }
    // The loader itself, given the program as an argument, preloads too: it has a name but no interpreter.
    let named = segments.iter().filter(|segment| segment.p_type(endian) == PT_DYNAMIC).any(|segment| {
        let dynamic = segment.dynamic(endian, &cache).ok().flatten().unwrap_or_default();
        dynamic.iter().any(|entry| entry.d_tag(endian) == u64::from(DT_SONAME))
    });
    Ok(if named { Program::Dynamic } else { Program::Static })
}

/// Whether the kernel takes no privileges from a file for this process.
fn gives_nothing(file: &File) -> bool {
    let nosuid = fstatvfs(file).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID));
    nosuid || no_new_privs().unwrap_or(false)
}

/// The group that a program gives whoever starts it, if that changes something.
fn group_given(found: &Metadata) -> Option<Gid> {
    // Without the group's execute bit, setgid means mandatory locking and changes nothing.
    let setgid = libc::S_ISGID | libc::S_IXGRP;
    let gives = found.mode() & setgid == setgid && found.gid() != rustix::process::getegid().as_raw();
    gives.then(|| Gid::from_raw(found.gid()))
}

/// The group to take before the program at `path` is started, so that the kernel changes none.
pub(crate) fn group_to_take(path: &Path) -> Option<Gid> {
    let file = File::open(path).ok().filter(|file| !gives_nothing(file))?;
    group_given(&file.metadata().ok()?)
}

/// Whether this process may take any group.
fn may_take_groups() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETGID))
}

/// Refuses a program that the kernel would start in secure-execution mode.
fn check_privilege(file: &File) -> Result<(), Fault> {
    let found = file.metadata().map_err(|e| Fault::Other(reason(&e)))?;
    if gives_nothing(file) {
        return Ok(());
    }
    let uid = rustix::process::geteuid();
    if found.mode() & libc::S_ISUID != 0 && found.uid() != uid.as_raw() {
        return Err(Refusal::SetUser.into());
    }
    if group_given(&found).is_some() && !may_take_groups() {
        return Err(Refusal::SetGroup.into());
    }
    let capable = rustix::fs::fgetxattr(file, "security.capability", &mut [0u8; 64][..]).is_ok();
    if capable && !uid.is_root() {
        return Err(Refusal::Capabilities.into());
    }
    Ok(())
}

/// Whether the file at `path` is a program that can be covered; a script is.
pub(crate) fn coverable(path: &Path) -> Result<(), Fault> {
    let unreadable = |e: std::io::Error| Fault::Other(reason(&e));
    let file = File::open(path).map_err(unreadable)?;
    let mut head = [0u8; 64];
    let length = file.read_at(&mut head, 0).map_err(unreadable)?;
    if !head.starts_with(b"\x7fELF") {
        return Ok(());
    }
    check_elf(&file, &head[..length]).and_then(|_| check_privilege(&file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(dir: &Path, name: &str, text: &[u8]) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn what_the_kernel_would_start_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(check(Path::new("/bin/sh"), &[]).unwrap(), Program::Dynamic);
        let one = script(dir, "one", b"#! \t/bin/sh -e\n");
        assert_eq!(check(&one, &[]).unwrap(), Program::Script);
        let two = script(dir, "two", format!("#!{}\n", one.display()).as_bytes());
        assert_eq!(check(&two, &[]).unwrap(), Program::Script);
        assert_eq!(check(&script(dir, "text", b"echo hello\n"), &[]).unwrap(), Program::Text);
        assert_eq!(check(&script(dir, "empty", b""), &[]).unwrap(), Program::Text);
        let mounts = [MountPoint::new(Path::new("/light")).unwrap()];
        let inside = script(dir, "inside", b"#!/light/bin/sh\n");
        assert_eq!(check(&inside, &mounts).unwrap(), Program::InMount);
    }

    #[test]
    fn what_cannot_run_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let status = |path: &Path| check(path, &[]).unwrap_err().status;
        assert_eq!(status(&script(dir, "binary", b"\x01\x02\0\x03")), CANNOT_RUN);
        assert_eq!(status(&script(dir, "short", b"\x7fELF")), CANNOT_RUN);
        assert_eq!(status(&script(dir, "lost", b"#!/nowhere/sh\n")), NOT_FOUND);
        let ring = dir.join("ring");
        assert_eq!(status(&script(dir, "ring", format!("#!{}\n", ring.display()).as_bytes())), CANNOT_RUN);
        let mut other = std::fs::read("/bin/sh").unwrap();
        other[18] = 40;
        assert_eq!(status(&script(dir, "arm", &other)), CANNOT_RUN);
        other[18] = EM_X86_64 as u8;
        other.truncate(100);
        assert_eq!(status(&script(dir, "cut", &other)), CANNOT_RUN);
    }
}

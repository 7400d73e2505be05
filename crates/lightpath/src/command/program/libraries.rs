//! Whether the loader would look for libraries in a mount, or must load one before the gate. If so, a covered
//! process must start the command, because the gate prepares such a start.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lp_abi::library;
use object::Endianness;
use object::ReadRef;
use object::elf::{DT_AUDIT, DT_DEPAUDIT, DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRTAB, FileHeader64, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use super::lookup::in_mount;
use crate::command::options::mountpoint::MountPoint;

/// Whether an entry of the environment's LD_LIBRARY_PATH, or a directory where the loader looks by itself,
/// leads into a mount.
pub(crate) fn searched(mounts: &[MountPoint]) -> bool {
    if library::DEFAULTS.iter().any(|path| in_mount(Path::new(OsStr::from_bytes(path.to_bytes())), mounts)) {
        return true;
    }
    let value = std::env::var_os("LD_LIBRARY_PATH").filter(|value| !value.is_empty());
    value.is_some_and(|list| any(list.as_bytes(), b":;", mounts))
}

/// Whether a library that the environment's LD_PRELOAD names by a path lies in a mount, or the first one must
/// be the loader's first.
pub(crate) fn preloaded(mounts: &[MountPoint]) -> bool {
    std::env::var_os("LD_PRELOAD").is_some_and(|list| {
        if library::comes_first(library::first_of(list.as_bytes())) {
            return true;
        }
        let named = list.as_bytes().split(|b| b": ".contains(b)).filter(|entry| entry.contains(&b'/'));
        named.into_iter().any(|entry| in_mount(Path::new(OsStr::from_bytes(entry)), mounts))
    })
}

/// Whether the program at `path` makes the loader look in a mount, through its own search path or a library's
/// path, or needs a library that must be the loader's first. False for a file that cannot be read.
pub(crate) fn needed(path: &Path, mounts: &[MountPoint]) -> bool {
    File::open(path).ok().and_then(|file| leads(&file, path, mounts).ok()).unwrap_or(false)
}

fn leads(file: &File, path: &Path, mounts: &[MountPoint]) -> object::Result<bool> {
    let origin = std::fs::canonicalize(path).unwrap_or_default();
    let origin = origin.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes();
    any_string(file, &|tag, text| match tag {
        DT_RPATH | DT_RUNPATH => any(&expanded(text, origin), b":", mounts),
        DT_NEEDED if library::comes_first(text) => true,
        DT_NEEDED if text.contains(&b'/') => any(&expanded(text, origin), b"", mounts),
        _ => false,
    })
}

/// Whether the gate may be loaded into the program at `path` within the C library (`lp_sites::merge`): its
/// loader is the system's, it needs the C library by that name, and neither it nor the environment names
/// libraries, their directories or auditors. As `Environment::load` of the gate decides for all later
/// programs.
pub(crate) fn are_plain(path: &Path) -> bool {
    let none_named = |name: &str| std::env::var_os(name).is_none();
    ["LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH"].into_iter().all(none_named)
        && File::open(path).ok().and_then(|file| takes_system_library(&file).ok()).unwrap_or(false)
}

fn takes_system_library(file: &File) -> object::Result<bool> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    let mut loader = &[][..];
    for segment in header.program_headers(endian, &cache)? {
        loader = segment.interpreter(endian, &cache)?.unwrap_or(loader);
    }
    let names_paths = any_string(file, &|tag, text| match tag {
        DT_RPATH | DT_RUNPATH | DT_AUDIT | DT_DEPAUDIT => true,
        DT_NEEDED => text.contains(&b'/') || library::comes_first(text),
        _ => false,
    })?;
    let needs_it = any_string(file, &|tag, text| tag == DT_NEEDED && text == b"libc.so.6")?;
    Ok(loader == b"/lib64/ld-linux-x86-64.so.2" && needs_it && !names_paths)
}

/// The tags of dynamic entries whose values are strings, as far as they matter here.
const TEXTS: [u32; 5] = [DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_AUDIT, DT_DEPAUDIT];

/// Whether `wanted` holds for one of [`TEXTS`] and its string.
fn any_string(file: &File, wanted: &dyn Fn(u32, &[u8]) -> bool) -> object::Result<bool> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, &cache)?;
    let mut dynamic = &[][..];
    for segment in segments {
        dynamic = segment.dynamic(endian, &cache)?.unwrap_or(dynamic);
    }
    let value = |tag: u32| move |entry: &&_| Dyn::tag32(*entry, endian) == Some(tag);
    let Some(strings) = dynamic.iter().find(value(DT_STRTAB)).map(|entry| entry.d_val(endian)) else {
        return Ok(false);
    };
    let holder = segments.iter().find(|segment| {
        let start = segment.p_vaddr(endian);
        segment.p_type(endian) == PT_LOAD && (start..start + segment.p_filesz(endian)).contains(&strings)
    });
    let Some(holder) = holder else { return Ok(false) };
    let strings = holder.p_offset(endian) + (strings - holder.p_vaddr(endian));
    let end = file.metadata().map_or(0, |found| found.len());
    let mut tagged = dynamic.iter().filter_map(|entry| Some((entry.tag32(endian)?, entry.d_val(endian))));
    Ok(tagged.any(|(tag, value)| {
        let at = strings.saturating_add(value);
        TEXTS.contains(&tag) && wanted(tag, (&cache).read_bytes_at_until(at..end, 0).unwrap_or_default())
    }))
}

/// `text` with `$ORIGIN` replaced, as in ld.so(8).
fn expanded(text: &[u8], origin: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.first() {
        let token = [&b"$ORIGIN"[..], b"${ORIGIN}"].into_iter().find_map(|token| rest.strip_prefix(token));
        match token {
            Some(after) => {
                all.extend_from_slice(origin);
                rest = after;
            }
            None => {
                all.push(*first);
                rest = &rest[1..];
            }
        }
    }
    all
}

/// Whether an element of a list leads into a mount; an empty one means the working directory.
fn any(list: &[u8], separators: &[u8], mounts: &[MountPoint]) -> bool {
    list.split(|b| separators.contains(b)).any(|entry| in_mount(Path::new(OsStr::from_bytes(entry)), mounts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart() {
        let mounts = [MountPoint::new(Path::new("/light")).unwrap()];
        assert!(any(b"/usr/lib:/light/lib", b":;", &mounts));
        assert!(any(b"/usr/lib;/usr/../light", b":;", &mounts));
        assert!(!any(b"/usr/lib:/lighter:", b":;", &mounts));
    }

    #[test]
    fn the_origin_is_put_in() {
        assert_eq!(expanded(b"$ORIGIN/../lib:${ORIGIN}:$LIB", b"/a"), b"/a/../lib:/a:$LIB");
        assert_eq!(expanded(b"", b"/a"), b"");
    }

    #[test]
    fn a_program_of_the_system_takes_the_merged_library() {
        let plain = |path: &str| takes_system_library(&File::open(path).unwrap()).unwrap();
        assert!(plain("/bin/sh"));
        assert!(!plain("/lib64/ld-linux-x86-64.so.2"));
        assert!(!plain("/lib/x86_64-linux-gnu/libc.so.6"));
    }

    #[test]
    fn what_programs_need_is_read_from_them() {
        let mounts = [MountPoint::new(Path::new("/light")).unwrap()];
        assert!(!needed(Path::new("/bin/sh"), &mounts));
        assert!(!needed(Path::new("/nowhere"), &mounts));
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("m.c"), "int main(void) { return 0; }").unwrap();
        let program = dir.path().join("m");
        for (path, leads) in [("/usr/lib:/light/lib", true), ("$ORIGIN/../light", false), ("/lighter", false)]
        {
            let built = std::process::Command::new("cc")
                .arg(dir.path().join("m.c"))
                .arg("-o")
                .arg(&program)
                .arg(format!("-Wl,-rpath,{path}"))
                .status();
            assert!(built.unwrap().success());
            assert_eq!(needed(&program, &mounts), leads, "{path}");
        }
    }
}

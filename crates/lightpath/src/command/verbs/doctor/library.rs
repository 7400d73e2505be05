//! The C library and the loader: the objects whose system calls the gate intercepts.

use std::path::{Path, PathBuf};

use lp_abi::outline::FOR_HOST;

use super::finding::{Finding, human};
use crate::command::cache::within::{self, Outlines};
use crate::command::cache::{directory, preload};
use crate::command::verbs::sites;

pub(super) fn findings() -> Vec<Finding> {
    vec![
        preload_library(),
        object_line("C library", c_library()),
        object_line("loader", loader()),
        library_with_gate(),
    ]
}

/// Whether programs can get the gate within the C library.
fn library_with_gate() -> Finding {
    const WHAT: &str = "both in one";
    let outlines = Outlines::from_environment();
    match outlines.and_then(|outlines| within::place(&directory::find()?, outlines)) {
        Ok(library) => {
            let linker = match library.linker & FOR_HOST {
                0 => "with the system's linker",
                _ => "with a linker that knows the processor",
            };
            let directory = library.directory.display();
            Finding::ok(WHAT, format!("{directory}, for programs that start quickly, {linker}"))
        }
        Err(why) => Finding::warn(WHAT, format!("{why}: the gate is preloaded, programs start more slowly")),
    }
}

fn preload_library() -> Finding {
    const WHAT: &str = "gate";
    match directory::find().and_then(|cache| preload::extract(&cache)) {
        Ok(path) => Finding::ok(WHAT, format!("{}, {}", path.display(), human(preload::size() as u64))),
        Err(why) => Finding::fail(WHAT, why),
    }
}

/// The C library that this process has loaded.
fn c_library() -> Option<PathBuf> {
    mapped(|name| name.starts_with("libc.so") || name.starts_with("libc-") || name.starts_with("ld-musl"))
}

fn loader() -> Option<PathBuf> {
    mapped(|name| name.starts_with("ld-"))
}

/// The first file mapped into this process whose name satisfies `wanted`.
fn mapped(wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| Some(&line[line.find('/')?..])).find(|path| {
        let name = Path::new(path).file_name().unwrap_or_default();
        wanted(&name.to_string_lossy())
    })?;
    Some(PathBuf::from(path))
}

fn object_line(about: &'static str, path: Option<PathBuf>) -> Finding {
    let Some(path) = path else {
        return Finding::warn(about, "not found: this lightpath is statically linked");
    };
    let version = if about == "C library" { version() } else { String::new() };
    let found = sites::describe(&path);
    let id = match within::build_id(&path) {
        Some(id) => format!("build {id}"),
        None => "no build-id".to_owned(),
    };
    let line = format!("{}{version}, {id}: {found}", path.display());
    match found.ends_with("patched") {
        true => Finding::ok(about, line),
        false => Finding::fail(about, line),
    }
}

#[cfg(not(target_env = "gnu"))]
fn version() -> String {
    String::new()
}

#[cfg(target_env = "gnu")]
fn version() -> String {
    // SAFETY: returns a pointer to a constant string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!(", glibc {}", version.to_string_lossy())
}

//! Programs that sessions need from the host, and the package to install when one is not there.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// Where `scripts/test` installs packages of npm and PyPI.
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/test-packages");

/// Where sessions look for programs: the distribution's own first, then where rustup puts cargo, then what
/// npm and pip have installed.
pub fn search_path() -> String {
    let mut path =
        String::from("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin");
    if let Some(cargo) =
        std::env::var_os("CARGO").map(PathBuf::from).as_deref().and_then(|cargo| cargo.parent())
    {
        path = format!("{path}:{}", cargo.display());
    }
    format!("{path}:{PACKAGES}/node_modules/.bin:{PACKAGES}/python/bin")
}

/// The full path of a program, looked for where sessions look.
pub fn find(name: &str) -> Option<PathBuf> {
    search_path().split(':').map(|dir| PathBuf::from(dir).join(name)).find(|path| path.is_file())
}

/// The first of these that is not there.
pub fn missing<'n>(names: &[&'n str]) -> Option<&'n str> {
    names.iter().copied().find(|name| find(name).is_none())
}

/// Whether a test whose programs are not there fails instead of being ignored: `scripts/test` asks for it.
pub fn all_must_run() -> bool {
    std::env::var_os("ALL_TESTS_MUST_RUN").is_some()
}

/// Fails with the package to install when one of these is missing.
pub fn require(names: &[&str]) -> Result<()> {
    match missing(names) {
        Some(name) => bail!("`{name}` is missing: install the package {} (scripts/test does)", package(name)),
        None => Ok(()),
    }
}

/// Whether a program comes from npm or PyPI, which a machine may not reach.
pub fn is_of_registry(name: &str) -> bool {
    package(name).starts_with(REGISTRY)
}

/// How the packages of [`PACKAGES`] are named.
const REGISTRY: &str = "of that name";

/// Debian's package for a program.
fn package(name: &str) -> &str {
    match name {
        "cc" | "gcc" => "gcc and libc6-dev",
        "g++" => "g++",
        "python3" => "python3",
        "node" => "nodejs",
        "npm" => "npm",
        "go" => "golang-go",
        "busybox" => "busybox-static",
        "musl-gcc" => "musl-tools",
        "java" | "javac" => "default-jdk-headless",
        "xz" => "xz-utils",
        "script" => "bsdutils",
        "mkfs.ext2" => "e2fsprogs",
        "bwrap" => "bubblewrap",
        library if library.ends_with("/libjemalloc.so.2") => "libjemalloc2",
        library if library.ends_with("/libtcmalloc_minimal.so.4") => "libtcmalloc-minimal4",
        "man" => "man-db",
        "groff" => "groff-base",
        "unshare" | "setpriv" => "util-linux",
        "cargo" | "rustc" => "cargo (or rustup's toolchain)",
        "erl" | "erlc" => "erlang-base",
        "deno" | "esbuild" | "nodemon" | "vite" | "webpack" => "of that name from npm",
        "ruff" | "uv" | "watchmedo" => "of that name from PyPI",
        "setfacl" | "getfacl" => "acl",
        "setfattr" | "getfattr" => "attr",
        "find" | "xargs" => "findutils",
        "diff" | "cmp" => "diffutils",
        other => other,
    }
}

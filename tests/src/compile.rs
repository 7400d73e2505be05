//! The C programs of `tests/programs`: by the system's `cc`, compiled when a test first needs them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use crate::{binary, program};

/// What GCC 14 does not compile.
const NEWER_ERRORS: [&str; 4] = [
    "-Werror=implicit-function-declaration",
    "-Werror=implicit-int",
    "-Werror=int-conversion",
    "-Werror=incompatible-pointer-types",
];

/// The folder of C sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// Compiles `tests/programs/NAME.c`, or every `.c` of the folder `tests/programs/NAME`, into one program and
/// gives its path. The result is kept under a name that says what it was made of. Warnings do not count, because
/// bad arguments are the point, but those that newer compilers make errors.
pub fn compile(name: &str) -> Result<PathBuf> {
    compile_with(name, "cc", &[])
}

/// The same by another compiler, with options of its own.
pub fn compile_with(name: &str, compiler: &str, options: &[&str]) -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    program::require(&[compiler])?;
    let folder = sources().join(name);
    let mut files =
        if folder.is_dir() { sorted(&folder)? } else { vec![sources().join(format!("{name}.c"))] };
    let mut hasher = DefaultHasher::new();
    (compiler, options).hash(&mut hasher);
    for file in &files {
        std::fs::read(file).with_context(|| file.display().to_string())?.hash(&mut hasher);
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    let made = binary::scratch_dir()?.join(format!("{name}-{:016x}", hasher.finish()));
    if made.exists() {
        return Ok(made);
    }
    let unfinished = made.with_extension(format!("{}.tmp", std::process::id()));
    let output = Command::new(compiler)
        .args(["-O1", "-g", "-fexceptions", "-pthread", "-D_GNU_SOURCE"])
        .args(NEWER_ERRORS)
        .args(options)
        .arg("-o")
        .arg(&unfinished)
        .args(&files)
        .args(["-lm", "-ldl"])
        .output()
        .with_context(|| format!("cannot run {compiler}"))?;
    if !output.status.success() {
        bail!("{compiler} failed on {name}:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::rename(&unfinished, &made).with_context(|| made.display().to_string())?;
    Ok(made)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

//! The `lightpath` command under test.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// The command: `$LIGHTPATH_BIN` if set, else the release binary of this workspace, brought up to date once
/// for each test program (cargo has let go of its lock by the time tests run).
pub fn lightpath() -> Result<&'static Path> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match FOUND.get_or_init(|| find().map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(error) => bail!("{error}"),
    }
}

fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("LIGHTPATH_BIN") {
        let path = PathBuf::from(path);
        return path.canonicalize().with_context(|| format!("LIGHTPATH_BIN={}", path.display()));
    }
    build("lightpath")
}

/// The explorer, `crates/explore`, with the command beside it.
///
/// # Errors
/// When one of them cannot be built.
pub fn explorer() -> Result<PathBuf> {
    build("lightpath")?;
    build("lp-explore")
}

/// Brings the release binary of a package of this workspace up to date.
fn build(package: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--release", "-p", package, "--target-dir"])
        .arg(target_dir()?)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?)
        .output()
        .context("cannot run cargo")?;
    if !built.status.success() {
        bail!("cannot build {package}:\n{}", String::from_utf8_lossy(&built.stderr));
    }
    let path = target_dir()?.join("release").join(package);
    path.canonicalize().with_context(|| format!("no {} after building it", path.display()))
}

/// Cargo's target directory: three levels above a test program (`TARGET/release/deps/NAME`).
pub fn target_dir() -> Result<PathBuf> {
    let program = std::env::current_exe().context("current_exe")?;
    Ok(program.ancestors().nth(3).context("a test program outside of a target directory")?.to_owned())
}

/// A directory that lives as long as the target directory, for compiled programs.
pub fn scratch_dir() -> Result<PathBuf> {
    let dir = target_dir()?.join("lp-tests");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    Ok(dir)
}

/// The directory for Lightpath's own cache: the same, unless the tests run as root and other users cannot enter
/// it, as below /root. Then it is where Lightpath keeps root's cache.
pub fn cache_home() -> Result<PathBuf> {
    let dir = scratch_dir()?;
    let is_open = |dir: &Path| dir.metadata().is_ok_and(|found| found.permissions().mode() & 1 != 0);
    match rustix::process::geteuid().is_root() && !dir.ancestors().all(is_open) {
        true => Ok(PathBuf::from("/var/cache")),
        false => Ok(dir),
    }
}

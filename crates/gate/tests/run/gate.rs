//! The preload library, built for the tests, and commands that run under it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lp_sites::Bundle;

/// A gate without a region: it patches, and passes every call on.
pub struct Gate {
    library: PathBuf,
    directory: tempfile::TempDir,
}

impl Gate {
    /// Builds the preload library.
    pub fn new() -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/Cargo.toml");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--profile", "gate", "--target", "x86_64-unknown-linux-gnu"])
            .arg("--manifest-path")
            .arg(manifest)
            .arg("--target-dir")
            .arg(&target)
            .env_remove("RUSTFLAGS")
            .status();
        assert!(built.is_ok_and(|status| status.success()), "building the preload library failed");
        let library = target.join("x86_64-unknown-linux-gnu/gate/liblp_preload.so");
        let directory = tempfile::tempdir().expect("a temporary directory");
        Gate { library, directory }
    }

    /// A directory for the tests' files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The preload library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    fn bundle(&self) -> PathBuf {
        self.directory.path().join(Bundle::file_name())
    }

    /// The value of LIGHTPATH_GATE.
    pub fn value(&self) -> String {
        let own = std::env::current_exe().expect("the path of this test");
        format!("-:{}:{}", self.bundle().display(), own.display())
    }

    /// A command that runs under the gate.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &self.library).env("LIGHTPATH_GATE", self.value());
        command
    }

    /// Compiles a C program from `tests/programs` with `compiler`.
    pub fn compile(&self, compiler: &str, source: &str) -> PathBuf {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
        let to = self.directory.path().join(format!("{source}.{compiler}"));
        let status = Command::new(compiler).args(["-O1", "-w", "-pthread", "-o"]).arg(&to).arg(from).status();
        assert!(status.is_ok_and(|status| status.success()), "{compiler} failed; install gcc and musl-tools");
        to
    }
}

/// Runs a command with its output captured.
pub fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

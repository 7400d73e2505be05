//! [`Launch`]: replaces this process by the command.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::Gid;
use rustix::thread::set_thread_res_gid;

use crate::command::options::mountpoint::MountPoint;
use crate::command::options::run::Options;
use crate::command::output::failure::{CANNOT_RUN, Failure, NOT_FOUND, USAGE, reason};
use crate::command::program::coverage::{self, Program};
use crate::command::program::libraries;
use crate::command::program::lookup::{self, Found};
use crate::command::run::claim::{Claim, Slot};

/// The shell that runs a script without `#!`, as in execvp(3), and that starts commands which need a mount to
/// start.
const SHELL: &str = "/bin/sh";

/// A program with its arguments and environment, as execve(2) takes them.
pub(crate) struct Launch {
    /// The name that the user typed, for messages.
    pub(crate) name: String,
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// LD_LIBRARY_PATH, if the gate is loaded within the C library.
    library: Option<CString>,
    /// Whether LD_PRELOAD has libraries of the command's behind the gate's and stays set for it.
    keeps_preload: bool,
    /// For a static program: how LIGHTPATH_GATE refers to it, and the file to execute in its place.
    program: Option<Static>,
    /// The group to take first.
    group: Option<Gid>,
}

/// A static program, executed by way of the gate's file for such programs (`lp_gate::standalone`).
struct Static {
    path: PathBuf,
    /// Stays open in the command.
    file: File,
}

impl Launch {
    pub(super) fn new(options: &Options, command: &[OsString]) -> Result<Launch, Failure> {
        let name = &command[0];
        let search = std::env::var_os("PATH");
        let (mut program, mut group) = (None, None);
        let (path, arguments) = match lookup::find(name, search.as_deref(), &options.at)? {
            Found::Mount => through_shell(command, &options.at),
            Found::Host(path) => match coverage::check(&path, &options.at)? {
                Program::InMount => through_shell(command, &options.at),
                Program::Dynamic if libraries::needed(&path, &options.at) => {
                    through_shell(command, &options.at)
                }
                _ if libraries::searched(&options.at) || libraries::preloaded(&options.at) => {
                    through_shell(command, &options.at)
                }
                Program::Script => (path.into_os_string(), command.to_vec()),
                kind @ (Program::Static | Program::Dynamic) => {
                    group = coverage::group_to_take(&path);
                    if kind == Program::Static {
                        program = Some(Static::open(&path)?);
                    }
                    (path.into_os_string(), command.to_vec())
                }
                Program::Text => {
                    let mut arguments = vec![OsString::from(SHELL), path.into_os_string()];
                    arguments.extend_from_slice(&command[1..]);
                    (OsString::from(SHELL), arguments)
                }
            },
        };
        Ok(Launch {
            name: name.to_string_lossy().into_owned(),
            path: c_string(path)?,
            arguments: arguments.into_iter().map(c_string).collect::<Result<_, _>>()?,
            environment: Vec::new(),
            library: None,
            keeps_preload: false,
            program,
            group,
        })
    }

    pub(super) fn set_environment(
        &mut self,
        options: &Options,
        preload: &Path,
        library: Option<&Path>,
    ) -> Result<(), Failure> {
        const OURS: [&str; 3] = ["LD_PRELOAD", "LIGHTPATH", "LIGHTPATH_GATE"];
        let mut light = OsString::from("LIGHTPATH=");
        light.push(options.at[0].path());
        let mut all = vec![light];
        let own = std::env::var_os("LD_PRELOAD").filter(|own| !own.is_empty());
        let own = own.filter(|_| !libraries::preloaded(&options.at));
        // The user's own preloads follow ours and are all that the command will see. A static program loads
        // nothing.
        let path = Path::new(OsStr::from_bytes(self.path.as_bytes()));
        let library = library.filter(|_| self.program.is_none() && libraries::are_plain(path));
        let is_preloaded = self.program.is_none() && library.is_none();
        let ours = is_preloaded.then(|| preload.as_os_str().to_owned());
        self.library = library.map(|at| c_string(named("LD_LIBRARY_PATH=", at.as_os_str()))).transpose()?;
        self.keeps_preload = is_preloaded && own.is_some();
        let parts: Vec<OsString> = ours.into_iter().chain(own).collect();
        if !parts.is_empty() {
            all.insert(0, named("LD_PRELOAD=", &parts.join(OsStr::new(":"))));
        }
        for (name, value) in std::env::vars_os().filter(|(name, _)| OURS.iter().all(|ours| name != ours)) {
            let mut entry = name;
            entry.push("=");
            entry.push(value);
            all.push(entry);
        }
        self.environment = all.into_iter().map(c_string).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Makes `gate` start a static program, which cannot preload.
    pub(super) fn start_static(&mut self, gate: PathBuf) -> Result<(), Failure> {
        if self.program.is_some() {
            self.path = c_string(gate)?;
        }
        Ok(())
    }

    /// Becomes the command, in the process slot `slot` if there is one; returns only on failure.
    pub(super) fn exec(&mut self, claim: &Claim, slot: Option<&Slot>) -> Failure {
        let gate = claim.enter(slot).and_then(|gate| {
            let mut entry = OsString::from(format!("LIGHTPATH_GATE={gate}"));
            if let Some(program) = &self.program {
                // `p`: a path follows (`variables.rs` of the gate).
                entry.push(format!(":static:{}:p", program.file.as_raw_fd()));
                entry.push(&program.path);
            }
            if self.library.is_some() {
                entry.push(":within");
            }
            c_string(entry)
        });
        match gate {
            // The gate looks for both at the end. It must find an even number of variables to remove, because
            // it fills their places before the auxiliary vector with pairs.
            Ok(entry) => {
                let entries = std::iter::repeat_n(entry, if self.keeps_preload { 2 } else { 1 });
                self.environment.extend(self.library.take().into_iter().chain(entries));
            }
            Err(failure) => return failure,
        }
        let pointers = |strings: &[CString]| {
            strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        if let Some(group) = self.group
            && let Err(e) = set_thread_res_gid(group, group, group)
        {
            return Failure::new(CANNOT_RUN, format!("{}: its group: {}", self.name, reason(&e.into())));
        }
        // SAFETY: path and both arrays are NUL-terminated and outlive the call.
        unsafe { libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        let error = std::io::Error::last_os_error();
        let name = &self.name;
        match error.raw_os_error() {
            Some(libc::E2BIG) => Failure::new(
                CANNOT_RUN,
                format!("{name}: arguments and environment are too large; shorten them"),
            ),
            Some(libc::ENOENT) => {
                Failure::new(NOT_FOUND, format!("{name}: the loader that it asks for is not on this machine"))
            }
            _ => Failure::new(CANNOT_RUN, format!("{name}: {}", reason(&error))),
        }
    }
}

impl Static {
    /// Opens the program at `path`, which the user must be allowed to execute.
    fn open(path: &Path) -> Result<Static, Failure> {
        let fail =
            |e: std::io::Error| Failure::new(CANNOT_RUN, format!("{}: {}", path.display(), reason(&e)));
        let file = File::open(path).map_err(fail)?;
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).map_err(|e| fail(e.into()))?;
        Ok(Static { path: path.to_owned(), file })
    }
}

/// A covered shell that becomes the command: only a covered process finds files in a mount, and lets a
/// library be loaded before the gate. Libraries preloaded so are passed to the shell as an argument, because
/// its own loader would not find them, or would load them behind the gate.
fn through_shell(command: &[OsString], mounts: &[MountPoint]) -> (OsString, Vec<OsString>) {
    let preload = std::env::var_os("LD_PRELOAD").filter(|_| libraries::preloaded(mounts));
    let script = match preload {
        Some(_) => "export LD_PRELOAD=\"$0\"; exec \"$@\"",
        None => "exec \"$0\" \"$@\"",
    };
    let mut arguments: Vec<OsString> = [SHELL, "-c", script].map(OsString::from).to_vec();
    arguments.extend(preload);
    arguments.extend_from_slice(command);
    (OsString::from(SHELL), arguments)
}

/// A variable.
fn named(name: &str, value: &OsStr) -> OsString {
    let mut entry = OsString::from(name);
    entry.push(value);
    entry
}

fn c_string(text: impl Into<OsString>) -> Result<CString, Failure> {
    CString::new(text.into().into_vec()).map_err(|e| {
        let text = OsStr::from_bytes(&e.into_vec()).to_string_lossy().into_owned();
        Failure::new(USAGE, format!("an argument holds a NUL byte: {text}"))
    })
}

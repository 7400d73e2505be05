//! The manual page: one page for the command and its subcommands. The options come from the definition of the
//! command line; the rest is text.

use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;

use super::definition::Cli;

/// The page in roff.
pub(crate) fn page() -> std::io::Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let whole = Man::new(command.clone());
    let mut page = Vec::new();
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    page.extend_from_slice(b".SH SYNOPSIS\n");
    for verb in &verbs {
        page.extend_from_slice(synopsis(verb).as_bytes());
    }
    whole.render_description_section(&mut page)?;
    page.extend_from_slice(b".SH COMMANDS\n");
    for verb in &verbs {
        page.extend_from_slice(section(verb, verbs[0])?.as_bytes());
    }
    for text in [EXIT_STATUS, EXAMPLES, DURABILITY, ENVIRONMENT, FILES, SEE_ALSO] {
        page.extend_from_slice(text.as_bytes());
    }
    Ok(page)
}

/// The synopsis of a subcommand, as one paragraph.
fn synopsis(verb: &Command) -> String {
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
    let (name, rest) = match usage.splitn(3, ' ').collect::<Vec<_>>()[..] {
        [command, verb, rest] => (format!("{command} {verb}"), rest.to_owned()),
        _ => (usage.clone(), String::new()),
    };
    format!(".P\n.B {name}\n{rest}\n")
}

/// Description and options of a subcommand. Its sections are one level below the page's. Options that `first`
/// has too are only named.
fn section(verb: &Command, first: &Command) -> std::io::Result<String> {
    let is_everywhere = |arg: &Arg| ["help", "version"].contains(&arg.get_id().as_str());
    let is_shared = |arg: &Arg| {
        let same = |other: &Arg| arg.get_long() == other.get_long() && arg.get_help() == other.get_help();
        verb.get_name() != first.get_name()
            && arg.get_long().is_some()
            && !arg.is_hide_set()
            && !is_everywhere(arg)
            && first.get_arguments().any(same)
    };
    let shared: Vec<String> = verb
        .get_arguments()
        .filter(|arg| is_shared(arg))
        .map(|arg| format!("\\-\\-{}", arg.get_id()))
        .collect();
    let mut options = Vec::new();
    let man = Man::new(verb.clone().mut_args(|arg| {
        let hidden = is_everywhere(&arg) || arg.is_hide_set() || shared.len() > 1 && is_shared(&arg);
        arg.hide(hidden)
    }));
    man.render_description_section(&mut options)?;
    man.render_options_section(&mut options)?;
    let options =
        String::from_utf8_lossy(&options).replace(".SH DESCRIPTION\n", "").replace(".SH OPTIONS\n", "");
    let as_first = match &shared[..] {
        [] | [_] => String::new(),
        names => format!(".TP\n{}\nAs for lightpath {}\n", names.join(", "), first.get_name()),
    };
    Ok(format!(".SS lightpath {}\n{options}{as_first}", verb.get_name()))
}

const EXIT_STATUS: &str = "\
.SH EXIT STATUS
.B lightpath run
and
.B lightpath shell
exit with the command's status, or die of the signal that killed it. Otherwise the status is
.TP
127
if the command is not found;
.TP
126
if it cannot be run, or cannot be covered (setuid, or built for another machine);
.TP
2
for a usage error;
.TP
1
if the region cannot be used.
.P
.B lightpath trace
and
.B lightpath exec
end in the same way, the latter with 126 as well if the run is another user's.
.P
.B lightpath fsck
exits as
.BR fsck (8)
does: 0 if there are no errors, 1 if all errors were corrected, 4 if errors are left, 8 if FILE cannot be checked, 16
for a usage error. All other subcommands exit with 0 on success, 1 on failure, and 2 for a usage error.
";

const EXAMPLES: &str = "\
.SH EXAMPLES
.TP
Start a shell with an empty file system:
.B lightpath shell
.TP
Run a project's tests with their temporary files on Lightpath:
.B lightpath run -- sh -c 'TMPDIR=$LIGHTPATH make check'
.TP
Keep a checkout in a region file and use it again later:
.B lightpath run --region project.region -- git clone https://example.org/project.git /light/project
.br
.B lightpath run --region project.region -- make -C /light/project
.TP
Try a command on this directory, look at what it did, and take it over or forget it:
.B lightpath run --over . -- make install DESTDIR=$PWD/out
.br
.B lightpath diff
.br
.B lightpath apply
or
.B lightpath discard
.TP
Look at the files of a run from another terminal:
.B lightpath ps
.br
.B lightpath exec 4711 -- ls -lR /light
.TP
See how many calls never reached the kernel:
.B lightpath run --stats -- cp -r /usr/include /light
";

const DURABILITY: &str = "\
.SH DURABILITY
A region in memory disappears with the last process of the run.
A region in a file
.RB ( --region )
survives its processes, however they end.
.BR fsync (2),
.BR fdatasync (2),
.BR syncfs (2)
and
.BR msync (2)
write the whole region to the device. After a power failure every file that existed at the call and has not changed
since is intact; any part of a later change may be present.
The first run after a boot rebuilds the region, and reports names that led nowhere and files without a name that
went to
.IR lost+found .
.B O_SYNC
has no effect.
";

const ENVIRONMENT: &str = "\
.SH ENVIRONMENT
.TP
.B LIGHTPATH
Set in the command's environment to the path of the first mount.
.TP
.B LIGHTPATH_OUTLINES
.B always
or
.BR never :
whether dynamic programs of the host start with a dynamic linker that knows the processor's answers to CPUID.
Unless set, they do where an answer takes more than 2.5 microseconds, as on many virtual machines.
.TP
.B SHELL
The shell that
.B lightpath shell
starts.
.TP
.BR XDG_CACHE_HOME , \" XDG_STATE_HOME\" , \" HOME\"
where the gate, the site images and sessions are kept: see below.
";

const FILES: &str = "\
.SH FILES
.TP
.IR $XDG_CACHE_HOME/lightpath , \" ~/.cache/lightpath\" , \" /var/cache/lightpath\" \" \" (root), \" /tmp/lightpath-UID\"
the cache directory, the first that can be used: the gate, and patched images of libraries and programs.
It may be removed: the next program that is started in a run makes it again.
FIFOs and sockets in mounts of runs under way go with it.
.TP
.IR $XDG_STATE_HOME/lightpath , \" ~/.local/state/lightpath\"
the sessions of
.BR \"run --over\" ,
a directory each.
";

const SEE_ALSO: &str = "\
.SH SEE ALSO
.BR tmpfs (5),
.BR fsck (8),
.BR strace (1)
";

//! The manual page: one page for the command and its subcommands. What options mean comes from the definition
//! of the command line; the rest is text.

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::cli::Cli;

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
    for verb in verbs {
        page.extend_from_slice(&section(verb)?);
    }
    for text in [EXIT_STATUS, EXAMPLES, DURABILITY, ENVIRONMENT, FILES, SEE_ALSO] {
        page.extend_from_slice(text.as_bytes());
    }
    Ok(page)
}

/// How a subcommand is written, as one paragraph.
fn synopsis(verb: &Command) -> String {
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
    let (name, rest) = match usage.splitn(3, ' ').collect::<Vec<_>>()[..] {
        [command, verb, rest] => (format!("{command} {verb}"), rest.to_owned()),
        _ => (usage.clone(), String::new()),
    };
    format!(".P\n.B {name}\n{rest}\n")
}

/// What a subcommand does, and its options. Sections within a page's section are one level down.
fn section(verb: &Command) -> std::io::Result<Vec<u8>> {
    let mut options = Vec::new();
    let man = Man::new(verb.clone().mut_args(|arg| {
        let everywhere = ["help", "version"].contains(&arg.get_id().as_str());
        let hidden = everywhere || arg.is_hide_set();
        arg.hide(hidden)
    }));
    man.render_description_section(&mut options)?;
    man.render_options_section(&mut options)?;
    let options =
        String::from_utf8_lossy(&options).replace(".SH DESCRIPTION\n", "").replace(".SH OPTIONS\n", "");
    Ok(format!(".SS lightpath {}\n{options}", verb.get_name()).into_bytes())
}

const EXIT_STATUS: &str = "\
.SH EXIT STATUS
.B lightpath run
and
.B lightpath shell
end as the command does, by a signal if it does, or with
.TP
127
if the command is not found;
.TP
126
if it cannot be run, or cannot be covered (setuid, or for another machine);
.TP
2
if the command line is wrong;
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
ends as
.BR fsck (8)
does: 0 if nothing is wrong, 1 if all that was wrong is mended, 4 if something is still wrong, 8 if FILE cannot be
checked, 16 if the command line is wrong. All others end with 0, with 1 if they failed, or with 2 if the command line
is wrong.
";

const EXAMPLES: &str = "\
.SH EXAMPLES
.TP
Look around in an empty file system:
.B lightpath shell
.TP
Run the tests of a project with their temporary files in it:
.B lightpath run -- sh -c 'TMPDIR=$LIGHTPATH make check'
.TP
Keep a checkout in a region file, and work in it again later:
.B lightpath run --region project.region -- git clone https://example.org/project.git /light/project
.br
.B lightpath run --region project.region -- make -C /light/project
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
A region in memory ends with the last process of the run.
One in a file
.RB ( --region )
outlives processes, however they end.
.BR fsync (2),
.BR fdatasync (2),
.BR syncfs (2)
and
.BR msync (2)
write all of it to the device. After a loss of power every file that was there at the call and has not changed since is there;
of later changes any part may be.
The first run after a start of the machine rebuilds the region, and says so if names led nowhere or files without a name went to
.IR lost+found .
.B O_SYNC
has no effect.
";

const ENVIRONMENT: &str = "\
.SH ENVIRONMENT
.TP
.B LIGHTPATH
set in the command's environment: the path of the first mount.
.TP
.B SHELL
what
.B lightpath shell
starts.
.TP
.BR XDG_CACHE_HOME , \" HOME\"
where the gate and the site images are kept: see below.
";

const FILES: &str = "\
.SH FILES
.TP
.IR $XDG_CACHE_HOME/lightpath , \" ~/.cache/lightpath\" , \" /tmp/lightpath-UID\"
the cache directory, the first that can be used: the gate, and patched images of libraries and programs. It may be removed
when no run is under way; the next run makes it again.
";

const SEE_ALSO: &str = "\
.SH SEE ALSO
.BR tmpfs (5),
.BR fsck (8),
.BR strace (1)
";

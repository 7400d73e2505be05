//! The manual page: one page for the command and its subcommands, from the definition of the command line.

use clap::CommandFactory;
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
    whole.render_synopsis_section(&mut page)?;
    whole.render_description_section(&mut page)?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = verb.get_name().to_uppercase();
        page.extend_from_slice(format!(".SH {name}\n").as_bytes());
        let mut part = Vec::new();
        let man = Man::new(verb.clone().mut_args(|arg| {
            let everywhere = ["help", "version"].contains(&arg.get_id().as_str());
            arg.hide(everywhere)
        }));
        man.render_synopsis_section(&mut part)?;
        man.render_description_section(&mut part)?;
        man.render_options_section(&mut part)?;
        if verb.get_after_help().is_some() {
            man.render_extra_section(&mut part)?;
        }
        // Within a page the sections of a subcommand are one level down.
        let part = String::from_utf8_lossy(&part).replace(".SH EXTRA", ".SH \"EXIT STATUS\"");
        page.extend_from_slice(part.replace(".SH ", ".SS ").as_bytes());
    }
    page.extend_from_slice(DURABILITY.as_bytes());
    page.extend_from_slice(ENVIRONMENT.as_bytes());
    Ok(page)
}

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
where the gate and the site images are kept: $XDG_CACHE_HOME/lightpath, ~/.cache/lightpath, else /tmp/lightpath-UID.
";

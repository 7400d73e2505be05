//! A wrong command line, in one line.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::definition::Cli;

/// Reduces an error of clap to one line that says what to do.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let said = match error.kind() {
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let cli = Cli::command();
            let verbs = cli.get_subcommands().filter(|verb| !verb.is_hide_set());
            let verbs: Vec<&str> = verbs.map(|verb| verb.get_name()).collect();
            let (last, rest) = verbs.split_last().unwrap_or((&"run", &[]));
            format!("a subcommand is needed: {} or {last}", rest.join(", "))
        }
        ErrorKind::MissingRequiredArgument => missing(error),
        _ => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    };
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && !values.is_empty()
    {
        return format!("{said}; use one of {}", values.join(", "));
    }
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && let "help" | "version" = word.as_str()
    {
        return format!("{said}; did you mean '--{word}'? (see lightpath --help)");
    }
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let meant = meant.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => words.first().cloned(),
        _ => None,
    });
    match meant {
        Some(word) => format!("{said}; did you mean '{word}'? (see lightpath --help)"),
        None => format!("{said} (see lightpath --help)"),
    }
}

fn missing(error: &clap::Error) -> String {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let usage = usage.lines().next().unwrap_or_default();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(usage);
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::InvalidArg) else {
        return format!("an argument is missing: use {usage}");
    };
    match names.as_slice() {
        [name, ..] if name == "<RUN>" => {
            "no run to join: write lightpath exec RUN -- CMD [ARG]...; lightpath ps shows the runs".to_owned()
        }
        names if names.iter().any(|name| name.contains("CMD")) => format!("no command to run: use {usage}"),
        [name] => format!("{name} is missing: use {usage}"),
        names => format!("{} are missing: use {usage}", names.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn complaints_are_one_line() {
        for args in [
            &["lightpath"][..],
            &["lightpath", "rum"],
            &["lightpath", "run"],
            &["lightpath", "run", "--"],
            &["lightpath", "exec"],
            &["lightpath", "exec", "1"],
            &["lightpath", "exec", "x", "true"],
            &["lightpath", "run", "--sizes", "1M", "--", "true"],
            &["lightpath", "run", "--size"],
            &["lightpath", "run", "--size", "lots", "--", "true"],
            &["lightpath", "run", "--at", "a", "--", "true"],
            &["lightpath", "run", "--stats=1", "--", "true"],
            &["lightpath", "shell", "x"],
            &["lightpath", "completions", "cmd.exe"],
        ] {
            let Err(error) = Cli::try_parse_from(args) else { panic!("{args:?} parsed") };
            let line = one_line(&error);
            assert!(line.len() > 30 && !line.contains('\n'), "{args:?}: {line}");
        }
    }
}

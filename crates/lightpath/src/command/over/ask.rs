//! `run --ask`: shows what the command changed, and asks what is to become of it.

use std::io::{self, BufRead, IsTerminal, Write};

use super::compare::changes::{Change, listed};
use super::compare::tree::{self, Tree};
use super::{apply, patch};
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::message::{self, message};
use crate::command::run::claim::Claim;
use crate::command::session::open::{in_use, of_run};

/// What is to become of the changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Apply,
    Keep,
    Discard,
}

/// Whether there is somebody to ask.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Shows the changes, asks, and does what the answer says. Without changes there is nothing to ask.
pub(crate) fn at_end(claim: &Claim, options: &Options) -> Result<(), Failure> {
    let kept = of_run(options)?;
    let fail = |e: io::Error| Failure::new(REGION, format!("session {}: {}", kept.shown(), reason(&e)));
    let text = claim.with_task(|task| {
        let tree = Tree::of(task, &kept);
        let changes = tree.changes()?;
        if !changes.all.iter().any(Change::counts) {
            return Ok(None);
        }
        let shown: Vec<&Change> = changes.all.iter().filter(|change| change.is_shown()).collect();
        Ok(Some(match shown.is_empty() {
            true => b"only empty directories or times were changed\n".to_vec(),
            false => patch::stat(&tree, &listed(&shown)).text,
        }))
    });
    let Some(text) = text.map_err(|e| fail(tree::error(e)))?.map_err(fail)? else {
        message(format_args!("nothing in {} was changed", kept.over.shown().display()));
        return Ok(());
    };
    io::stderr().write_all(&text).map_err(fail)?;
    match ask(&mut io::stdin().lock()).map_err(fail)? {
        Answer::Apply => apply::at_end(claim, options).map(|_| ()),
        Answer::Keep => {
            message(format_args!("session {} keeps the changes", kept.shown()));
            Ok(())
        }
        Answer::Discard => {
            let _held = kept.hold()?;
            if claim.has_others() || claim.has_left() {
                return Err(in_use(&kept));
            }
            kept.remove()
        }
    }
}

/// Asks until there is an answer; the end of the input keeps the changes.
fn ask(from: &mut impl BufRead) -> io::Result<Answer> {
    loop {
        message::write("Apply, keep or discard? [a/k/d] ");
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            message::write("\n");
            return Ok(Answer::Keep);
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "a" | "apply" => return Ok(Answer::Apply),
            "k" | "keep" => return Ok(Answer::Keep),
            "d" | "discard" => return Ok(Answer::Discard),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_again_until_it_understands_and_keeps_at_the_end() {
        let answer = |text: &str| ask(&mut text.as_bytes()).unwrap();
        assert_eq!(answer("what\n\nA\n"), Answer::Apply);
        assert_eq!(answer("discard\n"), Answer::Discard);
        assert_eq!(answer("yes\n"), Answer::Keep);
    }
}

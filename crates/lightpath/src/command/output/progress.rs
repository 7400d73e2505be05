//! [`Progress`]: how much of something is done.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// How much of something is done: a bar on a terminal, once it has taken longer than a second.
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
}

impl Progress {
    /// None of `count` is done.
    pub(crate) fn new(what: &'static str, count: usize) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("lightpath: {msg} [{bar:30}] {pos} of {len}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
        let bar = bar.with_style(style).with_message(what);
        Progress { bar: bar.with_finish(ProgressFinish::AndClear), begun: Instant::now() }
    }

    /// One more is done.
    pub(crate) fn advance(&self) {
        if self.bar.is_hidden() && self.begun.elapsed() > Duration::from_secs(1) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(1);
    }
}

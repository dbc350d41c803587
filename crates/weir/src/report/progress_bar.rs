//! The line that says how far the bench is. It is on standard error, and only on a terminal.

use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::bench::plan::Combination;

const TEMPLATE: &str = "[{pos}/{len}] {bar:20} {msg}";

/// How far the bench is.
pub struct Progress {
    bar: ProgressBar,
    each: Duration,
}

impl Progress {
    /// Of so many runs, each of which takes about so long. Shows nothing unless `shown`, and
    /// unless standard error is a terminal.
    pub fn new(runs: usize, each: Duration, shown: bool) -> Self {
        let target = if shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(runs as u64), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("##-"));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, each }
    }

    /// A run begins.
    pub fn begin(&self, round: u32, combination: Combination) {
        self.working_on(&format!("{combination}, round {round}"));
    }

    /// A run of this description begins.
    pub fn working_on(&self, what: &str) {
        let left = self.bar.length().unwrap_or(0) - self.bar.position();
        let time = HumanDuration(self.each * left as u32);
        self.bar.set_message(format!("{what}; about {time} left"));
    }

    /// A run is over.
    pub fn end(&self) {
        self.bar.inc(1);
    }

    /// Writes a line on standard error.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("weir: {line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

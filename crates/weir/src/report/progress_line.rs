//! The progress line of a command, on standard error, and only on a terminal.

use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

const TEMPLATE: &str = "[{pos}/{len}] {bar:20} {msg}";

/// A progress line.
pub struct ProgressLine {
    bar: ProgressBar,
    each: Duration,
}

impl ProgressLine {
    /// A line for `runs` runs that take about `each`. It is hidden unless `shown`, and unless
    /// standard error is a terminal.
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

    /// A run begins, named `run`.
    pub fn begin(&self, run: &str) {
        let left = self.bar.length().unwrap_or(0) - self.bar.position();
        let time = HumanDuration(self.each * left as u32);
        self.bar.set_message(format!("{run}; about {time} left"));
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

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

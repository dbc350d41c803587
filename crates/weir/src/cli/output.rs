//! Standard output of a command.

use std::io::{Write as _, stdout};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Prints text or bytes; a closed pipe is an error, not a panic.
pub fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_ref())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// Prints a line.
pub fn line(text: &str) -> Result<()> {
    print(format!("{text}\n"))
}

/// JSON as it is printed and written to files.
pub fn json(report: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// The exit status of a command that ran meanwhile, as a shell reports it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(code as u8),
        (None, signal) => ExitCode::from(128 + signal.unwrap_or(0) as u8),
    }
}

/// Progress on a terminal, if the measurement takes more than two seconds.
pub fn progress_bar(duration: Option<Duration>) -> ProgressBar {
    let long = duration.is_none_or(|duration| duration > Duration::from_secs(2));
    let target = if long {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let length = duration.map(|duration| duration.as_millis() as u64);
    let bar = ProgressBar::with_draw_target(length, target);
    let template = match length {
        Some(_) => "measuring {bar:20} {elapsed} of {duration}",
        None => "measuring {elapsed}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("##-"));
    }
    bar
}

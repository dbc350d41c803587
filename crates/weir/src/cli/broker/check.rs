//! `weir broker check`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use broker::policy::{Checked, DEFAULT_PATH, Diagnostic, MOST_BYTES, Names, Policy, insecure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cli::output;

/// The policy has errors.
const INVALID: u8 = 1;
/// Nothing could be checked.
const COULD_NOT_CHECK: u8 = 2;

const CHECK_HELP: &str = "\
Examples:
  weir broker check
      Check /etc/weir/broker.toml
  weir broker check --format json broker.toml
      Check another file; print JSON

User and group names are those of /etc/passwd and /etc/group here.

Exit status:
  0  the policy is valid
  1  it has errors
  2  it cannot be read, or invalid arguments";

/// `weir broker check`
#[derive(Debug, Args)]
#[command(after_long_help = CHECK_HELP)]
pub struct CheckArgs {
    /// Policy
    #[arg(default_value = DEFAULT_PATH)]
    pub file: PathBuf,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// A format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines of `FILE:LINE:COLUMN: MESSAGE`, each with its line of the file
    Text,
    /// A JSON object
    Json,
}

/// Runs `weir broker check`.
pub fn run(args: &CheckArgs) -> ExitCode {
    // An error is not a fault of the policy: it has an exit code of its own.
    check(args).unwrap_or_else(|error| {
        eprintln!("weir: error: {error:#}");
        COULD_NOT_CHECK.into()
    })
}

/// The result of a check, as JSON.
#[derive(Debug, Serialize)]
struct Report<'r> {
    file: String,
    valid: bool,
    /// Names of the tenants; none of a policy with errors.
    tenants: Vec<&'r str>,
    errors: &'r [Diagnostic],
    notes: &'r [Diagnostic],
    /// Who else could change the file, for which the broker refuses it.
    insecure: Option<String>,
}

fn check(args: &CheckArgs) -> Result<ExitCode> {
    let path = &args.file;
    let (text, insecure) = read(path).with_context(|| {
        format!(
            "cannot read the policy {}: is it a readable file?",
            path.display()
        )
    })?;
    let checked = Policy::check(&text, &Names::of_host());
    let report = report(path, &checked, insecure);
    output::print(match args.format {
        Format::Text => report.text(),
        Format::Json => output::json(&report)?,
    })?;
    Ok(if report.valid {
        ExitCode::SUCCESS
    } else {
        INVALID.into()
    })
}

/// The text, and who else could change the file. A pipe has nobody.
fn read(path: &Path) -> Result<(Vec<u8>, Option<String>)> {
    let file = File::open(path)?;
    let insecure = if file.metadata()?.is_file() {
        insecure(&file)?
    } else {
        None
    };
    let mut text = Vec::new();
    // One byte more shows that it is too long.
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut text)?;
    Ok((text, insecure))
}

fn report<'r>(path: &Path, checked: &'r Checked, insecure: Option<String>) -> Report<'r> {
    let policy = checked.policy.as_ref();
    let tenants = policy.map_or(&[][..], |policy| &policy.tenants);
    Report {
        file: path.display().to_string(),
        valid: policy.is_ok(),
        tenants: tenants.iter().map(|tenant| tenant.name.as_str()).collect(),
        errors: policy.err().map_or(&[], Vec::as_slice),
        notes: &checked.notes,
        insecure,
    }
}

impl Report<'_> {
    fn text(&self) -> String {
        let file = &self.file;
        let errors = self.errors.iter().map(|error| error.render(file, ""));
        let notes = self.notes.iter().map(|note| note.render(file, "note: "));
        let mut text: String = errors.chain(notes).collect();
        if let Some(why) = &self.insecure {
            let _ = writeln!(
                text,
                "{file}: note: the broker refuses this file as it is: {why}"
            );
        }
        text + &self.summary()
    }

    fn summary(&self) -> String {
        let file = &self.file;
        let count = |count, thing| format!("{count} {thing}{}", if count == 1 { "" } else { "s" });
        if self.valid {
            let tenants = count(self.tenants.len(), "tenant");
            format!("{file}: valid, {tenants}\n")
        } else {
            format!("{file}: {}\n", count(self.errors.len(), "error"))
        }
    }
}

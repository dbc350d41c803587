//! `weir switch check`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;

use crate::cli::flags::Format;
use crate::cli::output;
use crate::report::text::plain;
use crate::switch::daemon::config::{Config, DEFAULT_PATH, Fault};

/// The configuration has faults.
const INVALID: u8 = 1;
/// Nothing could be checked.
const COULD_NOT_CHECK: u8 = 2;

const HELP: &str = "\
Exit status:
  0  the configuration is valid
  1  it has faults
  2  it cannot be read, or invalid arguments";

/// `weir switch check`
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct CheckArgs {
    /// Configuration
    #[arg(default_value = DEFAULT_PATH)]
    pub file: PathBuf,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

#[derive(Debug, Serialize)]
struct Report {
    file: String,
    valid: bool,
    bridges: Vec<String>,
    faults: Vec<Fault>,
}

/// Runs `weir switch check`.
pub fn run(args: &CheckArgs) -> ExitCode {
    check(args).unwrap_or_else(|error| {
        eprintln!("weir: error: {error:#}");
        COULD_NOT_CHECK.into()
    })
}

fn check(args: &CheckArgs) -> Result<ExitCode> {
    let file = args.file.display().to_string();
    let text = fs::read_to_string(&args.file)
        .with_context(|| format!("cannot read the configuration {file}"))?;
    let (bridges, faults) = match Config::parse(&text) {
        Ok(config) => (config.bridges.into_keys().collect(), Vec::new()),
        Err(faults) => (Vec::new(), faults),
    };
    let report = Report {
        file,
        valid: faults.is_empty(),
        bridges,
        faults,
    };
    output::print(match args.format {
        Format::Json => output::json(&report)?,
        Format::Table => report.text(),
    })?;
    Ok(if report.valid {
        ExitCode::SUCCESS
    } else {
        INVALID.into()
    })
}

impl Report {
    fn text(&self) -> String {
        let file = &self.file;
        if self.valid {
            let bridges = self.bridges.join(", ");
            let bridges = if bridges.is_empty() {
                "no bridge"
            } else {
                &bridges
            };
            return format!("{file}: valid: {}\n", plain(bridges));
        }
        let lines = self.faults.iter().map(|fault| {
            format!(
                "{file}:{}:{}: {}\n",
                fault.line,
                fault.column,
                plain(&fault.message)
            )
        });
        lines.collect()
    }
}

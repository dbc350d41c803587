//! `weir switch status`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::socket::SocketArgs;
use super::table;
use crate::cli::flags::Format;
use crate::cli::output;
use crate::switch::daemon::Report;
use crate::switch::daemon::request::{Request, ask};

/// `weir switch status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Bridge [default: all]
    pub bridge: Option<String>,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// The daemon's report.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// The daemon's configuration, if it has one.
    pub config: Option<String>,
    /// The bridges.
    pub bridges: Vec<Report>,
}

impl Status {
    /// Asks a daemon for it; of one bridge only, if one is wanted.
    ///
    /// # Errors
    ///
    /// Without a daemon or the bridge.
    pub fn ask(socket: &Path, wanted: Option<&str>) -> Result<Self> {
        let mut status: Self = ask(socket, &Request::Status)?;
        let Some(wanted) = wanted else {
            return Ok(status);
        };
        let mut first = wanted.to_owned();
        if status.bridges.iter().all(|report| name(report) != wanted) {
            // Alternative names are known to the daemon, which may be in another network namespace.
            let bridge = first.clone();
            first = ask(socket, &Request::Name { bridge })?;
        }
        status.bridges.retain(|report| name(report) == first);
        ensure!(
            !status.bridges.is_empty(),
            "the bridge {wanted} is not attached: `weir switch attach {wanted}`"
        );
        Ok(status)
    }
}

fn name(report: &Report) -> &str {
    match report {
        Report::Attached(status) => &status.bridge,
        Report::Waiting { bridge, .. } => bridge,
    }
}

/// Runs `weir switch status`.
pub fn run(args: &StatusArgs) -> Result<ExitCode> {
    let status = Status::ask(&args.socket.socket, args.bridge.as_deref())?;
    output::print(match args.format {
        Format::Json => output::json(&status)?,
        Format::Table => table::bridges(&status.bridges),
    })?;
    Ok(ExitCode::SUCCESS)
}

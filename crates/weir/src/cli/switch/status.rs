//! `weir switch status`.

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
    /// Leaves out other bridges than the wanted one.
    ///
    /// # Errors
    ///
    /// Where it is not there.
    pub fn only(&mut self, wanted: Option<&str>) -> Result<()> {
        let Some(wanted) = wanted else { return Ok(()) };
        self.bridges.retain(|report| name(report) == wanted);
        ensure!(
            !self.bridges.is_empty(),
            "the bridge {wanted} is not attached: `weir switch attach {wanted}`"
        );
        Ok(())
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
    let mut status: Status = ask(&args.socket.socket, &Request::Status)?;
    status.only(args.bridge.as_deref())?;
    output::print(match args.format {
        Format::Json => output::json(&status)?,
        Format::Table => table::bridges(&status.bridges),
    })?;
    Ok(ExitCode::SUCCESS)
}

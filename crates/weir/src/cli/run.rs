//! `weir run`: a command under the broker's supervision.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use broker::supervise::run::{exec, supervise};
use clap::Args;

use crate::cli::flags::broker_socket;

/// `weir run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Tenant of the broker's policy, where several fit [default: the first that fits]
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,

    /// Socket of the broker [default: /run/weir/broker.sock, or the environment's `WEIR_BROKER`]
    #[arg(long, value_name = "PATH")]
    pub broker: Option<PathBuf>,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// Becomes the command; returns only when that fails.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let Some((command, arguments)) = args.command.split_first() else {
        anyhow::bail!("there is no command: give one behind `--`");
    };
    supervise(
        &broker_socket(args.broker.as_deref()),
        args.tenant.as_deref(),
    )?;
    let (code, error) = exec(command, arguments);
    eprintln!("weir: error: {error:#}");
    Ok(code.into())
}

//! `weir doctor`: its flags, and what they mean.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

/// `weir doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Look at these devices only, and at the host [default: all]
    #[arg(long, value_name = "IF", num_args = 1..)]
    pub dev: Vec<String>,
}

/// Runs `weir doctor`.
pub fn run(_args: &DoctorArgs) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}

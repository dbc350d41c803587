//! `weir cost`: its flags, and what they mean.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// `weir cost`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct CostArgs {
    /// What else to do than measure this host.
    #[command(subcommand)]
    pub command: Option<CostCommand>,
}

/// What else `weir cost` can do.
#[derive(Debug, Subcommand)]
pub enum CostCommand {}

/// Runs `weir cost`.
pub fn run(args: &CostArgs) -> Result<ExitCode> {
    match &args.command {
        None => Ok(ExitCode::SUCCESS),
        Some(command) => match *command {},
    }
}

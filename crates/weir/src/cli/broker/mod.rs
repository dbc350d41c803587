//! `weir broker`: the policy, and the state of a running broker.

mod check;
mod status;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// `weir broker`
#[derive(Debug, Subcommand)]
pub enum BrokerCommand {
    /// Check a policy: every error with its line and column
    ///
    /// Needs no privilege, no network and no broker. A note is about something that is allowed and
    /// worth a second look.
    Check(check::CheckArgs),

    /// Show leases, supervised processes, counters and latencies of a running broker
    ///
    /// Needs root.
    Status(status::StatusArgs),

    /// Name the processes that hold a lease's socket, and kill them where the policy says so
    ///
    /// A bound socket cannot be taken away: its queue is free when the last process that holds it has
    /// closed it. With `kill = true` in the policy all processes of the holders' control groups are
    /// killed. Needs root.
    Revoke(status::RevokeArgs),
}

/// Runs `weir broker`.
///
/// # Errors
///
/// Without a broker, or without root.
pub fn run(command: BrokerCommand) -> Result<ExitCode> {
    match command {
        BrokerCommand::Check(args) => Ok(check::run(&args)),
        BrokerCommand::Status(args) => status::status(&args),
        BrokerCommand::Revoke(args) => status::revoke(&args),
    }
}

//! `weir switch`: a fast path for the Linux bridge.

mod attach;
mod bench;
mod check;
mod run;
mod socket;
mod status;
mod table;
mod watch;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// `weir switch`
#[derive(Debug, Subcommand)]
pub enum SwitchCommand {
    /// Run the daemon, which mirrors bridges and answers the other commands
    ///
    /// Its programs outlive it: they forward for 5 seconds without it, so that it can be started again
    /// without a gap, and pass everything to the kernel's bridge after that. `weir switch detach --all`
    /// removes them, with and without a daemon. Needs root.
    Run(run::RunArgs),

    /// Accelerate a bridge, or change the settings of one that is
    ///
    /// The bridge stays as it is: the kernel learns, floods and ages, and forwards whatever the fast path
    /// does not know. Needs root and a running daemon.
    Attach(attach::AttachArgs),

    /// Leave a bridge to the kernel again, or all
    Detach(attach::DetachArgs),

    /// Show bridges, ports, hooks and counters
    Status(status::StatusArgs),

    /// Show rates and news every second; write sampled frames to a file
    Watch(watch::WatchArgs),

    /// Measure an accelerated bridge beside a plain one and other switches
    ///
    /// It makes its own networks and needs no daemon. Needs root.
    Bench(bench::BenchArgs),

    /// Check the configuration of the daemon: every bridge's fault with its line and column
    ///
    /// Needs no privilege and no daemon.
    Check(check::CheckArgs),
}

/// Runs `weir switch`.
///
/// # Errors
///
/// Without a daemon, and where it refuses.
pub fn run(command: SwitchCommand) -> Result<ExitCode> {
    match command {
        SwitchCommand::Run(args) => run::run(&args),
        SwitchCommand::Attach(args) => attach::attach(&args),
        SwitchCommand::Detach(args) => attach::detach(&args),
        SwitchCommand::Status(args) => status::run(&args),
        SwitchCommand::Watch(args) => watch::run(&args),
        SwitchCommand::Bench(args) => bench::run(&args),
        SwitchCommand::Check(args) => Ok(check::run(&args)),
    }
}

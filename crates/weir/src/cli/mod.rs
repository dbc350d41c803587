//! The command line: what can be typed, and what each command starts.

pub mod lab;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The fast path to the network card for a Linux host, with the CPU bill on the table.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `weir` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// A network of two namespaces to try things on
    #[command(subcommand)]
    Lab(lab::LabCommand),

    /// One load of a bench, in a process of its own
    #[command(hide = true)]
    BenchLoad(crate::bench::load::LoadArgs),

    /// One engine at one bench, in a process of its own
    #[command(hide = true)]
    BenchWorker(crate::bench::worker::WorkerArgs),
}

/// Runs the command that was typed; the exit code is 2 for a usage error, 1 for any other.
#[must_use]
pub fn main() -> ExitCode {
    // clap prints usage errors itself and exits with 2.
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Lab(command) => lab::run(command),
        Command::BenchLoad(args) => crate::bench::load::run(&args),
        // Whatever goes wrong in it is an event on its standard output.
        Command::BenchWorker(args) => return crate::bench::worker::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

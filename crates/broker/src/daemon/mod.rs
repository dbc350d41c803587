//! The daemon: its sockets, signals, state and end.

pub mod bpffs;
mod connection;
mod connections;
mod flags;
mod kept;
pub mod listen;
pub mod log;
mod main_loop;
mod metrics;
mod plugin;
mod queues;
mod server;
mod status;
mod supervision;

use flags::{Asked, HELP};
pub mod systemd;

use std::process::ExitCode;

/// The exit status of a usage error.
const USAGE: u8 = 2;

/// Runs the daemon with the flags of the command line.
pub fn main() -> ExitCode {
    let flags = match flags::read(lexopt::Parser::from_env()) {
        Ok(Asked::Run(flags)) => flags,
        Ok(Asked::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Asked::Version) => {
            println!("weir-broker {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("weir-broker: {error}; `weir-broker --help` lists the options");
            return ExitCode::from(USAGE);
        }
    };
    match main_loop::run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-broker: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

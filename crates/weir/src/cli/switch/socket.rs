//! The flag of all commands that talk to the daemon.

use std::path::PathBuf;

use clap::Args;

use crate::switch::daemon::request::DEFAULT_SOCKET;

/// The daemon's socket.
#[derive(Debug, Args)]
pub struct SocketArgs {
    /// Socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

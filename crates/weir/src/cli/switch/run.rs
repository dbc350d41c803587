//! `weir switch run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::socket::SocketArgs;
use crate::switch::daemon::{self, Flags, config};
use hostnet::netns::named::DIRECTORY;

const HELP: &str = "\
Examples:
  weir switch run
      Accelerate the bridges of /etc/weir/switch.toml, and those that `weir switch attach` names
  weir switch run --netns blue --socket /run/weir/blue.sock --state /run/weir/blue
      Do so in the network namespace blue

It runs in the foreground, logs JSON lines to standard error, reads its configuration again on SIGHUP
and ends on SIGTERM and SIGINT.

Exit status:
  0  ended by a signal
  1  another daemon runs, the configuration is not valid, or no root
  2  invalid arguments";

/// `weir switch run`
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct RunArgs {
    /// Configuration [default: /etc/weir/switch.toml, where it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Directory of notes for the daemon that is started after this one
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    pub state: PathBuf,
    /// BPF filesystem, mounted if there is none
    #[arg(long, value_name = "DIR", default_value = DEFAULT_BPFFS)]
    pub bpffs: PathBuf,
    /// Network namespace of the bridges: a name of `ip netns`, or a path
    #[arg(long, value_name = "NAME")]
    pub netns: Option<PathBuf>,
}

/// The directory of notes.
pub const DEFAULT_STATE: &str = "/run/weir/switch";
/// The BPF filesystem.
pub const DEFAULT_BPFFS: &str = "/sys/fs/bpf";

/// Runs `weir switch run`.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let default = Path::new(config::DEFAULT_PATH);
    let default = default.exists().then(|| default.to_owned());
    let netns = args.netns.as_ref().map(|name| {
        // A path has a slash; a name of `ip netns` has none.
        let is_name = name.components().count() == 1 && !name.is_absolute();
        if is_name {
            Path::new(DIRECTORY).join(name)
        } else {
            name.clone()
        }
    });
    daemon::run(&Flags {
        config: args.config.clone().or(default),
        socket: args.socket.socket.clone(),
        state: args.state.clone(),
        bpffs: args.bpffs.clone(),
        netns,
    })?;
    Ok(ExitCode::SUCCESS)
}

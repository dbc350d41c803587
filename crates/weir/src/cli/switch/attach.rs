//! `weir switch attach` and `detach`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use clap::Args;

use super::run::{DEFAULT_BPFFS, DEFAULT_STATE};
use super::socket::SocketArgs;
use super::table;
use crate::cli::output;
use crate::report::text::plain;
use crate::switch::daemon::offline;
use crate::switch::daemon::request::{NoDaemon, Request, ask};
use crate::switch::status::BridgeStatus;
use crate::switch::{Hook, PortHook, PortSettings, Settings, check_name};

/// As of a usage error that clap finds.
const INVALID_ARGUMENTS: u8 = 2;

const ATTACH_HELP: &str = "\
Examples:
  weir switch attach br0
      Accelerate br0, each port by the hook that fits it
  weir switch attach br0 --port eth1=xdp --port tap3=kernel
      Choose the hooks of two ports
  weir switch attach br0 --ports eth1,tap0 --mac-limit 16 --broadcast 1000
      Accelerate two ports; 16 addresses and 1000 broadcast frames a second are the most of each

A setting of `--port`, `--mac-limit` and the like replaces all earlier ones of the bridge.

Exit status:
  0  attached
  1  no such bridge, a hook that a port cannot have, no daemon, or no root
  2  invalid arguments";

/// `weir switch attach`
#[derive(Debug, Args)]
#[command(after_long_help = ATTACH_HELP)]
pub struct AttachArgs {
    /// Bridge
    pub bridge: String,
    /// Ports to accelerate [default: all]
    #[arg(long, value_name = "IF", value_delimiter = ',')]
    pub ports: Option<Vec<String>>,
    /// Hook of one port: auto, xdp, tcx or kernel
    #[arg(long, value_name = "IF=HOOK")]
    pub port: Vec<PortHook>,
    /// Hook of the other ports
    #[arg(long, value_enum, default_value_t = Hook::Auto)]
    pub hook: Hook,
    /// Addresses behind a port at most; frames from further ones are dropped. 0: no further one is learned
    #[arg(long, value_name = "N")]
    pub mac_limit: Option<u32>,
    /// Broadcast frames a second from a port at most; more are dropped. 0: no limit
    #[arg(long, value_name = "PPS")]
    pub broadcast: Option<u32>,
    /// Multicast frames a second from a port at most. 0: no limit
    #[arg(long, value_name = "PPS")]
    pub multicast: Option<u32>,
    /// Frames a second from a port to unknown addresses at most. 0: no limit
    #[arg(long, value_name = "PPS")]
    pub unknown: Option<u32>,
    /// Room for so many addresses at the start, up to 4194304; it grows
    #[arg(long, value_name = "N")]
    pub addresses: Option<u32>,
    /// Moves of one address between ports within ten seconds from which on a loop is reported
    #[arg(long, value_name = "N")]
    pub flapping: Option<u32>,
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// `weir switch detach`
#[derive(Debug, Args)]
pub struct DetachArgs {
    /// Bridge
    #[arg(required_unless_present = "all")]
    pub bridge: Option<String>,
    /// All bridges; also where no daemon runs
    #[arg(long, conflicts_with = "bridge")]
    pub all: bool,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Directory of the daemon's notes, where none runs
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    pub state: PathBuf,
    /// BPF filesystem of the pinned programs, where no daemon runs
    #[arg(long, value_name = "DIR", default_value = DEFAULT_BPFFS)]
    pub bpffs: PathBuf,
}

impl AttachArgs {
    fn settings(&self) -> Settings {
        let defaults = Settings::default();
        let port = |it: &PortHook| {
            let settings = PortSettings {
                hook: Some(it.hook),
                ..PortSettings::default()
            };
            (it.port.clone(), settings)
        };
        Settings {
            only: self.ports.clone(),
            default: PortSettings {
                hook: Some(self.hook),
                mac_limit: self.mac_limit,
                broadcast: self.broadcast,
                multicast: self.multicast,
                unknown: self.unknown,
            },
            ports: self.port.iter().map(port).collect(),
            addresses: self.addresses.unwrap_or(defaults.addresses),
            flapping: self.flapping.unwrap_or(defaults.flapping),
        }
    }
}

/// Runs `weir switch attach`.
pub fn attach(args: &AttachArgs) -> Result<ExitCode> {
    let settings = args.settings();
    let checked = settings.check().map_err(|refused| anyhow!("{refused}"));
    if let Err(error) = check_name(&args.bridge).and(checked) {
        eprintln!("weir: error: {error}");
        return Ok(INVALID_ARGUMENTS.into());
    }
    let request = Request::Attach {
        bridge: args.bridge.clone(),
        settings: Box::new(settings),
    };
    let status: BridgeStatus = ask(&args.socket.socket, &request)?;
    output::print(table::bridge(&status))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir switch detach`.
pub fn detach(args: &DetachArgs) -> Result<ExitCode> {
    let request = Request::Detach {
        bridge: args.bridge.clone(),
    };
    let names: Vec<String> = match ask(&args.socket.socket, &request) {
        Err(error) if args.all && error.downcast_ref::<NoDaemon>().is_some() => {
            offline::detach_all(&args.bpffs, &args.state, &args.socket.socket)
                .context("something stays attached")?
        }
        answer => answer?,
    };
    output::print(if names.is_empty() {
        "No bridge was attached.\n".into()
    } else {
        format!("Left to the kernel: {}\n", plain(&names.join(", ")))
    })?;
    Ok(ExitCode::SUCCESS)
}

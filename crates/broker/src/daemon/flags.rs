//! The command line of `weir-broker`.

use super::listen::Access;
use lexopt::prelude::{Long, Short, ValueExt as _};
use std::path::PathBuf;

/// The text of `--help`.
pub(super) const HELP: &str = "\
weir-broker: AF_XDP sockets for processes without privilege, and supervision of their system calls

Usage: weir-broker [OPTIONS]

Options:
      --policy FILE      tenants and their grants [default: /etc/weir/broker.toml]; SIGHUP reads it again
      --socket PATH      socket for `weir run` and the xsk library [default: /run/weir/broker.sock]
      --oci-socket PATH  socket for container runtimes (`listenerPath`)
                         [default: /run/weir/broker-oci.sock]
      --admin PATH       socket for `weir broker status` and `revoke`, of root alone
                         [default: /run/weir/broker-admin.sock]
      --metrics PATH     socket with metrics in Prometheus' text format
                         [default: /run/weir/broker-metrics.sock]
      --plugin-dir DIR   sockets DIR/DEVICE/afxdp.sock for clients of the AF_XDP device plugin (DPDK,
                         CNDP), of devices with `plugin = true`; /tmp/afxdp_dp is where they look
      --state DIR        leases, for the broker that starts after this one
                         [default: /run/weir/broker]
      --bpffs DIR        BPF filesystem, mounted if there is none [default: /sys/fs/bpf]
      --group GROUP      name or id of the group that may connect [default: root alone]
      --everyone         anyone may connect; the policy alone decides
      --check            validate the policy and exit
  -h, --help             print this text
  -V, --version          print the version

It runs in the foreground, logs JSON lines to standard error, and ends on SIGTERM or SIGINT.
`weir broker status` shows its leases; weir-broker(8) has the rest.
";

/// The flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) policy: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) oci_socket: PathBuf,
    pub(super) admin: PathBuf,
    pub(super) metrics: PathBuf,
    pub(super) plugin_dir: Option<PathBuf>,
    pub(super) state: PathBuf,
    pub(super) bpffs: PathBuf,
    pub(super) access: Access,
    pub(super) check: bool,
}

/// Action that the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Run(Box<Flags>),
    Help,
    Version,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            policy: "/etc/weir/broker.toml".into(),
            socket: xsk::broker::DEFAULT_PATH.into(),
            oci_socket: "/run/weir/broker-oci.sock".into(),
            admin: crate::message::ADMIN_SOCKET.into(),
            metrics: "/run/weir/broker-metrics.sock".into(),
            plugin_dir: None,
            state: "/run/weir/broker".into(),
            bpffs: "/sys/fs/bpf".into(),
            access: Access::Root,
            check: false,
        }
    }
}

/// Reads the command line.
pub(super) fn read(mut arguments: lexopt::Parser) -> Result<Asked, lexopt::Error> {
    let mut flags = Flags::default();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("policy") => flags.policy = arguments.value()?.into(),
            Long("socket") => flags.socket = arguments.value()?.into(),
            Long("oci-socket") => flags.oci_socket = arguments.value()?.into(),
            Long("admin") => flags.admin = arguments.value()?.into(),
            Long("metrics") => flags.metrics = arguments.value()?.into(),
            Long("plugin-dir") => flags.plugin_dir = Some(arguments.value()?.into()),
            Long("state") => flags.state = arguments.value()?.into(),
            Long("bpffs") => flags.bpffs = arguments.value()?.into(),
            Long("group") => flags.access = Access::Group(arguments.value()?.string()?),
            Long("everyone") => flags.access = Access::Everyone,
            Long("check") => flags.check = true,
            Long("help") | Short('h') => return Ok(Asked::Help),
            Long("version") | Short('V') => return Ok(Asked::Version),
            _ => return Err(argument.unexpected()),
        }
    }
    flags.make_absolute();
    Ok(Asked::Run(Box::new(flags)))
}

impl Flags {
    /// The broker's working directory is another later.
    fn make_absolute(&mut self) {
        for path in [
            &mut self.policy,
            &mut self.socket,
            &mut self.oci_socket,
            &mut self.admin,
            &mut self.metrics,
            &mut self.state,
            &mut self.bpffs,
        ] {
            // Without a working directory it stays as it is: the start tells then.
            if let Ok(absolute) = std::path::absolute(&*path) {
                *path = absolute;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Asked, String> {
        let arguments = std::iter::once(&"weir-broker").chain(arguments);
        read(lexopt::Parser::from_iter(arguments)).map_err(|error| error.to_string())
    }

    #[test]
    fn each_flag_is_in_the_help() {
        assert_eq!(parse(&[]), Ok(Asked::Run(Box::default())));
        for flag in [
            "policy",
            "socket",
            "oci-socket",
            "admin",
            "metrics",
            "plugin-dir",
            "state",
            "bpffs",
            "group",
        ] {
            assert!(HELP.contains(&format!("--{flag} ")), "{flag}");
            assert!(parse(&[&format!("--{flag}"), "x"]).is_ok(), "{flag}");
            assert!(parse(&[&format!("--{flag}")]).is_err(), "{flag}");
        }
        let Ok(Asked::Run(flags)) = parse(&["--policy", "broker.toml"]) else {
            panic!("it is a path");
        };
        assert!(flags.policy.is_absolute() && flags.policy.ends_with("broker.toml"));
        assert_eq!(parse(&["-h"]), Ok(Asked::Help));
        assert!(parse(&["--wrong"]).is_err_and(|error| error.contains("--wrong")));
        assert!(parse(&["word"]).is_err());
    }
}

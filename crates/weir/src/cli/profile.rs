//! `weir profile`: the seccomp profile of containers that the broker supervises.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use broker::policy::Policy;
use broker::supervise::handlers;
use broker::supervise::profile::{OCI_SOCKET, profile};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::cli::output;

/// The default profile of podman, buildah and CRI-O; Docker's and containerd's are in their sources alone.
const DEFAULT_BASE: &str = "/usr/share/containers/seccomp.json";

/// `weir profile`
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// Tenant of the policy: the profile notifies the calls that it is granted
    #[arg(long, value_name = "NAME")]
    pub tenant: String,

    /// Policy of the broker
    #[arg(long, value_name = "FILE", default_value = broker::policy::DEFAULT_PATH)]
    pub policy: PathBuf,

    /// Socket of the broker for container runtimes
    #[arg(long, value_name = "PATH", default_value = OCI_SOCKET)]
    pub listener: String,

    /// Profile that decides on all other calls, such as the runtime's own
    #[arg(long, value_name = "FILE", default_value = DEFAULT_BASE)]
    pub base: PathBuf,

    /// Allow all other calls, also those that runtimes forbid by default
    #[arg(long, conflicts_with = "base")]
    pub allow_others: bool,

    /// Print on standard error how this runtime takes the profile
    #[arg(long, value_enum)]
    pub runtime: Option<Runtime>,
}

/// A container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Runtime {
    /// podman with crun
    Podman,
    /// crun 0.19 or later
    Crun,
    /// runc 1.5 or later
    Runc,
    /// Kubernetes
    Kubernetes,
}

/// Runs `weir profile`.
pub fn run(args: &ProfileArgs) -> Result<()> {
    let policy = Policy::load(&args.policy)?;
    let tenant = policy
        .tenants
        .iter()
        .find(|tenant| tenant.name == args.tenant);
    let tenant = tenant.with_context(|| {
        let names: Vec<_> = policy
            .tenants
            .iter()
            .map(|tenant| tenant.name.as_str())
            .collect();
        format!(
            "{} has no tenant {:?}: its tenants are {}",
            args.policy.display(),
            args.tenant,
            names.join(", ")
        )
    })?;
    let base = if args.allow_others {
        None
    } else {
        Some(read_base(&args.base)?)
    };
    let names = handlers::names(&tenant.calls);
    anyhow::ensure!(
        !names.is_empty(),
        "the tenant {:?} is granted no supervised call: add some to its `calls`",
        args.tenant
    );
    let profile = profile(handlers::rules(&names), base, &args.tenant, &args.listener)?;
    output::print(output::json(&profile)?)?;
    if let Some(runtime) = args.runtime {
        eprintln!("{}", runtime.instructions());
    }
    Ok(())
}

fn read_base(path: &Path) -> Result<Value> {
    let text = std::fs::read(path).with_context(|| {
        format!(
            "cannot read the profile {}: give that of your runtime with --base, or --allow-others for none",
            path.display()
        )
    })?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no JSON", path.display()))
}

impl Runtime {
    fn instructions(self) -> &'static str {
        match self {
            Self::Podman => "podman: podman --runtime crun run --security-opt seccomp=FILE …",
            Self::Crun => "crun: put it into the bundle's config.json as linux.seccomp",
            Self::Runc => {
                "runc: put it into the bundle's config.json as linux.seccomp; before runc 1.5 remove the flag SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, without which a signal can make a call happen twice"
            }
            Self::Kubernetes => {
                "kubernetes: put it into /var/lib/kubelet/seccomp/FILE on each node, and in the pod: securityContext: {seccompProfile: {type: Localhost, localhostProfile: FILE}}"
            }
        }
    }
}

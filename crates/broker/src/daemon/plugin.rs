//! The sockets for clients of the AF_XDP device plugin, and their grants.

use super::listen::Access;
use super::listen::Listening;
use super::log::{event, refusal};
use super::server::{Server, plugin_devices};
use crate::identity::Identity;
use crate::lease::{DeviceLease, Leases, plugin_grant};
use crate::plugin::{self, BusyPoll, Host};
use crate::policy::{DeviceGrant, Policy, Tenant};
use crate::supervise::metrics::Outcome;
use anyhow::{Context as _, Result, bail};
use rustix::fs::{Mode, chmod};
use rustix::net::SocketType;
use rustix::process::geteuid;
use serde_json::json;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use xsk::Device;

/// Files of a device's socket and pinned map, as clients look for them.
const SOCKET: &str = "afxdp.sock";
const MAP: &str = "xsks_map";

/// The socket of one device, in a directory with the device's name.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) device: String,
    pub(super) listening: Listening,
    _directory: Directory,
}

/// A directory, which is removed with this when it is empty.
#[derive(Debug)]
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join(MAP));
        let _ = fs::remove_dir(&self.0);
    }
}

/// Makes the sockets of all devices whose maps are given out.
pub(super) fn open(directory: &Path, policy: &Policy, access: &Access) -> Result<Vec<Door>> {
    let doors = plugin_devices(policy).into_iter().map(|device| {
        let below = make(directory).and_then(|()| {
            // A name that the policy takes has no slash, and is no dot.
            let below = directory.join(&device);
            make(&below).map(|()| below)
        })?;
        let listening = Listening::new(&below.join(SOCKET), SocketType::SEQPACKET, access)?;
        Ok(Door {
            device,
            listening,
            _directory: Directory(below),
        })
    });
    doors.collect()
}

/// Pins the maps that the policy has pinned, and links to them beside the sockets. The devices are lent as
/// long as these leases last.
pub(super) fn pin<'l>(
    directory: &Path,
    policy: &Policy,
    leases: &'l Leases,
) -> Vec<DeviceLease<'l>> {
    let grants = policy.tenants.iter().flat_map(|tenant| {
        let pinned = tenant.devices.iter().filter(|grant| grant.pinned_map);
        pinned.map(move |grant| (tenant, grant.device.as_str()))
    });
    let pinned = grants.filter_map(|(tenant, device)| {
        let pinned = pin_one(&directory.join(device), tenant, device, leases);
        pinned
            .inspect_err(|error| {
                let reason = format!("{error:#}");
                event("not-pinned", json!({"device": device, "reason": reason}));
            })
            .ok()
    });
    pinned.collect()
}

fn pin_one<'l>(
    below: &Path,
    tenant: &Tenant,
    device: &str,
    leases: &'l Leases,
) -> Result<DeviceLease<'l>> {
    let uid = tenant.who.uids.first().context("the tenant has no uid")?;
    let (lease, map) = leases.lend_pinned(tenant, device, *uid)?;
    let link = below.join(MAP);
    // Of a broker that was killed.
    let _ = fs::remove_file(&link);
    symlink(&map, &link).with_context(|| format!("cannot make {}", link.display()))?;
    let shown = map.display().to_string();
    event(
        "pinned",
        json!({"tenant": tenant.name, "device": device, "uid": uid, "map": shown}),
    );
    let is_closed =
        |above: &&Path| fs::metadata(above).is_ok_and(|found| found.mode() & 0o001 == 0);
    if let Some(closed) = map.ancestors().skip(1).find(is_closed) {
        let cure = format!("chmod o+x {}", closed.display());
        event(
            "pinned-map-unreachable",
            json!({"map": shown, "cure": cure}),
        );
    }
    Ok(lease)
}

/// Makes a directory in which nobody else can put anything, and everyone finds it: it may be below /tmp.
fn make(path: &Path) -> Result<()> {
    let shown = path.display();
    match fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => {
            made.with_context(|| format!("cannot make the directory {shown}"))?;
            // Whatever the umask is.
            chmod(path, Mode::from_raw_mode(0o755))
                .with_context(|| format!("cannot set the mode of {shown}"))?;
        }
    }
    let found = fs::symlink_metadata(path).with_context(|| format!("cannot look at {shown}"))?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
        bail!(
            "{shown} is no directory that the broker's user alone can write to: remove it, or give another with --plugin-dir"
        );
    }
    Ok(())
}

/// Serves a connection of a device's socket, or of the service manager's, which has all devices.
pub(super) fn serve(server: &Arc<Server>, connection: &OwnedFd, device: Option<&str>) {
    let mut client = Client {
        server,
        connection: connection.as_fd(),
        device,
        leases: Vec::new(),
    };
    if let Err(errno) = plugin::serve(connection, &mut client) {
        let reason = json!({"device": device, "reason": errno.to_string()});
        refusal(&whose(client.connection), "plugin-end", reason);
    }
}

/// A client, and the devices of which it has the maps by this connection.
struct Client<'c> {
    server: &'c Arc<Server>,
    connection: BorrowedFd<'c>,
    /// The device of its socket.
    device: Option<&'c str>,
    leases: Vec<DeviceLease<'c>>,
}

impl Client<'_> {
    /// The process at the other end and its tenant, as they are now.
    fn tenant(&self) -> Result<(Identity, Tenant)> {
        let peer = Identity::of_peer(self.connection)?;
        let policy = self.server.policy();
        let tenant = policy.admit(&peer, None).cloned();
        match tenant {
            Ok(tenant) => Ok((peer, tenant)),
            Err(refusal) => bail!("{}: {}", peer, refusal.reason()),
        }
    }

    /// Whether this socket is for a device.
    fn is_for(&self, device: &str) -> bool {
        self.device.is_none_or(|own| own == device)
    }

    fn check(&self, hostname: &str) -> Result<()> {
        let (peer, tenant) = self.tenant()?;
        let is_it = |grant: &DeviceGrant| grant.plugin && self.is_for(&grant.device);
        if !tenant.devices.iter().any(is_it) {
            let device = self.device.unwrap_or("any device");
            bail!(
                "tenant {} has no grant for {device} with `plugin = true`",
                tenant.name
            );
        }
        event(
            "plugin",
            json!({"tenant": tenant.name, "peer": peer.to_string(), "hostname": hostname, "device": self.device}),
        );
        Ok(())
    }

    fn lend(&mut self, device: &str) -> Result<OwnedFd> {
        let began = Instant::now();
        let (peer, tenant) = self.tenant()?;
        // By whichever name: both ask for one device.
        let is_own = |own| hostnet::device::find(own).is_ok_and(|link| link.is_named(device));
        if !self.is_for(device) && !self.device.is_some_and(is_own) {
            bail!("{peer}: this socket is for another device");
        }
        let lent = self.server.leases.lend_device(&tenant, device, Some(&peer));
        let metrics = self.server.supervision.metrics(&tenant.name);
        let outcome = match &lent {
            Ok(_) => Outcome::Answered,
            Err(_) => Outcome::Refused,
        };
        metrics.of("plugin").record(outcome, began.elapsed());
        let lease = lent.map_err(|refusal| {
            anyhow::anyhow!("tenant {}, {peer}: {}", tenant.name, refusal.message())
        })?;
        let map = lease.map.try_clone()?;
        let record = &lease.record;
        event(
            "lease",
            json!({
                "lease": record.id, "tenant": record.tenant, "peer": peer.to_string(), "device": record.device,
                "whole_device": true, "mode": record.mode,
            }),
        );
        if self.leases.iter().all(|held| held.record.id != record.id) {
            self.leases.push(lease);
        }
        Ok(map)
    }

    fn configure(&self, device: &str, wanted: BusyPoll, socket: &OwnedFd) -> Result<()> {
        let (peer, tenant) = self.tenant()?;
        let found = Device::lookup(device).map_err(|error| anyhow::anyhow!("{error}"))?;
        let most = plugin_grant(&tenant, &found).ok();
        let most = most.and_then(|grant| grant.busy_poll);
        let most = most
            .with_context(|| format!("tenant {} has no `busy-poll` for {device}", tenant.name))?;
        plugin::configure(socket, wanted, most).with_context(|| format!("{peer}: its socket"))
    }
}

impl Client<'_> {
    /// The client gets no reasons: the log has them.
    fn told<T>(&self, device: Option<&str>, result: Result<T>) -> Option<T> {
        result
            .inspect_err(|error| {
                let reason = json!({"device": device, "reason": format!("{error:#}")});
                refusal(&whose(self.connection), "plugin-refused", reason);
            })
            .ok()
    }
}

impl Host<OwnedFd> for Client<'_> {
    type Map = OwnedFd;

    fn admit(&mut self, hostname: &str) -> bool {
        self.told(self.device, self.check(hostname)).is_some()
    }

    fn map(&mut self, device: &str) -> Option<OwnedFd> {
        let lent = self.lend(device);
        self.told(Some(device), lent)
    }

    fn busy_poll(&mut self, device: &str, wanted: BusyPoll, socket: OwnedFd) -> bool {
        let configured = self.configure(device, wanted, &socket);
        self.told(Some(device), configured).is_some()
    }
}

/// A user, for the log's limit.
fn whose(connection: BorrowedFd<'_>) -> String {
    let peer = hostnet::unix::peer(connection);
    peer.map_or("unknown".to_owned(), |peer| format!("uid {}", peer.uid))
}

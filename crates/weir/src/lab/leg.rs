//! Parts of a host's bridge: the bridge, and veths whose other ends are in namespaces of their own.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, Result};

use super::Side;
use hostnet::netns;
use hostnet::privilege::{FileStep, file_note};
use hostnet::rtnetlink::{BridgeOptions, Rtnetlink, VethEnd};

/// The switches of `br_netfilter`, which are of a network namespace (Linux 5.3).
const BRIDGE_NETFILTER: &str = "/proc/sys/net/bridge/bridge-nf-call-";

/// A veth between a host and a namespace of its own, such as a container's.
#[must_use = "the namespace and its devices are gone when this is dropped"]
pub struct Leg {
    /// The host's end.
    pub port: Side,
    /// The other end.
    pub far: Side,
}

impl Leg {
    /// Makes the ends `port` and `far` with a number in their MAC addresses, up and without IPv6.
    pub fn add(host: BorrowedFd<'_>, number: u8) -> Result<Self> {
        let host = host
            .try_clone_to_owned()
            .context("cannot duplicate a descriptor")?;
        let far = netns::create()?;
        netns::disable_ipv6(far.as_fd())?;
        let (near_name, far_name) = (format!("port{number}"), format!("far{number}"));
        netns::run_in(host.as_fd(), || {
            let ends = [
                &VethEnd {
                    name: &near_name,
                    mac: [0x02, 0, 0, 0, 1, number],
                    netns: host.as_fd(),
                },
                &VethEnd {
                    name: &far_name,
                    mac: [0x02, 0, 0, 0, 2, number],
                    netns: far.as_fd(),
                },
            ];
            Rtnetlink::open()?.add_veth(ends, 1, 1500)
        })?;
        let leg = Self {
            port: Side::open(host, &near_name)?,
            far: Side::open(far, &far_name)?,
        };
        for side in [&leg.far, &leg.port] {
            side.link.set_up()?;
        }
        Ok(leg)
    }
}

/// Makes a bridge of devices of the calling thread's network namespace, up and without netfilter, and
/// returns its index.
pub fn add_bridge_of(name: &str, options: &BridgeOptions, ports: &[u32]) -> Result<u32> {
    let mut rtnetlink = Rtnetlink::open()?;
    rtnetlink.add_bridge_with(name, options)?;
    disable_bridge_netfilter()?;
    let bridge = rtnetlink.link(name)?.index;
    for port in ports {
        rtnetlink.add_port(bridge, *port)?;
    }
    rtnetlink.set_up(bridge)?;
    Ok(bridge)
}

/// Takes netfilter off the bridges of the calling thread's network namespace, where the kernel has
/// `br_netfilter`, and returns whether it has: it costs a frame some hundreds of nanoseconds, with or
/// without a rule.
pub fn disable_bridge_netfilter() -> Result<bool> {
    for family in ["iptables", "ip6tables", "arptables"] {
        let path = format!("{BRIDGE_NETFILTER}{family}");
        match fs::write(&path, "0") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                let note = file_note(&error, Path::new(&path), FileStep::Write);
                return Err(error).with_context(|| format!("cannot write {path}{note}"));
            }
            Ok(()) => {}
        }
    }
    Ok(true)
}

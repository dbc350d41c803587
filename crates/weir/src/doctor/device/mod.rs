//! The checks of each network device.
//!
//! They look at the devices of the network namespace that the doctor runs in: those that were
//! asked for with `--dev`, or all but the loopback. XDP is *wanted* on a device that was asked
//! for, or that has a program; what matters to XDP alone is looked at there only.

mod command;
mod offload;
mod qdisc;
mod queues;
mod sockets;
mod storm;
mod traffic;
mod veth;
mod xdp;

use anyhow::Result;
use xsk::AttachedProgram;

use super::{Check, Context, Evidence, Fix, Read, Verdict};
pub use offload::lro_verdict;
pub use queues::{coalescing_verdict, ring_verdict};
pub use sockets::socket_verdict;

use hostnet::ethtool::Feature;
use hostnet::rtnetlink::{Link, Rtnetlink};

/// The checks of each network device.
pub const CHECKS: &[Check] = &[
    storm::RPS_LOCK_QDISC,
    xdp::XDP_GENERIC,
    xdp::XDP_FOREIGN,
    xdp::XDP_FEATURES,
    xdp::XDP_UPPER_DEVICE,
    xdp::XDP_MTU,
    sockets::XSK_ZERO_COPY,
    veth::VETH_NAPI,
    veth::GUEST_OFFLOADS,
    offload::VLAN_OFFLOAD,
    offload::LRO,
    traffic::DEVICE_ERRORS,
    queues::RING_SIZES,
    queues::QUEUES,
    queues::COALESCING,
    queues::THREADED_NAPI,
    queues::IRQ_NUMA,
];

/// Whether a device is to be looked at.
fn is_selected(context: &Context, device: &Link) -> bool {
    match context.devices() {
        [] => !device.loopback,
        names => names.contains(&device.name),
    }
}

/// What `look` says of each device that is to be looked at; none if it has nothing to say.
///
/// What cannot be looked at, such as a device that has gone meanwhile, does not keep the others
/// from it.
fn each(
    context: &Context,
    look: impl Fn(&Link) -> Result<Option<Verdict>>,
) -> Result<Vec<Verdict>> {
    let devices = Rtnetlink::open()?.links()?;
    let devices = devices.iter().filter(|device| is_selected(context, device));
    Ok(devices
        .filter_map(|device| {
            look(device).unwrap_or_else(|error| Some(unchecked(&device.name, format!("{error:#}"))))
        })
        .collect())
}

fn fine(device: &str, evidence: Vec<Evidence>) -> Verdict {
    Verdict::Fine {
        subject: device.into(),
        evidence,
    }
}

fn unchecked(device: &str, reason: String) -> Verdict {
    Verdict::Unchecked {
        subject: device.into(),
        reason,
    }
}

/// The XDP programs on a device.
fn programs(device: &Link) -> Result<Vec<AttachedProgram>> {
    Ok(xsk::Device::lookup(&device.name)?.programs)
}

/// Whether something XDP is on the device, or meant for it.
fn is_wanted(context: &Context, device: &Link) -> Result<bool> {
    Ok(context.devices().contains(&device.name) || !programs(device)?.is_empty())
}

/// The driver of a real device.
fn driver(context: &Context, device: &Link) -> Option<String> {
    let path = format!("/sys/class/net/{}/device/driver", device.name);
    let driver = std::fs::read_link(context.path(&path).ok()?).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// Whether a feature of a device is on, by the kernel's name.
fn is_on(features: &[Feature], name: &str) -> bool {
    features
        .iter()
        .any(|feature| feature.name == name && feature.on)
}

/// Switches `feature` of a device, in the words of `ethtool -K`; `shown` is its line in those of
/// `ethtool -k`.
fn ethtool_fix(device: &str, feature: &str, on: bool, shown: &str) -> Fix {
    let set = |on: bool| {
        let value = if on { "on" } else { "off" };
        command::words(&format!("ethtool -K {device} {feature} {value}"))
    };
    let read = Read::of_namespace(&["ethtool", "-k", device], &format!("{shown}:"));
    command::fix(set(on), set(!on), read)
}

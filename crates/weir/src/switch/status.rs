//! The report about accelerated bridges.

use std::collections::BTreeMap;

use anyhow::Result;
use hostnet::rtnetlink::PortState;
use serde::{Deserialize, Serialize};

use super::abi::{PortCounters, REASONS};
use super::accelerator::{Accelerator, Figures};
use super::port::{Attachment, OnPort};

/// The effect of the fast path that a user of the bridge should know.
pub const HIDDEN: &str = "Frames that are forwarded here are counted above; the bridge's own counters, tcpdump on \
                          the bridge and netfilter do not see them.";

/// A bridge.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BridgeStatus {
    /// Its name.
    pub bridge: String,
    /// Whether frames are forwarded here.
    pub forwarding: bool,
    /// Why not.
    pub why_not: Option<String>,
    /// Whether programs stay when the daemon ends.
    pub pinned: bool,
    /// The Ethernet type of its tags, where it is VLAN-aware.
    pub vlan_protocol: Option<String>,
    /// Addresses in the mirror.
    pub addresses: usize,
    /// Addresses that the map has room for.
    pub room: u32,
    /// Its ports.
    pub ports: Vec<PortStatus>,
    /// Forwarded frames by the number of the VLAN: a key in JSON is a text.
    pub vlans: BTreeMap<String, Traffic>,
    /// Counts of the mirror.
    pub mirror: Figures,
    /// The latest news.
    pub news: Vec<String>,
}

/// A port.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PortStatus {
    /// The device.
    pub port: String,
    /// The mechanism: xdp, tcx, tc, or kernel for none.
    pub hook: String,
    /// Why this one.
    pub why: String,
    /// The state of the port in the bridge.
    pub state: String,
    /// Why XDP programs of other ports cannot send to it.
    pub no_redirect: Option<String>,
    /// Addresses behind it.
    pub addresses: u32,
    /// The most addresses behind it.
    pub mac_limit: Option<u32>,
    /// Frames from it that were forwarded here.
    pub received: Traffic,
    /// Frames to it that were forwarded here.
    pub sent: Traffic,
    /// Frames from it that were left to the kernel or dropped, by reason.
    pub reasons: BTreeMap<String, u64>,
}

/// Frames.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Their number.
    pub packets: u64,
    /// Their bytes, without tags and FCS.
    pub bytes: u64,
}

impl Accelerator {
    /// The bridge and its ports.
    ///
    /// # Errors
    ///
    /// Where the maps cannot be read.
    pub fn status(&self) -> Result<BridgeStatus> {
        let why_not = self.why_not();
        let vlans = self.datapath.vlan_counters()?.into_iter();
        let traffic = |packets, bytes| Traffic { packets, bytes };
        let bridge = self.bridge.bridge.clone().unwrap_or_default();
        Ok(BridgeStatus {
            bridge: self.name().to_owned(),
            forwarding: why_not.is_none(),
            why_not,
            pinned: self.is_pinned(),
            vlan_protocol: bridge
                .vlan_filtering
                .then(|| format!("{:#06x}", bridge.vlan_protocol)),
            addresses: self.addresses(),
            room: self.datapath.shape.addresses,
            ports: self
                .ports
                .values()
                .map(|port| self.port_status(port))
                .collect::<Result<_>>()?,
            vlans: vlans
                .map(|(vid, it)| (vid.to_string(), traffic(it.packets, it.bytes)))
                .collect(),
            mirror: self.figures,
            news: self.news().map(str::to_owned).collect(),
        })
    }

    fn port_status(&self, port: &OnPort) -> Result<PortStatus> {
        let counters = self.counters(port)?;
        let bridge_port = port.link.bridge_port.clone().unwrap_or_default();
        let forwards = port.attached.as_ref().filter(|_| port.forwards());
        Ok(PortStatus {
            port: port.link.name.clone(),
            hook: forwards.map_or("kernel", Attachment::mechanism).to_owned(),
            why: port.choice.why.clone(),
            state: state(bridge_port.state).to_owned(),
            no_redirect: port.no_redirect.clone(),
            addresses: self.addresses_behind(port.number),
            mac_limit: port.settings.mac_limit,
            received: Traffic {
                packets: counters.rx_packets,
                bytes: counters.rx_bytes,
            },
            sent: Traffic {
                packets: counters.tx_packets,
                bytes: counters.tx_bytes,
            },
            reasons: reasons(&counters),
        })
    }
}

fn reasons(counters: &PortCounters) -> BTreeMap<String, u64> {
    let named = REASONS.iter().zip(counters.reasons);
    named
        .filter(|(_, count)| *count > 0)
        .map(|((name, _), count)| ((*name).to_owned(), count))
        .collect()
}

fn state(state: PortState) -> &'static str {
    match state {
        PortState::Disabled => "disabled",
        PortState::Listening => "listening",
        PortState::Learning => "learning",
        PortState::Forwarding => "forwarding",
        PortState::Blocking => "blocking",
    }
}

//! The ground of a namespace's edges.

use super::draft::Draft;
use crate::ledger::balance::books::Refusal;
use crate::ledger::balance::delta::{Delta, Deltas, Key};
use crate::ledger::balance::method::Method;
use crate::ledger::sheet::{Class, Direction, Edge, Loss};
use crate::ledger::snapshot::{Device, Namespace, Snapshot};
use crate::ledger::stage::{Stage, Unit};

/// The name of the term of packets that were not forwarded.
pub const TOO_BIG: &str = "too big to be forwarded";
/// Devices on top of another, whose frames the lower one has counted.
const STACKED: [&str; 5] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"];

/// Controllers that count each frame before a port sends it. A bond counts what its ports have sent.
const BRIDGES: [&str; 2] = ["bridge", "openvswitch"];

/// Everything that an edge is made of.
pub struct Ground<'a> {
    pub method: Method,
    pub before: &'a Snapshot,
    pub after: &'a Snapshot,
    pub deltas: &'a Deltas,
    pub losses: &'a [Loss],
    pub refusals: &'a [Refusal],
    pub netns: u64,
    pub namespace: &'a Namespace,
}

impl<'a> Ground<'a> {
    pub fn draft(&self, direction: Direction, from: Stage, to: Stage, unit: Unit) -> Draft {
        Draft {
            edge: Edge {
                direction,
                from,
                to,
                unit,
                netns: self.netns,
                namespace: self.namespace.name.clone(),
                subject: None,
                entered: Vec::new(),
                left: Vec::new(),
                unexplained: 0,
                bound: 0,
                open: Vec::new(),
            },
        }
    }

    pub fn mib(&self, name: &str) -> Delta {
        self.deltas.mib(self.netns, name)
    }

    pub fn sum(&self, names: &[&str]) -> Delta {
        let deltas = names.iter().map(|name| self.mib(name));
        deltas.fold(Delta::default(), |sum, delta| Delta {
            count: sum.count + delta.count,
            skew: sum.skew.saturating_add(delta.skew),
        })
    }

    pub fn statistic(&self, index: u32, name: &str) -> Delta {
        self.deltas
            .get(&Key::Device(self.netns, index, name.into()))
    }

    pub fn driver(&self, index: u32, name: &str) -> Delta {
        self.deltas
            .get(&Key::Driver(self.netns, index, name.into()))
    }

    pub fn earlier(&self) -> Option<&'a Namespace> {
        self.before.namespaces.get(&self.netns)
    }

    /// Losses of this namespace in some stages. A lost copy is no loss of the packet.
    pub fn lost(&self, is_meant: impl Fn(&Loss) -> bool) -> Vec<&'a Loss> {
        let losses = self.losses.iter();
        losses
            .filter(|loss| {
                loss.netns == self.netns && loss.class != Class::CopyLost && is_meant(loss)
            })
            .collect()
    }

    pub fn is_stacked(device: &Device) -> bool {
        device.lower.is_some()
            && device
                .kind
                .as_deref()
                .is_some_and(|kind| STACKED.contains(&kind))
    }

    /// Whether a bridge has counted the frames of a device already.
    pub fn is_bridged(&self, device: &Device) -> bool {
        let controller = device
            .controller
            .and_then(|index| self.namespace.devices.get(&index));
        controller
            .and_then(|it| it.kind.as_deref())
            .is_some_and(|kind| BRIDGES.contains(&kind))
    }

    pub fn leave_arp(&self, draft: &mut Draft) {
        let Some(after) = self.namespace.arp else {
            draft
                .open("received ARP is not counted here: that needs a packet socket (CAP_NET_RAW)");
            return;
        };
        let before = self.earlier().and_then(|earlier| earlier.arp);
        let count = after
            .value
            .saturating_sub(before.map_or(0, |before| before.value));
        draft.leave("ARP", "a packet socket of ARP", Delta { count, skew: 0 });
    }

    /// Frames of a device that native XDP took, where its driver tells.
    pub fn taken_by_xdp(&self, index: u32) -> [(&'static str, &'static str, Delta); 3] {
        [
            ("redirected by XDP", "rx_queue_*_xdp_redirect"),
            ("dropped by XDP", "rx_queue_*_xdp_drops"),
            ("sent back by XDP", "rx_queue_*_xdp_tx"),
        ]
        .map(|(name, counter)| (name, counter, self.driver(index, counter)))
    }
}

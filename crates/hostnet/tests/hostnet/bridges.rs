//! Bridges: their ports, their forwarding database, their VLANs.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use hostnet::rtnetlink::{
    BridgeOptions, BridgePort, BridgeVlan, FdbEntry, FdbKind, Link, PortChange, PortState,
    Rtnetlink, VethEnd,
};
use hostnet::tap::Tap;
use hostnet::{ErrorKind, netns};

use testkit::process::STEP;
use testkit::{Need, Result, Test, until};

use crate::refusal;

const TUN: &[Need] = &[Need::File("/dev/net/tun")];
const VLANS: &[Need] = &[Need::Feature("bridge VLAN filtering", || {
    let namespace = netns::create()?;
    let made = netns::run_in(namespace.as_fd(), || {
        Rtnetlink::open()?.add_bridge_with("br0", &FILTERING)
    });
    match made {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        made => made.map(|()| true),
    }
})];
const FILTERING: BridgeOptions = BridgeOptions {
    vlan_filtering: true,
    vlan_protocol: None,
    vlan_default_pvid: Some(1),
    ageing_time: None,
    stp: false,
    multicast_snooping: false,
    fdb_max_learned: None,
};
/// Without VLANs: entries of each VLAN of a port would come beside those without one.
pub const PLAIN: BridgeOptions = BridgeOptions {
    vlan_filtering: false,
    vlan_default_pvid: Some(0),
    ..FILTERING
};
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("a_bridge_has_its_settings", settings),
        Test::new("a_port_comes_changes_and_goes", ports),
        Test::new("a_port_is_changed_in_each_setting", port_settings),
        Test::new("a_device_is_changed_by_index", devices),
        Test::new("fdb_entries_come_move_and_go", entries),
        Test::new("an_fdb_entry_has_its_kind", kinds),
        Test::new("a_learned_entry_ages_and_is_refreshed", refresh).needing(TUN),
        Test::new("a_refresh_of_what_cannot_be_is_not_counted", refusals),
        Test::new("many_fdb_entries_come_and_go_at_once", many),
        Test::new("a_bridge_without_vlans_has_none", no_vlans),
        Test::new("a_port_is_a_member_of_vlans", vlans).needing(VLANS),
        Test::new("an_entry_has_a_vlan", entry_with_vlan).needing(VLANS),
    ]
}

/// A bridge br0 that is up, with as many ports p0, p1, … that have a carrier.
pub struct Bridge {
    namespace: OwnedFd,
    pub rtnetlink: Rtnetlink,
    pub index: u32,
    pub ports: Vec<u32>,
}

impl Bridge {
    pub fn new(ports: usize, options: &BridgeOptions) -> Result<Self> {
        let namespace = netns::create()?;
        netns::disable_ipv6(namespace.as_fd())?;
        let mut rtnetlink = netns::run_in(namespace.as_fd(), Rtnetlink::open)?;
        rtnetlink.add_bridge_with("br0", options)?;
        let index = rtnetlink.link("br0")?.index;
        rtnetlink.set_up(index)?;
        let mut bridge = Self {
            namespace,
            rtnetlink,
            index,
            ports: Vec::new(),
        };
        for port in 0..ports {
            bridge.add_port(port as u8)?;
        }
        Ok(bridge)
    }

    fn add_port(&mut self, number: u8) -> Result<()> {
        let names = [format!("p{number}"), format!("q{number}")];
        let ends = [0, 1].map(|side| VethEnd {
            name: &names[side],
            mac: [2, 0, 0, 0, side as u8, number],
            netns: self.namespace.as_fd(),
        });
        self.rtnetlink.add_veth([&ends[0], &ends[1]], 1, 1500)?;
        let [port, peer] = names.map(|name| self.rtnetlink.link(&name));
        let (port, peer) = (port?.index, peer?.index);
        self.rtnetlink.add_port(self.index, port)?;
        self.rtnetlink.set_up(peer)?;
        self.rtnetlink.set_up(port)?;
        // The kernel follows the carrier in the background (`net/core/link_watch.c`).
        for device in [port, peer] {
            self.wait_until(device, |link| link.running)?;
        }
        self.wait_until(port, is_forwarding)?;
        self.ports.push(port);
        Ok(())
    }

    /// Waits for a state of a device that the kernel brings about in the background.
    fn wait_until(&mut self, index: u32, is: impl Fn(&Link) -> bool) -> Result<()> {
        until(STEP, "the device comes to the state", || {
            Ok(is(&self.rtnetlink.link_by_index(index)?))
        })
    }

    pub fn namespace(&self) -> std::os::fd::BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    fn port(&mut self, number: usize) -> Result<BridgePort> {
        let link = self.rtnetlink.link_by_index(self.ports[number])?;
        Ok(link.bridge_port.ok_or("it is a port")?)
    }

    fn entry(&mut self, mac: [u8; 6]) -> Result<FdbEntry> {
        let entry = self.rtnetlink.fdb_entry(self.index, mac, 0)?;
        Ok(entry.ok_or("the entry is there")?)
    }

    fn age(&mut self, mac: [u8; 6]) -> Result<Duration> {
        let age = self.rtnetlink.fdb_age(self.index, mac, 0)?;
        Ok(age.ok_or("the entry is there")?)
    }
}

fn is_forwarding(link: &Link) -> bool {
    let port = link.bridge_port.as_ref();
    port.is_some_and(|port| port.state == PortState::Forwarding)
}

fn settings() -> Result<()> {
    let options = BridgeOptions {
        ageing_time: Some(Duration::from_secs(60)),
        stp: true,
        ..BridgeOptions::default()
    };
    let mut bridge = Bridge::new(0, &options)?;
    let link = bridge.rtnetlink.link_by_index(bridge.index)?;
    assert_eq!(
        (link.name.as_str(), link.kind.as_deref()),
        ("br0", Some("bridge"))
    );
    assert!(link.up && !link.switchdev);
    assert_eq!(link.qdisc.as_deref(), Some("noqueue"));
    assert_eq!(link.bridge_port, None);
    let settings = link.bridge.ok_or("it is a bridge")?;
    assert_eq!(settings.ageing_time, Duration::from_secs(60));
    assert!(settings.stp && !settings.mst && !settings.vlan_filtering);
    assert!(!settings.multicast_snooping);
    assert_eq!(settings.vlan_protocol, 0x8100);
    let links = bridge.rtnetlink.links()?;
    assert!(
        links
            .iter()
            .all(|link| link.bridge.is_some() == (link.name == "br0"))
    );
    let error = refusal(bridge.rtnetlink.link_by_index(4711));
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    Ok(())
}

fn ports() -> Result<()> {
    let mut bridge = Bridge::new(1, &PLAIN)?;
    let port = bridge.ports[0];
    let link = bridge.rtnetlink.link_by_index(port)?;
    assert_eq!(link.controller, Some(bridge.index));
    let forwarding = BridgePort {
        state: PortState::Forwarding,
        ..BridgePort::default()
    };
    assert_eq!(link.bridge_port, Some(forwarding));
    let lower = bridge.rtnetlink.links_of(bridge.index)?;
    assert!(lower.iter().map(|link| link.index).eq([port]));
    bridge.rtnetlink.set_down(port)?;
    assert_eq!(bridge.port(0)?.state, PortState::Disabled);
    bridge.rtnetlink.remove_port(port)?;
    let link = bridge.rtnetlink.link_by_index(port)?;
    assert_eq!(
        (link.controller, link.bridge_port, link.up),
        (None, None, false)
    );
    assert_eq!(bridge.rtnetlink.links_of(bridge.index)?, []);
    Ok(())
}

fn port_settings() -> Result<()> {
    let mut bridge = Bridge::new(2, &PLAIN)?;
    let [port, other] = [bridge.ports[0], bridge.ports[1]];
    let change = PortChange {
        state: Some(PortState::Learning),
        isolated: Some(true),
        hairpin: Some(true),
        locked: Some(true),
        learning: Some(false),
        neigh_suppress: Some(true),
        flood: Some(false),
        backup_port: Some(other),
        ..PortChange::default()
    };
    bridge.rtnetlink.set_port(port, &change)?;
    let expected = BridgePort {
        state: PortState::Learning,
        isolated: true,
        hairpin: true,
        locked: true,
        learning: false,
        neigh_suppress: true,
        flood: false,
        backup_port: Some(other),
        ..BridgePort::default()
    };
    assert_eq!(bridge.port(0)?, expected);
    let change = PortChange {
        state: Some(PortState::Forwarding),
        backup_port: Some(0),
        ..PortChange::default()
    };
    bridge.rtnetlink.set_port(port, &change)?;
    let expected = BridgePort {
        state: PortState::Forwarding,
        backup_port: None,
        ..expected
    };
    assert_eq!(bridge.port(0)?, expected, "the rest stays");
    let error = refusal(bridge.rtnetlink.set_port(4711, &change));
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    Ok(())
}

fn devices() -> Result<()> {
    let mut bridge = Bridge::new(1, &PLAIN)?;
    let port = bridge.ports[0];
    bridge.rtnetlink.set_mtu(port, 1400)?;
    bridge.rtnetlink.set_down(port)?;
    bridge.rtnetlink.rename(port, "renamed")?;
    let link = bridge.rtnetlink.link("renamed")?;
    assert_eq!((link.index, link.mtu, link.up), (port, 1400, false));
    Ok(())
}

fn entries() -> Result<()> {
    let mut bridge = Bridge::new(2, &PLAIN)?;
    let [first, second] = [bridge.ports[0], bridge.ports[1]];
    let before = bridge.rtnetlink.fdb(bridge.index)?;
    assert!(
        before
            .iter()
            .all(|entry| entry.local && entry.bridge == bridge.index)
    );
    assert!(before.iter().any(|entry| entry.port == first));

    bridge.rtnetlink.add_fdb(first, MAC, 0, FdbKind::Dynamic)?;
    let entry = FdbEntry {
        mac: MAC,
        port: first,
        bridge: bridge.index,
        ..FdbEntry::default()
    };
    assert_eq!(bridge.entry(MAC)?, entry);
    let after = bridge.rtnetlink.fdb(bridge.index)?;
    let new: Vec<_> = after
        .iter()
        .filter(|entry| !before.contains(entry))
        .collect();
    assert_eq!(new, [&entry]);
    assert_eq!(bridge.rtnetlink.fdb(first)?, [], "a port is no bridge");
    assert_eq!(bridge.rtnetlink.fdb(4711)?, []);

    bridge.rtnetlink.add_fdb(second, MAC, 0, FdbKind::Dynamic)?;
    assert_eq!(bridge.entry(MAC)?.port, second);
    let error = refusal(bridge.rtnetlink.add_fdb_entry(first, MAC));
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    bridge.rtnetlink.delete_fdb(second, MAC, 0)?;
    assert_eq!(bridge.rtnetlink.fdb_entry(bridge.index, MAC, 0)?, None);
    assert_eq!(bridge.rtnetlink.fdb_age(bridge.index, MAC, 0)?, None);
    let error = refusal(bridge.rtnetlink.delete_fdb(second, MAC, 0));
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(bridge.rtnetlink.fdb(bridge.index)?.len(), before.len());
    Ok(())
}

fn kinds() -> Result<()> {
    let mut bridge = Bridge::new(1, &PLAIN)?;
    let port = bridge.ports[0];
    let plain = FdbEntry {
        mac: MAC,
        port,
        bridge: bridge.index,
        ..FdbEntry::default()
    };
    let expected = [
        (FdbKind::Dynamic, plain),
        (
            FdbKind::Static,
            FdbEntry {
                static_: true,
                ..plain
            },
        ),
        (
            FdbKind::Sticky,
            FdbEntry {
                static_: true,
                sticky: true,
                ..plain
            },
        ),
        (
            FdbKind::Local,
            FdbEntry {
                local: true,
                ..plain
            },
        ),
        (
            FdbKind::ExtLearned,
            FdbEntry {
                ext_learned: true,
                ..plain
            },
        ),
    ];
    for (kind, entry) in expected {
        bridge.rtnetlink.add_fdb(port, MAC, 0, kind)?;
        assert_eq!(bridge.entry(MAC)?, entry, "{kind:?}");
        bridge.rtnetlink.delete_fdb(port, MAC, 0)?;
    }
    Ok(())
}

/// Longer than the 10 ms in which ages are given, and a tick of the slowest kernel.
const AGE: Duration = Duration::from_millis(100);

fn refresh() -> Result<()> {
    let mut bridge = Bridge::new(1, &PLAIN)?;
    let tap = netns::run_in(bridge.namespace(), || Tap::create("t0"))?;
    let port = tap.device().index()?;
    tap.device().set_up()?;
    bridge.rtnetlink.add_port(bridge.index, port)?;
    bridge.wait_until(port, is_forwarding)?;
    let mut frame = [0xff; 60];
    frame[6..12].copy_from_slice(&MAC);
    rustix::io::write(tap.descriptor(), &frame)?;
    let learned = bridge.entry(MAC)?;
    assert_eq!(learned.port, port);
    assert!(!learned.static_ && !learned.local, "{learned:?}");

    sleep(AGE);
    let aged = bridge.age(MAC)?;
    assert!(aged >= AGE / 2, "{aged:?}");
    bridge.rtnetlink.refresh_fdb_entry(port, MAC, 0)?;
    let young = bridge.age(MAC)?;
    assert!(young < aged, "{young:?} after {aged:?}");
    assert_eq!(bridge.entry(MAC)?, learned, "nothing else changes");

    sleep(AGE);
    let aged = bridge.age(MAC)?;
    assert_eq!(bridge.rtnetlink.refresh_fdb_entries(&[(port, MAC, 0)])?, 1);
    let young = bridge.age(MAC)?;
    assert!(young < aged, "{young:?} after {aged:?}");

    // As documented: a refresh makes an entry, and moves one.
    let other = bridge.ports[0];
    bridge.rtnetlink.refresh_fdb_entry(other, MAC, 0)?;
    assert_eq!(bridge.entry(MAC)?.port, other);
    bridge.rtnetlink.delete_fdb(other, MAC, 0)?;
    bridge.rtnetlink.refresh_fdb_entry(other, MAC, 0)?;
    assert_eq!(bridge.entry(MAC)?.port, other);
    // Whether the port learns does not count, but its state does.
    for (change, expected) in [
        (
            PortChange {
                learning: Some(false),
                ..PortChange::default()
            },
            Some(other),
        ),
        (
            PortChange {
                state: Some(PortState::Listening),
                ..PortChange::default()
            },
            None,
        ),
    ] {
        bridge.rtnetlink.delete_fdb(other, MAC, 0)?;
        bridge.rtnetlink.set_port(other, &change)?;
        bridge.rtnetlink.refresh_fdb_entry(other, MAC, 0)?;
        let entry = bridge.rtnetlink.fdb_entry(bridge.index, MAC, 0)?;
        assert_eq!(entry.map(|entry| entry.port), expected, "{change:?}");
    }
    let error = refusal(bridge.rtnetlink.add_fdb(other, MAC, 0, FdbKind::Dynamic));
    assert_eq!(error.errno(), Some(1), "{error}");
    assert!(error.to_string().contains("state forwarding"), "{error}");
    bridge.rtnetlink.add_fdb(other, MAC, 0, FdbKind::Static)?;
    Ok(())
}

fn refusals() -> Result<()> {
    let mut bridge = Bridge::new(1, &PLAIN)?;
    let port = bridge.ports[0];
    // No device, no port, a group's address, and twice what can be.
    let peer = bridge.rtnetlink.link("q0")?.index;
    let keys = [
        (4711, MAC, 0),
        (port, MAC, 0),
        (peer, MAC, 0),
        (port, [0; 6], 0),
        (port, MAC, 0),
    ];
    assert_eq!(bridge.rtnetlink.refresh_fdb_entries(&keys)?, 2);
    assert_eq!(bridge.rtnetlink.refresh_fdb_entries(&[])?, 0);
    let error = refusal(bridge.rtnetlink.refresh_fdb_entry(4711, MAC, 0));
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // The error is not that of a device which is gone, but tells more.
    let error = refusal(bridge.rtnetlink.add_fdb_entries(&keys, FdbKind::Dynamic));
    assert!(error.errno().is_some(), "{error}");
    assert_ne!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(
        bridge.rtnetlink.delete_fdb_entries(&[(port, MAC, 0); 2])?,
        1
    );
    // Every request of a batch refused: no answer is lost, and the socket is good for the next.
    let keys = vec![(4711, MAC, 0); 1000];
    assert_eq!(bridge.rtnetlink.refresh_fdb_entries(&keys)?, 0);
    bridge.rtnetlink.refresh_fdb_entry(port, MAC, 0)?;
    Ok(())
}

/// The MAC address of this number, of those for local use.
pub fn mac(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [6, 0, a, b, c, d]
}

fn many() -> Result<()> {
    // More than the kernel puts into one part of the list, and no multiple of a batch.
    const COUNT: u32 = 3001;
    let mut bridge = Bridge::new(3, &PLAIN)?;
    let ports = bridge.ports.clone();
    let key = |number| (ports[number as usize % 3], mac(number), 0);
    let keys: Vec<_> = (0..COUNT).map(key).collect();
    bridge.rtnetlink.add_fdb_entries(&keys, FdbKind::Dynamic)?;
    let dynamic = |entries: Vec<FdbEntry>| -> BTreeSet<_> {
        let dynamic = entries.into_iter().filter(|entry| !entry.local);
        dynamic.map(|entry| (entry.port, entry.mac, 0)).collect()
    };
    let found = dynamic(bridge.rtnetlink.fdb(bridge.index)?);
    assert_eq!(found, keys.iter().copied().collect());
    assert_eq!(bridge.rtnetlink.refresh_fdb_entries(&keys)?, keys.len());
    assert_eq!(
        bridge.rtnetlink.delete_fdb_entries(&keys[1..])?,
        keys.len() - 1
    );
    let found = dynamic(bridge.rtnetlink.fdb(bridge.index)?);
    assert_eq!(found, [keys[0]].into());
    Ok(())
}

fn no_vlans() -> Result<()> {
    let mut bridge = Bridge::new(1, &PLAIN)?;
    assert_eq!(bridge.rtnetlink.bridge_vlans()?, []);
    for index in [bridge.index, bridge.ports[0]] {
        assert_eq!(bridge.rtnetlink.bridge_vlans_of(index)?, []);
    }
    Ok(())
}

fn vlans() -> Result<()> {
    let mut bridge = Bridge::new(2, &FILTERING)?;
    let [first, second] = [bridge.ports[0], bridge.ports[1]];
    let tagged = |vid| BridgeVlan {
        vid,
        ..BridgeVlan::default()
    };
    let access = |vid| BridgeVlan {
        vid,
        pvid: true,
        untagged: true,
        blocked: false,
    };
    let link = bridge.rtnetlink.link_by_index(bridge.index)?;
    let settings = link.bridge.ok_or("it is a bridge")?;
    assert!(settings.vlan_filtering && settings.vlan_default_pvid == 1);
    for vid in 10..=12 {
        bridge.rtnetlink.add_port_vlan(first, vid, false, false)?;
    }
    bridge.rtnetlink.add_port_vlan(second, 20, true, true)?;
    bridge.rtnetlink.delete_port_vlan(second, 1)?;
    bridge
        .rtnetlink
        .add_port_vlan(bridge.index, 20, false, false)?;
    let expected = [
        (bridge.index, vec![access(1), tagged(20)]),
        (first, vec![access(1), tagged(10), tagged(11), tagged(12)]),
        (second, vec![access(20)]),
    ];
    let mut listed = bridge.rtnetlink.bridge_vlans()?;
    listed.sort_by_key(|(index, _)| *index);
    assert_eq!(listed, expected);
    for (index, vlans) in expected {
        assert_eq!(bridge.rtnetlink.bridge_vlans_of(index)?, vlans);
    }
    bridge
        .rtnetlink
        .set_bridge_vlan_filtering(bridge.index, false)?;
    let link = bridge.rtnetlink.link_by_index(bridge.index)?;
    assert!(link.bridge.is_some_and(|bridge| !bridge.vlan_filtering));
    Ok(())
}

fn entry_with_vlan() -> Result<()> {
    let mut bridge = Bridge::new(1, &FILTERING)?;
    let port = bridge.ports[0];
    bridge.rtnetlink.add_port_vlan(port, 10, false, false)?;
    bridge.rtnetlink.add_fdb(port, MAC, 10, FdbKind::Dynamic)?;
    let entry = bridge.rtnetlink.fdb_entry(bridge.index, MAC, 10)?;
    assert_eq!(
        entry.map(|entry| (entry.port, entry.vlan)),
        Some((port, 10))
    );
    assert_eq!(bridge.rtnetlink.fdb_entry(bridge.index, MAC, 1)?, None);
    assert_eq!(bridge.rtnetlink.refresh_fdb_entries(&[(port, MAC, 10)])?, 1);
    assert_eq!(bridge.rtnetlink.refresh_fdb_entries(&[(port, MAC, 11)])?, 0);
    // As documented: without a VLAN, entries of the port's VLANs come too.
    bridge.rtnetlink.refresh_fdb_entry(port, MAC, 0)?;
    let entries = bridge.rtnetlink.fdb(bridge.index)?;
    let vlans = entries.iter().filter(|entry| entry.mac == MAC);
    let vlans: BTreeSet<_> = vlans.map(|entry| entry.vlan).collect();
    assert_eq!(vlans, [0, 1, 10].into());
    Ok(())
}

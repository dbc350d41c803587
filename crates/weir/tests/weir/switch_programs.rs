//! The switch's programs, run by `BPF_PROG_TEST_RUN` on tables of frames: nothing is sent, so VLANs are tested
//! here also on a kernel whose bridges have none.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hostnet::ethtool::{self, Offload};
use hostnet::netns;
use hostnet::rtnetlink::{Rtnetlink, VethEnd};
use weir::bpf::hook::Place;
use weir::switch::OBJECT;
use weir::switch::abi::{BUCKET_SLOTS, BUCKETS, FdbKey, Port, PortVlans, REASONS, flag};
use weir::switch::datapath::{Datapath, shape};
use weir::switch::fdb::Known;

use crate::{Test, tests};

pub fn trials() -> Vec<Test> {
    tests![
        frames_between_known_addresses_are_forwarded,
        frames_that_are_the_kernels_are_passed,
        a_source_at_another_port_has_moved,
        a_pending_entry_is_not_used,
        a_crowded_table_keeps_its_addresses,
        the_kernel_gets_a_frame_in_each_epoch,
        tags_are_added_and_removed,
        a_port_has_its_vlans_only,
        service_tags_are_those_of_a_bridge_of_802_1ad,
        meters_and_limits_drop,
    ]
}

/// `enum xdp_action`, and of tc.
const DROP: u32 = 1;
const PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const TC_PASS: u32 = u32::MAX;
const TC_REDIRECT: u32 = 7;

const LIFE: Duration = Duration::from_secs(600);
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
const ICMPV6: u8 = 58;

/// A programs' bridge of four ports, each with an address: that of port 0 ends with 1.
struct Bridge {
    datapath: Datapath,
    /// The devices go with their peers.
    _peers: OwnedFd,
    devices: [u32; PORTS],
}

const PORTS: usize = 4;
const FORWARDS: u32 = flag::FORWARDING | flag::XDP_EGRESS | flag::LEARNING;

fn mac(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + port as u8]
}

impl Bridge {
    /// In a network namespace of its own, which the test's thread is in from now on.
    fn new(vlan_protocol: Option<u16>, mac_limits: bool) -> Result<Self> {
        let (here, there) = (netns::create()?, netns::create()?);
        netns::enter(here.as_fd())?;
        let mut rtnetlink = Rtnetlink::open()?;
        let mut devices = [0; PORTS];
        for (port, device) in devices.iter_mut().enumerate() {
            let (name, peer) = (format!("p{port}"), format!("e{port}"));
            let end = |name, netns, last| VethEnd {
                name,
                mac: [2, 0, 0, 0, last, port as u8],
                netns,
            };
            let ends = [&end(&name, here.as_fd(), 2), &end(&peer, there.as_fd(), 3)];
            rtnetlink.add_veth(ends, 1, 1500)?;
            *device = rtnetlink.link(&name)?.index;
            // Without NAPI it has no queue that a frame could have come from.
            ethtool::set(&name, Offload::Gro, true)?;
            rtnetlink.set_up(*device)?;
        }
        let datapath = Datapath::load(&OBJECT, shape(PORTS, 16, 16, vlan_protocol, mac_limits)?)?;
        let mut bridge = Self {
            datapath,
            _peers: there,
            devices,
        };
        for port in 0..PORTS {
            bridge.set(port, |_| {})?;
            bridge.learn(port, 0)?;
        }
        bridge.datapath.beat(LIFE)?;
        Ok(bridge)
    }

    fn set(&mut self, port: usize, change: impl FnOnce(&mut Port)) -> Result<()> {
        let mut value = Port {
            ifindex: self.devices[port],
            flags: FORWARDS,
            mtu: 1500,
            pvid: 1,
            ..Port::default()
        };
        change(&mut value);
        self.datapath.set_port(port as u32, &value)
    }

    fn write(&self, port: usize, vlan: u16) -> Result<FdbKey> {
        let key = FdbKey {
            mac: mac(port),
            vlan,
        };
        let written = self
            .datapath
            .set_address(key, Known::new(port as u32, true));
        ensure!(written.is_ok(), "the table is full");
        Ok(key)
    }

    fn learn(&self, port: usize, vlan: u16) -> Result<()> {
        let key = self.write(port, vlan)?;
        self.datapath.activate(key);
        Ok(())
    }

    fn vlans(&self, port: usize, vlans: &[(u16, bool)]) -> Result<()> {
        let mut set = PortVlans::default();
        for (vid, untagged) in vlans {
            set.add(*vid, *untagged);
        }
        self.datapath.set_vlans(port as u32, &set)
    }

    fn xdp(&self, port: usize, frame: &[u8]) -> Result<(u32, Vec<u8>)> {
        self.datapath.run(Place::Xdp, self.devices[port], frame)
    }

    /// Both programs do the same with a frame without a tag: forward it, or leave it for this reason.
    fn expect(&self, port: usize, frame: &[u8], reason: Option<&str>) -> Result<()> {
        for place in [Place::Xdp, Place::Tcx] {
            let expected = match (place, reason) {
                (Place::Xdp, None) => XDP_REDIRECT,
                (Place::Xdp, Some(_)) => PASS,
                (Place::Tcx, None) => TC_REDIRECT,
                (Place::Tcx, Some(_)) => TC_PASS,
            };
            let before = self.count(port, reason)?;
            let (action, after) = self.datapath.run(place, self.devices[port], frame)?;
            ensure!(
                action == expected,
                "{place:?}: action {action}, not {expected}, for {reason:?}"
            );
            ensure!(after == frame, "{place:?}: the frame has changed");
            ensure!(
                self.count(port, reason)? == before + 1,
                "{place:?}: not counted: {reason:?}"
            );
        }
        Ok(())
    }

    /// Frames of a port that were left for a reason, or forwarded.
    fn count(&self, port: usize, reason: Option<&str>) -> Result<u64> {
        let counters = self.datapath.counters(port as u32)?;
        let Some(reason) = reason else {
            return Ok(counters.rx_packets);
        };
        let at = REASONS.iter().position(|(name, _)| *name == reason);
        Ok(counters.reasons[at.with_context(|| format!("no reason {reason}"))?])
    }
}

/// A frame of 64 bytes: addresses, tags of type and VLAN, the type behind them.
fn frame(to: [u8; 6], from: [u8; 6], tags: &[(u16, u16)], kind: u16) -> Vec<u8> {
    let mut frame = [to, from].concat();
    for (kind, vlan) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame.resize(64, 0x55);
    frame
}

fn plain(to: usize, from: usize) -> Vec<u8> {
    frame(mac(to), mac(from), &[], IPV4)
}

fn frames_between_known_addresses_are_forwarded() -> Result<()> {
    let bridge = Bridge::new(None, false)?;
    bridge.expect(0, &plain(1, 0), None)?;
    bridge.expect(3, &plain(2, 3), None)?;
    let counters = bridge.datapath.counters(1)?;
    ensure!(
        (counters.tx_packets, counters.tx_bytes) == (2, 128),
        "{counters:?}"
    );
    // A VLAN device on the port may take it before the bridge.
    let tagged = frame(mac(1), mac(0), &[(TAG, 7)], IPV4);
    bridge.expect(0, &tagged, Some("tags"))
}

fn frames_that_are_the_kernels_are_passed() -> Result<()> {
    let mut bridge = Bridge::new(None, false)?;
    let multicast = [0x01, 0, 0x5e, 0, 0, 1];
    bridge.expect(0, &frame([0xff; 6], mac(0), &[], ARP), Some("group"))?;
    bridge.expect(0, &frame(multicast, mac(0), &[], IPV4), Some("group"))?;
    bridge.expect(0, &frame(mac(1), mac(0), &[], ARP), Some("protocol"))?;
    let mut solicitation = frame(mac(1), mac(0), &[], IPV6);
    bridge.expect(0, &solicitation, None)?;
    solicitation[20] = ICMPV6;
    bridge.expect(0, &solicitation, Some("protocol"))?;
    bridge.expect(
        0,
        &frame([2, 9, 9, 9, 9, 9], mac(0), &[], IPV4),
        Some("unknown"),
    )?;
    bridge.expect(
        0,
        &frame(mac(1), [2, 9, 9, 9, 9, 9], &[], IPV4),
        Some("source-unknown"),
    )?;
    bridge.expect(0, &frame(mac(0), mac(0), &[], IPV4), Some("same-port"))?;
    let twice = frame(mac(1), mac(0), &[(TAG, 7), (TAG, 8)], IPV4);
    ensure!(bridge.xdp(0, &twice)?.0 == PASS, "two tags");

    let mut long = plain(1, 0);
    long.resize(1514, 0);
    bridge.expect(0, &long, None)?;
    long.push(0);
    bridge.expect(0, &long, Some("mtu"))?;
    bridge.set(0, |port| port.flags |= flag::ISOLATED)?;
    bridge.expect(0, &plain(1, 0), None)?;
    bridge.set(1, |port| port.flags |= flag::ISOLATED)?;
    bridge.expect(0, &plain(1, 0), Some("isolated"))?;
    bridge.set(1, |port| port.flags = flag::LEARNING)?;
    bridge.expect(0, &plain(1, 0), Some("egress"))?;
    bridge.expect(1, &plain(0, 1), Some("port"))?;
    // Only XDP needs a target of redirection.
    bridge.set(1, |port| port.flags = flag::FORWARDING)?;
    ensure!(bridge.xdp(0, &plain(1, 0))?.0 == PASS, "no target");
    bridge.set(1, |_| {})?;
    bridge.datapath.pause()?;
    bridge.expect(0, &plain(1, 0), Some("paused"))?;
    bridge.datapath.beat(LIFE)?;
    bridge.expect(0, &plain(1, 0), None)
}

fn a_source_at_another_port_has_moved() -> Result<()> {
    let bridge = Bridge::new(None, false)?;
    bridge.expect(0, &plain(1, 0), None)?;
    // A broadcast is enough, as of a machine that has just been migrated.
    bridge.expect(2, &frame([0xff; 6], mac(1), &[], ARP), Some("group"))?;
    bridge.expect(0, &plain(1, 0), Some("moved"))?;
    bridge.expect(1, &plain(0, 1), Some("source-unknown"))?;
    bridge.expect(2, &plain(0, 1), Some("source-moved"))?;
    Ok(())
}

fn a_pending_entry_is_not_used() -> Result<()> {
    let bridge = Bridge::new(None, false)?;
    let key = bridge.write(1, 0)?;
    bridge.expect(0, &plain(1, 0), Some("moved"))?;
    bridge.expect(1, &plain(0, 1), Some("source-unknown"))?;
    bridge.datapath.activate(key);
    bridge.expect(0, &plain(1, 0), None)?;
    // One that has moved meanwhile stays unused.
    bridge.write(1, 0)?;
    bridge.expect(2, &plain(0, 1), Some("source-moved"))?;
    bridge.datapath.activate(key);
    bridge.expect(0, &plain(1, 0), Some("moved"))?;
    ensure!(bridge.datapath.has_moved(key), "it is known to have moved");
    bridge.datapath.remove_address(key);
    bridge.expect(0, &plain(1, 0), Some("unknown"))
}

fn a_crowded_table_keeps_its_addresses() -> Result<()> {
    let bridge = Bridge::new(None, false)?;
    let key = |last| FdbKey {
        mac: [2, 7, 7, 7, 0, last],
        vlan: 0,
    };
    let places = 0..64;
    let known = places.filter(|last| {
        let written = bridge
            .datapath
            .set_address(key(*last), Known::new(1, false));
        bridge.datapath.activate(key(*last));
        written.is_ok()
    });
    let known: Vec<u8> = known.collect();
    // The factor of the hash is random: it may send all of them to the same buckets, where ports' addresses are too.
    let sure_of_room = BUCKETS as usize * BUCKET_SLOTS - PORTS;
    ensure!(
        (sure_of_room..64).contains(&known.len()),
        "{} found room",
        known.len()
    );
    for last in 0..64 {
        let reason = (!known.contains(&last)).then_some("unknown");
        bridge.expect(0, &frame(key(last).mac, mac(0), &[], IPV4), reason)?;
    }
    for last in &known {
        bridge.datapath.remove_address(key(*last));
        bridge.expect(
            0,
            &frame(key(*last).mac, mac(0), &[], IPV4),
            Some("unknown"),
        )?;
    }
    bridge.expect(0, &plain(1, 0), None)
}

fn the_kernel_gets_a_frame_in_each_epoch() -> Result<()> {
    let mut bridge = Bridge::new(None, false)?;
    bridge.datapath.begin_epoch()?;
    let frame = plain(1, 0);
    for expected in [PASS, XDP_REDIRECT, XDP_REDIRECT] {
        let (action, _) = bridge.xdp(0, &frame)?;
        ensure!(action == expected, "action {action}, not {expected}");
    }
    ensure!(bridge.count(0, Some("refresh"))? == 1, "counted");
    Ok(())
}

/// A bridge whose ports are in VLAN 10: port 0 and 1 without tags, 2 and 3 with.
fn vlan_bridge(protocol: u16) -> Result<Bridge> {
    let mut bridge = Bridge::new(Some(protocol), false)?;
    for port in 0..PORTS {
        let access = port < 2;
        bridge.set(port, |value| value.pvid = if access { 10 } else { 0 })?;
        bridge.vlans(port, &[(10, access)])?;
        bridge.learn(port, 10)?;
    }
    Ok(bridge)
}

fn tags_are_added_and_removed() -> Result<()> {
    let bridge = vlan_bridge(TAG)?;
    let tagged = |to: usize, from: usize| frame(mac(to), mac(from), &[(TAG, 10)], IPV4);
    let (action, after) = bridge.xdp(0, &plain(1, 0))?;
    ensure!(
        action == XDP_REDIRECT && after == plain(1, 0),
        "access to access: {after:x?}"
    );
    let (action, after) = bridge.xdp(2, &tagged(3, 2))?;
    ensure!(
        action == XDP_REDIRECT && after == tagged(3, 2),
        "trunk to trunk: {after:x?}"
    );
    let (action, after) = bridge.xdp(0, &plain(2, 0))?;
    let mut expected = plain(2, 0);
    expected.splice(12..12, [0x81, 0, 0, 10]);
    ensure!(
        action == XDP_REDIRECT && after == expected,
        "pushed: {after:x?}"
    );
    let (action, after) = bridge.xdp(2, &tagged(0, 2))?;
    let mut expected = tagged(0, 2);
    expected.drain(12..16);
    ensure!(
        action == XDP_REDIRECT && after == expected,
        "popped: {after:x?}"
    );
    let counted = bridge.datapath.vlan_counters()?;
    ensure!(
        counted.get(&10).is_some_and(|it| it.packets == 4),
        "{counted:?}"
    );
    Ok(())
}

fn a_port_has_its_vlans_only() -> Result<()> {
    let bridge = vlan_bridge(TAG)?;
    let left = |port, tags: &[(u16, u16)], reason: &str| -> Result<()> {
        let to = (port + 1) % PORTS;
        let before = bridge.count(port, Some(reason))?;
        let (action, _) = bridge.xdp(port, &frame(mac(to), mac(port), tags, IPV4))?;
        ensure!(action == PASS, "{tags:?}: action {action}");
        ensure!(
            bridge.count(port, Some(reason))? == before + 1,
            "{tags:?}: not {reason}"
        );
        Ok(())
    };
    left(0, &[(TAG, 11)], "vlan")?;
    left(2, &[], "vlan")?;
    // A tag of priority alone is in the port's own VLAN.
    left(0, &[(TAG, 0)], "tags")?;
    left(2, &[(TAG, 10), (TAG, 11)], "tags")?;
    left(0, &[(SERVICE_TAG, 10)], "tags")?;
    bridge.vlans(1, &[])?;
    left(0, &[], "egress-vlan")
}

fn service_tags_are_those_of_a_bridge_of_802_1ad() -> Result<()> {
    let bridge = vlan_bridge(SERVICE_TAG)?;
    let (action, after) = bridge.xdp(0, &plain(2, 0))?;
    let mut expected = plain(2, 0);
    expected.splice(12..12, [0x88, 0xa8, 0, 10]);
    ensure!(
        action == XDP_REDIRECT && after == expected,
        "pushed: {after:x?}"
    );
    let customer = frame(mac(1), mac(0), &[(TAG, 10)], IPV4);
    ensure!(
        bridge.xdp(0, &customer)?.0 == PASS,
        "a customer's tag is the kernel's"
    );
    Ok(())
}

fn meters_and_limits_drop() -> Result<()> {
    let mut bridge = Bridge::new(None, true)?;
    bridge.set(0, |port| {
        port.flags |= flag::STORM;
        // Three in a tenth of a second.
        port.storm = [30, 0, 0];
    })?;
    let broadcast = frame([0xff; 6], mac(0), &[], ARP);
    let runs: Result<Vec<u32>> = (0..50).map(|_| Ok(bridge.xdp(0, &broadcast)?.0)).collect();
    let dropped = runs?.iter().filter(|action| **action == DROP).count() as u64;
    ensure!(
        dropped > 0 && bridge.count(0, Some("storm"))? == dropped,
        "{dropped} dropped"
    );
    ensure!(
        bridge.count(0, Some("group"))? == 50 - dropped,
        "the others are passed"
    );

    let bpdu = |port| frame([0x01, 0x80, 0xc2, 0, 0, 0], mac(port), &[], 4);
    bridge.set(0, |port| port.storm = [30, 1, 0])?;
    for _ in 0..5 {
        let action = bridge.xdp(0, &bpdu(0))?.0;
        ensure!(action == PASS, "the storm meter takes a BPDU");
    }

    bridge.set(1, |port| {
        port.flags |= flag::MAC_LIMIT;
        (port.mac_limit, port.macs) = (3, 1);
    })?;
    let from = |last| frame([0xff; 6], [2, 1, 1, 1, 1, last], &[], ARP);
    let act = |last| Ok::<_, anyhow::Error>(bridge.xdp(1, &from(last))?.0);
    ensure!(act(1)? == PASS && act(2)? == PASS, "two more have room");
    ensure!(act(3)? == DROP, "a third has none");
    let action = bridge.xdp(1, &bpdu(9))?.0;
    ensure!(action == PASS, "the limit takes a BPDU");
    ensure!(
        act(1)? == PASS,
        "one that is being learned is not counted twice"
    );
    ensure!(
        bridge.xdp(1, &plain(0, 1))?.0 == XDP_REDIRECT,
        "a known one is forwarded"
    );
    Ok(())
}

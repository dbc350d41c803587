//! Devices: made, changed, read, and with frames through them.

use std::net::UdpSocket;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};

use hostnet::device::Device;
use hostnet::ethtool::{self, Offload};
use hostnet::genetlink::netdev;
use hostnet::netns;
use hostnet::rtnetlink::{
    Address, Neighbour, NeighbourState, QdiscOptions, QdiscStatistics, Rtnetlink, TcHandle, VethEnd,
};
use hostnet::tap::{Tap, TapOptions};

use testkit::process::STEP;
use testkit::{Error, Need, Result, Test, until};

use crate::refusal;

const TUN: &[Need] = &[Need::File("/dev/net/tun")];
const TUN_AND_TC: &[Need] = &[Need::File("/dev/net/tun"), Need::Program("tc")];
const TUN_AND_TBF: &[Need] = &[
    TUN_AND_TC[0],
    TUN_AND_TC[1],
    Need::Feature("the discipline tbf (NET_SCH_TBF)", || {
        can(&["qdisc add dev lo root tbf rate 8bit burst 64 limit 120"])
    }),
];
const TUN_AND_CLSACT: &[Need] = &[
    TUN_AND_TC[0],
    TUN_AND_TC[1],
    Need::Feature("clsact with u32 (NET_SCH_INGRESS, NET_CLS_U32)", || {
        can(&[
            "qdisc add dev lo clsact",
            "filter add dev lo egress u32 match u32 0 0 flowid 1:1",
        ])
    }),
];
const NETDEV: &[Need] = &[Need::Feature("the netdev family (Linux 6.3)", || {
    Ok(netdev::xdp_features(LOOPBACK)?.is_some())
})];
/// The index of the loopback in every namespace.
const LOOPBACK: u32 = 1;
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xa], [2, 0, 0, 0, 0, 0xb]];

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("a_veth_pair_joins_two_namespaces", veth),
        Test::new("a_veth_has_queues_and_offloads", queues_and_offloads),
        Test::new("a_peer_in_another_namespace_is_read", foreign_peer),
        Test::new("neighbours_have_their_state", neighbours),
        Test::new("addresses_and_default_routes_are_read", addresses),
        Test::new("a_feature_is_switched_by_name", features),
        Test::new("a_veth_reports_xdp_features", xdp_features).needing(NETDEV),
        Test::new("a_bridge_sends_a_frame_to_its_port", bridge).needing(TUN),
        Test::new("a_tap_goes_with_its_descriptor", tap).needing(TUN),
        Test::new("a_tap_has_its_form", tap_forms).needing(TUN),
        Test::new("qdiscs_are_read_and_replaced", qdiscs).needing(TUN_AND_TC),
        Test::new("a_qdisc_counts_frames_and_drops", qdisc_counters).needing(TUN_AND_TBF),
        Test::new("clsact_counts_what_it_filters", clsact_counters).needing(TUN_AND_CLSACT),
        Test::new("a_device_has_all_counters_of_the_kernel", statistics).needing(TUN),
    ]
}

fn foreign_peer() -> Result<()> {
    let [a, b] = pair(1, 1500)?;
    let v1 = open(b.as_fd(), "v1")?;
    netns::run_in(b.as_fd(), || Rtnetlink::open()?.set_mtu(v1.index()?, 2000))?;
    netns::run_in(a.as_fd(), || -> Result<()> {
        let mut rtnetlink = Rtnetlink::open()?;
        let v0 = rtnetlink.link("v0")?;
        let netns = v0.lower_netns.expect("the peer is in another namespace");
        let peer = rtnetlink.link_in(netns, v0.lower.expect("a peer"))?;
        assert_eq!(
            (peer.name.as_str(), peer.mtu, peer.mac),
            ("v1", 2000, MACS[1])
        );
        assert_eq!(peer.promiscuity, 0);
        assert!(
            rtnetlink.link_in(netns + 1000, 1).is_err(),
            "no such namespace"
        );
        Ok(())
    })
}

fn addresses() -> Result<()> {
    let [a, _b] = pair(1, 1500)?;
    let v0 = open(a.as_fd(), "v0")?;
    v0.set_up()?;
    for words in [
        "addr add 192.0.2.1/24 dev v0",
        "addr add 10.0.0.1 peer 10.0.0.2 dev v0",
        "route add 198.51.100.0/24 via 192.0.2.254",
        "route add default via 192.0.2.254",
    ] {
        ip(a.as_fd(), words)?;
    }
    netns::run_in(a.as_fd(), || -> Result<()> {
        let mut rtnetlink = Rtnetlink::open()?;
        let index = v0.index()?;
        let mut addresses = rtnetlink.addresses()?;
        addresses.retain(|it| it.device == index);
        let v4 = |address: [u8; 4], prefix, peer: Option<[u8; 4]>| Address {
            device: index,
            address: address.into(),
            prefix,
            peer: peer.map(Into::into),
        };
        let expected = [
            v4([192, 0, 2, 1], 24, None),
            v4([10, 0, 0, 1], 32, Some([10, 0, 0, 2])),
        ];
        assert_eq!(addresses, expected);
        assert_eq!(rtnetlink.default_route_devices()?, [index]);
        Ok(())
    })
}

fn neighbours() -> Result<()> {
    let [a, _b] = pair(1, 1500)?;
    let v0 = open(a.as_fd(), "v0")?;
    v0.set_up()?;
    let mac = MACS[1].map(|byte| format!("{byte:02x}")).join(":");
    for words in [
        format!("neigh add 192.0.2.7 lladdr {mac} dev v0 nud permanent"),
        "neigh add 192.0.2.8 dev v0 nud failed".into(),
    ] {
        ip(a.as_fd(), &words)?;
    }
    let device = v0.index()?;
    let mut neighbours = netns::run_in(a.as_fd(), || {
        let mut rtnetlink = Rtnetlink::open()?;
        rtnetlink.add_neighbour(device, [192, 0, 2, 9].into(), MACS[1])?;
        let again = rtnetlink.add_neighbour(device, [192, 0, 2, 9].into(), MACS[1]);
        assert_eq!(again.expect_err("it is there").errno(), Some(libc::EEXIST));
        rtnetlink.neighbours()
    })?;
    neighbours.sort_by_key(|it| it.address);
    let neighbour = |last, mac, state| Neighbour {
        device,
        address: [192, 0, 2, last].into(),
        mac,
        state,
    };
    let expected = [
        neighbour(7, Some(MACS[1]), NeighbourState::PERMANENT),
        neighbour(8, None, NeighbourState::FAILED),
        neighbour(9, Some(MACS[1]), NeighbourState::PERMANENT),
    ];
    assert_eq!(neighbours, expected);
    Ok(())
}

/// Runs ip(8) in a namespace.
fn ip(netns: BorrowedFd<'_>, words: &str) -> Result<()> {
    let mut ip = Command::new("ip");
    ip.args(words.split(' '));
    assert!(netns::spawn(netns, &mut ip)?.wait()?.success(), "{words}");
    Ok(())
}

/// A veth pair: v0 in the first namespace, v1 in the second.
pub fn pair(queues: u32, mtu: u32) -> Result<[OwnedFd; 2]> {
    let namespaces = [netns::create()?, netns::create()?];
    for namespace in &namespaces {
        netns::disable_ipv6(namespace.as_fd())?;
    }
    let [v0, v1] = [("v0", 0), ("v1", 1)].map(|(name, side)| VethEnd {
        name,
        mac: MACS[side],
        netns: namespaces[side].as_fd(),
    });
    Rtnetlink::open()?.add_veth([&v0, &v1], queues, mtu)?;
    Ok(namespaces)
}

fn open(namespace: BorrowedFd<'_>, name: &str) -> Result<Device> {
    Ok(netns::run_in(namespace, || Device::open(name))?)
}

fn veth() -> Result<()> {
    let [a, b] = pair(2, 3000)?;
    let (v0, v1) = (open(a.as_fd(), "v0")?, open(b.as_fd(), "v1")?);
    let down = v0.state()?;
    assert!(!down.up && !down.running, "{down:?}");
    v0.set_up()?;
    v1.set_up()?;
    // The kernel follows the carrier in the background (`net/core/link_watch.c`).
    until(STEP, "v0 has a carrier", || {
        Ok::<_, Error>(v0.state()?.running)
    })?;
    let link = v0.state()?;
    assert!(link.up && link.running, "{link:?}");
    assert_eq!((link.mtu, link.queues, link.mac), (3000, 2, MACS[0]));
    assert_eq!(link.kind.as_deref(), Some("veth"));
    assert_eq!(link.lower, Some(v1.index()?));
    assert!(link.lower_netns.is_some(), "{link:?}");
    assert_eq!(link.stats, v0.counters()?);
    let other = [2, 0, 0, 0, 0, 0xc];
    netns::run_in(a.as_fd(), || Rtnetlink::open()?.set_mac(v0.index()?, other))?;
    assert_eq!(v0.state()?.mac, other);
    v0.delete()?;
    let error = refusal(v1.state());
    assert_eq!(error.kind(), hostnet::ErrorKind::NotFound, "{error}");
    Ok(())
}

fn queues_and_offloads() -> Result<()> {
    let [a, _b] = pair(3, 1500)?;
    netns::run_in(a.as_fd(), || -> Result<()> {
        let channels = ethtool::channels("v0")?.ok_or("a veth has channels")?;
        let used = channels.used;
        assert_eq!(used.rx.max(used.combined), 3, "{channels:?}");
        for on in [true, false] {
            ethtool::set("v0", Offload::Gro, on)?;
            let features = ethtool::features("v0")?;
            let gro = features.iter().find(|feature| feature.name == "rx-gro");
            let gro = gro.ok_or("a device has rx-gro")?;
            assert!(gro.changeable && gro.on == on, "{gro:?}");
        }
        assert_eq!(ethtool::rx_ring("v0")?, None);
        Ok(())
    })
}

fn features() -> Result<()> {
    let [a, _b] = pair(1, 1500)?;
    netns::run_in(a.as_fd(), || -> Result<()> {
        for on in [false, true] {
            ethtool::set_feature("v0", "rx-vlan-hw-parse", on)?;
            let features = ethtool::features("v0")?;
            let parse = features.iter().find(|f| f.name == "rx-vlan-hw-parse");
            assert!(parse.is_some_and(|parse| parse.on == on), "{parse:?}");
        }
        // A veth has no filter of VLANs.
        let features = ethtool::features("v0")?;
        assert!(features.iter().any(|f| f.name == "rx-vlan-filter" && !f.on));
        for name in ["rx-vlan-filter", "no-such-feature"] {
            let error = refusal(ethtool::set_feature("v0", name, true));
            assert_eq!(error.kind(), hostnet::ErrorKind::Unsupported, "{error}");
        }
        let error = refusal(ethtool::set_feature("nowhere", "rx-gro", true));
        assert_eq!(error.kind(), hostnet::ErrorKind::NotFound, "{error}");
        Ok(())
    })
}

fn xdp_features() -> Result<()> {
    let [a, _b] = pair(1, 1500)?;
    let index = open(a.as_fd(), "v0")?.index()?;
    let features = netns::run_in(a.as_fd(), || netdev::xdp_features(index))?;
    let features = features.ok_or("the family was there")?;
    assert!(features.native() && !features.zero_copy(), "{features}");
    Ok(())
}

fn bridge() -> Result<()> {
    let namespace = netns::create()?;
    netns::disable_ipv6(namespace.as_fd())?;
    let guests = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];
    let taps = netns::run_in(namespace.as_fd(), || -> hostnet::Result<_> {
        let mut rtnetlink = Rtnetlink::open()?;
        rtnetlink.add_bridge("br0")?;
        let bridge = rtnetlink.link("br0")?.index;
        rtnetlink.add_address(bridge, [192, 0, 2, 1].into(), 24)?;
        let mut taps = Vec::new();
        for (name, mac) in ["t1", "t2", "t3"].into_iter().zip(guests) {
            let tap = Tap::create(name)?;
            let index = tap.device().index()?;
            tap.device().set_up()?;
            rtnetlink.add_port(bridge, index)?;
            rtnetlink.add_fdb_entry(index, mac)?;
            assert_eq!(tap.device().state()?.controller, Some(bridge));
            taps.push(tap);
        }
        rtnetlink.set_up(bridge)?;
        Ok(taps)
    })?;
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&guests[1]);
    frame[6..12].copy_from_slice(&guests[0]);
    // An EtherType for local experiments (IEEE 802).
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    rustix::io::write(taps[0].descriptor(), &frame)?;
    let mut buffer = [0; 100];
    assert_eq!(rustix::io::read(taps[1].descriptor(), &mut buffer)?, 60);
    assert_eq!(buffer[..60], frame);
    let flooded = rustix::io::read(taps[2].descriptor(), &mut buffer);
    assert_eq!(flooded, Err(rustix::io::Errno::AGAIN));
    assert_eq!(taps[0].device().counters()?.rx_packets, 1);
    assert_eq!(taps[1].device().counters()?.tx_packets, 1);
    Ok(())
}

fn tap() -> Result<()> {
    let namespace = netns::create()?;
    let tap = netns::run_in(namespace.as_fd(), || Tap::create("t0"))?;
    assert_eq!(tap.device().name(), "t0");
    assert_eq!(tap.device().state()?.kind.as_deref(), Some("tun"));
    drop(tap);
    // A process that another test starts has the descriptor until it executes its program.
    netns::run_in(namespace.as_fd(), || {
        until(STEP, "the device goes", || {
            let links = Rtnetlink::open()?.links()?;
            Ok(links.iter().all(|link| link.name != "t0"))
        })
    })
}

fn tap_forms() -> Result<()> {
    /// `ARPHRD_ETHER` and `ARPHRD_NONE`.
    const LINK_TYPES: [u16; 2] = [1, 65_534];
    let namespace = netns::create()?;
    for (layer3, vnet_header) in [(false, false), (false, true), (true, false), (true, true)] {
        let options = TapOptions {
            layer3,
            vnet_header,
        };
        // Another name each time: the one before may be going still.
        let name = format!("t{}{}", u8::from(layer3), u8::from(vnet_header));
        let make = || Tap::create_with(&name, options);
        let link = netns::run_in(namespace.as_fd(), make)?.device().state()?;
        assert_eq!(link.link_type, LINK_TYPES[usize::from(layer3)]);
        assert_eq!(link.tap_vnet_header, Some(vnet_header));
    }
    Ok(())
}

fn qdiscs() -> Result<()> {
    let namespace = netns::create()?;
    let tap = netns::run_in(namespace.as_fd(), || Tap::create("t0"))?;
    tap.device().set_up()?;
    let index = tap.device().index()?;
    let root = || -> Result<_> {
        let qdiscs = netns::run_in(namespace.as_fd(), || Rtnetlink::open()?.qdiscs())?;
        let root = qdiscs
            .into_iter()
            .find(|qdisc| qdisc.device == index && qdisc.parent == TcHandle::ROOT);
        Ok(root.ok_or("a device that is up has a root discipline")?)
    };
    tc(
        namespace.as_fd(),
        "qdisc replace dev t0 root handle 8004: pfifo limit 77",
    )?;
    let pfifo = root()?;
    assert_eq!(pfifo.kind, "pfifo");
    assert_eq!((pfifo.handle.major, pfifo.handle.minor), (0x8004, 0));
    assert_eq!(pfifo.options, QdiscOptions::Fifo { limit: 77 });
    netns::run_in(namespace.as_fd(), || Rtnetlink::open()?.set_noqueue(index))?;
    let noqueue = root()?;
    assert_eq!(noqueue.kind, "noqueue");
    assert_eq!(noqueue.options, QdiscOptions::None);
    Ok(())
}

fn tc(namespace: BorrowedFd<'_>, words: &str) -> Result<()> {
    let mut command = Command::new("tc");
    let status = netns::spawn(namespace, command.args(words.split(' ')))?.wait()?;
    assert!(status.success(), "tc {words}");
    Ok(())
}

/// Whether tc(8) and the kernel can do all of this, in a new namespace.
fn can(commands: &[&str]) -> hostnet::Result<bool> {
    let namespace = netns::create()?;
    for words in commands {
        let mut command = Command::new("tc");
        command.args(words.split(' ')).stderr(Stdio::null());
        let mut tc = netns::spawn(namespace.as_fd(), &mut command)?;
        if !tc.wait().is_ok_and(|status| status.success()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The counters of the only discipline of this kind.
fn counters(namespace: BorrowedFd<'_>, kind: &str) -> Result<QdiscStatistics> {
    let qdiscs = netns::run_in(namespace, || Rtnetlink::open()?.qdiscs())?;
    let found = qdiscs.into_iter().find(|qdisc| qdisc.kind == kind);
    let found = found.ok_or_else(|| format!("there is no {kind}"))?;
    Ok(found.statistics.ok_or("the kernel counts")?)
}

/// A tap t0 that is up and has an address, in a namespace without IPv6, so that the kernel sends
/// nothing of its own.
fn quiet_tap() -> Result<(OwnedFd, Tap)> {
    let namespace = netns::create()?;
    netns::disable_ipv6(namespace.as_fd())?;
    let tap = netns::run_in(namespace.as_fd(), || -> Result<_> {
        let tap = Tap::create("t0")?;
        tap.device().set_up()?;
        let index = tap.device().index()?;
        Rtnetlink::open()?.add_address(index, [192, 0, 2, 1].into(), 24)?;
        Ok(tap)
    })?;
    Ok((namespace, tap))
}

/// Sends frames of 60 bytes out of the tap: broadcasts, which need no neighbour.
fn broadcast(namespace: BorrowedFd<'_>, count: usize) -> Result<()> {
    netns::run_in(namespace, || -> Result<()> {
        let socket = UdpSocket::bind("192.0.2.1:0")?;
        socket.set_broadcast(true)?;
        for _ in 0..count {
            // 14, 20 and 8 bytes of headers come to it.
            socket.send_to(&[0; 18], "192.0.2.255:9")?;
        }
        Ok(())
    })
}

fn qdisc_counters() -> Result<()> {
    let (namespace, _tap) = quiet_tap()?;
    let words = "qdisc replace dev t0 root handle 8004: pfifo limit 5";
    tc(namespace.as_fd(), words)?;
    broadcast(namespace.as_fd(), 3)?;
    let passed = QdiscStatistics {
        bytes: 180,
        packets: 3,
        ..QdiscStatistics::default()
    };
    assert_eq!(counters(namespace.as_fd(), "pfifo")?, passed);

    // A bucket of one frame that takes a minute to fill again: one passes, two wait.
    let words = "qdisc replace dev t0 root handle 8005: tbf rate 8bit burst 64 limit 120";
    tc(namespace.as_fd(), words)?;
    broadcast(namespace.as_fd(), 10)?;
    let held = counters(namespace.as_fd(), "tbf")?;
    assert_eq!((held.packets, held.bytes), (1, 60), "{held:?}");
    assert_eq!((held.queue_length, held.backlog), (2, 120), "{held:?}");
    assert_eq!(held.drops, 7, "{held:?}");
    assert!(held.overlimits > 0, "{held:?}");
    Ok(())
}

fn clsact_counters() -> Result<()> {
    let (namespace, _tap) = quiet_tap()?;
    tc(namespace.as_fd(), "qdisc add dev t0 clsact")?;
    let nothing = counters(namespace.as_fd(), "clsact")?;
    assert_eq!(nothing, QdiscStatistics::default());
    // A filter of every packet, as 1:1, to no effect.
    let words = "filter add dev t0 egress u32 match u32 0 0 flowid 1:1";
    tc(namespace.as_fd(), words)?;
    broadcast(namespace.as_fd(), 3)?;
    let passed = counters(namespace.as_fd(), "clsact")?;
    assert_eq!((passed.packets, passed.drops), (3, 0), "{passed:?}");
    Ok(())
}

fn statistics() -> Result<()> {
    let (namespace, tap) = quiet_tap()?;
    broadcast(namespace.as_fd(), 3)?;
    // A tap counts a frame when it is read.
    for _ in 0..3 {
        assert_eq!(rustix::io::read(tap.descriptor(), &mut [0; 100])?, 60);
    }
    let link = tap.device().state()?;
    let statistics = link.statistics;
    assert_eq!(link.stats.tx_packets, 3);
    assert_eq!(statistics.get("tx_packets"), Some(3), "{statistics:?}");
    assert_eq!(statistics.get("tx_bytes"), Some(180), "{statistics:?}");
    assert_eq!(statistics.get("rx_bytes"), Some(0), "{statistics:?}");
    assert!(statistics.get("rx_nohandler").is_some(), "{statistics:?}");
    Ok(())
}

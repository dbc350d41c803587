use std::collections::BTreeMap;

use super::*;
use crate::ledger::snapshot::{Counted, Counters, Device, Drop, Reading, XdpSocket};

const NETNS: u64 = 7;

fn counters(values: &[(&str, u64)]) -> Counters {
    let counters = values.iter();
    counters
        .map(|(name, value)| ((*name).to_owned(), Reading::from(*value)))
        .collect()
}

/// A host with one namespace and its device `eth0`, with nothing counted.
fn host(whole_host: bool) -> Snapshot {
    let device = Device {
        name: "eth0".into(),
        ..Device::default()
    };
    let namespace = Namespace {
        name: "web".into(),
        devices: BTreeMap::from([(2, device)]),
        ..Namespace::default()
    };
    Snapshot {
        version: VERSION,
        whole_host,
        events: Some(Counted::default()),
        namespaces: BTreeMap::from([(NETNS, namespace)]),
        ..Snapshot::default()
    }
}

fn add_drop(snapshot: &mut Snapshot, netns: u64, reason: &str, skbs: u64, segments: u64) {
    let events = snapshot.events.get_or_insert_default();
    events.drops.push(Drop {
        reason: reason.into(),
        place: Some(format!("at_{}", events.drops.len())),
        netns,
        device: 2,
        skbs,
        segments,
        ..Drop::default()
    });
}

#[test]
fn losses_of_an_ended_namespace_are_those_of_the_host() {
    for whole_host in [true, false] {
        let (before, mut after) = (host(whole_host), host(whole_host));
        add_drop(&mut after, 99, "NO_SOCKET", 5, 5);
        let sheet = balance(&before, &after).expect("a sheet");
        let shown: Vec<_> = sheet
            .losses
            .iter()
            .map(|loss| loss.namespace.as_str())
            .collect();
        let expected: &[&str] = if whole_host { &["net:[99], gone"] } else { &[] };
        assert_eq!(shown, expected);
    }
}

#[test]
fn namespaces_and_devices_that_come_and_go_are_named() {
    let (mut before, mut after) = (host(true), host(true));
    let ended = Namespace {
        name: "job".into(),
        ..Namespace::default()
    };
    before.namespaces.insert(8, ended);
    let web = after.namespaces.get_mut(&NETNS).expect("the namespace");
    let eth0 = web.devices.remove(&2).expect("the device");
    let eth1 = Device {
        name: "eth1".into(),
        ..eth0
    };
    web.devices.insert(3, eth1);
    let sheet = balance(&before, &after).expect("a sheet");
    let gaps: Vec<_> = sheet.gaps.iter().map(|gap| gap.hidden.as_str()).collect();
    for words in [
        "with them: job",
        "vanished, and their counters with them: eth0 of web",
        "elsewhere: eth1 of web",
    ] {
        assert!(
            gaps.iter().any(|gap| gap.ends_with(words)),
            "{words}: {gaps:?}"
        );
    }
    let since_boot = since_boot(&after).expect("a sheet");
    assert!(
        since_boot
            .gaps
            .iter()
            .all(|gap| !gap.hidden.contains("appeared"))
    );
}

/// The event names the receiving end, and the sending one counts.
#[test]
fn a_packet_at_a_full_ring_of_a_veth_is_lost_once() {
    let (mut before, mut after) = (host(true), host(true));
    add_drop(&mut after, NETNS, "NOT_SPECIFIED", 9, 9);
    if let Some(drop) = after.events.as_mut().and_then(|it| it.drops.last_mut()) {
        drop.place = Some("veth_xmit".into());
    }
    let mut other = after.namespaces[&NETNS].devices[&2].clone();
    other.statistics = counters(&[("tx_dropped", 9)]);
    let web = after.namespaces.get_mut(&NETNS).expect("the namespace");
    let eth0 = web.devices.get_mut(&2).expect("the device");
    eth0.peer = Some((8, 5));
    let far = Namespace {
        name: "far".into(),
        devices: BTreeMap::from([(5, other.clone())]),
        ..Namespace::default()
    };
    after.namespaces.insert(8, far.clone());
    other.statistics = counters(&[("tx_dropped", 0)]);
    let far = Namespace {
        devices: BTreeMap::from([(5, other)]),
        ..far
    };
    before.namespaces.insert(8, far);
    let sheet = balance(&before, &after).expect("a sheet");
    let rows: Vec<_> = sheet
        .losses
        .iter()
        .map(|loss| (loss.stage, loss.netns, loss.count))
        .collect();
    assert_eq!(rows, [(Stage::Transmit, 8, 9)]);
}

/// Nothing of the namespaces that were read lost it.
#[test]
fn a_packet_of_an_unknown_sender_is_no_loss_of_its_receiver() {
    for (whole_host, expected) in [(true, &[(0, 9)][..]), (false, &[])] {
        let (before, mut after) = (host(whole_host), host(whole_host));
        add_drop(&mut after, NETNS, "NOT_SPECIFIED", 9, 9);
        if let Some(drop) = after.events.as_mut().and_then(|it| it.drops.last_mut()) {
            drop.place = Some("veth_xmit".into());
        }
        let sheet = balance(&before, &after).expect("a sheet");
        let rows = sheet.losses.iter().map(|loss| (loss.netns, loss.count));
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        assert_eq!(sheet.edges, []);
    }
}

#[test]
fn an_xdp_socket_claims_no_more_packets_than_it_lost() {
    let (before, mut after) = (host(true), host(true));
    add_drop(&mut after, NETNS, "XDP", 60, 60);
    add_drop(&mut after, NETNS, "XDP", 60, 60);
    after.xdp_sockets = Some(vec![XdpSocket {
        netns: NETNS,
        device: 2,
        rx_full: 100,
        ..XdpSocket::default()
    }]);
    let sheet = balance(&before, &after).expect("a sheet");
    let rows: Vec<_> = sheet
        .losses
        .iter()
        .map(|loss| (loss.reason.as_str(), loss.count))
        .collect();
    assert_eq!(rows, [("rx_ring_full", 100), ("XDP", 20)]);
}

#[test]
fn a_frame_that_is_too_long_is_no_lack_of_chunks() {
    let (mut before, mut after) = (host(true), host(true));
    let socket = |rx_dropped, fill_empty| {
        Some(vec![XdpSocket {
            netns: NETNS,
            device: 2,
            rx_dropped,
            fill_empty,
            ..XdpSocket::default()
        }])
    };
    before.xdp_sockets = socket(5, 5);
    for (dropped, empty, expected) in [
        (
            12,
            5,
            vec![("rx_dropped without rx_fill_ring_empty_descs", 7, true)],
        ),
        (12, 12, vec![("rx_fill_ring_empty_descs", 7, false)]),
        // Zero-copy finds FILL empty without a loss.
        (5, 90, vec![]),
        (
            12,
            9,
            vec![
                ("rx_fill_ring_empty_descs", 4, false),
                ("rx_dropped without rx_fill_ring_empty_descs", 3, true),
            ],
        ),
    ] {
        after.xdp_sockets = socket(dropped, empty);
        let sheet = balance(&before, &after).expect("a sheet");
        let rows: Vec<_> = sheet
            .losses
            .iter()
            .map(|loss| {
                let counter = loss.proof.trim_start_matches("XDP_STATISTICS ");
                let is_long = loss.check.as_deref() == Some("xdp-long-packets");
                assert_eq!(is_long, loss.meaning.contains("longer than a chunk"));
                (counter, loss.count, is_long)
            })
            .collect();
        assert_eq!(rows, expected);
    }
}

#[test]
fn each_skb_weighs_its_segments() {
    let (before, mut after) = (host(true), host(true));
    add_drop(&mut after, NETNS, "NO_SOCKET", 10, 45);
    let sheet = balance(&before, &after).expect("a sheet");
    assert_eq!((sheet.losses[0].count, sheet.losses[0].segments), (10, 45));
}

#[test]
fn a_rest_stays_within_its_limit() {
    let (before, mut after) = (host(true), host(true));
    let web = after.namespaces.get_mut(&NETNS).expect("the namespace");
    let eth0 = web.devices.get_mut(&2).expect("the device");
    eth0.kind = Some("veth".into());
    eth0.statistics = counters(&[("rx_packets", 100)]);
    // 130 segments in 120 skbs: at most 10 of the 30 that no frame brought were carried by others.
    web.mib = counters(&[("IpExt.InNoECTPkts", 130), ("Ip.InReceives", 120)]);
    let sheet = balance(&before, &after).expect("a sheet");
    let edge = sheet
        .edges
        .iter()
        .find(|edge| edge.from == Stage::Driver)
        .expect("an edge");
    let rest = edge
        .left
        .iter()
        .find_map(|term| term.most.zip(Some(term.count)));
    assert_eq!((rest, edge.unexplained), (Some((10, -10)), -20));
    assert!(!edge.closes());
}

#[test]
fn a_saved_file_with_any_numbers_is_no_panic() {
    let (mut before, mut after) = (host(true), host(true));
    for (snapshot, value, moved) in [(&mut before, 0, u64::MAX), (&mut after, 1, 1)] {
        let web = snapshot.namespaces.get_mut(&NETNS).expect("the namespace");
        web.mib = counters(&[("Ip.InReceives", value), ("Ip6.InReceives", value)]);
        for reading in web.mib.values_mut() {
            reading.moved = moved;
        }
    }
    for _ in 0..2 {
        add_drop(&mut before, NETNS, "NO_SOCKET", u64::MAX, u64::MAX);
        if let Some(drop) = before.events.as_mut().and_then(|it| it.drops.last_mut()) {
            drop.place = None;
        }
    }
    assert!(balance(&before, &after).is_ok());
}

#[test]
fn a_recording_with_any_numbers_is_no_panic() {
    let (before, mut after) = (host(true), host(true));
    let web = after.namespaces.get_mut(&NETNS).expect("the namespace");
    let eth0 = web.devices.get_mut(&2).expect("the device");
    eth0.kind = Some("veth".into());
    for names in [
        &["rx_packets", "rx_dropped"][..],
        &["tx_packets", "tx_dropped"],
    ] {
        for name in names {
            let reading = Reading::from(u64::MAX);
            eth0.statistics.insert((*name).to_owned(), reading);
        }
    }
    web.mib = counters(&[
        ("IpExt.InNoECTPkts", u64::MAX),
        ("IpExt.OutMcastPkts", u64::MAX),
        ("Ip.InReceives", u64::MAX - 1),
        ("Ip.InHdrErrors", u64::MAX),
        ("Udp.InDatagrams", u64::MAX),
        ("Tcp.OutSegs", u64::MAX),
        ("Ip.FragOKs", u64::MAX),
        ("Ip.ReasmReqds", u64::MAX),
    ]);
    for reason in ["QUEUE_PURGE", "PKT_TOO_BIG", "PKT_TOO_BIG"] {
        add_drop(&mut after, NETNS, reason, u64::MAX, u64::MAX);
    }
    assert!(balance(&before, &after).is_ok());
}

//! Notifications of devices, bridges and forwarding databases.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::process::Command;

use hostnet::ethtool::Queues;
use hostnet::genetlink::ethtool::{ChannelEvent, ChannelMonitor};
use hostnet::netns;
use hostnet::rtnetlink::{Event, FdbEntry, FdbKind, Monitor, PortChange, PortState, Rtnetlink};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CapabilitySet, CapabilitySets};

use testkit::{Need, Result, Test};

use crate::bridges::{Bridge, PLAIN, mac};
use crate::devices::pair;

const IP: &[Need] = &[Need::Program("ip")];
const ETHTOOL: &[Need] = &[
    Need::Program("ethtool"),
    Need::Feature(
        "the family ethtool of generic netlink (Linux 5.6, ETHTOOL_NETLINK)",
        || Ok(ChannelMonitor::open()?.is_some()),
    ),
];

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("a_monitor_reports_devices", devices),
        Test::new("a_monitor_reports_ports", ports),
        Test::new("a_monitor_reports_fdb_entries", entries),
        Test::new("a_monitor_reports_every_change_of_many", many),
        Test::new("a_monitor_reports_what_it_lost_and_goes_on", overflow),
        Test::new("a_monitor_skips_neighbours", neighbours),
        Test::new("a_monitor_needs_no_capability", capability),
        Test::new("a_monitor_tells_a_move_from_an_end", moves).needing(IP),
        Test::new("a_monitor_of_channels_reports_each_change", channels).needing(ETHTOOL),
    ]
}

fn monitor(bridge: &Bridge) -> Result<Monitor> {
    Ok(netns::run_in(bridge.namespace(), Monitor::open)?)
}

/// All that waits. The kernel's notifications are there when the change that caused them returns.
fn read(monitor: &mut Monitor) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    while let Some(event) = monitor.next()? {
        events.push(event);
    }
    Ok(events)
}

/// The same without news of devices: the kernel follows the carrier in the background.
fn read_entries(monitor: &mut Monitor) -> Result<Vec<Event>> {
    let mut events = read(monitor)?;
    events.retain(|event| !matches!(event, Event::Link(_) | Event::BridgePort { .. }));
    Ok(events)
}

fn is_readable(monitor: &Monitor) -> Result<bool> {
    let mut waiting = [PollFd::from_borrowed_fd(monitor.as_fd(), PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    Ok(poll(&mut waiting, Some(&now))? == 1)
}

fn devices() -> Result<()> {
    let mut bridge = Bridge::new(0, &PLAIN)?;
    let mut monitor = monitor(&bridge)?;
    assert!(!is_readable(&monitor)?);
    assert_eq!(monitor.next()?, None);
    bridge.rtnetlink.add_bridge("br1")?;
    assert!(is_readable(&monitor)?);
    let made = bridge.rtnetlink.link("br1")?;
    let events = read(&mut monitor)?;
    let is_made = |event: &Event| match event {
        Event::Link(link) => link.index == made.index && link.bridge == made.bridge,
        _ => false,
    };
    assert!(events.iter().any(is_made), "{events:?}");
    bridge.rtnetlink.delete(made.index)?;
    let events = read(&mut monitor)?;
    let gone = Event::LinkGone {
        index: made.index,
        name: "br1".into(),
        moved: false,
    };
    assert!(events.contains(&gone), "{events:?}");
    Ok(())
}

fn ports() -> Result<()> {
    let mut bridge = Bridge::new(1, &PLAIN)?;
    let mut monitor = monitor(&bridge)?;
    let (index, port) = (bridge.index, bridge.ports[0]);
    let changed = Event::BridgePort {
        index: port,
        bridge: Some(index),
    };
    let isolated = PortChange {
        isolated: Some(true),
        ..PortChange::default()
    };
    bridge.rtnetlink.set_port(port, &isolated)?;
    let events = read(&mut monitor)?;
    assert!(events.contains(&changed), "{events:?}");

    bridge.rtnetlink.set_down(port)?;
    let events = read(&mut monitor)?;
    let down = |event: &Event| match event {
        Event::Link(link) => link.index == port && !link.up,
        _ => false,
    };
    assert!(events.iter().any(down), "{events:?}");
    assert!(events.contains(&changed), "{events:?}");
    let link = bridge.rtnetlink.link_by_index(port)?;
    let state = link.bridge_port.map(|port| port.state);
    assert_eq!(state, Some(PortState::Disabled));

    bridge.rtnetlink.remove_port(port)?;
    let events = read(&mut monitor)?;
    assert!(
        events.contains(&Event::BridgePortGone { index: port }),
        "{events:?}"
    );
    let free = |event: &Event| match event {
        Event::Link(link) => link.index == port && link.controller.is_none(),
        _ => false,
    };
    assert!(events.iter().any(free), "{events:?}");

    bridge.rtnetlink.add_port(index, port)?;
    let events = read(&mut monitor)?;
    assert!(events.contains(&changed), "{events:?}");
    Ok(())
}

fn entries() -> Result<()> {
    let mut bridge = Bridge::new(2, &PLAIN)?;
    let mut monitor = monitor(&bridge)?;
    let mac = [2, 0, 0, 0, 1, 1];
    let at = |port| FdbEntry {
        mac,
        port,
        bridge: bridge.index,
        ..FdbEntry::default()
    };
    let [first, second] = [bridge.ports[0], bridge.ports[1]].map(at);
    let rtnetlink = &mut bridge.rtnetlink;
    rtnetlink.add_fdb(first.port, mac, 0, FdbKind::Dynamic)?;
    assert_eq!(read_entries(&mut monitor)?, [Event::Fdb(first)]);
    rtnetlink.refresh_fdb_entry(first.port, mac, 0)?;
    assert_eq!(read_entries(&mut monitor)?, [], "a refresh is no change");
    rtnetlink.refresh_fdb_entry(second.port, mac, 0)?;
    assert_eq!(read_entries(&mut monitor)?, [Event::Fdb(second)]);
    rtnetlink.add_fdb(second.port, mac, 0, FdbKind::Static)?;
    let fixed = FdbEntry {
        static_: true,
        ..second
    };
    assert_eq!(read_entries(&mut monitor)?, [Event::Fdb(fixed)]);
    rtnetlink.delete_fdb(second.port, mac, 0)?;
    assert_eq!(read_entries(&mut monitor)?, [Event::FdbGone(fixed)]);
    // A port takes its entries with it.
    rtnetlink.add_fdb(first.port, mac, 0, FdbKind::Dynamic)?;
    rtnetlink.remove_port(first.port)?;
    let events = read(&mut monitor)?;
    assert!(events.contains(&Event::FdbGone(first)), "{events:?}");
    Ok(())
}

fn many() -> Result<()> {
    const COUNT: u32 = 5000;
    let mut bridge = Bridge::new(1, &PLAIN)?;
    let mut monitor = monitor(&bridge)?;
    let keys: Vec<_> = (0..COUNT).map(|n| (bridge.ports[0], mac(n), 0)).collect();
    bridge.rtnetlink.add_fdb_entries(&keys, FdbKind::Dynamic)?;
    let events = read_entries(&mut monitor)?;
    let mut macs = Vec::new();
    for event in events {
        match event {
            Event::Fdb(entry) => macs.push(entry.mac),
            other => panic!("{other:?} after {} entries", macs.len()),
        }
    }
    let expected: Vec<_> = (0..COUNT).map(mac).collect();
    assert!(macs == expected, "{} entries, or not in order", macs.len());
    Ok(())
}

fn overflow() -> Result<()> {
    let mut bridge = Bridge::new(1, &PLAIN)?;
    // Room for a few.
    let mut monitor = netns::run_in(bridge.namespace(), || Monitor::with_room(8 << 10))?;
    let port = bridge.ports[0];
    for round in 0..3 {
        let keys: Vec<_> = (0..500).map(|n| (port, mac(round * 500 + n), 0)).collect();
        bridge.rtnetlink.add_fdb_entries(&keys, FdbKind::Dynamic)?;
        assert!(is_readable(&monitor)?);
        assert_eq!(read_entries(&mut monitor)?, [Event::Overflow]);
        bridge.rtnetlink.delete_fdb(port, mac(round * 500), 0)?;
        let events = read_entries(&mut monitor)?;
        let entry = FdbEntry {
            mac: mac(round * 500),
            port,
            bridge: bridge.index,
            ..FdbEntry::default()
        };
        assert_eq!(events, [Event::FdbGone(entry)]);
    }
    Ok(())
}

fn neighbours() -> Result<()> {
    let mut bridge = Bridge::new(0, &PLAIN)?;
    bridge
        .rtnetlink
        .add_address(bridge.index, [192, 0, 2, 1].into(), 24)?;
    let mut monitor = monitor(&bridge)?;
    // A packet to an address that nobody has makes a neighbour that fails.
    netns::run_in(bridge.namespace(), || -> Result<()> {
        let socket = std::net::UdpSocket::bind("192.0.2.1:0")?;
        socket.send_to(b"x", "192.0.2.2:9")?;
        Ok(())
    })?;
    bridge.rtnetlink.set_down(bridge.index)?;
    for event in read(&mut monitor)? {
        let known = matches!(event, Event::Link(_) | Event::BridgePort { .. });
        assert!(known, "{event:?}");
    }
    Ok(())
}

fn capability() -> Result<()> {
    let mut bridge = Bridge::new(0, &PLAIN)?;
    // Capabilities belong to a thread, and this one ends with the closure.
    let mut monitor = netns::run_in(bridge.namespace(), || {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none).expect("a thread can drop its capabilities");
        let mut rtnetlink = Rtnetlink::open()?;
        let index = rtnetlink.link("br0")?.index;
        assert!(rtnetlink.fdb(index)?.iter().all(|entry| entry.local));
        Monitor::open()
    })?;
    bridge.rtnetlink.set_mtu(bridge.index, 1400)?;
    assert!(!read(&mut monitor)?.is_empty());
    Ok(())
}

/// Runs a program inside a namespace.
fn run(namespace: BorrowedFd<'_>, program: &str, arguments: &str) -> Result<()> {
    let mut command = Command::new(program);
    let mut child = netns::spawn(namespace, command.args(arguments.split(' ')))?;
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    Err(format!("`{program} {arguments}`: {status}").into())
}

fn moves() -> Result<()> {
    let [a, b] = pair(1, 1500)?;
    let mut monitor = netns::run_in(a.as_fd(), || Monitor::of_devices(256 << 10))?;
    // The index is another one after the return.
    let index = || netns::run_in(a.as_fd(), || Rtnetlink::open()?.link("v0")).map(|it| it.index);
    let gone = |index, moved| Event::LinkGone {
        index,
        name: "v0".into(),
        moved,
    };
    // The descriptor is this process's, and the same in a child.
    let to = |namespace: &OwnedFd| {
        let process = std::process::id();
        format!(
            "link set v0 netns /proc/{process}/fd/{}",
            namespace.as_raw_fd()
        )
    };
    let first = index()?;
    run(a.as_fd(), "ip", &to(&b))?;
    let events = read(&mut monitor)?;
    assert!(events.contains(&gone(first, true)), "{events:?}");
    run(b.as_fd(), "ip", &to(&a))?;
    let events = read(&mut monitor)?;
    let is_back = |event: &Event| matches!(event, Event::Link(link) if link.name == "v0");
    assert!(events.iter().any(is_back), "{events:?}");
    let second = index()?;
    netns::run_in(a.as_fd(), || Rtnetlink::open()?.delete(second))?;
    let events = read(&mut monitor)?;
    assert!(events.contains(&gone(second, false)), "{events:?}");
    Ok(())
}

fn channels() -> Result<()> {
    let [a, _b] = pair(4, 1500)?;
    let monitor = netns::run_in(a.as_fd(), ChannelMonitor::open)?;
    let mut monitor = monitor.ok_or("the probe has found the family")?;
    let index = netns::run_in(a.as_fd(), || Rtnetlink::open()?.link("v0"))?.index;
    let queues = |rx, tx| Queues {
        rx,
        tx,
        combined: 0,
    };
    assert_eq!(monitor.channels(index)?, Some(queues(4, 4)));
    assert_eq!(monitor.next()?, None);
    run(a.as_fd(), "ethtool", "-L v0 rx 2 tx 3")?;
    let used = queues(2, 3);
    assert_eq!(monitor.next()?, Some(ChannelEvent::Set { index, used }));
    assert_eq!(monitor.next()?, None);
    assert_eq!(monitor.channels(index)?, Some(used));
    Ok(())
}

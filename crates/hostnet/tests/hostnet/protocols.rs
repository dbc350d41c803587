//! Counters of the protocols, of packets on a loopback of a namespace's own.

use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};

use hostnet::device::Device;
use hostnet::{mib, netns, softnet};
use testkit::process::STEP;
use testkit::{Need, Result, Test, skip, until};

const IPV6: &[Need] = &[Need::File("/proc/thread-self/net/snmp6")];
const NEIGHBOURS: &[Need] = &[Need::File("/proc/1/net/stat/arp_cache")];

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("counters_are_those_of_the_threads_namespace", counters),
        Test::new("counters_of_ipv6_have_names", counters_of_ipv6).needing(IPV6),
        Test::new("neighbour_tables_are_read_in_any_namespace", neighbours).needing(NEIGHBOURS),
    ]
}

/// A namespace whose loopback is up.
pub fn loopback() -> Result<OwnedFd> {
    let namespace = netns::create()?;
    netns::run_in(namespace.as_fd(), || Device::open("lo"))?.set_up()?;
    Ok(namespace)
}

/// Waits until this namespace has received `packets`: on a busy CPU a task of the kernel's receives them later. The backlog
/// of a CPU, which all programs share, may have no room for them.
fn received(packets: u64, dropped_before: u64) -> Result<()> {
    let all = until(STEP, "all packets are received", || {
        Ok(mib::read()?.get("Ip.InReceives") == Some(packets))
    });
    if all.is_err() && dropped_at_backlogs()? != dropped_before {
        return Err(skip(
            "needs room in the backlog of a CPU, which others filled",
        ));
    }
    all
}

/// Frames that found the backlog of a CPU full.
fn dropped_at_backlogs() -> Result<u64> {
    let cpus = softnet::softnet()?;
    Ok(cpus.values().map(|cpu| u64::from(cpu.dropped)).sum())
}

fn counters() -> Result<()> {
    let namespace = loopback()?;
    netns::run_in(namespace.as_fd(), || -> Result<()> {
        let dropped = dropped_at_backlogs()?;
        let before = mib::read()?;
        assert_eq!(before.get("Udp.NoPorts"), Some(0), "a new namespace");
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        for _ in 0..3 {
            sender.send_to(b"datagram", receiver.local_addr()?)?;
        }
        receiver.recv(&mut [0; 8])?;
        received(3, dropped)?;
        // From a socket of its own: the refusal is an error of its next call.
        let port = receiver.local_addr()?;
        drop(receiver);
        UdpSocket::bind("127.0.0.1:0")?.send_to(b"refused", port)?;
        received(5, dropped)?;
        let after = mib::read()?;
        for (name, count) in [
            ("Udp.OutDatagrams", 4),
            ("Udp.InDatagrams", 1),
            ("Udp.NoPorts", 1),
            ("Icmp.OutDestUnreachs", 1),
            ("IcmpMsg.OutType3", 1),
            ("Ip.InReceives", 5),
            ("IpExt.InNoECTPkts", 5),
            ("TcpExt.ListenOverflows", 0),
        ] {
            assert_eq!(after.get(name), Some(count), "{name}");
        }
        Ok(())
    })
}

fn counters_of_ipv6() -> Result<()> {
    let namespace = loopback()?;
    netns::run_in(namespace.as_fd(), || -> Result<()> {
        let counters = mib::read()?;
        for name in ["Ip6.InReceives", "Icmp6.InMsgs", "Udp6.RcvbufErrors"] {
            assert!(counters.get(name).is_some(), "{name}");
        }
        Ok(())
    })
}

fn neighbours() -> Result<()> {
    let here = mib::neighbour_tables()?;
    let namespace = loopback()?;
    let there = netns::run_in(namespace.as_fd(), mib::neighbour_tables)?;
    for name in ["arp_cache.entries", "arp_cache.table_fulls"] {
        assert!(here.get(name).is_some() && there.get(name).is_some());
    }
    Ok(())
}

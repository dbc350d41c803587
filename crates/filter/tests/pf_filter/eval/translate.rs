//! Translation: later rules, states, and packets of both directions.

use std::collections::BTreeSet;
use std::net::IpAddr;

use pf_filter::eval::{Cause, Decision};
use pf_filter::packet::{Content, Packet};
use pf_filter::rule::RouteKind;

use super::net::Net;

/// Source and destination of the packet that leaves.
fn ends(decision: &Decision) -> String {
    let packet = decision.packet.as_ref().expect("a packet");
    match packet.ports() {
        Some((source, destination)) => {
            format!(
                "{}:{source} > {}:{destination}",
                packet.source, packet.destination
            )
        }
        None => format!("{} > {}", packet.source, packet.destination),
    }
}

#[test]
fn nat_out_and_back() {
    let conf = "match out on em0 inet from 10.0.0.0/24 nat-to 192.0.2.1 static-port\nblock all\n\
                pass out on em0 proto udp from 192.0.2.1\n";
    let mut net = Net::new(conf);
    let decision = net.expect(
        "out udp 10.0.0.5:4000 > 198.51.100.1:53 received-on em1",
        "pass @3",
    );
    assert_eq!(ends(&decision), "192.0.2.1:4000 > 198.51.100.1:53");
    let translated = decision.matches[0]
        .translated
        .as_deref()
        .expect("a translation");
    assert_eq!(
        (translated.source, translated.source_port),
        ("192.0.2.1".parse().unwrap(), 4000)
    );
    let state = decision.state.expect("a state").info;
    assert_eq!(
        state.stack.addresses,
        [
            "198.51.100.1".parse::<IpAddr>().unwrap(),
            "10.0.0.5".parse().unwrap()
        ]
    );
    assert_eq!(
        state.wire.addresses,
        [
            "198.51.100.1".parse::<IpAddr>().unwrap(),
            "192.0.2.1".parse().unwrap()
        ]
    );
    // The answer comes to the translated address, and goes on to the real one.
    let decision = net.expect("in udp 198.51.100.1:53 > 192.0.2.1:4000", "pass state");
    assert_eq!(ends(&decision), "198.51.100.1:53 > 10.0.0.5:4000");
    net.expect("in udp 198.51.100.1:53 > 10.0.0.5:4000", "block @2");
}

#[test]
fn nat_takes_a_port_that_is_free() {
    let conf =
        "pass out on em0 inet proto udp from 10.0.0.0/24 nat-to 192.0.2.1 port 50001:50003\n";
    let mut net = Net::new(conf);
    let mut ports = BTreeSet::new();
    for host in 1..=3 {
        let decision = net.expect(
            &format!("out udp 10.0.0.{host}:4000 > 198.51.100.1:53"),
            "pass @1",
        );
        let (source, _) = decision.packet.expect("a packet").ports().expect("ports");
        assert!((50_001..=50_003).contains(&source) && ports.insert(source));
    }
    net.expect("out udp 10.0.0.4:4000 > 198.51.100.1:53", "block translate");
    net.expect("out udp 10.0.0.4:4000 > 198.51.100.2:53", "pass @1");
}

#[test]
fn rdr_in_and_back() {
    let conf = "block all\nmatch in on em0 inet proto tcp to 192.0.2.1 port 80 rdr-to 10.0.0.80 port 8080\n\
                pass in on em0 proto tcp to 10.0.0.80 port 8080\npass out on em1 proto tcp\n";
    let mut net = Net::new(conf);
    let decision = net.expect("in tcp 198.51.100.1:4000 > 192.0.2.1:80", "pass @3");
    assert_eq!(ends(&decision), "198.51.100.1:4000 > 10.0.0.80:8080");
    net.expect(
        "out@em1 tcp 198.51.100.1:4000 > 10.0.0.80:8080 received-on em0",
        "pass @4",
    );
    net.expect(
        "in@em1 tcp 10.0.0.80:8080 > 198.51.100.1:4000 flags SA seq 5000 ack 1001",
        "pass state",
    );
    let decision = net.expect(
        "out tcp 10.0.0.80:8080 > 198.51.100.1:4000 flags SA seq 5000 ack 1001",
        "pass state",
    );
    assert_eq!(ends(&decision), "192.0.2.1:80 > 198.51.100.1:4000");
}

#[test]
fn a_port_alone_is_translated_and_back() {
    let conf = "block all\npass in on em0 inet proto tcp to port 80 rdr-to 192.0.2.1 port 8080\n";
    let mut net = Net::new(conf);
    let decision = net.expect("in tcp 198.51.100.1:4000 > 192.0.2.1:80", "pass @2");
    assert_eq!(ends(&decision), "198.51.100.1:4000 > 192.0.2.1:8080");
    let decision = net.expect(
        "out tcp 192.0.2.1:8080 > 198.51.100.1:4000 flags SA seq 5000 ack 1001",
        "pass state",
    );
    assert_eq!(ends(&decision), "192.0.2.1:80 > 198.51.100.1:4000");
}

#[test]
fn an_icmp_error_is_translated_with_what_it_is_about() {
    let conf =
        "pass out on em0 inet proto udp from 10.0.0.0/24 nat-to 192.0.2.1 static-port\nblock in\n";
    let mut net = Net::new(conf);
    net.expect("out udp 10.0.0.5:4000 > 198.51.100.1:53", "pass @1");
    let error = "in icmp 203.0.113.1 > 192.0.2.1 icmp-type unreach about proto udp from 192.0.2.1 port 4000 to \
                 198.51.100.1 port 53";
    let decision = net.expect(error, "pass state");
    let packet = decision.packet.expect("a packet");
    assert_eq!(packet.destination, "10.0.0.5".parse::<IpAddr>().unwrap());
    let about = packet
        .icmp()
        .and_then(|icmp| icmp.about)
        .expect("the packet inside");
    assert_eq!(about.source, packet.destination);
}

#[test]
fn an_echo_gets_another_identifier() {
    let conf = "pass out on em0 inet proto icmp from 10.0.0.0/24 nat-to 192.0.2.1\nblock in\n";
    let mut net = Net::new(conf);
    let decision = net.expect(
        "out icmp 10.0.0.5 > 198.51.100.1 icmp-type echoreq id 7",
        "pass @1",
    );
    let id = decision
        .packet
        .as_ref()
        .and_then(Packet::icmp)
        .expect("ICMP")
        .id;
    assert_eq!(ends(&decision), "192.0.2.1 > 198.51.100.1");
    let answer = format!("in icmp 198.51.100.1 > 192.0.2.1 icmp-type echorep id {id}");
    let decision = net.expect(&answer, "pass state");
    assert_eq!(
        decision
            .packet
            .as_ref()
            .and_then(Packet::icmp)
            .expect("ICMP")
            .id,
        7
    );
    assert_eq!(ends(&decision), "198.51.100.1 > 10.0.0.5");
}

#[test]
fn binat_works_both_ways() {
    let conf = "block all\nmatch on em0 inet from 10.0.0.5 to any binat-to 192.0.2.5\npass on em0 inet proto udp\n";
    let mut net = Net::new(conf);
    let decision = net.run("out udp 10.0.0.5:9 > 198.51.100.1:53");
    assert_eq!(ends(&decision), "192.0.2.5:9 > 198.51.100.1:53");
    let decision = net.run("in udp 198.51.100.2:9 > 192.0.2.5:53");
    assert_eq!(ends(&decision), "198.51.100.2:9 > 10.0.0.5:53");
}

#[test]
fn rdr_maps_a_range_of_ports() {
    let conf = "pass in inet proto udp to 192.0.2.1 port 2000:2999 rdr-to 10.0.0.80 port 22:*\n";
    let mut net = Net::new(conf);
    let decision = net.expect("in udp 198.51.100.1:9 > 192.0.2.1:2005", "pass @1");
    assert_eq!(ends(&decision), "198.51.100.1:9 > 10.0.0.80:27");
}

/// The destinations that packets of several sources get.
fn destinations(conf: &str, sources: &[u8]) -> Vec<u8> {
    let mut net = Net::new(conf);
    let destination = |&source: &u8| {
        let decision = net.run(&format!("in udp 198.51.100.{source}:9 > 192.0.2.1:53"));
        match decision
            .packet
            .unwrap_or_else(|| panic!("{:?}", decision.cause))
            .destination
        {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => 0,
        }
    };
    sources.iter().map(destination).collect()
}

#[test]
fn pools_choose_addresses() {
    let rdr = |pool: &str| format!("pass in inet proto udp to 192.0.2.1 rdr-to {pool}\n");
    assert_eq!(
        destinations(&rdr("{ 10.0.0.1, 10.0.0.7, 10.0.0.9 }"), &[1, 2, 3, 4]),
        [1, 7, 9, 1]
    );
    assert_eq!(
        destinations(&rdr("10.0.0.8/30 round-robin"), &[1, 2, 3, 4, 5]),
        [8, 9, 10, 11, 8]
    );
    assert_eq!(
        destinations(&rdr("10.0.0.0/24 bitmask"), &[9, 8]),
        [1, 1],
        "the destination's host part"
    );
    let sticky = destinations(
        &rdr("{ 10.0.0.1, 10.0.0.7 } round-robin sticky-address"),
        &[1, 2, 1, 2],
    );
    assert_eq!(sticky, [1, 7, 1, 7]);
    let hashed = destinations(&rdr("10.0.0.0/24 source-hash"), &[1, 2, 1, 2]);
    assert_eq!(hashed[..2], hashed[2..]);
    let random = destinations(&rdr("10.0.0.0/24 random"), &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(random.iter().collect::<BTreeSet<_>>().len() > 1);
    let conf = format!(
        "table <pool> {{ 10.0.0.1, 10.0.0.2 }}\n{}",
        rdr("<pool> least-states")
    );
    assert_eq!(destinations(&conf, &[1, 2, 3, 4]), [1, 2, 1, 2]);
}

#[test]
fn af_to_translates_families() {
    let conf = "pass in on em0 inet6 from any to 64:ff9b::/96 af-to inet from 192.0.2.1\n";
    let mut net = Net::new(conf);
    let decision = net.expect(
        "in udp 2001:db8::5 > 64:ff9b::198.51.100.1 port 53",
        "pass @1",
    );
    let packet = decision.packet.as_ref().expect("a packet");
    assert_eq!(
        packet.destination,
        "198.51.100.1".parse::<IpAddr>().unwrap()
    );
    assert_eq!(packet.source, "192.0.2.1".parse::<IpAddr>().unwrap());
    let (port, _) = packet.ports().expect("ports");
    let decision = net.expect(
        &format!("in udp 198.51.100.1:53 > 192.0.2.1:{port}"),
        "pass state",
    );
    let packet = decision.packet.as_ref().expect("a packet");
    assert_eq!(
        packet.source,
        "64:ff9b::198.51.100.1".parse::<IpAddr>().unwrap()
    );
    assert_eq!(packet.destination, "2001:db8::5".parse::<IpAddr>().unwrap());
    assert!(matches!(packet.content, Content::Udp(_)));
}

#[test]
fn an_empty_pool_drops() {
    let conf =
        "table <pool> persist\npass in inet proto udp to 192.0.2.1 rdr-to <pool> round-robin\n";
    let decision = Net::new(conf).run("in udp 198.51.100.1:9 > 192.0.2.1:53");
    assert_eq!(decision.cause, Cause::Translate);
}

#[test]
fn routes_hold_for_their_direction() {
    let conf = "pass in on em0 inet proto udp to port 1 route-to 192.0.2.254\n\
                pass in on em0 inet proto udp to port 2 reply-to 192.0.2.253\n";
    let mut net = Net::new(conf);
    let hop = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    let route = |decision: Decision| decision.route.map(|(_, hop)| hop);
    assert_eq!(
        net.run("in udp 198.51.100.1:9 > 10.0.0.5:1").route,
        hop("192.0.2.254").map(|hop| (RouteKind::RouteTo, hop))
    );
    assert_eq!(route(net.run("out udp 10.0.0.5:1 > 198.51.100.1:9")), None);
    assert_eq!(route(net.run("in udp 198.51.100.1:9 > 10.0.0.5:2")), None);
    assert_eq!(
        route(net.run("out udp 10.0.0.5:2 > 198.51.100.1:9")),
        hop("192.0.2.253")
    );
}

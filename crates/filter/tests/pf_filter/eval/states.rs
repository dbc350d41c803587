//! States: handshakes, windows, resets, timeouts, ICMP errors, sources.

use pf_filter::eval::{Answer, Cause, Verdict};
use pf_filter::rule::{Direction, Timeout};

use super::net::Net;

const SSH: &str = "block all\npass in proto tcp to port 22\n";
const SYN: &str = "in tcp 10.0.0.5:4000 > 192.0.2.1:22 seq 1000";
const SYN_ACK: &str = "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags SA seq 5000 ack 1001";
const FIRST_ACK: &str = "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags A seq 1001 ack 5001";

fn established(conf: &str) -> Net {
    let mut net = Net::new(conf);
    assert!(net.verdict(SYN).starts_with("pass @"));
    net.expect(SYN_ACK, "pass state");
    net.expect(FIRST_ACK, "pass state");
    net
}

#[test]
fn the_window_is_kept_from_the_first_high_sequence_number() {
    let mut net = Net::new(SSH);
    net.expect(SYN, "pass @2");
    let answer = |flags: &str, seq: u32| {
        format!("out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags {flags} seq {seq} ack 1001")
    };
    net.expect(&answer("SA", 0x9000_0000), "pass state");
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags A seq 1001 ack 2415919105",
        "pass state",
    );
    net.expect(
        &format!("{} length 100", answer("PA", 0xb000_0000)),
        "block window",
    );
}

#[test]
fn a_repeated_syn_keeps_its_state() {
    let mut net = Net::new(SSH);
    net.expect(SYN, "pass @2");
    for _ in 0..2 {
        net.wait(20);
        net.expect(SYN, "pass state");
    }
    assert_eq!(only(&net), ("SYN_SENT", "CLOSED", Timeout::TcpOpening, 30));
}

#[test]
fn both_ends_of_udp_count_from_their_first_packet() {
    let mut net = Net::new("block all\npass in proto udp\n");
    let (there, back) = (
        "in udp 10.0.0.5:9 > 192.0.2.1:53",
        "out udp 192.0.2.1:53 > 10.0.0.5:9",
    );
    net.expect(there, "pass @2");
    assert_eq!(only(&net).0, "SINGLE");
    net.expect(back, "pass state");
    net.expect(there, "pass state");
    assert_eq!(
        only(&net),
        ("MULTIPLE", "MULTIPLE", Timeout::UdpMultiple, 60)
    );
}

/// States of both ends, and the timeout, of the only state.
fn only(net: &Net) -> (&'static str, &'static str, Timeout, u64) {
    let states: Vec<_> = net.engine.states().collect();
    assert_eq!(states.len(), 1);
    (
        states[0].peers.0,
        states[0].peers.1,
        states[0].timeout,
        states[0].expires,
    )
}

#[test]
fn a_handshake_establishes() {
    let mut net = Net::new(SSH);
    let decision = net.expect(SYN, "pass @2");
    let made = decision.state.expect("a state");
    assert!(made.made && made.forward);
    assert_eq!(made.info.direction, Direction::In);
    assert_eq!(made.info.wire, made.info.stack);
    assert_eq!(made.info.wire.ports, [4000, 22]);
    assert_eq!(only(&net), ("SYN_SENT", "CLOSED", Timeout::TcpFirst, 120));
    let decision = net.expect(SYN_ACK, "pass state");
    assert!(!decision.state.expect("a state").forward);
    assert_eq!(
        only(&net),
        ("ESTABLISHED", "SYN_SENT", Timeout::TcpOpening, 30)
    );
    net.expect(FIRST_ACK, "pass state");
    assert_eq!(
        only(&net),
        (
            "ESTABLISHED",
            "ESTABLISHED",
            Timeout::TcpEstablished,
            86_400
        )
    );
    net.wait(86_399);
    net.expect(FIRST_ACK, "pass state");
    net.wait(86_400);
    net.expect(FIRST_ACK, "block @1");
}

#[test]
fn a_connection_closes() {
    let mut net = established(SSH);
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags FA seq 1001 ack 5001",
        "pass state",
    );
    assert_eq!(
        only(&net),
        ("CLOSING", "ESTABLISHED", Timeout::TcpClosing, 900)
    );
    net.expect(
        "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags FA seq 5001 ack 1002",
        "pass state",
    );
    assert_eq!(
        only(&net),
        ("FIN_WAIT_2", "CLOSING", Timeout::TcpFinWait, 45)
    );
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags A seq 1002 ack 5002",
        "pass state",
    );
    assert_eq!(
        only(&net),
        ("FIN_WAIT_2", "FIN_WAIT_2", Timeout::TcpClosed, 90)
    );
    // A new connection of the same ports replaces it.
    net.expect("in tcp 10.0.0.5:4000 > 192.0.2.1:22 seq 70000", "pass @2");
    assert_eq!(only(&net).0, "SYN_SENT");
}

#[test]
fn a_reset_ends_a_connection() {
    let mut net = established(SSH);
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags R seq 3000",
        "block window",
    );
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags RA seq 1001 ack 5001",
        "pass state",
    );
    assert_eq!(
        only(&net),
        ("TIME_WAIT", "TIME_WAIT", Timeout::TcpClosed, 90)
    );
}

#[test]
fn sequence_numbers_stay_in_the_window() {
    let mut net = established(SSH);
    for (text, summary) in [
        (
            "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 1001 ack 5001 length 100",
            "pass state",
        ),
        (
            "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 1001 ack 5001 length 100",
            "pass state",
        ),
        (
            "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 900000 ack 5001 length 100",
            "block window",
        ),
        (
            "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 4294900000 ack 5001 length 1",
            "block window",
        ),
        (
            "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 1101 ack 500000 length 1",
            "block window",
        ),
        (
            "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 1101 ack 72036 length 1",
            "pass state",
        ),
        // Without data, the sequence number does not matter.
        (
            "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags A seq 900000 ack 5001",
            "pass state",
        ),
    ] {
        net.expect(text, summary);
    }
}

#[test]
fn a_scaled_window_is_larger() {
    let mut net = Net::new(SSH);
    net.expect(&format!("{SYN} wscale 7"), "pass @2");
    net.expect(&format!("{SYN_ACK} wscale 7"), "pass state");
    net.expect(FIRST_ACK, "pass state");
    net.expect(
        "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags A seq 5001 ack 1001 window 65535",
        "pass state",
    );
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 5000000 ack 5001 length 10",
        "pass state",
    );
    let mut net = established(SSH);
    net.expect(
        "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags A seq 5001 ack 1001 window 65535",
        "pass state",
    );
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 5000000 ack 5001 length 10",
        "block window",
    );
}

#[test]
fn sloppy_ignores_sequence_numbers() {
    let mut net = established("block all\npass in proto tcp to port 22 keep state (sloppy)\n");
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 900000 ack 9 length 100",
        "pass state",
    );
    // One half of a connection is enough.
    let mut net = Net::new("block all\npass in proto tcp to port 22 keep state (sloppy)\n");
    net.expect(SYN, "pass @2");
    net.expect(FIRST_ACK, "pass state");
    assert_eq!(
        only(&net),
        (
            "ESTABLISHED",
            "ESTABLISHED",
            Timeout::TcpEstablished,
            86_400
        )
    );
}

#[test]
fn a_bad_answer_to_a_syn_is_reset() {
    let mut net = Net::new("block all\npass in proto tcp to port 22\n");
    net.expect(SYN, "pass @2");
    net.expect(
        "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags SA seq 5000 ack 1001",
        "pass state",
    );
    // The first SYN again, with another number.
    let decision = net.run("in tcp 10.0.0.5:4000 > 192.0.2.1:22 seq 900000");
    assert_eq!(decision.cause, Cause::Window);
    assert_eq!(
        decision.verdict,
        Verdict::Block(Answer::None),
        "only while both ends are in SYN_SENT"
    );
}

#[test]
fn a_syn_on_an_established_state_is_challenged() {
    let mut net = established(SSH);
    let decision = net.run("in tcp 10.0.0.5:4000 > 192.0.2.1:22 seq 77777");
    assert_eq!(decision.cause, Cause::SynOnEstablished);
    assert_eq!(
        decision.verdict,
        Verdict::Block(Answer::Tcp {
            flags: 0x10,
            seq: 5001,
            ack: 1000,
            ttl: 0
        })
    );
}

#[test]
fn a_connection_in_progress_is_taken_up() {
    let mut net = Net::new("block all\npass in proto tcp flags any\n");
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags PA seq 50000 ack 9000 length 10",
        "pass @2",
    );
    net.expect(
        "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags PA seq 9000 ack 50010 length 1000",
        "pass state",
    );
    net.expect(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags A seq 50010 ack 10000",
        "pass state",
    );
    assert_eq!(only(&net).0, "ESTABLISHED");
}

#[test]
fn timeouts_of_a_rule_and_adaptive_ones() {
    let conf = "set limit states 10\nset timeout { adaptive.start 2, adaptive.end 6 }\n\
                pass in proto udp to port 1 keep state (udp.first 5)\npass in proto udp to port 2\n";
    let mut net = Net::new(conf);
    net.expect("in udp 10.0.0.5:1 > 192.0.2.1:1", "pass @3");
    assert_eq!(only(&net).3, 5);
    for port in 1..=3 {
        net.expect(&format!("in udp 10.0.0.5:{port} > 192.0.2.1:2"), "pass @4");
    }
    // Four states: half of the way from start to end.
    let expires: Vec<_> = net.engine.states().map(|state| state.expires).collect();
    assert_eq!(expires, [2, 30, 30, 30]);
    for port in 4..=5 {
        net.expect(&format!("in udp 10.0.0.5:{port} > 192.0.2.1:2"), "pass @4");
    }
    net.wait(1);
    assert_eq!(net.engine.states().count(), 0, "at the end, all go");
}

#[test]
fn icmp_errors_pass_by_the_state_they_are_about() {
    let mut net = established(SSH);
    let about = |seq| {
        format!(
            "in icmp 198.51.100.9 > 192.0.2.1 icmp-type unreach code needfrag about proto tcp from 192.0.2.1 port 22 \
             to 10.0.0.5 port 4000 seq {seq}"
        )
    };
    let decision = net.expect(&about(5001), "pass state");
    assert_eq!(decision.rule.map(|rule| net.line(rule)), Some(2));
    net.expect(&about(900_000), "block icmp-window");
    // About a packet that the state would not have let out.
    net.expect(
        "in icmp 198.51.100.9 > 192.0.2.1 icmp-type unreach about proto tcp from 192.0.2.1 port 23 to 10.0.0.5 port 4000",
        "block @1",
    );
    // To another host than the one that sent the packet.
    net.expect(
        "in icmp 198.51.100.9 > 192.0.2.2 icmp-type unreach about proto tcp from 192.0.2.1 port 22 to 10.0.0.5 port 4000 \
         seq 5001",
        "block @1",
    );
    // The other way: an error about a packet that came in.
    net.expect(
        "out icmp 192.0.2.1 > 10.0.0.5 icmp-type unreach code port-unr about proto tcp from 10.0.0.5 port 4000 to \
         192.0.2.1 port 22 seq 1001",
        "pass state",
    );
}

#[test]
fn icmp_errors_about_udp_and_pings() {
    let mut net = Net::new("block all\npass out proto { udp icmp icmp6 }\n");
    net.expect("out udp 192.0.2.1:9 > 198.51.100.1:53", "pass @2");
    net.expect(
        "out icmp 192.0.2.1 > 198.51.100.1 icmp-type echoreq id 3",
        "pass @2",
    );
    net.expect("out udp 2001:db8::1 > 2001:db8::99 port 53", "pass @2");
    for text in [
        "in icmp 203.0.113.1 > 192.0.2.1 icmp-type timex about proto udp from 192.0.2.1 port 9 to 198.51.100.1 port 53",
        "in icmp 203.0.113.1 > 192.0.2.1 icmp-type timex about proto icmp from 192.0.2.1 to 198.51.100.1 icmp-type \
         echoreq id 3",
        "in icmp6 2001:db8::7 > 2001:db8::1 icmp-type toobig about proto udp from 2001:db8::1 to 2001:db8::99 port 53",
    ] {
        net.expect(text, "pass state");
    }
    net.expect(
        "in icmp 203.0.113.1 > 192.0.2.1 icmp-type timex about proto icmp from 192.0.2.1 to 198.51.100.1 icmp-type \
         echoreq id 4",
        "block @1",
    );
}

#[test]
fn a_fast_source_is_overloaded() {
    let conf = "table <bad> persist\nblock in quick from <bad>\nblock all\n\
                pass in proto tcp to port 22 keep state (max-src-conn-rate 2/10, overload <bad> flush global)\n\
                pass in proto udp\n";
    let mut net = Net::new(conf);
    net.expect("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @5");
    for port in 1..=2 {
        connect(&mut net, port, "pass state");
    }
    connect(&mut net, 3, "block connection-limit");
    assert_eq!(
        net.engine.table_contains("bad", [10, 0, 0, 5].into()),
        Some(true)
    );
    assert_eq!(
        net.engine.table_contains("bad", [10, 0, 0, 6].into()),
        Some(false)
    );
    net.expect("in udp 10.0.0.5:1 > 192.0.2.1:53", "block @2");
    net.wait(1);
    assert_eq!(
        net.engine.states().count(),
        0,
        "flush global ends all of its states"
    );
}

/// A handshake from a port, whose last segment gets this verdict.
fn connect(net: &mut Net, port: u16, summary: &str) {
    let verdict = net.verdict(&format!("in tcp 10.0.0.5:{port} > 192.0.2.1:22"));
    assert!(verdict.starts_with("pass @"), "{verdict}");
    net.expect(
        &format!("out tcp 192.0.2.1:22 > 10.0.0.5:{port} flags SA seq 5000 ack 1001"),
        "pass state",
    );
    let decision = net.expect(
        &format!("in tcp 10.0.0.5:{port} > 192.0.2.1:22 flags A seq 1001 ack 5001"),
        summary,
    );
    assert_eq!(
        decision.overloaded.is_empty(),
        decision.cause != Cause::ConnectionLimit
    );
}

#[test]
fn max_src_conn_counts_established_connections() {
    let conf = "table <bad> persist\nblock all\n\
                pass in proto tcp to port 22 keep state (max-src-conn 1, overload <bad>)\n";
    let mut net = Net::new(conf);
    connect(&mut net, 1, "pass state");
    // Half-open ones do not count.
    net.expect("in tcp 10.0.0.5:9 > 192.0.2.1:22", "pass @3");
    connect(&mut net, 2, "block connection-limit");
    net.wait(1);
    assert_eq!(
        net.engine.states().count(),
        2,
        "without flush, only the state itself ends"
    );
}

#[test]
fn source_nodes_end_with_their_states() {
    let conf = "set limit src-nodes 1\npass in proto udp keep state (source-track rule, max-src-states 9, src.track 5)\n";
    let mut net = Net::new(conf);
    net.expect("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @2");
    net.expect(
        "in udp 10.0.0.6:1 > 192.0.2.1:53",
        "block source-node-limit",
    );
    net.wait(60);
    assert_eq!(
        (net.engine.states().count(), net.engine.source_nodes()),
        (0, 1)
    );
    net.wait(5);
    assert_eq!(net.engine.source_nodes(), 0);
}

#[test]
fn synproxy_answers_for_the_server() {
    let mut net = Net::new("block all\npass in proto tcp to port 22 synproxy state\n");
    let decision = net.run(SYN);
    let Verdict::Block(Answer::Tcp {
        flags, seq, ack, ..
    }) = decision.verdict
    else {
        panic!("{decision:?}")
    };
    assert_eq!((flags, ack, decision.cause), (0x12, 1001, Cause::Synproxy));
    let wrong = format!(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags A seq 1001 ack {}",
        seq.wrapping_add(9)
    );
    net.expect(&wrong, "block synproxy");
    assert_eq!(only(&net).0, "PROXY_SRC");
    let right = format!(
        "in tcp 10.0.0.5:4000 > 192.0.2.1:22 flags A seq 1001 ack {}",
        seq.wrapping_add(1)
    );
    net.expect(&right, "block synproxy");
    assert_eq!(only(&net).0, "PROXY_DST");
}

#[test]
fn modulate_state_changes_sequence_numbers() {
    let mut net = Net::new("block all\npass in proto tcp to port 22 modulate state\n");
    let decision = net.expect(SYN, "pass @2");
    let seq = decision
        .packet
        .and_then(|packet| packet.tcp().map(|tcp| tcp.seq))
        .expect("a segment");
    assert_ne!(seq, 1000);
    let answer = format!(
        "out tcp 192.0.2.1:22 > 10.0.0.5:4000 flags SA seq 5000 ack {}",
        seq.wrapping_add(1)
    );
    let decision = net.expect(&answer, "pass state");
    let out = decision
        .packet
        .and_then(|packet| packet.tcp().copied())
        .expect("a segment");
    assert_eq!(out.ack, 1001, "the client sees its own numbers");
}

#[test]
fn tags_logs_and_queues_stick_to_a_state() {
    let conf = "queue root on em0 bandwidth 10M\nqueue slow parent root bandwidth 1M\n\
                queue fast parent root bandwidth 9M default\nblock all\n\
                match in proto tcp set (queue (slow, fast), prio (2, 5)) tag WEB\n\
                pass in log (all, to pflog3) proto tcp to port 22\n";
    let mut net = Net::new(conf);
    let decision = net.expect(SYN, "pass @6");
    assert_eq!(
        (decision.queue.as_deref(), decision.prio),
        (Some("slow"), Some(2))
    );
    assert_eq!(decision.tag.as_deref(), Some("WEB"));
    assert_eq!(
        decision
            .log
            .iter()
            .map(|event| event.interface)
            .collect::<Vec<_>>(),
        [3]
    );
    net.expect(SYN_ACK, "pass state");
    let decision = net.expect(FIRST_ACK, "pass state");
    assert_eq!(
        (decision.queue.as_deref(), decision.prio),
        (Some("fast"), Some(5)),
        "a pure ACK is urgent"
    );
    assert_eq!(decision.tag.as_deref(), Some("WEB"));
    assert_eq!(decision.log.len(), 1);
}

#[test]
fn match_rules_set_nothing_without_a_state() {
    let conf = "match set (prio 6, tos 0x10) scrub (min-ttl 200)\npass proto udp no state\npass proto esp\n";
    let mut net = Net::new(conf);
    let decision = net.expect("in udp 10.0.0.5:1 > 192.0.2.1:53", "pass @2");
    assert_eq!((decision.prio, decision.tos), (None, None));
    let decision = net.expect("in esp 10.0.0.5 > 192.0.2.1", "pass @3");
    assert_eq!((decision.prio, decision.tos), (Some(6), Some(0x10)));
    let packet = decision.packet.expect("a packet");
    assert_eq!((packet.ttl, packet.tos, packet.prio), (200, 0x10, 6));
}

#[test]
fn states_that_collide_drop() {
    // Both rules make the same key on the inside.
    let conf =
        "pass in proto udp to 192.0.2.1 port 53 rdr-to 10.0.0.53\npass in proto udp to 10.0.0.53\n";
    let mut net = Net::new(conf);
    net.expect("in udp 198.51.100.1:9 > 192.0.2.1:53", "pass @1");
    net.expect(
        "in udp 198.51.100.1:9 > 10.0.0.53:53",
        "block state-collision",
    );
}

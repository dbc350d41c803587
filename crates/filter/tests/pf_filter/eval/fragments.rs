//! Fragments, and datagrams that are put together.

use pf_filter::eval::{Cause, Verdict};
use pf_filter::packet::{Content, Fragment, Packet, Reason};

use super::net::Net;

/// Cuts a packet into fragments of this many bytes.
fn cut(packet: &Packet, size: usize) -> Vec<Packet> {
    let bytes = packet.to_bytes();
    let header = if packet.source.is_ipv4() {
        usize::from(bytes[0] & 15) * 4
    } else {
        40
    };
    let data = &bytes[header..];
    let starts: Vec<usize> = (0..data.len()).step_by(size).collect();
    let piece = |&start: &usize| {
        let end = (start + size).min(data.len());
        let payload = data[start..end].into();
        let fragment = Fragment {
            offset: start as u16,
            more: end < data.len(),
            next: packet.protocol,
            payload,
        };
        let mut piece = packet.clone();
        piece.content = Content::Fragment(fragment);
        piece.id = 77;
        // The decoded packet.
        Packet::decode(&piece.to_bytes(), packet.direction, &packet.interface).expect("a fragment")
    };
    starts.iter().map(piece).collect()
}

const DNS: &str = "block all\npass in proto udp to port 53\n";

#[test]
fn rules_see_the_whole_datagram() {
    for text in [
        "in udp 10.0.0.5:9 > 192.0.2.1:53 length 100",
        "in udp 2001:db8::5 > 2001:db8::1 port 53 length 100",
    ] {
        let mut net = Net::new(DNS);
        let packet = net.packet(text);
        let pieces = cut(&packet, 40);
        assert_eq!(pieces.len(), 3);
        for piece in [&pieces[2], &pieces[0]] {
            let decision = net.engine.run(piece);
            assert_eq!(
                (decision.verdict, decision.cause),
                (Verdict::Wait, Cause::Fragment)
            );
        }
        assert_eq!(net.engine.fragments(), 2);
        let decision = net.engine.run(&pieces[1]);
        assert_eq!(net.sum_up(&decision), "pass @2");
        let whole = decision.reassembled.expect("a datagram");
        assert_eq!(whole.ports(), packet.ports());
        assert_eq!(whole.content, packet.content);
        assert_eq!(net.engine.fragments(), 0);
        assert!(decision.state.expect("a state").made);
    }
}

#[test]
fn a_datagram_can_be_blocked_or_refused() {
    let mut net = Net::new(DNS);
    for (text, summary) in [
        ("in udp 10.0.0.5:9 > 192.0.2.1:54 length 100", "block @1"),
        ("in udp 10.0.0.5:9 > 192.0.2.1:0 length 100", "block port-0"),
        (
            "in tcp 10.0.0.5:9 > 192.0.2.1:53 flags SR length 100",
            "block tcp-syn-rst",
        ),
    ] {
        let pieces = cut(&net.packet(text), 64);
        let decisions: Vec<_> = pieces.iter().map(|piece| net.engine.run(piece)).collect();
        let last = decisions.last().expect("a decision");
        assert_eq!(net.sum_up(last), summary);
    }
}

#[test]
fn fragments_end_after_their_time() {
    let mut net = Net::new(DNS);
    let pieces = cut(
        &net.packet("in udp 10.0.0.5:9 > 192.0.2.1:53 length 100"),
        64,
    );
    net.engine.run(&pieces[0]);
    net.wait(59);
    assert_eq!(net.engine.fragments(), 1);
    net.wait(1);
    assert_eq!(net.engine.fragments(), 0);
    let decision = net.engine.run(&pieces[1]);
    assert_eq!(decision.verdict, Verdict::Wait);
}

#[test]
fn bad_fragments_are_dropped() {
    let mut net = Net::new("pass\n");
    for (text, cause) in [
        (
            "in udp 10.0.0.5 > 192.0.2.1 fragment df",
            "block fragment-with-df",
        ),
        (
            "in udp 10.0.0.5 > 192.0.2.1 fragment length 0",
            "block bad-fragment",
        ),
        (
            "in udp 10.0.0.5 > 192.0.2.1 fragment offset 8 more length 9",
            "block bad-fragment",
        ),
        (
            "in udp 10.0.0.5 > 192.0.2.1 fragment offset 65528 length 100",
            "block bad-fragment",
        ),
        (
            "in udp 10.0.0.5 > 192.0.2.1 fragment offset 8 more length 8",
            "wait fragment",
        ),
        (
            "in udp 10.0.0.5 > 192.0.2.1 fragment offset 8 more length 8",
            "block fragment-overlap",
        ),
    ] {
        let decision = net.expect(text, cause);
        assert!(decision.verdict == Verdict::Wait || decision.reason() == Reason::Fragment);
    }
}

#[test]
fn no_df_lets_fragments_with_df_in() {
    Net::new("set reassemble yes no-df\npass\n")
        .expect("in udp 10.0.0.5 > 192.0.2.1 fragment df", "wait fragment");
}

#[test]
fn an_overlap_of_ipv4_is_trimmed_and_of_ipv6_ends_all() {
    let mut net = Net::new(DNS);
    for (text, whole) in [
        ("in udp 10.0.0.5:9 > 192.0.2.1:53 length 56", true),
        ("in udp 2001:db8::5 > 2001:db8::1 port 53 length 56", false),
    ] {
        let packet = net.packet(text);
        let pieces = cut(&packet, 32);
        net.engine.run(&pieces[0]);
        // The second half begins 8 bytes early.
        let mut wide = pieces[1].clone();
        if let Content::Fragment(fragment) = &mut wide.content {
            fragment.offset -= 8;
            fragment.payload = [&[0; 8], &fragment.payload[..]].concat().into();
        }
        let decision = net.engine.run(&wide);
        let summary = net.sum_up(&decision);
        assert_eq!(
            summary,
            if whole {
                "pass @2"
            } else {
                "block fragment-overlap"
            }
        );
        assert_eq!(net.engine.fragments(), 0);
    }
}

#[test]
fn the_oldest_fragments_go_at_the_limit() {
    let mut net = Net::new("set limit frags 20\npass\n");
    for id in 0..100 {
        let text = format!("in udp 10.0.0.5 > 192.0.2.1 fragment ip-id {id}");
        net.expect(&text, "wait fragment");
        assert!(net.engine.fragments() <= 20);
    }
}

#[test]
fn too_many_fragments_of_a_part_end_the_datagram() {
    let mut net = Net::new("pass\n");
    for at in 0..64 {
        let text = format!(
            "in udp 10.0.0.5 > 192.0.2.1 fragment offset {} more length 8",
            at * 16
        );
        net.expect(&text, "wait fragment");
    }
    net.expect(
        "in udp 10.0.0.5 > 192.0.2.1 fragment offset 1024 more length 8",
        "block fragment-queue-limit",
    );
    assert_eq!(net.engine.fragments(), 0);
}

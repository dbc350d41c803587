//! Differences on Linux: XDP and tc stand at other places than pf.

use super::decision::{Answer, Cause, Decision, Verdict};
use crate::packet::{Content, Packet, Refusal};
use crate::rule::{Direction, Options, Rule};

/// Differences that touch this packet.
pub(super) fn differences(
    packet: &Packet,
    decision: &Decision,
    rule: Option<&Rule>,
    options: &Options,
) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: &str| notes.push(text.to_owned());
    place(packet, &mut note);
    content(packet, decision, options, &mut note);
    if let Some(rule) = rule {
        of_rule(rule, &mut note);
    }
    if let Verdict::Block(Answer::Tcp { .. } | Answer::Icmp { .. }) = decision.verdict {
        note(
            "the answer is built in the packet's place and sent back by the driver (XDP_TX), or redirected by tc",
        );
    }
    if let Some(state) = &decision.state
        && state.info.interface.is_none()
    {
        note(
            "conntrack has one entry for both directions and all interfaces; pf, and its states here, need one state coming in and another going out",
        );
    }
    notes
}

fn place(packet: &Packet, note: &mut impl FnMut(&str)) {
    if packet.direction == Direction::Out {
        note(
            "XDP sees no packet that leaves: this takes tc egress, which comes after netfilter's NAT",
        );
    } else {
        note(
            "XDP comes before packet sockets: tcpdump and DHCP clients do not see its drops; tc ingress comes after them",
        );
    }
    if packet.interface.starts_with("lo")
        && packet.interface.chars().skip(2).all(|c| c.is_ascii_digit())
    {
        note("loopback packets are seen by tc only");
    }
    if packet.received_on.is_some() {
        note("received-on is known to tc egress only");
    }
    if packet.generated {
        note(
            "Linux does not mark packets that a filter made: they pass the filter of their way out",
        );
    }
}

fn content(packet: &Packet, decision: &Decision, options: &Options, note: &mut impl FnMut(&str)) {
    if packet.fragment().is_some() {
        if options.reassemble {
            note(
                "neither XDP nor tc reassembles: fragments are judged one by one, or by netfilter's defragmentation",
            );
        } else {
            note("without reassembly, fragments are judged one by one, as in pf");
        }
    }
    if let Cause::Refused(refusal) = decision.cause {
        match refusal {
            Refusal::TcpSynRst | Refusal::TcpNoFlags | Refusal::TcpFlagsWithoutAck => {
                note(
                    "Linux does not drop TCP segments with senseless flags before a filter: the filter must",
                );
            }
            _ => note(
                "Linux judges such packets in its stack, after XDP and tc: the filter must drop them itself",
            ),
        }
    }
    if matches!(packet.content, Content::Tcp(_)) {
        note(
            "tc sees segments merged (GRO) or not yet split (GSO): packets are fewer and larger than pf counts",
        );
    }
}

fn of_rule(rule: &Rule, note: &mut impl FnMut(&str)) {
    if rule.user.is_some() || rule.group.is_some() {
        note("user and group are known to tc egress only, for packets of local sockets");
    }
    if rule.os.is_some() {
        note("Linux has no operating system fingerprints for XDP or tc");
    }
    if rule.nat.is_some() || rule.rdr.is_some() {
        note("translation is nftables' (nat): XDP and tc here do not translate");
    }
    if rule.route.is_some() || rule.divert.is_some() || rule.rtable.is_some() {
        note("route-to, divert and rtable are policy routing and sockets on Linux, not a filter's");
    }
    if rule.set.is_some() || rule.scrub.is_some() {
        note("set and scrub take tc, or a rewrite in XDP");
    }
}

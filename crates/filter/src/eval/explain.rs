//! Reasons of a packet's verdict, and the rule that nearly changed it.

use super::decision::{Cause, Decision};
use super::engine::Engine;
use super::field::{Field, Fields};
use super::linux;
use super::program::RuleId;
use super::step::{Outcome, Step};
use crate::packet::Packet;
use crate::print;
use crate::rule::{Action, Rule};

/// A verdict with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The verdict.
    pub decision: Decision,
    /// Each rule that was looked at, in order. Empty if no rule was asked.
    pub steps: Vec<Step>,
    /// The rule that would have changed the verdict most easily.
    pub nearest: Option<NearMiss>,
    /// Differences on Linux for this packet: XDP and tc see packets at other places,
    /// and less of them.
    pub linux: Vec<String>,
}

/// A pass or block rule that did not match, and would have turned the verdict.
///
/// Rules that come into question were looked at, would have passed a blocked packet or blocked
/// a passed one, and come after the rule that decided, or are quick. Of these, the nearest has the
/// fewest tests that fail; of several, the one whose first failing test comes last in pf's order;
/// of several still, the last rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// The rule.
    pub rule: RuleId,
    /// Its first test that failed.
    pub field: Field,
    /// All that failed.
    pub failed: Fields,
    /// The rule's value, in pf's words.
    pub rule_value: String,
    /// The packet's value.
    pub packet_value: String,
}

impl Engine<'_> {
    /// Judges a packet as [`run`](Self::run) does, with the reasons.
    pub fn explain(&mut self, packet: &Packet) -> Explanation {
        let (decision, steps) = self.judge(packet, true);
        let seen = decision.reassembled.as_ref().unwrap_or(packet).clone();
        let nearest = self.nearest(&decision, &steps, &seen);
        let rule = decision.rule.map(|id| self.rule(id).rule);
        let linux = linux::differences(packet, &decision, rule, self.options());
        Explanation {
            decision,
            steps,
            nearest,
            linux,
        }
    }

    fn nearest(&self, decision: &Decision, steps: &[Step], packet: &Packet) -> Option<NearMiss> {
        if !matches!(decision.cause, Cause::Rule | Cause::NoRule) {
            return None;
        }
        let decided = steps
            .iter()
            .rposition(|step| Some(step.rule) == decision.rule && step.outcome == Outcome::Matched);
        let mut best: Option<(usize, Field, &Step, Fields)> = None;
        for (at, step) in steps.iter().enumerate() {
            let Outcome::Failed(failed) = step.outcome else {
                continue;
            };
            let rule = self.rule(step.rule).rule;
            let comes_late = rule.quick || decided.is_none_or(|decided| at > decided);
            if rule.anchor.is_some() || !comes_late || !turns(rule, decision) {
                continue;
            }
            let Some(first) = failed.iter().next() else {
                continue;
            };
            let nearer = best.is_none_or(|(fewest, latest, ..)| {
                failed.len() < fewest || (failed.len() == fewest && first >= latest)
            });
            if nearer {
                best = Some((failed.len(), first, step, failed));
            }
        }
        let (_, field, step, failed) = best?;
        let rule = self.rule(step.rule).rule;
        Some(NearMiss {
            rule: step.rule,
            field,
            failed,
            rule_value: rule_value(field, rule),
            packet_value: packet_value(field, packet),
        })
    }
}

/// Whether a rule would turn the verdict.
fn turns(rule: &Rule, decision: &Decision) -> bool {
    match rule.action {
        Action::Pass => decision.verdict.is_block(),
        Action::Block(_) => decision.verdict.is_pass(),
        Action::Match => false,
    }
}

/// A rule's value of a field.
fn rule_value(field: Field, rule: &Rule) -> String {
    let text = print::rule(rule);
    let word = match field {
        Field::Direction => {
            return rule
                .direction
                .map_or_else(String::new, |direction| direction.name().into());
        }
        Field::Family => {
            return rule
                .family
                .map_or_else(String::new, |family| family.name().into());
        }
        Field::IcmpReply => return "keep state, which answers of ICMP need a state for".into(),
        Field::Once => return "once, and it matched before".into(),
        Field::FragmentPorts
        | Field::FragmentFlags
        | Field::FragmentIcmp
        | Field::FragmentOwner => {
            return format!("{}, which fragments do not have", field.name());
        }
        Field::Source | Field::SourcePort => "from",
        Field::Destination | Field::DestinationPort => "to",
        Field::Rdomain | Field::Interface => "on",
        Field::Protocol => "proto",
        Field::IcmpType | Field::IcmpCode => "icmp",
        _ => field.name(),
    };
    clause(&text, word)
}

/// The clause of a rule's text that begins with a word, up to the next clause.
fn clause(text: &str, word: &str) -> String {
    const STARTS: [&str; 22] = [
        "on",
        "inet",
        "inet6",
        "proto",
        "from",
        "to",
        "all",
        "flags",
        "icmp-type",
        "icmp6-type",
        "user",
        "group",
        "tos",
        "prio",
        "probability",
        "tagged",
        "received-on",
        "max-pkt-rate",
        "keep",
        "no",
        "label",
        "fragment",
    ];
    let words: Vec<&str> = text.split_whitespace().collect();
    let begins = |text: &&str| {
        *text == word
            || (word == "icmp" && text.starts_with("icmp"))
            || (word == "os" && *text == "os")
    };
    let Some(start) = words.iter().position(begins) else {
        return word.into();
    };
    let rest = words.get(start + 1..).unwrap_or(&[]);
    let length = rest
        .iter()
        .position(|next| STARTS.contains(next) && *next != "no" || *next == "os")
        .unwrap_or(rest.len());
    words
        .get(start..=start + length)
        .unwrap_or(&words)
        .join(" ")
}

/// A packet's value of a field, in words.
fn packet_value(field: Field, packet: &Packet) -> String {
    let ports = packet.ports();
    let unknown = || "not known".to_owned();
    match field {
        Field::Interface => packet.interface.to_string(),
        Field::Direction => packet.direction.name().into(),
        Field::Rdomain => packet.rdomain.to_string(),
        Field::Family => packet.family().name().into(),
        Field::Protocol => crate::names::protocol_name(packet.protocol)
            .map_or(packet.protocol.to_string(), Into::into),
        Field::Source => packet.source.to_string(),
        Field::Destination => packet.destination.to_string(),
        Field::SourcePort => ports.map_or_else(unknown, |(source, _)| source.to_string()),
        Field::DestinationPort => {
            ports.map_or_else(unknown, |(_, destination)| destination.to_string())
        }
        Field::Flags => packet
            .tcp()
            .map_or_else(unknown, |tcp| crate::packet::flag_letters(tcp.flags)),
        Field::Os => packet.os.as_deref().map_or_else(unknown, Into::into),
        Field::User => packet.user.map_or_else(unknown, |id| id.to_string()),
        Field::Group => packet.group.map_or_else(unknown, |id| id.to_string()),
        Field::IcmpType | Field::IcmpReply => icmp_type(packet),
        Field::IcmpCode => packet
            .icmp()
            .map_or_else(unknown, |message| message.code.to_string()),
        Field::Fragment => "no fragment".into(),
        Field::FragmentPorts
        | Field::FragmentFlags
        | Field::FragmentIcmp
        | Field::FragmentOwner => "a fragment".into(),
        Field::Tos => format!("{:#04x}", packet.tos & !crate::packet::ECN),
        Field::Tagged => packet.tag.as_deref().unwrap_or("no tag at first").into(),
        Field::ReceivedOn => packet
            .received_on
            .as_deref()
            .unwrap_or("no other interface")
            .into(),
        Field::Prio => packet.prio.to_string(),
        Field::Once | Field::Probability => "chance".into(),
        Field::Rate => "more packets than that".into(),
    }
}

fn icmp_type(packet: &Packet) -> String {
    let Some(message) = packet.icmp() else {
        return "not known".into();
    };
    crate::names::icmp_type_name(message.kind, packet.family())
        .map_or(message.kind.to_string(), Into::into)
}

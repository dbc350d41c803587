//! Rules that no packet matches, as pf drops or changes those packets before.

use crate::diagnostic::Diagnostic;
use crate::rule::{Comparison, Rule};

/// `proto ah`: pf looks behind an authentication header.
const AH: u8 = 51;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PUSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;

pub(super) fn matches(rule: &Rule, found: &mut Vec<Diagnostic>) {
    let mut never = |message: &str, help: &str| {
        found.push(Diagnostic::warning("never-matches", rule.origin.span, message).help(help));
    };
    if rule.protocol == Some(AH) {
        never(
            "no packet has protocol `ah` for pf: it skips that header and looks at the next",
            "filter the protocol inside, or `esp`",
        );
    }
    if let Some(flags) = rule.flags {
        let (set, clear) = (flags.set, flags.mask & !flags.set);
        if let Some(why) = impossible(set, clear) {
            never(
                &format!("no TCP packet with these flags reaches the rules: {why}"),
                "remove the rule",
            );
        }
    }
    let port = rule.destination.port;
    if port.is_some_and(|port| port.comparison == Comparison::Equal && port.low == 0) {
        never(
            "packets to port 0 are dropped before the rules",
            "remove the rule",
        );
    }
}

/// Why no packet has these flags set and those clear (`pf_normalize_tcp`).
fn impossible(set: u8, clear: u8) -> Option<&'static str> {
    let has = |flags| set & flags == flags;
    if has(SYN | RST) {
        return Some("pf drops SYN with RST");
    }
    if has(SYN | FIN) {
        return Some("pf clears FIN beside SYN");
    }
    let lacks = |flags| clear & flags == flags;
    if lacks(SYN | ACK | RST) {
        return Some("pf drops packets without ACK, RST and SYN");
    }
    if lacks(ACK) && set & (FIN | PUSH | URG) != 0 {
        return Some("pf drops FIN, PUSH and URG without ACK");
    }
    None
}

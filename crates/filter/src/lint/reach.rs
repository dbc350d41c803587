//! Packets that should pass and do not, by exact analysis: a rule in front that blocks them
//! changes nothing.

use crate::analysis::equal;
use crate::diagnostic::Diagnostic;
use crate::host::Host;
use crate::names;
use crate::rule::{
    Action, Comparison, Direction, Family, Icmp, Peer, PortMatch, Preamble, Return, Rule, Ruleset,
};

/// Neighbour solicitation and advertisement (RFC 4861).
const DISCOVERY: [u8; 2] = [135, 136];

/// IPv6 passes, and neighbour discovery does not.
pub(super) fn neighbour_discovery(
    ruleset: &Ruleset,
    host: &Host,
    found: &mut Vec<Diagnostic>,
) -> Option<()> {
    let Some(front) = ruleset.rules.first() else {
        return Some(());
    };
    let inet6 = Rule {
        family: Some(Family::Inet6),
        ..blocking(front)
    };
    let changes = |rule: Rule| passes(ruleset, host, rule);
    if !changes(inet6.clone())? {
        return Some(());
    }
    let mut blocked = Vec::new();
    for direction in [Direction::In, Direction::Out] {
        for kind in DISCOVERY {
            let mut rule = inet6.clone();
            rule.direction = Some(direction);
            rule.protocol = Some(names::ICMP6);
            rule.icmp = Some(Icmp { kind, code: None });
            if !changes(rule)? {
                let name = names::icmp_type_name(kind, Family::Inet6).unwrap_or("");
                blocked.push(format!("{name} {}", direction.name()));
            }
        }
    }
    if blocked.is_empty() {
        return Some(());
    }
    let message = format!(
        "IPv6 passes, but its hosts cannot find each other: {} is blocked",
        blocked.join(", ")
    );
    let help =
        "add `pass inet6 proto icmp6 icmp6-type { neighbrsol neighbradv routersol routeradv }`";
    found.push(Diagnostic::warning("neighbour-discovery", decider(ruleset), message).help(help));
    Some(())
}

/// No connection to a port is let in.
pub(super) fn port(
    ruleset: &Ruleset,
    host: &Host,
    port: u16,
    found: &mut Vec<Diagnostic>,
) -> Option<()> {
    let Some(front) = ruleset.rules.first() else {
        return Some(());
    };
    let mut rule = blocking(front);
    rule.direction = Some(Direction::In);
    rule.protocol = Some(names::TCP);
    let port_match = PortMatch {
        comparison: Comparison::Equal,
        low: port,
        high: 0,
    };
    rule.destination = Peer {
        port: Some(port_match),
        ..Peer::ANY
    };
    if !passes(ruleset, host, rule)? {
        let message = format!(
            "nothing lets connections to TCP port {port} in: a host that is managed by it is lost"
        );
        let help =
            format!("add `pass in proto tcp to port {port}`, or give the port of your management");
        found.push(Diagnostic::warning("management-port", decider(ruleset), message).help(help));
    }
    Some(())
}

fn blocking(front: &Rule) -> Rule {
    let mut rule = Rule::new(Action::Block(Return::Drop), front.origin.clone());
    rule.quick = true;
    rule
}

/// Whether any packet of this block rule passes without it.
fn passes(ruleset: &Ruleset, host: &Host, rule: Rule) -> Option<bool> {
    let with = |front: Option<Rule>| Ruleset {
        preamble: Vec::<Preamble>::new(),
        options: ruleset.options.clone(),
        tables: ruleset.tables.clone(),
        rules: front
            .into_iter()
            .chain(ruleset.rules.iter().cloned())
            .collect(),
        ..Ruleset::default()
    };
    // The answer to a packet that is blocked anyway is no difference here.
    let silent = |mut ruleset: Ruleset| {
        silence(&mut ruleset.rules);
        ruleset
    };
    equal(&silent(with(None)), &silent(with(Some(rule))), host)
        .ok()
        .map(|equal| !equal)
}

/// Makes all block rules drop without an answer and a log.
fn silence(rules: &mut [Rule]) {
    for rule in rules {
        rule.log = None;
        if let Action::Block(answer) = &mut rule.action {
            *answer = Return::Drop;
        }
        if let Some(crate::rule::Anchor::Inline { rules, .. }) = rule.anchor.as_deref_mut() {
            silence(rules);
        }
    }
}

/// The statement to point at: the first that blocks, or the first of all.
fn decider(ruleset: &Ruleset) -> crate::source::Span {
    let blocks = |rule: &&Rule| matches!(rule.action, Action::Block(_)) && rule.anchor.is_none();
    let first = ruleset.rules.iter().find(blocks).or(ruleset.rules.first());
    first.map_or(
        crate::source::Span {
            file: crate::source::FileId(0),
            start: 0,
            end: 0,
        },
        |rule| rule.origin.span,
    )
}

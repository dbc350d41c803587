//! FreeBSD's rules (`print_rule` of its pfctl).

use std::fmt::{self, Write as _};

use super::rule::{
    Ports, state_options, write_action, write_from_to, write_log, write_matches, write_on,
    write_pool, write_probability, write_route, write_scrub, write_translation,
};
use crate::names;
use crate::rule::Dialect;
use crate::rule::{Action, Anchor, Divert, FreeBsd, KeepState, Rule, RuleKind, Scrub, Set};

pub(super) fn write(f: &mut String, rule: &Rule) -> fmt::Result {
    match rule.kind {
        RuleKind::Filter => write_action(f, rule, Dialect::FreeBsd)?,
        _ => write_kind(f, rule)?,
    }
    if let Some(direction) = rule.direction {
        write!(f, " {}", direction.name())?;
    }
    if let Some(log) = rule.log {
        write_log(f, log)?;
    }
    f.write_str(if rule.quick { " quick" } else { "" })?;
    write_on(f, rule)?;
    if let Some(route) = rule.route.as_deref() {
        write_route(f, route, rule.family)?;
    }
    if let Some(family) = rule.family {
        write!(f, " {}", family.name())?;
    }
    if let Some(protocol) = rule.protocol {
        match names::protocol_name(protocol) {
            Some(name) => write!(f, " proto {name}")?,
            None => write!(f, " proto {protocol}")?,
        }
    }
    write_from_to(f, rule, Dialect::FreeBsd)?;
    write_matches(f, rule, Dialect::FreeBsd)?;
    write_state(f, rule)?;
    write_effects(f, rule)?;
    write_marks(f, rule)?;
    write_target(f, rule)
}

/// `nat pass`, `no rdr`, `binat-anchor "name"`, `scrub`
fn write_kind(f: &mut String, rule: &Rule) -> fmt::Result {
    let word = rule.kind.word();
    if let Some(Anchor::Inline { name, .. } | Anchor::Call(name)) = rule.anchor.as_deref() {
        return write!(f, "{word}-anchor \"{name}\"");
    }
    let no = match rule.kind {
        RuleKind::Scrub => rule.scrub.is_none(),
        _ => rule.nat.is_none() && rule.rdr.is_none(),
    };
    let pass = rule.freebsd.as_deref().is_some_and(|freebsd| freebsd.pass);
    write!(
        f,
        "{}{word}{}",
        if no { "no " } else { "" },
        if pass { " pass" } else { "" }
    )
}

fn write_set(f: &mut String, set: &Set) -> fmt::Result {
    let mut parts = Vec::new();
    match set.prio {
        Some((bulk, low_delay)) if bulk == low_delay => parts.push(format!(" prio {bulk}")),
        Some((bulk, low_delay)) => parts.push(format!(" prio({bulk}, {low_delay})")),
        None => {}
    }
    if let Some(tos) = set.tos {
        parts.push(format!(" tos 0x{tos:02x}"));
    }
    write!(f, " set ({} )", parts.join(","))
}

/// `keep state` is always there.
fn write_state(f: &mut String, rule: &Rule) -> fmt::Result {
    if let Some(set) = rule
        .set
        .as_deref()
        .filter(|_| rule.kind == RuleKind::Filter)
    {
        write_set(f, set)?;
    }
    f.write_str(match rule.state {
        KeepState::No if rule.action == Action::Pass && rule.anchor.is_none() => " no state",
        KeepState::No => "",
        KeepState::Keep => " keep state",
        KeepState::Modulate => " modulate state",
        KeepState::Synproxy => " synproxy state",
    })?;
    if let Some(probability) = rule.probability {
        write_probability(f, probability)?;
    }
    match rule.state_options.as_deref() {
        Some(options) => write!(f, " ({})", state_options(options).join(", ")),
        None => Ok(()),
    }
}

fn write_effects(f: &mut String, rule: &Rule) -> fmt::Result {
    f.write_str(if rule.fragment { " fragment" } else { "" })?;
    match (rule.kind, rule.scrub.as_deref()) {
        (RuleKind::Scrub, Some(scrub)) => write_scrub_statement(f, rule, *scrub)?,
        (_, Some(scrub)) => write_scrub(f, *scrub)?,
        _ => {}
    }
    f.write_str(if rule.allow_options {
        " allow-opts"
    } else {
        ""
    })
}

fn write_scrub_statement(f: &mut String, rule: &Rule, scrub: Scrub) -> fmt::Result {
    for (given, word) in [(scrub.no_df, " no-df"), (scrub.random_id, " random-id")] {
        f.write_str(if given { word } else { "" })?;
    }
    if scrub.min_ttl > 0 {
        write!(f, " min-ttl {}", scrub.min_ttl)?;
    }
    if scrub.max_mss > 0 {
        write!(f, " max-mss {}", scrub.max_mss)?;
    }
    if let Some(tos) = rule.set.as_deref().and_then(|set| set.tos) {
        write!(f, " set-tos 0x{tos:02x}")?;
    }
    f.write_str(if scrub.reassemble_tcp {
        " reassemble tcp"
    } else {
        ""
    })?;
    let no = rule
        .freebsd
        .as_deref()
        .is_some_and(|freebsd| freebsd.no_reassemble);
    f.write_str(if no {
        " fragment no reassemble"
    } else {
        " fragment reassemble"
    })
}

/// Labels, tags and other names.
fn write_marks(f: &mut String, rule: &Rule) -> fmt::Result {
    let freebsd = rule.freebsd.as_deref();
    let more = freebsd.map_or(&[][..], |freebsd| &freebsd.more_labels);
    for label in rule.label.iter().chain(more) {
        write!(f, " label \"{label}\"")?;
    }
    if let Some(freebsd) = freebsd {
        write_numbers(f, freebsd)?;
    }
    f.write_str(if rule.once { " once" } else { "" })?;
    if let Some(tag) = &rule.tag {
        write!(f, " tag {tag}")?;
    }
    if let Some(tagged) = &rule.tagged {
        write!(
            f,
            "{} tagged {}",
            if tagged.negated { " !" } else { "" },
            tagged.name
        )?;
    }
    if let Some(rtable) = rule.rtable {
        write!(f, " rtable {rtable}")?;
    }
    match rule.divert.as_deref() {
        Some(Divert::Packet { port }) => write!(f, " divert-to {port}"),
        _ => Ok(()),
    }
}

fn write_numbers(f: &mut String, freebsd: &FreeBsd) -> fmt::Result {
    if freebsd.ridentifier != 0 {
        write!(f, " ridentifier {}", freebsd.ridentifier)?;
    }
    let Some(dummynet) = freebsd.dummynet else {
        return Ok(());
    };
    let word = if dummynet.queue { "dnqueue" } else { "dnpipe" };
    match dummynet.reverse {
        0 => write!(f, " {word} {}", dummynet.forward),
        reverse => write!(f, " {word}({}, {reverse})", dummynet.forward),
    }
}

fn write_target(f: &mut String, rule: &Rule) -> fmt::Result {
    if rule.anchor.is_some() {
        return Ok(());
    }
    let (pool, ports) = match rule.kind {
        RuleKind::Filter => return write_translation(f, rule),
        RuleKind::Scrub => return Ok(()),
        RuleKind::Nat => (rule.nat.as_deref(), Ports::Nat),
        RuleKind::Rdr => (rule.rdr.as_deref(), Ports::Rdr),
        RuleKind::Binat => (rule.nat.as_deref(), Ports::None),
    };
    match pool {
        Some(pool) => {
            f.write_str(" -> ")?;
            write_pool(f, pool, rule.family, ports)
        }
        None => Ok(()),
    }
}

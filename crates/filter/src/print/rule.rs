//! Rules (`print_rule`).

use std::fmt::{self, Write as _};

use super::address::write_address;
use crate::names;
use crate::rule::{
    Action, Address, Anchor, Comparison, Dialect, Divert, Family, IcmpError, IdMatch, KeepState,
    Log, On, Peer, Pool, PoolKind, Return, Route, RouteKind, Rule, Scrub, Set, SourceTrack,
    StateOptions,
};

pub(super) fn write(f: &mut String, rule: &Rule) -> fmt::Result {
    write_action(f, rule, Dialect::OpenBsd)?;
    if let Some(direction) = rule.direction {
        write!(f, " {}", direction.name())?;
    }
    if let Some(log) = rule.log {
        write_log(f, log)?;
    }
    if rule.quick {
        f.write_str(" quick")?;
    }
    write_on(f, rule)?;
    if let Some(family) = rule.family {
        write!(f, " {}", family.name())?;
    }
    if let Some(protocol) = rule.protocol {
        match names::protocol_name(protocol) {
            Some(name) => write!(f, " proto {name}")?,
            None => write!(f, " proto {protocol}")?,
        }
    }
    write_from_to(f, rule, Dialect::OpenBsd)?;
    write_matches(f, rule, Dialect::OpenBsd)?;
    write_set(f, rule)?;
    write_state(f, rule)?;
    write_effects(f, rule)?;
    write_targets(f, rule)
}

pub(super) fn write_action(f: &mut String, rule: &Rule, dialect: Dialect) -> fmt::Result {
    match rule.anchor.as_deref() {
        Some(Anchor::Inline { name, .. } | Anchor::Call(name)) => {
            let last = name.rsplit('/').next().unwrap_or(name);
            return if last.starts_with('_') {
                f.write_str("anchor")
            } else {
                write!(f, "anchor \"{name}\"")
            };
        }
        None => {}
    }
    match rule.action {
        Action::Pass => f.write_str("pass"),
        Action::Match => f.write_str("match"),
        Action::Block(answer) => {
            f.write_str("block")?;
            write_return(f, answer, rule.family, dialect)
        }
    }
}

fn write_return(
    f: &mut String,
    answer: Return,
    family: Option<Family>,
    dialect: Dialect,
) -> fmt::Result {
    match answer {
        Return::Drop => f.write_str(" drop"),
        Return::Return { .. } => f.write_str(" return"),
        Return::Rst { ttl: 0 } => f.write_str(" return-rst"),
        Return::Rst { ttl } => write!(f, " return-rst(ttl {ttl})"),
        Return::Icmp {
            icmp: IcmpError { v4, v6 },
        } => {
            let name = |(kind, code): (u8, u8), family| match names::icmp_code_name_in(
                kind, code, family, dialect,
            ) {
                Some(name) => name.to_owned(),
                None => code.to_string(),
            };
            let (v4, v6) = (name(v4, Family::Inet), name(v6, Family::Inet6));
            match family {
                Some(Family::Inet) => write!(f, " return-icmp({v4})"),
                Some(Family::Inet6) => write!(f, " return-icmp6({v6})"),
                None => write!(f, " return-icmp({v4}, {v6})"),
            }
        }
    }
}

pub(super) fn write_log(f: &mut String, log: Log) -> fmt::Result {
    f.write_str(" log")?;
    if log == Log::default() {
        return Ok(());
    }
    let words = [
        (log.all, "all"),
        (log.matches, "matches"),
        (log.user, "user"),
    ];
    let mut parts: Vec<String> = words
        .into_iter()
        .filter(|(on, _)| *on)
        .map(|(_, word)| word.into())
        .collect();
    if log.to > 0 {
        parts.push(format!("to pflog{}", log.to));
    }
    write!(f, " ({})", parts.join(", "))
}

pub(super) fn write_on(f: &mut String, rule: &Rule) -> fmt::Result {
    let bang = |negated: bool| if negated { "! " } else { "" };
    match &rule.on {
        Some(On::Interface(on)) => write!(f, " on {}{}", bang(on.negated), on.name),
        Some(On::Rdomain { id, negated }) => write!(f, " on {}rdomain {id}", bang(*negated)),
        None => Ok(()),
    }
}

fn is_any(peer: &Peer) -> bool {
    let everything = match peer.address {
        Address::Any => true,
        Address::Network(network) => network.bits == 0,
        _ => false,
    };
    everything && !peer.negated && peer.port.is_none()
}

pub(super) fn write_from_to(f: &mut String, rule: &Rule, dialect: Dialect) -> fmt::Result {
    if is_any(&rule.source) && is_any(&rule.destination) && rule.os.is_none() {
        return f.write_str(" all");
    }
    write_peer(f, " from ", &rule.source, rule, dialect)?;
    if let Some(os) = &rule.os {
        write!(f, " os \"{os}\"")?;
    }
    write_peer(f, " to ", &rule.destination, rule, dialect)
}

fn write_peer(
    f: &mut String,
    word: &str,
    peer: &Peer,
    rule: &Rule,
    dialect: Dialect,
) -> fmt::Result {
    f.write_str(word)?;
    f.write_str(if peer.negated { "! " } else { "" })?;
    write_address(f, &peer.address, rule.family)?;
    let Some(port) = peer.port else {
        return Ok(());
    };
    let tcp = rule.protocol == Some(names::TCP);
    let one = matches!(port.comparison, Comparison::Equal | Comparison::NotEqual);
    // FreeBSD's pfctl prints a port by its name, where one port is meant.
    let name = match dialect {
        Dialect::FreeBsd if one => names::freebsd::port_name(port.low, tcp),
        _ => None,
    };
    let low = name.map_or_else(|| port.low.to_string(), str::to_owned);
    f.write_str(" port")?;
    write_comparison(f, port.comparison, &low, &port.high.to_string())
}

fn write_comparison(f: &mut String, comparison: Comparison, low: &str, high: &str) -> fmt::Result {
    match comparison {
        Comparison::Equal => write!(f, " = {low}"),
        Comparison::NotEqual => write!(f, " != {low}"),
        Comparison::Less => write!(f, " < {low}"),
        Comparison::LessOrEqual => write!(f, " <= {low}"),
        Comparison::Greater => write!(f, " > {low}"),
        Comparison::GreaterOrEqual => write!(f, " >= {low}"),
        Comparison::Range => write!(f, " {low}:{high}"),
        Comparison::Inside => write!(f, " {low} >< {high}"),
        Comparison::Outside => write!(f, " {low} <> {high}"),
    }
}

fn write_id(f: &mut String, word: &str, id: IdMatch) -> fmt::Result {
    write!(f, " {word}")?;
    let name = |id: u32| {
        if id == u32::MAX {
            "unknown".to_owned()
        } else {
            id.to_string()
        }
    };
    write_comparison(f, id.comparison, &name(id.low), &name(id.high))
}

/// Matches beside addresses.
pub(super) fn write_matches(f: &mut String, rule: &Rule, dialect: Dialect) -> fmt::Result {
    if let Some(on) = &rule.received_on {
        write!(
            f,
            " {}received-on {}",
            if on.negated { "!" } else { "" },
            on.name
        )?;
    }
    if let Some(user) = rule.user {
        write_id(f, "user", user)?;
    }
    if let Some(group) = rule.group {
        write_id(f, "group", group)?;
    }
    write_flags(f, rule)?;
    if let Some(icmp) = rule.icmp {
        write_icmp(f, rule, (icmp.kind, icmp.code), dialect)?;
    }
    if rule.tos != 0 {
        write!(f, " tos 0x{:02x}", rule.tos)?;
    }
    if let Some(prio) = rule.prio {
        write!(f, " prio {prio}")?;
    }
    match rule.max_packet_rate {
        Some(rate) => write!(f, " max-pkt-rate {}/{}", rate.limit, rate.seconds),
        None => Ok(()),
    }
}

fn write_flags(f: &mut String, rule: &Rule) -> fmt::Result {
    if let Some(flags) = rule.flags {
        f.write_str(" flags ")?;
        write_letters(f, flags.set)?;
        f.write_char('/')?;
        return write_letters(f, flags.mask);
    }
    let tcp = rule.protocol.is_none_or(|protocol| protocol == names::TCP);
    let stateful = rule.state != KeepState::No && rule.anchor.is_none();
    if tcp && stateful && !rule.fragment {
        f.write_str(" flags any")
    } else {
        Ok(())
    }
}

fn write_letters(f: &mut String, flags: u8) -> fmt::Result {
    let letters = names::FLAG_LETTERS.chars().enumerate();
    letters
        .filter(|(bit, _)| flags & (1 << bit) != 0)
        .try_for_each(|(_, letter)| f.write_char(letter))
}

fn write_icmp(
    f: &mut String,
    rule: &Rule,
    (kind, code): (u8, Option<u8>),
    dialect: Dialect,
) -> fmt::Result {
    let family = rule.family.unwrap_or(Family::Inet);
    f.write_str(if family == Family::Inet {
        " icmp-type "
    } else {
        " icmp6-type "
    })?;
    match names::icmp_type_name(kind, family) {
        Some(name) => f.write_str(name)?,
        None => write!(f, "{kind}")?,
    }
    match code.map(|code| (code, names::icmp_code_name_in(kind, code, family, dialect))) {
        None => Ok(()),
        Some((_, Some(name))) => write!(f, " code {name}"),
        Some((code, None)) => write!(f, " code {code}"),
    }
}

fn write_set(f: &mut String, rule: &Rule) -> fmt::Result {
    let Some(Set {
        prio,
        queue,
        tos,
        delay,
    }) = rule.set.as_deref()
    else {
        return Ok(());
    };
    let mut parts = Vec::new();
    match prio {
        Some((bulk, low_delay)) if bulk == low_delay => parts.push(format!("prio {bulk}")),
        Some((bulk, low_delay)) => parts.push(format!("prio({bulk}, {low_delay})")),
        None => {}
    }
    match queue {
        Some((name, None)) => parts.push(format!("queue {name}")),
        Some((name, Some(low_delay))) => parts.push(format!("queue({name}, {low_delay})")),
        None => {}
    }
    if let Some(tos) = tos {
        parts.push(format!("tos 0x{tos:02x}"));
    }
    if let Some(delay) = delay {
        parts.push(format!("delay {delay}"));
    }
    write!(f, " set ({})", parts.join(", "))
}

fn write_state(f: &mut String, rule: &Rule) -> fmt::Result {
    let options = rule.state_options.as_deref();
    match rule.state {
        KeepState::No if rule.action == Action::Pass && rule.anchor.is_none() => {
            f.write_str(" no state")?;
        }
        KeepState::Keep if options.is_some() => f.write_str(" keep state")?,
        KeepState::No | KeepState::Keep => {}
        KeepState::Modulate => f.write_str(" modulate state")?,
        KeepState::Synproxy => f.write_str(" synproxy state")?,
    }
    if let Some(probability) = rule.probability {
        write_probability(f, probability)?;
    }
    match options {
        Some(options) => write!(f, " ({})", state_options(options).join(", ")),
        None => Ok(()),
    }
}

pub(super) fn write_probability(f: &mut String, probability: u32) -> fmt::Result {
    let percent = format!(
        "{:.6}",
        f64::from(probability) * 100.0 / (f64::from(u32::MAX) + 1.0)
    );
    let percent = percent.trim_end_matches('0').trim_end_matches('.');
    write!(f, " probability {percent}%")
}

pub(super) fn state_options(options: &StateOptions) -> Vec<String> {
    let mut parts = Vec::new();
    if options.max > 0 {
        parts.push(format!("max {}", options.max));
    }
    if options.no_sync {
        parts.push("no-sync".into());
    }
    match options.source_track {
        Some(SourceTrack::Rule) => parts.push("source-track rule".into()),
        Some(SourceTrack::Global) => parts.push("source-track global".into()),
        None => {}
    }
    if options.max_source_states > 0 {
        parts.push(format!("max-src-states {}", options.max_source_states));
    }
    if options.max_source_connections > 0 {
        parts.push(format!("max-src-conn {}", options.max_source_connections));
    }
    if let Some(rate) = options.max_source_rate {
        parts.push(format!("max-src-conn-rate {}/{}", rate.limit, rate.seconds));
    }
    if options.max_source_nodes > 0 {
        parts.push(format!("max-src-nodes {}", options.max_source_nodes));
    }
    if let Some(overload) = &options.overload {
        let flush = match (overload.flush, overload.global) {
            (true, true) => " flush global",
            (true, false) => " flush",
            _ => "",
        };
        parts.push(format!("overload <{}>{flush}", overload.table));
    }
    for (given, word) in [
        (options.if_bound, "if-bound"),
        (options.sloppy, "sloppy"),
        (options.pflow, "pflow"),
    ] {
        if given {
            parts.push(word.into());
        }
    }
    parts.extend(
        options
            .timeouts
            .iter()
            .map(|(timeout, seconds)| format!("{} {seconds}", timeout.name())),
    );
    parts
}

fn write_effects(f: &mut String, rule: &Rule) -> fmt::Result {
    if rule.fragment {
        f.write_str(" fragment")?;
    }
    if let Some(scrub) = rule.scrub.as_deref() {
        write_scrub(f, *scrub)?;
    }
    if rule.allow_options {
        f.write_str(" allow-opts")?;
    }
    if let Some(label) = &rule.label {
        write!(f, " label \"{label}\"")?;
    }
    if rule.once {
        f.write_str(" once")?;
    }
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
        Some(Divert::To { address, port }) => write!(f, " divert-to {address} port {port}"),
        Some(Divert::Reply) => f.write_str(" divert-reply"),
        Some(Divert::Packet { port }) => write!(f, " divert-packet port {port}"),
        None => Ok(()),
    }
}

pub(super) fn write_scrub(f: &mut String, scrub: Scrub) -> fmt::Result {
    let mut parts = Vec::new();
    if scrub.no_df {
        parts.push("no-df".to_owned());
    }
    if scrub.random_id {
        parts.push("random-id".into());
    }
    if scrub.min_ttl > 0 {
        parts.push(format!("min-ttl {}", scrub.min_ttl));
    }
    if scrub.reassemble_tcp {
        parts.push("reassemble tcp".into());
    }
    if scrub.max_mss > 0 {
        parts.push(format!("max-mss {}", scrub.max_mss));
    }
    write!(f, " scrub ({})", parts.join(" "))
}

pub(super) fn write_targets(f: &mut String, rule: &Rule) -> fmt::Result {
    if rule.anchor.is_none() {
        write_translation(f, rule)?;
    }
    match rule.route.as_deref() {
        Some(route) => write_route(f, route, rule.family),
        None => Ok(()),
    }
}

pub(super) fn write_route(f: &mut String, route: &Route, family: Option<Family>) -> fmt::Result {
    f.write_str(match route.kind {
        RouteKind::RouteTo => " route-to ",
        RouteKind::ReplyTo => " reply-to ",
        RouteKind::DupTo => " dup-to ",
    })?;
    write_pool(f, &route.pool, family, Ports::None)
}

pub(super) fn write_translation(f: &mut String, rule: &Rule) -> fmt::Result {
    match (rule.nat.as_deref(), rule.rdr.as_deref(), rule.af_to) {
        (Some(nat), rdr, Some(family)) => {
            write!(f, " af-to {} from ", family.name())?;
            write_pool(f, nat, Some(family), Ports::Nat)?;
            match rdr {
                Some(rdr) => {
                    f.write_str(" to ")?;
                    write_pool(f, rdr, Some(family), Ports::Rdr)
                }
                None => Ok(()),
            }
        }
        (Some(nat), ..) => {
            f.write_str(" nat-to ")?;
            write_pool(f, nat, rule.family, Ports::Nat)
        }
        (None, Some(rdr), _) => {
            f.write_str(" rdr-to ")?;
            write_pool(f, rdr, rule.family, Ports::Rdr)
        }
        (None, None, _) => Ok(()),
    }
}

/// How a pool's ports are written.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ports {
    None,
    Nat,
    Rdr,
}

pub(super) fn write_pool(
    f: &mut String,
    pool: &Pool,
    family: Option<Family>,
    ports: Ports,
) -> fmt::Result {
    write_pool_addresses(f, pool, family)?;
    let (first, last) = pool.ports;
    match ports {
        Ports::Nat if pool.ports == crate::rule::NAT_PORTS || pool.ports == (0, 0) => {}
        Ports::Nat if first == last => write!(f, " port {first}")?,
        Ports::Nat => write!(f, " port {first}:{last}")?,
        Ports::Rdr if first != 0 && last != 0 && last != first => {
            write!(f, " port {first}:{last}")?;
        }
        Ports::Rdr if first != 0 => write!(f, " port {first}")?,
        Ports::Rdr | Ports::None => {}
    }
    write_pool_options(f, pool)?;
    if ports == Ports::Nat && pool.ports == (0, 0) {
        f.write_str(" static-port")
    } else {
        Ok(())
    }
}

/// One address, or FreeBSD's list of several.
fn write_pool_addresses(f: &mut String, pool: &Pool, family: Option<Family>) -> fmt::Result {
    if pool.more.is_empty() {
        return write_hop(f, &pool.address, pool.interface.as_deref(), family);
    }
    f.write_str("{ ")?;
    write_hop(f, &pool.address, pool.interface.as_deref(), family)?;
    for hop in &pool.more {
        f.write_str(", ")?;
        write_hop(f, &hop.address, hop.interface.as_deref(), family)?;
    }
    f.write_str(" }")
}

fn write_hop(
    f: &mut String,
    address: &Address,
    interface: Option<&str>,
    family: Option<Family>,
) -> fmt::Result {
    match interface {
        None => write_address(f, address, family),
        Some(interface) if *address == Address::Any => f.write_str(interface),
        Some(interface) => {
            write!(f, "({interface} ")?;
            write_address(f, address, family)?;
            f.write_char(')')
        }
    }
}

fn write_pool_options(f: &mut String, pool: &Pool) -> fmt::Result {
    match pool.kind {
        PoolKind::None => {}
        PoolKind::Bitmask => f.write_str(" bitmask")?,
        PoolKind::Random => f.write_str(" random")?,
        PoolKind::SourceHash(None) => f.write_str(" source-hash")?,
        PoolKind::SourceHash(Some(key)) => {
            f.write_str(" source-hash 0x")?;
            key.iter().try_for_each(|word| write!(f, "{word:08x}"))?;
        }
        PoolKind::RoundRobin => f.write_str(" round-robin")?,
        PoolKind::LeastStates => f.write_str(" least-states")?,
    }
    if pool.sticky {
        f.write_str(" sticky-address")
    } else {
        Ok(())
    }
}

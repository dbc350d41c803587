//! Lines of nftables and iproute2 for rules.
//!
//! They go to base chains that a configuration of nftables usually has: `prerouting`, `input`,
//! `forward`, `output` and `postrouting` of a table `inet filter`, `prerouting` and `postrouting` of
//! `ip nat` and `ip6 nat`. A group of interfaces, other than one by the driver's name, becomes a
//! variable: `$egress` is `nft -D egress=eth0`, or `define egress = eth0` in a file.

use std::net::IpAddr;

use crate::rule::{
    Action, Address, Comparison, Direction, Family, IdMatch, InterfaceMatch, InterfacePart,
    Network, On, Peer, Pool, PortMatch, Return, Rule,
};

/// Mark and routing table of policy routing in the lines.
const MARK: u32 = 100;

/// Where a line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chain {
    /// Where packets of the rule's direction are filtered: `input` or `output`.
    Filter,
    /// Before a route is looked up.
    Prerouting,
    /// Packets of other hosts.
    Forward,
    /// Packets of this host.
    Output,
    /// After the route is known.
    Postrouting,
}

impl Chain {
    fn name(self, direction: Option<Direction>) -> &'static str {
        match (self, direction) {
            (Self::Filter, Some(Direction::Out)) | (Self::Output, _) => "output",
            (Self::Filter, _) => "input",
            (Self::Prerouting, _) => "prerouting",
            (Self::Forward, _) => "forward",
            (Self::Postrouting, _) => "postrouting",
        }
    }

    fn knows_output(self, direction: Option<Direction>) -> bool {
        match self {
            Self::Filter | Self::Forward => direction == Some(Direction::Out),
            Self::Prerouting => false,
            Self::Output | Self::Postrouting => true,
        }
    }

    fn knows_input(self) -> bool {
        !matches!(self, Self::Output)
    }
}

/// A line: a chain and the expressions of a rule. There is none for a rule that nft cannot express.
#[derive(Clone, Debug)]
pub(super) struct Line {
    table: String,
    chain: &'static str,
    parts: Option<Vec<String>>,
}

impl Line {
    /// A line for the packets of a rule, in the table `inet filter`.
    pub(super) fn new(rule: &Rule, chain: Chain) -> Self {
        Self {
            table: "inet filter".into(),
            chain: chain.name(rule.direction),
            parts: expressions(rule, chain),
        }
    }

    /// The same for packets of local sockets: a rule for packets that arrive has none.
    pub(super) fn output(rule: &Rule) -> Self {
        let mut line = Self::new(rule, Chain::Output);
        if rule.direction == Some(Direction::In) {
            line.parts = None;
        }
        line
    }

    fn nat(rule: &Rule, family: Family, chain: Chain) -> Self {
        Self::new(rule, chain).in_table(family, "nat")
    }

    /// The same in a table of one family, where its name is no condition.
    fn in_table(mut self, family: Family, name: &str) -> Self {
        self.table = format!("{} {name}", header(family));
        if let Some(parts) = &mut self.parts {
            parts.retain(|part| !part.starts_with("meta nfproto "));
        }
        self
    }

    /// Adds an expression or a statement.
    pub(super) fn and(mut self, text: &str) -> Self {
        if let Some(parts) = &mut self.parts {
            parts.push(text.to_owned());
        }
        self
    }

    /// The command, or none.
    pub(super) fn command(self) -> Vec<String> {
        let Self {
            table,
            chain,
            parts,
        } = self;
        let line = |parts: Vec<String>| {
            let parts = parts.join(" ");
            format!("nft add rule {table} {chain} {parts}")
        };
        parts.map(line).into_iter().collect()
    }

    /// The command, with the rule's action.
    pub(super) fn verdict(self, rule: &Rule) -> Vec<String> {
        self.and(match rule.action {
            Action::Pass => "accept",
            Action::Match => "counter",
            Action::Block(Return::Drop) => "drop",
            Action::Block(Return::Rst { .. }) => "reject with tcp reset",
            Action::Block(_) => "reject",
        })
        .command()
    }
}

/// The keyword of a family's header.
pub(super) fn header(family: Family) -> &'static str {
    match family {
        Family::Inet => "ip",
        Family::Inet6 => "ip6",
    }
}

/// The interface of a rule, if it names one.
pub(super) fn device(rule: &Rule) -> Option<&str> {
    match &rule.on {
        Some(On::Interface(on))
            if !on.negated && on.name.ends_with(|c: char| c.is_ascii_digit()) =>
        {
            Some(&on.name)
        }
        _ => None,
    }
}

/// All conditions of a rule; none where one cannot be expressed.
fn expressions(rule: &Rule, chain: Chain) -> Option<Vec<String>> {
    if rule.tagged.is_some() || rule.probability.is_some() || rule.max_packet_rate.is_some() {
        return None;
    }
    let mut parts = Vec::new();
    if let Some(on) = &rule.on {
        let On::Interface(on) = on else { return None };
        let is_out = rule.direction == Some(Direction::Out) && chain.knows_output(rule.direction)
            || !chain.knows_input();
        parts.push(interface(if is_out { "oifname" } else { "iifname" }, on));
    }
    if let Some(received) = &rule.received_on {
        parts.push(interface("iifname", received));
    }
    let family = rule
        .family
        .or_else(|| family_of(&rule.source))
        .or_else(|| family_of(&rule.destination));
    let has_address = [&rule.source, &rule.destination]
        .iter()
        .any(|peer| names_family(peer));
    if let Some(family) = family.filter(|_| !has_address) {
        parts.push(format!(
            "meta nfproto {}",
            if family == Family::Inet {
                "ipv4"
            } else {
                "ipv6"
            }
        ));
    }
    parts.extend(address("saddr", &rule.source, family).ok()?);
    parts.extend(address("daddr", &rule.destination, family).ok()?);
    parts.extend(protocol(rule));
    let number = rule.protocol.and_then(port_protocol);
    for (peer, word) in [(&rule.source, "sport"), (&rule.destination, "dport")] {
        if let Some(port) = &peer.port {
            parts.push(format!("{} {word} {}", number?, port_value(*port)));
        }
    }
    if let Some(flags) = rule
        .flags
        .filter(|_| rule.protocol == Some(6) && rule.state == crate::rule::KeepState::No)
    {
        parts.push(format!("tcp flags & {:#x} == {:#x}", flags.mask, flags.set));
    }
    if let Some(icmp) = rule.icmp {
        let name = if rule.protocol == Some(58) {
            "icmpv6"
        } else {
            "icmp"
        };
        parts.push(format!("{name} type {}", icmp.kind));
        parts.extend(icmp.code.map(|code| format!("{name} code {code}")));
    }
    for (id, word) in [(&rule.user, "skuid"), (&rule.group, "skgid")] {
        if let Some(id) = id {
            parts.push(format!("meta {word} {}", id_value(*id)));
        }
    }
    parts.extend(rule.prio.map(|prio| format!("meta priority 0:{prio:x}")));
    Some(parts)
}

/// A protocol that no expression of its header names.
fn protocol(rule: &Rule) -> Option<String> {
    let number = rule.protocol?;
    let has_port = rule.source.port.is_some() || rule.destination.port.is_some();
    let is_named = has_port && port_protocol(number).is_some() || rule.icmp.is_some();
    (!is_named).then(|| format!("meta l4proto {number}"))
}

fn port_protocol(number: u8) -> Option<&'static str> {
    match number {
        6 => Some("tcp"),
        17 => Some("udp"),
        _ => None,
    }
}

fn interface(word: &str, on: &InterfaceMatch) -> String {
    let not = if on.negated { "!= " } else { "" };
    let name: &str = &on.name;
    if name == "any" {
        return format!("{word} != \"lo\"");
    }
    if name.ends_with(|c: char| c.is_ascii_digit()) {
        return format!("{word} {not}\"{name}\"");
    }
    if name == "lo" {
        return format!("{word} {not}\"lo\"");
    }
    if name == "egress" {
        return format!("{word} {not}$egress");
    }
    format!("{word} {not}\"{name}*\"")
}

fn family_of(peer: &Peer) -> Option<Family> {
    match &peer.address {
        Address::Network(network) => Some(Family::of(network.address)),
        Address::Range(first, _) => Some(Family::of(*first)),
        _ => None,
    }
}

/// Whether its expression names the family.
fn names_family(peer: &Peer) -> bool {
    matches!(
        peer.address,
        Address::Network(_) | Address::Range(..) | Address::Table(_)
    )
}

/// A condition that nft has no word for.
struct NoWord;

/// The expression of an address; none for any.
fn address(word: &str, peer: &Peer, family: Option<Family>) -> Result<Option<String>, NoWord> {
    let not = if peer.negated { "!= " } else { "" };
    let missing = if peer.negated { "exists" } else { "missing" };
    let header = header(family.unwrap_or(Family::Inet));
    Ok(Some(match &peer.address {
        Address::Any => return Ok(None),
        Address::Network(network) => format!("{header} {word} {not}{}", network_value(*network)),
        Address::Range(first, last) => format!("{header} {word} {not}{first}-{last}"),
        Address::Table(name) => format!("{header} {word} {not}@{name}"),
        Address::Interface(dynamic) if dynamic.part.is_none() => {
            format!("fib {word} type {not}local")
        }
        Address::Interface(dynamic) if dynamic.part == Some(InterfacePart::Broadcast) => {
            format!("fib {word} type {not}broadcast")
        }
        Address::NoRoute if word == "saddr" => format!("fib saddr oif {missing}"),
        Address::UrpfFailed if word == "saddr" => format!("fib saddr . iif oif {missing}"),
        _ => return Err(NoWord),
    }))
}

fn network_value(network: Network) -> String {
    if network.bits == Family::of(network.address).bits() {
        network.address.to_string()
    } else {
        format!("{}/{}", network.address, network.bits)
    }
}

fn port_value(port: PortMatch) -> String {
    comparison(port.comparison, u32::from(port.low), u32::from(port.high))
}

fn id_value(id: IdMatch) -> String {
    comparison(id.comparison, id.low, id.high)
}

fn comparison(comparison: Comparison, low: u32, high: u32) -> String {
    match comparison {
        Comparison::Equal => low.to_string(),
        Comparison::NotEqual => format!("!= {low}"),
        Comparison::Less => format!("< {low}"),
        Comparison::LessOrEqual => format!("<= {low}"),
        Comparison::Greater => format!("> {low}"),
        Comparison::GreaterOrEqual => format!(">= {low}"),
        Comparison::Range => format!("{low}-{high}"),
        Comparison::Inside => format!("{}-{}", low.saturating_add(1), high.saturating_sub(1)),
        Comparison::Outside => format!("!= {low}-{high}"),
    }
}

/// `nat-to`
pub(super) fn snat(rule: &Rule, pool: &Pool) -> Vec<String> {
    let family = pool_family(rule, pool);
    let line = Line::nat(rule, family, Chain::Postrouting);
    let line = with_ports(line, rule, nat_ports(pool));
    let statement = match &pool.address {
        Address::Interface(_) | Address::Unresolved(_) => "masquerade".to_owned(),
        _ => match target(pool, Some(nat_ports(pool))) {
            Some(target) => format!("snat to {target}"),
            None => return Vec::new(),
        },
    };
    line.and(&(statement + options(pool))).command()
}

/// Source ports of a translation that are not pf's own choice.
fn nat_ports(pool: &Pool) -> (u16, u16) {
    match pool.ports {
        (50_001, 65_535) => (0, 0),
        ports => ports,
    }
}

/// The line, for protocols that have ports where the statement has some.
fn with_ports(line: Line, rule: &Rule, range: (u16, u16)) -> Line {
    if range.0 > 0 && rule.protocol.is_none() {
        line.and("meta l4proto { tcp, udp }")
    } else {
        line
    }
}

/// `rdr-to`
pub(super) fn dnat(rule: &Rule, pool: &Pool) -> Vec<String> {
    let family = pool_family(rule, pool);
    let line = Line::nat(rule, family, Chain::Prerouting);
    let line = with_ports(line, rule, pool.ports);
    let (low, high) = pool.ports;
    if high != 0 && high != low && !pool.port_range {
        // Ports that keep their distance: nft draws them at random.
        return Vec::new();
    }
    let is_local = match &pool.address {
        Address::Network(network) => network.address.is_loopback(),
        Address::Interface(_) => true,
        _ => false,
    };
    if is_local && pool.ports.0 > 0 {
        return line
            .and(&format!("redirect to :{}", ports(pool.ports)))
            .command();
    }
    match target(pool, Some(pool.ports)) {
        Some(target) => line
            .and(&format!("dnat to {target}{}", options(pool)))
            .command(),
        None => Vec::new(),
    }
}

fn options(pool: &Pool) -> &'static str {
    match (pool.kind == crate::rule::PoolKind::Random, pool.sticky) {
        (true, true) => " random,persistent",
        (true, false) => " random",
        (false, true) => " persistent",
        (false, false) => "",
    }
}

fn pool_family(rule: &Rule, pool: &Pool) -> Family {
    let of_pool = match &pool.address {
        Address::Network(network) => Some(Family::of(network.address)),
        Address::Range(first, _) => Some(Family::of(*first)),
        _ => None,
    };
    of_pool.or(rule.family).unwrap_or(Family::Inet)
}

/// Addresses and ports as nft has them: `192.0.2.1:80`, `[2001:db8::1]:80`, `192.0.2.0-192.0.2.255`.
fn target(pool: &Pool, range: Option<(u16, u16)>) -> Option<String> {
    let (first, last) = match &pool.address {
        Address::Network(network) => (network.address, last_address(*network)),
        Address::Range(first, last) => (*first, *last),
        _ => return None,
    };
    let range = range.filter(|&(low, _)| low > 0);
    let quote = |address: IpAddr| match address {
        IpAddr::V6(address) if range.is_some() => format!("[{address}]"),
        address => address.to_string(),
    };
    let mut text = quote(first);
    if last != first {
        text = format!("{text}-{}", quote(last));
    }
    if let Some(range) = range {
        text = format!("{text}:{}", ports(range));
    }
    Some(text)
}

fn ports((low, high): (u16, u16)) -> String {
    if high == 0 || high == low {
        low.to_string()
    } else {
        format!("{low}-{high}")
    }
}

fn last_address(network: Network) -> IpAddr {
    match network.address {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(u32::from(network.bits)).unwrap_or(0);
            IpAddr::V4((u32::from(address) | host).into())
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(u32::from(network.bits)).unwrap_or(0);
            IpAddr::V6((u128::from(address) | host).into())
        }
    }
}

/// Where packets of a direction get marks before their route is looked up.
fn marking(rule: &Rule) -> Chain {
    if rule.direction == Some(Direction::Out) {
        Chain::Output
    } else {
        Chain::Prerouting
    }
}

/// `route-to`
pub(super) fn route_to(rule: &Rule, pool: &Pool) -> Vec<String> {
    let Some(hop) = target(pool, None) else {
        return Vec::new();
    };
    let mut lines = Line::new(rule, marking(rule))
        .and(&format!("meta mark set {MARK}"))
        .command();
    lines.extend(table_by_mark(pool_family(rule, pool), &hop));
    lines
}

/// `reply-to`
pub(super) fn reply_to(rule: &Rule, pool: &Pool) -> Vec<String> {
    let Some(hop) = target(pool, None) else {
        return Vec::new();
    };
    let mut lines = Line::new(rule, Chain::Prerouting)
        .and(&format!("ct mark set {MARK}"))
        .command();
    if lines.is_empty() {
        return lines;
    }
    for chain in ["prerouting", "output"] {
        lines.push(format!(
            "nft add rule inet filter {chain} ct direction reply ct mark {MARK} meta mark set ct mark"
        ));
    }
    lines.extend(table_by_mark(pool_family(rule, pool), &hop));
    lines
}

/// A route of packets with the mark.
fn table_by_mark(family: Family, hop: &str) -> [String; 2] {
    let ip = if family == Family::Inet {
        "ip"
    } else {
        "ip -6"
    };
    [
        format!("{ip} rule add fwmark {MARK} lookup {MARK}"),
        format!("{ip} route add default via {hop} table {MARK}"),
    ]
}

/// `dup-to`
pub(super) fn dup_to(rule: &Rule, pool: &Pool) -> Vec<String> {
    let Some(hop) = target(pool, None) else {
        return Vec::new();
    };
    Line::new(rule, marking(rule))
        .and(&format!("dup to {hop}"))
        .in_table(pool_family(rule, pool), "filter")
        .command()
}

/// `rtable`
pub(super) fn rtable(rule: &Rule, table: u32) -> Vec<String> {
    let mut lines = Line::new(rule, marking(rule))
        .and(&format!("meta mark set {MARK}"))
        .command();
    if !lines.is_empty() {
        let table = if table == 0 {
            "main".to_owned()
        } else {
            table.to_string()
        };
        lines.push(format!("ip rule add fwmark {MARK} lookup {table}"));
    }
    lines
}

/// `divert-to`
pub(super) fn tproxy(rule: &Rule, address: IpAddr, port: u16) -> Vec<String> {
    let (word, ip) = match address {
        IpAddr::V4(_) => ("ip", "ip"),
        IpAddr::V6(_) => ("ip6", "ip -6"),
    };
    let to = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let statement = format!("tproxy {word} to {to}:{port} meta mark set {MARK}");
    let mut lines = Line::new(rule, Chain::Prerouting).and(&statement).command();
    if !lines.is_empty() {
        lines.push(format!("{ip} rule add fwmark {MARK} lookup {MARK}"));
        lines.push(format!("{ip} route add local default dev lo table {MARK}"));
    }
    lines
}

/// `synproxy state`
pub(super) fn synproxy(rule: &Rule) -> Vec<String> {
    let mut lines = Line::new(rule, Chain::Prerouting)
        .and("tcp flags syn notrack")
        .command();
    lines.extend(
        Line::new(rule, Chain::Filter)
            .and("ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm")
            .command(),
    );
    if !lines.is_empty() {
        lines.push("sysctl -w net.netfilter.nf_conntrack_tcp_loose=0".into());
    }
    lines
}

//! Addresses and ports of `from`, `to`, tables and translations.

use std::rc::Rc;
use std::sync::Arc;

use super::parser::{Parser, Step};
use super::resolve::Resolved;
use super::syntax::{Host, HostAddress, Node, Peer, Port, PortRange, RangeKind};
use crate::lex::{At, Keyword, Kind, nearest};
use crate::names;
use crate::rule::{Comparison, DynamicInterface};

impl Parser<'_> {
    /// `from` or `to`: hosts, ports or both.
    pub(super) fn peer(&mut self, source: bool) -> Step<Peer> {
        let mut peer = Peer::default();
        if self.peek_keyword() != Some(Keyword::Port) {
            peer.hosts = self.host_spec()?.unwrap_or_default();
        }
        if let (false, Some(node)) = (
            source,
            peer.hosts
                .iter()
                .find(|node| node.value.address == HostAddress::UrpfFailed),
        ) {
            let at = node.at.clone();
            return self.fail(
                "urpf-failed",
                &at,
                "`urpf-failed` is no destination: it is about sources",
            );
        }
        if self.accept(Keyword::Port) {
            peer.ports = self.list(Self::port)?;
        }
        Ok(peer)
    }

    /// Hosts, `any` (`None`), or a list of them. A list with `any` in it is `any`.
    fn host_spec(&mut self) -> Step<Option<Vec<Node<Host>>>> {
        if self.accept(Keyword::Any) {
            return Ok(None);
        }
        if !self.accept_byte(b'{') {
            return self.host_or_not().map(Some);
        }
        let open = self.last_at();
        let elements = self.list_rest(Self::host_spec)?;
        self.negated_list(&elements, &open);
        let lists: Option<Vec<_>> = elements.into_iter().collect();
        Ok(lists.map(|lists| lists.into_iter().flatten().collect()))
    }

    /// Warns of `{ !a, !b }`: each element is a rule of its own, and together they match all.
    fn negated_list(&mut self, elements: &[Option<Vec<Node<Host>>>], open: &At) {
        let mut nodes = elements.iter().flatten().flatten();
        let negated = nodes.clone().filter(|node| node.value.negated).count();
        if negated == 0
            || elements.len() < 2
            || negated < elements.len() && nodes.all(|node| node.value.negated)
        {
            return;
        }
        let span = open.usage.to(self.last_at().usage);
        let (message, help) = if negated >= 2 {
            (
                "a list of negated addresses matches every address",
                "each element makes a rule of its own: use a table, `table <t> { !a, !b }`, or a block rule",
            )
        } else {
            (
                "a negated element does not exclude anything from its list",
                "each element makes a rule of its own, and the negated one matches all other addresses: use a table, in which the most specific entry wins",
            )
        };
        self.report(
            crate::diagnostic::Diagnostic::warning("negated-list", span, message).help(help),
        );
    }

    /// A host with an optional `!`, as several nodes where its name has several addresses.
    fn host_or_not(&mut self) -> Step<Vec<Node<Host>>> {
        let bang = self.peek().at.clone();
        let negated = self.accept_byte(b'!');
        let special = match self.peek_keyword() {
            Some(Keyword::NoRoute) => Some(HostAddress::NoRoute),
            Some(Keyword::UrpfFailed) => Some(HostAddress::UrpfFailed),
            _ => None,
        };
        let mut nodes = match special {
            Some(address) => {
                let at = self.take().at;
                vec![Node::new(plain(address), &at)]
            }
            None => self.host()?,
        };
        if negated {
            for node in &mut nodes {
                node.value.negated = true;
                node.at = Rc::new(bang.to(&node.at));
            }
        }
        Ok(nodes)
    }

    /// A host as tables have it: with an optional `!` and weight, or a list of them.
    pub(super) fn table_hosts(&mut self) -> Step<Vec<Node<Host>>> {
        if self.accept_byte(b'{') {
            return Ok(self
                .list_rest(Self::table_hosts)?
                .into_iter()
                .flatten()
                .collect());
        }
        let mut nodes = self.host_or_not()?;
        self.weight(&mut nodes)?;
        Ok(nodes)
    }

    pub(super) fn weight(&mut self, nodes: &mut [Node<Host>]) -> Step<()> {
        if !self.accept(Keyword::Weight) {
            return Ok(());
        }
        let at = self.peek().at.clone();
        let weight = self.number_to(u32::from(u16::MAX), "weight")? as u16;
        if weight == 0 {
            return self.fail("range", &at, "weight is 0: 1 to 65535 are allowed");
        }
        for node in nodes {
            node.value.weight = weight;
        }
        Ok(())
    }

    /// A host without `!`.
    pub(super) fn host(&mut self) -> Step<Vec<Node<Host>>> {
        let token = self.peek().clone();
        match token.kind {
            Kind::Byte(b'(') => self.dynamic(),
            Kind::Byte(b'<') => {
                self.take();
                let name = self.table_name()?;
                self.expect_byte(b'>')?;
                let at = token.at.to(&self.last_at());
                Ok(vec![Node::new(plain(HostAddress::Table(name)), &at)])
            }
            Kind::Keyword(Keyword::Route) => {
                self.take();
                let (label, at) = self.text("a route label")?;
                if label.len() > names::ROUTE_LABEL_MAX {
                    let most = names::ROUTE_LABEL_MAX;
                    return self.fail(
                        "too-long",
                        &at,
                        format!("a route label has at most {most} characters"),
                    );
                }
                Ok(vec![Node::new(
                    plain(HostAddress::RouteLabel(label)),
                    &token.at.to(&at),
                )])
            }
            // `10/8`
            Kind::Number(number) => {
                self.take();
                self.expect_byte(b'/')?;
                let (bits, at) = self.number("the length of a prefix")?;
                self.resolve_text(&number.to_string(), Some(bits), &token.at.to(&at))
            }
            Kind::Text { text, .. } => {
                self.take();
                self.named_host(&text, &token.at)
            }
            _ => self.unexpected("an address, a name, an interface in parentheses or a table"),
        }
    }

    fn named_host(&mut self, text: &str, start: &At) -> Step<Vec<Node<Host>>> {
        if self.accept_byte(b'/') {
            let (bits, at) = self.number("the length of a prefix")?;
            return self.resolve_text(text, Some(bits), &start.to(&at));
        }
        if !self.accept_byte(b'-') {
            return self.resolve_text(text, None, start);
        }
        let (last, at) = self.text("the last address of the range")?;
        let whole = start.to(&at);
        let ends = (
            self.resolve_text(text, None, start)?,
            self.resolve_text(&last, None, &at)?,
        );
        let one = |nodes: &[Node<Host>]| match nodes {
            [node] => match node.value.address {
                HostAddress::Network(address, bits) if bits == address_bits(address) => {
                    Some(address)
                }
                _ => None,
            },
            _ => None,
        };
        match (one(&ends.0), one(&ends.1)) {
            (Some(first), Some(last)) if first.is_ipv4() == last.is_ipv4() => {
                let mut host = ends.0[0].value.clone();
                host.address = HostAddress::Range(first, last);
                Ok(vec![Node::new(host, &whole)])
            }
            _ => self.fail_with(
                "address-range",
                &whole,
                "invalid range of addresses",
                "write two addresses of one family, without a prefix length",
            ),
        }
    }

    /// Resolves a name or an address, with or without a prefix length.
    pub(super) fn resolve_text(
        &mut self,
        text: &str,
        bits: Option<i64>,
        at: &At,
    ) -> Step<Vec<Node<Host>>> {
        // A quoted string holds its own prefix length.
        let (text, bits) = match (text.split_once('/'), bits) {
            (Some((text, bits)), None) => (text, bits.parse().ok().or(Some(-1))),
            _ => (text, bits),
        };
        let bits = match bits.map(u8::try_from) {
            None => None,
            Some(Ok(bits)) if bits <= 128 => Some(bits),
            Some(_) => {
                return self.fail(
                    "prefix",
                    at,
                    "this prefix length fits no address: 32 bits at most for IPv4, 128 for IPv6",
                );
            }
        };
        match self.resolve(text, bits) {
            Resolved::Hosts(hosts) => {
                let at = Rc::new(at.clone());
                Ok(hosts
                    .into_iter()
                    .map(|value| Node {
                        value,
                        at: at.clone(),
                    })
                    .collect())
            }
            Resolved::Open(name) => {
                let mut notice = Self::error(
                    "unresolved",
                    at,
                    format!(
                        "the addresses of `{name}` are not known: its rules match packets that nobody can name"
                    ),
                );
                notice.severity = crate::diagnostic::Severity::Notice;
                self.report(notice.help("describe the host in a file, and give --host FILE"));
                Ok(vec![Node::new(plain(HostAddress::Unresolved(name)), at)])
            }
            Resolved::Unknown { message, help } => {
                let mut error = Self::error("unknown-host", at, message);
                if let Some(help) = help {
                    error = error.help(help);
                }
                self.report(error);
                Err(super::parser::Failed)
            }
        }
    }

    /// `(interface:modifiers)/bits`
    fn dynamic(&mut self) -> Step<Vec<Node<Host>>> {
        let open = self.take().at;
        let (text, at) = self.text("the name of an interface")?;
        self.expect_byte(b')')?;
        let mut interface = self.dynamic_interface(&text, &at)?;
        if self.accept_byte(b'/') {
            interface.bits = self.number_to(128, "the length of a prefix")? as u8;
        }
        let at = open.to(&self.last_at());
        Ok(vec![Node::new(plain(HostAddress::Dynamic(interface)), &at)])
    }

    fn dynamic_interface(&mut self, text: &str, at: &At) -> Step<DynamicInterface> {
        if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return self.fail_with(
                "interface-name",
                at,
                format!("`{text}` is no name of an interface"),
                "the name of an interface starts with a letter; an address stands without parentheses",
            );
        }
        match super::resolve::split_modifiers(text) {
            Ok((name, part, no_alias)) => Ok(DynamicInterface {
                name: self.interface_name(name, at)?,
                part,
                no_alias,
                bits: 128,
            }),
            Err(message) => self.fail_with(
                "interface-modifier",
                at,
                message,
                "one of `:network`, `:broadcast` and `:peer` is allowed, and `:0`",
            ),
        }
    }

    fn port(&mut self) -> Step<Node<Port>> {
        let start = self.peek().at.clone();
        let unary = self.unary_operator();
        let first = self.port_range(true)?;
        let binary = if unary.is_none() {
            self.binary_operator()
        } else {
            None
        };
        let second = if binary.is_some() {
            Some(self.port_range(true)?)
        } else {
            None
        };
        let at = start.to(&self.last_at());
        let is_range = |range: &PortRange| range.kind == RangeKind::Range;
        if (unary.is_some() || binary.is_some())
            && (is_range(&first) || second.as_ref().is_some_and(is_range))
        {
            return self.fail(
                "port-range",
                &at,
                "a range `first:last` cannot stand beside another operator",
            );
        }
        let (comparison, low, high) = match (unary, binary, &second) {
            (Some(comparison), _, _) => (comparison, first.low, 0),
            (None, Some(comparison), Some(second)) => (comparison, first.low, second.low),
            _ if is_range(&first) => (Comparison::Range, first.low, first.high),
            _ => (Comparison::Equal, first.low, 0),
        };
        if is_empty_range(comparison, low, high) {
            return self.fail_with(
                "port-range",
                &at,
                "this range of ports holds none, or all",
                "write the smaller port first",
            );
        }
        Ok(Node::new(
            Port {
                comparison,
                low,
                high,
            },
            &at,
        ))
    }

    /// A port, or with `ranges` also `first:last`.
    pub(super) fn port_range(&mut self, ranges: bool) -> Step<PortRange> {
        let (text, at) = self.port_text()?;
        let Some((low, high)) = text.split_once(':') else {
            return Ok(PortRange {
                low: self.service(&text, &at)?,
                ..PortRange::default()
            });
        };
        if !ranges {
            return self.fail(
                "port-range",
                &at,
                format!("`{text}`: one port is wanted here"),
            );
        }
        let (low, high) = (self.service(low, &at)?, self.service(high, &at)?);
        if low == high {
            return Ok(PortRange {
                low,
                ..PortRange::default()
            });
        }
        Ok(PortRange {
            low,
            high,
            kind: RangeKind::Range,
        })
    }

    /// Ports of a translation: `port`, `first:last` or `first:*`.
    pub(super) fn port_star(&mut self) -> Step<PortRange> {
        if let Kind::Text { text, .. } = &self.peek().kind
            && let Some(low) = text.strip_suffix(":*")
        {
            let low: Arc<str> = low.into();
            let at = self.take().at;
            return Ok(PortRange {
                low: self.service(&low, &at)?,
                high: 0,
                kind: RangeKind::Same,
            });
        }
        self.port_range(true)
    }

    fn port_text(&mut self) -> Step<(Arc<str>, At)> {
        if let Kind::Number(number) = self.peek().kind {
            let at = self.take().at;
            return Ok((number.to_string().into(), at));
        }
        self.text("a port or a service")
    }

    pub(super) fn service(&mut self, name: &str, at: &At) -> Step<u16> {
        if let Some(number) = c_number(name) {
            return match u16::try_from(number) {
                Ok(port) => Ok(port),
                Err(_) => self.fail("range", at, format!("port {name} is outside 0 to 65535")),
            };
        }
        if let Some(port) = self.config.host.service_of(name, self.config.dialect) {
            return Ok(port);
        }
        let mut error = Self::error("unknown-port", at, format!("unknown service `{name}`"));
        error = match nearest(name, names::service_names()) {
            Some(other) => error.help(format!("did you mean `{other}`?")),
            None => error.help("write the port's number, or add it to the host's `services`"),
        };
        self.report(error);
        Err(super::parser::Failed)
    }
}

/// A number as C writes them: decimal, `0x…`, or `0…` in octal.
pub(super) fn c_number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if text.len() > 1 && text.starts_with('0') {
        return u64::from_str_radix(text, 8).ok();
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

pub(super) fn is_empty_range(comparison: Comparison, low: u16, high: u16) -> bool {
    match comparison {
        Comparison::Range | Comparison::Outside => low > high,
        Comparison::Inside => low >= high,
        _ => false,
    }
}

fn address_bits(address: std::net::IpAddr) -> u8 {
    crate::rule::Family::of(address).bits()
}

pub(super) fn plain(address: HostAddress) -> Host {
    Host {
        address,
        family: None,
        negated: false,
        scope: None,
        via: None,
        weight: 0,
    }
}

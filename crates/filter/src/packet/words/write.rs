//! From a packet to words.

use std::fmt;
use std::net::IpAddr;

use crate::names;
use crate::packet::{
    About, AboutHeader, Content, DEFAULT_PRIO, Fragment, NO_OWNER, Packet, RouteTo, Tcp,
};
use crate::rule::Family;

/// Flags in letters, as in `flags SA`.
pub(crate) fn flag_letters(flags: u8) -> String {
    if flags == 0 {
        return "none".into();
    }
    names::FLAG_LETTERS
        .chars()
        .enumerate()
        .filter(|(bit, _)| flags & 1 << bit != 0)
        .map(|(_, letter)| letter)
        .collect()
}

/// A name in quotes where it needs them.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() || self.0.contains(char::is_whitespace) {
            write!(f, "\"{}\"", self.0)
        } else {
            f.write_str(self.0)
        }
    }
}

/// Writes ` key value` unless the value is the default.
fn unless<T: Copy + PartialEq + fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    value: T,
    default: T,
) -> fmt::Result {
    if value == default {
        Ok(())
    } else {
        write!(f, " {key} {value}")
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on {}",
            self.direction.name(),
            Quoted(&self.interface)
        )?;
        if let Some(name) = &self.received_on {
            write!(f, " received-on {}", Quoted(name))?;
        }
        let protocol = self
            .fragment()
            .map_or(self.protocol, |fragment| fragment.next);
        write_proto(f, protocol)?;
        let (source, destination) = match self.ports() {
            Some((source, destination)) => (Some(source), Some(destination)),
            None => (None, None),
        };
        write_peer(f, "from", self.source, source)?;
        write_peer(f, "to", self.destination, destination)?;
        self.write_content(f)?;
        self.write_header(f)?;
        self.write_context(f)?;
        match self.icmp().and_then(|icmp| icmp.about) {
            Some(about) => write_about(f, &about),
            None => Ok(()),
        }
    }
}

impl Packet {
    fn write_content(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Tcp(tcp) => write_tcp(f, tcp),
            Content::Udp(udp) => unless(f, "length", udp.length, 0),
            Content::Icmp(icmp) => {
                let family = if self.protocol == names::ICMP {
                    Family::Inet
                } else {
                    Family::Inet6
                };
                write_icmp(f, icmp.kind, icmp.code, icmp.id, family)?;
                if let Some(target) = icmp.target {
                    write!(f, " target {target}")?;
                }
                unless(f, "length", icmp.length, 0)
            }
            Content::Other(length) => unless(f, "length", *length, 0),
            Content::Fragment(fragment) => write_fragment(f, fragment),
        }
    }

    fn write_header(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unless(f, "ip-id", self.id, 0)?;
        write_mark(f, "df", self.dont_fragment)?;
        if self.tos != 0 {
            write!(f, " tos {:#04x}", self.tos)?;
        }
        unless(f, "ttl", self.ttl, self.usual_ttl())?;
        write_mark(f, "options", self.options.other)?;
        write_mark(f, "router-alert", self.options.router_alert)?;
        write_mark(f, "bad-checksum", !self.checksum_ok)
    }

    fn write_context(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tag) = &self.tag {
            write!(f, " tagged {}", Quoted(tag))?;
        }
        unless(f, "rdomain", self.rdomain, 0)?;
        unless(f, "prio", self.prio, DEFAULT_PRIO)?;
        write_owner(f, "user", self.user)?;
        write_owner(f, "group", self.group)?;
        if let Some(os) = &self.os {
            write!(f, " os {}", Quoted(os))?;
        }
        write_route(f, "source-route", self.routes.source.as_ref())?;
        write_route(f, "destination-route", self.routes.destination.as_ref())?;
        match self.routes.urpf_failed {
            Some(true) => f.write_str(" urpf failed")?,
            Some(false) => f.write_str(" urpf passed")?,
            None => {}
        }
        write_mark(f, "generated", self.generated)
    }
}

fn write_mark(f: &mut fmt::Formatter<'_>, mark: &str, on: bool) -> fmt::Result {
    if on { write!(f, " {mark}") } else { Ok(()) }
}

fn write_proto(f: &mut fmt::Formatter<'_>, protocol: u8) -> fmt::Result {
    match protocol {
        names::ICMP6 => f.write_str(" proto icmp6"),
        _ => match names::protocol_name(protocol) {
            // Several protocols share a name that stands for none of them.
            Some(name) if names::protocol(name) == Some(protocol) => write!(f, " proto {name}"),
            _ => write!(f, " proto {protocol}"),
        },
    }
}

fn write_peer(
    f: &mut fmt::Formatter<'_>,
    which: &str,
    address: IpAddr,
    port: Option<u16>,
) -> fmt::Result {
    write!(f, " {which} {address}")?;
    match port {
        Some(port) => write!(f, " port {port}"),
        None => Ok(()),
    }
}

fn write_tcp(f: &mut fmt::Formatter<'_>, tcp: &Tcp) -> fmt::Result {
    let usual = Tcp::new(0, 0, 0);
    write!(f, " flags {}", flag_letters(tcp.flags))?;
    unless(f, "seq", tcp.seq, usual.seq)?;
    unless(f, "ack", tcp.ack, usual.ack)?;
    unless(f, "window", tcp.window, usual.window)?;
    unless(f, "urgent", tcp.urgent, 0)?;
    unless(f, "length", tcp.length, 0)?;
    if let Some(mss) = tcp.mss {
        write!(f, " mss {mss}")?;
    }
    match tcp.window_scale {
        Some(scale) => write!(f, " wscale {scale}"),
        None => Ok(()),
    }
}

fn write_icmp(
    f: &mut fmt::Formatter<'_>,
    kind: u8,
    code: u8,
    id: u16,
    family: Family,
) -> fmt::Result {
    match names::icmp_type_name(kind, family) {
        Some(name) => write!(f, " icmp-type {name}")?,
        None => write!(f, " icmp-type {kind}")?,
    }
    if code != 0 {
        match names::icmp_code_name(kind, code, family) {
            Some(name) => write!(f, " code {name}")?,
            None => write!(f, " code {code}")?,
        }
    }
    unless(f, "id", id, 0)
}

fn write_fragment(f: &mut fmt::Formatter<'_>, fragment: &Fragment) -> fmt::Result {
    write!(f, " fragment offset {}", fragment.offset)?;
    write_mark(f, "more", fragment.more)?;
    if fragment.payload.iter().all(|&byte| byte == 0) {
        return write!(f, " length {}", fragment.payload.len());
    }
    f.write_str(" data ")?;
    fragment
        .payload
        .iter()
        .try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn write_owner(f: &mut fmt::Formatter<'_>, which: &str, id: Option<u32>) -> fmt::Result {
    match id {
        Some(NO_OWNER) => write!(f, " {which} unknown"),
        Some(id) => write!(f, " {which} {id}"),
        None => Ok(()),
    }
}

fn write_route(f: &mut fmt::Formatter<'_>, which: &str, route: Option<&RouteTo>) -> fmt::Result {
    match route {
        Some(RouteTo::None) => write!(f, " {which} none"),
        Some(RouteTo::Some(None)) => write!(f, " {which} some"),
        Some(RouteTo::Some(Some(label))) => write!(f, " {which} {}", Quoted(label)),
        None => Ok(()),
    }
}

fn write_about(f: &mut fmt::Formatter<'_>, about: &About) -> fmt::Result {
    f.write_str(" about")?;
    write_proto(f, about.protocol)?;
    let (source, destination) = match about.header {
        AboutHeader::Tcp {
            source_port,
            destination_port,
            ..
        }
        | AboutHeader::Udp {
            source_port,
            destination_port,
        } => (Some(source_port), Some(destination_port)),
        AboutHeader::Icmp { .. } | AboutHeader::Other => (None, None),
    };
    write_peer(f, "from", about.source, source)?;
    write_peer(f, "to", about.destination, destination)?;
    match about.header {
        AboutHeader::Tcp { seq, .. } => unless(f, "seq", seq, 1000),
        AboutHeader::Icmp { kind, code, id } => {
            write_icmp(f, kind, code, id, Family::of(about.source))
        }
        AboutHeader::Udp { .. } | AboutHeader::Other => Ok(()),
    }
}

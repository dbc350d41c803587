//! From words to a packet: looking names up, and filling in defaults.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use super::{Peer, Raw, Result, error, flags, from_hex, number, route, small, wrong};
use crate::host::Host;
use crate::names;
use crate::packet::flags::SYN;
use crate::packet::{
    AH, About, AboutHeader, Content, DEFAULT_PRIO, DESTINATION_OPTIONS, FRAGMENT, Fragment,
    HOP_BY_HOP, Icmp, NO_OWNER, Packet, ROUTING, Tcp, Udp, has_target, is_icmp_error,
};
use crate::rule::Family;

/// Source port where none is given.
const SOURCE_PORT: u16 = 49_152;
/// Offset and length of a fragment where none are given.
const FRAGMENT_OFFSET: u16 = 1480;
const FRAGMENT_LENGTH: u16 = 8;

impl Raw<'_> {
    pub(super) fn packet(&self, host: &Host) -> Result<Packet> {
        let Some((_, direction)) = self.direction else {
            return error(self.end, "no direction", "add \"in\" or \"out\"");
        };
        let Some(interface) = self.get("on") else {
            return error(
                self.end,
                "no interface",
                "add \"on\" and the interface, such as \"on em0\"",
            );
        };
        let (source, source_port) = peer(self.from, "from", host, self.end)?;
        let (destination, destination_port) = peer(self.to, "to", host, self.end)?;
        if source.is_ipv4() != destination.is_ipv4() {
            let at = self.to.map_or(self.end, |to| to.address.at);
            return error(
                at,
                "source and destination are of different families",
                "give two of one family",
            );
        }
        let family = Family::of(source);
        let protocol = self.protocol(family, host)?;
        let ports = Ports {
            source: source_port,
            destination: destination_port,
        };
        let content = self.content(protocol, family, ports)?;
        let interface = host.first_name(interface.text);
        let mut packet = Packet::new(direction, interface, source, destination, content);
        packet.protocol = protocol;
        packet.ttl = packet.usual_ttl();
        self.header(&mut packet)?;
        self.context(&mut packet, host)?;
        if packet.fragment().is_some() {
            packet.protocol = Packet::decode(&packet.to_bytes(), direction, "")
                .map_or(protocol, |same| same.protocol);
        }
        Ok(packet)
    }

    fn protocol(&self, family: Family, host: &Host) -> Result<u8> {
        let Some(word) = self.get("proto") else {
            if self.get("icmp-type").or(self.get("icmp6-type")).is_some() {
                return Ok(if family == Family::Inet {
                    names::ICMP
                } else {
                    names::ICMP6
                });
            }
            return error(
                self.end,
                "no protocol",
                "add \"proto tcp\", \"proto udp\", or another",
            );
        };
        let number = number(word).and_then(|number| u8::try_from(number).ok());
        let Some(protocol) = number.or_else(|| host.protocol(word.text)) else {
            return error(
                word.at,
                format!("\"{}\" is no protocol", word.text),
                "give a name or a number up to 255",
            );
        };
        let walked = match family {
            Family::Inet => protocol == AH,
            Family::Inet6 => matches!(
                protocol,
                HOP_BY_HOP | ROUTING | FRAGMENT | AH | DESTINATION_OPTIONS
            ),
        };
        if walked && !self.has("fragment") {
            return error(
                word.at,
                format!(
                    "pf never judges a packet by protocol {}: it looks at the one behind that header",
                    word.text
                ),
                "give the protocol behind it, and \"options\" for extension headers",
            );
        }
        Ok(protocol)
    }

    fn content(&self, protocol: u8, family: Family, ports: Ports<'_>) -> Result<Content> {
        if self.has("fragment") {
            return self.fragment(protocol);
        }
        let length = self.number("length", 0)?;
        match protocol {
            names::TCP => self.tcp(ports, length),
            names::UDP => {
                let (source_port, destination_port) = ports.both(self.end)?;
                Ok(Content::Udp(Udp {
                    source_port,
                    destination_port,
                    length,
                }))
            }
            names::ICMP | names::ICMP6 => self.icmp(protocol, family, length),
            _ => match ports.destination.or(ports.source) {
                Some((at, _)) => error(
                    at,
                    "a port of a protocol without ports",
                    "say \"proto tcp\" or \"proto udp\"",
                ),
                None => Ok(Content::Other(length)),
            },
        }
    }

    fn tcp(&self, ports: Ports<'_>, length: u16) -> Result<Content> {
        let (source_port, destination_port) = ports.both(self.end)?;
        let flags = match self.get("flags") {
            Some(word) => match flags(word.text) {
                Some(flags) => flags,
                None => return wrong("flags", word),
            },
            None => SYN,
        };
        let mut tcp = Tcp::new(source_port, destination_port, flags);
        tcp.seq = self.number("seq", tcp.seq)?;
        tcp.ack = self.number("ack", tcp.ack)?;
        tcp.window = self.number("window", tcp.window)?;
        tcp.urgent = self.number("urgent", 0)?;
        tcp.length = length;
        if self.get("mss").is_some() {
            tcp.mss = Some(self.number("mss", 0)?);
        }
        if let Some(word) = self.get("wscale") {
            tcp.window_scale = Some(self.number("wscale", 0)?);
            if tcp.window_scale > Some(14) {
                return wrong("wscale", word);
            }
        }
        Ok(Content::Tcp(tcp))
    }

    fn icmp(&self, protocol: u8, family: Family, length: u16) -> Result<Content> {
        let of = if protocol == names::ICMP {
            Family::Inet
        } else {
            Family::Inet6
        };
        let Some(word) = self.get("icmp-type").or(self.get("icmp6-type")) else {
            return error(
                self.end,
                "no ICMP type",
                "add \"icmp-type echoreq\", or another type",
            );
        };
        let kind = names::icmp_type(word.text, of).or_else(|| small(word));
        let Some(kind) = kind else {
            return wrong("icmp-type", word);
        };
        let code = match self.get("code") {
            Some(word) => match names::icmp_code(kind, word.text, of).or_else(|| small(word)) {
                Some(code) => code,
                None => return wrong("code", word),
            },
            None => 0,
        };
        let mut icmp = Icmp::new(kind, code);
        icmp.id = self.number("id", 0)?;
        icmp.length = length;
        if of == Family::Inet6 && has_target(kind) {
            icmp.target = Some(match self.get("target") {
                Some(word) => match word.text.parse() {
                    Ok(target) => target,
                    Err(_) => return wrong("target", word),
                },
                None => Ipv6Addr::UNSPECIFIED,
            });
        }
        if let Some(about) = &self.about {
            let end = about.end;
            if of != family || !is_icmp_error(kind, family) {
                return error(
                    end,
                    "\"about\" in a message that is no ICMP error",
                    "leave \"about …\" out",
                );
            }
            icmp.about = Some(about.about(family)?);
            icmp.length = 0;
        }
        Ok(Content::Icmp(icmp))
    }

    fn about(&self, family: Family) -> Result<About> {
        let host = Host::default();
        let (source, source_port) = peer(self.from, "from", &host, self.end)?;
        let (destination, destination_port) = peer(self.to, "to", &host, self.end)?;
        if Family::of(source) != family || Family::of(destination) != family {
            return error(
                self.end,
                "the packet after \"about\" is of another family",
                "give addresses of one family",
            );
        }
        let protocol = self.protocol(family, &host)?;
        let ports = Ports {
            source: source_port,
            destination: destination_port,
        };
        let header = match protocol {
            names::TCP => {
                let (source_port, destination_port) = ports.both(self.end)?;
                AboutHeader::Tcp {
                    source_port,
                    destination_port,
                    seq: self.number("seq", 1000)?,
                }
            }
            names::UDP => {
                let (source_port, destination_port) = ports.both(self.end)?;
                AboutHeader::Udp {
                    source_port,
                    destination_port,
                }
            }
            names::ICMP | names::ICMP6 if (protocol == names::ICMP) == (family == Family::Inet) => {
                match self.icmp(protocol, family, 0)? {
                    Content::Icmp(icmp) => AboutHeader::Icmp {
                        kind: icmp.kind,
                        code: icmp.code,
                        id: icmp.id,
                    },
                    _ => AboutHeader::Other,
                }
            }
            _ => AboutHeader::Other,
        };
        Ok(About {
            source,
            destination,
            protocol,
            header,
        })
    }

    fn fragment(&self, next: u8) -> Result<Content> {
        let offset: u16 = self.number("offset", FRAGMENT_OFFSET)?;
        if let Some(word) = self.get("offset")
            && !offset.is_multiple_of(8)
        {
            return wrong("offset", word);
        }
        let payload = match self.get("data") {
            Some(word) => match from_hex(word.text) {
                Some(bytes) => bytes,
                None => return wrong("data", word),
            },
            None => vec![0; usize::from(self.number("length", FRAGMENT_LENGTH)?)],
        };
        let more = self.has("more");
        Ok(Content::Fragment(Fragment {
            offset,
            more,
            next,
            payload: Arc::from(payload),
        }))
    }

    fn header(&self, packet: &mut Packet) -> Result<()> {
        packet.tos = match self.get("tos") {
            Some(word) => match names::tos(word.text).or_else(|| small(word)) {
                Some(tos) => tos,
                None => return wrong("tos", word),
            },
            None => 0,
        };
        packet.ttl = self.number("ttl", packet.ttl)?;
        packet.ttl = self.number("hop-limit", packet.ttl)?;
        packet.id = self.number("ip-id", 0)?;
        packet.dont_fragment = self.has("df");
        packet.options.other = self.has("options") || self.has("allow-opts");
        packet.options.router_alert = self.has("router-alert");
        packet.checksum_ok = !self.has("bad-checksum");
        Ok(())
    }

    fn context(&self, packet: &mut Packet, host: &Host) -> Result<()> {
        packet.tag = self.get("tagged").map(|word| Arc::from(word.text));
        let received_on = self.get("received-on");
        packet.received_on = received_on.map(|word| Arc::from(host.first_name(word.text)));
        packet.rdomain = self.number("rdomain", 0)?;
        packet.prio = self.number("prio", DEFAULT_PRIO)?;
        if let Some(word) = self.get("prio")
            && packet.prio > 7
        {
            return wrong("prio", word);
        }
        packet.user = self.owner("user", |name| host.user(name))?;
        packet.group = self.owner("group", |name| host.group(name))?;
        packet.os = self.get("os").map(|word| Arc::from(word.text));
        packet.routes.source = self.get("source-route").map(|word| route(word.text));
        packet.routes.destination = self.get("destination-route").map(|word| route(word.text));
        packet.routes.urpf_failed = match self.get("urpf") {
            Some(word) => match word.text {
                "failed" => Some(true),
                "passed" => Some(false),
                _ => return wrong("urpf", word),
            },
            None => None,
        };
        packet.generated = self.has("generated");
        Ok(())
    }

    fn owner(&self, key: &str, by_name: impl Fn(&str) -> Option<u32>) -> Result<Option<u32>> {
        let Some(word) = self.get(key) else {
            return Ok(None);
        };
        if word.text == "unknown" {
            return Ok(Some(NO_OWNER));
        }
        match number(word).or_else(|| by_name(word.text)) {
            Some(id) => Ok(Some(id)),
            None => error(
                word.at,
                format!("\"{}\" is no {key} of this host", word.text),
                "give its number, or add it to the host model",
            ),
        }
    }
}

/// Ports of a packet, with their places.
#[derive(Clone, Copy)]
struct Ports<'a> {
    source: Option<(usize, PortText<'a>)>,
    destination: Option<(usize, PortText<'a>)>,
}

/// A port that was looked up, or could not be.
type PortText<'a> = std::result::Result<u16, &'a str>;

impl Ports<'_> {
    fn both(self, end: usize) -> Result<(u16, u16)> {
        let resolve = |port: Option<(usize, PortText<'_>)>| match port {
            Some((_, Ok(port))) => Ok(Some(port)),
            Some((at, Err(text))) => error(
                at,
                format!("\"{text}\" is no port"),
                "give a number up to 65535 or a service of the host",
            ),
            None => Ok(None),
        };
        let source = resolve(self.source)?.unwrap_or(SOURCE_PORT);
        match resolve(self.destination)? {
            Some(destination) => Ok((source, destination)),
            None => error(
                end,
                "no destination port",
                "add \"port N\" after the address of \"to\"",
            ),
        }
    }
}

type Resolved<'a> = (IpAddr, Option<(usize, PortText<'a>)>);

fn peer<'a>(peer: Option<Peer<'a>>, which: &str, host: &Host, end: usize) -> Result<Resolved<'a>> {
    let Some(Peer { address, port }) = peer else {
        return error(
            end,
            format!("no \"{which}\""),
            format!("add \"{which}\" and an address"),
        );
    };
    let port = port.map(|word| {
        let found = number(word)
            .and_then(|port| u16::try_from(port).ok())
            .or_else(|| host.service(word.text));
        (word.at, found.ok_or(word.text))
    });
    let bare = address
        .text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(address.text);
    if let Ok(address) = bare.parse() {
        return Ok((address, port));
    }
    if let Ok(socket) = address.text.parse::<SocketAddr>() {
        return Ok((socket.ip(), port.or(Some((address.at, Ok(socket.port()))))));
    }
    if let Some(&found) = host
        .names
        .get(address.text)
        .and_then(|addresses| addresses.first())
    {
        return Ok((found, port));
    }
    error(
        address.at,
        format!("\"{}\" is no address", address.text),
        "write 192.0.2.1, 192.0.2.1:80, 2001:db8::1 or [2001:db8::1]:80, or a name of the host model",
    )
}

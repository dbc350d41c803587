//! Names to addresses, as pfctl's `host()`: an interface first, then an address, then a name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::parser::Parser;
use super::syntax::{Host, HostAddress};
use crate::host::Interface;
use crate::rule::{Family, InterfacePart, Network};

/// How an interface's name is looked up, for both forms.
type Modifiers<'t> = (&'t str, Option<InterfacePart>, bool);

/// The meaning of a name.
pub(super) enum Resolved {
    /// Its addresses.
    Hosts(Vec<Host>),
    /// Nobody said, as the host is not known: the name, with its prefix length.
    Open(Arc<str>),
    /// Nothing.
    Unknown {
        message: String,
        help: Option<String>,
    },
}

/// Splits `em0:network:0`, or names the mistake.
pub(super) fn split_modifiers(text: &str) -> Result<Modifiers<'_>, String> {
    let (mut name, mut part, mut no_alias) = (text, None, false);
    while let Some((rest, modifier)) = name.rsplit_once(':') {
        let new = match modifier {
            "0" => {
                no_alias = true;
                None
            }
            "network" => Some(InterfacePart::Network),
            "broadcast" => Some(InterfacePart::Broadcast),
            "peer" => Some(InterfacePart::Peer),
            _ => return Err(format!("`:{modifier}` is no modifier of an interface")),
        };
        if part.is_some() && new.is_some() && part != new {
            return Err(format!(
                "`{text}` combines modifiers that exclude each other"
            ));
        }
        part = part.or(new);
        name = rest;
    }
    Ok((name, part, no_alias))
}

impl Parser<'_> {
    pub(super) fn resolve(&self, text: &str, bits: Option<u8>) -> Resolved {
        if let Some(found) = self.resolve_interface(text, bits) {
            return found;
        }
        if let Some(host) = self.resolve_address(text, bits) {
            return Resolved::Hosts(vec![host]);
        }
        self.resolve_name(text, bits)
    }

    /// `None` if the text names no interface.
    fn resolve_interface(&self, text: &str, bits: Option<u8>) -> Option<Resolved> {
        let (name, part, no_alias) = split_modifiers(text).ok()?;
        let host = self.config.host;
        let name = host.first_name(name);
        if host.interface(name).is_none() && !host.is_group(name) && name != "self" {
            return None;
        }
        if name == "self" && !host.is_known() {
            return Some(open(text, bits));
        }
        let sized = matches!(
            part,
            Some(InterfacePart::Network | InterfacePart::Broadcast)
        );
        if sized && bits.is_some() {
            let message = format!("`{text}` has a prefix length of its own: it takes no other");
            return Some(Resolved::Unknown {
                message,
                help: None,
            });
        }
        let mut hosts = self.interface_hosts(name, part, no_alias);
        if hosts.is_empty() {
            let message = format!("interface `{text}` has no such address");
            let help = Some(format!("write `({text})` if it gets one later"));
            return Some(Resolved::Unknown { message, help });
        }
        if let Some(bits) = bits {
            for host in &mut hosts {
                resize(host, bits);
            }
        }
        Some(Resolved::Hosts(hosts))
    }

    /// Addresses of an interface, of a group's interfaces, or of all for `self`.
    pub(crate) fn interface_hosts(
        &self,
        name: &str,
        part: Option<InterfacePart>,
        no_alias: bool,
    ) -> Vec<Host> {
        let host = self.config.host;
        let group = host.is_group(name);
        let wanted = |interface: &&Interface| {
            if group {
                interface.in_group(name)
            } else {
                name == "self" || interface.name == name
            }
        };
        let interfaces = host.interfaces.iter().filter(wanted);
        interfaces
            .flat_map(|interface| addresses(interface, part, no_alias))
            .collect()
    }

    fn resolve_address(&self, text: &str, bits: Option<u8>) -> Option<Host> {
        let (text, scope) = match text.split_once('%') {
            Some((text, scope)) => (text, Some(scope)),
            None => (text, None),
        };
        let address = match text.parse::<IpAddr>() {
            Ok(address) => address,
            Err(_) => IpAddr::V4(short_v4(text, bits?)?),
        };
        if scope.is_some_and(|scope| address.is_ipv4() || self.scope_is_unknown(scope)) {
            return None;
        }
        let mut host = fixed(address, bits.unwrap_or(Family::of(address).bits()));
        host.scope = scope.map(Arc::from);
        Some(host)
    }

    fn scope_is_unknown(&self, scope: &str) -> bool {
        self.config.host.is_known() && self.config.host.interface(scope).is_none()
    }

    fn resolve_name(&self, text: &str, bits: Option<u8>) -> Resolved {
        let (name, no_alias) = match text.strip_suffix(":0") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let host = self.config.host;
        if let Some(addresses) = host.names.get(name) {
            let mut hosts: Vec<Host> = addresses
                .iter()
                .map(|&address| fixed(address, Family::of(address).bits()))
                .collect();
            if no_alias {
                keep_first_of_each_family(&mut hosts);
            }
            if let Some(bits) = bits {
                for host in &mut hosts {
                    resize(host, bits);
                }
            }
            if !hosts.is_empty() {
                return Resolved::Hosts(hosts);
            }
        }
        let base = split_modifiers(text).map_or(text, |(name, ..)| name);
        if !could_be_name(base) {
            return Resolved::Unknown {
                message: format!("`{text}` is no address"),
                help: near_address(text),
            };
        }
        if !host.is_known() {
            return open(text, bits);
        }
        Resolved::Unknown {
            message: format!("the host has no interface and knows no name `{text}`"),
            help: Some(format!(
                "add it to the host's `names`, or describe interface `{base}` under `interfaces`"
            )),
        }
    }
}

fn open(text: &str, bits: Option<u8>) -> Resolved {
    Resolved::Open(match bits {
        Some(bits) => format!("{text}/{bits}").into(),
        None => text.into(),
    })
}

/// Whether a text can be the name of an interface or a host: its last label is not a number.
fn could_be_name(text: &str) -> bool {
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or("");
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    text.len() <= 253
        && text.chars().all(allowed)
        && last.contains(|c: char| c.is_ascii_alphabetic())
}

fn near_address(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('.').collect();
    let numbers = parts.len() > 1
        && parts
            .iter()
            .all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !numbers {
        return None;
    }
    if parts.len() != 4 {
        return Some(
            "an IPv4 address has four numbers; fewer need a prefix length, as in `10.1/16`".into(),
        );
    }
    Some("each number of an IPv4 address is 0 to 255".into())
}

/// `10`, `10.1` or `10.1.2` before a prefix length.
fn short_v4(text: &str, _bits: u8) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > 4 {
        return None;
    }
    for (octet, part) in octets.iter_mut().zip(&parts) {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    Some(octets.into())
}

fn fixed(address: IpAddr, bits: u8) -> Host {
    let masked = Network::new(address, bits).address;
    Host {
        address: HostAddress::Network(masked, bits),
        family: Some(Family::of(address)),
        negated: false,
        scope: None,
        via: None,
        weight: 0,
    }
}

fn resize(host: &mut Host, bits: u8) {
    if let HostAddress::Network(address, _) = host.address {
        host.address = HostAddress::Network(Network::new(address, bits).address, bits);
    }
}

fn keep_first_of_each_family(hosts: &mut Vec<Host>) {
    let (mut v4, mut v6) = (false, false);
    hosts.retain(|host| {
        let seen = if host.family == Some(Family::Inet) {
            &mut v4
        } else {
            &mut v6
        };
        !std::mem::replace(seen, true)
    });
}

/// Addresses of one interface (`ifa_lookup`).
fn addresses(interface: &Interface, part: Option<InterfacePart>, no_alias: bool) -> Vec<Host> {
    let mut hosts = Vec::new();
    for own in &interface.addresses {
        let link_local = matches!(own.address, IpAddr::V6(address) if is_link_local(address));
        let host = match part {
            Some(InterfacePart::Broadcast) if interface.has_broadcast() => broadcast(own.network()),
            Some(InterfacePart::Broadcast) => None,
            Some(InterfacePart::Peer) => own.peer.map(|peer| fixed(peer, Family::of(peer).bits())),
            Some(InterfacePart::Network) if link_local => None,
            Some(InterfacePart::Network) => Some(fixed(own.address, own.bits)),
            None => Some(fixed(own.address, Family::of(own.address).bits())),
        };
        if let Some(mut host) = host {
            host.scope = link_local.then(|| interface.name.as_str().into());
            hosts.push(host);
        }
    }
    if no_alias {
        keep_first_of_each_family(&mut hosts);
    }
    hosts
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

fn broadcast(network: Network) -> Option<Host> {
    let IpAddr::V4(address) = network.address else {
        return None;
    };
    let host_bits = u32::MAX.checked_shr(u32::from(network.bits)).unwrap_or(0);
    let address = Ipv4Addr::from(u32::from(address) | host_bits);
    Some(fixed(IpAddr::V4(address), 32))
}

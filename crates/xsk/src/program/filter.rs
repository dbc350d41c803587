//! The choice of packets that the built-in program takes.

use crate::error::{Error, Result};
use std::net::IpAddr;

/// The smallest EtherType; smaller values of the field are lengths (IEEE 802.3).
const ETHER_TYPE_LEAST: u16 = 0x600;

/// The packets that the built-in XDP program redirects to its sockets; all others go to the network
/// stack. See [the guide](crate::guide::packets).
///
/// ```no_run
/// use std::net::Ipv4Addr;
/// use xsk::{Filter, Rule, Socket, Umem};
///
/// # fn main() -> xsk::Result<()> {
/// let dns = Rule::udp()
///     .destination(Ipv4Addr::new(192, 0, 2, 0), 24)
///     .destination_port(53);
/// let umem = Umem::builder().build()?;
/// let socket = Socket::builder(&umem, "eth0", 0)
///     .filter(Filter::any([dns, Rule::ether_type(0x88b5)]))
///     .open()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub(super) rules: Vec<Rule>,
}

impl Filter {
    /// Most rules of a filter. With ports and IPv6 addresses of both ends in each, the program has
    /// 2976 instructions.
    pub const MAX_RULES: usize = 128;

    /// Takes a packet that matches at least one of the rules.
    pub fn any(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self {
            rules: rules.into_iter().collect(),
        }
    }

    /// Checks the number of rules, and each of them.
    pub(crate) fn check(&self) -> Result<()> {
        let count = self.rules.len();
        if count == 0 {
            return Err(Error::invalid(
                "a filter without rules takes no packet: add a rule, or leave `filter` out to take all packets",
            ));
        }
        if count > Self::MAX_RULES {
            let most = Self::MAX_RULES;
            return Err(Error::invalid(format!(
                "a filter of {count} rules is too long: combine them to at most {most}, or attach an XDP program of your own with `SocketBuilder::attach`"
            )));
        }
        for (number, rule) in (1..).zip(&self.rules) {
            rule.check().map_err(|message| {
                Error::invalid(format!("rule {number} of the filter: {message}"))
            })?;
        }
        Ok(())
    }
}

/// A condition for packets: an EtherType; or IP, and then all of the transport protocol, ports and
/// addresses given.
///
/// ```
/// use std::net::Ipv6Addr;
/// use xsk::Rule;
///
/// let quic = Rule::udp().destination_port(443);
/// let any_ipv6 = Rule::ip().destination(Ipv6Addr::UNSPECIFIED, 0);
/// # let _ = (quic, any_ipv6);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "give it to `Filter::any`"]
pub struct Rule {
    pub(super) subject: Subject,
    pub(super) source: Option<Prefix>,
    pub(super) destination: Option<Prefix>,
    pub(super) source_port: Option<u16>,
    pub(super) destination_port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    EtherType(u16),
    /// IP with one of these protocol numbers; any protocol if there are none.
    Ip(&'static [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    address: IpAddr,
    len: u8,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

impl Rule {
    /// Packets of an EtherType, such as 0x88f7 for PTP: the field behind the addresses, or behind
    /// one VLAN tag.
    pub fn ether_type(ether_type: u16) -> Self {
        Self::new(Subject::EtherType(ether_type))
    }

    /// IPv4 and IPv6, of any protocol. With a port it is UDP and TCP.
    pub fn ip() -> Self {
        Self::new(Subject::Ip(&[]))
    }

    /// UDP over IPv4 and IPv6.
    pub fn udp() -> Self {
        Self::new(Subject::Ip(&[UDP]))
    }

    /// TCP over IPv4 and IPv6.
    pub fn tcp() -> Self {
        Self::new(Subject::Ip(&[TCP]))
    }

    fn new(subject: Subject) -> Self {
        Self {
            subject,
            source: None,
            destination: None,
            source_port: None,
            destination_port: None,
        }
    }

    /// Only packets from this prefix, and of its IP version; `len` is in bits, 0 for any address.
    pub fn source(mut self, address: impl Into<IpAddr>, len: u8) -> Self {
        let address = address.into();
        self.source = Some(Prefix { address, len });
        self
    }

    /// Only packets to this prefix, and of its IP version; `len` is in bits, 0 for any address.
    pub fn destination(mut self, address: impl Into<IpAddr>, len: u8) -> Self {
        let address = address.into();
        self.destination = Some(Prefix { address, len });
        self
    }

    /// Only packets from this UDP or TCP port. Fragments have no ports.
    pub fn source_port(mut self, port: u16) -> Self {
        self.source_port = Some(port);
        self
    }

    /// Only packets to this UDP or TCP port. Fragments have no ports.
    pub fn destination_port(mut self, port: u16) -> Self {
        self.destination_port = Some(port);
        self
    }

    pub(super) fn has_ports(&self) -> bool {
        self.source_port.is_some() || self.destination_port.is_some()
    }

    /// Whether it allows all packets of the IP versions that it allows.
    pub(super) fn is_any_ip(&self) -> bool {
        let prefixes = self.source.into_iter().chain(self.destination);
        self.subject == Subject::Ip(&[])
            && !self.has_ports()
            && prefixes.into_iter().all(|prefix| prefix.len == 0)
    }

    /// The protocol numbers that it allows; none for any.
    pub(super) fn protocols(&self) -> &'static [u8] {
        match self.subject {
            Subject::Ip([]) if self.has_ports() => &[UDP, TCP],
            Subject::Ip(protocols) => protocols,
            Subject::EtherType(_) => &[],
        }
    }

    fn check(&self) -> std::result::Result<(), String> {
        let prefixes = || self.source.into_iter().chain(self.destination);
        if let Subject::EtherType(ether_type) = self.subject {
            if ether_type < ETHER_TYPE_LEAST {
                return Err(format!(
                    "{ether_type:#06x} is a length, not an EtherType: choose 0x0600 or more"
                ));
            }
            if self.has_ports() || prefixes().next().is_some() {
                return Err(
                    "an EtherType has no addresses or ports: start with `Rule::ip`, `udp` or `tcp`"
                        .into(),
                );
            }
        }
        if let (Some(source), Some(destination)) = (self.source, self.destination)
            && source.address.is_ipv4() != destination.address.is_ipv4()
        {
            return Err(format!(
                "no packet goes from {} to {}: give both in one IP version",
                source.address, destination.address
            ));
        }
        prefixes().try_for_each(Prefix::check)
    }
}

impl Prefix {
    pub(super) fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// The address and mask by words of 32 bits, in network byte order.
    pub(super) fn words(self) -> Vec<([u8; 4], u32)> {
        let octets = match self.address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let words = octets.chunks_exact(4).zip((0_u8..).step_by(32));
        let word = |(octets, first): (&[u8], u8)| {
            let bits = self.len.saturating_sub(first).min(32);
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            (octets.try_into().expect("chunks of 4"), mask)
        };
        words.map(word).collect()
    }

    fn check(self) -> std::result::Result<(), String> {
        let Self { address, len } = self;
        let most = if self.is_ipv4() { 32 } else { 128 };
        if len > most {
            return Err(format!(
                "{address}/{len} has too long a prefix: an address has {most} bits"
            ));
        }
        let outside = |(octets, mask): ([u8; 4], u32)| u32::from_be_bytes(octets) & !mask != 0;
        if self.words().into_iter().any(outside) {
            return Err(format!(
                "{address}/{len} has bits behind its prefix: clear them, or write {address}/{most} for the one address"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn error(rules: impl IntoIterator<Item = Rule>) -> String {
        let checked = Filter::any(rules).check();
        checked.expect_err("it is refused").to_string()
    }

    #[test]
    fn wrong_filters_are_refused_with_the_cure() {
        let net = Ipv4Addr::new(192, 0, 2, 0);
        let faults = [
            (error([]), "leave `filter` out"),
            (error([Rule::udp(); 129]), "129 rules is too long: combine"),
            (
                error([Rule::ip(), Rule::ether_type(46)]),
                "rule 2 of the filter: 0x002e is a length",
            ),
            (
                error([Rule::ether_type(0x0800).destination_port(53)]),
                "start with `Rule::ip`",
            ),
            (
                error([Rule::ip()
                    .source(net, 24)
                    .destination(Ipv6Addr::LOCALHOST, 128)]),
                "in one IP version",
            ),
            (error([Rule::ip().source(net, 33)]), "has 32 bits"),
            (
                error([Rule::ip().source(Ipv6Addr::LOCALHOST, 129)]),
                "has 128 bits",
            ),
            (
                error([Rule::ip().destination(Ipv4Addr::new(192, 0, 2, 1), 24)]),
                "or write 192.0.2.1/32",
            ),
        ];
        for (error, cure) in faults {
            assert!(error.contains(cure), "{error:?} lacks {cure:?}");
        }
        assert!(Filter::any([Rule::udp(); 128]).check().is_ok());
    }

    #[test]
    fn a_prefix_covers_words_in_whole_and_in_part() {
        let masks = |len| {
            let prefix = Prefix {
                address: Ipv6Addr::UNSPECIFIED.into(),
                len,
            };
            let masks = prefix.words().into_iter().map(|(_, mask)| mask);
            masks.collect::<Vec<_>>()
        };
        assert_eq!(masks(0), [0; 4]);
        assert_eq!(masks(48), [u32::MAX, 0xffff_0000, 0, 0]);
        assert_eq!(masks(128), [u32::MAX; 4]);
    }
}

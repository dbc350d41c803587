//! The host that a configuration is for: pfctl's questions to its own machine, answered.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use crate::names;
use crate::rule::Dialect;
use crate::rule::{Family, Network};

/// The host that a configuration is for.
///
/// [`Host::default`] is an unknown host: it has a loopback interface, and the users, groups,
/// protocols and services of a fresh OpenBSD. Addresses of other interfaces and of names stay
/// open ([`Address::Unresolved`](crate::rule::Address::Unresolved)).
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Interfaces, in the host's order.
    pub interfaces: Vec<Interface>,
    /// Other names of interfaces, as Linux has them: rules and packets that have one mean the interface.
    pub aliases: BTreeMap<String, String>,
    /// Addresses of host names, in the resolver's order.
    pub names: BTreeMap<String, Vec<IpAddr>>,
    /// Users beside those of a fresh OpenBSD.
    pub users: BTreeMap<String, u32>,
    /// Groups of users beside those of a fresh OpenBSD.
    pub groups: BTreeMap<String, u32>,
    /// Services beside those of `/etc/services`.
    pub services: BTreeMap<String, u16>,
    /// Protocols beside those of `/etc/protocols`.
    pub protocols: BTreeMap<String, u8>,
    /// Routing tables; `None` for all.
    pub rtables: Option<Vec<u32>>,
    known: bool,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Groups that it is in, beside that of its driver's name (`em` for `em0`).
    #[serde(default)]
    pub groups: Vec<String>,
    /// Its addresses, in the host's order.
    #[serde(default)]
    pub addresses: Vec<InterfaceAddress>,
    /// Its IPv4 addresses have a broadcast address. Without a word of it: unless `peer`s are
    /// given or it is loopback.
    pub broadcast: Option<bool>,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub bits: u8,
    /// The other end of a point-to-point interface.
    pub peer: Option<IpAddr>,
}

impl Default for Host {
    fn default() -> Self {
        let loopback = |address: &str, bits| InterfaceAddress {
            address: address
                .parse()
                .unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
            bits,
            peer: None,
        };
        Self {
            interfaces: vec![Interface {
                name: "lo0".into(),
                groups: Vec::new(),
                addresses: vec![
                    loopback("::1", 128),
                    loopback("fe80::1", 64),
                    loopback("127.0.0.1", 8),
                ],
                broadcast: None,
            }],
            aliases: BTreeMap::new(),
            names: BTreeMap::from([(
                "localhost".into(),
                vec![
                    loopback("127.0.0.1", 8).address,
                    loopback("::1", 128).address,
                ],
            )]),
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            services: BTreeMap::new(),
            protocols: BTreeMap::new(),
            rtables: None,
            known: false,
        }
    }
}

/// The file's form: as [`Host`], with addresses as text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    interfaces: Vec<Interface>,
    #[serde(default)]
    names: BTreeMap<String, Vec<IpAddr>>,
    #[serde(default)]
    users: BTreeMap<String, u32>,
    #[serde(default)]
    groups: BTreeMap<String, u32>,
    #[serde(default)]
    services: BTreeMap<String, u16>,
    #[serde(default)]
    protocols: BTreeMap<String, u8>,
    rtables: Option<Vec<u32>>,
}

impl<'de> Deserialize<'de> for InterfaceAddress {
    /// From `"192.0.2.1/24"`, `"192.0.2.1"` or `"10.0.0.1 peer 10.0.0.2"`.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for InterfaceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "\"{text}\" is no address: write \"192.0.2.1/24\" or \"10.0.0.1 peer 10.0.0.2\""
            )
        };
        let mut words = text.split_whitespace();
        let network = words.next().ok_or_else(form)?;
        let peer = match (words.next(), words.next(), words.next()) {
            (None, ..) => None,
            (Some("peer"), Some(peer), None) => Some(peer.parse().map_err(|_| form())?),
            _ => return Err(form()),
        };
        let (address, bits) = match network.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| form())?)),
            None => (network, None),
        };
        let address: IpAddr = address.parse().map_err(|_| form())?;
        let most = Family::of(address).bits();
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(format!(
                "\"{text}\": a prefix of {} has at most {most} bits",
                Family::of(address).name()
            ));
        }
        Ok(Self {
            address,
            bits,
            peer,
        })
    }
}

impl InterfaceAddress {
    /// The network that it is in.
    #[must_use]
    pub fn network(&self) -> Network {
        Network::new(self.address, self.bits)
    }
}

impl Host {
    /// Reads a host model, in TOML:
    ///
    /// ```toml
    /// rtables = [0, 1]                  # without: every routing table exists
    ///
    /// [[interfaces]]
    /// name = "em0"
    /// groups = ["egress"]
    /// addresses = ["192.0.2.2/24", "2001:db8::2/64"]
    ///
    /// [[interfaces]]
    /// name = "gif0"
    /// addresses = ["10.0.0.1 peer 10.0.0.2"]
    ///
    /// [names]
    /// "www.example.org" = ["192.0.2.80"]
    ///
    /// [users]
    /// alice = 1000
    ///
    /// [services]
    /// metrics = 9100
    /// ```
    ///
    /// `lo0` and `localhost` are there unless the file gives them.
    ///
    /// # Errors
    /// The cause with line and column, as text of several lines.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut host = Self {
            known: true,
            ..Self::default()
        };
        for (index, interface) in file.interfaces.iter().enumerate() {
            if interface.name.is_empty() || interface.name.len() > names::INTERFACE_NAME_MAX {
                return Err(format!(
                    "interface {}: \"{}\" is no name of an interface: 1 to {} characters",
                    index + 1,
                    interface.name,
                    names::INTERFACE_NAME_MAX
                ));
            }
            if file.interfaces[..index]
                .iter()
                .any(|other| other.name == interface.name)
            {
                return Err(format!("interface \"{}\" is there twice", interface.name));
            }
        }
        if file
            .interfaces
            .iter()
            .any(|interface| interface.name == "lo0")
        {
            host.interfaces.clear();
        }
        host.interfaces.extend(file.interfaces);
        host.names.extend(file.names);
        host.users = file.users;
        host.groups = file.groups;
        host.services = file.services;
        host.protocols = file.protocols;
        host.rtables = file.rtables;
        Ok(host)
    }

    /// A host of which everything is known, with these interfaces.
    #[must_use]
    pub fn with_interfaces(interfaces: Vec<Interface>) -> Self {
        Self {
            interfaces,
            known: true,
            ..Self::default()
        }
    }

    /// Whether interfaces and names that are not in the model do not exist, rather than being
    /// unknown.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// The name that an interface has in the model, which may be called by an alias; any other text as it is.
    #[must_use]
    pub fn first_name<'n>(&'n self, name: &'n str) -> &'n str {
        self.aliases.get(name).map_or(name, String::as_str)
    }

    /// The interface of this name or alias.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        let name = self.first_name(name);
        self.interfaces
            .iter()
            .find(|interface| interface.name == name)
    }

    /// Whether any interface is in this group.
    #[must_use]
    pub fn is_group(&self, name: &str) -> bool {
        self.interfaces
            .iter()
            .any(|interface| interface.in_group(name))
    }

    /// Number of a user, with the names of a fresh system of the dialect.
    pub fn user_of(&self, name: &str, dialect: Dialect) -> Option<u32> {
        match dialect {
            Dialect::OpenBsd => self.user(name),
            Dialect::FreeBsd => self
                .users
                .get(name)
                .copied()
                .or_else(|| names::freebsd::user(name)),
        }
    }

    /// Number of a group of users, with the names of a fresh system of the dialect.
    pub fn group_of(&self, name: &str, dialect: Dialect) -> Option<u32> {
        match dialect {
            Dialect::OpenBsd => self.group(name),
            Dialect::FreeBsd => self
                .groups
                .get(name)
                .copied()
                .or_else(|| names::freebsd::group(name)),
        }
    }

    /// Port of a service, with the names of a fresh system of the dialect.
    pub fn service_of(&self, name: &str, dialect: Dialect) -> Option<u16> {
        let freebsd = || names::freebsd::service(name).filter(|_| dialect == Dialect::FreeBsd);
        self.services
            .get(name)
            .copied()
            .or_else(freebsd)
            .or_else(|| names::service(name))
    }

    /// Number of a user.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied().or_else(|| names::user(name))
    }

    /// Number of a group of users.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups
            .get(name)
            .copied()
            .or_else(|| names::group(name))
    }

    /// Port of a service.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<u16> {
        self.services
            .get(name)
            .copied()
            .or_else(|| names::service(name))
    }

    /// Number of a protocol.
    #[must_use]
    pub fn protocol(&self, name: &str) -> Option<u8> {
        self.protocols
            .get(name)
            .copied()
            .or_else(|| names::protocol(name))
    }

    /// Name of a protocol.
    #[must_use]
    pub fn protocol_name(&self, number: u8) -> Option<&str> {
        let own = self
            .protocols
            .iter()
            .find(|&(_, &value)| value == number)
            .map(|(name, _)| name.as_str());
        own.or_else(|| names::protocol_name(number))
    }

    /// Whether this routing table exists.
    #[must_use]
    pub fn has_rtable(&self, id: u32) -> bool {
        self.rtables
            .as_ref()
            .is_none_or(|tables| tables.contains(&id))
    }
}

impl Interface {
    /// Whether it is in this group: one of [`groups`](Self::groups), or its driver's name.
    #[must_use]
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|other| other == group)
            || self.name.trim_end_matches(|c: char| c.is_ascii_digit()) == group
    }

    /// Whether it is a loopback interface.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.in_group("lo")
    }

    /// Whether it has two ends.
    #[must_use]
    pub fn is_point_to_point(&self) -> bool {
        self.addresses.iter().any(|address| address.peer.is_some())
    }

    /// Whether its IPv4 addresses have a broadcast address.
    #[must_use]
    pub fn has_broadcast(&self) -> bool {
        self.broadcast
            .unwrap_or_else(|| !self.is_loopback() && !self.is_point_to_point())
    }
}

//! Names that need no host: protocols, services, ICMP types and codes, TOS values, and the users
//! and groups of a fresh OpenBSD or [FreeBSD](freebsd).

mod accounts;
pub mod freebsd;
mod icmp;
mod protocols;
mod services;

use crate::rule::Dialect;
use crate::rule::Family;

/// Most characters of an interface's name (`IFNAMSIZ` less the terminator).
pub const INTERFACE_NAME_MAX: usize = 15;
/// Most characters of a table's name.
pub const TABLE_NAME_MAX: usize = 31;
/// Most characters of a label or a tag.
pub const LABEL_MAX: usize = 63;
/// Most characters of a route label.
pub const ROUTE_LABEL_MAX: usize = 31;

/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// ICMP.
pub const ICMP: u8 = 1;
/// ICMPv6.
pub const ICMP6: u8 = 58;

/// Letters of the TCP flags, from bit 0.
pub const FLAG_LETTERS: &str = "FSRPAUEW";

/// Number of a protocol.
#[must_use]
pub fn protocol(name: &str) -> Option<u8> {
    let found = protocols::PROTOCOLS
        .iter()
        .find(|(_, names)| names.contains(&name));
    found.map(|&(number, _)| number)
}

/// Name of a protocol.
#[must_use]
pub fn protocol_name(number: u8) -> Option<&'static str> {
    let found = protocols::PROTOCOLS
        .iter()
        .find(|&&(other, _)| other == number);
    found.map(|(_, names)| names[0])
}

/// All names of protocols.
pub fn protocol_names() -> impl Iterator<Item = &'static str> {
    protocols::PROTOCOLS
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
}

/// Port of a service.
#[must_use]
pub fn service(name: &str) -> Option<u16> {
    let found = services::SERVICES.binary_search_by_key(&name, |&(name, _)| name);
    found.ok().map(|at| services::SERVICES[at].1)
}

/// All names of services.
pub fn service_names() -> impl Iterator<Item = &'static str> {
    services::SERVICES.iter().map(|&(name, _)| name)
}

/// Number of a user of a fresh OpenBSD.
#[must_use]
pub fn user(name: &str) -> Option<u32> {
    accounts::USERS
        .iter()
        .find(|&&(other, _)| other == name)
        .map(|&(_, id)| id)
}

/// Number of a group of users of a fresh OpenBSD.
#[must_use]
pub fn group(name: &str) -> Option<u32> {
    accounts::GROUPS
        .iter()
        .find(|&&(other, _)| other == name)
        .map(|&(_, id)| id)
}

/// Number of an ICMP type.
#[must_use]
pub fn icmp_type(name: &str, family: Family) -> Option<u8> {
    icmp_types(family)
        .iter()
        .find(|&&(other, _)| other == name)
        .map(|&(_, kind)| kind)
}

/// Name of an ICMP type.
#[must_use]
pub fn icmp_type_name(kind: u8, family: Family) -> Option<&'static str> {
    icmp_types(family)
        .iter()
        .find(|&&(_, other)| other == kind)
        .map(|&(name, _)| name)
}

/// Number of a code of an ICMP type.
#[must_use]
pub fn icmp_code(kind: u8, name: &str, family: Family) -> Option<u8> {
    let found = icmp_codes(family)
        .iter()
        .find(|&&(other, of, _)| of == kind && other == name);
    found.map(|&(_, _, code)| code)
}

/// Name of a code of an ICMP type.
#[must_use]
pub fn icmp_code_name(kind: u8, code: u8, family: Family) -> Option<&'static str> {
    let found = icmp_codes(family)
        .iter()
        .find(|&&(_, of, other)| of == kind && other == code);
    found.map(|&(name, _, _)| name)
}

/// Number of a code of an ICMP type, with the names of a dialect.
#[must_use]
pub fn icmp_code_in(kind: u8, name: &str, family: Family, dialect: Dialect) -> Option<u8> {
    let own = |&(other, of, code): &(&str, u8, u8)| (of == kind && other == name).then_some(code);
    match (dialect, family) {
        (Dialect::FreeBsd, Family::Inet6) => freebsd::ICMP6_CODES.iter().find_map(own),
        _ => None,
    }
    .or_else(|| icmp_code(kind, name, family))
}

/// Name of a code of an ICMP type, in a dialect.
#[must_use]
pub fn icmp_code_name_in(
    kind: u8,
    code: u8,
    family: Family,
    dialect: Dialect,
) -> Option<&'static str> {
    let own =
        |&(name, of, other): &(&'static str, u8, u8)| (of == kind && other == code).then_some(name);
    match (dialect, family) {
        (Dialect::FreeBsd, Family::Inet6) => freebsd::ICMP6_CODES.iter().find_map(own),
        _ => None,
    }
    .or_else(|| icmp_code_name(kind, code, family))
}

/// Names of ICMP types.
#[must_use]
pub fn icmp_types(family: Family) -> &'static [(&'static str, u8)] {
    match family {
        Family::Inet => icmp::TYPES,
        Family::Inet6 => icmp::TYPES6,
    }
}

/// Names of ICMP codes: name, type, code.
#[must_use]
pub fn icmp_codes(family: Family) -> &'static [(&'static str, u8, u8)] {
    match family {
        Family::Inet => icmp::CODES,
        Family::Inet6 => icmp::CODES6,
    }
}

/// Names of TOS values (RFC 2474, 2597, 3246, 1349), in any case.
const TOS: &[(&str, u8)] = &[
    ("af11", 0x28),
    ("af12", 0x30),
    ("af13", 0x38),
    ("af21", 0x48),
    ("af22", 0x50),
    ("af23", 0x58),
    ("af31", 0x68),
    ("af32", 0x70),
    ("af33", 0x78),
    ("af41", 0x88),
    ("af42", 0x90),
    ("af43", 0x98),
    ("critical", 0xa0),
    ("cs0", 0x00),
    ("cs1", 0x20),
    ("cs2", 0x40),
    ("cs3", 0x60),
    ("cs4", 0x80),
    ("cs5", 0xa0),
    ("cs6", 0xc0),
    ("cs7", 0xe0),
    ("ef", 0xb8),
    ("inetcontrol", 0xc0),
    ("lowdelay", 0x10),
    ("netcontrol", 0xe0),
    ("reliability", 0x04),
    ("throughput", 0x08),
];

/// A TOS value by name.
#[must_use]
pub fn tos(name: &str) -> Option<u8> {
    TOS.iter()
        .find(|(other, _)| other.eq_ignore_ascii_case(name))
        .map(|&(_, value)| value)
}

/// All names of TOS values.
pub fn tos_names() -> impl Iterator<Item = &'static str> {
    TOS.iter().map(|&(name, _)| name)
}

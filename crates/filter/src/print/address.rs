//! Addresses (`print_addr`).

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use crate::rule::{Address, DynamicInterface, Family, InterfacePart};

/// A network: `192.0.2.0/24`, without the length where it is full; `any` for all of a family.
#[must_use]
pub fn network(address: IpAddr, bits: u8) -> String {
    let mut text = String::new();
    let _ = write_network(&mut text, address, bits);
    text
}

pub(super) fn write_network(f: &mut String, address: IpAddr, bits: u8) -> fmt::Result {
    if address.is_unspecified() && bits == 0 {
        return f.write_str("any");
    }
    write_ip(f, address)?;
    if bits < Family::of(address).bits() {
        write!(f, "/{bits}")
    } else {
        Ok(())
    }
}

/// As `inet_ntop(3)` of BSD writes it.
fn write_ip(f: &mut String, address: IpAddr) -> fmt::Result {
    write!(f, "{address}")
}

/// An address as rules have it.
#[must_use]
pub fn address(address: &Address, family: Option<Family>) -> String {
    let mut text = String::new();
    let _ = write_address(&mut text, address, family);
    text
}

pub(super) fn write_address(
    f: &mut String,
    address: &Address,
    family: Option<Family>,
) -> fmt::Result {
    match address {
        Address::Any => f.write_str("any"),
        Address::Network(network) => write_network(f, network.address, network.bits),
        Address::Range(first, last) => {
            write_ip(f, *first)?;
            f.write_str(" - ")?;
            write_ip(f, *last)
        }
        Address::Interface(interface) => write_dynamic(f, interface, family),
        Address::Unresolved(name) => f.write_str(name),
        Address::Table(name) => write!(f, "<{name}>"),
        Address::NoRoute => f.write_str("no-route"),
        Address::UrpfFailed => f.write_str("urpf-failed"),
        Address::RouteLabel(label) => write!(f, "route \"{label}\""),
    }
}

fn write_dynamic(
    f: &mut String,
    interface: &DynamicInterface,
    family: Option<Family>,
) -> fmt::Result {
    write!(f, "({}", interface.name)?;
    f.write_str(match interface.part {
        None => "",
        Some(InterfacePart::Network) => ":network",
        Some(InterfacePart::Broadcast) => ":broadcast",
        Some(InterfacePart::Peer) => ":peer",
    })?;
    f.write_str(if interface.no_alias { ":0)" } else { ")" })?;
    let full = family.unwrap_or(Family::Inet6).bits();
    if interface.bits < full {
        write!(f, "/{}", interface.bits)
    } else {
        Ok(())
    }
}

//! Interfaces, groups of them, and their addresses (`pf_if.c`).

use std::net::{IpAddr, Ipv4Addr};

use crate::host::{Host, Interface, InterfaceAddress};
use crate::rule::{DynamicInterface, Family, InterfacePart, Network};

/// Whether a rule's interface name means this interface (`pfi_kif_match`). `None` if it is that of
/// a group, and nobody knows whether the interface is in it.
pub(super) fn matches(name: &str, interface: &str, host: &Host) -> Option<bool> {
    let in_group = |group: &str| match host.interface(interface) {
        Some(known) => known.in_group(group),
        None => Interface {
            name: interface.into(),
            ..Interface::default()
        }
        .in_group(group),
    };
    match name {
        "any" => Some(!in_group("lo")),
        "all" => Some(true),
        _ if name == interface || in_group(name) => Some(true),
        // Names of groups do not end with a digit.
        _ if name.ends_with(|c: char| c.is_ascii_digit()) => Some(false),
        _ => (host.is_known() || host.interface(interface).is_some()).then_some(false),
    }
}

/// Addresses of `(interface)`, for rules of either family; `None` if nobody knows them.
pub(super) fn addresses(dynamic: &DynamicInterface, host: &Host) -> Option<Vec<Network>> {
    let all = dynamic.name.as_ref() == "self";
    let of_name = |interface: &&Interface| {
        all || interface.name == dynamic.name.as_ref() || interface.in_group(&dynamic.name)
    };
    let named: Vec<&Interface> = host.interfaces.iter().filter(of_name).collect();
    if (all || named.is_empty()) && !host.is_known() {
        return None;
    }
    Some(
        named
            .into_iter()
            .flat_map(|interface| instance(interface, dynamic))
            .collect(),
    )
}

/// Addresses that one interface gives (`pfi_instance_add`).
fn instance(interface: &Interface, dynamic: &DynamicInterface) -> Vec<Network> {
    let mut networks = Vec::new();
    let mut seen = [false; 2];
    for address in &interface.addresses {
        let family = Family::of(address.address);
        let Some(part) = part(interface, address, dynamic.part) else {
            continue;
        };
        let seen = &mut seen[usize::from(family == Family::Inet6)];
        if dynamic.no_alias && *seen {
            continue;
        }
        *seen = true;
        networks.push(Network::new(part, prefix(address, dynamic, family)));
    }
    networks
}

/// The address, its broadcast address or its peer; `None` if it has none, or is not asked for.
fn part(
    interface: &Interface,
    address: &InterfaceAddress,
    part: Option<InterfacePart>,
) -> Option<IpAddr> {
    match (part, address.address) {
        (Some(InterfacePart::Network), IpAddr::V6(own)) if own.is_unicast_link_local() => None,
        (None | Some(InterfacePart::Network), own) => Some(own),
        (Some(InterfacePart::Broadcast), IpAddr::V4(own)) if interface.has_broadcast() => {
            let host = u32::MAX.checked_shr(u32::from(address.bits)).unwrap_or(0);
            Some(Ipv4Addr::from(u32::from(own) | host).into())
        }
        (Some(InterfacePart::Broadcast), _) => None,
        (Some(InterfacePart::Peer), _) => address.peer,
    }
}

fn prefix(address: &InterfaceAddress, dynamic: &DynamicInterface, family: Family) -> u8 {
    let whole = dynamic.bits >= 128 || (family == Family::Inet && dynamic.bits >= 32);
    if whole && dynamic.part == Some(InterfacePart::Network) {
        return address.bits;
    }
    dynamic.bits.min(family.bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        let model = r#"
            [[interfaces]]
            name = "em0"
            groups = ["egress"]
            addresses = ["192.0.2.2/24", "192.0.2.9/24", "fe80::2/64", "2001:db8::2/64"]
            [[interfaces]]
            name = "gif0"
            addresses = ["10.0.0.1 peer 10.0.0.2"]
        "#;
        Host::parse(model).unwrap()
    }

    fn of(name: &str, part: Option<InterfacePart>, no_alias: bool, bits: u8) -> Vec<String> {
        let dynamic = DynamicInterface {
            name: name.into(),
            part,
            no_alias,
            bits,
        };
        let networks = addresses(&dynamic, &host()).unwrap();
        networks
            .iter()
            .map(|network| format!("{}/{}", network.address, network.bits))
            .collect()
    }

    #[test]
    fn modifiers_choose_addresses() {
        assert_eq!(
            of("em0", None, false, 128),
            [
                "192.0.2.2/32",
                "192.0.2.9/32",
                "fe80::2/128",
                "2001:db8::2/128"
            ]
        );
        assert_eq!(
            of("egress", None, true, 128),
            ["192.0.2.2/32", "fe80::2/128"]
        );
        let network = Some(InterfacePart::Network);
        assert_eq!(
            of("em0", network, false, 128),
            ["192.0.2.0/24", "192.0.2.0/24", "2001:db8::/64"]
        );
        assert_eq!(of("em0", None, true, 16), ["192.0.0.0/16", "fe80::/16"]);
        assert_eq!(
            of("em", Some(InterfacePart::Broadcast), true, 128),
            ["192.0.2.255/32"]
        );
        assert_eq!(
            of("gif0", Some(InterfacePart::Peer), false, 128),
            ["10.0.0.2/32"]
        );
        assert_eq!(of("em7", None, false, 128), Vec::<String>::new());
        let dynamic = DynamicInterface {
            name: "em7".into(),
            part: None,
            no_alias: false,
            bits: 128,
        };
        assert_eq!(addresses(&dynamic, &Host::default()), None);
    }

    #[test]
    fn names_groups_and_any() {
        for (name, interface, same) in [
            ("em0", "em0", true),
            ("em", "em0", true),
            ("egress", "em0", true),
            ("egress", "gif0", false),
            ("any", "em0", true),
            ("any", "lo0", false),
            ("lo", "lo1", true),
            ("em1", "em0", false),
            ("vlan", "vlan7", true),
        ] {
            assert_eq!(
                matches(name, interface, &host()),
                Some(same),
                "{name} {interface}"
            );
        }
    }

    #[test]
    fn groups_of_an_unknown_host_are_open() {
        let unknown = Host::default();
        assert_eq!(matches("egress", "em0", &unknown), None);
        assert_eq!(matches("em", "em0", &unknown), Some(true));
        assert_eq!(matches("em1", "em0", &unknown), Some(false));
        assert_eq!(matches("egress", "lo0", &unknown), Some(false));
        let own = DynamicInterface {
            name: "self".into(),
            part: None,
            no_alias: false,
            bits: 128,
        };
        assert_eq!(addresses(&own, &unknown), None);
    }
}

//! The packets that a socket takes.

use crate::abi;
use crate::fault::{Fault, Result};
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use xsk::{Filter, Rule};

/// The filter of the rules.
pub(super) fn filter(rules: &[abi::Rule]) -> Result<Filter> {
    let rules: Result<Vec<Rule>> = rules.iter().map(rule).collect();
    Ok(Filter::any(rules?))
}

fn rule(of: &abi::Rule) -> Result<Rule> {
    if of.ether_type != 0 {
        return ether_type(of);
    }
    let mut rule = match c_int::from(of.protocol) {
        0 => Rule::ip(),
        libc::IPPROTO_UDP => Rule::udp(),
        libc::IPPROTO_TCP => Rule::tcp(),
        other => {
            return Err(wrong(
                format!("protocol {other}"),
                "IPPROTO_UDP, IPPROTO_TCP or 0",
            ));
        }
    };
    if of.source_port != 0 {
        rule = rule.source_port(of.source_port);
    }
    if of.destination_port != 0 {
        rule = rule.destination_port(of.destination_port);
    }
    let is_padded = of.reserved == [0; 6] && (of.family != 0 || !has_addresses(of));
    if !is_padded {
        return Err(wrong(
            "an address without `family`",
            "AF_INET or AF_INET6, and set all other fields to 0",
        ));
    }
    if of.family == 0 {
        return Ok(rule);
    }
    let source = address(of.family, of.source)?;
    let destination = address(of.family, of.destination)?;
    Ok(rule
        .source(source, of.source_bits)
        .destination(destination, of.destination_bits))
}

fn has_addresses(of: &abi::Rule) -> bool {
    (of.source_bits, of.destination_bits) != (0, 0)
        || (of.source, of.destination) != ([0; 16], [0; 16])
}

fn ether_type(of: &abi::Rule) -> Result<Rule> {
    let others = (of.protocol, of.family, of.source_port, of.destination_port);
    if others != (0, 0, 0, 0) || has_addresses(of) || of.reserved != [0; 6] {
        return Err(wrong(
            "an EtherType beside other fields",
            "`ether_type` alone, or 0 in it",
        ));
    }
    Ok(Rule::ether_type(of.ether_type))
}

fn address(family: u8, bytes: [u8; 16]) -> Result<IpAddr> {
    match c_int::from(family) {
        libc::AF_INET => Ok(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        libc::AF_INET6 => Ok(Ipv6Addr::from(bytes).into()),
        other => Err(wrong(format!("family {other}"), "AF_INET, AF_INET6 or 0")),
    }
}

fn wrong(what: impl std::fmt::Display, instead: &str) -> Fault {
    Fault::invalid(format!("{what} is not possible in a rule: use {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: abi::Rule = abi::Rule {
        ether_type: 0,
        protocol: 0,
        family: 0,
        source_port: 0,
        destination_port: 0,
        source_bits: 0,
        destination_bits: 0,
        reserved: [0; 6],
        source: [0; 16],
        destination: [0; 16],
    };

    #[test]
    fn rules_are_those_of_the_library() {
        let mut source = [0; 16];
        source[..4].copy_from_slice(&[192, 0, 2, 0]);
        let of = abi::Rule {
            protocol: 17,
            family: 2,
            destination_port: 53,
            source_bits: 24,
            source,
            ..NONE
        };
        let expected = Rule::udp()
            .destination_port(53)
            .source(Ipv4Addr::new(192, 0, 2, 0), 24)
            .destination(Ipv4Addr::UNSPECIFIED, 0);
        assert_eq!(rule(&of).expect("possible"), expected);
        assert_eq!(rule(&NONE).expect("possible"), Rule::ip());
        let of = abi::Rule {
            ether_type: 0x88b5,
            ..NONE
        };
        assert_eq!(rule(&of).expect("possible"), Rule::ether_type(0x88b5));
    }

    #[test]
    fn impossible_rules_are_refused() {
        for of in [
            abi::Rule {
                protocol: 1,
                ..NONE
            },
            abi::Rule { family: 1, ..NONE },
            abi::Rule {
                source_bits: 8,
                ..NONE
            },
            abi::Rule {
                reserved: [1; 6],
                ..NONE
            },
            abi::Rule {
                ether_type: 0x800,
                destination_port: 1,
                ..NONE
            },
        ] {
            assert!(rule(&of).is_err(), "{of:?}");
        }
    }
}

//! Contents of tables and of dynamic interfaces, as far as they are known.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::sets::{ValueSet, network_range};
use crate::host::{Host, Interface, InterfaceAddress};
use crate::rule::{
    DynamicInterface, Family, InterfacePart, Network, Rule, Ruleset, Table, TableEntry,
};

/// The tables of a rule set.
pub struct Tables<'a> {
    tables: HashMap<(&'a str, &'a str), &'a Table>,
    overloaded: HashSet<&'a str>,
}

/// A table's content.
pub enum Content<'a> {
    /// As declared.
    Declared(&'a Table),
    /// Filled at run time.
    Unknown,
}

impl<'a> Tables<'a> {
    /// The tables of a rule set.
    pub fn new(ruleset: &'a Ruleset) -> Self {
        let tables = ruleset
            .tables
            .iter()
            .map(|table| ((&*table.anchor, &*table.name), table))
            .collect();
        let mut overloaded = HashSet::new();
        overloads(&ruleset.rules, &mut overloaded);
        for loaded in &ruleset.loaded {
            overloads(&loaded.rules, &mut overloaded);
        }
        Self { tables, overloaded }
    }

    /// The content of the table of this name in an anchor: its own, or the main rule set's.
    pub fn content(&self, anchor: &str, name: &str) -> Content<'a> {
        let Some(&table) = self
            .tables
            .get(&(anchor, name))
            .or_else(|| self.tables.get(&("", name)))
        else {
            return Content::Unknown;
        };
        let filled =
            table.parts.is_empty() && table.entries.is_empty() || self.overloaded.contains(name);
        if filled && !table.constant {
            Content::Unknown
        } else {
            Content::Declared(table)
        }
    }
}

/// Names of the tables that rules fill by `overload`.
fn overloads<'a>(rules: &'a [Rule], names: &mut HashSet<&'a str>) {
    let mut pending = vec![rules];
    while let Some(rules) = pending.pop() {
        for rule in rules {
            if let Some(overload) = rule
                .state_options
                .as_ref()
                .and_then(|options| options.overload.as_ref())
            {
                names.insert(&overload.table);
            }
            if let Some(crate::rule::Anchor::Inline { rules, .. }) = rule.anchor.as_deref() {
                pending.push(rules);
            }
        }
    }
}

/// The addresses of one family in a table: for each, its most specific entry decides.
pub fn table_addresses(table: &Table, family: Family) -> ValueSet {
    let of_family = |entry: &&TableEntry| Family::of(entry.network.address) == family;
    let mut entries: Vec<&TableEntry> = table.entries.iter().filter(of_family).collect();
    // Networks are nested or disjoint: in this order, a network follows those that hold it. The
    // first of two equal entries is the one that is loaded.
    entries.sort_by_key(|entry| (network_range(entry.network).0, entry.network.bits));
    entries.dedup_by_key(|entry| entry.network);
    let mut ranges = Vec::new();
    let mut open: Vec<(u128, bool)> = Vec::new();
    let mut from = 0;
    for entry in entries {
        let (low, high) = network_range(entry.network);
        close(&mut open, &mut from, &mut ranges, Some(low));
        if low > from || !open.is_empty() {
            emit(&open, from, low, &mut ranges);
        }
        from = low;
        open.push((high, !entry.negated));
    }
    close(&mut open, &mut from, &mut ranges, None);
    ValueSet::of(ranges)
}

/// Ends the networks that lie before `until`.
fn close(
    open: &mut Vec<(u128, bool)>,
    from: &mut u128,
    ranges: &mut Vec<(u128, u128)>,
    until: Option<u128>,
) {
    while let Some(&(high, included)) = open.last() {
        if until.is_some_and(|until| until <= high) {
            return;
        }
        open.pop();
        if *from <= high {
            if included {
                ranges.push((*from, high));
            }
            match high.checked_add(1) {
                Some(next) => *from = next,
                // Nothing follows the last address: the networks around end there, too.
                None => return open.clear(),
            }
        }
    }
}

/// The part of the innermost open network before the next one.
fn emit(open: &[(u128, bool)], from: u128, low: u128, ranges: &mut Vec<(u128, u128)>) {
    if let Some(&(_, true)) = open.last()
        && from < low
    {
        ranges.push((from, low - 1));
    }
}

/// The addresses of a dynamic interface or group, where the host is known.
pub fn interface_addresses(
    dynamic: &DynamicInterface,
    family: Family,
    host: &Host,
) -> Option<Vec<Network>> {
    let named = host.interface(&dynamic.name);
    if !host.is_known() && named.is_none() {
        return None;
    }
    let members: Vec<&Interface> = match named {
        Some(interface) => vec![interface],
        None if &*dynamic.name == "self" => host.interfaces.iter().collect(),
        None => host
            .interfaces
            .iter()
            .filter(|interface| interface.in_group(&dynamic.name))
            .collect(),
    };
    let mut networks = Vec::new();
    for interface in members {
        let own = interface
            .addresses
            .iter()
            .filter(|address| Family::of(address.address) == family);
        let own = own.filter_map(|address| part(interface, address, dynamic));
        if dynamic.no_alias {
            networks.extend(own.take(1));
        } else {
            networks.extend(own);
        }
    }
    Some(networks)
}

fn part(
    interface: &Interface,
    address: &InterfaceAddress,
    dynamic: &DynamicInterface,
) -> Option<Network> {
    let whole = Family::of(address.address).bits();
    let link_local = matches!(address.address, IpAddr::V6(own) if own.is_unicast_link_local());
    let (base, bits) = match dynamic.part {
        None => (address.address, whole),
        Some(InterfacePart::Network) if link_local => return None,
        Some(InterfacePart::Network) => (address.address, address.bits),
        Some(InterfacePart::Peer) => (address.peer?, whole),
        Some(InterfacePart::Broadcast) => {
            let IpAddr::V4(_) = address.address else {
                return None;
            };
            if !interface.has_broadcast() {
                return None;
            }
            let last = network_range(address.network()).1 as u32;
            (IpAddr::V4(last.into()), whole)
        }
    };
    let narrower = dynamic.bits < whole;
    Some(Network::new(
        base,
        if narrower { dynamic.bits } else { bits },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{FileId, Span};

    fn table(entries: &[(&str, u8, bool)]) -> Table {
        let entries = entries.iter().map(|&(address, bits, negated)| TableEntry {
            network: Network::new(address.parse().unwrap(), bits),
            negated,
            weight: 0,
        });
        Table {
            name: "t".into(),
            anchor: "".into(),
            constant: true,
            persist: false,
            counters: false,
            entries: entries.collect(),
            parts: Vec::new(),
            span: Span {
                file: FileId(0),
                start: 0,
                end: 0,
            },
        }
    }

    #[test]
    fn the_most_specific_entry_decides() {
        let entries = [
            ("10.0.0.0", 8, false),
            ("10.1.0.0", 16, true),
            ("10.1.2.0", 24, false),
            ("10.1.2.3", 32, true),
            ("255.0.0.0", 8, false),
            ("255.255.255.255", 32, true),
            ("0.0.0.0", 32, true),
        ];
        let table = table(&entries);
        let set = table_addresses(&table, Family::Inet);
        let probes = [
            "9.255.255.255",
            "10.0.0.0",
            "10.1.0.0",
            "10.1.2.2",
            "10.1.2.3",
            "10.1.2.4",
            "10.1.3.0",
            "10.2.0.0",
        ];
        let mut probes: Vec<std::net::Ipv4Addr> =
            probes.iter().map(|text| text.parse().unwrap()).collect();
        probes.extend(
            ["255.255.255.254", "255.255.255.255", "0.0.0.0", "11.0.0.0"]
                .map(|text| text.parse::<std::net::Ipv4Addr>().unwrap()),
        );
        for probe in probes {
            let holding = table
                .entries
                .iter()
                .filter(|entry| entry.network.contains(probe.into()));
            let expected = holding
                .max_by_key(|entry| entry.network.bits)
                .is_some_and(|entry| !entry.negated);
            assert_eq!(
                set.contains(u128::from(u32::from(probe))),
                expected,
                "{probe}"
            );
        }
    }
}

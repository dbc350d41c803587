//! Tables of addresses: the most specific entry decides (`pf_table.c`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::random::to_number;
use crate::rule::{self, Family, Network, TableEntry};

/// A table as it is looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    v4: Radix,
    v6: Radix,
    /// Entries in the order in which they came.
    entries: Vec<TableEntry>,
}

/// Networks by prefix length, the longest first.
#[derive(Clone, Debug, Default)]
struct Radix(Vec<(u8, BTreeMap<u128, bool>)>);

impl Radix {
    /// Adds a network, unless it is there.
    fn insert(&mut self, bits: u8, network: u128, negated: bool) -> bool {
        let at = self.0.partition_point(|(other, _)| *other > bits);
        if self.0.get(at).is_none_or(|(other, _)| *other != bits) {
            self.0.insert(at, (bits, BTreeMap::new()));
        }
        let networks = &mut self.0[at].1;
        if networks.contains_key(&network) {
            return false;
        }
        networks.insert(network, negated);
        true
    }

    fn lookup(&self, address: u128, width: u8) -> Option<bool> {
        self.0.iter().find_map(|(bits, networks)| {
            let host = u32::from(width - bits);
            let mask = u128::MAX.checked_shl(host).unwrap_or(0);
            networks.get(&(address & mask)).copied()
        })
    }
}

impl Table {
    pub fn new(table: &rule::Table) -> Self {
        let mut own = Self::default();
        for &entry in &table.entries {
            own.insert(entry);
        }
        own
    }

    /// Adds an entry, unless its network is there.
    pub fn insert(&mut self, entry: TableEntry) {
        let network = Network::new(entry.network.address, entry.network.bits);
        let number = to_number(network.address);
        let added = match Family::of(network.address) {
            Family::Inet => self.v4.insert(network.bits, number, entry.negated),
            Family::Inet6 => self.v6.insert(network.bits, number, entry.negated),
        };
        if added {
            self.entries.push(TableEntry { network, ..entry });
        }
    }

    /// Whether the most specific entry that holds the address includes it (`pfr_match_addr`).
    pub fn contains(&self, address: IpAddr) -> bool {
        let found = match Family::of(address) {
            Family::Inet => self.v4.lookup(to_number(address), 32),
            Family::Inet6 => self.v6.lookup(to_number(address), 128),
        };
        found == Some(false)
    }

    /// Entries of a family that include addresses.
    pub fn included(&self, family: Family) -> impl Iterator<Item = &TableEntry> {
        self.entries
            .iter()
            .filter(move |entry| !entry.negated && Family::of(entry.network.address) == family)
    }

    pub fn entries(&self) -> &[TableEntry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[&str]) -> Table {
        let mut table = Table::default();
        for text in entries {
            let (negated, text) = text
                .strip_prefix('!')
                .map_or((false, *text), |rest| (true, rest));
            let (address, bits) = text.split_once('/').unwrap_or((text, "128"));
            let network = Network::new(address.parse().unwrap(), bits.parse().unwrap());
            table.insert(TableEntry {
                network,
                negated,
                weight: 0,
            });
        }
        table
    }

    #[test]
    fn the_most_specific_entry_decides() {
        let table = table(&[
            "10.0.0.0/8",
            "!10.1.0.0/16",
            "10.1.2.0/24",
            "!10.1.2.3",
            "2001:db8::/32",
            "!2001:db8:1::/48",
        ]);
        for (address, inside) in [
            ("10.0.0.1", true),
            ("10.1.0.1", false),
            ("10.1.2.4", true),
            ("10.1.2.3", false),
            ("11.0.0.1", false),
            ("2001:db8::1", true),
            ("2001:db8:1::1", false),
            ("::10.0.0.1", false),
        ] {
            assert_eq!(
                table.contains(address.parse().unwrap()),
                inside,
                "{address}"
            );
        }
    }

    #[test]
    fn a_default_network_and_double_entries() {
        let table = table(&["0.0.0.0/0", "!192.0.2.1", "192.0.2.1", "!::/0"]);
        assert!(table.contains("1.2.3.4".parse().unwrap()));
        assert!(
            !table.contains("192.0.2.1".parse().unwrap()),
            "the first of two equal networks counts"
        );
        assert!(!table.contains("::1".parse().unwrap()));
        assert_eq!(table.entries().len(), 3);
        assert_eq!(table.included(Family::Inet).count(), 1);
    }
}

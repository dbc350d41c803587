//! Pools: which address a translation or a route takes (`pf_map_addr` of `pf_lb.c`).

use std::net::IpAddr;
use std::sync::Arc;

use super::cursor::Cursor;
use super::engine::Engine;
use super::program::{AddressTest, Program, RuleId};
use super::random::{from_number, sip_hash, to_number};
use super::source_node::{NodeKey, Purpose, SourceNode, Threshold};
use crate::rule::{Family, Network, Pool, PoolKind, Rate};

/// Why a pool gives no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PoolError {
    /// None is left, or there are none of the family.
    Empty,
    /// Nobody knows its addresses.
    Unknown(Arc<str>),
}

/// One of the pools of a rule.
#[derive(Clone, Copy)]
pub(super) struct PoolOf<'p> {
    pub rule: RuleId,
    pub purpose: Purpose,
    pub pool: &'p Pool,
    pub addresses: &'p AddressTest,
}

impl<'p> PoolOf<'p> {
    /// The pool of a rule for a purpose.
    pub fn new(program: &'p Program<'_>, rule: RuleId, purpose: Purpose) -> Option<Self> {
        let entry = program.entry(rule);
        let (at, pool) = match purpose {
            Purpose::Nat => (0, entry.rule.nat.as_deref()),
            Purpose::Rdr => (1, entry.rule.rdr.as_deref()),
            Purpose::Route => (2, entry.rule.route.as_deref().map(|route| &route.pool)),
            Purpose::Track => return None,
        };
        Some(Self {
            rule,
            purpose,
            pool: pool?,
            addresses: entry.pools[at].as_ref()?,
        })
    }

    fn slot(&self) -> usize {
        match self.purpose {
            Purpose::Track | Purpose::Nat => 0,
            Purpose::Rdr => 1,
            Purpose::Route => 2,
        }
    }

    /// Whether its addresses are listed, and can change.
    fn is_list(&self) -> bool {
        matches!(
            self.addresses,
            AddressTest::Table(_) | AddressTest::Dynamic(_)
        )
    }
}

/// Width of the host part of a network, in bits.
fn host_bits(network: Network) -> u32 {
    u32::from(
        Family::of(network.address)
            .bits()
            .saturating_sub(network.bits),
    )
}

/// The address with the network's prefix and the host part of a number (`pf_poolmask`).
pub(super) fn in_network(network: Network, host: u128) -> IpAddr {
    let mask = u128::MAX.checked_shl(host_bits(network)).unwrap_or(0);
    let number = (to_number(network.address) & mask) | (host & !mask);
    from_number(number, Family::of(network.address))
}

impl Engine<'_> {
    /// An address of the pool, for a packet from `source`. The node of `sticky-address` goes into
    /// `nodes`.
    pub(super) fn map_address(
        &mut self,
        of: PoolOf<'_>,
        family: Family,
        source: IpAddr,
        nodes: &mut Vec<NodeKey>,
    ) -> Result<IpAddr, PoolError> {
        let sticky = of.pool.sticky && of.pool.kind != PoolKind::None;
        let key = (of.rule, of.purpose, source);
        if sticky && let Some(address) = self.sticky_address(of, key, nodes) {
            return Ok(address);
        }
        let networks = self.networks(of, family)?;
        let address = self
            .choose(of, &networks, family, source)
            .ok_or(PoolError::Empty)?;
        if sticky {
            self.insert_sticky(key, address, nodes)?;
        }
        Ok(address)
    }

    fn sticky_address(
        &mut self,
        of: PoolOf<'_>,
        key: NodeKey,
        nodes: &mut Vec<NodeKey>,
    ) -> Option<IpAddr> {
        let address = self.nodes.get(&key)?.address?;
        let valid = match of.addresses {
            AddressTest::Table(at) => self
                .tables
                .get(*at)
                .is_some_and(|table| table.contains(address)),
            AddressTest::Dynamic(networks) => {
                networks.iter().any(|network| network.contains(address))
            }
            AddressTest::Network(network) => network.contains(address),
            AddressTest::List(_) => true,
            _ => false,
        };
        if !valid {
            self.nodes.remove(&key);
            for state in self.states.iter_mut() {
                state.nodes.retain(|other| *other != key);
            }
            return None;
        }
        nodes.push(key);
        Some(address)
    }

    fn insert_sticky(
        &mut self,
        key: NodeKey,
        address: IpAddr,
        nodes: &mut Vec<NodeKey>,
    ) -> Result<(), PoolError> {
        nodes.retain(|other| *other != key);
        if self.nodes.get(&key).is_none()
            && self.nodes.len() >= self.options().limit_source_nodes as usize
        {
            return Err(PoolError::Empty);
        }
        let rate = Threshold::new(
            Rate {
                limit: 0,
                seconds: 0,
            },
            self.now(),
        );
        self.nodes.insert(
            key,
            SourceNode {
                address: Some(address),
                rate,
                ..SourceNode::default()
            },
        );
        nodes.push(key);
        Ok(())
    }

    /// The networks of a pool that are of a family.
    fn networks(&self, of: PoolOf<'_>, family: Family) -> Result<Vec<(Network, u16)>, PoolError> {
        let networks: Vec<(Network, u16)> = match of.addresses {
            AddressTest::List(tests) => {
                let mut networks = Vec::new();
                for addresses in tests {
                    match self.networks(PoolOf { addresses, ..of }, family) {
                        Ok(own) => networks.extend(own),
                        Err(PoolError::Empty) => {}
                        Err(unknown) => return Err(unknown),
                    }
                }
                networks
            }
            AddressTest::Network(network) => vec![(*network, 0)],
            AddressTest::Dynamic(networks) => {
                networks.iter().map(|&network| (network, 0)).collect()
            }
            AddressTest::Table(at) => {
                // Pools that need one address cannot take a table.
                if matches!(of.pool.kind, PoolKind::None | PoolKind::Bitmask) {
                    return Err(PoolError::Empty);
                }
                let table = self.tables.get(*at).ok_or(PoolError::Empty)?;
                table
                    .included(family)
                    .map(|entry| (entry.network, entry.weight))
                    .collect()
            }
            AddressTest::Unknown(name) => return Err(PoolError::Unknown(Arc::clone(name))),
            _ => Vec::new(),
        };
        let own: Vec<_> = networks
            .into_iter()
            .filter(|(network, _)| Family::of(network.address) == family)
            .collect();
        if own.is_empty() {
            Err(PoolError::Empty)
        } else {
            Ok(own)
        }
    }

    fn choose(
        &mut self,
        of: PoolOf<'_>,
        networks: &[(Network, u16)],
        family: Family,
        source: IpAddr,
    ) -> Option<IpAddr> {
        let first = networks.first()?.0;
        match of.pool.kind {
            PoolKind::None => Some(first.address),
            PoolKind::Bitmask => Some(in_network(first, to_number(source))),
            PoolKind::Random => {
                let at = self.random.below(networks.len() as u32) as usize;
                let host = u128::from(self.random.next()) << 64 | u128::from(self.random.next());
                Some(in_network(networks.get(at)?.0, host))
            }
            PoolKind::SourceHash(key) => {
                let hash = sip_hash(key.unwrap_or(self.hash_key), source);
                if of.is_list() {
                    let at = (hash % networks.len() as u64) as usize;
                    return Some(in_network(networks.get(at)?.0, 0));
                }
                Some(in_network(first, spread(hash, family)))
            }
            PoolKind::RoundRobin => self.round_robin(of, networks),
            PoolKind::LeastStates => self.least_states(of, networks),
        }
    }

    /// The next address in turn. A network of several addresses gives each of them.
    fn round_robin(&mut self, of: PoolOf<'_>, networks: &[(Network, u16)]) -> Option<IpAddr> {
        let cursor = &mut self.counters.get_mut(of.rule.index())?.pools[of.slot()];
        let network = if let Some(&(network, _)) = networks.get(cursor.index) {
            network
        } else {
            *cursor = Cursor::default();
            networks.first()?.0
        };
        let address = in_network(network, cursor.host);
        cursor.host += 1;
        if cursor.host.checked_shr(host_bits(network)).unwrap_or(0) > 0 {
            *cursor = Cursor {
                index: cursor.index + 1,
                host: 0,
            };
        }
        Some(address)
    }

    /// The address with the fewest states of this rule for its weight; of equals, the next in turn.
    fn least_states(&mut self, of: PoolOf<'_>, networks: &[(Network, u16)]) -> Option<IpAddr> {
        let mut best: Option<(u64, IpAddr)> = None;
        let most = networks
            .iter()
            .map(|(network, _)| 1usize.checked_shl(host_bits(*network)).unwrap_or(256))
            .sum::<usize>();
        for _ in 0..most.clamp(1, 256) {
            let address = self.round_robin(of, networks)?;
            let weight = networks
                .iter()
                .find(|(network, _)| network.contains(address))
                .map_or(0, |(_, weight)| *weight);
            let states = self.states_with(of, address);
            let load = if weight == 0 {
                states
            } else {
                states * 65_535 / u64::from(weight)
            };
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, address));
            }
        }
        best.map(|(_, address)| address)
    }

    fn states_with(&self, of: PoolOf<'_>, address: IpAddr) -> u64 {
        let takes = |state: &&super::state::State| match of.purpose {
            Purpose::Route => {
                state.rule == of.rule && state.route.is_some_and(|(_, hop)| hop == address)
            }
            Purpose::Nat => state.nat_rule == Some(of.rule) && state.wire().addresses[1] == address,
            Purpose::Rdr | Purpose::Track => {
                state.nat_rule == Some(of.rule) && state.stack().addresses[1] == address
            }
        };
        self.states.iter().filter(takes).count() as u64
    }
}

/// Spreads a hash over an address, as a little-endian machine does (`pf_hash`).
fn spread(hash: u64, family: Family) -> u128 {
    let (low, high) = (
        (hash as u32).swap_bytes(),
        ((hash >> 32) as u32).swap_bytes(),
    );
    match family {
        Family::Inet => u128::from(low),
        Family::Inet6 => {
            u128::from(low) << 96
                | u128::from(high) << 64
                | u128::from(!high) << 32
                | u128::from(!low)
        }
    }
}

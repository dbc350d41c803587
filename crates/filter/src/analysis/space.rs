//! The packets that reach the rules, as classes that are plain products of fields.
//!
//! pf looks at different fields of TCP, UDP and ICMP, and drops some combinations before any rule
//! sees them. Within one [`Class`] every combination of values of its fields is a packet, and
//! everything that follows from the class alone (can it make a state? is it answered?) is the
//! same for all its packets.

use super::sets::ValueSet;
use crate::names;
use crate::rule::{Direction, Family};

/// A field of a packet, or an atom: something unknown that is true or false.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Field(pub u32);

impl Field {
    pub const DIRECTION: Self = Self(0);
    pub const INTERFACE: Self = Self(1);
    pub const RDOMAIN: Self = Self(2);
    pub const PROTOCOL: Self = Self(3);
    pub const SOURCE: Self = Self(4);
    pub const SOURCE_PORT: Self = Self(5);
    pub const DESTINATION: Self = Self(6);
    pub const DESTINATION_PORT: Self = Self(7);
    pub const FLAGS: Self = Self(8);
    pub const ICMP_TYPE: Self = Self(9);
    pub const ICMP_CODE: Self = Self(10);
    pub const TOS: Self = Self(11);
    pub const PRIORITY: Self = Self(12);
    pub const RECEIVED_ON: Self = Self(13);
    pub const USER: Self = Self(14);
    pub const GROUP: Self = Self(15);
    pub const TAG: Self = Self(16);
    pub const OPTIONS: Self = Self(17);
    /// Number of the fields above.
    pub const COUNT: usize = 18;

    /// The field of an atom.
    pub fn atom(number: usize) -> Self {
        Self((Self::COUNT + number) as u32)
    }

    /// The atom's number, if it is one.
    pub fn as_atom(self) -> Option<usize> {
        (self.0 as usize).checked_sub(Self::COUNT)
    }

    /// Place in lists of fields.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Kinds of packets that pf treats by rules of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// TCP: SYN without ACK.
    TcpSyn,
    /// TCP with RST.
    TcpReset,
    /// Other TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP of the packet's family.
    Icmp(IcmpKind),
    /// Other protocols.
    Other,
    /// A fragment, where fragments are not reassembled.
    Fragment,
}

/// Consequences of an ICMP type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct IcmpKind {
    /// It makes no state (`state_icmp` in `pf_icmp_mapping`).
    pub stateless: bool,
    /// It answers another message: rules that keep state do not match it.
    pub reply: bool,
    /// A blocked one is answered by an ICMP error.
    pub answered: bool,
    /// It is MLD: pf drops it unless its source is link-local.
    pub local: bool,
}

/// A class of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Class {
    /// Family of the addresses.
    pub family: Family,
    /// Kind of packet.
    pub kind: Kind,
    /// Which way it goes, where this tells classes apart.
    pub direction: Option<Direction>,
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PUSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;

/// Whether rules ever see a TCP packet with these flags (`pf_normalize_tcp`).
fn flags_survive(flags: u8) -> bool {
    let syn = flags & SYN != 0;
    let ack = flags & ACK != 0;
    !(syn && flags & (RST | FIN) != 0)
        && (syn || flags & (ACK | RST) != 0)
        && (ack || flags & (FIN | PUSH | URG) == 0)
}

/// The flags that a TCP packet has when rules see it; `None` if it is dropped before.
pub fn normalized_flags(flags: u8) -> Option<u8> {
    let flags = if flags & SYN != 0 {
        flags & !FIN
    } else {
        flags
    };
    flags_survive(flags).then_some(flags)
}

/// Consequences of an ICMP type (`pf_icmp_mapping`, `ICMP_INFOTYPE`).
fn icmp_kind(family: Family, kind: u8) -> IcmpKind {
    match family {
        Family::Inet => IcmpKind {
            stateless: matches!(kind, 3 | 4 | 5 | 11 | 12),
            reply: matches!(kind, 0 | 9 | 14 | 16 | 18 | 34 | 36),
            answered: matches!(kind, 0 | 8 | 9 | 10 | 13..=18),
            local: false,
        },
        // A neighbour advertisement is a reply, but one that rules with state do match.
        Family::Inet6 => IcmpKind {
            stateless: matches!(kind, 1..=4 | 136),
            reply: matches!(kind, 129 | 140 | 200),
            answered: kind >= 128 && kind != 137,
            local: matches!(kind, 130..=132 | 143),
        },
    }
}

/// All classes; fragments only where rules can see them, and told apart by direction if
/// `directed`.
pub fn classes(fragments: bool, directed: bool) -> Vec<Class> {
    let directions: &[Option<Direction>] = if directed {
        &[Some(Direction::In), Some(Direction::Out)]
    } else {
        &[None]
    };
    let mut classes = Vec::new();
    for family in [Family::Inet, Family::Inet6] {
        let mut kinds = vec![Kind::TcpSyn, Kind::TcpReset, Kind::Tcp, Kind::Udp];
        for kind in 0..=u8::MAX {
            let kind = Kind::Icmp(icmp_kind(family, kind));
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.push(Kind::Other);
        if fragments {
            kinds.push(Kind::Fragment);
        }
        for kind in kinds {
            classes.extend(directions.iter().map(|&direction| Class {
                family,
                kind,
                direction,
            }));
        }
    }
    classes
}

/// Protocols that are never seen as such: headers that pf walks over, and the other family's ICMP.
pub fn unseen_protocol(family: Family, protocol: u8) -> bool {
    match family {
        Family::Inet => matches!(protocol, 51 | names::ICMP6),
        Family::Inet6 => matches!(protocol, 0 | 43 | 44 | 51 | 60 | names::ICMP),
    }
}

impl Class {
    /// The class of a packet of this protocol, with its TCP flags or ICMP type.
    pub fn of(family: Family, protocol: u8, detail: u8, fragment: bool) -> Self {
        let kind = match (protocol, family) {
            _ if fragment => Kind::Fragment,
            (names::TCP, _) if detail & RST != 0 => Kind::TcpReset,
            (names::TCP, _) if detail & (SYN | ACK) == SYN => Kind::TcpSyn,
            (names::TCP, _) => Kind::Tcp,
            (names::UDP, _) => Kind::Udp,
            (names::ICMP, Family::Inet) | (names::ICMP6, Family::Inet6) => {
                Kind::Icmp(icmp_kind(family, detail))
            }
            _ => Kind::Other,
        };
        Self {
            family,
            kind,
            direction: None,
        }
    }

    /// Whether it holds the packets of a class, as [`of`](Self::of) gives it, in a direction.
    pub fn holds(self, class: Self, direction: Direction) -> bool {
        self.family == class.family
            && self.kind == class.kind
            && self.direction.is_none_or(|own| own == direction)
    }

    /// The protocol, where there is only one.
    pub fn protocol(self) -> Option<u8> {
        match self.kind {
            Kind::TcpSyn | Kind::TcpReset | Kind::Tcp => Some(names::TCP),
            Kind::Udp => Some(names::UDP),
            Kind::Icmp(_) if self.family == Family::Inet => Some(names::ICMP),
            Kind::Icmp(_) => Some(names::ICMP6),
            Kind::Other | Kind::Fragment => None,
        }
    }

    /// Whether its packets are TCP, and no fragments.
    pub fn is_tcp(self) -> bool {
        matches!(self.kind, Kind::TcpSyn | Kind::TcpReset | Kind::Tcp)
    }

    /// Whether its packets have ports that rules see.
    pub fn has_ports(self) -> bool {
        self.is_tcp() || self.kind == Kind::Udp
    }

    /// Consequences of the ICMP type, where there is one.
    pub fn icmp(self) -> Option<IcmpKind> {
        match self.kind {
            Kind::Icmp(kind) => Some(kind),
            _ => None,
        }
    }

    /// Whether a rule can make a state for its packets.
    pub fn makes_state(self) -> bool {
        self.kind != Kind::Fragment && !self.icmp().is_some_and(|kind| kind.stateless)
    }

    /// The values of a field that occur in this class; `None` for a field that it does not have.
    /// Interfaces, routing domains, tags and atoms are numbered by the
    /// [`Vocabulary`](super::vocabulary::Vocabulary).
    pub fn values(self, field: Field) -> Option<ValueSet> {
        let bytes = |keep: &dyn Fn(u8) -> bool| {
            let kept = (0..=u8::MAX).filter(|&value| keep(value));
            Some(ValueSet::of(
                kept.map(|value| (u128::from(value), u128::from(value)))
                    .collect(),
            ))
        };
        match field {
            Field::DIRECTION => {
                let one = self
                    .direction
                    .map(|direction| ValueSet::one(direction as u128));
                Some(one.unwrap_or(ValueSet::range(0, 1)))
            }
            Field::OPTIONS => Some(ValueSet::range(0, 1)),
            Field::PROTOCOL if self.kind == Kind::Other => {
                let own = if self.family == Family::Inet {
                    names::ICMP
                } else {
                    names::ICMP6
                };
                let seen = |value| {
                    !unseen_protocol(self.family, value)
                        && ![names::TCP, names::UDP, own].contains(&value)
                };
                bytes(&seen)
            }
            Field::PROTOCOL if self.kind == Kind::Fragment => {
                // Behind an IPv6 fragment header pf looks up no protocol.
                let header = |value| self.family == Family::Inet6 && value == 44;
                bytes(&|value| header(value) || !unseen_protocol(self.family, value))
            }
            Field::SOURCE if self.icmp().is_some_and(|kind| kind.local) => {
                Some(ValueSet::range(0xfe80 << 112, (0xfec0 << 112) - 1))
            }
            Field::SOURCE | Field::DESTINATION => {
                Some(ValueSet::range(0, address_max(self.family)))
            }
            Field::SOURCE_PORT if self.has_ports() => Some(ValueSet::range(0, 65_535)),
            Field::DESTINATION_PORT if self.has_ports() => Some(ValueSet::range(1, 65_535)),
            Field::FLAGS if self.is_tcp() => bytes(&|flags| {
                flags_survive(flags)
                    && Self::of(self.family, names::TCP, flags, false).kind == self.kind
            }),
            Field::ICMP_TYPE => {
                let own = self.icmp()?;
                bytes(&|value| icmp_kind(self.family, value) == own)
            }
            Field::ICMP_CODE if self.icmp().is_some() => Some(ValueSet::range(0, 255)),
            // The two ECN bits are masked off.
            Field::TOS => bytes(&|value| value.is_multiple_of(4)),
            Field::PRIORITY => Some(ValueSet::range(0, 7)),
            Field::USER | Field::GROUP if self.has_ports() => {
                Some(ValueSet::range(0, u128::from(u32::MAX)))
            }
            _ => None,
        }
    }
}

/// The last address of a family, as a number.
pub fn address_max(family: Family) -> u128 {
    match family {
        Family::Inet => u128::from(u32::MAX),
        Family::Inet6 => u128::MAX,
    }
}

/// A field's values, cut into cells that no constraint divides.
#[derive(Clone, Debug, Default)]
pub struct Domain {
    /// First and last value of each cell, in order.
    pub cells: Vec<(u128, u128)>,
    /// No value is missing between the first cell and the last.
    contiguous: bool,
}

impl Domain {
    /// Cuts a field's values at the ends of all ranges of `sets`.
    pub fn new<'a>(values: &ValueSet, sets: impl Iterator<Item = &'a ValueSet>) -> Self {
        let mut starts: Vec<u128> = Vec::new();
        for set in sets {
            for &(low, high) in set.ranges() {
                starts.push(low);
                starts.extend(high.checked_add(1));
            }
        }
        starts.sort_unstable();
        starts.dedup();
        let mut cells = Vec::new();
        for &(low, high) in values.ranges() {
            let mut first = low;
            let inside = starts.partition_point(|&start| start <= low);
            for &start in starts[inside..].iter().take_while(|&&start| start <= high) {
                cells.push((first, start - 1));
                first = start;
            }
            cells.push((first, high));
        }
        Self {
            cells,
            contiguous: values.ranges().len() == 1,
        }
    }

    /// Number of cells.
    pub fn len(&self) -> u32 {
        self.cells.len() as u32
    }

    /// Number of values in the cells from `first` to `last`.
    pub fn weight(&self, first: u32, last: u32) -> f64 {
        let cells = &self.cells[first as usize..=last as usize];
        if self.contiguous {
            return (cells[cells.len() - 1].1 - cells[0].0) as f64 + 1.0;
        }
        cells
            .iter()
            .map(|&(low, high)| (high - low) as f64 + 1.0)
            .sum()
    }

    /// Number of values.
    pub fn total(&self) -> f64 {
        if self.cells.is_empty() {
            0.0
        } else {
            self.weight(0, self.len() - 1)
        }
    }

    /// The cell of a value, which may be none.
    pub fn cell(&self, value: u128) -> Option<u32> {
        let at = self.cells.partition_point(|&(_, high)| high < value);
        self.cells
            .get(at)
            .filter(|&&(low, _)| low <= value)
            .map(|_| at as u32)
    }

    /// The cells that a set covers, as ranges of their numbers.
    pub fn cover(&self, set: &ValueSet) -> Vec<(u32, u32)> {
        let mut covered: Vec<(u32, u32)> = Vec::with_capacity(set.ranges().len());
        for &(low, high) in set.ranges() {
            let first = self.cells.partition_point(|&(_, end)| end < low) as u32;
            let past = self.cells.partition_point(|&(start, _)| start <= high) as u32;
            if first >= past {
                continue;
            }
            match covered.last_mut() {
                Some(last) if last.1 + 1 >= first => last.1 = past - 1,
                _ => covered.push((first, past - 1)),
            }
        }
        covered
    }

    /// The values in ranges of cells.
    pub fn values(&self, cells: &[(u32, u32)]) -> ValueSet {
        let each = cells
            .iter()
            .flat_map(|&(first, last)| &self.cells[first as usize..=last as usize]);
        ValueSet::of(each.copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_in_one_class() {
        let all = classes(false, false);
        for family in [Family::Inet, Family::Inet6] {
            let mut seen = 0.0;
            for class in all
                .iter()
                .filter(|class| class.family == family && class.is_tcp())
            {
                seen +=
                    Domain::new(&class.values(Field::FLAGS).unwrap(), std::iter::empty()).total();
            }
            let survivors = (0..=u8::MAX).filter(|&flags| flags_survive(flags)).count();
            assert!((seen - survivors as f64).abs() < 0.5);
            let types: f64 = all
                .iter()
                .filter(|class| class.family == family)
                .filter_map(|class| class.values(Field::ICMP_TYPE))
                .map(|set| Domain::new(&set, std::iter::empty()).total())
                .sum();
            assert!((types - 256.0).abs() < 0.5);
        }
    }

    #[test]
    fn cells_follow_the_gaps_of_a_domain() {
        let values = ValueSet::of(vec![(0, 9), (20, 29)]);
        let cut = ValueSet::of(vec![(5, 24)]);
        let domain = Domain::new(&values, [&cut].into_iter());
        assert_eq!(domain.cells, [(0, 4), (5, 9), (20, 24), (25, 29)]);
        assert_eq!(domain.cover(&cut), [(1, 2)]);
        assert_eq!(domain.cell(15), None);
        assert!((domain.weight(1, 2) - 10.0).abs() < 0.5);
    }
}

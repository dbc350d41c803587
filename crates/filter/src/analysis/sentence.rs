//! Sets of packets and rules in the words of pf.conf.

use super::sets::{ValueSet, address, network_range};
use super::space::{Field, normalized_flags};
use super::vocabulary::Vocabulary;
use crate::names;
use crate::rule::{
    Action, Address, Comparison, DynamicInterface, Family, InterfacePart, Network, On, Peer,
    PortMatch, Rule,
};

/// Most elements of a list that are written out.
const LIST_MAX: usize = 12;

/// Name of a field.
pub fn field_name(field: Field) -> &'static str {
    match field {
        Field::SOURCE => "source",
        Field::SOURCE_PORT => "source port",
        Field::DESTINATION => "destination",
        Field::DESTINATION_PORT => "destination port",
        _ => "field",
    }
}

/// Letters of TCP flags.
pub fn flag_letters(flags: u8) -> String {
    let letters = names::FLAG_LETTERS.chars().enumerate();
    letters
        .filter(|(bit, _)| flags & (1 << bit) != 0)
        .map(|(_, letter)| letter)
        .collect()
}

/// A set of values of a field.
pub fn set_words(field: Field, set: &ValueSet, family: Family, vocabulary: &Vocabulary) -> String {
    match field {
        Field::SOURCE | Field::DESTINATION => addresses(set, family),
        Field::SOURCE_PORT | Field::DESTINATION_PORT => {
            list(set, &|value| value.to_string(), ":", None)
        }
        Field::PROTOCOL => list(set, &protocol_word, ":", Some(255)),
        Field::INTERFACE | Field::RECEIVED_ON => interfaces(set, vocabulary),
        Field::FLAGS => flags(set),
        Field::ICMP_TYPE => {
            let name = |value: u128| {
                let name = names::icmp_type_name(value as u8, family);
                name.map_or_else(|| value.to_string(), str::to_owned)
            };
            list(set, &name, ":", Some(255))
        }
        Field::TOS => list(set, &|value| format!("{value:#04x}"), ":", None),
        Field::TAG => tags(set, vocabulary),
        Field::RDOMAIN => {
            let name = |value: u128| {
                let known = vocabulary.rdomains.get(value as usize);
                known.map_or_else(|| "any other".to_owned(), u32::to_string)
            };
            list(set, &name, ":", Some(vocabulary.rdomains.len() as u128))
        }
        _ => list(
            set,
            &|value| {
                if value == u128::from(u32::MAX) {
                    "unknown".to_owned()
                } else {
                    value.to_string()
                }
            },
            ":",
            None,
        ),
    }
}

fn protocol_word(value: u128) -> String {
    names::protocol_name(value as u8).map_or_else(|| value.to_string(), str::to_owned)
}

/// A list in braces, or without them if it has one element. With `max`, named values are listed
/// one by one, and a set that leaves out few values of those up to `max` by its complement.
fn list(set: &ValueSet, name: &dyn Fn(u128) -> String, between: &str, max: Option<u128>) -> String {
    if let Some(max) = max {
        let rest = set.complement(max);
        let count = |set: &ValueSet| {
            set.ranges()
                .iter()
                .map(|&(low, high)| high - low + 1)
                .sum::<u128>()
        };
        if count(&rest) < count(set) && !rest.is_empty() {
            return format!("! {}", list(&rest, name, between, None));
        }
    }
    let mut words: Vec<String> = Vec::new();
    for &(low, high) in set.ranges() {
        if low == high {
            words.push(name(low));
        } else if high - low < 3 && max.is_some() {
            words.extend((low..=high).map(name));
        } else {
            words.push(format!("{}{between}{}", name(low), name(high)));
        }
    }
    braces(words)
}

/// A list in braces, its end counted where it is long.
fn braces(mut words: Vec<String>) -> String {
    if words.len() == 1 {
        return words.remove(0);
    }
    let rest = words.len().saturating_sub(LIST_MAX);
    words.truncate(LIST_MAX);
    let rest = if rest > 0 {
        format!(" … and {rest} more")
    } else {
        String::new()
    };
    format!("{{ {}{rest} }}", words.join(", "))
}

/// Addresses as networks and ranges, or their complement where that is shorter.
fn addresses(set: &ValueSet, family: Family) -> String {
    let rest = set.complement(super::space::address_max(family));
    let (own, other) = (blocks(set, family), blocks(&rest, family));
    if rest.is_empty() {
        return "any".to_owned();
    }
    if other.len() == 1 && own.len() > 1 {
        return format!("! {}", other[0]);
    }
    braces(own)
}

/// Networks, and ranges where a range would be more than two networks.
fn blocks(set: &ValueSet, family: Family) -> Vec<String> {
    set.ranges()
        .iter()
        .flat_map(|&(low, high)| range_words(low, high, family))
        .collect()
}

fn range_words(low: u128, high: u128, family: Family) -> Vec<String> {
    let networks = networks(low, high, family, 2);
    if networks.is_empty() {
        return vec![format!(
            "{} - {}",
            address(low, family),
            address(high, family)
        )];
    }
    networks.into_iter().map(network_words).collect()
}

/// The networks that make up a range; none if they are more than `most`.
pub fn networks(low: u128, high: u128, family: Family, most: usize) -> Vec<Network> {
    let width = family.bits();
    let mut networks = Vec::new();
    let mut next = Some(low);
    while let Some(start) = next.filter(|&start| start <= high) {
        if networks.len() == most {
            return Vec::new();
        }
        let aligned = start.trailing_zeros().min(u32::from(width)) as u8;
        let fits = |bits: u8| {
            let network = Network::new(address(start, family), bits);
            network_range(network).0 == start && network_range(network).1 <= high
        };
        let bits = (width - aligned..=width)
            .find(|&bits| fits(bits))
            .unwrap_or(width);
        let network = Network::new(address(start, family), bits);
        networks.push(network);
        next = network_range(network).1.checked_add(1);
    }
    networks
}

/// A network.
pub fn network_words(network: Network) -> String {
    if network.bits == Family::of(network.address).bits() {
        network.address.to_string()
    } else {
        format!("{}/{}", network.address, network.bits)
    }
}

fn interfaces(set: &ValueSet, vocabulary: &Vocabulary) -> String {
    use super::vocabulary::InterfaceValue;
    let name = |value: u128| match vocabulary.interfaces.get(value as usize) {
        Some(InterfaceValue::Named(name)) => name.clone(),
        Some(InterfaceValue::OtherOf(group)) => format!("{group}*"),
        Some(InterfaceValue::Other) => "any other".to_owned(),
        None => "none".to_owned(),
    };
    let all = vocabulary.interfaces.len() as u128;
    let each = |set: &ValueSet| -> Vec<String> {
        set.ranges()
            .iter()
            .flat_map(|&(low, high)| low..=high)
            .map(name)
            .collect()
    };
    let (own, other) = (each(set), each(&set.complement(all - 1)));
    if other.len() < own.len() && !other.is_empty() {
        return format!("! {}", braces(other));
    }
    braces(own)
}

fn tags(set: &ValueSet, vocabulary: &Vocabulary) -> String {
    let last = vocabulary.tags.len() as u128 - 1;
    let each = |set: &ValueSet| -> Vec<String> {
        let all = set.ranges().iter().flat_map(|&(low, high)| low..=high);
        all.filter_map(|value| vocabulary.tags.get(value as usize))
            .map(ToString::to_string)
            .collect()
    };
    if set.contains(0) {
        format!("! {}", braces(each(&set.complement(last))))
    } else {
        braces(each(set))
    }
}

/// TCP flags as `set/mask`, where a set has that form among the flags that reach the rules.
fn flags(set: &ValueSet) -> String {
    let survivors = || (0..=u8::MAX).filter(|&flags| normalized_flags(flags) == Some(flags));
    let members: Vec<u8> = survivors()
        .filter(|&flags| set.contains(u128::from(flags)))
        .collect();
    let always = members.iter().fold(u8::MAX, |all, flags| all & flags);
    let never = !members.iter().fold(0, |all, flags| all | flags);
    // The smallest mask of few bits that tells the members from the rest.
    let mut masks: Vec<u8> = (0..=u8::MAX)
        .filter(|mask| mask & !(always | never) == 0)
        .collect();
    masks.sort_by_key(|mask| (mask.count_ones(), *mask));
    for mask in masks {
        let wanted = always & mask;
        if survivors().all(|flags| (flags & mask == wanted) == set.contains(u128::from(flags))) {
            return format!("{}/{}", flag_letters(wanted), flag_letters(mask));
        }
    }
    braces(members.into_iter().map(flag_letters).collect())
}

/// An address of a rule.
pub fn address_words(address: &Address) -> String {
    match address {
        Address::Any => "any".to_owned(),
        Address::Network(network) => network_words(*network),
        Address::Range(first, last) => format!("{first} - {last}"),
        Address::Interface(dynamic) => dynamic_words(dynamic),
        Address::Unresolved(name) => name.to_string(),
        Address::Table(name) => format!("<{name}>"),
        Address::NoRoute => "no-route".to_owned(),
        Address::UrpfFailed => "urpf-failed".to_owned(),
        Address::RouteLabel(label) => format!("route \"{label}\""),
    }
}

fn dynamic_words(dynamic: &DynamicInterface) -> String {
    let part = match dynamic.part {
        None => "",
        Some(InterfacePart::Network) => ":network",
        Some(InterfacePart::Broadcast) => ":broadcast",
        Some(InterfacePart::Peer) => ":peer",
    };
    let alias = if dynamic.no_alias { ":0" } else { "" };
    let bits = if matches!(dynamic.bits, 32 | 128) {
        String::new()
    } else {
        format!("/{}", dynamic.bits)
    };
    format!("({}{part}{alias}){bits}", dynamic.name)
}

/// A rule in few words, as a name for it.
pub fn rule_words(rule: &Rule) -> String {
    let mut words = vec![
        match rule.action {
            _ if rule.anchor.is_some() => "anchor",
            Action::Pass => "pass",
            Action::Match => "match",
            Action::Block(_) => "block",
        }
        .to_owned(),
    ];
    if let Some(crate::rule::Anchor::Inline { name, .. } | crate::rule::Anchor::Call(name)) =
        rule.anchor.as_deref()
    {
        words.push(format!("\"{name}\""));
    }
    words.extend(rule.direction.map(|direction| direction.name().to_owned()));
    if rule.quick {
        words.push("quick".to_owned());
    }
    let not = |negated: bool| if negated { "! " } else { "" };
    match &rule.on {
        Some(On::Interface(test)) => words.push(format!("on {}{}", not(test.negated), test.name)),
        Some(On::Rdomain { id, negated }) => {
            words.push(format!("on {}rdomain {id}", not(*negated)));
        }
        None => {}
    }
    words.extend(rule.family.map(|family| family.name().to_owned()));
    words.extend(
        rule.protocol
            .map(|protocol| format!("proto {}", protocol_word(u128::from(protocol)))),
    );
    if rule.source == Peer::ANY && rule.destination == Peer::ANY {
        words.push("all".to_owned());
    } else {
        words.push(format!("from {}", peer_words(&rule.source)));
        words.push(format!("to {}", peer_words(&rule.destination)));
    }
    words.extend(rule.flags.filter(|flags| flags.mask != 0).map(|flags| {
        format!(
            "flags {}/{}",
            flag_letters(flags.set),
            flag_letters(flags.mask)
        )
    }));
    words.extend(
        rule.tagged
            .as_ref()
            .map(|tagged| format!("{}tagged {}", not(tagged.negated), tagged.name)),
    );
    words.join(" ")
}

fn peer_words(peer: &Peer) -> String {
    let not = if peer.negated { "! " } else { "" };
    let port = peer.port.map(port_words).unwrap_or_default();
    format!("{not}{}{port}", address_words(&peer.address))
}

fn port_words(port: PortMatch) -> String {
    let (low, high) = (port.low, port.high);
    match port.comparison {
        Comparison::Equal => format!(" port {low}"),
        Comparison::NotEqual => format!(" port != {low}"),
        Comparison::Less => format!(" port < {low}"),
        Comparison::LessOrEqual => format!(" port <= {low}"),
        Comparison::Greater => format!(" port > {low}"),
        Comparison::GreaterOrEqual => format!(" port >= {low}"),
        Comparison::Range => format!(" port {low}:{high}"),
        Comparison::Inside => format!(" port {low} >< {high}"),
        Comparison::Outside => format!(" port {low} <> {high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_networks() {
        let words =
            |ranges: &[(u128, u128)]| addresses(&ValueSet::of(ranges.to_vec()), Family::Inet);
        let ten = 10 << 24;
        assert_eq!(words(&[(ten, ten + (1 << 24) - 1)]), "10.0.0.0/8");
        assert_eq!(words(&[(ten + 1, ten + 6)]), "10.0.0.1 - 10.0.0.6");
        assert_eq!(
            words(&[(0, ten - 1), (ten + (1 << 24), u128::from(u32::MAX))]),
            "! 10.0.0.0/8"
        );
        assert_eq!(words(&[(0, u128::from(u32::MAX))]), "any");
    }

    #[test]
    fn flags_read_as_set_and_mask() {
        let survivors = (0..=u8::MAX).filter(|&flags| normalized_flags(flags) == Some(flags));
        let syn = survivors
            .filter(|flags| flags & 0x12 == 0x02)
            .map(|flags| (u128::from(flags), u128::from(flags)));
        assert_eq!(flags(&ValueSet::of(syn.collect())), "S/SA");
    }
}

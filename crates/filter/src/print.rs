//! pfctl's canonical text (`pfctl -o none -nv`), byte for byte.

mod freebsd;
mod queue;
mod rule;

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use crate::rule::{
    Address, Anchor, DynamicInterface, Family, InterfacePart, Preamble, Rule, Ruleset, Table,
    TablePart,
};

use crate::parse::Dialect;

pub use rule::{rule, rule_in};

/// The text of a rule set: macros, options and tables, queues, rules; then those of
/// `load anchor`. In FreeBSD's dialect scrub rules and translations stand before the filter rules.
#[must_use]
pub fn canonical(ruleset: &Ruleset) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_ruleset(&mut text, ruleset);
    text
}

fn write_ruleset(f: &mut String, ruleset: &Ruleset) -> fmt::Result {
    write_preamble(f, &ruleset.preamble, &ruleset.tables)?;
    for queue in &ruleset.queues {
        queue::write(f, queue)?;
    }
    let dialect = ruleset.dialect;
    for rules in [&ruleset.scrubs, &ruleset.translations, &ruleset.rules] {
        write_rules(f, rules, dialect, 0)?;
    }
    for anchor in &ruleset.loaded {
        write_preamble(f, &anchor.preamble, &ruleset.tables)?;
        for rules in [&anchor.scrubs, &anchor.translations, &anchor.rules] {
            write_rules(f, rules, dialect, 0)?;
        }
    }
    Ok(())
}

fn write_preamble(f: &mut String, preamble: &[Preamble], tables: &[Table]) -> fmt::Result {
    for part in preamble {
        match part {
            Preamble::Macro { name, value } => writeln!(f, "{name} = \"{value}\"")?,
            Preamble::Option(text) => writeln!(f, "{text}")?,
            Preamble::Table(index) => {
                if let Some(table) = tables.get(*index) {
                    write_table(f, table)?;
                }
            }
        }
    }
    Ok(())
}

fn write_rules(f: &mut String, rules: &[Rule], dialect: Dialect, depth: usize) -> fmt::Result {
    for rule in rules {
        write!(f, "{:1$}", "", depth * 2)?;
        match dialect {
            Dialect::OpenBsd => rule::write(f, rule)?,
            Dialect::FreeBsd => freebsd::write(f, rule)?,
        }
        match rule.anchor.as_deref() {
            Some(Anchor::Inline { rules, .. }) if !rules.is_empty() => {
                f.write_str(" {\n")?;
                write_rules(f, rules, dialect, depth + 1)?;
                writeln!(f, "{:1$}}}", "", depth * 2)?;
            }
            _ => f.write_char('\n')?,
        }
    }
    Ok(())
}

/// A table's definition, in one line without the newline.
#[must_use]
pub fn table(table: &Table) -> String {
    let mut text = String::new();
    let _ = write_table(&mut text, table);
    text.truncate(text.trim_end_matches('\n').len());
    text
}

fn write_table(f: &mut String, table: &Table) -> fmt::Result {
    write!(f, "table <{}>", table.name)?;
    for (given, word) in [
        (table.constant, "const"),
        (table.persist, "persist"),
        (table.counters, "counters"),
    ] {
        if given {
            write!(f, " {word}")?;
        }
    }
    let mut entries = table.entries.iter();
    let mut open = false;
    // A list that gave no entry is printed only when there is nothing else.
    let shown = |part: &&TablePart| !matches!(part, TablePart::List(0));
    for part in table.parts.iter().filter(shown) {
        match part {
            TablePart::File(path, count) => {
                f.write_str(if open { " }" } else { "" })?;
                open = false;
                write!(f, " file \"{path}\"")?;
                entries.by_ref().take(*count).for_each(drop);
            }
            TablePart::List(count) => {
                f.write_str(if open { "" } else { " {" })?;
                open = true;
                for entry in entries.by_ref().take(*count) {
                    f.write_str(if entry.negated { " !" } else { " " })?;
                    write_network(f, entry.network.address, entry.network.bits)?;
                }
            }
        }
    }
    f.write_str(if open { " }" } else { "" })?;
    if !table.parts.is_empty() && !table.parts.iter().any(|part| shown(&part)) {
        f.write_str(" { }")?;
    }
    f.write_char('\n')
}

/// A network: `192.0.2.0/24`, without the length where it is full; `any` for all of a family.
#[must_use]
pub fn network(address: IpAddr, bits: u8) -> String {
    let mut text = String::new();
    let _ = write_network(&mut text, address, bits);
    text
}

fn write_network(f: &mut String, address: IpAddr, bits: u8) -> fmt::Result {
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

fn write_address(f: &mut String, address: &Address, family: Option<Family>) -> fmt::Result {
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

//! pfctl's canonical text (`pfctl -o none -nv`), byte for byte.

mod address;
mod freebsd;
mod queue;
mod rule;

use std::fmt::{self, Write as _};

use crate::rule::{Anchor, Dialect, Preamble, Rule, Ruleset, Table, TablePart};

use address::write_network;
pub use address::{address, network};

/// The text of a rule set: macros, options and tables, queues, rules; then those of
/// `load anchor`. In FreeBSD's dialect scrub rules and translations stand before the filter rules.
#[must_use]
pub fn canonical(ruleset: &Ruleset) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_ruleset(&mut text, ruleset);
    text
}

/// A rule's text in OpenBSD's form, in one line, without the rules of its anchor and without the newline.
#[must_use]
pub fn rule(rule: &Rule) -> String {
    let mut text = String::new();
    let _ = rule::write(&mut text, rule);
    text
}

/// As [`rule`], in the form of a dialect.
pub fn rule_in(rule: &Rule, dialect: Dialect) -> String {
    let mut text = String::new();
    let _ = match dialect {
        Dialect::OpenBsd => rule::write(&mut text, rule),
        Dialect::FreeBsd => freebsd::write(&mut text, rule),
    };
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

//! Scripts of table commands (`pfr*.in`), and lookups (`pf_table`).
//!
//! The scripts drive a kernel. Answers about addresses are compared: how many are added, deleted
//! and replaced, which match, which are there, which a definition loads. Those about the kernel
//! alone are not: lists of tables, hidden tables, counters of memory.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use pf_filter::eval::Engine;
use pf_filter::host::Host;
use pf_filter::parse::Dialect;
use pf_filter::rule::{Network, TableEntry, TablePart};
use pf_filter::source::Memory;

use super::{Failed, input, read_openbsd, wanted, without_errors};
use crate::support;

type Entries = BTreeMap<(IpAddr, u8), TableEntry>;

/// Runs a script and compares its output.
pub fn script(directory: &Path, name: &str) -> Result<(), Failed> {
    let script = String::from_utf8(input(directory, name)?)?;
    let wanted = wanted(directory, name)?;
    let mut table = Some(Entries::new());
    let mut sections = Sections {
        text: &wanted,
        from: 0,
    };
    for line in script.lines() {
        let Some((result, rest)) = line
            .split_once(' ')
            .filter(|(word, _)| matches!(*word, "pass" | "fail"))
        else {
            continue;
        };
        let (command, arguments) = rest.split_once(' ').unwrap_or((rest, ""));
        let wanted = sections.of(&format!("# {result} {command} {arguments}"));
        let got = run(directory, &mut table, command, arguments)?;
        if let Some(got) = got
            && got != wanted
        {
            return Err(format!("{line}:\n  wanted {wanted:?}\n  got    {got:?}").into());
        }
    }
    Ok(())
}

/// A script's output, by the headings of its commands.
struct Sections<'t> {
    text: &'t str,
    from: usize,
}

impl Sections<'_> {
    /// The lines below the next heading of this text, sorted.
    fn of(&mut self, heading: &str) -> Vec<String> {
        let rest = &self.text[self.from..];
        let Some(at) = rest.find(&format!("{heading}\n")) else {
            return Vec::new();
        };
        let body = &rest[at + heading.len() + 1..];
        self.from += at + heading.len() + 1;
        let lines = body.lines().take_while(|line| !line.starts_with('#'));
        sorted(
            lines
                .filter(|line| !line.starts_with("\tWeight"))
                .map(|line| line.trim().to_owned()),
        )
    }
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

fn run(
    directory: &Path,
    table: &mut Option<Entries>,
    command: &str,
    arguments: &str,
) -> Result<Option<Vec<String>>, Failed> {
    let count =
        |number: usize, of: usize, what: &str| vec![format!("{number}/{of} addresses {what}.")];
    match command {
        "add" | "delete" | "replace" | "test" => {}
        "show" => {
            let missing = || vec!["pfctl: Table does not exist.".into()];
            return Ok(Some(table.as_ref().map_or_else(missing, shown)));
        }
        "flush" => {
            let number = table.take().map_or(0, |entries| entries.len());
            *table = Some(Entries::new());
            return Ok(Some(vec![format!("{number} addresses deleted.")]));
        }
        "load" => {
            let text = arguments.replace("DIR/", "");
            let parsed = read_openbsd(directory, text.as_bytes(), &[]);
            without_errors(&parsed)?;
            for definition in &parsed.ruleset.tables {
                if &*definition.name != "regress" {
                    continue;
                }
                let entries = table.get_or_insert_default();
                if !definition.parts.is_empty() {
                    *entries = definition.entries.iter().map(key).collect();
                }
            }
            return Ok(None);
        }
        "kill" => {
            *table = None;
            return Ok(None);
        }
        _ => return Ok(None),
    }
    let Ok(entries) = entries(arguments) else {
        let names: Vec<_> = arguments.split(' ').collect();
        return Ok(Some(vec![format!("no IP address found for {}", names[0])]));
    };
    let table = table.get_or_insert_default();
    let given: Entries = entries.iter().map(key).collect();
    Ok(Some(match command {
        "add" => {
            let new = given.keys().filter(|key| !table.contains_key(*key)).count();
            table.extend(given.iter().map(|(key, entry)| (*key, *entry)));
            count(new, entries.len(), "added")
        }
        "delete" => {
            let before = table.len();
            table.retain(|key, _| !given.contains_key(key));
            count(before - table.len(), entries.len(), "deleted")
        }
        "replace" => {
            let added = given.keys().filter(|key| !table.contains_key(*key)).count();
            let deleted = table.keys().filter(|key| !given.contains_key(*key)).count();
            *table = given;
            let lines = [(added, "added"), (deleted, "deleted")];
            let lines = lines.iter().filter(|(number, _)| *number > 0);
            let lines = sorted(lines.map(|(number, what)| format!("{number} addresses {what}.")));
            if lines.is_empty() {
                vec!["no changes.".into()]
            } else {
                lines
            }
        }
        _ => {
            let hits = entries
                .iter()
                .filter(|entry| contains(table, entry.network.address))
                .count();
            count(hits, entries.len(), "match")
        }
    }))
}

/// The addresses of a command, read as a table's file is read.
fn entries(arguments: &str) -> Result<Vec<TableEntry>, Failed> {
    let mut files = Memory::default();
    files.add("arguments", arguments);
    let table = "table <regress> file \"arguments\"\n";
    let parsed = support::read(table, Dialect::OpenBsd, &super::host(), &mut files);
    without_errors(&parsed)?;
    Ok(parsed.ruleset.tables[0].entries.clone())
}

fn key(entry: &TableEntry) -> ((IpAddr, u8), TableEntry) {
    ((entry.network.address, entry.network.bits), *entry)
}

fn shown(table: &Entries) -> Vec<String> {
    sorted(table.values().map(|entry| {
        let Network { address, bits } = entry.network;
        let full = if address.is_ipv4() { 32 } else { 128 };
        let bang = if entry.negated { "!" } else { "" };
        if bits == full {
            format!("{bang}{address}")
        } else {
            format!("{bang}{address}/{bits}")
        }
    }))
}

/// The interpreter's lookup.
fn contains(table: &Entries, address: IpAddr) -> bool {
    let entries: Vec<TableEntry> = table.values().copied().collect();
    let definition = pf_filter::rule::Table {
        name: "regress".into(),
        anchor: "".into(),
        constant: true,
        persist: true,
        counters: false,
        parts: vec![TablePart::List(entries.len())],
        entries,
        span: pf_filter::source::Span {
            file: pf_filter::source::FileId(0),
            start: 0,
            end: 0,
        },
    };
    let ruleset = pf_filter::rule::Ruleset {
        tables: vec![definition],
        ..Default::default()
    };
    let host = Host::default();
    Engine::new(&ruleset, &host)
        .table_contains("regress", address)
        .unwrap_or(false)
}

/// Each address of `table.hit` is in the table, and none of `table.miss`.
pub fn lookups(directory: &Path) -> Result<(), Failed> {
    let text = format!(
        "table <t> {{ {} }}\n",
        fs::read_to_string(directory.join("table.in"))?.replace('\n', " ")
    );
    let parsed = read_openbsd(directory, text.as_bytes(), &[]);
    without_errors(&parsed)?;
    let host = Host::default();
    let engine = Engine::new(&parsed.ruleset, &host);
    let mut wrong = Vec::new();
    for (file, wanted) in [("table.hit", true), ("table.miss", false)] {
        for address in fs::read_to_string(directory.join(file))?.split_whitespace() {
            if engine.table_contains("t", address.parse()?) != Some(wanted) {
                wrong.push(format!(
                    "{address}: {} wanted",
                    if wanted { "a hit" } else { "a miss" }
                ));
            }
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

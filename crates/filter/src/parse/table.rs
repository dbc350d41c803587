//! Tables, and names of tables that nothing defines.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::parser::{Parser, Step};
use super::syntax::{Host, HostAddress, Node, TableOptions, TablePart};
use crate::diagnostic::Diagnostic;
use crate::lex::{At, Keyword, Kind, nearest};
use crate::names;
use crate::rule;
use crate::rule::{Address, Anchor, Family, Network, Pool, Preamble, Rule, Table, TableEntry};
use crate::source::Span;

/// Longest word of a table's file.
const WORD_MAX: usize = 256;

impl Parser<'_> {
    pub(super) fn table(&mut self) -> Step<()> {
        let start = self.take().at;
        self.expect_byte(b'<')?;
        let (name, name_at) = self.text("the name of a table")?;
        if name.len() > names::TABLE_NAME_MAX {
            let most = names::TABLE_NAME_MAX;
            return self.fail(
                "too-long",
                &name_at,
                format!("a table's name has at most {most} characters"),
            );
        }
        self.expect_byte(b'>')?;
        let options = self.table_options()?;
        let span = start.usage.to(self.last_at().usage);
        let (mut entries, mut parts) = (Vec::new(), Vec::new());
        for part in options.parts {
            let before = entries.len();
            match part {
                TablePart::List(list) => {
                    entries.extend(list);
                    parts.push(rule::TablePart::List(entries.len() - before));
                }
                TablePart::File(path) => {
                    entries.extend(self.table_file(&path)?);
                    parts.push(rule::TablePart::File(path.value, entries.len() - before));
                }
            }
        }
        let anchor = self.anchor_path();
        self.warn_of_second_definition(&name, &anchor, span);
        let (constant, persist, counters) = (options.constant, options.persist, options.counters);
        let table = Table {
            name,
            anchor,
            constant,
            persist,
            counters,
            entries,
            parts,
            span,
        };
        self.add_table(table);
        Ok(())
    }

    /// Defines a table, and prints it where it stands.
    pub(crate) fn add_table(&mut self, table: Table) {
        self.ruleset
            .preamble
            .push(Preamble::Table(self.ruleset.tables.len()));
        self.ruleset.tables.push(table);
    }

    /// pf keeps the last definition of a table without a word.
    fn warn_of_second_definition(&mut self, name: &Arc<str>, anchor: &Arc<str>, span: Span) {
        let key = (anchor.clone(), name.clone());
        let first = self.tables.insert(key, self.ruleset.tables.len());
        if let Some(first) = first.map(|index| &self.ruleset.tables[index]) {
            let message = format!(
                "table <{name}> is defined again: pf keeps this definition, and forgets the first"
            );
            let warning = Diagnostic::warning("table-defined-twice", span, message);
            let warning = warning.related(first.span, "the first definition");
            self.report(warning);
        }
    }

    fn table_options(&mut self) -> Step<TableOptions> {
        let mut options = TableOptions::default();
        loop {
            match &self.peek().kind {
                Kind::Text { text, .. } => {
                    let text = text.clone();
                    let at = self.take().at;
                    match &*text {
                        "const" => options.constant = true,
                        "persist" => options.persist = true,
                        "counters" => options.counters = true,
                        _ => {
                            let known = ["const", "persist", "counters"].into_iter();
                            return self.unknown_name(
                                "unknown-option",
                                "option of a table",
                                &text,
                                &at,
                                known,
                            );
                        }
                    }
                }
                Kind::Byte(b'{') => options.parts.push(self.table_list()?),
                Kind::Keyword(Keyword::File) => {
                    self.take();
                    let (path, at) = self.text("the path of a file")?;
                    options.parts.push(TablePart::File(Node::new(path, &at)));
                }
                _ => return Ok(options),
            }
        }
    }

    fn table_list(&mut self) -> Step<TablePart> {
        self.take();
        self.newlines();
        if self.accept_byte(b'}') {
            return Ok(TablePart::List(Vec::new()));
        }
        let nodes: Vec<_> = self
            .list_rest(Self::table_hosts)?
            .into_iter()
            .flatten()
            .collect();
        let mut entries = Vec::with_capacity(nodes.len());
        for node in &nodes {
            entries.extend(self.table_entry(&node.value, &node.at, false)?);
        }
        Ok(TablePart::List(entries))
    }

    fn table_entry(&mut self, host: &Host, at: &At, negate: bool) -> Step<Option<TableEntry>> {
        let (what, help) = match &host.address {
            HostAddress::Network(address, bits) => {
                if *bits > Family::of(*address).bits() {
                    return self.fail(
                        "prefix",
                        at,
                        format!("a prefix of {bits} bits is too long for an IPv4 address"),
                    );
                }
                let network = Network::new(*address, *bits);
                let negated = host.negated != negate;
                return Ok(Some(TableEntry {
                    network,
                    negated,
                    weight: host.weight,
                }));
            }
            HostAddress::Unresolved(_) => return Ok(None),
            HostAddress::Range(..) => ("a range of addresses", Some("write its networks")),
            HostAddress::Dynamic(_) => (
                "an interface in parentheses",
                Some("write it without parentheses for its addresses of now"),
            ),
            HostAddress::Table(_) => ("another table", None),
            HostAddress::NoRoute => ("`no-route`", None),
            HostAddress::UrpfFailed => ("`urpf-failed`", None),
            HostAddress::RouteLabel(_) => ("a route label", None),
        };
        match help {
            Some(help) => self.fail_with(
                "table-entry",
                at,
                format!("a table cannot hold {what}"),
                help,
            ),
            None => self.fail("table-entry", at, format!("a table cannot hold {what}")),
        }
    }

    /// Reads a table's file: addresses with blanks between them, comments from `#`.
    fn table_file(&mut self, path: &Node<Arc<str>>) -> Step<Vec<TableEntry>> {
        let bytes = match self.read(&path.value) {
            Ok(bytes) => bytes,
            Err(error) => {
                let message = format!("cannot read the table's file \"{}\": {error}", path.value);
                return self.fail("unreadable", &path.at.clone(), message);
            }
        };
        let Some((file, text)) = self.add_file(&path.value, &bytes, Some(path.at.usage)) else {
            return Err(super::parser::Failed);
        };
        let mut entries: Vec<TableEntry> = Vec::new();
        let mut expect_weight = false;
        let mut last = 0;
        for (start, word) in words_of_file(&text) {
            let span = Span {
                file,
                start: start as u32,
                end: (start + word.len()) as u32,
            };
            let at = At::plain(span);
            if word.len() > WORD_MAX {
                return self.fail(
                    "too-long",
                    &at,
                    format!("a word of a table's file has at most {WORD_MAX} bytes"),
                );
            }
            if expect_weight {
                match word.parse::<u16>() {
                    Ok(weight) if weight > 0 => entries[last..]
                        .iter_mut()
                        .for_each(|entry| entry.weight = weight),
                    _ => return self.fail("range", &at, "a weight is 1 to 65535"),
                }
                expect_weight = false;
            } else if word == "weight" && !entries.is_empty() {
                expect_weight = true;
            } else {
                let name = word.trim_start_matches('!');
                let negate = (word.len() - name.len()) % 2 == 1;
                last = entries.len();
                for node in self.resolve_text(name, None, &at)? {
                    entries.extend(self.table_entry(&node.value, &node.at, negate)?);
                }
            }
        }
        if expect_weight {
            let end = text.len() as u32;
            let at = At::plain(Span {
                file,
                start: end,
                end,
            });
            return self.fail("syntax", &at, "a number is missing behind `weight`");
        }
        Ok(entries)
    }

    /// Warns of tables that rules name and nothing defines.
    pub(super) fn check_tables(&mut self) {
        let mut defined: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        for table in &self.ruleset.tables {
            defined
                .entry(table.anchor.clone())
                .or_default()
                .insert(table.name.clone());
        }
        let mut missing = Vec::new();
        let own = &self.ruleset;
        for rules in [&own.scrubs, &own.translations, &own.rules] {
            find_undefined(rules, "", &defined, &mut missing);
        }
        for anchor in &own.loaded {
            for rules in [&anchor.scrubs, &anchor.translations, &anchor.rules] {
                find_undefined(rules, &anchor.path, &defined, &mut missing);
            }
        }
        let mut names: Vec<&str> = (self.ruleset.tables.iter())
            .map(|table| &*table.name)
            .collect();
        names.sort_unstable();
        names.dedup();
        let mut seen = HashSet::new();
        missing.retain(|found| seen.insert(found.clone()));
        missing.truncate(super::config::ERRORS_MAX + 1);
        let warnings: Vec<_> = missing
            .into_iter()
            .map(|(name, span)| {
                let message = format!(
                    "table <{name}> is not defined: pf creates an empty one, in which no address is"
                );
                let warning = Diagnostic::warning("undefined-table", span, message);
                match nearest(&name, names.iter().copied()) {
                    Some(other) => warning.help(format!("did you mean <{other}>?")),
                    None => warning.help(format!(
                        "define it: `table <{name}> persist`, or with its addresses"
                    )),
                }
            })
            .collect();
        for warning in warnings {
            self.report(warning);
        }
    }
}

type Defined = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// Tables of rules that are defined neither in the rules' anchor nor in the main rule set.
fn find_undefined(
    rules: &[Rule],
    path: &str,
    defined: &Defined,
    missing: &mut Vec<(Arc<str>, Span)>,
) {
    let has = |anchor: &str, name: &Arc<str>| {
        defined
            .get(anchor)
            .is_some_and(|names| names.contains(name))
    };
    for rule in rules {
        for name in tables_of(rule) {
            if !has(path, name) && !has("", name) {
                missing.push((name.clone(), rule.origin.span));
            }
        }
        if let Some(Anchor::Inline { name, rules }) = rule.anchor.as_deref() {
            let inner = if path.is_empty() {
                name.to_string()
            } else {
                format!("{path}/{name}")
            };
            find_undefined(rules, &inner, defined, missing);
        }
    }
}

/// The tables that a rule names.
pub(crate) fn tables_of(rule: &Rule) -> impl Iterator<Item = &Arc<str>> {
    let pools = [
        rule.nat.as_deref(),
        rule.rdr.as_deref(),
        rule.route.as_deref().map(|route| &route.pool),
    ];
    let addresses = [&rule.source.address, &rule.destination.address];
    let addresses = addresses
        .into_iter()
        .chain(pools.into_iter().flatten().flat_map(Pool::addresses));
    let overload = rule
        .state_options
        .as_deref()
        .and_then(|options| options.overload.as_ref());
    addresses
        .filter_map(|address| match address {
            Address::Table(name) => Some(name),
            _ => None,
        })
        .chain(overload.map(|overload| &overload.table))
}

/// Words and their offsets; from `#` to the end of the line is a comment, at the start of a word.
fn words_of_file(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    text.split_inclusive('\n').flat_map(move |line| {
        let start = offset;
        offset += line.len();
        let code = line.char_indices().find(|&(at, c)| {
            c == '#'
                && line[..at]
                    .chars()
                    .next_back()
                    .is_none_or(char::is_whitespace)
        });
        let code = code.map_or(line, |(at, _)| &line[..at]);
        code.split_whitespace().map(move |word| {
            (
                start + (word.as_ptr() as usize - line.as_ptr() as usize),
                word,
            )
        })
    })
}

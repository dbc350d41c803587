//! Tables without addresses.

use super::rules::each_rule;
use crate::diagnostic::Diagnostic;
use crate::parse::tables_of;
use crate::rule::{Address, Rule, Ruleset, Table};

/// A table without addresses that nothing fills: neither `persist`, nor a file, nor `overload`.
pub(super) fn empty(ruleset: &Ruleset, found: &mut Vec<Diagnostic>) {
    let mut filled = Vec::new();
    each_rule(&ruleset.rules, &mut |rule| {
        let options = rule.state_options.as_deref();
        filled.extend(
            options
                .and_then(|options| options.overload.as_ref())
                .map(|overload| &overload.table),
        );
    });
    let empty: Vec<&Table> = ruleset
        .tables
        .iter()
        .filter(|table| table.entries.is_empty() && (table.constant || !table.persist))
        .filter(|table| !filled.contains(&&table.name))
        .collect();
    each_rule(&ruleset.rules, &mut |rule| {
        for table in &empty {
            if tables_of(rule).any(|name| *name == table.name) {
                found.push(finding(rule, table));
            }
        }
    });
}

fn finding(rule: &Rule, table: &Table) -> Diagnostic {
    let negated = [&rule.source, &rule.destination].into_iter().any(|peer| {
        peer.negated && matches!(&peer.address, Address::Table(name) if *name == table.name)
    });
    let message = if negated {
        format!(
            "table <{}> has no addresses: `!<{}>` is every address",
            table.name, table.name
        )
    } else {
        format!(
            "table <{}> has no addresses: no packet matches this rule",
            table.name
        )
    };
    Diagnostic::warning("empty-table", rule.origin.span, message)
        .related(table.span, "the table")
        .help("give it addresses or a file, or `persist` if something fills it later")
}

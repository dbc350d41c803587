//! Findings about rules that pf accepts and that surprise: each from a trap that people fall
//! into.
//!
//! | Code | Finding |
//! |---|---|
//! | `empty-table` | a rule names a table without addresses that nothing fills |
//! | `no-default-block` | packets that no rule matches pass |
//! | `neighbour-discovery` | IPv6 passes, and neighbour discovery does not |
//! | `never-matches` | a rule that no packet matches |
//! | `shadowed` | a rule that never decides, with the rules that hide it |
//! | `nested-quick-anchor` | `quick` on an anchor does not count for matches of anchors inside it |
//! | `match-quick` | `quick` on a match rule ends the evaluation |
//! | `management-port` | nothing passes connections to the management port |
//!
//! The parser finds `negated-list`, `undefined-table` and `table-defined-twice`.

mod anchors;
mod decide;
mod never;
mod reach;
mod rules;
mod tables;

use crate::analysis::Limits;
use crate::diagnostic::Diagnostic;
use crate::host::Host;
use crate::rule::{Action, Direction, On, Rule, Ruleset};
use rules::each_rule;

/// Settings of [`lint`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// A TCP port that must stay reachable; `None` for none.
    pub management_port: Option<u16>,
    /// Most rules that are analysed for `shadowed`, `neighbour-discovery` and `management-port`.
    pub analysed_rules: usize,
    /// Bounds of that analysis.
    pub limits: Limits,
}

impl Default for Settings {
    /// SSH.
    fn default() -> Self {
        let limits = Limits {
            nodes: 200_000,
            work: 200_000_000,
            ..Limits::default()
        };
        Self {
            management_port: Some(22),
            analysed_rules: 2000,
            limits,
        }
    }
}

/// Findings about a rule set, in the order of its rules.
pub fn lint(ruleset: &Ruleset, host: &Host, settings: &Settings) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    tables::empty(ruleset, &mut found);
    anchors::nested_quick(&ruleset.rules, &mut found);
    no_default_block(&ruleset.rules, &mut found);
    each_rule(&ruleset.rules, &mut |rule| {
        never::matches(rule, &mut found);
        match_quick(rule, &mut found);
    });
    analyse(ruleset, host, settings, &mut found);
    found.sort_by_key(|finding| (finding.primary.span.file, finding.primary.span.start));
    found.dedup();
    found
}

/// Findings that need an analysis of all packets. Where there are too many rules for it, a notice
/// says so.
fn analyse(ruleset: &Ruleset, host: &Host, settings: &Settings, found: &mut Vec<Diagnostic>) {
    let Some(first) = ruleset.rules.first() else {
        return;
    };
    let mut number = 0;
    each_rule(&ruleset.rules, &mut |_| number += 1);
    let done = number <= settings.analysed_rules
        && decide::undecided(ruleset, host, settings.limits, found).is_some()
        && reach::neighbour_discovery(ruleset, host, found).is_some()
        && settings
            .management_port
            .is_none_or(|port| reach::port(ruleset, host, port, found).is_some());
    if !done {
        let message =
            format!("{number} rules are too many or too complex to look for hidden ones here");
        let notice = Diagnostic::notice("not-analysed", first.origin.span, message);
        found.push(notice.help("`weir filter cover` takes its time for it"));
    }
}

/// pf passes packets that no rule matches.
fn no_default_block(rules: &[Rule], found: &mut Vec<Diagnostic>) {
    let decides = |rule: &&Rule| rule.anchor.is_none() && rule.action != Action::Match;
    let Some(first) = rules.iter().find(decides) else {
        return;
    };
    if rules.iter().filter(decides).any(blocks_all_that_comes_in) {
        return;
    }
    let message = "packets that no rule matches pass: no rule blocks incoming packets by default";
    let warning = Diagnostic::warning("no-default-block", first.origin.span, message);
    found.push(
        warning.help("write `block all` above the other rules, and `pass` the wanted packets"),
    );
}

fn blocks_all_that_comes_in(rule: &Rule) -> bool {
    let plain = Rule::new(rule.action, rule.origin.clone());
    let bare = Rule {
        direction: None,
        log: None,
        quick: false,
        label: None,
        tag: None,
        on: None,
        ..rule.clone()
    };
    let everywhere = match &rule.on {
        None => true,
        Some(On::Interface(on)) => &*on.name == "any" && !on.negated,
        Some(On::Rdomain { .. }) => false,
    };
    matches!(rule.action, Action::Block(_))
        && rule.direction != Some(Direction::Out)
        && everywhere
        && bare == plain
}

fn match_quick(rule: &Rule, found: &mut Vec<Diagnostic>) {
    if rule.action == Action::Match && rule.quick && rule.anchor.is_none() {
        let message =
            "`quick` on a match rule ends the evaluation: the verdict of the rules above stands";
        let warning = Diagnostic::warning("match-quick", rule.origin.span, message);
        found.push(warning.help("remove `quick`, or write `pass quick` or `block quick`"));
    }
}

//! Rules that never decide, by exact analysis.

use std::collections::BTreeMap;

use crate::analysis::{Coverage, Limits, Never, RuleCover, RulePath, cover_within};
use crate::diagnostic::Diagnostic;
use crate::host::Host;
use crate::rule::Ruleset;
use crate::source::Span;

/// Rules that others hide, and rules that no packet matches. A statement with lists is one
/// finding. `None` where the rules are too complex within the limits.
pub(super) fn undecided(
    ruleset: &Ruleset,
    host: &Host,
    limits: Limits,
    found: &mut Vec<Diagnostic>,
) -> Option<()> {
    let cover = cover_within(ruleset, host, limits).ok()?;
    let origins: BTreeMap<&RulePath, Span> = cover
        .rules
        .iter()
        .map(|rule| (&rule.path, rule.origin.span))
        .collect();
    let mut statements: BTreeMap<Span, Vec<&RuleCover>> = BTreeMap::new();
    for rule in &cover.rules {
        statements.entry(rule.origin.span).or_default().push(rule);
    }
    for (span, rules) in statements {
        found.extend(statement(span, &rules, &origins));
    }
    Some(())
}

/// The finding about a statement, if none of its rules, or not all, are good for something.
fn statement(
    span: Span,
    rules: &[&RuleCover],
    origins: &BTreeMap<&RulePath, Span>,
) -> Option<Diagnostic> {
    let idle: Vec<&Coverage> = rules
        .iter()
        .map(|rule| &rule.coverage)
        .filter(|coverage| !matches!(coverage, Coverage::Decides(_) | Coverage::EffectOnly(_)))
        .collect();
    let never = idle.iter().find_map(|coverage| match coverage {
        Coverage::NeverMatches(never) => Some(never),
        _ => None,
    });
    match (idle.len(), never) {
        (0, _) => None,
        (number, Some(never)) if number == rules.len() => never_matches(span, never),
        (number, _) if number == rules.len() => Some(shadowed(span, &idle, origins)),
        (number, _) => {
            let message = format!(
                "{number} of the {} rules that this expands to never decide",
                rules.len()
            );
            Some(hiders(
                Diagnostic::notice("shadowed", span, message),
                span,
                &idle,
                origins,
            ))
        }
    }
}

fn never_matches(span: Span, never: &Never) -> Option<Diagnostic> {
    // Those have findings of their own, with more to say.
    if matches!(
        never,
        Never::EmptyTable(_) | Never::Flags | Never::Protocol(_) | Never::Port
    ) {
        return None;
    }
    Some(Diagnostic::warning(
        "never-matches",
        span,
        format!("no packet matches this rule: {never}"),
    ))
}

fn shadowed(span: Span, idle: &[&Coverage], origins: &BTreeMap<&RulePath, Span>) -> Diagnostic {
    let skip = idle.iter().any(
        |coverage| matches!(coverage, Coverage::Shadowed { skip: true, by, .. } if by.is_empty()),
    );
    if skip {
        let message = "this rule never decides: `set skip` passes all packets that it matches";
        return Diagnostic::warning("shadowed", span, message);
    }
    let message = "this rule never decides: others decide about every packet that it matches";
    hiders(
        Diagnostic::warning("shadowed", span, message),
        span,
        idle,
        origins,
    )
    .help(
        "remove it, or move it: without `quick` the last rule that matches wins, with it the first",
    )
}

/// Names the rules that decide instead.
fn hiders(
    mut finding: Diagnostic,
    own: Span,
    idle: &[&Coverage],
    origins: &BTreeMap<&RulePath, Span>,
) -> Diagnostic {
    let mut spans = Vec::<Span>::new();
    for coverage in idle {
        if let Coverage::Shadowed { by, .. } = coverage {
            spans.extend(
                by.iter()
                    .filter_map(|path| origins.get(path).copied())
                    .filter(|span| *span != own),
            );
        }
    }
    spans.sort();
    spans.dedup();
    for span in spans.into_iter().take(4) {
        finding = finding.related(span, "this rule decides instead");
    }
    finding
}

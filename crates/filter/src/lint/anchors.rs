//! Anchors with `quick` inside each other.

use crate::diagnostic::Diagnostic;
use crate::rule::{Anchor, Rule};

/// pf stops behind a quick anchor if the last matching rule is one of its own: a match in an
/// anchor inside it does not count (`pf_step_out_of_anchor`).
pub(super) fn nested_quick(rules: &[Rule], found: &mut Vec<Diagnostic>) {
    for rule in rules {
        let Some(Anchor::Inline { rules: inner, .. }) = rule.anchor.as_deref() else {
            continue;
        };
        let nested = inner
            .iter()
            .find(|rule| rule.anchor.is_some() && !rule.quick);
        if let (true, Some(nested)) = (rule.quick, nested) {
            let message =
                "a match in an anchor inside this quick anchor does not end the evaluation";
            let warning = Diagnostic::warning("nested-quick-anchor", rule.origin.span, message)
                .related(nested.origin.span, "the anchor inside")
                .help("write `quick` on the rules inside, or on the inner anchor too");
            found.push(warning);
        }
        nested_quick(inner, found);
    }
}

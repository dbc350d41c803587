//! The walk over all rules of a rule set.

use crate::rule::{Anchor, Rule};

/// Calls `visit` with each rule, those inside anchors too.
pub(super) fn each_rule<'r>(rules: &'r [Rule], visit: &mut impl FnMut(&'r Rule)) {
    for rule in rules {
        visit(rule);
        if let Some(Anchor::Inline { rules, .. }) = rule.anchor.as_deref() {
            each_rule(rules, visit);
        }
    }
}

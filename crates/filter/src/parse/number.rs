//! `$nr` in labels and tags: the number of a rule, once all are read.

use std::sync::Arc;

use crate::rule::{Anchor, Rule};

/// Fills `$nr` in: the rule's number among those of its kind in its rule set.
pub(super) fn number(rules: &mut [Rule]) {
    let fill = |text: &mut Arc<str>, nr: usize| {
        if text.contains("$nr") {
            *text = text.replace("$nr", &nr.to_string()).into();
        }
    };
    let kinds = rules.chunk_by_mut(|rule, next| rule.kind == next.kind);
    for (nr, rule) in kinds.flat_map(|kind| kind.iter_mut().enumerate()) {
        if let Some(label) = &mut rule.label {
            fill(label, nr);
        }
        for label in rule
            .freebsd
            .iter_mut()
            .flat_map(|freebsd| &mut freebsd.more_labels)
        {
            fill(label, nr);
        }
        if let Some(tag) = &mut rule.tag {
            fill(tag, nr);
        }
        if let Some(tagged) = &mut rule.tagged {
            fill(&mut tagged.name, nr);
        }
        if let Some(Anchor::Inline { rules, .. }) = rule.anchor.as_deref_mut() {
            number(rules);
        }
    }
}

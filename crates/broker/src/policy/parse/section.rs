//! A table of the file, whose keys are taken by name; the rest is unknown.

use super::super::diagnostic::Diagnostics;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its place.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// A table of the file.
pub(super) struct Section<'t> {
    /// Its keys, for messages: `a tenant`.
    title: &'static str,
    table: &'t DeTable<'t>,
    at: Range<usize>,
    known: Vec<&'static str>,
}

impl<'t> Section<'t> {
    pub(super) fn new(title: &'static str, table: &'t DeTable<'t>, at: Range<usize>) -> Self {
        Self {
            title,
            table,
            at,
            known: Vec::new(),
        }
    }

    /// The table that a value must be.
    pub(super) fn of(
        title: &'static str,
        value: &'t Value<'t>,
        example: &str,
        out: &mut Diagnostics,
    ) -> Option<Self> {
        if let DeValue::Table(table) = value.get_ref() {
            return Some(Self::new(title, table, value.span()));
        }
        let found = value.get_ref().type_str();
        let message = format!("{title} is a table, not {}: {example}", article(found));
        out.error(value.span(), message);
        None
    }

    /// Its place.
    pub(super) fn at(&self) -> Range<usize> {
        self.at.clone()
    }

    /// The value of a key.
    pub(super) fn get(&mut self, key: &'static str) -> Option<&'t Value<'t>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.table.get(key)
    }

    /// A value that must be there.
    pub(super) fn need(
        &mut self,
        key: &'static str,
        example: &str,
        out: &mut Diagnostics,
    ) -> Option<&'t Value<'t>> {
        let value = self.get(key);
        if value.is_none() {
            let message = format!("{} needs `{key}`: {example}", self.title);
            out.absent(self.at(), message);
        }
        value
    }

    /// Reports the keys that nothing asked for.
    pub(super) fn finish(self, out: &mut Diagnostics) {
        for (key, _) in self.table {
            let name: &str = key.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            let title = self.title;
            let advice = nearest(name, &self.known).map_or_else(
                || format!("its keys are {}", self.known.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            out.error(
                key.span(),
                format!("{title} has no key `{}`: {advice}", shown(name)),
            );
        }
    }
}

/// A piece of the file as it stands in a message: bounded, without control characters.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut shown: String = text
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

/// The name of a type with its article.
pub(super) fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}

/// The known word that is most likely meant, if one is near.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: Vec<char> = word.chars().take(40).collect();
    let near = known.iter().map(|known| (distance(&word, known), *known));
    let (distance, nearest) = near.min_by_key(|(distance, _)| *distance)?;
    // A third of the letters may differ.
    (distance * 3 <= nearest.len().max(3)).then_some(nearest)
}

/// Levenshtein's distance; `_` is as good as `-`, and an upper-case letter as its lower-case one.
fn distance(word: &[char], known: &str) -> usize {
    let same = |a: char, b: char| a.to_ascii_lowercase() == b || (a == '_' && b == '-');
    let mut row: Vec<usize> = (0..=word.len()).collect();
    for (number, other) in (1..).zip(known.chars()) {
        let mut next = vec![number];
        let mut left = number;
        for (pair, &letter) in row.windows(2).zip(word) {
            let &[diagonal, above] = pair else { continue };
            let replaced = diagonal + usize::from(!same(letter, other));
            left = replaced.min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_found_and_a_far_one_is_not() {
        let known = ["busy-poll", "queues", "name", "tx"];
        for (word, expected) in [
            ("busy_poll", Some("busy-poll")),
            ("Queue", Some("queues")),
            ("nam", Some("name")),
            ("rx", Some("tx")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), expected, "{word}");
        }
    }

    #[test]
    fn what_is_shown_is_bounded_and_has_no_control_characters() {
        assert_eq!(shown("a\x1b\nb"), "a\\u{1b}\\nb");
        assert_eq!(shown(&"x".repeat(90)).chars().count(), 81);
    }
}

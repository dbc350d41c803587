//! Faults of the file and remarks on it, each with its place.

use serde::Serialize;
use std::collections::HashSet;
use std::ops::Range;

/// Most faults, and most remarks, that are kept of a file; the rest is counted.
const MOST: usize = 1000;

/// Most characters of a line that are shown, so that a thousand faults of a long line stay readable.
const SHOWN: usize = 120;

/// A fault of the file, or a remark on it, and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The fault and its cure.
    pub message: String,
    /// The line of the file.
    pub source: String,
    /// Where in `source`, in characters.
    #[serde(skip)]
    marked: Range<usize>,
}

impl Diagnostic {
    /// `FILE:LINE:COLUMN: MESSAGE`, the line of the source, and a caret below the place. A `kind`,
    /// such as `note: `, goes before the message.
    pub fn render(&self, file: &str, kind: &str) -> String {
        let Self {
            line,
            column,
            message,
            source,
            marked,
        } = self;
        let blank = " ".repeat(marked.start);
        let carets = "^".repeat(marked.len().max(1));
        format!("{file}:{line}:{column}: {kind}{message}\n    {source}\n    {blank}{carets}\n")
    }
}

/// A fault and its place in bytes.
struct Fault {
    at: Range<usize>,
    message: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Syntax,
    /// Something is missing, perhaps only because a fault of the syntax hides it.
    Absence,
    Other,
}

/// Collects the faults of one file.
#[derive(Default)]
pub(super) struct Diagnostics {
    errors: Vec<Fault>,
    notes: Vec<Fault>,
    more_errors: usize,
}

impl Diagnostics {
    /// A fault of the TOML itself.
    pub(super) fn syntax(&mut self, at: Range<usize>, message: String) {
        self.push(at, message, Kind::Syntax);
    }

    pub(super) fn error(&mut self, at: Range<usize>, message: impl Into<String>) {
        self.push(at, message.into(), Kind::Other);
    }

    /// Something that the file must have has been left out.
    pub(super) fn absent(&mut self, at: Range<usize>, message: impl Into<String>) {
        self.push(at, message.into(), Kind::Absence);
    }

    fn push(&mut self, at: Range<usize>, message: String, kind: Kind) {
        if self.errors.len() == MOST {
            self.more_errors += 1;
            return;
        }
        self.errors.push(Fault { at, message, kind });
    }

    /// Something that is allowed, and worth a second look.
    pub(super) fn note(&mut self, at: Range<usize>, message: impl Into<String>) {
        if self.notes.len() < MOST {
            self.notes.push(Fault {
                at,
                message: message.into(),
                kind: Kind::Other,
            });
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Errors and notes in the order of the file.
    pub(super) fn finish(mut self, text: &str) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let lines = Lines::new(text);
        let syntax = self.errors.iter().filter(|it| it.kind == Kind::Syntax);
        let broken: HashSet<_> = syntax.map(|it| lines.line(it.at.start)).collect();
        if !broken.is_empty() {
            // Other faults there follow from the broken syntax.
            self.errors.retain(|it| match it.kind {
                Kind::Syntax => true,
                Kind::Absence => false,
                Kind::Other => !broken.contains(&lines.line(it.at.start)),
            });
        }
        let mut errors = lines.place(self.errors);
        if self.more_errors > 0
            && let Some(last) = errors.last_mut()
        {
            let more = self.more_errors;
            let more = format!(" (and {more} more errors, which are not shown)");
            last.message.push_str(&more);
        }
        (errors, lines.place(self.notes))
    }
}

/// The lines of a text by their first byte.
struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(breaks).collect(),
        }
    }

    /// The number of the line, from 0, that has this byte.
    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|&start| start <= at) - 1
    }

    fn place(&self, mut faults: Vec<Fault>) -> Vec<Diagnostic> {
        faults.sort_by_key(|fault| fault.at.start);
        faults
            .into_iter()
            .map(|fault| self.diagnostic(fault))
            .collect()
    }

    fn diagnostic(&self, fault: Fault) -> Diagnostic {
        let line = self.line(fault.at.start);
        let start = self.starts.get(line).copied().unwrap_or(0);
        let text = self.text.get(start..).unwrap_or_default();
        let text = text.lines().next().unwrap_or_default();
        let characters = |bytes: usize| {
            let before = text.char_indices().take_while(|(at, _)| *at < bytes);
            before.count()
        };
        let column = characters(fault.at.start - start);
        let end = characters(fault.at.end.saturating_sub(start)).max(column);
        let skipped = (column + SHOWN / 4).saturating_sub(SHOWN);
        let shown: String = text
            .chars()
            .skip(skipped)
            .take(SHOWN)
            // A tab has no width of its own, and a control character could be a terminal's command.
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        Diagnostic {
            line: line + 1,
            column: column + 1,
            message: fault.message,
            marked: column - skipped
                ..(end - skipped).min(shown.chars().count().max(column - skipped)),
            source: shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str, at: Range<usize>) -> Diagnostic {
        let mut diagnostics = Diagnostics::default();
        diagnostics.error(at, "wrong");
        let (mut errors, _) = diagnostics.finish(text);
        errors.remove(0)
    }

    #[test]
    fn a_place_is_a_line_and_a_column_in_characters() {
        let error = only("a = 1\nä = 2\n", 11..12);
        assert_eq!((error.line, error.column), (2, 5));
        let expected = "f:2:5: wrong\n    ä = 2\n        ^\n";
        assert_eq!(error.render("f", ""), expected);
    }

    #[test]
    fn a_place_behind_the_end_is_at_the_end() {
        let error = only("", 0..0);
        assert_eq!((error.line, error.column), (1, 1));
        let error = only("a", 7..9);
        assert_eq!((error.line, error.column), (1, 2));
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let text = format!("{}X{}", "a".repeat(5000), "b".repeat(5000));
        let error = only(&text, 5000..5001);
        assert_eq!(error.column, 5001);
        assert_eq!(error.source.chars().count(), SHOWN);
        assert_eq!(error.source.chars().nth(error.marked.start), Some('X'));
    }

    #[test]
    fn control_characters_are_not_shown() {
        assert_eq!(only("a\x1b[2J\tb", 0..1).source, "a [2J b");
    }

    #[test]
    fn more_faults_than_are_kept_are_counted() {
        let mut diagnostics = Diagnostics::default();
        for _ in 0..MOST + 3 {
            diagnostics.error(0..0, "wrong");
        }
        let (errors, _) = diagnostics.finish("");
        assert_eq!(errors.len(), MOST);
        let last = &errors.last().expect("there are some").message;
        assert!(last.contains("and 3 more"), "{last}");
    }
}

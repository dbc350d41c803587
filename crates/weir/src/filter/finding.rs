//! Findings with their places, as reports have them.

use pf_filter::diagnostic::{Diagnostic, Label, Severity};
use pf_filter::source::{Sources, Span};
use serde::Serialize;

/// A finding about rules.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Its kind.
    pub code: &'static str,
    /// The cause.
    pub message: String,
    /// The cure.
    pub help: Option<String>,
    /// The source that caused it.
    #[serde(flatten)]
    pub region: Region,
    /// Other source that belongs to it.
    pub related: Vec<Region>,
}

/// A part of a file, with a remark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// The file, as it was opened.
    pub file: String,
    /// Line of the first character, from 1.
    pub line: u32,
    /// Column of the first character, from 1, in characters.
    pub column: u32,
    /// Line of the character past the last one.
    pub end_line: u32,
    /// Column of the character past the last one.
    pub end_column: u32,
    /// The remark; none where there is nothing to say.
    pub label: Option<String>,
}

impl Finding {
    /// A diagnostic with its places.
    pub fn new(diagnostic: &Diagnostic, sources: &Sources) -> Self {
        let region = |label: &Label| Region::new(label.span, &label.text, sources);
        Self {
            severity: diagnostic.severity,
            code: diagnostic.code,
            message: diagnostic.message.clone(),
            help: diagnostic.help.clone(),
            region: region(&diagnostic.primary),
            related: diagnostic.related.iter().map(region).collect(),
        }
    }

    /// All of these.
    pub fn all(diagnostics: &[Diagnostic], sources: &Sources) -> Vec<Self> {
        diagnostics
            .iter()
            .map(|it| Self::new(it, sources))
            .collect()
    }
}

impl Region {
    /// The part of a file that a span is.
    pub fn new(span: Span, label: &str, sources: &Sources) -> Self {
        let start = sources.place(span);
        let end = Span {
            start: span.end.max(span.start),
            ..span
        };
        let end = sources.place(end);
        Self {
            file: start.file,
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            label: Some(label.to_owned()).filter(|label| !label.is_empty()),
        }
    }
}

/// How many findings of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// pf would refuse the rules.
    pub errors: usize,
    /// The rules likely have another meaning than the intended one.
    pub warnings: usize,
    /// A reader should know.
    pub notices: usize,
}

impl Counts {
    /// Counts findings.
    pub fn of(findings: &[Finding]) -> Self {
        let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
        Self {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            notices: count(Severity::Notice),
        }
    }
}

/// A word of a severity.
pub fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Notice => "notice",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_characters() {
        let mut sources = Sources::default();
        let file = sources.add("pf.conf", "# ä\npass é\n in\n");
        let span = |start, end| Span { file, start, end };
        let region = Region::new(span(10, 16), "here", &sources);
        assert_eq!((region.line, region.column), (2, 6));
        assert_eq!((region.end_line, region.end_column), (3, 4));
        assert_eq!(region.label.as_deref(), Some("here"));
        let point = Region::new(span(5, 5), "", &sources);
        assert_eq!((point.column, point.end_column, point.label), (1, 1, None));
    }
}

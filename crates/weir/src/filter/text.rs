//! Findings as text: with pictures of the source, or a line each.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Level, Renderer, Snippet};
use pf_filter::diagnostic::{Diagnostic, Severity};
use pf_filter::parse::Parsed;
use pf_filter::source::{FileId, Sources, Span};

use super::finding::{Counts, Finding, severity_name};
use crate::report::text::plain;

/// Pictures show so many findings; a finding more is only counted.
pub const MOST_PICTURES: usize = 1000;
/// Places of a file so many bytes apart are in one picture.
const ONE_PICTURE: usize = 500;

/// Draws source text with carets.
#[derive(Debug)]
pub struct Painter(Renderer);

impl Painter {
    /// For a stream: with colours on a terminal, unless `NO_COLOR` is set.
    pub fn new(stream: &impl IsTerminal) -> Self {
        let has_terminal = stream.is_terminal();
        let wants_colour = std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
            && std::env::var_os("TERM").is_none_or(|it| it != "dumb");
        Self(if has_terminal && wants_colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        })
    }

    /// Without colours.
    pub fn plain() -> Self {
        Self(Renderer::plain())
    }

    /// All findings, each followed by a blank line.
    pub fn findings(&self, diagnostics: &[Diagnostic], sources: &Sources) -> String {
        let mut text = String::new();
        for diagnostic in diagnostics.iter().take(MOST_PICTURES) {
            text += &self.finding(diagnostic, sources);
            text += "\n";
        }
        let more = diagnostics.len().saturating_sub(MOST_PICTURES);
        if more > 0 {
            let _ = writeln!(text, "{more} more: see --format short or json\n");
        }
        text
    }

    /// The errors alone, of rules that are used for something else than a check.
    pub fn errors(&self, parsed: &Parsed) -> String {
        let errors = parsed.diagnostics.iter();
        let errors = errors.filter(|it| it.severity == Severity::Error).cloned();
        self.findings(&errors.collect::<Vec<_>>(), &parsed.ruleset.sources)
    }

    /// A finding: its message, the source that caused it, other source that belongs to it, the cure.
    pub fn finding(&self, diagnostic: &Diagnostic, sources: &Sources) -> String {
        let title = level(diagnostic.severity)
            .primary_title(plain(&diagnostic.message))
            .id(diagnostic.code);
        let related = diagnostic
            .related
            .iter()
            .map(|label| (label, AnnotationKind::Context));
        let primary = (&diagnostic.primary, AnnotationKind::Primary);
        let labels = std::iter::once(primary).chain(related);
        let marks = labels.map(|(label, kind)| Mark::new(label.span, &label.text, kind));
        let help = diagnostic
            .help
            .iter()
            .map(|help| Level::HELP.message(plain(help)));
        let group = title
            .elements(snippets(marks.collect(), sources))
            .elements(help);
        self.0.render(&[group]) + "\n"
    }

    /// Source text with a caret line below it.
    pub fn source(&self, title: &str, span: Span, label: &str, sources: &Sources) -> String {
        let mark = Mark::new(span, label, AnnotationKind::Primary);
        let title = Level::NOTE.no_name().primary_title(plain(title));
        let group = title.elements(snippets(vec![mark], sources));
        self.0.render(&[group]) + "\n"
    }
}

fn level(severity: Severity) -> Level<'static> {
    match severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Notice => Level::NOTE.with_name(severity_name(severity)),
    }
}

/// Marked source.
struct Mark {
    span: Span,
    label: String,
    kind: AnnotationKind,
}

impl Mark {
    fn new(span: Span, label: &str, kind: AnnotationKind) -> Self {
        let label = plain(label);
        Self { span, label, kind }
    }

    fn range(&self) -> Range<usize> {
        let (start, end) = (self.span.start as usize, self.span.end as usize);
        start..end.max(start)
    }
}

/// A picture for each file, and for each part of it that is far from the others. The first mark's is
/// the first.
fn snippets(marks: Vec<Mark>, sources: &Sources) -> Vec<Snippet<'static, Annotation<'static>>> {
    let mut pictures: Vec<(FileId, Range<usize>, Vec<Mark>)> = Vec::new();
    for mark in marks {
        let range = mark.range();
        let near = |place: &&mut (FileId, Range<usize>, Vec<Mark>)| {
            place.0 == mark.span.file
                && range.start <= place.1.end + ONE_PICTURE
                && place.1.start <= range.end + ONE_PICTURE
        };
        if let Some((_, place, marks)) = pictures.iter_mut().find(near) {
            *place = place.start.min(range.start)..place.end.max(range.end);
            marks.push(mark);
        } else {
            pictures.push((mark.span.file, range, vec![mark]));
        }
    }
    let draw = |(file, place, marks): (FileId, Range<usize>, Vec<Mark>)| {
        snippet(file, &place, marks, sources)
    };
    pictures.into_iter().map(draw).collect()
}

fn snippet(
    file: FileId,
    place: &Range<usize>,
    marks: Vec<Mark>,
    sources: &Sources,
) -> Snippet<'static, Annotation<'static>> {
    let source = sources.file(file);
    let text: &str = &source.text;
    let place = within(text, place);
    // Whole lines, so that a large file costs no more than a small one.
    let first = text[..place.start].rfind('\n').map_or(0, |at| at + 1);
    let last = text[place.end..]
        .find('\n')
        .map_or(text.len(), |at| place.end + at);
    let start = first as u32;
    let line = sources.line(Span {
        file,
        start,
        end: start,
    });
    let annotations = marks.into_iter().map(|mark| {
        let range = within(text, &mark.range());
        let annotation = mark.kind.span(range.start - first..range.end - first);
        if mark.label.is_empty() {
            annotation
        } else {
            annotation.label(mark.label)
        }
    });
    Snippet::source(text[first..last].to_owned())
        .path(plain(&source.name))
        .line_start(line as usize)
        .annotations(annotations)
}

/// The range within the text, from one character's start to another's.
fn within(text: &str, range: &Range<usize>) -> Range<usize> {
    let floor = |at: usize| {
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    floor(range.start)..floor(range.end)
}

/// A line for each finding, which compilers write and editors read: `FILE:LINE:COLUMN: SEVERITY: MESSAGE [CODE]`.
pub fn lines(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let region = &finding.region;
        let help = finding.help.iter().map(|help| format!("; {help}"));
        let _ = writeln!(
            text,
            "{}:{}:{}: {}: {}{} [{}]",
            plain(&region.file),
            region.line,
            region.column,
            severity_name(finding.severity),
            plain(&finding.message),
            plain(&help.collect::<String>()),
            finding.code
        );
    }
    text
}

/// A statement's text on one line.
pub fn one_line(source: &str) -> String {
    let words: Vec<_> = source
        .split_whitespace()
        .filter(|&word| word != "\\")
        .collect();
    words.join(" ")
}

/// `1 error, 2 warnings`; empty without findings.
pub fn counts(counts: Counts) -> String {
    let Counts {
        errors,
        warnings,
        notices,
    } = counts;
    let of = [
        (errors, "error"),
        (warnings, "warning"),
        (notices, "notice"),
    ];
    let words = of.into_iter().filter(|&(count, _)| count > 0);
    let words: Vec<_> = words.map(|(count, thing)| many(count, thing)).collect();
    words.join(", ")
}

/// `1 rule`, `2 rules`.
pub fn many(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> (Sources, FileId) {
        let mut sources = Sources::default();
        let file = sources.add("pf.conf", text);
        (sources, file)
    }

    #[test]
    fn a_finding_shows_its_source() {
        let text = "block\npass in proto tpc to port 22\n";
        let (sources, file) = sources(text);
        let span = Span {
            file,
            start: 20,
            end: 23,
        };
        let diagnostic = Diagnostic::error("unknown-protocol", span, "there is no protocol `tpc`")
            .label("here")
            .related(
                Span {
                    file,
                    start: 0,
                    end: 5,
                },
                "the default",
            )
            .help("did you mean `tcp`?");
        let expected = "\
error[unknown-protocol]: there is no protocol `tpc`
 --> pf.conf:2:15
  |
1 | block
  | ----- the default
2 | pass in proto tpc to port 22
  |               ^^^ here
  |
  = help: did you mean `tcp`?
";
        assert_eq!(Painter::plain().finding(&diagnostic, &sources), expected);
        let finding = Finding::new(&diagnostic, &sources);
        assert_eq!(
            lines(&[finding]),
            "pf.conf:2:15: error: there is no protocol `tpc`; did you mean `tcp`? [unknown-protocol]\n"
        );
    }

    #[test]
    fn a_place_far_away_has_a_picture_of_its_own() {
        let text = format!("a = 1\n{}pass $a\n", "# far\n".repeat(200));
        let (sources, file) = sources(&text);
        let end = text.len() as u32 - 1;
        let diagnostic = Diagnostic::warning(
            "code",
            Span {
                file,
                start: end - 2,
                end,
            },
            "message",
        )
        .related(
            Span {
                file,
                start: 0,
                end: 1,
            },
            "defined here",
        );
        let picture = Painter::plain().finding(&diagnostic, &sources);
        assert!(picture.contains("--> pf.conf:202:6\n"), "{picture}");
        assert!(picture.contains("::: pf.conf:1:1\n"), "{picture}");
        assert!(!picture.contains("far"), "{picture}");
    }

    #[test]
    fn a_wrong_span_is_drawn_all_the_same() {
        let (sources, file) = sources("ä\u{1b}[31m\n");
        for (start, end) in [(1, 1), (0, 1), (3, 900), (900, 901), (5, 2), (0, 0)] {
            let diagnostic = Diagnostic::notice("code", Span { file, start, end }, "a\u{1b}b");
            let picture = Painter::plain().finding(&diagnostic, &sources);
            assert!(picture.starts_with("notice[code]: a?b\n"), "{picture}");
            assert!(!picture.contains('\u{1b}'), "{picture:?}");
        }
    }

    #[test]
    fn counts_are_words() {
        let some = Counts {
            errors: 1,
            warnings: 2,
            notices: 0,
        };
        assert_eq!(counts(some), "1 error, 2 warnings");
        assert_eq!(counts(Counts::default()), "");
    }
}

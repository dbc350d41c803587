//! Findings about a rule set: errors, warnings and notices, each with the source that caused it.

use crate::source::Span;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// pf would load the rules; a reader should know.
    Notice,
    /// pf would load the rules, with a meaning that was likely not intended.
    Warning,
    /// pf would refuse the rules.
    Error,
}

/// A place with a remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The source.
    pub span: Span,
    /// The remark; empty for none.
    pub text: String,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Its kind, in kebab case: `unknown-port`. Kinds keep their names.
    pub code: &'static str,
    /// The cause, in one sentence without a full stop.
    pub message: String,
    /// The source that caused it.
    pub primary: Label,
    /// Other source that belongs to it: the rule that hides this one, the macro's definition.
    pub related: Vec<Label>,
    /// The cure, in one sentence without a full stop.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, span, message)
    }

    /// A warning.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, span, message)
    }

    /// A notice.
    pub fn notice(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Notice, code, span, message)
    }

    fn new(severity: Severity, code: &'static str, span: Span, message: impl Into<String>) -> Self {
        let primary = Label {
            span,
            text: String::new(),
        };
        let message = message.into();
        Self {
            severity,
            code,
            message,
            primary,
            related: Vec::new(),
            help: None,
        }
    }

    /// Remarks the source that caused it.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.primary.text = text.into();
        self
    }

    /// Adds other source that belongs to it.
    #[must_use]
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push(Label {
            span,
            text: text.into(),
        });
        self
    }

    /// Adds the cure.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }
}

//! The parser: its state, its tokens, and its findings.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::config::{BRACE_DEPTH_MAX, BYTES_MAX, Config, ERRORS_MAX, FILES_MAX};
use super::scope::{Load, Scope, Section};
use super::syntax::{Node, StateOption};
use crate::diagnostic::{Diagnostic, Severity};
use crate::lex::{At, Keyword, Kind, Lexer, Macro, Token, nearest};
use crate::rule::{Options, Return, Rule, RuleKind, Ruleset};
use crate::source::{FileId, Sources, Span};

/// An error that was reported: the statement is given up.
#[derive(Debug)]
pub(crate) struct Failed;

/// A part of a statement, or an error that was reported.
pub(crate) type Step<T> = Result<T, Failed>;

/// The parser's state: `parse.y`'s static variables.
pub(crate) struct Parser<'a> {
    pub(crate) config: &'a Config<'a>,
    pub(super) lexer: Lexer,
    pub(super) peeked: Option<Token>,
    /// Where the last token ended.
    pub(super) last: At,
    /// Unclosed braces of the statement.
    pub(crate) braces: usize,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(super) seen: HashSet<(&'static str, Span, String)>,
    /// How many warnings and notices were reported, and how many errors.
    pub(super) reported: [usize; 2],
    /// There were too many errors to read on.
    pub(super) stopped: bool,
    pub(crate) errors: usize,
    pub(crate) ruleset: Ruleset,
    pub(super) bytes: usize,
    /// Rules of the anchors around, outermost first; the main rule set is the first.
    pub(crate) scopes: Vec<Scope>,
    pub(crate) block_policy: Return,
    /// FreeBSD's `set fail-policy return`.
    pub(super) fail_return: bool,
    /// FreeBSD's `set require-order`.
    pub(super) require_order: bool,
    /// The kind of the last statement, for FreeBSD's order.
    pub(super) section: Section,
    pub(crate) if_bound: bool,
    pub(crate) state_defaults: Option<Vec<Node<StateOption>>>,
    pub(crate) automatic_tables: usize,
    pub(crate) anonymous_anchors: usize,
    pub(crate) expanded: usize,
    /// The anchor whose first rule was added.
    pub(crate) expansion_of: Option<Span>,
    pub(crate) queues: Vec<crate::rule::Queue>,
    pub(super) queue_names: Vec<Arc<str>>,
    /// Index of the last table of each anchor and name.
    pub(super) tables: HashMap<(Arc<str>, Arc<str>), usize>,
    /// Names of [`crate::rule::Options::skip`].
    pub(super) skipped: HashSet<Arc<str>>,
    pub(super) loads: VecDeque<Load>,
    /// The anchor whose file is read, for tables' paths.
    pub(crate) loading: Option<Arc<str>>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(config: &'a Config<'a>) -> Self {
        let none = Span {
            file: FileId(0),
            start: 0,
            end: 0,
        };
        Self {
            config,
            lexer: Lexer::new(config.dialect),
            peeked: None,
            last: At::plain(none),
            braces: 0,
            diagnostics: Vec::new(),
            seen: HashSet::new(),
            reported: [0; 2],
            stopped: false,
            errors: 0,
            ruleset: Ruleset {
                dialect: config.dialect,
                options: Options::of(config.dialect),
                sources: Sources::default(),
                ..Ruleset::default()
            },
            bytes: 0,
            scopes: vec![Scope::default()],
            block_policy: Return::Drop,
            fail_return: false,
            require_order: true,
            section: Section::None,
            if_bound: false,
            state_defaults: None,
            automatic_tables: 0,
            anonymous_anchors: 0,
            expanded: 0,
            expansion_of: None,
            queues: Vec::new(),
            queue_names: Vec::new(),
            tables: HashMap::new(),
            skipped: HashSet::new(),
            loads: VecDeque::new(),
            loading: None,
        }
    }

    pub(super) fn define_command_line_macros(&mut self) {
        for (name, value) in self.config.macros {
            let definition = Macro {
                value: value.as_str().into(),
                pieces: Arc::new([]),
                persists: true,
                definition: None,
            };
            self.lexer.macros.insert(name.as_str().into(), definition);
        }
    }

    /// Reads a file, unless there are too many.
    pub(super) fn read(&mut self, path: &str) -> std::io::Result<Vec<u8>> {
        if self.ruleset.sources.files().len() >= FILES_MAX {
            let message = format!("a configuration has at most {FILES_MAX} files");
            return Err(std::io::Error::other(message));
        }
        self.config.loader.read(path)
    }

    /// Takes a file's text in, unless it is none or there is too much.
    pub(super) fn add_file(
        &mut self,
        name: &str,
        bytes: &[u8],
        named_at: Option<Span>,
    ) -> Option<(FileId, Arc<str>)> {
        self.bytes += bytes.len();
        let text: Arc<str> = String::from_utf8_lossy(bytes).into();
        let binary = bytes.iter().take(8192).any(|&byte| byte == 0);
        let too_much = self.bytes > BYTES_MAX || text.len() > BYTES_MAX;
        let kept: Arc<str> = if binary || too_much { "".into() } else { text };
        let file = self.ruleset.sources.add(name, kept.clone());
        let span = named_at.unwrap_or(Span {
            file,
            start: 0,
            end: 0,
        });
        if binary {
            let message = format!("\"{name}\" is a binary file");
            self.report(
                Diagnostic::error("binary", span, message).help("name a text file with pf rules"),
            );
            return None;
        }
        if too_much {
            let message = format!(
                "\"{name}\": all files together have at most {} MiB",
                BYTES_MAX >> 20
            );
            self.report(Diagnostic::error("too-long", span, message));
            return None;
        }
        Some((file, kept))
    }

    /// Adds a finding, unless the same one is there.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        let is_error = diagnostic.severity == Severity::Error;
        if is_error {
            self.errors += 1;
        }
        let reported = self.reported[usize::from(is_error)];
        if reported > ERRORS_MAX {
            return;
        }
        let (code, span) = (diagnostic.code, diagnostic.primary.span);
        if !self.seen.insert((code, span, diagnostic.message.clone())) {
            return;
        }
        self.reported[usize::from(is_error)] += 1;
        if reported < ERRORS_MAX {
            self.diagnostics.push(diagnostic);
            return;
        }
        self.stopped |= is_error;
        self.diagnostics.push(if is_error {
            let message = format!("more than {ERRORS_MAX} errors: nothing is read behind this one");
            Diagnostic::error("too-many", span, message)
        } else {
            let message =
                format!("more than {ERRORS_MAX} warnings and notices: the rest is not reported");
            Diagnostic::notice("too-many", span, message)
        });
    }

    /// An error at a place, which macros may have given.
    pub(crate) fn error(code: &'static str, at: &At, message: impl Into<String>) -> Diagnostic {
        let error = Diagnostic::error(code, at.usage, message);
        match &at.macro_name {
            Some(name) if at.span != at.usage => {
                error.related(at.span, format!("from macro `{name}`, defined here"))
            }
            _ => error,
        }
    }

    /// Reports an error and gives the statement up.
    pub(crate) fn fail<T>(
        &mut self,
        code: &'static str,
        at: &At,
        message: impl Into<String>,
    ) -> Step<T> {
        let error = Self::error(code, at, message);
        self.report(error);
        Err(Failed)
    }

    /// As [`Self::fail`], with a cure.
    pub(crate) fn fail_with<T>(
        &mut self,
        code: &'static str,
        at: &At,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Step<T> {
        let error = Self::error(code, at, message).help(help);
        self.report(error);
        Err(Failed)
    }

    pub(crate) fn peek(&mut self) -> &Token {
        if self.stopped {
            let at = self.last.clone();
            self.peeked = Some(Token {
                kind: Kind::End,
                at,
            });
        }
        if self.peeked.is_none() {
            let mut found = Vec::new();
            let token = self.lexer.token(&mut |diagnostic| found.push(diagnostic));
            for diagnostic in found {
                self.report(diagnostic);
            }
            self.peeked = Some(token);
        }
        // It was just filled.
        self.peeked.get_or_insert_with(|| Token {
            kind: Kind::End,
            at: self.last.clone(),
        })
    }

    pub(crate) fn take(&mut self) -> Token {
        self.peek();
        let token = match self.peeked.take() {
            Some(token) => token,
            None => Token {
                kind: Kind::End,
                at: self.last.clone(),
            },
        };
        match token.kind {
            Kind::Byte(b'{') => self.braces += 1,
            Kind::Byte(b'}') => self.braces = self.braces.saturating_sub(1),
            _ => {}
        }
        if !matches!(token.kind, Kind::Newline | Kind::End) {
            self.last = token.at.clone();
        }
        token
    }

    /// Where the last token stood.
    pub(crate) fn last_at(&self) -> At {
        self.last.clone()
    }

    pub(crate) fn peek_keyword(&mut self) -> Option<Keyword> {
        match self.peek().kind {
            Kind::Keyword(keyword) => Some(keyword),
            _ => None,
        }
    }

    /// Takes the keyword, if it is next.
    pub(crate) fn accept(&mut self, keyword: Keyword) -> bool {
        let found = self.peek_keyword() == Some(keyword);
        if found {
            self.take();
        }
        found
    }

    /// Takes the byte, if it is next.
    pub(crate) fn accept_byte(&mut self, byte: u8) -> bool {
        let found = self.peek().kind == Kind::Byte(byte);
        if found {
            self.take();
        }
        found
    }

    pub(crate) fn expect_keyword(&mut self, keyword: Keyword) -> Step<()> {
        if self.accept(keyword) {
            Ok(())
        } else {
            self.unexpected(&format!("`{}`", keyword.text()))
        }
    }

    pub(crate) fn expect_byte(&mut self, byte: u8) -> Step<()> {
        if self.accept_byte(byte) {
            Ok(())
        } else {
            self.unexpected(&format!("`{}`", char::from(byte)))
        }
    }

    /// Skips newlines.
    pub(crate) fn newlines(&mut self) {
        while self.peek().kind == Kind::Newline {
            self.take();
        }
    }

    /// Reports the next token as unexpected.
    pub(crate) fn unexpected<T>(&mut self, expected: &str) -> Step<T> {
        let token = self.peek().clone();
        if token.kind == Kind::Bad {
            return Err(Failed);
        }
        let at = match token.kind {
            Kind::Newline | Kind::End => At::plain(Span {
                start: self.last.usage.end,
                ..self.last.usage
            }),
            _ => token.at,
        };
        let mut error = Self::error(
            "syntax",
            &at,
            format!("expected {expected}, found {}", token.kind),
        );
        if let Kind::Text {
            text,
            quoted: false,
            ..
        } = &token.kind
            && let Some(word) = nearest(text, expected.split('`').skip(1).step_by(2))
        {
            error = error.help(format!("did you mean `{word}`?"));
        }
        if expected.starts_with("the end of the line")
            && matches!(token.kind, Kind::Keyword(keyword) if is_part_of_rule(keyword))
        {
            error = error.help(
                "the parts of a rule have an order: action, `in` or `out`, `log` and `quick`, `on`, family, \
                 `proto`, `from` and `to` or `all`, then its options",
            );
        }
        if token.kind == Kind::Byte(b'\r') {
            error =
                error.help("the file has the line ends of Windows: `weir filter fmt` removes them");
        }
        self.report(error);
        Err(Failed)
    }

    /// Takes a word or a quoted string.
    pub(crate) fn text(&mut self, expected: &str) -> Step<(Arc<str>, At)> {
        if let Kind::Text { text, .. } = &self.peek().kind {
            let text = text.clone();
            let token = self.take();
            return Ok((text, token.at));
        }
        if matches!(self.peek().kind, Kind::Keyword(_)) {
            let token = self.peek().clone();
            let message = format!(
                "expected {expected}, found the reserved word {}",
                token.kind
            );
            return self.fail_with("syntax", &token.at, message, "quote it to use it as a name");
        }
        self.unexpected(expected)
    }

    /// Takes words that follow each other, as one text with single blanks.
    pub(crate) fn words(&mut self, expected: &str) -> Step<(Arc<str>, At)> {
        let (first, mut at) = self.text(expected)?;
        let mut text = String::from(&*first);
        while let Kind::Text { text: next, .. } = &self.peek().kind {
            text.push(' ');
            text.push_str(next);
            let token = self.take();
            at = at.to(&token.at);
        }
        Ok((text.into(), at))
    }

    /// Takes a number.
    pub(crate) fn number(&mut self, expected: &str) -> Step<(i64, At)> {
        if let Kind::Number(number) = self.peek().kind {
            let token = self.take();
            return Ok((number, token.at));
        }
        self.unexpected(expected)
    }

    /// Takes a number from 0 to `most`.
    pub(crate) fn number_to(&mut self, most: u32, what: &str) -> Step<u32> {
        let (number, at) = self.number(what)?;
        match u32::try_from(number) {
            Ok(number) if number <= most => Ok(number),
            _ => self.fail(
                "range",
                &at,
                format!("{what} is {number}: 0 to {most} are allowed"),
            ),
        }
    }

    /// A list in braces with optional commas, or one element.
    pub(crate) fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Step<T>,
    ) -> Step<Vec<T>> {
        if self.accept_byte(b'{') {
            self.list_rest(element)
        } else {
            Ok(vec![element(self)?])
        }
    }

    /// The rest of a list after its brace.
    pub(crate) fn list_rest<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Step<T>,
    ) -> Step<Vec<T>> {
        let open = self.last_at();
        if self.braces > BRACE_DEPTH_MAX {
            return self.fail(
                "too-deep",
                &open,
                format!("braces nest at most {BRACE_DEPTH_MAX} deep"),
            );
        }
        self.newlines();
        let mut elements = Vec::new();
        loop {
            if self.accept_byte(b'}') {
                if elements.is_empty() {
                    return self.fail_with(
                        "syntax",
                        &open,
                        "the list is empty",
                        "give it an element",
                    );
                }
                return Ok(elements);
            }
            if self.peek().kind == Kind::End {
                return self.fail_with(
                    "syntax",
                    &open,
                    "the brace is never closed",
                    "close it with `}`",
                );
            }
            elements.push(element(self)?);
            self.newlines();
            if !self.accept_byte(b',') {
                continue;
            }
            match self.peek().kind {
                Kind::Byte(b'}') => return self.unexpected("an element after the comma"),
                Kind::Newline => {
                    let at = self.last_at();
                    return self.fail_with(
                        "syntax",
                        &at,
                        "a line cannot end behind a comma",
                        "leave the comma out, or join the lines with `\\`",
                    );
                }
                _ => {}
            }
        }
    }

    /// Puts a rule into the rule set that is being read.
    pub(crate) fn add_rule(&mut self, rule: Rule) {
        if let Some(scope) = self.scopes.last_mut() {
            match rule.kind {
                RuleKind::Filter => scope.rules.push(rule),
                RuleKind::Scrub => scope.scrubs.push(rule),
                RuleKind::Nat | RuleKind::Rdr | RuleKind::Binat => scope.translations.push(rule),
            }
        }
    }
}

fn is_part_of_rule(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::In
            | Keyword::Out
            | Keyword::Log
            | Keyword::Quick
            | Keyword::On
            | Keyword::Inet
            | Keyword::Inet6
            | Keyword::Proto
            | Keyword::From
            | Keyword::To
            | Keyword::All
            | Keyword::Os
    )
}

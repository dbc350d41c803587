//! From text to rules: tokens, statements, expansion.
//!
//! As in pfctl's `parse.y`, one pass reads the file from top to bottom: a macro, `set
//! block-policy` or `set state-policy` holds from its line on. Unlike it, the parser goes on
//! behind each error, inside braces too, and reports each cause once.

mod address;
mod anchor;
pub mod freebsd;
mod option;
mod queue;
mod redirect;
mod resolve;
mod rule;
mod scrub;
mod state;
pub(crate) mod syntax;
mod table;
mod translation;

pub(crate) use table::tables_of;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Severity};
use crate::host::Host;
use crate::lex::{At, Keyword, Kind, Lexer, Macro, Piece, Token, nearest};
use crate::rule::{Action, LoadedAnchor, Preamble, Return, Rule, RuleKind, Ruleset, Timeout};
use crate::source::{FileId, Loader, Sources, Span};
use freebsd::{Section, is_translation};
use syntax::{Node, StateOption};

/// Most rules that a configuration expands to, and addresses of its pools' lists.
pub const RULES_MAX: usize = if cfg!(fuzzing) { 2000 } else { 1_000_000 };
/// Most bytes of all its files.
pub const BYTES_MAX: usize = if cfg!(fuzzing) { 256 << 10 } else { 64 << 20 };
/// Most files.
pub const FILES_MAX: usize = if cfg!(fuzzing) { 100 } else { 10_000 };
/// Most files that include each other.
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Most braces inside each other: anchors (as pfctl's), and lists.
pub const BRACE_DEPTH_MAX: usize = 64;
/// Most errors that are reported, and most warnings and notices. Behind the last error nothing is read.
pub const ERRORS_MAX: usize = 1000;
/// Most bytes of a macro's value.
const MACRO_MAX: usize = 4 << 20;

/// Which system's language is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Dialect {
    /// OpenBSD 7.8.
    #[default]
    OpenBsd,
    /// FreeBSD, with `nat`, `rdr`, `binat` and `scrub` rules.
    FreeBsd,
}

/// Settings for reading a configuration.
#[derive(Clone, Copy)]
pub struct Config<'a> {
    /// The language.
    pub dialect: Dialect,
    /// The host it is for.
    pub host: &'a Host,
    /// Reads the files.
    pub loader: &'a dyn Loader,
    /// Macros that override those of the file (`-D name=value`).
    pub macros: &'a [(String, String)],
}

/// A configuration that was read.
#[derive(Debug)]
pub struct Parsed {
    /// Its rules; those with errors are left out.
    pub ruleset: Ruleset,
    /// Findings, in the order of the source.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Whether pf would refuse the configuration.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

/// Reads a configuration, through the loader.
#[must_use]
pub fn parse(path: &str, config: &Config<'_>) -> Parsed {
    let mut parser = Parser::new(config);
    match config.loader.read(path) {
        Ok(bytes) => {
            parser.read_main(path, &bytes);
        }
        Err(error) => {
            let file = parser.ruleset.sources.add(path, "");
            let span = Span {
                file,
                start: 0,
                end: 0,
            };
            let message = format!("cannot read \"{path}\": {error}");
            parser.report(Diagnostic::error("unreadable", span, message));
        }
    }
    parser.finish()
}

/// An error that was reported: the statement is given up.
#[derive(Debug)]
pub(crate) struct Failed;

/// A part of a statement, or an error that was reported.
pub(crate) type Step<T> = Result<T, Failed>;

/// The parser's state: `parse.y`'s static variables.
pub(crate) struct Parser<'a> {
    pub(crate) config: &'a Config<'a>,
    lexer: Lexer,
    peeked: Option<Token>,
    /// Where the last token ended.
    last: At,
    /// Unclosed braces of the statement.
    pub(crate) braces: usize,
    pub(crate) diagnostics: Vec<Diagnostic>,
    seen: HashSet<(&'static str, Span, String)>,
    /// How many warnings and notices were reported, and how many errors.
    reported: [usize; 2],
    /// There were too many errors to read on.
    stopped: bool,
    pub(crate) errors: usize,
    pub(crate) ruleset: Ruleset,
    bytes: usize,
    /// Rules of the anchors around, outermost first; the main rule set is the first.
    pub(crate) scopes: Vec<anchor::Scope>,
    pub(crate) block_policy: Return,
    /// FreeBSD's `set fail-policy return`.
    fail_return: bool,
    /// FreeBSD's `set require-order`.
    require_order: bool,
    /// The kind of the last statement, for FreeBSD's order.
    section: Section,
    pub(crate) if_bound: bool,
    pub(crate) state_defaults: Option<Vec<Node<StateOption>>>,
    pub(crate) automatic_tables: usize,
    pub(crate) anonymous_anchors: usize,
    pub(crate) expanded: usize,
    /// The anchor whose first rule was added.
    pub(crate) expansion_of: Option<Span>,
    pub(crate) queues: Vec<crate::rule::Queue>,
    queue_names: Vec<Arc<str>>,
    /// Index of the last table of each anchor and name.
    tables: HashMap<(Arc<str>, Arc<str>), usize>,
    /// Names of [`crate::rule::Options::skip`].
    skipped: HashSet<Arc<str>>,
    loads: VecDeque<anchor::Load>,
    /// The anchor whose file is read, for tables' paths.
    pub(crate) loading: Option<Arc<str>>,
}

impl<'a> Parser<'a> {
    fn new(config: &'a Config<'a>) -> Self {
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
                options: freebsd::default_options(config.dialect),
                sources: Sources::default(),
                ..Ruleset::default()
            },
            bytes: 0,
            scopes: vec![anchor::Scope::default()],
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

    fn read_main(&mut self, path: &str, bytes: &[u8]) {
        let name = if path == "-" { "stdin" } else { path };
        self.define_command_line_macros();
        if let Some((file, text)) = self.add_file(name, bytes, None) {
            self.lexer.reader.open(file, text);
            self.statements(false);
        }
        let scope = std::mem::take(&mut self.scopes[0]);
        self.ruleset.rules = scope.rules;
        self.ruleset.scrubs = scope.scrubs;
        self.ruleset.translations = freebsd::by_kind(scope.translations);
        self.check_queues();
        self.load_anchors();
    }

    fn define_command_line_macros(&mut self) {
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
    fn add_file(
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

    fn finish(mut self) -> Parsed {
        self.ruleset.queues = std::mem::take(&mut self.queues);
        for rules in [
            &mut self.ruleset.rules,
            &mut self.ruleset.scrubs,
            &mut self.ruleset.translations,
        ] {
            crate::expand::number(rules);
        }
        for anchor in &mut self.ruleset.loaded {
            for rules in [
                &mut anchor.rules,
                &mut anchor.scrubs,
                &mut anchor.translations,
            ] {
                crate::expand::number(rules);
            }
        }
        self.fill_adaptive_timeouts();
        self.check_queue_uses();
        self.check_tables();
        self.diagnostics.sort_by_key(|diagnostic| {
            let span = diagnostic.primary.span;
            (
                span.file,
                span.start,
                std::cmp::Reverse(diagnostic.severity),
            )
        });
        Parsed {
            ruleset: self.ruleset,
            diagnostics: self.diagnostics,
        }
    }

    /// A limit of states without adaptive timeouts sets them, to 60% and 120%.
    fn fill_adaptive_timeouts(&mut self) {
        let options = &mut self.ruleset.options;
        let defaults = freebsd::default_options(self.config.dialect);
        let adaptive = [
            Timeout::AdaptiveStart as usize,
            Timeout::AdaptiveEnd as usize,
        ];
        let untouched = adaptive
            .iter()
            .all(|&at| options.timeouts[at] == defaults.timeouts[at]);
        if options.limit_states != defaults.limit_states && untouched {
            options.timeouts[adaptive[0]] = options.limit_states / 10 * 6;
            options.timeouts[adaptive[1]] = (options.limit_states / 10).saturating_mul(12);
        }
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

    /// Reads statements to the end of the source, or to the brace that closes an anchor.
    fn statements(&mut self, inside: bool) {
        loop {
            self.lexer.reader.end_statement();
            self.braces = self.scopes.len() - 1;
            match self.peek().kind {
                Kind::Newline => {
                    self.take();
                }
                Kind::End => return,
                Kind::Byte(b'}') if inside => return,
                _ => {
                    let depth = self.braces;
                    if self
                        .statement(inside)
                        .and_then(|()| self.end_of_line(inside))
                        .is_err()
                    {
                        self.recover(depth);
                    }
                }
            }
        }
    }

    fn end_of_line(&mut self, inside: bool) -> Step<()> {
        match self.peek().kind {
            Kind::Newline => {
                self.take();
                Ok(())
            }
            Kind::End => Ok(()),
            // pfctl wants a newline before it; saying so once is enough.
            Kind::Byte(b'}') if inside => self.unexpected("the end of the line before the brace"),
            _ => self.unexpected("the end of the line"),
        }
    }

    /// Skips the rest of a statement with an error: its line, and a list that it leaves open.
    fn recover(&mut self, depth: usize) {
        let mut line_start = false;
        loop {
            let kind = self.peek().kind.clone();
            match kind {
                Kind::End => return,
                Kind::Newline => {
                    self.take();
                    if self.braces <= depth {
                        return;
                    }
                    line_start = true;
                    continue;
                }
                Kind::Byte(b'}') if self.braces <= depth && depth > 0 => return,
                Kind::Keyword(keyword) if line_start && starts_statement(keyword) => return,
                _ => {}
            }
            line_start = false;
            self.take();
        }
    }

    fn statement(&mut self, inside: bool) -> Step<()> {
        let token = self.peek().clone();
        let Kind::Keyword(keyword) = token.kind else {
            return self.definition(&token, inside);
        };
        let main_only = matches!(
            keyword,
            Keyword::Set
                | Keyword::Load
                | Keyword::Queue
                | Keyword::Antispoof
                | Keyword::Scrub
                | Keyword::No
        ) || is_translation(keyword);
        if inside && main_only {
            self.take();
            let message = format!(
                "`{}` cannot stand inside an anchor's braces",
                keyword.text()
            );
            return self.fail_with(
                "syntax",
                &token.at,
                message,
                "rules, anchors, tables and includes can: move it outside",
            );
        }
        match keyword {
            Keyword::Pass | Keyword::Block | Keyword::Match => self.rule(),
            Keyword::Anchor => self.anchor(),
            Keyword::Set => self.option(),
            Keyword::Table => self.table(),
            Keyword::Include => self.include(),
            Keyword::Load => self.load(),
            Keyword::Antispoof => self.antispoof(),
            Keyword::Queue | Keyword::Altq | Keyword::Ether if self.is_freebsd() => {
                self.unsupported(&token.at)
            }
            Keyword::Queue => self.queue(),
            Keyword::Scrub | Keyword::No if self.is_freebsd() => self.freebsd_statement(keyword),
            _ if is_translation(keyword) => self.freebsd_statement(keyword),
            _ if self.is_freebsd() => self.unexpected(FREEBSD_STATEMENTS),
            _ => self.unexpected(STATEMENTS),
        }
    }

    /// A macro's definition, or no statement at all.
    fn definition(&mut self, token: &Token, inside: bool) -> Step<()> {
        let Kind::Text { text, .. } = &token.kind else {
            return self.unexpected(STATEMENTS);
        };
        let name = text.clone();
        let start = self.take().at;
        if self.peek().kind != Kind::Byte(b'=') {
            return self.unknown_statement(&name, &start);
        }
        self.take();
        if inside {
            return self.fail_with(
                "syntax",
                &start,
                "a macro cannot be defined inside an anchor's braces",
                "define it above the anchor",
            );
        }
        self.macro_value(name, &start)
    }

    fn unknown_statement(&mut self, name: &str, at: &At) -> Step<()> {
        let error = Self::error("syntax", at, format!("`{name}` starts no statement"));
        let old = matches!(
            name,
            "nat" | "rdr" | "binat" | "nat-anchor" | "rdr-anchor" | "binat-anchor"
        );
        let error = if old && self.config.dialect == Dialect::OpenBsd {
            error.help("OpenBSD has `nat-to`, `rdr-to` and `binat-to` on rules; for FreeBSD's form give --dialect freebsd")
        } else if let Some(word) = nearest(name, STATEMENT_WORDS.iter().copied()) {
            error.help(format!("did you mean `{word}`?"))
        } else {
            error.help(format!("a statement starts with {STATEMENTS}"))
        };
        self.report(error);
        Err(Failed)
    }

    fn macro_value(&mut self, name: Arc<str>, start: &At) -> Step<()> {
        let mut value = String::new();
        let mut pieces = Vec::new();
        loop {
            let (text, exact, inset): (Arc<str>, bool, u32) = match &self.peek().kind {
                Kind::Text {
                    text,
                    quoted,
                    verbatim,
                } => (text.clone(), *verbatim, u32::from(*quoted)),
                Kind::Number(number) => (number.to_string().into(), true, 0),
                _ => break,
            };
            let token = self.take();
            if !value.is_empty() {
                value.push(' ');
            }
            let span = token.at.span;
            // The quotes are not part of the value.
            let exact = exact && span.end - span.start == text.len() as u32 + 2 * inset;
            let span = if exact {
                Span {
                    start: span.start + inset,
                    end: span.end - inset,
                    ..span
                }
            } else {
                span
            };
            pieces.push(Piece {
                offset: value.len() as u32,
                span,
                exact,
            });
            value.push_str(&text);
            if value.len() > MACRO_MAX {
                let most = MACRO_MAX >> 20;
                return self.fail_with(
                    "too-long",
                    start,
                    format!("the macro's value has more than {most} MiB"),
                    "put addresses into a table, with a file",
                );
            }
        }
        if pieces.is_empty() {
            return self.unexpected("the macro's value: words, or a string in quotes");
        }
        if name.contains(|c: char| c.is_whitespace()) {
            return self.fail("macro-name", start, "a macro's name cannot contain blanks");
        }
        let value: Arc<str> = value.into();
        self.ruleset.preamble.push(Preamble::Macro {
            name: name.clone(),
            value: value.clone(),
        });
        let definition = Some(start.span.to(self.last.span));
        let kept = self
            .lexer
            .macros
            .get(&name)
            .is_some_and(|other| other.persists);
        if !kept {
            let macro_ = Macro {
                value,
                pieces: pieces.into(),
                persists: false,
                definition,
            };
            self.lexer.macros.insert(name, macro_);
        }
        Ok(())
    }

    fn include(&mut self) -> Step<()> {
        self.take();
        let (path, at) = self.text("the path of a file")?;
        if self.lexer.reader.depth() >= INCLUDE_DEPTH_MAX {
            return self.fail_with(
                "include-depth",
                &at,
                format!("files include each other more than {INCLUDE_DEPTH_MAX} deep"),
                "does a file include itself?",
            );
        }
        let bytes = match self.read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                return self.fail(
                    "unreadable",
                    &at,
                    format!("cannot include \"{path}\": {error}"),
                );
            }
        };
        let Some((file, text)) = self.add_file(&path, &bytes, Some(at.usage)) else {
            return Err(Failed);
        };
        self.end_of_line(self.scopes.len() > 1)?;
        self.lexer.reader.open(file, text);
        // The caller takes the end of a line: the file's first is as good.
        self.peeked = Some(Token {
            kind: Kind::Newline,
            at: self.last.clone(),
        });
        Ok(())
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

    fn load_anchors(&mut self) {
        // Files that are loaded may load others.
        while let Some(load) = self.loads.pop_front() {
            let (path, span) = (load.path, load.at.usage);
            let bytes = match self.read(&load.file) {
                Ok(bytes) => bytes,
                Err(error) => {
                    let message = format!(
                        "cannot load anchor `{path}` from \"{}\": {error}",
                        load.file
                    );
                    let error = Self::error("unreadable", &load.at, message);
                    self.report(error);
                    continue;
                }
            };
            let Some((file, text)) = self.add_file(&load.file, &bytes, Some(span)) else {
                continue;
            };
            // pfctl forgets macros and policies between files; options of the command line stay.
            self.lexer.macros.clear();
            self.define_command_line_macros();
            self.block_policy = Return::Drop;
            self.fail_return = false;
            self.require_order = true;
            self.section = Section::None;
            self.loading = Some(path.clone());
            self.scopes = vec![anchor::Scope::default()];
            self.peeked = None;
            self.lexer.reader.open(file, text);
            let preamble = self.ruleset.preamble.len();
            self.statements(false);
            let anchor::Scope {
                rules,
                scrubs,
                translations,
                ..
            } = std::mem::take(&mut self.scopes[0]);
            let translations = freebsd::by_kind(translations);
            let preamble = self.ruleset.preamble.split_off(preamble);
            self.ruleset.loaded.push(LoadedAnchor {
                path,
                rules,
                scrubs,
                translations,
                preamble,
                span,
            });
        }
        self.loading = None;
    }
}

const STATEMENT_WORDS: &[&str] = &[
    "pass",
    "block",
    "match",
    "anchor",
    "set",
    "table",
    "include",
    "load",
    "antispoof",
    "queue",
];

const STATEMENTS: &str = "`pass`, `block`, `match`, `anchor`, `set`, `table`, `include`, `load`, `antispoof`, `queue` or a macro";

const FREEBSD_STATEMENTS: &str = "`pass`, `block`, `match`, `anchor`, `nat`, `rdr`, `binat`, `no`, `scrub`, `set`, \
     `table`, `include`, `load`, `antispoof` or a macro";

fn starts_statement(keyword: Keyword) -> bool {
    is_translation(keyword)
        || matches!(
            keyword,
            Keyword::Pass
                | Keyword::Block
                | Keyword::Match
                | Keyword::Anchor
                | Keyword::Table
                | Keyword::Include
                | Keyword::Load
                | Keyword::Antispoof
        )
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

/// The action of a bare `block`.
pub(crate) fn block(policy: Return) -> Action {
    Action::Block(policy)
}

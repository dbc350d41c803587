//! Statements, and the way on behind errors.

use std::sync::Arc;

use super::config::{INCLUDE_DEPTH_MAX, MACRO_MAX, Parsed};
use super::freebsd::{by_kind, is_translation};
use super::number::number;
use super::parser::{Failed, Parser, Step};
use super::scope::{Scope, Section};
use crate::lex::{At, Keyword, Kind, Macro, Piece, Token, nearest};
use crate::rule::{Dialect, LoadedAnchor, Options, Preamble, Return, Timeout};
use crate::source::Span;

impl Parser<'_> {
    pub(super) fn read_main(&mut self, path: &str, bytes: &[u8]) {
        let name = if path == "-" { "stdin" } else { path };
        self.define_command_line_macros();
        if let Some((file, text)) = self.add_file(name, bytes, None) {
            self.lexer.reader.open(file, text);
            self.statements(false);
        }
        let scope = std::mem::take(&mut self.scopes[0]);
        self.ruleset.rules = scope.rules;
        self.ruleset.scrubs = scope.scrubs;
        self.ruleset.translations = by_kind(scope.translations);
        self.check_queues();
        self.load_anchors();
    }

    pub(super) fn finish(mut self) -> Parsed {
        self.ruleset.queues = std::mem::take(&mut self.queues);
        for rules in [
            &mut self.ruleset.rules,
            &mut self.ruleset.scrubs,
            &mut self.ruleset.translations,
        ] {
            number(rules);
        }
        for anchor in &mut self.ruleset.loaded {
            for rules in [
                &mut anchor.rules,
                &mut anchor.scrubs,
                &mut anchor.translations,
            ] {
                number(rules);
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
        let defaults = Options::of(self.config.dialect);
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

    /// Reads statements to the end of the source, or to the brace that closes an anchor.
    pub(super) fn statements(&mut self, inside: bool) {
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

    pub(super) fn end_of_line(&mut self, inside: bool) -> Step<()> {
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
            self.scopes = vec![Scope::default()];
            self.peeked = None;
            self.lexer.reader.open(file, text);
            let preamble = self.ruleset.preamble.len();
            self.statements(false);
            let Scope {
                rules,
                scrubs,
                translations,
                ..
            } = std::mem::take(&mut self.scopes[0]);
            let translations = by_kind(translations);
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

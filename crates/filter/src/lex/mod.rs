//! Tokens of `pf.conf`, as `parse.y` of pfctl cuts them: macros are text, which is cut where it
//! is used.

mod keyword;
mod reader;

use std::fmt;
use std::sync::Arc;

pub use keyword::Keyword;
pub use reader::{At, Macro, Macros, Piece, Reader};

use crate::diagnostic::Diagnostic;
use crate::rule::Dialect;
use reader::Byte;

/// Most bytes of a token.
pub const TOKEN_MAX: usize = 8094;
/// Most bytes that all uses of macros stand for.
pub const EXPANDED_MAX: usize = if cfg!(fuzzing) { 1 << 20 } else { 8 << 20 };

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its kind.
    pub kind: Kind,
    /// Where it stands.
    pub at: At,
}

/// Kinds of tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A reserved word.
    Keyword(Keyword),
    /// A word, or a quoted string without its quotes.
    Text {
        /// Its text.
        text: Arc<str>,
        /// It stands in quotes.
        quoted: bool,
        /// Its source is the text byte for byte, but for the quotes.
        verbatim: bool,
    },
    /// A number.
    Number(i64),
    /// One byte of punctuation, or one that starts no token.
    Byte(u8),
    /// `!=`
    NotEqual,
    /// `<=`
    LessOrEqual,
    /// `>=`
    GreaterOrEqual,
    /// `><`
    Inside,
    /// `<>`
    Outside,
    /// `->`, of FreeBSD
    Arrow,
    /// The end of a line.
    Newline,
    /// The end of the configuration.
    End,
    /// Text that is no token; its error was reported, and the rest of the line skipped.
    Bad,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keyword(keyword) => write!(f, "`{}`", keyword.text()),
            Self::Text {
                text, quoted: true, ..
            } => write!(f, "\"{text}\""),
            Self::Text { text, .. } => write!(f, "`{text}`"),
            Self::Number(number) => write!(f, "`{number}`"),
            Self::Byte(byte) if byte.is_ascii_graphic() => write!(f, "`{}`", char::from(*byte)),
            Self::Byte(byte) => write!(f, "byte 0x{byte:02x}"),
            Self::NotEqual => f.write_str("`!=`"),
            Self::LessOrEqual => f.write_str("`<=`"),
            Self::GreaterOrEqual => f.write_str("`>=`"),
            Self::Inside => f.write_str("`><`"),
            Self::Outside => f.write_str("`<>`"),
            Self::Arrow => f.write_str("`->`"),
            Self::Newline => f.write_str("the end of the line"),
            Self::End => f.write_str("the end of the file"),
            Self::Bad => f.write_str("a broken token"),
        }
    }
}

/// Bytes that end a number; any other makes a word of it.
fn ends_number(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b || matches!(byte, b')' | b',' | b'/' | b'}' | b'=')
}

/// Bytes that a word starts with.
fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_')
}

/// Bytes inside a word.
pub(crate) fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || (byte.is_ascii_punctuation()
            && !matches!(
                byte,
                b'(' | b')' | b'{' | b'}' | b'<' | b'>' | b'!' | b'=' | b'/' | b'#' | b','
            ))
}

/// Cuts the bytes of a [`Reader`] into tokens.
#[derive(Debug, Default)]
pub struct Lexer {
    /// The source.
    pub reader: Reader,
    /// The macros that are defined.
    pub macros: Macros,
    /// The language, which has its own reserved words.
    pub dialect: Dialect,
    /// Macros that were used.
    pub used: std::collections::HashSet<Arc<str>>,
    /// Bytes that uses of macros stood for.
    expanded: usize,
    /// The word that is being read.
    word: Vec<u8>,
    /// A comment that is skipped.
    comment: Vec<u8>,
}

impl Lexer {
    /// A lexer of a dialect, without a source.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            ..Self::default()
        }
    }

    /// The next token. Bytes that are none are reported to `report`.
    pub fn token(&mut self, report: &mut dyn FnMut(Diagnostic)) -> Token {
        loop {
            let Some(first) = self.skip_blanks() else {
                return end();
            };
            if first.value == b'$' && first.usage == 0 {
                if let Err(token) = self.expand(first, report) {
                    return token;
                }
                continue;
            }
            return self.start(first, report);
        }
    }

    /// Outside quotes, a backslash joins lines, and is dropped before any other byte.
    fn next_byte(&mut self) -> Option<Byte> {
        loop {
            let byte = self.reader.read()?;
            if byte.value != b'\\' {
                return Some(byte);
            }
            match self.reader.read() {
                Some(next) if next.value == b'\n' => {}
                Some(next) => return Some(next),
                None => return None,
            }
        }
    }

    fn skip_blanks(&mut self) -> Option<Byte> {
        let mut byte = self.next_byte()?;
        while matches!(byte.value, b' ' | b'\t') {
            byte = self.next_byte()?;
        }
        if byte.value == b'#' {
            while byte.value != b'\n' {
                self.comment.clear();
                self.reader
                    .take_while(&mut self.comment, |byte| !matches!(byte, b'\n' | b'\\'));
                byte = self.next_byte()?;
            }
        }
        Some(byte)
    }

    fn skip_line(&mut self) {
        while let Some(byte) = self.next_byte() {
            if byte.value == b'\n' {
                self.reader.put_back(byte);
                return;
            }
        }
    }

    fn make(&self, kind: Kind, first: Byte, last: Byte) -> Token {
        Token {
            kind,
            at: self.reader.place(first, last),
        }
    }

    fn bad(
        &mut self,
        report: &mut dyn FnMut(Diagnostic),
        first: Byte,
        last: Byte,
        diagnose: impl FnOnce(&At) -> Diagnostic,
    ) -> Token {
        let token = self.make(Kind::Bad, first, last);
        report(diagnose(&token.at));
        self.skip_line();
        token
    }

    /// Reads `$name`, and its value next.
    fn expand(&mut self, dollar: Byte, report: &mut dyn FnMut(Diagnostic)) -> Result<(), Token> {
        let mut name = Vec::new();
        let mut last = dollar;
        while let Some(byte) = self.next_byte() {
            if !(byte.value.is_ascii_alphanumeric() || byte.value == b'_')
                || name.len() >= TOKEN_MAX
            {
                self.reader.put_back(byte);
                break;
            }
            name.push(byte.value);
            last = byte;
        }
        let name: Arc<str> = String::from_utf8_lossy(&name).into();
        let at = self.reader.place(dollar, last);
        let Some(definition) = self.macros.get(&name).cloned() else {
            let nearest = nearest(&name, self.macros.keys().map(AsRef::as_ref));
            return Err(self.bad(report, dollar, last, |at| {
                let error = Diagnostic::error(
                    "undefined-macro",
                    at.usage,
                    if name.is_empty() {
                        "`$` stands before no name of a macro".into()
                    } else {
                        format!("macro `{name}` is not defined")
                    },
                );
                match nearest {
                    Some(other) => error.help(format!("did you mean `${other}`?")),
                    None => error.help("define it above its first use: `name = \"value\"`"),
                }
            }));
        };
        self.expanded += definition.value.len();
        if self.expanded > EXPANDED_MAX {
            return Err(self.bad(report, dollar, last, |at| {
                let message = format!("macros stand for more than {} MiB", EXPANDED_MAX >> 20);
                Diagnostic::error("too-long", at.usage, message)
                    .help("do macros double each other? Put addresses into a table")
            }));
        }
        self.used.insert(name.clone());
        self.reader.expand(name, at.usage, &definition);
        Ok(())
    }

    fn start(&mut self, first: Byte, report: &mut dyn FnMut(Diagnostic)) -> Token {
        match first.value {
            b'\'' | b'"' => self.quoted(first, report),
            b'!' => self.pair(first, &[(b'=', Kind::NotEqual)]),
            b'<' => self.pair(first, &[(b'>', Kind::Outside), (b'=', Kind::LessOrEqual)]),
            b'>' => self.pair(first, &[(b'<', Kind::Inside), (b'=', Kind::GreaterOrEqual)]),
            b'-' if self.dialect == Dialect::FreeBsd => match self.next_byte() {
                Some(next) if next.value == b'>' => self.make(Kind::Arrow, first, next),
                next => {
                    if let Some(next) = next {
                        self.reader.put_back(next);
                    }
                    self.number(first, report)
                }
            },
            b'-' | b'0'..=b'9' => self.number(first, report),
            b'\n' => self.make(Kind::Newline, first, first),
            byte if starts_word(byte) => {
                self.word.clear();
                self.word.push(byte);
                self.word(first, first, report)
            }
            byte if !byte.is_ascii() => self.foreign(first, report),
            byte => self.make(Kind::Byte(byte), first, first),
        }
    }

    /// Characters beyond ASCII, which no token starts with.
    fn foreign(&mut self, first: Byte, report: &mut dyn FnMut(Diagnostic)) -> Token {
        let (mut text, mut last) = (vec![first.value], first);
        while let Some(byte) = self.reader.read() {
            if byte.value.is_ascii() {
                self.reader.put_back(byte);
                break;
            }
            text.push(byte.value);
            last = byte;
        }
        let text = String::from_utf8_lossy(&text);
        let shown: String = text.chars().take(20).collect();
        let help = if text.starts_with('\u{feff}') {
            "this is a byte order mark: save the file without it"
        } else if text.contains('\u{fffd}') {
            "is this a text file, in ASCII or UTF-8?"
        } else {
            "quote it where a name is meant"
        };
        self.bad(report, first, last, |at| {
            let message = format!("`{shown}` can stand in quotes and comments only");
            Diagnostic::error("syntax", at.usage, message).help(help)
        })
    }

    fn pair(&mut self, first: Byte, pairs: &[(u8, Kind)]) -> Token {
        if let Some(next) = self.next_byte() {
            if let Some((_, kind)) = pairs.iter().find(|(second, _)| *second == next.value) {
                return self.make(kind.clone(), first, next);
            }
            self.reader.put_back(next);
        }
        self.make(Kind::Byte(first.value), first, first)
    }

    fn quoted(&mut self, quote: Byte, report: &mut dyn FnMut(Diagnostic)) -> Token {
        let mut text = Vec::new();
        let mut verbatim = true;
        let mut last = quote;
        loop {
            let Some(mut byte) = self.reader.read() else {
                return self.bad(report, quote, last, |at| {
                    Diagnostic::error("unclosed-quote", at.usage, "the quoted string has no end")
                        .help("close it with the same quote")
                });
            };
            if byte.value == b'\n' && byte.start == byte.end && byte.usage == 0 {
                // The newline that the reader adds at the end of a file.
                self.reader.put_back(byte);
                return self.bad(report, quote, quote, |at| {
                    Diagnostic::error("unclosed-quote", at.usage, "the quoted string has no end")
                        .help("close it with the same quote")
                });
            }
            last = byte;
            match byte.value {
                b'\n' => {
                    verbatim = false;
                    continue;
                }
                b'\\' => match self.reader.read() {
                    Some(next)
                        if next.value == quote.value || matches!(next.value, b' ' | b'\t') =>
                    {
                        verbatim = false;
                        byte = next;
                    }
                    Some(next) if next.value == b'\n' => {
                        verbatim = false;
                        continue;
                    }
                    Some(next) => self.reader.put_back(next),
                    None => continue,
                },
                value if value == quote.value => break,
                0 => {
                    return self.bad(report, quote, byte, |at| {
                        Diagnostic::error("syntax", at.usage, "a quoted string has a NUL byte")
                            .help("is this a text file?")
                    });
                }
                _ => {}
            }
            if text.len() >= TOKEN_MAX {
                return self.bad(report, quote, quote, too_long);
            }
            text.push(byte.value);
        }
        let text = match String::from_utf8(text) {
            Ok(text) => text.into(),
            Err(error) => {
                verbatim = false;
                String::from_utf8_lossy(error.as_bytes()).into()
            }
        };
        self.make(
            Kind::Text {
                text,
                quoted: true,
                verbatim,
            },
            quote,
            last,
        )
    }

    fn number(&mut self, first: Byte, report: &mut dyn FnMut(Diagnostic)) -> Token {
        let mut text = vec![first.value];
        let mut bytes = vec![first];
        let mut last = first;
        let next = loop {
            match self.next_byte() {
                Some(byte) if byte.value.is_ascii_digit() => {
                    if text.len() >= TOKEN_MAX {
                        return self.bad(report, first, byte, too_long);
                    }
                    text.push(byte.value);
                    bytes.push(byte);
                    last = byte;
                }
                next => break next,
            }
        };
        if let Some(byte) = next {
            self.reader.put_back(byte);
        }
        let ends = next.is_none_or(|byte| ends_number(byte.value));
        if text == b"-" || (first.value == b'-' && !ends) {
            for &byte in bytes[1..].iter().rev() {
                self.reader.put_back(byte);
            }
            return self.make(Kind::Byte(b'-'), first, first);
        }
        if !ends {
            self.word.clear();
            self.word.extend(text);
            return self.word(first, last, report);
        }
        match String::from_utf8_lossy(&text).parse() {
            Ok(number) => self.make(Kind::Number(number), first, last),
            Err(_) => self.bad(report, first, last, |at| {
                Diagnostic::error("number", at.usage, "the number does not fit 64 bits")
                    .help("write a smaller number, or quote it where a name is meant")
            }),
        }
    }

    /// Reads the rest of a word, whose start is there.
    fn word(&mut self, first: Byte, mut last: Byte, report: &mut dyn FnMut(Diagnostic)) -> Token {
        loop {
            let plain = |byte| in_word(byte) && byte != b'\\';
            if let Some(byte) = self.reader.take_while(&mut self.word, plain) {
                last = byte;
            }
            match self.next_byte() {
                Some(byte) if in_word(byte.value) && self.word.len() < TOKEN_MAX => {
                    self.word.push(byte.value);
                    last = byte;
                }
                next => {
                    if let Some(byte) = next {
                        self.reader.put_back(byte);
                    }
                    break;
                }
            }
        }
        if self.word.len() >= TOKEN_MAX {
            return self.bad(report, first, last, too_long);
        }
        if let Some(keyword) = Keyword::by_text(&self.word, self.dialect) {
            return self.make(Kind::Keyword(keyword), first, last);
        }
        // Words are ASCII.
        let text = String::from_utf8_lossy(&self.word).into();
        self.make(
            Kind::Text {
                text,
                quoted: false,
                verbatim: true,
            },
            first,
            last,
        )
    }
}

fn end() -> Token {
    let span = crate::source::Span {
        file: crate::source::FileId(0),
        start: u32::MAX,
        end: u32::MAX,
    };
    Token {
        kind: Kind::End,
        at: At::plain(span),
    }
}

fn too_long(at: &At) -> Diagnostic {
    Diagnostic::error(
        "too-long",
        at.usage,
        format!("a token has at most {TOKEN_MAX} bytes"),
    )
    .help("split it, for example a list into several macros")
}

/// Most names that one is compared with.
const NEAR_MAX: usize = 1024;

/// The name that `name` was likely meant to be.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let most = match name.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        _ => 2,
    };
    let near = |other: &&str| other.len().abs_diff(name.len()) <= most;
    let names = names.filter(near).take(NEAR_MAX);
    let distances = names.map(|other| (strsim::osa_distance(name, other), other));
    // Of two that are as near, letters that changed places were likely meant, and the first is right.
    let first = name.chars().next();
    let best = distances
        .filter(|&(distance, _)| distance > 0 && distance <= most)
        .min_by_key(|&(distance, other)| {
            let other_letters = letters(other) != letters(name);
            (
                distance,
                other_letters,
                other.chars().next() != first,
                other,
            )
        })?;
    Some(best.1.to_owned())
}

fn letters(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}

//! Units of the source: the lexer's words and marks, with comments and blanks.

use crate::lex::in_word;

/// A piece of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit<'t> {
    /// Blanks and tabs.
    Blank,
    /// The end of a line.
    Newline,
    /// A backslash and the end of a line.
    Continuation,
    /// From `#` to the end of its line, with lines that a backslash joins to it.
    Comment(&'t str),
    /// A word, a number or a macro's use, with the text written up against it.
    Word(&'t str),
    /// A string with its quotes.
    Quoted(&'t str),
    /// One byte, or an operator of two.
    Mark(&'t str),
}

impl<'t> Unit<'t> {
    pub(super) fn text(&self) -> &'t str {
        match self {
            Self::Blank | Self::Newline | Self::Continuation => "",
            Self::Comment(text) | Self::Word(text) | Self::Quoted(text) | Self::Mark(text) => text,
        }
    }

    pub(super) fn has_meaning(&self) -> bool {
        !self.text().is_empty()
    }
}

/// Cuts a text into units, which together are the whole text but for blanks at ends of comments.
pub(super) fn units(text: &str) -> Vec<Unit<'_>> {
    let mut units = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (unit, length) = unit(rest);
        units.push(unit);
        rest = &rest[length..];
    }
    units
}

fn unit(text: &str) -> (Unit<'_>, usize) {
    let bytes = text.as_bytes();
    match bytes[0] {
        b' ' | b'\t' | b'\r' => {
            let length = bytes
                .iter()
                .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
                .count();
            (Unit::Blank, length)
        }
        b'\n' => (Unit::Newline, 1),
        b'\\' if bytes.get(1) == Some(&b'\n') => (Unit::Continuation, 2),
        b'#' => {
            let length = comment(bytes);
            (Unit::Comment(text[..length].trim_end()), length)
        }
        b'"' | b'\'' => {
            let length = quoted(bytes);
            (Unit::Quoted(&text[..length]), length)
        }
        b'!' | b'<' | b'>' => {
            let length = operator(bytes);
            (Unit::Mark(&text[..length]), length)
        }
        _ => {
            let length = word(bytes);
            if length > 0 {
                return (Unit::Word(&text[..length]), length);
            }
            let length = text.chars().next().map_or(1, char::len_utf8);
            (Unit::Mark(&text[..length]), length)
        }
    }
}

/// Length of a comment: to the first newline that no backslash stands before.
fn comment(bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < bytes.len() && bytes[at] != b'\n' {
        // Any byte after a backslash belongs to the comment, a newline too.
        at += if bytes[at] == b'\\' && at + 1 < bytes.len() {
            2
        } else {
            1
        };
    }
    at
}

fn quoted(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            byte if byte == bytes[0] => return at + 1,
            b'\\' if at + 1 < bytes.len() && bytes[at + 1] == bytes[0] => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn operator(bytes: &[u8]) -> usize {
    let pair = matches!(
        bytes,
        [b'!', b'=', ..] | [b'<', b'>' | b'=', ..] | [b'>', b'<' | b'=', ..]
    );
    if pair { 2 } else { 1 }
}

/// Length of a word or of `$name` with the text up against it; 0 for no word.
fn word(bytes: &[u8]) -> usize {
    let first = bytes[0];
    let starts = first.is_ascii_alphanumeric()
        || matches!(first, b':' | b'_' | b'$')
        // A negative number.
        || first == b'-' && bytes.get(1).is_some_and(u8::is_ascii_digit)
        || first == b'\\';
    if !starts {
        return 0;
    }
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            // A line that goes on in the middle of a word stays as it is.
            b'\\' if bytes.get(at + 1) == Some(&b'\n') => {
                if !bytes.get(at + 2).is_some_and(|&byte| in_word(byte)) {
                    return at;
                }
                at += 2;
            }
            byte if in_word(byte) => at += 1,
            _ => return at,
        }
    }
    at
}

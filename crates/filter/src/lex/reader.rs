//! Bytes of the source: of files, and of macros where they are used.

use std::collections::HashMap;
use std::sync::Arc;

use crate::source::{FileId, Span};

/// Where a token stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// Its text: in the macro's definition when a macro gave it.
    pub span: Span,
    /// Where the statement uses the macro that gave it; otherwise as `span`.
    pub usage: Span,
    /// The macro that gave it.
    pub macro_name: Option<Arc<str>>,
}

impl At {
    /// A place that no macro gave.
    #[must_use]
    pub fn plain(span: Span) -> Self {
        Self {
            span,
            usage: span,
            macro_name: None,
        }
    }

    /// From the start of this place to the end of `other`, in the statement and in the text.
    #[must_use]
    pub fn to(&self, other: &Self) -> Self {
        Self {
            span: self.span.to(other.span),
            usage: self.usage.to(other.usage),
            macro_name: self.macro_name.clone(),
        }
    }
}

/// A macro.
#[derive(Clone, Debug)]
pub struct Macro {
    /// Its value.
    pub value: Arc<str>,
    /// Which source gave each part of the value.
    pub pieces: Arc<[Piece]>,
    /// It came from the command line, which wins over the file.
    pub persists: bool,
    /// Its definition.
    pub definition: Option<Span>,
}

/// A part of a macro's value and its source.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Offset in the value.
    pub offset: u32,
    /// The source.
    pub span: Span,
    /// The value has the source's bytes one by one; else the whole source stands for each byte.
    pub exact: bool,
}

/// A byte and its place.
#[derive(Clone, Copy, Debug)]
pub struct Byte {
    /// Its value.
    pub value: u8,
    /// First byte of its source.
    pub start: u32,
    /// Past the last byte of its source.
    pub end: u32,
    /// File of its source.
    pub file: FileId,
    /// Index into [`Reader::uses`], plus one; 0 for a byte that no macro gave.
    pub usage: u32,
}

/// A use of a macro.
#[derive(Clone, Debug)]
struct Use {
    name: Arc<str>,
    span: Span,
}

#[derive(Debug)]
enum Frame {
    File {
        id: FileId,
        text: Arc<str>,
        at: usize,
        ended: bool,
    },
    Macro {
        text: Arc<str>,
        at: usize,
        pieces: Arc<[Piece]>,
        usage: u32,
    },
    /// Bytes that were put back before a macro or a file was opened, the last first.
    Back(Vec<Byte>),
}

/// Reads bytes from a stack of files and macros.
#[derive(Debug, Default)]
pub struct Reader {
    frames: Vec<Frame>,
    back: Vec<Byte>,
    uses: Vec<Use>,
    files: usize,
}

impl Reader {
    /// Starts to read a file; the one that is being read goes on after it.
    pub fn open(&mut self, id: FileId, text: Arc<str>) {
        self.keep_back();
        self.frames.push(Frame::File {
            id,
            text,
            at: 0,
            ended: false,
        });
        self.files += 1;
    }

    fn keep_back(&mut self) {
        if !self.back.is_empty() {
            self.frames
                .push(Frame::Back(std::mem::take(&mut self.back)));
        }
    }

    /// How many files are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.files
    }

    /// Reads a macro's value next. `name` is used at `span`.
    pub fn expand(&mut self, name: Arc<str>, span: Span, definition: &Macro) {
        self.uses.push(Use { name, span });
        let usage = self.uses.len() as u32;
        self.keep_back();
        let text = definition.value.clone();
        self.frames.push(Frame::Macro {
            text,
            at: 0,
            pieces: definition.pieces.clone(),
            usage,
        });
    }

    /// Forgets uses of macros: of statements that are over.
    pub fn end_statement(&mut self) {
        let expanding = self
            .frames
            .iter()
            .any(|frame| !matches!(frame, Frame::File { .. }));
        if !expanding && self.back.is_empty() {
            self.uses.clear();
        }
    }

    /// The next byte. A file that ends without a newline gets one. `None` at the end.
    pub fn read(&mut self) -> Option<Byte> {
        if let Some(byte) = self.back.pop() {
            return Some(byte);
        }
        loop {
            let end = match self.frames.last_mut()? {
                Frame::File {
                    id,
                    text,
                    at,
                    ended,
                } => {
                    if let Some(&value) = text.as_bytes().get(*at) {
                        let start = *at as u32;
                        *at += 1;
                        return Some(Byte {
                            value,
                            start,
                            end: start + 1,
                            file: *id,
                            usage: 0,
                        });
                    }
                    if !*ended {
                        *ended = true;
                        let start = text.len() as u32;
                        return Some(Byte {
                            value: b'\n',
                            start,
                            end: start,
                            file: *id,
                            usage: 0,
                        });
                    }
                    true
                }
                Frame::Macro {
                    text,
                    at,
                    pieces,
                    usage,
                } => {
                    if let Some(&value) = text.as_bytes().get(*at) {
                        let offset = *at as u32;
                        *at += 1;
                        return Some(locate(value, offset, pieces, *usage));
                    }
                    false
                }
                Frame::Back(bytes) => {
                    if let Some(byte) = bytes.pop() {
                        return Some(byte);
                    }
                    false
                }
            };
            if end {
                self.files -= 1;
            }
            self.frames.pop();
        }
    }

    /// Takes bytes of the file that is being read as long as they are `wanted`, into `text`.
    /// Returns the last one. Elsewhere it takes none: [`Self::read`] does.
    pub fn take_while(&mut self, text: &mut Vec<u8>, wanted: impl Fn(u8) -> bool) -> Option<Byte> {
        if !self.back.is_empty() {
            return None;
        }
        let Some(Frame::File {
            id,
            text: source,
            at,
            ..
        }) = self.frames.last_mut()
        else {
            return None;
        };
        let rest = source.as_bytes().get(*at..)?;
        let length = rest
            .iter()
            .position(|&byte| !wanted(byte))
            .unwrap_or(rest.len());
        let &value = rest.get(length.checked_sub(1)?)?;
        text.extend_from_slice(&rest[..length]);
        *at += length;
        let end = *at as u32;
        Some(Byte {
            value,
            start: end - 1,
            end,
            file: *id,
            usage: 0,
        })
    }

    /// Puts a byte back, to be read next.
    pub fn put_back(&mut self, byte: Byte) {
        self.back.push(byte);
    }

    /// Place of the bytes from `first` to `last`.
    #[must_use]
    pub fn place(&self, first: Byte, last: Byte) -> At {
        let span = Span {
            file: first.file,
            start: first.start,
            end: first.end,
        };
        let last_span = Span {
            file: last.file,
            start: last.start,
            end: last.end,
        };
        match self.uses.get((first.usage as usize).wrapping_sub(1)) {
            None => At::plain(span.to(last_span)),
            Some(usage) => {
                // `$ext_if:network`: the word ends outside the macro.
                let end = if last.usage == 0 {
                    usage.span.to(last_span)
                } else {
                    usage.span
                };
                At {
                    span: span.to(last_span),
                    usage: end,
                    macro_name: Some(usage.name.clone()),
                }
            }
        }
    }
}

fn locate(value: u8, offset: u32, pieces: &[Piece], usage: u32) -> Byte {
    let at = pieces.partition_point(|piece| piece.offset <= offset);
    let Some(piece) = pieces[..at].last() else {
        return Byte {
            value,
            start: 0,
            end: 0,
            file: FileId(0),
            usage,
        };
    };
    let Span { file, start, end } = piece.span;
    if !piece.exact {
        return Byte {
            value,
            start,
            end,
            file,
            usage,
        };
    }
    let start = (start + offset - piece.offset).min(end);
    Byte {
        value,
        start,
        end: (start + 1).min(end),
        file,
        usage,
    }
}

/// Macros by name.
pub type Macros = HashMap<Arc<str>, Macro>;

//! Source files: their text, places in them, and how they are read.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Number of a file in [`Sources`], in the order in which files were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A range of bytes in a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset past the last byte.
    pub end: u32,
}

impl Span {
    /// The range from the start of this one to the end of `other`, which is in the same file.
    /// A span of another file leaves this one as it is.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        if self.file != other.file || other.end < self.start {
            return self;
        }
        Self {
            end: other.end,
            ..self
        }
    }
}

/// A place as people count it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    /// Name of the file, as it was opened.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A source file.
#[derive(Debug)]
pub struct SourceFile {
    /// Its name, as it was opened.
    pub name: String,
    /// Its text. Bytes that are not UTF-8 were replaced by U+FFFD.
    pub text: Arc<str>,
    line_starts: Vec<u32>,
}

/// All files that were read for a rule set.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// Adds a file, whose text is at most 4 GiB.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> FileId {
        let text = text.into();
        let newlines = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let line_starts = std::iter::once(0)
            .chain(newlines.map(|(at, _)| at as u32 + 1))
            .collect();
        self.files.push(SourceFile {
            name: name.into(),
            text,
            line_starts,
        });
        FileId(self.files.len() as u32 - 1)
    }

    /// The file with this number.
    ///
    /// # Panics
    /// When the number is another `Sources`'s.
    #[must_use]
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// All files, in the order in which they were opened.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &SourceFile> {
        self.files.iter()
    }

    /// Line of a span's first byte, from 1.
    #[must_use]
    pub fn line(&self, span: Span) -> u32 {
        self.file(span.file)
            .line_starts
            .partition_point(|&start| start <= span.start) as u32
    }

    /// Place of a span's first byte.
    #[must_use]
    pub fn place(&self, span: Span) -> Place {
        let file = self.file(span.file);
        let line = self.line(span);
        let start = file.line_starts[line as usize - 1] as usize;
        let before = file.text.get(start..span.start as usize).unwrap_or("");
        Place {
            file: file.name.clone(),
            line,
            column: before.chars().count() as u32 + 1,
        }
    }

    /// The text of a span.
    #[must_use]
    pub fn text(&self, span: Span) -> &str {
        self.file(span.file)
            .text
            .get(span.start as usize..span.end as usize)
            .unwrap_or("")
    }
}

/// Reads files: the configuration, included files, those of tables and of loaded anchors.
pub trait Loader {
    /// The bytes of the file at this path, as written in the configuration.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;
}

/// Files held in memory.
#[derive(Clone, Debug, Default)]
pub struct Memory(BTreeMap<String, Vec<u8>>);

impl Memory {
    /// Adds a file.
    pub fn add(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> &mut Self {
        self.0.insert(path.into(), bytes.into());
        self
    }
}

impl Loader for Memory {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.0
            .get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

//! The refusal of a request, and its text.

use crate::error::{Error, ErrorKind};

/// The broker's reason not to open a socket.
///
/// ```
/// use xsk::ErrorKind;
/// use xsk::broker::Refusal;
///
/// let refusal = Refusal::new(ErrorKind::QueueBusy, "queue 2 is leased to dns");
/// assert_eq!(refusal.write(), "error busy\nqueue 2 is leased to dns");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    kind: ErrorKind,
    message: String,
}

/// The word for each kind.
const WORDS: [(&str, ErrorKind); 14] = [
    ("config", ErrorKind::InvalidConfig),
    ("denied", ErrorKind::PermissionDenied),
    ("lock", ErrorKind::MemoryLock),
    ("memory", ErrorKind::OutOfMemory),
    ("unsupported", ErrorKind::Unsupported),
    ("device", ErrorKind::DeviceMissing),
    ("down", ErrorKind::DeviceDown),
    ("queue", ErrorKind::QueueOutOfRange),
    ("mtu", ErrorKind::MtuTooLarge),
    ("busy", ErrorKind::QueueBusy),
    ("program", ErrorKind::ProgramAttached),
    ("mode", ErrorKind::ModeRefused),
    ("foreign", ErrorKind::Foreign),
    ("os", ErrorKind::Os),
];

impl Refusal {
    /// Longest message, in bytes; the rest is cut off.
    pub const MOST: usize = 2048;

    /// A refusal with its cause and cure.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Its message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The reply.
    pub fn write(&self) -> String {
        let word = WORDS.iter().find(|(_, kind)| *kind == self.kind);
        let word = word.map_or("os", |(word, _)| word);
        let mut reply = format!("error {word}\n{}", self.message);
        let mut end = Self::MOST.min(reply.len());
        while !reply.is_char_boundary(end) {
            end -= 1;
        }
        reply.truncate(end);
        reply
    }

    /// The refusal of a reply, if it is one.
    pub fn read(reply: &[u8]) -> Option<Self> {
        let rest = reply.strip_prefix(b"error ")?;
        let text = String::from_utf8_lossy(rest);
        let (word, message) = text.split_once('\n').unwrap_or((&text, ""));
        let kind = WORDS.iter().find(|(known, _)| *known == word);
        let kind = kind.map_or(ErrorKind::Os, |&(_, kind)| kind);
        // It may be shown in a terminal.
        let plain = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
        Some(Self::new(
            kind,
            message.chars().map(plain).collect::<String>(),
        ))
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.kind, refusal.message).context("the broker refuses")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_survives_the_way() {
        for (_, kind) in WORDS {
            let refusal = Refusal::new(kind, "two\nlines");
            let read = Refusal::read(refusal.write().as_bytes());
            assert_eq!(read, Some(refusal));
        }
    }

    #[test]
    fn a_reply_is_cut_at_a_character_and_made_plain() {
        let long = Refusal::new(ErrorKind::Os, "é".repeat(Refusal::MOST));
        assert!(long.write().len() <= Refusal::MOST);
        let read = Refusal::read(b"error what\n\x1b[31mred\xff").expect("a refusal");
        assert_eq!(read.kind(), ErrorKind::Os);
        assert_eq!(read.message(), "?[31mred\u{fffd}");
        assert_eq!(Refusal::read(b"ok\n"), None);
    }
}

//! Packets in words.
//!
//! ```text
//! in on em0 proto tcp from 10.0.0.5 port 4000 to 192.0.2.1 port 22 flags S
//! out on em1 proto icmp from 192.0.2.1 to 10.0.0.5 icmp-type unreach code port-unr about proto udp from …
//! ```

mod build;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::sync::Arc;

use super::{Packet, RouteTo};
use crate::host::Host;
use crate::names;
use crate::rule::Direction;

pub(crate) use write::flag_letters;

/// Why words are no packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordError {
    /// Offset of the first byte it is about; the text's length if something is missing.
    pub at: usize,
    /// The cause, without a full stop.
    pub message: String,
    /// The cure, without a full stop.
    pub help: String,
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {}): {}", self.message, self.at, self.help)
    }
}

impl std::error::Error for WordError {}

type Result<T> = std::result::Result<T, WordError>;

fn error<T>(at: usize, message: impl Into<String>, help: impl Into<String>) -> Result<T> {
    Err(WordError {
        at,
        message: message.into(),
        help: help.into(),
    })
}

/// A word and its offset.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    at: usize,
    text: &'a str,
}

/// Words that take a value, with the value's description.
const VALUES: &[(&str, &str)] = &[
    ("on", "an interface, such as em0"),
    ("received-on", "an interface, such as em1"),
    ("proto", "a protocol: tcp, udp, icmp, icmp6, or a number"),
    ("flags", "letters of FSRPAUEW, or none"),
    ("seq", "a sequence number"),
    ("ack", "an acknowledgement number"),
    ("window", "a window, 0 to 65535"),
    ("urgent", "an urgent pointer, 0 to 65535"),
    ("length", "bytes of data, 0 to 65535"),
    ("mss", "a segment size, 0 to 65535"),
    ("wscale", "a window scale, 0 to 14"),
    ("icmp-type", "a type such as echoreq, or a number"),
    ("icmp6-type", "a type such as echoreq, or a number"),
    ("code", "a code such as port-unr, or a number"),
    ("id", "an ICMP identifier, 0 to 65535"),
    ("target", "an IPv6 address"),
    ("offset", "the fragment's offset in bytes, a multiple of 8"),
    ("data", "bytes in hexadecimal digits"),
    ("ip-id", "an identification"),
    ("tos", "a value such as 0x10 or lowdelay"),
    ("ttl", "a number, 0 to 255"),
    ("hop-limit", "a number, 0 to 255"),
    ("tagged", "a tag"),
    ("rdomain", "a number"),
    ("prio", "a number, 0 to 7"),
    ("user", "a user's name or number, or unknown"),
    ("group", "a group's name or number, or unknown"),
    ("os", "an operating system, such as OpenBSD"),
    ("source-route", "none, some, or a label"),
    ("destination-route", "none, some, or a label"),
    ("urpf", "passed or failed"),
];

/// Words without a value.
const MARKS: &[&str] = &[
    "fragment",
    "more",
    "df",
    "options",
    "allow-opts",
    "router-alert",
    "bad-checksum",
    "generated",
    "inet",
    "inet6",
];

/// The words, before names are looked up.
#[derive(Default)]
struct Raw<'a> {
    direction: Option<(usize, Direction)>,
    from: Option<Peer<'a>>,
    to: Option<Peer<'a>>,
    values: Vec<(&'static str, Word<'a>)>,
    marks: Vec<(&'static str, usize)>,
    about: Option<Box<Raw<'a>>>,
    /// Length of the text.
    end: usize,
}

#[derive(Clone, Copy)]
struct Peer<'a> {
    address: Word<'a>,
    port: Option<Word<'a>>,
}

impl Packet {
    /// Reads a packet in words, as [`to_words`](Self::to_words) writes it. Direction, interface,
    /// protocol, and both addresses must be given; TCP and UDP need a destination port.
    ///
    /// Names of services, protocols, users, groups and hosts are the host's. Defaults are:
    /// source port 49152, `flags S`, TTL 64 (255 for neighbour discovery, 1 for MLD and IGMP), no
    /// data, no options, no tag, routing domain 0, priority 3, owner and routes unknown.
    ///
    /// # Errors
    /// The first word that does not fit, or the missing part.
    pub fn parse(text: &str, host: &Host) -> Result<Self> {
        let words = split(text)?;
        let raw = Raw::read(&words, text.len(), false)?;
        raw.packet(host)
    }

    /// The packet in words that [`parse`](Self::parse) reads.
    pub fn to_words(&self) -> String {
        self.to_string()
    }
}

/// Splits text at white space; double quotes keep it together.
fn split(text: &str) -> Result<Vec<Word<'_>>> {
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let at = text.len() - rest.len();
        if rest.is_empty() {
            return Ok(words);
        }
        if let Some(quoted) = rest.strip_prefix('"') {
            let Some(end) = quoted.find('"') else {
                return error(at, "a quote is not closed", "add \" at the end of the name");
            };
            words.push(Word {
                at,
                text: &quoted[..end],
            });
            rest = &quoted[end + 1..];
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            words.push(Word {
                at,
                text: &rest[..end],
            });
            rest = &rest[end..];
        }
    }
}

impl<'a> Raw<'a> {
    fn read(words: &[Word<'a>], end: usize, about: bool) -> Result<Self> {
        let mut raw = Self {
            end,
            ..Self::default()
        };
        let mut rest = words.iter().copied();
        let mut pending: Option<(bool, Peer<'a>)> = None;
        while let Some(word) = rest.next() {
            if word.text != "port" {
                raw.settle(&mut pending);
            }
            match word.text {
                "in" => raw.set_direction(word.at, Direction::In)?,
                "out" => raw.set_direction(word.at, Direction::Out)?,
                "from" | "to" => {
                    let address = value(&mut rest, word, "an address", end)?;
                    pending = Some((
                        word.text == "from",
                        Peer {
                            address,
                            port: None,
                        },
                    ));
                }
                "port" => {
                    let port = value(&mut rest, word, "a port", end)?;
                    let Some((_, peer)) = &mut pending else {
                        return error(
                            word.at,
                            "\"port\" without an address",
                            "write it after \"from …\" or \"to …\"",
                        );
                    };
                    peer.port = Some(port);
                }
                "about" if !about => {
                    let inner: Vec<_> = rest.by_ref().collect();
                    raw.about = Some(Box::new(Self::read(&inner, end, true)?));
                }
                _ => raw.keyword(word, &mut rest)?,
            }
        }
        raw.settle(&mut pending);
        Ok(raw)
    }

    fn settle(&mut self, pending: &mut Option<(bool, Peer<'a>)>) {
        match pending.take() {
            Some((true, peer)) => self.from = Some(peer),
            Some((false, peer)) => self.to = Some(peer),
            None => {}
        }
    }

    fn set_direction(&mut self, at: usize, direction: Direction) -> Result<()> {
        if self.direction.replace((at, direction)).is_some() {
            return error(at, "a second direction", "say either in or out");
        }
        Ok(())
    }

    fn keyword(&mut self, word: Word<'a>, rest: &mut impl Iterator<Item = Word<'a>>) -> Result<()> {
        if let Some(&(key, what)) = VALUES.iter().find(|(key, _)| *key == word.text) {
            let value = value(rest, word, what, self.end)?;
            if self.values.iter().any(|(other, _)| *other == key) {
                return error(word.at, format!("a second \"{key}\""), "say it once");
            }
            self.values.push((key, value));
            return Ok(());
        }
        if let Some(&mark) = MARKS.iter().find(|&&mark| mark == word.text) {
            self.marks.push((mark, word.at));
            return Ok(());
        }
        error(
            word.at,
            format!("\"{}\" is no word of a packet", word.text),
            "write it like \"in on em0 proto tcp from 10.0.0.5 port 4000 to 192.0.2.1 port 22 flags S\"",
        )
    }

    fn get(&self, key: &str) -> Option<Word<'a>> {
        self.values
            .iter()
            .find(|(other, _)| *other == key)
            .map(|&(_, word)| word)
    }

    fn has(&self, mark: &str) -> bool {
        self.marks.iter().any(|(other, _)| *other == mark)
    }

    /// A number of any width that `T` can hold, decimal or hexadecimal.
    fn number<T: TryFrom<u32>>(&self, key: &str, default: T) -> Result<T> {
        let Some(word) = self.get(key) else {
            return Ok(default);
        };
        number(word)
            .and_then(|value| T::try_from(value).ok())
            .map_or_else(|| wrong(key, word), Ok)
    }
}

fn value<'a>(
    rest: &mut impl Iterator<Item = Word<'a>>,
    word: Word<'_>,
    what: &str,
    end: usize,
) -> Result<Word<'a>> {
    match rest.next() {
        Some(value) => Ok(value),
        None => error(
            end,
            format!("nothing after \"{}\"", word.text),
            format!("add {what}"),
        ),
    }
}

fn wrong<T>(key: &str, word: Word<'_>) -> Result<T> {
    let what = VALUES
        .iter()
        .find(|(other, _)| *other == key)
        .map_or("another value", |&(_, what)| what);
    error(
        word.at,
        format!("\"{}\" does not fit \"{key}\"", word.text),
        format!("give {what}"),
    )
}

fn number(word: Word<'_>) -> Option<u32> {
    match word.text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.text.parse().ok(),
    }
}

fn small(word: Word<'_>) -> Option<u8> {
    number(word).and_then(|value| u8::try_from(value).ok())
}

fn flags(text: &str) -> Option<u8> {
    if text == "none" {
        return Some(0);
    }
    text.chars().try_fold(0, |flags, letter| {
        Some(flags | 1 << names::FLAG_LETTERS.find(letter)?)
    })
}

fn route(text: &str) -> RouteTo {
    match text {
        "none" => RouteTo::None,
        "some" => RouteTo::Some(None),
        label => RouteTo::Some(Some(Arc::from(label))),
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

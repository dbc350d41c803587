//! Messages of the two processes, over a pair of Unix sockets.
//!
//! The HTTP process sends the byte of a format, and no more: a page is all that it can ask for. The reader
//! sends frames: the web configuration, first and after each change, and an answer to each byte.

use std::io::{Read, Write};

use anyhow::{Context as _, Result, bail, ensure};

use super::page::Format;
use super::web_config::WebConfig;

/// Longest content of a frame: a page of 20,000 series of 400 bytes.
pub const MOST_BYTES: usize = 8 << 20;

/// Longest text of a failure.
const MOST_WORDS: usize = 1000;

const CONFIG: u8 = 0;
const PAGE: u8 = 1;
const FAILURE: u8 = 2;

/// A message of the reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// How to answer from now on.
    Config(Box<WebConfig>),
    /// The page in a format, without its end.
    Page(Format, String),
    /// Why there is no page in a format.
    Failure(Format, String),
}

/// The byte that asks for a page.
pub fn ask(format: Format) -> u8 {
    Format::ALL.iter().position(|it| *it == format).unwrap_or(0) as u8
}

/// The format that a byte asks for.
pub fn asked(byte: u8) -> Option<Format> {
    Format::ALL.get(usize::from(byte)).copied()
}

impl Message {
    /// Sends it.
    ///
    /// # Errors
    ///
    /// Those of write(2).
    pub fn send(&self, to: &mut impl Write) -> Result<()> {
        let (kind, format, content) = match self {
            Self::Config(config) => (CONFIG, 0, serde_json::to_vec(config)?.into()),
            Self::Page(format, text) if text.len() > MOST_BYTES => {
                let words = format!(
                    "the page has {} bytes, more than {MOST_BYTES}: give a smaller --series",
                    text.len()
                );
                return Self::Failure(*format, words).send(to);
            }
            Self::Page(format, text) => (PAGE, ask(*format), text.as_bytes().into()),
            Self::Failure(format, words) => {
                let words: String = words.chars().take(MOST_WORDS).collect();
                let content: std::borrow::Cow<'_, [u8]> = words.into_bytes().into();
                (FAILURE, ask(*format), content)
            }
        };
        let length = u32::try_from(content.len()).context("a message is too long")?;
        let mut head = vec![kind, format];
        head.extend(length.to_le_bytes());
        to.write_all(&head)?;
        Ok(to.write_all(&content)?)
    }

    /// Receives one; none at the end.
    ///
    /// # Errors
    ///
    /// Those of read(2), and when a message is none.
    pub fn receive(from: &mut impl Read) -> Result<Option<Self>> {
        let mut head = [0; 6];
        if from.read(&mut head[..1])? == 0 {
            return Ok(None);
        }
        from.read_exact(&mut head[1..])?;
        let [kind, format, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        ensure!(length <= MOST_BYTES, "a message of {length} bytes");
        let mut content = vec![0; length];
        from.read_exact(&mut content)?;
        let format = asked(format).context("a message in no format")?;
        Ok(Some(match kind {
            CONFIG => Self::Config(serde_json::from_slice(&content)?),
            PAGE => Self::Page(format, String::from_utf8(content)?),
            FAILURE => Self::Failure(format, String::from_utf8(content)?),
            kind => bail!("a message of unknown kind {kind}"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let mut bytes = Vec::new();
        let messages = [
            Message::Config(Box::default()),
            Message::Page(Format::OpenMetrics, "a 1\n".into()),
            Message::Failure(Format::Prometheus, "no".into()),
        ];
        for message in &messages {
            message.send(&mut bytes).expect("sent");
        }
        let mut from = bytes.as_slice();
        for message in messages {
            assert_eq!(
                Message::receive(&mut from).expect("received"),
                Some(message)
            );
        }
        assert_eq!(Message::receive(&mut from).expect("the end"), None);
    }

    #[test]
    fn malformed_messages_are_refused() {
        for bytes in [
            &[1, 0, 0xff, 0xff, 0xff, 0xff][..],
            &[1, 9, 0, 0, 0, 0],
            &[9, 0, 0, 0, 0, 0],
            &[1, 0, 1, 0, 0, 0],
            &[1, 0, 1, 0, 0, 0, 0xff],
            &[0, 0, 1, 0, 0, 0, b'x'],
            &[1, 0],
        ] {
            Message::receive(&mut &*bytes).expect_err("refused");
        }
        // Before so much memory is taken.
        let long = Message::receive(&mut &[1, 0, 0xff, 0xff, 0xff, 0xff][..]).expect_err("refused");
        assert_eq!(long.to_string(), "a message of 4294967295 bytes");
        let mut bytes = Vec::new();
        let long = Message::Page(Format::Prometheus, "a".repeat(MOST_BYTES + 1));
        long.send(&mut bytes).expect("sent");
        let Some(Message::Failure(_, words)) =
            Message::receive(&mut bytes.as_slice()).expect("received")
        else {
            panic!("a failure")
        };
        assert!(words.contains("--series"), "{words}");
    }
}

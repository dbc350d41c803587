//! Keys, from the bytes that a terminal sends.
//!
//! crossterm's own reader is not used: it spins on a terminal that is gone, where read(2) returns at once.

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// A character with the control key.
    Control(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Tabulator.
    Tab,
    /// Tabulator with the shift key.
    BackTab,
    /// Backspace.
    Backspace,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
}

/// The meaning of the pending bytes.
enum Meaning {
    /// More have to come.
    Part,
    /// None that is known.
    Unknown,
    /// A key.
    Key(Key),
}

/// The longest sequence of a key.
const MOST: usize = 16;

const ESCAPE: u8 = 0x1b;

/// Puts bytes together to keys: a sequence may come in parts.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// The keys of these bytes.
    pub fn keys(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for byte in bytes {
            self.pending.push(*byte);
            match self.meaning() {
                Meaning::Part => continue,
                Meaning::Unknown => {}
                Meaning::Key(key) => keys.push(key),
            }
            self.pending.clear();
        }
        keys
    }

    /// Whether bytes wait for more.
    pub fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The key of the bytes that waited for more in vain.
    pub fn give_up(&mut self) -> Option<Key> {
        let is_escape = self.pending == [ESCAPE];
        self.pending.clear();
        is_escape.then_some(Key::Escape)
    }

    fn meaning(&self) -> Meaning {
        let bytes = &self.pending[..];
        match bytes {
            [ESCAPE] => Meaning::Part,
            [ESCAPE, ESCAPE] => Meaning::Key(Key::Escape),
            [ESCAPE, b'[' | b'O', rest @ ..] => sequence(rest),
            // Alt with a key.
            [ESCAPE, ..] => Meaning::Unknown,
            [b'\r' | b'\n'] => Meaning::Key(Key::Enter),
            [b'\t'] => Meaning::Key(Key::Tab),
            [0x7f | 0x08] => Meaning::Key(Key::Backspace),
            [byte @ 0x01..=0x1a] => Meaning::Key(Key::Control((byte - 1 + b'a').into())),
            [0..=0x1f] => Meaning::Unknown,
            _ => character(bytes),
        }
    }
}

/// Behind `ESC [` or `ESC O`: parameters, and a final byte.
fn sequence(bytes: &[u8]) -> Meaning {
    let Some((last, parameters)) = bytes.split_last() else {
        return Meaning::Part;
    };
    if !(0x40..=0x7e).contains(last) {
        return if bytes.len() < MOST {
            Meaning::Part
        } else {
            Meaning::Unknown
        };
    }
    Meaning::Key(match (last, parameters) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'Z', _) => Key::BackTab,
        (b'M', b"") => Key::Enter,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => return Meaning::Unknown,
    })
}

fn character(bytes: &[u8]) -> Meaning {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            let letter = text.chars().next().filter(|it| !it.is_control());
            letter.map_or(Meaning::Unknown, |letter| Meaning::Key(Key::Char(letter)))
        }
        Err(error) if error.error_len().is_none() => Meaning::Part,
        Err(_) => Meaning::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_terminals() {
        for (bytes, key) in [
            (&b"a"[..], Key::Char('a')),
            ("ä".as_bytes(), Key::Char('ä')),
            (b"\r", Key::Enter),
            (b"\t", Key::Tab),
            (b"\x03", Key::Control('c')),
            (b"\x7f", Key::Backspace),
            (b"\x1b[A", Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[1;5C", Key::Right),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[6~", Key::PageDown),
            (b"\x1b[H", Key::Home),
            (b"\x1b[4~", Key::End),
            (b"\x1b[Z", Key::BackTab),
            (b"\x1b\x1b", Key::Escape),
        ] {
            assert_eq!(Decoder::default().keys(bytes), [key], "{bytes:?}");
            let mut decoder = Decoder::default();
            let one_by_one: Vec<_> = bytes.iter().flat_map(|it| decoder.keys(&[*it])).collect();
            assert_eq!(one_by_one, [key], "{bytes:?} byte by byte");
            assert!(!decoder.waits());
        }
    }

    #[test]
    fn an_escape_alone_is_one_after_a_while() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.keys(b"\x1b"), []);
        assert!(decoder.waits());
        assert_eq!(decoder.give_up(), Some(Key::Escape));
        assert_eq!(decoder.keys(b"q"), [Key::Char('q')]);
    }

    #[test]
    fn unknown_bytes_are_passed_over() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.keys(b"\x1b[200~\xff\x00\x1bxq"), [Key::Char('q')]);
        let endless = [b"\x1b[".as_slice(), &[b'1'; 1000]].concat();
        decoder.keys(&endless);
        assert!(decoder.pending.len() <= MOST + 2);
    }
}

//! The request for a socket, and its text.

use crate::error::{Error, Result};
use crate::umem::Umem;
use crate::wait::Wait;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The first line.
const FIRST: &str = "weir 2 socket";

/// Longest request, in bytes.
const MOST: usize = 4096;

/// A request to the broker for a socket: its parameters, and the broker's path.
///
/// ```no_run
/// # fn main() -> xsk::Result<()> {
/// let socket = xsk::broker::Request::new("eth0")
///     .receive_only()
///     .chunks(1024)
///     .open()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "call `open` to get the socket"]
pub struct Request {
    /// Name of the device, in the broker's network namespace. Key `device`.
    pub device: String,
    /// The queue; the broker chooses a free one if there is none. Key `queue`.
    pub queue: Option<u32>,
    /// Whether to receive. Key `lease`, of `rx`, `tx`, or `rx,tx`.
    pub rx: bool,
    /// Whether to send.
    pub tx: bool,
    /// Chunks of the UMEM. Key `chunks`.
    pub chunks: u32,
    /// Bytes in a chunk. Key `chunk-size`.
    pub chunk_size: u32,
    /// Slots of each ring. Key `rings`.
    pub rings: u32,
    /// The way of waiting of [`Socket::wait`](crate::Socket::wait). Key `wait`, of `spin`, `poll`, or
    /// `adaptive:NANOSECONDS`.
    pub wait: Wait,
    /// Name of the tenant of the policy, where several fit. Key `policy`.
    pub policy: Option<String>,
    /// Path of the broker's socket; [`DEFAULT_PATH`](super::DEFAULT_PATH) or the environment variable
    /// `WEIR_BROKER` if there is none. Not in the message.
    pub path: Option<PathBuf>,
}

impl Request {
    /// A socket that receives and sends, on any queue of `device`, with the defaults of
    /// [`Umem::builder`] and [`Socket::builder`](crate::Socket::builder).
    pub fn new(device: impl Into<String>) -> Self {
        let umem = Umem::builder().geometry();
        Self {
            device: device.into(),
            queue: None,
            rx: true,
            tx: true,
            chunks: umem.chunks,
            chunk_size: umem.chunk_size,
            rings: 2048,
            wait: Wait::default(),
            policy: None,
            path: None,
        }
    }

    /// This queue.
    pub fn queue(mut self, queue: u32) -> Self {
        self.queue = Some(queue);
        self
    }

    /// A socket without a TX ring.
    pub fn receive_only(mut self) -> Self {
        (self.rx, self.tx) = (true, false);
        self
    }

    /// A socket without an RX ring.
    pub fn send_only(mut self) -> Self {
        (self.rx, self.tx) = (false, true);
        self
    }

    /// A UMEM of this many chunks.
    pub fn chunks(mut self, chunks: u32) -> Self {
        self.chunks = chunks;
        self
    }

    /// Chunks of this many bytes: 2048 or 4096.
    pub fn chunk_size(mut self, bytes: u32) -> Self {
        self.chunk_size = bytes;
        self
    }

    /// Rings of this many slots each, a power of two.
    pub fn rings(mut self, slots: u32) -> Self {
        self.rings = slots;
        self
    }

    /// The way of waiting.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// As this tenant of the policy.
    pub fn policy(mut self, name: impl Into<String>) -> Self {
        self.policy = Some(name.into());
        self
    }

    /// From the broker at this path.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// The message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) for a device or policy whose name is
    /// empty, too long, or of several lines; and for [`Wait::BusyPoll`].
    pub fn write(&self) -> Result<String> {
        let lease = match (self.rx, self.tx) {
            (true, true) => "rx,tx",
            (true, false) => "rx",
            (false, true) => "tx",
            (false, false) => {
                return Err(Error::invalid(
                    "a socket has to receive, to send, or both: set `rx` or `tx`",
                ));
            }
        };
        let wait = match self.wait {
            Wait::Spin => "spin".to_owned(),
            Wait::Poll => "poll".to_owned(),
            Wait::Adaptive { max_delay } => {
                // The number that is read has 64 bits, which are 584 years.
                let longest = Duration::from_nanos(u64::MAX);
                format!("adaptive:{}", max_delay.min(longest).as_nanos())
            }
            Wait::BusyPoll => {
                return Err(Error::invalid(
                    "a broker opens no socket for busy polling, which takes a privilege over the device: wait by spinning",
                ));
            }
        };
        let mut text = format!(
            "{FIRST}\ndevice={}\nlease={lease}\nchunks={}\nchunk-size={}\nrings={}\nwait={wait}\n",
            name("device", &self.device)?,
            self.chunks,
            self.chunk_size,
            self.rings
        );
        if let Some(queue) = self.queue {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "queue={queue}");
        }
        if let Some(policy) = &self.policy {
            let _ = writeln!(text, "policy={}", name("policy", policy)?);
        }
        Ok(text)
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig), with the line that is wrong.
    pub fn read(message: &[u8]) -> Result<Self> {
        if message.len() > MOST {
            return Err(Error::invalid(format!(
                "a request has at most {MOST} bytes, and this one {}",
                message.len()
            )));
        }
        let text = std::str::from_utf8(message)
            .map_err(|_| Error::invalid("the request is not UTF-8 text"))?;
        let mut lines = text.lines();
        if lines.next() != Some(FIRST) {
            return Err(Error::invalid(format!(
                "the request does not begin with {FIRST:?}: use the xsk library of the broker's version"
            )));
        }
        let mut request = Self::new("");
        for line in lines {
            let (key, value) = line
                .split_once('=')
                .ok_or_else(|| Error::invalid(format!("{line:?} is not `key=value`")))?;
            request.set(key, value)?;
        }
        name("device", &request.device)?;
        Ok(request)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let number = || {
            let number = value.parse::<u32>();
            number.map_err(|_| Error::invalid(format!("{key}={value:?} is not a number")))
        };
        match key {
            "device" => name(key, value)?.clone_into(&mut self.device),
            "queue" => self.queue = Some(number()?),
            "chunks" => self.chunks = number()?,
            "chunk-size" => self.chunk_size = number()?,
            "rings" => self.rings = number()?,
            "policy" => self.policy = Some(name(key, value)?.to_owned()),
            "lease" => {
                (self.rx, self.tx) = match value {
                    "rx" => (true, false),
                    "tx" => (false, true),
                    "rx,tx" => (true, true),
                    _ => {
                        return Err(Error::invalid(format!(
                            "lease={value:?}: choose rx, tx, or rx,tx"
                        )));
                    }
                }
            }
            "wait" => self.wait = wait(value)?,
            _ => {
                return Err(Error::invalid(format!(
                    "{key:?} is not known: use the xsk library of the broker's version"
                )));
            }
        }
        Ok(())
    }
}

fn wait(value: &str) -> Result<Wait> {
    let adaptive = |nanos: &str| nanos.parse().ok().map(Duration::from_nanos);
    match (value, value.strip_prefix("adaptive:").and_then(adaptive)) {
        ("spin", _) => Ok(Wait::Spin),
        ("poll", _) => Ok(Wait::Poll),
        (_, Some(max_delay)) => Ok(Wait::Adaptive { max_delay }),
        _ => Err(Error::invalid(format!(
            "wait={value:?}: choose spin, poll, or adaptive:NANOSECONDS"
        ))),
    }
}

/// A name that fits on a line.
fn name<'n>(key: &str, value: &'n str) -> Result<&'n str> {
    if value.is_empty() || value.len() > 255 || value.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "{key}={value:?}: a name has 1 to 255 bytes, and no control characters"
        )));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_way() {
        let plain = Request::new("eth0");
        let all = Request::new("eth0")
            .queue(7)
            .chunks(64)
            .chunk_size(4096)
            .rings(32)
            .wait(Wait::Poll)
            .policy("dns");
        let most = Request::new("x".repeat(255))
            .queue(u32::MAX)
            .chunks(u32::MAX)
            .chunk_size(u32::MAX)
            .rings(u32::MAX)
            .wait(Wait::Adaptive {
                max_delay: Duration::from_nanos(u64::MAX),
            })
            .policy("\"=\u{2028}".repeat(50));
        for there in [
            plain.clone().receive_only(),
            plain.clone().send_only(),
            plain.clone().wait(Wait::Spin),
            plain,
            all,
            most,
        ] {
            let text = there.write().expect("a message");
            assert_eq!(Request::read(text.as_bytes()).expect("a request"), there);
        }
    }

    #[test]
    fn a_delay_beyond_the_number_is_the_longest() {
        let with = |max_delay| Request::new("eth0").wait(Wait::Adaptive { max_delay });
        let text = with(Duration::MAX).write().expect("a message");
        let read = Request::read(text.as_bytes()).expect("a request");
        assert_eq!(read, with(Duration::from_nanos(u64::MAX)));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (line, cause) in [
            ("device=", "a name has"),
            ("device=a\u{7}", "a name has"),
            ("queue=-1", "queue=\"-1\" is not a number"),
            ("queue=4294967296", "is not a number"),
            ("lease=", "choose rx"),
            ("wait=adaptive:", "choose spin"),
            ("speed=1", "\"speed\" is not known"),
            ("device", "is not `key=value`"),
        ] {
            let text = format!("{FIRST}\ndevice=eth0\n{line}\n");
            let error = Request::read(text.as_bytes()).expect_err(line).to_string();
            assert!(error.contains(cause), "{line}: {error}");
        }
        for message in [b"".as_slice(), b"\xff", b"weir 1 socket\n", &[b'a'; 5000]] {
            assert!(Request::read(message).is_err());
        }
        assert!(Request::read(FIRST.as_bytes()).is_err(), "without a device");
    }

    #[test]
    fn no_message_is_made_of_a_name_with_two_lines() {
        assert!(Request::new("eth0\nqueue=3").write().is_err());
        assert!(Request::new("eth0").policy("a\nb").write().is_err());
    }
}

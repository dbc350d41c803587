//! Messages between `weir run` and the broker: text, and at most one descriptor, over a SEQPACKET
//! socket.
//!
//! | `weir run` | broker |
//! |---|---|
//! | `weir 2 supervise`, `policy=NAME` | `prove NONCE` |
//! | `proof NONCE` | `ok`, `handlers=mknod,connect` |
//! | `weir 2 listener` with the listener | `ok` |
//!
//! The process that connected must send all messages itself: the kernel names their sender to the broker. One
//! that has become another program since cannot. Instead of `ok` the broker answers `error KIND`, and on the lines behind it a message for
//! people.

use super::{connect, receive, send};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Most bytes of a message.
pub const MOST_BYTES: usize = 4096;

/// The first lines of the messages.
pub const SUPERVISE: &str = "weir 2 supervise";
/// That of the message with the listener.
pub const LISTENER: &str = "weir 2 listener";

/// Before the nonce that the broker asks to have back.
pub const PROVE: &str = "prove ";
/// And before it, when it comes back.
pub const PROOF: &str = "proof ";

/// A message received.
#[derive(Debug)]
pub struct Message {
    /// Its text.
    pub text: String,
    /// Its descriptor.
    pub fd: Option<OwnedFd>,
}

impl Message {
    /// The value of a line `key=value` behind the first line.
    pub fn value(&self, key: &str) -> Option<&str> {
        let pairs = self
            .text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once('='));
        pairs
            .into_iter()
            .find(|(found, _)| *found == key)
            .map(|(_, value)| value)
    }

    /// The first line.
    pub fn head(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

/// Connects to the broker.
///
/// # Errors
///
/// When no broker listens there, with the cure.
pub fn connect_to(broker: &Path) -> Result<OwnedFd> {
    connect(broker, None).map_err(|errno| {
        let cure = match errno {
            Errno::NOENT | Errno::CONNREFUSED => {
                "start weir-broker, or name its socket with --broker"
            }
            Errno::ACCESS | Errno::PERM => "its owner can let this user connect",
            Errno::NAMETOOLONG => "a socket's path has at most 107 bytes",
            Errno::PROTOTYPE => "this is another program's socket",
            _ => "see connect(2)",
        };
        anyhow!("no broker listens at {}: {errno}; {cure}", broker.display())
    })
}

/// Sends a text, with at most one descriptor.
///
/// # Errors
///
/// `EPIPE` and `ECONNRESET` when the peer is gone.
pub fn send_text(socket: impl AsFd, text: &str, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    send(socket.as_fd(), text.as_bytes(), fd.as_slice())
}

/// Receives a text, with at most one descriptor.
///
/// # Errors
///
/// When the peer has closed, or its message is too long, is no text or has several descriptors.
pub fn receive_text(socket: impl AsFd) -> Result<Message> {
    // Refused descriptors are closed.
    let (bytes, mut fds) = receive(socket.as_fd(), MOST_BYTES).map_err(|errno| match errno {
        Errno::MSGSIZE => anyhow!("a message is longer than {MOST_BYTES} bytes"),
        errno => errno.into(),
    })?;
    ensure!(fds.len() <= 1, "a message has more than one descriptor");
    ensure!(
        !bytes.is_empty(),
        "the other side has closed the connection"
    );
    Ok(Message {
        text: String::from_utf8(bytes).context("a message is no UTF-8 text")?,
        fd: fds.pop(),
    })
}

/// Asks the broker, and proves that this process does; returns the reply.
///
/// # Errors
///
/// The words of the reply when it is an error.
pub fn ask(socket: impl AsFd, request: &str) -> Result<Message> {
    send_text(&socket, request, None).context("cannot ask the broker")?;
    let first = receive_text(&socket)?;
    let Some(nonce) = first.text.strip_prefix(PROVE) else {
        return ok(first);
    };
    send_text(&socket, &format!("{PROOF}{nonce}"), None).context("cannot answer the broker")?;
    receive_ok(&socket)
}

/// Receives a reply that must be `ok`.
///
/// # Errors
///
/// The words of the reply when it is an error.
pub fn receive_ok(socket: impl AsFd) -> Result<Message> {
    ok(receive_text(socket)?)
}

fn ok(reply: Message) -> Result<Message> {
    if reply.head() == "ok" {
        return Ok(reply);
    }
    match reply.text.strip_prefix("error ") {
        Some(error) => {
            let (kind, words) = error.split_once('\n').unwrap_or((error, ""));
            bail!(
                "{} ({kind})",
                if words.is_empty() {
                    "no reason told"
                } else {
                    words.trim_end()
                }
            )
        }
        None => bail!(
            "the broker's answer is not of this protocol: {:?}",
            reply.head()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair")
    }

    #[test]
    fn a_message_arrives_with_its_descriptor() {
        let (here, there) = pair();
        send_text(&here, "weir 2 supervise\npolicy=web\n", Some(here.as_fd())).expect("sent");
        let message = receive_text(&there).expect("received");
        assert_eq!(message.head(), SUPERVISE);
        assert_eq!(
            (message.value("policy"), message.value("weir")),
            (Some("web"), None)
        );
        assert!(message.fd.is_some());
        send_text(&here, "ok", None).expect("sent");
        assert!(receive_text(&there).expect("received").fd.is_none());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let (here, there) = pair();
        let long = "a".repeat(MOST_BYTES + 1);
        send_text(&here, &long, None).expect("sent");
        receive_text(&there).expect_err("too long");
        rustix::io::write(&here, b"\xff").expect("sent");
        receive_text(&there).expect_err("no text");
        drop(here);
        receive_text(&there).expect_err("closed");
    }

    #[test]
    fn an_error_is_told_in_the_brokers_words() {
        let (here, there) = pair();
        for (text, expected) in [
            ("error denied\nask for more\n", "ask for more (denied)"),
            ("error denied", "no reason told (denied)"),
            (
                "hello",
                "the broker's answer is not of this protocol: \"hello\"",
            ),
        ] {
            send_text(&here, text, None).expect("sent");
            let error = receive_ok(&there).expect_err("refused");
            assert_eq!(error.to_string(), expected);
        }
    }
}

//! The request over the broker's socket.
#![allow(unsafe_code)] // The broker's parts are trusted, as root's.

use super::{Refusal, Request};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::handover::Parts;
use crate::socket::Socket;
use crate::sys::scm;
use hostnet::privilege::in_user_namespace;
use hostnet::unix::{Credentials, ask_for_senders, peer};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The broker's socket, unless the environment variable `WEIR_BROKER` has another path.
pub const DEFAULT_PATH: &str = "/run/weir/broker.sock";

/// Before the number that the broker asks to have back from the process that connected, and before the answer.
const PROVE: &[u8] = b"prove ";
const PROOF: &[u8] = b"proof ";

/// Longest reply: the places of a million chunks.
const MOST_REPLY: usize = 512 << 10;

impl Socket {
    /// A socket on a queue of a device, from `weir-broker`, which needs to run, and whose policy has to
    /// grant it. This process needs no privilege. [`broker::Request`](Request) has the settings.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PermissionDenied`] when the policy does not grant it; [`ErrorKind::QueueBusy`]
    /// when another process has the queue; [`ErrorKind::Os`] when no broker runs; else those of
    /// [`SocketBuilder::open`](crate::SocketBuilder::open), whose step the broker has made, and of
    /// [`Socket::from_parts`].
    pub fn from_broker(device: &str, queue: u32) -> Result<Self> {
        Request::new(device).queue(queue).open()
    }
}

impl Request {
    /// Asks the broker for the socket.
    ///
    /// # Errors
    ///
    /// As those of [`Socket::from_broker`].
    pub fn open(&self) -> Result<Socket> {
        let request = self.write()?;
        let (broker, path) = self.connect()?;
        let say = |text: &[u8], step| {
            let sent = send(&broker, text, SendFlags::NOSIGNAL);
            sent.map_err(failed(step))
        };
        say(request.as_bytes(), "sending the request to the broker")?;
        let mut fds = Vec::new();
        let mut reply = receive(&broker, &path, &mut fds)?;
        if let Some(nonce) = reply.strip_prefix(PROVE) {
            say(&[PROOF, nonce].concat(), "answering the broker's question")?;
            reply = receive(&broker, &path, &mut fds)?;
        }
        if let Some(refusal) = Refusal::read(&reply) {
            return Err(refusal.into());
        }
        let Some(parts) = reply.strip_prefix(b"ok\n") else {
            let message = "the reply is not one of a broker: check which program listens there";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let parts = Parts::from_message(parts, fds)?;
        // SAFETY: needed to take the socket over. `receive` has checked that another process sent it, of the host's
        // root, which can write to the memory of every process anyway, and is trusted to answer by a broker alone: the
        // broker keeps neither a mapping nor a descriptor, and sends each message once.
        unsafe { Socket::from_parts(parts) }
    }

    fn connect(&self) -> Result<(OwnedFd, PathBuf)> {
        let from_environment = || std::env::var_os("WEIR_BROKER");
        let path = self.path.clone().map(PathBuf::into_os_string);
        let path = path.or_else(from_environment);
        let path = PathBuf::from(path.unwrap_or_else(|| OsString::from(DEFAULT_PATH)));
        let address = address(&path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.map_err(failed("opening a Unix socket"))?;
        connect(&socket, &address).map_err(|errno| no_broker(&path, errno))?;
        let peer = peer(socket.as_fd());
        let peer = peer.map_err(|error| failed("reading the broker's user")(errno(&error)))?;
        check(peer, "listens there", &path)?;
        ask_for_senders(socket.as_fd())
            .map_err(|error| failed("asking for the broker's user")(errno(&error)))?;
        Ok((socket, path))
    }
}

fn address(path: &Path) -> Result<SocketAddrUnix> {
    let shown = shown(path);
    if shown.is_empty() {
        return Err(Error::invalid(
            "the path of the broker's socket is empty: give one by WEIR_BROKER or the request, or leave both out",
        ));
    }
    SocketAddrUnix::new(path).map_err(|errno| {
        Error::invalid(match errno {
            Errno::NAMETOOLONG => format!("{shown} is too long for the path of a Unix socket"),
            _ => format!("{shown}: the path of a Unix socket cannot have a zero byte"),
        })
    })
}

fn failed(step: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::os(ErrorKind::Os, errno, step)
}

fn no_broker(path: &Path, errno: Errno) -> Error {
    let path = shown(path);
    let (kind, cure) = match errno {
        Errno::NOENT | Errno::CONNREFUSED => (
            ErrorKind::Os,
            "no broker runs: start it with `systemctl start weir-broker`, or give another path by WEIR_BROKER",
        ),
        Errno::ACCESS | Errno::PERM => (
            ErrorKind::PermissionDenied,
            "this user may not connect to the broker: add it to the group of that socket",
        ),
        Errno::PROTOTYPE => (ErrorKind::Os, "the socket there is not the broker's"),
        _ => (ErrorKind::Os, "connecting to the broker"),
    };
    Error::os(kind, errno, format!("{path}: {cure}"))
}

/// A message of the broker.
fn receive(broker: &OwnedFd, path: &Path, fds: &mut Vec<OwnedFd>) -> Result<Vec<u8>> {
    let received = scm::receive_message(broker.as_fd(), MOST_REPLY, fds);
    let (message, sender) = received.map_err(|errno| match errno {
        Errno::PIPE => {
            let message =
                "the broker closed the connection without a reply: its log has the reason";
            Error::new(ErrorKind::Os, message)
        }
        errno => failed("receiving the broker's reply")(errno),
    })?;
    let unknown = Credentials {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    check(sender.unwrap_or(unknown), "answers there", path)?;
    Ok(message)
}

/// Takes memory from root's processes only, since its giver could keep a mapping, and never from this process: safe code
/// would have two ways to the same memory. The kernel names the process that began to listen (`SO_PEERCRED`), which
/// may have passed its socket on, and so the sender of each message, too. A process id of 0 is one outside of this
/// pid namespace. Root can have the kernel name another process than itself.
fn check(process: Credentials, deed: &str, path: &Path) -> Result<()> {
    let who = if process.pid == std::process::id() {
        "this process".to_owned()
    } else if process.uid == 0 && in_user_namespace() {
        "root of a user namespace".to_owned()
    } else if process.uid == 0 {
        return Ok(());
    } else {
        format!("user {}", process.uid)
    };
    let message = format!(
        "{}: {who} {deed}, and only a broker of root's is trusted: give its path by WEIR_BROKER",
        shown(path),
    );
    Err(Error::new(ErrorKind::Foreign, message))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_paths_have_their_cause_and_are_on_one_line() {
        for (path, cause) in [
            ("", "is empty"),
            (
                "va\0x",
                "va\\0x: the path of a Unix socket cannot have a zero byte",
            ),
            ("\0", "\\0: the path"),
            ("a\n\0", "a\\n\\0: the path"),
            (&"x".repeat(109), "xxx is too long"),
        ] {
            let error = Request::new("eth0").path(path).open().expect_err(path);
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{text}");
            assert!(text.contains(cause), "{cause:?} is not in: {text:?}");
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn a_path_without_a_broker_is_on_one_line() {
        let absent = Request::new("eth0").path("/no\nsuch\u{1b}socket").open();
        let text = absent.expect_err("no broker is there").to_string();
        assert!(
            text.starts_with("/no\\nsuch\\u{1b}socket: no broker runs"),
            "{text:?}"
        );
    }
}

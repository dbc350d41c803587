//! The request over the broker's socket.
#![allow(unsafe_code)] // The broker's parts are trusted, as root's.

use super::{Refusal, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::handover::Parts;
use crate::socket::Socket;
use crate::sys::scm;
use hostnet::privilege::in_user_namespace;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
    sockopt,
};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The broker's socket, unless the environment variable `WEIR_BROKER` has another path.
pub const DEFAULT_PATH: &str = "/run/weir/broker.sock";

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
        let broker = self.connect()?;
        let sent = send(&broker, request.as_bytes(), SendFlags::NOSIGNAL);
        sent.map_err(failed("sending the request to the broker"))?;
        let mut fds = Vec::new();
        let reply = scm::receive_message(broker.as_fd(), MOST_REPLY, &mut fds);
        let reply = reply.map_err(|errno| match errno {
            Errno::PIPE => {
                let message =
                    "the broker closed the connection without a reply: its log has the reason";
                Error::new(ErrorKind::Os, message)
            }
            errno => failed("receiving the broker's reply")(errno),
        })?;
        if let Some(refusal) = Refusal::read(&reply) {
            return Err(refusal.into());
        }
        let Some(parts) = reply.strip_prefix(b"ok\n") else {
            let message = "the reply is not one of a broker: check which program listens there";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let parts = Parts::from_message(parts, fds)?;
        // SAFETY: needed to take the socket over. `connect` has checked that another process began to listen there, of the
        // host's root, which can write to the memory of every process anyway, and is trusted to answer by a broker alone:
        // the broker keeps neither a mapping nor a descriptor, and sends each message once.
        unsafe { Socket::from_parts(parts) }
    }

    fn connect(&self) -> Result<OwnedFd> {
        let from_environment = || std::env::var_os("WEIR_BROKER");
        let path = self.path.clone().map(PathBuf::into_os_string);
        let path = path.or_else(from_environment);
        let path = PathBuf::from(path.unwrap_or_else(|| OsString::from(DEFAULT_PATH)));
        let shown = path.display();
        let address = SocketAddrUnix::new(&path).map_err(|_| {
            Error::invalid(format!("{shown} is too long for the path of a Unix socket"))
        })?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.map_err(failed("opening a Unix socket"))?;
        connect(&socket, &address).map_err(|errno| no_broker(&path, errno))?;
        check_peer(&socket, &path)?;
        Ok(socket)
    }
}

fn failed(step: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::os(ErrorKind::Os, errno, step)
}

fn no_broker(path: &Path, errno: Errno) -> Error {
    let path = path.display();
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

/// Takes memory from root's processes only, since its giver could keep a mapping, and never from this process: safe code
/// would have two ways to the same memory. The kernel names the process that began to listen (`SO_PEERCRED`).
fn check_peer(socket: &OwnedFd, path: &Path) -> Result<()> {
    let peer = sockopt::socket_peercred(socket).map_err(failed("reading the broker's user"))?;
    let listener = if peer.pid == rustix::process::getpid() {
        "this process".to_owned()
    } else if peer.uid.is_root() && in_user_namespace() {
        "root of a user namespace".to_owned()
    } else if peer.uid.is_root() {
        return Ok(());
    } else {
        format!("user {}", peer.uid.as_raw())
    };
    let message = format!(
        "{}: {listener} listens there, and only a broker of root's is trusted: give its path by WEIR_BROKER",
        path.display(),
    );
    Err(Error::new(ErrorKind::Foreign, message))
}

//! Messages with descriptors over Unix sockets that keep messages apart (unix(7), `SOCK_SEQPACKET`).

mod text;

pub use text::{
    LISTENER, MOST_BYTES, Message, PROOF, PROVE, SUPERVISE, ask, connect_to, receive_ok,
    receive_text, send_text,
};

use hostnet::unix::Credentials;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg, socket_with,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Where the broker listens for root.
pub const ADMIN_SOCKET: &str = "/run/weir/broker-admin.sock";

/// Most descriptors of a message.
pub const MOST_FDS: usize = 4;

const CONTROL: usize = rustix::cmsg_space!(ScmRights(MOST_FDS));

/// A message, its descriptors, and who sent it if the socket asks for that
/// ([`ask_for_senders`](hostnet::unix::ask_for_senders)).
#[derive(Debug)]
pub struct Sent {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors.
    pub fds: Vec<OwnedFd>,
    /// Who sent it.
    pub sender: Option<Credentials>,
}

/// Connects to the socket at a path. `patience` is the timeout of this, and of each message on it; none
/// waits for ever.
///
/// # Errors
///
/// `ENAMETOOLONG` for a path of more than 107 bytes; those of connect(2), `EAGAIN` after the timeout.
pub fn connect(path: &Path, patience: Option<Duration>) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // That of sending is connect's, too: it waits where the backlog of the listener is full.
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, timeout, patience)?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Receives one message of at most `most` bytes, and its descriptors; an empty one at the end.
///
/// # Errors
///
/// `EMSGSIZE` for a longer message, `E2BIG` for more descriptors: those that came are closed;
/// `EAGAIN` after the socket's timeout.
pub fn receive(socket: BorrowedFd<'_>, most: usize) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let sent = receive_from(socket, most)?;
    Ok((sent.bytes, sent.fds))
}

/// The same with its sender.
///
/// # Errors
///
/// As those of [`receive`].
pub fn receive_from(socket: BorrowedFd<'_>, most: usize) -> Result<Sent, Errno> {
    let (mut bytes, mut fds) = (vec![0; most], Vec::new());
    let received = hostnet::unix::receive(socket, &mut bytes, &mut fds, MOST_FDS);
    let received = received.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if received.has_more_descriptors {
        return Err(Errno::TOOBIG);
    }
    if received.is_cut {
        return Err(Errno::MSGSIZE);
    }
    bytes.truncate(received.len);
    Ok(Sent {
        bytes,
        fds,
        sender: received.sender,
    })
}

/// Sends one message with at most [`MOST_FDS`] descriptors.
///
/// # Errors
///
/// `EPIPE` when the peer is gone; `EMSGSIZE` for one that the socket's buffer cannot hold.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    loop {
        let mut space = [MaybeUninit::uninit(); CONTROL];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::TOOBIG);
        }
        let data = [IoSlice::new(bytes)];
        match sendmsg(socket, &data, &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

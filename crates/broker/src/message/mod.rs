//! Messages with descriptors over Unix sockets that keep messages apart (unix(7), `SOCK_SEQPACKET`).

mod text;

pub use text::{
    LISTENER, MOST_BYTES, Message, SUPERVISE, connect_to, receive_ok, receive_text, send_text,
};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    recvmsg, sendmsg, socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Where the broker listens for root.
pub const ADMIN_SOCKET: &str = "/run/weir/broker-admin.sock";

/// Most descriptors of a message.
pub const MOST_FDS: usize = 4;

const CONTROL: usize = rustix::cmsg_space!(ScmRights(MOST_FDS));

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
    let mut bytes = vec![0; most];
    let mut fds = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); CONTROL];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut data = [IoSliceMut::new(&mut bytes)];
        let received = match recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::TOOBIG);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(Errno::MSGSIZE);
        }
        bytes.truncate(received.bytes);
        return Ok((bytes, fds));
    }
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

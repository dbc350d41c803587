//! Messages with descriptors over Unix sockets that keep messages apart (unix(7), `SOCK_SEQPACKET`).

mod text;

pub use text::{
    LISTENER, MOST_BYTES, Message, SUPERVISE, connect_to, receive_ok, receive_text, send_text,
};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Most descriptors of a message.
pub const MOST_FDS: usize = 4;

const CONTROL: usize = rustix::cmsg_space!(ScmRights(MOST_FDS));

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

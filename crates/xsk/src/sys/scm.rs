//! Messages with descriptors over Unix sockets (`SCM_RIGHTS`, unix(7)).

use super::SysResult;
use hostnet::unix::Credentials;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Most descriptors of a message.
pub(crate) const MOST_FDS: usize = 4;

/// Room for the control message that holds them.
const CONTROL: usize = rustix::cmsg_space!(ScmRights(MOST_FDS));

/// Sends all bytes, and the descriptors, at most [`MOST_FDS`], with the first of them.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut fds: &[BorrowedFd<'_>],
) -> SysResult<()> {
    while !bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); CONTROL];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::TOOBIG);
        }
        let data = [IoSlice::new(bytes)];
        match sendmsg(socket, &data, &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                bytes = bytes.get(sent..).unwrap_or_default();
                fds = &[];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Receives bytes until the buffer is full, and adds the descriptors that come with them, at most
/// [`MOST_FDS`], to `fds`. `EPIPE` when the peer has closed before.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    mut bytes: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> SysResult<()> {
    while !bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); CONTROL];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut data = [IoSliceMut::new(bytes)];
        let received = match recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        take_rights(&mut control, fds);
        if received.flags.contains(ReturnFlags::CTRUNC) || fds.len() > MOST_FDS {
            return Err(Errno::TOOBIG);
        }
        if received.bytes == 0 {
            return Err(Errno::PIPE);
        }
        bytes = bytes.get_mut(received.bytes..).unwrap_or_default();
    }
    Ok(())
}

/// Receives one message of at most `most` bytes from a socket that keeps messages apart, and adds the
/// descriptors that come with it, at most [`MOST_FDS`], to `fds`; returns also who sent it, if the socket asks for
/// that. `EPIPE` when the peer has closed, `EMSGSIZE` for a longer message.
pub(crate) fn receive_message(
    socket: BorrowedFd<'_>,
    most: usize,
    fds: &mut Vec<OwnedFd>,
) -> SysResult<(Vec<u8>, Option<Credentials>)> {
    let mut bytes = vec![0; most];
    let received = hostnet::unix::receive(socket, &mut bytes, fds, MOST_FDS);
    let received = received.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if received.has_more_descriptors {
        return Err(Errno::TOOBIG);
    }
    if received.is_cut {
        return Err(Errno::MSGSIZE);
    }
    if received.len == 0 {
        return Err(Errno::PIPE);
    }
    bytes.truncate(received.len);
    Ok((bytes, received.sender))
}

/// Adds the descriptors of a received message to `fds`.
fn take_rights(control: &mut RecvAncillaryBuffer<'_>, fds: &mut Vec<OwnedFd>) {
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_and_descriptors_arrive_and_no_byte_behind_them_is_taken() {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let sent: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        let mut got = vec![0; sent.len()];
        let mut fds = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let two = [here.as_fd(), here.as_fd()];
                send(there.as_fd(), &sent, &two).expect("room");
                there.write_all(b"next").expect("room");
                drop(there);
            });
            let (head, rest) = got.split_at_mut(5);
            receive(here.as_fd(), head, &mut fds).expect("the head");
            receive(here.as_fd(), rest, &mut fds).expect("the rest");
        });
        assert_eq!((got == sent, fds.len()), (true, 2));
        let mut next = [0; 5];
        let end = receive(here.as_fd(), &mut next, &mut fds);
        assert_eq!((end, &next[..4]), (Err(Errno::PIPE), b"next".as_slice()));
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let three = [here.as_fd(); 3];
        for byte in [b"1", b"2"] {
            send(there.as_fd(), byte, &three).expect("room");
        }
        let got = receive(here.as_fd(), &mut [0; 2], &mut Vec::new());
        assert_eq!(got, Err(Errno::TOOBIG));
    }
}

//! Who is at the other end of a Unix socket, and who sent a message (unix(7)).
//!
//! The kernel names the sender of each message to a socket with `SO_PASSCRED`: another process than the one that
//! connected, or began to listen, may have the other end.
#![allow(unsafe_code)] // recvmsg(2) and getsockopt(2): rustix has no process id of 0, which is one of another pid namespace.

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A process as the kernel saw it when it connected, or sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// Its process id; 0 for one that this process's pid namespace does not show.
    pub pid: u32,
    /// Its user id; the overflow id (65534) for one that this process's user namespace does not map.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
}

/// A message received.
#[derive(Debug)]
pub struct Received {
    /// Its bytes.
    pub len: usize,
    /// Who sent it, where the socket asks for that ([`ask_for_senders`]). A process with `CAP_SYS_ADMIN` over its
    /// pid namespace can name another one of that; root, any.
    pub sender: Option<Credentials>,
    /// Whether it was longer than the buffer.
    pub is_cut: bool,
    /// Whether it had more descriptors than asked for.
    pub has_more_descriptors: bool,
}

/// Room for the credentials and for as many descriptors as anyone here asks for.
const CONTROL_WORDS: usize = 16;

/// The process that connected a socket, or began to listen (`SO_PEERCRED`).
///
/// # Errors
///
/// As those of getsockopt(2).
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: needed because rustix would take a process id of 0 for one that cannot be. The kernel writes at most
    // `len` bytes, those of `peer`, which holds any integers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials {
        pid: peer.pid.cast_unsigned(),
        uid: peer.uid,
        gid: peer.gid,
    })
}

/// Has the kernel name the sender of each message that a socket receives from here on (`SO_PASSCRED`).
///
/// # Errors
///
/// As those of setsockopt(2).
pub fn ask_for_senders(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(set_socket_passcred(socket, true)?)
}

/// Receives bytes and descriptors, closed on exec, and adds at most `max_fds` of these to `fds`; others are
/// closed.
///
/// # Errors
///
/// As those of recvmsg(2), but for `EINTR`.
pub fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    max_fds: usize,
) -> io::Result<Received> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut data = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: needed because some libraries have padding in it. All its fields are numbers and pointers, which may be 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let len = loop {
        // SAFETY: needed as above. The kernel writes to the buffers that the message names, at most their
        // lengths, and both outlive the call.
        let len =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if let Ok(len) = usize::try_from(len) {
            break len;
        }
        let error = io::Error::last_os_error();
        if Errno::from_io_error(&error) != Some(Errno::INTR) {
            return Err(error);
        }
    };
    let mut received = Received {
        len,
        sender: None,
        is_cut: message.msg_flags & libc::MSG_TRUNC != 0,
        has_more_descriptors: message.msg_flags & libc::MSG_CTRUNC != 0,
    };
    let mut room = max_fds;
    // SAFETY: needed to find the first header. The message's buffer is as the kernel wrote it.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: needed to read it. The kernel wrote a whole header there, in a buffer aligned for it.
        let this = unsafe { header.read() };
        // SAFETY: needed to find the data, which follow the header in the same buffer.
        let start = unsafe { libc::CMSG_DATA(header) };
        let len = (this.cmsg_len as usize).saturating_sub(start.addr() - header.addr());
        // SAFETY: needed to read them. The kernel wrote that many bytes there, which nothing else writes to.
        let data = unsafe { std::slice::from_raw_parts(start, len) };
        let words = data.chunks_exact(size_of::<u32>());
        let mut words = words.map(|word| u32::from_ne_bytes(word.try_into().unwrap_or_default()));
        match (this.cmsg_level, this.cmsg_type) {
            // `struct ucred`.
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                if let (Some(pid), Some(uid), Some(gid)) =
                    (words.next(), words.next(), words.next())
                {
                    received.sender = Some(Credentials { pid, uid, gid });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for number in words {
                    // SAFETY: needed to own it: the kernel has just made it for this message.
                    let fd = unsafe { OwnedFd::from_raw_fd(number.cast_signed()) };
                    if room == 0 {
                        received.has_more_descriptors = true;
                    } else {
                        room -= 1;
                        fds.push(fd);
                    }
                }
            }
            _ => {}
        }
        // SAFETY: needed to find the next one, in the same buffer as the first.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    fn this_process() -> (u32, u32) {
        (std::process::id(), rustix::process::getuid().as_raw())
    }

    #[test]
    fn the_peer_and_the_sender_are_this_process() {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let peer = peer(here.as_fd()).expect("a peer");
        assert_eq!((peer.pid, peer.uid), this_process());
        let mut bytes = [0; 8];
        for is_asked in [false, true] {
            if is_asked {
                ask_for_senders(here.as_fd()).expect("it can ask");
            }
            there.write_all(b"hello").expect("room");
            let mut fds = Vec::new();
            let received = receive(here.as_fd(), &mut bytes, &mut fds, 0).expect("a message");
            assert_eq!(&bytes[..received.len], b"hello");
            let sender = received.sender.map(|it| (it.pid, it.uid));
            assert_eq!(sender, is_asked.then(this_process));
        }
    }

    #[test]
    fn descriptors_beyond_those_asked_for_are_closed() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        for (sent, most) in [(0, 0), (1, 1), (2, 2), (3, 2), (40, 2)] {
            let (here, there) = UnixStream::pair().expect("a pair");
            ask_for_senders(here.as_fd()).expect("it can ask");
            let (mut reader, writer) = io::pipe().expect("a pipe");
            rustix::io::ioctl_fionbio(&reader, true).expect("it does not block");
            let copies = vec![writer.as_fd(); sent];
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(40))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(sent == 0 || control.push(SendAncillaryMessage::ScmRights(&copies)));
            let data = [io::IoSlice::new(b"x")];
            sendmsg(&there, &data, &mut control, SendFlags::empty()).expect("room");
            let mut fds = Vec::new();
            let received = receive(here.as_fd(), &mut [0; 2], &mut fds, most).expect("a message");
            assert_eq!(fds.len(), sent.min(most));
            assert_eq!(received.has_more_descriptors, sent > most, "{sent}");
            drop((fds, writer));
            let end = reader.read(&mut [0]);
            assert_eq!(end.ok(), Some(0), "{sent}: a copy is open");
        }
    }
}

//! Many datagrams in one system call.
//!
//! Unsafe code is needed because rustix has no recvmmsg(2), whose structures hold pointers.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::{io, ptr};

/// The longest datagram of a frame.
const ROOM: usize = 1500;

/// Buffers for datagrams.
pub struct Batch {
    buffers: Vec<[u8; ROOM]>,
    lengths: Vec<usize>,
}

impl Batch {
    /// Buffers for `most` datagrams.
    pub fn new(most: usize) -> Self {
        Self {
            buffers: vec![[0; ROOM]; most],
            lengths: Vec::with_capacity(most),
        }
    }

    /// The datagrams of the last call.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.buffers
            .iter()
            .zip(&self.lengths)
            .map(|(buffer, length)| &buffer[..(*length).min(ROOM)])
    }

    /// Receives without waiting; returns the number of datagrams.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.lengths.clear();
        let mut parts: Vec<libc::iovec> = self
            .buffers
            .iter_mut()
            .map(|buffer| libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: ROOM,
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts.iter_mut().map(message).collect();
        // SAFETY: needed because rustix has no such call. The kernel reads as many structures as
        // are counted, and writes to the buffers that they name, with their true lengths. All of
        // them live until the call returns, and nothing else refers to the buffers meanwhile.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        if count < 0 {
            return match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                error => Err(error),
            };
        }
        let received = messages.iter().take(count as usize);
        self.lengths
            .extend(received.map(|message| message.msg_len as usize));
        Ok(self.lengths.len())
    }
}

fn message(part: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: needed because musl's structure has private padding, so it has no literal. It is of
    // integers and pointers, for which zeros are valid: no name, no control data.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = part;
    message.msg_hdr.msg_iovlen = 1;
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;

    #[test]
    fn datagrams_come_whole_and_in_order() {
        let to = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let from = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut batch = Batch::new(4);
        assert_eq!(batch.receive(to.as_fd()).expect("nothing"), 0);
        for length in [1, 9, 1458, 0, 5] {
            let address = to.local_addr().expect("an address");
            from.send_to(&vec![length as u8; length], address)
                .expect("is sent");
        }
        assert_eq!(batch.receive(to.as_fd()).expect("four"), 4);
        let lengths: Vec<usize> = batch.datagrams().map(<[u8]>::len).collect();
        assert_eq!(lengths, [1, 9, 1458, 0]);
        assert_eq!(batch.receive(to.as_fd()).expect("one"), 1);
        assert_eq!(batch.datagrams().next(), Some(&[5; 5][..]));
    }
}

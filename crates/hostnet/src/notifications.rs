//! Messages that the kernel sends to all members of a netlink group, without a request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::Socket;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

use crate::netlink::{Messages, PART};

/// A socket that joins groups of one netlink protocol, in the network namespace of the thread that
/// opened it.
#[derive(Debug)]
pub(crate) struct Notifications {
    socket: Socket,
    /// The last datagram, and the part of it that is still to be read.
    buffer: Vec<u8>,
    read: usize,
}

/// A notification, or the sign that some are missing.
#[derive(Debug)]
pub(crate) enum Notification<T> {
    Read(T),
    /// More waited than there is room for. Those that waited were thrown away too.
    Overflow,
}

/// The outcome of a read.
enum Received {
    Datagram,
    Nothing,
    Lost,
}

impl Notifications {
    /// Opens a socket with room for so many bytes that wait; without `CAP_NET_ADMIN`, for no more than
    /// `net.core.rmem_max`.
    pub(crate) fn open(protocol: isize, room: usize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        // The kernel doubles the number, for its own overhead.
        if set_socket_recv_buffer_size_force(&socket, room / 2).is_err() {
            set_socket_recv_buffer_size(&socket, room / 2)?;
        }
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(PART),
            read: 0,
        })
    }

    /// Joins a group of the protocol.
    pub(crate) fn join(&mut self, group: u32) -> io::Result<()> {
        self.socket.add_membership(group)
    }

    /// The next notification that `parse` reads, by its type and content; those that it does not are
    /// skipped. None if nothing waits.
    pub(crate) fn next<T>(
        &mut self,
        parse: impl Fn(u16, &[u8]) -> Option<T>,
    ) -> io::Result<Option<Notification<T>>> {
        loop {
            if let Some(event) = self.next_of_datagram(&parse) {
                return Ok(Some(Notification::Read(event)));
            }
            match self.receive()? {
                Received::Datagram => {}
                Received::Nothing => return Ok(None),
                Received::Lost => {
                    self.discard()?;
                    return Ok(Some(Notification::Overflow));
                }
            }
        }
    }

    fn next_of_datagram<T>(&mut self, parse: impl Fn(u16, &[u8]) -> Option<T>) -> Option<T> {
        let mut messages = Messages(&self.buffer[self.read..]);
        let event = messages
            .by_ref()
            .find_map(|message| parse(message.kind, message.payload));
        // Bytes that are no message end the datagram.
        self.read = match event {
            Some(_) => self.buffer.len() - messages.0.len(),
            None => self.buffer.len(),
        };
        event
    }

    fn receive(&mut self) -> io::Result<Received> {
        self.buffer.clear();
        self.read = 0;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        loop {
            let error = match self.socket.recv_from(&mut self.buffer, flags) {
                // More than there is room for: the kernel has thrown the rest away.
                Ok((length, _)) if length > self.buffer.len() => {
                    self.buffer.clear();
                    return Ok(Received::Lost);
                }
                // From another program: only the kernel has the port 0.
                Ok((_, sender)) if sender.port_number() != 0 => {
                    self.buffer.clear();
                    continue;
                }
                Ok(_) => return Ok(Received::Datagram),
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                Some(Errno::AGAIN) => return Ok(Received::Nothing),
                Some(Errno::NOBUFS) => return Ok(Received::Lost),
                Some(Errno::INTR) => {}
                _ => return Err(error),
            }
        }
    }

    /// Reads until nothing waits. Once one notification was lost, the kernel drops all that follow,
    /// without saying so again, until the reader has taken all that wait
    /// (`NETLINK_S_CONGESTED` in `net/netlink/af_netlink.c`).
    fn discard(&mut self) -> io::Result<()> {
        while !matches!(self.receive()?, Received::Nothing) {}
        Ok(())
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

//! The plainest socket that sees whole frames.
//!
//! Unsafe code is needed for one call: nothing else here can bind to a `sockaddr_ll`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result};
use hostnet::netns;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};
use weir::lab::Side;

/// Room for the frames of seconds, so that a reader that has to wait for its CPU loses none.
const RECEIVE_BUFFER: usize = 64 << 20;

/// An AF_PACKET socket on a side of a lab.
pub struct PacketSocket(File);

impl PacketSocket {
    /// A socket that sends and receives on the side's device.
    pub fn open(side: &Side) -> Result<Self> {
        Self::open_on(side.netns(), side.index()?)
    }

    /// A socket that sends and receives on a device of a network namespace.
    pub fn open_on(namespace: BorrowedFd<'_>, ifindex: u32) -> Result<Self> {
        let socket = netns::run_in(namespace, || -> Result<_> {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(
                AddressFamily::PACKET,
                SocketType::RAW,
                flags,
                Some(eth::ALL),
            )?;
            bind(&socket, ifindex)?;
            Ok(socket)
        })?;
        set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)?;
        Ok(Self(File::from(socket)))
    }

    /// The next frame; `None` if none comes in time.
    pub fn receive<'a>(
        &mut self,
        buffer: &'a mut [u8],
        wait: Duration,
    ) -> Result<Option<&'a [u8]>> {
        set_socket_timeout(&self.0, Timeout::Recv, Some(wait))?;
        // signal(7): a receive with a timeout is interrupted by signals that restart others.
        let read = loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        match read {
            Ok(length) => Ok(Some(&buffer[..length])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("cannot receive"),
        }
    }

    /// Sends one frame.
    pub fn send(&mut self, frame: &[u8]) -> Result<()> {
        self.0.write_all(frame).context("cannot send")
    }
}

fn bind(socket: &OwnedFd, ifindex: u32) -> Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: ifindex.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: needed because rustix has no such address. Sound because the kernel reads
    // `length` bytes of a structure that is as long and lives until the call returns.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("cannot bind an AF_PACKET socket"),
    }
}

//! A counter of ARP: the kernel has none.

use anyhow::{Context as _, Result, anyhow};
use hostnet::privilege::{self, Capability, Feature};
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with, sockopt,
};

/// The EtherType of ARP in network byte order, which is the protocol of a packet socket.
const ARP: u16 = libc::ETH_P_ARP.cast_unsigned() as u16;

/// Counts received ARP packets by a packet socket of that protocol alone: other packets do not meet it.
#[derive(Debug)]
pub struct ArpCounter {
    socket: OwnedFd,
    cookie: u64,
    read: u64,
}

impl ArpCounter {
    /// Opens it in the calling thread's namespace. Needs `CAP_NET_RAW`.
    pub fn open() -> Result<Self> {
        let protocol = Protocol::from_raw(
            std::num::NonZeroU32::new(ARP.to_be().into()).context("ARP has a number")?,
        );
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::DGRAM,
            flags,
            Some(protocol),
        )
        .map_err(|errno| {
            let code = errno.raw_os_error();
            let cure = privilege::refusal(code, Feature::Packet, &[Capability::NetRaw]);
            let cure = cure.unwrap_or_else(|| "this kernel has no AF_PACKET".to_owned());
            anyhow!(errno).context(format!("cannot open a packet socket to count ARP: {cure}"))
        })?;
        let cookie = sockopt::socket_cookie(&socket).context("cannot read a socket's cookie")?;
        Ok(Self {
            socket,
            cookie,
            read: 0,
        })
    }

    /// The socket's cookie.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The packets since it was opened; `lost` did not fit into its queue.
    pub fn count(&mut self, lost: u32) -> u64 {
        let mut byte = [0; 1];
        // An error is the empty queue, or a device that went down.
        while recv(&self.socket, &mut byte[..], RecvFlags::TRUNC).is_ok() {
            self.read += 1;
        }
        self.read + u64::from(lost)
    }
}

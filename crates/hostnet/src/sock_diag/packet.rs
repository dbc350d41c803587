//! AF_PACKET sockets (`linux/packet_diag.h`; `CONFIG_PACKET_DIAG`).

use super::memory::SocketMemory;
use super::request;
use crate::error::{Context as _, Result};
use crate::netlink::{Attributes, u16_of, u32_of};

/// `PACKET_SHOW_INFO | PACKET_SHOW_RING_CFG | PACKET_SHOW_MEMINFO`.
const SHOW: u32 = 1 | 1 << 2 | 1 << 4;
/// The size of `struct packet_diag_msg`, before the attributes: family, type, protocol; inode; cookie of
/// two words.
const HEADER: usize = 16;
/// `PACKET_DIAG_INFO`, `PACKET_DIAG_RX_RING`, `PACKET_DIAG_UID` and `PACKET_DIAG_MEMINFO`.
const INFO: u16 = 0;
const RX_RING: u16 = 2;
const UID: u16 = 5;
const MEMINFO: u16 = 6;

/// An AF_PACKET socket: packet(7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketSocket {
    /// Its type: `SOCK_RAW` (3) or `SOCK_DGRAM` (2).
    pub kind: u8,
    /// The EtherType that it receives, `ETH_P_ALL` (3) for all, 0 for none.
    pub protocol: u16,
    /// The index of the device that it is bound to; 0 for all devices.
    pub device: u32,
    /// The inode, by which [`owners`](super::owners) finds its process.
    pub inode: u32,
    /// The kernel's number of the socket, which no other of the host ever has; before Linux 5.4, of the
    /// namespace (`SO_COOKIE`).
    pub cookie: u64,
    /// The user who made it; none where the kernel does not say.
    pub uid: Option<u32>,
    /// Whether it receives by a ring (`PACKET_RX_RING`). Packets that find such a ring full are in no counter but
    /// `PACKET_STATISTICS`, which only the socket's owner can read; `memory.drops` stays at 0.
    pub receive_ring: bool,
    /// The memory and the drops; none where the kernel reports none.
    pub memory: Option<SocketMemory>,
}

/// The AF_PACKET sockets of the calling thread's network namespace; `None` for a kernel that
/// cannot list them (without `CONFIG_PACKET_DIAG`, or its module `af_packet_diag`). Needs no
/// privilege.
///
/// A packet that such a socket drops is a lost copy: the packet itself goes on.
///
/// ```no_run
/// use hostnet::sock_diag::packet;
///
/// for socket in packet::packet_sockets()?.unwrap_or_default() {
///     println!("device {} EtherType {:#06x}", socket.device, socket.protocol);
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn packet_sockets() -> Result<Option<Vec<PacketSocket>>> {
    let mut sockets = Vec::new();
    let listed = request::list(request(), &mut |answer| {
        sockets.extend(PacketSocket::read(answer));
    });
    let listed = listed.context("cannot list the AF_PACKET sockets")?;
    Ok(listed.map(|()| sockets))
}

/// `struct packet_diag_req`: family, protocol, padding; inode; attributes to show; cookie of two words.
fn request() -> Vec<u8> {
    let mut request = vec![libc::AF_PACKET as u8, 0, 0, 0, 0, 0, 0, 0];
    request.extend(SHOW.to_ne_bytes());
    request.extend([0; 8]);
    request
}

impl PacketSocket {
    fn read(message: &[u8]) -> Option<Self> {
        let attributes = message.get(HEADER..)?;
        let (low, high) = (u32_of(&message[8..])?, u32_of(&message[12..])?);
        let mut socket = Self {
            kind: message[1],
            protocol: u16_of(&message[2..])?,
            inode: u32_of(&message[4..])?,
            cookie: u64::from(high) << 32 | u64::from(low),
            ..Self::default()
        };
        for (kind, value) in Attributes(attributes) {
            match kind {
                // The first member of `struct packet_diag_info`.
                INFO => socket.device = u32_of(value)?,
                RX_RING => socket.receive_ring = true,
                UID => socket.uid = u32_of(value),
                MEMINFO => socket.memory = SocketMemory::read(value),
                _ => {}
            }
        }
        Some(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{damaged, push_attribute};

    #[test]
    fn a_socket_is_read_from_its_message() {
        let mut bytes = vec![libc::AF_PACKET as u8, 3];
        bytes.extend(0x88b5_u16.to_ne_bytes());
        bytes.extend([4711_u32, 7, 1].map(u32::to_ne_bytes).concat());
        let bare = PacketSocket::read(&bytes).expect("a header");
        assert_eq!((bare.inode, bare.cookie), (4711, 1 << 32 | 7));
        assert_eq!((bare.device, bare.receive_ring, bare.uid), (0, false, None));
        let info = [5_u32, 2, 0, 0, 0, 0].map(u32::to_ne_bytes).concat();
        push_attribute(&mut bytes, INFO, &info);
        push_attribute(&mut bytes, UID, &1000_u32.to_ne_bytes());
        push_attribute(&mut bytes, RX_RING, &[0; 28]);
        let memory: Vec<u8> = (0..9_u32).flat_map(u32::to_ne_bytes).collect();
        push_attribute(&mut bytes, MEMINFO, &memory);
        let socket = PacketSocket::read(&bytes).expect("a whole message");
        assert_eq!((socket.kind, socket.protocol), (3, 0x88b5));
        assert_eq!((socket.device, socket.uid), (5, Some(1000)));
        assert!(socket.receive_ring);
        assert_eq!(socket.memory.expect("memory").drops, 8);
        for bytes in damaged(&bytes) {
            PacketSocket::read(&bytes);
        }
    }

    #[test]
    fn the_request_has_the_kernels_size() {
        assert_eq!(request().len(), 20);
    }
}

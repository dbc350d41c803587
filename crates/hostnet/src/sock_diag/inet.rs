//! UDP and TCP sockets (`linux/inet_diag.h`; `CONFIG_INET_UDP_DIAG`, `CONFIG_INET_TCP_DIAG`).

use std::collections::HashSet;
use std::net::IpAddr;

use super::memory::SocketMemory;
use super::request;
use crate::error::{Context as _, Result};
use crate::netlink::{attribute, ip_address, u32_of};

/// `INET_DIAG_SKMEMINFO`; the extension is asked for by the bit before it.
const SKMEMINFO: u16 = 7;
/// `struct inet_diag_req_v2`: family, protocol, extensions, padding; states; a socket's identity.
const REQUEST: usize = 8 + IDENTITY;
/// `struct inet_diag_sockid`: two ports, two addresses of 16 bytes, a device, a cookie.
const IDENTITY: usize = 48;
/// `struct inet_diag_msg`, before the attributes: family, state, timer, retransmissions; the identity;
/// expiry, two queues, user and inode.
const HEADER: usize = 4 + IDENTITY + 20;
/// The place of the device in it, behind which all are words.
const DEVICE: usize = 40;

/// A protocol whose sockets can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Protocol {
    fn number(self) -> u8 {
        match self {
            Self::Udp => libc::IPPROTO_UDP as u8,
            Self::Tcp => libc::IPPROTO_TCP as u8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// The state of a socket (`include/net/tcp_states.h`). A UDP socket is [`Close`](Self::Close), or
/// [`Established`](Self::Established) once it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// `TCP_ESTABLISHED`.
    Established = 1,
    /// `TCP_SYN_SENT`.
    SynSent = 2,
    /// `TCP_SYN_RECV`.
    SynRecv = 3,
    /// `TCP_FIN_WAIT1`.
    FinWait1 = 4,
    /// `TCP_FIN_WAIT2`.
    FinWait2 = 5,
    /// `TCP_TIME_WAIT`: no socket of a process any more.
    TimeWait = 6,
    /// `TCP_CLOSE`.
    Close = 7,
    /// `TCP_CLOSE_WAIT`.
    CloseWait = 8,
    /// `TCP_LAST_ACK`.
    LastAck = 9,
    /// `TCP_LISTEN`.
    Listen = 10,
    /// `TCP_CLOSING`.
    Closing = 11,
}

impl State {
    /// All states.
    pub const ALL: [Self; 11] = [
        Self::Established,
        Self::SynSent,
        Self::SynRecv,
        Self::FinWait1,
        Self::FinWait2,
        Self::TimeWait,
        Self::Close,
        Self::CloseWait,
        Self::LastAck,
        Self::Listen,
        Self::Closing,
    ];

    fn read(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == number)
    }
}

/// A UDP or TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InetSocket {
    /// The protocol.
    pub protocol: Protocol,
    /// The state.
    pub state: State,
    /// The address that it is bound to, of the socket's own family: an IPv6 socket that also takes IPv4 has
    /// an IPv6 one, unspecified or mapped (`::ffff:a.b.c.d`).
    pub local: IpAddr,
    /// The port that it is bound to.
    pub local_port: u16,
    /// The other end; unspecified where there is none.
    pub remote: IpAddr,
    /// The port of the other end; 0 where there is none.
    pub remote_port: u16,
    /// The index of the device that it is bound to; 0 for any.
    pub device: u32,
    /// The inode, by which [`owners`](super::owners) finds its process; 0 for one without a file, such
    /// as a connection that was not accepted yet.
    pub inode: u32,
    /// The kernel's number of the socket, which no other of the host ever has; before Linux 5.4, of the
    /// namespace (`SO_COOKIE`).
    pub cookie: u64,
    /// The user who made it.
    pub uid: u32,
    /// TCP: bytes that were not read yet; of a listener, connections that were not accepted yet. UDP:
    /// memory of datagrams that were not read yet, in bytes.
    pub receive_queue: u32,
    /// TCP: bytes that were not acknowledged yet; of a listener, the most connections that can wait
    /// (the backlog of listen(2)). UDP: memory of datagrams that were not sent yet, in bytes.
    pub send_queue: u32,
    /// The memory and the drops; none where the kernel reports none, as of `TimeWait`.
    pub memory: Option<SocketMemory>,
}

/// The IPv4 and IPv6 sockets of the calling thread's network namespace that are in one of these
/// states. `None` for a kernel that cannot list them (without `CONFIG_INET_DIAG` or the protocol's part, or
/// their modules `inet_diag`, `udp_diag` or `tcp_diag`). Needs no privilege.
///
/// The kernel lists them while they come and go: one of that moment may be missing, none is there twice.
///
/// ```no_run
/// use hostnet::sock_diag::inet::{self, Protocol, State};
///
/// let sockets = inet::sockets(Protocol::Udp, &State::ALL)?;
/// for socket in sockets.unwrap_or_default() {
///     let drops = socket.memory.unwrap_or_default().drops;
///     println!("{}:{} dropped {drops}", socket.local, socket.local_port);
/// }
/// let ready = inet::sockets(Protocol::Tcp, &[State::Listen, State::Established])?;
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn sockets(protocol: Protocol, states: &[State]) -> Result<Option<Vec<InetSocket>>> {
    let (mut sockets, mut known) = (Vec::new(), HashSet::new());
    for family in [libc::AF_INET, libc::AF_INET6] {
        let request = request(family as u8, protocol, states);
        let listed = request::list(request, &mut |answer| {
            let new = InetSocket::read(protocol, answer);
            sockets.extend(new.filter(|socket| known.insert(socket.cookie)));
        });
        let name = protocol.name();
        if listed
            .with_context(|| format!("cannot list the {name} sockets"))?
            .is_none()
        {
            return Ok(None);
        }
    }
    Ok(Some(sockets))
}

fn request(family: u8, protocol: Protocol, states: &[State]) -> Vec<u8> {
    let extensions = 1 << (SKMEMINFO - 1);
    // A state may be named twice.
    let mask = states
        .iter()
        .fold(0_u32, |mask, state| mask | 1 << *state as u8);
    let mut request = vec![family, protocol.number(), extensions, 0];
    request.extend(mask.to_ne_bytes());
    // No particular socket.
    request.resize(REQUEST, 0);
    request
}

impl InetSocket {
    fn read(protocol: Protocol, message: &[u8]) -> Option<Self> {
        let attributes = message.get(HEADER..)?;
        let ports = (port(message, 4)?, port(message, 6)?);
        let words: Vec<u32> = message[DEVICE..HEADER]
            .chunks_exact(4)
            .map_while(u32_of)
            .collect();
        let [device, low, high, _, receive, send, uid, inode] = words.try_into().ok()?;
        Some(Self {
            protocol,
            state: State::read(message[1])?,
            local: address(message, 8)?,
            local_port: ports.0,
            remote: address(message, 24)?,
            remote_port: ports.1,
            device,
            inode,
            cookie: u64::from(high) << 32 | u64::from(low),
            uid,
            receive_queue: receive,
            send_queue: send,
            memory: attribute(attributes, SKMEMINFO).and_then(|bytes| SocketMemory::read(&bytes)),
        })
    }
}

fn port(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn address(message: &[u8], at: usize) -> Option<IpAddr> {
    ip_address(*message.first()?, message.get(at..)?)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use crate::netlink::{damaged, push_attribute};

    fn message(family: i32, state: u8, addresses: [[u8; 16]; 2]) -> Vec<u8> {
        let mut bytes = vec![family as u8, state, 0, 0];
        bytes.extend([0x1f, 0x90, 0, 53]);
        bytes.extend(addresses.concat());
        // Device, cookie; expiry, queues, user, inode.
        bytes.extend(
            [3_u32, 7, 1, 0, 11, 12, 1000, 4711]
                .map(u32::to_ne_bytes)
                .concat(),
        );
        let memory: Vec<u8> = (0..9_u32).flat_map(u32::to_ne_bytes).collect();
        push_attribute(&mut bytes, SKMEMINFO, &memory);
        bytes
    }

    #[test]
    fn a_socket_is_read_from_its_message() {
        let mut addresses = [[0; 16]; 2];
        addresses[0][..4].copy_from_slice(&[192, 0, 2, 1]);
        addresses[1][..4].copy_from_slice(&[192, 0, 2, 2]);
        let bytes = message(libc::AF_INET, 1, addresses);
        let socket = InetSocket::read(Protocol::Udp, &bytes).expect("a whole message");
        assert_eq!(socket.local, IpAddr::from([192, 0, 2, 1]));
        assert_eq!(socket.remote, IpAddr::from([192, 0, 2, 2]));
        assert_eq!((socket.local_port, socket.remote_port), (8080, 53));
        assert_eq!((socket.device, socket.cookie), (3, 1 << 32 | 7));
        assert_eq!((socket.receive_queue, socket.send_queue), (11, 12));
        assert_eq!((socket.uid, socket.inode), (1000, 4711));
        assert_eq!(socket.state, State::Established);
        assert_eq!(socket.memory.expect("memory").drops, 8);
        for bytes in damaged(&bytes) {
            InetSocket::read(Protocol::Udp, &bytes);
        }
    }

    #[test]
    fn an_address_has_the_sockets_family() {
        let mut addresses = [[0; 16]; 2];
        addresses[0][15] = 1;
        let read =
            |family, state| InetSocket::read(Protocol::Tcp, &message(family, state, addresses));
        let socket = read(libc::AF_INET6, 10).expect("a whole message");
        assert_eq!(socket.local, IpAddr::from(Ipv6Addr::LOCALHOST));
        assert_eq!(socket.state, State::Listen);
        assert_eq!(read(libc::AF_UNIX, 10), None);
        assert_eq!(read(libc::AF_INET6, 99), None);
    }

    #[test]
    fn a_socket_without_memory_has_none() {
        let mut bytes = message(libc::AF_INET, 6, [[0; 16]; 2]);
        bytes.truncate(HEADER);
        let socket = InetSocket::read(Protocol::Tcp, &bytes).expect("a header");
        assert_eq!(socket.memory, None);
        assert_eq!(InetSocket::read(Protocol::Tcp, &bytes[..HEADER - 1]), None);
    }

    #[test]
    fn a_request_has_a_bit_for_each_state() {
        let bytes = request(2, Protocol::Tcp, &[State::Listen, State::Established]);
        assert_eq!(bytes.len(), 56, "struct inet_diag_req_v2");
        assert_eq!(bytes[..4], [2, 6, 0x40, 0]);
        assert_eq!(u32_of(&bytes[4..]), Some(1 << 10 | 1 << 1));
        let twice = request(2, Protocol::Tcp, &[State::Listen, State::Listen]);
        assert_eq!(u32_of(&twice[4..]), Some(1 << 10));
        let bytes = request(10, Protocol::Udp, &State::ALL);
        assert_eq!(u32_of(&bytes[4..]), Some(0xffe));
    }
}

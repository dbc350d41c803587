//! sendto(2) of `RTM_SETLINK` with `IFLA_XDP`, by which libxdp attaches and detaches programs.
//!
//! The caller's message is never sent with the broker's rights. A BPF link that the broker
//! holds does its work, so that the program goes with the broker too; the caller's
//! socket then gets an acknowledgement for a message that does nothing.

use super::bpf::link;
use super::session::Session;
use crate::seccomp::Answer;
use crate::supervise::Call;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{socket_domain, socket_protocol};
use rustix::net::{AddressFamily, Protocol, SendFlags, sendto};
use std::os::fd::AsFd as _;

/// `NETLINK_ROUTE`, which is 0.
const ROUTE: Option<Protocol> = None;
/// Most bytes of a message: those of libbpf have 60.
const MOST: usize = 256;
const RTM_SETLINK: u16 = 19;
const NLMSG_NOOP: u16 = 1;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// `struct nlmsghdr` and `struct ifinfomsg`.
const HEADERS: usize = 32;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
/// `NLA_TYPE_MASK`.
const TYPE: u16 = 0x3fff;

/// A request to attach or detach a program, with the caller's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    ifindex: u32,
    /// To detach, none.
    program: Option<i32>,
    flags: u32,
    expected: Option<i32>,
    acknowledge: bool,
    sequence: u32,
    port: u32,
}

/// Whether a message of this many bytes may be one of those.
pub(super) fn is_candidate(len: u64) -> bool {
    (HEADERS as u64..=MOST as u64).contains(&len)
}

pub(super) fn handle(session: &Session, call: &Call<'_>) -> Result<Answer, Errno> {
    let len = call.word(2);
    if !is_candidate(len) {
        return Ok(Answer::Continue);
    }
    let target = call.target()?;
    let socket = target.descriptor(call.int(0))?;
    let is_route = socket_domain(&socket) == Ok(AddressFamily::NETLINK)
        && socket_protocol(&socket) == Ok(ROUTE);
    if !is_route {
        return Ok(Answer::Continue);
    }
    // All but this the kernel judges by the caller's own rights: it asks those of the sender, whoever has
    // opened the socket.
    let bytes = target.read_bytes(call.word(1), len as usize)?;
    let Some(request) = Request::parse(&bytes) else {
        return Ok(Answer::Continue);
    };
    let place = session.place(target)?;
    if !place.has_socket(socket.as_fd()) {
        return Ok(Answer::Continue);
    }
    let open = |fd: Option<i32>| fd.map(|fd| target.descriptor(fd)).transpose();
    let program = open(request.program)?;
    let expected = open(request.expected)?;
    let change = link::Change {
        ifindex: request.ifindex,
        program: program.as_ref().map(|fd| fd.as_fd()),
        flags: request.flags,
        expected: expected.as_ref().map(|fd| fd.as_fd()),
    };
    link::change(session, call, &place, &change)?;
    if request.acknowledge {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&socket, &request.noop(), SendFlags::DONTWAIT, &kernel)?;
    }
    Ok(Answer::Value(len.cast_signed()))
}

impl Request {
    /// `None` if it is another message, or asks for more.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let len = word(bytes, 0)? as usize;
        if len < HEADERS || half(bytes, 4)? != RTM_SETLINK {
            return None;
        }
        // One message, and nothing behind it.
        if len.next_multiple_of(4) != bytes.len().next_multiple_of(4) {
            return None;
        }
        let bytes = bytes.get(..len)?;
        let flags = half(bytes, 6)?;
        let changes = (word(bytes, 24)?, word(bytes, 28)?);
        if flags & !(NLM_F_REQUEST | NLM_F_ACK) != 0 || flags & NLM_F_REQUEST == 0 {
            return None;
        }
        if changes != (0, 0) {
            return None;
        }
        let mut request = Self {
            ifindex: word(bytes, 20)?,
            program: None,
            flags: 0,
            expected: None,
            acknowledge: flags & NLM_F_ACK != 0,
            sequence: word(bytes, 8)?,
            port: word(bytes, 12)?,
        };
        let [(IFLA_XDP, xdp)] = attributes(bytes.get(HEADERS..)?)?[..] else {
            return None;
        };
        let mut has_program = false;
        for (kind, value) in attributes(xdp)? {
            let value = (value.len() == 4).then(|| word(value, 0)).flatten()?;
            match kind {
                IFLA_XDP_FD => {
                    has_program = true;
                    request.program = (value.cast_signed() >= 0).then_some(value.cast_signed());
                }
                IFLA_XDP_FLAGS => request.flags = value,
                IFLA_XDP_EXPECTED_FD => request.expected = Some(value.cast_signed()),
                _ => return None,
            }
        }
        has_program.then_some(request)
    }

    /// A message that does nothing, which the kernel acknowledges like this one.
    fn noop(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(16);
        message.extend(16_u32.to_ne_bytes());
        message.extend(NLMSG_NOOP.to_ne_bytes());
        message.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(self.port.to_ne_bytes());
        message
    }
}

/// Attributes by type; `None` when one is cut short.
fn attributes(mut bytes: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut attributes = Vec::new();
    while !bytes.is_empty() {
        let len = usize::from(half(bytes, 0)?);
        let value = bytes.get(4..len)?;
        attributes.push((half(bytes, 2)? & TYPE, value));
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(attributes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let half = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(half))
}

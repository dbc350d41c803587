//! Requests over netlink(7), one at a time: the socket that rtnetlink, generic netlink and
//! `sock_diag` have in common.

use std::convert::Infallible;
use std::fmt;

use netlink_packet_core::{
    DefaultNla, Emitable as _, NLM_F_ACK_TLVS, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_sys::SocketAddr;
use rustix::io::Errno;

use crate::error::{Context as _, Error, ErrorKind, Result};

/// Messages begin at multiples of four bytes (`NLMSG_ALIGN` in linux/netlink.h).
const ALIGNMENT: usize = 4;
/// The header of the refused request, which comes before the attributes of a refusal.
const REQUEST_HEADER: usize = 16;
/// The attribute with the kernel's own words (`NLMSGERR_ATTR_MSG`, Linux 4.12).
const REASON: u16 = 1;

/// A socket of one netlink protocol. It belongs to the network namespace of the thread that
/// opened it, in whichever thread it is used.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: netlink_sys::Socket,
    sequence: u32,
}

impl Socket {
    /// Opens a socket of a protocol of linux/netlink.h, such as `NETLINK_ROUTE`.
    pub(crate) fn open(protocol: isize) -> Result<Self> {
        let open = || {
            let mut socket = netlink_sys::Socket::new(protocol)?;
            socket.bind_auto()?;
            // Only the kernel can send to a connected socket.
            socket.connect(&SocketAddr::new(0, 0))?;
            // Refusals carry the kernel's reason, and no copy of the request.
            socket.set_ext_ack(true)?;
            socket.set_cap_ack(true)?;
            Ok(socket)
        };
        let socket = open().map_err(|error: std::io::Error| error);
        Ok(Self {
            socket: socket.context("cannot open a netlink socket")?,
            sequence: 0,
        })
    }

    /// Sends one request and returns the messages that come before the answer's end. The flags
    /// decide about that: `NLM_F_ACK` for an acknowledgement, `NLM_F_DUMP` for a list.
    pub(crate) fn request<M>(&mut self, message: M, flags: u16) -> Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
        M::Error: fmt::Display,
    {
        self.send(message, flags)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self
                .socket
                .recv_from_full()
                .context("cannot read from netlink")?;
            if self.read(&bytes, &mut answers)? {
                return Ok(answers);
            }
        }
    }

    fn send<M: NetlinkSerializable>(&mut self, message: M, flags: u16) -> Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket
            .send(&bytes, 0)
            .context("cannot write to netlink")?;
        Ok(())
    }

    /// Adds the messages of one datagram to `answers`; whether the answer has ended.
    fn read<M>(&self, mut bytes: &[u8], answers: &mut Vec<M>) -> Result<bool>
    where
        M: NetlinkDeserializable,
        M::Error: fmt::Display,
    {
        while !bytes.is_empty() {
            let message = NetlinkMessage::<M>::deserialize(bytes).map_err(|error| {
                let text = format!("cannot parse an answer of the kernel over netlink: {error}");
                Error::new(ErrorKind::InvalidAnswer, text)
            })?;
            let length = message.header.length as usize;
            bytes = bytes
                .get(length.next_multiple_of(ALIGNMENT)..)
                .unwrap_or_default();
            // The rest of an earlier request that failed half-way.
            if message.header.sequence_number != self.sequence {
                continue;
            }
            let has_reason = message.header.flags & NLM_F_ACK_TLVS != 0;
            let end = match message.payload {
                NetlinkPayload::InnerMessage(message) => {
                    answers.push(message);
                    continue;
                }
                NetlinkPayload::Error(error) => {
                    let attributes = error.header.get(REQUEST_HEADER..).filter(|_| has_reason);
                    end(error.raw_code(), attributes)
                }
                NetlinkPayload::Done(done) => {
                    end(done.code, has_reason.then_some(&done.extended_ack))
                }
                _ => continue,
            };
            return end.map(|()| true);
        }
        Ok(false)
    }
}

/// The end of an answer: a negative errno and the attributes with the reason, or 0.
fn end(code: i32, attributes: Option<&[u8]>) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let reason = attributes.and_then(|attributes| attribute(attributes, REASON));
    let reason = reason.unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason);
    let errno = Errno::from_raw_os_error(code.saturating_abs());
    Err(Error::os(errno, reason.trim_end_matches('\0')))
}

/// A message of a family that `netlink-packet-route` has no types for.
pub(crate) struct RawMessage {
    /// The type of the message (`nlmsg_type`).
    pub(crate) kind: u16,
    /// All that follows the netlink header.
    pub(crate) payload: Vec<u8>,
}

impl NetlinkSerializable for RawMessage {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.payload.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.payload);
    }
}

impl NetlinkDeserializable for RawMessage {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self {
            kind: header.message_type,
            payload: payload.to_vec(),
        })
    }
}

/// The value of the first attribute of this kind.
pub(crate) fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    NlasIterator::new(attributes)
        .map_while(Result::ok)
        .find(|attribute| attribute.kind() == kind)
        .map(|attribute| attribute.value().to_vec())
}

/// Appends an attribute.
pub(crate) fn push_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let attribute = DefaultNla::new(kind, value.to_vec());
    let start = bytes.len();
    bytes.resize(start + attribute.buffer_len(), 0);
    attribute.emit(&mut bytes[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_again() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 2, b"abc");
        push_attribute(&mut bytes, 7, &[1]);
        assert_eq!(bytes.len(), 16, "each begins at a multiple of four");
        assert_eq!(attribute(&bytes, 2).as_deref(), Some(&b"abc"[..]));
        assert_eq!(attribute(&bytes, 7), Some(vec![1]));
        assert_eq!(attribute(&bytes, 1), None);
        assert_eq!(attribute(&bytes[..5], 2), None, "cut short");
    }

    #[test]
    fn a_refusal_has_the_kernels_reason() {
        let mut attributes = Vec::new();
        push_attribute(&mut attributes, REASON, b"Invalid MTU\0");
        let error = end(-libc::EINVAL, Some(&attributes)).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert!(error.to_string().starts_with("Invalid MTU ("), "{error}");
        assert!(end(0, None).is_ok());
        assert_eq!(
            end(-libc::EPERM, None).unwrap_err().to_string(),
            "EPERM 1: Operation not permitted"
        );
    }
}

//! Requests over netlink(7): the socket that rtnetlink, generic netlink, `sock_diag` and nftables have
//! in common.

mod attribute;

use std::convert::Infallible;
use std::{fmt, mem};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkSerializable,
};
use netlink_sys::SocketAddr;
use rustix::io::Errno;

use crate::error::{Context as _, Error, ErrorKind, Result};

pub(crate) use attribute::{
    ALIGNMENT, Attributes, attribute, ip_address, push_attribute, push_nested, text, u16_of,
    u32_of, u64_at,
};

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER: usize = 16;
/// Types of messages that every protocol has: `NLMSG_ERROR` and `NLMSG_DONE`. Below `NLMSG_MIN_TYPE`
/// are no others with content.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const MIN_TYPE: u16 = 0x10;
/// The highest error number (`include/linux/err.h`).
const MAX_ERRNO: i32 = 4095;
/// The attribute with the kernel's own words (`NLMSGERR_ATTR_MSG`, Linux 4.12).
const REASON: u16 = 1;
/// The most that the kernel puts into one part of a list (`netlink_recvmsg` in
/// `net/netlink/af_netlink.c`), if the reader has room for it.
pub(crate) const PART: usize = 32 << 10;
/// Requests that are sent at once by [`Socket::request_all`]. The refusals of all of them fit into
/// the socket's receive buffer of usual size, 208 KiB, at the 1280 bytes or less that each takes there.
const AT_ONCE: usize = 128;

/// A socket of one netlink protocol. It belongs to the network namespace of the thread that
/// opened it, in whichever thread it is used.
#[derive(Debug)]
pub(crate) struct Socket {
    inner: netlink_sys::Socket,
    sequence: u32,
    buffer: Vec<u8>,
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
            inner: socket
                .context("cannot open a netlink socket")
                .needs_none()?,
            sequence: 0,
            buffer: Vec::new(),
        })
    }

    /// Sends one request and returns the messages that come before the answer's end. The flags
    /// decide about that: `NLM_F_ACK` for an acknowledgement, `NLM_F_DUMP` for a list.
    pub(crate) fn request<M>(&mut self, message: &M, flags: u16) -> Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
        M::Error: fmt::Display,
    {
        let (mut answers, mut fault) = (Vec::new(), None);
        self.ask(&RawMessage::of(message), flags, &mut |kind, payload| {
            let mut header = NetlinkHeader::default();
            header.message_type = kind;
            match M::deserialize(&header, payload) {
                Ok(answer) => answers.push(answer),
                Err(error) => fault = Some(error.to_string()),
            }
        })?;
        match fault {
            Some(fault) => Err(invalid(&fault)),
            None => Ok(answers),
        }
    }

    /// Sends one request and gives the type and the content of each message that comes before the
    /// answer's end to `answer`.
    pub(crate) fn ask(
        &mut self,
        message: &RawMessage,
        flags: u16,
        answer: &mut dyn FnMut(u16, &[u8]),
    ) -> Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        message.push(&mut bytes, flags, self.sequence);
        self.send(&bytes)?;
        loop {
            let end = self.read(|message, sequence| {
                // The rest of an earlier request that failed half-way.
                if message.sequence != sequence {
                    return None;
                }
                let end = message.end();
                if end.is_none() && message.kind >= MIN_TYPE {
                    answer(message.kind, message.payload);
                }
                end
            })?;
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Sends many requests without waiting for the answer to each, and gives the place and the error
    /// of each one that the kernel refuses to `refused`.
    pub(crate) fn request_all(
        &mut self,
        messages: impl IntoIterator<Item = RawMessage>,
        flags: u16,
        refused: &mut dyn FnMut(usize, Error),
    ) -> Result<()> {
        let mut messages = messages.into_iter().peekable();
        let mut done = 0;
        let mut bytes = Vec::new();
        while messages.peek().is_some() {
            bytes.clear();
            let mut count = 0;
            while let Some(message) = messages.next_if(|_| count < AT_ONCE) {
                count += 1;
                let last = count == AT_ONCE || messages.peek().is_none();
                let ack = if last { NLM_F_ACK } else { 0 };
                let sequence = self.sequence.wrapping_add(count as u32);
                message.push(&mut bytes, flags | ack, sequence);
            }
            let first = self.sequence.wrapping_add(1);
            self.sequence = self.sequence.wrapping_add(count as u32);
            self.send(&bytes)?;
            self.read_refusals(first, count, &mut |place, error| {
                refused(done + place, error);
            })?;
            done += count;
        }
        Ok(())
    }

    /// Reads until the acknowledgement of the last of `count` requests.
    fn read_refusals(
        &mut self,
        first: u32,
        count: usize,
        refused: &mut dyn FnMut(usize, Error),
    ) -> Result<()> {
        loop {
            let end = self.read(|message, _| {
                let place = message.sequence.wrapping_sub(first) as usize;
                let end = message.end().filter(|_| place < count)?;
                if let Err(error) = end {
                    refused(place, error);
                }
                (place + 1 == count).then_some(())
            })?;
            if end.is_some() {
                return Ok(());
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        self.inner
            .send(bytes, 0)
            .context("cannot write to netlink")?;
        Ok(())
    }

    /// Reads one datagram and gives its messages to `take`, with the number of the last request, until
    /// that returns something.
    fn read<T>(
        &mut self,
        mut take: impl FnMut(&Message<'_>, u32) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut buffer = mem::take(&mut self.buffer);
        let received = self
            .receive(&mut buffer)
            .context("cannot read from netlink");
        let mut messages = Messages(&buffer);
        let mut found = None;
        while found.is_none()
            && let Some(message) = messages.next()
        {
            found = take(&message, self.sequence);
        }
        let rest = messages.0.len();
        self.buffer = buffer;
        received?;
        if found.is_none() && rest > 0 {
            return Err(invalid(&format!("{rest} bytes that are no message")));
        }
        Ok(found)
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        buffer.clear();
        // The kernel makes the parts of a list as long as the longest read, and single messages as
        // long as they are.
        let peek = libc::MSG_PEEK | libc::MSG_TRUNC;
        let mut none: &mut [u8] = &mut [];
        let length = self.inner.recv(&mut none, peek)?;
        buffer.reserve(length.max(PART));
        self.inner.recv(buffer, 0)?;
        Ok(())
    }
}

fn invalid(fault: &str) -> Error {
    let text = format!("cannot parse an answer of the kernel over netlink: {fault}");
    Error::new(ErrorKind::InvalidAnswer, text)
}

/// A message as it was received.
pub(crate) struct Message<'a> {
    /// The type of the message (`nlmsg_type`).
    pub(crate) kind: u16,
    flags: u16,
    sequence: u32,
    /// All that follows the netlink header.
    pub(crate) payload: &'a [u8],
}

impl Message<'_> {
    /// The end of an answer, if this is one.
    fn end(&self) -> Option<Result<()>> {
        let attributes = match self.kind {
            ERROR => ALIGNMENT + HEADER,
            DONE => ALIGNMENT,
            _ => return None,
        };
        // A list of a kernel that says nothing more than that it ends.
        let code = u32_of(self.payload).unwrap_or_default().cast_signed();
        let attributes = self.payload.get(attributes..);
        Some(end(
            code,
            attributes.filter(|_| self.flags & NLM_F_ACK_TLVS != 0),
        ))
    }
}

/// The messages of a datagram, up to the first one that is cut short.
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let bytes = self.0;
        let length = u32_of(bytes)? as usize;
        let message = Message {
            kind: u16_of(bytes.get(4..)?)?,
            flags: u16_of(bytes.get(6..)?)?,
            sequence: u32_of(bytes.get(8..)?)?,
            payload: bytes.get(HEADER..length)?,
        };
        let end = length.checked_next_multiple_of(ALIGNMENT)?;
        self.0 = bytes.get(end..).unwrap_or_default();
        Some(message)
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
    let code = code.saturating_abs();
    if code > MAX_ERRNO {
        return Err(invalid(&format!("the error number {code}")));
    }
    let errno = Errno::from_raw_os_error(code);
    Err(Error::os(errno, reason.trim_end_matches('\0')))
}

/// A message that this crate writes or parses itself.
pub(crate) struct RawMessage {
    /// The type of the message (`nlmsg_type`).
    pub(crate) kind: u16,
    /// All that follows the netlink header.
    pub(crate) payload: Vec<u8>,
}

impl RawMessage {
    /// The message as bytes.
    pub(crate) fn of(message: &impl NetlinkSerializable) -> Self {
        let mut payload = vec![0; message.buffer_len()];
        message.serialize(&mut payload);
        Self {
            kind: message.message_type(),
            payload,
        }
    }

    /// Appends the message with a header in front.
    fn push(&self, bytes: &mut Vec<u8>, flags: u16, sequence: u32) {
        let length = (HEADER + self.payload.len()) as u32;
        bytes.extend(length.to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        // The port of the sender, which the kernel knows.
        bytes.extend([0; 4]);
        bytes.extend(&self.payload);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
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

/// Every cut of these bytes, and every one of their bits changed: for parsers that must not panic.
#[cfg(test)]
pub(crate) fn damaged(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let cut = (0..bytes.len()).map(|length| bytes[..length].to_vec());
    let changed = (0..bytes.len() * 8).map(|bit| {
        let mut changed = bytes.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        changed
    });
    cut.chain(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_kernels_reason() {
        let mut attributes = Vec::new();
        push_attribute(&mut attributes, REASON, b"Invalid MTU\0");
        let error = end(-libc::EINVAL, Some(&attributes)).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert!(error.to_string().starts_with("Invalid MTU ("), "{error}");
        assert!(end(0, None).is_ok());
        for code in [4096, -4096, i32::MIN] {
            let error = end(code, None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
        }
        assert_eq!(
            end(-libc::EPERM, None).unwrap_err().to_string(),
            "EPERM 1: Operation not permitted"
        );
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        for (kind, payload) in [(16, vec![1, 2, 3]), (17, vec![]), (DONE, vec![0; 4])] {
            RawMessage { kind, payload }.push(&mut bytes, 0, 7);
        }
        let messages: Vec<_> = Messages(&bytes).collect();
        let kinds: Vec<_> = messages.iter().map(|message| message.kind).collect();
        assert_eq!(kinds, [16, 17, DONE]);
        assert_eq!(messages[0].payload, [1, 2, 3]);
        assert!(messages[1].end().is_none() && messages[1].sequence == 7);
        assert!(matches!(messages[2].end(), Some(Ok(()))));
        for bytes in damaged(&bytes) {
            assert!(Messages(&bytes).filter_map(|message| message.end()).count() <= 3);
        }
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_messages() {
        for length in [0_u32, 15, 21, u32::MAX] {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend([0; 16]);
            assert_eq!(Messages(&bytes).count(), 0, "{length}");
        }
    }
}

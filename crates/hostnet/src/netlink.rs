//! The two families of netlink that tell of XDP and that no crate knows: `netdev`, for what a
//! driver can do (Documentation/netlink/specs/netdev.yaml), and `xdp_diag`, for the AF_XDP
//! sockets (`linux/xdp_diag.h`).

use std::convert::Infallible;
use std::io;

use anyhow::{Context as _, Result, anyhow};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_SOCK_DIAG};
use netlink_sys::{Socket, SocketAddr};

/// Generic netlink's own family and its question for another's number (linux/genetlink.h).
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// A header of generic netlink: command, version, two bytes of nothing.
const GENERIC_HEADER: usize = 4;
/// Linux' linux/netdev.h.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;
/// `linux/sock_diag.h` and `linux/xdp_diag.h`.
const BY_FAMILY: u16 = 20;
const SHOW_INFO_AND_UMEM: u32 = 1 | 1 << 2;
const SOCKET_MESSAGE: usize = 16;
const SOCKET_INFO: u16 = 1;
const SOCKET_UMEM: u16 = 5;
/// Where the flags of `struct xdp_diag_umem` are, and the one for zero-copy.
const UMEM_FLAGS: usize = 32;
const UMEM_ZERO_COPY: u32 = 1;

/// What a device's driver can do with XDP, by the bits of `enum netdev_xdp_act`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpFeatures(u64);

impl XdpFeatures {
    const NAMES: [&str; 7] = [
        "basic",
        "redirect",
        "ndo-xmit",
        "xsk-zerocopy",
        "hw-offload",
        "rx-sg",
        "ndo-xmit-sg",
    ];

    /// Those of these bits.
    pub fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether a program can run in the driver.
    pub fn native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether packets can be redirected to it now.
    pub fn takes_redirected(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    /// Whether AF_XDP sockets can have its packets without a copy.
    pub fn zero_copy(self) -> bool {
        self.0 & 1 << 3 != 0
    }

    /// Their names in netdev.yaml.
    pub fn names(self) -> String {
        let is_set = |bit: &usize| self.0 >> bit & 1 == 1;
        let names = (0..Self::NAMES.len())
            .filter(is_set)
            .map(|bit| Self::NAMES[bit]);
        match names.collect::<Vec<_>>().as_slice() {
            [] => "none".into(),
            names => names.join(" "),
        }
    }
}

/// An AF_XDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpSocket {
    /// The number of its device.
    pub device: u32,
    /// The queue it is bound to.
    pub queue: u32,
    /// Whether it got zero-copy.
    pub zero_copy: bool,
}

/// What the driver of a device can do with XDP; none for a kernel that does not tell.
pub fn xdp_features(device: u32) -> Result<Option<XdpFeatures>> {
    let Some(family) = family("netdev")? else {
        return Ok(None);
    };
    let mut request = generic(GET_DEVICE);
    push(&mut request, DEVICE_INDEX, &device.to_ne_bytes());
    let answers = ask(NETLINK_GENERIC, family, request, NLM_F_ACK)
        .context("cannot ask what the driver can do with XDP")?;
    let features = answers
        .iter()
        .find_map(|answer| attribute(answer.get(GENERIC_HEADER..)?, DEVICE_FEATURES))
        .context("the kernel does not say what the driver can do with XDP")?;
    let features = features.try_into().map(u64::from_ne_bytes);
    Ok(Some(XdpFeatures(features.map_err(|_| {
        anyhow!("the kernel's XDP features are not 64 bits")
    })?)))
}

fn family(name: &str) -> Result<Option<u16>> {
    let mut request = generic(GET_FAMILY);
    push(&mut request, FAMILY_NAME, format!("{name}\0").as_bytes());
    let answers = match ask(NETLINK_GENERIC, CONTROL, request, NLM_F_ACK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        answers => answers.context("cannot ask for a family of generic netlink")?,
    };
    let id = answers
        .iter()
        .find_map(|answer| attribute(answer.get(GENERIC_HEADER..)?, FAMILY_ID));
    Ok(id.and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?))))
}

fn generic(command: u8) -> Vec<u8> {
    vec![command, 1, 0, 0]
}

/// The AF_XDP sockets of the namespace; none for a kernel that does not tell.
pub fn xdp_sockets() -> Result<Option<Vec<XdpSocket>>> {
    let family = u8::try_from(libc::AF_XDP)?;
    // `struct xdp_diag_req`.
    let mut request = vec![family, 0, 0, 0, 0, 0, 0, 0];
    request.extend(SHOW_INFO_AND_UMEM.to_ne_bytes());
    request.extend([0; 8]);
    match ask(NETLINK_SOCK_DIAG, BY_FAMILY, request, NLM_F_DUMP) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        answers => {
            let answers = answers.context("cannot list the AF_XDP sockets")?;
            Ok(Some(
                answers.iter().filter_map(|answer| socket(answer)).collect(),
            ))
        }
    }
}

/// A socket that is not bound has neither a device nor a UMEM.
fn socket(message: &[u8]) -> Option<XdpSocket> {
    let attributes = message.get(SOCKET_MESSAGE..)?;
    let info = attribute(attributes, SOCKET_INFO)?;
    let umem = attribute(attributes, SOCKET_UMEM)?;
    Some(XdpSocket {
        device: word(&info, 0)?,
        queue: word(&info, 4)?,
        zero_copy: word(&umem, UMEM_FLAGS)? & UMEM_ZERO_COPY != 0,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

/// Adds an attribute. All lengths here are a few bytes.
fn push(request: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    request.extend(length.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(value);
    request.resize(request.len().next_multiple_of(4), 0);
}

fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    NlasIterator::new(attributes)
        .map_while(Result::ok)
        .find(|attribute| attribute.kind() == kind)
        .map(|attribute| attribute.value().to_vec())
}

/// A message whose inside is left as it is.
struct Raw {
    kind: u16,
    bytes: Vec<u8>,
}

impl NetlinkSerializable for Raw {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.bytes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.bytes);
    }
}

impl NetlinkDeserializable for Raw {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self {
            kind: header.message_type,
            bytes: payload.to_vec(),
        })
    }
}

/// Sends one request on a socket of its own and gives what came before the answer's end: the
/// acknowledgement that was asked for, or the end of a list.
fn ask(protocol: isize, kind: u16, bytes: Vec<u8>, flags: u16) -> io::Result<Vec<Vec<u8>>> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let payload = NetlinkPayload::InnerMessage(Raw { kind, bytes });
    let mut request = NetlinkMessage::new(header, payload);
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut found = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<Raw>::deserialize(rest).map_err(io::Error::other)?;
            let length = message.header.length as usize;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::InnerMessage(message) => found.push(message.bytes),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                // The end of a list, or an acknowledgement.
                _ => return Ok(found),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_no_native_xdp() -> Result<()> {
        // Linux has the family since 6.3; the loopback has number 1 in every namespace.
        if let Some(features) = xdp_features(1)? {
            assert!(!features.native(), "{}", features.names());
        }
        Ok(())
    }

    #[test]
    fn a_family_that_is_not_there_is_none() -> Result<()> {
        assert_eq!(family("weir-none")?, None);
        Ok(())
    }

    #[test]
    fn features_have_names() {
        assert_eq!(XdpFeatures(0).names(), "none");
        assert_eq!(XdpFeatures(0b1101).names(), "basic ndo-xmit xsk-zerocopy");
    }

    #[test]
    fn a_socket_is_read_from_its_attributes() {
        let mut message = vec![0; SOCKET_MESSAGE];
        assert_eq!(socket(&message), None, "not bound");
        let mut info = 7_u32.to_ne_bytes().to_vec();
        info.extend(3_u32.to_ne_bytes());
        push(&mut message, SOCKET_INFO, &info);
        let mut umem = vec![0; UMEM_FLAGS + 8];
        umem[UMEM_FLAGS..UMEM_FLAGS + 4].copy_from_slice(&1_u32.to_ne_bytes());
        push(&mut message, SOCKET_UMEM, &umem);
        let expected = XdpSocket {
            device: 7,
            queue: 3,
            zero_copy: true,
        };
        assert_eq!(socket(&message), Some(expected));
        message.truncate(message.len() - 20);
        assert_eq!(socket(&message), None, "cut short");
    }
}

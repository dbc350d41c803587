//! Properties of network devices, read over netlink and ethtool.

mod attached;

pub use attached::{AttachMode, AttachedProgram};

use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, LinkXdp};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket as NetlinkSocket, SocketAddr};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::AsFd;

/// Longest name of a network device (`IFNAMSIZ` without the final zero).
const NAME_MOST: usize = 15;

/// A network device of the calling thread's network namespace, at the time of the lookup.
///
/// ```
/// # fn main() -> xsk::Result<()> {
/// let device = xsk::Device::lookup("lo")?;
/// println!("{} has {} RX queues and MTU {}", device.name, device.rx_queues, device.mtu);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Largest packet, without the link header, in bytes.
    pub mtu: u32,
    /// Whether it is up (`IFF_UP`).
    pub up: bool,
    /// RX queues in use.
    pub rx_queues: u32,
    /// TX queues in use.
    pub tx_queues: u32,
    /// XDP programs attached to it.
    pub programs: Vec<AttachedProgram>,
}

impl Device {
    /// Looks up a device by its name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceMissing`] when this network namespace has no such device.
    pub fn lookup(name: &str) -> Result<Self> {
        let missing = || {
            let message = format!(
                "no network device {name:?} in this network namespace: `ip link` lists the devices"
            );
            Error::new(ErrorKind::DeviceMissing, message)
        };
        if name.is_empty() || name.len() > NAME_MOST {
            return Err(missing());
        }
        let failed = |error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::os(
                ErrorKind::Os,
                errno,
                format!("looking up the device {name:?} over netlink"),
            )
        };
        let link = match ask(name).map_err(failed)? {
            Answer::Link(link) => link,
            Answer::Refused(Errno::NODEV) => return Err(missing()),
            Answer::Refused(errno) => return Err(failed(errno.into())),
        };
        let mut device = Self::from_link(name, &link);
        device.count_used_queues();
        Ok(device)
    }

    fn from_link(name: &str, link: &LinkMessage) -> Self {
        let mut device = Self {
            name: name.to_owned(),
            index: link.header.index,
            mtu: 0,
            up: link.header.flags.contains(LinkFlags::Up),
            rx_queues: 1,
            tx_queues: 1,
            programs: Vec::new(),
        };
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
                LinkAttribute::NumRxQueues(count) => device.rx_queues = *count,
                LinkAttribute::NumTxQueues(count) => device.tx_queues = *count,
                LinkAttribute::Xdp(parts) => device.programs = programs(parts),
                _ => {}
            }
        }
        device
    }

    /// Netlink reports allocated queues, ethtool those in use. A driver without ethtool channels
    /// uses all.
    fn count_used_queues(&mut self) {
        let kind = SocketType::DGRAM;
        let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None);
        let channels = socket.and_then(|socket| sys::channels(socket.as_fd(), &self.name));
        if let Ok((rx, tx)) = channels {
            self.rx_queues = if rx > 0 { rx } else { self.rx_queues };
            self.tx_queues = if tx > 0 { tx } else { self.tx_queues };
        }
    }

    /// The program that prevents attaching another.
    pub(crate) fn obstacle(&self) -> Option<&AttachedProgram> {
        self.programs.first()
    }
}

fn programs(parts: &[LinkXdp]) -> Vec<AttachedProgram> {
    let found = parts.iter().filter_map(|part| match *part {
        LinkXdp::DrvProgId(id) => Some((AttachMode::Driver, id)),
        LinkXdp::SkbProgId(id) => Some((AttachMode::Skb, id)),
        LinkXdp::HwProgId(id) => Some((AttachMode::Hardware, id)),
        _ => None,
    });
    found
        .map(|(mode, id)| AttachedProgram::lookup(mode, id))
        .collect()
}

enum Answer {
    Link(LinkMessage),
    Refused(Errno),
}

fn ask(name: &str) -> std::io::Result<Answer> {
    let mut socket = NetlinkSocket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut request = NetlinkMessage::new(header, RouteNetlinkMessage::GetLink(message).into());
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let malformed = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(malformed)?;
    match answer.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(Answer::Link(link)),
        NetlinkPayload::Error(error) => {
            Ok(Answer::Refused(Errno::from_raw_os_error(-error.raw_code())))
        }
        other => Err(std::io::Error::other(format!(
            "unexpected answer {other:?}"
        ))),
    }
}

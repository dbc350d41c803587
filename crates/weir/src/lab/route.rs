//! Devices, over rtnetlink(7): the four requests that a lab needs, one at a time.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use anyhow::{Context as _, Result, anyhow, bail};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{
        InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp,
        State, Stats64,
    },
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// A socket to the kernel's routing subsystem. It speaks of the network namespace it was
/// opened in, wherever it is used.
pub struct Route {
    socket: Socket,
    sequence: u32,
}

/// One end of a veth pair to be made.
pub struct VethEnd<'a> {
    /// The device's name.
    pub name: &'a str,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Where it is to be.
    pub netns: BorrowedFd<'a>,
}

/// What the kernel says of a device.
#[derive(Debug, Clone)]
pub struct Link {
    /// The device's number in its namespace.
    pub index: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The largest packet it carries, without the Ethernet header.
    pub mtu: u32,
    /// Its number of receive queues.
    pub queues: u32,
    /// Whether it can carry packets: up, and so is its peer.
    pub running: bool,
    /// The number of its XDP program.
    pub xdp_program: Option<u32>,
    /// Its counters.
    pub stats: Stats64,
}

impl Route {
    /// Opens the socket in the calling thread's network namespace.
    pub fn open() -> Result<Self> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(socket)
        };
        let socket = open().map_err(|error: std::io::Error| {
            anyhow!(error).context("cannot open a netlink socket")
        })?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Makes a veth pair, both ends down, with as many queues each way at each end.
    pub fn add_veth(&mut self, ends: [&VethEnd<'_>; 2], queues: u32, mtu: u32) -> Result<()> {
        let [mut message, peer] = ends.map(|end| {
            let mut message = LinkMessage::default();
            message.attributes = vec![
                LinkAttribute::IfName(end.name.into()),
                LinkAttribute::Address(end.mac.into()),
                LinkAttribute::NetNsFd(end.netns.as_raw_fd()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::NumTxQueues(queues),
                LinkAttribute::NumRxQueues(queues),
            ];
            message
        });
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.request(RouteNetlinkMessage::NewLink(message), flags)
            .with_context(|| format!("cannot make a veth pair of {queues} queues and MTU {mtu}"))?;
        Ok(())
    }

    /// Brings a device up.
    pub fn set_up(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), NLM_F_ACK)
            .context("cannot bring a device up")?;
        Ok(())
    }

    /// Removes a device; a veth takes its peer with it.
    pub fn delete(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.request(RouteNetlinkMessage::DelLink(message), NLM_F_ACK)
            .context("cannot remove a device")?;
        Ok(())
    }

    /// What the kernel says of the device `name`.
    pub fn link(&mut self, name: &str) -> Result<Link> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        let answer = self
            .request(RouteNetlinkMessage::GetLink(message), 0)
            .with_context(|| format!("cannot ask for the device {name}"))?;
        match answer {
            Some(RouteNetlinkMessage::NewLink(message)) => Ok(Link::from(message)),
            _ => bail!("the kernel did not describe the device {name}"),
        }
    }

    /// Sends one request and waits for its answer: a message, or `None` for a bare
    /// acknowledgement.
    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Option<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut packet = NetlinkMessage::from(message);
        packet.header.sequence_number = self.sequence;
        packet.header.flags = NLM_F_REQUEST | flags;
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket
            .send(&bytes, 0)
            .context("cannot write to netlink")?;
        loop {
            let (bytes, _) = self
                .socket
                .recv_from_full()
                .context("cannot read from netlink")?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes)
                .context("cannot understand netlink's answer")?;
            // What is left of an earlier request that failed half-way is not this one's.
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io().into()),
                _ => Ok(None),
            };
        }
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            mac: [0; 6],
            mtu: 0,
            queues: 0,
            running: false,
            xdp_program: None,
            stats: Stats64::default(),
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::Address(address) => {
                    link.mac = address.try_into().unwrap_or_default();
                }
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::NumRxQueues(queues) => link.queues = queues,
                LinkAttribute::OperState(state) => link.running = state == State::Up,
                LinkAttribute::Stats64(stats) => link.stats = stats,
                LinkAttribute::Xdp(about) => {
                    link.xdp_program = about.into_iter().find_map(|nla| match nla {
                        LinkXdp::ProgId(id) => Some(id),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        link
    }
}

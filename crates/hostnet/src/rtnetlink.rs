//! Devices and their queueing disciplines, over rtnetlink(7), one request at a time.

mod ports;

use std::os::fd::{AsRawFd as _, BorrowedFd};

use anyhow::{Context as _, Result, anyhow, bail};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, State,
    Stats64,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A socket to the kernel's routing subsystem. It speaks of the network namespace it was
/// opened in, wherever it is used.
pub struct Rtnetlink {
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
    /// The device's name.
    pub name: String,
    /// The device's number in its namespace.
    pub index: u32,
    /// What made it, such as `veth` or `tun`; none for a real one and for the loopback.
    pub kind: Option<String>,
    /// Whether it is the loopback.
    pub loopback: bool,
    /// Whether it is set up (`IFF_UP`).
    pub up: bool,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The largest packet it carries, without the Ethernet header.
    pub mtu: u32,
    /// Its number of receive queues.
    pub queues: u32,
    /// The number of the device that it is a port or a leg of.
    pub controller: Option<u32>,
    /// The number of the device that it lies upon, or of its peer.
    pub lower: Option<u32>,
    /// The namespace of `lower`, by the number that this one knows it by; none for this one.
    pub lower_netns: Option<i32>,
    /// Whether it can carry packets: up, and so is its peer.
    pub running: bool,
    /// The number of its XDP program.
    pub xdp_program: Option<u32>,
    /// Its counters.
    pub stats: Stats64,
}

/// A queueing discipline of a device.
#[derive(Debug, Clone)]
pub struct Qdisc {
    /// The number of the device.
    pub device: u32,
    /// Its kind, such as `fq_codel`.
    pub kind: String,
    /// Its own number; zero for what the kernel put there by itself.
    pub handle: TcHandle,
    /// What it hangs below.
    pub parent: TcHandle,
    /// Its settings.
    pub options: Vec<TcOption>,
}

impl Rtnetlink {
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

    /// Every device of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let answers = self
            .dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))
            .context("cannot list the devices")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(message) => Some(Link::from(message)),
                _ => None,
            })
            .collect())
    }

    /// Every queueing discipline of the namespace.
    pub fn qdiscs(&mut self) -> Result<Vec<Qdisc>> {
        let answers = self
            .dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))
            .context("cannot list the queueing disciplines")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewQueueDiscipline(message) => Some(Qdisc::from(message)),
                _ => None,
            })
            .collect())
    }

    /// Sends a request that is answered by a list.
    fn dump(&mut self, message: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>> {
        self.send(message, NLM_F_DUMP)?;
        let mut found = Vec::new();
        loop {
            let bytes = self.receive()?;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (answer, length) = parse(rest)?;
                // Messages begin at multiples of four bytes (`NLMSG_ALIGN`).
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => found.push(message),
                    NetlinkPayload::Done(_) => return Ok(found),
                    NetlinkPayload::Error(error) => return Err(error.to_io().into()),
                    _ => {}
                }
            }
        }
    }

    /// Sends one request and waits for its answer: a message, or `None` for a bare
    /// acknowledgement.
    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Option<RouteNetlinkMessage>> {
        self.send(message, flags)?;
        loop {
            let (answer, _) = parse(&self.receive()?)?;
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

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
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
        Ok(())
    }

    fn receive(&self) -> Result<Vec<u8>> {
        let (bytes, _) = self
            .socket
            .recv_from_full()
            .context("cannot read from netlink")?;
        Ok(bytes)
    }
}

/// The first message in `bytes`, and its length.
fn parse(bytes: &[u8]) -> Result<(NetlinkMessage<RouteNetlinkMessage>, usize)> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes)
        .context("cannot understand netlink's answer")?;
    // A parsed message is never shorter than its header, so a list of them comes to an end.
    let length = usize::try_from(message.header.length)?;
    Ok((message, length))
}

impl From<TcMessage> for Qdisc {
    fn from(message: TcMessage) -> Self {
        let mut qdisc = Self {
            device: message.header.index.cast_unsigned(),
            kind: String::new(),
            handle: message.header.handle,
            parent: message.header.parent,
            options: Vec::new(),
        };
        for attribute in message.attributes {
            match attribute {
                TcAttribute::Kind(kind) => qdisc.kind = kind,
                TcAttribute::Options(options) => qdisc.options = options,
                _ => {}
            }
        }
        qdisc
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            name: String::new(),
            index: message.header.index,
            kind: None,
            loopback: flags.contains(LinkFlags::Loopback),
            up: flags.contains(LinkFlags::Up),
            mac: [0; 6],
            mtu: 0,
            queues: 0,
            controller: None,
            lower: None,
            lower_netns: None,
            running: false,
            xdp_program: None,
            stats: Stats64::default(),
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::Address(address) => {
                    link.mac = address.try_into().unwrap_or_default();
                }
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::LinkInfo(about) => {
                    link.kind = about.into_iter().find_map(|nla| match nla {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                LinkAttribute::Controller(index) => link.controller = Some(index),
                LinkAttribute::Link(index) => link.lower = Some(index),
                LinkAttribute::LinkNetNsId(id) => link.lower_netns = Some(id),
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

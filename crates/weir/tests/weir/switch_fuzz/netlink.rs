//! rtnetlink(7) for what the fuzzer changes and reads: bridges, their ports, VLANs and forwarding
//! database. It is on its own so that a fault of the mirror is not also in its test.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

// linux/rtnetlink.h
const NEWLINK: u16 = 16;
const DELLINK: u16 = 17;
const GETLINK: u16 = 18;
const SETLINK: u16 = 19;
const NEWNEIGH: u16 = 28;
const DELNEIGH: u16 = 29;
const GETNEIGH: u16 = 30;
const NEWQDISC: u16 = 36;
const DELQDISC: u16 = 37;
// linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
const REPLACE: u16 = 0x100;
const NESTED: u16 = 0x8000;
// linux/pkt_sched.h
const TC_H_ROOT: u32 = 0xffff_ffff;
const TCA_KIND: u16 = 1;
// linux/if_link.h
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
// linux/if_bridge.h
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
const VLAN_PVID: u16 = 2;
const VLAN_UNTAGGED: u16 = 4;
// linux/neighbour.h
const NDA_LLADDR: u16 = 2;
const NDA_VLAN: u16 = 5;
const NDA_MASTER: u16 = 9;
const NTF_SELF: u8 = 2;
const NTF_MASTER: u8 = 4;
const NTF_STICKY: u8 = 0x40;
const NUD_REACHABLE: u16 = 2;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;

const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const OPER_UNKNOWN: u8 = 0;
const OPER_UP: u8 = 6;

/// A setting of a bridge, by its attribute (`IFLA_BR_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeSetting {
    /// In hundredths of a second.
    AgeingTime(u32),
    /// The same.
    ForwardDelay(u32),
    VlanFiltering(bool),
    /// The ethertype.
    VlanProtocol(u16),
    /// Link-local addresses to forward, by their last digit.
    GroupForwardMask(u16),
    Flush,
    MulticastSnooping(bool),
    NoLinkLocalLearning(bool),
    /// 0 is no limit (Linux 6.7).
    MaxLearned(u32),
}

impl BridgeSetting {
    fn attribute(self) -> Vec<u8> {
        match self {
            Self::ForwardDelay(time) => attribute(1, &time.to_ne_bytes()),
            Self::AgeingTime(time) => attribute(4, &time.to_ne_bytes()),
            Self::VlanFiltering(on) => attribute(7, &[on.into()]),
            Self::VlanProtocol(ethertype) => attribute(8, &ethertype.to_be_bytes()),
            Self::GroupForwardMask(mask) => attribute(9, &mask.to_ne_bytes()),
            Self::Flush => attribute(21, &[]),
            Self::MulticastSnooping(on) => attribute(23, &[on.into()]),
            // struct br_boolopt_multi: values, and the options that they are of.
            Self::NoLinkLocalLearning(on) => {
                let multi = [u32::from(on).to_ne_bytes(), 1_u32.to_ne_bytes()].concat();
                attribute(46, &multi)
            }
            Self::MaxLearned(most) => attribute(49, &most.to_ne_bytes()),
        }
    }
}

/// A setting of a port that is on or off, by its attribute (`IFLA_BRPORT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Flag {
    Hairpin = 4,
    BpduGuard = 5,
    Learning = 8,
    UnicastFlood = 9,
    MulticastFlood = 27,
    BroadcastFlood = 30,
    NeighbourSuppress = 32,
    Isolated = 33,
    Locked = 39,
}

/// A setting of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortSetting {
    Flag(Flag, bool),
    /// `BR_STATE_*`: 0 disabled, 1 listening, 2 learning, 3 forwarding, 4 blocking.
    State(u8),
    GroupForwardMask(u16),
    Flush,
}

impl PortSetting {
    fn attribute(self) -> Vec<u8> {
        match self {
            Self::Flag(flag, on) => attribute(flag as u16, &[on.into()]),
            Self::State(state) => attribute(1, &[state]),
            Self::GroupForwardMask(mask) => attribute(31, &mask.to_ne_bytes()),
            Self::Flush => attribute(24, &[]),
        }
    }
}

/// The kind of an entry of the forwarding database that is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    Dynamic,
    Static,
    Sticky,
    /// An address of the host itself.
    Local,
}

/// An entry of the forwarding database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub mac: [u8; 6],
    pub vlan: u16,
    /// The index of its port's device.
    pub device: u32,
    pub state: u16,
    pub sticky: bool,
}

impl Entry {
    /// Whether the kernel forgets it when nothing comes from the address.
    pub fn ages(&self) -> bool {
        self.state & (NUD_NOARP | NUD_PERMANENT) == 0
    }
}

/// A device, as far as the fuzzer waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    pub up: bool,
    pub carrier: bool,
    operstate: u8,
    pub port_state: Option<u8>,
}

impl Device {
    /// Whether the kernel's deferred work on its state is done.
    pub fn is_settled(self) -> bool {
        match self.operstate {
            OPER_UP => self.up && self.carrier,
            // A tap has it from the begin on.
            OPER_UNKNOWN => true,
            _ => !(self.up && self.carrier),
        }
    }
}

/// A VLAN of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    pub id: u16,
    pub pvid: bool,
    pub untagged: bool,
}

/// A socket of one namespace.
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// A socket of the calling thread's namespace.
    pub fn open() -> Result<Self> {
        // NETLINK_ROUTE is protocol 0.
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        );
        Ok(Self {
            socket: socket.context("cannot open a netlink socket")?,
            sequence: 0,
        })
    }

    /// Sends a request; returns the bodies of the answers, with their types.
    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<(u16, Vec<u8>)>> {
        self.sequence += 1;
        let mut bytes = Vec::with_capacity(16 + body.len());
        bytes.extend((16 + body.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | REQUEST | ACK).to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        send(&self.socket, &bytes, SendFlags::empty())?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let (length, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            if self.read(&buffer[..length], &mut answers)? {
                return Ok(answers);
            }
        }
    }

    /// Whether the answer has ended.
    fn read(&self, mut bytes: &[u8], answers: &mut Vec<(u16, Vec<u8>)>) -> io::Result<bool> {
        while bytes.len() >= 16 {
            let length = (long(bytes, 0) as usize).clamp(16, bytes.len());
            let kind = word(bytes, 4);
            let body = &bytes[16..length];
            let is_ours = long(bytes, 8) == self.sequence;
            bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
            match kind {
                _ if !is_ours => {}
                NLMSG_ERROR | NLMSG_DONE => {
                    let code = if body.len() < 4 {
                        0
                    } else {
                        long(body, 0).cast_signed()
                    };
                    if code < 0 {
                        return Err(Errno::from_raw_os_error(-code).into());
                    }
                    return Ok(true);
                }
                _ => answers.push((kind, body.to_vec())),
            }
        }
        Ok(false)
    }

    fn change(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.request(kind, flags, body).map(drop)
    }

    /// The index of a device.
    pub fn index(&mut self, name: &str) -> Result<u32> {
        let mut body = link(0, 0, 0, 0);
        body.extend(attribute(IFLA_IFNAME, &zero_terminated(name)));
        let answers = self.request(GETLINK, 0, &body);
        let answers = answers.with_context(|| format!("cannot read the device {name}"))?;
        match answers.first() {
            Some((_, body)) if body.len() >= 16 => Ok(long(body, 4)),
            _ => bail!("no device {name}"),
        }
    }

    /// The state of a device.
    pub fn device(&mut self, index: u32) -> io::Result<Device> {
        let answers = self.request(GETLINK, 0, &link(0, index, 0, 0))?;
        let body = answers
            .first()
            .map(|(_, body)| &body[..])
            .unwrap_or_default();
        if body.len() < 16 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let flags = long(body, 8);
        let attributes = &body[16..];
        let operstate = find(attributes, IFLA_OPERSTATE).and_then(|value| value.first().copied());
        let port =
            find(attributes, IFLA_LINKINFO).and_then(|info| find(info, IFLA_INFO_SLAVE_DATA));
        Ok(Device {
            up: flags & IFF_UP != 0,
            carrier: flags & IFF_LOWER_UP != 0,
            operstate: operstate.unwrap_or(OPER_UNKNOWN),
            port_state: port.and_then(|port| find(port, 1)?.first().copied()),
        })
    }

    pub fn add_bridge(&mut self, name: &str, mac: [u8; 6]) -> io::Result<()> {
        let settings = BridgeSetting::MulticastSnooping(false).attribute();
        let info = [
            attribute(IFLA_INFO_KIND, b"bridge"),
            attribute(IFLA_INFO_DATA | NESTED, &settings),
        ];
        let mut body = link(0, 0, 0, 0);
        body.extend(attribute(IFLA_IFNAME, &zero_terminated(name)));
        body.extend(attribute(IFLA_ADDRESS, &mac));
        body.extend(attribute(IFLA_LINKINFO | NESTED, &info.concat()));
        self.change(NEWLINK, CREATE, &body)
    }

    pub fn set_bridge(&mut self, index: u32, setting: BridgeSetting) -> io::Result<()> {
        let info = [
            attribute(IFLA_INFO_KIND, b"bridge"),
            attribute(IFLA_INFO_DATA | NESTED, &setting.attribute()),
        ];
        let mut body = link(0, index, 0, 0);
        body.extend(attribute(IFLA_LINKINFO | NESTED, &info.concat()));
        self.change(NEWLINK, 0, &body)
    }

    pub fn set_port(&mut self, index: u32, setting: PortSetting) -> io::Result<()> {
        let mut body = link(libc::AF_BRIDGE as u8, index, 0, 0);
        body.extend(attribute(IFLA_PROTINFO | NESTED, &setting.attribute()));
        self.change(SETLINK, 0, &body)
    }

    pub fn set_up(&mut self, index: u32, up: bool) -> io::Result<()> {
        let flags = if up { IFF_UP } else { 0 };
        self.change(SETLINK, 0, &link(0, index, flags, IFF_UP))
    }

    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        self.set_link(index, IFLA_MTU, &mtu.to_ne_bytes())
    }

    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        self.set_link(index, IFLA_ADDRESS, &mac)
    }

    /// Makes the device a port of a bridge, or of none.
    pub fn set_master(&mut self, index: u32, bridge: Option<u32>) -> io::Result<()> {
        self.set_link(
            index,
            IFLA_MASTER,
            &bridge.unwrap_or_default().to_ne_bytes(),
        )
    }

    fn set_link(&mut self, index: u32, kind: u16, value: &[u8]) -> io::Result<()> {
        let mut body = link(0, index, 0, 0);
        body.extend(attribute(kind, value));
        self.change(SETLINK, 0, &body)
    }

    pub fn delete(&mut self, index: u32) -> io::Result<()> {
        self.change(DELLINK, 0, &link(0, index, 0, 0))
    }

    /// Puts a queue of plain order before a device, or takes it away (tc-pfifo(8)).
    pub fn set_queue(&mut self, index: u32, queue: bool) -> io::Result<()> {
        // struct tcmsg: family, index, handle, parent, info.
        let mut body = vec![0; 4];
        for value in [index, 0, TC_H_ROOT, 0] {
            body.extend(value.to_ne_bytes());
        }
        if queue {
            body.extend(attribute(TCA_KIND, &zero_terminated("pfifo")));
            self.change(NEWQDISC, CREATE | REPLACE, &body)
        } else {
            self.change(DELQDISC, 0, &body)
        }
    }

    /// Adds a VLAN to a port, or takes it away.
    pub fn set_vlan(&mut self, index: u32, vlan: Vlan, add: bool) -> io::Result<()> {
        let mut flags = 0;
        if vlan.pvid {
            flags |= VLAN_PVID;
        }
        if vlan.untagged {
            flags |= VLAN_UNTAGGED;
        }
        let info = [flags.to_ne_bytes(), vlan.id.to_ne_bytes()].concat();
        let info = attribute(IFLA_BRIDGE_VLAN_INFO, &info);
        let mut body = link(libc::AF_BRIDGE as u8, index, 0, 0);
        body.extend(attribute(IFLA_AF_SPEC | NESTED, &info));
        self.change(if add { SETLINK } else { DELLINK }, 0, &body)
    }

    pub fn add_entry(
        &mut self,
        index: u32,
        mac: [u8; 6],
        vlan: u16,
        kind: EntryKind,
    ) -> io::Result<()> {
        let (state, flags) = match kind {
            EntryKind::Dynamic => (NUD_REACHABLE, 0),
            EntryKind::Static => (NUD_NOARP, 0),
            EntryKind::Sticky => (NUD_NOARP, NTF_STICKY),
            EntryKind::Local => (NUD_PERMANENT, 0),
        };
        let body = neighbour(index, state, flags | NTF_MASTER, mac, vlan);
        self.change(NEWNEIGH, CREATE | REPLACE, &body)
    }

    pub fn delete_entry(&mut self, index: u32, mac: [u8; 6], vlan: u16) -> io::Result<()> {
        self.change(DELNEIGH, 0, &neighbour(index, 0, NTF_MASTER, mac, vlan))
    }

    /// The forwarding database of a bridge.
    pub fn entries(&mut self, bridge: u32) -> io::Result<BTreeSet<Entry>> {
        let mut header = vec![0; 12];
        header[0] = libc::AF_BRIDGE as u8;
        let answers = self.request(GETNEIGH, DUMP, &header)?;
        let entry = |body: &[u8]| {
            let attributes = body.get(12..)?;
            let master = find(attributes, NDA_MASTER).map(|value| long(value, 0));
            // An entry of the device itself has no master; one of the bridge's own device is
            // listed with both.
            if body[10] & NTF_SELF != 0 || master != Some(bridge) {
                return None;
            }
            Some(Entry {
                mac: find(attributes, NDA_LLADDR)?.try_into().ok()?,
                vlan: find(attributes, NDA_VLAN).map_or(0, |value| word(value, 0)),
                device: long(body, 4),
                state: word(body, 8),
                sticky: body[10] & NTF_STICKY != 0,
            })
        };
        Ok(answers.iter().filter_map(|(_, body)| entry(body)).collect())
    }
}

/// `struct ifinfomsg`.
fn link(family: u8, index: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut bytes = vec![family, 0, 0, 0];
    for value in [index, flags, change] {
        bytes.extend(value.to_ne_bytes());
    }
    bytes
}

/// `struct ndmsg` and the attributes of an entry.
fn neighbour(index: u32, state: u16, flags: u8, mac: [u8; 6], vlan: u16) -> Vec<u8> {
    let mut bytes = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
    bytes.extend(index.to_ne_bytes());
    bytes.extend(state.to_ne_bytes());
    bytes.extend([flags, 0]);
    bytes.extend(attribute(NDA_LLADDR, &mac));
    if vlan != 0 {
        bytes.extend(attribute(NDA_VLAN, &vlan.to_ne_bytes()));
    }
    bytes
}

fn zero_terminated(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = Vec::with_capacity(length + 3);
    bytes.extend((length as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of a kind.
fn find(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    while bytes.len() >= 4 {
        let length = (word(bytes, 0) as usize).clamp(4, bytes.len());
        if word(bytes, 2) & !NESTED == kind {
            return Some(&bytes[4..length]);
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    None
}

/// Zero where the bytes end too early.
fn word(bytes: &[u8], at: usize) -> u16 {
    let bytes = bytes.get(at..at + 2).and_then(|it| it.try_into().ok());
    u16::from_ne_bytes(bytes.unwrap_or_default())
}

fn long(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|it| it.try_into().ok());
    u32::from_ne_bytes(bytes.unwrap_or_default())
}

//! A network device, each of its properties read at most once.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use hostnet::genetlink::netdev::{self, XdpFeatures};
use hostnet::rtnetlink::Rtnetlink;
use hostnet::{ethtool, netns, rtnetlink};
use xsk::AttachMode;

use super::cached::Cached;
use crate::bpf;
use crate::report::shell::quote;

/// A device as rtnetlink describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its number in the network namespace.
    pub index: u32,
    /// `IFLA_INFO_KIND`, such as `veth` or `tun`; none for real devices and the loopback.
    pub kind: Option<String>,
    /// Whether it is the loopback.
    pub loopback: bool,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether packets of a tap have a header for pending offloads (`IFLA_TUN_VNET_HDR`); none for other
    /// devices, or if the kernel does not say.
    pub tap_vnet_header: Option<bool>,
    /// The users who want the frames of other addresses too, such as a bridge or a macvlan.
    pub promiscuity: u32,
    /// The number of its bridge, bond or VRF (`IFLA_MASTER`).
    pub controller: Option<u32>,
    /// The number of the device below it, or of its peer (`IFLA_LINK`).
    pub lower: Option<u32>,
    /// The namespace id of `lower`; none for the same namespace.
    pub lower_netns: Option<i32>,
    /// The id of its XDP program.
    pub xdp_program: Option<u32>,
}

impl From<rtnetlink::Link> for Link {
    fn from(link: rtnetlink::Link) -> Self {
        Self {
            name: link.name,
            index: link.index,
            kind: link.kind,
            loopback: link.loopback,
            mac: link.mac,
            mtu: link.mtu,
            tap_vnet_header: link.tap_vnet_header,
            promiscuity: link.promiscuity,
            controller: link.controller,
            lower: link.lower,
            lower_netns: link.lower_netns,
            xdp_program: link.xdp_program,
        }
    }
}

/// An attached XDP program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its id, as in `bpftool prog show id ID`.
    pub id: u32,
    /// Its name; none without permission to read it.
    pub name: Option<String>,
    /// Its mode.
    pub mode: AttachMode,
    /// Id, name, tag and mode as text.
    pub description: String,
    /// How to remove it.
    pub removal: String,
    /// Whether it is native and has a DEVMAP to redirect to.
    pub native_devmap: bool,
    /// Whether it has a map to redirect to: of devices, or of AF_XDP sockets.
    pub redirects: bool,
}

/// The properties of a device as values, for tests.
#[derive(Debug, Clone, Default)]
pub struct DeviceState {
    /// As rtnetlink describes it.
    pub link: Link,
    /// Its XDP programs.
    pub programs: Vec<Program>,
    /// `ethtool -k`.
    pub features: Vec<ethtool::Feature>,
    /// `ethtool -l`.
    pub channels: Option<ethtool::Channels>,
    /// `ethtool -g`.
    pub rx_ring: Option<ethtool::RxRing>,
    /// `ethtool -c`.
    pub rx_coalesce: Option<ethtool::RxCoalesce>,
    /// `NETDEV_A_DEV_XDP_FEATURES`.
    pub xdp_features: Option<XdpFeatures>,
}

/// The network namespace of a device, if it is not that of the calling thread.
#[derive(Debug)]
pub struct Elsewhere {
    /// The namespace.
    pub namespace: OwnedFd,
    /// A file to open it by.
    path: PathBuf,
}

/// A device of the network namespace, or the peer of one in another namespace.
#[derive(Debug)]
pub struct Device {
    /// As rtnetlink describes it.
    pub link: Link,
    /// Its namespace, if it is another one.
    pub elsewhere: Option<Elsewhere>,
    peer: Cached<Option<Box<Device>>>,
    programs: Cached<Vec<Program>>,
    features: Cached<Vec<ethtool::Feature>>,
    channels: Cached<Option<ethtool::Channels>>,
    rx_ring: Cached<Option<ethtool::RxRing>>,
    rx_coalesce: Cached<Option<ethtool::RxCoalesce>>,
    xdp_features: Cached<Option<XdpFeatures>>,
}

impl Device {
    /// A device of the calling thread's namespace, of which only `link` is read so far.
    pub fn of_host(link: Link) -> Self {
        Self {
            link,
            elsewhere: None,
            peer: Cached::empty(),
            programs: Cached::empty(),
            features: Cached::empty(),
            channels: Cached::empty(),
            rx_ring: Cached::empty(),
            rx_coalesce: Cached::empty(),
            xdp_features: Cached::empty(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// `IFLA_INFO_KIND`, such as `veth`; none for real devices and the loopback.
    pub fn kind(&self) -> Option<&str> {
        self.link.kind.as_deref()
    }

    /// Whether it is one end of a veth pair.
    pub fn is_veth(&self) -> bool {
        self.kind() == Some("veth")
    }

    /// The peer of a veth, if that is in another network namespace, and this process finds and may enter it. Of the
    /// peer, its link and its features can be read.
    pub fn peer_elsewhere(&self) -> Option<&Self> {
        let look = || anyhow::Ok(peer_elsewhere(&self.link).map(Box::new));
        self.peer.get(look).ok()?.as_deref()
    }

    /// A command about the device, as it is typed from the calling thread's namespace.
    pub fn command(&self, command: &str) -> String {
        match &self.elsewhere {
            Some(elsewhere) => {
                let path = elsewhere.path.display().to_string();
                format!("nsenter --net={} {command}", quote(&path))
            }
            None => command.to_owned(),
        }
    }

    /// Its XDP programs.
    pub fn programs(&self) -> Result<&[Program]> {
        let read = || programs(self.name());
        self.programs.get(read).map(Vec::as_slice)
    }

    /// Whether one of its programs runs in native mode.
    pub fn has_native_program(&self) -> Result<bool> {
        let native = |program: &Program| program.mode == AttachMode::Driver;
        Ok(self.programs()?.iter().any(native))
    }

    /// Its offloads and other features (`ethtool -k`).
    pub fn features(&self) -> Result<&[ethtool::Feature]> {
        let read = || ethtool::features(self.name());
        self.features.get(read).map(Vec::as_slice)
    }

    /// Whether a feature is on, by the kernel's name.
    pub fn has_feature(&self, name: &str) -> Result<bool> {
        let is_on = |feature: &ethtool::Feature| feature.name == name && feature.on;
        Ok(self.features()?.iter().any(is_on))
    }

    /// Its queues (`ethtool -l`); none if the driver does not report them.
    pub fn channels(&self) -> Result<Option<ethtool::Channels>> {
        let read = || ethtool::channels(self.name());
        self.channels.get(read).copied()
    }

    /// Its receive ring (`ethtool -g`); none if the driver does not report it.
    pub fn rx_ring(&self) -> Result<Option<ethtool::RxRing>> {
        let read = || ethtool::rx_ring(self.name());
        self.rx_ring.get(read).copied()
    }

    /// Its interrupt coalescing (`ethtool -c`); none if the driver does not report it.
    pub fn rx_coalesce(&self) -> Result<Option<ethtool::RxCoalesce>> {
        let read = || ethtool::rx_coalesce(self.name());
        self.rx_coalesce.get(read).copied()
    }

    /// The driver's XDP features; none before Linux 6.3.
    pub fn xdp_features(&self) -> Result<Option<XdpFeatures>> {
        let read = || netdev::xdp_features(self.link.index);
        self.xdp_features.get(read).copied()
    }
}

impl From<DeviceState> for Device {
    fn from(state: DeviceState) -> Self {
        Self {
            link: state.link,
            elsewhere: None,
            peer: None.into(),
            programs: state.programs.into(),
            features: state.features.into(),
            channels: state.channels.into(),
            rx_ring: state.rx_ring.into(),
            rx_coalesce: state.rx_coalesce.into(),
            xdp_features: state.xdp_features.into(),
        }
    }
}

fn peer_elsewhere(link: &Link) -> Option<Device> {
    let (index, number) = (link.lower?, link.lower_netns?);
    if link.kind.as_deref() != Some("veth") {
        return None;
    }
    let peer = Rtnetlink::open().ok()?.link_in(number, index).ok()?;
    let mut namespaces = netns::all().ok()?.list.into_iter();
    namespaces.find_map(|candidate| {
        let namespace = candidate.open().ok()?;
        let look = || -> hostnet::Result<_> {
            let there = Rtnetlink::open()?.link_by_index(index)?;
            let features = ethtool::features(&there.name)?;
            Ok((there, features))
        };
        let (there, features) = netns::run_in(namespace.as_fd(), look).ok()?;
        let is_peer =
            there.name == peer.name && there.mac == peer.mac && there.lower == Some(link.index);
        is_peer.then(|| Device {
            elsewhere: Some(Elsewhere {
                namespace,
                path: candidate.path,
            }),
            features: features.into(),
            ..Device::of_host(there.into())
        })
    })
}

fn programs(device: &str) -> Result<Vec<Program>> {
    let device = xsk::Device::lookup(device)
        .with_context(|| format!("cannot read the XDP programs of {device}"))?;
    let programs = device.programs.iter();
    Ok(programs
        .map(|program| {
            let maps = bpf::redirect_maps(program.id);
            Program {
                id: program.id,
                mode: program.mode,
                description: program.to_string(),
                removal: program.removal(&device),
                native_devmap: program.mode == AttachMode::Driver && maps.devices,
                redirects: maps.devices || maps.sockets,
                name: program.name.clone(),
            }
        })
        .collect())
}

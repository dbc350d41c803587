//! One of the two bridges, with the sockets at the far ends of its ports.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use hostnet::ethtool::{self, Offload};
use hostnet::netns;
use hostnet::rtnetlink::{Rtnetlink, VethEnd};
use hostnet::sysfs::Sysfs;
use hostnet::tap::Tap;
use testkit::packet::{Batch, Options, PacketSocket};

use crate::switch_fuzz::event::Event;
use crate::switch_fuzz::frame;
use crate::switch_fuzz::netlink::{BridgeSetting, Entry, Netlink};

pub const BRIDGE: &str = "br0";
/// The MTU of the far ends, so that frames beyond a port's own MTU get there.
const OUTSIDE_MTU: u32 = 3400;
pub const MTU: u32 = 1500;

/// The kind of a port's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its peer receives without NAPI.
    Veth,
    /// Its peer receives with NAPI, as a container's does whose GRO is on.
    VethGro,
    Tap,
}

/// How a topology is made.
#[derive(Debug, Clone)]
pub struct Setup {
    pub kinds: Vec<Kind>,
    pub snooping: bool,
    /// Whether NAPI of the ports is in threads, which take many frames at a time.
    pub threaded: bool,
}

pub fn port_name(at: usize) -> String {
    format!("p{at}")
}

/// The bridge in a namespace, and its outside in another.
pub struct Side {
    pub name: &'static str,
    inside: OwnedFd,
    outside: OwnedFd,
    netlink: Netlink,
    outside_netlink: Netlink,
    pub bridge: u32,
    threaded: bool,
    /// On the bridge's device: what the host itself gets and sends.
    host: PacketSocket,
    pub ports: Vec<Port>,
}

pub struct Port {
    kind: Kind,
    pub index: u32,
    far: Far,
    /// Receives the marks that came through, and sends those that go out.
    control: PacketSocket,
    /// Whether frames pass in either direction as far as the devices go.
    pub is_live: bool,
}

/// The far end of a port.
enum Far {
    Veth { socket: PacketSocket, index: u32 },
    Tap(Tap),
}

/// Unique for all namespaces, which the number of a descriptor is not.
static NAMES: AtomicU64 = AtomicU64::new(0);

impl Side {
    pub fn new(name: &'static str, setup: &Setup) -> Result<Self> {
        let (inside, outside) = (netns::create()?, netns::create()?);
        for namespace in [&inside, &outside] {
            netns::disable_ipv6(namespace.as_fd())?;
        }
        let (mut netlink, bridge, host) = netns::run_in(inside.as_fd(), || -> Result<_> {
            disable_netfilter();
            let mut netlink = Netlink::open()?;
            let made = netlink.add_bridge(BRIDGE, frame::bridge(0));
            made.context("cannot make a bridge")?;
            let bridge = netlink.index(BRIDGE)?;
            Ok((netlink, bridge, socket(bridge).open()?))
        })?;
        let outside_netlink = netns::run_in(outside.as_fd(), Netlink::open)?;
        // No entry may age in one bridge a moment before it does in the other.
        netlink.set_bridge(bridge, BridgeSetting::AgeingTime(LONG_AGE))?;
        // Its timer runs also without STP, and ends a state that was set.
        netlink.set_bridge(bridge, BridgeSetting::ForwardDelay(0))?;
        netlink.set_bridge(bridge, BridgeSetting::MulticastSnooping(setup.snooping))?;
        netlink.set_up(bridge, true)?;
        let mut side = Self {
            name,
            inside,
            outside,
            netlink,
            outside_netlink,
            bridge,
            threaded: setup.threaded,
            host,
            ports: Vec::new(),
        };
        for (at, kind) in setup.kinds.iter().enumerate() {
            let port = side.make_port(at, *kind)?;
            side.ports.push(port);
        }
        Ok(side)
    }

    /// The namespace of the bridge.
    pub fn inside(&self) -> BorrowedFd<'_> {
        self.inside.as_fd()
    }

    fn make_port(&mut self, at: usize, kind: Kind) -> Result<Port> {
        let name = port_name(at);
        let far = match kind {
            Kind::Veth | Kind::VethGro => self.make_veth(at, &name, kind)?,
            Kind::Tap => Far::Tap(netns::run_in(self.inside(), || Tap::create(&name))?),
        };
        let index = self.netlink.index(&name)?;
        self.netlink
            .set_mac(index, frame::port(at))
            .context("cannot set a MAC address")?;
        self.netlink
            .set_master(index, Some(self.bridge))
            .context("cannot add a port")?;
        self.netlink
            .set_up(index, true)
            .context("cannot bring a port up")?;
        let control = netns::run_in(self.inside(), || {
            socket(index).protocol(frame::MARK_ETHERTYPE).open()
        })?;
        Ok(Port {
            kind,
            index,
            far,
            control,
            is_live: false,
        })
    }

    fn make_veth(&mut self, at: usize, name: &str, kind: Kind) -> Result<Far> {
        let far_name = format!("o{at}");
        let near = VethEnd {
            name,
            mac: frame::port(at),
            netns: self.inside.as_fd(),
        };
        let far = VethEnd {
            name: &far_name,
            mac: frame::outside(at),
            netns: self.outside.as_fd(),
        };
        Rtnetlink::open()?.add_veth([&near, &far], 1, MTU)?;
        let index = self.outside_netlink.index(&far_name)?;
        self.outside_netlink
            .set_mtu(index, OUTSIDE_MTU)
            .context("cannot set an MTU")?;
        let socket = netns::run_in(self.outside.as_fd(), || -> Result<_> {
            if kind == Kind::VethGro {
                ethtool::set(&far_name, Offload::Gro, true)?;
            }
            Ok(socket(index).open()?)
        })?;
        self.outside_netlink
            .set_up(index, true)
            .context("cannot bring a peer up")?;
        Ok(Far::Veth { socket, index })
    }

    /// Puts NAPI of the ports that have it into threads, where the setup wants that (Linux 5.12).
    pub fn thread_napi(&self) -> Result<()> {
        if !self.threaded {
            return Ok(());
        }
        netns::run_in(self.inside(), || {
            let sysfs = Sysfs::mount()?;
            for port in 0..self.ports.len() {
                let path = sysfs.class_net(&format!("/{}/threaded", port_name(port)));
                // A veth has none without an XDP program, and a tap has none.
                let _ = std::fs::write(path, "1");
            }
            Ok(())
        })
    }

    /// Makes the change; what it changes has happened, but for the kernel's deferred work.
    pub fn apply(&mut self, event: &Event) -> Result<io::Result<()>> {
        let index = |port: usize| self.ports[port].index;
        let netlink = &mut self.netlink;
        Ok(match *event {
            Event::Up(port, up) => netlink.set_up(index(port), up),
            Event::PeerUp(port, up) => match &self.ports[port].far {
                Far::Veth { index, .. } => self.outside_netlink.set_up(*index, up),
                Far::Tap(_) => Ok(()),
            },
            Event::Member(port, true) => netlink.set_master(index(port), Some(self.bridge)),
            Event::Member(port, false) => netlink.set_master(index(port), None),
            Event::Replug(port) => {
                self.replug(port)?;
                Ok(())
            }
            Event::Mtu(port, mtu) => netlink.set_mtu(index(port), mtu),
            Event::Queue(port, queue) => netlink.set_queue(index(port), queue),
            Event::Port(port, setting) => netlink.set_port(index(port), setting),
            Event::Bridge(setting) => netlink.set_bridge(self.bridge, setting),
            Event::BridgeUp(up) => netlink.set_up(self.bridge, up),
            Event::BridgeMac(at) => netlink.set_mac(self.bridge, frame::bridge(at)),
            Event::AddEntry {
                port,
                mac,
                vlan,
                kind,
            } => netlink.add_entry(index(port), mac, vlan, kind),
            Event::DeleteEntry { port, mac, vlan } => netlink.delete_entry(index(port), mac, vlan),
            Event::Vlan { port, vlan, add } => {
                let device = port.map_or(self.bridge, index);
                netlink.set_vlan(device, vlan, add)
            }
            Event::Hook(..) | Event::Attach | Event::Silence(_) | Event::Kill | Event::Age => {
                Ok(())
            }
        })
    }

    /// Takes the device away and puts another one in its place.
    fn replug(&mut self, at: usize) -> Result<()> {
        let port = &self.ports[at];
        let kind = port.kind;
        if let Far::Veth { .. } = port.far {
            self.netlink
                .delete(port.index)
                .context("cannot remove a veth")?;
        }
        // The device of a tap goes with its last descriptor, so the new one has another name until
        // then, as two of the kernel's have not one name.
        let placeholder = self.placeholder()?;
        drop(std::mem::replace(&mut self.ports[at].far, placeholder));
        self.ports[at] = self.make_port(at, kind)?;
        Ok(())
    }

    fn placeholder(&self) -> Result<Far> {
        let name = format!("gone{}", NAMES.fetch_add(1, Ordering::Relaxed));
        Ok(Far::Tap(netns::run_in(self.outside.as_fd(), || {
            Tap::create(&name)
        })?))
    }

    /// Whether the kernel's deferred work is done, with the state of all ports to compare.
    pub fn states(&mut self) -> Result<(bool, Vec<Option<u8>>)> {
        let mut is_settled = true;
        let mut states = Vec::new();
        for port in &mut self.ports {
            let near = self.netlink.device(port.index)?;
            let mut is_live = near.up && near.carrier;
            is_settled &= near.is_settled();
            if let Far::Veth { index, .. } = &port.far {
                let far = self.outside_netlink.device(*index)?;
                is_live &= far.up && far.carrier;
                is_settled &= far.is_settled();
            }
            port.is_live = is_live;
            states.push(near.port_state);
        }
        Ok((is_settled, states))
    }

    pub fn entries(&mut self) -> Result<BTreeSet<Entry>> {
        let entries = self.netlink.entries(self.bridge);
        entries.with_context(|| format!("cannot read the forwarding database of {}", self.name))
    }

    /// The port of a device.
    pub fn port_of(&self, device: u32) -> Option<usize> {
        self.ports.iter().position(|port| port.index == device)
    }

    /// Sends from the far end of a port, or from the bridge's host where the port is beyond the last.
    pub fn send(&self, port: usize, bytes: &[u8]) -> io::Result<()> {
        match self.ports.get(port).map(|port| &port.far) {
            Some(Far::Veth { socket, .. }) => socket.send(bytes),
            Some(Far::Tap(tap)) => {
                rustix::io::write(tap.descriptor(), bytes)?;
                Ok(())
            }
            None => self.host.send(bytes),
        }
    }

    /// Sends from the port's own device to its far end.
    pub fn send_out(&self, port: usize, bytes: &[u8]) -> io::Result<()> {
        self.ports[port].control.send(bytes)
    }

    /// All that has come to the far end of a port, or to the bridge's host.
    pub fn drain(
        &self,
        port: usize,
        batch: &mut Batch,
        mut each: impl FnMut(Vec<u8>),
    ) -> Result<()> {
        let drained = match self.ports.get(port).map(|port| &port.far) {
            Some(Far::Veth { socket, .. }) => batch.drain(socket, each),
            Some(Far::Tap(tap)) => drain_tap(tap, &mut each),
            None => batch.drain(&self.host, each),
        };
        drained.with_context(|| format!("cannot receive at port {port} of {}", self.name))
    }

    /// The marks that have come through a port.
    pub fn drain_control(
        &self,
        port: usize,
        batch: &mut Batch,
        each: impl FnMut(Vec<u8>),
    ) -> Result<()> {
        let drained = batch.drain(&self.ports[port].control, each);
        drained.with_context(|| format!("cannot receive the marks of port {port}"))
    }

    /// The sockets to wait for.
    pub fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        let far = self.ports.iter().map(|port| match &port.far {
            Far::Veth { socket, .. } => socket.as_fd(),
            Far::Tap(tap) => tap.descriptor(),
        });
        let control = self.ports.iter().map(|port| port.control.as_fd());
        far.chain(control).chain([self.host.as_fd()]).collect()
    }
}

/// A year, in hundredths of a second.
pub const LONG_AGE: u32 = 365 * 24 * 3600;

/// Has no bridge of the calling thread's namespace hand its frames to iptables. A kernel without
/// `br_netfilter` has no such file.
fn disable_netfilter() {
    for family in ["iptables", "ip6tables", "arptables"] {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{family}");
        let _ = std::fs::write(path, "0");
    }
}

fn drain_tap(tap: &Tap, each: &mut impl FnMut(Vec<u8>)) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(tap.descriptor(), &mut buffer) {
            Ok(length) => each(buffer[..length].to_vec()),
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The settings of a socket that sees what comes to a device, with its tags.
fn socket(index: u32) -> Options {
    let socket = PacketSocket::on(index).ignoring_outgoing();
    socket.with_tags().nonblocking()
}

/// Whether this kernel's bridges can be VLAN-aware (`CONFIG_BRIDGE_VLAN_FILTERING`).
pub fn has_vlan_filtering() -> Result<bool> {
    let namespace = netns::create()?;
    netns::run_in(namespace.as_fd(), || -> Result<_> {
        let mut netlink = Netlink::open()?;
        netlink
            .add_bridge(BRIDGE, frame::bridge(0))
            .context("cannot make a bridge")?;
        let bridge = netlink.index(BRIDGE)?;
        Ok(netlink
            .set_bridge(bridge, BridgeSetting::VlanFiltering(true))
            .is_ok())
    })
}

//! Guests on a side of a lab: taps and containers, a bridge for them, an address of the host.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::Result;

use super::leg::add_bridge_of;
use super::{Lab, Side};
use hostnet::device::Device;
use hostnet::netns;
use hostnet::rtnetlink::{BridgeOptions, Rtnetlink, VethEnd};
use hostnet::tap::Tap;

/// The bridge of containers.
pub const BRIDGE: &str = "br0";
/// The device of a container.
pub const CONTAINER_DEVICE: &str = "eth0";
/// The network of containers: the first has the address 192.0.2.1 (RFC 5737).
const NETWORK: [u8; 3] = [192, 0, 2];
const PREFIX: u8 = 24;
/// The MAC address of the uplink as a port: no frame is for it.
const UPLINK_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0c];

impl Lab {
    /// Changes the MAC address of the application's device: a port of a bridge must not have an
    /// address that the bridge is to forward.
    pub fn set_app_mac(&mut self, mac: [u8; 6]) -> Result<()> {
        let index = self.app.index()?;
        netns::run_in(self.app.netns(), || Rtnetlink::open()?.set_mac(index, mac))?;
        self.app.mac = mac;
        Ok(())
    }
}

impl Lab {
    /// Makes so many containers: network namespaces whose devices are ports of a new bridge on the
    /// application's side, beside that side's device, the uplink.
    pub fn add_containers(&mut self, count: u8) -> Result<Vec<OwnedFd>> {
        self.set_app_mac(UPLINK_MAC)?;
        self.app.add_bridge(BRIDGE, &[])?;
        (1..=count)
            .map(|number| self.app.add_container(number))
            .collect()
    }
}

impl Side {
    /// Makes a container behind port `cNUMBER` of the bridge.
    fn add_container(&self, number: u8) -> Result<OwnedFd> {
        let container = netns::create()?;
        netns::disable_ipv6(container.as_fd())?;
        let port = format!("c{number}");
        let ends = [
            &VethEnd {
                name: &port,
                mac: [0x02, 0, 0, 0, 2, number],
                netns: self.netns(),
            },
            &VethEnd {
                name: CONTAINER_DEVICE,
                mac: [0x02, 0, 0, 0, 1, number],
                netns: container.as_fd(),
            },
        ];
        netns::run_in(self.netns(), || -> hostnet::Result<()> {
            let mut rtnetlink = Rtnetlink::open()?;
            rtnetlink.add_veth(ends, 1, 1500)?;
            let (bridge, port) = (rtnetlink.link(BRIDGE)?.index, rtnetlink.link(&port)?.index);
            rtnetlink.add_port(bridge, port)?;
            rtnetlink.set_up(port)
        })?;
        let [a, b, c] = NETWORK;
        netns::run_in(container.as_fd(), || -> hostnet::Result<()> {
            let device = Device::open(CONTAINER_DEVICE)?;
            device.set_up()?;
            let address = Ipv4Addr::new(a, b, c, number);
            Rtnetlink::open()?.add_address(device.index()?, address, PREFIX)
        })?;
        Ok(container)
    }

    /// Makes a tap, up and without a queueing discipline: no other path to a guest has one.
    pub fn add_tap(&self, name: &str) -> Result<Tap> {
        netns::run_in(self.netns(), || {
            let tap = Tap::create(name)?;
            tap.device().set_up()?;
            Rtnetlink::open()?.set_noqueue(tap.device().index()?)?;
            Ok(tap)
        })
    }

    /// Makes the side's device and these taps ports of a new bridge `name`, whose forwarding
    /// database has the MAC address behind each tap.
    pub fn add_bridge(&self, name: &str, guests: &[(&Tap, [u8; 6])]) -> Result<()> {
        let mut ports = vec![self.index()?];
        for (tap, _) in guests {
            ports.push(tap.device().index()?);
        }
        netns::run_in(self.netns(), || {
            add_bridge_of(name, &BridgeOptions::default(), &ports)?;
            let mut rtnetlink = Rtnetlink::open()?;
            for ((_, mac), port) in guests.iter().zip(&ports[1..]) {
                rtnetlink.add_fdb_entry(*port, *mac)?;
            }
            Ok(())
        })
    }

    /// Adds an address to the side's device.
    pub fn add_address(&self, address: Ipv4Addr, prefix: u8) -> Result<()> {
        let index = self.index()?;
        netns::run_in(self.netns(), || -> Result<()> {
            Ok(Rtnetlink::open()?.add_address(index, address, prefix)?)
        })
    }

    /// Tells the side the MAC address of an IP address, which it then never asks for.
    pub fn add_neighbour(&self, address: Ipv4Addr, mac: [u8; 6]) -> Result<()> {
        let index = self.index()?;
        netns::run_in(self.netns(), || -> Result<()> {
            Ok(Rtnetlink::open()?.add_neighbour(index, address, mac)?)
        })
    }
}

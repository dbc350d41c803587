//! Guests on a side of a lab: taps, a bridge for them, an address of the host.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::{Lab, Side};
use hostnet::netns;
use hostnet::rtnetlink::Rtnetlink;
use hostnet::tap::Tap;

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

impl Side {
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
        let uplink = self.index()?;
        netns::run_in(self.netns(), || {
            let mut rtnetlink = Rtnetlink::open()?;
            rtnetlink.add_bridge(name)?;
            let bridge = rtnetlink.link(name)?.index;
            rtnetlink.add_port(bridge, uplink)?;
            for (tap, _) in guests {
                rtnetlink.add_port(bridge, tap.device().index()?)?;
            }
            rtnetlink.set_up(bridge)?;
            for (tap, mac) in guests {
                rtnetlink.add_fdb_entry(tap.device().index()?, *mac)?;
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
}

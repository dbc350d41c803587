//! What makes a side of a lab a host of guests: taps, a bridge, an address.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::{Lab, Side};
use hostnet::netns;
use hostnet::rtnetlink::Rtnetlink;
use hostnet::tap::Tap;

impl Lab {
    /// Gives the device of the application's side another MAC address: as a port of a bridge it
    /// must not have one that the bridge is to forward.
    pub fn set_app_mac(&mut self, mac: [u8; 6]) -> Result<()> {
        let index = self.app.index()?;
        netns::run_in(self.app.netns(), || Rtnetlink::open()?.set_mac(index, mac))?;
        self.app.mac = mac;
        Ok(())
    }
}

impl Side {
    /// Makes a tap that is up. It has no queueing discipline, as no other way to a guest has one.
    pub fn add_tap(&self, name: &str) -> Result<Tap> {
        netns::run_in(self.netns(), || {
            let tap = Tap::create(name)?;
            tap.device().set_up()?;
            Rtnetlink::open()?.set_noqueue(tap.device().index()?)?;
            Ok(tap)
        })
    }

    /// Makes the side's device and these taps ports of a bridge `name` that knows behind which
    /// of them each MAC address is.
    pub fn add_bridge(&self, name: &str, stations: &[(&Tap, [u8; 6])]) -> Result<()> {
        let uplink = self.index()?;
        netns::run_in(self.netns(), || {
            let mut route = Rtnetlink::open()?;
            route.add_bridge(name)?;
            let bridge = route.link(name)?.index;
            route.add_port(bridge, uplink)?;
            for (tap, _) in stations {
                route.add_port(bridge, tap.device().index()?)?;
            }
            route.set_up(bridge)?;
            for (tap, mac) in stations {
                route.add_station(tap.device().index()?, *mac)?;
            }
            Ok(())
        })
    }

    /// Gives the side's device an address.
    pub fn add_address(&self, address: Ipv4Addr, prefix: u8) -> Result<()> {
        let index = self.index()?;
        netns::run_in(self.netns(), || {
            Rtnetlink::open()?.add_address(index, address, prefix)
        })
    }
}

//! IP addresses of devices: `RTM_NEWADDR`.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::{NEW, Rtnetlink};
use crate::error::Result;

impl Rtnetlink {
    /// Adds an address with a prefix of so many bits to the device with this index.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// let index = rtnetlink.link("eth0")?.index;
    /// rtnetlink.add_address(index, [192, 0, 2, 1].into(), 24)?;
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn add_address(&mut self, index: u32, address: Ipv4Addr, prefix: u8) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.index = index;
        message.header.prefix_len = prefix;
        message.attributes = vec![
            AddressAttribute::Local(IpAddr::V4(address)),
            AddressAttribute::Address(IpAddr::V4(address)),
        ];
        self.change(&RouteNetlinkMessage::NewAddress(message), NEW, || {
            format!("cannot add the address {address}/{prefix} to device {index}")
        })
    }
}

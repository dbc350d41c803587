//! IP addresses of devices: `RTM_NEWADDR`, `RTM_GETADDR`.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::{GET_ADDRESS, NEW, NEW_ADDRESS, Rtnetlink};
use crate::error::{Context as _, Result};
use crate::netlink::{Attributes, RawMessage, ip_address, u32_of};

/// `struct ifaddrmsg`, before the attributes: family, length of the prefix, flags, scope, index.
const HEADER: usize = 8;
/// Attributes of an address (`linux/if_addr.h`).
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;

/// An IP address of a device.
///
/// ```
/// use hostnet::rtnetlink::Address;
///
/// let tunnel = Address {
///     device: 4,
///     address: [10, 0, 0, 1].into(),
///     prefix: 32,
///     peer: Some([10, 0, 0, 2].into()),
/// };
/// assert_ne!(Some(tunnel.address), tunnel.peer);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The index of the device.
    pub device: u32,
    /// The device's own address (`IFA_LOCAL`, else `IFA_ADDRESS`).
    pub address: IpAddr,
    /// The length of its prefix in bits; with a peer, of the peer's.
    pub prefix: u8,
    /// The other end of a point-to-point address (`IFA_ADDRESS`, where it is another).
    pub peer: Option<IpAddr>,
}

impl Address {
    fn read(payload: &[u8]) -> Option<Self> {
        let header = payload.first_chunk::<HEADER>()?;
        let (mut address, mut local) = (None, None);
        for (kind, value) in Attributes(&payload[HEADER..]) {
            match kind {
                ADDRESS => address = ip_address(header[0], value),
                LOCAL => local = ip_address(header[0], value),
                _ => {}
            }
        }
        let own = local.or(address)?;
        Some(Self {
            device: u32_of(&header[4..])?,
            address: own,
            prefix: header[1],
            peer: address.filter(|&other| other != own),
        })
    }
}

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

    /// Every IP address of the network namespace, in the kernel's order.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// for address in Rtnetlink::open()?.addresses()? {
    ///     println!("device {}: {}/{}", address.device, address.address, address.prefix);
    /// }
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn addresses(&mut self) -> Result<Vec<Address>> {
        let message = RawMessage {
            kind: GET_ADDRESS,
            payload: vec![0; HEADER],
        };
        let mut addresses = Vec::new();
        let answers = self.list(&message, &mut |kind, payload| {
            addresses.extend(Address::read(payload).filter(|_| kind == NEW_ADDRESS));
        });
        answers.context("cannot list the addresses")?;
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{damaged, push_attribute};

    fn message(attributes: &[(u16, [u8; 4])]) -> Vec<u8> {
        let mut bytes = vec![libc::AF_INET as u8, 24, 0, 0];
        bytes.extend(4_u32.to_ne_bytes());
        for (kind, value) in attributes {
            push_attribute(&mut bytes, *kind, value);
        }
        bytes
    }

    #[test]
    fn an_address_is_read_from_its_message() {
        let own = [192, 0, 2, 1];
        let expected = Address {
            device: 4,
            address: own.into(),
            prefix: 24,
            peer: None,
        };
        assert_eq!(Address::read(&message(&[(ADDRESS, own)])), Some(expected));
        let both = message(&[(ADDRESS, own), (LOCAL, own)]);
        assert_eq!(Address::read(&both), Some(expected));
        let peer = [192, 0, 2, 9];
        let tunnel = message(&[(ADDRESS, peer), (LOCAL, own)]);
        let expected = Address {
            peer: Some(peer.into()),
            ..expected
        };
        assert_eq!(Address::read(&tunnel), Some(expected));
        assert_eq!(Address::read(&message(&[])), None);
        for bytes in damaged(&tunnel) {
            Address::read(&bytes);
        }
    }
}

//! Neighbours of IPv4 and IPv6: `RTM_GETNEIGH` and `RTM_NEWNEIGH`; ip-neighbour(8).

use std::net::{IpAddr, Ipv4Addr};

use super::socket::{GET_NEIGH, NEW, NEW_NEIGH, Rtnetlink};
use crate::error::{Context as _, Result};
use crate::netlink::{Attributes, RawMessage, ip_address, push_attribute, u16_of, u32_of};

/// `struct ndmsg`, before the attributes: family and padding, index, state, flags, type.
const HEADER: usize = 12;
const STATE: usize = 8;
/// Attributes of a neighbour (`linux/neighbour.h`).
const DST: u16 = 1;
const LLADDR: u16 = 2;

/// The state of a neighbour (`NUD_*` in `linux/neighbour.h`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NeighbourState(u16);

impl NeighbourState {
    /// It was asked for its link-layer address, and has not answered yet (`NUD_INCOMPLETE`).
    pub const INCOMPLETE: Self = Self(0x01);
    /// It did not answer (`NUD_FAILED`).
    pub const FAILED: Self = Self(0x20);
    /// It was entered by a person or a program, and does not age (`NUD_PERMANENT`).
    pub const PERMANENT: Self = Self(0x80);
}

/// A neighbour: the link-layer address of an IP address behind a device.
///
/// ```
/// use hostnet::rtnetlink::{Neighbour, NeighbourState};
///
/// let gone = Neighbour {
///     device: 2,
///     address: [192, 0, 2, 7].into(),
///     mac: None,
///     state: NeighbourState::FAILED,
/// };
/// assert_ne!(gone.state, NeighbourState::PERMANENT);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// The index of the device.
    pub device: u32,
    /// The IP address (`NDA_DST`).
    pub address: IpAddr,
    /// The MAC address (`NDA_LLADDR`); none before it is known, and for other link layers.
    pub mac: Option<[u8; 6]>,
    /// The state.
    pub state: NeighbourState,
}

impl Neighbour {
    fn read(payload: &[u8]) -> Option<Self> {
        let header = payload.first_chunk::<HEADER>()?;
        let (mut address, mut mac) = (None, None);
        for (kind, value) in Attributes(&payload[HEADER..]) {
            match kind {
                DST => address = ip_address(header[0], value),
                LLADDR => mac = value.try_into().ok(),
                _ => {}
            }
        }
        Some(Self {
            device: u32_of(&header[4..])?,
            address: address?,
            mac,
            state: NeighbourState(u16_of(&header[STATE..])?),
        })
    }
}

/// The request for a permanent neighbour.
fn permanent(device: u32, address: Ipv4Addr, mac: [u8; 6]) -> RawMessage {
    let mut payload = vec![libc::AF_INET as u8, 0, 0, 0];
    payload.extend(device.to_ne_bytes());
    payload.extend(NeighbourState::PERMANENT.0.to_ne_bytes());
    // No flags; the kernel finds the type itself.
    payload.extend([0, 0]);
    push_attribute(&mut payload, DST, &address.octets());
    push_attribute(&mut payload, LLADDR, &mac);
    RawMessage {
        kind: NEW_NEIGH,
        payload,
    }
}

impl Rtnetlink {
    /// Adds a neighbour that does not age, behind the device with this index: nobody is asked for its
    /// link-layer address (`ip neighbour add ADDRESS lladdr MAC dev DEVICE nud permanent`).
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// let index = rtnetlink.link("eth0")?.index;
    /// rtnetlink.add_neighbour(index, [192, 0, 2, 7].into(), [2, 0, 0, 0, 0, 7])?;
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn add_neighbour(&mut self, index: u32, address: Ipv4Addr, mac: [u8; 6]) -> Result<()> {
        self.change_raw(&permanent(index, address, mac), NEW, || {
            format!("cannot add the neighbour {address} to device {index}")
        })
    }

    /// Every neighbour of the network namespace, except those of devices without neighbours
    /// (`NUD_NOARP`), which the kernel does not list.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::{NeighbourState, Rtnetlink};
    ///
    /// let neighbours = Rtnetlink::open()?.neighbours()?;
    /// let failed = neighbours.iter().filter(|it| it.state == NeighbourState::FAILED);
    /// println!("{} addresses did not answer", failed.count());
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>> {
        let message = RawMessage {
            kind: GET_NEIGH,
            payload: vec![0; HEADER],
        };
        let mut neighbours = Vec::new();
        let answers = self.list(&message, &mut |kind, payload| {
            neighbours.extend(Neighbour::read(payload).filter(|_| kind == NEW_NEIGH));
        });
        answers.context("cannot list the neighbours")?;
        Ok(neighbours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::damaged;

    #[test]
    fn a_neighbour_is_read_as_it_is_written() {
        let written = permanent(3, [192, 0, 2, 7].into(), [2, 0, 0, 0, 0, 9]);
        let expected = Neighbour {
            device: 3,
            address: [192, 0, 2, 7].into(),
            mac: Some([2, 0, 0, 0, 0, 9]),
            state: NeighbourState::PERMANENT,
        };
        assert_eq!(Neighbour::read(&written.payload), Some(expected));
    }

    #[test]
    fn a_neighbour_is_read_from_its_message() {
        let mut bytes = vec![libc::AF_INET as u8, 0, 0, 0, 3, 0, 0, 0];
        bytes[4..8].copy_from_slice(&3_u32.to_ne_bytes());
        bytes.extend(0x80_u16.to_ne_bytes());
        bytes.extend([0, 1]);
        push_attribute(&mut bytes, DST, &[192, 0, 2, 7]);
        push_attribute(&mut bytes, LLADDR, &[2, 0, 0, 0, 0, 9]);
        let expected = Neighbour {
            device: 3,
            address: [192, 0, 2, 7].into(),
            mac: Some([2, 0, 0, 0, 0, 9]),
            state: NeighbourState::PERMANENT,
        };
        assert_eq!(Neighbour::read(&bytes), Some(expected));
        for bytes in damaged(&bytes) {
            Neighbour::read(&bytes);
        }
        // An entry of a forwarding database.
        bytes[0] = libc::AF_BRIDGE as u8;
        assert_eq!(Neighbour::read(&bytes), None);
    }
}

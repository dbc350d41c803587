//! Routes: `RTM_GETROUTE`; ip-route(8).

use super::socket::{GET_ROUTE, NEW_ROUTE, Rtnetlink};
use crate::error::{Context as _, Result};
use crate::netlink::{Attributes, RawMessage, u16_of, u32_of};

/// `struct rtmsg`, before the attributes: family, lengths of the prefixes of destination and source, TOS,
/// table, protocol, scope, type, flags.
const HEADER: usize = 12;
const DESTINATION_BITS: usize = 1;
const TABLE: usize = 4;
const TYPE: usize = 7;
/// The main table, and a route to a device or gateway (`linux/rtnetlink.h`).
const RT_TABLE_MAIN: u8 = 254;
const RTN_UNICAST: u8 = 1;
/// Attributes of a route (`linux/rtnetlink.h`).
const OIF: u16 = 4;
const MULTIPATH: u16 = 9;
/// `struct rtnexthop`: length, flags, hops, index of the device; then attributes.
const NEXT_HOP: usize = 8;

/// The devices of a default route of the main table; none of any other route.
fn default_devices(payload: &[u8]) -> Vec<u32> {
    let Some(header) = payload.first_chunk::<HEADER>() else {
        return Vec::new();
    };
    let is_default = header[DESTINATION_BITS] == 0
        && header[TABLE] == RT_TABLE_MAIN
        && header[TYPE] == RTN_UNICAST;
    if !is_default {
        return Vec::new();
    }
    let mut devices = Vec::new();
    for (kind, value) in Attributes(&payload[HEADER..]) {
        match kind {
            OIF => devices.extend(u32_of(value)),
            MULTIPATH => devices.extend(next_hops(value)),
            _ => {}
        }
    }
    devices
}

/// The devices of a route's next hops, up to the first one that is cut short.
fn next_hops(mut bytes: &[u8]) -> Vec<u32> {
    let mut devices = Vec::new();
    while let Some(hop) = bytes.first_chunk::<NEXT_HOP>() {
        let length = usize::from(u16_of(hop).unwrap_or(0));
        if length < NEXT_HOP {
            break;
        }
        devices.extend(u32_of(&hop[4..]));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    devices
}

impl Rtnetlink {
    /// The indices of the devices that have a default route of IPv4 or IPv6 in the main table, in
    /// ascending order.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// for index in rtnetlink.default_route_devices()? {
    ///     println!("{}", rtnetlink.link_by_index(index)?.name);
    /// }
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn default_route_devices(&mut self) -> Result<Vec<u32>> {
        let message = RawMessage {
            kind: GET_ROUTE,
            payload: vec![0; HEADER],
        };
        let mut devices = Vec::new();
        let answers = self.list(&message, &mut |kind, payload| {
            if kind == NEW_ROUTE {
                devices.extend(default_devices(payload));
            }
        });
        answers.context("cannot list the routes")?;
        devices.sort_unstable();
        devices.dedup();
        Ok(devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{damaged, push_attribute};

    fn route(bits: u8, table: u8, kind: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![libc::AF_INET as u8, bits, 0, 0, table, 3, 0, kind];
        bytes.extend(0_u32.to_ne_bytes());
        for (kind, value) in attributes {
            push_attribute(&mut bytes, *kind, value);
        }
        bytes
    }

    #[test]
    fn a_default_route_names_its_devices() {
        let device = 3_u32.to_ne_bytes();
        let one = route(0, RT_TABLE_MAIN, RTN_UNICAST, &[(OIF, &device)]);
        assert_eq!(default_devices(&one), [3]);
        let hop = |index: u32| [&[8, 0, 0, 0][..], &index.to_ne_bytes()].concat();
        let hops = [hop(3), hop(5)].concat();
        let several = route(0, RT_TABLE_MAIN, RTN_UNICAST, &[(MULTIPATH, &hops)]);
        assert_eq!(default_devices(&several), [3, 5]);
        for bytes in damaged(&several) {
            default_devices(&bytes);
        }
    }

    #[test]
    fn other_routes_do_not_count() {
        let device = 3_u32.to_ne_bytes();
        let attributes: &[(u16, &[u8])] = &[(OIF, &device)];
        for other in [
            route(24, RT_TABLE_MAIN, RTN_UNICAST, attributes),
            route(0, 255, RTN_UNICAST, attributes),
            route(0, RT_TABLE_MAIN, 7, attributes),
        ] {
            assert_eq!(default_devices(&other), [0; 0]);
        }
    }
}

//! nftables, over `NETLINK_NETFILTER` (`linux/netfilter/nf_tables.h`).

use std::collections::BTreeSet;

use netlink_packet_core::NLM_F_DUMP;
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::io::Errno;

use crate::error::{Context as _, ErrorKind, Result};
use crate::netlink::{Attributes, RawMessage, Socket, text};
use crate::privilege::Capability;

/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
/// `NFT_MSG_GETTABLE` and `NFTA_TABLE_NAME`.
const GET_TABLE: u16 = 1;
const TABLE_NAME: u16 = 1;
/// `NFT_MSG_GETCHAIN` and `NFTA_CHAIN_HOOK`.
const GET_CHAIN: u16 = 4;
const CHAIN_HOOK: u16 = 4;
/// `NFTA_HOOK_HOOKNUM`, and `NF_INET_INGRESS` (Linux 5.10).
const HOOK_NUMBER: u16 = 1;
const INET_INGRESS: u32 = 5;
/// `struct nfgenmsg`: family, version, resource. All zero stands for all families.
const HEADER: usize = 4;

/// The family of tables for IPv4 packets (`NFPROTO_IPV4`).
pub const IPV4: u8 = 2;
/// The family of tables for IPv4 and IPv6 packets (`NFPROTO_INET`).
pub const INET: u8 = 1;
/// The family of tables for ARP packets (`NFPROTO_ARP`).
pub const ARP: u8 = 3;
/// The family of tables for frames that a device receives or sends (`NFPROTO_NETDEV`).
pub const NETDEV: u8 = 5;
/// The family of tables for frames that a bridge forwards (`NFPROTO_BRIDGE`).
pub const BRIDGE: u8 = 7;
/// The family of tables for IPv6 packets (`NFPROTO_IPV6`).
pub const IPV6: u8 = 10;

/// A table of nftables.
///
/// ```
/// use hostnet::nfnetlink::{self, Table};
///
/// let table = Table { family: nfnetlink::BRIDGE, name: "filter".into() };
/// assert_eq!(table.family, 7);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table {
    /// The family of packets, such as [`BRIDGE`].
    pub family: u8,
    /// The name, of which each family can have a table.
    pub name: String,
}

/// The names of all tables of nftables in the calling thread's network namespace, one for each
/// family that has a table of that name; none for a kernel without nftables. Needs
/// `CAP_NET_ADMIN`.
///
/// # Errors
///
/// [`ErrorKind::PermissionDenied`] without the capability.
///
/// ```no_run
/// let tables = hostnet::nfnetlink::tables()?;
/// println!("{} tables: {}", tables.len(), tables.join(" "));
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn tables() -> Result<Vec<String>> {
    let tables = tables_with_family()?;
    Ok(tables.into_iter().map(|table| table.name).collect())
}

/// All tables of nftables in the calling thread's network namespace; none for a kernel without
/// nftables. Needs `CAP_NET_ADMIN`. The rules of ebtables-nft and iptables-nft are in such tables, those
/// of their older kinds are not.
///
/// # Errors
///
/// [`ErrorKind::PermissionDenied`] without the capability.
///
/// ```no_run
/// use hostnet::nfnetlink;
///
/// let tables = nfnetlink::tables_with_family()?;
/// let of_bridges = tables.iter().filter(|table| table.family == nfnetlink::BRIDGE);
/// println!("{} tables for bridged frames", of_bridges.count());
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn tables_with_family() -> Result<Vec<Table>> {
    list(GET_TABLE, table).context("cannot list the tables of nftables")
}

/// The families of nftables with at least one base chain in the calling thread's network namespace:
/// only a base chain sees packets, by its hook. A chain of [`INET`] at a device's ingress counts as one of
/// [`NETDEV`]. None for a kernel without nftables. Needs `CAP_NET_ADMIN`.
///
/// # Errors
///
/// [`ErrorKind::PermissionDenied`] without the capability.
///
/// ```no_run
/// use hostnet::nfnetlink;
///
/// if nfnetlink::hooked_families()?.contains(&nfnetlink::BRIDGE) {
///     println!("bridged frames go through nftables");
/// }
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn hooked_families() -> Result<BTreeSet<u8>> {
    let families = list(GET_CHAIN, hooked_family).context("cannot list the chains of nftables")?;
    Ok(families.into_iter().collect())
}

/// The objects of a kind that `read` finds in the kernel's messages about them.
fn list<T>(kind: u16, read: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>> {
    let message = RawMessage {
        kind: SUBSYSTEM << 8 | kind,
        payload: vec![0; HEADER],
    };
    let mut objects = Vec::new();
    let listed = Socket::open(NETLINK_NETFILTER).and_then(|mut socket| {
        socket.ask(&message, NLM_F_DUMP, &mut |_, payload| {
            objects.extend(read(payload));
        })
    });
    match listed {
        // A kernel without the subsystem does not know the request's type.
        Err(error)
            if error.kind() == ErrorKind::Unsupported
                || error.errno() == Some(Errno::INVAL.raw_os_error()) =>
        {
            Ok(Vec::new())
        }
        listed => listed.request_needs(Capability::NetAdmin).map(|()| objects),
    }
}

fn table(payload: &[u8]) -> Option<Table> {
    let mut attributes = Attributes(payload.get(HEADER..)?);
    let (_, name) = attributes.find(|attribute| attribute.0 == TABLE_NAME)?;
    Some(Table {
        family: payload[0],
        name: text(name),
    })
}

fn hooked_family(payload: &[u8]) -> Option<u8> {
    let mut attributes = Attributes(payload.get(HEADER..)?);
    let (_, hook) = attributes.find(|attribute| attribute.0 == CHAIN_HOOK)?;
    let number = Attributes(hook).find(|attribute| attribute.0 == HOOK_NUMBER);
    let number = number.and_then(|(_, number)| Some(u32::from_be_bytes(number.try_into().ok()?)));
    Some(match payload[0] {
        INET if number == Some(INET_INGRESS) => NETDEV,
        family => family,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{damaged, push_attribute, push_nested};

    #[test]
    fn a_table_has_a_family_and_a_name() {
        let mut payload = vec![BRIDGE, 0, 0, 0];
        push_attribute(&mut payload, 9, &[0; 4]);
        push_attribute(&mut payload, TABLE_NAME, b"nat\0");
        for length in 0..payload.len() {
            assert_eq!(table(&payload[..length]), None, "cut after {length} bytes");
        }
        let name = "nat".into();
        let family = BRIDGE;
        assert_eq!(table(&payload), Some(Table { family, name }));
        for bytes in damaged(&payload) {
            table(&bytes);
        }
    }

    #[test]
    fn only_a_base_chain_has_a_hook() {
        let mut payload = vec![BRIDGE, 0, 0, 0];
        push_attribute(&mut payload, 3, b"input\0");
        assert_eq!(hooked_family(&payload), None);
        push_nested(&mut payload, CHAIN_HOOK, &[]);
        assert_eq!(hooked_family(&payload), Some(BRIDGE));
        let mut hook = Vec::new();
        push_attribute(&mut hook, HOOK_NUMBER, &INET_INGRESS.to_be_bytes());
        let mut of_device = vec![INET, 0, 0, 0];
        push_nested(&mut of_device, CHAIN_HOOK, &hook);
        assert_eq!(hooked_family(&of_device), Some(NETDEV));
        for bytes in damaged(&payload) {
            hooked_family(&bytes);
        }
    }
}

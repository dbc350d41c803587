//! The forwarding database of bridges: `RTM_GETNEIGH`, `RTM_NEWNEIGH` and `RTM_DELNEIGH` of the family
//! `AF_BRIDGE` (`linux/neighbour.h`, `net/bridge/br_fdb.c`).

use std::time::Duration;

use netlink_packet_core::NLM_F_CREATE;

use super::settings::CLOCK;
use super::socket::{DEL_NEIGH, GET_NEIGH, NEW, NEW_NEIGH, Rtnetlink, link_message};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::netlink::{Attributes, RawMessage, attribute, push_attribute, u16_of, u32_of};
use crate::privilege::Capability;

/// `struct ndmsg`, before the attributes: family, three bytes of padding, index, state of two bytes,
/// flags, type.
const HEADER: usize = 12;
const STATE: usize = 8;
const FLAGS: usize = 10;
/// `IFLA_MASTER`, an attribute of devices.
const LINK_MASTER: u16 = 10;
/// Attributes of an entry (`NDA_*`).
const LLADDR: u16 = 2;
const CACHEINFO: u16 = 3;
const VLAN: u16 = 5;
const MASTER: u16 = 9;
const FLAGS_EXT: u16 = 15;
/// Where `ndm_updated` is in `struct nda_cacheinfo`.
const UPDATED: usize = 8;
/// States (`NUD_*`).
const REACHABLE: u16 = 0x02;
const NOARP: u16 = 0x40;
const PERMANENT: u16 = 0x80;
/// Flags (`NTF_*`).
const USE: u8 = 1;
const TO_MASTER: u8 = 1 << 2;
const EXT_LEARNED: u8 = 1 << 4;
const OFFLOADED: u8 = 1 << 5;
const STICKY: u8 = 1 << 6;
/// `NTF_EXT_LOCKED`, one of the flags in `NDA_FLAGS_EXT`.
const EXT_LOCKED: u32 = 1 << 1;

/// The place of an address: the index of a port, the MAC address, and the VLAN, 0 for none.
pub type FdbKey = (u32, [u8; 6], u16);

/// An entry of a bridge's forwarding database.
///
/// ```
/// use hostnet::rtnetlink::FdbEntry;
///
/// let entry = FdbEntry { mac: [2, 0, 0, 0, 0, 1], port: 3, bridge: 2, ..FdbEntry::default() };
/// assert!(!entry.local && entry.vlan == 0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FdbEntry {
    /// The MAC address.
    pub mac: [u8; 6],
    /// The VLAN; 0 for none, as always without VLAN filtering.
    pub vlan: u16,
    /// The index of the port; that of the bridge for an address of the bridge itself.
    pub port: u32,
    /// The index of the bridge (`NDA_MASTER`).
    pub bridge: u32,
    /// Whether the host has the address: frames for it are received, not forwarded
    /// (`NUD_PERMANENT`).
    pub local: bool,
    /// Whether the entry does not age (`NUD_NOARP`).
    pub static_: bool,
    /// Whether the entry stays at its port, also when the address sends by another one
    /// (`NTF_STICKY`).
    pub sticky: bool,
    /// Whether the address is that of an unauthorized host behind a locked port (`NTF_EXT_LOCKED`,
    /// Linux 6.2).
    pub locked: bool,
    /// Whether a program or a driver entered it, and keeps it up to date (`NTF_EXT_LEARNED`).
    pub ext_learned: bool,
    /// Whether a switch forwards for it in hardware (`NTF_OFFLOADED`).
    pub offloaded: bool,
}

impl FdbEntry {
    /// Reads a message about an entry. None for other families, and for entries of a device's own
    /// (`NTF_SELF`), which have no `NDA_MASTER`. This is the hot path of a monitor: one pass, nothing
    /// allocated.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let header = payload.first_chunk::<HEADER>()?;
        if header[0] != libc::AF_BRIDGE as u8 {
            return None;
        }
        let state = u16_of(&header[STATE..])?;
        let flags = header[FLAGS];
        let mut entry = Self {
            port: u32_of(&header[4..])?,
            local: state & PERMANENT != 0,
            static_: state & NOARP != 0,
            sticky: flags & STICKY != 0,
            ext_learned: flags & EXT_LEARNED != 0,
            offloaded: flags & OFFLOADED != 0,
            ..Self::default()
        };
        let mut has_mac = false;
        for (kind, value) in Attributes(&payload[HEADER..]) {
            match kind {
                LLADDR => {
                    entry.mac = value.try_into().ok()?;
                    has_mac = true;
                }
                VLAN => entry.vlan = u16_of(value)?,
                MASTER => entry.bridge = u32_of(value)?,
                FLAGS_EXT => entry.locked = u32_of(value)? & EXT_LOCKED != 0,
                _ => {}
            }
        }
        (has_mac && entry.bridge != 0).then_some(entry)
    }
}

/// The kind of an entry to be added.
///
/// ```
/// use hostnet::rtnetlink::FdbKind;
///
/// assert_ne!(FdbKind::Dynamic, FdbKind::Static);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FdbKind {
    /// It ages, and moves with its address, as one that was learned.
    Dynamic,
    /// It does not age; it moves with its address.
    Static,
    /// It does not age and does not move (Linux 4.20).
    Sticky,
    /// The host has the address.
    Local,
    /// It is kept up to date by the program that adds it, and does not age (`NTF_EXT_LEARNED`).
    ExtLearned,
}

impl FdbKind {
    fn state_and_flags(self) -> (u16, u8) {
        match self {
            Self::Dynamic => (REACHABLE, 0),
            Self::Static => (NOARP, 0),
            Self::Sticky => (NOARP, STICKY),
            Self::Local => (PERMANENT, 0),
            Self::ExtLearned => (REACHABLE, EXT_LEARNED),
        }
    }
}

/// The forwarding database.
impl Rtnetlink {
    /// The forwarding database of the bridge with this index; empty for another device. Entries of
    /// devices' own lists (`bridge fdb show` marks them with `self`) are left out.
    ///
    /// The kernel gives the list in parts and finds the next part by counting: for each entry that is
    /// removed meanwhile another one can be missing, and one can come twice for each that is added
    /// (`br_fdb_dump` in `net/bridge/br_fdb.c`). Who needs them all opens a [`Monitor`] first, and reads
    /// again if that reported a removal.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// let bridge = rtnetlink.link("br0")?.index;
    /// for entry in rtnetlink.fdb(bridge)?.iter().filter(|entry| !entry.local) {
    ///     println!("{:x?} vlan {}: port {}", entry.mac, entry.vlan, entry.port);
    /// }
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    ///
    /// [`Monitor`]: crate::rtnetlink::Monitor
    pub fn fdb(&mut self, bridge: u32) -> Result<Vec<FdbEntry>> {
        // The header of a device, and the one filter that every kernel has.
        let mut message = link_message(GET_NEIGH, libc::AF_BRIDGE, 0);
        push_attribute(&mut message.payload, LINK_MASTER, &bridge.to_ne_bytes());
        let mut entries = Vec::new();
        let listed = self.list(&message, &mut |kind, payload| {
            let entry = FdbEntry::read(payload).filter(|_| kind == NEW_NEIGH);
            entries.extend(entry.filter(|entry| entry.bridge == bridge));
        });
        match listed {
            // The bridge is gone.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            listed => {
                listed.with_context(|| {
                    format!("cannot list the forwarding database of the bridge {bridge}")
                })?;
                Ok(entries)
            }
        }
    }

    /// The entry of a bridge's forwarding database for an address in a VLAN, 0 for none. Needs
    /// Linux 5.0.
    pub fn fdb_entry(&mut self, bridge: u32, mac: [u8; 6], vlan: u16) -> Result<Option<FdbEntry>> {
        self.read_entry(bridge, mac, vlan, FdbEntry::read)
    }

    /// The time since an entry was last updated: since its address last sent a frame through the
    /// bridge, or was [refreshed](Self::refresh_fdb_entry). A dynamic entry goes when this reaches the
    /// bridge's ageing time.
    pub fn fdb_age(&mut self, bridge: u32, mac: [u8; 6], vlan: u16) -> Result<Option<Duration>> {
        self.read_entry(bridge, mac, vlan, |payload| {
            let info = attribute(payload.get(HEADER..)?, CACHEINFO)?;
            Some(CLOCK * u32_of(info.get(UPDATED..)?)?)
        })
    }

    fn read_entry<T>(
        &mut self,
        bridge: u32,
        mac: [u8; 6],
        vlan: u16,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>> {
        // The kernel looks at the index of the bridge, or else of a port, not at both.
        let mut message = entry(GET_NEIGH, (0, mac, vlan), (0, TO_MASTER));
        push_attribute(&mut message.payload, MASTER, &bridge.to_ne_bytes());
        let mut found = None;
        let answer = self.get(&message, &mut |kind, payload| {
            if kind == NEW_NEIGH {
                found = read(payload);
            }
        });
        match answer {
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
            answer => {
                answer.with_context(|| {
                    format!("cannot read the forwarding database of the bridge {bridge}")
                })?;
                Ok(found)
            }
        }
    }

    /// Adds a static entry, if there is none: frames for `mac` go to this port (`bridge fdb add MAC
    /// dev PORT master static`).
    pub fn add_fdb_entry(&mut self, port: u32, mac: [u8; 6]) -> Result<()> {
        let message = entry(NEW_NEIGH, (port, mac, 0), new(FdbKind::Static));
        self.change_raw(&message, NEW, || {
            format!("cannot add a MAC address to the forwarding database for port {port}")
        })
    }

    /// Adds an entry, or changes the one that is there to this port and kind (`bridge fdb replace`).
    /// Without a VLAN, the kernel also adds one for each VLAN of the port.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PermissionDenied`] also for a dynamic entry at a port whose state is neither learning
    /// nor forwarding, for instance because it has no carrier yet.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::{FdbKind, Rtnetlink};
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// let port = rtnetlink.link("tap0")?.index;
    /// rtnetlink.add_fdb(port, [0x52, 0x54, 0, 0, 0, 1], 0, FdbKind::Dynamic)?;
    /// rtnetlink.delete_fdb(port, [0x52, 0x54, 0, 0, 0, 1], 0)?;
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn add_fdb(&mut self, port: u32, mac: [u8; 6], vlan: u16, kind: FdbKind) -> Result<()> {
        let message = entry(NEW_NEIGH, (port, mac, vlan), new(kind));
        self.change_raw(&message, NLM_F_CREATE, || cannot_add(port))
            .cure(ErrorKind::PermissionDenied, NEEDS_STATE)
    }

    /// The same for many entries, without waiting for the answer to each.
    ///
    /// # Errors
    ///
    /// The first refusal; the entries after it are added nevertheless.
    pub fn add_fdb_entries(&mut self, entries: &[FdbKey], kind: FdbKind) -> Result<()> {
        let messages = entries.iter().map(|key| entry(NEW_NEIGH, *key, new(kind)));
        let (_, first) = self.change_entries(messages, NLM_F_CREATE)?;
        match first {
            Some((place, error)) => Err(error)
                .with_context(|| cannot_add(entries[place].0))
                .request_needs(Capability::NetAdmin)
                .cure(ErrorKind::PermissionDenied, NEEDS_STATE),
            None => Ok(()),
        }
    }

    /// Removes the entry of a port for an address. Without a VLAN, the kernel also removes those of
    /// each VLAN of the port.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such entry.
    pub fn delete_fdb(&mut self, port: u32, mac: [u8; 6], vlan: u16) -> Result<()> {
        let message = entry(DEL_NEIGH, (port, mac, vlan), (0, TO_MASTER));
        self.change_raw(&message, 0, || cannot_remove(port))
    }

    /// The same for many entries, without waiting for the answer to each; returns the number of
    /// entries removed. One that is not there is no error.
    pub fn delete_fdb_entries(&mut self, entries: &[FdbKey]) -> Result<usize> {
        let messages = entries
            .iter()
            .map(|key| entry(DEL_NEIGH, *key, (0, TO_MASTER)));
        let (refused, first) = self.change_entries(messages, 0)?;
        match first {
            Some((place, error)) if error.kind() != ErrorKind::NotFound => Err(error)
                .with_context(|| cannot_remove(entries[place].0))
                .request_needs(Capability::NetAdmin),
            _ => Ok(entries.len() - refused),
        }
    }

    /// Lets an entry's age begin anew, as a frame from its address does that comes by this port
    /// (`NTF_USE`; `br_fdb_update` in `net/bridge/br_fdb.c`). Hence:
    ///
    /// - an entry that has gone is made again, and one that has moved to another port moves back, each
    ///   with a notification; a plain refresh has none;
    /// - neither is a locked port an obstacle, nor one that does not learn; but at a port in another
    ///   state than learning or forwarding, the kernel does nothing, and says nothing;
    /// - without a VLAN, on a port that is a member of VLANs, the kernel also makes an entry for each of
    ///   these. A port has a VLAN even without VLAN filtering, by [`vlan_default_pvid`];
    /// - the entry counts no longer as a learned one, of which [`fdb_max_learned`] limits the number.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the device is no port of a bridge or the port no member of the VLAN, and
    /// [`ErrorKind::NotFound`] if there is no such device.
    ///
    /// [`vlan_default_pvid`]: crate::rtnetlink::BridgeSettings::vlan_default_pvid
    /// [`fdb_max_learned`]: crate::rtnetlink::BridgeSettings::fdb_max_learned
    pub fn refresh_fdb_entry(&mut self, port: u32, mac: [u8; 6], vlan: u16) -> Result<()> {
        let message = entry(NEW_NEIGH, (port, mac, vlan), REFRESH);
        self.change_raw(&message, 0, || cannot_refresh(port))
    }

    /// The same for many entries, without waiting for the answer to each; returns the number of those
    /// that the kernel did not refuse.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN`.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// let mut rtnetlink = Rtnetlink::open()?;
    /// let bridge = rtnetlink.link("br0")?.index;
    /// let entries = rtnetlink.fdb(bridge)?;
    /// let dynamic = entries.iter().filter(|entry| !entry.local && !entry.static_);
    /// let keys: Vec<_> = dynamic.map(|entry| (entry.port, entry.mac, entry.vlan)).collect();
    /// println!("{} refreshed", rtnetlink.refresh_fdb_entries(&keys)?);
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn refresh_fdb_entries(&mut self, entries: &[FdbKey]) -> Result<usize> {
        let messages = entries.iter().map(|key| entry(NEW_NEIGH, *key, REFRESH));
        let (refused, first) = self.change_entries(messages, 0)?;
        match first {
            Some((place, error)) if error.kind() == ErrorKind::PermissionDenied => Err(error)
                .with_context(|| cannot_refresh(entries[place].0))
                .request_needs(Capability::NetAdmin),
            _ => Ok(entries.len() - refused),
        }
    }

    /// The number of refusals, and the place of the first other one than of an entry that is not
    /// there, or else of the first.
    fn change_entries(
        &mut self,
        messages: impl Iterator<Item = RawMessage>,
        flags: u16,
    ) -> Result<(usize, Option<(usize, Error)>)> {
        let (mut refused, mut first) = (0, None::<(usize, Error)>);
        self.change_all(messages, flags, &mut |place, error| {
            refused += 1;
            if first.as_ref().is_none_or(|(_, first)| {
                first.kind() == ErrorKind::NotFound && error.kind() != ErrorKind::NotFound
            }) {
                first = Some((place, error));
            }
        })?;
        Ok((refused, first))
    }
}

/// The other cause of `EPERM` (`fdb_add_entry` in `net/bridge/br_fdb.c`).
const NEEDS_STATE: &str =
    "a dynamic entry also needs a port with a carrier, in the state forwarding or learning";
const REFRESH: (u16, u8) = (REACHABLE, TO_MASTER | USE);

fn new(kind: FdbKind) -> (u16, u8) {
    let (state, flags) = kind.state_and_flags();
    (state, flags | TO_MASTER)
}

fn cannot_add(port: u32) -> String {
    format!("cannot add a MAC address to the forwarding database for port {port}")
}

fn cannot_remove(port: u32) -> String {
    format!("cannot remove a MAC address of port {port} from the forwarding database")
}

fn cannot_refresh(port: u32) -> String {
    format!("cannot refresh a MAC address of port {port} in the forwarding database")
}

fn entry(kind: u16, (port, mac, vlan): FdbKey, (state, flags): (u16, u8)) -> RawMessage {
    let mut payload = Vec::with_capacity(HEADER + 20);
    payload.extend([libc::AF_BRIDGE as u8, 0, 0, 0]);
    payload.extend(port.to_ne_bytes());
    payload.extend(state.to_ne_bytes());
    payload.extend([flags, 0]);
    push_attribute(&mut payload, LLADDR, &mac);
    if vlan != 0 {
        push_attribute(&mut payload, VLAN, &vlan.to_ne_bytes());
    }
    RawMessage { kind, payload }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::damaged;

    #[test]
    fn an_entry_is_read_as_it_is_written() {
        let key = (3, [2, 0, 0, 0, 0, 1], 7);
        let mut message = entry(NEW_NEIGH, key, (NOARP, STICKY | EXT_LEARNED | OFFLOADED));
        assert_eq!(FdbEntry::read(&message.payload), None, "no bridge");
        push_attribute(&mut message.payload, MASTER, &2_u32.to_ne_bytes());
        push_attribute(&mut message.payload, FLAGS_EXT, &2_u32.to_ne_bytes());
        let expected = FdbEntry {
            mac: key.1,
            vlan: 7,
            port: 3,
            bridge: 2,
            local: false,
            static_: true,
            sticky: true,
            locked: true,
            ext_learned: true,
            offloaded: true,
        };
        assert_eq!(FdbEntry::read(&message.payload), Some(expected));
        for bytes in damaged(&message.payload) {
            FdbEntry::read(&bytes);
        }
        message.payload[0] = libc::AF_INET as u8;
        assert_eq!(FdbEntry::read(&message.payload), None, "a neighbour");
    }

    #[test]
    fn kinds_have_states() {
        let read = |kind: FdbKind| {
            let mut message = entry(NEW_NEIGH, (3, [2; 6], 0), new(kind));
            push_attribute(&mut message.payload, MASTER, &2_u32.to_ne_bytes());
            FdbEntry::read(&message.payload).expect("an entry")
        };
        let dynamic = read(FdbKind::Dynamic);
        assert!(!dynamic.local && !dynamic.static_ && !dynamic.sticky && dynamic.vlan == 0);
        assert!(read(FdbKind::Static).static_ && read(FdbKind::Sticky).sticky);
        assert!(read(FdbKind::Local).local && read(FdbKind::ExtLearned).ext_learned);
    }
}

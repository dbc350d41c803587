//! VLANs of bridges and their ports (`IFLA_BRIDGE_VLAN_INFO` in `linux/if_bridge.h`).

use super::socket::{
    DEL_LINK, GET_LINK, GET_VLAN, LINK_HEADER, NEW_LINK, NEW_VLAN, Rtnetlink, SET_LINK,
    link_message,
};
use crate::error::{Context as _, ErrorKind, Result};
use crate::netlink::{Attributes, RawMessage, push_attribute, push_nested, u16_of, u32_of};

/// Attributes of a device.
const AF_SPEC: u16 = 26;
const EXT_MASK: u16 = 29;
/// `RTEXT_FILTER_BRVLAN_COMPRESSED`.
const COMPRESSED: u32 = 1 << 2;
/// Attributes in `IFLA_AF_SPEC` of the family `AF_BRIDGE`.
const BRIDGE_FLAGS: u16 = 0;
const VLAN_INFO: u16 = 2;
/// `BRIDGE_FLAGS_SELF`: the VLANs of a bridge itself.
const SELF: u16 = 2;
/// Flags of a VLAN (`BRIDGE_VLAN_INFO_*`).
const PVID: u16 = 1 << 1;
const UNTAGGED: u16 = 1 << 2;
const RANGE_BEGIN: u16 = 1 << 3;
const RANGE_END: u16 = 1 << 4;
/// `struct br_vlan_msg`, before the attributes: family, three bytes of padding, index.
const VLAN_HEADER: usize = 8;
/// `BRIDGE_VLANDB_ENTRY`, and the attributes in it.
const ENTRY: u16 = 1;
const ENTRY_INFO: u16 = 1;
const ENTRY_RANGE: u16 = 2;
const ENTRY_STATE: u16 = 3;
/// `BR_STATE_FORWARDING`.
const FORWARDING: u8 = 3;
/// The highest VLAN.
const LAST: u16 = 4094;

/// A VLAN that a port of a bridge is a member of, or the bridge itself.
///
/// ```
/// use hostnet::rtnetlink::BridgeVlan;
///
/// let trunk = BridgeVlan { vid: 10, ..Default::default() };
/// let access = BridgeVlan { pvid: true, untagged: true, ..trunk };
/// assert_ne!(access, trunk);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct BridgeVlan {
    /// The number of the VLAN, 1 to 4094.
    pub vid: u16,
    /// Whether untagged frames that come by the port are in this VLAN.
    pub pvid: bool,
    /// Whether frames of this VLAN leave the port without a tag.
    pub untagged: bool,
    /// Whether its state on the port is another than forwarding (`bridge vlan set … state`); false where the
    /// kernel does not say (before Linux 5.6).
    pub blocked: bool,
}

impl BridgeVlan {
    fn new(vid: u16, flags: u16, blocked: bool) -> Self {
        Self {
            vid,
            pvid: flags & PVID != 0,
            untagged: flags & UNTAGGED != 0,
            blocked,
        }
    }
}

/// VLANs of bridges.
impl Rtnetlink {
    /// The VLANs of every bridge and every port that has any, by the index of the device. None at all
    /// for a kernel without `CONFIG_BRIDGE_VLAN_FILTERING`.
    ///
    /// ```no_run
    /// use hostnet::rtnetlink::Rtnetlink;
    ///
    /// for (device, vlans) in Rtnetlink::open()?.bridge_vlans()? {
    ///     let tagged = vlans.iter().filter(|vlan| !vlan.untagged).count();
    ///     println!("device {device}: {} VLANs, {tagged} of them tagged", vlans.len());
    /// }
    /// # Ok::<(), hostnet::Error>(())
    /// ```
    pub fn bridge_vlans(&mut self) -> Result<Vec<(u32, Vec<BridgeVlan>)>> {
        match self.vlans(0) {
            Err(error) if error.kind() == ErrorKind::Unsupported => self.vlans_of_links(),
            listed => listed.context("cannot list the VLANs of bridges"),
        }
    }

    /// The VLANs of one bridge or port. With a kernel that cannot answer for one (`RTM_GETVLAN`, Linux
    /// 5.6), it reads those of all.
    pub fn bridge_vlans_of(&mut self, index: u32) -> Result<Vec<BridgeVlan>> {
        let devices = match self.vlans(index) {
            Err(error) if error.kind() == ErrorKind::Unsupported => self.vlans_of_links()?,
            listed => listed.with_context(|| format!("cannot list the VLANs of device {index}"))?,
        };
        let of_device = devices.into_iter().filter(|(device, _)| *device == index);
        Ok(of_device.flat_map(|(_, vlans)| vlans).collect())
    }

    /// By `RTM_GETVLAN`; an index of 0 is for all.
    fn vlans(&mut self, index: u32) -> Result<Vec<(u32, Vec<BridgeVlan>)>> {
        let mut payload = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
        payload.extend(index.to_ne_bytes());
        let message = RawMessage {
            kind: GET_VLAN,
            payload,
        };
        let mut devices: Vec<(u32, Vec<BridgeVlan>)> = Vec::new();
        self.list(&message, &mut |kind, payload| {
            let Some(index) = vlan_device(payload).filter(|_| kind == NEW_VLAN) else {
                return;
            };
            // Those of one device may come in several messages.
            match devices.last_mut() {
                Some((last, vlans)) if *last == index => read_entries(payload, vlans),
                _ => {
                    let mut vlans = Vec::new();
                    read_entries(payload, &mut vlans);
                    devices.push((index, vlans));
                }
            }
        })?;
        devices.retain(|(_, vlans)| !vlans.is_empty());
        Ok(devices)
    }

    fn vlans_of_links(&mut self) -> Result<Vec<(u32, Vec<BridgeVlan>)>> {
        let mut message = link_message(GET_LINK, libc::AF_BRIDGE, 0);
        push_attribute(&mut message.payload, EXT_MASK, &COMPRESSED.to_ne_bytes());
        let mut devices: Vec<(u32, Vec<BridgeVlan>)> = Vec::new();
        let listed = self.list(&message, &mut |kind, payload| {
            let device = read_device(payload).filter(|_| kind == NEW_LINK);
            devices.extend(device.filter(|(_, vlans)| !vlans.is_empty()));
        });
        listed.context("cannot list the VLANs of bridges")?;
        Ok(devices)
    }

    /// Makes a port a member of a VLAN, or the bridge itself, or changes how it is one (`bridge vlan
    /// add`).
    pub fn add_port_vlan(&mut self, port: u32, vid: u16, pvid: bool, untagged: bool) -> Result<()> {
        let flags = if pvid { PVID } else { 0 } | if untagged { UNTAGGED } else { 0 };
        self.change_vlan(SET_LINK, port, vid, flags)
            .with_context(|| format!("cannot make device {port} a member of the VLAN {vid}"))
            .cure(
                ErrorKind::Unsupported,
                "the kernel needs CONFIG_BRIDGE_VLAN_FILTERING",
            )
    }

    /// Ends a port's membership in a VLAN, or that of the bridge itself.
    pub fn delete_port_vlan(&mut self, port: u32, vid: u16) -> Result<()> {
        self.change_vlan(DEL_LINK, port, vid, 0)
            .with_context(|| {
                format!("cannot end the membership of device {port} in the VLAN {vid}")
            })
            .cure(
                ErrorKind::Unsupported,
                "the kernel needs CONFIG_BRIDGE_VLAN_FILTERING",
            )
    }

    fn change_vlan(&mut self, kind: u16, port: u32, vid: u16, flags: u16) -> Result<()> {
        let mut spec = Vec::new();
        if self.link_by_index(port)?.bridge.is_some() {
            push_attribute(&mut spec, BRIDGE_FLAGS, &SELF.to_ne_bytes());
        }
        let info = [flags, vid].map(u16::to_ne_bytes).concat();
        push_attribute(&mut spec, VLAN_INFO, &info);
        let mut message = link_message(kind, libc::AF_BRIDGE, port);
        push_nested(&mut message.payload, AF_SPEC, &spec);
        self.change_raw(&message, 0, String::new)
    }
}

/// The index of the device that a message of `RTM_NEWVLAN` or `RTM_DELVLAN` is about.
pub(super) fn vlan_device(payload: &[u8]) -> Option<u32> {
    u32_of(payload.get(4..VLAN_HEADER)?)
}

/// The device and the VLANs of a message of the family `AF_BRIDGE`.
fn read_device(payload: &[u8]) -> Option<(u32, Vec<BridgeVlan>)> {
    let index = u32_of(payload.get(4..)?)?;
    let mut vlans = Vec::new();
    for (_, spec) in Attributes(payload.get(LINK_HEADER..)?).filter(|(kind, _)| *kind == AF_SPEC) {
        let mut begin = None;
        for (_, info) in Attributes(spec).filter(|(kind, _)| *kind == VLAN_INFO) {
            // `struct bridge_vlan_info`: flags, number.
            let (Some(flags), Some(vid)) = (u16_of(info), info.get(2..).and_then(u16_of)) else {
                continue;
            };
            if flags & RANGE_BEGIN != 0 {
                begin = Some(vid);
                continue;
            }
            let first = begin.take().filter(|_| flags & RANGE_END != 0);
            push_range(first.unwrap_or(vid), vid, flags, false, &mut vlans);
        }
    }
    Some((index, vlans))
}

/// The VLANs of a message of `RTM_NEWVLAN`.
fn read_entries(payload: &[u8], vlans: &mut Vec<BridgeVlan>) {
    let attributes = Attributes(payload.get(VLAN_HEADER..).unwrap_or_default());
    for (_, entry) in attributes.filter(|(kind, _)| *kind == ENTRY) {
        let find = |kind| Attributes(entry).find(|attribute| attribute.0 == kind);
        let Some((_, info)) = find(ENTRY_INFO) else {
            continue;
        };
        let (Some(flags), Some(vid)) = (u16_of(info), info.get(2..).and_then(u16_of)) else {
            continue;
        };
        let last = find(ENTRY_RANGE).and_then(|(_, last)| u16_of(last));
        let state = find(ENTRY_STATE).and_then(|(_, state)| state.first().copied());
        let blocked = state.is_some_and(|state| state != FORWARDING);
        push_range(vid, last.unwrap_or(vid), flags, blocked, vlans);
    }
}

/// No more VLANs than there are, whatever the range.
fn push_range(first: u16, last: u16, flags: u16, blocked: bool, vlans: &mut Vec<BridgeVlan>) {
    let room = usize::from(LAST).saturating_sub(vlans.len());
    let range = (first.max(1)..=last.min(LAST)).take(room);
    vlans.extend(range.map(|vid| BridgeVlan::new(vid, flags, blocked)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::damaged;

    const ACCESS: BridgeVlan = BridgeVlan {
        vid: 1,
        pvid: true,
        untagged: true,
        blocked: false,
    };

    fn tagged(vid: u16) -> BridgeVlan {
        BridgeVlan {
            vid,
            ..BridgeVlan::default()
        }
    }

    fn device(infos: &[[u16; 2]]) -> Vec<u8> {
        let mut spec = Vec::new();
        for info in infos {
            push_attribute(&mut spec, VLAN_INFO, &info.map(u16::to_ne_bytes).concat());
        }
        let mut message = link_message(NEW_LINK, libc::AF_BRIDGE, 5);
        push_nested(&mut message.payload, AF_SPEC, &spec);
        message.payload
    }

    #[test]
    fn ranges_are_expanded() {
        let infos = [
            [PVID | UNTAGGED, 1],
            [RANGE_BEGIN, 10],
            [RANGE_END, 12],
            [0, 20],
        ];
        let payload = device(&infos);
        let vlans = [ACCESS, tagged(10), tagged(11), tagged(12), tagged(20)];
        assert_eq!(read_device(&payload), Some((5, vlans.to_vec())));
        for bytes in damaged(&payload) {
            if let Some((_, vlans)) = read_device(&bytes) {
                assert!(vlans.len() <= usize::from(LAST));
            }
        }
    }

    #[test]
    fn hostile_ranges_are_bounded() {
        let infos = [[RANGE_BEGIN, 0], [RANGE_END, u16::MAX]].repeat(20);
        let (_, vlans) = read_device(&device(&infos)).expect("a device");
        assert_eq!(vlans.len(), usize::from(LAST));
        let infos = [[RANGE_BEGIN, 9], [RANGE_END, 3], [RANGE_END, 4]];
        let (_, vlans) = read_device(&device(&infos)).expect("a device");
        assert_eq!(
            vlans,
            [tagged(4)],
            "a range that goes down, and one without a begin"
        );
    }

    #[test]
    fn entries_have_ranges() {
        let mut payload = vec![libc::AF_BRIDGE as u8, 0, 0, 0, 5, 0, 0, 0];
        payload[4..].copy_from_slice(&5_u32.to_ne_bytes());
        let entries = [
            (PVID | UNTAGGED, 1_u16, None, FORWARDING),
            (0, 10, Some(11_u16), FORWARDING),
            (0, 12, None, 4),
        ];
        for (flags, vid, last, state) in entries {
            let mut entry = Vec::new();
            let info = [flags, vid].map(u16::to_ne_bytes).concat();
            push_attribute(&mut entry, ENTRY_INFO, &info);
            if let Some(last) = last {
                push_attribute(&mut entry, ENTRY_RANGE, &last.to_ne_bytes());
            }
            push_attribute(&mut entry, ENTRY_STATE, &[state]);
            push_nested(&mut payload, ENTRY, &entry);
        }
        assert_eq!(vlan_device(&payload), Some(5));
        let mut vlans = Vec::new();
        read_entries(&payload, &mut vlans);
        let blocked = BridgeVlan {
            blocked: true,
            ..tagged(12)
        };
        assert_eq!(vlans, [ACCESS, tagged(10), tagged(11), blocked]);
        for bytes in damaged(&payload) {
            let _ = vlan_device(&bytes);
            let mut vlans = Vec::new();
            read_entries(&bytes, &mut vlans);
            assert!(vlans.len() <= usize::from(LAST));
        }
    }
}

//! Whether and how packets of a device reach a socket on it: a program that is attached and a socket that is
//! bound say nothing of that.

use super::files::Files;
use super::{AttachMode, Device};
use crate::error::{Error, ErrorKind, Result};
use hostnet::ethtool;

/// The longest packet that the network stack merges or segments late, which can take 64 KiB of IP
/// (`GSO_LEGACY_MAX_SIZE` in `include/linux/netdevice.h`), with a link header.
pub(crate) const LONGEST_PACKET: u32 = 65_536 + 18;

impl Device {
    /// Whether packets of the device begin with an Ethernet header. Those of the kinds `tun`, `wireguard` and
    /// `ipip` begin with the IP header, also in a socket's frames.
    ///
    /// ```
    /// # fn main() -> xsk::Result<()> {
    /// assert!(xsk::Device::lookup("lo")?.has_ethernet_header());
    /// # Ok(())
    /// # }
    /// ```
    pub fn has_ethernet_header(&self) -> bool {
        matches!(self.link_type, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK)
    }

    /// Checks that XDP programs on the device see its packets, in any mode.
    ///
    /// An ifb hands each packet back to the device that it came from, in front of XDP (`ifb_ri_tasklet`). A VRF is given
    /// packets of its lower devices after XDP (`vrf_ip_rcv` in `drivers/net/vrf.c`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ModeRefused`], with the devices to open instead.
    pub(crate) fn check_xdp(&self) -> Result<()> {
        let name = &self.name;
        let message = match self.kind.as_deref() {
            Some("ifb") => format!(
                "no XDP program sees packets on {name}, as an ifb hands them back to the device that they came from: open the socket on the device that they came from"
            ),
            Some("vrf") => format!(
                "no XDP program sees the packets that {name} receives through its lower devices: {}",
                self.lower_instead()
            ),
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::ModeRefused, message))
    }

    /// Checks that the packets of a program in this mode can reach a socket on the device.
    ///
    /// Native XDP of a bond runs on its lower devices, and the kernel redirects a packet only to a socket on the
    /// device that received it (`xsk_rcv_check` in `net/xdp/xsk.c`): it would drop all. So it is with each
    /// device that receives through lower devices, such as Hyper-V's through that of the hardware.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ModeRefused`], with the devices to open instead.
    pub(crate) fn check_delivery(&self, mode: AttachMode) -> Result<()> {
        let name = &self.name;
        let is_above =
            matches!(self.kind.as_deref(), Some("bond" | "team")) || !self.lower.is_empty();
        if mode == AttachMode::Skb || !is_above {
            return Ok(());
        }
        let instead = self.lower_instead();
        let message = format!(
            "{name} receives through its lower devices, on which native XDP runs, and the kernel drops what is redirected from them to a socket on {name}: {instead}, or use `Mode::Skb`"
        );
        Err(Error::new(ErrorKind::ModeRefused, message))
    }

    fn lower_instead(&self) -> String {
        match &self.lower[..] {
            [] => "open sockets on its lower devices, of which it has none yet".to_owned(),
            lower => format!("open a socket on each of them ({})", lower.join(", ")),
        }
    }

    /// Why the device, which counts so many packets, receives none, if its kind does not: a dummy drops what it sends
    /// (`dummy_xmit`), and an nlmon counts the messages of netlink, which it only shows to captures (`nlmon_xmit`).
    pub(crate) fn receives_nothing(&self, counted: u64) -> Option<&'static str> {
        match self.kind.as_deref()? {
            "dummy" if counted == 0 => Some(
                "a dummy receives no packets but those that a rule of tc hands to it (`mirred ingress redirect`): open the socket on the device at which they arrive",
            ),
            "nlmon" => Some(
                "an nlmon receives no packets: it shows the messages of netlink to captures (`tcpdump`)",
            ),
            _ => None,
        }
    }

    /// Checks that the built-in filters can read the packets of the device.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] without an Ethernet header.
    pub(crate) fn check_filter(&self) -> Result<()> {
        if self.has_ethernet_header() {
            return Ok(());
        }
        Err(no_ethernet_header(&self.name))
    }

    /// Why packets are lost that are longer than `room`, and the cure, a UMEM with these settings: of virtual devices the kernel segments
    /// packets late (TSO, GSO), and of those below others it has merged them (GRO), in front of an XDP program
    /// that runs in this mode. Ask when the program is attached, which turns merging on the device itself off.
    pub(crate) fn long_packets(
        &self,
        mode: AttachMode,
        room: u32,
        settings: &str,
    ) -> Option<Error> {
        if !self.may_deliver_long_packets(mode) {
            return None;
        }
        let Self { name, mtu, .. } = self;
        let below = match &self.lower[..] {
            [] if self.is_stacked => format!(
                ", and `ethtool -K DEVICE gro off` for the device below {name}, which `ip link show dev {name}` names after the @"
            ),
            [] => String::new(),
            lower => {
                let off = lower.iter().map(|it| format!("`ethtool -K {it} gro off`"));
                let off: Vec<_> = off.collect();
                format!(", and {} below {name}", off.join(", "))
            }
        };
        let message = format!(
            "{name} can deliver packets longer than its MTU of {mtu}, which others segment late (TSO, GSO) or have merged (GRO), and those of more than {room} bytes are dropped: build the UMEM with {settings}; or `ethtool -K DEVICE tso off gso off tx-udp-segmentation off` for the sender's device{below}"
        );
        Some(Error::new(ErrorKind::MtuTooLarge, message))
    }

    fn may_deliver_long_packets(&self, mode: AttachMode) -> bool {
        match self.kind.as_deref() {
            // The driver takes long packets past native XDP to generic XDP (`tun_get_user`).
            Some("tun") => self.tap_vnet_header != Some(false),
            _ if mode != AttachMode::Skb => false,
            Some(_) => true,
            None => {
                let is_loopback = self.link_type == libc::ARPHRD_LOOPBACK;
                is_loopback || !self.lower.is_empty() || self.merges_in_hardware()
            }
        }
    }

    /// Whether the card, or the host of a virtual machine, merges packets.
    fn merges_in_hardware(&self) -> bool {
        let features = ethtool::features(&self.name).unwrap_or_default();
        let mut on = features.iter().filter(|feature| feature.on);
        on.any(|feature| matches!(&*feature.name, "rx-gro-hw" | "rx-lro"))
    }

    /// The bytes of which the buffers that the driver receives into without a copy are a multiple. A longer packet is
    /// dropped, or taken apart and each part received as a packet.
    pub(crate) fn rx_buffer_unit(&self) -> u32 {
        let driver = ethtool::driver(&self.name).ok().flatten();
        rx_buffer_unit(driver.as_deref(), || self.pci_device())
    }

    /// Its PCI device id, if it has one.
    fn pci_device(&self) -> Option<u32> {
        let files = Files::of(&self.name, self.index).ok()?;
        let id = files.read("device/device");
        u32::from_str_radix(id.ok()?.strip_prefix("0x")?, 16).ok()
    }
}

/// The error for a filter on a device without an Ethernet header.
pub(crate) fn no_ethernet_header(device: &str) -> Error {
    Error::invalid(format!(
        "packets of {device} have no Ethernet header, which the filter reads: leave `filter` out to take all packets, or choose them by an XDP program of your own (`SocketBuilder::attach`)"
    ))
}

/// igb and igc tell their cards the size of a chunk in KiB, rounded down (`igb_setup_srrctl`,
/// `igc_configure_rx_ring`), and so does ixgbe the 82599, which has no limit in bytes beside as later ones have
/// (`ixgbe_configure_srrctl`).
fn rx_buffer_unit(driver: Option<&str>, pci_device: impl FnOnce() -> Option<u32>) -> u32 {
    match driver {
        Some("igb" | "igc") => 1024,
        Some("ixgbe") if pci_device().is_none_or(is_82599) => 1024,
        _ => 1,
    }
}

/// Whether a device of ixgbe is an 82599 (`IXGBE_DEV_ID_82599_*` in `ixgbe_type.h`).
fn is_82599(pci_device: u32) -> bool {
    matches!(
        pci_device,
        0x10f7
            ..=0x10f9
                | 0x10fb
                | 0x10fc
                | 0x1507
                | 0x1514
                | 0x1517
                | 0x151c
                | 0x1529
                | 0x152a
                | 0x154a
                | 0x154d
                | 0x154f
                | 0x1557
                | 0x1558
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(kind: Option<&str>, lower: &[&str]) -> Device {
        Device {
            kind: kind.map(Into::into),
            lower: lower.iter().copied().map(Into::into).collect(),
            ..Device::of_model("dev0", 1)
        }
    }

    #[test]
    fn native_xdp_delivers_to_no_socket_above_the_device_that_receives() {
        for (kind, lower, words) in [
            (Some("bond"), &["eth0", "eth1"][..], "(eth0, eth1)"),
            (Some("bond"), &[], "has none yet"),
            (Some("team"), &["eth0"], "(eth0)"),
            (Some("bridge"), &["tap0"], "(tap0)"),
            // Hyper-V's, with a function of the card.
            (None, &["enP1s0"], "(enP1s0)"),
        ] {
            let device = device(kind, lower);
            let error = device.check_delivery(AttachMode::Driver);
            let error = error.expect_err("packets would be lost");
            assert_eq!(error.kind(), ErrorKind::ModeRefused);
            assert!(error.to_string().contains(words), "{error}");
            assert!(device.check_delivery(AttachMode::Skb).is_ok());
        }
        for kind in [None, Some("veth"), Some("tun")] {
            let delivers = device(kind, &[]).check_delivery(AttachMode::Driver);
            assert!(delivers.is_ok(), "{kind:?}");
        }
    }

    #[test]
    fn xdp_sees_no_packets_of_an_ifb_or_vrf() {
        for (kind, words) in [("ifb", "that they came from"), ("vrf", "(eth0, eth1)")] {
            let error = device(Some(kind), &["eth0", "eth1"]).check_xdp();
            let error = error.expect_err("no packet would come");
            assert!(error.to_string().contains(words), "{error}");
        }
        for kind in [None, Some("bond"), Some("bridge")] {
            assert!(device(kind, &["eth0"]).check_xdp().is_ok());
        }
    }

    #[test]
    fn packets_beyond_the_mtu_are_those_of_virtual_devices_in_generic_xdp() {
        const CHUNK: u32 = 1792;
        let long = |device: &Device, mode| device.long_packets(mode, CHUNK, "`fragments`");
        for kind in ["veth", "macvlan", "bond", "vlan", "bridge", "netkit"] {
            let device = device(Some(kind), &[]);
            assert!(long(&device, AttachMode::Skb).is_some(), "{kind}");
            assert!(long(&device, AttachMode::Driver).is_none(), "{kind}");
        }
        let bond = device(Some("bond"), &["eth0", "eth1"]);
        let text = long(&bond, AttachMode::Skb).expect("merged").to_string();
        let each = "`ethtool -K eth0 gro off`, `ethtool -K eth1 gro off`";
        assert!(text.contains(each), "{text}");
        for (header, is_long) in [(Some(true), true), (None, true), (Some(false), false)] {
            let tap = Device {
                tap_vnet_header: header,
                ..device(Some("tun"), &[])
            };
            for mode in [AttachMode::Skb, AttachMode::Driver] {
                assert_eq!(long(&tap, mode).is_some(), is_long, "{header:?} {mode}");
            }
        }
    }

    /// As `ixgbe_type.h` numbers them: no X540, X550 or E610.
    #[test]
    fn the_82599_alone_of_ixgbe_counts_in_kib() {
        let unit = |driver, pci| rx_buffer_unit(Some(driver), || pci);
        for sfp in [0x10fb, 0x1517, 0x1558] {
            assert_eq!(unit("ixgbe", Some(sfp)), 1024, "{sfp:#x}");
        }
        for later in [0x1528, 0x1560, 0x1563, 0x15ab, 0x15c8, 0x57ae] {
            assert_eq!(unit("ixgbe", Some(later)), 1, "{later:#x}");
        }
        assert_eq!(unit("ixgbe", None), 1024, "it may be one");
        assert_eq!(unit("igc", Some(0x15f3)), 1024);
        assert_eq!(unit("ice", Some(0x1592)), 1);
        assert_eq!(rx_buffer_unit(None, || None), 1);
    }
}

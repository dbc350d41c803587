//! Properties of network devices, read over netlink and ethtool.

mod attached;
mod delivery;
mod files;
mod interrupts;
mod removal;
mod silence;
mod watch;

pub use attached::{AttachMode, AttachedProgram};
pub(crate) use delivery::{LONGEST_PACKET, no_ethernet_header};
pub use interrupts::DeferredInterrupts;
pub use silence::{QueueCounts, Silence};
pub use watch::{DeviceEvent, DeviceWatch};

use crate::error::{Error, ErrorKind, Result};
use files::Files;
use hostnet::ethtool;
use hostnet::rtnetlink::{Link, Rtnetlink, XdpPrograms};

/// A network device of the calling thread's network namespace, at the time of the lookup.
///
/// ```
/// # fn main() -> xsk::Result<()> {
/// let device = xsk::Device::lookup("lo")?;
/// println!("{} has {} RX queues and MTU {}", device.name, device.rx_queues, device.mtu);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its other names.
    pub(crate) alternative_names: Vec<String>,
    /// Its index.
    pub index: u32,
    /// Largest packet, without the link header, in bytes.
    pub mtu: u32,
    /// Whether it is up (`IFF_UP`).
    pub up: bool,
    /// RX queues in use.
    pub rx_queues: u32,
    /// TX queues in use.
    pub tx_queues: u32,
    /// The queues that it can have in one direction, without a new device.
    pub(crate) most_queues: u32,
    /// The kind of a virtual device, such as `veth` (`IFLA_INFO_KIND`); `None` for hardware and the loopback.
    pub(crate) kind: Option<String>,
    /// The header that its packets begin with (`ARPHRD_*`).
    pub(crate) link_type: u16,
    /// The names of the lower devices of a bond or bridge, through which it receives.
    pub(crate) lower: Vec<String>,
    /// Whether another device is below it, as below a VLAN or macvlan.
    pub(crate) is_stacked: bool,
    /// Whether packets of a tap have a header for pending offloads; `None` if the kernel does not say.
    pub(crate) tap_vnet_header: Option<bool>,
    /// XDP programs attached to it.
    pub programs: Vec<AttachedProgram>,
}

impl Device {
    /// Looks up a device by its name, or by one of its alternative names; the field `name` has the first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DeviceMissing`] when this network namespace has no such device, and for a name that none can have.
    pub fn lookup(name: &str) -> Result<Self> {
        let missing = |why: &str| {
            let message = format!("{why}: `ip link` lists the devices");
            Error::new(ErrorKind::DeviceMissing, message)
        };
        let read = || {
            let mut rtnetlink = Rtnetlink::open()?;
            let link = rtnetlink.link(name)?;
            let lower = rtnetlink.links_of(link.index)?;
            Ok((link, lower))
        };
        let (link, lower) = read().map_err(|error: hostnet::Error| match error.kind() {
            hostnet::ErrorKind::NotFound => missing(&format!(
                "no network device {name:?} in this network namespace"
            )),
            hostnet::ErrorKind::InvalidInput => missing(error.message()),
            _ => Error::host(&error),
        })?;
        let mut device = Self::from_link(&link);
        device.lower = lower.into_iter().map(|link| link.name).collect();
        device.count_used_queues();
        Ok(device)
    }

    /// Whether this is its name, or one of its alternative names.
    ///
    /// ```
    /// assert!(xsk::Device::lookup("lo")?.is_named("lo"));
    /// # Ok::<(), xsk::Error>(())
    /// ```
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.alternative_names.iter().any(|it| it == name)
    }

    fn from_link(link: &Link) -> Self {
        Self {
            name: link.name.clone(),
            alternative_names: link.alternative_names.clone(),
            index: link.index,
            mtu: link.mtu,
            up: link.up,
            rx_queues: link.queues,
            tx_queues: link.tx_queues,
            most_queues: link.queues.max(link.tx_queues),
            kind: link.kind.clone(),
            link_type: link.link_type,
            lower: Vec::new(),
            is_stacked: link.lower.is_some()
                && !matches!(link.kind.as_deref(), Some("veth" | "netkit")),
            tap_vnet_header: link.tap_vnet_header,
            programs: programs(link.xdp_programs),
        }
    }

    /// One of a model of the kernel.
    #[cfg(any(test, xsk_internals))]
    pub(crate) fn of_model(name: &str, queues: u32) -> Self {
        let link = Link {
            name: name.to_owned(),
            index: 1,
            link_type: libc::ARPHRD_ETHER,
            up: true,
            mtu: 1500,
            queues,
            tx_queues: queues,
            ..Link::default()
        };
        Self::from_link(&link)
    }

    /// Netlink reports allocated queues, ethtool those in use. A driver without ethtool channels
    /// uses all.
    fn count_used_queues(&mut self) {
        let Ok(Some(channels)) = ethtool::channels(&self.name) else {
            return;
        };
        let used = channels.used;
        let (rx, tx) = (used.rx + used.combined, used.tx + used.combined);
        self.rx_queues = if rx > 0 { rx } else { self.rx_queues };
        self.tx_queues = if tx > 0 { tx } else { self.tx_queues };
        let most = channels.most.rx.max(channels.most.tx) + channels.most.combined;
        self.most_queues = self.most_queues.max(most);
    }

    /// The NUMA node that it is connected to; none where it is connected to none, as a virtual device, or the
    /// machine has one only.
    pub fn numa_node(&self) -> Option<u32> {
        // -1 for none.
        let node = Files::of(&self.name, self.index)
            .ok()?
            .read("device/numa_node");
        node.ok()?.parse().ok()
    }

    /// The program that prevents attaching another.
    pub(crate) fn obstacle(&self) -> Option<&AttachedProgram> {
        self.programs.first()
    }
}

fn programs(ids: XdpPrograms) -> Vec<AttachedProgram> {
    let places = [
        (AttachMode::Skb, ids.generic),
        (AttachMode::Driver, ids.driver),
        (AttachMode::Hardware, ids.hardware),
    ];
    places
        .into_iter()
        .filter_map(|(mode, id)| AttachedProgram::lookup(mode, id?))
        .collect()
}

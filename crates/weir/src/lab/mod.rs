//! A network for tests and measurements: two network namespaces joined by a veth pair, in which
//! nothing sends a packet of its own.
//!
//! ```text
//!   app side                      load side
//!   weir0 02:00:00:00:00:0a ───── weir1 02:00:00:00:00:0b
//! ```
//!
//! An [anonymous](Lab::anonymous) lab lives only in the open descriptors of the process that
//! made it, so it is gone with that process, also after `kill -9`. A [`named`] one stays,
//! where `ip netns` sees it, until it is taken down.

pub mod bridge;
pub mod leg;
pub mod named;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command};

use anyhow::{Result, ensure};

use crate::traffic::frame::{APP_MAC, LOAD_MAC};
use hostnet::device::{Counters, Device};
use hostnet::ethtool::{self, Offload};
use hostnet::netns;
use hostnet::rtnetlink::{Rtnetlink, VethEnd, max_xdp_mtu};

/// The device of the application's side.
pub const APP_DEVICE: &str = "weir0";
/// The device of the load's side.
pub const LOAD_DEVICE: &str = "weir1";

/// The most queues that a lab can have each way. The kernel's limit is 4096; each queue costs
/// memory, and no measurement here needs more.
const MAX_QUEUES: u32 = 64;
/// The smallest MTU of IPv4 (RFC 791).
const MIN_MTU: u32 = 68;
/// The usual MTU of networks with jumbo frames.
const MAX_MTU: u32 = 9000;

/// The settings of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabConfig {
    /// Receive and transmit queues of each device; 1 by default.
    pub queues: u32,
    /// The largest packet in bytes, without its Ethernet header; 1500 by default.
    pub mtu: u32,
}

impl Default for LabConfig {
    fn default() -> Self {
        Self {
            queues: 1,
            mtu: 1500,
        }
    }
}

impl LabConfig {
    fn check(&self) -> Result<()> {
        ensure!(
            (1..=MAX_QUEUES).contains(&self.queues),
            "a lab of {} queues cannot be made: choose from 1 to {MAX_QUEUES}",
            self.queues
        );
        ensure!(
            (MIN_MTU..=MAX_MTU).contains(&self.mtu),
            "a lab of MTU {} cannot be made: choose from {MIN_MTU} to {MAX_MTU}",
            self.mtu
        );
        Ok(())
    }
}

/// Two network namespaces joined by a veth pair.
#[must_use = "an anonymous lab is gone when it is dropped"]
pub struct Lab {
    app: Side,
    load: Side,
    notes: Vec<String>,
}

impl Lab {
    /// Makes a lab that has no name and leaves nothing when this process ends.
    ///
    /// A device and its namespace go when the last descriptor, process and socket in it has
    /// gone; the kernel removes them in the background, within some tens of milliseconds.
    pub fn anonymous(config: &LabConfig) -> Result<Self> {
        config.check()?;
        let (app, load) = (netns::create()?, netns::create()?);
        // Before there is a device that could send a solicitation.
        let has_ipv6 = netns::disable_ipv6(app.as_fd())?;
        netns::disable_ipv6(load.as_fd())?;
        netns::run_in(app.as_fd(), || {
            let ends = [
                &VethEnd {
                    name: APP_DEVICE,
                    mac: APP_MAC,
                    netns: app.as_fd(),
                },
                &VethEnd {
                    name: LOAD_DEVICE,
                    mac: LOAD_MAC,
                    netns: load.as_fd(),
                },
            ];
            Rtnetlink::open()?.add_veth(ends, config.queues, config.mtu)
        })?;
        let lab = Self {
            app: Side::open(app, APP_DEVICE)?,
            load: Side::open(load, LOAD_DEVICE)?,
            notes: notes(config, has_ipv6),
        };
        for side in [&lab.app, &lab.load] {
            side.set_offloads()?;
        }
        // The application's side comes up last: frames can flow from then on.
        for side in [&lab.load, &lab.app] {
            side.link.set_up()?;
        }
        Ok(lab)
    }

    /// The side of the application under test.
    pub fn app(&self) -> &Side {
        &self.app
    }

    /// The side of the load generator, which also receives the application's frames.
    pub fn load(&self) -> &Side {
        &self.load
    }

    /// The settings that were made, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

fn notes(config: &LabConfig, has_ipv6: bool) -> Vec<String> {
    let queues = match config.queues {
        1 => "one queue".to_owned(),
        queues => format!("{queues} queues"),
    };
    let mut notes = vec![
        format!(
            "{APP_DEVICE} (application) and {LOAD_DEVICE} (load) are a veth pair with {queues} each way and MTU {}.",
            config.mtu
        ),
        "tx checksum offload, TSO and GSO are off on both, so that every frame carries its real checksum.".to_owned(),
        format!(
            "GRO is on at {APP_DEVICE}, so that it has NAPI: without GRO or an XDP program a veth drops frames that are redirected into it. It is off at {LOAD_DEVICE}, where NAPI would only slow the sender."
        ),
        "No address is set, so there is no ARP.".to_owned(),
    ];
    let most = max_xdp_mtu();
    if config.mtu > most {
        notes.push(format!(
            "A native XDP program must take packets of several buffers (xdp.frags): the MTU is over {most}."
        ));
    }
    if has_ipv6 {
        notes.push("IPv6 is off, so that the kernel sends nothing of its own.".to_owned());
    }
    notes
}

/// One side of a lab: a network namespace with one device.
pub struct Side {
    /// The device's name.
    pub device: String,
    /// The device's MAC address.
    pub mac: [u8; 6],
    netns: OwnedFd,
    link: Device,
}

impl Side {
    fn open(netns: OwnedFd, device: &str) -> Result<Self> {
        let link = netns::run_in(netns.as_fd(), || Device::open(device))?;
        let mac = link.state()?.mac;
        Ok(Self {
            device: device.into(),
            mac,
            netns,
            link,
        })
    }

    /// The network namespace.
    pub fn netns(&self) -> BorrowedFd<'_> {
        self.netns.as_fd()
    }

    /// The device's counters: exact once no frame is in flight, see [`Counters`].
    pub fn counters(&self) -> Result<Counters> {
        Ok(self.link.counters()?)
    }

    /// The device's index in the namespace.
    pub fn index(&self) -> Result<u32> {
        Ok(self.link.index()?)
    }

    /// Starts `command` inside the namespace.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        Ok(netns::spawn(self.netns(), command)?)
    }

    fn set_offloads(&self) -> Result<()> {
        // At the load's side NAPI would only cost the application, whose CPU it runs on, some
        // 200 ns for each frame that it sends.
        self.send_whole_frames(self.device == APP_DEVICE)
    }

    /// Turns the offloads of sending off, so that frames have their checksums and no more than the
    /// MTU; with NAPI, by GRO, the device takes frames that are redirected into its peer.
    pub fn send_whole_frames(&self, napi: bool) -> Result<()> {
        netns::run_in(self.netns(), || -> Result<()> {
            for offload in [Offload::TxChecksum, Offload::Tso, Offload::Gso] {
                ethtool::set(&self.device, offload, false)?;
            }
            Ok(ethtool::set(&self.device, Offload::Gro, napi)?)
        })
    }
}

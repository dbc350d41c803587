//! A network device, as the kernel describes it.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use serde::Serialize;

use crate::rtnetlink::{Link, Rtnetlink};

/// What a device has carried since it was made.
///
/// A veth counts a frame once, where it arrives, and shows it at both ends: as received at one
/// and as sent at the other (`veth_get_stats64` in drivers/net/veth.c). Which counter of the
/// kernel it lands in depends on how it arrives, and [`Device::counters`] reads the sum:
///
/// | frame | counted |
/// |---|---|
/// | into a side with NAPI (GRO or a native XDP program) | when NAPI takes it off the queue, before any XDP program: native or generic, drop or redirect or pass |
/// | into a side without NAPI | by the sender, when it is handed over |
/// | that finds the receiver's queue of 256 full | not as a packet: `tx_dropped` of the sender, and for a redirected frame `rx_dropped` of the receiver too |
/// | that the receiver's NAPI has no memory for | as a packet, and in `rx_dropped` of the receiver |
///
/// So once nothing is under way, `rx_packets` of one side and `tx_packets` of the other are
/// equal and exact for AF_PACKET, AF_XDP in generic (SKB) and in native (DRV) mode; what an XDP
/// program or a full socket dropped is counted as received by the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Frames that were meant for this device and got lost.
    pub rx_dropped: u64,
    /// Frames that this device was to send and lost.
    pub tx_dropped: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Transmit errors.
    pub tx_errors: u64,
}

impl Counters {
    /// The counts since an `earlier` reading of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            rx_packets: self.rx_packets.wrapping_sub(earlier.rx_packets),
            tx_packets: self.tx_packets.wrapping_sub(earlier.tx_packets),
            rx_dropped: self.rx_dropped.wrapping_sub(earlier.rx_dropped),
            tx_dropped: self.tx_dropped.wrapping_sub(earlier.tx_dropped),
            rx_errors: self.rx_errors.wrapping_sub(earlier.rx_errors),
            tx_errors: self.tx_errors.wrapping_sub(earlier.tx_errors),
        }
    }
}

/// A device in a network namespace.
pub struct Device {
    name: String,
    /// One request at a time: an answer belongs to the request before it.
    route: Mutex<Rtnetlink>,
}

impl Device {
    /// The device `name` of the calling thread's network namespace. It stays that device,
    /// whatever namespace a thread that uses it is in.
    pub fn open(name: &str) -> Result<Self> {
        let device = Self {
            name: name.into(),
            route: Mutex::new(Rtnetlink::open()?),
        };
        device.state()?;
        Ok(device)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's number in its namespace.
    pub fn index(&self) -> Result<u32> {
        Ok(self.state()?.index)
    }

    /// What the device has carried so far: exact once nothing is under way, see [`Counters`].
    pub fn counters(&self) -> Result<Counters> {
        let stats = self.state()?.stats;
        Ok(Counters {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_dropped: stats.rx_dropped,
            tx_dropped: stats.tx_dropped,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
        })
    }

    /// The device as rtnetlink describes it now.
    pub fn state(&self) -> Result<Link> {
        self.with_route(|route| route.link(&self.name))
    }

    /// Sets the device up (`IFF_UP`).
    pub fn set_up(&self) -> Result<()> {
        let index = self.index()?;
        self.with_route(|route| route.set_up(index))
    }

    /// Removes the device; a veth takes its peer with it.
    pub fn delete(&self) -> Result<()> {
        let index = self.index()?;
        self.with_route(|route| route.delete(index))
    }

    fn with_route<T>(&self, work: impl FnOnce(&mut Rtnetlink) -> Result<T>) -> Result<T> {
        // A request that panicked leaves at most an answer unread, which the next one skips.
        work(&mut self.route.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

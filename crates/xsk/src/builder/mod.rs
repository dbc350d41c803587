//! Settings of a socket.

mod bind;
mod open;
mod rings;
mod sibling;

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::program::Program;
use crate::socket::{Mode, Socket};
use crate::umem::Umem;
use crate::wait::Wait;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Most slots of a ring; more would be gigabytes of chunks in flight.
const MAX_RING: u32 = 1 << 20;

/// Bytes of a link header with one VLAN tag, which the MTU does not include.
const LINK_HEADER: u32 = 18;

/// Default TX budget, where the kernel has the option. The kernel's own default needs a system call
/// for every 32 packets.
const TX_BUDGET: u32 = 256;

/// Settings of a [`Socket`]; see [`Socket::builder`] and [the guide](crate::guide).
///
/// ```no_run
/// use xsk::{Mode, Socket, Umem, Wait};
///
/// # fn main() -> xsk::Result<()> {
/// let umem = Umem::builder().chunks(8192).build()?;
/// let socket = Socket::builder(&umem, "eth0", 3)
///     .mode(Mode::Driver)
///     .rx_ring(4096)
///     .fill_ring(4096)
///     .wait(Wait::Poll)
///     .open()?;
/// assert_eq!(socket.queue(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "call `open` to get the socket"]
pub struct SocketBuilder<'u> {
    umem: &'u Umem,
    device: String,
    queue: u32,
    rx_ring: u32,
    tx_ring: u32,
    fill_ring: u32,
    completion_ring: u32,
    fill_chunks: Option<u32>,
    mode: Mode,
    need_wakeup: bool,
    tx_budget: Option<u32>,
    wait: Wait,
    source: Source,
    busy_timeout: Duration,
}

/// The origin of the XDP program or XSKMAP.
#[derive(Debug)]
enum Source {
    BuiltIn,
    Shared(Program),
    Map(OwnedFd),
}

impl<'u> SocketBuilder<'u> {
    fn new(umem: &'u Umem, device: &str, queue: u32) -> Self {
        Self {
            umem,
            device: device.to_owned(),
            queue,
            rx_ring: 2048,
            tx_ring: 2048,
            fill_ring: 2048,
            completion_ring: 2048,
            fill_chunks: None,
            mode: Mode::Auto,
            need_wakeup: true,
            tx_budget: None,
            wait: Wait::default(),
            source: Source::BuiltIn,
            busy_timeout: Duration::from_millis(500),
        }
    }

    /// Slots of the RX ring, a power of two; 0 for a socket that only sends, which needs no
    /// program. Default 2048.
    pub fn rx_ring(mut self, slots: u32) -> Self {
        self.rx_ring = slots;
        self
    }

    /// Slots of the TX ring, a power of two; 0 for a socket that only receives. Default 2048.
    pub fn tx_ring(mut self, slots: u32) -> Self {
        self.tx_ring = slots;
        self
    }

    /// Slots of the FILL ring, a power of two. Default 2048.
    pub fn fill_ring(mut self, slots: u32) -> Self {
        self.fill_ring = slots;
        self
    }

    /// Slots of the COMPLETION ring, a power of two. Default 2048.
    pub fn completion_ring(mut self, slots: u32) -> Self {
        self.completion_ring = slots;
        self
    }

    /// Chunks that the socket keeps lent for receiving, at most as many as FILL has slots. Default:
    /// the slots of FILL, but at most half of the UMEM when the socket also sends, and 0 when it
    /// only sends.
    pub fn fill_chunks(mut self, chunks: u32) -> Self {
        self.fill_chunks = Some(chunks);
        self
    }

    /// The XDP mode. Default [`Mode::Auto`]; any other is obtained or is an error. A socket that
    /// shares its UMEM with an open one is in copy or zero-copy mode as that one is.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether the kernel flags its need for a wake-up, which saves system calls
    /// (`XDP_USE_NEED_WAKEUP`). Default on. A socket that shares its UMEM with an open one has that
    /// one's setting.
    pub fn need_wakeup(mut self, on: bool) -> Self {
        self.need_wakeup = on;
        self
    }

    /// Packets that one send(2) transmits in copy mode, from 32 to the slots of the TX ring
    /// (`XDP_MAX_TX_SKB_BUDGET`). Default 256, or the slots of the TX ring if fewer. Linux before
    /// 6.17 lacks the option and transmits 32; [`Socket::refusals`] then lists
    /// [`Feature::TxBudget`](crate::Feature::TxBudget).
    pub fn tx_budget(mut self, packets: u32) -> Self {
        self.tx_budget = Some(packets);
        self
    }

    /// The way of waiting of [`Socket::wait`]. Default [`Wait::adaptive`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Uses the XDP program of a socket on another queue of the same device.
    pub fn program(mut self, program: &Program) -> Self {
        self.source = Source::Shared(program.clone());
        self
    }

    /// Inserts the socket into the caller's XSKMAP, in the slot of its queue, and attaches no XDP
    /// program. The caller's program must redirect only packets of this device and queue to that
    /// slot; the kernel drops others.
    pub fn map(mut self, map: OwnedFd) -> Self {
        self.source = Source::Map(map);
        self
    }

    /// Time to wait for a queue or device that the kernel has not yet released, because a socket was
    /// just closed or its process killed. Default 500 ms.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    fn check(&self) -> Result<()> {
        check_rings(self.rx_ring, self.tx_ring)?;
        check_ring("FILL", self.fill_ring, false)?;
        check_ring("COMPLETION", self.completion_ring, false)?;
        if let Some(budget) = self.tx_budget
            && !(32..=self.tx_ring).contains(&budget)
        {
            return Err(Error::invalid(format!(
                "a TX budget of {budget} is not possible: choose 32 to {}, the slots of the TX ring",
                self.tx_ring
            )));
        }
        Ok(())
    }

    fn check_device(&self, device: &Device) -> Result<()> {
        let Device {
            name,
            mtu,
            rx_queues,
            tx_queues,
            ..
        } = device;
        if !device.up {
            let message = format!("{name} is down: set it up with `ip link set dev {name} up`");
            return Err(Error::new(ErrorKind::DeviceDown, message));
        }
        for (ring, slots, queues) in [
            ("receive", self.rx_ring, *rx_queues),
            ("send", self.tx_ring, *tx_queues),
        ] {
            if slots > 0 && self.queue >= queues {
                let message = format!(
                    "{name} has no {ring} queue {}: it has {queues}, from 0; `ethtool -l {name}` shows them, `ethtool -L` changes their number",
                    self.queue
                );
                return Err(Error::new(ErrorKind::QueueOutOfRange, message));
            }
        }
        let most = self.umem.max_rx_packet();
        if self.rx_ring > 0 && mtu.saturating_add(LINK_HEADER) > most {
            let message = format!(
                "the MTU of {name}, {mtu}, is too large: with {LINK_HEADER} bytes of link header a packet does not fit into the {most} bytes available in a chunk of {}; use chunks of 4096 bytes or less headroom, or lower the MTU with `ip link set dev {name} mtu {}`",
                self.umem.chunk_size(),
                most - LINK_HEADER
            );
            return Err(Error::new(ErrorKind::MtuTooLarge, message));
        }
        Ok(())
    }

    fn fill_target(&self) -> u32 {
        let default = match (self.rx_ring, self.tx_ring) {
            (0, _) => 0,
            (_, 0) => self.fill_ring,
            _ => self.fill_ring.min(self.umem.chunks() / 2),
        };
        self.fill_chunks.unwrap_or(default)
    }
}

fn check_rings(rx: u32, tx: u32) -> Result<()> {
    check_ring("RX", rx, true)?;
    check_ring("TX", tx, true)?;
    if rx == 0 && tx == 0 {
        return Err(Error::invalid(
            "a socket needs an RX ring, a TX ring, or both: give one of them slots",
        ));
    }
    Ok(())
}

fn check_ring(name: &str, slots: u32, may_be_none: bool) -> Result<()> {
    if (slots == 0 && may_be_none) || (slots.is_power_of_two() && slots <= MAX_RING) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a {name} ring of {slots} slots is not possible: choose a power of two, at most {MAX_RING}"
    )))
}

impl<'u> Socket<'u> {
    /// A builder for a socket on queue `queue` of `device`, counted from 0, with its packets in
    /// `umem`.
    pub fn builder(umem: &'u Umem, device: &str, queue: u32) -> SocketBuilder<'u> {
        SocketBuilder::new(umem, device, queue)
    }
}

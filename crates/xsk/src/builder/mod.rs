//! Settings of a socket.

mod bind;
mod open;
mod rebind;
mod rings;
mod sibling;

pub(crate) use bind::is_zero_copy;
pub(crate) use rings::{map_own_rings, map_ring};

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::feature::Feature;
use crate::program::{CallersProgram, Filter, Program};
use crate::socket::{Mode, Socket};
use crate::sys::{Kernel, Linux};
use crate::umem::{HUGE_PAGE, Umem, XDP_PACKET_HEADROOM};
use crate::wait::Wait;
use hostnet::genetlink::netdev::MetadataFeatures;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Most slots of a ring; more would be gigabytes of chunks in flight.
const MAX_RING: u32 = 1 << 20;

/// Slots of FILL, unless the card's own ring is larger.
const FILL_RING: u32 = 2048;

/// Bytes of a link header with one VLAN tag, which the MTU does not include.
const LINK_HEADER: u32 = 18;

/// Default TX budget, where the kernel has the option. The kernel's own default needs a system call
/// for every 32 packets.
const TX_BUDGET: u32 = 256;

/// Settings of a [`Socket`]; see [`Socket::builder`] and [the guide](crate::guide).
///
/// A clone opens another socket with the same settings, such as the successor of one whose device is
/// gone: see [`rebind`](Self::rebind). It keeps the UMEM, and a program given to it.
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
#[derive(Debug, Clone)]
#[must_use = "call `open` to get the socket"]
pub struct SocketBuilder {
    umem: Umem,
    device: String,
    queue: u32,
    rx_ring: u32,
    tx_ring: u32,
    fill_ring: Option<u32>,
    /// Descriptors of the card's own receive ring, if it says.
    card_ring: Option<u32>,
    /// The metadata that the device's driver has.
    card_metadata: MetadataFeatures,
    /// The unit of the card's receive buffers, in bytes.
    card_buffer_unit: u32,
    rx_hints: bool,
    completion_ring: u32,
    fill_chunks: Option<u32>,
    /// Sockets that the chunks of the UMEM are for.
    sharers: u32,
    mode: Mode,
    need_wakeup: bool,
    tx_budget: Option<u32>,
    wait: Wait,
    source: Source,
    filter: Option<Filter>,
    busy_timeout: Option<Duration>,
    kernel: Arc<dyn Kernel>,
}

/// The origin of the XDP program or XSKMAP.
#[derive(Debug, Clone)]
enum Source {
    BuiltIn,
    Shared(Program),
    Callers(Arc<CallersProgram>),
    #[cfg(feature = "libxdp")]
    Dispatcher,
    Map(Arc<OwnedFd>),
    /// None of them: a model of the kernel delivers packets as it likes.
    #[cfg(any(test, xsk_internals))]
    Model,
}

impl SocketBuilder {
    fn new(umem: &Umem, device: &str, queue: u32) -> Self {
        Self {
            umem: umem.clone(),
            device: device.to_owned(),
            queue,
            rx_ring: 2048,
            tx_ring: 2048,
            fill_ring: None,
            card_ring: None,
            card_metadata: MetadataFeatures::default(),
            card_buffer_unit: 1,
            rx_hints: false,
            completion_ring: 2048,
            fill_chunks: None,
            sharers: 1,
            mode: Mode::Auto,
            need_wakeup: true,
            tx_budget: None,
            wait: Wait::default(),
            source: Source::BuiltIn,
            filter: None,
            busy_timeout: None,
            kernel: Arc::new(Linux),
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

    /// Slots of the FILL ring, a power of two. Default 2048, or twice as many as the card's receive ring
    /// (`ethtool -g`) if that is more and the UMEM has as many chunks.
    pub fn fill_ring(mut self, slots: u32) -> Self {
        self.fill_ring = Some(slots);
        self
    }

    /// Slots of the COMPLETION ring, a power of two. Default 2048.
    pub fn completion_ring(mut self, slots: u32) -> Self {
        self.completion_ring = slots;
        self
    }

    /// Chunks that the socket keeps lent for receiving, at most as many as FILL has slots. Default:
    /// the slots of FILL, but at most half of the UMEM when the socket also sends, and 0 when it
    /// only sends, or a few in zero-copy mode. In copy mode it is at most 2048.
    pub fn fill_chunks(mut self, chunks: u32) -> Self {
        self.fill_chunks = Some(chunks);
        self
    }

    /// Divides the chunks of the UMEM between this many sockets: those in the cache of each, and the
    /// default of those to receive into.
    pub(crate) fn sharers(mut self, sockets: u32) -> Self {
        self.sharers = sockets.max(1);
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

    /// The way of waiting of [`Socket::wait`]. Default [`Wait::adaptive`], which lets packets gather for up to 200 µs, and with few
    /// packets the lateness of a timer on top: where latency counts, choose [`Wait::Poll`] or [`Wait::Spin`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// The packets that the built-in XDP program redirects to the socket; the others go to the network
    /// stack. Default: all. Sockets that share the program with [`SocketBuilder::program`] share its
    /// filter.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Lets the built-in XDP program write what the driver knows of each packet in front of it: when it was
    /// received, the hash of its flow, its VLAN tag ([`Packet::hints`](crate::Packet::hints); Linux 6.3). It
    /// needs native XDP and a driver that has them; otherwise packets come without, and the reason is in
    /// [`Socket::refusals`]. Sockets that share the program share this. Default off.
    pub fn rx_hints(mut self, on: bool) -> Self {
        self.rx_hints = on;
        self
    }

    /// Uses the XDP program of a socket on another queue of the same device.
    pub fn program(mut self, program: &Program) -> Self {
        self.source = Source::Shared(program.clone());
        self
    }

    /// Checks that it is still for the queue and the UMEM that it was made for.
    pub(crate) fn check_place(&self, umem: &Umem, device: &str, queue: u32) -> Result<()> {
        let Self {
            device: other,
            queue: other_queue,
            ..
        } = self;
        let (is_other, other) = if other != device || *other_queue != queue {
            (true, format!("queue {other_queue} of {other:?}"))
        } else {
            (!self.umem.is(umem), "another UMEM".to_owned())
        };
        if is_other {
            return Err(Error::invalid(format!(
                "the settings of the socket of {device} are for {other}: return the builder that `sockets` gives, with other settings"
            )));
        }
        Ok(())
    }

    /// Uses a program that is attached already, where the socket would attach one.
    pub(crate) fn share_program(mut self, program: &Program) -> Self {
        if !matches!(self.source, Source::Shared(_) | Source::Map(_)) {
            self.source = Source::Shared(program.clone());
            self.filter = None;
        }
        self
    }

    /// Attaches the caller's loaded XDP program with a `bpf_link`, as the built-in one is attached,
    /// and inserts the socket into its XSKMAP, in the slot of its queue. The next queue's socket
    /// shares the program: see [`SocketBuilder::program`].
    ///
    /// ```no_run
    /// use std::os::fd::OwnedFd;
    /// use xsk::{Socket, Umem};
    ///
    /// # fn main() -> xsk::Result<()> {
    /// # fn load() -> (OwnedFd, OwnedFd) { unimplemented!() }
    /// let (program, map) = load(); // with libbpf or aya
    /// let umem = Umem::builder().build()?;
    /// let socket = Socket::builder(&umem, "eth0", 0).attach(program, map).open()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn attach(mut self, program: OwnedFd, map: OwnedFd) -> Self {
        self.source = Source::Callers(Arc::new(CallersProgram::new(program, map)));
        self
    }

    /// Attaches libxdp's redirect program beside other XDP programs of the device, by libxdp's dispatcher,
    /// and inserts the socket into its XSKMAP. It takes all packets of the queue. See [the
    /// guide](crate::guide::packets#beside-other-xdp-programs) for the requirements, and for the
    /// remains of a killed process.
    #[cfg(feature = "libxdp")]
    pub fn dispatcher(mut self) -> Self {
        self.source = Source::Dispatcher;
        self
    }

    /// Inserts the socket into the caller's XSKMAP, in the slot of its queue, and attaches no XDP
    /// program. The caller's program must redirect only packets of this device and queue to that
    /// slot; the kernel drops others.
    pub fn map(mut self, map: OwnedFd) -> Self {
        self.source = Source::Map(Arc::new(map));
        self
    }

    /// Time to wait for a queue or device that the kernel has not yet released, because a socket was
    /// just closed or its process killed: on an idle machine a few milliseconds. By default 2 s, and up to 30 s
    /// for a queue on which the kernel shows no socket any more (`CONFIG_XDP_SOCKETS_DIAG`): it releases queues
    /// with the RTNL locked, which others may hold for seconds.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = Some(timeout);
        self
    }

    fn check(&self) -> Result<()> {
        check_rings(self.rx_ring, self.tx_ring)?;
        check_ring("FILL", self.fill_slots(), false)?;
        check_ring("COMPLETION", self.completion_ring, false)?;
        if let Some(budget) = self.tx_budget
            && !(32..=self.tx_ring).contains(&budget)
        {
            return Err(Error::invalid(format!(
                "a TX budget of {budget} is not possible: choose 32 to {}, the slots of the TX ring",
                self.tx_ring
            )));
        }
        self.check_hints()?;
        self.check_filter()
    }

    /// Asks Linux for what the settings need.
    fn check_features(&self) -> Result<()> {
        let needed = [
            (self.umem.fragments(), Feature::Fragments, "fragments"),
            (self.umem.tx_metadata(), Feature::TxMetadata, "tx_metadata"),
        ];
        for (_, feature, setting) in needed.into_iter().filter(|(is_needed, ..)| *is_needed) {
            // What refuses a probe refuses the socket too, whose error says it.
            if let Err(missing) = feature.probe()
                && !missing.unprobed
            {
                let message = format!("{missing}; build the UMEM without `{setting}`");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        Ok(())
    }

    fn check_hints(&self) -> Result<()> {
        match self.source {
            Source::BuiltIn | Source::Shared(_) => Ok(()),
            _ if !self.rx_hints => Ok(()),
            _ => Err(Error::invalid(
                "the built-in program alone writes `rx_hints`: leave them out, or the other program",
            )),
        }
    }

    fn check_filter(&self) -> Result<()> {
        match (&self.filter, &self.source) {
            (None, _) => Ok(()),
            (Some(filter), Source::BuiltIn) => filter.check(),
            #[cfg(feature = "libxdp")]
            (Some(_), Source::Dispatcher) => Err(Error::invalid(
                "libxdp's redirect program cannot filter: leave `filter` out to take all packets, or `dispatcher` to attach the filter alone",
            )),
            (Some(_), _) => Err(Error::invalid(
                "a filter is for the built-in program of this socket: leave `filter` out, or the other program; a shared program has the filter of the socket that attached it",
            )),
        }
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
        if self.rx_ring > 0 {
            device.check_xdp()?;
        }
        if self.filter.is_some() {
            device.check_filter()?;
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
        let longest = mtu.saturating_add(LINK_HEADER);
        if self.rx_ring > 0 && longest > most {
            let build = self
                .umem
                .settings_for(longest)
                .map(|settings| format!("build the UMEM with {settings}, or "))
                .unwrap_or_default();
            let message = format!(
                "the MTU of {name}, {mtu}, is too large: with {LINK_HEADER} bytes of link header a packet does not fit into the {most} bytes that the UMEM has room for, in chunks of {}: {build}lower the MTU with `ip link set dev {name} mtu {}`",
                self.umem.chunk_size(),
                most - LINK_HEADER
            );
            return Err(Error::new(ErrorKind::MtuTooLarge, message));
        }
        Ok(())
    }

    /// Checks that a card can receive into the chunks without a copy.
    fn check_zero_copy(&self, device: &Device) -> Result<()> {
        let umem = &self.umem;
        let chunk_size = umem.chunk_size();
        if umem.unaligned() && !umem.chunks_lie_in_pages() {
            let message = format!(
                "in zero-copy mode unaligned chunks lie inside of pages, which not all of {chunk_size} bytes do: choose 2048 or 4096 bytes, or `huge_pages` and at most {} chunks",
                HUGE_PAGE / chunk_size as usize
            );
            return Err(Error::new(ErrorKind::ModeRefused, message));
        }
        let in_units = |most: u32| most - most % self.card_buffer_unit;
        let most = umem.max_rx_packet();
        let used = in_units(most);
        let longest = device.mtu.saturating_add(LINK_HEADER);
        if self.rx_ring > 0 && longest > used {
            let larger = in_units(4096 - XDP_PACKET_HEADROOM - umem.headroom());
            let chunks = if larger >= longest && chunk_size < 4096 {
                "chunks of 4096 bytes, or "
            } else {
                ""
            };
            let message = format!(
                "the card of {} receives into whole KiB, {used} bytes of the {most} available in a chunk of {chunk_size}, and drops longer packets or takes them apart: use {chunks}copy mode",
                device.name
            );
            return Err(Error::new(ErrorKind::MtuTooLarge, message));
        }
        Ok(())
    }

    /// The chunks that are for this socket.
    fn chunks(&self) -> u32 {
        self.umem.chunks() / self.sharers
    }

    /// Chunks to lend for receiving.
    fn fill_target(&self) -> u32 {
        let default = || self.fill_chunks_of(self.fill_ring.unwrap_or(FILL_RING));
        self.fill_chunks.unwrap_or_else(default)
    }

    /// Chunks to lend for receiving by default, with a FILL ring of `slots`.
    fn fill_chunks_of(&self, slots: u32) -> u32 {
        match (self.rx_ring, self.tx_ring) {
            (0, _) => 0,
            (_, 0) => slots.min(self.chunks()),
            _ => slots.min(self.chunks() / 2),
        }
    }

    /// Why the card runs dry with each burst in zero-copy mode: its own ring holds all chunks that are lent for
    /// receiving.
    fn few_chunks(&self, zero_copy: bool) -> Option<Error> {
        let card = self.card_ring.filter(|_| zero_copy)?;
        let lent = self.fill_chunks_of(self.fill_slots());
        if lent > card || self.fill_chunks.is_some() || self.fill_ring.is_some() {
            return None;
        }
        // As many again wait in FILL, and a socket that also sends lends half of all.
        let needed = if self.tx_ring > 0 { 4 * card } else { 2 * card };
        let message = format!(
            "the receive ring of the card has {card} descriptors, which take all {lent} chunks that are lent for receiving, so none waits in FILL: give the UMEM {needed} chunks for each socket, or the card a smaller ring (`ethtool -G {} rx N`)",
            self.device
        );
        Some(Error::invalid(message))
    }

    /// Slots of FILL. In zero-copy mode the chunks in the card's own ring are lent through FILL, too: as
    /// many again have to wait in it, or the card runs dry with each burst.
    fn fill_slots(&self) -> u32 {
        let card = self.card_ring.unwrap_or(0).min(MAX_RING / 2);
        let both = (2 * card).min(self.umem.chunks()).next_power_of_two();
        self.fill_ring.unwrap_or(FILL_RING.max(both))
    }
}

/// Checks the sizes of a socket's own rings.
pub(crate) fn check_rings(rx: u32, tx: u32) -> Result<()> {
    check_ring("RX", rx, true)?;
    check_ring("TX", tx, true)?;
    if rx == 0 && tx == 0 {
        return Err(Error::invalid(
            "a socket needs an RX ring, a TX ring, or both: give one of them slots",
        ));
    }
    Ok(())
}

/// Checks the size of a ring.
pub(crate) fn check_ring(name: &str, slots: u32, may_be_none: bool) -> Result<()> {
    if (slots == 0 && may_be_none) || (slots.is_power_of_two() && slots <= MAX_RING) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the {name} ring cannot have {slots} slots: choose a power of two, at most {MAX_RING}"
    )))
}

impl Socket {
    /// A builder for a socket on queue `queue` of `device`, counted from 0, with its packets in
    /// `umem`.
    pub fn builder(umem: &Umem, device: &str, queue: u32) -> SocketBuilder {
        SocketBuilder::new(umem, device, queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::ModeObtained;
    use crate::testing::driver::Driver;
    use crate::umem::Geometry;

    fn device() -> Device {
        Device::of_model("eth0", 1)
    }

    #[test]
    fn a_card_that_counts_in_kib_takes_no_whole_mtu_into_2048_bytes() {
        for (mtu, chunk_size, unit, kind) in [
            (1500, 2048, 1, None),
            (1500, 2048, 1024, Some(ErrorKind::MtuTooLarge)),
            (1006, 2048, 1024, None),
            (1007, 2048, 1024, Some(ErrorKind::MtuTooLarge)),
            (1500, 4096, 1024, None),
            (3054, 4096, 1024, None),
            (3055, 4096, 1024, Some(ErrorKind::MtuTooLarge)),
            (3055, 2048, 1024, Some(ErrorKind::MtuTooLarge)),
        ] {
            let device = Device { mtu, ..device() };
            let umem = Umem::on_heap(64, chunk_size);
            let mut builder = Socket::builder(&umem, "eth0", 0);
            builder.card_buffer_unit = unit;
            let refused = builder.check_zero_copy(&device).err();
            assert_eq!(refused.as_ref().map(Error::kind), kind);
            let has_cure = refused.map(|error| error.to_string().contains("use chunks of 4096"));
            assert_eq!(has_cure, kind.map(|_| chunk_size == 2048 && mtu < 3055));
            let sends = builder.rx_ring(0);
            assert!(
                sends.check_zero_copy(&device).is_ok(),
                "it receives nothing"
            );
        }
    }

    /// Mode Auto falls back to copy mode, but a shared UMEM has the mode of its first socket.
    #[test]
    fn a_shared_umem_is_no_way_around_that() {
        let driver = Driver::new(|_, _| Ok(()));
        let umem = Umem::on_heap(64, 2048);
        let small = |b: SocketBuilder| b.rx_ring(8).tx_ring(8).fill_ring(8);
        let first = driver.open_queue(&umem, 0, Mode::Auto, small);
        let first = first.expect("it opens");
        assert_eq!(first.mode(), ModeObtained::ZeroCopy);
        driver.force_zero_copy();
        let in_kib = |b| {
            let mut builder = small(b);
            builder.card_buffer_unit = 1024;
            builder
        };
        let refused = driver.open_queue(&umem, 1, Mode::Auto, in_kib);
        assert_eq!(refused.expect_err("2048").kind(), ErrorKind::MtuTooLarge);
    }

    #[test]
    fn zero_copy_takes_no_chunks_across_pages() {
        let device = device();
        for (chunk_size, chunks, is_taken) in [
            (3000, 64, false),
            (2049, 1, true),
            (2048, 64, true),
            (4096, 64, true),
        ] {
            let umem = Umem::of_geometry_on_heap(Geometry {
                chunks,
                chunk_size,
                headroom: 0,
                fragments: false,
                tx_metadata: false,
                unaligned: true,
            });
            let builder = Socket::builder(&umem, "eth0", 0);
            let refused = builder.check_zero_copy(&device).err();
            let kind = (!is_taken).then_some(ErrorKind::ModeRefused);
            assert_eq!(refused.map(|error| error.kind()), kind, "{chunk_size}");
        }
    }

    #[test]
    fn fill_has_room_for_the_cards_own_ring() {
        let umem = Umem::on_heap(16384, 2048);
        let mut builder = Socket::builder(&umem, "eth0", 0);
        assert_eq!(builder.fill_slots(), 2048);
        for (card, slots) in [
            (0, 2048),
            (512, 2048),
            (4096, 8192),
            (5000, 16384),
            (u32::MAX, 16384),
        ] {
            builder.card_ring = Some(card);
            assert_eq!(builder.fill_slots(), slots, "a ring of {card}");
        }
        assert_eq!(builder.fill_chunks_of(builder.fill_slots()), 8192);
        assert_eq!(builder.fill_ring(64).fill_slots(), 64, "as asked for");
    }

    /// ice has 2048 descriptors by default, as many as a socket lends of a default UMEM.
    #[test]
    fn a_umem_that_the_cards_ring_uses_up_is_told() {
        for (chunks, tx_ring, card, needed) in [
            (4096, 2048, 2048, Some("8192 chunks")),
            (8192, 2048, 2048, None),
            (4096, 0, 2048, None),
            (2048, 0, 2048, Some("4096 chunks")),
            (4096, 2048, 512, None),
        ] {
            let umem = Umem::on_heap(chunks, 2048);
            let mut builder = Socket::builder(&umem, "eth0", 0).tx_ring(tx_ring);
            builder.card_ring = Some(card);
            let told = builder.few_chunks(true).map(|error| error.to_string());
            let is_told = told.as_deref().zip(needed);
            assert_eq!(told.is_some(), needed.is_some(), "{chunks} chunks");
            assert!(is_told.is_none_or(|(text, needed)| text.contains(needed)));
            assert!(builder.few_chunks(false).is_none(), "no ring of its own");
        }
    }

    #[test]
    fn a_builder_of_another_place_is_refused() {
        let [umem, other] = [2048, 2048].map(|size| Umem::on_heap(64, size));
        for (umem_of, device, queue, named) in [
            (&umem, "eth0", 1, None),
            (&umem, "eth1", 1, Some("queue 1 of \"eth1\"")),
            (&umem, "eth0", 0, Some("queue 0 of \"eth0\"")),
            (&other, "eth0", 1, Some("another UMEM")),
        ] {
            let builder = Socket::builder(umem_of, device, queue);
            let refused = builder.check_place(&umem, "eth0", 1).err();
            assert_eq!(refused.is_some(), named.is_some(), "{device}, {queue}");
            let Some((error, named)) = refused.zip(named) else {
                continue;
            };
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn a_socket_is_opened_on_its_builders_device_only() {
        let umem = Umem::on_heap(4096, 2048);
        let device = Device::lookup("lo").expect("each namespace has it");
        let builder = Socket::builder(&umem, "other", 0);
        let error = builder.open_to_give(&device).expect_err("another device");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
}

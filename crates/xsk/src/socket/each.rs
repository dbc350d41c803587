//! Receiving and forwarding in bulk, by a closure for each packet.
#![allow(unsafe_code)] // A packet's bytes are borrowed from a chunk that is still lent.

use super::Socket;
use super::receiver::Receiver;
use super::sender::Sender;
use crate::batch::goes_on;
use crate::error::Error;
use crate::frame::Frame;
use crate::hints::RxHints;
use crate::owned_packet::OwnedPacket;
use crate::ring::{Cursor, SharedSlot};
use crate::sys::Desc;
use crate::umem::{Burst, Cache, Extent, Memory, OwnedBy, RingsId, UNALIGNED, Umem};
use crate::umem_rings::{FillRing, Outgoing, RxRing};
use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::slice;

/// Most packets whose first bytes are loaded into the CPU's caches together, before the first of them
/// is looked at: more than a CPU can wait for at once.
const BLOCK: usize = 64;

/// A received packet in the closure of [`Socket::receive_each`] or
/// [`forward_each`](Socket::forward_each), which decides where it goes.
///
/// It dereferences to the packet's bytes.
#[must_use = "decide where the packet goes: `recycle`, `keep` or `send`"]
pub struct Received<'p, const SENDS: bool = false> {
    /// Address of the first byte, in the UMEM, and number of bytes.
    addr: u64,
    len: u32,
    memory: Memory,
    umem: &'p Umem,
    id: RingsId,
    has_hints: bool,
    packet: PhantomData<Brand<'p>>,
}

/// The decision on one packet. It is made from that packet alone, and can be used for no other.
#[derive(Debug)]
#[must_use = "return it from the closure"]
pub struct Done<'p> {
    fate: Fate,
    packet: PhantomData<Brand<'p>>,
}

/// Invariant in `'p`: the closure is called with a lifetime of its own for each packet, so that the
/// decision on one cannot be returned for another.
type Brand<'p> = fn(&'p ()) -> &'p ();

#[derive(Debug)]
enum Fate {
    Recycle,
    Keep,
    /// A packet of so many bytes, at this address.
    Send(u64, u32),
}

impl<'p, const SENDS: bool> Received<'p, SENDS> {
    /// Returns the packet's chunk to FILL: the packet is dropped.
    #[inline(always)]
    pub fn recycle(self) -> Done<'p> {
        done(Fate::Recycle)
    }

    /// Takes the packet out of the ring, to hold it or to send it later.
    #[inline(always)]
    pub fn keep(self) -> (Frame, Done<'p>) {
        let extent = self.extent();
        let Some(chunk) = self.umem.received(self.addr, self.id) else {
            unreachable!("the chunk is still lent for receiving");
        };
        (Frame::new(chunk, extent), done(Fate::Keep))
    }

    /// The same with the driver's [hints](Self::hints).
    #[inline(always)]
    pub fn keep_with_hints(self) -> (OwnedPacket, Done<'p>) {
        let hints = self.hints();
        let (frame, done) = self.keep();
        (OwnedPacket::new(frame, hints), done)
    }

    /// Moves the packet's first byte, as [`Frame::adjust_head`] does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when there is no such room or
    /// byte, or no byte would be left; the packet is unchanged.
    #[inline]
    pub fn adjust_head(&mut self, delta: i32) -> Result<(), Error> {
        let mut extent = self.extent();
        extent.adjust_head(delta, self.umem.area().least_offset())?;
        self.set_extent(extent)
    }

    /// Moves the packet's end, as [`Frame::adjust_tail`] does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) when there is no such room or
    /// byte, or no byte would be left; the packet is unchanged.
    #[inline]
    pub fn adjust_tail(&mut self, delta: i32) -> Result<(), Error> {
        let mut extent = self.extent();
        extent.adjust_tail(delta, self.umem.chunk_size())?;
        self.set_extent(extent)
    }

    /// The driver's hints of the packet, as those of [`Packet::hints`](crate::Packet::hints).
    pub fn hints(&self) -> RxHints {
        if !self.has_hints {
            return RxHints::default();
        }
        let area = self.umem.area();
        // SAFETY: needed as in `deref`, which has why the packet's chunk is one of this memory and borrowed.
        unsafe { area.hints(area.chunk_start(self.addr)) }
    }

    /// Longest packet that fits behind the present headroom, in bytes.
    #[inline(always)]
    pub fn capacity(&self) -> u32 {
        self.umem.chunk_size() - self.extent().offset
    }

    /// The packet's place in its chunk.
    #[inline(always)]
    fn extent(&self) -> Extent {
        Extent {
            offset: (self.addr - self.umem.area().chunk_start(self.addr)) as u32,
            len: self.len,
        }
    }

    #[inline]
    fn set_extent(&mut self, Extent { offset, len }: Extent) -> Result<(), Error> {
        if len == 0 {
            return Err(Error::invalid(
                "a packet keeps at least one byte: recycle it",
            ));
        }
        self.addr = self.umem.area().chunk_start(self.addr) + u64::from(offset);
        self.len = len;
        Ok(())
    }
}

impl<'p> Received<'p, true> {
    /// Forwards the packet through the socket that received it, without copying.
    #[inline(always)]
    pub fn send(self) -> Done<'p> {
        done(Fate::Send(self.addr, self.len))
    }
}

#[inline(always)]
fn done<'p>(fate: Fate) -> Done<'p> {
    Done {
        fate,
        packet: PhantomData,
    }
}

impl<const SENDS: bool> Deref for Received<'_, SENDS> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: needed because the chunk has no `Chunk` yet. `OwnedBy::mark_read` checked that the packet
        // lies inside a chunk of this memory, where `set_extent` leaves it. The chunk was lent through
        // these rings, and the kernel returned it in the descriptor just read. Only the methods
        // that consume this packet lend it again or make it a `Chunk`, and no second packet of it
        // exists: the mark refuses another descriptor of the chunk in this burst.
        unsafe { slice::from_raw_parts(self.memory.at(self.addr), self.len as usize) }
    }
}

impl<const SENDS: bool> DerefMut for Received<'_, SENDS> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the packet is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.memory.at(self.addr), self.len as usize) }
    }
}

impl<const SENDS: bool> std::fmt::Debug for Received<'_, SENDS> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Received")
            .field("addr", &self.addr)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The rings in the middle of a pass. Its end publishes them, also when the closure panics. `SENDS` is known when this
/// is compiled, and whether there is an `out` is not.
struct Pass<'s, const SENDS: bool> {
    rx: &'s mut RxRing,
    out: Option<Outgoing<'s>>,
    fill: &'s mut FillRing,
    cache: &'s mut Cache,
    umem: &'s Umem,
    received: Cursor,
    recycled: Cursor,
    sent: Cursor,
    /// Descriptors in all.
    read: u32,
    burst: Burst,
    /// Of the descriptors, those of packets that were dropped unseen.
    dropped: u32,
    /// The address of the packet whose closure failed or panicked.
    undecided: Option<u64>,
}

impl<'s, const SENDS: bool> Pass<'s, SENDS> {
    #[inline(always)]
    fn new(
        rx: &'s mut RxRing,
        mut out: Option<Outgoing<'s>>,
        fill: &'s mut FillRing,
        cache: &'s mut Cache,
        umem: &'s Umem,
        max: u32,
    ) -> Self {
        // The kernel publishes RX before its index of FILL, so that slots may come late; packets for
        // which there is none wait in RX.
        let known = rx.available(max);
        let mut recycled = fill.reserve(known);
        if SENDS && let Some(out) = &mut out {
            recycled.shorten(out.tx.free(recycled.left()));
        }
        let received = if umem.area().fragments() {
            let received = rx.peek_packets(recycled.left(), goes_on);
            recycled.shorten(received.left());
            received
        } else {
            rx.take(recycled.left())
        };
        if received.left() > 0 {
            fill.start_burst();
        }
        let sent = match &mut out {
            Some(out) if SENDS => out.tx.reserve(received.left()),
            _ => Cursor::NONE,
        };
        Self {
            read: received.left(),
            burst: fill.burst(),
            undecided: None,
            rx,
            out,
            fill,
            cache,
            umem,
            received,
            recycled,
            sent,
            dropped: 0,
        }
    }

    /// Calls `each` with every packet, until it fails; returns the number of descriptors read.
    #[inline(always)]
    fn run<E, F>(mut self, each: F) -> (u32, Result<(), E>)
    where
        F: for<'p> FnMut(Received<'p, SENDS>) -> Result<Done<'p>, E>,
    {
        let ended = match self.umem.area().chunk_shift() {
            11 => self.run_sized::<11, E, F>(each),
            12 => self.run_sized::<12, E, F>(each),
            _ => self.run_sized::<UNALIGNED, E, F>(each),
        };
        if ended.is_err() {
            self.stop();
        }
        (self.read, ended)
    }

    #[inline(always)]
    fn run_sized<const SHIFT: u32, E, F>(&mut self, mut each: F) -> Result<(), E>
    where
        F: for<'p> FnMut(Received<'p, SENDS>) -> Result<Done<'p>, E>,
    {
        while self.received.left() > 0 {
            if self.recycled.left() == 0 || (SENDS && self.sent.left() == 0) {
                self.drop_rest();
                break;
            }
            let mut block = self.block::<SHIFT>();
            for packet in block.received.as_slice() {
                let addr = OwnedBy::<SHIFT>::decode(packet.addr());
                block.memory.prefetch(addr);
            }
            block.run(&mut each)?;
            let is_whole = block.received.as_slice().is_empty();
            drop(block);
            if !is_whole {
                self.drop_next();
            }
        }
        Ok(())
    }

    /// Ends the pass after the packet whose closure failed, which is recycled; those after it stay in RX.
    #[cold]
    #[inline(never)]
    fn stop(&mut self) {
        self.recycle_undecided();
        self.read -= self.received.left();
        self.rx.give_back(&mut self.received);
    }

    /// Drops the packet at whose first descriptor a block has ended. What comes after it is the next block: with a way back,
    /// the loop over a block would take two instructions more for each packet.
    #[cold]
    #[inline(never)]
    fn drop_next(&mut self) {
        let Cursor { next, end } = self.received;
        let dropped = self
            .fill
            .drop_packet(self.rx, Cursor { next, end }, self.cache);
        self.received.advance(dropped);
        self.dropped += dropped;
    }

    /// Drops the packets for which no slot is left. The last packet is taken whole, with more descriptors than there are
    /// slots, where it has several chunks and needs none; a peer may have changed them since.
    #[cold]
    #[inline(never)]
    fn drop_rest(&mut self) {
        while self.received.left() > 0 {
            self.drop_next();
        }
    }

    /// The next packets that lie next to each other in RX, as do the slots for them in the other rings.
    #[inline(always)]
    fn block<const SHIFT: u32>(&mut self) -> Block<'_, SHIFT, SENDS> {
        let received = self.rx.run(&self.received);
        let recycled = self.fill.ring().run(&self.recycled);
        let mut most = received.len().min(recycled.len()).min(BLOCK);
        let mut sent: &[_] = &[];
        if SENDS && let Some(out) = &self.out {
            sent = out.tx.run(&self.sent);
            most = most.min(sent.len());
        }
        let (id, area) = (self.fill.id(), self.umem.area());
        Block {
            received: received[..most].iter(),
            recycled: recycled[..most].iter(),
            sent: sent[..most.min(sent.len())].iter(),
            most,
            kept: 0,
            cursors: [&mut self.received, &mut self.recycled, &mut self.sent],
            burst: self.burst,
            undecided: &mut self.undecided,
            lent: area.owned_by(id.receiving()),
            memory: area.memory(),
            umem: self.umem,
            id,
            has_hints: self.fill.has_hints(),
        }
    }
}

impl<const SENDS: bool> Pass<'_, SENDS> {
    /// Recycles the packet whose closure failed or panicked, unless it was kept.
    fn recycle_undecided(&mut self) {
        // Not read from RX a second time: a peer may have changed that since.
        if let Some(addr) = self.undecided.take() {
            self.received.next();
            if self.umem.area().is_read_at(self.burst, addr) {
                self.recycle_read(addr);
            }
        }
    }

    /// Recycles the packet in whose closure a panic came, unless it was kept, and those after it.
    #[cold]
    #[inline(never)]
    fn recycle_after_panic(&mut self) {
        self.recycle_undecided();
        let (umem, burst) = (self.umem, self.burst);
        while let Some(index) = self.received.next() {
            let (addr, size) = self.rx.slot(index).packet();
            let found = umem
                .area()
                .mark_read_at(burst, addr, size.without_options());
            if let Some(addr) = found {
                self.recycle_read(addr);
            } else {
                self.fill.reject(addr, self.cache);
                self.dropped += 1;
            }
        }
    }

    /// Lends the chunk of a packet that was read for receiving again.
    fn recycle_read(&mut self, addr: u64) {
        if let Some(slot) = self.recycled.next() {
            self.fill.write_at(slot, self.umem.area().chunk_start(addr));
        } else {
            // The last packet may have more chunks than there are slots.
            let chunk = self.umem.received(addr, self.fill.id());
            self.cache.put(chunk.expect("it is lent"));
        }
    }
}

impl<const SENDS: bool> Drop for Pass<'_, SENDS> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.received.left() > 0 {
            self.recycle_after_panic();
        }
        self.rx.release();
        if SENDS && let Some(out) = &mut self.out {
            let sent = out.tx.stage(&self.sent);
            out.completion.sent(sent);
        }
        self.fill.end_pass(&self.recycled, self.read - self.dropped);
    }
}

/// A part of a pass in which all slots lie next to each other, so that none needs a mask. It has a slot
/// in each ring for every packet.
struct Block<'s, const SHIFT: u32, const SENDS: bool> {
    received: slice::Iter<'s, SharedSlot<Desc>>,
    recycled: slice::Iter<'s, SharedSlot<u64>>,
    sent: slice::Iter<'s, SharedSlot<Desc>>,
    /// Packets in all.
    most: usize,
    /// Descriptors whose chunks went neither to FILL nor to TX.
    kept: usize,
    cursors: [&'s mut Cursor; 3],
    burst: Burst,
    undecided: &'s mut Option<u64>,
    lent: OwnedBy<'s, SHIFT>,
    memory: Memory,
    umem: &'s Umem,
    id: RingsId,
    has_hints: bool,
}

impl<const SHIFT: u32, const SENDS: bool> Block<'_, SHIFT, SENDS> {
    #[inline(always)]
    fn run<E, F>(&mut self, each: &mut F) -> Result<(), E>
    where
        F: for<'p> FnMut(Received<'p, SENDS>) -> Result<Done<'p>, E>,
    {
        while let Some(slot) = self.received.as_slice().first() {
            let (addr, size) = slot.packet();
            let addr = OwnedBy::<SHIFT>::decode(addr);
            if !self.lent.mark_read(self.burst, addr, size) {
                break;
            }
            let deciding = Deciding {
                addr,
                undecided: &mut *self.undecided,
            };
            let Done { fate, .. } = each(Received {
                addr,
                len: size.len(),
                memory: self.memory,
                umem: self.umem,
                id: self.id,
                has_hints: self.has_hints,
                packet: PhantomData,
            })?;
            std::mem::forget(deciding);
            // Only now: a packet whose closure panics is recycled.
            self.received.next();
            match fate {
                Fate::Recycle => next(&mut self.recycled).write(self.lent.start(addr)),
                Fate::Keep => self.kept += 1,
                Fate::Send(addr, len) => self.forward(addr, len),
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn forward(&mut self, addr: u64, len: u32) {
        let index = self.lent.index(addr);
        // SAFETY: needed because the check would be the second. `mark_read` found the chunk of the packet,
        // which `set_extent` leaves in there.
        unsafe { self.lent.set_unchecked(index, self.id.sending()) };
        next(&mut self.sent).write_packet(addr, len);
    }
}

/// The packet of which a closure decides. It is dropped only when that fails or panics.
struct Deciding<'s> {
    addr: u64,
    undecided: &'s mut Option<u64>,
}

impl Drop for Deciding<'_> {
    #[cold]
    fn drop(&mut self) {
        *self.undecided = Some(self.addr);
    }
}

/// The slot of a block for the packet at hand.
#[inline(always)]
fn next<'s, T>(slots: &mut slice::Iter<'s, T>) -> &'s T {
    debug_assert!(!slots.as_slice().is_empty(), "a slot for each packet");
    // SAFETY: needed because the check would cost two instructions a packet. A block has as many slots
    // in each ring as packets, and uses at most one for each packet.
    unsafe { slots.next().unwrap_unchecked() }
}

impl<const SHIFT: u32, const SENDS: bool> Drop for Block<'_, SHIFT, SENDS> {
    #[inline(always)]
    fn drop(&mut self) {
        // What is not counted by its place in a ring leaves the loop a register more, and an instruction less.
        let read = self.most - self.received.len();
        let lent = read - self.kept;
        let sent = if SENDS {
            lent - (self.most - self.recycled.len())
        } else {
            0
        };
        let counts = [read, lent - sent, sent];
        for (cursor, count) in self.cursors.iter_mut().zip(counts) {
            cursor.advance(count as u32);
        }
    }
}

/// See [`Socket::receive_each`].
#[inline(always)]
pub(crate) fn receive_each<F>(
    rx: &mut RxRing,
    fill: &mut FillRing,
    cache: &mut Cache,
    umem: &Umem,
    max: u32,
    mut each: F,
) -> u32
where
    F: for<'p> FnMut(Received<'p>) -> Done<'p>,
{
    let pass = Pass::<false>::new(rx, None, fill, cache, umem, max);
    let (count, Ok(())) = pass.run(|packet| Ok::<_, Infallible>(each(packet)));
    count
}

/// See [`Socket::try_receive_each`].
#[inline(always)]
pub(crate) fn try_receive_each<E, F>(
    rx: &mut RxRing,
    fill: &mut FillRing,
    cache: &mut Cache,
    umem: &Umem,
    max: u32,
    each: F,
) -> (u32, Result<(), E>)
where
    F: for<'p> FnMut(Received<'p>) -> Result<Done<'p>, E>,
{
    Pass::<false>::new(rx, None, fill, cache, umem, max).run(each)
}

/// See [`Socket::forward_each`].
#[inline(always)]
pub(crate) fn forward_each<F>(
    rx: &mut RxRing,
    out: Outgoing<'_>,
    fill: &mut FillRing,
    cache: &mut Cache,
    umem: &Umem,
    max: u32,
    mut each: F,
) -> u32
where
    F: for<'p> FnMut(Received<'p, true>) -> Done<'p>,
{
    let pass = Pass::<true>::new(rx, Some(out), fill, cache, umem, max);
    let (count, Ok(())) = pass.run(|packet| Ok::<_, Infallible>(each(packet)));
    count
}

impl Socket {
    /// Receives up to `max` packets in bulk: calls `each` with every packet, which is then recycled or
    /// kept. Returns the number of descriptors read, which may be [fewer than are there](Self::recv). It does not wait.
    ///
    /// It does what [`recv`](Self::recv) and [`next_packet`](crate::RxBatch::next_packet) do, with
    /// fewer instructions for a packet.
    ///
    /// A panic in the closure, here and in the other methods with one, drops its packet, unless it was kept, and those of
    /// the call that come after it. All count as received, and the socket can be used on.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// # let umem = xsk::Umem::builder().build()?;
    /// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
    /// let mut bytes = 0;
    /// let packets = socket.receive_each(64, |packet| {
    ///     bytes += packet.len();
    ///     packet.recycle()
    /// });
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn receive_each<F>(&mut self, max: u32, each: F) -> u32
    where
        F: for<'p> FnMut(Received<'p>) -> Done<'p>,
    {
        self.look_after();
        let Receiver { main, fill, .. } = &mut self.receiver;
        let Some(pass) = main.count_pass() else {
            return 0;
        };
        let cache = &mut self.sender.cache;
        receive_each(pass.rx, fill, cache, &self.umem, max, each)
    }

    /// The same with a closure that can fail, or end early. Its packet is recycled then, unless it was kept, and those
    /// after it stay in RX, for the next call.
    ///
    /// ```no_run
    /// # use std::io::{self, Write};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let umem = xsk::Umem::builder().build()?;
    /// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
    /// let mut file = std::fs::File::create("packets")?;
    /// socket.try_receive_each(64, |packet| {
    ///     file.write_all(&packet)?;
    ///     Ok::<_, io::Error>(packet.recycle())
    /// })?;
    ///
    /// // The first ARP packet of those that are there.
    /// let found = socket.try_receive_each(64, |packet| {
    ///     if packet.get(12..14) == Some(&[0x08, 0x06]) {
    ///         return Err(packet.keep().0);
    ///     }
    ///     Ok(packet.recycle())
    /// });
    /// if let Err(frame) = found {
    ///     println!("{} bytes", frame.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That of the closure.
    #[inline(always)]
    pub fn try_receive_each<E, F>(&mut self, max: u32, each: F) -> Result<u32, E>
    where
        F: for<'p> FnMut(Received<'p>) -> Result<Done<'p>, E>,
    {
        self.look_after();
        let Receiver { main, fill, .. } = &mut self.receiver;
        let Some(pass) = main.count_pass() else {
            return Ok(0);
        };
        let cache = &mut self.sender.cache;
        let (count, ended) = try_receive_each(pass.rx, fill, cache, &self.umem, max, each);
        ended.map(|()| count)
    }

    /// Receives up to `max` packets in bulk, but no more than the TX ring has room for: calls `each`
    /// with every packet, which is then sent, recycled or kept. Returns the number of descriptors
    /// read; the next [`flush`](Self::flush) transmits the packets sent.
    ///
    /// While TX is full, packets stay in RX, and the kernel drops those for which RX has no room.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// # let umem = xsk::Umem::builder().build()?;
    /// # let mut socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
    /// socket.forward_each(64, |mut packet| {
    ///     let Some(macs) = packet.get_mut(..12) else {
    ///         return packet.recycle();
    ///     };
    ///     macs.rotate_left(6); // swaps the addresses
    ///     packet.send()
    /// });
    /// socket.flush()?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn forward_each<F>(&mut self, max: u32, each: F) -> u32
    where
        F: for<'p> FnMut(Received<'p, true>) -> Done<'p>,
    {
        self.look_after();
        let Receiver { main, fill, .. } = &mut self.receiver;
        let Sender {
            main: tx,
            completion,
            cache,
            ..
        } = &mut self.sender;
        let (Some(pass), Some(tx)) = (main.count_pass(), &mut tx.ring) else {
            return 0;
        };
        let out = Outgoing { tx, completion };
        forward_each(pass.rx, out, fill, cache, &self.umem, max, each)
    }

    /// The same with a closure that can fail, or end early, as that of
    /// [`try_receive_each`](Self::try_receive_each). Packets sent before are transmitted.
    ///
    /// # Errors
    ///
    /// That of the closure.
    #[inline(always)]
    pub fn try_forward_each<E, F>(&mut self, max: u32, each: F) -> Result<u32, E>
    where
        F: for<'p> FnMut(Received<'p, true>) -> Result<Done<'p>, E>,
    {
        self.look_after();
        let Receiver { main, fill, .. } = &mut self.receiver;
        let Sender {
            main: tx,
            completion,
            cache,
            ..
        } = &mut self.sender;
        let (Some(pass), Some(tx)) = (main.count_pass(), &mut tx.ring) else {
            return Ok(0);
        };
        let out = Some(Outgoing { tx, completion });
        let (count, ended) =
            Pass::<true>::new(pass.rx, out, fill, cache, &self.umem, max).run(each);
        ended.map(|()| count)
    }
}

//! The measured side: it reads or changes each packet of a burst.
#![allow(unsafe_code)] // Calls into C.

use anyhow::Result;
use weir::traffic::frame::swap_macs;
use xsk::testing::moves::Moves;

use crate::writer::{BURST, sum};

/// Who moves the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// weir's library, by `next_packet`.
    OneByOne,
    /// weir's library, by `receive_each` and `forward_each`.
    Bulk,
    /// libxdp's inline functions.
    #[cfg(libxdp)]
    Libxdp,
}

impl Engine {
    pub(crate) const ALL: &[Self] = &[
        Self::OneByOne,
        Self::Bulk,
        #[cfg(libxdp)]
        Self::Libxdp,
    ];

    /// The baseline of the ratios.
    pub(crate) fn is_baseline(self) -> bool {
        !matches!(self, Self::OneByOne | Self::Bulk)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneByOne => "one-by-one",
            Self::Bulk => "bulk",
            #[cfg(libxdp)]
            Self::Libxdp => "libxdp",
        }
    }
}

/// The work on each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// RX to FILL, after all words of the packet were added up.
    Receive,
    /// RX to TX, after its MAC addresses were swapped; COMPLETION to FILL.
    Forward,
}

impl Work {
    pub(crate) const ALL: [Self; 2] = [Self::Receive, Self::Forward];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Forward => "forward",
        }
    }
}

/// One set of rings and one memory, which all engines use in turn: so their packets have the same
/// places, on the same pages.
#[derive(Debug)]
pub(crate) struct Sides {
    moves: Moves,
}

impl Sides {
    pub(crate) fn new(moves: Moves) -> Self {
        Self { moves }
    }

    /// Runs `bursts` with an engine, from settled rings to settled rings.
    pub(crate) fn with<T>(
        &mut self,
        engine: Engine,
        bursts: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        // Completed chunks are in FILL again.
        drop(self.moves.recv(0));
        match engine {
            Engine::OneByOne | Engine::Bulk => bursts(self),
            #[cfg(libxdp)]
            Engine::Libxdp => {
                let state = libxdp::State::save(&self.moves);
                let result = bursts(self)?;
                state.restore()?;
                Ok(result)
            }
        }
    }

    /// Moves a burst in batches. Returns the sum of the words read.
    #[inline(never)]
    pub(crate) fn burst(&mut self, engine: Engine, work: Work, batch: u32) -> u64 {
        let moves = &mut self.moves;
        let mut sum = 0u64;
        for _ in 0..BURST / batch {
            sum = sum.wrapping_add(match (engine, work) {
                (Engine::OneByOne, Work::Receive) => receive(moves, batch),
                (Engine::OneByOne, Work::Forward) => forward(moves, batch),
                (Engine::Bulk, Work::Receive) => receive_each(moves, batch),
                (Engine::Bulk, Work::Forward) => forward_each(moves, batch),
                #[cfg(libxdp)]
                (Engine::Libxdp, Work::Receive) => libxdp::receive(batch),
                #[cfg(libxdp)]
                (Engine::Libxdp, Work::Forward) => libxdp::forward(batch),
            });
        }
        sum
    }
}

#[inline(never)]
fn receive(moves: &mut Moves, batch: u32) -> u64 {
    let mut total = 0u64;
    let mut packets = moves.recv(batch);
    while let Some(packet) = packets.next_packet() {
        total = total.wrapping_add(sum(&packet));
    }
    total
}

#[inline(never)]
fn receive_each(moves: &mut Moves, batch: u32) -> u64 {
    let mut total = 0u64;
    moves.receive_each(batch, |packet| {
        total = total.wrapping_add(sum(&packet));
        packet.recycle()
    });
    total
}

#[inline(never)]
fn forward(moves: &mut Moves, batch: u32) -> u64 {
    let mut packets = moves.recv(batch);
    while let Some(mut packet) = packets.next_packet() {
        swap_macs(&mut packet);
        packet.send().expect("the ring has room");
    }
    drop(packets);
    moves.publish();
    0
}

#[inline(never)]
fn forward_each(moves: &mut Moves, batch: u32) -> u64 {
    moves.forward_each(batch, |mut packet| {
        swap_macs(&mut packet);
        packet.send()
    });
    moves.publish();
    0
}

#[cfg(libxdp)]
mod libxdp {
    use super::{Moves, Result};
    use crate::words::{Rings, index, set};
    use anyhow::ensure;
    use xsk::testing::moves::SLOTS;
    use xsk_moves as _; // It links them.

    unsafe extern "C" {
        fn moves_take_over(rings: *const Rings, memory: *mut u8);
        safe fn moves_receive_sum(batch: u32) -> u64;
        safe fn moves_forward_swapped(batch: u32) -> u32;
    }

    pub(super) fn receive(batch: u32) -> u64 {
        moves_receive_sum(batch)
    }

    pub(super) fn forward(batch: u32) -> u64 {
        moves_forward_swapped(batch);
        0
    }

    /// The indices of the rings before libxdp's functions used them.
    pub(super) struct State {
        rings: Rings,
        indices: [[u32; 2]; 4],
    }

    impl State {
        /// Lets libxdp's functions go on where the library is.
        pub(super) fn save(moves: &Moves) -> Self {
            let rings = moves.words();
            // SAFETY: needed to call C. Rings are laid out as it expects; they and the memory outlive its
            // use: it is called for bursts of these sides only.
            unsafe { moves_take_over(&raw const rings, moves.memory()) };
            let indices = indices(&rings);
            Self { rings, indices }
        }

        /// The library goes on where it was. Each chunk is lent as before, so it does not see that
        /// others used the rings.
        pub(super) fn restore(self) -> Result<()> {
            // Nothing is in RX: this only moves completed chunks to FILL.
            moves_forward_swapped(SLOTS);
            let turns = indices(&self.rings);
            for (ring, (before, after)) in self.rings.iter().zip(self.indices.iter().zip(turns)) {
                for (before, after) in before.iter().zip(after) {
                    let moved = after.wrapping_sub(*before);
                    ensure!(
                        moved.is_multiple_of(SLOTS),
                        "libxdp's functions left the rings elsewhere: {moved} slots on"
                    );
                }
                set(ring.producer, before[0]);
                set(ring.consumer, before[1]);
            }
            Ok(())
        }
    }

    fn indices(rings: &Rings) -> [[u32; 2]; 4] {
        rings.map(|ring| [index(ring.producer), index(ring.consumer)])
    }
}

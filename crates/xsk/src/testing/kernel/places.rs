//! Checks that every chunk is in exactly one place.

use super::{Checked, Model, Ring, Word};
use crate::frame::Frame;
use crate::ring::Shared;
use crate::umem::{Chunk, Umem};

/// The free-running indices of a range.
fn indices<T>(from: u32, to: u32, memory: &impl Shared<T>) -> Checked<impl Iterator<Item = u32>> {
    let count = to.wrapping_sub(from);
    if count > memory.size() {
        return Err(format!("a ring from {from} to {to} is longer than it is"));
    }
    Ok((0..count).map(move |i| from.wrapping_add(i)))
}

/// The place of each chunk.
struct Places<'u> {
    umem: &'u Umem,
    of_chunk: Vec<Option<&'static str>>,
    found: u32,
}

impl<'u> Places<'u> {
    fn new(umem: &'u Umem) -> Self {
        Self {
            umem,
            of_chunk: vec![None; umem.chunks() as usize],
            found: 0,
        }
    }

    fn put(&mut self, addr: u64, place: &'static str) -> Checked<()> {
        let chunk = self.umem.chunk_start(addr) / u64::from(self.umem.chunk_size());
        let Some(known) = self.of_chunk.get_mut(chunk as usize) else {
            return Err(format!("{place} has {addr:#x}, which is outside the UMEM"));
        };
        self.found += 1;
        match known.replace(place) {
            None => Ok(()),
            Some(other) => Err(format!("chunk {chunk} is in {place} and in {other}")),
        }
    }

    /// Finds the chunks that user space has, and compares them with the owner table.
    fn put_user_space<'f>(
        &mut self,
        models: &[Model<'_>],
        held: impl IntoIterator<Item = &'f Frame<'f>>,
    ) -> Checked<()> {
        for addr in models.iter().flat_map(|model| model.umem_rings.cached()) {
            self.put(addr, "a cache")?;
        }
        for frame in held {
            self.put(frame.chunk().addr(), "a frame")?;
        }
        let held = self.found;
        // Dropping the list frees them in the same order.
        let free: Vec<Chunk<'_>> = std::iter::from_fn(|| self.umem.take_free()).collect();
        for chunk in &free {
            self.put(chunk.addr(), "the pool")?;
        }
        drop(free);
        let count = self.umem.accounting();
        same("free", count.free, self.found - held)?;
        same("held", count.held, held)?;
        let receiving = models.iter().map(|m| m.umem_rings.receiving()).sum();
        same("receiving in all", count.receiving, receiving)?;
        let sending = models.iter().map(|m| m.umem_rings.sending()).sum();
        same("sending in all", count.sending, sending)?;
        for tx in models.iter().map(|model| &model.tx) {
            if tx.staged() > tx.size() {
                return Err("TX has more packets than slots".into());
            }
        }
        let sum = count.free + count.held + count.receiving + count.sending + count.retired;
        same("chunks in all", sum, self.umem.chunks())
    }
}

/// Compares a counter with the number of chunks found.
pub(super) fn same(counter: &str, count: u32, found: u32) -> Checked<()> {
    if count == found {
        Ok(())
    } else {
        Err(format!("{counter}: counted {count}, found {found}"))
    }
}

/// Checks that every chunk of the UMEM is in exactly one place and that the counters agree. `models`
/// are all queues of the UMEM, `held` all frames.
///
/// # Errors
///
/// The first fault.
pub fn check<'f>(
    umem: &Umem,
    models: &[Model<'_>],
    held: impl IntoIterator<Item = &'f Frame<'f>>,
) -> Checked<()> {
    let mut places = Places::new(umem);
    places.put_user_space(models, held)?;
    for model in models {
        model.find_lent(&mut places)?;
    }
    match places.of_chunk.iter().position(Option::is_none) {
        None => Ok(()),
        Some(chunk) => Err(format!("chunk {chunk} is nowhere")),
    }
}

/// Checks the invariants that hold even against a hostile peer: user space has no chunk twice, and
/// the counters add up.
///
/// # Errors
///
/// The first fault.
pub fn check_user_space<'f>(
    umem: &Umem,
    models: &[Model<'_>],
    held: impl IntoIterator<Item = &'f Frame<'f>>,
) -> Checked<()> {
    Places::new(umem).put_user_space(models, held)
}

impl Model<'_> {
    /// Finds the chunks in the kernel, FILL, RX, TX and COMPLETION.
    fn find_lent(&self, places: &mut Places<'_>) -> Checked<()> {
        let before = places.found;
        let published = self.load(Ring::Fill, Word::Producer);
        for index in indices(self.kernel_fill.next(), published, &self.fill_memory)? {
            places.put(self.fill_memory.read(index), "FILL")?;
        }
        for &addr in &self.pool {
            places.put(addr, "the kernel's receive side")?;
        }
        for index in indices(self.rx.next(), self.kernel_rx.next(), &self.rx_memory)? {
            places.put(self.rx_memory.read(index).addr, "RX")?;
        }
        let receiving = places.found - before;
        same("receiving", self.umem_rings.receiving(), receiving)?;
        for index in indices(self.kernel_tx.next(), self.tx.next(), &self.tx_memory)? {
            places.put(self.tx_memory.read(index).addr, "TX")?;
        }
        for sent in &self.in_flight {
            places.put(sent.desc.addr, "the kernel's send side")?;
        }
        let reclaimed = self.load(Ring::Completion, Word::Consumer);
        let completed = self.kernel_completion.next();
        for index in indices(reclaimed, completed, &self.completion_memory)? {
            places.put(self.completion_memory.read(index), "COMPLETION")?;
        }
        let sending = places.found - before - receiving;
        same("sending", self.umem_rings.sending(), sending)
    }
}

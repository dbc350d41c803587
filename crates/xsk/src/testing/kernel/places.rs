//! Checks that every chunk is in exactly one place.

use super::queue::Queue;
use super::{Checked, Model};
use crate::frame::Frame;
use crate::ring::Shared;
use crate::testing::driver::KernelEnd;
use crate::umem::{Cache, Chunk, Umem};
use std::sync::atomic::Ordering;

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
        let chunk = self.umem.area().chunk_start(addr) / u64::from(self.umem.chunk_size());
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
        models: &[Model],
        held: impl IntoIterator<Item = &'f Frame>,
    ) -> Checked<()> {
        for addr in models
            .iter()
            .flat_map(Model::caches)
            .flat_map(Cache::addresses)
        {
            self.put(addr, "a cache")?;
        }
        for frame in held {
            self.put(frame.chunk().addr(), "a frame")?;
        }
        let held = self.found;
        // Dropping the list frees them in the same order.
        let free: Vec<Chunk> = std::iter::from_fn(|| self.umem.take_free()).collect();
        for chunk in &free {
            self.put(chunk.addr(), "the pool")?;
        }
        drop(free);
        let count = self.umem.accounting();
        same("free", count.free, self.found - held)?;
        same("held", count.held, held)?;
        for tx in models.iter().flat_map(Model::tx).flatten() {
            if tx.staged() > tx.size() {
                return Err("TX has more packets than slots".into());
            }
        }
        let sum = count.free + count.held + count.receiving + count.sending + count.retired;
        same("chunks in all", sum, self.umem.chunks())
    }
}

/// Compares the rings' counters with the owner table.
fn check_lent(umem: &Umem, models: &[Model]) -> Checked<()> {
    let count = umem.accounting();
    let sent: usize = models.iter().map(|m| m.lost.sent.len()).sum();
    let receiving: u32 = models.iter().map(|m| m.fill().lent()).sum();
    same("receiving in all", count.receiving + sent as u32, receiving)?;
    let sending: u32 = models.iter().map(|m| m.completion().lent()).sum();
    same("sending in all", count.sending, sending + sent as u32)
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
    models: &[Model],
    held: impl IntoIterator<Item = &'f Frame>,
) -> Checked<()> {
    let mut places = Places::new(umem);
    places.put_user_space(models, held)?;
    check_lent(umem, models)?;
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
    models: &[Model],
    held: impl IntoIterator<Item = &'f Frame>,
) -> Checked<()> {
    Places::new(umem).put_user_space(models, held)?;
    if models.iter().any(|model| !model.lost.sent.is_empty()) {
        return Ok(()); // A peer may complete those, which are not counted.
    }
    check_lent(umem, models)
}

impl Model {
    /// Finds the chunks in the kernel, FILL, RX, TX and COMPLETION, and those that the program lost.
    fn find_lent(&self, places: &mut Places<'_>) -> Checked<()> {
        let queue = self.queue();
        let Queue {
            fill, completion, ..
        } = &*queue;
        let before = places.found;
        if let Some(KernelEnd { end, memory }) = fill {
            let published = memory.producer().load(Ordering::Relaxed);
            for index in indices(end.next(), published, memory)? {
                places.put(memory.read(index), "FILL")?;
            }
        }
        for &addr in &queue.pool {
            places.put(addr, "the kernel's receive side")?;
        }
        for (ends, ours) in queue.sockets.iter().zip(self.rx()) {
            if let (Some(KernelEnd { end, memory }), Some(rx)) = (&ends.rx, ours) {
                for index in indices(rx.next(), end.next(), memory)? {
                    places.put(memory.read(index).addr, "RX")?;
                }
            }
        }
        for &addr in &self.lost.received {
            places.put(addr, "a forgotten packet")?;
        }
        let receiving = places.found - before + self.lost.sent.len() as u32;
        same("receiving", self.fill().lent(), receiving)?;
        let before = places.found;
        for (ends, ours) in queue.sockets.iter().zip(self.tx()) {
            if let (Some(KernelEnd { end, memory }), Some(tx)) = (&ends.tx, ours) {
                for index in indices(end.next(), tx.next(), memory)? {
                    places.put(memory.read(index).addr, "TX")?;
                }
            }
        }
        for sent in &queue.in_flight {
            places.put(sent.desc.addr, "the kernel's send side")?;
        }
        if let Some(KernelEnd { end, memory }) = completion {
            let reclaimed = memory.consumer().load(Ordering::Relaxed);
            for index in indices(reclaimed, end.next(), memory)? {
                places.put(memory.read(index), "COMPLETION")?;
            }
        }
        same("sending", self.completion().lent(), places.found - before)?;
        for &addr in &self.lost.sent {
            places.put(addr, "a packet sent through a forgotten batch")?;
        }
        Ok(())
    }
}

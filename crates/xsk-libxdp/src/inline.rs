//! The inlined functions of `xdp/xsk.h`, which libxdp exports for other languages.
//!
//! A caller owns its structure and one side of the ring; the kernel has the other side.
#![allow(unsafe_code)] // Structures of the caller's, and memory shared with the kernel.
#![allow(clippy::missing_safety_doc)] // The module's: each takes a structure that a call has filled in.

use crate::abi::Ring;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// `XDP_RING_NEED_WAKEUP`.
const NEED_WAKEUP: u32 = 1 << 0;
/// `XSK_UNALIGNED_BUF_OFFSET_SHIFT`.
const OFFSET_SHIFT: u32 = 48;

/// Entry `index` of a ring, of a type that has the ring's entries.
///
/// # Safety
///
/// `ring` must be filled in.
unsafe fn entry<T>(ring: *const Ring, index: u32) -> *mut T {
    // SAFETY: needed to read the caller's structure, as the caller promises.
    let ring = unsafe { ring.read() };
    ring.ring
        .cast::<T>()
        .wrapping_add((index & ring.mask) as usize)
}

/// An index that this process or the kernel writes.
///
/// # Safety
///
/// `index` must be that of a ring which is mapped.
unsafe fn shared<'r>(index: *mut u32) -> &'r AtomicU32 {
    // SAFETY: needed to access memory that the kernel writes too, and atomically, as the caller promises.
    unsafe { AtomicU32::from_ptr(index) }
}

/// Adds to the index that this process writes. The release makes what was done to the entries visible
/// before it, to the kernel's acquire in `xskq_cons_get_entries` or its control dependency in
/// `xskq_prod_nb_free` (`net/xdp/xsk_queue.h`).
///
/// # Safety
///
/// As that of [`shared`].
unsafe fn publish(index: *mut u32, entries: u32) {
    // SAFETY: the caller's promise.
    let index = unsafe { shared(index) };
    let next = index.load(Ordering::Relaxed).wrapping_add(entries);
    index.store(next, Ordering::Release);
}

/// Address of an entry of FILL.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_prod__fill_addr(fill: *mut Ring, index: u32) -> *mut u64 {
    // SAFETY: the caller's structure is filled in.
    unsafe { entry(fill, index) }
}

/// Address of an entry of COMPLETION.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_cons__comp_addr(completion: *const Ring, index: u32) -> *const u64 {
    // SAFETY: the caller's structure is filled in.
    unsafe { entry(completion, index) }
}

/// Address of a descriptor of TX.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_prod__tx_desc(tx: *mut Ring, index: u32) -> *mut libc::xdp_desc {
    // SAFETY: the caller's structure is filled in.
    unsafe { entry(tx, index) }
}

/// Address of a descriptor of RX.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_cons__rx_desc(rx: *const Ring, index: u32) -> *const libc::xdp_desc {
    // SAFETY: the caller's structure is filled in.
    unsafe { entry(rx, index) }
}

/// Whether the kernel asks to be woken.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_prod__needs_wakeup(ring: *const Ring) -> c_int {
    // SAFETY: needed to read the caller's structure, which is filled in.
    let ring = unsafe { ring.read() };
    // SAFETY: the ring is mapped.
    let flags = unsafe { shared(ring.flags) };
    (flags.load(Ordering::Relaxed) & NEED_WAKEUP).cast_signed()
}

/// Free entries; with less than `wanted` the kernel's index is read again.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_prod_nb_free(ring: *mut Ring, wanted: u32) -> u32 {
    // SAFETY: needed to access the caller's structure, which is filled in and nobody else's now.
    let ring = unsafe { &mut *ring };
    let free = ring.cached_cons.wrapping_sub(ring.cached_prod);
    if free >= wanted {
        return free;
    }
    // SAFETY: the ring is mapped.
    let consumer = unsafe { shared(ring.consumer) }.load(Ordering::Acquire);
    ring.cached_cons = consumer.wrapping_add(ring.size);
    ring.cached_cons.wrapping_sub(ring.cached_prod)
}

/// Entries to read, `most` at most; without any the kernel's index is read again.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_cons_nb_avail(ring: *mut Ring, most: u32) -> u32 {
    // SAFETY: needed to access the caller's structure, which is filled in and nobody else's now.
    let ring = unsafe { &mut *ring };
    if ring.cached_prod == ring.cached_cons {
        // SAFETY: the ring is mapped.
        ring.cached_prod = unsafe { shared(ring.producer) }.load(Ordering::Acquire);
    }
    ring.cached_prod.wrapping_sub(ring.cached_cons).min(most)
}

/// Takes `entries` to write, all or none, of which the first is then `index`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_prod__reserve(ring: *mut Ring, entries: u32, index: *mut u32) -> u32 {
    // SAFETY: the caller's structure is filled in.
    if unsafe { xsk_prod_nb_free(ring, entries) } < entries {
        return 0;
    }
    // SAFETY: needed to access the caller's structure, as above.
    let ring = unsafe { &mut *ring };
    // SAFETY: needed to write the caller's variable, which the header demands.
    unsafe { index.write(ring.cached_prod) };
    ring.cached_prod = ring.cached_prod.wrapping_add(entries);
    entries
}

/// Gives written entries to the kernel.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_prod__submit(ring: *mut Ring, entries: u32) {
    // SAFETY: needed to read the caller's structure, which is filled in.
    let ring = unsafe { ring.read() };
    // SAFETY: the ring is mapped.
    unsafe { publish(ring.producer, entries) };
}

/// Takes entries to read, `most` at most, of which the first is then `index`.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_cons__peek(ring: *mut Ring, most: u32, index: *mut u32) -> u32 {
    // SAFETY: the caller's structure is filled in.
    let entries = unsafe { xsk_cons_nb_avail(ring, most) };
    if entries == 0 {
        return 0;
    }
    // SAFETY: needed to access the caller's structure, as above.
    let ring = unsafe { &mut *ring };
    // SAFETY: needed to write the caller's variable, which the header demands.
    unsafe { index.write(ring.cached_cons) };
    ring.cached_cons = ring.cached_cons.wrapping_add(entries);
    entries
}

/// Leaves the last entries taken for the next time.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_cons__cancel(ring: *mut Ring, entries: u32) {
    // SAFETY: needed to access the caller's structure, which is filled in and nobody else's now.
    let ring = unsafe { &mut *ring };
    ring.cached_cons = ring.cached_cons.wrapping_sub(entries);
}

/// Gives entries that were read back to the kernel.
#[unsafe(no_mangle)]
unsafe extern "C" fn xsk_ring_cons__release(ring: *mut Ring, entries: u32) {
    // SAFETY: needed to read the caller's structure, which is filled in.
    let ring = unsafe { ring.read() };
    // SAFETY: the ring is mapped.
    unsafe { publish(ring.consumer, entries) };
}

/// The byte at an offset into the UMEM.
#[unsafe(no_mangle)]
extern "C" fn xsk_umem__get_data(area: *mut c_void, offset: u64) -> *mut c_void {
    area.wrapping_byte_add(offset as usize)
}

/// The chunk of an unaligned address.
#[unsafe(no_mangle)]
extern "C" fn xsk_umem__extract_addr(address: u64) -> u64 {
    address & ((1 << OFFSET_SHIFT) - 1)
}

/// The offset into the chunk of an unaligned address.
#[unsafe(no_mangle)]
extern "C" fn xsk_umem__extract_offset(address: u64) -> u64 {
    address >> OFFSET_SHIFT
}

/// The offset into the UMEM of an unaligned address.
#[unsafe(no_mangle)]
extern "C" fn xsk_umem__add_offset_to_addr(address: u64) -> u64 {
    xsk_umem__extract_addr(address).wrapping_add(xsk_umem__extract_offset(address))
}

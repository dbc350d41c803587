//! UMEMs.
#![allow(unsafe_code)] // C calls these, with pointers.

use crate::abi::{
    Accounting, COLLAPSE, FRAGMENTS, HUGE_PAGES, NUMA_NODE, TX_METADATA, UNALIGNED, UmemOptions,
};
use crate::fault::{Fault, Result, call};
use crate::memory::{self, Out};
use crate::object::{Memory, UMEMS, add_umem};
use std::ffi::{c_int, c_void};

/// Makes a UMEM.
///
/// # Safety
///
/// The pointers are NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_umem_create(
    options: *const UmemOptions,
    umem: *mut *mut c_void,
) -> c_int {
    // SAFETY: needed to pass C's pointers on; as the caller promises.
    unsafe { create(options, umem, true) }
}

/// Makes a UMEM whose frames are not checked, for inlined functions.
///
/// # Safety
///
/// The pointers are NULL or as the header says, and so is each use of its sockets and frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_umem_create_unchecked(
    options: *const UmemOptions,
    umem: *mut *mut c_void,
) -> c_int {
    // SAFETY: needed to pass C's pointers on; as the caller promises.
    unsafe { create(options, umem, false) }
}

/// # Safety
///
/// The pointers are NULL or as the header says.
unsafe fn create(options: *const UmemOptions, umem: *mut *mut c_void, is_checked: bool) -> c_int {
    call(|| {
        // SAFETY: needed to read C's structure; the caller promises what the header asks for.
        let options = unsafe { memory::read(options) }?;
        // SAFETY: as above, for its variable.
        let umem = unsafe { Out::new(umem, "the place for the UMEM") }?;
        let memory = Memory::new(build(&options)?, is_checked);
        umem.set(add_umem(memory)?);
        Ok(0)
    })
}

fn build(options: &UmemOptions) -> Result<xsk::Umem> {
    let flags = options.flags;
    check(options)?;
    let mut builder = xsk::Umem::builder()
        .headroom(options.headroom)
        .huge_pages(flags & HUGE_PAGES != 0)
        .collapse(flags & COLLAPSE != 0)
        .fragments(flags & FRAGMENTS != 0)
        .unaligned(flags & UNALIGNED != 0)
        .tx_metadata(flags & TX_METADATA != 0);
    if options.chunks != 0 {
        builder = builder.chunks(options.chunks);
    }
    if options.chunk_size != 0 {
        builder = builder.chunk_size(options.chunk_size);
    }
    if flags & NUMA_NODE != 0 {
        builder = builder.numa_node(options.numa_node);
    }
    Ok(builder.build()?)
}

fn check(options: &UmemOptions) -> Result<()> {
    const KNOWN: u32 = HUGE_PAGES | COLLAPSE | FRAGMENTS | UNALIGNED | NUMA_NODE | TX_METADATA;
    let &UmemOptions {
        flags,
        reserved,
        numa_node,
        ..
    } = options;
    if flags & !KNOWN != 0 || reserved != 0 {
        return Err(Fault::invalid(
            "unknown flags of a UMEM: use WEIR_XSK_HUGE_PAGES, _COLLAPSE, _FRAGMENTS, _UNALIGNED, _NUMA_NODE and _TX_METADATA, and set `reserved` to 0",
        ));
    }
    if flags & NUMA_NODE == 0 && numa_node != 0 {
        return Err(Fault::invalid(format!(
            "`numa_node` is {numa_node} without the flag WEIR_XSK_NUMA_NODE: set both or none"
        )));
    }
    Ok(())
}

/// Gives up a UMEM.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_umem_close(umem: *mut c_void) -> c_int {
    call(|| UMEMS.remove(umem).map(|_| 0))
}

/// Counts the chunks of a UMEM by owner.
///
/// # Safety
///
/// The pointer to the counters is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_umem_accounting(
    umem: *mut c_void,
    accounting: *mut Accounting,
) -> c_int {
    call(|| {
        let memory = UMEMS.get(umem)?;
        let count = memory.umem.accounting();
        let counted = Accounting {
            size: 0,
            free: count.free,
            held: count.held,
            receiving: count.receiving,
            sending: count.sending,
            retired: count.retired,
            frames: memory.frame_count(),
        };
        // SAFETY: needed to write C's structure; the caller promises what the header asks for.
        unsafe { memory::write(accounting, &counted) }?;
        Ok(0)
    })
}

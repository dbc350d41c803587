//! Structures of `xdp/xsk.h`, asserted at compile time, here and by the C compiler in the tests.

use std::ffi::c_void;
use std::mem::offset_of;

/// `struct xsk_ring_prod` and `struct xsk_ring_cons`, which are alike.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the header's names")]
pub(crate) struct Ring {
    pub(crate) cached_prod: u32,
    pub(crate) cached_cons: u32,
    pub(crate) mask: u32,
    pub(crate) size: u32,
    pub(crate) producer: *mut u32,
    pub(crate) consumer: *mut u32,
    pub(crate) ring: *mut c_void,
    pub(crate) flags: *mut u32,
}

const _: () = assert!(size_of::<Ring>() == 48);
const _: () = assert!(offset_of!(Ring, size) == 12);
const _: () = assert!(offset_of!(Ring, producer) == 16);
const _: () = assert!(offset_of!(Ring, ring) == 32);
const _: () = assert!(offset_of!(Ring, flags) == 40);

/// `struct xsk_umem_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UmemConfig {
    pub(crate) fill_size: u32,
    pub(crate) comp_size: u32,
    pub(crate) frame_size: u32,
    pub(crate) frame_headroom: u32,
    pub(crate) flags: u32,
}

const _: () = assert!(size_of::<UmemConfig>() == 20);

/// `struct xsk_socket_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SocketConfig {
    pub(crate) rx_size: u32,
    pub(crate) tx_size: u32,
    pub(crate) libxdp_flags: u32,
    pub(crate) xdp_flags: u32,
    pub(crate) bind_flags: u16,
}

const _: () = assert!(size_of::<SocketConfig>() == 20);
const _: () = assert!(offset_of!(SocketConfig, bind_flags) == 16);

/// `XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD`.
pub(crate) const INHIBIT_PROG_LOAD: u32 = 1 << 0;

/// `struct xsk_umem_opts` (libxdp 1.5), whose first member is the size that its user knows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct UmemOpts {
    pub(crate) sz: usize,
    pub(crate) fd: i32,
    pub(crate) size: u64,
    pub(crate) config: UmemConfig,
    pub(crate) tx_metadata_len: u32,
}

const _: () = assert!(size_of::<UmemOpts>() == 48);
const _: () = assert!(offset_of!(UmemOpts, size) == 16);
const _: () = assert!(offset_of!(UmemOpts, tx_metadata_len) == 44);

/// `struct xsk_socket_opts` (libxdp 1.5).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketOpts {
    pub(crate) sz: usize,
    pub(crate) rx: *mut Ring,
    pub(crate) tx: *mut Ring,
    pub(crate) fill: *mut Ring,
    pub(crate) comp: *mut Ring,
    pub(crate) config: SocketConfig,
}

const _: () = assert!(size_of::<SocketOpts>() == 64);
const _: () = assert!(offset_of!(SocketOpts, config) == 40);

/// The end of the last member of each, where what this version does not know begins.
pub(crate) const UMEM_OPTS_END: usize = offset_of!(UmemOpts, tx_metadata_len) + 4;
pub(crate) const SOCKET_OPTS_END: usize =
    offset_of!(SocketOpts, config) + offset_of!(SocketConfig, bind_flags) + 2;

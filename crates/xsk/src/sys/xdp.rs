//! AF_XDP sockets (`include/uapi/linux/if_xdp.h`): the descriptor, and options that rustix lacks.
#![allow(unsafe_code)] // setsockopt(2) and getsockopt(2).

use super::kernel::Registration;
use super::{SysResult, last_errno};
use rustix::net::sockopt;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `struct xdp_desc` (`include/uapi/linux/if_xdp.h`): one packet in the RX or TX ring.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Desc {
    /// Offset into the UMEM, in bytes.
    pub(crate) addr: u64,
    /// Length of the packet, in bytes.
    pub(crate) len: u32,
    /// `XDP_PKT_CONTD` and `XDP_TX_METADATA`; 0 for a packet in one buffer.
    pub(crate) options: u32,
}

/// The packet goes on in the next descriptor.
pub(crate) const XDP_PKT_CONTD: u32 = 1;
/// The packet has metadata in front of it (6.8).
pub(crate) const XDP_TX_METADATA: u32 = 2;
/// The registration has a length of the metadata (6.11).
const XDP_UMEM_TX_METADATA_LEN: XdpUmemRegFlags = XdpUmemRegFlags::from_bits_retain(4);

const _: () = {
    assert!(XDP_PKT_CONTD == libc::XDP_PKT_CONTD);
    assert!(size_of::<Desc>() == size_of::<libc::xdp_desc>());
    assert!(align_of::<Desc>() == align_of::<libc::xdp_desc>());
    assert!(offset_of!(Desc, addr) == offset_of!(libc::xdp_desc, addr));
    assert!(offset_of!(Desc, len) == offset_of!(libc::xdp_desc, len));
    assert!(offset_of!(Desc, options) == offset_of!(libc::xdp_desc, options));
};

/// Bytes of `struct xsk_tx_metadata` (`include/uapi/linux/if_xdp.h`), in front of each packet that is sent
/// from a UMEM with [TX metadata](crate::UmemBuilder::tx_metadata).
pub const TX_METADATA_LEN: u32 = 24;

/// Registers memory as the UMEM of a socket.
pub(crate) fn register(fd: BorrowedFd<'_>, memory: &Registration) -> SysResult<()> {
    let mut flags = XdpUmemRegFlags::empty();
    flags.set(
        XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
        memory.unaligned,
    );
    // Without the flag the kernel ignores the length.
    let has_metadata = memory.tx_metadata_len > 0;
    flags.set(XDP_UMEM_TX_METADATA_LEN, has_metadata);
    let umem = XdpUmemReg {
        addr: memory.addr,
        len: memory.len,
        chunk_size: memory.chunk_size,
        headroom: memory.headroom,
        flags,
        tx_metadata_len: memory.tx_metadata_len,
    };
    sockopt::set_xdp_umem_reg(fd, umem)
}

/// Opens an AF_XDP socket with nothing set up.
pub(crate) fn open_socket() -> SysResult<OwnedFd> {
    socket_with(
        AddressFamily::XDP,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sets `XDP_MAX_TX_SKB_BUDGET` (6.17): descriptors that one copy-mode send may handle.
pub(crate) fn set_tx_budget(fd: BorrowedFd<'_>, budget: u32) -> SysResult<()> {
    const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
    set_option(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, budget)
}

/// Sets `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` (5.11), and `SO_BUSY_POLL`, in microseconds.
pub(crate) fn set_busy_poll(fd: BorrowedFd<'_>, microseconds: u32, budget: u32) -> SysResult<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, budget)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)
}

/// The NAPI instance that last received a packet for the socket (`SO_INCOMING_NAPI_ID`); 0 for none.
pub(crate) fn napi_id(fd: BorrowedFd<'_>) -> SysResult<u32> {
    socket_option(fd, libc::SO_INCOMING_NAPI_ID).map(u32::from_ne_bytes)
}

/// The number of a socket's network namespace, which no other ever has (`SO_NETNS_COOKIE`, Linux 5.14).
pub(crate) fn netns_cookie(fd: BorrowedFd<'_>) -> SysResult<u64> {
    socket_option(fd, libc::SO_NETNS_COOKIE).map(u64::from_ne_bytes)
}

fn socket_option<const LEN: usize>(
    fd: BorrowedFd<'_>,
    option: libc::c_int,
) -> SysResult<[u8; LEN]> {
    let mut value = [0; LEN];
    let mut len = LEN as libc::socklen_t;
    // SAFETY: needed because rustix has no wrapper. The pointers are those of locals that outlive the
    // call, which writes at most `len` bytes to the array, its size.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(value)
    } else {
        Err(last_errno())
    }
}

fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: u32,
) -> SysResult<()> {
    // SAFETY: needed because rustix has no wrapper. The pointer and length are those of a local
    // that outlives the call, which only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

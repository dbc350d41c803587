//! The calls that sockets make, behind two traits: Linux answers them, or a model in memory.
//!
//! All that opening, flushing, waiting, draining and closing ask of the kernel goes through here, so
//! that a model can give every answer at every step. The data path makes no call.

use super::{Mapping, SysResult};
use rustix::event::PollFlags;
use rustix::net::xdp::SocketAddrXdpFlags;
use std::fmt::{self, Debug};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time, and sleeping.
pub(crate) trait Clock: Debug + Send + Sync {
    /// The time now.
    fn now(&self) -> Instant;
    /// Sleeps, for at least `time`.
    fn sleep(&self, time: Duration);
}

/// The kernel.
pub(crate) trait Kernel: Clock {
    /// Opens an AF_XDP socket with nothing set up. Its drop is close(2).
    fn socket(&self) -> SysResult<Arc<dyn KernelSocket>>;
    /// Bytes that this process may lock into memory; none without a limit.
    fn memory_lock_limit(&self) -> Option<u64>;
    /// The network namespace of this thread; none when it cannot be told from others.
    fn namespace(&self) -> Option<u64>;
    /// The owner of a receive queue, of a device in this thread's namespace.
    fn queue_owner(&self, ifindex: u32, queue: u32) -> QueueOwner;
    /// Whether a socket is bound to a queue of a device in this thread's namespace; none when the kernel lists no sockets.
    /// One that is closed is gone from the list before its queue is free.
    fn has_socket(&self, ifindex: u32, queue: u32) -> Option<bool>;
    /// Waits until all that ran in the kernel when it was called, and may have looked a socket up in
    /// an XSKMAP, has ended.
    fn wait_for_readers(&self) -> SysResult<()>;
    /// Deletes the entry in a slot of an XSKMAP.
    fn remove_from_map(&self, map: BorrowedFd<'_>, slot: u32) -> SysResult<()>;
}

/// An AF_XDP socket of the kernel.
pub(crate) trait KernelSocket: Clock {
    /// Registers memory as the UMEM (`XDP_UMEM_REG`).
    fn register(&self, memory: &Registration) -> SysResult<()>;
    /// Makes a ring, of a power of two of slots.
    fn make_ring(&self, ring: RingKind, slots: u32) -> SysResult<()>;
    /// The layout of a ring; `None` when the kernel's rings have no flags.
    fn ring_layout(&self, ring: RingKind) -> SysResult<Option<Offsets>>;
    /// Maps a ring of `len` bytes.
    fn map_ring(&self, ring: RingKind, len: usize) -> SysResult<Arc<Mapping>>;
    /// Sets the number of descriptors that one copy-mode [`send`](Self::send) may handle.
    fn set_tx_budget(&self, packets: u32) -> SysResult<()>;
    /// Prefers busy polling, for so many microseconds in a call that may sleep, and so many packets at once.
    fn set_busy_poll(&self, microseconds: u32, budget: u32) -> SysResult<()>;
    /// The NAPI instance that last received a packet for the socket; 0 for none.
    fn napi_id(&self) -> SysResult<u32>;
    /// Whether the kernel has published its index of TX when [`send`](Self::send) returns, also with an
    /// error, in copy mode. Asked for at the end of a socket.
    fn publishes_taken_packets(&self) -> bool;
    /// Binds to a queue, with the registration of `lender` for a shared UMEM.
    fn bind(&self, to: Address, lender: Option<&dyn KernelSocket>) -> SysResult<()>;
    /// Whether the bound socket is in zero-copy mode.
    fn is_zero_copy(&self) -> SysResult<bool>;
    /// Puts the socket into a slot of an XSKMAP, replacing the former entry.
    fn insert_into_map(&self, map: BorrowedFd<'_>, slot: u32) -> SysResult<()>;
    /// Wakes the kernel to read TX. In copy mode the call transmits.
    fn send(&self) -> SysResult<()>;
    /// Wakes the kernel to read FILL.
    fn recv(&self) -> SysResult<()>;
    /// Sleeps until one of the events, a signal, or the end of the time.
    fn poll(&self, events: PollFlags, timeout: Duration) -> SysResult<()>;
    /// Whether the device of a zero-copy socket is there and set up. Its driver reports a reset, or that
    /// it has no carrier, as if it were down.
    fn device_is_up(&self) -> bool;
    /// The kernel's counters.
    fn statistics(&self) -> SysResult<KernelCounters>;
    /// The descriptor, which no other code gets; none in a model.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// An epoll descriptor in which the socket is registered; none in a model.
    fn pollable(&self) -> Option<BorrowedFd<'_>>;
    /// Sets the events at which [`pollable`](Self::pollable) is readable.
    fn watch(&self, events: PollFlags) -> SysResult<()>;
}

/// One of a socket's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingKind {
    Fill,
    Completion,
    Rx,
    Tx,
}

impl fmt::Display for RingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fill => "FILL",
            Self::Completion => "COMPLETION",
            Self::Rx => "RX",
            Self::Tx => "TX",
        })
    }
}

/// Where the parts of a ring lie inside its mapping, in bytes (`struct xdp_ring_offset`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offsets {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) slots: usize,
}

/// The owner of a device's queue, as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueOwner {
    /// An AF_XDP socket.
    Socket,
    /// No AF_XDP socket. An older kernel says so of every queue.
    Stack,
    /// The device is gone, and all that its driver did.
    NoDevice,
    Unknown,
}

/// Memory to register (`struct xdp_umem_reg`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registration {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) chunk_size: u32,
    pub(crate) headroom: u32,
    /// Bytes of metadata in front of each packet sent.
    pub(crate) tx_metadata_len: u32,
    /// Whether chunks may have any size.
    pub(crate) unaligned: bool,
}

/// A device queue to bind to, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) flags: SocketAddrXdpFlags,
    pub(crate) ifindex: u32,
    pub(crate) queue: u32,
}

/// `struct xdp_statistics`. Counters that the kernel lacks are 0.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KernelCounters {
    pub(crate) rx_dropped: u64,
    pub(crate) rx_ring_full: u64,
    pub(crate) fill_ring_empty: u64,
    pub(crate) tx_invalid_descs: u64,
    pub(crate) tx_ring_empty: u64,
}

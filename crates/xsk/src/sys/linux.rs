//! Linux, as sockets call it.

use super::kernel::{
    Address, Clock, Kernel, KernelCounters, KernelSocket, Offsets, QueueOwner, Registration,
    RingKind,
};
use super::link::Link;
use super::xdp::{napi_id, netns_cookie, open_socket, register, set_busy_poll, set_tx_budget};
use super::{Mapping, SysResult, xskmap_insert, xskmap_remove};
use hostnet::genetlink::netdev::queue_has_xsk;
use hostnet::sock_diag::xdp_diag::xdp_sockets;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags,
};
use rustix::net::{RecvFlags, SendFlags, sockopt};
use rustix::thread::{MembarrierCommand, membarrier};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The smallest budget that the kernel takes (`TX_BATCH_SIZE` in `net/xdp/xsk.c`).
const LEAST_BUDGET: u32 = 32;

/// The kernel that this process runs on.
#[derive(Debug)]
pub(crate) struct Linux;

impl Clock for Linux {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

impl Kernel for Linux {
    fn socket(&self) -> SysResult<Arc<dyn KernelSocket>> {
        Ok(Arc::new(LinuxSocket::new(open_socket()?)?))
    }

    fn memory_lock_limit(&self) -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::Memlock).current
    }

    fn namespace(&self) -> Option<u64> {
        let namespace = rustix::fs::stat("/proc/thread-self/ns/net").ok()?;
        Some(namespace.st_ino)
    }

    fn queue_owner(&self, ifindex: u32, queue: u32) -> QueueOwner {
        match queue_has_xsk(ifindex, queue) {
            Ok(true) => QueueOwner::Socket,
            Ok(false) => QueueOwner::Stack,
            Err(error) if error.errno() == Some(libc::ENODEV) => QueueOwner::NoDevice,
            Err(_) => QueueOwner::Unknown,
        }
    }

    fn has_socket(&self, ifindex: u32, queue: u32) -> Option<bool> {
        let sockets = xdp_sockets().ok()??;
        let mut bound = sockets.iter().map(|socket| (socket.device, socket.queue));
        Some(bound.any(|to| to == (ifindex, queue)))
    }

    fn wait_for_readers(&self) -> SysResult<()> {
        // `synchronize_rcu` (`kernel/sched/membarrier.c`): drivers look sockets up, and write the
        // packet, in one section that it waits for. Refused on a kernel with full dynticks.
        membarrier(MembarrierCommand::Global)
    }

    fn remove_from_map(&self, map: BorrowedFd<'_>, slot: u32) -> SysResult<()> {
        xskmap_remove(map, slot)
    }
}

impl Linux {
    /// A socket that another process has opened, and bound to this device.
    pub(crate) fn existing(socket: OwnedFd, ifindex: u32) -> SysResult<Arc<dyn KernelSocket>> {
        let socket = LinuxSocket::new(socket)?;
        // Only in its own network namespace can the device be asked for.
        if let Ok(link) = Link::new(ifindex)
            && let Ok(here) = netns_cookie(link.socket())
            && netns_cookie(socket.fd.as_fd()) == Ok(here)
        {
            socket.note_device(link);
        }
        Ok(Arc::new(socket))
    }
}

/// An AF_XDP socket.
///
/// Its descriptor is never lent: a duplicate would keep the kernel's socket open after the close,
/// and whoever put it into an XSKMAP would let the kernel write to chunks that others own. An event
/// loop gets an epoll descriptor in its place, which holds no reference to the socket.
#[derive(Debug)]
struct LinuxSocket {
    fd: OwnedFd,
    epoll: OwnedFd,
    /// The events at which `epoll` is readable; none before somebody polls it: the kernel would call
    /// each watcher for every packet that it has sent.
    watched: AtomicU32,
    /// The device, when bound to it in zero-copy mode, and it is in a namespace that can be asked.
    link: OnceLock<Link>,
}

impl LinuxSocket {
    fn new(fd: OwnedFd) -> SysResult<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            fd,
            epoll,
            watched: AtomicU32::new(NOT_ADDED),
            link: OnceLock::new(),
        })
    }

    /// Notes the device that it is bound to.
    fn note_device(&self, link: Link) {
        if self.is_zero_copy().unwrap_or(false) {
            // It is bound once.
            let _ = self.link.set(link);
        }
    }
}

/// No events that can be watched: the socket is not in its epoll instance yet.
const NOT_ADDED: u32 = u32::MAX;

/// The only socket in its epoll instance needs no number there.
const NO_DATA: epoll::EventData = epoll::EventData::new_u64(0);

/// The events of poll(2), as epoll(7) has them.
fn event_flags(events: PollFlags) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, events.contains(PollFlags::IN));
    flags.set(epoll::EventFlags::OUT, events.contains(PollFlags::OUT));
    flags
}

impl Drop for LinuxSocket {
    fn drop(&mut self) {
        // Before the close: while somebody polls a duplicate of the epoll descriptor, the kernel
        // holds the socket. This call waits for them. An error does not matter: then it was not
        // registered.
        let _ = epoll::delete(&self.epoll, &self.fd);
    }
}

impl Clock for LinuxSocket {
    fn now(&self) -> Instant {
        Linux.now()
    }

    fn sleep(&self, time: Duration) {
        Linux.sleep(time);
    }
}

impl KernelSocket for LinuxSocket {
    fn register(&self, memory: &Registration) -> SysResult<()> {
        register(self.fd.as_fd(), memory)
    }

    fn make_ring(&self, ring: RingKind, slots: u32) -> SysResult<()> {
        match ring {
            RingKind::Fill => sockopt::set_xdp_umem_fill_ring_size(&self.fd, slots),
            RingKind::Completion => sockopt::set_xdp_umem_completion_ring_size(&self.fd, slots),
            RingKind::Rx => sockopt::set_xdp_rx_ring_size(&self.fd, slots),
            RingKind::Tx => sockopt::set_xdp_tx_ring_size(&self.fd, slots),
        }
    }

    fn ring_layout(&self, ring: RingKind) -> SysResult<Option<Offsets>> {
        let all = sockopt::xdp_mmap_offsets(&self.fd)?;
        let of = match ring {
            RingKind::Fill => all.fr,
            RingKind::Completion => all.cr,
            RingKind::Rx => all.rx,
            RingKind::Tx => all.tx,
        };
        Ok(of.flags.map(|flags| Offsets {
            producer: of.producer as usize,
            consumer: of.consumer as usize,
            flags: flags as usize,
            slots: of.desc as usize,
        }))
    }

    fn map_ring(&self, ring: RingKind, len: usize) -> SysResult<Arc<Mapping>> {
        let page_offset = match ring {
            RingKind::Fill => XDP_UMEM_PGOFF_FILL_RING,
            RingKind::Completion => XDP_UMEM_PGOFF_COMPLETION_RING,
            RingKind::Rx => XDP_PGOFF_RX_RING,
            RingKind::Tx => XDP_PGOFF_TX_RING,
        };
        Mapping::ring(self.fd.as_fd(), page_offset, len).map(Arc::new)
    }

    fn set_tx_budget(&self, packets: u32) -> SysResult<()> {
        set_tx_budget(self.fd.as_fd(), packets)
    }

    fn set_busy_poll(&self, microseconds: u32, budget: u32) -> SysResult<()> {
        set_busy_poll(self.fd.as_fd(), microseconds, budget)
    }

    fn napi_id(&self) -> SysResult<u32> {
        napi_id(self.fd.as_fd())
    }

    fn publishes_taken_packets(&self) -> bool {
        // Linux 6.17 brought both.
        self.set_tx_budget(LEAST_BUDGET) != Err(Errno::NOPROTOOPT)
    }

    fn bind(&self, to: Address, lender: Option<&dyn KernelSocket>) -> SysResult<()> {
        let addr = SocketAddrXdp::new(to.flags, to.ifindex, to.queue);
        if to.flags.contains(SocketAddrXdpFlags::XDP_SHARED_UMEM) {
            let shared_umem_fd = lender.and_then(KernelSocket::fd).ok_or(Errno::BADF)?;
            let addr = SocketAddrXdpWithSharedUmem {
                addr,
                shared_umem_fd,
            };
            rustix::net::bind(&self.fd, &addr)?;
        } else {
            rustix::net::bind(&self.fd, &addr)?;
        }
        if let Ok(link) = Link::new(to.ifindex) {
            self.note_device(link);
        }
        Ok(())
    }

    fn device_is_up(&self) -> bool {
        // One that cannot be asked counts as up: then the socket waits, where it could end.
        self.link.get().is_none_or(|link| link.is_up() == Ok(true))
    }

    fn is_zero_copy(&self) -> SysResult<bool> {
        let options = sockopt::xdp_options(&self.fd)?;
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    fn insert_into_map(&self, map: BorrowedFd<'_>, slot: u32) -> SysResult<()> {
        xskmap_insert(map, slot, self.fd.as_fd())
    }

    fn send(&self) -> SysResult<()> {
        rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT).map(drop)
    }

    fn recv(&self) -> SysResult<()> {
        let mut nothing = [0_u8; 0];
        rustix::net::recv(&self.fd, &mut nothing[..], RecvFlags::DONTWAIT).map(drop)
    }

    fn poll(&self, events: PollFlags, timeout: Duration) -> SysResult<()> {
        let mut fds = [PollFd::new(&self.fd, events)];
        let timeout = Timespec::try_from(timeout).ok();
        rustix::event::poll(&mut fds, timeout.as_ref()).map(drop)
    }

    fn statistics(&self) -> SysResult<KernelCounters> {
        let kernel = sockopt::xdp_statistics(&self.fd)?;
        Ok(KernelCounters {
            rx_dropped: kernel.rx_dropped,
            rx_ring_full: kernel.rx_ring_full.unwrap_or(0),
            fill_ring_empty: kernel.rx_fill_ring_empty_descs.unwrap_or(0),
            tx_invalid_descs: kernel.tx_invalid_descs,
            tx_ring_empty: kernel.tx_ring_empty_descs.unwrap_or(0),
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        if self.watched.load(Relaxed) == NOT_ADDED {
            // An error shows when the socket is watched again, which event loops do before each sleep.
            let _ = self.watch(PollFlags::IN);
        }
        Some(self.epoll.as_fd())
    }

    fn watch(&self, events: PollFlags) -> SysResult<()> {
        let events = event_flags(events);
        let watched = self.watched.load(Relaxed);
        if watched == NOT_ADDED {
            epoll::add(&self.epoll, &self.fd, NO_DATA, events)?;
        } else if watched != events.bits() {
            epoll::modify(&self.epoll, &self.fd, NO_DATA, events)?;
        }
        // Only now: after a failure the next call tries again.
        self.watched.store(events.bits(), Relaxed);
        Ok(())
    }
}

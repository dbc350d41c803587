//! UMEMs, and the rings of the queues that use them.

use crate::abi::UmemConfig;
use crate::ring::{Kind, Mapped, RingAt};
use crate::sys::namespace_cookie;
use rustix::io::Errno;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// libxdp's defaults (`XSK_RING_*__DEFAULT_NUM_DESCS`, `XSK_UMEM__DEFAULT_FRAME_SIZE`).
pub(crate) const DEFAULT_RING: u32 = 2048;
const DEFAULT_FRAME: u32 = 4096;

/// Opens a socket that programs started by this one inherit, as libxdp's are.
pub(crate) fn open_socket() -> Result<OwnedFd, Errno> {
    socket(AddressFamily::XDP, SocketType::RAW, None)
}

/// A value, or libxdp's default for 0.
pub(crate) fn or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

/// The FILL and the COMPLETION ring of the caller's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) fill: RingAt,
    pub(crate) completion: RingAt,
}

/// The memory to register.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) tx_metadata_len: u32,
}

/// Memory shared with the kernel (`struct xsk_umem`).
#[derive(Debug)]
pub(crate) struct Umem {
    fd: OwnedFd,
    config: UmemConfig,
    sockets: AtomicU32,
    state: Mutex<State>,
}

/// What the creation of sockets changes; they are created one after another.
#[derive(Debug)]
pub(crate) struct State {
    /// The rings made with the UMEM, until there is a socket.
    pub(crate) first: Option<(Pair, Arc<Rings>)>,
    queues: Vec<Weak<Queue>>,
    /// The sizes of the rings that the UMEM's own socket has, also after a failed bind.
    pub(crate) rx_size: Option<u32>,
    pub(crate) tx_size: Option<u32>,
}

/// The rings of one queue of a device, unmapped with the last socket on it.
#[derive(Debug)]
pub(crate) struct Rings {
    fill: Mapped,
    completion: Mapped,
}

/// A queue of a device with its rings (`struct xsk_ctx`).
#[derive(Debug)]
pub(crate) struct Queue {
    key: Key,
    _rings: Arc<Rings>,
    /// The socket that receives by libxdp's map.
    receiver: Mutex<Option<RawFd>>,
}

/// A queue of a device of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    namespace: u64,
    ifindex: u32,
    queue: u32,
}

impl Umem {
    /// Registers memory with `socket`, which is closed on failure, or with a new one.
    pub(crate) fn create(
        socket: Option<OwnedFd>,
        memory: Memory,
        config: UmemConfig,
        pair: Pair,
    ) -> Result<Arc<Self>, Errno> {
        let fd = socket.map_or_else(open_socket, Ok)?;
        let config = UmemConfig {
            fill_size: or(config.fill_size, DEFAULT_RING),
            comp_size: or(config.comp_size, DEFAULT_RING),
            frame_size: or(config.frame_size, DEFAULT_FRAME),
            ..config
        };
        let registration = XdpUmemReg {
            addr: memory.addr,
            len: memory.len,
            chunk_size: config.frame_size,
            headroom: config.frame_headroom,
            flags: XdpUmemRegFlags::from_bits_retain(config.flags),
            tx_metadata_len: memory.tx_metadata_len,
        };
        sockopt::set_xdp_umem_reg(&fd, registration)?;
        let rings = Rings::make(fd.as_fd(), &config, pair)?;
        Ok(Arc::new(Self {
            fd,
            config,
            sockets: AtomicU32::new(0),
            state: Mutex::new(State {
                first: Some((pair, Arc::new(rings))),
                queues: Vec::new(),
                rx_size: None,
                tx_size: None,
            }),
        }))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether it has sockets.
    pub(crate) fn is_used(&self) -> bool {
        self.sockets.load(Ordering::SeqCst) > 0
    }

    /// Its state, for the creation of one socket.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a socket.
    pub(crate) fn join(self: &Arc<Self>) -> Member {
        let others = self.sockets.fetch_add(1, Ordering::SeqCst);
        Member {
            umem: Arc::clone(self),
            is_alone: others == 0,
        }
    }
}

/// A socket's part in a UMEM, given back on drop.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) umem: Arc<Umem>,
    /// The UMEM had no other socket when this one came.
    pub(crate) is_alone: bool,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.umem.sockets.fetch_sub(1, Ordering::SeqCst);
    }
}

impl State {
    /// The queue to bind `socket` to, with its rings: those of its other sockets, those made with the UMEM,
    /// or new ones, to which `pair` then points.
    pub(crate) fn queue(
        &mut self,
        umem: &Umem,
        socket: BorrowedFd<'_>,
        (ifindex, queue): (u32, u32),
        pair: Option<Pair>,
    ) -> Result<Arc<Queue>, Errno> {
        let key = Key {
            namespace: namespace_cookie(socket)?,
            ifindex,
            queue,
        };
        let known = self.queues.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.into_iter().find(|known| known.key == key) {
            return Ok(known);
        }
        let pair = pair.ok_or(Errno::FAULT)?;
        let rings = match &self.first {
            Some((first, rings)) => {
                pair.fill.copy_from(first.fill);
                pair.completion.copy_from(first.completion);
                Arc::clone(rings)
            }
            // libxdp has one error for all that can go wrong here.
            None => Rings::make(socket, &umem.config, pair)
                .map(Arc::new)
                .map_err(|_| Errno::NOMEM)?,
        };
        let queue = Arc::new(Queue {
            key,
            _rings: rings,
            receiver: Mutex::new(None),
        });
        self.queues.retain(|known| known.strong_count() > 0);
        self.queues.push(Arc::downgrade(&queue));
        Ok(queue)
    }
}

impl Rings {
    /// Makes both rings on a socket, and points the caller's structures to them.
    fn make(socket: BorrowedFd<'_>, config: &UmemConfig, pair: Pair) -> Result<Self, Errno> {
        let (fill, comp) = (config.fill_size, config.comp_size);
        sockopt::set_xdp_umem_fill_ring_size(socket, fill)?;
        sockopt::set_xdp_umem_completion_ring_size(socket, comp)?;
        let rings = Self {
            fill: Mapped::new(socket, Kind::Fill, fill)?,
            completion: Mapped::new(socket, Kind::Completion, comp)?,
        };
        pair.fill.produce(&rings.fill);
        pair.completion.consume(&rings.completion);
        Ok(rings)
    }
}

impl Queue {
    pub(crate) fn ifindex(&self) -> u32 {
        self.key.ifindex
    }

    pub(crate) fn number(&self) -> u32 {
        self.key.queue
    }

    /// The socket in libxdp's map.
    pub(crate) fn receiver(&self) -> MutexGuard<'_, Option<RawFd>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

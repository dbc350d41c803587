//! Sockets, and the redirect program on their device.

use crate::abi::{INHIBIT_PROG_LOAD, SocketConfig};
use crate::ring::{Kind, Mapped, RingAt};
use crate::umem::{DEFAULT_RING, Member, Pair, Queue, State, Umem, open_socket, or};
use rustix::io::Errno;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use xsk::compat::{self, Sharing, attach_or_share};
use xsk::{AttachMode, Device, Program};

/// `XDP_FLAGS_*_MODE` (`include/uapi/linux/if_link.h`).
const SKB_MODE: u32 = 1 << 1;
const DRV_MODE: u32 = 1 << 2;
const HW_MODE: u32 = 1 << 3;

/// `XDP_USE_SG` (`include/uapi/linux/if_xdp.h`).
const USE_SG: u16 = 1 << 4;

/// The caller's structures and settings for a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) rx: Option<RingAt>,
    pub(crate) tx: Option<RingAt>,
    /// For a queue that has no rings yet; without them the UMEM's own.
    pub(crate) pair: Option<Pair>,
    pub(crate) config: SocketConfig,
}

/// An AF_XDP socket (`struct xsk_socket`). What it has is given back in this order.
#[derive(Debug)]
pub(crate) struct Socket {
    _redirection: Option<Redirection>,
    _rings: RxTx,
    queue: Arc<Queue>,
    /// Of its own; the first of a UMEM has the UMEM's.
    fd: Option<OwnedFd>,
    member: Member,
}

/// The RX and TX rings of a socket.
#[derive(Debug)]
struct RxTx {
    rx: Option<Mapped>,
    tx: Option<Mapped>,
}

/// The program on a device, and the entry in its map.
#[derive(Debug)]
struct Redirection {
    program: Program,
    queue: Arc<Queue>,
    receiver: Option<i32>,
}

impl Socket {
    /// Binds a socket to a queue of a device. On failure nothing of it is left, but for rings that the UMEM's
    /// own socket has got: the next one uses them.
    pub(crate) fn create(
        umem: &Arc<Umem>,
        device: &str,
        queue: u32,
        settings: &Settings,
    ) -> Result<Self, Errno> {
        let config = settings.config;
        if config.libxdp_flags & !INHIBIT_PROG_LOAD != 0 {
            return Err(Errno::INVAL);
        }
        let (ifindex, device) = named(device)?;
        let mut state = umem.lock();
        let member = umem.join();
        let fd = if member.is_alone {
            None
        } else {
            Some(open_socket()?)
        };
        let socket = fd.as_ref().map_or(umem.fd(), AsFd::as_fd);
        let pair = settings
            .pair
            .or(state.first.as_ref().map(|(pair, _)| *pair));
        let queue = state.queue(umem, socket, (ifindex, queue), pair)?;
        let rings = RxTx::make(&mut state, socket, fd.is_none(), settings)?;
        bind_to(socket, &queue, &member, config.bind_flags)?;
        let redirection = if config.libxdp_flags & INHIBIT_PROG_LOAD == 0 {
            let receiver = settings.rx.map(|_| socket);
            Some(Redirection::new(&device, &queue, receiver, &config)?)
        } else {
            None
        };
        state.first = None;
        drop(state);
        Ok(Self {
            _redirection: redirection,
            _rings: rings,
            queue,
            fd,
            member,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        let own = self.fd.as_ref();
        own.map_or(self.member.umem.fd(), AsFd::as_fd)
    }

    /// Inserts it into a map of the caller's.
    pub(crate) fn insert_into(&self, map: BorrowedFd<'_>) -> Result<(), Errno> {
        compat::insert(map, self.queue.number(), self.fd()).map_err(|error| errno(&error))
    }
}

/// The index and the name of a device, which may be called by an alternative name: of a short one an ioctl has the
/// index, for a long one it has no room.
fn named(device: &str) -> Result<(u32, String), Errno> {
    if device.len() > 15 {
        let found = Device::lookup(device).map_err(|_| Errno::NODEV)?;
        return Ok((found.index, found.name));
    }
    Ok((name_to_index(any_socket()?, device)?, device.to_owned()))
}

/// A socket to ask for devices by.
fn any_socket() -> Result<OwnedFd, Errno> {
    socket(AddressFamily::UNIX, SocketType::DGRAM, None)
}

fn bind_to(
    socket: BorrowedFd<'_>,
    queue: &Queue,
    member: &Member,
    flags: u16,
) -> Result<(), Errno> {
    let to = |flags| SocketAddrXdp::new(flags, queue.ifindex(), queue.number());
    if member.is_alone {
        return bind(socket, &to(SocketAddrXdpFlags::from_bits_retain(flags)));
    }
    let address = SocketAddrXdpWithSharedUmem {
        addr: to(SocketAddrXdpFlags::XDP_SHARED_UMEM),
        shared_umem_fd: member.umem.fd(),
    };
    bind(socket, &address)
}

impl RxTx {
    /// Makes the rings that the caller asks for, unless the UMEM's socket has them, and points the caller's
    /// structures to them.
    fn make(
        state: &mut State,
        socket: BorrowedFd<'_>,
        is_umems: bool,
        settings: &Settings,
    ) -> Result<Self, Errno> {
        let config = settings.config;
        let rx_size = or(config.rx_size, DEFAULT_RING);
        let tx_size = or(config.tx_size, DEFAULT_RING);
        let mut own = (None, None);
        let (rx_made, tx_made) = if is_umems {
            (&mut state.rx_size, &mut state.tx_size)
        } else {
            (&mut own.0, &mut own.1)
        };
        if settings.rx.is_some() {
            let make = || sockopt::set_xdp_rx_ring_size(socket, rx_size);
            make_once(rx_made, rx_size, make)?;
        }
        if settings.tx.is_some() {
            let make = || sockopt::set_xdp_tx_ring_size(socket, tx_size);
            make_once(tx_made, tx_size, make)?;
        }
        let mut rings = Self { rx: None, tx: None };
        if let Some(rx) = settings.rx {
            rx.consume(rings.rx.insert(Mapped::new(socket, Kind::Rx, rx_size)?));
        }
        if let Some(tx) = settings.tx {
            tx.produce(rings.tx.insert(Mapped::new(socket, Kind::Tx, tx_size)?));
        }
        Ok(rings)
    }
}

/// Makes a ring, unless there is one of that size already: the kernel changes none.
fn make_once(
    known: &mut Option<u32>,
    size: u32,
    make: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match *known {
        Some(before) if before == size => Ok(()),
        Some(_) => Err(Errno::INVAL),
        None => {
            make()?;
            *known = Some(size);
            Ok(())
        }
    }
}

impl Redirection {
    /// Attaches the program, or holds the one that is there, and inserts `receiver`, if there is one, into
    /// its map.
    fn new(
        device: &str,
        queue: &Arc<Queue>,
        receiver: Option<BorrowedFd<'_>>,
        config: &SocketConfig,
    ) -> Result<Self, Errno> {
        // libxdp's program takes single buffers alone: its users with this flag bring one of their own.
        let fragments = config.bind_flags & USE_SG != 0;
        let program = attach(device, mode(config.xdp_flags)?, Sharing::Held { fragments })?;
        let mut redirection = Self {
            program,
            queue: Arc::clone(queue),
            receiver: None,
        };
        if let Some(socket) = receiver {
            let mut known = queue.receiver();
            compat::insert(redirection.program.map(), queue.number(), socket)
                .map_err(|error| errno(&error))?;
            redirection.receiver = Some(socket.as_raw_fd());
            *known = redirection.receiver;
        }
        Ok(redirection)
    }
}

impl Drop for Redirection {
    fn drop(&mut self) {
        let mut known = self.queue.receiver();
        // Another socket of the queue may have its place.
        if self.receiver.is_some() && *known == self.receiver {
            *known = None;
            // An error does not matter: the kernel deletes a closed socket's entry.
            let _ = compat::remove(self.program.map(), self.queue.number());
        }
    }
}

/// The mode that libxdp reads from flags: native without any.
fn mode(xdp_flags: u32) -> Result<AttachMode, Errno> {
    if xdp_flags & SKB_MODE != 0 {
        Ok(AttachMode::Skb)
    } else if xdp_flags & (DRV_MODE | HW_MODE) == HW_MODE {
        // No card runs a program with an XSKMAP.
        Err(Errno::OPNOTSUPP)
    } else {
        Ok(AttachMode::Driver)
    }
}

fn attach(device: &str, mode: AttachMode, sharing: Sharing) -> Result<Program, Errno> {
    attach_or_share(device, mode, sharing).map_err(|error| {
        // libxdp says there what the number does not. Nobody may read it.
        let _ = writeln!(std::io::stderr(), "libxdp (weir): {error}");
        Errno::from_raw_os_error(compat::errno(&error))
    })
}

/// Attaches the program without a socket, to stay; returns its map.
pub(crate) fn set_up_program(ifindex: u32) -> Result<OwnedFd, Errno> {
    let device = any_socket().and_then(|socket| index_to_name(socket, ifindex));
    let device = device.map_err(|_| Errno::INVAL)?;
    let program = attach(&device, AttachMode::Driver, Sharing::Lasting)?;
    let map = program.map().try_clone_to_owned();
    let map = map.map_err(|error| errno(&error))?;
    // Another's program would end with its sockets: then this process holds it as long as it lives.
    std::mem::forget(program);
    Ok(map)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

//! A socket of another process continues here.
#![allow(unsafe_code)] // The caller vouches for the memory of the parts and for their description.

use super::Parts;
use super::message::Description;
use crate::builder::{is_zero_copy, map_own_rings, map_ring};
use crate::error::{Error, ErrorKind, Result};
use crate::program::{Program, Takes};
use crate::ring::{Consumer, Producer};
use crate::socket::{
    Binding, Bound, Descriptors, ModeObtained, Receiver, RingSizes, RxEnd, Sender, Socket, State,
    TxEnd, XskmapEntry, check_map,
};
use crate::sys::{Kernel, KernelSocket, Linux, RingKind};
use crate::umem::{Cache, DeviceQueue, Geometry, Place, Umem};
use crate::umem_rings::{
    CompletionRing, CompletionSlots, FillRing, FillSlots, RxRing, TxRing, cache_size,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

impl Socket {
    /// Makes a socket of the parts of one that another process had. It needs no privilege.
    ///
    /// It continues where that one stopped, with the same settings, but its counters begin at 0, and
    /// [`refusals`](Self::refusals) are not repeated. [`umem`](Self::umem) is its UMEM.
    ///
    /// # Safety
    ///
    /// Packets are borrowed from the memory, as `&[u8]` and `&mut [u8]`. So until the UMEM is dropped:
    ///
    /// - no one else reads or writes the memory, by a mapping or by any descriptor of its file that was
    ///   duplicated before;
    /// - the parts are those that [`into_parts`](Self::into_parts) returned, unaltered, and no other
    ///   socket has been made of them, in this process or in another: they say which chunks are free.
    ///
    /// This process cannot check either: receive parts from processes only that are trusted to keep both, for
    /// example from one of root's.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Foreign`] for descriptors of another kind than the description says, and for parts
    /// that this process has made a socket of already; [`ErrorKind::DeviceMissing`] when the device is
    /// gone; [`ErrorKind::InvalidConfig`] for impossible values in the rings.
    pub unsafe fn from_parts(parts: Parts) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { take_over(parts) }.map_err(|error| error.context("taking a socket over"))
    }
}

/// The four rings of a socket.
struct Rings {
    rx: Option<RxRing>,
    tx: Option<TxRing>,
    fill: FillSlots,
    completion: CompletionSlots,
}

/// # Safety
///
/// As for [`Socket::from_parts`].
unsafe fn take_over(parts: Parts) -> Result<Socket> {
    let Parts {
        descriptors,
        description,
    } = parts;
    let Descriptors {
        socket,
        memory,
        map,
        link,
    } = descriptors;
    let Description {
        geometry,
        mut state,
        program,
        ticket,
    } = description;
    check_domain(socket.as_fd())?;
    let socket = Linux::existing(socket, state.queue.ifindex).map_err(|errno| {
        let message = "watching the socket for event loops";
        Error::os(ErrorKind::Os, errno, message)
    })?;
    let mode = check_socket(&*socket, &state)?;
    let kernel: Arc<dyn Kernel> = Arc::new(Linux);
    let (mut entry, mut attached) = (None, None);
    if let Some(map) = map {
        check_slot(map.as_fd(), state.queue)?;
        if let Some((link, mode)) = link.zip(program) {
            let takes = Takes::of_another(geometry.fragments, state.rx_hints);
            let (map, ifindex) = (duplicate(&map)?, state.queue.ifindex);
            attached = Some(Program::take_over(link, map, mode, ifindex, takes)?);
        }
        // The chunks of a socket taken over are not freed at its end, whether the entry is deleted or not.
        let left_in_map = Arc::default();
        let (queue, program) = (state.queue.queue, attached.clone());
        let existing = || XskmapEntry::existing(&kernel, map, queue, program, &left_in_map);
        entry = (state.rings.rx > 0).then(existing);
    }
    let rings = map_rings(&*socket, state.rings)?;
    mark_lent(&rings, geometry, &mut state.places)?;
    let places = &state.places;
    // SAFETY: the caller's promise, and `mark_lent` can only turn free places into lent ones.
    let lease = unsafe { Umem::take_over(memory, geometry, places, state.queue, ticket) }?;

    let (umem, id) = (lease.umem().clone(), lease.id());
    let lent = |place| {
        let places = state.places.iter();
        places.filter(|&&is| is == place).count() as u32
    };
    let fill = FillRing::new(&umem, id, state.queue.queue, rings.fill, state.fill_chunks);
    let mut fill = fill.with_lent(lent(Place::Receiving));
    fill.set_hints(state.rx_hints);
    fill.set_zero_copy(mode == ModeObtained::ZeroCopy);
    let completion = CompletionRing::new(&umem, id, rings.completion);
    let mut completion = completion.with_lent(lent(Place::Sending));
    completion.set_support(state.tx_support);
    let slots = state.rings.rx.max(state.rings.tx);
    let cache = Cache::new(&umem, cache_size(umem.chunks(), slots));

    let binding = Binding {
        mode,
        refusals: Vec::new(),
        program: attached.filter(|_| mode == ModeObtained::ZeroCopy),
    };
    let bound = Arc::new(Bound::new(&kernel, &socket, lease, binding));
    let rx_end = RxEnd::new(&socket, rings.rx, state.rings.rx, state.wait);
    let tx_end = TxEnd::new(
        &socket,
        rings.tx,
        state.wait,
        mode == ModeObtained::ZeroCopy,
    );
    let receiver = Receiver::new(entry, rx_end, fill, Arc::clone(&bound));
    let sender = Sender::new(tx_end, completion, cache, bound);
    Ok(Socket::assemble(receiver, sender))
}

fn check_domain(fd: BorrowedFd<'_>) -> Result<()> {
    if sockopt::socket_domain(fd) == Ok(AddressFamily::XDP) {
        return Ok(());
    }
    let message =
        "the socket handed over is not an AF_XDP socket: pass the descriptors in their order";
    Err(Error::new(ErrorKind::Foreign, message))
}

/// Checks that a socket is bound; returns its mode.
fn check_socket(socket: &dyn KernelSocket, state: &State) -> Result<ModeObtained> {
    // Waking the kernel fails for a socket that is not bound to a device.
    let woken = if state.rings.rx > 0 {
        socket.recv()
    } else {
        socket.send()
    };
    // Other errors are those of a device that is down or busy, which may recover.
    if let Err(errno @ (Errno::NXIO | Errno::NODEV)) = woken {
        let message = "the socket is not bound, or its device is gone: open another";
        return Err(Error::os(ErrorKind::DeviceMissing, errno, message));
    }
    if is_zero_copy(socket)? != (state.mode == ModeObtained::ZeroCopy) {
        let message = format!(
            "the description says mode {}, and the kernel another",
            state.mode
        );
        return Err(Error::new(ErrorKind::Foreign, message));
    }
    Ok(state.mode)
}

/// Checks that a map is an XSKMAP with a slot for the queue.
fn check_slot(map: BorrowedFd<'_>, queue: DeviceQueue) -> Result<()> {
    match check_map(map, queue.queue) {
        // Kernels before 5.19 may tell an unprivileged process nothing.
        Err(error) if error.errno() != Some(libc::EPERM) => Err(error),
        _ => Ok(()),
    }
}

fn duplicate(map: &OwnedFd) -> Result<OwnedFd> {
    map.try_clone()
        .map_err(|_| Error::new(ErrorKind::Os, "duplicating the XSKMAP's descriptor"))
}

fn map_rings(socket: &dyn KernelSocket, sizes: RingSizes) -> Result<Rings> {
    let (rx, tx) = map_own_rings(socket, sizes.rx, sizes.tx)?;
    let fill = map_ring(socket, RingKind::Fill, sizes.fill)?;
    let completion = map_ring(socket, RingKind::Completion, sizes.completion)?;
    Ok(Rings {
        rx,
        tx,
        fill: Producer::new(fill),
        completion: Consumer::new(completion),
    })
}

/// Checks the indices of the rings. Chunks that the kernel will take from FILL or TX are lent, also
/// if the description says that they are free. Entries of RX and COMPLETION are checked when they are
/// read.
fn mark_lent(rings: &Rings, geometry: Geometry, places: &mut [Place]) -> Result<()> {
    let index = |addr: u64| geometry.index(addr);
    let fill = filled(RingKind::Fill, rings.fill.filled())?.map(index);
    mark(RingKind::Fill, fill, Place::Receiving, places)?;
    let _ = filled(RingKind::Completion, rings.completion.filled())?;
    if let Some(rx) = &rings.rx {
        let _ = filled(RingKind::Rx, rx.filled())?;
    }
    if let Some(tx) = &rings.tx {
        let tx = filled(RingKind::Tx, tx.filled())?.map(|desc| index(desc.addr));
        mark(RingKind::Tx, tx, Place::Sending, places)?;
    }
    Ok(())
}

fn filled<I>(ring: RingKind, slots: Option<I>) -> Result<I> {
    slots.ok_or_else(|| {
        Error::invalid(format!(
            "the indices of the {ring} ring are further apart than its slots: the description has another size"
        ))
    })
}

fn mark(
    ring: RingKind,
    indices: impl Iterator<Item = u64>,
    lent: Place,
    places: &mut [Place],
) -> Result<()> {
    for index in indices {
        let at = usize::try_from(index).ok();
        let place = at.and_then(|at| places.get_mut(at)).ok_or_else(|| {
            Error::invalid(format!(
                "the {ring} ring has chunk {index}, which is outside the UMEM"
            ))
        })?;
        if matches!(place, Place::Free | Place::Retired) {
            *place = lent;
        }
    }
    Ok(())
}

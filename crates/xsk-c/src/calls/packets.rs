//! Receiving, forwarding and sending by a callback for each packet.
#![allow(unsafe_code)] // C calls these, and they call C.

use crate::abi::{self, Each, KEEP, RECYCLE, SEND, Write};
use crate::fault::{Fault, Result, call};
use crate::object::{Memory, Opened, poison, with};
use crate::table::{Reserved, adjust, moves, show};
use std::ffi::{c_int, c_void};
use xsk::{Done, Received};

impl Opened {
    pub(super) fn check_receives(&self) -> Result<()> {
        if self.receives {
            return Ok(());
        }
        Err(Fault::new(
            libc::EOPNOTSUPP,
            "the socket has no RX ring: open it without WEIR_XSK_NONE in `rx_ring`",
        ))
    }

    pub(super) fn check_sends(&self) -> Result<()> {
        if self.sends {
            return Ok(());
        }
        Err(Fault::new(
            libc::EOPNOTSUPP,
            "the socket has no TX ring: open it without WEIR_XSK_NONE in `tx_ring`",
        ))
    }
}

fn no_callback() -> Fault {
    Fault::new(libc::EFAULT, "the callback is NULL")
}

/// Receives packets, and asks a callback about each.
///
/// # Safety
///
/// The callback is NULL or as the header says, and may be called with this context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_receive_each(
    socket: *mut c_void,
    max: u32,
    each: Option<Each>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let each = each.ok_or_else(no_callback)?;
        with(socket, |opened| {
            opened.check_receives()?;
            if opened.memory.umem.unaligned() {
                receive::<true>(opened, max, each, context)
            } else {
                receive::<false>(opened, max, each, context)
            }
        })
    })
}

fn receive<const UNALIGNED: bool>(
    Opened { socket, memory, .. }: &mut Opened,
    max: u32,
    each: Each,
    context: *mut c_void,
) -> Result<u32> {
    let mut asking = Asking::<UNALIGNED>::new(memory, max, each, context);
    socket.receive_each(max, |mut packet| match asking.ask(&mut packet) {
        RECYCLE => recycle(packet),
        KEEP => asking.keep(packet),
        verdict => asking.refuse(packet, wrong_verdict::<false>(verdict)),
    });
    asking.end()
}

/// The same, and the packets can be sent.
///
/// # Safety
///
/// Same as [`weir_xsk_receive_each`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_forward_each(
    socket: *mut c_void,
    max: u32,
    each: Option<Each>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let each = each.ok_or_else(no_callback)?;
        with(socket, |opened| {
            opened.check_receives()?;
            opened.check_sends()?;
            if opened.memory.umem.unaligned() {
                forward::<true>(opened, max, each, context)
            } else {
                forward::<false>(opened, max, each, context)
            }
        })
    })
}

fn forward<const UNALIGNED: bool>(
    Opened { socket, memory, .. }: &mut Opened,
    max: u32,
    each: Each,
    context: *mut c_void,
) -> Result<u32> {
    let mut asking = Asking::<UNALIGNED>::new(memory, max, each, context);
    socket.forward_each(max, |mut packet| match asking.ask(&mut packet) {
        SEND if asking.is_as_shown(&packet) => packet.send(),
        RECYCLE => recycle(packet),
        verdict => asking.do_otherwise(packet, verdict),
    });
    asking.end()
}

#[inline(always)]
fn recycle<const SENDS: bool>(mut packet: Received<'_, SENDS>) -> Done<'_> {
    poison(&mut packet);
    packet.recycle()
}

#[cold]
#[inline(never)]
fn wrong_verdict<const SENDS: bool>(verdict: c_int) -> Fault {
    let or_send = if SENDS { ", WEIR_XSK_SEND" } else { "" };
    Fault::invalid(format!(
        "the callback returned {verdict}: return WEIR_XSK_RECYCLE{or_send} or WEIR_XSK_KEEP; the packet was recycled"
    ))
}

/// The error of a callback of the inlined functions: of one that received, forwarded, or wrote.
#[unsafe(no_mangle)]
pub extern "C" fn weir_xsk_refuse_callback(verdict: c_int) -> c_int {
    call(|| {
        Err(match verdict {
            RECYCLE => Fault::invalid(
                "the callback returned no verdict: return WEIR_XSK_RECYCLE or WEIR_XSK_KEEP; the packet was recycled",
            ),
            SEND => Fault::invalid(
                "the callback returned no verdict: return WEIR_XSK_RECYCLE, WEIR_XSK_SEND or WEIR_XSK_KEEP; the packet was recycled",
            ),
            _ => Fault::new(
                libc::EMSGSIZE,
                "the callback returned more bytes than there is room for",
            ),
        })
    })
}

/// Asks a callback about packets. Whether chunks are unaligned is a constant, as to ask for each packet would cost
/// seven instructions and more.
struct Asking<'m, const UNALIGNED: bool> {
    memory: &'m Memory,
    each: Each,
    context: *mut c_void,
    chunk_size: u32,
    /// The serial number before that of the first packet.
    before: u64,
    /// The slot of the next packet that is kept, and the serial number of the packet at hand.
    reserved: Reserved,
    /// The packet at hand, as the callback sees it and leaves it.
    shown: abi::Frame,
    /// The last error.
    fault: Option<Fault>,
}

impl<'m, const UNALIGNED: bool> Asking<'m, UNALIGNED> {
    fn new(memory: &'m Memory, max: u32, each: Each, context: *mut c_void) -> Self {
        let chunk_size = memory.umem.chunk_size();
        // One more than the packets: each of them counts it up first.
        let reserved = memory.frames().reserve(max.saturating_add(1));
        Self {
            memory,
            each,
            context,
            chunk_size,
            before: reserved.handle[1],
            reserved,
            shown: show(std::ptr::null_mut(), 0, 0, reserved.handle),
            fault: None,
        }
    }

    /// The callback's verdict.
    #[inline(always)]
    fn ask<const SENDS: bool>(&mut self, packet: &mut Received<'_, SENDS>) -> c_int {
        self.reserved.handle[1] += 1;
        let (data, len) = (packet.as_mut_ptr(), packet.len() as u32);
        let room = if UNALIGNED {
            packet.capacity()
        } else {
            // The memory of a UMEM is aligned to pages, and so its chunks to their size.
            self.chunk_size - (data.addr() as u32 & (self.chunk_size - 1))
        };
        self.shown = show(data, len, room, self.reserved.handle);
        // SAFETY: needed to call C. The caller promised that it may be called with this context. The
        // packet's bytes are borrowed meanwhile, as is the frame.
        unsafe { (self.each)(&raw mut self.shown, self.context) }
    }

    /// Whether the callback left the place of the packet as it was.
    #[inline(always)]
    fn is_as_shown<const SENDS: bool>(&self, packet: &Received<'_, SENDS>) -> bool {
        std::ptr::eq(self.shown.data, packet.as_ptr()) && self.shown.len as usize == packet.len()
    }

    /// Keeps the packet.
    #[inline(always)]
    fn keep<'p, const SENDS: bool>(&mut self, packet: Received<'p, SENDS>) -> Done<'p> {
        let (frame, done) = packet.keep();
        self.add(frame);
        done
    }

    /// Gives a frame the handle that the callback saw.
    #[inline(never)]
    fn add(&mut self, frame: xsk::Frame) {
        let mut frames = self.memory.frames();
        frames.fill(self.reserved, frame);
        // The serial numbers stay, for the packets to come.
        self.reserved.handle[0] = frames.reserve(0).handle[0];
    }

    /// All but recycling a packet and sending it as it is; apart, so that the loop over packets is short
    /// enough to be inlined.
    #[inline(never)]
    fn do_otherwise<'p>(&mut self, packet: Received<'p, true>, verdict: c_int) -> Done<'p> {
        match verdict {
            SEND => self.move_and_send(packet),
            KEEP => self.keep(packet),
            _ => self.refuse(packet, wrong_verdict::<true>(verdict)),
        }
    }

    /// Sends the packet from where the callback has moved it.
    fn move_and_send<'p>(&mut self, mut packet: Received<'p, true>) -> Done<'p> {
        let moved = moves(packet.as_ptr(), packet.len() as u32, &self.shown).and_then(|moves| {
            let (head, tail) = (Received::adjust_head, Received::adjust_tail);
            adjust(&mut packet, moves, head, tail)
        });
        match moved {
            Ok(()) => packet.send(),
            Err(fault) => self.refuse(packet, fault),
        }
    }

    #[inline(always)]
    fn refuse<'p, const SENDS: bool>(
        &mut self,
        packet: Received<'p, SENDS>,
        fault: Fault,
    ) -> Done<'p> {
        self.note(fault);
        recycle(packet)
    }

    #[cold]
    #[inline(never)]
    fn note(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// The packets that the callback was asked about. Descriptors without a packet are none.
    fn end(mut self) -> Result<u32> {
        let asked = (self.reserved.handle[1] - self.before) as u32;
        self.fault.take().map_or(Ok(asked), Err)
    }
}

impl<const UNALIGNED: bool> Drop for Asking<'_, UNALIGNED> {
    fn drop(&mut self) {
        self.memory.frames().cancel(self.reserved);
    }
}

/// Sends packets that a callback writes.
///
/// # Safety
///
/// The callback is NULL or as the header says, and may be called with this context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_xsk_send_each(
    socket: *mut c_void,
    max: u32,
    write: Option<Write>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let write = write.ok_or_else(no_callback)?;
        with(socket, |opened| {
            opened.check_sends()?;
            let mut too_long = None;
            let note = &mut too_long;
            // By value: through references, each packet would take two loads more.
            let count = opened.socket.send_each(max, move |room| {
                // SAFETY: needed to call C. The caller promised that it may be called with this
                // context; the room is borrowed meanwhile.
                let len = unsafe { write(room.as_mut_ptr(), room.len() as u32, context) } as usize;
                if len > room.len() {
                    *note = Some((len, room.len()));
                    return 0;
                }
                len
            });
            match too_long {
                None => Ok(count),
                Some((len, room)) => Err(Fault::new(
                    libc::EMSGSIZE,
                    format!("the callback returned {len}, with room for {room} bytes"),
                )),
            }
        })
    })
}

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
            let Opened { socket, memory, .. } = opened;
            let mut asking = Asking::new(memory, max, each, context);
            let count = socket.receive_each(max, |mut packet| {
                let answer = asking.ask(&mut packet);
                match answer.verdict {
                    KEEP => asking.keep(packet),
                    RECYCLE => recycle(packet),
                    _ => asking.refuse(packet, wrong_verdict(answer.verdict, "or WEIR_XSK_KEEP")),
                }
            });
            asking.end().map(|()| count)
        })
    })
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
            let Opened { socket, memory, .. } = opened;
            let mut asking = Asking::new(memory, max, each, context);
            let count = socket.forward_each(max, |mut packet| {
                let answer = asking.ask(&mut packet);
                match answer.verdict {
                    SEND if answer.is_unchanged => packet.send(),
                    SEND => match move_packet(&mut packet, &answer.shown) {
                        Ok(()) => packet.send(),
                        Err(fault) => asking.refuse(packet, fault),
                    },
                    KEEP => asking.keep(packet),
                    RECYCLE => recycle(packet),
                    _ => {
                        let others = "WEIR_XSK_KEEP or WEIR_XSK_SEND";
                        asking.refuse(packet, wrong_verdict(answer.verdict, others))
                    }
                }
            });
            asking.end().map(|()| count)
        })
    })
}

#[inline(always)]
fn recycle<const SENDS: bool>(mut packet: Received<'_, SENDS>) -> Done<'_> {
    poison(&mut packet);
    packet.recycle()
}

#[cold]
fn wrong_verdict(verdict: c_int, others: &str) -> Fault {
    Fault::invalid(format!(
        "the callback returned {verdict}: return WEIR_XSK_RECYCLE, {others}; the packet was recycled"
    ))
}

#[cold]
fn move_packet(packet: &mut Received<'_, true>, shown: &abi::Frame) -> Result<()> {
    let moves = moves(packet.as_ptr(), packet.len() as u32, shown)?;
    adjust(packet, moves, Received::adjust_head, Received::adjust_tail)
}

/// Asks a callback about packets.
struct Asking<'m> {
    memory: &'m Memory,
    each: Each,
    context: *mut c_void,
    chunk_size: u32,
    /// The handle of the next packet, if it is kept.
    next: Reserved,
    /// The last error.
    fault: Option<Fault>,
}

/// A callback's answer.
struct Answer {
    verdict: c_int,
    shown: abi::Frame,
    is_unchanged: bool,
}

impl<'m> Asking<'m> {
    fn new(memory: &'m Memory, max: u32, each: Each, context: *mut c_void) -> Self {
        Self {
            memory,
            each,
            context,
            chunk_size: memory.umem.chunk_size(),
            next: memory.frames().reserve(max),
            fault: None,
        }
    }

    #[inline(always)]
    fn ask<const SENDS: bool>(&mut self, packet: &mut Received<'_, SENDS>) -> Answer {
        let (data, len) = (packet.as_mut_ptr(), packet.len() as u32);
        let mut shown = show(data, len, self.chunk_size, self.next.handle);
        // SAFETY: needed to call C. The caller promised that it may be called with this context. The
        // packet's bytes are borrowed meanwhile, and the frame is a variable here.
        let verdict = unsafe { (self.each)(&raw mut shown, self.context) };
        self.next.handle[1] += 1;
        Answer {
            verdict,
            shown,
            is_unchanged: shown.data == data && shown.len == len,
        }
    }

    /// Gives the packet the handle that the callback saw.
    #[inline(never)]
    fn keep<'p, const SENDS: bool>(&mut self, packet: Received<'p, SENDS>) -> Done<'p> {
        let (frame, done) = packet.keep();
        let mut kept = self.next;
        kept.handle[1] -= 1;
        let mut frames = self.memory.frames();
        frames.fill(kept, frame);
        // The serial numbers stay, for the packets to come.
        self.next.handle[0] = frames.reserve(0).handle[0];
        done
    }

    #[cold]
    fn refuse<'p, const SENDS: bool>(
        &mut self,
        packet: Received<'p, SENDS>,
        fault: Fault,
    ) -> Done<'p> {
        self.fault = Some(fault);
        recycle(packet)
    }

    fn end(mut self) -> Result<()> {
        self.fault.take().map_or(Ok(()), Err)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.memory.frames().cancel(self.next);
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
            let count = opened.socket.send_each(max, |room| {
                // SAFETY: needed to call C. The caller promised that it may be called with this
                // context; the room is borrowed meanwhile.
                let len = unsafe { write(room.as_mut_ptr(), room.len() as u32, context) } as usize;
                if len > room.len() {
                    too_long = Some((len, room.len()));
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

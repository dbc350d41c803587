//! The two halves of a socket, for two threads.

use super::each::{Done, Received, receive_each, try_receive_each};
use super::receiver::Receiver;
use super::sender::Sender;
use super::sending::{Sending, sending_methods};
use super::statistics::Statistics;
use super::waiting::Waiting;
use super::{Socket, recv_only};
use crate::batch::RxBatch;
use crate::error::Result;
use crate::umem::{Cache, Umem};
use crate::umem_rings::{CompletionRing, RxRing, cache_size};
use crate::wait::{Interest, Ready};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// The receiving half of a [`Socket`]; see [`Socket::split`].
#[derive(Debug)]
pub struct RxHalf {
    pub(crate) receiver: Receiver,
    pub(crate) cache: Cache,
    umem: Umem,
}

/// The sending half of a [`Socket`]; see [`Socket::split`].
#[derive(Debug)]
pub struct TxHalf {
    pub(crate) sender: Sender,
    umem: Umem,
}

/// Most free chunks in the cache of each half. Each is out of reach for the other: the sending half
/// gets chunks back, and the receiving half needs them.
const CACHE: usize = 256;

impl Socket {
    /// Splits the socket into a receiving and a sending half, for two threads: while one waits for
    /// packets, the other can be in the system call that sends.
    ///
    /// Frames go from one to the other by any channel. The socket closes when both halves are
    /// dropped, in any order; without the receiving half, packets go to the network stack again.
    /// Siblings of the socket close: their packets to send are flushed, received ones are dropped.
    ///
    /// The chunks of sent packets come back when the sending half sends, flushes, allocates or
    /// [reclaims](TxHalf::reclaim), whichever comes next. As long as it does none of these, they are out of
    /// reach for the receiving half. By default it needs none of them, since at most half of the UMEM is lent
    /// for receiving; a socket with more [`fill_chunks`](crate::SocketBuilder::fill_chunks) receives less
    /// while its sender is idle.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// # let umem = xsk::Umem::builder().build()?;
    /// let socket = xsk::Socket::builder(&umem, "eth0", 0).open()?;
    /// let (mut rx, mut tx) = socket.split();
    /// let (frames, kept) = std::sync::mpsc::sync_channel(1024);
    /// let sender = std::thread::spawn(move || {
    ///     for frame in kept {
    ///         tx.send(frame).expect("the TX ring has room");
    ///         tx.flush().expect("the device is up");
    ///     }
    /// });
    /// rx.wait(std::time::Duration::from_secs(1))?;
    /// let mut batch = rx.recv(64);
    /// while let Some(packet) = batch.next_packet() {
    ///     frames.send(packet.keep()).expect("the sender runs");
    /// }
    /// # drop((batch, frames));
    /// # sender.join().expect("no panic");
    /// # Ok(())
    /// # }
    /// ```
    pub fn split(mut self) -> (RxHalf, TxHalf) {
        self.close_siblings();
        let Self {
            receiver,
            mut sender,
            umem,
            ..
        } = self;
        sender.cache.limit(CACHE);
        let slots = receiver.main.ring.as_ref().map_or(1, RxRing::size);
        let rx = RxHalf {
            cache: Cache::new(&umem, cache_size(umem.chunks(), slots).min(CACHE)),
            receiver,
            umem: umem.clone(),
        };
        (rx, TxHalf { sender, umem })
    }
}

impl RxHalf {
    /// Same as [`Socket::recv`]. A packet of the batch cannot be sent, but be
    /// [kept](crate::Packet::keep).
    #[inline(always)]
    pub fn recv(&mut self, max: u32) -> RxBatch<'_> {
        let fill = &mut self.receiver.fill;
        recv_only(
            &mut self.receiver.main,
            fill,
            &mut self.cache,
            &self.umem,
            max,
        )
    }

    /// Same as [`Socket::receive_each`].
    #[inline(always)]
    pub fn receive_each<F>(&mut self, max: u32, each: F) -> u32
    where
        F: for<'p> FnMut(Received<'p>) -> Done<'p>,
    {
        let Receiver { main, fill, .. } = &mut self.receiver;
        fill.refill(&mut self.cache);
        main.wake_if_asked(fill);
        let Some(pass) = main.count_pass() else {
            return 0;
        };
        receive_each(pass.rx, fill, &mut self.cache, &self.umem, max, each)
    }

    /// Same as [`Socket::try_receive_each`].
    ///
    /// # Errors
    ///
    /// Same as [`Socket::try_receive_each`].
    #[inline(always)]
    pub fn try_receive_each<E, F>(&mut self, max: u32, each: F) -> std::result::Result<u32, E>
    where
        F: for<'p> FnMut(Received<'p>) -> std::result::Result<Done<'p>, E>,
    {
        let Receiver { main, fill, .. } = &mut self.receiver;
        fill.refill(&mut self.cache);
        main.wake_if_asked(fill);
        let Some(pass) = main.count_pass() else {
            return Ok(0);
        };
        let cache = &mut self.cache;
        let (count, ended) = try_receive_each(pass.rx, fill, cache, &self.umem, max, each);
        ended.map(|()| count)
    }

    /// Same as [`Socket::wait`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`](crate::ErrorKind::Os) when poll(2) fails.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.waiting().wait(timeout)
    }

    /// Gets the half ready for a sleep in the caller's event loop, until its descriptor is readable. Same as
    /// [`Socket::prepare_to_wait`] with [`Interest::Receive`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`](crate::ErrorKind::Os) when the events of the descriptor cannot be set.
    pub fn prepare_to_wait(&mut self) -> Result<Ready> {
        self.waiting().prepare(Interest::Receive)
    }

    fn waiting(&mut self) -> Waiting<'_> {
        Waiting {
            rx: Some((&mut self.receiver.main, &mut self.receiver.fill)),
            tx: None,
            cache: &mut self.cache,
        }
    }

    /// The UMEM of the socket's packets.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Counters of this half and of the kernel; those of the other half are 0.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::statistics`].
    pub fn statistics(&self) -> Result<Statistics> {
        let Receiver { main, fill, .. } = &self.receiver;
        Ok(Statistics::read(&**main.socket())?.with_rx(main, fill))
    }
}

impl TxHalf {
    sending_methods!();

    #[inline(always)]
    fn sending(&mut self) -> Sending<'_> {
        self.sender.sending()
    }

    fn completion(&self) -> &CompletionRing {
        &self.sender.completion
    }

    /// Waits until a packet can be sent, for at most `timeout`; returns whether one can. Same as
    /// [`Socket::wait_for`] with [`Interest::Send`].
    ///
    /// # Errors
    ///
    /// Same as [`Socket::wait_for`].
    pub fn wait_for_room(&mut self, timeout: Duration) -> Result<bool> {
        let sender = &mut self.sender;
        let mut waiting = Waiting {
            rx: None,
            tx: Some((&mut sender.main, &mut sender.completion)),
            cache: &mut sender.cache,
        };
        let ready = waiting.wait_for(Interest::Send, timeout)?;
        Ok(ready.send)
    }

    /// The UMEM of the socket's packets.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Counters of this half and of the kernel; those of the other half are 0.
    ///
    /// # Errors
    ///
    /// Same as [`Socket::statistics`].
    pub fn statistics(&self) -> Result<Statistics> {
        let Sender {
            main, completion, ..
        } = &self.sender;
        Ok(Statistics::read(main.socket())?.with_tx(main, completion))
    }
}

/// For an event loop; see [`RxHalf::prepare_to_wait`]. A sending half has none: it waits with
/// [`TxHalf::wait_for_room`].
impl AsFd for RxHalf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.main.pollable()
    }
}

/// Same as [`AsFd`].
impl AsRawFd for RxHalf {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

//! The engine on weir's own library.

use std::time::Duration;

use ::xsk::{Error, ModeObtained, Socket, Umem};

use super::bench::Bench;
use super::busy_poll::no_napi;
use super::moves::{Inspect, Moves, Round, Source};
use super::{Failure, Mode, Wait};
use crate::traffic::frame::{MAX_LINEAR_SIZE, MAX_LIVE_SIZE, swap_macs};

/// Chunks of the UMEM, as many as xdpsock has.
pub(super) const CHUNKS: u32 = 4096;

/// The longest wait of a round that may sleep, and of one that spins.
const SLEEP: Duration = Duration::from_millis(100);
const SPIN: Duration = Duration::from_millis(1);

/// Options of an [`Xsk`].
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The device's name, in this network namespace.
    pub device: &'a str,
    /// The device's queue.
    pub queue: u32,
    /// The bench: one that only sends has all chunks for sending.
    pub bench: Bench,
    /// The requested mode.
    pub mode: Mode,
    /// The wait of a round.
    pub wait: Wait,
    /// Batch size.
    pub batch: u32,
}

/// An open AF_XDP socket.
#[derive(Debug)]
pub struct Xsk {
    pub(super) socket: Socket,
    pub(super) refusals: Vec<String>,
    /// Longest wait of a round.
    pub(super) patience: Duration,
    pub(super) batch: u32,
    /// Whether it is yet to be seen that there is a NAPI instance for busy polling.
    unproven: bool,
    sent_template: bool,
    /// Packets whose completion was not returned by a round yet.
    unreported: u64,
}

/// The memory of an engine, for frames of at most `size` bytes: of one chunk, or of several of a page. Some cards
/// take a whole MTU in zero-copy mode only into chunks of a page.
pub fn umem(size: usize, mode: Mode) -> Result<Umem, Failure> {
    let mut builder = Umem::builder().chunks(CHUNKS);
    if size > MAX_LIVE_SIZE || mode == Mode::Zc {
        builder = builder.chunk_size(4096);
    }
    builder
        .fragments(size > MAX_LINEAR_SIZE)
        .build()
        .map_err(|error| failure("umem", &error))
}

/// The library's way of waiting.
pub(super) fn library_wait(wait: Wait) -> ::xsk::Wait {
    match wait {
        Wait::Spin => ::xsk::Wait::Spin,
        Wait::BusyPoll => ::xsk::Wait::BusyPoll,
        Wait::Poll => ::xsk::Wait::Poll,
        Wait::Adaptive => ::xsk::Wait::adaptive(),
    }
}

impl Xsk {
    /// Opens a socket on the device, with the defaults of the library.
    pub fn open(umem: &Umem, options: &Options<'_>) -> Result<Self, Failure> {
        let mode = match options.mode {
            Mode::Auto => ::xsk::Mode::Auto,
            Mode::Skb => ::xsk::Mode::Skb,
            Mode::Drv => ::xsk::Mode::Driver,
            Mode::Zc => ::xsk::Mode::ZeroCopy,
        };
        let mut builder = Socket::builder(umem, options.device, options.queue)
            .mode(mode)
            .wait(library_wait(options.wait));
        if !options.bench.receives() {
            // Nothing is received: all chunks are for sending.
            builder = builder.fill_chunks(0);
        }
        let socket = builder.open().map_err(|error| failure("open", &error))?;
        Ok(Self::of(socket, options))
    }

    /// An engine on an open socket.
    pub(super) fn of(socket: Socket, options: &Options<'_>) -> Self {
        Self {
            refusals: socket.refusals().iter().map(ToString::to_string).collect(),
            socket,
            patience: match options.wait {
                Wait::Spin | Wait::BusyPoll => SPIN,
                Wait::Poll | Wait::Adaptive => SLEEP,
            },
            batch: options.batch,
            unproven: options.wait == Wait::BusyPoll,
            sent_template: false,
            unreported: 0,
        }
    }

    /// Packets completed since the last call, when `sent` were handed over since then.
    #[inline]
    fn completed(&mut self, sent: u64) -> u64 {
        self.unreported += sent;
        let completed = self.unreported - u64::from(self.socket.outstanding());
        self.unreported -= completed;
        completed
    }

    /// Refuses to go on where there is nothing to poll, which shows with the first packet: it would pass for
    /// busy polling.
    #[cold]
    fn prove_busy_polling(&mut self) -> Result<(), Failure> {
        let napi = self.socket.napi_id();
        if napi
            .map_err(|error| failure("busy poll", &error))?
            .is_none()
        {
            return Err(no_napi());
        }
        self.unproven = false;
        Ok(())
    }

    /// Writes the template into every chunk; a chunk keeps it while it is free.
    fn prepare(&mut self, template: &[u8]) -> Result<(), Failure> {
        let frames: Vec<_> = std::iter::from_fn(|| self.socket.alloc()).collect();
        for mut frame in frames {
            frame
                .fill_with(template)
                .map_err(|error| failure("frame", &error))?;
        }
        Ok(())
    }
}

impl Moves for Xsk {
    fn mode_obtained(&self) -> Option<Mode> {
        match self.socket.mode() {
            ModeObtained::Skb => Some(Mode::Skb),
            ModeObtained::Driver => Some(Mode::Drv),
            ModeObtained::ZeroCopy => Some(Mode::Zc),
            _ => None,
        }
    }

    fn refusals(&self) -> &[String] {
        &self.refusals
    }

    #[inline]
    fn receive(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure> {
        let timed_out = !wait(&mut self.socket, self.patience)?;
        let mut received = 0;
        self.socket.receive_each(self.batch, |packet| {
            received += 1;
            inspect.frame(&packet);
            packet.recycle()
        });
        if self.unproven && received > 0 {
            self.prove_busy_polling()?;
        }
        Ok(Round {
            received,
            completed: 0,
            timed_out,
        })
    }

    #[inline]
    fn send(&mut self, source: &mut Source) -> Result<Round, Failure> {
        if !self.sent_template {
            self.prepare(source.template.bytes())?;
            self.sent_template = true;
        }
        let size = source.template.bytes().len();
        let sent = self.socket.send_each(self.batch, |room| {
            source.stamp(&mut room[..size]);
            size
        });
        flush(&mut self.socket)?;
        self.socket.reclaim();
        Ok(Round {
            received: 0,
            completed: self.completed(u64::from(sent)),
            timed_out: false,
        })
    }

    #[inline]
    fn forward(&mut self, inspect: &mut impl Inspect) -> Result<Round, Failure> {
        let timed_out = !wait(&mut self.socket, self.patience)?;
        let mut received = 0;
        self.socket.forward_each(self.batch, |mut packet| {
            received += 1;
            inspect.frame(&packet);
            swap_macs(&mut packet);
            packet.send()
        });
        if self.unproven && received > 0 {
            self.prove_busy_polling()?;
        }
        flush(&mut self.socket)?;
        Ok(Round {
            received,
            completed: self.completed(received),
            timed_out,
        })
    }

    fn complete(&mut self) -> Result<Round, Failure> {
        flush(&mut self.socket)?;
        self.socket.reclaim();
        Ok(Round {
            completed: self.completed(0),
            ..Round::default()
        })
    }

    fn in_flight(&self) -> u64 {
        self.unreported
    }

    fn kernel_drops(&mut self) -> Result<u64, Failure> {
        let counts = self
            .socket
            .statistics()
            .map_err(|error| failure("statistics", &error))?;
        // A packet that found FILL empty is in `rx_dropped` already.
        Ok(counts.rx_dropped + counts.rx_ring_full)
    }
}

#[inline]
pub(super) fn wait(socket: &mut Socket, patience: Duration) -> Result<bool, Failure> {
    socket
        .wait(patience)
        .map_err(|error| failure("wait", &error))
}

#[inline]
pub(super) fn flush(socket: &mut Socket) -> Result<(), Failure> {
    socket.flush().map_err(|error| failure("send", &error))
}

#[cold]
pub(super) fn failure(step: &'static str, error: &Error) -> Failure {
    Failure {
        step,
        errno: error.errno().unwrap_or(0),
        message: error.to_string(),
    }
}

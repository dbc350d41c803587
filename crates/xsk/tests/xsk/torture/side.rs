//! All that the threads at one end of the veth pairs share.

use super::books::Book;
use super::failure::{Check, Failure, Result, ensure, fail};
use super::held::{Hands, Held};
use super::packet::Header;
use rustix::thread::Pid;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use testkit::wait_until;
use xsk::{ErrorKind, Umem};

/// Most flows of a round.
pub const FLOWS: usize = 64;

/// What both ends share.
#[derive(Debug)]
pub struct Round {
    /// Sockets make packets.
    pub originate: AtomicBool,
    /// Threads end.
    pub stop: AtomicBool,
    /// A device may be down, or its peer.
    pub down: AtomicBool,
    /// Sockets and ports opened.
    pub opened: AtomicU64,
    pub failures: Mutex<Vec<Failure>>,
    pub crews: Vec<Crew>,
}

/// A thread as the round sees it.
#[derive(Debug, Default)]
pub struct Crew {
    pub turns: AtomicU64,
    pub is_ready: AtomicBool,
    pub has_ended: AtomicBool,
    /// Its threads, to move them from CPU to CPU.
    pub threads: Mutex<Vec<Pid>>,
}

impl Round {
    pub fn is_over(&self) -> bool {
        self.stop.load(SeqCst)
    }

    pub fn originates(&self) -> bool {
        self.originate.load(SeqCst)
    }

    /// Ends all threads.
    pub fn fail(&self, failure: Failure) {
        self.failures.lock().expect("no panic").push(failure);
        self.stop.store(true, SeqCst);
    }

    /// Passes an error on, unless it is that of a device that is down for a while.
    pub fn tolerate<T>(&self, result: xsk::Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::DeviceDown && self.down.load(SeqCst) => {
                Ok(None)
            }
            // The socket before has not left it.
            Err(error) if error.kind() == ErrorKind::QueueBusy => {
                fail(Check::Queue, error.to_string())
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Crew {
    /// Lists the thread that calls it.
    pub fn join(&self) {
        let thread = rustix::thread::gettid();
        self.threads.lock().expect("no panic").push(thread);
    }

    pub fn turn(&self) {
        self.turns.fetch_add(1, SeqCst);
    }

    pub fn wait_until_ready(&self, limit: Duration) -> bool {
        wait_until(limit, || {
            self.is_ready.load(SeqCst) || self.has_ended.load(SeqCst)
        })
    }
}

/// One end of all veth pairs.
#[derive(Debug)]
pub struct Side<'r> {
    pub round: &'r Round,
    pub umem: Umem,
    pub hands: Hands,
    /// Packets to this end.
    pub inward: &'r Book,
    /// Packets from this end.
    pub outward: &'r Book,
    /// Packets for the socket of a flow, from other threads.
    inboxes: Vec<Mutex<VecDeque<(Held, Header)>>>,
    /// The lowest sequence number that may come next, by flow.
    next: Vec<AtomicU64>,
}

impl<'r> Side<'r> {
    pub fn new(round: &'r Round, umem: Umem, inward: &'r Book, outward: &'r Book) -> Self {
        Self {
            round,
            hands: Hands::of(&umem),
            umem,
            inward,
            outward,
            inboxes: (0..FLOWS).map(|_| Mutex::default()).collect(),
            next: (0..FLOWS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The packets that other threads have kept for the socket of a flow.
    pub fn inbox(&self, flow: u16) -> MutexGuard<'_, VecDeque<(Held, Header)>> {
        self.inboxes[usize::from(flow)].lock().expect("no panic")
    }

    /// Fails for a packet that has come before, or after a later one of its flow.
    pub fn note(&self, header: Header) -> Result<()> {
        let Some(next) = self.next.get(usize::from(header.flow)) else {
            return fail(Check::Payload, format!("no such flow: {header:?}"));
        };
        let expected = next.swap(header.sequence + 1, SeqCst);
        ensure(header.sequence >= expected, Check::Order, || {
            format!("{header:?} comes after number {} of its flow", expected - 1)
        })
    }
}

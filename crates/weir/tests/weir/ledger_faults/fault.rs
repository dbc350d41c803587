//! The interface of faults: the cause of each, and its rows in the ledger.

use anyhow::Result;
use weir::ledger::sheet::Class;
use weir::ledger::stage::Stage;

use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::{At, Lab};

/// A kind of loss.
#[derive(Clone, Copy)]
pub struct Fault {
    /// Its name, also of the trial.
    pub name: &'static str,
    /// Prepares it, before the first snapshot.
    pub prepare: fn(&mut Lab, &Kernel) -> Result<Prepared>,
    /// Whether it can be caused together with the others of this kind, in one lab.
    pub mixes: bool,
}

/// A fault that is ready to be caused, or the obstacle.
pub enum Prepared {
    Ready(Box<Ready>),
    /// The kernel has no such feature.
    Lacks(&'static str),
}

/// A fault that is ready to be caused.
pub struct Ready {
    /// Causes it so many times, or nearly, and returns how many losses that were by its own count.
    pub cause: Cause,
    /// The ledger's answer: the row of the loss, if there is one, and those of normal frees with it.
    pub rows: Vec<Row>,
    /// By how many packets an edge of which the ledger says that it is open may be off.
    pub open: Vec<Open>,
    /// Words of the gap by which the kernel's silence is told, if the row is not exact.
    pub gap: Option<&'static str>,
}

/// Causes a loss so many times.
pub type Cause = Box<dyn FnMut(&mut Lab, u64) -> Result<u64> + Send>;

/// A row that must be there, with the count of the fault unless it has one of its own.
#[derive(Debug, Clone)]
pub struct Row {
    pub class: Class,
    pub stage: Stage,
    pub reason: String,
    /// A part of its place; none for a row without a place.
    pub place: Option<&'static str>,
    pub at: At,
    pub device: Option<&'static str>,
    /// The beginning of its name.
    pub qdisc: Option<&'static str>,
    pub socket: Option<String>,
    /// Whether it names this process.
    pub process: bool,
    /// Other places that must be named, besides those that the second readings find.
    pub also: &'static [&'static str],
    /// Packets for each one that the fault counts.
    pub times: u64,
}

/// An edge that is open by a number that the fault knows.
#[derive(Debug, Clone, Copy)]
pub struct Open {
    pub at: At,
    pub from: Stage,
    pub to: Stage,
    /// Packets for each one that the fault counts; positive for packets that vanish.
    pub times: i64,
}

impl Row {
    /// A loss without a device, a socket or other places.
    pub fn new(class: Class, stage: Stage, reason: &str, at: At) -> Self {
        Self {
            class,
            stage,
            reason: reason.into(),
            place: None,
            at,
            device: None,
            qdisc: None,
            socket: None,
            process: false,
            also: &[],
            times: 1,
        }
    }

    pub fn lost(stage: Stage, reason: &str, at: At) -> Self {
        Self::new(Class::Lost, stage, reason, at)
    }

    pub fn place(mut self, place: &'static str) -> Self {
        self.place = Some(place);
        self
    }

    pub fn device(mut self, device: &'static str) -> Self {
        self.device = Some(device);
        self
    }

    pub fn qdisc(mut self, qdisc: &'static str) -> Self {
        self.qdisc = Some(qdisc);
        self
    }

    /// Of a socket of this process.
    pub fn socket(mut self, socket: impl Into<String>) -> Self {
        self.socket = Some(socket.into());
        self.process = true;
        self
    }

    pub fn also(mut self, also: &'static [&'static str]) -> Self {
        self.also = also;
        self
    }
}

impl Ready {
    pub fn new(
        rows: impl Into<Vec<Row>>,
        cause: impl FnMut(&mut Lab, u64) -> Result<u64> + Send + 'static,
    ) -> Self {
        Self {
            cause: Box::new(cause),
            rows: rows.into(),
            open: Vec::new(),
            gap: None,
        }
    }

    pub fn open(mut self, at: At, from: Stage, to: Stage, times: i64) -> Self {
        self.open.push(Open {
            at,
            from,
            to,
            times,
        });
        self
    }

    pub fn gap(mut self, words: &'static str) -> Self {
        self.gap = Some(words);
        self
    }

    pub fn done(self) -> Prepared {
        Prepared::Ready(Box::new(self))
    }
}

//! The protocol between bench and worker: one JSON object a line on the worker's standard output.

use serde::{Deserialize, Serialize};

use super::{Failure, Mode};
use crate::process::event;

/// A line of a worker's standard output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The socket is open and the loop starts.
    Ready {
        /// The mode that the kernel reports; `None` for an engine without modes.
        mode_obtained: Option<Mode>,
        /// Better modes that were tried first, each with its errno and reason.
        refusals: Vec<String>,
    },
    /// Nothing can be measured; the worker exits with status 1.
    Failed {
        /// The step that failed.
        step: String,
        /// The error number, or 0 if the failure has none.
        errno: i32,
        /// Cause and cure.
        message: String,
    },
    /// The measuring window is over; the loop runs on.
    Window {
        /// Packets handled in the window: received, or sent and completed.
        packets: u64,
        /// Its true length.
        seconds: f64,
        /// The loop's thread in user mode, in nanoseconds.
        user_ns: u64,
        /// The loop's thread in the kernel, in nanoseconds.
        sys_ns: u64,
    },
    /// The turn is over: nothing more can be done in it.
    Turn {
        /// Packets handled in it: received, or sent and completed.
        packets: u64,
        /// Its CPU time.
        ns: u64,
    },
    /// Totals since the start, after SIGTERM and with everything drained.
    Done(Totals),
}

impl Event {
    /// Prints it as a line.
    pub fn print(&self) -> Result<(), Failure> {
        event::print(self).map_err(|error| Failure::new("stdout", &error, "the bench has ended"))
    }
}

impl From<Failure> for Event {
    fn from(failure: Failure) -> Self {
        Self::Failed {
            step: failure.step.into(),
            errno: failure.errno,
            message: failure.message,
        }
    }
}

/// A worker's counts from its start to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets received.
    pub received: u64,
    /// Packets sent, and completed by the kernel.
    pub sent: u64,
    /// Packets that reached the socket and were dropped by the kernel there.
    pub kernel_drops: u64,
    /// Frames whose contents were wrong. This and the rest are 0 unless payloads are read.
    pub corrupted: u64,
    /// Frames that came twice.
    pub duplicates: u64,
    /// Frames that came after a later one.
    pub reordered: u64,
    /// Frames that did not come: normal under overload.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_agreed_form() {
        let ready = Event::Ready {
            mode_obtained: Some(Mode::Drv),
            refusals: vec!["zc: EOPNOTSUPP (95)".into()],
        };
        let done = Event::Done(Totals {
            received: 3,
            ..Totals::default()
        });
        let lines = [
            (
                ready,
                r#"{"event":"ready","mode_obtained":"drv","refusals":["zc: EOPNOTSUPP (95)"]}"#,
            ),
            (
                done,
                r#"{"event":"done","received":3,"sent":0,"kernel_drops":0,"corrupted":0,"duplicates":0,"reordered":0,"lost":0}"#,
            ),
        ];
        for (event, line) in lines {
            assert_eq!(serde_json::to_string(&event).expect("serializes"), line);
            assert_eq!(serde_json::from_str::<Event>(line).expect("parses"), event);
        }
    }
}

//! The parts of a frame that cost something while they are measured.

use super::frame::Frame;

/// A part of a frame that costs something while it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priced {
    /// The CPUs' time, by tracepoints.
    Cpus,
    /// The run time of BPF programs.
    Programs,
}

impl Priced {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Cpus, Self::Programs];

    /// Whether the frame has it.
    pub fn is_in(self, frame: &Frame) -> bool {
        match self {
            Self::Cpus => frame.bill.is_some(),
            Self::Programs => frame.programs.is_some(),
        }
    }
}

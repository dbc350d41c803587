//! The counts of instructions.

use serde::Serialize;

use crate::bench::plan::{Combination, Unavailable};
use crate::engine::Mode;

/// The amount that is counted.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Turns {
    /// Turns that are counted.
    pub count: u32,
    /// Turns before those, for one-time work such as faulting in memory.
    pub warmup: u32,
    /// Packets in each.
    pub packets: u32,
}

/// All counts; their JSON form.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The kernel of the machine.
    pub kernel: String,
    /// The version of weir.
    pub weir: String,
    /// Emulator and compiler, as named by the caller.
    pub machine: String,
    /// Frame length without the FCS.
    pub size: u16,
    /// The amount that was counted.
    pub turns: Turns,
    /// Instructions for one packet of the load, into a program that drops it at once.
    pub load: f64,
    /// One for each combination and batch size.
    pub counts: Vec<Count>,
    /// Missing engines and modes, with the reason.
    pub unavailable: Vec<Unavailable>,
}

/// The instructions for one packet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Count {
    /// The combination.
    #[serde(flatten)]
    pub combination: Combination,
    /// The mode that the kernel reports.
    pub mode_obtained: Option<Mode>,
    /// Batch size.
    pub batch: u32,
    /// In the turns of the load, without the load itself: the kernel's work on a packet until the
    /// socket has it. `None` in a bench that does not receive.
    pub receiving: Option<f64>,
    /// In the turns of the engine: its own and, in its system calls, the kernel's.
    pub handling: f64,
    /// Receiving and handling.
    pub instructions_per_packet: f64,
}

impl Turns {
    /// All turns: whether each counts.
    pub fn all(self) -> impl Iterator<Item = bool> {
        (0..self.warmup + self.count).map(move |turn| turn >= self.warmup)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn the_first_turns_do_not_count() {
        let turns = Turns {
            count: 2,
            warmup: 1,
            packets: 8,
        };
        assert_eq!(turns.all().collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn the_json_form_names_each_count() {
        let json = serde_json::to_value(report()).expect("serializes");
        let count = &json["counts"][0];
        assert_eq!(count["bench"], "rxdrop");
        assert_eq!(count["engine"], "xsk");
        assert_eq!(count["mode"], "drv");
        assert_eq!(count["batch"], 1);
        assert_eq!(count["handling"], 37.2);
        assert_eq!(json["load"], 754.9);
    }
}

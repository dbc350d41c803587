//! The machine, the place and the CPUs of a bench.

use serde::Serialize;

use crate::report::Machine;

/// The machine, the build and the command.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// The machine, the build and the command.
    #[serde(flatten)]
    pub machine: Machine,
    /// The CPU of the load; `None` if there is no load.
    pub load_cpu: Option<usize>,
    /// The CPU of the engines.
    pub app_cpu: usize,
    /// The CPU of the sending half of xsk-halves; `None` without that engine.
    pub sender_cpu: Option<usize>,
    /// `lab`, or the device and queue.
    pub place: String,
    /// Conditions of the place, one sentence each.
    pub notes: Vec<String>,
}

impl Host {
    /// The use of each CPU.
    pub fn cpu_note(&self) -> String {
        let app = self.app_cpu;
        let note = match self.load_cpu {
            Some(load) if load == app => {
                format!("CPU {app} is shared by load, kernel and engine, so rates say little.")
            }
            Some(load) => format!(
                "CPU {load} runs the load and the kernel's part of receiving it; CPU {app} runs the \
                 engine and the kernel's part of receiving its frames."
            ),
            None => format!("CPU {app} runs the engine."),
        };
        match self.sender_cpu {
            Some(sender) if Some(sender) == self.load_cpu => {
                format!("{note} The sending half of xsk-halves shares CPU {sender} with the load.")
            }
            Some(sender) => format!("{note} CPU {sender} runs the sending half of xsk-halves."),
            None => note,
        }
    }
}

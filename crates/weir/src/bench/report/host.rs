//! Where it was measured.

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
    /// `lab`, or the device and queue.
    pub place: String,
    /// What else is to be known of the place, one sentence each.
    pub notes: Vec<String>,
}

/// What of [`Host`] the bench has decided.
#[derive(Debug)]
pub struct Setup {
    /// CPUs that this process may run on.
    pub cpus: usize,
    /// The CPU of the load; `None` if there is no load.
    pub load_cpu: Option<usize>,
    /// The CPU of the engines.
    pub app_cpu: usize,
    /// `lab`, or the device and queue.
    pub place: String,
    /// What else is to be known of the place.
    pub notes: Vec<String>,
}

impl Host {
    /// This host, now.
    pub fn now(setup: Setup) -> Self {
        Self {
            machine: Machine::now(setup.cpus),
            load_cpu: setup.load_cpu,
            app_cpu: setup.app_cpu,
            place: setup.place,
            notes: setup.notes,
        }
    }

    /// Which CPU does what.
    pub fn cpu_note(&self) -> String {
        let app = self.app_cpu;
        match self.load_cpu {
            Some(load) if load == app => format!(
                "CPU {app} does everything: load, kernel and engine take turns, so rates say little."
            ),
            Some(load) => format!(
                "CPU {load} makes the load and does the kernel's part of receiving it; CPU {app} runs the \
                 engine, and the kernel's part of receiving what it sends."
            ),
            None => format!("CPU {app} runs the engine."),
        }
    }
}

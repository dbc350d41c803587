//! Short gaps of the host's CPU, as a hypervisor makes them: bpf/gaps.bpf.c at samples of the clock.

use std::os::fd::AsFd as _;

use anyhow::Result;
use weir::bpf::{Attached, Object, Programs, perf_event};

static GAPS: Object = Object {
    name: "gaps",
    bytes: testbpf::GAPS,
    needs: "Linux 5.17 for bpf_loop",
    layouts: &[],
    constants: &[],
    arrays_by_cpu: &[],
};

/// The shortest gap, and the longest.
const GAP_NS: [u64; 2] = [2_000, 100_000];

/// Gaps of some CPUs, until this is dropped.
#[must_use = "the gaps end when this is dropped"]
pub struct Gaps {
    _attached: Vec<Attached>,
    _programs: Programs,
}

impl Gaps {
    /// Takes about a share of each CPU, in percent.
    pub fn start(cpus: &[usize], percent: u64) -> Result<Self> {
        let config = GAP_NS.map(u64::to_ne_bytes).concat();
        let programs = Programs::load(&GAPS, Some(&config), |it| it == "gap")?;
        let frequency = percent * 10_000_000 / u64::midpoint(GAP_NS[0], GAP_NS[1]);
        let (_, events) = perf_event::open(cpus, frequency)?;
        let attached = events
            .iter()
            .map(|event| programs.attach_perf_event("gap", event.as_fd()));
        Ok(Self {
            _attached: attached.collect::<Result<_>>()?,
            _programs: programs,
        })
    }
}

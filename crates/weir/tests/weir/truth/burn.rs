//! The truth: `testbpf`'s `burn.bpf.c` on a device.

use std::time::{Duration, Instant};

use anyhow::Result;
use weir::bpf::layout::shared_structs;
use weir::bpf::{Attached, Object, Programs};

static BURN: Object = Object {
    name: "burn",
    bytes: testbpf::BURN,
    needs: "Linux 5.17 for bpf_loop, and 6.6 for tcx",
    layouts: &[Burned::LAYOUT],
    constants: &[],
    arrays_by_cpu: &[],
};

/// The shortest gap of the program, as `GAP_NS` of bpf/burn.bpf.c.
pub const GAP_NS: u64 = 50_000;
/// The longest time of a reading.
const AT_ONCE: Duration = Duration::from_millis(1);

/// A program that takes a set time for each packet.
pub struct Burn {
    programs: Programs,
    _attached: Attached,
}

shared_structs! {
    /// Nanoseconds until now.
    pub struct Burned = "burned" {
        /// In which the program worked.
        work_ns: u64,
        /// Interruptions of the program.
        gaps_ns: u64,
    }
}

impl Burned {
    /// From the begin of each packet to its end.
    pub fn total_ns(self) -> u64 {
        self.work_ns + self.gaps_ns
    }
}

impl Burn {
    /// In the context of NAPI, on this device of the calling thread's network namespace.
    pub fn by_xdp(index: u32, burn_ns: u64) -> Result<Self> {
        Self::attach("burn_xdp", burn_ns, |it, name| it.attach_xdp(name, index))
    }

    /// On the CPU that RPS has chosen.
    pub fn by_tcx(index: u32, burn_ns: u64) -> Result<Self> {
        Self::attach("burn_tcx", burn_ns, |it, name| it.attach_tcx(name, index))
    }

    fn attach(
        name: &str,
        burn_ns: u64,
        attach: impl FnOnce(&Programs, &str) -> Result<Attached>,
    ) -> Result<Self> {
        // The other program may need a newer kernel.
        let programs = Programs::load(&BURN, Some(&burn_ns.to_ne_bytes()), |it| it == name)?;
        let attached = attach(&programs, name)?;
        Ok(Self {
            programs,
            _attached: attached,
        })
    }

    /// A moment, and the time burned until then.
    pub fn burned(&self) -> Result<(Instant, Burned)> {
        loop {
            let now = Instant::now();
            let burned = self.read()?;
            // Otherwise this thread waited for a CPU between the two.
            if now.elapsed() < AT_ONCE {
                return Ok((now, burned));
            }
        }
    }

    /// The time burned until now.
    pub fn read(&self) -> Result<Burned> {
        self.programs.variable(".bss")
    }
}

//! Events of `perf_event_open(2)` that are there to run a BPF program at each sample.
//!
//! This file lifts the crate's ban on unsafe code for that one system call, which no library that
//! weir uses offers.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd as _, OwnedFd};
use std::{fs, io};

use anyhow::{Context as _, Result};

/// What has to pass before the next sample is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Cycles that the CPU has worked. Its interrupt cannot be masked, so it sees everything; a CPU
    /// that is idle stands still.
    Cycles,
    /// The kernel's timer, which is everywhere. What runs with interrupts off is seen only when it
    /// switches them on again, at that place.
    CpuClock,
}

impl Clock {
    /// Its name, as perf(1) calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CpuClock => "cpu-clock",
        }
    }

    /// `type` and `config` of the event.
    fn event(self) -> (u32, u64) {
        const PERF_TYPE_HARDWARE: u32 = 0;
        const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
        const PERF_TYPE_SOFTWARE: u32 = 1;
        const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
        match self {
            Self::Cycles => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES),
            Self::CpuClock => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK),
        }
    }
}

/// `struct perf_event_attr` of `linux/perf_event.h` as it was first (`PERF_ATTR_SIZE_VER0`), which
/// every kernel accepts.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64, "PERF_ATTR_SIZE_VER0");

/// Bits of `flags`: bit fields in C, which are laid out from the other end on big-endian machines.
const DISABLED: u64 = flag(0);
const FREQUENCY: u64 = flag(10);

const fn flag(bit: u32) -> u64 {
    if cfg!(target_endian = "big") {
        1 << (63 - bit)
    } else {
        1 << bit
    }
}

/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// One event a CPU, `frequency` times a second on whatever runs there. They count nothing before a
/// program is attached.
///
/// Cycles where the hardware counts them, else the clock.
pub fn open(cpus: &[usize], frequency: u64) -> Result<(Clock, Vec<OwnedFd>)> {
    match open_all(Clock::Cycles, cpus, frequency) {
        Ok(events) => Ok((Clock::Cycles, events)),
        // Permission, too, is judged by the second try: a hypervisor may keep the first to itself.
        Err(_) => Ok((Clock::CpuClock, open_all(Clock::CpuClock, cpus, frequency)?)),
    }
}

fn open_all(clock: Clock, cpus: &[usize], frequency: u64) -> Result<Vec<OwnedFd>> {
    cpus.iter()
        .map(|&cpu| {
            open_one(clock, cpu, frequency).map_err(|error| {
                let cure = cure(&error, frequency);
                anyhow::Error::new(error).context(format!("cannot sample CPU {cpu}: {cure}"))
            })
        })
        .collect()
}

fn open_one(clock: Clock, cpu: usize, frequency: u64) -> io::Result<OwnedFd> {
    let (kind, config) = clock.event();
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        sample_frequency: frequency,
        flags: DISABLED | FREQUENCY,
        ..Attributes::default()
    };
    let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
    let every_process: libc::pid_t = -1;
    let no_group: libc::c_int = -1;
    // SAFETY: needed because libc and rustix have no wrapper. The kernel reads as many bytes of
    // `attributes` as it says it has (asserted above), and keeps no pointer to it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            cpu,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: needed to own what the kernel made: the descriptor is new, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn cure(error: &io::Error, frequency: u64) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "this needs CAP_PERFMON: run it as root; a container's seccomp profile or a kernel in \
             lockdown may refuse it to root too"
                .into()
        }
        Some(libc::EINVAL) => match max_frequency() {
            Ok(max) if frequency > max => format!(
                "this kernel allows {max} samples a second (kernel.perf_event_max_sample_rate): \
                 choose a lower --frequency"
            ),
            _ => "this kernel does not know the event".into(),
        },
        Some(libc::ENODEV) => "the CPU is offline".into(),
        Some(libc::EMFILE) => "too many open files: raise the limit with `ulimit -n`".into(),
        Some(libc::ENOSYS) => "this kernel has no perf events (CONFIG_PERF_EVENTS)".into(),
        _ => "this kernel does not offer it".into(),
    }
}

fn max_frequency() -> Result<u64> {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate")?;
    text.trim().parse().context("not a number")
}

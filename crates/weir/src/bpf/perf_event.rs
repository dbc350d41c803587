//! Events of `perf_event_open(2)` that run a BPF program at each sample.
//!
//! Unsafe code is needed for that one system call: libbpf-sys has its structure, but no function.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd as _, OwnedFd};
use std::{fs, io};

use anyhow::{Context as _, Result};
use hostnet::privilege::{self, Capability, Feature};
use libbpf_rs::libbpf_sys::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_HARDWARE,
    PERF_TYPE_SOFTWARE, perf_event_attr, perf_event_attr__bindgen_ty_1,
};

/// The unit of the time between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Cycles of the CPU. Its interrupt cannot be masked, so no code is missed; an idle CPU counts
    /// none.
    Cycles,
    /// The kernel's timer, which every machine has. Code that runs with interrupts disabled is
    /// sampled only where it enables them again.
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
        match self {
            Self::Cycles => (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES.into()),
            Self::CpuClock => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK.into()),
        }
    }
}

/// Opens one event on each CPU that takes `frequency` samples a second of any task: of cycles where
/// the hardware counts them, else of the clock. They count nothing before a program is attached.
pub fn open(cpus: &[usize], frequency: u64) -> Result<(Clock, Vec<OwnedFd>)> {
    match open_all(Clock::Cycles, cpus, frequency) {
        Ok(events) => Ok((Clock::Cycles, events)),
        // A hypervisor may refuse cycles alone, so the second attempt decides on permission, too.
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
    let mut attributes = perf_event_attr {
        type_: kind,
        size: size_of::<perf_event_attr>() as u32,
        config,
        __bindgen_anon_1: perf_event_attr__bindgen_ty_1 {
            sample_freq: frequency,
        },
        ..perf_event_attr::default()
    };
    attributes.set_disabled(1);
    attributes.set_freq(1);
    let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
    let every_process: libc::pid_t = -1;
    let no_group: libc::c_int = -1;
    // SAFETY: needed because libc and rustix have no wrapper. The kernel reads `size` bytes of
    // `attributes`, all of it, and where it refuses them it writes `size`; it keeps no pointer.
    // An older kernel accepts the fields that it does not know, as they are zero.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw mut attributes,
            every_process,
            cpu,
            no_group,
            libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC),
        )
    };
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: needed to own the descriptor, which is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn cure(error: &io::Error, frequency: u64) -> String {
    let errno = error.raw_os_error();
    let refused = errno
        .and_then(|errno| privilege::refusal(errno, Feature::PerfEvents, &[Capability::Perfmon]));
    if let Some(refused) = refused {
        return refused;
    }
    match errno {
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

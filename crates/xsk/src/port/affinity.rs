//! The CPUs of a port's queues.

use crate::error::{Error, ErrorKind, Result};
use hostnet::cpulist::{CpuList, pin};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The calling thread on one CPU, until this is dropped.
pub(super) struct OnCpu {
    before: CpuSet,
}

impl OnCpu {
    pub(super) fn enter(cpu: usize) -> Result<Self> {
        let before = sched_getaffinity(None)
            .map_err(|errno| Error::os(ErrorKind::Os, errno, "reading the CPUs of this thread"))?;
        pin(cpu).map_err(|error| Error::host(&error))?;
        Ok(Self { before })
    }
}

impl Drop for OnCpu {
    fn drop(&mut self) {
        // It fails where a cpuset excludes all of them by now; the kernel has then moved the thread.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Checks that the process may run on the CPU of each queue.
pub(super) fn check(cpus: &[(u32, usize)]) -> Result<()> {
    for &(queue, cpu) in cpus {
        let allowed = CpuList::new([cpu]).check_allowed();
        allowed.map_err(|error| refused(&error, queue, cpus.len()))?;
    }
    Ok(())
}

fn refused(error: &hostnet::Error, queue: u32, queues: usize) -> Error {
    let cpus = CpuList::allowed().map_or(0, |cpus| cpus.as_slice().len());
    let mut error = Error::host(error);
    if queues > cpus {
        error = error.context(format_args!(
            "there are more queues ({queues}) than CPUs ({cpus}), so let `pin` give several queues the same one"
        ));
    }
    error.context(format_args!("queue {queue}"))
}

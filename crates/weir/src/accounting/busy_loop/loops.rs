//! Busy loops on some CPUs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow};

use super::kernel_threads::{NetworkThreads, ThreadsOnCpu};
use super::loss::CpuLoss;
use super::worker::BusyLoop;
use crate::accounting::proc_stat::{cpu_times, irq_time_accounting};
use crate::accounting::tracepoints::view::{View, Views};
use hostnet::cpulist::{CpuList, pin};

/// One busy loop on each of some CPUs.
#[must_use = "the loops end when this is dropped"]
pub struct BusyLoops {
    stop: Arc<AtomicBool>,
    workers: Vec<Worker>,
    napi: Vec<String>,
}

/// A loop's thread, and the steal time of its CPU at the start.
struct Worker {
    thread: Option<JoinHandle<CpuLoss>>,
    steal_ns: Option<u64>,
}

impl BusyLoops {
    /// Starts a loop on each of these CPUs, and returns when all of them run. `views` are the
    /// tracepoints' sums of the CPUs, if they are attached.
    pub fn start(cpus: &[usize], views: Option<&Views>) -> Result<Self> {
        let cpus = CpuList::new(cpus.iter().copied());
        cpus.check_allowed()?;
        let network = NetworkThreads::find();
        let mut loops = Self {
            stop: Arc::new(AtomicBool::new(false)),
            workers: Vec::new(),
            napi: names(&network),
        };
        let (ready, started) = channel();
        for &cpu in cpus.as_slice() {
            let view = views.and_then(|views| views.of(cpu));
            let thread = loops.spawn(cpu, network.on_cpu(cpu), view, ready.clone());
            let thread =
                thread.with_context(|| format!("cannot start a busy loop on CPU {cpu}"))?;
            loops.workers.push(Worker {
                thread: Some(thread),
                steal_ns: None,
            });
        }
        for _ in cpus.as_slice() {
            started.recv().context("a busy loop ended early")??;
        }
        let times = cpu_times().ok();
        for (worker, cpu) in loops.workers.iter_mut().zip(cpus.as_slice()) {
            worker.steal_ns = times
                .as_ref()
                .and_then(|times| Some(times.get(cpu)?.steal_ns));
        }
        Ok(loops)
    }

    fn spawn(
        &self,
        cpu: usize,
        threads: ThreadsOnCpu,
        view: Option<View>,
        ready: Sender<Result<()>>,
    ) -> std::io::Result<JoinHandle<CpuLoss>> {
        let stop = Arc::clone(&self.stop);
        let name = format!("weir-loop/{cpu}");
        thread::Builder::new().name(name).spawn(move || {
            let pinned = pin(cpu);
            let busy_loop = BusyLoop::new(cpu, threads, view);
            // The receiver is gone if another loop could not start.
            let _ = ready.send(pinned.map_err(Into::into));
            drop(ready);
            busy_loop.run(&stop)
        })
    }

    /// Ends the loops. The results are in the order of CPUs.
    pub fn stop(mut self) -> Result<Vec<CpuLoss>> {
        let times = cpu_times().ok();
        self.stop.store(true, Ordering::Relaxed);
        let irq_time = irq_time_accounting();
        let new_threads = self.new_threads();
        let mut all = Vec::new();
        for worker in &mut self.workers {
            let Some(thread) = worker.thread.take() else {
                continue;
            };
            let ended = thread.join();
            let mut loss = ended.map_err(|_| anyhow!("a busy loop panicked"))?;
            let steal_now = times
                .as_ref()
                .and_then(|times| Some(times.get(&loss.cpu)?.steal_ns));
            if let (Some(now), Some(before)) = (steal_now, worker.steal_ns) {
                loss.steal_ns = Some(loss.own_steal_ns(now.saturating_sub(before)));
            }
            loss.warn(irq_time, &new_threads);
            all.push(loss);
        }
        Ok(all)
    }

    /// NAPI threads that started after the loops.
    fn new_threads(&self) -> Vec<String> {
        let mut now = names(&NetworkThreads::find());
        now.retain(|name| !self.napi.contains(name));
        now
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                // Its result is not needed.
                let _ = thread.join();
            }
        }
    }
}

fn names(network: &NetworkThreads) -> Vec<String> {
    network.napi_names().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_cannot_be_used_is_refused() {
        let refused = BusyLoops::start(&[1023], None)
            .err()
            .map(|it| it.to_string());
        assert!(refused.is_some_and(|it| it.contains("CPU 1023")));
        assert!(BusyLoops::start(&[], None).is_err());
    }
}

//! CPU time of the kernel's network threads, by /proc, which needs no privilege.

use std::fs;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// `PF_KTHREAD` of include/linux/sched.h, in the flags of /proc/PID/stat.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The kernel threads that do the network's work.
#[derive(Debug, Clone, Default)]
pub struct NetworkThreads {
    ksoftirqd: Vec<Arc<KernelThread>>,
    napi: Vec<Arc<KernelThread>>,
}

/// A kernel thread.
#[derive(Debug)]
struct KernelThread {
    name: String,
    schedstat: File,
    stat: File,
}

impl NetworkThreads {
    /// All that are visible now: none in a PID namespace of its own.
    pub fn find() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut found = Self::default();
        for entry in entries {
            let Some(thread) = KernelThread::open(&entry.path()) else {
                continue;
            };
            if thread.name.starts_with("ksoftirqd/") {
                found.ksoftirqd.push(Arc::new(thread));
            } else {
                found.napi.push(Arc::new(thread));
            }
        }
        found
    }

    /// The names of the NAPI threads, in no order.
    pub fn napi_names(&self) -> impl Iterator<Item = &str> {
        self.napi.iter().map(|thread| thread.name.as_str())
    }

    /// Those that may run on one CPU.
    pub fn on_cpu(&self, cpu: usize) -> ThreadsOnCpu {
        let name = format!("ksoftirqd/{cpu}");
        let mut all = self.ksoftirqd.iter();
        let ksoftirqd = all.find(|thread| thread.name == name);
        ThreadsOnCpu {
            cpu,
            ksoftirqd: ksoftirqd.and_then(|thread| Followed::start(thread).ok()),
            napi: self
                .napi
                .iter()
                .filter_map(|thread| Followed::start(thread).ok())
                .collect(),
        }
    }
}

impl KernelThread {
    /// The thread with this directory of /proc, if it is one of the network's.
    fn open(directory: &Path) -> Option<Self> {
        let name = fs::read_to_string(directory.join("comm")).ok()?;
        let name = name.trim_end();
        let prefixes = ["ksoftirqd/", "napi/", "backlog_napi/"];
        if !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let thread = Self {
            name: name.into(),
            schedstat: File::open(directory.join("schedstat")).ok()?,
            stat: File::open(directory.join("stat")).ok()?,
        };
        // Any program may have such a name.
        let flags = stat_field(&text(&thread.stat).ok()?, 9)?;
        (flags & KERNEL_THREAD != 0).then_some(thread)
    }

    /// Its CPU time. While it runs, this is as of the last timer tick.
    fn cpu_ns(&self) -> Result<u64> {
        Ok(schedstat(&text(&self.schedstat)?).0)
    }

    /// Its current or last CPU.
    fn cpu(&self) -> Result<usize> {
        Ok(stat_field(&text(&self.stat)?, 39).unwrap_or(0) as usize)
    }
}

/// The threads that may run on one CPU.
pub struct ThreadsOnCpu {
    cpu: usize,
    ksoftirqd: Option<Followed>,
    napi: Vec<Followed>,
}

/// A thread, and its last known CPU time and CPU.
struct Followed {
    thread: Arc<KernelThread>,
    cpu_ns: u64,
    cpu: usize,
}

/// CPU time of the threads since the last reading, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Of ksoftirqd.
    pub ksoftirqd: u64,
    /// Of the NAPI threads.
    pub napi: u64,
    /// The part of `napi` of threads that migrated from another CPU since: some of it may have been
    /// there.
    pub migrated: u64,
}

impl ThreadTimes {
    /// Limited to so much time: the excess was on another CPU.
    pub fn within(self, ns: u64) -> Self {
        let ksoftirqd = self.ksoftirqd.min(ns);
        let napi = self.napi.min(ns - ksoftirqd);
        Self {
            ksoftirqd,
            napi,
            migrated: self.migrated.min(napi),
        }
    }
}

impl ThreadsOnCpu {
    /// Whether ksoftirqd of this CPU is visible.
    pub fn has_ksoftirqd(&self) -> bool {
        self.ksoftirqd.is_some()
    }

    /// Their CPU time since the last reading. On the CPU itself none of them runs meanwhile, so that
    /// the figures are exact.
    pub fn advance(&mut self) -> ThreadTimes {
        let mut times = ThreadTimes::default();
        if let Some(ksoftirqd) = &mut self.ksoftirqd {
            times.ksoftirqd = ksoftirqd.advance().unwrap_or(0);
        }
        let cpu = self.cpu;
        // A thread whose files are gone has ended with its device.
        self.napi
            .retain_mut(|thread| thread.add_to(&mut times, cpu).is_ok());
        times
    }
}

impl Followed {
    fn start(thread: &Arc<KernelThread>) -> Result<Self> {
        Ok(Self {
            cpu_ns: thread.cpu_ns()?,
            cpu: thread.cpu()?,
            thread: Arc::clone(thread),
        })
    }

    /// Its CPU time since the last reading.
    fn advance(&mut self) -> Result<u64> {
        let cpu_ns = self.thread.cpu_ns()?;
        let passed = cpu_ns.saturating_sub(self.cpu_ns);
        self.cpu_ns = cpu_ns;
        Ok(passed)
    }

    /// Adds its CPU time if it is on this CPU now.
    fn add_to(&mut self, times: &mut ThreadTimes, cpu: usize) -> Result<()> {
        let passed = self.advance()?;
        if passed == 0 {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.cpu, self.thread.cpu()?);
        if self.cpu == cpu {
            times.napi += passed;
            times.migrated += if before == cpu { 0 } else { passed };
        }
        Ok(())
    }
}

/// The run delay of a thread: its time on a run queue without a CPU.
pub struct RunDelay(Option<File>);

impl RunDelay {
    /// Of the calling thread. A kernel without `CONFIG_SCHED_INFO` does not count it.
    pub fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Nanoseconds since the start of the thread; `None` if the kernel does not count them.
    pub fn ns(&self) -> Option<u64> {
        let text = text(self.0.as_ref()?).ok()?;
        Some(schedstat(&text).1)
    }
}

/// A small file of /proc, from its beginning.
fn text(file: &File) -> Result<String> {
    let mut bytes = [0; 1024];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// CPU time and run delay in nanoseconds (Documentation/scheduler/sched-stats.rst).
fn schedstat(text: &str) -> (u64, u64) {
    let mut words = text.split_whitespace();
    let mut next = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// A field by its number in `proc_pid_stat(5)`, from 3. The name before may contain any byte.
fn stat_field(text: &str, number: usize) -> Option<u64> {
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "2600 (napi/v) 0-13369) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 \
        1151434 0 0 18446744073709551615 0 0 0 0 0 0 0 2147483647 0 1 0 0 17 1 0 0 0 0 0 0 0 0 0 \
        0 0 0 0\n";

    #[test]
    fn fields_are_those_of_the_manual() {
        assert_eq!(stat_field(STAT, 9), Some(2_129_984));
        assert_eq!(stat_field(STAT, 39), Some(1));
        assert_eq!(stat_field(STAT, 99), None);
        assert_eq!(stat_field("", 9), None);
        assert_eq!(
            schedstat("6154440380 109863939833 295910\n"),
            (6_154_440_380, 109_863_939_833)
        );
    }

    #[test]
    fn a_program_with_such_a_name_is_no_kernel_thread() {
        let open = || KernelThread::open(Path::new("/proc/thread-self")).is_none();
        let named = std::thread::Builder::new().name("napi/fake".into());
        let thread = named.spawn(open).expect("a thread");
        assert!(thread.join().expect("its end"));
    }

    #[test]
    fn the_run_delay_is_known_where_the_kernel_counts_it() {
        let delay = RunDelay::of_this_thread();
        assert_eq!(
            delay.ns().is_some(),
            Path::new("/proc/self/schedstat").exists()
        );
    }
}

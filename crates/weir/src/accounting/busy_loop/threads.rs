//! What threads of the kernel took of a CPU, as /proc tells it to anyone.

use std::fs;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// `PF_KTHREAD` of include/linux/sched.h, in the flags of /proc/PID/stat.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The threads of the kernel that work for the network.
#[derive(Debug, Clone, Default)]
pub struct NetworkThreads {
    ksoftirqd: Vec<Arc<KernelThread>>,
    napi: Vec<Arc<KernelThread>>,
}

/// A thread of the kernel.
#[derive(Debug)]
struct KernelThread {
    name: String,
    schedstat: File,
    stat: File,
}

impl NetworkThreads {
    /// All that can be seen now: none in a container, which has process numbers of its own.
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

    /// The names of the threads of NAPI instances, in no order.
    pub fn napi_names(&self) -> impl Iterator<Item = &str> {
        self.napi.iter().map(|thread| thread.name.as_str())
    }

    /// Follows them on one CPU.
    pub fn watch(&self, cpu: usize) -> Watched {
        let name = format!("ksoftirqd/{cpu}");
        let mut all = self.ksoftirqd.iter();
        let ksoftirqd = all.find(|thread| thread.name == name);
        Watched {
            cpu,
            ksoftirqd: ksoftirqd.and_then(|thread| Follow::start(thread).ok()),
            napi: self
                .napi
                .iter()
                .filter_map(|thread| Follow::start(thread).ok())
                .collect(),
        }
    }
}

impl KernelThread {
    /// The process in this directory of /proc, if it is such a thread.
    fn open(directory: &Path) -> Option<Self> {
        let name = fs::read_to_string(directory.join("comm")).ok()?;
        let name = name.trim_end();
        let ours = ["ksoftirqd/", "napi/", "backlog_napi/"];
        if !ours.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let thread = Self {
            name: name.into(),
            schedstat: File::open(directory.join("schedstat")).ok()?,
            stat: File::open(directory.join("stat")).ok()?,
        };
        // Any program may call itself so.
        let flags = stat_field(&text(&thread.stat).ok()?, 9)?;
        (flags & KERNEL_THREAD != 0).then_some(thread)
    }

    /// How long it has run. While it runs, this is as of the last timer tick.
    fn ran_ns(&self) -> Result<u64> {
        Ok(schedstat(&text(&self.schedstat)?).0)
    }

    /// The CPU that it is on, or was last.
    fn cpu(&self) -> Result<usize> {
        Ok(stat_field(&text(&self.stat)?, 39).unwrap_or(0) as usize)
    }
}

/// The threads that may run on one CPU.
pub struct Watched {
    cpu: usize,
    ksoftirqd: Option<Follow>,
    napi: Vec<Follow>,
}

/// A thread, and what was last seen of it.
struct Follow {
    thread: Arc<KernelThread>,
    ran_ns: u64,
    cpu: usize,
}

/// What the threads took of the CPU since they were last looked at, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Took {
    /// By ksoftirqd.
    pub ksoftirqd: u64,
    /// By the threads of NAPI instances.
    pub napi: u64,
    /// The part of `napi` of those that came from another CPU since, and of which some may
    /// be that one's.
    pub moved: u64,
}

impl Took {
    /// The same, where all of it was within so much time: what is over was on another CPU.
    pub fn within(self, ns: u64) -> Self {
        let ksoftirqd = self.ksoftirqd.min(ns);
        let napi = self.napi.min(ns - ksoftirqd);
        Self {
            ksoftirqd,
            napi,
            moved: self.moved.min(napi),
        }
    }
}

impl Watched {
    /// Whether ksoftirqd of this CPU can be seen.
    pub fn sees_ksoftirqd(&self) -> bool {
        self.ksoftirqd.is_some()
    }

    /// What they took since the last time. Called on the CPU itself, none of them is running
    /// there, and the figures are exact.
    pub fn take(&mut self) -> Took {
        let mut took = Took::default();
        if let Some(ksoftirqd) = &mut self.ksoftirqd {
            took.ksoftirqd = ksoftirqd.advance().unwrap_or(0);
        }
        let cpu = self.cpu;
        // A thread that cannot be read any more has ended with its device.
        self.napi
            .retain_mut(|thread| thread.take(cpu, &mut took).is_ok());
        took
    }
}

impl Follow {
    fn start(thread: &Arc<KernelThread>) -> Result<Self> {
        Ok(Self {
            ran_ns: thread.ran_ns()?,
            cpu: thread.cpu()?,
            thread: Arc::clone(thread),
        })
    }

    /// How long it ran since the last time.
    fn advance(&mut self) -> Result<u64> {
        let ran_ns = self.thread.ran_ns()?;
        let passed = ran_ns.saturating_sub(self.ran_ns);
        self.ran_ns = ran_ns;
        Ok(passed)
    }

    /// Adds what it took of this CPU, which is all or nothing, by where it is now.
    fn take(&mut self, cpu: usize, took: &mut Took) -> Result<()> {
        let passed = self.advance()?;
        if passed == 0 {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.cpu, self.thread.cpu()?);
        if self.cpu == cpu {
            took.napi += passed;
            took.moved += if before == cpu { 0 } else { passed };
        }
        Ok(())
    }
}

/// How long the calling thread has waited for a CPU.
pub struct OwnWait(Option<File>);

impl OwnWait {
    /// For the calling thread; a kernel without `CONFIG_SCHED_INFO` does not tell.
    pub fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Nanoseconds since the thread started; `None` if the kernel does not tell.
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

/// Nanoseconds on a CPU, and waiting for one (Documentation/scheduler/sched-stats.rst).
fn schedstat(text: &str) -> (u64, u64) {
    let mut words = text.split_whitespace();
    let mut next = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// A field by its number in `proc_pid_stat(5)`, from 3. The name before may hold anything.
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
    fn a_program_is_no_thread_of_the_kernel() {
        let open = || KernelThread::open(Path::new("/proc/thread-self")).is_none();
        let named = std::thread::Builder::new().name("napi/fake".into());
        let thread = named.spawn(open).expect("a thread");
        assert!(thread.join().expect("its end"));
    }

    #[test]
    fn waiting_is_counted_where_the_kernel_counts_it() {
        let wait = OwnWait::of_this_thread();
        assert_eq!(
            wait.ns().is_some(),
            Path::new("/proc/self/schedstat").exists()
        );
    }
}

//! Sets of CPUs in the kernel's formats, and the CPU affinity of threads.
//!
//! The kernel writes lists, such as `0-3,5` (cpuset(7), "List format"), in
//! `/sys/devices/system/cpu/online`, and masks, such as `00000000,0000002f` ("Mask format"), in
//! `rps_cpus` of a device's queue.
//!
//! The highest CPU is 1023, the limit of the C library's `cpu_set_t`.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::{fmt, fs};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Context as _, Error, Result};

/// CPUs in ascending order, each once.
///
/// ```
/// use hostnet::cpulist::CpuList;
///
/// let cpus: CpuList = "0-3,5".parse()?;
/// assert_eq!(cpus.as_slice(), [0, 1, 2, 3, 5]);
/// assert_eq!(cpus.to_string(), "0-3,5");
/// assert_eq!(cpus.mask(), "0000002f");
/// assert_eq!(CpuList::from_mask("2f")?, cpus);
/// # Ok::<(), hostnet::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// A list of these CPUs, given in any order.
    pub fn new(cpus: impl IntoIterator<Item = usize>) -> Self {
        let mut cpus: Vec<usize> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }

    /// The CPUs that the calling thread may run on (`sched_getaffinity(2)`), those that are
    /// offline left out.
    pub fn allowed() -> Result<Self> {
        let set = sched_getaffinity(None).context("cannot read this thread's CPU affinity")?;
        Ok(Self::new(
            (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)),
        ))
    }

    /// The online CPUs (`/sys/devices/system/cpu/online`), whether this process may use them or
    /// not.
    pub fn online() -> Result<Self> {
        Self::of_system("online")
    }

    /// The CPUs that can be present at some time (`/sys/devices/system/cpu/possible`).
    pub fn possible() -> Result<Self> {
        Self::of_system("possible")
    }

    fn of_system(which: &str) -> Result<Self> {
        let path = format!("/sys/devices/system/cpu/{which}");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        text.parse().with_context(|| format!("cannot read {path}"))
    }

    /// The CPUs of a mask: words of 32 bits in hexadecimal, separated by commas, the highest
    /// first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the text is no mask.
    ///
    /// [`ErrorKind::InvalidInput`]: crate::ErrorKind::InvalidInput
    pub fn from_mask(text: &str) -> Result<Self> {
        let mut cpus = Vec::new();
        for (index, word) in text.trim().rsplit(',').enumerate() {
            let word = u32::from_str_radix(word, 16).map_err(|_| {
                Error::invalid(format!(
                    "{text:?} is no mask of CPUs: write one such as f,0000002f"
                ))
            })?;
            let set = (0..32).filter(|bit| word >> bit & 1 == 1);
            cpus.extend(set.map(|bit| index * 32 + bit));
        }
        Ok(Self::new(cpus))
    }

    /// The mask of these CPUs, as the kernel reads it: as many words as the highest CPU needs.
    pub fn mask(&self) -> String {
        let mut words = vec![0_u32; self.0.last().map_or(0, |cpu| cpu / 32) + 1];
        for cpu in &self.0 {
            words[cpu / 32] |= 1 << (cpu % 32);
        }
        let words = words.iter().rev().map(|word| format!("{word:08x}"));
        words.collect::<Vec<_>>().join(",")
    }

    /// The CPUs, in ascending order.
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// Whether the two have no CPU in common.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        !self.0.iter().any(|cpu| other.0.contains(cpu))
    }

    /// Checks that the calling thread may run on each of these CPUs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for an empty list, or with the first CPU that is offline or
    /// outside the thread's affinity.
    ///
    /// [`ErrorKind::InvalidInput`]: crate::ErrorKind::InvalidInput
    pub fn check_allowed(&self) -> Result<()> {
        let allowed = Self::allowed()?;
        // Without sysfs, as in some containers, an offline CPU looks like one outside the
        // affinity.
        let [online, possible] = [Self::online(), Self::possible()].map(Result::ok);
        self.check_among(&allowed, online.as_ref(), possible.as_ref())
    }

    fn check_among(
        &self,
        allowed: &Self,
        online: Option<&Self>,
        possible: Option<&Self>,
    ) -> Result<()> {
        if self.0.is_empty() {
            return Err(Error::invalid(format!("no CPU: choose among {allowed}")));
        }
        let Some(cpu) = self.0.iter().find(|cpu| !allowed.0.contains(cpu)) else {
            return Ok(());
        };
        let is_none = possible.is_some_and(|possible| !possible.0.contains(cpu));
        Err(Error::invalid(match online {
            _ if is_none => format!("CPU {cpu} does not exist: choose among {allowed}"),
            Some(online) if !online.0.contains(cpu) => format!(
                "CPU {cpu} is offline: choose among {allowed}, or put it online \
                 by `echo 1 > /sys/devices/system/cpu/cpu{cpu}/online`"
            ),
            _ => format!(
                "this process may not run on CPU {cpu}: choose among {allowed}, \
                 or widen its set (`taskset`, cpuset.cpus of its cgroup)"
            ),
        }))
    }
}

/// Keeps the calling thread on one CPU (`sched_setaffinity(2)`).
///
/// # Errors
///
/// `EINVAL` if the CPU is offline, does not exist or is outside the cpuset of the thread's
/// cgroup.
///
/// ```
/// use hostnet::cpulist::{CpuList, pin};
///
/// let cpu = CpuList::allowed()?.as_slice()[0];
/// pin(cpu)?;
/// assert_eq!(CpuList::allowed()?.as_slice(), [cpu]);
/// # Ok::<(), hostnet::Error>(())
/// ```
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    // The kernel refuses an empty set as it refuses a CPU that does not exist.
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).with_context(|| {
        let online = CpuList::online().unwrap_or_default();
        format!("cannot run on CPU {cpu}: choose one that is online ({online}) and in this cgroup's cpuset")
    })
}

/// Reads a list. Empty text is a list without CPUs, as in `/sys/devices/system/cpu/offline`.
impl FromStr for CpuList {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let ranges = text.split(',').map(range).collect::<Result<Vec<_>>>()?;
        Ok(Self::new(ranges.into_iter().flatten()))
    }
}

/// `5` or `0-3`.
fn range(text: &str) -> Result<RangeInclusive<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(Error::invalid(format!(
            "{text} is no range of CPUs: write the lower one first"
        )));
    }
    Ok(first..=last)
}

fn number(text: &str) -> Result<usize> {
    let cpu = text
        .trim()
        .parse()
        .map_err(|_| Error::invalid(format!("{text:?} is no CPU: write a list such as 0-3,5")))?;
    if cpu >= CpuSet::MAX_CPU {
        return Err(Error::invalid(format!(
            "CPU {cpu} is out of range: the highest is {}",
            CpuSet::MAX_CPU - 1
        )));
    }
    Ok(cpu)
}

/// The list as the kernel writes it, such as `0-3,5`.
impl fmt::Display for CpuList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|cpu, next| cpu + 1 == *next);
        for (index, run) in runs.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(out, "{comma}{first}-{last}")?,
                [only] => write!(out, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().expect("a list of CPUs")
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        assert_eq!(list("0-3,5").as_slice(), [0, 1, 2, 3, 5]);
        assert_eq!(list("5,0-1,1\n").as_slice(), [0, 1, 5]);
        assert_eq!(list("\n").as_slice(), [0_usize; 0]);
        for text in ["0", "0-1", "0-3,5", "0,2,4-1023"] {
            assert_eq!(list(text).to_string(), text);
        }
    }

    #[test]
    fn masks_are_read_and_written_as_the_kernel_does() {
        let mask = |text| CpuList::from_mask(text).expect("a mask of CPUs");
        assert_eq!(mask("0"), CpuList::default());
        assert_eq!(mask("3\n"), list("0-1"));
        assert_eq!(mask("80000000,00000001,00000000"), list("32,95"));
        for text in ["00000000", "00000001", "80000000", "00000002,00000000"] {
            assert_eq!(mask(text).mask(), text);
        }
        for text in ["", "x", "1,"] {
            let error = CpuList::from_mask(text).expect_err(text).to_string();
            assert!(error.contains("no mask of CPUs"), "{text}: {error}");
        }
    }

    #[test]
    fn lists_share_cpus_or_do_not() {
        assert!(list("0-1,4").is_disjoint(&list("2-3")));
        assert!(!list("0-2").is_disjoint(&list("2-3")));
    }

    #[test]
    fn text_that_is_no_list_is_refused() {
        for (text, word) in [
            ("a", "such as 0-3,5"),
            ("1,", "such as 0-3,5"),
            ("-1", "such as 0-3,5"),
            ("1-", "such as 0-3,5"),
            ("3-1", "lower one first"),
            ("1024", "out of range"),
            ("0-99999999999", "out of range"),
        ] {
            let error = text.parse::<CpuList>().expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn a_cpu_that_cannot_be_used_is_named_with_those_that_can() {
        let (allowed, online, possible) = (list("0-1"), list("0-3"), list("0-7"));
        let check = |cpus: &CpuList| cpus.check_among(&allowed, Some(&online), Some(&possible));
        let said = |cpus: &CpuList| check(cpus).expect_err("refused").to_string();
        assert!(check(&list("0-1")).is_ok());
        assert!(said(&list("0-2")).contains("may not run on CPU 2: choose among 0-1"));
        let offline = said(&list("1,4"));
        assert!(offline.contains("CPU 4 is offline: choose among 0-1"));
        assert!(offline.contains("cpu4/online"), "{offline}");
        for cpu in [8, 1023, usize::MAX] {
            let none = said(&CpuList::new([cpu]));
            assert!(none.ends_with("does not exist: choose among 0-1"), "{none}");
        }
        assert!(said(&list("")).contains("no CPU"));
        // Without sysfs.
        let unknown = list("4").check_among(&allowed, None, None);
        let unknown = unknown.expect_err("refused").to_string();
        assert!(unknown.contains("may not run on CPU 4"), "{unknown}");
    }

    #[test]
    fn this_thread_may_run_somewhere() {
        let allowed = CpuList::allowed().expect("a set of CPUs");
        assert!(allowed.check_allowed().is_ok());
        std::thread::scope(|scope| {
            let pinned = scope.spawn(|| {
                assert!(pin(CpuSet::MAX_CPU).is_err());
                pin(allowed.as_slice()[0])?;
                CpuList::allowed()
            });
            let pinned = pinned.join().expect("a thread").expect("a set of CPUs");
            assert_eq!(pinned.as_slice(), &allowed.as_slice()[..1]);
        });
    }
}

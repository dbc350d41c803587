//! sysinfo(2): memory, swap, threads and uptime of the caller's container.

use super::super::caller::{read_proc, translate_pid};
use super::super::cgroup::{Hierarchies, Usage};
use super::super::rule::Rule;
use super::super::{Call, Handler};
use crate::seccomp::{Answer, Target};
use rustix::io::Errno;
use rustix::param::clock_ticks_per_second;

/// The handler's name.
pub const NAME: &str = "sysinfo";

/// When its calls are notified.
pub const RULES: &[Rule] = &[Rule::always(libc::SYS_sysinfo, NAME)];

/// Bytes of `struct sysinfo` with longs of 64 bits.
const SIZE: usize = 112;

/// Returns the limits of the caller's control groups, where they are less than the host has, and the
/// time since the first process of its pid namespace started.
#[derive(Debug)]
pub struct Sysinfo {
    hierarchies: Hierarchies,
}

impl Sysinfo {
    /// Looks for the control groups.
    pub fn new() -> Self {
        Self {
            hierarchies: Hierarchies::find(),
        }
    }
}

impl Default for Sysinfo {
    fn default() -> Self {
        Self::new()
    }
}

impl Handler for Sysinfo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> &'static [i64] {
        &[libc::SYS_sysinfo]
    }

    fn handle(&self, call: &Call<'_>) -> Result<Answer, Errno> {
        let target = call.target()?;
        let usage = self.hierarchies.usage(&read_proc(target, "cgroup")?);
        let mut info = Info::of_host();
        info.limit(&usage);
        if let Some(started) = start_of_container(target) {
            info.uptime = info.uptime.saturating_sub(started);
        }
        call.describe("memory and uptime of the container".to_owned());
        call.check_alive()?;
        target.write(call.word(0), &info.to_bytes())?;
        Ok(Answer::Value(0))
    }
}

/// When the first process of the caller's pid namespace started, in seconds since the boot.
fn start_of_container(target: &Target) -> Option<u64> {
    let first = translate_pid(target, 1).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).ok()?;
    // The name before, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    ticks.checked_div(clock_ticks_per_second())
}

/// `struct sysinfo`, whose unit is the byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Info {
    uptime: u64,
    loads: [u64; 3],
    total: u64,
    free: u64,
    shared: u64,
    buffers: u64,
    total_swap: u64,
    free_swap: u64,
    threads: u16,
}

impl Info {
    fn of_host() -> Self {
        let host = rustix::system::sysinfo();
        let unit = u64::from(host.mem_unit);
        Self {
            uptime: host.uptime as u64,
            loads: host.loads,
            total: host.totalram * unit,
            free: host.freeram * unit,
            shared: host.sharedram * unit,
            buffers: host.bufferram * unit,
            total_swap: host.totalswap * unit,
            free_swap: host.freeswap * unit,
            threads: host.procs,
        }
    }

    fn limit(&mut self, usage: &Usage) {
        if let Some(limit) = usage.limit.filter(|limit| *limit < self.total) {
            self.total = limit;
            self.free = self.free.min(limit.saturating_sub(usage.used));
            self.shared = usage.shared;
            self.buffers = usage.cache;
        }
        if let Some(limit) = usage.swap_limit.filter(|limit| *limit < self.total_swap) {
            self.total_swap = limit;
            self.free_swap = self.free_swap.min(limit.saturating_sub(usage.swap_used));
        }
        if let Some(threads) = usage.threads {
            self.threads = u16::try_from(threads).unwrap_or(u16::MAX);
        }
    }

    fn to_bytes(self) -> [u8; SIZE] {
        let words = [
            self.uptime,
            self.loads[0],
            self.loads[1],
            self.loads[2],
            self.total,
            self.free,
            self.shared,
            self.buffers,
            self.total_swap,
            self.free_swap,
            self.threads.into(),
            // The high memory of 32-bit hosts.
            0,
            0,
            // The unit.
            1,
        ];
        let mut bytes = [0; SIZE];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        // The one of musl has room for more.
        assert!(cfg!(target_env = "musl") || size_of::<libc::sysinfo>() == SIZE);
        let info = Info {
            uptime: 1,
            total: 2,
            free_swap: 3,
            threads: 4,
            ..Info::default()
        };
        let bytes = info.to_bytes();
        for (at, value) in [
            (offset_of!(libc::sysinfo, uptime), 1),
            (offset_of!(libc::sysinfo, totalram), 2),
            (offset_of!(libc::sysinfo, freeswap), 3),
            (offset_of!(libc::sysinfo, procs), 4),
            (offset_of!(libc::sysinfo, mem_unit), 1),
        ] {
            assert_eq!(bytes[at], value, "at {at}");
        }
    }

    #[test]
    fn limits_beyond_the_host_change_nothing() {
        let host = Info {
            total: 1000,
            free: 600,
            total_swap: 100,
            free_swap: 100,
            ..Info::default()
        };
        let mut info = host;
        info.limit(&Usage {
            limit: Some(2000),
            swap_limit: Some(200),
            ..Usage::default()
        });
        assert_eq!(info, host);
        info.limit(&Usage {
            limit: Some(500),
            used: 450,
            swap_limit: Some(10),
            swap_used: 20,
            ..Usage::default()
        });
        let expected = (500, 50, 10, 0);
        assert_eq!(
            (info.total, info.free, info.total_swap, info.free_swap),
            expected
        );
    }
}

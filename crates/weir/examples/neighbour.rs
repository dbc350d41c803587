//! A noisy neighbour, to see that the tests hold beside one: takes a share of each CPU in bursts of
//! 1 to 50 ms, for so many seconds.
//!
//!     cargo run --package weir --example neighbour -- SECONDS [PERCENT]

use std::time::{Duration, Instant};
use std::{hint, thread};

use anyhow::{Context as _, Result, ensure};
use hostnet::cpulist::{CpuList, pin};
use weir::process::clock::thread_cpu_ns;

/// The share of each CPU where none is given.
const PERCENT: u32 = 20;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let seconds = words
        .next()
        .context("for how long? neighbour SECONDS [PERCENT]")?;
    let seconds = seconds.parse().context("SECONDS is a whole number")?;
    let percent = words.next().map_or(Ok(PERCENT), |word| word.parse());
    let percent = percent.context("PERCENT is a whole number")?;
    ensure!((1..100).contains(&percent), "PERCENT is from 1 to 99");

    let end = Instant::now() + Duration::from_secs(seconds);
    let cpus = CpuList::allowed()?;
    thread::scope(|scope| {
        let bursts: Vec<_> = cpus
            .as_slice()
            .iter()
            .map(|&cpu| scope.spawn(move || burst_until(end, cpu, percent)))
            .collect();
        bursts.into_iter().try_for_each(|burst| {
            let result = burst.join();
            result.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
        })
    })
}

/// Bursts are counted by the CPU time that they got: where others want the CPU too, they last longer.
fn burst_until(end: Instant, cpu: usize, percent: u32) -> Result<()> {
    pin(cpu)?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ cpu as u64);
    while Instant::now() < end {
        let until = Duration::from_nanos(thread_cpu_ns()) + random.burst();
        while Duration::from_nanos(thread_cpu_ns()) < until {
            hint::spin_loop();
        }
        thread::sleep(random.burst() * (100 - percent) / percent);
    }
    Ok(())
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn burst(&mut self) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(1000 + self.0 % 49_000)
    }
}

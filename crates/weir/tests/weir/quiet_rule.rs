//! The rule of tests that need a quiet machine holds for a neighbour that is there, and for a test
//! that fails without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::{hint, thread};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::cpulist::{CpuList, pin};
use testkit::Skip;

use crate::quiet::when_quiet;
use crate::{Test, tests_alone};

pub fn trials() -> Vec<Test> {
    tests_alone![
        a_neighbour_is_seen_before_the_test,
        a_neighbour_is_seen_after_the_test,
        what_a_test_finds_without_a_neighbour_stands,
    ]
}

/// A neighbour that never sleeps takes about half of a CPU.
const LIMIT: f64 = 20.0;

/// The last CPU that this process may use.
fn a_cpu() -> Result<CpuList> {
    let allowed = CpuList::allowed()?;
    let last = allowed.as_slice().last().context("no CPU")?;
    Ok(CpuList::new([*last]))
}

/// Another thread that wants the same CPU all the time.
struct Neighbour {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    fn on(cpu: &CpuList) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (cpu, seen) = (cpu.as_slice()[0], Arc::clone(&ended));
        let thread = thread::spawn(move || {
            // Where this fails the neighbour is not seen, and the test says so.
            let _ = pin(cpu);
            while !seen.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
        });
        Self {
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn a_neighbour_is_seen_before_the_test() -> Result<()> {
    let cpu = a_cpu()?;
    let _neighbour = Neighbour::on(&cpu);
    let seen = when_quiet(&cpu, LIMIT, || -> Result<()> { bail!("the test ran") });
    ensure_noise(seen, &format!("CPU {cpu} lost"), "before it, limit 20%")
}

fn a_neighbour_is_seen_after_the_test() -> Result<()> {
    let cpu = a_cpu()?;
    let mut neighbour = None;
    let passed = when_quiet(&cpu, LIMIT, || {
        neighbour = Some(Neighbour::on(&cpu));
        Ok(())
    });
    if neighbour.is_none() {
        // There was another one.
        return passed;
    }
    ensure_noise(passed, "after it", "limit 20%")?;
    drop(neighbour.take());
    let failed = when_quiet(&cpu, LIMIT, || -> Result<()> {
        neighbour = Some(Neighbour::on(&cpu));
        bail!("too slow")
    });
    if neighbour.is_none() {
        return failed;
    }
    ensure_noise(failed, "after it", "it would have failed: too slow")
}

fn ensure_noise(result: Result<()>, one: &str, other: &str) -> Result<()> {
    let Err(error) = result else {
        bail!("it passed beside a neighbour");
    };
    let noise = error.downcast::<Skip>()?.to_string();
    ensure!(noise.contains(one) && noise.contains(other), "{noise}");
    Ok(())
}

fn what_a_test_finds_without_a_neighbour_stands() -> Result<()> {
    // No CPU loses more than all of its time.
    const ALL: f64 = 100.0;
    let cpus = CpuList::allowed()?;
    ensure!(when_quiet(&cpus, ALL, || Ok(5))? == 5, "another result");
    let failed = when_quiet(&cpus, ALL, || -> Result<()> { bail!("too slow") });
    let said = failed.err().context("it passed")?.to_string();
    ensure!(said == "too slow", "{said}");
    Ok(())
}

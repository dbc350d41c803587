//! Tracepoints within a limit of their own CPU time.
//!
//! A tracepoint that fires for each packet costs some 100 ns: little at a thousand packets a second,
//! a quarter of the CPU at a million. So the kernel measures the programs' run time periodically, and
//! where they would exceed the limit, they are duty-cycled: attached in short windows only.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::tracepoints::{CpuTotals, Irq, Napi, Sample, Task, Tracepoints};

/// For how long the kernel measures the programs. That costs two more readings of the clock a run.
const TIMED: Duration = Duration::from_millis(20);
/// The period of these measurements while the tracepoints are always attached.
const TIMED_EVERY: Duration = Duration::from_millis(500);
/// The shortest window: attaching and detaching costs some 2 ms.
const SHORTEST: Duration = Duration::from_millis(10);
/// The shortest period of windows.
const PERIOD: Duration = Duration::from_millis(500);
/// The part of the limit that is used. The kernel does not measure the entry and exit of a program,
/// which cost about as much again.
const AIM: f64 = 0.15;
/// The assumed run time of a program, where the kernel does not measure it: higher than any that was
/// measured on a busy CPU.
const RUN_NS: f64 = 150.0;
/// The smallest duty cycle: a shortest window every two seconds.
const LEAST: f64 = 0.005;
/// The limit is not enforced before this: the first window may have met a burst.
const JUDGED: Duration = Duration::from_millis(1500);
/// The most slices that are kept; beyond, pairs are merged.
const MOST_SLICES: usize = 4096;

/// Duty-cycled tracepoints.
pub struct DutyCycle {
    tracepoints: Tracepoints,
    /// The limit of their cost, in percent of one CPU.
    limit: f64,
    begun: Instant,
    slices: CpuSlices,
    /// The end of the last slice, while the tracepoints are attached.
    last: Option<Sample>,
    timed_at: Instant,
    /// Whether the kernel measures the programs.
    is_timed: bool,
    /// The measured runs, and their time.
    timed_runs: u64,
    timed_ns: u64,
    /// Their cost while attached, in percent of one CPU, in the last slice.
    percent: f64,
    /// The cost so far: percent of a CPU times seconds.
    spent: f64,
    spent_at: Instant,
    next_window: Instant,
    window: Duration,
}

/// The result of the tracepoints.
pub struct Observed {
    /// The sums.
    pub slices: CpuSlices,
    /// Tasks.
    pub tasks: Vec<Task>,
    /// Devices' interrupts.
    pub irqs: Vec<Irq>,
    /// NAPI instances.
    pub napis: Vec<Napi>,
    /// Whether the timer's interrupt and IPIs were observed.
    pub sees_vectors: bool,
    /// Whether late timers were observed.
    pub sees_late_timers: bool,
    /// The mean cost in percent of one CPU, with the pauses.
    pub own_percent: f64,
    /// The run time of one run of a program; `None` where the kernel did not measure it, and the cost
    /// is an estimate.
    pub own_ns_per_run: Option<f64>,
    /// The duty cycle. Tasks, interrupts and NAPI instances are extrapolated to all of the time.
    pub share: f64,
    /// Whether interrupts or NAPI instances may be missing, as their map is full.
    pub lists_full: bool,
}

/// The sums of an observation that goes on. All of them count the same time, [`CpuTotals::observed_ns`].
pub struct SoFar {
    /// Of each CPU.
    pub cpus: Vec<CpuTotals>,
    /// Tasks.
    pub tasks: Vec<Task>,
    /// NAPI instances.
    pub napis: Vec<Napi>,
    /// The mean cost in percent of one CPU, with the pauses.
    pub own_percent: f64,
    /// Whether NAPI instances may be missing, as their map is full.
    pub lists_full: bool,
}

/// The sums of each CPU, slice by slice, in constant memory.
#[derive(Debug, Default)]
pub struct CpuSlices {
    /// The sums of all, by CPU.
    pub totals: Vec<CpuTotals>,
    /// The length of all, in nanoseconds.
    pub wall_ns: u64,
    /// Nanoseconds in interrupts and nanoseconds observed of each slice, for each CPU.
    pub interrupts: Vec<Vec<(f64, f64)>>,
    /// Slices that are merged into one.
    merged: usize,
    /// Slices in the one that is being merged.
    pending: usize,
}

impl DutyCycle {
    /// Begins with a short window, as the cost is still unknown.
    pub fn new(tracepoints: Tracepoints, limit: f64) -> Result<Self> {
        let now = Instant::now();
        let mut duty_cycle = Self {
            tracepoints,
            limit,
            begun: now,
            slices: CpuSlices::default(),
            last: None,
            timed_at: now,
            is_timed: true,
            timed_runs: 0,
            timed_ns: 0,
            percent: 0.0,
            spent: 0.0,
            spent_at: now,
            next_window: now,
            window: SHORTEST,
        };
        duty_cycle.open_window()?;
        Ok(duty_cycle)
    }

    /// Adds the time since the last call.
    pub fn sample(&mut self) -> Result<()> {
        match self.last.take() {
            Some(last) => self.sample_slice(&last),
            None if Instant::now() >= self.next_window => self.open_window(),
            None => Ok(()),
        }
    }

    fn sample_slice(&mut self, last: &Sample) -> Result<()> {
        if self.timed_at.elapsed() >= TIMED_EVERY {
            self.timed_at = Instant::now();
            self.time(TIMED);
        }
        let now = self.tracepoints.sample()?;
        self.slices.add(last, &now);
        self.estimate(last, &now);
        self.spend(self.spent_at.elapsed());
        if self.share() < 1.0 {
            self.pause();
        } else {
            self.last = Some(now);
        }
        Ok(())
    }

    /// Detaches them until the next window.
    fn pause(&mut self) {
        self.tracepoints.pause();
        let share = self.share();
        let window = PERIOD.mul_f64(share).max(SHORTEST);
        self.next_window = Instant::now() + window.mul_f64(1.0 / share - 1.0);
        self.window = window;
    }

    fn open_window(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.tracepoints.resume()?;
        let before = self.tracepoints.sample()?;
        let timed = self.window.min(TIMED);
        self.time(timed);
        sleep(self.window.saturating_sub(timed));
        let after = self.tracepoints.sample()?;
        self.slices.add(&before, &after);
        self.estimate(&before, &after);
        self.spend(begun.elapsed());
        if self.share() < 1.0 {
            self.pause();
        } else {
            self.last = Some(after);
        }
        Ok(())
    }

    /// Waits for so long while the kernel measures the programs.
    fn time(&mut self, length: Duration) {
        if self.is_timed {
            match self.tracepoints.program_time(length) {
                Ok(time) => {
                    self.timed_runs += time.runs;
                    self.timed_ns += time.ns;
                }
                // It needs CAP_SYS_ADMIN.
                Err(_) => self.is_timed = false,
            }
        }
        if !self.is_timed {
            sleep(length);
        }
    }

    fn ns_per_run(&self) -> f64 {
        match self.timed_runs {
            0 => RUN_NS,
            runs => self.timed_ns as f64 / runs as f64,
        }
    }

    /// Estimates the cost of a slice from its run count: the rate of runs may change from one slice to
    /// the next, the time of a run hardly does.
    fn estimate(&mut self, before: &Sample, after: &Sample) {
        let cpus = after.cpus.iter().zip(&before.cpus);
        let runs: u64 = cpus.map(|(now, then)| now.since(then).runs()).sum();
        let wall = (after.at_ns - before.at_ns).max(1) as f64;
        self.percent = runs as f64 * self.ns_per_run() / wall * 100.0;
    }

    /// Adds the cost of so long an observation.
    fn spend(&mut self, length: Duration) {
        self.spent += self.percent * length.as_secs_f64();
        self.spent_at = Instant::now();
    }

    /// The duty cycle within the limit.
    fn share(&self) -> f64 {
        (self.limit * AIM / self.percent.max(f64::MIN_POSITIVE)).clamp(LEAST, 1.0)
    }

    /// The mean cost so far, in percent of one CPU.
    fn average(&self) -> f64 {
        self.spent / self.begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Whether the cost exceeds the limit despite the duty cycle. `reading` is the CPU time of reading
    /// the sums so far.
    pub fn is_over_limit(&self, reading: Duration) -> bool {
        let elapsed = self.begun.elapsed();
        let reading = reading.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
        elapsed >= JUDGED && self.average() + reading > self.limit
    }

    /// The sums up to now.
    pub fn so_far(&self) -> Result<SoFar> {
        let cpus = self.tracepoints.sample()?.cpus;
        let napis = self.tracepoints.napis()?;
        Ok(SoFar {
            cpus,
            tasks: self.tracepoints.tasks()?,
            own_percent: self.average(),
            lists_full: self.tracepoints.is_full(&[], &napis),
            napis,
        })
    }

    /// Ends the observation.
    pub fn finish(mut self) -> Result<Observed> {
        if let Some(last) = self.last.take() {
            let now = self.tracepoints.sample()?;
            self.slices.add(&last, &now);
            self.spend(self.spent_at.elapsed());
        } else if self.slices.wall_ns == 0 {
            self.open_window()?;
        }
        let sample = self.tracepoints.sample()?;
        let observed_ns = sample.cpus.iter().map(|cpu| cpu.observed_ns).max();
        let share = observed_ns.unwrap_or(0) as f64 / self.begun.elapsed().as_nanos().max(1) as f64;
        let share = share.clamp(f64::MIN_POSITIVE, 1.0);
        let factor = 1.0 / share;
        // The busy loops go on: without tracepoints, missing events must not count as gaps.
        self.tracepoints.pause();
        let (tasks, irqs) = (self.tracepoints.tasks()?, self.tracepoints.irqs()?);
        let napis = self.tracepoints.napis()?;
        let lists_full = self.tracepoints.is_full(&irqs, &napis);
        Ok(Observed {
            tasks: tasks.into_iter().map(|it| it.scaled(factor)).collect(),
            irqs: irqs.into_iter().map(|it| it.scaled(factor)).collect(),
            napis: napis.into_iter().map(|it| it.scaled(factor)).collect(),
            sees_vectors: self.tracepoints.sees_vectors(),
            sees_late_timers: self.tracepoints.sees_late_timers(),
            own_percent: self.average(),
            own_ns_per_run: self.is_timed.then_some(self.ns_per_run()),
            share,
            lists_full,
            slices: self.slices,
        })
    }
}

impl CpuSlices {
    fn add(&mut self, before: &Sample, after: &Sample) {
        let wall = after.at_ns - before.at_ns;
        let between: Vec<CpuTotals> = after
            .cpus
            .iter()
            .zip(&before.cpus)
            .map(|(after, before)| after.since(before))
            .collect();
        if self.totals.is_empty() {
            self.totals.clone_from(&between);
            self.interrupts = vec![Vec::new(); between.len()];
            self.merged = 1;
        } else {
            for (total, more) in self.totals.iter_mut().zip(&between) {
                *total = total.plus(more);
            }
        }
        self.wall_ns += wall;
        self.keep(&between);
    }

    fn keep(&mut self, between: &[CpuTotals]) {
        for (slices, cpu) in self.interrupts.iter_mut().zip(between) {
            // Not by the reader's clock: the reader may have waited for a CPU.
            let (interrupts, wall) = (cpu.interrupts_ns() as f64, cpu.observed_ns as f64);
            match slices.last_mut().filter(|_| self.pending > 0) {
                Some(last) => *last = (last.0 + interrupts, last.1 + wall),
                None => slices.push((interrupts, wall)),
            }
        }
        self.pending = (self.pending + 1) % self.merged;
        if self.pending == 0
            && self
                .interrupts
                .first()
                .is_some_and(|it| it.len() >= MOST_SLICES)
        {
            self.merged *= 2;
            for slices in &mut self.interrupts {
                *slices = slices
                    .chunks(2)
                    .map(|pair| {
                        pair.iter()
                            .fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
                    })
                    .collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_slices_keep_the_sums() {
        let mut slices = CpuSlices::default();
        let mut before = Sample {
            at_ns: 0,
            cpus: vec![CpuTotals::default()],
        };
        let all = 3 * MOST_SLICES as u64;
        for number in 1..=all {
            let mut after = before.clone();
            after.at_ns = number * 100;
            after.cpus[0].times.irq_ns = number * 10;
            after.cpus[0].observed_ns = number * 100;
            slices.add(&before, &after);
            before = after;
        }
        let kept = &slices.interrupts[0];
        let sum = |of: fn(&(f64, f64)) -> f64| kept.iter().map(of).sum::<f64>();
        assert!(kept.len() < MOST_SLICES, "{}", kept.len());
        assert!((sum(|it| it.0) - all as f64 * 10.0).abs() < 0.5);
        assert!((sum(|it| it.1) - all as f64 * 100.0).abs() < 0.5);
        assert_eq!(slices.totals[0].times.irq_ns, all * 10);
        assert_eq!(slices.wall_ns, all * 100);
    }
}

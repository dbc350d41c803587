//! Looking by tracepoints no more than they may cost.
//!
//! A tracepoint that comes with each packet costs some 100 ns: little at a thousand packets a
//! second, a quarter of the CPU at a million. So the kernel times the programs now and then, and
//! where they would cost more than they may, they are detached but for short windows.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::measure::Accounted;
use super::tracepoints::{Accounting, CpuTotals, Sample};

/// How long the kernel times the programs. That costs two more readings of the clock a run.
const TIMED: Duration = Duration::from_millis(20);
/// From one such time to the next while all is looked at.
const TIMED_EVERY: Duration = Duration::from_millis(500);
/// The shortest window, and from one to the next at least: attaching and detaching costs some
/// 2 ms.
const SHORTEST: Duration = Duration::from_millis(10);
const PERIOD: Duration = Duration::from_millis(500);
/// What of the limit is made use of. The kernel's timing leaves out what comes before and after a
/// program, which is about as much again.
const AIM: f64 = 0.15;
/// What a run of a program takes, where the kernel does not time it: more than was seen on any
/// busy CPU.
const RUN_NS: f64 = 150.0;
/// The smallest share of the time that is still looked at: a shortest window in two seconds.
const LEAST: f64 = 0.005;
/// Before this nothing is judged: the first look may have met a burst.
const JUDGED: Duration = Duration::from_millis(1500);
/// The most slices that are kept; from there on two become one, again and again.
const MOST_SLICES: usize = 4096;

/// The tracepoints, and when they look.
pub struct Watch {
    accounting: Accounting,
    /// The most that they may cost, in percent of one CPU.
    limit: f64,
    begun: Instant,
    slices: Slices,
    /// While all is looked at: the end of the last slice.
    last: Option<Sample>,
    timed_at: Instant,
    /// Whether the kernel times the programs.
    is_timed: bool,
    /// The runs that were timed, and what they took.
    timed_runs: u64,
    timed_ns: u64,
    /// What they cost while they look, in percent of one CPU, in the last slice.
    percent: f64,
    /// The cost so far: percent of a CPU times seconds.
    spent: f64,
    spent_at: Instant,
    next_window: Instant,
    window: Duration,
}

/// What was seen of each CPU, slice by slice, in constant memory.
#[derive(Debug, Default)]
pub struct Slices {
    /// The sums of all, by CPU.
    pub totals: Vec<CpuTotals>,
    /// The length of all, in nanoseconds.
    pub wall_ns: u64,
    /// The stolen and the whole nanoseconds of each, for each CPU.
    pub stolen: Vec<Vec<(f64, f64)>>,
    /// Slices that are now one.
    merged: usize,
    /// How many have come since the last one that was kept.
    waiting: usize,
}

impl Watch {
    /// Looks from now on. The first look is a short one: until then nobody knows what it costs.
    pub fn new(accounting: Accounting, limit: f64) -> Result<Self> {
        let now = Instant::now();
        let mut watch = Self {
            accounting,
            limit,
            begun: now,
            slices: Slices::default(),
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
        watch.look_through_a_window()?;
        Ok(watch)
    }

    /// Adds what has passed since the last call.
    pub fn look(&mut self) -> Result<()> {
        match self.last.take() {
            Some(last) => self.look_on(&last),
            None if Instant::now() >= self.next_window => self.look_through_a_window(),
            None => Ok(()),
        }
    }

    fn look_on(&mut self, last: &Sample) -> Result<()> {
        if self.timed_at.elapsed() >= TIMED_EVERY {
            self.timed_at = Instant::now();
            self.time(TIMED);
        }
        let now = self.accounting.sample()?;
        self.slices.add(last, &now);
        self.reckon(last, &now);
        self.spend(self.spent_at.elapsed());
        if self.share() < 1.0 {
            self.pause();
        } else {
            self.last = Some(now);
        }
        Ok(())
    }

    /// Until the next window.
    fn pause(&mut self) {
        self.accounting.pause();
        let share = self.share();
        let window = PERIOD.mul_f64(share).max(SHORTEST);
        self.next_window = Instant::now() + window.mul_f64(1.0 / share - 1.0);
        self.window = window;
    }

    fn look_through_a_window(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.accounting.resume()?;
        let before = self.accounting.sample()?;
        let timed = self.window.min(TIMED);
        self.time(timed);
        sleep(self.window.saturating_sub(timed));
        let after = self.accounting.sample()?;
        self.slices.add(&before, &after);
        self.reckon(&before, &after);
        self.spend(begun.elapsed());
        if self.share() < 1.0 {
            self.pause();
        } else {
            self.last = Some(after);
        }
        Ok(())
    }

    /// Waits for so long while the kernel times the programs.
    fn time(&mut self, length: Duration) {
        if self.is_timed {
            match self.accounting.own_cost(length) {
                Ok(cost) => {
                    self.timed_runs += cost.runs;
                    self.timed_ns += cost.ns;
                }
                // That needs CAP_SYS_ADMIN.
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

    /// Reckons what a slice cost by the number of runs: they may come faster from one slice to the
    /// next, what one takes hardly changes.
    fn reckon(&mut self, before: &Sample, after: &Sample) {
        let cpus = after.cpus.iter().zip(&before.cpus);
        let runs: u64 = cpus.map(|(now, then)| now.since(then).runs()).sum();
        let wall = (after.at_ns - before.at_ns).max(1) as f64;
        self.percent = runs as f64 * self.ns_per_run() / wall * 100.0;
    }

    /// Counts what looking for so long cost.
    fn spend(&mut self, length: Duration) {
        self.spent += self.percent * length.as_secs_f64();
        self.spent_at = Instant::now();
    }

    /// The share of the time that may be looked at.
    fn share(&self) -> f64 {
        (self.limit * AIM / self.percent.max(f64::MIN_POSITIVE)).clamp(LEAST, 1.0)
    }

    /// What it has cost so far, in percent of one CPU.
    fn average(&self) -> f64 {
        self.spent / self.begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Whether it costs more than it may, though it looks so seldom. `reading` is what reading the
    /// sums took so far.
    pub fn is_too_dear(&self, reading: Duration) -> bool {
        let elapsed = self.begun.elapsed();
        let reading = reading.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
        elapsed >= JUDGED && self.average() + reading > self.limit
    }

    /// All that was seen.
    pub fn finish(mut self) -> Result<Accounted> {
        if let Some(last) = self.last.take() {
            let now = self.accounting.sample()?;
            self.slices.add(&last, &now);
            self.spend(self.spent_at.elapsed());
        } else if self.slices.wall_ns == 0 {
            self.look_through_a_window()?;
        }
        let sample = self.accounting.sample()?;
        let observed = sample.cpus.iter().map(|cpu| cpu.observed_ns).max();
        let observed = observed.unwrap_or(0) as f64 / self.begun.elapsed().as_nanos().max(1) as f64;
        let observed = observed.clamp(f64::MIN_POSITIVE, 1.0);
        let factor = 1.0 / observed;
        // The loads go on, and must not take the kernel for idle when its tracepoints are gone.
        self.accounting.pause();
        let (tasks, irqs) = (self.accounting.tasks()?, self.accounting.irqs()?);
        let napis = self.accounting.napis()?;
        let lists_full = self.accounting.is_full(&irqs, &napis);
        Ok(Accounted {
            tasks: tasks.into_iter().map(|it| it.scaled(factor)).collect(),
            irqs: irqs.into_iter().map(|it| it.scaled(factor)).collect(),
            napis: napis.into_iter().map(|it| it.scaled(factor)).collect(),
            sees_vectors: self.accounting.sees_vectors(),
            sees_late_timers: self.accounting.sees_late_timers(),
            own_percent: self.average(),
            own_ns_per_run: self.is_timed.then_some(self.ns_per_run()),
            observed,
            lists_full,
            slices: self.slices,
        })
    }
}

impl Slices {
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
            self.stolen = vec![Vec::new(); between.len()];
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
        for (slices, cpu) in self.stolen.iter_mut().zip(between) {
            // Not the reader's clock: the reader may have had to wait for a CPU.
            let (stolen, wall) = (cpu.stolen_ns() as f64, cpu.observed_ns as f64);
            match slices.last_mut().filter(|_| self.waiting > 0) {
                Some(last) => *last = (last.0 + stolen, last.1 + wall),
                None => slices.push((stolen, wall)),
            }
        }
        self.waiting = (self.waiting + 1) % self.merged;
        if self.waiting == 0
            && self
                .stolen
                .first()
                .is_some_and(|it| it.len() >= MOST_SLICES)
        {
            self.merged *= 2;
            for slices in &mut self.stolen {
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
    fn slices_stay_few_and_lose_nothing() {
        let mut slices = Slices::default();
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
        let kept = &slices.stolen[0];
        let sum = |of: fn(&(f64, f64)) -> f64| kept.iter().map(of).sum::<f64>();
        assert!(kept.len() < MOST_SLICES, "{}", kept.len());
        assert!((sum(|it| it.0) - all as f64 * 10.0).abs() < 0.5);
        assert!((sum(|it| it.1) - all as f64 * 100.0).abs() < 0.5);
        assert_eq!(slices.totals[0].times.irq_ns, all * 10);
        assert_eq!(slices.wall_ns, all * 100);
    }
}

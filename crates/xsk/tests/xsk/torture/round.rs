//! A round: a plan carried out, and its books balanced.

use super::books::Book;
use super::budget::{SET_UP, SETTLE};
use super::crew::{UNDER_WAY, Work};
use super::failure::{Check, Failure, Result, ensure, fail};
use super::hostile;
use super::lab::{End, Lab};
use super::plan::{Event, Plan, Temper};
use super::side::{Crew, Round, Side};
use fastrand::Rng;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Limit, wait_until};
use xsk::{Mode, Umem};

/// The sums of rounds.
#[derive(Debug, Default, Clone, Copy, serde::Serialize)]
pub struct Sums {
    pub rounds: u64,
    pub sent: u64,
    pub received: u64,
    pub dropped: u64,
    /// Lost uncounted when sockets closed and links went down.
    pub lost_in_faults: u64,
    pub opened: u64,
    pub links_down: u64,
    pub moves: u64,
}

/// Carries out a plan; adds what was seen to `sums`. Nothing of it may be left in this process.
pub fn run(plan: &Plan, sums: &mut Sums) -> Result<()> {
    let before = open_descriptors()?;
    carry_out(plan, sums)?;
    nothing_mapped()?;
    let after = open_descriptors()?;
    ensure(after == before, Check::Leftovers, || {
        format!("{after} descriptors are open, {before} were before")
    })
}

fn carry_out(plan: &Plan, sums: &mut Sums) -> Result<()> {
    let queues: Vec<u32> = plan.devices.iter().map(|device| device.queues).collect();
    let mut lab = Lab::new(&queues, plan.mtu())?;
    // Pairs of their own, which the books are not about.
    let attacked = plan
        .hostile
        .then(|| Lab::new(&[1], plan.mtu()))
        .transpose()?;
    let books = [Book::default(), Book::default()];
    let round = Round {
        originate: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        down: AtomicBool::new(false),
        opened: AtomicU64::new(0),
        failures: Mutex::default(),
        crews: (0..2 * queues.len() + usize::from(plan.hostile))
            .map(|_| Crew::default())
            .collect(),
    };
    let mut umems = Vec::new();
    for chunks in plan.chunks {
        let umem = Umem::builder().chunks(chunks).chunk_size(plan.chunk_size);
        let umem = umem.fragments(plan.temper == Temper::Jumbo);
        umems.push(umem.build()?);
    }
    // The book of an end is that of packets to it.
    let sides =
        [0, 1].map(|end| Side::new(&round, umems[end].clone(), &books[end], &books[1 - end]));
    let namespaces = [0, 1].map(|end| lab.ends[end].namespace().try_clone_to_owned());
    let [near, far] = namespaces;
    let namespaces = [near?, far?];
    let conducted = std::thread::scope(|scope| {
        for (number, crew) in round.crews.iter().enumerate().take(2 * queues.len()) {
            let (end, device) = (number % 2, number / 2);
            let work = Work {
                plan,
                side: &sides[end],
                crew,
                end,
                device,
                namespace: std::os::fd::AsFd::as_fd(&namespaces[end]),
            };
            scope.spawn(move || work.run());
        }
        if let (Some(lab), Some(crew)) = (&attacked, round.crews.last()) {
            let (round, namespaces) = (&round, lab.ends.each_ref().map(End::namespace));
            scope.spawn(move || hostile::run(plan, round, crew, namespaces));
        }
        let conductor = Conductor {
            plan,
            round: &round,
            sides: &sides,
            books: &books,
            lab: &mut lab,
            sums,
        };
        let conducted = conductor.conduct();
        round.stop.store(true, SeqCst);
        round.wait_for_the_end(plan);
        conducted
    });
    let mut failures = round.failures.lock().expect("no panic");
    if !failures.is_empty() {
        return Err(failures.swap_remove(0));
    }
    conducted?;
    // With the packets that nobody came to send.
    drop(sides);
    for umem in &umems {
        let count = umem.accounting();
        ensure(count.free == umem.chunks(), Check::Chunks, || {
            format!("of {} chunks: {count:?}", umem.chunks())
        })?;
    }
    Ok(())
}

/// The thread that causes the events and balances the books.
struct Conductor<'r, 's> {
    plan: &'r Plan,
    round: &'r Round,
    sides: &'r [Side<'s>; 2],
    books: &'r [Book; 2],
    lab: &'r mut Lab,
    sums: &'r mut Sums,
}

impl Conductor<'_, '_> {
    fn conduct(mut self) -> Result<()> {
        for crew in &self.round.crews {
            if !crew.wait_until_ready(SET_UP) {
                return fail(Check::Hang, "a thread does not open its sockets");
            }
        }
        self.round.originate.store(true, SeqCst);
        self.events()?;
        self.round.originate.store(false, SeqCst);
        let settled = self.settle();
        if !self.round.is_over() {
            settled?;
        }
        self.add_up();
        Ok(())
    }

    fn events(&mut self) -> Result<()> {
        let mut random = Rng::with_seed(self.plan.seed ^ 1);
        let (mut watch, begin) = (Watch::new(self.round), Instant::now());
        for &(pause, event) in &self.plan.events {
            std::thread::sleep(pause);
            if self.round.is_over() || begin.elapsed() > self.plan.time {
                break;
            }
            watch.look(self.round)?;
            match event {
                Event::Move => self.move_thread(&mut random),
                Event::Down {
                    end,
                    device,
                    millis,
                } => self.link_down(end, device, millis)?,
            }
        }
        Ok(())
    }

    /// Restricts a thread to one CPU, or to none in particular.
    fn move_thread(&mut self, random: &mut Rng) {
        let Ok(allowed) = hostnet::cpulist::CpuList::allowed() else {
            return;
        };
        let crew = &self.round.crews[random.usize(..self.round.crews.len())];
        let threads = crew.threads.lock().expect("no panic");
        let Some(&thread) = threads.get(random.usize(..threads.len().max(1))) else {
            return;
        };
        let mut cpus = CpuSet::new();
        if random.bool() {
            cpus.set(allowed.as_slice()[random.usize(..allowed.as_slice().len())]);
        } else {
            allowed.as_slice().iter().for_each(|&cpu| cpus.set(cpu));
        }
        // A thread that has ended cannot be moved.
        if sched_setaffinity(Some(thread), &cpus).is_ok() {
            self.sums.moves += 1;
        }
    }

    fn link_down(&mut self, end: usize, device: usize, millis: u64) -> Result<()> {
        self.round.down.store(true, SeqCst);
        let windows = [0, 1].map(|end| self.books[end].begin_window());
        self.lab.set(end, device, false)?;
        std::thread::sleep(Duration::from_millis(millis));
        self.lab.set(end, device, true)?;
        self.sums.links_down += 1;
        for (book, window) in self.books.iter().zip(windows) {
            book.end_window(window, UNDER_WAY * self.plan.devices[device].queues);
        }
        // `down` stays: a thread may look at its error when the device is up again.
        Ok(())
    }

    /// Waits until each packet is accounted for.
    fn settle(&mut self) -> Result<()> {
        let mut watch = Watch::new(self.round);
        // Within the allowance packets may still be under way: the balance must not change for so long.
        let mut quiet = Limit::new(Duration::from_millis(200));
        let (mut last, mut limit) = (None, Limit::new(SETTLE));
        loop {
            if self.round.is_over() {
                return Ok(());
            }
            watch.look(self.round)?;
            let now = self.balances()?;
            let idle = self
                .books
                .iter()
                .all(|book| book.unfinished.load(SeqCst) == 0);
            if last != Some(now) {
                last = Some(now);
                quiet.restart();
                limit.restart();
            }
            let may_be = now.iter().all(Balance::may_be) && quiet.is_over();
            if idle && (now.iter().all(Balance::is_even) || may_be) {
                let missing = now.iter().map(|balance| balance.missing.max(0) as u64);
                self.sums.lost_in_faults += missing.sum::<u64>();
                return Ok(());
            }
            if limit.is_over() {
                let check = if idle {
                    Check::Balance
                } else {
                    Check::Completions
                };
                let counters = self.counters();
                return fail(check, format!("{now:?}: {:?}, {counters}", self.books));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The balance of the packets to each end.
    fn balances(&mut self) -> Result<[Balance; 2]> {
        Ok([self.balance(0)?, self.balance(1)?])
    }

    fn balance(&mut self, to: usize) -> Result<Balance> {
        let [sent, received] = self.lab.dropped(1 - to)?;
        // Where a native program redirects, what a socket drops is counted as a drop of the device as well.
        let by_sockets = match self.plan.mode {
            Mode::Skb => self.books[to].dropped.load(SeqCst),
            _ => 0,
        };
        let dropped = sent + received + by_sockets;
        Ok(Balance {
            missing: self.books[to].missing(dropped),
            dropped,
            // A receiver that is down, or whose backlog is full, counts what the sender counts too.
            twice: sent.min(received).cast_signed(),
            allowance: self.books[to].allowance.load(SeqCst).cast_signed(),
        })
    }

    fn counters(&mut self) -> String {
        let drops = [0, 1].map(|from| self.lab.dropped(from).map_err(|failure| failure.text));
        let chunks = self.sides.each_ref().map(|side| side.umem.accounting());
        format!("dropped by devices: {drops:?}, {chunks:?}")
    }

    fn add_up(&mut self) {
        for book in self.books {
            self.sums.sent += book.sent.load(SeqCst);
            self.sums.received += book.received.load(SeqCst);
        }
        self.sums.rounds += 1;
        self.sums.opened += self.round.opened.load(SeqCst);
        for to in 0..2 {
            self.sums.dropped += self.balance(to).map_or(0, |balance| balance.dropped);
        }
    }
}

/// The packets of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Balance {
    /// Sent, and neither received nor dropped.
    missing: i64,
    dropped: u64,
    /// Most packets that were dropped once and counted twice.
    twice: i64,
    /// Most packets that faults have taken uncounted.
    allowance: i64,
}

impl Balance {
    fn is_even(&self) -> bool {
        (-self.twice..=0).contains(&self.missing)
    }

    fn may_be(&self) -> bool {
        (-self.twice..=self.allowance).contains(&self.missing)
    }
}

/// The last turns seen of each crew.
struct Watch {
    seen: Vec<(u64, Limit)>,
}

impl Watch {
    fn new(round: &Round) -> Self {
        let seen = |_| (0, Limit::new(SET_UP));
        Self {
            seen: round.crews.iter().map(seen).collect(),
        }
    }

    /// Fails when a crew has made no turn for too long.
    fn look(&mut self, round: &Round) -> Result<()> {
        for (crew, (turns, limit)) in round.crews.iter().zip(&mut self.seen) {
            let made = crew.turns.load(SeqCst);
            if made != *turns {
                *turns = made;
                limit.restart();
            }
            if limit.is_over() {
                return fail(Check::Hang, "a thread makes no progress");
            }
        }
        Ok(())
    }
}

impl Round {
    /// Waits for all crews. One that does not end cannot be joined: the program ends here.
    fn wait_for_the_end(&self, plan: &Plan) {
        let have_ended = || self.crews.iter().all(|crew| crew.has_ended.load(SeqCst));
        if !wait_until(SET_UP, have_ended) {
            let text = "a thread does not close its sockets".to_owned();
            let check = Check::Hang;
            super::give_up(plan, Failure { check, text });
        }
    }
}

fn open_descriptors() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

/// Fails when a ring is mapped after all sockets have been closed.
fn nothing_mapped() -> Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let ours = |line: &&str| line.contains("xsk-umem") || line.contains("socket:[");
    let left: Vec<_> = maps.lines().filter(ours).collect();
    ensure(left.is_empty(), Check::Leftovers, || {
        format!("{} mappings, the last is {:?}", left.len(), left.last())
    })
}

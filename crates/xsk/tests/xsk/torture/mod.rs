//! Torture: many sockets of the library at once, in random ways, on veth pairs in network namespaces of the
//! program's own. Links go down, sockets are closed and opened, threads are delayed and moved, rings overwritten by another process.
//!
//! Each packet has a sequence number, and each of its bytes is checked. Throughout a chunk has one holder, a packet
//! is received once and in order, and what is sent is received or counted as dropped; in the end no chunk is lost.
//!
//! The test takes some seconds. `torture run`, as the program's first words, goes on for as long as it is told. A seed
//! fixes all random choices, of threads each on its own; how the threads interleave is the kernel's choice.

mod books;
mod budget;
mod crew;
mod delay;
mod failure;
mod held;
mod hostile;
mod intruder;
mod lab;
mod packet;
mod plan;
mod post;
mod round;
mod side;

use crate::Outcome;
use clap::{Parser, ValueEnum};
use failure::Failure;
use plan::Plan;
use round::Sums;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit::Test;
use testkit::limit::scale;

/// The word that makes the program of the tests one that tortures. The next one is `run`, or that of an intruder.
const WORD: &str = "torture";

/// Time between two lines about a run that nobody watches on a terminal.
const SAY: Duration = Duration::from_secs(60);

/// Time of a round's traffic.
const ROUND: Duration = Duration::from_millis(1500);

/// Tortures sockets until the time is up, or an invariant is broken. Ctrl-C ends it behind the round.
#[derive(Parser)]
#[command(name = "torture run", bin_name = "torture run")]
struct Words {
    /// Minutes to go on for.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Rounds at most.
    #[arg(long)]
    rounds: Option<u64>,
    /// The first round's seed, one more for each further round; another one each time by default.
    #[arg(long)]
    seed: Option<u64>,
    /// The form of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// The result of a run.
#[derive(Debug, serde::Serialize)]
struct Report {
    #[serde(flatten)]
    sums: Sums,
    seconds: f64,
    failure: Option<Found>,
}

/// A broken invariant, and how to see it again.
#[derive(Debug, serde::Serialize)]
struct Found {
    #[serde(flatten)]
    failure: Failure,
    seed: u64,
    /// The round, in words.
    plan: String,
    command: String,
}

/// Plays torture's part if the first word is [`WORD`].
pub fn program() -> Option<ExitCode> {
    let mut words = std::env::args();
    if words.nth(1)? != WORD {
        return None;
    }
    let words: Vec<_> = words.collect();
    if words.first().is_some_and(|word| word == intruder::WORD) {
        return Some(intruder::run(&words[1..]));
    }
    Some(run(&Words::parse_from(words)))
}

/// Alone: it moves threads on all CPUs, and looks for what is left in the process.
pub fn test() -> Test {
    let body = || -> Outcome {
        let seconds = match std::env::var_os("WEIR_TEST_LONG") {
            Some(_) => 120,
            None => 15,
        };
        let limit = Duration::from_secs(seconds) * scale();
        match torture(1, u64::MAX, limit, |_| true).failure {
            Some(found) => Err(found.to_string().into()),
            None => Ok(()),
        }
    };
    // A round that hangs ends before.
    let longest = Duration::from_secs(120) + 2 * budget::SET_UP;
    Test::new("sockets_under_torture", body)
        .within(longest)
        .alone()
        .deep()
}

fn run(words: &Words) -> ExitCode {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    let seed = words.seed.unwrap_or(now % 1_000_000 * 1000);
    let limit = Duration::from_secs_f64(words.minutes * 60.0);
    let shown = std::io::stderr().is_terminal();
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Without a handler the signal ends the program, which leaves nothing behind.
        let _ = signal_hook::flag::register(signal, Arc::clone(&stopped));
    }
    let mut said = Instant::now();
    let report = torture(seed, words.rounds.unwrap_or(u64::MAX), limit, |line| {
        if shown {
            eprint!("\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
        } else if said.elapsed() >= SAY {
            said = Instant::now();
            eprintln!("{line}");
        }
        !stopped.load(Relaxed)
    });
    if shown {
        eprint!("\r\x1b[K");
    }
    match words.format {
        Format::Json => match serde_json::to_string(&report) {
            Ok(json) => println!("{json}"),
            Err(error) => eprintln!("weir: error: {error}"),
        },
        Format::Text => println!("{report}"),
    }
    if report.failure.is_some() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Rounds of one seed after the other, until the time is up, one fails, or `go_on`, which is told of each, returns
/// false.
fn torture(
    first: u64,
    rounds: u64,
    limit: Duration,
    mut go_on: impl FnMut(&str) -> bool,
) -> Report {
    let (begin, mut sums, mut failure) = (Instant::now(), Sums::default(), None);
    for seed in (first..).take(usize::try_from(rounds).unwrap_or(usize::MAX)) {
        if begin.elapsed() >= limit {
            break;
        }
        let plan = Plan::new(seed, ROUND);
        if !go_on(&format!("{sums}; {plan}")) {
            break;
        }
        if let Err(found) = round::run(&plan, &mut sums) {
            failure = Some(Found::of(found, &plan));
            break;
        }
    }
    Report {
        sums,
        seconds: begin.elapsed().as_secs_f64(),
        failure,
    }
}

impl Found {
    fn of(failure: Failure, plan: &Plan) -> Self {
        let seed = plan.seed;
        Self {
            plan: plan.to_string(),
            failure,
            seed,
            command: format!("./run torture --seed {seed} --rounds 1"),
        }
    }
}

/// Reports a thread that does not end, and ends the program.
fn give_up(plan: &Plan, failure: Failure) -> ! {
    println!("{}", Found::of(failure, plan));
    std::process::exit(1)
}

impl std::fmt::Display for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            rounds,
            sent,
            received,
            dropped,
            lost_in_faults,
            opened,
            links_down,
            moves,
        } = self;
        write!(
            f,
            "{rounds} rounds: {sent} packets sent, {received} received, {dropped} dropped, {lost_in_faults} lost in \
             faults; {opened} sockets and ports opened, {links_down} links down, {moves} threads moved"
        )
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            failure,
            plan,
            command,
            ..
        } = self;
        write!(f, "{failure}\n{plan}\nagain: {command}")
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {:.1} s", self.sums, self.seconds)?;
        match &self.failure {
            Some(found) => write!(f, "\nbroken: {found}"),
            None => f.write_str("\nno invariant was broken"),
        }
    }
}

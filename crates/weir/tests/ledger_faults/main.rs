//! The fault suite of `weir ledger`: each kind of loss is caused in namespaces of its own, and exactly one row must
//! show it, with its reason, place, device, socket and process; every edge must close; and the counters as `ip`,
//! `nstat`, `ss`, `ethtool` and `tc` read them must all stand in that row.
//!
//! Without words it is a test program. `ledger_faults table` prints the table of faults of the running kernel,
//! `ledger_faults tools` puts the answers of other programs beside it, `ledger_faults mix` causes several at once, by
//! a seed, and `ledger_faults load` does it under load.

mod broken;
mod bulk;
mod check;
mod fault;
mod faults;
mod frame;
mod kernel;
mod lab;
mod load;
mod mix;
mod monitors;
mod programs;
#[path = "../switch_fuzz/random.rs"]
#[expect(dead_code, reason = "the fuzzer of the switch draws more kinds")]
mod random;
mod socket;
mod table;
mod tools;
#[path = "../switch_fuzz/trial.rs"]
mod trial;

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use clap::Parser;
use libtest_mimic::{Arguments, Trial};

use bulk::Kind;
use check::{Turn, observe, prepare};
use fault::Fault;
use kernel::Kernel;
use lab::Lab;
use table::Columns;
use trial::{Outcome, trial};
use weir::ledger::balance::Method;

/// The words that make this no test program.
const WORDS: [&str; 4] = ["table", "tools", "mix", "load"];

/// Causes losses, and holds `weir ledger` to them.
#[derive(Parser)]
#[command(name = "ledger_faults")]
enum Words {
    /// Causes each kind of loss, and prints the ledger's rows.
    Table {
        /// A part of the faults' names.
        part: Option<String>,
    },
    /// The same, and asks `node_exporter` and dropwatch, too; both must be installed.
    Tools {
        /// A part of the faults' names.
        part: Option<String>,
    },
    /// Causes several at once.
    Mix {
        /// Another one each time by default.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Sends up to a million frames a second to a slow program.
    Load {
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
}

fn run(words: Words) -> Result<bool> {
    match words {
        Words::Table { part } => return table::print(Columns::Ledger, part.as_deref()),
        Words::Tools { part } => return table::print(Columns::Tools, part.as_deref()),
        Words::Mix { seed } => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
            mix::run(seed.unwrap_or(now.as_nanos() as u64))?;
        }
        Words::Load { seconds } => {
            load::run(Duration::from_secs(seconds))?;
        }
    }
    Ok(true)
}

/// How often each loss is caused.
const COUNT: u64 = 1000;
/// The mixtures of each run.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;
/// How long the load lasts.
const LOAD: Duration = Duration::from_secs(3);
/// Between two looks at counters.
const LOOK: Duration = Duration::from_millis(10);
/// Looks that find the counters as they were, after which nothing more is expected.
const PATIENCE_LOOKS: u32 = 100;

/// The longest time for anything to happen.
fn limit() -> Duration {
    let scale = std::env::var("WEIR_TEST_SCALE").ok();
    let scale: u32 = scale.and_then(|scale| scale.parse().ok()).unwrap_or(1);
    Duration::from_secs(30) * scale
}

/// Waits until something is so.
fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(
            begun.elapsed() < limit(),
            "it did not happen in {:?}",
            limit()
        );
        sleep(LOOK);
    }
    Ok(())
}

/// The prefix of the tests' names.
const SUITE: &str = "ledger_faults";

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| WORDS.iter().any(|it| word == *it))
    {
        return match run(Words::parse()) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("weir: error: {error:?}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    // Events are those of the whole host: one fault at a time has its CPUs to itself.
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn trials() -> Vec<Trial> {
    let rows = faults::all();
    let rows = rows
        .into_iter()
        .map(|fault| trial(SUITE, fault.name, move || row(&fault)));
    let mut trials: Vec<Trial> = rows.collect();
    for seed in SEEDS {
        let name = format!("mixture_of_seed_{seed}");
        trials.push(trial(SUITE, &name, move || mix::run(seed)));
    }
    for (name, kind) in [
        ("tcp_stream_of_large_skbs", Kind::Tso),
        ("tcp_stream_that_is_merged", Kind::Gro),
        ("tcp_stream_with_losses_in_the_driver", Kind::XdpLoss),
        ("tcp_stream_with_losses_in_a_shaper", Kind::Shaper),
    ] {
        trials.push(trial(SUITE, name, move || bulk::run(kind)));
    }
    trials.push(trial(SUITE, "load", || load::run(LOAD)));
    for (name, run) in [
        (
            "the_defect_counted_twice_is_found",
            broken::counted_twice as fn() -> Result<Outcome>,
        ),
        ("the_defect_wrong_owner_is_found", broken::wrong_owner),
        (
            "the_defect_reasons_of_another_kernel_is_found",
            broken::reasons_of_another_kernel,
        ),
        (
            "the_defect_factor_of_gro_forgotten_is_found",
            bulk::factor_forgotten,
        ),
    ] {
        trials.push(trial(SUITE, name, run));
    }
    trials
}

fn row(fault: &Fault) -> Result<Outcome> {
    let (mut lab, kernel) = (Lab::new()?, Kernel::read()?);
    let ready = match prepare(&mut lab, &kernel, fault)? {
        Ok(ready) => ready,
        Err(lacks) => return Ok(Outcome::Lacks(lacks)),
    };
    let counts = vec![COUNT];
    let observation = observe(lab, vec![Turn { ready, counts }])?;
    let complaints = observation.complaints(Method::default())?;
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(Outcome::Passed)
}

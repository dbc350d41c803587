//! The fault suite of `weir ledger`: each kind of loss is caused in namespaces of its own, and exactly one row must
//! show it, with its reason, place, device, socket and process; every edge must close; and the counters as `ip`,
//! `nstat`, `ss`, `ethtool` and `tc` read them must all stand in that row.
//!
//! Without words it is a test program. `ledger_faults table` prints the table of faults of the running kernel.

mod check;
mod fault;
mod faults;
mod frame;
mod kernel;
mod lab;
mod programs;
mod socket;
mod table;
mod tools;

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use libtest_mimic::{Arguments, Completion, Trial};

use check::{Turn, observe, prepare};
use fault::Fault;
use kernel::Kernel;
use lab::Lab;
use weir::ledger::balance::Method;

/// The word that prints the table.
const TABLE: &str = "table";
/// How often each loss is caused.
const COUNT: u64 = 1000;
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

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == TABLE) {
        return match table::print(words.get(1).map(String::as_str)) {
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
        .map(|fault| trial(fault.name, move || row(&fault)));
    rows.collect()
}

/// How a trial ended that did not fail.
enum Outcome {
    Passed,
    Lacks(&'static str),
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

fn trial(name: &str, run: impl FnOnce() -> Result<Outcome> + Send + 'static) -> Trial {
    Trial::ignorable_test(format!("ledger_faults::{name}"), move || {
        if !rustix::process::geteuid().is_root() {
            return Ok(Completion::ignored_with("network namespaces need root"));
        }
        match run() {
            Ok(Outcome::Passed) => Ok(Completion::Completed),
            Ok(Outcome::Lacks(feature)) => Ok(Completion::ignored_with(format!(
                "the kernel lacks {feature}"
            ))),
            Err(error) => Err(format!("{error:?}").into()),
        }
    })
}

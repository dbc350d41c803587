//! The fault suite of `weir ledger`: each kind of loss is caused in namespaces of its own, and exactly one row must
//! show it, with its reason, place, device, socket and process; every edge must close; and the counters as `ip`,
//! `nstat`, `ss`, `ethtool` and `tc` read them must all stand in that row.
//!
//! The words `ledger_faults table` make this a program that prints the table of faults of the running kernel;
//! `ledger_faults tools` puts the answers of other programs beside it, `ledger_faults mix` causes several at once, by a
//! seed, and `ledger_faults load` does it under load.

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
mod socket;
mod table;
mod tools;
use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use testkit::{Test, skip};
use weir::ledger::balance::Method;

use bulk::Kind;
use check::{Turn, observe, prepare};
use fault::Fault;
use kernel::Kernel;
use lab::Lab;
use table::Columns;

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
        Words::Load { seconds } => load::run(Duration::from_secs(seconds))?,
    }
    Ok(true)
}

/// How often each loss is caused.
const COUNT: u64 = 1000;
/// How many faults of each kind the first tier causes.
const QUICK: usize = 2;
/// The mixtures of each run.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;
/// How long the load lasts.
const LOAD: Duration = Duration::from_secs(3);
/// Between two looks at counters.
const LOOK: Duration = Duration::from_millis(10);
/// Looks that find the counters as they were, after which nothing more is expected.
const PATIENCE_LOOKS: u32 = 100;

/// The first word of the programs, and the prefix of the tests' names.
pub const SUITE: &str = "ledger_faults";

/// The program that the words after [`SUITE`] ask for: whether it succeeded.
pub fn program(words: &[OsString]) -> Option<Result<bool>> {
    let name = words.get(1)?.to_str()?;
    Words::has_subcommand(name).then(|| run(Words::parse_from(words)))
}

/// One at a time: events are those of the whole host.
pub fn trials() -> Vec<Test> {
    let trial = |name: &str, run: fn() -> Result<()>| Test::new(format!("{SUITE}::{name}"), run);
    let rows = faults::kinds().into_iter().flat_map(|kind| {
        let tests = kind.iter();
        let tests = tests.map(|fault| Test::new(format!("{SUITE}::{}", fault.name), || row(fault)));
        let (quick, deep) = (tests.clone().take(QUICK), tests.skip(QUICK));
        quick.chain(deep.map(Test::deep))
    });
    let mixtures = SEEDS.map(|seed| {
        let name = format!("{SUITE}::mixture_of_seed_{seed}");
        Test::new(name, move || mix::run(seed)).deep()
    });
    let streams = [
        ("tcp_stream_of_large_skbs", Kind::Tso),
        ("tcp_stream_that_is_merged", Kind::Gro),
        ("tcp_stream_with_losses_in_the_driver", Kind::XdpLoss),
        ("tcp_stream_with_losses_in_a_shaper", Kind::Shaper),
    ];
    let streams =
        streams.map(|(name, kind)| Test::new(format!("{SUITE}::{name}"), move || bulk::run(kind)));
    let load = trial("load", || load::run(LOAD)).deep();
    let defects = [
        trial("the_defect_counted_twice_is_found", broken::counted_twice),
        trial("the_defect_wrong_owner_is_found", broken::wrong_owner),
        trial(
            "the_defect_reasons_of_another_kernel_is_found",
            broken::reasons_of_another_kernel,
        ),
        trial(
            "the_defect_factor_of_gro_forgotten_is_found",
            bulk::factor_forgotten,
        ),
    ];
    let all = rows
        .chain(mixtures)
        .chain(streams)
        .chain([load])
        .chain(defects);
    all.map(Test::alone).collect()
}

fn row(fault: &Fault) -> Result<()> {
    let (mut lab, kernel) = (Lab::new()?, Kernel::read()?);
    let ready = match prepare(&mut lab, &kernel, fault)? {
        Ok(ready) => ready,
        Err(lacks) => return Err(skip(format!("the kernel lacks {lacks}"))),
    };
    let counts = vec![COUNT];
    let observation = observe(lab, vec![Turn { ready, counts }])?;
    let complaints = observation.complaints(Method::default())?;
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

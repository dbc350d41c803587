//! Differential fuzzing: two equal bridges in namespaces of their own, one of them accelerated, get
//! the same random frames and changes, and must put out the same frames at the same ports.
//!
//! Not compared, as the fast path differs there on purpose:
//!
//! - `br_netfilter` drops IP packets with faults in their headers and cuts others to their length, also
//!   where there are no rules; the accelerator steps back for rules only, so that it is switched off here.
//! - A frame that the fast path leaves to the kernel may be overtaken by the next ones of its stream. The
//!   second number behind "reordered" is the plain bridge's.
//! - A change of the bridge is in force some milliseconds later. The accelerator is settled before frames
//!   are compared, but for bursts right after a change, in which only what is never right is a fault.
//!
//! Without words it is a test program of some seconds. `switch_fuzz run` goes on for as long as it is
//! told; its plan follows from the seed.

mod accelerate;
mod event;
mod frame;
mod fuzz;
mod moves;
mod netlink;
mod plan;
mod random;
mod round;
mod side;
mod socket;
mod trial;

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use clap::Parser;
use hostnet::cpulist::{CpuList, pin};
use libtest_mimic::{Arguments, Trial};
use testbpf::{DEFECTS, Defect};

use event::Hook;
use fuzz::{Difference, Mode, Options, Sums};
use plan::Features;
use trial::{Outcome, trial};

/// The word that makes this a program for long runs.
const RUN: &str = "run";

/// Compares an accelerated bridge with a plain one.
#[derive(Parser)]
#[command(name = "switch_fuzz run")]
struct Words {
    /// Minutes to go on for, without a limit of steps.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Bursts and events at most.
    #[arg(long)]
    steps: Option<u64>,
    /// The first seed; another one each time by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Steps of a seed, after which the next one begins with new bridges.
    #[arg(long, default_value_t = STEPS_A_SEED)]
    steps_a_seed: u64,
    /// Ports of each bridge.
    #[arg(long, default_value_t = PORTS, value_parser = clap::value_parser!(u8).range(2..=20))]
    ports: u8,
    /// In how many of a hundred seeds bridges are VLAN-aware, where the kernel's can be.
    #[arg(long, default_value_t = VLANS as u8, value_parser = clap::value_parser!(u8).range(..=100))]
    vlans: u8,
    /// Accelerate with this defect; succeeds if it is found.
    #[arg(long)]
    broken: Option<String>,
    /// Print the names of the defects.
    #[arg(long)]
    list_broken: bool,
    /// Accelerate neither bridge.
    #[arg(long)]
    plain: bool,
}

const PORTS: u8 = 6;
const STEPS_A_SEED: u64 = 500;
const VLANS: u64 = 70;

/// The prefix of the tests' names.
const SUITE: &str = "switch_fuzz";

fn main() -> ExitCode {
    let mut words: Vec<_> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == RUN) {
        words.remove(1);
        return match run(&Words::parse_from(words)) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("weir: error: {error:?}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    // They share the machine's CPUs with nobody.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn run(words: &Words) -> Result<bool> {
    if words.list_broken {
        for Defect { name, meaning, .. } in DEFECTS {
            println!("{name:12}  {meaning}");
        }
        return Ok(true);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let mode = match &words.broken {
        Some(name) => Mode::Broken(name),
        None if words.plain => Mode::Plain,
        None => Mode::Accelerated,
    };
    let minutes = if words.steps.is_some() {
        1e6
    } else {
        words.minutes
    };
    let options = Options {
        mode,
        seed: words.seed.unwrap_or(now.as_secs() % 1_000_000 * 1000),
        vlans: words.vlans.into(),
        ports: words.ports.into(),
        limit: Duration::from_secs_f64(minutes * 60.0),
        steps: words.steps.unwrap_or(u64::MAX),
        steps_a_seed: words.steps_a_seed,
        is_quiet: false,
    };
    let started = Instant::now();
    let (sums, difference) = compare(&options)?;
    let is_wanted = words.broken.is_some();
    if let Some(difference) = &difference {
        println!("{}", report(difference, words));
    }
    println!("{}", sums.line(started.elapsed()));
    match (difference.is_some(), is_wanted) {
        (true, true) => println!("the defect was found"),
        (false, true) => println!("the defect was NOT found"),
        (true, false) => println!("a difference was found"),
        (false, false) => println!("no difference"),
    }
    Ok(difference.is_some() == is_wanted)
}

fn report(difference: &Difference, words: &Words) -> String {
    let mut command = format!(
        "switch_fuzz {RUN} --seed {} --steps {} --ports {} --vlans {}",
        difference.seed, difference.step, words.ports, words.vlans
    );
    if let Some(name) = &words.broken {
        command += " --broken ";
        command += name;
    }
    if words.plain {
        command += " --plain";
    }
    format!("{}again: {command}\n", difference.text)
}

/// Compares on one CPU, so that what was sent first is handled first.
fn compare(options: &Options<'_>) -> Result<(Sums, Option<Difference>)> {
    let cpus = CpuList::allowed()?;
    if let Some(cpu) = cpus.as_slice().first() {
        pin(*cpu)?;
    }
    let vlans = if side::has_vlan_filtering()? {
        options.vlans
    } else {
        0
    };
    fuzz::run(options, Features { vlans })
}

/// `WEIR_TEST_LONG` and `WEIR_TEST_SCALE` of `./run test`.
fn is_long() -> bool {
    std::env::var_os("WEIR_TEST_LONG").is_some()
}

fn scale() -> u64 {
    let scale = std::env::var("WEIR_TEST_SCALE").ok();
    scale.and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(SUITE, "two_equal_bridges_never_differ", || {
            let (sums, difference) = compare(&options(Mode::Plain, 3))?;
            none(&sums, difference)
        }),
        trial(SUITE, "a_sabotaged_bridge_is_found", || {
            found(&compare(&options(Mode::Sabotaged, 60 * scale()))?)
        }),
        trial(SUITE, "an_accelerated_bridge_equals_a_plain_one", || {
            let seconds = if is_long() { 120 } else { 10 };
            let (sums, difference) = compare(&options(Mode::Accelerated, seconds))?;
            none(&sums, difference)
        }),
        trial(
            SUITE,
            "vlans::an_accelerated_bridge_equals_a_plain_one",
            || {
                let seconds = if is_long() { 600 } else { 30 };
                let options = Options {
                    vlans: 100,
                    ..options(Mode::Accelerated, seconds)
                };
                with_vlans(|| {
                    let (sums, difference) = compare(&options)?;
                    none(&sums, difference)
                })
            },
        ),
    ];
    for (name, hook) in [("xdp", Hook::Xdp), ("tcx", Hook::Tcx)] {
        let name = format!("a_move_under_load_is_followed_at_once_{name}");
        trials.push(trial(SUITE, &name, move || follows(hook)));
    }
    trials.push(trial(SUITE, "a_move_that_is_not_marked_is_noticed", || {
        let outcome = moves::run(Some(Hook::Xdp), Some("move"))?;
        ensure!(outcome.misled > 0, "nothing went astray: {outcome:?}");
        Ok(Outcome::Passed)
    }));
    for Defect { name: defect, .. } in DEFECTS {
        let name = format!("the_defect_{defect}_is_found");
        let options = options(Mode::Broken(defect), 180 * scale());
        trials.push(if accelerate::needs_vlans(defect) {
            let options = Options {
                vlans: 100,
                ..options
            };
            trial(SUITE, &format!("vlans::{name}"), move || {
                with_vlans(|| found(&compare(&options)?))
            })
        } else {
            trial(SUITE, &name, move || found(&compare(&options)?))
        });
    }
    trials
}

/// Nothing goes to the old port, and no more is lost than by the bridge itself.
fn follows(hook: Hook) -> Result<Outcome> {
    let (plain, accelerated) = (moves::run(None, None)?, moves::run(Some(hook), None)?);
    println!("plain: {plain:?}; accelerated: {accelerated:?}");
    ensure!(
        (accelerated.misled, accelerated.twice) == (0, 0),
        "after moves: {accelerated:?}"
    );
    // In a thousand frames; the two have not sent the same number.
    let lost = |it: &moves::Outcome| it.lost * 1000 / it.sent.max(1);
    ensure!(
        lost(&accelerated) <= lost(&plain),
        "more is lost than without: {accelerated:?}, {plain:?}"
    );
    Ok(Outcome::Passed)
}

fn with_vlans(run: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    if side::has_vlan_filtering()? {
        return run();
    }
    Ok(Outcome::Lacks(
        "bridges that can be VLAN-aware (CONFIG_BRIDGE_VLAN_FILTERING)",
    ))
}

fn options(mode: Mode<'_>, seconds: u64) -> Options<'_> {
    Options {
        mode,
        seed: 1,
        vlans: VLANS,
        ports: PORTS.into(),
        limit: Duration::from_secs(seconds),
        steps: u64::MAX,
        steps_a_seed: STEPS_A_SEED,
        is_quiet: true,
    }
}

fn none(sums: &Sums, difference: Option<Difference>) -> Result<Outcome> {
    if let Some(difference) = difference {
        bail!("{}", difference.text);
    }
    ensure!(sums.frames > 0, "nothing was compared");
    Ok(Outcome::Passed)
}

fn found((sums, difference): &(Sums, Option<Difference>)) -> Result<Outcome> {
    ensure!(
        difference.is_some(),
        "the difference was not found in {} frames",
        sums.frames
    );
    Ok(Outcome::Passed)
}

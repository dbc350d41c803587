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
//! The words `switch_fuzz run` make this a program that goes on for as long as it is told; its plan follows from the
//! seed. The tests take some seconds each, or more if `WEIR_TEST_LONG` is set.

mod accelerate;
mod event;
mod frame;
mod fuzz;
mod moves;
mod netlink;
mod plan;
mod round;
mod side;

use std::ffi::OsString;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use hostnet::cpulist::{CpuList, pin};
use testbpf::{DEFECTS, Defect};
use testkit::{Need, Test};

use event::Hook;
use fuzz::{Difference, Mode, Options, Sums};
use plan::Features;

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

/// The first word of the program, and the prefix of the tests' names.
pub const SUITE: &str = "switch_fuzz";

/// The program, if the word after [`SUITE`] asks for it: whether it succeeded.
pub fn program(words: &[OsString]) -> Option<Result<bool>> {
    (words.get(1)? == RUN).then(|| run(&Words::parse_from(&words[1..])))
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

/// One number of seconds, or another if `WEIR_TEST_LONG` is set.
fn seconds(short: u64, long: u64) -> u64 {
    match std::env::var_os("WEIR_TEST_LONG") {
        Some(_) => long,
        None => short,
    }
}

/// One at a time, since each has a CPU to itself.
pub fn trials() -> Vec<Test> {
    let aware = |mode, seconds| Options {
        vlans: 100,
        ..options(mode, seconds)
    };
    let comparisons = [
        comparison(
            "two_equal_bridges_never_differ",
            options(Mode::Plain, 3),
            none,
        ),
        comparison(
            "a_sabotaged_bridge_is_found",
            options(Mode::Sabotaged, 60),
            found,
        ),
        comparison(
            "an_accelerated_bridge_equals_a_plain_one",
            options(Mode::Accelerated, seconds(6, 120)),
            none,
        ),
        comparison(
            "vlans::an_accelerated_bridge_equals_a_plain_one",
            aware(Mode::Accelerated, seconds(30, 600)),
            none,
        )
        .needing(&[vlan_filtering()]),
    ];
    let moves = [
        (
            "a_move_under_load_is_followed_at_once_xdp",
            (|| follows(Hook::Xdp)) as fn() -> _,
        ),
        ("a_move_under_load_is_followed_at_once_tcx", || {
            follows(Hook::Tcx)
        }),
        ("a_move_that_is_not_marked_is_noticed", goes_astray),
    ];
    let moves = moves.map(|(name, run)| Test::new(format!("{SUITE}::{name}"), run));
    let defects = DEFECTS.iter().map(|Defect { name: defect, .. }| {
        let name = format!("the_defect_{defect}_is_found");
        let mode = Mode::Broken(defect);
        if accelerate::needs_vlans(defect) {
            let name = format!("vlans::{name}");
            return comparison(&name, aware(mode, 180), found).needing(&[vlan_filtering()]);
        }
        comparison(&name, options(mode, 180), found)
    });
    let all = comparisons
        .into_iter()
        .chain(moves)
        .chain(defects.map(Test::deep));
    all.map(Test::alone).collect()
}

/// A test of what a comparison finds.
fn comparison(
    name: &str,
    options: Options<'static>,
    judge: fn(&Sums, Option<Difference>) -> Result<()>,
) -> Test {
    /// For all that is not the comparison itself.
    const BESIDES: Duration = Duration::from_secs(60);
    let limit = options.limit + BESIDES;
    let test = Test::new(format!("{SUITE}::{name}"), move || {
        let (sums, difference) = compare(&options)?;
        judge(&sums, difference)
    });
    test.within(limit)
}

fn vlan_filtering() -> Need {
    Need::Probe(|| {
        let lacks = matches!(side::has_vlan_filtering(), Ok(false));
        lacks.then(|| {
            "the kernel lacks bridges that can be VLAN-aware (CONFIG_BRIDGE_VLAN_FILTERING)".into()
        })
    })
}

/// Without the mark the programs send frames to the old port.
fn goes_astray() -> Result<()> {
    let outcome = moves::run(Some(Hook::Xdp), Some("move"))?;
    ensure!(outcome.misled > 0, "nothing went astray: {outcome:?}");
    Ok(())
}

/// Nothing goes to the old port, and no more is lost than by the bridge itself.
fn follows(hook: Hook) -> Result<()> {
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
    Ok(())
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

fn none(sums: &Sums, difference: Option<Difference>) -> Result<()> {
    if let Some(difference) = difference {
        bail!("{}", difference.text);
    }
    ensure!(sums.frames > 0, "nothing was compared");
    Ok(())
}

fn found(sums: &Sums, difference: Option<Difference>) -> Result<()> {
    let frames = sums.frames;
    let missed = || format!("the difference was not found in {frames} frames");
    difference.map(drop).with_context(missed)
}

//! The cost of moving packets that another CPU wrote, in nanoseconds a packet: weir's library beside
//! libxdp's inline functions, on the same rings and the same memory, without a kernel.
//!
//! A writer on one CPU writes a burst of packets of 64 bytes, each into its chunk, and publishes them;
//! then the measured side, on another CPU, receives them in batches and reads each (or swaps its MAC
//! addresses and sends it). The two take turns, so that nobody waits inside the measured time. The
//! sums of the packets read, and each packet sent, are checked.

mod sides;
#[path = "../../../moves/benches/words.rs"]
mod words;
mod writer;

use std::fs;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use hostnet::cpulist::{CpuList, pin};
use serde::Serialize;
use weir::cli::flags::Format;
use weir::cli::output;
use weir::report::Machine;
use weir::report::statistics::median;
use xsk::testing::moves::{Moves, SLOTS, umem};

use sides::{Engine, Sides, Work};
use writer::{Ask, BURST, Turns, Writer};

const BATCHES: [u32; 3] = [64, 256, 1024];

/// Bursts of an engine in a round; the round's figure is the median of their times.
const BURSTS: u32 = 64;

// The rings are where they were after the bursts of a round.
const _: () = assert!((BURSTS * BURST).is_multiple_of(SLOTS));

/// Packets that another CPU wrote, in nanoseconds a packet
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; engines alternate within each
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Measure; cargo passes it
    #[arg(long, hide = true)]
    bench: bool,
}

/// The figures of one engine.
#[derive(Debug, Serialize)]
struct Row {
    moves: &'static str,
    batch: u32,
    engine: &'static str,
    /// Nanoseconds a packet, median of the rounds.
    ns_median: f64,
    /// Time of this engine for each of libxdp's, of the same round; `None` for libxdp itself, or
    /// without it.
    ratio_median: Option<f64>,
    ratio_min: Option<f64>,
    ratio_max: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    machine: Machine,
    writer_cpu: usize,
    reader_cpu: usize,
    /// Whether the two CPUs are threads of one core, which share all caches.
    same_core: bool,
    rounds: u32,
    rows: Vec<Row>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    // `cargo test --all-targets` runs it without this word, to see whether it builds.
    if !args.bench {
        return Ok(());
    }
    let cpus = CpuList::allowed()?;
    let [writer_cpu, reader_cpu, ..] = *cpus.as_slice() else {
        println!("skipped: the writer and the reader need a CPU each");
        return Ok(());
    };
    let machine = Machine {
        command: format!(
            "cargo bench -p weir --bench payload -- --rounds {}",
            args.rounds
        ),
        ..Machine::now(cpus.as_slice().len())
    };
    let report = Report {
        machine,
        writer_cpu,
        reader_cpu,
        same_core: same_core(writer_cpu, reader_cpu),
        rounds: args.rounds,
        rows: measure(args.rounds, writer_cpu, reader_cpu)?,
    };
    output::print(match args.format {
        Format::Table => table(&report),
        Format::Json => output::json(&report)?,
    })
}

/// Whether the kernel says so; a virtual machine may not know.
fn same_core(cpu: usize, other: usize) -> bool {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let siblings = fs::read_to_string(path).unwrap_or_default();
    siblings
        .parse::<CpuList>()
        .is_ok_and(|list| list.as_slice().contains(&other))
}

/// Runs the writer on one CPU and all rounds on the other.
fn measure(rounds: u32, writer_cpu: usize, reader_cpu: usize) -> Result<Vec<Row>> {
    let umem = umem();
    let moves = Moves::new(&umem);
    let writer = Writer::new(&moves, &umem);
    let mut sides = Sides::new(moves);
    let turns = Turns::new();
    thread::scope(|scope| {
        let writer = scope.spawn(|| writer.serve(&turns, writer_cpu));
        let rows = pin(reader_cpu)
            .map_err(Into::into)
            .and_then(|()| all_rows(rounds, &mut sides, &turns));
        turns.end();
        let written = writer
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the writer panicked")));
        // If the writer failed, its error is the reason.
        written.and(rows)
    })
}

fn all_rows(rounds: u32, sides: &mut Sides, turns: &Turns) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for work in Work::ALL {
        for batch in BATCHES {
            rows.extend(compare(rounds, sides, turns, work, batch)?);
        }
    }
    Ok(rows)
}

/// All engines in turns.
fn compare(
    rounds: u32,
    sides: &mut Sides,
    turns: &Turns,
    work: Work,
    batch: u32,
) -> Result<Vec<Row>> {
    let engines = Engine::ALL;
    let mut figures = vec![Vec::new(); engines.len()];
    for round in 0..=rounds as usize {
        for turn in 0..engines.len() {
            // Another engine is the first of each round.
            let at = (round + turn) % engines.len();
            let ns = sides.with(engines[at], |sides| {
                time(sides, turns, engines[at], work, batch)
            });
            let ns = ns.with_context(|| {
                format!(
                    "{} in batches of {batch}, {}",
                    work.name(),
                    engines[at].name()
                )
            })?;
            // The first round warms up.
            if round > 0 {
                figures[at].push(ns);
            }
        }
    }
    let baseline = engines.iter().position(|engine| engine.is_baseline());
    let rows = engines.iter().zip(&figures).map(|(engine, own)| {
        let baseline = baseline.filter(|_| !engine.is_baseline());
        let ratios = || baseline.map(|at| own.iter().zip(&figures[at]).map(|(own, its)| own / its));
        Row {
            moves: work.name(),
            batch,
            engine: engine.name(),
            ns_median: median(own.iter().copied()).unwrap_or_default(),
            ratio_median: ratios().and_then(median),
            ratio_min: ratios().and_then(|it| it.reduce(f64::min)),
            ratio_max: ratios().and_then(|it| it.reduce(f64::max)),
        }
    });
    Ok(rows.collect())
}

/// Nanoseconds a packet in the bursts of a round, which are checked.
fn time(sides: &mut Sides, turns: &Turns, engine: Engine, work: Work, batch: u32) -> Result<f64> {
    let mut times = Vec::new();
    let mut written = turns.ask(Ask::Burst)?;
    for left in (0..BURSTS).rev() {
        let start = Instant::now();
        let sum = sides.burst(engine, work, batch);
        times.push(start.elapsed().as_nanos() as f64);
        let expected = match work {
            Work::Receive => (written.sum, 0),
            Work::Forward => (0, BURST),
        };
        written = turns.ask(if left > 0 { Ask::Burst } else { Ask::Sent })?;
        let found = (sum, written.returned);
        ensure!(
            found == expected,
            "sum of the words read and packets sent are {found:?}, not {expected:?}"
        );
    }
    let ns = median(times.into_iter()).unwrap_or_default();
    Ok(ns / f64::from(BURST))
}

fn table(report: &Report) -> String {
    let of_one_core = if report.same_core {
        ", of one core"
    } else {
        ""
    };
    let heading = format!(
        "{}\npackets written by CPU {}, read by CPU {}{of_one_core}; {} rounds:\n\
         {:9} {:>5} {:12} {:>6} {:>16}   ratios\n",
        report.machine.summary(),
        report.writer_cpu,
        report.reader_cpu,
        report.rounds,
        "moves",
        "batch",
        "engine",
        "ns",
        "ratio to libxdp"
    );
    heading + &report.rows.iter().map(line).collect::<String>()
}

fn line(row: &Row) -> String {
    let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |it| format!("{it:.2}"));
    let [median, min, max] = [row.ratio_median, row.ratio_min, row.ratio_max].map(ratio);
    let range = if row.ratio_median.is_some() {
        format!("   {min} to {max}")
    } else {
        String::new()
    };
    format!(
        "{:9} {:>5} {:12} {:6.2} {median:>16}{range}\n",
        row.moves, row.batch, row.engine, row.ns_median
    )
}

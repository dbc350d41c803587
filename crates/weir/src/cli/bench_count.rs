//! `weir bench-count`: its flags, and its table.

use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use comfy_table::presets;

use crate::bench::count;
use crate::bench::count::{Count, Report, Turns};
use crate::bench::plan::{Choices, Combination, Plan};
use crate::bench::runner::{Place, Runner, Settings};
use crate::engine::bench::Bench;
use crate::engine::{Engine, Mode, Wait};
use crate::lab::{Lab, LabConfig};
use crate::process::stop::StopSignal;
use crate::report::Machine;
use crate::report::text::{row, table, unframed, wrap};
use hostnet::cpulist::CpuList;

/// `weir bench-count`
#[derive(Debug, Args)]
pub struct CountArgs {
    /// Packets handled at once, at most: a column for each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,64",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: Vec<u32>,
    /// Frame length without the FCS, 64 to 1500
    #[arg(long, value_name = "BYTES", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub size: u16,
    /// Turns that are counted
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: u32,
    /// Other things that the figures depend on, for the report: emulator, compiler
    #[arg(long, value_name = "TEXT", default_value = "unknown emulator")]
    pub machine: String,
    /// Write the report as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Packets in a turn: every receive ring has room for them.
const PACKETS: u32 = 1024;
/// Turns before those that count.
const WARMUP: u32 = 2;

impl CountArgs {
    fn turns(&self) -> Turns {
        Turns {
            count: self.turns,
            warmup: WARMUP,
            packets: PACKETS,
        }
    }

    fn settings(&self, cpu: usize, batch: u32) -> Settings {
        Settings {
            size: self.size,
            pps: None,
            warmup: Duration::ZERO,
            // Turns have no window, but no worker takes one of nothing.
            window: Duration::from_millis(1),
            batch,
            turn: Some(PACKETS),
            verify: false,
            load_cpu: cpu,
            app_cpu: cpu,
        }
    }
}

fn plan() -> Plan {
    Plan::new(&Choices {
        benches: vec![Bench::Rxdrop, Bench::Txpush, Bench::L2fwd],
        engines: vec![Engine::Xsk, Engine::Libxdp, Engine::PacketV3],
        modes: vec![Mode::Drv, Mode::Skb],
        waits: vec![Wait::Spin],
        rounds: 1,
    })
}

/// Runs `weir bench-count`.
pub fn run(args: &CountArgs) -> Result<()> {
    let report = measure(args)?;
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = stdout().lock();
    out.write_all(render(&report, &args.batch).as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

fn measure(args: &CountArgs) -> Result<Report> {
    let plan = plan();
    let cpus = CpuList::allowed()?;
    let cpu = cpus.as_slice().first().copied().unwrap_or(0);
    let stop = StopSignal::listen()?;
    let place = Place::Lab(Box::new(Lab::anonymous(&LabConfig::default())?));
    let turns = args.turns();
    let alone = args.settings(cpu, 1);
    let load = count::count_load(&runner(&place, &alone, &stop), turns)
        .context("the load alone cannot be counted")?;
    let mut counts = Vec::new();
    for (_, combination) in plan.runs() {
        for &batch in &args.batch {
            let so_far = counts.len() + 1;
            let all = plan.combinations.len() * args.batch.len();
            eprintln!("weir: {so_far} of {all}: {combination}, batch {batch}");
            let settings = args.settings(cpu, batch);
            let count = count::count(&runner(&place, &settings, &stop), turns, load, combination);
            counts.push(count.with_context(|| format!("{combination}, batch {batch}"))?);
        }
    }
    let machine = Machine::now(1);
    Ok(Report {
        kernel: machine.kernel,
        weir: machine.weir,
        machine: args.machine.clone(),
        size: args.size,
        turns,
        load,
        counts,
        unavailable: plan.unavailable,
    })
}

fn runner<'a>(place: &'a Place, settings: &'a Settings, stop: &'a StopSignal) -> Runner<'a> {
    Runner {
        place,
        settings,
        stop,
    }
}

/// The report as text.
fn render(report: &Report, batches: &[u32]) -> String {
    let size = report.size;
    let mut lines = vec![
        format!("Instructions for one frame of {size} bytes, the kernel's included:"),
        counts_table(report, batches),
        String::new(),
    ];
    for it in &report.unavailable {
        lines.push(wrap(
            &format!("{} is not counted: {}", it.engine, it.reason),
            2,
        ));
    }
    let turns = report.turns;
    lines.extend(
        [
            format!(
                "batch      frames handled at once, at most; in each call of the kernel that sends. \
                 Each figure is of {} frames in {} turns.",
                turns.count * turns.packets,
                turns.count
            ),
            "receiving  of it, the kernel's work until the socket has the frame, in batches of 64 \
             whatever the engine does; the load alone is subtracted."
                .into(),
            "load       making a frame, its way through the veth, and a native XDP program that \
             drops it at once."
                .into(),
            "sending    ends in a sink at the other end of the veth, whose price is included."
                .into(),
        ]
        .map(|note| wrap(&note, 11)),
    );
    let weir = format!("weir {}", report.weir);
    let machine = [&report.machine, &report.kernel, &weir].map(String::as_str);
    lines.push(machine.join(", "));
    lines.join("\n") + "\n"
}

fn counts_table(report: &Report, batches: &[u32]) -> String {
    let mut table = table(presets::NOTHING);
    let headings = batches.iter().map(|batch| format!("batch {batch}"));
    table.set_header(row("", headings.chain(["receiving".into()])));
    let load = figure(report.load);
    table.add_row(row(
        "load",
        batches.iter().map(|_| "-".into()).chain([load]),
    ));
    for counts in report
        .counts
        .chunk_by(|a, b| a.combination == b.combination)
    {
        let figures = counts.iter().map(|it| figure(it.instructions_per_packet));
        let receiving = counts.last().and_then(|it| it.receiving);
        let receiving = receiving.map_or("-".into(), figure);
        let name = counts.first().map(name).unwrap_or_default();
        table.add_row(row(&name, figures.chain([receiving])));
    }
    unframed(table)
}

fn figure(instructions: f64) -> String {
    format!("{instructions:.0}")
}

fn name(count: &Count) -> String {
    let Combination {
        bench,
        engine,
        mode,
        ..
    } = count.combination;
    match mode {
        Some(mode) => format!("{bench} {engine} {mode}"),
        None => format!("{bench} {engine}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(bench: Bench, batch: u32) -> Count {
        let combination = Combination {
            bench,
            engine: Engine::Xsk,
            mode: Some(Mode::Drv),
            wait: Wait::Spin,
        };
        let receiving = (bench == Bench::Rxdrop).then_some(288.4);
        Count {
            combination,
            mode_obtained: Some(Mode::Drv),
            batch,
            receiving,
            handling: 37.2,
            instructions_per_packet: receiving.unwrap_or(0.0) + 37.2,
        }
    }

    fn report() -> Report {
        Report {
            kernel: "Linux 6.1".into(),
            weir: "0.1.0".into(),
            machine: "QEMU 7".into(),
            size: 64,
            turns: Turns {
                count: 2,
                warmup: 1,
                packets: 8,
            },
            load: 754.9,
            counts: vec![
                count(Bench::Rxdrop, 1),
                count(Bench::Rxdrop, 64),
                count(Bench::Txpush, 1),
                count(Bench::Txpush, 64),
            ],
            unavailable: Vec::new(),
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_way_and_a_column_for_each_batch() {
        let text = render(&report(), &[1, 64]);
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        for row in [
            vec!["load", "-", "-", "755"],
            vec!["rxdrop", "xsk", "drv", "326", "326", "288"],
            vec!["txpush", "xsk", "drv", "37", "37", "-"],
        ] {
            assert!(words.contains(&row), "no {row:?} in\n{text}");
        }
        assert!(text.contains("QEMU 7, Linux 6.1, weir 0.1.0"), "{text}");
    }

    #[test]
    fn the_json_form_names_what_was_counted() {
        let json = serde_json::to_value(report()).expect("serializes");
        let count = &json["counts"][0];
        assert_eq!(count["bench"], "rxdrop");
        assert_eq!(count["engine"], "xsk");
        assert_eq!(count["mode"], "drv");
        assert_eq!(count["batch"], 1);
        assert_eq!(count["handling"], 37.2);
        assert_eq!(json["load"], 754.9);
    }
}

//! The report as text: the table of the AF_XDP RFC, then the details, in 100 columns.

use comfy_table::{Cell, CellAlignment, Row, presets};

use super::{Report, Run, Summary, column, main_wait};
use crate::bench::plan::{Combination, Unavailable};
use crate::engine::bench::Bench;
use crate::engine::{Engine, Mode, Wait};
use crate::report::text::{row, table, unframed, wrap};

/// The least CPU share, in percent, of a thread that spins on a CPU of its own.
const SPINS: f64 = 90.0;
/// The column in which the sentences of the legend begin.
const LEGEND: usize = 18;

/// The report as text. `plain` is for a pipe or a file: ASCII.
pub fn render(report: &Report, plain: bool) -> String {
    let mut text = String::new();
    let mut line = |it: &str| {
        text.push_str(it);
        text.push('\n');
    };
    let combinations = report.combinations();
    if let Some(wait) = main_wait(&combinations) {
        line(&wrap(&title(report, wait), 2));
        line(&overview(report, wait, plain));
        line("");
    }
    if !report.summary.is_empty() {
        line(&details(report, &combinations));
        line("");
    }
    let ratios = ratio_rows(report);
    if !ratios.is_empty() {
        line(&ratio_table(ratios));
        line("");
    }
    for note in notes(report) {
        line(&wrap(&note, 2));
    }
    if !report.summary.is_empty() {
        line("");
        for (name, meaning) in legend(report) {
            line(&wrap(&format!("{name:LEGEND$}{meaning}"), LEGEND));
        }
    }
    text
}

/// The heading of the overview.
pub fn title(report: &Report, wait: Wait) -> String {
    let runs = || report.runs.iter();
    let size = runs()
        .next()
        .map_or(String::new(), |run| format!(" of {} bytes", run.size));
    let load = runs()
        .find_map(|run| run.offered_pps)
        .map_or(String::new(), |pps| format!("; offered load: {pps}/s"));
    format!(
        "Millions of frames{size} per second, {}, median of the rounds{load}:",
        waiting(wait)
    )
}

fn waiting(wait: Wait) -> &'static str {
    match wait {
        Wait::Spin => "spinning",
        Wait::Poll => "waiting in poll",
        Wait::Adaptive => "waiting adaptively",
        Wait::BusyPoll => "busy polling",
    }
}

/// The table of the AF_XDP RFC.
pub struct Overview {
    /// Column headings, in lines.
    pub headings: Vec<String>,
    /// A bench, and its figure in each column.
    pub rows: Vec<(Bench, Vec<String>)>,
}

impl Overview {
    /// The combinations that wait in this way.
    pub fn new(report: &Report, wait: Wait) -> Self {
        let mut columns: Vec<Combination> = Vec::new();
        let mut benches: Vec<Bench> = Vec::new();
        for combination in report.combinations() {
            if combination.wait != wait {
                continue;
            }
            if !columns.iter().any(|it| column(*it) == column(combination)) {
                columns.push(combination);
            }
            if !benches.contains(&combination.bench) {
                benches.push(combination.bench);
            }
        }
        columns.sort_by_key(|it| column(*it));
        let figures = |bench| {
            columns
                .iter()
                .map(|it| figure(report, Combination { bench, ..*it }))
                .collect()
        };
        Self {
            rows: benches.into_iter().map(|it| (it, figures(it))).collect(),
            headings: columns.into_iter().map(heading).collect(),
        }
    }
}

fn overview(report: &Report, wait: Wait, plain: bool) -> String {
    let overview = Overview::new(report, wait);
    let mut table = table(if plain {
        presets::ASCII_FULL_CONDENSED
    } else {
        presets::UTF8_FULL_CONDENSED
    });
    table.set_header(row("", overview.headings.into_iter()));
    for (bench, figures) in overview.rows {
        table.add_row(row(&bench.to_string(), figures.into_iter()));
    }
    table.to_string()
}

/// The heading of a combination's column, in lines.
fn heading(combination: Combination) -> String {
    let engine = combination.engine.heading();
    match combination.mode {
        None => format!("AF_PACKET\n{engine}"),
        Some(Mode::Auto) => format!("AF_XDP\nauto\n{engine}"),
        Some(mode) => format!("AF_XDP\n{}\n{engine}", mode.to_string().to_uppercase()),
    }
}

fn figure(report: &Report, combination: Combination) -> String {
    if let Some(row) = report.medians(combination) {
        return mpps(row.pps_median);
    }
    if report
        .refused
        .iter()
        .any(|it| it.combination == combination)
    {
        return "refused".into();
    }
    if report.failed.iter().any(|it| it.combination == combination) {
        return "failed".into();
    }
    "-".into()
}

/// Three significant digits.
pub fn mpps(pps: f64) -> String {
    if pps == 0.0 {
        return "0".into();
    }
    let mpps = pps / 1e6;
    let digits = if mpps >= 9.995 {
        1
    } else if mpps >= 0.1 {
        2
    } else {
        4
    };
    format!("{mpps:.digits$}")
}

/// The columns of the details, after the bench.
pub const DETAILS: [&str; 10] = [
    "engine", "mode", "wait", "Mpps", "min", "max", "user ns", "sys ns", "CPU %", "dropped",
];

fn details(report: &Report, combinations: &[Combination]) -> String {
    let mut table = table(presets::NOTHING);
    table.set_header(detail_row("bench", DETAILS.map(String::from)));
    for combination in combinations {
        let Some(medians) = report.medians(*combination) else {
            continue;
        };
        let cells = detail_cells(report, medians);
        table.add_row(detail_row(&combination.bench.to_string(), cells));
    }
    unframed(table)
}

fn detail_row(bench: &str, cells: [String; DETAILS.len()]) -> Row {
    let mut row = Row::new();
    row.add_cell(Cell::new(bench));
    for (index, cell) in cells.into_iter().enumerate() {
        let alignment = if index < 3 {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        };
        row.add_cell(Cell::new(cell).set_alignment(alignment));
    }
    row
}

/// The figures of one combination, as [`DETAILS`] names them.
pub fn detail_cells(report: &Report, medians: &Summary) -> [String; DETAILS.len()] {
    let combination = medians.combination;
    let ns = |value: Option<f64>| value.map_or("-".into(), |ns| format!("{ns:.0}"));
    [
        combination.engine.to_string(),
        mode(combination, report.runs_of(combination).next()),
        combination.wait.to_string(),
        mpps(medians.pps_median),
        mpps(medians.pps_min),
        mpps(medians.pps_max),
        ns(medians.cpu_user_ns_per_packet_median),
        ns(medians.cpu_sys_ns_per_packet_median),
        format!("{:.0}", medians.app_cpu_percent_median),
        percent(medians.dropped_percent_median),
    ]
}

/// The requested mode, and the obtained one if it differs.
fn mode(combination: Combination, run: Option<&Run>) -> String {
    match (combination.mode, run.and_then(|run| run.mode_obtained)) {
        (None, _) => "-".into(),
        (Some(asked), Some(obtained)) if asked != obtained => format!("{asked}: {obtained}"),
        (Some(asked), _) => asked.to_string(),
    }
}

fn percent(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if value < 0.1 {
        "<0.1%".into()
    } else {
        format!("{value:.1}%")
    }
}

/// The columns of [`ratio_rows`].
pub const RATIOS: [&str; 5] = ["bench", "ratio of", "to", "packets/s", "CPU/packet"];

/// Each ratio of the summary as text.
pub fn ratio_rows(report: &Report) -> Vec<[String; RATIOS.len()]> {
    let mut rows = Vec::new();
    for combination in report.combinations() {
        let of = |row: &&Summary| row.combination == combination;
        for row in report.summary.iter().filter(of) {
            let (Some(engine), Some(wait), Some(ratio)) =
                (row.ratio_to, row.ratio_to_wait, row.ratio_median)
            else {
                continue;
            };
            let mode = combination.mode.filter(|_| engine.is_af_xdp());
            rows.push([
                combination.bench.to_string(),
                way(combination.engine, combination.mode, combination.wait),
                way(engine, mode, wait),
                format!("{ratio:.2}x"),
                row.cpu_ratio_median
                    .map_or("-".into(), |ratio| format!("{ratio:.2}x")),
            ]);
        }
    }
    rows
}

fn way(engine: Engine, mode: Option<Mode>, wait: Wait) -> String {
    match mode {
        Some(mode) => format!("{engine} {mode} {wait}"),
        None => format!("{engine} {wait}"),
    }
}

fn ratio_table(rows: Vec<[String; RATIOS.len()]>) -> String {
    let mut table = table(presets::NOTHING);
    let aligned = |cells: [String; RATIOS.len()]| {
        let [bench, of, to, pps, cpu] = cells.map(Cell::new);
        let right = CellAlignment::Right;
        Row::from([
            bench,
            of,
            to,
            pps.set_alignment(right),
            cpu.set_alignment(right),
        ])
    };
    table.set_header(aligned(RATIOS.map(String::from)));
    for cells in rows {
        table.add_row(aligned(cells));
    }
    unframed(table)
}

/// Notes below the figures, each a paragraph.
pub fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    for (combinations, reason) in report.refusals() {
        notes.push(format!("refused: {combinations}: {reason}"));
    }
    notes.extend(unavailable_notes(&report.unavailable));
    for it in &report.failed {
        notes.push(format!(
            "failed: {}, round {}: {}",
            it.combination, it.round, it.message
        ));
    }
    notes.extend(auto_notes(report));
    notes.extend(shared_cpu_note(report));
    if report.interrupted {
        notes.push("interrupted: unfinished runs are missing.".into());
    }
    notes
}

/// Missing engines and ways to wait, each reason once.
pub fn unavailable_notes(unavailable: &[Unavailable]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for it in unavailable {
        let wait = it.wait.map_or(String::new(), |wait| format!(" {wait}"));
        let name = format!("{}{wait}", it.engine);
        match reasons.iter_mut().find(|(reason, _)| *reason == it.reason) {
            Some((_, all)) => all.push(name),
            None => reasons.push((&it.reason, vec![name])),
        }
    }
    let note =
        |(reason, all): (&str, Vec<String>)| format!("unavailable: {}: {reason}", all.join(", "));
    reasons.into_iter().map(note).collect()
}

/// Modes that `auto` tried without success.
fn auto_notes(report: &Report) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for run in &report.runs {
        for refusal in &run.refusals {
            let note = format!("{} auto skipped {refusal}", run.combination.engine);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// A warning if other tasks ran on the engines' CPU.
fn shared_cpu_note(report: &Report) -> Option<String> {
    let spinning = |row: &&Summary| row.combination.wait == Wait::Spin;
    let least = report
        .summary
        .iter()
        .filter(spinning)
        .map(|row| row.app_cpu_percent_median)
        .min_by(f64::total_cmp)?;
    (least < SPINS).then(|| {
        format!(
            "note: spinning engines got as little as {least:.0}% of CPU {}: other tasks ran there, and the rates are too low.",
            report.host.app_cpu
        )
    })
}

/// The columns and rows explained: a name and a sentence.
pub fn legend(report: &Report) -> Vec<(String, String)> {
    let measured = |bench| report.runs.iter().any(|it| it.combination.bench == bench);
    let benches = Bench::all().iter().filter(|&&bench| measured(bench));
    let mut legend: Vec<(String, String)> = benches
        .map(|bench| (bench.to_string(), bench.description() + "."))
        .collect();
    let columns = [
        (
            "AF_PACKET",
            "Packet socket with mapped rings, TPACKET_V2 and TPACKET_V3.",
        ),
        (
            "AF_XDP",
            "skb: generic XDP, after the socket buffer is allocated; drv: native XDP, with a copy; zc: native \
             XDP, zero-copy. weir: weir's library (xsk); halves: that on two CPUs (xsk-halves); libxdp: a loop on libxdp.",
        ),
        (
            "Mpps",
            "Millions of packets per second handled by the engine: median, slowest and fastest round.",
        ),
        (
            "user, sys",
            "CPU time of the engine's process per packet, in ns: in user mode and in system calls. Most kernels \
             sample the division at each tick; the sum is exact.",
        ),
        (
            "CPU %",
            "Share of the window that the engine was on its CPU: near 100 when it spins; of both CPUs for xsk-halves.",
        ),
        (
            "dropped",
            "Share of packets dropped at the socket for lack of room, or by the device when sending.",
        ),
        (
            "ratio",
            "Of two runs of the same round, median over the rounds: packets per second (higher is better), and \
             CPU time of the process per packet (lower is better).",
        ),
    ];
    legend.extend(columns.map(|(name, text)| (name.into(), text.into())));
    legend.push(("host".into(), host_line(report)));
    legend
}

fn host_line(report: &Report) -> String {
    format!(
        "{}. {} Rates drift between runs, by 30% and more on a virtual machine; ratios within a \
         round do not.",
        report.host.machine.summary(),
        report.host.cpu_note()
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use crate::report::text::WIDTH;

    #[test]
    fn it_fits_and_shows_every_result() {
        for plain in [true, false] {
            let text = render(&report(), plain);
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest.is_some_and(|length| length <= WIDTH), "{text}");
            for word in [
                "rxdrop",
                "2.00",
                "refused",
                "libxdp",
                "2.00x",
                "no <zero-copy>",
            ] {
                assert!(text.contains(word), "{word} in {text}");
            }
        }
        assert!(render(&report(), true).is_ascii());
    }

    #[test]
    fn a_report_of_nothing_is_no_table() {
        let mut empty = report();
        empty.runs.clear();
        empty.refused.clear();
        empty.summarize();
        assert_eq!(render(&empty, true), "");
    }

    #[test]
    fn figures_have_few_digits() {
        for (pps, shown) in [
            (12_345_678.0, "12.3"),
            (1_234_567.0, "1.23"),
            (9_999.0, "0.0100"),
        ] {
            assert_eq!(mpps(pps), shown);
        }
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = "word ".repeat(50);
        let lines = wrap(text.trim(), 4);
        assert!(lines.lines().all(|line| line.len() <= WIDTH));
        assert!(
            lines
                .lines()
                .skip(1)
                .all(|line| line.starts_with("    word"))
        );
        assert_eq!(lines.split_whitespace().count(), 50);
    }
}

//! The report as text: the table of the AF_XDP RFC, then the details, in 100 columns.

use comfy_table::{Cell, CellAlignment, Row, presets};

use super::{Report, Run, Summary, column, main_wait};
use crate::bench::plan::Combination;
use crate::engine::bench::Bench;
use crate::engine::{Engine, Mode, Wait};
use crate::report::text::{row, table, unframed, wrap};

/// A thread that spins on a CPU of its own gets more of it than this, in percent.
const SPINS: f64 = 90.0;
/// Where the sentences of the legend begin.
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

/// What the overview shows.
pub fn title(report: &Report, wait: Wait) -> String {
    let runs = || report.runs.iter();
    let size = runs()
        .next()
        .map_or(String::new(), |run| format!(" of {} bytes", run.size));
    let load = runs()
        .find_map(|run| run.offered_pps)
        .map_or(String::new(), |pps| {
            format!("; {pps} a second are offered to rxdrop and l2fwd")
        });
    format!(
        "Millions of frames{size} a second, {}, median of the rounds{load}:",
        waiting(wait)
    )
}

fn waiting(wait: Wait) -> &'static str {
    match wait {
        Wait::Spin => "spinning",
        Wait::Poll => "waiting in poll",
        Wait::Adaptive => "waiting adaptively",
    }
}

/// The table of the AF_XDP RFC.
pub struct Overview {
    /// What the columns are, in lines.
    pub headings: Vec<String>,
    /// A bench, and its figure in each column.
    pub rows: Vec<(Bench, Vec<String>)>,
}

impl Overview {
    /// Of what was measured while waiting in one way.
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
    let mode = match combination.mode {
        None => "",
        Some(Mode::Skb) => "SKB",
        Some(Mode::Drv) => "DRV",
        Some(Mode::Zc) => "ZC",
        Some(Mode::Auto) => "auto",
    };
    match combination.engine {
        Engine::PacketV2 => "AF_PACKET\nV2".into(),
        Engine::PacketV3 => "AF_PACKET\nV3".into(),
        Engine::Xsk => format!("AF_XDP\n{mode}\nweir"),
        Engine::Libxdp => format!("AF_XDP\n{mode}\nlibxdp"),
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

/// Three figures that count.
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

/// What was asked for, and what was obtained where that is another.
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

/// Each ratio of the summary in words.
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
            let mode = combination.mode.filter(|_| engine == Engine::Libxdp);
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

/// What is to be said below the figures, each a paragraph.
pub fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    for (what, reason) in report.refusals() {
        notes.push(format!("refused: {what}: {reason}"));
    }
    notes.extend(unavailable_notes(report));
    for it in &report.failed {
        notes.push(format!(
            "failed: {}, round {}: {}",
            it.combination, it.round, it.message
        ));
    }
    notes.extend(auto_notes(report));
    notes.extend(shared_cpu_note(report));
    if report.interrupted {
        notes.push("interrupted: what was not finished is missing.".into());
    }
    notes
}

/// What does not exist, each reason once.
fn unavailable_notes(report: &Report) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for it in &report.unavailable {
        let wait = it.wait.map_or(String::new(), |wait| format!(" {wait}"));
        let what = format!("{}{wait}", it.engine);
        match reasons.iter_mut().find(|(reason, _)| *reason == it.reason) {
            Some((_, all)) => all.push(what),
            None => reasons.push((&it.reason, vec![what])),
        }
    }
    let note =
        |(reason, all): (&str, Vec<String>)| format!("not available: {}: {reason}", all.join(", "));
    reasons.into_iter().map(note).collect()
}

/// Why `auto` got what it got.
fn auto_notes(report: &Report) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for run in &report.runs {
        for refusal in &run.refusals {
            let note = format!("{} auto passed over {refusal}", run.combination.engine);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// Whether something else ran on the engines' CPU: then a figure says less about the engine.
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
            "note: spinning engines had as little as {least:.0}% of CPU {}: something else ran there, and their rates are too low.",
            report.host.app_cpu
        )
    })
}

/// What the columns mean, for those who see them for the first time: a name and a sentence.
pub fn legend(report: &Report) -> Vec<(&'static str, String)> {
    let mut legend = vec![
        (
            "bench",
            "rxdrop receives and drops, txpush sends, l2fwd receives, swaps the MAC addresses and sends back."
                .to_owned(),
        ),
        (
            "AF_PACKET",
            "the classic packet socket with mapped rings, TPACKET version 2 and 3.".into(),
        ),
        (
            "AF_XDP",
            "skb: after the kernel made a socket buffer; drv: in the driver, copied; zc: in the driver, not copied. \
             By weir's library (xsk), and by a loop on libxdp."
                .into(),
        ),
        (
            "Mpps",
            "millions of packets a second that the engine handled: median, slowest and fastest round.".into(),
        ),
        (
            "user, sys",
            "CPU time of the engine's thread for one packet, in nanoseconds: its own and in system calls. Most \
             kernels sample which of the two it is, at each tick; their sum is exact.".into(),
        ),
        (
            "CPU %",
            "share of the window that this thread was on its CPU: near 100 when it spins.".into(),
        ),
        (
            "dropped",
            "share of the packets that reached the engine's socket too fast, or that the device could not send."
                .into(),
        ),
        (
            "ratio",
            "of two runs of the same round, median over the rounds: packets a second (more is better), and CPU time of \
             the thread for one packet (less is better)."
                .into(),
        ),
    ];
    legend.push(("host", host_line(report)));
    legend
}

fn host_line(report: &Report) -> String {
    format!(
        "{}. {} Rates drift from run to run, by 30% and more on a virtual machine; ratios of the \
         same round hold.",
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
    fn it_fits_and_shows_what_was_found() {
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

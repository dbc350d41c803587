//! The counts of instructions as text.

use comfy_table::presets;

use super::report::{Count, Report};
use crate::bench::plan::Combination;
use crate::report::text::{row, table, unframed, wrap};

/// The report as text.
pub fn render(report: &Report, batches: &[u32]) -> String {
    let size = report.size;
    let mut lines = vec![
        format!("Instructions for one frame of {size} bytes, including the kernel's:"),
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
                "batch      batch size; a system call sends one batch. Each figure is of {} frames in {} turns.",
                turns.count * turns.packets,
                turns.count
            ),
            "receiving  the part of it until the socket has the frame: the kernel's work, in batches of 64 \
             with every engine, less the load alone."
                .into(),
            "load       a frame's generation, its way through the veth, and a native XDP program that \
             drops it."
                .into(),
            "sending    ends in a sink at the other end of the veth, which is included."
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
    use super::super::tests::report;
    use super::*;

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
}

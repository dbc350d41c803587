//! Latency by percentile, a line for each way: both axes are logarithmic, so that the slowest packet in a
//! thousand has as much room as the median.
//!
//! Colours are classes, so that a chart follows the reader's colour scheme.

use std::fmt::Write as _;

use clap::ValueEnum as _;

use super::summary::Summary;
use crate::engine::{Engine, Wait};
use crate::report::page::escape;

/// Geometry, in pixels of the SVG.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 14.0;
const BELOW: f64 = 46.0;
/// The distance of the legend's lines, and the length of its samples.
const LINE: f64 = 18.0;
const SAMPLE: f64 = 30.0;

/// Percentiles with a name on the axis.
const NAMED: [f64; 7] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
/// Latencies that may have a grid line, in each decade.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// The style sheet of the charts.
pub fn style() -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for &engine in Engine::value_variants() {
        let (by_day, by_night) = colours(engine);
        let _ = writeln!(light, ".of-{engine} {{ stroke: {by_day}; }}");
        let _ = writeln!(dark, "\t.of-{engine} {{ stroke: {by_night}; }}");
    }
    let mut dashes = String::new();
    for &wait in Wait::value_variants() {
        let _ = writeln!(dashes, ".by-{wait} {{ stroke-dasharray: {}; }}", dash(wait));
    }
    format!(
        "<style>\n.rtt-chart {{ max-width: 100%; }}\n.rtt-chart path {{ fill: none; stroke-width: 2; }}\n\
         .rtt-chart .grid {{ stroke: var(--line); stroke-width: 1; }}\n.rtt-chart .soft {{ fill: var(--soft); }}\n\
         .rtt :is(th, td):nth-child(-n+4) {{ text-align: left; }}\n\
         {light}{dashes}@media (prefers-color-scheme: dark) {{\n{dark}}}\n</style>\n"
    )
}

/// The colour of an engine's lines, on light and on dark.
fn colours(engine: Engine) -> (&'static str, &'static str) {
    match engine {
        Engine::PacketV2 => ("#e8590c", "#ffa94d"),
        Engine::PacketV3 => ("#c2255c", "#faa2c1"),
        Engine::Udp => ("#5f3dc4", "#b197fc"),
        Engine::Xsk => ("#0b7285", "#3bc9db"),
        Engine::XskHalves => ("#495057", "#ced4da"),
        Engine::XskBrokered => ("#1864ab", "#74c0fc"),
        Engine::Libxdp => ("#2b8a3e", "#8ce99a"),
    }
}

fn dash(wait: Wait) -> &'static str {
    match wait {
        Wait::Spin => "none",
        Wait::Poll => "7 4",
        Wait::Adaptive => "2 4",
        Wait::BusyPoll => "12 3 2 3",
    }
}

/// A chart of these cases, which have the same rate.
pub fn draw(rows: &[&Summary]) -> String {
    let scale = Scale::of(rows);
    let mut svg = format!(
        "<svg class=\"rtt-chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Latency by percentile\">\n"
    );
    svg.push_str(&grid(&scale));
    for row in rows {
        svg.push_str(&line(&scale, row));
    }
    svg.push_str(&key(rows));
    svg.push_str("</svg>");
    svg
}

/// The place of a percentile on its axis: each nine is one further.
fn nines(percent: f64) -> f64 {
    -((100.0 - percent) / 100.0).log10()
}

/// The ranges of the axes.
struct Scale {
    nines: f64,
    lowest: f64,
    highest: f64,
}

impl Scale {
    fn of(rows: &[&Summary]) -> Self {
        let points = || rows.iter().flat_map(|row| &row.percentiles);
        let values = || points().map(|it| it.ns_median.max(1.0));
        let lowest = values().fold(f64::INFINITY, f64::min).min(1e9);
        Self {
            nines: points().map(|it| nines(it.percent)).fold(1.0, f64::max),
            lowest: step_below(lowest),
            highest: step_above(values().fold(lowest * 2.0, f64::max)),
        }
    }

    fn x(&self, percent: f64) -> f64 {
        LEFT + nines(percent) / self.nines * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ns: f64) -> f64 {
        let share = (ns / self.lowest).ln() / (self.highest / self.lowest).ln();
        HEIGHT - BELOW - share * (HEIGHT - BELOW - TOP)
    }
}

/// Grid lines from 1 ns to 1000 s.
fn steps() -> impl DoubleEndedIterator<Item = f64> {
    (0..12).flat_map(|decade| STEPS.map(|step| step * 10_f64.powi(decade)))
}

fn step_below(ns: f64) -> f64 {
    steps().rev().find(|step| *step <= ns).unwrap_or(1.0)
}

fn step_above(ns: f64) -> f64 {
    steps().find(|step| *step >= ns).unwrap_or(ns)
}

fn grid(scale: &Scale) -> String {
    let mut svg = String::new();
    let end = WIDTH - RIGHT;
    // Over more than four decades only the powers of ten have room.
    let is_wide = scale.highest / scale.lowest > 1e4;
    let inside = steps().filter(|ns| (scale.lowest..=scale.highest).contains(ns));
    for ns in inside.filter(|ns| !is_wide || (ns.log10() - ns.log10().round()).abs() < 1e-9) {
        let y = scale.y(ns);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{end}\"/>\
             <text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            time(ns)
        );
    }
    let floor = HEIGHT - BELOW;
    for percent in NAMED
        .iter()
        .filter(|percent| nines(**percent) <= scale.nines)
    {
        let x = scale.x(*percent);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{x:.1} {TOP}V{floor}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{percent}%</text>",
            floor + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"soft\" x=\"{LEFT}\" y=\"{}\">share of packets that took no longer</text>",
        floor + 38.0
    );
    svg
}

/// A time of the axis, with its unit.
fn time(ns: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "\u{b5}s"), (1.0, "ns")];
    let (unit, name) = units
        .into_iter()
        .find(|(unit, _)| *unit <= ns)
        .unwrap_or((1.0, "ns"));
    format!("{:.0} {name}", ns / unit)
}

fn line(scale: &Scale, row: &Summary) -> String {
    let points: Vec<String> = row
        .percentiles
        .iter()
        .map(|it| {
            format!(
                "{:.1} {:.1}",
                scale.x(it.percent),
                scale.y(it.ns_median.max(1.0))
            )
        })
        .collect();
    if points.is_empty() {
        return String::new();
    }
    format!(
        "<path class=\"{}\" d=\"M{}\"/>\n",
        class(row),
        points.join("L")
    )
}

fn class(row: &Summary) -> String {
    let way = row.case.way;
    format!("of-{} by-{}", way.engine, way.wait)
}

/// The names of the lines, the slowest first, as they end on the right.
fn key(rows: &[&Summary]) -> String {
    let mut rows = rows.to_vec();
    let last = |row: &Summary| row.percentiles.last().map_or(0.0, |it| it.ns_median);
    rows.sort_by(|a, b| last(b).total_cmp(&last(a)));
    let mut svg = String::new();
    for (index, row) in rows.into_iter().enumerate() {
        let y = TOP + 6.0 + index as f64 * LINE;
        let x = WIDTH - RIGHT + 16.0;
        let _ = writeln!(
            svg,
            "<path class=\"{}\" d=\"M{x} {y}h{SAMPLE}\"/><text x=\"{}\" y=\"{}\">{}</text>",
            class(row),
            x + SAMPLE + 8.0,
            y + 4.0,
            escape(&row.case.way.to_string())
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn every_way_has_a_line_and_a_name() {
        let report = report();
        let (_, rows) = report.by_rate().remove(0);
        let svg = draw(&rows);
        roxmltree::Document::parse(&svg).expect("is well-formed");
        for way in ["of-xsk by-spin", "of-packet-v2 by-spin"] {
            assert_eq!(svg.matches(way).count(), 2, "{way}: {svg}");
        }
        assert!(svg.contains(">xsk drv spin<"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_chart_of_nothing_is_drawn() {
        let svg = draw(&[]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn each_nine_has_the_same_room() {
        for (percent, expected) in [(0.0, 0.0), (90.0, 1.0), (99.0, 2.0), (99.9, 3.0)] {
            assert!((nines(percent) - expected).abs() < 1e-9, "{percent}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        let times = [2.0, 5_000.0, 1e6, 2e9].map(time);
        assert_eq!(times, ["2 ns", "5 \u{b5}s", "1 ms", "2 s"]);
    }

    #[test]
    fn axes_end_at_grid_lines() {
        assert!((step_below(8_400.0) - 5_000.0).abs() < 1.0);
        assert!((step_above(8_400.0) - 10_000.0).abs() < 1.0);
    }
}

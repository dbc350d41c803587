//! The charts of a report: as a file, and as figures of a page.

use std::fmt::Write as _;

use anyhow::Result;

use super::Path;
use super::chart::{HEIGHT, SOFTIRQ, TOTAL, draw};
use super::report::Report;
use crate::report::page::escape;
use crate::report::text::wrap;

const STYLE: &str = include_str!("chart.css");

/// The width of a picture, in pixels of the SVG, with a chart on either side.
const WIDTH: u16 = 800;
const MARGIN: u16 = 16;
const CHART: u16 = (WIDTH - 3 * MARGIN) / 2;
/// The room for the title.
const HEAD: u16 = 44;
/// The height of a row of charts.
const ROW: u16 = HEIGHT + 12;
/// The height of a line below the charts.
const LINE: u16 = 18;
/// Loss in percent above which a picture mentions it.
const WORTH_A_NOTE: f64 = 1.0;
/// The width of a chart that is a figure of a page: narrow enough for a phone.
const FIGURE: u16 = 440;

/// A picture for a file: a row of charts for each number of receivers.
pub fn render(report: &Report) -> Result<String> {
    let about = about(report);
    let receivers = report.receivers();
    let foot = HEAD + ROW * receivers.len() as u16;
    let height = foot + LINE * about.len() as u16 + MARGIN;
    let title = title(report);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>{title}</title>\n<desc>{}</desc>\n<style>\n{}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n\
         <text class=\"title ink\" x=\"{MARGIN}\" y=\"27\">{title}</text>\n",
        escape(&report.host.machine.command),
        style(report),
    );
    for (row, receivers) in (0..).zip(receivers) {
        let y = HEAD + ROW * row;
        for (x, figure) in [(MARGIN, SOFTIRQ), (2 * MARGIN + CHART, TOTAL)] {
            let chart = draw(report, receivers, figure, CHART)?;
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">\n{chart}</g>");
        }
    }
    for (number, line) in (1..).zip(about) {
        let y = foot + LINE * number;
        let line = escape(&line);
        let _ = writeln!(
            svg,
            "<text class=\"about soft\" x=\"{MARGIN}\" y=\"{y}\">{line}</text>"
        );
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// All charts, for a page.
pub fn figures(report: &Report) -> Result<String> {
    let mut html = format!("<style>\n{}</style>\n", style(report));
    for receivers in report.receivers() {
        for figure in [SOFTIRQ, TOTAL] {
            let chart = draw(report, receivers, figure, FIGURE)?;
            let _ = writeln!(
                html,
                "<figure><svg viewBox=\"0 0 {FIGURE} {HEIGHT}\" role=\"img\">\n{chart}</svg></figure>"
            );
        }
    }
    Ok(html)
}

fn title(report: &Report) -> String {
    let size = report.host.size;
    format!("CPU time of receiving {size}-byte frames, by rate and path")
}

/// The lines below the charts: how to read them, and the machine.
fn about(report: &Report) -> Vec<String> {
    let mut key = Vec::new();
    if let Some(rounds) = report.rounds().filter(|rounds| *rounds > 1) {
        key.push(format!(
            "Medians of {rounds} rounds, bars from minimum to maximum."
        ));
    }
    if report.summary.iter().any(|it| !it.target_reached) {
        key.push("Hollow points: target rate not reached.".into());
    }
    let machine = &report.host.machine;
    let day = machine.date.split('T').next().unwrap_or_default();
    let machine = format!("veth pair, {}, {day}", machine.summary());
    [key.join(" "), loss(report).unwrap_or_default(), machine]
        .iter()
        .filter(|line| !line.is_empty())
        .flat_map(|line| wrap(line, 0).lines().map(String::from).collect::<Vec<_>>())
        .collect()
}

/// The highest loss of each path at rates that the load reached.
fn loss(report: &Report) -> Option<String> {
    let most = |path: &Path| {
        let of_path = report
            .summary
            .iter()
            .filter(|it| it.combination.path == *path);
        let reached = of_path.filter(|it| it.target_reached);
        reached.map(|it| it.loss_percent.median).fold(0.0, f64::max)
    };
    let losses = report.paths().into_iter().map(|path| (path, most(&path)));
    let losses: Vec<String> = losses
        .filter(|(_, percent)| *percent > WORTH_A_NOTE)
        .map(|(path, percent)| format!("{} up to {percent:.0}%", path.datapath().label()))
        .collect();
    (!losses.is_empty()).then(|| format!("Loss: {}.", losses.join(", ")))
}

/// The style sheet, with the lines of the paths that were measured.
fn style(report: &Report) -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for path in report.paths() {
        let stroke = path.datapath().stroke();
        let _ = writeln!(
            light,
            "{} .of-{path} {{ stroke-dasharray: {}; }}",
            colour(path, stroke.light),
            if stroke.dash.is_empty() {
                "none"
            } else {
                stroke.dash
            }
        );
        let _ = writeln!(dark, "\t{}", colour(path, stroke.dark));
    }
    format!("{STYLE}{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n")
}

fn colour(path: Path, colour: &str) -> String {
    format!(".at-{path} {{ fill: {colour}; }} .of-{path} {{ stroke: {colour}; }}")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn every_colour_is_a_class() {
        let svg = render(&report()).expect("is drawn");
        assert!(!svg.contains("\"#"), "{svg}");
        for class in ["ink", "grid", "axis", "of-bridge", "at-bridge", "of-xdp"] {
            assert!(
                svg.contains(&format!("class=\"{class}\"")),
                "no {class}: {svg}"
            );
        }
        assert!(!svg.contains("of-ovs"), "{svg}");
        assert_eq!(svg.matches("<svg").count(), 1);
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    }

    #[test]
    fn a_picture_needs_nothing_else() {
        let svg = render(&report()).expect("is drawn");
        roxmltree::Document::parse(&svg).expect("is well-formed");
        // The name of the format is the only address.
        assert_eq!(svg.matches("://").count(), 1, "{svg}");
        assert!(!svg.contains("url(") && !svg.contains("@import"), "{svg}");
    }

    #[test]
    fn losses_are_mentioned() {
        let mut report = report();
        assert_eq!(loss(&report), None);
        for summary in &mut report.summary {
            summary.loss_percent.median = 12.3;
        }
        let expected = "Loss: bridge up to 12%, XDP up to 12%.";
        assert_eq!(loss(&report).as_deref(), Some(expected));
    }

    #[test]
    fn a_report_without_points_is_a_picture_too() {
        let mut report = report();
        report.points.clear();
        report.summarize();
        assert!(render(&report).expect("is drawn").ends_with("</svg>\n"));
        assert!(!figures(&report).expect("is drawn").contains("<figure>"));
    }
}

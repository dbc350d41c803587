//! The curve as charts: SVG whose colours are classes, so that they follow the reader's theme.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use clap::ValueEnum as _;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::combinators::{IntoLogRange as _, LogCoord};
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::{Circle, PathElement, Text};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, IntoTextStyle as _, RGBColor, TextStyle};

use super::Path;
use super::report::{Report, Spread, Summary};
use crate::report::page::escape;
use crate::traffic::rate::Rate;

/// What charts look like, wherever they are.
const STYLE: &str = include_str!("chart.css");

/// Geometry of a chart, in pixels of the SVG: narrow enough to be read on a phone.
const WIDTH: u16 = 440;
const HEIGHT: u16 = 300;
/// Where the names of the paths stand.
const LEGEND: i32 = 44;
/// The room for one name, and how many stand in a line.
const NAME: i32 = 88;
/// The size of text, which the style sheet has, too.
const FONT: i32 = 13;
/// The size of a point.
const POINT: i32 = 3;
/// A point that the load could not make is drawn if it is so much further than the one before.
const FURTHER: f64 = 1.05;
/// Horizontal lines, about.
const LINES: f64 = 5.0;

/// A colour that becomes a class: it exists only between drawing and [`with_classes`].
const fn mark(number: u8) -> RGBColor {
    RGBColor(0, number, 0xff)
}
const INK: RGBColor = mark(1);
const SOFT: RGBColor = mark(2);
const AXIS: RGBColor = mark(3);
const GRID: RGBColor = mark(4);
const FIRST_PATH: u8 = 16;

fn colour(path: Path) -> RGBColor {
    let number = Path::value_variants()
        .iter()
        .position(|it| *it == path)
        .unwrap_or(0);
    mark(FIRST_PATH + number as u8)
}

/// A figure against the rate.
#[derive(Clone, Copy)]
pub struct Figure {
    /// What it is.
    name: &'static str,
    of: fn(&Summary) -> Spread,
}

/// The kernel's part on the CPU that receives.
pub const SOFTIRQ: Figure = Figure {
    name: "softirq, % of the load's CPU",
    of: |summary| summary.softirq_percent,
};
/// All that it costs.
pub const TOTAL: Figure = Figure {
    name: "softirqs, receivers and switch, % of one CPU",
    of: |summary| summary.total_percent,
};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, RangedCoordf64>>;

/// All charts below each other, as a file of its own.
pub fn picture(report: &Report) -> Result<String> {
    let charts = charts(report)?;
    let height = usize::from(HEIGHT) * charts.len().max(1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\">\n<title>{}</title>\n<style>\n\
         :root {{ color-scheme: light dark; background: Canvas; }}\n{STYLE}</style>\n",
        escape(&report.host.machine.command)
    );
    for (number, chart) in (0..).zip(&charts) {
        let top = HEIGHT * number;
        let _ = writeln!(svg, "<g transform=\"translate(0 {top})\">\n{chart}</g>");
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// All charts, for a page.
pub fn figures(report: &Report) -> Result<String> {
    let mut html = String::new();
    for (number, chart) in charts(report)?.iter().enumerate() {
        // The style of the first one holds for all of the page.
        let style = if number == 0 {
            format!("<style>\n{STYLE}</style>\n")
        } else {
            String::new()
        };
        let _ = writeln!(
            html,
            "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n{style}{chart}</svg></figure>"
        );
    }
    Ok(html)
}

/// The inside of each chart: for each number of receivers softirqs and all CPU time.
fn charts(report: &Report) -> Result<Vec<String>> {
    let mut charts = Vec::new();
    for receivers in report.receivers() {
        for figure in [SOFTIRQ, TOTAL] {
            let svg = draw(report, receivers, figure)
                .map_err(|error| anyhow!("cannot draw a chart: {error}"))?;
            charts.push(with_classes(&svg));
        }
    }
    Ok(charts)
}

/// An error of plotters, which borrows what it is about.
type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn draw(report: &Report, receivers: u8, figure: Figure) -> Drawn<String> {
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (WIDTH.into(), HEIGHT.into())).into_drawing_area();
        let plural = if receivers == 1 { "" } else { "s" };
        let title = format!("{receivers} receiver{plural}: {}", figure.name);
        area.draw(&Text::new(title, (8, 8), text(INK)))?;
        let paths: Vec<Path> = Path::value_variants()
            .iter()
            .copied()
            .filter(|path| report.curve(*path, receivers).next().is_some())
            .collect();
        let lines = legend(&area, &paths)?;
        let mut chart = axes(&area, report, receivers, figure, lines)?;
        for path in paths {
            line(
                &mut chart,
                &points(report, path, receivers, figure),
                colour(path),
            )?;
        }
        area.present()?;
    }
    Ok(svg)
}

fn text(colour: RGBColor) -> TextStyle<'static> {
    TextStyle {
        color: colour.to_backend_color(),
        ..("sans-serif", FONT).into_text_style(&(u32::from(WIDTH), u32::from(HEIGHT)))
    }
}

/// The names of the paths with their lines; returns where the chart may begin.
fn legend(area: &Area<'_>, paths: &[Path]) -> Drawn<i32> {
    let each_line = (i32::from(WIDTH) - 16) / NAME;
    for (number, path) in (0..).zip(paths) {
        let left = 8 + number % each_line * NAME;
        let middle = LEGEND - 8 + number / each_line * 18;
        let stroke = colour(*path).stroke_width(2);
        area.draw(&PathElement::new(
            [(left, middle), (left + 20, middle)],
            stroke,
        ))?;
        area.draw(&Circle::new(
            (left + 10, middle),
            POINT,
            colour(*path).filled(),
        ))?;
        area.draw(&Text::new(
            path.to_string(),
            (left + 24, middle - 6),
            text(SOFT),
        ))?;
    }
    let last = (0..).zip(paths).last().map_or(0, |(number, _)| number);
    Ok(LEGEND + 8 + last / each_line * 18)
}

/// The chart itself, by the logarithm of the rate: what matters below 100k is seen as well.
fn axes<'b>(
    area: &Area<'b>,
    report: &Report,
    receivers: u8,
    figure: Figure,
    top: i32,
) -> Drawn<Chart<'static, 'b>> {
    let (asked, most) = extent(report, receivers, figure);
    let lowest = report.summary.iter().map(|it| it.offered_pps.median);
    let first = lowest.chain(asked.first().copied()).reduce(f64::min);
    let first = first.unwrap_or(1.0).max(1.0);
    let last = asked.last().copied().unwrap_or(first);
    let step = step(most);
    let highest = (most / step).ceil().max(1.0) * step;
    let mut chart = ChartBuilder::on(area)
        .margin_top(top)
        .margin_right(24)
        .margin_bottom(6)
        .x_label_area_size(28)
        .y_label_area_size(40)
        .build_cartesian_2d((first / 1.15..last * 1.15).log_scale(), 0.0..highest)?;
    let mut at = 0.0;
    while at <= highest {
        let style = if at == 0.0 { AXIS } else { GRID };
        chart.draw_series([PathElement::new(
            [(first / 1.15, at), (last * 1.15, at)],
            style,
        )])?;
        let (x, y) = chart.backend_coord(&(first / 1.15, at));
        let style = text(SOFT).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(format!("{at}"), (x - 6, y), style))?;
        at += step;
    }
    let mut free = i32::MAX;
    for pps in asked.into_iter().rev() {
        let (x, y) = chart.backend_coord(&(pps, 0.0));
        area.draw(&PathElement::new([(x, y), (x, y + 4)], AXIS))?;
        let name = Rate(pps as u64).to_string();
        let half = i32::try_from(name.len())? * 4;
        // A rate whose name does not fit beside that of a higher one has its tick only.
        if x + half < free {
            let style = text(SOFT).pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new(name, (x, y + 8), style))?;
            free = x - half;
        }
    }
    Ok(chart)
}

/// The rates in ascending order, and the highest value.
fn extent(report: &Report, receivers: u8, figure: Figure) -> (Vec<f64>, f64) {
    let all = || {
        let of = move |it: &&Summary| it.combination.receivers == receivers;
        report.summary.iter().filter(of)
    };
    let mut asked: Vec<f64> = all().map(|it| it.combination.rate.0 as f64).collect();
    asked.sort_by(f64::total_cmp);
    asked.dedup();
    let most = all().map(|it| (figure.of)(it).max).fold(1.0, f64::max);
    (asked, most)
}

/// A round distance between about [`LINES`] horizontal lines.
fn step(most: f64) -> f64 {
    let rough = most / LINES;
    let power = 10_f64.powf(rough.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter();
    round
        .map(|it| it * power)
        .find(|it| *it >= rough)
        .unwrap_or(rough)
}

/// A point: packets a second, the figure, and whether the load made what was asked.
type Value = (f64, Spread, bool);

/// The points of a path, by what the load made where it could not make what was asked: of those
/// only the ones that are further than all before, as a full CPU gives the same again and again.
fn points(report: &Report, path: Path, receivers: u8, figure: Figure) -> Vec<Value> {
    let mut points: Vec<Value> = Vec::new();
    for summary in report.curve(path, receivers) {
        let furthest = points.last().map_or(0.0, |(pps, ..)| *pps);
        let made = summary.offered_pps.median;
        if summary.as_asked {
            let asked = summary.combination.rate.0 as f64;
            points.push((asked, (figure.of)(summary), true));
        } else if made > furthest * FURTHER {
            points.push((made, (figure.of)(summary), false));
        }
    }
    points
}

fn line(chart: &mut Chart<'_, '_>, points: &[Value], colour: RGBColor) -> Drawn<()> {
    let medians = points.iter().map(|(pps, spread, _)| (*pps, spread.median));
    let stroke = colour.stroke_width(2);
    chart.draw_series([PathElement::new(medians.collect::<Vec<_>>(), stroke)])?;
    for (pps, spread, as_asked) in points {
        if spread.max > spread.min {
            let ends = [(*pps, spread.min), (*pps, spread.max)];
            chart.draw_series([PathElement::new(ends, colour.stroke_width(1))])?;
        }
        let (size, style) = if *as_asked {
            (POINT, colour.filled())
        } else {
            (POINT + 2, colour.stroke_width(2))
        };
        chart.draw_series([Circle::new((*pps, spread.median), size, style)])?;
    }
    Ok(())
}

/// The inside of a drawing, with classes where it has marks for colours.
fn with_classes(svg: &str) -> String {
    let lines = svg.lines();
    let mut inside = lines
        .filter(|line| !line.starts_with("<svg") && !line.starts_with("</svg"))
        .collect::<Vec<_>>()
        .join("\n");
    let hex = |RGBColor(red, green, blue): RGBColor| format!("#{red:02X}{green:02X}{blue:02X}");
    let mut class = |attribute: &str, colour: RGBColor, name: &str| {
        let mark = format!("{attribute}=\"{}\"", hex(colour));
        inside = inside.replace(&mark, &format!("class=\"{name}\""));
    };
    class("fill", INK, "ink");
    class("fill", SOFT, "soft");
    class("stroke", AXIS, "axis");
    class("stroke", GRID, "grid");
    for &path in Path::value_variants() {
        class("fill", colour(path), &format!("at-{path}"));
        class("stroke", colour(path), &format!("of-{path}"));
    }
    format!("<g class=\"chart\">\n{inside}</g>\n")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn every_colour_is_a_class() {
        let svg = picture(&report()).expect("is drawn");
        assert!(!svg.contains("\"#"), "{svg}");
        for class in ["ink", "grid", "axis", "of-bridge", "at-bridge", "of-xdp"] {
            assert!(
                svg.contains(&format!("class=\"{class}\"")),
                "no {class}: {svg}"
            );
        }
        assert!(!svg.contains("class=\"of-ovs\""), "{svg}");
        assert_eq!(svg.matches("<svg").count(), 1);
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    }

    #[test]
    fn a_chart_without_points_is_drawn_too() {
        let mut report = report();
        report.points.clear();
        report.summarize();
        assert!(picture(&report).expect("is drawn").ends_with("</svg>\n"));
        assert_eq!(figures(&report).expect("is drawn"), "");
    }

    #[test]
    fn lines_stand_at_round_numbers() {
        for (most, expected) in [
            (1.0, 0.2),
            (4.0, 1.0),
            (36.0, 10.0),
            (100.0, 20.0),
            (180.0, 50.0),
        ] {
            assert!(
                (step(most) - expected).abs() < 1e-9,
                "{most}: {}",
                step(most)
            );
        }
    }

    #[test]
    fn a_rate_that_was_not_reached_is_drawn_where_it_was() {
        let report = report();
        let ends = |path| {
            let points = points(&report, path, 1, SOFTIRQ);
            points.iter().map(|it| (it.0, it.2)).collect::<Vec<_>>()
        };
        assert_eq!(ends(Path::Xdp), [(100_000.0, true), (1_000_000.0, true)]);
        assert_eq!(ends(Path::Bridge), [(100_000.0, true), (900_000.0, false)]);
    }
}

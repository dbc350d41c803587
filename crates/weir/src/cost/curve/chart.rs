//! A chart of the curve: CPU time against the rate, a line for each path.
//!
//! Colours are CSS classes, so that a chart follows the reader's colour scheme.

use anyhow::{Result, anyhow};
use clap::ValueEnum as _;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::{Circle, PathElement, Text};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, IntoTextStyle as _, RGBColor, TextStyle};

use super::Path;
use super::report::{Report, Spread, Summary};
use crate::traffic::rate::Rate;

/// The height of a chart, in pixels of the SVG.
pub const HEIGHT: u16 = 300;
/// Room around the axes: the title above, rates below, percentages on the left.
const TOP: u32 = 40;
const BELOW: u32 = 44;
const LEFT: u32 = 36;
/// The size of text, as in chart.css.
const FONT: i32 = 13;
/// The width of a letter of that size, on average.
const LETTER: i32 = 8;
/// The distance between labels above each other.
const LINE: i32 = 16;
/// The gap between a line and its label.
const GAP: i32 = 8;
/// The radius of a point.
const POINT: i32 = 3;
/// A point below its target rate is drawn if it is this much further than the one before.
const FURTHER: f64 = 1.05;
/// The number of grid lines, roughly.
const GRID_LINES: f64 = 5.0;

/// A colour that stands for a class until [`with_classes`] replaces it.
const fn mark(number: u8) -> RGBColor {
    RGBColor(0, number, 0xff)
}
const INK: RGBColor = mark(1);
const SOFT: RGBColor = mark(2);
const AXIS: RGBColor = mark(3);
const GRID: RGBColor = mark(4);
const FIRST_PATH: u8 = 16;

fn colour(path: Path) -> RGBColor {
    let number = Path::value_variants().iter().position(|it| *it == path);
    mark(FIRST_PATH + number.unwrap_or(0) as u8)
}

/// A figure against the rate.
#[derive(Clone, Copy)]
pub struct Figure {
    of: fn(&Summary) -> Spread,
    name: fn(&Report) -> &'static str,
}

/// Softirqs on the CPU that receives.
pub const SOFTIRQ: Figure = Figure {
    of: |summary| summary.softirq_percent,
    name: |_| "kernel (softirq), % of one CPU",
};
/// All CPU time of receiving.
pub const TOTAL: Figure = Figure {
    of: |summary| summary.total_percent,
    name: |report| {
        if report.has_switch() {
            "kernel, switch and receiver, % of one CPU"
        } else {
            "kernel and receiver, % of one CPU"
        }
    },
};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'b> = ChartContext<'static, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The elements of a chart, without the `svg` element around them.
pub fn draw(report: &Report, receivers: u8, figure: Figure, width: u16) -> Result<String> {
    let chart = Chart {
        report,
        receivers,
        figure,
        width,
    };
    let svg = chart
        .draw()
        .map_err(|error| anyhow!("cannot draw a chart: {error}"))?;
    Ok(with_classes(&svg))
}

/// An error of plotters, which borrows its subject.
type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Chart<'a> {
    report: &'a Report,
    receivers: u8,
    figure: Figure,
    width: u16,
}

impl Chart<'_> {
    fn draw(&self) -> Drawn<String> {
        let mut svg = String::new();
        {
            let size = (self.width.into(), HEIGHT.into());
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            area.draw(&Text::new(self.title(), (0, 6), text(INK)))?;
            let mut plane = self.plane(&area)?;
            let mut ends = Vec::new();
            for path in self.paths() {
                let points = self.points(path);
                line(&mut plane, &points, colour(path))?;
                if let Some((pps, spread, _)) = points.last() {
                    ends.push((path, plane.backend_coord(&(*pps, spread.median))));
                }
            }
            for (path, at) in apart(ends) {
                let style = text(colour(path)).pos(Pos::new(HPos::Left, VPos::Center));
                area.draw(&Text::new(path.datapath().label(), at, style))?;
            }
            area.present()?;
        }
        Ok(svg)
    }

    fn title(&self) -> String {
        let name = (self.figure.name)(self.report);
        match self.receivers {
            1 if self.report.receivers() == [1] => name.into(),
            1 => format!("1 receiver: {name}"),
            receivers => format!("{receivers} receivers: {name}"),
        }
    }

    fn summaries(&self) -> impl Iterator<Item = &Summary> {
        let receivers = self.receivers;
        let all = self.report.summary.iter();
        all.filter(move |it| it.combination.receivers == receivers)
    }

    fn paths(&self) -> impl Iterator<Item = Path> {
        let is_measured = |path: &Path| self.report.curve(*path, self.receivers).next().is_some();
        let all = Path::value_variants().iter().copied();
        all.filter(is_measured)
    }

    /// The points of a path: at the target rate, or at the lower rate that the load reached. A
    /// saturated CPU reaches about the same rate each time; of these points only those are drawn
    /// that are further than all before.
    fn points(&self, path: Path) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for summary in self.report.curve(path, self.receivers) {
            let furthest = points.last().map_or(0.0, |(pps, ..)| *pps);
            let offered = summary.offered_pps.median;
            if summary.target_reached {
                let target = summary.combination.rate.0 as f64;
                points.push((target, (self.figure.of)(summary), true));
            } else if offered > furthest * FURTHER {
                points.push((offered, (self.figure.of)(summary), false));
            }
        }
        points
    }

    /// The axes, from zero.
    fn plane<'b>(&self, area: &Area<'b>) -> Drawn<Plane<'b>> {
        let points = self.paths().flat_map(|path| self.points(path));
        let most_pps = points.map(|(pps, ..)| pps).fold(1.0, f64::max);
        let values = self.summaries().map(|it| (self.figure.of)(it).max);
        let most = values.fold(1.0, f64::max);
        let step = step(most);
        let highest = (most / step).ceil() * step;
        let labels = self.paths().map(width);
        let right = labels.max().unwrap_or(0) + GAP;
        let plane = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_right(right)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.0..most_pps, 0.0..highest)?;
        percentages(area, &plane, most_pps, ticks(step, highest))?;
        rates(area, &plane, most_pps)?;
        Ok(plane)
    }
}

fn text(colour: RGBColor) -> TextStyle<'static> {
    TextStyle {
        color: colour.to_backend_color(),
        ..("sans-serif", FONT).into_text_style(&(1, 1))
    }
}

/// Horizontal lines and their values.
fn percentages(
    area: &Area<'_>,
    plane: &Plane<'_>,
    right: f64,
    ticks: impl Iterator<Item = f64>,
) -> Drawn<()> {
    for at in ticks {
        let (x, y) = plane.backend_coord(&(0.0, at));
        let end = plane.backend_coord(&(right, at));
        let stroke = if at == 0.0 { AXIS } else { GRID };
        area.draw(&PathElement::new([(x, y), end], stroke))?;
        let style = text(SOFT).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(number(at), (x - GAP, y), style))?;
    }
    Ok(())
}

/// Values of the rate, and their unit.
fn rates(area: &Area<'_>, plane: &Plane<'_>, most: f64) -> Drawn<()> {
    let (left, y) = plane.backend_coord(&(0.0, 0.0));
    let style = text(SOFT).pos(Pos::new(HPos::Center, VPos::Top));
    for pps in ticks(step(most), most) {
        let (x, _) = plane.backend_coord(&(pps, 0.0));
        area.draw(&PathElement::new([(x, y), (x, y + 4)], AXIS))?;
        let name = Rate(pps.round() as u64).to_string();
        area.draw(&Text::new(name, (x, y + GAP), style.clone()))?;
    }
    let (right, _) = plane.backend_coord(&(most, 0.0));
    let middle = left.midpoint(right);
    area.draw(&Text::new(
        "packets per second",
        (middle, y + GAP + LINE + 2),
        style,
    ))?;
    Ok(())
}

/// Values from zero to `end`.
fn ticks(step: f64, end: f64) -> impl Iterator<Item = f64> {
    let count = (end / step * (1.0 + 1e-9)) as u32;
    (0..=count).map(move |number| f64::from(number) * step)
}

/// Without the noise of binary fractions.
fn number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// A round distance for about [`GRID_LINES`] lines.
fn step(most: f64) -> f64 {
    let rough = most / GRID_LINES;
    let power = 10_f64.powf(rough.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter();
    round
        .map(|it| it * power)
        .find(|it| *it >= rough)
        .unwrap_or(rough)
}

/// Packets a second, the figure, and whether the load reached the target rate.
type Point = (f64, Spread, bool);

fn line(plane: &mut Plane<'_>, points: &[Point], colour: RGBColor) -> Drawn<()> {
    let medians = points.iter().map(|(pps, spread, _)| (*pps, spread.median));
    let stroke = colour.stroke_width(2);
    plane.draw_series([PathElement::new(medians.collect::<Vec<_>>(), stroke)])?;
    for (pps, spread, reached) in points {
        if spread.max > spread.min {
            let ends = [(*pps, spread.min), (*pps, spread.max)];
            plane.draw_series([PathElement::new(ends, colour.stroke_width(1))])?;
        }
        let (size, style) = if *reached {
            (POINT, colour.filled())
        } else {
            (POINT + 2, colour.stroke_width(2))
        };
        plane.draw_series([Circle::new((*pps, spread.median), size, style)])?;
    }
    Ok(())
}

/// The width of a label, roughly.
fn width(path: Path) -> i32 {
    i32::from(path.datapath().label().len() as u16) * LETTER
}

/// Places of labels beside the ends of lines, lowest first. A label that would cover another one or
/// the end of another line is moved up.
fn apart(mut ends: Vec<(Path, (i32, i32))>) -> Vec<(Path, (i32, i32))> {
    ends.sort_by_key(|(_, (_, y))| std::cmp::Reverse(*y));
    let mut placed: Vec<(Path, (i32, i32))> = Vec::new();
    for &(path, (end, mut y)) in &ends {
        let left = end + GAP;
        let others = ends.iter().filter(|(other, _)| *other != path);
        let ends = others.map(|(_, (x, y))| (x - POINT, x + POINT, *y));
        let labels = placed.iter().map(|(it, (x, y))| (*x, x + width(*it), *y));
        let mut blockers: Vec<(i32, i32, i32)> = ends.chain(labels).collect();
        blockers.sort_by_key(|(_, _, y)| std::cmp::Reverse(*y));
        for (start, end, at) in blockers {
            let beside = end < left || start > left + width(path);
            if !beside && (at - y).abs() < LINE {
                y = at - LINE;
            }
        }
        placed.push((path, (left, y)));
    }
    placed
}

/// The inside of a drawing, with classes in place of marks. Attributes that chart.css has go.
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
    let size = f64::from(FONT) / 1.24;
    for plain in [
        " opacity=\"1\"".to_owned(),
        " stroke=\"none\"".to_owned(),
        " stroke-width=\"1\"".to_owned(),
        " fill=\"none\"".to_owned(),
        format!(" font-family=\"sans-serif\" font-size=\"{size}\""),
    ] {
        inside = inside.replace(&plain, "");
    }
    format!("<g class=\"chart\">\n{inside}</g>\n")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn grid_lines_are_at_round_numbers() {
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
        let values = ticks(0.2, 1.0).map(number).collect::<Vec<_>>();
        assert_eq!(values, ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn a_rate_that_was_not_reached_is_drawn_where_it_was() {
        let report = report();
        let chart = Chart {
            report: &report,
            receivers: 1,
            figure: SOFTIRQ,
            width: 400,
        };
        let ends = |path| {
            let points = chart.points(path);
            points.iter().map(|it| (it.0, it.2)).collect::<Vec<_>>()
        };
        assert_eq!(ends(Path::Xdp), [(100_000.0, true), (1_000_000.0, true)]);
        assert_eq!(ends(Path::Bridge), [(100_000.0, true), (900_000.0, false)]);
    }

    #[test]
    fn labels_do_not_overlap() {
        let ends = vec![
            (Path::Bridge, (300, 50)),
            (Path::Xdp, (302, 55)),
            (Path::Stack, (290, 60)),
            (Path::AfXdp, (100, 56)),
        ];
        let labels = apart(ends);
        let expected = [
            (Path::Stack, (298, 34)),
            (Path::AfXdp, (108, 56)),
            (Path::Xdp, (310, 55)),
            (Path::Bridge, (308, 18)),
        ];
        assert_eq!(labels, expected);
    }
}

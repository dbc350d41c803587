//! The points as CSV (RFC 4180), one line for each run. No field needs quotes.

use std::fmt::Write as _;

use super::report::{Point, Report};

const NAMES: &str = "path,receivers,target_pps,round,seconds,offered_pps,delivered_pps,target_reached,\
    loss_percent,softirq_percent,other_softirq_percent,receivers_percent,switch_percent,\
    total_percent,softirq_ns_per_packet,total_ns_per_packet,packets_per_poll,sent,received,dropped_device,\
    dropped_receiver,dropped_switch,violations\r\n";

/// The points.
pub fn render(report: &Report) -> String {
    let mut text = String::from(NAMES);
    for point in &report.points {
        line(&mut text, point);
    }
    text
}

fn line(text: &mut String, point: &Point) {
    let (combination, figures) = (point.combination, point.figures);
    let some = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    let (path, receivers, target) = (combination.path, combination.receivers, combination.rate.0);
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "{path},{receivers},{target},{},{:.3},",
        point.round, point.seconds
    );
    let _ = write!(
        text,
        "{:.0},{:.0},{},{:.2},",
        figures.offered_pps, figures.delivered_pps, point.target_reached, figures.loss_percent
    );
    for percent in [
        figures.softirq_percent,
        figures.other_softirq_percent,
        figures.receivers_percent,
        figures.switch_percent,
        figures.total_percent,
    ] {
        let _ = write!(text, "{percent:.2},");
    }
    let _ = write!(
        text,
        "{},{},{},",
        some(figures.softirq_ns_per_packet),
        some(figures.total_ns_per_packet),
        some(figures.packets_per_poll)
    );
    let drops = point.drops;
    let _ = write!(
        text,
        "{},{},{},{},{},{}\r\n",
        point.sent,
        point.received,
        drops.device,
        drops.receiver,
        drops.switch,
        point.violations.len()
    );
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn every_line_has_every_field() {
        let text = render(&report());
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 1 + report().points.len());
        for line in &lines {
            let fields = line.split(',').count();
            assert_eq!(fields, lines[0].split(',').count(), "{line}");
            assert!(!line.contains(['"', ' ', '\n']), "{line}");
        }
        assert!(
            lines[1].starts_with("bridge,1,100000,1,1.000,100000,99000,true,"),
            "{}",
            lines[1]
        );
    }
}

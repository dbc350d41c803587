//! A profile in a few lines, for standard error and above the graph.

use std::fmt::Write as _;

use super::profile::Profile;
use super::record::Options;
use super::svg::Labels;
use crate::bpf::perf_event::Clock;
use crate::report::Machine;
use crate::report::text::wrap;
use hostnet::cpulist::CpuList;

/// Functions that the summary lists.
const LEAVES: usize = 10;

/// The summary.
pub fn text(profile: &Profile, options: &Options) -> String {
    let mut text = format!("{}\n", sampled(profile, options));
    if profile.named {
        text += &accounts(profile);
    }
    let shown = profile.shown();
    if shown == 0 {
        text += "  no samples to show: no packets arrived, or other CPUs handled them\n";
    } else {
        let _ = writeln!(text, "functions by self time, of {shown} samples shown:");
    }
    for (function, samples) in profile.leaves().into_iter().take(LEAVES) {
        let share = percent(samples as f64 / shown as f64);
        let _ = writeln!(text, "  {share:>6} {function}");
    }
    for note in &profile.notes {
        let _ = writeln!(text, "{}", wrap(&format!("note: {note}"), 2));
    }
    text
}

/// The labels of the graph.
pub fn labels(profile: &Profile, options: &Options, title: Option<&str>) -> Labels {
    let subject = if profile.packet_path_only {
        "Packet path"
    } else {
        "All samples"
    };
    let title = title.map_or_else(|| format!("{subject}, CPU {}", options.cpus), String::from);
    let machine = Machine::now(CpuList::online().map_or(0, |online| online.as_slice().len()));
    let mut about = sampled(profile, options);
    if profile.named {
        let path = percent(profile.share(profile.counts.packet_path()));
        let _ = write!(about, "; packet path {path} of the time");
    }
    let machine = format!("{}, {}", machine.summary(), machine.date);
    Labels {
        title,
        about: [about, machine]
            .into_iter()
            .chain(profile.notes.iter().map(|note| format!("Note: {note}")))
            .flat_map(|line| wrap(&line, 0).lines().map(String::from).collect::<Vec<_>>())
            .collect(),
    }
}

/// Shares of the packet path, of other work and of idle time.
fn accounts(profile: &Profile) -> String {
    let counts = &profile.counts;
    let share = |samples| percent(profile.share(samples));
    let rest = match profile.clock {
        Clock::CpuClock => format!(
            "other work {}, idle {}, without samples {}",
            share(counts.elsewhere()),
            share(counts.idle),
            share(profile.missing())
        ),
        Clock::Cycles => format!(
            "other work {}; shares are of busy time, as an idle CPU has no cycles",
            share(counts.elsewhere())
        ),
    };
    format!(
        "  packet path {}: NET_RX {}, NET_TX {}, other contexts {}\n  {rest}\n",
        share(counts.packet_path()),
        share(counts.net_rx),
        share(counts.net_tx),
        share(counts.other_path),
    )
}

fn sampled(profile: &Profile, options: &Options) -> String {
    format!(
        "{} samples, {} lost: CPU {}, {:.1} s, {} at {} Hz",
        profile.counts.taken,
        profile.counts.lost,
        options.cpus,
        profile.elapsed.as_secs_f64(),
        profile.clock.name(),
        options.frequency,
    )
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

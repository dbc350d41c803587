//! How each figure was obtained, in words.

use super::Path;
use super::guest::GuestSettings;
use super::measure::Settings;
use super::report::Report;
use crate::lab::{APP_DEVICE, LOAD_DEVICE};

/// What is to be known of a measurement with these settings, one sentence each.
pub fn setting(settings: &Settings, guest: Option<&GuestSettings>, paths: &[Path]) -> Vec<String> {
    let (load, app) = (settings.load_cpu, settings.app_cpu);
    let cpus = if load == app {
        format!(
            "CPU {load} does everything: load, kernel and receivers take turns, so rates say little."
        )
    } else {
        format!(
            "CPU {load} makes the load and, as softirqs, does the kernel's part of receiving it, \
             through to the tap or the socket; CPU {app} has the receivers."
        )
    };
    let mut notes = vec![
        cpus,
        format!(
            "The load is made in the kernel: frames of {} bytes leave {LOAD_DEVICE} at an even rate \
             and arrive at {APP_DEVICE}, the other end of a veth pair. Making them is no softirq, so \
             it is in none of the figures.",
            settings.size
        ),
        receiver(guest).into(),
        "Taps have no queueing discipline, as XDP would pass it by.".into(),
        "How many frames NAPI gets at a time depends on the load here, and on a network card's \
         interrupts elsewhere; the fewer, the dearer each. JSON and CSV have the frames by poll."
            .into(),
    ];
    let of_paths = paths.iter().filter_map(|path| path.datapath().note());
    notes.extend(of_paths.map(String::from));
    notes
}

fn receiver(guest: Option<&GuestSettings>) -> &'static str {
    match guest {
        Some(_) => {
            "A receiver is a virtual machine of QEMU on a tap, with an emulated CPU (TCG) and without \
             vhost: its guest drops what comes and checks nothing. What QEMU took from the tap counts \
             as delivered; the CPU time is that of emulating the guest, too."
        }
        None => {
            "A receiver stands for a virtual machine: it reads frames from a tap, one a system call, \
             and checks every payload. While packets come it sleeps 50 us between two looks, so \
             nobody has to wake it up; when none come it sleeps until one does."
        }
    }
}

/// What the figures are, as `(name, meaning)`.
pub fn figures(report: &Report) -> Vec<(&'static str, &'static str)> {
    let mut figures = vec![
        (
            "asked",
            "packets a second that the load was to make, for all receivers together",
        ),
        (
            "made",
            "what it made, by the counters of its device; < where the CPU had no time for more",
        ),
        (
            "delivered",
            "what receivers got in the window, by the counters of taps or sockets; an engine of the \
             bench counts by itself",
        ),
        (
            "lost %",
            "frames of the whole run that reached no receiver; JSON says where they were dropped",
        ),
        (
            "softirq %",
            "of the load's CPU: NET_RX and NET_TX softirqs and ksoftirqd's part in them, by BPF \
             tracepoints",
        ),
        (
            "receivers %",
            "of one CPU: processes that receive, by the scheduler's tracepoint, without interrupts",
        ),
    ];
    if report.has_switch() {
        figures.push((
            "switch %",
            "of one CPU: Open vSwitch's processes, by the same; its datapath is in user space here",
        ));
    }
    figures.extend([
        (
            "total %",
            "of one CPU: all of these, and softirqs on the other CPUs",
        ),
        ("ns", "softirq time on all CPUs by packet delivered"),
    ]);
    figures
}

/// What is worth saying of the results, one sentence each.
pub fn results(report: &Report) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for it in &report.unavailable {
        let plural = if it.receivers == 1 { "" } else { "s" };
        notes.push(format!(
            "{}, {} receiver{plural}: unavailable: {}.",
            it.path,
            it.receivers,
            it.reason.trim_end_matches('.')
        ));
    }
    for it in &report.failed {
        notes.push(format!(
            "Not counted: {}, round {}: {}.",
            it.combination, it.round, it.message
        ));
    }
    if report.interrupted {
        notes.push("Interrupted: what was not finished is missing.".into());
    }
    notes
}

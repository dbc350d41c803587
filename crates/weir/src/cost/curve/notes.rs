//! Sentences of the report about its method and its figures.

use super::Path;
use super::guest::GuestSettings;
use super::measure::Settings;
use super::report::Report;
use crate::lab::{APP_DEVICE, LOAD_DEVICE};

/// The method of a measurement with these settings.
pub fn setting(settings: &Settings, guest: Option<&GuestSettings>, paths: &[Path]) -> Vec<String> {
    let (load, app) = (settings.load_cpu, settings.app_cpu);
    let cpus = if load == app {
        format!(
            "CPU {load} runs load, softirqs and receivers in turn: the rates are those of a shared CPU."
        )
    } else {
        format!(
            "CPU {load} runs the load and the softirqs that receive it, up to the tap or the socket; \
             CPU {app} runs the receivers."
        )
    };
    let mut notes = vec![
        cpus,
        format!(
            "The kernel generates the load: frames of {} bytes leave {LOAD_DEVICE} at a constant rate \
             and arrive at {APP_DEVICE}, the other end of a veth pair. Generating them is not softirq \
             time and is in none of the figures.",
            settings.size
        ),
        receiver(guest).into(),
        "Taps have no qdisc (noqueue), since XDP would bypass it.".into(),
        "The number of frames per NAPI poll depends on the load here, and on interrupt coalescing of \
         a network card; the fewer, the higher the cost of each. It is in JSON and CSV."
            .into(),
    ];
    let of_paths = paths.iter().filter_map(|path| path.datapath().note());
    notes.extend(of_paths.map(String::from));
    notes
}

fn receiver(guest: Option<&GuestSettings>) -> &'static str {
    match guest {
        Some(_) => {
            "A receiver is a QEMU virtual machine on a tap, with an emulated CPU (TCG) and without \
             vhost: its guest drops all packets unchecked. Frames that QEMU read from the tap count \
             as delivered; the CPU time includes that of emulating the guest."
        }
        None => {
            "A receiver on a tap or a UDP socket stands for a virtual machine or a server: it checks \
             every payload, and sleeps 50 us between two batches while packets come, so that the \
             sender does not wake it; without packets it sleeps until the next one. A tap takes one \
             system call per frame."
        }
    }
}

/// The figures of the tables, as `(name, meaning)`.
pub fn figures(report: &Report) -> Vec<(&'static str, &'static str)> {
    let mut figures = vec![
        ("target", "target rate of the load, in packets per second"),
        (
            "offered",
            "rate of the load, by the counters of its device; < if its CPU was saturated",
        ),
        (
            "delivered",
            "rate of the receivers in the window, by the counters of taps or UDP sockets, or by \
             the receiver's own",
        ),
        (
            "loss %",
            "frames of the whole run that reached no receiver; JSON has them by place",
        ),
        (
            "softirq %",
            "of the load's CPU: NET_RX and NET_TX softirqs, those in ksoftirqd included, by BPF \
             tracepoints",
        ),
        (
            "receivers %",
            "of one CPU: the receiving processes, without interrupts, by sched_switch",
        ),
    ];
    if report.has_switch() {
        figures.push((
            "switch %",
            "of one CPU: the processes of Open vSwitch, by the same",
        ));
    }
    figures.extend([
        (
            "total %",
            "of one CPU: all of these, and softirqs on the other CPUs",
        ),
        ("ns", "softirq time on all CPUs per packet delivered"),
    ]);
    figures
}

/// Missing results and their reasons.
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
            "Failed: {}, round {}: {}.",
            it.combination, it.round, it.message
        ));
    }
    if report.interrupted {
        notes.push("Interrupted: the remaining runs are missing.".into());
    }
    notes
}

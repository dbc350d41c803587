//! Sentences of the report about its method and its figures.

use super::Path;
use super::plan::{Options, Part};
use super::report::Report;
use crate::lab::{APP_DEVICE, LOAD_DEVICE};
use crate::report::statistics::median;

/// A share of a CPU in percent that is mentioned.
const WORTH_A_NOTE: f64 = 5.0;

/// The method of a measurement with these options.
pub fn setting(options: &Options) -> Vec<String> {
    let settings = options.settings;
    let (load, app) = (settings.load_cpu, settings.app_cpu);
    let mut notes = vec![
        format!(
            "CPU {load} runs the load, and in its softirqs everything that the kernel does with a \
             frame: the ingress port's NAPI, the switch, the egress port, and the program behind it \
             that checks, counts and drops the frame."
        ),
        format!(
            "Frames of {} bytes leave {LOAD_DEVICE}, arrive at {APP_DEVICE}, a port of the switch, and \
             leave by another veth. Pair k of stations has one address on each side, and frame n is \
             of the pair that a hash of n selects, so every pair is a conversation of its own.",
            settings.size
        ),
        "Every station has sent before the measurement: the switches have learned all addresses. \
         No entry ages, learning stays on. A run counts only if every frame that was sent is \
         received unchanged behind its port or in a counter of drops, and none behind another port."
            .into(),
        "ns: CPU time for each frame, the load's included; Mpps: frames that fit into a second of it."
            .into(),
        "Own ns: CPU time of load, softirqs and switch for each frame received, without that of the \
         load into a device whose XDP program checks, counts and drops the frames, measured in the \
         same round. It has the price of the second veth in it."
            .into(),
        "Bridges have no netfilter (bridge-nf-call-* at 0), no VLAN filtering, and no multicast \
         snooping."
            .into(),
    ];
    if options.paths.contains(&Path::Ovs) {
        notes.push(format!(
            "ovs: the datapath is in user space (datapath_type=netdev), on CPU {app}, with the action \
             NORMAL. It is measured at 80% of the rate that it delivers under overload, and its time is \
             that of its processes and of all softirqs."
        ));
    }
    if options.paths.contains(&Path::Xdp) {
        notes.push(
            "xdp: one lookup of the destination and a redirect; no learning, no check of the source, \
             no settings of ports. It is the least that XDP can take here."
                .into(),
        );
    }
    if options.has(Part::Softirq) {
        notes.push(
            "At a given rate, frames come one by one as they are due, or 64 at once, as from a card that \
             coalesces its interrupts: the fewer frames a NAPI poll finds, the more each of them takes. \
             A saturated CPU always finds many. Softirqs include receiving a frame and its check behind \
             the switch."
                .into(),
        );
    }
    if options.has(Part::Tcp) {
        notes.push(format!(
            "TCP: iperf3 between two namespaces, with the offloads of a veth on; the sender is on CPU \
             {load}, the receiver on CPU {app}."
        ));
    }
    notes
}

/// The share of the load's CPU that others had where it made as many frames as it could, in percent.
fn others(report: &Report) -> Option<f64> {
    let full = report.runs.iter().filter(|run| run.target_pps.is_none());
    median(full.map(|run| 100.0 - run.load_percent - run.softirq_percent))
}

/// Missing results and their reasons.
pub fn results(report: &Report) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for it in &report.unavailable {
        let what = match it.path {
            Some(path) => path.to_string(),
            None => it.part.name().to_owned(),
        };
        let reason = it.reason.trim_end_matches('.');
        notes.push(format!("{what}: unavailable: {reason}."));
    }
    for it in &report.failed {
        let path = it.path.map_or_else(String::new, |path| format!(", {path}"));
        let round = it
            .round
            .map_or_else(String::new, |round| format!(", round {round}"));
        let part = it.part.name();
        notes.push(format!("Failed: {part}{path}{round}: {}.", it.message));
    }
    for run in report.runs.iter().filter(|run| !run.violations.is_empty()) {
        let part = run.part.name();
        notes.push(format!(
            "Does not count: {part}, {}, round {}: {}.",
            run.path,
            run.round,
            run.violations.join("; ")
        ));
    }
    if let Some(share) = others(report)
        && share > WORTH_A_NOTE
    {
        notes.push(format!(
            "Other programs had {share:.0}% of the load's CPU (median of the runs at full speed): they \
             do not count as CPU time of a frame, but they share the caches."
        ));
    }
    if report.interrupted {
        notes.push("Interrupted: the remaining runs are missing.".into());
    }
    notes
}

//! The queue of a tap towards its process.

use anyhow::Result;

use super::each::each;
use super::traffic;
use super::traffic::{PROC_NET_DEV, TX_DROP, TX_PACKETS, matters};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::mib::{period, rate};
use crate::doctor::owner::process;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

/// A longer queue only adds latency.
const MOST: u64 = 10_000;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[TAP_QUEUE];

const TAP_QUEUE: Check = Check {
    id: "tap-queue",
    title: "the queue of a tap is full: its VM or VPN reads too slowly (TX dropped)",
    severity: Severity::Critical,
    why: "Once as many packets wait for a tap's process as txqueuelen allows, the kernel drops all further ones; no other counter has them.",
    source: "tun_net_xmit in drivers/net/tun.c; Documentation/networking/tuntap.rst",
    more: "Reads the dropped packets towards each tap and tun device (tx drop in /proc/net/dev) twice, \
           some seconds apart: it is a finding from more than 10 a second and 1 in 1000 packets. The \
           process is the one with the device in /proc/PID/fdinfo (iff); without any, everything is \
           dropped.\n\n\
           The fix makes the queue four times as long (txqueuelen), up to 10000, which helps with \
           bursts. A process that is constantly slower needs a CPU (`weir cost`), vhost-net, or several \
           queues. `ip -s link show TAP` shows the effect.",
    counters: &[PROC_NET_DEV],
    run: |context| each(context, |device| queue(context, device)),
};

fn queue(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    if device.kind() != Some("tun") {
        return Ok(None);
    }
    let name = device.name();
    let traffic = traffic::of(context, name)?;
    let (lost, packets) = (traffic.counted[TX_DROP], traffic.counted[TX_PACKETS]);

    let mut evidence = vec![
        Evidence::new(
            format!("{PROC_NET_DEV}, tx drop of {name}"),
            rate(lost, traffic.seconds),
        ),
        Evidence::new(
            format!("{PROC_NET_DEV}, tx packets of {name}"),
            rate(packets, traffic.seconds),
        ),
    ];
    if !matters(lost, packets, traffic.seconds) {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let path = format!("/sys/class/net/{name}/tx_queue_len");
    let length = context.read_if_there(&path)?;
    evidence.extend(length.iter().map(|length| Evidence::new(&path, length)));
    let readers = readers(context, name);
    let reader = if readers.is_empty() {
        "no process that can be seen from here has it open".to_owned()
    } else {
        format!("{} reads too slowly", readers.join(", "))
    };
    evidence.extend(
        readers
            .first()
            .map(|reader| Evidence::new(format!("/proc/PID/fdinfo, iff: {name}"), reader)),
    );
    let message = format!(
        "{lost} packets for {name} were dropped {}: {reader}.",
        period(lost, traffic.seconds)
    );
    let value = length
        .as_deref()
        .and_then(|length| length.parse::<u64>().ok());
    let fix = match (length, value) {
        (Some(old), Some(value)) if value < MOST && !readers.is_empty() => {
            let new = (value.max(125) * 4).min(MOST);
            Fix::write(path, old, new.to_string())
        }
        _ => Fix::manual(
            "start the process of the device, or make it faster: a CPU of its own, vhost-net, several queues",
        ),
    };
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

/// The processes that have this device open, as far as this process may see. Another network namespace
/// may have a device of this name too.
fn readers(context: &Context, device: &str) -> Vec<String> {
    let is_open = |pid: &u32| {
        let directory = format!("/proc/{pid}/fd");
        // A process may have ended.
        let files = context.list(&directory).unwrap_or_default();
        files.iter().any(|file| {
            let target = context.link_target(&format!("{directory}/{file}"));
            target.as_deref() == Some("tun") && {
                let info = context.read_if_there(&format!("/proc/{pid}/fdinfo/{file}"));
                let info = info.ok().flatten().unwrap_or_default();
                let mut names = info.lines().filter_map(|line| line.strip_prefix("iff:"));
                names.any(|name| name.trim() == device)
            }
        })
    };
    let pids = context.pids().into_iter().filter(is_open);
    pids.map(|pid| {
        let name = context.read_if_there(&format!("/proc/{pid}/comm"));
        process(pid, &name.ok().flatten().unwrap_or_default())
    })
    .collect()
}

//! Transmit queues.

use anyhow::Result;
use hostnet::cpulist::CpuList;
use hostnet::ethtool::{Channels, Queues};

use super::each::each;
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::step::Read;
use crate::doctor::verdict::Verdict;

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[QUEUES];

const QUEUES: Check = Check {
    id: "queues",
    title: "there are fewer TX queues than CPUs",
    severity: Severity::Advice,
    why: "A program on any CPU may redirect to the device: with fewer queues than CPUs they share a lock, and some drivers drop packets from a CPU without a queue.",
    source: "veth_xdp_xmit, virtnet_xdp_get_sq in drivers/net/virtio_net.c; ixgbe_xdp_xmit",
    more: "Reads the current and maximum number of queues (ethtool -l), and the online CPUs. It is a \
           finding only for a device that has an XDP program or is named by --dev, and that could \
           have more queues.\n\n\
           Measure the effect with `weir bench l2fwd`, the load on another CPU than the application.",
    counters: &[],
    run: |context| each(context, |device| queues(context, device)),
};

fn queues(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    if !context.is_for_xdp(device)? {
        return Ok(None);
    }
    let Some(channels) = device.channels()? else {
        return Ok(None);
    };
    let cpus = context.read(ONLINE)?.parse::<CpuList>()?.as_slice().len();
    let name = device.name();
    let (used, most) = (tx_queues(channels.used), tx_queues(channels.most));
    let evidence = vec![
        Evidence::new(
            format!("ethtool -l {name}"),
            format!("{used} transmit queues of at most {most}"),
        ),
        Evidence::new(ONLINE, format!("{cpus} CPUs")),
    ];
    // A tap that no process has opened has no queues, and needs none.
    let Some(better) = more_queues(&channels, cpus).filter(|_| used > 0) else {
        return Ok(Some(Verdict::fine(name, evidence)));
    };
    let set = |queues: Queues| format!("ethtool -L {name} {}", settings(queues));
    let fix = if device.kind() == Some("tun") {
        Fix::manual(
            "a tap has as many queues as its owner opens: for QEMU, queues=N of -netdev tap",
        )
    } else {
        let read = Read::of_namespace(&format!("ethtool -l {name}"), "");
        Fix::command(context, &set(better), &set(channels.used), read)
    };
    let message = format!("{cpus} CPUs share {used} of {most} possible transmit queues of {name}.");
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

fn tx_queues(queues: Queues) -> u32 {
    queues.tx + queues.combined
}

/// A transmit queue for each CPU, or the maximum; none if there are as many already.
fn more_queues(channels: &Channels, cpus: usize) -> Option<Queues> {
    let (most, used) = (channels.most, channels.used);
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let wanted = cpus.min(tx_queues(most));
    if tx_queues(used) >= wanted {
        return None;
    }
    Some(if most.combined > 0 {
        Queues {
            combined: wanted.saturating_sub(used.tx).min(most.combined),
            ..used
        }
    } else {
        Queues {
            rx: used.rx.max(wanted.min(most.rx)),
            tx: wanted,
            ..used
        }
    })
}

fn settings(queues: Queues) -> String {
    let named = [
        ("rx", queues.rx),
        ("tx", queues.tx),
        ("combined", queues.combined),
    ];
    let settings = named
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"));
    settings.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(rx: u32, tx: u32, combined: u32) -> Queues {
        Queues { rx, tx, combined }
    }

    #[test]
    fn a_queue_for_each_cpu_up_to_the_maximum() {
        let more = |most, used, cpus| more_queues(&Channels { most, used }, cpus);
        assert_eq!(
            more(queues(2, 2, 0), queues(1, 1, 0), 2),
            Some(queues(2, 2, 0))
        );
        assert_eq!(more(queues(1, 1, 0), queues(1, 1, 0), 2), None);
        assert_eq!(
            more(queues(0, 0, 8), queues(0, 0, 2), 4),
            Some(queues(0, 0, 4))
        );
        assert_eq!(
            more(queues(0, 0, 3), queues(0, 0, 2), 64),
            Some(queues(0, 0, 3))
        );
        assert_eq!(more(queues(0, 0, 8), queues(0, 0, 8), 4), None);
        assert_eq!(settings(queues(0, 1, 4)), "tx 1 combined 4");
    }
}

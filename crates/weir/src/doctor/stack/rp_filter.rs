//! The reverse path filter.

use anyhow::Result;

use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::host::setting::{fine_all, found};
use crate::doctor::mib::{Moved, NETSTAT};
use crate::doctor::severity::Severity;
use crate::doctor::step::Step;
use crate::doctor::verdict::Verdict;

const CONF: &str = "/proc/sys/net/ipv4/conf";
const ALL: &str = "/proc/sys/net/ipv4/conf/all/rp_filter";

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[RP_FILTER];

const RP_FILTER: Check = Check {
    id: "rp-filter",
    title: "the reverse path filter drops packets (rp_filter)",
    severity: Severity::Critical,
    why: "In strict mode a packet is dropped unless the route back to its source leaves by the device that it came from: two uplinks, a VPN or policy routing break that, and nothing is logged.",
    source: "__fib_validate_source in net/ipv4/fib_frontend.c; RFC 3704; Documentation/networking/ip-sysctl.rst, rp_filter",
    more: "Reads TcpExt IPReversePathFilter in /proc/net/netstat twice, some seconds apart: it is a \
           finding if it grows meanwhile; and rp_filter of each device, of which the larger of it and \
           of conf/all counts: 1 is strict, 2 loose (any route back will do). The counter is of the \
           network namespace, not of a device.\n\n\
           The filter may be right, and the sources forged: so a person has to decide. `sysctl -w \
           net.ipv4.conf.all.log_martians=1` logs device and source of such packets; `ip route get \
           SOURCE` has the way back.",
    counters: &[NETSTAT],
    run: rp_filter,
};

/// The mode of a device in words.
fn mode(value: u8) -> &'static str {
    match value {
        0 => "off",
        1 => "strict",
        _ => "loose",
    }
}

fn rp_filter(context: &Context) -> Result<Vec<Verdict>> {
    let moved = Moved::read(context, &[(NETSTAT, "TcpExt.IPReversePathFilter")])?;
    let mut evidence = moved.evidence()?;
    if moved.by() == 0 {
        return Ok(fine_all(evidence));
    }
    let devices = devices(context)?;
    let filtering: Vec<_> = devices.iter().filter(|it| it.effective > 0).collect();
    evidence.extend(filtering.iter().map(|it| {
        let value = format!("{}, {} with conf/all", it.value, mode(it.effective));
        Evidence::new(setting(&it.name), value)
    }));
    let strict: Vec<_> = filtering.iter().filter(|it| it.effective == 1).collect();
    let names: Vec<_> = strict.iter().map(|it| it.name.as_str()).collect();
    let (dropped, period) = (moved.by(), moved.period());
    let message = if strict.is_empty() {
        format!("{dropped} packets were dropped {period}, whose source has no route at all.")
    } else {
        format!(
            "{dropped} packets were dropped {period}, as the route back to their source does not leave by the device that they came from. Strict: {}.",
            names.join(", ")
        )
    };
    let steps: Vec<_> = strict
        .iter()
        .map(|it| Step::write(setting(&it.name), it.value.to_string(), "2"))
        .collect();
    let fix = match steps.as_slice() {
        [] => "add the route to these sources, or stop their sender: `sysctl -w net.ipv4.conf.all.log_martians=1` logs them".to_owned(),
        steps => {
            let commands_of = |command: fn(&Step) -> String| {
                let commands: Vec<_> = steps.iter().map(command).collect();
                commands.join("; ")
            };
            format!(
                "if these sources are legitimate, correct the routes, or filter loosely: `{}`; undo: `{}`",
                commands_of(Step::command),
                commands_of(Step::undo_command)
            )
        }
    };
    Ok(found(evidence, message, Fix::manual(fix)))
}

/// The filter of a device.
struct Filter {
    name: String,
    value: u8,
    /// The larger of `value` and the one of all devices.
    effective: u8,
}

fn setting(device: &str) -> String {
    format!("{CONF}/{device}/rp_filter")
}

fn devices(context: &Context) -> Result<Vec<Filter>> {
    let value = |path: &str| -> Result<u8> {
        let value = context.read_if_there(path)?.unwrap_or_default();
        Ok(value.parse().unwrap_or_default())
    };
    let all = value(ALL)?;
    let names = context.list(CONF)?.into_iter();
    let devices = names.filter(|name| !["all", "default", "lo"].contains(&name.as_str()));
    devices
        .map(|name| {
            let value = value(&setting(&name))?;
            let effective = value.max(all);
            Ok(Filter {
                name,
                value,
                effective,
            })
        })
        .collect()
}

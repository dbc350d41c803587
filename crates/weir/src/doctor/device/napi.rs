//! Threaded NAPI.

use anyhow::Result;

use super::each::each;
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[THREADED_NAPI];

const THREADED_NAPI: Check = Check {
    id: "threaded-napi",
    title: "threaded NAPI is on",
    severity: Severity::Advice,
    why: "NAPI threads are scheduled like programs: on a busy CPU packets wait, and %soft and softnet_stat show none of the work.",
    source: "napi_threaded_poll in net/core/dev.c; Documentation/networking/napi.rst",
    more: "Reads /sys/class/net/DEV/threaded. It may be intended, to move the work to dedicated CPUs \
           with taskset(1) on the threads napi/DEV-N. WireGuard always has it.\n\n\
           Measure the effect with `weir cost`, which counts such threads.",
    counters: &[],
    run: |context| each(context, |device| threaded(context, device)),
};

fn threaded(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    let name = device.name();
    let path = format!("/sys/class/net/{name}/threaded");
    let Some(value) = context.read_if_there(&path)? else {
        return Ok(None);
    };
    let evidence = vec![Evidence::new(&path, &value)];
    if value == "0" || device.kind() == Some("wireguard") {
        return Ok(Some(Verdict::fine(name, evidence)));
    }
    let message = format!("The threads napi/{name}-N handle the packets of {name}.");
    let fix = Fix::write(path, value, "0");
    Ok(Some(Verdict::found(name, evidence, message, fix)))
}

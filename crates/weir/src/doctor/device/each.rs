//! One verdict for each device.

use anyhow::Result;

use crate::doctor::context::Context;
use crate::doctor::context::device::Device;
use crate::doctor::verdict::Verdict;

/// The verdict of `examine` for each selected device; `None` if the device has no such setting.
///
/// An error, such as a device removed meanwhile, makes that device unchecked and no other.
pub fn each<'a>(
    context: &'a Context,
    examine: impl Fn(&'a Device) -> Result<Option<Verdict>>,
) -> Result<Vec<Verdict>> {
    let devices = context.devices()?.iter();
    let selected = devices.filter(|device| context.is_selected(device));
    Ok(selected
        .filter_map(|device| {
            examine(device).unwrap_or_else(|error| {
                Some(Verdict::unchecked(device.name(), format!("{error:#}")))
            })
        })
        .collect())
}

/// The devices below `device`, through which it receives.
pub fn below<'a>(devices: &'a [Device], device: &Device) -> impl Iterator<Item = &'a Device> {
    let link = &device.link;
    let (index, lower) = (
        link.index,
        link.lower.filter(|_| link.lower_netns.is_none()),
    );
    devices
        .iter()
        .filter(move |it| it.link.controller == Some(index) || lower == Some(it.link.index))
}

/// The reason for a veth whose peer is in another network namespace that is not found or may not be entered; `role` of
/// the peer.
pub fn foreign_peer(role: &str) -> String {
    format!(
        "its peer, {role}, is in another network namespace, which this process does not find or may not enter: run weir doctor as root from the host, in the namespace of the device (`nsenter --net=FILE`, with a file of `ip netns` or `lsns -t net`)"
    )
}

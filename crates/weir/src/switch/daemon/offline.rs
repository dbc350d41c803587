//! Detaching without a daemon: by the pins and notes that it left.

use std::os::fd::AsFd as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use hostnet::netns;

use crate::switch::keep::{self, Keep};
use crate::switch::port::restore_vlan_offload;

/// Detaches all programs that are pinned in a BPF filesystem, in whatever network namespace, unless a daemon
/// has them; removes the filters and puts back the settings that are noted below `state`. Returns the
/// names of the bridges.
///
/// # Errors
///
/// The last refusal, after everything was tried.
pub fn detach_all(bpffs: &Path, state: &Path) -> Result<Vec<String>> {
    let pins = bpffs.join("weir/switch");
    let mut names = Vec::new();
    let mut result = Ok(());
    for namespace in keep::directories(&pins) {
        let directory = pins.join(namespace);
        // Another daemon's, in another network namespace.
        let Some(_lock) = keep::lock(&directory)? else {
            continue;
        };
        for bridge in keep::directories(&directory) {
            let keep = Keep {
                pins: Some(directory.join(&bridge)),
                state: state.join(&bridge),
            };
            result = detach(&keep)
                .with_context(|| format!("bridge {bridge}"))
                .and(result);
            names.push(bridge);
        }
    }
    for bridge in keep::directories(state) {
        let keep = Keep {
            pins: None,
            state: state.join(&bridge),
        };
        result = restore(&keep)
            .with_context(|| format!("bridge {bridge}"))
            .and(result);
        keep.remove();
        names.push(bridge);
    }
    keep::tidy(bpffs, state);
    names.sort_unstable();
    names.dedup();
    result.map(|()| names)
}

/// Detaches the pinned programs of one bridge, and puts back what is noted.
///
/// # Errors
///
/// The last refusal, after everything was tried.
pub fn detach(keep: &Keep) -> Result<()> {
    let mut result = Ok(());
    for pin in keep.pinned() {
        let done = keep::unpin(&pin).with_context(|| format!("cannot detach {}", pin.display()));
        result = done.and(result);
    }
    let restored = restore(keep);
    keep.remove();
    result.and(restored)
}

/// Puts back what is noted, in the network namespace where it was changed.
fn restore(keep: &Keep) -> Result<()> {
    match keep.netns() {
        None => restore_here(keep),
        Some(path) => match netns::open(&path) {
            Ok(namespace) => netns::run_in(namespace.as_fd(), || restore_here(keep)),
            // What was changed in it went with it.
            Err(_) => Ok(()),
        },
    }
}

fn restore_here(keep: &Keep) -> Result<()> {
    let mut result = Ok(());
    for filter in keep.filters() {
        result = filter.detach().and(result);
        keep.forget_filter(filter.ifindex);
    }
    for device in keep.vlan_offloads() {
        result = restore_vlan_offload(&device).and(result);
        keep.forget_vlan_offload(&device);
    }
    result
}

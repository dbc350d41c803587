//! Detaching without a daemon: by the pins and notes that it left.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use hostnet::netns;

use crate::switch::keep::{self, Keep};
use crate::switch::port::restore_vlan_offload;

/// Detaches all programs that are pinned below `pins`, removes the filters and puts back the settings that
/// are noted below `state`. Returns the names of the bridges.
///
/// # Errors
///
/// The last refusal, after everything was tried.
pub fn detach_all(pins: &Path, state: &Path) -> Result<Vec<String>> {
    let names = keep::bridges(pins, state);
    let mut result = Ok(());
    for name in &names {
        let keep = Keep {
            pins: Some(pins.join(name)),
            state: state.join(name),
        };
        let done = detach(&keep).with_context(|| format!("bridge {name}"));
        result = done.and(result);
    }
    let _ = fs::remove_dir(pins);
    result.map(|()| names)
}

fn detach(keep: &Keep) -> Result<()> {
    let mut result = Ok(());
    for pin in keep.pinned() {
        let done = keep::unpin(&pin).with_context(|| format!("cannot detach {}", pin.display()));
        result = done.and(result);
    }
    let restored = match keep.netns() {
        None => restore(keep),
        Some(path) => match netns::open(&path) {
            Ok(namespace) => netns::run_in(namespace.as_fd(), || restore(keep)),
            // What was changed in it went with it.
            Err(_) => Ok(()),
        },
    };
    result.and(restored)?;
    keep.remove();
    Ok(())
}

fn restore(keep: &Keep) -> Result<()> {
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

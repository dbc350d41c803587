//! Detaching without a daemon: by the pins and notes that it left.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use hostnet::netns;

use crate::switch::keep::{self, Keep};
use crate::switch::port::restore_vlan_offload;

/// Detaches all programs that are pinned in a BPF filesystem, in whatever network namespace, unless a daemon
/// has them; removes the filters and puts back the settings that are noted below `state`. A daemon that was killed
/// has also left its `socket`, at which nobody listens. Returns the names of the bridges.
///
/// # Errors
///
/// Where a daemon has `state`; the last refusal, after everything was tried.
pub fn detach_all(bpffs: &Path, state: &Path, socket: &Path) -> Result<Vec<String>> {
    let pins = bpffs.join("weir/switch");
    let mut names = Vec::new();
    let mut result = Ok(());
    let _state = lock_state(state)?;
    for namespace in keep::directories(&pins) {
        let directory = pins.join(namespace);
        let _lock = match keep::lock(&directory) {
            Ok(Some(lock)) => lock,
            // Another daemon's, in another network namespace.
            Ok(None) => continue,
            Err(error) => {
                result = Err(error);
                continue;
            }
        };
        for bridge in Keep::pinned_bridges(&directory) {
            let keep = Keep::at(Some(&directory), state, &bridge);
            result = detach(&keep)
                .with_context(|| format!("bridge {bridge}"))
                .and(result);
            names.push(bridge);
        }
    }
    for bridge in keep::directories(state) {
        let keep = Keep::at(None, state, &bridge);
        result = detach(&keep)
            .with_context(|| format!("bridge {bridge}"))
            .and(result);
        names.push(bridge);
    }
    keep::tidy(bpffs, state);
    let is_socket = |path: &Path| path.metadata().is_ok_and(|it| it.file_type().is_socket());
    if is_socket(socket) && fs::remove_file(socket).is_ok() {
        // Others may have files in it.
        let _ = socket.parent().map(fs::remove_dir);
    }
    names.sort_unstable();
    names.dedup();
    result.map(|()| names)
}

/// Keeps daemons from the notes; none where there are no notes.
fn lock_state(state: &Path) -> Result<Option<File>> {
    if !state.exists() {
        return Ok(None);
    }
    let lock = keep::lock(state)?.with_context(|| {
        format!(
            "a `weir switch run` has {}, and does not listen at this socket: name its own with --socket, or \
             end it",
            state.display()
        )
    })?;
    Ok(Some(lock))
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
    let done = restore(keep).and(result);
    if done.is_ok() {
        keep.remove();
    } else {
        // The other notes say what is still to be put back.
        keep.forget_settings();
    }
    done
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
        match filter.detach() {
            Ok(()) => keep.forget_filter(filter.ifindex),
            Err(error) => result = Err(error),
        }
    }
    for device in keep.vlan_offloads() {
        match restore_vlan_offload(&device, &keep.vlan_offload_of(&device)) {
            Ok(()) => keep.forget_vlan_offload(&device),
            Err(error) => result = Err(error),
        }
    }
    result
}

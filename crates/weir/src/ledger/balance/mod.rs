//! The difference of two snapshots as a balance sheet.

mod books;
mod delta;
mod edges;
mod method;
pub mod rules;
#[cfg(test)]
mod tests;

use anyhow::{Result, ensure};

use self::books::Books;
use self::delta::Deltas;
pub use self::method::Method;
use super::sheet::{Class, Loss, Sheet};
use super::snapshot::{Namespace, Snapshot, VERSION};
use super::stage::Stage;

/// The balance between two snapshots of one boot.
///
/// # Errors
///
/// For snapshots of different boots or formats, or in the wrong order.
pub fn balance(before: &Snapshot, after: &Snapshot) -> Result<Sheet> {
    balance_by(Method::default(), before, after)
}

/// As [`balance`], by another method.
pub fn balance_by(method: Method, before: &Snapshot, after: &Snapshot) -> Result<Sheet> {
    for snapshot in [before, after] {
        ensure!(
            snapshot.version == VERSION,
            "the snapshot has format {}, and this program reads {VERSION}: take it anew",
            snapshot.version
        );
    }
    ensure!(
        before.boot_id == after.boot_id,
        "the snapshot is of another boot of this host, or of another host: its counters began elsewhere"
    );
    ensure!(
        before.boottime_ns <= after.boottime_ns,
        "the snapshot is younger than this moment"
    );
    let deltas = Deltas::between(before, after);
    let mut closed = Books::new(method, &deltas, after).close();
    closed
        .losses
        .sort_by_key(|loss| (loss.class, std::cmp::Reverse(loss.count)));
    let mut sheet = Sheet {
        seconds: Some((after.boottime_ns - before.boottime_ns) as f64 / 1e9),
        edges: edges::edges(method, before, after, &deltas, &closed),
        losses: closed.losses,
        gaps: after.gaps.clone(),
        resets: deltas.resets.clone(),
    };
    add_gaps(&mut sheet, &deltas, after);
    add_changes(&mut sheet, before, after);
    sheet.gaps.sort();
    sheet.gaps.dedup();
    Ok(sheet)
}

/// The balance since the boot, by counters alone: events are counted only while somebody does.
pub fn since_boot(now: &Snapshot) -> Result<Sheet> {
    let boot = Snapshot {
        version: now.version,
        boot_id: now.boot_id.clone(),
        ..Snapshot::default()
    };
    let mut sheet = balance(&boot, now)?;
    sheet.seconds = Some(now.boottime_ns as f64 / 1e9);
    Ok(sheet)
}

fn add_gaps(sheet: &mut Sheet, deltas: &Deltas, after: &Snapshot) {
    if !deltas.has_events && after.events.is_some() {
        sheet.gap(
            Stage::Stack,
            "events were not counted during the whole interval: losses are known by counters alone",
            "`weir ledger --seconds N`, which counts them from the beginning",
        );
    }
    if deltas.overflow > 0 {
        sheet.gap(
            Stage::Stack,
            format!(
                "{} events had too many reasons, places, devices and sockets to be told apart",
                deltas.overflow
            ),
            "a shorter interval, or --dev",
        );
    }
    let without_place = deltas.drops.iter().filter(|drop| drop.place.is_none());
    let hidden: u64 = without_place.map(|drop| drop.skbs).sum();
    if hidden > 0 {
        sheet.gap(
            Stage::Stack,
            format!("the places of {hidden} freed packets are hidden (kernel.kptr_restrict)"),
            "CAP_SYSLOG, and `sysctl kernel.kptr_restrict=1`",
        );
    }
    let homeless = deltas
        .drops
        .iter()
        .filter(|drop| drop.netns == 0 && drop.received);
    let homeless: u64 = homeless.map(|drop| drop.skbs).sum();
    if homeless > 0 && !after.whole_host {
        sheet.gap(
            Stage::Socket,
            format!(
                "{homeless} packets were freed on this host of which the kernel had forgotten the namespace, such as \
                 datagrams that a closed socket had not read"
            ),
            "--all-netns shows their reasons",
        );
    }
    let is_unnamed = |loss: &Loss| loss.class == Class::CopyLost && loss.socket.is_none();
    if sheet.losses.iter().any(is_unnamed) {
        let copies = "lost copies of packet sockets are not told by socket";
        sheet.gap(Stage::Packet, copies, "Linux 6.11");
    }
}

/// Namespaces and devices that were not there during the whole interval: their counters went with them, or began at 0.
fn add_changes(sheet: &mut Sheet, before: &Snapshot, after: &Snapshot) {
    if before.namespaces.is_empty() {
        return; // since the boot
    }
    let (mut ended, mut vanished, mut appeared) = (Vec::new(), Vec::new(), Vec::new());
    for (inode, earlier) in &before.namespaces {
        let Some(later) = after.namespaces.get(inode) else {
            ended.push(earlier.name.clone());
            continue;
        };
        let names = |of: &Namespace, without: &Namespace| {
            let missing = of.devices.iter();
            let missing = missing.filter(|(index, _)| !without.devices.contains_key(index));
            let names = missing.map(|(_, device)| format!("{} of {}", device.name, of.name));
            names.collect::<Vec<_>>()
        };
        vanished.extend(names(earlier, later));
        appeared.extend(names(later, earlier));
    }
    let shorter = "a shorter interval; events remain";
    if !ended.is_empty() {
        let names = few(&ended);
        let text = format!("network namespaces ended, and their counters with them: {names}");
        sheet.gap(Stage::Stack, text, shorter);
    }
    if !vanished.is_empty() {
        let names = few(&vanished);
        let text = format!("devices vanished, and their counters with them: {names}");
        sheet.gap(Stage::Driver, text, shorter);
    }
    if !appeared.is_empty() {
        let names = few(&appeared);
        let text = format!(
            "devices appeared, and their counters are taken from 0, also of one that came from elsewhere: {names}"
        );
        sheet.gap(Stage::Driver, text, "the next interval");
    }
}

/// The first of some names, and the number of the others.
fn few(names: &[String]) -> String {
    const FEW: usize = 5;
    match names.split_at_checked(FEW) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} more", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

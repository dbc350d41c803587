//! The difference of two snapshots as a balance sheet.

mod books;
mod delta;
mod edges;
mod method;
pub mod rules;

use anyhow::{Result, ensure};

use self::books::Books;
use self::delta::Deltas;
pub use self::method::Method;
use super::sheet::{Class, Sheet};
use super::snapshot::{Snapshot, VERSION};
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
    let mut losses = Books::new(method, &deltas, after).close();
    losses.sort_by_key(|loss| (loss.class, std::cmp::Reverse(loss.count)));
    let mut sheet = Sheet {
        seconds: Some((after.boottime_ns - before.boottime_ns) as f64 / 1e9),
        edges: edges::edges(method, before, after, &deltas, &losses),
        losses,
        gaps: after.gaps.clone(),
        resets: deltas.resets.clone(),
    };
    add_gaps(&mut sheet, &deltas, after);
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
    let mut gap = |stage, what: String, cure: &str| {
        let cure = cure.into();
        sheet.gaps.push(super::snapshot::Gap { stage, what, cure });
    };
    if !deltas.has_events && after.events.is_some() {
        gap(
            Stage::Stack,
            "events were not counted during the whole interval: losses are known by counters alone"
                .into(),
            "`weir ledger --seconds N`, which counts them from the beginning",
        );
    }
    if deltas.overflow > 0 {
        gap(
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
        gap(
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
        gap(
            Stage::Socket,
            format!(
                "{homeless} packets were freed on this host of which the kernel had forgotten the namespace, such as \
                 datagrams that a closed socket had not read"
            ),
            "--all-netns shows their reasons",
        );
    }
    let copies =
        |loss: &&super::sheet::Loss| loss.class == Class::CopyLost && loss.socket.is_none();
    if sheet.losses.iter().any(|loss| copies(&loss)) {
        let what = "lost copies of packet sockets are not told by socket".into();
        let cure = "Linux 6.11".into();
        sheet.gaps.push(super::snapshot::Gap {
            stage: Stage::Packet,
            what,
            cure,
        });
    }
    sheet.gaps.sort();
    sheet.gaps.dedup();
}

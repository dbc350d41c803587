//! The fates of a capture's packets.

use std::path::PathBuf;

use serde::Serialize;

use super::abi::DropCounts;
use crate::report::text::plain;

/// Freed packets of one device, or of all. `seen` is the sum of all others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All.
    pub seen: u64,
    /// In the file.
    pub written: u64,
    /// Not in the file because the ring between the kernel and this program was full.
    pub lost: u64,
    /// Freed in normal operation, and so left out.
    pub normal: u64,
    /// Left out because the device was not asked for.
    pub other_devices: u64,
    /// Not in the file because it had ended: see [`CaptureReport::stopped`].
    pub late: u64,
    /// Neither frames nor IP packets, such as messages of unix and netlink sockets.
    pub no_packets: u64,
}

/// A device of the file. One that has packets with and without a MAC header is there twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceReport {
    /// Its name in the file, fit to be shown.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its packets.
    pub counts: Counts,
}

/// The fates of a capture's packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaptureReport {
    /// The file.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// All packets.
    pub counts: Counts,
    /// Packets that nobody looked at: an interrupt freed them while the program ran on the same CPU.
    pub missed: u64,
    /// The interfaces of the file, in its order.
    pub interfaces: Vec<InterfaceReport>,
    /// Why the file ended before the capture did; none if it did not.
    pub stopped: Option<String>,
}

impl Counts {
    /// Adds those of another device.
    pub fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.written += other.written;
        self.lost += other.lost;
        self.normal += other.normal;
        self.other_devices += other.other_devices;
        self.late += other.late;
        self.no_packets += other.no_packets;
    }

    /// Adds the counts that only the kernel has.
    pub fn add_kernels(&mut self, counted: &DropCounts) {
        self.seen += counted.seen;
        self.normal += counted.normal;
        self.lost += counted.lost;
    }
}

impl CaptureReport {
    /// The limits of every capture.
    const GAP: &'static str = "Frames that XDP dropped, or failed to redirect, before the kernel made a packet of \
         them are not in it: their tracepoints do not have the frame; the ledger counts them.";

    /// The report in sentences.
    pub fn text(&self) -> Vec<String> {
        let counts = &self.counts;
        let path = plain(&self.path.display().to_string());
        let mut sentences = vec![format!(
            "{path}: {} dropped packets, {} bytes.",
            counts.written, self.bytes
        )];
        for (count, fate) in [
            (
                counts.lost,
                "dropped packets are not in it, since the ring was full: keep fewer bytes of each (--snaplen).",
            ),
            (
                self.missed,
                "freed packets are not in it, nor counted by it: they were freed in an interrupt of its program.",
            ),
            (
                counts.normal,
                "packets that were freed in normal operation are not in it (--write-all).",
            ),
            (
                counts.late,
                "dropped packets are not in it, since it had ended.",
            ),
        ] {
            if count > 0 {
                sentences.push(format!("{count} {fate}"));
            }
        }
        sentences.extend(
            self.stopped
                .iter()
                .map(|why| format!("{path} ended early: {}.", plain(why))),
        );
        sentences.push(Self::GAP.into());
        sentences
    }
}

//! Copies of the packets that the kernel drops, with the reason and the place of each, as a pcapng file.
//!
//! The programs of bpf/drops.bpf.c run at `skb:kfree_skb` while a capture is on; a thread takes their records from a
//! ring and writes the file. Each freed packet is counted by the programs, and each ends in one of the
//! [`Counts`](report::Counts): the file's own balance, which it has too, as the statistics of its interfaces.

pub mod abi;
mod file;
mod names;
pub mod options;
mod pcapng;
pub mod report;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::thread::{MembarrierCommand, membarrier};
use zerocopy::{FromBytes as _, IntoBytes as _};

use self::abi::{DropCounts, DropInterface, DropRecord, DropSite, DropsConfig, MAX_SNAPLEN};
use self::file::{DropFile, Fate, Record};
pub use self::options::Options;
pub use self::report::CaptureReport;
use super::events::reasons::Reasons;
use super::snapshot::Snapshot;
use crate::bpf::kernel_types::KernelTypes;
use crate::bpf::{Attached, Map, Object, Programs, Ring};
use crate::process::clock::{now_ns, realtime_ns};

const OBJECT: Object = Object {
    name: "drops",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/drops.bpf.o")),
    needs: "Linux 5.17 with BTF (CONFIG_DEBUG_INFO_BTF), whose packets it reads",
    layouts: abi::LAYOUTS,
    constants: abi::CONSTANTS,
    arrays_by_cpu: &[],
};

/// The programs, of which a kernel gets the one that fits its tracepoint.
const FREED: &str = "capture_freed";
const RECEIVER: &str = "capture_receiver";

/// How long records wait at most: a `kill -9` takes no more.
const PATIENCE: Duration = Duration::from_millis(100);
/// A reader that never sleeps takes the ring's cache lines from the programs, which run several times as long.
const PAUSE: Duration = Duration::from_millis(1);
/// Records that are read before they are written.
const BATCH: usize = 16384;
/// CPUs enter their records in another order than they looked at the clock, when one was interrupted between.
const DISORDER: u64 = 2_000_000;
/// Times of the clocks differ by less, unless the wall clock was set.
const CLOCK_STEP: u64 = 1_000_000;

/// Copies dropped packets into a file until it is finished or dropped.
#[must_use = "a capture ends when this is dropped"]
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<CaptureReport>>>,
}

/// The state of the thread.
struct Writer {
    stop: Arc<AtomicBool>,
    programs: Programs,
    program: &'static str,
    attached: Option<Attached>,
    normal_sites: Map<DropSite, u32>,
    clock: Clock,
    file: DropFile,
}

impl Capture {
    /// Begins the file, and captures from now on.
    ///
    /// # Errors
    ///
    /// Without `CAP_BPF` and `CAP_PERFMON`, for a kernel without BTF or reasons, for a namespace that is not there,
    /// and for a file that cannot be written or exists.
    pub fn start(path: &Path, options: Options) -> Result<Self> {
        ensure!(
            (1..=MAX_SNAPLEN).contains(&options.snaplen),
            "{} bytes of a packet cannot be captured: choose from 1 to {MAX_SNAPLEN}",
            options.snaplen
        );
        let types = KernelTypes::read()?;
        let reasons = Reasons::read(&types)?;
        let program = match types.tracepoint_arguments("kfree_skb") {
            // Its fourth argument is the socket.
            Some(4..) => RECEIVER,
            Some(3) => FREED,
            _ => bail!(
                "this kernel does not tell which packets it drops (tracepoint skb:kfree_skb, Linux 5.17)"
            ),
        };
        let config = DropsConfig {
            snaplen: options.snaplen,
            some_namespaces: u32::from(!options.scope.all),
            wake_at: u64::from(options.ring_bytes) / 4,
        };
        let sizes = [("records", options.ring_bytes)];
        let programs = Programs::load_sized(&OBJECT, Some(config.as_bytes()), &sizes, |name| {
            name == program
        })?;
        if !options.scope.all {
            let namespaces = programs.map::<u32, u32>("namespaces")?;
            for place in options.scope.places(&mut Snapshot::default())? {
                namespaces.set(&(place.inode as u32), &1)?;
            }
        }
        let clock = Clock::read();
        let file = DropFile::create(path, options, reasons, clock.realtime(now_ns()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            stop: Arc::clone(&stop),
            attached: Some(programs.attach(program)?),
            normal_sites: programs.map("normal_sites")?,
            programs,
            program,
            clock,
            file,
        };
        let thread = thread::Builder::new().name("weir-drops".into());
        let thread = thread
            .spawn(|| writer.run())
            .context("cannot start a thread")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Whether the file ended by itself: its limit was reached, or its disk is full.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the capture and the file.
    ///
    /// # Errors
    ///
    /// Where the programs' maps cannot be read. Where the file could not be written, the report says so.
    pub fn finish(mut self) -> Result<CaptureReport> {
        self.join().context("the capture was finished before")?
    }

    fn join(&mut self) -> Option<Result<CaptureReport>> {
        // Relaxed: the flag carries no data.
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        Some(
            thread.join().unwrap_or_else(|_| {
                Err(anyhow!("the thread that writes dropped packets panicked"))
            }),
        )
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Whoever wants the report finishes it.
        let _ = self.join();
    }
}

impl Writer {
    fn run(mut self) -> Result<CaptureReport> {
        let records = RefCell::new(Vec::new());
        let map = self.programs.map::<(), ()>("records")?;
        let ring = Ring::open(&map, |bytes| {
            records.borrow_mut().extend(Record::read(bytes));
        })?;
        while !self.stop.load(Ordering::Relaxed) && !self.file.is_over() {
            ring.wait(PATIENCE)?;
            // Of these, none is younger than the records that the next look at the ring can bring.
            let settled = now_ns().saturating_sub(DISORDER);
            ring.read(BATCH)?;
            self.write(&mut records.borrow_mut(), settled)?;
            thread::sleep(PAUSE);
        }
        self.attached = None;
        // The programs run inside of RCU's read-side critical sections, so none runs after this.
        membarrier(MembarrierCommand::Global)
            .context("cannot wait for the BPF programs (membarrier, CONFIG_MEMBARRIER)")?;
        while ring.read(BATCH)? > 0 {
            self.write(&mut records.borrow_mut(), 0)?;
        }
        self.write(&mut records.borrow_mut(), u64::MAX)?;
        self.finish()
    }

    /// Writes the records that are older than `settled`, in the order of their times; the others stay.
    fn write(&mut self, records: &mut Vec<Record>, settled: u64) -> Result<()> {
        records.sort_by_key(|record| record.about.time);
        let ready = records.partition_point(|record| record.about.time < settled);
        self.clock.follow();
        for record in records.drain(..ready) {
            let time = self.clock.realtime(record.about.time);
            if let Fate::NormalSite(site) = self.file.add(&record, time)? {
                // Where there is no room it is left out here.
                let _ = self.normal_sites.set(&site, &1);
            }
        }
        self.file.flush();
        Ok(())
    }

    fn finish(self) -> Result<CaptureReport> {
        let interfaces: Map<DropInterface, DropCounts> = self.programs.map("interfaces")?;
        let overflow: Map<u32, DropCounts> = self.programs.map("overflow")?;
        let keys = interfaces.keys()?.into_iter();
        let counted = keys.map(|key| Ok((key, sum(&interfaces, &key)?)));
        let counted = counted.collect::<Result<Vec<_>>>()?;
        let overflow = sum(&overflow, &0)?;
        let missed = self.programs.misses(self.program)?;
        let now = self.clock.realtime(now_ns());
        Ok(self.file.finish(&counted, &overflow, missed, now))
    }
}

/// The values of all CPUs, added.
fn sum<K>(map: &Map<K, DropCounts>, key: &K) -> Result<DropCounts>
where
    K: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable,
{
    let mut sum = DropCounts::default();
    for counts in map.get_per_cpu(key)?.unwrap_or_default() {
        sum.add(&counts);
    }
    Ok(sum)
}

impl Record {
    /// None of other bytes than the programs write.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (about, bytes) = DropRecord::read_from_prefix(bytes).ok()?;
        let bytes = bytes.get(..about.captured as usize)?.into();
        Some(Self { about, bytes })
    }
}

/// The wall clock by `CLOCK_MONOTONIC`, which the programs read. Both are slewed alike, so that their difference
/// changes only when the wall clock is set.
#[derive(Debug)]
struct Clock {
    offset: u64,
}

impl Clock {
    fn read() -> Self {
        /// Of these the one that was interrupted least counts.
        const READINGS: usize = 5;
        let readings = (0..READINGS).map(|_| {
            let (before, wall, after) = (now_ns(), realtime_ns(), now_ns());
            (
                after - before,
                wall.wrapping_sub(before + (after - before) / 2),
            )
        });
        let best = readings.min();
        Self {
            offset: best.map_or(0, |(_, offset)| offset),
        }
    }

    /// Follows a wall clock that was set.
    fn follow(&mut self) {
        let now = Self::read();
        if now.offset.abs_diff(self.offset) > CLOCK_STEP {
            *self = now;
        }
    }

    fn realtime(&self, monotonic: u64) -> u64 {
        monotonic.wrapping_add(self.offset)
    }
}

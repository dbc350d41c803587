//! The memory of a socket, beside that of its packets.

use crate::netns::{Lab, are_cards};
use crate::{Outcome, Result};
use testkit::{Test, skip};
use xsk::{Mode, Port, Umem};

/// Queues that are opened at once, so that other allocations meanwhile are little beside theirs.
const QUEUES: u32 = 32;
const TRIES: u32 = 3;
/// KiB for each queue, beyond its UMEM.
const MOST: i64 = 1024;

pub fn test() -> Test {
    Test::new("memory of a queue beyond its UMEM", a_queue).alone()
}

/// Memory in use, in KiB: of the kernel, and of this process alone.
#[derive(Clone, Copy)]
struct InUse {
    kernel: i64,
    process: i64,
}

impl InUse {
    fn now() -> Result<Self> {
        let memory = std::fs::read_to_string("/proc/meminfo")?;
        let process = std::fs::read_to_string("/proc/self/status")?;
        Ok(Self {
            // A UMEM is in neither of these. Rings are in the second.
            kernel: field(&memory, "Slab:")? + field(&memory, "VmallocUsed:")?,
            process: field(&process, "RssAnon:")?,
        })
    }
}

/// The number behind a name, in KiB.
fn field(text: &str, name: &str) -> Result<i64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.split_whitespace().next());
    Ok(number.ok_or_else(|| format!("no {name}"))?.parse()?)
}

/// Sockets with the settings by default, each on a UMEM of its own.
fn a_queue() -> Outcome {
    if are_cards() {
        return Err(skip("its queues are too few"));
    }
    let lab = Lab::with_queues(QUEUES)?;
    let mut least = i64::MAX;
    for _ in 0..TRIES {
        let before = InUse::now()?;
        let port = lab.rx.inside(|| {
            let builder = Port::builder("rx0").umem(Umem::builder());
            builder.sockets(|socket| socket.mode(Mode::Driver)).open()
        })?;
        let after = InUse::now()?;
        drop(port);
        let kernel = (after.kernel - before.kernel) / i64::from(QUEUES);
        let process = (after.process - before.process) / i64::from(QUEUES);
        println!("memory of a queue: {kernel} KiB of the kernel, {process} KiB of the process");
        least = least.min(kernel + process);
    }
    assert!(least < MOST, "a queue takes {least} KiB");
    Ok(())
}

//! Leaks of the tests in this process; `run` checks the rest of the system.

use crate::budget::STALL;
use crate::{Outcome, Result};
use testkit::{Test, wait_until};

/// A test that no file descriptor or mapping of ours is left after the other tests.
pub fn test() -> Test {
    Test::new("nothing is left in this process", || -> Outcome {
        let mut left = Vec::new();
        let clean = wait_until(STALL, || {
            left = leftovers().unwrap_or_default();
            left.is_empty()
        });
        if clean {
            return Ok(());
        }
        Err(format!("left behind: {}", left.join(", ")).into())
    })
    .alone()
}

fn leftovers() -> Result<Vec<String>> {
    let ours = ["socket:[", "net:[", "xsk-umem", "bpf", "eventpoll"];
    let mut left = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // Standard input and output are the caller's.
        let number: u32 = entry.file_name().to_string_lossy().parse()?;
        let Ok(target) = std::fs::read_link(entry.path()) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        if number > 2 && ours.iter().any(|mark| target.contains(mark)) {
            left.push(target);
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mapped = maps
        .lines()
        .filter(|line| line.contains("xsk-umem") || line.contains("socket:["));
    left.extend(mapped.map(str::to_owned));
    Ok(left)
}

//! The hardware rings of a card, which `ethtool -g` and `-G` are for.

use crate::netns::Side;
use crate::{Outcome, Result};
use testkit::Skip;

/// The slots of a device's RX and TX ring.
#[derive(Debug, Clone, Copy)]
pub struct Rings {
    /// In use.
    pub now: (u32, u32),
    /// The most that the driver offers.
    pub most: (u32, u32),
}

/// The rings of a device. One without, as veth, skips the test.
pub fn rings(side: &Side) -> Result<Rings> {
    let shown = side
        .output("ethtool", &format!("-g {}", side.device))
        .map_err(|error| Skip::new(format!("no hardware rings to resize: {error}")))?;
    let sizes = |name| shown.lines().filter_map(move |line| size(line, name));
    let pair = |at| sizes("RX:").nth(at).zip(sizes("TX:").nth(at));
    let (most, now) = pair(0).zip(pair(1)).ok_or("two pairs of sizes")?;
    Ok(Rings { now, most })
}

fn size(line: &str, name: &str) -> Option<u32> {
    line.strip_prefix(name)?.trim().parse().ok()
}

/// Rings that have their old size again on drop.
pub struct Resized<'a> {
    side: &'a Side,
    before: (u32, u32),
}

/// Resizes the rings of a device to the RX and TX slots that `choose` returns.
pub fn resize(side: &Side, choose: impl FnOnce(Rings) -> (u32, u32)) -> Result<Resized<'_>> {
    let found = rings(side)?;
    set(side, choose(found))?;
    let before = found.now;
    Ok(Resized { side, before })
}

/// A driver refuses a size that it has already, or takes it.
pub fn set(side: &Side, (rx, tx): (u32, u32)) -> Outcome {
    if rings(side)?.now == (rx, tx) {
        return Ok(());
    }
    let change = format!("-G {} rx {rx} tx {tx}", side.device);
    Ok(side.run("ethtool", &change)?)
}

impl Drop for Resized<'_> {
    fn drop(&mut self) {
        // The next test would fail with it.
        if let Err(error) = set(self.side, self.before) {
            eprintln!("{error}");
        }
    }
}

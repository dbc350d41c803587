//! Several faults at once, in turns of random counts: their rows must be told apart.

use anyhow::{Result, ensure};
use weir::ledger::balance::Method;

use crate::ledger_faults::check::{Turn, observe, prepare};
use crate::ledger_faults::faults;
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::Lab;
use crate::random::Random;

/// Faults of one mixture at most.
const FAULTS: usize = 6;
/// Turns of each at most.
const TURNS: usize = 5;
/// Losses of a turn at most.
const LOSSES: usize = 300;

/// Causes the faults of a seed, and prints it.
pub fn run(seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let mut wanted: Vec<_> = faults::all().into_iter().filter(|it| it.mixes).collect();
    while wanted.len() > FAULTS {
        wanted.remove(random.below(wanted.len()));
    }
    let (mut lab, kernel) = (Lab::new()?, Kernel::read()?);
    let (mut turns, mut names) = (Vec::new(), Vec::new());
    for fault in &wanted {
        let Ok(ready) = prepare(&mut lab, &kernel, fault)? else {
            continue;
        };
        let counts: Vec<u64> = (0..random.within(1, TURNS))
            .map(|_| random.within(1, LOSSES) as u64)
            .collect();
        names.push(format!("{} {}", fault.name, counts.iter().sum::<u64>()));
        turns.push(Turn { ready, counts });
    }
    println!("seed {seed}: {}", names.join(", "));
    let complaints = observe(lab, turns)?.complaints(Method::default())?;
    ensure!(
        complaints.is_empty(),
        "seed {seed}: {}",
        complaints.join("\n")
    );
    Ok(())
}

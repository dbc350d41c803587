//! Ledgers with a defect: the suite must complain of each, and of nothing without it.

use anyhow::{Result, ensure};
use weir::ledger::balance::Method;
use weir::ledger::balance::rules::{RULES, Rule};
use weir::ledger::snapshot::Snapshot;
use weir::ledger::stage::Stage;

use crate::ledger_faults::check::{Observation, Turn, observe, prepare};
use crate::ledger_faults::kernel::Kernel;
use crate::ledger_faults::lab::Lab;
use crate::ledger_faults::{COUNT, faults};

/// A loss stands in each counter that counts it.
pub fn counted_twice() -> Result<()> {
    let observation = caused("udp_receive_buffer_full")?;
    must_complain(
        &observation,
        Method {
            claims: false,
            ..Method::default()
        },
    )
}

/// The rows of UDP belong to TCP.
pub fn wrong_owner() -> Result<()> {
    let observation = caused("udp_no_listener")?;
    let moved = RULES.iter().map(|rule| match rule.stage {
        Stage::Udp => Rule {
            stage: Stage::Tcp,
            ..*rule
        },
        _ => *rule,
    });
    // For the rest of the test, as the rules of a method are constants.
    let rules: &'static [Rule] = moved.collect::<Vec<_>>().leak();
    must_complain(
        &observation,
        Method {
            rules,
            ..Method::default()
        },
    )
}

/// The names of reasons are those of numbers beside them.
pub fn reasons_of_another_kernel() -> Result<()> {
    let mut observation = caused("udp_no_listener")?;
    for snapshot in [&mut observation.before, &mut observation.after] {
        rename(snapshot);
    }
    let complaints = observation.complaints(Method::default())?;
    ensure!(!complaints.is_empty(), "nobody noticed");
    Ok(())
}

fn rename(snapshot: &mut Snapshot) {
    for drop in snapshot
        .events
        .iter_mut()
        .flat_map(|events| &mut events.drops)
    {
        drop.reason = match drop.reason.as_str() {
            "NO_SOCKET" => "PKT_TOO_SMALL".into(),
            reason => reason.to_owned(),
        };
    }
}

fn caused(name: &str) -> Result<Observation> {
    let (mut lab, kernel) = (Lab::new()?, Kernel::read()?);
    let all = faults::all();
    let fault = all.iter().find(|fault| fault.name == name);
    let fault = fault.ok_or_else(|| anyhow::anyhow!("no fault {name}"))?;
    let ready = prepare(&mut lab, &kernel, fault)?.map_err(|lacks| anyhow::anyhow!("{lacks}"))?;
    let counts = vec![COUNT];
    let observation = observe(lab, vec![Turn { ready, counts }])?;
    let complaints = observation.complaints(Method::default())?;
    ensure!(
        complaints.is_empty(),
        "without a defect: {}",
        complaints.join("\n")
    );
    Ok(observation)
}

fn must_complain(observation: &Observation, method: Method) -> Result<()> {
    let complaints = observation.complaints(method)?;
    ensure!(!complaints.is_empty(), "nobody noticed");
    println!("noticed: {}", complaints[0]);
    Ok(())
}

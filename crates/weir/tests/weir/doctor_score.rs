//! Every check finds its fault, and no check has a false alarm.

use anyhow::{Context as _, Result, ensure};
use hostnet::netns;
use weir::doctor;
use weir::doctor::{Check, Context, Finding, Fix, Verdict};
use weir::lab::{Lab, LabConfig};

use crate::doctor_faults::{Fault, Fixture, Outcome, Way, host};
use crate::{Test, doctor_faults, doctor_faults_device, doctor_faults_stack, some_at_once, tests};

pub fn trials() -> Vec<Test> {
    tests![
        every_check_finds_its_fault,
        a_healthy_host_gives_no_finding,
        a_healthy_card_gives_no_finding,
        a_clean_lab_gives_no_finding
    ]
}

/// The faults of the guest: `WORD ID` starts a line there, with one of [`WORDS`].
const GUEST: [&str; 2] = [
    include_str!("../guest/doctor_host.sh"),
    include_str!("../guest/doctor-faults.sh"),
];
const WORDS: [&str; 4] = ["broken", "raised", "manual", "try"];

fn every_check_finds_its_fault() -> Result<()> {
    let faults: Vec<&Fault> = [
        doctor_faults::FAULTS,
        doctor_faults_stack::FAULTS,
        doctor_faults_device::FAULTS,
    ]
    .into_iter()
    .flatten()
    .collect();
    let checks: Vec<&Check> = doctor::checks().collect();
    let scores = some_at_once(&checks, |check| Score::of(check, &faults));
    let missed: Vec<String> = scores.iter().flat_map(|it| it.missed.clone()).collect();
    let found: Vec<Way> = scores.iter().filter_map(|it| it.found).collect();
    for fault in &faults {
        ensure!(
            fault.way != Way::Guest || is_in_guest(fault.check),
            "the guest has no fault for {}",
            fault.check
        );
        ensure!(
            doctor::check(fault.check).is_ok(),
            "{} is no check",
            fault.check
        );
    }
    let alarms = [clean_lab_alarms()?, healthy_host_alarms()?].concat();
    let count = |way| found.iter().filter(|it| **it == way).count();
    println!(
        "doctor score: {} of {} checks found their fault ({} namespace, {} process, {} guest, {} fixture), {} false alarms in a clean lab",
        found.len(),
        doctor::checks().count(),
        count(Way::Namespace),
        count(Way::Process),
        count(Way::Guest),
        count(Way::Fixture),
        alarms.len()
    );
    ensure!(missed.is_empty(), "not found: {}", missed.join("; "));
    ensure!(alarms.is_empty(), "false alarms: {}", alarms.join("; "));
    Ok(())
}

/// The result of a check's faults.
struct Score {
    /// The most real way by which the check has found its fault.
    found: Option<Way>,
    missed: Vec<String>,
}

impl Score {
    fn of(check: &Check, faults: &[&Fault]) -> Self {
        let of_check = faults.iter().filter(|fault| fault.check == check.id);
        let (mut missed, mut ways, mut count) = (Vec::new(), Vec::new(), 0);
        for fault in of_check {
            count += 1;
            match inject(check, fault) {
                Ok(None) => ways.push(fault.way),
                Ok(Some(reason)) => println!("doctor score: {} not tried: {reason}", check.id),
                Err(error) => missed.push(format!("{}: {error:#}", check.id)),
            }
        }
        if count == 0 {
            missed.push(format!("{}: it has no fault", check.id));
        }
        Self {
            found: ways.into_iter().min_by_key(|way| *way as u8),
            missed,
        }
    }
}

fn is_in_guest(check: &str) -> bool {
    GUEST.iter().flat_map(|script| script.lines()).any(|line| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| WORDS.contains(&word)) && words.next() == Some(check)
    })
}

/// Injects a fault, which the check must find. Returns the reason if that is impossible.
fn inject(check: &Check, fault: &Fault) -> Result<Option<String>> {
    match (fault.inject)(check).context("cannot inject the fault")? {
        Outcome::Verdicts(verdicts) => ensure_found(&verdicts).map(|()| None),
        Outcome::Impossible(reason) => Ok(Some(reason)),
    }
}

/// There is a finding, and each finding is complete.
fn ensure_found(verdicts: &[Verdict]) -> Result<()> {
    let mut findings = findings(verdicts).peekable();
    ensure!(findings.peek().is_some(), "no finding: {verdicts:?}");
    for finding in findings {
        ensure!(
            !finding.evidence.is_empty(),
            "without evidence: {finding:?}"
        );
        ensure!(
            !finding.message.is_empty(),
            "without a message: {finding:?}"
        );
        match &finding.fix {
            Fix::Manual(text) => ensure!(!text.is_empty(), "without a fix: {finding:?}"),
            Fix::Steps(steps) => ensure!(!steps.is_empty(), "without a step: {finding:?}"),
        }
    }
    Ok(())
}

fn findings(verdicts: &[Verdict]) -> impl Iterator<Item = &Finding> {
    verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Finding(finding) => Some(finding),
        _ => None,
    })
}

/// The findings of these checks, all of them false alarms.
fn alarms<'a>(context: &Context, checks: impl Iterator<Item = &'a Check>) -> Vec<String> {
    let of_check = |check: &Check| {
        let verdicts = check.verdicts(context);
        let alarm = |finding: &Finding| format!("{}: {finding:?}", check.id);
        findings(&verdicts).map(alarm).collect::<Vec<_>>()
    };
    checks.flat_map(of_check).collect()
}

/// The findings on both sides of a lab, of all checks but those of the host that runs the test.
fn clean_lab_alarms() -> Result<Vec<String>> {
    let lab = Lab::anonymous(&LabConfig::default())?;
    let of_namespace = |check: &&Check| {
        let groups = doctor::device::CHECKS.iter().chain(doctor::stack::CHECKS);
        let of_namespace = groups.copied().flatten().any(|it| it.id == check.id);
        of_namespace || IN_ANY_NAMESPACE.contains(&check.id)
    };
    let mut all = Vec::new();
    for side in [lab.app(), lab.load()] {
        all.extend(netns::run_in(side.netns(), || -> Result<_> {
            Ok(alarms(&host(&[]), doctor::checks().filter(of_namespace)))
        })?);
    }
    Ok(all)
}

/// The checks in `host/` that read settings of the network namespace only.
const IN_ANY_NAMESPACE: [&str; 5] = [
    "bridge-netfilter",
    "netfilter-bypass",
    "resolver-vrf",
    "l3mdev-accept",
    "rps-flow-table",
];

fn healthy_host_alarms() -> Result<Vec<String>> {
    let root = Fixture::healthy()?;
    Ok(alarms(&root.context(&[]), doctor::checks()))
}

fn is_recorded(check: &Check) -> bool {
    let mut faults = doctor_faults_device::FAULTS.iter();
    faults.any(|it| it.check == check.id && matches!(it.way, Way::Fixture | Way::Guest))
}

fn a_clean_lab_gives_no_finding() -> Result<()> {
    let alarms = clean_lab_alarms()?;
    ensure!(alarms.is_empty(), "{alarms:?}");
    Ok(())
}

/// The recorded host also has something to check for each check of the host, so that no finding
/// means something.
fn a_healthy_host_gives_no_finding() -> Result<()> {
    let alarms = healthy_host_alarms()?;
    ensure!(alarms.is_empty(), "{alarms:?}");
    let root = Fixture::healthy()?;
    let of_host = doctor::host::CHECKS.iter().chain(doctor::stack::CHECKS);
    for check in of_host.copied().flatten() {
        let verdicts = check.verdicts(&root.context(&[]));
        let unchecked = |it: &Verdict| matches!(it, Verdict::Unchecked { .. });
        ensure!(
            !verdicts.iter().any(unchecked),
            "{}: {verdicts:?}",
            check.id
        );
        let fine = verdicts.iter().any(|it| matches!(it, Verdict::Fine { .. }));
        // No queue has a flow table.
        ensure!(
            fine || check.id == "rps-flow-table",
            "{}: {verdicts:?}",
            check.id
        );
    }
    Ok(())
}

/// The same for the checks of devices whose fault is recorded.
fn a_healthy_card_gives_no_finding() -> Result<()> {
    let root = Fixture::healthy()?;
    let context = root.context(&["eth0"]);
    for check in doctor::device::CHECKS.iter().copied().flatten() {
        let verdicts = check.verdicts(&context);
        let wrong = |it: &&Verdict| !matches!(it, Verdict::Fine { .. });
        let wrong: Vec<_> = verdicts.iter().filter(wrong).collect();
        ensure!(wrong.is_empty(), "{}: {wrong:?}", check.id);
        ensure!(
            !verdicts.is_empty() || !is_recorded(check),
            "{} did not run",
            check.id
        );
    }
    Ok(())
}

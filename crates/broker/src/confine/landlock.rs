//! Landlock (landlock(7)): the files that may be opened, whatever the capabilities are.
//!
//! Under Landlock a process can look into no process that is not under the same rules, so neither
//! `pidfd_getfd(2)` nor /proc/PID/{exe,mem,fd,ns} work (`hook_ptrace_access_check`,
//! security/landlock/task.c), nor does mount(2): no rule can grant them. So it is in force where the
//! policy grants none of these, and for the worker; the view of the file tree holds always.

use super::needs::Needs;
use super::paths::Paths;
use super::report::State;
use anyhow::{Context as _, Result};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _,
    RulesetStatus, Scope,
};
use std::path::Path;

/// The newest rules that this file knows; of these, the kernel's are used.
const NEWEST: ABI = ABI::V6;

/// Restricts this thread, and those that it starts.
pub(super) fn restrict(paths: &Paths, needs: &Needs) -> Result<State> {
    if needs.processes || needs.files {
        return Ok(State::Absent(
            "the policy's grants need other processes' files and descriptors, which Landlock forbids without exception".into(),
        ));
    }
    let mut rules = ruleset(!needs.connect)?;
    for (path, access) in paths.all() {
        rules = allow(rules, path, access.rights(NEWEST))?;
    }
    finish(rules)
}

/// Restricts this thread to no file at all.
pub(super) fn restrict_all() -> Result<State> {
    finish(ruleset(true)?)
}

fn ruleset(network: bool) -> Result<RulesetCreated> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::AbstractUnixSocket)?;
    if network {
        rules = rules.handle_access(AccessNet::from_all(NEWEST))?;
    }
    rules.create().context("cannot make a Landlock ruleset")
}

fn allow(rules: RulesetCreated, path: &Path, rights: BitFlags<AccessFs>) -> Result<RulesetCreated> {
    if !path.exists() {
        return Ok(rules);
    }
    let rights = if path.is_dir() {
        rights
    } else {
        rights & AccessFs::from_file(NEWEST)
    };
    let fd = PathFd::new(path)?;
    rules
        .add_rule(PathBeneath::new(fd, rights))
        .with_context(|| format!("cannot allow {}", path.display()))
}

fn finish(rules: RulesetCreated) -> Result<State> {
    let status = rules
        .restrict_self()
        .context("cannot restrict itself by Landlock")?;
    Ok(describe(&status))
}

fn describe(status: &RestrictionStatus) -> State {
    match (&status.ruleset, &status.landlock) {
        (_, LandlockStatus::NotImplemented) => {
            State::Absent("this kernel has no Landlock (5.13, CONFIG_SECURITY_LANDLOCK)".into())
        }
        (_, LandlockStatus::NotEnabled) | (RulesetStatus::NotEnforced, _) => {
            State::Absent("Landlock is not enabled (kernel command line: lsm=landlock,…)".into())
        }
        (RulesetStatus::FullyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            State::InForce(format!("ABI {}", *effective_abi as i32))
        }
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            State::InForce(format!(
                "in part, ABI {}: ABI {} has all of its rules (6.12)",
                *effective_abi as i32, NEWEST as i32
            ))
        }
    }
}

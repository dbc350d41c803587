//! Verdicts about the host, and settings in files.

use anyhow::Result;

use crate::doctor::context::Context;
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::step::Step;
use crate::doctor::verdict::{HOST, Verdict};

/// A wrong setting.
pub struct Wrong {
    /// Its effect, in one sentence.
    pub message: String,
    /// Its right value.
    pub new: String,
}

/// Why a setting of the whole host is invisible in most network namespaces.
pub const NOT_INITIAL: &str = "only the initial network namespace shows it: run it there, \
     e.g. with `nsenter --target 1 --net` outside of any container";

/// Nothing is wrong: one value shows it.
pub fn fine(source: &str, value: &str) -> Vec<Verdict> {
    fine_all(vec![Evidence::new(source, value)])
}

/// Nothing is wrong: these values show it.
pub fn fine_all(evidence: Vec<Evidence>) -> Vec<Verdict> {
    vec![Verdict::fine(HOST, evidence)]
}

/// One finding.
pub fn found(evidence: Vec<Evidence>, message: impl Into<String>, fix: Fix) -> Vec<Verdict> {
    vec![Verdict::found(HOST, evidence, message, fix)]
}

/// The check could not run.
pub fn unchecked(reason: impl Into<String>) -> Vec<Verdict> {
    vec![Verdict::unchecked(HOST, reason)]
}

/// The verdict if `path` is missing: none if the kernel has no such setting, but most of
/// /proc/sys/net/core is visible in the initial network namespace only.
pub fn absent(context: &Context, path: &str) -> Vec<Verdict> {
    if path.starts_with("/proc/sys/net/core/") && !context.is_initial_netns() {
        unchecked(NOT_INITIAL)
    } else {
        Vec::new()
    }
}

/// Judges the settings in these files one by one; all wrong ones make one finding.
pub fn judge(
    context: &Context,
    paths: &[&str],
    judge: impl Fn(&str, &str) -> Option<Wrong>,
) -> Result<Vec<Verdict>> {
    let mut evidence = Vec::new();
    let mut wrong = Vec::new();
    for path in paths {
        let Some(value) = context.read_if_there(path)? else {
            continue;
        };
        evidence.push(Evidence::new(*path, &value));
        if let Some(it) = judge(path, &value) {
            wrong.push((Step::write(*path, &value, &it.new), it.message));
        }
    }
    if evidence.is_empty() {
        return Ok(absent(context, paths.first().copied().unwrap_or_default()));
    }
    if wrong.is_empty() {
        return Ok(fine_all(evidence));
    }
    let (steps, mut messages): (Vec<_>, Vec<_>) = wrong.into_iter().unzip();
    messages.dedup();
    Ok(found(evidence, messages.join(" "), Fix::Steps(steps)))
}

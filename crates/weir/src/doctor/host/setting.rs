//! What the checks of a single setting have in common.

use anyhow::Result;

use crate::doctor::{Context, Evidence, Finding, Fix, HOST, Step, Verdict};

/// What is wrong with a setting.
pub struct Wrong {
    /// What it means here.
    pub message: String,
    /// What it is to be.
    pub new: String,
}

/// Why a setting of the whole host cannot be seen from most network namespaces.
pub const NOT_INITIAL: &str = "only the host's own network namespace shows it: run it there, \
     e.g. with `nsenter --target 1 --net` outside of any container";

/// Everything is as it should be: one reading shows it.
pub fn fine(source: &str, value: &str) -> Vec<Verdict> {
    fine_all(vec![Evidence::new(source, value)])
}

/// Everything is as it should be: these readings show it.
pub fn fine_all(evidence: Vec<Evidence>) -> Vec<Verdict> {
    vec![Verdict::Fine {
        subject: HOST.into(),
        evidence,
    }]
}

/// One thing is wrong with the host.
pub fn found(evidence: Vec<Evidence>, message: impl Into<String>, fix: Fix) -> Vec<Verdict> {
    vec![Verdict::Finding(Finding {
        subject: HOST.into(),
        evidence,
        message: message.into(),
        fix,
    })]
}

/// It could not be looked at.
pub fn unchecked(reason: impl Into<String>) -> Vec<Verdict> {
    vec![Verdict::Unchecked {
        subject: HOST.into(),
        reason: reason.into(),
    }]
}

/// A write of one file.
pub fn write(path: &str, old: &str, new: &str) -> Step {
    Step::Write {
        path: path.into(),
        old: old.into(),
        new: new.into(),
    }
}

/// What there is to say when `path` is not there: nothing where the kernel has no such
/// setting, but most of those below /proc/sys/net/core hide outside of the host's namespace.
pub fn absent(context: &Context, path: &str) -> Vec<Verdict> {
    if path.starts_with("/proc/sys/net/core/") && !context.is_initial_netns() {
        unchecked(NOT_INITIAL)
    } else {
        Vec::new()
    }
}

/// Judges the settings in these files, each by itself; those that are wrong make one finding.
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
            wrong.push((write(path, &value, &it.new), it.message));
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

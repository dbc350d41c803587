//! The fixes of chosen checks.

use std::fmt;

use anyhow::{Result, bail};

use super::check::Check;
use super::context::Context;
use super::fix::Fix;
use super::step::Step;
use super::verdict::Verdict;

/// The fixes of chosen checks.
#[derive(Debug, Default)]
pub struct Plan {
    /// The steps to apply, in this order, each once.
    pub steps: Vec<Planned>,
    /// Messages about checks without a step.
    pub notes: Vec<Note>,
}

/// A step and its finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The id of the check.
    pub check: &'static str,
    /// The subject of the finding.
    pub subject: String,
    /// The step.
    pub step: Step,
}

/// A reason why a check adds no step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The check found nothing.
    NothingToFix(&'static str),
    /// The fix is manual.
    Manual {
        /// The id of the check.
        check: &'static str,
        /// The instructions.
        text: String,
    },
}

impl Plan {
    /// Runs the checks and collects the fixes of their findings.
    pub fn new(context: &Context, checks: &[&'static Check]) -> Result<Self> {
        let mut plan = Self::default();
        for check in checks {
            plan.add(check, check.verdicts(context))?;
        }
        Ok(plan)
    }

    fn add(&mut self, check: &'static Check, verdicts: Vec<Verdict>) -> Result<()> {
        let mut found = false;
        for verdict in verdicts {
            match verdict {
                Verdict::Fine { .. } => {}
                Verdict::Unchecked { subject, reason } => {
                    bail!("cannot check {} of {subject}: {reason}", check.id)
                }
                Verdict::Finding(finding) => {
                    found = true;
                    self.add_fix(check.id, &finding.subject, finding.fix);
                }
            }
        }
        if !found {
            self.notes.push(Note::NothingToFix(check.id));
        }
        Ok(())
    }

    fn add_fix(&mut self, check: &'static str, subject: &str, fix: Fix) {
        match fix {
            Fix::Manual(text) => self.notes.push(Note::Manual { check, text }),
            Fix::Steps(steps) => {
                for step in steps {
                    // Two findings may have the same fix.
                    if !self.steps.iter().any(|it| it.step == step) {
                        self.steps.push(Planned {
                            check,
                            subject: subject.to_owned(),
                            step,
                        });
                    }
                }
            }
        }
    }

    /// Whether its steps fix every finding.
    pub fn is_complete(&self) -> bool {
        let manual = |note: &Note| matches!(note, Note::Manual { .. });
        !self.notes.iter().any(manual)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingToFix(check) => write!(f, "{check}: nothing to fix"),
            Self::Manual { check, text } => write!(f, "{check}: manual fix: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::severity::Severity;

    static CHECK: Check = Check {
        id: "some-check",
        title: "it is off",
        severity: Severity::Warning,
        why: "-",
        source: "-",
        more: "-",
        counters: &[],
        run: |_| Ok(Vec::new()),
    };

    fn plan(verdicts: Vec<Verdict>) -> Result<Plan> {
        let mut plan = Plan::default();
        plan.add(&CHECK, verdicts)?;
        Ok(plan)
    }

    fn found(subject: &str, fix: Fix) -> Verdict {
        Verdict::found(subject, Vec::new(), "It is off.", fix)
    }

    #[test]
    fn a_step_of_two_findings_is_applied_once() -> Result<()> {
        let write = || Fix::write("/proc/sys/x", "0", "1");
        let plan = plan(vec![found("eth0", write()), found("eth1", write())])?;
        assert_eq!(plan.steps.len(), 1);
        assert!(plan.notes.is_empty() && plan.is_complete());
        Ok(())
    }

    #[test]
    fn a_manual_fix_leaves_it_incomplete() -> Result<()> {
        let plan = plan(vec![found("eth0", Fix::manual("pull the plug"))])?;
        assert!(plan.steps.is_empty() && !plan.is_complete());
        let note = plan.notes[0].to_string();
        assert_eq!(note, "some-check: manual fix: pull the plug");
        Ok(())
    }

    #[test]
    fn without_a_finding_there_is_nothing_to_fix() -> Result<()> {
        let plan = plan(vec![Verdict::fine("eth0", Vec::new())])?;
        assert_eq!(plan.notes, [Note::NothingToFix("some-check")]);
        assert!(plan.is_complete());
        Ok(())
    }

    #[test]
    fn no_plan_is_made_without_a_check() {
        assert!(plan(vec![Verdict::unchecked("eth0", "no permission")]).is_err());
    }
}

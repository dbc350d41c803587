//! `--fix` and `--undo`: steps are taken and taken back, each noted before it is done.

use std::time::SystemTime;

use anyhow::{Context as _, Result};

use super::journal::{Entry, Journal, Place, Undo};
use super::{Context, Step};
use crate::report::date::date;
use hostnet::netns;

/// A step, and what asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The check.
    pub check: &'static str,
    /// What is wrong.
    pub subject: String,
    /// What is to be done.
    pub step: Step,
}

/// What came of an entry of the journal.
#[derive(Debug)]
pub struct Undone {
    /// The entry.
    pub entry: Entry,
    /// What was to be done, or why that is not known.
    pub result: Result<Undo>,
    /// Whether the entry is settled, and no longer in the journal.
    pub settled: bool,
}

impl Place {
    /// Here and now.
    pub fn here(context: &Context) -> Result<Self> {
        Ok(Self {
            boot: context.read("/proc/sys/kernel/random/boot_id")?,
            netns: netns::current()?,
            initial: context.is_initial_netns(),
        })
    }
}

/// Takes one step. If it fails and nothing has changed, nothing of it stays in the journal.
pub fn take(context: &Context, journal: &mut Journal, planned: &Planned) -> Result<()> {
    let Planned {
        check,
        subject,
        step,
    } = planned;
    journal.begin(Entry {
        check: (*check).into(),
        subject: subject.clone(),
        time: date(SystemTime::now()),
        place: Place::here(context)?,
        step: step.clone(),
        set: None,
    })?;
    match step.apply(context) {
        Ok(set) => journal.done(set),
        Err(error) => {
            if step.read(context).is_ok_and(|now| now == step.old()) {
                journal.remove(journal.entries().len() - 1)?;
            }
            Err(error)
        }
    }
}

/// Takes back everything in the journal, last first, and tells of each. With `force` also what
/// somebody has changed since; an entry of another namespace is forgotten then.
pub fn undo(context: &Context, journal: &mut Journal, force: bool) -> Result<Vec<Undone>> {
    let here = Place::here(context)?;
    let mut all = Vec::new();
    for index in (0..journal.entries().len()).rev() {
        let entry = journal.entries()[index].clone();
        let result = undo_one(context, &here, &entry, force);
        let settled = match &result {
            Ok(Undo::Changed(_) | Undo::Elsewhere) => force,
            Ok(_) => true,
            Err(_) => false,
        };
        if settled {
            journal
                .remove(index)
                .context("it was undone, but the journal still has it")?;
        }
        all.push(Undone {
            entry,
            result,
            settled,
        });
    }
    Ok(all)
}

fn undo_one(context: &Context, here: &Place, entry: &Entry, force: bool) -> Result<Undo> {
    let judgement = entry.judge(here, || entry.step.read(context))?;
    let changes = match &judgement {
        Undo::Restore => true,
        Undo::Changed(_) => force,
        _ => false,
    };
    if changes {
        entry.step.undo(context)?;
    }
    Ok(judgement)
}

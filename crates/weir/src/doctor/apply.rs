//! `--fix` and `--undo`: every step is in the journal before it is applied.

use std::fmt;
use std::time::SystemTime;

use anyhow::{Context as _, Error, Result};

use super::context::Context;
use super::journal::{Entry, Journal, Place, Undo};
use super::plan::Planned;
use crate::report::date::date;

/// A step that failed, after which no other was applied.
#[derive(Debug)]
pub struct Stopped {
    /// The number of steps before it, all of which were applied.
    pub applied: usize,
    /// Its error.
    pub error: Error,
}

/// The result of `--undo` for an entry of the journal.
#[derive(Debug)]
pub struct Undone {
    /// The entry.
    pub entry: Entry,
    /// The action chosen, or the error.
    pub result: Result<Undo>,
    /// Whether it was undone or dropped despite a change or another namespace.
    pub forced: bool,
}

/// Applies the steps in order, up to the first that fails.
pub fn apply(context: &Context, journal: &mut Journal, steps: &[Planned]) -> Result<(), Stopped> {
    for (applied, planned) in steps.iter().enumerate() {
        apply_one(context, journal, planned).map_err(|error| Stopped { applied, error })?;
    }
    Ok(())
}

/// Applies one step. If it fails and the state is unchanged, it is removed from the journal.
fn apply_one(context: &Context, journal: &mut Journal, planned: &Planned) -> Result<()> {
    let Planned {
        check,
        subject,
        step,
    } = planned;
    journal.begin(Entry {
        check: (*check).into(),
        subject: subject.clone(),
        time: date(SystemTime::now()),
        place: place(context)?,
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

fn place(context: &Context) -> Result<Place> {
    Ok(Place {
        boot: context.read("/proc/sys/kernel/random/boot_id")?,
        netns: context.netns()?,
        initial: context.is_initial_netns(),
    })
}

/// Undoes all entries of the journal, last first. With `force` also settings that were changed
/// since; entries of other namespaces are dropped then.
pub fn undo(context: &Context, journal: &mut Journal, force: bool) -> Result<Vec<Undone>> {
    let here = place(context)?;
    let mut all = Vec::new();
    for index in (0..journal.entries().len()).rev() {
        let entry = journal.entries()[index].clone();
        let undone = Undone {
            result: undo_one(context, &here, &entry, force),
            entry,
            forced: force,
        };
        if undone.is_settled() {
            journal
                .remove(index)
                .context("it was undone, but is still in the journal")?;
        }
        all.push(undone);
    }
    Ok(all)
}

fn undo_one(context: &Context, here: &Place, entry: &Entry, force: bool) -> Result<Undo> {
    let undo = entry.action(here, || entry.step.read(context))?;
    let changes = match &undo {
        Undo::Restore => true,
        Undo::Changed(_) => force,
        _ => false,
    };
    if changes {
        entry.step.undo(context)?;
    }
    Ok(undo)
}

impl Undone {
    /// Whether the entry is no longer in the journal.
    pub fn is_settled(&self) -> bool {
        match &self.result {
            Ok(Undo::Changed(_) | Undo::Elsewhere) => self.forced,
            Ok(_) => true,
            Err(_) => false,
        }
    }
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let netns = self.entry.place.netns;
        let command = self.entry.step.undo_command();
        write!(f, "{}: ", self.entry.check)?;
        match &self.result {
            Ok(Undo::AlreadyBack) => write!(f, "already restored: {command}"),
            Ok(Undo::Gone) => f.write_str("gone since the reboot"),
            Ok(Undo::Restore) => write!(f, "undone: {command}"),
            Ok(Undo::Changed(now)) if self.forced => {
                write!(f, "undone, although it was changed to {now}: {command}")
            }
            Ok(Undo::Changed(now)) => write!(
                f,
                "kept: it was changed to {now} since; --force would run: {command}"
            ),
            Ok(Undo::Elsewhere) if self.forced => {
                write!(f, "dropped: it belongs to network namespace {netns}")
            }
            Ok(Undo::Elsewhere) => write!(
                f,
                "kept: it belongs to network namespace {netns}, which is not this one: run --undo there, or drop it with --force"
            ),
            Err(error) => write!(f, "kept: {error:#}"),
        }
    }
}

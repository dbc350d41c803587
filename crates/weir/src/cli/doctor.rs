//! `weir doctor`: its flags, and what they mean.

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin, stdout};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{ArgGroup, Args};

use crate::doctor;
use crate::doctor::journal::{Journal, Undo};
use crate::doctor::mend::{Planned, Undone};
use crate::doctor::{Check, Context, Fix, Report, Verdict, mend, report};

/// Something is wrong, or was left as it is.
const FINDINGS: u8 = 1;
/// It could not be looked at, or nothing could be begun.
const COULD_NOT_CHECK: u8 = 2;

const AFTER_HELP: &str = "\
Examples:
  weir doctor
      Look at this host and every device of this network namespace
  weir doctor --dev eth0 --json
      One device, and the host, for programs
  weir doctor --fix bpf-jit
      Show the commands that mend a finding, ask, run them, note how to take them back
  weir doctor --undo
      Take back everything that --fix has changed, also after a reboot

What --fix changes holds until the next boot. How to take it back is noted in
/var/lib/weir/doctor/journal.json, or below WEIR_STATE_DIR, before it is changed.

Exit status:
  0  nothing is wrong with what could be checked; with --fix or --undo: all of it is done
  1  there are findings; with --fix or --undo: something is left as it was
  2  nothing could be checked, or something that was asked for could not, or the command line is wrong";

/// `weir doctor`
#[derive(Debug, Args)]
#[command(
    after_long_help = AFTER_HELP,
    group(ArgGroup::new("instead").args(["explain", "list", "fix", "undo"]))
)]
pub struct DoctorArgs {
    /// Look at these devices only, and at the host [default: all of this network namespace]
    #[arg(long, value_name = "IF", num_args = 1.., conflicts_with_all = ["explain", "list", "undo"])]
    pub dev: Vec<String>,
    /// As JSON
    #[arg(long, conflicts_with = "instead")]
    pub json: bool,
    /// Explain a check: what it reads, why it matters, how to measure what its fix brings
    #[arg(long, value_name = "ID")]
    pub explain: Option<String>,
    /// List the checks
    #[arg(long)]
    pub list: bool,
    /// Mend what these checks find: show the commands, ask, and run them
    #[arg(long, value_name = "ID", num_args = 1..)]
    pub fix: Vec<String>,
    /// Do not ask
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// Take back what --fix has changed, last first
    #[arg(long)]
    pub undo: bool,
    /// Take back also what somebody has changed since; forget what is of another namespace
    #[arg(long, requires = "undo")]
    pub force: bool,
}

/// Runs `weir doctor`.
pub fn run(args: &DoctorArgs) -> ExitCode {
    // An error is not a finding, which exit code 1 would say.
    dispatch(args).unwrap_or_else(|error| {
        eprintln!("weir: error: {error:#}");
        COULD_NOT_CHECK.into()
    })
}

fn dispatch(args: &DoctorArgs) -> Result<ExitCode> {
    if let Some(id) = &args.explain {
        return print(&report::explain(doctor::check(id)?));
    }
    if args.list {
        return list();
    }
    if args.undo {
        return undo(args.force);
    }
    let context = Context::host(args.dev.clone());
    check_devices(&context)?;
    if args.fix.is_empty() {
        examine(&context, args.json)
    } else {
        fix(&context, args)
    }
}

fn check_devices(context: &Context) -> Result<()> {
    for name in context.devices() {
        ensure!(
            context.links()?.iter().any(|link| link.name == *name),
            "there is no device {name} in this network namespace: see `ip link`"
        );
    }
    Ok(())
}

fn list() -> Result<ExitCode> {
    let mut text = String::new();
    for check in doctor::checks() {
        let _ = writeln!(text, "{:24}{:10}{}", check.id, check.severity, check.title);
    }
    print(&text)
}

fn examine(context: &Context, json: bool) -> Result<ExitCode> {
    let report = Report::new(context, doctor::checks());
    if json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        print(&report.to_string())?;
    }
    Ok(if report.is_blind() {
        COULD_NOT_CHECK.into()
    } else if report.findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        FINDINGS.into()
    })
}

fn print(text: &str) -> Result<ExitCode> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// What the chosen checks found, as far as `--fix` can mend it.
struct Plan {
    steps: Vec<Planned>,
    /// Whether something will stay as it is.
    incomplete: bool,
}

fn fix(context: &Context, args: &DoctorArgs) -> Result<ExitCode> {
    let checks = args.fix.iter().map(|id| doctor::check(id));
    let checks = checks.collect::<Result<Vec<_>>>()?;
    let plan = plan(context, &checks)?;
    let left = if plan.incomplete { FINDINGS } else { 0 };
    if plan.steps.is_empty() {
        return Ok(left.into());
    }
    for planned in &plan.steps {
        println!("  {}", planned.step.command());
    }
    if !args.yes && !confirmed()? {
        println!("Nothing was changed.");
        return Ok(FINDINGS.into());
    }
    let mut journal = Journal::open()?;
    if !take_all(context, &mut journal, &plan.steps) {
        return Ok(FINDINGS.into());
    }
    println!("Done. Take it back with `weir doctor --undo`.");
    Ok(left.into())
}

fn plan(context: &Context, checks: &[&'static Check]) -> Result<Plan> {
    let mut plan = Plan {
        steps: Vec::new(),
        incomplete: false,
    };
    for check in checks {
        let mut found = false;
        for verdict in check.verdicts(context) {
            match verdict {
                Verdict::Fine { .. } => {}
                Verdict::Unchecked { subject, reason } => {
                    bail!("cannot check {} of {subject}: {reason}", check.id)
                }
                Verdict::Finding(finding) => {
                    found = true;
                    plan.add(check.id, &finding.subject, finding.fix);
                }
            }
        }
        if !found {
            println!("{}: there is nothing to mend.", check.id);
        }
    }
    Ok(plan)
}

impl Plan {
    fn add(&mut self, check: &'static str, subject: &str, fix: Fix) {
        match fix {
            Fix::Text(text) => {
                println!("{check}: this has to be done by hand: {text}");
                self.incomplete = true;
            }
            Fix::Steps(steps) => {
                let planned = steps.into_iter().map(|step| Planned {
                    check,
                    subject: subject.to_owned(),
                    step,
                });
                // Two findings may ask for the same.
                for planned in planned {
                    if !self.steps.iter().any(|it| it.step == planned.step) {
                        self.steps.push(planned);
                    }
                }
            }
        }
    }
}

fn confirmed() -> Result<bool> {
    ensure!(
        stdin().is_terminal(),
        "there is no terminal to ask at: say --yes to run these commands"
    );
    eprint!("Run them? [y/N] ");
    stderr().flush().context("cannot write to standard error")?;
    let mut answer = String::new();
    stdin()
        .lock()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

/// Takes each step, up to the first that fails, and tells what was done and what was not.
fn take_all(context: &Context, journal: &mut Journal, steps: &[Planned]) -> bool {
    for (index, planned) in steps.iter().enumerate() {
        let Err(error) = mend::take(context, journal, planned) else {
            continue;
        };
        eprintln!("weir: error: {}: {error:#}", planned.check);
        for (state, steps) in [("done", &steps[..index]), ("not done", &steps[index..])] {
            for planned in steps {
                println!("  {state}: {}", planned.step.command());
            }
        }
        if !journal.entries().is_empty() {
            println!("Take back what was done with `weir doctor --undo`.");
        }
        return false;
    }
    true
}

fn undo(force: bool) -> Result<ExitCode> {
    let context = Context::host(Vec::new());
    let mut journal = Journal::open()?;
    if journal.entries().is_empty() {
        return print("There is nothing to undo.\n");
    }
    let all = mend::undo(&context, &mut journal, force)?;
    for undone in &all {
        println!("{}", told(undone, force));
    }
    if all.iter().all(|undone| undone.settled) {
        return Ok(ExitCode::SUCCESS);
    }
    println!("What is left is in {}.", journal.path().display());
    Ok(FINDINGS.into())
}

/// What came of one entry, in a sentence.
fn told(undone: &Undone, force: bool) -> String {
    let entry = &undone.entry;
    let command = entry.step.undo_command();
    let what = match &undone.result {
        Ok(Undo::AlreadyBack) => format!("it is already back: {command}"),
        Ok(Undo::Gone) => "it went at a reboot".into(),
        Ok(Undo::Restore) => format!("undone: {command}"),
        Ok(Undo::Changed(now)) if force => format!("undone, though it was {now}: {command}"),
        Ok(Undo::Changed(now)) => {
            format!("left: somebody has changed it to {now} since; --force runs: {command}")
        }
        Ok(Undo::Elsewhere) if force => {
            format!(
                "forgotten: it is of network namespace {}",
                entry.place.netns
            )
        }
        Ok(Undo::Elsewhere) => format!(
            "left: it is of network namespace {}, which is not this one: undo it there, or forget it with --force",
            entry.place.netns
        ),
        Err(error) => format!("left: {error:#}"),
    };
    format!("{}: {what}", entry.check)
}

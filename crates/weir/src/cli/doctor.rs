//! `weir doctor`: its command line and its output.

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{ArgGroup, Args};
use hostnet::rtnetlink::Rtnetlink;

use crate::cli::output;
use crate::doctor;
use crate::doctor::apply::{self, Stopped};
use crate::doctor::changes::Changes;
use crate::doctor::context::LOOK;
use crate::doctor::journal::Journal;
use crate::doctor::plan::{Plan, Planned};
use crate::doctor::{Context, Report, report};
use crate::process::stop::StopSignal;

/// Findings, or settings that stay as they are.
const FINDINGS: u8 = 1;
/// Nothing could be checked, or `--fix` or `--undo` could not start.
const COULD_NOT_CHECK: u8 = 2;

const AFTER_HELP: &str = "\
Examples:
  weir doctor
      Check this host and every device of this network namespace
  weir doctor --dev eth0 --json
      Check this host and one device; print JSON
  weir doctor --dev veth0 --xdp
      Also send frames through AF_XDP sockets on a device: which modes deliver, which are refused
  weir doctor --watch
      Look every 3 seconds; print findings that appear or go away, until Ctrl-C
  weir doctor --fix bpf-jit
      Print the commands that fix a finding, ask, and run them
  weir doctor --undo
      Undo all changes of --fix, also after a reboot

Changes of --fix last until the next boot. Each change and its undo are recorded in
/var/lib/weir/doctor/journal.json, or below WEIR_STATE_DIR, before the change is made.

Exit status:
  0  no findings, with --watch in none of the looks; with --fix or --undo: everything was done
  1  findings; with --fix or --undo: some settings are unchanged
  2  nothing could be checked, a check of --fix could not run, or invalid arguments";

/// `weir doctor`
#[derive(Debug, Args)]
#[command(
    after_long_help = AFTER_HELP,
    group(ArgGroup::new("instead").args(["explain", "list", "fix", "undo"]))
)]
pub struct DoctorArgs {
    /// Check the host and only these devices [default: all devices of this network namespace]
    #[arg(long, value_name = "IF", num_args = 1.., conflicts_with_all = ["explain", "list", "undo"])]
    pub dev: Vec<String>,
    /// Send frames of the doctor's own through AF_XDP sockets in each mode on the devices of --dev, if the frames
    /// stay on this host; a card may lose its link for seconds
    #[arg(long, requires = "dev", conflicts_with_all = ["instead", "watch"])]
    pub xdp: bool,
    /// Print the report as JSON; with --watch one report a line
    #[arg(long, conflicts_with = "instead")]
    pub json: bool,
    /// Repeat the look every so many seconds until SIGINT or SIGTERM; print findings that appear or go away
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "3",
        value_parser = clap::value_parser!(u64).range(1..=3600),
        conflicts_with = "instead"
    )]
    pub watch: Option<u64>,
    /// Explain a check: the values it reads, why they matter, and how to measure its fix
    #[arg(long, value_name = "ID")]
    pub explain: Option<String>,
    /// List all checks
    #[arg(long)]
    pub list: bool,
    /// Fix the findings of these checks: print the commands, ask, and run them
    #[arg(long, value_name = "ID", num_args = 1..)]
    pub fix: Vec<String>,
    /// Run the commands of --fix without asking
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// Undo all changes of --fix, last first
    #[arg(long)]
    pub undo: bool,
    /// Also undo settings that were changed since; drop entries of other network namespaces
    #[arg(long, requires = "undo")]
    pub force: bool,
}

/// Runs `weir doctor`.
pub fn run(args: &DoctorArgs) -> ExitCode {
    // An error is not a finding: it has an exit code of its own.
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
    if let Some(seconds) = args.watch {
        return watch(args, Duration::from_secs(seconds));
    }
    let context = Context::host(devices(args)?, &doctor::counters(), LOOK).probing_xdp(args.xdp);
    if args.undo {
        return undo(&context, args.force);
    }
    ensure_devices_exist(&context)?;
    if args.fix.is_empty() {
        examine(&context, args.json)
    } else {
        fix(&context, args)
    }
}

/// The requested devices, by the names that files and ethtool have them under.
fn devices(args: &DoctorArgs) -> Result<Vec<String>> {
    if args.dev.is_empty() {
        return Ok(Vec::new());
    }
    let links = Rtnetlink::open()?.links()?;
    let name = |wanted: &String| {
        let named = links.iter().find(|link| link.is_named(wanted));
        named.map_or_else(|| wanted.clone(), |link| link.name.clone())
    };
    Ok(args.dev.iter().map(name).collect())
}

fn ensure_devices_exist(context: &Context) -> Result<()> {
    for name in context.requested() {
        let mut devices = context.devices()?.iter();
        ensure!(
            devices.any(|device| device.name() == name),
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

/// Prints a look every `interval` until a signal.
fn watch(args: &DoctorArgs, interval: Duration) -> Result<ExitCode> {
    let stop = StopSignal::listen()?;
    let counters = doctor::counters();
    let mut changes = Changes::default();
    loop {
        let begun = Instant::now();
        let context = Context::host(devices(args)?, &counters, interval);
        ensure_devices_exist(&context)?;
        // In parts, so that a signal ends the look at once.
        while begun.elapsed() < interval && !stop.is_raised() {
            sleep(Duration::from_millis(50).min(interval.saturating_sub(begun.elapsed())));
        }
        if stop.is_raised() {
            let code = if changes.found() { FINDINGS } else { 0 };
            return Ok(code.into());
        }
        let report = Report::new(&context, doctor::checks());
        let text = changes.text(&report);
        if args.json {
            output::line(&serde_json::to_string(&report)?)?;
        } else {
            output::print(text)?;
        }
    }
}

fn print(text: &str) -> Result<ExitCode> {
    output::print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn fix(context: &Context, args: &DoctorArgs) -> Result<ExitCode> {
    let checks = args.fix.iter().map(|id| doctor::check(id));
    let plan = Plan::new(context, &checks.collect::<Result<Vec<_>>>()?)?;
    for note in &plan.notes {
        output::line(&note.to_string())?;
    }
    let done = if plan.is_complete() { 0 } else { FINDINGS };
    if plan.steps.is_empty() {
        return Ok(done.into());
    }
    for planned in &plan.steps {
        output::line(&format!("  {}", planned.step))?;
    }
    if !args.yes && !confirmed()? {
        output::line("Nothing was changed.")?;
        return Ok(FINDINGS.into());
    }
    let mut journal = Journal::open()?;
    if let Err(stopped) = apply::apply(context, &mut journal, &plan.steps) {
        print_stopped(&stopped, &plan.steps)?;
        if !journal.entries().is_empty() {
            output::line("Undo the steps that were done with `weir doctor --undo`.")?;
        }
        return Ok(FINDINGS.into());
    }
    output::line("Done. Undo with `weir doctor --undo`.")?;
    Ok(done.into())
}

fn confirmed() -> Result<bool> {
    ensure!(
        stdin().is_terminal(),
        "there is no terminal for the question: run these commands with --yes"
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

fn print_stopped(stopped: &Stopped, steps: &[Planned]) -> Result<()> {
    let (done, not_done) = steps.split_at(stopped.applied);
    if let Some(failed) = not_done.first() {
        eprintln!("weir: error: {}: {:#}", failed.check, stopped.error);
    }
    for (state, steps) in [("done", done), ("not done", not_done)] {
        for planned in steps {
            output::line(&format!("  {state}: {}", planned.step))?;
        }
    }
    Ok(())
}

fn undo(context: &Context, force: bool) -> Result<ExitCode> {
    let mut journal = Journal::open()?;
    if journal.entries().is_empty() {
        return print("There is nothing to undo.\n");
    }
    for undone in apply::undo(context, &mut journal, force)? {
        output::line(&undone.to_string())?;
    }
    if journal.entries().is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!("The rest is in {}.", journal.path().display()))?;
    Ok(FINDINGS.into())
}

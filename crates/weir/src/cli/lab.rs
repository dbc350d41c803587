//! `weir lab`.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};

use crate::cli::output::print;
use crate::lab::bridge::BRIDGE;
use crate::lab::named::{LabName, LabStatus, Removed, SideStatus, Which};
use crate::lab::{APP_DEVICE, LabConfig, named};
use hostnet::netns;

const DEFAULT_NAME: &str = "lab";

/// The commands of `weir lab`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Create a lab: two network namespaces, joined by a veth pair
    Up(UpArgs),
    /// Remove a lab, complete or not
    Down(DownArgs),
    /// List labs
    Status(StatusArgs),
    /// Start a shell in a lab
    Shell(ShellArgs),
}

/// `weir lab up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Name of the lab
    #[arg(default_value = DEFAULT_NAME)]
    pub name: LabName,
    /// Queue pairs of each device
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub queues: u32,
    /// MTU of the devices, 68 to 9000
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub mtu: u32,
    /// Containers on a bridge br0 with the application's device, their addresses 192.0.2.1 and so on
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "2", require_equals = true,
          value_parser = clap::value_parser!(u8).range(1..=100))]
    pub bridge: Option<u8>,
}

/// `weir lab down`
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Name of the lab
    #[arg(default_value = DEFAULT_NAME)]
    pub name: LabName,
    /// Remove every lab
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
}

/// `weir lab status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `weir lab shell`
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// Name of the lab
    #[arg(default_value = DEFAULT_NAME)]
    pub name: LabName,
    /// Enter the load's side instead of the application's
    #[arg(long)]
    pub load_side: bool,
}

/// Runs `weir lab`.
pub fn run(command: LabCommand) -> Result<()> {
    match command {
        LabCommand::Up(args) => up(&args),
        LabCommand::Down(args) if args.all => down_all(),
        LabCommand::Down(args) => down(&args.name),
        LabCommand::Status(args) => status(&args),
        LabCommand::Shell(args) => shell(&args),
    }
}

fn up(args: &UpArgs) -> Result<()> {
    let name = &args.name;
    let config = LabConfig {
        queues: args.queues,
        mtu: args.mtu,
    };
    let containers = args.bridge.unwrap_or(0);
    let lab = named::up(name, &config, containers)?;
    let mut text = format!("Lab {name} is up:\n");
    for note in lab.notes() {
        let _ = writeln!(text, "  {note}");
    }
    if containers > 0 {
        let _ = writeln!(
            text,
            "  {BRIDGE} joins {APP_DEVICE} and the ports c1 to c{containers}, behind which containers with the \
             addresses 192.0.2.1 and so on are; the first is `ip netns exec {} COMMAND`.\n\nAccelerate it:\n  \
             weir switch run --netns {} &\n  weir switch attach {BRIDGE}",
            name.container(1),
            name.netns_name(Which::App),
        );
    }
    let _ = writeln!(
        text,
        "\nUse it:\n  \
         weir lab shell{0}              a shell on the application's side\n  \
         weir lab shell{0} --load-side  a shell on the load's side\n  \
         ip netns exec {1} COMMAND  any command\n  \
         weir lab status\n\
         Remove it:\n  \
         weir lab down{0}",
        name_argument(name),
        name.netns_name(Which::App),
    );
    print(text)
}

/// The name as a word of a command line; nothing for the default.
fn name_argument(name: &LabName) -> String {
    match name.to_string() {
        name if name == DEFAULT_NAME => String::new(),
        name => format!(" {name}"),
    }
}

fn down(name: &LabName) -> Result<()> {
    print_removed(name, &named::down(name)?)
}

fn print_removed(name: &LabName, removed: &Removed) -> Result<()> {
    let mut text = format!("Lab {name} is removed.\n");
    if !removed.processes.is_empty() {
        let processes = list(&removed.processes);
        let _ = writeln!(
            text,
            "Processes still run in its namespaces, which are empty now and end with the last of them: {processes}"
        );
    }
    print(text)
}

fn down_all() -> Result<()> {
    let removed = named::down_all()?;
    if removed.is_empty() {
        return print("There is no lab.\n");
    }
    removed
        .iter()
        .try_for_each(|(name, removed)| print_removed(name, removed))
}

fn status(args: &StatusArgs) -> Result<()> {
    let labs = named::names()?
        .iter()
        .map(named::status)
        .collect::<Result<Vec<_>>>()?;
    print(if args.json {
        format!("{}\n", serde_json::json!({ "labs": labs }))
    } else if labs.is_empty() {
        "There is no lab. Create one with `weir lab up`.\n".into()
    } else {
        format!("{}\n", status_table(&labs))
    })
}

fn status_table(labs: &[LabStatus]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "lab",
        "side",
        "device",
        "state",
        "queues",
        "MTU",
        "received",
        "sent",
        "XDP program",
        "processes",
    ]);
    for lab in labs {
        let containers = lab.containers.iter();
        let containers =
            containers.map(|it| vec![lab.name.clone(), "container".into(), it.clone()]);
        for (which, side) in [("app", &lab.app), ("load", &lab.load)] {
            table.add_row(match side {
                Some(side) => side_row(&lab.name, which, side),
                None => vec![
                    lab.name.clone(),
                    which.into(),
                    "-".into(),
                    "incomplete".into(),
                ],
            });
        }
        table.add_rows(containers);
    }
    table
}

fn side_row(lab: &str, which: &str, side: &SideStatus) -> Vec<String> {
    vec![
        lab.into(),
        which.into(),
        side.device.clone(),
        if side.running { "up" } else { "down" }.into(),
        side.queues.to_string(),
        side.mtu.to_string(),
        side.counters.rx_packets.to_string(),
        side.counters.tx_packets.to_string(),
        side.xdp_program.map_or("-".into(), |id| format!("id {id}")),
        list(&side.processes),
    ]
}

fn list(processes: &[u32]) -> String {
    match processes {
        [] => "-".into(),
        some => some
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(" "),
    }
}

fn shell(args: &ShellArgs) -> Result<()> {
    let which = if args.load_side {
        Which::Load
    } else {
        Which::App
    };
    let side = named::side(&args.name, which)?;
    netns::enter(side.netns())?;
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let namespace = args.name.netns_name(which);
    eprintln!(
        "{} is the device here, in {namespace}; leave with `exit`.",
        side.device
    );
    let error = Command::new(&shell).env("WEIR_LAB", namespace).exec();
    Err(error).with_context(|| format!("cannot start {}: set SHELL to a shell", shell.display()))
}

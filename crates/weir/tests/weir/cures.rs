//! Commands that messages tell people to run exist, with these words.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};
use clap::Parser as _;
use clap::error::ErrorKind;
use testkit::Side;
use weir::cli::Cli;

use crate::guide::{files, none_of, sources, unbroken};
use crate::{Test, output, tests};

pub fn trials() -> Vec<Test> {
    tests![every_command_of_a_message_exists]
}

/// Programs whose commands run in a network namespace with a veth pair.
const RUN: [&str; 6] = ["bridge", "ethtool", "ip", "nstat", "ss", "tc"];
/// Programs whose commands would change the host, or say nothing without a fault.
const LOOKED_UP: [&str; 15] = [
    "apt", "bpftool", "chmod", "dmesg", "echo", "fuser", "kill", "lsattr", "modprobe", "mount",
    "nft", "perf", "taskset", "ulimit", "unshare",
];
/// Words that begin like a command.
const OTHERS: [&str; 4] = [
    "ip nat",
    "kill = true",
    "weir 2 listener",
    "weir 2 supervise",
];
/// What the blanks of a command are filled with, be it `{device}` or `DEV`: it is right with one of them.
const VALUES: [&str; 9] = [
    "192.0.2.1",
    "v0",
    "1",
    "1400",
    "xdpgeneric",
    "rx-vlan-hw-parse",
    "other-v0",
    "1000",
    "name",
];
/// A right command that this device, kernel or host has no use for.
const REFUSALS: [&str; 14] = [
    "Network is unreachable",
    "requested channel count exceeds maximum",
    "Handle cannot be zero",
    "ELF context",
    "No command specified",
    "not supported",
    "No such file",
    "Could not change",
    "no RX rings",
    "no rx ring",
    "Cannot open network namespace",
    "Invalid VRF name",
    "no channel parameters changed",
    "No netns name specified",
];

fn every_command_of_a_message_exists() -> Result<()> {
    let commands = commands()?;
    ensure!(commands.len() > 100, "only {}", commands.len());
    let sides = [Side::new("v0")?, Side::new("v1")?];
    testkit::join([&sides[0], &sides[1]], 1, 2, 1500)?;
    sides[0].ip("link property add dev v0 altname other-v0")?;
    let mut wrong = Vec::new();
    for (command, place) in &commands {
        if let Err(why) = check(command, &sides[0]) {
            wrong.push(format!("{place}: `{command}`: {why}"));
        }
    }
    none_of(&wrong)
}

/// The commands between back quotes in strings of the sources, each with a file that has it.
fn commands() -> Result<BTreeMap<String, String>> {
    let root = sources()?;
    let mut found = BTreeMap::new();
    for directory in fs::read_dir(root.join("crates"))? {
        for file in files(&directory?.path().join("src"), "rs")? {
            let text = fs::read_to_string(&file)?;
            let (code, _tests) = text.split_once("#[cfg(test)]\nmod ").unwrap_or((&text, ""));
            let name = file.strip_prefix(&root).unwrap_or(&file).display();
            let unbroken = unbroken(code);
            let lines = unbroken.lines().map(str::trim_start);
            for line in lines.filter(|line| !line.starts_with("//")) {
                let quoted = line.split('`').skip(1).step_by(2);
                for command in quoted.filter(|it| is_command(it)) {
                    found.insert(command.to_owned(), name.to_string());
                }
            }
        }
    }
    Ok(found)
}

fn is_command(text: &str) -> bool {
    let (program, rest) = text.split_once(' ').unwrap_or((text, ""));
    let is_known = RUN.contains(&program) || LOOKED_UP.contains(&program) || OWN.contains(&program);
    is_known && !rest.is_empty() && !OTHERS.contains(&text)
}

/// Programs whose words are checked here.
const OWN: [&str; 5] = ["./run", "journalctl", "sysctl", "systemctl", "weir"];

fn check(command: &str, side: &Side) -> Result<()> {
    let words: Vec<_> = command.split_whitespace().collect();
    match words[0] {
        "weir" => any(command, check_weir),
        "./run" => {
            let help = output(Command::new(sources()?.join("run")).arg("help"))?;
            let help = String::from_utf8(help.stdout)?;
            let is_there = help
                .lines()
                .any(|line| line.trim_start().starts_with(words[1]));
            ensure!(is_there, "no such command in `./run help`");
            Ok(())
        }
        "sysctl" => {
            let key = words.iter().skip(1).find(|word| !word.starts_with('-'));
            let key = key.and_then(|key| key.split(['=', '{']).next());
            let path = key
                .unwrap_or_default()
                .trim_end_matches('.')
                .replace('.', "/");
            let is_there = side.inside(|| Path::new("/proc/sys").join(&path).exists());
            // Some are in the initial network namespace only.
            ensure!(
                is_there || Path::new("/proc/sys").join(&path).exists(),
                "no /proc/sys/{path}"
            );
            Ok(())
        }
        "systemctl" | "journalctl" => {
            let unit = words.last().copied().unwrap_or_default();
            let file = sources()?.join(format!("packaging/{unit}.service"));
            ensure!(
                file.exists() || unit == "systemd-resolved",
                "no unit {unit}"
            );
            look_up(words[0])
        }
        program if RUN.contains(&program) => any(command, |filled| run(filled, side)),
        program => look_up(program),
    }
}

fn look_up(program: &str) -> Result<()> {
    let found = output(Command::new("sh").args(["-c", "command -v \"$0\"", program]))?;
    ensure!(found.status.success(), "no program {program}");
    Ok(())
}

/// Whether a command is right with one of the fillings of its blanks; else the last complaint.
fn any(command: &str, check: impl Fn(&str) -> Result<()>) -> Result<()> {
    let mut last = Ok(());
    for filled in fillings(command) {
        last = check(&filled);
        if last.is_ok() {
            break;
        }
    }
    last
}

fn fillings(command: &str) -> Vec<String> {
    let Some((before, after)) = blank(command) else {
        return vec![command.to_owned()];
    };
    let filled = VALUES.map(|value| format!("{before}{value}{after}"));
    filled.iter().flat_map(|filled| fillings(filled)).collect()
}

/// The text before and after the first blank: a `{…}`, or a word of capitals.
fn blank(command: &str) -> Option<(&str, &str)> {
    if let Some((before, rest)) = command.split_once('{')
        && let Some((_, after)) = rest.split_once('}')
        && !command.contains("awk")
    {
        return Some((before, after));
    }
    let mut words = command.split(' ');
    let word = words.find(|word| {
        let is_capital = |c: char| c.is_ascii_uppercase();
        !word.is_empty() && word.chars().all(is_capital) && *word != "KILL"
    })?;
    // At the end of a word, and no option such as `-L`.
    let at = command.find(&format!(" {word}"))? + 1;
    Some((&command[..at], &command[at + word.len()..]))
}

fn check_weir(command: &str) -> Result<()> {
    match Cli::try_parse_from(command.split_whitespace()) {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            // The last ones: the name of a command or an option, without what it needs.
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingSubcommand => Ok(()),
            ErrorKind::InvalidValue if error.to_string().contains("none was supplied") => Ok(()),
            _ => bail!("{}", error.to_string().lines().next().unwrap_or_default()),
        },
    }
}

fn run(command: &str, side: &Side) -> Result<()> {
    let words: Vec<_> = command.split_whitespace().collect();
    if words[0] == "ethtool" && words.len() < 4 && words[1].starts_with('-') {
        let help = output(Command::new("ethtool").arg("--help"))?;
        let help = String::from_utf8(help.stdout)?;
        ensure!(help.contains(&format!("{}|", words[1])), "no such option");
        return Ok(());
    }
    // iproute2 mounts a BPF filesystem, if there is none, and leaves it.
    let own_mounts = ["--mount", "sh", "-c", command];
    let done = side.inside(|| output(Command::new("unshare").args(own_mounts)))?;
    let said = String::from_utf8_lossy(&done.stderr);
    let is_refused = REFUSALS.iter().any(|it| said.contains(it));
    ensure!(done.status.success() || is_refused, "{said}");
    Ok(())
}

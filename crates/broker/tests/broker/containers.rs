//! Containers whose runtime hands the listener of their calls to the broker.

mod container;
mod peer;
mod steps;
mod table;

use crate::lab::{Broker, Lab, NOBODY, wait_until};
use crate::supervised::{Folder, Result};
use container::{CRUN, Container, POLICY, RUNC, Runtime};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::io::{BufRead as _, Read as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use testkit::limit::longest;
use testkit::{Process, Skip, Test, tests};

pub fn tests() -> Vec<Test> {
    tests![
        runc_containers_are_supervised,
        crun_containers_are_supervised,
        processes_that_runc_starts_later_are_supervised,
        processes_that_crun_starts_later_are_supervised,
        runtimes_that_say_nothing_harm_nobody,
        a_container_that_no_tenant_fits_starts_without_supervision,
        a_hundred_process_trees_at_once,
    ]
}

/// If this process is in a container, or to print the table of `./run containers`.
pub fn run_if_asked() -> Option<ExitCode> {
    steps::run_if_asked().or_else(table::run_if_asked)
}

fn sessions(broker: &Broker<'_>) -> usize {
    let status = broker.status().ok();
    let sessions = status.as_ref().and_then(|it| it["sessions"].as_array());
    sessions.map_or(usize::MAX, Vec::len)
}

fn runc_containers_are_supervised() -> Result<()> {
    is_supervised(RUNC)
}

fn crun_containers_are_supervised() -> Result<()> {
    is_supervised(CRUN)
}

const STEPS: &[&str] = &["mknod-null", "mknod-block", "mount-tmpfs", "mount-ramfs"];
const OUTCOMES: &[&str] = &["ok", "refused EPERM", "ok", "refused EPERM"];

fn is_supervised(runtime: Runtime) -> Result<()> {
    runtime.check()?;
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, POLICY)?;
    let container = Container::new(&lab, runtime, STEPS, None)?;
    let outcomes = container.run()?;
    let outcomes: Vec<_> = outcomes
        .iter()
        .map(|(_, outcome)| outcome.as_str())
        .collect();
    crate::ensure!(
        outcomes == OUTCOMES,
        "{outcomes:?} {} {}",
        container.errors(),
        broker.log()
    );
    crate::ensure!(
        wait_until(|| sessions(&broker) == 0),
        "its session goes on: {}",
        broker.log()
    );
    let who = format!("\"who\":\"container {}\"", container.id);
    crate::ensure!(broker.logs(&who), "{}", broker.log());
    drop(container);
    broker.stop()
}

fn processes_that_runc_starts_later_are_supervised() -> Result<()> {
    later_processes_are_supervised(RUNC)
}

fn processes_that_crun_starts_later_are_supervised() -> Result<()> {
    later_processes_are_supervised(CRUN)
}

fn later_processes_are_supervised(runtime: Runtime) -> Result<()> {
    runtime.check()?;
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, POLICY)?;
    let container = Container::new(&lab, runtime, &["wait", "mount-tmpfs"], None)?;
    let mut first = container.start()?;
    let line = first
        .line()
        .map_err(|error| format!("{error}: {}", container.errors()))?;
    crate::ensure!(line == "waits", "{line}");
    // The runtime hands its listener over and goes on.
    crate::ensure!(wait_until(|| sessions(&broker) == 1), "{}", broker.log());
    let mut second = container.execute(&["mknod-null", "mknod-block", "wait"])?;
    for expected in ["mknod-null ok", "mknod-block refused EPERM", "waits"] {
        let line = second
            .line()
            .map_err(|error| format!("{error}: {}", container.errors()))?;
        crate::ensure!(line == expected, "{line}: {}", broker.log());
    }
    crate::ensure!(
        sessions(&broker) == 2,
        "a listener of its own: {}",
        broker.log()
    );
    // The end of one session is not the end of the other.
    second.finish()?;
    crate::ensure!(wait_until(|| sessions(&broker) == 1), "{}", broker.log());
    first.close();
    let line = first.line()?;
    crate::ensure!(line == "mount-tmpfs ok", "{line}: {}", broker.log());
    first.finish()?;
    crate::ensure!(wait_until(|| sessions(&broker) == 0), "{}", broker.log());
    drop(container);
    broker.stop()
}

fn installed() -> Result<Runtime> {
    let found = [RUNC, CRUN].into_iter().find(|it| it.check().is_ok());
    found.ok_or_else(|| Skip::new("needs runc or crun").into())
}

fn runtimes_that_say_nothing_harm_nobody() -> Result<()> {
    let runtime = installed()?;
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, POLICY)?;
    let connect = || UnixStream::connect(lab.path("oci.sock"));
    // crun does so where a container cannot be made.
    drop(connect()?);
    let silent = (0..64)
        .map(|_| connect())
        .collect::<std::io::Result<Vec<_>>>()?;
    let container = Container::new(&lab, runtime, &["mknod-null"], None)?;
    let outcomes = container.run()?;
    let outcome = outcomes.first().map(|(_, outcome)| outcome.as_str());
    crate::ensure!(
        outcome == Some("ok"),
        "{outcomes:?} {} {}",
        container.errors(),
        broker.log()
    );
    for mut connection in silent {
        connection.set_read_timeout(Some(longest(Duration::from_secs(20))))?;
        crate::ensure!(connection.read(&mut [0])? == 0, "it is not disconnected");
    }
    let told = broker.log();
    crate::ensure!(told.contains("longer than 5 seconds"), "{told}");
    crate::ensure!(sessions(&broker) == 0);
    drop(container);
    broker.stop()
}

fn a_container_that_no_tenant_fits_starts_without_supervision() -> Result<()> {
    let runtime = installed()?;
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, &POLICY.replace("\"yes\"", "\"no\""))?;
    let container = Container::new(&lab, runtime, &["mknod-null"], None)?;
    let outcomes = container.run()?;
    let expected = "failed Function not implemented (os error 38)";
    let outcome = outcomes.first().map(|(_, outcome)| outcome.as_str());
    crate::ensure!(
        outcome == Some(expected),
        "{outcomes:?} {}",
        container.errors()
    );
    let told = broker.log();
    crate::ensure!(
        told.contains("runtime-refused") && told.contains(&container.id),
        "{told}"
    );
    drop(container);
    broker.stop()
}

/// Trees of the test below, and for how long each makes calls.
const TREES: usize = 100;
const TIME: Duration = Duration::from_secs(3);
/// Most memory of a broker that supervises them.
const MOST_MEMORY: u64 = 64 << 10;

const TREES_POLICY: &str = r#"
[[tenant]]
name = "trees"
uid = [65534]
[tenant.calls]
mknod = ["null"]
sysinfo = true
"#;

fn a_hundred_process_trees_at_once() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, TREES_POLICY)?;
    let folder = Folder::new("trees")?;
    let mut trees = Vec::new();
    for number in 0..TREES {
        let node = folder.own().join(number.to_string());
        let mut command = Command::new("/proc/self/exe");
        command.uid(NOBODY).gid(NOBODY);
        command.env("WEIR_BROKER", lab.path("broker.sock"));
        command.env(crate::roles::ROLE, "tree").arg(node);
        trees.push(Process::start(&mut command)?);
    }
    for tree in &mut trees {
        let line = tree.line()?;
        crate::ensure!(line == "ready", "{line}: {}", broker.log());
    }
    crate::ensure!(sessions(&broker) == TREES, "{} sessions", sessions(&broker));
    for tree in &mut trees {
        tree.say("go")?;
    }
    let mut calls = Vec::new();
    let mut longest = 0_u64;
    for tree in &mut trees {
        let line = tree.line()?;
        let (count, micros) = line.split_once(' ').ok_or("two numbers")?;
        calls.push(count.parse::<u64>()?);
        longest = longest.max(micros.parse()?);
    }
    let memory = memory(broker.process.id())?;
    for tree in &mut trees {
        tree.finish()?;
    }
    crate::ensure!(
        wait_until(|| sessions(&broker) == 0),
        "{} sessions go on",
        sessions(&broker)
    );
    calls.sort_unstable();
    let (least, most) = (calls[0], calls[TREES - 1]);
    let middle = calls[TREES / 2];
    println!(
        "{TREES} process trees, {} s: at least {least} calls of a tree, median {middle}, at most {most}; the longest took {} ms; the broker's memory was {} MiB at most",
        TIME.as_secs(),
        longest / 1000,
        memory / 1024
    );
    crate::ensure!(memory < MOST_MEMORY, "the broker has {memory} KiB");
    crate::ensure!(least * 10 >= middle, "a tree is starved: {calls:?}");
    broker.stop()
}

/// Most memory that a process had, in KiB.
fn memory(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("VmHWM")?.parse()?)
}

/// Role `tree NODE`: under supervision as by `weir run`, a child makes calls.
pub fn tree(arguments: &[String]) -> Result<()> {
    let broker = PathBuf::from(std::env::var_os("WEIR_BROKER").ok_or("a broker")?);
    broker::supervise::run::supervise(&broker, None)?;
    let status = Command::new("/proc/self/exe")
        .env(crate::roles::ROLE, "leaf")
        .args(arguments)
        .status()?;
    crate::ensure!(status.success(), "{status}");
    Ok(())
}

/// Role `leaf NODE`: makes a device and asks for the memory, as often as it can.
pub fn leaf(arguments: &[String]) -> Result<()> {
    let node = Path::new(arguments.first().ok_or("a path")?);
    println!("ready");
    let mut lines = std::io::stdin().lock().lines();
    lines.next().ok_or("a word")??;
    let (began, mut count, mut longest) = (Instant::now(), 0_u64, Duration::ZERO);
    while began.elapsed() < TIME {
        let call = Instant::now();
        mknodat(
            CWD,
            node,
            FileType::CharacterDevice,
            Mode::RUSR,
            makedev(1, 3),
        )?;
        rustix::system::sysinfo();
        longest = longest.max(call.elapsed());
        count += 2;
        std::fs::remove_file(node)?;
    }
    println!("{count} {}", longest.as_micros());
    lines.for_each(drop);
    Ok(())
}

//! Labs come whole and go without trace.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::{Command, Stdio, id};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hostnet::netns;
use serde_json::Value;
use weir::lab::{Lab, LabConfig};

use crate::{Test, failure, success, tests, until, weir};

pub fn trials() -> Vec<Test> {
    tests![
        two_labs_at_once,
        a_second_lab_of_a_name_is_refused,
        a_missing_lab_is_an_error,
        a_half_made_lab_is_removed,
        a_killed_up_leaves_nothing_that_down_does_not_remove,
        run_netns_goes_with_the_last_lab,
        run_netns_of_others_stays,
        run_netns_goes_after_a_killed_up,
        run_netns_goes_after_labs_at_once,
        down_empties_a_lab_that_is_in_use,
        settings_are_checked,
        a_lab_is_quiet,
        an_anonymous_lab_goes_with_its_process,
    ]
}

/// A name that no other test, and no other run of them, uses; the lab goes with this value.
struct Name(String);

impl Name {
    fn new(test: &str) -> Self {
        Self(format!("test-{test}-{}", id()))
    }

    fn files(&self) -> [String; 2] {
        ["app", "load"].map(|side| format!("/run/netns/weir-{}-{side}", self.0))
    }

    fn is_gone(&self) -> bool {
        self.files().iter().all(|file| !Path::new(file).exists())
    }

    fn lab(&self, command: &str) -> Command {
        let mut weir = weir();
        weir.args(["lab", command, &self.0]);
        weir
    }

    fn status(&self) -> Result<Value> {
        let text = success(weir().args(["lab", "status", "--json"]))?;
        let all: Value = serde_json::from_str(&text)?;
        let labs = all["labs"].as_array().context("no list of labs")?;
        Ok(labs
            .iter()
            .find(|lab| lab["name"] == self.0.as_str())
            .cloned()
            .unwrap_or_default())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if !self.is_gone() {
            // A test that failed has said why; this is only not to leave anything.
            let _ = self.lab("down").output();
        }
    }
}

fn two_labs_at_once() -> Result<()> {
    let (one, two) = (Name::new("one"), Name::new("two"));
    let said = success(&mut one.lab("up"))?;
    for word in [
        "weir0",
        "IPv6 is off",
        "checksum",
        "weir lab shell",
        "weir lab down",
    ] {
        ensure!(said.contains(word), "`up` does not say {word}: {said}");
    }
    success(two.lab("up").args(["--queues", "4", "--mtu", "3000"]))?;
    for (name, queues, mtu) in [(&one, 1, 1500), (&two, 4, 3000)] {
        let status = name.status()?;
        for (side, device) in [("app", "weir0"), ("load", "weir1")] {
            let side = &status[side];
            ensure!(side["device"] == device, "{status}");
            ensure!(side["running"] == true, "{status}");
            ensure!(side["queues"] == queues && side["mtu"] == mtu, "{status}");
        }
    }
    let seen = success(Command::new("ip").args(["netns", "list"]))?;
    ensure!(
        seen.contains(&format!("weir-{}-app", one.0)),
        "ip netns does not show it: {seen}"
    );
    success(&mut one.lab("down"))?;
    ensure!(
        one.is_gone() && !two.is_gone(),
        "down of one lab took another"
    );
    success(&mut two.lab("down"))?;
    ensure!(two.is_gone(), "down left files");
    ensure!(two.status()?.is_null(), "status still shows it");
    Ok(())
}

fn a_second_lab_of_a_name_is_refused() -> Result<()> {
    let name = Name::new("twice");
    success(&mut name.lab("up"))?;
    let said = failure(&mut name.lab("up"), 1)?;
    ensure!(said.contains("weir lab down"), "no cure: {said}");
    ensure!(
        name.status()?["load"]["running"] == true,
        "the first lab was damaged"
    );
    Ok(())
}

fn a_missing_lab_is_an_error() -> Result<()> {
    let name = Name::new("missing");
    for command in ["down", "shell"] {
        let said = failure(&mut name.lab(command), 1)?;
        ensure!(said.contains("there is no lab"), "{said}");
    }
    failure(weir().args(["lab", "up", "../x"]), 2)?;
    Ok(())
}

fn a_half_made_lab_is_removed() -> Result<()> {
    // It makes the directory, and keeps it.
    let other = Name::new("other");
    success(&mut other.lab("up"))?;
    let name = Name::new("half");
    for file in name.files() {
        fs::write(&file, "")?;
        ensure!(
            name.status()?["app"].is_null(),
            "a lab without namespaces has a side"
        );
        failure(&mut name.lab("up"), 1)?;
        failure(&mut name.lab("shell"), 1)?;
        success(&mut name.lab("down"))?;
        ensure!(name.is_gone(), "down left {file}");
    }
    Ok(())
}

fn a_killed_up_leaves_nothing_that_down_does_not_remove() -> Result<()> {
    let name = Name::new("killed");
    for delay in 0..10 {
        let mut up = name.lab("up").stdout(Stdio::null()).spawn()?;
        sleep(Duration::from_millis(delay * 2));
        up.kill()?;
        up.wait()?;
        if !name.is_gone() {
            success(&mut name.lab("down"))?;
        }
        ensure!(name.is_gone(), "down left files");
    }
    success(&mut name.lab("up"))?;
    Ok(())
}

/// Runs a shell script where /run is empty and its mounts are seen by nobody else.
fn with_empty_run(script: &str) -> Result<String> {
    // The host's mounts are hidden, and still listed; only of a mount can it be said how it is shared.
    let prepare = "mount -t tmpfs tmpfs /run
        is_mounted() { mount --make-shared /run/netns; }
        fails() { if \"$@\"; then return 1; fi; }
        is_clean() { ! is_mounted && [ ! -e /run/netns ]; }";
    let mut shell = Command::new("unshare");
    shell
        .args(["--mount", "sh", "-exc", &format!("{prepare}\n{script}")])
        .env("weir", env!("CARGO_BIN_EXE_weir"));
    success(&mut shell)
}

fn run_netns_goes_with_the_last_lab() -> Result<()> {
    with_empty_run(
        "$weir lab up a
        $weir lab up b
        ip netns list | grep weir-a-app
        $weir lab down a
        ip netns list | grep weir-b-load
        is_mounted
        $weir lab down b
        is_clean
        fails $weir lab down b
        is_clean
        $weir lab up a
        $weir lab up b
        $weir lab down --all
        is_clean",
    )?;
    Ok(())
}

fn run_netns_of_others_stays() -> Result<()> {
    for script in [
        // An empty directory.
        "mkdir /run/netns
        $weir lab up a
        $weir lab down a
        fails is_mounted
        [ -d /run/netns ]",
        // Namespaces that were there before.
        "ip netns add before
        $weir lab up a
        $weir lab down a
        is_mounted
        ip netns exec before true
        ip netns del before
        $weir lab up a
        $weir lab down a
        is_mounted",
        // A namespace that came meanwhile, which the next lab outlives.
        "$weir lab up a
        ip netns add meanwhile
        $weir lab down a
        is_mounted
        ip netns exec meanwhile true
        ip netns del meanwhile
        $weir lab up a
        $weir lab down a
        is_clean",
        // A name in a directory that nobody has mounted.
        "mkdir /run/netns
        ln -s /proc/1/ns/net /run/netns/link
        $weir lab up a
        [ -L /run/netns/link ]
        $weir lab down a
        [ -L /run/netns/link ]",
    ] {
        with_empty_run(script)?;
    }
    Ok(())
}

fn run_netns_goes_after_a_killed_up() -> Result<()> {
    with_empty_run(
        "for delay in 0.000 0.002 0.004 0.006 0.008 0.010 0.012 0.014 0.016 0.018; do
            timeout --signal=KILL --foreground $delay $weir lab up a || true
            $weir lab down --all
            is_clean
        done
        # Killed between two of its steps.
        mkdir -m 1755 /run/netns
        $weir lab down --all
        is_clean
        mkdir -m 1755 /run/netns
        mount -t tmpfs hostnet /run/netns
        fails $weir lab down a
        is_clean",
    )?;
    Ok(())
}

fn run_netns_goes_after_labs_at_once() -> Result<()> {
    with_empty_run(
        "for name in a b c d; do
            (for round in 1 2 3; do $weir lab up $name; $weir lab down $name; done) &
            jobs=\"${jobs-} $!\"
        done
        for job in $jobs; do wait $job; done
        is_clean",
    )?;
    Ok(())
}

fn down_empties_a_lab_that_is_in_use() -> Result<()> {
    let name = Name::new("used");
    success(&mut name.lab("up"))?;
    let mut user = Command::new("sleep");
    user.arg("60");
    let namespace = netns::open(Path::new(&name.files()[0]))?;
    let mut user = netns::spawn(std::os::fd::AsFd::as_fd(&namespace), &mut user)?;
    let said = success(&mut name.lab("down"));
    let devices = fs::read_to_string(format!("/proc/{}/net/dev", user.id()));
    user.kill()?;
    user.wait()?;
    ensure!(
        said?.contains(&user.id().to_string()),
        "down does not name who uses the lab"
    );
    ensure!(!devices?.contains("weir0"), "down left the device");
    ensure!(name.is_gone(), "down left files");
    Ok(())
}

fn settings_are_checked() -> Result<()> {
    let name = Name::new("settings");
    for (setting, value) in [
        ("--queues", "0"),
        ("--queues", "100"),
        ("--mtu", "9001"),
        ("--mtu", "1"),
    ] {
        let said = failure(name.lab("up").args([setting, value]), 1)?;
        ensure!(said.contains("choose from"), "no cure: {said}");
        ensure!(name.is_gone(), "a lab that was refused is there");
    }
    failure(name.lab("up").args(["--queues", "many"]), 2)?;
    Ok(())
}

fn a_lab_is_quiet() -> Result<()> {
    let lab = Lab::anonymous(&LabConfig {
        queues: 2,
        mtu: 1500,
    })?;
    // Router solicitations, the last frames that a kernel sends by itself, come within a second.
    sleep(Duration::from_millis(1500));
    for side in [lab.app(), lab.load()] {
        let counters = side.counters()?;
        ensure!(
            counters == hostnet::device::Counters::default(),
            "{}: {counters:?}",
            side.device
        );
    }
    ensure!(
        lab.notes().iter().any(|note| note.contains("checksum")),
        "{:?}",
        lab.notes()
    );
    Ok(())
}

/// Set for a process that shall do nothing but own an anonymous lab.
const OWNER: &str = "WEIR_TEST_OWNS_LAB";

/// Turns this process into the one that `an_anonymous_lab_goes_with_its_process` kills, if it is.
pub fn run_as_owner_of_an_anonymous_lab() {
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    let identity = |namespace: BorrowedFd<'_>| netns::identity(namespace).unwrap_or_default();
    match Lab::anonymous(&LabConfig::default()) {
        Ok(lab) => {
            println!(
                "{} {}",
                identity(lab.app().netns()),
                identity(lab.load().netns())
            );
            sleep(Duration::from_secs(60));
        }
        Err(error) => eprintln!("{error:?}"),
    }
    std::process::exit(1);
}

fn an_anonymous_lab_goes_with_its_process() -> Result<()> {
    let mut owner = Command::new(std::env::current_exe()?)
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(owner.stdout.take().context("no output")?).read_line(&mut line)?;
    let before = references(&line);
    owner.kill()?;
    owner.wait()?;
    ensure!(before? > 0, "no descriptor holds the lab: {line}");
    until("nothing holds the lab's namespaces", || {
        Ok(references(&line)? == 0)
    })
}

/// How many mounts, processes and descriptors hold the network namespaces of these numbers.
fn references(identities: &str) -> Result<usize> {
    let names: Vec<_> = identities
        .split_whitespace()
        .map(|id| format!("net:[{id}]"))
        .collect();
    ensure!(names.len() == 2, "not two namespaces: {identities}");
    let is_one = |text: &str| names.iter().any(|name| text.contains(name.as_str()));
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mut count = mounts.lines().filter(|line| is_one(line)).count();
    for process in fs::read_dir("/proc")?.flatten() {
        let process = process.path();
        let descriptors = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        // An entry that cannot be read is no process, or one that has just ended.
        count += descriptors
            .map(|entry| entry.path())
            .chain([process.join("ns/net")])
            .filter_map(|link| fs::read_link(link).ok())
            .filter(|target| is_one(&target.to_string_lossy()))
            .count();
    }
    Ok(count)
}

//! `weir doctor` on the command line: output, exit codes, and that `--undo` restores the old state
//! whenever `--fix` ends.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::netns;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::bench::NamedLab;
use crate::{Test, failure, output, skip, success, tests, until, weir};

pub fn trials() -> Vec<Test> {
    tests![
        findings_set_the_exit_code,
        a_sys_mounted_by_ip_netns_is_not_the_hosts,
        an_unknown_device_is_an_error,
        every_check_is_listed_and_explained,
        an_ordinary_user_sees_the_unchecked_checks,
        a_fix_is_applied_and_undone,
        nothing_is_changed_without_consent,
        the_question_is_asked_on_a_terminal,
        a_setting_changed_since_is_kept,
        a_fix_of_another_namespace_is_kept,
        killed_before_a_step_there_is_nothing_to_undo,
        killed_after_a_step_it_is_undone,
        a_failed_step_keeps_those_before_it,
        a_second_copy_does_not_wait,
        an_empty_journal_has_nothing_to_undo,
        an_invalid_journal_is_refused,
        a_watch_tells_what_appears_and_what_goes,
        a_watch_ends_by_a_signal_at_once,
    ]
}

const SETTING: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// A network namespace with a bridge whose packets traverse iptables, and a directory for the
/// journal.
struct Patient {
    namespace: OwnedFd,
    directory: PathBuf,
}

impl Drop for Patient {
    fn drop(&mut self) {
        // A failure leaves a temporary directory.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Patient {
    fn new(test: &str) -> Result<Self> {
        let name = format!("weir-doctor-{test}-{}", std::process::id());
        let patient = Self {
            namespace: namespace_with_bridge()?,
            directory: std::env::temp_dir().join(name),
        };
        fs::create_dir_all(patient.directory.join("bin"))?;
        if !netns::run_in(patient.namespace.as_fd(), || -> Result<_> {
            Ok(fs::exists(SETTING)?)
        })? {
            return Err(skip("br_netfilter is not loaded: modprobe br_netfilter"));
        }
        run_in(
            patient.namespace.as_fd(),
            "sh",
            &["-c", &format!("for f in {SETTING}; do echo 1 > $f; done")],
        )?;
        Ok(patient)
    }

    /// `weir doctor` in the namespace.
    fn doctor(&self, arguments: &[&str]) -> Command {
        self.enter(weir().arg("doctor").args(arguments))
    }

    /// The same command in the namespace, with the journal in the directory.
    fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        let fd = self.namespace.as_raw_fd();
        inside.arg(format!("--net=/proc/{}/fd/{fd}", std::process::id()));
        inside.arg(command.get_program()).args(command.get_args());
        inside.env("WEIR_STATE_DIR", self.directory.join("state"));
        inside.stdin(Stdio::null());
        inside
    }

    fn setting(&self) -> Result<String> {
        let text = netns::run_in(self.namespace.as_fd(), || -> Result<_> {
            Ok(fs::read_to_string(SETTING)?)
        })?;
        Ok(text.trim().to_owned())
    }

    fn ensure_setting(&self, value: &str) -> Result<()> {
        let setting = self.setting()?;
        ensure!(setting == value, "{SETTING} is {setting}, not {value}");
        Ok(())
    }

    fn fixed(test: &str) -> Result<Self> {
        let patient = Self::new(test)?;
        success(&mut patient.doctor(&["--fix", "bridge-netfilter", "--yes"]))?;
        patient.ensure_setting("0")?;
        Ok(patient)
    }

    fn journal(&self) -> PathBuf {
        self.directory.join("state/doctor/journal.json")
    }

    fn entries(&self) -> Result<Vec<Value>> {
        let journal: Value = serde_json::from_slice(&fs::read(self.journal())?)?;
        Ok(journal["entries"].as_array().cloned().unwrap_or_default())
    }

    /// Adds a program to the directory `bin`, which scripts of [`Self::shell`] have as `$BIN`.
    fn program(&self, name: &str, script: &str) -> Result<()> {
        let path = self.directory.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
        Ok(fs::set_permissions(
            &path,
            fs::Permissions::from_mode(0o755),
        )?)
    }

    /// A shell in a mount namespace without bpffs at /sys/fs/bpf. `$weir` is the program.
    fn shell(&self, script: &str) -> Command {
        let covered = "mount -t tmpfs none /sys/fs/bpf && weir=\"$0\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", &format!("{covered}; {script}")]);
        unshare.arg(env!("CARGO_BIN_EXE_weir"));
        let mut shell = self.enter(&unshare);
        shell.env("BIN", self.directory.join("bin"));
        shell.env("HERE", &self.directory);
        shell
    }
}

/// A network namespace with a bridge.
pub fn namespace_with_bridge() -> Result<OwnedFd> {
    let namespace = netns::create()?;
    netns::disable_ipv6(namespace.as_fd())?;
    run_in(
        namespace.as_fd(),
        "ip",
        &["link", "add", "br0", "type", "bridge"],
    )?;
    Ok(namespace)
}

/// Runs a command inside a network namespace that must succeed.
pub fn run_in(namespace: BorrowedFd<'_>, program: &str, arguments: &[&str]) -> Result<String> {
    netns::run_in(namespace, || success(Command::new(program).args(arguments)))
}

/// The exit code and the standard output.
fn exit_and_output(command: &mut Command) -> Result<(Option<i32>, String)> {
    let output = output(command)?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

fn ensure_contains(text: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(text.contains(word), "no '{word}' in: {text}");
    }
    Ok(())
}

fn findings_set_the_exit_code() -> Result<()> {
    let patient = Patient::new("exit")?;
    let (code, text) = exit_and_output(&mut patient.doctor(&[]))?;
    ensure!(code == Some(1), "findings, but exit code {code:?}: {text}");
    ensure_contains(
        &text,
        &[
            "bridge-netfilter",
            SETTING,
            "sysctl -w",
            "undo",
            "Not checked:",
        ],
    )?;
    let (code, text) = exit_and_output(&mut patient.doctor(&["--json"]))?;
    ensure!(code == Some(1), "exit code {code:?}");
    let report: Value = serde_json::from_str(&text)?;
    let findings = report["findings"].as_array().context("no findings")?;
    let found = findings.iter().find(|it| it["id"] == "bridge-netfilter");
    let found = found.with_context(|| format!("not found: {report}"))?;
    ensure!(found["evidence"][0]["source"] == SETTING && found["evidence"][0]["value"] == "1");
    ensure!(
        found["fix"]["undo"][0] == "sysctl -w net.bridge.bridge-nf-call-iptables=1"
            || found["fix"]["undo"]
                .as_array()
                .is_some_and(|it| it.len() > 1),
        "{found}"
    );
    // Settings of the initial namespace cannot be checked in another.
    let unchecked = report["unchecked"].as_array().context("no list")?;
    ensure!(unchecked.iter().any(|it| it["id"] == "bpf-jit"), "{report}");
    Ok(())
}

fn a_sys_mounted_by_ip_netns_is_not_the_hosts() -> Result<()> {
    let lab = NamedLab::up("doctor")?;
    let (_, text) = exit_and_output(&mut lab.weir(&["doctor", "--json"]))?;
    let report: Value = serde_json::from_str(&text)?;
    let unchecked = report["unchecked"].as_array().context("no list")?;
    let bpffs = unchecked.iter().find(|it| it["id"] == "bpffs");
    let bpffs = bpffs.with_context(|| format!("it was judged: {report}"))?;
    ensure_contains(&bpffs["reason"].to_string(), &["nsenter", &lab.netns()])
}

fn an_unknown_device_is_an_error() -> Result<()> {
    let text = failure(weir().args(["doctor", "--dev", "weir-none"]), 2)?;
    ensure_contains(&text, &["weir-none", "ip link"])?;
    for wrong in [
        &["--explain", "x", "--undo"][..],
        &["--yes"],
        &["--force"],
        &["--fix"],
        &["--json", "--undo"],
        &["--watch", "--undo"],
        &["--watch", "0"],
        &["--dev", "lo", "--undo"],
    ] {
        failure(weir().arg("doctor").args(wrong), 2)?;
    }
    Ok(())
}

fn every_check_is_listed_and_explained() -> Result<()> {
    let list = success(weir().args(["doctor", "--list"]))?;
    let ids: Vec<_> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    ensure!(ids.contains(&"bpf-jit"), "{list}");
    for id in ids {
        let text = success(weir().args(["doctor", "--explain", id]))?;
        ensure_contains(&text, &[id, "Source: "])?;
    }
    let text = failure(weir().args(["doctor", "--explain", "jit"]), 2)?;
    ensure_contains(&text, &["there is no check 'jit'", "bpf-jit"])?;
    let text = failure(weir().args(["doctor", "--fix", "nothing-like-it"]), 2)?;
    ensure_contains(&text, &["there is no check"])?;
    Ok(())
}

/// The uid of nobody (`overflowuid`).
const NOBODY: u32 = 65534;

fn an_ordinary_user_sees_the_unchecked_checks() -> Result<()> {
    // Nobody may lack access to the build directory.
    let copy = std::env::temp_dir().join(format!("weir-nobody-{}", std::process::id()));
    fs::copy(env!("CARGO_BIN_EXE_weir"), &copy)?;
    let result = as_nobody(&copy);
    fs::remove_file(&copy)?;
    result
}

fn as_nobody(weir: &Path) -> Result<()> {
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new(weir);
        command
            .arg("doctor")
            .args(arguments)
            .uid(NOBODY)
            .gid(NOBODY);
        command.stdin(Stdio::null()).current_dir("/");
        command
    };
    let (code, text) = exit_and_output(&mut nobody(&["--json"]))?;
    ensure!(matches!(code, Some(0 | 1)), "exit code {code:?}: {text}");
    let report: Value = serde_json::from_str(&text)?;
    let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
    ensure!(!list("ok").is_empty(), "nothing could be checked: {report}");
    let reason = |id: &str| {
        let of_id = list("unchecked").into_iter().find(|it| it["id"] == id);
        of_id.map(|it| it["reason"].to_string()).unwrap_or_default()
    };
    for id in ["capabilities", "kernel-features"] {
        ensure_contains(&reason(id), &["run as root"])?;
    }
    let text = failure(&mut nobody(&["--fix", "capabilities"]), 2)?;
    ensure_contains(&text, &["run as root"])?;
    let text = failure(&mut nobody(&["--undo"]), 2)?;
    ensure_contains(&text, &["run as root"])
}

fn a_fix_is_applied_and_undone() -> Result<()> {
    let patient = Patient::fixed("round-trip")?;
    ensure!(!patient.entries()?.is_empty(), "the journal is empty");
    let (_, text) = exit_and_output(&mut patient.doctor(&["--json"]))?;
    let report: Value = serde_json::from_str(&text)?;
    let fine = report["ok"].as_array().context("no list")?;
    ensure!(
        fine.iter().any(|it| it["id"] == "bridge-netfilter"),
        "{report}"
    );
    // It is not fixed twice.
    let text = success(&mut patient.doctor(&["--fix", "bridge-netfilter", "--yes"]))?;
    ensure_contains(&text, &["nothing to fix"])?;
    let text = success(&mut patient.doctor(&["--undo"]))?;
    ensure_contains(&text, &["undone", "bridge-nf-call-iptables=1"])?;
    patient.ensure_setting("1")?;
    ensure!(patient.entries()?.is_empty(), "the journal still has it");
    Ok(())
}

fn nothing_is_changed_without_consent() -> Result<()> {
    let patient = Patient::new("no-terminal")?;
    let mut fix = patient.doctor(&["--fix", "bridge-netfilter"]);
    let text = failure(&mut fix, 2)?;
    ensure_contains(&text, &["no terminal", "--yes"])?;
    patient.ensure_setting("1")?;
    ensure!(!patient.journal().exists(), "there is a journal");
    Ok(())
}

fn the_question_is_asked_on_a_terminal() -> Result<()> {
    let patient = Patient::new("terminal")?;
    for (answer, code, value) in [("n", 1, "1"), ("", 1, "1"), ("y", 0, "0")] {
        // script(1) gives the doctor a terminal, and passes on its exit code.
        let typed = format!(
            "'{}' doctor --fix bridge-netfilter",
            env!("CARGO_BIN_EXE_weir")
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &typed, "/dev/null"]);
        let mut script = patient.enter(&script);
        let script = script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = script.spawn() else {
            return Err(skip("script(1) is not installed: apt install bsdutils"));
        };
        let mut stdin = child.stdin.take().context("no input")?;
        writeln!(stdin, "{answer}")?;
        let output = child.wait_with_output()?;
        drop(stdin);
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.code() == Some(code),
            "'{answer}': {} {text}",
            output.status
        );
        ensure_contains(&text, &["[y/N]", "bridge-nf-call-iptables=0"])?;
        patient.ensure_setting(value)?;
    }
    Ok(())
}

fn a_setting_changed_since_is_kept() -> Result<()> {
    let patient = Patient::fixed("changed")?;
    // The setting has no third value, so the journal gets another value instead.
    let journal = fs::read_to_string(patient.journal())?;
    ensure_contains(&journal, &["\"set\": \"0\""])?;
    let others = journal.replace("\"set\": \"0\"", "\"set\": \"2\"");
    fs::write(patient.journal(), others)?;
    let (code, text) = exit_and_output(&mut patient.doctor(&["--undo"]))?;
    ensure!(code == Some(1), "exit code {code:?}: {text}");
    ensure_contains(&text, &["kept", "to 0 since", "--force"])?;
    patient.ensure_setting("0")?;
    ensure!(!patient.entries()?.is_empty(), "it was dropped");
    success(&mut patient.doctor(&["--undo", "--force"]))?;
    patient.ensure_setting("1")?;
    ensure!(patient.entries()?.is_empty(), "the journal still has it");
    Ok(())
}

fn a_fix_of_another_namespace_is_kept() -> Result<()> {
    let patient = Patient::fixed("elsewhere")?;
    let other = Patient::new("elsewhere-other")?;
    let undo = |arguments: &[&str]| {
        let mut undo = other.doctor(arguments);
        undo.env("WEIR_STATE_DIR", patient.directory.join("state"));
        undo
    };
    let (code, text) = exit_and_output(&mut undo(&["--undo"]))?;
    ensure!(code == Some(1), "exit code {code:?}: {text}");
    ensure_contains(&text, &["kept", "not this one"])?;
    patient.ensure_setting("0")?;
    ensure!(!patient.entries()?.is_empty(), "it was dropped");
    // After a reboot its namespace is gone, and its setting with it.
    let journal = fs::read_to_string(patient.journal())?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    fs::write(patient.journal(), journal.replace(boot.trim(), "another"))?;
    let text = success(&mut undo(&["--undo"]))?;
    ensure_contains(&text, &["reboot"])?;
    ensure!(patient.entries()?.is_empty(), "the journal still has it");
    patient.ensure_setting("0")
}

/// Kills a doctor while it runs a `mount` that does `first` and then sleeps. Returns the output of
/// `--undo` after that.
fn killed_at_a_mount(test: &str, first: &str) -> Result<String> {
    let patient = Patient::new(test)?;
    patient.program(
        "mount",
        &format!("{first}\n: > \"$HERE/begun\"\nexec sleep 60"),
    )?;
    // All in one mount namespace: the shell kills the doctor once the file `begun` is there.
    let mut shell = patient.shell(
        "PATH=\"$BIN:$PATH\" \"$weir\" doctor --fix bpffs --yes > /dev/null 2>&1 & \
         doctor=$!; \
         while ! [ -e \"$HERE/begun\" ]; do sleep 0.01; done; \
         kill -9 $doctor; wait $doctor; \
         cat \"$HERE/state/doctor/journal.json\" >&2; \
         \"$weir\" doctor --undo && [ \"$(stat -f -c %t /sys/fs/bpf)\" = 1021994 ]",
    );
    let shell = shell
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = shell.spawn()?;
    let mut status = None;
    let ended = until("it ends", || {
        status = child.try_wait()?;
        Ok(status.is_some())
    });
    // The sleep outlives the doctor, and has its output open.
    let group = Pid::from_raw(child.id().cast_signed()).context("no process")?;
    let _ = kill_process_group(group, Signal::KILL);
    let output = child.wait_with_output()?;
    let noted = String::from_utf8_lossy(&output.stderr);
    ended?;
    ensure!(status.is_some_and(|it| it.success()), "{noted}");
    ensure_contains(&noted, &["\"check\": \"bpffs\"", "\"set\": null"])?;
    ensure!(patient.entries()?.is_empty(), "the journal still has it");
    Ok(String::from_utf8(output.stdout)?)
}

fn killed_before_a_step_there_is_nothing_to_undo() -> Result<()> {
    let text = killed_at_a_mount("killed-before", ":")?;
    ensure_contains(&text, &["already restored"])
}

fn killed_after_a_step_it_is_undone() -> Result<()> {
    let mounted = success(
        Command::new("sh").args(["-c", "PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v mount"]),
    )?;
    let text = killed_at_a_mount("killed-after", &format!("{} \"$@\"", mounted.trim()))?;
    ensure_contains(&text, &["undone: umount /sys/fs/bpf"])
}

fn a_failed_step_keeps_those_before_it() -> Result<()> {
    let patient = Patient::new("partial")?;
    patient.program("mount", "echo no such luck >&2; exit 32")?;
    let mut shell = patient
        .shell("PATH=\"$BIN:$PATH\" \"$weir\" doctor --fix bridge-netfilter bpffs --yes 2>&1");
    let (code, text) = exit_and_output(&mut shell)?;
    ensure!(code == Some(1), "exit code {code:?}: {text}");
    ensure_contains(
        &text,
        &[
            "no such luck",
            " done: sysctl -w net.bridge",
            "not done: mount",
            "--undo",
        ],
    )?;
    patient.ensure_setting("0")?;
    let entries = patient.entries()?;
    ensure!(
        !entries.is_empty() && entries.iter().all(|it| it["check"] == "bridge-netfilter"),
        "{entries:?}"
    );
    success(&mut patient.doctor(&["--undo"]))?;
    patient.ensure_setting("1")
}

fn a_second_copy_does_not_wait() -> Result<()> {
    let patient = Patient::fixed("second")?;
    let lock = fs::File::open(patient.directory.join("state/doctor/lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    let text = failure(&mut patient.doctor(&["--undo"]), 2)?;
    ensure_contains(&text, &["another `weir doctor`"])?;
    patient.ensure_setting("0")?;
    // A report changes nothing, so it needs no lock.
    let (code, text) = exit_and_output(&mut patient.doctor(&[]))?;
    ensure!(matches!(code, Some(0 | 1)), "exit code {code:?}: {text}");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock)?;
    success(&mut patient.doctor(&["--undo"]))?;
    patient.ensure_setting("1")
}

fn an_empty_journal_has_nothing_to_undo() -> Result<()> {
    let patient = Patient::new("nothing")?;
    let text = success(&mut patient.doctor(&["--undo"]))?;
    ensure_contains(&text, &["nothing to undo"])
}

fn an_invalid_journal_is_refused() -> Result<()> {
    let patient = Patient::fixed("broken")?;
    let journal = fs::read(patient.journal())?;
    fs::write(patient.journal(), &journal[..journal.len() / 2])?;
    let text = failure(&mut patient.doctor(&["--undo"]), 2)?;
    ensure_contains(&text, &["by hand", "journal.json"])?;
    patient.ensure_setting("0")?;
    fs::write(patient.journal(), journal)?;
    fs::set_permissions(
        patient.directory.join("state/doctor"),
        fs::Permissions::from_mode(0o777),
    )?;
    let text = failure(&mut patient.doctor(&["--undo"]), 2)?;
    ensure_contains(&text, &["writable by others"])?;
    let Some(_) = patient.entries()?.first() else {
        bail!("the journal was emptied");
    };
    Ok(())
}

/// A doctor that watches a namespace; killed on drop.
struct Watching {
    doctor: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It has ended, in most tests.
        let _ = self.doctor.kill();
        let _ = self.doctor.wait();
    }
}

impl Watching {
    fn begin(namespace: BorrowedFd<'_>, arguments: &[&str]) -> Result<Self> {
        let mut doctor = weir();
        doctor.args(["doctor", "--watch"]).args(arguments);
        doctor.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut doctor = netns::spawn(namespace, &mut doctor)?;
        let output = doctor.stdout.take().context("no output")?;
        let output = BufReader::new(output).lines();
        Ok(Self { doctor, output })
    }

    /// Reads up to a line with these words.
    fn wait_for(&mut self, words: &str) -> Result<()> {
        let mut read = Vec::new();
        for line in &mut self.output {
            let line = line?;
            if line.contains(words) {
                return Ok(());
            }
            read.push(line);
        }
        bail!("no line with {words}: {read:?}")
    }

    /// The exit code after this signal, within a time in which no look of a minute ends.
    fn end(&mut self, signal: Signal) -> Result<Option<i32>> {
        let pid = Pid::from_child(&self.doctor);
        kill_process(pid, signal)?;
        let mut status = None;
        until("it ends", || {
            status = self.doctor.try_wait()?;
            Ok(status.is_some())
        })?;
        Ok(status.context("it goes on")?.code())
    }
}

fn a_watch_tells_what_appears_and_what_goes() -> Result<()> {
    let namespace = netns::create()?;
    netns::disable_ipv6(namespace.as_fd())?;
    let ip = |words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        run_in(namespace.as_fd(), "ip", &words)
    };
    ip("link add v0 type veth peer name v1")?;
    let mut watching = Watching::begin(namespace.as_fd(), &["1", "--dev", "v0"])?;
    watching.wait_for("finding")?;
    ip("link set v0 mtu 9000")?;
    watching.wait_for(" appeared")?;
    watching.wait_for("veth-mtu v0: ")?;
    ip("link set v0 mtu 1500")?;
    watching.wait_for(" gone veth-mtu v0: ")?;
    let code = watching.end(Signal::TERM)?;
    ensure!(code == Some(1), "findings, but exit code {code:?}");
    Ok(())
}

fn a_watch_ends_by_a_signal_at_once() -> Result<()> {
    let namespace = netns::create()?;
    // Longer than the wait for its end.
    let mut watching = Watching::begin(namespace.as_fd(), &["3600", "--json"])?;
    // The handler is there once the process is in its first look.
    wait_for_handler(watching.doctor.id())?;
    let code = watching.end(Signal::INT)?;
    ensure!(code == Some(0), "exit code {code:?}");
    ensure!(watching.output.next().is_none(), "half a report");
    Ok(())
}

/// Waits until a process catches SIGINT (`SigCgt` in /proc/PID/status).
pub fn wait_for_handler(pid: u32) -> Result<()> {
    until("it handles SIGINT", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let mut lines = status.lines();
        let caught = lines.find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.context("no SigCgt")?.trim(), 16)?;
        Ok(caught & 1 << (Signal::INT.as_raw() - 1) != 0)
    })
}

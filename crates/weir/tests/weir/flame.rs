//! `weir cost flame`, on the load of a bench.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testkit::Temporary;

use crate::{Test, failure, output, success, tests, until, weir};

pub fn trials() -> Vec<Test> {
    tests![
        the_packet_path_of_a_bench_is_seen,
        the_graph_is_self_contained,
        no_more_than_the_packet_path_is_shown,
        bad_input_is_one_error,
        ctrl_c_writes_the_samples_so_far,
        a_killed_run_leaves_no_program,
        without_permission_the_error_names_the_capability,
        hidden_symbols_are_a_note,
    ]
}

fn flame(words: &[&str]) -> Command {
    let mut command = weir();
    command.args(["cost", "flame"]).args(words);
    command
}

/// A process that ends with the test.
struct Started(Child);

impl Started {
    fn new(command: &mut Command) -> Result<Self> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok(Self(child.context("cannot run weir")?))
    }

    /// A shell that never stops.
    fn busy() -> Result<Self> {
        Self::new(Command::new("sh").args(["-c", "while :; do :; done"]))
    }

    /// A bench that keeps the load's CPU and another busy for longer than any test.
    fn bench() -> Result<Self> {
        Self::new(weir().args([
            "bench",
            "l2fwd",
            "--lab",
            "--engine",
            "xsk",
            "--mode",
            "drv",
            "--rounds",
            "1",
            "--seconds",
            "120",
        ]))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.0.id().cast_signed()).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // The children of a bench end with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn file(directory: &Temporary, name: &str) -> String {
    directory.join(name).to_string_lossy().into_owned()
}

/// The stacks, each with its samples.
fn folded(text: &str) -> Result<Vec<(Vec<&str>, u64)>> {
    let lines = text.lines().map(|line| {
        let (stack, samples) = line.rsplit_once(' ').context("no number of samples")?;
        Ok((stack.split(';').collect(), samples.parse()?))
    });
    lines.collect()
}

fn setting(name: &str) -> String {
    fs::read_to_string(format!("/proc/sys/net/core/{name}"))
        .unwrap_or_default()
        .trim()
        .into()
}

fn the_packet_path_of_a_bench_is_seen() -> Result<()> {
    let _bench = Started::bench()?;
    let mut seen = String::new();
    // The load, the softirq of the receiving side, and the engine's transmit.
    let mut expected = vec![
        "bpf_test_run_xdp_live",
        "net_rx_action",
        "veth_poll",
        "__xsk_map_redirect",
        "xsk_sendmsg",
    ];
    if setting("bpf_jit_kallsyms") == "1" && setting("bpf_jit_harden") == "0" {
        expected.push("_load"); // bpf_prog_TAG_load
    }
    until("all of the bench's path is seen", || {
        seen = success(&mut flame(&["--seconds", "1"]))?;
        Ok(expected.iter().all(|function| seen.contains(function)))
    })
    .with_context(|| format!("{expected:?} in {seen}"))?;
    let stacks = folded(&seen)?;
    let order = |frames: &[&str]| {
        let at = |name| frames.iter().position(|frame| *frame == name);
        at("net_rx_action") < at("veth_poll") && at("net_rx_action").is_some()
    };
    ensure!(stacks.iter().any(|(it, _)| order(it)), "{seen}");
    let addresses = stacks.iter().flat_map(|(frames, _)| frames);
    let nameless = addresses.filter(|frame| frame.starts_with("0x") || **frame == "[kernel]");
    ensure!(nameless.count() == 0, "{seen}");
    Ok(())
}

fn the_graph_is_self_contained() -> Result<()> {
    let directory = Temporary::new("graph")?;
    let (graph, stacks) = (file(&directory, "a.svg"), file(&directory, "a.txt"));
    let files = ["--output", &graph, "--folded", &stacks];
    let short = ["--seconds", "0.5", "--all", "--title", "a < b & c"];
    let stdout = success(flame(&short).args(files))?;
    ensure!(stdout.is_empty(), "{stdout}");
    let text = fs::read_to_string(&graph)?;
    let svg = roxmltree::Document::parse(&text).context("not well-formed")?;
    for node in svg.descendants() {
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            ensure!(name != "href" && name != "src", "{name}={value}");
            ensure!(!value.contains("url("), "{name}={value}");
        }
    }
    // Only the name of the format itself looks like an address.
    ensure!(text.matches("://").count() == 1, "{text}");
    ensure!(
        !text.contains("@import") && !text.contains("url("),
        "{text}"
    );
    ensure!(text.contains("a &lt; b &amp; c"), "{text}");
    let total: u64 = folded(&fs::read_to_string(&stacks)?)?
        .iter()
        .map(|(_, samples)| samples)
        .sum();
    ensure!(total > 0, "no samples");
    let root = format!("all ({total} samples, 100.00%)");
    ensure!(text.contains(&root), "no {root} in {text}");
    ensure!(
        fs::read_dir(directory.path())?.count() == 2,
        "something is left"
    );

    // An existing file is refused before sampling.
    let long = ["--seconds", "3600", "--output", &graph];
    let stderr = failure(&mut flame(&long), 1)?;
    ensure!(stderr.contains("--force"), "{stderr}");
    success(flame(&["--seconds", "0.1", "--force"]).args(files))?;
    Ok(())
}

/// On a CPU that is busy with other work.
fn no_more_than_the_packet_path_is_shown() -> Result<()> {
    let _busy = Started::busy()?;
    let shell = |words: &[&str]| -> Result<u64> {
        let text = success(flame(&["--seconds", "0.5"]).args(words))?;
        let of_shell = |frames: &Vec<&str>| frames[0] == "sh" && frames.len() == 2;
        let stacks = folded(&text)?;
        let stacks = stacks.iter().filter(|(frames, _)| of_shell(frames));
        Ok(stacks.map(|(_, samples)| samples).sum())
    };
    let all = shell(&["--all"])?;
    ensure!(all > 0, "no sample of a shell that never stops");
    ensure!(shell(&[])? == 0, "user code is no packet path");
    Ok(())
}

fn bad_input_is_one_error() -> Result<()> {
    for (words, code, cause) in [
        (&["--seconds", "0"][..], 2, "--seconds"),
        (&["--frequency", "0"], 2, "--frequency"),
        (&["--cpu", "x"], 2, "such as 0-3,5"),
        (&["--title", "x"], 2, "--output"),
        (
            &["--cpu", "1023"],
            1,
            "CPU 1023 is offline or does not exist",
        ),
        (&["--cpu", ""], 1, "no CPU"),
        (&["--output", "/nonexistent/a.svg"], 1, "/nonexistent/a.svg"),
        (
            &["--folded", "/dev/null", "--force"],
            1,
            "not a regular file",
        ),
    ] {
        let stderr = failure(&mut flame(words), code)?;
        ensure!(stderr.contains(cause), "{words:?}: {stderr}");
        let errors = stderr.matches("error:").count();
        ensure!(errors == 1, "{words:?}: {stderr}");
    }
    Ok(())
}

/// The BPF programs of a process.
fn programs_of(process: u32) -> Result<Vec<u32>> {
    let mut programs = Vec::new();
    for descriptor in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        // Some are closed meanwhile.
        let about = fs::read_to_string(descriptor?.path()).unwrap_or_default();
        let ids = about
            .lines()
            .filter_map(|line| line.strip_prefix("prog_id:"));
        programs.extend(ids.filter_map(|id| id.trim().parse::<u32>().ok()));
    }
    Ok(programs)
}

/// A run that has begun to sample, and its programs.
fn running(words: &[&str]) -> Result<(Started, Vec<u32>)> {
    let started = Started::new(&mut flame(words))?;
    let mut programs = Vec::new();
    until("it samples", || {
        programs = programs_of(started.0.id())?;
        Ok(!programs.is_empty())
    })?;
    Ok((started, programs))
}

fn ctrl_c_writes_the_samples_so_far() -> Result<()> {
    let directory = Temporary::new("interrupt")?;
    let _busy = Started::busy()?;
    let graph = file(&directory, "a.svg");
    // Nothing outside shows that it samples; a loaded machine begins later.
    for milliseconds in [300, 3_000, 30_000] {
        let (mut started, _) = running(&["--seconds", "600", "--all", "--output", &graph])?;
        thread::sleep(Duration::from_millis(milliseconds));
        started.signal(Signal::INT)?;
        let code = started.0.wait()?.code();
        ensure!(code == Some(130), "exit code {code:?}");
        let text = fs::read_to_string(&graph)?;
        if text.contains("<title>all (") && !text.contains("<title>all (0 samples") {
            return Ok(());
        }
    }
    bail!("no samples: {}", fs::read_to_string(&graph)?)
}

fn a_killed_run_leaves_no_program() -> Result<()> {
    let directory = Temporary::new("killed")?;
    let graph = file(&directory, "a.svg");
    let (mut started, programs) = running(&["--seconds", "600", "--output", &graph])?;
    started.signal(Signal::KILL)?;
    started.0.wait()?;
    until("its programs are gone", || {
        let left = weir::bpf::program_ids();
        Ok(!left.iter().any(|id| programs.contains(id)))
    })?;
    ensure!(
        fs::read_dir(directory.path())?.count() == 0,
        "a file is left"
    );
    Ok(())
}

/// The id of an ordinary user.
const NOBODY: u32 = 65534;

fn without_permission_the_error_names_the_capability() -> Result<()> {
    // The build directory may be closed to other users, so the program is copied.
    let directory = Temporary::new("nobody")?;
    let program = file(&directory, "weir");
    fs::copy(env!("CARGO_BIN_EXE_weir"), &program)?;
    let mut command = Command::new(&program);
    command.args(["cost", "flame", "--seconds", "60"]);
    let stderr = failure(command.uid(NOBODY).gid(NOBODY), 1)?;
    ensure!(stderr.contains("cannot sample CPU"), "{stderr}");
    ensure!(
        stderr.contains("this needs CAP_PERFMON: run as root"),
        "{stderr}"
    );
    Ok(())
}

/// An ordinary user with the capabilities for sampling, without the one for /proc/kallsyms.
fn hidden_symbols_are_a_note() -> Result<()> {
    let directory = Temporary::new("hidden")?;
    let program = file(&directory, "weir");
    fs::copy(env!("CARGO_BIN_EXE_weir"), &program)?;
    let capabilities = "+perfmon,+bpf,+net_admin";
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(format!("--inh-caps={capabilities}"))
        .arg(format!("--ambient-caps={capabilities}"))
        .args([&program, "cost", "flame", "--seconds", "0.5"]);
    let output = output(&mut command)?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{stderr}");
    ensure!(stderr.contains("kernel.kptr_restrict"), "{stderr}");
    ensure!(!stderr.contains("NET_RX"), "{stderr}");
    let stdout = String::from_utf8(output.stdout)?;
    ensure!(stdout.contains(";[kernel]"), "{stdout}");
    ensure!(
        !stdout.contains("ffffffff"),
        "an address is shown: {stdout}"
    );
    Ok(())
}

//! `weir bench`: whole runs, in labs.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hostnet::netns;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{Skip, Temporary};
use weir::engine::bench::Bench;
use weir::lab::{Lab, LabConfig};
use xsk::Feature;

use crate::{Test, a_cpu, failure, packets, success, tests, tests_alone, until, weir};

pub fn trials() -> Vec<Test> {
    let deep = tests![long_frames_are_moved_whole];
    // One at a time: they keep two CPUs busy, and the kernel needs a CPU to take a socket apart.
    let alone = tests_alone![
        the_counts_of_every_bench_add_up_with_every_engine,
        a_split_socket_forwards_every_packet,
        frames_of_two_lengths_are_forwarded,
    ];
    let others = tests![
        the_table_is_for_people,
        zero_copy_is_refused_with_its_reason,
        bad_input_is_one_error,
        a_page_is_written_whole,
        a_device_of_this_host_is_benched,
        an_xdp_program_on_the_device_is_named,
        ctrl_c_prints_what_is_finished,
        a_killed_bench_leaves_nothing,
        man_pages_and_completions_are_printed,
    ];
    let deep = deep.into_iter().map(Test::deep);
    deep.chain(alone).chain(others).collect()
}

/// The shortest bench of one AF_PACKET engine.
const SHORT: [&str; 7] = [
    "--lab",
    "--engine",
    "packet-v3",
    "--rounds",
    "1",
    "--seconds",
    "0.1",
];

fn bench(which: &str, words: &[&str]) -> Command {
    let mut command = weir();
    command.arg("bench").arg(which).args(words);
    command
}

fn json(command: &mut Command) -> Result<Value> {
    let text = success(command.args(["--format", "json"]))?;
    serde_json::from_str(&text).context("the report is not JSON")
}

pub fn array<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("no {key}"))
}

fn the_counts_of_every_bench_add_up_with_every_engine() -> Result<()> {
    let words = "--lab --mode drv --rounds 1 --seconds 0.1";
    let words: Vec<_> = words.split(' ').collect();
    let report = json(&mut bench("all", &words))?;
    ensure!(array(&report, "failed")?.is_empty(), "{report}");
    let runs = array(&report, "runs")?;
    let engines = 4 - array(&report, "unavailable")?.len();
    for bench in Bench::all() {
        let name = Value::from(bench.to_string());
        let of_bench = runs.iter().filter(|run| run["bench"] == name);
        ensure!(of_bench.count() == engines, "{bench}: {report}");
    }
    for run in runs {
        ensure!(run["check"]["ok"] == true, "{run}");
        ensure!(run["packets"].as_u64() > Some(0), "{run}");
        ensure!(run["pps"].as_f64() > Some(0.0), "{run}");
        for defect in ["corrupted", "duplicates", "reordered"] {
            ensure!(run[defect] == 0, "{defect}: {run}");
        }
    }
    ensure!(report["interrupted"] == false, "{report}");
    Ok(())
}

fn a_split_socket_forwards_every_packet() -> Result<()> {
    let words = "--lab --engine xsk,xsk-halves --mode skb,drv --wait spin,adaptive --rounds 1 --seconds 0.1";
    let words: Vec<_> = words.split(' ').collect();
    let report = json(&mut bench("l2fwd", &words))?;
    ensure!(array(&report, "failed")?.is_empty(), "{report}");
    ensure!(report["host"]["sender_cpu"].is_u64(), "{report}");
    let runs = array(&report, "runs")?;
    let halves = runs.iter().filter(|run| run["engine"] == "xsk-halves");
    ensure!(halves.count() == 4, "{report}");
    for run in runs {
        ensure!(run["check"]["ok"] == true, "{run}");
        let sent = run["check"]["counted"]["sent"].as_u64();
        ensure!(sent > Some(0), "{run}");
    }
    Ok(())
}

/// The shortest frames that take several chunks, and the longest: each engine, its receivers reading every
/// payload.
fn long_frames_are_moved_whole() -> Result<()> {
    Feature::Fragments
        .probe()
        .map_err(|missing| Skip::new(missing.to_string()))?;
    for (size, mode, batch) in [("3521", "drv", "1"), ("9000", "skb", "64")] {
        let words = ["--lab", "--rounds", "1", "--seconds", "0.1", "--verify"];
        let sizes = ["--size", size, "--mode", mode, "--batch", batch];
        let report = json(bench("all", &words).args(sizes))?;
        ensure!(array(&report, "failed")?.is_empty(), "{size}: {report}");
        ensure!(array(&report, "refused")?.is_empty(), "{size}: {report}");
        let engines = 4 - array(&report, "unavailable")?.len();
        let runs = array(&report, "runs")?;
        ensure!(
            runs.len() == Bench::all().len() * engines,
            "{size}: {report}"
        );
        for run in runs {
            ensure!(run["check"]["ok"] == true, "{size}: {run}");
            ensure!(run["packets"].as_u64() > Some(0), "{size}: {run}");
        }
    }
    let paced = [
        "--engine", "xsk", "--mode", "drv", "--size", "9000", "--pps", "2k",
    ];
    let report = json(bench("rxdrop", &SHORT[3..]).args(["--lab"]).args(paced))?;
    let pps = array(&report, "runs")?[0]["pps"]
        .as_f64()
        .unwrap_or_default();
    // A slow machine sends less, none more.
    ensure!(pps > 0.0 && pps < 3000.0, "{report}");
    Ok(())
}

/// On a device of this host frames differ, and each has chunks of its own. Those of the other length count as
/// corrupt to a reader, and are forwarded all the same.
fn frames_of_two_lengths_are_forwarded() -> Result<()> {
    Feature::Fragments
        .probe()
        .map_err(|missing| Skip::new(missing.to_string()))?;
    let lab = Lab::anonymous(&LabConfig {
        mtu: 9000,
        ..LabConfig::default()
    })?;
    let mut load = weir();
    load.args(["bench-load", "--dev", &lab.load().device, "--size", "9000"]);
    load.args(["--cpu", &a_cpu()?.to_string(), "--pps", "60k"]);
    let _load = Killed(lab.load().spawn(load.stdout(Stdio::null()))?);
    let words = ["--dev", &lab.app().device, "--engine", "xsk,libxdp"];
    let short = ["--mode", "drv", "--size", "9000", "--rounds", "1"];
    // A second load would leave that CPU to nothing else: between its packets a load does not sleep.
    let others = packets(lab.load())?;
    let is_over = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // A full queue costs one packet.
                let _ = others.send(&[0; 2000]);
                thread::sleep(Duration::from_micros(100));
            }
        });
        let report = netns::run_in(lab.app().netns(), || {
            json(
                bench("l2fwd", &words)
                    .args(short)
                    .args(["--seconds", "0.5"]),
            )
        });
        is_over.store(true, Ordering::Relaxed);
        report
    })?;
    ensure!(array(&report, "failed")?.is_empty(), "{report}");
    let engines = 2 - array(&report, "unavailable")?.len();
    let runs = array(&report, "runs")?;
    ensure!(runs.len() == engines, "{report}");
    for run in runs {
        let counted = |key| run["check"]["counted"][key].as_u64().unwrap_or(0);
        let (received, corrupted) = (counted("received"), counted("corrupted"));
        ensure!(0 < corrupted && corrupted < received, "one length: {run}");
    }
    Ok(())
}

/// A process that is ended when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn the_table_is_for_people() -> Result<()> {
    let text = success(&mut bench("rxdrop", &SHORT))?;
    for word in ["AF_PACKET", "V3", "rxdrop", "Mpps", "CPU"] {
        ensure!(text.contains(word), "no {word} in {text}");
    }
    ensure!(text.is_ascii(), "{text}");
    ensure!(text.lines().all(|line| line.len() <= 100), "{text}");
    Ok(())
}

fn zero_copy_is_refused_with_its_reason() -> Result<()> {
    let words = ["--engine", "xsk", "--mode", "zc", "--rounds", "2"];
    let report = json(bench("txpush", &["--lab"]).args(words))?;
    let refused = array(&report, "refused")?;
    ensure!(refused.len() == 1, "{report}");
    ensure!(refused[0]["errno"] == libc::EOPNOTSUPP, "{report}");
    let reason = refused[0]["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("EOPNOTSUPP"), "{report}");
    ensure!(array(&report, "runs")?.is_empty(), "{report}");
    Ok(())
}

fn bad_input_is_one_error() -> Result<()> {
    let unwritable = "/nonexistent/report.html";
    for (words, code, cause) in [
        (&["--rounds", "1"][..], 2, "--lab"),
        (&["--lab", "--dev", "lo"], 2, "--dev"),
        (&["--lab", "--engine", "dpdk"], 2, "dpdk"),
        (&["--lab", "--mode", "fast"], 2, "fast"),
        (&["--lab", "--size", "63"], 2, "63"),
        (&["--lab", "--size", "9001"], 2, "9001"),
        (&["--lab", "--rounds", "0"], 2, "0"),
        (&["--lab", "--seconds", "0"], 2, "seconds"),
        (&["--dev", "weir-none"], 1, "weir-none"),
        (&["--dev", "lo", "--queue", "99"], 1, "no queue 99"),
        (&["--lab", "--app-cpu", "1023"], 1, "CPU 1023"),
        (&["--lab", "--html", unwritable], 1, unwritable),
        (
            &["--lab", "--html", "/dev/null", "--force"],
            1,
            "not a regular file",
        ),
    ] {
        let stderr = failure(&mut bench("rxdrop", words), code)?;
        ensure!(stderr.contains(cause), "{words:?}: {stderr}");
        let errors = stderr.matches("error:").count();
        ensure!(errors == 1, "{words:?}: {stderr}");
    }
    Ok(())
}

fn a_page_is_written_whole() -> Result<()> {
    let directory = Temporary::new("page")?;
    let page = directory.join("report.html");
    let path = page.to_string_lossy().into_owned();
    success(bench("rxdrop", &SHORT).args(["--html", &path]))?;
    let html = fs::read_to_string(&page)?;
    ensure!(html.starts_with("<!DOCTYPE html>"), "{html}");
    ensure!(html.trim_end().ends_with("</html>"), "{html}");
    ensure!(html.contains("weir bench rxdrop --lab"), "{html}");

    let stderr = failure(bench("rxdrop", &SHORT).args(["--html", &path]), 1)?;
    ensure!(stderr.contains("--force"), "{stderr}");
    success(bench("rxdrop", &SHORT).args(["--html", &path, "--force"]))?;
    ensure!(
        fs::read_dir(directory.path())?.count() == 1,
        "something is left"
    );
    Ok(())
}

/// A lab with a name, which is taken down at the end: its devices are real ones for a bench that
/// is started inside.
pub struct NamedLab {
    name: String,
}

impl NamedLab {
    pub fn up(purpose: &str) -> Result<Self> {
        let name = format!("bench-{purpose}-{}", std::process::id());
        success(weir().args(["lab", "up", &name]))?;
        Ok(Self { name })
    }

    /// The application's side, as ip-netns(8) knows it.
    pub fn netns(&self) -> String {
        format!("weir-{}-app", self.name)
    }

    /// `weir` on the application's side.
    pub fn weir(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.netns()])
            .arg(env!("CARGO_BIN_EXE_weir"))
            .args(words);
        command
    }
}

impl Drop for NamedLab {
    fn drop(&mut self) {
        // A test that failed for another reason should report that one.
        let _ = weir().args(["lab", "down", &self.name]).output();
    }
}

fn a_device_of_this_host_is_benched() -> Result<()> {
    let lab = NamedLab::up("dev")?;
    let words = ["bench", "txpush", "--dev", "weir0", "--engine", "packet-v2"];
    let short = ["--rounds", "1", "--seconds", "0.1", "--format", "json"];
    let output = lab.weir(&words).args(short).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    ensure!(stderr.contains("on weir0"), "not announced: {stderr}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let run = &array(&report, "runs")?[0];
    ensure!(run["packets"].as_u64() > Some(0), "{run}");
    ensure!(!array(&run["check"], "not_checked")?.is_empty(), "{run}");
    ensure!(report["host"]["load_cpu"].is_null(), "{report}");

    // Nobody sends, so there is nothing to receive.
    let words = ["bench", "rxdrop", "--dev", "weir0", "--engine", "packet-v2"];
    let stderr = failure(lab.weir(&words).args(short), 1)?;
    ensure!(stderr.contains("no packet came"), "{stderr}");
    Ok(())
}

fn an_xdp_program_on_the_device_is_named() -> Result<()> {
    let lab = NamedLab::up("way")?;
    let words = ["bench", "txpush", "--dev", "weir0", "--engine", "xsk"];
    let long = ["--mode", "drv", "--rounds", "1", "--seconds", "60"];
    let mut first = Started::new(lab.weir(&words).args(long))?;
    until("the first bench has its program in place", || {
        let status = success(weir().args(["lab", "status", "--json"]))?;
        let status: Value = serde_json::from_str(&status)?;
        let labs = array(&status, "labs")?;
        let ours = labs.iter().find(|it| it["name"] == lab.name);
        Ok(ours.is_some_and(|it| !it["app"]["xdp_program"].is_null()))
    })?;
    let second = lab.weir(&words).args(long).output()?;
    first.end()?;
    let stderr = String::from_utf8_lossy(&second.stderr);
    ensure!(second.status.code() == Some(1), "{stderr}");
    ensure!(stderr.contains("XDP program"), "{stderr}");
    ensure!(stderr.contains("name xsk_redirect"), "{stderr}");
    Ok(())
}

/// A `weir` that runs while the test does something else.
pub struct Started {
    pub child: Child,
}

impl Started {
    pub fn new(command: &mut Command) -> Result<Self> {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Self { child })
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Its output, once it has ended.
    pub fn output(mut self) -> Result<Output> {
        let mut output = Output {
            status: ExitStatus::default(),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        let pipe = "its output was taken";
        self.child
            .stdout
            .take()
            .context(pipe)?
            .read_to_end(&mut output.stdout)?;
        self.child
            .stderr
            .take()
            .context(pipe)?
            .read_to_end(&mut output.stderr)?;
        output.status = self.child.wait()?;
        Ok(output)
    }

    /// Its exit code, or `None` if a signal ended it.
    fn end(&mut self) -> Result<Option<i32>> {
        self.signal(Signal::INT)?;
        Ok(self.child.wait()?.code())
    }

    /// The processes it has started.
    pub fn children(&self) -> Result<Vec<i32>> {
        let pid = self.child.id();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(list
            .split_whitespace()
            .filter_map(|it| it.parse().ok())
            .collect())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ctrl_c_prints_what_is_finished() -> Result<()> {
    let words = ["--lab", "--engine", "packet-v2", "--seconds", "0.1"];
    let mut started =
        Started::new(bench("rxdrop", &words).args(["--rounds", "1000", "--format", "json"]))?;
    let mut children = Vec::new();
    until("the first run has begun", || {
        children = started.children()?;
        Ok(!children.is_empty())
    })?;
    let first = children.clone();
    until("the first run is over", || {
        children = started.children()?;
        Ok(!children.is_empty() && !children.iter().any(|pid| first.contains(pid)))
    })?;
    let code = started.end()?;
    ensure!(code == Some(130), "exit code {code:?}");
    let stdout = started.child.stdout.take().context("no output")?;
    let report: Value = serde_json::from_reader(stdout)?;
    ensure!(report["interrupted"] == true, "{report}");
    ensure!(!array(&report, "runs")?.is_empty(), "{report}");
    ensure!(array(&report, "failed")?.is_empty(), "{report}");
    gone(&children)
}

pub fn gone(children: &[i32]) -> Result<()> {
    until("all children are gone", || {
        let there = |pid: &i32| PathBuf::from(format!("/proc/{pid}")).exists();
        Ok(!children.iter().any(there))
    })
}

fn a_killed_bench_leaves_nothing() -> Result<()> {
    let words = [
        "--lab",
        "--engine",
        "xsk",
        "--mode",
        "drv",
        "--seconds",
        "60",
    ];
    let mut started = Started::new(&mut bench("l2fwd", &words))?;
    let mut children = Vec::new();
    until("sink, worker and load run", || {
        children = started.children()?;
        Ok(children.len() == 3)
    })?;
    started.signal(Signal::KILL)?;
    started.child.wait()?;
    gone(&children)?;
    json(&mut bench("rxdrop", &SHORT))?;
    Ok(())
}

fn man_pages_and_completions_are_printed() -> Result<()> {
    let page = success(weir().args(["man", "bench"]))?;
    for word in [".TH weir-bench 1", "rxdrop", "Exit status"] {
        ensure!(page.contains(word), "no {word:?} in {page}");
    }
    success(weir().args(["man", "lab", "up"]))?;
    failure(weir().args(["man", "bench-worker"]), 1)?;

    let directory = Temporary::new("man")?;
    success(weir().arg("man").arg("--dir").arg(directory.path()))?;
    let mut pages: Vec<String> = fs::read_dir(directory.path())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    pages.sort();
    ensure!(pages.contains(&"weir-bench.1".into()), "{pages:?}");
    ensure!(!pages.iter().any(|it| it.contains("worker")), "{pages:?}");

    for shell in ["bash", "zsh", "fish"] {
        let script = success(weir().args(["completions", shell]))?;
        let mut lines = BufReader::new(script.as_bytes()).lines();
        ensure!(
            lines.any(|line| line.is_ok_and(|line| line.contains("packet-v3"))),
            "{shell}: {script}"
        );
    }
    Ok(())
}

//! `weir cost curve`: whole runs, in labs of their own.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use hostnet::cpulist::CpuList;
use rustix::process::Signal;
use serde_json::Value;
use testkit::Temporary;
use weir::bpf::program_ids;
use weir::cost::curve::Path;
use weir::cost::curve::stage::Stage;
use weir::process::stop::StopSignal;
use weir::traffic::frame::{LOAD_MAC, Template, check};
use weir::traffic::programs::receiver_mac;

use crate::bench::Started;
use crate::load::programs_of;
use crate::quiet::when_quiet;
use crate::{Test, a_cpu, failure, packets, skip, success, tests, tests_alone, until, weir};

pub fn trials() -> Vec<Test> {
    let deep = tests_alone![the_numbers_of_every_path_add_up];
    let alone = tests_alone![a_guest_receives_what_its_tap_has];
    let others = tests![
        the_forwarder_knows_stations_and_takes_tags_off,
        a_bridge_sends_nothing_of_its_own,
        files_are_written_whole_and_kept,
        bad_input_is_one_error,
        without_rights_the_error_names_root,
        ctrl_c_prints_what_is_finished,
        a_killed_curve_leaves_nothing,
    ];
    let deep = deep.into_iter().map(Test::deep);
    deep.chain(alone).chain(others).collect()
}

fn curve(words: &[&str]) -> Command {
    let mut command = weir();
    command.args(["cost", "curve"]).args(words);
    command
}

fn array<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("no {key}"))
}

/// CPU time of others, in percent, that the test tolerates: each sample must be of one moment.
const OTHERS: f64 = 5.0;

fn the_numbers_of_every_path_add_up() -> Result<()> {
    when_quiet(&CpuList::allowed()?, OTHERS, measure_every_path)
}

fn measure_every_path() -> Result<()> {
    let words = ["--pps", "10k,100k", "--seconds", "0.3", "--format", "json"];
    let report: Value = serde_json::from_str(&success(&mut curve(&words))?)?;
    ensure!(array(&report, "failed")?.is_empty(), "{report}");
    ensure!(report["interrupted"] == false, "{report}");
    for path in Path::value_variants() {
        for receivers in [1, 2] {
            let is_it =
                |it: &&Value| it["path"] == path.to_string() && it["receivers"] == receivers;
            let missing = array(&report, "unavailable")?.iter().find(is_it);
            if let Some(missing) = missing {
                let may_miss = *path == Path::Ovs || path.unsupported(receivers, false).is_some();
                ensure!(may_miss, "{missing}");
                continue;
            }
            let points: Vec<&Value> = array(&report, "points")?.iter().filter(is_it).collect();
            ensure!(points.len() == 2, "{path}, {receivers}: {report}");
            for point in points {
                add_up(point).with_context(|| format!("{point}"))?;
            }
        }
    }
    // A loose limit: XDP needs about a quarter, weir a little more.
    let ratios: Vec<f64> = array(&report, "ratios")?
        .iter()
        .filter(|it| it["target_pps"] == 100_000)
        .filter_map(|it| it["ns_per_packet_percent_of_bridge"].as_f64())
        .collect();
    ensure!(ratios.len() == 4, "{report}");
    let fewer = ratios.iter().filter(|it| **it < 100.0).count();
    ensure!(fewer >= 2, "weir and XDP take {ratios:?}%");
    Ok(())
}

/// Payloads were checked, and every frame is accounted for.
fn add_up(point: &Value) -> Result<()> {
    let number = |value: &Value| value.as_f64().context("not a number");
    let count = |value: &Value| value.as_u64().context("not a count");
    ensure!(array(point, "violations")?.is_empty(), "violations");
    let drops = &point["drops"];
    let lost = count(&drops["receiver"])? + count(&drops["switch"])?;
    let (sent, received) = (count(&point["sent"])?, count(&point["received"])?);
    ensure!(received > 0 && sent == received + lost, "{sent} sent");
    let seconds = number(&point["seconds"])?;
    ensure!((0.29..5.0).contains(&seconds), "{seconds} s");
    for (figure, most) in [
        ("offered_pps", 150_000.0),
        ("delivered_pps", 150_000.0),
        ("softirq_percent", 100.0),
        ("receivers_percent", 100.0),
        ("softirq_ns_per_packet", 1e6),
        ("total_ns_per_packet", 1e6),
    ] {
        let value = number(&point[figure])?;
        ensure!(value > 0.0 && value <= most, "{figure}: {value}");
    }
    let switch = number(&point["switch_percent"])?;
    let path = point["path"].as_str().context("no path")?;
    let path = Path::from_str(path, false).map_err(anyhow::Error::msg)?;
    let has_switch = path.datapath().forwards_in_user_space();
    ensure!((switch > 0.0) == has_switch, "switch");
    let sum: f64 = ["softirq", "other_softirq", "receivers", "switch"]
        .iter()
        .filter_map(|name| point[format!("{name}_percent")].as_f64())
        .sum();
    ensure!(
        (sum - number(&point["total_percent"])?).abs() < 0.01,
        "{sum}"
    );
    Ok(())
}

fn a_guest_receives_what_its_tap_has() -> Result<()> {
    let guest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guest");
    if !PathBuf::from(guest).join("initramfs.gz").exists() {
        return Err(skip("no guest: build it with `./run guest`"));
    }
    when_quiet(&CpuList::allowed()?, OTHERS, || measure_a_guest(guest))
}

fn measure_a_guest(guest: &str) -> Result<()> {
    let words = ["--guest", guest, "--path", "bridge,stack", "--pps", "10k"];
    let short = ["--receivers", "2", "--seconds", "0.3", "--format", "json"];
    let report: Value = serde_json::from_str(&success(curve(&words).args(short))?)?;
    let point = array(&report, "points")?.first().context("no point")?;
    add_up(point).with_context(|| format!("{point}"))?;
    let missing = array(&report, "unavailable")?.first();
    let missing = missing.context("a guest on a socket?")?;
    ensure!(missing["path"] == "stack", "{missing}");
    Ok(())
}

/// The next frame of a tap; an error if none comes.
fn read(stage: &Stage<'_>, tap: usize) -> Result<Vec<u8>> {
    let mut buffer = [0; 2048];
    let mut length = 0;
    until(&format!("a frame comes to tap{tap}"), || {
        match rustix::io::read(stage.taps[tap].descriptor(), &mut buffer) {
            Ok(read) => length = read,
            Err(rustix::io::Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(length > 0)
    })?;
    Ok(buffer[..length].to_vec())
}

fn is_silent(stage: &Stage<'_>) -> bool {
    let mut buffer = [0; 2048];
    stage
        .taps
        .iter()
        .all(|tap| rustix::io::read(tap.descriptor(), &mut buffer) == Err(rustix::io::Errno::AGAIN))
}

fn tagged(frame: &[u8], tag: [u8; 2]) -> Vec<u8> {
    let mut tagged = frame.to_vec();
    tagged.splice(12..12, [0x81, 0, tag[0], tag[1]]);
    tagged
}

fn the_forwarder_knows_stations_and_takes_tags_off() -> Result<()> {
    let stop = StopSignal::default();
    let stage = Stage::make(Path::Xdp, 2, a_cpu()?, None, &stop)?;
    let load = packets(stage.lab.load())?;
    let frame = |receiver, number| -> Result<Vec<u8>> {
        let template = Template::new(64, LOAD_MAC, receiver_mac(receiver))?;
        let mut frame = template.bytes().to_vec();
        template.stamp(&mut frame, number);
        Ok(frame)
    };
    for (tap, receiver) in [(0, 0), (1, 1)] {
        let sent = frame(receiver, 5)?;
        load.send(&sent)?;
        ensure!(read(&stage, tap)? == sent, "tap{tap} has another frame");
        // With a priority, and no VLAN: the tag is the uplink's, not the guest's.
        load.send(&tagged(&sent, [0xe0, 0]))?;
        ensure!(read(&stage, tap)? == sent, "tap{tap} has another frame");
    }
    // Another address, and the same one in another VLAN.
    load.send(&frame(9, 6)?)?;
    load.send(&tagged(&frame(0, 7)?, [0xe0, 1]))?;
    until("two frames are unknown", || {
        Ok(stage.counts()?.path.unknown >= 2)
    })?;
    ensure!(is_silent(&stage), "a frame went where it should not");
    let forward = stage.counts()?.path;
    ensure!(
        (forward.forwarded, forward.unknown) == (4, 2),
        "{forward:?}"
    );
    Ok(())
}

fn a_bridge_sends_nothing_of_its_own() -> Result<()> {
    let stop = StopSignal::default();
    let stage = Stage::make(Path::Bridge, 2, a_cpu()?, None, &stop)?;
    let load = packets(stage.lab.load())?;
    for receiver in [0, 1] {
        let template = Template::new(64, LOAD_MAC, receiver_mac(receiver))?;
        load.send(template.bytes())?;
        let frame = read(&stage, receiver.into())?;
        ensure!(check(&frame, 64) == Some(0), "{frame:x?}");
    }
    // Reports of multicast groups come within a second.
    sleep(Duration::from_millis(1200));
    ensure!(is_silent(&stage), "the bridge sent something");
    let counts = stage.counts()?;
    ensure!(counts.read_from_taps() == 2, "{counts:?}");
    Ok(())
}

/// The shortest curve.
const SHORT: [&str; 8] = [
    "--path",
    "xdp",
    "--pps",
    "20k",
    "--receivers",
    "1",
    "--seconds",
    "0.1",
];

fn files_are_written_whole_and_kept() -> Result<()> {
    let directory = Temporary::new("curve")?;
    let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let (svg, html) = (file("curve.svg"), file("curve.html"));
    let files = ["--svg", &svg, "--html", &html];
    let csv = success(curve(&SHORT).args(files).args(["--format", "csv"]))?;
    ensure!(csv.starts_with("path,receivers,target_pps,"), "{csv}");
    ensure!(csv.contains("\nxdp,1,20000,1,"), "{csv}");
    ensure!(csv.lines().count() == 2, "{csv}");
    let picture = fs::read_to_string(&svg)?;
    ensure!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    let page = fs::read_to_string(&html)?;
    ensure!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    ensure!(page.contains("weir cost curve --path xdp"), "{page}");

    // Refused before the measurement, which would take an hour.
    let mut long = curve(&["--seconds", "3600"]);
    let stderr = failure(long.args(["--html", &html]), 1)?;
    ensure!(stderr.contains("--force"), "{stderr}");
    ensure!(fs::read_to_string(&html)? == page, "it was replaced");
    let table = success(curve(&SHORT).args(files).arg("--force"))?;
    ensure!(table.contains("softirq %"), "{table}");
    ensure!(table.lines().all(|line| line.len() <= 100), "{table}");
    let left = fs::read_dir(directory.path())?.count();
    ensure!(left == 2, "{left} files are left");
    Ok(())
}

fn bad_input_is_one_error() -> Result<()> {
    for (words, code, cause) in [
        (&["--path", "carrier-pigeon"][..], 2, "carrier-pigeon"),
        (&["--pps", "0"], 2, "1 to"),
        (&["--pps", "many"], 2, "1.5M"),
        (&["--receivers", "0"], 2, "0"),
        (&["--receivers", "17"], 2, "17"),
        (&["--seconds", "0"], 2, "seconds"),
        (&["--rounds", "0"], 2, "0"),
        (&["--size", "63"], 2, "63"),
        (&["--load-cpu", "1023"], 1, "CPU 1023"),
        (&["--guest", "/nonexistent"], 1, "./run guest"),
        (&["--svg", "/nonexistent/curve.svg"], 1, "/nonexistent"),
        (&["--path", "af-xdp", "--receivers", "2"], 1, "queue"),
    ] {
        let stderr = failure(&mut curve(words), code)?;
        ensure!(stderr.contains(cause), "{words:?}: {stderr}");
        ensure!(stderr.matches("error:").count() == 1, "{words:?}: {stderr}");
    }
    Ok(())
}

fn without_rights_the_error_names_root() -> Result<()> {
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all", "--"])
        .arg(env!("CARGO_BIN_EXE_weir"))
        .args(["cost", "curve"]);
    let found = command.output();
    let Ok(output) = found else {
        return Err(skip("there is no setpriv"));
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{stderr}");
    ensure!(stderr.contains("root"), "{stderr}");
    ensure!(stderr.matches("error:").count() == 1, "{stderr}");
    Ok(())
}

/// The processes that one has started, and those that these have started.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        // A process may end meanwhile.
        let path = format!("/proc/{pid}/task/{pid}/children");
        let list = fs::read_to_string(path).unwrap_or_default();
        let pids = list
            .split_whitespace()
            .filter_map(|it| it.parse::<u32>().ok());
        found.extend(pids);
        next += 1;
    }
    found.split_off(1)
}

fn is_there(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

fn ctrl_c_prints_what_is_finished() -> Result<()> {
    let endless = ["--rounds", "1000", "--format", "json"];
    let mut started = Started::new(curve(&SHORT).args(endless))?;
    let mut first = Vec::new();
    until("a receiver and the load run", || {
        first = descendants(started.child.id());
        Ok(first.len() == 2)
    })?;
    until("the first run is over", || {
        let now = descendants(started.child.id());
        Ok(now.len() == 2 && !now.iter().any(|pid| first.contains(pid)))
    })?;
    started.signal(Signal::INT)?;
    let mut text = String::new();
    let mut stdout = started.child.stdout.take().context("no output")?;
    stdout.read_to_string(&mut text)?;
    let code = started.child.wait()?.code();
    ensure!(code == Some(130), "exit code {code:?}");
    let report: Value = serde_json::from_str(&text)?;
    ensure!(report["interrupted"] == true, "{report}");
    ensure!(!array(&report, "points")?.is_empty(), "{report}");
    ensure!(array(&report, "failed")?.is_empty(), "{report}");
    Ok(())
}

fn a_killed_curve_leaves_nothing() -> Result<()> {
    let words = ["--path", "xdp,bridge,ovs", "--pps", "1k", "--seconds", "60"];
    let mut started = Started::new(&mut curve(&words))?;
    let mut children = Vec::new();
    // Where there is Open vSwitch, there are three more for each number of receivers.
    until("a receiver and the load run", || {
        children = descendants(started.child.id());
        let load = |pid: &u32| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline"));
            words.is_ok_and(|words| words.contains("bench-load"))
        };
        Ok(children.iter().any(load))
    })?;
    let programs = programs_of(started.child.id())?;
    ensure!(!programs.is_empty(), "it has no programs");
    started.signal(Signal::KILL)?;
    started.child.wait()?;
    until("all processes are gone", || {
        Ok(!children.iter().any(|pid| is_there(*pid)))
    })?;
    until("all programs are gone", || {
        Ok(!program_ids().iter().any(|id| programs.contains(id)))
    })
}

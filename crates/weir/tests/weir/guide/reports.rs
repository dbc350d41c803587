//! The schemas in the guide: strict, described, and met by real reports.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testkit::Temporary;

use super::{BOOK, files, none_of, sources};
use crate::bench::NamedLab;
use crate::switch::rig::Rig;
use crate::{Test, broker, filter, output, skip, success, tests, weir};

pub fn trials() -> Vec<Test> {
    let of_anyone = tests![
        schemas_are_strict_and_described,
        the_check_of_a_policy_matches_its_schema,
        reports_about_pf_rules_match_their_schemas,
    ];
    let of_root = tests![
        the_state_of_a_lab_matches_its_schema,
        counts_of_instructions_match_their_schema,
        the_state_of_a_switch_matches_its_schema,
        a_ledger_matches_its_schema,
        a_watching_doctor_matches_its_schema,
    ];
    let of_commands = REPORTS.iter().map(|row| {
        let (_, command, _) = row;
        let words: Vec<_> = command.split_whitespace().take(2).collect();
        let name = words.join("_").replace('-', "");
        // One at a time: most of these commands keep CPUs busy.
        Test::new(format!("weir::guide::reports::of_{name}"), || {
            row_matches(row)
        })
        .alone()
    });
    let of_anyone = of_anyone.into_iter().map(Test::for_everyone);
    of_anyone.chain(of_root).chain(of_commands).collect()
}

fn schema(name: &str) -> Result<Value> {
    let path = sources()?.join(BOOK).join("schemas").join(name);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn schemas_are_strict_and_described() -> Result<()> {
    let page = fs::read_to_string(sources()?.join(BOOK).join("reports.md"))?;
    let mut wrong = Vec::new();
    for path in files(&sources()?.join(BOOK).join("schemas"), "json")? {
        let name = path.file_name().context("no name")?.to_string_lossy();
        ensure!(
            page.contains(&format!("(schemas/{name})")),
            "reports.md has no {name}"
        );
        check_objects(&schema(&name)?, &name, &mut wrong);
    }
    none_of(&wrong)
}

/// Every object lists all of its properties, and each has a description.
fn check_objects(schema: &Value, at: &str, wrong: &mut Vec<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        if schema["additionalProperties"] != false {
            wrong.push(format!("{at}: allows other properties"));
        }
        for (name, property) in properties {
            if property["description"].is_null() && property["$ref"].is_null() {
                wrong.push(format!("{at}: {name} has no description"));
            }
        }
    }
    match schema {
        Value::Object(members) => members
            .iter()
            .for_each(|(name, member)| check_objects(member, &format!("{at}/{name}"), wrong)),
        Value::Array(items) => items.iter().for_each(|item| check_objects(item, at, wrong)),
        _ => {}
    }
}

/// A schema, a command of a second or less that prints such a report, and lists of it that have
/// entries then, so that the schema of the entries is held to something.
const REPORTS: [(&str, &str, &[&str]); 8] = [
    (
        "bench.json",
        "bench all --lab --engine xsk,packet-v2 --mode drv,zc --rounds 1 --seconds 0.1 --format json",
        &["runs", "summary", "refused"],
    ),
    (
        "rtt.json",
        "bench rtt --engine xsk,packet-v2 --mode drv,zc --wait spin,adaptive --pps 1k --rounds 1 --seconds 0.1 --format json",
        &["runs", "summary", "ratios", "refused", "unavailable"],
    ),
    (
        "cost.json",
        "cost --lab --seconds 0.5 --format json",
        &["cpus", "devices", "napi"],
    ),
    (
        "cost.json",
        "cost --passive --dev lo --seconds 0.2 --format json",
        &["cpus", "devices"],
    ),
    (
        "curve.json",
        "cost curve --path bridge,weir,xdp,af-xdp --pps 10k --receivers 2 --seconds 0.1 --format json",
        &["points", "summary", "ratios", "unavailable"],
    ),
    (
        "switch-bench.json",
        "switch bench --part rate,attach,memory,following --path bridge,weir-xdp --entries 1000 --pairs 3 --rounds 1 --seconds 0.1 --format json",
        &["runs", "rates"],
    ),
    (
        "top.json",
        "top --once --interval 0.2 --format json",
        &["devices", "cpus", "programs", "notes"],
    ),
    ("doctor.json", "doctor --json", &["ok"]),
];

fn row_matches((name, command, lists): &(&str, &str, &[&str])) -> Result<()> {
    let report = report(command)?;
    for list in *lists {
        let filled = report[list].as_array().is_some_and(|it| !it.is_empty());
        ensure!(filled, "{command}: no {list}: {report}");
    }
    matches(name, &report)
}

fn the_state_of_a_lab_matches_its_schema() -> Result<()> {
    let _lab = NamedLab::up("guide")?;
    matches("lab-status.json", &report("lab status --json")?)
}

fn counts_of_instructions_match_their_schema() -> Result<()> {
    matches("count.json", &count()?)
}

fn the_state_of_a_switch_matches_its_schema() -> Result<()> {
    matches("switch.json", &switch()?)
}

fn a_ledger_matches_its_schema() -> Result<()> {
    matches("ledger.json", &ledger()?)
}

fn a_watching_doctor_matches_its_schema() -> Result<()> {
    matches("doctor.json", &watched()?)
}

fn the_check_of_a_policy_matches_its_schema() -> Result<()> {
    matches("broker-check.json", &broker::wrong_report("schema")?)
}

fn reports_about_pf_rules_match_their_schemas() -> Result<()> {
    for (name, report) in filter::reports::examples("schema")? {
        matches(name, &report)?;
    }
    Ok(())
}

/// A report on standard output. The doctor exits with 1 where it has findings.
fn report(command: &str) -> Result<Value> {
    let output = output(weir().args(command.split_whitespace()))?;
    let code = output.status.code();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let found = command.starts_with("doctor") && code == Some(1);
    // By its own counts, which then do not add up in time: no report, and no fault of one.
    if stderr.contains("is this machine overloaded?") {
        return Err(skip(format!("{command}: {stderr}")));
    }
    ensure!(code == Some(0) || found, "{command}: {code:?}: {stderr}");
    serde_json::from_slice(&output.stdout).with_context(|| command.to_owned())
}

/// The first line of a doctor that watches.
fn watched() -> Result<Value> {
    let mut doctor = weir()
        .args(["doctor", "--watch", "1", "--json"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let read = doctor
        .stdout
        .take()
        .context("no output")
        .and_then(|output| {
            BufReader::new(output).read_line(&mut line)?;
            Ok(())
        });
    doctor.kill()?;
    doctor.wait()?;
    read?;
    serde_json::from_str(&line).context("doctor --watch --json")
}

/// The figures are times on a machine with several CPUs; only the form matters here.
fn count() -> Result<Value> {
    let directory = Temporary::new("guide-count")?;
    let file = directory.join("count.json");
    success(
        weir()
            .args(["bench-count", "--batch", "1", "--turns", "1", "--json"])
            .arg(&file),
    )?;
    Ok(serde_json::from_slice(&fs::read(&file)?)?)
}

/// Of a bridge that is attached and has forwarded, and of one that waits.
fn switch() -> Result<Value> {
    let mut rig = Rig::new("schema", 2)?;
    let file = rig.path("switch.toml");
    let names = ["br0", "later"].map(|name| format!("[[bridge]]\nname = \"{name}\"\n"));
    fs::write(&file, names.concat())?;
    rig.start(&["--config", file.to_str().context("a path")?])?;
    rig.learn()?;
    rig.until_fast(0, 1)?;
    let report: Value = serde_json::from_str(&rig.ask(&["status", "--format", "json"])?)?;
    let bridges = report["bridges"].as_array().context("no bridges")?;
    let states: Vec<_> = bridges.iter().map(|bridge| &bridge["state"]).collect();
    ensure!(states == ["attached", "waiting"], "{report}");
    Ok(report)
}

/// Of a datagram to a port without a socket.
fn ledger() -> Result<Value> {
    let flags = [
        "ledger",
        "--all-netns",
        "--format",
        "json",
        "--",
        "sh",
        "-c",
    ];
    let datagram = "exec 3<>/dev/udp/127.0.0.1/9; echo >&3; sleep 0.2";
    let report = success(
        weir()
            .args(flags)
            .arg(format!("bash -c '{datagram}' 2>/dev/null; true")),
    )?;
    let report: Value = serde_json::from_str(&report)?;
    for list in ["edges", "losses", "notes"] {
        let filled = report[list].as_array().is_some_and(|it| !it.is_empty());
        ensure!(filled, "no {list}: {report}");
    }
    Ok(report)
}

/// Whether the report meets the schema of this name.
fn matches(name: &str, report: &Value) -> Result<()> {
    let schema = schema(name)?;
    let validator =
        jsonschema::validator_for(&schema).with_context(|| format!("{name} is no schema"))?;
    let errors = validator.iter_errors(report);
    let wrong: Vec<_> = errors
        .map(|error| format!("{name}: {}: {error}", error.instance_path()))
        .collect();
    none_of(&wrong)
}

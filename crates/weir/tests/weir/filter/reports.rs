//! JSON, SARIF, and lines that a problem matcher reads.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use serde_json::Value;

use super::{Rules, WRONG, expect};
use crate::{Test, tests};

pub fn tests() -> Vec<Test> {
    tests![
        sarif_has_what_code_scanning_needs,
        several_files_are_one_log,
        the_problem_matcher_reads_every_line,
        hooks_run_commands_of_weir,
    ]
}

/// The JSON output of a command.
fn json(code: i32, rules: &Rules, words: &str) -> Result<Value> {
    let text = expect(code, rules.weir(words))?;
    serde_json::from_str(&text).context(text)
}

/// Reports with entries in their lists, by the schema that they must meet.
pub fn examples(name: &str) -> Result<Vec<(&'static str, Value)>> {
    let rules = Rules::new(name, WRONG)?;
    rules.write("a.conf", "queue q on em0 flows 10\ntable <t> { 10.0.0.1 }\nblock\nmatch out on em0 from <t> nat-to (em0) set prio 3\n")?;
    rules.write("b.conf", "table <t> { 10.0.0.1 }\nblock\npass in on em0 proto tcp from <x> to port { 22, 22 } keep state (if-bound)\n")?;
    let packet = "in on em0 proto tcp from 10.0.0.1 to 10.0.0.2 port 22";
    Ok(vec![
        (
            "filter-check.json",
            json(1, &rules, "check --format json pf.conf")?,
        ),
        (
            "filter-check.json",
            json(0, &rules, "check -v --format json b.conf")?,
        ),
        (
            "filter-support.json",
            json(1, &rules, "support --format json a.conf")?,
        ),
        (
            "filter-explain.json",
            json(1, &rules, &format!("explain --format json b.conf {packet}"))?,
        ),
        (
            "filter-diff.json",
            json(1, &rules, "diff --format json a.conf b.conf")?,
        ),
        (
            "filter-cover.json",
            json(1, &rules, "cover --format json b.conf")?,
        ),
    ])
}

fn sarif_has_what_code_scanning_needs() -> Result<()> {
    let rules = Rules::new("sarif", WRONG)?;
    let log = json(1, &rules, "check --format sarif pf.conf")?;
    ensure!(log["version"] == "2.1.0", "{log}");
    ensure!(
        log["$schema"]
            .as_str()
            .is_some_and(|it| it.contains("sarif-2.1.0")),
        "{log}"
    );
    let run = &log["runs"][0];
    let driver = &run["tool"]["driver"];
    ensure!(
        driver["name"] == "weir filter" && driver["semanticVersion"].is_string(),
        "{driver}"
    );
    let descriptors = driver["rules"].as_array().context("rules")?;
    let results = run["results"].as_array().context("results")?;
    ensure!(descriptors.len() == 2 && results.len() == 2, "{log}");
    for descriptor in descriptors {
        for text in ["shortDescription", "help"] {
            ensure!(
                descriptor[text]["text"]
                    .as_str()
                    .is_some_and(|it| !it.is_empty()),
                "{descriptor}"
            );
        }
    }
    for result in results {
        let index = result["ruleIndex"].as_u64().context("an index")? as usize;
        ensure!(descriptors[index]["id"] == result["ruleId"], "{result}");
        ensure!(result["level"] == "error", "{result}");
        let place = &result["locations"][0]["physicalLocation"];
        ensure!(place["artifactLocation"]["uri"] == "pf.conf", "{place}");
        let region = &place["region"];
        for field in ["startLine", "startColumn", "endLine", "endColumn"] {
            ensure!(region[field].as_u64().is_some_and(|it| it > 0), "{region}");
        }
    }
    let region = &results[0]["locations"][0]["physicalLocation"]["region"];
    ensure!(
        region["startLine"] == 2 && region["startColumn"] == 15 && region["endColumn"] == 18,
        "{region}"
    );
    Ok(())
}

fn several_files_are_one_log() -> Result<()> {
    let rules = Rules::new("several", WRONG)?;
    rules.write("other.conf", "block proto nope\n")?;
    let log = json(1, &rules, "check --format sarif pf.conf other.conf")?;
    let results = log["runs"][0]["results"].as_array().context("results")?;
    ensure!(
        results.len() == 3 && log["runs"].as_array().is_some_and(|it| it.len() == 1),
        "{log}"
    );
    let lines = expect(1, rules.weir("check --format json pf.conf other.conf"))?;
    ensure!(lines.lines().count() == 2, "{lines}");
    Ok(())
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn the_problem_matcher_reads_every_line() -> Result<()> {
    let text = fs::read_to_string(root().join("contrib/filter/problem-matcher.json"))?;
    let matcher: Value = serde_json::from_str(&text)?;
    let pattern = &matcher["problemMatcher"][0]["pattern"][0];
    let regexp = Regex::new(pattern["regexp"].as_str().context("a regexp")?)?;
    let rules = Rules::new("matcher", &format!("{WRONG}match quick\n"))?;
    rules.write("warned.conf", "block\nmatch quick\npass to <none>\n")?;
    let mut lines = expect(1, rules.weir("check --format short pf.conf"))?;
    lines += &expect(0, rules.weir("check --format short warned.conf"))?;
    ensure!(lines.lines().count() >= 3, "{lines}");
    for line in lines.lines() {
        let found = regexp.captures(line).with_context(|| line.to_owned())?;
        let group = |name: &str| {
            let at = pattern[name].as_u64().unwrap_or(0) as usize;
            found.get(at).map_or("", |it| it.as_str())
        };
        ensure!(
            ["pf.conf", "warned.conf"].contains(&group("file")),
            "{line}"
        );
        ensure!(
            group("line").parse::<u32>().is_ok() && group("column").parse::<u32>().is_ok(),
            "{line}"
        );
        ensure!(
            ["error", "warning", "notice"].contains(&group("severity")),
            "{line}"
        );
        ensure!(
            !group("message").is_empty() && !group("code").contains(' '),
            "{line}"
        );
    }
    Ok(())
}

fn hooks_run_commands_of_weir() -> Result<()> {
    use clap::Parser as _;
    let text = fs::read_to_string(root().join(".pre-commit-hooks.yaml"))?;
    let entries: Vec<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("entry: "))
        .collect();
    ensure!(entries.len() == 2, "{entries:?}");
    for entry in entries {
        let words = entry.split(' ').chain(["pf.conf", "other.pf.conf"]);
        weir::cli::Cli::try_parse_from(words)?;
    }
    for id in ["weir-filter-check", "weir-filter-fmt"] {
        ensure!(text.contains(&format!("- id: {id}\n")), "no {id}");
    }
    Ok(())
}

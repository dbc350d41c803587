//! `weir broker check`: exit status, and every error at once; `weir profile`.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use anyhow::{Result, ensure};
use serde_json::Value;
use testkit::Temporary;

use crate::{Test, output, tests, weir};

pub fn trials() -> Vec<Test> {
    let of_anyone = tests![
        a_valid_policy_is_counted,
        every_error_has_its_place,
        json_has_all_of_it,
        what_cannot_be_read_is_no_fault_of_the_policy,
        a_profile_allows_others_only_if_asked,
    ];
    of_anyone.into_iter().map(Test::for_everyone).collect()
}

/// An error in line 3, and a tenant whose executable alone is noted.
const WRONG: &str = "\
[[tenant]]
name = 'dns'
executible = '/usr/sbin/nsd'
executable = '/usr/sbin/nsd'
calls.sysinfo = 1
";

struct Policy {
    directory: Temporary,
}

impl Policy {
    /// In a directory of this name, one for each test.
    fn new(name: &str, text: &str) -> Result<Self> {
        let directory = Temporary::new(&format!("broker-{name}"))?;
        let policy = Self { directory };
        fs::write(policy.path(), text)?;
        Ok(policy)
    }

    fn path(&self) -> PathBuf {
        self.directory.join("broker.toml")
    }

    fn check(&self, arguments: &[&str]) -> Result<Output> {
        let mut weir = weir();
        output(
            weir.args(["broker", "check"])
                .args(arguments)
                .arg(self.path()),
        )
    }
}

/// Output of `weir broker check --format json` for a policy with errors and notes.
pub fn wrong_report(name: &str) -> Result<Value> {
    let output = Policy::new(name, WRONG)?.check(&["--format", "json"])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn a_profile_allows_others_only_if_asked() -> Result<()> {
    let policy = "[[tenant]]\nname = 'a'\nuid = 1\ncalls.sysinfo = true\n";
    let policy = Policy::new("profile", policy)?;
    let profile = |arguments: &[&str]| {
        let mut weir = weir();
        weir.args(["profile", "--tenant", "a", "--policy"])
            .arg(policy.path());
        output(weir.args(arguments))
    };
    let action = |output: &Output| -> Result<String> {
        let profile: Value = serde_json::from_slice(&output.stdout)?;
        Ok(profile["defaultAction"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    };
    let asked = profile(&["--allow-others"])?;
    ensure!(action(&asked)? == "SCMP_ACT_ALLOW", "{asked:?}");
    // Where there is a default profile, its restrictions stay; else one must be named.
    let default = profile(&[])?;
    if default.status.success() {
        ensure!(action(&default)? != "SCMP_ACT_ALLOW", "{default:?}");
    } else {
        let error = String::from_utf8_lossy(&default.stderr).into_owned();
        ensure!(
            error.contains("--base") && error.contains("--allow-others"),
            "{error}"
        );
    }
    let both = profile(&["--allow-others", "--base", "x"])?;
    ensure!(both.status.code() == Some(2), "{both:?}");
    Ok(())
}

fn a_valid_policy_is_counted() -> Result<()> {
    let output = Policy::new(
        "valid",
        "[[tenant]]\nname = 'a'\nuid = 1\ncalls.sysinfo = true\n",
    )?
    .check(&[])?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(0), "{text}");
    ensure!(text.ends_with("broker.toml: valid, 1 tenant\n"), "{text}");
    Ok(())
}

fn every_error_has_its_place() -> Result<()> {
    let policy = Policy::new("places", WRONG)?;
    let output = policy.check(&[])?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(1), "{text}");
    let file = policy.path().display().to_string();
    for expected in [
        format!("{file}:3:1: a tenant has no key `executible`: did you mean `executable`?\n"),
        "    executible = '/usr/sbin/nsd'\n    ^^^^^^^^^^\n".to_owned(),
        format!("{file}:5:17: this is an integer: write true or false\n"),
        format!("{file}:1:1: note: an executable alone is no proof"),
        format!("{file}: 2 errors\n"),
    ] {
        ensure!(text.contains(&expected), "no {expected}: {text}");
    }
    Ok(())
}

fn json_has_all_of_it() -> Result<()> {
    let report = wrong_report("json")?;
    ensure!(report["valid"] == false, "{report}");
    let error = &report["errors"][1];
    ensure!(error["line"] == 5 && error["column"] == 17, "{report}");
    ensure!(report["notes"][0]["line"] == 1, "{report}");
    Ok(())
}

fn what_cannot_be_read_is_no_fault_of_the_policy() -> Result<()> {
    let policy = Policy::new("missing", "")?;
    fs::remove_file(policy.path())?;
    let output = policy.check(&[])?;
    let error = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2), "{error}");
    ensure!(error.contains("No such file"), "{error}");
    Ok(())
}

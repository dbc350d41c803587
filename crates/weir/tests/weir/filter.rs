//! `weir filter`: exit status, formats, files that cannot be read, and the office of the guide.

mod capture;
mod office;
pub mod reports;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use testkit::Temporary;

use crate::{Test, failure, output, success, tests, weir};

pub fn trials() -> Vec<Test> {
    let of_anyone = tests![
        every_error_has_its_source,
        exit_status_tells_what_was_found,
        wrong_arguments_are_usage_errors,
        what_cannot_be_read_is_named,
        standard_input_is_a_file,
        a_macro_of_the_command_line_wins,
        canonical_text_is_all_of_standard_output,
        a_reader_may_leave_early,
        formatting_is_atomic_and_checked,
        comparisons_have_an_exit_status,
        words_that_are_no_packet_are_pointed_at,
    ];
    let of_root = tests![nothing_of_the_host_is_needed];
    let of_anyone = of_anyone.into_iter().chain(office::tests());
    let of_anyone = of_anyone.chain(capture::tests()).chain(reports::tests());
    of_anyone.map(Test::for_everyone).chain(of_root).collect()
}

const WRONG: &str = "block\npass in proto tpc to port 22\npass out on $ext\n";

/// A directory with a file `pf.conf`.
struct Rules(Temporary);

impl Rules {
    fn new(name: &str, text: &str) -> Result<Self> {
        let rules = Self(Temporary::new(&format!("filter-{name}"))?);
        rules.write("pf.conf", text)?;
        Ok(rules)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// `weir filter` in the directory.
    fn weir(&self, words: &str) -> Command {
        let mut weir = weir();
        weir.arg("filter")
            .args(words.split_whitespace())
            .current_dir(self.0.path());
        weir
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A command's output, if it exits with this code.
fn expect(code: i32, mut command: Command) -> Result<String> {
    let output = output(&mut command)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(code),
        "{command:?}: {}: {stderr}",
        output.status
    );
    Ok(stdout(&output))
}

fn every_error_has_its_source() -> Result<()> {
    let rules = Rules::new("errors", WRONG)?;
    let text = expect(1, rules.weir("check pf.conf"))?;
    for expected in [
        "error[unknown-protocol]: unknown protocol `tpc`\n --> pf.conf:2:15\n",
        "2 | pass in proto tpc to port 22\n  |               ^^^\n",
        "error[undefined-macro]: macro `ext` is not defined\n --> pf.conf:3:13\n",
        "= help: ",
        "pf.conf: 2 errors\n",
    ] {
        ensure!(text.contains(expected), "no {expected}: {text}");
    }
    Ok(())
}

fn exit_status_tells_what_was_found() -> Result<()> {
    let rules = Rules::new(
        "status",
        "block\npass out inet\npass in inet proto tcp to port ssh\n",
    )?;
    let text = expect(0, rules.weir("check --deny-warnings pf.conf"))?;
    ensure!(text == "pf.conf: valid, 3 rules, 0 tables\n", "{text}");
    rules.write("warned.conf", "block\nmatch quick\n")?;
    let text = expect(0, rules.weir("check warned.conf"))?;
    ensure!(text.contains("warning[match-quick]"), "{text}");
    expect(1, rules.weir("check --deny-warnings warned.conf"))?;
    rules.write("wrong.conf", WRONG)?;
    expect(1, rules.weir("check wrong.conf pf.conf"))?;
    expect(1, rules.weir("support wrong.conf"))?;
    expect(2, rules.weir("diff wrong.conf pf.conf"))?;
    expect(2, rules.weir("cover wrong.conf"))?;
    let packet = "in on em0 proto udp from 192.0.2.1 to 192.0.2.2 port 53";
    expect(2, rules.weir(&format!("explain wrong.conf {packet}")))?;
    expect(1, rules.weir(&format!("explain pf.conf {packet}")))?;
    expect(
        0,
        rules.weir(&format!(
            "explain pf.conf {}",
            packet.replace("in on", "out on")
        )),
    )?;
    Ok(())
}

fn wrong_arguments_are_usage_errors() -> Result<()> {
    let rules = Rules::new("usage", "pass\n")?;
    for words in [
        "check",
        "check --format xml pf.conf",
        "check -D name pf.conf",
        "check -D =value pf.conf",
        "check --dialect netbsd pf.conf",
        "explain pf.conf",
        "explain pf.conf --hex 45",
        "explain pf.conf --pcap a --hex 45 --interface em0",
        "diff pf.conf",
        "fmt",
    ] {
        let error = failure(&mut rules.weir(words), 2)?;
        ensure!(
            error.contains("Usage:") || error.contains("--help"),
            "{words}: {error}"
        );
    }
    Ok(())
}

fn what_cannot_be_read_is_named() -> Result<()> {
    let rules = Rules::new("unreadable", "pass\n")?;
    rules.write("binary", b"pass\0")?;
    rules.write(
        "host.toml",
        "[[interfaces]]\nname = 'em0'\naddresses = ['10.0.0.1/33']\n",
    )?;
    rules.write("secret", "pass\n")?;
    fs::set_permissions(rules.0.join("secret"), fs::Permissions::from_mode(0o000))?;
    for (words, expected) in [
        (
            "check missing.conf",
            "cannot read missing.conf: No such file or directory",
        ),
        (
            "check .",
            "cannot read .: is a directory: name a file in it",
        ),
        (
            "check binary",
            "cannot read binary: is no text: byte 4 is zero",
        ),
        (
            "check /dev/zero",
            "cannot read /dev/zero: is a device or socket",
        ),
        (
            "check --host host.toml pf.conf",
            "cannot read the host model host.toml: ",
        ),
        (
            "check --host none.toml pf.conf",
            "cannot read the host model none.toml: No such file",
        ),
        (
            "explain pf.conf --pcap pf.conf",
            "it is neither pcap nor pcapng",
        ),
        (
            "explain pf.conf --pcap none",
            "cannot read the capture none",
        ),
        ("fmt missing.conf", "cannot read missing.conf"),
    ] {
        let error = failure(&mut rules.weir(words), 2)?;
        ensure!(error.contains(expected), "{words}: no {expected}: {error}");
    }
    let mut secret = rules.weir("check secret");
    if rustix::process::geteuid().is_root() {
        // Root may read it.
        fs::set_permissions(rules.0.path(), fs::Permissions::from_mode(0o755))?;
        secret.uid(65_534).gid(65_534);
    }
    let error = failure(&mut secret, 2)?;
    ensure!(
        error.contains("cannot read secret: Permission denied"),
        "{error}"
    );
    Ok(())
}

fn standard_input_is_a_file() -> Result<()> {
    let rules = Rules::new("stdin", "")?;
    rules.write("more.conf", "pass out\n")?;
    let mut check = rules.weir("check --format short -");
    check.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = check.spawn()?;
    let mut stdin = child.stdin.take().context("a pipe")?;
    stdin.write_all(b"block\ninclude \"more.conf\"\npass on $no\n")?;
    drop(stdin);
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let text = stdout(&output);
    ensure!(
        text.starts_with("stdin:3:9: error: macro `no` is not defined"),
        "{text}"
    );
    ensure!(text.lines().count() == 1, "{text}");
    Ok(())
}

fn a_macro_of_the_command_line_wins() -> Result<()> {
    let rules = Rules::new("macro", "if = \"em0\"\npass on $if\n")?;
    let text = success(&mut rules.weir("check -v -D if=em7 pf.conf"))?;
    ensure!(text.contains("pass on em7 all flags S/SA\n"), "{text}");
    Ok(())
}

fn canonical_text_is_all_of_standard_output() -> Result<()> {
    let rules = Rules::new("canonical", "match quick\nblock\n")?;
    let output = output(&mut rules.weir("check --verbose pf.conf"))?;
    ensure!(
        stdout(&output) == "match quick all\nblock drop all\n",
        "{output:?}"
    );
    let findings = String::from_utf8_lossy(&output.stderr);
    ensure!(findings.contains("warning[match-quick]"), "{findings}");
    rules.write("pf.conf", WRONG)?;
    let text = expect(1, rules.weir("check --verbose pf.conf"))?;
    ensure!(text.is_empty(), "{text}");
    Ok(())
}

fn a_reader_may_leave_early() -> Result<()> {
    let wrong = "pass in proto tpc\n".repeat(900);
    let rules = Rules::new("pipe", &wrong)?;
    let program = env!("CARGO_BIN_EXE_weir");
    let mut shell = Command::new("bash");
    let script = format!("{program} filter check pf.conf | head -1; echo ${{PIPESTATUS[0]}}");
    let output = output(shell.args(["-c", &script]).current_dir(rules.0.path()))?;
    let text = stdout(&output);
    ensure!(
        text.lines().nth(1) == Some("1") && text.lines().count() == 2,
        "{text}"
    );
    ensure!(output.stderr.is_empty(), "{output:?}");
    Ok(())
}

fn formatting_is_atomic_and_checked() -> Result<()> {
    let rules = Rules::new("format", "pass   in\n")?;
    let path = rules.0.join("pf.conf");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640))?;
    let text = expect(1, rules.weir("fmt --check pf.conf"))?;
    ensure!(text == "pf.conf\n", "{text}");
    ensure!(fs::read_to_string(&path)? == "pass   in\n");
    expect(0, rules.weir("fmt pf.conf"))?;
    ensure!(fs::read_to_string(&path)? == "pass in\n");
    ensure!(fs::metadata(&path)?.permissions().mode() & 0o7777 == 0o640);
    ensure!(
        fs::read_dir(rules.0.path())?.count() == 1,
        "a temporary file is left"
    );
    let text = expect(0, rules.weir("fmt --check pf.conf"))?;
    ensure!(text.is_empty(), "{text}");
    // One that cannot be read does not keep the others from it.
    rules.write("other.conf", "pass   out\n")?;
    let error = failure(&mut rules.weir("fmt missing.conf other.conf"), 2)?;
    ensure!(error.contains("missing.conf"), "{error}");
    ensure!(fs::read_to_string(rules.0.join("other.conf"))? == "pass out\n");
    Ok(())
}

fn comparisons_have_an_exit_status() -> Result<()> {
    let rules = Rules::new("compare", "block\npass in proto tcp to port 22\n")?;
    rules.write("same.conf", "block all\npass in proto tcp to port ssh\n")?;
    rules.write(
        "other.conf",
        "block\npass in proto tcp to port { 22, 23 }\npass in proto tcp to port 23\n",
    )?;
    expect(0, rules.weir("diff pf.conf same.conf"))?;
    ensure!(expect(0, rules.weir("equal pf.conf same.conf"))? == "equal\n");
    let text = expect(1, rules.weir("diff pf.conf other.conf"))?;
    ensure!(
        text.contains("newly passed") && text.contains("port 23"),
        "{text}"
    );
    ensure!(expect(1, rules.weir("equal pf.conf other.conf"))? == "different\n");
    expect(0, rules.weir("cover pf.conf"))?;
    let text = expect(1, rules.weir("cover other.conf"))?;
    ensure!(text.contains("1 of its 2 rules decide nothing"), "{text}");
    Ok(())
}

fn words_that_are_no_packet_are_pointed_at() -> Result<()> {
    let rules = Rules::new("words", "pass\n")?;
    let words = "explain pf.conf in on em0 proto tcp from 10.0.0.1 to 10.0.0.2 prot 22";
    let error = failure(&mut rules.weir(words), 2)?;
    let lines: Vec<_> = error.lines().collect();
    ensure!(lines.len() == 3, "{error}");
    let at = lines[1].find("prot 22").context("the words are repeated")?;
    ensure!(lines[2].find('^') == Some(at), "{error}");
    Ok(())
}

/// Rules are checked by a user who may do nothing, in a network namespace without devices.
fn nothing_of_the_host_is_needed() -> Result<()> {
    let rules = Rules::new("nobody", "block\npass on em0 from em0:network to (em0)\n")?;
    fs::set_permissions(rules.0.path(), fs::Permissions::from_mode(0o755))?;
    let path = rules.0.join("pf.conf");
    let mut unshare = Command::new("unshare");
    unshare
        .args([
            "--net",
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ])
        .args([
            "--bounding-set=-all",
            env!("CARGO_BIN_EXE_weir"),
            "filter",
            "check",
        ])
        .arg(path)
        .current_dir("/");
    success(&mut unshare)?;
    Ok(())
}

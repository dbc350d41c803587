//! `weir ledger` on the command line: its report, its errors and its end.

use std::ffi::CString;
use std::fs;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hostnet::device::Device;
use hostnet::netns;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::Temporary;
use weir::bpf::kernel_types::KernelTypes;
use weir::doctor;
use weir::ledger::balance::rules::{COUNTERS, RULES};

use crate::until;
use crate::{Test, failure, output, skip, success, tests, weir};

pub fn trials() -> Vec<Test> {
    let of_root = tests![
        a_loss_has_its_socket_and_process,
        a_command_gives_its_exit_status,
        an_ordinary_user_sees_counters,
        saved_counters_are_compared,
        saved_counters_of_another_boot_are_refused,
        wrong_arguments_are_errors_with_a_cure,
        files_are_not_overwritten,
        the_page_is_complete,
        names_are_no_commands_to_the_terminal,
        the_boot_is_compared_by_counters_alone,
        nothing_is_left_after_a_signal,
        one_device_alone,
    ];
    let of_anyone = tests![
        every_check_of_a_loss_is_one_of_the_doctors,
        the_kernel_tells_its_tracepoints_and_constants,
    ];
    let of_anyone = of_anyone.into_iter().map(Test::for_everyone);
    of_root.into_iter().chain(of_anyone).collect()
}

fn every_check_of_a_loss_is_one_of_the_doctors() -> Result<()> {
    let checks = RULES.iter().map(|rule| rule.check);
    let checks = checks.chain(COUNTERS.iter().map(|rule| rule.check));
    for check in checks.filter(|check| !check.is_empty()) {
        doctor::check(check)?;
    }
    Ok(())
}

fn the_kernel_tells_its_tracepoints_and_constants() -> Result<()> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(skip("the kernel has no types (CONFIG_DEBUG_INFO_BTF)"));
    }
    let types = KernelTypes::read()?;
    ensure!(types.tracepoint_arguments("xdp_exception") == Some(3));
    ensure!(types.tracepoint_arguments("no_such_event").is_none());
    let actions = types.constants("xdp_action").context("XDP's actions")?;
    ensure!(actions.contains(&("XDP_TX".into(), 3)), "{actions:?}");
    ensure!(types.constants("no_such_enum").is_none());
    Ok(())
}

/// A network namespace with a loopback that is up.
pub fn namespace() -> Result<OwnedFd> {
    let namespace = netns::create()?;
    netns::disable_ipv6(namespace.as_fd())?;
    netns::run_in(namespace.as_fd(), || -> hostnet::Result<()> {
        Device::open("lo")?.set_up()
    })?;
    Ok(namespace)
}

fn socket(namespace: BorrowedFd<'_>) -> Result<UdpSocket> {
    netns::run_in(namespace, || -> Result<_> {
        Ok(UdpSocket::bind("127.0.0.1:0")?)
    })
}

/// Runs `weir ledger` in a namespace.
fn ledger_in(namespace: BorrowedFd<'_>, arguments: &[&str]) -> Result<String> {
    netns::run_in(namespace, || success(weir().arg("ledger").args(arguments)))
}

/// Datagrams to a port of the loopback that has no socket.
fn send(namespace: BorrowedFd<'_>, count: usize) -> Result<()> {
    // A port that was free a moment ago.
    let port = socket(namespace)?.local_addr()?;
    let sender = socket(namespace)?;
    for _ in 0..count {
        sender.send_to(b"x", port)?;
    }
    Ok(())
}

/// The losses with this reason.
fn losses<'r>(report: &'r Value, reason: &str) -> Result<Vec<&'r Value>> {
    let losses = report["losses"].as_array().context("no losses")?;
    Ok(losses
        .iter()
        .filter(|loss| loss["reason"] == reason)
        .collect())
}

/// Set for this program as the command of a ledger, which then overflows a socket and does nothing else. A value is
/// the name that it gives itself.
const OVERFLOW: &str = "WEIR_TEST_OVERFLOW";
const DATAGRAMS: u64 = 1000;

/// As the command of a ledger: fills the receive buffer of a socket of its own, prints how many datagrams it could
/// read, and ends.
pub fn run_as_overflow() {
    let Ok(name) = std::env::var(OVERFLOW) else {
        return;
    };
    let overflow = || -> Result<u64> {
        rustix::thread::set_name(&CString::new(name)?)?;
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        set_socket_recv_buffer_size(&receiver, 4096)?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        for _ in 0..DATAGRAMS {
            sender.send_to(b"x", receiver.local_addr()?)?;
        }
        receiver.set_nonblocking(true)?;
        let read = std::iter::from_fn(|| receiver.recv(&mut [0; 8]).ok()).count();
        // The ledger looks at sockets four times a second.
        sleep(Duration::from_millis(600));
        Ok(read as u64)
    };
    match overflow() {
        Ok(read) => {
            eprintln!("{read}");
            exit(0)
        }
        Err(error) => {
            eprintln!("{error:?}");
            exit(1)
        }
    }
}

/// Runs `weir ledger` beside the overflow in a namespace: its output, and the number of lost datagrams.
fn overflow(
    namespace: BorrowedFd<'_>,
    ledger: &mut Command,
    program: &Path,
) -> Result<(String, u64)> {
    let output = netns::run_in(namespace, || -> Result<_> {
        if ledger.get_envs().all(|(name, _)| name != OVERFLOW) {
            ledger.env(OVERFLOW, "overflow");
        }
        output(ledger.arg("--").arg(program))
    })?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let read: u64 = stderr.trim().parse().with_context(|| stderr.into_owned())?;
    ensure!(read < DATAGRAMS, "nothing was lost");
    Ok((String::from_utf8(output.stdout)?, DATAGRAMS - read))
}

/// This program.
fn own() -> Result<PathBuf> {
    Ok(std::env::current_exe()?)
}

fn a_loss_has_its_socket_and_process() -> Result<()> {
    let namespace = namespace()?;
    let mut ledger = weir();
    ledger.args(["ledger", "--format", "json"]);
    let (report, lost) = overflow(namespace.as_fd(), &mut ledger, &own()?)?;
    let report: Value = serde_json::from_str(&report)?;
    let losses = losses(&report, "SOCKET_RCVBUFF")?;
    let [row] = losses[..] else {
        anyhow::bail!("not one loss: {report}");
    };
    ensure!(row["count"] == lost, "{lost} lost: {row}");
    ensure!(row["stage"] == "socket" && row["device"] == "lo", "{row}");
    ensure!(row["process"]["name"] == "overflow", "{row}");
    let also = row["also"].as_array().context("no other counters")?;
    let names: Vec<_> = also.iter().map(|also| &also["counter"]).collect();
    ensure!(names.contains(&&Value::from("Udp.RcvbufErrors")), "{row}");
    let edges = report["edges"].as_array().context("no balances")?;
    ensure!(!edges.is_empty(), "{report}");
    for edge in edges {
        ensure!(edge["unexplained"] == 0, "{edge}");
    }
    Ok(())
}

fn a_command_gives_its_exit_status() -> Result<()> {
    let status = |words: &[&str]| -> Result<Option<i32>> {
        Ok(output(weir().args(["ledger", "--"]).args(words))?
            .status
            .code())
    };
    ensure!(status(&["true"])? == Some(0));
    ensure!(status(&["sh", "-c", "exit 7"])? == Some(7));
    ensure!(status(&["sh", "-c", "kill -9 $$"])? == Some(137));
    let error = failure(weir().args(["ledger", "--", "/no/such/command"]), 1)?;
    ensure!(error.contains("is it installed"), "{error}");
    Ok(())
}

fn an_ordinary_user_sees_counters() -> Result<()> {
    let namespace = namespace()?;
    let directory = Temporary::new("ledger-nobody")?;
    let program = directory.join("weir");
    fs::copy(env!("CARGO_BIN_EXE_weir"), &program)?;
    let command = directory.join("overflow");
    fs::copy(own()?, &command)?;
    let mut ledger = Command::new(&program);
    ledger
        .args(["ledger", "--format", "json"])
        .uid(65534)
        .gid(65534);
    let (report, lost) = overflow(namespace.as_fd(), &mut ledger, &command)?;
    let report: Value = serde_json::from_str(&report)?;
    let losses = losses(&report, "Udp.RcvbufErrors")?;
    let [row] = losses[..] else {
        anyhow::bail!("not one loss: {report}");
    };
    ensure!(row["count"] == lost, "{lost} lost: {row}");
    let gaps = report["gaps"].to_string();
    ensure!(gaps.contains("run as root"), "{gaps}");
    Ok(())
}

fn saved_counters_are_compared() -> Result<()> {
    let namespace = namespace()?;
    let directory = Temporary::new("ledger-save")?;
    let file = directory.join("before.json");
    let file = file.to_str().context("a path")?;
    ledger_in(namespace.as_fd(), &["--seconds", "0.1", "--save", file])?;
    send(namespace.as_fd(), 30)?;
    let report = ledger_in(namespace.as_fd(), &["--since", file, "--format", "json"])?;
    let report: Value = serde_json::from_str(&report)?;
    let losses = losses(&report, "Udp.NoPorts")?;
    ensure!(losses.len() == 1 && losses[0]["count"] == 30, "{report}");
    ensure!(report["since_boot"] == false, "{report}");
    Ok(())
}

fn saved_counters_of_another_boot_are_refused() -> Result<()> {
    let directory = Temporary::new("ledger-boot")?;
    let file = directory.join("before.json");
    let path = file.to_str().context("a path")?;
    success(weir().args(["ledger", "--seconds", "0.1", "--save", path]))?;
    let saved = fs::read_to_string(&file)?;
    let refused = |text: &str, reason: &str| -> Result<()> {
        fs::write(&file, text)?;
        let error = failure(weir().args(["ledger", "--since", path]), 1)?;
        ensure!(error.contains(reason) && error.contains(path), "{error}");
        Ok(())
    };
    let mut other: Value = serde_json::from_str(&saved)?;
    other["boot_id"] = "another".into();
    refused(&other.to_string(), "another boot")?;
    let mut other: Value = serde_json::from_str(&saved)?;
    other["version"] = 99.into();
    refused(&other.to_string(), "format 99")?;
    let mut later: Value = serde_json::from_str(&saved)?;
    later["boottime_ns"] = u64::MAX.into();
    refused(&later.to_string(), "younger")?;
    refused(&saved[..saved.len() / 2], "no whole file")?;
    refused("", "no whole file")
}

fn wrong_arguments_are_errors_with_a_cure() -> Result<()> {
    for (arguments, code, cure) in [
        (&["--dev", "nosuchdev"][..], 1, "`ip link`"),
        (&["--netns", "nosuchns"], 1, "`ip netns`"),
        (&["--since", "/no/such/file"], 1, "--save"),
        (&["--seconds", "0"], 2, "choose from"),
        (
            &["--since", "boot", "--seconds", "1"],
            2,
            "cannot be used with",
        ),
        (
            &["--html", "/no/such/directory/x"],
            1,
            "does its directory exist",
        ),
    ] {
        let error = failure(weir().arg("ledger").args(arguments), code)?;
        ensure!(error.contains(cure), "{arguments:?}: {error}");
    }
    Ok(())
}

fn files_are_not_overwritten() -> Result<()> {
    let directory = Temporary::new("ledger-files")?;
    let file = directory.join("page.html");
    fs::write(&file, "mine")?;
    let path = file.to_str().context("a path")?;
    let arguments = ["ledger", "--seconds", "0.1", "--html", path];
    let error = failure(weir().args(arguments), 1)?;
    ensure!(error.contains("--force"), "{error}");
    ensure!(fs::read_to_string(&file)? == "mine");
    success(weir().args(arguments).arg("--force"))?;
    ensure!(fs::read_to_string(&file)?.starts_with("<!DOCTYPE html>"));
    Ok(())
}

fn the_page_is_complete() -> Result<()> {
    let namespace = namespace()?;
    let directory = Temporary::new("ledger-page")?;
    let file = directory.join("page.html");
    let path = file.to_str().context("a path")?;
    overflow(
        namespace.as_fd(),
        weir().args(["ledger", "--html", path]),
        &own()?,
    )?;
    let page = fs::read_to_string(&file)?;
    for word in [
        "SOCKET_RCVBUFF",
        "Udp.RcvbufErrors",
        "driver to ip",
        "</html>",
    ] {
        ensure!(page.contains(word), "no {word}: {page}");
    }
    ensure!(!page.contains("<script"), "{page}");
    Ok(())
}

fn names_are_no_commands_to_the_terminal() -> Result<()> {
    let namespace = namespace()?;
    // The name of a process is free, and stands beside its socket.
    let mut ledger = weir();
    ledger.arg("ledger").env(OVERFLOW, "\u{1b}[31mred");
    let (text, _) = overflow(namespace.as_fd(), &mut ledger, &own()?)?;
    ensure!(text.contains("?[31mred"), "{text}");
    ensure!(!text.contains('\u{1b}'), "{text:?}");
    Ok(())
}

fn the_boot_is_compared_by_counters_alone() -> Result<()> {
    let namespace = namespace()?;
    send(namespace.as_fd(), 20)?;
    let report = ledger_in(namespace.as_fd(), &["--since", "boot", "--format", "json"])?;
    let report: Value = serde_json::from_str(&report)?;
    let losses = losses(&report, "Udp.NoPorts")?;
    ensure!(losses.len() == 1 && losses[0]["count"] == 20, "{report}");
    ensure!(report["since_boot"] == true, "{report}");
    ensure!(
        report["gaps"].to_string().contains("by counters alone"),
        "{report}"
    );
    Ok(())
}

fn nothing_is_left_after_a_signal() -> Result<()> {
    for (signal, code) in [
        (Signal::INT, Some(130)),
        (Signal::TERM, Some(130)),
        (Signal::KILL, None),
    ] {
        let mut ledger = weir();
        ledger
            .args(["ledger", "--seconds", "600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = ledger.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed()).context("a process")?;
        until("the tracepoints are attached", || {
            Ok(holds_programs(child.id()))
        })?;
        kill_process(pid, signal)?;
        let status = child.wait()?;
        ensure!(status.code() == code, "{status}");
    }
    Ok(())
}

/// Whether a process has a descriptor of a BPF link.
fn holds_programs(pid: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    descriptors
        .map(|it| fs::read_link(it.path()))
        .any(|target| target.is_ok_and(|target| target.to_string_lossy().contains("bpf_link")))
}

fn one_device_alone() -> Result<()> {
    let namespace = namespace()?;
    let mut ledger = weir();
    ledger.args(["ledger", "--dev", "lo", "--format", "json"]);
    let (report, _) = overflow(namespace.as_fd(), &mut ledger, &own()?)?;
    let report: Value = serde_json::from_str(&report)?;
    let losses = losses(&report, "SOCKET_RCVBUFF")?;
    ensure!(losses.len() == 1 && losses[0]["device"] == "lo", "{report}");
    ensure!(
        losses[0]["also"] == Value::Array(Vec::new()),
        "behind the device: {report}"
    );
    Ok(())
}

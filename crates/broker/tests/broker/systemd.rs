//! Descriptors and settings of a service manager, taken by a process that was started as one starts it.

use broker::daemon::systemd;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, ExitCode};
use std::time::Duration;
use testkit::Test;

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// First argument of this program when it is the daemon.
const ARGUMENT: &str = "--taking";

/// The daemon's part of the tests.
pub fn run_if_asked() -> Option<ExitCode> {
    if std::env::args().nth(1)? != ARGUMENT {
        return None;
    }
    Some(match take() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// Prints the descriptors it takes, and notifies the manager.
fn take() -> TestResult {
    let (manager, passed) = systemd::take()?;
    for systemd::Passed { name, fd } in &passed {
        let path = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        let flags = rustix::io::fcntl_getfd(fd)?;
        println!("{name} {} {flags:?}", path.display());
    }
    println!("watchdog {:?}", manager.watchdog());
    let left = std::env::vars().any(|(name, _)| {
        name.starts_with("LISTEN") || name.starts_with("NOTIFY") || name.starts_with("WATCHDOG")
    });
    println!("environment {}", if left { "left" } else { "cleared" });
    manager.ready("serves")?;
    Ok(())
}

/// The tests.
pub fn tests() -> Vec<Test> {
    let trial = |name: &str, run: fn() -> TestResult| Test::new(format!("systemd::{name}"), run);
    vec![
        trial("takes_what_is_its_own", takes_what_is_its_own),
        trial("leaves_what_is_for_another", leaves_what_is_for_another),
        trial("refuses_a_descriptor_that_is_not_open", refuses_closed),
    ]
}

/// Runs the daemon by a shell that assigns these variables; returns its output.
fn run(variables: &str, notify: &str) -> TestResult<String> {
    let program = fs::read_link("/proc/self/exe")?;
    let script = format!("exec 3</dev/null 4</dev/zero; {variables} exec \"$0\" {ARGUMENT}");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(program);
    shell.env("NOTIFY_SOCKET", notify);
    Ok(String::from_utf8_lossy(&shell.output()?.stdout).into_owned())
}

fn takes_what_is_its_own() -> TestResult {
    let directory = std::env::temp_dir();
    let path = directory.join(format!("weir-notify-{}", std::process::id()));
    let socket = UnixDatagram::bind(&path)?;
    let variables = "LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=weir:plugin WATCHDOG_USEC=4000000";
    let printed = run(variables, &path.to_string_lossy());
    fs::remove_file(&path)?;
    let expected = "weir /dev/null FdFlags(CLOEXEC)\nplugin /dev/zero FdFlags(CLOEXEC)\nwatchdog Some(2s)\nenvironment cleared\n";
    same(&printed?, expected)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut message = [0; 64];
    let length = socket.recv(&mut message)?;
    same(
        &String::from_utf8_lossy(&message[..length]),
        "READY=1\nSTATUS=serves",
    )
}

/// As a child of the daemon would see it.
fn leaves_what_is_for_another() -> TestResult {
    let variables = "LISTEN_PID=1 LISTEN_FDS=2 WATCHDOG_PID=1 WATCHDOG_USEC=4000000";
    let name = format!("@weir-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name[1..])?;
    let _socket = UnixDatagram::bind_addr(&address)?;
    same(
        &run(variables, &name)?,
        "watchdog None\nenvironment cleared\n",
    )
}

fn refuses_closed() -> TestResult {
    let printed = run("LISTEN_PID=$$ LISTEN_FDS=9", "@weir-nobody")?;
    same(&printed, "descriptor 5 of LISTEN_FDS\n")
}

fn same(found: &str, expected: &str) -> TestResult {
    if found == expected {
        return Ok(());
    }
    Err(format!("{found:?} instead of {expected:?}").into())
}

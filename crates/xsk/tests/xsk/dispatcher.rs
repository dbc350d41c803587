//! libxdp's dispatcher, in processes of their own: each has a bpffs that is gone with it, and with it all
//! that libxdp pins. xdp-tools' xdp-filter is the other XDP program.

use crate::budget::STALL;
use crate::filter::receive_one;
use crate::netns::{Lab, Side};
use crate::{Outcome, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use testkit::{Test, skip, wait_until};
use xsk::testing::programs;
use xsk::{AttachMode, ErrorKind, Filter, Mode, Rule, Socket, SocketBuilder, Umem};

/// The environment variable with the name of the test that a child runs.
const VARIABLE: &str = "XSK_TEST_DISPATCHER";

/// Longest time of a case.
const CASE: Duration = Duration::from_secs(60);

/// A test in a child.
struct Case {
    name: &'static str,
    /// Prepares the mounts, as a shell's commands; the child's are its own.
    mounts: &'static str,
    /// Returns the reason if it cannot run here.
    body: fn() -> Result<Option<String>>,
}

const BPFFS: &str = "mount -t bpf bpf /sys/fs/bpf";

const CASES: &[Case] = &[
    Case {
        name: "error: dispatcher without libxdp",
        mounts: ":",
        body: without_libxdp,
    },
    Case {
        name: "error: dispatcher without bpffs",
        mounts: "while umount /sys/fs/bpf 2>/dev/null; do :; done",
        body: without_bpffs,
    },
    Case {
        name: "error: dispatcher, with settings that it cannot have",
        mounts: BPFFS,
        body: refused_settings,
    },
    Case {
        name: "error: dispatcher on a kernel without trampolines",
        mounts: BPFFS,
        body: without_trampolines,
    },
    Case {
        name: "dispatcher: beside another",
        mounts: BPFFS,
        body: beside_xdp_filter,
    },
    Case {
        name: "dispatcher: after kill -9",
        mounts: BPFFS,
        body: after_a_kill,
    },
];

pub fn tests() -> Vec<Test> {
    let tests = CASES.iter();
    let tests = tests.map(|case| Test::new(case.name, || run(case)));
    tests.collect()
}

/// Runs a case in a child, whose last line is its result.
fn run(case: &Case) -> Outcome {
    let script = format!("set -e; {}; exec \"$0\"", case.mounts);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    command
        .arg(std::env::current_exe()?)
        .env(VARIABLE, case.name);
    let output = testkit::output(&mut command, CASE)?;
    let words = String::from_utf8_lossy(&output.stdout);
    let last = words.lines().last().unwrap_or_default();
    if let Some(reason) = last.strip_prefix("skip: ") {
        return Err(skip(reason));
    }
    if last == "ok" {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n{words}{errors}", output.status).into())
}

/// Runs the child's part, if this process is a child.
pub fn child() -> Option<ExitCode> {
    let name = std::env::var(VARIABLE).ok()?;
    // It must not outlive a killed test; an error is impossible.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if name == HOLDER {
        hold();
        return Some(ExitCode::FAILURE);
    }
    let case = CASES.iter().find(|case| case.name == name)?;
    match (case.body)() {
        Ok(None) => println!("ok"),
        Ok(Some(reason)) => println!("skip: {reason}"),
        Err(error) => {
            println!("{error}");
            return Some(ExitCode::FAILURE);
        }
    }
    Some(ExitCode::SUCCESS)
}

/// Opens a socket that must be refused.
fn refused(side: &Side, mode: Mode) -> Result<xsk::Error> {
    let umem = Umem::builder().chunks(256).build()?;
    let opened = side.open(&umem, mode, SocketBuilder::dispatcher);
    let error = opened.err().ok_or("it opened")?;
    assert!(
        side.has_no_program(STALL),
        "a program was left after: {error}"
    );
    Ok(error)
}

fn check(error: &xsk::Error, kind: ErrorKind, words: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(
        error.to_string().contains(words),
        "{words:?} is not in: {error}"
    );
}

/// The reason that libxdp itself cannot work here.
fn no_libxdp(error: &xsk::Error) -> Option<String> {
    let absent = error.to_string().contains("libxdp is not installed");
    absent.then(|| "missing: libxdp.so.1 (Debian: libxdp1)".into())
}

fn without_libxdp() -> Result<Option<String>> {
    let (umem, lab) = (Umem::builder().chunks(256).build()?, Lab::new()?);
    let opened = lab.rx.inside(|| {
        // The loader of libraries finds none there.
        rustix::process::chroot("/proc/sys")?;
        let builder = Socket::builder(&umem, "rx0", 0).dispatcher();
        Ok::<_, std::io::Error>(builder.open().err())
    });
    let error = opened?.ok_or("it opened")?;
    check(&error, ErrorKind::Unsupported, "apt install libxdp1");
    Ok(None)
}

fn without_bpffs() -> Result<Option<String>> {
    let error = refused(&Lab::new()?.rx, Mode::Auto)?;
    if let Some(reason) = no_libxdp(&error) {
        return Ok(Some(reason));
    }
    let words = "`mount -t bpf bpf /sys/fs/bpf`";
    check(&error, ErrorKind::Unsupported, words);
    Ok(None)
}

fn refused_settings() -> Result<Option<String>> {
    let lab = Lab::new()?;
    let error = refused(&lab.rx, Mode::Skb)?;
    if let Some(reason) = no_libxdp(&error) {
        return Ok(Some(reason));
    }
    check(&error, ErrorKind::ModeRefused, "in native XDP only");
    let umem = Umem::builder().chunks(256).build()?;
    let filter = Filter::any([Rule::udp()]);
    let opened = lab
        .rx
        .open(&umem, Mode::Auto, |b| b.filter(filter).dispatcher());
    let error = opened.err().ok_or("it opened")?;
    check(&error, ErrorKind::InvalidConfig, "cannot filter");
    let device = lab.rx.lookup()?;
    let other = lab
        .rx
        .inside(|| programs::attach_other(&device, AttachMode::Driver))?;
    let opened = lab.rx.open(&umem, Mode::Driver, SocketBuilder::dispatcher);
    let error = opened.err().ok_or("it opened")?;
    check(&error, ErrorKind::ProgramAttached, "not_of_xsk");
    drop(other);
    Ok(None)
}

/// The reason that the dispatcher cannot work here.
fn no_dispatcher(lab: &Lab) -> Result<Option<String>> {
    let umem = Umem::builder().chunks(256).build()?;
    let opened = lab.rx.open(&umem, Mode::Driver, SocketBuilder::dispatcher);
    let Err(error) = opened else { return Ok(None) };
    let refuses = error.to_string().contains("refuses BPF trampolines");
    if refuses {
        return Ok(Some(
            "missing: BPF trampolines, which this kernel refuses".into(),
        ));
    }
    no_libxdp(&error).map_or_else(|| Err(error.into()), |reason| Ok(Some(reason)))
}

fn without_trampolines() -> Result<Option<String>> {
    let lab = Lab::new()?;
    match no_dispatcher(&lab)? {
        None => Ok(Some("this kernel has BPF trampolines".into())),
        Some(reason) if reason.contains("libxdp") => Ok(Some(reason)),
        Some(_) => {
            let error = refused(&lab.rx, Mode::Driver)?;
            check(&error, ErrorKind::Unsupported, "CONFIG_DEBUG_INFO_BTF");
            Ok(None)
        }
    }
}

const RX: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const TX: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The port that xdp-filter drops; the next one is for the socket.
const DROPPED: u16 = 4242;

/// The names of the programs that xdp-loader shows.
fn status(side: &Side) -> Result<String> {
    let mut command = Command::new("xdp-loader");
    command.args(["status", side.device]);
    let output = side.inside(|| command.output())?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The ID of libxdp's redirect program, as the line of it has it behind the name.
fn redirect_id(side: &Side) -> Result<Option<String>> {
    let status = status(side)?;
    let mut words = status.split_whitespace();
    let found = words.any(|word| word == "xsk_def_prog");
    Ok(words.next().filter(|_| found).map(str::to_owned))
}

fn beside_xdp_filter() -> Result<Option<String>> {
    let lab = Lab::new()?;
    if let Some(reason) = no_dispatcher(&lab)? {
        return Ok(Some(reason));
    }
    if Command::new("xdp-filter").arg("help").output().is_err() {
        return Ok(Some("missing: xdp-filter (Debian: xdp-tools)".into()));
    }
    lab.rx.ip(&format!("addr add {RX}/24 dev rx0"))?;
    lab.tx.ip(&format!("addr add {TX}/24 dev tx0"))?;
    // The socket takes all packets that get past the other program, ARP too.
    let address = "02:00:00:00:00:0a";
    lab.tx
        .ip(&format!("neigh replace {RX} lladdr {address} dev tx0"))?;
    lab.rx
        .run("xdp-filter", "load --mode native rx0 --features udp")?;
    lab.rx.run(
        "xdp-filter",
        &format!("port --mode dst --proto udp {DROPPED}"),
    )?;

    let umem = Umem::builder().chunks(256).build()?;
    let mut socket = lab
        .rx
        .open(&umem, Mode::Driver, SocketBuilder::dispatcher)?;
    let both = status(&lab.rx)?;
    assert!(both.contains("xdp_dispatcher"), "{both}");
    assert!(both.contains("xdpfilt"), "{both}");
    assert!(both.contains("xsk_def_prog"), "{both}");
    let sender = lab.tx.inside(|| UdpSocket::bind((TX, 0)))?;
    for port in [DROPPED, DROPPED, DROPPED + 1] {
        sender.send_to(format!("to {port}").as_bytes(), (RX, port))?;
    }
    let packet = receive_one(&mut socket)?;
    assert_eq!(&packet[42..], format!("to {}", DROPPED + 1).as_bytes());
    assert_eq!(socket.statistics()?.received, 1);

    drop(socket);
    let other = status(&lab.rx)?;
    assert!(!other.contains("xsk_def_prog"), "{other}");
    assert!(other.contains("xdpfilt"), "{other}");
    lab.rx.run("xdp-filter", "unload rx0")?;
    assert!(lab.rx.has_no_program(STALL), "a program was left");
    Ok(None)
}

/// The role of a process that holds a socket until it is killed.
const HOLDER: &str = "hold";

fn hold() {
    let opened = Umem::builder().chunks(256).build().and_then(|umem| {
        let _socket = Socket::builder(&umem, "rx0", 0).dispatcher().open()?;
        println!("ready");
        std::thread::sleep(Duration::from_secs(600));
        Ok(())
    });
    if let Err(error) = opened {
        println!("{error}");
    }
}

fn after_a_kill() -> Result<Option<String>> {
    let lab = Lab::new()?;
    if let Some(reason) = no_dispatcher(&lab)? {
        return Ok(Some(reason));
    }
    let mut holder = Command::new(std::env::current_exe()?);
    holder.env(VARIABLE, HOLDER).stdout(Stdio::piped());
    let mut holder = lab.rx.inside(|| holder.spawn())?;
    let mut line = String::new();
    let output = holder.stdout.take().ok_or("the holder's output")?;
    BufReader::new(output).read_line(&mut line)?;
    holder.kill()?;
    holder.wait()?;
    assert_eq!(line.trim(), "ready");
    let id = redirect_id(&lab.rx)?;
    assert!(id.is_some(), "the program outlives its process");

    // A new process shares it, and leaves it as it was.
    let umem = Umem::builder().chunks(256).build()?;
    let socket = lab
        .rx
        .open(&umem, Mode::Driver, SocketBuilder::dispatcher)?;
    drop(socket);
    assert_eq!(redirect_id(&lab.rx)?, id);

    // The command of the guide.
    let id = id.ok_or("it has no ID")?;
    lab.rx.run("xdp-loader", &format!("unload rx0 --id {id}"))?;
    assert!(lab.rx.has_no_program(STALL), "a program was left");
    let no_pins =
        || std::fs::read_dir("/sys/fs/bpf/xdp").is_ok_and(|mut pins| pins.next().is_none());
    assert!(wait_until(STALL, no_pins), "a pinned object was left");
    Ok(None)
}

//! Open vSwitch in a lab, with its datapath in user space: it needs no kernel module, and its CPU
//! time is that of a process.
//!
//! A supervisor process starts and ends the daemons, in a mount namespace with a tmpfs on `/run`:
//! their database and sockets are gone with the last of them, and those of a switch of this host
//! stay untouched.
//!
//! Unsafe code is needed for two calls that the compiler cannot check: unshare(2), which may divide
//! resources that the threads of a process share, and a hook that runs between fork and exec.
#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child as Process, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::Args;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use crate::lab::Side;
use crate::process::child::{CHILD_TIMEOUT, Child, own_command};
use crate::process::event;
use crate::process::stop::StopSignal;
use crate::process::words::Words;
use hostnet::cpulist::pin;
use hostnet::privilege::{self, Capability, Feature};
use hostnet::tap::Tap;

/// The directory of all files of the daemons.
const DIRECTORY: &str = "/run";
/// The schema of the database, at the path that all distributions use.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The bridge inside the switch.
const BRIDGE: &str = "weirovs";
/// Daemons are in directories that a user's PATH may miss.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A running switch.
#[must_use = "the switch ends when this is dropped"]
pub struct Switch<'a> {
    /// The daemons.
    pub pids: Vec<u32>,
    supervisor: Option<Child<'a>>,
}

/// `weir cost-ovs`
#[derive(Debug, Args)]
pub struct OvsArgs {
    /// Device that frames arrive at
    #[arg(long, value_name = "IF")]
    pub uplink: String,
    /// Device for frames to a MAC address; without one, the switch learns addresses
    #[arg(long, value_name = "IF[=MAC]")]
    pub port: Vec<String>,
    /// CPU to run on
    #[arg(long, value_name = "N")]
    pub cpu: usize,
}

impl OvsArgs {
    /// The command line that these arguments are parsed from.
    fn to_words(&self) -> Vec<OsString> {
        let words = Words::default()
            .value("uplink", &self.uplink)
            .value("cpu", &self.cpu);
        let with_port = |words: Words, port: &String| words.value("port", port);
        self.port.iter().fold(words, with_port).into_vec()
    }
}

/// An event of the supervisor, one line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum SwitchEvent {
    /// The switch forwards frames.
    Ready {
        /// The daemons.
        pids: Vec<u32>,
    },
    /// The switch could not be started.
    Failed {
        /// Cause and cure.
        message: String,
    },
}

impl<'a> Switch<'a> {
    /// Starts a switch that connects the side's device and these taps, on a CPU.
    pub fn start(
        side: &Side,
        stations: &[(&Tap, [u8; 6])],
        cpu: usize,
        stop: &'a StopSignal,
    ) -> Result<Self> {
        let port = |(tap, mac): &(&Tap, [u8; 6])| format!("{}={}", tap.device().name(), text(*mac));
        let ports = stations.iter().map(port).collect();
        Self::start_with(side, ports, cpu, stop)
    }

    /// Starts a switch that connects the side's device and these others of its namespace, and
    /// learns the addresses behind each.
    pub fn start_learning(
        side: &Side,
        ports: Vec<String>,
        cpu: usize,
        stop: &'a StopSignal,
    ) -> Result<Self> {
        Self::start_with(side, ports, cpu, stop)
    }

    fn start_with(
        side: &Side,
        port: Vec<String>,
        cpu: usize,
        stop: &'a StopSignal,
    ) -> Result<Self> {
        let args = OvsArgs {
            uplink: side.device.clone(),
            port,
            cpu,
        };
        let mut command = own_command("cost-ovs");
        command.args(args.to_words());
        let mut supervisor = Child::start("switch", command, stop, |command| side.spawn(command))?;
        match supervisor.expect(CHILD_TIMEOUT)? {
            SwitchEvent::Ready { pids } => Ok(Self {
                pids,
                supervisor: Some(supervisor),
            }),
            SwitchEvent::Failed { message } => bail!("{message}"),
        }
    }
}

impl Drop for Switch<'_> {
    /// The supervisor ends the daemons and reaps them.
    fn drop(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            supervisor.terminate();
            // If it does not end it is killed, and the daemons with it.
            let _ = supervisor.wait();
        }
    }
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Runs a switch until SIGTERM. An error is printed as an event.
pub fn run(args: &OvsArgs) -> ExitCode {
    match supervise(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let message = format!("{error:#}");
            // The parent may be gone.
            let _ = event::print(&SwitchEvent::Failed { message });
            ExitCode::FAILURE
        }
    }
}

fn supervise(args: &OvsArgs) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot set the parent death signal")?;
    pin(args.cpu)?;
    let mut signals = Signals::new([SIGTERM]).context("cannot wait for SIGTERM")?;
    ensure!(
        Path::new(SCHEMA).exists(),
        "Open vSwitch is not installed: install it (Debian's package openvswitch-switch)"
    );
    hide_run()?;
    let _daemons = start_daemons(args)?;
    signals.forever().next();
    Ok(())
}

fn start_daemons(args: &OvsArgs) -> Result<[Daemon; 2]> {
    let database = format!("{DIRECTORY}/conf.db");
    call("ovsdb-tool", ["create", &database, SCHEMA])?;
    let socket = format!("{DIRECTORY}/db.sock");
    let server = Daemon::start(
        "ovsdb-server",
        [&database, &format!("--remote=punix:{socket}")],
    )?;
    wait_for(&socket)?;
    let remote = format!("unix:{socket}");
    configure(&remote, ["--no-wait", "init"])?;
    let switch = Daemon::start("ovs-vswitchd", [&remote, "--disable-system"])?;
    let bridge = ["--", "set", "bridge", BRIDGE, "datapath_type=netdev"];
    configure(
        &remote,
        ["add-br", BRIDGE]
            .iter()
            .chain(&bridge)
            .chain(&["fail_mode=secure"]),
    )?;
    configure(&remote, ["add-port", BRIDGE, &args.uplink])?;
    for port in &args.port {
        let (device, flow) = match port.split_once('=') {
            Some((tap, mac)) => (tap, format!("dl_dst={mac},actions=output:{tap}")),
            None => (port.as_str(), "actions=NORMAL".to_owned()),
        };
        configure(&remote, ["add-port", BRIDGE, device])?;
        call("ovs-ofctl", ["add-flow", BRIDGE, &flow])?;
    }
    let table = ["mac-table-size=1000000", "mac-aging-time=3600"];
    let table = table.map(|option| format!("other_config:{option}"));
    let words = ["set", "bridge", BRIDGE].map(String::from);
    configure(&remote, words.iter().chain(&table))?;
    let pids = vec![server.process.id(), switch.process.id()];
    event::print(&SwitchEvent::Ready { pids })?;
    Ok([server, switch])
}

/// Mounts a tmpfs on [`DIRECTORY`], for this process and its children only.
fn hide_run() -> Result<()> {
    // SAFETY: needed because the mounts are for this process only. Sound because it divides neither
    // memory nor descriptors, and no other thread of this process depends on its mounts.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|errno| {
        let code = errno.raw_os_error();
        let cure = privilege::refusal(code, Feature::Base, &[Capability::SysAdmin]);
        let step = "cannot create a mount namespace for Open vSwitch";
        anyhow!(errno).context(format!("{step}: {}", cure.unwrap_or_default()))
    })?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)
        .and_then(|()| mount("tmpfs", DIRECTORY, "tmpfs", MountFlags::empty(), None))
        .with_context(|| format!("cannot mount a tmpfs on {DIRECTORY} for Open vSwitch"))
}

fn wait_for(socket: &str) -> Result<()> {
    let end = Instant::now() + CHILD_TIMEOUT;
    while !Path::new(socket).exists() {
        ensure!(Instant::now() < end, "ovsdb-server does not start");
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn configure<W: AsRef<OsStr>>(remote: &str, words: impl IntoIterator<Item = W>) -> Result<()> {
    let mut all = vec![
        format!("--db={remote}").into(),
        format!("--timeout={}", CHILD_TIMEOUT.as_secs()).into(),
    ];
    all.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
    call("ovs-vsctl", all)
}

/// A command of Open vSwitch, with all its files in [`DIRECTORY`].
fn program<W: AsRef<OsStr>>(name: &str, words: impl IntoIterator<Item = W>) -> Command {
    let mut command = Command::new(name);
    command.args(words).env("PATH", PATH).stdin(Stdio::null());
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, DIRECTORY);
    }
    command
}

fn cannot_run(name: &str) -> String {
    format!("cannot run {name}: is Open vSwitch installed (Debian's package openvswitch-switch)?")
}

fn call<W: AsRef<OsStr>>(name: &str, words: impl IntoIterator<Item = W>) -> Result<()> {
    let output = program(name, words)
        .output()
        .with_context(|| cannot_run(name))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name} failed ({}): {}",
        output.status,
        complaint.trim()
    );
    Ok(())
}

/// A process that ends with this one.
struct Daemon {
    process: Process,
}

impl Daemon {
    fn start<W: AsRef<OsStr>>(name: &str, words: impl IntoIterator<Item = W>) -> Result<Self> {
        let mut command = program(name, words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let hook = || -> io::Result<()> {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            Ok(())
        };
        // SAFETY: needed because a daemon does not end with its parent by itself. Sound because
        // the hook makes one system call and touches neither heap nor locks, as the child of a
        // process with several threads must not.
        let command = unsafe { command.pre_exec(hook) };
        let process = command.spawn().with_context(|| cannot_run(name))?;
        Ok(Self { process })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

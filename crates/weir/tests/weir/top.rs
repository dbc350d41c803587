//! `weir top`: on a real terminal, on real losses, and its recordings after a kill.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hostnet::device::Device;
use hostnet::netns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use testkit::Temporary;
use weir::top::record::Recording;

use crate::{Test, failure, success, tests, tests_alone, until, weir};

pub fn trials() -> Vec<Test> {
    let of_anyone = tests![
        without_a_terminal_it_names_once,
        a_terminal_that_cannot_place_the_cursor_is_refused,
        it_draws_and_gives_the_terminal_back,
        signals_end_it_and_give_the_terminal_back,
        it_ends_with_its_terminal,
        it_stops_and_goes_on,
    ];
    // Alone: a process that another test starts has the socket, too, until it executes its program.
    let alone = tests_alone![an_interval_has_losses_with_their_owner];
    let of_root = tests![
        a_recording_survives_a_kill_and_is_continued,
        a_recording_is_shown_on_a_terminal,
    ];
    let of_anyone = of_anyone.into_iter().map(Test::for_everyone);
    of_anyone.chain(alone).chain(of_root).collect()
}

/// A program on a terminal of its own.
struct OnTerminal {
    master: Option<File>,
    slave: File,
    before: Termios,
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    /// Reads the output, until the flag is set.
    reader: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl OnTerminal {
    fn start(arguments: &[&str]) -> Result<Self> {
        Self::start_with(arguments, "xterm")
    }

    fn start_with(arguments: &[&str], kind: &str) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let no_controlling_terminal = rustix::fs::OFlags::NOCTTY.bits().cast_signed();
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(no_controlling_terminal)
            .open(name.to_str()?)?;
        resize(&slave, 80, 24)?;
        let before = tcgetattr(&slave)?;
        let mut command = weir();
        command.arg("top").args(arguments).env("TERM", kind);
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?);
        let child = command.stderr(slave.try_clone()?).spawn()?;
        let master = File::from(master);
        let output = Arc::default();
        let (mut reader, written) = (master.try_clone()?, Arc::clone(&output));
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let reader = thread::spawn(move || {
            let wait = Timespec::try_from(Duration::from_millis(10)).ok();
            let mut bytes = [0; 4096];
            while !ends.load(Ordering::Relaxed) {
                let mut ready = [PollFd::new(&reader, PollFlags::IN)];
                if poll(&mut ready, wait.as_ref()) == Ok(0) {
                    continue;
                }
                let Ok(read @ 1..) = reader.read(&mut bytes) else {
                    break;
                };
                lock(&written).extend_from_slice(&bytes[..read]);
            }
        });
        Ok(Self {
            master: Some(master),
            slave,
            before,
            child,
            output,
            reader: Some(reader),
            is_over,
        })
    }

    fn press(&mut self, keys: &str) -> Result<()> {
        let master = self.master.as_mut().context("no terminal")?;
        Ok(master.write_all(keys.as_bytes())?)
    }

    /// Presses keys, and has all of the screen drawn: usually only the cells that changed are.
    fn press_and_redraw(&mut self, keys: &str) -> Result<()> {
        self.press(&format!("{keys}\u{c}"))
    }

    /// Closes the terminal.
    fn hang_up(&mut self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            ensure!(reader.join().is_ok(), "the reader panicked");
        }
        self.master = None;
        Ok(())
    }

    /// Waits until a text was drawn, and forgets the output until then.
    fn until(&mut self, text: &str) -> Result<()> {
        let shown = until(text, || {
            let output = lock(&self.output);
            Ok(output.windows(text.len()).any(|it| it == text.as_bytes()))
        });
        let drawn = std::mem::take(&mut *lock(&self.output));
        shown.with_context(|| String::from_utf8_lossy(&drawn).into_owned())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Whether keys come one by one, without an echo.
    fn is_raw(&self) -> Result<bool> {
        let modes = tcgetattr(&self.slave)?.local_modes;
        Ok(!modes.intersects(LocalModes::ICANON | LocalModes::ECHO))
    }

    fn end(&mut self) -> Result<ExitStatus> {
        let mut status = None;
        until("the end", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        status.context("it goes on")
    }

    /// Whether the terminal is as it was: its modes, the screen and the cursor.
    fn check_given_back(&mut self) -> Result<()> {
        let now = tcgetattr(&self.slave)?;
        ensure!(
            now.local_modes == self.before.local_modes
                && now.input_modes == self.before.input_modes
                && now.output_modes == self.before.output_modes,
            "the terminal is in other modes"
        );
        // To leave the other screen, and to show the cursor.
        self.until("\u{1b}[?1049l\u{1b}[?25h")
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // It has usually ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.hang_up();
    }
}

fn lock(output: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resize(terminal: &File, columns: u16, rows: u16) -> Result<()> {
    let size = Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}

fn without_a_terminal_it_names_once() -> Result<()> {
    let error = failure(weir().arg("top").stdin(Stdio::null()), 1)?;
    ensure!(error.contains("`weir top --once`"), "{error}");
    Ok(())
}

fn a_terminal_that_cannot_place_the_cursor_is_refused() -> Result<()> {
    let mut top = OnTerminal::start_with(&[], "dumb")?;
    ensure!(top.end()?.code() == Some(1));
    top.until("`weir top --once`")
}

fn it_draws_and_gives_the_terminal_back() -> Result<()> {
    let mut top = OnTerminal::start(&["--interval", "0.1", "--no-color"])?;
    top.until("1Devices")?;
    ensure!(top.is_raw()?);
    top.press_and_redraw("8")?;
    top.until("NOW/s")?;
    top.press_and_redraw("?")?;
    top.until("KEYS")?;
    resize(&top.slave, 50, 10)?;
    // The kernel sends it to the processes of a controlling terminal only.
    top.signal(Signal::WINCH)?;
    top.until("60x12")?;
    resize(&top.slave, 200, 60)?;
    top.signal(Signal::WINCH)?;
    top.until("KEYS")?;
    top.press("xq")?;
    ensure!(top.end()?.success());
    top.check_given_back()
}

fn signals_end_it_and_give_the_terminal_back() -> Result<()> {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut top = OnTerminal::start(&["--interval", "0.1"])?;
        top.until("1Devices")?;
        top.signal(signal)?;
        let status = top.end()?;
        ensure!(status.code() == Some(130), "{signal:?}: {status}");
        top.check_given_back()
            .with_context(|| format!("{signal:?}"))?;
    }
    Ok(())
}

fn it_ends_with_its_terminal() -> Result<()> {
    let mut top = OnTerminal::start(&["--interval", "3600"])?;
    top.until("1Devices")?;
    top.hang_up()?;
    let status = top.end()?;
    ensure!(status.code() == Some(130), "{status}");
    Ok(())
}

fn it_stops_and_goes_on() -> Result<()> {
    let mut top = OnTerminal::start(&["--interval", "0.1"])?;
    top.until("1Devices")?;
    for way in ["key", "signal"] {
        match way {
            "key" => top.press("\u{1a}")?,
            _ => top.signal(Signal::TSTP)?,
        }
        let stat = format!("/proc/{}/stat", top.child.id());
        until(
            "stopped",
            || Ok(fs::read_to_string(&stat)?.contains(") T ")),
        )?;
        top.check_given_back().context(way)?;
        top.signal(Signal::CONT)?;
        top.until("1Devices").context(way)?;
        ensure!(top.is_raw()?, "{way}");
    }
    top.press("q")?;
    ensure!(top.end()?.success());
    top.check_given_back()
}

/// A UDP socket in a namespace of its own that nobody reads, and a sender, until this is dropped.
struct Overflow {
    /// A process in the namespace, by which it is found.
    process: Child,
    address: SocketAddr,
    _full: UdpSocket,
    is_over: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl Overflow {
    fn start() -> Result<Self> {
        let namespace = netns::create()?;
        let loopback = netns::run_in(namespace.as_fd(), || Device::open("lo"))?;
        loopback.set_up()?;
        let bind = || -> Result<_> { Ok(UdpSocket::bind("127.0.0.1:0")?) };
        let full = netns::run_in(namespace.as_fd(), bind)?;
        let sender = netns::run_in(namespace.as_fd(), bind)?;
        let process = netns::spawn(namespace.as_fd(), Command::new("sleep").arg("infinity"))?;
        let address = full.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let sender = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    // The socket is full.
                    let _ = sender.send_to(&[0; 100], address);
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        Ok(Self {
            process,
            address,
            _full: full,
            is_over,
            sender: Some(sender),
        })
    }
}

impl Drop for Overflow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn an_interval_has_losses_with_their_owner() -> Result<()> {
    let overflow = Overflow::start()?;
    let process = overflow.process.id().to_string();
    let arguments = [
        "top",
        "--once",
        "--interval",
        "0.5",
        "--format",
        "json",
        "--netns",
        &process,
    ];
    let report: Value = serde_json::from_str(&success(weir().args(arguments))?)?;
    let rows = |view: &str| report[view].as_array().cloned().unwrap_or_default();
    let drops = rows("drops");
    let full = drops.iter().find(|row| row["reason"] == "SOCKET_RCVBUFF");
    let full = full.with_context(|| format!("no loss: {report}"))?;
    ensure!(
        full["class"] == "lost" && full["stage"] == "socket",
        "{full}"
    );
    ensure!(
        full["pps"].as_f64().is_some_and(|rate| rate > 0.0),
        "{full}"
    );
    let sockets = rows("sockets");
    let address = overflow.address.to_string();
    let socket = sockets.iter().find(|row| row["local"] == address.as_str());
    let socket = socket.with_context(|| format!("no socket: {report}"))?;
    ensure!(
        socket["drops"].as_u64().is_some_and(|drops| drops > 0),
        "{socket}"
    );
    ensure!(socket["pid"] == std::process::id(), "{socket}");
    ensure!(
        socket["fill_percent"]
            .as_f64()
            .is_some_and(|fill| fill > 50.0),
        "{socket}"
    );
    let devices = rows("devices");
    ensure!(
        devices.len() == 1 && devices[0]["device"] == "lo",
        "{devices:?}"
    );
    ensure!(
        devices[0]["rx_pps"].as_f64().is_some_and(|rate| rate > 0.0),
        "{devices:?}"
    );
    ensure!(
        !rows("cpus").is_empty() && !rows("programs").is_empty(),
        "{report}"
    );
    let notes = rows("notes");
    for view in ["cpus", "programs"] {
        let mut of_view = notes.iter().filter(|note| note["view"] == view);
        let has_price = of_view.any(|it| {
            it["note"]
                .as_str()
                .is_some_and(|it| it.starts_with("price: "))
        });
        ensure!(has_price, "{view}: {notes:?}");
    }
    Ok(())
}

/// Records without a terminal until there are so many frames, and kills it.
fn record_and_kill(file: &Path, frames: usize) -> Result<()> {
    let mut command = weir();
    command
        .args(["top", "--interval", "0.1", "--record"])
        .arg(file);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let recorded = until("recorded", || {
        ensure!(child.try_wait()?.is_none(), "it ended");
        Ok(Recording::open(file).is_ok_and(|it| it.len() >= frames))
    });
    child.kill()?;
    let status = child.wait()?;
    ensure!(status.signal() == Some(9), "{status}");
    recorded
}

fn a_recording_survives_a_kill_and_is_continued() -> Result<()> {
    let directory = Temporary::new("top-record")?;
    let file = directory.join("host.weir");
    record_and_kill(&file, 5)?;
    let before = Recording::open(&file)?.len();
    record_and_kill(&file, before + 5)?;
    let mut recording = Recording::open(&file)?;
    for at in 0..recording.len() {
        recording.frame(at)?;
    }
    // As if it had been killed in the middle of a frame.
    let bytes = fs::read(&file)?;
    fs::write(&file, &bytes[..bytes.len() - 3])?;
    let arguments = ["top", "--once", "--format", "json", "--replay"];
    let report: Value = serde_json::from_str(&success(weir().args(arguments).arg(&file))?)?;
    ensure!(
        report["devices"]
            .as_array()
            .is_some_and(|it| !it.is_empty()),
        "{report}"
    );
    fs::write(&file, "another file")?;
    let error = failure(weir().args(arguments).arg(&file), 1)?;
    ensure!(error.contains("it is no recording of weir top"), "{error}");
    Ok(())
}

fn a_recording_is_shown_on_a_terminal() -> Result<()> {
    let directory = Temporary::new("top-replay")?;
    let file = directory.join("host.weir");
    record_and_kill(&file, 4)?;
    let frames = Recording::open(&file)?.len();
    let file = file.to_str().context("a path")?;
    let mut top = OnTerminal::start(&["--replay", file])?;
    top.until("1Devices")?;
    for (keys, shown) in [
        ("}", "END".to_owned()),
        ("{", format!("1/{frames}")),
        ("...,", format!("3/{frames}")),
    ] {
        top.press_and_redraw(keys)?;
        top.until(&shown)?;
    }
    top.press("q")?;
    ensure!(top.end()?.success());
    top.check_given_back()
}

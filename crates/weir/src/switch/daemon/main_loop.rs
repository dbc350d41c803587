//! The start, the main loop and the end.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use broker::daemon::bpffs::Bpffs;
use broker::daemon::listen::{Access, Listening};
use broker::daemon::log::event;
use broker::daemon::systemd::{self, Manager};
use broker::message;
use hostnet::netns;
use hostnet::privilege::{self, FileStep};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketFlags, SocketType, accept_with};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use super::bridges::Bridges;
use super::config::Config;
use super::request::{self, MOST_BYTES, Request};
use crate::switch::accelerator::Refusal;
use crate::switch::keep;

/// A peer that does not read or write is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Frames are sampled for so long after each request for it.
const SAMPLE_LIFE: Duration = Duration::from_secs(3);

/// The settings of the daemon itself.
#[derive(Debug, Clone)]
pub struct Flags {
    /// The configuration; none for no bridge but those that are attached by hand.
    pub config: Option<PathBuf>,
    /// The control socket.
    pub socket: PathBuf,
    /// The directory of notes.
    pub state: PathBuf,
    /// A BPF filesystem, or where to mount one.
    pub bpffs: PathBuf,
    /// The network namespace of the bridges, by its file; none for the daemon's own.
    pub netns: Option<PathBuf>,
}

struct Daemon {
    bridges: Bridges,
    flags: Flags,
}

/// Runs until SIGTERM or SIGINT. The programs stay, and pass everything to the kernel some seconds later.
///
/// # Errors
///
/// Where another daemon runs, and for a configuration that is not valid.
pub fn run(flags: &Flags) -> Result<()> {
    // While there is one thread.
    let (manager, _) = systemd::take()?;
    let config = read_config(flags)?;
    let signals = Signals::new().context("cannot handle signals")?;
    let directory = flags.socket.parent().unwrap_or(Path::new("/"));
    let made_directory = !directory.exists();
    let state = lock(&flags.state)?;
    let ended = run_locked(flags, &config, &manager, signals);
    keep::tidy(&flags.bpffs, &flags.state);
    drop(state);
    if made_directory {
        // Another daemon's socket may be in it.
        let _ = fs::remove_dir(directory);
    }
    event(
        "stop",
        json!({"error": ended.as_ref().err().map(|error| format!("{error:#}"))}),
    );
    ended
}

fn run_locked(flags: &Flags, config: &Config, manager: &Manager, signals: Signals) -> Result<()> {
    let bpffs = open_bpffs(flags);
    let listening = Listening::new(&flags.socket, SocketType::SEQPACKET, &Access::Root)?;
    if let Some(path) = &flags.netns {
        let namespace = netns::open(path)
            .with_context(|| format!("there is no network namespace {}", path.display()))?;
        netns::enter(namespace.as_fd())?;
    }
    let (pins, _pins) = bpffs.map(|bpffs| pins(&bpffs)).transpose()?.unzip();
    let mut daemon = Daemon {
        bridges: Bridges::new(pins, flags.state.clone(), flags.netns.clone()),
        flags: flags.clone(),
    };
    daemon.start(config);
    event(
        "start",
        json!({"version": env!("WEIR_VERSION"), "socket": flags.socket.display().to_string()}),
    );
    // A manager that does not answer does not matter.
    let _ = manager.ready("");
    let ended = daemon.serve(&listening, manager, signals);
    let _ = manager.stopping();
    daemon.bridges.forget_waiting();
    ended
}

fn read_config(flags: &Flags) -> Result<Config> {
    match &flags.config {
        None => Ok(Config::default()),
        Some(path) => Config::load(path),
    }
}

/// Makes a directory that one daemon has at a time.
fn lock(directory: &Path) -> Result<File> {
    let shown = directory.display();
    fs::create_dir_all(directory).map_err(|error| {
        let why = privilege::file_note(&error, directory, FileStep::Write);
        anyhow!(error).context(format!("cannot make {shown}{why}"))
    })?;
    keep::lock(directory)?.with_context(|| {
        format!(
            "another `weir switch run` has {shown}: talk to it (`weir switch status`), or end it; one in \
             another network namespace needs another --state and --socket"
        )
    })
}

/// The BPF filesystem; without one the programs end with this daemon.
fn open_bpffs(flags: &Flags) -> Option<Bpffs> {
    let opened = Bpffs::new(&flags.bpffs).and_then(|bpffs| {
        if bpffs.is_new() {
            keep::note_bpffs(&flags.state)?;
        }
        Ok(bpffs)
    });
    if let Err(error) = &opened {
        let effect = "programs end with this daemon";
        event(
            "no-bpffs",
            json!({"error": format!("{error:#}"), "effect": effect}),
        );
    }
    opened.ok()
}

/// The directory of this network namespace's pins, locked.
fn pins(bpffs: &Bpffs) -> Result<(PathBuf, File)> {
    let namespace = netns::current()?.to_string();
    let directory = bpffs.directory("switch").join(namespace);
    let lock = lock(&directory)?;
    Ok((directory, lock))
}

impl Daemon {
    fn start(&mut self, config: &Config) {
        self.bridges.configure(&config.bridges);
        self.bridges.take_over(&config.bridges);
        self.bridges.detach_others();
    }

    fn reload(&mut self) {
        match read_config(&self.flags) {
            Ok(config) => self.bridges.configure(&config.bridges),
            Err(error) => event("not-reloaded", json!({"error": format!("{error:#}")})),
        }
    }

    fn serve(
        &mut self,
        listening: &Listening,
        manager: &Manager,
        mut signals: Signals,
    ) -> Result<()> {
        loop {
            let mut patience = self.bridges.patience();
            if let Some(watchdog) = manager.watchdog() {
                patience = patience.min(watchdog);
                let _ = manager.alive();
            }
            let is_asked = self.wait(listening.as_fd(), &signals, patience)?;
            if Signals::take(&mut signals.stop) {
                return Ok(());
            }
            if Signals::take(&mut signals.reload) {
                let _ = manager.reloading();
                self.reload();
                let _ = manager.ready("");
            }
            self.bridges.poll();
            if is_asked {
                self.accept(listening.as_fd());
            }
        }
    }

    /// Waits for events, and returns whether there is a request.
    fn wait(
        &self,
        listening: BorrowedFd<'_>,
        signals: &Signals,
        patience: Duration,
    ) -> Result<bool> {
        let input = PollFlags::IN;
        let sources = [listening, signals.stop.as_fd(), signals.reload.as_fd()].into_iter();
        let sources = sources.chain(self.bridges.attached().map(|it| it.events()));
        let mut fds: Vec<PollFd<'_>> = sources
            .map(|fd| PollFd::from_borrowed_fd(fd, input))
            .collect();
        let timeout = Timespec::try_from(patience).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("waiting for events"),
        }
        Ok(fds.first().is_some_and(|fd| !fd.revents().is_empty()))
    }

    fn accept(&mut self, listening: BorrowedFd<'_>) {
        let Ok(connection) = accept_with(listening, SocketFlags::CLOEXEC) else {
            return;
        };
        if let Err(error) = self.answer(&connection) {
            event("no-answer", json!({"error": format!("{error:#}")}));
        }
    }

    fn answer(&mut self, connection: &OwnedFd) -> Result<()> {
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(connection, timeout, Some(PATIENCE))?;
        }
        let (bytes, _) = message::receive(connection.as_fd(), MOST_BYTES)?;
        let request = match serde_json::from_slice(&bytes) {
            Ok(request) => request,
            Err(error) => {
                let why = format!("the request is not one of this version: {error}");
                return request::refuse(connection.as_fd(), &why);
            }
        };
        match self.carry_out(request) {
            Ok(answer) => request::answer(connection.as_fd(), &answer),
            Err(error) => request::refuse(connection.as_fd(), &format!("{error:#}")),
        }
    }

    fn carry_out(&mut self, request: Request) -> Result<serde_json::Value> {
        match request {
            Request::Attach { bridge, settings } => {
                let bridge = self.bridges.first_name(&bridge);
                self.bridges.set(&bridge, &settings, false, Refusal::Fail)?;
                let status = self.bridges.get(&bridge)?.status()?;
                event("attach", json!({"bridge": bridge}));
                Ok(serde_json::to_value(status)?)
            }
            Request::Detach { bridge: Some(name) } => {
                let name = self.bridges.first_name(&name);
                self.bridges.detach(&name)?;
                Ok(json!([name]))
            }
            Request::Detach { bridge: None } => Ok(json!(self.bridges.detach_all()?)),
            Request::Name { bridge } => Ok(json!(self.bridges.first_name(&bridge))),
            Request::Status => Ok(json!({
                "version": env!("WEIR_VERSION"),
                "pid": std::process::id(),
                "config": self.flags.config,
                "bridges": self.bridges.report()?,
            })),
            Request::Sample { bridge, one_in } => {
                ensure!(one_in > 0, "one in 0 frames: choose at least 1");
                let bridge = self.bridges.first_name(&bridge);
                let accelerator = self.bridges.get(&bridge)?;
                accelerator.sample(one_in, SAMPLE_LIFE)?;
                Ok(json!({"map": accelerator.samples()?, "ports": accelerator.port_names()}))
            }
        }
    }
}

/// Signals, as bytes in pipes.
struct Signals {
    stop: UnixStream,
    reload: UnixStream,
}

impl Signals {
    fn new() -> Result<Self> {
        let (stop, stop_end) = UnixStream::pair()?;
        let (reload, reload_end) = UnixStream::pair()?;
        stop.set_nonblocking(true)?;
        reload.set_nonblocking(true)?;
        pipe::register(SIGTERM, stop_end.try_clone()?)?;
        pipe::register(SIGINT, stop_end)?;
        pipe::register(SIGHUP, reload_end)?;
        Ok(Self { stop, reload })
    }

    fn take(pipe: &mut UnixStream) -> bool {
        let mut bytes = [0; 64];
        pipe.read(&mut bytes).is_ok_and(|count| count > 0)
    }
}

//! The start, the main loop and the end.

use super::bpffs::Bpffs;
use super::connection;
use super::flags::Flags;
use super::listen::{Access, Listening};
use super::log::{self, event};
use super::metrics;
use super::plugin;
use super::server::{MAX_REQUESTS, MAX_REQUESTS_OF_USER, Server};
use super::supervision::Supervision;
use super::systemd::{self, Manager, Passed};
use crate::confine::worker::Worker;
use crate::confine::{self, Needs, Paths, Refused};
use crate::lease::{Leases, Record};
use crate::policy::Policy;
use crate::supervise::fuse::Connections;
use crate::supervise::log::Queue;
use crate::turns::Turns;
use anyhow::{Context as _, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, accept_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant, SystemTime};

/// Stack of a thread that serves a connection.
const STACK: usize = 256 << 10;

/// Runs until SIGTERM or SIGINT.
pub(super) fn run(flags: &Flags) -> Result<()> {
    // While there is one thread, see `confine`.
    let (manager, mut passed) = systemd::take()?;
    let policy = Policy::load(&flags.policy)?;
    if flags.check {
        let tenants = policy.tenants.len();
        println!("{}: {tenants} tenants", flags.policy.display());
        return Ok(());
    }
    raise_descriptors();
    let signals = Signals::new().context("cannot handle signals")?;
    let bpffs = open_bpffs(&flags.bpffs);
    let pins = bpffs.as_ref().map(|bpffs| bpffs.directory("broker"));
    let leases = Arc::new(Leases::open(&flags.state, pins.as_deref())?);
    let plugin_door = take(&mut passed, "plugin")
        .map(|socket| Listening::passed(socket, SocketType::SEQPACKET))
        .transpose()?;
    let plugin_doors = match &flags.plugin_dir {
        Some(directory) => plugin::open(directory, &policy, &flags.access)?,
        None => Vec::new(),
    };
    let mut listening = |name: &str, path: &Path, kind, access| match take(&mut passed, name) {
        Some(socket) => Listening::passed(socket, kind),
        None => Listening::new(path, kind, access),
    };
    let control = listening("weir", &flags.socket, SocketType::SEQPACKET, &flags.access)?;
    let runtimes = listening("oci", &flags.oci_socket, SocketType::STREAM, &flags.access)?;
    let admin = listening("admin", &flags.admin, SocketType::SEQPACKET, &Access::Root)?;
    let scrapes = listening("metrics", &flags.metrics, SocketType::STREAM, &Access::Root)?;
    let pinned = match &flags.plugin_dir {
        Some(directory) => plugin::pin(directory, &policy, &leases),
        None => Vec::new(),
    };
    let worker = Worker::start().context("cannot start the helper process for foreign programs")?;
    let needs = Needs::of(&policy);
    // Callers may wait for those of their users, and this process with them.
    let filesystems = needs.supervision.then(Connections::open);
    let confinement = confine::apply(&paths(flags, &needs), &needs, refused())?;

    let log = Queue::start(std::io::stderr()).context("cannot start the log's thread")?;
    let manager = Arc::new(manager);
    let server = Arc::new(Server {
        policy: RwLock::new(Arc::new(policy)),
        policy_file: flags.policy.clone(),
        needs,
        confinement,
        supervision: Supervision::new(
            log,
            Arc::clone(&manager),
            worker,
            &leases,
            &flags.state,
            filesystems.and_then(Result::ok),
        ),
        leases: Arc::clone(&leases),
        started: SystemTime::now(),
        keeps_programs: pins.is_some(),
        connections: Arc::default(),
        turns: Turns::new(MAX_REQUESTS, MAX_REQUESTS_OF_USER),
        plugin_devices: flags.plugin_dir.is_some().then(|| {
            let devices = plugin_doors.iter().map(|door| door.device.clone());
            devices.collect()
        }),
    });
    server.supervision.resume(&server.policy(), passed);
    log_start(&server, flags);
    // A manager that does not answer does not matter to the tenants.
    let _ = manager.ready(&format!("{} tenants", server.policy().tenants.len()));
    let mut doors = vec![
        (&control, Serve::new(connection::serve_control)),
        (&admin, Serve::new(connection::serve_admin)),
        (&runtimes, Serve::new(connection::serve_runtime)),
        (&scrapes, Serve::new(metrics::serve)),
    ];
    doors.extend(plugin_door.iter().map(|door| (door, Serve::plugin(None))));
    for door in &plugin_doors {
        doors.push((&door.listening, Serve::plugin(Some(door.device.clone()))));
    }
    serve(&server, &manager, signals, &doors)?;
    let _ = manager.stopping();
    server.supervision.stop();
    drop(pinned);
    server.leases.close();
    event("stop", json!({"leases": server.leases.list().len()}));
    let _ = manager.synchronize();
    Ok(())
}

/// Has as many descriptors as it may: a shell gives its programs fewer.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Never above the hard limit, so that it needs no privilege.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

/// Action on a call that the broker's own filter forbids. Tests, whose builds have debug assertions, make
/// it end the broker, so that they see one; other builds have no such switch.
fn refused() -> Refused {
    if cfg!(debug_assertions) && std::env::var_os("WEIR_BROKER_KILLS").is_some() {
        return Refused::Kills;
    }
    Refused::default()
}

/// The files that are used after the start.
fn paths(flags: &Flags, needs: &Needs) -> Paths {
    let directory = |file: &Path| file.parent().map_or_else(|| ".".into(), Path::to_owned);
    let paths = Paths::new(needs)
        .read(directory(&flags.policy))
        .write(&flags.state)
        .write(&flags.bpffs);
    // Their sockets are removed at the end.
    let sockets = [
        &flags.socket,
        &flags.oci_socket,
        &flags.admin,
        &flags.metrics,
    ];
    let paths = sockets
        .into_iter()
        .fold(paths, |paths, socket| paths.write(directory(socket)));
    flags.plugin_dir.iter().fold(paths, Paths::write)
}

fn open_bpffs(path: &Path) -> Option<Bpffs> {
    let opened = Bpffs::new(path);
    if let Err(error) = &opened {
        let effect = "programs end with this broker";
        event(
            "no-bpffs",
            json!({"error": format!("{error:#}"), "effect": effect}),
        );
    }
    opened.ok()
}

/// Takes the socket of a unit by its `FileDescriptorName=`.
fn take(passed: &mut Vec<Passed>, name: &str) -> Option<OwnedFd> {
    let at = passed.iter().position(|passed| passed.name == name)?;
    Some(passed.swap_remove(at).fd)
}

fn log_start(server: &Server, flags: &Flags) {
    event(
        "start",
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "socket": flags.socket.display().to_string(),
            "policy": flags.policy.display().to_string(),
            "tenants": server.policy().tenants.len(),
            "leases": server.leases.list().len(),
            "confinement": server.confinement,
        }),
    );
}

/// Function that serves a connection.
#[derive(Clone)]
struct Serve(Arc<ServeOne>);

type ServeOne = dyn Fn(&Arc<Server>, &OwnedFd) + Send + Sync;

impl Serve {
    fn new(serve: impl Fn(&Arc<Server>, &OwnedFd) + Send + Sync + 'static) -> Self {
        Self(Arc::new(serve))
    }

    /// A device's plugin clients, or those of all devices.
    fn plugin(device: Option<String>) -> Self {
        Self::new(move |server, connection| plugin::serve(server, connection, device.as_deref()))
    }
}

fn serve(
    server: &Arc<Server>,
    manager: &Manager,
    mut signals: Signals,
    doors: &[(&Listening, Serve)],
) -> Result<()> {
    let mut swept = Instant::now();
    let mut spare = Spare::default();
    let mut reserve = Reserve::new();
    loop {
        let full = server.connections.is_full() || reserve.is_used();
        let wanted = if full {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let mut fds: Vec<_> = doors
            .iter()
            .map(|(door, _)| PollFd::from_borrowed_fd(door.as_fd(), wanted))
            .collect();
        fds.push(PollFd::from_borrowed_fd(
            server.leases.events(),
            PollFlags::IN,
        ));
        fds.push(PollFd::from_borrowed_fd(
            signals.stop.as_fd(),
            PollFlags::IN,
        ));
        fds.push(PollFd::from_borrowed_fd(
            signals.reload.as_fd(),
            PollFlags::IN,
        ));
        let rest = |patience: Duration| patience.saturating_sub(swept.elapsed());
        let mut patience = rest(server.leases.patience());
        if full {
            patience = Duration::from_millis(10);
        }
        if let Some(watchdog) = manager.watchdog() {
            patience = patience.min(watchdog);
            let _ = manager.alive();
        }
        let timeout = Timespec::try_from(patience).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("waiting for events"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if Signals::take(&mut signals.stop) {
            return Ok(());
        }
        if Signals::take(&mut signals.reload) {
            let _ = manager.reloading();
            server.reload();
            let _ = manager.ready(&format!("{} tenants", server.policy().tenants.len()));
        }
        let has_closed = ready.get(doors.len()).is_some_and(|closed| *closed);
        // By the clock, not when nobody connects: those who always do would keep every lease alive.
        if has_closed || swept.elapsed() >= server.leases.patience() {
            server.leases.sweep().iter().for_each(log_end);
            swept = Instant::now();
        }
        for ((door, serve), _) in doors.iter().zip(&ready).filter(|(_, ready)| **ready) {
            accept(server, door, serve.clone(), &mut spare, &mut reserve);
        }
    }
}

fn log_end(lease: &Record) {
    event(
        "lease-end",
        json!({"lease": lease.id, "tenant": lease.tenant, "device": lease.device, "queue": lease.queue}),
    );
}

/// Accepts a connection, which gets a thread of its own: no peer holds up another.
fn accept(
    server: &Arc<Server>,
    door: &Listening,
    serve: Serve,
    spare: &mut Spare,
    reserve: &mut Reserve,
) {
    let connection = match accept_with(door.as_fd(), SocketFlags::CLOEXEC) {
        Ok(connection) => connection,
        Err(Errno::MFILE | Errno::NFILE) => return reserve.turn_away(door),
        Err(_) => return,
    };
    let connection = server.connections.add(connection);
    let server = Arc::clone(server);
    spare.run(Box::new(move || (serve.0)(&server, connection.socket())));
}

/// A descriptor kept for the time when there are no others: a peer that cannot be served is turned away, and
/// does not wait in a queue that would wake this loop again and again.
struct Reserve(Option<OwnedFd>);

impl Reserve {
    fn new() -> Self {
        let flags = EventfdFlags::CLOEXEC;
        Self(eventfd(0, flags).ok())
    }

    /// Closes the next connection of a door.
    fn turn_away(&mut self, door: &Listening) {
        drop(self.0.take());
        drop(accept_with(door.as_fd(), SocketFlags::CLOEXEC));
        *self = Self::new();
        log::refusal(
            "the broker",
            "no-descriptors",
            json!({"cure": "raise LimitNOFILE= of the broker, or lower `descriptors` in the `limits` of its tenants"}),
        );
    }

    /// Whether it could not be made again yet: nobody is accepted then.
    fn is_used(&mut self) -> bool {
        if self.0.is_none() {
            *self = Self::new();
        }
        self.0.is_none()
    }
}

/// Serves one connection.
type Work = Box<dyn FnOnce() + Send>;

/// A thread started before its connection comes, as the peer waits meanwhile. It serves one only: nothing
/// of a peer is left in the thread of another.
#[derive(Default)]
struct Spare(Option<Sender<Work>>);

impl Spare {
    /// Runs it in the thread, and starts the next one.
    fn run(&mut self, work: Work) {
        let failed = match self.0.take() {
            Some(thread) => thread.send(work).map_err(|unsent| unsent.0),
            None => Err(work),
        };
        if let Err(error) = failed.or_else(start) {
            event("no-thread", json!({"error": error.to_string()}));
            return;
        }
        let (sender, given) = channel::<Work>();
        let wait = move || given.recv().into_iter().for_each(|work| work());
        self.0 = start(wait).is_ok().then_some(sender);
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new()
        .name("connection".into())
        .stack_size(STACK);
    thread.spawn(work).map(drop)
}

/// The signals, each as a descriptor that is readable after one.
struct Signals {
    stop: UnixStream,
    reload: UnixStream,
}

impl Signals {
    fn new() -> Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let (reload, reloaded) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            pipe::register(signal, stopped.try_clone()?)?;
        }
        pipe::register(SIGHUP, reloaded)?;
        stop.set_nonblocking(true)?;
        reload.set_nonblocking(true)?;
        Ok(Self { stop, reload })
    }

    /// Whether there was a signal since the last call.
    fn take(stream: &mut UnixStream) -> bool {
        stream.read(&mut [0; 64]).is_ok_and(|count| count > 0)
    }
}

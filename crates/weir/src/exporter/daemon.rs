//! The privileged process: it reads counters, and writes pages for the process that answers HTTP.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use broker::confine;
use broker::daemon::{log, systemd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CapabilitySet, set_no_new_privs};
use serde_json::json;

use super::address::Address;
use super::collector::{Collector, Source};
use super::http;
use super::message::{Message, asked};
use super::page::Format;
use super::web_config::{self, WebConfig};
use crate::process::child::own_command;
use crate::process::stop::StopSignal;

/// How often the web configuration and the signals are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long the HTTP process may take to read a page, and to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The user and group of the HTTP process, nobody and nogroup, where this one is root.
const NOBODY: u32 = 65534;

/// The flags.
#[derive(Debug)]
pub struct Flags {
    /// Where to listen.
    pub listen: Address,
    /// Who besides root may connect to a Unix socket.
    pub group: Option<String>,
    /// The web configuration.
    pub web_config: Option<PathBuf>,
    /// Whether other hosts are answered without protection.
    pub allow_insecure: bool,
    /// Most series.
    pub series: usize,
    /// Whether the HTTP process dies by a system call that its filter lacks.
    pub strict: bool,
}

/// Runs until SIGINT or SIGTERM, or until the HTTP process ends.
///
/// # Errors
///
/// When the counters cannot be read at the start, the address or the configuration is refused, or the HTTP
/// process ends.
pub fn run(flags: &Flags, source: impl Source) -> Result<()> {
    let (manager, _) = systemd::take()?;
    let stop = StopSignal::listen()?;
    let mut web_config = flags.web_config.clone().map(web_config::Source::new);
    let config = web_config
        .as_mut()
        .map_or_else(|| Ok(WebConfig::default()), web_config::Source::read)?;
    accept(flags, &config)?;
    let listener = flags.listen.listen(flags.group.as_deref())?;
    // Before the counters are read, so that the child gets none of their descriptors.
    let mut http = Http::start(flags, &listener)?;
    Message::Config(Box::new(config)).send(&mut http.socket)?;
    set_no_new_privs(true).context("no_new_privs")?;
    let kept = confine::keep_at_most(kept())?;
    log::event("reader", json!({ "capabilities": confine::names(kept) }));
    let collector = Collector::start(source, flags.series)?;
    let address = listener.address()?;
    log::event(
        "listening",
        json!({ "address": address, "http_process": http.child.id() }),
    );
    manager.ready(&format!("listening on {address}"))?;
    let mut daemon = Daemon {
        flags,
        web_config,
        collector,
        pages: [None, None],
    };
    let mut alive = Instant::now();
    while !stop.is_raised() {
        http.check()?;
        if http.has_question()? {
            daemon.answer(&mut http)?;
        }
        daemon.look_at_config(&mut http)?;
        if manager
            .watchdog()
            .is_some_and(|time| alive.elapsed() >= time)
        {
            alive = Instant::now();
            manager.alive()?;
        }
    }
    manager.stopping()?;
    log::event("stopping", json!({}));
    drop(http);
    Ok(())
}

/// The capabilities of the reader, as far as it was given them.
fn kept() -> CapabilitySet {
    // Tracepoints, AF_XDP sockets of all processes, and the names of functions.
    let events = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYSLOG;
    // Namespaces of other processes, and the processes of sockets.
    let processes =
        CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    // Sockets by netlink, settings of devices, and a packet socket that counts ARP.
    events | processes | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW
}

/// Refuses a configuration that the HTTP process could not use, or that protects too little.
fn accept(flags: &Flags, config: &WebConfig) -> Result<()> {
    http::check(config).context("the web configuration")?;
    flags
        .listen
        .check(flags.allow_insecure || config.protects())
}

struct Daemon<'a, S> {
    flags: &'a Flags,
    web_config: Option<web_config::Source>,
    collector: Collector<S>,
    /// The pages of the present snapshot, by format.
    pages: [Option<String>; 2],
}

impl<S: Source> Daemon<'_, S> {
    fn answer(&mut self, http: &mut Http) -> Result<()> {
        let format = http.question()?;
        let answer = match self.page(format) {
            Ok(text) => Message::Page(format, text),
            Err(error) => {
                let error = format!("{error:#}");
                log::event("failed", json!({ "action": "a snapshot", "error": error }));
                Message::Failure(format, format!("the counters could not be read: {error}"))
            }
        };
        answer
            .send(&mut http.socket)
            .context("the HTTP process takes no answer")
    }

    fn page(&mut self, format: Format) -> Result<String> {
        if self.collector.refresh()? {
            self.pages = [None, None];
        }
        let [prometheus, open_metrics] = &mut self.pages;
        let page = match format {
            Format::Prometheus => prometheus,
            Format::OpenMetrics => open_metrics,
        };
        Ok(page
            .get_or_insert_with(|| self.collector.page(format))
            .clone())
    }

    /// Takes over the web configuration if it has changed; the former one stays in force where it has faults.
    fn look_at_config(&mut self, http: &mut Http) -> Result<()> {
        let Some(source) = self.web_config.as_mut().filter(|it| it.has_changed()) else {
            return Ok(());
        };
        let new = source.read().and_then(|new| {
            accept(self.flags, &new)?;
            Ok(new)
        });
        let path = source.path();
        match new {
            Ok(new) => {
                log::event("web_config", json!({ "file": path }));
                Message::Config(Box::new(new)).send(&mut http.socket)?;
            }
            Err(error) => {
                let error = format!("{error:#}");
                log::event(
                    "web_config_refused",
                    json!({ "file": path, "error": error }),
                );
                self.collector.web_config_errors += 1;
            }
        }
        Ok(())
    }
}

/// The process that answers HTTP.
struct Http {
    child: Child,
    socket: UnixStream,
}

impl Http {
    fn start(flags: &Flags, listener: &super::address::Listener) -> Result<Self> {
        let (ours, its) = UnixStream::pair().context("cannot make a pair of sockets")?;
        for way in [UnixStream::set_read_timeout, UnixStream::set_write_timeout] {
            way(&ours, Some(PATIENCE)).context("a timeout")?;
        }
        let listener = listener.as_fd().try_clone_to_owned()?;
        let mut command = own_command("exporter-http");
        command.args([
            "--user",
            &NOBODY.to_string(),
            "--group",
            &NOBODY.to_string(),
        ]);
        if flags.strict {
            command.arg("--strict");
        }
        let child = command
            .env_clear()
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(its)))
            .stdout(Stdio::from(listener))
            // Ctrl-C on a terminal is for the reader, which then ends it.
            .process_group(0)
            .spawn()
            .context("cannot start the HTTP process: is /proc mounted?")?;
        Ok(Self {
            child,
            socket: ours,
        })
    }

    /// Fails when the process has ended.
    fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("the HTTP process")? {
            bail!(
                "the HTTP process has ended ({status}): its reason is above; weir exporter ends with it"
            );
        }
        Ok(())
    }

    /// Waits a while for a question.
    fn has_question(&self) -> Result<bool> {
        let look = Timespec::try_from(LOOK)?;
        let mut wait = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut wait, Some(&look)) {
            Ok(count) => Ok(count > 0),
            // A signal.
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno).context("the HTTP process's socket"),
        }
    }

    /// Reads a question.
    fn question(&mut self) -> Result<Format> {
        let mut byte = [0];
        if self
            .socket
            .read(&mut byte)
            .context("the HTTP process's socket")?
            == 0
        {
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end {
                self.check()?;
                std::thread::sleep(Duration::from_millis(5));
            }
            bail!("the HTTP process has closed its socket");
        }
        let [byte] = byte;
        asked(byte).context("the HTTP process asks for an unknown format")
    }

    /// Waits for its end, but not for ever: as another user's process it cannot be killed, and dies with this one.
    fn wait_for_end(&mut self) {
        // It may have ended already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.wait_for_end();
    }
}

//! Programs by which operators watch a host, asked about the same loss: counters of `node_exporter`, and the places
//! that dropwatch names.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hostnet::netns;
use rustix::process::{Pid, Signal, kill_process};
use testkit::limit::longest;

use crate::ledger_faults::COUNT;
use crate::ledger_faults::lab::{At, Lab, Place};
use crate::{SOON, until};

const NODE_EXPORTER: &str = "prometheus-node-exporter";
const PORT: u16 = 9100;
/// The kernel tells dropwatch a second after a drop at the latest.
const ALERT: Duration = Duration::from_secs(3);
/// Parts of the names of `node_exporter`'s counters of losses.
const WORDS: [&str; 8] = [
    "drop",
    "err",
    "fail",
    "discard",
    "noports",
    "listen",
    "unknown",
    "nohandler",
];

/// The programs at work.
pub struct Monitors {
    exporters: Vec<(At, NodeExporter)>,
    before: BTreeMap<String, f64>,
    dropwatch: Dropwatch,
}

/// The answers of the programs.
pub struct Answers {
    pub node_exporter: Vec<String>,
    pub dropwatch: Vec<String>,
}

impl Monitors {
    pub fn start(lab: &Lab) -> Result<Self> {
        let exporters = [At::Left, At::Right]
            .map(|at| NodeExporter::start(lab.place(at)).map(|exporter| (at, exporter)));
        let mut monitors = Self {
            exporters: exporters.into_iter().collect::<Result<_>>()?,
            before: BTreeMap::new(),
            dropwatch: Dropwatch::start()?,
        };
        monitors.before = monitors.scrape(lab)?;
        Ok(monitors)
    }

    pub fn finish(self, lab: &Lab) -> Result<Answers> {
        let moved = self.scrape(lab)?.into_iter().filter_map(|(name, value)| {
            let moved = value - self.before.get(&name).copied().unwrap_or(0.0);
            (moved > 0.0).then(|| format!("{name} {moved}"))
        });
        Ok(Answers {
            node_exporter: moved.collect(),
            dropwatch: self.dropwatch.stop()?,
        })
    }

    fn scrape(&self, lab: &Lab) -> Result<BTreeMap<String, f64>> {
        let mut counters = BTreeMap::new();
        for (at, _) in &self.exporters {
            for line in NodeExporter::page(lab.place(*at))?.lines() {
                let counter = line
                    .strip_prefix("node_")
                    .and_then(|it| it.rsplit_once(' '));
                let Some((name, value)) = counter else {
                    continue;
                };
                let lower = name.to_lowercase();
                if WORDS.iter().any(|word| lower.contains(word)) {
                    *counters.entry(name.into()).or_default() += value.parse().unwrap_or(0.0);
                }
            }
        }
        Ok(counters)
    }
}

/// A child that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `node_exporter` in a namespace, as its package starts it.
struct NodeExporter(#[expect(dead_code, reason = "it is ended on drop")] Ended);

impl NodeExporter {
    fn start(place: &Place) -> Result<Self> {
        place.command("ip link set lo up")?;
        let mut command = Command::new(NODE_EXPORTER);
        command
            .arg(format!(
                "--web.listen-address={}:{PORT}",
                Ipv4Addr::LOCALHOST
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let exporter = Self(Ended(netns::spawn(place.fd(), &mut command)?));
        until("node_exporter answers", || Ok(Self::page(place).is_ok()))?;
        Ok(exporter)
    }

    fn page(place: &Place) -> Result<String> {
        place.run(|| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT))?;
            stream.set_read_timeout(Some(longest(SOON)))?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut page = String::new();
            stream.read_to_string(&mut page)?;
            ensure!(page.contains("\nnode_"), "{NODE_EXPORTER} said: {page}");
            Ok(page)
        })
    }
}

/// dropwatch, which sees the whole host.
struct Dropwatch(Ended);

impl Dropwatch {
    fn start() -> Result<Self> {
        let mut child = Command::new("dropwatch")
            .args(["-l", "kas"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run dropwatch")?;
        let mut input = child.stdin.take().context("its standard input")?;
        input.write_all(b"start\n")?;
        child.stdin = Some(input);
        // It says that it has started only to a terminal.
        sleep(ALERT);
        Ok(Self(Ended(child)))
    }

    /// The places with at least as many drops as were caused.
    fn stop(mut self) -> Result<Vec<String>> {
        sleep(ALERT);
        let child = &mut self.0.0;
        // It reads no command while it watches.
        kill_process(
            Pid::from_raw(child.id().cast_signed()).context("a process")?,
            Signal::INT,
        )?;
        let mut input = child.stdin.take().context("its standard input")?;
        input
            .write_all(b"exit\n")
            .context("dropwatch ended by itself")?;
        drop(input);
        let mut text = String::new();
        let mut output = child.stdout.take().context("its standard output")?;
        output.read_to_string(&mut text)?;
        ensure!(
            text.contains("monitoring activated"),
            "dropwatch does not work here: {text}"
        );
        let mut places = BTreeMap::new();
        for line in text.lines() {
            // 1000 drops at __udp4_lib_rcv+123 (0xffffffff81234567) [software]
            if let Some((count, place)) = line.split_once(" drops at ") {
                let place = place.split(['+', ' ']).next().unwrap_or_default();
                *places.entry(place.to_owned()).or_insert(0) += count.trim().parse().unwrap_or(0);
            }
        }
        places.retain(|_, count: &mut u64| *count >= COUNT);
        let places = places
            .into_iter()
            .map(|(place, count)| format!("{place} {count}"));
        Ok(places.collect())
    }
}

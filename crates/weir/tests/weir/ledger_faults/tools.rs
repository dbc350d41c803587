//! Second readings: the counters as other programs read them.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::ledger_faults::lab::{At, Lab, Place};

/// A counter by namespace, device if it has one, and name.
pub type Key = (u64, Option<String>, String);

/// Counters of losses in the namespaces of a lab.
#[derive(Debug, Clone, Default)]
pub struct Readings(pub BTreeMap<Key, u64>);

/// The program that shows a counter.
pub fn program(key: &Key) -> &'static str {
    match key {
        (_, None, name) if name.contains("socket") => "ss",
        (_, None, _) => "nstat",
        (_, Some(_), name) if name.ends_with(" dropped") => "tc",
        (_, Some(_), name) if name.contains("queue") => "ethtool",
        _ => "ip",
    }
}

/// Counters of the protocols whose names do not say that they count losses.
const LOSSES: [&str; 5] = [
    "Udp.NoPorts",
    "Ip.InHdrErrors",
    "TcpExt.IPReversePathFilter",
    "TcpExt.PAWSEstab",
    "TcpExt.TCPZeroWindowDrop",
];
/// Parts of the names of those that say so.
const WORDS: [&str; 10] = [
    "Errors",
    "Errs",
    "Drop",
    "Discard",
    "Fails",
    "NoRoutes",
    "Overflow",
    "Truncated",
    "Unknown",
    "Pruned",
];
/// Counters with such a name that count no lost packet: connections, and errors that ICMP reports.
const OTHERS: [&str; 3] = ["Icmp.OutErrors", "Icmp.InErrors", "Tcp.AttemptFails"];

impl Readings {
    /// Reads all of them.
    pub fn take(lab: &Lab) -> Result<Self> {
        let mut readings = Self::default();
        for at in [At::Left, At::Right, At::Far] {
            let place = lab.place(at);
            readings.protocols(place)?;
            readings.links(place)?;
            readings.qdiscs(place)?;
            readings.sockets(place)?;
        }
        Ok(readings)
    }

    /// How far each counter moved, without those that did not.
    pub fn since(&self, earlier: &Self) -> BTreeMap<Key, u64> {
        let moved = self.0.iter().map(|(key, value)| {
            let earlier = earlier.0.get(key).copied().unwrap_or(0);
            (key.clone(), value.saturating_sub(earlier))
        });
        moved.filter(|(_, moved)| *moved > 0).collect()
    }

    fn add(&mut self, place: &Place, device: Option<&str>, name: &str, value: u64) {
        let key = (place.inode, device.map(str::to_owned), name.to_owned());
        *self.0.entry(key).or_default() += value;
    }

    /// `nstat`, or where it is not installed the files that it reads.
    fn protocols(&mut self, place: &Place) -> Result<()> {
        let files = ["snmp", "netstat"].map(|file| {
            place.run(|| {
                // /proc/net is that of the process, not of the thread.
                let path = format!("/proc/thread-self/net/{file}");
                fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
            })
        });
        let mut counters = BTreeMap::new();
        for file in files {
            counters.extend(pairs(&file?));
        }
        if has("nstat") {
            agree(&counters, &place.command("nstat -asz")?)?;
        }
        for (name, value) in &counters {
            let is_loss =
                WORDS.iter().any(|word| name.contains(word)) || LOSSES.contains(&name.as_str());
            if is_loss && !OTHERS.iter().any(|other| name.starts_with(other)) {
                self.add(place, None, name, *value);
            }
        }
        Ok(())
    }

    /// `ip -s -s -j link`, and `ethtool -S` for each of them.
    fn links(&mut self, place: &Place) -> Result<()> {
        let links: Value = serde_json::from_str(&place.command("ip -s -s -j link")?)?;
        for link in links.as_array().context("a list of links")? {
            let device = link["ifname"].as_str().context("a name")?.to_owned();
            for (direction, counter, name) in [
                ("rx", "errors", "rx_errors"),
                ("rx", "dropped", "rx_dropped"),
                ("rx", "missed_errors", "rx_missed_errors"),
                ("rx", "length_errors", "rx_length_errors"),
                ("rx", "over_errors", "rx_over_errors"),
                ("rx", "crc_errors", "rx_crc_errors"),
                ("rx", "frame_errors", "rx_frame_errors"),
                ("rx", "fifo_errors", "rx_fifo_errors"),
                ("rx", "nohandler", "rx_nohandler"),
                ("rx", "otherhost_dropped", "rx_otherhost_dropped"),
                ("tx", "errors", "tx_errors"),
                ("tx", "dropped", "tx_dropped"),
            ] {
                if let Some(value) = link["stats64"][direction][counter].as_u64() {
                    self.add(place, Some(&device), name, value);
                }
            }
            if device != "lo" && has("ethtool") {
                // A tap has none.
                let text = place
                    .command(&format!("ethtool -S {device}"))
                    .unwrap_or_default();
                self.driver(place, &device, &text);
            }
        }
        Ok(())
    }

    fn driver(&mut self, place: &Place, device: &str, text: &str) {
        for line in text.lines() {
            let Some((name, value)) = line.trim().split_once(": ") else {
                continue;
            };
            let is_loss = ["drop", "error"].iter().any(|word| name.contains(word));
            if let (true, Ok(value)) = (is_loss, value.trim().parse()) {
                // As the ledger adds queues: rx_queue_0_drops is rx_queue_*_drops.
                let words = name.split('_').map(|word| {
                    if word.parse::<u32>().is_ok() {
                        "*"
                    } else {
                        word
                    }
                });
                self.add(
                    place,
                    Some(device),
                    &words.collect::<Vec<_>>().join("_"),
                    value,
                );
            }
        }
    }

    /// `tc -s -j qdisc`.
    fn qdiscs(&mut self, place: &Place) -> Result<()> {
        let text = place.command("tc -s -j qdisc show")?;
        let qdiscs: Value =
            serde_json::from_str(&text).with_context(|| format!("tc said {text}"))?;
        for qdisc in qdiscs.as_array().into_iter().flatten() {
            let (kind, handle) = (qdisc["kind"].as_str(), qdisc["handle"].as_str());
            let device = qdisc["dev"].as_str().context("a device")?;
            if let Some(drops) = qdisc["drops"].as_u64() {
                let root = if qdisc["root"].is_null() { "" } else { " root" };
                let name = format!(
                    "{} {}{root} dropped",
                    kind.unwrap_or("?"),
                    handle.unwrap_or("?")
                );
                self.add(place, Some(device), &name, drops);
            }
        }
        Ok(())
    }

    /// `ss -m`, where it is installed.
    fn sockets(&mut self, place: &Place) -> Result<()> {
        if !has("ss") {
            return Ok(());
        }
        let text = place.command("ss -HOanm -A udp,tcp,packet")?;
        let drops = text.split("skmem:(").skip(1).filter_map(|part| {
            let inside = part.split(')').next()?;
            inside.rsplit_once(",d")?.1.parse::<u64>().ok()
        });
        self.add(place, None, "socket drops", drops.sum());
        Ok(())
    }
}

/// Pairs of a line with names and one with values, as `Udp.InErrors`.
fn pairs(text: &str) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    let lines: Vec<&str> = text.lines().collect();
    for two in lines.chunks_exact(2) {
        let (names, values) = (two[0].split_whitespace(), two[1].split_whitespace());
        let mut both = names.zip(values);
        let Some((group, _)) = both.next() else {
            continue;
        };
        for (name, value) in both {
            if let Ok(value) = value.parse() {
                counters.insert(format!("{}.{name}", group.trim_end_matches(':')), value);
            }
        }
    }
    counters
}

/// nstat reads the same files, and says `UdpInErrors`. It may have counted more meanwhile.
fn agree(counters: &BTreeMap<String, u64>, nstat: &str) -> Result<()> {
    let said: BTreeMap<&str, u64> = nstat
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.parse().ok()?))
        })
        .collect();
    for (name, value) in counters {
        let group = name.split('.').next().unwrap_or_default();
        if let Some(said) = said.get(name.replace('.', "").as_str())
            && !matches!(group, "Tcp" | "IcmpMsg")
        {
            ensure!(
                said == value,
                "nstat says {said} {name}, /proc/net says {value}"
            );
        }
    }
    Ok(())
}

/// Whether a program is installed. In the guests there are fewer.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

//! The file, and the blocks of its records.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::abi::{
    DropCounts, DropInterface, DropRecord, DropSite, INBOUND, LINK_IP, LINK_NONE, NO_CHECKSUM,
    OUTBOUND, SEGMENTED, TAGGED,
};
use super::names::Names;
use super::options::Options;
use super::pcapng::{self, Packet, Section, Statistics};
use super::report::{CaptureReport, Counts, InterfaceReport};
use crate::bpf::symbols::KernelSymbols;
use crate::ledger::balance::rules::{RULES, Rule, rule_for};
use crate::ledger::events::reasons::Reasons;
use crate::ledger::sheet::Class;
use crate::report::Machine;
use crate::report::atomic_file::{cannot_write, exists};
use crate::report::text::plain;

/// A record with the packet's bytes.
#[derive(Debug)]
pub struct Record {
    /// Everything else.
    pub about: DropRecord,
    /// The bytes.
    pub bytes: Box<[u8]>,
}

/// The fate of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is written, or left out.
    Handled,
    /// The kernel need not send more of this site.
    NormalSite(DropSite),
}

/// A reason at a place, in words.
#[derive(Debug)]
struct Site {
    is_normal: bool,
    /// Whether the kernel was told to send no more of it.
    is_told: bool,
    comment: String,
    fields: String,
}

/// A device, as far as it had packets.
#[derive(Debug, Default)]
struct Interface {
    /// Its number in the file, once it has packets there.
    number: Option<u32>,
    name: String,
    namespace: String,
    is_wanted: bool,
    counts: Counts,
    /// Packets lost since the last one in the file.
    lost: u64,
}

/// A file of dropped packets.
#[derive(Debug)]
pub struct DropFile {
    path: PathBuf,
    file: File,
    options: Options,
    reasons: Reasons,
    symbols: Option<KernelSymbols>,
    names: Names,
    sites: BTreeMap<DropSite, Site>,
    interfaces: BTreeMap<DropInterface, Interface>,
    /// Interfaces in the file.
    numbers: u32,
    /// Blocks that are not written yet.
    blocks: Vec<u8>,
    /// Bytes in the file.
    bytes: u64,
    packets: u64,
    began: u64,
    /// Why no more is written.
    stopped: Option<String>,
}

impl DropFile {
    /// Begins the file. Only its owner can read it: packets are other people's.
    ///
    /// # Errors
    ///
    /// If it exists and may not be replaced, or cannot be written.
    pub fn create(path: &Path, options: Options, reasons: Reasons, now: u64) -> Result<Self> {
        let names = Names::read(&options.scope);
        let mut blocks = Vec::new();
        let machine = Machine::now(0);
        let contents = if options.normal {
            "all packets that the kernel freed, but those that were received"
        } else {
            "the packets that the kernel dropped"
        };
        Section {
            hardware: &machine.cpu_model,
            system: &machine.kernel,
            application: &format!("weir {}", machine.weir),
            comment: &format!("{contents}, with the reason and the place of each"),
        }
        .append_to(&mut blocks);
        let mut file = Self {
            path: path.into(),
            file: create(path, options.replace)?,
            options,
            reasons,
            symbols: None,
            names,
            sites: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            numbers: 0,
            blocks,
            bytes: 0,
            packets: 0,
            began: now,
            stopped: None,
        };
        file.flush();
        match &file.stopped {
            Some(why) => anyhow::bail!("{why}"),
            None => Ok(file),
        }
    }

    /// Whether no more is written.
    pub fn is_over(&self) -> bool {
        self.stopped.is_some()
    }

    /// Adds a packet, which was freed at `time`: since 1970, in nanoseconds.
    pub fn add(&mut self, record: &Record, time: u64) -> Result<Fate> {
        let about = &record.about;
        let site = DropSite {
            location: about.location,
            reason: about.reason,
            unused: 0,
        };
        self.learn(site)?;
        self.meet(about.interface);
        let (Some(words), Some(interface)) = (
            self.sites.get_mut(&site),
            self.interfaces.get_mut(&about.interface),
        ) else {
            return Ok(Fate::Handled);
        };
        interface.lost += about.lost;
        let counts = &mut interface.counts;
        if !interface.is_wanted {
            counts.other_devices += 1;
            return Ok(Fate::Handled);
        }
        if words.is_normal && !self.options.normal {
            counts.normal += 1;
            let is_told = std::mem::replace(&mut words.is_told, true);
            return Ok(if is_told {
                Fate::Handled
            } else {
                Fate::NormalSite(site)
            });
        }
        if self.stopped.is_some() {
            counts.late += 1;
            return Ok(Fate::Handled);
        }
        let before = self.blocks.len();
        let number = interface.number.unwrap_or(self.numbers);
        if interface.number.is_none() {
            pcapng::Interface {
                link_type: link_type(about.interface.link),
                snaplen: self.options.snaplen + pcapng::TAG,
                name: &interface.name,
                description: &interface.namespace,
            }
            .append_to(&mut self.blocks);
        }
        let [tag, protocol] = [about.tag.to_be_bytes(), about.tag_protocol.to_ne_bytes()];
        Packet {
            interface: number,
            time,
            bytes: &record.bytes,
            tag: (about.flags & TAGGED != 0).then_some([protocol[0], protocol[1], tag[0], tag[1]]),
            length: about.length,
            flags: flags(about.flags),
            lost: interface.lost,
            comment: &words.comment,
            custom: &format!(
                "weir.drop {} netns={} ifindex={} segments={}",
                words.fields, about.interface.netns, about.interface.device, about.segments
            ),
        }
        .append_to(&mut self.blocks);
        let length = self.bytes + self.blocks.len() as u64;
        let limit = if length > self.options.max_bytes {
            Some(format!("it may have {} bytes", self.options.max_bytes))
        } else if self.packets == self.options.max_packets {
            Some(format!("it may have {} packets", self.options.max_packets))
        } else {
            None
        };
        if let Some(limit) = limit {
            self.blocks.truncate(before);
            counts.late += 1;
            self.stop(&limit, time);
            return Ok(Fate::Handled);
        }
        if interface.number.is_none() {
            interface.number = Some(number);
            self.numbers += 1;
        }
        interface.lost = 0;
        counts.written += 1;
        self.packets += 1;
        Ok(Fate::Handled)
    }

    fn stop(&mut self, why: &str, time: u64) {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(time);
        let at = crate::report::date::date(at);
        self.stopped = Some(format!(
            "{why}; the first packet after that was dropped at {at}"
        ));
    }

    /// Finds the words for a reason at a place.
    fn learn(&mut self, site: DropSite) -> Result<()> {
        if self.sites.contains_key(&site) {
            return Ok(());
        }
        // There are a hundred thousand symbols: they are read when the first packet is lost.
        let symbols = match self.symbols.take() {
            Some(symbols) => symbols,
            None => KernelSymbols::read()?,
        };
        let reason = self.reasons.name(site.reason);
        let place = symbols.name(site.location);
        let rule = rule_for(RULES, &reason, place.unwrap_or_default());
        let words = Site::new(&reason, place, &rule);
        self.symbols = Some(symbols);
        self.sites.insert(site, words);
        Ok(())
    }

    /// Finds out which device it is.
    fn meet(&mut self, key: DropInterface) {
        if self.interfaces.contains_key(&key) {
            return;
        }
        let known = self.names.device(key.netns, key.device);
        let wanted = &self.options.scope.devices;
        let is_wanted =
            wanted.is_empty() || known.is_some_and(|name| wanted.iter().any(|it| it == name));
        let name = match known {
            Some(name) => plain(name),
            None if key.device == 0 => "none".into(),
            None => format!("device {}", key.device),
        };
        let interface = Interface {
            name,
            namespace: self.names.namespace(key.netns),
            is_wanted,
            ..Interface::default()
        };
        self.interfaces.insert(key, interface);
    }

    /// Hands all blocks to the kernel, so that they survive this process. Where that fails, the file ends with the
    /// last whole block.
    pub fn flush(&mut self) {
        let result = self.file.write_all(&self.blocks);
        match result {
            Ok(()) => self.bytes += self.blocks.len() as u64,
            Err(error) => {
                // The reader tolerates a block that is cut, should this fail too.
                let _ = self.file.set_len(self.bytes);
                self.stopped = Some(format!("cannot write {}: {error}", self.path.display()));
            }
        }
        self.blocks.clear();
    }

    /// Ends the file with the fates of each interface's packets; `counted` has the kernel's counts, `overflow` those
    /// without interface.
    pub fn finish(
        mut self,
        counted: &[(DropInterface, DropCounts)],
        overflow: &DropCounts,
        missed: u64,
        now: u64,
    ) -> CaptureReport {
        for (key, counts) in counted {
            self.meet(*key);
            if let Some(interface) = self.interfaces.get_mut(key) {
                interface.counts.add_kernels(counts);
                if key.link == LINK_NONE {
                    interface.counts.no_packets = counts.seen;
                }
            }
        }
        let mut counts = Counts::default();
        counts.add_kernels(overflow);
        let mut interfaces = Vec::new();
        for interface in self.interfaces.values() {
            counts.add(&interface.counts);
            if let Some(number) = interface.number {
                interfaces.push((number, interface));
            }
        }
        interfaces.sort_by_key(|(number, _)| *number);
        for (number, interface) in &interfaces {
            let counts = &interface.counts;
            Statistics {
                interface: *number,
                times: [self.began, now],
                received: counts.seen,
                accepted: counts.seen.saturating_sub(counts.normal),
                lost: counts.lost,
                written: counts.written,
            }
            .append_to(&mut self.blocks);
        }
        let interfaces = interfaces
            .into_iter()
            .map(|(_, interface)| InterfaceReport {
                name: interface.name.clone(),
                namespace: interface.namespace.clone(),
                counts: interface.counts,
            });
        let interfaces = interfaces.collect();
        self.flush();
        CaptureReport {
            path: self.path,
            bytes: self.bytes,
            counts,
            missed,
            interfaces,
            stopped: self.stopped,
        }
    }
}

impl Site {
    fn new(reason: &str, place: Option<&str>, rule: &Rule) -> Self {
        let class = match rule.class {
            Class::NotLost => "not_lost",
            Class::CopyLost => "copy_lost",
            Class::Lost => "lost",
        };
        let meaning = rule.meaning;
        let (comment, place) = match place {
            Some(place) => (
                format!("{reason} at {place}: {meaning}"),
                format!(" place={}", word(place)),
            ),
            None => (format!("{reason}: {meaning}"), String::new()),
        };
        Self {
            is_normal: rule.class == Class::NotLost,
            is_told: false,
            comment,
            fields: format!("reason={}{place} class={class}", word(reason)),
        }
    }
}

/// A value without spaces.
fn word(text: &str) -> String {
    text.replace(' ', "_")
}

fn link_type(link: u32) -> u16 {
    if link == LINK_IP {
        pcapng::RAW
    } else {
        pcapng::ETHERNET
    }
}

fn flags(flags: u32) -> u32 {
    let bits = [
        (INBOUND, pcapng::INBOUND),
        (OUTBOUND, pcapng::OUTBOUND),
        (NO_CHECKSUM, pcapng::CHECKSUM_NOT_READY),
        (SEGMENTED, pcapng::SEGMENTATION_OFFLOAD),
    ];
    let set = bits.iter().filter(|(bit, _)| flags & bit != 0);
    set.fold(0, |all, (_, bit)| all | bit)
}

fn create(path: &Path, replace: bool) -> Result<File> {
    let cannot = || cannot_write(path);
    if exists(path, replace)? {
        fs::remove_file(path).with_context(cannot)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).with_context(cannot)
}

//! Profiles: stacks of function names, and the samples of each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::Result;

use super::mappings::Mappings;
use super::path::Account;
use super::sampler::Stack;
use crate::bpf::perf_event::Clock;
use crate::bpf::program_ids;
use crate::bpf::symbols::KernelSymbols;

/// The frame of kernel code without a symbol.
pub(super) const KERNEL: &str = "[kernel]";

/// Samples by context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All samples.
    pub taken: u64,
    /// Samples that found no room in the kernel.
    pub lost: u64,
    /// In the softirq `NET_RX`.
    pub net_rx: u64,
    /// In the softirq `NET_TX`.
    pub net_tx: u64,
    /// In the packet path, in other contexts.
    pub other_path: u64,
    /// In the idle task.
    pub idle: u64,
}

impl Counts {
    /// In the packet path.
    pub fn packet_path(&self) -> u64 {
        self.net_rx + self.net_tx + self.other_path
    }

    /// In programs and in other work of the kernel.
    pub fn elsewhere(&self) -> u64 {
        let known = self.packet_path() + self.idle + self.lost;
        self.taken.saturating_sub(known)
    }

    fn add(&mut self, account: Account, samples: u64) {
        match account {
            Account::NetRx => self.net_rx += samples,
            Account::NetTx => self.net_tx += samples,
            Account::OtherPath => self.other_path += samples,
            Account::Idle => self.idle += samples,
            Account::Rest => {}
        }
    }
}

/// A profile.
#[derive(Debug)]
pub struct Profile {
    /// Samples of each stack: its frames, outermost first, with `;` between them.
    pub stacks: BTreeMap<String, u64>,
    /// Samples by context.
    pub counts: Counts,
    /// The clock of the samples.
    pub clock: Clock,
    /// Samples that the clock should have given; `None` with cycles, of which an idle CPU has none.
    pub due: Option<u64>,
    /// The duration.
    pub elapsed: Duration,
    /// Whether `stacks` are limited to the packet path.
    pub packet_path_only: bool,
    /// Whether kernel functions have symbols; without them only `taken` and `lost` of `counts` are
    /// known.
    pub named: bool,
    /// Limits of the profile, one sentence each.
    pub notes: Vec<String>,
}

impl Profile {
    /// Samples as a share of the CPUs' time, from 0 to 1; with cycles, of their busy time.
    pub fn share(&self, samples: u64) -> f64 {
        let all = self.due.unwrap_or(0).max(self.counts.taken).max(1);
        samples as f64 / all as f64
    }

    /// Samples that the clock did not give.
    pub fn missing(&self) -> u64 {
        self.due.unwrap_or(0).saturating_sub(self.counts.taken)
    }

    /// The folded format of flamegraph.pl, inferno and speedscope: a line for each stack, with its
    /// samples.
    pub fn folded(&self) -> String {
        self.stacks
            .iter()
            .fold(String::new(), |mut text, (stack, samples)| {
                let _ = writeln!(text, "{stack} {samples}");
                text
            })
    }

    /// Samples in `stacks`.
    pub fn shown(&self) -> u64 {
        self.stacks.values().sum()
    }

    /// Functions by self time, in samples, highest first.
    pub fn leaves(&self) -> Vec<(&str, u64)> {
        let mut leaves = BTreeMap::<&str, u64>::new();
        for (stack, samples) in &self.stacks {
            let leaf = stack.rsplit(';').next().unwrap_or(stack);
            *leaves.entry(leaf).or_default() += samples;
        }
        let mut leaves: Vec<_> = leaves.into_iter().collect();
        leaves.sort_by_key(|&(_, samples)| std::cmp::Reverse(samples));
        leaves
    }
}

/// Symbolizes stacks, and merges those that are then equal.
pub(super) struct Collector {
    symbols: KernelSymbols,
    /// The BPF programs at the time when `symbols` were read.
    programs: Vec<u32>,
    mappings: Mappings,
    packet_path_only: bool,
    stacks: BTreeMap<String, u64>,
    counts: Counts,
    /// Samples read so far.
    read: u64,
}

impl Collector {
    /// `everything`: keeps all stacks instead of those of the packet path.
    pub(super) fn new(everything: bool) -> Result<Self> {
        let programs = program_ids();
        let symbols = KernelSymbols::read()?;
        Ok(Self {
            // Without symbols the packet path is unknown.
            packet_path_only: !everything && !symbols.are_hidden(),
            symbols,
            programs,
            mappings: Mappings::new(),
            stacks: BTreeMap::new(),
            counts: Counts::default(),
            read: 0,
        })
    }

    pub(super) fn add(&mut self, stacks: Vec<(Stack, u64)>) {
        self.renew_symbols();
        for (stack, samples) in stacks {
            self.add_one(&stack, samples);
        }
    }

    /// A new BPF program may be at the address of an old one.
    fn renew_symbols(&mut self) {
        let programs = program_ids();
        if programs != self.programs {
            // It could be read before; should it fail now, the old symbols remain.
            if let Ok(symbols) = KernelSymbols::read() {
                self.symbols = symbols;
            }
            self.programs = programs;
        }
    }

    fn add_one(&mut self, stack: &Stack, samples: u64) {
        let Self {
            symbols, mappings, ..
        } = self;
        let functions: Vec<&str> = stack
            .kernel
            .iter()
            .map(|&address| symbols.name(address).unwrap_or(KERNEL))
            .collect();
        let account = Account::of(stack.process, &functions);
        self.counts.add(account, samples);
        self.read += samples;
        if self.packet_path_only && !account.is_packet_path() {
            return;
        }
        let mut folded = Folded::new(&stack.name);
        for &address in &stack.user {
            folded.push(mappings.name(stack.process, address));
        }
        for function in functions {
            folded.push(function);
        }
        *self.stacks.entry(folded.text).or_default() += samples;
    }

    /// `taken`: samples in `elapsed`; the clock should have given `rate` a second.
    pub(super) fn finish(self, clock: Clock, rate: u64, elapsed: Duration, taken: u64) -> Profile {
        let due = rate as f64 * elapsed.as_secs_f64();
        let mut profile = Profile {
            notes: Vec::new(),
            due: (clock == Clock::CpuClock).then_some(due as u64),
            counts: Counts {
                taken,
                lost: taken.saturating_sub(self.read),
                ..self.counts
            },
            stacks: self.stacks,
            clock,
            elapsed,
            packet_path_only: self.packet_path_only,
            named: !self.symbols.are_hidden(),
        };
        profile.notes = notes(&profile);
        profile
    }
}

/// A stack in the folded format.
struct Folded {
    text: String,
    last: String,
}

impl Folded {
    fn new(thread: &str) -> Self {
        Self {
            text: clean(thread),
            last: String::new(),
        }
    }

    /// Frames in brackets are files, not functions: consecutive equal ones are merged.
    fn push(&mut self, frame: &str) {
        if frame == self.last && frame.starts_with('[') {
            return;
        }
        self.text.push(';');
        self.text.push_str(&clean(frame));
        frame.clone_into(&mut self.last);
    }
}

/// Replaces separators in a name, since threads choose their own.
fn clean(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            ';' => ':',
            c if c.is_control() => '?',
            c => c,
        })
        .collect()
}

fn notes(profile: &Profile) -> Vec<String> {
    let mut notes = Vec::new();
    if !profile.named {
        notes.push(
            "the kernel hides its symbols: its functions are shown as [kernel], and all samples are \
             shown, since the packet path is unknown; run with CAP_SYSLOG, and with \
             kernel.kptr_restrict at most 1 (`sysctl kernel.kptr_restrict`)"
                .into(),
        );
    } else if bpf_programs_are_hidden() {
        notes.push(
            "BPF programs have no symbols and may be shown as other functions: set \
             net.core.bpf_jit_kallsyms=1 and net.core.bpf_jit_harden=0"
                .into(),
        );
    }
    if profile.counts.lost > 0 {
        notes.push(format!(
            "{} samples lost, as the table of stacks was full: sample fewer CPUs or lower --frequency",
            profile.counts.lost
        ));
    }
    let missing = profile.share(profile.missing());
    if missing > 0.1 {
        notes.push(format!(
            "{:.1}% of the time has no samples: the kernel may stop the clock of an idle CPU, the \
             hypervisor may steal time, and the kernel throttles sampling that takes too long \
             (kernel.perf_cpu_time_max_percent)",
            missing * 100.0
        ));
    }
    notes
}

/// `bpf_jit_kallsyms_enabled` of linux/filter.h.
fn bpf_programs_are_hidden() -> bool {
    let setting = |name| fs::read_to_string(format!("/proc/sys/net/core/{name}"));
    let is = |name, value| setting(name).is_ok_and(|text| text.trim() == value);
    is("bpf_jit_kallsyms", "0") || is("bpf_jit_harden", "1") || is("bpf_jit_harden", "2")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A profile of these stacks, which are not counted.
    pub fn profile(stacks: &[(&str, u64)]) -> Profile {
        Profile {
            stacks: stacks
                .iter()
                .map(|&(stack, samples)| (stack.into(), samples))
                .collect(),
            counts: Counts::default(),
            clock: Clock::CpuClock,
            due: None,
            elapsed: Duration::ZERO,
            packet_path_only: true,
            named: true,
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_stack_is_folded_to_a_line() {
        let mut folded = Folded::new("a;b\n c");
        for frame in ["[libc.so.6]", "[libc.so.6]", "read", "read", "[libc.so.6]"] {
            folded.push(frame);
        }
        assert_eq!(folded.text, "a:b? c;[libc.so.6];read;read;[libc.so.6]");
    }

    #[test]
    fn the_folded_format() {
        let profile = profile(&[("b;f;g", 2), ("a;f", 1)]);
        assert_eq!(profile.folded(), "a;f 1\nb;f;g 2\n");
        assert_eq!(profile.shown(), 3);
    }

    #[test]
    fn shares_are_of_the_time_that_was_sampled() {
        let mut profile = profile(&[]);
        profile.counts.taken = 50;
        assert!((profile.share(25) - 0.5).abs() < 1e-9);
        assert_eq!(profile.missing(), 0);
        profile.due = Some(100);
        assert!((profile.share(25) - 0.25).abs() < 1e-9);
        assert_eq!(profile.missing(), 50);
        assert!(notes(&profile)[0].starts_with("50.0% of the time has no samples"));
        profile.due = Some(49); // the clock may be one ahead
        assert_eq!(profile.missing(), 0);
        assert!(profile.share(50) <= 1.0);
    }

    #[test]
    fn leaves_have_their_own_samples_only() {
        let profile = profile(&[("a;f;g", 2), ("a;f", 1), ("b;g", 3)]);
        assert_eq!(profile.leaves(), [("g", 5), ("f", 1)]);
    }
}

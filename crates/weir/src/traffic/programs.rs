//! The BPF programs of the load: one sends frames, the sinks verify or drop those that come back.

use std::ops::Range;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::frame::{APP_MAC, LOAD_MAC, Template, fold, sum};
use crate::bpf::{Attached, ENDLESS, Object, Programs};

static OBJECT: Object = Object {
    name: "load",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/load.bpf.o")),
    needs: "Linux 5.18, for BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES",
    layouts: &[],
    arrays_by_cpu: &[],
};

/// Parts of a frame, as in bpf/load.h.
const HEADER: Range<usize> = 0..40;
const UDP_CHECKSUM: Range<usize> = 40..42;
const PAYLOAD: usize = 50;
const TAIL: usize = 64;
/// One nanosecond in the program's unit of time.
const NANOSECOND: u64 = 1 << 10;
/// Where the words that are [`SinkCounts`] begin in `struct load_state`.
const SINK_STATE: usize = 8;

/// The bytes of `struct load_config` in bpf/load.h.
fn load_config(options: &LoadOptions, frame: &Template) -> Result<Vec<u8>> {
    let interval = match options.pps {
        Some(pps) => (1_000_000_000 * NANOSECOND)
            .checked_div(pps)
            .context("a load of 0 frames a second")?,
        None => 0,
    };
    let bytes = frame.bytes();
    let checksum = u16::from_ne_bytes(bytes[UDP_CHECKSUM].try_into()?);
    let sink_frame = Template::new(options.size, APP_MAC, LOAD_MAC)?;
    let words = [
        u64::from(options.ifindex),
        options.size as u64,
        interval,
        u64::from(!checksum),
        u64::from(fold(sum(&bytes[TAIL..]))),
    ];
    let mut config: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
    for same in [
        &bytes[HEADER],
        &sink_frame.bytes()[HEADER],
        &bytes[PAYLOAD..PAYLOAD + 8],
        &bytes[TAIL - 8..TAIL],
    ] {
        config.extend_from_slice(same);
    }
    let spread = &options.spread;
    let words = [spread.receivers, spread.by_port.into(), spread.flows];
    config.extend(words.into_iter().flat_map(u64::to_ne_bytes));
    Ok(config)
}

/// The frames of a [`Load`], and the fate of those that come back.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The device that frames leave by, in the calling thread's network namespace.
    pub ifindex: u32,
    /// Length of a frame without FCS, 64 to 1500.
    pub size: usize,
    /// Frames a second; `None` for as many as the CPU can make.
    pub pps: Option<u64>,
    /// The fate of frames that arrive at the device, if any.
    pub sink: Option<Sink>,
    /// Whom and in which flows to send to.
    pub spread: Spread,
}

/// The fate of frames that arrive at a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sink {
    /// Count, verify and drop them
    Verify,
    /// Drop them unseen, in the driver
    Drop,
}

impl Sink {
    /// The programs of bpf/load.bpf.c that it may need.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Verify => &["sink_tcx", "sink_xdp"],
            Self::Drop => &["drop"],
        }
    }

    /// Attaches a sink that verifies where it costs least: at tcx (Linux 6.6), before the network
    /// stack. As an XDP program it costs some 190 ns more a frame, since a veth copies each frame
    /// that a socket sent into a page of its own before it shows it to XDP.
    fn attach(self, programs: &Programs, ifindex: u32) -> Result<Attached> {
        match self {
            Self::Verify => programs
                .attach_tcx("sink_tcx", ifindex)
                .or_else(|_| programs.attach_xdp("sink_xdp", ifindex)),
            Self::Drop => programs.attach_xdp("drop", ifindex),
        }
    }
}

/// How frames differ from each other, besides in their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Frames are for each of so many receivers in turn, see [`receiver_mac`].
    pub receivers: u64,
    /// Receivers differ in the UDP destination port, counted up, instead of the MAC address.
    pub by_port: bool,
    /// The UDP source port takes so many values in turn, counted up.
    pub flows: u64,
}

impl Default for Spread {
    /// One receiver and one flow.
    fn default() -> Self {
        Self {
            receivers: 1,
            by_port: false,
            flows: 1,
        }
    }
}

/// The MAC address of a receiver, counted from 0: the first one has that of the application's
/// side, the others differ in its fifth byte.
pub fn receiver_mac(receiver: u8) -> [u8; 6] {
    let mut mac = APP_MAC;
    mac[4] += receiver;
    mac
}

/// What the sink has received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SinkCounts {
    /// All frames.
    pub packets: u64,
    /// Frames of a wrong length, header or checksum.
    pub corrupted: u64,
    /// Frames seen before, or too late to tell.
    pub duplicates: u64,
    /// Frames that came after one with a higher number.
    pub reordered: u64,
    /// Numbers passed over that have not come since.
    pub lost: u64,
}

/// The load, and the sink for what comes back, ready to run on a device.
#[must_use = "the sink is detached when this is dropped"]
pub struct Load {
    programs: Programs,
    frame: Template,
    _sink: Option<Attached>,
}

impl Load {
    /// Loads the programs, and attaches the sink if there is to be one.
    pub fn new(options: &LoadOptions) -> Result<Self> {
        let frame = Template::new(options.size, LOAD_MAC, APP_MAC)?;
        let config = load_config(options, &frame)?;
        let sink_programs = options.sink.map_or(&[][..], Sink::programs);
        let programs = Programs::load(&OBJECT, Some(&config), |name| {
            name == "load" || sink_programs.contains(&name)
        })?;
        let sink = options
            .sink
            .map(|sink| sink.attach(&programs, options.ifindex))
            .transpose()?;
        Ok(Self {
            programs,
            frame,
            _sink: sink,
        })
    }

    /// Sends frames until a signal comes.
    ///
    /// The frames of one call have consecutive numbers, and a further call continues them.
    pub fn run(&self) -> Result<()> {
        self.send(ENDLESS)
    }

    /// Sends so many frames, fewer if a signal comes.
    pub fn send(&self, frames: u32) -> Result<()> {
        self.programs
            .run_on_live_frames("load", self.frame.bytes(), frames)
    }

    /// How many frames were sent.
    pub fn sent(&self) -> Result<u64> {
        Ok(self.state()?[0])
    }

    /// What the sink has received: nothing if there is none.
    pub fn sink(&self) -> Result<SinkCounts> {
        let state = self.state()?;
        let &[packets, corrupted, duplicates, reordered, lost] = state[SINK_STATE..]
            .first_chunk()
            .context("load.bpf.o has other counters")?;
        Ok(SinkCounts {
            packets,
            corrupted,
            duplicates,
            reordered,
            lost,
        })
    }

    /// The counters of `struct load_state` in bpf/load.h.
    fn state(&self) -> Result<Vec<u64>> {
        let bytes = self.programs.variables(".bss")?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }
}

//! The BPF programs of the load: one sends frames, the sinks verify or drop those that come back.

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use zerocopy::IntoBytes as _;

use super::frame::{
    APP_MAC, LOAD_MAC, MAX_LIVE_SIZE, MAX_SIZE, MIN_SIZE, PATTERN, SEQUENCE, Template, UDP,
    UDP_CHECKSUM, WINDOW_WORDS, fold, sum,
};
use super::ring::RingLoad;
use crate::bpf::layout::{Constants, shared_structs};
use crate::bpf::{Attached, ENDLESS, Object, Programs};

static OBJECT: Object = Object {
    name: "load",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/load.bpf.o")),
    needs: "Linux 5.18, for BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES",
    layouts: &[LoadConfig::LAYOUT, SinkCounts::LAYOUT, LoadState::LAYOUT],
    constants: &[CONSTANTS],
    arrays_by_cpu: &[],
};

/// Words of a frame before its UDP checksum.
const HEADER_WORDS: usize = 5;
/// The byte of the destination's MAC address that differs between receivers.
const MAC_RECEIVER: usize = 4;
/// The UDP destination port, which may differ between receivers.
const UDP_DESTINATION: usize = UDP + 2;
/// The number of a station, in the destination's and in the source's MAC address.
const STATION_DESTINATION: usize = 2;
const STATION_SOURCE: usize = 8;
/// Where the words of the payload that are compared one by one end, and its sum begins.
const TAIL: usize = MIN_SIZE;
/// Bits below the nanosecond in the program's times.
const TIME_BITS: usize = 10;

const CONSTANTS: Constants = Constants {
    name: "load_constants",
    values: &[
        ("HEADER_WORDS", HEADER_WORDS),
        ("MAX_SIZE", MAX_SIZE),
        ("MAC_RECEIVER", MAC_RECEIVER),
        ("UDP_SOURCE", UDP),
        ("UDP_DESTINATION", UDP_DESTINATION),
        ("UDP_CHECKSUM", UDP_CHECKSUM),
        ("SEQUENCE", SEQUENCE),
        ("PAYLOAD", PATTERN),
        ("TAIL", TAIL),
        ("STATION_DESTINATION", STATION_DESTINATION),
        ("STATION_SOURCE", STATION_SOURCE),
        ("TIME_BITS", TIME_BITS),
        ("WINDOW_WORDS", WINDOW_WORDS as usize),
    ],
};

/// The program of [`least`], which drops each frame.
pub const LEAST: &str = "drop";

/// The program that does the least for a frame, to find out the cost of running one.
pub fn least() -> Result<Programs> {
    Programs::load(&OBJECT, None, |name| name == LEAST)
}

shared_structs! {
    /// The constants of the programs; bpf/load.h describes them.
    struct LoadConfig = "load_config" {
        ifindex: u64,
        size: u64,
        interval: u64,
        burst: u64,
        sum: u64,
        tail_sum: u64,
        load_header: [u64; HEADER_WORDS],
        sink_header: [u64; HEADER_WORDS],
        payload: [u64; 2],
        receivers: u64,
        by_port: u64,
        flows: u64,
        stations: u64,
        sweep: u64,
    }

    /// The fate of the frames that the sink received.
    #[derive(Default, serde::Serialize, serde::Deserialize)]
    pub struct SinkCounts = "sink_counts" {
        /// All frames.
        packets: u64,
        /// Frames of a wrong length, header or checksum.
        corrupted: u64,
        /// Frames seen before, or too late to distinguish from one.
        duplicates: u64,
        /// Frames that came after one with a higher number.
        reordered: u64,
        /// Numbers passed over that have not come since.
        lost: u64,
    }

    /// The variables of the programs; bpf/load.h describes them.
    struct LoadState = "load_state" {
        sent: u64,
        due: u64,
        padding: [u64; 6],
        sink: SinkCounts,
        expected: u64,
        seen: [u64; WINDOW_WORDS as usize],
    }
}

impl LoadConfig {
    fn new(options: &LoadOptions, frame: &Template) -> Result<Self> {
        let interval = match options.pps {
            Some(pps) => (options.burst * (1_000_000_000_u64 << TIME_BITS))
                .checked_div(pps)
                .context("a load of 0 frames a second")?,
            None => 0,
        };
        let bytes = frame.bytes();
        let checksum = u16::from_ne_bytes([bytes[UDP_CHECKSUM], bytes[UDP_CHECKSUM + 1]]);
        let sink_frame = Template::new(options.size, APP_MAC, LOAD_MAC)?;
        let spread = &options.spread;
        Ok(Self {
            ifindex: options.ifindex.into(),
            size: options.size as u64,
            interval,
            burst: options.burst,
            sum: (!checksum).into(),
            tail_sum: fold(sum(&bytes[TAIL..])).into(),
            load_header: words(bytes, 0),
            sink_header: words(sink_frame.bytes(), 0),
            payload: [
                words::<1>(bytes, PATTERN)[0],
                words::<1>(bytes, TAIL - 8)[0],
            ],
            receivers: spread.receivers,
            by_port: spread.by_port.into(),
            flows: spread.flows,
            stations: spread.stations.map_or(0, |it| it.pairs),
            sweep: spread.stations.is_some_and(|it| it.sweep).into(),
        })
    }
}

/// Words of a frame from a byte on, in the machine's byte order.
fn words<const N: usize>(frame: &[u8], from: usize) -> [u64; N] {
    let (words, _) = frame[from..].as_chunks::<8>();
    std::array::from_fn(|at| u64::from_ne_bytes(words[at]))
}

/// The frames of a [`Load`], and the fate of those that come back.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The device that frames leave by, in the calling thread's network namespace.
    pub ifindex: u32,
    /// Length of a frame without FCS, 64 to 9000. Frames beyond 1500 have one receiver and one flow, and
    /// no bursts.
    pub size: usize,
    /// Frames a second; `None` for as many as the CPU can make.
    pub pps: Option<u64>,
    /// Frames that are sent at once, at least 1: the rate is that of all.
    pub burst: u64,
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
    /// Frames are between stations instead of from one sender.
    pub stations: Option<Stations>,
}

/// Pairs of stations, one on either side of a switch, that talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stations {
    /// The number of pairs.
    pub pairs: u64,
    /// Each pair sends in turn, instead of by a hash of the frame's number.
    pub sweep: bool,
    /// The side that frames come from.
    pub from: StationSide,
}

/// The side of a switch that a station is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StationSide {
    /// That of the load.
    Near,
    /// The other one.
    Far,
}

impl StationSide {
    /// The other one.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

/// The MAC address of a station, counted from 0 on each side.
pub fn station_mac(side: StationSide, number: u32) -> [u8; 6] {
    let side = match side {
        StationSide::Near => 0xa1,
        StationSide::Far => 0xa2,
    };
    let [a, b, c, d] = number.to_be_bytes();
    [0x02, side, a, b, c, d]
}

impl Default for Spread {
    /// One receiver and one flow.
    fn default() -> Self {
        Self {
            receivers: 1,
            by_port: false,
            flows: 1,
            stations: None,
        }
    }
}

impl Spread {
    /// The frame that differs from those sent in its number and in what the spread changes.
    fn template(&self, size: usize) -> Result<Template> {
        match self.stations {
            Some(stations) => {
                let (from, to) = (stations.from, stations.from.opposite());
                Template::new(size, station_mac(from, 0), station_mac(to, 0))
            }
            None => Template::new(size, LOAD_MAC, APP_MAC),
        }
    }
}

/// The MAC address of a receiver, counted from 0: the first one has that of the application's
/// side, the others differ in its fifth byte.
pub fn receiver_mac(receiver: u8) -> [u8; 6] {
    let mut mac = APP_MAC;
    mac[MAC_RECEIVER] += receiver;
    mac
}

/// The load, and the sink for what comes back, ready to run on a device.
#[must_use = "the sink is detached when this is dropped"]
pub struct Load {
    programs: Programs,
    sender: Sender,
    _sink: Option<Attached>,
}

/// What sends the frames of a load.
enum Sender {
    /// The program `load`, on frames like this one.
    Program(Template),
    /// A ring: the frames are too long for the program.
    Ring(Box<RingLoad>),
}

impl Load {
    /// Loads the programs, and attaches the sink if there is to be one.
    pub fn new(options: &LoadOptions) -> Result<Self> {
        let frame = options.spread.template(options.size)?;
        let config = LoadConfig::new(options, &frame)?;
        let by_ring = options.size > MAX_LIVE_SIZE;
        let sink_programs = options.sink.map_or(&[][..], Sink::programs);
        let programs = Programs::load(&OBJECT, Some(config.as_bytes()), |name| {
            !by_ring && name == "load" || sink_programs.contains(&name)
        })?;
        let sink = options
            .sink
            .map(|sink| sink.attach(&programs, options.ifindex))
            .transpose()?;
        let sender = if by_ring {
            ensure!(
                options.spread == Spread::default() && options.burst == 1,
                "frames of more than {MAX_LIVE_SIZE} bytes have one receiver and one flow, and no bursts"
            );
            Sender::Ring(Box::new(RingLoad::new(
                options.ifindex,
                frame,
                options.pps,
            )?))
        } else {
            Sender::Program(frame)
        };
        Ok(Self {
            programs,
            sender,
            _sink: sink,
        })
    }

    /// Sends frames until a signal comes, or for a moment.
    ///
    /// The frames of one call have consecutive numbers, and a further call continues them.
    pub fn run(&mut self) -> Result<()> {
        match &mut self.sender {
            Sender::Program(_) => self.send(ENDLESS),
            Sender::Ring(ring) => ring.run(),
        }
    }

    /// Sends so many frames, fewer if a signal comes.
    pub fn send(&mut self, frames: u32) -> Result<()> {
        match &mut self.sender {
            Sender::Program(frame) => {
                self.programs
                    .run_on_live_frames("load", frame.bytes(), frames)
            }
            Sender::Ring(ring) => ring.send(frames),
        }
    }

    /// How many frames the device took, if it dropped so many meanwhile. Returns when it has them all.
    pub fn finish(&mut self, dropped: u64) -> Result<u64> {
        match &mut self.sender {
            // The program counts the frames that it hands over. Another load may run beside a sink that
            // sends nothing.
            Sender::Program(_) => Ok(self.state()?.sent.saturating_sub(dropped)),
            Sender::Ring(ring) => {
                ring.finish()?;
                Ok(ring.sent())
            }
        }
    }

    /// The frames that the sink has received; all 0 if there is no sink.
    pub fn sink(&self) -> Result<SinkCounts> {
        Ok(self.state()?.sink)
    }

    fn state(&self) -> Result<LoadState> {
        self.programs.variable(".bss")
    }
}

/// The end behind a switch of frames between stations: counts, checks and drops them.
#[must_use = "the sink is detached when this is dropped"]
pub struct StationSink {
    programs: Programs,
    _attached: Attached,
}

/// The hook of a [`StationSink`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkHook {
    /// XDP in the driver: the cheapest for frames that a kernel's path forwards.
    Xdp,
    /// tcx (Linux 6.6), else XDP: the cheapest for frames that a socket sent.
    Tcx,
}

impl StationSink {
    /// Attaches it to a device of the calling thread's network namespace, for hashed frames of so
    /// many pairs of stations from the [near](StationSide::Near) side.
    pub fn attach(ifindex: u32, size: usize, pairs: u64, hook: SinkHook) -> Result<Self> {
        let options = LoadOptions {
            ifindex,
            size,
            pps: None,
            burst: 1,
            sink: None,
            spread: Spread {
                stations: Some(Stations {
                    pairs,
                    sweep: false,
                    from: StationSide::Near,
                }),
                ..Spread::default()
            },
        };
        let frame = options.spread.template(size)?;
        let config = LoadConfig::new(&options, &frame)?;
        let programs = Programs::load(&OBJECT, Some(config.as_bytes()), |name| {
            ["count_xdp", "count_tcx"].contains(&name)
        })?;
        let xdp = || programs.attach_xdp("count_xdp", ifindex);
        let attached = match hook {
            SinkHook::Xdp => xdp(),
            SinkHook::Tcx => programs.attach_tcx("count_tcx", ifindex).or_else(|_| xdp()),
        };
        Ok(Self {
            _attached: attached?,
            programs,
        })
    }

    /// The frames so far: all of them, and those that are not as the load made them.
    pub fn counts(&self) -> Result<SinkCounts> {
        Ok(self.programs.variable::<LoadState>(".bss")?.sink)
    }
}

#[cfg(test)]
mod tests {
    use super::OBJECT;

    #[test]
    fn types_are_those_of_the_header() {
        OBJECT.check().expect("the same types");
    }
}

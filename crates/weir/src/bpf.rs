//! The BPF programs that are compiled from `bpf/` into `weir`, through libbpf. No other file
//! names it.
//!
//! Programs and maps are held by descriptors and a `bpf_link`, so that the kernel removes all of
//! it when the process ends, however it ends.
//!
//! Unsafe code is needed for the one call of libbpf that libbpf-rs has no wrapper for.
#![allow(unsafe_code)]

use std::{
    ops::Range,
    ptr::{self, NonNull},
};

use anyhow::{Context as _, Result, anyhow};
use libbpf_rs::{
    AsRawLibbpf as _, ErrorKind, Link, MapCore as _, MapFlags, Object, ObjectBuilder, OpenObject,
    ProgramInput, ProgramMut, libbpf_sys, query::ProgInfoIter,
};

use crate::bench::frame::{APP_MAC, LOAD_MAC, Template, fold, sum};

static LOAD_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/load.bpf.o"));

/// `BPF_F_TEST_XDP_LIVE_FRAMES` of linux/bpf.h: what the program redirects is really sent.
const LIVE_FRAMES: u32 = 1 << 1;
/// How often one system call runs the program. Nothing is sent while a call is set up and torn
/// down (10 to 100 us on Linux 6.18, by measurement; tens of milliseconds have been seen on
/// others), so there should be one for a whole load: at 10 million runs a second this one lasts
/// 200 s. A signal ends it at once.
const REPEAT: u32 = 1 << 31;
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
    Ok(config)
}

/// What a [`Load`] is to send and to receive.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The device that frames leave by, in the calling thread's network namespace.
    pub ifindex: u32,
    /// Length of a frame without FCS, 64 to 1500.
    pub size: usize,
    /// Frames a second; `None` for as many as the CPU can make.
    pub pps: Option<u64>,
    /// Whether to count, verify and drop what arrives at the device.
    pub sink: bool,
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
    object: Object,
    frame: Template,
    _sink: Option<Link>,
}

impl Load {
    /// Loads the programs, and attaches the sink if there is to be one.
    pub fn new(options: &LoadOptions) -> Result<Self> {
        let frame = Template::new(options.size, LOAD_MAC, APP_MAC)?;
        let mut object = open(LOAD_OBJECT)?;
        let config = load_config(options, &frame)?;
        object
            .maps_mut()
            .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
            .context("load.bpf.o has no configuration")?
            .set_initial_value(&config)
            .context("load.bpf.o has another configuration than src/bpf.rs")?;
        for mut program in object.progs_mut() {
            if program.name() != "load" && !options.sink {
                program.set_autoload(false);
            }
        }
        let object = object.load().map_err(load_error)?;
        let sink = options
            .sink
            .then(|| attach_sink(&object, options.ifindex))
            .transpose()?;
        Ok(Self {
            object,
            frame,
            _sink: sink,
        })
    }

    /// Sends frames until a signal comes.
    ///
    /// The frames of one call have consecutive numbers, and a further call continues them.
    pub fn run(&self) -> Result<()> {
        let result = program(&self.object, "load")?.test_run(ProgramInput {
            data_in: Some(self.frame.bytes()),
            flags: LIVE_FRAMES,
            repeat: REPEAT,
            ..ProgramInput::default()
        });
        match result {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(run_error(error)),
        }
    }

    /// How many frames [`run`](Self::run) has sent.
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
        let map = self
            .object
            .maps()
            .find(|map| map.name().to_string_lossy().ends_with(".bss"))
            .context("load.bpf.o has no counters")?;
        let bytes = map
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .context("cannot read the load's counters")?
            .context("load.bpf.o has no counters")?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }
}

/// Opens a compiled object. libbpf says nothing by itself: errors are told once, by us; with
/// `WEIR_BPF_LOG` set it tells all, with the verifier's log.
fn open(object: &[u8]) -> Result<OpenObject> {
    if std::env::var_os("WEIR_BPF_LOG").is_none() {
        libbpf_rs::set_print(None);
    }
    ObjectBuilder::default()
        .open_memory(object)
        .context("cannot read a BPF object of this program")
}

fn load_error(error: libbpf_rs::Error) -> anyhow::Error {
    let cure = match error.kind() {
        ErrorKind::PermissionDenied => "this needs CAP_BPF and CAP_NET_ADMIN: run it as root",
        ErrorKind::Unsupported => "this kernel has no BPF (CONFIG_BPF_SYSCALL)",
        _ => "this kernel may be too old (Linux 5.18 is needed); WEIR_BPF_LOG=1 shows the details",
    };
    anyhow!(error).context(format!("cannot load the BPF programs of the load: {cure}"))
}

fn run_error(error: libbpf_rs::Error) -> anyhow::Error {
    let cure = match error.kind() {
        ErrorKind::PermissionDenied => "this needs CAP_BPF and CAP_NET_ADMIN: run it as root",
        _ => "it needs Linux 5.18, for BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES",
    };
    anyhow!(error).context(format!("cannot run the load: {cure}"))
}

/// Attaches the sink where it costs least: at tcx (Linux 6.6), before the network stack. As an
/// XDP program it costs some 190 ns more a frame, since a veth copies each frame that a socket
/// sent into a page of its own before it shows it to XDP.
fn attach_sink(object: &Object, ifindex: u32) -> Result<Link> {
    attach_tcx(&program(object, "sink_tcx")?, ifindex).or_else(|_| {
        program(object, "sink_xdp")?
            .attach_xdp(ifindex.cast_signed())
            .map_err(|error| {
                let cure = match error.kind() {
                    ErrorKind::PermissionDenied => "this needs CAP_NET_ADMIN: run it as root",
                    _ => "is there another XDP program on the device? `bpftool net` shows it",
                };
                anyhow!(error).context(format!("cannot attach the sink: {cure}"))
            })
    })
}

fn attach_tcx(program: &ProgramMut<'_>, ifindex: u32) -> Result<Link> {
    let raw = program.as_libbpf_object().as_ptr();
    // SAFETY: needed because libbpf-rs does not offer tcx. `raw` is a loaded program that
    // `program` keeps alive, and libbpf takes no options for a null pointer.
    let link =
        unsafe { libbpf_sys::bpf_program__attach_tcx(raw, ifindex.cast_signed(), ptr::null()) };
    let link = NonNull::new(link).ok_or_else(std::io::Error::last_os_error)?;
    // SAFETY: needed to own what libbpf made. The link was made two lines above, and nothing
    // else has it.
    Ok(unsafe { Link::from_ptr(link) })
}

fn program<'obj>(object: &'obj Object, name: &str) -> Result<ProgramMut<'obj>> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .with_context(|| format!("load.bpf.o has no program {name}"))
}

/// The numbers of all programs in the kernel.
pub fn program_ids() -> Vec<u32> {
    ProgInfoIter::default().map(|program| program.id).collect()
}

//! Sends frames and prints those that arrive, to see by what way a switch forwards them:
//!
//!     frames [--wait MS] [--together] END[:FRAME]… [= ARRIVAL…]
//!
//! An end is a device of a named network namespace, as `NAMESPACE` (its device is `eth0`) or
//! `NAMESPACE/DEVICE`. The frames are sent in their order, each from its end. What arrives at any
//! of the ends is printed as `END FRAME`, sorted, until nothing came for MS milliseconds (100). With
//! `=` it is printed only if it differs from these arrivals, and then the program fails. With
//! `--together` the ends of a namespace are one, and printed as `NAMESPACE FRAME`.
//!
//! A frame is `SOURCE-DESTINATION[@TAG]…[+LENGTH][xCOUNT]`:
//!
//! | Part | |
//! |---|---|
//! | `SOURCE`, `DESTINATION` | the number N of the address 02:00:00:00:00:N; as destination also `b` for broadcast, `m` for a multicast address, `l` for a link-local one that no bridge forwards |
//! | `TAG` | VLAN id, outermost tag first; `s20` has the EtherType of 802.1ad; `20.5` has priority 5 |
//! | `LENGTH` | bytes without tags and FCS, 60 where it is not given |
//! | `COUNT` | so many copies, 1 where it is not given |
//!
//! A received frame whose payload is not the one that was sent ends with `!`. Frames of other
//! protocols than that of local experiments (EtherType 0x88b5) are not printed.
//!
//! Unsafe code is needed for the system calls of packet(7) that rustix does not have.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io;
use std::mem::{size_of_val, zeroed};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use hostnet::device::Device;
use hostnet::netns;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// The EtherType of local experiments (IEEE 802).
const EXPERIMENT: u16 = 0x88b5;
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
/// Two addresses and an EtherType.
const HEADER: usize = 14;
const SHORTEST: usize = 60;
const LONGEST: usize = 9014;
/// Room for a burst, so that a reader that waits for its CPU loses nothing.
const RECEIVE_BUFFER: usize = 16 << 20;
/// Between two looks at the ends.
const PAUSE: Duration = Duration::from_millis(5);
const BROADCAST: [u8; 6] = [0xff; 6];
const MULTICAST: [u8; 6] = [0x01, 0, 0x5e, 0, 0, 7];
/// LLDP's, one of those that 802.1D reserves.
const LINK_LOCAL: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x0e];

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("frames: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether what arrived is what was expected.
fn run(words: impl Iterator<Item = String>) -> Result<bool> {
    let mut words = words.peekable();
    let mut wait = 100;
    if words.next_if(|word| word == "--wait").is_some() {
        let word = words.next().ok_or("--wait needs milliseconds")?;
        wait = word.parse().map_err(|_| format!("no number: {word}"))?;
    }
    let together = words.next_if(|word| word == "--together").is_some();
    let mut compares = false;
    let mut ends: BTreeMap<String, End> = BTreeMap::new();
    let mut frames = Vec::new();
    for word in words.by_ref() {
        if word == "=" {
            compares = true;
            break;
        }
        let (name, frame) = word
            .split_once(':')
            .map_or((&*word, None), |(name, frame)| (name, Some(frame)));
        if !ends.contains_key(name) {
            ends.insert(name.into(), End::open(name)?);
        }
        if let Some(frame) = frame {
            let (frame, count) = match frame.rsplit_once('x') {
                Some((frame, count)) => (frame, count.parse().map_err(|_| bad(frame))?),
                None => (frame, 1),
            };
            frames.push((name.to_owned(), frame.parse::<Frame>()?, count));
        }
    }
    for (name, frame, count) in &frames {
        for _ in 0..*count {
            ends[name].send(&frame.bytes())?;
        }
    }
    let arrivals = lines(&received(&ends, together, Duration::from_millis(wait))?);
    let as_expected = !compares || {
        let mut expected: Vec<_> = words.collect();
        expected.sort();
        arrivals == expected
    };
    if !compares || !as_expected {
        for line in &arrivals {
            println!("{line}");
        }
    }
    Ok(as_expected)
}

/// What arrived, and how often.
fn received(
    ends: &BTreeMap<String, End>,
    together: bool,
    wait: Duration,
) -> Result<BTreeMap<String, u32>> {
    let mut seen = BTreeMap::new();
    let mut last = Instant::now();
    while last.elapsed() < wait {
        thread::sleep(PAUSE);
        for (name, end) in ends {
            let name = match name.split_once('/') {
                Some((namespace, _)) if together => namespace,
                _ => name,
            };
            while let Some(arrival) = end.receive()? {
                last = Instant::now();
                if let Arrival::Frame(frame) = arrival {
                    *seen.entry(format!("{name} {frame}")).or_default() += 1;
                }
            }
        }
    }
    Ok(seen)
}

/// Sorted as text.
fn lines(seen: &BTreeMap<String, u32>) -> Vec<String> {
    let line = |(line, count): (&String, &u32)| match count {
        1 => line.clone(),
        _ => format!("{line}x{count}"),
    };
    let mut lines: Vec<_> = seen.iter().map(line).collect();
    lines.sort();
    lines
}

/// An AF_PACKET socket on a device.
struct End(OwnedFd);

impl End {
    fn open(name: &str) -> Result<Self> {
        let (namespace, device) = name.split_once('/').unwrap_or((name, "eth0"));
        let path = format!("/run/netns/{namespace}");
        let file = File::open(&path).map_err(|error| format!("cannot open {path}: {error}"))?;
        netns::run_in(file.as_fd(), || -> Result<Self> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(
                AddressFamily::PACKET,
                SocketType::RAW,
                flags,
                Some(eth::ALL),
            )?;
            bind(&socket, Device::open(device)?.index()?)?;
            report_tags(&socket)?;
            set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)?;
            let end = Self(socket);
            // Those that came before it was bound may be of other devices.
            while end.receive()?.is_some() {}
            Ok(end)
        })
        .map_err(|error| format!("cannot use {name}: {error}").into())
    }

    fn send(&self, frame: &[u8]) -> Result<()> {
        rustix::io::write(&self.0, frame).map_err(|error| format!("cannot send: {error}"))?;
        Ok(())
    }

    /// The next arrival, if there is one.
    fn receive(&self) -> Result<Option<Arrival>> {
        let mut buffer = [0; LONGEST + 64];
        let Some((length, from, tag)) = receive(&self.0, &mut buffer)? else {
            return Ok(None);
        };
        let frame = describe(&buffer[..length], tag);
        Ok(Some(match frame {
            Some(frame) if from.sll_pkttype != libc::PACKET_OUTGOING => Arrival::Frame(frame),
            _ => Arrival::Other,
        }))
    }
}

enum Arrival {
    /// One of those that are printed.
    Frame(String),
    Other,
}

fn bind(socket: &OwnedFd, ifindex: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: ifindex.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: needed because rustix has no such address. Sound because the kernel reads `length`
    // bytes of a structure that is as long and lives until the call returns.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    outcome(result as isize).map(drop)
}

/// The kernel takes the outermost tag out of the frame; asks for it beside the frame.
fn report_tags(socket: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = size_of_val(&on) as libc::socklen_t;
    // SAFETY: needed because rustix has no such option. Sound because the kernel reads `length`
    // bytes of an integer that is as long and lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_AUXDATA,
            (&raw const on).cast(),
            length,
        )
    };
    outcome(result as isize).map(drop)
}

/// The control message of one `tpacket_auxdata`, whose alignment is that of its header.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    data: libc::tpacket_auxdata,
}

/// One frame: its length, its sender as packet(7) has it, and the tag that the kernel took out.
fn receive(
    socket: &OwnedFd,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, libc::sockaddr_ll, Option<Tag>)>> {
    // SAFETY: needed because the structures have private padding. Sound because zeros are a value
    // of each of their integers and pointers.
    let (mut from, mut control, mut message): (libc::sockaddr_ll, Control, libc::msghdr) =
        unsafe { zeroed() };
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = size_of_val(&from) as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: needed because rustix does not know this control message. Sound because each pointer
    // of the message is to a place that lives until the call returns, beside it its size.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = match outcome(result) {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    let told = (control.header.cmsg_level, control.header.cmsg_type)
        == (libc::SOL_PACKET, libc::PACKET_AUXDATA);
    let data = control.data;
    let tag = (told && data.tp_status & libc::TP_STATUS_VLAN_VALID != 0).then_some(Tag {
        service: data.tp_vlan_tpid == SERVICE_TAG,
        tci: data.tp_vlan_tci,
    });
    Ok(Some((length, from, tag)))
}

fn outcome(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[derive(Clone, Copy)]
struct Tag {
    service: bool,
    tci: u16,
}

impl FromStr for Tag {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (service, rest) = match text.strip_prefix('s') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (id, priority) = rest.split_once('.').unwrap_or((rest, "0"));
        let id: u16 = id.parse().map_err(|_| bad(text))?;
        let priority: u16 = priority.parse().map_err(|_| bad(text))?;
        if id > 0xfff || priority > 7 {
            return Err(bad(text));
        }
        Ok(Self {
            service,
            tci: priority << 13 | id,
        })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = if self.service { "s" } else { "" };
        write!(f, "@{service}{}", self.tci & 0xfff)?;
        match self.tci >> 13 {
            0 => Ok(()),
            priority => write!(f, ".{priority}"),
        }
    }
}

struct Frame {
    source: [u8; 6],
    destination: [u8; 6],
    tags: Vec<Tag>,
    length: usize,
}

fn bad(text: &str) -> Error {
    format!("cannot read {text:?} as a frame: see the comment at the top of frames.rs").into()
}

impl FromStr for Frame {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (rest, length) = match text.split_once('+') {
            Some((rest, length)) => (rest, length.parse().map_err(|_| bad(text))?),
            None => (text, SHORTEST),
        };
        let mut parts = rest.split('@');
        let addresses = parts.next().and_then(|pair| pair.split_once('-'));
        let (source, destination) = addresses.ok_or_else(|| bad(text))?;
        if !(SHORTEST..=LONGEST).contains(&length) {
            return Err(format!("{length} bytes: a frame has {SHORTEST} to {LONGEST}").into());
        }
        Ok(Self {
            source: address(source).ok_or_else(|| bad(text))?,
            destination: address(destination).ok_or_else(|| bad(text))?,
            tags: parts.map(str::parse).collect::<Result<_>>()?,
            length,
        })
    }
}

fn address(text: &str) -> Option<[u8; 6]> {
    match text {
        "b" => Some(BROADCAST),
        "m" => Some(MULTICAST),
        "l" => Some(LINK_LOCAL),
        _ => Some([2, 0, 0, 0, 0, text.parse().ok()?]),
    }
}

fn address_text(address: &[u8]) -> String {
    match address {
        [2, 0, 0, 0, 0, number] => number.to_string(),
        _ if address == BROADCAST => "b".into(),
        _ if address == MULTICAST => "m".into(),
        _ if address == LINK_LOCAL => "l".into(),
        _ => format!("{address:02x?}"),
    }
}

/// The bytes of the payload, which no header has.
fn payload(length: usize) -> impl Iterator<Item = u8> {
    (0..length).map(|at| (at as u8) ^ 0xa5)
}

impl Frame {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.destination, self.source].concat();
        for tag in &self.tags {
            let protocol = if tag.service {
                SERVICE_TAG
            } else {
                CUSTOMER_TAG
            };
            bytes.extend(protocol.to_be_bytes());
            bytes.extend(tag.tci.to_be_bytes());
        }
        bytes.extend(EXPERIMENT.to_be_bytes());
        bytes.extend(payload(self.length - HEADER));
        bytes
    }
}

/// A received frame and the tag that the kernel took out; `None` if it has another EtherType.
fn describe(bytes: &[u8], outer: Option<Tag>) -> Option<String> {
    let (addresses, mut rest) = bytes.split_at_checked(12)?;
    let mut tags = Vec::from_iter(outer);
    loop {
        let protocol = u16::from_be_bytes(rest.get(..2)?.try_into().ok()?);
        let service = protocol == SERVICE_TAG;
        if !service && protocol != CUSTOMER_TAG {
            break;
        }
        let tci = u16::from_be_bytes(rest.get(2..4)?.try_into().ok()?);
        tags.push(Tag { service, tci });
        rest = rest.get(4..)?;
    }
    let data = rest.strip_prefix(&EXPERIMENT.to_be_bytes())?;
    let mut text = format!(
        "{}-{}",
        address_text(&addresses[6..]),
        address_text(&addresses[..6])
    );
    for tag in tags {
        let _ = write!(text, "{tag}");
    }
    let length = data.len() + HEADER;
    if length != SHORTEST {
        let _ = write!(text, "+{length}");
    }
    if !payload(data.len()).eq(data.iter().copied()) {
        text.push('!');
    }
    Some(text)
}

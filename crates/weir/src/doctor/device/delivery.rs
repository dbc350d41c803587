//! Frames of the doctor's own through an AF_XDP socket on a device, with `--xdp`.

use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use hostnet::netns;
use xsk::{ErrorKind, Filter, Mode, Rule, Socket, Umem};

use super::each::{below, each};
use crate::doctor::check::Check;
use crate::doctor::context::Context;
use crate::doctor::context::device::{Device, Link};
use crate::doctor::evidence::Evidence;
use crate::doctor::fix::Fix;
use crate::doctor::severity::Severity;
use crate::doctor::verdict::Verdict;
use crate::traffic::tpacket::{self, Rings, Shape, Version};

/// The checks of this file, in the order of `--list`.
pub const CHECKS: &[Check] = &[XDP_DELIVERY];

/// The one check that does more than read.
pub const XDP_DELIVERY: Check = Check {
    id: "xdp-delivery",
    title: "no frame reaches an AF_XDP socket on the device",
    severity: Severity::Critical,
    why: "A program that is attached and a socket that is bound do not say that packets arrive: some drivers and kinds of devices lose them, or hand them to the network stack.",
    source: "xsk_rcv_check in net/xdp/xsk.c; docs/guide/src/limits.md, Devices",
    more: "Only with --xdp, and only for the devices of --dev. Opens an AF_XDP socket on queue 0 in each mode that programs \
           obtain (zero-copy, native XDP, generic XDP), with a program that takes frames of the EtherType 0x88b5 (for \
           experiments, IEEE 802) alone, and passes all others on. Some cards lose their link for seconds when a program is attached.\n\n\
           Frames to the device's own address are sent if they cannot leave this host: by the loopback itself; by the peer of a \
           veth, also in another network namespace; by the peers of veths below a bridge, bond, team or macvlan. They are sent by \
           an AF_PACKET socket, so they take the sender's queueing discipline as all of its traffic does, and none of its queues is bound. On a wire nothing \
           is sent: there, and for a tap, whose packets come from its process, the check tells what can be \
           opened, and that it is unknown whether frames arrive.\n\n\
           A device that has an XDP program, or a queue that another socket has, is left alone. All of it ends with the process, \
           also one that is killed.",
    counters: &[],
    run: |context| {
        if context.probes_xdp() {
            each(context, |device| delivery(context, device))
        } else {
            Ok(Vec::new())
        }
    },
};

/// For experiments (IEEE 802): no host does anything with it.
const ETHER_TYPE: u16 = 0x88b5;
/// Bytes of a frame, without the checksum of the link.
const LEN: usize = 64;
/// How long frames are sent until one arrives.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two of them.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for a queue that another socket has.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

const MODES: [(Mode, &str); 3] = [
    (Mode::ZeroCopy, "zero-copy"),
    (Mode::Driver, "native XDP"),
    (Mode::Skb, "generic XDP"),
];

/// What became of a mode.
enum Outcome {
    Delivered,
    Refused(xsk::Error),
    /// The device received the frames, and the socket did not.
    Lost(String),
    /// The mode can be opened, and that is all that is known.
    Opened(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered => f.write_str("delivered"),
            Self::Refused(error) => write!(f, "refused: {error}"),
            Self::Lost(reason) => write!(f, "lost: {reason}"),
            Self::Opened(reason) => write!(f, "opened, unknown whether frames arrive: {reason}"),
        }
    }
}

fn delivery(context: &Context, device: &Device) -> Result<Option<Verdict>> {
    let name = device.name();
    if let Some(obstacle) = obstacle(context, device)? {
        return Ok(Some(Verdict::unchecked(name, obstacle)));
    }
    let (senders, none) = match senders(context, device)? {
        senders if senders.is_empty() => (senders, no_sender(device)),
        senders => (senders, String::new()),
    };
    let mut outcomes = Vec::new();
    for (mode, words) in MODES {
        let outcome = match attempt(device, mode, &senders, &none) {
            Ok(outcome) => outcome,
            Err(error) if is_about_device(&error) => Outcome::Refused(error),
            Err(error) => return Ok(Some(Verdict::unchecked(name, error.to_string()))),
        };
        outcomes.push((words, outcome));
    }
    let memory = if needs_fragments(device) {
        " on a UMEM with `fragments`, which its MTU needs"
    } else {
        ""
    };
    let socket = format!("a socket{memory}, queue 0 of {name}");
    Ok(Some(verdict(name, &socket, &outcomes)))
}

/// Whether a mode is refused for what the device is, and not for what others do with it or this process may do.
fn is_about_device(error: &xsk::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ModeRefused | ErrorKind::MtuTooLarge | ErrorKind::Unsupported
    )
}

fn verdict(name: &str, socket: &str, outcomes: &[(&str, Outcome)]) -> Verdict {
    let evidence = outcomes
        .iter()
        .map(|(words, outcome)| Evidence::new(format!("{socket}, {words}"), outcome.to_string()));
    let evidence: Vec<_> = evidence.collect();
    let lost = outcomes.iter().find_map(|(words, outcome)| match outcome {
        Outcome::Lost(reason) => Some((words, reason)),
        _ => None,
    });
    if let Some((words, reason)) = lost {
        let message = format!("A socket on {name} gets nothing by {words}: {reason}.");
        let fix = Fix::manual(format!(
            "ask for another mode, one that was delivered: {}",
            delivered(outcomes)
        ));
        return Verdict::found(name, evidence, message, fix);
    }
    let opened = outcomes.iter().find_map(|(_, outcome)| match outcome {
        Outcome::Opened(reason) => Some(reason),
        _ => None,
    });
    if let Some(reason) = opened {
        let modes: Vec<_> = outcomes
            .iter()
            .map(|(words, outcome)| match outcome {
                Outcome::Opened(_) => format!("{words} can be opened"),
                outcome => format!("{words} {outcome}"),
            })
            .collect();
        let reason = format!(
            "unknown whether frames reach a socket: {reason}. {}",
            modes.join("; ")
        );
        return Verdict::unchecked(name, reason);
    }
    match outcomes.last() {
        Some((_, Outcome::Refused(error))) => {
            let message = format!("No AF_XDP socket can be opened on {name}.");
            Verdict::found(name, evidence, message, Fix::manual(error.to_string()))
        }
        _ => Verdict::fine(name, evidence),
    }
}

fn delivered(outcomes: &[(&str, Outcome)]) -> String {
    let delivered = outcomes
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Delivered));
    let words: Vec<_> = delivered.map(|(words, _)| *words).collect();
    if words.is_empty() {
        return "none was".to_owned();
    }
    words.join(", ")
}

/// Why the device is left alone.
fn obstacle(context: &Context, device: &Device) -> Result<Option<String>> {
    let name = device.name();
    let now = xsk::Device::lookup(name)?;
    if let Some(program) = device.programs()?.first() {
        return Ok(Some(format!(
            "{name} has an XDP program, which is left in its place ({}): run the check when its owner has ended; {}",
            program.description, program.removal
        )));
    }
    let sockets = context.xdp_sockets()?.unwrap_or_default();
    if let Some(socket) = sockets.iter().find(|it| it.device == now.index) {
        return Ok(Some(format!(
            "an AF_XDP socket of another program has queue {} of {name}: run the check when that program has ended",
            socket.queue
        )));
    }
    if !now.up {
        return Ok(Some(format!("it is down: `ip link set dev {name} up`")));
    }
    if !now.has_ethernet_header() {
        return Ok(Some(format!(
            "packets of {name} have no Ethernet header by which a socket takes frames of the check alone: it would take others' packets"
        )));
    }
    Ok(None)
}

/// The devices whose frames arrive at the one to test, and nowhere else.
fn senders<'a>(context: &'a Context, device: &'a Device) -> Result<Vec<&'a Device>> {
    if device.link.loopback {
        return Ok(vec![device]);
    }
    if device.is_veth() {
        return Ok(context.veth_peer(device)?.into_iter().collect());
    }
    if !matches!(
        device.kind(),
        Some("bridge" | "bond" | "team" | "macvlan" | "macvtap")
    ) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for below in below(context.devices()?, device) {
        found.extend(senders(context, below)?);
    }
    Ok(found)
}

/// Why nothing is sent.
fn no_sender(device: &Device) -> String {
    let name = device.name();
    match device.kind() {
        Some("tun") => format!("frames of {name} come from the process that has it open"),
        Some("veth") => {
            format!("the network namespace of the peer of {name} is not found from here")
        }
        None => format!(
            "frames of {name} come from its wire, on which the doctor sends nothing (`weir bench rxdrop --dev {name}` counts those of a sender of yours)"
        ),
        Some(kind) => format!(
            "no device is known whose frames arrive at {name}, of the kind {kind}, and nowhere else"
        ),
    }
}

/// Opens a socket in a mode, and sends frames until one has arrived.
fn attempt(
    device: &Device,
    mode: Mode,
    senders: &[&Device],
    no_sender: &str,
) -> xsk::Result<Outcome> {
    let name = device.name();
    let filter = Filter::any([Rule::ether_type(ETHER_TYPE)]);
    let umem = Umem::builder().chunks(256).chunk_size(CHUNK);
    let umem = umem.fragments(needs_fragments(device)).build()?;
    let mut socket = Socket::builder(&umem, name, 0)
        .mode(mode)
        .filter(filter)
        .busy_timeout(BUSY_TIMEOUT)
        .open()?;
    if senders.is_empty() {
        return Ok(Outcome::Opened(no_sender.to_owned()));
    }
    match exchange(device, &mut socket, senders) {
        Ok(Arrived::AtSocket) => Ok(Outcome::Delivered),
        Ok(Arrived::AtDevice) => {
            let silence = socket.explain_silence()?;
            Ok(Outcome::Lost(silence.map_or_else(
                || format!("{name} received the frames, and their program passed them on"),
                |silence| silence.to_string(),
            )))
        }
        Ok(Arrived::Nowhere) => {
            let names: Vec<_> = senders.iter().map(|it| &*it.link.name).collect();
            Ok(Outcome::Opened(format!(
                "the frames that {} sent did not arrive at {name}, whose link may be down, or which filters them",
                names.join(", ")
            )))
        }
        Err(error) => Ok(Outcome::Opened(format!("{error:#}"))),
    }
}

enum Arrived {
    AtSocket,
    AtDevice,
    Nowhere,
}

/// Bytes of a chunk.
const CHUNK: u32 = 4096;

/// Whether packets of the MTU fit into no chunk: the kernel keeps 256 bytes of it.
fn needs_fragments(device: &Device) -> bool {
    const LINK_HEADER: u32 = 18;
    device.link.mtu.saturating_add(LINK_HEADER) > CHUNK - 256
}

fn exchange(device: &Device, socket: &mut Socket, senders: &[&Device]) -> Result<Arrived> {
    let looked_up = xsk::Device::lookup(device.name())?;
    let mut outgoing = Vec::new();
    for sender in senders {
        let open = || sending(&sender.link);
        let opened = match &sender.elsewhere {
            Some(elsewhere) => netns::run_in(elsewhere.namespace.as_fd(), open),
            None => open(),
        };
        let step = || format!("{} cannot send", sender.link.name);
        outgoing.push((sender, frame(device, sender), opened.with_context(step)?));
    }
    let before = looked_up.rx_by_queue()?;
    let mut sent = 0;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        for (sender, frame, outgoing) in &mut outgoing {
            let step = || format!("{} cannot send", sender.link.name);
            send(outgoing, frame).with_context(step)?;
        }
        sent += 1;
        socket.wait(PAUSE)?;
        let mut batch = socket.recv(64);
        while let Some(packet) = batch.next_packet() {
            let mut expected = outgoing.iter().map(|(_, frame, _)| frame);
            if expected.any(|frame| packet[..] == frame[..]) {
                return Ok(Arrived::AtSocket);
            }
        }
    }
    let received = looked_up.rx_by_queue()?.received;
    Ok(if received.saturating_sub(before.received) < sent {
        Arrived::Nowhere
    } else {
        Arrived::AtDevice
    })
}

/// A packet socket that only sends.
fn sending(link: &Link) -> Result<Rings> {
    let socket = tpacket::Socket::new(Version::V2)
        .map_err(|error| anyhow!("no packet socket: {}: {error}", tpacket::refusal(&error)))?;
    let rings = socket.rings(None, Some(Shape::new(LEN, 1)))?;
    rings.bind(link.index, 0)?;
    Ok(rings)
}

fn send(rings: &mut Rings, frame: &[u8; LEN]) -> io::Result<()> {
    rings.reap()?;
    rings.push(1, LEN, |bytes| bytes.copy_from_slice(frame));
    rings.flush()
}

/// A frame that no other process sends.
fn frame(device: &Device, sender: &Device) -> [u8; LEN] {
    let mut frame = [0; LEN];
    frame[..6].copy_from_slice(&device.link.mac);
    frame[6..12].copy_from_slice(&sender.link.mac);
    frame[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    let text = format!("weir doctor --xdp, process {}", std::process::id());
    for (to, from) in frame[14..].iter_mut().zip(text.bytes()) {
        *to = from;
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> Outcome {
        Outcome::Lost("v0 received them".into())
    }

    fn refused() -> Outcome {
        Outcome::Refused(xsk::Device::lookup("").expect_err("no device"))
    }

    fn opened() -> Outcome {
        Outcome::Opened("a wire".into())
    }

    #[test]
    fn a_frame_that_is_lost_is_a_finding_whatever_else_is_delivered() {
        let outcomes = [
            ("zero-copy", refused()),
            ("native XDP", lost()),
            ("generic XDP", Outcome::Delivered),
        ];
        let Verdict::Finding(finding) = verdict("v0", "a socket", &outcomes) else {
            panic!("no finding");
        };
        assert!(finding.message.contains("by native XDP"), "{finding:?}");
        assert_eq!(finding.evidence.len(), 3);
        let Fix::Manual(text) = &finding.fix else {
            panic!("{finding:?}");
        };
        assert!(text.ends_with("delivered: generic XDP"), "{text}");
    }

    #[test]
    fn what_was_not_tried_is_not_fine() {
        let modes = ["zero-copy", "native XDP", "generic XDP"];
        let of = |outcomes: [Outcome; 3]| {
            let outcomes: Vec<_> = modes.into_iter().zip(outcomes).collect();
            verdict("v0", "a socket", &outcomes)
        };
        let is_fine = |verdict: &Verdict| matches!(verdict, Verdict::Fine { .. });
        assert!(is_fine(&of([refused(), refused(), Outcome::Delivered])));
        let Verdict::Unchecked { reason, .. } = of([refused(), opened(), Outcome::Delivered])
        else {
            panic!("native XDP was not tried");
        };
        assert!(reason.contains("native XDP can be opened"), "{reason}");
        assert!(reason.contains("generic XDP delivered"), "{reason}");
        let none = of([refused(), refused(), refused()]);
        assert!(matches!(none, Verdict::Finding(_)), "{none:?}");
    }
}

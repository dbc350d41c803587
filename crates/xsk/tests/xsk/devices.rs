//! Kinds of devices: on each, in each mode, a packet reaches the socket, or the mode is refused with its cure. A socket
//! that is open and gets nothing is the fault that this looks for.

use crate::budget::STALL;
use crate::needs::FRAGMENTS;
use crate::netns::{Lab, Side};
use crate::{Outcome, Result};
use hostnet::tap::{Tap, TapOptions};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use testkit::directory::Temporary;
use testkit::packet::set_option;
use testkit::{PacketSocket, Test, skip, wait_until};
use xsk::{
    AttachMode, Error, ErrorKind, Filter, Mode, ModeObtained, Program, Refusal, Rule, Socket, Umem,
};

const PORT: u16 = 4242;
const RX: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const TX: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// The device whose socket is looked at, in each kind but veth and lo.
const DEVICE: &str = "dev0";

pub fn tests() -> Vec<Test> {
    let mut tests: Vec<_> = KINDS
        .iter()
        .map(|kind| {
            Test::new(
                format!("device {}: delivered or refused", kind.name),
                || walk(kind),
            )
        })
        .collect();
    for test in [
        Test::new("segments of a veth's peer", segments_of_veth),
        Test::new("segments of a virtual machine, SKB", || {
            segments_of_tap(Mode::Skb)
        }),
        Test::new("segments of a virtual machine, DRV", || {
            segments_of_tap(Mode::Driver)
        }),
    ] {
        tests.push(test.needing(&[FRAGMENTS]));
    }
    tests.extend([
        Test::new("filters of queues need an Ethernet header", filters_of_tun),
        Test::new("a tun sends from the IP header on", sent_by_tun),
        Test::new("silence: a filter that takes nothing", silent_filter),
    ]);
    tests
}

/// A kind of device, as the table of the guide's limits has it.
struct Kind {
    name: &'static str,
    gets: Gets,
    make: fn() -> Result<Made>,
}

/// What a socket on a device gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gets {
    /// Packets, by native and generic XDP.
    Native,
    /// Packets, by generic XDP.
    Generic,
    /// No packet, so that it is refused.
    Refused,
    /// No packet of the device's own, which [`Socket::explain_silence`] says.
    Silence,
}

const KINDS: &[Kind] = &[
    kind("veth", Gets::Native, veth),
    kind("tap", Gets::Native, || tap(TapOptions::default())),
    kind("tap with vnet_hdr", Gets::Native, || {
        tap(TapOptions {
            vnet_header: true,
            ..TapOptions::default()
        })
    }),
    kind("tun", Gets::Generic, || {
        tap(TapOptions {
            layer3: true,
            ..TapOptions::default()
        })
    }),
    kind("lo", Gets::Generic, lo),
    kind("bridge", Gets::Generic, || {
        above(
            &["link add dev0 type bridge", "link set dev rx0 master dev0"],
            &[],
        )
    }),
    kind("bond", Gets::Generic, || {
        with_port("link add dev0 type bond mode active-backup miimon 100")
    }),
    kind("team", Gets::Generic, || {
        with_port("link add dev0 type team")
    }),
    kind("VRF", Gets::Refused, || {
        with_port("link add dev0 type vrf table 7")
    }),
    kind("macvlan", Gets::Generic, || {
        above(
            &["link add link rx0 name dev0 type macvlan mode bridge"],
            &[],
        )
    }),
    kind("macvtap", Gets::Generic, || {
        above(
            &["link add link rx0 name dev0 type macvtap mode bridge"],
            &[],
        )
    }),
    kind("ipvlan", Gets::Generic, || {
        above(
            &[
                "link add link rx0 name dev0 type ipvlan mode l2",
                "addr add 198.51.100.1/24 dev dev0",
            ],
            &[],
        )
    }),
    // The tag 7.
    kind("VLAN", Gets::Generic, || {
        above(
            &["link add link rx0 name dev0 type vlan id 7"],
            &[0x81, 0, 0, 7],
        )
    }),
    kind("VLAN of 802.1ad", Gets::Generic, || {
        above(
            &["link add link rx0 name dev0 type vlan proto 802.1ad id 7"],
            &[0x88, 0xa8, 0, 7],
        )
    }),
    kind("MACsec", Gets::Generic, macsec),
    kind("netkit", Gets::Generic, netkit),
    kind("VXLAN", Gets::Generic, || {
        tunnel("vxlan id 7 local LOCAL remote REMOTE dstport 4789 dev LOWER")
    }),
    kind("GENEVE", Gets::Generic, || {
        tunnel("geneve id 7 remote REMOTE")
    }),
    kind("GRE of Ethernet", Gets::Generic, || {
        tunnel("gretap local LOCAL remote REMOTE")
    }),
    kind("GRE", Gets::Generic, || {
        tunnel("gre local LOCAL remote REMOTE")
    }),
    kind("IP in IP", Gets::Generic, || {
        tunnel("ipip local LOCAL remote REMOTE")
    }),
    kind("WireGuard", Gets::Generic, wireguard),
    kind("ifb", Gets::Refused, || {
        above(&["link add dev0 type ifb"], &[])
    }),
    kind("dummy", Gets::Silence, || alone("dummy")),
    kind("nlmon", Gets::Silence, || alone("nlmon")),
];

const fn kind(name: &'static str, gets: Gets, make: fn() -> Result<Made>) -> Kind {
    Kind { name, gets, make }
}

/// A device, and the way by which it receives.
struct Made {
    device: Side,
    feed: Feed,
    /// Between the addresses and the EtherType.
    tag: &'static [u8],
    /// The other end of a veth pair.
    far: Option<Side>,
}

enum Feed {
    Packet(PacketSocket),
    /// With the bytes that precede each packet.
    Tap(Tap, &'static [u8]),
}

impl Feed {
    fn send(&self, packet: &[u8]) -> Outcome {
        match self {
            Self::Packet(socket) => socket.send(packet)?,
            Self::Tap(tap, header) => {
                rustix::io::write(tap.descriptor(), &[header, packet].concat())?;
            }
        }
        Ok(())
    }
}

fn veth() -> Result<Made> {
    let Lab { rx, tx } = Lab::new()?;
    Ok(Made {
        feed: packets_on(&tx)?,
        device: rx,
        tag: &[],
        far: Some(tx),
    })
}

/// A device on top of a veth, by commands of `ip`.
fn above(commands: &[&str], tag: &'static [u8]) -> Result<Made> {
    let Lab { rx, tx } = Lab::new()?;
    make(&rx, commands)?;
    for device in ["rx0", DEVICE] {
        rx.ip(&format!("link set dev {device} up"))?;
    }
    Ok(Made {
        feed: packets_on(&tx)?,
        device: rx.beside(DEVICE)?,
        tag,
        far: Some(tx),
    })
}

/// Runs commands of `ip`. A kernel that lacks the kind of device is told by the first.
fn make(side: &Side, commands: &[&str]) -> Outcome {
    let (first, others) = commands.split_first().expect("a command");
    if let Err(error) = side.ip(first) {
        let text = error.to_string();
        return Err(
            if text.contains("Unknown device type") || text.contains("not supported") {
                skip(format!("this kernel lacks the kind of device: ip {first}"))
            } else {
                error.into()
            },
        );
    }
    others.iter().try_for_each(|command| Ok(side.ip(command)?))
}

/// A device that has the veth as a port, which is down when it becomes one.
fn with_port(command: &str) -> Result<Made> {
    above(
        &[
            command,
            "link set dev rx0 down",
            "link set dev rx0 master dev0",
        ],
        &[],
    )
}

/// A device at each end of the veth, of which one sends to the other through it.
fn ends(commands: impl Fn(&Side, [Ipv4Addr; 2]) -> Result<Vec<String>>) -> Result<Made> {
    let Lab { rx, tx } = Lab::new()?;
    for (side, addresses) in [(&rx, [RX, TX]), (&tx, [TX, RX])] {
        side.ip(&format!("addr add {}/24 dev {}", addresses[0], side.device))?;
        let commands = commands(side, addresses)?;
        let commands: Vec<_> = commands.iter().map(String::as_str).collect();
        make(side, &commands)?;
        side.ip(&format!("link set dev {DEVICE} up"))?;
    }
    let far = tx.beside(DEVICE)?;
    Ok(Made {
        feed: packets_on(&far)?,
        device: rx.beside(DEVICE)?,
        tag: &[],
        far: Some(far),
    })
}

/// A tunnel, by the words of `ip link add` for one end.
fn tunnel(words: &str) -> Result<Made> {
    ends(|side, [local, remote]| {
        let words = words
            .replace("LOCAL", &local.to_string())
            .replace("REMOTE", &remote.to_string())
            .replace("LOWER", side.device);
        Ok(vec![format!("link add {DEVICE} type {words}")])
    })
}

fn macsec() -> Result<Made> {
    const KEY: &str = "000102030405060708090a0b0c0d0e0f";
    ends(|side, [local, _]| {
        // As the kit numbers the ends.
        let peer = if local == RX { 0xb } else { 0xa };
        let from = format!("macsec add {DEVICE} rx port 1 address 02:00:00:00:00:{peer:02x}");
        Ok(vec![
            format!(
                "link add link {} name {DEVICE} type macsec port 1 encrypt on",
                side.device
            ),
            format!("macsec add {DEVICE} tx sa 0 pn 1 on key 00 {KEY}"),
            from.clone(),
            format!("{from} sa 0 pn 1 on key 00 {KEY}"),
        ])
    })
}

fn netkit() -> Result<Made> {
    let device = Side::new(DEVICE)?;
    make(&device, &["link add dev0 type netkit"])?;
    // As the kernel names the first.
    let far = device.beside("nk0")?;
    for side in [&device, &far] {
        side.set_up(true)?;
    }
    Ok(Made {
        feed: packets_on(&far)?,
        device,
        tag: &[],
        far: Some(far),
    })
}

fn wireguard() -> Result<Made> {
    /// A private key and the public key of each end.
    const KEYS: [[&str; 2]; 2] = [
        [
            "mJKkuAroaiEPpZK9hpGCFFX+W2TcAQN0bc6EGwoyhHw=",
            "n+WIvdTAhmc5cjsvyKpTlL/GllaHNOpJxFh/sRwhdj8=",
        ],
        [
            "SP2SThJYEQngmYqfJqVe7cQrwszeVKaHKCcnbgX3XGY=",
            "cnIGUzv7Em8WvZL2R8qkQa3u+vdLrl4YvbDExOxndCg=",
        ],
    ];
    let keys = Temporary::new("wireguard")?;
    let made = tunnel("wireguard")?;
    let far = made.far.as_ref().ok_or("the other end")?;
    for (side, number, remote) in [(&made.device, 0, TX), (far, 1, RX)] {
        let path = keys.path().join(number.to_string());
        std::fs::write(&path, KEYS[number][0])?;
        let set = format!(
            "set {DEVICE} listen-port 51820 private-key {} peer {} allowed-ips 0.0.0.0/0 endpoint {remote}:51820",
            path.display(),
            KEYS[1 - number][1]
        );
        side.run("wg", &set)?;
    }
    Ok(made)
}

/// A device that has no other end.
fn alone(kind: &str) -> Result<Made> {
    let device = Side::new(DEVICE)?;
    let add = format!("link add {DEVICE} type {kind}");
    make(&device, &[&add, "link set dev dev0 mtu 1500 up"])?;
    Ok(Made {
        feed: packets_on(&device)?,
        device,
        tag: &[],
        far: None,
    })
}

fn tap(options: TapOptions) -> Result<Made> {
    /// `struct virtio_net_hdr` of a whole packet.
    const WHOLE: &[u8] = &[0; 10];
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Err(skip("there is no /dev/net/tun"));
    }
    let device = Side::new(DEVICE)?;
    let tap = device.inside(|| Tap::create_with(DEVICE, options))?;
    device.set_up(true)?;
    let header = if options.vnet_header { WHOLE } else { &[] };
    Ok(Made {
        device,
        feed: Feed::Tap(tap, header),
        tag: &[],
        far: None,
    })
}

fn lo() -> Result<Made> {
    let device = Side::new("lo")?;
    device.ip("link set dev lo mtu 1500 up")?;
    Ok(Made {
        feed: packets_on(&device)?,
        device,
        tag: &[],
        far: None,
    })
}

fn packets_on(side: &Side) -> Result<Feed> {
    let index = side.index()?;
    let socket = side.inside(|| PacketSocket::on(index).sending_only().open())?;
    Ok(Feed::Packet(socket))
}

impl Made {
    fn is_ethernet(&self) -> Result<bool> {
        let device = self.device.lookup()?;
        Ok(device.has_ethernet_header())
    }

    /// A datagram with a number, as it is sent and as a socket on the device gets it.
    fn datagram(&self, number: u8) -> Result<(Vec<u8>, Vec<u8>)> {
        let link = self.device.link()?;
        let ip = datagram(number);
        let mut frame = [&link.mac[..], &[2, 0, 0, 0, 0, 0xff]].concat();
        let sent = [&frame[..], self.tag, &[8, 0], &ip].concat();
        frame.extend([8, 0]);
        frame.extend(&ip);
        Ok(if self.is_ethernet()? {
            (sent, frame)
        } else {
            (ip.clone(), ip)
        })
    }

    /// Whether a socket that is open gets a datagram, with nothing changed.
    fn delivers(&self, socket: &mut Socket, number: u8) -> Result<bool> {
        let (sent, expected) = self.datagram(number)?;
        let mut outcome = Ok(());
        let arrived = wait_until(STALL, || {
            // Until a bridge forwards, or a bond has chosen its device.
            outcome = self.feed.send(&sent);
            let waited = socket.wait(Duration::from_millis(20));
            outcome.is_err() || waited.is_err() || {
                let mut batch = socket.recv(64);
                std::iter::from_fn(|| batch.next_packet().map(|packet| packet.to_vec()))
                    .any(|packet| packet == expected)
            }
        });
        outcome?;
        Ok(arrived)
    }
}

/// IPv4 and UDP with 64 bytes that depend on the number.
fn datagram(number: u8) -> Vec<u8> {
    const LEN: u16 = 20 + 8 + 64;
    let mut ip = vec![0x45, 0, 0, LEN as u8, 0, number, 0x40, 0, 64, 17, 0, 0];
    ip.extend(TX.octets());
    ip.extend(RX.octets());
    let sum: u32 = ip
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(PORT.to_be_bytes());
    ip.extend(PORT.to_be_bytes());
    ip.extend([0, 8 + 64, 0, 0]);
    ip.extend((0..64).map(|at: u8| at.wrapping_mul(31).wrapping_add(number)));
    ip
}

fn umem() -> xsk::Result<Umem> {
    Umem::builder().chunks(256).build()
}

/// Opens sockets on a device of the kind in each mode, and prints what became of them as a line of a table.
fn walk(kind: &Kind) -> Outcome {
    let made = (kind.make)()?;
    let to_port = Filter::any([Rule::udp().destination_port(PORT)]);
    let attempts = [
        (Mode::Auto, None),
        (Mode::Skb, None),
        (Mode::Driver, None),
        (Mode::ZeroCopy, None),
        (Mode::Auto, Some(to_port)),
    ];
    let mut row = Vec::new();
    for (number, (mode, filter)) in (1..).zip(attempts) {
        let filtered = filter.is_some();
        let opened = made.device.open(&umem()?, mode, |builder| match filter {
            Some(filter) => builder.filter(filter),
            None => builder,
        });
        row.push(match opened {
            Ok(socket) if kind.gets == Gets::Silence => explained(&made, &socket, number)?,
            Ok(socket) => delivered(kind, &made, mode, socket, number)?,
            Err(error) => {
                let by_header = filtered && !made.is_ethernet()?;
                assert!(
                    by_header || kind.delivers_in(mode).is_none(),
                    "{mode:?}: {error}"
                );
                check_cure(kind, by_header, &error);
                "refused".to_owned()
            }
        });
    }
    println!("| {} | {} |", kind.name, row.join(" | "));
    Ok(())
}

/// A socket that is open gets what arrives.
fn delivered(
    kind: &Kind,
    made: &Made,
    asked: Mode,
    mut socket: Socket,
    number: u8,
) -> Result<String> {
    let obtained = socket.mode();
    let arrived = made.delivers(&mut socket, number)?;
    let silence = made.device.inside(|| socket.explain_silence())?;
    let text = silence.map(|silence| silence.to_string());
    assert!(
        arrived,
        "{}, {asked:?}: a socket in mode {obtained} gets nothing: {text:?}",
        kind.name
    );
    assert_eq!(kind.delivers_in(asked), Some(obtained), "{asked:?}");
    assert_eq!(text, None, "it got packets");
    check_refusals(kind, asked, &socket);
    Ok(obtained.to_string())
}

/// A socket on a device that receives nothing says so.
fn explained(made: &Made, socket: &Socket, number: u8) -> Result<String> {
    // What is sent by the device does not come back; some take nothing to send.
    let _ = made.feed.send(&made.datagram(number)?.0);
    let silence = made.device.inside(|| socket.explain_silence())?;
    let text = silence.ok_or("a silence without a reason")?.to_string();
    assert!(text.contains("receives no packets"), "{text}");
    Ok("no packets".to_owned())
}

impl Kind {
    /// The mode that a socket gets packets in; `None` if it is refused.
    fn delivers_in(&self, mode: Mode) -> Option<ModeObtained> {
        match (mode, self.gets) {
            (Mode::Auto | Mode::Driver, Gets::Native) => Some(ModeObtained::Driver),
            (Mode::Auto | Mode::Skb, Gets::Generic) | (Mode::Skb, Gets::Native) => {
                Some(ModeObtained::Skb)
            }
            _ => None,
        }
    }

    /// Whether packets come that are longer than its MTU.
    fn has_long_packets(&self, mode: ModeObtained) -> bool {
        match self.name {
            "tap" | "tun" => false,
            "tap with vnet_hdr" => true,
            _ => mode == ModeObtained::Skb,
        }
    }
}

fn check_refusals(kind: &Kind, mode: Mode, socket: &Socket) {
    let refusals = socket.refusals();
    let is_long = |refusal: &&Refusal| matches!(refusal, Refusal::Umem(error) if error.to_string().contains("`fragments`"));
    let long = refusals.iter().filter(is_long).count();
    let expected = mode == Mode::Auto && kind.has_long_packets(socket.mode());
    assert_eq!(long, usize::from(expected), "{refusals:?}");
}

/// An error of a kind's device has these words.
fn check_cure(kind: &Kind, by_header: bool, error: &Error) {
    let (is, cure) = match (kind.name, kind.gets) {
        _ if by_header => (ErrorKind::InvalidConfig, "leave `filter` out"),
        ("ifb", _) => (ErrorKind::ModeRefused, "on the device that they came from"),
        ("bond" | "team" | "bridge" | "VRF", _) => {
            (ErrorKind::ModeRefused, "a socket on each of them (rx0)")
        }
        (_, Gets::Native) => (ErrorKind::ModeRefused, "use copy mode"),
        _ => (ErrorKind::ModeRefused, "try another mode"),
    };
    assert_eq!(error.kind(), is, "{error}");
    assert!(error.to_string().contains(cure), "{error}");
}

/// A datagram of 14000 bytes for the sender's device to segment: the receiver's socket gets it as one, which fits a UMEM
/// with `fragments`; or in segments, if the sender's device does not leave that to others.
fn segments_of_veth() -> Outcome {
    const LEN: usize = 14_000;
    const SEGMENT: i32 = 1400;
    /// `UDP_SEGMENT` (`include/uapi/linux/udp.h`).
    const UDP_SEGMENT: i32 = 103;
    let lab = Lab::new()?;
    // As users have it; the lab turns it off.
    lab.tx.run(
        "ethtool",
        "-K tx0 tx on tso on gso on tx-udp-segmentation on",
    )?;
    lab.tx.ip("addr add 198.51.100.2/24 dev tx0")?;
    lab.tx
        .ip("neigh add 198.51.100.1 lladdr 02:00:00:00:00:0a nud permanent dev tx0")?;
    let sender = lab.tx.inside(|| UdpSocket::bind((TX, 0)))?;
    set_option(&sender, 17, UDP_SEGMENT, &SEGMENT)?;
    let send = || sender.send_to(&[7; LEN], (RX, PORT)).map(drop);

    let plain = umem()?;
    let mut socket = lab.rx.open(&plain, Mode::Skb, |b| b)?;
    send()?;
    let is_dropped = || socket.statistics().is_ok_and(|now| now.rx_dropped == 1);
    assert!(wait_until(STALL, is_dropped), "{:?}", socket.statistics());
    assert!(socket.recv(1).is_empty());
    let silence = lab.rx.inside(|| socket.explain_silence())?;
    let text = silence.ok_or("a silence")?.to_string();
    assert!(
        text.contains("1 of them were longer than the 1792 bytes"),
        "{text}"
    );
    drop(socket);

    let whole = Umem::builder().chunks(256).chunk_size(4096).fragments(true);
    let mut socket = lab.rx.open(&whole.build()?, Mode::Skb, |b| b)?;
    send()?;
    assert!(socket.wait(STALL)?, "the packet does not come");
    let packet = socket.recv(1).next_fragments().ok_or("a packet")?.to_vec();
    assert_eq!(packet.len(), 42 + LEN);
    drop(socket);

    lab.tx
        .run("ethtool", "-K tx0 tso off gso off tx-udp-segmentation off")?;
    let mut socket = lab.rx.open(&plain, Mode::Skb, |b| b)?;
    send()?;
    let segments = LEN / SEGMENT as usize;
    let mut received = 0;
    let all = wait_until(STALL, || {
        received += socket.receive_each(64, |packet| {
            assert_eq!(packet.len(), 42 + SEGMENT as usize);
            packet.recycle()
        });
        received as usize == segments
    });
    assert!(all, "{received} of {segments} segments");
    Ok(())
}

/// A virtual machine hands the tap a segment of 14000 bytes of TCP.
fn segments_of_tap(mode: Mode) -> Outcome {
    const LEN: u16 = 14_000;
    // `VIRTIO_NET_HDR_F_NEEDS_CSUM`, `VIRTIO_NET_HDR_GSO_TCPV4`, the length of the headers, that of a segment, the
    // place of the checksum.
    let mut header = vec![1, 1];
    for field in [54_u16, 1400, 34, 16] {
        header.extend(field.to_le_bytes());
    }
    let header: &'static [u8] = header.leak();
    let mut guest = tap(TapOptions {
        vnet_header: true,
        ..TapOptions::default()
    })?;
    if let Feed::Tap(_, of_each) = &mut guest.feed {
        *of_each = header;
    }
    let mut ip = datagram(1);
    ip.truncate(20);
    ip[2..4].copy_from_slice(&(40 + LEN).to_be_bytes());
    ip[9] = 6;
    let mut tcp = [0; 20];
    tcp[12] = 5 << 4;
    let frame = [
        &guest.device.link()?.mac[..],
        &[2, 0, 0, 0, 0, 0xff, 8, 0],
        &ip,
        &tcp,
        &[7; LEN as usize],
    ]
    .concat();
    let plain = umem()?;
    let mut socket = guest.device.open(&plain, mode, |b| b)?;
    guest.feed.send(&frame)?;
    let is_dropped = || socket.statistics().is_ok_and(|now| now.rx_dropped == 1);
    assert!(wait_until(STALL, is_dropped), "{:?}", socket.statistics());
    assert!(socket.recv(1).is_empty());
    drop(socket);

    let whole = Umem::builder().chunks(256).chunk_size(4096).fragments(true);
    let mut socket = guest.device.open(&whole.build()?, mode, |b| b)?;
    guest.feed.send(&frame)?;
    assert!(socket.wait(STALL)?, "the packet does not come");
    let packet = socket.recv(1).next_fragments().ok_or("a packet")?.to_vec();
    assert_eq!(packet, frame);
    Ok(())
}

/// The filters of a program that was attached before there was a socket.
fn filters_of_tun() -> Outcome {
    let filters = BTreeMap::from([(0, Filter::any([Rule::udp()]))]);
    for (layer3, is_taken) in [(false, true), (true, false)] {
        let options = TapOptions {
            layer3,
            ..TapOptions::default()
        };
        let made = tap(options)?;
        let attach = || Program::attach_to(DEVICE, AttachMode::Skb);
        let program = made.device.inside(attach)?;
        program.set_filters(&BTreeMap::new())?;
        let set = program.set_filters(&filters);
        let refused = set.err().map(|error| error.kind());
        let expected = (!is_taken).then_some(ErrorKind::InvalidConfig);
        assert_eq!(refused, expected);
    }
    Ok(())
}

fn sent_by_tun() -> Outcome {
    let made = tap(TapOptions {
        layer3: true,
        ..TapOptions::default()
    })?;
    let Feed::Tap(tun, _) = &made.feed else {
        return Err("a tun".into());
    };
    let mut socket = made.device.open(&umem()?, Mode::Skb, |b| b.rx_ring(0))?;
    let (ip, mut read) = (datagram(1), [0; 256]);
    let mut frame = socket.alloc().ok_or("a frame")?;
    frame.fill_with(&ip)?;
    socket
        .send(frame)
        .map_err(|unsent| unsent.kind.to_string())?;
    socket.flush()?;
    let mut len = 0;
    let is_sent = wait_until(STALL, || {
        len = rustix::io::read(tun.descriptor(), &mut read).unwrap_or(0);
        len > 0
    });
    assert!(is_sent, "the tun sends nothing");
    assert_eq!(read[..len], ip);
    Ok(())
}

/// The queue is right, and the filter is not: nothing is said of other queues.
fn silent_filter() -> Outcome {
    let made = veth()?;
    let other = Filter::any([Rule::udp().destination_port(PORT + 1)]);
    let socket = made.device.open(&umem()?, Mode::Skb, |b| b.filter(other))?;
    let explain = || made.device.inside(|| socket.explain_silence());
    assert_eq!(explain()?, None, "nothing was received");
    made.feed.send(&made.datagram(1)?.0)?;
    let mut text = String::new();
    let explained = wait_until(STALL, || {
        let silence = explain().expect("the device is there");
        text = silence.map_or_else(String::new, |silence| silence.to_string());
        !text.is_empty()
    });
    assert!(explained, "no reason");
    assert!(
        text.contains("its filter takes none of them") && !text.contains("every queue"),
        "{text}"
    );

    made.device.set_up(false)?;
    let silence = explain()?.ok_or("a silence")?.to_string();
    assert!(silence.contains("the device is down"), "{silence}");
    Ok(())
}

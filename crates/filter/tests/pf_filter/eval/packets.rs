//! Packets: from bytes, to bytes, in words; and hostile bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pf_filter::host::Host;
use pf_filter::packet::{
    About, AboutHeader, Content, Fragment, Icmp, IpOptions, NO_OWNER, Packet, Refusal, RouteTo,
    Tcp, Udp,
};
use pf_filter::rule::Direction;

use super::net::Net;
use crate::support::cases;
use crate::support::choices::Random;

/// A generator of packets.
pub struct Numbers(Random);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.number()
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    fn short(&mut self) -> u16 {
        self.next() as u16
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flip().then(|| value(self))
    }

    fn address(&mut self, v6: bool) -> IpAddr {
        if v6 {
            let low = u128::from(self.below(64));
            let prefix = if self.flip() {
                0xfe80
            } else {
                0x2001_0db8 << 16
            };
            IpAddr::V6(Ipv6Addr::from(if prefix == 0xfe80 {
                prefix << 112 | low
            } else {
                prefix << 80 | low
            }))
        } else {
            IpAddr::V4(Ipv4Addr::from(0x0a00_0000 | self.below(64) as u32))
        }
    }

    /// A packet that pf does not refuse.
    pub fn packet(&mut self) -> Packet {
        loop {
            let packet = self.any_packet();
            if packet.refusal().is_none() {
                return packet;
            }
        }
    }

    fn any_packet(&mut self) -> Packet {
        let v6 = self.flip();
        let direction = if self.flip() {
            Direction::In
        } else {
            Direction::Out
        };
        let interface = ["em0", "em1", "lo0"][self.below(3) as usize];
        let content = self.content(v6);
        let mut packet = Packet::new(
            direction,
            interface,
            self.address(v6),
            self.address(v6),
            content,
        );
        if matches!(packet.content, Content::Other(_)) {
            packet.protocol = [2, 47, 50, 132][self.below(4) as usize];
        }
        packet.tos = self.byte();
        if self.flip() {
            packet.ttl = self.byte();
        }
        packet.options = IpOptions {
            router_alert: self.below(8) == 0,
            other: self.below(8) == 0,
        };
        if !v6 {
            packet.id = u32::from(self.short());
            packet.dont_fragment = self.flip();
        } else if packet.fragment().is_some() {
            packet.id = self.next() as u32;
        }
        if packet.tcp().is_some() {
            packet.checksum_ok = self.below(8) != 0;
        }
        let bytes = packet.to_bytes();
        if packet.fragment().is_some()
            && let Ok(same) = Packet::decode(&bytes, direction, interface)
        {
            packet.protocol = same.protocol;
        }
        packet
    }

    fn content(&mut self, v6: bool) -> Content {
        match self.below(5) {
            0 => Content::Tcp(Tcp {
                seq: self.next() as u32,
                ack: self.next() as u32,
                window: self.short(),
                urgent: self.below(3) as u16,
                length: self.below(3) as u16 * 100,
                mss: self.maybe(Self::short),
                window_scale: self.maybe(|numbers| numbers.below(15) as u8),
                ..Tcp::new(self.short(), self.short(), self.byte())
            }),
            1 => Content::Udp(Udp {
                source_port: self.short(),
                destination_port: self.short(),
                length: self.below(1000) as u16,
            }),
            2 => Content::Icmp(self.icmp(v6)),
            3 => Content::Other(self.below(1000) as u16),
            _ => {
                let offset = self.below(4) as u16 * 8;
                let payload: Vec<u8> = (0..self.below(5) * 8).map(|_| self.byte()).collect();
                let next = [6, 17, 50][self.below(3) as usize];
                let more = offset == 0 || self.flip();
                Content::Fragment(Fragment {
                    offset,
                    more,
                    next,
                    payload: payload.into(),
                })
            }
        }
    }

    fn icmp(&mut self, v6: bool) -> Icmp {
        let errors: &[u8] = if v6 {
            &[1, 2, 3, 4]
        } else {
            &[3, 4, 5, 11, 12]
        };
        let mut icmp = Icmp::new(self.byte(), self.byte());
        icmp.id = self.short();
        icmp.length = self.below(64) as u16;
        if self.flip() {
            icmp.kind = errors[self.below(errors.len() as u64) as usize];
            icmp.about = Some(self.about(v6));
            icmp.length = 0;
        } else if errors.contains(&icmp.kind) {
            icmp.length = 0;
        } else if v6 && matches!(icmp.kind, 130 | 131 | 135 | 136) {
            icmp.target = Some(Ipv6Addr::from(u128::from(self.next())));
        }
        icmp
    }

    fn about(&mut self, v6: bool) -> About {
        let (source_port, destination_port) = (self.short(), self.short());
        let (protocol, header) = match self.below(4) {
            0 => (
                6,
                AboutHeader::Tcp {
                    source_port,
                    destination_port,
                    seq: self.next() as u32,
                },
            ),
            1 => (
                17,
                AboutHeader::Udp {
                    source_port,
                    destination_port,
                },
            ),
            2 => {
                let kind = if v6 { 128 } else { 8 };
                (
                    if v6 { 58 } else { 1 },
                    AboutHeader::Icmp {
                        kind,
                        code: 0,
                        id: self.short(),
                    },
                )
            }
            _ => (50, AboutHeader::Other),
        };
        About {
            source: self.address(v6),
            destination: self.address(v6),
            protocol,
            header,
        }
    }

    fn context(&mut self, packet: &mut Packet) {
        packet.tag = self.maybe(|_| "A tag".into());
        packet.rdomain = self.below(3) as u32;
        packet.prio = self.below(8) as u8;
        packet.received_on = self.maybe(|_| "em1".into());
        packet.user = self.maybe(|numbers| {
            if numbers.flip() {
                NO_OWNER
            } else {
                numbers.below(2000) as u32
            }
        });
        packet.group = self.maybe(|numbers| numbers.below(2000) as u32);
        packet.os = self.maybe(|_| "OpenBSD 3.3".into());
        packet.routes.source = self.maybe(|_| RouteTo::None);
        packet.routes.destination =
            self.maybe(|numbers| RouteTo::Some(numbers.maybe(|_| "lan".into())));
        packet.routes.urpf_failed = self.maybe(Self::flip);
        packet.generated = self.below(8) == 0;
    }
}

#[test]
fn bytes_give_the_same_packet_again() {
    let mut numbers = Numbers::new(0x1234_5678_9abc_def1);
    for _ in 0..cases(5_000, 200_000) {
        let packet = numbers.packet();
        let bytes = packet.to_bytes();
        let again = Packet::decode(&bytes, packet.direction, &packet.interface);
        assert_eq!(again.as_ref(), Ok(&packet), "{packet}\n{bytes:02x?}");
    }
}

#[test]
fn words_give_the_same_packet_again() {
    let mut numbers = Numbers::new(0x9abc_def1_1234_5678);
    let host = Host::default();
    for _ in 0..cases(5_000, 200_000) {
        let mut packet = numbers.packet();
        numbers.context(&mut packet);
        let words = packet.to_words();
        assert_eq!(
            Packet::parse(&words, &host).as_ref(),
            Ok(&packet),
            "{words}"
        );
    }
}

#[test]
fn hostile_bytes_are_judged_without_a_panic() {
    let conf = "table <t> { 10.0.0.0/28 }\nset limit { states 50, frags 50 }\nblock\n\
                pass on em0 keep state (max 20, source-track rule, max-src-states 3)\n\
                match out on em0 inet from 10.0.0.0/24 nat-to 192.0.2.1\nanchor \"a\" quick on em1 { \n pass from <t> allow-opts\n}\n\
                pass in on em0 inet6 to 2001:db8::/96 af-to inet from 192.0.2.1\n";
    let mut net = Net::new(conf);
    let mut numbers = Numbers::new(0x5555_1234_9abc_def1);
    for round in 0..cases(5_000, 200_000) {
        let packet = numbers.packet();
        let mut bytes = packet.to_bytes();
        for _ in 0..numbers.below(4) {
            let at = numbers.below(bytes.len() as u64) as usize;
            bytes[at] = numbers.byte();
        }
        if numbers.below(4) == 0 {
            bytes.truncate(numbers.below(bytes.len() as u64 + 1) as usize);
        }
        net.engine
            .run_bytes(&bytes, packet.direction, &packet.interface);
        if round % 100 == 0 {
            net.engine.explain(&packet);
            net.wait(1);
        }
    }
    assert!(net.engine.states().count() <= 50);
    assert!(net.engine.fragments() <= 50);
}

#[test]
fn random_words_are_refused_without_a_panic() {
    let words = [
        "in",
        "out",
        "on",
        "em0",
        "proto",
        "tcp",
        "icmp",
        "from",
        "to",
        "10.0.0.1",
        "[::1]:80",
        "port",
        "0x",
        "22",
        "flags",
        "S",
        "\"",
        "fragment",
        "data",
        "é",
        "about",
        "icmp-type",
        "echoreq",
        "os",
        "ttl",
        "999999999999",
    ];
    let mut numbers = Numbers::new(77);
    let host = Host::default();
    for _ in 0..cases(10_000, 500_000) {
        let text: Vec<&str> = (0..numbers.below(16))
            .map(|_| words[numbers.below(words.len() as u64) as usize])
            .collect();
        let text = text.join(" ");
        if let Err(error) = Packet::parse(&text, &host) {
            assert!(
                error.at <= text.len() && text.is_char_boundary(error.at),
                "{text}"
            );
            assert!(!error.message.is_empty() && !error.help.is_empty());
        }
    }
}

/// Decodes IPv6 with these headers before the payload.
fn v6(next: u8, payload: &[u8]) -> Result<Packet, Refusal> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next, 64]);
    bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    bytes.extend(payload);
    Packet::decode(&bytes, Direction::In, "em0")
}

/// Decodes IPv4 with options.
fn v4(options: &[u8], protocol: u8, payload: &[u8]) -> Result<Packet, Refusal> {
    let header = 20 + options.len();
    let mut bytes = vec![0x40 | (header / 4) as u8, 0];
    bytes.extend(((header + payload.len()) as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 5, 192, 0, 2, 1]);
    bytes.extend(options);
    bytes.extend(payload);
    Packet::decode(&bytes, Direction::In, "em0")
}

const UDP: [u8; 8] = [0, 53, 0, 53, 0, 8, 0, 0];

#[test]
fn ipv4_headers_are_walked() {
    assert_eq!(v4(&[], 17, &UDP).map(|packet| packet.protocol), Ok(17));
    // Behind an authentication header, the protocol is that of its content.
    let ah = [&[17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0][..], &UDP].concat();
    assert_eq!(
        v4(&[], 51, &ah).map(|packet| (packet.protocol, packet.ports())),
        Ok((17, Some((53, 53))))
    );
    assert_eq!(v4(&[], 51, &ah[..1]), Err(Refusal::ShortExtensionHeader));
    let nested: Vec<u8> = std::iter::repeat_n([51, 0, 0, 0, 0, 0, 0, 0], 20)
        .flatten()
        .collect();
    assert_eq!(v4(&[], 51, &nested), Err(Refusal::HeaderLimit));
    assert_eq!(v4(&[], 17, &UDP[..7]), Err(Refusal::ShortTransportHeader));
    assert_eq!(
        v4(&[], 17, &[0, 53, 0, 53, 0, 9, 0, 0]),
        Err(Refusal::TransportLength)
    );
    assert_eq!(
        v4(&[], 17, &[0, 53, 0, 53, 0, 7, 0, 0]),
        Err(Refusal::TransportLength)
    );
    assert_eq!(
        v4(&[], 17, &[0, 53, 0, 0, 0, 8, 0, 0]),
        Err(Refusal::PortZero)
    );
    let tcp = [
        0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x60, 2, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(v4(&[], 6, &tcp), Err(Refusal::TransportLength));
}

#[test]
fn ipv4_options_mark_a_packet() {
    for (options, other, router_alert) in [
        (&[7, 3, 4, 0][..], true, false),
        (&[148, 4, 0, 0], false, true),
        (&[1, 1, 1, 1], true, false),
        (&[0, 0, 0, 0], true, false),
        (&[1, 148, 4, 0, 0, 0, 0, 0], false, true),
    ] {
        let packet = v4(options, 17, &UDP).expect("a packet");
        assert_eq!(
            packet.options,
            IpOptions {
                other,
                router_alert
            },
            "{options:?}"
        );
        assert!(packet.has_options());
    }
    for options in [
        &[7, 1, 0, 0][..],
        &[7, 5, 0, 0],
        &[1, 1, 1, 7],
        &[7, 0, 0, 0],
    ] {
        assert_eq!(
            v4(options, 17, &UDP),
            Err(Refusal::BadIpOption),
            "{options:?}"
        );
    }
    assert!(!v4(&[148, 4, 0, 0], 2, &[0; 8]).expect("IGMP").has_options());
}

#[test]
fn ipv4_lengths_must_fit() {
    assert_eq!(
        Packet::decode(&[], Direction::In, "em0"),
        Err(Refusal::ShortIpHeader)
    );
    assert_eq!(
        Packet::decode(&[0x45; 19], Direction::In, "em0"),
        Err(Refusal::ShortIpHeader)
    );
    assert_eq!(
        Packet::decode(&[0x55; 40], Direction::In, "em0"),
        Err(Refusal::NotIp)
    );
    let mut bytes = vec![0x45, 0, 0, 40];
    bytes.resize(39, 0);
    assert_eq!(
        Packet::decode(&bytes, Direction::In, "em0"),
        Err(Refusal::IpLength)
    );
    bytes.push(0);
    bytes[0] = 0x44;
    assert_eq!(
        Packet::decode(&bytes, Direction::In, "em0"),
        Err(Refusal::HeaderLength)
    );
    bytes[0] = 0x4f;
    assert_eq!(
        Packet::decode(&bytes, Direction::In, "em0"),
        Err(Refusal::HeaderLength)
    );
    // Bytes past the packet's length are padding.
    let packet = Packet::parse(
        "in on em0 proto udp from 10.0.0.5 to 192.0.2.1 port 53",
        &Host::default(),
    )
    .unwrap();
    let mut bytes = packet.to_bytes();
    bytes.extend([0; 18]);
    assert_eq!(Packet::decode(&bytes, Direction::In, "em0"), Ok(packet));
}

#[test]
fn ipv6_headers_are_walked() {
    let with = |next: u8, header: &[u8], rest: &[u8]| v6(next, &[header, rest].concat());
    let plain = v6(17, &UDP).expect("a packet");
    assert!(!plain.has_options());
    let destination = with(60, &[17, 0, 1, 4, 0, 0, 0, 0], &UDP).expect("a packet");
    assert_eq!(
        (destination.protocol, destination.has_options()),
        (17, true)
    );
    let hop = with(0, &[17, 0, 1, 4, 0, 0, 0, 0], &UDP).expect("only padding counts as an option");
    assert!(hop.has_options());
    let alert = with(0, &[17, 0, 5, 2, 0, 0, 1, 0], &UDP).expect("a packet");
    assert_eq!(
        alert.options,
        IpOptions {
            router_alert: true,
            other: false
        }
    );
    assert_eq!(
        with(0, &[17, 0, 7, 9, 0, 0, 0, 0], &UDP),
        Err(Refusal::BadIpOption)
    );
    let twice = [
        &[60, 0, 1, 4, 0, 0, 0, 0][..],
        &[0, 0, 1, 4, 0, 0, 0, 0],
        &[17, 0, 1, 4, 0, 0, 0, 0],
        &UDP,
    ]
    .concat();
    assert_eq!(v6(0, &twice), Err(Refusal::HopByHopNotFirst));
    assert_eq!(
        with(43, &[17, 0, 0, 0, 0, 0, 0, 0], &UDP),
        Err(Refusal::RoutingHeaderZero)
    );
    assert!(
        with(43, &[17, 0, 2, 0, 0, 0, 0, 0], &UDP)
            .expect("a routing header of type 2")
            .has_options()
    );
    let routing = [
        &[43, 0, 2, 0, 0, 0, 0, 0][..],
        &[17, 0, 2, 0, 0, 0, 0, 0],
        &UDP,
    ]
    .concat();
    assert_eq!(v6(43, &routing), Err(Refusal::SeveralRoutingHeaders));
    let fragments = [
        &[44, 0, 0, 1, 0, 0, 0, 1][..],
        &[17, 0, 0, 1, 0, 0, 0, 1],
        &UDP,
    ]
    .concat();
    assert_eq!(v6(44, &fragments), Err(Refusal::SeveralFragmentHeaders));
    let atomic =
        with(44, &[17, 0, 0, 0, 0, 0, 0, 1], &UDP).expect("a fragment that is the whole datagram");
    assert_eq!((atomic.fragment(), atomic.ports()), (None, Some((53, 53))));
    let first = with(44, &[17, 0, 0, 1, 0, 0, 0, 1], &UDP).expect("a first fragment");
    assert_eq!((first.protocol, first.ports(), first.id), (17, None, 1));
    let short = with(44, &[17, 0, 0, 1, 0, 0, 0, 1], &UDP[..4]).expect("a short first fragment");
    assert_eq!(short.protocol, 44);
    let later = with(44, &[17, 0, 0, 8, 0, 0, 0, 1], &UDP).expect("a later fragment");
    assert_eq!(
        (
            later.protocol,
            later.fragment().map(|fragment| fragment.offset)
        ),
        (44, Some(8))
    );
    let nested: Vec<u8> = std::iter::repeat_n([60, 0, 1, 4, 0, 0, 0, 0], 20)
        .flatten()
        .collect();
    assert_eq!(v6(60, &nested), Err(Refusal::HeaderLimit));
    assert_eq!(v6(60, &[17]), Err(Refusal::ShortExtensionHeader));
    assert_eq!(v6(0, &[17, 0, 0xc2, 4, 0, 1, 0, 0]), Err(Refusal::BadJumbo));
}

#[test]
fn messages_about_cut_packets_are_about_nothing() {
    let echo = [8, 0, 0, 0, 0, 1, 0, 1];
    assert!(
        v4(&[], 1, &echo)
            .expect("ICMP")
            .icmp()
            .expect("ICMP")
            .about
            .is_none()
    );
    let packet = Packet::parse(
        "in on em0 proto icmp from 10.0.0.5 to 192.0.2.1 icmp-type unreach about proto tcp from 192.0.2.1 port 1 to \
         10.0.0.9 port 2",
        &Host::default(),
    )
    .unwrap();
    let bytes = packet.to_bytes();
    let inner = &bytes[28..];
    let about = |inner: &[u8]| {
        let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], inner].concat();
        v4(&[], 1, &message)
            .expect("ICMP")
            .icmp()
            .expect("ICMP")
            .about
    };
    assert!(about(inner).is_some());
    assert!(about(&inner[..27]).is_none(), "cut off");
    let mut later = inner.to_vec();
    later[7] = 8;
    assert!(about(&later).is_none(), "a later fragment");
    later[7] = 0;
    later[0] = 0x44;
    assert!(about(&later).is_none(), "a bad header");
}

#[test]
fn frames_without_ip_are_not_for_pf() {
    let packet = Packet::parse(
        "in on em0 proto udp from 10.0.0.5 to 192.0.2.1 port 53",
        &Host::default(),
    )
    .unwrap();
    let frame = |types: &[u8]| [&[2; 12][..], types, &packet.to_bytes()].concat();
    let decode = |types: &[u8]| Packet::decode_frame(&frame(types), Direction::In, "em0");
    assert_eq!(decode(&[8, 0]), Some(Ok(packet.clone())));
    assert_eq!(decode(&[0x81, 0, 0, 7, 8, 0]), Some(Ok(packet.clone())));
    assert_eq!(
        decode(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0]),
        Some(Ok(packet.clone()))
    );
    assert_eq!(decode(&[8, 6]), None);
    assert_eq!(Packet::decode_frame(&[2; 13], Direction::In, "em0"), None);
}

#[test]
fn refusals_have_names_of_their_own() {
    let mut names: Vec<_> = Refusal::ALL.iter().map(|refusal| refusal.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Refusal::ALL.len());
    assert!(
        Refusal::ALL
            .iter()
            .all(|refusal| !refusal.sentence().ends_with('.'))
    );
    assert_eq!(Refusal::NeighbourDiscovery.reason().name(), "normalize");
    assert_eq!(Refusal::RoutingHeaderZero.reason().name(), "ip-option");
}

#[test]
fn bytes_meet_the_same_rules() {
    let mut net = Net::new("set skip on lo\nblock\npass in proto udp to port 53\n");
    let packet = net.packet("in udp 10.0.0.5:9 > 192.0.2.1:53");
    let decision = net
        .engine
        .run_bytes(&packet.to_bytes(), Direction::In, "em0");
    assert_eq!(net.sum_up(&decision), "pass @3");
    let decision = net.engine.run_bytes(&[], Direction::In, "em0");
    assert_eq!(net.sum_up(&decision), "block short-ip-header");
    let decision = net.engine.run_bytes(&[], Direction::In, "lo0");
    assert_eq!(net.sum_up(&decision), "pass skip");
}

#[test]
fn an_error_about_a_message_of_the_other_family_is_read_again() {
    for (outer, inner) in [
        (
            "proto icmp from 192.0.2.1 to 10.1.0.1 icmp-type unreach",
            "proto icmp6 from 10.1.0.1 to 192.0.2.9",
        ),
        (
            "proto icmp6 from 2001:db8::1 to 2001:db8::2 icmp6-type unreach",
            "proto icmp from 2001:db8::2 to 2001:db8::9",
        ),
    ] {
        let text = format!("in on em0 {outer} about {inner}");
        let packet = Packet::parse(&text, &Host::default()).unwrap();
        assert_eq!(
            Packet::parse(&packet.to_words(), &Host::default()),
            Ok(packet),
            "{text}"
        );
    }
}

#[test]
fn an_error_about_a_later_fragment_is_decoded_again() {
    let mut inner = vec![0x60, 0, 0, 0, 0, 8, 44, 64];
    inner.extend([0x2c; 32]);
    // TCP, at offset 8.
    inner.extend([6, 0, 0, 8, 0, 0, 0, 1]);
    let mut bytes = vec![0x60, 0, 0, 0, 0, 8 + inner.len() as u8, 58, 64];
    bytes.extend([0x3a; 32]);
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(inner);
    let packet = Packet::decode(&bytes, Direction::In, "em0").unwrap();
    let about = packet.icmp().and_then(|icmp| icmp.about.as_ref()).unwrap();
    assert_eq!(about.protocol, 44);
    assert_eq!(
        Packet::decode(&packet.to_bytes(), Direction::In, "em0"),
        Ok(packet)
    );
}

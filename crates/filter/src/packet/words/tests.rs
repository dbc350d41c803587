//! Tests of words.

use super::Result;
use crate::host::Host;
use crate::names;
use crate::packet::Packet;

fn parse(text: &str) -> Result<Packet> {
    Packet::parse(text, &Host::default())
}

#[test]
fn words_are_written_as_they_are_read() {
    for text in [
        "in on em0 proto tcp from 10.0.0.5 port 4000 to 192.0.2.1 port 22 flags S",
        "out on em0 received-on em1 proto tcp from 2001:db8::1 port 80 to 2001:db8::2 port 4000 flags SA seq 7 ack 8 \
         window 100 urgent 3 length 9 mss 1460 wscale 7",
        "in on em0 proto udp from 10.0.0.5 port 53 to 192.0.2.1 port 53 length 100 ip-id 5 df tos 0x10 ttl 3 options",
        "in on em0 proto icmp from 10.0.0.5 to 192.0.2.1 icmp-type echoreq code 3 id 77",
        "in on em0 proto icmp6 from fe80::1 to ff02::1:ff00:2 icmp-type neighbrsol target fe80::2",
        "in on em0 proto esp from 10.0.0.5 to 192.0.2.1 length 64 router-alert",
        "in on em0 proto udp from 10.0.0.5 to 192.0.2.1 fragment offset 1480 length 8",
        "in on em0 proto udp from 2001:db8::1 to 2001:db8::2 fragment offset 0 more data 0035003500100001 ip-id 9",
        "in on em0 proto tcp from 10.0.0.5 port 1 to 192.0.2.1 port 2 flags none bad-checksum tagged A rdomain 2 \
         prio 0 user 1000 group unknown os \"OpenBSD 3.3\" source-route none destination-route lan urpf failed generated",
        "in on em0 proto icmp from 10.0.0.5 to 192.0.2.1 icmp-type unreach code port-unr about proto udp from \
         192.0.2.1 port 53 to 10.0.0.9 port 54",
        "in on em0 proto icmp from 10.0.0.5 to 192.0.2.1 icmp-type timex about proto tcp from 192.0.2.1 port 53 to \
         10.0.0.9 port 54 seq 5",
    ] {
        let packet = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(packet.to_words(), text);
    }
}

#[test]
fn other_forms_mean_the_same() {
    let same =
        parse("in on em0 proto tcp from 10.0.0.5 port 4000 to 192.0.2.1 port 22 flags S").unwrap();
    assert_eq!(
        parse("flags S in on em0 proto 6 to 192.0.2.1:22 from 10.0.0.5:4000"),
        Ok(same.clone())
    );
    assert_eq!(
        parse("in on em0 proto tcp from 10.0.0.5 port 4000 to 192.0.2.1 port ssh"),
        Ok(same)
    );
    let v6 = parse("in on em0 proto udp from [2001:db8::1]:80 to 2001:db8::2 port 53").unwrap();
    assert_eq!(v6.ports(), Some((80, 53)));
    let echo = parse("in on em0 icmp-type echoreq from 10.0.0.5 to 192.0.2.1").unwrap();
    assert_eq!(echo.protocol, names::ICMP);
}

#[test]
fn errors_name_place_cause_and_cure() {
    for (text, at, message) in [
        (
            "on em0 proto tcp from 10.0.0.5 to 192.0.2.1 port 22",
            51,
            "no direction",
        ),
        (
            "in proto tcp from 10.0.0.5 to 192.0.2.1 port 22",
            47,
            "no interface",
        ),
        (
            "in on em0 proto tcp from 10.0.0.5 to 192.0.2.1",
            46,
            "no destination port",
        ),
        (
            "in on em0 proto tcp from 10.0.0.555 to 192.0.2.1 port 22",
            25,
            "\"10.0.0.555\" is no address",
        ),
        (
            "in on em0 proto tcp from 10.0.0.5 to 192.0.2.1 port nope",
            52,
            "\"nope\" is no port",
        ),
        (
            "in on em0 proto tcp from 10.0.0.5 to 192.0.2.1 port 22 flags X",
            61,
            "\"X\" does not fit \"flags\"",
        ),
        (
            "in on em0 protocol tcp",
            10,
            "\"protocol\" is no word of a packet",
        ),
        (
            "in on em0 proto ah from 10.0.0.5 to 192.0.2.1",
            16,
            "pf never judges a packet by protocol ah",
        ),
        ("in out", 3, "a second direction"),
        ("in on", 5, "nothing after \"on\""),
        (
            "in on em0 proto esp from 10.0.0.5 to 2001:db8::1",
            37,
            "source and destination",
        ),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.message.starts_with(message), "{text}: {error}");
        assert!(!error.help.is_empty());
    }
}

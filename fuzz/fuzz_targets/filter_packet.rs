//! Packets. Any bytes are a packet or a refusal, and any words one or an error; a packet that was read is written
//! as bytes and as words that give the same packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pf_filter::host::Host;
use pf_filter::packet::Packet;
use pf_filter::rule::Direction;

fuzz_target!(|input: &[u8]| {
    let host = Host::default();
    if let Ok(packet) = Packet::decode(input, Direction::In, "em0") {
        let again = Packet::decode(&packet.to_bytes(), Direction::In, "em0");
        assert_eq!(again.as_ref(), Ok(&packet), "of its bytes");
        words(&packet, &host);
    }
    if let Some(Ok(packet)) = Packet::decode_frame(input, Direction::Out, "em0") {
        words(&packet, &host);
    }
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match Packet::parse(text, &host) {
        Ok(packet) => {
            words(&packet, &host);
            packet.to_bytes();
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fn words(packet: &Packet, host: &Host) {
    let text = packet.to_words();
    match Packet::parse(&text, host) {
        Ok(again) => assert_eq!(again, *packet, "{text}"),
        Err(error) => panic!("{text}: {error}"),
    }
}

//! How fast the interpreter walks:
//! `cargo test --release -p pf-filter --test eval -- --ignored --nocapture speed`

use std::time::Instant;

use super::packets::Numbers;
use super::support::Net;

#[test]
#[ignore = "measures time; in release builds"]
fn a_hundred_thousand_packets_by_a_thousand_rules() {
    let mut conf = String::from("set limit states 1000000\nblock all\n");
    for at in 0..999 {
        let (a, b) = (at / 256, at % 256);
        let line = match at % 3 {
            0 => format!(
                "pass in on em0 inet proto tcp from 10.{a}.{b}.0/24 to port {} no state\n",
                1000 + at
            ),
            1 => format!("block in on em0 inet from 10.{a}.{b}.0/24 to 192.0.2.{b}\n"),
            _ => format!("match inet proto udp to 198.51.{a}.{b} tag T{a}\n"),
        };
        conf.push_str(&line);
    }
    let mut net = Net::new(&conf);
    let mut numbers = Numbers(99);
    let packets: Vec<_> = std::iter::repeat_with(|| numbers.packet())
        .filter(|packet| packet.source.is_ipv4() && packet.fragment().is_none())
        .take(100_000)
        .collect();
    let start = Instant::now();
    let passed = packets
        .iter()
        .filter(|packet| net.engine.run(packet).verdict.is_pass())
        .count();
    let time = start.elapsed();
    println!(
        "100,000 packets, 1,000 rules, {passed} passed: {time:.2?}, {:.1} ns a rule",
        time.as_nanos() as f64 / 1e8
    );
}

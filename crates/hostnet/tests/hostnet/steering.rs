//! Statistics by queue, and the refusals of devices that have neither RSS nor flow rules. The
//! requests that a card takes are tested in `ethtool::flow`, `rss` and `steering`.

use std::os::fd::AsFd as _;

use hostnet::ethtool::{self, Addresses, FlowRule, Masked, Steering, Transport};
use hostnet::tap::Tap;
use hostnet::{Error, ErrorKind, netns};

use testkit::{Need, Result, Test};

use crate::devices::pair;
use crate::refusal;

const TUN: &[Need] = &[Need::File("/dev/net/tun")];
const RULE: FlowRule = FlowRule {
    transport: Transport::Udp,
    addresses: Addresses::ANY_V4,
    source_port: Masked::ANY_PORT,
    destination_port: Masked {
        value: 4242,
        mask: u16::MAX,
    },
    ring: 0,
};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("a_veth_counts_packets_by_queue", counts),
        Test::new("a_veth_has_no_rss_and_no_flow_rules", veth),
        Test::new("a_tap_has_no_rss_and_no_flow_rules", tap).needing(TUN),
    ]
}

fn counts() -> Result<()> {
    let [a, _b] = pair(3, 1500)?;
    netns::run_in(a.as_fd(), || -> Result<()> {
        let packets = ethtool::rx_packets_by_queue("v0")?.ok_or("a veth counts by queue")?;
        assert_eq!(packets, [(0, 0), (1, 0), (2, 0)].into());
        let statistics = ethtool::statistics("v0")?;
        assert!(statistics.iter().any(|s| s.name == "rx_queue_2_drops"));
        Ok(())
    })
}

fn veth() -> Result<()> {
    let [a, _b] = pair(2, 1500)?;
    netns::run_in(a.as_fd(), || check_refusals("v0"))
}

fn tap() -> Result<()> {
    let namespace = netns::create()?;
    netns::run_in(namespace.as_fd(), || {
        let _tap = Tap::create("t0")?;
        assert_eq!(ethtool::rx_packets_by_queue("t0")?, None);
        check_refusals("t0")
    })
}

fn check_refusals(device: &str) -> Result<()> {
    assert_eq!(ethtool::rss(device)?, None);
    assert_eq!(ethtool::flow_rules(device)?, None);
    let mut steering = Steering::open(device)?;
    let without_table = [
        refusal(ethtool::set_rss_table(device, &[0])),
        refusal(ethtool::set_rss_key(device, &[0; 40])),
        refusal(ethtool::reset_rss(device)),
        refusal(steering.set_table(&[0])),
    ];
    for error in without_table {
        check(&error, "its driver has no RSS table");
    }
    let without_rules = [
        refusal(ethtool::insert_flow_rule(device, &RULE)),
        refusal(steering.insert_rule(&RULE)),
    ];
    for error in without_rules {
        check(&error, "open a socket on every queue");
    }
    let error = refusal(ethtool::delete_flow_rule(device, 3));
    check(&error, "cannot delete the flow rule 3");
    Ok(steering.restore()?)
}

fn check(error: &Error, words: &str) {
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(error.errno(), Some(95), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

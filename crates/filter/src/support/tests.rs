use std::sync::Arc;

use super::*;
use crate::rule::{
    Action, Comparison, DynamicInterface, InterfaceMatch, Network, Origin, Pool, PoolKind,
    PortMatch, Queue, Rate, Route, Scrub, ServiceCurve, Tagged,
};
use crate::source::{FileId, Span};

const SPAN: Span = Span {
    file: FileId(0),
    start: 0,
    end: 0,
};

fn rule(action: Action) -> Rule {
    Rule::new(
        action,
        Origin {
            span: SPAN,
            elements: Vec::new(),
        },
    )
}

fn on(rule: &mut Rule, direction: Direction, name: &str) {
    rule.direction = Some(direction);
    rule.on = Some(On::Interface(InterfaceMatch {
        name: name.into(),
        negated: false,
    }));
}

fn network(text: &str, bits: u8) -> Network {
    Network::new(text.parse().expect("an address"), bits)
}

fn pool(address: Address) -> Pool {
    Pool {
        address,
        ports: (50_001, 65_535),
        port_range: false,
        kind: PoolKind::None,
        sticky: false,
        interface: None,
        more: Vec::new(),
    }
}

fn supported(rule: &Rule) -> Support {
    support(rule, &Ruleset::default())
}

/// The only obstacle's feature and commands.
fn instead(rule: &Rule) -> (&'static str, Vec<String>) {
    let mut obstacles = supported(rule).obstacles;
    assert_eq!(obstacles.len(), 1, "{obstacles:?}");
    let obstacle = obstacles.remove(0);
    (obstacle.feature, obstacle.instead)
}

#[test]
fn a_plain_rule_is_honoured_where_its_packets_are() {
    use Honour::{Never, Yes};
    let mut pass = rule(Action::Pass);
    pass.state = KeepState::Keep;
    pass.max_packet_rate = Some(Rate {
        limit: 100,
        seconds: 10,
    });
    assert_eq!(supported(&pass).hooks, [Yes, Yes, Yes]);
    on(&mut pass, Direction::Out, "em0");
    assert_eq!(supported(&pass).hooks, [Never, Never, Yes]);
    on(&mut pass, Direction::In, "em0");
    let support = supported(&pass);
    assert_eq!(support.hooks, [Yes, Yes, Never]);
    assert_eq!((support.obstacles, support.notes), (Vec::new(), Vec::new()));
}

#[test]
fn received_on_is_known_to_packets_that_leave() {
    use Honour::{Never, No, Yes};
    let mut pass = rule(Action::Pass);
    pass.received_on = Some(InterfaceMatch {
        name: "em1".into(),
        negated: false,
    });
    assert_eq!(supported(&pass).hooks, [No, No, Yes]);
    pass.direction = Some(Direction::Out);
    assert_eq!(supported(&pass).hooks, [Never, Never, Yes]);
}

#[test]
fn nat_is_a_line_of_nft() {
    let mut nat = rule(Action::Match);
    on(&mut nat, Direction::Out, "em0");
    nat.family = Some(Family::Inet);
    nat.source.address = Address::Network(network("10.0.0.0", 8));
    nat.nat = Some(Box::new(pool(Address::Network(network("192.0.2.1", 32)))));
    let line =
        "nft add rule ip nat postrouting oifname \"em0\" ip saddr 10.0.0.0/8 snat to 192.0.2.1";
    assert_eq!(instead(&nat), ("nat-to", vec![line.to_owned()]));
    assert_eq!(supported(&nat).hooks[2], Honour::No);

    nat.nat = Some(Box::new(pool(Address::Interface(DynamicInterface {
        name: "egress".into(),
        part: None,
        no_alias: false,
        bits: 32,
    }))));
    on(&mut nat, Direction::Out, "egress");
    let line = "nft add rule ip nat postrouting oifname $egress ip saddr 10.0.0.0/8 masquerade";
    assert_eq!(instead(&nat).1, [line]);
    nat.tagged = Some(Tagged {
        name: "LAN".into(),
        negated: false,
    });
    assert_eq!(instead(&nat).1, [""; 0], "nft has no tags");
}

#[test]
fn redirection_is_a_line_of_nft() {
    let mut rdr = rule(Action::Pass);
    on(&mut rdr, Direction::In, "em0");
    rdr.protocol = Some(6);
    rdr.destination.port = Some(PortMatch {
        comparison: Comparison::Equal,
        low: 80,
        high: 0,
    });
    rdr.rdr = Some(Box::new(pool(Address::Network(network("10.0.0.80", 32)))));
    rdr.rdr.as_mut().expect("a pool").ports = (8080, 0);
    let line = "nft add rule ip nat prerouting iifname \"em0\" tcp dport 80 dnat to 10.0.0.80:8080";
    assert_eq!(instead(&rdr), ("rdr-to", vec![line.to_owned()]));
    rdr.rdr.as_mut().expect("a pool").address = Address::Network(network("2001:db8::80", 128));
    let line =
        "nft add rule ip6 nat prerouting iifname \"em0\" tcp dport 80 dnat to [2001:db8::80]:8080";
    assert_eq!(instead(&rdr).1, [line]);
    rdr.rdr.as_mut().expect("a pool").address = Address::Network(network("127.0.0.1", 32));
    let line = "nft add rule ip nat prerouting iifname \"em0\" tcp dport 80 redirect to :8080";
    assert_eq!(instead(&rdr).1, [line]);
}

#[test]
fn another_way_is_a_routing_table() {
    let mut pass = rule(Action::Pass);
    on(&mut pass, Direction::In, "em1");
    pass.route = Some(Box::new(Route {
        kind: RouteKind::RouteTo,
        pool: pool(Address::Network(network("198.51.100.1", 32))),
    }));
    let lines = [
        "nft add rule inet filter prerouting iifname \"em1\" meta mark set 100",
        "ip rule add fwmark 100 lookup 100",
        "ip route add default via 198.51.100.1 table 100",
    ];
    assert_eq!(
        instead(&pass),
        ("route-to", lines.map(str::to_owned).to_vec())
    );
}

#[test]
fn rewriting_is_refused_feature_by_feature() {
    let mut scrub = rule(Action::Match);
    scrub.scrub = Some(Box::new(Scrub {
        no_df: true,
        max_mss: 1440,
        min_ttl: 64,
        ..Scrub::default()
    }));
    let support = supported(&scrub);
    let features: Vec<_> = support.obstacles.iter().map(|it| it.feature).collect();
    assert_eq!(
        features,
        ["scrub (min-ttl)", "scrub (max-mss)", "scrub (no-df)"]
    );
    assert_eq!(
        support.obstacles[1].instead,
        ["nft add rule inet filter forward tcp flags syn tcp option maxseg size set 1440"]
    );
    assert!(support.obstacles[2].instead.is_empty());
}

#[test]
fn queues_are_classes() {
    let queue = |name: &str, parent: Option<&str>, rate, default| Queue {
        name: name.into(),
        parent: parent.map(Arc::from),
        interface: parent.is_none().then(|| "em0".into()),
        flows: 0,
        quantum: 0,
        bandwidth: ServiceCurve {
            rate,
            ..ServiceCurve::default()
        },
        min: ServiceCurve::default(),
        max: ServiceCurve {
            rate: 100_000_000,
            ..ServiceCurve::default()
        },
        default,
        limit: 0,
        span: SPAN,
    };
    let queues = vec![
        queue("main", None, 100_000_000, false),
        queue("std", Some("main"), 50_000_000, true),
    ];
    let mut set = rule(Action::Match);
    on(&mut set, Direction::Out, "em0");
    set.set = Some(Box::new(Set {
        queue: Some(("std".into(), None)),
        ..Set::default()
    }));
    let ruleset = Ruleset {
        queues,
        ..Ruleset::default()
    };
    let obstacle = &support(&set, &ruleset).obstacles[0];
    assert_eq!(
        obstacle.instead,
        ["nft add rule inet filter postrouting oifname \"em0\" meta priority set 1:2"]
    );
    assert_eq!(
        globals(&ruleset)[0].instead,
        [
            "tc qdisc add dev em0 root handle 1: hfsc default 2",
            "tc class add dev em0 parent 1: classid 1:1 hfsc ls rate 100000000bit ul rate 100000000bit",
            "tc class add dev em0 parent 1:1 classid 1:2 hfsc ls rate 50000000bit ul rate 100000000bit",
        ]
    );
}

#[test]
fn options_count_too() {
    let mut ruleset = Ruleset::default();
    assert_eq!(globals(&ruleset), []);
    ruleset.options.syncookies = Syncookies::Adaptive;
    assert_eq!(
        globals(&ruleset)[0].instead,
        ["sysctl -w net.ipv4.tcp_syncookies=1"]
    );
}

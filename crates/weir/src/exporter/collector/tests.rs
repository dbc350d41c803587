//! Tests of the collector on hosts that are told.

use super::*;
use crate::ledger::sheet::{Direction, Edge, Loss, Term};
use crate::ledger::snapshot::{Device, Namespace, Process, Reading, Ring, Socket, XdpSocket};
use crate::ledger::stage::Unit;
use anyhow::bail;
use std::collections::{BTreeSet, VecDeque};

/// A host whose snapshots and losses are given.
#[derive(Default)]
struct Told {
    snapshots: VecDeque<Option<Snapshot>>,
    losses: VecDeque<Vec<Loss>>,
    edges: Vec<Edge>,
    opened: u32,
}

struct Host(std::rc::Rc<std::cell::RefCell<Told>>);

impl Source for Host {
    fn snapshot(&mut self) -> Result<Snapshot> {
        match self.0.borrow_mut().snapshots.pop_front() {
            Some(Some(snapshot)) => Ok(snapshot),
            _ => bail!("no counters"),
        }
    }

    fn open(&mut self) -> Result<()> {
        self.0.borrow_mut().opened += 1;
        Ok(())
    }

    fn balance(&self, _: &Snapshot, _: &Snapshot) -> Result<Sheet> {
        let mut told = self.0.borrow_mut();
        Ok(Sheet {
            seconds: Some(1.0),
            losses: told.losses.pop_front().unwrap_or_default(),
            edges: told.edges.clone(),
            ..Sheet::default()
        })
    }
}

fn loss(stage: Stage, reason: &str, device: &str, count: u64) -> Loss {
    Loss {
        class: Class::Lost,
        stage,
        unit: Unit::Skbs,
        count,
        segments: count,
        reason: reason.into(),
        place: Some("somewhere".into()),
        meaning: String::new(),
        netns: 1,
        namespace: "blue".into(),
        device: Some(device.into()),
        qdisc: None,
        is_received: None,
        socket: Some("10.0.0.1:53".into()),
        process: Some(Process {
            pid: 4711,
            name: "named".into(),
        }),
        proof: String::new(),
        also: Vec::new(),
        check: None,
    }
}

/// A namespace with devices, each with an error of its own, and sockets.
fn snapshot(devices: &[String], sockets: u64) -> Snapshot {
    let counters = |pairs: &[(&str, u64)]| {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Reading::from(*value)))
            .collect()
    };
    let device = |name: &String| Device {
        name: name.clone(),
        statistics: counters(&[("rx_packets", 5), ("tx_packets", 6), ("rx_dropped", 7)]),
        ..Device::default()
    };
    let socket = |at: u64| Socket {
        protocol: "udp".into(),
        local: format!("10.0.0.1:{at}"),
        queued: 2,
        ..Socket::default()
    };
    let namespace = Namespace {
        name: "blue".into(),
        devices: (1..).zip(devices.iter().map(device)).collect(),
        mib: counters(&[("Udp.RcvbufErrors", 3), ("Udp.Unknown", 4)]),
        sockets: (0..sockets).map(|at| (at, socket(at))).collect(),
        ..Namespace::default()
    };
    Snapshot {
        namespaces: [(1, namespace)].into(),
        cpus: (0..256)
            .map(|cpu| (cpu, counters(&[("processed", 9), ("dropped", 1)])))
            .collect(),
        xdp_sockets: Some(
            (0..sockets)
                .map(|cookie| XdpSocket {
                    cookie,
                    netns: 1,
                    device: cookie as u32 % 200 + 1,
                    queue: cookie as u32 / 200,
                    bound: true,
                    rx: Some(Ring {
                        size: 64,
                        producer: 3,
                        consumer: 1,
                    }),
                    rx_dropped: cookie,
                    ..XdpSocket::default()
                })
                .collect(),
        ),
        ..Snapshot::default()
    }
}

fn collector(told: Told) -> (Collector<Host>, std::rc::Rc<std::cell::RefCell<Told>>) {
    let told = std::rc::Rc::new(std::cell::RefCell::new(told));
    let host = Host(std::rc::Rc::clone(&told));
    (Collector::start(host, 2000).expect("started"), told)
}

fn value(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(series))?;
    line.trim().parse().ok()
}

#[test]
fn losses_of_all_intervals_add_up() {
    let one = || Some(snapshot(&["eth0".into()], 0));
    let (mut collector, _) = collector(Told {
        snapshots: [one(), one(), one()].into(),
        losses: [
            vec![
                loss(Stage::Udp, "NO_SOCKET", "eth0", 5),
                loss(Stage::Socket, "FULL", "eth0", 1),
            ],
            vec![loss(Stage::Udp, "NO_SOCKET", "eth0", 7)],
        ]
        .into(),
        ..Told::default()
    });
    collector.collect().expect("collected");
    collector.collect().expect("collected");
    let page = collector.page(Format::Prometheus);
    let series = "weir_losses_total{stage=\"udp\",reason=\"NO_SOCKET\",place=\"somewhere\",namespace=\"blue\",\
                  device=\"eth0\"}";
    assert_eq!(value(&page, series), Some(12.0), "{page}");
    assert_eq!(
        value(&page, "weir_stage_losses_total{stage=\"udp\"}"),
        Some(12.0)
    );
    assert_eq!(
        value(&page, "weir_stage_losses_total{stage=\"socket\"}"),
        Some(1.0)
    );
    assert_eq!(
        value(&page, "weir_stage_losses_total{stage=\"tcp\"}"),
        Some(0.0)
    );
    for private in ["10.0.0.1", "4711", "named"] {
        assert!(!page.contains(private), "{private} is in the page");
    }
}

#[test]
fn a_large_host_stays_within_the_limit_and_its_sums_are_right() {
    let devices: Vec<_> = (0..200).map(|at| format!("eth{at}")).collect();
    let losses = || {
        (0..5000)
            .map(|at| {
                let stage = Stage::ALL[at % 20];
                loss(
                    stage,
                    &format!("R{}", at % 97),
                    &devices[at % 200],
                    at as u64,
                )
            })
            .collect::<Vec<_>>()
    };
    let edge = |at: usize| Edge {
        direction: Direction::Receive,
        from: Stage::ALL[at % 19],
        to: Stage::ALL[at % 19 + 1],
        unit: Unit::Skbs,
        netns: 1,
        namespace: format!("ns{at}"),
        subject: Some(format!("eth{at}")),
        entered: Vec::<Term>::new(),
        left: Vec::new(),
        unexplained: at.try_into().expect("small"),
        bound: 9,
        open: Vec::new(),
    };
    let one = || Some(snapshot(&devices, 1000));
    let (mut collector, _) = collector(Told {
        snapshots: [one(), one(), one()].into(),
        losses: [losses(), losses()].into(),
        edges: (0..400).map(edge).collect(),
        ..Told::default()
    });
    collector.collect().expect("collected");
    collector.collect().expect("collected");
    let page = collector.page(Format::Prometheus);
    let series: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(series.len() <= 2000, "{} series", series.len());
    let names: BTreeSet<_> = series
        .iter()
        .filter_map(|it| it.rsplit_once(' '))
        .map(|it| it.0)
        .collect();
    assert_eq!(names.len(), series.len(), "a series is there twice");
    let sum = |prefix: &str| -> f64 {
        let of = series.iter().filter(|line| line.starts_with(prefix));
        of.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    };
    let expected = 2.0 * (0..5000).sum::<i32>() as f64;
    assert!((sum("weir_losses_total{") - expected).abs() < 0.5);
    assert!((sum("weir_stage_losses_total{") - expected).abs() < 0.5);
    let of_udp = f64::from((0..5000).filter(|at| at % 20 == 13).sum::<i32>() * 2);
    assert_eq!(Stage::ALL[13], Stage::Udp);
    assert!((sum("weir_losses_total{stage=\"udp\"") - of_udp).abs() < 0.5);
    assert!((sum("weir_device_packets_total{direction=\"receive\"") - 1000.0).abs() < 0.5);
    assert!((sum("weir_device_errors_total") - 1400.0).abs() < 0.5);
    assert!((sum("weir_softnet_processed_packets_total") - 256.0 * 9.0).abs() < 0.5);
    assert!((sum("weir_xdp_ring_entries{") - 2000.0).abs() < 0.5);
    assert!((sum("weir_unexplained_packets{") - (0..400).sum::<i32>() as f64).abs() < 0.5);
    assert!(value(&page, "weir_exporter_series ").is_some_and(|it| it as usize == series.len()));
    let folded = value(&page, "weir_exporter_folded_total{family=\"weir_losses\"}");
    assert!(folded.is_some_and(|it| it > 0.0));
    // No device lost its series: 200 are within the default.
    assert!(!page.contains("weir_device_packets_total{direction=\"receive\",namespace=\"other\""));
}

#[test]
fn a_vanished_device_and_namespace_take_their_series_along() {
    let two = Some(snapshot(&["eth0".into(), "eth1".into()], 0));
    let (mut collector, told) = collector(Told {
        snapshots: [two.clone(), two].into(),
        losses: [vec![
            loss(Stage::Udp, "A", "eth0", 5),
            loss(Stage::Udp, "A", "eth1", 5),
        ]]
        .into(),
        ..Told::default()
    });
    collector.collect().expect("collected");
    let is_shown = |collector: &Collector<Host>, device: &str| {
        let page = collector.page(Format::OpenMetrics);
        page.lines()
            .any(|line| line.contains(&format!("device=\"{device}\"")))
    };
    assert!(is_shown(&collector, "eth0") && is_shown(&collector, "eth1"));
    told.borrow_mut()
        .snapshots
        .push_back(Some(snapshot(&["eth0".into()], 0)));
    collector.collect().expect("collected");
    assert!(is_shown(&collector, "eth0") && !is_shown(&collector, "eth1"));
    told.borrow_mut()
        .snapshots
        .push_back(Some(Snapshot::default()));
    collector.collect().expect("collected");
    assert!(!is_shown(&collector, "eth0"));
    // The stage's sum stays.
    let page = collector.page(Format::Prometheus);
    assert_eq!(
        value(&page, "weir_stage_losses_total{stage=\"udp\"}"),
        Some(10.0)
    );
}

#[test]
fn after_a_failed_snapshot_the_reader_begins_anew() {
    let one = || Some(snapshot(&[], 0));
    let (mut collector, told) = collector(Told {
        snapshots: [one(), None, one(), one()].into(),
        losses: [vec![loss(Stage::Udp, "A", "eth0", 5)]].into(),
        ..Told::default()
    });
    collector.collect().expect_err("no counters");
    collector.collect().expect("a new beginning");
    let page = collector.page(Format::Prometheus);
    assert_eq!(
        value(&page, "weir_exporter_snapshot_errors_total"),
        Some(1.0)
    );
    assert_eq!(
        value(&page, "weir_exporter_reader_restarts_total"),
        Some(1.0)
    );
    assert_eq!(
        value(&page, "weir_stage_losses_total{stage=\"udp\"}"),
        Some(0.0)
    );
    assert_eq!(told.borrow().opened, 2);
    collector.collect().expect("collected");
    let page = collector.page(Format::Prometheus);
    assert_eq!(
        value(&page, "weir_stage_losses_total{stage=\"udp\"}"),
        Some(5.0)
    );
}

#[test]
fn a_young_snapshot_is_shared() {
    let one = || Some(snapshot(&[], 0));
    let (mut collector, _) = collector(Told {
        snapshots: [one(), one()].into(),
        ..Told::default()
    });
    assert!(!collector.refresh().expect("shared"));
    let (_, taken) = collector.before.as_mut().expect("a snapshot");
    *taken = taken.checked_sub(SHARED).expect("a moment");
    assert!(collector.refresh().expect("a new one"));
}

#[test]
fn af_xdp_counts_survive_their_sockets() {
    let with = |cookie: u64, dropped: u64| {
        let mut snapshot = snapshot(&["eth0".into()], 0);
        snapshot.xdp_sockets = Some(vec![XdpSocket {
            cookie,
            netns: 1,
            device: 1,
            bound: true,
            rx_dropped: dropped,
            ..XdpSocket::default()
        }]);
        Some(snapshot)
    };
    let (mut collector, _) = collector(Told {
        snapshots: [with(1, 100), with(1, 103), with(2, 4), with(2, 4)].into(),
        ..Told::default()
    });
    let series = "weir_xdp_socket_total{counter=\"rx_dropped\",mode=\"copy\",namespace=\"blue\",device=\"eth0\",queue=\"0\"}";
    for expected in [3.0, 7.0, 7.0] {
        collector.collect().expect("collected");
        assert_eq!(
            value(&collector.page(Format::Prometheus), series),
            Some(expected)
        );
    }
}

#[test]
fn a_namespace_is_not_called_after_a_process() {
    let mut host = snapshot(&["eth0".into()], 0);
    let mut label = |name: &str, container: Option<&str>| {
        let namespace = host.namespaces.get_mut(&1).expect("a namespace");
        namespace.name = name.into();
        namespace.container = container.map(Into::into);
        series::namespace(&host, 1)
    };
    assert_eq!(label("blue", None), "blue");
    assert_eq!(label("blue", Some("web")), "blue (web)");
    assert_eq!(label("process 4711", Some("web")), "web");
    assert_eq!(label("process 4711", None), "net:[1]");
}

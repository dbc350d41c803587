//! Tests of the screen, on frames of a made-up host.

use std::collections::BTreeSet;
use std::sync::Arc;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::{SMALLEST, Status, draw};
use super::fixture::{HOSTILE, frame, scene};
use super::key::Key;
use super::once;
use super::state::State;
use super::table::Value;
use super::view::{Scene, View};

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];

/// The screen as text, after these keys.
fn screen(scene: &Scene, view: View, size: (u16, u16), keys: &[Key]) -> String {
    let mut state = State::default();
    state.show(view);
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a test's terminal");
    let mut table = state.table(scene);
    for key in keys {
        state.press(*key, &table.rows);
        table = state.table(scene);
    }
    let status = Status {
        left: "weir top".into(),
        right: "LIVE".into(),
        ..Status::default()
    };
    terminal
        .draw(|canvas| draw(canvas, &mut state, scene, &table, &status))
        .expect("a drawing");
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..size.1 {
        for x in 0..size.0 {
            text.push_str(buffer[(x, y)].symbol());
        }
        text.push('\n');
    }
    text
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The words of the line that begins with this one.
fn line<'s>(screen: &'s str, first: &str) -> Vec<&'s str> {
    let mut lines = screen.lines().map(words);
    let found = lines.find(|words| words.first() == Some(&first));
    found.unwrap_or_else(|| panic!("no line of {first}:\n{screen}"))
}

/// A value of a row, by the name of its column.
fn value(view: View, key: &str, column: &str) -> Value {
    let table = view.table(&scene());
    let row = table.rows.iter().find(|row| row.key == key);
    let row = row.unwrap_or_else(|| panic!("no row {key}: {:?}", table.rows));
    let at = table.columns.iter().position(|it| it.id == column);
    row.cells[at.expect("a column")].clone()
}

fn assert_rate(view: View, key: &str, column: &str, expected: f64) {
    let value = value(view, key, column);
    let number = value.number().unwrap_or(f64::NAN);
    assert!(
        (number - expected).abs() < 1e-6,
        "{column}: {value:?}, not {expected}"
    );
}

#[test]
fn every_view_is_shown_in_both_sizes() {
    for size in SIZES {
        for (view, row) in [
            (View::Devices, "eth0"),
            (View::Queues, "eth0"),
            (View::Cpus, "0"),
            (View::Napi, "eth0"),
            (View::Tasks, "forwarder"),
            (View::Programs, "42"),
            (View::XdpSockets, "eth0"),
            (View::Processes, "forwarder"),
            (View::Sockets, "udp"),
        ] {
            let screen = screen(&scene(), view, size, &[]);
            line(&screen, row);
            assert!(screen.starts_with("weir top"), "{screen}");
            assert!(screen.contains("q quit"), "{screen}");
            assert!(!screen.contains('\u{1b}'), "{screen}");
            let titles = screen.lines().nth(3).unwrap_or_default();
            assert!(
                titles.trim_start().starts_with(view.columns()[0].title),
                "{screen}"
            );
            let mut left_out = view
                .columns()
                .iter()
                .filter(|it| !titles.contains(it.title));
            // A wide terminal shows most, and says where there are more.
            assert_eq!(left_out.next().is_some(), titles.ends_with('>'), "{screen}");
        }
    }
}

#[test]
fn devices_have_rates_and_drops() {
    let key = "4026531840/2";
    for (column, rate) in [
        ("rx_pps", 1_250_000.0),
        ("rx_bits_per_second", 1e9),
        ("tx_pps", 1500.0),
        ("rx_dropped_pps", 12.0),
        // That of the root: its child's are among them, and clsact does not send.
        ("qdisc_dropped_pps", 40.0),
        ("dropped", 520.0),
    ] {
        assert_rate(View::Devices, key, column, rate);
    }
    let driver = value(View::Devices, key, "driver_loss");
    assert_eq!(driver, Value::Text("rx_queue_*_drops 12".into()));
    assert_eq!(
        value(View::Devices, key, "xdp"),
        Value::Text("42 driver".into())
    );
    let small = screen(&scene(), View::Devices, (80, 24), &[]);
    assert_eq!(
        line(&small, "eth0")[..4],
        ["eth0", "host", "1.25M", "1.00G"]
    );
}

#[test]
fn queues_have_shares() {
    assert_rate(View::Queues, "4026531840/2/rx 0", "packets_pps", 1e6);
    assert_rate(View::Queues, "4026531840/2/rx 0", "share_percent", 80.0);
    assert_rate(View::Queues, "4026531840/2/rx 1", "dropped_pps", 6.0);
    assert_rate(View::Queues, "4026531840/2/rx 1", "xdp_pps", 100.0);
}

#[test]
fn cpus_have_a_bill_and_a_backlog_whose_counters_wrap() {
    assert_rate(View::Cpus, "1", "network_percent", 36.0);
    assert_rate(View::Cpus, "1", "idle_percent", 24.0);
    assert_rate(View::Cpus, "1", "processed_pps", 1000.0);
    assert_rate(View::Cpus, "1", "dropped_pps", 3.0);
    let screen = screen(&scene(), View::Cpus, (80, 24), &[]);
    assert!(
        screen.contains("price: tracepoints take 0.34% of one CPU"),
        "{screen}"
    );
    assert!(
        screen
            .find("\n   0")
            .is_some_and(|zero| screen.find("\n   1").is_some_and(|one| zero < one)),
        "{screen}"
    );
}

#[test]
fn napi_and_tasks_are_of_the_time_observed() {
    let napi = "4026531840/2/8193";
    assert_rate(View::Napi, napi, "cpu_percent", 32.0);
    assert_rate(View::Napi, napi, "packets_per_poll", 32.0);
    assert_rate(View::Napi, napi, "ns_per_packet", 1000.0);
    assert_rate(View::Napi, napi, "exhausted_per_second", 11.0);
    assert_rate(View::Tasks, "815", "running_percent", 60.0);
    assert_rate(View::Tasks, "815", "own_percent", 50.0);
    let idle = View::Tasks.table(&scene());
    assert!(
        idle.rows.iter().all(|row| row.key != "0"),
        "the idle task is no process"
    );
}

#[test]
fn programs_have_their_price() {
    assert_rate(View::Programs, "42", "cpu_percent", 9.0);
    assert_rate(View::Programs, "42", "ns_per_run", 90.0);
    assert_rate(View::Programs, "42", "net_ns_per_run", 60.0);
    assert_eq!(
        value(View::Programs, "42", "devices"),
        Value::Text("eth0".into())
    );
    assert_eq!(value(View::Programs, "43", "ns_per_run"), Value::None);
    let note = "price: measuring adds 60 ns a run (30 ns of them in ns/RUN), 6.00% of one CPU now";
    assert_eq!(View::Programs.table(&scene()).notes, [note]);
}

#[test]
fn xdp_sockets_show_rings_and_what_they_starve_of() {
    let key = View::XdpSockets.table(&scene()).rows[0].key.clone();
    assert_rate(View::XdpSockets, &key, "rx_pps", 250_000.0);
    assert_rate(View::XdpSockets, &key, "starved_per_second", 400.0);
    assert_rate(View::XdpSockets, &key, "refused_pps", 30.0);
    assert_rate(View::XdpSockets, &key, "lost", 500.0);
    let small = screen(&scene(), View::XdpSockets, (80, 24), &[]);
    let first = "eth0 1 forwarder zc 250k [#####] [.....] 400 30 20";
    assert_eq!(line(&small, "eth0")[..10], words(first));
    let wide = screen(&scene(), View::XdpSockets, (200, 60), &[]);
    assert!(wide.contains("[##...]") && wide.contains(" rx "), "{wide}");
}

#[test]
fn sockets_and_processes_have_queues_and_drops() {
    assert_rate(View::Sockets, "4026531840/77", "drops_pps", 250.0);
    assert_rate(View::Sockets, "4026531840/77", "drops", 2500.0);
    assert_rate(View::Sockets, "4026531840/77", "fill_percent", 50.0);
    let hostile = format!("4711/{HOSTILE}");
    assert_rate(View::Processes, &hostile, "drops_pps", 250.0);
    assert_rate(View::Processes, &hostile, "udp", 1.0);
    assert_rate(View::Processes, "815/forwarder", "xdp", 1.0);
    assert_rate(View::Processes, "815/forwarder", "drops_pps", 50.0);
}

#[test]
fn drops_have_a_reason_a_place_and_an_owner() {
    let screen = screen(&scene(), View::Drops, (200, 60), &[]);
    let shown = line(&screen, "250");
    let first = [
        "250",
        "2.50k",
        "lost",
        "socket",
        "SOCKET_RCVBUFF",
        "eth0",
        "host",
    ];
    assert_eq!(shown[..7], first, "{screen}");
    assert!(
        shown.contains(&"(4711)") && shown.contains(&"udp_queue_rcv_one_skb"),
        "{screen}"
    );
    assert!(
        screen.contains("socket drops 2500"),
        "also seen as: {screen}"
    );
    let table = View::Drops.table(&scene());
    let keys: BTreeSet<_> = table.rows.iter().map(|row| &row.key).collect();
    assert_eq!(keys.len(), table.rows.len(), "rows are told apart");
    let note = &table.notes[0];
    assert!(
        note.starts_with("lost 1.39k a second now, 13.8k in 10 s"),
        "{note}"
    );
}

#[test]
fn names_are_no_commands_to_the_terminal() {
    for size in SIZES {
        for view in View::ALL {
            for keys in [&[][..], &[Key::Enter], &[Key::End, Key::Enter]] {
                let screen = screen(&scene(), view, size, keys);
                let command = screen.chars().find(|it| it.is_control() && *it != '\n');
                assert_eq!(command, None, "{view:?}");
            }
        }
        let tasks = screen(&scene(), View::Tasks, size, &[]);
        assert!(tasks.contains("?[2J?31mevil"), "{tasks}");
    }
    let tables = once::tables(&scene(), &View::ALL);
    assert!(!tables.contains(['\u{1b}', '\u{9b}', '\u{7}']), "{tables}");
}

#[test]
fn a_key_explains_the_number_under_the_cursor() {
    let keys = [Key::Right, Key::Right, Key::Enter];
    let screen = screen(&scene(), View::Devices, (80, 24), &keys);
    for text in [
        "RX/s  1.25M",
        "is       packets received in a second (rx_packets)",
        "read     rtnetlink",
        "scope    the device",
        "without  ",
        "by hand  ip -s -s link",
        "THE ROW",
    ] {
        assert!(screen.contains(text), "no {text}:\n{screen}");
    }
}

#[test]
fn rows_are_filtered_and_sorted_by_keys() {
    let filter: Vec<_> = "/VETH".chars().map(Key::Char).chain([Key::Enter]).collect();
    let filtered = screen(&scene(), View::Devices, (200, 60), &filter);
    line(&filtered, "v?[31mth");
    assert!(
        !filtered.contains("eth0") && filtered.contains("filter 'VETH'"),
        "{filtered}"
    );
    let sorted = screen(&scene(), View::Queues, (80, 24), &[Key::Char('s')]);
    assert!(sorted.contains("DEVICE*"), "{sorted}");
}

#[test]
fn columns_that_do_not_fit_are_reached_by_the_cursor() {
    let right = [Key::Right; 14];
    let screen = screen(&scene(), View::Devices, (80, 24), &right);
    assert!(
        screen.contains("QUEUES") && !screen.contains("RX/s"),
        "{screen}"
    );
    assert_eq!(line(&screen, "eth0").last(), Some(&"2"));
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    for width in [1, 2, 20, SMALLEST.0 - 1, SMALLEST.0, 500] {
        for height in [1, 2, SMALLEST.1 - 1, SMALLEST.1, 200] {
            for view in View::ALL {
                let screen = screen(&scene(), view, (width, height), &[]);
                let is_small = width < SMALLEST.0 || height < SMALLEST.1;
                if width > 20 && height > 1 {
                    assert_eq!(screen.contains("too small"), is_small, "{screen}");
                }
            }
        }
    }
}

#[test]
fn no_interval_is_no_rate() {
    let first = Arc::new(frame(0));
    let scene = Scene::new(Arc::clone(&first), None, first);
    for view in View::ALL {
        let screen = screen(&scene, view, (200, 60), &[]);
        assert!(
            !screen.contains("NaN") && !screen.contains("inf"),
            "{screen}"
        );
    }
    let devices = screen(&scene, View::Devices, (80, 24), &[]);
    assert_eq!(line(&devices, "eth0")[2], "-", "{devices}");
    let drops = screen(&scene, View::Drops, (80, 24), &[]);
    assert!(drops.contains("losses need two"), "{drops}");
}

#[test]
fn counters_that_were_set_back_have_no_rate() {
    let [first, before, mut after] = [0, 9, 10].map(frame);
    let namespace = after.snapshot.namespaces.values_mut().next();
    for device in namespace.expect("a namespace").devices.values_mut() {
        device.statistics.values_mut().for_each(|it| it.value = 1);
    }
    if let Some(bill) = &mut after.bill {
        bill.begun_ns += 1;
    }
    let [first, before, after] = [first, before, after].map(Arc::new);
    let scene = Scene::new(first, Some(before), after);
    let devices = screen(&scene, View::Devices, (80, 24), &[]);
    assert_eq!(
        line(&devices, "eth0")[2..6],
        ["-", "-", "-", "-"],
        "{devices}"
    );
    let cpus = screen(&scene, View::Cpus, (80, 24), &[]);
    assert_eq!(line(&cpus, "0")[1], "-", "another observation: {cpus}");
}

#[test]
fn devices_and_processes_may_vanish_between_frames() {
    let [first, before, mut after] = [0, 9, 10].map(frame);
    after.snapshot.namespaces.clear();
    after.snapshot.xdp_sockets = Some(Vec::new());
    after.snapshot.cpus.clear();
    after.bill = None;
    after.programs = None;
    after.no_programs = Some("this needs CAP_SYS_ADMIN".into());
    let [first, before, after] = [first, before, after].map(Arc::new);
    for frames in [(&first, &before, &after), (&after, &after, &first)] {
        let scene = Scene::new(
            Arc::clone(frames.0),
            Some(Arc::clone(frames.1)),
            Arc::clone(frames.2),
        );
        for view in View::ALL {
            for keys in [
                &[][..],
                &[Key::Down, Key::Enter],
                &[Key::End, Key::Char('s')],
            ] {
                screen(&scene, view, (80, 24), keys);
            }
        }
    }
    let scene = Scene::new(Arc::clone(&first), Some(before), after);
    let programs = screen(&scene, View::Programs, (80, 24), &[]);
    assert!(programs.contains("this needs CAP_SYS_ADMIN"), "{programs}");
}

#[test]
fn a_boot_between_two_frames_is_no_interval() {
    let [before, mut after] = [9, 10].map(frame);
    after.snapshot.boot_id = "another".into();
    let [before, after] = [before, after].map(Arc::new);
    let scene = Scene::new(Arc::clone(&before), Some(before), after);
    assert_eq!(scene.seconds(), None);
    assert_eq!(
        screen(&scene, View::Devices, (80, 24), &[])
            .matches("eth0")
            .count(),
        1
    );
}

#[test]
fn thousands_of_rows_are_shown() {
    let [mut before, mut after] = [9, 10].map(frame);
    for frame in [&mut before, &mut after] {
        let namespace = frame
            .snapshot
            .namespaces
            .values_mut()
            .next()
            .expect("a namespace");
        let socket = namespace
            .sockets
            .values()
            .next()
            .cloned()
            .expect("a socket");
        for cookie in 1000..21_000 {
            namespace.sockets.insert(cookie, socket.clone());
        }
    }
    let [before, after] = [before, after].map(Arc::new);
    let scene = Scene::new(Arc::clone(&before), Some(before), after);
    let screen = screen(&scene, View::Sockets, (80, 24), &[Key::End, Key::PageUp]);
    assert_eq!(screen.matches("0.0.0.0:53").count(), 19, "{screen}");
}

#[test]
fn every_column_explains_itself_and_has_a_name_of_its_own() {
    for view in View::ALL {
        let mut ids = BTreeSet::new();
        for column in view.columns() {
            assert!(ids.insert(column.id), "{view:?}: {} twice", column.id);
            let about = &column.explanation;
            for text in [
                about.meaning,
                about.read,
                about.scope,
                about.without,
                about.command,
            ] {
                assert!(!text.is_empty(), "{view:?}: {} is not explained", column.id);
            }
            if let Some(check) = about.check {
                assert!(
                    crate::doctor::check(check).is_ok(),
                    "there is no check {check}"
                );
            }
        }
        let (order, _) = view.order();
        assert!(ids.contains(order), "{view:?} is sorted by {order}");
    }
}

#[test]
fn rows_have_a_value_for_each_column() {
    for view in View::ALL {
        let table = view.table(&scene());
        assert!(!table.rows.is_empty(), "{view:?}");
        for row in &table.rows {
            assert_eq!(row.cells.len(), table.columns.len(), "{view:?}");
        }
    }
}

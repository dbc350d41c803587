//! The daemon: sockets for tenants without privilege, its policy, its end and its successor.

use crate::lab::{Broker, Lab, exists, neighbour, tenant, tenant_of, wait_until};
use crate::supervised::{NOBODY, Result};
use broker::message;
use hostnet::device::Device;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use testkit::{Limit, Skip, Test, skip, tests};
use xsk::{AttachMode, Mode, Program, Socket, Umem, Wait};

pub fn tests() -> Vec<Test> {
    tests![
        a_tenant_forwards_and_its_queue_is_free_again,
        what_the_policy_does_not_grant_is_refused,
        a_device_has_alternative_names,
        a_queue_has_one_tenant,
        each_tenant_sees_its_own_packets_only,
        receiving_and_sending_are_granted_apart,
        an_unmodified_program_forwards,
        tenants_outlive_the_broker,
        a_kept_listener_is_served_by_the_next_broker,
        a_kept_listener_is_admitted_again,
        a_filter_ends_with_its_lease_over_a_restart,
        what_ended_while_no_broker_ran_is_found,
        a_bad_policy_leaves_the_former_in_force,
        one_broker_at_a_time,
        hostile_messages_harm_nobody,
        nothing_is_left_behind,
        another_program_is_named,
        holders_are_named_and_killed_where_granted,
        metrics_count_what_happened,
        backends_take_turns_over_process_trees,
        a_thousand_leases,
        figures,
    ]
}

/// One tenant, nobody, with all queues.
pub const ALL: &str = r#"
[[tenant]]
name = "all"
uid = [65534]
leases = 2000
memory-total = "1 GiB"
[[tenant.device]]
name = "wan0"
queues = "0-1023"
lease = ["rx", "tx"]
modes = ["drv", "skb"]
memory = "8 MiB"
"#;

/// A frame for the tenant, with an EtherType and a number.
pub fn frame(ether_type: u16, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 0, 0xb]);
    bytes[12..14].copy_from_slice(&ether_type.to_be_bytes());
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    for (at, byte) in bytes.iter_mut().enumerate().skip(18) {
        *byte = number.wrapping_mul(7).wrapping_add(at as u32) as u8;
    }
    bytes
}

/// The peer's socket on a queue.
pub fn peer(lab: &Lab, queue: u32) -> Result<Socket> {
    let [socket] = peers(lab, [queue])?;
    Ok(socket)
}

/// Sockets of the peer that share a program.
pub fn peers<const COUNT: usize>(lab: &Lab, queues: [u32; COUNT]) -> Result<[Socket; COUNT]> {
    let sockets: xsk::Result<Vec<Socket>> = lab.at_peer(move || {
        let program = Program::attach_to("peer0", AttachMode::Driver)?;
        let open = |queue| {
            let umem = Umem::builder().chunks(1024).build()?;
            let builder = Socket::builder(&umem, "peer0", queue).mode(Mode::Driver);
            builder.program(&program).wait(Wait::Poll).open()
        };
        queues.into_iter().map(open).collect()
    });
    let sockets: Result<[Socket; COUNT], _> = sockets?.try_into();
    sockets.map_err(|_| "another number of sockets".into())
}

pub fn send(peer: &mut Socket, bytes: &[u8]) -> Result<()> {
    let mut sent = peer.alloc().ok_or("a frame")?;
    sent.adjust_tail(i32::try_from(bytes.len())?)?;
    sent.copy_from_slice(bytes);
    peer.send(sent).map_err(|unsent| unsent.kind.to_string())?;
    Ok(peer.flush().map(drop)?)
}

/// Sends frames and returns how many came back unchanged, within a second of silence.
pub fn round_trips(
    peer: &mut Socket,
    ether_type: u16,
    numbers: std::ops::Range<u32>,
) -> Result<usize> {
    for number in numbers.clone() {
        send(peer, &frame(ether_type, number))?;
        if number % 16 == 15 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let mut back = 0;
    let count = numbers.len();
    let wanted: Vec<_> = numbers.map(|number| frame(ether_type, number)).collect();
    let silence = || Limit::new(Duration::from_secs(1));
    let mut limit = silence();
    while back < count {
        if !peer.wait(Duration::from_millis(50))? {
            if limit.is_over() {
                break;
            }
            continue;
        }
        limit = silence();
        let mut batch = peer.recv(64);
        while let Some(packet) = batch.next_packet() {
            back += usize::from(wanted.iter().any(|frame| frame[12..] == packet[12..]));
        }
    }
    Ok(back)
}

/// The line that a tenant prints when it has its socket.
pub fn ready(tenant: &mut testkit::Process) -> Result<String> {
    let line = tenant.line()?;
    if line.starts_with("ready") {
        Ok(line)
    } else {
        Err(line.into())
    }
}

/// The error of a tenant that gets no socket.
pub fn refused(lab: &Lab, arguments: &[&str]) -> Result<String> {
    let mut tenant = tenant(lab, "hold", arguments)?;
    let line = tenant.line()?;
    match line.strip_prefix("error: ") {
        Some(error) => Ok(error.to_owned()),
        None => Err(format!("{arguments:?} got a socket: {line}").into()),
    }
}

fn a_tenant_forwards_and_its_queue_is_free_again() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut peer = peer(&lab, 0)?;
    for _ in 0..3 {
        let mut echo = tenant(&lab, "echo", &["wan0", "0"])?;
        let line = ready(&mut echo)?;
        assert!(line.contains("queue 0 mode drv"), "{line}");
        assert_eq!(round_trips(&mut peer, 0x88b5, 0..200)?, 200);
        let status = broker.status()?;
        let lease = &status["leases"][0];
        assert_eq!(
            (&lease["tenant"], &lease["queue"]),
            (&"all".into(), &0.into())
        );
        assert_eq!(lease["holders"][0]["pid"], echo.id());
        echo.kill()?;
        assert!(wait_until(|| broker.leases() == 0));
    }
    broker.stop()
}

fn what_the_policy_does_not_grant_is_refused() -> Result<()> {
    let lab = Lab::new(2)?;
    let policy = r#"
[[tenant]]
name = "some"
uid = [65534]
leases = 1
[[tenant.device]]
name = "wan0"
queues = "0"
lease = ["rx"]
modes = ["skb"]
memory = "1 MiB"
"#;
    let broker = Broker::start(&lab, policy)?;
    for (arguments, cause) in [
        (&["wan0", "1", "rx"][..], "queue 1 is not granted"),
        (&["wan0", "0", "rx,tx"], "sending is not granted"),
        (&["wan0", "0", "rx", "4096"], "ask for fewer chunks"),
        (&["lo", "0", "rx"], "has no grant for lo"),
        (&["none0", "0", "rx"], "no network device"),
        (&["wan0", "0", "rx", "7000000"], "ask for fewer chunks"),
        (&["wan0", "0", "rx", "0"], "choose 1 to"),
    ] {
        let error = refused(&lab, arguments)?;
        assert!(error.contains(cause), "{arguments:?}: {error}");
    }
    assert_eq!(lab.programs(), [""; 0], "a refusal attaches nothing");
    let mut first = tenant(&lab, "hold", &["wan0", "any", "rx"])?;
    ready(&mut first)?;
    let error = refused(&lab, &["wan0", "any", "rx"])?;
    assert!(error.contains("all of its 1 leases"), "{error}");
    drop(first);
    broker.stop()?;

    let other = ALL.replace("65534", "12345");
    let broker = Broker::start(&lab, &other)?;
    let error = refused(&lab, &["wan0", "0"])?;
    assert!(
        error.contains("policy has no tenant for") && error.contains("65534"),
        "{error}"
    );
    assert!(
        broker.logs("its uid is 65534"),
        "the log has the reason: {}",
        broker.log()
    );
    broker.stop()
}

/// The tenant may ask for a device by each of its names, and the policy has one of them. It is one device: by two names
/// no tenant has more of it, and another device is not meant by any.
fn a_device_has_alternative_names() -> Result<()> {
    let lab = Lab::new(1)?;
    let names = ["enp0s31f6np0", &"x".repeat(100)].map(str::to_owned);
    for name in &names {
        lab.namespace
            .ip(&format!("link property add dev wan0 altname {name}"))?;
    }
    for granted in ["wan0", &names[0], &names[1]] {
        let broker = Broker::start(&lab, &ALL.replace("wan0", granted))?;
        for asked in ["wan0", &names[0], &names[1]] {
            let mut holder = tenant(&lab, "hold", &[asked, "0"])?;
            ready(&mut holder)?;
            assert_eq!(broker.status()?["leases"][0]["device"], "wan0");
            for other in ["wan0", &names[0], &names[1]] {
                let error = refused(&lab, &[other, "0"])?;
                assert!(error.contains("is leased to all"), "{error}");
            }
            holder.kill()?;
            assert!(wait_until(|| broker.leases() == 0));
        }
        let error = refused(&lab, &["lo", "0"])?;
        assert!(error.contains("has no grant for lo"), "{error}");
        let error = refused(&lab, &[&"y".repeat(128), "0"])?;
        assert!(error.contains("1 to 127 bytes"), "{error}");
        broker.stop()?;
    }
    let device = ALL.find("[[tenant.device]]").ok_or("a device")?;
    let twice = [ALL, &ALL[device..].replace("wan0", &names[0])].concat();
    let broker = Broker::start(&lab, &twice)?;
    let error = refused(&lab, &["wan0", "0"])?;
    assert!(
        error.contains("the policy must have one name of it"),
        "{error}"
    );
    broker.stop()?;
    // The name is another device's now.
    lab.namespace
        .ip(&format!("link property del dev wan0 altname {}", names[0]))?;
    lab.namespace
        .ip(&format!("link property add dev lo altname {}", names[0]))?;
    let broker = Broker::start(&lab, &ALL.replace("wan0", &names[0]))?;
    let error = refused(&lab, &["wan0", "0"])?;
    assert!(error.contains("has no grant for wan0"), "{error}");
    broker.stop()
}

fn a_queue_has_one_tenant() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut first = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut first)?;
    let error = refused(&lab, &["wan0", "0"])?;
    assert!(
        error.contains(&format!("leased to all (lease 1, process {})", first.id())),
        "{error}"
    );
    let mut second = tenant(&lab, "hold", &["wan0", "any"])?;
    assert!(ready(&mut second)?.starts_with("ready queue 1 "));
    let error = refused(&lab, &["wan0", "any"])?;
    assert!(error.contains("all queues of wan0"), "{error}");
    let error = refused(&lab, &["wan0", "7"])?;
    assert!(error.contains("no receive queue 7"), "{error}");
    assert_eq!(broker.leases(), 2);
    first.finish()?;
    let mut third = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut third)?;
    drop((second, third));
    broker.stop()
}

fn each_tenant_sees_its_own_packets_only() -> Result<()> {
    let lab = Lab::new(2)?;
    let policy = r#"
[[tenant]]
name = "both"
uid = [65534]
[[tenant.device]]
name = "wan0"
queues = "0"
lease = ["rx", "tx"]
modes = ["drv"]
memory = "1 MiB"
filter = [ { protocol = 0x88b5 } ]
[[tenant.device]]
name = "wan0"
queues = "1"
lease = ["rx", "tx"]
modes = ["drv"]
memory = "1 MiB"
filter = [ { protocol = 0x88b6 } ]
"#;
    let broker = Broker::start(&lab, policy)?;
    let mut tenants = [
        tenant(&lab, "echo", &["wan0", "0"])?,
        tenant(&lab, "echo", &["wan0", "1"])?,
    ];
    for tenant in &mut tenants {
        ready(tenant)?;
    }
    for queue in [0, 1] {
        let mut peer = peer(&lab, queue)?;
        for (ether_type, own) in [(0x88b5, 0), (0x88b6, 1), (0x88b7, 2)] {
            let expected = if own == queue { 50 } else { 0 };
            let back = round_trips(&mut peer, ether_type, 0..50)?;
            assert_eq!(back, expected, "queue {queue}, EtherType {ether_type:#x}");
        }
    }
    for tenant in &mut tenants {
        tenant.say("count")?;
        assert_eq!(tenant.line()?, "count 50");
    }
    drop(tenants);
    broker.stop()
}

fn receiving_and_sending_are_granted_apart() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut receiver = tenant(&lab, "hold", &["wan0", "0", "rx"])?;
    ready(&mut receiver)?;
    receiver.say("send")?;
    assert_eq!(receiver.line()?, "sent false", "it has no TX ring");
    let mut sender = tenant(&lab, "hold", &["wan0", "1", "tx"])?;
    ready(&mut sender)?;
    sender.say("send")?;
    assert_eq!(sender.line()?, "sent true");
    drop((receiver, sender));
    broker.stop()
}

fn tenants_outlive_the_broker() -> Result<()> {
    let lab = Lab::new(2)?;
    let mut broker = Broker::start(&lab, ALL)?;
    let mut echo = tenant(&lab, "echo", &["wan0", "0"])?;
    ready(&mut echo)?;
    let mut peer = peer(&lab, 0)?;
    assert_eq!(round_trips(&mut peer, 0x88b5, 0..50)?, 50);
    for signal in [Signal::KILL, Signal::TERM] {
        broker.process.signal(signal)?;
        broker.process.wait()?;
        assert_eq!(
            round_trips(&mut peer, 0x88b5, 50..100)?,
            50,
            "without a broker"
        );
        broker = Broker::again(&lab)?;
        assert_eq!(broker.leases(), 1, "{}", broker.log());
        let error = refused(&lab, &["wan0", "0"])?;
        assert!(error.contains("is leased to all"), "{error}");
        // The program of the former broker serves new leases as well.
        let mut other = tenant(&lab, "hold", &["wan0", "1"])?;
        ready(&mut other)?;
        other.finish()?;
        assert_eq!(
            round_trips(&mut peer, 0x88b5, 100..150)?,
            50,
            "with the next broker"
        );
        assert!(wait_until(|| broker.leases() == 1));
    }
    echo.finish()?;
    assert!(wait_until(|| broker.leases() == 0));
    broker.stop()?;
    assert_eq!(lab.programs(), [""; 0]);
    Ok(())
}

fn a_filter_ends_with_its_lease_over_a_restart() -> Result<()> {
    let lab = Lab::new(2)?;
    let all = ALL.replace("65534", "12345");
    let some = ALL
        .replace("\"all\"", "\"some\"")
        .replace("0-1023", "0")
        .replace(
            "\nmemory =",
            "\nfilter = [ { protocol = 0x88b6 } ]\nmemory =",
        );
    let mut broker = Broker::start(&lab, &format!("{all}{some}"))?;
    // The program stays for this one.
    let mut other = tenant_of(&lab, 12345, "hold", &["wan0", "1"])?;
    ready(&mut other)?;
    let mut filtered = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut filtered)?;
    filtered.finish()?;
    assert!(wait_until(|| broker.leases() == 1));
    broker.process.kill()?;
    broker = Broker::again(&lab)?;
    let mut echo = tenant_of(&lab, 12345, "echo", &["wan0", "0"])?;
    ready(&mut echo)?;
    let mut peer = peer(&lab, 0)?;
    assert_eq!(round_trips(&mut peer, 0x88b5, 0..50)?, 50);
    drop((echo, other));
    broker.stop()
}

fn what_ended_while_no_broker_ran_is_found() -> Result<()> {
    let lab = Lab::new(1)?;
    let mut broker = Broker::start(&lab, ALL)?;
    let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut hold)?;
    broker.process.kill()?;
    hold.finish()?;
    assert_eq!(lab.programs().len(), 1, "it is pinned");
    let broker = Broker::again(&lab)?;
    // The kernel takes a closed socket from its queue some time later.
    assert!(wait_until(|| broker.leases() == 0));
    assert!(
        wait_until(|| lab.programs().is_empty()),
        "{:?}",
        lab.programs()
    );
    let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut hold)?;
    hold.finish()?;
    broker.stop()
}

fn a_bad_policy_leaves_the_former_in_force() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, ALL)?;
    fs::write(lab.path("policy.toml"), "[[tenant]]\nnme = 1\n")?;
    broker.process.signal(Signal::HUP)?;
    assert!(broker.logs("reload-failed"), "{}", broker.log());
    assert!(broker.logs("nme"), "it names the fault");
    let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut hold)?;
    fs::write(lab.path("policy.toml"), "")?;
    broker.process.signal(Signal::HUP)?;
    assert!(broker.logs("\"reload\""));
    let error = refused(&lab, &["wan0", "0"])?;
    assert!(error.contains("policy has no tenant"), "{error}");
    assert_eq!(broker.leases(), 1, "a lease goes on");
    drop(hold);
    broker.stop()
}

fn one_broker_at_a_time() -> Result<()> {
    let lab = Lab::new(1)?;
    let mut broker = Broker::start(&lab, ALL)?;
    let second = Broker::command(&lab).output()?;
    let words = String::from_utf8_lossy(&second.stderr);
    assert!(
        !second.status.success() && words.contains("another weir-broker has"),
        "{words}"
    );
    let elsewhere = lab.path("other-state");
    let second = Broker::command(&lab)
        .arg("--state")
        .arg(elsewhere)
        .output()?;
    let words = String::from_utf8_lossy(&second.stderr);
    assert!(words.contains("another process listens on"), "{words}");
    broker.process.kill()?;
    assert!(exists(&lab.path("broker.sock")), "stale");
    let broker = Broker::again(&lab)?;
    broker.stop()?;
    for socket in ["broker.sock", "admin.sock", "metrics.sock"] {
        assert!(!exists(&lab.path(socket)), "{socket}");
    }
    fs::write(lab.path("broker.sock"), "a file")?;
    let third = Broker::command(&lab).output()?;
    let words = String::from_utf8_lossy(&third.stderr);
    assert!(words.contains("is no socket"), "{words}");
    Ok(())
}

fn hostile_messages_harm_nobody() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, ALL)?;
    let connect = || -> Result<std::os::fd::OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(lab.path("broker.sock"))?)?;
        Ok(socket)
    };
    let long = vec![b'a'; 5000];
    let messages: [&[u8]; 8] = [
        b"x",
        b"\xff\xfe",
        &long,
        b"weir 2 socket\ndevice=wan0\nqueue=99999999999\n",
        b"weir 2 socket\ndevice=wan0\0\n",
        b"weir 2 supervise\n",
        b"weir 2 listener\n",
        b"weir 2 revoke\nlease=77\n",
    ];
    let silent: Vec<_> = (0..20).map(|_| connect()).collect::<Result<_>>()?;
    for message in messages {
        let socket = connect()?;
        rustix::net::send(&socket, message, SendFlags::NOSIGNAL)?;
        let (reply, _) = crate::rogue::reply(&socket)?;
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply.starts_with("error "), "{message:?}: {reply}");
    }
    let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut hold)?;
    drop((silent, hold));
    broker.stop()
}

fn nothing_is_left_behind() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut hold)?;
    assert!(exists(&lab.path("bpffs/weir/broker/wan0/link")));
    hold.finish()?;
    broker.stop()?;
    assert_eq!(lab.programs(), [""; 0]);
    assert!(
        !exists(&lab.path("bpffs/weir")),
        "the BPF filesystem is unmounted"
    );
    Ok(())
}

/// The broker's metrics.
fn scrape(lab: &Lab) -> Result<String> {
    let mut connection = UnixStream::connect(lab.path("metrics.sock"))?;
    connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut page = String::new();
    connection.read_to_string(&mut page)?;
    Ok(page)
}

/// Connects so many times, from a process tree of its own.
fn connect_redirected(lab: &Lab, times: u32) -> Result<()> {
    let script =
        format!("for _ in $(seq {times}); do exec 3<>/dev/tcp/192.0.2.1/80; done; echo connected");
    let mut process = neighbour(lab, "supervised", &["bash", "-c", &script])?;
    assert_eq!(process.line()?, "connected");
    assert!(process.wait()?.success());
    Ok(())
}

fn backends_take_turns_over_process_trees() -> Result<()> {
    let lab = Lab::new(1)?;
    lab.at_broker(|| Device::open("lo"))?.set_up()?;
    let bind = || lab.at_broker(|| TcpListener::bind("127.0.0.1:0"));
    let (one, other) = (bind()?, bind()?);
    let (to_one, to_other) = (one.local_addr()?, other.local_addr()?);
    let redirect =
        format!(r#"connect = [{{ from = "192.0.2.1:80", to = ["{to_one}", "{to_other}"] }}]"#);
    let broker = Broker::start(&lab, &format!("{ALL}\n[tenant.calls]\n{redirect}\n"))?;
    let counts = || -> Result<Vec<_>> {
        let status = broker.status()?;
        let backends = status["redirections"].as_array().ok_or("redirections")?;
        let count = |of: &serde_json::Value| (of["connections"].as_u64(), of["failures"].as_u64());
        Ok(backends.iter().map(count).collect())
    };
    connect_redirected(&lab, 3)?;
    assert_eq!(counts()?, [(Some(2), Some(0)), (Some(1), Some(0))]);
    connect_redirected(&lab, 3)?;
    assert_eq!(counts()?, [(Some(3), Some(0)), (Some(3), Some(0))]);
    drop(other);
    connect_redirected(&lab, 2)?;
    assert_eq!(counts()?, [(Some(5), Some(0)), (Some(3), Some(1))]);
    let page = scrape(&lab)?;
    for (family, to, count) in [
        ("redirected_connections", to_one, 5),
        ("redirected_connections", to_other, 3),
        ("redirect_failures", to_other, 1),
    ] {
        let labels = format!(r#"tenant="all",from="192.0.2.1:80",to="{to}""#);
        let line = format!("weir_broker_{family}_total{{{labels}}} {count}");
        assert!(page.contains(&line), "{line}\n{page}");
    }
    drop(one);
    broker.stop()
}

fn metrics_count_what_happened() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut hold)?;
    refused(&lab, &["wan0", "0"])?;
    let page = scrape(&lab)?;
    for line in [
        "HTTP/1.0 200 OK",
        "weir_broker_leases{tenant=\"all\",device=\"wan0\"} 1",
        "weir_broker_umem_bytes{tenant=\"all\",device=\"wan0\"} 524288",
        "weir_broker_calls_total{tenant=\"all\",handler=\"socket\",outcome=\"answered\"} 1",
        "weir_broker_calls_total{tenant=\"all\",handler=\"socket\",outcome=\"refused\"} 1",
        "weir_broker_call_seconds_count{tenant=\"all\",handler=\"socket\"} 2",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    hold.finish()?;
    broker.stop()
}

fn a_thousand_leases() -> Result<()> {
    let lab = Lab::new(1000)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut many = tenant(&lab, "many", &["wan0", "0", "1000"])?;
    let line = ready(&mut many)?;
    println!("{line}");
    let memory = fs::read_to_string(format!("/proc/{}/status", broker.process.id()))?;
    let resident = memory.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?
            .trim()
            .strip_suffix(" kB")?
            .parse::<u64>()
            .ok()
    });
    println!("broker: {resident:?} kB");
    assert!(
        resident.is_some_and(|kilobytes| kilobytes < 64 << 10),
        "{resident:?} kB"
    );
    assert_eq!(broker.leases(), 1000);
    many.kill()?;
    assert!(wait_until(|| broker.leases() == 0));
    broker.stop()
}

/// Prints the times of a lease; see docs/BENCHMARKS.md.
fn figures() -> Result<()> {
    let lab = Lab::new(4)?;
    let broker = Broker::start(&lab, ALL)?;
    // The program stays attached.
    let mut first = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut first)?;
    for chunks in ["256", "4096"] {
        let mut acquire = tenant(&lab, "acquire", &["wan0", "1", "200", chunks])?;
        println!("{}", acquire.line()?);
        acquire.finish()?;
    }
    let mut times = Vec::new();
    for _ in 0..50 {
        let mut holder = tenant(&lab, "hold", &["wan0", "2"])?;
        ready(&mut holder)?;
        let mut next = tenant(&lab, "again", &["wan0", "2"])?;
        assert_eq!(next.line()?, "waiting");
        let began = Instant::now();
        holder.kill()?;
        ready(&mut next)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let most = times.last().copied().unwrap_or_default();
    println!(
        "queue leased again after kill -9: median {:?}, most {most:?}",
        times[25]
    );
    drop(first);
    broker.stop()
}

/// A program written against libxdp, which knows nothing of the broker.
fn an_unmodified_program_forwards() -> Result<()> {
    let lab = Lab::new(2)?;
    let program = crate::af_xdp::build(&lab, "l2fwd")?;
    let program = program.to_string_lossy();
    let busy_poll = "busy-poll = { most-usecs = 50, most-budget = 64 }";
    let policy = format!("{ALL}{busy_poll}\n[tenant.calls]\naf-xdp = true\n");
    let broker = Broker::start(&lab, &policy)?;
    let mut forwarder = neighbour(&lab, "supervised", &[&program, "wan0", "0", "200"])?;
    assert_eq!(forwarder.line()?, "ready");
    let status = broker.status()?;
    assert_eq!(status["sessions"][0]["tenant"], "all");
    let lease = &status["leases"][0];
    assert_eq!(lease["holders"][0]["pid"], forwarder.id(), "{lease}");
    let has_diag = hostnet::sock_diag::xdp_diag::xdp_sockets()?.is_some();
    assert_eq!(lease["memory"].as_u64() > Some(0), has_diag, "{lease}");
    let error = refused(&lab, &["wan0", "0"])?;
    assert!(error.contains("is leased to all"), "{error}");
    let mut peer = peer(&lab, 0)?;
    assert_eq!(round_trips(&mut peer, 0x88b5, 0..200)?, 200);
    assert_eq!(forwarder.line()?, "forwarded 200");
    assert!(forwarder.wait()?.success());
    assert!(wait_until(
        || broker.leases() == 0 && lab.programs().is_empty()
    ));
    assert!(broker.logs("\"session-end\""));

    let mut killed = neighbour(&lab, "supervised", &[&program, "wan0", "1", "200"])?;
    assert_eq!(killed.line()?, "ready");
    assert_eq!(lab.programs().len(), 1);
    killed.kill()?;
    assert!(wait_until(
        || broker.leases() == 0 && lab.programs().is_empty()
    ));
    broker.stop()
}

/// A service manager's store of descriptors: names and listeners, as the broker hands them over.
fn manager(lab: &Lab) -> Result<Receiver<(String, OwnedFd)>> {
    let socket = UnixDatagram::bind(lab.path("notify"))?;
    let (stored, kept) = channel();
    std::thread::spawn(move || {
        // Other descriptors are closed at once, which answers BARRIER=1.
        while let Ok((text, mut fds)) = message::receive(socket.as_fd(), 1024) {
            let text = String::from_utf8_lossy(&text);
            if let (Some((_, name)), Some(fd)) = (text.split_once("FDNAME="), fds.pop()) {
                let _ = stored.send((name.trim().to_owned(), fd));
            }
        }
    });
    Ok(kept)
}

/// Starts the next broker as a manager does, with the descriptor it kept.
fn resume<'l>(lab: &'l Lab, name: &str, listener: OwnedFd) -> Result<Broker<'l>> {
    let broker = Broker::command(lab);
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg("exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"")
        .arg("sh")
        .arg(broker.get_program())
        .args(broker.get_args())
        .env("LISTEN_FDNAMES", name)
        .env("NOTIFY_SOCKET", lab.path("notify"));
    Broker::with_input(lab, &mut shell, listener)
}

fn a_kept_listener_is_served_by_the_next_broker() -> Result<()> {
    let lab = Lab::new(1)?;
    let kept = manager(&lab)?;
    let kept = || Limit::new(Duration::from_secs(20)).receive(&kept);
    let directory = lab.path("made");
    fs::create_dir(&directory)?;
    std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY))?;
    let policy = format!("{ALL}[tenant.calls]\nmknod = \"null\"\n");
    fs::write(lab.path("policy.toml"), policy)?;
    let mut command = Broker::command(&lab);
    let mut broker = Broker::by(&lab, command.env("NOTIFY_SOCKET", lab.path("notify")))?;
    let script = "cd \"$0\"; while read -r _; do rm -f null; mknod null c 1 3; echo $?; done";
    let directory = directory.to_string_lossy();
    let mut shell = neighbour(&lab, "supervised", &["sh", "-c", script, &directory])?;
    for (end, starts) in [(Signal::TERM, 2), (Signal::KILL, 3)] {
        let (name, listener) = kept()?;
        shell.say("")?;
        assert_eq!(shell.line()?, "0");
        broker.process.signal(end)?;
        broker.process.wait()?;
        // This call waits for the next broker.
        shell.say("")?;
        broker = resume(&lab, &name, listener)?;
        let started = || broker.log().matches("\"event\":\"start\"").count();
        assert!(wait_until(|| started() == starts), "{}", broker.log());
        assert_eq!(shell.line()?, "0", "{}", broker.log());
        let sessions = &broker.status()?["sessions"];
        assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
    }
    let _again = kept()?;
    shell.finish()?;
    broker.stop()
}

/// The policy in force counts, and not the name that the listener was kept under.
fn a_kept_listener_is_admitted_again() -> Result<()> {
    let lab = Lab::new(1)?;
    let kept = manager(&lab)?;
    let kept = || Limit::new(Duration::from_secs(20)).receive(&kept);
    let directory = lab.path("made");
    fs::create_dir(&directory)?;
    std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY))?;
    let script = "cd \"$0\"; while read -r _; do rm -f null; mknod null c 1 3; echo $?; done";
    let directory = directory.to_string_lossy();
    let policy = format!("{ALL}[tenant.calls]\nmknod = \"null\"\n");
    let user = "uid = [65534]";
    for (narrower, why) in [
        ("uid = [12345]", "its uid is 65534"),
        ("uid = [65534]\ngid = [12345]", "its gid is 65534"),
        (
            "uid = [65534]\nexecutable = \"/bin/sh\"",
            r#"; not \"all\", for"#,
        ),
        (
            "uid = [65534]\nsha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"",
            "its executable has no SHA-256",
        ),
        ("uid = [65534]\ncgroup = \"/none\"", "its control group is"),
        (
            "uid = [65534]\ncontainer = \"none\"",
            "no runtime told that it is in a container",
        ),
    ] {
        fs::write(lab.path("policy.toml"), &policy)?;
        let mut command = Broker::command(&lab);
        let mut broker = Broker::by(&lab, command.env("NOTIFY_SOCKET", lab.path("notify")))?;
        let mut shell = neighbour(&lab, "supervised", &["sh", "-c", script, &directory])?;
        let (name, listener) = kept()?;
        shell.say("")?;
        assert_eq!(shell.line()?, "0");
        broker.process.signal(Signal::TERM)?;
        broker.process.wait()?;
        let mut narrowed = policy.replace(user, narrower);
        if narrower.contains("container") {
            // Without supervised calls of a device's, no process has a container.
            narrowed.push_str("af-xdp = true\n");
        }
        fs::write(lab.path("policy.toml"), narrowed)?;
        fs::write(lab.path("log"), "")?;
        broker = resume(&lab, &name, listener)?;
        shell.say("")?;
        assert_eq!(shell.line()?, "1", "{}", broker.log());
        assert!(broker.logs("\"event\":\"not-resumed\""), "{}", broker.log());
        assert!(broker.log().contains(why), "{why}: {}", broker.log());
        shell.finish()?;
        broker.stop()?;
        assert_eq!(fs::read_dir(lab.path("state/sessions"))?.count(), 0);
    }
    Ok(())
}

fn another_program_is_named() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, ALL)?;
    let other = lab.at_broker(|| xsk::Program::attach_to("wan0", xsk::AttachMode::Skb))?;
    let error = refused(&lab, &["wan0", "0"])?;
    let id = lab.at_broker(|| xsk::Device::lookup("wan0"))?.programs[0].id;
    assert!(
        error.contains(&format!("another owner, id {id}:")),
        "{error}"
    );
    assert_eq!(broker.leases(), 0);
    drop(other);
    assert!(wait_until(|| lab.programs().is_empty()));
    let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut hold)?;
    drop(hold);
    broker.stop()
}

/// A group of cgroup v2, removed with its last process gone.
struct Group(std::path::PathBuf);

impl Group {
    fn new() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mut mounts = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let root = mounts
            .find_map(|words| (words.get(2) == Some(&"cgroup2")).then(|| words[1].to_owned()));
        let root = root.ok_or_else(|| Skip::new("needs a mounted cgroup2"))?;
        let path = std::path::Path::new(&root).join(format!("weir-broker-{}", std::process::id()));
        let made = fs::create_dir(&path);
        made.map_err(|error| Skip::new(format!("needs a writable cgroup2: {error}")))?;
        let group = Self(path);
        if !exists(&group.0.join("cgroup.kill")) {
            return Err(skip("needs cgroup.kill (5.14)"));
        }
        Ok(group)
    }

    fn add(&self, process: &testkit::Process) -> Result<()> {
        Ok(fs::write(
            self.0.join("cgroup.procs"),
            process.id().to_string(),
        )?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = wait_until(|| fs::remove_dir(&self.0).is_ok());
    }
}

fn holders_are_named_and_killed_where_granted() -> Result<()> {
    let group = Group::new()?;
    let lab = Lab::new(1)?;
    let socket = lab.path("admin.sock");
    for (kill, expected) in [(false, false), (true, true)] {
        let policy = ALL.replace("leases = 2000", &format!("leases = 2000\nkill = {kill}"));
        let broker = Broker::start(&lab, &policy)?;
        let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
        group.add(&hold)?;
        ready(&mut hold)?;
        let lease = broker.status()?["leases"][0]["id"]
            .as_u64()
            .ok_or("a lease")?;
        let revoked = broker::client::revoke(&socket, lease)?;
        assert_eq!(revoked["holders"][0]["pid"], hold.id());
        assert_eq!(revoked["killed"], expected, "{revoked}");
        if kill {
            assert!(!hold.wait()?.success());
            assert!(wait_until(|| broker.leases() == 0));
        } else {
            hold.say("receive")?;
            assert_eq!(hold.line()?, "received 0", "it goes on");
            hold.finish()?;
        }
        let error = broker::client::revoke(&socket, 999).expect_err("no such lease");
        assert!(
            format!("{error:#}").contains("there is no lease 999"),
            "{error:#}"
        );
        broker.stop()?;
    }
    Ok(())
}

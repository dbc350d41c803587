//! Attacks of tenants on the broker, on each other and on the host, with the broker's sockets.
//! The other half of each, the part of the tenant, is in `rogue.rs`.
#![allow(unsafe_code)] // bpf(2), to list the ids of programs and maps.

use crate::daemon::{ALL, frame, peer, peers, ready, refused, round_trips, send};
use crate::lab::{Broker, Lab, NOBODY, tenant, tenant_of, wait_until};
use crate::rogue::listen_at;
use crate::supervised::{Result, address, call};
use hostnet::sock_diag::xdp_diag::xdp_sockets;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testkit::limit::scale;
use testkit::{Limit, Process, Test, skip, tests};
use xsk::broker::Request;

pub fn tests() -> Vec<Test> {
    tests![
        hostile_indices_and_descriptors_reach_nobody,
        a_bound_socket_cannot_be_changed,
        a_umem_torn_away_harms_its_tenant_only,
        ids_pins_and_the_brokers_process_are_out_of_reach,
        a_lease_follows_its_socket,
        a_revoked_lease_kills_the_tenants_processes_only,
        silent_and_flooding_peers_keep_nobody_out,
        one_tenants_listeners_leave_room_for_others,
        hostile_requests_are_refused_with_a_reason,
        a_tenant_cannot_name_itself_another,
        only_roots_broker_is_asked,
        a_tenants_traffic_is_its_own_while_the_program_is_replaced,
        each_request_is_judged_by_one_whole_policy,
        a_broker_killed_again_and_again_loses_nothing,
    ]
}

/// Another user than [`NOBODY`].
const ANOTHER: u32 = 12345;

/// A tenant's grant of queues that receives one EtherType only.
fn device(queues: &str, filter: &str) -> String {
    format!(
        "[[tenant.device]]\nname = \"wan0\"\nqueues = \"{queues}\"\nlease = [\"rx\", \"tx\"]\nmodes = [\"drv\"]\nmemory = \"1 MiB\"\n{filter}\n"
    )
}

fn filter(ether_type: u16) -> String {
    format!("filter = [ {{ protocol = {ether_type:#x} }} ]")
}

fn tenant_section(name: &str, uid: u32) -> String {
    format!("[[tenant]]\nname = \"{name}\"\nuid = [{uid}]\nleases = 64\n")
}

/// The lines of a tenant until `done`; `bad` ones are the test's failure.
fn play(rogue: &mut Process) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let line = rogue.line()?;
        if line == "done" {
            return Ok(lines);
        }
        if line.starts_with("error") || line.starts_with("bad") {
            return Err(line.into());
        }
        lines.push(line);
    }
}

/// Ends a rogue, and checks that its queue is free and works.
fn check_queue(lab: &Lab, broker: &Broker<'_>, mut rogue: Process, left: usize) -> Result<()> {
    rogue.kill()?;
    assert!(wait_until(|| broker.leases() == left), "{}", broker.log());
    let mut echo = tenant(lab, "echo", &["wan0", "0"])?;
    ready(&mut echo)?;
    let mut peer = peer(lab, 0)?;
    assert_eq!(round_trips(&mut peer, 0x88b5, 0..50)?, 50);
    echo.finish()?;
    Ok(())
}

fn hostile_indices_and_descriptors_reach_nobody() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut honest = tenant(&lab, "echo", &["wan0", "1"])?;
    ready(&mut honest)?;
    let [mut seen, mut honest_peer] = peers(&lab, [0, 1])?;
    let mut rogue = tenant(&lab, "rogue", &["rings", "wan0", "0"])?;
    ready(&mut rogue)?;
    // Its own memory has nothing but 0xa5; so has every packet that it makes the kernel send.
    rogue.say("send")?;
    let mut count = 0_u32;
    let mut is_done = false;
    while !is_done || seen.wait(Duration::from_millis(50))? {
        if !is_done {
            let _ = seen.wait(Duration::from_millis(5))?;
        }
        let mut batch = seen.recv(64);
        while let Some(packet) = batch.next_packet() {
            count += 1;
            assert!(
                packet.iter().all(|&byte| byte == 0xa5),
                "memory that is not its own was sent: {:x?}",
                packet.get(..64)
            );
        }
        drop(batch);
        if !is_done {
            let line = rogue.line()?;
            is_done = line == "sent";
            assert!(is_done || line == "going on", "{line}");
        }
    }
    println!("{count} packets of a rogue's were sent, of its own memory");
    assert_eq!(round_trips(&mut honest_peer, 0x88b5, 0..50)?, 50);
    // Its FILL ring is hostile while packets arrive.
    rogue.say("receive")?;
    for number in 0..500 {
        send(&mut seen, &frame(0x88b5, number))?;
    }
    assert_eq!(rogue.line()?, "done");
    assert_eq!(round_trips(&mut honest_peer, 0x88b5, 50..100)?, 50);
    drop((seen, honest_peer));
    check_queue(&lab, &broker, rogue, 1)?;
    honest.finish()?;
    broker.stop()
}

fn a_bound_socket_cannot_be_changed() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, ALL)?;
    for lease in ["rx", "tx"] {
        let mut rogue = tenant(&lab, "rogue", &["socket", "wan0", "0", lease])?;
        ready(&mut rogue)?;
        for line in play(&mut rogue)? {
            println!("{lease}: {line}");
        }
        check_queue(&lab, &broker, rogue, 0)?;
        assert!(wait_until(|| broker.leases() == 0));
    }
    broker.stop()
}

fn a_umem_torn_away_harms_its_tenant_only() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut honest = tenant(&lab, "echo", &["wan0", "1"])?;
    ready(&mut honest)?;
    let [mut at_rogue, mut honest_peer] = peers(&lab, [0, 1])?;
    let mut rogue = tenant(&lab, "rogue", &["memory", "wan0", "0"])?;
    ready(&mut rogue)?;
    for line in play(&mut rogue)? {
        println!("{line}");
    }
    for number in 0..200 {
        send(&mut at_rogue, &frame(0x88b5, number))?;
    }
    assert_eq!(round_trips(&mut honest_peer, 0x88b5, 0..50)?, 50);
    drop((at_rogue, honest_peer));
    check_queue(&lab, &broker, rogue, 1)?;
    honest.finish()?;
    broker.stop()
}

/// Ids of all programs, maps and links, as root sees them.
fn ids(command: i64) -> Vec<u32> {
    let mut ids = Vec::new();
    // `start_id`, `next_id`, `open_flags`.
    let mut attr = [0_u32; 4];
    while call(libc::SYS_bpf, [command as u64, address(&attr), 16, 0, 0]) == 0 {
        ids.push(attr[1]);
        attr[0] = attr[1];
    }
    ids
}

fn ids_pins_and_the_brokers_process_are_out_of_reach() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
    ready(&mut hold)?;
    // BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID.
    let ids = [11, 12, 31].map(ids);
    assert!(ids.iter().all(|ids| !ids.is_empty()), "{ids:?}");
    let ids = ids.map(|ids| {
        let words: Vec<_> = ids.iter().map(ToString::to_string).collect();
        words.join(",")
    });
    let pid = broker.process.id().to_string();
    let lab_path = lab.directory.display().to_string();
    let [programs, maps, links] = &ids;
    let arguments = ["reach", &pid, &lab_path, programs, maps, links];
    let mut rogue = tenant(&lab, "rogue", &arguments)?;
    for line in play(&mut rogue)? {
        println!("{line}");
    }
    for (path, mode) in [
        ("state", 0o700),
        ("state/journal", 0o600),
        ("state/lock", 0o600),
        ("admin.sock", 0o600),
        ("metrics.sock", 0o600),
        // Tenants of the device plugin find their map by its name.
        ("bpffs", 0o711),
        ("bpffs/weir/broker/wan0/link", 0o600),
        ("bpffs/weir/broker/wan0/map", 0o600),
    ] {
        let found = fs::symlink_metadata(lab.path(path))?.permissions().mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }
    drop(hold);
    broker.stop()
}

fn a_lease_follows_its_socket() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, ALL)?;
    // Another user's process has the only copy.
    let path = lab.path("pass.sock").display().to_string();
    let mut receiver = tenant_of(&lab, ANOTHER, "rogue", &["take", &format!("@{path}")])?;
    assert_eq!(receiver.line()?, "listening");
    let mut giver = tenant(&lab, "rogue", &["give", "wan0", "0", &format!("@{path}")])?;
    ready(&mut giver)?;
    assert_eq!(giver.line()?, "done");
    giver.wait()?;
    assert_eq!(receiver.line()?, "has it");
    let status = broker.status()?;
    let lease = &status["leases"][0];
    assert_eq!(lease["holders"][0]["pid"], receiver.id(), "{lease}");
    let error = refused(&lab, &["wan0", "0"])?;
    assert!(error.contains("is leased to all"), "{error}");
    receiver.kill()?;
    assert!(wait_until(|| broker.leases() == 0));
    // In a message that nobody has received.
    let mut flying = tenant(&lab, "rogue", &["fly", "wan0", "0"])?;
    ready(&mut flying)?;
    assert_eq!(flying.line()?, "done");
    std::thread::sleep(Duration::from_millis(200) * scale());
    assert_eq!(broker.leases(), 1, "on its way");
    refused(&lab, &["wan0", "0"])?;
    flying.kill()?;
    assert!(wait_until(|| broker.leases() == 0), "it never arrived");
    // A child has a copy; then a mapping alone, which is no socket but keeps it open.
    let mut forked = tenant(&lab, "rogue", &["mapping", "wan0", "0"])?;
    ready(&mut forked)?;
    assert_eq!(forked.line()?, "done");
    std::thread::sleep(Duration::from_millis(200) * scale());
    assert_eq!(broker.leases(), 1, "a mapping alone");
    refused(&lab, &["wan0", "0"])?;
    forked.kill()?;
    assert!(wait_until(|| broker.leases() == 0));
    broker.stop()
}

/// Its memory would have another owner: another user's process, one of the client's own user, or the client itself.
fn only_roots_broker_is_asked() -> Result<()> {
    let lab = Lab::new(1)?;
    let path = lab.path("broker.sock");
    fs::set_permissions(&lab.directory, fs::Permissions::from_mode(0o777))?;
    let ask = || {
        let mut request = Request::new("wan0");
        request.path = Some(path.clone());
        request.open().err().map(|error| error.to_string())
    };
    let mut rogue = tenant(&lab, "rogue", &["broker"])?;
    assert_eq!(rogue.line()?, "listening");
    let user = format!("user {NOBODY} listens there");
    for refusal in [refused(&lab, &["wan0", "0"])?, ask().ok_or("a socket")?] {
        assert!(refusal.contains(&user), "{refusal}");
    }
    rogue.kill()?;
    fs::remove_file(&path)?;
    let told = tenant(&lab, "rogue", &["rooted"])?.line()?;
    if told != "no user namespace" {
        assert!(told.contains("root of a user namespace"), "{told}");
        fs::remove_file(&path)?;
    }
    let _listener = listen_at(&path)?;
    let refusal = ask().ok_or("a socket")?;
    assert!(refusal.contains("this process listens there"), "{refusal}");
    Ok(())
}

/// A control group of its own, removed on drop.
pub struct Group(PathBuf);

impl Group {
    pub fn new(name: &str) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let top = line.and_then(|line| line.split(' ').nth(4));
        let Some(top) = top else {
            return Err(skip("cgroup2 is not mounted"));
        };
        let path = PathBuf::from(top).join(format!("weir-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        if !path.join("cgroup.kill").exists() {
            fs::remove_dir(&path)?;
            return Err(skip("the kernel has no cgroup.kill"));
        }
        Ok(Self(path))
    }

    pub fn add(&self, process: &Process) -> Result<()> {
        let pid = process.id().to_string();
        Ok(fs::write(self.0.join("cgroup.procs"), pid)?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_until(|| fs::remove_dir(&self.0).is_ok());
    }
}

fn a_revoked_lease_kills_the_tenants_processes_only() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, &ALL.replace("leases", "kill = true\nleases"))?;
    let (others, own) = (Group::new("others")?, Group::new("own")?);
    let path = lab.path("pass.sock").display().to_string();
    let mut victim = tenant_of(&lab, ANOTHER, "rogue", &["take", &format!("@{path}")])?;
    assert_eq!(victim.line()?, "listening");
    others.add(&victim)?;
    let mut giver = tenant(&lab, "rogue", &["give", "wan0", "0", &format!("@{path}")])?;
    own.add(&giver)?;
    ready(&mut giver)?;
    assert_eq!(giver.line()?, "done");
    giver.wait()?;
    assert_eq!(victim.line()?, "has it");
    let revoke = |id| broker::client::revoke(&lab.path("admin.sock"), id);
    let answer = revoke(1)?;
    assert_eq!(answer["killed"], false, "{answer}");
    assert_eq!(answer["holders"][0]["pid"], victim.id(), "{answer}");
    std::thread::sleep(Duration::from_millis(100) * scale());
    assert!(victim.is_running()?, "it was not the tenant's");
    assert!(broker.logs("not-killed"));
    victim.kill()?;
    assert!(wait_until(|| broker.leases() == 0));

    let mut hold = tenant(&lab, "hold", &["wan0", "0"])?;
    own.add(&hold)?;
    ready(&mut hold)?;
    let answer = revoke(2)?;
    assert_eq!(answer["killed"], true, "{answer}: {}", broker.log());
    hold.wait()?;
    assert!(wait_until(|| broker.leases() == 0));
    broker.stop()
}

fn silent_and_flooding_peers_keep_nobody_out() -> Result<()> {
    let lab = Lab::new(2)?;
    let policy =
        format!("{}{}", ALL, ALL.replace("65534", "12345")).replacen("\"all\"", "\"first\"", 1);
    let broker = Broker::start(&lab, &policy)?;
    for attack in ["silent", "unread", "flood"] {
        let mut rogue = tenant(&lab, "rogue", &[attack])?;
        assert_eq!(rogue.line()?, "ready", "{attack}");
        for uid in [ANOTHER, NOBODY] {
            for _ in 0..5 {
                let (began, mut limit) = (Instant::now(), Limit::new(Duration::from_secs(9)));
                let mut honest = tenant_of(&lab, uid, "hold", &["wan0", "any"])?;
                ready(&mut honest)?;
                honest.finish()?;
                let took = began.elapsed();
                println!("{attack}: {took:?}");
                // A silent peer is disconnected after 10 s: nobody waits for that.
                assert!(!limit.is_over(), "{attack}: {took:?}");
            }
        }
        rogue.finish()?;
    }
    assert!(wait_until(|| broker.leases() == 0));
    let size = broker.log().len();
    println!("the log has {size} bytes");
    assert!(size < 100_000, "it drowns the lines of others");
    let unwritten = &broker.status()?["lost_log_lines"];
    assert!(unwritten.as_u64() > Some(0), "{unwritten}");
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", broker.process.id()));
    assert!(
        wait_until(|| descriptors().is_ok_and(|fds| fds.count() < 40)),
        "{}",
        descriptors()?.count()
    );
    broker.stop()
}

fn one_tenants_listeners_leave_room_for_others() -> Result<()> {
    let lab = Lab::new(1)?;
    let calls = "[tenant.calls]\nsysinfo = true\n";
    let policy = tenant_section("greedy", NOBODY) + calls + &tenant_section("honest", ANOTHER);
    let broker = Broker::start(&lab, &(policy + calls))?;
    let mut greedy = tenant(&lab, "rogue", &["listeners", "300"])?;
    let line = greedy.line()?;
    assert!(
        line.starts_with("256 ") && line.contains("of greedy already: end one first"),
        "{line}"
    );
    let mut honest = tenant_of(&lab, ANOTHER, "rogue", &["listeners", "1"])?;
    assert_eq!(honest.line()?, "1");
    let sessions = || -> Result<usize> {
        let status = broker.status()?;
        Ok(status["sessions"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(sessions()?, 257);
    greedy.kill()?;
    assert!(wait_until(|| sessions().is_ok_and(|count| count == 1)));
    honest.finish()?;
    broker.stop()
}

fn hostile_requests_are_refused_with_a_reason() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, ALL)?;
    let mut rogue = tenant(&lab, "rogue", &["requests"])?;
    for line in play(&mut rogue)? {
        println!("{line}");
    }
    assert!(wait_until(|| broker.leases() == 0));
    assert!(
        wait_until(|| lab.programs().is_empty()),
        "{:?}",
        lab.programs()
    );
    broker.stop()
}

fn a_tenant_cannot_name_itself_another() -> Result<()> {
    let lab = Lab::new(2)?;
    let policy = tenant_section("own", NOBODY)
        + &device("0", "")
        + &tenant_section("others", ANOTHER)
        + &device("1", "");
    let broker = Broker::start(&lab, &policy)?;
    let mut rogue = tenant(&lab, "rogue", &["names", "others"])?;
    for line in play(&mut rogue)? {
        println!("{line}");
    }
    assert!(wait_until(|| broker.leases() == 0));
    broker.stop()
}

fn a_tenants_traffic_is_its_own_while_the_program_is_replaced() -> Result<()> {
    let lab = Lab::new(4)?;
    let mut policy = tenant_section("first", NOBODY)
        + &device("0", &filter(0x88b5))
        + &device("2", &filter(0x88b7));
    policy += &(tenant_section("second", ANOTHER)
        + &device("1", &filter(0x88b6))
        + &device("3", &filter(0x88b8)));
    let broker = Broker::start(&lab, &policy)?;
    let mut first = tenant(&lab, "echo", &["wan0", "0"])?;
    let mut second = tenant_of(&lab, ANOTHER, "echo", &["wan0", "1"])?;
    ready(&mut first)?;
    ready(&mut second)?;
    let mut churn = [
        tenant(&lab, "rogue", &["churn", "wan0", "2"])?,
        tenant_of(&lab, ANOTHER, "rogue", &["churn", "wan0", "3"])?,
    ];
    for process in &mut churn {
        ready(process)?;
    }
    let mut peers = peers(&lab, [0, 1])?;
    let mut expected = [0, 0];
    let until = Instant::now() + Duration::from_secs(8);
    let mut number = 0;
    while Instant::now() < until {
        for (queue, own, others) in [(0, 0x88b5, 0x88b6), (1, 0x88b6, 0x88b5)] {
            // Those of the other first: if one came back it would be among these.
            for ether_type in [others, 0x88b7, 0x88b8] {
                send(&mut peers[queue], &frame(ether_type, number))?;
            }
            let back = round_trips(&mut peers[queue], own, number..number + 16)?;
            assert_eq!(back, 16, "queue {queue}: packets were lost");
            expected[queue] += 16;
        }
        number += 16;
    }
    let mut churned = 0;
    for process in &mut churn {
        process.say("")?;
        let line = process.line()?;
        let count: u32 = line.strip_prefix("opened ").ok_or("a count")?.parse()?;
        churned += count;
    }
    for (tenant, expected) in [&mut first, &mut second].into_iter().zip(expected) {
        tenant.say("count")?;
        assert_eq!(
            tenant.line()?,
            format!("count {expected}"),
            "no other packet"
        );
    }
    println!("{expected:?} packets, {churned} leases came and went");
    assert!(churned > 20, "{churned}");
    drop((first, second, churn));
    broker.stop()
}

fn each_request_is_judged_by_one_whole_policy() -> Result<()> {
    let lab = Lab::new(2)?;
    let one = tenant_section("one", NOBODY).replace("leases = 64", "leases = 3")
        + &device("0", &filter(0x88b5));
    let two = tenant_section("two", NOBODY).replace("leases = 64", "leases = 5")
        + &device("1", &filter(0x88b6));
    let broker = Broker::start(&lab, &one)?;
    let mut churn = [
        tenant(&lab, "rogue", &["churn", "wan0", "any"])?,
        tenant(&lab, "rogue", &["churn", "wan0", "any"])?,
    ];
    for process in &mut churn {
        ready(process)?;
    }
    let until = Instant::now() + Duration::from_secs(6);
    let mut reloads = 0;
    while Instant::now() < until {
        for text in [&two, "[[tenant]]\nname = \"half", &one, "\u{0}"] {
            fs::write(lab.path("policy.new"), text)?;
            fs::rename(lab.path("policy.new"), lab.path("policy.toml"))?;
            broker.process.signal(Signal::HUP)?;
            reloads += 1;
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    let mut opened = Vec::new();
    for process in &mut churn {
        process.say("")?;
        opened.push(process.line()?);
        process.finish()?;
    }
    let mut count = std::collections::BTreeMap::new();
    for line in broker.log().lines() {
        let event: serde_json::Value = serde_json::from_str(line)?;
        let name = event["event"].as_str().unwrap_or_default();
        *count.entry(name.to_owned()).or_insert(0) += 1;
        if name == "lease" {
            let is_whole = [("one", 0), ("two", 1)]
                .iter()
                .any(|(tenant, queue)| event["tenant"] == *tenant && event["queue"] == *queue);
            assert!(is_whole, "{event}");
        }
        assert_ne!(name, "refused", "there always is a policy: {event}");
    }
    println!("{reloads} signals, {opened:?}, {count:?}");
    assert!(count["reload"] > 10 && count["reload-failed"] > 10 && count["lease"] > 20);
    assert!(wait_until(|| broker.leases() == 0));
    broker.stop()
}

fn a_broker_killed_again_and_again_loses_nothing() -> Result<()> {
    const QUEUES: u32 = 4;
    let lab = Lab::new(QUEUES)?;
    let mut broker = Broker::start(&lab, ALL)?;
    let mut echo = tenant(&lab, "echo", &["wan0", "0"])?;
    ready(&mut echo)?;
    let mut churn = [
        tenant(&lab, "rogue", &["churn", "wan0", "any"])?,
        tenant(&lab, "rogue", &["churn", "wan0", "any"])?,
        tenant(&lab, "rogue", &["churn", "wan0", "any"])?,
    ];
    for process in &mut churn {
        ready(process)?;
    }
    let mut peer = peer(&lab, 0)?;
    for round in 0..10_u32 {
        // At a time of its own each.
        std::thread::sleep(Duration::from_millis(u64::from(round * 17 % 50)));
        broker.process.kill()?;
        let numbers = round * 100..round * 100 + 50;
        assert_eq!(round_trips(&mut peer, 0x88b5, numbers)?, 50, "no broker");
        broker = Broker::again(&lab)?;
        let numbers = round * 100 + 50..round * 100 + 100;
        assert_eq!(round_trips(&mut peer, 0x88b5, numbers)?, 50, "{round}");
    }
    for process in &mut churn {
        process.say("")?;
        println!("{}", process.line()?);
        process.finish()?;
    }
    assert!(wait_until(|| broker.leases() == 1), "{}", broker.log());
    let status = broker.status()?;
    let holders = status["leases"][0]["holders"].as_array();
    assert_eq!(holders.map(Vec::len), Some(1), "{status}");
    assert_eq!(status["leases"][0]["holders"][0]["pid"], echo.id());
    drop(peer);
    if let Some(sockets) = lab.at_broker(xdp_sockets)? {
        assert_eq!(sockets.len(), 1, "{sockets:?}");
    }
    let mut others = Vec::new();
    for queue in 1..QUEUES {
        let mut hold = tenant(&lab, "hold", &["wan0", &queue.to_string()])?;
        ready(&mut hold)?;
        others.push(hold);
    }
    assert_eq!(broker.leases(), QUEUES as usize);
    drop((others, echo));
    assert!(wait_until(|| broker.leases() == 0));
    broker.stop()?;
    assert_eq!(lab.programs(), [""; 0]);
    Ok(())
}

//! `weir switch`: frames over the fast path of a bridge in a network namespace, and the daemon's life.

pub mod rig;

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::until;
use anyhow::{Context as _, Result, ensure};
use hostnet::rtnetlink::{BridgeOptions, FdbKind, PortChange};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use rig::{BROADCAST, Rig, mac};
use rustix::process::Signal;
use serde_json::Value;
use testkit::Temporary;
use weir::bpf::hook::Place;
use weir::switch::Settings;
use weir::switch::daemon::request::{Request, ask};
use weir::switch::datapath::{self, Datapath};
use xsk::{AttachMode, Program};

use crate::{Test, output, skip, tests, weir};

pub fn trials() -> Vec<Test> {
    let of_anyone = tests![
        a_configuration_is_checked,
        without_a_daemon_nothing_is_asked,
        invalid_settings_are_refused
    ];
    let of_root = tests![
        frames_take_the_fast_path_of_each_hook,
        each_tag_arrives_as_by_the_kernels_bridge,
        a_detached_bridge_is_as_before,
        attach_refuses_other_devices,
        a_state_has_one_daemon,
        daemons_of_two_namespaces_do_not_meet,
        another_program_keeps_its_place,
        an_mtu_too_large_for_xdp_is_refused,
        a_bridge_that_comes_back_is_attached_again,
        ports_come_and_go,
        rules_leave_the_bridge_to_the_kernel,
        isolated_ports_stay_isolated,
        addresses_above_the_limit_are_dropped,
        a_storm_is_cut,
        a_loop_is_reported,
        samples_are_written,
        settings_replace_earlier_ones,
        a_restart_loses_no_frame,
        a_kill_loses_no_frame,
        programs_without_a_daemon_leave_frames_to_the_kernel,
        all_is_detached_without_a_daemon,
        a_configuration_is_followed,
        a_refused_port_leaves_the_others_alone,
        a_name_with_a_dot_is_one,
        bridges_and_ports_have_alternative_names,
        a_bridge_of_an_alternative_name_comes_later,
        a_port_that_vanishes_while_the_map_grows_is_forgotten,
        notes_belong_to_a_daemon,
        programs_of_others_at_tcx_are_not_skipped,
        filters_of_others_are_not_skipped,
    ];
    let of_anyone = of_anyone.into_iter().map(Test::for_everyone);
    of_anyone.chain(of_root).collect()
}

fn a_configuration_is_checked() -> Result<()> {
    let directory = Temporary::new("switch-check")?;
    let file = directory.join("switch.toml");
    let check = |text: &str| {
        fs::write(&file, text)?;
        output(weir().args(["switch", "check"]).arg(&file))
    };
    let valid = check("[[bridge]]\nname = \"br0\"\n")?;
    ensure!(valid.status.code() == Some(0), "{valid:?}");
    let wrong = check("[[bridge]]\nname = \"br0\"\nhok = 1\n[[bridge]]\n")?;
    let text = String::from_utf8(wrong.stdout)?;
    ensure!(wrong.status.code() == Some(1), "{text}");
    for line in [":3:1: unknown field `hok`", ":4:1: missing field `name`"] {
        ensure!(text.contains(line), "no {line}: {text}");
    }
    fs::remove_file(&file)?;
    let missing = output(weir().args(["switch", "check"]).arg(&file))?;
    ensure!(missing.status.code() == Some(2), "{missing:?}");
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/switch.toml");
    let text = fs::read_to_string(sample)?;
    for text in [text.clone(), with_examples(&text)] {
        let valid = check(&text)?;
        ensure!(valid.status.code() == Some(0), "{valid:?}");
    }
    Ok(())
}

/// A sample configuration with its examples.
fn with_examples(text: &str) -> String {
    let is_comment = |line: &&str| line.starts_with("# ") || *line == "#";
    let lines = text.lines().filter(|line| !is_comment(line));
    lines
        .map(|line| line.trim_start_matches('#').to_owned() + "\n")
        .collect()
}

fn without_a_daemon_nothing_is_asked() -> Result<()> {
    let nowhere = ["--socket", "/nowhere/switch.sock"];
    for words in [&["status"][..], &["attach", "br0"], &["detach", "br0"]] {
        let error = crate::failure(weir().arg("switch").args(words).args(nowhere), 1)?;
        ensure!(
            error.contains("no daemon listens at /nowhere/switch.sock"),
            "{error}"
        );
    }
    Ok(())
}

/// As in the configuration, without asking the daemon.
fn invalid_settings_are_refused() -> Result<()> {
    let long = "x".repeat(128);
    for (words, wanted) in [
        ("../br0", "\"../br0\" is not the name of a bridge"),
        (".br0", "\".br0\" is not the name of a bridge"),
        (long.as_str(), "is not the name of a bridge"),
        ("br0 --addresses 0", "addresses = 0: choose 1 to 4194304"),
        (
            "br0 --addresses 4194305",
            "addresses = 4194305: choose 1 to",
        ),
        ("br0 --flapping 0", "flapping = 0: choose at least 1"),
        ("br0 --ports a --port b=tcx", "the port b has settings"),
    ] {
        let mut command = weir();
        command.args(["switch", "attach"]).args(words.split(' '));
        let error = crate::failure(&mut command, 2)?;
        ensure!(error.contains(wanted), "{words}: {error}");
    }
    Ok(())
}

fn frames_take_the_fast_path_of_each_hook() -> Result<()> {
    for (hook, shown) in [("auto", "tcx"), ("tcx", "tcx"), ("xdp", "xdp")] {
        let mut rig = Rig::attached(hook, 3, &["--hook", hook])?;
        ensure!(rig.hook("port0")? == shown, "{}", rig.port("port0")?);
        rig.until_fast(0, 1)?;
        rig.until_fast(1, 0)?;
        rig.arrived(1)?;
        rig.arrived(2)?;
        let before = rig.port("port0")?;
        let mut numbers = Vec::new();
        for _ in 0..100 {
            numbers.push(rig.send(0, mac(1), mac(0))?);
        }
        ensure!(rig.arrived(1)? == numbers, "{hook}: others than were sent");
        ensure!(rig.arrived(2)?.is_empty(), "{hook}: a frame was flooded");
        let after = rig.port("port0")?;
        let count = |port: &Value| port["received"]["packets"].as_u64().unwrap_or(0);
        // The kernel gets one of each epoch, which is 100 seconds here.
        let fast = count(&after) - count(&before);
        ensure!((98..=100).contains(&fast), "{hook}: {before} {after}");
        let bytes = after["received"]["bytes"].as_u64();
        ensure!(bytes == Some(60 * count(&after)), "{hook}: {after}");
        let table = rig.ask(&["status"])?;
        ensure!(table.starts_with("br0: forwarding, 3 of "), "{table}");
    }
    Ok(())
}

/// The guide's line for the other end of a port with the hook xdp, without the program.
fn offloads_off() -> Result<String> {
    const GUIDE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/guide/src/operators/switch.md"
    );
    let text = fs::read_to_string(GUIDE)?;
    let line = text
        .lines()
        .find_map(|line| line.split_once("ethtool -K eth0 "));
    Ok(line.context("no line of ethtool")?.1.to_owned())
}

/// No tag, one of 802.1Q, one of 802.1ad, and both, as a sender leaves them beside its frames: a bridge takes the outer
/// one out of what it forwards, and the device puts it back, or hands it on beside the frame.
fn each_tag_arrives_as_by_the_kernels_bridge() -> Result<()> {
    const C_TAG: &[u8] = &[0x81, 0, 0, 100];
    const S_TAG: &[u8] = &[0x88, 0xa8, 0, 200];
    const HOOKS: [&str; 3] = ["xdp", "tcx", "kernel"];
    let tags = [&[][..], C_TAG, S_TAG, &[S_TAG, C_TAG].concat()].map(<[u8]>::to_vec);
    let mut rig = Rig::attached("tags", 2, &["--hook", "xdp"])?;
    for end in ["end0", "end1"] {
        let mut command = Command::new("ethtool");
        command
            .args(["-K", end])
            .args(offloads_off()?.split_whitespace());
        let set = rig.inside(|| output(&mut command))?;
        ensure!(set.status.success(), "{command:?}: {set:?}");
    }
    let sender = rig.relay("end0")?;
    let mut expected = Vec::new();
    for from in HOOKS {
        for to in HOOKS {
            let ports = [format!("port0={from}"), format!("port1={to}")];
            rig.ask(&["attach", "br0", "--port", &ports[0], "--port", &ports[1]])?;
            for (name, hook) in [("port0", from), ("port1", to)] {
                ensure!(rig.hook(name)? == hook, "{}", rig.port(name)?);
            }
            for tags in &tags {
                expected.push((from, to, rig.tagged(&sender, tags)?, tags));
            }
        }
    }
    for (from, to, arrived, tags) in expected {
        ensure!(
            arrived == *tags,
            "from {from} to {to}: {arrived:02x?} instead of {tags:02x?}"
        );
    }
    Ok(())
}

fn a_detached_bridge_is_as_before() -> Result<()> {
    let mut rig = Rig::attached("detach", 2, &["--port", "port0=xdp"])?;
    rig.until_fast(0, 1)?;
    ensure!(rig.pins()?.len() == 2, "{:?}", rig.pins()?);
    let index = rig.index("port0")?;
    ensure!(
        rig.rtnetlink
            .link_by_index(index)?
            .xdp_programs
            .driver
            .is_some(),
        "no program"
    );
    rig.under_load(0, 1, |rig| rig.ask(&["detach", "br0"]))?;
    is_clean(&mut rig)?;
    let text = rig.ask(&["status"])?;
    ensure!(text.starts_with("No bridge is attached"), "{text}");
    let error = rig.refused(&["detach", "br0"])?;
    ensure!(
        error.contains("the bridge br0 is not attached; no bridge is"),
        "{error}"
    );
    // Once more.
    rig.under_load(0, 1, |rig| rig.ask(&["attach", "br0"]))?;
    rig.until_fast(0, 1)
}

/// Nothing is left of an attached bridge.
fn is_clean(rig: &mut Rig) -> Result<()> {
    ensure!(rig.pins()?.is_empty(), "{:?}", rig.pins()?);
    let pins = rig.pins_of_bridges()?;
    for below in [pins.join("br0"), rig.state().join("br0")] {
        ensure!(!below.exists(), "{} is left", below.display());
    }
    for link in rig.rtnetlink.links()? {
        ensure!(link.xdp_program.is_none(), "{} has a program", link.name);
    }
    Ok(())
}

fn attach_refuses_other_devices() -> Result<()> {
    let mut rig = Rig::new("others", 1)?;
    rig.start(&[])?;
    let error = rig.refused(&["attach", "end0"])?;
    let wanted = "end0 is no Linux bridge but veth: name a bridge, there is br0";
    ensure!(error.contains(wanted), "{error}");
    let error = rig.refused(&["attach", "br7"])?;
    ensure!(error.contains("br7"), "{error}");
    // The command refuses these itself; the daemon checks them all the same.
    for (bridge, addresses, wanted) in [
        ("../br0", 1, "\"../br0\" is not the name of a bridge"),
        ("br0", 0, "addresses = 0: choose 1 to 4194304"),
    ] {
        let settings = Settings {
            addresses,
            ..Settings::default()
        };
        let request = Request::Attach {
            bridge: bridge.into(),
            settings: Box::new(settings),
        };
        let answer: Result<Value> = ask(&rig.path("sock"), &request);
        let error = answer.err().context("it is attached")?.to_string();
        ensure!(error.contains(wanted), "{error}");
    }
    is_clean(&mut rig)
}

fn a_state_has_one_daemon() -> Result<()> {
    let mut rig = Rig::new("one", 1)?;
    rig.start(&[])?;
    let error = rig.refused(&["run"])?;
    ensure!(error.contains("another `weir switch run` has"), "{error}");
    rig.ask(&["status"]).map(drop)
}

/// Their bridges and ports have the same names and indices.
fn daemons_of_two_namespaces_do_not_meet() -> Result<()> {
    let mut first = Rig::attached("first", 2, &["--hook", "xdp"])?;
    first.until_fast(0, 1)?;
    let mut second = Rig::new("second", 2)?;
    ensure!(first.index("port0")? == second.index("port0")?, "others");
    second.share(&first);
    second.start(&[])?;
    second.ask(&["attach", "br0", "--hook", "xdp"])?;
    second.learn()?;
    second.until_fast(0, 1)?;
    first.until_fast(0, 1)?;
    second.end(Signal::KILL)?;
    second.ask(&["detach", "--all"])?;
    is_clean(&mut second)?;
    first.until_fast(0, 1)
}

fn another_program_keeps_its_place() -> Result<()> {
    let mut rig = Rig::new("theirs", 2)?;
    let other = rig.inside(|| Ok(Program::attach_to("port0", AttachMode::Driver)?))?;
    rig.start(&[])?;
    let error = rig.refused(&["attach", "br0", "--port", "port0=xdp"])?;
    for part in ["port port0: the XDP program xsk", "is attached to it"] {
        ensure!(error.contains(part), "no {part}: {error}");
    }
    ensure!(rig.pins()?.is_empty(), "{:?}", rig.pins()?);
    rig.ask(&["attach", "br0"])?;
    let port = rig.port("port0")?;
    let why = port["why"].as_str().unwrap_or_default();
    ensure!(
        port["hook"] == "tcx" && why.contains("the XDP program xsk"),
        "{port}"
    );
    rig.learn()?;
    rig.until_fast(0, 1)?;
    let index = rig.index("port0")?;
    let there = rig.rtnetlink.link_by_index(index)?.xdp_programs.driver;
    ensure!(there.is_some(), "it is gone");
    drop(other);
    Ok(())
}

fn an_mtu_too_large_for_xdp_is_refused() -> Result<()> {
    let mut rig = Rig::new("mtu", 2)?;
    for name in ["port0", "end0"] {
        let index = rig.index(name)?;
        rig.rtnetlink.set_mtu(index, 9000)?;
    }
    rig.start(&[])?;
    let error = rig.refused(&["attach", "br0", "--port", "port0=xdp"])?;
    ensure!(
        error.contains("port port0") && error.contains("MTU of 9000"),
        "{error}"
    );
    is_clean(&mut rig)?;
    rig.ask(&["attach", "br0"])?;
    ensure!(rig.hook("port0")? == "tcx", "{}", rig.port("port0")?);
    rig.learn()?;
    rig.until_fast(0, 1)
}

fn a_bridge_that_comes_back_is_attached_again() -> Result<()> {
    let mut rig = Rig::attached("back", 2, &["--port", "port0=xdp"])?;
    rig.until_fast(0, 1)?;
    let bridge = rig.index("br0")?;
    rig.rtnetlink.delete(bridge)?;
    until("it waits", || {
        let bridge = rig.bridge()?;
        Ok(bridge["state"] == "waiting")
    })?;
    ensure!(rig.pins()?.is_empty(), "{:?}", rig.pins()?);
    let text = rig.ask(&["status"])?;
    ensure!(text.starts_with("br0: waits: "), "{text}");
    let error = rig.refused(&["watch", "br0", "--write", "/dev/null"])?;
    ensure!(error.contains("the bridge br0 waits"), "{error}");
    rig.add_bridge()?;
    rig.add_ports()?;
    until(
        "it is attached",
        || Ok(rig.bridge()?["state"] == "attached"),
    )?;
    until("its ports are there", || Ok(rig.hook("port0")? == "xdp"))?;
    rig.learn()?;
    rig.until_fast(0, 1)?;
    // Also while no daemon runs, and it is attached by the next one.
    let bridge = rig.index("br0")?;
    rig.end(Signal::TERM)?;
    rig.rtnetlink.delete(bridge)?;
    rig.start(&[])?;
    ensure!(rig.bridge()?["state"] == "waiting", "{}", rig.bridge()?);
    rig.end(Signal::KILL)?;
    rig.add_bridge()?;
    rig.add_ports()?;
    rig.start(&[])?;
    ensure!(rig.hook("port0")? == "xdp", "{}", rig.bridge()?);
    rig.learn()?;
    rig.until_fast(0, 1)
}

fn ports_come_and_go() -> Result<()> {
    let mut rig = Rig::attached("ports", 2, &[])?;
    rig.add_port()?;
    until("the new port has a program", || {
        Ok(rig.hook("port2")? == "tcx")
    })?;
    rig.learn()?;
    rig.until_fast(0, 2)?;
    rig.until_fast(2, 1)?;
    let index = rig.index("port2")?;
    rig.rtnetlink.set_down(index)?;
    rig.rtnetlink.rename(index, "renamed")?;
    rig.rtnetlink.set_up(index)?;
    until("it has its new name", || Ok(rig.hook("renamed")? == "tcx"))?;
    rig.learn()?;
    rig.until_fast(0, 2)?;
    rig.rtnetlink.remove_port(index)?;
    until("it is no port", || Ok(rig.hook("renamed")? == "none"))?;
    ensure!(rig.pins()?.len() == 2, "{:?}", rig.pins()?);
    // The kernel floods, to a port that is none any more as little as the fast path.
    let number = rig.send(0, mac(2), mac(0))?;
    ensure!(rig.arrival(number)? == 1, "it went to no port");
    ensure!(rig.arrived(2)?.is_empty(), "it went to a port that is gone");
    Ok(())
}

/// Adds or removes rules in the namespace.
fn nft(rig: &Rig, rules: &str) -> Result<()> {
    let output = rig.inside(|| match Command::new("nft").arg(rules).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(skip("nft is not installed"))
        }
        output => Ok(output?),
    })?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("Operation not supported") {
        return Err(skip(
            "the kernel has no rules for bridges (CONFIG_NF_TABLES_BRIDGE)",
        ));
    }
    ensure!(output.status.success(), "{stderr}");
    Ok(())
}

fn rules_leave_the_bridge_to_the_kernel() -> Result<()> {
    let mut rig = Rig::attached("rules", 2, &[])?;
    rig.until_fast(0, 1)?;
    let drops = "type filter hook forward priority 0; policy drop;";
    nft(
        &rig,
        &format!("add table bridge t; add chain bridge t c {{ {drops} }}"),
    )?;
    until("the kernel gets all frames", || {
        Ok(rig.bridge()?["forwarding"] == false)
    })?;
    let why = rig.bridge()?["why_not"].clone();
    let wanted = "base chains of the family bridge";
    ensure!(
        why.as_str().is_some_and(|why| why.contains(wanted)),
        "{why}"
    );
    rig.arrived(1)?;
    rig.send(0, mac(1), mac(0))?;
    ensure!(rig.arrived(1)?.is_empty(), "the rule is not obeyed");
    ensure!(rig.not_forwarded(0, "paused")? > 0, "it was not counted");
    nft(&rig, "delete table bridge t")?;
    until("frames are forwarded again", || {
        Ok(rig.bridge()?["forwarding"] == true)
    })?;
    rig.until_fast(0, 1)?;
    // Those of a device are met before the bridge.
    let of_device = "type filter hook ingress device port0 priority 0;";
    nft(
        &rig,
        &format!("add table inet t; add chain inet t c {{ {of_device} }}"),
    )?;
    // Whatever the sysctls of br_netfilter: with them, any chain of inet would be a reason.
    until("the kernel gets all frames", || {
        let why = rig.bridge()?["why_not"].clone();
        Ok(why
            .as_str()
            .is_some_and(|why| why.contains("family netdev")))
    })?;
    nft(&rig, "delete table inet t")?;
    until("frames are forwarded again", || {
        Ok(rig.bridge()?["forwarding"] == true)
    })?;
    rig.until_fast(0, 1)
}

fn isolated_ports_stay_isolated() -> Result<()> {
    let mut rig = Rig::attached("isolated", 3, &[])?;
    rig.until_fast(0, 1)?;
    for name in ["port0", "port1"] {
        let index = rig.index(name)?;
        let change = PortChange {
            isolated: Some(true),
            ..PortChange::default()
        };
        rig.rtnetlink.set_port(index, &change)?;
    }
    // The kernel drops them.
    until("the fast path knows", || {
        rig.send(0, mac(1), mac(0))?;
        Ok(rig.not_forwarded(0, "isolated")? > 0)
    })?;
    rig.arrived(1)?;
    rig.send(0, mac(1), mac(0))?;
    ensure!(rig.arrived(1)?.is_empty(), "it went to an isolated port");
    rig.until_fast(0, 2)
}

fn addresses_above_the_limit_are_dropped() -> Result<()> {
    let mut rig = Rig::attached("limit", 2, &["--mac-limit", "2"])?;
    // One is known behind port 0; of these, one more may come.
    for last in 10..20 {
        for _ in 0..3 {
            rig.send(0, BROADCAST, mac(last))?;
        }
    }
    until("the others are dropped", || {
        Ok(rig.not_forwarded(0, "mac-limit")? >= 27)
    })?;
    let mut numbers = rig.arrived(1)?;
    numbers.dedup();
    ensure!(numbers.len() == 3, "{numbers:?}");
    ensure!(behind(&mut rig)? == 2, "{:?}", rig.port("port0")?);
    let port = rig.port("port0")?;
    ensure!(port["addresses"] == 2 && port["mac_limit"] == 2, "{port}");
    rig.until_fast(0, 1)?;
    // Without a limit they are learned.
    rig.ask(&["attach", "br0"])?;
    for last in 10..20 {
        rig.send(0, BROADCAST, mac(last))?;
    }
    until("all are learned", || Ok(behind(&mut rig)? == 11))
}

/// Addresses that the kernel has learned behind port 0.
fn behind(rig: &mut Rig) -> Result<usize> {
    let (bridge, port) = (rig.index("br0")?, rig.index("port0")?);
    let entries = rig.rtnetlink.fdb(bridge)?.into_iter();
    let entries = entries.filter(|entry| entry.port == port && !entry.local);
    Ok(entries.count())
}

fn a_storm_is_cut() -> Result<()> {
    let mut rig = Rig::attached("storm", 2, &["--broadcast", "100", "--unknown", "50"])?;
    rig.arrived(1)?;
    let group = rig.not_forwarded(0, "group")?;
    for _ in 0..300 {
        rig.send(0, BROADCAST, mac(0))?;
    }
    let passed = rig.arrived(1)?.len() as u64;
    let cut = rig.not_forwarded(0, "storm")?;
    ensure!(cut > 0 && passed > 0, "{passed} passed, {cut} were cut");
    ensure!(passed + cut == 300, "{passed} passed, {cut} were cut");
    ensure!(
        rig.not_forwarded(0, "group")? == group + passed,
        "others were counted"
    );
    for _ in 0..300 {
        rig.send(0, mac(9), mac(0))?;
    }
    let passed = rig.arrived(1)?.len() as u64;
    let cut = rig.not_forwarded(0, "storm")? - cut;
    ensure!(
        cut > 0 && passed + cut == 300,
        "{passed} unknown ones passed, {cut} were cut"
    );
    // Others are not metered.
    rig.until_fast(0, 1)
}

fn a_loop_is_reported() -> Result<()> {
    let mut rig = Rig::attached("loop", 3, &["--flapping", "4"])?;
    let mut turn = 0;
    until("the loop is reported", || {
        let number = rig.send(turn % 2, BROADCAST, mac(9))?;
        rig.arrival(number)?;
        turn += 1;
        let bridge = rig.bridge()?;
        let news = bridge["news"].as_array().cloned().unwrap_or_default();
        let wanted = "02:00:00:00:01:09 moves again and again between port";
        let told = news.iter().filter_map(Value::as_str);
        Ok(told.filter(|news| news.contains(wanted)).count() == 1
            && bridge["mirror"]["flapping"] == 1)
    })?;
    ensure!(turn > 4, "after {turn} moves");
    Ok(())
}

fn samples_are_written() -> Result<()> {
    let mut rig = Rig::attached("samples", 2, &[])?;
    rig.until_fast(0, 1)?;
    let file = rig.path("frames.pcapng");
    let mut watch = rig.command(&["watch", "br0", "--one-in", "1", "--seconds", "2"]);
    watch.arg("--write").arg(&file).stderr(Stdio::piped());
    // Outside of the daemon's namespace, where devices have other names and indices.
    let mut watch = watch.spawn()?;
    while watch.try_wait()?.is_none() {
        let number = rig.send(0, mac(1), mac(0))?;
        rig.arrival(number)?;
    }
    let output = watch.wait_with_output()?;
    ensure!(output.status.success(), "{output:?}");
    let mut reader = PcapNgReader::new(File::open(&file)?)?;
    let (mut frames, mut names) = (0, Vec::new());
    while let Some(block) = reader.next_block() {
        match block? {
            Block::InterfaceDescription(block) => {
                names.push(format!("{:?}", block.options));
            }
            Block::EnhancedPacket(packet) => {
                ensure!(
                    packet.data.len() == 60 && packet.data[..6] == mac(1),
                    "{packet:?}"
                );
                let to = EnhancedPacketOption::Comment(
                    "sampled by weir switch, forwarded to port1".into(),
                );
                ensure!(packet.options.contains(&to), "{packet:?}");
                frames += 1;
            }
            _ => {}
        }
    }
    ensure!(frames > 0, "no frame");
    ensure!(names.len() == 1 && names[0].contains("port0"), "{names:?}");
    Ok(())
}

fn settings_replace_earlier_ones() -> Result<()> {
    let mut rig = Rig::attached("settings", 2, &[])?;
    rig.ask(&["attach", "br0", "--port", "port0=kernel"])?;
    ensure!(rig.hook("port0")? == "kernel", "{}", rig.port("port0")?);
    ensure!(rig.pins()?.len() == 1, "{:?}", rig.pins()?);
    let mut changed = |flags: &[&str], hooks: [&str; 2]| {
        rig.under_load(0, 1, |rig| rig.ask(&[&["attach", "br0"], flags].concat()))?;
        let now = [rig.hook("port0")?, rig.hook("port1")?];
        ensure!(now == hooks, "{flags:?}: {now:?}");
        Ok(())
    };
    changed(&["--port", "port1=xdp"], ["tcx", "xdp"])?;
    changed(&["--hook", "xdp", "--port", "port1=tcx"], ["xdp", "tcx"])?;
    changed(&["--ports", "port1"], ["kernel", "tcx"])?;
    changed(&[], ["tcx", "tcx"])?;
    // A refusal leaves the earlier ones in force.
    let index = rig.index("port0")?;
    rig.rtnetlink.set_mtu(index, 9000)?;
    let end = rig.index("end0")?;
    rig.rtnetlink.set_mtu(end, 9000)?;
    rig.refused(&["attach", "br0", "--hook", "xdp"])?;
    ensure!(rig.hook("port0")? == "tcx", "{}", rig.port("port0")?);
    ensure!(rig.hook("port1")? == "tcx", "{}", rig.port("port1")?);
    rig.learn()?;
    rig.until_fast(0, 1)
}

/// The daemon ends by this signal, and another one takes its programs over. No frame is lost.
fn taken_over(signal: Signal, name: &'static str) -> Result<()> {
    let mut rig = Rig::attached(name, 3, &["--port", "port0=xdp"])?;
    rig.until_fast(0, 1)?;
    let pins = rig.pins()?;
    ensure!(pins.len() == 3, "{pins:?}");
    let index = rig.index("port0")?;
    rig.under_load(0, 1, |rig| {
        rig.end(signal)?;
        let program = rig.rtnetlink.link_by_index(index)?.xdp_programs.driver;
        ensure!(program.is_some(), "it went with the daemon");
        rig.start(&[])?;
        ensure!(rig.hook("port0")? == "xdp", "{}", rig.port("port0")?);
        ensure!(rig.hook("port1")? == "tcx", "{}", rig.port("port1")?);
        let now = rig.rtnetlink.link_by_index(index)?.xdp_programs.driver;
        ensure!(now.is_some() && now != program, "{program:?}, now {now:?}");
        Ok(())
    })?;
    let mut now = rig.pins()?;
    let mut pins = pins;
    pins.sort();
    now.sort();
    ensure!(now == pins, "{pins:?}, now {now:?}");
    rig.until_fast(0, 1)?;
    rig.until_fast(1, 0)
}

fn a_restart_loses_no_frame() -> Result<()> {
    taken_over(Signal::TERM, "restart")
}

fn a_kill_loses_no_frame() -> Result<()> {
    taken_over(Signal::KILL, "kill")
}

/// The programs' own knowledge is shown by an address that the kernel is told to be elsewhere meanwhile.
fn programs_without_a_daemon_leave_frames_to_the_kernel() -> Result<()> {
    let mut rig = Rig::attached("alone", 3, &["--port", "port0=xdp"])?;
    rig.until_fast(0, 1)?;
    rig.end(Signal::KILL)?;
    let killed = Instant::now();
    let port = rig.index("port2")?;
    rig.rtnetlink.add_fdb(port, mac(1), 0, FdbKind::Static)?;
    let number = rig.send(0, mac(1), mac(0))?;
    let to = rig.arrival(number)?;
    let at_once = killed.elapsed() < Duration::from_secs(3);
    ensure!(to == 1 || !at_once, "the program has not forwarded it");
    until("the kernel gets the frames", || {
        let number = rig.send(0, mac(1), mac(0))?;
        Ok(rig.arrival(number)? == 2)
    })?;
    let after = killed.elapsed();
    ensure!(!at_once || after > Duration::from_secs(3), "{after:?}");
    ensure!(rig.pins()?.len() == 3, "{:?}", rig.pins()?);
    // The next daemon knows.
    rig.start(&[])?;
    let before = rig.forwarded(0)?;
    until("the fast path forwards to the new port", || {
        let number = rig.send(0, mac(1), mac(0))?;
        ensure!(rig.arrival(number)? == 2, "it went to the old port");
        Ok(rig.forwarded(0)? > before)
    })
}

fn all_is_detached_without_a_daemon() -> Result<()> {
    let mut rig = Rig::attached("offline", 3, &["--port", "port0=xdp"])?;
    rig.until_fast(0, 1)?;
    rig.end(Signal::KILL)?;
    let text = rig.under_load(0, 1, |rig| rig.ask(&["detach", "--all"]))?;
    ensure!(text == "Left to the kernel: br0\n", "{text}");
    is_clean(&mut rig)?;
    ensure!(!rig.bpffs().join("weir").exists(), "a directory is left");
    ensure!(!rig.state().exists(), "notes are left");
    ensure!(!rig.path("sock").exists(), "the socket is left");
    let port = rig.index("port2")?;
    rig.rtnetlink.add_fdb(port, mac(1), 0, FdbKind::Static)?;
    let number = rig.send(0, mac(1), mac(0))?;
    ensure!(rig.arrival(number)? == 2, "a program is still there");
    let text = rig.ask(&["detach", "--all"])?;
    ensure!(text == "No bridge was attached.\n", "{text}");
    // And there is nothing that the next daemon would attach.
    rig.start(&[])?;
    let text = rig.ask(&["status"])?;
    ensure!(text.starts_with("No bridge is attached"), "{text}");
    Ok(())
}

fn a_configuration_is_followed() -> Result<()> {
    let mut rig = Rig::new("config", 2)?;
    let file = rig.path("switch.toml");
    let path = file.to_str().context("a path")?.to_owned();
    let bridge = |hook: &str| {
        format!("[[bridge]]\nname = \"br0\"\n[bridge.port.port0]\nhook = \"{hook}\"\n")
    };
    fs::write(&file, bridge("xdp") + "[[bridge]]\nname = \"later\"\n")?;
    rig.start(&["--config", &path])?;
    ensure!(rig.hook("port0")? == "xdp", "{}", rig.port("port0")?);
    let text = rig.ask(&["status"])?;
    ensure!(text.contains("later: waits: "), "{text}");
    rig.learn()?;
    rig.until_fast(0, 1)?;
    let reload = |rig: &Rig, text: &str| -> Result<()> {
        fs::write(&file, text)?;
        let daemon = rig.daemon.as_ref().context("no daemon")?;
        Ok(rustix::process::kill_process(
            rustix::process::Pid::from_child(daemon),
            Signal::HUP,
        )?)
    };
    reload(&rig, &bridge("tcx"))?;
    until("the new hook is there", || Ok(rig.hook("port0")? == "tcx"))?;
    ensure!(
        !rig.ask(&["status"])?.contains("later"),
        "it is still there"
    );
    // One with a fault changes nothing.
    reload(&rig, "[[bridge]]\n")?;
    until("the fault is logged", || {
        Ok(fs::read_to_string(rig.path("log"))?.contains("missing field `name`"))
    })?;
    ensure!(rig.hook("port0")? == "tcx", "{}", rig.port("port0")?);
    // Nor does a hook that is refused.
    for name in ["port0", "end0"] {
        let index = rig.index(name)?;
        rig.rtnetlink.set_mtu(index, 9000)?;
    }
    reload(&rig, &bridge("xdp"))?;
    until("the refusal is logged", || {
        Ok(fs::read_to_string(rig.path("log"))?.contains("the earlier settings stay"))
    })?;
    ensure!(rig.hook("port0")? == "tcx", "{}", rig.port("port0")?);
    rig.learn()?;
    rig.until_fast(0, 1)?;
    // A bridge that has left the file while no daemon ran is left to the kernel.
    rig.end(Signal::TERM)?;
    ensure!(rig.pins()?.len() == 2, "{:?}", rig.pins()?);
    fs::write(&file, "")?;
    rig.start(&["--config", &path])?;
    is_clean(&mut rig)
}

/// A port of a configuration that cannot have its hook; the programs of the others stay where they are.
fn a_refused_port_leaves_the_others_alone() -> Result<()> {
    let mut rig = Rig::new("leave", 3)?;
    let other = rig.inside(|| Ok(Program::attach_to("port2", AttachMode::Driver)?))?;
    let file = rig.path("switch.toml");
    let path = file.to_str().context("a path")?.to_owned();
    let text = "[[bridge]]\nname = \"br0\"\n[bridge.default]\nhook = \"xdp\"\n";
    fs::write(&file, text)?;
    rig.start(&["--config", &path])?;
    let port = rig.port("port2")?;
    let why = port["why"].as_str().unwrap_or_default();
    ensure!(
        port["hook"] == "kernel" && why.contains("the XDP program xsk"),
        "{port}"
    );
    for port in 0..2 {
        rig.send(port, BROADCAST, mac(port))?;
    }
    rig.until_fast(0, 1)?;
    let index = rig.index("port0")?;
    let mut program = || -> Result<Option<u32>> {
        let link = rig.rtnetlink.link_by_index(index)?;
        Ok(link.xdp_programs.driver)
    };
    let before = program()?;
    for _ in 0..25 {
        std::thread::sleep(Duration::from_millis(100));
        ensure!(program()? == before, "port0 was attached again");
    }
    // Also where everything is read anew.
    fs::write(
        &file,
        text.replace("[bridge.default]", "addresses = 200000\n[bridge.default]"),
    )?;
    let daemon = rig.daemon.as_ref().context("no daemon")?;
    rustix::process::kill_process(rustix::process::Pid::from_child(daemon), Signal::HUP)?;
    until("the refusal is logged", || {
        Ok(fs::read_to_string(rig.path("log"))?.contains("the earlier settings stay"))
    })?;
    rig.until_fast(0, 1)?;
    drop(other);
    until("its own program is there", || {
        Ok(rig.hook("port2")? == "xdp")
    })?;
    rig.learn()?;
    rig.until_fast(0, 2)
}

/// A BPF filesystem takes no such name.
fn a_name_with_a_dot_is_one() -> Result<()> {
    let mut rig = Rig::new("dot", 1)?;
    rig.rtnetlink
        .add_bridge_with("br0.1", &BridgeOptions::default())?;
    let bridge = rig.index("br0.1")?;
    let port = rig.index("port0")?;
    rig.rtnetlink.remove_port(port)?;
    rig.rtnetlink.add_port(bridge, port)?;
    rig.start(&[])?;
    rig.ask(&["attach", "br0.1"])?;
    let pins = rig.pins_of_bridges()?.join("br0:1");
    ensure!(pins.is_dir(), "no {}", pins.display());
    rig.end(Signal::TERM)?;
    rig.start(&[])?;
    let text = rig.ask(&["status", "br0.1"])?;
    ensure!(text.starts_with("br0.1: forwarding"), "{text}");
    rig.end(Signal::KILL)?;
    let text = rig.ask(&["detach", "--all"])?;
    ensure!(text == "Left to the kernel: br0.1\n", "{text}");
    ensure!(!pins.exists(), "{} is left", pins.display());
    is_clean(&mut rig)
}

fn add_name(rig: &Rig, device: &str, name: &str) -> Result<()> {
    rig.inside(|| {
        let words = ["link", "property", "add", "dev", device, "altname", name];
        let done = output(Command::new("ip").args(words))?;
        ensure!(done.status.success(), "{done:?}");
        Ok(())
    })
}

fn bridges_and_ports_have_alternative_names() -> Result<()> {
    let mut rig = Rig::new("names", 2)?;
    rig.start(&[])?;
    for (number, name) in crate::names::names().into_iter().enumerate() {
        let (bridge, port) = (format!("b{number}{name}"), format!("p{number}{name}"));
        add_name(&rig, "br0", &bridge)?;
        add_name(&rig, "port0", &port)?;
        let hook = format!("{port}=tcx");
        rig.ask(&[
            "attach",
            &bridge,
            "--ports",
            &format!("{port},port1"),
            "--port",
            &hook,
        ])?;
        ensure!(rig.hook("port0")? == "tcx", "{}", rig.port("port0")?);
        for asked in [&bridge, "br0"] {
            let text = rig.ask(&["status", asked])?;
            ensure!(text.starts_with("br0: forwarding"), "{text}");
        }
        // By both of its names, a port has no settings.
        let both = ["--port", "port0=tcx", "--port", &hook];
        let text = rig.refused(&[&["attach", "br0"][..], &both].concat())?;
        ensure!(
            text.contains("has settings as ") && text.contains(&port),
            "{text}"
        );
        ensure!(rig.pins_of_bridges()?.join("br0").is_dir(), "no pins");
        let text = rig.ask(&["detach", &bridge])?;
        ensure!(text.contains("br0") && !text.contains(&bridge), "{text}");
    }
    let long = "x".repeat(128);
    let refused = rig.run(&["attach", &long])?;
    let text = String::from_utf8(refused.stderr)?;
    ensure!(text.contains("it has 1 to 127 bytes"), "{text}");
    is_clean(&mut rig)
}

/// A configuration may name it twice, and then has it once.
fn a_bridge_of_an_alternative_name_comes_later() -> Result<()> {
    let mut rig = Rig::new("later-names", 1)?;
    let file = rig.path("switch.toml");
    let path = file.to_str().context("a path")?.to_owned();
    let long = "y".repeat(100);
    fs::write(&file, format!("[[bridge]]\nname = \"{long}\"\n"))?;
    rig.start(&["--config", &path])?;
    let text = rig.ask(&["status"])?;
    ensure!(text.contains(&format!("{long}: waits: ")), "{text}");
    add_name(&rig, "br0", &long)?;
    until("the bridge is attached", || {
        Ok(rig.ask(&["status"])?.starts_with("br0: forwarding"))
    })?;
    ensure!(
        !rig.state().join(&long).exists(),
        "its notes have two names"
    );
    let twice = format!("[[bridge]]\nname = \"br0\"\n[[bridge]]\nname = \"{long}\"\n");
    fs::write(&file, twice)?;
    let daemon = rig.daemon.as_ref().context("no daemon")?;
    let daemon = rustix::process::Pid::from_child(daemon);
    rustix::process::kill_process(daemon, Signal::HUP)?;
    until("the second is refused", || {
        Ok(fs::read_to_string(rig.path("log"))?.contains("is this bridge, too, and is not used"))
    })?;
    let text = rig.ask(&["status"])?;
    ensure!(text.starts_with("br0: forwarding"), "{text}");
    rig.ask(&["detach", &long])?;
    is_clean(&mut rig)
}

/// The daemon learns of more addresses than there is room for before it learns that a port has gone.
fn a_port_that_vanishes_while_the_map_grows_is_forgotten() -> Result<()> {
    const ADDRESSES: u32 = 1000;
    let mut rig = Rig::attached("grow", 3, &["--hook", "xdp", "--addresses", "64"])?;
    rig.until_fast(0, 1)?;
    let daemon = rig.daemon.as_ref().context("no daemon")?;
    let daemon = rustix::process::Pid::from_child(daemon);
    rustix::process::kill_process(daemon, Signal::STOP)?;
    let port = rig.index("port1")?;
    for number in 0..ADDRESSES {
        let [.., high, low] = number.to_be_bytes();
        let address = [2, 0, 0, 1, high, low];
        rig.rtnetlink.add_fdb(port, address, 0, FdbKind::Static)?;
    }
    let gone = rig.index("port2")?;
    rig.rtnetlink.delete(gone)?;
    rustix::process::kill_process(daemon, Signal::CONT)?;
    until("the port is forgotten", || Ok(rig.hook("port2")? == "none"))?;
    let bridge = rig.bridge()?;
    ensure!(bridge["mirror"]["reloads"].as_u64() > Some(0), "{bridge}");
    rig.until_fast(0, 1)?;
    // Longer than programs live that no beat reaches.
    std::thread::sleep(weir::switch::LIFE + Duration::from_secs(1));
    rig.until_fast(0, 1)
}

/// `detach --all` that finds no daemon at its socket.
fn notes_belong_to_a_daemon() -> Result<()> {
    let rig = Rig::attached("notes", 2, &[])?;
    let mut command = weir();
    command.args(["switch", "detach", "--all"]);
    command.arg("--socket").arg(rig.path("other"));
    command.arg("--state").arg(rig.state());
    command.arg("--bpffs").arg(rig.bpffs());
    let refused = rig.inside(|| output(&mut command))?;
    let error = String::from_utf8(refused.stderr)?;
    ensure!(refused.status.code() == Some(1), "{error}");
    ensure!(error.contains("name its own with --socket"), "{error}");
    // A second daemon that is refused leaves them alone, too.
    rig.refused(&["run"])?;
    ensure!(rig.state().exists(), "the notes are gone");
    ensure!(rig.hook("port0")? == "tcx", "{}", rig.port("port0")?);
    Ok(())
}

fn programs_of_others_at_tcx_are_not_skipped() -> Result<()> {
    for hook in ["tcx", "xdp"] {
        let mut rig = Rig::attached("tcx-others", 2, &["--hook", hook])?;
        rig.until_fast(0, 1)?;
        let index = rig.index("port0")?;
        let other = rig.inside(|| {
            let shape = datapath::shape(2, 2, 2, None, false)?;
            let datapath = Datapath::load(&weir::switch::OBJECT, shape)?;
            Ok(datapath.attach(index, Place::Tcx)?)
        });
        let other = match other {
            Err(error) if error.downcast_ref::<std::io::Error>().is_some() => {
                return Err(skip("the kernel has no tcx (Linux 6.6)"));
            }
            other => other?,
        };
        until("the port is left to the kernel", || {
            Ok(rig.hook("port0")? == "kernel")
        })?;
        let port = rig.port("port0")?;
        let why = port["why"].as_str().unwrap_or_default();
        ensure!(why.contains("programs at ingress"), "{port}");
        // Learned again while the port is the kernel's: the kernel reports nothing new of it later.
        rig.rtnetlink.delete_fdb(index, mac(0), 0)?;
        let number = rig.send(0, BROADCAST, mac(0))?;
        rig.arrival(number)?;
        drop(other);
        until(
            "it has its program again",
            || Ok(rig.hook("port0")? == hook),
        )?;
        rig.until_fast(0, 1)?;
        rig.until_fast(1, 0)?;
    }
    Ok(())
}

/// A qdisc without filters is no obstacle.
fn filters_of_others_are_not_skipped() -> Result<()> {
    let mut rig = Rig::attached("filters", 2, &[])?;
    rig.until_fast(0, 1)?;
    let tc = |rig: &Rig, words: &str| -> Result<()> {
        let done = rig.inside(|| Ok(Command::new("tc").args(words.split(' ')).output()?))?;
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        if stderr.contains("not supported") || stderr.contains("unknown") {
            return Err(skip(format!("the kernel lacks it: tc {words}: {stderr}")));
        }
        ensure!(done.status.success(), "tc {words}: {stderr}");
        Ok(())
    };
    tc(&rig, "qdisc replace dev port0 clsact")?;
    std::thread::sleep(Duration::from_millis(2500));
    ensure!(
        rig.hook("port0")? == "tcx",
        "a qdisc without filters: {}",
        rig.port("port0")?
    );
    let filter = "dev port0 ingress protocol ip prio 7 u32 match u32 0 0 flowid 1:1";
    tc(&rig, &format!("filter add {filter}"))?;
    until("the port is left to the kernel", || {
        Ok(rig.hook("port0")? == "kernel")
    })?;
    tc(&rig, "filter del dev port0 ingress prio 7")?;
    until("it has its program again", || {
        Ok(rig.hook("port0")? == "tcx")
    })?;
    rig.until_fast(0, 1)
}

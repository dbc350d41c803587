//! Every failure to open a socket names the obstacle and the cure, and leaves nothing behind.

use crate::budget::STALL;
use crate::child::{Group, Role, Started};
use crate::netns::{Lab, Side};
use crate::traffic::all_home;
use crate::{Outcome, Result, attach_mode};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::limit::longest;
use testkit::{Limit, Test, wait_until};
use xsk::testing::programs;
use xsk::{
    AttachMode, Device, DeviceWatch, ErrorKind, Mode, ModeObtained, Port, Program, Socket,
    SocketBuilder, Umem,
};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("error: missing device", missing_device),
        Test::new("device: alternative names", alternative_names),
        Test::new("error: device is down", device_down),
        Test::new("error: queue out of range", queue_out_of_range),
        Test::new("error: MTU larger than a chunk", mtu_too_large),
        Test::new(
            "error: MTU larger than the driver's limit",
            mtu_beyond_driver,
        ),
        Test::new("error: fewer queues than the peer", queues_beyond_driver),
        Test::new("error: the driver's own words", words_of_the_driver),
        Test::new(
            "error: another program without a link",
            program_without_a_link,
        ),
        Test::new("error: another program attached, SKB", || {
            other_program(Mode::Skb)
        }),
        Test::new("error: another program attached, DRV", || {
            other_program(Mode::Driver)
        }),
        Test::new("error: queue held by a living socket", busy_queue),
        Test::new("error: a queue twice on one UMEM", same_queue_twice),
        Test::new("error: zero-copy on veth", zero_copy),
        Test::new("error: no place for a pinned program", pins),
        Test::new("error: settings the kernel would reject", settings),
        Test::new("error: not an XSKMAP, or too small", maps),
        Test::new("error: memory lock limit", || {
            from_child(
                Role::LittleMemory,
                "MemoryLock",
                &["ulimit -l", "CAP_IPC_LOCK", "65536"],
            )
        }),
        Test::new("error: memory limit of a control group", control_group),
        Test::new("error: no capability", || {
            from_child(
                Role::Unprivileged,
                "PermissionDenied",
                &["CAP_NET_RAW", "root"],
            )
        }),
        Test::new("error: no CAP_BPF", || {
            from_child(
                Role::OnlyNetRaw,
                "PermissionDenied",
                &["CAP_BPF", "CAP_NET_ADMIN"],
            )
        }),
    ]
}

/// The error of a failed `open`, which must be of this kind, contain these words, and have left no
/// program on the device and all chunks free.
fn refused(
    side: &Side,
    umem: &Umem,
    kind: ErrorKind,
    words: &[&str],
    configure: impl FnOnce(SocketBuilder) -> SocketBuilder,
) -> xsk::Error {
    let before = side.lookup().map(|device| device.programs);
    let builder = Socket::builder(umem, side.device, 0);
    let opened = side.inside(|| configure(builder).open());
    let error = opened.err().unwrap_or_else(|| panic!("{kind:?} expected"));
    check(&error, kind, words);
    if let Ok(before) = before {
        // A command that another test has just forked holds copies until it executes.
        let same = || side.lookup().is_ok_and(|device| device.programs == before);
        assert!(wait_until(STALL, same), "a program was left");
    }
    error
}

fn check(error: &xsk::Error, kind: ErrorKind, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

fn umem() -> xsk::Result<Umem> {
    Umem::builder().chunks(256).build()
}

fn missing_device() -> Outcome {
    let umem = umem()?;
    for name in [
        "absent0",
        "",
        "a-name-of-more-than-15",
        &"x".repeat(128),
        "rx0\0",
        "a/b",
        "a b",
        "\0",
        "%d",
    ] {
        let opened = Socket::builder(&umem, name, 0).open();
        let error = opened.err().ok_or("it opened")?;
        check(&error, ErrorKind::DeviceMissing, &["`ip link`"]);
    }
    all_home(&umem);
    Ok(())
}

/// A name of the length that devices have, one of udev's for a card, and a long one.
fn alternative_names() -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    let long = "x".repeat(100);
    for name in ["enp0s31f6np0", "enx0a1b2c3d4e5f6789d0", &long] {
        lab.rx
            .ip(&format!("link property add dev rx0 altname {name}"))?;
        lab.rx.inside(|| -> Outcome {
            assert_eq!(Device::lookup(name)?.name, "rx0");
            assert!(Device::lookup("rx0")?.is_named(name));
            drop(Socket::builder(&umem, name, 0).mode(Mode::Skb).open()?);
            assert!(Program::attach_to(name, AttachMode::Skb).is_ok());
            assert!(DeviceWatch::new(name)?.next()?.is_none());
            let port = Port::builder(name).sockets(|socket| socket.mode(Mode::Skb));
            drop(port.open()?);
            Ok(())
        })?;
    }
    Ok(())
}

fn device_down() -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    lab.rx.ip("link set dev rx0 down")?;
    refused(
        &lab.rx,
        &umem,
        ErrorKind::DeviceDown,
        &["`ip link set dev rx0 up`"],
        |b| b,
    );
    Ok(())
}

fn queue_out_of_range() -> Outcome {
    let (umem, lab) = (umem()?, Lab::with_queues(2)?);
    for queue in [2, 3, 63, u32::MAX] {
        let opened = lab.rx.open_queue(&umem, Mode::Auto, queue, |b| b);
        let error = opened.err().ok_or("it opened")?;
        check(
            &error,
            ErrorKind::QueueOutOfRange,
            &["it has 2", "`ethtool -l rx0`"],
        );
    }
    all_home(&umem);
    Ok(())
}

fn mtu_too_large() -> Outcome {
    let (small, lab) = (umem()?, Lab::new()?);
    let large = Umem::builder().chunks(64).chunk_size(4096).build()?;
    // The chunk less the kernel's headroom, and a link header with a VLAN tag. Each cure that is named helps.
    for (umem, most, mtu, cures) in [
        (
            &small,
            1774,
            1775,
            "`fragments` or chunks of 4096 bytes, or",
        ),
        (&small, 1774, 9000, "with `fragments`, or"),
        (&large, 3822, 9000, "with `fragments`, or"),
        (&large, 3822, 65_535, "with `fragments`, or"),
    ] {
        lab.rx.ip(&format!("link set dev rx0 mtu {mtu}"))?;
        let (mtu, lower) = (mtu.to_string(), format!("mtu {most}`"));
        let words = [&*mtu, cures, &lower];
        refused(&lab.rx, umem, ErrorKind::MtuTooLarge, &words, |b| b);
        lab.rx.ip(&format!("link set dev rx0 mtu {most}"))?;
        lab.rx.open(umem, Mode::Auto, |b| b)?;
    }
    Ok(())
}

/// veth's native XDP bounds the MTU of the peer; generic XDP does not.
fn mtu_beyond_driver() -> Outcome {
    let umem = Umem::builder().chunks(256).chunk_size(4096).build()?;
    let lab = Lab::new()?;
    let most = hostnet::rtnetlink::max_xdp_mtu();
    lab.tx.ip(&format!("link set dev tx0 mtu {most}"))?;
    drop(lab.rx.open(&umem, Mode::Driver, |b| b)?);
    lab.tx.ip(&format!("link set dev tx0 mtu {}", most + 1))?;
    let refused = |mode| lab.rx.open(&umem, mode, |b| b);
    let error = refused(Mode::Driver).err().ok_or("it opened")?;
    let of_peer = format!("MTU {} of its peer", most + 1);
    let words = ["ERANGE", "native", &of_peer];
    check(&error, ErrorKind::MtuTooLarge, &words);
    let socket = refused(Mode::Auto)?;
    assert_eq!(socket.mode(), ModeObtained::Skb);
    assert!(
        socket
            .refusals()
            .iter()
            .any(|r| r.to_string().contains("ERANGE"))
    );
    drop(socket);
    lab.tx.ip(&command(&error, "ip ")?)?;
    assert_eq!(refused(Mode::Driver)?.mode(), ModeObtained::Driver);
    Ok(())
}

/// The first command in an error, after `program`.
fn command(error: &xsk::Error, program: &str) -> Result<String> {
    let text = error.to_string();
    let mut quoted = text.split('`').skip(1).step_by(2);
    let found = quoted.find_map(|words| words.strip_prefix(program));
    Ok(found
        .ok_or_else(|| format!("no command of {program}: {text}"))?
        .to_owned())
}

/// veth's native XDP needs a receive queue for each transmit queue of the peer.
fn queues_beyond_driver() -> Outcome {
    let (umem, lab) = (umem()?, Lab::with_queues(2)?);
    lab.rx.run("ethtool", "-L rx0 rx 1")?;
    let refused = |mode| lab.rx.open(&umem, mode, |b| b);
    let error = refused(Mode::Driver).err().ok_or("it opened")?;
    check(&error, ErrorKind::ModeRefused, &["fewer RX queues"]);
    lab.tx.run("ethtool", &command(&error, "ethtool ")?)?;
    refused(Mode::Driver)?;
    Ok(())
}

/// The kernel's own words come with a refusal that bpf(2) gives a number for.
fn words_of_the_driver() -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    lab.rx.ip("link add none0 type bridge")?;
    lab.rx.ip("link set none0 up")?;
    let opened = lab.rx.inside(|| {
        let builder = Socket::builder(&umem, "none0", 0);
        builder.mode(Mode::Driver).open()
    });
    let error = opened.err().ok_or("it opened")?;
    check(&error, ErrorKind::ModeRefused, &["does not support XDP"]);
    let device = lab.rx.inside(|| xsk::Device::lookup("none0"))?;
    assert!(device.programs.is_empty(), "{:?}", device.programs);
    Ok(())
}

/// A program that no link holds is removed by the command that the error has, in each mode.
fn program_without_a_link() -> Outcome {
    for mode in [Mode::Skb, Mode::Driver] {
        let (umem, lab) = (umem()?, Lab::new()?);
        let device = lab.rx.lookup()?;
        lab.rx
            .inside(|| programs::leave_other(&device, attach_mode(mode)))?;
        let error = refused(&lab.rx, &umem, ErrorKind::ProgramAttached, &[], |b| {
            b.mode(mode)
        });
        lab.rx.ip(&command(&error, "ip ")?)?;
        lab.rx.open(&umem, mode, |b| b)?;
    }
    Ok(())
}

/// Directories that are not on a BPF filesystem, or none at all.
fn pins() -> Outcome {
    let lab = Lab::new()?;
    let plain = std::env::temp_dir().join(format!("xsk-pins-{}", std::process::id()));
    std::fs::create_dir(&plain)?;
    std::fs::write(plain.join("link"), "no link")?;
    let absent = plain.join("absent");
    let attached = lab
        .rx
        .inside(|| Program::attach_to("rx0", AttachMode::Skb))?;
    let unsupported = (ErrorKind::Unsupported, "is not on a BPF filesystem");
    for (directory, (kind, word)) in [
        (&*plain, unsupported),
        (Path::new("/proc"), unsupported),
        (Path::new(""), unsupported),
        (&absent, (ErrorKind::Os, "ENOENT")),
        (
            Path::new("a\0b"),
            (
                ErrorKind::InvalidConfig,
                "a\\0b/map: a path cannot have a zero byte",
            ),
        ),
    ] {
        let error = attached.pin(directory).err().ok_or("it is pinned")?;
        check(&error, kind, &[word]);
    }
    let nul = Path::new("\n\0");
    for done in [
        Program::unpin(nul),
        Program::open_pinned(nul, "rx0").map(drop),
    ] {
        let error = done.err().ok_or("it has no zero byte")?;
        check(&error, ErrorKind::InvalidConfig, &["\\n\\0/link: a path"]);
    }
    let opened = Program::open_pinned(&plain, "rx0");
    let error = opened.err().ok_or("it is no link")?;
    check(&error, unsupported.0, &[unsupported.1]);
    std::fs::remove_dir_all(plain)?;
    Ok(())
}

fn control_group() -> Outcome {
    const LIMIT: u64 = 6 << 20;
    let _group = Group::new(LIMIT)?;
    from_child(
        Role::Grouped,
        "OutOfMemory",
        &["control group's limit is 6291456 bytes", "fewer chunks"],
    )
}

fn other_program(mode: Mode) -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    let device = lab.rx.lookup()?;
    let attach = |mode| lab.rx.inside(|| programs::attach_other(&device, mode));
    let link = attach(attach_mode(mode))?;
    let program = lab.rx.lookup()?.programs.pop().ok_or("the program")?;
    let (id, tag) = (format!("id {}", program.id), program.tag.ok_or("a tag")?);
    let holder = format!("end process {} (", std::process::id());
    let words = ["not_of_xsk", &id, &tag, &holder, "`bpftool link detach id "];
    let mut limit = Limit::new(STALL * 4);
    for wanted in [mode, Mode::Auto] {
        refused(&lab.rx, &umem, ErrorKind::ProgramAttached, &words, |b| {
            b.mode(wanted).busy_timeout(longest(STALL * 4))
        });
    }
    // This program is not the library's, so `open` does not wait for its end.
    assert!(!limit.is_over());
    drop(link);
    assert!(lab.rx.has_no_program(STALL), "the program has stayed");
    lab.rx.open(&umem, mode, |b| b)?;
    Ok(())
}

/// It waits for the queue until the timeout, and not longer.
fn busy_queue() -> Outcome {
    const PATIENCE: Duration = Duration::from_millis(60);
    let (first, second, lab) = (umem()?, umem()?, Lab::new()?);
    let holder = lab.rx.open(&first, Mode::Skb, |b| b)?;
    let program = holder.program().ok_or("the program")?.clone();
    let words = ["queue 0", "end its process, which `"];
    let (start, mut limit) = (Instant::now(), Limit::new(STALL));
    refused(&lab.rx, &second, ErrorKind::QueueBusy, &words, |b| {
        b.mode(Mode::Skb).program(&program).busy_timeout(PATIENCE)
    });
    let took = start.elapsed();
    assert!(took >= PATIENCE && !limit.is_over(), "{took:?}");
    // A socket that attaches a program finds the holder's program first.
    let (start, mut limit) = (Instant::now(), Limit::new(STALL));
    let words = ["xsk_redirect", "`bpftool link detach id "];
    refused(&lab.rx, &second, ErrorKind::ProgramAttached, &words, |b| {
        b.mode(Mode::Skb).busy_timeout(PATIENCE)
    });
    let took = start.elapsed();
    assert!(took >= PATIENCE && !limit.is_over(), "{took:?}");
    all_home(&second);
    Ok(())
}

fn same_queue_twice() -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    let first = lab.rx.open(&umem, Mode::Driver, |b| b)?;
    let program = first.program().ok_or("the program")?.clone();
    refused(
        &lab.rx,
        &umem,
        ErrorKind::InvalidConfig,
        &["`add_sibling`", "queue 0"],
        |b| b.mode(Mode::Driver).program(&program),
    );
    Ok(())
}

fn zero_copy() -> Outcome {
    let (umem, lab) = (umem()?, Lab::new()?);
    let words = ["zero-copy", "EOPNOTSUPP 95", "copy mode"];
    let error = refused(&lab.rx, &umem, ErrorKind::ModeRefused, &words, |b| {
        b.mode(Mode::ZeroCopy)
    });
    assert_eq!(error.errno(), Some(95));
    all_home(&umem);
    Ok(())
}

fn settings() -> Outcome {
    type Change = fn(SocketBuilder) -> SocketBuilder;
    let (umem, lab) = (umem()?, Lab::new()?);
    let cases: [(Change, &[&str]); 10] = [
        (|b| b.rx_ring(1000), &["RX", "1000", "power of two"]),
        (|b| b.tx_ring(3), &["TX", "power of two"]),
        (|b| b.fill_ring(0), &["FILL", "power of two"]),
        (|b| b.completion_ring(0), &["COMPLETION", "power of two"]),
        (|b| b.fill_ring(u32::MAX), &["FILL", "at most"]),
        (|b| b.rx_ring(1 << 31), &["RX", "at most"]),
        (|b| b.rx_ring(0).tx_ring(0), &["RX", "TX", "slots"]),
        (|b| b.tx_budget(31), &["31", "32"]),
        (|b| b.tx_ring(64).tx_budget(65), &["65", "64"]),
        (|b| b.tx_ring(0).tx_budget(32), &["budget", "TX ring"]),
    ];
    for (change, words) in cases {
        refused(&lab.rx, &umem, ErrorKind::InvalidConfig, words, change);
    }
    all_home(&umem);
    Ok(())
}

fn maps() -> Outcome {
    let (umem, lab) = (umem()?, Lab::with_queues(2)?);
    let file = File::open("/dev/null")?;
    refused(
        &lab.rx,
        &umem,
        ErrorKind::Foreign,
        &["not a BPF map"],
        |b| b.map(file.into()),
    );
    let map = programs::xskmap(1)?;
    let opened = lab.rx.open_queue(&umem, Mode::Driver, 1, |b| b.map(map));
    let error = opened.err().ok_or("it opened")?;
    check(
        &error,
        ErrorKind::QueueOutOfRange,
        &["1 slots", "queue 1", "larger"],
    );
    all_home(&umem);
    Ok(())
}

fn from_child(role: Role, kind: &str, words: &[&str]) -> Outcome {
    let lab = Lab::new()?;
    let mut child = Started::new(&lab.rx, role, Mode::Skb)?;
    let line = child.line()?;
    assert!(line.starts_with(kind), "{kind} expected: {line}");
    for word in words {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
    assert!(lab.rx.has_no_program(STALL), "a program was left");
    Ok(())
}

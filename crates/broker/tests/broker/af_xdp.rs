//! Unmodified AF_XDP programs under the handler, on a veth pair, and their attacks.
#![allow(unsafe_code)] // owning descriptors that raw calls return.

use crate::lab::Lab;
use crate::supervised::{Result, Start, Supervised, Tries, address, call, wait_until};
use broker::confine::worker::Worker;
use broker::policy::{BusyPoll, DeviceGrant, Mode};
use broker::supervise::Handler;
use broker::supervise::handlers::af_xdp::{self, AfXdp, Queues, Taken};
use hostnet::sock_diag::xdp_diag::xdp_sockets;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::xdp::XdpUmemReg;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};
use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, set_parent_process_death_signal,
};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Limit, PacketSocket, Skip, Test, tests};

pub fn tests() -> Vec<Test> {
    tests![
        a_libxdp_program_forwards_without_privilege,
        a_libxdp_program_works_in_another_namespace,
        a_libxdp_program_forwards_on_a_device_granted_by_another_name,
        a_libxdp_program_opens_two_queues,
        an_example_of_the_library_receives,
        a_killed_program_leaves_nothing,
        a_program_killed_at_any_time_leaves_nothing,
        a_link_that_someone_keeps_is_detached,
        what_is_not_granted_is_refused,
        busy_polling_is_clamped,
        queues_are_lent_before_they_are_bound,
        a_flipped_address_binds_no_other_queue,
        a_flipped_descriptor_binds_no_other_queue,
        a_flipped_link_attaches_to_no_other_device,
        a_flipped_message_attaches_to_no_other_device,
        hostile_bytes_are_refused,
    ]
}

/// Tries of an attack.
const TRIES: u64 = 10_000;

/// The queues lent, by device and number; a queue of 7 is another's.
#[derive(Default)]
struct Lent(Mutex<Vec<(String, u32)>>);

const ANOTHERS: u32 = 7;

impl Queues for Lent {
    fn lend(
        &self,
        _: &str,
        device: &str,
        queue: u32,
        _: BorrowedFd<'_>,
        _: u64,
    ) -> Result<u64, Errno> {
        if queue == ANOTHERS {
            return Err(Errno::BUSY);
        }
        let mut lent = self.0.lock().expect("no panic");
        lent.push((device.to_owned(), queue));
        Ok(0)
    }

    fn begin(&self, _: u64, _: BorrowedFd<'_>) {}

    fn end(&self, _: u64) {}

    fn seize(&self, taken: &Taken<'_>) {
        // In whichever thread.
        eprintln!("{taken:?}: no test here has a socket bound by anyone else");
        std::process::abort();
    }
}

fn grant() -> DeviceGrant {
    DeviceGrant {
        device: "wan0".into(),
        queues: vec![0..=0],
        rx: true,
        tx: true,
        modes: vec![Mode::Driver, Mode::Skb],
        memory: 16 << 20,
        filter: Vec::new(),
        busy_poll: Some(BusyPoll {
            most_usecs: 20,
            most_budget: 8,
        }),
        plugin: false,
        pinned_map: false,
    }
}

/// Plays a scene in this thread's namespace, below a wrapper.
fn supervise(scene: &str, grant: DeviceGrant, wrapper: &[&str]) -> Result<Supervised> {
    Ok(supervise_lending(scene, grant, wrapper)?.0)
}

fn supervise_lending(
    scene: &str,
    grant: DeviceGrant,
    wrapper: &[&str],
) -> Result<(Supervised, Arc<Lent>)> {
    let lent = Arc::new(Lent::default());
    let queues = Arc::<Lent>::clone(&lent);
    let budget = Arc::default();
    let handler = AfXdp::new(
        "test",
        &[grant],
        &[],
        queues,
        Arc::new(Worker::start()?),
        budget,
    )?;
    let start = Start {
        scene,
        names: vec![af_xdp::NAME],
        wrapper,
    };
    let handlers = vec![Box::new(handler) as Box<dyn Handler>];
    Ok((Supervised::start(&start, handlers)?, lent))
}

/// Runs work in the broker's namespace.
fn at_broker(lab: &Lab, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let result = lab.at_broker(|| work().map_err(|error| error.to_string()));
    Ok(result?)
}

/// Plays a scene that checks everything itself, and checks that nothing is left behind.
fn play_attack(queues: u32, scene: &str) -> Result<()> {
    let lab = Lab::new(queues)?;
    at_broker(&lab, || {
        let mut supervised = supervise(scene, grant(), &[])?;
        let lines = supervised.lines()?;
        println!("{scene}: {lines:?}");
        supervised.wait_for_end()
    })?;
    check_clean(&lab)
}

fn check_clean(lab: &Lab) -> Result<()> {
    // A session ends a moment after its last task.
    wait_until("no program is left", || lab.programs().is_empty())
}

// --- libxdp -------------------------------------------------------------------------

/// Scene: becomes an ordinary user, without a capability, and runs a program for a minute at most.
pub fn run_as_a_user(words: &[&str]) -> Result<()> {
    become_a_user()?;
    // ITIMER_REAL once, which an exec leaves; SIGALRM ends the program.
    let minute = [0_u64, 0, 60, 0];
    errno(call(libc::SYS_setitimer, [0, address(&minute), 0, 0, 0]))?;
    let (program, arguments) = words.split_first().ok_or("a program")?;
    Err(Command::new(program).args(arguments).exec().into())
}

/// Makes this process that of a user without any other: locked memory is counted by user, and 8 MiB are all
/// that one has.
fn become_a_user() -> Result<()> {
    let number = 100_000 + std::process::id() % 100_000;
    let (uid, gid) = (Uid::from_raw(number), Gid::from_raw(number));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

/// Builds a program against libxdp.
pub fn build(lab: &Lab, source: &str) -> Result<PathBuf> {
    let program = lab.path(source);
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "libxdp"])
        .output();
    let flags = flags.ok().filter(|output| output.status.success());
    let flags = flags.ok_or_else(|| Skip::new("needs pkg-config and libxdp-dev"))?;
    let flags = String::from_utf8(flags.stdout)?;
    let source = format!("{}/tests/libxdp/{source}.c", env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", &source, "-o"])
        .arg(&program)
        .args(flags.split_whitespace())
        .status();
    let built = built.map_err(|error| Skip::new(format!("needs cc: {error}")))?;
    if !built.success() {
        return Err(format!("{source} does not build").into());
    }
    std::fs::set_permissions(&lab.directory, std::fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

/// `ETH_P_802_EX1`, a protocol for experiments, and a frame of it.
const PROTOCOL: u16 = 0x88b5;

fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 0, 0xb];
    frame.extend(PROTOCOL.to_be_bytes());
    frame.extend([0x5a; 50]);
    frame
}

/// A socket that sends and receives such frames at the peer.
fn peer(lab: &Lab) -> Result<OwnedFd> {
    let options = PacketSocket::on(lab.peer.index()?).protocol(PROTOCOL);
    let socket = OwnedFd::from(lab.at_peer(|| options.open())?);
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(50)))?;
    Ok(socket)
}

fn errno(result: i64) -> Result<(), Errno> {
    if result < 0 {
        Err(Errno::from_raw_os_error(-result as i32))
    } else {
        Ok(())
    }
}

/// Sends frames until as many have come back, from the address to which they were sent.
fn bounce(peer: &OwnedFd, count: u32) -> Result<()> {
    let mut returned = 0;
    let mut end = Limit::new(Duration::from_secs(30));
    while returned < count && !end.is_over() {
        send(peer, &frame(), SendFlags::empty())?;
        let mut buffer = [0; 128];
        while let Ok((64, _)) = recv(peer, &mut buffer[..], RecvFlags::empty()) {
            let ours = buffer[..6] == frame()[6..12] && buffer[6..12] == frame()[..6];
            returned += u32::from(ours);
            if ours {
                break;
            }
        }
    }
    if returned < count {
        return Err(format!("{returned} of {count} frames came back").into());
    }
    Ok(())
}

fn forward(lab: &Lab, wrapper: &[&str]) -> Result<()> {
    forward_granted(lab, grant(), wrapper)
}

fn forward_granted(lab: &Lab, grant: DeviceGrant, wrapper: &[&str]) -> Result<()> {
    let program = build(lab, "l2fwd")?;
    let peer = peer(lab)?;
    let scene = format!("run_as_a_user {} wan0 0 100 copy", program.display());
    let mut counts = BTreeMap::new();
    at_broker(lab, || {
        let mut supervised = supervise(&scene, grant, wrapper)?;
        assert_eq!(supervised.line()?, "ready");
        let status = std::fs::read_to_string(format!("/proc/{}/status", supervised.child.id()))?;
        for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(status.contains(line), "{line} in {status}");
        }
        assert!(!status.contains("Uid:\t0"), "{status}");
        assert!(!lab_programs()?.is_empty(), "it is attached");
        bounce(&peer, 100)?;
        assert_eq!(supervised.lines()?, ["forwarded 100"]);
        supervised.wait_for_end()?;
        for decision in supervised.decisions() {
            let key = (decision.call, format!("{:?}", decision.outcome));
            let entry: &mut (u32, Duration) = counts.entry(key).or_default();
            entry.0 += 1;
            entry.1 += decision.took;
        }
        Ok(())
    })?;
    for ((call, outcome), (count, took)) in counts {
        println!("call {call}: {count} {outcome}, mean {:?}", took / count);
    }
    check_clean(lab)
}

fn lab_programs() -> Result<Vec<String>> {
    let device = xsk::Device::lookup("wan0")?;
    Ok(device.programs.iter().map(ToString::to_string).collect())
}

fn a_libxdp_program_forwards_without_privilege() -> Result<()> {
    forward(&Lab::new(1)?, &[])
}

fn a_libxdp_program_works_in_another_namespace() -> Result<()> {
    forward(&Lab::new(1)?, &["unshare", "--net"])
}

fn a_libxdp_program_forwards_on_a_device_granted_by_another_name() -> Result<()> {
    for (name, wrapper) in [
        ("enp0s31f6np0".to_owned(), &[][..]),
        ("x".repeat(100), &[]),
        ("x".repeat(100), &["unshare", "--net"]),
    ] {
        let lab = Lab::new(1)?;
        lab.namespace
            .ip(&format!("link property add dev wan0 altname {name}"))?;
        let grant = DeviceGrant {
            device: name,
            ..grant()
        };
        forward_granted(&lab, grant, wrapper)?;
    }
    Ok(())
}

fn a_libxdp_program_opens_two_queues() -> Result<()> {
    let lab = Lab::new(2)?;
    let program = build(&lab, "two_queues")?;
    let scene = format!("run_as_a_user {} wan0", program.display());
    at_broker(&lab, || {
        let grant = DeviceGrant {
            queues: vec![0..=1],
            ..grant()
        };
        // libxdp locks a directory of root's, which it makes where it can.
        let script = "mount -t tmpfs none /run && mkdir /run/xdp && exec \"$0\"";
        let wrapper = ["unshare", "--mount", "sh", "-c", script];
        let mut supervised = supervise(&scene, grant, &wrapper)?;
        assert_eq!(supervised.lines()?, ["queue 0", "queue 1"]);
        supervised.wait_for_end()
    })?;
    check_clean(&lab)
}

/// Attaches by a link, without libxdp.
fn an_example_of_the_library_receives() -> Result<()> {
    let lab = Lab::new(1)?;
    let example = std::env::current_exe()?.with_file_name("../examples/rxdrop");
    let program = lab.path("rxdrop");
    std::fs::copy(example, &program)
        .map_err(|_| Skip::new("needs `cargo build -p xsk --example rxdrop`"))?;
    std::fs::set_permissions(&lab.directory, std::fs::Permissions::from_mode(0o755))?;
    let peer = peer(&lab)?;
    let scene = format!("run_as_a_user {} wan0", program.display());
    at_broker(&lab, || {
        let mut supervised = supervise(&scene, grant(), &[])?;
        let mode = supervised.line()?;
        println!("{mode}");
        for _ in 0..100 {
            send(&peer, &frame(), SendFlags::empty())?;
        }
        loop {
            let line = supervised.line()?;
            println!("{line}");
            if line.ends_with(" bytes/s") && !line.starts_with("0 ") {
                return Ok(());
            }
            if line.is_empty() {
                return Err("it ended without a packet".into());
            }
            send(&peer, &frame(), SendFlags::empty())?;
        }
    })?;
    let clean = || lab.programs().is_empty();
    wait_until("its program is detached", clean)
}

fn a_killed_program_leaves_nothing() -> Result<()> {
    let lab = Lab::new(1)?;
    let program = build(&lab, "l2fwd")?;
    let scene = format!("run_as_a_user {} wan0 0 100 copy", program.display());
    at_broker(&lab, || {
        let mut supervised = supervise(&scene, grant(), &[])?;
        assert_eq!(supervised.line()?, "ready");
        assert!(!lab_programs()?.is_empty(), "it is attached");
        let ids = program_ids()?;
        supervised.child.kill()?;
        supervised.wait_for_end()?;
        drop(supervised);
        wait_until("the programs are gone", || {
            ids.iter().all(|&id| !exists(id))
        })
    })?;
    check_clean(&lab)
}

/// In the middle of a call too: libxdp makes them for some tens of milliseconds.
fn a_program_killed_at_any_time_leaves_nothing() -> Result<()> {
    let lab = Lab::new(1)?;
    let program = build(&lab, "l2fwd")?;
    let scene = format!("run_as_a_user {} wan0 0 100 copy", program.display());
    for delay in 0..30 {
        at_broker(&lab, || {
            let mut supervised = supervise(&scene, grant(), &[])?;
            std::thread::sleep(Duration::from_millis(4 * delay));
            supervised.child.kill()?;
            supervised.child.wait()?;
            supervised.wait_for_end()?;
            drop(supervised);
            wait_until("the program is gone", || {
                lab_programs().is_ok_and(|programs| programs.is_empty())
            })
        })?;
    }
    Ok(())
}

/// Ids of the programs on the device.
fn program_ids() -> Result<Vec<u32>> {
    let link = hostnet::rtnetlink::Rtnetlink::open()?.link("wan0")?;
    let programs = link.xdp_programs;
    Ok([programs.driver, programs.generic]
        .into_iter()
        .flatten()
        .collect())
}

const PROG_GET_FD_BY_ID: u64 = 13;

fn exists(program: u32) -> bool {
    let fd = bpf(PROG_GET_FD_BY_ID, &words(&[program, 0, 0]));
    fd.map(own).is_ok()
}

// --- Raw calls ----------------------------------------------------------------------

fn bpf(command: u64, attr: &[u8]) -> Result<i32, Errno> {
    let args = [command, address(attr), attr.len() as u64, 0, 0];
    let result = call(libc::SYS_bpf, args);
    errno(result).map(|()| result as i32)
}

fn own(fd: i32) -> OwnedFd {
    // SAFETY: needed to own it: a call has just made it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub fn xskmap() -> Result<OwnedFd, Errno> {
    bpf(0, &words(&[17, 4, 4, 1, 0])).map(own)
}

/// libbpf's `xsk_load_xdp_prog`.
pub fn redirect(map: &OwnedFd) -> [u64; 6] {
    let map = (map.as_raw_fd() as u64) << 32;
    [
        0x0010_1261,
        0x1118 | map,
        0,
        0x0000_0002_0000_03b7,
        0x0000_0033_0000_0085,
        0x95,
    ]
}

pub fn load(kind: u32, instructions: &[u64]) -> Result<OwnedFd, Errno> {
    let license = c"GPL";
    let mut attr = words(&[kind, instructions.len() as u32]);
    attr.extend(address(instructions).to_ne_bytes());
    attr.extend((license.as_ptr().expose_provenance() as u64).to_ne_bytes());
    attr.resize(72, 0);
    bpf(5, &attr).map(own)
}

pub fn link(program: &OwnedFd, ifindex: u32) -> Result<OwnedFd, Errno> {
    let program = program.as_raw_fd() as u32;
    bpf(28, &words(&[program, ifindex, 37, 0])).map(own)
}

pub fn index(device: &str) -> Result<u32> {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    Ok(name_to_index(&socket, device)?)
}

/// An AF_XDP socket with all but its address.
pub fn xdp_socket(memory: &[u8]) -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::XDP, SocketType::RAW, None)?;
    register(&socket, memory)?;
    Ok(socket)
}

/// Gives a socket a UMEM and rings.
pub fn register(socket: &OwnedFd, memory: &[u8]) -> Result<(), Errno> {
    let umem = XdpUmemReg {
        addr: address(memory),
        len: memory.len() as u64,
        chunk_size: 2048,
        headroom: 0,
        flags: rustix::net::xdp::XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(socket, umem)?;
    sockopt::set_xdp_umem_fill_ring_size(socket, 4)?;
    sockopt::set_xdp_umem_completion_ring_size(socket, 4)?;
    sockopt::set_xdp_rx_ring_size(socket, 4)
}

/// Memory for a UMEM: two pages, the first part of which is not used up to the boundary.
pub fn memory() -> (Vec<u8>, std::ops::Range<usize>) {
    let memory = vec![0; 3 * 4096];
    let skip = memory.as_ptr().align_offset(4096);
    (memory, skip..skip + 8192)
}

pub fn bind_xdp(socket: i32, bytes: &[u8]) -> Result<(), Errno> {
    let args = [socket as u64, address(bytes), bytes.len() as u64, 0, 0];
    errno(call(libc::SYS_bind, args))
}

pub const XDP_COPY: u32 = 2;
const XDP_ZEROCOPY: u32 = 4;

pub fn sockaddr(flags: u32, ifindex: u32, queue: u32) -> Vec<u8> {
    words(&[libc::AF_XDP as u32 | flags << 16, ifindex, queue, 0])
}

/// `RTM_SETLINK` that attaches a program.
fn set_link(ifindex: u32, program: i32) -> Vec<u8> {
    let mut message = words(&[44, 0x0005_0013, 1, 0, 0, ifindex, 0, 0]);
    message.extend(words(&[0x802b_000c, 8 | 1 << 16, program as u32]));
    message
}

fn netlink() -> Result<OwnedFd, Errno> {
    socket(AddressFamily::NETLINK, SocketType::RAW, None)
}

/// The error of an acknowledgement.
fn acknowledgement(socket: &OwnedFd) -> Result<i32> {
    let mut buffer = [0; 4096];
    let (len, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
    assert!(len >= 20);
    Ok(i32::from_ne_bytes(buffer[16..20].try_into()?))
}

// --- Refusals -----------------------------------------------------------------------

fn what_is_not_granted_is_refused() -> Result<()> {
    let lab = Lab::new(8)?;
    at_broker(&lab, || {
        // Another's program and map.
        let map = xskmap()?;
        let program = load(6, &redirect(&map))?;
        let link = link(&program, index("wan0")?)?;
        let ids = [object_id(&program)?, object_id(&map)?];
        let before = lab_programs()?;
        let scene = format!("af_xdp_refusals {} {}", ids[0], ids[1]);
        let mut supervised = supervise(&scene, grant(), &[])?;
        supervised.lines()?;
        supervised.wait_for_end()?;
        assert_eq!(lab_programs()?, before);
        drop(link);
        wait_until("the link is gone", || {
            lab_programs().is_ok_and(|programs| programs.is_empty())
        })
    })?;
    check_clean(&lab)
}

/// The id of a program or map.
fn object_id(object: &OwnedFd) -> Result<u32> {
    Ok(info(object)?[1])
}

/// Scene: asks for objects and devices that are not granted.
pub fn refusals(ids: &[&str]) -> Result<()> {
    let foreign = [(PROG_GET_FD_BY_ID, ids[0]), (14, ids[1])];
    become_a_user()?;
    let (wan, lo) = (index("wan0")?, index("lo")?);
    let map = xskmap()?;
    let program = load(6, &redirect(&map))?;
    // Other devices.
    assert_eq!(link(&program, lo).err(), Some(Errno::PERM));
    let socket = netlink()?;
    let args = |message: &[u8]| {
        let (message, len) = (address(message), message.len() as u64);
        [socket.as_raw_fd() as u64, message, len, 0, 0]
    };
    let message = set_link(lo, program.as_raw_fd());
    let sent = call(libc::SYS_sendto, args(&message));
    assert_eq!(sent, -i64::from(libc::EPERM));
    // By other calls the kernel decides, by the caller's rights.
    for attempt in [
        set_link(wan, program.as_raw_fd()),
        set_link(wan, -1),
        add_link(),
    ] {
        rustix::io::write(&socket, &attempt)?;
        assert_eq!(acknowledgement(&socket)?, -libc::EPERM);
        let kernel = SocketAddrNetlink::new(0, 0);
        let data = [std::io::IoSlice::new(&attempt)];
        let mut none = rustix::net::SendAncillaryBuffer::default();
        let flags = SendFlags::empty();
        rustix::net::sendmsg_addr(&socket, &kernel, &data, &mut none, flags)?;
        assert_eq!(acknowledgement(&socket)?, -libc::EPERM);
    }
    let sent = call(libc::SYS_sendto, args(&add_link()));
    assert_eq!(sent, i64::try_from(add_link().len())?, "left to the kernel");
    assert_eq!(acknowledgement(&socket)?, -libc::EPERM);
    // A device where another has a program, which stays.
    assert_eq!(link(&program, wan).err(), Some(Errno::BUSY));
    let sent = call(libc::SYS_sendto, args(&set_link(wan, program.as_raw_fd())));
    assert_eq!(sent, -i64::from(libc::EBUSY));
    let sent = call(libc::SYS_sendto, args(&set_link(wan, -1)));
    assert_eq!(sent, -i64::from(libc::EPERM));
    // A program by the kernel's own means: the stand-in is none of type XDP.
    assert_ne!(
        bpf(8, &words(&[wan, program.as_raw_fd() as u32, 37, 0])),
        Ok(0)
    );
    // Other programs, maps and their ids.
    assert_eq!(load(6, &[0x2_0000_00b7, 0x95]).err(), Some(Errno::PERM));
    assert_eq!(load(1, &[0x1_0000_00b7, 0x95]).err(), Some(Errno::PERM));
    assert_eq!(
        load(9, &[0xb7, 0x95]).err(),
        Some(Errno::PERM),
        "CGROUP_SOCK"
    );
    assert_eq!(bpf(0, &words(&[1, 4, 4, 1, 0])), Err(Errno::PERM), "a hash");
    for (command, id) in foreign {
        let id = id.parse()?;
        assert_eq!(bpf(command, &words(&[id])), Err(Errno::PERM), "{command}");
        assert!(bpf(command - 2, &words(&[0, 0])).is_err(), "the next id");
    }
    // Other queues and modes.
    let (memory, part) = memory();
    let xdp = xdp_socket(&memory[part])?;
    for (address, expected) in [
        (sockaddr(XDP_COPY, wan, 1), Errno::PERM),
        (sockaddr(XDP_COPY, lo, 0), Errno::PERM),
        (sockaddr(XDP_ZEROCOPY, wan, 0), Errno::PERM),
        (sockaddr(XDP_COPY, 999_999, 0), Errno::NODEV),
        (sockaddr(0x8000, wan, 0), Errno::INVAL),
    ] {
        assert_eq!(bind_xdp(xdp.as_raw_fd(), &address), Err(expected));
    }
    // The kernel itself refuses, whoever has the socket.
    let device = set_int(&xdp, libc::SO_BINDTOIFINDEX, wan.cast_signed());
    assert_eq!(device, Err(Errno::PERM));
    bind_xdp(xdp.as_raw_fd(), &sockaddr(XDP_COPY, wan, 0))?;
    Ok(())
}

/// `RTM_NEWLINK` of a dummy.
fn add_link() -> Vec<u8> {
    let mut message = words(&[48, 16 | 0x605 << 16, 2, 0, 0, 0, 0, 0]);
    message.extend(words(&[16 | 18 << 16, 9 | 1 << 16]));
    message.extend(*b"dummy\0\0\0");
    message
}

fn set_int(socket: &OwnedFd, option: i32, value: i32) -> Result<(), Errno> {
    let args = [
        socket.as_raw_fd() as u64,
        libc::SOL_SOCKET as u64,
        option as u64,
        address(&value),
        4,
    ];
    errno(call(libc::SYS_setsockopt, args))
}

fn get_int(socket: &OwnedFd, option: i32) -> Result<i32, Errno> {
    let (mut value, mut len) = (0_i32, 4_u32);
    let args = [
        socket.as_raw_fd() as u64,
        libc::SOL_SOCKET as u64,
        option as u64,
        (&raw mut value).expose_provenance() as u64,
        (&raw mut len).expose_provenance() as u64,
    ];
    errno(call(libc::SYS_getsockopt, args))?;
    Ok(value)
}

fn busy_polling_is_clamped() -> Result<()> {
    play_attack(1, "af_xdp_busy_poll")?;
    let lab = Lab::new(1)?;
    at_broker(&lab, || {
        let grant = DeviceGrant {
            busy_poll: None,
            ..grant()
        };
        let mut supervised = supervise("af_xdp_no_busy_poll", grant, &[])?;
        supervised.lines().map(drop)
    })
}

/// Scene: wants more than it may have.
pub fn busy_poll(_: &[&str]) -> Result<()> {
    become_a_user()?;
    let socket = socket(AddressFamily::XDP, SocketType::RAW, None)?;
    set_int(&socket, libc::SO_BUSY_POLL, 1_000_000)?;
    set_int(&socket, libc::SO_PREFER_BUSY_POLL, 1)?;
    // No call returns its value; the kernel takes no more than 16 bits.
    set_int(&socket, libc::SO_BUSY_POLL_BUDGET, 1_000_000)?;
    assert_eq!(get_int(&socket, libc::SO_BUSY_POLL), Ok(20));
    assert_eq!(get_int(&socket, libc::SO_PREFER_BUSY_POLL), Ok(1));
    // Another socket's is the kernel's to judge.
    let other = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let refused = set_int(&other, libc::SO_PREFER_BUSY_POLL, 1);
    assert_eq!(refused, Err(Errno::PERM));
    Ok(())
}

/// Scene: asks for busy polling without a grant.
pub fn no_busy_poll(_: &[&str]) -> Result<()> {
    become_a_user()?;
    let socket = socket(AddressFamily::XDP, SocketType::RAW, None)?;
    let refused = set_int(&socket, libc::SO_PREFER_BUSY_POLL, 1);
    assert_eq!(refused, Err(Errno::PERM));
    Ok(())
}

fn queues_are_lent_before_they_are_bound() -> Result<()> {
    let lab = Lab::new(8)?;
    at_broker(&lab, || {
        let grant = DeviceGrant {
            queues: vec![3..=7],
            tx: false,
            memory: 8192,
            ..grant()
        };
        let (mut supervised, lent) = supervise_lending("af_xdp_lent", grant, &[])?;
        supervised.lines()?;
        let lent = lent.0.lock().expect("no panic");
        assert_eq!(lent.first(), Some(&("wan0".to_owned(), 3)));
        assert!(lent.iter().all(|(_, queue)| *queue != ANOTHERS));
        Ok(())
    })
}

/// Scene: binds a queue of its own and one of another tenant, and more than it may have.
pub fn lent(_: &[&str]) -> Result<()> {
    become_a_user()?;
    let wan = index("wan0")?;
    let (memory, part) = memory();
    let address = |queue| sockaddr(XDP_COPY, wan, queue);
    let socket = xdp_socket(&memory[part.clone()])?;
    let anothers = bind_xdp(socket.as_raw_fd(), &address(ANOTHERS));
    assert_eq!(anothers, Err(Errno::BUSY));
    bind_xdp(socket.as_raw_fd(), &address(3))?;
    let socket = xdp_socket(&memory[part])?;
    sockopt::set_xdp_tx_ring_size(&socket, 4)?;
    let sends = bind_xdp(socket.as_raw_fd(), &address(4));
    assert_eq!(sends, Err(Errno::PERM));
    let large = vec![0; 5 * 4096];
    let skip = large.as_ptr().align_offset(4096);
    let socket = xdp_socket(&large[skip..skip + 4 * 4096])?;
    let too_large = bind_xdp(socket.as_raw_fd(), &address(4));
    // A kernel without CONFIG_XDP_SOCKETS_DIAG does not tell.
    if xdp_sockets()?.is_some() {
        assert_eq!(too_large, Err(Errno::NOBUFS));
    }
    Ok(())
}

fn a_link_that_someone_keeps_is_detached() -> Result<()> {
    let lab = Lab::new(1)?;
    at_broker(&lab, || {
        let mut supervised = supervise("af_xdp_link", grant(), &[])?;
        let fd = supervised.line()?.parse()?;
        assert!(!lab_programs()?.is_empty(), "it is attached");
        let child = rustix::process::Pid::from_child(&supervised.child);
        let pidfd = pidfd_open(child, PidfdFlags::empty())?;
        let kept = pidfd_getfd(pidfd, fd, PidfdGetfdFlags::empty())?;
        drop(supervised);
        wait_until("the link is detached", || {
            lab_programs().is_ok_and(|programs| programs.is_empty())
        })?;
        drop(kept);
        Ok(())
    })
}

/// Scene: attaches by a link and waits.
pub fn keep_link(_: &[&str]) -> Result<()> {
    become_a_user()?;
    let map = xskmap()?;
    let program = load(6, &redirect(&map))?;
    let link = link(&program, index("wan0")?)?;
    println!("{}", link.as_raw_fd());
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

// --- Attacks ------------------------------------------------------------------------

/// Ends a loop, also when the attack panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Changes a word all the time while `attack` runs.
fn flipping(word: &AtomicU32, values: [u32; 2], attack: impl FnOnce() -> Result<()>) -> Result<()> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                word.store(values[0], Relaxed);
                word.store(values[1], Relaxed);
            }
        });
        let _stop = Stop(&stop);
        attack()
    })
}

fn a_flipped_address_binds_no_other_queue() -> Result<()> {
    play_attack(2, "af_xdp_flip_address")
}

/// Scene: another thread changes the queue of an address.
pub fn flip_address(_: &[&str]) -> Result<()> {
    become_a_user()?;
    let wan = index("wan0")?;
    let bytes = [
        AtomicU32::new(libc::AF_XDP as u32 | XDP_COPY << 16),
        AtomicU32::new(wan),
        AtomicU32::new(0),
        AtomicU32::new(0),
    ];
    let (memory, part) = memory();
    let [mut bound, mut refused] = [0; 2];
    let mut tries = Tries::at_least(TRIES);
    flipping(&bytes[2], [0, 1], || {
        while tries.again(bound.min(refused)) {
            let socket = xdp_socket(&memory[part.clone()])?;
            let args = [socket.as_raw_fd() as u64, address(&bytes), 16, 0, 0];
            match errno(call(libc::SYS_bind, args)) {
                Ok(()) => bound += 1,
                Err(Errno::PERM) => refused += 1,
                Err(Errno::BUSY) => {}
                // So many have failed a moment ago, and are still looked at.
                Err(Errno::NOBUFS) => std::thread::sleep(Duration::from_millis(1)),
                Err(errno) => return Err(errno.into()),
            }
            if bound % 64 == 1 {
                check_queues()?;
            }
        }
        Ok(())
    })?;
    println!("{bound} bound, {refused} refused");
    tries.check(bound.min(refused))
}

/// Checks that no socket is bound to any queue but 0.
fn check_queues() -> Result<()> {
    let sockets = xdp_sockets()?.unwrap_or_default();
    assert!(
        sockets.iter().all(|socket| socket.queue == 0),
        "{sockets:?}"
    );
    Ok(())
}

fn a_flipped_descriptor_binds_no_other_queue() -> Result<()> {
    play_attack(2, "af_xdp_flip_descriptor")
}

/// Scene: another thread puts an AF_XDP socket in the place of another, whose bind is the kernel's.
pub fn flip_descriptor(_: &[&str]) -> Result<()> {
    become_a_user()?;
    let wan = index("wan0")?;
    let (memory, part) = memory();
    let xdp = xdp_socket(&memory[part])?;
    let other = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let place = own(rustix::io::fcntl_dupfd_cloexec(&other, 100)?.as_raw_fd());
    let (number, stop) = (AtomicI32::new(place.as_raw_fd()), AtomicBool::new(false));
    std::mem::forget(rustix::io::dup(&other)?);
    let bytes = sockaddr(XDP_COPY, wan, 1);
    // The kernel's word for the address of another family, and for the socket that was put there.
    let [other_family, bound] = [libc::EAFNOSUPPORT, libc::EINVAL].map(|errno| -i64::from(errno));
    let mut counts = BTreeMap::from([(other_family, 0), (bound, 0)]);
    let rarer = |counts: &BTreeMap<_, u64>| counts[&other_family].min(counts[&bound]);
    let mut tries = Tries::at_least(TRIES);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let number = number.load(Relaxed) as u64;
            while !stop.load(Relaxed) {
                for from in [&xdp, &other] {
                    let args = [from.as_raw_fd() as u64, number, 0, 0, 0];
                    call(libc::SYS_dup3, args);
                }
            }
        });
        while tries.again(rarer(&counts)) {
            let args = [number.load(Relaxed) as u64, address(&bytes[..]), 16, 0, 0];
            *counts.entry(call(libc::SYS_bind, args)).or_default() += 1;
        }
        stop.store(true, Relaxed);
    });
    println!("{counts:?}");
    assert!(!counts.contains_key(&0), "{counts:?}");
    tries.check(rarer(&counts))?;
    check_queues()
}

fn a_flipped_link_attaches_to_no_other_device() -> Result<()> {
    play_attack(1, "af_xdp_flip_link")
}

/// Scene: another thread changes the device of a link.
pub fn flip_link(_: &[&str]) -> Result<()> {
    become_a_user()?;
    let (wan, lo) = (index("wan0")?, index("lo")?);
    let map = xskmap()?;
    let program = load(6, &redirect(&map))?;
    let attr = [
        AtomicU32::new(program.as_raw_fd() as u32),
        AtomicU32::new(wan),
        AtomicU32::new(37),
        AtomicU32::new(0),
    ];
    let [mut attached, mut refused] = [0; 2];
    let mut tries = Tries::at_least(TRIES);
    flipping(&attr[1], [wan, lo], || {
        while tries.again(attached.min(refused)) {
            match errno_or(call(libc::SYS_bpf, [28, address(&attr), 16, 0, 0])) {
                Ok(fd) => {
                    attached += 1;
                    assert_eq!(link_device(&own(fd))?, wan);
                }
                Err(Errno::PERM) => refused += 1,
                // The kernel detaches a closed link later.
                Err(Errno::BUSY) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    })?;
    println!("{attached} attached, {refused} refused");
    tries.check(attached.min(refused))
}

fn errno_or(result: i64) -> Result<i32, Errno> {
    errno(result).map(|()| result as i32)
}

/// The device of a link.
fn link_device(link: &OwnedFd) -> Result<u32> {
    Ok(info(link)?[4])
}

/// The beginning of an object's information.
fn info(object: &OwnedFd) -> Result<[u32; 8]> {
    let mut info = [0_u32; 8];
    let mut attr = words(&[object.as_raw_fd() as u32, 32]);
    attr.extend(((&raw mut info).expose_provenance() as u64).to_ne_bytes());
    bpf(15, &attr)?;
    Ok(info)
}

fn a_flipped_message_attaches_to_no_other_device() -> Result<()> {
    play_attack(1, "af_xdp_flip_message")
}

/// Scene: another thread changes the device of a netlink message.
pub fn flip_message(_: &[&str]) -> Result<()> {
    become_a_user()?;
    let (wan, lo) = (index("wan0")?, index("lo")?);
    let map = xskmap()?;
    let program = load(6, &redirect(&map))?;
    let socket = netlink()?;
    let message: Vec<AtomicU32> = set_link(wan, program.as_raw_fd())
        .chunks_exact(4)
        .map(|word| AtomicU32::new(u32::from_ne_bytes(word.try_into().expect("4 bytes"))))
        .collect();
    let [mut sent, mut refused] = [0; 2];
    let mut tries = Tries::at_least(TRIES);
    flipping(&message[5], [wan, lo], || {
        while tries.again(sent.min(refused)) {
            let args = [socket.as_raw_fd() as u64, address(&message[..]), 44, 0, 0];
            match call(libc::SYS_sendto, args) {
                44 => {
                    assert_eq!(acknowledgement(&socket)?, 0);
                    sent += 1;
                }
                result => {
                    assert_eq!(result, -i64::from(libc::EPERM));
                    refused += 1;
                }
            }
        }
        Ok(())
    })?;
    println!("{sent} sent, {refused} refused");
    tries.check(sent.min(refused))?;
    assert!(xsk::Device::lookup("lo")?.programs.is_empty());
    assert!(!lab_programs()?.is_empty());
    Ok(())
}

fn hostile_bytes_are_refused() -> Result<()> {
    play_attack(1, "af_xdp_hostile")
}

/// Scene: sizes, pointers and counts that are too large, unmapped or random.
pub fn hostile(_: &[&str]) -> Result<()> {
    become_a_user()?;
    let ring = call(
        libc::SYS_io_uring_setup,
        [8, address(&[0_u64; 15]), 0, 0, 0],
    );
    assert_eq!(ring, -i64::from(libc::EPERM), "its calls are not notified");
    let wan = index("wan0")?;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let page = vec![0xff_u8; 5000];
    for command in [0, 5, 13, 14, 15, 18, 19, 28] {
        for len in [0, 1, 4, 16, 200, 4096, 4097, u64::MAX] {
            let result = call(libc::SYS_bpf, [command, address(&page[..]), len, 0, 0]);
            assert!(result < 0, "{command} of {len}: {result}");
            let result = call(libc::SYS_bpf, [command, 8, len, 0, 0]);
            assert!(result < 0, "{command} at 8 of {len}: {result}");
        }
        for _ in 0..200 {
            let attr: Vec<u8> = (0..20).flat_map(|_| next().to_ne_bytes()).collect();
            let result = call(libc::SYS_bpf, [command, address(&attr[..]), 160, 0, 0]);
            assert!(result < 0, "{command}: {result}");
        }
    }
    let socket = netlink()?;
    let number = socket.as_raw_fd() as u64;
    for len in 32..=44_u64 {
        let mut message = set_link(wan, 1000);
        for at in 0..message.len() {
            let was = message[at];
            message[at] = next() as u8;
            call(
                libc::SYS_sendto,
                [number, address(&message[..]), len, 64, 0],
            );
            message[at] = was;
        }
    }
    call(libc::SYS_sendto, [number, 8, 44, 0, 0]);
    call(
        libc::SYS_sendto,
        [number, address(&page[..]), u64::MAX, 0, 0],
    );
    let xdp = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None)?;
    let xdp = xdp.as_raw_fd() as u64;
    for len in [16, 17, 128, 0x7fff_ffff, 0xffff_ffff, u64::MAX] {
        let result = call(libc::SYS_bind, [xdp, address(&page[..]), len, 0, 0]);
        assert!(result < 0);
        let result = call(libc::SYS_bind, [xdp, 8, len, 0, 0]);
        assert!(result < 0);
    }
    Ok(())
}

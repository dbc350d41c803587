//! A tenant that attacks, as an ordinary user without capabilities. It prints a line for
//! each refusal, `bad: …` for an attack that worked, and `done`.
#![allow(unsafe_code)] // mappings of rings and memory, raw ioctl(2) and bpf(2).

use crate::roles::{ROLE, request, wanted};
use crate::supervised::{Result, address, become_root_of_a_namespace, call};
use broker::message::{self, connect_to, send_text};
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpRingOffset,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, send, socket_with,
    sockopt,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal};
use std::ffi::CString;
use std::fmt::Display;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Slots of each ring, and bytes of the memory, as `roles::request` asks for.
const SLOTS: usize = 64;
const BYTES: usize = 256 * 2048;

/// Plays a part.
pub fn play(arguments: &[String]) -> Result<()> {
    let (part, rest) = arguments.split_first().ok_or("a part")?;
    match part.as_str() {
        "rings" => rings(rest)?,
        "socket" => socket(rest)?,
        "memory" => memory(rest)?,
        "reach" => reach(rest)?,
        "take" => return take_over(rest),
        "give" => return give(rest),
        "fly" => return fly(rest),
        "mapping" => return mapping(rest),
        "silent" => return silent(),
        "unread" => return unread(),
        "flood" => flood(rest)?,
        "listeners" => return listeners(rest),
        "broker" => return broker_of_ones_own(),
        "rooted" => return rooted(),
        "requests" => requests()?,
        "names" => names(rest)?,
        "churn" => return churn(rest),
        _ => return Err(format!("no part {part}").into()),
    }
    println!("done");
    linger();
    Ok(())
}

pub fn linger() {
    let told = wanted();
    while told.recv().is_ok() {}
}

fn must_fail<T, E: Display>(what: &str, result: std::result::Result<T, E>) {
    match result {
        Ok(_) => println!("bad: {what} worked"),
        Err(error) => println!("{what}: {error}"),
    }
}

fn may_work<T, E: Display>(what: &str, result: std::result::Result<T, E>) {
    match result {
        Ok(_) => println!("{what}: works"),
        Err(error) => println!("{what}: {error}"),
    }
}

pub fn broker_path() -> PathBuf {
    std::env::var_os("WEIR_BROKER").unwrap_or_default().into()
}

/// Asks for a socket; its descriptor and that of its memory.
fn take(arguments: &[String]) -> Result<(OwnedFd, OwnedFd)> {
    let broker = connect_to(&broker_path())?;
    message::send(broker.as_fd(), request(arguments)?.write()?.as_bytes(), &[])?;
    let (reply, fds) = reply(&broker)?;
    let mut fds = fds.into_iter();
    match (fds.next(), fds.next(), fds.next()) {
        (Some(socket), Some(memory), None) => {
            println!("ready");
            Ok((socket, memory))
        }
        _ => Err(String::from_utf8_lossy(&reply).into_owned().into()),
    }
}

/// Words of shared memory.
struct Words {
    start: *mut u32,
    len: usize,
}

impl Words {
    fn map(fd: &OwnedFd, len: usize, offset: u64) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: needed to have rings. The kernel chooses the place of a new mapping.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                fd,
                offset,
            )
        }?;
        Ok(Self {
            start: start.cast(),
            len,
        })
    }

    fn set(&self, at: usize, value: u32) {
        assert!(4 * at < self.len);
        // SAFETY: needed to reach into the mapping, which the assertion keeps it inside of.
        let word = unsafe { self.start.add(at) };
        // SAFETY: needed because the kernel reads it too. The mapping stays, and is writable.
        unsafe { word.write_volatile(value) };
    }

    fn unmap(self) -> Result<(), Errno> {
        // SAFETY: needed to tear it away. Nothing else points there.
        unsafe { munmap(self.start.cast(), self.len) }
    }
}

/// A ring, with words of each slot.
struct Ring {
    words: Words,
    offsets: XdpRingOffset,
    slot: usize,
}

impl Ring {
    fn map(socket: &OwnedFd, offsets: XdpRingOffset, slot: usize, at: u64) -> Result<Self, Errno> {
        let len = offsets.desc as usize + SLOTS * slot * 4;
        Ok(Self {
            words: Words::map(socket, len, at)?,
            offsets,
            slot,
        })
    }

    fn jump(&self, producer: u32, consumer: u32) {
        self.words.set(self.offsets.producer as usize / 4, producer);
        self.words.set(self.offsets.consumer as usize / 4, consumer);
    }

    /// Writes all slots with hostile addresses, lengths and options, beginning somewhere else each time.
    fn fill(&self, round: usize) {
        let len = BYTES as u64;
        let addresses = [
            0,
            1,
            2047,
            len - 2048,
            len - 1,
            len,
            len + 4096,
            1 << 32,
            1 << 40,
            (1 << 48) | 64,
            u64::MAX,
            u64::MAX - 2047,
            1 << 63,
        ];
        let lens = [64, 2048, 0, 1, 14, 2049, 65535, u32::MAX, 1 << 31];
        let options = [0, 0, 1, 2, u32::MAX, 0];
        for at in 0..SLOTS {
            let pick = at + round * 31;
            let address = addresses[pick % addresses.len()];
            let first = self.offsets.desc as usize / 4 + at * self.slot;
            self.words.set(first, address as u32);
            self.words.set(first + 1, (address >> 32) as u32);
            if self.slot == 4 {
                self.words.set(first + 2, lens[pick / 3 % lens.len()]);
                self.words.set(first + 3, options[pick / 7 % options.len()]);
            }
        }
    }
}

/// Indices that no honest ring has, from where it is.
const JUMPS: [(u32, u32); 10] = [
    (64, 0),
    (128, 0),
    (65, 0),
    (0x7fff_ffff, 0),
    (0x8000_0000, 0),
    (u32::MAX, 0),
    (0, u32::MAX),
    (0, 1),
    (0x8000_0000, 0x7fff_ffc0),
    (63, u32::MAX),
];

fn rings(arguments: &[String]) -> Result<()> {
    let (socket, memory) = take(arguments)?;
    let own = Words::map(&memory, BYTES, 0)?;
    for at in 0..BYTES / 4 {
        own.set(at, 0xa5a5_a5a5);
    }
    let offsets = sockopt::xdp_mmap_offsets(&socket)?;
    let rx = Ring::map(&socket, offsets.rx, 4, XDP_PGOFF_RX_RING)?;
    let tx = Ring::map(&socket, offsets.tx, 4, XDP_PGOFF_TX_RING)?;
    let fill = Ring::map(&socket, offsets.fr, 2, XDP_UMEM_PGOFF_FILL_RING)?;
    let completion = Ring::map(&socket, offsets.cr, 2, XDP_UMEM_PGOFF_COMPLETION_RING)?;
    let told = wanted();
    told.recv()?;
    for round in 0..20 {
        for (producer, consumer) in JUMPS {
            tx.fill(round);
            tx.jump(producer.wrapping_add(round as u32), consumer);
            completion.fill(round);
            completion.jump(consumer, producer);
            for _ in 0..3 {
                let _ = send(&socket, &[], SendFlags::DONTWAIT);
            }
            println!("going on");
        }
    }
    println!("sent");
    told.recv()?;
    let until = Instant::now() + Duration::from_secs(1);
    let mut round = 0;
    while Instant::now() < until {
        for (producer, consumer) in JUMPS {
            fill.fill(round);
            fill.jump(producer, consumer);
            rx.fill(round);
            rx.jump(consumer, producer);
            let _ = rustix::net::recv(&socket, &mut [0; 1][..], rustix::net::RecvFlags::DONTWAIT);
            std::thread::sleep(Duration::from_micros(200));
        }
        round += 1;
    }
    Ok(())
}

fn socket(arguments: &[String]) -> Result<()> {
    let (socket, memory) = take(arguments)?;
    let only_sends = arguments.get(2).is_some_and(|lease| lease == "tx");
    must_fail("an RX ring", sockopt::set_xdp_rx_ring_size(&socket, 64));
    must_fail("a TX ring", sockopt::set_xdp_tx_ring_size(&socket, 64));
    let again = sockopt::set_xdp_umem_fill_ring_size(&socket, 64);
    must_fail("a FILL ring", again);
    let again = sockopt::set_xdp_umem_completion_ring_size(&socket, 64);
    must_fail("a COMPLETION ring", again);
    let own = Words::map(&memory, BYTES, 0)?;
    let umem = XdpUmemReg {
        addr: own.start.expose_provenance() as u64,
        len: BYTES as u64,
        chunk_size: 2048,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    must_fail("a UMEM", sockopt::set_xdp_umem_reg(&socket, umem));
    let offsets = sockopt::xdp_mmap_offsets(&socket)?;
    if only_sends {
        let ring = Ring::map(&socket, offsets.rx, 4, XDP_PGOFF_RX_RING);
        must_fail("a mapping of an RX ring", ring.map(drop));
    } else {
        let ring = Ring::map(&socket, offsets.tx, 4, XDP_PGOFF_TX_RING);
        must_fail("a mapping of a TX ring", ring.map(drop));
        must_fail("sending", send(&socket, &[], SendFlags::DONTWAIT));
    }
    bind_again(&socket);
    change_host(&socket);
    own_socket(&socket);
    Ok(())
}

/// Indices of the devices of a lab, which this process does not see.
fn places() -> impl Iterator<Item = (u32, u32)> {
    (1..6).flat_map(|device| [(device, 0), (device, 1)])
}

fn bind_again(socket: &OwnedFd) {
    for (device, queue) in places() {
        for flags in [
            SocketAddrXdpFlags::empty(),
            SocketAddrXdpFlags::XDP_ZEROCOPY,
            SocketAddrXdpFlags::XDP_COPY,
        ] {
            let address = SocketAddrXdp::new(flags, device, queue);
            if bind(socket, &address).is_ok() {
                println!("bad: bound again to queue {queue} of device {device}");
            }
        }
    }
    let address = SocketAddrXdp::new(SocketAddrXdpFlags::empty(), 2, 1);
    must_fail("binding again", bind(socket, &address));
}

/// Changes to the host by a socket of its network namespace.
fn change_host(socket: &OwnedFd) {
    let mut request = [0_u8; 40];
    request[..4].copy_from_slice(b"wan0");
    for (what, number) in [
        ("taking the device down", libc::SIOCSIFFLAGS),
        ("its MTU", libc::SIOCSIFMTU),
        ("its address", libc::SIOCSIFADDR),
        ("its hardware address", libc::SIOCSIFHWADDR),
        ("its queues", libc::SIOCETHTOOL),
    ] {
        // For ethtool(8): ETHTOOL_SCHANNELS.
        let channels = [0x3d_u32, 0, 0, 0, 0, 0, 0, 0, 1];
        let mut request = request;
        if number == libc::SIOCETHTOOL {
            request[16..24].copy_from_slice(&address(&channels).to_ne_bytes());
        }
        let fd = socket.as_raw_fd() as u64;
        let done = call(libc::SYS_ioctl, [fd, number, address(&request), 0, 0]);
        must_fail(what, if done < 0 { Err(done) } else { Ok(()) });
    }
    for (what, name, value) in [
        ("preferring busy polling", 69, 1_i32),
        ("a mark", libc::SO_MARK, 7),
    ] {
        let fd = socket.as_raw_fd() as u64;
        let option = [fd, libc::SOL_SOCKET as u64, name as u64, address(&value), 4];
        let done = call(libc::SYS_setsockopt, option);
        must_fail(what, if done < 0 { Err(done) } else { Ok(()) });
    }
}

/// A socket of its own: none here, and one in namespaces of its own shares nothing but the memory.
fn own_socket(leased: &OwnedFd) {
    let open = || {
        socket_with(
            AddressFamily::XDP,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
    };
    must_fail("an AF_XDP socket", open());
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNET;
    if call(libc::SYS_unshare, [namespaces as u64, 0, 0, 0, 0]) < 0 {
        println!("namespaces of its own: none here");
        return;
    }
    change_host(leased);
    let Ok(own) = open() else {
        println!("bad: no AF_XDP socket in namespaces of its own");
        return;
    };
    let _ = sockopt::set_xdp_rx_ring_size(&own, 64);
    for (device, queue) in places().filter(|(device, _)| *device > 1) {
        let place = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, device, queue);
        let shared = SocketAddrXdpWithSharedUmem {
            addr: place,
            shared_umem_fd: leased.as_fd(),
        };
        if bind(&own, &shared).is_ok() {
            println!("bad: shares queue {queue} of device {device}");
        }
    }
}

fn memory(arguments: &[String]) -> Result<()> {
    let (_socket, memory) = take(arguments)?;
    let own = Words::map(&memory, BYTES, 0)?;
    own.set(0, 1);
    must_fail("truncating", ftruncate(&memory, 0));
    must_fail("growing", ftruncate(&memory, 1 << 30));
    must_fail("F_SEAL_WRITE", fcntl_add_seals(&memory, SealFlags::WRITE));
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    may_work("a hole", fallocate(&memory, holes, 0, BYTES as u64));
    must_fail(
        "allocating behind the end",
        fallocate(&memory, FallocateFlags::empty(), 0, 1 << 30),
    );
    for (what, advice) in [
        ("MADV_DONTNEED", Advice::LinuxDontNeed),
        ("MADV_REMOVE", Advice::LinuxRemove),
    ] {
        // SAFETY: needed to tear memory away. It is this process's, which reads none of it.
        let advised = unsafe { madvise(own.start.cast(), BYTES, advice) };
        may_work(what, advised);
    }
    own.unmap()?;
    may_work(
        "F_SEAL_WRITE without a mapping",
        fcntl_add_seals(&memory, SealFlags::WRITE),
    );
    drop(memory);
    println!("done");
    linger();
    Ok(())
}

fn reach(arguments: &[String]) -> Result<()> {
    let [broker, lab, programs, maps, links] = arguments else {
        return Err("BROKER LAB PROGRAMS MAPS LINKS".into());
    };
    for (what, command, ids) in [
        ("program", 13, programs),
        ("map", 14, maps),
        ("link", 30, links),
    ] {
        let mut worst = 0;
        for id in ids.split(',').filter(|id| !id.is_empty()) {
            let attr = [id.parse::<u32>()?, 0, 0];
            let done = call(libc::SYS_bpf, [command, address(&attr), 12, 0, 0]);
            if done >= 0 {
                println!("bad: {what} {id} is open");
            }
            worst = worst.min(done);
        }
        println!("the ids of a {what}: {worst}");
    }
    let path = |name: &str| format!("{lab}/{name}");
    for name in ["link", "map", "xsks", "program"] {
        let pin = CString::new(path(&format!("bpffs/weir/broker/wan0/{name}")))?;
        // `pathname`, `bpf_fd`, `file_flags`.
        let attr = [address(pin.as_c_str()), 0];
        let done = call(libc::SYS_bpf, [7, address(&attr), 16, 0, 0]);
        must_fail("a pin", if done < 0 { Err(done) } else { Ok(()) });
    }
    for name in [
        "bpffs",
        "state",
        "state/journal",
        "state/lock",
        "admin.sock",
        "metrics.sock",
    ] {
        let opened = std::fs::File::open(path(name));
        must_fail(name, opened);
        must_fail(name, std::fs::remove_file(path(name)));
    }
    must_fail("metrics", UnixStream::connect(path("metrics.sock")));
    must_fail(
        "its socket's file",
        std::fs::remove_file(path("broker.sock")),
    );
    for name in ["fd", "fdinfo", "mem", "environ", "maps", "cwd/.", "root/."] {
        let file = format!("/proc/{broker}/{name}");
        // A directory is only read entry by entry.
        let read =
            std::fs::read(&file)
                .err()
                .map_or(Ok(()), |error| match std::fs::read_dir(&file) {
                    Ok(_) => Ok(()),
                    Err(_) => Err(error),
                });
        must_fail(&file, read);
    }
    let number: i32 = broker.parse()?;
    let pid = Pid::from_raw(number).ok_or("a pid")?;
    must_fail("a signal", rustix::process::kill_process(pid, Signal::KILL));
    for (what, request) in [
        ("PTRACE_ATTACH", libc::PTRACE_ATTACH),
        ("PTRACE_SEIZE", libc::PTRACE_SEIZE),
    ] {
        let done = call(libc::SYS_ptrace, [request as u64, number as u64, 0, 0, 0]);
        must_fail(what, if done < 0 { Err(done) } else { Ok(()) });
    }
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    for fd in 0..20 {
        if rustix::process::pidfd_getfd(&pidfd, fd, PidfdGetfdFlags::empty()).is_ok() {
            println!("bad: the broker's descriptor {fd}");
        }
    }
    Ok(())
}

fn abstract_address(argument: Option<&String>) -> Result<SocketAddr> {
    let name = argument
        .and_then(|it| it.strip_prefix('@'))
        .ok_or("@NAME")?;
    Ok(SocketAddr::from_abstract_name(name)?)
}

fn take_over(arguments: &[String]) -> Result<()> {
    let listener = UnixListener::bind_addr(&abstract_address(arguments.first())?)?;
    println!("listening");
    let (connection, _) = listener.accept()?;
    let (_, fds) = message::receive(connection.as_fd(), 64)?;
    let what = if fds.len() == 1 { "has it" } else { "has none" };
    println!("{what}");
    linger();
    Ok(())
}

fn give(arguments: &[String]) -> Result<()> {
    let (socket, _memory) = take(arguments)?;
    let to = UnixStream::connect_addr(&abstract_address(arguments.get(2))?)?;
    message::send(to.as_fd(), b"x", &[socket.as_fd()])?;
    println!("done");
    Ok(())
}

fn fly(arguments: &[String]) -> Result<()> {
    let (socket, memory) = take(arguments)?;
    let (here, _there) = UnixStream::pair()?;
    message::send(here.as_fd(), b"x", &[socket.as_fd()])?;
    drop((socket, memory));
    println!("done");
    linger();
    Ok(())
}

fn mapping(arguments: &[String]) -> Result<()> {
    let (socket, memory) = take(arguments)?;
    let offsets = sockopt::xdp_mmap_offsets(&socket)?;
    let _ring = Ring::map(&socket, offsets.rx, 4, XDP_PGOFF_RX_RING)?;
    drop((socket, memory));
    println!("done");
    linger();
    Ok(())
}

fn connect(path: &PathBuf, kind: SocketType) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Holds connections to two of the sockets, and says nothing.
fn silent() -> Result<()> {
    let oci = PathBuf::from(std::env::var_os("WEIR_BROKER_OCI").unwrap_or_default());
    let mut open = Vec::new();
    for _ in 0..300 {
        open.push(connect(&broker_path(), SocketType::SEQPACKET)?);
        open.push(connect(&oci, SocketType::STREAM)?);
    }
    println!("ready");
    linger();
    Ok(())
}

/// Asks and asks, and reads no reply.
fn unread() -> Result<()> {
    let mut open = Vec::new();
    for _ in 0..300 {
        let socket = connect(&broker_path(), SocketType::SEQPACKET)?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while send(&socket, b"weir 2 what\n", flags).is_ok() {}
        open.push(socket);
    }
    println!("ready");
    linger();
    Ok(())
}

/// `[MILLISECONDS]`: connects and asks for nonsense all the time, with a pause after every four requests.
fn flood(arguments: &[String]) -> Result<()> {
    let pause = arguments.first().map_or(Ok(0), |pause| pause.parse())?;
    for _ in 0..4 {
        std::thread::spawn(move || {
            loop {
                let Ok(socket) = connect(&broker_path(), SocketType::SEQPACKET) else {
                    continue;
                };
                let requests: [&[u8]; 4] = [
                    b"weir 2 socket\ndevice=none\n",
                    b"weir 2 socket\ndevice=wan0\nqueue=77\n",
                    b"weir 2 supervise\npolicy=nobody\n",
                    b"\xff",
                ];
                for request in requests {
                    let _ = send(&socket, request, SendFlags::NOSIGNAL);
                }
                std::thread::sleep(Duration::from_millis(pause));
            }
        });
    }
    println!("ready");
    linger();
    Ok(())
}

/// Listens where a broker would.
fn broker_of_ones_own() -> Result<()> {
    let _listener = listen_at(&broker_path())?;
    println!("listening");
    linger();
    Ok(())
}

/// The same as root of a user namespace; prints what a client in it is told.
fn rooted() -> Result<()> {
    if !become_root_of_a_namespace()? {
        println!("no user namespace");
        return Ok(());
    }
    let _listener = listen_at(&broker_path())?;
    let mut client = Command::new("/proc/self/exe");
    let told = client.env(ROLE, "hold").args(["wan0", "0"]).output()?;
    print!("{}", String::from_utf8_lossy(&told.stdout));
    Ok(())
}

/// A socket that listens as a broker's.
pub fn listen_at(path: &Path) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 1)?;
    Ok(socket)
}

/// Sends one listener so often, until it is refused: how often it was taken, and the words.
fn listeners(arguments: &[String]) -> Result<()> {
    let most: usize = arguments.first().ok_or("COUNT")?.parse()?;
    rustix::thread::set_no_new_privs(true)?;
    let rules = broker::supervise::handlers::rules(&["sysinfo"]);
    let listener = broker::seccomp::install(&broker::supervise::filter::program(rules))?;
    let take = || -> Result<()> {
        let broker = connect_to(&broker_path())?;
        message::ask(&broker, "weir 2 supervise\n")?;
        send_text(&broker, "weir 2 listener\n", Some(listener.as_fd()))?;
        message::receive_ok(&broker)?;
        Ok(())
    };
    let mut count = 0;
    let refused = loop {
        if count == most {
            break String::new();
        }
        match take() {
            Ok(()) => count += 1,
            Err(error) => break error.to_string(),
        }
    };
    println!("{count} {refused}");
    linger();
    Ok(())
}

/// The reply to a request that was sent, after the broker's question.
pub fn reply(socket: &OwnedFd) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (first, fds) = message::receive(socket.as_fd(), 512 << 10)?;
    let Some(nonce) = first.strip_prefix(message::PROVE.as_bytes()) else {
        return Ok((first, fds));
    };
    let answer = [message::PROOF.as_bytes(), nonce].concat();
    message::send(socket.as_fd(), &answer, &[])?;
    Ok(message::receive(socket.as_fd(), 512 << 10)?)
}

/// The reply to a request, which always has one.
fn ask(text: &[u8], fds: usize) -> Result<String> {
    let socket = connect(&broker_path(), SocketType::SEQPACKET)?;
    let fds = vec![socket.as_fd(); fds];
    message::send(socket.as_fd(), text, &fds)?;
    let (reply, _) = reply(&socket)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

fn requests() -> Result<()> {
    let long = "a".repeat(300);
    let lines = "queue=0\n".repeat(500);
    let (max, above) = ("4294967295", "4294967296");
    let numbers = [
        "",
        " ",
        "0",
        "1",
        "2",
        "3",
        "7",
        "63",
        "64",
        "65",
        "2047",
        "2048",
        "2049",
        "4096",
        "8192",
        "65536",
        "524288",
        "524289",
        "2147483648",
        max,
        above,
        "-1",
        "+1",
        "0x10",
        "1e3",
        "1 ",
        "1\0",
    ];
    let words = [
        "",
        ".",
        "..",
        "lo",
        "wan0\0",
        "wan0/..",
        "../wan0",
        "%n%s",
        "wan0 ",
        "WAN0",
        "rx,tx,rx",
        "tx,rx",
        ",",
        "spin",
        "adaptive:18446744073709551616",
        "adaptive:18446744073709551615",
        "adaptive:-1",
        &long,
        "\u{202e}wan0",
        "all",
    ];
    let keys = [
        "device",
        "queue",
        "lease",
        "chunks",
        "chunk-size",
        "rings",
        "wait",
        "policy",
        "tenant",
        "",
    ];
    let (mut granted, mut refused) = (0, 0);
    let mut judge = |text: &[u8], fds: usize| -> Result<()> {
        let reply = ask(text, fds)?;
        match reply.split_once('\n') {
            Some(("ok", _)) => granted += 1,
            Some((kind, words)) if kind.starts_with("error ") && words.len() > 10 => refused += 1,
            _ => println!("bad: {:?} got {reply:?}", String::from_utf8_lossy(text)),
        }
        Ok(())
    };
    for key in keys {
        for value in numbers.iter().chain(&words) {
            let text = format!(
                "weir 2 socket\ndevice=wan0\nlease=rx\nchunks=64\nrings=32\n{key}={value}\n"
            );
            judge(text.as_bytes(), 0)?;
        }
    }
    for text in [
        "weir 2 socket",
        "weir 2 socket\n",
        "weir 2 socket\n\n\n",
        "weir 2 socket\r\ndevice=wan0\r\n",
        "weir 01 socket\ndevice=wan0\n",
        "weir 2 socket\ndevice=wan0\n=\n",
        "weir 2 supervise\npolicy=\n",
        "weir 2 revoke\nlease=18446744073709551616\n",
        "weir 2 listener\n",
        "ok\n",
        &format!("weir 2 socket\n{lines}"),
        &format!("weir 2 socket\ndevice=wan0\n{}", "\n".repeat(4060)),
    ] {
        judge(text.as_bytes(), 0)?;
    }
    for fds in [1, 4] {
        judge(b"weir 2 socket\ndevice=wan0\nchunks=64\nrings=32\n", fds)?;
    }
    println!("{granted} granted, {refused} refused");
    Ok(())
}

fn names(arguments: &[String]) -> Result<()> {
    let other = arguments.first().ok_or("a tenant")?;
    let requests = [
        format!("weir 2 socket\ndevice=wan0\nqueue=1\nchunks=64\nrings=32\npolicy={other}\n"),
        "weir 2 socket\ndevice=wan0\nqueue=1\nchunks=64\nrings=32\npolicy=own\n".to_owned(),
        format!("weir 2 socket\ndevice=wan0\nchunks=64\nrings=32\npolicy=own\npolicy={other}\n"),
        format!("weir 2 supervise\npolicy={other}\n"),
    ];
    for request in requests {
        let reply = ask(request.as_bytes(), 0)?;
        let is_denied = reply.starts_with("error denied\n");
        let verdict = if is_denied { "" } else { "bad: " };
        println!("{verdict}{request:?}: {reply:?}");
    }
    let reply = ask(
        b"weir 2 socket\ndevice=wan0\nchunks=64\nrings=32\npolicy=own\n",
        0,
    )?;
    let verdict = if reply.starts_with("ok\n") {
        ""
    } else {
        "bad: "
    };
    println!("{verdict}its own: {}", reply.get(..2).unwrap_or(&reply));
    Ok(())
}

/// Opens and closes sockets all the time, until a line comes.
fn churn(arguments: &[String]) -> Result<()> {
    let request = request(arguments)?.chunks(64).rings(32);
    let told: Receiver<String> = wanted();
    let mut count = 0_u32;
    println!("ready");
    while told.try_recv() == Err(TryRecvError::Empty) {
        match request.open() {
            Ok(_) => count += 1,
            // Its queue is not free again yet, or no broker runs.
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    println!("opened {count}");
    linger();
    Ok(())
}

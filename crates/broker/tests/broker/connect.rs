//! The handler of connect(2), on sockets of network namespaces of their own.
#![allow(unsafe_code)] // connect(2) with bytes and lengths that no wrapper makes.

use crate::ensure;
use crate::supervised::{Result, Start, Supervised, Tries, become_nobody, wait_until};
use broker::policy::Redirect;
use broker::supervise::handlers::connect::{Connect, NAME, Redirections};
use hostnet::device::Device;
use hostnet::netns;
use rustix::io::Errno;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};
use testkit::{Test, tests};

pub fn tests() -> Vec<Test> {
    tests![
        balances_10000_connections,
        fails_over,
        is_as_the_kernels,
        a_flipped_address_is_judged_as_copied,
        ends_with_its_killed_caller,
        unix_sockets_keep_their_credentials,
        figures,
    ]
}

const FROM: &str = "192.0.2.1:80";

/// A network namespace with its loopback device up.
fn namespace() -> Result<OwnedFd> {
    let namespace = netns::create()?;
    netns::run_in(namespace.as_fd(), || Device::open("lo"))?.set_up()?;
    Ok(namespace)
}

/// A server that sends one byte on each connection, until it is dropped.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Plays a scene; one that begins with `bare` without the handler.
    fn start(namespace: &OwnedFd, byte: u8, address: &str) -> Result<Self> {
        let listener = netns::run_in(namespace.as_fd(), || TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        listener.set_nonblocking(true)?;
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let mut fds = [rustix::event::PollFd::new(
                    &listener,
                    rustix::event::PollFlags::IN,
                )];
                let tick = rustix::event::Timespec {
                    tv_sec: 0,
                    tv_nsec: 20_000_000,
                };
                let _ = rustix::event::poll(&mut fds, Some(&tick));
                while let Ok((mut stream, _)) = listener.accept() {
                    let _ = stream.write_all(&[byte]);
                }
            }
        });
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn redirect(from: &str, to: &[SocketAddr]) -> Result<Arc<Redirections>> {
    Ok(Arc::new(Redirections::new(&[Redirect {
        from: from.parse()?,
        to: to.to_vec(),
    }])))
}

/// Plays a scene; one that begins with `bare` without the handler.
fn start(namespace: &OwnedFd, redirections: &Arc<Redirections>, scene: &str) -> Result<Supervised> {
    let handler = Box::new(Connect::new(Arc::clone(redirections)));
    let is_bare = scene.starts_with("bare ");
    let scene = scene.strip_prefix("bare ").unwrap_or(scene);
    // Not `run_in`: the child dies with the thread that starts it.
    let (own, number) = (std::process::id(), namespace.as_raw_fd());
    let namespace = format!("--net=/proc/{own}/fd/{number}");
    let start = Start {
        scene,
        names: if is_bare { vec![] } else { vec![NAME] },
        wrapper: &["nsenter", &namespace],
    };
    Supervised::start(&start, vec![handler])
}

fn run(namespace: &OwnedFd, redirections: &Arc<Redirections>, scene: &str) -> Result<String> {
    Ok(start(namespace, redirections, scene)?.lines()?.join("; "))
}

/// An address whose port nobody listens to.
fn closed(namespace: &OwnedFd) -> Result<SocketAddr> {
    let listener = netns::run_in(namespace.as_fd(), || TcpListener::bind("127.0.0.1:0"))?;
    Ok(listener.local_addr()?)
}

/// Connects so many times; counts the bytes `a` and `b` that came.
pub fn connect_many(arguments: &[&str]) -> Result<()> {
    let [address, number] = arguments else {
        return Err("ADDRESS NUMBER".into());
    };
    let (address, number): (SocketAddr, u64) = (address.parse()?, number.parse()?);
    become_nobody()?;
    let mut counts = [0_u64; 2];
    let mut times = Vec::new();
    let begin = Instant::now();
    for _ in 0..number {
        let start = Instant::now();
        let mut stream = TcpStream::connect(address)?;
        times.push(start.elapsed());
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        counts[usize::from(byte[0] - b'a')] += 1;
    }
    print_times(&mut times, begin.elapsed());
    println!("counts {} {}", counts[0], counts[1]);
    Ok(())
}

fn print_times(times: &mut [Duration], all: Duration) {
    times.sort();
    let per_second = times.len() as f64 / all.as_secs_f64();
    println!(
        "median {:?}, p99 {:?}, {per_second:.0} connections/s",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
}

fn balances_10000_connections() -> Result<()> {
    let namespace = namespace()?;
    let a = Server::start(&namespace, b'a', "127.0.0.1:0")?;
    let b = Server::start(&namespace, b'b', "[::1]:0")?;
    // An IPv6 socket reaches both: IPv4 within IPv6.
    let handler = redirect("[2001:db8::1]:80", &[a.address, b.address])?;
    let output = run(&namespace, &handler, "connect_many [2001:db8::1]:80 10000")?;
    ensure!(output.contains("counts 5000 5000"), "{output}");
    ensure!(counters(&handler) == [(5000, 0), (5000, 0)], "{handler:?}");
    Ok(())
}

fn counters(redirections: &Redirections) -> Vec<(u64, u64)> {
    redirections
        .backends()
        .map(|(_, it)| (it.connections(), it.failures()))
        .collect()
}

fn fails_over() -> Result<()> {
    let namespace = namespace()?;
    let a = Server::start(&namespace, b'a', "127.0.0.1:0")?;
    let b = Server::start(&namespace, b'b', "127.0.0.1:0")?;
    let handler = redirect(FROM, &[a.address, closed(&namespace)?, b.address])?;
    // The refused third goes to the next one, b.
    let output = run(&namespace, &handler, &format!("connect_many {FROM} 3000"))?;
    ensure!(output.contains("counts 1000 2000"), "{output}");
    ensure!(
        counters(&handler) == [(1000, 0), (0, 1000), (2000, 0)],
        "{handler:?}"
    );
    let none = redirect(FROM, &[closed(&namespace)?, closed(&namespace)?])?;
    let error = run(&namespace, &none, &format!("connect_many {FROM} 1"));
    ensure!(error.is_err());
    ensure!(counters(&none) == [(0, 1), (0, 1)], "{none:?}");
    Ok(())
}

/// connect(2) with raw arguments.
fn raw_connect(fd: i32, address: *const u8, len: i64) -> Result<(), Errno> {
    // SAFETY: needed for hostile arguments; the kernel only reads, and checks them.
    let result = unsafe { libc::syscall(libc::SYS_connect, fd, address, len) };
    if result == 0 {
        return Ok(());
    }
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Err(Errno::from_raw_os_error(code))
}

fn sockaddr(address: SocketAddr) -> [u8; 128] {
    let mut bytes = [0; 128];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
        }
    }
    bytes
}

fn is_as_the_kernels() -> Result<()> {
    let namespace = namespace()?;
    let server = Server::start(&namespace, b'a', "127.0.0.1:0")?;
    let handler = redirect(FROM, &[server.address])?;
    let words = format!("{} {}", server.address, closed(&namespace)?);
    let bare = run(
        &namespace,
        &handler,
        &format!("bare connect_errors {words}"),
    )?;
    let supervised = run(&namespace, &handler, &format!("connect_errors {words}"))?;
    ensure!(bare.contains("len 129 Err(Os { code: 22"), "{bare}");
    ensure!(bare == supervised, "bare: {bare}\nsupervised: {supervised}");
    let scene = format!("connect_redirected {}", server.address);
    run(&namespace, &handler, &scene).map(drop)
}

/// Prints every outcome.
pub fn connect_errors(arguments: &[&str]) -> Result<()> {
    let [server, closed] = arguments else {
        return Err("SERVER CLOSED".into());
    };
    become_nobody()?;
    for (name, outcome) in outcomes(server.parse()?, closed.parse()?)? {
        println!("{name} {outcome:?}");
    }
    Ok(())
}

pub fn connect_redirected(arguments: &[&str]) -> Result<()> {
    let server: SocketAddr = arguments.first().ok_or("SERVER")?.parse()?;
    become_nobody()?;
    let redirected = UdpSocket::bind("0.0.0.0:0")?;
    redirected.connect(FROM)?;
    ensure!(redirected.peer_addr()? == server);
    let mapped = UdpSocket::bind("[::]:0")?;
    for address in ["[::ffff:192.0.2.1]:80", FROM] {
        mapped.connect(address)?;
        let peer = mapped.peer_addr()?;
        ensure!(peer.ip().to_canonical() == server.ip(), "{peer}");
        ensure!(peer.port() == server.port(), "{peer}");
    }
    Ok(())
}

fn outcomes(server: SocketAddr, closed: SocketAddr) -> Result<Vec<(String, Result<(), Errno>)>> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let tcp = |flags| socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let udp = UdpSocket::bind("0.0.0.0:0")?;
    let udp6 = UdpSocket::bind("[::]:0")?;
    let address = sockaddr(server);
    let file = std::fs::File::open("/dev/null")?;
    let path = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
    )?;
    let mut all = Vec::new();
    let mut note = |name: &str, outcome| all.push((name.to_owned(), outcome));

    let stream = tcp(SocketFlags::empty())?;
    let fd = stream.as_raw_fd();
    note("connected", raw_connect(fd, address.as_ptr(), 16));
    note("twice", raw_connect(fd, address.as_ptr(), 16));
    let unspecified = [0; 16];
    note("ended", raw_connect(fd, unspecified.as_ptr(), 16));
    note("again", raw_connect(fd, address.as_ptr(), 16));
    let refused = tcp(SocketFlags::empty())?;
    let nobody = sockaddr(closed);
    note(
        "refused",
        raw_connect(refused.as_raw_fd(), nobody.as_ptr(), 16),
    );
    let nonblocking = tcp(SocketFlags::NONBLOCK)?;
    let fd = nonblocking.as_raw_fd();
    note("in progress", raw_connect(fd, address.as_ptr(), 16));
    wait_writable(&nonblocking)?;
    note("its outcome", raw_connect(fd, address.as_ptr(), 16));
    note("is connected", raw_connect(fd, address.as_ptr(), 16));

    note(
        "no socket",
        raw_connect(file.as_raw_fd(), address.as_ptr(), 16),
    );
    note("path", raw_connect(path.as_raw_fd(), address.as_ptr(), 16));
    note("closed", raw_connect(-1, address.as_ptr(), 16));
    note("none", raw_connect(999_999, address.as_ptr(), 16));
    let fd = udp.as_raw_fd();
    note("null", raw_connect(fd, std::ptr::null(), 16));
    let kernels = std::ptr::without_provenance(0xffff_8000_0000_0000);
    note("the kernel's", raw_connect(fd, kernels, 16));
    for len in [-1, 0, 1, 2, 15, 16, 28, 127, 128, 129, i64::from(i32::MAX)] {
        note(
            &format!("len {len}"),
            raw_connect(fd, address.as_ptr(), len),
        );
    }
    // The kernel truncates the length to an int.
    note(
        "len 2^32+16",
        raw_connect(fd, address.as_ptr(), (1 << 32) + 16),
    );
    let mut other = address;
    for family in [1_u16, 3, 16, 44, 0xffff] {
        other[..2].copy_from_slice(&family.to_ne_bytes());
        note(
            &format!("family {family}"),
            raw_connect(fd, other.as_ptr(), 16),
        );
    }
    let v6 = sockaddr("[::1]:9".parse()?);
    for len in [2, 23, 24, 27, 28, 128] {
        let fd = udp6.as_raw_fd();
        note(&format!("v6 len {len}"), raw_connect(fd, v6.as_ptr(), len));
        note(
            &format!("v4 len {len}"),
            raw_connect(fd, address.as_ptr(), len),
        );
    }
    note("v6 of a v4 socket", raw_connect(fd, v6.as_ptr(), 28));
    let missing = b"\x01\x00/nonexistent\0";
    let unix = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )?;
    note("unix", raw_connect(unix.as_raw_fd(), missing.as_ptr(), 15));
    Ok(all)
}

fn wait_writable(socket: &OwnedFd) -> Result<()> {
    let mut fds = [rustix::event::PollFd::new(
        socket,
        rustix::event::PollFlags::OUT,
    )];
    rustix::event::poll(&mut fds, None)?;
    Ok(())
}

fn a_flipped_address_is_judged_as_copied() -> Result<()> {
    let namespace = namespace()?;
    let handler = redirect(FROM, &["127.0.0.1:7777".parse()?])?;
    let output = run(&namespace, &handler, "connect_flip")?;
    ensure!(output.contains("both were seen"), "{output}");
    Ok(())
}

/// A second thread flips the address between a redirected and another one, its port and its family.
pub fn connect_flip(_: &[&str]) -> Result<()> {
    become_nobody()?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let fd = socket.as_raw_fd();
    let mut address = sockaddr("127.0.0.1:80".parse()?);
    address[4..8].copy_from_slice(&[192, 0, 2, 1]);
    // Port 80 is redirected, port 81 of that address has no route.
    let words: &'static [AtomicU16; 64] = Box::leak(Box::new(std::array::from_fn(|at| {
        AtomicU16::new(u16::from_ne_bytes([address[2 * at], address[2 * at + 1]]))
    })));
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let attacker = std::thread::spawn(move || {
        let families = [libc::AF_INET, libc::AF_INET, libc::AF_UNIX, libc::AF_INET6];
        for round in 0_usize.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            words[1].store((80 + (round & 1) as u16).to_be(), Ordering::Relaxed);
            words[0].store(families[round >> 1 & 3] as u16, Ordering::Relaxed);
        }
    });
    let (mut redirected, mut others) = (0_u64, 0_u64);
    let mut tries = Tries::at_least(200_000);
    while tries.again(redirected.min(others)) {
        match raw_connect(fd, words.as_ptr().cast(), 16) {
            Ok(()) => {
                let peer = socket.peer_addr()?;
                ensure!(peer.to_string() == "127.0.0.1:7777", "it reached {peer}");
                redirected += 1;
            }
            Err(_) => others += 1,
        }
    }
    done.store(true, Ordering::Relaxed);
    let _ = attacker.join();
    tries.check(redirected.min(others))?;
    println!("both were seen: {redirected} redirected, {others} refused");
    Ok(())
}

fn ends_with_its_killed_caller() -> Result<()> {
    let namespace = namespace()?;
    let (full, _streams) = netns::run_in(namespace.as_fd(), full_listener)?;
    let handler = redirect(FROM, &[full.local_addr()?, full.local_addr()?])?;
    let mut child = start(&namespace, &handler, &format!("connect_wait {FROM}"))?;
    ensure!(child.line()? == "connecting");
    std::thread::sleep(Duration::from_millis(200));
    let answered = |child: &Supervised| child.decisions().len();
    ensure!(answered(&child) == 0, "it did not wait");
    child.child.kill()?;
    wait_until("the handler ends", || answered(&child) == 1)?;
    child.wait_for_end()?;
    // The second backend is not tried for a caller that is gone.
    ensure!(counters(&handler).iter().all(|it| it.0 == 0), "{handler:?}");
    ensure!(Arc::strong_count(&handler) == 1);
    Ok(())
}

/// A listener that drops further connections without an answer, as its queue is full.
fn full_listener() -> std::io::Result<(TcpListener, Vec<TcpStream>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    rustix::net::listen(&listener, 0)?;
    let mut streams = Vec::new();
    let address = listener.local_addr()?;
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        streams.push(stream);
    }
    Ok((listener, streams))
}

pub fn connect_wait(arguments: &[&str]) -> Result<()> {
    let address = arguments.first().ok_or("ADDRESS")?;
    become_nobody()?;
    println!("connecting");
    TcpStream::connect(*address)?;
    Ok(())
}

fn unix_sockets_keep_their_credentials() -> Result<()> {
    let namespace = namespace()?;
    let handler = redirect(FROM, &[])?;
    let path = std::env::temp_dir().join(format!("broker-connect-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    let remove = Remove(path.clone());
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    let argument = path.to_str().ok_or("a path")?;
    let child = start(&namespace, &handler, &format!("connect_unix {argument}"))?;
    let (stream, _) = listener.accept()?;
    let credentials = rustix::net::sockopt::socket_peercred(&stream)?;
    ensure!(credentials.pid.as_raw_nonzero().get() as u32 == child.child.id());
    ensure!(credentials.uid.as_raw() == 65534);
    drop((child, remove));
    Ok(())
}

struct Remove(std::path::PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn connect_unix(arguments: &[&str]) -> Result<()> {
    let path = arguments.first().ok_or("PATH")?;
    become_nobody()?;
    let _stream = UnixStream::connect(path)?;
    // The test kills it.
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

fn figures() -> Result<()> {
    let namespace = namespace()?;
    let a = Server::start(&namespace, b'a', "127.0.0.1:0")?;
    let b = Server::start(&namespace, b'b', "127.0.0.1:0")?;
    let words = format!("connect_many {} 5000", a.address);
    for _ in 0..3 {
        let handler = redirect(FROM, &[a.address, b.address])?;
        let bare = run(&namespace, &handler, &format!("bare {words}"))?;
        println!("no supervision       {bare}");
        let unruled = run(&namespace, &handler, &words)?;
        println!("supervised, no rule  {unruled}");
        let redirected = run(&namespace, &handler, &format!("connect_many {FROM} 5000"))?;
        println!("redirected           {redirected}");
    }
    Ok(())
}

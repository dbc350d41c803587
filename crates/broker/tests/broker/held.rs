//! Attacks by objects that the broker and others hold at the same time: a socket that the broker binds for its
//! holder, a connection over which another process asks, a listening socket that was passed on.

use crate::af_xdp::{
    XDP_COPY, bind_xdp, index, link, load, memory, redirect, sockaddr, xdp_socket, xskmap,
};
use crate::daemon::{ready, refused};
use crate::ensure;
use crate::lab::{Broker, Lab, NOBODY, neighbour, tenant, tenant_of, wait_until};
use crate::rogue::{broker_path, reply};
use crate::roles::{ROLE, wanted};
use crate::supervised::{Result, address, call};
use broker::message::{self, connect_to};
use broker::supervise::run::supervise;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket, socketpair};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use testkit::limit::scale;
use testkit::{Process, Test, tests, tests_alone};
use xsk::broker::Request;

pub fn tests() -> Vec<Test> {
    tests![
        a_socket_that_another_process_holds_is_not_bound,
        a_socket_bound_by_a_thread_that_is_not_supervised_ends_its_process,
        a_ring_added_by_a_thread_that_is_not_supervised_ends_its_process,
        a_bind_that_fails_leaves_no_lease,
        a_program_executed_after_connecting_gets_nothing_by_it,
        a_listening_socket_that_was_passed_on_is_not_trusted,
        a_client_of_the_former_version_is_told,
    ]
    .into_iter()
    .chain(tests_alone![a_queue_that_the_host_holds_holds_up_nobody])
    .collect()
}

/// Another user than [`NOBODY`].
const ANOTHER: u32 = 12345;

/// Plays a part.
pub fn play(arguments: &[String]) -> Result<()> {
    let (part, rest) = arguments.split_first().ok_or("a part")?;
    match part.as_str() {
        "holder" => holder(),
        "binds" => binds(),
        "thread" => thread_of_ones_own(rest),
        "skips" => skips(),
        "becomes" => becomes(rest),
        "asks" => asks(),
        "listens" => listens(),
        "victim" => victim(rest),
        _ => Err(format!("no part {part}").into()),
    }
}

fn section(name: &str, uid: u32, queues: &str, lease: &str, rest: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\nuid = [{uid}]\n[[tenant.device]]\nname = \"wan0\"\nqueues = \"{queues}\"\nlease = [{lease}]\nmodes = [\"drv\", \"skb\"]\nmemory = \"1 MiB\"\n{rest}"
    )
}

const BOTH: &str = "\"rx\", \"tx\"";
const SUPERVISED: &str = "[tenant.calls]\naf-xdp = true\n";

fn told(result: Result<(), Errno>) -> String {
    result.map_or_else(|errno| errno.to_string(), |()| "bound".to_owned())
}

// --- A socket that others hold ------------------------------------------------------

/// A process that nobody supervises, and its child, which is, and passes its sockets to it.
fn holder() -> Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let mut child = Command::new("/proc/self/exe")
        .env(ROLE, "held")
        .arg("binds")
        .stdin(Stdio::from(there))
        .spawn()?;
    let wan = index("wan0")?;
    let other = || sockaddr(XDP_COPY, wan, 1);
    let next = || message::receive(here.as_fd(), 16);
    let go = || send(&here, b"go", SendFlags::empty());
    // It is held here.
    let socket = next()?.1.pop().ok_or("a socket")?;
    let before = told(bind_xdp(socket.as_raw_fd(), &other()));
    go()?;
    next()?;
    let after = told(bind_xdp(socket.as_raw_fd(), &other()));
    println!("holder: {before}, {after}");
    drop(socket);
    go()?;
    child.wait()?;
    Ok(())
}

fn binds() -> Result<()> {
    supervise(&broker_path(), None)?;
    let wan = index("wan0")?;
    let parent = std::io::stdin();
    let go = || message::receive(parent.as_fd(), 16);
    let pass = |socket: &OwnedFd| message::send(parent.as_fd(), b"socket", &[socket.as_fd()]);
    let done = || message::send(parent.as_fd(), b"done", &[]);
    let (memory, part) = memory();
    let own = || sockaddr(XDP_COPY, wan, 0);
    let socket = xdp_socket(&memory[part.clone()])?;
    pass(&socket)?;
    for _ in 0..2 {
        go()?;
        println!("child: {}", told(bind_xdp(socket.as_raw_fd(), &own())));
        let _ = done();
    }
    drop(socket);
    // A copy in a message is not seen, and cannot be bound before and after.
    let socket = xdp_socket(&memory[part])?;
    let flags = SocketFlags::CLOEXEC;
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    message::send(here.as_fd(), b"socket", &[socket.as_fd()])?;
    // The kernel releases the queue of the first one a moment later.
    let mut result = Err(Errno::BUSY);
    for _ in 0..500 {
        result = bind_xdp(socket.as_raw_fd(), &own());
        if result != Err(Errno::BUSY) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    println!("child: {}", told(result));
    let (_, mut fds) = message::receive(there.as_fd(), 16)?;
    drop(socket);
    let copy = fds.pop().ok_or("a copy")?;
    println!("copy: {}", told(bind_xdp(copy.as_raw_fd(), &own())));
    Ok(())
}

fn a_socket_that_another_process_holds_is_not_bound() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, &section("all", NOBODY, "0", BOTH, SUPERVISED))?;
    let mut holder = neighbour(&lab, "held", &["holder"])?;
    let (refused, invalid) = (Errno::PERM.to_string(), Errno::INVAL.to_string());
    assert_eq!(holder.line()?, format!("child: {refused}"));
    assert_eq!(holder.line()?, format!("holder: {invalid}, {invalid}"));
    assert!(broker.logs("holds as well: close it there before bind"));
    assert_eq!(holder.line()?, "child: bound", "nobody else holds it now");
    assert_eq!(holder.line()?, "child: bound", "with a copy in a message");
    assert_eq!(holder.line()?, format!("copy: {}", Errno::BUSY));
    assert!(!broker.log().contains("socket-taken"), "{}", broker.log());
    holder.wait()?;
    assert!(wait_until(|| broker.leases() == 0));
    broker.stop()
}

/// `queue` or `ring`: one thread of this process is supervised, and another one, which has its sockets as well,
/// takes more than is granted while the broker binds them.
fn thread_of_ones_own(arguments: &[String]) -> Result<()> {
    let takes_queue = arguments.first().is_some_and(|what| what == "queue");
    let wan = index("wan0")?;
    let number = Arc::new(AtomicI32::new(-1));
    let shown = Arc::clone(&number);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let binds = move || -> Result<()> {
        supervise(&broker_path(), None)?;
        let map = xskmap()?;
        let program = load(6, &redirect(&map))?;
        let link = link(&program, wan)?;
        // It is supervised, too, has no socket, and keeps the link.
        let other = Command::new("sleep")
            .arg("3600")
            .stdin(Stdio::from(link))
            .stdout(Stdio::null())
            .spawn()?;
        println!("attached {}", other.id());
        let (memory, part) = memory();
        while !over.load(Relaxed) {
            let socket = xdp_socket(&memory[part.clone()])?;
            shown.store(socket.as_raw_fd(), Relaxed);
            let _ = bind_xdp(socket.as_raw_fd(), &sockaddr(XDP_COPY, wan, 0));
            shown.store(-1, Relaxed);
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let binder = thread::spawn(move || binds().map_err(|error| error.to_string()));
    let wanted = sockaddr(XDP_COPY, wan, 1);
    let began = Instant::now();
    let mut round = 0_u64;
    while began.elapsed() < Duration::from_secs(60) && !binder.is_finished() {
        let fd = number.load(Relaxed);
        if fd < 0 {
            thread::yield_now();
            continue;
        }
        let took = if takes_queue {
            bind_xdp(fd, &wanted).is_ok()
        } else {
            round += 1;
            // Before the broker's look it would be refused, and after its bind by the kernel.
            thread::sleep(Duration::from_micros(round * 37 % 20_000));
            // By the number of the other thread's socket.
            let ring = [
                fd as u64,
                libc::SOL_XDP as u64,
                libc::XDP_TX_RING as u64,
                address(&4_i32),
                4,
            ];
            call(libc::SYS_setsockopt, ring) == 0
        };
        if took {
            println!("took it");
            if takes_queue {
                thread::sleep(Duration::from_secs(2));
                println!("has it still");
            }
        }
    }
    is_over.store(true, Relaxed);
    let result = binder.join().map_err(|_| "it panicked")?;
    println!("over: {result:?}");
    Ok(())
}

/// A process that is not this one's child. Killed on drop.
struct Other(Pid);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

fn check_thread(what: &str, lease: &str) -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, &section("all", NOBODY, "0", lease, SUPERVISED))?;
    let mut attacker = neighbour(&lab, "held", &["thread", what])?;
    let line = attacker.line()?;
    let other = line.strip_prefix("attached ").ok_or(line.clone())?;
    let other = Other(Pid::from_raw(other.parse()?).ok_or("a pid")?);
    assert_eq!(lab.programs().len(), 1);
    let mut lines = Vec::new();
    while let Ok(line) = attacker.line_within(Duration::from_secs(90)) {
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let status = attacker.wait()?;
    let log = broker.log();
    assert_eq!(
        status.signal(),
        Some(libc::SIGKILL),
        "{status}: {lines:?} {log}"
    );
    assert!(
        !lines.iter().any(|line| line == "has it still"),
        "{lines:?}"
    );
    assert!(broker.logs("\"event\":\"socket-taken\""), "{log}");
    // The session goes on, and its programs are gone.
    let sessions = broker.status()?["sessions"].clone();
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
    assert!(
        wait_until(|| lab.programs().is_empty()),
        "{:?}",
        lab.programs()
    );
    drop(other);
    assert!(wait_until(|| broker.leases() == 0));
    // The socket may be anywhere: no new session of the tenant attaches a program that serves it.
    let mut again = neighbour(&lab, "held", &["thread", what])?;
    let line = again.line()?;
    assert!(
        line.contains("does not take the listener"),
        "{line}: {}",
        broker.log()
    );
    again.wait()?;
    // Nobody has the queues.
    let held = lab.at_broker(|| -> Result<()> {
        for queue in 0..2 {
            let umem = xsk::Umem::builder().chunks(64).build()?;
            let socket = xsk::Socket::builder(&umem, "wan0", queue).rx_ring(0);
            drop(socket.open()?);
        }
        Ok(())
    });
    held?;
    broker.stop()
}

fn a_socket_bound_by_a_thread_that_is_not_supervised_ends_its_process() -> Result<()> {
    check_thread("queue", BOTH)
}

fn a_ring_added_by_a_thread_that_is_not_supervised_ends_its_process() -> Result<()> {
    check_thread("ring", "\"rx\"")
}

// --- The lease table ----------------------------------------------------------------

/// Binds a socket that has no UMEM yet, then the same with one to another queue.
fn skips() -> Result<()> {
    supervise(&broker_path(), None)?;
    let wan = index("wan0")?;
    let lines = wanted();
    let bind = |socket: &OwnedFd, queue| {
        let result = bind_xdp(socket.as_raw_fd(), &sockaddr(XDP_COPY, wan, queue));
        println!("queue {queue}: {}", told(result));
    };
    let xdp = socket(AddressFamily::XDP, SocketType::RAW, None)?;
    bind(&xdp, 0);
    let (memory, part) = memory();
    crate::af_xdp::register(&xdp, &memory[part])?;
    while lines.recv().is_ok() {
        bind(&xdp, 1);
    }
    Ok(())
}

fn a_bind_that_fails_leaves_no_lease() -> Result<()> {
    let lab = Lab::new(2)?;
    let own = section("own", NOBODY, "0-1", BOTH, SUPERVISED);
    let policy = format!("{own}{}", section("other", ANOTHER, "1", BOTH, ""));
    let broker = Broker::start(&lab, &policy)?;
    let mut other = tenant_of(&lab, ANOTHER, "hold", &["wan0", "1"])?;
    ready(&mut other)?;
    let mut skips = neighbour(&lab, "held", &["skips"])?;
    assert_eq!(skips.line()?, format!("queue 0: {}", Errno::INVAL));
    assert_eq!(broker.leases(), 1, "that of the other");
    // It is the table that refuses, though the same socket has asked before.
    skips.say("")?;
    assert_eq!(skips.line()?, format!("queue 1: {}", Errno::BUSY));
    assert!(
        broker.logs("queue 1 of wan0 is leased to other"),
        "{}",
        broker.log()
    );
    other.finish()?;
    assert!(wait_until(|| broker.leases() == 0));
    assert!(wait_until(|| {
        skips.say("").is_ok() && skips.line().is_ok_and(|line| line == "queue 1: bound")
    }));
    let lease = broker.status()?["leases"][0].clone();
    assert_eq!(lease["queue"], 1, "{lease}");
    assert_eq!(lease["tenant"], "own", "{lease}");
    let told = tenant_of(&lab, ANOTHER, "hold", &["wan0", "1"])?.line()?;
    assert!(told.contains("is leased to own"), "{told}");
    // It is bound: the table keeps one line of it.
    skips.say("")?;
    assert_eq!(skips.line()?, format!("queue 1: {}", Errno::BUSY));
    assert_eq!(broker.leases(), 1);
    skips.finish()?;
    assert!(wait_until(|| broker.leases() == 0));
    broker.stop()
}

/// `DEVICE QUEUE COUNT`: the median time of a lease, in microseconds.
fn victim(arguments: &[String]) -> Result<()> {
    let count: usize = arguments.get(2).ok_or("COUNT")?.parse()?;
    let request = crate::roles::request(arguments)?;
    let mut micros = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        let socket = request.open();
        micros.push(began.elapsed().as_micros());
        let _ = socket?;
        thread::sleep(Duration::from_millis(30));
    }
    micros.sort_unstable();
    println!("{}", micros[count / 2]);
    Ok(())
}

/// The host's own program has a queue that is granted, and four processes ask for that all the time.
fn a_queue_that_the_host_holds_holds_up_nobody() -> Result<()> {
    let lab = Lab::new(4)?;
    let own = section("own", NOBODY, "0-3", BOTH, "");
    let policy = format!("{own}{}", section("other", ANOTHER, "0", BOTH, ""));
    let broker = Broker::start(&lab, &policy)?;
    let median = || -> Result<u64> {
        let mut victim = tenant(&lab, "held", &["victim", "wan0", "any", "30"])?;
        let line = victim.line()?;
        Ok(line.parse().map_err(|_| line)?)
    };
    let alone = median()?;
    let held = lab.at_broker(|| -> xsk::Result<_> {
        let umem = xsk::Umem::builder().chunks(64).build()?;
        xsk::Socket::builder(&umem, "wan0", 0).rx_ring(0).open()
    })?;
    let beside_holder = median()?;
    let waiting: Result<Vec<Process>> = (0..4)
        .map(|_| {
            let mut asks = tenant_of(&lab, ANOTHER, "again", &["wan0", "0"])?;
            asks.line()?;
            Ok(asks)
        })
        .collect();
    let waiting = waiting?;
    let beside_all = median()?;
    println!(
        "median {alone} us alone, {beside_holder} beside the holder, {beside_all} beside those who wait, too"
    );
    // A wait is 2 s. Those who wait share the CPUs: some of the time is theirs.
    let most = 2 * alone + 50_000 * u64::from(scale());
    ensure!(beside_holder <= most, "{alone} us became {beside_holder}");
    ensure!(beside_all <= most, "{alone} us became {beside_all}");
    drop((waiting, held));
    broker.stop()
}

// --- A connection over which another process asks -----------------------------------

/// `PROGRAM [guess]`: connects, leaves the connection to a child, and becomes a program that the policy knows.
fn becomes(arguments: &[String]) -> Result<()> {
    let (program, rest) = arguments.split_first().ok_or("PROGRAM")?;
    let broker = connect_to(&broker_path())?;
    if !rest.is_empty() {
        // The answer to a question that will come when this is another program.
        message::send(broker.as_fd(), request()?.as_bytes(), &[])?;
        let guess = format!("{}{:032x}", message::PROOF, 0);
        message::send(broker.as_fd(), guess.as_bytes(), &[])?;
    }
    Command::new("/proc/self/exe")
        .env(ROLE, "held")
        .arg("asks")
        .env("PROGRAM", program)
        .stdin(Stdio::from(broker))
        .spawn()?;
    Err(Command::new(program)
        .arg("60")
        .stdout(Stdio::null())
        .exec()
        .into())
}

fn request() -> Result<String> {
    Ok(Request::new("wan0")
        .chunks(64)
        .rings(32)
        .receive_only()
        .write()?)
}

fn asks() -> Result<()> {
    let parent = rustix::process::getppid()
        .ok_or("a parent")?
        .as_raw_nonzero();
    let program = std::env::var("PROGRAM")?;
    let is_there = || fs::read_link(format!("/proc/{parent}/exe")).is_ok_and(|it| it == *program);
    ensure!(wait_until(is_there), "its parent is not {program}");
    let broker = std::io::stdin().as_fd().try_clone_to_owned()?;
    message::send(broker.as_fd(), request()?.as_bytes(), &[])?;
    for _ in 0..2 {
        let (reply, fds) = reply(&broker)?;
        let text = String::from_utf8_lossy(&reply);
        println!(
            "{} {}",
            fds.len(),
            text.replace('\n', " ")
                .get(..200)
                .unwrap_or(&text)
                .replace('\n', " ")
        );
    }
    Ok(())
}

fn a_program_executed_after_connecting_gets_nothing_by_it() -> Result<()> {
    let lab = Lab::new(1)?;
    let allowed = lab.path("allowed");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|directory| directory.join("sleep"));
    let sleep = found.find(|file| file.exists()).ok_or("sleep(1)")?;
    fs::copy(sleep, &allowed)?;
    fs::set_permissions(&allowed, fs::Permissions::from_mode(0o755))?;
    let shown = allowed.display().to_string();
    let policy = section("all", NOBODY, "0", BOTH, "");
    let policy = policy.replace("uid =", &format!("executable = \"{shown}\"\nuid ="));
    let broker = Broker::start(&lab, &policy)?;
    for guess in [None, Some("guess")] {
        let words: Vec<&str> = ["becomes", &shown].into_iter().chain(guess).collect();
        // It has become the program before the broker looks at it, and its answer waits.
        if guess.is_some() {
            broker.process.signal(Signal::STOP)?;
        }
        let mut attacker = tenant(&lab, "held", &words)?;
        if guess.is_some() {
            let exe = format!("/proc/{}/exe", attacker.id());
            let is_there = wait_until(|| fs::read_link(&exe).is_ok_and(|it| it == allowed));
            broker.process.signal(Signal::CONT)?;
            assert!(is_there, "it is not {shown}");
        }
        let first = attacker.line()?;
        assert!(first.starts_with("0 error denied"), "{guess:?}: {first}");
        if guess.is_none() {
            let why = "asks over the connection of process";
            assert!(first.contains(why), "{first}");
        } else {
            assert!(first.contains("is not the number"), "{first}");
            let second = attacker.line()?;
            assert!(second.starts_with("0 error denied"), "{second}");
        }
        assert_eq!(broker.leases(), 0);
        attacker.kill()?;
    }
    broker.stop()
}

/// Listens on a socket that it inherited as its standard input.
fn listens() -> Result<()> {
    rustix::net::listen(std::io::stdin(), 1)?;
    println!("listening");
    thread::sleep(Duration::from_secs(60));
    Ok(())
}

/// Safe code that runs as root lets its child begin to listen, and answers itself: it would have the memory twice.
fn a_listening_socket_that_was_passed_on_is_not_trusted() -> Result<()> {
    let lab = Lab::new(1)?;
    let path = lab.path("broker.sock");
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path)?)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .env(ROLE, "held")
        .arg("listens")
        .stdin(Stdio::from(socket.try_clone()?))
        .stdout(Stdio::piped());
    let mut child = Process::of(command.spawn()?)?;
    assert_eq!(child.line()?, "listening");
    let answers = thread::spawn(move || -> Result<(), Errno> {
        for answer in ["prove 00", "ok\n", "error denied\nno"] {
            let connection = rustix::net::accept(&socket)?;
            let _ = message::receive(connection.as_fd(), 4096)?;
            message::send(connection.as_fd(), answer.as_bytes(), &[])?;
        }
        Ok(())
    });
    for _ in 0..3 {
        let mut request = Request::new("wan0");
        request.path = Some(path.clone());
        let error = request.open().err().ok_or("a socket")?.to_string();
        assert!(error.contains("this process answers there"), "{error}");
    }
    answers.join().map_err(|_| "it panicked")??;
    child.kill()?;
    Ok(())
}

fn a_client_of_the_former_version_is_told() -> Result<()> {
    let lab = Lab::new(1)?;
    let broker = Broker::start(&lab, &section("all", NOBODY, "0", BOTH, ""))?;
    for request in [
        "socket\ndevice=wan0\n",
        "supervise\n",
        "status\n",
        "revoke\nlease=1\n",
    ] {
        let socket = connect_to(&lab.path("broker.sock"))?;
        message::send(socket.as_fd(), format!("weir 1 {request}").as_bytes(), &[])?;
        let (reply, _) = message::receive(socket.as_fd(), 4096)?;
        let reply = String::from_utf8_lossy(&reply).into_owned();
        assert!(reply.starts_with("error unsupported\n"), "{reply}");
        assert!(reply.contains("of the broker's version"), "{reply}");
    }
    // Not by the words, but by the policy.
    let error = refused(&lab, &["wan0", "1"])?;
    assert!(error.contains("queue 1 is not granted"), "{error}");
    broker.stop()
}

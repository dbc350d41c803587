//! The device plugin's protocol: clients that ask as DPDK's driver and CNDP's library do.
#![allow(unsafe_code)] // An XSKMAP of the client's own, and socket options.

use crate::daemon::{peer, round_trips};
use crate::lab::{Broker, Lab, exists, start_in, tenant, wait_until};
use crate::supervised::{Result, become_nobody};
use broker::message::{receive, send};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs;
use std::io::BufRead as _;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;
use testkit::limit::scale;
use testkit::{Limit, Process, Skip, Test, tests};
use xsk::{Mode, Socket, Umem, Wait};

pub fn tests() -> Vec<Test> {
    tests![
        dpdk_asks_once_a_queue,
        cndp_keeps_its_connection,
        a_device_that_is_down_is_still_its_tenants,
        busy_polling_is_set_within_the_grant,
        without_a_grant_busy_polling_is_refused,
        a_refusal_ends_the_connection,
        a_map_is_given_for_all_queues_or_not_at_all,
        a_device_has_one_tenant,
        a_map_that_was_given_away_is_not_used_again,
        the_filter_holds_for_a_given_map,
        clients_outlive_the_broker,
        what_ended_while_no_broker_ran_is_detached,
        hostile_clients_hold_up_nobody,
        sockets_are_where_clients_look,
        a_new_device_needs_a_restart,
        a_pinned_map_is_opened_without_asking,
    ]
}

const POLICY: &str = r#"
[[tenant]]
name = "dpdk"
uid = 65534
[[tenant.device]]
name = "wan0"
queues = "0-1"
lease = ["rx", "tx"]
plugin = true
busy-poll = { most-usecs = 20, most-budget = 64 }
[[tenant]]
name = "other"
uid = 1
[[tenant.device]]
name = "lo"
queues = 0
lease = "rx"
"#;

/// A client: it has a socket on a queue, bound before it asks, as DPDK's driver does. It obeys
/// its input, a line each, and prints a line for each.
///
/// `SOCKET DEVICE QUEUE`
pub fn client(arguments: &[String]) -> Result<()> {
    let [path, device, queue] = arguments else {
        return Err("a socket, a device and a queue".into());
    };
    let queue = queue.parse()?;
    let umem = Umem::builder().chunks(256).build()?;
    let builder = Socket::builder(&umem, device, queue);
    let builder = builder.mode(Mode::Driver).wait(Wait::Poll);
    let mut socket = Some(builder.map(own_map()?).open()?);
    // The UMEM of a socket that is open keeps it.
    drop(umem);
    become_nobody()?;
    let (mut connection, mut map) = (None, None);
    println!("bound");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match word {
            "connect" => {
                connection = Some(connect(path)?);
                "connected".to_owned()
            }
            "open" => {
                map = Some(open_pinned(rest)?);
                "opened".to_owned()
            }
            "leave" => {
                connection = None;
                "left".to_owned()
            }
            "ask" | "configure" => {
                let connection = connection.as_ref().ok_or("a connection")?;
                let own = (word == "configure").then(own_socket).transpose()?;
                let fds: Vec<_> = own.iter().map(AsFd::as_fd).collect();
                let (reply, fd) = ask(connection, rest.as_bytes(), &fds)?;
                let given = if fd.is_some() { " with a map" } else { "" };
                map = fd.or(map);
                format!("{reply}{given}")
            }
            "insert" => {
                let map: &OwnedFd = map.as_ref().ok_or("a map")?;
                let socket = socket.as_mut().ok_or("a socket")?;
                socket.insert_into(map.as_fd(), queue)?;
                "inserted".to_owned()
            }
            "echo" => {
                let socket = socket.as_mut().ok_or("a socket")?;
                format!("count {}", echo(socket, rest.parse()?)?)
            }
            "busy" => {
                let socket = own_socket()?;
                // The kernel tells no budget.
                let options = [libc::SO_PREFER_BUSY_POLL, libc::SO_BUSY_POLL];
                let values = options.map(|option| option_of(&socket, option));
                format!("busy {values:?}")
            }
            "close" => {
                socket = None;
                "closed".to_owned()
            }
            other => return Err(format!("what is {other:?}").into()),
        };
        println!("{answer}");
    }
    Ok(())
}

/// An XSKMAP that no program uses.
fn own_map() -> Result<OwnedFd> {
    // The first fields of `union bpf_attr` for `BPF_MAP_CREATE`, and zeros.
    let attr: [u32; 18] = std::array::from_fn(|at| [17, 4, 4, 64].get(at).copied().unwrap_or(0));
    // SAFETY: needed because there is no wrapper. The kernel reads the attributes, of the length given.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, 0, attr.as_ptr(), size_of_val(&attr)) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: needed to own it. The kernel has just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd)?) })
}

/// `BPF_OBJ_GET`, as libbpf calls it.
fn open_pinned(path: &str) -> Result<OwnedFd> {
    let path = std::ffi::CString::new(path)?;
    let attr = [path.as_ptr() as u64, 0];
    // SAFETY: needed because there is no wrapper. The kernel reads the attributes, of the length given,
    // and the path, which ends with a zero; both outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, 7, attr.as_ptr(), size_of_val(&attr)) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: needed to own it. The kernel has just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd)?) })
}

/// The AF_XDP socket of this process: the library's descriptor is one to wait for.
fn own_socket() -> Result<OwnedFd> {
    for file in fs::read_dir("/proc/self/fd")? {
        let number = file?.file_name().to_string_lossy().parse()?;
        // SAFETY: needed because descriptors come as numbers. It is borrowed for a call of the kernel,
        // which refuses a number that is none.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        if rustix::net::sockopt::socket_domain(fd) == Ok(AddressFamily::XDP) {
            return Ok(fd.try_clone_to_owned()?);
        }
    }
    Err("no AF_XDP socket".into())
}

fn option_of(socket: &OwnedFd, option: i32) -> i32 {
    let mut value = 0_i32;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: needed because there is no wrapper. The kernel writes a value of the length given.
    unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    value
}

fn connect(path: impl AsRef<std::path::Path>) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path.as_ref())?)?;
    Ok(socket)
}

/// A reply; `end` at the end of the connection.
fn ask(
    connection: &OwnedFd,
    request: &[u8],
    fds: &[std::os::fd::BorrowedFd<'_>],
) -> Result<(String, Option<OwnedFd>)> {
    let left = |errno: &rustix::io::Errno| {
        matches!(
            *errno,
            rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET
        )
    };
    match send(connection.as_fd(), request, fds) {
        Err(errno) if left(&errno) => return Ok(("end".into(), None)),
        sent => sent?,
    }
    let (reply, mut fds) = match receive(connection.as_fd(), 128) {
        Err(errno) if left(&errno) => return Ok(("end".into(), None)),
        received => received?,
    };
    let reply = if reply.is_empty() {
        "end".to_owned()
    } else {
        String::from_utf8(reply)?
    };
    Ok((reply, fds.pop()))
}

/// Returns packets to their sender until there is none for a time.
fn echo(socket: &mut Socket, millis: u64) -> Result<usize> {
    let mut count = 0;
    while socket.wait(Duration::from_millis(millis) * scale())? {
        let mut batch = socket.recv(64);
        while let Some(mut packet) = batch.next_packet() {
            count += 1;
            if let Some((to, from)) = packet.get_mut(..12).map(|macs| macs.split_at_mut(6)) {
                to.swap_with_slice(from);
                let _ = packet.send();
            }
        }
        drop(batch);
        socket.flush()?;
    }
    Ok(count)
}

/// A client of the broker's in a lab.
struct Client(Process);

impl Client {
    fn start(lab: &Lab, queue: u32) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command
            .env(crate::roles::ROLE, "plugin")
            .arg(lab.path("plugin/wan0/afxdp.sock"))
            .args(["wan0", &queue.to_string()]);
        let mut client = Self(start_in(&lab.namespace, &mut command)?);
        let line = client.0.line()?;
        match line.as_str() {
            "bound" => Ok(client),
            _ => Err(line.into()),
        }
    }

    fn say(&mut self, words: &str) -> Result<String> {
        self.0.say(words)?;
        Ok(self.0.line()?)
    }

    /// Says each, and compares the answers.
    fn talk(&mut self, lines: &[(&str, &str)]) -> Result<()> {
        for (words, expected) in lines {
            let answer = self.say(words)?;
            if answer != *expected {
                return Err(format!("{words}: {answer}, not {expected}").into());
            }
        }
        Ok(())
    }

    /// The requests of DPDK's driver, in its order.
    fn ask_as_dpdk(&mut self) -> Result<()> {
        self.talk(&[
            ("connect", "connected"),
            ("ask /connect,pod-7", "/host_ok"),
            ("ask /version", "0.1"),
            ("ask /xsk_map_fd,wan0", "/fd_ack with a map"),
            ("ask /fin", "/fin_ack"),
            ("ask /fin", "end"),
            ("leave", "left"),
            ("insert", "inserted"),
        ])
    }

    /// Echoes frames of the peer; how many came back.
    fn serve(&mut self, peer: &mut Socket, count: u32) -> Result<usize> {
        self.0.say("echo 300")?;
        let back = round_trips(peer, 0x88b5, 0..count)?;
        let line = self.0.line()?;
        if line != format!("count {count}") {
            println!("the client: {line}");
        }
        Ok(back)
    }
}

fn dpdk_asks_once_a_queue() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, POLICY)?;
    assert_eq!(lab.programs(), [""; 0], "nobody has asked");
    let mut clients = [Client::start(&lab, 0)?, Client::start(&lab, 1)?];
    for (queue, client) in (0..).zip(&mut clients) {
        client.ask_as_dpdk()?;
        let mut peer = peer(&lab, queue)?;
        assert_eq!(client.serve(&mut peer, 100)?, 100, "queue {queue}");
    }
    let status = broker.status()?;
    let leases = status["leases"].as_array().ok_or("leases")?;
    assert_eq!(leases.len(), 1, "{leases:?}");
    assert_eq!(leases[0]["tenant"], "dpdk");
    assert_eq!(leases[0]["whole_device"], true);
    assert_eq!(leases[0]["mode"], "drv");
    let [first, mut second] = clients;
    drop(first);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(broker.leases(), 1, "the other queue has a socket");
    second.0.kill()?;
    assert!(wait_until(|| broker.leases() == 0), "{}", broker.log());
    assert!(
        wait_until(|| lab.programs().is_empty()),
        "{:?}",
        lab.programs()
    );
    broker.stop()
}

fn cndp_keeps_its_connection() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, POLICY)?;
    let mut client = Client::start(&lab, 1)?;
    client.talk(&[
        ("connect", "connected"),
        ("ask /connect,pod-7", "/host_ok"),
        ("ask /xsk_map_fd,wan0", "/fd_ack with a map"),
        // For its next port.
        ("ask /xsk_map_fd,wan0", "/fd_ack with a map"),
        ("insert", "inserted"),
        ("configure /config_busy_poll,20,64", "/config_busy_poll_ack"),
    ])?;
    let mut peer = peer(&lab, 1)?;
    assert_eq!(client.serve(&mut peer, 50)?, 50);
    client.talk(&[("close", "closed")])?;
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(broker.leases(), 1, "the connection keeps it");
    client.talk(&[("ask /fin", "/fin_ack"), ("ask /fin", "end")])?;
    // The kernel has shown its socket, so it shows that it is gone.
    if shows_sockets() {
        assert!(wait_until(|| broker.leases() == 0), "{}", broker.log());
    }
    client.0.finish()?;
    assert!(wait_until(|| broker.leases() == 0), "{}", broker.log());
    broker.stop()
}

fn a_device_that_is_down_is_still_its_tenants() -> Result<()> {
    let set = |lab: &Lab, state: &str| -> Result<()> {
        let mut ip = Command::new("ip");
        let ip = ip.args(["link", "set", "wan0", state]);
        let mut ip = hostnet::netns::spawn(lab.namespace.as_fd(), ip)
            .map_err(|error| Skip::new(format!("needs ip of iproute2: {error}")))?;
        assert!(ip.wait()?.success());
        Ok(())
    };
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, POLICY)?;
    let mut client = Client::start(&lab, 1)?;
    client.ask_as_dpdk()?;
    set(&lab, "down")?;
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((broker.leases(), lab.programs().len()), (1, 1));
    set(&lab, "up")?;
    let mut peer = peer(&lab, 1)?;
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    broker.stop()
}

/// Linux 6.15 and later.
fn shows_sockets() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|it| it.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

fn busy_polling_is_set_within_the_grant() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, POLICY)?;
    let mut client = Client::start(&lab, 0)?;
    client.talk(&[
        ("connect", "connected"),
        ("ask /connect,pod", "/host_ok"),
        ("configure /config_busy_poll,20,64", "/config_busy_poll_nak"),
        ("ask /xsk_map_fd,wan0", "/fd_ack with a map"),
        ("ask /config_busy_poll,20,64", "/config_busy_poll_nak"),
        ("busy", "busy [0, 0]"),
        ("configure /config_busy_poll,5,32", "/config_busy_poll_ack"),
        ("busy", "busy [1, 5]"),
        (
            "configure /config_busy_poll,4000000000,65535",
            "/config_busy_poll_ack",
        ),
        ("busy", "busy [1, 20]"),
    ])?;
    broker.stop()
}

fn without_a_grant_busy_polling_is_refused() -> Result<()> {
    let lab = Lab::new(2)?;
    let policy = POLICY.replace("busy-poll", "#busy-poll");
    let broker = Broker::start(&lab, &policy)?;
    let mut client = Client::start(&lab, 0)?;
    client.talk(&[
        ("connect", "connected"),
        ("ask /connect,pod", "/host_ok"),
        ("ask /xsk_map_fd,wan0", "/fd_ack with a map"),
        ("configure /config_busy_poll,5,32", "/config_busy_poll_nak"),
        ("busy", "busy [0, 0]"),
        // CNDP goes on.
        ("ask /xsk_map_fd,wan0", "/fd_ack with a map"),
    ])?;
    broker.stop()
}

fn a_refusal_ends_the_connection() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, POLICY)?;
    let mut client = Client::start(&lab, 0)?;
    for (request, reply) in [
        ("/xsk_map_fd,lo", "/fd_nak"),
        ("/xsk_map_fd,none0", "/fd_nak"),
        ("/xsk_map_fd,../../etc", "/nak"),
        ("/xsk_socket", "/nak"),
        ("/connect,pod", "/nak"),
    ] {
        client.talk(&[
            ("connect", "connected"),
            ("ask /connect,pod", "/host_ok"),
            (&format!("ask {request}"), reply),
            ("ask /version", "end"),
        ])?;
    }
    for first in ["/version", "/xsk_map_fd,wan0", "/fin", "nonsense"] {
        client.talk(&[
            ("connect", "connected"),
            (&format!("ask {first}"), "/host_nak"),
            ("ask /connect,pod", "end"),
        ])?;
    }
    // Root is no tenant, whatever it calls itself.
    let connection = connect(lab.path("plugin/wan0/afxdp.sock"))?;
    assert_eq!(ask(&connection, b"/connect,pod-7", &[])?.0, "/host_nak");
    assert_eq!(ask(&connection, b"/connect,pod-7", &[])?.0, "end");
    assert_eq!(broker.leases(), 0);
    assert!(broker.logs("its uid is 0"), "{}", broker.log());
    broker.stop()
}

fn a_map_is_given_for_all_queues_or_not_at_all() -> Result<()> {
    let lab = Lab::new(3)?;
    let broker = Broker::start(&lab, POLICY)?;
    let mut client = Client::start(&lab, 0)?;
    client.talk(&[
        ("connect", "connected"),
        ("ask /connect,pod", "/host_ok"),
        ("ask /xsk_map_fd,wan0", "/fd_nak"),
        ("ask /version", "end"),
    ])?;
    let log = broker.log();
    assert!(log.contains("queue 2 is not granted"), "{log}");
    assert_eq!((broker.leases(), lab.programs().len()), (0, 0));
    broker.stop()
}

/// Two tenants on one device, which the policy's check does not let pass: as after a reload.
const SHARED: &str = r#"
[[tenant]]
name = "dpdk"
uid = 65534
gid = 65534
[[tenant.device]]
name = "wan0"
queues = "0-1"
lease = ["rx", "tx"]
plugin = true
"#;
const OTHER: &str = r#"
[[tenant]]
name = "other"
uid = 65534
gid = 65534
[[tenant.device]]
name = "wan0"
queues = "0-1"
lease = ["rx", "tx"]
memory = "1 MiB"
"#;

fn reload(broker: &Broker<'_>, policy: &str) -> Result<()> {
    let count = |broker: &Broker<'_>| broker.log().matches("\"event\":\"reload\"").count();
    let before = count(broker);
    fs::write(broker.lab.path("policy.toml"), policy)?;
    broker.process.signal(rustix::process::Signal::HUP)?;
    if wait_until(|| count(broker) > before) {
        Ok(())
    } else {
        Err(format!("no reload: {}", broker.log()).into())
    }
}

fn a_device_has_one_tenant() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, SHARED)?;
    let mut client = Client::start(&lab, 0)?;
    client.ask_as_dpdk()?;
    reload(&broker, OTHER)?;
    let mut refused = tenant(&lab, "hold", &["wan0", "1"])?;
    let line = refused.line()?;
    assert!(line.contains("wan0 is leased to dpdk as a whole"), "{line}");
    let mut refused = tenant(&lab, "hold", &["wan0", "any"])?;
    let line = refused.line()?;
    assert!(line.contains("wan0 is leased to dpdk as a whole"), "{line}");
    client.0.kill()?;
    assert!(wait_until(|| broker.leases() == 0));
    let mut hold = tenant(&lab, "hold", &["wan0", "1"])?;
    let line = hold.line()?;
    assert!(line.starts_with("ready"), "{line}");
    reload(&broker, SHARED)?;
    let mut client = Client::start(&lab, 0)?;
    client.talk(&[
        ("connect", "connected"),
        ("ask /connect,pod", "/host_ok"),
        ("ask /xsk_map_fd,wan0", "/fd_nak"),
    ])?;
    let log = broker.log();
    assert!(log.contains("queue 1 of wan0 is leased to other"), "{log}");
    hold.kill()?;
    assert!(wait_until(|| broker.leases() == 0));
    client.ask_as_dpdk()?;
    broker.stop()
}

fn a_map_that_was_given_away_is_not_used_again() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, SHARED)?;
    let mut former = Client::start(&lab, 1)?;
    former.ask_as_dpdk()?;
    let mut peer_of_1 = peer(&lab, 1)?;
    assert_eq!(former.serve(&mut peer_of_1, 20)?, 20);
    drop(peer_of_1);
    // The former tenant keeps the map.
    former.talk(&[("close", "closed")])?;
    former.0.say("connect")?;
    if !shows_sockets() {
        former.0.kill()?;
    }
    assert!(wait_until(|| broker.leases() == 0), "{}", broker.log());
    reload(&broker, OTHER)?;
    let programs = lab.programs();
    let mut hold = tenant(&lab, "echo", &["wan0", "0"])?;
    let line = hold.line()?;
    assert!(line.starts_with("ready"), "{line}");
    assert_ne!(
        lab.programs(),
        programs,
        "the program of the former map is gone"
    );
    let mut peer_of_0 = peer(&lab, 0)?;
    assert_eq!(round_trips(&mut peer_of_0, 0x88b5, 0..20)?, 20);
    broker.stop()
}

fn the_filter_holds_for_a_given_map() -> Result<()> {
    let lab = Lab::new(2)?;
    let filter = "plugin = true\nfilter = { protocol = 0x88b6 }";
    let broker = Broker::start(&lab, &SHARED.replace("plugin = true", filter))?;
    let mut client = Client::start(&lab, 1)?;
    client.ask_as_dpdk()?;
    let mut peer = peer(&lab, 1)?;
    client.0.say("echo 500")?;
    assert_eq!(round_trips(&mut peer, 0x88b5, 0..5)?, 0);
    assert_eq!(client.0.line()?, "count 0");
    client.0.say("echo 500")?;
    assert_eq!(round_trips(&mut peer, 0x88b6, 0..5)?, 5);
    assert_eq!(client.0.line()?, "count 5");
    broker.stop()
}

fn clients_outlive_the_broker() -> Result<()> {
    let lab = Lab::new(2)?;
    let mut broker = Broker::start(&lab, POLICY)?;
    let mut client = Client::start(&lab, 1)?;
    client.ask_as_dpdk()?;
    let mut peer = peer(&lab, 1)?;
    broker.process.kill()?;
    assert_eq!(client.serve(&mut peer, 20)?, 20, "without a broker");
    let mut broker = Broker::again(&lab)?;
    assert_eq!(broker.leases(), 1);
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    // It is the same map.
    client.ask_as_dpdk()?;
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    broker.process.signal(rustix::process::Signal::TERM)?;
    broker.process.wait()?;
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    let broker = Broker::again(&lab)?;
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    client.0.kill()?;
    assert!(wait_until(|| broker.leases() == 0));
    assert!(wait_until(|| lab.programs().is_empty()));
    broker.stop()
}

fn what_ended_while_no_broker_ran_is_detached() -> Result<()> {
    let lab = Lab::new(2)?;
    let mut broker = Broker::start(&lab, POLICY)?;
    let mut client = Client::start(&lab, 1)?;
    client.ask_as_dpdk()?;
    broker.process.kill()?;
    client.0.kill()?;
    let broker = Broker::again(&lab)?;
    assert!(wait_until(|| broker.leases() == 0));
    assert!(wait_until(|| lab.programs().is_empty()));
    broker.stop()
}

fn hostile_clients_hold_up_nobody() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, POLICY)?;
    let path = lab.path("plugin/wan0/afxdp.sock");
    let own = fs::File::open("/proc/self/exe")?;
    let long = vec![b'a'; 5000];
    let fds = [own.as_fd(); 4];
    for (message, fds) in [
        (&long[..], &fds[..0]),
        (b"/connect,\xff\xfe", &[]),
        (b"\0", &[]),
        (b"/config_busy_poll,1,1", &fds),
    ] {
        let connection = connect(&path)?;
        assert_eq!(ask(&connection, message, fds)?.0, "/host_nak");
    }
    let silent: Vec<_> = (0..300).map(|_| connect(&path)).collect::<Result<_>>()?;
    let mut limit = Limit::new(Duration::from_secs(5));
    broker.status()?;
    assert!(!limit.is_over());
    let mut client = Client::start(&lab, 0)?;
    client.ask_as_dpdk()?;
    drop(silent);
    broker.stop()
}

fn sockets_are_where_clients_look() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, POLICY)?;
    let file = lab.path("plugin/wan0/afxdp.sock");
    let mode =
        |path: &std::path::Path| Ok::<_, std::io::Error>(fs::metadata(path)?.permissions().mode());
    assert_eq!(mode(&file)? & 0o777, 0o666);
    assert_eq!(mode(&lab.path("plugin/wan0"))? & 0o777, 0o755);
    assert!(!exists(&lab.path("plugin/lo")), "its map is not given out");
    broker.stop()?;
    assert!(!exists(&lab.path("plugin/wan0")));
    fs::set_permissions(lab.path("plugin"), fs::Permissions::from_mode(0o777))?;
    let output = Broker::command(&lab).output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains("that the broker's user alone can write to"),
        "{words}"
    );
    Ok(())
}

fn a_new_device_needs_a_restart() -> Result<()> {
    let lab = Lab::new(2)?;
    let broker = Broker::start(&lab, OTHER)?;
    fs::write(lab.path("policy.toml"), SHARED)?;
    broker.process.signal(rustix::process::Signal::HUP)?;
    let told = || {
        broker
            .log()
            .contains("wan0 has no socket for clients of the device plugin yet")
    };
    assert!(wait_until(told), "{}", broker.log());
    broker.stop()
}

fn a_pinned_map_is_opened_without_asking() -> Result<()> {
    let lab = Lab::new(2)?;
    let policy = POLICY.replace("plugin = true", "plugin = true\npinned-map = true");
    let mut broker = Broker::start(&lab, &policy)?;
    let path = lab.path("plugin/wan0/xsks_map");
    let open = format!("open {}", path.display());
    assert_eq!((broker.leases(), lab.programs().len()), (1, 1));
    let mut client = Client::start(&lab, 1)?;
    client.talk(&[(&open, "opened"), ("insert", "inserted")])?;
    let mut peer = peer(&lab, 1)?;
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    // It is the map that the socket gives as well.
    client.ask_as_dpdk()?;
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    assert_eq!(broker.leases(), 1);
    let file = fs::metadata(&path)?;
    assert_eq!((file.uid(), file.mode() & 0o777), (65534, 0o600));
    // Another user cannot open it, nor find its name.
    let link = fs::read_link(&path)?;
    for words in [["cat"], ["ls"]]
        .iter()
        .zip([Some(link.as_path()), link.parent()])
    {
        let ([program], Some(argument)) = words else {
            return Err("a directory".into());
        };
        let output = Command::new(program).arg(argument).uid(1).gid(1).output()?;
        let words = String::from_utf8(output.stderr)?;
        assert!(words.contains("Permission denied"), "{program}: {words}");
    }
    // A restart keeps it, and the end of its user does not end it.
    broker.process.kill()?;
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    let broker = Broker::again(&lab)?;
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    client.0.kill()?;
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((broker.leases(), lab.programs().len()), (1, 1));
    let mut client = Client::start(&lab, 1)?;
    client.talk(&[(&open, "opened"), ("insert", "inserted")])?;
    assert_eq!(client.serve(&mut peer, 20)?, 20);
    client.0.kill()?;
    // The kernel takes a closed socket off the queue with a delay.
    let has_socket = || {
        lab.at_broker(|| {
            let device = xsk::Device::lookup("wan0").expect("the device");
            hostnet::genetlink::netdev::queue_has_xsk(device.index, 1).expect("the queue")
        })
    };
    assert!(wait_until(|| !has_socket()));
    broker.stop()?;
    assert!(!exists(&path) && !exists(&link));
    assert_eq!(lab.programs(), [""; 0]);
    Ok(())
}

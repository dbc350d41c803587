//! What one tenant can make the broker keep, and wait for.
#![allow(unsafe_code)] // mappings, and calls with pointers into a file that is never read.

use crate::ensure;
use crate::fuse::Fuse;
use crate::lab::{Broker, Lab, NOBODY, neighbour, tenant, tenant_of, wait_until};
use crate::roles::wanted;
use crate::supervised::{Result, Start, Supervised, address, call};
use broker::budget::Budget;
use broker::confine::worker::{Kind, Program, Worker};
use broker::identity::Identity;
use broker::message;
use broker::policy::Limits;
use broker::supervise::handlers::af_xdp::{self, AfXdp, Queues, Taken};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Limit, Process, Test, tests};

pub fn tests() -> Vec<Test> {
    tests![
        memory_counts_until_no_part_of_it_is_kept,
        the_broker_stops_whatever_callers_do,
        without_descriptors_peers_are_turned_away,
        an_executable_that_nobody_serves_holds_up_nobody,
        objects_count_for_their_tenant_after_the_session,
        a_tenant_has_two_loads_at_a_time,
        request_figures,
    ]
}

/// Leases of half of the tenant's memory.
const MEMORY: &str = "
[[tenant]]
name = \"hoarder\"
uid = [65534]
leases = 64
memory-total = \"1 MiB\"
[[tenant.device]]
name = \"wan0\"
queues = \"0\"
lease = [\"rx\"]
modes = [\"drv\", \"skb\"]
memory = \"1 MiB\"
";

/// How a tenant keeps memory of leases whose sockets it has closed, and leases that its memory is enough for.
const WAYS: [&str; 7] = [
    "descriptor",
    "mapping",
    "message",
    "pipe",
    "seal",
    "hole",
    "refilled hole",
];

fn memory_counts_until_no_part_of_it_is_kept() -> Result<()> {
    for way in WAYS {
        let lab = Lab::new(1)?;
        let broker = Broker::start(&lab, MEMORY)?;
        let mut hoarder = tenant(&lab, "hoard", &[way])?;
        hoarder
            .expect("kept 2")
            .map_err(|error| format!("{way}: {error}: {}", broker.log()))?;
        // All of the broker's descriptors and pages are those of two.
        ensure!(broker.leases() == 0, "{way}: {}", broker.log());
        hoarder.say("release")?;
        // A seal of the tenant's own leaves nothing that could be shown, nor does a hole.
        let for_good = way == "seal" || way.ends_with("hole");
        let after = if for_good { "kept 0" } else { "kept 1" };
        hoarder.expect(after)?;
        hoarder.finish()?;
        broker.stop()?;
    }
    Ok(())
}

/// A lease without its socket: the descriptor of its memory, or the refusal.
fn memory_of_a_lease() -> Result<Result<OwnedFd, String>> {
    let broker = std::env::var("WEIR_BROKER")?;
    let socket = message::connect_to(broker.as_ref())?;
    let request =
        "weir 2 socket\ndevice=wan0\nlease=rx\nchunks=256\nchunk-size=2048\nrings=64\nwait=poll\n";
    message::send(socket.as_fd(), request.as_bytes(), &[])?;
    let (reply, mut fds) = crate::rogue::reply(&socket)?;
    if !reply.starts_with(b"ok") {
        return Ok(Err(String::from_utf8_lossy(&reply).into_owned()));
    }
    ensure!(fds.len() == 2, "{fds:?}");
    Ok(Ok(fds.swap_remove(1)))
}

/// Memory that is kept.
#[expect(dead_code, reason = "they are held, not read")]
enum Kept {
    Descriptor(OwnedFd),
    /// In a message that is on its way, or a page of it in a pipe.
    Elsewhere(OwnedFd, OwnedFd),
    Mapping,
}

const BYTES: usize = 256 * 2048;

fn keep(way: &str, memory: OwnedFd) -> Result<Kept> {
    use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals};
    use rustix::pipe::{SpliceFlags, pipe, splice};
    Ok(match way {
        "descriptor" => Kept::Descriptor(memory),
        "mapping" => {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: needed to keep it; the kernel chooses a free place, and nothing reads it.
            unsafe {
                mmap(
                    std::ptr::null_mut(),
                    BYTES,
                    protection,
                    MapFlags::SHARED,
                    &memory,
                    0,
                )
            }?;
            Kept::Mapping
        }
        "message" => {
            let (here, there) = std::os::unix::net::UnixDatagram::pair()?;
            message::send(here.as_fd(), b"memory", &[memory.as_fd()])?;
            Kept::Elsewhere(here.into(), there.into())
        }
        "pipe" | "hole" | "refilled hole" => {
            let (read, write) = pipe()?;
            splice(
                &memory,
                Some(&mut 0),
                &write,
                None,
                4096,
                SpliceFlags::empty(),
            )?;
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if way != "pipe" {
                fallocate(&memory, punch, 0, 4096)?;
            }
            if way == "refilled hole" {
                fallocate(&memory, FallocateFlags::empty(), 0, 4096)?;
            }
            Kept::Elsewhere(read, write)
        }
        "seal" => {
            fcntl_add_seals(&memory, SealFlags::SEAL)?;
            Kept::Mapping
        }
        _ => return Err(format!("no way {way}").into()),
    })
}

/// Role `WAY`: keeps memory until no more is lent, and prints how many; after a line, of how many there is
/// room again.
pub fn hoard(arguments: &[String]) -> Result<()> {
    let way = arguments.first().ok_or("WAY")?;
    let told = wanted();
    let mut kept = Vec::new();
    let fill = |kept: &mut Vec<Kept>, most: usize| -> Result<()> {
        // A queue is free a moment after its socket's last close, and so is memory.
        let mut refusals = 0;
        while kept.len() < most && refusals < 60 {
            match memory_of_a_lease()? {
                Ok(memory) => {
                    kept.push(keep(way, memory)?);
                    refusals = 0;
                }
                Err(refusal) if refusal.contains("leased") || refusal.contains(" of its ") => {
                    refusals += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Ok(())
    };
    fill(&mut kept, 8)?;
    println!("kept {}", kept.len());
    told.recv()?;
    kept.clear();
    // Also the mappings: all of this process's that are of the memory.
    unmap_all()?;
    fill(&mut kept, 1)?;
    println!("kept {}", kept.len());
    let _ = told.recv();
    Ok(())
}

fn unmap_all() -> Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for line in maps.lines().filter(|line| line.contains("memfd:xsk-umem")) {
        let range = line.split_once(' ').ok_or("a range")?.0;
        let (start, end) = range.split_once('-').ok_or("a range")?;
        let start = usize::from_str_radix(start, 16)?;
        let len = usize::from_str_radix(end, 16)? - start;
        let at = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: needed to give it back; nothing in this process refers to it.
        unsafe { rustix::mm::munmap(at, len) }?;
    }
    Ok(())
}

/// All grants that have calls which can wait.
const SUPERVISED: &str = "
[[tenant]]
name = \"waits\"
uid = [65534]
[[tenant.device]]
name = \"wan0\"
queues = \"0\"
lease = [\"rx\", \"tx\"]
[tenant.calls]
af-xdp = true
bpf-cgroup-device = true
connect = [ { from = \"192.0.2.1:80\", to = [\"127.0.0.1:1\"] } ]
mknod = [\"null\"]
mount = { filesystems = [\"tmpfs\"] }
sched-setscheduler = 10
setxattr = true
";

/// Each wait that a caller controls, one of each handler at least, while the broker stops: of connections for
/// their other side; of memory and paths for the filesystem that they lead to.
fn the_broker_stops_whatever_callers_do() -> Result<()> {
    let lab = Lab::new(1)?;
    let fuse = Fuse::mount(&lab.path("fuse"), NOBODY, vec![0; FILE])?;
    add_silent_host(&lab)?;
    let broker = Broker::start(&lab, SUPERVISED)?;
    let mut unread = UnreadPeer::new(&lab)?;
    let directory = lab.path("fuse").display().to_string();
    let mut children = Vec::new();
    for at in 0..WAITS.len() {
        let mut child = neighbour(&lab, "waits", &[&directory, &at.to_string()])?;
        child.expect("ready")?;
        children.push(child);
    }
    fuse.freeze();
    for child in &mut children {
        child.say("go")?;
    }
    let expected = WAITS.len();
    // The connection is the kernel's; of two paths in one directory the filesystem is asked for one at a time.
    let all_wait = || {
        let tables = lab.at_broker(|| std::fs::read_to_string("/proc/thread-self/net/tcp"));
        // SYN_SENT
        let connecting = tables.is_ok_and(|table| table.contains(" 02 "));
        fuse.waiting() >= expected - 2 && connecting
    };
    ensure!(
        wait_until(all_wait),
        "{} of {expected} wait: {}",
        fuse.waiting(),
        broker.log()
    );
    unread.ask()?;
    let mut limit = Limit::new(Duration::from_secs(5));
    let began = Instant::now();
    let Broker { mut process, .. } = broker;
    process.signal(Signal::TERM)?;
    process.wait()?;
    println!("stopped after {:?}", began.elapsed());
    ensure!(!limit.is_over(), "it took {:?}", began.elapsed());
    for (child, (name, _)) in children.iter_mut().zip(WAITS) {
        let result = child.line()?;
        ensure!(result == (-libc::EINTR).to_string(), "{name}: {result}");
    }
    Ok(())
}

/// A host at 10.77.0.9 that answers no SYN.
fn add_silent_host(lab: &Lab) -> Result<()> {
    for arguments in [
        "addr add 10.77.0.1/24 dev wan0",
        "neigh add 10.77.0.9 lladdr 02:00:00:00:00:99 dev wan0",
    ] {
        let mut command = std::process::Command::new("ip");
        let status = lab.at_broker(|| command.args(arguments.split(' ')).status())?;
        ensure!(status.success(), "ip {arguments}: {status}");
    }
    Ok(())
}

/// A peer that never reads its replies.
struct UnreadPeer(OwnedFd);

impl UnreadPeer {
    fn new(lab: &Lab) -> Result<Self> {
        Ok(Self(message::connect_to(&lab.path("broker.sock"))?))
    }

    fn ask(&mut self) -> Result<()> {
        for _ in 0..8 {
            message::send(self.0.as_fd(), b"weir 2 socket\n", &[])?;
        }
        Ok(())
    }
}

/// Bytes of the file, and between two pages that are asked for.
const FILE: usize = 1 << 20;
const STEP: usize = 64 << 10;

/// A call that waits, with a page that is never read, and a path that is never found.
type Wait = fn(u64, &str) -> i64;

const WAITS: &[(&str, Wait)] = &[
    ("af_xdp bind", |page, _| {
        let socket = call(libc::SYS_socket, [libc::AF_XDP as u64, 3, 0, 0, 0]);
        call(libc::SYS_bind, [socket as u64, page, 16, 0, 0])
    }),
    ("af_xdp bpf", |page, _| {
        call(libc::SYS_bpf, [0, page, 72, 0, 0])
    }),
    ("bpf_cgroup_device", |page, _| {
        call(libc::SYS_bpf, [8, page, 16, 0, 0])
    }),
    ("connect address", |page, _| {
        let socket = call(libc::SYS_socket, [2, 1, 0, 0, 0]);
        call(libc::SYS_connect, [socket as u64, page, 16, 0, 0])
    }),
    ("connect peer", |_, _| {
        let mut sockaddr = [0_u8; 16];
        sockaddr[..2].copy_from_slice(&2_u16.to_ne_bytes());
        sockaddr[2..8].copy_from_slice(&[0, 80, 10, 77, 0, 9]);
        let socket = call(libc::SYS_socket, [2, 1, 0, 0, 0]);
        call(
            libc::SYS_connect,
            [socket as u64, address(&sockaddr), 16, 0, 0],
        )
    }),
    ("mknod memory", |page, _| {
        call(libc::SYS_mknodat, [AT_CWD, page, NULL_NODE, 0x103, 0])
    }),
    ("mknod path", |_, path| {
        let path = format!("{path}/mknod/node\0");
        let path = address(path.as_bytes());
        call(libc::SYS_mknodat, [AT_CWD, path, NULL_NODE, 0x103, 0])
    }),
    ("mount memory", |page, _| {
        call(libc::SYS_mount, [0, page, page, 0, 0])
    }),
    ("scheduler", |page, _| {
        call(libc::SYS_sched_setscheduler, [0, 1, page, 0, 0])
    }),
    ("setxattr memory", |page, _| {
        call(libc::SYS_setxattr, [page, page, page, 1, 0])
    }),
    ("setxattr path", |_, path| {
        let path = format!("{path}/setxattr\0");
        let name = c"trusted.overlay.opaque";
        let value = b"y";
        let args = [
            address(path.as_bytes()),
            address(name),
            address(value),
            1,
            0,
        ];
        call(libc::SYS_setxattr, args)
    }),
];

const AT_CWD: u64 = libc::AT_FDCWD as u64;
const NULL_NODE: u64 = (libc::S_IFCHR | 0o666) as u64;

/// Role `DIRECTORY NUMBER`: makes a call that waits, and prints its result.
pub fn waits(arguments: &[String]) -> Result<()> {
    let [directory, number] = arguments else {
        return Err("DIRECTORY NUMBER".into());
    };
    let number: usize = number.parse()?;
    let file = std::fs::File::open(PathBuf::from(directory).join("file"))?;
    // SAFETY: needed for a pointer into the file; nothing in this process reads it.
    let pages = unsafe {
        mmap(
            std::ptr::null_mut(),
            FILE,
            ProtFlags::READ,
            MapFlags::PRIVATE,
            &file,
            0,
        )
    }?;
    // SAFETY: needed so that each page is asked for by itself. The mapping is this process's own.
    unsafe { madvise(pages, FILE, Advice::Random) }?;
    let broker = std::env::var("WEIR_BROKER")?;
    broker::supervise::run::supervise(broker.as_ref(), None)?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let page = (pages.expose_provenance() + number * STEP) as u64;
    let (_, wait) = WAITS.get(number).ok_or("a call")?;
    println!("{}", wait(page, directory));
    std::io::stdin().read_line(&mut line)?;
    Ok(())
}

/// A tenant that may do nothing.
const SOMEBODY: &str = "
[[tenant]]
name = \"somebody\"
uid = [12345]
[tenant.calls]
sysinfo = true
";

/// A peer beyond the descriptors is turned away: the broker neither looks for it all the time nor is out of
/// reach afterwards.
fn without_descriptors_peers_are_turned_away() -> Result<()> {
    let lab = Lab::new(1)?;
    std::fs::write(lab.path("policy.toml"), SOMEBODY)?;
    let bare = Broker::command(&lab);
    let mut command = std::process::Command::new("prlimit");
    command.arg("--nofile=64:64").arg(bare.get_program());
    command.args(bare.get_args()).env("WEIR_BROKER_KILLS", "1");
    let broker = Broker::by(&lab, &mut command)?;
    let path = lab.path("broker.sock");
    let silent: Vec<_> = (0..80)
        .filter_map(|_| message::connect_to(&path).ok())
        .collect();
    ensure!(broker.logs("no-descriptors"), "{}", broker.log());
    let before = cpu_time(&broker.process)?;
    std::thread::sleep(Duration::from_secs(1));
    let spent = cpu_time(&broker.process)? - before;
    ensure!(spent < 50, "{spent} hundredths of a second of CPU");
    drop(silent);
    ensure!(wait_until(|| broker.status().is_ok()), "{}", broker.log());
    broker.stop()
}

/// CPU time of a process, in clock ticks.
fn cpu_time(process: &Process) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
    let fields = stat.rsplit_once(')').ok_or("a name")?.1;
    let mut fields = fields.split_whitespace().skip(11);
    let mut time = || fields.next().ok_or("a field");
    Ok(time()?.parse::<u64>()? + time()?.parse::<u64>()?)
}

/// A process whose executable is on a FUSE filesystem that answers no more is identified, and refused where its
/// bytes count.
fn an_executable_that_nobody_serves_holds_up_nobody() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("weir-fuse-{}", std::process::id()));
    let fuse = Fuse::mount(&directory, NOBODY, std::fs::read("/bin/sleep")?)?;
    let mut child = std::process::Command::new(directory.join("file"))
        .arg("60")
        .spawn()?;
    let pid = Pid::from_child(&child);
    let name = format!("/proc/{}/exe", child.id());
    let runs = || std::fs::read_link(&name).is_ok_and(|exe| exe.ends_with("file"));
    ensure!(wait_until(runs), "it does not run");
    fuse.freeze();
    let (sender, looked) = std::sync::mpsc::channel();
    // A thread that hangs ends with the filesystem.
    std::thread::spawn(move || {
        let identity = Identity::of_process(pid).map_err(|error| format!("{error:#}"));
        let hash = identity.map(|it| it.person().sha256().map_err(|error| error.to_string()));
        let _ = sender.send(hash);
    });
    let result = Limit::new(Duration::from_secs(10)).receive(&looked);
    drop(fuse);
    child.kill()?;
    child.wait()?;
    std::fs::remove_dir(&directory)?;
    let hash = result.map_err(|_| "the filesystem is waited for")??;
    let refusal = hash.err().ok_or("a hash of bytes that nobody has read")?;
    ensure!(refusal.contains("FUSE"), "{refusal}");
    Ok(())
}

/// Maps of a tenant.
const MAPS: u32 = 4;

/// Maps that a process keeps beyond the end of its session count, for all sessions of the tenant.
fn objects_count_for_their_tenant_after_the_session() -> Result<()> {
    for scene in ["keep_maps", "keep_btfs"] {
        objects_count(scene).map_err(|error| format!("{scene}: {error}"))?;
    }
    Ok(())
}

fn objects_count(scene: &'static str) -> Result<()> {
    let budget = Arc::new(Budget::new(&Limits {
        maps: MAPS,
        btfs: MAPS,
        ..Limits::default()
    }));
    let worker = Arc::new(Worker::start()?);
    let start = || -> Result<Supervised> {
        let queues = Arc::new(NoQueues);
        let handler = AfXdp::new(
            "test",
            &[],
            &[],
            queues,
            Arc::clone(&worker),
            Arc::clone(&budget),
        )?;
        let start = Start {
            scene,
            names: vec![af_xdp::NAME],
            wrapper: &[],
        };
        Supervised::start(&start, vec![Box::new(handler)])
    };
    let mut first = start()?;
    let line = first.line()?;
    let maps: Vec<i32> = line.split(' ').filter_map(|fd| fd.parse().ok()).collect();
    ensure!(maps.len() == MAPS as usize, "{line}");
    // Its own, as a process gets them that is not supervised.
    let process = pidfd_open(Pid::from_child(&first.child), PidfdFlags::empty())?;
    let kept: Vec<OwnedFd> = maps
        .iter()
        .map(|&fd| pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()))
        .collect::<std::result::Result<_, _>>()?;
    first.child.kill()?;
    first.wait_for_end()?;
    drop(first);
    let made = |mut child: Supervised| -> Result<usize> {
        let line = child.line()?;
        Ok(line.split(' ').filter(|fd| !fd.is_empty()).count())
    };
    ensure!(made(start()?)? == 0, "they do not count");
    drop(kept);
    ensure!(made(start()?)? == MAPS as usize, "they count for ever");
    Ok(())
}

struct NoQueues;

impl Queues for NoQueues {
    fn lend(
        &self,
        _: &str,
        _: &str,
        _: u32,
        _: BorrowedFd<'_>,
        _: u64,
    ) -> std::result::Result<u64, Errno> {
        Err(Errno::PERM)
    }

    fn begin(&self, _: u64, _: BorrowedFd<'_>) {}

    fn end(&self, _: u64) {}

    fn seize(&self, _: &Taken<'_>) {}
}

/// Scene: makes maps until one is refused, prints their descriptors, and keeps them.
pub fn keep_maps(_: &[&str]) -> Result<()> {
    // An XSKMAP of one queue.
    let mut attr = [0_u32; 18];
    attr[..4].copy_from_slice(&[17, 4, 4, 1]);
    keep_objects(0, &attr)
}

/// As long as they may be.
pub fn keep_btfs(_: &[&str]) -> Result<()> {
    let mut btf = vec![0_u8; 64 << 10];
    btf[..3].copy_from_slice(&[0x9f, 0xeb, 1]);
    let mut attr = [0_u64; 9];
    (attr[0], attr[2]) = (address(btf.as_slice()), btf.len() as u64);
    keep_objects(18, &attr)
}

/// Makes objects by a command of bpf(2) until it is refused, and prints their descriptors.
fn keep_objects<T>(command: u64, attr: &[T]) -> Result<()> {
    let mut maps = Vec::new();
    while maps.len() < 2 * MAPS as usize {
        let fd = call(libc::SYS_bpf, [command, address(attr), 72, 0, 0]);
        if fd < 0 {
            ensure!(fd == -i64::from(libc::ENOSPC), "{fd}");
            break;
        }
        maps.push(fd.to_string());
    }
    println!("{}", maps.join(" "));
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

/// However many programs a tenant has loaded, the helper process has two of its at a time.
fn a_tenant_has_two_loads_at_a_time() -> Result<()> {
    let worker = Worker::start()?;
    let instructions = long()?;
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| -> Result<usize> {
        let load = || {
            for _ in 0..3 {
                let program = Program {
                    kind: Kind::CgroupDevice,
                    instructions: &instructions,
                    maps: &[],
                    license: b"GPL",
                    name: [0; 16],
                    fragments: false,
                    log: false,
                };
                // It is refused or not, after some time.
                let _ = worker.load("hog", &program);
            }
        };
        let loads: Vec<_> = (0..6).map(|_| scope.spawn(load)).collect();
        let most = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(SeqCst) {
                most = most.max(children(worker.pid()));
            }
            most
        });
        for load in loads {
            load.join().map_err(|_| "no panic")?;
        }
        is_over.store(true, SeqCst);
        Ok(most.join().map_err(|_| "no panic")?)
    })?;
    println!("{most} at a time");
    // One that has answered may still be ending.
    ensure!((1..=3).contains(&most), "{most} at a time");
    Ok(())
}

/// Running children of a process. One that has ended is reaped at once.
fn children(parent: u32) -> usize {
    let runs = |process: &std::path::PathBuf| {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let mut fields = fields.split(' ');
        let runs = fields.next().is_some_and(|state| !"ZX".contains(state));
        runs && fields.next() == Some(parent.to_string().as_str())
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let seen: Vec<_> = processes.map(|it| it.path()).filter(runs).collect();
    // One may have ended before the last one began: those that run still have all run at once.
    seen.iter().filter(|process| runs(process)).count()
}

/// A program that the verifier takes a tenth of a second for: a loop over bits that it does not know.
fn long() -> Result<Vec<u8>> {
    let instruction = |code: u8, destination: u8, source: u8, offset: i16, immediate: i32| {
        let mut bytes = vec![code, destination | source << 4];
        bytes.extend(offset.to_le_bytes());
        bytes.extend(immediate.to_le_bytes());
        bytes
    };
    // r6 = access type; r7 = 0; r8 = 0.
    let mut program = vec![
        instruction(0x61, 6, 1, 0, 0),
        instruction(0xb7, 7, 0, 0, 0),
        instruction(0xb7, 8, 0, 0, 0),
    ];
    let start = program.len();
    for bit in 0..10 {
        // if r6 & bit: skip; r8 += bit
        program.push(instruction(0x45, 6, 0, 1, 1 << bit));
        program.push(instruction(0x07, 8, 0, 0, 1 << bit));
    }
    // r7 += 1; if r7 < 100000: again; return 1
    program.push(instruction(0x07, 7, 0, 0, 1));
    let back = -i16::try_from(program.len() + 1 - start)?;
    program.push(instruction(0xa5, 7, 0, back, 100_000));
    program.push(instruction(0xb7, 0, 0, 0, 1));
    program.push(instruction(0x95, 0, 0, 0, 0));
    Ok(program.concat())
}

/// Times of a tenant's requests alone and beside one that floods the broker, in alternating rounds.
fn request_figures() -> Result<()> {
    let lab = Lab::new(1)?;
    let policy = "
[[tenant]]
name = \"victim\"
uid = [65534]
[[tenant.device]]
name = \"wan0\"
queues = \"0\"
lease = [\"rx\", \"tx\"]
[[tenant]]
name = \"flood\"
uid = [12345]
[[tenant.device]]
name = \"wan1\"
queues = \"0\"
lease = [\"rx\", \"tx\"]
";
    let broker = Broker::start(&lab, policy)?;
    for round in 0..3 {
        println!("round {round}: alone: {}", median(&lab)?);
        // 1000 requests a second, and as many as four threads can make.
        for pause in ["16", "0"] {
            let mut flood = tenant_of(&lab, 12345, "rogue", &["flood", pause])?;
            flood.expect("ready")?;
            println!("round {round}: pause of {pause} ms: {}", median(&lab)?);
            flood.kill()?;
        }
    }
    broker.stop()
}

fn median(lab: &Lab) -> Result<String> {
    let mut victim = tenant(lab, "acquire", &["wan0", "0", "50", "64"])?;
    let line = victim.line()?;
    victim.finish()?;
    Ok(line)
}

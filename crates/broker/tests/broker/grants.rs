//! Each grant alone, with the daemon as its unit bounds it and as it confines itself: a right that one grant
//! needs must not come from another one that stands beside it.
//!
//! `cargo test -p weir-broker --test broker -- --nocapture each_grant_alone` prints the table.
#![allow(unsafe_code)] // Namespaces, and calls as a program makes them.

use crate::ensure;
use crate::lab::{Broker, Lab, NOBODY, tenant_command};
use crate::supervised::{Folder, Result, address, become_nobody, become_root_of_a_namespace, call};
use broker::message;
use broker::policy::{Calls, Mounts};
use broker::supervise::{filter, handlers};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{
    UnshareFlags, set_no_new_privs, set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::BufRead as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use testkit::{Process, Test, tests};

pub fn tests() -> Vec<Test> {
    tests![each_grant_alone]
}

/// A grant of the policy: its name in the table, its handler, its line, and a call that it answers.
struct Grant {
    name: &'static str,
    handler: &'static str,
    line: &'static str,
    probe: fn(&Path) -> Result<()>,
}

/// All grants of supervised calls.
fn grants() -> Vec<Grant> {
    // A new grant does not compile here before it has a row.
    let Calls {
        af_xdp: _,
        connect: _,
        mknod: _,
        mount: _,
        bpf_cgroup_device: _,
        setxattr: _,
        sysinfo: _,
        sched_setscheduler: _,
    } = Calls::default();
    let Mounts {
        filesystems: _,
        fuse: _,
    } = Mounts::default();
    let row = |name, handler, line, probe| Grant {
        name,
        handler,
        line,
        probe,
    };
    vec![
        row("af-xdp", "af_xdp", "af-xdp = true", probe_af_xdp),
        row(
            "af-xdp: memlock",
            "memory_lock",
            "af-xdp = true",
            probe_memory_lock,
        ),
        row(
            "connect",
            "connect",
            "connect = [ { from = \"192.0.2.1:80\", to = [\"127.0.0.1:PORT\"] } ]",
            probe_connect,
        ),
        row("mknod", "mknod", "mknod = [\"null\"]", probe_mknod),
        row(
            "mount: tmpfs",
            "mount",
            "mount = { filesystems = \"tmpfs\" }",
            probe_tmpfs,
        ),
        row(
            "mount: fuse",
            "mount",
            "mount = { fuse = { squashfs = \"/usr/bin/squashfuse\" } }",
            probe_fuse,
        ),
        row(
            "bpf-cgroup-device",
            "bpf_cgroup_device",
            "bpf-cgroup-device = true",
            probe_bpf,
        ),
        row("setxattr", "setxattr", "setxattr = true", probe_setxattr),
        row("sysinfo", "sysinfo", "sysinfo = true", probe_sysinfo),
        row(
            "sched-setscheduler",
            "sched_setscheduler",
            "sched-setscheduler = 10",
            probe_scheduler,
        ),
    ]
}

/// Where the tenant's process is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    /// In the host's user namespace, and a mount namespace that the host's root has made.
    Host,
    /// Root of user and mount namespaces of its own.
    Namespace,
    /// In a container of a runtime that another user runs.
    Rootless,
}

const PLACES: [(Place, &str); 3] = [
    (Place::Host, "host"),
    (Place::Namespace, "user namespace"),
    (Place::Rootless, "rootless runtime"),
];

/// Root of the container outside of it.
const CONTAINED: u32 = 100_000;

fn each_grant_alone() -> Result<()> {
    let grants = grants();
    let rows: BTreeSet<_> = grants.iter().map(|grant| grant.handler).collect();
    let handlers = handlers::RULES.iter().map(|(name, _)| *name);
    let handlers: BTreeSet<_> = handlers.filter(|name| *name != "filters").collect();
    ensure!(rows == handlers, "{rows:?} and {handlers:?}");
    println!(
        "{:20}{:20}{:20}{:20}",
        "GRANT ALONE", PLACES[0].1, PLACES[1].1, PLACES[2].1
    );
    let mut failed = Vec::new();
    for grant in &grants {
        let outcomes = in_all_places(grant)?;
        println!(
            "{:20}{:20}{:20}{:20}",
            grant.name, outcomes[0], outcomes[1], outcomes[2]
        );
        let bad = |it: &&String| *it != "ok" && !it.starts_with("skipped");
        if let Some(bad) = outcomes.iter().find(bad) {
            failed.push(format!("{}: {bad}", grant.name));
        }
    }
    ensure!(failed.is_empty(), "{failed:?}");
    Ok(())
}

fn in_all_places(grant: &Grant) -> Result<[String; 3]> {
    if grant.name == "mount: fuse" && !Path::new("/usr/bin/squashfuse").exists() {
        return Ok(["skipped: no squashfuse"; 3].map(str::to_owned));
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let line = grant
        .line
        .replace("PORT", &listener.local_addr()?.port().to_string());
    let device =
        "[[tenant.device]]\nname = \"wan0\"\nqueues = 0\nlease = \"rx\"\nmemory = \"1 MiB\"";
    let device = if grant.line == "af-xdp = true" {
        device
    } else {
        ""
    };
    let policy = format!(
        "[[tenant]]\nname = \"one\"\nuid = [{NOBODY}, {CONTAINED}]\nmemory-total = \"4 MiB\"\n{device}\n[tenant.calls]\n{line}\n"
    );
    let mut outcomes = Vec::new();
    for (place, _) in PLACES {
        let lab = Lab::new(1)?;
        std::fs::write(lab.path("policy.toml"), &policy)?;
        let mut command = bounded_as_the_unit(&Broker::command(&lab))?;
        let broker = Broker::by(&lab, &mut command)?;
        let outcome = in_place(&lab, grant, place)?;
        let Ok(status) = broker.status() else {
            // By its filter: see `Broker::command`.
            outcomes.push("the broker ended".to_owned());
            continue;
        };
        // The kernel's own answer would be none of the broker's.
        let answered = &status["calls"]["one"][grant.handler]["answered"];
        outcomes.push(if outcome == "ok" && answered.as_u64().unwrap_or(0) == 0 {
            "the kernel answered".to_owned()
        } else {
            outcome
        });
        broker.stop()?;
    }
    outcomes.try_into().map_err(|_| "three places".into())
}

/// The capabilities that the unit leaves, as far as this process has them, and `no_new_privs`.
fn bounded_as_the_unit(broker: &Command) -> Result<Command> {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/weir-broker.service"
    );
    let unit = std::fs::read_to_string(unit)?;
    let lines = unit
        .lines()
        .filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let has = rustix::thread::capabilities(None)?.permitted;
    let kept = lines
        .flat_map(str::split_whitespace)
        .filter_map(|name| {
            let name = name.strip_prefix("CAP_")?;
            let is_here = rustix::thread::CapabilitySet::from_name(name)
                .is_some_and(|capability| has.contains(capability));
            is_here.then(|| format!(",+{}", name.to_lowercase()))
        })
        .collect::<String>();
    ensure!(kept.contains("net_raw"), "{kept}");
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--bounding-set=-all{kept}"))
        .arg("--no-new-privs")
        .arg(broker.get_program())
        .args(broker.get_args());
    for (name, value) in broker.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    Ok(command)
}

/// The outcome of a grant's call in a place.
fn in_place(lab: &Lab, grant: &Grant, place: Place) -> Result<String> {
    let folder = Folder::new("grants")?;
    prepare(&folder, place)?;
    let own = folder.own().display().to_string();
    let place_name = format!("{place:?}");
    let arguments = [grant.name, &place_name, &own];
    // On the host it becomes the tenant itself.
    let user = if place == Place::Host { 0 } else { NOBODY };
    let mut command = tenant_command(lab, user, "probe", &arguments);
    let mut process = Process::start(&mut command)?;
    if place == Place::Rootless {
        let line = process.line()?;
        let Some(pid) = line.strip_prefix("unshared ") else {
            return Ok(line);
        };
        for map in ["uid_map", "gid_map"] {
            std::fs::write(format!("/proc/{pid}/{map}"), format!("0 {CONTAINED} 65536"))?;
        }
        process.say("mapped")?;
    }
    let outcome = process.line();
    process.close();
    let _ = process.wait()?;
    Ok(outcome.unwrap_or_else(|error| error.to_string()))
}

/// An image, and a directory of the caller's.
fn prepare(folder: &Folder, place: Place) -> Result<()> {
    let owner = if place == Place::Rootless {
        CONTAINED
    } else {
        NOBODY
    };
    std::fs::create_dir(folder.own().join("at"))?;
    if Path::new("/usr/bin/mksquashfs").exists() {
        std::fs::create_dir(folder.0.join("content"))?;
        let status = Command::new("mksquashfs")
            .args([&folder.0.join("content"), &folder.own().join("image")])
            .args(["-quiet", "-no-progress", "-all-root"])
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success());
        chown(folder.own().join("image"), Some(owner), Some(owner))?;
    }
    for path in [folder.own().join("at"), folder.own()] {
        chown(path, Some(owner), Some(owner))?;
    }
    Ok(())
}

/// Role `probe GRANT PLACE DIRECTORY`: makes the grant's call under supervision, and prints its outcome.
pub fn probe(arguments: &[String]) -> Result<()> {
    let [name, place, directory] = arguments else {
        return Err("GRANT PLACE DIRECTORY".into());
    };
    if place == "Rootless" {
        return runtime(name, directory);
    }
    if place == "Host" {
        // SAFETY: needed for a mount namespace of root's making; no descriptors are involved.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change(
            "/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )?;
        become_nobody()?;
    }
    let broker = std::env::var("WEIR_BROKER")?;
    broker::supervise::run::supervise(broker.as_ref(), None)?;
    if place == "Namespace" && !become_root_of_a_namespace()? {
        println!("skipped: no user namespaces");
        return Ok(());
    }
    tell(name, directory)
}

fn tell(name: &str, directory: &str) -> Result<()> {
    let grants = grants();
    let grant = grants.iter().find(|grant| grant.name == name);
    match (grant.ok_or("a grant")?.probe)(Path::new(directory)) {
        Ok(()) => println!("ok"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}

/// A container's runtime: starts its process, and tells the broker of it.
fn runtime(name: &str, directory: &str) -> Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let mut child = Command::new("/proc/self/exe")
        .env(crate::roles::ROLE, "contained")
        .args([name, directory])
        .stdin(Stdio::from(there))
        .spawn()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    message::send_text(&here, "mapped", None)?;
    let listener = message::receive_text(&here)?.fd.ok_or("a listener")?;
    let socket = std::os::unix::net::UnixStream::connect(std::env::var("WEIR_BROKER_OCI")?)?;
    let pid = child.id();
    let state = serde_json::json!({
        "ociVersion": "1.0.2", "fds": ["seccompFd"], "pid": pid, "metadata": "policy=one",
        "state": {"ociVersion": "1.0.2", "id": "box", "status": "creating", "pid": pid, "bundle": "/"},
    });
    message::send_text(&socket, &state.to_string(), Some(listener.as_fd()))?;
    drop(listener);
    message::send_text(&here, "go", None)?;
    child.wait()?;
    Ok(())
}

/// Role `contained GRANT DIRECTORY`: the first process of a container.
pub fn contained(arguments: &[String]) -> Result<()> {
    let [name, directory] = arguments else {
        return Err("GRANT DIRECTORY".into());
    };
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    // SAFETY: needed for namespaces. This process has one thread, and shares no descriptors.
    if unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }.is_err() {
        println!("skipped: no user namespaces");
        return Ok(());
    }
    println!("unshared {}", std::process::id());
    let socket = rustix::stdio::stdin();
    message::receive_text(socket)?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    set_no_new_privs(true)?;
    let handler = grants().into_iter().find(|grant| grant.name == name);
    let names = [handler.ok_or("a grant")?.handler, "filters"];
    let listener = broker::seccomp::install(&filter::program(handlers::rules(&names)))?;
    message::send_text(socket, "listener", Some(listener.as_fd()))?;
    drop(listener);
    message::receive_text(socket)?;
    tell(name, directory)
}

fn check(outcome: i64) -> Result<()> {
    if outcome < 0 {
        return Err(std::io::Error::from_raw_os_error(-outcome as i32).into());
    }
    Ok(())
}

fn probe_af_xdp(_: &Path) -> Result<()> {
    let family = libc::AF_XDP as u64;
    check(call(
        libc::SYS_socket,
        [family, libc::SOCK_RAW as u64, 0, 0, 0],
    ))
}

/// The grant is 4 MiB, so that it does not depend on a capability that this host may lack.
fn probe_memory_lock(_: &Path) -> Result<()> {
    let limits = [u64::MAX; 2];
    let memlock = u64::from(libc::RLIMIT_MEMLOCK);
    check(call(
        libc::SYS_setrlimit,
        [memlock, address(&limits), 0, 0, 0],
    ))
}

fn probe_connect(_: &Path) -> Result<()> {
    TcpStream::connect("192.0.2.1:80")?;
    Ok(())
}

fn probe_mknod(directory: &Path) -> Result<()> {
    let path = CString::new(directory.join("null").to_string_lossy().as_bytes())?;
    let here = libc::AT_FDCWD as u64;
    check(call(
        libc::SYS_mknodat,
        [here, address(path.as_c_str()), 0o20_666, 0x103, 0],
    ))
}

fn mount(source: &Path, at: &Path, kind: &str, flags: u64) -> Result<()> {
    let string = |text: &str| CString::new(text);
    let source = string(&source.to_string_lossy())?;
    let (at, kind) = (string(&at.to_string_lossy())?, string(kind)?);
    let [source, at, kind] = [&source, &at, &kind].map(|it| address(it.as_c_str()));
    check(call(libc::SYS_mount, [source, at, kind, flags, 0]))
}

fn probe_tmpfs(directory: &Path) -> Result<()> {
    mount(Path::new("none"), &directory.join("at"), "tmpfs", 0)
}

fn probe_fuse(directory: &Path) -> Result<()> {
    let (image, at) = (directory.join("image"), directory.join("at"));
    mount(&image, &at, "fuse.squashfs", libc::MS_RDONLY)?;
    std::fs::read_dir(at)?.for_each(drop);
    Ok(())
}

fn probe_bpf(_: &Path) -> Result<()> {
    // r0 = 1; exit
    let program = [0x0000_0001_0000_00b7_u64, 0x95];
    // A program for devices, of two instructions.
    let mut attr = [0_u64; 16];
    attr[0] = 15 | 2 << 32;
    attr[1] = address(&program);
    attr[2] = address(c"GPL");
    check(call(libc::SYS_bpf, [5, address(&attr), 128, 0, 0]))
}

fn probe_setxattr(directory: &Path) -> Result<()> {
    let path = CString::new(directory.to_string_lossy().as_bytes())?;
    let name = address(c"trusted.overlay.opaque");
    let args = [address(path.as_c_str()), name, address(c"y"), 1, 0];
    check(call(libc::SYS_setxattr, args))
}

fn probe_sysinfo(_: &Path) -> Result<()> {
    let info = [0_u64; 16].map(AtomicU64::new);
    check(call(libc::SYS_sysinfo, [address(&info), 0, 0, 0, 0]))
}

fn probe_scheduler(_: &Path) -> Result<()> {
    let priority = 5_i32;
    let fifo = libc::SCHED_FIFO as u64;
    check(call(
        libc::SYS_sched_setscheduler,
        [0, fifo, address(&priority), 0, 0],
    ))
}

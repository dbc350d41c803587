//! The broker's confinement, tried from inside: this program runs itself as a process that applies
//! it and then misbehaves. Each layer that is to refuse a deed is applied alone and has to; with no
//! layer the same deed is done.
#![allow(unsafe_code)] // system calls that no library offers, for the deeds.

use broker::confine::worker::{Kind, Program, Worker, name_map};
use broker::confine::{Layer, Needs, Paths, Refused, apply, apply_layers};
use hostnet::netns;
use hostnet::rtnetlink::Rtnetlink;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use testkit::{Error, Limit, Side, Test, join, skip};

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// First argument of this program when it is the process that misbehaves.
const ARGUMENT: &str = "--confined";
/// A capability that the process does not have from the start.
const WITHOUT: &str = "WEIR_TEST_WITHOUT";
const PATIENCE: Duration = Duration::from_secs(20);

/// Something that the broker has no business to do.
struct Deed {
    name: &'static str,
    /// The layers that each refuse it.
    by: &'static [Layer],
    /// Needs of the policy's grants meanwhile.
    needs: fn() -> Needs,
    run: fn(&Path) -> Result<(), Errno>,
}

/// The grants under which Landlock can be in force.
fn nothing() -> Needs {
    Needs::default()
}

/// The grants of leases and of all supervised calls but those on files.
fn supervision() -> Needs {
    Needs {
        processes: true,
        supervision: true,
        namespaces: true,
        connect: true,
        kill: true,
        scheduling: true,
        ..Needs::default()
    }
}

/// All grants.
fn all() -> Needs {
    Needs {
        files: true,
        devices: true,
        fuse: true,
        ..supervision()
    }
}

const DEEDS: &[Deed] = &[
    Deed {
        name: "reads_shadow",
        by: &[Layer::View, Layer::Landlock],
        needs: nothing,
        run: |_| open("/etc/shadow", OFlags::RDONLY),
    },
    Deed {
        name: "writes_to_etc",
        by: &[Layer::View, Layer::Landlock],
        needs: nothing,
        // A file without a name: it leaves nothing.
        run: |_| open("/etc", OFlags::TMPFILE | OFlags::WRONLY),
    },
    Deed {
        name: "reads_shadow_while_supervising",
        by: &[Layer::View],
        needs: supervision,
        run: |_| open("/etc/shadow", OFlags::RDONLY),
    },
    Deed {
        name: "reads_the_state_of_another_tenant",
        by: &[Layer::View, Layer::Landlock],
        needs: nothing,
        run: |directory| open(directory.join("other/state"), OFlags::RDONLY),
    },
    Deed {
        name: "writes_the_policy",
        by: &[Layer::View, Layer::Landlock],
        needs: nothing,
        run: |directory| open(directory.join("policy/broker.toml"), OFlags::WRONLY),
    },
    Deed {
        name: "executes_a_shell",
        by: &[Layer::View, Layer::Landlock, Layer::Filter],
        needs: nothing,
        run: |_| spawn(&mut Command::new("/bin/sh"), &["-c", "true"]).map(drop),
    },
    Deed {
        name: "takes_a_capability_back",
        by: &[Layer::Capabilities],
        needs: supervision,
        run: |_| take_capability(),
    },
    Deed {
        name: "becomes_another_user",
        by: &[Layer::Capabilities, Layer::Filter],
        needs: nothing,
        run: |_| rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(1)),
    },
    Deed {
        name: "is_given_capabilities_by_a_program",
        by: &[Layer::Capabilities],
        needs: supervision,
        run: |_| capabilities_of_a_program(),
    },
    Deed {
        name: "enters_a_user_namespace",
        by: &[Layer::Filter],
        needs: supervision,
        run: |_| unshare(libc::CLONE_NEWUSER),
    },
    Deed {
        name: "traces_another_process",
        by: &[Layer::Capabilities, Layer::Landlock, Layer::Filter],
        needs: nothing,
        run: |_| trace_parent(),
    },
    Deed {
        name: "opens_the_memory_of_another_process",
        by: &[Layer::Capabilities, Layer::Landlock],
        needs: nothing,
        run: |_| open(format!("/proc/{}/mem", parent()), OFlags::RDWR),
    },
    Deed {
        name: "makes_a_packet_socket",
        by: &[Layer::Filter],
        needs: supervision,
        run: |_| socket(libc::AF_PACKET, libc::SOCK_RAW, 0),
    },
    Deed {
        name: "makes_a_raw_socket",
        by: &[Layer::Filter],
        needs: supervision,
        run: |_| socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP),
    },
    Deed {
        name: "makes_a_tcp_socket",
        by: &[Layer::Filter],
        needs: supervision,
        run: |_| socket(libc::AF_INET, libc::SOCK_STREAM, 0),
    },
    Deed {
        name: "mounts",
        by: &[Layer::Capabilities, Layer::Landlock, Layer::Filter],
        needs: nothing,
        run: |_| {
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("tmpfs", "/proc/sys", "tmpfs", flags, None)
        },
    },
    Deed {
        name: "makes_a_device",
        by: &[Layer::Capabilities, Layer::Landlock, Layer::Filter],
        needs: nothing,
        run: |directory| {
            let path = directory.join("own/device");
            make_device(&path)?;
            rustix::fs::unlink(path)
        },
    },
    Deed {
        name: "is_dumpable",
        by: &[Layer::Process],
        needs: supervision,
        run: |_| match rustix::process::dumpable_behavior()? {
            rustix::process::DumpableBehavior::NotDumpable => Err(Errno::PERM),
            _ => Ok(()),
        },
    },
];

fn open(path: impl AsRef<Path>, flags: OFlags) -> Result<(), Errno> {
    openat(CWD, path.as_ref(), flags | OFlags::CLOEXEC, Mode::RUSR).map(drop)
}

fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

fn code(error: &std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Runs a program to its end; returns its output.
fn spawn(command: &mut Command, arguments: &[&str]) -> Result<Vec<u8>, Errno> {
    let output = command.args(arguments).stdin(Stdio::null()).output();
    output.map(|it| it.stdout).map_err(|error| code(&error))
}

fn take_capability() -> Result<(), Errno> {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut sets = capabilities(None)?;
    sets.permitted |= CapabilitySet::SYS_BOOT;
    sets.effective |= CapabilitySet::SYS_BOOT;
    set_capabilities(None, sets)
}

/// Root's programs get all of the bounding set, unless the securebits say otherwise.
fn capabilities_of_a_program() -> Result<(), Errno> {
    let status = spawn(&mut Command::new("/bin/cat"), &["/proc/self/status"])?;
    let none = b"CapEff:\t0000000000000000\n";
    if status.windows(none.len()).any(|it| it == none) {
        return Err(Errno::PERM);
    }
    Ok(())
}

fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 {
        return Err(code(&std::io::Error::last_os_error()));
    }
    Ok(result)
}

fn unshare(flags: libc::c_int) -> Result<(), Errno> {
    // SAFETY: needed to try it; this process has one thread.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// Without stopping it; it is let go when this process ends.
fn trace_parent() -> Result<(), Errno> {
    // SAFETY: needed to try it; no pointers.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, parent(), 0, 0) }).map(drop)
}

fn socket(domain: i32, kind: i32, protocol: i32) -> Result<(), Errno> {
    // SAFETY: needed to try it; no pointers. The socket lasts as long as this process.
    check(unsafe { libc::socket(domain, kind, protocol) }.into()).map(drop)
}

fn make_device(path: &Path) -> Result<(), Errno> {
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(
        CWD,
        path,
        rustix::fs::FileType::CharacterDevice,
        Mode::RUSR,
        device,
    )
}

/// The process's part of the tests: `--confined DEED DIRECTORY LAYER…`.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return None;
    }
    let name = arguments.next()?;
    let directory = PathBuf::from(arguments.next()?);
    let rest: Vec<_> = arguments.collect();
    let other = rest.first().and_then(|pid| pid.parse().ok());
    let layers: Vec<_> = rest.iter().filter_map(|name| layer(name)).collect();
    let outcome = match name.as_str() {
        "leaves_a_worker" => leaves_a_worker(),
        "goes_on_without_a_view" => goes_on_without_a_view(),
        "works" => works(&directory, nothing(), None),
        "works_on_files" => works(&directory, all(), other),
        "works_supervising" => works(&directory, supervision(), other),
        name => misbehave(name, &directory, &layers),
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn layer(name: &str) -> Option<Layer> {
    Layer::ALL
        .into_iter()
        .find(|layer| format!("{layer:?}") == name)
}

fn paths(directory: &Path, needs: &Needs) -> Paths {
    Paths::new(needs)
        .read(directory.join("policy"))
        .write(directory.join("own"))
}

fn misbehave(name: &str, directory: &Path, layers: &[Layer]) -> TestResult {
    // Its mounts, where nothing refuses them, end with it.
    own_mounts()?;
    let deed = DEEDS.iter().find(|deed| deed.name == name);
    let deed = deed.ok_or("no such deed")?;
    let needs = (deed.needs)();
    let report = apply_layers(layers, &paths(directory, &needs), &needs, Refused::Fails)?;
    for (layer, state) in &report.layers {
        if let broker::confine::State::Absent(missing) = state {
            println!("absent: {layer}: {missing}");
            return Ok(());
        }
    }
    match (deed.run)(directory) {
        Ok(()) => println!("done"),
        Err(errno) => println!("refused: {errno:?}"),
    }
    Ok(())
}

fn own_mounts() -> TestResult {
    use rustix::mount::{MountPropagationFlags, mount_change};
    unshare(libc::CLONE_NEWNS)?;
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags)?;
    Ok(())
}

/// In a root that cannot be left, as an initramfs cannot on older kernels.
fn goes_on_without_a_view() -> TestResult {
    use seccompiler::{SeccompAction, SeccompFilter};
    own_mounts()?;
    let calls = [(libc::SYS_pivot_root, vec![])].into_iter().collect();
    let refuses = SeccompAction::Errno(libc::EINVAL.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refuses, arch)?;
    let program: seccompiler::BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    std::env::set_current_dir("/proc")?;
    let needs = nothing();
    let report = apply_layers(&[Layer::View], &Paths::new(&needs), &needs, Refused::Fails)?;
    println!("{report}");
    fs::read("/proc/self/status")?;
    fs::read("self/status")?;
    match &report.layers[..] {
        [(_, broker::confine::State::Absent(missing))] if missing.contains("pivot_root") => Ok(()),
        _ => Err("it is there".into()),
    }
}

/// Does the work of the broker, in a process where a call that the filter lacks is the end.
fn works(directory: &Path, needs: Needs, other: Option<u32>) -> TestResult {
    if let Ok(name) = std::env::var(WITHOUT) {
        go_without(&name)?;
    }
    let worker = Worker::start()?;
    let program = other
        .map(|pid| fs::read_link(proc(pid, "exe")))
        .transpose()?;
    let groups = control_groups()?;
    let report = apply(&paths(directory, &needs), &needs, Refused::Kills)?;
    println!("{report}");
    std::thread::scope(|scope| {
        let work = scope.spawn(|| -> TestResult {
            files(directory)?;
            sockets(directory)?;
            packets()?;
            programs(&worker)?;
            if needs.supervision && groups.iter().any(|it| !it.join("cgroup.procs").exists()) {
                return Err(format!("not all of {groups:?} are seen").into());
            }
            if let (Some(other), Some(program)) = (other, &program) {
                if needs.files {
                    changes_files_of(other)?;
                }
                looks_into(other, program)?;
            }
            Ok(())
        });
        work.join().map_err(|_| "a thread panicked")?
    })
}

fn go_without(name: &str) -> TestResult {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let missing = CapabilitySet::from_name(name).ok_or("no such capability")?;
    let mut sets = capabilities(None)?;
    sets.permitted.remove(missing);
    sets.effective.remove(missing);
    sets.inheritable.remove(missing);
    set_capabilities(None, sets)?;
    Ok(())
}

/// Where hierarchies of control groups are mounted.
fn control_groups() -> TestResult<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let fields = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let groups = fields.filter(|fields| matches!(fields[..], [_, path, "cgroup" | "cgroup2", ..] if path.starts_with("/sys/fs/cgroup")));
    Ok(groups.map(|fields| fields[1].into()).collect())
}

/// Ends without a chance to end its worker.
fn leaves_a_worker() -> TestResult {
    let worker = Worker::start()?;
    println!("{}", worker.pid());
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL)?;
    Ok(())
}

/// A process of another user, which ends with this.
struct Other(Child);

impl Other {
    fn start() -> TestResult<Self> {
        let mut sleep = Command::new("sleep");
        sleep.arg("60").uid(65534).gid(65534).stdin(Stdio::null());
        Ok(Self(sleep.spawn()?))
    }

    /// In a mount namespace of its own.
    fn with_own_mounts() -> TestResult<Self> {
        let mut sleep = Command::new("unshare");
        sleep.args(["--mount", "sleep", "60"]).stdin(Stdio::null());
        let other = Self(sleep.spawn()?);
        let own = fs::read_link("/proc/self/ns/mnt")?;
        let mut end = Limit::new(PATIENCE);
        while fs::read_link(proc(other.0.id(), "ns/mnt"))? == own {
            if end.is_over() {
                return Err("unshare(1) is not through".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // The executable is asked for, too.
        std::thread::sleep(Duration::from_millis(50));
        Ok(other)
    }
}

fn proc(pid: u32, file: &str) -> PathBuf {
    format!("/proc/{pid}/{file}").into()
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn files(directory: &Path) -> TestResult {
    let own = directory.join("own");
    let mut file = fs::File::create(own.join("new"))?;
    file.write_all(b"state")?;
    file.sync_all()?;
    fs::rename(own.join("new"), own.join("state"))?;
    if fs::read(own.join("state"))? != b"state" {
        return Err("the state was not read back".into());
    }
    fs::read_to_string(directory.join("policy/broker.toml"))?;
    fs::read_to_string("/sys/class/net/lo/ifindex")?;
    for entry in fs::read_dir("/proc/self/fd")? {
        entry?;
    }
    Ok(())
}

fn sockets(directory: &Path) -> TestResult {
    use std::os::unix::net::{UnixListener, UnixStream};
    let path = directory.join("own/socket");
    let listener = UnixListener::bind(&path)?;
    let mut stream = UnixStream::connect(&path)?;
    let (mut accepted, _) = listener.accept()?;
    accepted.set_nonblocking(true)?;
    stream.write_all(b"x")?;
    accepted.read_exact(&mut [0])?;
    rustix::net::sockopt::socket_peercred(&accepted)?;
    fs::remove_file(path)?;
    Ok(())
}

/// From d1 to d0, through programs of the library.
fn packets() -> TestResult {
    use xsk::{Socket, Umem};
    let links = Rtnetlink::open()?.links()?;
    if !links.iter().any(|link| link.name == "d0") {
        return Err("d0 is not seen".into());
    }
    // More than the 8 MiB of RLIMIT_MEMLOCK.
    let umem = Umem::builder().chunks(8192).build()?;
    let mut rx = Socket::builder(&umem, "d0", 0).tx_ring(0).open()?;
    let mut tx = Socket::builder(&umem, "d1", 0).rx_ring(0).open()?;
    let mut end = Limit::new(PATIENCE);
    while !end.is_over() {
        let mut frame = tx.alloc().ok_or("no frame")?;
        frame.fill_with(&[0x5a; 64])?;
        drop(tx.send(frame));
        tx.flush()?;
        rx.wait(Duration::from_millis(10))?;
        if rx.recv(1).next_packet().is_some() {
            return Ok(());
        }
    }
    Err("no packet arrived".into())
}

/// An instruction without offset.
fn instruction(code: u8, registers: u8, immediate: i32) -> [u8; 8] {
    let mut bytes = [code, registers, 0, 0, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&immediate.to_le_bytes());
    bytes
}

/// Returns 2, `XDP_PASS`.
fn passes() -> Vec<u8> {
    [instruction(0xb7, 0, 2), instruction(0x95, 0, 0)].concat()
}

/// Returns a kernel pointer, which needs `CAP_PERFMON`.
fn leaks() -> Vec<u8> {
    [instruction(0xbf, 0x10, 0), instruction(0x95, 0, 0)].concat()
}

fn program(instructions: &[u8]) -> Program<'_> {
    Program {
        kind: Kind::Xdp,
        instructions,
        maps: &[],
        license: b"Dual BSD/GPL",
        name: *b"confine\0\0\0\0\0\0\0\0\0",
        fragments: false,
        log: true,
    }
}

fn programs(worker: &Worker) -> TestResult {
    worker
        .load("test", &program(&passes()))
        .map_err(|refusal| format!("a program was refused: {refusal:?}"))?;
    let refusal = worker
        .load("test", &program(&leaks()))
        .err()
        .ok_or("a leak was accepted")?;
    let log = String::from_utf8_lossy(&refusal.log).into_owned();
    if refusal.errno != Errno::ACCESS || !log.contains("leaks addr") {
        return Err(format!("refused with {}: {log}", refusal.errno).into());
    }
    Ok(())
}

/// As the handlers of mount(2) and mknod(2) do it: with the root, the namespace and the user of the process.
fn changes_files_of(other: u32) -> TestResult {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
        fsmount, fsopen, move_mount, open_tree,
    };
    use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let null = open_tree(CWD, "/dev/null", flags)?;
    let namespace = fs::File::open(proc(other, "ns/mnt"))?;
    // SAFETY: needed to enter a mount namespace; descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let tree = fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )?;
    let by_fd = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&tree, "", CWD, "/mnt", by_fd)?;
    fs::write("/mnt/null", "")?;
    move_mount(&null, "", CWD, "/mnt/null", by_fd)?;
    // A device, which the view's own mount does not forbid.
    open("/mnt/null", OFlags::RDWR)?;
    make_device(Path::new("/mnt/device"))?;
    rustix::process::chroot("/")?;
    let nobody = rustix::process::Uid::from_raw(65534);
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_uid(None, nobody, None)?;
    if open("/mnt/device", OFlags::RDONLY) != Err(Errno::ACCESS) {
        return Err("nobody opens a file of root".into());
    }
    rustix::thread::set_thread_res_uid(None, rustix::process::Uid::ROOT, None)?;
    // The directory below /proc is not seen from in there.
    std::env::set_current_dir("/")?;
    Ok(())
}

fn looks_into(other: u32, program: &Path) -> TestResult {
    if fs::read_link(proc(other, "exe"))? != program {
        return Err("the executable has another path in the view".into());
    }
    let pid = rustix::process::Pid::from_raw(other.cast_signed()).ok_or("no pid")?;
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    rustix::process::pidfd_getfd(&pidfd, 0, rustix::process::PidfdGetfdFlags::empty())?;
    fs::File::options()
        .read(true)
        .write(true)
        .open(proc(other, "mem"))?;
    fs::read_dir(proc(other, "fd"))?.count();
    let namespace = fs::File::open(proc(other, "ns/net"))?;
    netns::run_in(namespace.as_fd(), || Rtnetlink::open()?.links())?;
    rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL)?;
    Ok(())
}

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut trials: Vec<_> = DEEDS
        .iter()
        .map(|deed| trial(deed.name, || refuses(deed)))
        .collect();
    trials.push(trial("works", || works_confined("works")));
    trials.push(trial("works_supervising", || {
        works_confined("works_supervising")
    }));
    trials.push(trial("works_on_files", || works_confined("works_on_files")));
    trials.push(trial("goes_on_without_a_view", || {
        works_alone("goes_on_without_a_view")
    }));
    trials.push(trial("needs_each_capability", needs_each_capability));
    trials.push(trial("worker_has_no_perfmon", worker_has_no_perfmon));
    trials.push(trial("worker_loads_with_maps", worker_loads_with_maps));
    trials.push(trial(
        "worker_refuses_what_no_kernel_takes",
        worker_refuses_nonsense,
    ));
    trials.push(trial(
        "worker_dies_with_the_broker",
        worker_dies_with_the_broker,
    ));
    trials.push(trial(
        "worker_that_died_is_noticed",
        worker_that_died_is_noticed,
    ));
    trials.push(trial(
        "worker_serves_many_at_once",
        worker_serves_many_at_once,
    ));
    trials.push(trial("wants_a_single_thread", wants_a_single_thread));
    trials
}

fn trial(name: &str, run: impl FnOnce() -> TestResult + Send + 'static) -> Test {
    Test::new(format!("confine::{name}"), run)
}

/// A directory of its own with those of a policy and of two tenants.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> TestResult<Self> {
        let path = format!("weir-confine-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(path);
        for part in ["own", "other", "policy"] {
            fs::create_dir_all(path.join(part))?;
        }
        fs::write(path.join("other/state"), "secret")?;
        fs::write(path.join("policy/broker.toml"), "")?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn needs_root() -> Error {
    skip("root is needed")
}

fn misdeed(deed: &Deed, directory: &Directory, layers: &[Layer]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(deed.name).arg(&directory.0);
    command.args(layers.iter().map(|layer| format!("{layer:?}")));
    command
}

/// `done`, `refused: ERRNO`, `absent: LAYER` or how the process was killed.
fn outcome(command: &mut Command) -> TestResult<String> {
    let output = command.output()?;
    if output.status.signal() == Some(libc::SIGSYS) {
        return Ok("refused: killed".into());
    }
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {text}{errors}", output.status).into());
    }
    Ok(text)
}

fn refuses(deed: &'static Deed) -> TestResult {
    if !is_root() {
        return Err(needs_root());
    }
    let directory = Directory::new(deed.name)?;
    let free = outcome(&mut misdeed(deed, &directory, &[]))?;
    if free != "done" {
        let reason = format!("without confinement it is not done either: {free}");
        return Err(skip(reason));
    }
    let mut absent = None;
    for layer in deed.by {
        let outcome = outcome(&mut misdeed(deed, &directory, &[*layer]))?;
        if outcome.starts_with("absent: ") {
            absent = Some(outcome);
        } else if !outcome.starts_with("refused: ") {
            return Err(format!("{layer} alone does not refuse it: {outcome}").into());
        }
    }
    let all: Vec<_> = Layer::ALL
        .into_iter()
        .filter(|it| deed.by.contains(it))
        .collect();
    let others: Vec<_> = Layer::ALL
        .into_iter()
        .filter(|it| !all.contains(it))
        .collect();
    let left = outcome(&mut misdeed(deed, &directory, &others))?;
    if left != "done" && !left.starts_with("absent: ") {
        return Err(format!("another layer refuses it too, and is not named: {left}").into());
    }
    absent.map_or(Ok(()), |reason| Err(skip(reason)))
}

/// A network namespace with the ends of a veth pair, d0 and d1.
fn network() -> TestResult<OwnedFd> {
    let d0 = Side::new("d0")?;
    let d1 = d0.beside("d1")?;
    join([&d0, &d1], 1, 1, 1500)?;
    for side in [&d0, &d1] {
        side.set_up(true)?;
    }
    Ok(d0.namespace().try_clone_to_owned()?)
}

/// A process that has all it needs.
fn works_alone(what: &str) -> TestResult {
    if !is_root() {
        return Err(needs_root());
    }
    let directory = Directory::new(what)?;
    let mut command = Command::new("/proc/self/exe");
    outcome(command.arg(ARGUMENT).arg(what).arg(&directory.0))?;
    Ok(())
}

fn works_confined(what: &str) -> TestResult {
    if !is_root() {
        return Err(needs_root());
    }
    work(what, None)?;
    Ok(())
}

/// Each capability that is kept is needed: without it the same work fails.
fn needs_each_capability() -> TestResult {
    if !is_root() {
        return Err(needs_root());
    }
    for (what, capability) in [
        ("works", "NET_RAW"),
        ("works", "NET_ADMIN"),
        ("works", "BPF"),
        ("works", "IPC_LOCK"),
        ("works_supervising", "SYS_PTRACE"),
        ("works_supervising", "DAC_OVERRIDE"),
        ("works_supervising", "KILL"),
        ("works_supervising", "SYS_ADMIN"),
        ("works_on_files", "SYS_CHROOT"),
        ("works_on_files", "MKNOD"),
        ("works_on_files", "SETUID"),
        ("works_on_files", "SETGID"),
    ] {
        if work(what, Some(capability)).is_ok() {
            return Err(format!("{what} without CAP_{capability}").into());
        }
    }
    Ok(())
}

fn work(what: &str, without: Option<&str>) -> TestResult {
    let directory = Directory::new(&format!("{what}-{}", without.unwrap_or_default()))?;
    let namespace = network()?;
    let other = match what {
        "works_on_files" => Other::with_own_mounts()?,
        _ => Other::start()?,
    };
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(what).arg(&directory.0);
    command.arg(other.0.id().to_string());
    if let Some(capability) = without {
        command.env(WITHOUT, capability);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = netns::spawn(namespace.as_fd(), &mut command)?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let hint = match output.status.signal() {
            Some(libc::SIGSYS) => " (a call that confine/calls.rs lacks: see `strace -f`)",
            _ => "",
        };
        return Err(format!("{}{hint}: {text}{errors}", output.status).into());
    }
    Ok(())
}

fn worker_has_no_perfmon() -> TestResult {
    if !is_root() {
        return Err(needs_root());
    }
    if let Err(errno) = load_here(&leaks()) {
        return Err(skip(format!("CAP_PERFMON is needed: {errno}")));
    }
    programs(&Worker::start()?)?;
    Ok(())
}

/// Loads an XDP program with the privileges of this process.
fn load_here(instructions: &[u8]) -> Result<(), Errno> {
    let mut attr = [0_u64; 16];
    attr[0] = 6 | ((instructions.len() as u64 / 8) << 32);
    attr[1] = instructions.as_ptr() as u64;
    attr[2] = c"GPL".as_ptr() as u64;
    bpf(5, &mut attr).map(drop)
}

fn bpf(command: libc::c_int, attr: &mut [u64; 16]) -> Result<OwnedFd, Errno> {
    use std::os::fd::FromRawFd as _;
    // SAFETY: needed because there is no wrapper. The attributes are large enough for the commands
    // used, and their buffers outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), 128) };
    let fd = check(result)?;
    // SAFETY: needed to own it: the kernel has just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn worker_loads_with_maps() -> TestResult {
    if !is_root() {
        return Err(needs_root());
    }
    // An XSKMAP of one entry.
    let mut attr = [0_u64; 16];
    attr[0] = 0x11 | (4 << 32);
    attr[1] = 4 | (1 << 32);
    let map = bpf(0, &mut attr)?;
    // r1 = the map with descriptor 99; r0 = 2
    let mut load = instruction(0x18, 0x11, 99);
    name_map(&mut load, 0)?;
    let second = instruction(0, 0, 0);
    let instructions = [&load[..], &second, &passes()].concat();
    let worker = Worker::start()?;
    let maps = [map.as_fd()];
    let mut with_map = program(&instructions);
    with_map.maps = &maps;
    let loaded = worker.load("test", &with_map);
    let loaded =
        loaded.map_err(|it| format!("{}: {}", it.errno, String::from_utf8_lossy(&it.log)))?;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", loaded.as_raw_fd()))?;
    if !info.contains("prog_type:\t6") {
        return Err(info.into());
    }
    for kind in [Kind::CgroupDevice, Kind::SocketFilter] {
        let allows = [instruction(0xb7, 0, 1), instruction(0x95, 0, 0)].concat();
        let mut other = program(&allows);
        other.kind = kind;
        let loaded = worker.load("test", &other);
        loaded.map_err(|refusal| format!("{kind:?}: {refusal:?}"))?;
    }
    // A map that is not there.
    let missing = worker.load("test", &program(&instructions));
    match missing {
        Ok(_) => Err("a program without its map was loaded".into()),
        Err(_) => Ok(()),
    }
}

fn worker_refuses_nonsense() -> TestResult {
    if !is_root() {
        return Err(needs_root());
    }
    let worker = Worker::start()?;
    let expect = |program: &Program<'_>, errno| match worker.load("test", program) {
        Err(refusal) if refusal.errno == errno => Ok(()),
        other => Err(format!("{other:?} instead of {errno}")),
    };
    expect(&program(&[]), Errno::INVAL)?;
    expect(&program(&[0; 7]), Errno::INVAL)?;
    expect(&program(&vec![0; (1 << 20) + 8]), Errno::TOOBIG)?;
    expect(&program(&[0xff; 64]), Errno::INVAL)?;
    let mut long = program(&[0; 8]);
    long.license = &[b'x'; 128];
    expect(&long, Errno::TOOBIG)?;
    // It goes on afterwards.
    programs(&worker)?;
    Ok(())
}

fn worker_dies_with_the_broker() -> TestResult {
    let worker = Worker::start()?;
    let pid = worker.pid();
    drop(worker);
    if Path::new(&format!("/proc/{pid}")).exists() {
        return Err("it still runs".into());
    }
    let mut broker = Command::new("/proc/self/exe");
    let output = broker.args([ARGUMENT, "leaves_a_worker", "/"]).output()?;
    let pid: u32 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    let mut end = Limit::new(PATIENCE);
    while runs(pid) {
        if end.is_over() {
            return Err("it outlives a broker that was killed".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether a process runs; one that nobody waited for yet does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|it| it.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

fn worker_that_died_is_noticed() -> TestResult {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let worker = Worker::start()?;
    let pid = rustix::process::Pid::from_raw(worker.pid().cast_signed()).ok_or("no pid")?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    let mut wait = [PollFd::new(&worker, PollFlags::empty())];
    poll(&mut wait, Some(&Timespec::try_from(PATIENCE)?))?;
    if !wait[0].revents().contains(PollFlags::HUP) {
        return Err("it does not hang up".into());
    }
    match worker.load("test", &program(&passes())) {
        Err(refusal) if refusal.errno == Errno::IO => Ok(()),
        other => Err(format!("{other:?} instead of EIO").into()),
    }
}

fn worker_serves_many_at_once() -> TestResult {
    if !is_root() {
        return Err(needs_root());
    }
    let worker = Worker::start()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..32).map(|_| scope.spawn(|| programs(&worker))).collect();
        threads
            .into_iter()
            .try_for_each(|it| it.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(())
}

/// This process has more.
fn wants_a_single_thread() -> TestResult {
    let needs = nothing();
    let (ended, end) = std::sync::mpsc::channel::<()>();
    // On one CPU the tests themselves run in one thread.
    let second = std::thread::spawn(move || end.recv());
    let applied = apply(&Paths::new(&needs), &needs, Refused::Fails);
    drop(ended);
    let _ = second.join();
    match applied {
        Err(error) if error.to_string().contains("one thread") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

//! Identity and admission of real processes: other users, other executables, other namespaces.

use crate::lab::wait_until;
use crate::supervised::Result;
use broker::identity::{Container, Identity};
use broker::policy::{Policy, Refusal, Tenant, Who};
use broker::seccomp::{Answer, Listener, Target, install};
use rustix::process::Pid;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use testkit::{Limit, Skip, Test, skip, tests};

pub fn tests() -> Vec<Test> {
    tests![
        this_process_is_who_it_is,
        a_peer_of_another_user,
        a_peer_that_changed_its_user_is_refused,
        a_peer_that_ended_is_nobody,
        the_executable_is_a_file_not_a_name,
        the_executable_can_be_hidden_from_the_broker,
        an_executable_that_was_replaced_is_refused,
        the_bytes_of_the_executable_count,
        a_file_that_changes_is_hashed_again,
        the_thread_of_a_call,
        the_first_tenant_whose_conditions_hold,
        a_tenant_by_its_name,
        control_groups_below_the_one_named,
        containers_count_if_their_runtime_may_say_so,
    ]
}

/// The nobody of most systems; any other than root will do.
const OTHER: u32 = 65534;

/// A socket for [`play`] to connect to.
const PEER: &str = "BROKER_TEST_PEER";
/// A program for it to execute afterwards.
const THEN: &str = "BROKER_TEST_THEN";

/// A program that runs, for [`look_at_hidden`]; its process is the first argument.
const HIDDEN: &str = "BROKER_TEST_HIDDEN";

/// This program as a peer: connects and lives until the other end closes, or executes another program.
pub fn play() -> Option<ExitCode> {
    if let Some(path) = std::env::var_os(HIDDEN) {
        let code = look_at_hidden(Path::new(&path)).map_err(|error| eprintln!("{error}"));
        return Some(code.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS));
    }
    let path = std::env::var_os(PEER)?;
    let play = || -> Result<()> {
        let mut socket = UnixStream::connect(path)?;
        if let Some(program) = std::env::var_os(THEN) {
            rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty())?;
            return Err(Command::new(program)
                .arg("60")
                .env_remove(PEER)
                .exec()
                .into());
        }
        socket.write_all(b"!")?;
        socket.read_to_end(&mut Vec::new())?;
        Ok(())
    };
    Some(play().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

/// A directory that everyone may enter; removed on drop.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-broker-test-{}-{next}", std::process::id());
        let directory = Self(std::env::temp_dir().join(name));
        fs::create_dir(&directory.0)?;
        fs::set_permissions(&directory.0, Permissions::from_mode(0o755))?;
        Ok(directory)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// This program under another name, with more bytes at its end.
    fn program(&self, name: &str, more: &[u8]) -> Result<PathBuf> {
        let path = self.path(name);
        let mut bytes = fs::read("/proc/self/exe")?;
        bytes.extend(more);
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A child that has connected to this process. Killed on drop.
struct Peer {
    child: Child,
    socket: UnixStream,
}

impl Peer {
    fn start(directory: &Directory, command: &mut Command) -> Result<Self> {
        let path = directory.path("socket");
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        listener.set_nonblocking(true)?;
        let mut child = command.env(PEER, path).stdin(Stdio::null()).spawn()?;
        let mut end = Limit::new(Duration::from_secs(10));
        loop {
            match listener.accept() {
                Ok((socket, _)) => return Ok(Self { child, socket }),
                Err(_) if !end.is_over() && child.try_wait()?.is_none() => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(error) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("the peer did not connect: {error}").into());
                }
            }
        }
    }

    fn identity(&self) -> Result<Identity> {
        Ok(Identity::of_peer(self.socket.as_fd())?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn need_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(skip("needs root, to start a process of another user"))
}

fn myself() -> Result<Identity> {
    let pid = Pid::from_raw(std::process::id().cast_signed()).ok_or("no pid")?;
    Ok(Identity::of_process(pid)?)
}

fn policy(tenants: impl IntoIterator<Item = (&'static str, Who)>) -> Policy {
    let tenant = |(name, who): (&str, Who)| Tenant {
        name: name.into(),
        who,
        ..Tenant::default()
    };
    Policy {
        tenants: tenants.into_iter().map(tenant).collect(),
    }
}

fn only(who: Who) -> Policy {
    policy([("a", who)])
}

fn of_file(path: impl Into<PathBuf>) -> Policy {
    only(Who {
        executable: Some(path.into()),
        ..Who::default()
    })
}

fn of_bytes(sha256: [u8; 32]) -> Policy {
    only(Who {
        sha256: Some(sha256),
        ..Who::default()
    })
}

fn refused(policy: &Policy, identity: &Identity) -> Result<Refusal> {
    match policy.admit(identity, None) {
        Ok(tenant) => Err(format!("{identity} is admitted as {}", tenant.name).into()),
        Err(refusal) => Ok(refusal),
    }
}

/// The log of a refusal has these words, and its peer does not see them.
fn refused_because(policy: &Policy, identity: &Identity, words: &str) -> Result<()> {
    let refusal = refused(policy, identity)?;
    let reason = refusal.reason();
    assert!(reason.contains(words), "{reason}, not: {words}");
    let told = refusal.to_string();
    assert!(!told.contains("; not "), "{told}");
    assert!(told.contains(&format!("uid {}", identity.uid)), "{told}");
    Ok(())
}

fn this_process_is_who_it_is() -> Result<()> {
    let identity = myself()?;
    assert_eq!(identity.pid, std::process::id());
    assert_eq!(identity.uid, rustix::process::geteuid().as_raw());
    assert_eq!(identity.gid, rustix::process::getegid().as_raw());
    let executable = std::env::current_exe()?;
    assert_eq!(identity.executable.path(), executable);
    assert!(!identity.executable.is_deleted());
    assert!(identity.executable.is_file_at(&executable)?);
    assert!(identity.is_alive());
    let cgroup = fs::read_to_string("/proc/self/cgroup")?;
    let path = identity.cgroup.unwrap_or_default();
    assert!(cgroup.lines().any(|line| line.ends_with(&path)), "{path}");
    Ok(())
}

fn a_peer_of_another_user() -> Result<()> {
    need_root()?;
    let directory = Directory::new()?;
    let program = directory.program("peer", b"")?;
    let peer = Peer::start(&directory, Command::new(&program).uid(OTHER).gid(OTHER))?;
    let identity = peer.identity()?;
    assert_eq!((identity.uid, identity.gid), (OTHER, OTHER));
    assert_eq!(identity.pid, peer.child.id());
    assert_eq!(identity.executable.path(), program);

    let users = |uid| {
        only(Who {
            uids: vec![7, uid],
            ..Who::default()
        })
    };
    users(OTHER).admit(&identity, None)?;
    refused_because(&users(1), &identity, "its uid is 65534")?;
    let groups = |gid| {
        only(Who {
            gids: vec![gid],
            ..Who::default()
        })
    };
    groups(OTHER).admit(&identity, None)?;
    refused_because(&groups(1), &identity, "its gid is 65534")
}

/// Of two threads of one process that differ in their users, one connects.
fn a_peer_that_changed_its_user_is_refused() -> Result<()> {
    need_root()?;
    let connected = thread::spawn(|| -> Result<_, rustix::io::Errno> {
        let uid = rustix::process::Uid::from_raw(OTHER);
        // Of this thread alone.
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
    });
    let (one, _other) = connected.join().map_err(|_| "the thread panicked")??;
    let error = Identity::of_peer(one.as_fd()).err().ok_or("it is taken")?;
    assert!(
        error.to_string().contains("connect after the change"),
        "{error}"
    );
    Ok(())
}

fn a_peer_that_ended_is_nobody() -> Result<()> {
    let directory = Directory::new()?;
    let mut peer = Peer::start(&directory, &mut Command::new("/proc/self/exe"))?;
    let identity = peer.identity()?;
    peer.child.kill()?;
    peer.child.wait()?;
    assert!(!identity.is_alive());
    let error = peer.identity().err().ok_or("it is still somebody")?;
    assert!(error.to_string().contains("has ended"), "{error}");
    Ok(())
}

/// In a mount namespace of its own, a process puts another program at the path of the policy.
fn the_executable_is_a_file_not_a_name() -> Result<()> {
    need_root()?;
    let directory = Directory::new()?;
    let allowed = directory.program("allowed", b"")?;
    let forged = directory.program("forged", b"!")?;
    let script = "mount --bind \"$1\" \"$0\" && exec \"$0\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .arg(&allowed)
        .arg(&forged);
    let works = Command::new("unshare").args(["--mount", "true"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        return Err(Skip::new("needs unshare(1) and CAP_SYS_ADMIN, for a mount namespace").into());
    }
    let peer = Peer::start(&directory, &mut command)?;
    let identity = peer.identity()?;
    assert_eq!(identity.executable.path(), allowed, "the name is forged");
    refused_because(&of_file(&allowed), &identity, "is another file than")?;
    of_file(&forged).admit(&identity, None)?;
    Ok(())
}

/// As a confined broker, which lacks the host's files: process 1 has them.
fn the_executable_can_be_hidden_from_the_broker() -> Result<()> {
    need_root()?;
    let directory = Directory::new()?;
    let program = Sleeper::copy(&directory, b"")?;
    let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let works = Command::new("unshare")
        .args(namespaces)
        .arg("true")
        .output();
    if !works.is_ok_and(|output| output.status.success()) {
        return Err(skip(
            "needs unshare(1) and CAP_SYS_ADMIN, for a pid namespace",
        ));
    }
    // The shell is process 1, and goes on to be it.
    let script = "\"$1\" 60 & unshare --mount sh -c 'mount -t tmpfs none \"$2\" && exec \"$0\" \"$1\"' \"$0\" $! \"$2\"; exit $?";
    let output = Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-c", script])
        .arg(std::env::current_exe()?)
        .args([&program, &directory.0])
        .env(HIDDEN, &program)
        .output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    Ok(())
}

fn look_at_hidden(path: &Path) -> Result<()> {
    let pid: i32 = std::env::args().nth(1).ok_or("no process")?.parse()?;
    let pid = Pid::from_raw(pid).ok_or("no process")?;
    let mut identity = Identity::of_process(pid)?;
    let mut end = Limit::new(Duration::from_secs(10));
    while identity.executable.path() != path && !end.is_over() {
        thread::sleep(Duration::from_millis(2));
        identity = Identity::of_process(pid)?;
    }
    if path.exists() {
        return Err("it is not hidden".into());
    }
    of_file(path).admit(&identity, None)?;
    refused(&of_file("/proc/1/exe"), &identity)?;
    Ok(())
}

fn an_executable_that_was_replaced_is_refused() -> Result<()> {
    let directory = Directory::new()?;
    let program = directory.program("peer", b"")?;
    let link = directory.path("link");
    std::os::unix::fs::symlink(&program, &link)?;
    let peer = Peer::start(&directory, &mut Command::new(&program))?;
    of_file(&program).admit(&peer.identity()?, None)?;
    of_file(&link).admit(&peer.identity()?, None)?;

    fs::remove_file(&program)?;
    let identity = peer.identity()?;
    assert!(identity.executable.is_deleted());
    assert_eq!(identity.executable.path(), program);
    assert!(
        identity.to_string().contains("peer (deleted)"),
        "{identity}"
    );
    refused_because(&of_file(&program), &identity, "the broker cannot see")?;
    directory.program("peer", b"")?;
    refused_because(
        &of_file(&program),
        &peer.identity()?,
        "replaced since it started",
    )
}

/// A child that sleeps, by a copy of sleep(1) with more bytes at its end: a small file to hash. Killed
/// on drop.
struct Sleeper(Child);

impl Sleeper {
    fn copy(directory: &Directory, more: &[u8]) -> Result<PathBuf> {
        let original = Self::start(Path::new("sleep"))?;
        let mut bytes = fs::read(original.identity()?.executable.path())?;
        bytes.extend(more);
        // A program of several names goes by this one.
        let path = directory.path("sleep");
        // A program that was just running can be busy for a moment.
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path)
    }

    fn start(program: &Path) -> Result<Self> {
        // A process that another thread forks has the file open for writing until it executes its own program.
        let start = || Command::new(program).arg("60").spawn();
        let mut started = start();
        wait_until(|| {
            let is_busy = |error: &std::io::Error| error.kind() == ErrorKind::ExecutableFileBusy;
            if started.as_ref().is_err_and(is_busy) {
                started = start();
            }
            !started.as_ref().is_err_and(is_busy)
        });
        Ok(Self(started?))
    }

    fn identity(&self) -> Result<Identity> {
        let pid = Pid::from_raw(self.0.id().cast_signed()).ok_or("no pid")?;
        Ok(Identity::of_process(pid)?)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hash(path: &Path) -> Result<[u8; 32]> {
    use sha2::Digest as _;
    Ok(sha2::Sha256::digest(fs::read(path)?).into())
}

fn the_bytes_of_the_executable_count() -> Result<()> {
    let (directory, elsewhere) = (Directory::new()?, Directory::new()?);
    let one = Sleeper::copy(&directory, b"1")?;
    let other = Sleeper::copy(&elsewhere, b"2")?;
    let sleeper = Sleeper::start(&one)?;
    let identity = sleeper.identity()?;
    of_bytes(hash(&one)?).admit(&identity, None)?;
    refused_because(&of_bytes(hash(&other)?), &identity, "the SHA-256 of")?;
    // The bytes that it runs, not those at its path now.
    let before = hash(&one)?;
    fs::rename(&other, &one)?;
    let identity = sleeper.identity()?;
    of_bytes(before).admit(&identity, None)?;
    refused(&of_bytes(hash(&one)?), &identity)?;
    Ok(())
}

/// The same file, with other bytes of the same number and the same time of modification.
fn a_file_that_changes_is_hashed_again() -> Result<()> {
    let directory = Directory::new()?;
    let path = Sleeper::copy(&directory, b"1")?;
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let mut bytes = fs::read(&path)?;
    for last in 0..20 {
        if let Some(byte) = bytes.last_mut() {
            *byte = last;
        }
        fs::write(&path, &bytes)?;
        fs::File::options()
            .append(true)
            .open(&path)?
            .set_modified(long_ago)?;
        let sleeper = Sleeper::start(&path)?;
        assert_eq!(sleeper.identity()?.person().sha256()?, hash(&path)?);
    }
    Ok(())
}

/// A thread whose getppid(2) is notified.
fn the_thread_of_a_call() -> Result<()> {
    let instruction = |code: u32, k: u32, jt, jf| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The number of the call is at the beginning of `struct seccomp_data`.
    let filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_getppid as u32,
            0,
            1,
        ),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_USER_NOTIF,
            0,
            0,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let (to_us, of_thread) = std::sync::mpsc::channel();
    let caller = thread::spawn(move || {
        let installed = rustix::thread::set_no_new_privs(true).and_then(|()| install(&filter));
        let is_installed = installed.is_ok();
        let _ = to_us.send(installed);
        is_installed.then(rustix::process::getppid)
    });
    let listener = Listener::new(of_thread.recv()??)?;
    let notification = listener.receive()?;
    let target = Target::open(&listener, &notification)?;
    let identity = Identity::of_target(&target)?;
    assert_eq!(identity.pid, notification.pid);
    assert_ne!(identity.pid, std::process::id());
    assert_eq!(identity.uid, rustix::process::geteuid().as_raw());
    of_file(std::env::current_exe()?).admit(&identity, None)?;
    listener.answer(notification.id, &Answer::Value(1))?;
    caller.join().map_err(|_| "the thread panicked")?;
    // The join returns before the thread is gone for all.
    let mut end = Limit::new(Duration::from_secs(10));
    while identity.is_alive() && !end.is_over() {
        thread::sleep(Duration::from_millis(1));
    }
    let error = Identity::of_target(&target)
        .err()
        .ok_or("it is still somebody")?;
    assert!(error.to_string().contains("has ended"), "{error}");
    Ok(())
}

fn the_first_tenant_whose_conditions_hold() -> Result<()> {
    let identity = myself()?;
    let uid = identity.uid;
    let both = Who {
        uids: vec![uid],
        gids: vec![identity.gid + 1],
        ..Who::default()
    };
    let neither = Who {
        uids: vec![uid + 1],
        ..both.clone()
    };
    let mine = Who {
        uids: vec![uid],
        ..Who::default()
    };
    let policy = policy([
        ("neither", neither.clone()),
        ("both", both),
        ("mine", mine),
        ("all", Who::default()),
    ]);
    assert_eq!(policy.admit(&identity, None)?.name, "mine");
    let mut others = policy.clone();
    others.tenants.truncate(2);
    refused_because(&others, &identity, "to it; not \"both\", for its gid is")?;
    let twins = [("first", neither.clone()), ("second", neither)];
    let both = "not \"first\", for its uid is UID; not \"second\", for its uid is UID";
    let both = both.replace("UID", &uid.to_string());
    refused_because(&self::policy(twins), &identity, &both)?;
    // One that lacks its executable alone is nearer than one of another user.
    let file = Who {
        uids: vec![uid],
        executable: Some("/proc/version".into()),
        ..Who::default()
    };
    let user = Who {
        uids: vec![uid + 1],
        ..Who::default()
    };
    let policy = self::policy([("user", user), ("file", file)]);
    refused_because(
        &policy,
        &identity,
        "to it; not \"file\", for its executable is",
    )?;
    refused_because(&Policy::default(), &identity, "the policy has no tenants")
}

fn a_tenant_by_its_name() -> Result<()> {
    let identity = myself()?;
    let other = Who {
        uids: vec![identity.uid + 1],
        ..Who::default()
    };
    let policy = policy([
        ("all", Who::default()),
        ("second", Who::default()),
        ("other", other),
    ]);
    assert_eq!(policy.admit(&identity, Some("second"))?.name, "second");
    let told = |name| match policy.admit(&identity, Some(name)) {
        Ok(_) => Err("it is admitted"),
        Err(refusal) => Ok((refusal.to_string(), refusal.reason())),
    };
    let (told_of_other, reason) = told("other")?;
    assert!(reason.contains("its uid is"), "{reason}");
    let (told_of_none, reason) = told("nosuch")?;
    assert!(reason.contains("no tenant has this name"), "{reason}");
    // Whether there is such a tenant is not for everyone to know.
    assert_eq!(told_of_other.replace("other", "nosuch"), told_of_none);
    Ok(())
}

fn control_groups_below_the_one_named() -> Result<()> {
    let mut identity = myself()?;
    identity.cgroup = Some("/a.slice/b.service/c".into());
    let in_group = |path: &str| {
        only(Who {
            cgroup: Some(path.into()),
            ..Who::default()
        })
    };
    for path in ["/a.slice", "/a.slice/b.service", "/a.slice/b.service/c"] {
        in_group(path).admit(&identity, None)?;
    }
    for path in [
        "/a.slice/b.service/c/d",
        "/a.slice/b",
        "/a.slice/b.service/",
    ] {
        refused_because(&in_group(path), &identity, "its control group is /a.slice")?;
    }
    identity.cgroup = None;
    refused_because(
        &in_group("/a.slice"),
        &identity,
        "its control group is unknown",
    )
}

fn containers_count_if_their_runtime_may_say_so() -> Result<()> {
    let who = Who {
        container: Some("c1".into()),
        annotations: [("weir.dns".to_owned(), "yes".to_owned())].into(),
        ..Who::default()
    };
    let (by_root, with_user) = (
        only(who.clone()),
        Who {
            uids: vec![0, OTHER],
            ..who
        },
    );
    let by_user = only(with_user);
    refused_because(&by_root, &myself()?, "no runtime told")?;
    let container = |id: &str, value: &str, runtime_uid| Container {
        id: id.into(),
        annotations: [("weir.dns".to_owned(), value.to_owned())].into(),
        runtime_uid,
    };
    let mut identity = myself()?.with_container(container("c1", "yes", 0));
    by_root.admit(&identity, None)?;
    for (told, words) in [
        (container("c2", "yes", 0), "its container is c2"),
        (
            container("c1", "no", 0),
            "has no annotation \"weir.dns\" = \"yes\"",
        ),
        (
            container("c1", "yes", OTHER),
            "who is neither root nor in `uid`",
        ),
    ] {
        identity = identity.with_container(told);
        refused_because(&by_root, &identity, words)?;
    }
    identity.uid = 0;
    by_user.admit(&identity, None)?;
    Ok(())
}

/// Gives a file away.
pub fn give_away(path: &Path) -> Result<()> {
    need_root()?;
    Ok(chown(path, Some(OTHER), Some(OTHER))?)
}

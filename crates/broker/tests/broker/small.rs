//! sysinfo(2), `sched_setscheduler(2)` and setxattr(2) in unprivileged processes.
#![allow(clippy::unnecessary_wraps)] // Scenes and tests are functions of one kind.

use crate::supervised::{
    Folder, Result, Supervised, Tries, address, become_nobody, call, play_below, start_storm,
    unshare_pids, wait_until,
};
use broker::policy::Calls;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering::Relaxed};
use testkit::{Skip, Test, skip, tests};

fn sysinfo_only() -> Calls {
    Calls {
        sysinfo: true,
        ..Calls::default()
    }
}

/// Enters a control group if one is named, and prints total and free memory, threads and uptime.
pub fn sysinfo(words: &[&str]) -> Result<()> {
    if let Some(group) = words.first() {
        std::fs::write(PathBuf::from(group).join("cgroup.procs"), "0")?;
    }
    become_nobody()?;
    let info = rustix::system::sysinfo();
    println!(
        "{} {} {} {}",
        info.totalram, info.freeram, info.procs, info.uptime
    );
    println!("{}", call(libc::SYS_sysinfo, [8, 0, 0, 0, 0]));
    Ok(())
}

/// The same in a pid namespace.
pub fn sysinfo_in_a_pid_namespace(_: &[&str]) -> Result<()> {
    unshare_pids()?;
    play_below("sysinfo")
}

/// A control group with a memory limit, removed on drop.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Result<Self> {
        let skip = || Skip::new("a memory controller of control groups");
        let name = format!("weir-test-{}", std::process::id());
        for (root, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let group = PathBuf::from(root).join(&name);
            if std::fs::create_dir(&group).is_err() {
                continue;
            }
            let group = Self(group);
            if std::fs::write(group.0.join(file), limit.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err(skip().into())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may be about to leave.
        let _ = wait_until("the group is empty", || {
            std::fs::remove_dir(&self.0).is_ok()
        });
    }
}

fn sysinfo_tells_the_limits_of_the_control_group() -> Result<()> {
    const LIMIT: u64 = 64 << 20;
    let group = Group::new(LIMIT)?;
    let scene = format!("sysinfo {}", group.0.display());
    let lines = Supervised::granted(&scene, &sysinfo_only())?.lines()?;
    let numbers: Vec<u64> = lines[0]
        .split(' ')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    assert_eq!(numbers[0], LIMIT);
    assert!(numbers[1] <= LIMIT && numbers[1] > 0, "{} free", numbers[1]);
    assert_eq!(lines[1], (-libc::EFAULT).to_string());
    Ok(())
}

fn sysinfo_tells_the_uptime_of_the_pid_namespace() -> Result<()> {
    let host = rustix::system::sysinfo();
    let lines = Supervised::granted("sysinfo_in_a_pid_namespace", &sysinfo_only())?.lines()?;
    let numbers: Vec<u64> = lines[0]
        .split(' ')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    assert_eq!(numbers[0], host.totalram);
    assert!(numbers[3] <= 30, "up for {} s", numbers[3]);
    // This process may be in a pid namespace itself.
    let lines = Supervised::granted("sysinfo", &sysinfo_only())?.lines()?;
    let uptime: i64 = lines[0].rsplit(' ').next().unwrap_or_default().parse()?;
    assert!(
        (0..=host.uptime + 30).contains(&uptime),
        "up for {uptime} s"
    );
    Ok(())
}

fn scheduler_up_to_20() -> Calls {
    Calls {
        sched_setscheduler: Some(20),
        ..Calls::default()
    }
}

fn set_scheduler(thread: u32, policy: i32, priority: i32) -> i64 {
    let policy = u64::from(policy.cast_unsigned());
    let args = [thread.into(), policy, address(&priority), 0, 0];
    call(libc::SYS_sched_setscheduler, args)
}

/// The policy and the priority of this thread.
fn scheduling() -> (i64, i32) {
    let priority = AtomicI32::new(-1);
    call(libc::SYS_sched_getparam, [0, address(&priority), 0, 0, 0]);
    (
        call(libc::SYS_sched_getscheduler, [0; 5]),
        priority.into_inner(),
    )
}

/// Sets policies in many ways, and prints the results.
pub fn set_policies(words: &[&str]) -> Result<()> {
    become_nobody()?;
    let stranger: u32 = words[0].parse()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let _ = sender.send(rustix::thread::gettid());
        let _ = wait.recv();
        scheduling()
    });
    let thread = receiver.recv()?.as_raw_nonzero().get().cast_unsigned();
    let results = [
        set_scheduler(0, libc::SCHED_FIFO, 10),
        set_scheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 20),
        set_scheduler(thread, libc::SCHED_FIFO, 3),
        set_scheduler(0, libc::SCHED_FIFO, 21),
        set_scheduler(0, libc::SCHED_FIFO, 0),
        set_scheduler(0, libc::SCHED_FIFO, 100),
        set_scheduler(std::process::id() + 4_000_000, libc::SCHED_FIFO, 1),
        set_scheduler(stranger, libc::SCHED_FIFO, 1),
        set_scheduler(1, libc::SCHED_FIFO, 1),
        call(libc::SYS_sched_setscheduler, [0, 1, 8, 0, 0]),
    ];
    println!("{results:?} {:?}", scheduling());
    go.send(())?;
    println!("{:?}", other.join().map_err(|_| "a panic")?);
    println!(
        "{} {:?}",
        set_scheduler(0, libc::SCHED_OTHER, 0),
        scheduling()
    );
    Ok(())
}

/// An ordinary user's process, which reads its input to the end.
pub fn linger(_: &[&str]) -> Result<()> {
    become_nobody()?;
    println!("here");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn can_set_real_time() -> Result<()> {
    let set = std::thread::spawn(|| set_scheduler(0, libc::SCHED_FIFO, 1));
    match set.join() {
        Ok(0) => Ok(()),
        _ => Err(skip("CAP_SYS_NICE, or real-time bandwidth")),
    }
}

fn priorities_up_to_the_limit_are_set_for_own_threads() -> Result<()> {
    can_set_real_time()?;
    let mut stranger = Supervised::granted("linger", &scheduler_up_to_20())?;
    stranger.line()?;
    let scene = format!("set_policies {}", stranger.child.id());
    let lines = Supervised::granted(&scene, &scheduler_up_to_20())?.lines()?;
    let errors = [
        libc::EPERM,
        libc::EINVAL,
        libc::EINVAL,
        libc::ESRCH,
        libc::EPERM,
        libc::EPERM,
        libc::EFAULT,
    ];
    let results: Vec<_> = [0; 3]
        .into_iter()
        .chain(errors.map(|errno| -errno))
        .collect();
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    assert_eq!(lines[0], format!("{results:?} ({policy}, 20)"));
    // Without a privilege, SCHED_RESET_ON_FORK cannot be taken back.
    assert_eq!(lines[1], format!("({}, 3)", libc::SCHED_FIFO));
    assert_eq!(lines[2], format!("{} ({policy}, 20)", -libc::EPERM));
    Ok(())
}

/// Tries while another thread changes the priority.
pub fn flip_priorities(_: &[&str]) -> Result<()> {
    become_nobody()?;
    let (priority, stop) = (AtomicI32::new(5), AtomicBool::new(false));
    let (mut set, mut refused, mut above) = (0, 0, 0);
    let mut tries = Tries::at_least(1_000_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                priority.store(90, Relaxed);
                priority.store(5, Relaxed);
            }
        });
        while tries.again(set.min(refused)) {
            let args = [0, libc::SCHED_FIFO as u64, address(&priority), 0, 0];
            match call(libc::SYS_sched_setscheduler, args) {
                0 => set += 1,
                _ => refused += 1,
            }
            above += u32::from(scheduling().1 > 20);
        }
        stop.store(true, Relaxed);
    });
    tries.check(set.min(refused))?;
    println!("{set} set, {refused} refused, {above} above");
    Ok(())
}

fn a_priority_changed_meanwhile_is_not_above_the_limit() -> Result<()> {
    can_set_real_time()?;
    let line = Supervised::granted("flip_priorities", &scheduler_up_to_20())?.line()?;
    assert!(line.ends_with(", 0 above"), "{line}");
    Ok(())
}

const OPAQUE: &std::ffi::CStr = c"trusted.overlay.opaque";

fn setxattr_only() -> Calls {
    Calls {
        setxattr: true,
        ..Calls::default()
    }
}

fn setxattr(path: &std::ffi::CStr, name: &std::ffi::CStr, value: &[u8], flags: u64) -> i64 {
    let size = value.len() as u64;
    let args = [address(path), address(name), address(value), size, flags];
    call(libc::SYS_setxattr, args)
}

/// Sets attributes in many ways, and prints the results.
pub fn set_attributes(words: &[&str]) -> Result<()> {
    become_nobody()?;
    std::env::set_current_dir(words[0])?;
    for folder in ["path", "link", "fd", "refused"] {
        std::fs::create_dir(folder)?;
    }
    std::fs::write("file", "")?;
    std::os::unix::fs::symlink("link", "symlink")?;
    let fd = std::fs::File::open("fd")?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&fd) as u64;
    let y = b"y".as_slice();
    let args = |file: u64| [file, address(OPAQUE), address(y), 1, 0];
    let results = [
        setxattr(c"path", OPAQUE, b"y", 0),
        setxattr(c"symlink", OPAQUE, b"y", 0),
        call(libc::SYS_fsetxattr, args(fd)),
        setxattr(c"path", OPAQUE, b"y", libc::XATTR_CREATE as u64),
        setxattr(c"refused", OPAQUE, b"n", 0),
        setxattr(c"refused", OPAQUE, b"yy", 0),
        setxattr(c"refused", OPAQUE, b"y", 64),
        setxattr(c"refused", c"trusted.overlay.redirect", b"y", 0),
        setxattr(c"file", OPAQUE, b"y", 0),
        setxattr(c"..", OPAQUE, b"y", 0),
        setxattr(c"absent", OPAQUE, b"y", 0),
        call(libc::SYS_lsetxattr, args(address(c"symlink"))),
        call(libc::SYS_fsetxattr, args(999)),
        setxattr(c"file", c"user.words", b"", 99),
    ];
    println!("{results:?}");
    Ok(())
}

fn opaque(path: PathBuf) -> Option<Vec<u8>> {
    let mut value = [0; 8];
    let len = rustix::fs::getxattr(path, OPAQUE, &mut value).ok()?;
    value.get(..len).map(<[u8]>::to_vec)
}

fn has_trusted_attributes(folder: &Folder) -> Result<()> {
    use rustix::fs::{XattrFlags, removexattr, setxattr};
    setxattr(&folder.0, OPAQUE, b"y", XattrFlags::empty())
        .and_then(|()| removexattr(&folder.0, OPAQUE))
        .map_err(|_| Skip::new("trusted attributes in the temporary directory").into())
}

fn only_directories_of_the_caller_become_opaque() -> Result<()> {
    let folder = Folder::new("setxattr")?;
    has_trusted_attributes(&folder)?;
    let scene = format!("set_attributes {}", folder.own().display());
    let lines = Supervised::granted(&scene, &setxattr_only())?.lines()?;
    let errors = [
        libc::EEXIST,
        libc::EPERM,
        libc::EPERM,
        libc::EINVAL,
        libc::EPERM,
        libc::EPERM,
        libc::EPERM,
        libc::ENOENT,
        libc::EPERM,
        libc::EBADF,
        libc::EINVAL,
    ];
    let results: Vec<_> = [0; 3]
        .into_iter()
        .chain(errors.map(|errno| -errno))
        .collect();
    assert_eq!(lines, [format!("{results:?}")]);
    for set in ["path", "link", "fd"] {
        assert_eq!(opaque(folder.own().join(set)), Some(b"y".to_vec()), "{set}");
    }
    for unset in ["refused", "file", ".."] {
        assert_eq!(opaque(folder.own().join(unset)), None, "{unset}");
    }
    Ok(())
}

/// Tries while another thread changes the name, the value and the path.
pub fn flip_attributes(words: &[&str]) -> Result<()> {
    become_nobody()?;
    std::env::set_current_dir(words[0])?;
    let bytes =
        |text: &[u8]| -> Vec<AtomicU8> { text.iter().copied().map(AtomicU8::new).collect() };
    let (path, value) = (bytes(b".//roots\0"), bytes(b"y"));
    let stop = AtomicBool::new(false);
    let (mut set, mut refused) = (0, 0);
    let mut tries = Tries::at_least(10_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                path[1].store(b'.', Relaxed);
                value[0].store(b'n', Relaxed);
                path[1].store(b'/', Relaxed);
                value[0].store(b'y', Relaxed);
            }
        });
        while tries.again(set.min(refused)) {
            let args = [
                address(path.as_slice()),
                address(OPAQUE),
                address(value.as_slice()),
                1,
                0,
            ];
            match call(libc::SYS_setxattr, args) {
                0 => set += 1,
                _ => refused += 1,
            }
        }
        stop.store(true, Relaxed);
    });
    println!("{set} set, {refused} refused");
    tries.check(set.min(refused))
}

fn an_attribute_changed_meanwhile_is_y_on_an_own_directory() -> Result<()> {
    let folder = Folder::new("setxattr-flip")?;
    has_trusted_attributes(&folder)?;
    std::fs::create_dir(folder.0.join("roots"))?;
    std::fs::create_dir(folder.own().join("roots"))?;
    let owner = Some(crate::supervised::NOBODY);
    std::os::unix::fs::chown(folder.own().join("roots"), owner, owner)?;
    let scene = format!("flip_attributes {}", folder.own().display());
    let mut child = Supervised::granted(&scene, &setxattr_only())?;
    println!("{:?}", child.lines()?);
    child.wait_for_end()?;
    assert_eq!(opaque(folder.0.join("roots")), None);
    assert_eq!(opaque(folder.own().join("roots")), Some(b"y".to_vec()));
    Ok(())
}

/// Makes each handler's call many times, and prints the median microseconds of each.
pub fn time_handlers(words: &[&str]) -> Result<()> {
    if words[1] == "nobody" {
        become_nobody()?;
    }
    std::env::set_current_dir(words[0])?;
    std::fs::create_dir_all("attributes")?;
    let memory = [0_u8; 4096];
    let priority = 5_i32;
    let directory = libc::AT_FDCWD.cast_unsigned().into();
    let y = b"y".as_slice();
    let (null, attributes) = (c"null", c"attributes");
    let mknod = [directory, address(null), 0o20_666, 0x103, 0];
    let setxattr = [address(attributes), address(OPAQUE), address(y), 1, 0];
    let scheduler = [0, libc::SCHED_FIFO as u64, address(&priority), 0, 0];
    for (name, number, args) in [
        ("sysinfo", libc::SYS_sysinfo, [address(&memory), 0, 0, 0, 0]),
        ("setxattr", libc::SYS_setxattr, setxattr),
        ("mknodat", libc::SYS_mknodat, mknod),
        (
            "sched_setscheduler",
            libc::SYS_sched_setscheduler,
            scheduler,
        ),
        ("getppid", libc::SYS_getppid, [0; 5]),
    ] {
        let mut times = Vec::new();
        for _ in 0..2000 {
            let _ = std::fs::remove_file("null");
            let started = std::time::Instant::now();
            let result = call(number, args);
            times.push(started.elapsed().as_nanos());
            if result < 0 {
                return Err(format!("{name}: {result}").into());
            }
        }
        times.sort_unstable();
        println!("{name} {:.1}", times[1000] as f64 / 1e3);
    }
    Ok(())
}

/// Prints the figures: supervised ones of an ordinary user's process, and those of a privileged one.
fn handlers_cost_microseconds() -> Result<()> {
    can_set_real_time()?;
    let folder = Folder::new("time")?;
    has_trusted_attributes(&folder)?;
    let calls = Calls {
        sysinfo: true,
        setxattr: true,
        mknod: vec![broker::policy::CharacterDevice::Null],
        ..scheduler_up_to_20()
    };
    let scene = |user| format!("time_handlers {} {user}", folder.own().display());
    let supervised = Supervised::granted(&scene("nobody"), &calls)?.lines()?;
    std::fs::remove_dir_all(folder.own().join("attributes"))?;
    let bare = crate::supervised::play_bare(&scene("root"))?.output()?;
    let bare = String::from_utf8(bare.stdout)?;
    assert_eq!((supervised.len(), bare.lines().count()), (5, 5));
    for (supervised, bare) in supervised.iter().zip(bare.lines()) {
        eprintln!("median µs, supervised and bare: {supervised}, {bare}");
    }
    Ok(())
}

/// Calls under a storm of signals; prints how many did not return 0.
pub fn small_calls_in_a_storm(_: &[&str]) -> Result<()> {
    become_nobody()?;
    start_storm();
    let memory = [0_u8; 4096];
    let failed = (0..2000).filter(|_| {
        call(libc::SYS_sysinfo, [address(&memory), 0, 0, 0, 0]) != 0
            || set_scheduler(0, libc::SCHED_OTHER, 0) != 0
    });
    println!("{}", failed.count());
    Ok(())
}

fn signals_disturb_no_call() -> Result<()> {
    let calls = Calls {
        sysinfo: true,
        ..scheduler_up_to_20()
    };
    assert_eq!(
        Supervised::granted("small_calls_in_a_storm", &calls)?.lines()?,
        ["0"]
    );
    Ok(())
}

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        sysinfo_tells_the_limits_of_the_control_group,
        priorities_up_to_the_limit_are_set_for_own_threads,
        a_priority_changed_meanwhile_is_not_above_the_limit,
        only_directories_of_the_caller_become_opaque,
        an_attribute_changed_meanwhile_is_y_on_an_own_directory,
        handlers_cost_microseconds,
    ];
    let roots = tests![
        sysinfo_tells_the_uptime_of_the_pid_namespace,
        signals_disturb_no_call,
    ];
    tests.extend(roots.into_iter().map(crate::needs_root));
    tests
}

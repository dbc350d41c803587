//! The handler of bpf(2) for device programs, on control groups of the tests' own.
#![allow(unsafe_code)] // bpf(2) with attributes that no wrapper makes.

use crate::ensure;
use crate::supervised::{Result, Start, Supervised, Tries, become_nobody, wait_until};
use broker::confine::worker::Worker;
use broker::supervise::handlers::bpf_cgroup::{BpfCgroup, NAME};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testkit::{Limit, Test, skip, tests};

pub fn tests() -> Vec<Test> {
    tests![
        devices_are_taken_away_and_given_back,
        refusals_are_refusals,
        a_mount_makes_no_group_the_callers,
        a_program_above_is_not_replaced,
        a_flipped_group_is_judged_as_copied,
        ends_with_its_killed_caller,
        figures,
    ]
}

const USER: u32 = 65534;
const LOAD: i64 = 5;
const ATTACH: i64 = 8;
const DETACH: i64 = 9;
const QUERY: i64 = 16;
const DEVICE_PROGRAM: u32 = 15;
const DEVICE: u32 = 6;
const MULTI: u32 = 2;

/// A control group of the user's, beside one that is not: removed with all below.
struct Groups(PathBuf);

impl Groups {
    fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let Some(root) = line.and_then(|line| line.split(' ').nth(4)) else {
            return Err(skip("cgroup2 is not mounted"));
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let top = Path::new(root).join(format!("broker-test-{}-{number}", std::process::id()));
        let groups = Self(top);
        for group in ["", "own", "own/below", "other"] {
            std::fs::create_dir(groups.0.join(group))?;
        }
        for file in [
            "own",
            "own/below",
            "own/cgroup.procs",
            "own/below/cgroup.procs",
        ] {
            std::os::unix::fs::chown(groups.0.join(file), Some(USER), Some(USER))?;
        }
        Ok(groups)
    }

    fn path(&self, group: &str) -> PathBuf {
        self.0.join(group)
    }

    /// Attached programs in all of them.
    fn attached(&self) -> Result<u32> {
        let mut all = 0;
        for group in ["", "own", "own/below", "other"] {
            all += count(&File::open(self.path(group))?)?;
        }
        Ok(all)
    }

    /// A program is detached with the last descriptor of its link, and a child that another test starts
    /// has copies of all until its exec.
    fn wait_for_none(&self) -> Result<()> {
        let is_none = || self.attached().is_ok_and(|attached| attached == 0);
        wait_until("no program is left behind", is_none)
    }

    fn start(&self, scene: &str) -> Result<Supervised> {
        let is_bare = scene.starts_with("bare ");
        let scene = scene.strip_prefix("bare ").unwrap_or(scene);
        let scene = format!("{scene} {}", self.0.display());
        let start = Start {
            scene: &scene,
            names: if is_bare { vec![] } else { vec![NAME] },
            wrapper: &[],
        };
        let worker = Arc::new(Worker::start()?);
        Supervised::start(
            &start,
            vec![Box::new(BpfCgroup::new("test", worker, Arc::default()))],
        )
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // Its processes are gone, or soon.
        let mut end = Limit::new(Duration::from_secs(5));
        for group in ["own/below", "own", "other", ""] {
            let path = self.path(group);
            while path.exists() && std::fs::remove_dir(&path).is_err() && !end.is_over() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn bpf(command: i64, attr: &[u32]) -> Result<i32, Errno> {
    bpf_raw(command, attr.as_ptr(), size_of_val(attr) as u64)
}

fn bpf_raw(command: i64, attr: *const u32, size: u64) -> Result<i32, Errno> {
    // SAFETY: needed for hostile attributes; the kernel and the handler check them, and
    // write to the log, which outlives the call, or to those that a caller gave to be written.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size) };
    if result >= 0 {
        return Ok(result as i32);
    }
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Err(Errno::from_raw_os_error(code))
}

fn own(fd: i32) -> OwnedFd {
    // SAFETY: needed to close it: it comes from bpf(2) and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn count(group: &File) -> Result<u32> {
    let mut attr = [0_u32; 8];
    attr[0] = group.as_raw_fd() as u32;
    attr[1] = DEVICE;
    // Not `bpf`: the kernel writes the count.
    bpf_raw(QUERY, attr.as_mut_ptr(), size_of_val(&attr) as u64)?;
    Ok(attr[6])
}

/// `r0 = value; exit`, which denies with 0 and allows with 1.
fn answer(value: u32) -> Vec<u64> {
    vec![0xb7 | u64::from(value) << 32, 0x95]
}

/// The attr of a program with this log.
fn load_attr(kind: u32, instructions: &[u64], log: &mut [u8]) -> [u32; 18] {
    let mut attr = [0; 18];
    let mut put = |at: usize, value: u64| {
        attr[at] = value as u32;
        attr[at + 1] = (value >> 32) as u32;
    };
    put(2, instructions.as_ptr().expose_provenance() as u64);
    put(4, c"GPL".as_ptr().expose_provenance() as u64);
    if !log.is_empty() {
        put(8, log.as_mut_ptr().expose_provenance() as u64);
        attr[6] = 1;
        attr[7] = log.len() as u32;
    }
    attr[0] = kind;
    attr[1] = instructions.len() as u32;
    attr
}

fn load(instructions: &[u64]) -> Result<OwnedFd, Errno> {
    bpf(LOAD, &load_attr(DEVICE_PROGRAM, instructions, &mut [])).map(own)
}

fn attach(command: i64, group: &File, program: &OwnedFd, flags: u32) -> Result<(), Errno> {
    let attr = [
        group.as_raw_fd() as u32,
        program.as_raw_fd() as u32,
        DEVICE,
        flags,
    ];
    bpf(command, &attr).map(drop)
}

/// In a scene: moves to the group `own`, and becomes its user.
fn enter(words: &[&str]) -> Result<PathBuf> {
    let top = PathBuf::from(words.last().ok_or("GROUP")?);
    std::fs::write(top.join("own/cgroup.procs"), "0")?;
    become_nobody()?;
    Ok(top)
}

fn devices_are_taken_away_and_given_back() -> Result<()> {
    let groups = Groups::new()?;
    let mut child = groups.start("bpf_life")?;
    ensure!(child.line()? == "attached");
    // Those detached before may be held by a child that another test starts: see wait_for_none.
    wait_until("one program is attached", || {
        groups.attached().is_ok_and(|attached| attached == 1)
    })?;
    child.child.kill()?;
    child.wait_for_end()?;
    groups.wait_for_none()?;
    Ok(())
}

pub fn bpf_life(words: &[&str]) -> Result<()> {
    let top = enter(words)?;
    let device = || {
        File::open("/dev/zero")
            .map(drop)
            .map_err(|error| error.raw_os_error())
    };
    let (own, below) = (
        File::open(top.join("own"))?,
        File::open(top.join("own/below"))?,
    );
    let (deny, allow) = (load(&answer(0))?, load(&answer(1))?);
    let kind = std::fs::read_link(format!("/proc/self/fd/{}", deny.as_raw_fd()))?;
    ensure!(kind.to_string_lossy().starts_with("pipe:"), "{kind:?}");

    attach(ATTACH, &own, &allow, MULTI)?;
    ensure!(device() == Ok(()));
    attach(ATTACH, &own, &deny, MULTI)?;
    ensure!(device() == Err(Some(libc::EPERM)));
    // One that allows beside one that denies gives nothing back.
    ensure!(attach(ATTACH, &own, &deny, MULTI) == Err(Errno::INVAL));
    attach(DETACH, &own, &allow, 0)?;
    ensure!(device() == Err(Some(libc::EPERM)));
    // Without MULTI it takes the other's place.
    attach(ATTACH, &own, &allow, 0)?;
    ensure!(device() == Ok(()));
    ensure!(attach(DETACH, &own, &deny, 0) == Err(Errno::NOENT));
    attach(DETACH, &own, &allow, 0)?;

    attach(ATTACH, &below, &deny, MULTI)?;
    ensure!(device() == Ok(()));
    std::fs::write(top.join("own/below/cgroup.procs"), "0")?;
    ensure!(device() == Err(Some(libc::EPERM)));
    // The program stays as long as it is attached, also when its handle is closed.
    drop(deny);
    load(&answer(1))?;
    ensure!(device() == Err(Some(libc::EPERM)));
    println!("attached");
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

fn refusals_are_refusals() -> Result<()> {
    let groups = Groups::new()?;
    groups.start("bpf_refusals")?.lines()?;
    groups.wait_for_none()?;
    Ok(())
}

pub fn bpf_refusals(words: &[&str]) -> Result<()> {
    let top = enter(words)?;
    let own = File::open(top.join("own"))?;
    let program = load(&answer(1))?;
    for group in ["", "other", ".."] {
        let group = File::open(top.join(group))?;
        let outcome = attach(ATTACH, &group, &program, MULTI);
        ensure!(outcome == Err(Errno::PERM), "{group:?} {outcome:?}");
    }
    let null = File::open("/dev/null")?;
    let directory = File::open("/")?;
    let file = File::open(top.join("own/cgroup.procs"))?;
    for group in [&null, &directory, &file] {
        let outcome = attach(ATTACH, group, &program, MULTI);
        ensure!(outcome == Err(Errno::BADF), "{group:?} {outcome:?}");
    }
    ensure!(attach(ATTACH, &own, &null.into(), MULTI) == Err(Errno::INVAL));
    ensure!(attach(ATTACH, &own, &program, 4) == Err(Errno::INVAL));
    let closed = [u32::MAX, u32::MAX, DEVICE, 0];
    ensure!(bpf(ATTACH, &closed) == Err(Errno::BADF));
    // Groups that were a place for tasks are left: the caller's own moves with it.
    std::fs::write(top.join("own/below/cgroup.procs"), "0")?;
    ensure!(attach(ATTACH, &own, &program, MULTI) == Err(Errno::PERM));

    let call = [0x85 | 5 << 32, 0xb7, 0x95];
    ensure!(load(&call).err() == Some(Errno::PERM));
    let map = [0x1118 | 3 << 32, 0, 0xb7, 0x95];
    ensure!(load(&map).err() == Some(Errno::PERM));
    let endless = [0x05 | 0xffff << 16];
    ensure!(load(&endless).is_err());
    ensure!(load(&[]).err() == Some(Errno::TOOBIG));
    ensure!(load(&vec![0; 4097]).err() == Some(Errno::TOOBIG));
    let mut most = vec![0xb7; 4095];
    most.push(0x95);
    load(&most)?;

    let mut log = vec![0; 4096];
    let garbage = [0xff, 0x95];
    let rejected = bpf(LOAD, &load_attr(DEVICE_PROGRAM, &garbage, &mut log));
    ensure!(rejected == Err(Errno::INVAL), "{rejected:?}");
    let text = String::from_utf8_lossy(&log);
    ensure!(text.contains("unknown opcode"), "{text}");

    let instructions = answer(1);
    let valid = load_attr(DEVICE_PROGRAM, &instructions, &mut []);
    for kind in [0, 1, 2, 6, 8, 14, 16, u32::MAX] {
        let attr = load_attr(kind, &instructions, &mut []);
        let outcome = bpf(LOAD, &attr);
        // Left to the kernel.
        ensure!(
            matches!(outcome, Err(Errno::PERM | Errno::INVAL)),
            "{outcome:?}"
        );
    }
    let hostile = |at: usize, value: u32| {
        let mut attr = valid.to_vec();
        attr.resize(60, 0);
        attr[at] = value;
        bpf(LOAD, &attr)
    };
    ensure!(hostile(11, 1 << 20) == Err(Errno::INVAL), "flags");
    ensure!(hostile(16, 1) == Err(Errno::INVAL), "a device");
    ensure!(hostile(17, 3) == Err(Errno::INVAL), "another attach type");
    ensure!(hostile(18, 3) == Err(Errno::INVAL), "BTF");
    ensure!(hostile(59, 1) == Err(Errno::INVAL), "an unknown field");
    ensure!(
        hostile(3, 0xffff_8000) == Err(Errno::FAULT),
        "the kernel's memory"
    );
    ensure!(hostile(5, 0xffff_8000) == Err(Errno::FAULT), "its license");
    ensure!(bpf_raw(LOAD, valid.as_ptr(), 4097) == Err(Errno::TOOBIG));
    ensure!(bpf_raw(LOAD, valid.as_ptr(), u64::from(u32::MAX)) == Err(Errno::TOOBIG));
    ensure!(bpf_raw(LOAD, std::ptr::null(), 72) == Err(Errno::FAULT));
    ensure!(bpf_raw(LOAD, valid.as_ptr(), 0).is_err());

    // No more than 64 at once, and closed ones do not count.
    let all: Vec<_> = (0..70).map(|_| load(&answer(1))).collect();
    ensure!(all.iter().filter(|it| it.is_ok()).count() == 63);
    drop(all);
    load(&answer(1))?;
    Ok(())
}

fn a_mount_makes_no_group_the_callers() -> Result<()> {
    let groups = Groups::new()?;
    groups.start("bpf_overlaid")?.lines()?;
    groups.wait_for_none()?;
    Ok(())
}

/// Another group is mounted where one of the caller's is.
pub fn bpf_overlaid(words: &[&str]) -> Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    let top = Path::new(words.last().ok_or("GROUP")?);
    // SAFETY: needed for a mount namespace; no descriptors are involved.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)? };
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)?;
    mount_bind(top.join("other"), top.join("own/below"))?;
    enter(words)?;
    let group = File::open(top.join("own/below"))?;
    let program = load(&answer(0))?;
    ensure!(attach(ATTACH, &group, &program, MULTI) == Err(Errno::PERM));
    Ok(())
}

fn a_program_above_is_not_replaced() -> Result<()> {
    for flags in [0, 1] {
        let groups = Groups::new()?;
        let above = File::open(groups.path(""))?;
        let program = load(&answer(0))?;
        attach(ATTACH, &above, &program, flags)?;
        let output = groups.start("bpf_attach")?.lines()?.concat();
        attach(DETACH, &above, &program, 0)?;
        ensure!(output == "Err(PERM)", "{flags} {output}");
        // Beside it, where that is allowed, it only takes away.
        attach(ATTACH, &above, &program, MULTI)?;
        let output = groups.start("bpf_attach")?.lines()?.concat();
        attach(DETACH, &above, &program, 0)?;
        ensure!(output == "Ok(())", "{output}");
    }
    Ok(())
}

pub fn bpf_attach(words: &[&str]) -> Result<()> {
    let own = File::open(enter(words)?.join("own"))?;
    let outcome = attach(ATTACH, &own, &load(&answer(1))?, MULTI);
    let name = outcome.map_err(|error| {
        if error == Errno::PERM {
            "PERM"
        } else {
            "other"
        }
    });
    println!("{}", format!("{name:?}").replace('"', ""));
    Ok(())
}

fn a_flipped_group_is_judged_as_copied() -> Result<()> {
    let groups = Groups::new()?;
    let mut child = groups.start("bpf_flip")?;
    let mut line = child.line()?;
    while line == "look" {
        ensure!(count(&File::open(groups.path("other"))?)? == 0);
        line = child.line()?;
    }
    ensure!(line.starts_with("both were seen"), "{line}");
    child.lines()?;
    groups.wait_for_none()?;
    Ok(())
}

/// A second thread flips the group between the caller's and another one, and the instructions between
/// an answer and a helper's call.
pub fn bpf_flip(words: &[&str]) -> Result<()> {
    let top = enter(words)?;
    let (own, other) = (File::open(top.join("own"))?, File::open(top.join("other"))?);
    let program = load(&answer(1))?;
    let flipped = Arc::new((
        [const { AtomicU32::new(0) }; 4],
        [AtomicU64::new(0xb7), AtomicU64::new(0x95)],
    ));
    let words = [program.as_raw_fd() as u32, DEVICE, MULTI];
    for (word, value) in flipped.0[1..].iter().zip(words) {
        word.store(value, Ordering::Relaxed);
    }
    let done = Arc::new(AtomicBool::new(false));
    let (stop, both) = (Arc::clone(&done), Arc::clone(&flipped));
    let groups = [own.as_raw_fd() as u32, other.as_raw_fd() as u32];
    let attacker = std::thread::spawn(move || {
        for round in 0_usize.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            both.0[0].store(groups[round & 1], Ordering::Relaxed);
            both.1[0].store([0xb7, 0x85 | 5 << 32][round & 1], Ordering::Relaxed);
        }
    });
    let (mut attached, mut refused) = (0, 0);
    let mut tries = Tries::at_least(10_000);
    while tries.again(attached.min(refused)) {
        // SAFETY is the handler's: the memory changes while it is read.
        if bpf_raw(ATTACH, flipped.0.as_ptr().cast(), 16).is_ok() {
            attached += 1;
            attach(DETACH, &own, &program, 0)?;
        } else {
            refused += 1;
        }
        if (attached + refused) % 1000 == 1 {
            println!("look");
        }
    }
    tries.check(attached.min(refused))?;
    let (mut loaded, mut unloaded) = (0, 0);
    let mut log = [0; 1];
    let mut tries = Tries::at_least(10_000);
    while tries.again(loaded.min(unloaded)) {
        let mut attr = load_attr(DEVICE_PROGRAM, &answer(1), &mut log);
        let address = flipped.1.as_ptr().expose_provenance() as u64;
        (attr[2], attr[3]) = (address as u32, (address >> 32) as u32);
        (attr[6], attr[7], attr[8], attr[9]) = (0, 0, 0, 0);
        match bpf(LOAD, &attr) {
            Ok(fd) => {
                drop(self::own(fd));
                loaded += 1;
            }
            // The copy has no call, or it is refused: the verifier would refuse it as INVAL.
            Err(error) => {
                ensure!(error == Errno::PERM, "{error:?}");
                unloaded += 1;
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    let _ = attacker.join();
    tries.check(loaded.min(unloaded))?;
    println!("both were seen: {attached}/{refused} attached, {loaded}/{unloaded} loaded");
    Ok(())
}

fn ends_with_its_killed_caller() -> Result<()> {
    let groups = Groups::new()?;
    for round in 0..40 {
        let mut child = groups.start("bpf_endless")?;
        ensure!(child.line()? == "begin");
        std::thread::sleep(Duration::from_micros(300 * round));
        child.child.kill()?;
        child.child.wait()?;
        child.wait_for_end()?;
        groups.wait_for_none()?;
    }
    Ok(())
}

pub fn bpf_endless(words: &[&str]) -> Result<()> {
    let own = File::open(enter(words)?.join("own"))?;
    println!("begin");
    loop {
        let program = load(&answer(1))?;
        attach(ATTACH, &own, &program, MULTI)?;
        attach(DETACH, &own, &program, 0)?;
    }
}

pub fn bpf_time(words: &[&str]) -> Result<()> {
    let top = PathBuf::from(words.last().ok_or("GROUP")?);
    std::fs::write(top.join("own/cgroup.procs"), "0")?;
    let is_supervised = words.first() == Some(&"supervised");
    if is_supervised {
        become_nobody()?;
    }
    let own = File::open(top.join("own"))?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..1000 {
        let mut clock = Instant::now();
        let mut lap = |at: usize| {
            times[at].push(clock.elapsed());
            clock = Instant::now();
        };
        let program = load(&answer(1))?;
        lap(0);
        attach(ATTACH, &own, &program, MULTI)?;
        lap(1);
        attach(DETACH, &own, &program, 0)?;
        lap(2);
    }
    for times in &mut times {
        times.sort();
    }
    let median = |at: usize| times[at][times[at].len() / 2];
    println!(
        "load {:?}, attach {:?}, detach {:?}",
        median(0),
        median(1),
        median(2)
    );
    Ok(())
}

fn figures() -> Result<()> {
    let groups = Groups::new()?;
    for _ in 0..3 {
        let bare = groups.start("bare bpf_time bare")?.lines()?.concat();
        println!("no supervision, root  {bare}");
        let supervised = groups.start("bpf_time supervised")?.lines()?.concat();
        println!("supervised            {supervised}");
    }
    Ok(())
}

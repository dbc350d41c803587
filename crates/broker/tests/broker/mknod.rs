//! mknod(2) in unprivileged processes.
#![allow(clippy::unnecessary_wraps)] // Scenes and tests are functions of one kind.

use crate::supervised::{
    Folder, NOBODY, Result, Supervised, Tries, address, become_nobody, become_root_of_a_namespace,
    call, start_storm,
};
use broker::policy::{Calls, CharacterDevice};
use broker::supervise::log::Decision;
use broker::supervise::metrics::Outcome;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use testkit::{Test, skip, tests};

const NULL: u64 = 0x103;
const ZERO: u64 = 0x105;
const CHARACTER: u64 = 0o20_666;
const BLOCK: u64 = 0o60_666;

fn null_only() -> Calls {
    Calls {
        mknod: vec![CharacterDevice::Null],
        ..Calls::default()
    }
}

/// mknodat(2) in the working directory.
fn mknod(path: &str, mode: u64, device: u64) -> i64 {
    mknodat(libc::AT_FDCWD, path, mode, device)
}

fn mknodat(directory: i32, path: &str, mode: u64, device: u64) -> i64 {
    let path = CString::new(path).unwrap_or_default();
    let directory = u64::from(directory.cast_unsigned());
    let args = [directory, address(path.as_c_str()), mode, device, 0];
    let result = call(libc::SYS_mknodat, args);
    drop(path);
    result
}

/// A device's answer to a write and a read, or the error's number.
fn use_device(path: &str) -> Result<String> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) => return Ok(format!("{:?}", error.raw_os_error())),
        Ok(file) => file,
    };
    let written = file.write(b"words")?;
    let read = file.read(&mut [0; 8])?;
    Ok(format!("{written} {read}"))
}

/// Makes nodes in many ways, and prints the results.
pub fn make_nodes(words: &[&str]) -> Result<()> {
    become_nobody()?;
    std::env::set_current_dir(words[0])?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
    let here = rustix::fs::open(".", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
    let here = std::os::fd::AsRawFd::as_raw_fd(&here);
    std::fs::create_dir("sub")?;
    std::os::unix::fs::symlink(words[0], "link")?;
    let upper = 0x5a5a_0000_0000;
    let results = [
        mknod("null", CHARACTER, NULL),
        mknodat(here, "sub/null", CHARACTER | upper, NULL | upper),
        mknod(&format!("{}/sub/../absolute", words[0]), CHARACTER, NULL),
        mknod("link/linked", CHARACTER, NULL),
        mknod("zero", CHARACTER, ZERO),
        mknod("block", BLOCK, NULL),
        mknod("null", CHARACTER, NULL),
        mknod("../roots", CHARACTER, NULL),
        mknod("absent/null", CHARACTER, NULL),
        mknod("/proc/self/root/tmp/null", CHARACTER, NULL),
        mknodat(999, "null", CHARACTER, NULL),
        call(libc::SYS_mknodat, [0, 8, CHARACTER, NULL, 0]),
        mknod("fifo", 0o10_666, 0),
        mknod("whiteout", 0o20_666, 0),
    ];
    println!("{results:?}");
    for path in ["null", "sub/null", "absolute", "linked"] {
        println!("{}", use_device(path)?);
    }
    Ok(())
}

fn nodes_are_made_as_the_kernel_would_for_a_privileged_caller() -> Result<()> {
    let folder = Folder::new("mknod")?;
    let scene = format!("make_nodes {}", folder.own().display());
    let mut child = Supervised::granted(&scene, &null_only())?;
    let lines = child.lines()?;
    let errors = [
        libc::EPERM,
        libc::EPERM,
        libc::EEXIST,
        libc::EACCES,
        libc::ENOENT,
        libc::ELOOP,
        libc::EBADF,
        libc::EFAULT,
    ]
    .map(|errno| -errno);
    let expected: Vec<_> = [[0; 4].as_slice(), &errors, &[0; 2]].concat();
    assert_eq!(lines[0], format!("{expected:?}"));
    assert_eq!(lines[1..], ["5 0"; 4]);
    let meta = std::fs::symlink_metadata(folder.own().join("sub/null"))?;
    assert!(meta.file_type().is_char_device());
    let found = (meta.rdev(), meta.uid(), meta.gid(), meta.mode() & 0o7777);
    assert_eq!(found, (NULL, NOBODY, NOBODY, 0o640));
    for absent in ["own/zero", "own/block", "roots"] {
        assert!(!folder.0.join(absent).exists(), "{absent}");
    }
    child.wait_for_end()?;
    // In any order: each call has a thread, which notes its decision after the answer.
    let decisions = child.decisions();
    let asked = |it: &&Decision| it.request.as_deref() == Some("character device 1:3 at \"null\"");
    let decision = decisions.iter().find(asked).ok_or("no decision")?;
    assert_eq!(decision.outcome, Outcome::Answered);
    Ok(())
}

/// Makes a node on a filesystem of its own user namespace.
pub fn make_node_in_a_namespace(words: &[&str]) -> Result<()> {
    use rustix::mount::{MountFlags, mount};
    become_nobody()?;
    if !become_root_of_a_namespace()? {
        println!("no user namespace");
        return Ok(());
    }
    mount("tmpfs", words[0], "tmpfs", MountFlags::empty(), None)?;
    std::env::set_current_dir(words[0])?;
    println!("{}", mknod("null", CHARACTER, NULL));
    println!("{}", mknod("zero", CHARACTER, ZERO));
    println!("{}", use_device("null")?);
    println!("{:#x}", std::fs::metadata("null")?.rdev());
    println!("{}", mknod("null", CHARACTER, NULL));
    Ok(())
}

fn a_node_in_a_user_namespace_can_be_opened() -> Result<()> {
    let folder = Folder::new("mknod-userns")?;
    let scene = format!("make_node_in_a_namespace {}", folder.own().display());
    let lines = Supervised::granted(&scene, &null_only())?.lines()?;
    if lines == ["no user namespace"] {
        return Err(skip("user namespaces of unprivileged users"));
    }
    let (refused, exists) = ((-libc::EPERM).to_string(), (-libc::EEXIST).to_string());
    assert_eq!(lines, ["0", &refused, "5 0", "0x103", &exists]);
    assert!(std::fs::read_dir(folder.own())?.next().is_none());
    Ok(())
}

/// Tries while another thread changes the path, one byte of which makes it lead elsewhere.
pub fn flip_paths(words: &[&str]) -> Result<()> {
    become_nobody()?;
    std::env::set_current_dir(words[0])?;
    // "../roots/n" and "./own2/../n" differ in their first bytes.
    let path: Vec<AtomicU8> = b".//roots/n\0".iter().copied().map(AtomicU8::new).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                path[1].store(b'.', Relaxed);
                path[1].store(b'/', Relaxed);
            }
        });
        let (mut made, mut refused) = (0, 0);
        let mut tries = Tries::at_least(10_000);
        while tries.again(made.min(refused)) {
            let args = [
                libc::AT_FDCWD as u64,
                address(path.as_slice()),
                CHARACTER,
                NULL,
                0,
            ];
            if call(libc::SYS_mknodat, args) == 0 {
                made += 1;
                std::fs::remove_file("roots/n")?;
            } else {
                refused += 1;
            }
        }
        stop.store(true, Relaxed);
        println!("{made} made, {refused} refused");
        tries.check(made.min(refused))
    })
}

fn a_path_changed_meanwhile_leads_nowhere_else() -> Result<()> {
    let folder = Folder::new("mknod-flip")?;
    std::fs::create_dir(folder.0.join("roots"))?;
    std::fs::create_dir(folder.own().join("roots"))?;
    std::os::unix::fs::chown(folder.own().join("roots"), Some(NOBODY), Some(NOBODY))?;
    let scene = format!("flip_paths {}", folder.own().display());
    let mut child = Supervised::granted(&scene, &null_only())?;
    println!("{:?}", child.lines()?);
    child.wait_for_end()?;
    assert!(is_empty(&folder.0.join("roots"))?);
    Ok(())
}

fn is_empty(folder: &Path) -> Result<bool> {
    Ok(std::fs::read_dir(folder)?.next().is_none())
}

/// Makes nodes with names of numbers under a storm of signals; prints how many failed.
pub fn make_nodes_in_a_storm(words: &[&str]) -> Result<()> {
    become_nobody()?;
    std::env::set_current_dir(words[0])?;
    let nodes: u32 = words[1].parse()?;
    start_storm();
    println!("started");
    let failed = (0..nodes).filter(|at| mknod(&at.to_string(), CHARACTER, NULL) != 0);
    println!("{}", failed.count());
    Ok(())
}

fn a_storm_of_signals_makes_each_node_once() -> Result<()> {
    let folder = Folder::new("mknod-storm")?;
    let scene = format!("make_nodes_in_a_storm {} 2000", folder.own().display());
    let lines = Supervised::granted(&scene, &null_only())?.lines()?;
    assert_eq!(lines, ["started", "0"]);
    assert_eq!(std::fs::read_dir(folder.own())?.count(), 2000);
    Ok(())
}

fn a_killed_caller_leaves_whole_nodes_only() -> Result<()> {
    let folder = Folder::new("mknod-kill")?;
    for round in 0..20 {
        let scene = format!("make_nodes_in_a_storm {} 100000", folder.own().display());
        let mut child = Supervised::granted(&scene, &null_only())?;
        child.line()?;
        std::thread::sleep(std::time::Duration::from_micros(500 + 137 * round));
        child.child.kill()?;
        child.child.wait()?;
        child.wait_for_end()?;
        for entry in std::fs::read_dir(folder.own())? {
            let entry = entry?;
            assert!(entry.file_type()?.is_char_device(), "{entry:?}");
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

pub fn tests() -> Vec<Test> {
    tests![
        nodes_are_made_as_the_kernel_would_for_a_privileged_caller,
        a_node_in_a_user_namespace_can_be_opened,
        a_path_changed_meanwhile_leads_nowhere_else,
        a_storm_of_signals_makes_each_node_once,
        a_killed_caller_leaves_whole_nodes_only,
    ]
}

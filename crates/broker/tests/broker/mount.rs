//! mount(2) in unprivileged processes.
#![allow(unsafe_code)] // Namespaces of a scene's own.

use crate::ensure;
use crate::supervised::{
    Folder, NOBODY, Result, Start, Supervised, Tries, address, become_nobody,
    become_root_of_a_namespace, call,
};
use broker::policy::{Calls, Mounts};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities};
use std::ffi::CString;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};
use testkit::{Skip, Test, skip, tests};

pub fn tests() -> Vec<Test> {
    tests![
        a_tmpfs_in_a_user_namespace,
        a_tmpfs_in_a_mount_namespace,
        never_on_the_host,
        refusals_are_refusals,
        a_flipped_path_is_judged_as_copied,
        ends_with_its_killed_caller,
        an_image_served_by_a_program,
        figures,
    ]
}

fn tmpfs_only() -> Calls {
    Calls {
        mount: Some(Mounts {
            filesystems: vec!["tmpfs".into()],
            fuse: [].into(),
        }),
        ..Calls::default()
    }
}

fn mount(target: &str, kind: &str, flags: u64, options: &str) -> i64 {
    let string = |text: &str| CString::new(text).unwrap_or_default();
    let (target, kind, options) = (string(target), string(kind), string(options));
    let args = [
        address(c"none"),
        address(target.as_c_str()),
        address(kind.as_c_str()),
        flags,
        address(options.as_c_str()),
    ];
    call(libc::SYS_mount, args)
}

const NO: i64 = -(libc::EPERM as i64);

/// A mount namespace whose mounts no other sees.
fn leave_mounts(propagation: MountPropagationFlags) -> Result<()> {
    // SAFETY: needed for a namespace; no descriptors are involved.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", propagation | MountPropagationFlags::REC)?;
    Ok(())
}

fn give_up_capabilities() -> Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    Ok(set_capabilities(None, sets)?)
}

fn play(scene: &str, folder: &Folder) -> Result<Vec<String>> {
    let scene = format!("{scene} {}", folder.own().display());
    Supervised::granted(&scene, &tmpfs_only())?.lines()
}

/// The host's mounts below a folder.
fn mounts_below(folder: &Path) -> Result<usize> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let folder = folder.to_string_lossy();
    Ok(mounts.lines().filter(|it| it.contains(&*folder)).count())
}

fn a_tmpfs_in_a_user_namespace() -> Result<()> {
    let folder = Folder::new("mount-user")?;
    let lines = play("mount_in_a_namespace", &folder)?;
    if lines == ["no namespaces"] {
        return Err(skip("user namespaces of ordinary users"));
    }
    ensure!(mounts_below(&folder.0)? == 0);
    Ok(())
}

pub fn mount_in_a_namespace(words: &[&str]) -> Result<()> {
    let own = words.last().ok_or("FOLDER")?;
    become_nobody()?;
    if !become_root_of_a_namespace()? {
        println!("no namespaces");
        return Ok(());
    }
    give_up_capabilities()?;
    ensure!(mount(own, "ramfs", 0, "") == NO, "the kernel permits it");

    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let outcome = mount(own, "tmpfs", flags, "size=1m,nr_inodes=10,mode=750");
    ensure!(outcome == 0, "{outcome}");
    let root = std::fs::metadata(own)?;
    ensure!(
        (root.uid(), root.gid(), root.mode()) == (0, 0, 0o40_750),
        "{root:?}"
    );
    let file = format!("{own}/file");
    let error = std::fs::write(&file, vec![1; 2 << 20]).err();
    ensure!(error.and_then(|it| it.raw_os_error()) == Some(libc::ENOSPC));
    std::fs::write(&file, "words")?;
    let written = std::fs::metadata(&file)?;
    ensure!((written.uid(), written.gid()) == (0, 0), "{written:?}");
    let files = (0..20).map(|at| std::fs::write(format!("{own}/{at}"), ""));
    ensure!(files.flatten().count() == 8);
    let flags = statvfs(*own)?.f_flag;
    ensure!(flags.contains(StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV));

    // Paths are the caller's: its working directory, its links.
    std::env::set_current_dir(own)?;
    std::fs::remove_file("0")?;
    std::fs::remove_file("1")?;
    std::fs::create_dir("below")?;
    std::os::unix::fs::symlink("below", "link")?;
    ensure!(mount("link", "tmpfs", libc::MS_RDONLY | libc::MS_NOEXEC, "") == 0);
    let error = std::fs::write("below/file", "").err();
    ensure!(error.and_then(|it| it.raw_os_error()) == Some(libc::EROFS));
    ensure!(statvfs("below")?.f_flag.contains(StatVfsMountFlags::NOEXEC));
    // It is root of its namespace: anywhere in it, with an old program's magic number.
    ensure!(mount("/usr", "tmpfs", 0xc0ed_0000, "size=0,ro") == 0);
    ensure!(std::fs::read_dir("/usr")?.count() == 0);
    ensure!(statvfs("/usr")?.f_blocks * 4096 <= 1 << 30);

    // Changes of mounts that are there stay with the kernel, which refuses.
    for flags in [
        libc::MS_REMOUNT,
        libc::MS_BIND,
        libc::MS_MOVE,
        libc::MS_REMOUNT | libc::MS_BIND,
        libc::MS_SHARED,
    ] {
        ensure!(mount("below", "tmpfs", flags, "") == NO, "{flags:#x}");
    }
    Ok(())
}

fn a_tmpfs_in_a_mount_namespace() -> Result<()> {
    let folder = Folder::new("mount-own")?;
    ensure!(play("mount_on_the_host private", &folder)? == ["0", "-1", "-1"]);
    // It would appear in other namespaces too.
    ensure!(play("mount_on_the_host shared", &folder)? == ["-1", "-1", "-1"]);
    ensure!(mounts_below(&folder.0)? == 0);
    Ok(())
}

fn never_on_the_host() -> Result<()> {
    let folder = Folder::new("mount-host")?;
    ensure!(play("mount_on_the_host host", &folder)? == ["-1", "-1", "-1"]);
    ensure!(play("mount_on_the_host nested", &folder)? == ["-1", "-1", "-1"]);
    ensure!(mounts_below(&folder.0)? == 0);
    Ok(())
}

/// Mounts on its own directory, root's, and one below /.
pub fn mount_on_the_host(words: &[&str]) -> Result<()> {
    let own = words.last().ok_or("FOLDER")?;
    match words.first() {
        Some(&"private") => leave_mounts(MountPropagationFlags::PRIVATE)?,
        Some(&"shared") => leave_mounts(MountPropagationFlags::SHARED)?,
        _ => {}
    }
    become_nobody()?;
    if words.first() == Some(&"nested") {
        // Root of a user namespace, in the host's mount namespace.
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        // SAFETY: needed for a namespace; no descriptors are involved.
        if unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }.is_ok() {
            std::fs::write("/proc/self/uid_map", format!("0 {NOBODY} 1"))?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/gid_map", format!("0 {NOBODY} 1"))?;
        }
    }
    let roots = Path::new(own).parent().ok_or("its parent")?;
    for path in [own, &*roots.to_string_lossy(), "/usr"] {
        println!("{}", mount(path, "tmpfs", 0, "size=1m"));
    }
    Ok(())
}

fn refusals_are_refusals() -> Result<()> {
    let folder = Folder::new("mount-refusals")?;
    play("mount_refusals", &folder).map(drop)
}

pub fn mount_refusals(words: &[&str]) -> Result<()> {
    let own = *words.last().ok_or("FOLDER")?;
    leave_mounts(MountPropagationFlags::PRIVATE)?;
    become_nobody()?;
    let file = format!("{own}/file");
    std::fs::write(&file, "")?;
    let fails = |outcome: i64, errno: i32| -> Result<()> {
        ensure!(outcome == -i64::from(errno), "{outcome}, not {errno}");
        Ok(())
    };
    fails(mount(&file, "tmpfs", 0, ""), libc::ENOTDIR)?;
    fails(mount(&format!("{own}/none"), "tmpfs", 0, ""), libc::ENOENT)?;
    fails(mount("", "tmpfs", 0, ""), libc::ENOENT)?;
    fails(mount(&"x".repeat(5000), "tmpfs", 0, ""), libc::ENAMETOOLONG)?;
    fails(
        mount(own, "tmpfs", 0, &"x".repeat(5000)),
        libc::ENAMETOOLONG,
    )?;
    fails(mount(own, "tmpfs", 0, "size=1m,evil=1"), libc::EINVAL)?;
    fails(mount(own, "tmpfs", 0, "uid=x"), libc::EINVAL)?;
    // Magic links would lead to the broker's files.
    for link in ["cwd", "root", "fd/0", "root/tmp"] {
        fails(
            mount(&format!("/proc/self/{link}"), "tmpfs", 0, ""),
            libc::ELOOP,
        )?;
    }
    for kind in ["ramfs", "proc", "sysfs", "tmpfs2", "fuse.tmpfs", "", "bpf"] {
        fails(mount(own, kind, 0, ""), libc::EPERM)?;
    }
    let (path, kind) = (CString::new(own)?, address(c"tmpfs"));
    let path = address(path.as_c_str());
    let kernels = 0xffff_8000_0000_0000;
    for bad in [1, kernels, u64::MAX] {
        let raw = |args: [u64; 5]| fails(call(libc::SYS_mount, args), libc::EFAULT);
        raw([path, bad, kind, 0, 0])?;
        raw([path, path, bad, 0, 0])?;
        raw([path, path, kind, 0, bad])?;
        raw([bad, path, kind, 0, 0])?;
    }
    fails(call(libc::SYS_mount, [0, 0, kind, 0, 0]), libc::EFAULT)?;
    ensure!(call(libc::SYS_mount, [0, path, kind, 0, 0]) == 0);
    Ok(())
}

fn a_flipped_path_is_judged_as_copied() -> Result<()> {
    let folder = Folder::new("mount-flip")?;
    std::fs::create_dir(folder.0.join("not"))?;
    let lines = play("mount_flip", &folder)?.concat();
    ensure!(lines.starts_with("both were seen"), "{lines}");
    Ok(())
}

/// A second thread flips the path between its own directory and root's, the type and the options.
pub fn mount_flip(words: &[&str]) -> Result<()> {
    let own = *words.last().ok_or("FOLDER")?;
    let not = own.replace("/own", "/not");
    leave_mounts(MountPropagationFlags::PRIVATE)?;
    let bytes = |text: &str| -> Arc<Vec<AtomicU8>> {
        let bytes = text.bytes().chain([0]).map(AtomicU8::new);
        Arc::new(bytes.collect())
    };
    let (path, options) = (bytes(own), bytes("size=1m"));
    let at = own.len() - 3;
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, flipped, limits) = (stop.clone(), path.clone(), options.clone());
    let attacker = std::thread::spawn(move || {
        for round in 0_usize.. {
            if stopped.load(Relaxed) {
                break;
            }
            let word = [b"own", b"not"][round & 1];
            for (to, byte) in flipped[at..].iter().zip(word) {
                to.store(*byte, Relaxed);
            }
            limits[5].store([b'1', b'0'][round >> 1 & 1], Relaxed);
        }
    });
    // Credentials are a thread's: this one stays root, and unmounts the other one's mounts.
    let (mut mounted, mut refused) = (0, 0);
    let mut tries = Tries::at_least(10_000);
    while tries.again(mounted.min(refused)) {
        let arguments = [
            0,
            address(&path[..]),
            address(c"tmpfs"),
            0,
            address(&options[..]),
        ];
        let outcome = std::thread::spawn(move || {
            become_nobody()
                .is_ok()
                .then(|| call(libc::SYS_mount, arguments))
        });
        match outcome.join().ok().flatten() {
            Some(0) => {
                mounted += 1;
                ensure!(statvfs(own)?.f_blocks * 4096 <= 1 << 30);
                unmount(own, UnmountFlags::DETACH)?;
            }
            // Another word between the two is no directory.
            Some(NO | -2) => refused += 1,
            other => return Err(format!("{other:?}").into()),
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        ensure!(!mounts.contains(&not) && !mounts.contains(own), "{mounts}");
    }
    stop.store(true, Relaxed);
    let _ = attacker.join();
    tries.check(mounted.min(refused))?;
    println!("both were seen: {mounted} mounted, {refused} refused");
    Ok(())
}

fn ends_with_its_killed_caller() -> Result<()> {
    let folder = Folder::new("mount-killed")?;
    for round in 0..30 {
        let scene = format!("mount_time endless {}", folder.own().display());
        let mut child = Supervised::granted(&scene, &tmpfs_only())?;
        ensure!(child.line()? == "begin");
        std::thread::sleep(Duration::from_micros(200 * round));
        child.child.kill()?;
        child.child.wait()?;
        child.wait_for_end()?;
        ensure!(mounts_below(&folder.0)? == 0);
    }
    Ok(())
}

pub fn mount_time(words: &[&str]) -> Result<()> {
    let own = *words.last().ok_or("FOLDER")?;
    leave_mounts(MountPropagationFlags::PRIVATE)?;
    let (is_bare, is_endless) = (words[0] == "bare", words[0] == "endless");
    println!("begin");
    let number = if is_endless { usize::MAX } else { 500 };
    let mut times = Vec::new();
    for _ in 0..number {
        let path = own.to_owned();
        // Credentials are a thread's: this one stays root, to unmount.
        let took = std::thread::spawn(move || {
            if !is_bare {
                become_nobody().ok()?;
            }
            let start = Instant::now();
            let outcome = mount(&path, "tmpfs", 0, "size=1m");
            (outcome == 0).then(|| start.elapsed())
        });
        let took = took.join().map_err(|_| "a panic")?;
        times.push(took.ok_or("it was refused")?);
        unmount(own, UnmountFlags::DETACH)?;
    }
    times.sort();
    println!(
        "median {:?}, p99 {:?}",
        times[number / 2],
        times[number * 99 / 100]
    );
    Ok(())
}

/// Paths of programs that serve and make squashfs images.
fn programs() -> Result<[PathBuf; 2]> {
    let found = |name: &str| {
        let places = ["/usr/bin", "/usr/local/bin"].map(|place| Path::new(place).join(name));
        let found = places.into_iter().find(|it| it.exists());
        found.ok_or_else(|| Skip::new(format!("{name} is not installed")))
    };
    if !Path::new("/dev/fuse").exists() {
        return Err(skip("/dev/fuse"));
    }
    Ok([found("squashfuse")?, found("mksquashfs")?])
}

fn an_image_served_by_a_program() -> Result<()> {
    let [serve, make] = programs()?;
    let folder = Folder::new("mount-fuse")?;
    let (own, content) = (folder.own(), folder.0.join("content"));
    std::fs::create_dir(&content)?;
    std::fs::write(content.join("words"), "weir")?;
    let status = Command::new(make)
        .args([&content, &own.join("image")])
        .args(["-quiet", "-no-progress", "-all-root"])
        .stdout(Stdio::null())
        .status()?;
    ensure!(status.success());
    std::fs::copy(own.join("image"), own.join("secret"))?;
    std::fs::set_permissions(own.join("secret"), PermissionsExt::from_mode(0o600))?;
    std::fs::write(own.join("garbage"), "no image")?;
    for mode in ["user", "mount"] {
        let scene = format!("mount_fuse {mode} {}", own.display());
        let calls = Calls {
            mount: Some(Mounts {
                filesystems: vec![],
                fuse: [("squashfs".to_owned(), serve.clone())].into(),
            }),
            ..Calls::default()
        };
        let mut child = Supervised::granted(&scene, &calls)?;
        let line = child.line()?;
        if line == "no namespaces" {
            continue;
        }
        ensure!(line == "mounted", "{line}");
        let server = server(&serve)?.ok_or("no program serves")?;
        let status = std::fs::read_to_string(format!("/proc/{server}/status"))?;
        let field = |name: &str| status.lines().find_map(|it| it.strip_prefix(name));
        ensure!(
            field("Uid:") == Some("\t65534\t65534\t65534\t65534"),
            "{status}"
        );
        ensure!(field("CapPrm:") == Some("\t0000000000000000"), "{status}");
        ensure!(field("CapEff:") == Some("\t0000000000000000"), "{status}");
        ensure!(field("NoNewPrivs:") == Some("\t1"), "{status}");
        child.child.kill()?;
        child.wait_for_end()?;
        ensure!(
            self::server(&serve)?.is_none(),
            "the program is left behind"
        );
    }
    ensure!(mounts_below(&folder.0)? == 0);
    Ok(())
}

/// A child of this process that runs a program.
fn server(program: &Path) -> Result<Option<u32>> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let children = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            if std::fs::read_link(format!("/proc/{child}/exe")).is_ok_and(|it| it == program) {
                return Ok(Some(child.parse()?));
            }
        }
    }
    Ok(None)
}

pub fn mount_fuse(words: &[&str]) -> Result<()> {
    let own = *words.last().ok_or("FOLDER")?;
    if words.first() == Some(&"mount") {
        leave_mounts(MountPropagationFlags::PRIVATE)?;
        become_nobody()?;
    } else {
        become_nobody()?;
        if !become_root_of_a_namespace()? {
            println!("no namespaces");
            return Ok(());
        }
        give_up_capabilities()?;
    }
    let at = format!("{own}/at");
    std::fs::create_dir_all(&at)?;
    let image = |name: &str, kind: &str, options: &str| {
        let string = |text: &str| CString::new(text).unwrap_or_default();
        let owned = [&format!("{own}/{name}"), &at, kind, options].map(string);
        let [source, target, kind, options] = owned.each_ref().map(|it| address(it.as_c_str()));
        let flags = libc::MS_RDONLY;
        let outcome = call(libc::SYS_mount, [source, target, kind, flags, options]);
        drop(owned);
        outcome
    };
    let outcome = image("garbage", "squashfs", "");
    ensure!(outcome == -i64::from(libc::EINVAL), "{outcome}");
    let outcome = image("secret", "squashfs", "");
    ensure!(outcome == -i64::from(libc::EACCES), "{outcome}");
    let outcome = image("none", "squashfs", "");
    ensure!(outcome == -i64::from(libc::ENOENT), "{outcome}");
    let outcome = image("at", "squashfs", "");
    ensure!(outcome == -i64::from(libc::ENOTBLK), "{outcome}");
    let outcome = image("image", "squashfs", "ro,ssh_command=sh");
    ensure!(outcome == -i64::from(libc::EINVAL), "{outcome}");
    ensure!(image("image", "ext4", "") == NO);
    ensure!(std::fs::read_dir(&at)?.count() == 0);

    let outcome = image("image", "fuse.squashfs", "ro");
    ensure!(outcome == 0, "{outcome}");
    ensure!(std::fs::read_to_string(format!("{at}/words"))? == "weir");
    let flags = statvfs(&*at)?.f_flag;
    let least = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV | StatVfsMountFlags::RDONLY;
    ensure!(flags.contains(least), "{flags:?}");
    println!("mounted");
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

fn figures() -> Result<()> {
    let folder = Folder::new("mount-figures")?;
    for _ in 0..3 {
        let scene = format!("mount_time bare {}", folder.own().display());
        let start = Start {
            scene: &scene,
            ..Start::default()
        };
        let bare = Supervised::start(&start, vec![])?.lines()?.concat();
        println!("no supervision, root  {bare}");
        println!(
            "supervised            {}",
            play("mount_time", &folder)?.concat()
        );
    }
    Ok(())
}

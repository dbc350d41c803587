//! Steps of the program of a container, without a capability, each with its outcome.

use crate::supervised::Result;
use rustix::fs::{CWD, FileType, Mode, StatFs, makedev, mknodat, statfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use testkit::Limit;
use xsk::{Socket, Umem, Wait};

/// First argument of this program in a container.
pub const CONTAINED: &str = "--contained";

/// The Ethernet type of the frames that are sent here, and of those that come.
pub const SENT: u16 = 0x88b5;
pub const RECEIVED: u16 = 0x88b6;

/// Expected outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Done,
    Refused,
}

/// A step: its name and its function.
pub struct Step {
    pub name: &'static str,
    pub expected: Expected,
    run: fn() -> Result<()>,
}

const fn done(name: &'static str, run: fn() -> Result<()>) -> Step {
    let expected = Expected::Done;
    Step {
        name,
        expected,
        run,
    }
}

const fn refused(name: &'static str, run: fn() -> Result<()>) -> Step {
    let expected = Expected::Refused;
    Step {
        name,
        expected,
        run,
    }
}

impl Step {
    /// A file that it needs and this host lacks.
    pub fn missing(&self) -> Option<&'static str> {
        if !self.name.starts_with("mount-fuse") {
            return None;
        }
        let needs = ["/dev/fuse", "/usr/bin/squashfuse", "/usr/bin/mksquashfs"];
        needs.into_iter().find(|path| !Path::new(path).exists())
    }
}

/// All steps.
pub const STEPS: &[Step] = &[
    done("mknod-null", mknod_null),
    refused("mknod-mem", || node("mem", FileType::CharacterDevice, 1, 1)),
    refused("mknod-block", || node("disk", FileType::BlockDevice, 8, 0)),
    done("mount-tmpfs", mount_tmpfs),
    refused("mount-ramfs", || {
        Ok(mount_at("none", "ramfs", "ramfs").map(drop)?)
    }),
    done("mount-fuse", mount_fuse),
    refused("mount-fuse-garbage", || {
        Ok(mount_at("/images/garbage", "garbage", "squashfs").map(drop)?)
    }),
    done("af-xdp-send", send),
    done("af-xdp-receive", receive),
    refused("af-xdp-queue", || open("wan0", 1, true).map(drop)),
];

/// `--contained STEP…`, or `--contained wait` until the input ends. A line for each step.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != CONTAINED {
        return None;
    }
    for name in arguments {
        match STEPS.iter().find(|step| step.name == name) {
            Some(step) => println!("{name} {}", outcome((step.run)())),
            None => wait(),
        }
    }
    Some(ExitCode::SUCCESS)
}

fn wait() {
    println!("waits");
    std::io::stdin().lock().lines().for_each(drop);
}

/// `ok`, `refused` with the errno's number, or `failed` with a reason.
fn outcome(result: Result<()>) -> String {
    let Err(error) = result else {
        return "ok".to_owned();
    };
    let errno = error
        .downcast_ref::<Errno>()
        .map(|errno| errno.raw_os_error());
    let errno = errno.or_else(|| error.downcast_ref::<xsk::Error>()?.errno());
    match errno {
        Some(libc::EPERM) => "refused EPERM".to_owned(),
        Some(libc::EINVAL) => "refused EINVAL".to_owned(),
        _ => format!("failed {error}").replace('\n', " "),
    }
}

fn node(name: &str, kind: FileType, major: u32, minor: u32) -> Result<()> {
    let path = Path::new("/work").join(name);
    let mode = Mode::from_raw_mode(0o666);
    Ok(mknodat(CWD, &path, kind, mode, makedev(major, minor))?)
}

/// The null device takes all writes, and has nothing to read.
fn mknod_null() -> Result<()> {
    node("null", FileType::CharacterDevice, 1, 3)?;
    let mut file = fs::File::options()
        .read(true)
        .write(true)
        .open("/work/null")?;
    file.write_all(b"something")?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    crate::ensure!(bytes.is_empty(), "it has {bytes:?}");
    Ok(())
}

/// Mounts below /work; returns statfs(2) of it.
fn mount_at(source: &str, name: &str, kind: &str) -> Result<StatFs, Errno> {
    let path = Path::new("/work").join(name);
    let made = fs::create_dir_all(&path);
    made.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    mount(source, &path, kind, MountFlags::empty(), None)?;
    statfs(&path)
}

fn mount_tmpfs() -> Result<()> {
    let status = mount_at("none", "tmpfs", "tmpfs")?;
    crate::ensure!(status.f_type == 0x0102_1994, "it is {:#x}", status.f_type);
    fs::write("/work/tmpfs/file", "text")?;
    crate::ensure!(fs::read_to_string("/work/tmpfs/file")? == "text");
    Ok(())
}

fn mount_fuse() -> Result<()> {
    let status = mount_at("/images/squashfs", "fuse", "squashfs")?;
    crate::ensure!(status.f_type == 0x6573_5546, "it is {:#x}", status.f_type);
    let text = fs::read_to_string("/work/fuse/file")?;
    crate::ensure!(text == "of the image\n", "its file has {text:?}");
    Ok(())
}

fn open(device: &str, queue: u32, is_receiver: bool) -> Result<Socket> {
    // Within the 8 MiB that an ordinary user may lock.
    let umem = Umem::builder().chunks(256).build()?;
    let builder = Socket::builder(&umem, device, queue)
        .wait(Wait::Poll)
        .tx_ring(64);
    let builder = if is_receiver {
        builder.rx_ring(64)
    } else {
        builder.rx_ring(0)
    };
    Ok(builder.open()?)
}

/// The other end counts the frames.
fn send() -> Result<()> {
    let mut socket = open("wan0", 0, false)?;
    let mut bytes = [0; 64];
    bytes[..6].fill(0xff);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xa]);
    bytes[12..14].copy_from_slice(&SENT.to_be_bytes());
    for _ in 0..16 {
        let mut frame = socket.alloc().ok_or("a frame")?;
        frame.fill_with(&bytes)?;
        socket
            .send(frame)
            .map_err(|refused| refused.kind.to_string())?;
    }
    let mut end = Limit::new(Duration::from_secs(10));
    while socket.outstanding() > 0 {
        socket.flush()?;
        socket.reclaim();
        crate::ensure!(!end.is_over(), "frames are not sent");
    }
    Ok(())
}

fn receive() -> Result<()> {
    let mut socket = open("wan0", 0, true)?;
    let mut end = Limit::new(Duration::from_secs(10));
    while !end.is_over() {
        socket.wait(Duration::from_millis(100))?;
        let mut batch = socket.recv(64);
        while let Some(packet) = batch.next_packet() {
            if packet.get(12..14) == Some(&RECEIVED.to_be_bytes()) {
                return Ok(());
            }
        }
    }
    Err("no packet came".into())
}

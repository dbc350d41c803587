//! A program for the queues of a device, that outlives its sockets.

use super::redirect::redirect_by_queue;
use super::refusal::is_bpffs;
use super::{Filter, Program, Takes, load, refused};
use crate::device::{AttachMode, Device, no_ethernet_header};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::sys;
use hostnet::privilege::{Capability, Feature};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The files of a pinned program.
const LINK: &str = "link";
const MAP: &str = "map";

impl Program {
    /// Attaches the built-in program to a device before there is a socket. It passes all packets to the
    /// network stack, until sockets are opened with [`SocketBuilder::program`].
    ///
    /// For a process that opens sockets for others: it attaches once, and [filters](Self::set_filters)
    /// each queue.
    ///
    /// ```no_run
    /// use xsk::{AttachMode, Mode, Program, Socket, Umem};
    ///
    /// # fn main() -> xsk::Result<()> {
    /// let program = Program::attach_to("eth0", AttachMode::Driver)?;
    /// let umem = Umem::builder().build()?;
    /// let socket = Socket::builder(&umem, "eth0", 2).program(&program).mode(Mode::Driver).open()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`SocketBuilder::open`] about programs: [`ErrorKind::ProgramAttached`],
    /// [`ErrorKind::PermissionDenied`], [`ErrorKind::ModeRefused`], [`ErrorKind::MtuTooLarge`].
    ///
    /// [`SocketBuilder::program`]: crate::SocketBuilder::program
    /// [`SocketBuilder::open`]: crate::SocketBuilder::open
    pub fn attach_to(device: &str, mode: AttachMode) -> Result<Self> {
        let device = Device::lookup(device)?;
        Self::attach(
            &device,
            mode,
            Duration::from_millis(100),
            None,
            Takes::default(),
        )
        .map_err(|error| error.context(&device.name))
    }

    /// Sets the filter of each queue; a queue without one delivers all its packets to its socket. All
    /// change at once, and no packet meets a device without a program.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a filter that cannot be; [`ErrorKind::Unsupported`] for a program
    /// of libxdp's dispatcher, for one that another process attached and that writes hints, or when the verifier
    /// refuses it; the filters stay as they are.
    pub fn set_filters(&self, filters: &BTreeMap<u32, Filter>) -> Result<()> {
        filters.values().try_for_each(Filter::check)?;
        if self.0.takes.without_ethernet && !filters.is_empty() {
            return Err(no_ethernet_header("the device"));
        }
        if self.0.takes.hints_of_another {
            let message = "the program writes the hints of packets, and another process attached it: set the filters there, before the handover";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let hints = self.hints();
        let fragments = self.takes_fragments();
        let program = load(
            &redirect_by_queue(self.map(), filters, hints),
            fragments,
            hints,
        )?;
        sys::xdp_link_update(self.held_link()?, program.as_fd())
            .map_err(refused("replacing the XDP program"))
    }

    /// Pins the program's link and its XSKMAP to files in a directory on bpffs, which must exist. The
    /// program stays attached until [`unpin`](Self::unpin) and the end of its holders.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PermissionDenied`] without `CAP_BPF`; [`ErrorKind::Unsupported`] when the directory is
    /// not on bpffs; [`ErrorKind::Os`] when something is pinned there, or the directory is missing.
    pub fn pin(&self, directory: &Path) -> Result<()> {
        let link = self.held_link()?;
        let pin = |object: BorrowedFd<'_>, file: &str| {
            let path = directory.join(file);
            sys::pin(object, &c_path(&path)?).map_err(|errno| pin_error(&path, errno))
        };
        pin(self.map(), MAP)?;
        pin(link, LINK).inspect_err(|_| {
            // Half of a pinned program is of no use.
            let _ = std::fs::remove_file(directory.join(MAP));
        })
    }

    /// The file of a [pinned](Self::pin) program's XSKMAP.
    pub fn pinned_map(directory: &Path) -> PathBuf {
        directory.join(MAP)
    }

    /// Removes the files of a pinned program, whether there are any or not. Without another holder it is
    /// detached.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Os`] when a file cannot be removed.
    pub fn unpin(directory: &Path) -> Result<()> {
        for file in [LINK, MAP] {
            let path = directory.join(file);
            c_path(&path)?;
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let message = format!("removing {}: {error}", shown(&path));
                    return Err(Error::new(ErrorKind::Os, message));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The program of `device` that an earlier process has [pinned](Self::pin); `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Foreign`] when the files are those of another device, or of no program.
    pub fn open_pinned(directory: &Path, device: &str) -> Result<Option<Self>> {
        let open = |file: &str| -> Result<Option<OwnedFd>> {
            let path = directory.join(file);
            match sys::open_pinned(&c_path(&path)?) {
                Ok(object) => Ok(Some(object)),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(pin_error(&path, errno)),
            }
        };
        let (Some(link), Some(map)) = (open(LINK)?, open(MAP)?) else {
            return Ok(None);
        };
        let device = Device::lookup(device)?;
        let Some(attached) = device.obstacle() else {
            let message = format!(
                "the link pinned in {} holds no program on {}: remove that directory",
                shown(directory),
                device.name
            );
            return Err(Error::new(ErrorKind::Foreign, message));
        };
        let takes = Takes::default().from(&device, None);
        Self::take_over(link, map, attached.mode, device.index, takes).map(Some)
    }

    fn held_link(&self) -> Result<BorrowedFd<'_>> {
        self.link().ok_or_else(|| {
            let message = "no link holds this program, but libxdp's dispatcher, or rtnetlink: attach the built-in one alone";
            Error::new(ErrorKind::Unsupported, message)
        })
    }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::invalid(format!("{}: a path cannot have a zero byte", shown(path))))
}

fn pin_error(file: &Path, errno: Errno) -> Error {
    let path = shown(file);
    // The kernel refuses any other filesystem as it refuses a missing permission.
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty());
    if is_bpffs(directory.unwrap_or(Path::new("."))) == Ok(false) {
        return Error::os(
            ErrorKind::Unsupported,
            errno,
            format!(
                "{path} is not on a BPF filesystem: name a directory on one, such as /sys/fs/bpf, where `mount -t bpf bpf /sys/fs/bpf` mounts one"
            ),
        );
    }
    let step = format!("{path}, a pinned BPF object, whose directory must be accessible too");
    let refused = Error::refused(step, errno, Feature::Bpf, &[Capability::Bpf]);
    refused
        .unwrap_or_else(|| Error::os(ErrorKind::Os, errno, format!("{path}: a pinned BPF object")))
}

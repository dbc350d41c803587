//! The files of a device in sysfs.

use crate::error::{Error, ErrorKind, Result};
use hostnet::privilege::{Capability, Feature, FileStep, file_refusal, refusal};
use hostnet::rtnetlink::{Link, Rtnetlink};
use hostnet::sysfs::Sysfs;
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;

/// A device that was looked up before, as it is now.
///
/// # Errors
///
/// [`ErrorKind::DeviceMissing`] when it is gone, or has another name.
pub(super) fn current(device: &str, index: u32) -> Result<Link> {
    let read = || Rtnetlink::open()?.link_by_index(index);
    let link = read().map_err(|error| match error.kind() {
        hostnet::ErrorKind::NotFound => gone(device),
        _ => Error::host(&error),
    })?;
    if link.name == device {
        return Ok(link);
    }
    let message = format!(
        "{device} was renamed, or this thread is in another network namespace: the device with its index, {index}, is {} here; look the device up again",
        link.name
    );
    Err(Error::new(ErrorKind::DeviceMissing, message))
}

fn gone(device: &str) -> Error {
    let message =
        format!("{device} is not in this network namespace any more: `ip link` lists the devices");
    Error::new(ErrorKind::DeviceMissing, message)
}

/// The files of a device in a sysfs of its network namespace.
#[derive(Debug)]
pub(super) struct Files {
    device: String,
    index: u32,
    /// None for the one at /sys.
    sysfs: Option<Sysfs>,
}

impl Files {
    /// Those of a device of this thread's network namespace, by its name and index.
    pub(super) fn of(device: &str, index: u32) -> Result<Self> {
        let mut files = Self {
            device: device.to_owned(),
            index,
            sysfs: None,
        };
        // The device of that name at /sys may be one of another namespace.
        let wanted = index.to_string();
        let is_it = |index: Result<String>| index.is_ok_and(|it| it == wanted);
        if !is_it(files.read("ifindex")) {
            files.sysfs = Some(Sysfs::mount().map_err(|error| Error::host(&error))?);
            if !is_it(files.read("ifindex")) {
                return Err(files.missing());
            }
        }
        Ok(files)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        let rest = format!("/{}/{name}", self.device);
        match &self.sysfs {
            Some(sysfs) => sysfs.class_net(&rest),
            None => format!("/sys/class/net{rest}").into(),
        }
    }

    pub(super) fn read(&self, name: &str) -> Result<String> {
        let text = std::fs::read_to_string(self.path(name));
        match text {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) => Err(self.error(name, FileStep::Read, &error)),
        }
    }

    pub(super) fn write(&self, name: &str, value: &str) -> Result<()> {
        let written = std::fs::write(self.path(name), value);
        written.map_err(|error| self.error(name, FileStep::Write, &error))
    }

    fn missing(&self) -> Error {
        let Self { device, index, .. } = self;
        current(device, *index)
            .err()
            .unwrap_or_else(|| gone(device))
    }

    fn error(&self, name: &str, step: FileStep, error: &io::Error) -> Error {
        let device = &self.device;
        let errno = Errno::from_io_error(error).unwrap_or(Errno::NOENT);
        let code = errno.raw_os_error();
        // The file's own check, as it is opened by who may by its mode.
        let refused = match errno {
            Errno::PERM => refusal(code, Feature::Base, &[Capability::NetAdmin]),
            _ => file_refusal(code, &self.path(name), step),
        };
        let (kind, why) = match (errno, refused) {
            (Errno::NOENT, _) if self.path("ifindex").exists() => (
                ErrorKind::Unsupported,
                "needs Linux 5.8 or later".to_owned(),
            ),
            (Errno::NOENT | Errno::NODEV, _) => return self.missing(),
            (_, Some(why)) => (ErrorKind::PermissionDenied, why),
            _ => (ErrorKind::Os, "the kernel refuses it".to_owned()),
        };
        Error::os(kind, errno, format!("{name} of {device}: {why}"))
    }
}

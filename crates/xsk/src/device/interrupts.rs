//! Interrupts of a device that are put off while its queues are polled.

use super::Device;
use super::files::Files;
use crate::error::{Error, Result};
use std::time::Duration;

/// Polls without packets after which interrupts are armed again, and the time after which they are at the
/// latest, in nanoseconds (`net/core/net-sysfs.c`).
const POLLS: &str = "napi_defer_hard_irqs";
const TIMEOUT: &str = "gro_flush_timeout";

/// The kernel's limit of polls (`dev->napi_defer_hard_irqs` is an `int`).
const MOST_POLLS: u32 = i32::MAX as u32;

/// Interrupts of a device that are put off, by [`Device::defer_interrupts`]. Dropping it restores the settings
/// from before.
///
/// A killed process restores nothing: then write 0 to both files, or what the operator's configuration has.
#[derive(Debug)]
#[must_use = "dropping it restores the device's settings"]
pub struct DeferredInterrupts {
    files: Files,
    /// Those that were changed, in their order.
    changed: Vec<Setting>,
}

/// A setting that was changed.
#[derive(Debug)]
struct Setting {
    name: &'static str,
    before: String,
    ours: String,
}

impl Device {
    /// Puts interrupts of the device's queues off while a socket polls them with
    /// [`Wait::BusyPoll`](crate::Wait::BusyPoll): they stay masked until a queue was polled `polls` times in a
    /// row without a packet, and for `timeout` behind a poll. Both are needed, or interrupts compete with the
    /// polls (`Documentation/networking/napi.rst`, which has 2 polls and 200 µs). They are settings of the whole
    /// device: packets of queues that nobody polls wait for up to `timeout`.
    ///
    /// ```no_run
    /// # fn main() -> xsk::Result<()> {
    /// let device = xsk::Device::lookup("eth0")?;
    /// let deferred = device.defer_interrupts(2, std::time::Duration::from_micros(200))?;
    /// // Sockets with `Wait::BusyPoll`.
    /// deferred.restore()
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when either is 0, or too large for the kernel;
    /// [`ErrorKind::PermissionDenied`] without `CAP_NET_ADMIN`, or, where `/sys` is that of another network
    /// namespace, without `CAP_SYS_ADMIN`; [`ErrorKind::Unsupported`] before Linux 5.8;
    /// [`ErrorKind::DeviceMissing`] when the device has gone. Nothing is changed then.
    ///
    /// [`ErrorKind::DeviceMissing`]: crate::ErrorKind::DeviceMissing
    /// [`ErrorKind::InvalidConfig`]: crate::ErrorKind::InvalidConfig
    /// [`ErrorKind::PermissionDenied`]: crate::ErrorKind::PermissionDenied
    /// [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
    pub fn defer_interrupts(&self, polls: u32, timeout: Duration) -> Result<DeferredInterrupts> {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        if !(1..=MOST_POLLS).contains(&polls) || !(1..=i64::MAX as u64).contains(&nanoseconds) {
            return Err(Error::invalid(format!(
                "interrupts of {} cannot be put off by {polls} polls and {timeout:?}: choose 1 to {MOST_POLLS} \
                 polls and a time above 0, such as 2 and 200 µs",
                self.name
            )));
        }
        let mut deferred = DeferredInterrupts {
            files: Files::of(&self.name, self.index)?,
            changed: Vec::new(),
        };
        for (name, value) in [
            (POLLS, polls.to_string()),
            (TIMEOUT, nanoseconds.to_string()),
        ] {
            let before = deferred.files.read(name)?;
            deferred.files.write(name, &value)?;
            deferred.changed.push(Setting {
                name,
                before,
                ours: value,
            });
        }
        Ok(deferred)
    }
}

impl DeferredInterrupts {
    /// Restores the settings from before, unless somebody has changed them since.
    ///
    /// # Errors
    ///
    /// As those of [`Device::defer_interrupts`]. [`DeviceMissing`](crate::ErrorKind::DeviceMissing) also when the
    /// device has another name now, or has moved to another network namespace.
    pub fn restore(mut self) -> Result<()> {
        self.restore_all()
    }

    fn restore_all(&mut self) -> Result<()> {
        while let Some(setting) = self.changed.pop() {
            if self.files.read(setting.name)? == setting.ours {
                self.files.write(setting.name, &setting.before)?;
            }
        }
        Ok(())
    }
}

impl Drop for DeferredInterrupts {
    fn drop(&mut self) {
        // Nobody could do anything about an error: `restore` returns it.
        let _ = self.restore_all();
    }
}

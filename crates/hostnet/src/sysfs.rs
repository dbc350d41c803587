//! The sysfs of a network namespace.

use std::path::PathBuf;

use crate::error::Result;
use crate::mount::DetachedMount;

/// A sysfs of one network namespace, mounted at no path. `/sys/class/net` shows the devices of
/// the namespace that mounted it, also to threads in another (`net_ns_type_operations` in
/// net/core/net-sysfs.c).
///
/// ```no_run
/// use hostnet::sysfs::Sysfs;
///
/// let sysfs = Sysfs::mount()?;
/// std::fs::write(sysfs.class_net("/eth0/queues/rx-0/rps_cpus"), "3")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it is unmounted when it is dropped"]
pub struct Sysfs(DetachedMount);

impl Sysfs {
    /// Mounts one for the calling thread's network namespace. Needs `CAP_SYS_ADMIN`.
    pub fn mount() -> Result<Self> {
        DetachedMount::new("sysfs").map(Self)
    }

    /// The path of `/sys/class/net` and `rest` in this mount, for this process; `rest` begins with
    /// a slash or is empty.
    pub fn class_net(&self, rest: &str) -> PathBuf {
        self.0.path(&format!("/class/net{rest}"))
    }
}

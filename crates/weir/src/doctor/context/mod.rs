//! What the checks read from: this host, or the root of a test.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use hostnet::kernel_config::KernelConfig;
use hostnet::rtnetlink::Rtnetlink;
use hostnet::sysfs::{Detached, Sysfs};

const HOST_ROOT: &str = "/";
const SECURITY: &str = "/sys/kernel/security";
/// How long counters are watched.
pub const WATCH: Duration = Duration::from_secs(1);

/// The counters that are watched. A `*` stands for every entry of a directory.
const WATCHED: [&str; 5] = [
    "/proc/net/softnet_stat",
    "/proc/net/dev",
    "/sys/class/net/*/statistics/rx_missed_errors",
    "/sys/class/net/*/statistics/rx_fifo_errors",
    "/sys/class/net/*/statistics/rx_dropped",
];

/// What the checks read from.
///
/// Paths are those that a person would type, such as `/proc/net/softnet_stat`, whatever the
/// root. What is below /sys/class/net is of the network namespace that the thread is in, also
/// where /sys is of another.
pub struct Context {
    root: PathBuf,
    sys: Sys,
    /// A mount of our own, without a place, where the host has none.
    securityfs: Option<Detached>,
    devices: Vec<String>,
    links: Result<Vec<LinkBrief>, String>,
    ksoftirqd: Vec<Ksoftirqd>,
    watch: Duration,
    before: Snapshot,
    after: OnceLock<Snapshot>,
}

/// A device of the network namespace, as far as checks of the host look at one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkBrief {
    /// Its name.
    pub name: String,
    /// What made it, such as `vrf` or `tun`.
    pub kind: Option<String>,
    /// The number of its XDP program.
    pub xdp_program: Option<u32>,
}

/// Whose devices /sys shows: those of the namespace of whoever mounted it.
enum Sys {
    /// A mount of our own.
    Ours(Sysfs),
    /// /sys itself shows this namespace.
    Shared,
    /// /sys shows another namespace.
    Foreign,
}

/// A thread that takes over softirqs when there are too many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ksoftirqd {
    /// The CPU it is of.
    pub cpu: usize,
    /// Its file of time on the CPU, in nanoseconds, which is watched.
    pub schedstat: String,
}

/// Counters at one moment, by file.
struct Snapshot {
    taken: Instant,
    files: BTreeMap<String, String>,
}

/// A counter file at two moments.
pub struct Twice<'a> {
    /// What it said first.
    pub before: &'a str,
    /// What it said at the end.
    pub after: &'a str,
    /// The time between.
    pub elapsed: Duration,
}

impl Context {
    /// This host, for the devices of these names, or all if there is none.
    pub fn host(devices: Vec<String>) -> Self {
        let links = links().map_err(|error| format!("{error:#}"));
        let securityfs = Detached::mount("securityfs").ok();
        Self {
            securityfs: securityfs.filter(|_| !Path::new(SECURITY).join("lsm").exists()),
            ..Self::new(PathBuf::from(HOST_ROOT), sys(), devices, links, WATCH)
        }
    }

    /// A directory with what the checks of the host read below it, and these devices; counters
    /// are watched for so long.
    pub fn at(root: &Path, links: Vec<LinkBrief>, watch: Duration) -> Self {
        Self::new(root.into(), Sys::Shared, Vec::new(), Ok(links), watch)
    }

    fn new(
        root: PathBuf,
        sys: Sys,
        devices: Vec<String>,
        links: Result<Vec<LinkBrief>, String>,
        watch: Duration,
    ) -> Self {
        let mut context = Self {
            root,
            sys,
            securityfs: None,
            devices,
            links,
            ksoftirqd: Vec::new(),
            watch,
            before: Snapshot {
                taken: Instant::now(),
                files: BTreeMap::new(),
            },
            after: OnceLock::new(),
        };
        context.ksoftirqd = context.find_ksoftirqd();
        context.before = context.snapshot();
        context
    }

    /// The devices that were asked for; all if there is none.
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// How its kernel was built.
    pub fn kernel_config(&self) -> Result<KernelConfig> {
        KernelConfig::read_below(&self.root)
    }

    /// Every device of the network namespace.
    pub fn links(&self) -> Result<&[LinkBrief]> {
        match &self.links {
            Ok(links) => Ok(links),
            Err(reason) => Err(anyhow!("{reason}")),
        }
    }

    /// Whether this is the running host, which can be asked by other means than its files.
    pub fn is_host(&self) -> bool {
        self.root == Path::new(HOST_ROOT)
    }

    /// Whether the network namespace is the one that the host started with: only that one has
    /// the settings of the whole host (`net_core_table` in `net/core/sysctl_net_core.c`).
    pub fn is_initial_netns(&self) -> bool {
        self.path("/proc/sys/net/core/netdev_max_backlog")
            .is_ok_and(|path| path.exists())
    }

    /// Where the file that people know as `path` is.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        if let Some((rest, mount)) = path.strip_prefix(SECURITY).zip(self.securityfs.as_ref()) {
            return Ok(mount.path(rest));
        }
        if let Some(rest) = path.strip_prefix("/sys/class/net") {
            match &self.sys {
                Sys::Ours(mount) => return Ok(mount.class_net(rest)),
                Sys::Shared => {}
                Sys::Foreign => {
                    return Err(anyhow!(
                        "/sys shows another network namespace: run as root, or mount sysfs in this one"
                    ));
                }
            }
        }
        // /proc/net is of the process's first thread, which may be in another namespace.
        let thread = path.strip_prefix("/proc/net/");
        if let Some(rest) = thread.filter(|_| self.is_host()) {
            return Ok(format!("/proc/thread-self/net/{rest}").into());
        }
        Ok(self.root.join(path.trim_start_matches('/')))
    }

    /// A file's text, without white space at its end.
    pub fn read(&self, path: &str) -> Result<String> {
        let text = fs::read_to_string(self.path(path)?);
        let text = text.map_err(|error| unreadable(error, path))?;
        Ok(text.trim_end().to_owned())
    }

    /// A file's text, or `None` if there is no such file.
    pub fn read_if_there(&self, path: &str) -> Result<Option<String>> {
        match fs::read_to_string(self.path(path)?) {
            Ok(text) => Ok(Some(text.trim_end().to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(error, path)),
        }
    }

    /// The names in a directory, sorted; none if there is no such directory.
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(path)?) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(error, path)),
        };
        let mut names: Vec<_> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// The devices below /sys/class/net. There are also files, such as `bonding_masters`.
    pub fn class_net(&self) -> Result<Vec<String>> {
        let directory = "/sys/class/net";
        let mut names = self.list(directory)?;
        let directory = self.path(directory)?;
        names.retain(|name| directory.join(name).is_dir());
        Ok(names)
    }

    /// A watched file at both moments. The first caller waits until there is a second one.
    pub fn twice(&self, path: &str) -> Result<Twice<'_>> {
        let after = self.after.get_or_init(|| {
            sleep(self.watch.saturating_sub(self.before.taken.elapsed()));
            self.snapshot()
        });
        let at = |snapshot: &'_ Snapshot| snapshot.files.contains_key(path);
        if !at(&self.before) || !at(after) {
            return Err(anyhow!("cannot read {path}"));
        }
        Ok(Twice {
            before: &self.before.files[path],
            after: &after.files[path],
            elapsed: after.taken - self.before.taken,
        })
    }

    fn snapshot(&self) -> Snapshot {
        let paths = WATCHED.iter().flat_map(|pattern| self.expand(pattern));
        let files = paths
            .chain(self.ksoftirqd.iter().map(|thread| thread.schedstat.clone()))
            .filter_map(|path| Some((path.clone(), self.read(&path).ok()?)));
        Snapshot {
            files: files.collect(),
            taken: Instant::now(),
        }
    }

    /// The threads that take over softirqs, if this PID namespace shows them.
    pub fn ksoftirqd(&self) -> &[Ksoftirqd] {
        &self.ksoftirqd
    }

    fn find_ksoftirqd(&self) -> Vec<Ksoftirqd> {
        let processes = self.list("/proc").unwrap_or_default();
        let numbers = processes
            .iter()
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        numbers
            .filter_map(|pid| {
                let name = self.read(&format!("/proc/{pid}/comm")).ok()?;
                let cpu = name.strip_prefix("ksoftirqd/")?.parse().ok()?;
                let schedstat = format!("/proc/{pid}/schedstat");
                Some(Ksoftirqd { cpu, schedstat })
            })
            .collect()
    }

    /// The files that a pattern with at most one `*` means.
    fn expand(&self, pattern: &str) -> Vec<String> {
        let Some((directory, rest)) = pattern.split_once("/*") else {
            return vec![pattern.into()];
        };
        let names = self.list(directory).unwrap_or_default();
        names
            .iter()
            .map(|name| format!("{directory}/{name}{rest}"))
            .collect()
    }
}

fn unreadable(error: std::io::Error, path: &str) -> anyhow::Error {
    let cure = match error.kind() {
        ErrorKind::PermissionDenied => ": run as root",
        _ => "",
    };
    anyhow!(error).context(format!("cannot read {path}{cure}"))
}

fn links() -> Result<Vec<LinkBrief>> {
    let links = Rtnetlink::open()?.links()?;
    Ok(links
        .into_iter()
        .map(|link| LinkBrief {
            name: link.name,
            kind: link.kind,
            xdp_program: link.xdp_program,
        })
        .collect())
}

fn sys() -> Sys {
    match Sysfs::mount() {
        Ok(mount) => Sys::Ours(mount),
        Err(_) if shows_this_namespace() => Sys::Shared,
        Err(_) => Sys::Foreign,
    }
}

/// Whether /sys has the devices that /proc, which always shows the thread's own namespace, has.
fn shows_this_namespace() -> bool {
    let Ok(devices) = fs::read_to_string("/proc/thread-self/net/dev") else {
        return false;
    };
    let names = devices.lines().filter_map(|line| line.split_once(':'));
    let mut names: Vec<_> = names.map(|(name, _)| name.trim().to_owned()).collect();
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten();
    let mut shown: Vec<_> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    shown.retain(|name| name != "bonding_masters");
    shown.sort();
    names == shown
}

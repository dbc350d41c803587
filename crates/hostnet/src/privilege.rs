//! Whose refusal an error number is: that of a kernel without the feature, of a missing capability, or of a
//! sandbox around a process that has it (seccomp(2), capabilities(7), `user_namespaces(7)`).
//!
//! ```
//! use hostnet::privilege::{Capability, Feature, refusal};
//!
//! // A full ring is about no privilege.
//! assert_eq!(refusal(libc::ENOBUFS, Feature::AfXdp, &[Capability::NetRaw]), None);
//! let words = refusal(libc::EPERM, Feature::AfXdp, &[Capability::NetRaw]).unwrap();
//! assert!(words.contains("CAP_NET_RAW"), "{words}");
//! ```

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fmt, fs, io};

use rustix::fs::{Access as Mode, AtFlags, CWD, accessat};

/// Bits of `linux/capability.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// Files of others, whatever their modes are.
    DacOverride = 1,
    /// Other capabilities, to be taken away for good.
    Setpcap = 8,
    /// TCP and UDP ports below 1024.
    NetBindService = 10,
    /// Network devices, their settings and programs.
    NetAdmin = 12,
    /// Sockets that see whole frames.
    NetRaw = 13,
    /// Locked memory beyond `RLIMIT_MEMLOCK`.
    IpcLock = 14,
    /// Processes of others.
    SysPtrace = 19,
    /// Mounts, namespaces, and what has no capability of its own.
    SysAdmin = 21,
    /// Addresses of the kernel.
    Syslog = 34,
    /// Tracing.
    Perfmon = 38,
    /// BPF maps and programs.
    Bpf = 39,
}

impl Capability {
    /// The bits that contain it: `CAP_SYS_ADMIN` has the rights of those that Linux 5.8 split off
    /// (`bpf_capable` and `perfmon_capable` in `include/linux/capability.h`).
    fn bits(self) -> u64 {
        let own = 1 << self as u32;
        match self {
            Self::Perfmon | Self::Bpf => own | 1 << Self::SysAdmin as u32,
            _ => own,
        }
    }
}

/// As in capabilities(7).
impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::Setpcap => "CAP_SETPCAP",
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::Syslog => "CAP_SYSLOG",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        })
    }
}

/// A part of the kernel that a build may leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// AF_XDP sockets (`CONFIG_XDP_SOCKETS`).
    AfXdp,
    /// AF_PACKET sockets (`CONFIG_PACKET`).
    Packet,
    /// bpf(2) (`CONFIG_BPF_SYSCALL`).
    Bpf,
    /// `perf_event_open(2)` (`CONFIG_PERF_EVENTS`).
    PerfEvents,
    /// Sockets and system calls that every kernel with a network has, such as netlink.
    Base,
}

impl Feature {
    /// Whether the running kernel has it, asked by another way than the one that was refused. `None` if that
    /// does not tell: the kernel may have it in a module that is not loaded, and /proc may not be mounted.
    fn is_present(self) -> Option<bool> {
        match self {
            Self::AfXdp => has_protocol("XDP"),
            Self::Packet => has_protocol("PACKET").filter(|loaded| *loaded),
            Self::Bpf => has_sysctl("unprivileged_bpf_disabled"),
            Self::PerfEvents => has_sysctl("perf_event_paranoid"),
            Self::Base => Some(true),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AfXdp => "AF_XDP",
            Self::Packet => "AF_PACKET",
            Self::Bpf => "bpf(2)",
            Self::PerfEvents => "perf_event_open(2)",
            Self::Base => "this system call",
        })
    }
}

/// The cure for a seccomp filter.
const LIFT_FILTER: &str = "allow it in the container's seccomp profile, or in SystemCallFilter= and \
                           RestrictAddressFamilies= of the service";

/// Cause and cure, if `errno` of a step that uses `feature` and needs these capabilities is about privilege.
/// It looks at the calling thread: its capabilities, its seccomp filter, its user namespace and its limits.
///
/// `EPERM` and `EACCES` always are. `ENOSYS` and `EAFNOSUPPORT`, the numbers of a kernel without the feature,
/// are if a seccomp filter is in force and the kernel has the feature: container runtimes and service managers
/// choose among the four.
pub fn refusal(errno: i32, feature: Feature, needed: &[Capability]) -> Option<String> {
    let thread = Thread::own();
    match errno {
        libc::EPERM | libc::EACCES => Some(thread.denied(feature, needed)),
        libc::ENOSYS | libc::EAFNOSUPPORT if thread.is_filtered => {
            filtered(feature, feature.is_present())
        }
        _ => None,
    }
}

/// Cause and cure, if the calling thread lacks one of these capabilities: for a program that asks before it starts.
pub fn missing(needed: &[Capability]) -> Option<String> {
    let thread = Thread::own();
    let lacking = thread.lacking(needed);
    (!lacking.is_empty()).then(|| thread.lacks(needed, &lacking))
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileStep {
    /// It is read, or a directory listed.
    Read,
    /// It is written, made or removed.
    Write,
}

/// As [`refusal`], for a step on the file or directory at `path`. It looks at the file's owner and mode, which refuse a
/// process without `CAP_DAC_OVERRIDE` only; at a read-only mount (`EROFS`), which refuses every process; and at the
/// sandbox of a process that neither refuses.
///
/// ```
/// use std::path::Path;
///
/// use hostnet::privilege::{FileStep, file_refusal};
///
/// let path = Path::new("/proc/version");
/// assert_eq!(file_refusal(libc::ENOENT, path, FileStep::Read), None);
/// let words = file_refusal(libc::EROFS, path, FileStep::Write).unwrap();
/// assert!(words.contains("read-only"), "{words}");
/// ```
pub fn file_refusal(errno: i32, path: &Path, step: FileStep) -> Option<String> {
    let thread = Thread::own();
    match errno {
        libc::EROFS => Some(
            "it is on a mount that is read-only for this process: make it writable (ReadWritePaths= of the service, a \
             volume of the container), or name another path"
                .to_owned(),
        ),
        libc::EPERM | libc::EACCES => Some(thread.denied_file(&Modes::at(path, step))),
        libc::ENOSYS if thread.is_filtered => filtered(Feature::Base, Some(true)),
        _ => None,
    }
}

/// [`file_refusal`] of an error, to be put at the end of a message: a colon, cause and cure, or nothing.
///
/// ```
/// use std::io;
/// use std::path::Path;
///
/// use hostnet::privilege::{FileStep, file_note};
///
/// let error = io::Error::from_raw_os_error(libc::ENOENT);
/// assert_eq!(file_note(&error, Path::new("/none"), FileStep::Read), "");
/// ```
pub fn file_note(error: &io::Error, path: &Path, step: FileStep) -> String {
    let errno = error.raw_os_error();
    let why = errno.and_then(|errno| file_refusal(errno, path, step));
    why.map_or_else(String::new, |why| format!(": {why}"))
}

/// The cure of memory that may not be locked (`RLIMIT_MEMLOCK`), for the calling thread.
///
/// ```
/// assert!(hostnet::privilege::memory_lock_cure().contains("`ulimit -l"));
/// ```
pub fn memory_lock_cure() -> &'static str {
    let thread = Thread::own();
    if thread.in_user_namespace && thread.has(Capability::IpcLock) {
        // `capable` asks for it in the initial namespace.
        "raise it with `ulimit -l` or LimitMEMLOCK=; CAP_IPC_LOCK of a user namespace does not lift it"
    } else {
        "raise it with `ulimit -l` or LimitMEMLOCK=, or grant CAP_IPC_LOCK"
    }
}

/// As [`refusal`], for `EPERM` in an answer over netlink, which a seccomp filter does not see; `None` if the thread has the
/// capability, as the kernel then had another reason.
pub(crate) fn refused_request(needed: Capability) -> Option<String> {
    let thread = Thread::own();
    let lacks = !thread.has(needed);
    (lacks || thread.in_user_namespace).then(|| {
        let thread = Thread {
            is_filtered: false,
            ..thread
        };
        thread.denied(Feature::Base, &[needed])
    })
}

/// The owner and mode of a file, or of the directory in which it is or would be.
#[derive(Debug, Clone)]
struct Modes {
    path: String,
    owner: u32,
    mode: u32,
    /// Whether they allow the step to the calling thread.
    allow: bool,
}

impl Modes {
    fn at(path: &Path, step: FileStep) -> Self {
        let here = |it| {
            if it == Path::new("") {
                Path::new(".")
            } else {
                it
            }
        };
        // A directory that may not be searched hides what is in it.
        let mut above = path.ancestors().map(here);
        let found = above.find_map(|it| Some((it, fs::metadata(it).ok()?)));
        let Some((there, file)) = found else {
            return Self {
                path: path.display().to_string(),
                owner: 0,
                mode: 0,
                allow: true,
            };
        };
        let wanted = match step {
            FileStep::Read if there == path => Mode::READ_OK,
            FileStep::Read => Mode::EXEC_OK,
            FileStep::Write if file.is_dir() => Mode::WRITE_OK | Mode::EXEC_OK,
            FileStep::Write => Mode::WRITE_OK,
        };
        Self {
            path: there.display().to_string(),
            owner: file.uid(),
            mode: file.mode() & 0o7777,
            allow: accessat(CWD, there, wanted, AtFlags::EACCESS).is_ok(),
        }
    }
}

/// The cure of a missing feature that a filter may have hidden.
fn filtered(feature: Feature, is_present: Option<bool>) -> Option<String> {
    match is_present {
        Some(true) => Some(format!(
            "this kernel has {feature}, and a seccomp filter refuses it: {LIFT_FILTER}"
        )),
        None => Some(format!(
            "a seccomp filter refuses it, or the kernel has no {feature}: {LIFT_FILTER}"
        )),
        Some(false) => None,
    }
}

/// What the calling thread may do.
#[derive(Debug, Clone, Default)]
struct Thread {
    /// `None` without /proc.
    effective: Option<u64>,
    is_root: bool,
    user: u32,
    /// Execution gives it no privileges (`PR_SET_NO_NEW_PRIVS`).
    gains_nothing: bool,
    is_filtered: bool,
    /// Its capabilities are those of a user namespace that some process made.
    in_user_namespace: bool,
    /// `RLIMIT_MEMLOCK`, if the kernel charges BPF maps and programs to it, even those of root.
    bpf_memory: Option<u64>,
}

impl Thread {
    fn own() -> Self {
        // Not `self`: threads have capabilities and filters of their own.
        let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/{file}"));
        let status = read("status").unwrap_or_default();
        Self {
            in_user_namespace: in_user_namespace(),
            bpf_memory: bpf_memory(),
            ..Self::of(&status)
        }
    }

    /// From the text of `proc_pid_status(5)`.
    fn of(status: &str) -> Self {
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let number = |name| field(name).map(str::trim);
        // Real, effective, saved and of the file system.
        let user = field("Uid").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok());
        Self {
            effective: number("CapEff").and_then(|bits| u64::from_str_radix(bits, 16).ok()),
            is_root: user == Some(0),
            user: user.unwrap_or_default(),
            gains_nothing: number("NoNewPrivs") == Some("1"),
            is_filtered: number("Seccomp") == Some("2"),
            ..Self::default()
        }
    }

    fn has(&self, capability: Capability) -> bool {
        self.effective
            .is_some_and(|held| held & capability.bits() != 0)
    }

    fn lacking(&self, needed: &[Capability]) -> Vec<Capability> {
        let needed = needed.iter().copied();
        needed.filter(|it| !self.has(*it)).collect()
    }

    /// Cause and cure of `EPERM`.
    fn denied(&self, feature: Feature, needed: &[Capability]) -> String {
        let lacking = self.lacking(needed);
        if !lacking.is_empty() {
            return self.lacks(needed, &lacking);
        }
        let held = match needed {
            [] => "this needs no capability".to_owned(),
            _ => format!("this process has {}", list(needed)),
        };
        if self.is_filtered && self.in_user_namespace {
            return format!(
                "{held}, but in a user namespace and under a seccomp filter, and one of them refuses it: \
                 run outside of the user namespace; {LIFT_FILTER}"
            );
        }
        if self.is_filtered {
            return format!("{held}, but a seccomp filter refuses it: {LIFT_FILTER}");
        }
        if self.in_user_namespace && !needed.is_empty() {
            return format!(
                "{held}, but only in its user namespace: run it as root outside of that namespace"
            );
        }
        match self.bpf_memory {
            Some(limit) if feature == Feature::Bpf => format!(
                "{held}, but kernels before Linux 5.11 charge BPF to the memory lock limit, which is \
                 {limit} bytes: raise it with `ulimit -l unlimited` or LimitMEMLOCK="
            ),
            _ => format!(
                "{held}, but a security module (SELinux, AppArmor), the kernel's lockdown or a driver refuses \
                 it: see `dmesg` and the audit log"
            ),
        }
    }

    /// Cause and cure of `EACCES` or `EPERM` of a file.
    fn denied_file(&self, file: &Modes) -> String {
        let Modes {
            path, owner, mode, ..
        } = file;
        let modes = format!("{path} is of user {owner} and has mode {mode:o}");
        if !file.allow && self.in_user_namespace && self.has(Capability::DacOverride) {
            return format!(
                "{modes}, which this process may pass by only for users of its user namespace: run it outside of that \
                 namespace, or name another path"
            );
        }
        if !file.allow && self.is_root {
            return format!(
                "{modes}, and root lacks CAP_DAC_OVERRIDE here: change the mode, or grant it to the container \
                 (--cap-add) or the service (CapabilityBoundingSet=)"
            );
        }
        if !file.allow {
            return format!(
                "{modes}, and this process is of user {}: run as root, or name another path",
                self.user
            );
        }
        if self.is_filtered {
            return format!(
                "the mode of {path} allows it, but a seccomp filter or another sandbox refuses it: {LIFT_FILTER}"
            );
        }
        format!(
            "the mode of {path} allows it, but an attribute (`lsattr`), Landlock or a security module (SELinux, AppArmor) \
             refuses it: see `dmesg` and the audit log"
        )
    }

    fn lacks(&self, needed: &[Capability], lacking: &[Capability]) -> String {
        let needs = list(needed);
        let missing = if lacking.len() == needed.len() {
            String::new()
        } else {
            format!(", and this process has no {}", list(lacking))
        };
        let them = if lacking.len() == 1 { "it" } else { "them" };
        if self.is_root {
            return format!(
                "this needs {needs}{missing}: root lacks {them} here; grant {them} to the container \
                 (--cap-add) or the service (CapabilityBoundingSet=)"
            );
        }
        let gains = if self.gains_nothing {
            "; sudo and file capabilities give this process nothing (no_new_privs)"
        } else {
            ""
        };
        format!("this needs {needs}{missing}: run as root or grant {them}{gains}")
    }
}

/// `A`, `A and B`, or `A, B and C`.
fn list(capabilities: &[Capability]) -> String {
    let names: Vec<_> = capabilities.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Whether the calling thread is in a user namespace that some process made. Its root may be an ordinary user of the host.
///
/// ```
/// let _ = hostnet::privilege::in_user_namespace();
/// ```
pub fn in_user_namespace() -> bool {
    std::fs::read_to_string("/proc/thread-self/uid_map").is_ok_and(|map| !is_initial(&map))
}

/// Whether all users are their own, as in the namespace that the kernel starts with (`user_namespaces(7)`).
fn is_initial(uid_map: &str) -> bool {
    let words: Vec<_> = uid_map.split_whitespace().collect();
    words == ["0", "0", "4294967295"]
}

/// The limit of locked memory, if it is one and the kernel charges BPF to it. A process that may call no bpf(2)
/// has no other way to ask for this than the kernel's version.
fn bpf_memory() -> Option<u64> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current?;
    charges_bpf(&release).then_some(limit)
}

/// Whether the release is older than 5.11, which charges BPF to memory cgroups.
fn charges_bpf(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || numbers.next().and_then(|digits| digits.parse::<u32>().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) => (major, minor) < (5, 11),
        _ => false,
    }
}

/// Whether sockets of a family exist, from the list of `proto_register` in `net/core/sock.c`.
fn has_protocol(name: &str) -> Option<bool> {
    let list = fs::read_to_string("/proc/thread-self/net/protocols").ok()?;
    Some(
        list.lines()
            .any(|line| line.split_whitespace().next() == Some(name)),
    )
}

fn has_sysctl(name: &str) -> Option<bool> {
    let directory = Path::new("/proc/sys/kernel");
    directory.exists().then(|| directory.join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nNoNewPrivs:\t0\nSeccomp:\t0\n";
    const NONE: &str =
        "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
    const NEEDED: [Capability; 2] = [Capability::Bpf, Capability::NetAdmin];

    fn words(thread: &Thread) -> String {
        thread.denied(Feature::Bpf, &NEEDED)
    }

    #[test]
    fn the_missing_capability_is_named_first() {
        let user = Thread::of(NONE);
        assert_eq!(
            words(&user),
            "this needs CAP_BPF and CAP_NET_ADMIN: run as root or grant them; sudo and file capabilities \
             give this process nothing (no_new_privs)"
        );
        let root = Thread::of(&ALL.replace("000001ffffffffff", "0000008000000000"));
        assert_eq!(
            words(&root),
            "this needs CAP_BPF and CAP_NET_ADMIN, and this process has no CAP_NET_ADMIN: root lacks \
             it here; grant it to the container (--cap-add) or the service (CapabilityBoundingSet=)"
        );
        let unknown = Thread::of("");
        assert!(
            words(&unknown).contains("run as root"),
            "{}",
            words(&unknown)
        );
    }

    #[test]
    fn cap_sys_admin_contains_those_split_off() {
        let admin = Thread::of("CapEff:\t0000000000201000\nSeccomp:\t2\n");
        assert!(words(&admin).contains("seccomp"), "{}", words(&admin));
        let admin = admin.denied(Feature::AfXdp, &[Capability::NetRaw]);
        assert!(admin.contains("this needs CAP_NET_RAW"), "{admin}");
    }

    #[test]
    fn each_limit_of_a_process_with_the_capabilities_is_named() {
        let all = Thread::of(ALL);
        let filtered = Thread {
            is_filtered: true,
            ..all.clone()
        };
        let in_user_namespace = Thread {
            in_user_namespace: true,
            ..all.clone()
        };
        let with_limit = Thread {
            bpf_memory: Some(65536),
            ..all.clone()
        };
        let cases = [
            ("but a seccomp filter refuses it", &filtered),
            ("only in its user namespace", &in_user_namespace),
            ("memory lock limit, which is 65536 bytes", &with_limit),
            ("security module", &all),
        ];
        for (expected, thread) in cases {
            let words = words(thread);
            assert!(words.starts_with("this process has CAP_BPF and CAP_NET_ADMIN, but"));
            assert!(words.contains(expected), "{words}");
        }
        let both = words(&Thread {
            is_filtered: true,
            ..in_user_namespace
        });
        assert!(
            both.contains("seccomp") && both.contains("user namespace"),
            "{both}"
        );
    }

    /// Whether the mode allows the step, by the limit of the process.
    #[test]
    fn each_refusal_of_a_file_is_named() {
        let all = Thread::of(ALL);
        let user = Thread::of(&NONE.replace("Seccomp:\t2", "Seccomp:\t0"));
        let bounded = Thread::of(&ALL.replace("000001ffffffffff", "0000000000000000"));
        let filtered = Thread {
            is_filtered: true,
            ..all.clone()
        };
        let filtered_user = Thread::of(NONE);
        let in_user_namespace = Thread {
            in_user_namespace: true,
            ..all.clone()
        };
        let modes = |allow| Modes {
            path: "/etc/shadow".to_owned(),
            owner: 7,
            mode: 0o640,
            allow,
        };
        let refused = "/etc/shadow is of user 7 and has mode 640";
        for (thread, allowed_words, refused_words) in [
            (&all, "Landlock", "root lacks CAP_DAC_OVERRIDE"),
            (
                &user,
                "Landlock",
                "this process is of user 1000: run as root",
            ),
            (&bounded, "Landlock", "root lacks CAP_DAC_OVERRIDE"),
            (
                &filtered,
                "a seccomp filter or another sandbox refuses it",
                "root lacks CAP_DAC_OVERRIDE",
            ),
            (
                &filtered_user,
                "a seccomp filter or another sandbox refuses it",
                "of user 1000",
            ),
            (
                &in_user_namespace,
                "Landlock",
                "only for users of its user namespace",
            ),
        ] {
            let words = thread.denied_file(&modes(true));
            assert!(words.contains(allowed_words), "{words}");
            assert!(
                words.starts_with("the mode of /etc/shadow allows it"),
                "{words}"
            );
            let words = thread.denied_file(&modes(false));
            assert!(words.starts_with(refused), "{words}");
            assert!(words.contains(refused_words), "{words}");
            assert!(!words.contains("seccomp"), "{words}");
        }
    }

    #[test]
    fn the_mode_of_the_directory_counts_for_a_file_to_be_made() {
        let modes = Modes::at(Path::new("/proc/none/of/these"), FileStep::Write);
        assert_eq!(modes.path, "/proc");
        let modes = Modes::at(Path::new("none-of-these"), FileStep::Read);
        assert_eq!((modes.path.as_str(), modes.allow), (".", true));
        assert_eq!(Modes::at(Path::new(""), FileStep::Read).path, ".");
        for errno in [libc::ENOENT, libc::EIO, libc::EEXIST, 0] {
            assert_eq!(file_refusal(errno, Path::new("/"), FileStep::Write), None);
        }
    }

    #[test]
    fn a_feature_that_the_kernel_lacks_is_not_the_filters() {
        assert_eq!(filtered(Feature::AfXdp, Some(false)), None);
        let hidden = filtered(Feature::AfXdp, Some(true)).unwrap();
        assert!(
            hidden.contains("this kernel has AF_XDP, and a seccomp"),
            "{hidden}"
        );
        let unknown = filtered(Feature::Packet, None).unwrap();
        assert!(
            unknown.contains("or the kernel has no AF_PACKET"),
            "{unknown}"
        );
    }

    #[test]
    fn kernels_before_5_11_charge_bpf_to_the_limit() {
        let charging = ["5.10.0-28-amd64", "4.19.0", "5.4"];
        assert!(charging.iter().all(|release| charges_bpf(release)));
        let others = ["5.11.0", "6.1.0-18-amd64", "5.15.0", "", "next"];
        assert!(others.iter().all(|release| !charges_bpf(release)));
    }

    #[test]
    fn the_initial_user_namespace_maps_all_users() {
        assert!(is_initial("         0          0 4294967295\n"));
        assert!(!is_initial("         0       1000          1\n"));
        assert!(!is_initial("0 100000 65536\n65536 0 1\n"));
    }
}

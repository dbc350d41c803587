//! Privileges that the policy's grants need.

use crate::policy::Policy;

/// Privileges that the grants of a policy need. A policy that is loaded later may need no more:
/// see [`exceeds`](Self::exceeds).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Other processes are looked into: executables, descriptors, memory.
    pub processes: bool,
    /// System calls are supervised.
    pub supervision: bool,
    /// Network namespaces of other processes are entered.
    pub namespaces: bool,
    /// File system calls are made in the mount namespace of other processes.
    pub files: bool,
    /// Character devices are made.
    pub devices: bool,
    /// FUSE programs are executed.
    pub fuse: bool,
    /// TCP connections are made for other processes.
    pub connect: bool,
    /// Processes of tenants are killed.
    pub kill: bool,
    /// Scheduling policies of other processes are set.
    pub scheduling: bool,
    /// Limits of memory of other processes are raised.
    pub limits: bool,
}

impl Needs {
    /// The needs of the grants of `policy`.
    pub fn of(policy: &Policy) -> Self {
        let mut needs = Self::default();
        for tenant in &policy.tenants {
            let calls = &tenant.calls;
            let files = calls.mount.is_some() || !calls.mknod.is_empty() || calls.setxattr;
            let supervision = files
                || calls.af_xdp
                || !calls.connect.is_empty()
                || calls.bpf_cgroup_device
                || calls.sysinfo
                || calls.sched_setscheduler.is_some();
            // Leases end when no process holds their socket: its holders are looked for.
            needs.processes |= supervision
                || !tenant.devices.is_empty()
                || tenant.who.executable.is_some()
                || tenant.who.sha256.is_some();
            needs.supervision |= supervision;
            needs.namespaces |= files || calls.af_xdp;
            needs.files |= files;
            needs.devices |= !calls.mknod.is_empty();
            needs.fuse |= calls.mount.as_ref().is_some_and(|m| !m.fuse.is_empty());
            needs.connect |= !calls.connect.is_empty();
            // Those that bind an AF_XDP socket otherwise than granted.
            needs.kill |= tenant.kill || calls.af_xdp;
            needs.limits |= calls.af_xdp;
            needs.scheduling |= calls.sched_setscheduler.is_some();
        }
        needs
    }

    fn named(&self) -> [(&'static str, bool); 10] {
        [
            ("looking into processes", self.processes),
            ("supervised calls", self.supervision),
            ("network namespaces", self.namespaces),
            ("mounts and files", self.files),
            ("devices", self.devices),
            ("FUSE programs", self.fuse),
            ("connections", self.connect),
            ("killing processes", self.kill),
            ("scheduling", self.scheduling),
            ("limits of memory", self.limits),
        ]
    }

    /// Needs beyond those of `started`: a broker that gave up those privileges must be
    /// restarted for them.
    pub fn exceeds(&self, started: &Self) -> Vec<&'static str> {
        let pairs = self.named().into_iter().zip(started.named());
        pairs
            .filter(|((_, now), (_, then))| *now && !then)
            .map(|((name, _), _)| name)
            .collect()
    }
}

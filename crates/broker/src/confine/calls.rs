//! The system calls that the broker makes, in groups with their reason.

use super::needs::Needs;

/// A call that the filter knows, by its number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    /// With any arguments.
    Any(libc::c_long),
    /// When the argument at this position is this value.
    Int(libc::c_long, u8, u64),
    /// When the first two arguments are these: socket(2), whose flags do not count.
    Ints(libc::c_long, u64, u64),
    /// When the argument at this position has none of these bits.
    Without(libc::c_long, u8, u64),
    /// When the argument at this position has all of these bits.
    With(libc::c_long, u8, u64),
}

impl Call {
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Any(number)
            | Self::Int(number, ..)
            | Self::Ints(number, ..)
            | Self::Without(number, ..)
            | Self::With(number, ..) => number,
        }
    }
}

/// Calls that are allowed for one reason.
pub(super) struct Group {
    /// The broker's use of them.
    pub(super) reason: &'static str,
    /// Whether this broker does it.
    pub(super) when: fn(&Needs) -> bool,
    pub(super) calls: &'static [Call],
}

/// The bits of a socket's type that are not flags.
pub(super) const SOCKET_TYPE: u64 = 0xf;

macro_rules! any {
    ($($name:ident)*) => { &[$(Call::Any(libc::$name)),*] };
}

/// One call with one of some values at a position.
macro_rules! int {
    ($name:ident [$at:literal]: $($value:expr)+) => {
        &[$(Call::Int(libc::$name, $at, $value as u64)),+]
    };
}

const fn ioctl(direction: u64, kind: u8, number: u64, size: u64) -> u64 {
    (direction << 30) | (size << 16) | ((kind as u64) << 8) | number
}

// `include/uapi/linux/bpf.h`: commands of bpf(2).
const MAP_CREATE: u64 = 0;
const MAP_LOOKUP_ELEM: u64 = 1;
const MAP_UPDATE_ELEM: u64 = 2;
const MAP_DELETE_ELEM: u64 = 3;
const MAP_GET_NEXT_KEY: u64 = 4;
pub(super) const PROG_LOAD: u64 = 5;
const OBJ_PIN: u64 = 6;
const OBJ_GET: u64 = 7;
const PROG_ATTACH: u64 = 8;
const PROG_DETACH: u64 = 9;
const PROG_GET_NEXT_ID: u64 = 11;
const PROG_GET_FD_BY_ID: u64 = 13;
const MAP_GET_FD_BY_ID: u64 = 14;
const OBJ_GET_INFO_BY_FD: u64 = 15;
const PROG_QUERY: u64 = 16;
const BTF_LOAD: u64 = 18;
const BTF_GET_FD_BY_ID: u64 = 19;
const LINK_CREATE: u64 = 28;
const LINK_UPDATE: u64 = 29;
const LINK_GET_FD_BY_ID: u64 = 30;
const LINK_GET_NEXT_ID: u64 = 31;
const LINK_DETACH: u64 = 34;

/// Flags of clone(2) that make namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// statmount(2) (6.8), whose number the crate libc does not have.
const STATMOUNT: libc::c_long = 457;

const fn always(_: &Needs) -> bool {
    true
}

/// Calls of every Rust program.
pub(super) const RUNTIME: Group = Group {
    reason: "memory, time, signals and the end of threads and of the process",
    when: always,
    calls: any![
        SYS_brk SYS_mmap SYS_munmap SYS_mremap SYS_madvise SYS_mprotect SYS_mlock SYS_munlock
        SYS_futex SYS_set_robust_list SYS_rseq SYS_set_tid_address SYS_sched_yield
        SYS_sched_getaffinity SYS_gettid SYS_getpid SYS_getppid SYS_getrandom SYS_membarrier
        SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sigaltstack SYS_restart_syscall
        SYS_exit SYS_exit_group SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getrusage
        SYS_uname
    ],
};

pub(super) const DESCRIPTORS: Group = Group {
    reason: "reading, writing and polling open descriptors",
    when: always,
    calls: any![
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_lseek SYS_close
        SYS_close_range SYS_fstat SYS_dup SYS_dup3 SYS_pipe2 SYS_ppoll SYS_pselect6
        SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_eventfd2 SYS_timerfd_create
        SYS_timerfd_settime SYS_signalfd4 SYS_fcntl SYS_memfd_create SYS_ftruncate
        SYS_copy_file_range SYS_sendfile
    ],
};

pub(super) const TABLE: &[Group] = &[
    RUNTIME,
    DESCRIPTORS,
    Group {
        reason: "the last close of a lease's socket",
        when: always,
        calls: any![SYS_inotify_add_watch SYS_inotify_rm_watch],
    },
    Group {
        reason: "threads, and children that make a call in the namespaces of another process",
        when: always,
        calls: &[
            Call::Without(libc::SYS_clone, 0, NAMESPACES),
            // Answered ENOSYS by a filter of its own.
            Call::Any(libc::SYS_clone3),
            Call::Any(libc::SYS_wait4),
            Call::Any(libc::SYS_waitid),
            Call::Any(libc::SYS_tgkill),
        ],
    },
    Group {
        reason: "names of threads; the state of the confinement, for `weir broker status`",
        when: always,
        calls: int![SYS_prctl [0]: libc::PR_SET_NAME libc::PR_GET_NAME libc::PR_SET_PDEATHSIG
            libc::PR_GET_DUMPABLE libc::PR_GET_NO_NEW_PRIVS libc::PR_GET_SECCOMP
            libc::PR_GET_SECUREBITS libc::PR_CAPBSET_READ libc::PR_SET_VMA
            0x4155_5856 /* PR_GET_AUXV, of rustix */],
    },
    Group {
        reason: "its own limits: RLIMIT_MEMLOCK of a UMEM",
        when: always,
        calls: int![SYS_prlimit64 [0]: 0],
    },
    Group {
        reason: "its capabilities, for a thread that needs fewer",
        when: always,
        calls: any![SYS_capget SYS_capset],
    },
    Group {
        reason: "the files that the view and Landlock leave: policy, journal, /proc, /sys, bpffs",
        when: always,
        calls: any![
            SYS_openat SYS_openat2 SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat
            SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_unlinkat SYS_mkdirat SYS_renameat2
            SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_fsync SYS_fdatasync SYS_flock
            SYS_getcwd SYS_umask
        ],
    },
    #[cfg(target_arch = "x86_64")]
    Group {
        reason: "the same by the numbers that older interfaces have",
        when: always,
        calls: any![
            SYS_open SYS_stat SYS_lstat SYS_access SYS_readlink SYS_unlink SYS_mkdir SYS_rmdir
            SYS_rename SYS_chmod SYS_chown SYS_poll SYS_select SYS_epoll_wait SYS_pipe SYS_dup2
            SYS_arch_prctl SYS_time
        ],
    },
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Group {
        reason: "renames by a number that RISC-V and later architectures lack",
        when: always,
        calls: any![SYS_renameat],
    },
    Group {
        reason: "sockets: tenants and runtimes, netlink, AF_XDP, and one for device ioctls",
        when: always,
        calls: &[
            Call::Int(libc::SYS_socket, 0, libc::AF_UNIX as u64),
            Call::Int(libc::SYS_socket, 0, libc::AF_NETLINK as u64),
            Call::Int(libc::SYS_socket, 0, libc::AF_XDP as u64),
            Call::Ints(
                libc::SYS_socket,
                libc::AF_INET as u64,
                libc::SOCK_DGRAM as u64,
            ),
            Call::Int(libc::SYS_socketpair, 0, libc::AF_UNIX as u64),
        ],
    },
    Group {
        reason: "operations on these sockets, and on those of supervised processes",
        when: always,
        calls: any![
            SYS_bind SYS_listen SYS_accept4 SYS_connect SYS_shutdown SYS_sendto SYS_recvfrom
            SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_setsockopt SYS_getsockopt
            SYS_getsockname SYS_getpeername
        ],
    },
    Group {
        reason: "devices: flags, indices, ethtool; descriptors: non-blocking, close on exec",
        when: always,
        calls: int![SYS_ioctl [1]: libc::SIOCGIFFLAGS libc::SIOCGIFINDEX libc::SIOCGIFNAME
            libc::SIOCGIFMTU 0x8946 /* SIOCETHTOOL */ libc::FIONBIO libc::FIONREAD libc::FIOCLEX
            libc::TCGETS],
    },
    Group {
        reason: "programs, maps and links of leases",
        when: always,
        calls: int![SYS_bpf [0]: MAP_CREATE MAP_LOOKUP_ELEM MAP_UPDATE_ELEM MAP_DELETE_ELEM
            MAP_GET_NEXT_KEY PROG_LOAD OBJ_PIN OBJ_GET PROG_GET_NEXT_ID PROG_GET_FD_BY_ID
            MAP_GET_FD_BY_ID OBJ_GET_INFO_BY_FD PROG_QUERY LINK_CREATE LINK_UPDATE
            LINK_GET_FD_BY_ID LINK_GET_NEXT_ID LINK_DETACH],
    },
    Group {
        reason: "the process at the other end: named, looked into, seen to end",
        when: always,
        calls: any![SYS_pidfd_open SYS_pidfd_getfd],
    },
    Group {
        reason: "ending a tenant, and children of its own",
        when: |needs| needs.kill || needs.supervision,
        calls: any![SYS_pidfd_send_signal SYS_kill],
    },
    Group {
        reason: "notifications: RECV, SEND, ID_VALID, ADDFD, SET_FLAGS",
        when: |needs| needs.supervision,
        calls: int![SYS_ioctl [1]: ioctl(3, b'!', 0, 80) ioctl(3, b'!', 1, 24) ioctl(1, b'!', 2, 8)
            ioctl(1, b'!', 3, 24) ioctl(1, b'!', 4, 8)],
    },
    Group {
        reason: "whether the kernel's structures of notifications are the broker's",
        when: |needs| needs.supervision,
        // SECCOMP_GET_NOTIF_SIZES
        calls: int![SYS_seccomp [0]: 3],
    },
    Group {
        reason: "a supervised process's memory, copied",
        when: |needs| needs.supervision,
        calls: any![SYS_process_vm_readv],
    },
    Group {
        reason: "device ioctls made for a supervised process: MTU, promiscuous mode",
        when: |needs| needs.supervision,
        calls: int![SYS_ioctl [1]: libc::SIOCSIFMTU libc::SIOCSIFFLAGS],
    },
    Group {
        reason: "BTF and device-cgroup programs of a supervised process",
        when: |needs| needs.supervision,
        calls: int![SYS_bpf [0]: BTF_LOAD BTF_GET_FD_BY_ID PROG_ATTACH PROG_DETACH],
    },
    Group {
        reason: "the thread that a process in another pid namespace names",
        when: |needs| needs.supervision,
        // NS_GET_PID_FROM_PIDNS
        calls: int![SYS_ioctl [1]: ioctl(2, 0xb7, 6, 4)],
    },
    Group {
        reason: "the user who made the user namespace of a container, whose runtime is that user's",
        when: |needs| needs.supervision,
        // NS_GET_OWNER_UID
        calls: int![SYS_ioctl [1]: ioctl(0, 0xb7, 4, 0)],
    },
    Group {
        reason: "whose a mount namespace is, and which of the broker's mounts are there",
        when: |needs| needs.files,
        calls: &[
            // NS_GET_USERNS, NS_GET_MNTNS_ID
            Call::Int(libc::SYS_ioctl, 1, ioctl(0, 0xb7, 1, 0)),
            Call::Int(libc::SYS_ioctl, 1, ioctl(2, 0xb7, 5, 8)),
            Call::Any(STATMOUNT),
        ],
    },
    Group {
        reason: "a limit of a process that restricts itself, set by a child with that process's user",
        when: |needs| needs.supervision,
        calls: any![SYS_prlimit64 SYS_setresuid SYS_setresgid],
    },
    Group {
        reason: "sockets and devices in the network namespace of a process",
        when: |needs| needs.namespaces,
        calls: int![SYS_setns [1]: libc::CLONE_NEWNET],
    },
    Group {
        reason: "mounts, devices and attributes in the mount namespace of a process, as its user",
        when: |needs| needs.files,
        calls: &[
            Call::Without(
                libc::SYS_setns,
                1,
                !(libc::CLONE_NEWNS | libc::CLONE_NEWUSER | libc::CLONE_NEWPID) as u32 as u64,
            ),
            // A thread's own root and working directory, before it enters a mount namespace.
            Call::Int(libc::SYS_unshare, 0, libc::CLONE_FS as u64),
            // Of a child, before it enters a user namespace.
            Call::Int(libc::SYS_prctl, 0, libc::PR_SET_DUMPABLE as u64),
            Call::Any(libc::SYS_fsopen),
            Call::Any(libc::SYS_fsconfig),
            Call::Any(libc::SYS_fsmount),
            Call::Any(libc::SYS_fspick),
            Call::Any(libc::SYS_open_tree),
            Call::Any(libc::SYS_move_mount),
            Call::Any(libc::SYS_mount_setattr),
            Call::Any(libc::SYS_mount),
            Call::Any(libc::SYS_umount2),
            Call::Any(libc::SYS_mknodat),
            #[cfg(target_arch = "x86_64")]
            Call::Any(libc::SYS_mknod),
            Call::Any(libc::SYS_symlinkat),
            Call::Any(libc::SYS_linkat),
            Call::Any(libc::SYS_setxattr),
            Call::Any(libc::SYS_lsetxattr),
            Call::Any(libc::SYS_fsetxattr),
            Call::Any(libc::SYS_setfsuid),
            Call::Any(libc::SYS_setfsgid),
            Call::Any(libc::SYS_setresuid),
            Call::Any(libc::SYS_setresgid),
            Call::Any(libc::SYS_setgroups),
            Call::Any(libc::SYS_chroot),
            Call::Any(libc::SYS_chdir),
            Call::Any(libc::SYS_fchdir),
        ],
    },
    Group {
        reason: "FUSE programs that the policy names; the filter is theirs as well",
        when: |needs| needs.fuse,
        calls: any![
            SYS_execve SYS_execveat SYS_splice SYS_vmsplice SYS_tee SYS_setsid
            SYS_setpgid SYS_getsid SYS_getgroups SYS_fallocate SYS_fadvise64 SYS_preadv SYS_pwritev
            SYS_preadv2 SYS_pwritev2 SYS_statfs SYS_utimensat SYS_sysinfo SYS_linkat SYS_symlinkat
            SYS_prctl SYS_get_robust_list SYS_getxattr SYS_fgetxattr SYS_listxattr
            SYS_flistxattr
        ],
    },
    Group {
        reason: "what these programs ask of /dev/fuse, and of an image that is a block device",
        when: |needs| needs.fuse,
        calls: int![SYS_ioctl [1]: 0x8004_e500_u32 /* FUSE_DEV_IOC_CLONE */ 0x1260 /* BLKGETSIZE */
            0x8008_1272_u32 /* BLKGETSIZE64 */ 0x1268 /* BLKSSZGET */ 0x127b /* BLKPBSZGET */
            0x125e /* BLKROGET */ 0x1261 /* BLKFLSBUF */],
    },
    Group {
        reason: "their namespaces, and a filter of their own",
        when: |needs| needs.fuse,
        calls: &[
            Call::Int(
                libc::SYS_unshare,
                0,
                (libc::CLONE_NEWPID | libc::CLONE_NEWNET) as u64,
            ),
            Call::Int(libc::SYS_seccomp, 0, libc::SECCOMP_SET_MODE_FILTER as u64),
        ],
    },
    #[cfg(target_arch = "x86_64")]
    Group {
        reason: "the process group of these programs by the number that older interfaces have",
        when: |needs| needs.fuse,
        calls: any![SYS_getpgrp],
    },
    Group {
        reason: "rules of Landlock for these programs",
        when: |needs| needs.fuse,
        calls: any![SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self],
    },
    Group {
        reason: "memory limits of the control group, and scheduling of a supervised process",
        when: |needs| needs.scheduling || needs.supervision,
        calls: any![
            SYS_sysinfo SYS_sched_setscheduler SYS_sched_getscheduler SYS_sched_setattr
            SYS_sched_getattr SYS_sched_getparam
        ],
    },
];

/// Calls for which the broker has no use at all.
pub(super) const KILLED: Group = Group {
    reason: "the kernel, other processes' execution, and the clock: only an attacker asks for them",
    when: always,
    calls: any![
        SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_reboot SYS_swapon
        SYS_swapoff SYS_ptrace SYS_process_vm_writev SYS_perf_event_open SYS_userfaultfd
        SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_add_key SYS_request_key
        SYS_keyctl SYS_open_by_handle_at SYS_acct SYS_quotactl SYS_settimeofday
        SYS_clock_settime SYS_adjtimex SYS_pivot_root SYS_syslog SYS_process_madvise
    ],
};

/// Calls of the worker besides [`RUNTIME`] and [`DESCRIPTORS`].
pub(super) const WORKER: Group = Group {
    reason: "requests, a child for each, and the verifier",
    when: always,
    calls: &[
        Call::Any(libc::SYS_recvmsg),
        Call::Any(libc::SYS_sendmsg),
        Call::Int(libc::SYS_bpf, 0, PROG_LOAD),
        Call::Without(libc::SYS_clone, 0, NAMESPACES),
        #[cfg(target_arch = "x86_64")]
        Call::Any(libc::SYS_fork),
        #[cfg(target_arch = "x86_64")]
        Call::Any(libc::SYS_alarm),
        Call::Any(libc::SYS_setitimer),
    ],
};

/// Calls of a confined server besides [`RUNTIME`].
pub(super) const SERVER: &[Group] = &[
    Group {
        reason: "a server's sockets, and its log",
        when: always,
        calls: any![
            SYS_read SYS_write SYS_readv SYS_writev SYS_close SYS_fstat SYS_ppoll SYS_accept4
            SYS_shutdown SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_setsockopt
            SYS_getsockopt SYS_getsockname SYS_getpeername
        ],
    },
    Group {
        reason: "files that the C library would like to read: answered EACCES by a filter of its own",
        when: always,
        calls: any![SYS_openat],
    },
    Group {
        reason: "a second descriptor of a socket; whether one is open, which a debug build asks",
        when: always,
        calls: int![SYS_fcntl [1]: libc::F_DUPFD_CLOEXEC libc::F_GETFD],
    },
    #[cfg(target_arch = "x86_64")]
    Group {
        reason: "a server's waiting by the number that older interfaces have",
        when: always,
        calls: any![SYS_poll],
    },
    Group {
        reason: "a server's threads",
        when: always,
        calls: &[
            Call::With(libc::SYS_clone, 0, libc::CLONE_THREAD as u64),
            // Answered ENOSYS by a filter of its own.
            Call::Any(libc::SYS_clone3),
            Call::Any(libc::SYS_tgkill),
            Call::Int(libc::SYS_prctl, 0, libc::PR_SET_NAME as u64),
            Call::Int(libc::SYS_prctl, 0, libc::PR_SET_VMA as u64),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_its_own_reason() {
        let reasons: std::collections::BTreeSet<_> = TABLE.iter().map(|g| g.reason).collect();
        assert_eq!(reasons.len(), TABLE.len());
    }
}

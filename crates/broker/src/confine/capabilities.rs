//! Capabilities (capabilities(7)): the least set for the policy's grants.

use super::needs::Needs;
use anyhow::{Context as _, Result};
use hostnet::privilege::{self, Capability, Feature};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits,
};

/// A capability, and when and why the broker keeps it.
type Row = (CapabilitySet, fn(&Needs) -> bool, &'static str);

const TABLE: &[Row] = &[
    (CapabilitySet::NET_RAW, |_| true, "AF_XDP sockets"),
    (
        CapabilitySet::NET_ADMIN,
        |_| true,
        "XDP programs on devices, busy polling, channels",
    ),
    (CapabilitySet::BPF, |_| true, "programs, maps and links"),
    (
        CapabilitySet::IPC_LOCK,
        |_| true,
        "UMEMs beyond RLIMIT_MEMLOCK",
    ),
    (
        CapabilitySet::SYS_PTRACE,
        |needs| needs.processes,
        "executables, descriptors and memory of other processes",
    ),
    (
        CapabilitySet::DAC_READ_SEARCH,
        |needs| needs.processes && !needs.supervision,
        "/proc/PID/fd of other users",
    ),
    (
        CapabilitySet::DAC_OVERRIDE,
        |needs| needs.supervision,
        "/proc/PID/mem of other users, whose mode is 0600",
    ),
    (
        CapabilitySet::KILL,
        |needs| needs.kill || needs.supervision,
        "ending processes of a tenant, and programs and children that run as a caller's user",
    ),
    (
        CapabilitySet::SYS_ADMIN,
        |needs| needs.namespaces,
        "namespaces of other processes, mounts, trusted attributes",
    ),
    (
        CapabilitySet::SYS_CHROOT,
        |needs| needs.files,
        "mount namespaces of other processes",
    ),
    (
        CapabilitySet::MKNOD,
        |needs| needs.devices,
        "character devices",
    ),
    (
        CapabilitySet::SETUID.union(CapabilitySet::SETGID),
        |needs| needs.supervision,
        "file system calls and limits made as the user that asked",
    ),
    (
        CapabilitySet::SYS_NICE,
        |needs| needs.scheduling,
        "real-time policies",
    ),
    (
        CapabilitySet::SYS_RESOURCE,
        |needs| needs.limits,
        "RLIMIT_MEMLOCK of an AF_XDP program",
    ),
];

/// Those that the broker keeps.
pub(super) fn kept(needs: &Needs) -> CapabilitySet {
    let rows = TABLE.iter().filter(|(_, when, _)| when(needs));
    rows.fold(CapabilitySet::empty(), |set, row| set | row.0)
}

/// Gives up all but `kept`, for this thread, those that it starts and their programs. No program
/// that is executed gains any, not as root and not by its file.
///
/// # Errors
///
/// When the kernel refuses: `CAP_SETPCAP` is needed.
pub(super) fn keep(kept: CapabilitySet) -> Result<CapabilitySet> {
    let has = capabilities(None).context("cannot read the capabilities")?;
    // A capability that was not given cannot be kept: operations that need it fail, and say so.
    let kept = kept & has.permitted;
    clear_ambient_capability_set().context("cannot clear the ambient capabilities")?;
    let given_up = (0..u64::BITS)
        .map(|bit| CapabilitySet::from_bits_retain(1 << bit))
        .filter(|&capability| !kept.contains(capability));
    for capability in given_up {
        match remove_capability_from_bounding_set(capability) {
            // Of a newer kernel, or none.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(errno) => {
                let needed = [Capability::Setpcap];
                let why = privilege::refusal(errno.raw_os_error(), Feature::Base, &needed);
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                return Err(errno).context(format!("cannot limit the bounding set{why}"));
            }
        }
    }
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(bits).context("cannot set the securebits")?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).context("cannot give up capabilities")?;
    Ok(kept)
}

/// `keep` for a process that may lack `CAP_SETPCAP`: its bounding set then stays as it is, which gives it
/// nothing once it has `no_new_privs`.
///
/// # Errors
///
/// When the kernel refuses.
pub fn keep_at_most(most: CapabilitySet) -> Result<CapabilitySet> {
    let has = capabilities(None).context("cannot read the capabilities")?;
    if has.effective.contains(CapabilitySet::SETPCAP) {
        return keep(most);
    }
    clear_ambient_capability_set().context("cannot clear the ambient capabilities")?;
    let kept = has.permitted & most;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).context("cannot give up capabilities")?;
    Ok(kept)
}

/// Their names as in capabilities(7), in small letters.
pub fn names(set: CapabilitySet) -> String {
    let names: Vec<_> = set
        .iter_names()
        .map(|(name, _)| format!("cap_{}", name.to_ascii_lowercase()))
        .collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(" ")
    }
}

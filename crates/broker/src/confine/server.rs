//! The confinement of a process that serves a network and needs nothing else of the host: it has its sockets
//! when it starts, and opens no file, makes no socket and starts no program.

use super::calls::{RUNTIME, SERVER};
use super::filter::{self, Refused};
use super::report::{Layer, Report, State};
use super::{capabilities, check_single_thread, landlock, process, worker};
use anyhow::{Context as _, Result};
use rustix::process::{Gid, Signal, Uid, geteuid, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, capabilities as has_capabilities,
    set_capabilities_secure_bits, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// Confines this process for good, the first thing that it does: all descriptors but the standard ones are closed,
/// of whoever started the parent, too; another user and group where it is root, no
/// capability, no file (Landlock), no call but those on descriptors that it has. It dies with the thread that
/// started it.
///
/// # Errors
///
/// When the process has several threads, or the kernel refuses a layer that every kernel has.
pub fn confine(user: u32, group: u32, refused: Refused) -> Result<Report> {
    check_single_thread()?;
    worker::close_others();
    process::harden()?;
    let mut layers = Vec::new();
    layers.push((Layer::Process, change_user(user, group)?));
    capabilities::keep_at_most(CapabilitySet::empty())?;
    layers.push((Layer::Capabilities, State::InForce("none".into())));
    // A change of ids resets both.
    process::harden()?;
    set_parent_process_death_signal(Some(Signal::KILL)).context("PR_SET_PDEATHSIG")?;
    layers.push((Layer::Landlock, landlock::restrict_all()?));
    let groups: Vec<_> = std::iter::once(&RUNTIME).chain(SERVER).collect();
    // As the C library's, when it counts CPUs or gives back memory.
    let answered = [(libc::SYS_openat, libc::EACCES)];
    let count = filter::install_groups(&groups, &answered, refused)?;
    layers.push((
        Layer::Filter,
        State::InForce(format!("{count} system calls")),
    ));
    Ok(Report { layers })
}

/// Becomes another user, where it can.
fn change_user(user: u32, group: u32) -> Result<State> {
    let has = has_capabilities(None).context("cannot read the capabilities")?;
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETPCAP;
    if !has.effective.contains(needed) {
        return Ok(State::InForce(format!(
            "no_new_privs, not dumpable; user {} as before",
            geteuid().as_raw()
        )));
    }
    // The capabilities stay over the change, so that the bounding set can be emptied after it.
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)
        .context("cannot set the securebits")?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_groups(&[]).context("cannot leave the groups")?;
    set_thread_res_gid(gid, gid, gid).with_context(|| format!("cannot become group {group}"))?;
    set_thread_res_uid(uid, uid, uid).with_context(|| format!("cannot become user {user}"))?;
    Ok(State::InForce(format!(
        "no_new_privs, not dumpable, user {user}"
    )))
}

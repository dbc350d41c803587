//! The broker on real sockets, in network namespaces of its own.

mod af_xdp;
mod attack;
mod bpf_cgroup;
mod budget;
mod cards;
mod confine;
mod connect;
mod containers;
mod daemon;
mod deputy;
mod fuse;
mod grants;
mod held;
mod identity;
mod lab;
mod mknod;
mod mount;
mod plugin;
mod policy;
mod rogue;
mod roles;
mod run;
mod session;
mod small;
mod supervised;
mod systemd;

use std::process::ExitCode;
use supervised::Scene;
use testkit::{Need, Suite, Test};

fn main() -> ExitCode {
    if let Some(code) = play() {
        return code;
    }
    let roots = [
        af_xdp::tests(),
        attack::tests(),
        bpf_cgroup::tests(),
        budget::tests(),
        cards::tests(),
        connect::tests(),
        containers::tests(),
        daemon::tests(),
        deputy::tests(),
        grants::tests(),
        held::tests(),
        mknod::tests(),
        mount::tests(),
        plugin::tests(),
    ];
    let everyones = [
        identity::tests(),
        policy::tests(),
        run::tests(),
        session::tests(),
        small::tests(),
        confine::tests(),
        systemd::tests(),
    ];
    let roots = roots.into_iter().flatten().map(needs_root);
    let tests = roots.chain(everyones.into_iter().flatten());
    Suite::new().within(lab::TEST).run(tests.map(on_request))
}

/// A test that makes namespaces or devices, or starts processes of other users.
fn needs_root(test: Test) -> Test {
    test.needing(&[Need::Root])
}

/// Figures are printed on request: `--ignored --nocapture figures`.
fn on_request(test: Test) -> Test {
    if test.name().ends_with("figures") {
        test.on_request()
    } else {
        test
    }
}

/// Plays the part that this program is started for by its tests, if any.
fn play() -> Option<ExitCode> {
    if let Ok(role) = std::env::var(roles::ROLE) {
        return Some(roles::play(&role));
    }
    broker::confine::worker::run_if_asked()
        .or_else(confine::run_if_asked)
        .or_else(systemd::run_if_asked)
        .or_else(containers::run_if_asked)
        .or_else(|| supervised::play(SCENES))
        .or_else(identity::play)
}

/// Actions of supervised children.
const SCENES: &[Scene] = &[
    ("af_xdp_busy_poll", af_xdp::busy_poll),
    ("af_xdp_flip_address", af_xdp::flip_address),
    ("af_xdp_flip_descriptor", af_xdp::flip_descriptor),
    ("af_xdp_flip_link", af_xdp::flip_link),
    ("af_xdp_flip_message", af_xdp::flip_message),
    ("af_xdp_hostile", af_xdp::hostile),
    ("af_xdp_lent", af_xdp::lent),
    ("af_xdp_link", af_xdp::keep_link),
    ("af_xdp_no_busy_poll", af_xdp::no_busy_poll),
    ("af_xdp_refusals", af_xdp::refusals),
    ("bpf_attach", bpf_cgroup::bpf_attach),
    ("bpf_endless", bpf_cgroup::bpf_endless),
    ("bpf_flip", bpf_cgroup::bpf_flip),
    ("bpf_life", bpf_cgroup::bpf_life),
    ("bpf_overlaid", bpf_cgroup::bpf_overlaid),
    ("bpf_refusals", bpf_cgroup::bpf_refusals),
    ("bpf_time", bpf_cgroup::bpf_time),
    ("connect_errors", connect::connect_errors),
    ("connect_flip", connect::connect_flip),
    ("connect_many", connect::connect_many),
    ("connect_redirected", connect::connect_redirected),
    ("connect_unix", connect::connect_unix),
    ("connect_wait", connect::connect_wait),
    ("mount_flip", mount::mount_flip),
    ("mount_fuse", mount::mount_fuse),
    ("mount_in_a_namespace", mount::mount_in_a_namespace),
    ("mount_on_the_host", mount::mount_on_the_host),
    ("mount_refusals", mount::mount_refusals),
    ("mount_time", mount::mount_time),
    ("flip_paths", mknod::flip_paths),
    ("keep_maps", budget::keep_maps),
    ("keep_btfs", budget::keep_btfs),
    ("make_nodes", mknod::make_nodes),
    ("make_nodes_in_a_storm", mknod::make_nodes_in_a_storm),
    ("make_node_in_a_namespace", mknod::make_node_in_a_namespace),
    ("one", session::one),
    #[cfg(target_arch = "x86_64")]
    ("foreign", session::foreign),
    ("run", run::run),
    ("three", session::three),
    ("slow_beside_fast", session::slow_beside_fast),
    ("flip_attributes", small::flip_attributes),
    ("flip_priorities", small::flip_priorities),
    ("linger", small::linger),
    ("set_attributes", small::set_attributes),
    ("set_policies", small::set_policies),
    ("small_calls_in_a_storm", small::small_calls_in_a_storm),
    ("time_handlers", small::time_handlers),
    ("sysinfo", small::sysinfo),
    (
        "sysinfo_in_a_pid_namespace",
        small::sysinfo_in_a_pid_namespace,
    ),
    ("run_as_a_user", af_xdp::run_as_a_user),
    ("stack_filters", session::stack_filters),
    ("storm", session::storm),
    ("time", session::time),
];

/// Ends a test or a scene with an error unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!($($words)+).into());
        }
    };
    ($condition:expr) => {
        crate::ensure!($condition, "not so: {}", stringify!($condition))
    };
}
use ensure;

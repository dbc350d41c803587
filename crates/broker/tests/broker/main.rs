//! The broker on real sockets, in network namespaces of its own.

mod af_xdp;
mod attack;
mod bpf_cgroup;
mod cards;
mod confine;
mod connect;
mod containers;
mod daemon;
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

use libtest_mimic::{Arguments, Completion, Trial};
use std::process::ExitCode;
use supervised::{Result, Scene};

fn main() -> ExitCode {
    if let Some(code) = play() {
        return code;
    }
    let trials = [
        af_xdp::trials(),
        attack::trials(),
        bpf_cgroup::trials(),
        cards::trials(),
        connect::trials(),
        containers::trials(),
        daemon::trials(),
        identity::trials(),
        mknod::trials(),
        mount::trials(),
        plugin::trials(),
        policy::trials(),
        run::trials(),
        session::trials(),
        small::trials(),
    ];
    // Figures are printed on request: `--ignored --nocapture figures`.
    let measures = std::env::args().any(|argument| argument == "--ignored");
    let is_wanted = |(name, _): &Test| measures || !name.ends_with("figures");
    let trials = trials
        .concat()
        .into_iter()
        .filter(is_wanted)
        .map(into_trial);
    let trials = trials
        .chain(confine::tests())
        .chain(systemd::tests())
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
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

/// A test by its name.
type Test = (&'static str, fn() -> Result<()>);

/// Why a test cannot run here.
#[derive(Debug)]
pub struct Skip(pub String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

fn into_trial((name, run): Test) -> Trial {
    let trial = Trial::ignorable_test(name, move || match run() {
        Ok(()) => Ok(Completion::Completed),
        Err(error) if error.is::<Skip>() => Ok(Completion::ignored_with(error.to_string())),
        Err(error) => Err(error.to_string().into()),
    });
    // Measurements, which `--ignored --nocapture` prints.
    trial.with_ignored_flag(name.ends_with("figures"))
}

/// The tests of a file, by their functions' names.
macro_rules! tests {
    ($($(#[$if:meta])? $name:ident),* $(,)?) => {
        pub fn trials() -> Vec<crate::Test> {
            vec![$($(#[$if])? (concat!(module_path!(), "::", stringify!($name)), $name as fn() -> _)),*]
        }
    };
}
use tests;

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

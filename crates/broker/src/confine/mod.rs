//! Confines the broker itself to the privileges that its policy's grants need.
//!
//! [`apply`] confines the thread that calls it and those that it starts later, so it is called while
//! there is one thread, and after the steps that need the privileges it takes away:
//!
//! 1. [`worker::Worker::start`], which executes a program;
//! 2. descriptors that systemd passed, and its notification socket; sockets whose owner or group is changed;
//! 3. `apply`;
//! 4. threads.
//!
//! [`server::confine`] is for a process that only serves a network.

mod calls;
mod capabilities;
mod filter;
mod landlock;
mod needs;
mod paths;
mod process;
mod report;
pub mod server;
mod view;
pub mod worker;

use anyhow::{Context as _, Result, ensure};
pub use capabilities::{keep_at_most, names};
pub use filter::{Refusal, Refused};
pub use needs::Needs;
pub use paths::Paths;
pub use report::{Layer, Report, State};
use rustix::thread::set_no_new_privs;
use std::time::Duration;

/// Confines this process for good: see the module's documentation for when.
///
/// The view and Landlock are applied where the kernel and the policy's grants let them, which the
/// report says; the other layers always.
///
/// # Errors
///
/// When the process has several threads, or the kernel refuses a layer that every kernel has.
pub fn apply(paths: &Paths, needs: &Needs, refused: Refused) -> Result<Report> {
    apply_layers(&Layer::ALL, paths, needs, refused)
}

/// [`apply`] with some of the layers: shows the effect of each.
///
/// # Errors
///
/// As those of [`apply`].
pub fn apply_layers(
    layers: &[Layer],
    paths: &Paths,
    needs: &Needs,
    refused: Refused,
) -> Result<Report> {
    check_single_thread()?;
    let wanted = Layer::ALL.into_iter().filter(|it| layers.contains(it));
    let layers = wanted
        .map(|layer| {
            let state = apply_layer(layer, paths, needs, refused)
                .with_context(|| format!("the broker's own confinement: {layer}"))?;
            Ok((layer, state))
        })
        .collect::<Result<_>>()?;
    Ok(Report { layers })
}

fn apply_layer(layer: Layer, paths: &Paths, needs: &Needs, refused: Refused) -> Result<State> {
    Ok(match layer {
        Layer::Process => {
            process::harden()?;
            State::InForce("no_new_privs, not dumpable".into())
        }
        Layer::View => view::enter(paths),
        Layer::Capabilities => {
            let kept = capabilities::keep(capabilities::kept(needs))?;
            State::InForce(capabilities::names(kept))
        }
        Layer::Landlock => landlock::restrict(paths, needs)?,
        Layer::Filter => {
            // Without it an ordinary user's process may have no filter.
            set_no_new_privs(true)?;
            let count = filter::install(needs, refused)?;
            State::InForce(format!("{count} system calls"))
        }
    })
}

/// Capabilities, Landlock and mount namespaces are of threads: one that runs would keep its own.
fn check_single_thread() -> Result<()> {
    let threads = || std::io::Result::Ok(std::fs::read_dir("/proc/self/task")?.count());
    let mut count = threads().context("cannot count the threads")?;
    // One that was joined may still be listed.
    for _ in 0..100 {
        if count == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        count = threads().context("cannot count the threads")?;
    }
    ensure!(
        count == 1,
        "a process confines itself while it has one thread, and this one has {count}"
    );
    Ok(())
}

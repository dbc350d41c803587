//! The command line: commands, flags and output.

pub mod bench;
pub mod bench_count;
pub mod cost;
pub mod doctor;
pub mod flags;
pub mod generate;
pub mod lab;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// The fast path to the network card for a Linux host, with the CPU bill on the table.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `weir` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure engines side by side: who moves how many packets, and at what cost
    Bench(bench::BenchArgs),

    /// What the network takes from each CPU, and by which path
    ///
    /// Unless told to be passive, it keeps every CPU that it measures busy with a calculation of its
    /// own, at normal priority, and tells how much of it was lost.
    Cost(cost::CostArgs),

    /// A network of two namespaces to try things on
    #[command(subcommand)]
    Lab(lab::LabCommand),

    /// What on this host is set wrong for packets, with the fix and its undo
    Doctor(doctor::DoctorArgs),

    /// Print the man page of a command, or write all of them to a directory
    Man(generate::ManArgs),

    /// Print the completions of a shell
    Completions(generate::CompletionsArgs),

    /// Instructions a packet, on a machine of one CPU whose clock counts them
    ///
    /// `./run guest --count` makes such a machine and runs this in it.
    #[command(hide = true)]
    BenchCount(bench_count::CountArgs),

    /// One load of a bench, in a process of its own
    #[command(hide = true)]
    BenchLoad(crate::traffic::load::LoadArgs),

    /// Open vSwitch for a curve, in a process of its own
    #[command(hide = true)]
    CostOvs(crate::cost::curve::ovs::OvsArgs),

    /// One receiver of a curve, in a process of its own
    #[command(hide = true)]
    CostReceiver(crate::cost::curve::receiver::ReceiverArgs),

    /// One engine at one bench, in a process of its own
    #[command(hide = true)]
    BenchWorker(crate::engine::worker::WorkerArgs),
}

/// Runs the command that was typed; the exit code is 2 for a usage error, 1 for any other.
#[must_use]
pub fn main() -> ExitCode {
    // clap prints usage errors itself and exits with 2.
    let cli = Cli::parse();
    let done = |()| ExitCode::SUCCESS;
    name_process(&cli.command);
    let result = match cli.command {
        Command::Bench(args) => bench::run(&args),
        Command::Cost(args) => cost::run(&args),
        Command::Lab(command) => lab::run(command).map(done),
        Command::Doctor(args) => Ok(doctor::run(&args)),
        Command::Man(args) => generate::man(&args, Cli::command()).map(done),
        Command::Completions(args) => generate::completions(&args, Cli::command()).map(done),
        Command::BenchCount(args) => bench_count::run(&args).map(done),
        Command::BenchLoad(args) => crate::traffic::load::run(&args).map(done),
        // Whatever goes wrong in it is an event on its standard output.
        Command::CostOvs(args) => Ok(crate::cost::curve::ovs::run(&args)),
        Command::CostReceiver(args) => Ok(crate::cost::curve::receiver::run(&args)),
        Command::BenchWorker(args) => Ok(crate::engine::worker::run(&args)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("weir: error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Gives a process of ours a name that tells what it does. Started by way of /proc/self/exe, all of
/// them would be called "exe" where the bill is made out to them.
fn name_process(command: &Command) {
    let name = match command {
        Command::BenchLoad(_) => c"weir-load",
        Command::CostOvs(_) => c"weir-ovs",
        Command::CostReceiver(_) => c"weir-receiver",
        Command::BenchWorker(_) => c"weir-worker",
        _ => return,
    };
    // A name is nice to have.
    let _ = rustix::thread::set_name(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

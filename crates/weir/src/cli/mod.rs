//! The command line: commands, flags and output.

pub mod bench;
pub mod bench_count;
pub mod broker;
pub mod cost;
pub mod doctor;
pub mod exporter;
pub mod filter;
pub mod flags;
pub mod generate;
pub mod lab;
pub mod ledger;
pub mod output;
pub mod profile;
pub mod run;
pub mod switch;
pub mod top;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// The fast path to the network card for a Linux host, with the CPU bill on the table.
#[derive(Debug, Parser)]
#[command(name = "weir", version = env!("WEIR_VERSION"), propagate_version = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure packet rate and CPU time per packet of AF_XDP and AF_PACKET sockets
    Bench(bench::BenchArgs),

    /// Attribute CPU time spent on networking to CPUs, tasks and datapaths
    ///
    /// Unless passive, it runs a calibrated busy loop on each measured CPU, at normal priority, and
    /// reports the loop's lost time.
    Cost(cost::CostArgs),

    /// Account for every packet: what came, where it went, where it was lost and why
    ///
    /// Reads the counters of all stages, from the card to the sockets, and counts losses by the kernel's
    /// reasons. Nothing is attached that runs for packets that are not lost, unless --deep is given.
    Ledger(ledger::LedgerArgs),

    /// Create, list, enter and remove test networks of two namespaces
    #[command(subcommand)]
    Lab(lab::LabCommand),

    /// Watch devices, CPUs, BPF programs, AF_XDP sockets, drops and processes; record and replay
    ///
    /// Shows where packets go and where they are lost, live or from a recording. A key explains each
    /// number.
    Top(top::TopArgs),

    /// Find misconfigured network settings; print each fix and its undo
    Doctor(doctor::DoctorArgs),

    /// Export packet losses and counters to Prometheus
    ///
    /// The losses of the packet path by stage, reason and place, since its start, as metrics over HTTP.
    Exporter(exporter::ExporterArgs),

    /// Check, explain, compare and format pf rules
    ///
    /// OpenBSD's packet filter rules on Linux, without pf: nothing is loaded.
    #[command(subcommand)]
    Filter(filter::FilterCommand),

    /// Check the policy of weir-broker, which hands AF_XDP sockets to unprivileged processes
    #[command(subcommand)]
    Broker(broker::BrokerCommand),

    /// Accelerate a Linux bridge of VMs and containers by XDP and tcx
    #[command(subcommand)]
    Switch(switch::SwitchCommand),

    /// Run a command under the supervision of weir-broker
    ///
    /// The command has no privilege; the broker answers the system calls that its policy grants. The
    /// command and all that it starts have `no_new_privs`: a set-user-id program does not change the user.
    Run(run::RunArgs),

    /// Print the seccomp profile of containers that weir-broker supervises
    Profile(profile::ProfileArgs),

    /// Print the man page of a command, or write all man pages to a directory
    Man(generate::ManArgs),

    /// Print shell completions
    Completions(generate::CompletionsArgs),

    /// Count instructions per packet, on a machine of one CPU whose clock counts them
    ///
    /// `./run guest --count` makes such a machine and runs this in it.
    #[command(hide = true)]
    BenchCount(bench_count::CountArgs),

    /// Run the load of a bench
    #[command(hide = true)]
    BenchLoad(crate::traffic::load::LoadArgs),

    /// Send packets to an echo and time the answers
    #[command(hide = true)]
    BenchPinger(crate::engine::pinger::PingerArgs),

    /// Run Open vSwitch for a curve
    #[command(hide = true)]
    CostOvs(crate::cost::curve::ovs::OvsArgs),

    /// Run one receiver of a curve
    #[command(hide = true)]
    CostReceiver(crate::cost::curve::receiver::ReceiverArgs),

    /// Answer HTTP for `weir exporter`
    #[command(hide = true)]
    ExporterHttp(crate::exporter::http::HttpArgs),

    /// Run one engine through one bench
    #[command(hide = true)]
    BenchWorker(crate::engine::worker::WorkerArgs),
}

/// Runs the command; the exit code is 2 for a usage error, 1 for any other.
#[must_use]
pub fn main() -> ExitCode {
    // clap prints usage errors itself and exits with 2.
    let cli = Cli::parse();
    let done = |()| ExitCode::SUCCESS;
    name_process(&cli.command);
    let result = match cli.command {
        Command::Bench(args) => bench::run(&args),
        Command::Cost(args) => cost::run(&args),
        Command::Ledger(args) => ledger::run(&args),
        Command::Lab(command) => lab::run(command).map(done),
        Command::Top(args) => top::run(&args),
        Command::Doctor(args) => Ok(doctor::run(&args)),
        Command::Exporter(args) => exporter::run(&args).map(done),
        Command::Filter(command) => Ok(filter::run(command)),
        Command::Broker(command) => broker::run(command),
        Command::Switch(command) => switch::run(command),
        Command::Run(args) => run::run(&args),
        Command::Profile(args) => profile::run(&args).map(done),
        Command::Man(args) => generate::man(&args, Cli::command()).map(done),
        Command::Completions(args) => generate::completions(&args, &Cli::command()).map(done),
        Command::BenchCount(args) => bench_count::run(&args).map(done),
        Command::BenchLoad(args) => crate::traffic::load::run(&args).map(done),
        Command::ExporterHttp(args) => crate::exporter::http::run(&args).map(done),
        // These print their errors as events on standard output.
        Command::BenchPinger(args) => Ok(crate::engine::pinger::run(&args)),
        Command::CostOvs(args) => Ok(crate::cost::curve::ovs::run(&args)),
        Command::CostReceiver(args) => Ok(crate::cost::curve::receiver::run(&args)),
        Command::BenchWorker(args) => Ok(crate::engine::worker::run(&args)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("weir: error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Names a child process after its job. All are started from /proc/self/exe, and would be "exe" in
/// the list of tasks of `weir cost`.
fn name_process(command: &Command) {
    let name = match command {
        Command::BenchLoad(_) => c"weir-load",
        Command::BenchPinger(_) => c"weir-pinger",
        Command::CostOvs(_) => c"weir-ovs",
        Command::CostReceiver(_) => c"weir-receiver",
        Command::BenchWorker(_) => c"weir-worker",
        Command::ExporterHttp(_) => c"weir-http",
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

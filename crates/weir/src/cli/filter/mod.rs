//! `weir filter`: pf rules, checked, explained and compared.

mod answer;
mod check;
mod compare;
mod explain;
mod flags;
mod fmt;
mod support;

use std::process::ExitCode;

use clap::Subcommand;

use answer::{COULD_NOT, complain};

/// `weir filter`
#[derive(Debug, Subcommand)]
pub enum FilterCommand {
    /// Check rules: every error with its source, and rules that surprise
    ///
    /// Needs no privilege, no network and no pf. Without --host nothing of this machine is read: names of
    /// hosts and addresses of interfaces stay open.
    Check(check::CheckArgs),

    /// Explain the verdict on a packet, and the rule that decides
    ///
    /// pf's evaluation step by step: the rule that decides, those that it overrode, the rule that nearly decided,
    /// the state. Nothing is sent.
    Explain(explain::ExplainArgs),

    /// Compare two rule sets: which packets do they treat differently
    ///
    /// Exact and complete for packets that meet no state. Each difference has the packets in words, the rules that
    /// decide before and after, and a packet as an example.
    Diff(compare::DiffArgs),

    /// Tell whether two rule sets treat all packets the same
    Equal(compare::EqualArgs),

    /// Find rules that decide nothing: shadowed by others, or matching no packet
    Cover(compare::CoverArgs),

    /// Tell for each rule whether XDP and tcx could honour it, and Linux's means for the rest
    ///
    /// Nothing is loaded: the answer is about a possible filter in XDP and tcx, rule by rule. For the others there is
    /// the command of nft, tc or ip that does the same.
    Support(support::SupportArgs),

    /// Format rules: one style of blanks and line ends; comments and macros stay
    Fmt(fmt::FmtArgs),
}

/// Runs `weir filter`.
pub fn run(command: FilterCommand) -> ExitCode {
    let result = match command {
        FilterCommand::Check(args) => check::run(&args),
        FilterCommand::Explain(args) => explain::run(&args),
        FilterCommand::Diff(args) => compare::diff(&args),
        FilterCommand::Equal(args) => compare::equal(&args),
        FilterCommand::Cover(args) => compare::cover(&args),
        FilterCommand::Support(args) => support::run(&args),
        FilterCommand::Fmt(args) => Ok(fmt::run(&args)),
    };
    // An error is no answer: it has an exit code of its own.
    result.unwrap_or_else(|error| {
        complain(&format!("weir: error: {error:#}\n"));
        COULD_NOT.into()
    })
}

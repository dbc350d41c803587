//! The program behind the `weir` command.

// # Layers
//
// Highest first; a module imports from the layers below it, and files never in a circle.
// The test `layers` of the crate testkit reads this list and every import.
//
//     cli                                          the command line: parses, calls, prints
//     bench, cost, doctor, exporter, filter, top   the commands
//     lab                                          networks to measure in
//     engine, accounting, ledger, switch           processes that move packets; CPU time; losses; a bridge's fast path
//     traffic                                      frames, and the load that sends them
//     bpf, process                                 BPF programs; processes, signals and CPUs
//     report                                       documents: tables, pages, files, numbers

pub mod accounting;
pub mod bench;
pub mod bpf;
pub mod cli;
pub mod cost;
pub mod doctor;
pub mod engine;
pub mod exporter;
pub mod filter;
pub mod lab;
pub mod ledger;
pub mod process;
pub mod report;
pub mod switch;
pub mod top;
pub mod traffic;

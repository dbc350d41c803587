//! `weir-broker`: AF_XDP sockets for processes without privilege, and supervision of privileged system
//! calls by seccomp user notification.
//!
//! The daemon holds the privilege. It opens and binds AF_XDP sockets for the tenants that its
//! [`policy`] names, one queue each, and answers the system calls of processes whose seccomp filter
//! notifies it. The program `weir` uses this library to check policies, to run commands under
//! supervision and to show the daemon's state.

// # Layers
//
// Highest first; a module imports from the layers below it, and files never in a circle.
// The test `layers` of the crate testkit reads this list and every import.
//
//     daemon, client               sockets, signals, reload, restart, state; asking for it
//     supervise, plugin            supervised system calls; maps for device-plugin clients
//     lease                        queues lent to tenants, and the program on each device
//     confine                      capabilities, seccomp and Landlock of the broker itself
//     budget                       a tenant's share of the broker
//     policy                       tenants and their grants
//     message                      messages with descriptors
//     identity                     the process at the other end
//     seccomp                      the kernel's user notification
//     bpf                          bpf(2)
//     turns, lines                 turns at something scarce, fair between parties; a limit of lines in a log

mod bpf;
pub mod budget;
pub mod client;
pub mod confine;
pub mod daemon;
pub mod identity;
pub mod lease;
mod lines;
pub mod message;
pub mod plugin;
pub mod policy;
pub mod seccomp;
pub mod supervise;
mod turns;

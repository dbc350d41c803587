//! OpenBSD's packet filter rules (`pf.conf`), without OpenBSD: the language, its meaning, and
//! exact comparisons of two rule sets.
//!
//! ```text
//! pf.conf ─ lex ─ parse ─ expand ─> Ruleset ─┬─ print      pfctl's canonical text
//!              Host (names, addresses) ──┘   ├─ lint       rules that surprise
//!                                            ├─ eval       the verdict of a packet, step by step
//!                                            ├─ analysis   which packets two rule sets treat differently
//!                                            └─ support    rules for XDP and tcx
//! ```
//!
//! Nothing here reads the machine it runs on: files come through a [`source::Loader`], and
//! interfaces, addresses, names, users and services from a [`host::Host`]. There is no unsafe
//! code, and no dependency on an operating system.
#![forbid(unsafe_code)]

// # Layers
//
// Highest first; a module imports from the layers below it, and files never in a circle.
// The test `layers` of the crate testkit reads this list and every import.
//
//     lint                  findings about whole rule sets
//     analysis, support     rule sets compared; support by Linux
//     eval                  verdicts of packets
//     expand                lists of rules
//     packet, parse         packets, and rules from text
//     print, format         text from rules, and from text
//     lex                   tokens
//     host                  the host that a configuration is for
//     names                 names that need no host
//     rule                  rules
//     diagnostic            findings
//     source                files and places

pub mod analysis;
pub mod diagnostic;
pub mod eval;
mod expand;
pub mod format;
pub mod host;
pub mod lex;
pub mod lint;
pub mod names;
pub mod packet;
pub mod parse;
pub mod print;
pub mod rule;
pub mod source;
pub mod support;

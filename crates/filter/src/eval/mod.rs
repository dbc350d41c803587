//! The verdict of a packet, step by step: pf as an interpreter.
//!
//! This is `pf_test` of OpenBSD 7.8 followed literally, rule by rule, with its states on a clock
//! that stands until it is moved. It is meant to be right before it is fast: faster
//! evaluations are compared with it.
//!
//! ```
//! use pf_filter::eval::{Cause, Engine};
//! use pf_filter::host::Host;
//! use pf_filter::packet::Packet;
//! use pf_filter::parse::{Config, Dialect, parse};
//! use pf_filter::source::Memory;
//!
//! let host = Host::default();
//! let mut files = Memory::default();
//! files.add("pf.conf", "block all\npass in proto tcp to port ssh\n");
//! let config = Config { dialect: Dialect::OpenBsd, host: &host, loader: &files, macros: &[] };
//! let ruleset = parse("pf.conf", &config).ruleset;
//!
//! let mut engine = Engine::new(&ruleset, &host);
//! let syn = "in on em0 proto tcp from 10.0.0.5 port 4000 to 192.0.2.1 port 22 flags S";
//! let decision = engine.run(&Packet::parse(syn, &host).unwrap());
//! assert!(decision.verdict.is_pass());
//!
//! // The answer needs no rule.
//! let answer = "out on em0 proto tcp from 192.0.2.1 port 22 to 10.0.0.5 port 4000 flags SA ack 1001";
//! let decision = engine.run(&Packet::parse(answer, &host).unwrap());
//! assert_eq!(decision.cause, Cause::State);
//! ```
//!
//! # Differences from pf
//!
//! - States, sources and fragments end when their time is over, not at the next sweep.
//! - `scrub (reassemble tcp)`, SYN cookies, and the dynamic ports that a system reserves are not
//!   followed; `rtable` does not change the routing domain of a state's key.
//! - Round-robin pools go through tables in the order in which their entries were written.
//! - The translation of ICMP errors between `af-to` families is not shown.
//! - `nat` of FreeBSD draws its hash and its addresses as OpenBSD does.
//! - Random numbers are drawn from a seed.

mod actions;
mod create;
mod cursor;
mod decision;
mod descriptor;
mod engine;
mod explain;
mod facts;
mod field;
mod fragment;
mod freebsd;
mod icmp;
mod icmp_key;
mod interface;
mod judge;
mod linux;
mod match_rule;
mod pool;
mod program;
mod random;
mod source_node;
mod state;
mod state_test;
mod step;
mod table;
mod tcp;
mod translate;
mod walk;

pub use decision::{
    Answer, Cause, Decision, LogCause, LogEvent, Match, StateUse, Translated, Verdict,
};
pub use engine::{Chance, Engine};
pub use explain::{Explanation, NearMiss};
pub use field::{Field, Fields};
pub use program::{RuleId, RuleRef};
pub use state::{Key, StateInfo};
pub use step::{Outcome, Step};

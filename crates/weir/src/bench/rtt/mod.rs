//! `weir bench rtt`: the latency of one packet there and back, at a few rates, by engine and way of
//! waiting.
//!
//! A [pinger](crate::engine::pinger) sends packets at equal distances on the load's CPU; an echo, the
//! l2fwd of an engine, returns them on the application's. The [`runner`] measures one
//! [way](plan::Way) at one rate; the [`session`] lets all ways take turns, round by round.

pub mod chart;
pub mod html;
pub mod plan;
pub mod report;
pub mod run;
pub mod runner;
pub mod session;
pub mod summary;
pub mod table;

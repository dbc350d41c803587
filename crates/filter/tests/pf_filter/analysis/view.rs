//! The common view of interpreter and analysis on a packet.

use pf_filter::analysis::{self, Outcome};
use pf_filter::eval::{self, Cause, Decision, Engine};

/// The decision about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// Dropped before any rule.
    Refused,
    /// It waits for other fragments.
    Waits,
    /// It has IP options that are not allowed.
    Options,
    /// Dropped, with this answer; logged to these interfaces.
    Block(String, u16),
    /// It passes and makes a state, or not; logged to these interfaces.
    Pass(bool, u16),
}

impl View {
    /// The interpreter's view.
    pub fn of_decision(decision: &Decision, _engine: &Engine<'_>) -> Self {
        let mut units = 0;
        for event in &decision.log {
            if event.because != eval::LogCause::Forced {
                units |= 1 << event.interface;
            }
        }
        match (decision.verdict, decision.cause) {
            (eval::Verdict::Wait, _) | (eval::Verdict::Block(_), Cause::Fragment) => Self::Waits,
            (_, Cause::Refused(_)) => Self::Refused,
            (_, Cause::IpOptions) => Self::Options,
            // The first packet of a handshake that pf takes over gets an answer, and goes no further.
            (eval::Verdict::Block(eval::Answer::Tcp { .. }), _) if decision.state.is_some() => {
                Self::Pass(true, units)
            }
            (eval::Verdict::Pass, _) => Self::Pass(decision.state.is_some(), units),
            (eval::Verdict::Block(answer), _) => {
                let words = match answer {
                    eval::Answer::None => "nothing".to_owned(),
                    eval::Answer::Tcp { .. } => "reset".to_owned(),
                    eval::Answer::Icmp { kind, code } => format!("icmp {kind} {code}"),
                };
                Self::Block(words, units)
            }
        }
    }

    /// The analysis's view.
    pub fn of_outcome(outcome: Option<&Outcome>) -> Self {
        let Some(outcome) = outcome else {
            return Self::Refused;
        };
        let units = outcome.log.units;
        match outcome.verdict {
            analysis::Verdict::Pass => Self::Pass(outcome.state.is_some(), units),
            analysis::Verdict::BlockOptions => Self::Options,
            analysis::Verdict::Reassemble => Self::Waits,
            analysis::Verdict::Block(answer) => {
                let words = match answer {
                    analysis::Answer::Nothing => "nothing".to_owned(),
                    analysis::Answer::Reset { .. } => "reset".to_owned(),
                    analysis::Answer::Icmp { kind, code, .. } => format!("icmp {kind} {code}"),
                };
                Self::Block(words, units)
            }
        }
    }
}

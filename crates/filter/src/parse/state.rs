//! `keep state` and its options.

use super::parser::{Parser, Step};
use super::syntax::{self, Node, StateOption, Track};
use crate::lex::{Keyword, Kind};
use crate::names;
use crate::rule::{Action, Flags, KeepState, Overload, Rate, SourceTrack, StateOptions, Timeout};

/// Largest rate of `max-src-conn-rate` (`PF_THRESHOLD_MAX`).
const RATE_MAX: u32 = 0xffff_ffff / 1000;

impl Parser<'_> {
    /// `no state`, `keep state (…)`, `modulate state (…)`, `synproxy state (…)`
    pub(super) fn keep(&mut self) -> Step<(KeepState, Vec<Node<StateOption>>)> {
        let keep = match self.peek_keyword() {
            Some(Keyword::Keep) => KeepState::Keep,
            Some(Keyword::Modulate) => KeepState::Modulate,
            Some(Keyword::Synproxy) => KeepState::Synproxy,
            _ => KeepState::No,
        };
        self.take();
        self.expect_keyword(Keyword::State)?;
        let mut options = Vec::new();
        if keep != KeepState::No && self.accept_byte(b'(') {
            options = self.state_options()?;
            self.expect_byte(b')')?;
        }
        Ok((keep, options))
    }

    /// Options, with optional commas.
    pub(super) fn state_options(&mut self) -> Step<Vec<Node<StateOption>>> {
        let mut options = vec![self.state_option()?];
        loop {
            let comma = self.accept_byte(b',');
            let more = match self.peek().kind {
                Kind::Text { .. } => true,
                Kind::Keyword(keyword) => starts_state_option(keyword),
                _ => false,
            };
            if !comma && !more {
                return Ok(options);
            }
            options.push(self.state_option()?);
        }
    }

    fn state_option(&mut self) -> Step<Node<StateOption>> {
        let start = self.peek().at.clone();
        let option = match self.peek_keyword() {
            Some(Keyword::Max) => {
                self.take();
                StateOption::Max(self.number_to(u32::MAX, "max")?)
            }
            Some(Keyword::NoSync) => {
                self.take();
                StateOption::NoSync
            }
            Some(Keyword::MaxSrcStates) => {
                self.take();
                StateOption::MaxSourceStates(self.number_to(u32::MAX, "max-src-states")?)
            }
            Some(Keyword::MaxSrcConn) => {
                self.take();
                StateOption::MaxSourceConnections(self.number_to(u32::MAX, "max-src-conn")?)
            }
            Some(Keyword::MaxSrcConnRate) => {
                self.take();
                StateOption::MaxSourceRate(self.rate("max-src-conn-rate")?)
            }
            Some(Keyword::MaxSrcNodes) => {
                self.take();
                StateOption::MaxSourceNodes(self.number_to(u32::MAX, "max-src-nodes")?)
            }
            Some(Keyword::Overload) => {
                self.take();
                StateOption::Overload(self.overload()?)
            }
            Some(Keyword::SourceTrack) => {
                self.take();
                StateOption::SourceTrack(if self.accept(Keyword::Global) {
                    Track::Global
                } else if self.accept(Keyword::Rule) {
                    Track::Rule
                } else {
                    Track::Plain
                })
            }
            Some(Keyword::IfBound) => {
                self.take();
                StateOption::IfBound(true)
            }
            Some(Keyword::Floating) => {
                self.take();
                StateOption::IfBound(false)
            }
            Some(Keyword::Sloppy) => {
                self.take();
                StateOption::Sloppy
            }
            Some(Keyword::Pflow) => {
                self.take();
                StateOption::Pflow
            }
            _ => self.state_timeout()?,
        };
        Ok(Node::new(option, &start.to(&self.last_at())))
    }

    fn state_timeout(&mut self) -> Step<StateOption> {
        let (name, at) =
            self.timeout_name("an option of the state, such as `max`, `if-bound` or a timeout")?;
        // As pfctl: the case counts here, and only timeouts of protocols, with a dot, are a rule's.
        if let Some(timeout) =
            Timeout::by_name(&name).filter(|timeout| timeout.name() == &*name && name.contains('.'))
        {
            Ok(StateOption::Timeout(
                timeout,
                self.number_to(u32::MAX, &name)?,
            ))
        } else {
            let known = Timeout::ALL
                .iter()
                .map(|timeout| timeout.name())
                .filter(|name| name.contains('.'));
            self.unknown_name("unknown-timeout", "timeout of a state", &name, &at, known)
        }
    }

    fn overload(&mut self) -> Step<Overload> {
        self.expect_byte(b'<')?;
        let table = self.table_name()?;
        self.expect_byte(b'>')?;
        let flush = self.accept(Keyword::Flush);
        let global = flush && self.accept(Keyword::Global);
        Ok(Overload {
            table,
            flush,
            global,
        })
    }

    /// Fills in state, its options and `flags S/SA` as pfctl does.
    pub(super) fn fill_state(&mut self, rule: &mut syntax::Rule) -> Step<()> {
        let mut options = Vec::new();
        match &rule.options.keep {
            Some(node) => {
                rule.state = node.value.0;
                options.clone_from(&node.value.1);
            }
            None if rule.action == Action::Pass => {
                rule.state = KeepState::Keep;
                options = self.state_defaults.clone().unwrap_or_default();
            }
            None => {}
        }
        let mut filled = self.collect_state_options(&options)?;
        let default_flags = rule.action == Action::Pass
            && rule.options.flags.is_none()
            && !rule.options.fragment
            && rule.state != KeepState::No;
        if default_flags {
            rule.flags = Some(Flags {
                set: 2,
                mask: 2 | 16,
            });
        }
        let locked = options
            .iter()
            .any(|node| matches!(node.value, StateOption::IfBound(_)));
        if rule.state != KeepState::No && !locked {
            filled.if_bound = self.if_bound;
        }
        if filled != StateOptions::default() {
            rule.state_options = Some(Box::new(filled));
        }
        Ok(())
    }

    fn collect_state_options(&mut self, options: &[Node<StateOption>]) -> Step<StateOptions> {
        let mut filled = StateOptions::default();
        let mut track = None;
        let mut by_rule = false;
        let mut locked = false;
        let mut timeouts = [0; Timeout::ALL.len()];
        for node in options {
            let at = &node.at;
            match &node.value {
                StateOption::Max(max) => {
                    self.once_only(filled.max != 0, "max", at)?;
                    filled.max = *max;
                }
                StateOption::NoSync => {
                    self.once_only(filled.no_sync, "no-sync", at)?;
                    filled.no_sync = true;
                }
                StateOption::SourceTrack(value) => {
                    self.once_only(track.is_some(), "source-track", at)?;
                    track = Some(*value);
                }
                StateOption::MaxSourceStates(most) => {
                    self.once_only(filled.max_source_states != 0, "max-src-states", at)?;
                    filled.max_source_states = self.not_zero(*most, "max-src-states", at)?;
                }
                StateOption::MaxSourceConnections(most) => {
                    self.once_only(filled.max_source_connections != 0, "max-src-conn", at)?;
                    filled.max_source_connections = self.not_zero(*most, "max-src-conn", at)?;
                    by_rule = true;
                }
                StateOption::MaxSourceNodes(most) => {
                    self.once_only(filled.max_source_nodes != 0, "max-src-nodes", at)?;
                    filled.max_source_nodes = self.not_zero(*most, "max-src-nodes", at)?;
                    by_rule = true;
                }
                StateOption::MaxSourceRate(rate) => {
                    self.once_only(filled.max_source_rate.is_some(), "max-src-conn-rate", at)?;
                    filled.max_source_rate = Some(self.connection_rate(*rate, at)?);
                    by_rule = true;
                }
                StateOption::Overload(overload) => {
                    self.once_only(filled.overload.is_some(), "overload", at)?;
                    filled.overload = Some(overload.clone());
                }
                StateOption::IfBound(bound) => {
                    self.once_only(locked, "if-bound or floating", at)?;
                    locked = true;
                    filled.if_bound = *bound;
                }
                StateOption::Sloppy => {
                    self.once_only(filled.sloppy, "sloppy", at)?;
                    filled.sloppy = true;
                }
                StateOption::Pflow => {
                    self.once_only(filled.pflow, "pflow", at)?;
                    filled.pflow = true;
                }
                StateOption::Timeout(timeout, seconds) => {
                    self.once_only(timeouts[*timeout as usize] != 0, timeout.name(), at)?;
                    timeouts[*timeout as usize] = *seconds;
                }
            }
        }
        self.fill_source_track(&mut filled, track, by_rule, options, &mut timeouts)?;
        let adaptive =
            timeouts[Timeout::AdaptiveStart as usize] | timeouts[Timeout::AdaptiveEnd as usize];
        if filled.max != 0 && adaptive == 0 {
            timeouts[Timeout::AdaptiveStart as usize] = (filled.max / 10) * 6;
            timeouts[Timeout::AdaptiveEnd as usize] = (filled.max / 10).wrapping_mul(12);
        }
        let set = Timeout::ALL.into_iter().zip(timeouts);
        filled.timeouts = set.filter(|&(_, seconds)| seconds != 0).collect();
        Ok(filled)
    }

    fn not_zero(&mut self, number: u32, what: &str, at: &crate::lex::At) -> Step<u32> {
        if number > 0 {
            Ok(number)
        } else {
            self.fail("range", at, format!("{what} must be more than 0"))
        }
    }

    fn connection_rate(&mut self, rate: Rate, at: &crate::lex::At) -> Step<Rate> {
        if rate.limit == 0 || rate.seconds == 0 {
            return self.fail(
                "range",
                at,
                "the numbers of max-src-conn-rate must be more than 0",
            );
        }
        if rate.limit > RATE_MAX {
            return self.fail(
                "range",
                at,
                format!("max-src-conn-rate is at most {RATE_MAX}"),
            );
        }
        Ok(rate)
    }

    fn fill_source_track(
        &mut self,
        filled: &mut StateOptions,
        track: Option<Track>,
        by_rule: bool,
        options: &[Node<StateOption>],
        timeouts: &mut [u32; Timeout::ALL.len()],
    ) -> Step<()> {
        if track.is_none() && !by_rule && filled.max_source_states == 0 {
            return Ok(());
        }
        if track == Some(Track::Global) && by_rule {
            let limit = options.iter().find(|node| {
                matches!(
                    node.value,
                    StateOption::MaxSourceNodes(_)
                        | StateOption::MaxSourceConnections(_)
                        | StateOption::MaxSourceRate(_)
                )
            });
            if let Some(node) = limit {
                let at = node.at.clone();
                return self.fail_with(
                    "source-track",
                    &at,
                    "this limit is incompatible with `source-track global`",
                    "write `source-track rule`",
                );
            }
        }
        let per_rule = by_rule || track == Some(Track::Rule);
        filled.source_track = Some(if per_rule {
            SourceTrack::Rule
        } else {
            SourceTrack::Global
        });
        let seconds = filled.max_source_rate.map_or(0, |rate| rate.seconds);
        let slot = &mut timeouts[Timeout::SourceTrack as usize];
        *slot = (*slot).max(seconds);
        Ok(())
    }

    /// The name between a table's brackets.
    pub(super) fn table_name(&mut self) -> Step<std::sync::Arc<str>> {
        let (name, at) = self.text("the name of a table")?;
        if name.len() <= names::TABLE_NAME_MAX {
            return Ok(name);
        }
        self.fail(
            "too-long",
            &at,
            format!(
                "a table's name has at most {} characters",
                names::TABLE_NAME_MAX
            ),
        )
    }
}

fn starts_state_option(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::Max
            | Keyword::NoSync
            | Keyword::MaxSrcStates
            | Keyword::MaxSrcConn
            | Keyword::MaxSrcConnRate
            | Keyword::MaxSrcNodes
            | Keyword::Overload
            | Keyword::SourceTrack
            | Keyword::IfBound
            | Keyword::Floating
            | Keyword::Sloppy
            | Keyword::Pflow
    )
}

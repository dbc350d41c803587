//! `set …`

use super::parser::{Parser, Step};
use crate::lex::{At, Keyword, Kind};
use crate::rule::{IcmpError, Preamble, Return, Syncookies, Timeout};

/// Timeouts that `set optimization` sets, by its names.
const OPTIMIZATIONS: &[(&str, [u32; 7])] = &[
    ("normal", [120, 30, 86_400, 900, 45, 90, 30]),
    ("satellite", [180, 35, 86_400, 905, 50, 95, 60]),
    ("high-latency", [180, 35, 86_400, 905, 50, 95, 60]),
    ("conservative", [3600, 900, 432_000, 3600, 600, 180, 60]),
    ("aggressive", [30, 5, 18_000, 60, 30, 30, 10]),
];

const OPTIMIZED: [Timeout; 7] = [
    Timeout::TcpFirst,
    Timeout::TcpOpening,
    Timeout::TcpEstablished,
    Timeout::TcpClosing,
    Timeout::TcpFinWait,
    Timeout::TcpClosed,
    Timeout::TcpTimestampDifference,
];

const LIMITS: &[&str] = &[
    "states",
    "src-nodes",
    "frags",
    "tables",
    "table-entries",
    "pktdelay-pkts",
    "anchors",
];

/// Levels of syslog(3), and the numbers that stand for them.
const DEBUG_LEVELS: &[&str] = &[
    "emerg", "alert", "crit", "err", "error", "panic", "warn", "warning", "notice", "info", "debug",
];

impl Parser<'_> {
    pub(super) fn option(&mut self) -> Step<()> {
        self.take();
        let at = self.peek().at.clone();
        let Some(keyword) = self.peek_keyword() else {
            return self.unexpected(OPTIONS);
        };
        self.take();
        self.option_in_order(keyword, &at)?;
        match keyword {
            Keyword::FailPolicy | Keyword::RequireOrder | Keyword::KeepCounters => {
                self.freebsd_set(keyword)
            }
            Keyword::Reassemble => self.reassemble(),
            Keyword::Optimization => self.optimization(),
            Keyword::RulesetOptimization => self.ruleset_optimization(),
            Keyword::Timeout => self.pairs(Self::timeout),
            Keyword::Limit => self.pairs(Self::limit),
            Keyword::LogInterface => {
                let name = if self.accept(Keyword::All) {
                    "all".into()
                } else {
                    self.text("an interface")?.0
                };
                self.print_option(format!("set loginterface {name}"));
                Ok(())
            }
            Keyword::HostId => self.host_id(),
            Keyword::BlockPolicy => self.set_block_policy(),
            Keyword::Fingerprints => {
                let (path, _) = self.text("the path of a file")?;
                self.print_option(format!("set fingerprints \"{path}\""));
                Ok(())
            }
            Keyword::StatePolicy => self.state_policy(),
            Keyword::Debug => self.debug(),
            Keyword::Skip => self.skip(),
            Keyword::StateDefaults => {
                let options = self.state_options()?;
                self.once_only(self.state_defaults.is_some(), "state-defaults", &at)?;
                self.state_defaults = Some(options);
                Ok(())
            }
            Keyword::Syncookies => self.syncookies(),
            _ => {
                let error =
                    Self::error("syntax", &at, format!("`{}` is no option", keyword.text()));
                self.report(error.help(format!("options are {OPTIONS}")));
                Err(super::parser::Failed)
            }
        }
    }

    /// Keeps an option's canonical text.
    pub(super) fn print_option(&mut self, text: String) {
        self.ruleset.preamble.push(Preamble::Option(text));
    }

    pub(super) fn yes_or_no(&mut self) -> Step<bool> {
        if self.accept(Keyword::No) {
            return Ok(false);
        }
        let (word, at) = self.text("`yes` or `no`")?;
        if &*word == "yes" {
            return Ok(true);
        }
        let message = format!("expected `yes` or `no`, found `{word}`");
        self.fail("syntax", &at, message)
    }

    fn reassemble(&mut self) -> Step<()> {
        let on = self.yes_or_no()?;
        let no_df = self.accept(Keyword::NoDf);
        self.ruleset.options.reassemble = on;
        self.ruleset.options.reassemble_no_df = on && no_df;
        let (on, no_df) = (
            if on { "yes" } else { "no" },
            if no_df { "no-df" } else { "" },
        );
        self.print_option(format!("set reassemble {on} {no_df}"));
        Ok(())
    }

    fn optimization(&mut self) -> Step<()> {
        let (name, at) = self.text("an optimization")?;
        let found = OPTIMIZATIONS
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(&name));
        let Some((_, values)) = found else {
            let known = OPTIMIZATIONS.iter().map(|&(name, _)| name);
            return self.unknown_name("unknown-option", "optimization", &name, &at, known);
        };
        for (timeout, &seconds) in OPTIMIZED.iter().zip(values) {
            self.ruleset.options.timeouts[*timeout as usize] = seconds;
        }
        self.print_option(format!("set optimization {name}"));
        Ok(())
    }

    fn ruleset_optimization(&mut self) -> Step<()> {
        let (name, at) = self.words("`none`, `basic` or `profile`")?;
        if ["none", "basic", "profile"].contains(&&*name) {
            return Ok(());
        }
        let known = ["none", "basic", "profile"].into_iter();
        self.unknown_name("unknown-option", "ruleset-optimization", &name, &at, known)
    }

    /// One pair of name and number, or a list of them in braces.
    fn pairs(&mut self, pair: fn(&mut Self) -> Step<()>) -> Step<()> {
        if !self.accept_byte(b'{') {
            return pair(self);
        }
        self.list_rest(pair).map(|_| ())
    }

    fn timeout(&mut self) -> Step<()> {
        let (name, at) = self.timeout_name("a timeout")?;
        let value = self.number_to(u32::MAX, &name)?;
        let Some(timeout) = Timeout::by_name(&name) else {
            let known = Timeout::ALL.iter().map(|timeout| timeout.name());
            return self.unknown_name("unknown-timeout", "timeout", &name, &at, known);
        };
        self.ruleset.options.timeouts[timeout as usize] = value;
        self.print_option(format!("set timeout {name} {}", value.cast_signed()));
        Ok(())
    }

    fn limit(&mut self) -> Step<()> {
        let (name, at) = self.text("a limit")?;
        let value = self.number_to(u32::MAX, &name)?;
        if !LIMITS.iter().any(|other| other.eq_ignore_ascii_case(&name)) {
            return self.unknown_name(
                "unknown-option",
                "limit",
                &name,
                &at,
                LIMITS.iter().copied(),
            );
        }
        let options = &mut self.ruleset.options;
        match name.to_ascii_lowercase().as_str() {
            "states" => options.limit_states = value,
            "src-nodes" => options.limit_source_nodes = value,
            "frags" => options.limit_fragments = value,
            "tables" => options.limit_tables = value,
            "table-entries" => options.limit_table_entries = value,
            _ => {}
        }
        self.print_option(format!("set limit {name} {}", value.cast_signed()));
        Ok(())
    }

    fn host_id(&mut self) -> Step<()> {
        let (number, at) = self.number_or_text("the host's number")?;
        match number.and_then(|number| u32::try_from(number).ok()) {
            Some(number) if number > 0 => {
                self.print_option(format!("set hostid 0x{number:08x}"));
                Ok(())
            }
            _ => self.fail("range", &at, "hostid is a number from 1 to 0xffffffff"),
        }
    }

    fn number_or_text(&mut self, expected: &str) -> Step<(Option<u64>, At)> {
        if let Kind::Number(number) = self.peek().kind {
            let at = self.take().at;
            return Ok((u64::try_from(number).ok(), at));
        }
        let (text, at) = self.text(expected)?;
        Ok((super::address::c_number(&text), at))
    }

    fn set_block_policy(&mut self) -> Step<()> {
        let name = if self.accept(Keyword::Drop) {
            self.block_policy = Return::Drop;
            "drop"
        } else if self.accept(Keyword::Return) {
            self.block_policy = Return::Return {
                icmp: IcmpError::DEFAULT,
            };
            "return"
        } else {
            return self.unexpected("`drop` or `return`");
        };
        self.print_option(format!("set block-policy {name}"));
        Ok(())
    }

    fn state_policy(&mut self) -> Step<()> {
        let name = if self.accept(Keyword::IfBound) {
            self.if_bound = true;
            "if-bound"
        } else if self.accept(Keyword::Floating) {
            self.if_bound = false;
            "floating"
        } else {
            return self.unexpected("`if-bound` or `floating`");
        };
        self.print_option(format!("set state-policy {name}"));
        Ok(())
    }

    fn debug(&mut self) -> Step<()> {
        if self.is_freebsd() {
            return self.freebsd_debug();
        }
        if self.accept(Keyword::Debug) {
            self.print_option("set debug debug".into());
            return Ok(());
        }
        let (name, at) = self.text("a level of syslog")?;
        let number = name.parse::<u8>().is_ok_and(|number| number <= 7);
        if !number
            && !DEBUG_LEVELS
                .iter()
                .any(|level| level.eq_ignore_ascii_case(&name))
        {
            return self.unknown_name(
                "unknown-option",
                "debug level",
                &name,
                &at,
                DEBUG_LEVELS.iter().copied(),
            );
        }
        self.print_option(format!("set debug {name}"));
        Ok(())
    }

    fn skip(&mut self) -> Step<()> {
        let interfaces = self.interfaces()?;
        let none = |node: &super::syntax::Node<super::syntax::Interface>| {
            !node.value.negated && node.value.name.as_deref() == Some("none")
        };
        if interfaces.is_empty() || interfaces.len() == 1 && none(&interfaces[0]) {
            self.ruleset.options.skip.clear();
            self.skipped.clear();
            self.print_option("set skip on none".into());
            return Ok(());
        }
        let mut text = String::from("set skip on {");
        for node in &interfaces {
            let at = node.at.clone();
            let Some(name) = node.value.name.clone().filter(|_| !node.value.negated) else {
                return self.fail(
                    "skip",
                    &at,
                    "`set skip` takes names of interfaces and groups, without `!` or rdomain",
                );
            };
            text.push(' ');
            text.push_str(&name);
            if self.skipped.insert(name.clone()) {
                self.ruleset.options.skip.push(name);
            }
        }
        self.print_option(format!("{text} }}"));
        Ok(())
    }

    fn syncookies(&mut self) -> Step<()> {
        let (name, at) = self.text("`never`, `adaptive` or `always`")?;
        let mode = match &*name {
            "never" => Syncookies::Never,
            "always" => Syncookies::Always,
            "adaptive" => Syncookies::Adaptive,
            _ => {
                let known = ["never", "adaptive", "always"].into_iter();
                return self.unknown_name(
                    "unknown-option",
                    "value of syncookies",
                    &name,
                    &at,
                    known,
                );
            }
        };
        self.ruleset.options.syncookies = mode;
        if !self.accept_byte(b'(') {
            self.print_option(format!("set syncookies {name}"));
            return Ok(());
        }
        let (mut start, mut end) = (0, 0);
        loop {
            let (word, at) = self.text("`start` or `end`")?;
            let percent = self.percent()?;
            match &*word {
                "start" => start = percent,
                "end" => end = percent,
                _ => {
                    return self.fail(
                        "syntax",
                        &at,
                        format!("expected `start` or `end`, found `{word}`"),
                    );
                }
            }
            self.accept_byte(b',');
            if self.accept_byte(b')') {
                break;
            }
        }
        if mode != Syncookies::Adaptive {
            return self.fail(
                "syncookies",
                &at,
                "`start` and `end` only apply to adaptive syncookies",
            );
        }
        let start = if start == 0 { 25 } else { start };
        let end = if end == 0 { start / 2 } else { end };
        if end >= start {
            return self.fail("syncookies", &at, "`start` must be higher than `end`");
        }
        self.print_option(format!(
            "set syncookies adaptive (start {start}%, end {end}%)"
        ));
        Ok(())
    }

    fn percent(&mut self) -> Step<u32> {
        let (text, at) = self.text("a percentage")?;
        let value = text
            .strip_suffix('%')
            .and_then(|number| number.parse::<f64>().ok());
        match value {
            Some(value) if value > 0.0 && value <= 100.0 => Ok(value as u32),
            _ => self.fail(
                "range",
                &at,
                format!("`{text}` is no percentage from 1% to 100%"),
            ),
        }
    }
}

const OPTIONS: &str = "`block-policy`, `debug`, `fingerprints`, `hostid`, `limit`, `loginterface`, `optimization`, \
     `reassemble`, `ruleset-optimization`, `skip`, `state-defaults`, `state-policy`, `syncookies` or `timeout`";

//! The counters of the protocol stack over one look.

use anyhow::{Context as _, Result};
use hostnet::mib::Mib;

use super::context::Context;
use super::context::watch::Twice;
use super::evidence::Evidence;

/// Counters of IPv4, ICMP, TCP and UDP.
pub const SNMP: &str = "/proc/net/snmp";
/// Linux's own counters of TCP and IP.
pub const NETSTAT: &str = "/proc/net/netstat";
/// Counters of IPv6; not there without it.
pub const SNMP6: &str = "/proc/net/snmp6";
/// All three.
pub const FILES: &[&str] = &[SNMP, NETSTAT, SNMP6];

/// Counters at both ends of the look.
pub struct Moved {
    counters: Vec<Counter>,
    /// The length of the look in seconds.
    pub seconds: f64,
}

/// A counter at both ends of the look.
struct Counter {
    file: &'static str,
    name: &'static str,
    before: u64,
    after: u64,
}

impl Moved {
    /// The counters with these names, such as `Udp.RcvbufErrors`, each in one of [`FILES`], which must be
    /// among the counters of the check. Those that the kernel does not have are left out.
    pub fn read(context: &Context, counters: &[(&'static str, &'static str)]) -> Result<Self> {
        let mut moved = Self {
            counters: Vec::new(),
            seconds: 0.0,
        };
        for &(file, name) in counters {
            // Without IPv6 there is no such file.
            if file == SNMP6 && context.read_if_there(SNMP6)?.is_none() {
                continue;
            }
            let twice = context.twice(file)?;
            moved.seconds = twice.elapsed.as_secs_f64();
            moved.add(file, name, Mib::parse, &twice);
        }
        Ok(moved)
    }

    /// The columns with these names of `/proc/net/stat/TABLE`, which must be among the counters of the
    /// check.
    pub fn of_table(
        context: &Context,
        (file, table): (&'static str, &str),
        columns: &[&'static str],
    ) -> Result<Self> {
        let twice = context.twice(file)?;
        let mut moved = Self {
            counters: Vec::new(),
            seconds: twice.elapsed.as_secs_f64(),
        };
        for column in columns {
            moved.add(file, column, |text| Mib::parse_stat(table, text), &twice);
        }
        Ok(moved)
    }

    fn add(
        &mut self,
        file: &'static str,
        name: &'static str,
        parse: impl Fn(&str) -> Mib,
        twice: &Twice<'_>,
    ) {
        let value = |text: &str| parse(text).get(name);
        let both = value(twice.before).zip(value(twice.after));
        self.counters.extend(both.map(|(before, after)| Counter {
            file,
            name,
            before,
            after,
        }));
    }

    /// The sum of the increases.
    pub fn by(&self) -> u64 {
        self.counters.iter().map(Counter::by).sum()
    }

    /// The increase of one counter; 0 if the kernel does not have it.
    pub fn of(&self, name: &str) -> u64 {
        let counters = self.counters.iter();
        counters.filter(|it| it.name == name).map(Counter::by).sum()
    }

    /// The length of the look and the rate of the sum.
    pub fn period(&self) -> String {
        period(self.by(), self.seconds)
    }

    /// The readings; those that moved alone, if any did.
    pub fn evidence(&self) -> Result<Vec<Evidence>> {
        let any = self.by() > 0;
        let shown = self.counters.iter().filter(|it| it.by() > 0 || !any);
        let evidence: Vec<_> = shown.map(|it| it.evidence(self.seconds)).collect();
        evidence
            .first()
            .context("the kernel has none of these counters")?;
        Ok(evidence)
    }
}

impl Counter {
    const fn by(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    fn evidence(&self, seconds: f64) -> Evidence {
        let value = match self.by() {
            0 => format!("{}, no more in {seconds:.1} s", self.after),
            by => format!("{} -> {}, {}", self.before, self.after, rate(by, seconds)),
        };
        Evidence::new(format!("{}, {}", self.file, self.name), value)
    }
}

/// `count` within so many seconds, with its rate.
pub fn rate(count: u64, seconds: f64) -> String {
    format!("{count} {}", period(count, seconds))
}

/// So many seconds, with the rate of `count` within them.
pub fn period(count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds;
    let digits = usize::from(rate < 10.0);
    format!("in {seconds:.1} s ({rate:.digits$}/s)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_evidence_has_the_rate() -> Result<()> {
        let counter = |before, after| Counter {
            file: SNMP,
            name: "Udp.NoPorts",
            before,
            after,
        };
        let mut moved = Moved {
            counters: vec![counter(5, 305), counter(7, 7)],
            seconds: 3.0,
        };
        assert_eq!((moved.by(), moved.of("Udp.NoPorts")), (300, 300));
        let evidence = moved.evidence()?;
        assert_eq!(evidence.len(), 1, "only the counters that moved");
        assert_eq!(evidence[0].source, "/proc/net/snmp, Udp.NoPorts");
        assert_eq!(evidence[0].value, "5 -> 305, 300 in 3.0 s (100/s)");
        moved.counters.remove(0);
        assert_eq!(moved.evidence()?[0].value, "7, no more in 3.0 s");
        moved.counters.clear();
        assert!(moved.evidence().is_err());
        assert_eq!(rate(3, 2.0), "3 in 2.0 s (1.5/s)");
        Ok(())
    }
}

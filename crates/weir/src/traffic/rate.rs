//! Packet rates of flags.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// The highest rate of a load.
const MAX_PPS: f64 = 100_000_000.0;

/// Packets a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = anyhow::Error;

    /// A number, with `k` for thousands and `M` for millions.
    fn from_str(text: &str) -> Result<Self> {
        let (number, unit) = match text.strip_suffix(['k', 'K']) {
            Some(number) => (number, 1e3),
            None => match text.strip_suffix(['m', 'M']) {
                Some(number) => (number, 1e6),
                None => (text, 1.0),
            },
        };
        let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let number: Option<f64> = number.parse().ok().filter(|_| plain);
        let pps = number
            .with_context(|| format!("{text:?} is no rate: write 250000, 250k or 1.5M"))?
            * unit;
        ensure!(
            (1.0..=MAX_PPS).contains(&pps),
            "a rate is 1 to {MAX_PPS} packets a second"
        );
        Ok(Self(pps.round() as u64))
    }
}

impl fmt::Display for Rate {
    /// As it is typed, if that is short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            pps if pps >= 1_000_000 && pps % 1_000 == 0 => format!("{}M", pps as f64 / 1e6),
            pps if pps >= 1_000 && pps % 100 == 0 => format!("{}k", pps as f64 / 1e3),
            pps => pps.to_string(),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, pps, again) in [
            ("10k", 10_000, "10k"),
            ("1.5M", 1_500_000, "1.5M"),
            ("2M", 2_000_000, "2M"),
            ("2500000", 2_500_000, "2.5M"),
            ("0.5k", 500, "500"),
            ("12345", 12_345, "12345"),
            ("1250", 1_250, "1250"),
            ("1K", 1_000, "1k"),
            ("1234567", 1_234_567, "1234567"),
        ] {
            let rate: Rate = text.parse().expect(text);
            assert_eq!(rate, Rate(pps), "{text}");
            assert_eq!(rate.to_string(), again);
            assert_eq!(again.parse::<Rate>().expect(again), rate);
        }
        for text in [
            "", "k", "0", "-1", "1e5", "inf", "nan", "1.2.3", "10 k", "200M", "5G", "0.1", "+5",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text:?}");
        }
    }
}

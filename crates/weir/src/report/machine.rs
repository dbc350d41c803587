//! The machine, the build and the command that figures came from.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The machine, the build and the command.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// When the measurement began, in UTC, as in RFC 3339.
    pub date: String,
    /// The version of weir, with the commit that it was built from.
    pub weir: String,
    /// The command that repeats it.
    pub command: String,
    /// The kernel's name and release.
    pub kernel: String,
    /// What the processor calls itself.
    pub cpu_model: String,
    /// CPUs that this process may run on.
    pub cpus: usize,
}

impl Machine {
    /// This machine, now; `cpus` are those that this process may run on.
    pub fn now(cpus: usize) -> Self {
        Self {
            date: date(SystemTime::now()),
            weir: env!("WEIR_VERSION").into(),
            command: command(),
            kernel: format!("Linux {}", text("/proc/sys/kernel/osrelease").trim()),
            cpu_model: cpu_model(&text("/proc/cpuinfo")),
            cpus,
        }
    }

    /// The machine in a few words.
    pub fn summary(&self) -> String {
        let plural = if self.cpus == 1 { "" } else { "s" };
        format!(
            "{}, {} with {} CPU{plural}, weir {}",
            self.kernel, self.cpu_model, self.cpus, self.weir
        )
    }
}

/// A file of /proc: empty if it cannot be read, since a report is worth having without it.
fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The words that were typed, quoted for a shell where needed.
fn command() -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| quote(&word.to_string_lossy()));
    std::iter::once("weir".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A word as a shell takes it.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// From /proc/cpuinfo; not every architecture tells.
fn cpu_model(cpuinfo: &str) -> String {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| ["model name", "cpu model", "Model"].contains(&key.trim()))
        .map_or_else(
            || std::env::consts::ARCH.into(),
            |(_, value)| value.trim().into(),
        )
}

/// In UTC, as in RFC 3339.
pub fn date(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86400);
    let of_day = seconds % 86400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day since 1970. Years begin in March here, so that the leap day is
/// the last; 400 of them have 146097 days, in every 5 months from March there are 153.
fn civil(day: u64) -> (u64, u64, u64) {
    const TO_1970: u64 = 719_468;
    let day = day + TO_1970;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_command_can_be_pasted() {
        assert_eq!(quote("--engine=xsk,libxdp"), "--engine=xsk,libxdp");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn a_cpu_without_a_name_has_its_architecture() {
        assert_eq!(cpu_model("processor : 0\nmodel name\t: A B\n"), "A B");
        assert_eq!(cpu_model(""), std::env::consts::ARCH);
    }
}

//! The machine, the build and the command that figures came from.

use std::fs;
use std::time::SystemTime;

use serde::Serialize;

use super::date::date;
use super::shell::own_command_line;

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
    /// The model name of the processor.
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
            command: own_command_line(),
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

/// A file of /proc: empty if it cannot be read, since a report is useful without it.
fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// From /proc/cpuinfo; some architectures have no model name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_without_a_name_has_its_architecture() {
        assert_eq!(cpu_model("processor : 0\nmodel name\t: A B\n"), "A B");
        assert_eq!(cpu_model(""), std::env::consts::ARCH);
    }
}
